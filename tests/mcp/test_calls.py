"""Tool calls: check, ask, run, answer; and what bad servers make of them."""

import contextlib
import json
import os
import resource
import signal
import time
from pathlib import Path

import pytest
from rounds import dear
from wire_table import BROKER, TOOL


@pytest.fixture
def k(ts, fake, tmp_path):
    """A kernel of a session with the server "fake"."""
    kernel = ts.attach()
    ts.add({"fake": fake({"SECRET": "tok-3141592653"}, log=str(tmp_path / "lines"))})
    return kernel


@pytest.fixture
def lines(tmp_path):
    """Return the raw lines that the server has read."""
    return lambda: (tmp_path / "lines").read_bytes().splitlines()


def content(result):
    status, raw = result
    assert status == "ok", raw
    return json.loads(raw)["content"][0]["text"]


# ---- what is approved is what runs


@pytest.mark.parametrize(
    "args",
    [
        b"{}",
        b' { "a" :\t1 } ',
        b'{"n":123456789012345678901234567890,"e":1e308,"z":-0.0,"f":1.10}',
        b'{"both":"\\ud83d\\ude00","nul":"\\u0000","esc":"\\u0041\\/","raw":"\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80"}',
        b'{"\\u0061":{"a":1,"b":[{"a":2},{"a":3}]},"":[],"x":null}',
        b'{"deep":' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"long":[' + b"9" * 1000 + b",-" + b"9" * 999 + b"]}",
    ],
)
def test_exactly_these_bytes(ts, k, lines, args):
    k.call(7, "fake", "echo", args)
    ask = ts.asked()
    assert ask.raw == args and ask.body == {"kernel": 1, "server": "fake", "method": "tools/call", "tool": "echo"} and ask.session == 1
    ts.decide(ask)
    status, raw = k.result(7)
    assert status == "ok" and b"content" in raw
    line = lines()[-1]
    id = json.loads(line)["id"]
    begin = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":' % id
    assert line == begin + args + b',"_meta":{"progressToken":%d}}}' % id


def test_arguments_of_the_largest_size(ts, k, lines):
    args = b'{"a":"' + b"x" * ((4 << 20) - 8) + b'"}'
    assert len(args) == 4 << 20
    assert ts.run(k, 1, "fake", "echo", args)[0] == "ok"
    assert args in lines()[-1]


NEVER_ASKED = [
    b"",
    b"[]",
    b"null",
    b'{"a":1',
    b'{"a":1}x',
    b"{'a':1}",
    b'{"a":01}',
    b'{"a":"\xff"}',
    b'{"a":1,\n"b":2}',
    b'{"a":1}\r',
    b'{"a":1,"a":2}',
    b'{"a":1,"\\u0061":2}',
    b'{"x":[{"y":{"k\\u00e9":1,"k\xc3\xa9":1}}]}',
    b'{"\\ud83d\\ude00":1,"\xf0\x9f\x98\x80":2}',
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"a":NaN}',
    b'\xef\xbb\xbf{"a":1}',
    b'{"a":' + b"9" * 1001 + b"}",
    b'{"a":[{"b":-' + b"9" * 5000 + b"}]}",
    b'{"a":0.' + b"1" * 1000 + b"}",
    b'{"a":1e' + b"0" * 1000 + b"1}",
]


def test_arguments_that_are_never_asked_about(ts, k, lines):
    for i, args in enumerate(NEVER_ASKED, 1):
        k.call(i, "fake", "echo", args)
        status, text = k.result(i)
        assert status == "failed" and b"arguments" in text, args
    ts.broker.nothing()
    assert b"tools/call" not in lines()[-1]


def test_nothing_runs_before_the_decision(ts, k, lines):
    k.call(1, "fake", "echo")
    ask = ts.asked()
    k.nothing()
    assert b"tools/call" not in lines()[-1]
    ts.decide(ask)
    assert k.result(1)[0] == "ok"


def test_rejected(ts, k, lines):
    k.call(1, "fake", "echo")
    ts.decide(ts.asked(), False, "not today \u00fc")
    assert k.result(1) == ("rejected", "not today ü".encode())
    assert b"tools/call" not in lines()[-1]


