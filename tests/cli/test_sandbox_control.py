"""`cellgate sandbox --control-socket`: a command that belongs to a program which listens at a unix socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FETCH = """
import os, sys, urllib.request as u, urllib.error as ue
os.environ.pop('NO_PROXY', None); os.environ.pop('no_proxy', None)
def fetch(url):
    try: u.urlopen(url, timeout=30).read(); print("got", flush=True)
    except ue.HTTPError as e: print("refused", e.code, flush=True)
    except OSError as e: print("no network", flush=True)
"""
FILES: dict[str, list[str]] = {"denyRead": [], "allowWrite": [], "denyWrite": []}


def settings(**network: object) -> dict[str, object]:
    return {"network": {"allowedDomains": [], "deniedDomains": []} | network, "filesystem": FILES}


class Host:
    """Listens at a socket, and runs commands that connect to it."""

    def __init__(self, cellgate: Path, folder: Path, deadline: float) -> None:
        self.cellgate = cellgate
        self.folder = folder
        self.deadline = deadline
        self.path = folder / "socket"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(deadline)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.processes: list[subprocess.Popen[str]] = []

    def argv(self, *options: str, **network: object) -> list[str]:
        file = self.folder / "settings.json"
        file.write_text(json.dumps(settings(**network)))
        return [str(self.cellgate), "sandbox", "-q", "-s", str(file), "--control-socket", str(self.path), *options]

    def start(self, code: str, *options: str, **network: object) -> subprocess.Popen[str]:
        argv = [*self.argv(*options, **network), sys.executable, "-u", "-c", FETCH + code]
        pipe = subprocess.PIPE
        p = subprocess.Popen(argv, cwd=self.folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.processes.append(p)
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(self.deadline)
        self.lines = self.connection.makefile("r")
        return p

    def next(self) -> dict[str, Any]:
        line = self.lines.readline()
        assert line.endswith("\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def send(self, **message: object) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def disconnect(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.lines.close()
        self.connection.close()


@pytest.fixture
def host(cellgate: Path, tmp_path: Path, slowness: float) -> Iterator[Host]:
    h = Host(cellgate, tmp_path, 60 * slowness)
    yield h
    h.listener.close()
    for p in h.processes:
        p.kill()
        p.wait()
        for stream in (p.stdin, p.stdout, p.stderr):
            assert stream
            stream.close()


def end(p: subprocess.Popen[str]) -> list[str]:
    """The rest of its output: what readline() has read ahead is not lost, as it is with communicate()."""
    assert p.stdin and p.stdout and p.stderr
    p.stdin.close()
    out, err = p.stdout.read(), p.stderr.read()
    assert p.wait() == 0, err
    return out.splitlines()


def test_denials_questions_and_settings(host: Host, port: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    p = host.start(
        f"fetch('http://other.example/')\nfetch({url!r})\ninput()\nfetch({url!r})",
        "--ask",
        "--control-id",
        "7.aGk=",
        deniedDomains=["other.example"],
    )
    assert host.next() == {"type": "start", "id": "7.aGk="}
    denied = host.next()
    assert denied["type"] == "denied" and denied["unsent"] == 0
    assert denied["denial"]["host"] == "other.example" and denied["denial"]["line"].startswith("deny network-outbound ")
    q = host.next()
    assert (q["type"], q["host"]) == ("egress_request", "127.0.0.1")
    host.send(type="answer", id=q["id"], decision="once")
    host.send(**settings(deniedDomains=["127.0.0.1"]))
    assert p.stdout and p.stdin
    assert [p.stdout.readline() for _ in range(2)] == ["refused 403\n", "got\n"]
    p.stdin.write("\n")
    p.stdin.flush()
    assert host.next()["denial"]["rule"] == "127.0.0.1"
    assert end(p) == ["refused 403"]
    assert host.lines.read() == ""


@pytest.mark.parametrize("used", [True, False])
def test_the_end_of_the_connection_is_the_end_of_the_network(host: Host, port: int, used: bool) -> None:
    """Of open connections, too. The command runs on."""
    code = f"""
