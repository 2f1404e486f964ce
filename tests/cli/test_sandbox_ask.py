"""`cellgate sandbox --ask`: its caller is asked, through the control descriptor, about hosts that no list names."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Person

FETCH = """
import os, sys, urllib.request as u, urllib.error as ue
os.environ.pop('NO_PROXY', None); os.environ.pop('no_proxy', None)
for url in sys.argv[1:]:
    try: sys.stdout.write("got " + u.urlopen(url, timeout=30).read().decode() + "\\n")
    except ue.HTTPError as e: sys.stdout.write(f"refused {e.code} " + e.read().decode().split("\\n")[1] + "\\n")
    sys.stdout.flush()
"""


class Caller:
    """A program that runs `cellgate sandbox --ask` and answers its questions."""

    def __init__(self, argv: list[str], cwd: Path, deadline: float) -> None:
        self.deadline = deadline
        self.control, theirs = socket.socketpair()
        self.control.settimeout(deadline)
        self.lines = self.control.makefile("r")
        argv = [a.replace("FD", str(theirs.fileno())) for a in argv]
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def question(self) -> dict[str, Any]:
        return self.next("egress_request")

    def next(self, kind: str) -> dict[str, Any]:
        line = self.lines.readline()
        assert line.endswith("\n"), self.process.communicate(timeout=self.deadline)
        message: dict[str, Any] = json.loads(line)
        assert message.pop("type") == kind, line
        return message

    def send(self, **message: object) -> None:
        self.control.sendall(json.dumps(message).encode() + b"\n")

    def answer(self, question: dict[str, Any], decision: str, **more: str) -> None:
        self.send(type="answer", id=question["id"], decision=decision, **more)

    def end(self) -> str:
        """Wait for the command's end and return its output."""
        out, self.err = self.process.communicate(timeout=self.deadline)
        assert self.process.returncode == 0, self.err
        return str(out)

    def close(self) -> None:
        self.lines.close()
        self.control.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Path]:
    def write(**network: object) -> Path:
        path = tmp_path / "settings.json"
        net = {"allowedDomains": [], "deniedDomains": []} | network
        path.write_text(json.dumps({"network": net, "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}))
        return path

    return write


@pytest.fixture
def caller(
    cellgate: Path, tmp_path: Path, settings: Callable[..., Path], slowness: float
) -> Iterator[Callable[..., Caller]]:
    """caller(URL...): runs a program that fetches these."""
    callers: list[Caller] = []

    def run(*urls: str, options: tuple[str, ...] = ("--ask",), script: str = FETCH, **network: object) -> Caller:
        argv = [str(cellgate), "sandbox", "--control-fd", "FD", "-s", str(settings(**network)), *options]
        callers.append(Caller([*argv, sys.executable, "-c", script, *urls], tmp_path, 60 * slowness))
        return callers[-1]

    yield run
    for c in callers:
        c.close()


@pytest.mark.parametrize(
    ("decision", "answers", "questions"),
    [
        ("once", ["got", "got"], 2),
        ("session", ["got", "got"], 1),
        ("no", ["refused", "refused"], 2),
        ("never", ["refused", "refused"], 1),
        ("yes", ["refused", "refused"], 2),
    ],
)
def test_answers(caller: Callable[..., Caller], port: int, decision: str, answers: list[str], questions: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    c = caller(url, url)
    for _ in range(questions):
        q = c.question()
        assert {
            "host": "127.0.0.1",
            "port": port,
            "protocol": "http",
            "address": "a loopback address",
        }.items() <= q.items()
        assert q["timeoutMs"] == 60000 and "sandbox" not in q
        c.answer(q, decision)
    assert re.findall(r"^(got|refused)", c.end(), re.M) == answers


def test_the_reason_reaches_the_client(caller: Callable[..., Caller], port: int) -> None:
    c = caller(f"http://127.0.0.1:{port}/")
    c.answer(c.question(), "no", reason="not on Sundays")
    assert "not on Sundays" in c.end()


def test_without_it_nobody_is_asked(caller: Callable[..., Caller], port: int) -> None:
    c = caller(f"http://127.0.0.1:{port}/", options=())
    assert "refused 403" in c.end()
    assert c.lines.readline() == ""


def test_no_answer_is_no(caller: Callable[..., Caller], port: int) -> None:
    c = caller(f"http://127.0.0.1:{port}/", options=("--ask=1",))
    q = c.question()
    assert q["timeoutMs"] == 1000
    assert c.next("egress_cancel")["id"] == q["id"]
    c.answer(q, "once")  # too late
    out = c.end()
    assert "refused 403" in out and "was not answered in time" in out


def test_the_end_of_the_socket_is_no(caller: Callable[..., Caller], port: int) -> None:
    """Also for the question that is open, at once."""
    url = f"http://127.0.0.1:{port}/"
    c = caller(url, url, options=("--ask=86400",))
    c.question()
    c.control.shutdown(socket.SHUT_WR)
    assert re.findall(r"^(got|refused)", c.end(), re.M) == ["refused", "refused"]


def test_a_client_that_gives_up(caller: Callable[..., Caller], tmp_path: Path) -> None:
    script = """
import os, signal, socket, time, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTP_PROXY"])
s = socket.create_connection((proxy.hostname, proxy.port))
s.sendall(b"CONNECT nobody.example:1 HTTP/1.1\\r\\n\\r\\n")
while not os.path.exists("asked"): time.sleep(0.01)
s.close()
signal.pause()
"""
    c = caller(script=script)
    q = c.question()
    (tmp_path / "asked").touch()
    assert c.next("egress_cancel")["id"] == q["id"]


def test_several_questions_at_once(caller: Callable[..., Caller], port: int) -> None:
    script = FETCH.replace("for url in sys.argv[1:]:", "def go(url):")
    script += "import threading\nts = [threading.Thread(target=go, args=[x]) for x in sys.argv[1:]]\n"
    script += "[t.start() for t in ts]; [t.join() for t in ts]\n"
    c = caller(*(f"http://127.0.0.{i}:{port}/" for i in (1, 2, 3)), script=script)
    for q in [c.question() for _ in range(3)]:
        c.answer(q, "once" if q["host"] == "127.0.0.1" else "no")
    out = c.end()
    assert (out.count("got hello from outside"), out.count("refused 403")) == (1, 2), out


def test_settings_go_through_the_same_descriptor(caller: Callable[..., Caller], port: int) -> None:
    """Hosts that the new settings allow need no question; a line that is neither settings nor an answer is reported."""
    url = f"http://127.0.0.1:{port}/"
    c = caller(url, url)
    q = c.question()
    c.control.sendall(b"nonsense\n")
    files: dict[str, object] = {"denyRead": [], "allowWrite": [], "denyWrite": []}
    c.send(network={"allowedDomains": [f"127.0.0.1:{port}"], "deniedDomains": []}, filesystem=files)
    c.answer(q, "no")
    assert re.findall(r"^(got|refused)", c.end(), re.M) == ["refused", "got"]
    assert "Invalid config on control fd" in c.err


LANDLOCK = """
import ctypes, sys
sys.exit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 6)
"""


@pytest.mark.parametrize("tier", ["full", "landlock"])
def test_the_command_has_no_way_to_answer(caller: Callable[..., Caller], port: int, tier: str) -> None:
    """It has no descriptor of the socket, and what it writes to sockets that it has is no answer."""
    if tier == "landlock" and subprocess.run([sys.executable, "-c", LANDLOCK]).returncode:
        pytest.skip("needs Landlock ABI 6 (Linux 6.12)")
    script = """
import os, stat, threading
def answer(show):
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode): continue
            if show: print("has", name, os.readlink(f"/proc/self/fd/{name}"))
            for i in range(9): os.write(int(name), b'{"type": "answer", "id": %d, "decision": "once"}\\n' % i)
        except OSError: pass
answer(True)
threading.Timer(0.5, answer, [False]).start()
"""
    c = caller(f"http://127.0.0.1:{port}/", options=("--ask=2", "--tier", tier), script=script + FETCH)
    q = c.question()
    assert c.next("egress_cancel")["id"] == q["id"]
    out = c.end()
    assert "refused 403" in out and "socket:" not in out


def test_a_caller_that_does_not_read(caller: Callable[..., Caller], port: int) -> None:
    """The command continues; there are no further questions."""
    url = f"http://127.0.0.1:{port}/"
    # A client that asks and gives up, again and again, until the socket is full.
    script = FETCH + (
        "import http.client, urllib.parse\n"
        "proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])\n"
        "for i in range(100000):\n"
        "    c = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=0.003)\n"
        "    c.set_tunnel(f'h{i}.example', 1)\n"
        "    try: c.connect()\n"
        "    except TimeoutError: pass\n"
        "    except OSError as e: print(e); break\n"
        "    finally: c.close()\n"
    )
    c = caller(url, script=script)
    c.answer(c.question(), "once")
    assert "Tunnel connection failed: 403" in c.end()
    assert "the control descriptor takes no more questions" in c.err


def test_nothing_is_asked_at_the_terminal(
    person: Callable[..., Person], settings: Callable[..., Path], port: int
) -> None:
    p = person("sandbox", "--ask", "-s", settings(), sys.executable, "-c", FETCH, f"http://127.0.0.1:{port}/")
    assert p.end() == 1
    assert "--ask and --report need --control-fd with a stream socket" in p.seen
    assert "refused" not in p.seen


@pytest.mark.parametrize("kind", ["pipe", "datagrams"])
def test_only_a_stream_socket(cellgate: Path, kind: str) -> None:
    if kind == "pipe":
        fds = os.pipe()
    else:
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        fds = a.detach(), b.detach()
    try:
        p = subprocess.run(
            [cellgate, "sandbox", "--ask", "--control-fd", str(fds[0]), "true"],
            capture_output=True,
            text=True,
            timeout=30,
            pass_fds=fds,
        )
    finally:
        for fd in fds:
            os.close(fd)
    assert p.returncode == 1
    assert "stream socket" in p.stderr


@pytest.mark.parametrize("value", ["--ask=", "--ask=0", "--ask=x", "--ask=99999999"])
def test_bad_values(cellgate: Path, value: str) -> None:
    p = subprocess.run([cellgate, "sandbox", value, "true"], capture_output=True, text=True, timeout=30)
    assert p.returncode == 1
    assert "--ask=<seconds>" in p.stderr
