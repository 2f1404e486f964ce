"""An MCP server over HTTP with every bad habit, for the tests of the client: a thread for each connection. Standard
library only; TLS where a certificate is given.

The class Server runs in the test's process. What it was sent stands in `requests`; `habits` say how it answers.
"""

import base64
import contextlib
import json
import queue
import socket
import ssl
import threading
import time
from typing import Any

TOOLS = ["echo", "slow", "hang", "cut", "big", "stream_cut", "resume", "ask", "rounds", "unknown_type", "is_error",
         "no_answer", "half", "text", "http_error", "change", "two", "flood", "drip", "raw"]  # fmt: skip


class Request:
    """One request as it came."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes, connection: int) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.connection = connection
        self.message: Any = json.loads(body) if body and "json" in headers["content-type"] else None

    def rpc(self) -> str | None:
        return self.message.get("method") if isinstance(self.message, dict) else None


class Server:
    def __init__(self, tls: ssl.SSLContext | None = None, **habits: Any) -> None:
        self.habits = habits
        self.tls = tls
        self.requests: list[Request] = []
        self.connections = 0
        self.sessions: set[str] = set()
        self.n_sessions = 0
        self.listening: list[queue.Queue[bytes | None]] = []  # streams opened by GET
        self.closed = threading.Event()  # a client closed the stream of a call
        self.answers: queue.Queue[Any] = queue.Queue()  # responses and answers that the client sent
        self.asking: object = None  # the call that waits for an answer of the client
        self.kept: dict[str, bytes] = {}  # answers that a GET with Last-Event-ID brings
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.sock.getsockname()[1]
        self.base = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.url = self.base + habits.get("path", "/mcp")
        self.done = False
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self) -> None:
        self.done = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        for q in self.listening:
            q.put(None)

    def methods(self) -> list[str]:
        """What it was sent, in short."""
        return [r.rpc() or r.method for r in self.requests]

    def calls(self, tool: str) -> list[Request]:
        return [r for r in self.requests if r.rpc() == "tools/call" and r.message["params"]["name"] == tool]

    # -- HTTP

    def accept(self) -> None:
        while not self.done:
            try:
                c, _ = self.sock.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.connection, args=(c, self.connections), daemon=True).start()

    def connection(self, c: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), c:
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                c = self.tls.wrap_socket(c, server_side=True)
            f = c.makefile("rb")
            while line := f.readline():
                method, path, _ = line.decode().split()
                headers = {}
                while (line := f.readline()) not in (b"\r\n", b""):
                    name, _, value = line.decode().partition(":")
                    assert name.lower() not in headers
                    headers[name.lower()] = value.strip()
                r = Request(method, path, headers, f.read(int(headers.get("content-length", 0))), number)
                self.requests.append(r)
                self.serve(c, r)

    def reply(self, c: socket.socket, status: int, body: bytes = b"", type: str = "application/json",
              **headers: str) -> None:  # fmt: skip
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n"
        head += f"Content-Type: {type}\r\n" if body else ""
        head += "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
        c.sendall(head.encode() + b"\r\n" + body)

    def stream(self, c: socket.socket, **headers: str) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
        head += "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
        c.sendall(head.encode() + b"\r\n")

    def chunk(self, c: socket.socket, data: bytes) -> None:
        c.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n" if data else b"0\r\n\r\n")

    @staticmethod
    def event(message: object, id: str = "") -> bytes:
        return (
            (f"id: {id}\n" if id else "").encode() + b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"
        )

    # -- MCP

    def serve(self, c: socket.socket, r: Request) -> None:
        h = self.habits
        if h.get("status"):
            self.reply(c, h["status"], h.get("body", b""), **h.get("headers", {}))
        elif r.path in h.get("redirect", {}):
            status, location = h["redirect"][r.path]
            self.reply(c, status, Location=location)
        elif h.get("sse"):
            self.serve_sse(c, r)
        elif r.method == "GET":
            self.serve_get(c, r)
        elif r.method == "DELETE":
            self.sessions.discard(r.headers.get("mcp-session-id", ""))
            self.reply(c, 200)
        elif h.get("modern"):
            self.serve_modern(c, r)
        else:
            self.serve_legacy(c, r)

    def serve_legacy(self, c: socket.socket, r: Request) -> None:
        session = r.headers.get("mcp-session-id")
        if self.habits.get("legacy_post") and r.rpc() != "initialize" and not session:
            self.reply(c, self.habits["legacy_post"])
            return
        if r.rpc() == "initialize":
            assert "mcp-protocol-version" not in r.headers and not session
            self.n_sessions += 1
            name = self.habits.get("session", f"session-{self.n_sessions}")
            self.sessions.add(name)
            self.answer(c, r, {"protocolVersion": self.habits.get("version", "2025-06-18"),
                               "capabilities": self.capabilities(),
                               "serverInfo": {"name": "fake", "version": "1"}},
                        Mcp_Session_Id=name)  # fmt: skip
            return
        if not session:
            error = {"jsonrpc": "2.0", "error": {"code": -32000, "message": "Server not initialized"}, "id": None}
            self.reply(c, 400, json.dumps(error).encode())
            return
        assert r.headers["mcp-protocol-version"] == self.habits.get("version", "2025-06-18")
        assert set(x.strip() for x in r.headers["accept"].split(",")) == {"application/json", "text/event-stream"}
        if session not in self.sessions:
            self.reply(c, 404, b'{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}')
        elif "id" not in r.message or not r.rpc():
            if r.rpc() == "notifications/initialized":
                time.sleep(self.habits.get("slow_initialized", 0))
            else:
                self.answers.put(r.message)
            self.reply(c, 202)
        else:
            self.request(c, r)

    def serve_modern(self, c: socket.socket, r: Request) -> None:
        m = r.message
        meta = m["params"]["_meta"]
        assert r.headers["mcp-method"] == m["method"]
        assert r.headers["mcp-protocol-version"] == meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert "mcp-session-id" not in r.headers and "io.modelcontextprotocol/clientCapabilities" in meta
        name = m["params"].get("name", m["params"].get("uri"))
        if name and (not name.isascii() or name != name.strip() or name.startswith("=?base64?")):
            name = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
        assert r.headers.get("mcp-name") == name
        if m["method"] == "server/discover":
            self.answer(c, r, {"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0,
                               "cacheScope": "private", "capabilities": self.capabilities()})  # fmt: skip
        elif m["method"] == "subscriptions/listen":
            q: queue.Queue[bytes | None] = queue.Queue()
            self.listening.append(q)
            self.stream(c)
            names = self.habits.get("acknowledges")
            agreed = m["params"]["notifications"] if names is None else {f"{n}ListChanged": True for n in names}
            self.chunk(c, self.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                                      "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": m["id"]},
                                                 "notifications": agreed}}))  # fmt: skip
            while (data := q.get()) is not None:
                self.chunk(c, data)
            self.chunk(c, b"")
        else:
            self.request(c, r)

    def capabilities(self) -> dict[str, Any]:
        names = ("tools", *self.habits.get("offers", []))
        announced = self.habits.get("announces", () if self.habits.get("silent") else names)
        return {n: {"listChanged": n in announced} for n in names}

    def answer(self, c: socket.socket, r: Request, result: object, **headers: str) -> None:
        message = {"jsonrpc": "2.0", "id": r.message["id"], "result": result}
        if self.habits.get("streams"):
            self.stream(c, **headers)
            self.chunk(c, b": a comment\r\n\r\n" + self.event(message))
            self.chunk(c, b"")
        else:
            self.reply(c, 200, json.dumps(message).encode(), **headers)

    def request(self, c: socket.socket, r: Request) -> None:
        m = r.message
        if m["method"] == "tools/list":
            tools = [{"name": t, "inputSchema": {"type": "object"}} for t in TOOLS] + self.habits.get("tools", [])
            self.answer(c, r, {"tools": tools,
                               **({"resultType": "complete"} if self.habits.get("modern") else {})})  # fmt: skip
        elif m["method"] == "tools/call":
            self.call(c, r, m["params"]["name"], m["params"]["arguments"])
        elif m["method"] in ("resources/list", "prompts/list"):
            kind = m["method"].partition("/")[0]
            items = {"resources": [{"uri": "test://a", "name": "a"}], "prompts": [{"name": "say"}, {"name": "rounds"}]}
            more = {"resultType": "complete", "ttlMs": self.habits.get("ttl", 60_000), "cacheScope": "private"}
            self.answer(c, r, {kind: items[kind], **(more if self.habits.get("modern") else {})})
        elif m["method"] in ("resources/read", "prompts/get"):
            self.other(c, r, m["params"])
        else:
            raise AssertionError(m)

    def other(self, c: socket.socket, r: Request, params: dict[str, Any]) -> None:
        """A resource or a prompt. Those that end in "rounds" ask twice."""
        name = params.get("uri") or params["name"]
        text = json.dumps({k: v for k, v in params.items() if k != "_meta"})
        done: dict[str, Any] = {"contents": [{"uri": name, "text": text}]}
        if "name" in params:
            done = {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        n = int(params.get("requestState", 0))
        if name.endswith("rounds") and n < 2:
            asked = {"q": {"method": "elicitation/create", "params": {"message": "sure?"}}}
            self.answer(c, r, {"resultType": "input_required", "inputRequests": asked, "requestState": str(n + 1)})
        elif name.endswith("surprise"):
            self.answer(c, r, {**done, "resultType": "surprise"})
        elif name.endswith("change"):
            for q in self.listening:
                q.put(self.event({"jsonrpc": "2.0", "method": "notifications/resources/list_changed", "params": {}}))
            self.answer(c, r, {**done, "resultType": "complete"})
        else:
            self.answer(c, r, {**done, **({"resultType": "complete"} if self.habits.get("modern") else {})})

    def call(self, c: socket.socket, r: Request, name: str, arguments: Any) -> None:
        m = r.message
        done = {"content": [{"type": "text", "text": json.dumps(arguments)}]}
        if self.habits.get("modern"):
            done["resultType"] = "complete"
        if name == "echo":
            self.answer(c, r, done)
        elif name == "slow":
            time.sleep(arguments["seconds"])
            self.answer(c, r, done)
        elif name == "hang":
            self.stream(c)
            with contextlib.suppress(OSError):
                c.recv(1)
            self.closed.set()
            raise OSError
        elif name == "cut":
            c.close()
            raise OSError
        elif name == "half":
            c.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"jsonrpc":')
            c.close()
            raise OSError
        elif name == "big":
            self.answer(c, r, {"content": [{"type": "text", "text": "b" * arguments["size"]}]})
        elif name == "text":
            self.reply(c, 200, b"<html>welcome</html>", "text/html")
        elif name == "no_answer":
            self.reply(c, 200, b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}')
        elif name == "raw":  # "ID" is the call's own
            raw = arguments["line"].encode("latin-1").replace(b"ID", str(m["id"]).encode())
            if self.habits.get("streams"):
                self.stream(c)
                self.chunk(c, b"data: " + raw + b"\n\n")
                self.closed.wait(60)
            else:
                self.reply(c, 200, raw)
        elif name == "http_error":
            self.reply(c, arguments["status"], arguments.get("body", "").encode(), arguments.get("type", "text/plain"))
        elif name == "stream_cut":  # a stream without ids: it cannot be taken up again
            self.stream(c)
            self.chunk(c, self.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}))
            c.close()
            raise OSError
        elif name == "resume":  # as a server does that closes the stream and lets the client ask again
            self.kept["at-1"] = self.event({"jsonrpc": "2.0", "id": m["id"], "result": done}, "at-2")
            self.stream(c)
            self.chunk(c, f"id: at-1\nretry: {arguments.get('retry', 100)}\ndata:\n\n".encode())
            self.asked = time.monotonic()
            if arguments.get("cut"):
                c.close()
                raise OSError
            self.chunk(c, b"")
        elif name == "ask":
            self.stream(c)
            self.chunk(c, self.event({"jsonrpc": "2.0", "id": "q1", "method": "ping"}))
            self.chunk(c, self.event({"jsonrpc": "2.0", "id": 9, "method": "sampling/createMessage", "params": {}}))
            got = sorted((self.answers.get(timeout=10) for _ in range(2)), key=lambda a: str(a["id"]))
            done["content"][0]["text"] = json.dumps(got)
            self.chunk(c, self.event({"jsonrpc": "2.0", "id": m["id"], "result": done}))
            self.chunk(c, b"")
        elif name == "rounds":
            n = int(m["params"].get("requestState", "0 \u00e9").split()[0])
            if n < arguments["rounds"]:
                asked = {"q\u00e9": {"method": "elicitation/create", "params": {"message": "sure?"}},
                         "r": {"method": "roots/list"}}  # fmt: skip
                self.answer(c, r, {"resultType": "input_required", "inputRequests": asked,
                                   "requestState": f"{n + 1} \u00e9\"\\/"})  # fmt: skip
            else:
                done["content"][0]["text"] = json.dumps(m["params"].get("inputResponses"))
                self.answer(c, r, done)
        elif name == "unknown_type":
            self.answer(c, r, {**done, "resultType": "surprise"})
        elif name == "flood":
            self.stream(c)
            ping = self.event({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            for _ in range(arguments["times"]):
                self.chunk(c, ping * 100)
            self.chunk(c, self.event({"jsonrpc": "2.0", "id": m["id"], "result": done}))
            self.chunk(c, b"")
        elif name == "drip":  # a byte at a time
            body = json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": done}).encode()
            c.sendall(
                f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            )
            for byte in body:
                c.sendall(bytes([byte]))
                time.sleep(arguments["seconds"] / len(body))
        elif name == "change":
            params = {"_meta": {"io.modelcontextprotocol/subscriptionId": 0}} if arguments.get("other") else {}
            for q in self.listening:
                q.put(self.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": params}))
            self.answer(c, r, done)
        elif name == "two":  # the answer, and a stream that stays open
            self.stream(c)
            self.chunk(c, self.event({"jsonrpc": "2.0", "id": m["id"], "result": done}))
            with contextlib.suppress(OSError):
                c.recv(1)
            raise OSError
        else:
            self.answer(c, r, {"content": [], "isError": True})

    def serve_get(self, c: socket.socket, r: Request) -> None:
        last = r.headers.get("last-event-id")
        if last in self.kept:
            self.waited = time.monotonic() - self.asked
            self.stream(c)
            self.chunk(c, self.kept.pop(last))
            self.chunk(c, b"")
        elif last or not self.habits.get("get"):
            self.reply(c, 405)
        else:
            q: queue.Queue[bytes | None] = queue.Queue()
            self.listening.append(q)
            self.stream(c)
            while (data := q.get()) is not None:
                self.chunk(c, data)
            self.chunk(c, b"")

    # -- HTTP+SSE of 2024-11-05

    def serve_sse(self, c: socket.socket, r: Request) -> None:
        if r.method == "GET":
            q: queue.Queue[bytes | None] = queue.Queue()
            self.listening = [q]
            self.stream(c)
            endpoint = self.habits.get("endpoint", "messages?session=1")
            self.chunk(c, f"event: endpoint\r\ndata: {endpoint}\r\n\r\n".encode())
            while (data := q.get()) is not None:
                self.chunk(c, data)
            c.close()
            raise OSError
        if not r.path.startswith("/messages"):
            self.reply(c, 405)
            return
        m = r.message
        if "method" not in m:  # the answer to our question
            m = {"id": self.asking, "method": "", "params": {"arguments": m}}
        if m["method"] == "initialize":
            result: object = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}}
        elif m["method"] == "tools/list":
            result = {"tools": [{"name": t, "inputSchema": {"type": "object"}} for t in TOOLS]}
        elif m["method"] == "tools/call" and m["params"]["name"] == "cut":
            self.listening[0].put(None)
            result = None
        elif m["method"] == "tools/call" and m["params"]["name"] == "raw":
            raw = m["params"]["arguments"]["line"].encode("latin-1").replace(b"ID", str(m["id"]).encode())
            self.listening[0].put(b"data: " + raw + b"\n\n")
            result = None
        elif m["method"] == "tools/call" and m["params"]["name"] == "hang":
            result = None
        elif m["method"] == "tools/call" and m["params"]["name"] == "ask":
            self.asking = m["id"]
            sample = {"jsonrpc": "2.0", "id": "q1", "method": "sampling/createMessage", "params": {}}
            self.listening[0].put(self.event(sample))
            result = None
        else:
            result = {"content": [{"type": "text", "text": json.dumps(m.get("params", {}).get("arguments"))}]}
        self.reply(c, 202, b"Accepted", "text/plain")
        if "id" in m and result:
            self.listening[0].put(self.event({"jsonrpc": "2.0", "id": m["id"], "result": result}))