def test_a_decision_is_used_once(ts, k, lines):
    k.call(1, "fake", "echo", b'{"n":1}')
    ask = ts.asked()
    ts.decide(ask)
    ts.decide(ask)
    assert k.result(1)[0] == "ok"
    k.call(1, "fake", "echo", b'{"n":2}')  # even under the same number
    second = ts.asked()
    assert second.id != ask.id
    ts.decide(ask)
    k.nothing()
    assert sum(b"tools/call" in x for x in lines()) == 1


def test_decision_of_another_session(ts, k, fake):
    ts.attach(2)
    k.call(1, "fake", "echo")
    ask = ts.asked()
    ask.session = 2
    ts.decide(ask)
    k.nothing()


def test_decision_without_accept_is_a_refusal(ts, k):
    k.call(1, "fake", "echo")
    ask = ts.asked()
    ts.broker.send(9, ask.id, {}, session=1)
    assert k.result(1) == ("rejected", b"")


def test_many_at_once_in_any_order(ts, k):
    for i in range(256):
        k.call(i, "fake", "echo", b'{"n":%d}' % i)
    asks = [ts.asked() for _ in range(256)]
    assert len({a.id for a in asks}) == 256
    for ask in reversed(asks):
        ts.decide(ask)
    got = {}
    for _ in range(256):
        m = k.expect(2)
        got[m.id] = json.loads(json.loads(m.raw)["content"][0]["text"])["n"]
    assert got == {i: i for i in range(256)}


# ---- results


@pytest.mark.parametrize(
    "text",
    [
        '{"content":[],"n":123456789012345678901234567890,"h":"\\ud800\\u0000"}',
        '{"structuredContent":null,"content":[{"type":"text","text":"\u2028"}], "x" : 1e999 }',
        '{"a":' + "[" * 1000 + "]" * 1000 + "}",
        '{"id":5,"error":{},"result":1,"jsonrpc":"1.0"}',
        '{"a":1,"a":2}',
    ],
)
def test_results_are_relayed_unread(ts, k, text):
    status, raw = ts.run(k, 1, "fake", "result_text", json.dumps({"text": text}).encode())
    assert (status, raw) == ("ok", text.encode())


def test_result_of_many_megabytes(ts, k):
    status, raw = ts.run(k, 1, "fake", "big", b'{"size":40000000,"pieces":true}')
    assert status == "ok" and len(raw) > 40_000_000 and k.kind == ""


def test_results_that_nobody_reads_yet(ts, k):
    """More than ZeroMQ and the socket buffers hold: they wait here."""
    for i in range(12):
        k.call(i, "fake", "big", b'{"size":5000000,"pieces":true}')
        ts.decide(ts.asked())
    assert {k.expect(2, 30).id for _ in range(12)} == set(range(12))


def test_is_error_is_a_result(ts, k):
    status, raw = ts.run(k, 1, "fake", "is_error")
    assert status == "ok" and json.loads(raw)["isError"] is True


def test_protocol_error(ts, k):
    status, raw = ts.run(k, 1, "fake", "rpc_error")
    assert status == "protocol_error" and json.loads(raw) == {"code": -32602, "message": "bad", "data": {"x": [1]}}


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("crlf", "crlf"),
        ("bytes", "in bytes"),
        ("batch", "batched"),
        ("garbage", "after garbage"),
        ("notify", "notified"),
        ("null_error", "fine"),
        ("twice", "first"),
    ],
)
def test_tolerated(ts, k, tool, text):
    assert content(ts.run(k, 1, "fake", tool)) == text
    assert content(ts.run(k, 2, "fake", "echo", b'{"still":"there"}')) == '{"still": "there"}'
    assert all(c >= " " or c == "\n" for c in ts.log())  # one line a record, whatever the server says


def test_requests_of_the_server(ts, k):
    pong, refusal = content(ts.run(k, 1, "fake", "ask_client")).splitlines()
    assert json.loads(pong) == {"jsonrpc": "2.0", "id": "p-1", "result": {}}
    refusal = json.loads(refusal)
    assert refusal["id"] == 77 and refusal["error"]["code"] == -32601


