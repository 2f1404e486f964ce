"""Questions to the person, line by line: their form in each version, and their end when no call waits."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mcp_serve.helpers import Raw, text_of
from processes import eventually
from shared_supervisor import Shared, runtime_folder

Serve = Callable[..., Raw]
YES = {"action": "accept", "content": {"decision": "approve"}}
SAME = "approve exactly this call from now on"
CODE = "from mcptools.fake import leave_mark\nleave_mark.run(text='x')"


@pytest.mark.parametrize(("version", "mode"), [("2025-11-25", "form"), ("2025-06-18", None)])
def test_the_form_fits_the_version(serve: Serve, mcp_file: Path, mark: Path, version: str, mode: str | None) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(version, elicitation={})
    call = server.call("execute_ipython_cell", code=CODE)
    question = server.receive()
    assert question["method"] == "elicitation/create" and question["params"].get("mode") == mode
    assert question["params"]["requestedSchema"]["required"] == ["decision"]
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
    # Once is once: the second answer, and one to a question that never was, find nothing.
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
    server.send({"jsonrpc": "2.0", "id": 999, "result": YES})
    server.send({"jsonrpc": "2.0", "id": "1", "result": YES})
    assert not server.result(call)["isError"]
    assert mark.read_text() == "x\n"


@pytest.mark.parametrize(
    ("version", "capability"),
    [("2025-03-26", {"elicitation": {}}), ("2025-11-25", {"elicitation": {"url": {}}}), ("2025-11-25", {})],
)
def test_who_shows_no_forms_is_not_asked(serve: Serve, mcp_file: Path, version: str, capability: dict) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(version, **capability)
    result = server.result(server.call("execute_ipython_cell", code=CODE))
    assert result["isError"] and "cannot ask" in text_of(result)


def test_an_answer_guessed_in_advance_decides_nothing(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask", "--ask-timeout", "1")
    server.initialize(elicitation={})
    for id in range(1, 20):
        server.send({"jsonrpc": "2.0", "id": id, "result": YES})
    call = server.call("execute_ipython_cell", code=CODE)
    question = server.receive()
    withdrawn = server.receive()
    assert withdrawn["method"] == "notifications/cancelled" and withdrawn["params"]["requestId"] == question["id"]
    assert "did not answer in time" in text_of(server.result(call))
    # Too late is too late.
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
    assert server.result(server.request("ping")) == {}
    assert not mark.exists()


def test_always_may_be_for_the_same_arguments_only(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=CODE)
    decide(server, server.receive(), SAME)
    assert not server.result(call)["isError"]
    call = server.call("execute_ipython_cell", code=CODE)  # is not asked about
    result = server.result(call)
    assert not result["isError"]
    assert result["structuredContent"]["approvals"][0]["rule"] == "always, with the same arguments"
    call = server.call("execute_ipython_cell", code=CODE.replace("'x'", "'other'"))
    decide(server, server.receive(), "reject")
    assert server.result(call)["isError"]
    assert mark.read_text().count("x") == 2


def test_always_is_not_said_of_a_program_that_comes_later(
    serve: Serve, mcp_file: Path, mark: Path, tmp_path: Path
) -> None:
    """A call that is left behind by its cell still waits when the agent registers another program under the server's name."""
    always = {"action": "accept", "content": {"decision": "approve this tool from now on"}}
    second = tmp_path / "second"
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    left = "import threading\nfrom mcptools.fake import leave_mark\nt = threading.Thread(target=lambda: leave_mark.run(text='left'))\nt.start()"
    call = server.call("execute_ipython_cell", code=left)
    first = [server.receive(), server.receive()]
    (question,) = [m for m in first if m.get("method") == "elicitation/create"]
    assert [m["id"] for m in first if m is not question] == [call]
    (definition,) = json.loads(mcp_file.read_text())["mcpServers"].values()
    params = {**definition, "env": {"MARK": str(second)}}
    call = server.call("register_mcp_server", server_name="fake", server_params=params)
    form = server.receive()
    server.send({"jsonrpc": "2.0", "id": form["id"], "result": YES})
    withdrawn = server.receive()
    assert withdrawn["method"] == "notifications/cancelled" and withdrawn["params"]["requestId"] == question["id"]
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": always})
    assert not server.result(call)["isError"]
    call = server.call("execute_ipython_cell", code="t.join()\nleave_mark.run(text='x')")
    form = server.receive()
    assert form["method"] == "elicitation/create"
    server.send({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "decline"}})
    assert server.result(call)["isError"]
    assert not mark.exists() and not second.exists()


