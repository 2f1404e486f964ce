"""Files that cells make and change, found by a snapshot before and a comparison after."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import E_INVAL, E_NOTFOUND, CellgateError, Session

D = "/tmp/artifacts"
TICKS = 5  # CLOCK_REALTIME_COARSE


@pytest.fixture
def s(session: Session) -> Session:
    session.command("bash", "-c", f"rm -rf {D}")
    session.file_mkdir(D)
    return session


def run(s: Session, code: str) -> None:
    out = s.run(f"import os; D = {D!r}; os.chdir(D)\n{code}")
    assert out.error is None, out.error


def changes(s: Session, code: str, setup: str = "") -> dict[str, Any]:
    """What the code changes; "files" by their names."""
    run(s, setup)
    before = s.file_snapshot(D)
    run(s, code)
    result = s.file_changes(D, before)
    return result | {"files": {f.get("path", f.get("path_hex")): f for f in result["files"]}}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def loop(s: Session, code: str) -> Iterator[None]:
    """A program that repeats the code until the block ends."""
    body = "".join(f"        {line}\n" for line in code.strip().splitlines())
    head = f"import os, signal\nos.chdir({D!r})\nprint('ready', flush=True)\nwhile True:\n    try:\n"
    number = s.exec("python3", "-c", head + body + "    except OSError: pass\n")
    s.until("command_output")
    yield
    s.cancel(number)
    s.wait_command(number)


def exchange(a: str, b: str) -> str:
    """Code that swaps two names (renameat2(), RENAME_EXCHANGE)."""
    return f"import ctypes\nctypes.CDLL(None).renameat2(-100, b'{a}', -100, b'{b}', 2)\n"


def test_made_changed_and_removed(s: Session) -> None:
    setup = "os.mkdir('sub'); [open(n, 'w').write(n) for n in ('kept', 'changed', 'gone', 'moved', 'sub/same')]"
    code = """
