"""SERVERS: starting MCP servers, listing their tools, all or nothing."""

import json
import sys
import time
from types import ModuleType

import pytest
from wire_table import BROKER, TOOL


def test_adds_and_writes_wrappers(ts, fake):
    ts.attach()
    report = ts.add({"fake": fake(), "Other One": fake(list="pages")})
    assert set(report) == {"fake", "Other One"}
    assert report["fake"]["package"] == "fake"
    tools = {t["tool"] for t in report["fake"]["tools"]}
    assert {"echo", "hang"} <= tools
    assert {t["tool"] for t in report["Other One"]["tools"]} == tools  # every page
    assert (ts.out / "mcptools/fake/echo.py").exists()
    assert (ts.out / "mcptools/__init__.py").exists()


def test_no_servers(ts):
    assert ts.add({}) == {}


def test_handshake_as_the_protocol_wants_it(ts, fake, tmp_path):
    ts.add({"fake": fake(log=str(tmp_path / "lines"))})
    lines = [json.loads(x) for x in (tmp_path / "lines").read_text().splitlines()]
    methods = ["server/discover", "initialize", "notifications/initialized", "tools/list"]
    assert [m["method"] for m in lines] == methods
    meta = lines[0]["params"].pop("_meta")
    assert lines[0]["params"] == {} and meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    params = lines[1]["params"]
    assert params["protocolVersion"] == "2025-11-25" and params["capabilities"] == {}
    assert params["clientInfo"]["name"] == "cellgate"
    assert "id" not in lines[2]
    assert lines[3]["params"] == {}


def test_cursors_are_sent_back_as_they_came(ts, fake, tmp_path):
    ts.add({"fake": fake(list="pages", log=str(tmp_path / "lines"))})
    lines = [json.loads(x) for x in (tmp_path / "lines").read_text().splitlines()]
    assert [m["params"].get("cursor") for m in lines if m["method"] == "tools/list"] == [None, "", 'xé"\\', "last"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_versions(ts, fake, version):
    assert "fake" in ts.add({"fake": fake(version=version)})


@pytest.mark.parametrize(
    ("habits", "says"),
    [
        ({"version": "1999-01-01"}, "1999-01-01"),
        ({"version": 7}, "protocolVersion"),
        ({"initialize": "error"}, "no such version here"),
        ({"initialize": "exit"}, "cannot open the database"),
        ({"initialize": "crash"}, "SIGSEGV"),
        ({"at_start": "exit"}, "exit status 1"),
        ({"list": "error"}, "the list is closed"),
        ({"list": "not_array"}, "an array is expected"),
        ({"list": "same_cursor"}, "does not come to an end"),
        ({"list": "endless"}, "more than 1000 pages"),
        ({"list": "raw", "raw": '{"tools":[],"tools":[]}'}, "twice"),
        ({"list": "raw", "raw": '{"tools":[],"nextCursor":1}'}, "not a string"),
        ({"list": "raw", "raw": '{"x":1}'}, 'no "tools"'),
        ({"list": "raw", "raw": "[]"}, "object"),
    ],
)
def test_failures_name_server_and_cause(ts, fake, habits, says):
    message = ts.refuse({"bad one": fake(**habits)})
    assert "bad one" in message and says in message


def test_an_error_shows_the_last_lines_that_fit(ts, fake):
    message = ts.refuse({"bad one": fake(initialize="exit", words=100)})
    assert message.startswith('MCP server "bad one" did not start: it ended (exit status 3)')
    lines = message.splitlines()
    assert lines[-1] == "[bad one] cannot open the database" and lines[-2] == f"[bad one] word 99 {'x' * 60}"
    assert len(message) < 1000 and not any("word 80" in line for line in lines)


@pytest.mark.parametrize("habits", [{"initialize": "hang"}, {"initialize": "garbage"}, {"list": "hang"}])
def test_time_is_limited(ts, fake, habits, slowness):
    limit = int(700 * slowness)
    message = ts.refuse({"slow": fake(**habits)}, timeout_ms=limit)
    assert "slow" in message and f"{limit} ms" in message
    ts.broker.nothing()


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({"command": "/nonexistent/program"}, "No such file"),
        ({"command": "no-such-program-anywhere"}, "not found in PATH"),
        ({"command": ""}, "command"),
        ({}, "command"),
        ({"args": ["x"]}, "command"),
        ({"command": "cat", "args": "x"}, "args"),
        ({"command": "cat", "args": [1]}, "args"),
        ({"command": "cat", "env": {"A": 1}}, '"A"'),
        ({"command": "cat", "env": {"A=B": "x"}}, "A=B"),
        ({"command": "cat", "env": []}, "env"),
        ({"command": "cat", "cwd": 3}, "cwd"),
        ({"command": "cat", "cwd": "/nonexistent/folder"}, "/nonexistent/folder"),
        ({"command": "/etc/passwd"}, "Permission denied"),
        ({"url": "ftp://example.invalid/mcp"}, '"url" must be an address that begins with http:// or https://'),
        ({"url": "https://u:p@example.invalid/mcp"}, 'the "url" has a user or a password'),
        ({"url": 7}, '"url" must be'),
        ({"url": "https://example.invalid/mcp", "command": "cat"}, 'give "command" or "url", not both'),
        ({"url": "https://example.invalid/mcp", "sandbox": {}}, 'cannot have a "sandbox"'),
        ({"url": "https://example.invalid/mcp", "type": "stdio"}, '"type" is "stdio", but there is a "url"'),
        ({"url": "https://example.invalid/mcp", "headers": ["x"]}, '"headers" must be an object'),
        ({"url": "https://example.invalid/mcp", "headers": {"X": "a\r\nY: b"}}, "a string of one line"),
        ({"url": "https://example.invalid/mcp", "headers": {"Mcp-Session-Id": "x"}}, "the protocol decides"),
        ({"url": "https://example.invalid/mcp", "caFile": "ca.pem"}, '"caFile" must be the absolute path'),
        ({"url": "https://example.invalid/mcp", "timeout": -1}, '"timeout" must be'),
        ({"type": "sse", "command": "cat"}, '"url" must be'),
        ({"type": "websocket", "url": "https://example.invalid/"}, '"type" must be'),
        ({"command": "cat", "era": "new"}, '"era" must be'),
        ("cat", "object"),
        ({"command": "cat", "sandbox": "relative.json"}, "sandbox"),
        ({"command": "cat", "sandbox": True}, "sandbox"),
        ({"command": "cat", "sandbox": {}}, "exit status 1"),
        ({"command": "cat", "sandbox": "/nonexistent/settings.json"}, "exit status 1"),
    ],
)
def test_bad_definitions(ts, definition, says):
    message = ts.refuse({"the-server": definition})
    assert "the-server" in message and says in message


