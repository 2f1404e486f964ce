"""A supervisor that several clients share, and sessions that several clients take part in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import E_CLOSED, E_INVAL, E_LIMIT, E_NOTFOUND, E_STATE, E_TIMEDOUT, CellgateError, Client, Session
from processes import children, eventually, parent, words
from server_definitions import echo
from shared_supervisor import find_supervisors, runtime_folder
from wire_table import HOST, HOST_WIRE

from .test_functions import Raw


def end_supervisors(address: str) -> None:
    for pid in supervisors(address):
        with contextlib.suppress(ProcessLookupError):  # it has lingered long enough
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "sup")
    yield path
    end_supervisors(path)


def supervisors(address: str) -> list[int]:
    found = [
        int(p)
        for p in filter(str.isdigit, os.listdir("/proc"))
        if (args := words(int(p))) and args[0].endswith(b"cellgate-supervisor") and address.encode() in args
    ]
    return [p for p in found if parent(p) not in found]  # a child before its exec has its parent's arguments


def open_client(address: str, **opts: object) -> Client:
    return Client(address=address, start=1, **opts)


# ---------------------------------------------------------------- shared supervisors


def test_without_start_there_must_be_one(address: str) -> None:
    with pytest.raises(CellgateError, match="no supervisor at"):
        Client(address=address)
    assert not supervisors(address)


def test_two_clients_share_one(address: str, tmp_path: Path) -> None:
    with open_client(address) as a, open_client(address) as b:
        assert len(supervisors(address)) == 1
        with a.session(workspace=tmp_path) as s, b.session(workspace=tmp_path) as t:
            assert s.run("1").value == t.run("1").value == "1"
            assert s.id != t.id
            assert [x["own"] for x in sorted(a.sessions(), key=lambda x: x["id"] != s.id)] == [True, False]
    assert len(supervisors(address)) == 1, "it stays for the next"


def test_many_starting_at_once_start_one(address: str) -> None:
    clients: list[Client] = []
    threads = [threading.Thread(target=lambda: clients.append(open_client(address))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(clients) == 8
    assert len(supervisors(address)) == 1
    for c in clients:
        c.close()


def test_it_ends_when_it_has_lingered(address: str, tmp_path: Path) -> None:
    with open_client(address, linger_ms=100) as c, c.session(workspace=tmp_path) as s:
        assert s.run("1").value == "1"
        assert supervisors(address)
    eventually(lambda: not supervisors(address))
    assert not Path(address).exists()
    with open_client(address, linger_ms=100) as c:
        assert supervisors(address)


def test_it_outlives_its_starter_and_a_kill_is_noticed(address: str, tmp_path: Path) -> None:
    open_client(address).close()
    (pid,) = supervisors(address)
    assert os.getsid(pid) == pid
    c = open_client(address)
    s = c.session(workspace=tmp_path)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises((EOFError, CellgateError)):
        while True:
            s.next(20000)
            if s.execute("1") is None:
                break
    s.close()
    c.close()
    with open_client(address) as d, d.session(workspace=tmp_path) as t:  # what the killed one left is no obstacle
        assert t.run("1").value == "1"


def test_spare_of_a_shared_supervisor_is_for_the_next_client(address: str, tmp_path: Path) -> None:
    with open_client(address) as c, c.session(workspace=tmp_path) as s:
        s.run("x = 1")
        spares = kernels(address)
        eventually(lambda: kernels(address) == 2)
        assert spares <= 2
    eventually(lambda: kernels(address) == 1)  # the spare stays
    with open_client(address) as c, c.session(workspace=tmp_path) as s:
        out = s.run("'x' in globals()")
        assert out.value == "False"
        assert out.result.count == 1


def test_one_that_is_slow_is_left_alone(address: str, tmp_path: Path) -> None:
    with open_client(address) as c, c.session(workspace=tmp_path) as s:
        (pid,) = supervisors(address)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(CellgateError, match="does not answer"):
                open_client(address, timeout_ms=300)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert supervisors(address) == [pid]
        assert s.run("1").value == "1"
        with open_client(address) as d, d.session(workspace=tmp_path) as t:
            assert t.run("2").value == "2"


def test_a_start_that_hangs_holds_up_nobody_for_ever(address: str) -> None:
    with open(f"{address}.lock", "w") as held:
        os.chmod(held.fileno(), 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CellgateError, match=r"has held .*sup\.lock for 300 ms") as e:
            open_client(address, timeout_ms=300)
        assert e.value.code == E_TIMEDOUT
        assert not supervisors(address)
    open_client(address).close()
    assert len(supervisors(address)) == 1


def test_a_supervisor_that_says_half_a_word_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    """The rest of its answer has a time limit too, although a process holds the descriptor open."""
    program = tmp_path / "supervisor"
    program.write_text("#!/bin/sh\nprintf '{\"ready\"' >&3\nexec sleep 1000\n")
    program.chmod(0o755)
    with pytest.raises(CellgateError, match="did not start within 300 ms") as e:
        Client(supervisor=str(program), timeout_ms=300)
    assert e.value.code == E_TIMEDOUT


def test_a_folder_of_anything_else_is_left_alone(address: str) -> None:
    folder = Path(address)
    folder.mkdir(mode=0o700)
    (folder / "s1").mkdir()
    (folder / "tmp2").mkdir()  # of the landlock tier
    for socket_name in ("k1", "t1", "f1", "broker3"):
        (folder / socket_name).touch()
    for name in ("thesis.txt", "s1x", "broker", "k"):
        (folder / name).write_text("years of work")
        with pytest.raises(CellgateError, match=f"holds {name}, which is not of a supervisor") as e:
            open_client(address)
        assert e.value.code == E_INVAL
        assert (folder / name).read_text() == "years of work"
        assert (folder / "s1").exists()
        (folder / name).unlink()
    open_client(address).close()
    assert len(supervisors(address)) == 1
    assert not (folder / "s1").exists()


def test_a_folder_that_others_may_enter_is_refused(address: str) -> None:
    Path(address).mkdir(mode=0o700)
    Path(address).chmod(0o755)
    with pytest.raises(CellgateError, match="mode 0700"):
        open_client(address)
    assert not supervisors(address)


def test_a_log_with_another_name_is_not_written(address: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    os.link(tmp_path / "precious", f"{address}.log")
    with pytest.raises(CellgateError, match="one name"):
        open_client(address)
    assert (tmp_path / "precious").read_text() == "precious"


def test_several_spares(address: str, tmp_path: Path) -> None:
    with open_client(address, spares=3) as c, c.session(workspace=tmp_path):
        eventually(lambda: kernels(address) == 4)


def kernels(address: str) -> int:
    (pid,) = supervisors(address)
    zygotes = [p for p in children(pid) if b"--zygote" in words(p)]
    return len(children(zygotes[0])) if zygotes else 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_another_users_supervisor_is_refused(tmp_path: Path) -> None:
    path = Path("/tmp") / f"cg-test-{os.getpid()}"
    path.mkdir(mode=0o755)
    pid = os.fork()
    if pid == 0:
        try:
            os.chown(path, 65534, 65534)
            os.setuid(65534)
            s = socket.socket(socket.AF_UNIX)
            s.bind(str(path / "life.sock"))
            s.listen()
            os.chmod(path / "life.sock", 0o777)
            (path / "ready").touch()
            time.sleep(30)
        finally:
            os._exit(0)
    try:
        eventually(lambda: (path / "ready").exists())
        for start in (0, 1):
            with pytest.raises(CellgateError, match="another user"):
                Client(address=str(path), start=start)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for f in path.iterdir():
            f.unlink()
        path.rmdir()


@pytest.mark.parametrize(
    ("mode", "used"), [(0o700, True), (0o1777, True), (0o777, False), (0o770, False), (None, False)]
)
def test_a_runtime_folder_that_others_could_change_is_not_used(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, mode: int | None, used: bool
) -> None:
    base = tmp_path_factory.mktemp("r")
    if mode is None:
        base.rmdir()
    else:
        base.chmod(mode)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    with Client(no_spare=1):
        assert (mode is not None and (base / f"cellgate-{os.geteuid()}").exists()) is used


# ---------------------------------------------------------------- attached clients


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """Two of one supervisor, for several tests."""
    address = str(tmp_path_factory.mktemp("clients") / "sup")
    with open_client(address) as a, open_client(address) as b:
        yield a, b
    end_supervisors(address)


@pytest.fixture
def pair(clients: tuple[Client, Client], workspace: Path) -> Iterator[tuple[Session, Session]]:
    """A session, and another client's view of it."""
    a, b = clients
    with a.session(workspace=workspace) as s, b.attach(s.id) as t:
        yield s, t


