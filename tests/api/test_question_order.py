"""Output of a cell comes before the question that it asks next, however slow the output's way is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import Client, Session
from processes import by_age, children, gate

SERVER = Path(__file__).parent / "echo_server.py"
ANY = {"name": "any", "inputSchema": {"type": "object", "properties": {}}}
PRELUDE = """
import ctypes, os, subprocess, sys, threading
from mcptools.echo import echo
from mcptools.host import any as function
libc = ctypes.CDLL(None)
links = {f: f"/proc/self/fd/{f}" for f in range(3, 100)}
wake_fd = min(f for f, link in links.items() if os.path.exists(link) and "eventfd" in os.readlink(link))
def runs(thread):
    with open(f"/proc/self/task/{thread}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "R"
def fall_asleep():
    os.dup2(os.eventfd(0), wake_fd, inheritable=False)
    others = [t for t in os.listdir("/proc/self/task") if int(t) != threading.get_native_id()]
    while any(map(runs, others)):
        pass
"""
QUESTIONS = {
    "tool": "echo.run(text='x')",
    "function": "function.run()",
    "program": "subprocess.run(['true'])",
    "program of C code": "sys.stdout.flush(); libc.system(b'true')",
    "program of a fork": "sys.stdout.flush(); os.waitpid(os.fork() or os.execv('/bin/true', ['true']), 0)",
}

# The kernel's thread for input and output waits for an event that nobody sends any more, until a message arrives: from
# when it has handed over this cell.
ASLEEP = "fall_asleep()\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("order")


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Session]:
    with Client(no_spare=1) as c, c.session(workspace=folder, exec="ask") as s:
        s.add_functions("host", [ANY])
        args = [str(SERVER), str(folder / "mark")]
        s.add_servers({"echo": {"command": "/usr/bin/python3", "args": args, "data": args[1:]}})
        out = s.run(PRELUDE)
        assert out.status == "ok", out.events
        yield s


def text_before_the_question(s: Session) -> str:
    """What a cell prints before its question, which is then answered."""
    text = ""
    while (e := s.next()) and e.type not in ("approval_request", "function_call"):
        assert e.type in ("stream", "subshell", "started"), e
        text += e.text
    assert e
    if e.type == "function_call":
        s.give(e.approval, None)
    else:
        s.reject(e.approval)
    s.until("result")
    return text


def test_the_thread_sleeps(session: Session) -> None:
    """Or the next tests would show nothing."""
    session.execute(f"{ASLEEP}print('held back'); import time; time.sleep(1)")
    assert session.next(500) is None
    assert [e.type for e in session.until("result")] == ["stream", "result"]


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_thread_of_the_kernel_that_sleeps(session: Session, question: str) -> None:
    session.execute(f"{ASLEEP}print('before'); {question}")
    assert text_before_the_question(session) == "before\n"


def test_output_of_a_program(session: Session) -> None:
    session.execute(f"os.system('echo before'); {ASLEEP}os.system('true')")
    session.accept(session.until("approval_request")[-1].approval)
    assert text_before_the_question(session) == "before\n"


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_supervisor_that_has_read_nothing(session: Session, folder: Path, question: str) -> None:
    """Output and question wait in its sockets, and it continues with either."""
    supervisor = by_age(children(os.getpid()))[-1]
    gate(folder)
    session.execute(
        f"open('go').read()\nfor i in range(500): print(i, file=(sys.stdout, sys.stderr)[i % 2])\n{question}"
    )
    with open(folder / "go", "w"):  # when the cell has opened it
        os.kill(supervisor, signal.SIGSTOP)
    try:
        time.sleep(0.5)
    finally:
        os.kill(supervisor, signal.SIGCONT)
        (folder / "go").unlink()
    assert text_before_the_question(session) == "".join(f"{i}\n" for i in range(500))


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_host_that_does_not_read(session: Session, question: str) -> None:
    """The supervisor has stopped to read the kernel, and the rest of the output waits in its socket."""
    session.execute(f"for i in range(8300): print('x' * 1023)\n{question}")
    time.sleep(1)
    assert len(text_before_the_question(session)) == 8300 * 1024