@pytest.mark.parametrize("in_file", [False, True])
def test_a_server_in_a_sandbox(ts, fake, tmp_path, in_file):
    """It may write where its settings say, and nowhere else."""
    log = tmp_path / "allowed/lines"
    log.parent.mkdir()
    settings = {
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": [str(log.parent)], "denyWrite": []},
    }
    sandbox = settings
    if in_file:
        (tmp_path / "settings.json").write_text(json.dumps(settings))
        sandbox = str(tmp_path / "settings.json")
    assert "fake" in ts.add({"fake": {**fake(log=str(log)), "sandbox": sandbox}})
    assert log.exists()
    message = ts.refuse({"other": {**fake(log=str(tmp_path / "elsewhere")), "sandbox": sandbox}})
    assert "other" in message
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", "a\nb", "x" * 300])
def test_bad_names(ts, fake, name):
    ts.refuse({name: fake()})
    assert not (ts.out / "mcptools").exists()


@pytest.mark.parametrize("name", ["-x", "--yes", "a\x9bb", "a\u202eb", "a\u200bb", "a\u2028b"])
def test_names_that_are_options_or_have_hidden_characters(ts, fake, tmp_path, name):
    why = ts.refuse({name: fake(log=str(tmp_path / "log"))})
    assert "rename it" in why and not (tmp_path / "log").exists()


