"""Rules about programs of the host: no line of a shell that goes on is allowed by a rule about how it begins."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = json.loads((Path(__file__).parent / "host_tricks.json").read_text())
# A file of calls cannot have NUL: mcp_serve/test_host_web.py calls these lines too.
RULES, TRICKS = DATA["rules"], [line for line in DATA["tricks"] if "\0" not in line]


def rule(pattern: str, way: str, decision: str = "allow") -> dict[str, Any]:
    words = pattern.split(" ")
    condition = {
        "text": {"/command": {"glob": pattern.replace("**", "*")}},
        "regex": {"/command": {"regex": pattern.replace("**", "*").replace("*", "(?s).*")}},
        "words": {"/command": {"argv": words}},
        "argv": {"/argv": {"argv": words}},
    }[way]
    return {"decision": decision, "server": "host", "tool": "host_exec", "arguments": condition}


def expect(**arguments: Any) -> Callable[[str], dict[str, Any]]:
    call = {"server": "host", "tool": "host_exec", "arguments": arguments}
    return lambda decision: {"call": call, "expect": decision}


@pytest.fixture
def decide(prefix: Path, tmp_path: Path) -> Callable[[list[Any], list[Any]], str]:
    def run(rules: list[Any], calls: list[Any]) -> str:
        for name, content in (("policy", {"rules": rules}), ("calls", calls)):
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        argv = [prefix / "bin/cellgate", "policy", "test", tmp_path / "policy.json", tmp_path / "calls.json"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout

    return run


@pytest.mark.parametrize("way", ["text", "regex", "words", "argv"])
def test_rules_allow_programs_and_no_lines(decide, way: str) -> None:
    rules = [rule(pattern, way) for pattern, _ in RULES]
    given = [expect(argv=c.split(" ")) if way == "argv" else expect(command=c) for _, c in RULES]
    calls = [one("allow") for one in given] + [expect(command=line)("none") for line in TRICKS]
    assert len(RULES) == 20 and len(TRICKS) >= 200
    assert decide(rules, calls) == f"{len(calls)} calls, {len(calls)} as expected\n"


def test_lines_match_as_one_text(decide) -> None:
    line = "cat /etc/hostname | wc -l"
    same = {"decision": "allow", "server": "host", "tool": "host_exec", "arguments": {"/command": {"equals": line}}}
    calls = [expect(command=line)("allow"), expect(command=line + " ")("none"), expect(command=line[:-3])("none")]
    assert "3 as expected" in decide([same], calls)


def test_a_deny_rule_denies_what_it_cannot_read(decide) -> None:
    calls = [expect(command=c)("deny") for c in ("rm -rf /srv", "rm", "true; rm x", "$(echo rm) x")]
    calls += [expect(command="ls /srv")("none"), expect(argv=["rm", "-rf"])("none"), expect(argv=["ls"])("none")]
    assert "7 as expected" in decide([rule("rm **", "words", "deny")], calls)


@pytest.mark.parametrize(
    ("pattern", "argv", "decision"),
    [
        ("git log *", ["git", "log", "HEAD"], "allow"),
        ("git log *", ["git", "log", "--output=/etc/x"], "none"),
        ("git log *", ["git", "log"], "none"),
        ("git log *", ["git", "log", "a", "b"], "none"),
        ("git log **", ["git", "log", "--output=/etc/x"], "allow"),
        ("cat /srv/*", ["cat", "/srv/a/b"], "allow"),
        ("cat /srv/*", ["cat", "/srv/../etc/shadow"], "none"),
        ("cat /srv/*", ["cat /srv/a"], "none"),
        ("cat ?", ["cat", "-"], "none"),
        ("cat *", ["cat", "x\ny"], "allow"),
        ("cat *", ["cat", ["x"]], "none"),
        ("cat *", ["cat", "x" * 5000], "none"),
        ("cat *", "cat x", "allow"),
        ("cat *", {"0": "cat", "1": "x"}, "none"),
        ("cat *", [], "none"),
    ],
)
def test_words(decide, pattern: str, argv: Any, decision: str) -> None:
    assert "1 as expected" in decide([rule(pattern, "argv")], [expect(argv=argv)(decision)])


def test_other_servers_keep_their_patterns(decide) -> None:
    other = {**rule("cat *", "text"), "server": "shell"}
    call = {"server": "shell", "tool": "host_exec", "arguments": {"command": "cat x; id"}}
    assert "1 as expected" in decide([other], [{"call": call, "expect": "allow"}])
