"""Drives the real cellgate-toolserver as its supervisor and its kernels would: over ZeroMQ, message by message.

The tests say what a peer sends and what must come back; every wait has a deadline, and what comes unexpected is a
failure.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from processes import alive
from wire_table import BROKER, BROKER_WIRE, HEADER, TOOL, TOOL_WIRE, VERSION

FAKE = Path(__file__).with_name("fake_server.py")


class Message:
    """One message as it came."""

    def __init__(self, frames: list[bytes]) -> None:
        magic, version, self.wire, self.type, self.flags, self.session, self.id = HEADER.unpack(frames[0])
        assert magic == b"CG" and version == VERSION
        self.body = json.loads(frames[1]) if frames[1] else {}
        self.raw = frames[2] if len(frames) > 2 else None
        assert len(frames) <= 3


class Peer:
    """One end of a wire."""

    def __init__(self, sock: zmq.Socket, wire: int, slowness: float) -> None:
        self.sock = sock
        self.sock.sndtimeo = int(10_000 * slowness)
        self.wire = wire
        self.slowness = slowness
        self.failures: list[str] = []  # notices: why servers failed, which cells are not told

    def frames(self, type: int, id: int, body: object, raw: bytes | None, session: int) -> list[bytes]:
        head = HEADER.pack(b"CG", VERSION, self.wire, type, 0, session, id)
        text = b"" if body is None else json.dumps(body).encode()
        return [head, text] + ([] if raw is None else [raw])

    def send(self, type: int, id: int = 0, body: object = None, raw: bytes | None = None, session: int = 0) -> None:
        self.sock.send_multipart(self.frames(type, id, body, raw, session))

    def send_if_connected(self, *args: Any) -> None:
        """Send to a peer that may have closed the connection."""
        with contextlib.suppress(zmq.Again):
            self.sock.send_multipart(self.frames(*args), zmq.DONTWAIT)

    def receive(self, timeout: float = 60) -> Message:
        assert self.sock.poll(int(timeout * self.slowness * 1000)), "no message came"
        return Message(self.sock.recv_multipart())

    def expect(self, type: int, timeout: float = 60) -> Message:
        m = self.receive(timeout)
        while self.wire == BROKER_WIRE and m.type != type and self.is_aside(m):
            m = self.receive(timeout)
        assert m.type == type, f"message {m.type} with {m.body} {m.raw!r} instead of {type}"
        return m

    def is_aside(self, m: Message) -> bool:
        """Progress on a slow machine, why a server failed, or what its sandbox reports."""
        if m.type == BROKER.NOTICE and m.body["text"].startswith('MCP server "'):
            self.failures.append(m.body["text"])
            return True
        in_a_sandbox = m.type == BROKER.NOTICE and "runs in a sandbox" in m.body["text"]
        slow = m.type == BROKER.CALL_PROGRESS and m.body["message"].startswith("no answer for")
        return in_a_sandbox or slow or m.type in (BROKER.PROGRESS, BROKER.DENIED)

    def nothing(self, seconds: float = 0.15) -> None:
        if self.sock.poll(int(seconds * 1000)):
            m = Message(self.sock.recv_multipart())
            raise AssertionError(f"unexpected message {m.type} {m.body} {m.raw!r}")


class Kernel(Peer):
    """The kernel's side: names servers and tools."""

    number: int  # that ATTACH gave it
    kind: str  # of the last result()

    def call(self, id: int, server: str, tool: str, args: bytes = b"{}", timeout_ms: int = 0) -> None:
        self.send(TOOL.CALL, id, {"server": server, "tool": tool, "timeout_ms": timeout_ms}, args)

    def request(self, id: int, server: str, method: str, params: bytes = b"{}", timeout_ms: int = 0) -> None:
        self.send(TOOL.CALL, id, {"server": server, "method": method, "timeout_ms": timeout_ms}, params)

    def result(self, id: int, timeout: float = 60) -> tuple[str, bytes]:
        m = self.expect(TOOL.CALL_RESULT, timeout)
        assert m.id == id and set(m.body) - {"kind"} == {"status"}
        assert (m.body.get("kind") in (None, "kept")) == (m.body["status"] == "ok")
        self.kind = m.body.get("kind", "")
        return m.body["status"], m.raw

    def read(self, result: int, offset: int, length: int, id: int = 1_000_000) -> tuple[str, bytes]:
        """Bytes of a kept result."""
        self.send(TOOL.RESULT_READ, id, {"result": result, "offset": offset, "length": length})
        m = self.expect(TOOL.RESULT_PART)
        assert m.id == id and set(m.body) == {"status"}
        return m.body["status"], m.raw

    def kept(self, raw: bytes) -> Any:
        """The whole of a kept result, as the kernel's Python makes it."""
        line, skeleton = raw.split(b"\n", 1)
        head = json.loads(line)
        for position, offset, chars, width in reversed(head["parts"]):
            data = b""
            while len(data) < chars * width:
                n = min(1 << 20, chars * width - len(data))
                status, part = self.read(head["handle"], offset + len(data), n)
                assert status == "ok" and len(part) == n
                data += part
            text = data.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width], "surrogatepass")
            skeleton = skeleton[:position] + json.dumps(text)[1:-1].encode() + skeleton[position:]
        return json.loads(skeleton)


