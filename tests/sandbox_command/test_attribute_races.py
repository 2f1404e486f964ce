"""Owners and times, which the kernel changes in the full tier without asking init, and modes, which init changes by a descriptor that is open for
writing whatever the file's name is, while a thread changes what the path, the descriptor and the working directory of the call mean. Nothing protected
changes, and what is writable does."""

from pathlib import Path
from typing import Any

import pytest

from .conftest import Box

RACES = 500
RACE = """
import ctypes, os, sys, threading
races, protected = int(sys.argv[1]), sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("mine"); open("mine/f", "w").close()
uid, gid, mine, stop = os.getuid(), os.getgid(), os.path.abspath("mine"), False
fd, folder = os.open("mine/f", os.O_RDONLY), os.open("mine", os.O_RDONLY)
read = {p: (os.open(p, os.O_RDONLY), os.open(os.path.dirname(p), os.O_PATH)) for p in protected}
own = {p: (os.dup(fd), os.dup(folder)) for p in protected}
for i, p in enumerate(protected):
    os.symlink(p, f"mine/link{i}"); os.symlink(mine + "/f", f"mine/other{i}")
def change():
    # The path, the descriptors and the working directory mean something protected and something writable in turn.
    while not stop:
        for i, p in enumerate(protected):
            libc.syscall(316, folder, b"link%d" % i, folder, b"other%d" % i, 2)
            for (file, at), name in (read[p], os.path.dirname(p)), (own[p], mine):
                os.dup2(file, fd); os.dup2(at, shifting); os.chdir(name)
shifting = os.dup(folder)
fixed = os.dup(folder)
calls = [
    ("path", lambda p, i: os.utime(f"{mine}/link{i}", (5, 6))),
    ("no link", lambda p, i: os.utime(f"{mine}/link{i}", (5, 6), follow_symlinks=False)),
    ("itself", lambda p, i: os.utime(p, (5, 6))),
    ("folder", lambda p, i: os.utime(os.path.basename(p), (5, 6), dir_fd=shifting)),
    ("directory", lambda p, i: os.utime(os.path.basename(p), (5, 6))),
    ("descriptor", lambda p, i: os.utime(fd, (5, 6))),
    ("empty", lambda p, i: libc.syscall(280, fd, b"", 0, 0x1000)),
    ("by proc", lambda p, i: os.utime(f"/proc/self/fd/{fd}", (5, 6))),
    ("owner by path", lambda p, i: os.chown(f"{mine}/link{i}", uid, gid)),
    ("owner of link", lambda p, i: os.lchown(f"{mine}/link{i}", uid, gid)),
    ("owner in folder", lambda p, i: os.chown(os.path.basename(p), uid, gid, dir_fd=shifting)),
    ("owner by descriptor", lambda p, i: os.fchown(fd, uid, gid)),
    ("owner, empty", lambda p, i: libc.syscall(260, fd, b"", uid, gid, 0x1000)),
    ("owner in directory", lambda p, i: os.chown(os.path.basename(p), uid, gid)),
    ("old times", lambda p, i: libc.syscall(235, f"{mine}/link{i}".encode(), 0)),
    ("older times", lambda p, i: libc.syscall(132, f"{mine}/link{i}".encode(), 0)),
    ("times in folder", lambda p, i: libc.syscall(261, shifting, os.path.basename(p).encode(), 0)),
]
thread = threading.Thread(target=change); thread.start()
for n in range(races):
    for name, call in calls:
        for i, p in enumerate(protected):
            try: call(p, i)
            except OSError: pass
stop = True; thread.join()
os.utime("f", (7, 8), dir_fd=fixed); os.chown("f", uid, gid, dir_fd=fixed)
print(int(os.stat("f", dir_fd=fixed).st_mtime))
"""


def seen(path: Path) -> tuple[object, ...]:
    st = path.stat()
    return st.st_mtime_ns, st.st_ctime_ns, st.st_uid, st.st_gid, st.st_mode, path.read_bytes()


