"""Limits of calls at once ("maxConcurrency"): further ones wait in their order, and every wait ends."""

import json
import os
import signal
import threading
from typing import Any

import pytest
from mcp_http_server import Server
from wire_table import TOOL


class Stdio:
    """Calls that a server over stdio holds until they are released."""

    def __init__(self, ts, fake, folder, limit, **habits) -> None:
        self.log, self.pids = folder / "lines", folder / "pids"
        self.definition = {**fake(log=str(self.log), pids=str(self.pids), **habits), "maxConcurrency": limit}

    def pid(self) -> int:
        return json.loads(self.pids.read_text())[0]

    def lines(self) -> list[Any]:
        """Messages that it was sent, and "held" for each call that it holds."""
        return [line if line == "held" else json.loads(line) for line in self.log.read_text().splitlines()]

    def sent(self) -> list[int]:
        return [m["params"]["arguments"]["n"] for m in self.lines() if m != "held" and m["method"] == "tools/call"]

    def n_held(self) -> int:
        return self.lines().count("held")

    def release(self) -> None:
        os.kill(self.pid(), signal.SIGUSR2)


class Holding(Server):
    def __init__(self, **habits: Any) -> None:
        self.lock, self.free = threading.Lock(), threading.Semaphore(0)
        self.held = self.peak = 0
        self.numbers: list[int] = []
        super().__init__(**habits)

    def call(self, c, r, name, arguments) -> None:
        with self.lock:
            self.held += 1
            self.peak = max(self.peak, self.held)
            self.numbers.append(arguments["n"])
        if name == "hold":
            self.free.acquire()
        with self.lock:
            self.held -= 1
        text = json.dumps({**arguments, "peak": self.peak})
        self.answer(c, r, {"content": [{"type": "text", "text": text}],
                           **({"resultType": "complete"} if self.habits.get("modern") else {})})  # fmt: skip


class Http:
    """The same over HTTP."""

    def __init__(self, limit, **habits) -> None:
        self.server = Holding(tools=[tool("hold"), tool("other")], **habits)
        self.definition = {"url": self.server.url, "maxConcurrency": limit}

    def sent(self) -> list[int]:
        return list(self.server.numbers)

    def n_held(self) -> int:
        return len(self.server.numbers)

    def release(self) -> None:
        self.server.free.release()


