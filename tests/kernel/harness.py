"""Drives a real cellgate-kernel without a supervisor: its control socket, the kernel wire and the tool wire.

with Zygote(prefix) as zygote, zygote.spawn(workspace) as kernel:
    reply, messages = kernel.run("1 + 1")
"""

import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from wire_table import HEADER, KERNEL, KERNEL_WIRE, TOOL, TOOL_WIRE, VERSION, WIRES

MAX_STREAM = WIRES["kernel"].specs["STREAM"].raw_max
KERNEL_ENV = Path(__file__).parents[2] / ".deps/kernel-env"
SLOWNESS = 5.0 if os.environ.get("CG_SANITIZED") else 1.0


@dataclass
class Message:
    """One message from the kernel."""

    type: str
    flags: int
    id: int
    body: dict[str, Any]
    raw: bytes
    buffers: list[bytes] = field(default_factory=list)

    @property
    def json(self) -> dict[str, Any]:
        """The content, which must be ASCII."""
        return json.loads(self.raw.decode("ascii"))  # type: ignore[no-any-return]


@dataclass
class Call:
    """One CALL from the kernel."""

    id: int
    server: str
    timeout_ms: int
    arguments: bytes
    tool: str = ""
    method: str = ""


@dataclass
class Result:
    """Result of a cell: body and content of its reply, and the messages before it."""

    reply: dict[str, Any]
    messages: list[Message] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        return str(self.reply["status"])

    def text(self, stderr: bool | None = None) -> str:
        """The streams' text; only one of them when `stderr` says which."""
        parts = [m for m in self.messages if m.type == "STREAM" and stderr in (None, bool(m.flags & 1))]
        return b"".join(m.raw for m in parts).decode("utf-8")

    @property
    def out(self) -> str:
        return self.text(stderr=False)

    @property
    def err(self) -> str:
        return self.text(stderr=True)

    def of(self, kind: str) -> list[Message]:
        return [m for m in self.messages if m.type == kind]

    @property
    def result(self) -> str | None:
        """text/plain of the execute_result."""
        found = self.of("EXECUTE_RESULT")
        return found[0].json["data"].get("text/plain") if found else None

    @property
    def error(self) -> dict[str, Any]:
        (message,) = self.of("ERROR")
        return message.json


def pack(wire: int, kind: int, ident: int = 0, flags: int = 0) -> bytes:
    return HEADER.pack(b"CG", VERSION, wire, kind, flags, 0, ident)


def listener(path: Path) -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.bind(str(path))
    s.listen(8)
    return s


def is_wheel(prefix: Path) -> bool:
    """The programs' package in an environment, with cellgate's modules for kernels beside it."""
    return prefix.name == "cellgate_runtime"


def program(prefix: Path, env: Path | None = None) -> list[str | Path]:
    """The zygote's program; in a wheel an interpreter with the extension module. Its environment, if not the own."""
    if not is_wheel(prefix):
        return [prefix / "libexec/cellgate/cellgate-kernel", *(["--kernel-env", env] if env else [])]
    env = env or prefix.parents[3]
    script = prefix.parent / "_cellgate_kernel/cellgate_kernel/__main__.py"
    return [env / "bin/python", "-I", "-X", "utf8", script, "--runtime", prefix, "--kernel-env", env]