def test_one_that_fails_costs_no_other(ts, fake, repo, monkeypatch):
    k = ts.attach()
    ts.add({"old": fake()})
    report = ts.add(
        {"a": fake(), "old": fake(at_start="exit"), "b": fake(at_start="exit"), "c": {}, "d": {"invalid": "why"}}
    )
    assert set(report) == {"a", "old", "b", "c", "d"}
    assert report["a"]["package"] == "a"
    for name in ("old", "b", "c"):
        assert name in report[name]["error"]
    assert "exit status 1" in report["b"]["error"] and "no configuration" in report["b"]["error"]
    assert report["d"] == {"error": "why"}
    assert ts.run(k, 1, "a", "echo")[0] == "ok"
    assert ts.run(k, 2, "old", "echo")[0] == "ok"  # as it was
    k.call(3, "b", "echo")
    assert k.result(3)[0] == "failed"
    # An import of its tools fails, and names who has the reason.
    for package in "bcd":
        with pytest.raises(ImportError, match="did not start.*the host application has the reason$"):
            exec((ts.out / "mcptools" / package / "__init__.py").read_text(), {})
    monkeypatch.syspath_prepend(repo / "python_stubs")
    monkeypatch.setitem(sys.modules, "old", ModuleType("old"))
    exec((ts.out / "mcptools/old/__init__.py").read_text(), {"__name__": "old"})


def test_one_that_failed_can_be_added_later(ts, fake):
    k = ts.attach()
    ts.add({"a": fake(), "b": fake(at_start="exit")})
    ts.add({"b": fake()})
    assert ts.run(k, 1, "b", "echo")[0] == "ok"
    assert "ImportError" not in (ts.out / "mcptools/b/__init__.py").read_text()


def test_progress_and_start_timeout(ts, fake):
    """A server that does not answer is reported until its own time is over."""
    servers = {"slow": fake(initialize="hang") | {"startTimeout": 5}, "b": fake()}
    ts.broker.send(BROKER.SERVERS, 5, {"servers": servers, "out": str(ts.out), "timeout_ms": 1000}, session=1)
    m = ts.broker.expect(12)
    assert m.session == 1 and m.id == 5
    assert m.body["text"].startswith('waiting for MCP server "slow" (') and m.body["text"].endswith("s of 5 s")
    while m.type == 12:
        m = ts.broker.receive()
    assert m.type == BROKER.SERVERS_DONE
    assert "5000 ms" in m.body["report"]["slow"]["error"] and "startTimeout" in m.body["report"]["slow"]["error"]
    assert m.body["report"]["b"]["package"] == "b"


@pytest.mark.parametrize("value", ["5", 0, -1, 3601, True])
def test_bad_start_timeouts(ts, fake, value):
    assert "startTimeout" in ts.refuse({"a": fake() | {"startTimeout": value}})


def test_all_that_failed_are_an_error(ts, fake):
    message = ts.refuse({"a": fake(at_start="exit"), "b": {}})
    assert '"a"' in message and '"b"' in message


def test_failed_servers_do_not_stay(ts, fake, tmp_path, waiting, is_alive):
    pids = tmp_path / "pids"
    ts.refuse({"b": fake(pids=str(pids), initialize="hang")}, timeout_ms=1000)
    (pid,) = json.loads(pids.read_text())
    waiting(lambda: not is_alive(pid), 5, "the end of the server")


@pytest.mark.parametrize("name", ["a.b", ".a", "cellgate", "Cellgate"])
def test_names_that_are_ambiguous(ts, fake, name):
    """A rule a.b.c could mean the tool "b.c" of "a", and what cellgate says has its name before it."""
    assert name in ts.refuse({name: fake()})


def test_standard_error_is_marked(ts):
    """No line of a server looks like a line of cellgate."""
    script = r"printf '[cellgate] Allow? y\nx\033[31my\n' >&2; exit 3"
    message = ts.refuse({"bad": {"command": "sh", "args": ["-c", script]}})
    assert "[bad] [cellgate] Allow? y" in message.splitlines()
    assert not any(line.startswith("[cellgate]") for line in message.splitlines())
    assert "\x1b" not in message


def test_replaced(ts, fake, tmp_path, waiting, is_alive):
    k = ts.attach()
    pids = tmp_path / "pids"
    ts.add({"fake": fake(pids=str(pids))})
    (pid,) = json.loads(pids.read_text())
    k.call(1, "fake", "hang")
    ts.decide(ts.asked())
    report = ts.add({"fake": fake(more=["newer"])})
    assert "newer" in {t["tool"] for t in report["fake"]["tools"]}
    status, text = k.result(1)
    assert status == "failed" and b"replaced" in text
    waiting(lambda: not is_alive(pid), 5, "the end of the old server")
    assert ts.run(k, 2, "fake", "newer")[0] == "ok"


def test_two_names_for_one_package(ts, fake):
    report = ts.add({"a-b": fake(), "a_b": fake()})
    assert "rename" in report["a_b"]["error"] and report["a-b"]["package"] == "a_b"
    message = ts.refuse({"a_b": fake()})
    assert "a-b" in message and "a_b" in message


