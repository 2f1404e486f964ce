"""Files that a cell made or changed, in its RESULT."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import web
from cellgate_api import CellgateError, Client, Session
from rounds import rounds

D = "/tmp/artifacts"


@pytest.fixture
def s(used: Session) -> Session:
    """The session of this file's tests, in an empty folder D."""
    assert used.command("rm", "-rf", D)[0].json == {"exit_code": 0}
    assert used.run(f"import os, signal, time; D = {D!r}; os.makedirs(D); os.chdir(D)").status == "ok"
    return used


def wait_for_tick() -> None:
    """Until earlier changes do not count as the next cell's: those of up to 10 ms before it do."""
    time.sleep(0.02)


def artifacts(s: Session, code: str, setup: str = "") -> dict[str, Any]:
    """What a cell with this code has; "files" by their names below D."""
    if setup:
        assert s.run(setup).status == "ok"
    wait_for_tick()
    found = s.run(code, artifacts=1).result.artifacts
    assert found.keys() <= {"files", "truncated"}
    files = {f.get("path", f.get("path_hex")): f for f in found["files"]}
    assert len(files) == len(found["files"])
    return found | {"files": {p.removeprefix(D + "/"): f for p, f in files.items()}}


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


def test_made_changed_and_renamed(s: Session) -> None:
    setup = "os.mkdir('sub'); [open(n, 'w').write(n) for n in ('kept', 'changed', 'gone', 'moved', 'sub/same')]"
    code = """
open('changed', 'a').write('!')
os.remove('gone'); os.rename('moved', 'sub/moved')
os.makedirs('sub/a'); open('sub/a/new', 'wb').write(b'new' * 100000)
open('empty', 'w')
open('short-lived', 'w'); os.remove('short-lived')
"""
    assert artifacts(s, code, setup) == {
        "files": {
            name: {"path": f"{D}/{name}", "size": len(data), "sha256": sha256(data)}
            for name, data in {
                "changed": b"changed!",
                "sub/moved": b"moved",
                "sub/a/new": b"new" * 100000,
                "empty": b"",
            }.items()
        }
    }


def test_only_cells_that_ask_for_it(s: Session) -> None:
    out = s.run("open('a', 'w')")
    assert out.result.artifacts is None
    assert all(e.artifacts is None for e in s.run("print(1)", artifacts=1).events[:-1])


def test_nothing_changes_by_reading(s: Session) -> None:
    code = "open('a').read(); os.listdir(); os.stat('a'); print(1)"
    assert artifacts(s, code, "open('a', 'w').write('x'); os.mkdir('b')") == {"files": {}}


def test_the_workspace(s: Session, work: Path) -> None:
    s.run(f"os.chdir({str(work)!r}); open('old', 'w')")
    code = f"open('report', 'w').write('x'); open({str(work / 'other')!r}, 'w').write('y')"
    assert artifacts(s, code)["files"].keys() == {str(work / "report"), str(work / "other")}
    assert (work / "report").read_text() == "x"


def test_cells_that_fail_or_are_cancelled(s: Session) -> None:
    for name, code, status in (("a", "1 / 0", "error"), ("b", "time.sleep(100)", "timeout")):
        out = s.run(f"open({name!r}, 'w')\n{code}", artifacts=1, timeout_ms=700)
        assert out.status == status
        assert [f["path"] for f in out.result.artifacts["files"]] == [f"{D}/{name}"]
        wait_for_tick()
    s.execute("open('c', 'w'); print('go')\ntime.sleep(100)", artifacts=1)
    s.until("stream")
    s.cancel()
    result = s.until("result")[-1]
    assert result.status == "cancelled" and [f["path"] for f in result.artifacts["files"]] == [f"{D}/c"]


def test_a_kernel_that_dies(s: Session) -> None:
    out = s.run("open('a', 'w'); os._exit(3)", artifacts=1)
    assert out.status == "kernel_died" and out.result.artifacts["files"] == []
    assert "status 3" in out.result.artifacts["truncated"]
    assert s.run("1", artifacts=1).result.artifacts == {"files": []}


