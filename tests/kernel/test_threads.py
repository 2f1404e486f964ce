"""Whose output is it: threads, pools, tasks and processes speak for the cell that has started them."""

import pytest
from kernel.harness import Kernel, Message


def gather(kernel: Kernel, count: int, timeout: float = 10.0) -> dict[str, int]:
    """Stream text by line, and the cell of each, until so many lines and no reply is outstanding."""
    found: dict[str, int] = {}
    while len(found) < count:
        message = kernel.receive(timeout)
        if message.type == "STREAM":
            for line in message.raw.decode().splitlines():
                found[line] = message.id
    return found


def later(kernel: Kernel, start: str, code: str = "print('old')") -> tuple[int, Message]:
    """Start something in one cell that does `code` when the next cell lets it; returns the first cell and its message."""
    kernel.run(
        "import threading\ngo, done = threading.Event(), threading.Event()\ndef work():\n    go.wait()\n    "
        + code
        + "\n    done.set()"
    )
    first = kernel.execute(start)
    assert kernel.collect(first).status == "ok"
    r_cell = kernel.execute("go.set()\ndone.wait(10)\nprint('new')")
    messages = []
    while (m := kernel.receive()).type != "EXECUTE_REPLY":
        if m.raw != b"\n":  # on a slow machine a line's end can come by itself
            messages.append(m)
    assert m.id == r_cell
    (old,) = [m for m in messages if b"new" not in m.raw]
    (new,) = [m for m in messages if b"new" in m.raw]
    assert new.id == r_cell
    return first, old


STARTS = {
    "thread": "threading.Thread(target=work).start()",
    "subclass": "class T(threading.Thread):\n    def run(self): work()\nT().start()",
    "thread of a thread": "threading.Thread(target=lambda: threading.Thread(target=work).start()).start()",
    "timer": "threading.Timer(0, work).start()",
    "pool": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\npool.submit(work);",
    "to_thread": "import asyncio\nloop = asyncio.get_running_loop()\nloop.run_in_executor(None, work);",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_a_thread_belongs_to_its_cell(kernel: Kernel, start: str) -> None:
    cell, message = later(kernel, start)
    assert message.id == cell


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("display('old')", "DISPLAY_DATA"),
        ("import comm; comm.create_comm(target_name='old')", "COMM"),
        ("import sys; print('old', file=sys.stderr)", "STREAM"),
        ("import sys; sys.stdout.buffer.write(b'old')", "STREAM"),
    ],
)
def test_all_kinds_of_output(kernel: Kernel, code: str, kind: str) -> None:
    cell, message = later(kernel, STARTS["thread"], code)
    assert (message.type, message.id) == (kind, cell)


def test_a_pools_worker_takes_the_cell_that_submits(kernel: Kernel) -> None:
    kernel.run(
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\npool.submit(int).result()"
    )
    for _ in range(2):
        r = kernel.run("pool.submit(print, 'mine').result()")
        assert r.out == "mine\n"
        assert {m.id for m in r.of("STREAM")} == {r.messages[0].id}
    first = kernel.execute("import time\nf = pool.submit(lambda: (time.sleep(0.2), print('from one')))")
    kernel.collect(first)
    second = kernel.execute("pool.submit(print, 'from two').result()")
    assert gather(kernel, 2) == {"from one": first, "from two": second}


def test_tasks_belong_to_the_cell_that_creates_them(kernel: Kernel) -> None:
    kernel.run("import asyncio")
    first = kernel.execute(
        "async def f():\n    await event.wait()\n    print('old\\n', end='')\nevent = asyncio.Event()\nt = asyncio.create_task(f())"
    )
    kernel.collect(first)
    second = kernel.execute("event.set()\nawait t\nprint('new\\n', end='')")
    assert gather(kernel, 2) == {"old": first, "new": second}
    kernel.receive()
    third = kernel.execute("asyncio.get_running_loop().call_later(0.1, print, 'called');")
    kernel.collect(third)
    assert gather(kernel, 1) == {"called": third}


def test_after_a_new_cell_has_begun_its_own_thread_is_its_own(kernel: Kernel) -> None:
    for _ in range(3):
        cell = kernel.execute("import threading\nt = threading.Thread(target=print, args=('x',))\nt.start()\nt.join()")
        r = kernel.collect(cell)
        assert [(m.id, m.raw) for m in r.messages] == [(cell, b"x\n")]


def test_c_level_writes_belong_to_the_running_cell(kernel: Kernel) -> None:
    kernel.run(
        "import threading, os\ngo = threading.Event()\n"
        "t = threading.Thread(target=lambda: (go.wait(), os.write(1, b'raw\\n')))\nt.start()"
    )
    cell = kernel.execute("go.set()\nt.join()")
    assert gather(kernel, 1) == {"raw": cell}


