"""All of a cell's output as resources: links in results, resources/list and resources/read, in both eras."""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp_serve.helpers import Raw, text_of
from mcp_serve.test_stateless import Stateless

Serve = Callable[..., Raw]
LONG = "print('é' * 6000 + 'end')"


def links(result: dict[str, Any]) -> dict[str, str]:
    """The links of a result: the URI of each part."""
    found = [b for b in result["content"] if b["type"] == "resource_link"]
    assert all(b["mimeType"] == "text/plain" and b["size"] > 0 for b in found)
    return {b["uri"].rpartition("/")[2]: b["uri"] for b in found}


def cell(server: Raw, code: str, **arguments: Any) -> dict[str, Any]:
    return server.result(server.call("execute_ipython_cell", code=code, **arguments))


def listed(server: Raw) -> list[str]:
    return [r["uri"] for r in server.result(server.request("resources/list"))["resources"]]


def read(server: Raw, uri: str) -> dict[str, Any]:
    """The one content of a resource."""
    (content,) = server.result(server.request("resources/read", {"uri": uri}))["contents"]
    assert content["uri"] == uri and content["mimeType"] == "text/plain"
    return content


def code_of(server: Raw, uri: object) -> int:
    return server.answer(server.request("resources/read", {"uri": uri}))["error"]["code"]


@pytest.fixture
def server(serve: Serve) -> Raw:
    server = serve()
    assert server.initialize()["capabilities"]["resources"] == {}
    return server


def test_what_was_cut_is_a_resource(server: Raw) -> None:
    assert links(cell(server, "print('short')")) == {} and listed(server) == []
    uris = links(cell(server, LONG))
    assert list(uris) == ["stdout"] and listed(server) == [*uris.values()]
    assert read(server, uris["stdout"])["text"] == "é" * 6000 + "end\n"
    templates = server.result(server.request("resources/templates/list"))["resourceTemplates"]
    assert templates[0]["uriTemplate"].startswith("cellgate://session/{session_id}/cell/{number}/{part}{?from,length}")


def test_each_source_is_apart(server: Raw) -> None:
    code = "import sys\nfor i in range(3000): print(i); print(-i, file=sys.stderr)\ndisplay(1); print('now', end='')\n'v' * 9000"
    uris = links(cell(server, code))
    assert list(uris) == ["stdout", "stderr", "result"]
    assert read(server, uris["stdout"])["text"] == "".join(f"{i}\n" for i in range(3000)) + "1\nnow"
    assert read(server, uris["stderr"])["text"] == "".join(f"{-i}\n" for i in range(3000))
    assert read(server, uris["result"])["text"] == repr("v" * 9000)


def test_only_parts_with_something_cut_are_linked(server: Raw) -> None:
    uris = links(cell(server, "import sys; print('first', file=sys.stderr); " + LONG))
    assert list(uris) == ["stdout"]
    # What is not listed can be read as well.
    assert read(server, uris["stdout"].replace("stdout", "stderr"))["text"] == "first\n"
    assert read(server, uris["stdout"].replace("stdout", "result"))["text"] == ""


def test_parts_fit_one_answer(server: Raw) -> None:
    uri = links(cell(server, "print('é' * 2_500_000)", max_output_chars=100))["stdout"]
    text, next_uri = "", uri
    while next_uri:
        content = read(server, next_uri)
        assert len(content["text"]) <= 1_000_000 and content["_meta"]["cellgate/characters"] == 2_500_001
        text += content["text"]
        next_uri = content["_meta"].get("cellgate/next")
    assert text == "é" * 2_500_000 + "\n"
    assert read(server, uri + "?from=2499999&length=5")["text"] == "é\n"
    assert read(server, uri + "?length=3")["text"] == "ééé"
    assert read(server, uri + "?from=99999999")["text"] == ""


def test_what_is_not_there_is_not_found(server: Raw, serve: Serve) -> None:
    uri = links(cell(server, LONG))["stdout"]
    other = serve()
    other.initialize()
    assert code_of(other, uri) == -32002
    id, wrong = uri.split("/")[3], "0" * 32
    for bad in (
        uri.replace(id, wrong),
        uri.replace("cell/1", "cell/2"),
        uri.replace("cell/1", "cell/01"),
        uri.replace("cell/1", "cell/-1"),
        uri.replace("stdout", "traceback"),
        uri + "/",
        uri + "?from=-1",
        uri + "?to=3",
        uri + "?from=1&",
        uri + "&from=1",
        "file:///etc/passwd",
        "",
    ):
        assert code_of(server, bad) == -32002, bad
    error = server.answer(server.request("resources/read", {"uri": "x:y"}))["error"]
    assert error["data"] == {"uri": "x:y"}
    for bad_type in (7, None, "x" * 3000):
        assert code_of(server, bad_type) == -32602
    assert server.answer(server.request("resources/list", {"cursor": "x"}))["error"]["code"] == -32602
    # The session's end is the end of its resources; that of a kernel is not.
    server.ask("reset")
    assert read(server, uri)["text"]


