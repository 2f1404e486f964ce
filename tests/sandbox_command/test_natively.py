"""Calls that init makes for a process have the same results as the kernel's: a program notices no difference."""

import os
import platform
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Box


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the calls' numbers are those of x86_64")
def test_calls_end_as_they_do_natively(box: Box) -> None:
    script = box.file("natively.py", (Path(__file__).parent / "natively.py").read_text())
    box.folder(box.work / "here")
    box.timeout *= 4  # thousands of calls
    p = box.sh(f"mkdir /dev/shm/own && exec python3 -B {script} {box.work}/here /dev/shm/own")
    differences = [line for line in p.stdout.splitlines() if " | natively " in line]
    assert differences == []
    assert int(p.stdout.split()[-2]) > 2000, p.stderr
    assert os.listdir(box.work / "here") == ["tree"]


def test_a_limit_that_a_process_gives_itself(box: Box) -> None:
    box.file("data", "text")
    script = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "os.truncate('data', 1000)\n"
        "try: os.truncate('data', 1001)\n"
        "except OSError as e: print(e.strerror)\n"
    )
    assert box.run("python3", "-c", script, settings=Box.settings()).stdout == "File too large\n"
    assert (box.work / "data").stat().st_size == 1000
    script = (
        "import os, resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: os.truncate('data', 1001)\n"
        "except OSError: signal.pause()\n"
    )
    assert box.run("python3", "-c", script, settings=Box.settings()).returncode == 128 + signal.SIGXFSZ
    assert (box.work / "data").stat().st_size == 1000


def test_a_file_that_cannot_be_emptied_leaves_no_descriptor(box: Box) -> None:
    data = box.file("data", "text")
    if not shutil.which("chattr") or subprocess.run(["chattr", "+a", data], capture_output=True).returncode:
        pytest.skip("no append-only files here")
    script = (
        "import os\n"
        "before = os.listdir('/proc/self/fd')\n"
        "try: os.open('data', os.O_WRONLY | os.O_APPEND | os.O_TRUNC)\n"
        "except OSError as e: print(e.strerror)\n"
        "print(os.listdir('/proc/self/fd') == before)\n"
    )
    try:
        p = box.run("python3", "-c", script, settings=Box.settings())
    finally:
        subprocess.run(["chattr", "-a", data], check=True)
    assert p.stdout == "Operation not permitted\nTrue\n"
    assert data.read_text() == "text"


def test_a_path_that_is_too_long_to_be_judged(box: Box) -> None:
    """Step by step, folders can be deeper than the longest path: nothing is made in them, and the reason is reported."""
    script = (
        "import os\n"
        "try:\n"
        "    for i in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        "except OSError as e: print(e.strerror)\n"
    )
    p = box.run("python3", "-c", script, settings=Box.settings())
    assert p.stdout == "File name too long\n" and "refused" not in p.stderr
    # In a place of the sandbox's own the kernel decides, to which that is nothing.
    p = box.run("python3", "-c", "import os; os.chdir('/dev/shm')\n" + script, settings=Box.settings())
    assert (p.stdout, p.returncode) == ("", 0)


PROGRAMS = """
import os, stat, subprocess
for i in range(300):
    with open("made", "wb", opener=lambda p, f: os.open(p, f, 0o755 if i % 2 else 0o644)) as f:
        f.write(open("/bin/true", "rb").read())
    if not i % 2:
        os.chmod("made", 0o755)
    subprocess.run(["./made"], check=True)
    os.unlink("made")
print("ran")
"""


def test_a_program_runs_as_soon_as_it_is_written(box: Box) -> None:
    """Init has no descriptor of it open by then, which would be ETXTBSY."""
    p = box.run("/usr/bin/python3", "-c", PROGRAMS, settings=Box.settings())
    assert p.stdout == "ran\n", p.stderr


UMASKS = """
import os, threading
def made(name, mode):
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode); os.close(fd)
    mode = os.stat(name).st_mode & 0o777
    os.unlink(name)
    return mode
def expect(name, mask):
    for mode in 0o666, 0o600, 0o755, 0o444:
        assert made(name, mode) == mode & ~mask, (name, oct(made(name, mode)), oct(mode), oct(mask))
os.umask(0o022); expect("first", 0o022)
os.umask(0o266); expect("without its owner's right to write", 0o266)
os.umask(0o222); expect("in common", 0o222)
children = []
for i in range(4):
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.umask(0o010 * i)
        for n in range(100):
            expect(f"child{i}", 0o010 * i)
            if n == 50: os.umask(0o001 * i); os.umask(0o010 * i)
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
# Threads have one umask, whichever of them sets it.
for n in range(100):
    os.umask(0o077); expect("main", 0o077)
    t = threading.Thread(target=lambda: (os.umask(0o027), expect("thread", 0o027))); t.start(); t.join()
    expect("main", 0o027)
    t = threading.Thread(target=lambda: expect("thread", 0o027)); t.start(); t.join()
    pid = os.fork()
    if pid == 0:
        expect("child", 0o027); os.umask(0); os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    expect("main", 0o027)
print("same")
"""


def test_the_umask_of_each_process(box: Box) -> None:
    p = box.run("/usr/bin/python3", "-c", UMASKS, settings=Box.settings())
    assert (p.returncode, p.stdout) == (0, "same\n"), p.stderr