def test_sessions_are_apart(ts, fake):
    k1, k2 = ts.attach(1), ts.attach(2)
    ts.add({"one": fake()}, session=1)
    k2.call(1, "one", "echo")
    assert k2.result(1) == ("failed", b'there is no MCP server "one" in this session: none is registered')
    k1.call(1, "one", "echo")
    assert ts.asked().session == 1


def test_server_without_tools(ts, fake):
    assert ts.add({"fake": fake(no_tools=True)})["fake"]["tools"] == []


def test_cursor_null_is_no_cursor(ts, fake):
    assert ts.add({"fake": fake(null_cursor=True)})


def test_noise_before_the_handshake(ts, fake):
    assert ts.add({"fake": fake(initialize="noisy")})
    assert "Welcome to the server!" in ts.log()


def test_environment_of_a_server(start, fake, tmp_path):
    ts = start({"LANG": "C.UTF-8", "LC_TIME": "C", "HOST_SECRET": "hush", "TERM": "dumb", "PATHOLOGICAL": "1"})
    seen = tmp_path / "env"
    (tmp_path / "cwd").mkdir()
    ts.add({"fake": {**fake({"TOKEN": "t", "LANG": "de_DE"}, show=str(seen)), "cwd": str(tmp_path / "cwd")}})
    got = json.loads(seen.read_text())
    env = got["env"]
    allowed = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR", "TOKEN"}
    assert {k for k in env if not k.startswith("LC_")} <= allowed
    assert env["TOKEN"] == "t" and env["LANG"] == "de_DE" and env["LC_TIME"] == "C" and env["TERM"] == "dumb"
    assert got["cwd"] == str(tmp_path / "cwd")
    assert got["fds"] == ["0", "1", "2", "3"]  # 3 is the listing's own


def test_big_and_odd_tool_lists(ts, fake):
    odd = (
        '{"tools":[{"name":"a","inputSchema":{"type":"object"},"n":123456789012345678901234567890,"s":"\\ud800"},'
        '{"name":"\\ud800","inputSchema":{}},{"noname":1},7,"x"]}'
    )
    report = ts.add({"odd": fake(list="raw", raw=odd)})
    assert "a" in {t["tool"] for t in report["odd"]["tools"]}


def test_calls_of_others_go_on_while_wrappers_are_written(ts, fake, waiting):
    """Ten thousand tools take seconds; they are under way when the call is made, and not done when its result comes."""
    k = ts.attach()
    ts.add({"fake": fake()})
    body = {"servers": {"large": fake(many=10_000)}, "out": str(ts.folder / "out2"), "timeout_ms": 0}
    (ts.folder / "out2").mkdir()
    ts.broker.send(BROKER.SERVERS, 6, body, session=2)
    waiting(lambda: list(ts.folder.glob("out2/mcptools/.tmp-*")), 30, "the wrappers")
    assert ts.run(k, 1, "fake", "echo")[0] == "ok"  # which expects ASK, and nothing before it
    done = ts.broker.expect(BROKER.SERVERS_DONE, 60)
    assert done.id == 6 and "report" in done.body


@pytest.mark.sanitized_in_soak
def test_a_request_that_fails_does_not_hold_up_the_next(ts, fake, waiting):
    """Two wait while the first is long at it; one of them has too many servers together with the first."""
    body = {"out": str(ts.out), "timeout_ms": 0}
    ts.broker.send(BROKER.SERVERS, 6, {**body, "servers": {"large": fake(many=5_000)}})
    waiting(lambda: list(ts.out.glob("mcptools/.tmp-*")), 30, "the wrappers")
    ts.broker.send(BROKER.SERVERS, 8, {**body, "servers": {"small": fake()}})
    ts.broker.send(BROKER.SERVERS, 7, {**body, "servers": {f"s{i}": fake() for i in range(64)}})
    done = {m.id: m.body for m in (ts.broker.expect(BROKER.SERVERS_DONE, 60) for _ in range(3))}
    assert "report" in done[6] and "report" in done[8]
    assert "at most 64 MCP servers" in done[7]["error"]["message"]


