"""Cells through the C API: results, order, limits, interrupts, ends."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import pytest
from cellgate_api import E_CLOSED, E_INVAL, CellgateError, Client, Session
from processes import children, gate, named


@pytest.fixture
def session(used: Session) -> Session:
    """The session of the tests that leave it usable."""
    return used


def test_state_result_and_streams(session: Session) -> None:
    out = session.run("import sys\nx = 40\nprint('out'); print('err', file=sys.stderr)\nx + 2")
    assert (out.status, out.value, out.stdout, out.stderr) == ("ok", "42", "out\n", "err\n")
    assert session.run("x").value == "40"
    assert session.run("x").result.count == 3


def test_queued_cells_run_in_order(session: Session) -> None:
    session.run("log = []")
    cells = [session.execute(f"log.append({i})") for i in range(20)]
    for cell in cells:
        assert session.until("result")[-1].cell == cell
    assert session.run("log == list(range(20))").value == "True"


def test_numbers_that_hosts_cannot_read_are_not_relayed(session: Session) -> None:
    """Python's json, for one, fails on integers of more than 4300 digits."""
    out = session.run(
        "import sys\nsys.set_int_max_str_digits(0)\nfrom IPython.display import display\n"
        "display({'application/json': {'n': 10**5000}}, raw=True)\ndisplay({'application/json': {'n': 10**900}}, raw=True)"
    )
    assert len([e for e in out.events if e.type == "display_data"]) == 1
    assert any("more than 1000 characters" in e.text for e in out.events if e.type == "notice")


def test_cell_that_is_not_utf8_is_refused(session: Session) -> None:
    with pytest.raises(CellgateError, match="UTF-8 at byte 1") as e:
        session.execute(b"x\xff")
    assert e.value.code == E_INVAL


def test_subshell_that_is_not_utf8_is_refused_and_not_taken_for_the_main_shell(session: Session) -> None:
    with pytest.raises(CellgateError, match="subshell's id must be UTF-8") as e:
        session.execute("1", timeout_ms=1000, subshell=b"\xff")
    assert e.value.code == E_INVAL


def test_timeout_interrupts(session: Session) -> None:
    for code in ["while True: pass", "import time; time.sleep(100)", "import asyncio; await asyncio.sleep(100)"]:
        session.run("kept = 1")
        out = session.run(code, timeout_ms=300)
        assert out.status == "timeout" and "0.3 s" in out.result.text, code
        assert session.run("kept").value == "1", code


def test_timeout_of_native_code_replaces_the_kernel(session: Session) -> None:
    session.run("lost = 1")
    out = session.run("sum(range(10**12))", timeout_ms=300)
    assert out.status == "timeout" and "replaced" in out.result.text
    assert session.run("'lost' in globals()").value == "False"


def test_cancel_hits_its_cell_only(session: Session) -> None:
    first = session.execute("import time\nprint('on')\ntime.sleep(100)")
    second = session.execute("'second'")
    session.until("stream")
    session.cancel(first)
    assert session.until("result")[-1].status == "cancelled"
    session.cancel(first)  # it has ended: this must not hit the second
    got = session.until("result")
    assert (got[-1].cell, got[-1].status) == (second, "ok")


def test_cancel_takes_a_waiting_cell_out(session: Session, work: Path) -> None:
    release = gate(work)
    session.execute("open('go').read()\npass")
    waiting = session.execute("print('never')")
    session.cancel(waiting)
    got = session.until("result")
    release()
    got += session.until("result")
    assert [(e.cell, e.status) for e in got if e.type == "result"] == [(waiting, "cancelled"), (waiting - 1, "ok")]
    assert not any(e.type == "stream" for e in got)