import socket
def tunnel():
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(b"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n")
    assert b" 200 " in s.recv(1000)
    return s
s = tunnel() if {used} else None
print("ready")
if s:
    try: print(s.recv(1000))
    except ConnectionError: print(b"")
else: input()
fetch("http://127.0.0.1:{port}/")
"""
    p = host.start(code, allowedDomains=["127.0.0.1"])
    assert p.stdout and p.stdin and p.stdout.readline() == "ready\n"
    host.disconnect()
    if used:
        assert p.stdout.readline() == "b''\n"
    else:
        assert p.stderr and "no network any more" in p.stderr.readline()
        p.stdin.write("\n")
        p.stdin.flush()
    assert end(p) == ["no network"]


def test_a_host_that_has_ended(host: Host) -> None:
    host.listener.close()
    for _ in range(2):
        p = subprocess.run([*host.argv(), "true"], capture_output=True, text=True)
        assert p.returncode == 1 and "Refusing to run the command" in p.stderr
        host.path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--control-fd", "3"], "exclude each other"),
        (["--control-id", 'a"b'], "--control-id"),
        (["--control-id", "x" * 1025], "--control-id"),
        (["--control-socket", "x" * 200], "too long"),
        (["--control-socket"], "argument missing"),
    ],
)
def test_options_that_cannot_work(host: Host, options: list[str], error: str) -> None:
    p = subprocess.run([*host.argv(*options), *(["true"] if options[1:] else [])], capture_output=True, text=True)
    assert p.returncode == 1 and error in p.stderr


def test_an_id_without_a_socket(cellgate: Path) -> None:
    p = subprocess.run([cellgate, "sandbox", "--control-id", "x", "true"], capture_output=True, text=True)
    assert p.returncode == 1 and "needs --control-socket" in p.stderr


@pytest.mark.parametrize("unix", [True, False])
def test_the_command_has_no_way_to_its_host(host: Host, unix: bool) -> None:
    """No descriptor, and none of the keeper's; the socket itself is in a folder that the host hides."""
    code = f"""
import os, socket
print(sorted(f for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f)))
print([p for p in os.listdir("/proc") if p.isdigit() and p not in ("1", str(os.getpid()))])
try: socket.socket(socket.AF_UNIX).connect({str(host.path)!r})
except OSError as e: print(type(e).__name__)
"""
    p = host.start(code, allowAllUnixSockets=unix)
    assert host.next() == {"type": "start", "id": ""}
    # Without a rule that hides its folder, a program that may use all sockets may use this one.
    expected = ["['0', '1', '2']", "[]"] + ([] if unix else ["PermissionError"])
    assert end(p) == expected


def test_a_host_that_does_not_read(host: Host) -> None:
    """The command does not wait for it; the denials that it missed are counted."""
    code = """
import http.client
for i in range(3000):
    c = http.client.HTTPConnection("127.0.0.1", 3128)
    c.request("GET", "http://other.example/"); assert c.getresponse().status == 403; c.close()
print("done"); input()
fetch("http://other.example/")
"""
    p = host.start(code)
    host.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    assert p.stdout and p.stdin and p.stdout.readline() == "done\n"
    host.next()
    host.connection.settimeout(0.5)
    got = []
    with pytest.raises(TimeoutError):
        while True:
            got.append(host.next()["unsent"])
    host.lines = host.connection.makefile("r")  # one that has timed out cannot be read on
    host.connection.settimeout(host.deadline)
    p.stdin.write("\n")
    p.stdin.flush()
    got.append(host.next()["unsent"])
    assert len(got) < 3001 and len(got) + sum(got) == 3001
    assert end(p) == ["refused 403"]


def test_a_command_that_is_killed(host: Host) -> None:
    """Nothing else has the connection: the host sees its end."""
    p = host.start("print('ready'); input()")
    assert p.stdout and p.stdout.readline() == "ready\n"
    os.kill(p.pid, 9)
    host.next()
    assert host.lines.read() == ""