open('changed', 'a').write('!')
os.remove('gone'); os.rename('moved', 'sub/moved')
os.makedirs('sub/a'); open('sub/a/new', 'wb').write(b'new' * 100000)
open('empty', 'w')
"""
    result = changes(s, code, setup)
    assert result == {
        "files": {
            "changed": {"path": "changed", "size": 8, "new": False, "sha256": sha256(b"changed!")},
            "sub/moved": {"path": "sub/moved", "size": 5, "new": True, "sha256": sha256(b"moved")},
            "sub/a/new": {"path": "sub/a/new", "size": 300000, "new": True, "sha256": sha256(b"new" * 100000)},
            "empty": {"path": "empty", "size": 0, "new": True, "sha256": sha256(b"")},
        },
        "removed": 2,
        "others": 0,
        "skipped": {"files": 0, "hashes": 0, "unreadable": 0, "entries": False},
        "complete": True,
    }


def test_nothing_changes_by_reading(s: Session) -> None:
    result = changes(s, "open('a').read(); os.listdir(); os.stat('a')", "open('a', 'w').write('x'); os.mkdir('b')")
    assert (result["files"], result["removed"], result["complete"]) == ({}, 0, True)


def test_everything_counts_without_a_snapshot(s: Session) -> None:
    s.file_write(f"{D}/a", b"x")
    for none in (None, b""):
        assert s.file_changes(D, none)["files"] == [{"path": "a", "size": 1, "new": True, "sha256": sha256(b"x")}]


def test_the_workspace_by_a_relative_path(session: Session, workspace: Path) -> None:
    (workspace / "out").mkdir()
    before = session.file_snapshot("out")
    session.run(f"open({str(workspace / 'out/report')!r}, 'w').write('x')")
    assert [f["path"] for f in session.file_changes("out", before)["files"]] == ["report"]
    assert [f["path"] for f in session.file_changes(workspace / "out", before)["files"]] == ["report"]


def test_snapshots_outlive_kernels(s: Session, workspace: Path) -> None:
    before = s.file_snapshot(workspace)
    s.reset()
    assert s.file_changes(workspace, before)["files"] == []
    s.file_write(workspace / "late", b"")
    assert [f["path"] for f in s.file_changes(workspace, before)["files"]] == ["late"]


def test_while_a_cell_runs_and_after_its_kernel_died(s: Session) -> None:
    before = s.file_snapshot(D)
    s.execute(f"open('{D}/a', 'w').write('x'); print('go', flush=True)\nwhile True: pass")
    s.until("stream")
    assert [f["path"] for f in s.file_changes(D, before)["files"]] == ["a"]
    s.cancel()


def test_mistakes(s: Session) -> None:
    def code(call: Any, *args: Any) -> int:
        with pytest.raises(CellgateError) as e:
            call(*args)
        return e.value.code

    assert code(s.file_snapshot, f"{D}/none") == E_NOTFOUND
    assert code(s.file_changes, f"{D}/none", b"") == E_NOTFOUND
    s.file_write(f"{D}/file", b"")
    with pytest.raises(CellgateError) as e:
        s.file_snapshot(f"{D}/file")
    assert e.value.errno == errno.ENOTDIR
    whole = s.file_snapshot(D)
    for wrong in (b"x", b"\n", whole[:-1], whole + b"x", whole * 20001, b"x" * 5_000_000):
        assert code(s.file_changes, D, wrong) == E_INVAL


# ------------------------------------------------------------------ attacks


def test_changes_that_are_hidden_by_times(s: Session) -> None:
    """The same size, file and modification time; right after the snapshot, in the same tick of the clock."""
    setup = "open('a', 'w').write('old')"
    code = "t = os.stat('a'); open('a', 'r+').write('new'); os.utime('a', ns=(t.st_atime_ns, t.st_mtime_ns))"
    assert changes(s, code, setup)["files"]["a"]["sha256"] == sha256(b"new")


def test_changes_in_the_same_tick_of_the_clock(session: Session, workspace: Path) -> None:
    """Two changes of a file with the same ctime, before and after the snapshot, would look the same."""
    (workspace / "sub").mkdir()
    for _ in range(40):
        start = time.clock_gettime_ns(TICKS)
        while time.clock_gettime_ns(TICKS) == start:
            pass
        (workspace / "sub/f").write_text("old")
        before = session.file_snapshot("sub")
        assert time.clock_gettime_ns(TICKS) > (workspace / "sub/f").stat().st_ctime_ns
        with (workspace / "sub/f").open("r+") as f:
            f.write("new")
        assert [f["path"] for f in session.file_changes("sub", before)["files"]] == ["f"]


def test_links_are_not_followed(s: Session, workspace: Path) -> None:
    (workspace / "elsewhere").mkdir()
    (workspace / "elsewhere/f").write_text("x")
    target = str(workspace / "elsewhere")
    result = changes(s, f"os.symlink({target!r}, 'd'); os.symlink({target + '/f'!r}, 'f'); os.symlink('.', 'loop')")
    assert (result["files"], result["others"], result["complete"]) == ({}, 3, True)


def test_names_that_become_links_all_the_time(s: Session) -> None:
    """Nothing of the other folder is ever named, and nothing of the other file read."""
    run(s, "os.mkdir('d'); open('d/in', 'w').write('in'); open('f', 'w').write('in')")
    run(s, "os.symlink('/usr/share', 'other-d'); os.symlink('/etc/hosts', 'other-f')")
    with loop(s, exchange("d", "other-d") + exchange("f", "other-f")):
        for _ in range(400):
            files = s.file_changes(D, b"")["files"]
            assert {f["path"] for f in files} <= {"d/in", "other-d/in", "f", "other-f"}
            assert {f.get("sha256", sha256(b"in")) for f in files} <= {sha256(b"in")}


def test_files_that_become_fifos_all_the_time(s: Session) -> None:
    run(s, "open('f', 'w').write('in'); os.mkfifo('fifo')")
    with loop(s, exchange("f", "fifo")):
        for _ in range(400):
            for f in s.file_changes(D, b"", timeout_ms=10000)["files"]:
                assert f.get("sha256", sha256(b"in")) == sha256(b"in")


def test_special_files_are_not_opened(s: Session) -> None:
    result = changes(s, "[os.mkfifo(n) for n in ('a', 'b')]")
    assert (result["files"], result["others"]) == ({}, 2)


def test_sparse_giants(s: Session) -> None:
    code = "for i in range(30): open(f'{i}', 'wb').truncate(1 << 40)\nopen('small', 'w').write('x')"
    started = time.monotonic()
    result = changes(s, code)
    assert time.monotonic() - started < 20
    assert result["files"]["0"] == {"path": "0", "size": 1 << 40, "new": True}
    assert result["skipped"]["hashes"] == 30 and result["complete"]
    assert result["files"]["small"]["sha256"] == sha256(b"x")


def test_digests_of_all_files_have_a_limit(s: Session) -> None:
    result = changes(s, "for i in range(5): open(f'{i}', 'wb').truncate(64 << 20)")
    hashed = [f for f in result["files"].values() if "sha256" in f]
    assert len(hashed) == 4 and {f["sha256"] for f in hashed} == {sha256(bytes(64 << 20))}
    assert result["skipped"]["hashes"] == 1 and result["complete"]


def test_files_that_grow_all_the_time(s: Session) -> None:
    run(s, "open('f', 'w')")
    with loop(s, "with open('f', 'ab') as f: f.write(bytes(1 << 20)) if f.tell() < 200 << 20 else f.truncate(0)"):
        for _ in range(20):
            (f,) = s.file_changes(D, b"", timeout_ms=20000)["files"]
            assert "sha256" not in f or f["sha256"] == sha256(bytes(f["size"]))


def test_hard_links(s: Session) -> None:
    result = changes(s, "os.link('a', 'b'); open('b', 'a').write('!')", "open('a', 'w').write('x')")
    assert {n: (f["new"], f["sha256"]) for n, f in result["files"].items()} == {
        "a": (False, sha256(b"x!")),
        "b": (True, sha256(b"x!")),
    }


def test_names(s: Session) -> None:
    """Not UTF-8, control characters, JSON's own, and all at once."""
    names = [b"\xff", b'a"\\\n\x1b]', "ä€".encode(), b"x" * 255, b"..."]
    result = changes(s, f"for n in {names!r}: open(n, 'w')")
    assert set(result["files"]) == {"ff", 'a"\\\n\x1b]', "ä€", "x" * 255, "..."}
    assert result["files"]["ff"].keys() >= {"path_hex"} and "path" not in result["files"]["ff"]


