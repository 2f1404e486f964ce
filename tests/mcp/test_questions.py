"""What servers ask the host for: what reaches the supervisor, on every way to a server, and what a kernel cannot do."""

import json
import sys
from pathlib import Path

import pytest
from mcp_http_server import Server
from wire_table import BROKER, TOOL

SERVER = Path(__file__).parents[1] / "asking_server.py"
FORM = {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {"properties": {}}}}
ACCEPT = b'{"action":"accept","content":{}}'


def add(ts, definition, kinds=3, workspace="/work space/\u00e9"):
    body = {"servers": {"s": definition}, "out": str(ts.out), "timeout_ms": 0}
    ts.broker.send(BROKER.SERVERS, 5, {**body, "workspace": workspace, "server_requests": kinds}, session=1)
    m = ts.broker.expect(BROKER.SERVERS_DONE)
    assert "report" in m.body, m.body


@pytest.fixture(params=["legacy", "modern"])
def k(request, ts):
    kernel = ts.attach()
    habits = json.dumps({"modern": request.param == "modern"})
    add(ts, {"command": sys.executable, "args": [str(SERVER), habits], "roots": True})
    return kernel


def begin(ts, k, tool="ask", id=1, **arguments):
    k.call(id, "s", tool, json.dumps(arguments).encode())
    ask = ts.asked()
    ts.broker.send(BROKER.ASK_DECISION, ask.id, {"accept": True, "approval": 9, "cell": 3}, session=1)


def question(ts, k, call=9):
    m = ts.broker.expect(BROKER.SERVER_REQUEST)
    body = {"kernel": k.number, "cell": 3, "call": call, "server": "s", "method": "elicitation/create"}
    assert (m.session, m.body) == (1, body)
    assert json.loads(m.raw) == FORM["params"]
    return m


def answer(ts, m, raw=ACCEPT, **body):
    ts.broker.send(BROKER.SERVER_ANSWER, m.id, body, raw, session=m.session)


def result(k, id=1):
    status, raw = k.result(id)
    assert status == "ok", raw
    return json.loads(json.loads(raw)["content"][0]["text"])


def test_the_answer_of_the_host_reaches_the_server(ts, k):
    begin(ts, k, ask=[FORM])
    answer(ts, question(ts, k))
    assert result(k) == [json.loads(ACCEPT)]
    ts.broker.nothing()


@pytest.mark.parametrize("raw", [b"", b"[]", b'"x"', b'{"action":"accept"}\n', b'{"a":1', b'{"a":1}{}'])
def test_what_is_no_object_in_one_line_is_no_answer(ts, k, raw):
    begin(ts, k, ask=[FORM])
    answer(ts, question(ts, k), raw)
    assert result(k) == [{"action": "cancel"}]


def test_answers_to_no_question(ts, k):
    """Of another number or session, and second ones."""
    begin(ts, k, ask=[FORM])
    m = question(ts, k)
    ts.broker.send(BROKER.SERVER_ANSWER, m.id + 1, {}, ACCEPT, session=1)
    ts.broker.send(BROKER.SERVER_ANSWER, m.id, {}, ACCEPT, session=2)
    ts.broker.send(BROKER.SERVER_ANSWER, 0, {}, ACCEPT, session=1)
    ts.broker.send(BROKER.ASK_DECISION, m.id, {"accept": True}, session=1)
    k.nothing()
    answer(ts, m, action="decline", why="no")
    answer(ts, m)
    assert result(k) == [{"action": "decline"}]


@pytest.mark.parametrize("forged", [BROKER.SERVER_ANSWER, BROKER.ASK_DECISION, TOOL.CALL_RESULT])
def test_a_kernel_cannot_answer(ts, k, forged):
    """It is cut off, its call ends, and the host is not asked any more."""
    begin(ts, k, ask=[FORM])
    m = question(ts, k)
    k.send(forged, m.id, {"accept": True}, ACCEPT)
    got = {ts.broker.receive().type for _ in range(2)}
    assert got == {BROKER.KERNEL_VIOLATION, BROKER.ASK_CLOSED}
    ts.broker.nothing()


def test_the_kernel_ends(ts, k):
    begin(ts, k, ask=[FORM])
    m = question(ts, k)
    ts.broker.send(BROKER.DETACH, body={"keep_servers": True}, session=1)
    closed = ts.broker.expect(BROKER.ASK_CLOSED)
    assert closed.id == m.id
    ts.broker.expect(BROKER.DETACHED)
    answer(ts, m)
    k2 = ts.attach()
    begin(ts, k2, "hello", id=2)
    assert result(k2, 2) == "hello"


@pytest.mark.parametrize("modern", [False, True])
def test_a_limit_of_calls_at_once(ts, modern):
    """maxConcurrency: in the modern era the server has answered with its question, and other calls are sent meanwhile."""
    k = ts.attach()
    command = {"command": sys.executable, "args": [str(SERVER), json.dumps({"modern": modern})]}
    add(ts, {**command, "maxConcurrency": 1})
    begin(ts, k, ask=[FORM])
    m = question(ts, k)
    begin(ts, k, "hello", id=2)
    if modern:
        assert result(k, 2) == "hello"
    k.nothing()
    answer(ts, m)
    assert result(k) == [json.loads(ACCEPT)]
    if not modern:
        assert result(k, 2) == "hello"


def test_the_workspace_is_the_root(ts, k):
    begin(ts, k, ask=[{"method": "roots/list"}])
    assert result(k) == [{"roots": [{"uri": "file:///work%20space/%C3%A9"}]}]
    begin(ts, k, id=2, ask=[{"method": "roots/list"}] * 3)
    assert len(result(k, 2)) == 3


def test_no_workspace_is_no_root(ts):
    k = ts.attach()
    ts.add({"s": {"command": sys.executable, "args": [str(SERVER)], "roots": True}})
    begin(ts, k, ask=[{"method": "roots/list"}])
    assert result(k) == [{"roots": []}]


@pytest.mark.parametrize("habits", [{}, {"modern": True}, {"sse": True, "path": "/sse"}])
def test_over_http(ts, habits):
    """As requests on the call's stream, and in the answers to a call."""
    s = Server(**habits)
    modern = "modern" in habits
    try:
        k = ts.attach()
        add(ts, {"url": s.url})
        begin(ts, k, "rounds" if modern else "ask", rounds=2)
        n = 0
        while True:
            if not ts.broker.sock.poll(300):
                if k.sock.poll(0):
                    break
                continue
            m = ts.broker.expect(BROKER.SERVER_REQUEST)
            assert m.body["call"] == 9
            n += 1
            answer(ts, m, b'{"action":"cancel"}')
        status, raw = k.result(1)
        assert status == "ok" and (n == (2 if modern else 1)), (n, raw)
        assert b"cancel" in raw
    finally:
        s.close()
