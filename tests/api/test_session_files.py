"""Files of a session through the C API."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pytest
from cellgate_api import E_INVAL, E_LIMIT, E_NOTFOUND, E_TIMEDOUT, CellgateError, Session
from processes import eventually
from rounds import rounds

E_SYS = -2


def fails(code: int | None, call: object, *args: object, **opts: object) -> CellgateError:
    with pytest.raises(CellgateError) as e:
        call(*args, **opts)  # type: ignore[operator]
    assert code is None or e.value.code == code, e.value
    return e.value


def test_a_file_there_and_back(session: Session) -> None:
    session.file_write("/tmp/a", b"one\0two\xff", mode=0o640)
    assert session.file_read("/tmp/a") == b"one\0two\xff"
    assert session.run("open('/tmp/a', 'rb').read()").value == repr(b"one\0two\xff")
    stat = session.file_stat("/tmp/a")
    assert (stat["type"], stat["size"], stat["mode"]) == ("file", 8, 0o640)
    assert session.file_read("/tmp/a", offset=4, max=3) == b"two"
    assert session.file_read("/tmp/a", offset=100) == b"" and session.file_read("/tmp/a", max=0) == b""


def test_writing_keeps_the_mode_and_is_atomic(session: Session) -> None:
    session.run("import os; open('/tmp/x', 'w').write('old'); os.chmod('/tmp/x', 0o755); f = open('/tmp/x')")
    session.file_write("/tmp/x", b"new", mode=0o600)
    assert session.file_stat("/tmp/x")["mode"] == 0o755
    assert session.run("f.read()").value == "'old'"
    assert [e["name"] for e in session.file_list("/tmp") if e["name"].startswith("x")] == ["x"]


@pytest.mark.parametrize(("mode", "kept"), [(0o4600, 0o600), (0o2660, 0o660), (0o1600, 0o1600), (0o777, 0o777)])
def test_writing_to_a_private_file_with_special_bits(session: Session, workspace: Path, mode: int, kept: int) -> None:
    """The sandbox sets no set-id bits: the file must not become readable for others instead."""
    (workspace / "x").touch()
    (workspace / "x").chmod(mode)
    session.file_write(str(workspace / "x"), b"new", mode=0o644)
    assert stat.S_IMODE((workspace / "x").stat().st_mode) == kept


def test_large_files_by_descriptors(session: Session, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(1 << 20) * 40)
    with source.open("rb") as f:
        session.file_put("/tmp/large", f.fileno())
    with back.open("wb") as f:
        session.file_get("/tmp/large", f.fileno())
    assert back.read_bytes() == source.read_bytes()


def test_descriptors_of_every_kind(session: Session, tmp_path: Path) -> None:
    """From and to the offset of a file; files that are only appended to; pipes."""
    data = os.urandom((1 << 20) + 777)
    (tmp_path / "f").write_bytes(b"before" + data)
    with (tmp_path / "f").open("r+b", buffering=0) as f:
        f.seek(6)
        session.file_put("/tmp/f", f.fileno())
        assert f.tell() == 6 + len(data)
        f.seek(3)
        session.file_get("/tmp/f", f.fileno())
        assert f.tell() == 3 + len(data)
    assert (tmp_path / "f").read_bytes() == b"bef" + data + data[-3:]
    with (tmp_path / "f").open("ab", buffering=0) as f:
        session.file_get("/tmp/f", f.fileno(), max=len(data))
        fails(E_LIMIT, session.file_get, "/tmp/f", f.fileno(), max=len(data) - 1)
    assert (tmp_path / "f").read_bytes()[3 + len(data) : 6 + 2 * len(data)] == data[-3:] + data
    cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert cat.stdin is not None and cat.stdout is not None
    reader = threading.Thread(target=session.file_get, args=("/tmp/f", cat.stdin.fileno()))
    reader.start()
    with cat.stdin as r, cat.stdout as w:
        threading.Thread(target=lambda: (reader.join(), r.close())).start()
        session.file_put("/tmp/g", w.fileno())
    assert cat.wait() == 0 and session.file_read("/tmp/g") == session.file_read("/tmp/f") == data


def test_errors_of_the_hosts_files(session: Session, tmp_path: Path) -> None:
    session.file_write("/tmp/f", b"x" * 100_000)
    (tmp_path / "f").touch()
    with (tmp_path / "f").open("rb") as f:
        assert "the file of the host" in str(fails(E_SYS, session.file_get, "/tmp/f", f.fileno()))
    with (tmp_path / "f").open("wb") as f:
        assert "the file of the host" in str(fails(E_SYS, session.file_put, "/tmp/f", f.fileno()))
    assert session.file_read("/tmp/f") == b"x" * 100_000


def test_while_a_cell_floods_and_nobody_reads(session: Session) -> None:
    session.execute("while True: print('x' * 100000)")
    for _ in range(3):
        session.file_write("/tmp/a", b"y" * 3_000_000)
        assert len(session.file_read("/tmp/a")) == 3_000_000


def test_lists(session: Session) -> None:
    session.file_mkdir("/tmp/d/e/f")
    session.file_mkdir("/tmp/d/e/f")
    session.file_write("/tmp/d/file", b"123")
    session.run("import os; os.symlink('file', '/tmp/d/link'); os.mkfifo('/tmp/d/fifo'); open(b'/tmp/d/\\xff', 'w')")
    entries = {e.get("name", e.get("name_hex")): e for e in session.file_list("/tmp/d")}
    assert {n: e["type"] for n, e in entries.items()} == {
        "e": "folder",
        "file": "file",
        "link": "link",
        "fifo": "fifo",
        "ff": "file",
    }
    assert entries["link"]["target"] == "file" and entries["file"]["size"] == 3
    assert session.file_stat("/tmp/d/link")["type"] == "link"
    assert session.file_read("/tmp/d/link") == b"123"


def test_rename_and_remove(session: Session) -> None:
    session.file_write("/tmp/a", b"a")
    session.file_rename("/tmp/a", "/tmp/b")
    assert session.file_read("/tmp/b") == b"a"
    session.run(
        "import os; os.makedirs('/tmp/tree/deep'); open('/tmp/keep', 'w'); os.symlink('/tmp/keep', '/tmp/tree/deep/l')"
    )
    session.file_remove("/tmp/tree")
    assert session.file_stat("/tmp/keep")["type"] == "file"
    fails(E_NOTFOUND, session.file_remove, "/tmp/tree")


def test_folders_as_tar(session: Session, tmp_path: Path) -> None:
    session.file_mkdir("/tmp/d")
    session.file_write("/tmp/d/a", b"content")
    archive = tmp_path / "a.tar"
    with archive.open("wb") as f:
        session.file_pack("/tmp/d", f.fileno())
    with tarfile.open(archive) as t:
        assert t.extractfile("./a").read() == b"content"  # type: ignore[union-attr]
    session.file_mkdir("/tmp/other")
    with archive.open("rb") as f:
        session.file_unpack("/tmp/other", f.fileno())
    assert session.file_read("/tmp/other/a") == b"content"


def test_what_the_sandbox_refuses(session: Session, workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "outside"
    secret.write_text("outside")
    assert fails(None, session.file_write, "/usr/new", b"").errno == errno.EROFS
    assert fails(None, session.file_write, workspace / ".bashrc", b"").errno in (errno.EACCES, errno.EPERM)
    assert fails(None, session.file_write, "/proc/1/mem", b"").errno in (errno.EACCES, errno.EROFS, errno.ENOENT)
    session.run(f"import os; os.symlink({str(secret)!r}, 'out'); os.symlink('/root/.ssh', 'keys')")
    before = secret.read_text()
    fails(None, session.file_write, workspace / "out", b"changed")
    assert secret.read_text() == before


def test_nothing_waits_for_fifos_and_devices(session: Session) -> None:
    session.run("import os; os.mkfifo('/tmp/fifo')")
    for path in ("/tmp/fifo", "/dev/zero", "/dev/tty", "/tmp"):
        fails(None, session.file_read, path, timeout_ms=5000)
        fails(None, session.file_write, path, b"x", timeout_ms=5000)
    assert fails(E_INVAL, session.file_read, "/tmp/fifo").errno == errno.EINVAL
    assert fails(E_INVAL, session.file_read, "/dev/zero").errno == errno.EINVAL


def test_links_that_change_all_the_time(session: Session, workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("outside")
    session.execute(
        f"""
