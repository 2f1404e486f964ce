"""Ends: no process of an MCP server survives its session, its tool server, or its own misbehaviour."""

import json
import os
import signal
import subprocess

import pytest
from wire_table import BROKER


@pytest.fixture
def add(ts, fake, tmp_path):
    """Adds the fake server with habits; returns the pids of it and of what it started."""

    def make(**habits):
        path = tmp_path / "pids"
        ts.add({"fake": fake(pids=str(path), **habits)})
        return json.loads(path.read_text())

    return make


HABITS = {
    "well behaved": {},
    "ignores the end of input": {"ignore_eof": True},
    "ignores SIGTERM too": {"ignore_eof": True, "ignore_sigterm": True},
    "grandchild": {"grandchild": True},
    "grandchild that holds the pipes": {"grandchild": True, "hold_pipes": True},
    "grandchild and stubborn": {"grandchild": True, "ignore_eof": True, "ignore_sigterm": True},
    "grandchild in a session of its own": {"grandchild": True, "detach": True},
}


@pytest.mark.parametrize("what", HABITS)
def test_session_end(ts, add, what, is_alive, tmp_path):
    pids = add(**HABITS[what], **({"on_sigterm": str(tmp_path / "asked")} if what == "well behaved" else {}))
    assert all(map(is_alive, pids))
    ts.broker.send(BROKER.DETACH, body={"keep_servers": False}, session=1)
    ts.broker.expect(BROKER.DETACHED, 10)
    assert not any(map(is_alive, pids))
    assert not (tmp_path / "asked").exists()  # the end of its input was enough


def test_sigterm_comes_before_sigkill(ts, add, tmp_path):
    add(ignore_eof=True, on_sigterm=str(tmp_path / "saved"))
    ts.detach()
    assert (tmp_path / "saved").read_text() == "asked to end"


@pytest.mark.parametrize("what", HABITS)
def test_supervisor_gone(ts, add, what, is_alive):
    pids = add(**HABITS[what])
    assert ts.end() == 0
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("whom", ["pid", "inner"])
def test_signal(ts, add, sig, whom, is_alive):
    (pid,) = add()
    os.kill(getattr(ts, whom), sig)
    assert ts.wait() == 0
    assert not is_alive(pid)


def test_server_killed_with_its_tool_server(ts, add, is_alive, waiting):
    (pid,) = add(ignore_eof=True)
    os.kill(ts.pid, signal.SIGKILL)  # the guard
    assert ts.wait() == -signal.SIGKILL
    waiting(lambda: not is_alive(pid), 5, "the end of the server")
    assert not is_alive(ts.inner)


def test_daemons_of_a_server_whose_tool_server_is_killed(ts, add, is_alive):
    """Also where no supervisor is left that could look for them."""
    pids = add(grandchild=True, detach=True)
    assert all(map(is_alive, pids))
    os.kill(ts.inner, signal.SIGKILL)
    assert ts.wait() == -signal.SIGKILL, "the guard ends as the tool server did"
    assert not any(map(is_alive, pids))


def test_daemons_that_end_are_reaped(ts, fake, waiting):
    """An MCP server may start hundreds of helpers that outlive their parents for a moment."""
    ts.add({"fake": fake(orphans=20)})
    waiting(lambda: children(ts.pid) == [str(ts.inner)], 5, "their end")


def test_grandchildren_of_a_server_that_exits(ts, fake, tmp_path, is_alive, waiting):
    k = ts.attach()
    path = tmp_path / "pids"
    ts.add({"fake": fake(pids=str(path), grandchild=True)})
    pids = json.loads(path.read_text())
    assert ts.run(k, 1, "fake", "exit")[0] == "failed"
    waiting(lambda: not any(map(is_alive, pids)), 8, "their end")


def test_end_while_everything_is_under_way(ts, fake):
    k = ts.attach()
    ts.add({"a": fake(), "b": fake(ignore_eof=True)})
    for i in range(20):
        k.call(i, "ab"[i % 2], "hang")
        ask = ts.asked()
        if i % 3:
            ts.decide(ask)
    ts.broker.send(6, 1, {"servers": {"c": fake(initialize="hang")}, "out": str(ts.out)}, session=2)
    assert ts.end() == 0


def children(pid):
    return subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True).stdout.split()


@pytest.mark.slow
def test_many_sessions_leave_nothing(ts, fake):
    def cycle(n):
        for i in range(n):
            k = ts.attach(i)
            ts.add({"fake": fake()}, session=i)
            k.call(1, "fake", "echo")
            ts.decide(ts.asked())
            assert k.result(1)[0] == "ok"
            ts.detach(i)
            k.sock.close()

    cycle(5)
    fds = len(os.listdir(f"/proc/{ts.inner}/fd"))
    cycle(20)
    assert len(os.listdir(f"/proc/{ts.inner}/fd")) <= fds + 1
    assert children(ts.pid) == [str(ts.inner)]
    assert children(ts.inner) == []


@pytest.mark.parametrize("argv", [[], ["--log-level"], ["--bad"], ["--log-level", "1", "more"]])
def test_usage(toolserver_program, argv):
    done = subprocess.run([toolserver_program, *argv], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "usage" in done.stderr