class ToolServer:
    """The process under test, and the supervisor's side of its broker wire."""

    def __init__(self, program: Path, folder: Path, slowness: float, env: dict[str, str] | None, log_level: int) -> None:
        self.folder = folder
        self.slowness = slowness
        self.ctx = zmq.Context()
        self.out = folder / "out"
        self.out.mkdir()
        self.log_path = folder / "log"
        self.kernels = 0
        sock = self.ctx.socket(zmq.DEALER)
        sock.linger = 0
        sock.bind(f"ipc://{folder}/b")
        theirs = socket.socket(socket.AF_UNIX)
        theirs.connect(f"{folder}/b")
        life_read, self.lifeline = os.pipe()
        log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # High numbers, so that no dup2 below hits a source.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200) for fd in (log, theirs.fileno(), life_read)]
        self.pid = os.posix_spawn(
            program,
            [str(program), "--log-level", str(log_level)],
            {**os.environ, **(env or {})},
            file_actions=[(os.POSIX_SPAWN_DUP2, high[i], n) for i, n in enumerate((2, 3, 4))],
        )
        for fd in [*high, log, life_read]:
            os.close(fd)
        theirs.close()
        self.pidfd = os.pidfd_open(self.pid)
        self.status: int | None = None
        self.broker = Peer(sock, BROKER_WIRE, slowness)
        assert self.broker.expect(BROKER.TOOLD_READY).body == {}
        # The first process remains as the guard of the process that does the work.
        (self.inner,) = map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())

    # -- as the supervisor

    def attach(self, session: int = 1, unread: int = 1000) -> Kernel:
        """unread: messages that may wait in the kernel's socket."""
        self.kernels += 1
        path = f"{self.folder}/k{self.kernels}"
        sock = self.ctx.socket(zmq.DEALER)
        sock.linger = 0
        sock.rcvhwm = unread
        sock.bind(f"ipc://{path}")
        self.broker.send(BROKER.ATTACH, self.kernels, {"path": path}, session=session)
        m = self.broker.expect(BROKER.ATTACHED)
        assert m.session == session and m.id == self.kernels and m.body == {}
        kernel = Kernel(sock, TOOL_WIRE, self.slowness)
        kernel.number = self.kernels
        return kernel

    def detach(self, session: int = 1, keep: bool = False) -> None:
        self.broker.send(BROKER.DETACH, body={"keep_servers": keep}, session=session)
        assert self.broker.expect(BROKER.DETACHED).session == session

    def servers(self, servers: dict[str, Any], session: int = 1, timeout_ms: int = 0, timeout: float = 120) -> Any:
        self.broker.send(
            BROKER.SERVERS, 5, {"servers": servers, "out": str(self.out), "timeout_ms": timeout_ms}, session=session
        )
        m = self.broker.receive(timeout)
        while self.broker.is_aside(m):
            m = self.broker.receive(timeout)
        assert m.type == BROKER.SERVERS_DONE
        assert m.id == 5 and m.session == session
        return m.body

    def add(self, servers: dict[str, Any], session: int = 1) -> Any:
        body = self.servers(servers, session)
        assert set(body) == {"report"}, body
        return body["report"]

    def refuse(self, servers: dict[str, Any], session: int = 1, timeout_ms: int = 0) -> str:
        body = self.servers(servers, session, timeout_ms)
        assert set(body) == {"error"} and body["error"]["code"] < 0, body
        return body["error"]["message"]

    def failure(self) -> str:
        """Why a server failed, as the host is told."""
        if not self.broker.failures:
            assert self.broker.is_aside(self.broker.receive())
        return self.broker.failures.pop(0)

    def asked(self) -> Message:
        return self.broker.expect(BROKER.ASK)

    def noticed(self) -> str:
        """The text of a notice about tools."""
        return self.broker.expect(BROKER.NOTICE).body["text"]

    def decide(self, ask: Message, accept: bool = True, reason: str = "") -> None:
        self.broker.send(BROKER.ASK_DECISION, ask.id, {"accept": accept, "reason": reason}, session=ask.session)

    def run(
        self, k: Kernel, id: int, server: str, tool: str, args: bytes = b"{}", timeout_ms: int = 0
    ) -> tuple[str, bytes]:
        """A call that is accepted; its result."""
        k.call(id, server, tool, args, timeout_ms)
        ask = self.asked()
        assert ask.body.pop("kernel") == k.number
        assert (ask.body, ask.raw) == ({"server": server, "method": "tools/call", "tool": tool}, args)
        self.decide(ask)
        return k.result(id, 30)

    def request(
        self, k: Kernel, id: int, server: str, method: str, params: bytes, timeout_ms: int = 0
    ) -> tuple[str, bytes]:
        """A request for a resource or a prompt that is accepted; its result."""
        k.request(id, server, method, params, timeout_ms)
        ask = self.asked()
        assert ask.body == {"kernel": k.number, "server": server, "method": method, "tool": ""} and ask.raw == params
        self.decide(ask)
        return k.result(id, 30)

    # -- its process

    def memory(self) -> int:
        """The most that it has had so far, bytes."""
        status = Path(f"/proc/{self.inner}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_log(self, text: str) -> None:
        wait_until(lambda: text in self.log(), 10 * self.slowness, f"{text!r} in the log")

    def wait(self, timeout: float = 15) -> int:
        """Its exit status; negative for a signal."""
        if self.status is None:
            poller = zmq.Poller()
            poller.register(self.pidfd, zmq.POLLIN)
            assert poller.poll(timeout * self.slowness * 1000), "the tool server does not end"
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self.pidfd)
        return self.status

    def end(self, timeout: float = 15) -> int:
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1
        return self.wait(timeout)

    def close(self) -> None:
        try:
            self.end()
        except AssertionError:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
            raise
        finally:
            self.ctx.destroy(linger=0)


