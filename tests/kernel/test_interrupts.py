"""INTERRUPT_REQUEST interrupts the running cell, and no other."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from kernel.harness import SLOWNESS, Kernel
from wire_table import KERNEL

BUSY = [
    "while True: pass",
    "import time\nmark()\ntime.sleep(100)",
    "import threading\nmark()\nthreading.Lock().acquire() and threading.Event().wait()",
    "import asyncio\nmark()\nawait asyncio.sleep(100)",
    "import asyncio\nmark()\nasyncio.run(asyncio.sleep(100))",
    "import asyncio\nmark()\nasyncio.get_event_loop().run_until_complete(asyncio.sleep(100))",
    "import asyncio\nasync def f():\n    while True: pass\nmark()\nawait f()",
    "import subprocess\nmark()\nsubprocess.run(['sleep', '100'])",
    "mark()\n!sleep 100",
    "mark()\nx = !sleep 100",
    "mark()\n%time __import__('time').sleep(100)",
    "import os\nmark()\nos.read(os.pipe()[0], 1)",
    "import select\nmark()\nselect.select([], [], [])",
    "import queue\nmark()\nqueue.Queue().get()",
    "mark()\nwhile True: print('x')",
    "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\n"
    "mark()\nwhile True: pass",
]


def start(kernel: Kernel, code: str) -> int:
    """Run until the cell waits."""
    kernel.run("def mark(): print('started', flush=True)")
    if "mark()" not in code:
        code = "mark()\n" + code
    cell = kernel.execute(code)
    kernel.wait_for_text("started\n") if "print('x')" not in code else kernel.receive()
    time.sleep(0.02)
    return cell


@pytest.mark.parametrize("code", BUSY)
def test_interrupt(kernel: Kernel, code: str) -> None:
    cell = start(kernel, code)
    kernel.interrupt(cell)
    r = kernel.collect(cell)
    assert (r.status, r.reply["ename"]) == ("error", "KeyboardInterrupt")
    assert r.error["ename"] == "KeyboardInterrupt"
    assert kernel.run("1").result == "1"


IGNORED = {
    "destructor": "class D:\n    def __del__(self): interrupt()\nd = D()\ndel d",
    "callback of a weak reference": "import weakref\nclass D: pass\nd = D()\n"
    "r = weakref.ref(d, lambda _: interrupt())\ndel d",
    "garbage": "import gc\nclass D:\n    def __del__(self): interrupt()\nd = D()\nd.d = d\ndel d\ngc.collect()",
}
RAISE = {
    "main": "import signal\ndef interrupt(): signal.raise_signal(signal.SIGINT)\n",
    "subshell": "import _cellgate\ndef interrupt():\n    _cellgate.interrupt_subshell(_cellgate.current_cell())\n    print()\n",
}


@pytest.mark.parametrize("shell", RAISE)
@pytest.mark.parametrize("code", IGNORED.values(), ids=IGNORED.keys())
def test_an_interrupt_that_python_ignores_is_repeated(kernel: Kernel, code: str, shell: str) -> None:
    where = {}
    if shell == "subshell":
        where["subshell"] = kernel.ask("create_subshell_request", {})["subshell_id"]
    r = kernel.run(RAISE[shell] + code + "\nfor _ in range(10): pass\nprint('not interrupted')", **where)
    assert r.reply["ename"] == "KeyboardInterrupt"
    assert "not interrupted" not in r.out and "ignored" not in r.err
    assert kernel.run("1", **where).result == "1"


def test_other_exceptions_in_destructors_are_shown(kernel: Kernel) -> None:
    r = kernel.run("class D:\n    def __del__(self): 1 / 0\nd = D()\ndel d\n7")
    assert r.result == "7" and "Exception ignored in" in r.err and "ZeroDivisionError" in r.err


def test_no_debugger_sees_the_function_that_interrupts_an_await(kernel: Kernel) -> None:
    code = (
        "import asyncio, signal, sys\nseen = set()\ndef trace(frame, event, arg): seen.add(frame.f_code.co_name)\n"
        "asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)\n"
        "sys.settrace(trace)\ntry: await asyncio.sleep(100)\nfinally: sys.settrace(None)"
    )
    assert kernel.run(code).reply["ename"] in ("KeyboardInterrupt", "CancelledError")
    assert kernel.run("'select' in seen, 'interrupt_in_loop' in seen").result == "(True, False)"


def test_traceback_of_an_interrupted_await_names_the_line(kernel: Kernel) -> None:
    later = "import asyncio\nasyncio.get_running_loop().call_soon(lambda: mark())\n"  # during the await
    cell = start(kernel, later + "await asyncio.sleep(100)")
    kernel.interrupt(cell)
    text = "\n".join(kernel.collect(cell).error["traceback"])
    assert "----> 3 await asyncio.sleep(100)" in text
    assert "run_until_complete" not in text


def test_finally_blocks_run(kernel: Kernel) -> None:
    cell = start(
        kernel, "import asyncio\ntry:\n    mark()\n    await asyncio.sleep(100)\nfinally:\n    print('cleaned')"
    )
    kernel.interrupt(cell)
    assert "cleaned\n" in kernel.collect(cell).out


def test_interrupted_children_are_gone(kernel: Kernel) -> None:
    seconds = f"{76543 + os.getpid()}.{time.monotonic_ns()}"  # which no other test's child has
    cell = kernel.execute(f"!echo running; sleep {seconds}")
    kernel.wait_for_text("running\n")
    kernel.interrupt(cell)
    kernel.collect(cell)
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if _readable(p)]
    assert not [line for line in lines if f"sleep\0{seconds}".encode() in line]


# Records the process of a command, and reports when the command has made the file.
RECORD = """
import os, pathlib, select, subprocess, threading, time
real, pids = subprocess._fork_exec, []
def fork(*args):
    pids.append(real(*args))
    return pids[-1]
