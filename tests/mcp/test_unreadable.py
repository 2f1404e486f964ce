"""Messages of servers that cannot be read: the call that one names fails at once, or all in flight; a call that none answers is shown."""

import json

import pytest
from mcp_http_server import Server
from wire_table import TOOL

ANSWERS = {
    "not UTF-8": ('{"jsonrpc":"2.0","id":ID,"result":{"text":"\xc3("}}', "not UTF-8"),
    "not UTF-8 in another member": ('{"jsonrpc":"2.0","id":ID,"result":{},"x\xff":1}', "not UTF-8"),
    "NUL": ('{"jsonrpc":"2.0","result":{"text":"a\0b"},"id":ID}', "control character"),
    "NUL outside of strings": ('{"jsonrpc":"2.0","id":ID,\0"result":{}}', "must be a string"),
    "id twice": ('{"jsonrpc":"2.0","id":ID,"id":ID,"result":{}}', "stands there twice"),
    "result twice": ('{"jsonrpc":"2.0","result":{},"id":ID,"result":{}}', "stands there twice"),
    "too deep": ('{"jsonrpc":"2.0","id":ID,"result":' + "[" * 6000 + "]" * 6000 + "}", "too deeply"),
    "too deep, and the id last": ('{"jsonrpc":"2.0","result":' + '{"a":' * 6000 + "1" + "}" * 6000 + ',"id":ID}', "too deeply"),
    "many digits": ('{"jsonrpc":"2.0","id":ID,"result":{"n":' + "9" * 6000 + "}}", "more than 1000 characters"),
    "NaN": ('{"jsonrpc":"2.0","id":ID,"result":{"n":NaN}}', "not a JSON value"),
    "half a line": ('{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"te', "not closed"),
    "half a line before the result": ('{"jsonrpc":"2.0","id":ID,', "must be a string"),
    "two on one line": ('{"jsonrpc":"2.0","id":ID,"result":{}} {"jsonrpc":"2.0"}', "text after the end"),
    "an error": ('{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"\xff"}}', "not UTF-8"),
    "neither version": ('{"id":ID,"result":{"text":"\xff"}}', "not UTF-8"),
    "both": ('{"jsonrpc":"2.0","id":ID,"method":"x","result":{}}', "both request and response"),
    "old version": ('{"jsonrpc":"1.0","id":ID,"result":{}}', 'no "jsonrpc"'),
    "33 members": ('{"jsonrpc":"2.0","id":ID,"result":{}' + "".join(f',"x{i}":1' for i in range(33)) + "}", "more than 32"),
}
NAMELESS = {
    "no id": ('{"jsonrpc":"2.0","result":{}}', "without an id"),
    "two ids": ('{"jsonrpc":"2.0","id":ID,"id":7,"result":{}}', "stands there twice"),
    "id is an object": ('{"jsonrpc":"2.0","id":{"x":ID},"result":{}}', "neither a string nor"),
    "id is a fraction": ('{"jsonrpc":"2.0","id":ID.5,"result":{}}', "neither a string nor"),
    "id is cut off": ('{"jsonrpc":"2.0","id":ID', "expected"),
    "name of the id is escaped": ('{"jsonrpc":"2.0","\\u0069d":ID,"result":{}}', "escape in the name"),
    "version alone": ('{"jsonrpc":"2.0",', "must be a string"),
    "several lines": ('{\n  "jsonrpc": "2.0",\n  "id": ID,\n  "result": {}\n}', "object is expected"),
    "batch": ('[{"jsonrpc":"2.0","id":999,"result":{}},{"jsonrpc":"2.0","id":ID,"result":{"x":"\xff"}}]', "not UTF-8"),
}
HARMLESS = {
    "notification": '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\xff"}}',
    "half a notification": '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"two\nlines"}}',
    "log line with a message": '[DEBUG] got {"jsonrpc":"2.0","id":ID,"result":{}}',
    "log line as JSON": '{"level":"error","id":"ID","error":"\xff"}\n{"id":ID,"level":"info","message":"x"}',
    "log line of Python": "{'jsonrpc': '2.0', 'id': ID, 'result': {}}",
    "list": '[{"level":"info","id":ID},',
    "late answer": '{"jsonrpc":"2.0","id":1,"result":{"x":"\xff"}}',
    "empty message": '{"jsonrpc":"2.0"}',
}


def parametrize(cases):
    return pytest.mark.parametrize("case", [pytest.param(v, id=k) for k, v in cases.items()])


def raw(line, **more):
    return json.dumps({"line": line, **more}).encode()


@pytest.fixture
def k(ts, fake, tmp_path):
    kernel = ts.attach()
    ts.add({"fake": fake({"SECRET": "tok-3141592653"}, log=str(tmp_path / "lines"))})
    return kernel


