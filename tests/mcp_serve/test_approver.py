"""The toolset approvals: a second client decides about the cells of the first, where that one's session allows it."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_serve.helpers import Raw, text_of
from processes import eventually
from shared_supervisor import Shared, runtime_folder

Serve = Callable[..., Raw]
CODE = "from mcptools.fake import leave_mark\nleave_mark.run(text='x')"
TOOLS = {"list_approvals", "show_approval", "decide_approval"}


@pytest.fixture
def user(cellgate: Path, slowness: float) -> Iterator[Shared]:
    """The user's other commands."""
    with runtime_folder() as folder:
        yield Shared(cellgate, folder, folder, slowness)


@pytest.fixture
def start(user: Shared, serve: Serve) -> Serve:
    def start(*args: str | Path) -> Raw:
        server = serve(*args, env=user.env | {"CELLGATE_PRIVATE": ""})
        server.initialize()
        return server

    return start


def listed(approver: Raw) -> list[dict[str, Any]]:
    text = approver.ask("list_approvals")
    return [] if text.startswith("Nothing waits") else [json.loads(line) for line in text.splitlines()]


def waiting(approver: Raw) -> dict[str, Any]:
    """The only one, whole, once it waits."""
    eventually(lambda: len(listed(approver)) == 1, 60)
    (one,) = listed(approver)
    found: dict[str, Any] = json.loads(approver.ask("show_approval", id=one["id"]))
    return found


def test_another_client_decides_once(start: Serve, mcp_file: Path, mark: Path) -> None:
    agent, approver = start("--mcp", mcp_file, "--decide-by-mcp"), start("--toolsets", "approvals")
    call = agent.call("execute_ipython_cell", code=CODE)
    q = waiting(approver)
    assert (q["server"], q["tool"], q["arguments"], q["code"]) == ("fake", "leave_mark", '{"text":"x"}', CODE)
    words = {"id": q["id"], "digest": q["digest"]}
    wrong = approver.fails("decide_approval", id=q["id"], digest="0" * 64, decision="accept")
    assert "nothing was decided" in wrong
    assert "must be" in approver.fails("decide_approval", **words, decision="yes")
    assert not mark.exists()
    assert approver.ask("decide_approval", **words, decision="accept") == "Accepted, once."
    result = agent.result(call)
    decided = {"server": "fake", "tool": "leave_mark", "rule": "approver"}
    assert result["structuredContent"]["approvals"] == [{**decided, "decision": "accepted"}]
    assert mark.read_text() == "x\n"
    # The same answer to the next call, which has the same digest, is one to the last.
    call = agent.call("execute_ipython_cell", code=CODE)
    q = waiting(approver)
    assert q["digest"] == words["digest"]
    for decision in ("accept", "reject"):
        assert "was decided elsewhere, has ended" in approver.fails("decide_approval", **words, decision=decision)
    approver.ask("decide_approval", id=q["id"], digest=q["digest"], decision="reject", reason="not today")
    result = agent.result(call)
    assert result["structuredContent"]["approvals"] == [{**decided, "decision": "rejected"}]
    assert "not today" in text_of(result) and mark.read_text() == "x\n"


def test_an_approval_ends_with_its_cell(start: Serve, mcp_file: Path, mark: Path) -> None:
    agent, approver = start("--mcp", mcp_file, "--decide-by-mcp"), start("--toolsets", "approvals")
    call = agent.call("execute_ipython_cell", code=CODE)
    q = waiting(approver)
    agent.notify("notifications/cancelled", {"requestId": call})
    eventually(lambda: not listed(approver), 60)
    why = approver.fails("decide_approval", id=q["id"], digest=q["digest"], decision="accept")
    assert "has ended" in why and not mark.exists()


