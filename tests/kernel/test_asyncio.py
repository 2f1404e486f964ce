"""One event loop for the life of a kernel."""

import time

import pytest
from kernel.harness import SLOWNESS, Kernel

SETUP = """
import asyncio
from contextvars import ContextVar
async def f():
    await asyncio.sleep(0.01)
    return 7
out = []
async def background(n=5):
    for i in range(n):
        await asyncio.sleep(0.02)
        out.append(i)
"""


@pytest.fixture
def aio(kernel: Kernel) -> Kernel:
    assert kernel.run(SETUP).status == "ok"
    return kernel


@pytest.mark.parametrize(
    "code",
    [
        "await f()",
        "asyncio.run(f())",
        "asyncio.run(f()); asyncio.run(f())",
        "asyncio.get_event_loop().run_until_complete(f())",
        "loop = asyncio.new_event_loop(); v = loop.run_until_complete(f()); loop.close(); v",
        "with asyncio.Runner() as r: v = r.run(f())\nv",
        "[x async for x in (await f() for _ in range(1))][0]",
        "(await asyncio.gather(f(), f()))[0]",
        "await asyncio.to_thread(lambda: 7)",
        "await asyncio.wait_for(f(), 5)",
        "import threading\nbox = []\nt = threading.Thread(target=lambda: box.append(asyncio.run(f())))\n"
        "t.start()\nt.join()\nbox[0]",
    ],
)
def test_ways_to_run_a_coroutine(aio: Kernel, code: str) -> None:
    for _ in range(2):
        r = aio.run(code)
        assert r.result == "7", r


def test_loop_is_the_same_everywhere(aio: Kernel) -> None:
    aio.run("a = asyncio.get_running_loop(); b = asyncio.get_event_loop()")
    aio.run("asyncio.run(f())")
    aio.run("await f()\nc = asyncio.get_running_loop()")
    assert aio.run("a is b is c is asyncio.get_event_loop()").result == "True"


def test_background_task_of_a_cell_without_await_goes_on_while_idle(aio: Kernel) -> None:
    code = "task = asyncio.create_task(background()); task.add_done_callback(lambda _: print('end')); len(out)"
    assert aio.run(code).result == "0"
    aio.wait_for_text("end")
    assert aio.run("out, task.done()").result == "([0, 1, 2, 3, 4], True)"


def test_background_task_goes_on_during_await(aio: Kernel) -> None:
    code = "task = asyncio.create_task(background())\nwhile not task.done(): await asyncio.sleep(0.01)\nlen(out)"
    assert aio.run(code).result == "5"


def test_background_output_belongs_to_the_cell_that_started_it(aio: Kernel) -> None:
    aio.run("async def later():\n    await asyncio.sleep(0.1)\n    print('later')\ntask = asyncio.create_task(later())")
    message = aio.expect("STREAM")
    assert (message.id, message.raw) == (2, b"later\n")


def test_failing_background_task_does_not_stop_the_kernel(aio: Kernel) -> None:
    aio.run(
        "async def bad():\n    raise SystemExit(1)\ntask = asyncio.create_task(bad())\n"
        "task.add_done_callback(lambda _: print('end'))"
    )
    aio.wait_for_text("end")
    assert aio.run("task.exception()").result == "SystemExit(1)"


def test_callbacks_from_threads_run_while_idle(aio: Kernel) -> None:
    aio.run(
        "loop = asyncio.get_event_loop()\nimport threading\n"
        "threading.Timer(0.1, loop.call_soon_threadsafe, (print, 'called')).start()"
    )
    assert aio.wait_for_text("called\n")


def test_readers_run_while_idle(aio: Kernel) -> None:
    aio.run(
        "import os, threading\nr, w = os.pipe()\nasyncio.get_event_loop().add_reader(r, lambda: print(os.read(r, 9)))"
    )
    aio.run("threading.Timer(0.1, os.write, (w, b'data')).start()")
    assert "data" in aio.wait_for_text("data")