class Zygote:
    """A cellgate-kernel process and its control socket."""

    def __init__(
        self, prefix: Path, *args: str, env: dict[str, str] | None = None, kernel_env: Path | None = None
    ) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="cgk-"))
        self.context = zmq.Context()
        self._ids = itertools.count(1)
        self.log_path = self.dir / "log"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = ours
        # As the supervisor does: the sandbox hides /tmp of the host.
        argv = [*program(prefix, kernel_env), "--zygote", *args]
        installed = prefix / "lib/cellgate"
        ours = [prefix.parents[3]] if is_wheel(prefix) else [installed / "python", installed / "kernel-env", KERNEL_ENV]
        shown = [p.resolve() for p in (*ours, *([kernel_env] if kernel_env else [])) if p.is_dir()]
        self.libraries = [[str(p), str(p)] for p in shown]
        with open(self.log_path, "wb") as log:
            fd = theirs.fileno()
            self.process = subprocess.Popen(
                ["/bin/bash", "-c", f'exec 3<&{fd} {fd}<&-; exec "$@"', "bash", *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[fd],
                env=env or {},
                start_new_session=True,
            )
        theirs.close()
        self.ready, _ = self._receive(30 * SLOWNESS)

    def _receive(self, timeout: float) -> tuple[dict[str, Any], list[int]]:
        self.control.settimeout(timeout)
        data, fds, _, _ = socket.recv_fds(self.control, 65536, 8)
        if not data:
            raise EOFError("the zygote has ended: " + self.log)
        message = json.loads(data)
        if "ended" in message:  # counters of the control groups of kernels that have ended
            return self._receive(timeout)
        return message, fds

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def request(
        self, spec: dict[str, Any], fds: list[int], spare: bool = False
    ) -> tuple[dict[str, Any], list[int]]:
        """Send a spawn request with these listeners; returns the reply and its descriptors."""
        memfd = os.memfd_create("spec")
        try:
            os.write(memfd, json.dumps(spec).encode())
            message = json.dumps({"spawn": next(self._ids), "spare": spare}).encode()
            socket.send_fds(self.control, [message], [memfd, *fds])
        finally:
            os.close(memfd)
        return self._receive(30 * SLOWNESS)

    def spawn(self, workspace: Path, *, ready: bool = True, **spec: Any) -> "Kernel":
        return Kernel(self, workspace, spec, ready)

    def close(self) -> None:
        """Close the control socket and wait for the end of the process."""
        self.control.close()
        try:
            self.process.wait(10 * SLOWNESS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.context.destroy(linger=0)
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Kernel:
    """One kernel, for which this process is supervisor and tool server."""

    def __init__(self, zygote: Zygote, workspace: Path, spec: dict[str, Any], ready: bool) -> None:
        self.zygote = zygote
        self.workspace = workspace
        self._cells = itertools.count(1)
        number = next(zygote._ids)
        spare = spec.pop("spare", False)
        paths = [zygote.dir / f"{n}{number}" for n in "ktf"]
        listeners = [listener(p) for p in paths]
        full = {
            "session": number,
            "workspace": str(workspace),
            "env": [],
            "sandbox": True,
            "color": False,
            "limits": {},
            "bind_ro": zygote.libraries,
            "hide": [],
            "python_path": [],
        } | spec
        self.answer, fds = zygote.request(full, [s.fileno() for s in listeners], spare)
        for s in listeners:
            s.close()
        if "failed" in self.answer:
            raise RuntimeError(self.answer["message"])
        self.pidfd, self.status_fd, *self.more_fds = fds
        self.pid = self.answer["pid"]
        self.tool_functions: list[Callable[[Call], tuple[str, bytes] | None]] = []
        self.calls: list[Call] = []
        self.question = 0
        self.cancelled: list[int] = []
        self.freed: list[int] = []
        self.read_result: Callable[..., tuple[str, bytes]] = lambda **_: ("failed", b"no such result")
        self.shell = self._connect(paths[0])
        self.tools = self._connect(paths[1])
        self.tool_path = paths[1]
        self.poller = zmq.Poller()
        self.poller.register(self.shell, zmq.POLLIN)
        self.poller.register(self.tools, zmq.POLLIN)
        if ready:
            self.ready = self.expect("KERNEL_READY", 30 * SLOWNESS)

    def _connect(self, path: Path) -> "zmq.Socket[bytes]":
        s = self.zygote.context.socket(zmq.DEALER)
        s.rcvhwm = s.sndhwm = 64
        s.linger = 0
        s.connect(f"ipc://{path}")
        return s

    def end_tool_server(self) -> None:
        """Close the connection of the tool server without making another one."""
        self.poller.unregister(self.tools)
        self.tools.close()

    def next_tool_server(self) -> None:
        self.tools = self._connect(self.tool_path)
        self.poller.register(self.tools, zmq.POLLIN)

    # ---------------------------------------------------------------- sending

    def send(self, kind: int, ident: int = 0, body: dict[str, Any] | None = None, *raws: bytes) -> None:
        frames = [pack(KERNEL_WIRE, kind, ident), json.dumps(body).encode() if body is not None else b""]
        self.shell.send_multipart([*frames, *raws])

    def execute(self, code: str | bytes, **options: Any) -> int:
        """Send EXECUTE_REQUEST; returns the cell's number."""
        cell = next(self._cells)
        extra = options.pop("extra", b"")
        if not isinstance(extra, bytes):
            extra = json.dumps(extra).encode()
        body = {"silent": False, "store_history": True, "allow_stdin": False} | options
        self.send(KERNEL.EXECUTE_REQUEST, cell, body, code if isinstance(code, bytes) else code.encode(), extra)
        return cell

    def request(self, kind: str, content: Any, *buffers: bytes, subshell: str | None = None) -> int:
        """Send REQUEST; returns its number."""
        ident = next(self._cells)
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send(KERNEL.REQUEST, ident, {"type": kind, "subshell": subshell}, data, *buffers)
        return ident

    def interrupt(self, cell: int) -> None:
        self.send(KERNEL.INTERRUPT_REQUEST, cell)

    def answer_input(self, cell: int, text: str | None, question: int | None = None) -> None:
        """Answer the last question, or an older one."""
        body = {"eof": text is None, "question": self.question if question is None else question}
        self.send(KERNEL.INPUT_REPLY, cell, body, (text or "").encode())

    def finish_call(self, ident: int, status: str, content: bytes, kind: str = "") -> None:
        body = {"status": status, **({"kind": kind} if kind else {})}
        self.tools.send_multipart([pack(TOOL_WIRE, TOOL.CALL_RESULT, ident), json.dumps(body).encode(), content])

    def keep(self, ident: int) -> None:
        """Ends a call with a result that stays with the tool server."""
        self.finish_call(ident, "ok", b'{"handle":%d,"parts":[[2,0,9,1]]}\n[""]' % ident, "kept")

    # ---------------------------------------------------------------- receiving

    def _serve_tools(self) -> None:
        head, body, *raw = self.tools.recv_multipart()
        _, _, _, kind, _, _, ident = HEADER.unpack(head)
        if kind == TOOL.CALL_CANCEL:
            self.cancelled.append(ident)
            return
        if kind == TOOL.RESULT_FREE:
            self.freed.append(ident)
            return
        if kind == TOOL.RESULT_READ:
            status, content = self.read_result(**json.loads(body))
            reply = [pack(TOOL_WIRE, TOOL.RESULT_PART, ident), json.dumps({"status": status}).encode(), content]
            self.tools.send_multipart(reply)
            return
        call = Call(ident, **json.loads(body), arguments=raw[0])
        self.calls.append(call)
        for function in self.tool_functions:
            result = function(call)
            if result is not None:
                self.finish_call(ident, *result)

    def receive(self, timeout: float = 30.0) -> Message:
        """The next message of the kernel wire; calls are passed to tool_functions meanwhile."""
        deadline = time.monotonic() + timeout * SLOWNESS
        while True:
            left = deadline - time.monotonic()
            events = dict(self.poller.poll(max(0, int(left * 1000))))
            if self.tools in events:
                self._serve_tools()
            if self.shell in events:
                head, body, *raw = self.shell.recv_multipart()
                magic, version, wire, kind, flags, _, ident = HEADER.unpack(head)
                assert (magic, version, wire) == (b"CG", VERSION, KERNEL_WIRE)
                assert len(raw) <= 1 or KERNEL(kind).name in ("REPLY", "COMM")
                content = raw[0] if raw else b""
                message = Message(KERNEL(kind).name, flags, ident, json.loads(body or b"{}"), content, raw[1:])
                if message.type == "INPUT_REQUEST":
                    self.question = message.body["question"]
                return message
            if not events and left <= 0:
                raise TimeoutError("no message from the kernel; log: " + self.zygote.log)

    def expect(self, kind: str, timeout: float = 30.0) -> Message:
        message = self.receive(timeout)
        assert message.type == kind, message
        return message

    def collect(self, cell: int, timeout: float = 30.0, on: Callable[[Message], None] | None = None) -> Result:
        """All messages up to the reply of `cell`."""
        result = Result({})
        while True:
            message = self.receive(timeout)
            if message.type == "EXECUTE_REPLY":
                assert message.id == cell, message
                result.reply = message.body
                result.more = message.json if message.raw else {}
                return result
            if message.type == "STREAM":
                assert 0 < len(message.raw) <= MAX_STREAM
                message.raw.decode("utf-8")
            if message.id in (cell, 0):
                result.messages.append(message)
            if on is not None:
                on(message)

    def run(
        self, code: str, timeout: float = 30.0, on: Callable[[Message], None] | None = None, **options: Any
    ) -> Result:
        return self.collect(self.execute(code, **options), timeout, on)

    def reply(self, ident: int, timeout: float = 30.0) -> tuple[dict[str, Any], list[Message]]:
        """The content of the REPLY to a request, and the messages before it."""
        messages = []
        while (message := self.receive(timeout)).type != "REPLY":
            assert message.type != "EXECUTE_REPLY", message
            messages.append(message)
        assert message.id == ident, message
        return message.json, messages

    def ask(self, kind: str, content: Any, *buffers: bytes, timeout: float = 30.0, **options: Any) -> dict[str, Any]:
        """Send REQUEST; returns the content of its REPLY."""
        return self.reply(self.request(kind, content, *buffers, **options), timeout)[0]

    def wait_for_text(self, needle: str, timeout: float = 30.0) -> str:
        """Read until the streams contain this text."""
        seen = ""
        while needle not in seen:
            message = self.receive(timeout)
            assert message.type == "STREAM", message
            seen += message.raw.decode()
        return seen

    def quiet(self, seconds: float) -> None:
        """Assert that nothing arrives for this time."""
        assert not self.poller.poll(int(seconds * 1000))

    # ---------------------------------------------------------------- end

    def wait_gone(self, timeout: float = 5.0) -> tuple[int, int] | None:
        """Wait for the end of init; returns (exit code, signal) of the kernel, None if init was killed."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        assert poll.poll(timeout * 1000 * SLOWNESS), "the kernel has not ended"
        data = os.read(self.status_fd, 64)
        if not data:
            return None
        *stopped, status = struct.iter_unpack("<Iiii", data)  # the former: nothing ran any more
        assert all(magic == 0x43475332 for magic, *_ in stopped)
        _, code, signo, _ = status
        return code, signo

    def close(self) -> None:
        if self.pidfd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.close(self.pidfd)
        for fd in (self.status_fd, *self.more_fds):
            os.close(fd)
        self.pidfd = -1
        self.shell.close()
        self.tools.close()

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
