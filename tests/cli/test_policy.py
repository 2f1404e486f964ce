"""`cellgate policy`: a table of calls and expected decisions, errors of files, warnings, explanations."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
CASES = json.loads((Path(__file__).parent / "policy_cases.json").read_text())


@pytest.fixture(scope="module")
def policy(prefix: Path) -> Run:
    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        argv = [prefix / "bin/cellgate", "policy", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    return run


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """The links and files that the table's paths name."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in/file").touch()
    for link, target in {
        "in/away": "../out",
        "in/dangling": "../nothing",
        "in/loop": "loop",
        "in/home": ".",
        "there": "in",
    }.items():
        (tmp_path / link).symlink_to(target)
    return tmp_path


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_table_is_large() -> None:
    assert sum(len(group["calls"]) for group in CASES) >= 200
    assert {expect for group in CASES for _, expect in group["calls"]} == {"allow", "ask", "deny", "none"}


@pytest.mark.parametrize("group", CASES, ids=[group["name"] for group in CASES])
def test_decisions(policy: Run, folders: Path, group: dict[str, Any]) -> None:
    group = json.loads(json.dumps(group).replace("{tmp}", str(folders)))
    files = [write(folders / f"{i}.json", content) for i, content in enumerate(group["files"])]
    calls = [{"call": call, "expect": expect} for call, expect in group["calls"]]
    done = policy("test", *files, write(folders / "cases.json", calls))
    assert (done.stdout, done.stderr) == (f"{len(calls)} calls, {len(calls)} as expected\n", "")
    assert done.returncode == 0