subprocess._fork_exec = fork
def report():
    while not pathlib.Path('/tmp/up').exists():
        time.sleep(0.01)
    print('started', flush=True)
threading.Thread(target=report, daemon=True).start()
def ends(pid, seconds):
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    return select.select([fd], [], [], seconds)[0] == [fd]
"""


@pytest.mark.parametrize("code", ["!{}", "x = !{}"])
def test_second_interrupt_ends_a_command_that_ignores_the_first(kernel: Kernel, code: str) -> None:
    """It comes within the time that a command has to end after SIGINT."""
    kernel.run(RECORD)
    cell = kernel.execute(code.format("trap '' INT; touch /tmp/up; sleep 1000 & wait; sleep 1000"))
    kernel.wait_for_text("started\n")
    kernel.interrupt(cell)
    time.sleep(0.1)
    kernel.interrupt(cell)
    assert kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"
    assert kernel.run(f"ends(pids[0], {5 * SLOWNESS})", timeout=15).result == "True"


# The process of a command has started, but subprocess.Popen() has not returned before the gate opens.
GATE = """
import os, subprocess
real, (gate, opens), pids = subprocess._fork_exec, os.pipe(), []
def fork(*args):
    pids.append(real(*args))
    print('started', flush=True)
    os.read(gate, 1)
    return pids[-1]
subprocess._fork_exec = fork
"""


@pytest.mark.parametrize("code", ["!sleep 1000", "x = !sleep 1000"])
@pytest.mark.parametrize("subshell", [False, True])
def test_an_interrupt_ends_a_command_that_is_starting(kernel: Kernel, code: str, subshell: bool) -> None:
    kernel.run(GATE)
    sub = kernel.ask("create_subshell_request", {})["subshell_id"] if subshell else None
    cell = kernel.execute(code, subshell=sub)
    kernel.wait_for_text("started\n")
    kernel.interrupt(cell)
    if not subshell:  # the thread of a subshell is interrupted once Popen() has returned
        assert kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"
    gone = f"fd = os.pidfd_open(pids[0])\nos.write(opens, b'x')\n__import__('select').select([fd], [], [], {10 * SLOWNESS})[0] == [fd]"
    assert kernel.run(gone, timeout=15).result == "True"


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_interrupt_for_another_cell_is_ignored(kernel: Kernel) -> None:
    cell = start(kernel, "import time\nmark()\nfor _ in range(20): time.sleep(0.01)\n'done'")
    kernel.interrupt(cell + 1)
    kernel.interrupt(cell - 1)
    assert kernel.collect(cell).result == "'done'"


def test_interrupt_while_idle_is_ignored(kernel: Kernel) -> None:
    cell = kernel.execute("1")
    kernel.collect(cell)
    for _ in range(20):
        kernel.interrupt(cell)
    assert kernel.run("import time\ntime.sleep(0.1)\n2").result == "2"


def test_late_interrupts_never_hit_the_next_cell(kernel: Kernel) -> None:
    """Cells that end at about the time of the interrupt."""
    for i in range(300):
        first = kernel.execute("x = 0" if i % 2 else "for i in range(2000): x = i")
        kernel.interrupt(first)
        second = kernel.execute("import time\ntime.sleep(0.001)\n'second'")
        assert kernel.collect(first).err == ""
        r = kernel.collect(second)
        assert (r.result, r.err) == ("'second'", ""), i


# A callback that keeps its thread busy until the test says so.
BUSY_CALLBACK = """
import asyncio, os, time
def busy():
    print('in', flush=True)
    while not os.path.exists('go'): time.sleep(0.01)
    os.unlink('go')
