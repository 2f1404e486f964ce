"""tool_call() of the built-in module: the kernel's side of the tool wire."""

import ast
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from kernel.harness import Call, Kernel, Result
from processes import eventually

SETUP = (
    "import _cellgate, threading\n"
    "call = lambda a=b'{}', s='files', t='read', ms=5000: _cellgate.tool_call(s, t, a, ms)[:2]"
)


@pytest.fixture
def tools(kernel: Kernel) -> Kernel:
    assert kernel.run(SETUP).status == "ok"
    return kernel


def wait_for_call(kernel: Kernel) -> None:
    while not kernel.calls:
        assert kernel.poller.poll(5000)
        kernel._serve_tools()


def echo(call: Call) -> tuple[str, bytes]:
    return "ok", call.arguments


def test_call(tools: Kernel) -> None:
    tools.tool_functions.append(lambda c: ("ok", b'{"content":[]}'))
    arguments = {"path": "a\u20ac", "n": 10**30}
    r = tools.run(f"call({json.dumps(arguments).encode()!r})")
    assert r.result == """('ok', b'{"content":[]}')"""
    (call,) = tools.calls
    assert (call.server, call.tool, call.timeout_ms) == ("files", "read", 5000)
    assert json.loads(call.arguments) == arguments


@pytest.mark.parametrize("status", ["ok", "rejected", "protocol_error", "failed"])
def test_status_and_bytes_come_through(tools: Kernel, status: str) -> None:
    content = b"\x00\xff\xed\xa0\x80 any bytes"
    tools.tool_functions.append(lambda c: (status, content))
    assert tools.run("call()").result == repr((status, content))


def test_request(tools: Kernel) -> None:
    """Another method than tools/call, which names no tool."""
    tools.tool_functions.append(echo)
    r = tools.run("""_cellgate.mcp_request('files', 'resources/read', b'{"uri":"x"}', 7)[:2]""")
    assert r.result == """('ok', b'{"uri":"x"}')"""
    (call,) = tools.calls
    assert (call.server, call.method, call.tool, call.timeout_ms) == ("files", "resources/read", "", 7)
    for code in ("_cellgate.mcp_request('s', 'm' * 300, b'{}', 0)", "_cellgate.mcp_request('s', 'm', '{}', 0)"):
        assert tools.run(code).reply["ename"] in ("ValueError", "TypeError")
    assert len(tools.calls) == 1


def test_odd_names(tools: Kernel) -> None:
    tools.tool_functions.append(echo)
    tools.run("call(s='a\"\\\\\\n\u20ac', t='\\x01')")
    assert (tools.calls[0].server, tools.calls[0].tool) == ('a"\\\n\u20ac', "\x01")


@pytest.mark.parametrize("code", ["call(s='x' * 300)", "call(t='x' * 300)", "call(a=b'x' * (5 << 20))"])
def test_limits(tools: Kernel, code: str) -> None:
    assert tools.run(code).reply["ename"] == "ValueError"
    assert tools.calls == []


@pytest.mark.parametrize("code", ["call(s='\\ud800')", "call(a='text')", "_cellgate.tool_call()"])
def test_wrong_arguments(tools: Kernel, code: str) -> None:
    assert tools.run(code).status == "error"
    assert tools.calls == []


def test_large_arguments_and_results(tools: Kernel) -> None:
    tools.tool_functions.append(lambda c: ("ok", c.arguments * 8))
    r = tools.run("s, d = call(b'x' * (4 << 20)); (s, len(d), d == b'x' * (32 << 20))", timeout=20)
    assert r.result == f"('ok', {32 << 20}, True)"


def test_output_before_a_call_is_seen_before_its_decision(tools: Kernel) -> None:
    cell = tools.execute("print('before the call')\ncall()")
    tools.wait_for_text("before the call\n")
    wait_for_call(tools)
    tools.finish_call(tools.calls[0].id, "ok", b"{}")
    assert tools.collect(cell).result == "('ok', b'{}')"


def test_many_threads(tools: Kernel) -> None:
    """Answers come in the reverse order of the calls."""
    waiting: list[Call] = []

    def answer(call: Call) -> None:
        waiting.append(call)
        if len(waiting) == 32:
            for c in reversed(waiting):
                tools.finish_call(c.id, "ok", c.arguments)

    tools.tool_functions.append(answer)
    r = tools.run(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(32) as pool: r = list(pool.map(lambda i: call(str(i).encode()), range(32)))\n"
        "r == [('ok', str(i).encode()) for i in range(32)]"
    )
    assert r.result == "True"
    assert len({c.id for c in tools.calls}) == 32


