"""Rules about programs of cells (an object as `exec`): which are started, refused, or asked about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client, Event, Outcome, Session

from .test_settings import settings

PRELUDE = """
import os, subprocess
def start(*argv, **options):
    try:
        return subprocess.run(argv[0] if options.get('shell') else argv, capture_output=True, **options).returncode
    except PermissionError:
        return 'refused'
"""
RULES = {
    "default": "ask",
    "deny": [{"program": "/usr/bin/printenv"}, {"program": "/usr/bin/echo", "argv": ["*", "*secret*"], "more": True}],
    "ask": [{"program": "/usr/bin/echo", "argv": ["echo", "careful"]}],
    "allow": [
        {"program": "/usr/bin/echo", "argv": ["echo", {"regex": "[a-z]+"}], "more": True},
        {"program": "/usr/bin/t?ue"},
        {"program": "/usr/bin/sleep", "argv": ["sleep", "0*"], "env": ["LC_*"]},
        {"program": "/usr/bin/id", "argv": ["id", {"exact": "*"}]},
        {"line": "echo one; exit 0"},
        {"line": {"regex": "exit [0-9]"}},
    ],
}


@pytest.fixture(scope="module")
def ruled(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("ruled")
    with client.session(workspace=folder, exec=RULES) as s:
        assert s.info["exec"] == "rules"
        assert s.run(PRELUDE).status == "ok"
        yield s


def asked(out: Outcome) -> list[Event]:
    return [e for e in out.events if e.type == "approval_request"]


def test_what_rules_decide(ruled: Session) -> None:
    for call, result in [
        ("start('echo', 'abc', 'x')", "0"),
        ("start('echo', 'ABC')", "asked"),
        ("start('echo', 'abc\\n')", "asked"),
        ("start('echo', 'abc', 'x', executable='/usr/bin/echo')", "0"),
        ("start('other', 'abc', executable='/usr/bin/echo')", "asked"),
        ("start('echo')", "asked"),
        ("start('echo', 'careful')", "asked"),
        ("start('echo', 'careful', 'more')", "0"),
        ("start('echo', 'a secret')", "'refused'"),
        ("start('echo', b'\\xff')", "'refused'"),  # nobody knows what it is to a rule that denies
        ("start('printenv')", "'refused'"),
        ("start('true')", "0"),
        ("start('/usr/bin/true', 'x', 'y')", "0"),
        ("start('x', executable='/usr/bin/true')", "asked"),
        ("start('true', b'\\xff')", "asked"),
        ("start('true', env={**os.environ, 'LD_PRELOAD': './evil.so'})", "asked"),
        ("start('true', env={})", "asked"),
        ("start('sleep', '0.1')", "0"),
        ("start('sleep', '1')", "asked"),
        ("start('sleep', '0', env={**os.environ, 'LC_ALL': 'C'})", "0"),
        ("start('sleep', '0', env={**os.environ, 'LC_ALL': 'C', 'X': '1'})", "asked"),
        ("start('id', '-u')", "asked"),
        ("start('echo one; exit 0', shell=True)", "0"),
        ("start('echo one; exit 0 ', shell=True)", "asked"),
        ("start('exit 3', shell=True)", "3"),
        ("start('exit 3; id', shell=True)", "asked"),
        ("start('exit 3\\n', shell=True)", "asked"),
        ("start('-sh', '-c', 'exit 3', executable='/bin/sh')", "asked"),
        ("start('sh', '-c', 'exit 3', 'x', executable='/bin/sh')", "asked"),
        ("start('sh', '-lc', 'exit 3', executable='/bin/sh')", "asked"),
        ("os.system('exit 4') >> 8", "4"),
    ]:
        out = ruled.run(call, decide=lambda e: False)
        assert ("asked" if asked(out) else out.value) == result, out.events
        if result == "'refused'":
            assert any(e.type == "denied" and "exec.deny." in e.text for e in out.events), (call, result)


@pytest.fixture(scope="module")
def documented(client: Client, repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session with the rules that the documentation shows."""
    text = (repo / "docs/settings.md").read_text().split("**Rules** decide in advance.")[1]
    rules = json.loads(text.split("```json\n")[1].split("```")[0])
    with client.session(workspace=tmp_path_factory.mktemp("documented"), exec=rules) as s:
        assert s.run(PRELUDE + HOSTILE).status == "ok"
        yield s


