"""Several sessions of one server: the toolset `sessions`, and the argument session_id of the other tools."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_serve.helpers import Raw, text_of
from mcp_serve.test_jobs import id_of, whole
from processes import eventually, gate

Serve = Callable[..., Raw]
FAKE = str(Path(__file__).with_name("fake_server.py"))
ALL = ("--toolsets", "core,jobs,sessions")
CALL = "from mcptools.fake import leave_mark\nleave_mark.run(text={!r})"
YES = {"action": "accept", "content": {"decision": "approve"}}
ALWAYS = {"action": "accept", "content": {"decision": "approve this tool from now on"}}


def started(serve: Serve, *args: str | Path, **capabilities: object) -> Raw:
    server = serve(*ALL, *args)
    server.initialize(**capabilities)
    return server


def create(server: Raw, **arguments: object) -> str:
    result = server.result(server.call("create_session", **arguments))
    assert not result["isError"], result
    id = result["structuredContent"]["session_id"]
    assert text_of(result) == f"session_id: {id}" and len(id) == 32
    return id


def run(server: Raw, code: str, session: str | None = None) -> str:
    return server.ask("execute_ipython_cell", code=code, session_id=session)


def start(server: Raw, code: str, session: str | None = None) -> str:
    return id_of(server.ask("start_cell", code=code, session_id=session))


def own_id(server: Raw) -> str:
    return server.result(server.call("execute_ipython_cell", code="1"))["structuredContent"]["session_id"]


def both(server: Raw, *calls: int) -> list[dict[str, Any]]:
    """The answers of calls, whatever their order."""
    answers = {message["id"]: message["result"] for message in (server.receive() for _ in calls)}
    return [answers[call] for call in calls]


def forms(server: Raw, n: int) -> dict[str, dict[str, Any]]:
    """The next questions, by the text that they show."""
    questions = [server.receive() for _ in range(n)]
    assert {q["method"] for q in questions} == {"elicitation/create"}, questions
    return {word: q for q in questions for word in ("first", "second") if word in q["params"]["message"]}


def answer(server: Raw, question: dict[str, Any], result: dict[str, Any]) -> None:
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": result})


# ---------------------------------------------------------------------- state


def test_sessions_have_their_own_state(serve: Serve) -> None:
    server = started(serve)
    one, two = create(server, name="one"), create(server)
    for session, value in ((None, 1), (one, 2), (two, 3)):
        run(server, f"x = {value}", session)
    assert [run(server, "x", s) for s in (None, one, two)] == ["1", "2", "3"]
    own = own_id(server)
    assert len({own, one, two}) == 3 and run(server, "x", own) == "1"
    listed = server.ask("list_sessions").splitlines()
    assert [line.split()[0].rstrip(":") for line in listed] == [own, one, two]
    assert "(calls without session_id)" in listed[0] and '"one": idle for ' in listed[1]
    server.ask("reset", session_id=one)
    assert "NameError" in server.fails("execute_ipython_cell", code="x", session_id=one)
    assert run(server, "x", two) == "3"


def test_sessions_run_at_the_same_time_and_each_in_order(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    other = create(server)
    os.mkfifo(workspace / "meet")
    # Neither can end without the other.
    calls = [
        server.call("execute_ipython_cell", code="n = 0; open('meet').read()"),
        server.call("execute_ipython_cell", code="n += 1; n"),
        server.call("execute_ipython_cell", code="open('meet', 'w').write('met')", session_id=other),
    ]
    assert [text_of(r) for r in both(server, *calls)] == ["'met'", "1", "3"]


def test_a_killed_kernel_leaves_the_others(serve: Serve) -> None:
    server = started(serve)
    other = create(server)
    run(server, "x = 1")
    run(server, "x = 2", other)
    assert "kernel" in server.fails("execute_ipython_cell", code="import os\nos._exit(1)", session_id=other)
    assert run(server, "x") == "1"
    assert "NameError" in server.fails("execute_ipython_cell", code="x", session_id=other)


# ---------------------------------------------------------------------- options


def test_a_workspace_is_a_folder_below_the_servers(serve: Serve, workspace: Path, tmp_path: Path) -> None:
    server = started(serve)
    (workspace / "sub" / "deeper").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (workspace / "out").symlink_to(tmp_path / "outside")
    (workspace / "in").symlink_to("sub/deeper")
    (workspace / "file").write_text("")
    cwd = "import os; os.getcwd()"
    for given, folder in (("sub", "sub"), (str(workspace / "sub"), "sub"), ("in", "sub/deeper"), (".", "")):
        session = create(server, workspace=given)
        assert run(server, cwd, session) == repr(str(workspace / folder))
        server.ask("reset", session_id=session)
        assert run(server, cwd, session) == repr(str(workspace / folder))
    before = server.ask("list_sessions")
    for wrong, why in (
        ("..", "not below"),
        ("/etc", "not below"),
        (str(tmp_path / "outside"), "not below"),
        (f"{workspace}-other", "not below"),
        ("sub/../..", "not below"),
        ("out", "not below"),
        ("/proc/self/cwd", "not below"),
        ("missing", "must exist"),
        ("file", "must exist"),
    ):
        assert why in server.fails("create_session", workspace=wrong), wrong
        eventually(lambda: len(server.ask("list_sessions").splitlines()) == len(before.splitlines()))


def test_limits_are_at_most_those_of_the_server(serve: Serve) -> None:
    server = started(serve, "--limit", "processes=100", "--limit", "fileMb=8")
    session = create(server, limits={"openFiles": 321, "fileMb": 2})
    code = "import resource as r; [r.getrlimit(n)[0] for n in (r.RLIMIT_NOFILE, r.RLIMIT_FSIZE)]"
    assert run(server, code, session) == f"[321, {2 << 20}]"
    assert run(server, code).endswith(f" {8 << 20}]")
    for limits, why in (
        ({"processes": 101}, "limits.processes: 101 is more than this server allows: at most 100"),
        ({"fileMb": 9}, "at most 8 MiB"),
        ({"openFiles": 5000}, "at most 4096"),
        ({"memoryMb": 100000000}, "more than this server allows"),
        ({"memory": 1}, 'no limit "memory"; there are memoryMb'),
        ({"cores": "2"}, "Expected number"),
        ({"cores": 0}, "greater than"),
        ([], "limits"),
    ):
        assert why in server.fails("create_session", limits=limits), limits
    assert "name" in server.fails("create_session", name="x" * 101)


def test_the_number_of_sessions_has_a_limit(serve: Serve) -> None:
    server = started(serve, "--max-sessions", "2")
    own, other = own_id(server), create(server)
    assert f'there are 2 sessions, as many as --max-sessions allows; the oldest, "{own}"' in server.fails(
        "create_session"
    )
    server.ask("terminate_session", session_id=other)
    eventually(lambda: not server.result(server.call("create_session"))["isError"])


def test_an_agent_has_eight_by_default(serve: Serve) -> None:
    server = started(serve)
    own = own_id(server)
    for _ in range(7):
        create(server)
    why = server.fails("create_session")
    assert (
        f'there are 8 sessions of this client, as many as --max-sessions-per-client allows; the oldest, "{own}"' in why
    )
    server = started(serve, "--max-sessions-per-client", "9")
    own_id(server)
    assert len({create(server) for _ in range(8)}) == 8


@pytest.mark.parametrize(
    "args", [["--idle", "5"], ["--max-sessions", "5"], ["--max-sessions-per-client", "5"], [*ALL, "--idle", "0"]]
)
def test_options_of_sessions_need_them(run_cellgate: Callable, args: list[str]) -> None:
    done = run_cellgate("mcp", "serve", *args)
    assert done.returncode == 2 and args[-2] in done.stderr


def test_without_the_toolset_there_is_one_session(serve: Serve) -> None:
    server = serve()
    server.initialize()
    tools = server.result(server.request("tools/list"))["tools"]
    assert "create_session" not in [t["name"] for t in tools]
    assert not any("session_id" in t["inputSchema"]["properties"] for t in tools)
    assert run(server, "6 * 7", own_id(server)) == "42"
    assert "leave session_id out" in server.fails("execute_ipython_cell", code="1", session_id="0" * 32)
    assert "session_id" in server.fails("execute_ipython_cell", code="1", session_id=7)


# ---------------------------------------------------------------------- ends


def test_an_ended_session_is_named_as_such(serve: Serve) -> None:
    server = started(serve)
    session = create(server)
    cell = start(server, "1", session)
    whole(server, cell)
    assert "has ended" in server.ask("terminate_session", session_id=session)
    for tool, arguments in (("execute_ipython_cell", {"code": "1"}), ("reset", {}), ("terminate_session", {})):
        text = server.fails(tool, session_id=session, **arguments)
        assert f'no such session: "{session}" has ended: terminate_session was called' in text
        assert "create_session" in text
    assert "end with it" in server.fails("cell_result", execution_id=cell)
    text = server.fails("execute_ipython_cell", code="1", session_id="0" * 32)
    assert 'no such session: "0000' in text and "list_sessions" in text and "ended" not in text
    assert '"session_id" is missing' in server.fails("terminate_session")
    # That of calls which name none begins again, and says so.
    run(server, "x = 1")
    server.ask("terminate_session", session_id=own_id(server))
    result = server.result(server.call("execute_ipython_cell", code="x"))
    assert "terminate_session was called), so this ran in a new one" in text_of(result) and result["isError"]
    assert run(server, "2") == "2"


def test_a_session_that_runs_a_cell_ends_at_once(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    session = create(server)
    gate(workspace)
    running = server.call("execute_ipython_cell", code="open('go').read()", session_id=session)
    queued = server.call("execute_ipython_cell", code="open('ran', 'w')", session_id=session)
    end = server.call("terminate_session", session_id=session)
    refused = server.call("execute_ipython_cell", code="open('ran', 'w')", session_id=session)
    results = both(server, running, queued, end, refused)
    assert all("terminate_session was called" in text_of(results[i]) and results[i]["isError"] for i in (0, 1, 3))
    assert "has ended" in text_of(results[2]) and not results[2]["isError"]
    assert not (workspace / "ran").exists()


def test_idle_sessions_end_and_busy_ones_do_not(serve: Serve, workspace: Path, mcp_file: Path, mark: Path) -> None:
    server = started(serve, "--idle", "3", "--mcp", mcp_file, "--approve", "ask", elicitation={})
    run(server, "x = 1")
    release = gate(workspace)
    busy = create(server)
    cell = start(server, "open('go').read(); 'done'", busy)
    asking = create(server)
    code = f"import threading\nt = threading.Thread(target=lambda: leave_mark.run(text='x'))\n{CALL.splitlines()[0]}"
    call = server.call("execute_ipython_cell", code=f"{code}\nt.start()", session_id=asking)
    question = next(m for m in [server.receive(), server.receive()] if m.get("method") == "elicitation/create")
    idle = create(server)
    eventually(lambda: len(server.ask("list_sessions").splitlines()) == 2)
    listed = server.ask("list_sessions")
    assert call and busy in listed and asking in listed and idle not in listed
    text = server.fails("execute_ipython_cell", code="1", session_id=idle)
    assert "no such session" in text and "it was idle for 3 s (--idle)" in text
    assert "it was idle for 3 s (--idle)), so this ran in a new one" in server.fails("execute_ipython_cell", code="x")
    answer(server, question, YES)
    eventually(mark.exists)
    release()
    assert text_of(whole(server, cell)) == "'done'"


# ---------------------------------------------------------------------- what belongs to a session


def test_cancel_status_and_input_find_the_right_session(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    other = create(server)
    release = gate(workspace)
    first = start(server, "input('first? ')")
    second = start(server, "input('second? ')", other)
    eventually(lambda: "first?" in server.ask("cell_status", execution_id=first))
    eventually(lambda: "second?" in server.ask("cell_status", execution_id=second))
    server.ask("send_input", execution_id=second, text="two")
    assert "'two'" in text_of(whole(server, second))
    assert "waits for input" in server.ask("cell_status", execution_id=first)
    waiting = start(server, "open('go').read(); 'went on'", other)
    server.ask("cancel_cell", execution_id=first)
    assert "Cancelled" in text_of(whole(server, first))
    release()
    result = whole(server, waiting)
    assert text_of(result) == "'went on'" and result["structuredContent"]["session_id"] == other


def test_a_cancelled_call_interrupts_its_own_session(serve: Serve, workspace: Path) -> None:
    server = started(serve)
    other = create(server)
    release = gate(workspace)
    calls = [
        server.call("execute_ipython_cell", code="open('go').read(); 'went on'"),
        server.call("execute_ipython_cell", code="import time\ntime.sleep(1000)", session_id=other),
    ]
    server.notify("notifications/cancelled", {"requestId": calls[1]})
    assert run(server, "6 * 7", other) == "42"
    release()
    assert text_of(server.result(calls[0])) == "'went on'"


def test_approvals_of_both_sessions_wait_at_once(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = started(serve, "--mcp", mcp_file, "--approve", "ask", elicitation={})
    other = create(server, name='the "other"\n')
    calls = [
        server.call("execute_ipython_cell", code=CALL.format("first")),
        server.call("execute_ipython_cell", code=CALL.format("second"), session_id=other),
    ]
    questions = forms(server, 2)
    about = {word: re.findall("^Session .*", q["params"]["message"], re.MULTILINE) for word, q in questions.items()}
    assert about["second"] == [rf'Session {other}, which the agent calls "the \"other\"\n".']
    assert len(about["first"]) == 1 and re.fullmatch("Session [0-9a-f]{32}[.]", about["first"][0])
    answer(server, questions["second"], YES)
    assert not server.result(calls[1])["isError"] and mark.read_text() == "second\n"
    answer(server, questions["first"], {"action": "decline"})
    assert server.result(calls[0])["isError"] and mark.read_text() == "second\n"


def test_always_is_for_one_session(serve: Serve, mcp_file: Path, mark: Path) -> None:
    server = started(serve, "--mcp", mcp_file, "--approve", "ask", elicitation={})
    other = create(server)
    call = server.call("execute_ipython_cell", code=CALL.format("first"))
    answer(server, forms(server, 1)["first"], ALWAYS)
    assert not server.result(call)["isError"]
    run(server, CALL.format("again"))
    call = server.call("execute_ipython_cell", code=CALL.format("second"), session_id=other)
    answer(server, forms(server, 1)["second"], {"action": "decline"})
    assert server.result(call)["isError"] and mark.read_text() == "first\nagain\n"


def test_budgets_are_of_all_sessions(serve: Serve, mcp_file: Path, mark: Path, tmp_path: Path) -> None:
    policy = {"budgets": [{"id": "one", "server": "fake", "per": "session", "calls": 1}]}
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    server = started(serve, "--mcp", mcp_file, "--policy", tmp_path / "policy.json", "--approve", "all")
    run(server, CALL.format("first"))
    other = create(server)
    server.fails("execute_ipython_cell", code=CALL.format("second"), session_id=other)
    assert mark.read_text() == "first\n"


def test_registered_servers_belong_to_their_session(serve: Serve, mark: Path) -> None:
    server = started(serve, "--approve", "all")
    other = create(server)
    params = {"command": "/usr/bin/python3", "args": [FAKE], "env": {"MARK": str(mark)}}
    server.ask("register_mcp_server", server_name="fake", server_params=params, session_id=other)
    run(server, CALL.format("x"), other)
    assert "ModuleNotFoundError" in server.fails("execute_ipython_cell", code=CALL.format("y"))
    assert mark.read_text() == "x\n"


def test_output_that_was_cut_and_denials_belong_to_their_session(serve: Serve) -> None:
    server = started(serve)
    other = create(server)
    run(server, "print('a' * 6000)")
    assert server.ask("read_output", session_id=other) == "No output of a cell was cut."
    assert server.ask("read_output", max_output_chars=3).startswith("aaa\n")
    denied = "open('/etc/x', 'w')"
    for session in (None, other):
        result = server.result(server.call("execute_ipython_cell", code=denied, session_id=session))
        assert result["structuredContent"]["denied"], result


def test_a_cancelled_creation_leaves_no_session(serve: Serve) -> None:
    server = started(serve)
    run(server, "1")
    create = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {"name": "create_session"}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
    server.write(b"".join(json.dumps(m).encode() + b"\n" for m in (create, cancel)))
    eventually(lambda: len(server.ask("list_sessions").splitlines()) == 1)
    assert run(server, "6 * 7") == "42"


def test_a_session_in_another_language(serve: Serve) -> None:
    server = started(serve)
    shell = create(server, language="shell")
    assert [line.split(", ")[1] for line in server.ask("list_sessions").splitlines()] == ["python", "shell"]
    run(server, "x=5; cd /usr", shell)
    assert run(server, "echo $x; pwd", shell) == "5\n/usr"
    assert "exit status 3" in server.fails("execute_ipython_cell", code="exit 3", session_id=shell)
    assert run(server, "6 * 7") == "42"
    assert "python, shell, node" in server.fails("create_session", language="cobol")


def test_data_between_sessions(serve: Serve) -> None:
    server = started(serve)
    shell, other = create(server, language="shell"), create(server)
    run(server, "a = {'k': [1, 2.5, 'x']}; b = 'two words'; large = 10**30; odd = {1}")
    done = server.ask("bridge_data", to_session=shell, names=["a", "b"])
    assert done == "2 variables were set, 39 bytes of JSON."
    assert run(server, 'echo "$b $a"', shell) == 'two words {"k":[1,2.5,"x"]}'
    server.ask("bridge_data", from_session=shell, to_session=other, names=["a"], **{"as": "copy"})
    assert run(server, "copy", other) == "{'k': [1, 2.5, 'x']}"
    assert "NameError" in server.fails("execute_ipython_cell", code="a", session_id=other)
    server.ask("bridge_data", to_session=other, names=["large"])
    assert run(server, "large == 10**30", other) == "True"
    server.ask("bridge_data", to_session=other, data={"x": 1, "y": [None, 12345678901234567890]})
    server.ask("bridge_data", to_session=other, data=[1.0, "\u0000"], **{"as": "z"})
    assert run(server, "x, y, z", other) == "(1, [None, 12345678901234567890], [1.0, '\\x00'])"


WRONG_DATA: list[tuple[dict[str, Any], str]] = [
    ({"to_session": "0" * 32, "names": ["a"]}, "no such session"),
    ({"to_session": "OTHER", "from_session": "0" * 32, "names": ["a"]}, "no such session"),
    ({"to_session": "OTHER"}, "one of the parameters"),
    ({"to_session": "OTHER", "names": ["a"], "data": {}}, "one of the parameters"),
    ({"to_session": "OTHER", "names": []}, "are missing"),
    ({"to_session": "OTHER", "names": [1]}, "names"),
    ({"to_session": "OTHER", "names": "a"}, "names"),
    ({"to_session": "OTHER", "names": ["a", "b"], "as": "c"}, "one variable"),
    ({"to_session": "OTHER", "data": 5}, "NAME: VALUE"),
    ({"to_session": "OTHER", "data": {"if": 1}}, "keyword of the shell"),
    ({"to_session": "OTHER", "names": ["a"], "as": "fi"}, "keyword of the shell"),
    ({"to_session": "OTHER", "names": ["lambda"]}, "keyword of Python"),
    ({"to_session": "OTHER", "names": ["a", "odd"]}, "odd is of type set"),
    ({"to_session": "OTHER", "names": ["missing"]}, "NameError"),
    ({"to_session": "OTHER", "names": ["long"]}, "ValueTooLarge"),
    ({"to_session": "OTHER", "data": "x" * (16 << 20), "as": "x"}, "data"),
]


def test_wrong_data_between_sessions(serve: Serve) -> None:
    server = started(serve)
    other = create(server, language="shell")
    run(server, "a = b = 1; odd = {1}; long = 'x' * (16 << 20)")
    for arguments, why in WRONG_DATA:
        named = {**arguments, "to_session": other} if arguments.get("to_session") == "OTHER" else arguments
        assert re.search(why, server.fails("bridge_data", **named)), arguments
    assert run(server, "echo ${a-none} ${x-none} ${c-none}", other) == "none none none"


def test_data_for_a_session_that_ends_or_is_busy(serve: Serve) -> None:
    server = started(serve)
    other = create(server)
    run(server, "a = 1")
    busy = server.call("execute_ipython_cell", code="import time; time.sleep(0.5); a = 0", session_id=other)
    waits = server.call("bridge_data", to_session=other, names=["a"])
    assert not server.result(busy)["isError"] and not server.result(waits)["isError"]
    assert run(server, "a", other) == "1"
    busy = server.call("execute_ipython_cell", code="time.sleep(100)", session_id=other)
    waits = server.call("bridge_data", to_session=other, names=["a"])
    ended = server.call("terminate_session", session_id=other)
    assert [answer["isError"] for answer in both(server, busy, waits, ended)] == [True, True, False]
    other = create(server)
    busy = server.call("execute_ipython_cell", code="import time; time.sleep(100)")
    waits = server.call("bridge_data", to_session=other, names=["a"])
    for id in (waits, busy):
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
        server.write(json.dumps(message).encode() + b"\n")
    assert run(server, "a").endswith("1")