def test_dead_kernel_is_reported_and_replaced(session: Session) -> None:
    for code, why in [
        ("import os; os._exit(3)", "status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ]:
        out = session.run("print('before')\n" + code)
        assert out.status == "kernel_died" and why in out.result.text, (code, why)
        # SIGKILL cannot be caught: what the process had not handed on is lost.
        assert out.stdout == "before\n" or (why == "SIGKILL" and out.stdout in ("", "before")), (code, why)
        assert why != "SIGSEGV" or "Cell In[1]" in out.stderr or "line 2" in out.stderr, (
            code,
            why,
        )  # faulthandler names the place
        assert why in session.until("kernel_died")[-1].text, (code, why)
        assert session.run("1").value == "1", (code, why)


def test_waiting_cells_end_with_a_dead_kernel(session: Session) -> None:
    session.execute("import os; os._exit(1)")
    session.execute("1")
    assert [session.until("result")[-1].status for _ in range(2)] == ["kernel_died", "cancelled"]


def test_reset_forgets_state_and_cancels(session: Session) -> None:
    session.run("x = 1")
    session.execute("import time; time.sleep(100)")
    session.reset()
    assert session.until("result")[-1].status == "cancelled"
    assert session.run("'x' in globals()").value == "False"


def test_the_longest_timeouts_do_not_pass_at_once(session: Session) -> None:
    longest = 2**63 - 1
    session.execute("import time; time.sleep(0.1)")
    types = []
    while "result" not in types:
        event = session.next(longest)
        assert event
        types.append(event.type)
    session.reset(longest)
    assert session.run("1").value == "1"


def test_input(session: Session) -> None:
    session.execute("a = input('name? ')\na", allow_stdin=True)
    assert session.until("input_request")[-1].json == {"prompt": "name? ", "password": False}
    session.input("Ann")
    assert session.until("execute_result")[-1].json["data"]["text/plain"] == "'Ann'"
    session.until("result")
    assert session.run("input()").status == "error"
    with pytest.raises(CellgateError, match="does not wait"):
        session.input("x")


def test_fd_is_readable_while_events_wait(session: Session) -> None:
    def ready() -> bool:
        return bool(select.select([session.fd()], [], [], 0)[0])

    assert not ready()
    session.execute("1")
    assert select.select([session.fd()], [], [], 10)[0]
    session.until("result")
    assert not ready()
    session.execute("print(1)\n2")
    while session.next(10000).type != "result":  # this thread has read the others together with the first one
        assert select.select([session.fd()], [], [], 10)[0]
    assert not ready()


def test_a_host_that_does_not_read_stops_the_output(session: Session, client: Client) -> None:
    session.execute("for i in range(40000): print('x' * 999)")  # 40 MB
    deadline = time.monotonic() + 20
    with client.session() as other:  # the others are not held up
        assert other.run("1").value == "1"
    while not select.select([session.fd()], [], [], 0)[0]:
        assert time.monotonic() < deadline
    got = session.until("result", 60000)
    assert sum(len(e.text) for e in got if e.type == "stream") == 40_000_000
    assert got[-1].status == "ok"


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_host_that_reads_late_does_not_cost_the_state(session: Session, client: Client, limit: int) -> None:
    """The cell has reacted to its interrupt; its reply is behind output that is not read."""
    session.run("kept = 1")
    cell = session.execute("while True: print('x' * 999)", timeout_ms=limit)
    with client.session() as other:
        code = (
            "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\n"
            "while True: time.sleep(9)"
        )
        deaf = other.execute(code, timeout_ms=limit)
        other.until("stream")
        if not limit:
            session.cancel(cell)
            other.cancel(deaf)
        assert "did not react" in other.until("result")[-1].text  # the time that an interrupt gives a cell is over
    assert session.until("result")[-1].status == ("timeout" if limit else "cancelled")
    assert session.run("kept").value == "1"


def test_ended_session_says_so(client: Client) -> None:
    c = Client()
    s = c.session()
    c.close()
    with pytest.raises(CellgateError) as e:
        s.execute("1")
    assert e.value.code == E_CLOSED
    s.close()


def test_workspace_must_be_there(client: Client) -> None:
    with pytest.raises(CellgateError, match="/no/such/folder"):
        client.session(workspace="/no/such/folder")


def test_environment_is_what_was_named(client: Client) -> None:
    os.environ["CG_SECRET_OF_HOST"] = "x"
    with client.session(env=["COLOUR=blue", "EMPTY="]) as s:
        assert s.run("import os; os.environ['COLOUR'], os.environ['EMPTY']").value == "('blue', '')"
        assert s.run("'CG_SECRET_OF_HOST' in os.environ").value == "False"
    with pytest.raises(CellgateError, match="NAME=VALUE"):
        client.session(env=["oops"])


def test_preload() -> None:
    with Client(preload="colorsys,wave") as c, c.session() as s:
        assert s.run("import sys; 'wave' in sys.modules").value == "True"
    with Client(preload="no_such_module_at_all") as c, pytest.raises(CellgateError, match="no_such_module_at_all"):
        c.session()


def test_supervisor_killed(client: Client) -> None:
    c = Client()
    with c.session() as s:
        s.execute("import time; time.sleep(100)")
        os.kill(named(children(os.getpid()), "cellgate-superv"), signal.SIGKILL)
        assert "supervisor has ended" in s.until("session_closed")[-1].text
        with pytest.raises(EOFError):
            s.next()
    c.close()
