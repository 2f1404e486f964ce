"""Tool calls: each is asked about with exactly its bytes, and runs only when the host said so."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import CellgateError, Client, Event, Session
from processes import by_age, children, eventually, name_of, parent, words
from rounds import rounds
from server_definitions import SERVER, definition, echo

CALL = "from mcptools.echo import echo\necho.run(text={!r})"


@pytest.fixture
def mark(used_mark: Path) -> Path:
    return used_mark


@pytest.fixture
def tools(used_tools: Session) -> Session:
    """The session of the tests that leave it usable."""
    return used_tools


def test_accepted_call_runs_with_the_bytes_that_were_shown(tools: Session, mark: Path) -> None:
    seen: list[Event] = []

    def decide(e: Event) -> bool:
        seen.append(e)
        assert not mark.exists()  # nothing has run yet
        return True

    out = tools.run("from mcptools.echo import danger\nstr(danger.run(text='ä\\n'))", decide)
    assert out.value is not None and out.status == "ok"
    assert [(e.server, e.tool, json.loads(e.args)) for e in seen] == [("echo", "danger", {"text": "ä\n"})]
    assert json.loads(mark.read_text()) == {"text": "ä\n"}


# Calls whose arguments become "other" once they were read, or while their question waits for the file "go".
CHANGING = {
    "python-subclass": "from mcptools.echo import danger\nn = 0\nclass D(dict):\n    def items(self):\n        global n\n"
    "        n += 1\n        return [('text', 'shown' if n < 2 else 'other')]\ndanger.run(D(text='shown'))",
    "python-thread": "import os, threading\nfrom mcptools.echo import danger\nd = {'text': 'shown'}\n"
    "t = threading.Thread(target=danger.run, args=(d,))\nt.start()\nwhile not os.path.exists('go'): pass\n"
    "d['text'] = 'other'\nt.join()",
    "node-getter": "import { danger } from 'mcptools/echo'; let n = 0;\n"
    "await danger({ get text() { return n++ ? 'other' : 'shown' } })",
    "node-later": "import { danger } from 'mcptools/echo'; const o = { text: 'shown' };\n"
    "const p = danger(o); o.text = 'other'; await p",
    "shell-file": "mcptools echo danger text=shown & until [[ -e go ]]; do :; done\n"
    "printf '%s\\0' echo danger text=other >|$__cg_dir/0.args; : >ready; wait",
}


@pytest.mark.parametrize("case", CHANGING)
def test_arguments_that_change_after_they_were_shown(client: Client, workspace: Path, tmp_path: Path, case: str) -> None:
    language, mark = case.partition("-")[0], tmp_path / "mark"
    if language == "node" and shutil.which("node") is None:
        pytest.skip("there is no node")
    with client.session(workspace=workspace, language=language) as s:
        s.add_servers(echo(mark))
        s.execute(CHANGING[case])
        question = s.until("approval_request")[-1]
        assert json.loads(question.args) == {"text": "shown"}
        (workspace / "go").touch()
        if language == "shell":
            eventually((workspace / "ready").exists)
        s.accept(question.approval)
        assert s.until("result")[-1].status == "ok"
    assert [json.loads(line)["text"] for line in mark.read_text().splitlines()] == ["shown"]


def test_rejected_call_does_not_run_and_raises(tools: Session, mark: Path) -> None:
    code = "from mcptools.echo import danger\nimport cellgate_tools\ntry:\n    danger.run(text='x')\nexcept cellgate_tools.RejectedError as e:\n    print('caught:', e)"
    out = tools.run(code, lambda e: "not on my watch")
    assert out.status == "ok" and "not on my watch" in out.stdout
    assert not mark.exists()


def test_a_long_reason_is_cut_and_the_refusal_counts(tools: Session) -> None:
    for reason, shown in [
        ("\x01" * 30000, "\x01" * 10000),  # six bytes each on the wire
        ("é" * 30000, "é" * 5000),
        ("a" + "é" * 30000, "a" + "é" * 4999),  # not cut inside of a character
    ]:
        code = "from mcptools.echo import echo\nimport cellgate_tools\ntry:\n    echo.run(text='x')\nexcept cellgate_tools.RejectedError as e:\n    seen = str(e)\nf'{len(seen)} {seen.count(chr(1))} {seen.count(chr(233))}'"
        out = tools.run(code, lambda e, reason=reason: reason)
        length, controls, accents = map(int, str(out.value).strip("'").split())
        assert (controls, accents) == (shown.count("\x01"), shown.count("é")) and length >= len(shown), shown[:3]


def test_refusal_that_is_not_caught_is_marked(tools: Session) -> None:
    out = tools.run(CALL.format("x"), lambda e: False)
    assert out.status == "error" and out.result.refused
    assert out.error is not None and out.error["ename"] == "RejectedError"


def test_loop_with_python_between(tools: Session) -> None:
    code = "from mcptools.echo import echo\nsum(len(str(echo.run(text='x' * i))) for i in range(20))"
    n = 0

    def decide(e: Event) -> bool:
        nonlocal n
        n += 1
        return True

    assert tools.run(code, decide).value == str(sum(range(20)))
    assert n == 20


def test_waiting_for_a_person_does_not_count(tools: Session) -> None:
    tools.run("from mcptools.echo import echo")
    tools.execute("str(echo.run(text='late'))", timeout_ms=700)
    e = tools.until("approval_request")[-1]
    assert tools.next(1500) is None  # longer than the cell's limit
    tools.accept(e.approval)
    assert tools.until("result")[-1].status == "ok"


def test_a_question_of_an_ended_cell_does_not_stop_the_clock_of_later_ones(tools: Session) -> None:
    tools.execute("import threading\nfrom mcptools.echo import echo")
    tools.execute("threading.Thread(target=lambda: echo.run(text='thread')).start()")
    tools.until("result")
    asked, _ = tools.each("approval_request", "result")
    assert tools.run("while True: pass", timeout_ms=300).status == "timeout"
    tools.execute("str(echo.run(text='own'))", timeout_ms=700)
    own = tools.until("approval_request")[-1]
    tools.accept(asked.approval)
    assert tools.next(1500) is None
    tools.accept(own.approval)
    assert tools.until("result")[-1].status == "ok"


def test_a_question_about_a_program_that_was_replaced_allows_nothing(session: Session, tmp_path: Path) -> None:
    """Another program under the server's name: the call that waits was meant for, and shown as, the former one's."""
    tools, mark = session, tmp_path / "second"
    tools.add_servers(echo(tmp_path / "first"))
    tools.execute("from mcptools.echo import danger\ndanger.run(text='x')")
    asked = tools.until("approval_request")[-1]
    tools.add_servers(echo(mark))
    with contextlib.suppress(CellgateError):
        tools.accept(asked.approval)
    events = tools.until("result")
    assert events[-1].status == "error"
    assert "replaced by another definition" in str([e.json for e in events if e.type == "error"])
    if not [e for e in events if e.type == "approval_closed"]:  # on its way from another process than the result
        events += tools.until("approval_closed")
    assert [e.approval for e in events if e.type == "approval_closed"] == [asked.approval]
    assert not mark.exists()
    assert tools.run("danger.run(text='x')", lambda _: True).status == "ok" and mark.exists()


def test_interrupt_closes_the_question(tools: Session) -> None:
    cell = tools.execute(CALL.format("a"))
    e = tools.until("approval_request")[-1]
    tools.cancel(cell)
    closed, result = tools.each("approval_closed", "result")
    assert (closed.approval, result.status) == (e.approval, "cancelled")
    with pytest.raises(CellgateError):
        tools.accept(e.approval)


def test_dead_kernel_closes_the_question(tools: Session, mark: Path) -> None:
    tools.execute(
        "import threading, os\nfrom mcptools.echo import danger\nthreading.Timer(0.5, os._exit, [1]).start()\ndanger.run(text='x')"
    )
    e = tools.until("approval_request")[-1]
    closed, result = tools.each("approval_closed", "result")
    assert (closed.approval, result.status) == (e.approval, "kernel_died")
    assert not mark.exists()


def test_large_result(tools: Session) -> None:
    """run() gives a string whatever its size; what call() gives stays outside of the kernel until it is read."""
    code = """
