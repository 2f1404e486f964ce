"""Attacks of a sandbox's programs on the host's file operations: they reach nothing, and no operation waits for them."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import web
from cellgate_api import E_LIMIT, E_NOTFOUND, E_TIMEDOUT, CellgateError, Client, Session
from processes import eventually
from rounds import ALL, rounds

SECRET = "outside of the sandbox"


class Scene:
    """A session whose settings hide a folder and fix others; a program inside attacks."""

    def __init__(self, session: Session, workspace: Path, hidden: Path) -> None:
        self.s = session
        self.workspace = workspace
        self.hidden = hidden

    def run(self, code: str) -> str:
        out = self.s.run("import os, socket, threading, time\n" + code)
        assert out.error is None, out.error
        return out.stdout

    @contextlib.contextmanager
    def loop(self, code: str) -> Iterator[None]:
        """A program that repeats the code until the block ends."""
        body = "".join(f"        {line}\n" for line in code.strip().splitlines())
        text = "import os, sys, time\nprint('ready', flush=True)\nwhile True:\n    try:\n" + body
        number = self.s.exec("python3", "-c", text + "    except OSError: pass\n")
        self.s.until("command_output")
        try:
            yield
        finally:
            self.s.cancel(number)
            self.s.wait_command(number)

    def refused(self, name: str, *args: object, codes: tuple[int, ...] = ()) -> CellgateError:
        with pytest.raises(CellgateError) as e:
            getattr(self.s, name)(*args)
        assert not codes or e.value.errno in codes, (e.value, e.value.errno)
        return e.value

    def check(self) -> None:
        """Nothing that was to be kept has changed, and the session works."""
        assert {p.name: p.read_text() for p in self.hidden.iterdir()} == {"key": SECRET}
        assert (self.workspace / "fixed/file").read_text() == "fixed"
        assert sorted(os.listdir(self.workspace / "fixed")) == ["file"]
        assert (self.workspace / ".git/config").read_text() == "[core]\n"
        assert os.listdir(self.workspace / ".git/hooks") == []
        self.s.file_write("/tmp/last", b"works")
        assert self.s.file_read("/tmp/last") == b"works"


@pytest.fixture(scope="module")
def scene_of_module(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    workspace = tmp_path_factory.mktemp("workspace")
    hidden = workspace / "hidden"  # in a folder that the sandbox may write to
    hidden.mkdir()
    (hidden / "key").write_text(SECRET)
    (workspace / "fixed").mkdir()
    (workspace / "fixed/file").write_text("fixed")
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / ".git/config").write_text("[core]\n")
    (workspace / ".git/HEAD").write_text("ref: refs/heads/main\n")
    rules = {"allowWrite": ["."], "denyRead": [str(hidden)], "denyWrite": ["./fixed"]}
    network: dict[str, list[str]] = {"allowedDomains": [], "deniedDomains": []}
    settings = json.dumps({"filesystem": rules, "network": network})
    with client.session(workspace=workspace, settings=settings) as session:
        yield Scene(session, workspace, hidden)


@pytest.fixture
def scene(scene_of_module: Scene) -> Iterator[Scene]:
    scene_of_module.run("os.makedirs('/tmp/a', exist_ok=True)")
    yield scene_of_module
    scene_of_module.check()
    scene_of_module.s.command("bash", "-c", "chmod -R u+rwx /tmp/a; rm -rf /tmp/a")


# ------------------------------------------------------------------ what must not be reached


def test_hidden_files(scene: Scene) -> None:
    """By every name that leads to them."""
    hidden = scene.hidden
    scene.run(f"os.symlink({str(hidden)!r}, '/tmp/a/l'); os.symlink({str(hidden / 'key')!r}, '/tmp/a/k')")
    names = [
        hidden / "key",
        "/tmp/a/l/key",
        "/tmp/a/k",
        f"/tmp/../{hidden}/key",
        f"/proc/self/root{hidden}/key",
        f"/proc/1/root{hidden}/key",
        f"/proc/self/task/1/root{hidden}/key",
        f"/proc/self/cwd/../../../../../../..{hidden}/key",
        f"/dev/fd/../../root{hidden}/key",
    ]
    for name in names:
        scene.refused("file_read", name)
        scene.refused("file_write", name, b"changed")
        if name != "/tmp/a/k":  # that link itself may be moved
            scene.refused("file_rename", name, "/tmp/a/moved")
            scene.refused("file_rename", "/tmp/a/l", name)
    pids = scene.run("print(*filter(str.isdigit, os.listdir('/proc')))").split()
    for pid in pids:
        scene.refused("file_read", f"/proc/{pid}/root{hidden}/key")
    with contextlib.suppress(CellgateError):
        assert "key" not in [e["name"] for e in scene.s.file_list(hidden)]
    with contextlib.suppress(CellgateError):
        scene.s.file_remove(hidden)


def test_links_to_hidden_files_that_change_all_the_time(scene: Scene) -> None:
    scene.run("os.mkdir('/tmp/a/real'); open('/tmp/a/real/key', 'w').write('inside')")
    swap = f"""