def test_cells_that_wait_have_their_own(s: Session) -> None:
    for name in "abc":
        s.execute(f"open({name!r}, 'w')", artifacts=1)
    for name in "abc":
        assert [f["path"] for f in s.until("result")[-1].artifacts["files"]] == [f"{D}/{name}"]


def test_a_cell_that_is_dropped_from_the_queue(s: Session) -> None:
    s.execute("open('a', 'w'); print('go')\ntime.sleep(100)", artifacts=1)
    waiting = s.execute("open('b', 'w')", artifacts=1)
    s.until("stream")
    s.cancel(waiting)
    assert s.until("result")[-1].artifacts is None
    s.cancel()
    assert s.until("result")[-1].artifacts is not None


def test_every_change_of_a_cell_and_none_of_the_one_before(s: Session) -> None:
    """Changes right before the end and right after the start, many of them in the same tick of the clock."""
    n = rounds(60)
    for i in range(n):
        s.execute(f"open('f', 'w').write('{i}'); open('a{i}', 'w')", artifacts=1)
        s.execute(f"open('g', 'w').write('{i}'); open('b{i}', 'w')", artifacts=1)
        s.execute("pass", artifacts=1)
    for i in range(n):
        for wanted in ({"f", f"a{i}"}, {"g", f"b{i}"}, set()):
            found = s.until("result")[-1].artifacts
            assert {f["path"] for f in found["files"]} == {f"{D}/{n}" for n in wanted}


def test_other_programs_count_as_well(s: Session, work: Path) -> None:
    s.execute("print('go')\nwhile not os.path.exists('end'): time.sleep(0.01)", artifacts=1)
    s.until("stream")
    (work / "of-the-host").write_text("x")
    s.file_write(f"{D}/end", b"")
    found = s.until("result")[-1].artifacts["files"]
    assert {f["path"] for f in found} == {f"{D}/end", str(work / "of-the-host")}


def test_subshells(s: Session) -> None:
    shell = s.ask("create_subshell_request", {}).json["subshell_id"]
    cells = [s.execute(f"open('{i}', 'w')", artifacts=1, subshell=shell if i % 2 else None) for i in range(10)]
    results = {}
    while len(results) < 10:
        e = s.until("result")[-1]
        results[e.cell] = {f["path"] for f in e.artifacts["files"]}
    for i, cell in enumerate(cells):
        assert f"{D}/{i}" in results[cell]


def test_folders_that_are_only_read_are_not_searched(client: Client, workspace: Path) -> None:
    for name in ("read", "read/in", "hidden"):
        (workspace / name).mkdir()
    settings = web.settings(
        filesystem={"allowWrite": [".", "./read/in"], "denyWrite": ["./read"], "denyRead": ["./hidden"]}
    )
    with client.session(workspace=workspace, settings=settings) as s:
        s.execute("print('go'); input()", allow_stdin=1, artifacts=1)
        s.until("input_request")
        for name in ("read/a", "hidden/a", "b"):
            (workspace / name).write_text("x")
        s.input("")
        found = s.until("result")[-1].artifacts
        assert {f["path"] for f in found["files"]} == {str(workspace / "b")} and "truncated" not in found


@pytest.mark.parametrize("tier", ["landlock:accept", "off"])
def test_other_tiers(client: Client, workspace: Path, tier: str) -> None:
    try:
        more = {"sandbox": 1} if tier == "off" else {"tier": tier}
        session = client.session(workspace=workspace, **more)
    except CellgateError as e:
        pytest.skip(str(e))
    with session as s:
        code = "import tempfile, os\nopen('a', 'w')\nf = tempfile.NamedTemporaryFile(delete=False)\nf.name"
        out = s.run(code, artifacts=1)
        wanted = {str(workspace / "a")} | ({(out.value or "").strip("'")} if tier != "off" else set())
        assert {f["path"] for f in out.result.artifacts["files"]} == wanted
        assert s.run("pass", artifacts=1).result.artifacts == {"files": []}
        s.run("os.remove(f.name)")


# ------------------------------------------------------------------ attacks


def test_changes_that_are_hidden_by_times(s: Session) -> None:
    """The same size, file and modification time."""
    setup = "open('a', 'w').write('old')"
    code = "t = os.stat('a'); open('a', 'r+').write('new'); os.utime('a', ns=(t.st_atime_ns, t.st_mtime_ns))"
    assert artifacts(s, code, setup)["files"]["a"]["sha256"] == sha256(b"new")


