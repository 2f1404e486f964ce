"""Helpers of the tests of `cellgate mcp serve`, beside the fixtures."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Raw:
    """The server as a process: lines in, lines out."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str], slowness: float, read: bool = True) -> None:
        self.slowness = slowness
        self.process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        self.stderr = b""
        self.threads: list[threading.Thread] = []
        self._start(self._read_err)
        if read:
            self.start_reading()
        self.last_id = 0

    def _start(self, target: Callable[[], None]) -> None:
        self.threads.append(threading.Thread(target=target, daemon=True))
        self.threads[-1].start()

    def start_reading(self) -> None:
        self._start(self._read_out)

    def stop_reading(self) -> None:
        """The pipe is closed as soon as the reading thread has got one more line."""
        assert self.process.stdout
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, self.process.stdout.fileno())
        os.close(null)

    def _read_out(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _read_err(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.stderr += line

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: object) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def request(self, method: str, params: dict[str, Any] | None = None) -> int:
        self.last_id += 1
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return self.last_id

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def call(self, tool: str, token: object = None, **arguments: object) -> int:
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return self.request("tools/call", params)

    def receive(self, timeout: float = 20) -> dict[str, Any]:
        line = self.lines.get(timeout=timeout * self.slowness)
        assert line is not None, f"the server ended: {self.stderr.decode()}"
        message = json.loads(line)
        assert isinstance(message, dict) and message["jsonrpc"] == "2.0"
        return message

    def answer(self, id: object, timeout: float = 20) -> dict[str, Any]:
        """The answer to a request; nothing else may come before it."""
        message = self.receive(timeout)
        assert message.get("id") == id, message
        return message

    def initialize(self, version: str = "2025-11-25", **capabilities: object) -> dict[str, Any]:
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}
        result = self.answer(self.request("initialize", params))["result"]
        self.notify("notifications/initialized")
        return result

    def result(self, id: object, timeout: float = 20) -> dict[str, Any]:
        return self.answer(id, timeout)["result"]

    def ask(self, tool: str, **arguments: object) -> str:
        """The text of a call, whose answer comes next."""
        result = self.result(self.call(tool, **arguments))
        assert not result["isError"], result
        return text_of(result)

    def fails(self, tool: str, **arguments: object) -> str:
        result = self.result(self.call(tool, **arguments))
        assert result["isError"], result
        return text_of(result)

    def wait(self, timeout: float = 8) -> int:
        status = self.process.wait(timeout * self.slowness)
        self.threads[0].join(self.slowness)  # the end of its standard error
        return status

    def close_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def end(self) -> None:
        """End all processes of the test. A server that does not end at the end of its input is a failure."""
        with contextlib.suppress(OSError):
            self.close_input()
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)
            raise
        finally:
            for thread in self.threads:
                thread.join(5)


def text_of(result: Any) -> str:
    """The text blocks of a CallToolResult, as the SDK or as JSON."""
    blocks = result["content"] if isinstance(result, dict) else [b.model_dump() for b in result.content]
    return "\n".join(b["text"] for b in blocks if b["type"] == "text")


def children_named(parent: int, name: str) -> list[int]:
    """Children of the process with this in the name of their program."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (
                    name.encode() in (entry / "cmdline").read_bytes().split(b"\0")[0]
                    and f"\nPPid:\t{parent}\n" in (entry / "status").read_text()
                ):
                    found.append(int(entry.name))
    return found