os.symlink({str(scene.hidden)!r}, '/tmp/a/new'); os.rename('/tmp/a/new', '/tmp/a/l')
os.symlink('real', '/tmp/a/new'); os.rename('/tmp/a/new', '/tmp/a/l')
"""
    with scene.loop(swap):
        for _ in range(rounds(60)):
            with contextlib.suppress(CellgateError):
                assert scene.s.file_read("/tmp/a/l/key") == b"inside"
            with contextlib.suppress(CellgateError):
                scene.s.file_write("/tmp/a/l/key", b"inside")


def test_links_to_fixed_files_that_change_all_the_time(scene: Scene) -> None:
    scene.run("os.makedirs('real', exist_ok=True); open('real/file', 'w'); open('real/config', 'w')")
    swap = "\n".join(
        f"os.symlink('{to}', 'new'); os.rename('new', 'l')" for to in ("fixed", "real", ".git", "real", ".git/hooks")
    )
    names = ["file", "config", "new", "pre-commit"]
    with scene.loop(swap):
        for i in range(rounds(60)):
            path = scene.workspace / "l" / names[i % len(names)]
            for call in (
                lambda p: scene.s.file_write(p, b"changed"),
                lambda p: scene.s.file_mkdir(p / "x"),
                lambda p: scene.s.file_rename(scene.workspace / "real/file", p),
            ):
                with contextlib.suppress(CellgateError):
                    call(path)
            with contextlib.suppress(CellgateError):
                scene.s.file_remove(path)


def test_fixed_files_by_every_operation(scene: Scene) -> None:
    w = scene.workspace
    scene.run(
        "open('/tmp/a/f', 'w').write('changed'); open('f', 'w').write('changed'); os.makedirs('d/x', exist_ok=True)"
    )
    for target in ("fixed/file", "fixed/new", ".git/config", ".git/hooks/pre-commit", ".bashrc", ".mcp.json"):
        scene.refused("file_write", w / target, b"changed")
        scene.refused("file_rename", w / "f", w / target)
        scene.refused("file_rename", "/tmp/a/f", w / target)
    for target in ("fixed/file", "fixed", ".git/config", ".git"):
        scene.refused("file_remove", w / target)
        scene.refused("file_rename", w / target, w / "moved")
    for target in ("fixed/x", ".git/hooks/x", "fixed/x/y"):
        scene.refused("file_mkdir", w / target)
    scene.refused("file_rename", w / "d", w / "fixed")
    scene.refused("file_rename", w / "d", w / ".vscode")


def test_archives_with_names_that_lead_out(scene: Scene) -> None:
    """They end where `tar` of the sandbox may write: this one is a program as any other."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(scene.workspace / "fixed")
        t.addfile(link)
        names = ["link/new", "../../../../../../../../var/tmp/x", "/usr/new", str(scene.hidden / "new"), "ok"]
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            t.addfile(member, io.BytesIO(b"x"))
    r, w = os.pipe()
    with os.fdopen(w, "wb") as f:
        f.write(data.getvalue())
    with contextlib.suppress(CellgateError):
        scene.s.file_unpack("/tmp/a", r)
    os.close(r)
    assert not Path("/var/tmp/x").exists() and not Path("/usr/new").exists()
    for options in ("--checkpoint-action=exec=touch /tmp/a/ran", "-I sh", "--to-command=sh"):
        with open("/dev/null", "r+") as null:
            scene.refused("file_unpack", options, null.fileno())
            scene.refused("file_pack", options, null.fileno())
    scene.run("os.mkdir('/tmp/a/d'); open('/tmp/a/d/--checkpoint=1', 'w'); open('/tmp/a/d/-Ish', 'w')")
    with open("/dev/null", "w") as null:
        scene.s.file_pack("/tmp/a/d", null.fileno())


