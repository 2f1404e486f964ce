"""MCP servers with a sandbox of ours: where its settings begin, what it hides, what it reports and asks."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import web
from cellgate_api import CellgateError, Client, Event, Outcome, Session
from processes import eventually, parent, words
from server_definitions import PYTHON

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_O_TRACEEXIT, PTRACE_DETACH, WALL = 0x4206, 0x40, 17, 0x40000000
PROBE = Path(__file__).parent / "probe_server.py"
Define = Callable[..., dict[str, Any]]


def settings(**files: list[str]) -> dict[str, Any]:
    return web.settings(filesystem={"allowWrite": [], **files})


# How a definition names its settings. What happens later is the same for all of them.
FORMS = pytest.mark.parametrize("define", ["object", "file", "srt", "cellgate"], indirect=True)


@pytest.fixture
def define(request: pytest.FixtureRequest, tmp_path: Path, prefix: Path) -> Define:
    """A definition whose server runs in a sandbox with these settings, in one of FORMS."""
    form = getattr(request, "param", "object")

    def make(rules: dict[str, Any], **more: Any) -> dict[str, Any]:
        file = tmp_path / "box.json"
        file.write_text(json.dumps(rules))
        plain = [PYTHON, str(PROBE)]
        if form in ("object", "file"):
            return {"command": plain[0], "args": plain[1:], "sandbox": rules if form == "object" else str(file), **more}
        if form == "cellgate":
            return {"command": str(prefix / "bin/cellgate"), "args": ["sandbox", "-s", str(file), "--", *plain], **more}
        link = tmp_path / "bin/srt"
        if not link.exists():
            link.parent.mkdir()
            link.symlink_to(prefix / "bin/cellgate")
        return {"command": str(link), "args": ["--settings", str(file), *plain], **more}

    return make


def call(s: Session, tool: str, what: object = "", decide: object = lambda _: True, server: str = "s") -> Outcome:
    module = f"mcptools.{server}.{tool}"
    code = f"import {module}\nr = {module}.call(what={str(what)!r})\nprint(r.is_error, r.text)"
    return s.run(code, decide)


def texts(events: list[Event], type: str) -> list[str]:
    return [e.text for e in events if e.type == type]


# ---------------------------------------------------------------- where relative entries begin


@FORMS
def test_relative_entries_begin_at_the_workspace(
    client: Client, workspace: Path, tmp_path: Path, define: Define
) -> None:
    """The start says where they lead; a definition does not choose what the supervisor tells the sandbox."""
    for name in (".env", "keys/one", "open"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("SECRET")
    rules = settings(denyRead=[".env", "key?", "no/such"], allowWrite=["."], denyWrite=["kept"])
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": define(rules, base=str(tmp_path), hide=["/etc"], ask=60)})
        out = call(s, "folder")
        assert out.stdout != f"False {workspace}\n"
        (notice,) = [t for t in texts(out.events, "notice") if "runs in a sandbox" in t]
        assert notice.replace(str(workspace), "W").endswith(
            "; it may write W; but not W/kept; it cannot read W/.env, W/key?, W/no/such; nothing is there now that "
            "these entries name: W/no/such (filesystem.denyRead.2), W/kept (filesystem.denyWrite.0)"
        )
        for hidden in (".env", "keys/one"):
            assert call(s, "read", workspace / hidden).stdout.startswith("True ")
        assert call(s, "read", workspace / "open").stdout == "False SECRET\n"
        assert call(s, "write", workspace / "made").stdout == "False done\n" and (workspace / "made").exists()
        assert call(s, "write", workspace / "kept").stdout.startswith("True ") and not (workspace / "kept").exists()
        assert call(s, "write", tmp_path / "made").stdout.startswith("True ")
        assert call(s, "read", "/etc/hostname").stdout.startswith("False ")
        call(s, "die", "/proc/no")  # it is started again: that is said once
        assert not texts(call(s, "folder").events, "notice")


@FORMS
def test_a_folder_of_its_own_is_where_they_begin(
    client: Client, workspace: Path, tmp_path: Path, define: Define
) -> None:
    """A definition with a "cwd" means that folder, as for other clients."""
    (tmp_path / "own").mkdir()
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": define(settings(allowWrite=["."]), cwd=str(tmp_path / "own"))})
        assert call(s, "write", tmp_path / "own/made").stdout == "False done\n"
        assert call(s, "write", workspace / "made").stdout.startswith("True ")


def test_entries_that_are_too_long_to_be_said(client: Client, workspace: Path, define: Define) -> None:
    long = [f"{n}/" + "/".join(["x" * 240] * 14) for n in range(5)]
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": define(settings(denyRead=long))})
        seen = call(s, "folder").events
        (notice,) = [t for t in texts(seen, "notice") if "runs in a sandbox" in t]
        assert f"; it cannot read {workspace}/{long[0]}, {workspace}/{long[1]}, " in notice
        assert notice.endswith("... [more is not shown]")


# ---------------------------------------------------------------- files with secrets of other servers


@FORMS
def test_files_that_are_hidden_from_cells_are_hidden_from_it(
    client: Client, workspace: Path, tmp_path: Path, define: Define
) -> None:
    files = [tmp_path / "servers.json", workspace / "settings.json"]
    for f in files:
        f.write_text("OTHERS-SECRET")
    (workspace / "open").write_text("open")
    (tmp_path / "link").symlink_to(files[0])
    with client.session(workspace=workspace, hide=[str(f) for f in files]) as s:
        s.add_servers({"s": define(settings(allowWrite=["."]))})
        for f in [*files, tmp_path / "link"]:
            assert call(s, "read", f).stdout.startswith("True "), f
            assert call(s, "write", f).stdout.startswith("True "), f
        assert call(s, "read", workspace / "open").stdout == "False open\n"
    assert [f.read_text() for f in files] == ["OTHERS-SECRET"] * 2


# ---------------------------------------------------------------- what it refuses


@FORMS
def test_denials_are_events_and_end_errors(client: Client, workspace: Path, define: Define) -> None:
    (workspace / ".env").write_text("x")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": define(settings(denyRead=[".env"]))})
        out = call(s, "write", workspace / "x")
        (denied,) = [e for e in out.events if e.type == "denied"]
        assert denied.json["server"] == "s" and denied.json["path"] == str(workspace / "x")
        assert denied.text.startswith("MCP server s: ")
        first, last = out.stdout.rstrip("\n").split("\n")
        assert first == "True a connection issue"
        assert last.startswith('[cellgate] the sandbox of MCP server "s": ') and f"{workspace}/x" in last
        assert "allowWrite" in last
        # the next error has no sentence of the last one
        assert call(s, "fetch", "no address").stdout == "True a connection issue\n"
        # nothing is put into what is no error
        out = call(s, "quiet", "/proc/no/such")
        assert out.stdout == "False a connection issue\n"


def test_denials_confirm_no_guess_of_a_secret(client: Client, workspace: Path, define: Define) -> None:
    """Cells choose the path. Neither they nor an agent that reads the events learn which beginning is right."""
    secret = "sk-3141592-6535"
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": define(settings(), env={"KEY": secret})})
        for guess in (secret[:9], secret[:8] + "x", secret.encode().hex()[:10]):
            out = call(s, "write", workspace / guess)
            assert f"{workspace}/{guess}" in out.stdout
            (denied,) = [e for e in out.events if e.type == "denied"]
            assert f"{workspace}/{guess}" in denied.text and denied.json["path"] == f"{workspace}/{guess}"
        out = call(s, "write", workspace / secret)
        assert f"{workspace}/***" in out.stdout and secret not in str([e.text for e in out.events])


def ptrace(request: int, pid: int, data: int = 0) -> None:
    assert LIBC.ptrace(request, pid, 0, data) == 0, os.strerror(ctypes.get_errno())


def test_those_that_start_while_another_ends_report(client: Client, workspace: Path, define: Define) -> None:
    """Numbers of the descriptors of one that ends are used again before the last of its processes is gone."""
    with client.session(workspace=workspace) as s:
        s.add_servers({"old": {"command": PYTHON, "args": [str(PROBE)]}})
        child = int(call(s, "spawn", server="old").stdout.split()[1])
        ptrace(PTRACE_SEIZE, child, PTRACE_O_TRACEEXIT)  # it stops in its end
        s.add_servers({"old": {"command": PYTHON, "args": [str(PROBE), "new"]}})
        os.waitpid(child, WALL)
        s.add_servers({name: define(settings()) for name in ("s", "t")})
        ptrace(PTRACE_DETACH, child)
        eventually(lambda: not Path(f"/proc/{child}").exists())
        for name in ("s", "t"):
            denied = [e for e in call(s, "write", workspace / "x", server=name).events if e.type == "denied"]
            assert [e.json["server"] for e in denied] == [name]


def test_one_that_does_not_report_delays_no_error_for_ever(client: Client, workspace: Path, define: Define) -> None:
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": define(settings())})
        call(s, "quiet", "/proc/self/stat")
        copies = [int(p.name) for p in Path("/proc").glob("[0-9]*") if str(workspace).encode() in words(int(p.name))]
        (keeper,) = [p for p in copies if parent(p) not in copies]
        os.kill(keeper, signal.SIGSTOP)
        assert call(s, "write", workspace / "x").stdout == "True a connection issue\n"
        os.kill(keeper, signal.SIGCONT)


def test_hosts_that_are_denied(client: Client, workspace: Path, define: Define) -> None:
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": define(settings())})
        out = call(s, "fetch", "http://files.example.org/")
        (denied,) = [e for e in out.events if e.type == "denied"]
        assert (denied.json["server"], denied.json["host"]) == ("s", "files.example.org")
        assert denied.text.startswith("MCP server s: ") and "files.example.org" in denied.text
        assert out.stdout.startswith("True a connection issue\n[cellgate] ") and "files.example.org" in out.stdout
        assert "allowedDomains" in out.stdout


# ---------------------------------------------------------------- hosts on no list


ALLOW_ONCE, ALLOW_SESSION, DENY_ONCE, DENY_SESSION = range(4)


URL = "http://127.0.0.1:{}/"


def fetch(s: Session, port: int) -> Event:
    """The question about this host."""
    url = URL.format(port)
    s.execute(f"import mcptools.s.fetch\nr = mcptools.s.fetch.call(what={url!r})\nprint(r.is_error, r.text)")
    s.accept(s.until("approval_request")[-1].approval)
    return s.until("egress_request")[-1]


def printed(events: list[Event]) -> str:
    return "".join(e.text for e in events if e.type == "stream")


@FORMS
def test_a_host_is_asked_about(client: Client, workspace: Path, port: int, define: Define) -> None:
    with client.session(workspace=workspace, ask_egress=1) as s:
        s.add_servers({"s": define(settings())})
        for decision in (DENY_ONCE, ALLOW_ONCE, DENY_ONCE):
            asked = fetch(s, port)
            assert asked.json["server"] == "s" and asked.json["host"] == "127.0.0.1"
            with pytest.raises(CellgateError):
                s.accept(asked.approval)  # no decision about a call is one about a host
            s.decide_egress(asked.approval, decision, "not today")
            out = printed(s.until("result"))
            if decision == ALLOW_ONCE:
                assert out == "False 200\n"
            else:
                assert out.startswith("True a connection issue\n[cellgate] ") and "127.0.0.1" in out
        asked = fetch(s, port)  # a question ends with its server
        s.add_servers({"s": define(settings(), env={"OTHER": "definition"})})
        closed = s.until("approval_closed")[-1]
        assert closed.approval == asked.approval
        with pytest.raises(CellgateError):
            s.decide_egress(asked.approval, ALLOW_ONCE)


# Does not start once the pipe is there: asks for a host, and refuses to initialize when it is told to.
FAILS = """import json, os, sys, threading, urllib.request
pipe, *program = sys.argv[1:]
if not os.path.exists(pipe):
    os.execv(sys.executable, [sys.executable, *program])