def test_progress_tells_about_approvals_and_a_cancelled_call_takes_its_question_back(
    serve: Serve, mcp_file: Path, mark: Path
) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", token="t", code=CODE)
    question = server.receive()
    while question["method"] == "notifications/progress":  # a slow machine takes long until the cell asks
        question = server.receive()
    assert question["method"] == "elicitation/create"
    progress = server.receive()
    assert (
        progress["method"] == "notifications/progress"
        and progress["params"]["message"] == "waits for approval of fake.leave_mark"
    )
    server.notify("notifications/cancelled", {"requestId": call})
    withdrawn = server.receive()
    assert withdrawn["method"] == "notifications/cancelled" and withdrawn["params"]["requestId"] == question["id"]
    assert text_of(server.result(server.call("execute_ipython_cell", code="1"))) == "1"
    assert not mark.exists()


@pytest.fixture
def approvals(cellgate: Path, slowness: float) -> Iterator[Shared]:
    """`cellgate approvals` in another process."""
    with runtime_folder() as folder:
        yield Shared(cellgate, folder, folder, slowness)


@pytest.mark.parametrize("can_ask", [True, False])
def test_another_terminal_decides(approvals: Shared, serve: Serve, mcp_file: Path, mark: Path, can_ask: bool) -> None:
    """The form of a client that has one is withdrawn."""
    server = serve("--mcp", mcp_file, "--decide-elsewhere", env=approvals.env | {"CELLGATE_PRIVATE": ""})
    server.initialize(**({"elicitation": {}} if can_ask else {}))
    call = server.call("execute_ipython_cell", code=CODE)
    question = server.receive() if can_ask else {"id": None}

    def waiting() -> list[dict]:
        return json.loads(approvals("approvals", "list", "--json").stdout)["approvals"]

    eventually(lambda: len(waiting()) == 1, 60)
    (q,) = waiting()
    assert 250_000 < q["left_ms"] <= 305_000 and q["front"] == "mcp"
    digest = json.loads(approvals("approvals", "show", q["id"], "--json").stdout)["digest"]
    assert approvals("approvals", "accept", q["id"], "--digest", digest).stdout == "accepted\n"
    if can_ask:
        withdrawn = server.receive()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == question["id"]
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
    result = server.result(call)
    assert not result["isError"]
    assert mark.read_text() == "x\n"
    decided = {"server": "fake", "tool": "leave_mark", "rule": "terminal"}
    assert result["structuredContent"]["approvals"] == [{**decided, "decision": "accepted"}]
    call = server.call("execute_ipython_cell", code=CODE)
    question = server.receive() if can_ask else question
    eventually(lambda: len(waiting()) == 1, 60)
    approvals("approvals", "reject", waiting()[0]["id"])
    if can_ask:
        server.receive()
    assert server.result(call)["structuredContent"]["approvals"] == [{**decided, "decision": "rejected"}]
    assert mark.read_text() == "x\n"


def test_what_a_registered_server_calls_data(serve: Serve, workspace: Path) -> None:
    """The agent's definition is shown with what it says of its paths, which is nothing by itself."""
    server = serve("--approve", "ask")
    server.initialize(elicitation={})
    params = {"command": "/bin/sh", "args": ["-c", "exit", str(workspace)]}
    for more in ({}, {"data": [str(workspace)]}):
        call = server.call("register_mcp_server", server_name="x", server_params={**params, **more})
        question = server.receive()
        assert ('"data"' in question["params"]["message"]) == bool(more)
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
        answer = server.result(call)
        assert answer["isError"]
        assert ("cells can write there" in text_of(answer)) == (not more)