def test_a_session_that_ends_while_its_wrappers_are_written(ts, fake, waiting):
    """Its end is reported when no process writes to its folder any more."""
    body = {"servers": {"large": fake(many=5_000)}, "out": str(ts.out), "timeout_ms": 0}
    ts.broker.send(BROKER.SERVERS, 6, body, session=2)
    waiting(lambda: list(ts.out.glob("mcptools/.tmp-*")), 30, "the wrappers")
    ts.broker.send(BROKER.SERVERS, 7, {**body, "servers": {"fake": fake()}}, session=2)  # waits for the first
    ts.broker.send(BROKER.DETACH, 9, {"keep_servers": False}, session=2)
    failed = [ts.broker.expect(BROKER.SERVERS_DONE, 60) for _ in range(2)]
    assert sorted(m.id for m in failed) == [6, 7]
    assert all("the session has ended" in m.body["error"]["message"] for m in failed)
    ts.broker.expect(BROKER.DETACHED, 60)
    assert not list(ts.out.glob("mcptools/.tmp-*"))


def test_restarts_are_damped(ts, fake, tmp_path):
    """A server that fails again and again is started with increasing delays; nobody is asked in between."""
    k = ts.attach()
    starts = tmp_path / "starts"
    program = tmp_path / "server"
    definition = fake()
    args = " ".join(f"'{a}'" for a in definition["args"])
    good = f"#!/bin/sh\nexec {definition['command']} {args}\n"
    program.write_text(good)
    program.chmod(0o755)
    ts.add({"fake": {"command": str(program)}})
    assert ts.run(k, 1, "fake", "exit")[0] == "failed"
    program.write_text(f"#!/bin/sh\necho >> {starts}\nexit 9\n")
    for i in (2, 3):  # started at once after the first failures
        status, text = ts.run(k, i, "fake", "echo")
        assert status == "failed" and b"did not start" in text and b"exit status 9" in text

    def refused(id: int) -> bytes:
        k.call(id, "fake", "echo")
        status, text = k.result(id)
        assert status == "failed" and k.kind == "unavailable"
        ts.broker.nothing(0)
        return text

    assert b"failed 3 times in a row and can be started again in 1 s: it ended (exit status 9)" in refused(4)
    assert starts.read_text() == "\n\n"
    time.sleep(1.1)
    assert b"did not start" in ts.run(k, 4, "fake", "echo")[1] and starts.read_text() == "\n\n\n"
    assert b"failed 4 times in a row and can be started again in 2 s" in refused(5)
    program.write_text(good)
    time.sleep(2.1)
    assert ts.run(k, 6, "fake", "echo")[0] == "ok"
    # It has not worked for long: the delay goes on.
    assert ts.run(k, 7, "fake", "exit")[0] == "failed"
    assert b"failed 5 times in a row and can be started again in 4 s" in refused(8)


def test_end_of_an_idle_server_is_no_failure(ts, fake, waiting):
    """It is started again at once for every call; a server that answers no call is not."""
    k = ts.attach()
    ts.add({"idle": fake(idle=0)})
    for i in range(5):
        assert ts.run(k, i, "idle", "echo")[0] == "ok"
        waiting(lambda: ts.log().count("MCP server idle: it ended") > i, 10, "its end")  # noqa: B023
    assert [ts.run(k, i, "idle", "exit")[0] for i in (5, 6, 7)] == ["failed"] * 3
    k.call(8, "idle", "echo")
    status, text = k.result(8)
    assert status == "failed" and b"failed 3 times in a row" in text


def starts(log) -> int:
    return log.read_text().count('"initialize"')


def test_server_that_hangs_is_ended_and_started_again(ts, fake, tmp_path):
    """Neither before the end of a call that it may work on, nor where it answers ping; later calls do not delay it."""
    k = ts.attach()
    ts.add({name: {**fake(log=str(tmp_path / name)), "timeout": 1} for name in ("hung", "slow")})
    calls = [
        (1, "slow", "hang", 600_000),
        (2, "slow", "hang", 0),
        (3, "hung", "hang", 600_000),
        (4, "hung", "echo_late", 0),
    ]
    for id, server, tool, timeout_ms in calls:
        k.call(id, server, tool, b'{"seconds":600}', timeout_ms)
        ts.decide(ts.asked())
    for _ in range(2):
        m = k.expect(TOOL.CALL_RESULT)
        assert m.id in (2, 4) and m.body["kind"] == "timeout"
    k.call(5, "hung", "echo", timeout_ms=600_000)
    ts.decide(ts.asked())
    assert ts.run(k, 6, "slow", "echo")[0] == "ok"
    time.sleep(5.5)
    k.nothing()
    k.send(TOOL.CALL_CANCEL, 3)
    assert k.result(3)[0] == "failed" and k.kind != "died"
    status, text = k.result(5)
    assert status == "failed" and k.kind == "died" and b"neither a request in time nor ping within 5 s" in text
    assert ts.run(k, 7, "hung", "echo")[0] == "ok"
    assert (starts(tmp_path / "hung"), starts(tmp_path / "slow")) == (2, 1)
    assert '"method":"ping"' in (tmp_path / "slow").read_text()
    k.send(TOOL.CALL_CANCEL, 1)
    assert k.result(1)[0] == "failed"


