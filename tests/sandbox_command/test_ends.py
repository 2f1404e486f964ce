"""Signals, terminals, and what is left when something is killed: nothing."""

import contextlib
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import alive, children, name_of

from .conftest import Box


def wait_until(what: str, ready: Callable[[], bool], seconds: float) -> None:
    """Looks until it is so; the time is only where the test gives up."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.005)


@contextlib.contextmanager
def running(box: Box, script: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, int]]]:
    """A command that has said `up`, and the processes that make its sandbox, by what they are."""
    proc = box.popen(
        "-c", f"echo up; {script}", settings=Box.settings({"denyWrite": ["later"]}), start_new_session=True
    )
    assert proc.stdout
    assert proc.stdout.readline() == "up\n", proc.communicate()
    below: dict[str, int] = {}

    def all_have_their_names() -> bool:
        below.update({name_of(c): c for c in children(proc.pid)})
        return {"cg-watcher", "cg-init"} <= set(below)

    wait_until("watcher and init", all_have_their_names, box.timeout)
    init = below["cg-init"]
    pids = {"keeper": proc.pid, "watcher": below["cg-watcher"], "init": init, "command": children(init)[0]}
    try:
        yield proc, pids
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(proc.pid, signal.SIGKILL)
        proc.communicate(timeout=box.timeout)
        wait_until("nothing is left running", lambda: not any(alive(p) for p in pids.values()), box.timeout)


@pytest.mark.parametrize("victim", ["keeper", "init", "command"])
def test_killed(box: Box, victim: str) -> None:
    with running(box, "sleep 1000 & sleep 1000") as (proc, pids):
        os.kill(pids[victim], signal.SIGKILL)
        proc.wait(timeout=box.timeout)
        assert proc.returncode == (-9 if victim == "keeper" else 137)
        wait_until("all processes are gone", lambda: not any(alive(p) for p in pids.values()), box.timeout)
        assert box.names() == set()


def test_a_killed_watcher_is_replaced(box: Box) -> None:
    with running(box, "sleep 1000") as (proc, pids):
        os.kill(pids["watcher"], signal.SIGKILL)

        def others() -> list[int]:
            return [c for c in children(proc.pid) if c not in pids.values() and alive(c)]

        wait_until("there is another one", lambda: len(others()) == 1, box.timeout)
        os.kill(pids["keeper"], signal.SIGKILL)
        proc.wait(timeout=box.timeout)
        assert box.names() == set()


def test_the_process_group_killed(box: Box) -> None:
    """As a shell or a CI job ends what it started."""
    with running(box, "sleep 1000") as (proc, pids):
        os.killpg(proc.pid, signal.SIGKILL)
        proc.wait(timeout=box.timeout)
        wait_until("all processes are gone", lambda: not any(alive(p) for p in pids.values()), box.timeout)
        assert box.names() == set()


def test_a_crash_leaves_nothing_in_the_workspace(box: Box) -> None:
    with running(box, "sleep 1000") as (_, pids):
        for who in ("keeper", "watcher"):
            os.kill(pids[who], signal.SIGSTOP)
        for who in ("watcher", "keeper"):
            os.kill(pids[who], signal.SIGKILL)
        wait_until("all processes are gone", lambda: not any(alive(p) for p in pids.values()), box.timeout)
    assert box.names() == set()  # both were stopped, so nobody could clean up
    assert box.sh("true", {"denyWrite": ["later"]}).returncode == 0
    assert box.names() == set()


def test_a_users_empty_file_is_not_taken_for_one(box: Box) -> None:
    box.file(".bashrc", "").chmod(0o444)
    assert box.sh("echo pwn > .bashrc").returncode != 0
    assert box.names() == {".bashrc"}


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(box: Box, sig: signal.Signals) -> None:
    name = sig.name.removeprefix("SIG")
    with running(box, f"trap 'echo got; exit 5' {name}; echo set; while :; do sleep 0.01; done") as (proc, pids):
        assert proc.stdout
        assert proc.stdout.readline() == "set\n"
        os.kill(pids["keeper"], sig)
        assert proc.stdout.readline() == "got\n"
        assert proc.wait(timeout=box.timeout) == 5


def test_a_signal_that_ends_the_command_is_in_the_status(box: Box) -> None:
    with running(box, "exec sleep 1000") as (proc, pids):
        os.kill(pids["keeper"], signal.SIGTERM)
        assert proc.wait(timeout=box.timeout) == 128 + 15


def test_background_processes_end_with_the_command(box: Box) -> None:
    marker = f"9{os.getpid()}"
    assert box.sh(f"(setsid sleep {marker} &) ; true").returncode == 0
    found = subprocess.run(["pgrep", "-f", f"^sleep {marker}$"], capture_output=True, text=True).stdout
    assert found == ""


def test_output_ends_with_the_command(box: Box) -> None:
    """No process of cellgate holds the pipe: its reader gets end of file when the command closes it."""
    with running(box, "exec >&- 2>&-; sleep 1000") as (proc, _):
        assert proc.stdout
        assert select.select([proc.stdout], [], [], box.timeout)[0]
        assert proc.stdout.read() == ""
        assert proc.poll() is None


def test_stop_and_go_on(box: Box) -> None:
    with running(box, "while read x; do echo $x; done") as (_, pids):
        os.kill(pids["keeper"], signal.SIGTSTP)
        wait_until(
            "all is stopped", lambda: state(pids["keeper"]) == "T" and state(pids["command"]) == "T", box.timeout
        )
        os.kill(pids["keeper"], signal.SIGCONT)
        wait_until("it goes on", lambda: state(pids["command"]) != "T", box.timeout)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_terminal(box: Box) -> None:
    """The command has the terminal, and Ctrl-C ends it."""
    ours, theirs = pty.openpty()
    proc = box.popen(
        "-c",
        "tty; test -t 0 && test -t 1 && echo terminal; read x; echo <$x>; exec sleep 1000".replace("<$x>", '"<$x>"'),
        settings=Box.settings(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: take_terminal(theirs),
    )
    os.close(theirs)
    seen = b""

    def wait_for(text: bytes) -> None:
        nonlocal seen
        while text not in seen:
            assert select.select([ours], [], [], box.timeout)[0], seen
            seen += os.read(ours, 4096)

    try:
        wait_for(b"terminal\r\n")
        os.write(ours, b"typed\n")
        wait_for(b"<typed>\r\n")
        os.write(ours, b"\x03")
        assert proc.wait(timeout=box.timeout) == 128 + 2
    finally:
        proc.kill()
        proc.wait()
        os.close(ours)


def take_terminal(fd: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