@pytest.mark.parametrize("tool", ["register_mcp_server", "install_package"])
def test_a_cancelled_call_of_an_own_tool_takes_its_question_back(serve: Serve, tmp_path: Path, tool: str) -> None:
    server = serve("--approve", "ask")
    server.initialize(elicitation={})
    started = tmp_path / "started"
    arguments = {
        "register_mcp_server": {"server_name": "x", "server_params": {"command": "touch", "args": [str(started)]}},
        "install_package": {"package_name": "cgwheel"},
    }
    call = server.call(tool, **arguments[tool])
    question = server.receive()
    assert tool in question["params"]["message"]
    server.notify("notifications/cancelled", {"requestId": call})
    withdrawn = server.receive()
    assert withdrawn["method"] == "notifications/cancelled" and withdrawn["params"]["requestId"] == question["id"]
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
    assert text_of(server.result(server.call("execute_ipython_cell", code="1"))) == "1"
    assert not started.exists()


def test_pip_ends_with_the_call_that_started_it(serve: Serve, tmp_path: Path) -> None:
    # An index that takes the connection and says nothing. Not 127.0.0.1, which in a sandbox is its own.
    with socket.create_server(("127.0.0.2", 0)) as listener:
        url = f"http://127.0.0.2:{listener.getsockname()[1]}/simple"
        env = {"PIP_INDEX_URL": url, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "", "NO_PROXY": "*", "no_proxy": "*"}
        server = serve("--approve", "all", env=env)
        server.initialize()
        call = server.call("install_package", package_name="cgwheel")
        listener.settimeout(30)
        connection, _ = listener.accept()
        connection.settimeout(30)
        while not connection.recv(65536).endswith(b"\r\n\r\n"):
            pass
        server.notify("notifications/cancelled", {"requestId": call})
        assert connection.recv(1) == b""  # pip is gone
        connection.close()
        assert text_of(server.result(server.call("execute_ipython_cell", code="1"))) == "1"


def test_what_deceives_the_eye_is_an_escape_in_the_question(serve: Serve, mcp_file: Path, mark: Path) -> None:
    """As at the terminal: the same function makes the text."""
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    code = CODE.replace("'x'", "'/p\\u0430ul/\\u05d0\\u3000x\\u202e'")
    call = server.call("execute_ipython_cell", code=code)
    question = server.receive()
    message = question["params"]["message"]
    assert '"/p\\u0430ul/\\u05d0\\u3000x\\u202e"' in message and message.isascii()
    no = {"action": "accept", "content": {"decision": "reject"}}
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": no})
    assert server.result(call)["isError"]
    assert not mark.exists()


def decide(server: Raw, question: dict, decision: str) -> None:
    answer = {"action": "accept", "content": {"decision": decision}}
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})


def choices(question: dict) -> list[str]:
    return question["params"]["requestedSchema"]["properties"]["decision"]["enum"]


LONG = CODE.replace("'x'", "'\\n'.join(f'line {i}' for i in range(410))")


def test_a_long_call_is_shown_in_parts_and_then_approved(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=LONG)
    question = server.receive()
    first = question["params"]["message"]
    assert first.count("\n") < 50 and "line 0\\n\n" in first and "line 409" in first and "line 300" not in first
    assert re.search("  arguments \\d+ bytes\n  SHA-256   [0-9a-f]{64}\n", first)
    whole = ""
    while choices(question) == ["view all", "reject"]:
        decide(server, question, "view all")
        question = server.receive()
        assert question["params"]["message"].count("\n") < 110
        whole += question["params"]["message"]
    assert choices(question) == ["approve", SAME, "approve this tool from now on", "reject"]
    assert all(f"line {i}" in whole for i in range(410)) and whole.count("Part ") == 5
    assert not mark.exists()
    decide(server, question, "approve")
    assert not server.result(call)["isError"]
    assert mark.read_text().count("line") == 410


