"""Cells that end or abuse their kernel: detected, contained, without leftovers."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel.harness import Kernel, Zygote
from processes import descendants, eventually
from wire_table import KERNEL


@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("import os; os._exit(7)", (7, 0)),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", (-1, signal.SIGKILL)),
        pytest.param(
            "import ctypes; ctypes.string_at(0)",
            (-1, signal.SIGSEGV),
            marks=pytest.mark.no_sanitizer,  # which ends the process with a report of its own
        ),
        ("import ctypes; ctypes.CDLL(None).abort()", (-1, signal.SIGABRT)),
        ("import threading, os; threading.Thread(target=os._exit, args=(3,)).start()\nwhile True: pass", (3, 0)),
    ],
)
def test_death_of_a_kernel(spawn: Callable[..., Kernel], code: str, end: tuple[int, int], sandbox: bool) -> None:
    kernel = spawn(sandbox=sandbox)
    kernel.execute(code)
    assert kernel.wait_gone() == end


def test_killed_from_outside(kernel: Kernel) -> None:
    kernel.execute("while True: pass")
    os.kill(kernel.pid, signal.SIGKILL)
    assert kernel.wait_gone() is None


def test_siblings_survive(spawn: Callable[..., Kernel]) -> None:
    a, b = spawn(), spawn()
    a.execute("import os\ntry: os.kill(-1, 9)\nfinally: os._exit(1)")
    a.wait_gone()
    assert b.run("1").result == "1"
    assert spawn().run("2").result == "2"


def test_forked_processes_end_with_the_kernel(kernel: Kernel) -> None:
    r = kernel.run(
        "import os, time\n"
        "pids = []\n"
        "for _ in range(40):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        time.sleep(1000)\n"
        "    pids.append(pid)\n"
        "len(pids)",
        timeout=30,
    )
    assert r.result == "40"
    inside = [kernel.pid, *descendants(kernel.pid)]
    assert len(inside) >= 41
    signal.pidfd_send_signal(kernel.pidfd, signal.SIGKILL)
    assert kernel.wait_gone() is None
    eventually(lambda: not any(Path(f"/proc/{p}").exists() for p in inside), 30)


@pytest.mark.no_sanitizer  # its shadow memory is over any limit
def test_memory_limit(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn(limits={"memory_bytes": 300 << 20})
    assert kernel.run("x = bytearray(1 << 30)").reply["ename"] == "MemoryError"
    assert kernel.run("1").result == "1"


def test_closed_descriptors(kernel: Kernel) -> None:
    """A cell that closes all descriptors only harms itself."""
    kernel.run("import os\nos.closerange(0, 3)")
    assert kernel.run("print('still here')").out == "still here\n"


def test_all_descriptors_closed_ends_the_kernel_or_not_but_never_hangs_the_zygote(
    zygote: Zygote, spawn: Callable[..., Kernel]
) -> None:
    kernel = spawn()
    kernel.execute("import os\nos.closerange(0, 1000)")
    time.sleep(0.2)
    assert spawn().run("1").result == "1"
    kernel.close()


def test_no_way_to_the_control_socket_or_the_log(kernel: Kernel) -> None:
    r = kernel.run(
        "import os\n"
        "for fd in os.listdir('/proc/self/fd'):\n"
        "    try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n"
        "    except OSError: pass"
    )
    lines = r.out.splitlines()
    assert not [line for line in lines if "/log" in line or line.startswith("3 /")]
    kinds = {line.split()[1].split(":")[0] for line in lines if "/memfd:cellgate-crash " not in line}
    assert kinds <= {"/dev/null", "pipe", "socket", "anon_inode", "/proc/1/fd", "/proc/2/fd", "/proc/3/fd"}, lines


def test_new_unix_connections_are_not_needed(kernel: Kernel) -> None:
    """The listener's name is not visible inside: the kernel works without it."""
    assert kernel.run(f"import os; os.path.exists({str(kernel.zygote.dir)!r})").result == "False"


def test_garbage_from_a_cell_on_its_own_sockets(kernel: Kernel) -> None:
    """Writing into the kernel's ZeroMQ connection breaks that kernel only; the zygote continues."""
    cell = kernel.execute(
        "import os, stat\nfor fd in range(3, 64):\n    try:\n"
        "        if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, b'garbage' * 100)\n"
        "    except OSError: pass"
    )
    del cell
    time.sleep(0.2)
    assert kernel.zygote.process.poll() is None


def test_bad_code_frame_ends_only_that_kernel(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn()
    kernel.shell.send_multipart([b"junk", b"junk"])
    assert kernel.wait_gone() == (71, 0)
    assert spawn().run("1").result == "1"


def test_request_with_wrong_body_ends_the_kernel(kernel: Kernel) -> None:
    kernel.send(KERNEL.EXECUTE_REQUEST, 1, {"silent": "yes"}, b"1", b"")
    assert kernel.wait_gone() == (71, 0)


@pytest.mark.parametrize(
    "code",
    [
        "import builtins\nbuiltins.print = None",
        "import builtins\ndel builtins.repr",
        "import sys\nsys.modules.clear()",
        "import sys\nsys.displayhook = 5",
        "import json\njson.dumps = None",
        "import os\nos.stat = None",
        "get_ipython().display_formatter = None",
        "get_ipython().run_cell = None",
        "get_ipython().execution_count = 'x'",
        "import cellgate_kernel.errors as e\ne.content = None\ne.text_of = None",
        "import sys\nsys.setrecursionlimit(60)",
        "import sys\nsys.settrace(lambda *a: 1/0)",
        "import gc\ngc.disable(); gc.collect(); gc.freeze()",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
        "import asyncio\nasyncio.get_event_loop().close()",
        "import asyncio\nasyncio.set_event_loop(None)",
        "import sys\nsys.stdout = None",
        "del __builtins__",
        "import warnings\nwarnings.simplefilter('error')",
    ],
)
def test_every_request_has_one_reply_whatever_a_cell_breaks(kernel: Kernel, code: str) -> None:
    kernel.run(code)
    for _ in range(3):
        assert kernel.run("1 + 1").status in ("ok", "error")
        assert kernel.run("1 / 0").status == "error"
        assert kernel.run("await __import__('asyncio').sleep(0)").status in ("ok", "error")