@pytest.mark.parametrize(("option", "sees"), [("--decide-elsewhere", "terminal"), ("--decide-by-mcp", "approver")])
def test_the_opener_says_who_decides(
    start: Serve, user: Shared, mcp_file: Path, mark: Path, option: str, sees: str
) -> None:
    agent, approver = start("--mcp", mcp_file, option), start("--toolsets", "approvals")
    agent.call("execute_ipython_cell", code=CODE)

    def terminal() -> dict[str, Any]:
        return json.loads(user("approvals", "list", "--json").stdout)

    eventually(lambda: bool(terminal()["approvals"] or listed(approver)), 60)
    seen = {"terminal": terminal()["approvals"], "approver": listed(approver)}
    (q,) = seen.pop(sees)
    assert seen.popitem()[1] == [] and terminal()["others"] == (0 if sees == "terminal" else 1)
    if sees == "terminal":
        digest = json.loads(user("approvals", "show", q["id"], "--json").stdout)["digest"]
        assert "no question" in approver.fails("show_approval", id=q["id"])
        assert "no question" in approver.fails("decide_approval", id=q["id"], digest=digest, decision="accept")
    else:
        digest = json.loads(approver.ask("show_approval", id=q["id"]))["digest"]
        assert user("approvals", "accept", q["id"], "--digest", digest).returncode == 1
    assert not mark.exists()


def test_no_client_has_both(start: Serve, run_cellgate: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    agent, approver = start(), start("--toolsets", "approvals")
    names = [{t["name"] for t in s.result(s.request("tools/list"))["tools"]} for s in (agent, approver)]
    assert not names[0] & TOOLS and names[1] == TOOLS
    assert "there is no tool" in approver.answer(approver.call("execute_ipython_cell", code="1"))["error"]["message"]
    assert "there is no tool" in agent.answer(agent.call("list_approvals"))["error"]["message"]
    for words in (["--toolsets", "approvals,core"], ["--toolsets", "jobs,approvals"]):
        done = run_cellgate("mcp", "serve", *words)
        assert done.returncode == 2 and "must not decide" in done.stderr
    done = run_cellgate("mcp", "serve", "--http", "127.0.0.1:0", "--toolsets", "approvals")
    assert done.returncode == 2 and "--approver-token-file" in done.stderr


def test_what_the_agent_writes_is_escaped(start: Serve, mcp_file: Path) -> None:
    agent, approver = start("--mcp", mcp_file, "--decide-by-mcp"), start("--toolsets", "approvals")
    agent.call("execute_ipython_cell", code=CODE.replace("'x'", "'\u202e\\u05d0\\x1b[2J\\n'"))
    waiting(approver)
    (q,) = listed(approver)
    text = approver.ask("show_approval", id=q["id"])
    assert text.isascii() and text.isprintable() and json.loads(json.loads(text)["arguments"])["text"][0] == "\u202e"


def test_the_audit_log_has_who_and_where(start: Serve, user: Shared, mcp_file: Path) -> None:
    agent = start("--mcp", mcp_file, "--decide-by-mcp", "--audit", "strict")
    approver = start("--toolsets", "approvals")
    call = agent.call("execute_ipython_cell", code=CODE)
    q = waiting(approver)
    approver.ask("decide_approval", id=q["id"], digest=q["digest"], decision="accept")
    agent.result(call)
    records = [json.loads(line) for line in user("audit", "--json", "--session", q["session"]).stdout.splitlines()]
    (who,) = [r["body"]["who"] for r in records if r["kind"] == "question"]
    assert (who["by"], who["place"], who["name"]) == ("approver", "mcp", "test")
    assert re.search(r'"pid": \d+', json.dumps(who))


def test_about_cells_of_run(start: Serve, user: Shared, mcp_file: Path, mark: Path) -> None:
    approver = start("--toolsets", "approvals")
    with user.start(CODE, "--mcp", mcp_file, "--decide-by-mcp") as run:
        q = waiting(approver)
        assert q["pid"] == run.pid
        approver.ask("decide_approval", id=q["id"], digest=q["digest"], decision="accept")
        _, err = run.communicate(timeout=60)
        assert run.returncode == 0 and "a question waits for your decision in an MCP client" in err
    assert mark.read_text() == "x\n"
    for words in (["--private"], ["--no-sandbox"]):
        refused = user("run", "--decide-by-mcp", *words, "-c", "1")
        assert refused.returncode == 2 and "needs a sandbox and the shared supervisor" in refused.stderr
