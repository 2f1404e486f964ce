"""`cellgate mcp serve --http` as a process, and clients of it made by hand."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from processes import eventually

BOTH = "application/json, text/event-stream"


class Unix(http.client.HTTPConnection):
    """A connection to a socket with a path."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Reply:
    """A response, whose events are read as they come."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self.response = connection.getresponse()
        self.status = self.response.status
        self.headers = self.response.headers
        self.streams = self.headers.get_content_type() == "text/event-stream"
        self.body = b"" if self.streams else self.response.read()
        self.comments: list[str] = []
        self.last_id: str | None = None

    @property
    def message(self) -> dict[str, Any]:
        """The one message of the response: its body, or what comes as the next event."""
        message = next(self.events()) if self.streams else json.loads(self.body)
        assert message["jsonrpc"] == "2.0"
        return message

    @property
    def error(self) -> str:
        return self.message["error"]["message"]

    def events(self) -> Iterator[dict[str, Any]]:
        data = ""
        for line in iter(self.response.readline, b""):
            field, _, value = line.decode().rstrip("\n").partition(":")
            if field == "data":
                data = value.strip()
            elif field == "id":
                self.last_id = value.strip()
            elif field == "" and value:
                self.comments.append(value.strip())
            elif data:
                yield json.loads(data)
                data = ""

    def close(self) -> None:
        """The client vanishes."""
        self.response.close()
        self.connection.close()


class Session:
    """One session of MCP; each request has a connection of its own unless `keep` is one."""

    def __init__(self, server: Server, version: str = "2025-11-25", **capabilities: object) -> None:
        self.server = server
        self.id = ""
        self.version = version
        self.last_id = 0
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}
        reply = self.post(self.message("initialize", params))
        assert reply.status == 200, reply.body
        self.result = reply.message["result"]
        self.id = reply.headers["Mcp-Session-Id"]
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202

    def message(self, method: str, params: object = None) -> dict[str, Any]:
        self.last_id += 1
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method}
        return message if params is None else {**message, "params": params}

    def headers(self, **more: str) -> dict[str, str]:
        own = {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.version} if self.id else {}
        return {**own, **{k.replace("_", "-"): v for k, v in more.items()}}

    def post(self, message: object, **headers: str) -> Reply:
        return self.server.post(message, self.headers(**headers))

    def begin(self, message: object, **headers: str) -> http.client.HTTPConnection:
        """Send a request without waiting for its response."""
        connection = self.server.connect()
        all_headers = self.server.headers(self.headers(**headers))
        connection.request("POST", "/mcp", json.dumps(message), {"Content-Type": "application/json", **all_headers})
        return connection

    def begin_endless(self, workspace: Path) -> http.client.HTTPConnection:
        """The same with a cell that runs until it is interrupted, once it runs."""
        code = "open('started', 'w').close()\nwhile True: pass"
        connection = self.begin(self.call_message("execute_ipython_cell", code=code))
        eventually((workspace / "started").exists)
        return connection

    def request(self, method: str, params: object = None, **headers: str) -> Reply:
        return self.post(self.message(method, params), **headers)

    def call_message(self, tool: str, token: object = None, **arguments: object) -> dict[str, Any]:
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return self.message("tools/call", params)

    def execute(self, code: str, token: object = None, **headers: str) -> Reply:
        return self.post(self.call_message("execute_ipython_cell", token, code=code), **headers)

    def call(self, tool: str, **arguments: object) -> Reply:
        return self.post(self.call_message(tool, **arguments))

    def text(self, code: str) -> str:
        """What a cell printed."""
        result = self.execute(code).message["result"]
        return "".join(b["text"] for b in result["content"])

    def answer(self, question: dict[str, Any], result: object) -> Reply:
        return self.post({"jsonrpc": "2.0", "id": question["id"], "result": result})

    def get(self, **headers: str) -> Reply:
        return self.server.request("GET", headers=self.headers(Accept="text/event-stream", **headers))

    def delete(self) -> Reply:
        return self.server.request("DELETE", headers=self.headers())


class Server:
    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str], slowness: float) -> None:
        self.timeout = 30 * slowness
        self.process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=(cwd / "log").open("a"), text=True
        )
        assert self.process.stdout
        self.log = cwd / "log"
        self.line = self.process.stdout.readline()
        assert self.line, self.log.read_text()
        self.url = re.findall(r"https?://[^\s,]+", self.line)[0]
        self.tls: ssl.SSLContext | None = None  # with https
        self.path = re.findall(r"unix:(\S+),", self.line)
        files = re.findall(r"token in (.+)$", self.line)
        self.token_file = Path(files[0].strip()) if files else None
        self.token = self.token_file.read_text().strip() if self.token_file else ""

    def connect(self) -> http.client.HTTPConnection:
        if self.path:
            return Unix(self.path[0], self.timeout)
        address = urlsplit(self.url).netloc
        if self.tls:
            return http.client.HTTPSConnection(address, timeout=self.timeout, context=self.tls)
        return http.client.HTTPConnection(address, timeout=self.timeout)

    def connect_raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.connect().port), self.timeout)

    def request(
        self, method: str, path: str = "/mcp", body: bytes | None = None, headers: dict[str, str | None] | None = None
    ) -> Reply:
        connection = self.connect()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a refusal may come before all was sent
            connection.request(method, path, body, self.headers(headers or {}))
        return Reply(connection)

    def headers(self, headers: dict[str, Any]) -> dict[str, str]:
        """With the token; those of None are left out."""
        given = {"Authorization": f"Bearer {self.token}", **headers}
        return {k: v for k, v in given.items() if v is not None}

    def post(self, message: object, headers: dict[str, Any] | None = None) -> Reply:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.request(
            "POST", "/mcp", body, {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})}
        )

    def sessions(self) -> int:
        return json.loads(self.request("GET", "/health").body)["sessions"]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(self.timeout)
