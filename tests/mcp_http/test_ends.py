"""How sessions and the server end, and what its processes may do."""

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp_http.helpers import Server, Session
from processes import alive, children, descendants, eventually, name_of, words

pytestmark = pytest.mark.own_supervisor  # ends with the server

Serve = Callable[..., Server]


def front(server: Server) -> int:
    return next(p for p in children(server.process.pid) if b"--front" in words(p))


def session_processes(server: Server) -> list[int]:
    return [p for p in children(server.process.pid) if p != front(server)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_a_session_process_is_the_answer(serve: Serve, workspace: Path, number: int) -> None:
    server = serve()
    session, other = Session(server), Session(server)
    pending = session.begin_endless(workspace)
    stream = session.get()
    os.kill(min(session_processes(server)), number)
    answer = json.loads(pending.getresponse().read())
    assert "variables and imports are lost" in json.dumps(answer)
    assert list(stream.events()) == []
    assert session.request("ping").status == 404
    assert other.text("1") == "1" and server.sessions() == 1


def test_a_session_whose_process_does_not_start(serve: Serve, tmp_path: Path, mcp_file: Path) -> None:
    server = serve("--mcp", mcp_file)
    mcp_file.write_text("{")
    reply = server.post(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    )
    assert "exit status 2" in reply.error and "Mcp-Session-Id" not in reply.headers
    assert str(mcp_file) in server.log.read_text()
    assert server.sessions() == 0


def test_initialize_without_a_version_leaves_no_session(serve: Serve) -> None:
    server = serve()
    reply = server.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    assert reply.message["error"]["code"] == -32602 and "Mcp-Session-Id" not in reply.headers
    assert server.sessions() == 0
    eventually(lambda: not session_processes(server))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_in_order(serve: Serve, workspace: Path, number: int) -> None:
    server = serve()
    session = Session(server)
    pending = session.begin_endless(workspace)
    processes = [server.process.pid, *descendants(server.process.pid)]
    assert len(processes) > 4
    assert server.end(number) == 128 + number
    assert "being stopped" in json.dumps(json.loads(pending.getresponse().read()))
    eventually(lambda: not any(alive(p) for p in processes))


@pytest.mark.parametrize("whom", ["monitor", "front"])
def test_without_one_of_the_two_all_end(serve: Serve, workspace: Path, whom: str) -> None:
    server = serve()
    session = Session(server)
    session.begin_endless(workspace)
    processes = [server.process.pid, *descendants(server.process.pid)]
    os.kill(server.process.pid if whom == "monitor" else front(server), signal.SIGKILL)
    assert server.process.wait(server.timeout) == (-signal.SIGKILL if whom == "monitor" else 1)
    eventually(lambda: not any(alive(p) for p in processes))


def test_requests_that_are_not_answered_have_a_limit(serve: Serve) -> None:
    session = Session(serve())
    (process,) = session_processes(session.server)
    os.kill(process, signal.SIGSTOP)
    waiting = [session.begin(session.message("ping")) for _ in range(100)]
    over = session.request("ping")
    assert over.status == 429 and over.headers["Retry-After"] == "1" and "100 requests" in over.error
    os.kill(process, signal.SIGCONT)
    assert all(json.loads(c.getresponse().read())["result"] == {} for c in waiting)
    assert session.request("ping").status == 200


def test_connections_of_clients_that_vanish_in_a_request_are_closed(serve: Serve) -> None:
    server = serve()
    session = Session(server)
    folder = Path(f"/proc/{front(server)}/fd")
    before = len(list(folder.iterdir()))
    headers = server.headers({**session.headers(), "Content-Type": "application/json", "Content-Length": "50"})
    head = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
    for request in ("POST", "POST /mcp HTTP/1.1\r\n", f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{{"):
        for _ in range(20):
            with server.connect_raw() as s:
                s.sendall(request.encode())
    eventually(lambda: len(list(folder.iterdir())) <= before)
    assert session.text("1") == "1"


@pytest.mark.no_sanitizer  # its runtime needs what the filter forbids
def test_the_front_has_no_rights(serve: Serve) -> None:
    server = serve()
    Session(server)
    pid = front(server)
    status = dict(re.findall(r"^(\w+):\s+(.+)$", Path(f"/proc/{pid}/status").read_text(), re.M))
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2" and int(status["CapEff"], 16) == 0
    assert name_of(pid) == "cg-mcp-front"
    links = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
    assert {re.split(r"[:\[]", x)[0] for x in links if not x.startswith(("/dev/null", str(server.log)))} <= {
        "socket",
        "anon_inode",
    }
    # Nor do the processes of sessions have what is the front's: the listening socket, and each other's.
    (process,) = session_processes(server)
    mine = {os.readlink(f"/proc/{process}/fd/{n}") for n in os.listdir(f"/proc/{process}/fd")}
    assert not {x for x in links if x.startswith("socket")} & mine


def test_a_cell_cannot_be_a_client(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    session = Session(server)
    assert server.token_file and "No such file" in session.text(f"open({str(server.token_file)!r})")
    port = server.connect().port
    assert "Error" in session.text(f"import socket; socket.create_connection(('127.0.0.1', {port}))")
    path = tmp_path / "mcp.sock"
    other = Session(serve(address=f"unix:{path}"))
    assert "Error" in other.text(f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})")


def test_sessions_wait_for_the_place_of_those_that_end(serve: Serve) -> None:
    server = serve("--max-sessions", "2")
    for _ in range(4):
        session = Session(server)
        assert session.request("ping").status == 200
        assert session.delete().status == 204
    eventually(lambda: not session_processes(server))
    assert server.sessions() == 0
