"""Fixtures of the Jupyter front's tests: kernels started as by Jupyter, and a client that returns every message."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session
from shared_supervisor import find_supervisors, runtime_folder

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
SERVER = Path(__file__).parent.parent / "cli/data/server.py"
# A question takes no answer before it could be read (base/confirm.h).
READ_S = 0.8
Message = dict[str, Any]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests in two workers: they share a supervisor, whose zygote prepares completion for seconds."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            questions = item.path.name in ("test_approvals.py", "test_forgeries.py", "test_sandbox.py")
            item.add_marker(pytest.mark.xdist_group("jupyter-questions" if questions else "jupyter"))


@pytest.fixture(autouse=True)
def _share_a_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about kernels that share one."""
    monkeypatch.delenv("CELLGATE_PRIVATE")


@pytest.fixture(scope="session")
def runtime_dir() -> Iterator[Path]:
    """XDG_RUNTIME_DIR of all kernels: their own supervisor, which is ended afterwards."""
    with runtime_folder() as folder:
        yield folder


@pytest.fixture
def empty_runtime_dir() -> Iterator[Path]:
    """A runtime folder for this test alone."""
    with runtime_folder() as folder:
        yield folder


@pytest.fixture
def supervisors(runtime_dir: Path) -> Callable[[], list[int]]:
    """Their process ids."""
    return lambda: find_supervisors(runtime_dir)


@dataclass
class Run:
    """The reply to one request and its messages on iopub, from busy to idle."""

    reply: Message
    published: list[Message] = field(default_factory=list)

    @property
    def content(self) -> dict[str, Any]:
        return self.reply["content"]

    def types(self) -> list[str]:
        """The state of a status message."""
        return [m["content"]["execution_state"] if m["msg_type"] == "status" else m["msg_type"] for m in self.published]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [m["content"] for m in self.published if m["msg_type"] == kind]

    def text(self, name: str = "stdout") -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == name)

    def result(self) -> str:
        (only,) = self.of("execute_result")
        return only["data"]["text/plain"]


