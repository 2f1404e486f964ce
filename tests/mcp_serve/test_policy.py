"""`cellgate mcp serve --policy`: calls, its own tools, connections, clients, and the rate of cells."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_serve.helpers import Raw, text_of
from mcp_serve.test_stateless import YES
from web import FETCH, settings

Serve = Callable[..., Raw]
CODE = "from mcptools.fake import leave_mark\ntry: print(leave_mark.run(text={!r}))\nexcept Exception as e: print(e)"


@pytest.fixture
def policy(tmp_path: Path) -> Callable[..., Path]:
    def make(**parts: Any) -> Path:
        path = tmp_path / "policy.json"
        path.write_text(json.dumps(parts))
        return path

    return make


def run(server: Raw, text: str) -> str:
    return text_of(server.result(server.call("execute_ipython_cell", code=CODE.format(text))))


def test_arguments_decide(serve: Serve, mcp_file: Path, mark: Path, policy) -> None:
    rules = [
        {"decision": "allow", "server": "fake", "tool": "leave_mark", "arguments": {"/text": {"regex": "[a-z]+"}}},
        {"decision": "deny", "server": "*", "text": "Letters only."},
    ]
    server = serve("--mcp", mcp_file, "--policy", policy(rules=rules), "--approve", "all")
    server.initialize()
    assert "leave_mark: abc" in run(server, "abc")
    assert "refused by rule 2 of policy.json: Letters only." in run(server, "1")
    assert "repeating it does not help" in run(server, "1")
    assert mark.read_text() == "abc\n"


def test_a_reset_gives_no_further_budget_and_no_further_grant(serve: Serve, mcp_file: Path, mark: Path, policy) -> None:
    """The agent can reset its kernel itself. Cells count from 1 again then."""
    rules = [
        {"decision": "allow", "server": "cellgate"},
        {"decision": "allow", "server": "fake", "tool": "echo", "for": "cell"},
        {"decision": "allow", "server": "fake", "tool": "leave_mark"},
    ]
    budgets = [{"id": "one", "server": "fake", "tool": "leave_mark", "per": "session", "calls": 1}]
    server = serve("--mcp", mcp_file, "--policy", policy(default="deny", rules=rules, budgets=budgets))
    server.initialize()
    echo = CODE.replace("leave_mark", "echo").format("e")
    both = CODE.format("a") + "\n" + echo
    text = text_of(server.result(server.call("execute_ipython_cell", code=both)))
    assert "leave_mark: a" in text and "echo: e" in text
    server.result(server.call("reset"))
    text = text_of(server.result(server.call("execute_ipython_cell", code=both)))
    assert "refused by budget one of policy.json: all of 1 calls for the session are used" in text
    assert "refused by the default of policy.json" in text
    assert mark.read_text() == "a\n"


def test_own_tools(serve: Serve, policy) -> None:
    rules = [{"decision": "deny", "server": "cellgate", "tool": "install_package", "text": "Ask the user."}]
    server = serve("--policy", policy(rules=rules), "--approve", "all")
    server.initialize()
    result = server.result(server.call("install_package", package_name="cowsay"))
    assert result["isError"] and "refused by rule 1 of policy.json: Ask the user." in text_of(result)


def test_who_cannot_be_asked_is_refused(serve: Serve, mcp_file: Path, mark: Path, policy) -> None:
    server = serve("--mcp", mcp_file, "--policy", policy(default="ask"), "--approve", "all")
    server.initialize()
    assert "the default of policy.json asks the user, but nobody can be asked here" in run(server, "x")
    assert not mark.exists()


def test_the_users_no_stands(serve: Serve, mcp_file: Path, mark: Path, policy) -> None:
    server = serve("--mcp", mcp_file, "--policy", policy(default="ask"))
    server.initialize(elicitation={})
    for text, answer in (("x", "reject"), ("y", "approve")):
        call = server.call("execute_ipython_cell", code=CODE.format(text))
        question = server.receive()
        result = {"action": "accept", "content": {"decision": answer}}
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": result})
        assert ("leave_mark: y" in text_of(server.result(call))) == (answer == "approve")
    assert "refused by an earlier answer of the user" in run(server, "x")
    assert mark.read_text() == "y\n"


@pytest.mark.parametrize(("client", "allowed"), [("te?t", True), ("other", False)])
def test_clients(serve: Serve, mcp_file: Path, policy, client: str, allowed: bool) -> None:
    rules = [{"decision": "allow", "server": "fake", "client": client, "front": ["mcp serve"]}]
    server = serve("--mcp", mcp_file, "--policy", policy(rules=rules))
    server.initialize()  # as "test"
    assert ("leave_mark: x" in run(server, "x")) == allowed


@pytest.mark.parametrize("namespace", ["work", "other"])
def test_sessions_by_their_namespace(serve: Serve, mcp_file: Path, policy, namespace: str) -> None:
    """The name that the agent gives a session says nothing."""
    rules = [{"decision": "allow", "server": "fake", "session": "work"}]
    words = ("--policy", policy(rules=rules), "--namespace", namespace, "--toolsets", "core,sessions")
    server = serve("--mcp", mcp_file, *words)
    server.initialize()
    made = server.result(server.call("create_session", name="work"))["structuredContent"]["session_id"]
    result = server.result(server.call("execute_ipython_cell", code=CODE.format("x"), session_id=made))
    assert ("leave_mark: x" in text_of(result)) == (namespace == "work")


def test_connections(serve: Serve, policy, tmp_path: Path, port: int) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(settings()))
    rules = [
        {"decision": "deny", "host": "*.example", "text": "Not today."},
        {"decision": "allow", "host": "127.0.0.1", "port": port},
    ]
    server = serve("--sandbox", tmp_path / "settings.json", "--policy", policy(rules=rules))
    server.initialize()
    urls = [f"http://127.0.0.1:{port}/", "http://a.example/", "http://b.test/"]
    code = FETCH + f"for url in {urls!r}: print(fetch(url))"
    text = text_of(server.result(server.call("execute_ipython_cell", code=code)))
    assert text.startswith("hello from outside\n")
    assert "refused by rule 1 of policy.json: Not today." in text
    assert "b.test:80 (http): host is not on the allow list" in text


def test_a_file_asks_about_a_connection(serve: Serve, policy, tmp_path: Path, port: int) -> None:
    """Without --approve ask, and about no other host."""
    (tmp_path / "settings.json").write_text(json.dumps(settings()))
    file = policy(rules=[{"decision": "ask", "host": "127.0.0.1"}])
    server = serve("--sandbox", tmp_path / "settings.json", "--policy", file)
    server.initialize(elicitation={})
    code = FETCH + f"for url in ('http://b.test/', 'http://127.0.0.1:{port}/'): print(fetch(url))"
    call = server.call("execute_ipython_cell", code=code)
    question = server.receive()
    assert f"127.0.0.1:{port}" in question["params"]["message"]
    result = {"action": "accept", "content": {"decision": "approve"}}
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": result})
    text = text_of(server.result(call))
    assert "hello from outside" in text and "b.test:80 (http): host is not on the allow list" in text


def test_cells_in_a_minute(serve: Serve, policy) -> None:
    server = serve("--policy", policy(cells_per_minute=2))
    server.initialize()
    results = [server.result(server.call("execute_ipython_cell", code="print('ran')")) for _ in range(3)]
    assert [r["isError"] for r in results] == [False, False, True]
    assert "the policy allows 2 cells a minute (cells_per_minute); try again in " in text_of(results[2])
    assert "ran" not in text_of(results[2])


def test_a_file_in_the_workspace_stops_the_start(serve: Serve, workspace: Path) -> None:
    (workspace / "p.json").write_text("{}")
    server = serve("--policy", "p.json")
    server.process.wait(60)
    assert server.process.returncode == 2


def test_the_log_has_the_rule_that_accepted(
    serve: Serve, mcp_file: Path, policy, cellgate: Path, tmp_path: Path, port: int, environment: dict[str, str]
) -> None:
    """Of calls and connections; what the user has accepted has none, also no reason of a refusal."""
    rules = [
        {"id": "letters", "decision": "allow", "server": "fake", "arguments": {"/text": {"equals": "a"}}},
        {"decision": "ask", "server": "fake"},
        {"id": "here", "decision": "allow", "host": "127.0.0.1"},
        {"decision": "ask", "host": "b.test"},
    ]
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "settings.json").write_text(json.dumps(settings()))
    words = ("--sandbox", tmp_path / "settings.json", "--audit", "strict")
    server = serve("--mcp", mcp_file, "--policy", policy(rules=rules), *words, env=state)
    server.initialize(elicitation={})
    run(server, "a")
    fetch = FETCH + f"for url in ('http://127.0.0.1:{port}/', 'http://b.test/'): print(fetch(url))"
    for code in (CODE.format("b"), fetch):
        id = server.call("execute_ipython_cell", code=code)
        server.send({"jsonrpc": "2.0", "id": server.receive()["id"], "result": YES})
        server.result(id)
    server.end()
    log = subprocess.run([cellgate, "audit", "--json"], env={**environment, **state}, capture_output=True, text=True)
    found = [r["body"] for r in map(json.loads, log.stdout.splitlines()) if r["kind"] == "question"]
    assert [q["decision"] for q in found] == ["accept"] * 4
    rules_found = [q["reason"] for q in found]
    assert rules_found == ["rule 1 (letters) of policy.json", "", "rule 3 (here) of policy.json", ""]


def test_the_log_has_who_decided_about_the_servers_own_tools(
    serve: Serve, policy, cellgate: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """By a rule, by the user, and a refusal of each; also when no session was open before."""
    rules = [
        {"id": "two", "decision": "deny", "server": "cellgate", "arguments": {"/server_name": {"equals": "two"}}},
        {"id": "one", "decision": "allow", "server": "cellgate", "arguments": {"/server_name": {"equals": "one"}}},
        {"decision": "ask", "server": "cellgate"},
    ]
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    server = serve("--policy", policy(rules=rules), "--audit", "strict", env=state)
    server.initialize(elicitation={})
    for name, answer in (("one", None), ("two", None), ("three", YES), ("four", {"action": "decline"})):
        params = {"command": "/bin/false"}
        id = server.call("register_mcp_server", server_name=name, server_params=params)
        if answer:
            server.send({"jsonrpc": "2.0", "id": server.receive()["id"], "result": answer})
        server.result(id)
    server.end()
    log = subprocess.run([cellgate, "audit", "--json"], env={**environment, **state}, capture_output=True, text=True)
    found = [r["body"] for r in map(json.loads, log.stdout.splitlines()) if r["kind"] == "question"]
    own = {"server": "cellgate", "method": "tools/call", "tool": "register_mcp_server"}
    assert [q["question"] for q in found] == [own] * 4
    assert [json.loads(q["arguments"])["server_name"] for q in found] == ["one", "two", "three", "four"]
    assert [q["decision"] for q in found] == ["accept", "reject", "accept", "reject"]
    assert [q["who"]["by"] for q in found] == ["host"] * 4
    reasons = [q["reason"] for q in found]
    assert reasons[0] == "rule 2 (one) of policy.json"
    assert "rule 1 (two) of policy.json" in reasons[1] and reasons[2:] == ["", "the user rejected it"]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_what_cannot_be_recorded_does_not_run(serve: Serve, tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = serve("--approve", "cellgate.*", "--audit", "strict", env={"XDG_STATE_HOME": str(state)})
    server.initialize()
    server.result(server.call("execute_ipython_cell", code="1"))
    writers = [p.parent for p in Path("/proc").glob("[0-9]*/cmdline") if str(state).encode() in read(p)]
    shutil.rmtree(state / "cellgate/audit")
    (state / "cellgate/audit").write_text("no folder")
    (writer,) = [w for w in writers if read(w / "comm") == b"cellgate-audit\n"]
    os.kill(int(writer.name), signal.SIGKILL)
    mark = tmp_path / "ran"
    params = {"command": "/bin/touch", "args": [str(mark)]}
    result = server.result(server.call("register_mcp_server", server_name="one", server_params=params))
    assert result["isError"] and "the audit log cannot be written" in text_of(result)
    assert not mark.exists()