for name in ("no_proxy", "NO_PROXY"):
    os.environ.pop(name, None)
threading.Thread(target=urllib.request.urlopen, args=("http://one.example/",)).start()
open(pipe).read()
for line in sys.stdin:
    answer = {"jsonrpc": "2.0", "id": json.loads(line)["id"], "error": {"code": -32603, "message": "no"}}
    print(json.dumps(answer), flush=True)
"""


def test_an_answer_is_for_the_process_that_has_asked(
    client: Client, workspace: Path, tmp_path: Path, port: int
) -> None:
    """A server that is ended is there for a moment beside its successor, whose questions have the same numbers."""
    script, pipe = tmp_path / "server.py", tmp_path / "pipe"
    script.write_text(FAILS)
    server = {"command": PYTHON, "args": [str(script), str(pipe), str(PROBE)], "sandbox": settings()}
    with client.session(workspace=workspace, ask_egress=1) as s:
        s.add_servers({"s": server})
        call(s, "die", "/proc/no")
        os.mkfifo(pipe)
        s.execute("import mcptools.s.folder\nmcptools.s.folder.call(what='')")
        s.accept(s.until("approval_request")[-1].approval)
        former = s.until("egress_request")[-1]
        pipe.write_text("fail")
        pipe.unlink()
        s.until("result")
        asked = fetch(s, port)
        with pytest.raises(CellgateError):
            s.decide_egress(former.approval, ALLOW_ONCE)
        s.decide_egress(asked.approval, DENY_ONCE)
        assert printed(s.until("result")).startswith("True ")


def test_the_answer_for_the_session(client: Client, workspace: Path, port: int, define: Define) -> None:
    with client.session(workspace=workspace, ask_egress=1) as s:
        s.add_servers({"s": define(settings())})
        s.decide_egress(fetch(s, port).approval, ALLOW_SESSION)
        assert printed(s.until("result")) == "False 200\n"
        assert call(s, "fetch", URL.format(port)).stdout == "False 200\n"


def test_nobody_answers(client: Client, workspace: Path, port: int, define: Define) -> None:
    with client.session(workspace=workspace, ask_egress=1, approval_timeout_ms=1500) as s:
        s.add_servers({"s": define(settings())})
        asked = fetch(s, port)
        events = s.until("result")
        assert [e.approval for e in events if e.type == "approval_closed"] == [asked.approval]
        assert printed(events).startswith("True a connection issue\n")


def test_a_list_that_is_strict(client: Client, workspace: Path, port: int, define: Define) -> None:
    rules = settings()
    rules["network"]["strictAllowlist"] = True
    with client.session(workspace=workspace, ask_egress=1) as s:
        s.add_servers({"s": define(rules)})
        assert call(s, "fetch", URL.format(port)).stdout.startswith("True ")