import os
os.makedirs('real', exist_ok=True); open('real/f', 'w').write('inside')
while True:
    os.symlink({str(tmp_path)!r}, 'l.new'); os.rename('l.new', 'l')
    os.symlink('real', 'l.new'); os.rename('l.new', 'l')
"""
    )
    for _ in range(rounds(100)):
        with contextlib.suppress(CellgateError):
            session.file_write(workspace / "l/secret", b"changed")
    assert secret.read_text() == "outside"


def test_refused_operations_cost_nothing_of_the_window(session: Session, workspace: Path) -> None:
    """Beside output that nobody has read, there is room for the events of two cells, but not of the refusals."""
    session.run("1")
    session.execute("print('x' * ((8 << 20) - (64 << 10))); open('printed', 'w').close()")
    eventually((workspace / "printed").exists)
    numbers = {session.exec("sleep", "1000") for _ in range(64)}
    for _ in range(1000):
        fails(None, session.file_mkdir, "/tmp/new")
    session.execute("1")
    session.execute("open('after', 'w').close()")
    eventually((workspace / "after").exists)
    for n in numbers:
        session.cancel(n)
    while numbers:
        e = session.next()
        assert e is not None
        numbers -= {e.cell} if e.type == "command_result" else set()
    assert session.command("echo", "x")[1] == b"x\n"
    assert session.run("print(1)").stdout == "1\n"


def test_a_timeout_while_the_host_sends_nothing(session: Session) -> None:
    session.command("true")
    r, w = os.pipe()
    os.write(w, b"x" * 60_000)
    fails(E_TIMEDOUT, session.file_put, "/tmp/partial", r, timeout_ms=700)
    os.close(r), os.close(w)
    for _ in range(100):
        names = [e["name"] for e in session.file_list("/tmp")]
        if not any(n.startswith("partial") for n in names):
            return
        time.sleep(0.02)
    pytest.fail(f"{names} are left")


def test_a_timeout_while_the_host_reads_nothing(session: Session) -> None:
    session.run("open('/tmp/endless', 'w').truncate(1 << 40)")
    r, w = os.pipe()
    fails(E_TIMEDOUT, session.file_get, "/tmp/endless", w, timeout_ms=700)
    with open("/dev/null", "w") as null:
        fails(E_TIMEDOUT, session.file_get, "/tmp/endless", null.fileno(), timeout_ms=700)
        fails(E_LIMIT, session.file_get, "/tmp/endless", null.fileno(), max=1_000_000)
    os.close(r), os.close(w)


def test_output_of_operations_cannot_be_forged(session: Session) -> None:
    forge = """
