"""The sandbox of a session: its default policy, settings, and the network by settings."""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import shutil
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest
from cellgate_api import E_INVAL, E_NOTFOUND, E_PARSE, CellgateError, Client
from processes import alive, by_age, children, eventually, words, zombie
from server_definitions import definition
from web import FETCH, settings

ALLOW_ONCE, ALLOW_SESSION, DENY_ONCE, DENY_SESSION = range(4)
E_UNSUPPORTED = -10


# ---------------------------------------------------------------- the default policy


LOOK = """
import os
def look(path):
    try:
        return len(os.listdir(path)) if os.path.isdir(path) else open(path).read() or None
    except OSError:
        return None
def put(path):
    try:
        open(path, 'a').close()
        return True
    except OSError as e:
        return e.strerror
"""


def test_credentials_cannot_be_read_and_other_files_can(home: Path, workspace: Path) -> None:
    (workspace / ".env").write_text("TOKEN=1")
    (workspace / "plain").write_text("plain")
    with Client() as c, c.session(workspace=workspace) as s, c.session(workspace=workspace, sandbox=1) as none:
        s.run(LOOK)
        for name in (".ssh/id_rsa", ".aws/credentials", ".gnupg/key", ".config/gh/hosts.yml"):
            assert s.run(f"look({str(home / name)!r})").value is None, name
        assert s.run("look('.env')").value is None
        assert "secret" in (s.run(f"look({str(home / 'notes.txt')!r})").value or "")
        assert s.run("look('plain')").value == "'plain'"
        assert s.run("look('/etc/shadow')").value is None
        none.run(LOOK)  # without a sandbox
        assert "secret" in (none.run(f"look({str(home / '.ssh/id_rsa')!r})").value or "")


