"""The debugger as JupyterLab uses it: debug requests on control, events on iopub, while the cell's reply waits on shell."""

from __future__ import annotations

import itertools
import time
from queue import Empty
from typing import Any

import pytest
from clients.support import Kernel

CODE = "def f(n):\n    twice = n * 2\n    return twice + 1\n\nanswer = f(20)\nprint(answer)"


class Debugger:
    """A front-end's side of it."""

    def __init__(self, kernel: Kernel) -> None:
        self.client, self.slowness = kernel.client, kernel.slowness
        self.numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        self.published: list[dict[str, Any]] = []

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        content = {"type": "request", "seq": next(self.numbers), "command": command, "arguments": arguments}
        message = self.client.session.msg("debug_request", content)
        self.client.control_channel.send(message)
        while True:
            reply = self.client.get_control_msg(timeout=20 * self.slowness)
            if reply["parent_header"]["msg_id"] == message["header"]["msg_id"]:
                break
        assert (reply["msg_type"], reply["content"]["request_seq"]) == ("debug_reply", content["seq"])
        return dict(reply["content"])

    def body(self, command: str, **arguments: Any) -> Any:
        response = self.ask(command, **arguments)
        assert response["success"], response
        return response.get("body")

    def event(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + 20 * self.slowness
        while not (found := [e for e in self.events if e["event"] == name]):
            assert time.monotonic() < deadline, f"no {name} in {self.events}"
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except Empty:
                continue
            self.published.append(message)
            if message["msg_type"] == "debug_event":
                assert message["parent_header"]["msg_type"] == "debug_request"
                self.events.append(message["content"])
        self.events.remove(found[0])
        return found[0]

    def start(self) -> None:
        """Do the same as JupyterLab's debugger button."""
        info = self.body("debugInfo")
        assert (info["isStarted"], info["hashMethod"], info["stoppedThreads"]) == (False, "Murmur2", [])
        self.body(
            "initialize",
            clientID="jupyterlab",
            clientName="JupyterLab",
            adapterID="python",
            pathFormat="path",
            linesStartAt1=True,
            columnsStartAt1=True,
            supportsVariableType=True,
            supportsVariablePaging=True,
            supportsRunInTerminalRequest=True,
            locale="en-us",
        )
        self.body("attach", justMyCode=True)
        self.event("initialized")


@pytest.fixture
def debugger(kernel: Kernel, packages: set[str]) -> Debugger:
    if "debugpy" not in packages:
        pytest.skip("debugpy is not in the kernels' environment")
    return Debugger(kernel)


def test_a_debugging_session(debugger: Debugger) -> None:
    client = debugger.client
    debugger.start()
    path = debugger.body("dumpCell", code=CODE)["sourcePath"]
    info = debugger.body("debugInfo")
    assert path.startswith(info["tmpFilePrefix"]) and path.endswith(info["tmpFileSuffix"])
    placed = debugger.body("setBreakpoints", source={"path": path}, breakpoints=[{"line": 3}], sourceModified=False)
    assert [(b["verified"], b["line"]) for b in placed["breakpoints"]] == [(True, 3)]
    debugger.body("configurationDone")

    cell = client.execute(CODE)
    stopped = debugger.event("stopped")["body"]
    assert stopped["reason"] == "breakpoint"
    thread = stopped["threadId"]
    assert debugger.body("debugInfo")["stoppedThreads"] == [thread]
    frames = debugger.body("stackTrace", threadId=thread)["stackFrames"]
    assert [(f["name"], f["line"]) for f in frames] == [("f", 3), ("<module>", 5)]
    assert frames[0]["source"]["path"] == path
    assert debugger.body("source", source={"path": path})["content"] == CODE
    (locals_scope, *_) = debugger.body("scopes", frameId=frames[0]["id"])["scopes"]
    variables = debugger.body("variables", variablesReference=locals_scope["variablesReference"])["variables"]
    assert {v["name"]: v["value"] for v in variables if v["name"] in ("n", "twice")} == {"n": "20", "twice": "40"}
    rich = debugger.body("richInspectVariables", variableName="twice", frameId=frames[0]["id"])
    assert rich["data"]["text/plain"] == "40"
    assert debugger.body("evaluate", expression="twice + n", frameId=frames[0]["id"])["result"] == "60"
    with pytest.raises(Empty):  # the cell is not over; a slow start was asked for its info more than once
        while client.get_shell_msg(timeout=0.2)["parent_header"]["msg_id"] != cell:
            pass

    debugger.body("next", threadId=thread)
    assert debugger.event("stopped")["body"]["reason"] == "step"
    debugger.body("continue", threadId=thread)
    reply = client.get_shell_msg(timeout=20 * debugger.slowness)
    assert (reply["parent_header"]["msg_id"], reply["content"]["status"]) == (cell, "ok")
    seen = list(debugger.published)
    over = False
    while not over:
        m = client.get_iopub_msg(timeout=20)
        seen.append(m)
        over = m["parent_header"]["msg_id"] == cell and m["content"].get("execution_state") == "idle"
    text = "".join(m["content"]["text"] for m in seen if m["msg_type"] == "stream")
    assert text == "41\n"

    found = debugger.body("inspectVariables")["variables"]
    assert {v["name"]: v["value"] for v in found}["answer"] == "41"
    debugger.body("disconnect", restart=False, terminateDebuggee=True)
    assert debugger.body("debugInfo")["isStarted"] is False
    cell = client.execute(CODE)  # the breakpoint is gone
    assert client.get_shell_msg(timeout=20 * debugger.slowness)["content"]["status"] == "ok"


def test_an_interrupt_of_a_stopped_cell(debugger: Debugger, kernel: Kernel) -> None:
    debugger.start()
    path = debugger.body("dumpCell", code=CODE)["sourcePath"]
    debugger.body("setBreakpoints", source={"path": path}, breakpoints=[{"line": 2}])
    debugger.body("configurationDone")
    debugger.client.execute(CODE)
    debugger.event("stopped")
    kernel.manager.interrupt_kernel()
    reply = debugger.client.get_shell_msg(timeout=20 * debugger.slowness)
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    debugger.event("continued")
    assert debugger.body("debugInfo")["stoppedThreads"] == []