def test_the_private_tmp(scene: Scene) -> None:
    name = f"/tmp/cellgate-private-{os.getpid()}"
    Path(name).write_text(SECRET)
    try:
        scene.refused("file_read", name, codes=(errno.ENOENT,))
        scene.s.file_write(name, b"inside")
        assert Path(name).read_text() == SECRET
        scene.s.file_remove(name)
        assert Path(name).read_text() == SECRET
    finally:
        Path(name).unlink()


def test_files_of_the_system(scene: Scene) -> None:
    """Replacing needs a new file beside them, and none of these folders takes one."""
    proc = ["self/exe", "self/mem", "1/mem", "self/oom_score_adj/x", "sysrq-trigger", "sys/kernel/core_pattern"]
    proc += ["self/fd/1", "self/root/usr/new", "self/attr/current"]
    others = ["/usr/bin/env", "/etc/passwd", "/sys/kernel/uevent_helper", "/dev/shm/../../usr/new"]
    for path in [*others, *(f"/proc/{name}" for name in proc)]:
        scene.refused("file_write", path, b"changed")
        scene.refused("file_rename", path, "/tmp/a/moved")
        scene.refused("file_remove", path)


def test_mount_points(scene: Scene) -> None:
    for path in ("/dev/null", "/dev/pts", "/proc", "/dev", "/"):
        scene.refused("file_remove", path)
        scene.refused("file_rename", path, "/tmp/a/moved")
    scene.run("os.mkdir('/tmp/a/d')")
    scene.refused("file_rename", "/tmp/a/d", "/dev/shm")
    scene.refused("file_rename", "/tmp/a/d", "/proc")
    scene.s.file_remove("/tmp/a")  # what it contains; the mount itself is /tmp
    scene.refused("file_remove", "/tmp", codes=(errno.EBUSY, errno.EACCES, errno.EROFS, errno.EPERM))


def test_processes_that_start_commands(scene: Scene) -> None:
    """Neither memory nor descriptors of init, the command server and its runners."""
    pids = scene.run(
        "print(*[p for p in filter(str.isdigit, os.listdir('/proc')) if open(f'/proc/{p}/comm').read()[:3] == 'cg-'])"
    ).split()
    assert pids
    for pid in pids:
        for name in ("mem", "environ", "fd/0", "fd/4", "root/etc/passwd", "exe", "cwd/x", "map_files/x"):
            e = scene.refused("file_read", f"/proc/{pid}/{name}")
            assert e.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EIO), (name, e)


# ------------------------------------------------------------------ what must not be waited for


def test_devices(scene: Scene) -> None:
    for name in ("zero", "random", "full", "tty", "ptmx", "null", "../proc/kmsg", "../proc/self/fd/0"):
        scene.refused("file_read", f"/dev/{name}")
        scene.refused("file_write", f"/dev/{name}", b"x")


def test_fifos_and_sockets(scene: Scene) -> None:
    scene.run(
        """
os.mkfifo('/tmp/a/fifo'); os.mkfifo('/tmp/a/held'); held = os.open('/tmp/a/held', os.O_RDWR)
os.mknod('/tmp/a/socket', 0o140600)
r, w = os.pipe()
for fd in (held, r, w): os.symlink(f'/proc/{os.getpid()}/fd/{fd}', f'/tmp/a/{fd}')"""
    )
    for entry in scene.s.file_list("/tmp/a"):
        path = "/tmp/a/" + entry["name"]
        scene.refused("file_read", path)
        scene.refused("file_write", path, b"x")
        scene.s.file_stat(path)
    with open("/dev/null", "w") as null:
        scene.s.file_pack("/tmp/a", null.fileno())
    scene.s.file_remove("/tmp/a")


