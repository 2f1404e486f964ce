"""Calls that make, open, rename or remove files by relative names, while the working directory, the descriptor of a folder and the links on the way
change: by a thread, and by a process that shares the working directory. Nothing protected changes, and every file is made where the caller is."""

from pathlib import Path
from typing import Any

import pytest

from .conftest import Box
from .test_attribute_races import RACES, seen

RACE = """
import ctypes, os, signal, sys, threading
races, shared, protected = int(sys.argv[1]), sys.argv[2] == "process", sys.argv[3:]
libc = ctypes.CDLL(None, use_errno=True)
CLONE_FS = 0x200
os.mkdir("mine"); mine, stop = os.path.abspath("mine"), False
names = sorted({os.path.basename(p) for p in protected})
folder = os.open("mine", os.O_RDONLY)
shifting, fixed = os.dup(folder), os.dup(folder)
parents = {p: os.open(os.path.dirname(p), os.O_PATH) for p in protected}
def fill():
    for name in names:
        try: os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=fixed))
        except PermissionError: pass
def change():
    while not stop:
        for p in protected:
            os.chdir(os.path.dirname(p)); os.dup2(parents[p], shifting)
            libc.syscall(316, fixed, b"way", fixed, b"other", 2)
            os.chdir(mine); os.dup2(fixed, shifting)
            fd = os.open(os.path.dirname(p), os.O_PATH); os.fchdir(fd); os.close(fd); os.fchdir(fixed)
fill()
os.symlink(mine, "mine/way"); os.symlink(os.path.dirname(protected[0]), "mine/other")
def write(path, flags, **at):
    fd = os.open(path, flags, **at)
    try: os.write(fd, b"written")
    finally: os.close(fd)
def rename(path, to, **at):
    os.rename(path, to, **({"src_dir_fd": at["dir_fd"], "dst_dir_fd": at["dir_fd"]} if at else {}))
def link(path, to, **at):
    os.link(path, to, **({"src_dir_fd": at["dir_fd"], "dst_dir_fd": at["dir_fd"]} if at else {}))
calls = [
    lambda path, **at: write(path, os.O_WRONLY | os.O_CREAT, **at),
    lambda path, **at: write(path, os.O_RDWR | os.O_TRUNC, **at),
    lambda path, **at: write(path, os.O_WRONLY | os.O_APPEND, **at),
    lambda path, **at: write(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, **at),
    lambda path, **at: os.unlink(path, **at),
    lambda path, **at: rename(path, path + ".moved", **at),
    lambda path, **at: rename(path + ".moved", path, **at),
    lambda path, **at: link(path, path + ".second", **at),
    lambda path, **at: os.symlink("target", path, **at),
    lambda path, **at: os.mkdir(path + ".folder", **at),
    lambda path, **at: os.rmdir(path + ".folder", **at),
    lambda path, **at: os.mknod(path, **at),
    lambda path, **at: os.truncate(path, 1) if not at else None,
    lambda path, **at: os.chmod(path, 0o777, **at),
    lambda path, **at: os.unlink(path + ".new", **at),
]
if shared:
    pid = libc.syscall(56, CLONE_FS | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0: change()
else:
    thread = threading.Thread(target=change); thread.start()
for n in range(races):
    for p in protected:
        name = os.path.basename(p)
        for path, at in (name, {}), (name, {"dir_fd": shifting}), ("way/" + name, {"dir_fd": fixed}), ("./" + name, {}):
            try: calls[n % len(calls)](path, **at)
            except OSError: pass
        if n % 8 == 0: fill()
stop = True
if shared: os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
else: thread.join()
for at in (mine, os.path.dirname(mine), mine):
    os.chdir(at); os.close(os.open("last", os.O_CREAT | os.O_EXCL | os.O_WRONLY)); os.unlink(f"{at}/last")
print("done")
"""


@pytest.mark.sanitized_in_soak
@pytest.mark.parametrize("who", ["thread", "process"])
@pytest.mark.parametrize("tier", ["full", "landlock:accept"])
def test_files_of_protected_folders(box: Box, tier: str, who: str) -> None:
    script = box.file("race.py", RACE)
    protected = [box.file(box.out / "f", "outside"), Path("/etc/passwd")]
    fs: dict[str, Any] = {}
    if tier == "full":  # in the landlock tier a denial within a write root does not hold
        fs = {"denyWrite": ["keep"]}
        protected += [box.file(p) for p in ("keep/f", "a/.bashrc", "a/repo/.git/hooks/pre-commit", "a/repo/.git/config")]
    before = {p: seen(p) for p in protected}
    folders = [p.parent for p in protected if p.name not in (".bashrc", "config", "passwd")]
    entries = {d: sorted(d.iterdir()) for d in folders}
    box.timeout *= 6
    argv = ["--tier", tier, "--", "/usr/bin/python3", "-B", script, str(RACES), who, *protected]
    p = box.run(*argv, settings=Box.settings(fs))
    assert (p.returncode, p.stdout) == (0, "done\n"), p.stderr
    # A second name would change the time of the last change.
    assert {p: seen(p) for p in protected} == before
    assert {d: sorted(d.iterdir()) for d in folders} == entries