def test_no_more_calls_under_way_than_the_limit(tools: Kernel) -> None:
    cell = tools.execute(
        "threads = [threading.Thread(target=call) for _ in range(300)]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()\n'all done'"
    )
    deadline = time.monotonic() + 10
    while len(tools.calls) < 256 and time.monotonic() < deadline:
        if tools.tools in dict(tools.poller.poll(1000)):
            tools._serve_tools()
    tools.quiet(0.3)
    assert len(tools.calls) == 256
    for c in tools.calls[:]:
        tools.finish_call(c.id, "ok", b"{}")
    tools.tool_functions.append(echo)
    assert tools.collect(cell).result == "'all done'"
    assert len(tools.calls) == 300


def test_interrupt_cancels(tools: Kernel) -> None:
    cell = tools.execute("call()")
    wait_for_call(tools)
    tools.interrupt(cell)
    assert tools.collect(cell).reply["ename"] == "KeyboardInterrupt"
    while not tools.cancelled:
        assert tools.poller.poll(5000)
        tools._serve_tools()
    assert tools.cancelled == [tools.calls[0].id]
    tools.finish_call(tools.calls[0].id, "failed", b"cancelled")  # a late result without a waiting call
    tools.tool_functions.append(echo)
    assert tools.run("call(b'{\"n\":2}')").result == """('ok', b'{"n":2}')"""


def test_call_in_a_thread_outlives_the_cell(tools: Kernel) -> None:
    r = tools.run("box = []\nt = threading.Thread(target=lambda: box.append(call()))\nt.start()")
    assert r.status == "ok"
    wait_for_call(tools)
    tools.finish_call(tools.calls[0].id, "ok", b"late")
    assert tools.run("t.join(); box").result == "[('ok', b'late')]"


def test_wrong_and_repeated_results_are_ignored(tools: Kernel) -> None:
    tools.finish_call(77, "ok", b"unasked")
    tools.tool_functions.append(echo)
    assert tools.run("call(b'1')").result == "('ok', b'1')"
    tools.finish_call(tools.calls[0].id, "ok", b"again")
    assert tools.run("call(b'2')").result == "('ok', b'2')"


def test_forked_child_cannot_call(tools: Kernel) -> None:
    r = tools.run(
        "import os\npid = os.fork()\n"
        "if not pid:\n"
        "    try: call()\n"
        "    except RuntimeError as e: print(e)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0);"
    )
    assert "does not work in a forked process" in r.out
    assert tools.calls == []


def test_signal_handlers_run_during_a_call(tools: Kernel) -> None:
    cell = tools.execute(
        "import signal\ndef ring(*a): raise TimeoutError('alarm')\nsignal.signal(signal.SIGALRM, ring)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.2)\ncall()"
    )
    assert tools.collect(cell).reply["ename"] == "TimeoutError"


def test_other_threads_run_during_a_call(tools: Kernel) -> None:
    cell = tools.execute("threading.Timer(0.05, print, ('ticked',)).start()\ncall()")
    tools.wait_for_text("ticked")
    wait_for_call(tools)
    tools.finish_call(tools.calls[0].id, "ok", b"")
    assert tools.collect(cell).result == "('ok', b'')"


def test_refused_is_told_in_the_reply(tools: Kernel) -> None:
    setup = "import sys, types\nm = types.ModuleType('cellgate_tools')\nclass RejectedError(Exception): pass\n"
    tools.run(setup + "m.RejectedError = RejectedError\nsys.modules['cellgate_tools'] = m")
    assert tools.run("raise RejectedError('no')").reply["refused"] is True
    assert tools.run("raise ValueError('no')").reply["refused"] is False


def test_call_while_nothing_serves_the_supervisor(tools: Kernel) -> None:
    """Tool calls do not wait for output that the supervisor has not read."""
    tools.tool_functions.append(echo)
    cell = tools.execute("print('x' * 1_000_000)\ncall()\nprint('y' * 1_000_000)")
    result: Result = tools.collect(cell)
    assert len(result.out) == 2_000_002


