"""Sessions whose language is another kernel of Jupyter, which runs beside this one and is spoken to over TCP.

The sandbox's loopback interface is its own. This speaks ZeroMQ's protocol itself (ZMTP 3.0, no security): the
environment of kernels has no pyzmq, and the loop of the cells is the only one here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import StdinNotImplementedError

import _cellgate
from cellgate_kernel import jsontext, stdin
from cellgate_kernel.languages import Content, Language, cell_error

if TYPE_CHECKING:
    from cellgate_kernel.kernel import Kernel

_DELIMITER = b"<IDS|MSG>"
_MAX_MESSAGE = 1 << 26
_MAX_PARTS = 1_000
# Bytes of the process's own output.
_MAX_TAIL = 1_000
# Cells whose late output is still theirs.
_MAX_CELLS = 256
# A kernel may not know a request about code; the first completion of ipykernel takes 9 s.
_REQUEST_S = 30.0
# After the reply to a cell, a kernel that has dropped messages never reports that it is idle; one that does not
# know a request is idle without a reply.
_QUIET_S = 1.0

_HOST = "127.0.0.1"
_PORTS = ("shell", "control", "stdin", "iopub", "hb")
# End of input, for an input_reply.
_END = "\x04"
_MAX_READS = 64
_COLOR = re.compile(r"\x1b\[[\d;]*m")
_DISPLAYS = ("display_data", "update_display_data", "execute_result", "clear_output")


def _frames(parts: list[bytes]) -> bytes:
    data = []
    for i, part in enumerate(parts):
        more, size = int(i < len(parts) - 1), len(part)
        head = bytes([more, size]) if size < 256 else bytes([more | 2]) + size.to_bytes(8, "big")
        data += [head, part]
    return b"".join(data)


class _Channel(asyncio.Protocol):
    """One connection to the kernel; `receive` gets each message of it, whatever that is."""

    def __init__(self, kind: bytes, identity: bytes, receive: Callable[[list[bytes]], None]) -> None:
        self._kind = kind
        self._identity = identity
        self._receive = receive
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._greeted = self._open = False
        self._waiting = _frames([b"\1"]) if kind == b"SUB" else b""  # until the handshake has ended
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self.transport = transport
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
        ready = b"\5READY"
        for name, value in ((b"Socket-Type", self._kind), (b"Identity", self._identity)):
            ready += bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
        self.transport.write(greeting + bytes([4, len(ready)]) + ready)

    def write(self, data: bytes) -> None:
        """Send a message; after the handshake, before which libzmq ends the connection."""
        if self._open:
            self.transport.write(data)
        else:
            self._waiting += data

    def data_received(self, data: bytes) -> None:
        """Take the messages that are complete."""
        self._buffer += data
        if not self._greeted and len(self._buffer) >= 64:
            self._greeted = True
            del self._buffer[:64]
        while self._greeted and self._next():
            pass

    def drain(self) -> None:
        """Take what has arrived from a process that has ended, and close."""
        if self.transport is None or self.transport.is_closing():
            return
        fd = self.transport.get_extra_info("socket").fileno()
        with contextlib.suppress(OSError):
            for _ in range(_MAX_READS):
                if not (data := os.read(fd, 1 << 20)):
                    break
                self.data_received(data)
        self.transport.abort()

    def _next(self) -> bool:
        """Take one frame, if it is here."""
        buffer = self._buffer
        start = 9 if buffer and buffer[0] & 2 else 2
        if len(buffer) < start:
            return False
        size = int.from_bytes(buffer[1:start], "big")
        if size > _MAX_MESSAGE or len(self._parts) > _MAX_PARTS:
            self.transport.abort()
            return False
        if len(buffer) < start + size:
            return False
        flags, part = buffer[0], bytes(buffer[start : start + size])
        del buffer[: start + size]
        if flags & 4 and not self._open:  # READY
            self._open = True
            self.transport.write(self._waiting)
        elif not flags & 4:
            self._parts.append(part)
            if not flags & 1:
                parts, self._parts = self._parts, []
                self._receive(parts)
        return True


def _object(data: bytes) -> Content:
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(data), dict):
            return value
    return {}


def _same(channel: _Channel) -> _Channel:
    return channel


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Jupyter(Language):
    """A kernel that stays."""

    name = "kernel"
    state = "its variables"

    def __init__(self, kernel: Kernel, path: str) -> None:
        super().__init__(kernel, path)
        self._spec: Content = kernel.config["language_spec"]
        self.title = f"the kernel {self._spec['folder'].rpartition('/')[2]}"
        self._dir = ""
        self._key = b""
        self._session = ""
        self._serial = 0
        self._ports: dict[str, int] = {}
        self._channels: dict[str, _Channel] = {}
        self._opening: asyncio.Task[None] | None = None
        self._info: asyncio.Future[Content] | None = None  # kernel_info of this process; {}: it has ended
        self._answered: Content = {}  # kernel_info, until iopub works
        self._waiting = b""  # the request for it, until it is ready
        self._cells: dict[int, int] = {}  # of the host, by this language's numbers
        self._reply: Content | None = None
        self._error: Content = {}
        self._idle = False
        self._asks = False  # a request about code, no cell
        self._heard = 0  # messages of iopub
        self._tail = b""
        self._pipe = self._its_pipe = -1

    @property
    def _ready(self) -> bool:
        return self._info is not None and self._info.done()

    # ---------------------------------------------------------------- the program

    def before_start(self) -> None:
        """Write the connection file. An error names what the sandbox does not show of the kernel."""
        self._check_files()
        self._key, self._session = os.urandom(16).hex().encode(), os.urandom(8).hex()
        self._channels, self._answered, self._waiting, self._tail = {}, {}, b"", b""
        with contextlib.ExitStack() as stack:
            for name in _PORTS:
                free = stack.enter_context(socket.socket())
                free.bind((_HOST, 0))
                self._ports[name] = free.getsockname()[1]
        config = {"transport": "tcp", "ip": _HOST, "key": self._key.decode(), "signature_scheme": "hmac-sha256"}
        self._dir = self._dir or tempfile.mkdtemp(prefix="jupyter-")
        os.makedirs(self._dir, 0o700, exist_ok=True)
        with open(os.path.join(self._dir, "connection.json"), "w", opener=_private, encoding="ascii") as file:
            json.dump(config | {f"{name}_port": port for name, port in self._ports.items()}, file)
        self._pipe, self._its_pipe = os.pipe()

    def _check_files(self) -> None:
        words = self._spec["argv"]
        paths = [self.path, *(word for word in words if word.startswith("/"))]
        if any("{resource_dir}" in word for word in words):
            paths.append(self._spec["folder"])
        for path in paths:
            if not os.access(path, os.R_OK):
                what = "which the sandbox does not show: it was removed, or must be added to filesystem.allowRead"
                text = f"{self.title} needs {path}, {what}"
                raise cell_error("KernelFiles", text, [text])

    def command(self, fd: int) -> list[str]:
        connection = os.path.join(self._dir, "connection.json")
        values = {"{connection_file}": connection, "{resource_dir}": self._spec["folder"]}
        return [re.sub(r"\{\w+\}", lambda m: values.get(m[0], m[0]), word) for word in self._spec["argv"]]

    def environment(self) -> dict[str, str]:
        own = {name: os.path.expandvars(value) for name, value in self._spec["env"].items()}
        return super().environment() | own

    def output(self) -> int | None:
        return self._its_pipe

    def start(self) -> None:
        """Start the kernel, unless it runs."""
        if self._socket is not None:
            return
        try:
            super().start()
        except BaseException:
            self._close_pipe()
            raise
        os.close(self._its_pipe)
        self._its_pipe = -1
        os.set_blocking(self._pipe, False)
        self.loop.add_reader(self._pipe, self._own_output)
        self._info = self.loop.create_future()
        self._opening = self.loop.create_task(self._open(self._info))

    async def _open(self, info: asyncio.Future[Content]) -> None:
        """Connect, and ask until the kernel answers on iopub as well: then it has the subscription."""
        for name, (kind, receive) in {
            "iopub": (b"SUB", self._on_iopub),
            "shell": (b"DEALER", self._on_shell),
            "stdin": (b"DEALER", self._on_stdin),
            "control": (b"DEALER", self._on_control),
        }.items():
            channel = _Channel(kind, self._session.encode() if kind == b"DEALER" else b"", receive)
            self._channels[name] = channel
            wait = 0.002
            while channel.transport is None:
                try:
                    await self.loop.create_connection(partial(_same, channel), _HOST, self._ports[name])
                except OSError:  # it does not listen yet
                    await asyncio.sleep(wait)
                    wait = min(wait * 1.5, 0.1)
        wait = 0.05
        while not info.done():
            self._write("shell", self._message("kernel_info_request", {}, 0))
            await asyncio.wait((info,), timeout=wait)
            wait = min(wait * 2, 2)
        with contextlib.suppress(OSError):  # no file of the cells
            os.unlink(os.path.join(self._dir, "connection.json"))
        self._write("shell", self._waiting)

    def _own_output(self) -> None:
        """What the process writes itself, to explain why it has ended: what cells print comes by iopub."""
        with contextlib.suppress(OSError):
            data = os.read(self._pipe, 65536)
            if not data:
                self.loop.remove_reader(self._pipe)
            self._tail = (self._tail + data)[-_MAX_TAIL:]

    def _close_pipe(self) -> None:
        for fd in (self._pipe, self._its_pipe):
            if fd >= 0:
                os.close(fd)
        self._pipe = self._its_pipe = -1

    def _drop(self) -> None:
        if self._socket is None:
            return
        self.kill()
        self._own_output()
        for channel in self._channels.values():
            channel.drain()
        if self._opening is not None:
            self._opening.cancel()
        self.loop.remove_reader(self._pipe)
        self._close_pipe()
        super()._drop()
        if self._info is not None and not self._info.done():
            self._info.set_result({})

    def how_ended(self, status: int) -> str:
        how = super().how_ended(status)
        tail = self._tail.decode(errors="replace").strip()
        return f"{how}, and had written: {tail}" if tail else how

    def _signal(self, number: int) -> None:
        if number == signal.SIGINT and self._ready and self._spec["interrupt_mode"] == "message":
            self._write("control", self._message("interrupt_request", {}, 0))
        else:
            super()._signal(number)

    def close(self) -> None:
        """Let it end by itself: the session ends."""
        self._write("control", self._message("shutdown_request", {"restart": False}, 0))
        super().close()

    # ---------------------------------------------------------------- messages

    def _sign(self, parts: list[bytes]) -> bytes:
        mac = hmac.new(self._key, digestmod="sha256")
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()

    def _message(self, kind: str, content: Content, number: int) -> bytes:
        self._serial += 1  # kernels refuse a message that they have had
        header = {
            "msg_id": f"{self._session}_{self._serial}_{number}",
            "msg_type": kind,
            "session": self._session,
            "username": "cellgate",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "version": "5.3",
        }
        parts = [jsontext.dumps(header).encode(), b"{}", b"{}", jsontext.dumps(content).encode()]
        return _frames([_DELIMITER, self._sign(parts), *parts])

    def _write(self, name: str, data: bytes) -> None:
        channel = self._channels.get(name)
        if channel is not None and data:
            channel.write(data)

    def send(self, data: bytes) -> None:
        """Send a request, once the kernel is ready."""
        if self._ready:
            self._write("shell", data)
        else:
            self._waiting = data

    def _read(self, parts: list[bytes]) -> tuple[str, int, Content]:
        """Type, number of the request and content of a message; ("", -1, {}): not of the kernel."""
        try:
            signature, *rest = parts[parts.index(_DELIMITER) + 1 :]
            header, parent, _, content = rest[:4]
        except ValueError:
            return "", -1, {}
        if not hmac.compare_digest(signature, self._sign(rest[:4])):
            return "", -1, {}
        session, _, ident = str(_object(parent).get("msg_id")).partition("_")
        number = ident.rpartition("_")[2][:18]
        known = session == self._session and number.isdecimal()
        return str(_object(header).get("msg_type")), int(number) if known else -1, _object(content)

    def _on_control(self, parts: list[bytes]) -> None:
        pass

    def _on_shell(self, parts: list[bytes]) -> None:
        kind, number, content = self._read(parts)
        if kind == "kernel_info_reply" and number == 0:
            self._answered = content
        elif number == self.number and kind.endswith("_reply"):
            self._reply = content
            if kind != "execute_reply" or self._idle:
                self._finish(number)
            else:
                self.loop.call_later(_QUIET_S, self._finish_if_quiet, number, self._heard)

    def _finish(self, number: int) -> None:
        if number == self.number and self.running is not None and not self.running.done():
            self.running.set_result({"reply": self._reply})

    def _finish_if_quiet(self, number: int, heard: int) -> None:
        if heard == self._heard:
            self._finish(number)
        elif number == self.number:
            self.loop.call_later(_QUIET_S, self._finish_if_quiet, number, self._heard)

    def _on_iopub(self, parts: list[bytes]) -> None:
        self._heard += 1
        kind, number, content = self._read(parts)
        _cellgate.cell.set(self._cells.get(number, self.cell))
        if kind == "status":
            self._on_status(number, content)
        elif kind == "stream":
            write = _cellgate.write_stderr if content.get("name") == "stderr" else _cellgate.write_stdout
            write(str(content.get("text", "")))
        elif kind == "error" and number == self.number:
            self._error = content
        elif kind in _DISPLAYS and not (kind == "execute_result" and self.silent):
            if kind == "execute_result":
                content["execution_count"] = self.kernel.shell.execution_count
            self._publish(kind, content)

    def _on_status(self, number: int, content: Content) -> None:
        if number == 0 and self._answered and self._info is not None and not self._info.done():
            self._info.set_result(self._answered)
        if number == self.number and content.get("execution_state") == "idle":
            self._idle = True
            if self._reply is not None:
                self._finish(number)
            elif self._asks:
                self.loop.call_later(_QUIET_S, self._finish, number)

    def _publish(self, kind: str, content: Content) -> None:
        try:
            _cellgate.publish(kind, content)
        except ValueError as e:
            _cellgate.write_stderr(f"cellgate: {kind} of {self.title}: {e}\n")

    def _on_stdin(self, parts: list[bytes]) -> None:
        kind, number, content = self._read(parts)
        if kind != "input_request":
            return
        _cellgate.cell.set(self._cells.get(number, self.cell))
        line = None
        with contextlib.suppress(StdinNotImplementedError):
            line = stdin.ask(str(content.get("prompt", "")), password=content.get("password") is True)
        self._write("stdin", self._message("input_reply", {"value": _END if line is None else line}, 0))

    # ---------------------------------------------------------------- cells

    def request(self, text: str, number: int, metadata: Content) -> bytes:
        self._reply, self._error, self._idle, self._asks = None, {}, False, False
        self._cells[number] = self.cell
        if len(self._cells) > _MAX_CELLS:
            del self._cells[next(iter(self._cells))]
        content = {
            "code": text,
            "silent": self.silent,
            "store_history": not self.silent,
            "user_expressions": {},
            "allow_stdin": _cellgate.may_ask(),
            "stop_on_error": False,
        }
        return self._message("execute_request", content, number)

    def check(self, reply: Content) -> None:
        content = reply.get("reply") or {}
        if content.get("status") == "ok":
            payload = content.get("payload")
            for item in payload if isinstance(payload, list) else []:
                if isinstance(item, dict) and item.get("source") == "page":
                    self._publish("display_data", {"data": item.get("data"), "metadata": {}, "transient": {}})
            return
        content |= self._error
        words = re.findall(r"[^\W\d]\w*", _COLOR.sub("", str(content.get("ename"))))  # xeus: <class 'NameError'>
        name, lines = words[-1] if words else "Error", content.get("traceback")
        lines = [str(line) for line in lines] if isinstance(lines, list) else []
        text = str(content.get("evalue", ""))
        if not self.kernel.config.get("color"):
            text, lines = _COLOR.sub("", text), [_COLOR.sub("", line) for line in lines]
        raise cell_error(name, text, lines or [f"{name}: {text}"])

    # ---------------------------------------------------------------- requests about code

    def forward(self, kind: str, content: Content) -> Content | None:
        """The kernel's reply; None: it has none."""
        shell: Any = self.kernel.shell
        if kind != "kernel_info_request":
            found: Content | None = shell.run_async(self._exchange(self._ask(kind, content)))
            return found
        try:
            info = shell.run_async(self._exchange(self._kernel_info()))
        except Exception as e:
            info = {"banner": str(e), "why": str(e)}
        language = {"name": self._spec["language"], "version": "", "mimetype": "text/plain", "file_extension": ".txt"}
        base = {"implementation": self._spec["language"], "implementation_version": "", "language_info": language}
        own = {"status": "ok", "protocol_version": "5.3", "debugger": False, "supported_features": []}
        return {"banner": "", "help_links": [], **base, **info, **own}

    async def _kernel_info(self) -> Content:
        assert self._info is not None
        if info := await asyncio.shield(self._info):
            return info
        raise RuntimeError(f"{self.title} ended ({self._ended})")

    async def _ask(self, kind: str, content: Content) -> Content | None:
        def message(number: int) -> bytes:
            self._reply, self._idle, self._asks = None, False, True
            self.loop.call_later(_REQUEST_S, self._finish, number)
            return self._message(kind, content, number)

        reply = (await self.ask(message)).get("reply")
        if self._interrupts:
            raise KeyboardInterrupt
        return reply

    async def complete(self, code: str) -> tuple[str, list[str]]:
        return "", []

    # ---------------------------------------------------------------- variables

    def why_not(self, name: str) -> str:
        return "is a variable of another kernel of Jupyter, which cells alone read and set"

    async def put(self, made: Content, lossy: bool) -> None:
        """There is none: see why_not()."""

    async def take(self, names: list[str], lossy: bool) -> Content:
        return {}


def make(kernel: Kernel, path: str) -> Language:
    """The language of a kernel."""
    return Jupyter(kernel, path)