@pytest.fixture
def web(ts):
    """A kernel that has called the tool hang of a server over HTTP."""
    servers = []

    def start(**habits):
        servers.append(Server(**habits))
        kernel = ts.attach()
        ts.add({"fake": {"url": servers[0].url, **({"type": "sse"} if habits.get("sse") else {})}})
        return kernel

    yield start
    for s in servers:
        s.closed.set()
        s.close()


def fails(ts, k, case, beside=()):
    """The call of raw fails, and those of @beside with it."""
    line, why = case
    k.call(9, "fake", "raw", raw(line))
    ts.decide(ts.asked())
    for _ in (9, *beside):
        m = k.expect(TOOL.CALL_RESULT)
        assert m.id in (9, *beside) and m.body["status"] == "failed"
        text = m.raw.decode()
        assert why in text and "cannot be read" in text and "not known" in text, text
        assert text.count('{"') or "jsonrpc" in text, "not the line's beginning"
    k.nothing()
    assert ts.run(k, 10, "fake", "echo")[0] == "ok"


def hang(ts, k, id):
    k.call(id, "fake", "hang")
    ts.decide(ts.asked())


@parametrize(ANSWERS)
def test_the_call_that_it_names_fails(ts, k, case):
    hang(ts, k, 1)
    fails(ts, k, case)


@parametrize(NAMELESS)
def test_all_calls_fail_where_it_names_none(ts, k, case):
    hang(ts, k, 1)
    fails(ts, k, case, beside=(1,))


@parametrize(HARMLESS)
def test_calls_go_on(ts, k, case):
    hang(ts, k, 1)
    assert ts.run(k, 2, "fake", "raw", raw(case, then="done"))[0] == "ok"
    k.nothing()


def test_a_byte_order_mark_is_left_out(ts, k):
    assert ts.run(k, 1, "fake", "raw", raw('\xef\xbb\xbf{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}'))[0] == "ok"


def test_a_request_that_cannot_be_read_is_refused(ts, k):
    """The server waits for an answer to it before it answers the call."""
    line = '{"jsonrpc":"2.0","id":"q1","method":"sampling/createMessage","params":{"x":"\xff"}}'
    status, result = ts.run(k, 1, "fake", "raw", raw(line, then="read"))
    assert status == "ok"
    refusal = json.loads(json.loads(result)["content"][0]["text"])
    assert (refusal["id"], refusal["error"]["code"]) == ("q1", -32600) and "not UTF-8" in refusal["error"]["message"]


def test_secrets_in_the_line_are_masked(ts, k):
    _, text = ts.run(k, 1, "fake", "raw", raw('{"jsonrpc":"2.0","id":ID,"result":"tok-3141592653\xff"}'))
    assert b"cannot be read" in text and b"3141592653" not in text


UNREADABLE = '{"jsonrpc":"2.0","id":ID,"result":{"x":"\xff"}}'


@pytest.mark.parametrize("line", [UNREADABLE, UNREADABLE.replace("ID", "{}")])
def test_a_start_that_cannot_be_read_fails_at_once(ts, fake, line):
    """The time for a start is longer than that of the test."""
    why = ts.servers({"fake": {**fake(initialize=line), "startTimeout": 3600}})["error"]["message"]
    assert "did not start" in why and "cannot be read" in why and "not UTF-8" in why and '"result"' in why


def test_an_older_server_may_refuse_discovery_unreadably(ts, fake):
    ts.attach()
    assert "error" not in ts.add({"fake": {**fake(discover=UNREADABLE), "startTimeout": 3600}})["fake"]


HTTP = {k: v for k, v in ANSWERS.items() if "half" not in k}


@pytest.mark.parametrize("habits", [{}, {"streams": True}, {"modern": True}, {"sse": True}], ids=str)
@parametrize({k: HTTP[k] for k in ["not UTF-8", "NUL", "id twice", "too deep", "many digits", "both"]})
def test_over_http_the_call_that_it_names_fails(ts, web, case, habits):
    k = web(**habits)
    hang(ts, k, 1)
    fails(ts, k, case)


@pytest.mark.parametrize("habits", [{}, {"streams": True}, {"modern": True}], ids=str)
@parametrize({k: NAMELESS[k] for k in ["no id", "two ids", "id is an object", "batch"]})
def test_a_response_of_http_names_its_call(ts, web, case, habits):
    k = web(**habits)
    hang(ts, k, 1)
    fails(ts, k, case)


@parametrize({k: NAMELESS[k] for k in ["no id", "two ids", "id is an object", "batch"]})
def test_one_stream_of_http_names_none(ts, web, case):
    k = web(sse=True)
    hang(ts, k, 1)
    fails(ts, k, case, beside=(1,))
