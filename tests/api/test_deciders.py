"""Questions that other clients of the user decide: which, who may, which decision counts, and attacks on that."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cellgate_api import E_CLOSED, E_INVAL, E_NOTFOUND, CellgateError, Client, Session
from processes import eventually
from server_definitions import echo
from shared_supervisor import runtime_folder

from .test_settings import E_UNSUPPORTED, FETCH, settings

CALL = "from mcptools.echo import danger\ndanger.run(text={!r})"
NOBODY = 65534


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with runtime_folder() as path, pytest.MonkeyPatch.context() as m:
        m.setenv("XDG_RUNTIME_DIR", str(path))
        yield path


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Client]:
    with Client(share=1) as c:
        yield c


@pytest.fixture(scope="module")
def other(host: Client) -> Iterator[Client]:
    with Client(share=1) as c:
        assert c.status()["pid"] == host.status()["pid"]
        yield c


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of tests that change their supervisor or end it."""
    with runtime_folder() as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
        yield


def open_session(host: Client, workspace: Path, mark: Path, **opts: object) -> Session:
    s = host.session(**{"workspace": workspace, "deciders": 1, **opts})
    s.add_servers(echo(mark))
    return s


@pytest.fixture(scope="module")
def mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks") / "mark"


@pytest.fixture(scope="module")
def module_session(host: Client, tmp_path_factory: pytest.TempPathFactory, mark: Path) -> Iterator[Session]:
    with open_session(host, tmp_path_factory.mktemp("w"), mark) as s:
        yield s


@pytest.fixture
def shared(module_session: Session, mark: Path) -> Iterator[Session]:
    """The session of this file's tests: each leaves it without cells and questions."""
    mark.unlink(missing_ok=True)
    yield module_session
    assert module_session.client.approvals()["approvals"] == []


@contextlib.contextmanager
def fails(code: int, match: str | None = None) -> Iterator[None]:
    with pytest.raises(CellgateError, match=match) as e:
        yield
    assert e.value.code == code


def waiting(client: Client) -> dict:
    """The only question."""
    (one,) = client.approvals()["approvals"]
    return client.approval(one["id"])


def share(session: Session, kind: str = "approval_request") -> int:
    """The session's next question, which other clients see when this returns."""
    number = session.until(kind)[-1].approval
    session.share(number)
    session.client.status()
    return number


def ask(session: Session, text: str = "x") -> int:
    session.execute(CALL.format(text))
    return share(session)


def test_what_is_shown_is_what_runs_once(shared: Session, other: Client, mark: Path) -> None:
    cell = shared.execute(CALL.format("\u00e4\u202e\n"))
    number = share(shared)
    (listed,) = other.approvals()["approvals"]
    assert "arguments" not in listed
    q = other.approval(listed["id"])
    assert json.loads(q["arguments"]) == {"text": "\u00e4\u202e\n"}
    assert (q["server"], q["method"], q["tool"], q["cell"]) == ("echo", "tools/call", "danger", cell)
    assert (q["session"], q["pid"]) == (shared.id, os.getpid())
    assert q["code"] == CALL.format("\u00e4\u202e\n")
    assert q["waiting_ms"] >= 0 and "left_ms" not in q
    named = "\0".join([q["server"], q["method"], q["tool"], q["arguments"]])
    assert q["digest"] == hashlib.sha256(named.encode()).hexdigest()
    assert not mark.exists()
    other.decide(q["id"], q["digest"], True)
    closed, result = shared.each("approval_closed", "result")
    assert (closed.approval, closed.text) == (number, f"accepted in another terminal (process {os.getpid()})")
    assert result.status == "ok" and len(mark.read_text().splitlines()) == 1
    assert shared.run("import os; os.getcwd()").value == repr(q["workspace"])
    assert other.approvals() == {"approvals": [], "more": 0, "others": 0}


def test_refused_elsewhere_it_does_not_run_and_the_code_gets_the_reason(
    shared: Session, other: Client, mark: Path
) -> None:
    number = ask(shared)
    q = waiting(other)
    other.decide(q["id"], q["digest"], False, "not on my watch")
    closed, error, result = shared.each("approval_closed", "error", "result")
    assert (closed.approval, closed.text) == (number, f"refused in another terminal (process {os.getpid()})")
    assert result.refused and "not on my watch" in str(error.json)
    assert not mark.exists()
    with fails(E_NOTFOUND):
        shared.accept(number)