HOSTILE = """
import shutil, socket, sys, tempfile
hook = tempfile.mkdtemp() + '/hook'
open(hook, 'w').write('#!/bin/sh\\ntouch ran\\n')
os.chmod(hook, 0o755)
repository = tempfile.mkdtemp()
os.makedirs(repository + '/.git/objects'); os.makedirs(repository + '/.git/refs')
open(repository + '/.git/HEAD', 'w').write('ref: refs/heads/main')
open(repository + '/.git/config', 'w').write(f'[core]\\nfsmonitor = {hook}\\n')
open('Makefile', 'w').write('test:\\n\\ttouch ran\\n')
open('conftest.py', 'w').write("open('ran', 'w')")
shutil.copy(hook, 'ls'); shutil.copy(hook, 'df')
for name in ('.profile', '.bashrc', '.bash_profile'):
    open(os.path.expanduser('~/' + name), 'w').write('touch ran\\n')
near, far = socket.socketpair()
"""


def test_the_documented_rules_run_no_other_program(documented: Session) -> None:
    for call in [
        "start('git', 'status', cwd=repository)",
        "start('git', 'log', cwd=repository)",
        "start('git', '-c', f'core.pager={hook}', 'diff')",
        "start('make', 'test')",
        "start('make test', shell=True)",
        "start(sys.executable, '-m', 'pytest')",
        "start('./ls', '-l')",
        "start('ls', '-l', executable=hook)",
        "start('ls', '-l', env={**os.environ, 'LD_PRELOAD': hook})",
        "start('ls', '-l', env={**os.environ, 'PATH': '.'})",
        "start('wc', executable='/usr/bin/env')",
        "start('/usr/bin/df -h /; ./df', shell=True)",
        "start('df -h /', shell=True, env={**os.environ, 'PATH': '.:/usr/bin'})",
        "start('/usr/bin/df -h /', shell=True, env={**os.environ, 'ENV': hook})",
        "start('bash', '-c', '/usr/bin/df -h /', env={**os.environ, 'BASH_ENV': hook})",
        "start('-/sh', '-c', '/usr/bin/df -h /', executable='/bin/sh')",
        "start('-/bash', '-c', '/usr/bin/df -h /', executable='/bin/bash')",
        "start('bash', '-c', '/usr/bin/df -h /', stdin=near)",
    ]:
        out = documented.run(
            call + "\nos.path.exists('ran') or os.path.exists(repository + '/ran')", decide=lambda e: False
        )
        assert asked(out) or "No such file" in str(out.events) or out.status == "error", out.events
        assert documented.run("os.path.exists('ran') or os.path.exists(repository + '/ran')").value == "False", call


def test_the_documented_rules_allow(documented: Session) -> None:
    for call in [
        "start('ls', '-la', '/tmp')",
        "start('wc', '-c', '/dev/null')",
        "start('/usr/bin/df -h /', shell=True)",
        "start('/usr/bin/df -h /', shell=True, stdin=near)",
        "start('bash', '-c', '/usr/bin/df -h /', stdin=subprocess.PIPE)",
    ]:
        out = documented.run(call, decide=lambda e: False)
        assert out.value == "0" and not asked(out), out.events


def test_a_program_that_cells_can_change(client: Client, workspace: Path) -> None:
    for writable, result in ((False, "asked"), (True, "0")):
        rule = {"program": f"{workspace}/own", "argv": ["*"], "writable": writable}
        with client.session(workspace=workspace, exec={"default": "ask", "allow": [rule]}) as s:
            s.run(PRELUDE + "import shutil; shutil.copy('/usr/bin/true', 'own')")
            out = s.run("start('./own')", decide=lambda e: False)
            assert ("asked" if asked(out) else out.value) == result


def test_other_defaults(client: Client, workspace: Path) -> None:
    for default, result in [("deny", "'refused'"), ("allow", "1")]:
        policy = settings(cellgate={"exec": {"default": default, "allow": [{"program": "/usr/bin/true"}]}})
        with client.session(workspace=workspace, settings=policy) as s:
            out = s.run(PRELUDE + "start('true'), start('false'), start('false', b'\\xff')", decide=lambda e: False)
            assert out.value == f"(0, {result}, 'refused')", (default, result)
            assert len(asked(out)) == (default == "allow"), (default, result)


def test_bad_rules(client: Client, workspace: Path) -> None:
    for bad in [
        {},
        {"default": "maybe"},
        {"default": "ask", "permit": []},
        {"default": "ask", "commands": "some"},
        {"default": "ask", "allow": {}},
        {"default": "ask", "allow": ["/usr/bin/true"]},
        {"default": "ask", "allow": [{}]},
        {"default": "ask", "allow": [{"argv": ["x"]}]},
        {"default": "ask", "allow": [{"program": 1}]},
        {"default": "ask", "allow": [{"program": "x", "argv": "x"}]},
        {"default": "ask", "allow": [{"program": "x", "argv": [{"regex": "("}]}]},
        {"default": "ask", "allow": [{"program": "x", "argv": [{"regex": "x", "exact": "y"}]}]},
        {"default": "ask", "allow": [{"line": "x", "argv": ["x"]}]},
        {"default": "ask", "allow": [{"program": "x", "other": True}]},
        {"default": "ask", "deny": [{"program": "x", "env": []}]},
        {"default": "ask", "deny": [{"program": "x", "writable": True}]},
        {"default": "ask", "allow": [{"program": "x"}] * 257},
        {"default": "ask", "allow": [{"program": "x", "argv": [{"regex": "x"}]}] * 65},
    ]:
        with pytest.raises(CellgateError, match="exec"):
            client.session(workspace=workspace, exec=bad)
        with pytest.raises(CellgateError, match="exec"):
            client.session(workspace=workspace, settings=settings(cellgate={"exec": bad}))