class Client:
    """Raw sockets of one client. Every wait has an end; what does not come is None."""

    def __init__(
        self, context: zmq.Context[Any], info: dict[str, Any], slowness: float = 1.0, join: bool = True
    ) -> None:
        self.context, self.info, self.slowness = context, info, slowness
        self.session = Session(key=info.get("key", "").encode())
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        for channel, kind in zip(CHANNELS[:4], (zmq.DEALER, zmq.SUB, zmq.DEALER, zmq.DEALER), strict=True):
            self.sockets[channel] = self.connect(channel, kind)
        if join:
            welcome = self.receive("iopub", 20)
            assert welcome and welcome["msg_type"] == "iopub_welcome", welcome

    def connect(self, channel: str, kind: int) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.linger = 0
        socket.reconnect_ivl = 5
        if kind == zmq.DEALER:
            socket.identity = self.session.bsession
        if "curve_publickey" in self.info:
            public, secret = zmq.curve_keypair()
            socket.curve_publickey, socket.curve_secretkey = public, secret
            socket.curve_serverkey = self.info["curve_publickey"].encode()
        if kind == zmq.SUB:
            socket.rcvhwm = 0
            socket.subscribe(b"")
        between = "-" if self.info["transport"] == "ipc" else ":"
        port = self.info[channel + "_port"]
        socket.connect(f"{self.info['transport']}://{self.info['ip']}{between}{port}")
        return socket

    def close(self) -> None:
        for socket in self.sockets.values():
            socket.close(0)
        self.sockets = {}

    def send(
        self,
        channel: str,
        kind: str,
        content: dict[str, Any] | None = None,
        *,
        parent: Message | None = None,
        metadata: dict[str, Any] | None = None,
        buffers: list[bytes] | None = None,
        subshell: str | None = None,
    ) -> str:
        message = self.session.msg(kind, content or {}, parent=parent, metadata=metadata)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self.session.send(self.sockets[channel], message, buffers=buffers)
        return str(message["header"]["msg_id"])

    def receive(self, channel: str, timeout: float = 20) -> Message | None:
        socket = self.sockets[channel]
        if not socket.poll(int(timeout * self.slowness * 1000)):
            return None
        _, parts = self.session.feed_identities(socket.recv_multipart(copy=True))
        return dict(self.session.deserialize(parts))

    def answer(self, question: Message | None, value: str, named: bool = True) -> None:
        """Answers a question about a call as a person does: after reading it, and with the digits that it shows."""
        prompt = question["content"]["prompt"] if question else ""
        found = re.search(r"Allow\? y(\d*) ", prompt)
        time.sleep(READ_S)  # what is waited for is time
        digits = found[1] if found and value in ("y", "yes", "s", "same", "a", "always") else ""
        self.send("stdin", "input_reply", {"value": value + digits}, parent=question if named else None)

    def reply(self, request: str, channel: str = "shell", timeout: float = 20) -> Message:
        """The reply to this request; others that come before it are dropped."""
        while message := self.receive(channel, timeout):
            if message["parent_header"].get("msg_id") == request:
                return message
        raise AssertionError(f"no reply within {timeout} s")

    def published(self, request: str, timeout: float = 20) -> list[Message]:
        """Return the messages on iopub about this request, up to its idle."""
        found = []
        while message := self.receive("iopub", timeout):
            if message["parent_header"].get("msg_id") != request:
                continue
            found.append(message)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found
        raise AssertionError(f"no idle within {timeout} s; there were {[m['msg_type'] for m in found]}")

    def ask(self, kind: str, content: dict[str, Any] | None = None, channel: str = "shell", **more: Any) -> Run:
        """A request, its reply, and what was published."""
        request = self.send(channel, kind, content, **more)
        reply = self.reply(request, channel)
        return Run(reply, self.published(request))

    def start(self, code: str, metadata: dict[str, Any] | None = None, subshell: str | None = None, **more: Any) -> str:
        """Sends a cell; returns the request's id."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        return self.send("shell", "execute_request", {**content, **more}, metadata=metadata, subshell=subshell)

    def arrived(self) -> None:
        """Waits until all that was sent on the shell channel has come: it is read in order, and no cell holds up the reply
        to this one. Replies that come before it are dropped."""
        self.reply(self.start("", subshell="nobody"))

    def finish(self, request: str, timeout: float = 30) -> Run:
        return Run(self.reply(request, timeout=timeout), self.published(request, timeout))

    def run(self, code: str, **more: Any) -> Run:
        return self.finish(self.start(code, **more))

    def nothing(self, channel: str, timeout: float = 0.3) -> None:
        message = self.receive(channel, timeout)
        assert message is None, message


class Kernel:
    """One `cellgate jupyter run`."""

    def __init__(self, argv: list[str], file: Path, cwd: Path, env: dict[str, str], slowness: float) -> None:
        self.file, self.slowness = file, slowness
        self.context: zmq.Context[Any] = zmq.Context()
        self.clients: list[Client] = []
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the kernel
        self.process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stderr=self.errors)

    def info(self) -> dict[str, Any]:
        """The connection file, once all its ports are there."""
        deadline = time.monotonic() + 20 * self.slowness
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.file.exists():
                info: dict[str, Any] = json.loads(self.file.read_text())
                if all(info.get(f"{c}_port") for c in CHANNELS):
                    return info
            time.sleep(0.005)
        raise AssertionError(f"no connection file; exit status {self.process.poll()}: {self.stderr()}")

    def client(self, join: bool = True) -> Client:
        self.clients.append(Client(self.context, self.info(), self.slowness, join))
        return self.clients[-1]

    def stderr(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode()

    def wait(self, timeout: float = 10) -> int:
        return self.process.wait(timeout * self.slowness)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10 * self.slowness)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.context.destroy(0)
        self.errors.close()


def kernel_environment(runtime_dir: Path) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
    for name in ("JPY_PARENT_PID", "CELLGATE_PRIVATE"):
        env.pop(name, None)
    # The state folder of a test's own would give each test a supervisor of its own.
    return {**env, "XDG_RUNTIME_DIR": str(runtime_dir), "XDG_STATE_HOME": str(runtime_dir / "state")}


@pytest.fixture
def environment(runtime_dir: Path) -> dict[str, str]:
    return kernel_environment(runtime_dir)


@pytest.fixture
def start(
    cellgate: Path, tmp_path: Path, environment: dict[str, str], slowness: float
) -> Iterator[Callable[..., Kernel]]:
    """start(OPTION..., connection={...}): a kernel; with a connection, it is written into the file first; by=ARGV: a program
    that starts what its further arguments name."""
    kernels: list[Kernel] = []

    def one(
        *options: str | Path,
        connection: dict[str, Any] | None = None,
        file: Path | None = None,
        runtime_dir: Path | None = None,
        by: list[str] | None = None,
    ) -> Kernel:
        where = file or tmp_path / f"kernel-{len(kernels)}.json"
        if connection is not None:
            where.touch(0o600)
            where.write_text(json.dumps(connection))
        argv = [*(by or []), str(cellgate), "jupyter", "run", "-f", str(where), "--linger=2", *map(str, options)]
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        env = {**environment, "XDG_RUNTIME_DIR": str(runtime_dir)} if runtime_dir else environment
        kernels.append(Kernel(argv, where, work, env, slowness))
        return kernels[-1]

    yield one
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def kernel(start: Callable[..., Kernel]) -> Kernel:
    return start()


@pytest.fixture
def client(kernel: Kernel) -> Client:
    return kernel.client()


class Server:
    """The scripted MCP server "fs": its settings file, and which of its tools have run."""

    def __init__(self, folder: Path) -> None:
        self.mcp = folder / "mcp.json"
        self.journal = folder / "journal"
        names = folder / "tools.json"
        names.write_text(json.dumps(["read_file", "write_file"]))
        args = [str(SERVER), str(names), str(self.journal)]
        self.mcp.write_text(json.dumps({"mcpServers": {"fs": {"command": "/usr/bin/python3", "args": args}}}))

    def ran(self) -> list[str]:
        if not self.journal.exists():
            return []
        return [json.loads(line)["tool"] for line in self.journal.read_text().splitlines()]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """Outside the workspace, so that no cell can read the journal or change the settings."""
    return Server(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def asked_kernel(
    cellgate: Path, runtime_dir: Path, slowness: float, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Kernel, Server]]:
    server = Server(tmp_path_factory.mktemp("server"))
    folder = tmp_path_factory.mktemp("asked")
    work, file = folder / "work", folder / "kernel.json"
    work.mkdir()
    argv = [str(cellgate), "jupyter", "run", "-f", str(file), "--linger=2", "--mcp", str(server.mcp)]
    kernel = Kernel(argv, file, work, kernel_environment(runtime_dir), slowness)
    yield kernel, server
    kernel.close()


@pytest.fixture
def asked(asked_kernel: tuple[Kernel, Server]) -> Iterator[tuple[Client, Server]]:
    """A client of a kernel whose calls of the server "fs" are asked about, for tests that leave nothing in it."""
    kernel, server = asked_kernel
    server.journal.unlink(missing_ok=True)
    client = kernel.client()
    yield client, server
    client.ask("interrupt_request", channel="control")  # where a test has failed at a question
    client.close()