@pytest.mark.parametrize("tier", ["full", "landlock:accept"])
def test_owners_and_times_of_protected_files(box: Box, tier: str) -> None:
    script = box.file("race.py", RACE)
    kept = box.file("keep/f", "kept")
    outside = box.file(box.out / "f", "outside")
    # In the landlock tier a denial within a write root does not hold.
    protected = [outside, Path("/etc/passwd"), *([kept] if tier == "full" else [])]
    before = {p: seen(p) for p in protected}
    fs: dict[str, Any] = {"denyWrite": ["keep"]} if tier == "full" else {}
    box.timeout *= 6
    argv = ["--tier", tier, "--", "/usr/bin/python3", "-B", script, str(RACES), *protected]
    p = box.run(*argv, settings=Box.settings(fs))
    assert (p.returncode, p.stdout) == (0, "8\n"), p.stderr
    assert {p: seen(p) for p in protected} == before


NAMED = """
import os, sys
for p in sys.argv[1:]:
    os.utime(p, (5, 6)); os.chown(p, os.getuid(), os.getgid())
    for change in (lambda: os.chmod(p, 0o777), lambda: os.chmod(os.open(p, os.O_RDONLY), 0o777), lambda: open(p, "a"), lambda: os.unlink(p)):
        try: change(); print("changed", p)
        except PermissionError: pass
"""


def test_times_of_protected_names_are_all_that_changes(box: Box) -> None:
    """They can be changed by a descriptor that is open for reading, too."""
    names = [box.file(f"a/b/{p}") for p in (".bashrc", "repo/.git/hooks/pre-commit", "repo/.git/config")]
    before = [seen(p)[2:] for p in names]
    p = box.run("/usr/bin/python3", "-c", NAMED, *names, settings=Box.settings())
    assert (p.returncode, p.stdout) == (0, ""), p.stderr
    assert [seen(p)[2:] for p in names] == before
    assert all(p.stat().st_mtime == 6 for p in names)


MODES = """
import ctypes, os, sys, tempfile, threading
races, protected = int(sys.argv[1]), sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("mine"); open("mine/f", "w").close()
mine, stop = os.path.abspath("mine"), False
writer, folder = os.open("mine/f", os.O_RDWR), os.open("mine", os.O_RDONLY)
fd, shifting, fixed = os.dup(writer), os.dup(folder), os.dup(folder)
read = {p: ([os.open(p, os.O_RDONLY), os.open(p, os.O_PATH)], os.open(os.path.dirname(p), os.O_PATH)) for p in protected}
private = tempfile.NamedTemporaryFile()
for i, p in enumerate(protected):
    os.symlink(p, f"mine/link{i}"); os.symlink(mine + "/f", f"mine/other{i}"); os.symlink(private.name, f"mine/private{i}")
def fourth_access(p, i, mode):
    # Neither to read nor to write, by any right of Landlock. In the private folder for temporary files the kernel executes the call.
    other = os.open(f"{mine}/private{i}", os.O_ACCMODE)
    try: os.fchmod(other, mode)
    finally: os.close(other)
def remove(p, i, mode):
    try: os.unlink(os.path.basename(p), dir_fd=shifting)
    finally: os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=fixed))
def change():
    while not stop:
        for i, p in enumerate(protected):
            libc.syscall(316, folder, b"link%d" % i, folder, b"other%d" % i, 2)
            libc.syscall(316, folder, b"link%d" % i, folder, b"private%d" % i, 2)
            for other in read[p][0]:
                os.dup2(other, fd); os.dup2(read[p][1], shifting); os.chdir(os.path.dirname(p))
                os.dup2(writer, fd); os.dup2(fixed, shifting); os.chdir(mine)
calls = [
    ("descriptor", lambda p, i, mode: os.fchmod(fd, mode)),
    ("those of the file", lambda p, i, mode: [os.fchmod(other, mode) for other in read[p][0]]),
    ("fourth access", fourth_access),
    ("empty", lambda p, i, mode: libc.syscall(452, fd, b"", mode, 0x1000)),
    ("by proc", lambda p, i, mode: os.chmod(f"/proc/self/fd/{fd}", mode)),
    ("path", lambda p, i, mode: os.chmod(f"{mine}/link{i}", mode)),
    ("itself", lambda p, i, mode: os.chmod(p, mode)),
    ("folder", lambda p, i, mode: os.chmod(os.path.basename(p), mode, dir_fd=shifting)),
    ("directory", lambda p, i, mode: os.chmod(os.path.basename(p), mode)),
    ("written in folder", lambda p, i, mode: os.close(os.open(os.path.basename(p), os.O_WRONLY | os.O_TRUNC, dir_fd=shifting))),
    ("removed in folder", remove),
]
threads = [threading.Thread(target=change)]
if len(protected) > 2: threads.append(threading.Thread(target=change))
for t in threads: t.start()
for n in range(races):
    for name, call in calls:
        for i, p in enumerate(protected):
            try: call(p, i, (0o600, 0o755, 0o777, 0o4755)[n % 4])
            except OSError: pass
stop = True
for t in threads: t.join()
os.fchmod(writer, 0o741)
print(oct(os.fstat(writer).st_mode & 0o7777))
"""


