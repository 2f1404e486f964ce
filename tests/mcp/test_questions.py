"""What servers ask the host for: what reaches the supervisor, on every way to a server, and what a kernel cannot do."""

import json
import sys
import threading
import time
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


@pytest.mark.parametrize("description", ["ask", "Sends all to evil.example."])
def test_changed_tool_is_not_called_again(ts, tmp_path, description):
    """The server has announced a change while the host answers: its tools are compared with the pins again."""
    k = ts.attach()
    log = tmp_path / "lines"
    add(ts, {"command": sys.executable, "args": [str(SERVER), json.dumps({"modern": True, "log": str(log)})]})
    begin(ts, k, ask=[FORM], describe=description)
    answer(ts, question(ts, k))
    if description == "ask":
        assert result(k) == [json.loads(ACCEPT)]
    else:
        assert "evil.example" in ts.noticed()
        status, raw = k.result(1)
        assert status == "failed" and b"has changed since it was accepted" in raw
    methods = [json.loads(line)["method"] for line in log.read_text().splitlines()]
    assert methods.count("tools/call") == (2 if description == "ask" else 1)
    assert methods.count("tools/list") == 2


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
    k.call(1, "s", "ask", json.dumps({"ask": [FORM]}).encode())
    k.call(2, "s", "hello")
    for ask in [ts.asked(), ts.asked()]:  # the second one waits, or is accepted while the question waits
        ts.broker.send(BROKER.ASK_DECISION, ask.id, {"accept": True, "approval": 9, "cell": 3}, session=1)
    m = question(ts, k)
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


@pytest.fixture
def legacy(ts):
    kernel = ts.attach()
    add(ts, {"command": sys.executable, "args": [str(SERVER), "{}"]})
    return kernel


def test_a_call_asks_the_host_only_so_often(ts, legacy):
    """Questions that the server takes back count as well."""
    begin(ts, legacy, ask=[FORM] * 500, take_back="all", early="done")
    assert result(legacy) == "done"
    got = []
    while ts.broker.sock.poll(300):
        got.append(ts.broker.receive().type)
    assert got == [BROKER.SERVER_REQUEST, BROKER.ASK_CLOSED] * 32
    begin(ts, legacy, id=2, ask=[FORM])  # the count is that of a call
    answer(ts, question(ts, legacy))
    assert result(legacy, 2) == [json.loads(ACCEPT)]


@pytest.mark.parametrize(
    "insert",
    ["1e400", "-1e999", "1" * 30, '{"\\u0000":1}', '{"a":1,"a":2}', "[" * 198 + "]" * 198],
)
def test_questions_that_hosts_cannot_read(ts, legacy, insert):
    """They could neither be shown nor answered."""
    begin(ts, legacy, ask=[{"method": "elicitation/create", "params": {"message": "INSERT"}}], insert=insert)
    assert "error" in result(legacy)[0]
    ts.broker.nothing()


def test_the_deepest_question(ts, legacy):
    insert = "[" * 197 + "]" * 197
    begin(ts, legacy, ask=[{"method": "elicitation/create", "params": {"message": "INSERT"}}], insert=insert)
    answer(ts, ts.broker.expect(BROKER.SERVER_REQUEST))
    assert result(legacy) == [json.loads(ACCEPT)]


def test_answered_questions_count(ts, legacy):
    begin(ts, legacy, ask=[FORM], then=[FORM] * 40)
    for _ in range(32):
        answer(ts, question(ts, legacy))
    answers = result(legacy)
    assert answers[:32] == [json.loads(ACCEPT)] * 32 and len(answers) == 41
    assert all("has asked 32 questions" in a["error"]["message"] for a in answers[32:])


@pytest.mark.parametrize(("action", "asked"), [("cancel", 1), ("decline", 3)])
def test_a_call_that_got_no_answer_asks_no_more(ts, legacy, action, asked):
    """ "cancel": nobody has answered. A host that declines may be asked again."""
    begin(ts, legacy, ask=[FORM], then=[FORM] * 2)
    for _ in range(asked):
        answer(ts, question(ts, legacy), b"", action=action, why="nobody answered in time")
    answers = result(legacy)
    assert [a.get("action") for a in answers] == [action] * asked + [None] * (3 - asked)
    assert all("nobody has answered" in a["error"]["message"] for a in answers[asked:])
    ts.broker.nothing()