import os, time
print('ready', flush=True)
while True:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if open(f'/proc/{pid}/comm').read() != 'cg-command\\n' or int(pid) == os.getppid(): continue
            fd = os.open(f'/proc/{pid}/fd/1', os.O_WRONLY | os.O_NONBLOCK)
            os.write(fd, b'FORGED')
            os.close(fd)
        except OSError: pass
"""
    session.run("import os\nos.mkdir('/tmp/many')\nfor i in range(5000): open(f'/tmp/many/{i}', 'w')")
    number = session.exec("python3", "-c", forge)
    session.until("command_output")
    for _ in range(8):
        assert len(session.file_list("/tmp/many")) == 5000
    session.cancel(number)


def test_errors_of_programs(session: Session, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"no archive" * 1000)
    with bad.open("rb") as f:
        e = fails(E_SYS, session.file_unpack, "/tmp", f.fileno())
    assert e.errno == 0 and "exit status 2" in str(e)
    assert r"\x1b" in str(fails(E_NOTFOUND, session.file_read, "/tmp/\x1b[31m"))  # shown safely


def test_odd_files(session: Session) -> None:
    assert b"Name:" in session.file_read("/proc/self/status")
    session.file_mkdir("/tmp/m/", mode=0o700)
    assert session.file_stat("/tmp/m")["mode"] == 0o700
    session.run("import os; open('/tmp/t', 'w'); os.utime('/tmp/t', (0, 1 << 40))")
    assert session.file_stat("/tmp/t")["mtime_ns"] > 0
    session.run("open('/tmp/long', 'w'); d = '/tmp/' + 'b' * 250; open(d, 'w').write('old')")
    for name in ("b" * 250, "c" * 255):
        session.file_write("/tmp/" + name, b"new")
        assert session.file_read("/tmp/" + name) == b"new"
    fails(None, session.file_write, "/tmp/" + "d" * 256, b"new")