# The thread that executes a program gets the number of the first thread, and keeps its own umask.
EXEC_BY_THREAD = """
import ctypes, os, sys, threading
CLONE_FS = 0x200
libc, own, set_ = ctypes.CDLL(None, use_errno=True), threading.Event(), threading.Event()
def thread():
    assert libc.unshare(CLONE_FS) == 0, ctypes.get_errno()
    os.umask(0o077); own.set(); set_.wait()
    os.execv(sys.executable, [sys.executable, "-c", "import os; os.close(os.open('f', 65, 0o666)); print(oct(os.stat('f').st_mode & 0o777))"])
threading.Thread(target=thread).start()
own.wait(); os.umask(0); os.close(os.open("first", 65, 0o666)); set_.set()
threading.Event().wait()
"""


def test_the_umask_of_a_thread_that_executes_a_program(box: Box) -> None:
    p = box.run("/usr/bin/python3", "-c", EXEC_BY_THREAD, settings=Box.settings())
    assert p.stdout == "0o600\n", p.stderr


FOLDERS = """
import os, threading
names = [f"d{i}" for i in range(8)]
for d in names: os.mkdir(d)
fds = {d: os.open(d, os.O_RDONLY) for d in names}
def touch(name, **at):
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, **at))
def moved(made, there):
    assert os.path.exists(there), (made, there); os.unlink(there)
top = os.getcwd()
at = os.dup(fds["d0"])
for n in range(100):
    for d in names:
        os.chdir(f"{top}/{d}"); touch("f"); moved("cwd", f"{top}/{d}/f")
        os.dup2(fds[d], at); touch("f", dir_fd=at); moved("descriptor", f"{top}/{d}/f")
        os.chdir(top); os.rename(d, "other"); touch("f", dir_fd=at); moved("renamed", "other/f")
        os.chdir("other"); os.rename(f"{top}/other", f"{top}/{d}"); touch("f"); moved("renamed", f"{top}/{d}/f"); os.chdir(top)
    # The same name, and perhaps the same inode number, of another folder.
    os.mkdir("new"); os.chdir("new"); touch("f"); moved("new", f"{top}/new/f"); os.chdir(top); os.rmdir("new")
# A working directory that another thread changes is one of the two.
stop = False
def change():
    while not stop: os.chdir(f"{top}/d0"); os.chdir(f"{top}/d1")
t = threading.Thread(target=change); os.chdir("d0"); t.start()
for n in range(500): touch(f"race{n}")
stop = True; t.join()
assert sorted(os.listdir(f"{top}/d0") + os.listdir(f"{top}/d1")) == sorted(f"race{n}" for n in range(500))
print("found")
"""


def test_files_are_made_in_the_folder_that_the_caller_has(box: Box) -> None:
    p = box.run("/usr/bin/python3", "-c", FOLDERS, settings=Box.settings())
    assert (p.returncode, p.stdout) == (0, "found\n"), p.stderr


MOVED = """
import os
top = os.getcwd()
def refused(name, **at):
    try: os.close(os.open(name, os.O_CREAT | os.O_WRONLY, **at)); return False
    except PermissionError: return True
for n in range(250):
    os.mkdir("plain"); os.chdir("plain")
    fd = os.open(".", os.O_RDONLY)
    assert not refused("x") and not refused("y", dir_fd=fd)
    os.unlink("x"); os.unlink("y")
    os.rename(f"{top}/plain", f"{top}/secret")
    assert refused("x") and refused("y", dir_fd=fd), n
    os.rename(f"{top}/secret", f"{top}/plain")
    assert not refused("x") and not refused("y", dir_fd=fd)
    os.unlink("x"); os.unlink("y"); os.close(fd)
    os.chdir(top); os.rmdir("plain")
print("denied")
"""


def test_a_folder_that_is_renamed_is_judged_by_its_new_path(box: Box) -> None:
    p = box.run("/usr/bin/python3", "-c", MOVED, settings=Box.settings({"denyWrite": ["**/secret/*"]}))
    assert (p.returncode, p.stdout) == (0, "denied\n"), p.stderr


END = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.PAGESIZE
m = mmap.mmap(-1, 3 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(m))
assert libc.mprotect(ctypes.c_void_p(start + 2 * page), page, 0) == 0
for n in (1, 2, 254, 255, 256, 257, 511, 512, 513, 1000, 4094, 4095, 4096):
    path = b"./" * (n // 2 - 1) + b"/" * (n % 2) + b"xy" if n > 3 else b"x" * n
    assert len(path) == n
    for end in (2 * page, 2 * page - 1, page + 100, page + 1):
        if end <= n: continue
        m[end - n - 1:end] = path + bytes(1)
        fd = libc.open(ctypes.c_void_p(start + end - n - 1), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        assert fd >= 0 if n < 4096 else (fd, ctypes.get_errno()) == (-1, 36), (n, end, ctypes.get_errno())
        if fd >= 0: os.close(fd); os.unlink(path)
m[page:2 * page] = b"x" * page
assert libc.open(ctypes.c_void_p(start + 2 * page - 100), os.O_CREAT | os.O_WRONLY, 0o644) == -1 and ctypes.get_errno() == 14
print("read")
"""


def test_a_path_at_the_end_of_the_callers_memory(box: Box) -> None:
    p = box.run("/usr/bin/python3", "-c", END, settings=Box.settings())
    assert (p.returncode, p.stdout) == (0, "read\n"), p.stderr