@pytest.mark.parametrize("decision", ["approve", "approve this tool from now on"])
@pytest.mark.parametrize("after", [0, 1])
def test_what_was_not_shown_whole_cannot_be_approved(
    serve: Serve, mcp_file: Path, mark: Path, decision: str, after: int
) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=LONG)
    question = server.receive()
    for _ in range(after):
        decide(server, question, "view all")
        old, question = question, server.receive()
        decide(server, old, "approve")  # answered already
    decide(server, question, decision)
    assert "the user rejected it" in text_of(server.result(call))
    call = server.call("execute_ipython_cell", code=CODE)
    question = server.receive()
    decide(server, question, "view all")  # no choice of this form
    assert "the user rejected it" in text_of(server.result(call))
    assert not mark.exists()


def test_blanks_push_nothing_out_of_sight(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    code = CODE.replace("'x'", "'ls' + ' \\t\\n\\xa0\\u3000' * 1000 + '; rm -rf precious'")
    call = server.call("execute_ipython_cell", code=code)
    question = server.receive()
    assert '"text": "ls" [5000 blanks] "; rm -rf precious"\n' in question["params"]["message"]
    decide(server, question, "reject")
    assert server.result(call)["isError"]
    assert not mark.exists()


RESOURCE = "import mcptools\nfor _ in range(2): print(mcptools.read_resource('fake', 'file:///x'))"


def test_resource(serve: Serve, mcp_file: Path) -> None:
    """A rule for all tools of the server accepts none of its resources; "from now on" is about all of them."""
    server = serve("--mcp", mcp_file, "--approve", "ask", "--approve", "fake.*")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=RESOURCE)
    question = server.receive()
    assert "Code of the agent wants to read a resource:\n" in question["params"]["message"]
    assert "  resource  file:///x\n" in question["params"]["message"]
    choices = question["params"]["requestedSchema"]["properties"]["decision"]["enum"]
    assert choices == ["approve", SAME, "approve all resources of this server from now on", "reject"]
    tool = {"action": "accept", "content": {"decision": "approve this tool from now on"}}
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": tool})  # no answer to this question
    assert server.result(call)["isError"]
    call = server.call("execute_ipython_cell", code=RESOURCE)
    question = server.receive()
    yes = {"action": "accept", "content": {"decision": choices[1]}}
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": yes})
    assert text_of(server.result(call)) == "contents\ncontents"


PROGRAM = "import subprocess\nfor _ in range(2): print(subprocess.run(['echo', 'ran'], capture_output=True).returncode)"


def test_programs(serve: Serve) -> None:
    server = serve("--approve", "ask", "--exec", "ask")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=PROGRAM)
    question = server.receive()
    assert "Code of the agent wants to start a program:\n" in question["params"]["message"]
    assert "  command   echo ran\n  program   /usr/bin/echo\n" in question["params"]["message"]
    choices = question["params"]["requestedSchema"]["properties"]["decision"]["enum"]
    assert choices[1] == "approve exactly this command, folder and variables from now on"
    server.send(
        {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"decision": choices[1]}}}
    )
    assert text_of(server.result(call)) == "0\n0"


def test_a_program_of_the_shell_has_its_line(serve: Serve) -> None:
    server = serve("--approve", "ask", "--exec", "ask", "--language", "shell")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code="x=1\n/bin/echo ran; x=2")
    question = server.receive()
    assert "\n  line      2: /bin/echo ran; x=2\n" in question["params"]["message"]
    server.send(
        {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"decision": "reject"}}}
    )
    assert server.result(call)["isError"] is False


def test_rules_about_tools_accept_no_program(serve: Serve) -> None:
    server = serve("--approve", "all", "--exec", "ask")
    server.initialize(elicitation={})
    result = server.result(server.call("execute_ipython_cell", code=PROGRAM))
    assert result["isError"] and "--exec allow" in text_of(result)


