"""The zygote is killed, for want of memory for example, while it starts a kernel: the next one starts it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client, Session
from processes import alive, by_age, children, eventually, words


class Supervisor:
    """The newest one of this process."""

    def __init__(self) -> None:
        self.pid = by_age(children(os.getpid()))[-1]

    def zygote(self) -> int:
        return next((p for p in children(self.pid) if b"--zygote" in words(p)), 0)

    def kernels(self) -> set[str]:
        """Sockets of kernels that are waited for."""
        argv = words(self.pid)
        folder = Path(argv[argv.index(b"--dir") + 1].decode())
        return {p.name for p in folder.glob("k[0-9]*")}


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Client(no_spare=1) as c, c.session(workspace=tmp_path) as s:
        yield s


class Reset:
    """Under way in a thread of its own."""

    def __init__(self, s: Session) -> None:
        self.error: CellgateError | None = None
        self.thread = threading.Thread(target=self._run, args=(s,))
        self.thread.start()

    def _run(self, s: Session) -> None:
        try:
            s.reset()
        except CellgateError as e:
            self.error = e

    def end(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()


def asked(s: Session, sup: Supervisor, zygote: int) -> Reset:
    """It has been asked for the kernel, and ends before it answers."""
    os.kill(zygote, signal.SIGSTOP)
    before = sup.kernels()
    reset = Reset(s)
    eventually(lambda: bool(sup.kernels() - before))
    os.kill(zygote, signal.SIGKILL)
    return reset


def gone(s: Session, sup: Supervisor, zygote: int) -> Reset:
    """It has ended before it is asked; the supervisor does not know yet."""
    os.kill(sup.pid, signal.SIGSTOP)
    try:
        os.kill(zygote, signal.SIGKILL)
        eventually(lambda: not alive(zygote))
        reset = Reset(s)
        time.sleep(0.1)  # the request has arrived by then, or arrives a little later
    finally:
        os.kill(sup.pid, signal.SIGCONT)
    return reset


def starting(s: Session, sup: Supervisor, zygote: int) -> Reset:
    """The kernel is there, and ends with it before it is ready."""
    before = set(children(zygote))
    reset = Reset(s)
    eventually(lambda: bool(set(children(zygote)) - before))
    os.kill(zygote, signal.SIGKILL)
    return reset


@pytest.mark.parametrize("end", [asked, gone, starting])
def test_a_reset_outlives_the_zygote(session: Session, end: Callable[[Session, Supervisor, int], Reset]) -> None:
    sup = Supervisor()
    session.run("x = 1")
    reset = end(session, sup, sup.zygote())
    reset.end()
    assert reset.error is None
    session.execute("'x' in globals()")
    events = session.until("result")
    if events[-1].status == "kernel_died":  # it was just ready, so this is no part of the reset
        assert end is starting
        session.execute("'x' in globals()")
        events = session.until("result")
    assert next(e for e in events if e.type == "execute_result").json["data"]["text/plain"] == "False"


def test_zygotes_that_end_again_and_again_are_an_end(session: Session) -> None:
    sup = Supervisor()
    over = threading.Event()

    def kill_all() -> None:
        while not over.is_set():
            if zygote := sup.zygote():
                os.kill(zygote, signal.SIGKILL)
                eventually(lambda z=zygote: not alive(z))  # type: ignore[misc]
            time.sleep(0.001)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        reset = Reset(session)
        reset.end()
    finally:
        over.set()
        killer.join()
    assert reset.error is not None and "in a row" in str(reset.error)
    assert "no kernel could be started" in session.until("session_closed")[-1].text