def test_calls_of_a_tool_server_that_ended(tools: Kernel) -> None:
    cell = tools.execute(
        "threads = [threading.Thread(target=lambda: box.append(call())) for _ in range(3)]\nbox = []\n"
        "for t in threads: t.start()\nfor t in threads: t.join()\n[s for s, _ in box]"
    )
    wait_for_calls(tools, 3)
    tools.end_tool_server()
    tools.next_tool_server()
    assert tools.collect(cell).result == "['failed', 'failed', 'failed']"
    tools.tool_functions.append(echo)
    assert tools.run("call(b'2')").result == "('ok', b'2')"


def wait_for_calls(tools: Kernel, n: int) -> None:
    while len(tools.calls) < n:
        assert tools.poller.poll(5000)
        tools._serve_tools()


def test_calls_between_two_tool_servers(tools: Kernel) -> None:
    """A call that was sent fails; later calls wait for the next tool server."""
    for _ in range(20):
        tools.calls.clear()
        cell = tools.execute("[call()[0], call()[0], call()[0]]")
        wait_for_calls(tools, 1)
        tools.end_tool_server()
        time.sleep(0.01)
        tools.next_tool_server()
        tools.tool_functions.append(echo)
        assert tools.collect(cell).result == "['failed', 'ok', 'ok']"
        tools.tool_functions.clear()


def test_places_of_lost_calls_are_free_again(tools: Kernel) -> None:
    many = "import concurrent.futures as f\nwith f.ThreadPoolExecutor(300) as p: r = [x[0] for x in p.map(lambda _: call(), range(300))]\n"
    cell = tools.execute(many + "len(r), r.count('failed') >= 256")
    wait_for_calls(tools, 256)
    tools.end_tool_server()
    tools.next_tool_server()
    tools.tool_functions.append(echo)
    assert tools.collect(cell).result == "(300, True)"
    assert tools.run(many + "r.count('ok')").result == "300"


def test_forked_child_holds_the_connection_of_a_tool_server_that_ended(tools: Kernel) -> None:
    """The child's copy of the descriptor must not keep the I/O thread busy."""
    tools.tool_functions.append(echo)
    code = "import os, time\ncall()\npid = os.fork()\nif pid == 0:\n    time.sleep(30)\n    os._exit(0)"
    assert tools.run(code).status == "ok"
    tools.end_tool_server()
    tools.next_tool_server()
    # A call that is sent before the end of the old one is noticed fails.
    eventually(lambda: tools.run("call()[0]").result == "'ok'")
    assert tools.run("[call()[0] for _ in range(3)]").result == "['ok', 'ok', 'ok']"
    code = "import signal\nbefore = time.process_time()\ntime.sleep(0.5)\nused = time.process_time() - before"
    assert tools.run(code + "\nos.kill(pid, signal.SIGKILL)\nos.waitpid(pid, 0)\nused < 0.25").result == "True"


@contextlib.contextmanager
def on_one_cpu(tools: Kernel) -> Iterator[None]:
    """The tool server's threads take the CPU from a cell that sends a call, and answer before the cell goes on."""
    every = os.sched_getaffinity(0)
    one = min(every)
    threads = [int(name) for name in os.listdir("/proc/self/task")]
    for thread in threads:
        os.sched_setaffinity(thread, {one})
    try:
        tools.run(f"import os; os.sched_setaffinity(0, {{{one}}})")
        yield
    finally:
        for thread in threads:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(thread, every)


@pytest.mark.parametrize("cpus", [contextlib.nullcontext, on_one_cpu])
def test_call_wakes_only_the_thread_that_makes_it(
    tools: Kernel, cpus: Callable[[Kernel], AbstractContextManager[None]]
) -> None:
    """The I/O thread neither sends the call nor receives its result."""
    tools.tool_functions.append(echo)
    tools.run(
        "from pathlib import Path\n"
        "def others():\n"
        "    tasks = [p for p in Path('/proc/self/task').iterdir() if int(p.name) != threading.get_native_id()]\n"
        "    lines = [line for p in tasks for line in (p / 'status').read_text().splitlines()]\n"
        "    return sum(int(line.split()[1]) for line in lines if line.startswith('voluntary'))"
    )
    code = "before = others()\nr = [call()[0] for _ in range(100)]\nset(r), others() - before"
    with cpus(tools):
        results = [tools.run(code).result for _ in range(4)]
    for r in results:
        assert r
        statuses, switches = ast.literal_eval(r)
        assert statuses == {"ok"}
        assert switches < 20