GATHER = """
import asyncio
from mcptools.fake import leave_mark
done = await asyncio.gather(*(leave_mark.run_async(text=str(i)) for i in range(%d)), return_exceptions=True)
print(sum(not isinstance(d, Exception) for d in done))
"""


def gather(server: Raw, code: str, n: int) -> tuple[int, list[dict]]:
    """Starts a cell that makes N calls at once. Returns it, and its first questions once all of the calls wait."""
    call = server.call("execute_ipython_cell", token="t", code=code)
    shown = []
    while True:
        message = server.receive()
        if message["method"] == "elicitation/create":
            shown.append(message)
        elif f"and {n - 1} more" in message["params"]["message"]:
            return call, shown


def next_of(server: Raw, method: str) -> dict:
    """The next message that is no progress."""
    while (message := server.receive()).get("method") == "notifications/progress":
        pass
    assert message.get("method") == method, message
    return message


def test_a_gather_opens_few_questions_at_once(serve: Serve, mcp_file: Path, mark: Path) -> None:
    """Each further question comes with an answer, and offers the calls that wait at that moment."""
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    call, first = gather(server, GATHER % 200, 200)
    assert len(first) == 8
    decide(server, first[0], "reject")
    ninth = next_of(server, "elicitation/create")
    (everything,) = [c for c in choices(ninth) if c.startswith("approve all ")]
    assert everything == "approve all 32 calls of this tool that are shown"
    message = ninth["params"]["message"]
    shown = [json.loads(line)["text"] for line in message.splitlines() if line.startswith('  {"')]
    assert shown == [str(i) for i in range(1, 8)] + [str(i) for i in range(9, 33)]
    assert "have forms of their own: 167.\n" in message
    decide(server, ninth, everything)
    withdrawn = set()
    while "result" not in (message := server.receive()):
        if message["method"] == "notifications/cancelled":
            withdrawn.add(message["params"]["requestId"])
        elif message["method"] == "elicitation/create":
            decide(server, message, next((c for c in choices(message) if c.startswith("approve all ")), "approve"))
    assert withdrawn >= {q["id"] for q in first[1:]}
    assert message["id"] == call and text_of(message["result"]) == "199"
    # Each of them was one call, and a later one is asked about again.
    assert sorted(int(line) for line in mark.read_text().splitlines()) == list(range(1, 200))
    call = server.call("execute_ipython_cell", code=CODE)
    again = next_of(server, "elicitation/create")
    assert [c for c in choices(again) if c.startswith("approve all ")] == []
    decide(server, again, "approve all 32 calls of this tool that are shown")
    assert server.result(call)["isError"]


def test_calls_that_are_not_shown_whole_are_not_accepted_with_others(serve: Serve, mcp_file: Path, mark: Path) -> None:
    code = GATHER.replace("str(i)", "('x' * 100 + str(i) if i == 2 else str(i))") % 4
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    call, shown = gather(server, code, 4)
    last = shown[3]
    assert "have forms of their own: 1.\n" in last["params"]["message"] and "x" * 20 not in last["params"]["message"]
    (everything,) = [c for c in choices(last) if c.startswith("approve all ")]
    assert everything == "approve all 3 calls of this tool that are shown"
    decide(server, last, everything)
    eventually(lambda: len(mark.read_text().split()) == 3 if mark.exists() else False)
    decide(server, shown[2], "reject")
    while "result" not in (message := server.receive()):
        assert message["method"] in ("notifications/progress", "notifications/cancelled")
    assert message["id"] == call and sorted(mark.read_text().split()) == ["0", "1", "3"]