def test_attached_client_sees_what_the_other_does(pair: tuple[Session, Session]) -> None:
    s, t = pair
    cell = s.execute("print('hello'); 6 * 7")
    s.until("result")
    seen = t.until("result")
    assert [e.type for e in seen] == ["execute_input", "stream", "execute_result", "result"]
    assert all(e.foreign for e in seen)
    assert seen[0].text == "print('hello'); 6 * 7"
    assert seen[0].count == 1
    assert seen[1].text == "hello\n"
    assert all(e.cell == seen[0].cell for e in seen)
    assert cell == 1


def test_both_run_cells_in_one_kernel(pair: tuple[Session, Session]) -> None:
    s, t = pair
    s.run("x = 20")
    t.until("result")
    mine = t.run("x += 1; x")
    assert mine.value == "21"
    assert not any(e.foreign for e in mine.events)
    assert mine.result.cell == 1
    out = s.run("x")
    assert out.value == "21"
    assert all(e.cell == 2 for e in out.events), "the opener sees its own cells only"


def test_late_output_reaches_whose_cell_it_was(pair: tuple[Session, Session]) -> None:
    s, t = pair
    t.run("import threading; e = threading.Event(); threading.Thread(target=lambda: (e.wait(), print('late'))).start()")
    s.run("e.set(); import time; time.sleep(0.2)")
    late = [e for e in t.until("stream") if e.type == "stream"][-1]
    assert late.text.strip() == "late"


