"""Resources and prompts: lists without a question, reads and gets that are asked about, limits, forged requests."""

import json
import re
import time

import pytest
from mcp_http_server import Server
from wire_table import BROKER, TOOL

LISTS = ["resources/list", "resources/templates/list", "prompts/list"]
READ, GET = "resources/read", "prompts/get"


@pytest.fixture
def lines(tmp_path):
    """The methods that the server was sent."""
    return lambda: [json.loads(line)["method"] for line in (tmp_path / "lines").read_bytes().splitlines()]


@pytest.fixture
def session(ts, fake, tmp_path):
    """Starts a kernel of a session with the server "fake", which offers all."""

    def make(**habits):
        kernel = ts.attach()
        ts.add({"fake": fake(offers=["resources", "prompts"], log=str(tmp_path / "lines"), **habits)})
        return kernel

    return make


@pytest.fixture
def k(session):
    return session()


@pytest.fixture
def http(ts):
    """Starts a server over HTTP, and a kernel of a session with it."""
    servers = []

    def make(**habits):
        servers.append(Server(offers=["resources", "prompts"], **habits))
        kernel = ts.attach()
        ts.add({"web": {"url": servers[-1].url}})
        return kernel, servers[-1]

    yield make
    for server in servers:
        server.close()


def listed(k, id, method, server="fake"):
    k.request(id, server, method)
    status, raw = k.result(id)
    assert status == "ok", raw
    return json.loads(raw)


# ---- lists


def test_lists_are_not_asked_about(ts, k, lines):
    assert [r["uri"] for r in listed(k, 1, LISTS[0])["resources"]] == ["fake://text", "fake://blob", "fake://big"]
    assert listed(k, 2, LISTS[1]) == {"resourceTemplates": [{"uriTemplate": "fake://{name}", "name": "any"}]}
    assert [p["name"] for p in listed(k, 3, LISTS[2])["prompts"]] == ["greet", "tools/call", "hang"]
    ts.broker.nothing()
    assert lines().count("resources/list") == 3  # a page for each


@pytest.mark.parametrize("method", LISTS)
def test_list_is_kept_until_it_changes(ts, k, lines, method):
    first = listed(k, 1, method)
    n = lines().count(method)
    for i in range(2, 50):
        assert listed(k, i, method) == first
    assert lines().count(method) == n
    assert ts.request(k, 50, "fake", READ, b'{"uri":"fake://change"}')[0] == "ok"
    assert listed(k, 51, method) == first
    assert lines().count(method) == 2 * n


def test_lists_at_the_same_time_are_one(ts, k, lines):
    for i in range(1, 40):
        k.request(i, "fake", LISTS[0])
    results = {k.expect(TOOL.CALL_RESULT).raw for _ in range(1, 40)}
    assert len(results) == 1 and lines().count("resources/list") == 3


@pytest.mark.parametrize("params", [b'{"cursor":"2"}', b'{"_meta":{}}', b"[]", b"", b"{} {}", b"null"])
@pytest.mark.parametrize("method", LISTS)
def test_lists_carry_nothing_of_the_kernel(ts, k, lines, method, params):
    k.request(1, "fake", method, params)
    assert k.result(1)[0] == "failed"
    assert method not in lines()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("endless", "more than 1000 pages"),
        ("same_cursor", "does not come to an end"),
        ("long", "list of resources is over 8388608 bytes"),
        ("error", "answered resources/list with an error: not listed"),
        ("not_array", "resources/list"),
    ],
)
def test_lists_have_limits(ts, session, how, said):
    k = session(listed=how)
    k.request(1, "fake", LISTS[0])
    status, raw = k.result(1, 60)
    assert (status, k.kind) == ("failed", "unavailable") and said in raw.decode()
    assert ts.run(k, 2, "fake", "echo")[0] == "ok"


def test_failed_list_is_not_kept(ts, session, lines):
    k = session(listed="error")
    for i in (1, 2):
        k.request(i, "fake", LISTS[0])
        assert k.result(i)[0] == "failed"
    assert lines().count("resources/list") == 2


def test_server_without_templates(ts, session):
    assert listed(session(listed="no_templates"), 1, LISTS[1]) == {"resourceTemplates": []}


def test_server_does_not_notice_who_gives_a_list_up(ts, session, lines):
    """Neither a time limit of the cell nor its cancellation: one list runs on, and the second request waits for it."""
    k = session(listed="hang")
    k.request(1, "fake", LISTS[0], timeout_ms=200)
    status, raw = k.result(1)
    assert (status, k.kind) == ("failed", "timeout") and b"did not list its resources within 200 ms" in raw
    k.request(2, "fake", LISTS[0])
    k.send(TOOL.CALL_CANCEL, 2)
    k.result(2)
    assert k.kind == "cancelled"
    assert ts.run(k, 3, "fake", "echo")[0] == "ok"
    assert lines().count(LISTS[0]) == 1 and not {"notifications/cancelled", "ping"} & set(lines())


