"""What a cell's result says: one text for people and agents, and the same in structuredContent for programs."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp_serve.helpers import Raw, text_of
from mcp_serve.test_tools import PNG, show
from processes import eventually

Serve = Callable[..., Raw]


def schema_of(server: Raw) -> dict[str, Any]:
    tools = {t["name"]: t for t in server.result(server.request("tools/list"))["tools"]}
    return tools["execute_ipython_cell"]["outputSchema"]


@pytest.fixture
def cell(serve: Serve) -> Callable[..., tuple[str, dict[str, Any]]]:
    """Runs a cell in a server with these options: its text, and its structuredContent, which fits the schema."""
    servers: dict[tuple[str, ...], tuple[Raw, dict[str, Any]]] = {}

    def run(code: str, *options: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
        if options not in servers:
            server = serve(*options)
            server.initialize()
            servers[options] = server, schema_of(server)
        server, schema = servers[options]
        result = server.result(server.call("execute_ipython_cell", code=code, **arguments))
        content = result["structuredContent"]
        jsonschema.validate(content, schema)
        assert result["isError"] == (content["status"] != "ok")
        return text_of(result), content

    return run


def test_streams_value_and_variables_are_apart(cell: Callable) -> None:
    text, content = cell("import sys\nold = 1\nprint('out')\nprint('err', file=sys.stderr)\n'va' 'lue'")
    assert text == "out\nerr\n'value'"
    assert content["stdout"] == "out\n" and content["stderr"] == "err\n" and content["result"] == "'value'"
    assert content["status"] == "ok" and content["costs"]["wall_us"] > 0
    assert set(content["variables"]["made"]) == {"sys", "old"}
    _, content = cell("del old; sys = 2; new = 3")
    assert content["variables"] == {"made": ["new"], "changed": ["sys"], "deleted": ["old"]}
    # What is not there costs no words.
    assert {"stdout", "stderr", "result", "error", "denied", "notes", "artifacts"}.isdisjoint(content)


def test_errors_have_their_traceback_once(cell: Callable) -> None:
    text, content = cell("1/0")
    assert content["status"] == "error"
    assert content["error"]["ename"] == "ZeroDivisionError" and content["error"]["evalue"] == "division by zero"
    assert "1/0" in content["error"]["traceback"] and text.count("division by zero") == 1


def test_a_time_limit_and_a_dead_kernel_are_explained_once(cell: Callable) -> None:
    text, content = cell("import time; time.sleep(60)", "--artifacts", timeout=0.2)
    assert content["status"] == "timeout" and text.count("its limit of 0.2 s") == 1
    assert "its limit of 0.2 s" in content["notes"]
    text, content = cell("import os; os._exit(3)", "--artifacts")
    assert content["status"] == "kernel_died"
    assert text.count("exited by itself with status 3") == 1 and "Files made" not in text
    assert content["notes"] == text


def test_denials_come_last_and_are_never_cut(cell: Callable) -> None:
    code = "try: open('/etc/x', 'w')\nexcept OSError: pass\nprint('x' * 9000)\n1/0"
    text, content = cell(code, max_output_chars=500)
    assert "Output truncated" in text and content["truncated"] is True
    assert "writing /etc/x" in text.rsplit("division by zero", 1)[1]
    assert content["denied"] == [
        {"operation": "file-write", "what": "/etc/x"} | {k: content["denied"][0][k] for k in ("why", "how")}
    ]
    assert "filesystem.allowWrite" in content["denied"][0]["how"]


def test_texts_are_cut_each_by_itself(cell: Callable) -> None:
    _, content = cell("import sys; print('a' * 5000); print('b', file=sys.stderr); 'c' * 3000", max_output_chars=100)
    assert "Output truncated" in content["stdout"] and len(content["stdout"]) < 400
    assert content["stderr"] == "b\n"
    assert content["result"].startswith("'ccc") and content["result"].endswith("ccc'") and content["truncated"]


def test_an_image_is_named_once(cell: Callable, workspace: Path) -> None:
    code = show("image/png", PNG) + "\nopen('own.txt', 'w').write('12345');"
    text, content = cell(code, "--artifacts")
    image, own = workspace / "images/cell1-1.png", workspace / "own.txt"
    assert text.count(str(image)) == 1 and f"{own} (5 bytes)" in text
    files = {f["path"]: f for f in content["artifacts"]}
    assert files[str(own)]["size"] == 5 and len(files[str(own)]["sha256"]) == 64
    assert set(files) == {str(image), str(own)}
    # A file of the cell's own in that folder is no saved image.
    text, _ = cell("open('images/cell9-9.png', 'w').write('1');", "--artifacts")
    assert "images/cell9-9.png (1 bytes)" in text


def test_decisions_are_named_with_their_rule(cell: Callable, mcp_file: Path) -> None:
    options = ("--mcp", str(mcp_file), "--approve", "fake.leave_mark")
    code = "from mcptools.fake import leave_mark, echo\nleave_mark.run(text='x')\ntry: echo.run(text='x')\nexcept Exception: pass"
    _, content = cell(code, *options)
    assert content["approvals"] == [
        {"server": "fake", "tool": "leave_mark", "decision": "accepted", "rule": "fake.leave_mark"},
        {"server": "fake", "tool": "echo", "decision": "rejected", "rule": "none"},
    ]


def test_the_users_decisions_are_named(serve: Serve, mcp_file: Path) -> None:
    server = serve("--mcp", str(mcp_file), "--approve", "ask")
    server.initialize(elicitation={})
    for choice, decision in (("approve", "accepted"), ("reject", "rejected")):
        call = server.call(
            "execute_ipython_cell", code="from mcptools.fake import leave_mark\nleave_mark.run(text='x')"
        )
        question = server.receive()
        assert question["method"] == "elicitation/create"
        answer = {"action": "accept", "content": {"decision": choice}}
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        content = server.result(call)["structuredContent"]
        assert content["approvals"] == [{"server": "fake", "tool": "leave_mark", "decision": decision}]


def test_secrets_are_in_no_form_of_the_result(cell: Callable) -> None:
    secret = 'very"secret\\value'
    code = (
        "import os; s = os.environ['API_TOKEN']; print(s); open(s.replace('/', ''), 'w').close(); raise ValueError(s)"
    )
    text, content = cell(code, "--artifacts", "--env", f"API_TOKEN={secret}")
    assert "***" in content["stdout"] and "***" in content["error"]["evalue"]
    assert secret not in text and json.dumps(secret)[1:-1] not in json.dumps(content)


def test_output_between_calls_is_apart(serve: Serve, workspace: Path) -> None:
    server = serve()
    server.initialize()
    code = "import threading, time\ndef late():\n    print('late', flush=True); open('printed', 'w').close()\n"
    server.result(server.call("execute_ipython_cell", code=code))
    content: dict[str, Any] = {}
    # No event shows that the text has arrived between the calls, so it may come with the second.
    for _ in range(50):
        server.result(server.call("execute_ipython_cell", code="threading.Timer(0.05, late).start()"))
        eventually((workspace / "printed").exists)
        (workspace / "printed").unlink()
        content = server.result(server.call("execute_ipython_cell", code="print('now')"))["structuredContent"]
        if "before" in content:
            break
    assert content["stdout"] == "now\n" and content["before"] == "late\n"


def test_plain_results_have_text_only(serve: Serve) -> None:
    server = serve("--plain-results")
    server.initialize()
    assert all("outputSchema" not in t for t in server.result(server.request("tools/list"))["tools"])
    result = server.result(server.call("execute_ipython_cell", code="print(1)"))
    assert result == {"content": [{"type": "text", "text": "1"}], "isError": False}


def test_unknown_arguments_are_ignored_and_named(serve: Serve) -> None:
    server = serve()
    server.initialize()
    result = server.result(server.call("execute_ipython_cell", code="print(1)", language="python"))
    assert not result["isError"]
    assert text_of(result).startswith("1\n\n") and 'has no parameter "language"; it has code, timeout' in text_of(
        result
    )
    result = server.result(server.call("reset", hard=True))
    assert not result["isError"] and 'has no parameter "hard"; it has none' in text_of(result)
    result = server.result(server.call("execute_ipython_cell", cmd="1"))
    assert result["isError"] and '"code" is missing' in text_of(result) and '"cmd"' in text_of(result)


def test_all_broken_servers_are_reported_once(serve: Serve, workspace: Path) -> None:
    file = workspace.parent / "broken.json"
    unset = {"command": "true", "env": {"X": "${CELLGATE_TEST_UNSET}"}}
    servers = {"one": {"command": "/nonexistent"}, "two": {"command": "/bin/false"}, "three": unset}
    file.write_text(json.dumps({"mcpServers": servers}))
    server = serve("--mcp", file)
    server.initialize()
    text = text_of(server.result(server.call("execute_ipython_cell", code="1")))
    assert text.count("/nonexistent") == text.count('"two"') == text.count("CELLGATE_TEST_UNSET is not set") == 1
    text = text_of(server.result(server.call("execute_ipython_cell", code="1")))
    assert text == "1"


def test_signed_files(cell: Callable, run_cellgate: Callable, workspace: Path) -> None:
    options = ("--audit", "strict", "--sign-artifacts")
    text, content = cell("open('signed.txt', 'w').write('123')", *options)
    assert [f["path"] for f in content["artifacts"]] == [f"{workspace}/signed.txt"]
    execution = content["signed"]["execution"]
    assert text.endswith(f"\n- signed as {execution}")
    assert f"{workspace}/signed.txt\n" in run_cellgate("artifacts", execution).stdout
    assert "signed" not in cell("1", *options)[1]


def test_a_client_that_reads_only_structured_content_gets_html_and_markdown(cell: Callable) -> None:
    code = "from IPython.display import display\ndisplay({'text/markdown': '# Title'}, raw=True)"
    text, content = cell(code)
    assert text == "# Title" and content["stdout"] == "# Title\n"
    image = base64.b64encode(PNG).decode()
    _, content = cell(f"display({{'image/png': {image!r}, 'text/plain': '<Figure>'}}, raw=True)")
    assert "stdout" not in content
