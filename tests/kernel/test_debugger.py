"""The debugger: debug requests and events."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel.harness import Kernel, Message, Zygote

numbers = itertools.count(1)


class Debugging:
    """A debugging front-end: responses by request, events and replies in order of arrival."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.events: list[dict[str, Any]] = []
        self.replies: dict[int, Message] = {}
        self.output: list[Message] = []

    def _take(self, timeout: float = 20.0) -> Message:
        m = self.kernel.receive(timeout)
        if m.type == "DEBUG_EVENT":
            assert m.id == 0
            self.events.append(m.json)
        elif m.type in ("REPLY", "EXECUTE_REPLY"):
            self.replies[m.id] = m
        else:
            self.output.append(m)
        return m

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        seq = next(numbers)
        request = {"type": "request", "seq": seq, "command": command, "arguments": arguments}
        ident = self.kernel.request("debug_request", request)
        while ident not in self.replies:
            self._take()
        response = self.replies[ident].json
        assert (response["type"], response["request_seq"], response["command"]) == ("response", seq, command)
        return response

    def body(self, command: str, **arguments: Any) -> Any:
        response = self.ask(command, **arguments)
        assert response["success"], str(response)
        return response.get("body")

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name."""
        while True:
            for e in self.events:
                if e["event"] == name:
                    self.events.remove(e)
                    return e
            self._take()

    def finish(self, cell: int) -> Message:
        while cell not in self.replies:
            self._take()
        return self.replies[cell]

    def text(self) -> str:
        return b"".join(m.raw for m in self.output if m.type == "STREAM").decode()

    def start(self) -> None:
        assert self.body("initialize", clientID="test", pathFormat="path", linesStartAt1=True)[
            "supportsConfigurationDoneRequest"
        ]
        self.body("attach", justMyCode=True)
        self.event("initialized")
        self.body("configurationDone")

    def stop_at(self, code: str, *lines: int) -> tuple[int, int]:
        """Run a cell up to a breakpoint; returns cell and thread."""
        path = self.body("dumpCell", code=code)["sourcePath"]
        placed = self.body("setBreakpoints", source={"path": path}, breakpoints=[{"line": n} for n in lines])
        assert [b["verified"] for b in placed["breakpoints"]] == [True] * len(lines)
        cell = self.kernel.execute(code)
        return cell, self.event("stopped")["body"]["threadId"]


@pytest.fixture
def plain(kernel: Kernel) -> Debugging:
    return Debugging(kernel)


@pytest.fixture
def debugging(packages_zygote: Zygote, workspace: Path) -> Iterator[Debugging]:
    with packages_zygote.spawn(workspace, front="jupyter") as kernel:
        yield Debugging(kernel)


def test_ready_says_whether_there_is_one(kernel: Kernel, packages_kernel: Kernel) -> None:
    assert (kernel.ready.body["debugger"], packages_kernel.ready.body["debugger"]) == (False, True)


def test_without_debugpy_it_says_so(plain: Debugging) -> None:
    response = plain.ask("initialize")
    assert not response["success"] and "debugpy" in response["message"]


def test_info_and_files(plain: Debugging) -> None:
    info = plain.body("debugInfo")
    assert (info["isStarted"], info["breakpoints"], info["stoppedThreads"]) == (False, [], [])
    assert (info["hashMethod"], info["hashSeed"]) == ("Murmur2", 0xC70F6907)
    path = plain.body("dumpCell", code="a = 1\nb = '\u20ac'\n")["sourcePath"]
    assert path.startswith(info["tmpFilePrefix"]) and path.endswith(info["tmpFileSuffix"])
    assert plain.body("source", source={"path": path})["content"] == "a = 1\nb = '\u20ac'\n"
    assert not plain.ask("source", source={"path": "/nowhere"})["success"]


@pytest.mark.parametrize("code", ["", "a", "ab", "abc", "abcd", "print('\u20ac\u20ac')\n" * 9])
def test_names_of_cells_are_those_of_jupyter(kernel: Kernel, code: str) -> None:
    """Front-ends compute MurmurHash2 of the code themselves."""
    found = kernel.run(f"import _cellgate\n_cellgate.murmur2({code.encode()!r}, 0xC70F6907)").result
    assert found == str(murmur2(code.encode(), 0xC70F6907))


def murmur2(data: bytes, seed: int) -> int:
    """MurmurHash2, the reference algorithm."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = seed ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@pytest.mark.parametrize(
    "command", ["setBreakpoints", "continue", "stackTrace", "evaluate", "threads", "attach", "next", "nonsense"]
)
def test_before_the_start(plain: Debugging, command: str) -> None:
    arguments = {"source": {"path": "/x"}, "breakpoints": []} if command == "setBreakpoints" else {}
    response = plain.ask(command, **arguments)
    assert not response["success"] and "not started" in response["message"]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"command": 5},
        {"command": "dumpCell", "arguments": [1]},
        {"command": "dumpCell"},
        {"command": "source", "arguments": {"source": 5}},
    ],
)
def test_bad_debug_requests(kernel: Kernel, content: dict[str, Any]) -> None:
    reply = kernel.ask("debug_request", content)
    assert reply.get("status") == "error" or reply.get("success") is False