# Each process and each thread with a working directory of its own makes its files there, and processes that share theirs do.
WHOSE = """
import ctypes, os, signal, subprocess, sys, threading
CLONE_FS, CLONE_THREAD = 0x200, 0x10000
libc, top = ctypes.CDLL(None, use_errno=True), os.getcwd()
for d in ("a", "b", "c"): os.mkdir(d)
def made(where):
    os.close(os.open("f", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.unlink(f"{top}/{where}/f")
def in_child(call):
    pid = os.fork()
    if pid == 0:
        try: call()
        except BaseException as e: print(type(e).__name__, e, flush=True); os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
def child():
    made("a"); os.chdir("../b"); made("b"); made("b"); os.chdir("../c"); made("c")
def threads():
    go, back = threading.Event(), threading.Event()
    def other():
        made("a"); os.chdir(f"{top}/b"); go.set(); back.wait(); made("c")
    made("a")
    t = threading.Thread(target=other); t.start(); go.wait()
    made("b"); os.chdir(f"{top}/c"); made("c"); back.set(); t.join()
def sharing():
    made("a")
    pid = libc.syscall(56, CLONE_FS | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0: os.chdir(f"{top}/b"); os._exit(0)
    os.waitpid(pid, 0); made("b")
def apart():
    def other():
        assert libc.unshare(CLONE_FS) == 0
        os.chdir(f"{top}/b"); made("b"); go.set(); back.wait(); made("b")
    go, back = threading.Event(), threading.Event()
    t = threading.Thread(target=other); t.start(); go.wait()
    made("a"); os.chdir(f"{top}/c"); made("c"); back.set(); t.join(); made("c")
def program_of_a_thread():
    # The thread gets the number of the process, whose first thread was elsewhere.
    def other():
        assert libc.unshare(CLONE_FS) == 0
        go.set(); back.wait()
        os.execv("/bin/sh", ["sh", "-c", f": > f && rm {top}/a/f"])
    go, back = threading.Event(), threading.Event()
    t = threading.Thread(target=other); t.start(); go.wait()
    os.chdir(f"{top}/c"); made("c"); back.set(); t.join()
for n in range(20):
    os.chdir(f"{top}/a"); made("a"); in_child(globals()[sys.argv[1]]); made("a")
    subprocess.run(["sh", "-c", f": > f && rm {top}/b/f"], cwd=f"{top}/b", check=True)
    made("a")
print("found")
"""


# In a sandbox of its own each: after the first call that shares a working directory init keeps none.
@pytest.mark.parametrize("case", ["child", "threads", "sharing", "apart", "program_of_a_thread"])
def test_working_directories_of_processes_and_threads(box: Box, case: str) -> None:
    p = box.run("/usr/bin/python3", "-c", WHOSE, case, settings=Box.settings())
    assert (p.returncode, p.stdout) == (0, "found\n"), p.stderr


NAMESPACES = """
import ctypes, errno, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def refused(call, flags, result):
    if result == 0 and call == "clone": os._exit(0)
    if (result, ctypes.get_errno()) != (-1, errno.EPERM): print(call, hex(flags), result, ctypes.get_errno())
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    for more in (0x200, 0x10000, 0x600, 0):
        refused("unshare", flag | more, libc.unshare(flag | more))
        refused("clone", flag | more, libc.syscall(56, ctypes.c_ulong(flag | more | signal.SIGCHLD), 0, 0, 0, 0))
for flags in (0x200 | 0x80, 0x200 | 0x100000, 0x200 | 1 << 32, 0x200 | 0x10000):
    refused("unshare", flags, libc.syscall(272, ctypes.c_ulong(flags)))
print("ended")
"""


def test_sharing_a_working_directory_makes_no_namespace(box: Box) -> None:
    """clone() and unshare() with CLONE_FS are notified and continue, with the flags of a namespace they do not."""
    p = box.run("/usr/bin/python3", "-c", NAMESPACES, settings=Box.settings())
    assert (p.returncode, p.stdout) == (0, "ended\n"), p.stderr
