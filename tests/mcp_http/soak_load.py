"""`cellgate mcp serve --http` under load: 50 clients at once, 500 sessions, and clients that do what they should not.

Run by scripts/soak. All clients are threads of this process, on the loopback; each stage has a number of requests. Processes
and descriptors are counted after a warm-up and at the end; what is written to CG_LOAD_FIGURES is for eyes.
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp_http.helpers import BOTH, Server, Session
from mcp_http.test_ends import front, session_processes
from mcp_http.test_stateless import CALL, Stateless
from mcp_serve.helpers import text_of
from mcp_serve.test_stateless import YES
from processes import descendants, eventually
from shared_supervisor import find_supervisors, runtime_folder

pytestmark = pytest.mark.timeout(900)

CLIENTS = 50
SESSIONS = 500
MIB = 1 << 20
Figures = dict[str, Any]


class Memory:
    """Bytes of one process that no other one has, and the most of them since it was begun."""

    def __init__(self, pid: int) -> None:
        self.pid, self.most, self.ended = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def now(self) -> int:
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))

    def watch(self) -> None:
        while not self.ended.wait(0.1):
            self.most = max(self.most, self.now())

    def __enter__(self) -> Memory:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()


class Load:
    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder

    def processes(self) -> list[int]:
        roots = [self.server.process.pid, *find_supervisors(self.folder)]
        return [p for root in roots for p in [root, *descendants(root)]]

    def count(self) -> Counter[str]:
        """Processes and descriptors, of each program."""
        found: Counter[str] = Counter()
        for pid in self.processes():
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                found[f"fds of {name}"] += len(os.listdir(f"/proc/{pid}/fd"))
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[name] += 1
        return found

    def settle(self, before: Counter[str]) -> None:
        deadline = time.monotonic() + 60
        while (more := self.count() - before) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not more, more

    def many(self, work: Callable[[int], Any], n: int, workers: int = CLIENTS) -> list[Any]:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(work, range(n)))


@pytest.fixture
def load(serve: Callable[..., Server], mcp_file: Path) -> Iterator[Load]:
    """A server whose sessions share a supervisor."""
    with runtime_folder() as folder:
        env = {"XDG_RUNTIME_DIR": str(folder), "CELLGATE_PRIVATE": ""}
        server = serve(
            "--mcp", mcp_file, "--approve", "ask", "--max-sessions", "64", "--max-sessions-per-client", "64", env=env
        )
        yield Load(server, folder)
        server.end()


def sessions(load: Load, n: int) -> Figures:
    """Each session has its own variables, and a result for each call."""

    def one(i: int) -> float:
        started = time.monotonic()
        session = Session(load.server)
        assert session.text(f"x = {i}; x") == str(i)
        assert session.text("x") == str(i)
        assert session.delete().status == 204
        return time.monotonic() - started

    started = time.monotonic()
    times = sorted(load.many(one, n))
    seconds = time.monotonic() - started
    return {
        "sessions": n,
        "seconds": round(seconds, 1),
        "median s": round(times[n // 2], 2),
        "most s": round(times[-1], 2),
    }


def concurrent_clients(load: Load) -> Figures:
    """All at once, each with 40 cells in its session."""
    barrier = threading.Barrier(CLIENTS)

    def one(i: int) -> list[float]:
        session = Session(load.server)
        barrier.wait()
        times = []
        for k in range(40):
            started = time.monotonic()
            assert session.text(f"x = {k} if {k} == 0 else x + {i}; x") == str(k * i)
            times.append(time.monotonic() - started)
        barrier.wait()
        session.delete()
        return times

    times = sorted(t for part in load.many(one, CLIENTS) for t in part)
    return {
        "cells": len(times),
        "median ms": round(times[len(times) // 2] * 1000, 1),
        "most ms": round(times[-1] * 1000),
    }


def vanishing_clients(load: Load) -> Figures:
    """Clients that vanish in mid-cell: the cell goes on, and its result is there."""

    def one(i: int) -> None:
        session = Session(load.server)
        code = f"import time\nfor k in range(20):\n    print({i}, k)\n    time.sleep(0.05)"
        connection = session.begin(session.call_message("execute_ipython_cell", code=code))
        eventually(lambda: "cell-1" in str(session.call("cell_status", execution_id="cell-1").message))
        connection.close()
        result = session.call("cell_result", execution_id="cell-1", wait=40).message["result"]
        assert text_of(result).split("\n")[:20] == [f"{i} {k}" for k in range(20)], result
        if i % 2:
            session.delete()
        else:  # in mid-cell, and nobody ends the session but this
            pending = session.begin(session.call_message("execute_ipython_cell", code="while True: pass"))
            session.delete()
            pending.close()

    load.many(one, CLIENTS)
    return {"clients": CLIENTS}


def slow_readers(load: Load) -> Figures:
    """Large answers that are not read: they wait in the front, within its limits, and arrive whole."""
    size = 3_900_000  # of characters: the most that a call may ask for is 4,000,000

    def one(_: int) -> None:
        session = Session(load.server)
        message = session.call_message("execute_ipython_cell", code=f"print('x' * {size})", max_output_chars=2 * size)
        body = json.dumps(message).encode()
        with load.server.connect_raw() as s:
            headers = {**session.headers(), "Content-Type": "application/json", "Accept": BOTH}
            headers |= {"Host": "localhost", "Content-Length": str(len(body)), "Connection": "close"}
            head = "".join(f"{k}: {v}\r\n" for k, v in load.server.headers(headers).items())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            s.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            time.sleep(3)
            got = 0
            while data := s.recv(65536):
                got += data.count(b"x")
        assert got >= 2 * size, got  # as text, and in structuredContent
        session.delete()

    with Memory(front(load.server)) as memory:
        load.many(one, 20, 20)
    # For each the line from its session, whose room is doubled until it fits, and the event.
    assert memory.most < 20 * (16 + 8) * MIB + 64 * MIB, memory.most
    return {"answers of 8 MiB at once": 20, "front's most MiB": memory.most >> 20}


def large_bodies(load: Load) -> Figures:
    """Bodies of 64 MiB: six at once in six sessions arrive; of twelve at once some are refused with 503."""
    sessions = [Session(load.server) for _ in range(6)]

    def send(session: Session, i: int, more: int = 0) -> int:
        head, end = b'{"jsonrpc":"2.0","id":%d,"method":"ping","params":{"x":"' % i, b'"}}'
        reply = load.server.post(head + b"x" * (64 * MIB - len(head) - len(end) + more) + end, session.headers())
        assert reply.status != 503 or reply.headers["Retry-After"]
        assert reply.status != 200 or reply.message == {"jsonrpc": "2.0", "id": i, "result": {}}
        return reply.status

    with Memory(front(load.server)) as memory, Memory(load.server.process.pid) as monitor:
        assert load.many(lambda i: send(sessions[i], i), 6, 6) == [200] * 6
        assert load.many(lambda i: send(sessions[i], i, 1), 6, 6) == [413] * 6
        statuses = Counter(load.many(lambda i: send(sessions[i % 6], i), 12, 12))
    assert set(statuses) <= {200, 503} and statuses[200] >= 4 and memory.most < 1600 * MIB, (statuses, memory.most)
    for session in sessions:
        assert session.text("1") == "1"
        session.delete()
    return {"12 at once": statuses, "front's most MiB": memory.most >> 20, "monitor's most MiB": monitor.most >> 20}


def mutations(n: int) -> Iterator[bytes]:
    """Messages with a few bytes changed, cut off, doubled; batches; deep nests."""
    chance = random.Random(23)
    whole = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "cell_status", "arguments": {}}}
    ).encode()
    yield from (
        b"[" + whole + b"]",
        b"[]",
        b"",
        b"[" * 100_000,
        b'{"a":' * 250 + b"1" + b"}" * 250,
        b"\xff\xfe",
        b"nul",
    )
    for _ in range(n):
        text = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(text))
            match chance.randrange(4):
                case 0:
                    text[at] = chance.randrange(256)
                case 1:
                    del text[at:]
                    text = text or bytearray(b"{")
                case 2:
                    text[at:at] = text[at : at + chance.randrange(20)]
                case _:
                    text[at:at] = chance.choice([b'"', b"{", b"}", b"\\", b"\x00", b"null", b"1e999", b"\\ud800"])
        yield bytes(text)


def malformed(load: Load) -> Figures:
    session = Session(load.server)
    bodies = list(mutations(2000))
    statuses: Counter[int] = Counter()
    fixed = [b"", b"[" + b"]", b"[" * 100_000]

    def one(i: int) -> None:
        reply = load.server.post(bodies[i], session.headers())
        statuses[reply.status] += 1
        assert reply.status in (200, 202, 400, 404), (bodies[i], reply.status, reply.body)
        assert bodies[i] not in fixed or reply.status == 400

    load.many(one, len(bodies))
    assert session.text("1") == "1"
    session.delete()
    return {"bodies": len(bodies), "statuses": dict(statuses)}


def foreign_pages(load: Load) -> Figures:
    """DNS rebinding: a page of another host, whose name leads here, with the token or without."""
    session = Session(load.server)
    refused: Counter[int] = Counter()

    def one(i: int) -> None:
        host = f"evil-{i}.example.com"
        headers = ({"Host": host}, {"Origin": f"http://{host}"}, {"Host": host, "Origin": f"http://{host}"})[i % 3]
        more = {} if i % 2 else {"Authorization": None}
        message = session.call_message("execute_ipython_cell", code="open('reached', 'w')")
        reply = load.server.post(message, {**session.headers(), **headers, **more})
        refused[reply.status] += 1
        assert reply.status == (403 if i % 3 == 1 else 421), (headers, reply.status)
        assert "Access-Control-Allow-Origin" not in reply.headers

    load.many(one, 300)
    assert session.text("import os; os.path.exists('reached')") == "False"
    session.delete()
    return {"refused": dict(refused)}


def replays(load: Load, mark: Path, named: str) -> Figures:
    """One id by 20 requests at once: each gets its own answer. A requestState by 20: one of them counts."""
    session = Session(load.server)
    before = session.last_id

    def same_id(i: int) -> str:
        message = session.call_message("execute_ipython_cell", code=f"{i} * 1000")
        return text_of(load.server.post({**message, "id": before}, session.headers()).message["result"])

    assert load.many(same_id, 20) == [str(i * 1000) for i in range(20)]
    session.delete()
    client = Stateless(load.server)
    arguments = {"code": CALL, "session_id": named}
    asked = client.call("execute_ipython_cell", **arguments)
    ((key, _),) = asked["inputRequests"].items()

    def same_state(_: int) -> bool:
        own = Stateless(load.server)
        state = {"requestState": asked["requestState"], "inputResponses": {key: YES}}
        message = own.message("tools/call", name="execute_ipython_cell", arguments=arguments, **state)
        return "result" in own.post(message).message

    assert sum(load.many(same_state, 20)) == 1
    assert mark.read_text() == "x\n"
    return {"one id": 20, "one requestState": 20, "calls of the tool": 1}


def test_load(load: Load, mark: Path, tmp_path: Path) -> None:
    figures: dict[str, object] = {}
    sessions(load, CLIENTS)  # warm-up
    named = Stateless(load.server).cell("1")["structuredContent"]["session_id"]
    replays(load, mark, named)
    mark.unlink()
    concurrent_clients(load)
    eventually(lambda: load.server.sessions() == 1)  # of the stateless era
    eventually(lambda: len(session_processes(load.server)) == 1)
    time.sleep(2)  # spares
    before, memory = load.count(), Memory(front(load.server)).now()
    files = sorted(p for p in load.folder.rglob("*"))
    stages: list[Callable[[], Figures]] = [
        lambda: sessions(load, SESSIONS),
        lambda: concurrent_clients(load),
        lambda: vanishing_clients(load),
        lambda: slow_readers(load),
        lambda: large_bodies(load),
        lambda: malformed(load),
        lambda: foreign_pages(load),
        lambda: replays(load, mark, named),
    ]
    names = ("sessions", "clients", "vanish", "slow", "bodies", "malformed", "foreign", "replays")
    for name, stage in zip(names, stages, strict=True):
        started = time.monotonic()
        figures[name] = {**stage(), "stage s": round(time.monotonic() - started, 1)}
        print(name, figures[name], flush=True)
    eventually(lambda: load.server.sessions() == 1)
    load.settle(before)
    after = Memory(front(load.server)).now()
    figures["front's KiB"] = [memory >> 10, after >> 10]
    figures["processes and descriptors"] = {k: [n, load.count()[k]] for k, n in before.items()}
    Path(os.environ.get("CG_LOAD_FIGURES", tmp_path / "figures.json")).write_text(json.dumps(figures, indent=1))
    assert after - memory < 5 * MIB
    assert sorted(p for p in load.folder.rglob("*")) == files
    log = load.server.log.read_text()
    assert "error" not in log, log[-4000:]