_ = asyncio.get_event_loop().call_soon(busy)
"""


def go(kernel: Kernel) -> None:
    """Let the callback end. Another thread answers this, after it has read all earlier messages."""
    kernel.ask("list_subshell_request", {})
    (kernel.workspace / "go").touch()


@pytest.mark.parametrize("subshell", [False, True])
def test_a_cell_that_has_not_begun_yet(kernel: Kernel, subshell: bool) -> None:
    """The interrupt of a cell whose thread still runs a callback of an earlier cell is kept."""
    options: dict[str, Any] = {}
    if subshell:
        options = {"subshell": kernel.ask("create_subshell_request", {})["subshell_id"]}
    for _ in range(3):
        kernel.run(BUSY_CALLBACK, **options)
        kernel.wait_for_text("in")
        second = kernel.execute("ran = True\nwhile True: pass", **options)
        kernel.interrupt(second)
        go(kernel)
        r = kernel.collect(second)
        assert (r.status, r.reply["ename"], r.error["ename"]) == ("error", "KeyboardInterrupt", "KeyboardInterrupt")
        third = kernel.execute("'ran' in globals()", **options)
        assert kernel.collect(third).result == "False"


def test_a_request_that_has_not_begun_yet(kernel: Kernel) -> None:
    kernel.run(BUSY_CALLBACK)
    kernel.wait_for_text("in")
    ident = kernel.request("complete_request", {"code": "pri"})
    kernel.interrupt(ident)
    go(kernel)
    assert kernel.reply(ident)[0]["ename"] == "KeyboardInterrupt"
    assert kernel.run("1").result == "1"


def test_interrupts_during_the_error_display(kernel: Kernel) -> None:
    for _ in range(30):
        cell = kernel.execute("def f(n):\n    return f(n - 1) if n else 1 / 0\nf(100)")
        for _ in range(3):
            kernel.interrupt(cell)
        assert kernel.collect(cell).status == "error"
    assert kernel.run("1").result == "1"


def test_a_cell_that_swallows_interrupts_needs_more_of_them(kernel: Kernel) -> None:
    cell = kernel.execute(
        "import time\nn = 0\nwhile n < 3:\n    try:\n        print('in', n, flush=True)\n        time.sleep(100)\n"
        "    except KeyboardInterrupt:\n        n += 1"
    )
    for n in range(3):
        kernel.wait_for_text(f"in {n}\n")
        kernel.interrupt(cell)
    assert kernel.collect(cell).status == "ok"


def test_a_coroutine_that_swallows_cancellation(kernel: Kernel) -> None:
    cell = start(
        kernel,
        "import asyncio\nmark()\nwhile True:\n    try: await asyncio.sleep(100)\n"
        "    except asyncio.CancelledError: print('swallowed')",
    )
    deadline = time.monotonic() + 10 * SLOWNESS
    while True:
        assert time.monotonic() < deadline
        kernel.interrupt(cell)
        message = kernel.receive()
        if message.type == "EXECUTE_REPLY":
            break
    assert message.body["ename"] == "KeyboardInterrupt"
    assert kernel.run("1").result == "1"


def test_a_cell_that_is_interrupted_before_its_task_runs_does_not_run_later(kernel: Kernel) -> None:
    kernel.run(
        "import asyncio, signal\nloop = asyncio.get_event_loop()\n"
        "def create_task(*args, **options):\n    del loop.create_task\n    task = loop.create_task(*args, **options)\n"
        "    signal.raise_signal(signal.SIGINT)\n    return task\nloop.create_task = create_task"
    )
    assert kernel.run("ran = 1\nawait asyncio.sleep(0)").error["ename"] == "KeyboardInterrupt"
    assert kernel.run("await asyncio.sleep(0.01)\n'ran' in globals()").result == "False"


def test_a_cells_own_handler_is_used_and_then_forgotten(kernel: Kernel) -> None:
    cell = start(
        kernel,
        "import signal, time\nhit = []\nsignal.signal(signal.SIGINT, lambda *a: hit.append(1))\nmark()\n"
        "while not hit: time.sleep(0.01)\nlen(hit)",
    )
    kernel.interrupt(cell)
    assert kernel.collect(cell).status == "ok"
    cell = start(kernel, "while True: pass")
    kernel.interrupt(cell)
    assert kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"


WAITS = {
    "sleep": "while not hit: time.sleep(0.05)",
    "loop": "while not hit: pass",
    "await": "while not hit: await asyncio.sleep(0.01)",
    "subprocess": "while not hit: subprocess.run(['sleep', '100'])",
    "native": "ctypes.PyDLL(None).poll(None, 0, 100000)",
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_cells_own_handler_is_called_once(kernel: Kernel, wait: str) -> None:
    cell = start(
        kernel,
        "import asyncio, ctypes, signal, subprocess, time\nhit = []\n"
        f"signal.signal(signal.SIGINT, lambda *a: hit.append(1))\nmark()\n{WAITS[wait]}\n"
        # longer than several attempts
        "end = time.monotonic() + 0.5\nwhile time.monotonic() < end: time.sleep(0.001)\nlen(hit)",
    )
    kernel.interrupt(cell)
    assert kernel.collect(cell).result == "1"


@pytest.mark.parametrize(
    "setup", ["signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])", "ctypes.CDLL(None).signal(2, 1)"]
)
@pytest.mark.parametrize("wait", ["time.sleep(0.3)", "ctypes.CDLL(None).poll(None, 0, 300)"])
def test_the_handling_of_an_interrupt_is_not_interrupted(kernel: Kernel, setup: str, wait: str) -> None:
    """Also where it took many attempts, because a signal does not arrive."""
    cell = start(
        kernel,
        f"import ctypes, signal, time\n{setup}\nmark()\ntry:\n    {wait}\n    while True: time.sleep(0.01)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.1)\n    print('cleaned')",
    )
    kernel.interrupt(cell)
    done = kernel.collect(cell)
    assert (done.status, done.out) == ("ok", "cleaned\n")


def test_an_interrupt_while_a_cell_ignores_or_blocks_the_signal(kernel: Kernel) -> None:
    """It is repeated until it arrives."""
    ignore, restore = "old = signal.signal(signal.SIGINT, signal.SIG_IGN)", "signal.signal(signal.SIGINT, old)"
    cell = start(kernel, f"import signal, time\n{ignore}\nmark()\ntime.sleep(0.3)\n{restore}\ntime.sleep(100)")
    kernel.interrupt(cell)
    assert kernel.collect(cell).error["ename"] == "KeyboardInterrupt"
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])"
    cell = start(
        kernel,
        f"import signal, time\n{block}\ntry:\n    mark()\n    while True: time.sleep(0.01)\n"
        "finally: signal.pthread_sigmask(signal.SIG_SETMASK, [])",
    )
    kernel.interrupt(cell)
    assert kernel.collect(cell).error["ename"] == "KeyboardInterrupt"


def test_signal_sent_while_idle_is_ignored(kernel: Kernel) -> None:
    kernel.run(
        "import os, signal, threading, time\ndef late():\n    while not os.path.exists('go'): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    print('sent', flush=True)\nthreading.Thread(target=late).start()"
    )
    (kernel.workspace / "go").touch()
    kernel.wait_for_text("sent\n")
    assert kernel.run("1").result == "1"


def test_requests_are_read_while_native_code_holds_the_interpreter(kernel: Kernel, workspace: Path) -> None:
    """The I/O thread needs no GIL: output written before the native loop arrives during it."""
    os.mkfifo(workspace / "pipe")
    cell = kernel.execute(
        "import ctypes, os\nfd = os.open('pipe', os.O_RDWR)\nprint('before')\n"
        "ctypes.PyDLL(None).read(fd, ctypes.create_string_buffer(1), 1)"
    )
    kernel.wait_for_text("before\n")
    fd = os.open(workspace / "pipe", os.O_WRONLY)
    os.write(fd, b"x")  # what it waits for
    os.close(fd)
    assert kernel.collect(cell).result == "1"


def test_shutdown_runs_atexit(kernel: Kernel, workspace: Path) -> None:
    kernel.run("import atexit\natexit.register(lambda: open('ended', 'w').write('yes'))")
    kernel.send(KERNEL.SHUTDOWN_REQUEST)
    assert kernel.wait_gone() == (0, 0)
    assert (workspace / "ended").read_text() == "yes"


def test_output_of_atexit_arrives(kernel: Kernel) -> None:
    kernel.run("import atexit\natexit.register(print, 'good bye')")
    kernel.send(KERNEL.SHUTDOWN_REQUEST)
    assert kernel.wait_for_text("good bye\n")
    assert kernel.wait_gone() == (0, 0)


@pytest.mark.parametrize(
    "code", ["while True: pass", "import time\ntime.sleep(100)", "await __import__('asyncio').sleep(100)"]
)
def test_shutdown_while_busy(kernel: Kernel, code: str) -> None:
    cell = start(kernel, code)
    kernel.send(KERNEL.SHUTDOWN_REQUEST)
    assert kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"
    assert kernel.wait_gone() == (0, 0)


def test_shutdown_has_a_deadline(kernel: Kernel) -> None:
    kernel.run("import atexit, time\natexit.register(time.sleep, 100)")
    kernel.send(KERNEL.SHUTDOWN_REQUEST)
    assert kernel.wait_gone() == (0, 0)


def test_an_interrupt_reaches_what_the_cell_has_started(kernel: Kernel) -> None:
    """As at a terminal, but processes of earlier cells continue."""
    kernel.run("import subprocess, time\nold = subprocess.Popen(['sleep', '1000'])\ntime.sleep(0.1)")
    cell = kernel.execute(
        "new = subprocess.Popen(['sleep', '1000'])\nown = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print('in', flush=True)\ntime.sleep(100)"
    )
    kernel.wait_for_text("in")
    kernel.interrupt(cell)
    assert kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"
    assert kernel.run("new.wait(10)").result == "-2"
    assert kernel.run("time.sleep(0.1); old.poll(), own.poll()").result == "(None, None)"


def test_an_interrupted_completion_leaves_processes_alone(kernel: Kernel) -> None:
    kernel.run("import subprocess, time\nold = subprocess.Popen(['sleep', '1000'])\ntime.sleep(0.1)")
    kernel.run("class S:\n    def __dir__(self):\n        print('in', flush=True)\n        time.sleep(100)\ns = S()")
    ident = kernel.request("complete_request", {"code": "s."})
    kernel.wait_for_text("in")
    kernel.interrupt(ident)
    kernel.reply(ident)
    assert kernel.run("time.sleep(0.1); old.poll()").result is None


def test_an_interrupt_while_a_traceback_is_shown(kernel: Kernel) -> None:
    """There is one `error`, and the reply is of the same exception."""
    kernel.run(
        "import _cellgate\npublish = _cellgate.publish\ndef publish_and_be_interrupted(kind, content):\n"
        "    publish(kind, content)\n    if kind == 'error': raise KeyboardInterrupt"
    )
    r = kernel.run("_cellgate.publish = publish_and_be_interrupted\n1/0")
    assert r.error["ename"] == r.reply["ename"] == "ZeroDivisionError"
    r = kernel.run("_cellgate.publish = publish\nraise KeyboardInterrupt")
    assert r.error["ename"] == r.reply["ename"] == "KeyboardInterrupt"
    r = kernel.run("try:\n    1/0\nexcept ZeroDivisionError:\n    raise KeyboardInterrupt")
    assert r.error["ename"] == r.reply["ename"] == "KeyboardInterrupt"


def test_an_interrupt_interrupts_once(kernel: Kernel) -> None:
    """An interrupt is a flag and a signal: the second does not interrupt the handling of the first."""
    code = "try:\n    print('in', flush=True)\n    while True: pass\nexcept KeyboardInterrupt:\n    sum(range(300000))\n'went on'"
    for _ in range(20):
        cell = kernel.execute(code)
        kernel.wait_for_text("in")
        kernel.interrupt(cell)
        assert kernel.collect(cell).result == "'went on'"


def test_a_signal_of_its_own_right_after_an_interrupt(kernel: Kernel) -> None:
    code = "print('in', flush=True)\nwhile True: pass"
    cell = kernel.execute(code)
    kernel.wait_for_text("in")
    kernel.interrupt(cell)
    assert kernel.collect(cell).error["ename"] == "KeyboardInterrupt"
    r = kernel.run("import os, signal, time\ntime.sleep(0.1)\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(1)")
    assert r.error["ename"] == "KeyboardInterrupt"