def test_links_are_not_followed(s: Session, work: Path) -> None:
    (work / "elsewhere").mkdir()
    (work / "elsewhere/f").write_text("x")
    target = str(work / "elsewhere")
    code = f"os.symlink({target!r}, 'd'); os.symlink({target + '/f'!r}, 'f'); os.symlink('.', 'loop')"
    assert artifacts(s, code) == {"files": {}}


def test_names_that_become_links_all_the_time(s: Session) -> None:
    """Nothing of the other folder is ever named, and nothing of the other file read."""
    s.run("os.mkdir('d'); open('d/in', 'w').write('in'); open('f', 'w').write('in')")
    s.run("os.symlink('/usr/share', 'other-d'); os.symlink('/etc/hosts', 'other-f')")
    with loop(s, exchange("d", "other-d") + exchange("f", "other-f")):
        for _ in range(rounds(200, 20)):
            files = artifacts(s, "open('f', 'a')")["files"]
            assert files.keys() <= {"d/in", "other-d/in", "f", "other-f"}
            assert {f.get("sha256", sha256(b"in")) for f in files.values()} <= {sha256(b"in")}


def test_files_that_become_fifos_all_the_time(s: Session) -> None:
    s.run("open('f', 'w').write('in'); os.mkfifo('fifo')")
    with loop(s, exchange("f", "fifo")):
        for _ in range(rounds(200, 20)):
            for f in artifacts(s, "pass")["files"].values():
                assert f.get("sha256", sha256(b"in")) == sha256(b"in")


def test_special_files_are_not_opened(s: Session) -> None:
    assert artifacts(s, "[os.mkfifo(n) for n in ('a', 'b')]") == {"files": {}}


def test_sparse_giants(s: Session) -> None:
    code = "for i in range(30): open(f'{i}', 'wb').truncate(1 << 40)\nopen('small', 'w').write('x')"
    result = artifacts(s, code)
    assert result["files"]["0"] == {"path": f"{D}/0", "size": 1 << 40}
    assert len(result["files"]) == 31 and result["files"]["small"]["sha256"] == sha256(b"x")


def test_digests_of_all_files_have_a_limit(s: Session) -> None:
    files = artifacts(s, "for i in range(5): open(f'{i}', 'wb').truncate(64 << 20)")["files"].values()
    hashed = [f for f in files if "sha256" in f]
    assert len(files) == 5 and len(hashed) <= 4 and {f["sha256"] for f in hashed} <= {sha256(bytes(64 << 20))}


def test_files_that_grow_all_the_time(s: Session) -> None:
    s.run("open('f', 'w')")
    with loop(s, "with open('f', 'ab') as f: f.write(bytes(1 << 20)) if f.tell() < 200 << 20 else f.truncate(0)"):
        for _ in range(rounds(10, 4)):
            (f,) = artifacts(s, "open('f', 'ab').write(b'\\0')")["files"].values()
            assert "sha256" not in f or f["sha256"] == sha256(bytes(f["size"]))


def test_hard_links_and_names(s: Session) -> None:
    """Names that are not UTF-8, control characters, JSON's own, and all at once."""
    result = artifacts(s, "os.link('a', 'b'); open('b', 'a').write('!')", "open('a', 'w').write('x')")
    assert {n: f["sha256"] for n, f in result["files"].items()} == {"a": sha256(b"x!"), "b": sha256(b"x!")}
    names = [b"\xff", b'a"\\\n\x1b]', "ä€".encode(), b"x" * 255, b"..."]
    result = artifacts(s, f"for n in {names!r}: open(n, 'w')")
    path = os.fsencode(f"{D}/") + b"\xff"
    assert set(result["files"]) == {path.hex(), 'a"\\\n\x1b]', "ä€", "x" * 255, "..."}


def test_long_names(s: Session) -> None:
    code = "os.chdir(D)\nfor i in range(13): os.mkdir('\\x01' * 250); os.chdir('\\x01' * 250)\n"
    result = artifacts(s, code + "for i in range(1000): open(f'{i}', 'w')\nos.chdir(D)")
    assert "256 KiB of names" in result["truncated"] and result["files"]


