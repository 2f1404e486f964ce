"""smolagents: a CodeAgent with a scripted model."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from integrations.conftest import ENDLESS, HOSTILE, accepted, check_harmless, reach, started_in_thread
from smolagents import CodeAgent, Model, tool
from smolagents.models import ChatMessage, MessageRole

called: list[Any] = []


@tool
def multiply(a: int, b: int) -> int:
    """Multiplies.

    Args:
        a: one
        b: other
    """
    called.append((a, b))
    return a * b


class Script(Model):
    def __init__(self, *pieces: str) -> None:
        super().__init__(model_id="script")
        self.pieces = list(pieces)
        self.seen: list[str] = []

    def generate(self, messages: Any, **more: Any) -> ChatMessage:
        self.seen.append(str(messages[-1].content))
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.pieces.pop(0)}\n</code>")


def agent(session: Any, *pieces: str, **more: Any) -> Any:
    from cellgate.integrations.smolagents import CellgateExecutor

    return CodeAgent(
        tools=[multiply], model=Script(*pieces), executor=CellgateExecutor(session, **more), verbosity_level=0
    )


def test_state_tools_variables_and_final_answer(session: Any) -> None:
    called.clear()
    a = agent(
        session,
        "import subprocess\nx = multiply(6, b=7)\nprint('x is', x)\nn + 1",
        "undefined_name",
        "try:\n    final_answer({'x': x})\nexcept Exception: pass\nprint('not reached')",
    )
    assert a.run("go", additional_args={"n": 1}) == {"x": 42} and called == [(6, 7)]
    seen = "\n".join(a.model.seen)
    assert "x is 42" in seen and "NameError" in seen


def test_time_limit_and_images(session: Any) -> None:
    from cellgate.integrations.smolagents import CellgateExecutor
    from smolagents.local_python_executor import InterpreterError

    executor = CellgateExecutor(session, timeout=0.5)
    executor.send_tools({"multiply": multiply})
    with pytest.raises(InterpreterError, match="timeout"):
        executor("while True: pass")
    executor("display({'image/png': 'iVBORw0KGgo='}, raw=True)")
    assert executor.images == [b"\x89PNG\r\n\x1a\n"]
    with pytest.raises(InterpreterError, match="ParamsError"):
        executor("multiply('x', 1)")
    assert executor("multiply(2, 3)").output == "6"
    with pytest.raises(TypeError):
        executor.send_variables({"x": object()})


@pytest.mark.parametrize("decision", [True, False, None])
def test_approval_of_mcp_tools(session: Any, repo: Any, tmp_path: Any, decision: bool | None) -> None:
    import sys

    from cellgate.integrations.smolagents import CellgateExecutor

    mark = tmp_path / "mark"
    server = {"command": sys.executable, "args": [str(repo / "tests/api/echo_server.py")], "env": {"MARK": str(mark)}}
    session.add_mcp_servers({"echo": server})
    executor = CellgateExecutor(session, approve=None if decision is None else lambda _: decision)
    code = "from mcptools.echo import danger\ntry: danger.run(text='x')\nexcept Exception as e: print(type(e).__name__)"
    assert executor(code).logs == ("" if decision else "RejectedError\n") and mark.exists() is bool(decision)


def test_interrupted_and_files(session: Any) -> None:
    """smolagents has neither: both are the session's. The agent goes on after the cell."""
    session.files.write("up.txt", b"6")

    def interrupt() -> None:
        started_in_thread(session)
        session.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    a = agent(
        session,
        "x = int(open('up.txt').read())",
        ENDLESS,
        "open('down.txt', 'w').write('down')\nfinal_answer(x)",
    )
    assert a.run("go") == 6 and "KeyboardInterrupt" in "\n".join(a.model.seen)
    thread.join()
    assert session.files.read("down.txt") == b"down"


def test_harmless_output_and_no_connections(session: Any, listener: Any, capfd: Any) -> None:
    from cellgate.integrations.smolagents import CellgateExecutor
    from smolagents.local_python_executor import InterpreterError

    executor = CellgateExecutor(session)
    executor.send_tools({})
    check_harmless(executor(HOSTILE).logs)
    with pytest.raises(InterpreterError):
        executor(reach(listener))
    assert not accepted(listener)
    # What the agent writes to the terminal of its user.
    pieces = "print('\\x1b]0;title\\x07')", "raise ValueError('\\x1b]0;title')", "final_answer('\\x1b]0;title')"
    a = agent(session, *pieces)
    a.logger.level = 2
    a.logger.console.no_color = True
    a.run("go")
    shown = "".join(capfd.readouterr())
    assert "\x1b]" not in shown and "]0;title" in shown


def test_kernel_that_died_gets_its_functions_again(session: Any) -> None:
    a = agent(session, "import os; os._exit(1)", "final_answer(multiply(2, 3))")
    assert a.run("go") == 6
