"""`cellgate run --policy`: files of rules decide, with --approve for the rest; which files are refused."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from web import FETCH, settings

Run = Callable[..., "subprocess.CompletedProcess[str]"]
READ = "from mcptools.fs import read_file; print(read_file.run(path='/srv/a'))"
TRY = """
from mcptools.fs import read_file, write_file
def attempt(tool, path):
    try: print(tool.run(path=path))
    except Exception as e: print(e)
"""
RULES = [
    {
        "id": "no-etc",
        "decision": "deny",
        "server": "fs",
        "arguments": {"/path": {"within": "/etc"}},
        "text": "Not there.",
    },
    {"decision": "allow", "server": "fs", "tool": "read_file", "arguments": {"/path": {"within": "/srv"}}},
]
REPEATED = "; this same call was refused before in this session: repeating it does not help"


def test_arguments_decide_and_the_rule_is_named(run_cellgate: Run, server, policy) -> None:
    code = TRY + "\n".join(
        f"attempt({tool}, {path!r})"
        for tool, path in [
            ("read_file", "/srv/a"),
            ("read_file", "/etc/passwd"),
            ("read_file", "/srv/../etc/passwd"),
            ("write_file", "/srv/a"),
        ]
    )
    r = run_cellgate("run", "--mcp", server.mcp, "--policy", policy(rules=RULES), "-c", code)
    lines = r.stdout.splitlines()
    denied = "fs.read_file was not run: refused by rule 1 (no-etc) of policy.json: Not there."
    assert lines[:3] == ["read_file done", denied, denied]
    assert lines[3].startswith("fs.write_file was not run: no approval rule allows fs.write_file")
    assert server.calls() == [{"tool": "read_file", "arguments": {"path": "/srv/a"}}]


@pytest.mark.parametrize(("namespace", "allowed"), [("work-1", True), ("play", False), (None, False)])
def test_sessions_by_their_namespace(run_cellgate: Run, server, policy, namespace: str | None, allowed: bool) -> None:
    rules = [{"decision": "allow", "server": "fs", "session": "work-*"}]
    name = ("--namespace", namespace) if namespace else ()
    words = ("--mcp", server.mcp, "--policy", policy(rules=rules), "-c", TRY + "attempt(read_file, '/srv/a')")
    assert ("read_file done" in run_cellgate("run", *name, *words).stdout) == allowed


def test_a_repeated_call_is_answered_with_that(run_cellgate: Run, server, policy) -> None:
    code = TRY + "for path in ('/etc/a', '/etc/b', '/etc/a'): attempt(read_file, path)"
    r = run_cellgate("run", "--mcp", server.mcp, "--policy", policy(rules=RULES), "-c", code)
    assert [line.endswith(REPEATED) for line in r.stdout.splitlines()] == [False, False, True]


def test_approve_decides_what_no_file_decides(run_cellgate: Run, server, policy) -> None:
    code = TRY + "attempt(read_file, '/srv/a'); attempt(write_file, '/x'); attempt(write_file, '/etc/x')"
    words = ("run", "--mcp", server.mcp, "--policy", policy(rules=RULES), "--approve", "fs.write_file", "-c", code)
    r = run_cellgate(*words)
    assert r.stdout.splitlines()[:2] == ["read_file done", "write_file done"] and "no-etc" in r.stdout
    r = run_cellgate(*words, "--approve", "!fs.read_*")  # a file cannot allow what such a pattern refuses
    assert "refused by the approval rule !fs.read_*" in r.stdout
    r = run_cellgate(*words, "--policy", policy(default="deny"))  # the strictest file decides
    assert r.stdout.count("refused by the default of policy.json") == 2 and "done" not in r.stdout


def test_what_a_file_asks_is_refused_where_nobody_can_be_asked(run_cellgate: Run, server, policy) -> None:
    file = policy(rules=[{"decision": "ask", "server": "fs"}])
    r = run_cellgate("run", "--mcp", server.mcp, "--policy", file, "--approve", "all", "-c", READ)
    assert r.returncode == 4 and "rule 1 of policy.json asks the user, but nobody can be asked here" in r.stderr
    assert server.ran() == []


def test_budgets(run_cellgate: Run, server, policy) -> None:
    budgets = [{"id": "few", "server": "fs", "per": "cell", "calls": 2, "text": "Enough."}]
    code = TRY + "for i in range(3): attempt(read_file, f'/srv/{i}')"
    file = policy(rules=RULES, budgets=budgets)
    r = run_cellgate("run", "--mcp", server.mcp, "--policy", file, "-c", code, "-c", "attempt(read_file, '/srv/9')")
    assert r.stdout.splitlines() == [
        "read_file done",
        "read_file done",
        "fs.read_file was not run: refused by budget few of policy.json: all of 2 calls for each cell are used: Enough.",
        "read_file done",
    ]


def test_a_question_that_had_to_wait_counts_once(person, server, policy) -> None:
    """Of two threads, one question is held back, and decided again when it is its turn."""
    rules, budgets = [{"decision": "ask", "server": "fs"}], [{"id": "b", "server": "fs", "per": "session", "calls": 2}]
    code = TRY + (
        "import threading\n"
        "threads = [threading.Thread(target=attempt, args=(read_file, f'/{i}')) for i in range(2)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
    )
    p = person("run", "--mcp", server.mcp, "--policy", policy(rules=rules, budgets=budgets), "-c", code)
    for _ in range(2):
        p.type(f"y{p.digits(p.wait_for('in this session: '))}\n")
    assert p.end() == 0
    assert server.ran() == ["read_file", "read_file"]


def test_a_persons_no_stands_for_the_same_call(person, server, policy) -> None:
    code = TRY + "for i in range(2): attempt(read_file, '/x')"
    file = policy(rules=[{"decision": "ask", "server": "fs"}])
    p = person("run", "--mcp", server.mcp, "--policy", file, "-c", code)
    p.wait_for("in this session: ")
    p.type("n\n")
    p.wait_for("refused by an earlier answer of the user")
    assert p.end() == 0
    assert p.seen.count("wants to call a tool") == 1 and server.ran() == []


def test_programs(run_cellgate: Run, policy) -> None:
    rules = [
        {"decision": "allow", "program": "/usr/bin/wc"},
        {"decision": "deny", "program": "/usr/bin/*", "text": "None."},
    ]
    code = (
        "import subprocess\n"
        "print(subprocess.run(['wc', '-c'], input=b'123', capture_output=True).stdout)\n"
        "subprocess.run(['ls'])\n"
    )
    file = policy(rules=rules)
    r = run_cellgate("run", "--policy", file, "-c", code)
    assert (r.returncode, r.stdout) == (1, "b'3\\n'\n")
    assert "[cellgate] ls was refused: refused by rule 2 of policy.json: None." in r.stderr
    r = run_cellgate("run", "--policy", file, "--exec", "allow", "-c", code)
    assert (r.returncode, r.stdout) == (2, "") and 'exec is "allow", so nothing would be asked about' in r.stderr


def test_connections(run_cellgate: Run, policy, tmp_path_factory: pytest.TempPathFactory, port: int) -> None:
    sandbox = tmp_path_factory.mktemp("settings") / "settings.json"
    sandbox.write_text(json.dumps(settings()))
    rules = [
        {"decision": "deny", "host": "*.example", "text": "Not today."},
        {"decision": "allow", "host": "127.0.0.1", "port": port},
    ]
    code = FETCH + f"for url in ('http://127.0.0.1:{port}/', 'http://a.example/', 'http://b.test/'): print(fetch(url))"
    r = run_cellgate("run", "--sandbox", sandbox, "--policy", policy(rules=rules), "-c", code)
    assert r.stdout.splitlines()[0] == "hello from outside", r.stdout
    assert "refused by rule 1 of policy.json: Not today." in r.stderr
    assert "b.test:80 (http): host is not on the allow list" in r.stderr


# ---------------------------------------------------------------- the file


def refused(r: subprocess.CompletedProcess[str], why: str) -> None:
    assert (r.returncode, r.stdout) == (2, "")
    assert r.stderr.startswith("cellgate run: ") and why in r.stderr


def test_a_file_that_cells_can_write_is_refused(
    run_cellgate: Run, policy, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = policy(rules=RULES)
    run = ("run", "-c", "print('ran')", "--policy")
    assert run_cellgate(*run, file).stdout == "ran\n"
    (tmp_path / "p.json").write_text("{}")
    refused(run_cellgate(*run, "p.json"), "is in the workspace")
    (tmp_path / "link.json").symlink_to(file)
    refused(run_cellgate(*run, "link.json"), "symbolic link in the workspace")
    (tmp_path / "folder").symlink_to(file.parent)
    refused(run_cellgate(*run, "folder/policy.json"), "symbolic link in the workspace")
    sandbox = tmp_path_factory.mktemp("settings") / "s.json"
    sandbox.write_text(json.dumps(settings(filesystem={"allowWrite": [str(file.parent)]})))
    refused(run_cellgate(*run, file, "--sandbox", sandbox), "is below filesystem.allowWrite")
    root = tmp_path_factory.mktemp("root")
    (root / "link.json").symlink_to(file)
    sandbox.write_text(json.dumps(settings(filesystem={"allowWrite": [str(root)]})))
    refused(run_cellgate(*run, root / "link.json", "--sandbox", sandbox), "symbolic link in the workspace")
    assert run_cellgate(*run, file, "--sandbox", sandbox).stdout == "ran\n"
    os.link(file, file.parent / "other")
    refused(run_cellgate(*run, file), "has other names (hard links)")


def test_other_files(run_cellgate: Run, policy, tmp_path: Path) -> None:
    refused(run_cellgate("run", "-c", "1", "--policy", "missing.json"), "missing.json: No such file")
    refused(run_cellgate("run", "-c", "1", "--policy", tmp_path.parent), "no regular file")
    refused(run_cellgate("run", "-c", "1", "--policy", policy(rulse=[])), 'the nearest one is "rules"')
    refused(
        run_cellgate("run", "-c", "1", "--no-sandbox", "--policy", policy()), "--policy and --no-sandbox contradict"
    )