import json
from mcptools.echo import echo
r = echo.run(text=json.dumps(["0123456789" * 300_000]))
c = echo.call(text="0123456789" * 300_000).large()
isinstance(r, str), json.loads(r) == ["0123456789" * 300_000], type(c).__name__, len(c), c[5:8], str(c) == r[2:-2]"""
    out = tools.run(code, lambda e: True)
    assert out.value == "(True, True, 'LargeText', 3000000, '567', True)"
    shown = tools.run("r").value
    assert shown.endswith("... (3000004 characters)") and len(shown) < 2000


def test_approval_timeout_refuses(client: Client, mark: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with client.session(workspace=tmp_path / "work", approval_timeout_ms=300) as s:
        s.add_servers(echo(mark))
        s.execute(CALL.format("a"))
        assert "nobody decided in time" in s.until("approval_closed")[-1].text
        assert s.until("result")[-1].refused
        s.execute(
            "import cellgate_tools\ntry: echo.run(text='b')\nexcept cellgate_tools.ToolRunnerError as e: print(e.kind)"
        )
        assert "approval_timeout" in [e.text.strip() for e in s.until("result") if e.text]


def test_a_host_that_measures_the_time_itself(tools: Session, mark: Path) -> None:
    tools.execute(
        "import cellgate_tools\nfrom mcptools.echo import danger\ntry: danger.run(text='x')\nexcept cellgate_tools.ApprovalTimeoutError as e: print(e)"
    )
    tools.expire(tools.until("approval_request")[-1].approval, "too late")
    assert "too late" in "".join(e.text for e in tools.until("result") if e.text)
    assert not mark.exists()


def test_threads_are_asked_about_one_by_one(tools: Session) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
from mcptools.echo import echo
with ThreadPoolExecutor(8) as pool:
    print(sorted(str(r) for r in pool.map(lambda i: echo.run(text=str(i)), range(8))))
"""
    asked = []

    def decide(e: Event) -> bool:
        asked.append(json.loads(e.args)["text"])
        return True

    out = tools.run(code, decide)
    assert out.stdout.strip() == str(sorted(map(str, range(8))))
    assert sorted(asked) == sorted(map(str, range(8)))