def test_resources_are_forgotten_with_their_session(serve: Serve) -> None:
    server = serve("--toolsets", "core,jobs,sessions")
    server.initialize()
    id = server.ask("create_session").partition("session_id: ")[2]
    uri = links(cell(server, LONG, session_id=id))["stdout"]
    own = links(cell(server, LONG))["stdout"]
    assert listed(server) == [uri, own] and id in uri
    server.ask("terminate_session", session_id=id)
    assert listed(server) == [own] and code_of(server, uri) == -32002


def test_the_list_has_pages(server: Raw) -> None:
    for _ in range(101):
        cell(server, "print('x' * 250)", max_output_chars=0)
    first = server.result(server.request("resources/list"))
    second = server.result(server.request("resources/list", {"cursor": first["nextCursor"]}))
    assert [len(p["resources"]) for p in (first, second)] == [100, 1] and "nextCursor" not in second
    assert second["resources"][0]["name"] == "cell-101 stdout"


def test_secrets_are_not_in_resources(serve: Serve) -> None:
    server = serve("--env", "API_TOKEN=very-secret")
    server.initialize()
    uri = links(cell(server, "import os; print((os.environ['API_TOKEN'] + ' ') * 1000)"))["stdout"]
    assert read(server, uri)["text"] == "*** " * 1000 + "\n"
    assert read(server, uri + "?from=1&length=4")["text"] == "** *"


def test_older_clients_get_no_links(serve: Serve) -> None:
    """They were not a part of the protocol; resources were."""
    server = serve()
    server.initialize("2025-03-26")
    assert {b["type"] for b in cell(server, LONG)["content"]} == {"text"}
    assert read(server, listed(server)[0])["text"].endswith("end\n")


def test_without_a_handshake(serve: Serve) -> None:
    client = Stateless(serve())
    assert client.request("server/discover")["result"]["capabilities"]["resources"] == {}
    uri = links(client.cell(LONG))["stdout"]
    for method, params, kind in (
        ("resources/list", {}, types.ListResourcesResult),
        ("resources/templates/list", {}, types.ListResourceTemplatesResult),
        ("resources/read", {"uri": uri}, types.ReadResourceResult),
    ):
        result = client.request(method, **params)["result"]
        assert result["resultType"] == "complete" and result["cacheScope"] == "private" and result["ttlMs"] >= 0
        kind.model_validate(result)
    assert client.request("resources/read", uri=uri + "x")["error"]["code"] == -32602


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_the_official_client(cellgate: Path, workspace: Path, environment: dict[str, str], mode: str) -> None:
    async def use() -> None:
        server = StdioServerParameters(
            command=str(cellgate), args=["mcp", "serve", "--workspace", str(workspace)], env=environment
        )
        async with Client(server, mode=mode) as client:
            result = await client.call_tool("execute_ipython_cell", {"code": LONG})
            (link,) = [b for b in result.content if b.type == "resource_link"]
            assert "end" in text_of(result) and json.dumps(result.structured_content)
            content = (await client.read_resource(link.uri)).contents[0]
            assert isinstance(content, types.TextResourceContents) and content.text == "é" * 6000 + "end\n"
            assert [r.uri for r in (await client.list_resources()).resources] == [link.uri]

    anyio.run(use)


# ---------------------------------------------------------------------- files of cells


@pytest.fixture
def files(serve: Serve) -> Raw:
    server = serve("--artifacts", "--env", "API_TOKEN=very-secret")
    server.initialize()
    return server