def test_a_file_that_is_sometimes_a_fifo(scene: Scene) -> None:
    scene.run("open('/tmp/a/f', 'w').write('x' * 100000)")
    swap = """
os.mkfifo('/tmp/a/new'); os.rename('/tmp/a/new', '/tmp/a/f')
open('/tmp/a/new', 'w').write('x' * 100000); os.rename('/tmp/a/new', '/tmp/a/f')
"""
    with scene.loop(swap):
        for _ in range(rounds(60)):
            with contextlib.suppress(CellgateError):
                assert set(scene.s.file_read("/tmp/a/f", timeout_ms=10000)) == {ord("x")}
            with contextlib.suppress(CellgateError):
                scene.s.file_write("/tmp/a/f", b"x" * 1000)


def test_sparse_giants(scene: Scene) -> None:
    scene.run("open('/tmp/a/f', 'w').truncate(1 << 42)")
    assert scene.s.file_read("/tmp/a/f", offset=(1 << 42) - 5) == bytes(5)
    assert scene.s.file_read("/tmp/a/f", offset=1 << 41, max=10) == bytes(10)
    with open("/dev/null", "w") as null, pytest.raises(CellgateError) as e:
        scene.s.file_get("/tmp/a/f", null.fileno(), max=100_000)
    assert e.value.code == E_LIMIT
    with pytest.raises(CellgateError) as e:
        scene.s.file_read("/tmp/a/f", timeout_ms=300)
    assert e.value.code in (E_TIMEDOUT, E_LIMIT)


def test_files_that_change_their_size(scene: Scene) -> None:
    grow = "open('/tmp/a/f', 'ab').write(bytes(1 << 16)); time.sleep(0.001)"
    with scene.loop(grow):
        eventually(lambda: [e["size"] > 1 << 20 for e in scene.s.file_list("/tmp/a")] == [True], 60)
        with open("/dev/null", "w") as null, pytest.raises(CellgateError) as e:
            scene.s.file_get("/tmp/a/f", null.fileno(), max=1 << 20, timeout_ms=20000)
        assert e.value.code in (E_LIMIT, E_NOTFOUND)
    with scene.loop("os.truncate('/tmp/a/f', 1 << 22); os.truncate('/tmp/a/f', 0)"):
        for _ in range(20):
            assert len(scene.s.file_read("/tmp/a/f")) <= 1 << 22
    assert set(scene.s.file_read("/tmp/a/f")) <= {0}


def test_files_that_change_their_size_on_the_way_to_a_file(scene: Scene, tmp_path: Path) -> None:
    data = os.urandom(1 << 22)
    scene.s.file_write("/tmp/a/f", data)
    loop = f"os.truncate('/tmp/a/f', 1000); os.truncate('/tmp/a/f', {len(data)})"
    with scene.loop(loop):
        for _ in range(20):
            with (tmp_path / "f").open("wb") as f, contextlib.suppress(CellgateError):
                scene.s.file_get("/tmp/a/f", f.fileno(), max=len(data))
            got = (tmp_path / "f").read_bytes()
            # The copy has bytes of the file's first state, then of the second one, and no others.
            same = len(os.path.commonprefix([got, data]))
            assert same >= min(len(got), 1000) and len(got) <= len(data) and set(got[same:]) <= {0}


def test_vanishing_folders(scene: Scene) -> None:
    change = """
os.makedirs('/tmp/a/d/e/f'); open('/tmp/a/d/e/g', 'w').close()
os.unlink('/tmp/a/d/e/g'); os.rmdir('/tmp/a/d/e/f'); os.rmdir('/tmp/a/d/e'); os.rmdir('/tmp/a/d')
"""
    with scene.loop(change):
        for i in range(rounds(80)):
            for call in (
                lambda: scene.s.file_list("/tmp/a/d/e"),
                lambda: scene.s.file_write("/tmp/a/d/e/h", b"x"),
                lambda: scene.s.file_mkdir("/tmp/a/d/e/i/j"),
                lambda: scene.s.file_remove("/tmp/a/d"),
            )[i % 4 :][:1]:
                with contextlib.suppress(CellgateError):
                    call()