def test_the_documented_example(policy: Run, repo: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```json\n(.*?)^```", (repo / "docs/policy.md").read_text(), re.M | re.S)
    file, rule, cases = (write(tmp_path / f"{i}.json", block) for i, block in enumerate(blocks))
    one = write(tmp_path / "one.json", {"rules": [json.loads(rule.read_text())]})
    assert policy("check", one).stdout == "no errors, no warnings\n"
    assert policy("check", file).stdout == "no errors, no warnings\n"
    assert policy("test", file, cases).stdout == "5 calls, 5 as expected\n"


def test_a_decision_that_differs_is_named(policy: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "p.json", {"rules": [{"id": "x", "decision": "deny", "server": "s"}]})
    cases = [{"call": {"server": "s", "tool": "t"}, "expect": "allow"}, {"call": {"server": "s"}, "expect": "deny"}]
    done = policy("test", file, write(tmp_path / "cases.json", cases))
    assert done.stdout == "/0: deny by rule 1 (x) of p.json, expected: allow\n2 calls, 1 as expected\n"
    assert done.returncode == 1


def test_the_schema_is_that_of_the_reader(repo: Path) -> None:
    """It has the reader's keys, accepts all files of the table, and refuses other keys."""
    schema = json.loads((repo / "docs/policy.schema.json").read_text())
    check = jsonschema.Draft202012Validator(schema)
    check.check_schema(schema)
    files = [file for group in json.loads(json.dumps(CASES).replace("{tmp}", "/tmp")) for file in group["files"]]
    assert [e.message for file in files for e in check.iter_errors(file)] == []
    assert list(check.iter_errors({"rules": [{**RULE, "tols": "x"}]}))
    rows = re.findall(r'^\s+\{ "(.*)", JSON_\w+, (.*) \},$', (repo / "src/policy/read.c").read_text(), re.M)
    parts = schema["$defs"]
    condition = {name: 1 for c in parts["condition"]["oneOf"] for name in c["properties"]}
    for where, names in {
        "IN_FILE": schema["properties"],
        "IN_RULE": parts["rule"]["properties"],
        "IN_BUDGET": parts["budget"]["properties"],
        "IN_CONDITION": condition,
    }.items():
        assert sorted(names) == sorted(name for name, places in rows if where in places.split(" | "))


RULE = {"decision": "allow", "server": "s"}
BUDGET = {"id": "b", "server": "s", "per": "cell", "calls": 1}


def arguments(pointer: str, condition: Any) -> dict[str, Any]:
    return {"rules": [{**RULE, "arguments": {pointer: condition}}]}


ERRORS = [
    ('{"rules": [}', "p.json:1:12: "),
    ('{"rules": [], "rules": []}', "duplicate object key"),
    ("[]", "p.json: a policy is an object"),
    ("[" * 100 + "]" * 100, "nested at most 16 deep"),
    ({"rulse": []}, '/rulse: there is no such key; the nearest one is "rules"'),
    ({"zzzzzzzzzzzz": 1}, "/zzzzzzzzzzzz: there is no such key here"),
    ({"rules": {}}, "/rules: an array is expected"),
    ({"rules": [1]}, "/rules/0: an object is expected"),
    ({"default": "allow"}, "/default: it must be one of none, ask, deny"),
    ({"default": ""}, "/default: it must be one of none, ask, deny"),
    ({"cells_per_minute": 0}, "cells_per_minute is from 1"),
    ({"rules": [RULE, {**RULE, "tols": "x"}]}, '/rules/1/tols: there is no such key; the nearest one is "tool"'),
    ({"rules": [{"server": "s"}]}, '/rules/0: a rule needs "decision"'),
    ({"rules": [{"decision": "alow", "server": "s"}]}, "/rules/0/decision: it must be one of"),
    ({"rules": [{"decision": "deny"}]}, "/rules/0: a rule is about one of server, host, and program or line"),
    ({"rules": [{**RULE, "host": "h"}]}, "a rule is about one of"),
    ({"rules": [{"decision": "deny", "host": "h", "tool": "t"}]}, "need server"),
    ({"rules": [{**RULE, "port": 1}]}, "needs host"),
    ({"rules": [{"decision": "deny", "host": "h", "port": 0}]}, "port is from 1"),
    ({"rules": [{"decision": "deny", "host": "https://h"}]}, "host is a name or address"),
    ({"rules": [{"decision": "deny", "host": "Example.org"}]}, "lower case"),
    ({"rules": [{**RULE, "method": "tools/list"}]}, "method is tools/call"),
    ({"rules": [{**RULE, "method": "prompts/get", "tool": "t"}]}, "only tools/call has a tool"),
    ({"rules": [{**RULE, "server": ""}]}, "/rules/0/server: a pattern has 1 to 256 bytes"),
    ({"rules": [{**RULE, "for": "ever"}]}, "/rules/0/for: it must be one of session, cell, once"),
    ({"rules": [{**RULE, "until": "tomorrow"}]}, "until is a time in UTC"),
    ({"rules": [{"decision": "deny", "server": "s", "for": "once"}]}, "only what is allowed ends"),
    ({"rules": [{**RULE, "front": [1]}]}, "front is a list"),
    ({"rules": [{"decision": "deny", "program": "/x", "env": ["A"]}]}, 'no member "env"'),
    ({"rules": [{"decision": "deny", "program": "/x", "argv": [{"regex": "("}]}]}, "regular expression"),
    (arguments("path", {"glob": "x"}), '/rules/0/arguments/path: a JSON pointer begins with "/": "/path"?'),
    (arguments("/a" * 129, {"glob": "x"}), "a JSON pointer has at most 256 bytes"),
    (arguments("/a~2", {"glob": "x"}), "~ is written ~0"),
    (arguments("/a", {}), "a condition has one of"),
    (arguments("/a", {"glob": "x", "regex": "y"}), "a condition has one of"),
    (arguments("/a", {"min": 2, "max": 1}), "min not over max"),
    (arguments("/a", {"max": 2**60}), "below 1e15"),
    (arguments("/a", {"enum": []}), "there is no value"),
    (arguments("/a", {"enum": [[1]]}), "a text, true, false, null or a number"),
    ({"rules": [{"decision": "deny", "server": "s", "arguments": {"/a": {"equals": [1]}}}]}, 'needs "decision": "allow"'),
    ({"rules": [{"decision": "ask", "server": "s", "arguments": {"": {"equals": {}}}}]}, 'needs "decision": "allow"'),
    ({"budgets": [{**BUDGET, "arguments": {"": {"equals": {}}}}]}, 'needs "decision": "allow"'),
    ({"budgets": [{**BUDGET, "sum": "", "max": 1}]}, "a budget needs calls"),
    (arguments("", {"equals": []}), "with an object as their condition"),
    (arguments("", {"glob": "*"}), "with an object as their condition"),
    (arguments("/a", {"regex": "(a"}), "the regular expression: "),
    (arguments("/a", {"regx": "a"}), 'the nearest one is "regex"'),
    (arguments("/a", {"within": "srv"}), "absolute path"),
    (arguments("/a", {"within": "/srv/../etc"}), "absolute path"),
    ({"rules": [{**RULE, "arguments": {f"/{i}": {"equals": 1} for i in range(17)}}]}, "over 16 conditions"),
    ({"rules": [{**RULE, "arguments": {f"/{i}": {"regex": "a"} for i in range(13)}}] * 5}, "over 64 regular expressions"),
    ({"rules": [RULE] * 513}, "/rules: there are over 512"),
    ({"budgets": [{**BUDGET, "per": "day"}]}, "/budgets/0/per: it must be one of session, cell, minute"),
    ({"budgets": [{"id": "b", "server": "s", "per": "cell"}]}, "a budget needs calls"),
    ({"budgets": [{"id": "b", "server": "s", "per": "cell", "sum": "/x"}]}, "a budget needs calls"),
    ({"budgets": [{"server": "s", "per": "cell", "calls": 1}]}, "a budget needs an id"),
    ({"budgets": [{**BUDGET, "calls": -1}]}, "at least 0"),
    ({"budgets": [{**BUDGET, "decision": "allow"}]}, "there is no such key"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "error"), ERRORS)
def test_errors(policy: Run, tmp_path: Path, content: Any, error: str) -> None:
    done = policy("check", write(tmp_path / "p.json", content))
    assert error in done.stderr
    assert done.stderr.startswith(f"cellgate policy: {tmp_path}/p.json:")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_file_without_errors(policy: Run, tmp_path: Path) -> None:
    content = {"default": "deny", "cells_per_minute": 5, "rules": [RULE], "budgets": [BUDGET]}
    done = policy("check", write(tmp_path / "p.json", content))
    assert (done.returncode, done.stdout, done.stderr) == (0, "no errors, no warnings\n", "")


def test_rules_that_can_never_match(policy: Run, tmp_path: Path) -> None:
    narrow = {"/x": {"equals": 1}}
    rules = [
        {**RULE, "tool": "read_*", "arguments": narrow},
        {**RULE, "tool": "read_*"},  # 1: the one before has conditions
        {**RULE, "tool": "read_file*"},  # 2: never
        {**RULE, "method": "resources/read"},
        {**RULE, "server": "*", "tool": "?"},
        {**RULE, "server": "t", "tool": "*"},  # 5: a ? is one character
        {**RULE, "server": "t", "tool": "x", "arguments": narrow},  # 6: never
        {**RULE, "until": "2020-01-01T00:00:00Z"},  # 7: never
        {**RULE, "front": ["runn"]},  # 8: never
        {"decision": "deny", "host": "*", "port": 1},
        {"decision": "deny", "host": "a", "port": 2},
        {"decision": "deny", "host": "a", "port": 1},  # 11: never
    ]
    done = policy("check", write(tmp_path / "p.json", {"rules": rules}))
    assert [line.split("/rules/")[1].split()[0] for line in done.stdout.splitlines()] == ["2", "6", "7", "8", "11"]
    assert "/rules/2 can never match: /rules/1 matches the same calls before" in done.stdout
    assert done.returncode == 0


def test_explain(policy: Run, tmp_path: Path) -> None:
    rules = [
        {**RULE, "tool": "list"},
        {**RULE, "id": "small", "arguments": {"/n": {"max": 5}}},
        {"decision": "deny", "server": "s", "arguments": {"/n": {"max": 9}}, "text": "Ask for\nless."},
    ]
    file = write(tmp_path / "p.json", {"rules": rules})
    done = policy("explain", file, "--call", '{"server": "s", "tool": "get", "arguments": {"n": "1"}}')
    assert done.stdout == (
        "rule 1 of p.json does not match: the tool is not list\n"
        "rule 2 (small) of p.json is unclear: the argument /n cannot be judged\n"
        "rule 3 of p.json is unclear: the argument /n cannot be judged\n"
        "deny by rule 3 of p.json: Ask for\\x0aless.\n"
    )
    assert policy("explain", file, "--call", '{"server": "o"}').stdout.endswith("none\n")
    assert "--call" in policy("explain", file, "--call", "{").stderr
    assert "a call has server, program or host" in policy("explain", file, "--call", "{}").stderr


@pytest.mark.parametrize(
    "words", [[], ["nothing"], ["check"], ["test", "one"], ["explain", "one"], ["check", "--call", "x", "f"]]
)
def test_command_lines(policy: Run, words: list[str]) -> None:
    done = policy(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cellgate policy: ")
