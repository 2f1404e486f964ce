"""Measures the way out of a sandbox: downloads and new connections through cellgate's proxy, srt's, and without any.

    bench_egress.py --cellgate "PREFIX/bin/cellgate sandbox" [--srt "COMMAND"] [--rounds N] [--json FILE]

The servers are this machine's own, on loopback; the client is one small Python program, the same for all, which runs
inside each sandbox in turn, so that what disturbs the machine disturbs them all. Medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SIZE = 256 << 20
CONNECTIONS = 100
CHUNK = 1 << 20
WAYS = ("http", "connect", "socks")


# ---------------------------------------------------------------- servers


def download_server(listener: socket.socket, path: str) -> None:
    """One request after the other: a large body, by sendfile."""
    with open(path, "rb") as f:
        while True:
            s, _ = listener.accept()
            with s:
                s.recv(4096)
                s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
                with contextlib.suppress(OSError):
                    s.sendfile(f, 0)


def small_server(listener: socket.socket) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    while True:
        s, _ = listener.accept()
        with s:
            s.recv(4096)
            s.sendall(answer)


def start(work: Callable[..., None], *args: object) -> tuple[int, int]:
    """A server in a process of its own: its port and pid."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    pid = os.fork()
    if pid == 0:
        work(listener, *args)
        os._exit(0)
    port = listener.getsockname()[1]
    listener.close()
    return port, pid


# ---------------------------------------------------------------- the client, inside

CLIENT = r"""
import base64, json, os, re, socket, sys, time
way, what, port, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
url = os.environ.get("FTP_PROXY" if way == "socks" else "HTTP_PROXY", "")
match = re.match(r"\w+://(?:([^@]*)@)?([^:/]*):(\d+)", url)
auth, proxy = (match[1], ("127.0.0.1", int(match[3]))) if match else (None, None)
field = b"Proxy-Authorization: Basic " + base64.b64encode(auth.encode()) + b"\r\n" if auth else b""
target = b"127.0.0.1:%d" % port
buffer = bytearray(1 << 20)

def head(s):
    data = b""
    while b"\r\n\r\n" not in data:
        data += s.recv(65536)
    return data.split(b"\r\n\r\n", 1)[1]

def connect():
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.connect(("127.0.0.1", port) if way == "direct" else proxy)
    if way == "connect":
        s.sendall(b"CONNECT " + target + b" HTTP/1.1\r\n" + field + b"\r\n")
        head(s)
    elif way == "socks":
        s.sendall(b"\5\1\2" if auth else b"\5\1\0")
        s.recv(2)
        if auth:
            user, word = (p.encode() for p in auth.split(":", 1))
            s.sendall(b"\1" + bytes([len(user)]) + user + bytes([len(word)]) + word)
            s.recv(2)
        s.sendall(b"\5\1\0\1\x7f\0\0\1" + port.to_bytes(2, "big"))
        s.recv(10)
    if way == "http":
        s.sendall(b"GET http://" + target + b"/ HTTP/1.1\r\nHost: " + target + b"\r\n" + field + b"\r\n")
    else:
        s.sendall(b"GET / HTTP/1.1\r\nHost: " + target + b"\r\n\r\n")
    return s

def download():
    s = connect()
    left = size - len(head(s))
    while left > 0:
        n = s.recv_into(buffer)
        if not n:
            raise SystemExit("cut off")
        left -= n
    s.close()

def small():
    s = connect()
    body = head(s)
    while len(body) < 2:
        body += s.recv(10)
    s.close()

work = download if what == "download" else small
times = []
work()
for _ in range(count):
    t = time.perf_counter()
    work()
    times.append(time.perf_counter() - t)
print("TIMES " + json.dumps(times))
"""


def run_client(sandbox: list[str], folder: Path, way: str, what: str, port: int, count: int) -> list[float]:
    client = ["/usr/bin/python3", str(folder / "client.py"), way, what, str(port), str(count), str(SIZE)]
    argv = [*sandbox, "-c", shlex.join(client)] if sandbox else client
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    for _ in range(3):
        done = subprocess.run(argv, capture_output=True, text=True, cwd=folder, env=env, timeout=300)
        for line in done.stdout.splitlines():
            if line.startswith("TIMES "):
                times: list[float] = json.loads(line.removeprefix("TIMES "))
                return times
        # A transfer that broke off is no measurement, but worth knowing of.
        print(f"failed: {shlex.join(argv)}: {done.returncode} {done.stdout} {done.stderr}", file=sys.stderr)
    raise SystemExit("three times in a row")


def run(peers: dict[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Peer to its command before its options; returns what measure() returns."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        os.chmod(folder, 0o755)
        (folder / "client.py").write_text(CLIENT)
        with (folder / "data").open("wb") as f:
            f.truncate(SIZE)
        settings = folder / "settings.json"
        policy = {"allowedDomains": ["127.0.0.1"], "deniedDomains": []}
        files = {"denyRead": [], "allowWrite": ["."], "denyWrite": []}
        settings.write_text(json.dumps({"network": policy, "filesystem": files}))
        commands = {k: [*shlex.split(v), "--settings", str(settings)] for k, v in peers.items()}
        big, big_pid = start(download_server, str(folder / "data"))
        small, small_pid = start(small_server)
        try:
            return measure(commands, folder, big, small, rounds)
        finally:
            for pid in (big_pid, small_pid):
                os.kill(pid, 9)
                os.waitpid(pid, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cellgate", required=True, help="command before its options")
    parser.add_argument("--srt", help="the same for srt")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    opt = parser.parse_args()
    rows = run({"cellgate": opt.cellgate, **({"srt": opt.srt} if opt.srt else {})}, opt.rounds)
    show(rows, opt.rounds)
    if opt.json:
        opt.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure(
    commands: dict[str, list[str]], folder: Path, big: int, small: int, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Row to peer to samples: MB/s for downloads, ms for connections (each sample the median of a round)."""
    rows: dict[str, dict[str, list[float]]] = {}

    def add(row: str, peer: str, value: float) -> None:
        rows.setdefault(row, {}).setdefault(peer, []).append(value)

    for i in range(rounds):
        started = time.monotonic()
        for peer, command in {"direct": [], **commands}.items():
            for way in WAYS if command else ("direct",):
                seconds = run_client(command, folder, way, "download", big, 1)
                add(f"download {way}" if command else "download", peer, SIZE / 1e6 / statistics.median(seconds))
                seconds = run_client(command, folder, way, "small", small, CONNECTIONS)
                add(f"connection {way}" if command else "connection", peer, statistics.median(seconds) * 1e3)
        print(f"round {i + 1} of {rounds}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return rows


def show(rows: dict[str, dict[str, list[float]]], rounds: int) -> None:
    print(f"medians of {rounds} rounds; downloads of {SIZE >> 20} MiB in MB/s, a new connection with a small GET in ms")
    for row, peers in rows.items():
        texts = [f"{peer} {statistics.median(v):8.2f} ({min(v):.2f} to {max(v):.2f})" for peer, v in peers.items()]
        print(f"{row:20} " + "   ".join(texts))


if __name__ == "__main__":
    main()
