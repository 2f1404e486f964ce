"""Starts cellgate-egress as cellgate does, with listeners on this machine's loopback, and implements its control protocol."""

import base64
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]


OWN_KEYS = ("ask", "askTimeoutMs", "events", "inject", "limits", "privateAddresses")


def as_policy(flat: Json) -> Json:
    """The proxy's policy: the settings' network object, here with its required lists, and the proxy's own members."""
    network = {"allowedDomains": [], "deniedDomains": []} | {k: v for k, v in flat.items() if k not in OWN_KEYS}
    return {"network": network} | {k: v for k, v in flat.items() if k in OWN_KEYS}


class Egress:
    """One cellgate-egress. Events are read when asked for; `slowness` stretches every wait."""

    def __init__(self, program: Path, slowness: float = 1, env: Mapping[str, str] | None = None) -> None:
        self.timeout = 10 * slowness
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.control.settimeout(self.timeout)
        self.buffer = b""
        self.events: list[Json] = []  # all that ever came
        self.kept: list[Json] = []  # those that nobody waited for yet
        self.proc = subprocess.Popen(
            ["bash", "-c", f'exec 3<&{theirs.fileno()}; exec "$0"', str(program)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        theirs.close()
        self.ready = self.wait("ready")

    def send(self, message: Json, fds: list[int] | None = None) -> None:
        text = json.dumps(message).encode() + b"\n"
        data = struct.pack(">I", len(text)) + text
        if fds:
            socket.send_fds(self.control, [data[:1]], fds)
            data = data[1:]
        self.control.sendall(data)

    def receive(self, timeout: float | None = None) -> Json | None:
        """The next message; None when the proxy has ended, or (with a timeout) when none came."""
        while len(self.buffer) < 4 or len(self.buffer) < 4 + struct.unpack(">I", self.buffer[:4])[0]:
            if timeout is not None and not select.select([self.control], [], [], timeout)[0]:
                return None
            try:
                data = self.control.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self.buffer += data
        n = struct.unpack(">I", self.buffer[:4])[0]
        text, self.buffer = self.buffer[4 : 4 + n], self.buffer[4 + n :]
        assert text.endswith(b"\n")
        message: Json = json.loads(text)
        self.events.append(message)
        return message

    def wait(self, kind: str) -> Json:
        """The next message of a type (or an error); others are kept until they are waited for."""
        for message in self.kept:
            if message["type"] == kind:
                self.kept.remove(message)
                return message
        while (message := self.receive()) is not None:
            if message["type"] == kind:
                return message
            self.kept.append(message)
            if message["type"] == "error":
                break
        raise AssertionError(f"no message of type {kind}: {self.events}")

    def decision(self) -> Json:
        return self.wait("decision")

    def open(self, policy: Json, sandbox: int = 1, secrets: list[tuple[int, bytes, bytes]] | None = None) -> "Box":
        """`secrets`: (place in the policy's "inject", the masked value, the real value)."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        listener.setblocking(False)
        port = listener.getsockname()[1]
        message = {"type": "open", "sandbox": sandbox, "listeners": 1, "policy": as_policy(policy)}
        fds = [listener.fileno()]
        if secrets is not None:
            message["secrets"] = True
            fds.append(os.memfd_create("secrets"))
            for cred, fake, real in secrets:
                os.write(fds[1], struct.pack("=III", cred, len(fake), len(real)) + fake + real)
            os.lseek(fds[1], 0, os.SEEK_SET)
        self.send(message, fds)
        listener.close()
        if secrets is not None:
            os.close(fds[1])
        assert self.wait("opened")["sandbox"] == sandbox
        return Box(self, sandbox, port)

    def pids(self) -> list[int]:
        """The decider, the relay and the injector."""
        children = Path(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children").read_text().split()
        return [self.proc.pid, *map(int, children)]

    def close(self) -> None:
        self.control.close()
        try:
            assert self.proc.wait(self.timeout) == 0
        finally:
            if self.proc.poll() is None:
                self.proc.send_signal(signal.SIGKILL)
                self.proc.wait()


class Box:
    """One sandbox's side of the proxy."""

    def __init__(self, egress: Egress, sandbox: int, port: int) -> None:
        self.egress = egress
        self.sandbox = sandbox
        self.port = port
        self.timeout = egress.timeout
        self.url = f"http://127.0.0.1:{port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), self.timeout)

    def raw(self, data: bytes) -> bytes:
        """Everything that is answered to these bytes, to the end of the connection."""
        with self.connect() as s:
            with contextlib.suppress(OSError):
                s.sendall(data)
            return read_all(s)

    def tunnel(self, host: str, port: int) -> tuple[socket.socket, bytes]:
        """A CONNECT: the socket, and the head of the answer."""
        s = self.connect()
        s.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        return s, read_head(s)

    def socks(self, host: bytes, port: int, kind: int = 3, command: int = 1) -> tuple[socket.socket, int]:
        """A SOCKS request: the socket, and the code of the answer (-1: closed)."""
        s = self.connect()
        s.sendall(b"\5\1\0")
        assert s.recv(2) == b"\5\0"
        address = bytes([len(host)]) + host if kind == 3 else host
        s.sendall(bytes([5, command, 0, kind]) + address + struct.pack(">H", port))
        reply = s.recv(10)
        return s, reply[1] if len(reply) == 10 else -1

    def curl(self, *args: str) -> "subprocess.CompletedProcess[str]":
        argv = ["curl", "-sS", "-m", str(int(self.timeout)), "--noproxy", "", "--proxy", self.url, *args]
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        return subprocess.run(argv, capture_output=True, text=True, timeout=self.timeout + 5, env=env)


def read_all(s: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            more = s.recv(65536)
        except ConnectionResetError:
            return data
        if not more:
            return data
        data += more


def read_head(s: socket.socket) -> bytes:
    """Up to the empty line, and not a byte further."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        byte = s.recv(1)
        if not byte:
            return data
        data += byte
    return data


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


class Handler(BaseHTTPRequestHandler):
    """Says what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b""
        if length := self.headers.get("Content-Length"):
            body = self.rfile.read(int(length))
        elif "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        if self.path.startswith("/size/"):
            text = b"x" * int(self.path.removeprefix("/size/"))
        else:
            headers = "".join(f"{k}: {v}\n" for k, v in self.headers.items())
            text = f"HELLO\n{self.command} {self.path}\n{headers}BODY={len(body)}\n".encode()
        self.send_response(200)
        self.send_header("X-From", "server")
        if self.path.startswith("/chunked"):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(0, len(text), 7):
                part = text[i : i + 7]
                self.wfile.write(b"%x;ext=1\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\nTrailer: x\r\n\r\n")
            return
        if self.path.startswith("/until-end"):
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_POST = do_PUT = do_HEAD = do_GET

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2048

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@contextlib.contextmanager
def http_server(handler: type[BaseHTTPRequestHandler] = Handler) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class Peer:
    """A plain TCP server whose connections the test handles itself."""

    def __init__(self, timeout: float) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.listener.settimeout(timeout)
        self.timeout = timeout
        self.port = self.listener.getsockname()[1]

    def accept(self) -> socket.socket:
        s, _ = self.listener.accept()
        s.settimeout(self.timeout)
        return s

    def close(self) -> None:
        self.listener.close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def until(condition: Any, timeout: float, what: str) -> None:
    """Poll for a state that no event reports."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