def test_an_expression_without_end(client: Client, workspace: Path) -> None:
    hungry = {"program": "/usr/bin/*", "argv": ["*", {"regex": "(a+)+b"}]}
    with client.session(workspace=workspace, exec={"default": "allow", "deny": [hungry]}) as s:
        assert s.run(PRELUDE + "start('true', 'a' * 60 + 'bc')").value == "'refused'"
    with client.session(workspace=workspace, exec={"default": "deny", "allow": [hungry]}) as s:
        assert s.run(PRELUDE + "start('true', 'a' * 60 + 'bc')").value == "'refused'"


def test_long_texts_are_not_compared_with_patterns(client: Client, workspace: Path) -> None:
    """Cells choose the texts, and all sessions wait meanwhile: what is not compared is not allowed."""
    for pattern in ["a*", {"regex": "a+"}]:
        rule = {"program": "/usr/bin/true", "argv": ["true", pattern]}
        for rules in ({"default": "deny", "allow": [rule]}, {"default": "allow", "deny": [rule]}):
            with client.session(workspace=workspace, exec=rules) as s:
                assert s.run(PRELUDE + "start('true', 'a' * 4097)").value == "'refused'", pattern
                expected = "0" if "allow" in rules else "'refused'"
                assert s.run("start('true', 'a' * 4096)").value == expected, pattern
        exact = {"program": "/usr/bin/true", "argv": ["true", {"exact": "a" * 5000}]}
        with client.session(workspace=workspace, exec={"default": "deny", "allow": [exact]}) as s:
            assert s.run(PRELUDE + "start('true', 'a' * 5000)").value == "0", pattern


EACH = {
    "default": "ask",
    "commands": "each",
    "allow": [{"program": "/usr/bin/dash", "argv": ["sh", "-c", "*"]}, {"program": "/usr/bin/true"}],
}


def commands(out: Outcome) -> list[str]:
    return [json.loads(e.args)["command"] for e in asked(out)]


def test_each_program_that_an_approved_one_starts(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, exec=EACH) as s:
        s.run(PRELUDE)
        out = s.run("start('sh', '-c', 'true; id -u | cat; exec printenv PATH')", decide=lambda e: True)
        assert out.value == "0"
        assert sorted(commands(out)) == ["cat", "id -u", "printenv PATH"]
        out = s.run("start('sh', '-c', 'id; true && exit 5')", decide=lambda e: False)
        assert (out.value, commands(out)) == ("5", ["id"])
        code = "subprocess.run(['sh', '-c', 'python3 -c \"import subprocess; print(subprocess.run([\\'id\\']).returncode)\"'])"
        out = s.run(code, decide=lambda e: "python3" in e.args)
        assert commands(out)[1:] == ["id"] and "uid=" not in out.stdout
        assert s.command("sh", "-c", "id -u | cat")[0].json == {"exit_code": 0}


def test_trees_are_free_by_default(client: Client, workspace: Path) -> None:
    for more in ({}, {"commands": "tree"}):
        rules = {k: v for k, v in EACH.items() if k != "commands"} | more
        with client.session(workspace=workspace, exec=rules) as s:
            assert s.run(PRELUDE + "start('sh', '-c', 'id -u | cat >/dev/null')").value == "0"


def test_bash_make_and_many_at_once(client: Client, workspace: Path) -> None:
    (workspace / "Makefile").write_text("all: a b c d\n%:\n\t@true $@\n\t@echo done $@\n")
    with client.session(
        workspace=workspace, exec={"default": "allow", "commands": "each", "deny": [{"program": "/x"}]}
    ) as s:
        s.run(PRELUDE)
        out = s.run(
            "print(subprocess.run(['bash', '-c', 'for i in 1 2 3 4; do (id -u; ls / | wc -l) & done; wait'], capture_output=True).returncode)"
        )
        assert out.stdout == "0\n", out.events
        out = s.run(
            "import shutil; not shutil.which('make') or subprocess.run(['make', '-j4'], capture_output=True).returncode"
        )
        assert out.value in ("0", "True"), out.events