def artifacts(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {Path(f["path"]).name: f for f in result["structuredContent"]["artifacts"]}


def test_files_of_a_cell_are_resources(files: Raw) -> None:
    made = artifacts(cell(files, "open('a.txt', 'w').write('é' * 9); open('b.bin', 'wb').write(bytes(range(256)));"))
    a, b = made["a.txt"], made["b.bin"]
    assert listed(files) == [f["uri"] for f in made.values()]
    assert read(files, a["uri"])["text"] == "é" * 9
    part = read(files, a["uri"] + "?from=7&length=1")
    assert part["text"] == "é" and part["_meta"] == {
        "cellgate/characters": 9,
        "cellgate/next": a["uri"] + "?from=8&length=1",
    }
    (content,) = files.result(files.request("resources/read", {"uri": b["uri"]}))["contents"]
    data = base64.b64decode(content["blob"])
    assert content["mimeType"] == "application/octet-stream" and hashlib.sha256(data).hexdigest() == b["sha256"]
    (content,) = files.result(files.request("resources/read", {"uri": b["uri"] + "?from=254"}))["contents"]
    assert base64.b64decode(content["blob"]) == b"\xfe\xff" and content["_meta"] == {"cellgate/bytes": 256}


def test_a_result_links_its_files(files: Raw) -> None:
    result = cell(files, "for i in range(30): open(f'{i}', 'w').write('1')")
    links = [b for b in result["content"] if b["type"] == "resource_link"]
    assert len(links) == 20 and {"type", "uri", "name", "size"} == set(links[0])
    assert len(listed(files)) == 30
    assert {b["uri"]: b["name"] for b in links}.items() <= {
        f["uri"]: f["path"] for f in artifacts(result).values()
    }.items()


@pytest.mark.parametrize(
    "change",
    [
        "open('f', 'a').write('+')",
        "open('f', 'w').write('othe')",
        "import os; os.unlink('f')",
        "import os; os.unlink('f'); os.symlink('other', 'f')",
        "import os; os.unlink('f'); os.mkfifo('f')",
        "import os; os.unlink('f'); os.mkdir('f')",
    ],
)
def test_what_has_changed_is_not_returned(files: Raw, change: str) -> None:
    uri = artifacts(cell(files, "open('other', 'w').write('hers'); open('f', 'w').write('mine')"))["f"]["uri"]
    assert read(files, uri)["text"] == "mine"
    cell(files, change)
    error = files.answer(files.request("resources/read", {"uri": uri}))["error"]
    assert error["code"] == -32002 and "has changed since" in error["message"] and error["data"] == {"uri": uri}


def test_only_files_whose_content_is_known_and_not_large_are_resources(files: Raw) -> None:
    code = "for name, mib in (('16', 16), ('17', 17), ('65', 65)): open(name, 'wb').truncate(mib << 20)"
    made = artifacts(cell(files, code))
    assert [name for name, f in made.items() if "uri" in f] == ["16"] and "sha256" not in made["65"]
    uri = made["16"]["uri"]
    for bad in (uri + "0", uri[:-1] + "-1", uri[:-1] + "99", uri[:-1], uri.replace("artifact", "artifacts"), uri + "x"):
        assert code_of(files, bad) == -32002, bad
    index = {name: i for i, name in enumerate(made)}
    for name in ("17", "65"):
        assert code_of(files, uri.rpartition("/")[0] + f"/{index[name]}") == -32002


def test_secrets_are_not_in_texts_of_files(files: Raw) -> None:
    uri = artifacts(cell(files, "import os; open('f', 'w').write('x' + os.environ['API_TOKEN'])"))["f"]["uri"]
    assert read(files, uri)["text"] == "x***" and read(files, uri + "?from=2&length=1")["text"] == "*"


def test_a_read_waits_for_the_cell_that_runs_and_ends_with_the_session(serve: Serve) -> None:
    server = serve("--artifacts", "--toolsets", "core,jobs,sessions")
    server.initialize()
    id = server.ask("create_session").partition("session_id: ")[2]
    uri = artifacts(cell(server, "open('f', 'w').write('1')", session_id=id))["f"]["uri"]
    server.ask("start_cell", code="import time; time.sleep(600)", session_id=id)
    waits = server.request("resources/read", {"uri": uri})
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waits}})
    waits = server.request("resources/read", {"uri": uri})
    end = server.call("terminate_session", session_id=id)
    assert server.answer(waits)["error"]["code"] == -32002
    server.result(end)
    assert code_of(server, uri) == -32002


def test_plain_results_have_no_files(serve: Serve) -> None:
    server = serve("--artifacts", "--plain-results")
    server.initialize()
    assert [b["type"] for b in cell(server, "open('f', 'w').write('1');")["content"]] == ["text"]
    assert listed(server) == []


def test_files_without_a_handshake(serve: Serve) -> None:
    client = Stateless(serve("--artifacts"))
    uri = artifacts(client.cell("open('f', 'w').write('1')"))["f"]["uri"]
    result = client.request("resources/read", uri=uri)["result"]
    assert result["resultType"] == "complete" and types.ReadResourceResult.model_validate(result)
    client.cell("open('f', 'w').write('2')")
    assert client.request("resources/read", uri=uri)["error"]["code"] == -32602
