"""Which of the protocol's two eras a stdio server speaks: whatever it makes of server/discover, it can be used."""

import json
import sys

import pytest
from wire_table import TOOL

MODERN = '''
import json, sys
first = True
for line in sys.stdin:
    m = json.loads(line)
    with open(sys.argv[1], "a") as f:
        f.write(line)
    meta = m.get("params", {}).get("_meta")
    if "id" not in m:
        continue
    if not meta:
        out = {"error": {"code": -32022, "message": "too old", "data": {"supported": ["2026-07-28"]}}}
    elif m["method"] == "server/discover" and sys.argv[2] == "once" and first:
        out, first = {"error": {"code": -32022, "message": "again", "data": {"supported": ["2026-07-28"]}}}, False
    elif m["method"] == "server/discover":
        out = {"result": {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
        if sys.argv[2] == "legacy versions":
            out["result"]["supportedVersions"] = ["2025-11-25"]
        if sys.argv[2] == "slow":
            import time; time.sleep(1.5)
        if sys.argv[2] == "other error":
            out = {"error": {"code": -32601, "message": "?"}}
    elif m["method"] == "tools/list":
        out = {"result": {"resultType": "complete", "tools": [{"name": "hang", "inputSchema": {"type": "object"}},
                                                              {"name": "echo", "inputSchema": {"type": "object"}}]}}
    elif m["params"]["name"] == "hang":
        continue
    else:
        out = {"result": {"resultType": "complete", "content": [{"type": "text", "text": json.dumps(meta)}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], **out}), flush=True)
'''


@pytest.fixture
def modern(tmp_path):
    """Definition of a server that speaks revision 2026-07-28 only, and what it has read."""

    def make(how="", **more):
        return {"command": sys.executable, "args": ["-S", "-c", MODERN, str(tmp_path / "read"), how], **more}

    make.read = lambda: [json.loads(line) for line in (tmp_path / "read").read_text().splitlines()]
    return make


@pytest.mark.parametrize("how", ["", "once", "slow"])
def test_modern(ts, modern, how):
    k = ts.attach()
    ts.add({"new": modern(how)})
    status, raw = ts.run(k, 1, "new", "echo", b'{"a":1}')
    assert status == "ok"
    meta = json.loads(json.loads(raw)["content"][0]["text"])
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "cellgate"
    methods = [m["method"] for m in modern.read()]
    assert methods.count("server/discover") == (2 if how == "once" else 1)
    if how != "slow":
        assert "initialize" not in methods


def test_modern_is_cancelled_by_a_notification(ts, modern):
    k = ts.attach()
    ts.add({"new": modern()})
    status, _ = ts.run(k, 1, "new", "hang", timeout_ms=300)
    assert status != "ok"
    assert ts.run(k, 2, "new", "echo")[0] == "ok"
    hang, cancelled, _ = modern.read()[-3:]
    assert cancelled["method"] == "notifications/cancelled" and cancelled["params"]["requestId"] == hang["id"]


@pytest.mark.parametrize("how", ["legacy versions", "other error"])
def test_modern_server_that_denies_it(ts, modern, how):
    """It wants initialize then, and answers that with an error of modern servers: it is asked once more, no oftener."""
    ts.attach()
    assert "too old" in ts.refuse({"new": modern(how)})
    assert [m["method"] for m in modern.read()] == ["server/discover", "initialize", "server/discover", "initialize"]


def test_definition_says_legacy(ts, modern):
    ts.attach()
    assert "too old" in ts.refuse({"new": modern(era="legacy")})
    assert [m["method"] for m in modern.read()] == ["initialize"]


def test_definition_says_modern(ts, fake):
    ts.attach()
    assert "2026-07-28" in ts.refuse({"old": fake(era="modern") | {"era": "modern"}})


@pytest.mark.parametrize("how", ["error", "exit", "silent"])
def test_legacy(ts, fake, tmp_path, how):
    """One that ends is started again, and one that is silent is asked in the older way."""
    k = ts.attach()
    server = fake(discover=how, log=str(tmp_path / "lines"))
    ts.add({"old": server})
    assert ts.run(k, 1, "old", "echo")[0] == "ok"
    ts.add({"again": server})  # it is known by now
    lines = [json.loads(line)["method"] for line in (tmp_path / "lines").read_text().splitlines()]
    assert lines.count("server/discover") == 1 and lines.count("initialize") == 2


def test_silent_server_does_not_delay_others(ts, fake, slowness):
    ts.attach()
    assert set(ts.add({"a": fake(discover="silent"), "b": fake(discover="silent"), "c": fake()})) == {"a", "b", "c"}


def test_modern_server_is_not_ended_beside_a_call_within_its_time(ts, modern):
    k = ts.attach()
    ts.add({"new": {**modern(), "timeout": 1}})
    for id, timeout_ms in ((1, 600_000), (2, 0), (3, 0), (4, 0)):
        k.call(id, "new", "hang", timeout_ms=timeout_ms)
        ts.decide(ts.asked())
    assert sorted(k.expect(TOOL.CALL_RESULT).id for _ in range(3)) == [2, 3, 4]
    assert ts.run(k, 5, "new", "echo")[0] == "ok"
    assert [m["method"] for m in modern.read()].count("server/discover") == 1


def test_modern_server_that_answers_nothing_is_ended(ts, modern):
    """There is no ping any more: three requests in a row that were not answered in time."""
    k = ts.attach()
    ts.add({"new": modern()})
    for i in range(2):
        assert ts.run(k, i, "new", "hang", timeout_ms=50)[0] == "failed" and k.kind == "timeout"
    assert ts.run(k, 2, "new", "echo")[0] == "ok"  # it counts from the beginning again
    for i in range(3, 6):
        assert ts.run(k, i, "new", "hang", timeout_ms=50)[0] == "failed"
    ts.wait_log("it has not answered 3 requests in a row, has written nothing for 5 s, and is ended")
    assert [m["method"] for m in modern.read()].count("server/discover") == 1
    assert ts.run(k, 6, "new", "echo")[0] == "ok"
    assert [m["method"] for m in modern.read()].count("server/discover") == 2