def test_removing_while_folders_become_links(scene: Scene) -> None:
    """Of a tree whose folders are swapped with links to others, only the tree's own files are removed."""
    scene.run("os.makedirs('keep/d'); open('keep/d/f', 'w').write('kept'); os.makedirs('/tmp/a/t')")
    # the link is there most of the time, so that the folder is seen and the link is opened
    swap = """
for i in range(100):
    os.mkdir('/tmp/a/t/d'); os.rename('/tmp/a/t/d', '/tmp/a/e'); os.symlink(os.getcwd() + '/keep', '/tmp/a/t/d')
    os.rmdir('/tmp/a/e'); os.unlink('/tmp/a/t/d')
"""
    swap = swap.replace("    os.", "    with contextlib.suppress(OSError): os.").replace(
        "; ", "\n    with contextlib.suppress(OSError): "
    )
    with scene.loop("import contextlib" + swap):
        for _ in range(rounds(150)):
            with contextlib.suppress(CellgateError):
                scene.s.file_remove("/tmp/a/t")
            with contextlib.suppress(CellgateError):
                scene.s.file_mkdir("/tmp/a/t")
    assert (scene.workspace / "keep/d/f").read_text() == "kept"
    scene.s.file_remove("keep")


# ------------------------------------------------------------------ sizes, depths and names


@pytest.mark.skipif(not ALL, reason="ten seconds for 200,000 files: scripts/soak --only races")
def test_many_entries(scene: Scene) -> None:
    """Also more than a list may have."""
    make = "import os, sys\nfor i in range(int(sys.argv[1]), int(sys.argv[2])): os.mknod(f'/tmp/a/{i}')"
    assert scene.s.command("python3", "-c", make, "0", "100000")[0].json == {"exit_code": 0}
    assert len(scene.s.file_list("/tmp/a")) == 100_000
    assert scene.s.command("python3", "-c", make, "100000", "200001")[0].json == {"exit_code": 0}
    scene.refused("file_list", "/tmp/a", codes=(errno.E2BIG,))
    scene.s.file_remove("/tmp/a")
    scene.refused("file_stat", "/tmp/a", codes=(errno.ENOENT,))


def test_deep_folders(scene: Scene) -> None:
    make = """
import os
for half in "ab":  # a path may not be longer, but folders can be moved into others
    os.chdir("/tmp/a")
    for i in range(500): os.mkdir("folder"); os.chdir("folder")
    if half == "a": os.rename("/tmp/a/folder", "/tmp/a/first")
os.rename("/tmp/a/first", "folder")
"""
    assert scene.s.command("python3", "-c", make, cwd="/tmp/a")[0].json == {"exit_code": 0}
    scene.refused("file_remove", "/tmp/a/folder", codes=(errno.ELOOP,))
    assert [e["name"] for e in scene.s.file_list("/tmp/a" + "/folder" * 400)] == ["folder"]
    scene.refused("file_list", "/tmp/a" + "/folder" * 1000)
    scene.refused("file_mkdir", "/tmp/a" + "/folder" * 1000)
    with open("/dev/null", "w") as null, contextlib.suppress(CellgateError):
        scene.s.file_pack("/tmp/a", null.fileno())
    scene.s.file_rename("/tmp/a/folder", "/tmp/deep")  # the sandbox's programs cannot remove it either


def test_names(scene: Scene) -> None:
    names = [b"\xff\xfe", b"new\nline", b"quote\"'\\", b"\x1b[31mred", b"\x7f\t\r", "\u202egnp".encode(), b"x" * 255]
    names += [b"-rf", b'{"name":"forged"}', b'","type":"file"},{"name":"', "\U0001f600".encode(), b" ", b"..."]
    for name in names:
        scene.s.file_write(b"/tmp/a/" + name, name)
    entries = scene.s.file_list("/tmp/a")
    assert {bytes.fromhex(e["name_hex"]) if "name_hex" in e else e["name"].encode() for e in entries} == set(names)
    for name in names:
        assert scene.s.file_read(b"/tmp/a/" + name) == name
        e = scene.refused("file_read", b"/tmp/a/" + name + b"/none")
        assert str(e).isprintable(), repr(str(e))
    for name in (b"x" * 256, (b"d" * 200 + b"/") * 25, b"x/" * 100 + b"y" * 300):
        for operation in ("file_read", "file_list", "file_stat", "file_mkdir", "file_remove"):
            scene.refused(operation, b"/tmp/a/" + name)
        scene.refused("file_write", b"/tmp/a/" + name, b"x")
    scene.refused("file_read", "")
    scene.refused("file_write", "", b"x")