@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME"])
def test_tokens_of_mcp_servers_are_never_seen(
    home: Path, outside: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Also a token of a first login while the session is open, and with settings that hide no credentials."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    state = home / ".local/state"
    if variable == "XDG_STATE_HOME":
        state = outside / "new/state"
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
    login = state / "cellgate/mcp-login"
    rules = settings(cellgate={"hideCredentials": False}, filesystem={"allowWrite": [".", str(outside)]})
    with Client(no_spare=1) as c:
        for options in ({}, {"settings": rules}):
            with c.session(workspace=workspace, **options) as s:
                s.run(LOOK)
                assert (state / "cellgate").stat().st_mode & 0o777 == 0o700
                login.mkdir(mode=0o700)
                (login / "x.json").write_text("TOKEN")
                assert s.run(f"look({str(home / 'notes.txt')!r})").value is not None
                assert s.run(f"look({str(login / 'x.json')!r})").value is None
                s.run(f"os.makedirs({str(login)!r} + '/y')")
                s.run(f"os.rename({str(state)!r}, {str(state)!r} + '2')")
            assert [p.name for p in login.iterdir()] == ["x.json"]
            shutil.rmtree(login)


def test_a_workspace_that_is_the_home_keeps_what_the_users_programs_obey(home: Path) -> None:
    for name in (".profile", ".config/autostart/x", "bin/ls", "miniconda3/python", "paper.txt", "work/data"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    (home / "link").symlink_to(".profile")
    with Client() as c:
        for _ in range(2):  # the second is a spare
            with c.session(workspace=home) as s:
                assert "the workspace is your home folder" in s.until("notice")[-1].text
                s.run(LOOK)
                for name in ("paper.txt", "work/data", "work/new", "notes.txt"):
                    assert s.run(f"put({name!r})").value == "True", name
                for name in (
                    ".profile",
                    ".bash_profile",
                    ".config/autostart/x",
                    ".config/autostart/y",
                    "bin/ls",
                    "bin/sudo",
                ):
                    assert s.run(f"put({name!r})").value == "'Read-only file system'", name
                for name in ("miniconda3/python", "link", "new", ".mcp.json"):
                    assert s.run(f"put({name!r})").value == "'Read-only file system'", name
                assert s.run("os.rename('work', '.config2')").status == "error"
                assert s.run("os.mkdir('.local')").status == "error"
                assert s.run("open('/tmp/x', 'w').close()").status == "ok"
    assert not (home / ".bash_profile").exists()


def test_a_workspace_with_programs_that_jupyter_starts(home: Path) -> None:
    """The name of its folder protects a kernel.json only in workspaces above it."""
    with Client() as c:
        for folder in (".jupyter", ".local/share/jupyter/kernels", ".local/share/jupyter/kernels/mine"):
            (home / folder).mkdir(parents=True)
            with pytest.raises(CellgateError, match="Jupyter") as e:
                c.session(workspace=home / folder)
            assert e.value.code == E_INVAL


def test_a_workspace_above_the_home_is_only_read(home: Path) -> None:
    (home / "project").mkdir()
    with Client(no_spare=1) as c:
        with c.session(workspace=home.parent) as s:
            assert "your home folder is inside the workspace" in s.until("notice")[-1].text
            s.run(LOOK)
            for name in ("new", "home/.profile", "home/notes.txt"):
                assert s.run(f"put({name!r})").value == "'Read-only file system'", name
        with c.session(workspace=home / "project") as s:
            s.run(LOOK)
            assert s.run("put('notes.txt')").value == "True"
            assert s.run("put('.profile')").value == "'Permission denied'"
            assert not any(e.type == "notice" for e in s.run("1").events)


def test_a_workspace_that_is_tmp_with_the_home_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells see the host's /tmp in place of their own, so their home and temporary files are elsewhere."""
    look = "import os, tempfile; (os.path.isfile('home/mine'), os.environ['HOME'], tempfile.TemporaryFile().writable())"
    with tempfile.TemporaryDirectory(prefix="cellgate-test-", dir="/tmp") as name:
        home = Path(name) / "home"
        home.mkdir()
        (home / "mine").touch()
        monkeypatch.setenv("HOME", str(home))
        with Client(no_spare=1) as c, c.session(workspace="/tmp") as s:
            s.run(LOOK)
            assert s.run(f"put('{home}/new')").value == "'Read-only file system'"
            assert s.run(look.replace("home/mine", f"{home}/mine")).value == "(True, '/var/tmp/home', True)"
            assert s.command("sh", "-c", "touch $HOME/x && mktemp")[1].startswith(b"/var/tmp/")
        assert not (home / "new").exists()


def test_credentials_are_hidden_where_home_is_not_set(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        real = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pytest.skip("this user is a number without a name: there is no other word of its home")
    hidden = next(
        (n for n in (".gnupg", ".npmrc", ".bash_history", ".python_history", ".ssh") if (real / n).exists()), None
    )
    if hidden is None:
        pytest.skip(f"nothing to hide in {real}")
    for value in (None, "", "relative"):
        monkeypatch.delenv("HOME", raising=False) if value is None else monkeypatch.setenv("HOME", value)
        with Client(no_spare=1) as c, c.session(workspace=workspace) as s:
            s.run(LOOK)
            shown = s.run(f"look({str(real / hidden)!r})")
            assert shown.value in (None, "0"), (value, hidden)


def test_modules_in_a_folder_that_a_link_leads_to(client: Client, workspace: Path, outside: Path) -> None:
    (outside / "v1").mkdir()
    (outside / "v1" / "versioned.py").write_text("value = 41\n")
    (outside / "current").symlink_to("v1")
    with client.session(workspace=workspace, python_path=[str(outside / "current")]) as s:
        assert s.run("import versioned; versioned.value").value == "41"


def test_no_sandbox_limits_no_processes(client: Client, workspace: Path) -> None:
    """There the limit would count all that the user runs, and a desktop has more threads than 512."""
    limit = "import resource; resource.getrlimit(resource.RLIMIT_NPROC)[0]"
    ours = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    with client.session(workspace=workspace, sandbox=1) as s:
        assert s.run(limit).value == str(ours)
    with client.session(workspace=workspace, sandbox=1, processes=4000) as s:
        # A control group counts the kernel's own.
        group = s.info["limits"]["processes"]["by"].startswith("cgroup")
        assert s.run(limit).value == str(ours if group else 4000)
    with client.session(workspace=workspace) as s:
        assert int(s.run(limit).value or 0) < 1000


# ---------------------------------------------------------------- files by settings


def test_settings_say_what_may_be_written_and_read(client: Client, workspace: Path) -> None:
    for name in ("out", "secret", "rest"):
        (workspace / name).mkdir()
        (workspace / name / "file").write_text(name)
    s = settings(filesystem={"allowWrite": ["./out"], "denyRead": ["./secret"], "denyWrite": ["./out/fixed"]})
    with Client(no_spare=1) as c, c.session(workspace=workspace, settings=s) as session:
        session.run(LOOK)
        assert session.run("put('out/new')").value == "True"
        assert session.run("put('rest/new')").value == "'Read-only file system'"
        assert session.run("put('out/fixed')").value != "True", "also where it does not exist yet"
        assert session.run("look('rest/file')").value == "'rest'"
        assert session.run("look('secret/file')").value is None
    eventually(lambda: not (workspace / "out/fixed").exists())  # it is removed with the kernel
    assert (workspace / "out/new").exists()


def test_without_rules_a_workspace_in_a_private_place_is_there_too(client: Client, workspace: Path) -> None:
    """Also below /tmp, where kernels have a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="cellgate-test-", dir="/tmp") as folder:
        s = settings(filesystem={"disabled": True})
        for place in (Path(folder), workspace):
            with client.session(workspace=place, settings=s) as session:
                out = session.run("open('made', 'w').write('x'); import os; os.getcwd()")
                assert out.value == repr(str(place)), out.error
            assert (place / "made").read_text() == "x"
            assert not (place / ".bashrc").exists()


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
def test_denials_of_what_a_private_folder_covers(client: Client, outside: Path, place: str) -> None:
    """The sandbox has its own /tmp, without the host's file: there is nothing to hide or to protect."""
    with tempfile.TemporaryDirectory(prefix="cellgate-test-", dir=place) as folder:
        file, other = Path(folder, "file"), Path(folder, "other")
        file.write_text("secret")
        other.write_text("secret")
        (outside / "hidden").write_text("secret")
        s = settings()
        s["filesystem"] = {
            "denyRead": [folder, str(file), str(outside / "hidden")],
            "allowWrite": ["."],
            "denyWrite": [str(other)],
        }
        work = outside / "work"
        work.mkdir()
        with client.session(workspace=work, settings=s) as session:
            assert session.run(f"import os\nos.path.exists({folder!r})").value == "False"
            refused = session.run(f"open({str(outside / 'hidden')!r}).read()")
            assert refused.result.status == "error"
        assert file.read_text() == other.read_text() == "secret"


def test_bad_settings_are_refused_by_name(client: Client, workspace: Path) -> None:
    for bad, code, text in [
        ({}, E_PARSE, "network"),
        (settings(filesystem={"allowWrites": ["."]}), E_PARSE, "allowWrites"),
        (settings(network={"tlsTerminate": {}}), E_UNSUPPORTED, "tlsTerminate"),
        ("[]", E_PARSE, ""),
        ("{", E_PARSE, ""),
    ]:
        with pytest.raises(CellgateError) as e:
            client.session(workspace=workspace, settings=bad)
        assert text in str(e.value)
        assert e.value.code == code, (bad, e.value)


# ---------------------------------------------------------------- network by settings


def test_allowed_host_and_denied_host(client: Client, workspace: Path, port: int) -> None:
    s = settings(network={"allowedDomains": [f"127.0.0.1:{port}"], "deniedDomains": ["evil.example"]})
    with client.session(workspace=workspace, settings=s) as session:
        session.run(FETCH)
        assert session.run(f"fetch('http://127.0.0.1:{port}/')").value == "'hello from outside'"
        out = session.run("fetch('http://evil.example/')")
        assert out.value is not None and "403" in out.value
        seen = out.events if any(e.type == "denied" for e in out.events) else session.until("denied")
        denied = next(e for e in seen if e.type == "denied")
        assert denied.json["host"] == "evil.example"
        assert denied.json["list"] == "deniedDomains"
        assert "evil.example" in denied.text
        direct = session.run(f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)")
        assert direct.error is not None, "past the proxy there is nothing"


def test_without_settings_there_is_no_network(client: Client, workspace: Path, port: int) -> None:
    """Nor with settings that say so, whatever hosts they allow."""
    off = settings(network={"allowedDomains": [f"127.0.0.1:{port}"]}, cellgate={"networkOff": True})
    for options in ({}, {"settings": off}):
        with client.session(workspace=workspace, **options) as session:
            out = session.run(FETCH + f"fetch('http://127.0.0.1:{port}/')")
            assert (out.value or "").startswith("'failed: ")


def test_undecided_host_is_asked_about(client: Client, workspace: Path, port: int) -> None:
    with client.session(workspace=workspace, settings=settings(), ask_egress=1) as session:
        session.run(FETCH)
        for decision in (DENY_ONCE, ALLOW_ONCE, DENY_ONCE):
            session.execute(f"fetch('http://127.0.0.1:{port}/')", timeout_ms=30000)
            asked = session.until("egress_request")[-1]
            assert (asked.json["host"], asked.json["port"]) == ("127.0.0.1", port)
            with pytest.raises(CellgateError) as e:
                session.accept(asked.approval)  # a decision about a tool call is none about a connection
            assert e.value.code == E_NOTFOUND
            session.decide_egress(asked.approval, decision, "not today")
            with pytest.raises(CellgateError) as e:
                session.decide_egress(asked.approval, decision)
            assert e.value.code == E_NOTFOUND
            got = [e for e in session.until("result") if e.type == "execute_result"][0].json["data"]["text/plain"]
            assert ("hello" in got) == (decision == ALLOW_ONCE)


def test_many_waiting_calls_leave_room_for_connections(client: Client, workspace: Path, port: int) -> None:
    """Each kind of question has its own limit."""
    os.mkfifo(workspace / "go")
    cell = "from mcptools.echo import echo\nimport threading\n"
    cell += "for i in range(70): threading.Thread(target=echo.run, kwargs={'text': str(i)}, daemon=True).start()\n"
    cell += f"open('go').read()\nfetch('http://127.0.0.1:{port}/')"
    with client.session(workspace=workspace, settings=settings(), ask_egress=1) as session:
        session.add_servers({"echo": definition()})
        session.run(FETCH)
        session.execute(cell, timeout_ms=60000)
        calls = [session.until("approval_request")[-1].approval for _ in range(70)]
        (workspace / "go").write_text("")
        session.decide_egress(session.until("egress_request")[-1].approval, ALLOW_ONCE)
        got = [e for e in session.until("result") if e.type == "execute_result"][0].json["data"]["text/plain"]
        assert got == "'hello from outside'"
        for number in calls:
            session.reject(number)


def test_question_ends_with_its_kernel(client: Client, workspace: Path, port: int) -> None:
    with client.session(workspace=workspace, settings=settings(), ask_egress=1) as session:
        session.run(FETCH)
        session.execute(f"fetch('http://127.0.0.1:{port}/')")
        asked = session.until("egress_request")[-1]
        session.reset()
        assert session.until("approval_closed")[-1].approval == asked.approval
        with pytest.raises(CellgateError) as e:
            session.decide_egress(asked.approval, ALLOW_ONCE)
        assert e.value.code == E_NOTFOUND
        assert session.until("result")[-1].status == "cancelled"


def test_two_sessions_have_their_own_rules(client: Client, workspace: Path, port: int) -> None:
    yes = settings(network={"allowedDomains": [f"127.0.0.1:{port}"]})
    with (
        client.session(workspace=workspace, settings=yes) as a,
        client.session(workspace=workspace, settings=settings()) as b,
    ):
        a.run(FETCH)
        b.run(FETCH)
        assert a.run(f"fetch('http://127.0.0.1:{port}/')").value == "'hello from outside'"
        assert "403" in (b.run(f"fetch('http://127.0.0.1:{port}/')").value or "")


# ---------------------------------------------------------------- nothing stays


@pytest.mark.parametrize("ask", [0, 1])
def test_denied_connections_do_not_fill_the_memory_of_a_host_that_does_not_read(
    workspace: Path, tmp_path: Path, ask: int
) -> None:
    """Neither those that the settings deny, nor questions that are taken back at once."""
    address = str(tmp_path / "sup")
    flood = """
import socket, threading
def go(n):
    for i in range(n):
        with socket.create_connection(('127.0.0.1', 3128)) as s:
            s.sendall(b'CONNECT ' + b'.'.join([b'a' * 60] * 4) + b':443 HTTP/1.1\\r\\n\\r\\n')
            if not ASK:
                s.recv(1000)
threads = [threading.Thread(target=go, args=(1000,)) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
go(1)
open('done', 'w').close()
""".replace("ASK", str(ask))
    with (
        Client(address=address, start=1, linger_ms=100) as c,
        c.session(workspace=workspace, settings=settings(), ask_egress=ask) as s,
    ):
        # As much as waits for a host before its kernel is made to wait, less a little: another client sees that it waits.
        with Client(address=address) as d, d.attach(s.id) as t:
            s.execute("print('x' * ((8 << 20) - (64 << 10)))")
            t.until("result")
        s.execute(flood)
        eventually(lambda: (workspace / "done").exists(), 50)
        events = s.until("result") + s.until("result")
        reported = sum(e.type in ("denied", "egress_request") for e in events)
        assert 0 < reported < 3000
        s.run("go(1)")
        assert s.run("1").value == "1"


def processes(name: str, parent: int) -> list[int]:
    """Descendants of `parent` with this program's name, the oldest first."""
    found = [parent]
    for pid in found:  # it grows meanwhile
        found += children(pid)
    return by_age([p for p in found if (args := words(p)) and args[0].endswith(name.encode())])


def test_the_network_outlives_the_tool_server(workspace: Path, port: int) -> None:
    """The supervisor kills what a dead tool server leaves behind; its other children are none of that."""
    s = settings(network={"allowedDomains": [f"127.0.0.1:{port}"]})
    with Client(no_spare=1) as c, c.session(workspace=workspace, settings=s) as session:
        session.run(FETCH)
        assert session.run(f"fetch('http://127.0.0.1:{port}/')").value == "'hello from outside'"
        supervisor = processes("cellgate-supervisor", os.getpid())[-1]
        os.kill(processes("cellgate-toolserver", supervisor)[-1], signal.SIGKILL)
        assert "tool server" in session.until("notice")[-1].text
        assert session.run(f"fetch('http://127.0.0.1:{port}/')").value == "'hello from outside'"


@pytest.mark.parametrize("victim", ["cellgate-supervisor", "cellgate-kernel", "cellgate-egress"])
def test_a_killed_process_leaves_nothing(workspace: Path, port: int, victim: str) -> None:
    s = settings(filesystem={"denyWrite": ["./never", "./deep/er"]}, network={"allowedDomains": [f"127.0.0.1:{port}"]})
    with Client(no_spare=1) as c, c.session(workspace=workspace, settings=s) as session:
        session.run(FETCH)
        assert session.run(f"fetch('http://127.0.0.1:{port}/')").value == "'hello from outside'"
        assert not (workspace / "never").exists()  # it cannot be made, and there is no placeholder
        supervisor = processes("cellgate-supervisor", os.getpid())[-1]
        everything = [
            p for n in ("cellgate-supervisor", "cellgate-egress", "cellgate-kernel") for p in processes(n, supervisor)
        ]
        assert len(everything) >= 3
        os.kill(processes(victim, supervisor)[0], signal.SIGKILL)  # zygote before kernel, parent before child
        if victim == "cellgate-kernel":  # the zygote: what was its own falls to the supervisor, which reaps it
            assert session.until("kernel_died")
            eventually(lambda: not any(map(zombie, children(supervisor))))
        if victim == "cellgate-egress":
            assert "no network any more" in session.until("notice")[-1].text
            assert (session.run(f"fetch('http://127.0.0.1:{port}/')").value or "").startswith("'failed: ")
            session.reset()
            session.run(FETCH)
            assert session.run(f"fetch('http://127.0.0.1:{port}/')").value == "'hello from outside'"
    eventually(lambda: not any(map(alive, everything)))
    assert list(workspace.iterdir()) == []


# ---------------------------------------------------------------- masked credentials


def mask(**more: object) -> dict:
    return settings(
        network={"allowedDomains": ["127.0.0.1"]},
        credentials={
            "envVars": [{"name": "TOKEN", "mode": "mask"}],
            "files": [{"path": "token", "mode": "mask"} | more],
            "allowPlaintextInject": True,
        },
    )


SEND = """
import os, urllib.request
for name in ("NO_PROXY", "no_proxy"):
    os.environ.pop(name, None)
def send(url):
    fields = {"X-Var": os.environ["TOKEN"], "X-File": open("token").read().strip()}
    urllib.request.urlopen(urllib.request.Request(url, headers=fields), timeout=20).read()
    return fields
"""


def test_masked_credentials_of_a_kernel(
    client: Client, workspace: Path, echo: tuple[int, list[dict[str, str]]]
) -> None:
    """The kernel has the masked values; the server gets the real ones. A new kernel reads a file's new content."""
    port, seen = echo
    (workspace / "token").write_text("TOPSECRET-file-1\n")
    options = {"workspace": workspace, "settings": mask(), "env": ["TOKEN=TOPSECRET-variable", "OTHER=seen"]}
    with client.session(**options) as s:
        shown = s.run(SEND + f"send('http://127.0.0.1:{port}/')").value or ""
        assert "TOPSECRET" not in shown
        assert shown.count("fake_value_") == 2
        assert (seen[0]["X-Var"], seen[0]["X-File"]) == ("TOPSECRET-variable", "TOPSECRET-file-1")
        assert s.run("import os; os.environ['OTHER']").value == "'seen'"
        assert s.run("open('token', 'w').write('x')").error is not None
        (workspace / "token").write_text("TOPSECRET-file-2\n")
        s.reset()
        s.run(SEND + f"send('http://127.0.0.1:{port}/')")
        assert seen[1]["X-File"] == "TOPSECRET-file-2"
    assert (workspace / "token").read_text() == "TOPSECRET-file-2\n"


def test_a_masked_file_that_was_saved_anew_is_masked_in_the_next_session(
    client: Client, workspace: Path, echo: tuple[int, list[dict[str, str]]]
) -> None:
    """Also with a spare kernel that started before: a file with another inode number would not be masked."""
    port, seen = echo
    (workspace / "token").write_text("TOPSECRET-1\n")
    options = {"workspace": workspace, "settings": mask(), "env": ["TOKEN=TOPSECRET-variable"]}
    with client.session(**options) as s:
        s.run("1")
        time.sleep(0.5)  # a spare is made; without one there is nothing to go wrong
    (workspace / "new").write_text("TOPSECRET-2\n")
    (workspace / "new").rename(workspace / "token")
    with client.session(**options) as s:
        shown = s.run(SEND + f"send('http://127.0.0.1:{port}/')").value or ""
        assert "TOPSECRET" not in shown
    assert seen[0]["X-File"] == "TOPSECRET-2"


def test_what_cannot_be_masked_as_asked(client: Client, workspace: Path) -> None:
    (workspace / "token").write_text("TOPSECRET\n")
    with client.session(
        workspace=workspace, settings=mask(extract="key=(.*)", onExtractNoMatch="deny"), env=["TOKEN=x"]
    ) as s:
        assert s.run("open('token').read()").error is not None
    with pytest.raises(CellgateError, match="matches nothing"):
        client.session(workspace=workspace, settings=mask(extract="key=(.*)", onExtractNoMatch="error"))


# ---------------------------------------------------------------- doors: unix sockets and ports


def dial(port: int) -> bytes:
    """Wait for a listener at this machine's port and return its answer."""
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as s:
            return s.recv(99)
        assert time.monotonic() < deadline
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


SERVE = """
import socket, threading
def serve(port):
    s = socket.create_server(("127.0.0.1", port))
    def loop():
        while True:
            c, _ = s.accept(); c.sendall(b"hello from the kernel"); c.close()
    threading.Thread(target=loop, daemon=True).start()
    return s.getsockname()[1]
"""


def test_a_kernel_uses_the_unix_sockets_that_are_listed(client: Client, workspace: Path, outside: Path) -> None:
    """Also one in a folder in which a kernel cannot see the host's files."""
    with tempfile.TemporaryDirectory(prefix="cellgate-test-", dir="/tmp") as hidden:
        paths = [str(outside / "listed"), str(Path(hidden) / "listed"), str(outside / "other")]
        servers = []
        for path in paths:
            servers.append(s := socket.socket(socket.AF_UNIX))
            s.bind(path)
            s.listen(8)
        code = """
import socket
def reach(path):
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(path); return True
    except OSError as e: return type(e).__name__
"""
        with client.session(workspace=workspace, settings=settings(network={"allowUnixSockets": paths[:2]})) as session:
            session.run(code)
            assert [session.run(f"reach({p!r})").value for p in paths] == ["True", "True", "'PermissionError'"]
            out = session.run(
                "s = socket.socket(socket.AF_UNIX); s.bind('mine'); s.listen(1)\n"
                "c = socket.socket(socket.AF_UNIX); c.connect('mine'); bool(s.accept())"
            )
            assert out.value == "True", out.error
        with client.session(workspace=workspace, settings=settings()) as session:
            session.run(code)
            assert session.run(f"reach({paths[0]!r})").error is not None
        for s in servers:
            s.close()


def test_ports_of_a_kernel_in_both_directions(client: Client, workspace: Path) -> None:
    outer = free_port()
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"hello from the host"), daemon=True).start()
        s = settings(
            cellgate={
                "ports": {
                    "expose": [{"inside": 8000, "host": outer}],
                    "reach": [{"inside": 5432, "host": server.getsockname()[1]}],
                }
            }
        )
        with client.session(workspace=workspace, settings=s) as session:
            session.run(SERVE + "serve(8000)")
            assert dial(outer) == b"hello from the kernel"
            out = session.run("socket.create_connection(('127.0.0.1', 5432), 20).recv(99)")
            assert out.value == "b'hello from the host'", out.error
            session.reset()
            session.run(SERVE + "serve(8000)")
            assert dial(outer) == b"hello from the kernel"
        deadline = time.monotonic() + 30
        with contextlib.suppress(ConnectionRefusedError):
            while time.monotonic() < deadline:
                socket.create_connection(("127.0.0.1", outer), 5).close()
            pytest.fail("the port outlives the session")
        with client.session(workspace=workspace, settings=s) as session:  # and is free for the next one
            session.run(SERVE + "serve(8000)")
            assert dial(outer) == b"hello from the kernel"


def test_local_binding_of_a_kernel(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, settings=settings(network={"allowLocalBinding": True})) as session:
        port = int(session.run(SERVE + "serve(0)").value or "")
        assert dial(port) == b"hello from the kernel"
    with client.session(workspace=workspace, settings=settings()) as session:
        port = int(session.run(SERVE + "serve(0)").value or "")
        got = b""  # of another program with a port of the same number, if there is one
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as s:
            s.settimeout(5)
            s.shutdown(socket.SHUT_WR)
            got = s.recv(100)
        assert not got.startswith(b"hello from the kernel")
