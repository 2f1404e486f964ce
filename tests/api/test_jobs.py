"""The supervisor's queue: how many cells and commands run at once, in which order, and what full queues answer."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client, Session
from processes import by_age, children, eventually, words

SLOTS = "CELLGATE_JOBS_MAX_CONCURRENT_JOBS"
COMMANDS = "CELLGATE_JOBS_MAX_COMMANDS_PER_SESSION"
QUEUE = "CELLGATE_JOBS_MAX_QUEUE"
# Runs until the file is there.
HOLD = "import os, time\nwhile not os.path.exists({!r}): time.sleep(.005)"


@contextmanager
def limited(monkeypatch: pytest.MonkeyPatch, **limits: int) -> Iterator[Client]:
    """A client with a supervisor of its own."""
    for name, value in limits.items():
        monkeypatch.setenv(name, str(value))
    with Client(log_level=0, no_spare=1) as c:
        yield c


@pytest.fixture(scope="module")
def one() -> Iterator[Client]:
    """The client of the tests that leave no cells and commands."""
    with pytest.MonkeyPatch.context() as m, limited(m, **{SLOTS: 1}) as c:
        m.delenv(SLOTS)
        yield c


def figures(client: Client) -> dict[str, int]:
    found: dict[str, int] = client.status()["queue"]
    return found


def kernels(client: Client) -> list[int]:
    """Inits of the kernels, the oldest first."""
    return by_age([k for p in children(client.status()["pid"]) if b"--zygote" in words(p) for k in children(p)])


def holds(session: Session, file: Path) -> int:
    """A cell that runs until the file is made."""
    cell = session.execute(HOLD.format(str(file)), announce=1)
    session.until("execute_input")
    return cell


def test_cells_of_a_session_keep_their_order_and_sessions_take_turns(one: Client, workspace: Path) -> None:
    log, go = workspace / "log", workspace / "go"
    with (
        one.session(workspace=workspace) as a,
        one.session(workspace=workspace) as b,
        one.session(workspace=workspace) as c,
    ):
        holds(a, go)
        for name, session, n in [("a", a, 12), ("b", b, 8), ("c", c, 4)]:
            for i in range(n):
                session.execute(f"with open({str(log)!r}, 'a') as f: f.write('{name}{i} ')")
        assert figures(one) | {"running": 1, "waiting": 2, "max_concurrent_jobs": 1} == figures(one)
        go.touch()
        for session, n in [(a, 13), (b, 8), (c, 4)]:
            for _ in range(n):
                assert session.until("result")[-1].status == "ok"
    ran = log.read_text().split()
    assert len(ran) == 24
    for name, n in [("a", 12), ("b", 8), ("c", 4)]:
        assert [r for r in ran if r[0] == name] == [f"{name}{i}" for i in range(n)]
    # While all wait, each has its turn in every round.
    for at in range(0, 12, 3):
        assert sorted(r[0] for r in ran[at : at + 3]) == ["a", "b", "c"], ran


def test_a_cell_that_waits_for_input_leaves_its_slot(one: Client, workspace: Path) -> None:
    with one.session(workspace=workspace) as a, one.session(workspace=workspace) as b:
        a.execute("print(input())", allow_stdin=1)
        a.until("input_request")
        assert b.run("1").status == "ok"
        assert figures(one) | {"running": 0, "paused": 1} == figures(one)
        a.input("x")
        assert a.until("result")[-1].status == "ok"
        assert figures(one) | {"running": 0, "paused": 0, "waiting": 0} == figures(one)


def test_what_is_behind_a_cell_that_leaves_the_queue_goes_on(one: Client, workspace: Path) -> None:
    """A request needs no slot: it was only behind the cell."""
    with one.session(workspace=workspace) as a, one.session(workspace=workspace) as b:
        go = workspace / "go"
        holds(a, go)
        cell = b.execute("1")
        request = b.request("is_complete_request", '{"code": "1"}')
        b.cancel(cell)
        assert b.until("reply")[-1].cell == request
        go.touch()
        assert a.until("result")[-1].status == "ok"


def test_so_does_one_that_waits_for_an_approval_and_for_its_tool(one: Client, workspace: Path) -> None:
    server = {"command": "/usr/bin/python3", "args": [str(Path(__file__).parent / "echo_server.py")]}
    with one.session(workspace=workspace) as a, one.session(workspace=workspace) as b:
        a.add_servers({"echo": server})
        a.execute("from mcptools.echo import slow\nslow.run(seconds=1)")
        question = a.until("approval_request")[-1]
        assert b.run("1").status == "ok"
        a.accept(question.approval)
        assert b.run("2").status == "ok"
        assert figures(one)["paused"] == 1  # the tool has not returned: it takes a second
        assert a.until("result")[-1].status == "ok"
        assert figures(one)["paused"] == 0
        # A call whose kernel ends before it returns does not count for ever.
        a.execute("import os, threading\nthreading.Timer(.3, os._exit, [3]).start()\nslow.run(seconds=60)")
        a.accept(a.until("approval_request")[-1].approval)
        a.until("kernel_died")
        go = workspace / "go"
        holds(a, go)
        eventually(lambda: figures(one)["running"] == 1)
        go.touch()


def test_a_cell_goes_on_at_once_and_nothing_starts_meanwhile(one: Client, workspace: Path) -> None:
    go = workspace / "go"
    with (
        one.session(workspace=workspace) as a,
        one.session(workspace=workspace) as b,
        one.session(workspace=workspace) as c,
    ):
        a.execute("input()\n" + HOLD.format(str(go)), allow_stdin=1)
        a.until("input_request")
        holds(b, go)
        a.input("")
        eventually(lambda: figures(one)["running"] == 2)
        c.execute("1", announce=1)
        assert c.next(300) is None
        go.touch()
        assert c.until("result")[-1].status == "ok"


@pytest.mark.parametrize("end", ["cancel", "reset", "close", "die"])
def test_what_waits_leaves_the_queue_when_it_ends(one: Client, workspace: Path, end: str) -> None:
    go = workspace / "go"
    with one.session(workspace=workspace) as a, one.session(workspace=workspace) as b:
        kernel_of_b = kernels(one)[-1]
        holds(a, go)
        cell = b.execute("1")
        command = b.exec("true")
        eventually(lambda: figures(one)["waiting"] == 2)
        if end == "cancel":
            b.cancel(cell)
            assert b.until("result")[-1].status == "cancelled"
            b.cancel(command)
            assert b.until("command_result")[-1].status == "cancelled"
        elif end == "reset":
            b.reset()
        elif end == "close":
            b.close()
        else:
            os.kill(kernel_of_b, signal.SIGKILL)
            assert b.until("result")[-1].status == "cancelled"
        assert figures(one)["waiting"] == (end == "die")  # the command waits for the next sandbox
        go.touch()
        assert a.until("result")[-1].status == "ok"
        assert a.run("2").status == "ok"
        if end == "die":
            assert b.wait_command(command)[0].status == "ok"
        assert figures(one) | {"running": 0, "waiting": 0, "paused": 0} == figures(one)


def test_a_full_queue_says_when_to_try_again(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    go = workspace / "go"
    with limited(monkeypatch, **{QUEUE: 2}) as client, client.session(workspace=workspace) as s:
        holds(s, go)
        s.execute("1")
        s.execute("2")
        refused = s.execute("3")
        end = s.until("result")[-1]
        assert (end.cell, end.status) == (refused, "cancelled")
        assert re.fullmatch(r"2 cells of the session wait already; try again in \d+\.\d s", end.text)
        assert figures(client)["refused"] == 1
        with client.session(workspace=workspace) as other:  # its queue is its own
            assert other.run("4").status == "ok"
        go.touch()
        assert [s.until("result")[-1].status for _ in range(3)] == ["ok"] * 3


def test_commands_of_a_session_wait_for_each_other(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    with limited(monkeypatch, **{SLOTS: 8, COMMANDS: 2}) as client, client.session(workspace=workspace) as s:
        first = [s.exec("sleep", "100") for _ in range(2)]
        later = [s.exec("sh", "-c", f"echo {i} >>order", timeout_ms=60000) for i in range(3)]
        eventually(lambda: figures(client) | {"running": 2, "waiting": 3} == figures(client))
        assert s.file_list(workspace) == []  # an operation on files is no job
        with client.session(workspace=workspace) as other:
            assert other.command("true")[0].status == "ok"
        s.cancel(first[0])
        for number in later:
            assert s.wait_command(number)[0].json == {"exit_code": 0}
        assert (workspace / "order").read_text().split() == ["0", "1", "2"]
        s.cancel(first[1])


def test_the_time_of_a_command_begins_when_it_starts(one: Client, workspace: Path) -> None:
    go = workspace / "go"
    with one.session(workspace=workspace) as a, one.session(workspace=workspace) as b:
        holds(a, go)
        command = b.exec("true", timeout_ms=400)
        assert b.next(1000) is None
        go.touch()
        assert b.wait_command(command)[0].json == {"exit_code": 0}
        assert b.command("sleep", "100", timeout_ms=100)[0].status == "timeout"


def test_commands_leave_a_slot_for_cells(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    with limited(monkeypatch, **{SLOTS: 2}) as client, client.session(workspace=workspace) as s:
        commands = [s.exec("sleep", "100") for _ in range(2)]
        eventually(lambda: figures(client) | {"running": 1, "waiting": 1} == figures(client))
        assert s.run("1").status == "ok"
        for number in commands:
            s.cancel(number)


def test_subshells_run_beside_the_cell_of_their_session(one: Client, workspace: Path) -> None:
    go = workspace / "go"
    with one.session(workspace=workspace) as s:
        name = s.ask("create_subshell_request", {}).json["subshell_id"]
        holds(s, go)
        s.execute(f"open({str(go)!r}, 'w').close()", subshell=name)
        assert [s.until("result")[-1].status for _ in range(2)] == ["ok", "ok"]
        assert figures(one)["running"] == 0


def test_limits_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ["0", "x", "", "4097", "1 "]:
        monkeypatch.setenv(SLOTS, value)
        with pytest.raises(CellgateError, match=f"{SLOTS} must be a number from 1 to 4096"):
            Client(log_level=0)


def test_the_default_holds_back_nothing_usual(client: Client) -> None:
    found = figures(client)
    assert found["max_concurrent_jobs"] == 256
    assert (found["max_commands_per_session"], found["max_queue"]) == (16, 256)


def test_many_submitters(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    """The small form of the soak test: 10 sessions with 10 cells each, 2 at once."""
    log = workspace / "log"
    with limited(monkeypatch, **{SLOTS: 2}) as client:
        sessions = [client.session(workspace=workspace) for _ in range(10)]
        for s in sessions:
            s.run("1")
        begun = time.monotonic()
        for i in range(10):
            for n, s in enumerate(sessions):
                s.execute(f"import time; time.sleep(.01)\nwith open({str(log)!r}, 'a') as f: f.write('{n}.{i} ')")
        for s in sessions:
            assert [s.until("result")[-1].status for _ in range(10)] == ["ok"] * 10
        assert time.monotonic() - begun < 30
        ran = log.read_text().split()
        for n, s in enumerate(sessions):
            mine = [at for at, r in enumerate(ran) if r.startswith(f"{n}.")]
            assert [ran[at] for at in mine] == [f"{n}.{i}" for i in range(10)]
            # Between two cells of a session at most two of each other one.
            assert max(b - a for a, b in zip(mine, mine[1:], strict=False)) <= 2 * len(sessions), ran
            s.close()