def test_tool_error_and_a_server_that_dies(tools: Session) -> None:
    out = tools.run("from mcptools.echo import fail\nfail.run(text='broken')", lambda e: True)
    assert out.error is not None and out.error["ename"] == "ToolError" and "broken" in out.error["evalue"]
    out = tools.run("from mcptools.echo import die\ndie.run()", lambda e: True)
    assert out.status == "error" and out.error is not None and "7" in out.error["evalue"]
    assert tools.run(CALL.format("again"), lambda e: True).status == "ok"  # it is started again


def test_reset_keeps_the_servers(tools: Session) -> None:
    tools.reset()
    assert tools.run(CALL.format("still here"), lambda e: True).status == "ok"


def test_variables_come_from_the_host(session: Session, monkeypatch: pytest.MonkeyPatch, mark: Path) -> None:
    server = {"command": "${CG_TEST_PYTHON_EXE}", "args": [str(SERVER)]}
    with pytest.raises(CellgateError, match="CG_TEST_PYTHON_EXE is not set"):
        session.add_servers({"echo": server})
    monkeypatch.setenv("CG_TEST_PYTHON_EXE", sys.executable)
    report = session.add_servers({"mcpServers": {"echo": server}})
    assert {t["tool"] for t in report["echo"]["tools"]} == {"echo", "danger", "slow", "die", "env", "fail"}


def test_bad_definitions_say_what_is_wrong(session: Session) -> None:
    for text, says in [
        ('{"a": {"command": "x"},\n "b"}', "line 2"),
        ('{"a": 1}', "must be an object"),
        ('{"a": {"command": "/no/such/program"}}', "/no/such/program"),
        ('{"a": {}}', "command"),
        ('{"../x": {"command": "true"}}', "name"),
        ('{"a": {"command": "false"}}', "a"),
    ]:
        with pytest.raises(CellgateError) as e:
            session.add_servers(text, timeout_ms=5000)
        assert says in str(e.value), (text, says)
        assert session.run("1").value == "1", (text, says)