# ---- failures


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("exit", b"exit status 7"),
        ("exit_with_words", b"exit status 4"),
        ("half_exit", b"exit status 3"),
        ("close_stdout", b"closed its standard output"),
        ("not_object", b"not an object"),
        ("error_null_id", b"cannot parse"),
    ],
)
def test_failed_and_the_next_call_works(ts, k, tool, says):
    status, text = ts.run(k, 1, "fake", tool)
    assert status == "failed" and says in text and b"fake" in text
    assert content(ts.run(k, 2, "fake", "echo", b'{"again":1}')) == '{"again": 1}'


def test_last_words_without_secrets(ts, k):
    """The host gets them. The cell is told that it does."""
    _, text = ts.run(k, 1, "fake", "exit_with_words")
    assert text.endswith(b"it ended (exit status 4); the host application has the reason")
    told = ts.failure()
    assert "fatal: token is ***" in told and "\\x1b[31mwords" in told
    assert "tok-3141592653" not in told and "tok-3141592653" not in ts.log()


def test_last_lines_of_standard_error_are_shown(ts, k):
    """As many as an agent can read at once, however many there were, and where the others are."""
    ts.run(k, 1, "fake", "exit", b'{"words":5000}')
    told = ts.failure()
    head, *shown = [line for line in told.splitlines() if "standard error" in line or line.startswith("[fake] ")]
    assert head.endswith("standard error (more is in the log of --log-level 1):")
    assert len(told) < 800 and len(shown) == 7
    assert shown == [f"[fake] word {i} {'x' * 60}" for i in range(4993, 5000)]


def test_standard_error_of_a_server_that_failed_is_logged(start, fake):
    """The last 64 KB of it, where the log has not had each line already."""
    ts = start(log_level=1)
    k = ts.attach()
    ts.add({"fake": fake()})
    assert "stderr" not in ts.log()
    ts.run(k, 1, "fake", "exit", b'{"words":5000}')
    ts.wait_log(f"stderr: word 4999 {'x' * 60}\n")
    logged = [line.split("stderr: ")[1] for line in ts.log().splitlines() if "stderr: " in line]
    assert logged == [f"word {i} {'x' * 60}" for i in range(5000 - len(logged), 5000)]
    assert 48 << 10 <= sum(len(line) + 1 for line in logged) <= 64 << 10


def test_exit_between_calls(ts, k, lines):
    ts.run(k, 1, "fake", "exit")
    assert ts.run(k, 2, "fake", "echo")[0] == "ok"
    methods = [json.loads(x)["method"] for x in lines()]
    assert methods.count("initialize") == 2 and methods.count("tools/list") == 2  # another process: other tools?


def test_all_calls_of_a_server_that_exits(ts, k):
    for i in range(5):
        k.call(i, "fake", "hang")
        ts.decide(ts.asked())
    k.call(5, "fake", "exit")
    ts.decide(ts.asked())
    got = {}
    for _ in range(6):
        m = k.expect(2)
        got[m.id] = (m.body["status"], b"exit status 7" in m.raw)
    assert got == {i: ("failed", True) for i in range(6)}


def test_stdin_closed_by_the_server(ts, k):
    """Its end is noticed by the next write."""
    k.call(1, "fake", "close_stdin")
    ts.decide(ts.asked())
    k.nothing(0.3)
    k.call(2, "fake", "echo")
    ts.decide(ts.asked())
    got = {m.id: m for m in (k.expect(2), k.expect(2))}
    assert all(m.body["status"] == "failed" and b"closed its standard input" in m.raw for m in got.values())
    assert ts.run(k, 3, "fake", "echo")[0] == "ok"


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("wrong_id", b"an id that no request has"),
        ("string_id", b"an id that no request has"),
        ("no_result", b"neither method, result nor error"),
        ("no_version", b'no "jsonrpc"'),
    ],
)
def test_a_broken_answer_fails_the_call_at_once(ts, k, tool, why):
    """It has no time limit: no one would get the result."""
    status, text = ts.run(k, 1, "fake", tool)
    assert status == "failed" and why in text
    assert content(ts.run(k, 2, "fake", "echo", b'{"x":1}')) == '{"x": 1}'


