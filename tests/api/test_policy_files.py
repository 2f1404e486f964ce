"""Policy files in the C API: they decide before the host is asked, as `cellgate policy test` says."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import web
from cellgate_api import CellgateError, Client, Event, Session
from server_definitions import echo

ANY = {"type": "object"}
TOOLS = [{"name": n, "inputSchema": ANY} for n in ("read_file", "write_file", "send", "close")]
POLICY = {
    "rules": [
        {"id": "no-keys", "decision": "deny", "server": "files", "arguments": {"/path": {"within": "/srv/data/keys"}},
         "text": "Keys are not for you."},
        {"decision": "allow", "server": "files", "tool": "read_*", "arguments": {"/path": {"within": "/srv/data"}}},
        {"decision": "allow", "server": "tickets", "arguments": {"/priority": {"max": 3}}, "for": "once"},
        {"decision": "allow", "server": "tickets", "tool": "send", "front": ["run"]},
        {"decision": "deny", "server": "tickets", "tool": "write_*", "front": ["api"]},
        {"decision": "ask", "server": "files", "tool": "write_*"},
    ],
    "budgets": [{"id": "mails", "server": "mail", "tool": "send", "per": "session", "calls": 2}],
}  # fmt: skip
# Calls in their order, of one session: server, tool, arguments.
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    *(("files", "read_file", {"path": p}) for p in ("/srv/data/a", "/srv/data/b/../keys/x", "/srv/data/keys/k", "/etc/x")),
    *(("files", "write_file", {"path": p}) for p in ("/srv/data/a", "/srv/data/keys/k")),
    *(("tickets", "close", {"priority": p}) for p in (5, "2", 2, 2, 3)),
    *(("tickets", t, {}) for t in ("send", "write_file", "read_file")),
    *(("mail", "send", {"to": str(n)}) for n in range(4)),
    ("mail", "read_file", {}),
]  # fmt: skip


@pytest.fixture
def policy(outside: Path) -> Callable[[object], Path]:
    def write(content: object) -> Path:
        path = outside / "policy.json"
        path.write_text(json.dumps(content))
        return path

    return write


def add_all(s: Session) -> None:
    for name in ("files", "tickets", "mail"):
        s.add_functions(name, TOOLS, ask=1)


def call(s: Session, server: str, tool: str, arguments: dict[str, Any], accept: bool = False) -> tuple[str, str]:
    """Make the call in a cell; how it was decided, and what the cell got."""
    s.execute(f"from mcptools.{server} import {tool}\n{tool}.run(**{arguments!r})")
    how, text = "", ""
    while True:
        e = s.next()
        assert e is not None
        if e.type == "approval_request":
            how = "ask"
            if accept:
                s.accept(e.approval)
            else:
                s.reject(e.approval, "not now")
        elif e.type == "function_call":
            how = how or "allow"
            s.give(e.approval, None)
        elif e.type == "error":
            text = e.json["evalue"]
        elif e.type == "result":
            return how or "deny", text


def test_decisions_are_those_of_policy_test(
    client: Client, workspace: Path, policy: Callable[[object], Path], prefix: Path, tmp_path: Path
) -> None:
    path = policy(POLICY)
    with client.session(workspace=workspace, policies=[str(path)]) as s:
        add_all(s)
        decided = [call(s, *c, accept=True) for c in CALLS]
    cases = [
        {"call": {"server": c[0], "tool": c[1], "arguments": c[2], "front": "api"}, "expect": d[0]}
        for c, d in zip(CALLS, decided, strict=True)
    ]
    assert {c["expect"] for c in cases} == {"allow", "deny", "ask"}
    assert decided[1] == (
        "deny",
        "files.read_file was not run: refused by rule 1 (no-keys) of policy.json: Keys are not for you.",
    )
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    argv = [prefix / "bin/cellgate", "policy", "test", path, tmp_path / "cases.json"]
    out = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
    # What no file decides is asked of the host as well.
    *differ, counts = out.splitlines()
    assert all(line.endswith(": none, expected: ask") for line in differ), out
    assert counts == f"{len(CALLS)} calls, {len(CALLS) - len(differ)} as expected" and len(differ) < len(CALLS)


def test_what_the_host_refuses_is_not_asked_again(
    client: Client, workspace: Path, policy: Callable[[object], Path]
) -> None:
    with client.session(workspace=workspace, policies=[str(policy(POLICY))]) as s:
        add_all(s)
        asked = ("files", "write_file", {"path": "/srv/data/a"})
        assert call(s, *asked) == ("ask", "files.write_file was not run: not now")
        how, text = call(s, *asked)
        assert how == "deny" and "an earlier answer of the user" in text and "repeating it does not help" in text
        assert call(s, "files", "write_file", {"path": "/srv/data/b"})[0] == "ask"


def test_programs_are_decided(client: Client, workspace: Path, policy: Callable[[object], Path]) -> None:
    """Rules about programs make exec "ask"; a host that has set it to "allow" is told so."""
    path = policy({"rules": [{"decision": "allow", "program": "/usr/bin/true"}], "default": "deny"})
    with client.session(workspace=workspace, policies=[str(path)]) as s:
        run = "import subprocess\nprint(subprocess.run(['/usr/bin/{}']).returncode)"
        out = s.run(run.format("true"))
        assert (out.status, out.stdout) == ("ok", "0\n"), out.events
        out = s.run(run.format("false"))
        assert out.status == "error" and "refused by the default of policy.json" in str(out.events)
    with pytest.raises(CellgateError, match='exec is "allow"'):
        client.session(workspace=workspace, policies=[str(path)], exec="allow")
    with pytest.raises(CellgateError, match="ask_egress"):
        client.session(workspace=workspace, policies=[str(policy({"rules": [{"decision": "allow", "host": "*"}]}))])


@pytest.mark.parametrize("namespace", ["work", None])
def test_sessions_by_their_namespace(
    client: Client, workspace: Path, policy: Callable[[object], Path], namespace: str | None
) -> None:
    path = policy({"rules": [{"decision": "allow", "server": "tickets", "session": "wor?"}]})
    with client.session(workspace=workspace, policies=[str(path)], namespace_name=namespace) as s:
        add_all(s)
        assert (call(s, "tickets", "close", {"priority": 1})[0] == "allow") == (namespace == "work")


def test_several_files_merge_so_that_deny_wins(
    client: Client, workspace: Path, policy: Callable[[object], Path], outside: Path
) -> None:
    second = outside / "second.json"
    second.write_text(json.dumps({"rules": [{"decision": "deny", "server": "files", "tool": "read_*"}]}))
    with client.session(workspace=workspace, policies=[str(policy(POLICY)), str(second)]) as s:
        add_all(s)
        assert call(s, "files", "read_file", {"path": "/srv/data/a"})[0] == "deny"
        assert call(s, "tickets", "close", {"priority": 1})[0] == "allow"


def test_files_that_cells_could_write_are_refused(
    client: Client, workspace: Path, policy: Callable[[object], Path], outside: Path
) -> None:
    inside = workspace / "policy.json"
    inside.write_text("{}")
    good = policy(POLICY)
    link = workspace / "link.json"
    link.symlink_to(good)
    for path in (inside, link):
        with pytest.raises(CellgateError, match=f"policy file {path}: cells could write {path}, and"):
            client.session(workspace=workspace, policies=[str(path)])
    settings = web.settings(filesystem={"allowWrite": [".", str(outside)]})
    with pytest.raises(CellgateError, match=f"policy file {good}: cells could write {good}, and"):
        client.session(workspace=workspace, policies=[str(good)], settings=settings)
    with pytest.raises(CellgateError, match="need a sandbox"):
        client.session(workspace=workspace, policies=[str(good)], sandbox=1)
    os.link(good, outside / "other")
    with pytest.raises(CellgateError, match="hard links"):
        client.session(workspace=workspace, policies=[str(good)])
    (outside / "other").unlink()
    good.write_text('{"rules": [{"decision": "maybe"}]}')
    with pytest.raises(CellgateError, match="/rules/0"):
        client.session(workspace=workspace, policies=[str(good)])
    with pytest.raises(CellgateError, match="No such file"):
        client.session(workspace=workspace, policies=[str(outside / "absent")])


def test_calls_of_servers_are_decided_with_exactly_their_bytes(
    client: Client, workspace: Path, policy: Callable[[object], Path], mark: Path
) -> None:
    rules = [{"decision": "allow", "server": "echo", "tool": "danger", "arguments": {"/text": {"equals": "yes"}}}]
    with client.session(workspace=workspace, policies=[str(policy({"rules": rules, "default": "deny"}))]) as s:
        s.add_servers(echo(mark))

        def never(e: Event) -> bool:
            raise AssertionError(e)

        for text in ("yes", "no"):
            s.run(f"from mcptools.echo import danger\ndanger.run(text={text!r})", never)
    assert [json.loads(line) for line in mark.read_text().splitlines()] == [{"text": "yes"}]