def test_loops_of_links(scene: Scene) -> None:
    scene.run("os.symlink('l', '/tmp/a/l'); os.symlink('n', '/tmp/a/m'); os.symlink('m', '/tmp/a/n')")
    for name in ("l", "m", "l/x"):
        scene.refused("file_read", "/tmp/a/" + name, codes=(errno.ELOOP,))
        scene.refused("file_write", "/tmp/a/" + name, b"x", codes=(errno.ELOOP,))
    assert scene.s.file_stat("/tmp/a/l")["target"] == "l"
    scene.s.file_remove("/tmp/a/l")


# ------------------------------------------------------------------ changes that fail


def test_folders_without_permission(scene: Scene) -> None:
    scene.run("os.mkdir('/tmp/a/d'); open('/tmp/a/d/f', 'w'); os.chmod('/tmp/a/d', 0)")
    for operation in ("file_list", "file_remove"):
        scene.refused(operation, "/tmp/a/d", codes=(errno.EACCES, errno.ENOTEMPTY))
    scene.refused("file_read", "/tmp/a/d/f", codes=(errno.EACCES,))
    scene.run("os.chmod('/tmp/a/d', 0o555)")
    scene.refused("file_write", "/tmp/a/d/f", b"x", codes=(errno.EACCES,))
    assert [e["name"] for e in scene.s.file_list("/tmp/a/d")] == ["f"]


def test_a_target_that_becomes_a_folder(scene: Scene) -> None:
    r, w = os.pipe()
    errors: list[CellgateError] = []

    def put() -> None:
        try:
            scene.s.file_put("/tmp/a/f", r)
        except CellgateError as e:
            errors.append(e)

    thread = threading.Thread(target=put)
    thread.start()
    os.write(w, b"x" * 1000)
    time.sleep(0.3)
    scene.s.command("mkdir", "/tmp/a/f")
    os.close(w)
    thread.join(30)
    os.close(r)
    assert len(errors) == 1 and errors[0].errno in (errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY), errors
    assert [e["name"] for e in scene.s.file_list("/tmp/a")] == ["f"]


def test_the_limit_of_file_size(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, file_bytes=1 << 20) as s:
        s.file_write("f", b"old")
        with pytest.raises(CellgateError):
            s.file_write("f", b"x" * (2 << 20))
        assert s.file_read("f") == b"old" and [e["name"] for e in s.file_list(".")] == ["f"]
        s.file_write("f", b"x" * (1 << 20))


def test_programs_that_end_operations(scene: Scene) -> None:
    """Killed or stopped, they fail in time; the next ones work."""
    scene.run("open('/tmp/a/f', 'w').truncate(1 << 40)")
    for sig in ("KILL", "STOP"):
        line = f"""
echo ready
while :; do for p in /proc/[0-9]*; do
    read -r name < $p/comm; [ "$name" = cg-command ] && [ ${{p#/proc/}} != $PPID ] && kill -{sig} ${{p#/proc/}}
done 2> /dev/null; done"""
        number = scene.s.exec("bash", "-c", line)
        scene.s.until("command_output")
        for _ in range(2):
            with open("/dev/null", "w") as null, pytest.raises(CellgateError):
                scene.s.file_get("/tmp/a/f", null.fileno(), timeout_ms=500)
        scene.s.cancel(number)
        scene.s.wait_command(number)
        for _ in range(5):
            with contextlib.suppress(CellgateError):
                scene.s.file_write("/tmp/a/g", b"x", timeout_ms=8000)
                break
        assert scene.s.file_read("/tmp/a/g") == b"x"


def test_many_at_once(scene: Scene) -> None:
    """More than may run: the others are refused, none waits."""
    scene.run("open('/tmp/a/f', 'w').truncate(1 << 40)")

    def get(_number: int) -> object:
        try:
            with open("/dev/null", "w") as null:
                return scene.s.file_get("/tmp/a/f", null.fileno(), timeout_ms=2000)
        except CellgateError as e:
            return e

    with ThreadPoolExecutor(80) as pool:
        results = list(pool.map(get, range(80), timeout=120))
    assert all(isinstance(r, CellgateError) for r in results), results
    assert E_TIMEDOUT in {r.code for r in results if isinstance(r, CellgateError)}, results