def test_unreadable_files_and_folders(s: Session) -> None:
    result = changes(s, "open('f', 'w').write('x'); os.chmod('f', 0); os.mkdir('d'); os.chmod('d', 0)")
    try:
        if "sha256" in result["files"]["f"]:
            pytest.skip("this user reads everything")
        assert result["skipped"] == {"files": 0, "hashes": 1, "unreadable": 1, "entries": False}
        assert result["removed"] is None and not result["complete"]
    finally:
        run(s, "os.chmod('d', 0o700)")


def test_deep_folders(s: Session) -> None:
    code = "for i in range(700): os.mkdir('d'); os.chdir('d'); open('f', 'w')\nos.chdir('/')"
    result = changes(s, code)
    assert not result["complete"] and result["skipped"]["unreadable"] and result["removed"] is None
    assert "d/d/d/f" in result["files"]


def test_many_files(s: Session) -> None:
    result = changes(s, "for i in range(1500): open(f'{i}', 'w')")
    assert len(result["files"]) == 1000 and result["skipped"]["files"] == 500 and not result["complete"]
    assert result["removed"] == 0


def test_100_000_entries(s: Session) -> None:
    before = s.file_snapshot(D)
    run(s, "for i in range(100000): os.symlink('x', f'{i}')")
    started = time.monotonic()
    result = s.file_changes(D, before)
    assert result["skipped"]["entries"] and not result["complete"] and result["removed"] is None
    with pytest.raises(CellgateError, match="more than 20000 entries") as e:
        s.file_snapshot(D)
    assert e.value.errno == errno.E2BIG
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP"])
def test_operations_that_are_killed_or_stopped(s: Session, number: str) -> None:
    """Never taken for a result without changes: either the right answer or an error, in time."""
    run(s, "for i in range(4): open(f'{i}', 'wb').truncate(64 << 20)")  # so that it takes long
    end = time.monotonic() + 40
    attack = f"""
for p in os.listdir('/proc'):
    try:
        if p.isdigit() and int(p) != os.getppid() and open(f'/proc/{{p}}/comm').read() == 'cg-command\\n':
            os.kill(int(p), signal.{number})
    except OSError: continue
"""
    failed = 0
    with loop(s, attack):
        for _ in range(4):
            try:
                files = s.file_changes(D, b"", timeout_ms=1500)["files"]
                assert sorted(f["path"] for f in files) == ["0", "1", "2", "3"]
            except CellgateError:
                failed += 1
    assert failed and time.monotonic() < end
