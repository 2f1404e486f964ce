"""The end of a session: the kernel may run functions registered with atexit for one second."""

from __future__ import annotations

import ast
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from cellgate_api import Client, Session
from kernel_environment import PACKAGES, copy_environment
from processes import alive, children, eventually, named, parent, words
from rounds import rounds

REGISTER = "import atexit; atexit.register(lambda: open('left', 'w').write('bye'))"


def test_atexit_has_run_when_the_session_is_freed(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        s.run(REGISTER)
    assert (workspace / "left").read_text() == "bye"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("f = open('left', 'w'); f.write('bye')", id="variable"),
        pytest.param("open('left', 'w')\n", id="result"),
        pytest.param("open('m.py', 'w').write(\"f = open('left', 'w'); f.write('bye')\")\n%run -n m.py", id="module"),
        pytest.param(
            "class Late:\n    def __del__(self): open('left', 'w').write('bye')\na = Late(); a.a = a; del a", id="cycle"
        ),
    ],
)
def test_objects_of_cells_are_released(client: Client, workspace: Path, code: str) -> None:
    """What a cell has written to an open file is in it."""
    with client.session(workspace=workspace) as s:
        assert s.run(code).status == "ok"
        if code.startswith("open('left'"):
            assert s.run("_.write('bye')").status == "ok"
    assert (workspace / "left").read_text() == "bye"