def tool(name: str, description: str = "Does it.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


@pytest.fixture
def http():
    made = []

    def make(limit, **habits):
        made.append(Http(limit, **habits))
        return made[-1]

    yield make
    for h in made:
        for _ in range(20):
            h.release()
        h.server.close()


@pytest.fixture
def stdio(ts, fake, tmp_path):
    return lambda limit, **habits: Stdio(ts, fake, tmp_path, limit, **habits)


class Calls:
    """A kernel whose calls are accepted at once."""

    def __init__(self, ts, server) -> None:
        self.ts, self.k = ts, ts.attach()
        ts.add({"s": server.definition})

    def begin(self, n: int, tool: str = "hold", timeout_ms: int = 0) -> None:
        self.k.call(n, "s", tool, json.dumps({"n": n}).encode(), timeout_ms)
        self.ts.decide(self.ts.asked())

    def answer(self, n: int) -> Any:
        status, raw = self.k.result(n)
        assert status == "ok", raw
        return json.loads(json.loads(raw)["content"][0]["text"])

    def cancel(self, n: int) -> None:
        self.k.send(TOOL.CALL_CANCEL, n)
        assert self.k.result(n) == ("failed", b"cancelled")


@pytest.mark.parametrize("way", ["stdio", "legacy", "modern", "streams"])
def test_never_more_than_the_limit_and_in_order(ts, stdio, http, waiting, way):
    habits = {"legacy": {}, "modern": {"modern": True}, "streams": {"streams": True}}
    s = stdio(2) if way == "stdio" else http(2, **habits[way])
    calls = Calls(ts, s)
    for n in range(8):
        calls.begin(n)
        waiting(lambda n=n: s.n_held() == min(n + 1, 2), 10, "the first calls")
    calls.k.nothing(0.3)
    for n in range(8):
        assert s.sent() == list(range(min(n + 2, 8)))
        s.release()
        assert calls.answer(n) == {"n": n, "peak": 2}
        waiting(lambda n=n: s.n_held() == min(n + 3, 8), 10, "the next call")


def test_without_a_limit(ts, stdio, waiting):
    s = stdio(None)
    calls = Calls(ts, s)
    for n in range(20):
        calls.begin(n)
    waiting(lambda: s.n_held() == 20, 10, "all calls")


@pytest.mark.parametrize("value", [0, -1, 1001, 1.5, "2", True, []])
def test_bad_limits(ts, fake, value):
    assert '"maxConcurrency" must be a whole number from 1 to 1000' in ts.refuse({"a": {**fake(), "maxConcurrency": value}})


@pytest.mark.parametrize("value", [1, 1000])
def test_outermost_limits(ts, fake, value):
    ts.add({"a": {**fake(), "maxConcurrency": value}})
    assert ts.run(ts.attach(), 1, "a", "echo")[0] == "ok"


def test_cancelled_calls(ts, stdio, waiting):
    """One that waits never reaches the server; one under way makes room for the next."""
    s = stdio(1)
    calls = Calls(ts, s)
    for n in range(4):
        calls.begin(n)
    waiting(lambda: s.n_held() == 1, 10, "the first call")
    calls.cancel(1)
    calls.cancel(0)
    waiting(lambda: s.n_held() == 2, 10, "the next call")
    assert s.sent() == [0, 2]
    calls.cancel(3)
    calls.cancel(2)
    calls.begin(4, "echo")
    assert calls.answer(4) == {"n": 4}
    assert s.sent() == [0, 2, 4]


def test_resources_and_prompts_count(ts, stdio, waiting):
    s = stdio(1, offers=["resources", "prompts"])
    calls = Calls(ts, s)
    calls.k.request(1, "s", "resources/read", b'{"uri":"fake://hang"}')
    ts.decide(ts.asked())
    waiting(lambda: '"fake://hang"' in s.log.read_text(), 10, "the first request")
    calls.k.request(2, "s", "prompts/get", b'{"name":"hang"}')  # its list is not a call, and does not wait
    ts.decide(ts.asked())
    calls.begin(3, "echo")
    calls.k.nothing(0.3)
    assert s.sent() == []
    calls.cancel(1)
    waiting(lambda: '"prompts/get"' in s.log.read_text(), 10, "the second request")
    calls.k.nothing()
    assert s.sent() == []
    calls.cancel(2)
    assert calls.answer(3) == {"n": 3}


def test_time_limits(ts, stdio, waiting):
    """The wait is part of a call's time. The server is not blamed for it: it gets no ping."""
    s = stdio(1)
    calls = Calls(ts, s)
    calls.begin(0)
    waiting(lambda: s.n_held() == 1, 10, "the first call")
    calls.begin(1, timeout_ms=300)
    status, text = calls.k.result(1)
    assert (status, calls.k.kind) == ("failed", "timeout")
    assert text == (
        b'MCP server "s": tool "hold" was not sent within 300 ms: others were under way, '
        b'and "maxConcurrency" in its definition is 1'
    )
    s.release()
    calls.answer(0)
    assert s.sent() == [0] and "ping" not in s.log.read_text()
    # One that was sent and has no answer in time makes room for the next.
    calls.begin(2, timeout_ms=300)
    calls.begin(3, "echo")
    status, text = calls.k.result(2)
    assert (status, calls.k.kind) == ("failed", "timeout") and b"did not answer within 300 ms" in text
    assert calls.answer(3) == {"n": 3}


def test_time_limit_of_a_call_that_waits_twice(ts, http, waiting):
    """The tools are compared again in between: that does not begin its time anew."""
    s = http(1)
    calls = Calls(ts, s)
    calls.begin(0)
    waiting(lambda: s.n_held() == 1, 10, "the first call")
    calls.begin(1, timeout_ms=60_000)
    limit = int(3000 * ts.slowness)
    calls.begin(2, timeout_ms=limit)
    calls.k.nothing(0.7)
    s.server.sessions.clear()  # calls that wait are sent in the next session, after its list
    s.release()
    calls.answer(0)
    waiting(lambda: s.n_held() == 2, 10, "the second call")
    status, text = calls.k.result(2)
    assert (status, calls.k.kind) == ("failed", "timeout")
    assert b"was not sent within" in text and f" {limit} ms".encode() not in text
    assert s.sent() == [0, 1]


def test_calls_that_wait_when_the_server_ends(ts, stdio, waiting):
    """What was sent may have run. What was not is compared with the tools of the next process, and sent there."""
    s = stdio(1)
    calls = Calls(ts, s)
    calls.begin(0)
    waiting(lambda: s.n_held() == 1, 10, "the first call")
    calls.begin(1, "echo")
    calls.begin(2, "echo")
    os.kill(s.pid(), signal.SIGKILL)
    status, text = calls.k.result(0)
    assert (status, calls.k.kind) == ("failed", "died") and b"in the middle of the call" in text
    assert [calls.answer(n) for n in (1, 2)] == [{"n": 1}, {"n": 2}]
    methods = [m["method"] for m in s.lines() if m != "held" and "id" in m]
    assert methods[-4:] == ["initialize", "tools/list", "tools/call", "tools/call"]
    assert s.sent() == [0, 1, 2]


def test_a_server_that_every_call_ends(ts, stdio):
    s = stdio(1)
    calls = Calls(ts, s)
    for n in range(6):
        calls.k.call(n, "s", "exit", json.dumps({"n": n}).encode())
    for ask in [ts.asked() for _ in range(6)]:
        ts.decide(ask)
    kinds = []
    for n in range(6):
        status, text = calls.k.result(n, 30)
        assert status == "failed"
        kinds.append(calls.k.kind)
    assert kinds == ["died"] * 3 + ["unavailable"] * 3 and b"failed 3 times in a row" in text
    assert s.sent() == [0, 1, 2]


@pytest.mark.parametrize("listed", [False, True])
def test_calls_whose_tool_changes_while_they_wait(ts, http, waiting, listed):
    """listed: the tools have been listed again when the call's turn comes."""
    s = http(1, modern=True)
    calls = Calls(ts, s)
    waiting(lambda: s.server.listening, 10, "the subscription")
    calls.begin(0)
    waiting(lambda: s.n_held() == 1, 10, "the first call")
    calls.begin(1, "other")
    calls.begin(2)
    lists = s.server.methods().count("tools/list")
    s.server.habits["tools"] = [tool("hold"), tool("other", "Evil.")]
    change = s.server.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}})
    s.server.listening[0].put(change)
    if listed:
        assert "+ Evil." in ts.noticed()
        assert s.server.methods().count("tools/list") == lists + 1
    else:
        ts.wait_log("its tools have changed")
    s.release()
    calls.answer(0)
    if not listed:
        assert "+ Evil." in ts.noticed()
    status, text = calls.k.result(1)
    assert status == "failed" and b"has changed" in text
    waiting(lambda: s.n_held() == 2, 10, "the other call")
    s.release()
    assert calls.answer(2)["n"] == 2
    assert s.sent() == [0, 2]