def test_a_wrong_id_is_nobodys_where_several_wait(ts, k):
    for i in (1, 2):
        k.call(i, "fake", "hang")
        ts.decide(ts.asked())
    k.call(3, "fake", "wrong_id")
    ts.decide(ts.asked())
    k.nothing(0.5)


@pytest.mark.parametrize("tool", ["hang"])
def test_timeout(ts, k, tool, lines, waiting):
    begun = time.monotonic()
    status, text = ts.run(k, 1, "fake", tool, timeout_ms=400)
    assert status == "failed" and b"400 ms" in text and tool.encode() in text
    assert time.monotonic() - begun >= 0.4
    waiting(lambda: b'"ping"' in lines()[-1], 5, "the server to be notified")
    call, cancelled = (json.loads(x) for x in lines()[-3:-1])
    assert cancelled["params"]["requestId"] == call["id"] and "id" not in cancelled
    assert content(ts.run(k, 2, "fake", "echo", b'{"x":1}')) == '{"x": 1}'


def test_the_time_for_the_decision_does_not_count(ts, k):
    k.call(1, "fake", "echo", timeout_ms=200)
    ask = ts.asked()
    k.nothing(0.5)
    ts.decide(ask)
    assert k.result(1)[0] == "ok"


def test_line_that_does_not_end(ts, k):
    """It is no answer until its end has come. The answer to the ping that follows is part of it, and cannot be read."""
    status, text = ts.run(k, 1, "fake", "half_hang", timeout_ms=300)
    assert status == "failed" and b"300 ms" in text
    assert content(ts.run(k, 2, "fake", "echo", b'{"x":2}')) == '{"x": 2}'
    k.nothing()


def test_late_answer_is_nobodys(ts, k):
    status, _ = ts.run(k, 1, "fake", "echo_late", b'{"seconds":0.6}', timeout_ms=200)
    assert status == "failed"
    assert content(ts.run(k, 2, "fake", "echo", b'{"mine":2}')) == '{"mine": 2}'
    k.nothing()


def test_line_over_the_limit(ts, k):
    status, text = ts.run(k, 1, "fake", "huge", b'{"size":270000000}')
    assert status == "failed" and b"too long" in text
    assert content(ts.run(k, 2, "fake", "echo", b'{"x":1}')) == '{"x": 1}'


def test_unknown_server_and_tool_are_never_asked_about(ts, k):
    k.call(1, "fakes", "echo")
    assert k.result(1) == ("failed", b'there is no MCP server "fakes" in this session; registered are "fake"')
    k.call(2, "fake", "Ech0")
    assert k.result(2) == ("failed", b'MCP server "fake" has no tool "Ech0"; did you mean "echo"?')
    k.call(3, "fake", "utterly different")
    assert k.result(3) == ("failed", b'MCP server "fake" has no tool "utterly different"')
    ts.broker.nothing()


def test_masked_texts_confirm_no_guess_of_a_secret(k):
    """A cell chooses the name: what it gets back must not tell which beginning of a secret is right."""
    secret = "tok-3141592653"  # of the server
    digits = secret.encode().hex()
    for i, guess in enumerate([secret[:9], secret[:8] + "x", digits[:9], digits[:8] + "f", digits[1:17]]):
        k.call(i, "fake", guess)
        assert k.result(i) == ("failed", f'MCP server "fake" has no tool "{guess}"'.encode())
    k.call(9, "fake", f"all of it: {secret}")
    assert k.result(9) == ("failed", b'MCP server "fake" has no tool "all of it: ***"')


def test_tool_that_was_announced_later(ts, k):
    ts.run(k, 1, "fake", "add_tool", b'{"name":"brand_new"}')
    k.call(2, "fake", "brand_new")
    assert ts.noticed() == "MCP server fake has new tools: brand_new\n"
    ts.decide(ts.asked())
    assert content(k.result(2)) == "the new tool brand_new"
    k.call(3, "fake", "newer_still")
    assert k.result(3)[0] == "failed"
    assert ts.noticed() == "MCP server fake: its modules were made anew; added: brand_new\n"
    ts.broker.nothing()