def test_asyncio_run_inside_a_coroutine_is_refused(aio: Kernel) -> None:
    r = aio.run("async def g(): return asyncio.run(f())\nawait g()")
    assert r.reply["ename"] == "RuntimeError"
    assert aio.run("asyncio.run(f())").result == "7"


def test_context_variables(aio: Kernel) -> None:
    aio.run("cv = ContextVar('cv', default=0); cv.set(1);")
    assert aio.run("cv.get()").result == "1"
    assert aio.run("await asyncio.sleep(0); cv.get()").result == "1"
    aio.run("await asyncio.sleep(0)\n_ = cv.set(2)")
    assert aio.run("cv.get()").result == "2"


def test_errors_in_await_cells(aio: Kernel) -> None:
    r = aio.run("async def bad():\n    await f()\n    1/0\nawait bad()")
    text = "\n".join(r.error["traceback"])
    assert r.reply["ename"] == "ZeroDivisionError"
    assert "await bad()" in text and "1/0" in text and "loop.py" not in text and "interactiveshell" not in text


def test_cells_in_cells(aio: Kernel) -> None:
    assert aio.run("get_ipython().run_cell('41 + 1').result").result == "42"
    aio.run("cv = ContextVar('cv', default=0)")
    assert aio.run("r = get_ipython().run_cell('await f()'); r.result").of("EXECUTE_RESULT")[-1].json["data"] == {
        "text/plain": "7"
    }
    assert aio.run("1").result == "1"


def test_idle_kernel_uses_no_time(aio: Kernel) -> None:
    aio.run("task = asyncio.create_task(asyncio.sleep(1000))")
    first = aio.run("import time; time.process_time()").result
    time.sleep(1.0)
    second = aio.run("time.process_time()").result
    assert first is not None and second is not None
    assert float(second) - float(first) < 0.05 * SLOWNESS


def test_tasks_and_groups_take_results_of_tools(kernel: Kernel) -> None:
    """run() in place of arun(): the calls were made, and an error would have programs make them again."""
    code = "import asyncio\nasync def f(): return 1\n"
    r = kernel.run(code + "await asyncio.gather([1, {'a': 2}], {'a': 1}, 'x', None, 5, True, f(), f(), [], [])")
    assert r.result == "[[1, {'a': 2}], {'a': 1}, 'x', None, 5, True, 1, 1, [], []]"
    assert kernel.run("c = f()\nawait asyncio.gather(c, c, return_exceptions=True)").result == "[1, 1]"
    group = "async with asyncio.TaskGroup() as g: t = [g.create_task(x) for x in ([1], 'x', None, f())]"
    assert kernel.run(f"{group}\n[x.result() for x in t]").result == "[[1], 'x', None, 1]"
    assert (
        kernel.run("[await asyncio.create_task({'a': 1}), await asyncio.wait_for([2], 9)]").result == "[{'a': 1}, [2]]"
    )
    assert kernel.run("asyncio.run([1])").result == kernel.run("await asyncio.shield([1])").result == "[1]"
    assert kernel.run("[await x for x in asyncio.as_completed([{'a': 1}])]").result == "[{'a': 1}]"
    code = "class D(dict):\n    def __await__(self): return f().__await__()\n"
    assert kernel.run(code + "await asyncio.gather(asyncio.wait_for(D(), 9), asyncio.shield(D()))").result == "[1, 1]"
    assert kernel.run("await asyncio.shield(arg=asyncio.ensure_future(coro_or_future=f()))").result == "1"
    assert kernel.run("await asyncio.wait_for(timeout=9, fut=[2])").result == "[2]"
    for wrong in ("[f(), f()]", "(f(),)", "f", "object()"):
        for call in ("gather", "create_task", "ensure_future"):
            assert kernel.run(f"await asyncio.{call}({wrong})").error["ename"] == "TypeError", wrong