def test_variables_without_a_debugger(plain: Debugging) -> None:
    plain.kernel.run(
        "x = 1\ns = 'text'\nd = {'k': [1, 2], 'e': {}}\n_private = 3\n"
        "class A:\n    def __init__(self): self.inside = (1,)\n    @property\n    def bad(self): raise ValueError\n"
        "a = A()\n"
        "class B:\n    def __repr__(self): raise ValueError\nb = B()\nlong = 'y' * 100_000"
    )
    found = {v["name"]: v for v in plain.body("inspectVariables")["variables"]}
    assert set(found) == {"x", "s", "d", "_private", "A", "a", "B", "b", "long"}
    assert (found["x"]["value"], found["x"]["type"], found["x"]["variablesReference"]) == ("1", "int", 0)
    assert "ValueError" in found["b"]["value"] and len(found["long"]["value"]) < 2000
    inside = plain.body("variables", variablesReference=found["d"]["variablesReference"])["variables"]
    assert [(v["name"], v["value"], bool(v["variablesReference"])) for v in inside] == [
        ("'k'", "[1, 2]", True),
        ("'e'", "{}", False),
    ]
    inside = plain.body("variables", variablesReference=found["a"]["variablesReference"])["variables"]
    assert [(v["name"], v["value"]) for v in inside] == [("inside", "(1,)")]
    assert plain.body("variables", variablesReference=12345)["variables"] == []
    assert plain.body("richInspectVariables", variableName="x")["data"] == {"text/plain": "1"}
    assert not plain.ask("richInspectVariables", variableName="nosuch")["success"]
    assert plain.body("richInspectVariables", variableName="1 + 1") == {"data": {}, "metadata": {}}


def test_while_a_cell_spins(plain: Debugging) -> None:
    cell = plain.kernel.execute("print('in', flush=True)\nwhile True: pass")
    while "in" not in plain.text():
        plain._take()
    assert plain.body("debugInfo")["isStarted"] is False
    plain.kernel.interrupt(cell)
    plain.finish(cell)


def test_a_breakpoint(debugging: Debugging) -> None:
    debugging.start()
    assert debugging.body("debugInfo")["isStarted"] is True
    code = "\n\nimport sys\ndef f(n):\n    inner = n * 2\n    return inner\nvalue = f(21)\nprint(value)"
    cell, thread = debugging.stop_at(code, 6)
    info = debugging.body("debugInfo")
    assert info["stoppedThreads"] == [thread]
    assert [b["breakpoints"][0]["line"] for b in info["breakpoints"]] == [6]
    frames = debugging.body("stackTrace", threadId=thread)["stackFrames"]
    assert [(f["name"], f["line"]) for f in frames] == [("f", 6), ("<module>", 7)]
    (scope, *_) = debugging.body("scopes", frameId=frames[0]["id"])["scopes"]
    variables = debugging.body("variables", variablesReference=scope["variablesReference"])["variables"]
    assert {v["name"]: v["value"] for v in variables} == {"inner": "42", "n": "21"}
    assert debugging.body("evaluate", expression="inner + 1", frameId=frames[0]["id"])["result"] == "43"
    rich = debugging.body("richInspectVariables", variableName="inner", frameId=frames[0]["id"])
    assert rich["data"] == {"text/plain": "42"}
    debugging.body("copyToGlobals", srcVariableName="inner", dstVariableName="copied", srcFrameId=frames[0]["id"])
    debugging.body("continue", threadId=thread)
    assert debugging.finish(cell).body["status"] == "ok"
    assert debugging.text() == "42\n"
    assert debugging.body("debugInfo")["stoppedThreads"] == []
    cell = debugging.kernel.execute("print('copied', copied)")
    debugging.finish(cell)
    assert "copied 42" in debugging.text()


