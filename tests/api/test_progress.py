"""Progress of tool calls, from an MCP server to the host: exactly the events of calls that are under way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import Session

SERVER = Path(__file__).parents[1] / "asking_server.py"
CALL = "import _cellgate; print(_cellgate.tool_call('s', {tool!r}, {arguments!r}, 0)[0])"


@pytest.fixture(params=["legacy", "modern"])
def s(request: pytest.FixtureRequest, session: Session) -> Session:
    habits = json.dumps({"modern": request.param == "modern"})
    session.add_servers({"s": {"command": "/usr/bin/python3", "args": [str(SERVER), habits]}})
    return session


def call(**arguments: Any) -> str:
    return CALL.format(tool="report", arguments=json.dumps(arguments).encode())


def test_progress_of_a_call(s: Session) -> None:
    values = [{"progress": 1}, {"progress": 2.5, "total": 10, "message": "half <b>\x1b[2J"}]
    out = s.run(call(values=values, pause=0.15), decide=lambda _: True)
    assert out.stdout == "ok\n"
    approval = next(e for e in out.events if e.type == "approval_request")
    first, second = (e for e in out.events if e.type == "progress")
    names = {"server": "s", "method": "tools/call", "tool": "report", "call": approval.approval}
    assert first.json == {**names, "progress": 1}
    assert second.json == {**names, "progress": 2.5, "total": 10, "message": "half <b>\\x1b[2J"}
    assert (first.text, second.text) == ("s.report: 1", "s.report: 2.5 of 10, half <b>\\x1b[2J")
    assert (first.cell, first.approval) == (out.result.cell, 0)


def test_two_calls_at_once(s: Session) -> None:
    code = "import threading\ndef f(n):\n    _cellgate.tool_call('s', 'report', n, 0)\nimport _cellgate\nts = []\n"
    for n in (100, 200):
        arguments = json.dumps({"values": [{"progress": n + i} for i in range(3)], "pause": 0.15}).encode()
        code += f"ts.append(threading.Thread(target=f, args=({arguments!r},)))\n"
    seen: dict[int, list[float]] = {}
    calls: dict[int, int] = {}

    def decide(e: Any) -> bool:
        calls[e.approval] = json.loads(e.args)["values"][0]["progress"]
        return True

    out = s.run(code + "[t.start() for t in ts]; [t.join() for t in ts]", decide)
    for e in out.events:
        if e.type == "progress":
            seen.setdefault(e.json["call"], []).append(e.json["progress"])
    assert {calls[c]: v for c, v in seen.items()} == {100: [100, 101, 102], 200: [200, 201, 202]}


def test_a_call_that_was_refused_or_given_up_reports_nothing(s: Session) -> None:
    code = call(values=[{"progress": 1}])
    assert not [e for e in s.run(code, lambda _: "no").events if e.type == "progress"]
    cell = s.execute(call(values=[{"progress": i} for i in range(200)], pause=0.05, hang=True))
    s.accept(s.until("approval_request")[-1].approval)
    s.until("progress")
    s.cancel(cell)
    s.until("result")
    late = []
    while e := s.next(500):
        late.append(e)
    assert not [e for e in late if e.type == "progress"], late


def test_a_host_that_does_not_read_costs_no_memory_and_no_call(s: Session, slowness: float) -> None:
    """A flood of values in a call whose host reads only at the end: at most about ten a second wait."""
    cell = s.execute(call(values=[{"progress": i} for i in range(10_000)]), timeout_ms=0)
    s.accept(s.until("approval_request")[-1].approval)
    events = s.until("result", int(50_000 * slowness))
    values = [e.json["progress"] for e in events if e.type == "progress"]
    assert values == sorted(set(values)) and values[-1] == 9_999
    assert len(values) < 1000 and events[-1].cell == cell and events[-1].status == "ok"