def test_interrupt_from_the_other_side(pair: tuple[Session, Session]) -> None:
    s, t = pair
    s.execute("print('on', flush=True)\nwhile True: pass")
    t.until("stream")
    t.cancel()
    assert s.until("result")[-1].status == "cancelled"


def test_what_only_the_opener_may_do(pair: tuple[Session, Session]) -> None:
    s, t = pair
    for do in (t.reset, lambda: t.add_servers({"a": {"command": "true"}})):
        with pytest.raises(CellgateError, match="only the client that opened") as e:
            do()
        assert e.value.code == E_STATE
    assert s.run("1").value == "1"


def test_approvals_stay_with_the_opener(pair: tuple[Session, Session], mark: Path) -> None:
    s, t = pair
    s.add_servers(echo(mark))
    t.execute("from mcptools.echo import echo\necho.run(text='x')")
    asked = s.until("approval_request")[-1]
    assert asked.cell == 0, "it is no cell of the opener's"
    s.reject(asked.approval, "no")
    seen = t.until("result")
    assert seen[-1].status == "error"
    assert seen[-1].refused
    assert not any(e.type == "approval_request" for e in seen)


def test_leaving_ends_only_what_was_ones_own(pair: tuple[Session, Session]) -> None:
    s, t = pair
    t.execute("print('mine', flush=True)\nimport time\ntime.sleep(60)")
    t.execute("print('never')")
    t.until("stream")
    t.close()
    assert s.run("1").value == "1"


def test_the_end_of_the_session_is_told(pair: tuple[Session, Session]) -> None:
    s, t = pair
    s.close()
    closed = t.until("session_closed")[-1]
    assert "ended it" in closed.text
    with pytest.raises(CellgateError) as e:
        t.execute("1")
    assert e.value.code == E_CLOSED


def test_kernel_death_is_told_to_everyone(pair: tuple[Session, Session]) -> None:
    s, t = pair
    s.execute("import os; os.kill(os.getpid(), 9)")
    assert s.until("kernel_died")
    seen = t.until("kernel_died")
    assert any(e.type == "result" and e.status == "kernel_died" and e.foreign for e in seen)
    assert t.run("1").value == "1"


def test_no_such_session(clients: tuple[Client, Client]) -> None:
    with pytest.raises(CellgateError) as e:
        clients[1].attach("0" * 32)
    assert e.value.code == E_NOTFOUND


def test_twice_is_refused(pair: tuple[Session, Session]) -> None:
    s, t = pair
    for client in (s.client, t.client):
        with pytest.raises(CellgateError, match="already"):
            client.attach(s.id)


def test_attached_client_that_does_not_read_is_detached_and_holds_up_nobody(pair: tuple[Session, Session]) -> None:
    s, t = pair
    out = s.run("for i in range(45): print('x' * 1_000_000)")
    assert out.status == "ok"
    assert len(out.stdout) == 45_000_045
    assert "did not read" in t.until("session_closed")[-1].text
    t.close()
    assert s.run("1").value == "1"


def test_requests_of_a_client_that_reads_nothing_wait(address: str, tmp_path: Path) -> None:
    """Each is answered, so they would fill the supervisor's memory."""
    with open_client(address) as a, a.session(workspace=tmp_path) as s:
        with Raw(address) as raw:
            raw.socket.settimeout(10)
            block = raw.forged["message"](HOST_WIRE, HOST.SESSION_RESET, 2, b"{}", session=123) * 1000
            sent = 0
            with pytest.raises(TimeoutError):
                while sent < 1000 * len(block):  # each answer has more than 100 bytes
                    sent += raw.socket.send(block[sent % len(block) :])
            assert s.run("1").value == "1"
            received = 0
            while received < 48 << 20:  # it is served again when it reads
                received += len(raw.socket.recv(1 << 20))
                with contextlib.suppress(BlockingIOError):
                    sent += raw.socket.send(block[sent % len(block) :], socket.MSG_DONTWAIT)
        assert s.run("2").value == "2"