def test_all_waiting_calls_are_none_of_another_tool(serve: Serve, mcp_file: Path, mark: Path) -> None:
    code = GATHER.replace("gather(", "gather(*(echo.run_async(text='e') for _ in range(7)), ", 1) % 9
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    call, shown = gather(server, "from mcptools.fake import echo\n" + code, 16)
    about = {q["id"]: "echo" if "echo" in q["params"]["message"] else "leave_mark" for q in shown}
    assert sorted(about.values()) == ["echo"] * 7 + ["leave_mark"]
    decide(server, next(q for q in shown if about[q["id"]] == "leave_mark"), "reject")
    question = next_of(server, "elicitation/create")
    (everything,) = [c for c in choices(question) if c.startswith("approve all ")]
    assert everything == "approve all 8 calls of this tool that are shown"
    decide(server, question, everything)
    for q in shown:
        if about[q["id"]] == "echo":
            decide(server, q, "reject")
    while "result" not in (message := server.receive()):
        assert message["method"] == "notifications/progress"
    assert message["id"] == call and text_of(message["result"]) == "8"
    assert len(mark.read_text().splitlines()) == 8


@pytest.mark.parametrize("code", ["while True: pass", "import time\ntime.sleep(1000)", "input('?')", CODE])
def test_reset_ends_what_runs_and_what_waits_before_it(serve: Serve, mcp_file: Path, mark: Path, code: str) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask")
    server.initialize(elicitation={})
    assert text_of(server.result(server.call("execute_ipython_cell", code="x = 1; 'ready'"))) == "'ready'"
    running = server.call("execute_ipython_cell", code=f"print('begun', flush=True)\n{code}")
    question = server.receive() if code in (CODE, "input('?')") else None
    waiting = server.call("execute_ipython_cell", code="open('ran', 'w')")
    reset = server.call("reset")
    after = server.call("execute_ipython_cell", code="x")
    if question:
        withdrawn = server.receive()
        assert withdrawn["params"]["requestId"] == question["id"]
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
    for call in (running, waiting):
        result = server.result(call)
        assert result["isError"] and "reset was called" in text_of(result)
    assert not server.result(reset)["isError"]
    assert "NameError" in text_of(server.result(after))
    assert not mark.exists()


def test_reset_ends_the_question_about_an_own_tool(serve: Serve) -> None:
    server = serve("--approve", "ask")
    server.initialize(elicitation={})
    call = server.call("install_package", package_name="cgwheel")
    question = server.receive()
    reset = server.call("reset")
    assert server.receive()["params"]["requestId"] == question["id"]
    assert "reset was called" in text_of(server.result(call))
    assert not server.result(reset)["isError"]


def test_a_question_in_time_is_no_refusal_of_the_user(serve: Serve, mcp_file: Path, mark: Path) -> None:
    """--ask-timeout raises what the documentation names; also for a question that was never shown."""
    code = GATHER % 9 + "print({type(d).__name__ for d in done})"
    server = serve("--mcp", mcp_file, "--approve", "ask", "--ask-timeout", "1")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=code)
    while "result" not in (message := server.receive()):
        assert message["method"] in ("elicitation/create", "notifications/cancelled")
    assert message["id"] == call and text_of(message["result"]) == "0\n{'ApprovalTimeoutError'}"
    assert not mark.exists()


def test_output_of_a_cancelled_call_comes_with_the_next(serve: Serve, workspace: Path) -> None:
    code = "import os, time\nprint('before')\nopen('begun', 'w').close()\ntime.sleep(1000)"
    server = serve()
    server.initialize()
    call = server.call("execute_ipython_cell", code=code)
    while not (workspace / "begun").exists():
        assert server.result(server.request("ping")) == {}
    server.notify("notifications/cancelled", {"requestId": call})
    text = text_of(server.result(server.call("execute_ipython_cell", code="print('after')")))
    assert text == "[output since the last call:]\nbefore\n[output of this call:]\nafter"


FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ASK = "from mcptools.s import ask\nprint(ask.run(ask=[{}]))"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"action": "accept", "content": {"name": "Ada"}}, "Ada"),
        ({"action": "decline"}, "decline"),
        ({"action": "accept", "content": {"name": 5}}, "decline"),
    ],
)
def test_questions_of_servers_go_to_a_client_that_shows_them(
    serve: Serve, asking: Callable[..., Path], answer: dict, shown: str
) -> None:
    message = "Who?\nDu, \u05d0\u05ea\u05d4?"
    request = {"method": "elicitation/create", "params": {"message": message + "\x1b[2J\u202e", "requestedSchema": FORM}}
    server = serve("--mcp", asking(), "--approve", "all")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=ASK.format(request))
    question = server.receive()
    shown_message = f"The MCP server s asks: {message}\\x1b[2J\\u202e"
    assert question["params"] == {"message": shown_message, "requestedSchema": FORM}
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
    assert shown in text_of(server.result(call))