def test_a_thread_without_a_cell_speaks_for_the_running_one(kernel: Kernel) -> None:
    kernel.run(
        "import _thread, threading\ngo, done = threading.Event(), threading.Event()\n"
        "_thread.start_new_thread(lambda: (go.wait(), print('who'), done.set()), ())"
    )
    cell = kernel.execute("go.set()\ndone.wait();")
    assert gather(kernel, 1) == {"who": cell}


def test_the_parent_message_of_a_thread(kernel: Kernel) -> None:
    kernel.run("ip = get_ipython()", extra={"header": {"msg_id": "m1"}})
    cell, message = later(kernel, STARTS["thread"], "print(ip.kernel.get_parent()['header']['msg_id'])")
    mine = kernel.run(
        "import threading\nt = threading.Thread(target=lambda: print(ip.get_parent()['header']['msg_id']))\nt.start(); t.join()",
        extra={"header": {"msg_id": "m9"}},
    )
    assert mine.out == "m9\n"
    assert message.raw != b"m9\n" and message.id == cell


def test_only_its_own_cell_may_ask_for_input(kernel: Kernel) -> None:
    kernel.run(
        "import threading\ngo = threading.Event()\n"
        "def work():\n    go.wait()\n    try: input('?')\n    except Exception as e: print(type(e).__name__)\n"
        "t = threading.Thread(target=work)\nt.start()"
    )
    cell = kernel.execute("go.set()\nt.join()", allow_stdin=True)
    r = kernel.collect(cell)
    assert r.of("INPUT_REQUEST") == []


@pytest.mark.parametrize("value", ["'text'", "-1", "1 << 80", "None", "object()"])
def test_a_cell_that_spoils_the_variable_harms_nobody(kernel: Kernel, value: str) -> None:
    kernel.run(f"import _cellgate\n_cellgate.cell.set({value})\nprint('x')")
    assert kernel.run("print('y')").out == "y\n"


def test_a_cell_that_replaces_threading(kernel: Kernel) -> None:
    kernel.run("import threading\nthreading.Thread.start = None\nthreading.Thread._bootstrap_inner = None")
    assert kernel.run("1").result == "1"


MODULE = (
    "import sys\ndef hello(n):\n    print('child', n, flush=True)\n    print('warn', n, file=sys.stderr, flush=True)\n"
)


def test_the_start_method_is_the_cells_to_set(kernel: Kernel) -> None:
    assert kernel.run("import multiprocessing as mp\nmp.get_start_method(allow_none=True)").result is None
    assert kernel.run("mp.Process.__module__, mp.get_context().get_start_method()").result.endswith("'fork')")
    assert kernel.run("mp.set_start_method('spawn', force=True)\nmp.get_start_method()").result == "'spawn'"


@pytest.mark.parametrize("method", ["fork", "spawn"])  # a fork server needs a socket, which the sandbox denies
def test_multiprocessing(kernel: Kernel, method: str) -> None:
    (kernel.workspace / "job.py").write_text(MODULE)
    r = kernel.run(
        f"import job, multiprocessing as mp\nctx = mp.get_context({method!r})\n"
        "ps = [ctx.Process(target=job.hello, args=(i,)) for i in range(3)]\n"
        "for p in ps: p.start()\nfor p in ps: p.join()\n[p.exitcode for p in ps]",
        timeout=60,
    )
    assert r.result == "[0, 0, 0]", r
    assert sorted(r.out.split("\n")[:-1]) == ["child 0", "child 1", "child 2"]
    assert sorted(line for line in r.err.split("\n") if "warn" in line) == ["warn 0", "warn 1", "warn 2"]


def test_process_pool(kernel: Kernel) -> None:
    r = kernel.run(
        "from concurrent.futures import ProcessPoolExecutor\ndef f(x):\n    print('in child', x, flush=True)\n    return x * x\n"
        "with ProcessPoolExecutor(2) as pool: print(list(pool.map(f, range(3))))",
        timeout=30,
    )
    assert "[0, 1, 4]" in r.out and r.out.count("in child") == 3


def test_fork_in_a_thread(kernel: Kernel) -> None:
    r = kernel.run(
        "import os, threading\n"
        "def work():\n    pid = os.fork()\n    if not pid:\n        print('child', flush=True)\n        os._exit(3)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "t = threading.Thread(target=work); t.start(); t.join()"
    )
    assert sorted(r.out.split()) == ["3", "child"]