def test_unreadable_files_and_folders(s: Session) -> None:
    result = artifacts(s, "open('f', 'w').write('x'); os.chmod('f', 0); os.mkdir('d'); os.chmod('d', 0)")
    try:
        if "sha256" in result["files"]["f"]:
            pytest.skip("this user reads everything")
        assert result["truncated"] == "a folder cannot be read"
    finally:
        s.run("os.chmod('d', 0o700)")


def test_deep_folders(s: Session) -> None:
    code = "open('f', 'w')\nfor i in range(700): os.mkdir('d'); os.chdir('d')\nos.chdir('/')"
    result = artifacts(s, code)
    assert "too deep" in result["truncated"] and result["files"].keys() == {"f"}


def test_many_files(s: Session) -> None:
    result = artifacts(s, "for i in range(1500): open(f'{i}', 'w')")
    assert len(result["files"]) == 1000 and result["truncated"] == "more than 1,000 files"


def test_100_000_entries(s: Session) -> None:
    assert "truncated" not in artifacts(s, "for i in range(90000): os.symlink('x', f'{i}')")
    result = artifacts(s, "for i in range(90000, 101000): os.symlink('x', f'{i}')")
    assert result["truncated"] in ("more than 100,000 entries", "the search took longer than 2 s")


ATTACK = """
for p in os.listdir('/proc'):
    try:
        if p.isdigit() and int(p) != os.getppid() and open(f'/proc/{{p}}/comm').read() == 'cg-command\\n':
            os.kill(int(p), signal.{number})
    except OSError: continue
"""


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP"])
def test_searches_that_are_killed_or_stopped(s: Session, number: str) -> None:
    """Never taken for a result without changes: either the right answer or an error, in time."""
    failed = 0
    with loop(s, ATTACK.format(number=number)):
        for _ in range(8):
            found = artifacts(s, "for i in range(4): open(f'{i}', 'wb').truncate(64 << 20)")
            if "truncated" in found:
                failed += 1
            else:
                assert found["files"].keys() == {"0", "1", "2", "3"}
            if failed:
                break
    assert failed
    assert s.run("1").status == "ok"


@pytest.mark.parametrize("end", ["cancel", "cancel-running", "reset", "end", "die"])
def test_ends_while_the_search_is_stopped(client: Client, workspace: Path, end: str) -> None:
    """The RESULT comes at once, and a cell that waited runs only where it should."""
    with client.session(workspace=workspace) as s:
        s.run(f"import os, signal, threading, time; D = {D!r}; os.makedirs(D)")
        attack = "".join(f"    {line}\n" for line in ATTACK.format(number="SIGSTOP").splitlines())
        stopper = s.exec("python3", "-c", f"import os, signal\nprint('ready', flush=True)\nwhile True:\n{attack}")
        s.until("command_output")
        code = "for i in range(4): open(f'{D}/{i}', 'wb').truncate(64 << 20)\nprint('go')\n"  # so that it takes long
        if end == "die":
            code += "threading.Thread(target=lambda: (time.sleep(1), os._exit(3))).start()\n"
        cell = s.execute(code, artifacts=1)
        waiting = s.execute("open('ran', 'w')")
        s.until("stream")
        time.sleep(0.5)
        if end == "end":
            return  # which must not hang
        if end.startswith("cancel"):
            s.cancel(cell if end == "cancel" else 0)
        elif end == "reset":
            s.reset()
        results = {}
        while results.keys() != {cell, waiting}:
            e = s.until("result")[-1]
            results[e.cell] = e
        assert results[cell].status == "ok" and results[cell].artifacts["truncated"]
        ran = end.startswith("cancel")
        assert (results[waiting].status == "ok", (workspace / "ran").exists()) == (ran, ran)
        if ran:
            s.cancel(stopper)


def test_a_host_that_is_away_while_its_cell_is_searched(client: Client, prefix: Path, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        s.run(f"D = {D!r}; import os; os.makedirs(D)")
        with Client(log_level=0) as other, contextlib.suppress(CellgateError):
            other.session(workspace=workspace).execute("print(1)", artifacts=1)
        assert s.run("print(1)", artifacts=1).status == "ok"
