"""A Jupyter client on bare ZeroMQ sockets, which costs as little as a client can: what is measured is the kernel."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import zmq

CHANNELS = ("shell", "iopub", "stdin", "hb", "control")
TYPES = {"shell": zmq.DEALER, "iopub": zmq.SUB, "hb": zmq.REQ, "control": zmq.DEALER}
DELIMITER = b"<IDS|MSG>"


class Lost(Exception):
    """The kernel did not say what it must."""


class Message:
    """A received message; its parts are parsed when they are looked at."""

    def __init__(self, frames: list[bytes]) -> None:
        at = frames.index(DELIMITER)
        self.header: dict[str, Any] = json.loads(frames[at + 2])
        self.parent: dict[str, Any] = json.loads(frames[at + 3])
        self.raw_content = frames[at + 5]

    @property
    def type(self) -> str:
        return str(self.header["msg_type"])

    @property
    def content(self) -> dict[str, Any]:
        return dict(json.loads(self.raw_content))


class Kernel:
    """A kernel process and its only client."""

    def __init__(
        self, argv: list[str], env: dict[str, str], cwd: Path, transport: str, interrupt_by_message: bool
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.interrupt_by_message = interrupt_by_message
        self.folder = tempfile.TemporaryDirectory(prefix="bench-jupyter-")
        self.file = Path(self.folder.name) / "kernel.json"
        self.key = uuid.uuid4().hex.encode()
        self.info: dict[str, Any] = {
            "transport": transport,
            "ip": "127.0.0.1" if transport == "tcp" else f"{self.folder.name}/k",
            "key": self.key.decode(),
            "signature_scheme": "hmac-sha256",
            **{f"{c}_port": p for c, p in zip(CHANNELS, self._ports(transport), strict=True)},
        }
        self.file.write_text(json.dumps(self.info))
        self.file.chmod(0o600)
        self.session = uuid.uuid4().hex
        self.received_at_most = 0  # messages that wait at our side; 0: all
        self.count = 0
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        self.process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def _ports(transport: str) -> list[int]:
        if transport == "ipc":
            return list(range(1, 6))
        sockets = [socket.socket() for _ in CHANNELS]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        ports = [int(s.getsockname()[1]) for s in sockets]
        for s in sockets:
            s.close()
        return ports

    # ------------------------------------------------------------- messages

    def connect(self) -> None:
        """Sockets that find the kernel within a millisecond of its being there."""
        for channel, kind in TYPES.items():
            s = zmq.Context.instance().socket(kind)
            s.linger = 0
            s.reconnect_ivl = 1
            s.rcvhwm = self.received_at_most
            if kind == zmq.SUB:
                s.subscribe(b"")
            mark = ":" if self.info["transport"] == "tcp" else "-"
            s.connect(f"{self.info['transport']}://{self.info['ip']}{mark}{self.info[channel + '_port']}")
            self.sockets[channel] = s

    def disconnect(self) -> None:
        for s in self.sockets.values():
            s.close(0)
        self.sockets = {}

    def send(self, kind: str, content: dict[str, Any], channel: str = "shell") -> str:
        self.count += 1
        request = f"{self.session}_{self.count}"
        header = {
            "msg_id": request,
            "msg_type": kind,
            "session": self.session,
            "username": "bench",
            "version": "5.3",
            "date": "2026-01-01T00:00:00.000000Z",
        }
        frames = [json.dumps(header).encode(), b"{}", b"{}", json.dumps(content).encode()]
        mac = hmac.new(self.key, digestmod=hashlib.sha256)
        for f in frames:
            mac.update(f)
        self.sockets[channel].send_multipart([DELIMITER, mac.hexdigest().encode(), *frames])
        return request

    def receive(self, channel: str, limit_s: float) -> Message | None:
        s = self.sockets[channel]
        if not s.poll(max(0, int(limit_s * 1000))):
            return None
        return Message(s.recv_multipart())

    def reply(self, request: str, channel: str = "shell", limit_s: float = 60) -> Message:
        deadline = time.perf_counter() + limit_s
        while (m := self.receive(channel, deadline - time.perf_counter())) is not None:
            if m.parent.get("msg_id") == request:
                return m
        raise Lost(f"no reply in {limit_s:.0f} s")

    def outputs(self, request: str, limit_s: float = 60) -> list[Message]:
        """The request's messages on iopub, to its idle."""
        found = []
        deadline = time.perf_counter() + limit_s
        while (m := self.receive("iopub", deadline - time.perf_counter())) is not None:
            if m.parent.get("msg_id") == request:
                found.append(m)
                if m.type == "status" and m.content["execution_state"] == "idle":
                    return found
        raise Lost(f"no idle in {limit_s:.0f} s; {len(found)} messages")

    def execute(self, code: str) -> str:
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
        return self.send("execute_request", {**content, "allow_stdin": False, "stop_on_error": False})

    def run(self, code: str, limit_s: float = 60) -> tuple[Message, list[Message]]:
        request = self.execute(code)
        outputs = self.outputs(request, limit_s)
        return self.reply(request, limit_s=limit_s), outputs

    def value(self, expression: str) -> str:
        """Run a cell of `expression` and return its result as text."""
        _, outputs = self.run(expression)
        for m in outputs:
            if m.type == "execute_result":
                return str(m.content["data"]["text/plain"])
        raise Lost(f"no result of {expression}: {[m.content for m in outputs]}")

    def drain(self) -> None:
        for channel in ("shell", "iopub", "control"):
            while self.receive(channel, 0.05):
                pass

    # -------------------------------------------------------------- process

    def spawn(self) -> None:
        argv = [a.replace("{connection_file}", str(self.file)) for a in self.argv]
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(
            argv, env=self.env, cwd=self.cwd, stdin=null, stdout=null, stderr=null, start_new_session=True
        )

    def first_result(self) -> float:
        """From before the process to the reply of its first cell, in seconds."""
        self.connect()
        start = time.perf_counter()
        self.spawn()
        self.reply(self.execute("1"))
        return time.perf_counter() - start

    def ready(self) -> Kernel:
        """Start the kernel, and wait until iopub is connected: later messages are not lost."""
        self.first_result()
        deadline = time.perf_counter() + 30
        while time.perf_counter() < deadline:
            try:
                self.run("pass", 0.5)
                self.drain()
                return self
            except Lost:
                continue
        raise Lost("nothing on iopub in 30 s")

    def restart(self) -> float:
        """From the request to end to the first reply of the successor, which has the same sockets' addresses."""
        assert self.process
        start = time.perf_counter()
        self.send("shutdown_request", {"restart": True}, "control")
        self.process.wait(20)
        self.disconnect()
        self.first_result()
        return time.perf_counter() - start

    def interrupt(self) -> None:
        assert self.process
        if self.interrupt_by_message:
            self.send("interrupt_request", {}, "control")
        else:
            os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        """Shut the kernel down, or kill it after 3 s."""
        if self.process and self.process.poll() is None:
            if self.sockets:
                self.send("shutdown_request", {"restart": False}, "control")
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.disconnect()
        self.folder.cleanup()