def test_dots(scene: Scene) -> None:
    """Where the folder above the workspace is in the private /tmp, the file is made there."""
    for path in ("../outside", "../../../../../../usr/new", "/tmp/../usr/new", "./fixed/../../outside"):
        with contextlib.suppress(CellgateError):
            scene.s.file_write(path, b"x")
    assert not Path("/usr/new").exists()
    assert not (scene.workspace.parent / "outside").exists()


def test_what_cannot_be_removed_keeps_its_contents(client: Client, workspace: Path) -> None:
    """The workspace, folders above it, mount points, and paths that end in dots."""
    dots = ("d/e/.", "d/e/..", "d/../d/.", f"l/../../{workspace.name}")
    with client.session(workspace=workspace) as s:
        s.run("import os; os.makedirs('d/e/f'); os.symlink('d', 'l'); open('/tmp/mine', 'w').write('x')")
        for path in (".", "./", "..", workspace, "/tmp", *dots):
            with pytest.raises(CellgateError) as e:
                s.file_remove(path)
            assert e.value.errno in (errno.EBUSY, errno.EINVAL), path
            assert (workspace / "d/e/f").is_dir(), path
            assert s.file_read("/tmp/mine") == b"x", path
        s.file_remove("l")
        s.file_remove("./d/")
        assert os.listdir(workspace) == []


def test_a_folder_that_moves_while_a_file_is_written(client: Client, workspace: Path) -> None:
    """In the landlock tier the file has a temporary name meanwhile, which is not left behind."""
    settings = web.settings()
    try:
        session = client.session(workspace=workspace, settings=settings, tier="landlock:accept")
    except CellgateError as e:
        pytest.skip(str(e))
    a, b = workspace / "a", workspace / "b"
    with session as s:
        for old in ("", "old"):
            a.mkdir()
            if old:
                (a / "f").write_text(old)
            r, w = os.pipe()
            thread = threading.Thread(target=s.file_put, args=("a/f", r))
            thread.start()
            os.write(w, b"new")
            eventually(lambda: any(p.name.startswith("f.") for p in a.iterdir()))
            a.rename(b)
            a.mkdir()
            os.close(w)
            thread.join(30)
            os.close(r)
            assert [p.name for p in b.iterdir()] == ["f"]
            assert (b / "f").read_text() == "new"
            shutil.rmtree(b)
            a.rmdir()


def test_the_landlock_tier(client: Client, tmp_path: Path) -> None:
    workspace, hidden = tmp_path / "w", tmp_path / "hidden"
    workspace.mkdir(), hidden.mkdir()
    (hidden / "key").write_text(SECRET)
    rules = {"allowWrite": ["."], "denyRead": [str(hidden)], "denyWrite": []}
    settings = json.dumps(web.settings(filesystem=rules))
    try:
        session = client.session(workspace=workspace, settings=settings, tier="landlock:accept")
    except CellgateError as e:
        pytest.skip(str(e))
    with session as s:
        one = Scene(s, workspace, hidden)
        one.run(
            f"os.symlink({str(hidden)!r}, 'l'); os.mkfifo('p'); os.mkdir('real'); open('real/key', 'w').write('in')"
        )
        for path in (hidden / "key", "l/key", f"/proc/self/root{hidden}/key", "p", "/dev/zero", "/proc/1/environ"):
            one.refused("file_read", path)
            one.refused("file_write", path, b"x")
        swap = f"os.symlink({str(hidden)!r}, 'n'); os.rename('n', 'm'); os.symlink('real', 'n'); os.rename('n', 'm')"
        with one.loop(swap.replace("; ", "\n")):
            for _ in range(30):
                with contextlib.suppress(CellgateError):
                    assert s.file_read("m/key") == b"in"
                with contextlib.suppress(CellgateError):
                    s.file_write("m/key", b"in")
        assert (hidden / "key").read_text() == SECRET and os.listdir(hidden) == ["key"]


# ---------------------------------------------------------------- content on its way