def test_server_that_works_is_not_ended(ts, fake, tmp_path):
    """It answers nothing else meanwhile: not a short call, not a list of its changed tools, not ping."""
    k = ts.attach()
    ts.add({n: {**fake(log=str(tmp_path / n)), "startTimeout": 1} for n in ("short", "list", "talks")})
    calls = [
        (1, "short", {"seconds": 8}, 600_000),
        (2, "short", {"seconds": 0}, 300),
        (3, "list", {"seconds": 12, "changed": True}, 0),
        (4, "talks", {"seconds": 7, "says": "at work"}, 300),
    ]
    for id, server, args, timeout_ms in calls:
        k.call(id, server, "echo_late", json.dumps(args).encode(), timeout_ms)
        ts.decide(ts.asked())
    results = [k.expect(TOOL.CALL_RESULT, 20) for _ in calls]
    assert {m.id: m.body.get("kind", m.body["status"]) for m in results} == {1: "ok", 2: "timeout", 3: "ok", 4: "timeout"}
    for id, name in ((5, "short"), (6, "list"), (7, "talks")):
        assert ts.run(k, id, name, "echo")[0] == "ok"
        assert starts(tmp_path / name) == 1


def test_time_of_a_cell_ends_no_server(ts, fake, tmp_path):
    k = ts.attach()
    ts.add({"slow": fake(log=str(tmp_path / "slow"))})
    for id, tool, timeout_ms in [(1, "echo_late", 0), (2, "hang", 100), (3, "hang", 100)]:
        k.call(id, "slow", tool, b'{"seconds":7}', timeout_ms)
        ts.decide(ts.asked())
    assert {(m.id, m.body["status"]) for m in (k.expect(TOOL.CALL_RESULT) for _ in range(3))} == {
        (1, "ok"),
        (2, "failed"),
        (3, "failed"),
    }
    assert (tmp_path / "slow").read_text().count('"initialize"') == 1


def test_tools_that_the_server_has_not_declared(ts, fake):
    k = ts.attach()
    ts.add({"fake": fake(undeclared=True)})
    assert ts.run(k, 1, "fake", "echo")[0] == "ok"


@pytest.mark.sanitized_in_soak
def test_one_bad_server_costs_only_its_own_tools(ts, fake, slowness):
    """Beside servers that list garbage, die, flood or never answer, the calls of a good one are answered first."""
    k = ts.attach()
    report = ts.servers(
        {
            "garbage": fake(list="raw", raw='{"tools":[{"name":]}'),
            "never": fake(initialize="hang"),
            "dies": fake(),
            "floods": fake(stderr="forever"),
            "hangs": fake(),
            "good": fake(),
        },
        timeout_ms=int(2000 * slowness),
    )["report"]
    assert {name for name, r in report.items() if "error" in r} == {"garbage", "never"}
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 100}}
    flood = json.dumps({"message": message, "times": 200}).encode()
    bad = [(1, "hangs", "hang", b"{}"), (2, "floods", "flood", flood), (3, "dies", "exit", b"{}")]
    for id, server, tool, args in bad:
        k.call(id, server, tool, args)
        ts.decide(ts.asked())
    got = {}
    for id in range(10, 30):
        k.call(id, "good", "echo")
        ts.decide(ts.asked())
        while id not in got:
            m = k.expect(TOOL.CALL_RESULT, 30)
            got[m.id] = m.body["status"]
    assert all(got[id] == "ok" for id in range(10, 30)) and 1 not in got
    while not {2, 3} <= set(got):
        m = k.expect(TOOL.CALL_RESULT, 30)
        got[m.id] = m.body["status"]
    assert got[2] == "ok" and got[3] == "failed"
    k.call(40, "garbage", "x")
    assert k.result(40)[0] == "failed"