def test_stepping(debugging: Debugging) -> None:
    debugging.start()
    code = "def g(x):\n    y = x + 1\n    return y\na = 1\nb = g(a)\nc = 3\nd = 4"
    cell, thread = debugging.stop_at(code, 4)

    def line() -> tuple[str, int]:
        frame = debugging.body("stackTrace", threadId=thread)["stackFrames"][0]
        return frame["name"], frame["line"]

    assert line() == ("<module>", 4)
    for command, where in (
        ("next", ("<module>", 5)),
        ("stepIn", ("g", 2)),
        ("next", ("g", 3)),
        ("stepOut", ("<module>", 5)),
        ("next", ("<module>", 6)),
    ):
        debugging.body(command, threadId=thread)
        assert debugging.event("stopped")["body"]["reason"] == "step"
        assert line() == where
    debugging.body("continue", threadId=thread)
    assert debugging.finish(cell).body["status"] == "ok"


def test_an_interrupt_while_stopped(debugging: Debugging) -> None:
    debugging.start()
    cell, thread = debugging.stop_at("x = 1\ny = 2", 2)
    debugging.kernel.interrupt(cell)
    assert debugging.finish(cell).body["ename"] == "KeyboardInterrupt"
    assert debugging.event("continued")["body"]["threadId"] == thread
    assert debugging.body("debugInfo")["stoppedThreads"] == []
    last = debugging.kernel.execute("print('alive')")
    assert debugging.finish(last).body["status"] == "ok"
    assert "alive" in debugging.text()


def test_breakpoints_after_an_interrupt(debugging: Debugging) -> None:
    debugging.start()
    cell, _ = debugging.stop_at("x = 1\ny = 2", 2)
    debugging.kernel.interrupt(cell)
    assert debugging.finish(cell).body["ename"] == "KeyboardInterrupt"
    cell, thread = debugging.stop_at("a = 1\nb = 2\nc = 3", 2)
    debugging.body("continue", threadId=thread)
    assert debugging.finish(cell).body["status"] == "ok"


def test_disconnect_and_again(debugging: Debugging) -> None:
    debugging.start()
    cell, _ = debugging.stop_at("x = 1\ny = 2", 2)
    debugging.body("disconnect", restart=False)
    assert debugging.finish(cell).body["status"] == "ok"  # the cell continues
    assert debugging.body("debugInfo")["isStarted"] is False
    assert not debugging.ask("threads")["success"]
    cell = debugging.kernel.execute("x = 1\ny = 2")
    assert debugging.finish(cell).body["status"] == "ok"  # breakpoints are removed
    debugging.events.clear()
    debugging.start()
    cell, thread = debugging.stop_at("x = 5\ny = 6", 2)
    debugging.body("continue", threadId=thread)
    assert debugging.finish(cell).body["status"] == "ok"


def test_started_while_a_cell_runs(debugging: Debugging) -> None:
    cell = debugging.kernel.execute("import time\nprint('in', flush=True)\ntime.sleep(1)")
    while "in" not in debugging.text():
        debugging._take()
    debugging.start()
    assert debugging.finish(cell).body["status"] == "ok"


def test_tracebacks_still_name_cells(debugging: Debugging) -> None:
    cell = debugging.kernel.execute("def f():\n    1/0\nf()")
    debugging.finish(cell)
    (error,) = [m for m in debugging.output if m.type == "ERROR"]
    text = "\n".join(error.json["traceback"])
    assert "Cell In[1], line 3" in text and "/ipykernel_" not in text


def test_the_output_of_the_start_is_empty(debugging: Debugging) -> None:
    debugging.start()
    assert debugging.output == []


def test_modules(plain: Debugging) -> None:
    found = plain.body("modules", startModule=0, moduleCount=5)
    assert len(found["modules"]) == 5 and found["totalModules"] > 50