OPEN_ALL = """
import os, time
opened, seen = set(), set()
end = time.monotonic() + 1.5
while time.monotonic() < end:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if open(f'/proc/{pid}/comm').read() != 'cg-command\\n' or int(pid) == os.getppid(): continue
            seen.add(pid)
        except OSError: continue
        for fd in range(12):
            name = f'/proc/{pid}/fd/{fd}'
            try: opened.add(os.readlink(name))
            except OSError: pass
            for flags in (os.O_RDONLY, os.O_WRONLY):
                try: os.close(os.open(name, flags | os.O_NONBLOCK))
                except OSError: continue
                opened.add(name)
print(len(seen), *sorted(opened))
"""


def test_descriptors_of_the_process_that_writes(session: Session) -> None:
    """Programs beside it can open neither its pipe nor its file."""
    data = os.urandom(4 << 20)
    r, w = os.pipe()
    put = threading.Thread(target=session.file_put, args=("/tmp/f", r), kwargs={"timeout_ms": 60000})
    put.start()
    os.write(w, data)  # more than what a socket holds: it has begun
    seen, *opened = session.command("python3", "-c", OPEN_ALL)[1].decode().splitlines()[0].split(" ")
    os.write(w, data)
    os.close(w)
    put.join()
    os.close(r)
    assert int(seen) >= 2 and opened == []
    assert session.file_read("/tmp/f") == data + data


# ---------------------------------------------------------------- ends of the host's side

LEAVES = """
import os, sys, threading, time
from cellgate_api import Client
with Client(log_level=0) as client, client.session(workspace=sys.argv[1]) as s:
    s.command("true")
    for target in sys.argv[2:]:
        r, w = os.pipe()
        os.write(w, b"x" * 60000)
        threading.Thread(target=s.file_put, args=(target, r), kwargs={"timeout_ms": 60000}, daemon=True).start()
    s.command("sleep", "0.5")
    print("sending", flush=True)
    time.sleep(60)
"""


def test_a_host_that_dies_while_it_sends(prefix: Path, workspace: Path) -> None:
    """What it has sent does not take the place of the file, and makes none."""
    old, new = workspace / "old", workspace / "new"
    old.write_text("old")
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "CG_PREFIX": str(prefix)}
    argv = [sys.executable, "-c", LEAVES, *map(str, (workspace, old, new))]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None and host.stdout.readline() == b"sending\n"
        time.sleep(0.5)
        host.kill()
    time.sleep(1)
    assert old.read_text() == "old" and not new.exists()


def test_an_operation_that_reads_no_more_sends_no_signal(session: Session, tmp_path: Path) -> None:
    source = tmp_path / "source"
    with source.open("wb") as f:
        f.truncate(50_000_000)
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        with source.open("rb") as f:
            for target in ("/tmp", "/proc/version", "/none/f"):
                with pytest.raises(CellgateError):
                    session.file_put(target, f.fileno())
                f.seek(0)
            session.file_put("/tmp/copy", f.fileno())
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert session.file_stat("/tmp/copy")["size"] == 50_000_000


def test_a_tar_of_the_cells_own(client: Client, workspace: Path, tmp_path: Path) -> None:
    """A program that keeps the socket, sends descriptors and never reads."""
    fake = """#!/usr/bin/python3
import os, socket, sys, time
s = socket.socket(fileno=os.dup(1 if "-cf" in sys.argv else 0))
fds = [os.open("/etc/passwd", os.O_RDONLY) for _ in range(50)]
for _ in range(5):
    try:
        socket.send_fds(s, [b"x" * 100], fds)
    except OSError:
        break
if os.fork() == 0:
    time.sleep(100)
"""
    (workspace / "bin").mkdir()
    (workspace / "bin/tar").write_text(fake)
    (workspace / "bin/tar").chmod(0o755)
    path = f"PATH={workspace}/bin:/usr/bin:/bin"
    with client.session(workspace=workspace, env=[path]) as session, (tmp_path / "out").open("w+b") as f:
        session.command("true")
        before = len(os.listdir("/proc/self/fd"))
        session.file_pack("/tmp", f.fileno())
        f.seek(0)
        assert f.read() == b"x" * 500
        f.seek(0)
        session.file_unpack("/tmp", f.fileno())
        assert len(os.listdir("/proc/self/fd")) <= before