def test_pages_of_servers_go_to_a_client_that_opens_them(serve: Serve, asking: Callable[..., Path]) -> None:
    params = {"mode": "url", "message": "Sign in", "url": "https://example.org/x", "elicitationId": "e1"}
    server = serve("--mcp", asking(), "--approve", "all")
    server.initialize(elicitation={"url": {}})
    call = server.call("execute_ipython_cell", code=ASK.format({"method": "elicitation/create", "params": params}))
    question = server.receive()
    assert question["params"] == {**params, "message": "The MCP server s asks: Sign in"}
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
    assert "accept" in text_of(server.result(call))


def test_questions_of_servers_are_declined_where_the_client_shows_none(
    serve: Serve, asking: Callable[..., Path]
) -> None:
    request = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
    server = serve("--mcp", asking(), "--approve", "all")
    server.initialize()
    assert "Ada" not in text_of(server.result(server.call("execute_ipython_cell", code=ASK.format(request))))


def test_a_question_of_a_server_ends_in_time(serve: Serve, asking: Callable[..., Path]) -> None:
    request = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
    server = serve("--mcp", asking(), "--approve", "all", "--ask-timeout", "1")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=ASK.format(request))
    question = server.receive()
    assert server.receive()["params"]["requestId"] == question["id"]
    assert "decline" in text_of(server.result(call))


def test_always_is_not_for_programs_that_cells_can_change(serve: Serve) -> None:
    server = serve("--approve", "ask", "--exec", "ask")
    server.initialize(elicitation={})
    code = (
        "import shutil, subprocess; shutil.copy('/usr/bin/true', 'own')\nsubprocess.run(['echo'], executable='./own')"
    )
    call = server.call("execute_ipython_cell", code=code)
    question = server.receive()
    assert re.search(
        "wants to start a program:\n  program   /.*/own\n  called as echo\n", question["params"]["message"]
    )
    assert choices(question) == ["approve", "reject"]
    decide(server, question, "approve exactly this command, folder and variables from now on")
    assert "PermissionError" in text_of(server.result(call))


@pytest.mark.parametrize("rule", ["!fake.leave_marc", "!cellgate.instal_package"])
def test_a_rule_that_refuses_nothing_stops_the_start(serve: Serve, mcp_file: Path, mark: Path, rule: str) -> None:
    server = serve("--mcp", mcp_file, "--approve", "all", "--approve", rule)
    server.initialize()
    assert server.wait() == 2
    server.threads[0].join(10)
    assert (
        f"the approval rule {rule} refuses nothing" in server.stderr.decode()
        and "did you mean !" in server.stderr.decode()
    )
    server = serve("--mcp", mcp_file, "--approve", "all", "--approve", rule, "--lax-rules")
    server.initialize()
    assert not server.result(server.call("execute_ipython_cell", code=CODE))["isError"]
    assert mark.read_text() == "x\n"
    assert f"the approval rule {rule} refuses nothing" in server.stderr.decode()


def test_a_rule_about_a_tool_that_needs_no_approval_stops_the_start(serve: Serve) -> None:
    server = serve("--approve", "!cellgate.reset")
    server.initialize()
    assert server.wait() == 2
    server.threads[0].join(10)
    assert "the approval rule !cellgate.reset refuses nothing" in server.stderr.decode()


def test_rules_about_own_tools_are_right(serve: Serve) -> None:
    server = serve("--approve", "!cellgate.install_package", "--approve", "!cellgate.*")
    server.initialize()
    assert text_of(server.result(server.call("execute_ipython_cell", code="1"))) == "1"
    assert "rule" not in server.stderr.decode()
