"""Cells that outlive the calls that started them: --wait, and the toolset `jobs`."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp_serve import test_tools
from mcp_serve.helpers import Raw, text_of
from processes import eventually, gate

Serve = Callable[..., Raw]
index = test_tools.index
FAKE = str(Path(__file__).with_name("fake_server.py"))
MARK = "from mcptools.fake import leave_mark\nleave_mark.run(text='x')"


def started(serve: Serve, *args: str | Path, **capabilities: object) -> Raw:
    """A server whose kernel has started, however slow the machine is."""
    server = serve(*args)
    server.initialize(**capabilities)
    assert text_of(whole(server, *ids(server, "'ready'"))) == "'ready'"
    return server


def ids(server: Raw, *codes: str) -> list[str]:
    """Starts cells. Returns their execution_ids."""
    return [id_of(server.ask("start_cell", code=code)) for code in codes]


def whole(server: Raw, execution_id: str, **arguments: object) -> dict[str, Any]:
    """The result of a cell, when it has ended."""
    while True:
        result = server.result(server.call("cell_result", execution_id=execution_id, **arguments))
        if " goes on; cell_result" not in text_of(result):
            return result


def id_of(text: str) -> str:
    found = re.search(r"execution_id: (cell-\d+)\.", text)
    assert found, text
    return found[1]


def test_a_call_is_answered_before_its_cell_ends(serve: Serve, workspace: Path) -> None:
    server = started(serve, "--wait", "0.3")
    release = gate(workspace)
    call = server.call("execute_ipython_cell", code="print('begun')\nopen('go').read()\nprint('done')\n1/0")
    result = server.result(call)
    id = id_of(text := text_of(result))
    assert not result["isError"] and "stdout" not in result["structuredContent"]
    for member, value in {"status": "running", "execution_id": id, "output_so_far": "begun\n"}.items():
        assert result["structuredContent"][member] == value
    assert text.startswith("begun\n\n[cellgate: ") and " runs for " in text and "from=6) returns the rest" in text
    text = server.ask("cell_result", execution_id=id, wait=1000, max_output_chars=3)  # at most --wait
    assert text.startswith("beg\n\n") and "from=3) returns the rest" in text
    assert server.ask("cell_result", execution_id=id, wait=0, **{"from": 6}).startswith("[cellgate: ")
    release()
    result = whole(server, id, **{"from": 6})
    assert result["isError"] and text_of(result).startswith("done\n") and "ZeroDivisionError" in text_of(result)
    assert result["structuredContent"]["status"] == "error" and result["structuredContent"]["execution_id"] == id
    assert text_of(whole(server, id)).startswith("begun\ndone\n")  # it can be read again
    text = text_of(whole(server, id, max_output_chars=5))
    assert (
        text
        == f'begun\n\n[Characters 0 to 5 of {len(text_of(whole(server, id)))}; cell_result(execution_id="{id}", from=5) returns more]'
    )


def test_results_of_jobs_fit_their_schemas(serve: Serve, index: Path) -> None:
    server = started(serve, "--wait", "0.05", "--artifacts", "--approve", "cellgate.install_package")
    schemas = {
        t["name"]: t["outputSchema"]
        for t in server.result(server.request("tools/list"))["tools"]
        if "outputSchema" in t
    }
    assert set(schemas) == {"execute_ipython_cell", "start_cell", "cell_result"}
    result = server.result(server.call("start_cell", code="open('f', 'w').write('1'); print('x'); 1/0"))
    jsonschema.validate(result["structuredContent"], schemas["start_cell"])
    id = result["structuredContent"]["execution_id"]
    texts = whole(server, id)["structuredContent"]
    end = whole(server, id, **{"from": 2})["structuredContent"]
    # The end of a part has all that the whole has, but for the texts.
    members = {"status", "execution_id", "session_id", "artifacts", "costs", "error"}
    assert {m: end[m] for m in members} == {m: texts[m] for m in members} and texts["stdout"] == "x\n"
    install = id_of(server.ask("install_package", package_name="cgwheel==1.0"))
    installed = whole(server, install)["structuredContent"]
    assert installed["status"] == "ok" and installed["execution_id"] == install
    assert "Successfully installed" in installed["stdout"]
    unknown = server.result(server.call("cell_result", execution_id="cell-99"))
    assert unknown["isError"] and unknown["structuredContent"]["status"] == "error"
    for content in (texts, end, installed, unknown["structuredContent"]):
        jsonschema.validate(content, schemas["cell_result"])


def test_calls_wait_in_the_queue_no_longer(serve: Serve, workspace: Path) -> None:
    server = started(serve, "--wait", "0.3")
    release = gate(workspace)
    calls = [server.call("execute_ipython_cell", code=code) for code in ("open('go').read(); 1", "2")]
    answers = sorted((server.receive() for _ in calls), key=lambda answer: answer["id"])
    assert [answer["id"] for answer in answers] == calls
    texts = [text_of(answer["result"]) for answer in answers]
    assert "is queued for 0 s, with 1 before it" in texts[1]
    release()
    assert [text_of(whole(server, id_of(text))) for text in texts] == ["1", "2"]


def test_a_call_waits_no_longer_for_a_session_that_does_not_open(serve: Serve, tmp_path: Path) -> None:
    release = gate(tmp_path)
    script = f"read x < {tmp_path}/go; exec {sys.executable} {FAKE}"
    (tmp_path / "servers.json").write_text(
        json.dumps({"mcpServers": {"fake": {"command": "/bin/sh", "args": ["-c", script]}}})
    )
    server = serve("--wait", "0.3", "--mcp", tmp_path / "servers.json")
    server.initialize()
    text = server.ask("execute_ipython_cell", code="6 * 7")
    assert "is about to start" in text
    release()
    assert text_of(whole(server, id_of(text))) == "42"


def test_cells_are_started_and_watched(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    release = gate(workspace)
    first = ids(server, "print('one')\nprint('two', end='', flush=True)\nopen('go').read()")[0]
    second = ids(server, "'second'")[0]
    eventually(lambda: "last line: two" in server.ask("cell_status", execution_id=first))
    assert re.fullmatch(
        rf"{first} runs for \d+ s; 7 characters of output so far, the last line: two",
        server.ask("cell_status", execution_id=first),
    )
    assert " with 1 before it" in server.ask("cell_status", execution_id=second)
    call = server.call("cell_result", execution_id=second)
    release()
    assert text_of(server.result(call)) == "'second'"
    assert "has ended" in server.ask("cell_status", execution_id=first)
    assert server.ask("cell_result", execution_id=first) == "one\ntwo\n''"
    assert server.ask("execute_ipython_cell", code="3") == "3"


def test_too_many_cells_are_refused_and_reset_still_works(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    cells = ids(server, "while True: pass", *["1"] * 62)
    last = server.call("start_cell", code="1")
    refused = server.call("start_cell", code="1")
    assert not server.result(last)["isError"] and "too many cells wait" in text_of(server.result(refused))
    server.ask("cancel_cell", execution_id=cells[-1])
    server.ask("reset")
    assert "reset was called" in server.fails("cell_result", execution_id=cells[0])


def test_unknown_and_wrong_arguments_say_what_is_known(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    release = gate(workspace)
    id = ids(server, "open('go').read()")[0]
    for wrong in ("cell-77", "cell-02", "2", "cell-", "", "cell-\n2"):
        assert f"Known: cell-1, {id} (" in server.fails("cell_result", execution_id=wrong)
    for arguments in ({"wait": -1}, {"from": -1}, {"from": 0.5}, {"max_output_chars": 0}, {"wait": "1"}):
        assert next(iter(arguments)) in server.fails("cell_result", execution_id=id, **arguments)
    for tool in ("cell_status", "cell_result", "cancel_cell"):
        assert '"execution_id" is missing' in server.fails(tool)
    assert "timeout" in server.fails("start_cell", code="1", timeout=0)
    release()


def test_cancel_interrupts_and_removes(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    code = "print('begun', flush=True)\nimport time\ntime.sleep(1000)"
    running = ids(server, code)[0]
    queued = ids(server, "open('ran', 'w')")[0]
    called = server.call("execute_ipython_cell", code="'kept'")
    eventually(lambda: "begun" in server.ask("cell_status", execution_id=running))
    assert "removed from the queue" in server.ask("cancel_cell", execution_id=queued)
    waiting = server.call("cell_result", execution_id=running)
    cancel = server.call("cancel_cell", execution_id=running)
    assert "being interrupted" in text_of(server.result(cancel))
    result = server.result(waiting)
    assert result["isError"] and text_of(result).startswith("begun\n") and "Cancelled" in text_of(result)
    assert text_of(server.result(called)) == "'kept'"
    assert server.fails("cell_result", execution_id=queued) == "Cancelled before it started."
    assert "ended already" in server.ask("cancel_cell", execution_id=running)
    assert not (workspace / "ran").exists()


def test_the_client_s_cancellation_ends_only_what_it_waits_for(serve: Serve, workspace: Path) -> None:
    """Of the call that runs a cell: the cell. Of one that was answered, or asks for a result: nothing."""
    server = started(serve, "--wait", "0.3")
    release = gate(workspace)
    call = server.call("execute_ipython_cell", code="open('go').read(); 'done'")
    id = id_of(text_of(server.result(call)))
    server.notify("notifications/cancelled", {"requestId": call})
    result = server.call("cell_result", execution_id=id)
    server.notify("notifications/cancelled", {"requestId": result})
    assert " runs for " in server.ask("cell_status", execution_id=id)
    release()
    assert text_of(whole(server, id)) == "'done'"


def test_a_wait_for_an_approval_is_part_of_the_call_s_wait(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = started(serve, "--wait", "0.5", "--mcp", mcp_file, "--approve", "ask", elicitation={})
    call = server.call("execute_ipython_cell", code=MARK, timeout=5)
    form = server.receive()
    assert form["method"] == "elicitation/create"
    text = text_of(server.result(call))
    assert "waits for approval of fake.leave_mark" in text and not mark.exists()
    yes = {"action": "accept", "content": {"decision": "approve"}}
    server.send({"jsonrpc": "2.0", "id": form["id"], "result": yes})
    assert not whole(server, id_of(text))["isError"] and mark.read_text() == "x\n"


def test_reset_ends_started_cells(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    cells = ids(server, "while True: pass", "open('ran', 'w')")
    server.ask("reset")
    for id in cells:
        assert "reset was called" in server.fails("cell_result", execution_id=id)
    assert not (workspace / "ran").exists()


def test_results_that_are_too_large_are_dropped_and_it_is_said(serve: Serve) -> None:
    server = started(serve)
    code = "print('x' * 6_000_000)"
    unread = ids(server, code, code)
    read = ids(server, code)[0]
    assert "truncated" in text_of(whole(server, read))
    newest = ids(server, code)[0]
    eventually(lambda: "has ended" in server.ask("cell_status", execution_id=newest))
    text = server.fails("cell_result", execution_id=read)  # first what was read
    assert f"the result of {read} was dropped" in text and "10 minutes more, but 16 MiB" in text
    assert f"Known: {unread[1]}, {newest}" in text  # then the oldest
    assert whole(server, newest, **{"from": 5_999_990})["content"][0]["text"] == "xxxxxxxxxx"


def test_each_call_is_answered_once_when_its_cell_ends_as_the_wait_does(serve: Serve) -> None:
    """Also when the client cancels the cell just then; its result is whole."""
    server = started(serve, "--wait", "0.05")
    for n in range(60):
        code = f"import time\ntime.sleep({0.03 + n * 0.0005})\n{n}"
        call = server.call("execute_ipython_cell", code=code)
        text = text_of(server.result(call))
        if "execution_id" in text and n % 3 == 2:
            result = server.call("cell_result", execution_id=id_of(text))
            server.call("cancel_cell", execution_id=id_of(text))
            answers = [server.receive() for _ in range(2)]
            assert {answer["id"] for answer in answers} == {result, result + 1}
            text = text_of(next(a for a in answers if a["id"] == result)["result"])
            if "Cancelled" in text:
                continue
        assert text_of(whole(server, id_of(text))) if "execution_id" in text else text == str(n)
    assert server.result(server.request("ping")) == {}  # nothing else came


def test_progress_is_the_last_line(serve: Serve) -> None:
    server = started(serve, "--env", "API_TOKEN=se-cr-et-12345")
    code = "import os, time\nfor i in range(100):\n    print(i, os.environ['API_TOKEN'], '\\x1b[2J', flush=True)\n    time.sleep(0.01)"
    call = server.call("execute_ipython_cell", token="t", code=code)
    seen = []
    while "id" not in (message := server.receive()):
        seen.append(message["params"])
    assert message["id"] == call
    values = [p["progress"] for p in seen]
    assert seen and values == sorted(set(values))
    assert all(b - a >= 0.24 for a, b in zip(values, values[1:], strict=False))
    lines = [p["message"] for p in seen]
    assert all(re.fullmatch(r"\d+ \*\*\* \\x1b\[2J", line) for line in lines), lines


def test_toolsets(serve: Serve) -> None:
    server = serve("--toolsets", "core", "--wait", "0.05")
    server.initialize()
    assert "start_cell" not in json.dumps(server.result(server.request("tools/list")))
    assert "no tool" in server.answer(server.call("start_cell", code="1"))["error"]["message"]
    assert server.ask("execute_ipython_cell", code="import time; time.sleep(0.5); 'whole'") == "'whole'"
    server = serve("--toolsets", "jobs")
    server.initialize()
    names = [tool["name"] for tool in server.result(server.request("tools/list"))["tools"]]
    assert names == ["start_cell", "cell_status", "cell_result", "cancel_cell", "send_input"]


def test_the_agent_answers_input_where_the_client_shows_no_forms(serve: Serve) -> None:
    """The call is answered at once; a cell that gets no text ends in time."""
    server = started(serve)
    text = server.ask("execute_ipython_cell", code="name = input('Name\\x1b[2J? ')\nname + input()")
    id = id_of(text)
    assert "waits for input, which send_input gives it; its prompt: Name\\x1b[2J?" in text
    assert "waits for input" in server.ask("cell_status", execution_id=id)
    other = ids(server, "1")[0]
    assert "does not wait" in server.fails("send_input", execution_id=other, text="x")
    assert '"text" is missing' in server.fails("send_input", execution_id=id)
    server.ask("send_input", execution_id=id, text="Ada ")
    assert "waits for input" in server.ask("cell_result", execution_id=id)
    server.ask("send_input", execution_id=id, text="")
    assert text_of(whole(server, id)) == "'Ada '"
    assert "does not wait" in server.fails("send_input", execution_id=id, text="x")
    server = started(serve, "--ask-timeout", "0.5")
    id = id_of(server.ask("execute_ipython_cell", code="input()"))
    eventually(lambda: "has ended" in server.ask("cell_status", execution_id=id))
    text = server.fails("cell_result", execution_id=id)
    assert "EOFError" in text and "input() got no text: nobody answered in time" in text


def test_cancel_ends_input(serve: Serve) -> None:
    server = started(serve)
    id = id_of(server.ask("execute_ipython_cell", code="input()"))
    server.ask("cancel_cell", execution_id=id)
    assert "Cancelled" in text_of(whole(server, id))
    assert "does not wait" in server.fails("send_input", execution_id=id, text="x")
    assert server.ask("execute_ipython_cell", code="2") == "2"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"action": "accept", "content": {"text": "Ada"}}, "'Ada'"),
        ({"action": "accept", "content": {"text": 5}}, "EOFError"),
        ({"action": "accept"}, "EOFError"),
        ({"action": "decline"}, "EOFError"),
        (None, "EOFError"),
    ],
)
def test_the_user_answers_input_in_a_form(serve: Serve, answer: dict | None, shown: str) -> None:
    server = started(serve, "--ask-timeout", "1000" if answer else "0.5", elicitation={})
    call = server.call("execute_ipython_cell", code="input('approve \\u202e? ')")
    form = server.receive()
    message = form["params"]["message"]
    assert form["method"] == "elicitation/create" and message.endswith("\napprove \\u202e? ")
    assert message.startswith("Code of the agent waits for text") and "enter no passwords" in message
    if answer:
        server.send({"jsonrpc": "2.0", "id": form["id"], "result": answer})
    else:
        assert server.receive()["params"]["requestId"] == form["id"]  # the form is withdrawn
    text = text_of(server.result(call))
    assert shown in text and ("got no text" in text) == (shown == "EOFError")


def test_passwords_are_not_asked_for(serve: Serve) -> None:
    """Also input() where neither the user nor the agent can be asked."""
    for options in ({"elicitation": {}}, {}):
        server = started(serve, **options)
        text = server.fails("execute_ipython_cell", code="import getpass\ngetpass.getpass()")
        assert "EOFError" in text and "getpass() cannot be answered here" in text
    server = serve("--toolsets", "core")
    server.initialize()
    assert "input" in server.fails("execute_ipython_cell", code="input('name? ')")


# ---------------------------------------------------------------------- install_package


def test_an_installation_outlives_its_call(serve: Serve, index: Path) -> None:
    server = started(serve, "--wait", "0.05", "--approve", "cellgate.install_package")
    result = server.result(server.call("install_package", package_name="cgwheel==1.0"))
    id = id_of(text := text_of(result))
    assert not result["isError"] and result["structuredContent"]["status"] in ("running", "queued")
    assert "The installation goes on; cell_result(execution_id=" in text
    assert id in server.ask("cell_status", execution_id=id)
    assert "Successfully installed cgwheel-1.0" in text_of(whole(server, id))
    assert "Successfully installed cgwheel-1.0" in text_of(whole(server, id))  # it is kept
    assert "Successfully" not in server.ask("read_output")
    result = server.result(server.call("install_package", package_name="no-such-package"))
    result = whole(server, id_of(text_of(result)))
    assert result["isError"] and "Not installed" in text_of(result)
    code = server.result(server.call("start_cell", code="import cgwheel; cgwheel.version"))
    assert text_of(whole(server, id_of(text_of(code)))) == "'1.0'"


def test_an_installation_that_ends_in_time_has_no_id(serve: Serve, index: Path) -> None:
    server = started(serve, "--wait", "600", "--approve", "cellgate.install_package")
    result = server.result(server.call("install_package", package_name="cgwheel==1.0"), 60)
    assert "Successfully installed" in text_of(result) and "structuredContent" not in result
    assert "was dropped" in server.fails("cell_result", execution_id="cell-2")
    server = serve("--toolsets", "core", "--wait", "0.05", "--approve", "cellgate.install_package")
    server.initialize()
    assert "Successfully installed" in text_of(
        server.result(server.call("install_package", package_name="cgwheel"), 60)
    )
    server = started(serve, "--wait", "600")
    assert "--approve 'cellgate.install_package'" in server.fails("install_package", package_name="cgwheel")


def test_an_installation_waits_for_approval_and_is_cancelled(serve: Serve, index: Path) -> None:
    server = started(serve, "--wait", "0.3", "--approve", "ask", elicitation={})
    call = server.call("install_package", package_name="cgwheel")
    assert "cgwheel" in server.receive()["params"]["message"]
    text = text_of(server.result(call))
    assert "waits for approval of cellgate.install_package" in text
    server.call("cancel_cell", execution_id=(id := id_of(text)))
    messages = [server.receive(), server.receive()]
    assert sorted(m.get("method", "") for m in messages) == ["", "notifications/cancelled"]
    result = whole(server, id)
    assert result["isError"] and "refused" in text_of(result)
    assert "ModuleNotFoundError" in text_of(whole(server, *ids(server, "import cgwheel")))