def wait_until(true: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.01)


@pytest.fixture
def fake() -> Callable[..., dict[str, Any]]:
    """Definition of the fake server with these habits."""

    def make(env: dict[str, str] | None = None, **habits: object) -> dict[str, Any]:
        return {
            "command": sys.executable,
            "args": ["-S", "-E", str(FAKE), json.dumps(habits)],
            **({"env": env} if env else {}),
        }

    return make


@pytest.fixture
def toolserver_program(prefix: Path) -> Path:
    return prefix / "libexec/cellgate/cellgate-toolserver"


@pytest.fixture
def start(toolserver_program: Path, tmp_path: Path, slowness: float) -> Iterator[Callable[..., ToolServer]]:
    """Starts a tool server; at the end it must leave by itself with status 0."""
    started: list[ToolServer] = []

    def make(env: dict[str, str] | None = None, log_level: int = 3) -> ToolServer:
        folder = tmp_path / f"ts{len(started)}"
        folder.mkdir()
        started.append(ToolServer(toolserver_program, folder, slowness, env, log_level))
        return started[-1]

    yield make
    for ts in started:
        ts.close()
        assert ts.status in (0, -signal.SIGKILL), f"exit status {ts.status}: {ts.log()}"


@pytest.fixture
def ts(start: Callable[..., ToolServer]) -> ToolServer:
    return start()


@pytest.fixture
def waiting(slowness: float) -> Callable[[Callable[[], bool], float, str], None]:
    return lambda true, seconds, what: wait_until(true, seconds * slowness, what)


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    return alive