@pytest.mark.parametrize("whom", ["guard", "inner"])
def test_tool_server_killed_is_replaced(mark: Path, workspace: Path, whom: str) -> None:
    c = Client()
    with c.session(workspace=workspace) as s:
        s.add_servers(echo(mark))
        s.execute("from mcptools.echo import slow\nslow.run(seconds=100)")
        s.accept(s.until("approval_request")[-1].approval)
        for pid in _toolservers(whom):
            os.kill(pid, signal.SIGKILL)
        events = s.until("notice")  # the kernel sees the end of its own connection, perhaps earlier
        assert "tool server" in events[-1].text
        results = [e for e in events if e.type == "result"] or s.until("result")
        assert results[-1].status == "error"
        assert s.run(CALL.format("again"), lambda e: True).status == "ok"
    c.close()


def _toolservers(whom: str = "guard") -> list[int]:
    """The tool server of the newest of this process's supervisors, or the guard that is its parent."""
    level = children(os.getpid())
    for _ in range(1 if whom == "guard" else 2):
        level = [p for above in level for p in children(above)]
    return by_age([p for p in level if name_of(p).startswith("cellgate-tools")])[-1:]


@pytest.fixture
def daemon(tmp_path: Path) -> tuple[dict[str, Any], Callable[[], bool]]:
    """A server that starts a daemon in a session of its own, and whether that runs."""
    marker = f"{os.getpid()}{os.urandom(4).hex()}"
    starts = f"import os, subprocess\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.execvp('sh', ['sh', '-c', 'sleep 98765; :', '{marker}'])\n    os._exit(0)\n"
    script = tmp_path / "server.py"
    script.write_text(starts + SERVER.read_text())
    runs = lambda: any(marker.encode() in words(int(p)) for p in filter(str.isdigit, os.listdir("/proc")))  # noqa: E731
    return {"echo": definition(script)}, runs


@pytest.mark.parametrize("whom", ["guard", "inner"])
def test_nothing_of_a_killed_tool_server_stays(workspace: Path, daemon: Any, whom: str) -> None:
    """Processes that its MCP servers have started end as well, even daemons in sessions of their own."""
    servers, runs = daemon
    with Client() as c, c.session(workspace=workspace) as s:
        s.add_servers(servers)
        assert runs()
        for pid in _toolservers(whom):
            os.kill(pid, signal.SIGKILL)
        s.until("notice")
        assert not runs()


def test_nothing_stays_where_supervisor_and_tool_server_are_killed_at_once(workspace: Path, daemon: Any) -> None:
    servers, runs = daemon
    with Client(no_spare=1) as c, c.session(workspace=workspace) as s:
        s.add_servers(servers)
        assert runs()
        (inner,), (guard,) = _toolservers("inner"), _toolservers()
        os.kill(parent(guard), signal.SIGKILL)
        os.kill(inner, signal.SIGKILL)
        eventually(lambda: not runs())


def test_output_stands_before_the_question_it_led_to(tools: Session) -> None:
    for i in range(rounds(30)):
        tools.execute(
            f"from mcptools.echo import echo\nprint('about to call {i}')\nimport os; os.write(1, b'and C\\n')\necho.run(text='x')"
        )
        got = tools.until("approval_request")
        assert "".join(e.text for e in got if e.type == "stream") == f"about to call {i}\nand C\n"
        tools.accept(got[-1].approval)
        tools.until("result")


def test_tool_server_killed_while_it_adds_servers(tmp_path: Path) -> None:
    with Client(no_spare=1) as c, c.session(workspace=tmp_path) as s:
        hang = {"command": "sleep", "args": ["1000"]}
        timer = threading.Timer(0.5, lambda: [os.kill(p, signal.SIGKILL) for p in _toolservers()])
        timer.start()
        with pytest.raises(CellgateError, match="try again"):
            s.add_servers({"hang": hang})
        assert "echo" in s.add_servers({"echo": definition()})