@pytest.fixture
def later(ts, fake, tmp_path, waiting):
    """A server that answers lists but the first on a signal: its kernel, how many it was asked for, and the signal."""

    class Later:
        def __init__(self, how: str) -> None:
            self.k = ts.attach()
            ts.add({"fake": fake(log=str(tmp_path / "lines"), pids=str(tmp_path / "pids"), list_later=how)})
            ts.run(self.k, 1, "fake", "add_tool", b'{"name":"brand_new"}')

        def wait_lists(self, n: int) -> None:
            lines = tmp_path / "lines"
            waiting(lambda: lines.read_bytes().count(b"tools/list") >= n, 10, "the list")
            assert lines.read_bytes().count(b"tools/list") == n

        def answer(self) -> None:
            os.kill(json.loads((tmp_path / "pids").read_text())[0], signal.SIGUSR1)

    return Later


def test_longest_timeout(ts, fake):
    """The kernel chooses it: the deadline does not overflow."""
    k = ts.attach()
    ts.add({"fake": fake()})
    assert ts.run(k, 1, "fake", "echo", b"{}", 2**63 - 1)[0] == "ok"


def test_one_list_serves_all_calls_that_wait_for_it(ts, later):
    server = later("yes")
    k = server.k
    for i in range(2, 12):
        k.call(i, "fake", "brand_new")
    k.call(12, "fake", "newer_still")
    server.wait_lists(2)
    server.answer()
    assert ts.noticed() == "MCP server fake has new tools: brand_new\n"
    asks = [ts.asked() for _ in range(10)]
    assert {a.body["tool"] for a in asks} == {"brand_new"}
    assert k.result(12)[0] == "failed"
    assert ts.noticed() == "MCP server fake: its modules were made anew; added: brand_new\n"
    ts.broker.nothing()
    server.wait_lists(2)


def test_a_server_whose_tools_change_all_the_time_sends_one_list_at_a_time(ts, later):
    """Each list may have 64 MB, and a kernel 256 calls that wait for one."""
    server = later("fickle")
    k = server.k
    for i in range(2, 22, 2):
        k.call(i, "fake", f"unknown_{i}")
    server.wait_lists(2)
    k.send(TOOL.CALL_CANCEL, 2)  # the first that waits for this list
    assert k.result(2) == ("failed", b"cancelled")
    # A change is announced during each list. The tools may be in the next one, which the calls wait for.
    for n in (2, 3):
        k.nothing()
        server.wait_lists(n)
        server.answer()
        server.wait_lists(n + 1)
    k.nothing()
    server.answer()
    results = [k.expect(TOOL.CALL_RESULT) for _ in range(9)]
    assert {m.id: m.raw for m in results} == {
        i: b'MCP server "fake" has no tool "unknown_%d"' % i for i in range(4, 22, 2)
    }


def test_a_list_that_fails_leaves_nothing_for_known(ts, later):
    """Also if the last one before it has the tool: it was announced as changed."""
    server = later("error")
    k = server.k
    k.call(2, "fake", "brand_new")
    k.call(3, "fake", "echo")
    ts.decide(ts.asked())
    server.wait_lists(2)
    server.answer()
    assert {k.expect(TOOL.CALL_RESULT).raw for _ in range(2)} == {
        b'MCP server "fake" answered tools/list with an error: the list is closed'
    }
    k.call(4, "fake", "brand_new")
    k.call(5, "fake", "echo", b'{"x":5}')
    ts.decide(ts.asked())
    server.wait_lists(3)
    k.nothing()
    server.answer()
    ts.noticed()
    assert ts.asked().body["tool"] == "brand_new"
    assert content(k.result(5)) == '{"x": 5}'