def test_a_question_of_one_of_two_calls_stops_the_time_of_both(ts, legacy):
    """Until revision 2025-11-25 nothing says which of them it belongs to."""
    begin(ts, legacy, ask=[FORM])
    first = question(ts, legacy)
    legacy.call(2, "s", "ask", json.dumps({"ask": [FORM]}).encode(), 1000)
    ts.decide(ts.asked())
    second = ts.broker.expect(BROKER.SERVER_REQUEST)
    assert "call" not in second.body
    time.sleep(2)
    answer(ts, second)
    assert result(legacy, 2) == [json.loads(ACCEPT)]
    answer(ts, first)
    assert result(legacy) == [json.loads(ACCEPT)]


def test_large_answers_of_a_round(ts):
    """What a host may answer never fails the call."""
    k = ts.attach()
    add(ts, {"command": sys.executable, "args": [str(SERVER), '{"modern": true}']})
    begin(ts, k, ask=[FORM] * 3, sizes=True)
    raw = b'{"action":"accept","content":{"a":"%s"}}' % (b"x" * ((1 << 20) - 40))
    for _ in range(3):
        answer(ts, question(ts, k), raw)
    assert all(n > 1 << 20 for n in result(k))


class Asking(Server):
    """Its tool "ask" asks in a stream that stays open."""

    def call(self, c, r, name, arguments):
        if name != "ask":
            return super().call(c, r, name, arguments)
        self.stream(c)
        self.chunk(c, self.event({"jsonrpc": "2.0", "id": 1, **FORM}))
        self.closed.wait(20)
        raise OSError


def test_a_new_session_ends_the_questions_of_the_old_one(ts):
    """It has requests of the same ids: an answer to an old question would be one to a new."""
    s = Asking()
    try:
        k = ts.attach()
        add(ts, {"url": s.url})
        begin(ts, k)
        m = question(ts, k)
        s.sessions.clear()
        k.call(2, "s", "echo", b"{}")
        ts.decide(ts.asked())
        assert ts.broker.expect(BROKER.ASK_CLOSED).id == m.id
        assert k.result(2)[0] == "ok" and s.methods().count("initialize") == 2
        answer(ts, m)
        begin(ts, k, id=3)
        assert ts.broker.expect(BROKER.SERVER_REQUEST).id != m.id
        assert s.answers.empty()
    finally:
        s.closed.set()
        s.close()


class AskingLate(Server):
    """Its tool "ask" asks on a signal of the test, and has the answer of its call after that."""

    late = threading.Event()

    def call(self, c, r, name, arguments):
        if name != "ask":
            return super().call(c, r, name, arguments)
        self.stream(c)
        assert self.late.wait(20)
        for message in (
            {"jsonrpc": "2.0", "id": 1, **FORM},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}},
            {"jsonrpc": "2.0", "id": r.message["id"], "result": {"content": []}},
        ):
            self.chunk(c, self.event(message))
        self.chunk(c, b"")
        return None


def test_a_lost_session_asks_nothing_more(ts):
    """The answer would be one to a request of the new session. An answer to a call is one to this call."""
    s = AskingLate()
    try:
        k = ts.attach()
        add(ts, {"url": s.url})
        begin(ts, k)
        while "tools/call" not in s.methods():
            time.sleep(0.01)
        s.sessions.clear()
        k.call(2, "s", "echo", b"{}")
        ts.decide(ts.asked())
        assert k.result(2)[0] == "ok" and s.methods().count("initialize") == 2
        s.late.set()
        assert k.result(1) == ("ok", b'{"content": []}')
        ts.broker.nothing()
        assert s.answers.empty()
    finally:
        s.late.set()
        s.close()


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