def test_the_default_is_the_host_alone(host: Client, other: Client, workspace: Path, mark: Path) -> None:
    with open_session(host, workspace, mark, deciders=0) as s:
        number = ask(s)
        assert other.approvals() == {"approvals": [], "more": 0, "others": 1}
        for guess in (f"{number:016x}", "0" * 16, "", "0" * 15 + "g", "-" + "1" * 15):
            with fails(E_NOTFOUND):
                other.approval(guess)
            with fails(E_NOTFOUND):
                other.decide(guess, "", True)
        s.reject(number)
        assert s.until("result")[-1].refused
    assert not mark.exists()


def test_nobody_sees_a_question_before_the_host_shares_it(shared: Session, other: Client, mark: Path) -> None:
    """Its rules come first: a program that accepts all cannot be faster than a rule that refuses."""
    shared.execute(CALL.format("x"))
    number = shared.until("approval_request")[-1].approval
    assert other.approvals() == {"approvals": [], "more": 0, "others": 1}
    shared.share(number)
    shared.share(number)
    shared.client.status()
    assert waiting(other)["tool"] == "danger"
    shared.reject(number)
    assert shared.until("result")[-1].refused and not mark.exists()
    with fails(E_NOTFOUND):
        shared.share(number)


def test_a_spare_takes_the_choice_of_its_host(own_folder: None, workspace: Path, mark: Path) -> None:
    with Client(share=1) as host:
        for deciders in (1, 0, 1):
            with open_session(host, workspace, mark, deciders=deciders) as s:
                number = ask(s)
                assert len(host.approvals()["approvals"]) == deciders
                s.reject(number)
                s.until("result")
                eventually(lambda: host.status()["spares"] == 1)


def test_the_first_decision_counts(shared: Session, other: Client, mark: Path) -> None:
    for i, first in enumerate(("host", "other"), 1):
        number, q = ask(shared), waiting(other)
        both = [lambda: shared.accept(number), lambda: other.decide(q["id"], q["digest"], True)]  # noqa: B023
        decide, late = both if first == "host" else reversed(both)
        decide()
        assert shared.until("result")[-1].status == "ok", first
        with fails(E_NOTFOUND):
            late()
        assert len(mark.read_text().splitlines()) == i, first


def test_of_decisions_at_once_one_counts(shared: Session, other: Client, mark: Path) -> None:
    """One accepts and the other one refuses: the call runs once or not at all, as the first one said."""
    for i in range(20):
        number, q = ask(shared, str(i)), waiting(other)

        def decide(how: Callable[..., None], *args: object) -> None:
            with contextlib.suppress(CellgateError):  # it was too late
                how(*args)

        ways = [(shared.reject, number), (other.decide, q["id"], q["digest"], True)]
        threads = [threading.Thread(target=decide, args=way) for way in ways]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        events = shared.until("result")
        ran = [json.loads(line)["text"] for line in mark.read_text().splitlines()] if mark.exists() else []
        assert ran.count(str(i)) == (events[-1].status == "ok")
        assert not events[-1].refused or events[-1].status == "error"
        assert other.approvals()["approvals"] == []


def test_an_old_number_decides_nothing_else(shared: Session, other: Client, mark: Path) -> None:
    ask(shared, "one")
    old = waiting(other)
    shared.cancel()
    shared.until("result")
    ask(shared, "one")
    new = waiting(other)
    assert new["id"] != old["id"] and new["digest"] == old["digest"]
    with fails(E_NOTFOUND, "has ended"):
        other.decide(old["id"], old["digest"], True)
    assert waiting(other)["id"] == new["id"] and not mark.exists()
    other.decide(new["id"], new["digest"], True)
    assert shared.until("result")[-1].status == "ok"


def test_another_digest_decides_nothing(shared: Session, other: Client, mark: Path) -> None:
    ask(shared, "one")
    q = waiting(other)
    for digest in ("", q["digest"][:-1], q["digest"].upper(), hashlib.sha256(b"other").hexdigest()):
        for accept in (True, False):
            with fails(E_INVAL, "nothing was decided"):
                other.decide(q["id"], digest, accept)
    assert waiting(other)["id"] == q["id"] and not mark.exists()
    other.decide(q["id"], q["digest"], False)
    assert shared.until("result")[-1].refused


def test_functions_of_the_host_run_in_the_host(shared: Session, other: Client) -> None:
    shared.add_functions("host", [{"name": "any", "inputSchema": {"type": "object"}}], ask=1)
    shared.execute("from mcptools.host import any\nany.run()")
    asked = share(shared)
    q = waiting(other)
    other.decide(q["id"], q["digest"], True)
    closed, call = shared.each("approval_closed", "function_call")
    assert closed.approval == asked != call.approval
    assert other.approvals()["approvals"] == []  # it has been decided; what waits is the function
    shared.give(call.approval, 1)
    assert shared.until("result")[-1].status == "ok"