def test_a_list_that_a_cell_has_given_up_is_for_the_next_call(ts, later):
    server = later("yes")
    k = server.k
    k.call(2, "fake", "brand_new")
    server.wait_lists(2)
    k.send(TOOL.CALL_CANCEL, 2)
    assert k.result(2) == ("failed", b"cancelled")
    k.call(3, "fake", "brand_new")
    k.nothing()
    server.answer()
    ts.noticed()
    assert ts.asked().body["tool"] == "brand_new"
    server.wait_lists(2)


@pytest.mark.sanitized_in_soak
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": "a", "method": "elicitation/create"},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "id": "nobody's", "result": {}},
        "not JSON-RPC",
    ],
)
def test_a_flood_of_messages_fills_neither_memory_nor_the_log(ts, k, message):
    """The server reads none of the answers meanwhile."""

    before = ts.memory()
    result = ts.run(k, 1, "fake", "flood", json.dumps({"times": 300, "message": message}).encode())
    assert result[0] == "ok" or message.get("result") == {}, result
    assert ts.memory() - before < 40_000_000 or "CG_SANITIZED" in os.environ  # which keeps what was freed
    assert ts.log_path.stat().st_size < 1_000_000


# ---- cancelling


def test_cancel_while_asked(ts, k, lines):
    k.call(1, "fake", "echo")
    ask = ts.asked()
    k.send(TOOL.CALL_CANCEL, 1)
    closed = ts.broker.expect(BROKER.ASK_CLOSED)
    assert closed.id == ask.id and closed.session == 1 and "cancel" in closed.body["why"]
    assert k.result(1) == ("failed", b"cancelled")
    ts.decide(ask)  # too late
    k.nothing()
    assert b"tools/call" not in lines()[-1]


def test_cancel_while_it_runs(ts, k, lines, waiting):
    k.call(1, "fake", "hang")
    ts.decide(ts.asked())
    waiting(lambda: b"tools/call" in lines()[-1], 5, "the call")
    k.send(TOOL.CALL_CANCEL, 1)
    assert k.result(1) == ("failed", b"cancelled")
    waiting(lambda: b"notifications/cancelled" in b"".join(lines()), 5, "the server to be notified")
    assert ts.run(k, 2, "fake", "echo")[0] == "ok"


def test_cancel_of_what_is_over(ts, k):
    ts.run(k, 1, "fake", "echo")
    k.send(TOOL.CALL_CANCEL, 1)
    k.send(TOOL.CALL_CANCEL, 99)
    assert ts.run(k, 2, "fake", "echo")[0] == "ok"


def test_stderr_that_never_ends(ts, fake):
    k = ts.attach()
    ts.add({"noisy": fake(stderr="forever")})
    for i in range(20):
        assert ts.run(k, i, "noisy", "echo")[0] == "ok"
    assert ts.log_path.stat().st_size < 5_000_000


# ---- kinds of failures


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        ("is_error", ""),
        ("rpc_error", "protocol"),
        ("exit", "died"),
        ("close_stdout", "died"),
        ("not_object", "unavailable"),
        ("hang", "timeout"),
    ],
)
def test_kinds_of_failures(ts, k, tool, kind):
    ts.run(k, 1, "fake", tool, timeout_ms=400 if tool == "hang" else 0)
    assert k.kind == kind


@pytest.mark.sanitized_in_soak
def test_kind_of_a_result_that_is_too_large(ts, k):
    ts.run(k, 1, "fake", "huge", b'{"size":270000000}')
    assert k.kind == "too_large"
    status, text = ts.run(k, 2, "fake", "big", b'{"size":70000000,"pieces":true}')
    assert status == "failed" and b"over the limit" in text and k.kind == "too_large"


def test_kind_of_what_is_not_there(ts, k):
    for server, tool in (("fakes", "echo"), ("fake", "nothing")):
        k.call(1, server, tool)
        assert k.result(1)[0] == "failed" and k.kind == "unavailable"