def boundaries():
    """Multiples of CG_MCP_RELIST_MS of the clock that have passed."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 3_000_000_000


def ask_again_and_again(k, server, methods, seconds=4.0):
    """With a time limit that is over at once; None: an unknown tool. How many lists of a kind may be sent."""
    begun, end, id = boundaries(), time.monotonic() + seconds, 100
    while time.monotonic() < end:
        for method in methods:
            id += 1
            if method:
                k.request(id, server, method, timeout_ms=1 + id % 20)
            else:
                k.call(id, server, f"unknown{id}")
                k.send(TOOL.CALL_CANCEL, id)
            k.result(id)
    return 1 + boundaries() - begun


@pytest.mark.parametrize("how", ["hang", "error", "fickle"])
def test_lists_have_a_least_time_between_them(ts, session, lines, how):
    """Whatever the server answers: a cell could send it bits by the lists that it chooses."""
    k = session(listed=how, list_later="fickle")
    most = ask_again_and_again(k, "fake", [*LISTS, None])
    assert {m: n for m in [*LISTS, "tools/list"] if (n := lines().count(m)) > most + (m == "tools/list")} == {}


def test_lists_without_time_have_a_least_time_between_them(ts, http):
    k, server = http(modern=True, ttl=0)
    methods = [LISTS[0], LISTS[2]]
    most = ask_again_and_again(k, "web", methods)
    assert {m: n for m in methods if (n := server.methods().count(m)) > most} == {}


def test_list_begins_at_its_time(ts, http):
    """Also the time itself carries nothing, but for the first list."""
    k, server = http(modern=True, ttl=0)
    for i in range(3):
        listed(k, i, LISTS[0], "web")
        if i:
            assert time.monotonic() % 3 < 1
        time.sleep(0.3 + i / 2)
    assert server.methods().count(LISTS[0]) == 3


def test_cell_cannot_end_a_busy_server(ts, session, lines):
    """By lists without an answer, while it works on a call."""
    k = session()
    k.call(1, "fake", "echo_late", b'{"seconds":7}')
    ts.decide(ts.asked())
    for i in range(2, 8):
        k.request(i, "fake", LISTS[i % 3], timeout_ms=1)
        assert k.result(i)[0] == "failed" and k.kind == "timeout"
    assert k.result(1)[0] == "ok"
    assert lines().count("initialize") == 1


def test_cell_does_not_choose_the_time_of_a_start(ts, fake, tmp_path):
    hangs = tmp_path / "hangs"
    definition = fake(offers=["resources"])
    script = f'test -e {hangs} && exec sleep 600; exec "$0" "$@"'
    k = ts.attach()
    args = ["-c", script, definition["command"], *definition["args"]]
    ts.add({"fake": {"command": "/bin/sh", "args": args, "startTimeout": 2}})
    assert ts.run(k, 1, "fake", "exit")[0] == "failed"
    hangs.touch()
    k.request(2, "fake", LISTS[0], timeout_ms=86_400_000)
    status, raw = k.result(2)
    assert status == "failed" and b"did not answer initialize within 2000 ms" in raw


# ---- reads and gets


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (READ, b'{"uri":"fake://text"}'),
        (READ, b' {\t"uri" : "fake://\\u00e9\\ud83d\\ude00 \xc3\xa9" } '),
        (READ, b'{"uri":"' + b"x" * 8192 + b'"}'),
        (GET, b'{"name":"greet","arguments":{"who":"a\\nb","\\u0061":""}}'),
        (GET, b'{"arguments":{},"name":"greet"}'),
        (GET, b'{"name":"greet"}'),
    ],
)
def test_exactly_these_bytes(ts, k, tmp_path, method, params):
    assert ts.request(k, 1, "fake", method, params)[0] == "ok"
    line = (tmp_path / "lines").read_bytes().splitlines()[-1]
    start = b'"method":"' + method.encode() + b'","params":' + params.strip()[:-1]
    assert re.search(re.escape(start) + rb',"_meta":{"progressToken":\d+}}}$', line)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (READ, b"{}"),
        (READ, b'{"uri":1}'),
        (READ, b'{"uri":""}'),
        (READ, b'{"uri":"x","uri":"y"}'),
        (READ, b'{"\\u0075ri":"x"}'),
        (READ, b'{"uri":"x","_meta":{"a":1}}'),
        (READ, b'{"uri":"x","requestState":"y"}'),
        (READ, b'{"uri":"x\\u0000"}'),
        (READ, b'{"uri":"' + b"x" * 8193 + b'"}'),
        (READ, b'{"uri":"x"\n}'),
        (READ, b'{"name":"greet"}'),
        (READ, b'["x"]'),
        (GET, b"{}"),
        (GET, b'{"uri":"x"}'),
        (GET, b'{"name":"' + b"x" * 300 + b'"}'),
        (GET, b'{"name":"greet","arguments":[]}'),
        (GET, b'{"name":"greet","arguments":{"who":1}}'),
        (GET, b'{"name":"greet","inputResponses":{}}'),
    ],
)
def test_other_parameters_are_refused(ts, k, method, params):
    k.request(1, "fake", method, params)
    status, raw = k.result(1)
    assert (status, k.kind) == ("failed", "unavailable") and b"cannot be sent" in raw
    ts.broker.nothing()


def test_refused(ts, k, lines):
    for i, (method, params) in enumerate([(READ, b'{"uri":"fake://text"}'), (GET, b'{"name":"greet"}')]):
        k.request(i, "fake", method, params)
        ts.decide(ts.asked(), accept=False, reason="not this one")
        assert k.result(i) == ("rejected", b"not this one") and k.kind == "rejected"
        assert method not in lines()


def test_cancelled(ts, k, lines):
    params = b'{"uri":"fake://hang"}'
    k.request(1, "fake", READ, params)
    ask = ts.asked()
    k.send(TOOL.CALL_CANCEL, 1)
    assert ts.broker.expect(BROKER.ASK_CLOSED).id == ask.id
    ts.decide(ask)
    k.result(1)
    assert k.kind == "cancelled" and READ not in lines()
    k.request(2, "fake", READ, params)
    ts.decide(ts.asked())
    while READ not in lines():
        time.sleep(0.01)
    k.send(TOOL.CALL_CANCEL, 2)
    k.result(2)
    assert k.kind == "cancelled"
    assert ts.run(k, 3, "fake", "echo")[0] == "ok"
    assert lines()[-2:] == ["notifications/cancelled", "tools/call"]


@pytest.mark.parametrize(
    ("method", "params", "what"),
    [(READ, b'{"uri":"fake://hang"}', b'resource "fake://hang"'), (GET, b'{"name":"hang"}', b'prompt "hang"')],
)
def test_times_out(ts, k, method, params, what):
    status, raw = ts.request(k, 1, "fake", method, params, timeout_ms=200)
    assert (status, k.kind) == ("failed", "timeout") and what + b" did not answer within 200 ms" in raw


def test_errors_of_the_server(ts, k):
    status, raw = ts.request(k, 1, "fake", READ, b'{"uri":"fake://missing"}')
    assert status == "protocol_error" and json.loads(raw)["code"] == -32002
    status, raw = ts.request(k, 2, "fake", READ, b'{"uri":"fake://broken"}')
    assert status == "failed" and b'its answer to resource "fake://broken" is not an object' in raw
    assert ts.request(k, 3, "fake", READ, b'{"uri":"fake://exit"}')[0] == "failed" and k.kind == "died"
    assert ts.request(k, 4, "fake", READ, b'{"uri":"fake://text"}')[0] == "ok"


def test_large_resource_is_kept(ts, k):
    status, raw = ts.request(k, 1, "fake", READ, b'{"uri":"fake://big"}')
    assert (status, k.kind) == ("ok", "kept") and len(raw) < 1000
    assert k.kept(raw)["contents"][0]["text"] == "b" * (3 << 20)


def test_unknown_prompt(ts, k):
    k.request(1, "fake", GET, b'{"name":"gret"}')
    status, raw = k.result(1)
    assert (status, k.kind) == ("failed", "unavailable")
    assert raw == b'MCP server "fake" has no prompt "gret"; did you mean "greet"?'
    ts.broker.nothing()


def test_new_prompt_of_a_server_that_announces_nothing(ts, session):
    k = session(silent=True)
    assert ts.request(k, 1, "fake", GET, b'{"name":"greet"}')[0] == "ok"
    assert ts.request(k, 2, "fake", READ, b'{"uri":"fake://later"}')[0] == "ok"
    assert ts.request(k, 3, "fake", GET, b'{"name":"later"}')[0] == "ok"


def test_server_without_them(ts, fake):
    k = ts.attach()
    ts.add({"fake": fake()})
    for i, (method, params) in enumerate(
        [*((m, b"{}") for m in LISTS), (READ, b'{"uri":"x"}'), (GET, b'{"name":"x"}')]
    ):
        k.request(i, "fake", method, params)
        status, raw = k.result(i)
        assert (status, k.kind) == ("failed", "unavailable")
        assert raw.decode() == f'MCP server "fake" does not offer {method}'
    ts.broker.nothing()


# ---- forged requests


def test_tool_with_the_name_of_a_method(ts, k, fake):
    """Asked about as a tool, whatever its name; and a request is never one."""
    ts.add({"odd": fake(more=[READ, GET, "prompts/list"])})
    for i, name in enumerate([READ, GET, "prompts/list"]):
        status, raw = ts.run(k, i, "odd", name, b'{"uri":"fake://text"}')
        assert status == "ok" and f"the new tool {name}" in raw.decode()
    k.request(9, "fake", GET, b'{"name":"tools/call","arguments":{"name":"echo"}}')
    ask = ts.asked()
    assert (ask.body["method"], ask.body["tool"]) == (GET, "")
    ts.decide(ask)
    assert "tools/call with" in k.result(9)[1].decode()


def test_requests_count_as_calls(ts, k):
    """The limits of calls hold for all of them together."""
    for i in range(256):
        k.request(i, "fake", READ, b'{"uri":"fake://hang"}')
    k.call(256, "fake", "echo")
    m = ts.broker.receive(30)
    while m.type in (BROKER.ASK, BROKER.ASK_CLOSED):
        m = ts.broker.receive(30)
    assert m.type == BROKER.KERNEL_VIOLATION and "too many" in m.body["what"]


# ---- over HTTP, and revision 2026-07-28


@pytest.mark.parametrize("modern", [False, True])
def test_over_http(ts, http, modern):
    k, server = http(modern=modern)
    assert [r["uri"] for r in listed(k, 1, LISTS[0], "web")["resources"]] == ["test://a"]
    for i, uri in enumerate(["test://a", "test://\u00e9 \u20ac", " x", "=?base64?eA==?="], 2):
        status, raw = ts.request(k, i, "web", READ, json.dumps({"uri": uri}).encode())
        assert status == "ok" and json.loads(raw)["contents"][0]["uri"] == uri
    status, raw = ts.request(k, 10, "web", GET, b'{"name":"say","arguments":{"a":"b"}}')
    assert status == "ok" and '"a": "b"' in json.loads(raw)["messages"][0]["content"]["text"]
    sent = [r for r in server.requests if r.rpc() in (READ, GET)]
    if modern:  # the server compares the headers with the message
        assert [r.headers["mcp-method"] for r in sent] == [READ] * 4 + [GET]
    else:
        assert not any("mcp-name" in r.headers for r in sent)


def test_rounds(ts, http):
    k, server = http(modern=True)
    for i, (method, params) in enumerate([(READ, b'{"uri":"test://rounds"}'), (GET, b'{"name":"rounds"}')]):
        status, raw = ts.request(k, i, "web", method, params)
        assert status == "ok"
        got = [r.message for r in server.requests if r.rpc() == method]
        assert [m["params"].get("requestState") for m in got] == [None, "1", "2"]
        assert got[2]["params"]["inputResponses"] == {"q": {"action": "decline"}}
        assert len({m["id"] for m in got}) == 3


def test_unknown_result_type(ts, http):
    k, _ = http(modern=True)
    status, raw = ts.request(k, 1, "web", READ, b'{"uri":"test://surprise"}')
    assert status == "failed" and b"unknown type" in raw


def test_list_is_kept_for_its_time(ts, http):
    k, server = http(modern=True, ttl=300)
    for i in range(3):
        listed(k, i, LISTS[0], "web")
    assert server.methods().count(LISTS[0]) == 1
    time.sleep(0.4)
    listed(k, 4, LISTS[0], "web")
    assert server.methods().count(LISTS[0]) == 2
    k2, server = http(modern=True, ttl=0)
    for i in range(3):
        listed(k2, i, LISTS[0], "web")
    assert server.methods().count(LISTS[0]) == 3


def test_changes_are_listened_to(ts, http, waiting):
    k, server = http(modern=True)
    waiting(lambda: server.listening, 10, "a subscription")
    (listen,) = [r.message for r in server.requests if r.rpc() == "subscriptions/listen"]
    wanted = ["toolsListChanged", "resourcesListChanged", "promptsListChanged"]
    assert listen["params"]["notifications"] == dict.fromkeys(wanted, True)
    listed(k, 1, LISTS[0], "web")
    listed(k, 2, LISTS[2], "web")
    assert ts.request(k, 3, "web", READ, b'{"uri":"test://change"}')[0] == "ok"

    def changed():
        changed.id += 1
        listed(k, changed.id, LISTS[0], "web")
        return server.methods().count(LISTS[0]) == 2

    changed.id = 3
    waiting(changed, 10, "another list")
    listed(k, 1000, LISTS[2], "web")
    assert server.methods().count(LISTS[2]) == 1