def test_programs(host: Client, other: Client, workspace: Path) -> None:
    with host.session(workspace=workspace, deciders=1, exec="ask") as s:
        for accept in (True, False):
            s.execute("import subprocess\nprint(subprocess.run(['/bin/echo', 'ran']).returncode)")
            share(s)
            q = waiting(other)
            assert q["method"] == "exec" and json.loads(q["arguments"])["argv"] == ["/bin/echo", "ran"]
            other.decide(q["id"], q["digest"], accept)
            assert (s.until("result")[-1].status == "ok") is accept


def test_connections(host: Client, other: Client, workspace: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    port = server.getsockname()[1]
    fetch = FETCH + f"fetch('http://127.0.0.1:{port}/')"
    with host.session(workspace=workspace, deciders=1, ask_egress=1, settings=settings()) as s:
        for accept in (True, False):
            s.execute(fetch)
            number = share(s, "egress_request")
            q = waiting(other)
            assert (q["method"], q["host"], q["port"]) == ("connect", "127.0.0.1", port)
            assert json.loads(q["arguments"])["port"] == port
            other.decide(q["id"], q["digest"], accept)
            assert s.until("approval_closed")[-1].approval == number
            if accept:
                assert select.select([server], [], [], 30)[0]
                server.accept()[0].close()
            s.until("result")
        s.execute(fetch)  # once is once
        s.decide_egress(s.until("egress_request")[-1].approval, 3)
        s.until("result")
    with pytest.raises(BlockingIOError):
        server.accept()


def test_the_end_of_the_session_ends_the_question(host: Client, other: Client, workspace: Path, mark: Path) -> None:
    with open_session(host, workspace, mark) as s:
        ask(s)
        q = waiting(other)
    assert other.approvals()["approvals"] == []
    with fails(E_NOTFOUND):
        other.decide(q["id"], q["digest"], True)
    assert not mark.exists()


def test_the_list_says_when_a_question_ends_and_it_ends(
    host: Client, other: Client, workspace: Path, mark: Path
) -> None:
    with open_session(host, workspace, mark, approval_timeout_ms=1500) as s:
        ask(s)
        q = waiting(other)
        assert 0 <= q["left_ms"] <= 1500
        assert s.until("approval_closed")[-1].text == "nobody decided in time: the call was refused"
        with fails(E_NOTFOUND):
            other.decide(q["id"], q["digest"], True)
        s.until("result")
    assert not mark.exists()


def readable(client: Client, seconds: float = 20) -> bool:
    return bool(
        select.select([client.approvals_fd()], [], [], seconds * (5 if os.environ.get("CG_SANITIZED") else 1))[0]
    )


def test_watching(shared: Session, other: Client) -> None:
    assert readable(other, 0)  # there is no list yet
    assert other.approvals()["approvals"] == []
    assert not readable(other, 0)
    number = ask(shared)
    assert readable(other)
    assert readable(other, 0)  # until the list is read
    assert len(other.approvals()["approvals"]) == 1
    shared.reject(number)
    assert readable(other)
    shared.until("result")
    assert other.approvals()["approvals"] == []


def test_the_end_of_the_supervisor_ends_a_watch(own_folder: None) -> None:
    with Client(share=1) as host, Client(share=1) as other:
        other.approvals_fd()
        other.approvals()
        os.kill(host.status()["pid"], signal.SIGKILL)
        assert readable(other)
        with fails(E_CLOSED):
            other.approvals()


WATCHER = """
import sys
from cellgate_api import Client
with Client(share=1) as c:
    c.approvals()
    print("watches", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def watcher(how: signal.Signals) -> Iterator[None]:
    """Another client, which gets this signal when it watches."""
    argv = [sys.executable, "-B", "-c", WATCHER]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as started:
        try:
            assert started.stdout and started.stdout.readline() == b"watches\n"
            started.send_signal(how)
            yield
        finally:
            started.kill()


def test_a_watcher_that_dies_holds_up_nothing(shared: Session) -> None:
    with watcher(signal.SIGKILL):
        for i in range(5):
            shared.reject(ask(shared, str(i)))
            shared.until("result")


def test_a_list_has_a_limit_and_a_watcher_that_hangs_holds_up_nothing(
    host: Client, other: Client, tmp_path: Path, mark: Path
) -> None:
    """Two sessions with 150 calls each. The watcher gets one short message, and no other before it asks for the list
    again: 300 would not fit its socket."""
    mark.unlink(missing_ok=True)
    code = (
        "import asyncio\nfrom mcptools.echo import danger\n"
        "await asyncio.gather(*(danger.run_async(text=str(i)) for i in range(150)))"
    )
    with watcher(signal.SIGSTOP), contextlib.ExitStack() as stack:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            s = stack.enter_context(open_session(host, tmp_path / name, mark))
            s.execute(code)
            for _ in range(150):
                s.share(s.until("approval_request")[-1].approval)
        host.status()
        assert other.approvals()["more"] == 300 - 256
        found = other.approvals()["approvals"]
        assert len({q["id"] for q in found}) == 256
    assert other.approvals() == {"approvals": [], "more": 0, "others": 0}
    assert not mark.exists()


def test_where_cells_could_be_clients_nobody_else_decides(host: Client, workspace: Path, tmp_path: Path) -> None:
    with fails(E_UNSUPPORTED, "cells could decide about their own calls"):
        host.session(workspace=workspace, deciders=1, sandbox=1)
    for opts in ({}, {"address": str(tmp_path / "sup"), "start": 1, "linger_ms": 1}):
        with Client(**opts) as c, pytest.raises(CellgateError, match="which is not used here") as e:
            c.session(workspace=workspace, deciders=1)
        assert e.value.code == E_UNSUPPORTED


# A client gets a line from life.sock, without which host.sock is of no use.
REACH = """
import os, socket
for path in ({life!r}, "/proc/{pid}/root" + {life!r}):
    try:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        s.connect(path)
        line = s.recv(64)
        print("REACHED" if line else "refused", path)
    except OSError as e:
        print(type(e).__name__)
"""


@pytest.mark.parametrize("tier", ["full", "landlock:accept"])
def test_cells_and_commands_do_not_reach_the_supervisor(host: Client, workspace: Path, tier: str) -> None:
    """Not even with settings that list its socket, through a door: the supervisor refuses what is confined."""
    life = host.status()["address"] + "/life.sock"
    reach = REACH.format(life=life, pid=os.getpid())
    here = subprocess.run([sys.executable, "-c", reach], capture_output=True, text=True, check=True).stdout
    assert (here.count("\n"), here.count("REACHED")) == (2, 2)
    for chosen in (None, settings(network={"allowUnixSockets": [life]})):
        try:
            opened = host.session(workspace=workspace, deciders=1, tier=tier, settings=chosen)
        except CellgateError as e:
            pytest.skip(str(e))
        with opened as s:
            texts = [s.run(reach).stdout, s.command("python3", "-c", reach)[1].decode()]
        assert [(t.count("\n"), t.count("REACHED")) for t in texts] == [(2, 0), (2, 0)]
        assert ["refused" in t for t in texts] == [bool(chosen and tier == "full")] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_another_user_does_not_reach_it(own_folder: None) -> None:
    """Not even where the folders above let it."""
    code = """
import os, socket, sys
os.setgroups([]); os.setgid({0}); os.setuid({0})
for name in ("life.sock", "host.sock"):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(os.path.join(sys.argv[1], name))
        print(repr(s.recv(64)))
    except OSError as e: print(type(e).__name__)
"""

    def attempt() -> str:
        argv = [sys.executable, "-c", code.format(NOBODY), address]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout

    with Client(share=1) as host:
        address = host.status()["address"]
        assert attempt() == "PermissionError\n" * 2
        for folder in (Path(address), *Path(address).parents[:-1]):
            folder.chmod(folder.stat().st_mode | 0o055)
        for name in ("life.sock", "host.sock"):
            (Path(address) / name).chmod(0o777)
        assert set(attempt().splitlines()) <= {"b''", "ConnectionResetError"}
        assert host.approvals()["approvals"] == []


def test_the_audit_log_says_who(
    own_folder: None, workspace: Path, mark: Path, outside: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(outside))
    with Client(share=1) as c, open_session(c, workspace, mark, audit="strict") as s:
        s.accept(ask(s, "one"))
        s.until("result")
        ask(s, "two")
        q = waiting(c)
        c.decide(q["id"], q["digest"], True)
        s.until("result")
        ask(s, "three")
        s.cancel()
        s.until("result")
    done = subprocess.run([prefix / "bin/cellgate", "audit", "--json"], capture_output=True, text=True, check=True)
    bodies = [r["body"] for r in map(json.loads, done.stdout.splitlines()) if r["kind"] == "question"]
    me = {"pid": os.getpid(), "uid": os.getuid()}
    assert [(b["decision"], b["who"]) for b in bodies] == [
        ("accept", {"by": "host", **me}),
        ("accept", {"by": "terminal", **me}),
        ("closed", None),
    ]