def test_kinds_of_refusals(ts, k):
    k.call(1, "fake", "echo")
    ts.decide(ts.asked(), False, "no")
    assert k.result(1) == ("rejected", b"no") and k.kind == "rejected"
    k.call(2, "fake", "echo")
    ask = ts.asked()
    body = {"accept": False, "timed_out": True, "reason": "late"}
    ts.broker.send(BROKER.ASK_DECISION, ask.id, body, session=1)
    assert k.result(2) == ("rejected", b"late") and k.kind == "approval_timeout"
    k.call(3, "fake", "echo")
    ask = ts.asked()
    ts.broker.send(BROKER.ASK_DECISION, ask.id, {"accept": True, "timed_out": True}, session=1)
    assert k.result(3)[0] == "ok" and k.kind == ""


def test_kind_of_a_cancelled_call(ts, k):
    k.call(1, "fake", "hang")
    ts.decide(ts.asked())
    k.send(TOOL.CALL_CANCEL, 1)
    assert k.result(1) == ("failed", b"cancelled") and k.kind == "cancelled"


# ---- results that stay with the tool server


def files(ts, folder=None):
    """Files of the process that have no name any more, in the state folder."""
    folder = folder or Path(os.environ["XDG_STATE_HOME"], "cellgate")
    n = 0
    for fd in Path(f"/proc/{ts.inner}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            n += os.readlink(fd).startswith(f"{folder}/#")
    return n


@pytest.mark.sanitized_in_soak
def test_large_result_stays(ts, k):
    size = 200_000_000
    status, raw = ts.run(k, 1, "fake", "big", b'{"size":200000000}')
    assert status == "ok" and k.kind == "kept" and len(raw) < 1000
    head = json.loads(raw.split(b"\n")[0])
    assert head["handle"] == 1 and [p[1:] for p in head["parts"]] == [[0, size, 1]] and files(ts) == 1
    assert k.read(1, size - 10, 10) == ("ok", b"b" * 10)
    assert k.read(1, 0, 1 << 20) == ("ok", b"b" * (1 << 20))
    for offset, length in ((size, 1), (size - 1, 2), (1 << 62, 1)):
        assert k.read(1, offset, length) == ("failed", b"the result has 200000000 bytes")
    k.send(TOOL.RESULT_FREE, 1)
    k.send(TOOL.RESULT_FREE, 1)
    status, text = k.read(1, 0, 1)
    assert status == "failed" and b"gone" in text and files(ts) == 0


@pytest.mark.parametrize(
    ("piece", "width"),
    [("a", 1), (r'\n\u0041\/\\\"', 1), (r"é\u00ff", 1), (r"€\ud800", 2), (r"\ud83d\ude00x", 4), (r"😀\udc00", 4)],
)  # fmt: skip
def test_kept_strings_are_exact(ts, k, piece, width):
    """All escapes and widths, lone surrogates among them. Keys stay where they are."""
    parts = (piece * (600_000 // len(piece)), "A" * 400_000, "k" * 70_000, "s" * 60_000)
    text = '{{"content":[{{"type":"text","text":"{}"}},{{"type":"image","data":"{}"}}],"{}" : 1,"x":"{}"}}'.format(*parts)
    status, raw = ts.run(k, 1, "fake", "result_text", json.dumps({"text": text}).encode())
    assert status == "ok" and k.kind == "kept" and 130_000 < len(raw) < 131_000
    assert [p[3] for p in json.loads(raw.split(b"\n")[0])["parts"]] == [width, 1]
    assert k.kept(raw) == json.loads(text)


def test_kept_string_with_many_escapes_is_written_in_large_pieces(ts, k):
    """Each write would stop the calls of all sessions for its time."""

    def writes():
        lines = Path(f"/proc/{ts.inner}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["syscw"])

    text = '{"content":[{"type":"text","text":"%s"}]}' % (r"\na" * 400_000)
    before = writes()
    status, raw = ts.run(k, 1, "fake", "result_text", json.dumps({"text": text}).encode())
    assert status == "ok" and k.kind == "kept"
    assert writes() - before < 2000
    assert k.kept(raw) == json.loads(text)


def test_no_more_results_are_kept_than_the_limit(ts, k):
    for i in range(64):
        assert ts.run(k, i, "fake", "big", b'{"size":1100000}')[0] == "ok" and k.kind == "kept"
    assert files(ts) == 64
    status, raw = ts.run(k, 64, "fake", "big", b'{"size":1100000}')
    assert status == "ok" and k.kind == "" and len(raw) > 1_100_000
    k.send(TOOL.RESULT_FREE, 5)
    assert ts.run(k, 65, "fake", "big", b'{"size":1100000}')[0] == "ok" and k.kind == "kept"
    ts.detach(keep=True)
    assert files(ts) == 0


@dear
def test_no_more_bytes_are_kept_than_the_limit(ts, k):
    for i in range(5):
        assert ts.run(k, i, "fake", "big", b'{"size":200000000}')[0] == "ok" and k.kind == "kept"
    status, text = ts.run(k, 9, "fake", "big", b'{"size":100000000}')
    assert status == "failed" and k.kind == "too_large" and b"over the limit" in text
    for i in range(5):
        k.send(TOOL.RESULT_FREE, i)
    assert ts.run(k, 10, "fake", "big", b'{"size":100000000}')[0] == "ok" and k.kind == "kept"


def test_without_a_state_folder_results_are_kept_beside_the_socket(start, fake, tmp_path):
    (tmp_path / "file").touch()
    ts = start({"XDG_STATE_HOME": str(tmp_path / "file")})
    k = ts.attach()
    ts.add({"fake": fake()})
    ts.run(k, 1, "fake", "big", b'{"size":2000000}')
    assert k.kind == "kept" and files(ts, ts.folder) == 1
    assert k.read(1, 1_999_999, 1) == ("ok", b"b")


def test_disk_that_is_full(ts, k):
    """The largest file stands for it. What fits a message is sent in one."""
    resource.prlimit(ts.inner, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    status, raw = ts.run(k, 1, "fake", "big", b'{"size":8000000}')
    assert status == "ok" and k.kind == "" and len(raw) > 8_000_000
    status, text = ts.run(k, 2, "fake", "big", b'{"size":100000000}')
    assert status == "failed" and k.kind == "too_large"
    assert b"cannot be kept: its file cannot be written: write: File too large" in text
    assert files(ts) == 0


@pytest.mark.sanitized_in_soak
@pytest.mark.parametrize("end", ["cancel", "detach"])
def test_end_of_a_call_whose_result_is_being_written(ts, k, waiting, end):
    """It is written beside the event loop; nothing is left of it."""
    k.call(1, "fake", "big", b'{"size":200000000}')
    ts.decide(ts.asked())
    waiting(lambda: files(ts) == 1, 20, "the file")
    if end == "detach":
        ts.detach(keep=True)
        k = ts.attach()
    else:
        k.send(TOOL.CALL_CANCEL, 1)
        status, text = k.result(1, 20)
        assert (status, text, k.kind) == ("failed", b"cancelled", "cancelled") or k.kind == "kept"
        k.send(TOOL.RESULT_FREE, 1)
    assert ts.run(k, 2, "fake", "echo")[0] == "ok"
    waiting(lambda: files(ts) == 0, 20, "the end of the file")


@pytest.mark.slow
def test_large_results_at_once(ts, k):
    """More than are converted beside the event loop."""
    for i in range(4):
        k.call(i, "fake", "big", b'{"size":40000000}')
    for _ in range(4):
        ts.decide(ts.asked())
    results = [k.expect(TOOL.CALL_RESULT, 60) for _ in range(4)]
    assert sorted(m.id for m in results) == list(range(4))
    assert all(m.body == {"status": "ok", "kind": "kept"} for m in results) and files(ts) == 4
    assert all(k.read(i, 39_999_999, 1) == ("ok", b"b") for i in range(4))


def test_kept_results_belong_to_one_kernel(ts, k, fake):
    ts.run(k, 7, "fake", "big", b'{"size":2000000}')
    other = ts.attach(2)
    assert other.read(7, 0, 1)[0] == "failed"
    other.send(TOOL.RESULT_FREE, 7)
    assert other.read(7, 0, 1)[0] == "failed"
    assert k.read(7, 0, 1) == ("ok", b"b")
    ts.detach(keep=True)
    assert ts.attach(1).read(7, 0, 1)[0] == "failed"
