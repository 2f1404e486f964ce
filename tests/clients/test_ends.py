"""After any end of a kernel, its client gets one reply with the reason, then idle, and a new kernel at the same sockets."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty

import pytest
from clients.support import Jupyter, Kernel, text_of

# A number that is in no other process's arguments.
LONG_SLEEP = 31415926 + os.getpid()


def sleepers() -> list[int]:
    """Host processes `sleep LONG_SLEEP`, in whichever namespace."""
    wanted = b"sleep\0%d\0" % LONG_SLEEP
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == wanted:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def all_there(count: int, limit_s: float) -> bool:
    """True if there are `count` children, after a wait: Popen() may return before a child has its new command line."""
    deadline = time.monotonic() + limit_s
    while len(sleepers()) != count and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(sleepers()) == count


def all_gone(look: Callable[[], list[int]], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def pid_with(marker: Path) -> int:
    """The host's number of the kernel that has this file open; what opened it for the kernel may have it still."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                is_kernel = (entry / "comm").read_text() == "cellgate-kernel\n"
                if is_kernel and any(os.readlink(fd) == str(marker) for fd in (entry / "fd").iterdir()):
                    return int(entry.name)
            except OSError:
                continue
    raise AssertionError(f"no process has {marker} open")


def check_death(kernel: Kernel, request: str, *reason: str) -> None:
    """One reply with the reason, the same as an error on iopub, idle after it; nothing of the old kernel in the new one."""
    reply = kernel.reply(request)
    outputs = kernel.outputs(request)
    assert reply["status"] == "error"
    assert "execution_count" in reply
    errors = [m["content"] for m in outputs if m["msg_type"] == "error"]
    assert len(errors) == 1, outputs
    for said in (reply, errors[0]):
        assert said["ename"]
        assert any(r in said["evalue"] for r in reason), said["evalue"]
        assert isinstance(said["traceback"], list)
    check_fresh(kernel, request)


def check_fresh(kernel: Kernel, request: str) -> None:
    after, outputs = kernel.run("print('state' in globals())")
    assert after["status"] == "ok", after
    assert text_of(outputs) == "False\n"
    with pytest.raises(Empty):  # no second reply to the cell that ended
        while True:
            late = kernel.client.get_shell_msg(timeout=0.1)
            assert late["parent_header"]["msg_id"] != request
    assert kernel.manager.is_alive()
    assert kernel.client.hb_channel.is_beating()


DEATHS = {
    "killed": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    "segfault": ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
    "abort": ("import os\nos.abort()", "SIGABRT"),
    "stack overflow": (
        "import ctypes\nf = ctypes.CFUNCTYPE(None)(lambda: f())\nimport sys\nsys.setrecursionlimit(10**8)\nf()",
        "SIG",
    ),
    "bus error": (
        "import ctypes, mmap, tempfile\nfile = tempfile.TemporaryFile()\nfile.truncate(4096)\n"
        "m = mmap.mmap(file.fileno(), 4096)\nfile.truncate(0)\nm[0]",
        "SIGBUS",
    ),
    "exit": ("import os\nos._exit(3)", "3"),
    "exit in a thread": (
        "import os, threading, time\nthreading.Thread(target=os._exit, args=(4,)).start()\ntime.sleep(600)",
        "4",
    ),
    "exit 0": ("import os\nos._exit(0)", "exit"),
}


@pytest.mark.parametrize("how", DEATHS)
def test_a_kernel_that_ends(kernel: Kernel, how: str) -> None:
    code, reason = DEATHS[how]
    request = kernel.send("state = 1\nprint('output before the end', flush=True)\n" + code)
    check_death(kernel, request, reason)


def test_what_was_printed_before_the_end_arrives(kernel: Kernel) -> None:
    request = kernel.send("import os\nprint('last words')\nos.system('echo from a child')\nos._exit(1)")
    assert kernel.reply(request)["status"] == "error"
    said = text_of(kernel.outputs(request))
    assert "last words" in said
    assert "from a child" in said


def test_killed_from_outside(jupyter: Jupyter, kernel: Kernel) -> None:
    """As the kernel's out-of-memory killer does it."""
    marker = jupyter.work / "marker"
    request = kernel.send(f"state = open({str(marker)!r}, 'w')\nprint('open')\nimport time\ntime.sleep(600)")
    kernel.says(request, "open")
    os.kill(pid_with(marker), signal.SIGKILL)
    check_death(kernel, request, "SIGKILL")