# ---- results that stay with the tool server


def test_reading_a_kept_result(tools: Kernel) -> None:
    data = bytes(range(256)) * 8192
    tools.read_result = lambda result, offset, length: ("ok", data[offset : offset + length])
    r = tools.run("d = _cellgate.result_read(7, 0, 1 << 20) + _cellgate.result_read(7, 1 << 20, 1 << 20)")
    assert r.status == "ok"
    assert tools.run("d == bytes(range(256)) * 8192").result == "True"
    tools.run("_cellgate.result_free(7)")
    wait_until_freed(tools, 7)


def wait_until_freed(tools: Kernel, *ids: int) -> None:
    while tools.freed != [*ids]:
        assert tools.poller.poll(5000)
        tools._serve_tools()


def test_kept_result_that_is_gone(tools: Kernel) -> None:
    r = tools.run("_cellgate.result_read(7, 0, 1)")
    assert (r.reply["ename"], r.reply["evalue"]) == ("RuntimeError", "no such result")


@pytest.mark.parametrize("args", ["7, 0, 0", "7, 0, (1 << 20) + 1", "7, 0, -1", "1 << 63, 0, 1", "7, 1 << 63, 1"])
def test_limits_of_reading(tools: Kernel, args: str) -> None:
    assert tools.run(f"_cellgate.result_read({args})").reply["ename"] == "ValueError"


def test_interrupted_read(tools: Kernel) -> None:
    """Its late part is not taken for the next one, and nothing is cancelled."""
    waiting: list[int] = []

    def later(result: int, offset: int, length: int) -> tuple[str, bytes]:
        if not waiting:
            waiting.append(offset)
            tools.interrupt(cell)
            time.sleep(0.3)
            return "ok", b"late"
        return "ok", b"next"

    tools.read_result = later
    cell = tools.execute("_cellgate.result_read(7, 0, 4)")
    assert tools.collect(cell).reply["ename"] == "KeyboardInterrupt"
    assert tools.run("_cellgate.result_read(7, 0, 4)").result == "b'next'" and tools.cancelled == []


def test_reading_while_all_places_are_taken(tools: Kernel) -> None:
    """RESULT_READ does not count, and does not wait for calls."""
    tools.read_result = lambda **_: ("ok", b"x")
    cell = tools.execute(
        "threads = [threading.Thread(target=call) for _ in range(300)]\n"
        "for t in threads: t.start()\n"
        "_cellgate.result_read(7, 0, 1)"
    )
    assert tools.collect(cell).result == "b'x'"
    wait_for_calls(tools, 256)
    tools.tool_functions.append(echo)
    for c in tools.calls[:]:
        tools.finish_call(c.id, "ok", b"{}")
    assert tools.run("for t in threads: t.join()", timeout=20).status == "ok" and len(tools.calls) == 300


def test_kept_result_that_comes_after_the_interrupt(tools: Kernel) -> None:
    """Nobody gets it: it is freed at once."""
    cell = tools.execute("call()")
    wait_for_calls(tools, 1)
    tools.interrupt(cell)
    assert tools.collect(cell).reply["ename"] == "KeyboardInterrupt"
    tools.keep(tools.calls[0].id)
    wait_until_freed(tools, tools.calls[0].id)


def test_large_result_of_a_generated_function(tools: Kernel) -> None:
    text = "0123456789" * 200_000
    tools.read_result = lambda result, offset, length: ("ok", text[offset : offset + length].encode())
    payload = json.dumps({"handle": 7, "parts": [[35, 0, len(text), 1]]}) + '\n{"content":[{"type":"text","text":""}]}'
    assert payload.split("\n")[1][35:] == '"}]}'
    code = "from cellgate_tools._tool import _result\n" f"r = _result('s', 't', 'ok', {payload.encode()!r}, 'kept').large()"
    assert tools.run(code).status == "ok"
    assert tools.run("len(r), r[5:8], r[-1], str(r) == '0123456789' * 200_000").result == "(2000000, '567', '9', True)"
    tools.run("del r\nimport gc; gc.collect();")
    wait_until_freed(tools, 7)
