"""`cellgate run --json` as an agent's loop: the host sends cells, interrupts and resets while it runs (docs/cli-json.md)."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

READ = "from mcptools.fs import read_file; print(read_file.run(path='/x'))"
LONG = "import time\nprint('go', flush=True)\ntime.sleep(600)"


def execute(code: str, id: Any = None, **more: Any) -> dict[str, Any]:
    return {"execute": {"code": code} | ({} if id is None else {"id": id}) | more}


def result(h: Any, **wanted: Any) -> dict[str, Any]:
    """The next result; what came before it is dropped."""
    while (event := h.next())["type"] != "result":
        pass
    assert wanted.items() <= event.items(), event
    return event


def test_cells_share_a_session_and_errors_do_not_end_it(host) -> None:
    h = host()
    assert h.next()["type"] == "session"
    h.say(execute("x = 20; 1/0", "a"))
    assert h.next() == {"type": "started", "cell": 1, "id": "a", "line": 1}
    error = h.until("error")
    assert (error["id"], error["content"]["ename"]) == ("a", "ZeroDivisionError")
    result(h, id="a", cell=1, status="error")
    h.say(execute("print(x + 22)", 7))
    assert h.next() == {"type": "started", "cell": 2, "id": 7, "line": 2}
    assert h.next() == {"type": "stream", "cell": 2, "id": 7, "name": "stdout", "text": "42\n"}
    result(h, id=7, cell=2, status="ok", execution_count=2)
    h.say({"end": {}})
    assert h.end() == 0


def test_variables_of_a_cell(host) -> None:
    h = host()
    h.say(execute("x = [1, 2]\n1/0", variables=True))
    made = [{"name": "x", "type": "list", "length": 2}]
    assert result(h, cell=1)["variables"] == {"made": made, "changed": [], "deleted": [], "left_out": 0}
    h.say(execute("x = 1", variables=False))
    assert "variables" not in result(h, cell=2)
    h.say(execute("del x"))
    assert "variables" not in result(h, cell=3)
    h.say(execute("1", variables=1))
    assert "variables" in h.until("input_error")["text"]
    h.say({"end": {}})
    assert h.end() == 0


def test_artifacts_of_a_cell(host) -> None:
    h = host()
    h.say(execute("open('/tmp/a', 'w').write('x')\n1/0", artifacts=True))
    digest = hashlib.sha256(b"x").hexdigest()
    assert result(h, cell=1)["artifacts"] == {"files": [{"path": "/tmp/a", "size": 1, "sha256": digest}]}
    h.say(execute("open('/tmp/a', 'w')", artifacts=False))
    assert "artifacts" not in result(h, cell=2)
    h.say(execute("1", artifacts=1))
    assert "artifacts" in h.until("input_error")["text"]
    h.say({"end": {}})
    assert h.end() == 0


def test_end_of_input_lets_what_is_queued_run(host) -> None:
    h = host()
    for i in range(3):
        h.say(execute(f"print({i})", i))
    h.close_input()
    events = h.rest()
    assert [e["text"] for e in events if e["type"] == "stream"] == ["0\n", "1\n", "2\n"]
    assert [(e["id"], e["status"]) for e in events if e["type"] == "result"] == [(i, "ok") for i in range(3)]
    assert h.process.wait(10) == 0


def test_end_of_input_while_nothing_runs(host) -> None:
    h = host()
    h.until("session")
    h.close_input()
    assert h.end() == 0


def test_two_cells_then_an_interrupt(host) -> None:
    """The one that runs ends, the next one runs."""
    h = host()
    h.say(execute(LONG, "long"))
    h.say(execute("print('next')", "next"))
    h.until("stream")
    h.say({"interrupt": {}})
    result(h, id="long", status="cancelled")
    assert h.until("stream")["text"] == "next\n"
    result(h, id="next", status="ok")
    h.say({"interrupt": True})
    assert "no cell runs" in h.until("input_error")["text"]
    h.close_input()
    assert h.end() == 0


def test_interrupt_by_id(host) -> None:
    h = host()
    for id in "long", "b", "c":
        h.say(execute(LONG if id == "long" else f"print({id!r})", id))
    h.until("stream")
    h.say({"interrupt": {"id": "b"}})
    dropped = h.next()
    assert dropped == {
        "type": "result",
        "id": "b",
        "line": 2,
        "status": "cancelled",
        "execution_count": 0,
        "refused": False,
        "text": "interrupted before it ran",
    }
    h.say({"interrupt": {"id": "x"}})
    assert h.next() == {"type": "input_error", "id": "x", "line": 5, "text": "no cell with this id runs or waits"}
    h.say({"interrupt": {"id": "long"}})
    result(h, id="long", status="cancelled")
    assert h.until("stream")["text"] == "c\n"


def test_interrupt_of_all(host) -> None:
    h = host()
    for id in range(3):
        h.say(execute(LONG, id))
    h.until("stream")
    h.say({"interrupt": {"all": True}})
    assert [result(h, status="cancelled")["id"] for _ in range(3)] == [1, 2, 0]
    h.say(execute("print('still here')"))
    assert h.until("stream")["text"] == "still here\n"


def test_reset_clears_the_state(host) -> None:
    h = host()
    h.say(execute("x = 1", 1))
    result(h, id=1, status="ok")
    h.say({"reset": {"id": "r"}})
    assert h.next() == {"type": "reset", "id": "r", "line": 2}
    h.say(execute("x", 2))
    assert h.until("error")["content"]["ename"] == "NameError"
    result(h, id=2, execution_count=1)


def test_reset_and_a_cell_sent_at_once(host) -> None:
    """The cell is sent after the reset: the failure of what ran before it does not drop it."""
    h = host()
    h.say(execute(LONG, 1, stop_on_error=True))
    h.until("stream")
    h.say(b"\n".join(json.dumps(line).encode() for line in ({"reset": {}}, execute("print('new')", 2))))
    result(h, id=1, status="cancelled")
    assert h.until("reset") == {"type": "reset", "line": 2}
    result(h, id=2, status="ok")


def test_reset_while_cells_run_and_wait(host, server) -> None:
    h = host("--mcp", server.mcp)
    h.say(execute(LONG, 1))
    h.say(execute("print('never')", 2))
    h.until("stream")
    h.say({"reset": True})
    h.say(execute(READ, 3))  # sent after it: runs in the new kernel
    result(h, id=2, status="cancelled", text="the kernel was reset before it ran")
    result(h, id=1, status="cancelled")
    assert h.until("reset") == {"type": "reset", "line": 3}
    h.say({"approval": h.until("approval_request")["approval"], "accept": True})
    assert h.until("stream")["text"] == "read_file done\n"


def test_approval_while_cells_wait(host, server) -> None:
    h = host("--mcp", server.mcp)
    h.say(execute(READ, "call"))
    ask = h.until("approval_request")
    assert ask["id"] == "call"
    assert "server    fs\n  tool      read_file\n" in ask["shown"] and ask["shown_whole"] is True
    h.say(execute("print('after')", "after"))
    assert server.ran() == []
    h.say({"approval": ask["approval"], "accept": True})
    assert h.until("stream")["text"] == "read_file done\n"
    result(h, id="call", status="ok")
    assert h.until("stream")["text"] == "after\n"
    result(h, id="after")
    h.say(execute(READ))
    h.until("approval_request")
    h.close_input()
    result(h, status="error", refused=True)
    assert h.end() == 0


def test_what_is_shown_is_safe(host, server) -> None:
    h = host("--mcp", server.mcp)
    h.say(execute("from mcptools.fs import read_file; read_file.run(path='/p\\u0430ul/\\u202e\\u05d0')"))
    ask = h.until("approval_request")
    assert ask["arguments"] == {"path": "/p\u0430ul/\u202e\u05d0"}
    assert '"/p\\u0430ul/\\u202e\\u05d0"' in ask["shown"]


def test_input(host) -> None:
    h = host()
    h.say(execute("print('hello', input('who? '))", 1))
    assert h.until("input_request")["id"] == 1
    h.say({"input": "Ada"})
    assert h.until("stream")["text"] == "hello Ada\n"


def test_stop_on_error(host) -> None:
    h = host()
    h.say(execute("input()", 1, stop_on_error=True))
    h.until("input_request")
    h.say(execute("print('not this')", 2))
    h.say(execute("print('nor this')", 3))
    h.say({"interrupt": {}})
    result(h, id=1, status="cancelled")
    for id in 2, 3:
        result(h, id=id, status="cancelled", text="not run: an earlier cell failed")
    h.say(execute("print('this')", 4))
    result(h, id=4, status="ok")


def test_timeout_of_one_cell(host) -> None:
    h = host("--timeout", "600")
    h.say(execute("while True: pass", 1, timeout=0.3))
    result(h, id=1, status="timeout")
    h.say(execute("6 * 7", 2))
    result(h, id=2, status="ok")


def test_dead_kernel_does_not_end_the_run(host) -> None:
    h = host()
    h.say(execute("import os; os._exit(3)", 1))
    result(h, id=1, status="kernel_died")
    h.say(execute("print('new kernel')", 2))
    assert h.until("stream")["text"] == "new kernel\n"


def test_cells_of_the_command_line_come_first(host) -> None:
    h = host("--stay", "-c", "x = 1; print(input())", "-c", "x += 1")
    h.until("input_request")
    h.say(execute("print(x)", "host"))
    h.say({"input": "go"})
    result(h, cell=1, status="ok")
    result(h, cell=2, status="ok")
    assert h.until("stream")["text"] == "2\n"
    h.say({"end": True})
    assert h.end() == 0


def test_failed_cell_of_the_command_line(host) -> None:
    """Later cells are not run; the host continues."""
    h = host("--stay", "-c", "1/0", "-c", "print('never')")
    result(h, cell=1, status="error")
    assert "not run" in h.until("notice")["text"]
    h.say(execute("print('on')"))
    assert h.until("stream")["text"] == "on\n"
    h.close_input()
    assert h.end() == 0


def test_a_cell_keeps_the_run_going(host) -> None:
    """Without --stay as well, if it comes before the end."""
    h = host("-c", "input(); 1/0")
    h.until("input_request")
    h.say(execute("print('on')"))
    h.say({"input": ""})
    result(h, cell=1, status="error")
    assert h.until("stream")["text"] == "on\n"


BAD: list[Any] = [
    {"execute": "print(1)"},
    {"execute": {}},
    {"execute": {"code": 1}},
    {"execute": {"code": "1", "more": 1}},
    {"execute": {"code": "1", "id": [1]}},
    {"execute": {"code": "1", "id": 1.5}},
    {"execute": {"code": "1", "id": "x" * 257}},
    {"execute": {"code": "1", "timeout": -1}},
    {"execute": {"code": "1", "timeout": "1"}},
    {"execute": {"code": "1", "stop_on_error": 1}},
    {"execute": {"code": "1"}, "reset": {}},
    {"interrupt": {"id": 1, "all": True}},
    {"interrupt": {"all": False}},
    {"interrupt": 1},
    {"reset": {"kernel": 1}},
    {"reset": False},
    {"end": 1},
    {"run": "x"},
    b'{"execute":{"code":"\xff"}}',
    b'{"execute":{"code":"1","code":"2"}}',
    b'{"execute":{"code":"1"}}}',
    b"\x00",
]


def test_lines_that_are_not_understood_change_nothing(host) -> None:
    h = host()
    h.until("session")
    for count, line in enumerate(BAD, 1):
        h.say(line)
        error = h.next()
        assert (error["type"], error["line"]) == ("input_error", count), line
    h.say(execute("print('fine')", "f"))
    assert h.next()["type"] == "started"
    assert h.until("stream")["text"] == "fine\n"


@pytest.mark.sanitized_in_soak
def test_line_over_the_limit(host) -> None:
    h = host()
    h.until("session")
    h.say(execute("x = " + repr("y" * (17 << 20)), "big"))
    assert "too long" in h.until("input_error")["text"]
    h.say(execute("x = len(" + repr("y" * (15 << 20)) + ")\nprint(x)"))
    assert h.until("stream")["text"] == f"{15 << 20}\n"
    result(h, status="ok")
    h.say(execute("#" * ((16 << 20) + 1), "long"))  # the line fits, the cell does not
    error = h.until("input_error")
    assert error["id"] == "long" and "over the limit" in error["text"]


def test_full_queue(host) -> None:
    h = host()
    h.say(execute(LONG, "long"))
    h.until("stream")
    for i in range(257):
        h.say(execute("pass", i))
    error = h.next()
    assert (error["type"], error["id"]) == ("input_error", 256)
    assert "the queue is full" in error["text"]
    h.say({"interrupt": {"id": "long"}})
    result(h, id="long")
    for i in range(256):
        result(h, id=i, status="ok")


@pytest.mark.sanitized_in_soak
def test_host_that_does_not_read(host) -> None:
    """The kernel waits, and nothing is lost."""
    h = host()
    h.pause()
    # Twice what the supervisor sends ahead (CG_EVENT_WINDOW).
    h.say(execute("for i in range(18000): print(i, 'x' * 1000)", 1))
    h.say(execute("print('second')", 2))
    h.resume()
    text = ""
    while (event := h.next())["type"] != "result":
        text += event.get("text", "")
    numbers = len(text.splitlines())
    assert (event["id"], event["status"], numbers) == (1, "ok", 18000)
    assert h.until("stream")["text"] == "second\n"


def signalled(h: Any, sig: signal.Signals) -> list[dict[str, Any]]:
    """Send the signal and return the events before the last one. The last event and the exit status are always the same."""
    h.process.send_signal(sig)
    *events, last = h.rest()
    assert h.process.wait(h.deadline) == 128 + sig
    assert (last["type"], last["status"]) == ("failed", 128 + sig)
    results = [e for e in events if e["type"] == "result"]
    if results:
        assert results == events[-1:] and last["text"] == f"ended by {sig.name}"
    return events


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("sig", SIGNALS)
def test_signal_while_no_cell_runs(host, sig: signal.Signals) -> None:
    h = host()
    h.until("session")
    assert signalled(h, sig) == []


@pytest.mark.parametrize("sig", SIGNALS)
def test_signal_after_a_cell(host, sig: signal.Signals) -> None:
    h = host()
    h.say(execute("1/0", 1))
    result(h, id=1, status="error")
    assert signalled(h, sig) == []


@pytest.mark.parametrize("sig", SIGNALS)
def test_signal_ends_the_cell_that_runs(host, sig: signal.Signals) -> None:
    """The one that waits is not run."""
    h = host()
    h.say(execute(LONG, 1))
    h.say(execute("print('never')", 2))
    h.until("stream")
    *_, last = signalled(h, sig)
    assert (last["type"], last["id"], last["status"]) == ("result", 1, "cancelled")


def test_signal_that_a_cell_catches(host) -> None:
    h = host(
        "--stay",
        "-c",
        f"try:\n    {LONG.replace(chr(10), chr(10) + '    ')}\nexcept KeyboardInterrupt: pass",
        "-c",
        "print('never')",
    )
    h.until("stream")
    *_, last = signalled(h, signal.SIGTERM)
    assert (last["type"], last["cell"], last["status"]) == ("result", 1, "ok")


def test_signal_while_servers_start(host, tmp_path) -> None:
    settings = tmp_path / "mcp.json"
    settings.write_text(json.dumps({"mcpServers": {"slow": {"command": "/bin/sleep", "args": ["600"]}}}))
    h = host("--mcp", settings, "-c", "print('never')")
    h.until("session")
    assert all(e["type"] == "progress" for e in signalled(h, signal.SIGTERM))


@pytest.mark.sanitized_in_soak
@pytest.mark.parametrize(("sig", "eof"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_signal_ends_a_cell_that_asks_again_and_again(host, sig: signal.Signals, eof: bool) -> None:
    """It has a result only where it was too slow to ask again before its kernel was replaced."""
    h = host()
    h.say(execute("while True:\n    try: input('again? ')\n    except BaseException: pass", 1))
    h.until("input_request")
    if eof:
        h.close_input()
        h.until("input_request")
    signalled(h, sig)


def test_a_host_that_reads_no_more_ends_the_run(cellgate: Path, tmp_path: Path, slowness: float) -> None:
    """As sshd's closing of its ends of the pipes does, with a cell that prints nothing."""
    argv = [cellgate, "run", "--json"]
    with subprocess.Popen(argv, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        assert p.stdin and p.stdout
        p.stdin.write(json.dumps(execute("import time\ntime.sleep(600)")).encode() + b"\n")
        p.stdin.flush()
        while b'"started"' not in p.stdout.readline():
            pass
        p.stdout.close()
        assert p.wait(30 * slowness) == 141


def test_lines_of_a_pipe(run_cellgate) -> None:
    """A shell script can be the host as well."""
    lines = "".join(json.dumps(execute(c)) + "\n" for c in ("x = 6", "print(x * 7)"))
    r = run_cellgate("run", "--json", input=lines)
    assert r.returncode == 0
    assert [json.loads(line)["text"] for line in r.stdout.splitlines() if '"stream"' in line] == ["42\n"]


def test_variables(host) -> None:
    h = host()
    h.until("session")
    h.say({"set_variables": {"variables": {"a": [1, 0.1, "\u00e4\0", None]}, "id": "s"}})
    assert h.next() == {"type": "variables", "id": "s", "line": 1, "content": {"status": "ok"}}
    h.say(execute("b = a[:2]; c = (1, float('nan'))", 1))
    result(h, id=1, status="ok")
    h.say({"get_variables": {"names": ["b"], "timeout": 20}})
    assert h.next()["content"]["variables"] == {"b": [1, 0.1]}
    h.say({"get_variables": {"names": ["c"]}})
    content = h.next()["content"]
    assert (content["ename"], content["name"], content["type"], content["path"]) == ("NotJSON", "c", "tuple", "")
    h.say({"get_variables": {"names": ["c"], "lossy": True, "id": 3}})
    h.say({"end": {}})
    assert h.next() == {
        "type": "variables",
        "id": 3,
        "line": 5,
        "content": {"status": "ok", "variables": {"c": [1, None]}, "untrusted_pickle": [], "untrusted_arrow": []},
    }
    assert h.end() == 0


def test_lines_about_variables_that_are_wrong(host) -> None:
    h = host()
    h.until("session")
    for line in (
        {"set_variables": []},
        {"set_variables": {"variables": {}, "pickled": []}},
        {"get_variables": {"untrusted_pickle": ["a"]}},
        {"get_variables": {"names": [], "timeout": "1"}},
        {"get_variables": {"names": [], "id": []}},
        {"set_variables": {"variables": {"a": 10**30}}},
    ):
        h.say(line)
        assert h.next()["type"] == "input_error"
    h.say({"set_variables": {"variables": {"__name__": 1}}})
    assert h.next()["content"]["ename"] == "BadRequest"
    h.say({"end": {}})
    assert h.end() == 0


def test_variables_when_the_kernel_is_reset_or_dies(host) -> None:
    h = host()
    h.say(execute(LONG, 1))
    h.until("stream")
    h.say({"get_variables": {"names": ["a"], "id": "g"}})
    h.say({"reset": {}})
    result(h, id=1, status="cancelled")
    assert h.until("variables")["content"]["status"] == "error"
    h.say(execute("import os, time; print('go', flush=True); time.sleep(1); os._exit(3)", 2))
    h.until("stream")
    h.say({"get_variables": {"names": ["a"]}})
    result(h, id=2, status="kernel_died")
    assert h.until("variables")["content"]["status"] == "error"
    h.say({"end": {}})
    assert h.end() == 0