def test_killed_between_two_cells(jupyter: Jupyter, kernel: Kernel) -> None:
    """No request waits: the next one finds a fresh kernel, and no reply is missing or too many."""
    marker = jupyter.work / "marker-idle"
    reply, _ = kernel.run(f"state = open({str(marker)!r}, 'w')")
    assert reply["status"] == "ok"
    os.kill(pid_with(marker), signal.SIGKILL)
    request = kernel.send("'state' in globals()")
    reply = kernel.reply(request)
    if reply["status"] == "error":  # it came before the end was noticed, and ran or waited when it was
        assert "SIGKILL" in reply["evalue"], reply
    kernel.outputs(request)
    check_fresh(kernel, request)


def test_out_of_memory_is_an_exception(kernel: Kernel) -> None:
    """With a limit the allocation fails; the kernel lives and says so."""
    limit = "import resource\nstate = resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
    reply, outputs = kernel.run(limit + "bytearray(1 << 32)")
    assert (reply["status"], reply["ename"]) == ("error", "MemoryError")
    assert outputs[-1]["content"] == {"execution_state": "idle"}
    reply, outputs = kernel.run("print('state' in globals())")
    assert text_of(outputs) == "True\n"


def test_out_of_memory_in_native_code(kernel: Kernel) -> None:
    """Native code that does not handle a failed allocation ends the process."""
    code = (
        "import ctypes, resource\nresource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
        "libc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\nlibc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]\n"
        "libc.malloc.argtypes = [ctypes.c_size_t]\nlibc.memset(libc.malloc(1 << 32), 1, 1 << 32)"
    )
    check_death(kernel, kernel.send(code), "SIGSEGV")


STUBBORN = {
    "native loop": "sum(range(10**12))",
    "stopped": "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGSTOP)).start()\ntime.sleep(600)",
    "signals blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\ntime.sleep(600)",
    "handler of its own": "signal.signal(signal.SIGINT, lambda *_: None)\ntime.sleep(600)",
    "swallows every interrupt": "while True:\n    try:\n        time.sleep(600)\n    except BaseException:\n        pass",
}


@pytest.mark.parametrize("how", STUBBORN)
def test_what_ignores_the_interrupt_is_replaced(kernel: Kernel, how: str) -> None:
    """The client need not know: its one interrupt is answered, and the answer says what became of the kernel."""
    head = "state = 1\nimport os, signal, threading, time\nprint('on', flush=True)\n"
    request = kernel.send(head + STUBBORN[how])
    kernel.says(request, "on")
    time.sleep(0.5)  # until it is where it should be
    kernel.manager.interrupt_kernel()
    check_death(kernel, request, "replaced")


def test_what_heeds_the_interrupt_is_not_replaced(kernel: Kernel) -> None:
    request = kernel.send("state = 1\nimport time\nprint('on', flush=True)\ntime.sleep(600)")
    kernel.says(request, "on")
    kernel.manager.interrupt_kernel()
    assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
    kernel.outputs(request)
    assert text_of(kernel.run("print(state)")[1]) == "1\n"


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    os.write(1, b'x' * 65536)",
        "while True:\n    print('y' * 10000)",
        "while True:\n    os.write(2, b'\\xff' * 4096)",
        "subprocess.run(['yes', 'full pipe'])",
    ],
    ids=["fd 1", "print", "fd 2, not UTF-8", "child"],
)
def test_full_pipes_and_an_interrupt(kernel: Kernel, code: str) -> None:
    """Endless output, which the client does not read until the reply has arrived."""
    request = kernel.send("import os, subprocess, sys\nprint('on', flush=True)\n" + code)
    kernel.says(request, "on")
    time.sleep(0.5)  # let it fill what can be filled
    kernel.manager.interrupt_kernel()
    reply = kernel.reply(request, 60)
    assert reply["status"] == "error"
    kernel.outputs(request, 60)
    after, outputs = kernel.run("print('next')")
    assert after["status"] == "ok"
    assert text_of(outputs) == "next\n"


def test_full_pipes_and_the_end(kernel: Kernel) -> None:
    """A child that outlives the kernel's main process continues to write: it is ended with the kernel."""
    code = "state = 1\nimport os, subprocess, time\nsubprocess.Popen(['yes', 'full'])\ntime.sleep(0.5)\nos._exit(5)"
    request = kernel.send(code)
    reply = kernel.reply(request, 60)
    assert reply["status"] == "error"
    assert "5" in reply["evalue"]
    kernel.outputs(request, 60)
    check_fresh(kernel, request)


SPAWN = f"import subprocess\nstate = [subprocess.Popen(['sleep', '{LONG_SLEEP}']) for _ in range(200)]\nprint('on', flush=True)\n"


