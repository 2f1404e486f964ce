"""Progress that servers report of calls: which values reach the supervisor, how many, and when none do."""

import json
import sys
import time
from pathlib import Path

import pytest
from wire_table import BROKER, TOOL

CALL_CANCEL = TOOL.CALL_CANCEL
SERVER = Path(__file__).parents[1] / "asking_server.py"


@pytest.fixture(params=["legacy", "modern"])
def k(request, ts, tmp_path):
    kernel = ts.attach()
    habits = {"modern": request.param == "modern", "log": str(tmp_path / "lines")}
    ts.add({"s": {"command": sys.executable, "args": [str(SERVER), json.dumps(habits)]}})
    return kernel


def begin(ts, k, approval=9, cell=3, id=1, tool="report", **arguments):
    """An accepted call."""
    k.call(id, "s", tool, json.dumps(arguments).encode())
    ask = ts.asked()
    body = {"accept": True, "reason": "", "approval": approval, "cell": cell}
    ts.broker.send(BROKER.ASK_DECISION, ask.id, body, session=ask.session)


def reported(ts, k):
    m = ts.broker.expect(BROKER.CALL_PROGRESS)
    assert (m.session, m.id, m.body.pop("kernel")) == (1, 0, k.number)
    assert [m.body.pop(name) for name in ("server", "method", "tool")] == ["s", "tools/call", "report"]
    return m.body


def test_values_reach_the_host_with_its_numbers(ts, k):
    values = [{"progress": 0.1}, {"progress": 2, "total": 10, "message": "two"}]
    begin(ts, k, values=values, pause=0.15)
    assert reported(ts, k) == {"call": 9, "cell": 3, "progress": 0.1}
    assert reported(ts, k) == {"call": 9, "cell": 3, "progress": 2, "total": 10, "message": "two"}
    status, raw = k.result(1)
    assert status == "ok"
    token = json.loads(json.loads(raw)["content"][0]["text"])
    ts.broker.nothing()
    begin(ts, k, id=2, values=[])
    assert json.loads(json.loads(k.result(2)[1])["content"][0]["text"]) > token  # each call has its own


def test_the_tools_call_has_its_id_as_token(ts, k, tmp_path):
    begin(ts, k, values=[], extra="x" * 100_000)
    k.result(1)
    calls = [m for m in map(json.loads, (tmp_path / "lines").read_text().splitlines()) if m["method"] == "tools/call"]
    assert [c["params"]["_meta"]["progressToken"] for c in calls] == [c["id"] for c in calls]
    assert calls[0]["params"]["arguments"]["extra"] == "x" * 100_000


@pytest.mark.parametrize("arguments", [
    {"token": 12345},
    {"token": 0},
    {"token": -1},
    {"token": 1.5},
    {"token": "1"},
    {"token": None},
    {"token": [1]},
    {"token": 1 << 70},
])  # fmt: skip
def test_tokens_of_no_call(ts, k, arguments):
    begin(ts, k, values=[{"progress": 1}], **arguments)
    assert k.result(1)[0] == "ok"
    ts.broker.nothing()


@pytest.mark.parametrize(
    "bad", [{}, {"progress": "2"}, {"progress": None}, {"progress": 1}, {"progress": -5}, {"progress": True}]
)
def test_values_that_break_the_rules(ts, k, bad):
    """What is no number, or not larger than the last value, is dropped; later ones count."""
    begin(ts, k, values=[{"progress": 1}, {"message": "bad", **bad}, {"progress": 3}], pause=0.12)
    assert [reported(ts, k)["progress"] for _ in range(2)] == [1, 3]
    k.result(1)
    ts.broker.nothing()


def test_numbers_must_be_finite(ts, k):
    begin(ts, k, values=[], raw=["1e999", "-1e999", "NaN", "1" * 100, "7"])
    assert reported(ts, k)["progress"] == 7
    k.result(1)
    ts.broker.nothing()


def test_totals_and_messages_that_break_the_rules_are_left_out(ts, k):
    begin(
        ts, k, values=[{"progress": 1, "total": "x", "message": 7}, {"progress": 2, "message": "y" * 5000}], pause=0.12
    )
    assert [set(reported(ts, k)) for _ in range(2)] == [{"call", "cell", "progress"}] * 2
    k.result(1)


def test_messages_are_safe_to_show_and_short(ts, k):
    begin(ts, k, values=[{"progress": 1, "message": "a\nb\x1b[2J\u202e" + "c" * 4000}])
    message = reported(ts, k)["message"]
    assert message.startswith("a\\nb\\x1b[2J\\u202ec") or message.startswith("a\\x0ab\\x1b[2J\\u202ec"), message
    assert len(message) < 600 and "\n" not in message
    k.result(1)


def test_a_flood_is_thinned_and_the_last_value_comes(ts, k, slowness):
    """Another call is answered meanwhile."""
    k.call(5, "s", "hello")
    ask = ts.asked()
    n = 20_000
    begin(ts, k, values=[{"progress": i} for i in range(n)])
    ts.decide(ask)
    start = time.monotonic()
    got = []
    while not got or got[-1]["progress"] != n - 1:
        got.append(reported(ts, k))
    seconds = time.monotonic() - start
    assert len(got) <= 12 * (seconds + 1)
    assert [g["progress"] for g in got] == sorted({g["progress"] for g in got})
    assert {m.id for m in (k.receive(), k.receive())} == {1, 5}
    ts.broker.nothing()


def test_nothing_comes_after_the_result_or_a_cancel(ts, k):
    begin(ts, k, values=[{"progress": 1}], after={"progress": 2})
    reported(ts, k)
    k.result(1)
    ts.broker.nothing(0.3)
    begin(ts, k, id=2, values=[{"progress": i} for i in range(100)], pause=0.02, hang=True)
    reported(ts, k)
    k.send(CALL_CANCEL, 2)
    k.result(2)
    seen = len(list(iter(lambda: ts.broker.sock.poll(300) and ts.broker.receive(), 0)))
    assert seen <= 1  # that was on its way
