"""`--sse`: HTTP+SSE, the transport of MCP's revision 2024-11-05."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import token_issuer
from mcp_http.helpers import Reply, Server, Session
from mcp_http.test_clients import CODE
from mcp_http.test_ends import Serve, session_processes
from mcp_http.test_refusals import INITIALIZE
from processes import eventually
from rounds import with_peers

HERE = Path(__file__).parent


class Stream:
    """A session by hand: the stream of GET /sse, and messages to where it leads."""

    def __init__(self, server: Server, **headers: str | None) -> None:
        self.server = server
        self.reply = server.request("GET", "/sse", headers={"Accept": "text/event-stream", **headers})
        assert self.reply.status == 200
        lines = iter(self.reply.response.readline, b"\n")
        event = dict(line.decode().strip().split(": ", 1) for line in lines)
        assert event["event"] == "endpoint"
        self.place = event["data"]
        self.messages: Iterator[dict[str, Any]] = self.reply.events()

    def post(self, message: object, place: str = "", **headers: str | None) -> Reply:
        body = json.dumps(message).encode()
        return self.server.request("POST", place or self.place, body, {"Content-Type": "application/json", **headers})

    def request(self, method: str, params: object = None, number: int = 1) -> dict[str, Any]:
        """The answer; what comes before it is lost."""
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        reply = self.post(message)
        assert reply.status == 202 and reply.body == b""
        return next(m for m in self.messages if m.get("id") == number)

    def initialize(self) -> dict[str, Any]:
        result = self.request("initialize", {**INITIALIZE["params"], "protocolVersion": "2024-11-05"})["result"]
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202
        return result

    def run(self, code: str, number: int) -> str:
        params = {"name": "execute_ipython_cell", "arguments": {"code": code}}
        return self.request("tools/call", params, number)["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", with_peers(["1.x", "2.x"], "2.x"))
def test_the_sdk(
    serve: Serve,
    mcp_file: Path,
    mark: Path,
    workspace: Path,
    npm_dir: Path,
    test_python: str,
    version: str,
    slowness: float,
) -> None:
    server = serve("--sse", "--mcp", mcp_file, "--approve", "ask")
    os.mkfifo(workspace / "go")
    python = {"1.x": str(npm_dir.parent / "servers-sdk1-env/bin/python"), "2.x": test_python}[version]
    argv = [python, str(HERE / "sdk_sse_client.py"), server.url.replace("/mcp", "/sse"), server.token, CODE]
    argv.append(str(workspace / "go"))
    p = subprocess.run(argv, capture_output=True, text=True, timeout=60 * slowness)
    assert p.returncode == 0, p.stderr
    report = json.loads(p.stdout)
    assert "execute_ipython_cell" in report["tools"] and report["state"] == ["(no output)", "42"]
    assert report["asked"] == "leave_mark: x" and mark.read_text() == "x\n"
    assert report["long"] == "first" and "first" in json.dumps(report["progress"])
    eventually(lambda: server.sessions() == 0)


def test_it_is_off_by_default(serve: Serve) -> None:
    server = serve()
    assert server.request("GET", "/sse", headers={"Accept": "text/event-stream"}).status == 404
    assert server.request("POST", "/messages", b"{}", {"Content-Type": "application/json"}).status == 404


def test_a_session_is_as_long_as_its_stream(serve: Serve, workspace: Path) -> None:
    server = serve("--sse")
    stream, other = Stream(server), Stream(server)
    assert stream.initialize()["protocolVersion"] == "2024-11-05" and other.initialize()
    assert stream.run("x = 1; x", 2) == "1" and other.run("'x' in globals()", 3) == "False"
    # Both transports at once; a session of one is none of the other's.
    session = Session(server)
    assert session.text("2") == "2" and server.sessions() == 3
    number = stream.place.partition("=")[2]
    ping = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
    assert server.post(ping, {"Mcp-Session-Id": number}).status == 404
    assert stream.post(ping, f"/messages?session_id={session.id}").status == 404
    assert stream.post(ping, f"/messages?session_id={'0' * 32}").status == 404
    assert stream.post(ping, "/messages").status == 400
    # Nor does its id of Python lead from one transport to the other.
    call = {"name": "execute_ipython_cell", "arguments": {"code": "x"}}
    python = stream.request("tools/call", call, 8)["result"]["structuredContent"]["session_id"]
    named = {"name": "execute_ipython_cell", "arguments": {"code": "x", "session_id": python}}
    assert server.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": named}).status == 400
    code = "open('started', 'w').close()\nwhile True: pass"
    call = {"name": "execute_ipython_cell", "arguments": {"code": code}}
    stream.post({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": call})
    eventually((workspace / "started").exists)
    stream.reply.close()
    eventually(lambda: server.sessions() == 2)
    eventually(lambda: len(session_processes(server)) == 2)
    assert other.run("4", 5) == "4"


def test_a_cancelled_request_has_no_answer(serve: Serve, workspace: Path) -> None:
    server = serve("--sse")
    stream = Stream(server)
    stream.initialize()
    code = "open('started', 'w').close()\nwhile True: pass"
    call = {"name": "execute_ipython_cell", "arguments": {"code": code}}
    stream.post({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
    eventually((workspace / "started").exists)
    stream.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
    stream.post({"jsonrpc": "2.0", "id": 3, "method": "ping"})
    assert [next(m for m in stream.messages if "id" in m)["id"]] == [3]
    assert stream.run("5", 4) == "5"


def test_a_call_outlives_the_time_after_which_others_without_a_reader_are_cancelled(serve: Serve) -> None:
    stream = Stream(serve("--sse"))
    stream.initialize()
    assert stream.run("import time; time.sleep(12); 'done'", 2) == "'done'"


def test_the_end_of_its_process_is_that_of_the_stream(serve: Serve) -> None:
    server = serve("--sse")
    stream = Stream(server)
    stream.initialize()
    server.process.terminate()
    assert list(stream.messages) == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Authorization": None}, 401),
        ({"Host": "example.org"}, 421),
        ({"Origin": "https://example.org"}, 403),
        ({"Accept": "application/json"}, 406),
    ],
)
def test_who_may_open_one(serve: Serve, headers: dict[str, str | None], status: int) -> None:
    server = serve("--sse")
    reply = server.request("GET", "/sse", headers={"Accept": "text/event-stream", **headers})
    assert reply.status == status and server.sessions() == (status == 200)
    stream = Stream(server)
    if status not in (200, 406):
        assert stream.post({}, **headers).status == status
    assert stream.post([]).status == 400 and stream.post({}).status == 400


def test_a_session_belongs_to_its_subject(serve: Serve) -> None:
    with token_issuer.running() as issuer:
        server = serve("--sse", "--oauth-issuer", issuer.url)
        issuer.audience = server.url
        server.token = issuer.token()
        stream = Stream(server)
        stream.initialize()
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert stream.post(ping, Authorization=f"Bearer {issuer.token(sub='bob')}").status == 404
        assert stream.post(ping, Authorization="Bearer x").status == 401
        assert stream.request("ping", number=3)["result"] == {}


def test_options(run_cellgate: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    p = run_cellgate("mcp", "serve", "--sse")
    assert p.returncode == 2 and "for --http only" in p.stderr
