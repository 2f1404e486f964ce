"""All of a cell's output as resources: links in results, resources/list and resources/read, in both eras."""

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
