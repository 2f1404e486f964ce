"""Output of tasks belongs to the cell that started them, that of threads to the running cell."""

import pytest
from kernel.harness import Kernel, Message


def gather(kernel: Kernel, count: int, timeout: float = 10.0) -> dict[str, int]:
    """Read this many lines of stream text, with their cells, and all outstanding replies."""
    found: dict[str, int] = {}
    while len(found) < count:
        message = kernel.receive(timeout)
        if message.type == "STREAM":
            for line in message.raw.decode().splitlines():
                found[line] = message.id
    return found


def later(kernel: Kernel, start: str, code: str = "print('old')") -> tuple[int, int, Message]:
    """Start `code` in one cell, let the next cell release it; returns both cells and the message."""
    kernel.run(
        "import threading\ngo, done = threading.Event(), threading.Event()\ndef work():\n    go.wait()\n    "
        + code
        + "\n    done.set()"
    )
    first = kernel.execute(start)
    assert kernel.collect(first).status == "ok"
    second = kernel.execute("go.set()\ndone.wait(10);")
    messages = []
    while (m := kernel.receive()).type != "EXECUTE_REPLY":
        if m.raw != b"\n":  # on a slow machine a line's end can come by itself
            messages.append(m)
    assert m.id == second
    (only,) = messages
    return first, second, only


STARTS = {
    "thread": "threading.Thread(target=work).start()",
    "subclass": "class T(threading.Thread):\n    def run(self): work()\nT().start()",
    "thread of a thread": "threading.Thread(target=lambda: threading.Thread(target=work).start()).start()",
    "timer": "threading.Timer(0, work).start()",
    "pool": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\npool.submit(work);",
    "to_thread": "import asyncio\nloop = asyncio.get_running_loop()\nloop.run_in_executor(None, work);",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_a_thread_speaks_for_the_cell_that_runs(kernel: Kernel, start: str) -> None:
    _, running, message = later(kernel, start)
    assert message.id == running


def test_to_thread_speaks_for_the_cell_that_calls_it(kernel: Kernel) -> None:
    start = "import asyncio\nt = asyncio.get_running_loop().create_task(asyncio.to_thread(work)); await asyncio.sleep(0)"
    first, _, message = later(kernel, start)
    assert message.id == first


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("display('old')", "DISPLAY_DATA"),
        ("import comm; comm.create_comm(target_name='old')", "COMM"),
        ("import sys; print('old', file=sys.stderr)", "STREAM"),
        ("import sys; sys.stdout.buffer.write(b'old')", "STREAM"),
    ],
)
def test_all_kinds_of_output_with_a_parent(kernel: Kernel, code: str, kind: str) -> None:
    start = "parent = get_ipython().get_parent(); threading.Thread(target=work).start()"
    first, _, message = later(kernel, start, f"get_ipython().set_thread_parent(parent); {code}")
    assert (message.type, message.id) == (kind, first)


@pytest.mark.parametrize(
    "where", ["get_ipython()", "sys.stdout", "get_ipython().displayhook", "get_ipython().display_pub"]
)
def test_the_parent_of_a_thread(kernel: Kernel, where: str) -> None:
    kernel.run("import sys, threading")
    code = (
        f"def work():\n    token = {where}.set_thread_parent(parent)\n    print('with', flush=True)\n"
        f"    {where}.reset_thread_parent(token)\n    print('without', flush=True)"
    )
    first = kernel.execute(code + "\nparent = get_ipython().get_parent()")
    kernel.collect(first)
    second = kernel.execute("t = threading.Thread(target=work); t.start(); t.join()")
    assert gather(kernel, 2) == {"with": first, "without": second}


@pytest.mark.parametrize("parent", ["parent", "parent['header']"])
def test_the_parent_of_all_threads(kernel: Kernel, parent: str) -> None:
    first = kernel.execute("import threading\nparent = get_ipython().get_parent()", extra={"header": {"msg_id": "m1"}})
    kernel.collect(first)
    second = kernel.execute(
        f"get_ipython().set_parent({parent})\nprint('cell')\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()"
    )
    assert gather(kernel, 2) == {"cell": first, "thread": first}
    kernel.receive()
    third = kernel.execute("print('next')\nt = threading.Thread(target=print, args=('later',)); t.start(); t.join()")
    assert second != third and gather(kernel, 2) == {"next": third, "later": third}


@pytest.mark.parametrize("parent", ["{}", "{'header': {'msg_id': 'x'}}", "{'header': 5}"])
def test_a_parent_that_is_not_known(kernel: Kernel, parent: str) -> None:
    kernel.run(f"get_ipython().set_parent({parent})")
    assert kernel.run("print('y')").out == "y\n"


def test_a_thread_that_prints_between_cells_speaks_for_the_last(kernel: Kernel) -> None:
    cell = kernel.execute("import threading\nthreading.Timer(0.1, print, ('late',)).start()")
    kernel.collect(cell)
    assert gather(kernel, 1) == {"late": cell}


def test_the_parent_idents_by_channel(kernel: Kernel) -> None:
    header = {"msg_id": "m1", "session": "abc"}
    control = {"msg_id": "m2", "session": "def"}
    kernel.run("k = get_ipython().kernel", extra={"header": header, "control": control})
    assert kernel.run("k._parent_ident", extra={"header": header}).result == "{'shell': [b'abc'], 'control': [b'def']}"
    assert kernel.run("k.get_parent('control')['header']['msg_id']").result == "'m2'"


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


def test_a_thread_asks_for_the_cell_that_runs(kernel: Kernel) -> None:
    kernel.run(
        "import threading\ngo = threading.Event()\n"
        "def work():\n    go.wait()\n    try: print(input('?'))\n    except Exception as e: print(type(e).__name__)\n"
        "def begin():\n    global t\n    go.clear()\n    t = threading.Thread(target=work)\n    t.start()\nbegin()"
    )
    cell = kernel.execute("go.set()\nt.join()", allow_stdin=True)
    assert kernel.expect("INPUT_REQUEST").id == cell
    kernel.answer_input(cell, "answer")
    assert kernel.collect(cell).out == "answer\n"
    kernel.run("begin()")
    assert kernel.run("go.set()\nt.join()").out == "StdinNotImplementedError\n"


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
