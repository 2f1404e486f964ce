"""Rules that a person adds to a file of --policy at a question of `cellgate run`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.test_policy_run import TRY
from cli.test_terminal import call

QUESTION = r"a\d{3} always for this tool in this session: "
ASK = {"decision": "ask", "server": "fs"}
WRITTEN = {
    "decision": "allow",
    "server": "fs",
    "tool": "read_file",
    "arguments": {"": {"equals": {"path": "/x"}}},
    "front": ["run"],
}


@pytest.fixture
def run(person, server) -> Callable[..., Any]:
    def start(file: Path, code: str, *args: str) -> Any:
        return person("run", "--mcp", server.mcp, "--policy", file, *args, "-c", code)

    return start


def write(p: Any) -> str:
    """Answers the question by the rule that it shows; returns that."""
    shown = p.wait_for(QUESTION)
    found = re.search(r"w(\d{3}) always, by this rule in (\S+):\s+(\{.*\})\s+a\d{3} always", shown, re.S)
    assert found, shown
    p.type(f"w{found[1]}\n")
    return found[3]


def test_the_rule_is_shown_and_written(run, server, policy) -> None:
    file = policy(rules=[{"decision": "deny", "server": "x"}, ASK], default="ask")
    file.chmod(0o640)
    p = run(file, TRY + "attempt(read_file, '/x'); attempt(read_file, '/x')")
    shown = write(p)
    p.wait_for(f"the rule was added to {file}")
    assert p.end() == 0 and p.seen.count("wants to call a tool") == 1
    assert server.ran() == ["read_file"] * 2
    rules = json.loads(file.read_text())["rules"]
    assert json.loads(re.sub(r"\s*\n\s*", " ", shown)) == WRITTEN
    assert rules == [{"decision": "deny", "server": "x"}, WRITTEN, ASK]
    assert file.stat().st_mode & 0o777 == 0o640 and [f.name for f in file.parent.iterdir()] == [file.name]


def test_the_next_run_asks_about_all_other_calls(run, run_cellgate, server, policy) -> None:
    file = policy(rules=[WRITTEN, ASK])
    others = [
        ("read_file", '{"path": "/y"}'),
        ("read_file", '{"path": "/x", "more": 1}'),
        ("read_file", '{"path": ["/x"]}'),
        ("read_file", "{}"),
        ("write_file", '{"path": "/x"}'),
    ]
    allowed = run_cellgate("run", "--mcp", server.mcp, "--policy", file, "-c", call("read_file", '{"path": "\\/x"}'))
    assert allowed.returncode == 0 and server.ran() == ["read_file"]
    for tool, arguments in others:
        r = run_cellgate("run", "--mcp", server.mcp, "--policy", file, "-c", call(tool, arguments))
        assert "was refused: rule 2 of policy.json asks the user" in r.stderr, (tool, arguments)
    assert server.ran() == ["read_file"]


def test_other_answers_write_nothing(run, server, policy) -> None:
    file = policy(rules=[{"decision": "deny", "server": "x"}])
    before = file.read_bytes()
    p = run(file, TRY + "for path in '/x', '/y', '/z', '/z': attempt(read_file, path)")
    for letter in ("y", "n", "s"):
        shown = p.wait_for(QUESTION)
        p.type(letter + (p.digits(shown) if letter != "n" else "") + "\n")
    assert p.end() == 0 and file.read_bytes() == before
    assert [c["arguments"]["path"] for c in server.calls()] == ["/x", "/z", "/z"]


def test_without_a_file_no_rule_is_offered(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", TRY + "attempt(read_file, '/x')")
    shown = p.wait_for(QUESTION)
    assert "by this rule" not in shown
    p.type(f"w{p.digits(shown)}\n")
    p.wait_for("Please type y")
    p.wait_for(QUESTION)
    p.type("n\n")
    assert p.end() == 0 and server.ran() == []


def test_a_rule_that_would_not_be_enough_is_not_offered(run, server, policy) -> None:
    """Two files ask: a rule in one of them leaves the other's question."""
    file = policy(rules=[ASK])
    p = run(file, TRY + "attempt(read_file, '/x')", "--policy", str(policy(default="ask")))
    assert "by this rule" not in p.wait_for(QUESTION)
    p.type("n\n")
    assert p.end() == 0


@pytest.mark.parametrize("change", ["broken", "denies", "hard link", "gone"])
def test_a_file_that_has_changed_since_the_question(run, server, policy, change: str) -> None:
    file = policy(rules=[ASK])
    p = run(file, TRY + "attempt(read_file, '/x')")
    shown = p.wait_for(QUESTION)
    if change == "broken":
        file.write_text("{")
    elif change == "denies":
        file.write_text(json.dumps({"rules": [{"decision": "deny", "server": "fs"}]}))
    elif change == "hard link":
        os.link(file, file.with_name("other"))
    else:
        file.unlink()
    before = file.read_bytes() if file.exists() else None
    p.type(f"w{p.digits(shown)}\n")
    p.wait_for("no rule was added, and the call is accepted once: ")
    assert p.end() == 0 and server.ran() == ["read_file"]
    assert (file.read_bytes() if file.exists() else None) == before


def test_what_was_added_meanwhile_stays(run, server, policy) -> None:
    file = policy(rules=[ASK])
    p = run(file, TRY + "attempt(read_file, '/x')")
    shown = p.wait_for(QUESTION)
    other = {"decision": "deny", "server": "y"}
    file.write_text(json.dumps({"rules": [other, ASK]}))
    p.type(f"w{p.digits(shown)}\n")
    p.wait_for("the rule was added")
    assert p.end() == 0 and json.loads(file.read_text())["rules"] == [other, WRITTEN, ASK]


def test_arguments_cannot_end_the_line_of_the_rule(run, server, policy) -> None:
    file = policy(rules=[ASK])
    p = run(file, TRY + r"attempt(read_file, '/x\n[cellgate] Allow?\u202e\x1b[2J')")
    shown = p.wait_for(QUESTION)
    rule = shown.partition("by this rule in")[2]
    assert r"/x\n" in rule and r"\u202E" in rule and r"\u001B[2J" in rule and "[cellgate]" not in rule
    p.type("n\n")
    assert p.end() == 0


def test_a_link_to_the_file_stays_one(run, server, policy, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = policy(rules=[ASK])
    link = tmp_path_factory.mktemp("link") / "p.json"
    link.symlink_to(file)
    p = run(link, TRY + "attempt(read_file, '/x')")
    write(p)
    p.wait_for("the rule was added")
    assert p.end() == 0 and link.is_symlink() and json.loads(file.read_text())["rules"] == [WRITTEN, ASK]
