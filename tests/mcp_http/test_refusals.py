"""Each refusal, beside what is allowed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_http.helpers import Reply, Server, Session
from processes import eventually, gate

Serve = Callable[..., Server]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}

HEADERS: list[tuple[dict[str, str | None], int]] = [
    ({}, 200),
    ({"Host": "localhost:1"}, 200),
    ({"Host": "[::1]"}, 200),
    ({"Host": "127.0.0.2"}, 200),
    ({"Host": "evil.example.com"}, 421),
    ({"Host": "127.0.0.1.example.com"}, 421),
    ({"Host": "localhost.example.com:80"}, 421),
    ({"Host": "192.0.2.1"}, 421),
    ({"Host": ""}, 421),
    ({"Origin": "http://localhost:6274"}, 200),
    ({"Origin": "https://127.0.0.1"}, 200),
    ({"Origin": "https://allowed.example.com"}, 200),
    ({"Origin": "https://allowed.example.com:444"}, 403),
    ({"Origin": "http://allowed.example.com"}, 403),
    ({"Origin": "https://evil.example.com"}, 403),
    ({"Origin": "https://localhost.example.com"}, 403),
    ({"Origin": "http://localhost@evil.example.com"}, 403),
    ({"Origin": "chrome-extension://localhost"}, 403),
    ({"Origin": "null"}, 403),
    ({"Authorization": None}, 401),
    ({"Authorization": "Bearer "}, 401),
    ({"Authorization": "Basic x"}, 401),
    ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "application/jsonx"}, 415),
    ({"Content-Type": None}, 415),
    ({"Content-Type": "application/json; charset=utf-8"}, 200),
    ({"Accept": "text/html"}, 406),
    ({"Accept": "text/event-stream"}, 406),
    ({"Accept": "*/*"}, 200),
    ({"Accept": None}, 200),
    ({"MCP-Protocol-Version": "2026-07-29"}, 400),
    ({"MCP-Protocol-Version": "2025-03-26"}, 200),
    ({"MCP-Protocol-Version": None}, 200),
    ({"Mcp-Session-Id": None}, 400),
    ({"Mcp-Session-Id": "0" * 32}, 404),
    ({"Mcp-Session-Id": ""}, 404),
    ({"X": "x" * (30 << 10)}, 200),
    ({"X": "x" * (33 << 10)}, 431),
]


@pytest.fixture(scope="module")
def module_session(tmp_path_factory: pytest.TempPathFactory, cellgate: Path, slowness: float) -> Any:
    folder = tmp_path_factory.mktemp("headers")
    argv = ["mcp", "serve", "--http", "127.0.0.1:0", "--allow-origin", "https://allowed.example.com"]
    server = Server([str(cellgate), *argv], folder, dict(os.environ), slowness)
    yield Session(server)
    server.end()


@pytest.mark.parametrize(("headers", "status"), HEADERS, ids=lambda v: str(v)[:60])
def test_headers(module_session: Session, headers: dict[str, str | None], status: int) -> None:
    session = module_session
    reply = session.server.post(PING, {**session.headers(), **headers})
    assert reply.status == status
    if status != 431:  # libmicrohttpd's own
        assert ("error" in reply.message) is (status != 200)
    assert ("WWW-Authenticate" in reply.headers) is (status == 401)


@pytest.mark.parametrize("token", ["x", "", "-"])
def test_a_wrong_token(module_session: Session, token: str) -> None:
    right = module_session.server.token
    wrong = {"x": right[:-1] + ("0" if right[-1] != "0" else "1"), "": right[:-1], "-": right + "0"}[token]
    reply = module_session.server.post(PING, {**module_session.headers(), "Authorization": f"Bearer {wrong}"})
    assert reply.status == 401 and "token" in reply.error and right not in reply.error


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/mcp/", 404), ("PUT", "/mcp", 405), ("POST", "/health", 405), ("GET", "/mcp", 406)],
)
def test_methods_and_paths(module_session: Session, method: str, path: str, status: int) -> None:
    headers = {**module_session.headers(), "Accept": "application/json", "Content-Type": "application/json"}
    reply = module_session.server.request(method, path, b"{}" if method in ("POST", "PUT") else None, headers)
    assert reply.status == status and reply.error


DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%s%s}}'
BODIES = [
    (b"", -32700),
    (b"{", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping"} x', -32700),
    (b"\xff\xfe", -32700),
    (DEEP % (b"[" * 199, b"]" * 199), -32700),
    (DEEP % (b"[" * 100000, b"]" * 100000), -32700),
    (json.dumps([PING]).encode(), -32600),
    (b"{}", -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600),
]


@pytest.mark.parametrize(("body", "code"), BODIES, ids=range(len(BODIES)))
def test_bodies(module_session: Session, body: bytes, code: int) -> None:
    reply = module_session.post(body)
    assert reply.status == 400 and reply.message["error"]["code"] == code
    assert module_session.post(DEEP % (b"[" * 198, b"]" * 198)).message["result"] == {}


def test_a_page_that_may_use_the_server_may_read_its_responses(module_session: Session) -> None:
    origin = "https://allowed.example.com"
    asked = module_session.server.request("OPTIONS", headers={"Origin": origin, "Authorization": None})
    assert asked.status == 204 and "Authorization" in asked.headers["Access-Control-Allow-Headers"]
    for reply in (asked, module_session.post(PING, Origin=origin)):
        assert reply.headers["Access-Control-Allow-Origin"] == origin
    assert module_session.server.request("OPTIONS", headers={"Origin": "https://x.example.com"}).status == 403
    assert "Access-Control-Allow-Origin" not in module_session.post(PING).headers


def send(server: Server, data: bytes) -> bytes:
    """All that comes back for these bytes, until the server closes the connection."""
    with server.connect_raw() as s:
        s.sendall(data)
        return b"".join(iter(lambda: s.recv(65536), b""))


def head(session: Session, *more: str) -> bytes:
    server = session.server
    headers = server.headers({**session.headers(), "Host": "localhost", "Content-Type": "application/json"})
    lines = ["POST /mcp HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), *more, "", ""]
    return "\r\n".join(lines).encode()


def test_too_large_bodies(module_session: Session) -> None:
    declared = send(module_session.server, head(module_session, f"Content-Length: {(64 << 20) + 1}"))
    assert declared.startswith(b"HTTP/1.1 413 ") and b"64 MiB" in declared
    body = json.dumps(PING).encode()
    padded = body + b" " * ((64 << 20) - len(body))
    assert module_session.post(padded).status == 200
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    chunked = head(module_session, "Transfer-Encoding: chunked", "Connection: close") + chunk * 65 + b"0\r\n\r\n"
    assert send(module_session.server, chunked).startswith(b"HTTP/1.1 413 ")


@pytest.mark.slow
def test_a_slow_head_is_refused(module_session: Session) -> None:
    assert send(module_session.server, b"POST /mcp HTT").startswith(b"HTTP/1.1 408 ")
    assert send(module_session.server, b"").startswith(b"HTTP/1.1 408 ")


def test_connections_have_a_limit(serve: Serve) -> None:
    session = Session(serve())
    server = session.server
    kept = [server.connect_raw() for _ in range(1024)]
    eventually(lambda: server.request("GET", "/health").status == 503)
    reply = server.request("GET", "/health")
    assert reply.headers["Retry-After"] == "5" and "too many connections" in reply.error
    for s in kept:
        s.close()
    eventually(lambda: server.request("GET", "/health").status == 200)
    assert session.text("1") == "1"


def test_requests_of_a_session_have_a_limit(serve: Serve, workspace: Path) -> None:
    session = Session(serve())
    go = gate(workspace)
    waiting = [session.begin(session.call_message("execute_ipython_cell", code="open('go').read()"))]
    waiting += [session.begin(session.call_message("execute_ipython_cell", code="1")) for _ in range(63)]
    # The session process answers those beyond its queue at once, so that the rest are taken by what it does not answer.
    eventually(lambda: "error" in session.execute("1").message)
    go()
    assert all(json.loads(c.getresponse().read())["result"] for c in waiting)


def test_sessions_have_a_limit(serve: Serve) -> None:
    server = serve("--max-sessions", "2")
    first, _ = Session(server), Session(server)
    reply = server.post(INITIALIZE)
    assert reply.status == 503 and "all 2 sessions" in reply.error and first.id[:8] in reply.error
    assert first.id not in reply.error
    first.delete()
    assert Session(server).text("1") == "1"


def initialize(server: Server, name: str) -> Reply:
    message = json.loads(json.dumps(INITIALIZE))
    message["params"]["clientInfo"]["name"] = name
    return server.post(message)


def test_one_client_does_not_take_all_places(serve: Serve) -> None:
    """Clients of one token are those of one name."""
    server = serve("--max-sessions-per-client", "2")
    first = initialize(server, "forgetful")
    assert first.status == initialize(server, "forgetful").status == 200
    reply = initialize(server, "forgetful")
    id = first.headers["Mcp-Session-Id"]
    assert reply.status == 503 and "this client has 2 sessions" in reply.error and f"{id[:8]}..." in reply.error
    assert id not in reply.error and server.sessions() == 2
    assert initialize(server, "other").status == 200
    session = Session(server)
    session.id = id
    assert session.delete().status == 204 and initialize(server, "forgetful").status == 200


def test_eight_by_default(serve: Serve) -> None:
    server = serve()
    assert [initialize(server, "one").status for _ in range(9)] == [200] * 8 + [503]


def test_an_idle_session_ends_and_one_with_a_cell_does_not(serve: Serve, workspace: Path) -> None:
    server = serve("--idle", "1")
    idle, listening, busy = Session(server), Session(server), Session(server)
    stream = listening.get()
    go = gate(workspace)
    call = busy.begin(busy.call_message("execute_ipython_cell", code="open('go').read()\n3"))
    eventually(lambda: server.sessions() == 2)
    assert idle.request("ping").status == 404
    go()
    assert json.loads(call.getresponse().read())["result"]["content"][0]["text"] == "3"
    assert listening.text("1") == "1"
    stream.close()
    eventually(lambda: server.sessions() == 0)


def test_a_session_whose_cell_outlives_its_call_does_not_end(serve: Serve, workspace: Path) -> None:
    server = serve("--idle", "1", "--wait", "0.1")
    idle, busy = Session(server), Session(server)
    go = gate(workspace)
    assert "cell-1" in busy.execute("open('go').read()").message["result"]["content"][0]["text"]
    eventually(lambda: server.sessions() == 1)
    assert idle.request("ping").status == 404 and busy.request("ping").status == 200
    go()
    eventually(lambda: server.sessions() == 0)