def test_atexit_functions_see_variables_and_history(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        s.run("import atexit; x = 'bye'\n@atexit.register\ndef write(): open('left', 'w').write(x + In[-1])")
        s.run("'last'")
    assert (workspace / "left").read_text() == "bye'last'"


def test_files_that_ipython_made_are_removed(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, sandbox=1) as s:
        made = Path(ast.literal_eval(s.run("get_ipython().mktempfile('x')").value))
        assert made.read_text() == "x"
    assert not made.exists() and not made.parent.exists()


def test_a_running_cell_is_interrupted_first(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        s.run(REGISTER)
        s.execute("print('on', flush=True)\nwhile True: pass")
        s.until("stream")
    assert (workspace / "left").read_text() == "bye"


def test_atexit_runs_at_a_reset(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        s.run(REGISTER)
        s.reset()
        eventually(lambda: (workspace / "left").exists())
        assert s.run("1").value == "1"


def test_what_does_not_end_is_ended(client: Client, workspace: Path) -> None:
    mark = workspace / "beats"
    beat = (
        "import atexit, time\n"
        "def never():\n"
        "    while True:\n"
        "        try:\n"
        "            open('beats', 'a').write('x'); time.sleep(0.01)\n"
        "        except BaseException: pass\n"
        "atexit.register(never)"
    )
    with client.session(workspace=workspace) as s:
        s.run(beat)
    assert mark.stat().st_size > 0
    size = mark.stat().st_size
    time.sleep(0.3)
    assert mark.stat().st_size == size, "it is gone when the session is"


def spawn_private(prefix: Path, folder: Path) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A supervisor that is being started, and the other end of its descriptor 3."""
    ours, theirs = socket.socketpair()
    program = prefix / "libexec/cellgate/cellgate-supervisor"
    shell = f'exec 3<&{theirs.fileno()} "$0" --private --spares 0 --dir "$1"'
    with theirs:
        argv = ["/bin/bash", "-c", shell, program, folder]
        return subprocess.Popen(argv, pass_fds=[theirs.fileno()], start_new_session=True), ours


WRITERS = {
    "write": "fd = os.open('beats', os.O_RDWR)\ndef beat():\n    while True: os.pwrite(fd, os.urandom(8), 0)",
    "mapping": "m = mmap.mmap(os.open('beats', os.O_RDWR), 4096)\ndef beat():\n    while True: m[0:8] = os.urandom(8)",
    "process": "def beat():\n"
    "    if os.fork() == 0:\n"
    "        fd = os.open('beats', os.O_RDWR)\n"
    "        while True: os.pwrite(fd, os.urandom(8), 0)",
}


@pytest.mark.parametrize("how", WRITERS)
def test_files_are_final_when_the_session_is_freed(client: Client, workspace: Path, how: str) -> None:
    beats = workspace / "beats"
    for _ in range(rounds(10, 4)):
        beats.write_bytes(bytes(4096))
        with client.session(workspace=workspace) as s:
            s.run(f"import mmap, os, threading\n{WRITERS[how]}\nthreading.Thread(target=beat, daemon=True).start()")
            eventually(lambda: beats.read_bytes()[:8] != bytes(8))
        found = beats.read_bytes()
        time.sleep(0.02)
        assert beats.read_bytes() == found


def test_what_linux_writes_for_ended_threads_is_written_before(client: Client, workspace: Path) -> None:
    """A robust list and the address that is cleared at a thread's end, in a file of the workspace."""
    word = workspace / "word"
    code = (
        "import ctypes, mmap, os, struct, sys\n"
        "m = sys.m = mmap.mmap(os.open('word', os.O_RDWR), 4096)\n"
        "a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
        "m[0:32] = struct.pack('QQQQ', a + 64, 64, 0, 0)\n"  # the head: first entry, offset of its lock
        "m[64:72] = struct.pack('Q', a)\n"
        "m[128:132] = struct.pack('I', os.getpid())\n"  # the lock
        "m[256:260] = b'live'\n"
        "libc = ctypes.CDLL(None)\n"
        "assert libc.syscall(273, ctypes.c_void_p(a), 24) == 0\n"
        "libc.syscall(218, ctypes.c_void_p(a + 256))"
    )
    for _ in range(rounds(10, 4)):
        word.write_bytes(bytes(4096))
        with client.session(workspace=workspace) as s:
            assert s.run(code).status == "ok"
        found = word.read_bytes()
        assert found[128:132] == b"\0\0\0\x40", "FUTEX_OWNER_DIED"
        time.sleep(0.02)
        assert word.read_bytes() == found


@pytest.mark.parametrize("thread", [False, True])
def test_locks_are_released_when_the_session_is_freed(client: Client, workspace: Path, thread: bool) -> None:
    code = "import fcntl, sys, threading, time\nsys.f = open('lock', 'w')\nfcntl.flock(sys.f, fcntl.LOCK_EX)\n"
    if thread:
        code += "threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n"
    for _ in range(rounds(10, 4)):
        with client.session(workspace=workspace) as s:
            assert s.run(code).status == "ok"
        with (workspace / "lock").open() as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


def start_private(prefix: Path, folder: Path) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The same, ready."""
    p, ours = spawn_private(prefix, folder)
    assert b"ready" in ours.recv(100) and ours.recv(100) == b""
    return p, ours


def test_a_supervisor_ends_with_the_process_that_started_it(prefix: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        p, ours = start_private(prefix, Path(folder) / "s")
        assert p.poll() is None
        ours.close()
        assert p.wait(20) == 0
        assert os.listdir(folder) == []


def test_a_supervisor_ends_if_the_process_that_started_it_has_ended_before_it_is_ready(prefix: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        p, ours = spawn_private(prefix, Path(folder) / "s")
        ours.close()
        assert p.wait(20) == 0
        assert os.listdir(folder) == []


def test_the_lifeline_takes_the_place_of_the_starting_process(prefix: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        p, ours = start_private(prefix, Path(folder) / "s")
        with socket.socket(socket.AF_UNIX) as lifeline:
            lifeline.connect(f"{folder}/s/life.sock")
            assert len(lifeline.recv(100)) == 33  # the token
            ours.close()
            with socket.socket(socket.AF_UNIX) as host:  # it still serves
                host.connect(f"{folder}/s/host.sock")
                assert host.recv(1)
        assert p.wait(20) == 0


def test_atexit_runs_when_the_host_is_killed(workspace: Path, prefix: Path) -> None:
    host = (
        "import sys, os\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from cellgate_api import Client\n"
        "c = Client(); s = c.session(workspace=sys.argv[1])\n"
        f"s.run({REGISTER!r})\n"
        "print('up', flush=True); sys.stdin.read()\n"
    )
    env = os.environ | {"CG_PREFIX": str(prefix)}
    p = subprocess.Popen(
        [sys.executable, "-c", host, str(workspace)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    assert p.stdout is not None
    assert p.stdout.readline() == b"up\n"
    p.send_signal(signal.SIGKILL)
    p.wait()
    eventually(lambda: (workspace / "left").exists())


STRAY = "import os, subprocess\nsubprocess.run(['setsid', '--fork', 'sleep', f'1000.{os.getpid()}'])\nos.getpid()"


def start_stray(session: Session) -> tuple[int, int]:
    """The kernel, and a process that it has started without a sandbox, in a session of its own, without its parent."""
    kernel = int(session.run(STRAY).value)
    mark = f"1000.{kernel}".encode()
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [p for p in children(parent(kernel)) if mark in words(p)]
        return bool(found)

    eventually(is_there)
    return kernel, found[0]


def test_without_a_sandbox_all_ends_with_a_kernel_that_does_not_end(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, sandbox=1) as s:
        kernel, stray = start_stray(s)
        os.kill(kernel, signal.SIGSTOP)
    eventually(lambda: not alive(stray))


def test_without_a_sandbox_all_ends_with_the_supervisor_where_init_was_killed(workspace: Path) -> None:
    with Client(no_spare=True) as c, c.session(workspace=workspace, sandbox=1) as s:
        _, stray = start_stray(s)
        os.kill(parent(stray), signal.SIGKILL)
        s.until("kernel_died")
    assert not alive(stray)


def test_without_a_sandbox_all_ends_with_a_supervisor_that_was_killed(prefix: Path, workspace: Path) -> None:
    """Init is stopped: it cannot see the supervisor's end before the zygote ends it."""
    with Client(no_spare=True) as c, c.session(workspace=workspace, sandbox=1) as s:
        _, stray = start_stray(s)
        init = parent(stray)
        os.kill(init, signal.SIGSTOP)
        os.kill(named(children(os.getpid()), "cellgate-superv"), signal.SIGKILL)
        eventually(lambda: not alive(stray) and not alive(init))


@pytest.mark.parametrize("cell", [None, "pass"])
def test_only_a_kernel_that_ran_a_cell_gets_time_for_atexit(repo: Path, workspace: Path, cell: str | None) -> None:
    """Here a preloaded module has registered something before any cell: without one the kernel is ended at once."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        env = Path(folder) / "env"
        packages = copy_environment(env) / PACKAGES
        (packages / "at_the_end.py").write_text("import atexit; atexit.register(lambda: open('left', 'w').close())\n")
        with (
            Client(kernel_env=str(env), preload="at_the_end", no_spare=True) as c,
            c.session(workspace=workspace) as s,
        ):
            if cell:
                s.run(cell)
    assert (workspace / "left").exists() == (cell is not None)


def test_what_a_kernel_said_last_is_heard_however_slow_the_supervisor_is(workspace: Path) -> None:
    with Client(log_level=0) as c, c.session(workspace=workspace) as s:
        pid = named(children(os.getpid()), "cellgate-superv")
        s.run("import os, time\nfrom IPython.display import display")
        s.execute("time.sleep(0.3)\nfor i in range(200): display(i)\ntime.sleep(0.3)\nos.kill(os.getpid(), 9)")
        time.sleep(0.1)
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1.2)
            for _ in range(40):  # it gets the processor for moments only
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.00005)
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.04)
        finally:
            os.kill(pid, signal.SIGCONT)
        events = s.until("kernel_died")
        assert [e.json["data"]["text/plain"] for e in events if e.type == "display_data"] == [
            str(i) for i in range(200)
        ]