def test_too_many_attached(address: str, tmp_path: Path) -> None:
    with open_client(address) as a, a.session(workspace=tmp_path) as s:
        clients = [open_client(address) for _ in range(65)]
        attached = [c.attach(s.id) for c in clients[:64]]
        with pytest.raises(CellgateError) as e:
            clients[64].attach(s.id)
        assert e.value.code == E_LIMIT
        assert s.run("1").value == "1"
        for t in attached:
            t.close()
        for c in clients:
            c.close()


# ---------------------------------------------------------------- the user's own


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with runtime_folder() as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
        yield path


def test_the_users_own_is_found_by_equal_options(folder: Path, tmp_path: Path) -> None:
    with Client(share=1) as a, Client(share=1) as b:
        assert a.why_private() is b.why_private() is None
        (pid,) = find_supervisors(folder)
        assert a.status()["pid"] == pid
        assert [c["own"] for c in sorted(b.status()["clients"], key=lambda c: c["own"])] == [False, True]
        with a.session(workspace=tmp_path) as s:
            assert s.run("1").value == "1"
            assert sorted(c["sessions"] for c in b.status()["clients"]) == [0, 1]
        for other in ({"preload": "uuid"}, {"spares": 2}, {"linger_ms": 1000}, {"log_level": 2}, {"no_spare": 1}):
            with Client(share=1, **other) as c:
                assert c.status()["pid"] != pid
        with Client() as c:
            assert "linger_ms" not in c.status(), "a private one"


def test_another_version_is_another_supervisor(folder: Path, tmp_path: Path) -> None:
    """After an upgrade the old one serves its clients, and new clients start a new one."""
    installed = Path(os.environ["CG_PREFIX"]) / "libexec/cellgate/cellgate-supervisor"
    copy = tmp_path / "cellgate-supervisor"
    shutil.copy(installed, copy)
    with Client(share=1, supervisor=str(copy)) as a, a.session(workspace=tmp_path) as s:
        os.utime(copy)
        with Client(share=1, supervisor=str(copy)) as b, b.session(workspace=tmp_path) as t:
            assert len(find_supervisors(folder)) == 2
            assert a.status()["pid"] != b.status()["pid"]
            assert s.run("1").value == t.run("1").value == "1"
        with Client(share=1) as c:
            assert len(find_supervisors(folder)) == 3
            assert c.why_private() is None


def test_sessions_in_the_users_own_are_their_clients(folder: Path, tmp_path: Path) -> None:
    """As with a private supervisor. Those of notebooks are for other clients, too."""
    with Client(share=1) as a, Client(share=1) as b:
        with a.session(workspace=tmp_path) as s:
            assert [x["id"] for x in a.sessions()] == [s.id]
            assert b.sessions() == []
            with pytest.raises(CellgateError, match="no session") as e:
                b.attach(s.id)
            assert e.value.code == E_NOTFOUND
        with a.session(workspace=tmp_path, front=1) as s:
            assert [x["id"] for x in b.sessions()] == [s.id]
            with b.attach(s.id) as t:
                assert t.run("1").value == "1"


def test_it_is_stopped_by_consent_or_force(folder: Path, tmp_path: Path) -> None:
    with Client(share=1) as a, Client(share=1) as b, a.session(workspace=tmp_path) as s:
        with pytest.raises(CellgateError, match="1 session of other clients would end") as e:
            b.stop()
        assert e.value.code == E_STATE
        assert s.run("1").value == "1"
        b.stop(force=1)
        with pytest.raises((EOFError, CellgateError)):
            s.until("result")
    eventually(lambda: not find_supervisors(folder))
    with Client(share=1) as a, a.session(workspace=tmp_path):
        a.stop()  # its own sessions are no obstacle
    eventually(lambda: not find_supervisors(folder))


def test_a_broken_supervisor_leads_to_the_same_error(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "supervisor"
    program.write_text('#!/bin/sh\nprintf \'{"code": -8, "error": "no, thanks"}\' >&3\n')
    program.chmod(0o755)
    with pytest.raises(CellgateError, match="did not start: no, thanks") as e:
        Client(share=1, supervisor=str(program))
    assert e.value.code == E_STATE
