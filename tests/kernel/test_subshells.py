"""Subshells: cells that run in parallel, with their own output, interrupts and replies."""

import mmap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel.harness import Kernel, Message
from processes import eventually


class Traffic:
    """Messages of several cells at once."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.messages: list[Message] = []
        self.replies: dict[int, Message] = {}

    def until(self, *cells: int, timeout: float = 15.0) -> "Traffic":
        """Read until these cells have replies."""
        while not all(c in self.replies for c in cells):
            self.step(timeout)
        return self

    def step(self, timeout: float = 15.0) -> Message:
        m = self.kernel.receive(timeout)
        if m.type in ("EXECUTE_REPLY", "REPLY"):
            assert m.id not in self.replies
            self.replies[m.id] = m
        else:
            assert m.id not in self.replies or m.id == 0, m
            self.messages.append(m)
        return m

    def until_text(self, needle: str) -> None:
        while not any(needle.encode() in m.raw for m in self.messages):
            self.step()

    def text(self, cell: int) -> str:
        return b"".join(m.raw for m in self.messages if m.id == cell and m.type == "STREAM").decode()

    def result(self, cell: int) -> str | None:
        for m in self.messages:
            if m.id == cell and m.type == "EXECUTE_RESULT":
                return str(m.json["data"]["text/plain"])
        return None


@pytest.fixture
def traffic(kernel: Kernel) -> Traffic:
    return Traffic(kernel)


def create(kernel: Kernel) -> str:
    reply = kernel.ask("create_subshell_request", {})
    assert reply["status"] == "ok", reply
    return str(reply["subshell_id"])


@pytest.fixture
def sub(kernel: Kernel) -> Iterator[str]:
    yield create(kernel)


def test_create_list_delete(kernel: Kernel) -> None:
    assert kernel.ask("list_subshell_request", {}) == {"status": "ok", "subshell_id": []}
    a, b = create(kernel), create(kernel)
    assert a != b
    assert kernel.ask("list_subshell_request", {})["subshell_id"] == [a, b]
    assert kernel.ask("delete_subshell_request", {"subshell_id": a}) == {"status": "ok"}
    assert kernel.ask("list_subshell_request", {})["subshell_id"] == [b]
    assert kernel.ask("delete_subshell_request", {"subshell_id": a})["status"] == "error"
    assert kernel.ask("delete_subshell_request", {})["ename"] == "BadRequest"
    r = kernel.run("1", subshell=a)
    assert (r.reply["ename"], r.messages) == ("UnknownSubshellError", [])
    assert kernel.run("1", subshell=b).result == "1"


@pytest.mark.parametrize("name", ["", "control", "main", "x" * 100])
def test_other_shells_cannot_be_named(kernel: Kernel, name: str) -> None:
    assert kernel.ask("delete_subshell_request", {"subshell_id": name})["status"] == "error"
    if name:
        assert kernel.run("1", subshell=name).reply["ename"] == "UnknownSubshellError"
    assert kernel.run("1").result == "1"


def test_the_namespace_is_shared(kernel: Kernel, sub: str) -> None:
    kernel.run("x = 20")
    r = kernel.run("x += 1\nx", subshell=sub)
    assert r.result == "21"
    assert kernel.run("x").result == "21"
    assert (
        kernel.run("threading.current_thread() is threading.main_thread()\n", subshell=sub).reply["ename"]
        == "NameError"
    )
    code = "import threading; threading.current_thread() is threading.main_thread()"
    assert kernel.run(code, subshell=sub).result == "False"


def test_beside_the_main_cell(kernel: Kernel, sub: str, traffic: Traffic) -> None:
    main = kernel.execute(
        "import time\nprint('main in')\nwhile not globals().get('stop'): time.sleep(0.01)\nprint('main out')"
    )
    traffic.until_text("main in")
    cell = kernel.execute("print('sub')\nstop = True\n42", subshell=sub)
    traffic.until(main, cell)
    assert traffic.text(main) == "main in\nmain out\n"
    assert traffic.text(cell) == "sub\n"
    assert traffic.result(cell) == "42"


def test_while_the_main_cell_spins(kernel: Kernel, sub: str, traffic: Traffic) -> None:
    main = kernel.execute("print('in', flush=True)\nwhile True: pass")
    traffic.until_text("in")
    cell = kernel.execute("6 * 7", subshell=sub)
    traffic.until(cell)
    assert traffic.result(cell) == "42" and main not in traffic.replies
    kernel.interrupt(main)
    traffic.until(main)
    assert traffic.replies[main].body["ename"] == "KeyboardInterrupt"


def test_created_while_the_main_cell_spins(kernel: Kernel, traffic: Traffic) -> None:
    main = kernel.execute("print('in', flush=True)\nwhile True: pass")
    traffic.until_text("in")
    ask = kernel.request("create_subshell_request", {})
    traffic.until(ask)
    cell = kernel.execute("1", subshell=traffic.replies[ask].json["subshell_id"])
    traffic.until(cell)
    kernel.interrupt(main)
    traffic.until(main)


def test_errors_displays_and_payloads_are_the_cells_own(kernel: Kernel, sub: str, traffic: Traffic) -> None:
    main = kernel.execute(
        "print('in', flush=True)\nimport time\nwhile not globals().get('stop'): time.sleep(0.01)\n'main value'"
    )
    traffic.until_text("in")
    bad = kernel.execute("display('shown')\n1/0", subshell=sub)
    traffic.until(bad)
    good = kernel.execute("stop = True\n'sub value';", subshell=sub)
    traffic.until(main, good)
    assert {m.id for m in traffic.messages if m.type in ("ERROR", "DISPLAY_DATA")} == {bad}
    assert traffic.replies[bad].body["ename"] == "ZeroDivisionError"
    assert traffic.replies[main].body["status"] == "ok"
    assert traffic.replies[main].raw == b""
    assert traffic.result(main) == "'main value'" and traffic.result(good) is None


INTERRUPTIBLE = {
    "loop": "while True: pass",
    "sleep": "import time; time.sleep(100)",
    "await": "import asyncio; await asyncio.sleep(100)",
    "command": "!sleep 100",
    "captured command": "x = !sleep 100",
    "input": "input('?')",
    "print loop": "while True: print('x' * 1000)",
}


@pytest.mark.parametrize("code", INTERRUPTIBLE.values(), ids=INTERRUPTIBLE.keys())
def test_interrupt(kernel: Kernel, sub: str, traffic: Traffic, code: str) -> None:
    main = kernel.execute(
        "import time\nprint('main in')\nfor _ in range(10_000):\n    if globals().get('stop'): break\n    time.sleep(0.01)"
    )
    traffic.until_text("main in")
    cell = kernel.execute("print('sub in', flush=True)\n" + code, subshell=sub, allow_stdin=True)
    traffic.until_text("sub in")
    time.sleep(0.3)  # the cell waits now
    kernel.interrupt(cell)
    traffic.until(cell)
    if "!" not in code:
        assert traffic.replies[cell].body["ename"] == "KeyboardInterrupt"
    assert main not in traffic.replies
    last = kernel.execute("stop = True\n7", subshell=sub)
    traffic.until(last, main)
    assert traffic.result(last) == "7"
    assert traffic.replies[main].body["status"] == "ok"


# A cell that lets no other thread run Python from "1" to "3", and interrupts the cell after it before it ends.
HOLD = """
import mmap, sys, threading, time, _cellgate
file = open('hold', 'r+b')
hold = mmap.mmap(file.fileno(), 1)
asking = threading.Thread(target=lambda: input('first'))
START
while hold[0] != ord('1'): time.sleep(0.001)
sys.setswitchinterval(1000)
hold[0] = ord('2')
while hold[0] != ord('3'): pass
found = _cellgate.interrupt_subshell(_cellgate.current_cell() + 1)
sys.setswitchinterval(0.005)
END
found
"""


class Hold:
    """The socket of the cell HOLD."""

    def __init__(self, kernel: Kernel, workspace: Path) -> None:
        (workspace / "hold").write_bytes(b"0")
        with (workspace / "hold").open("r+b") as f:
            self.byte = mmap.mmap(f.fileno(), 1)
        self.kernel = kernel

    def answer(self, cell: int, text: str) -> None:
        """The kernel has read the answer, and no Python code has run since."""
        self.byte[0] = ord("1")
        eventually(lambda: self.byte[0] == ord("2"), 60)
        self.kernel.answer_input(cell, text)
        self.kernel.ask("usage_request", {})  # answered by the I/O thread
        self.byte[0] = ord("3")


def test_interrupt_when_its_turn_to_ask_has_come(kernel: Kernel, sub: str, traffic: Traffic, workspace: Path) -> None:
    """The cell has stopped waiting and does not ask yet."""
    hold = Hold(kernel, workspace)
    code = HOLD.replace("START", "asking.start()").replace("END", "asking.join()")
    main = kernel.execute(code, allow_stdin=True)
    assert (m := traffic.step()).type == "INPUT_REQUEST", m
    cell = kernel.execute("input('second')", subshell=sub, allow_stdin=True)
    assert traffic.step().type == "INPUT_WAIT"
    hold.answer(main, "x")
    traffic.until(main, cell)
    assert traffic.result(main) == "True"
    assert traffic.replies[cell].body["ename"] == "KeyboardInterrupt"
    assert not [m for m in traffic.messages if m.type == "INPUT_REQUEST" and m.id == cell]


def test_interrupt_when_its_answer_has_come(kernel: Kernel, sub: str, traffic: Traffic, workspace: Path) -> None:
    """An interrupt acts once: interrupts of other cells do not interrupt the next question."""
    hold = Hold(kernel, workspace)
    code = HOLD.replace("START", "print('there')").replace("END", "print('sleeps', flush=True)\nwhile True: time.sleep(0.01)")
    main = kernel.execute(code)
    traffic.until_text("there")
    ask = "try: input('first')\nexcept KeyboardInterrupt: print('interrupted')\ninput('second')"
    cell = kernel.execute(ask, subshell=sub, allow_stdin=True)
    assert (m := traffic.step()).type == "INPUT_REQUEST", m
    hold.answer(cell, "x")
    while traffic.step().type != "INPUT_REQUEST":
        pass
    traffic.until_text("sleeps")
    kernel.interrupt(main)
    traffic.until(main)
    assert traffic.replies[main].body["ename"] == "KeyboardInterrupt"
    kernel.answer_input(cell, "y")
    traffic.until(cell)
    assert (traffic.text(cell), traffic.result(cell)) == ("interrupted\n", "'y'")


def test_interrupt_of_a_subprocess(kernel: Kernel, sub: str) -> None:
    cell = kernel.execute("import subprocess\nprint('in', flush=True)\nsubprocess.run(['sleep', '100'])", subshell=sub)
    kernel.wait_for_text("in")
    time.sleep(0.3)
    kernel.interrupt(cell)
    assert kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"


def test_an_interrupt_of_the_main_cell_does_not_reach_the_subshell(kernel: Kernel, sub: str, traffic: Traffic) -> None:
    cell = kernel.execute(
        "import time\nprint('sub in', flush=True)\nwhile not globals().get('stop'): time.sleep(0.01)", subshell=sub
    )
    traffic.until_text("sub in")
    main = kernel.execute("print('main in', flush=True)\nwhile True: pass")
    traffic.until_text("main in")
    kernel.interrupt(main)
    traffic.until(main)
    assert cell not in traffic.replies
    end = kernel.execute("stop = True")
    traffic.until(end, cell)
    assert traffic.replies[cell].body["status"] == "ok"


def test_interrupt_of_one_of_two_cells_that_await(kernel: Kernel, sub: str, traffic: Traffic) -> None:
    code = "import asyncio\nprint('%s in', flush=True)\nwhile not globals().get('stop'): await asyncio.sleep(0.01)"
    main = kernel.execute(code % "main")
    traffic.until_text("main in")
    cell = kernel.execute(code % "sub", subshell=sub)
    traffic.until_text("sub in")
    kernel.interrupt(main)
    traffic.until(main)
    assert traffic.replies[main].body["ename"] == "KeyboardInterrupt"
    assert cell not in traffic.replies
    end = kernel.execute("stop = True")
    traffic.until(end, cell)
    assert traffic.replies[cell].body["status"] == "ok"


def test_an_interrupt_that_comes_too_late(kernel: Kernel, sub: str) -> None:
    for _ in range(20):
        cell = kernel.execute("1", subshell=sub)
        kernel.interrupt(cell)
        assert kernel.collect(cell).status in ("ok", "error")
        r = kernel.run("x = 0\nfor i in range(1000): x += i\nx", subshell=sub)
        assert r.result == "499500", r


def test_input_in_a_subshell(kernel: Kernel, sub: str) -> None:
    def answer(m: Message) -> None:
        if m.type == "INPUT_REQUEST":
            kernel.answer_input(m.id, "text")

    assert kernel.run("input('?')", subshell=sub, allow_stdin=True, on=answer).result == "'text'"
    assert kernel.run("input('?')", subshell=sub).reply["ename"] == "StdinNotImplementedError"


def test_requests_in_a_subshell(kernel: Kernel, sub: str, traffic: Traffic) -> None:
    main = kernel.execute("import time\nprint('in', flush=True)\ntime.sleep(1000)")
    traffic.until_text("in")
    ident = kernel.request("inspect_request", {"code": "zip"}, subshell=sub)
    traffic.until(ident)
    assert traffic.replies[ident].json["found"] is True
    kernel.interrupt(main)
    traffic.until(main)


def test_tasks_of_a_subshell_go_on_between_its_cells(kernel: Kernel, sub: str, traffic: Traffic) -> None:
    cell = kernel.execute(
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.1)\n    global late\n    late = 1\nt = asyncio.create_task(f())",
        subshell=sub,
    )
    traffic.until(cell)
    r = kernel.run(
        "import time\nfor _ in range(1000):\n    if globals().get('late'): break\n    time.sleep(0.01)\nlate"
    )
    assert r.result == "1"
    assert kernel.run("t.done()", subshell=sub).result == "True"


def test_commands_of_a_subshell(kernel: Kernel, sub: str) -> None:
    assert kernel.run("!echo hello", subshell=sub).out == "hello\n"
    r = kernel.run("x = !echo hello\nx", subshell=sub)
    assert r.result == "['hello']"


def test_tool_calls_of_a_subshell(kernel: Kernel, sub: str) -> None:
    kernel.tool_functions.append(lambda call: ("ok", b'{"content":[]}'))
    r = kernel.run("import _cellgate\n_cellgate.tool_call('s', 't', b'{}', 0)[:2]", subshell=sub)
    assert r.result == "('ok', b'{\"content\":[]}')"


def test_several_at_once(kernel: Kernel, traffic: Traffic) -> None:
    kernel.run("import threading\nbarrier = threading.Barrier(5)")
    subs = [create(kernel) for _ in range(4)]
    cells = [
        kernel.execute(f"print('in {i}')\nbarrier.wait(10)\nfor _ in range(200): print('line {i}')", subshell=s)
        for i, s in enumerate(subs)
    ]
    cells.append(kernel.execute("print('in 4')\nbarrier.wait(10)\nfor _ in range(200): print('line 4')"))
    traffic.until(*cells)
    for i, c in enumerate(cells):
        assert traffic.text(c) == f"in {i}\n" + f"line {i}\n" * 200


def test_there_is_a_limit(kernel: Kernel) -> None:
    created = 0
    while (reply := kernel.ask("create_subshell_request", {}))["status"] == "ok":
        created += 1
        assert created <= 64
    assert "delete one first" in reply["evalue"]
    assert kernel.ask(
        "delete_subshell_request", {"subshell_id": kernel.ask("list_subshell_request", {})["subshell_id"][0]}
    )
    for _ in range(200):  # its entry is free when the thread has ended
        reply = kernel.ask("create_subshell_request", {})
        if reply["status"] == "ok":
            break
        kernel.run("import time; time.sleep(0.01)")
    assert reply["status"] == "ok"


def test_deleted_while_its_cell_runs(kernel: Kernel, sub: str, traffic: Traffic) -> None:
    cell = kernel.execute(
        "import time\nprint('in', flush=True)\nwhile not globals().get('stop'): time.sleep(0.01)\n'done'", subshell=sub
    )
    traffic.until_text("in")
    ask = kernel.request("delete_subshell_request", {"subshell_id": sub})
    traffic.until(ask)
    end = kernel.execute("stop = True")
    traffic.until(end, cell)
    assert traffic.result(cell) == "'done'"


def test_subshell_magic(kernel: Kernel, sub: str) -> None:
    assert f"subshell id: {sub}" in kernel.run("%subshell", subshell=sub).out
    assert "subshell id: None" in kernel.run("%subshell").out


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit()",
        "import _thread; _thread.exit()",
        "import threading; threading.current_thread()._delete()",
        "import asyncio; asyncio.get_running_loop().close()",
        "raise BaseException",
        "import sys; sys.settrace(lambda *a: 1/0)",
        "import cellgate_kernel.worker as w; w.Worker.execute = None",
    ],
)
def test_hostile_cells_in_a_subshell(kernel: Kernel, sub: str, code: str) -> None:
    kernel.run(code, subshell=sub)
    assert kernel.run("1", subshell=sub).status in ("ok", "error")
    assert kernel.run("1").status in ("ok", "error")


@pytest.mark.parametrize(
    "code",
    [
        "import cellgate_kernel.control as c\nc.Control.answer = None",
        "import threading\nthreading.Thread = None",
        "import threading\nthreading.Thread.start = None",
        "import uuid\nuuid.uuid4 = None",
        "import json\njson.dumps = None\njson.loads = None",
        "import _cellgate\n_cellgate.open_shell = None",
    ],
)
def test_every_control_request_has_one_reply(kernel: Kernel, code: str) -> None:
    kernel.ask("list_subshell_request", {})
    kernel.run(code)
    for kind in ("create_subshell_request", "list_subshell_request", "delete_subshell_request"):
        content: dict[str, Any] = {"subshell_id": "x"}
        assert kernel.ask(kind, content)["status"] in ("ok", "error")
    assert kernel.ask("list_subshell_request", b"nonsense")["status"] == "error"


def test_no_thread_before_the_first_subshell(kernel: Kernel) -> None:
    code = "import os; len(os.listdir('/proc/self/task'))"
    before = int(kernel.run(code).result or 0)
    create(kernel)
    assert int(kernel.run(code).result or 0) == before + 2