def test_200_children_and_the_end(kernel: Kernel, slowness: float) -> None:
    request = kernel.send(SPAWN + "import os\nos._exit(6)")
    check_death(kernel, request, "6")
    assert all_gone(sleepers, 10 * slowness)


def test_200_children_and_an_interrupt(kernel: Kernel, slowness: float) -> None:
    request = kernel.send(SPAWN + "[p.wait() for p in state]")
    kernel.says(request, "on")
    assert all_there(200, 5 * slowness)
    kernel.manager.interrupt_kernel()
    reply = kernel.reply(request)
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
    kernel.outputs(request)
    reply, outputs = kernel.run("for p in state:\n    p.kill()\nprint(sum(p.wait() < 0 for p in state))")
    # The same kernel still. Of the one that was waited for Popen can have lost the status: the interrupt came right
    # behind waitpid().
    assert text_of(outputs) in ("199\n", "200\n")
    assert all_gone(sleepers, 10 * slowness)


def test_200_children_and_a_shutdown(jupyter: Jupyter, spec: str, slowness: float) -> None:
    with jupyter.kernel(spec) as kernel:
        request = kernel.send(SPAWN)
        kernel.reply(request)
        assert all_there(200, 5 * slowness)
    assert all_gone(sleepers, 10 * slowness)


def test_a_restart_ends_what_runs(jupyter: Jupyter, kernel: Kernel, slowness: float) -> None:
    request = kernel.send(SPAWN + "import time\ntime.sleep(600)")
    kernel.says(request, "on")
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60 * slowness)
    reply, outputs = kernel.run("print('state' in globals())")
    assert text_of(outputs) == "False\n"
    assert all_gone(sleepers, 10 * slowness)


def test_too_many_processes_are_an_exception(jupyter: Jupyter) -> None:
    """The sandbox's limit, not the machine's: the kernel lives."""
    code = (
        "import os, signal\nstate = []\ntry:\n    for _ in range(5000):\n        pid = os.fork()\n        if not pid:\n"
        "            signal.pause()\n        state.append(pid)\nexcept OSError as e:\n    print(type(e).__name__)\n"
        "finally:\n    for pid in state:\n        os.kill(pid, 9)\n        os.waitpid(pid, 0)"
    )
    with jupyter.kernel(jupyter.install("cellgate-few", "--limit", "processes=100")) as kernel:
        reply, outputs = kernel.run(code, 60)
        assert reply["status"] == "ok", reply
        assert text_of(outputs) == "BlockingIOError\n"
        assert text_of(kernel.run("print(len(state) < 100)")[1]) == "True\n"


def test_cells_that_wait_behind_a_death_are_answered(kernel: Kernel) -> None:
    """Each gets one reply: they do not run in a new kernel, which does not have the earlier state."""
    first = kernel.send("import os, time\ntime.sleep(3)\nos._exit(7)")  # by then the others have come
    waiting = [kernel.send(f"print({i})") for i in range(5)]
    info = kernel.client.kernel_info()
    assert kernel.reply(first)["status"] == "error"
    for request in waiting:
        assert kernel.reply(request)["status"] in ("error", "aborted")
    assert kernel.reply(info)["status"] == "ok"
    for request in (first, *waiting):
        outputs = kernel.outputs(request)
        assert text_of(outputs) == ""
    after, outputs = kernel.run("print('on')")
    assert text_of(outputs) == "on\n"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.closerange(0, 3)",
        "import os\nos.closerange(0, 1000)",
        "import sys\nsys.stdout = sys.stderr = sys.__stdout__ = None",
        "import sys\nsys.modules.clear()",
        "import builtins\nbuiltins.__dict__.clear()",
        "get_ipython().__dict__.clear()",
    ],
)
def test_a_kernel_that_breaks_itself(kernel: Kernel, code: str) -> None:
    """One reply to that cell and to the next, whatever it says; a restart helps."""
    for source in (code, "1"):
        request = kernel.send(source)
        assert kernel.reply(request)["status"] in ("ok", "error")
        kernel.outputs(request)
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    reply, outputs = kernel.run("print('whole')")
    assert text_of(outputs) == "whole\n"


def test_a_client_that_vanishes_leaves_the_kernel_to_the_next(jupyter: Jupyter, kernel: Kernel) -> None:
    """A client disconnects during a cell; another client of the same kernel continues."""
    other = Kernel(kernel.manager, kernel.slowness)
    other.client.wait_for_ready(timeout=60)
    other.run("state = 1")
    running = other.send("import time\nfor i in range(30):\n    print(i, 'x' * 1000)\n    time.sleep(0.01)")
    other.starts(running)
    other.client.stop_channels()
    reply, outputs = kernel.run("print(state)")
    assert text_of(outputs) == "1\n"