@pytest.mark.parametrize("tier", ["full", "landlock:accept"])
def test_modes_of_protected_files(box: Box, tier: str) -> None:
    script = box.file("race.py", MODES)
    protected = [box.file(box.out / "f", "outside"), Path("/etc/passwd")]
    fs: dict[str, Any] = {}
    if tier == "full":  # in the landlock tier a denial within a write root does not hold
        fs = {"denyWrite": ["keep"]}
        protected += [box.file(p) for p in ("keep/f", "a/.bashrc", "a/repo/.git/hooks/pre-commit", "a/repo/.git/config")]
    before = {p: seen(p) for p in protected}
    box.timeout *= 6
    argv = ["--tier", tier, "--", "/usr/bin/python3", "-B", script, str(RACES), *protected]
    p = box.run(*argv, settings=Box.settings(fs))
    assert (p.returncode, p.stdout) == (0, "0o741\n"), p.stderr
    assert {p: seen(p) for p in protected} == before


# A descriptor's number means another file in each process, and in a thread with descriptors of its own.
WHOSE = """
import ctypes, os, sys, threading
CLONE_FILES = 0x400
protected, libc = sys.argv[1], ctypes.CDLL(None, use_errno=True)
fd = os.open("parent", os.O_RDWR | os.O_CREAT)
os.fchmod(fd, 0o700)
for n in range(50):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(f"child{n}", os.O_WRONLY | os.O_CREAT), fd); os.fchmod(fd, 0o711)
        os._exit(os.stat(f"child{n}").st_mode & 0o777 != 0o711)
    os.fchmod(fd, 0o701)
    assert os.waitpid(pid, 0)[1] == 0 and os.stat("parent").st_mode & 0o777 == 0o701
def thread():
    assert libc.unshare(CLONE_FILES) == 0, ctypes.get_errno()
    os.dup2(os.open(protected, os.O_RDONLY), fd)
    for n in range(50):
        try: os.fchmod(fd, 0o777); print("changed")
        except PermissionError: pass
        set_.set()
set_ = threading.Event()
t = threading.Thread(target=thread); t.start(); set_.wait()
os.fchmod(fd, 0o751); t.join()
print(oct(os.stat("parent").st_mode & 0o777))
"""


def test_modes_by_descriptors_of_others(box: Box) -> None:
    hook = box.file("repo/.git/hooks/pre-commit")
    before = seen(hook)
    p = box.run("/usr/bin/python3", "-c", WHOSE, hook, settings=Box.settings())
    assert (p.returncode, p.stdout) == (0, "0o751\n"), p.stderr
    assert seen(hook) == before
