"""smolagents: a CodeAgent with a scripted model."""

from __future__ import annotations

from typing import Any

import pytest
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
