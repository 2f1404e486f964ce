"""DSPy: its interpreter protocol, and RLM with a scripted model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreter, CodeInterpreterError, FinalOutput
from dspy.utils import DummyLM
from integrations.conftest import DANGER, ENDLESS, HOSTILE, SHOW, accepted, check_harmless, reach, started_in_thread


def double(n: int) -> int:
    """Doubles."""
    return n * 2


@pytest.fixture
def interpreter(client: Any, tmp_path: Path) -> Iterator[Any]:
    from cellgate.integrations.dspy import CellgateInterpreter

    with CellgateInterpreter({"double": double}, workspace=tmp_path, client=client) as i:
        yield i


def test_protocol(interpreter: Any) -> None:
    assert isinstance(interpreter, CodeInterpreter)
    assert interpreter.execute("x = double(n)\nprint(x)", {"n": 4}) == "8"
    assert interpreter.execute("x + 1") == "9" and interpreter.execute("y = 1") is None
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError"):
        interpreter.execute("1 / 0")
    with pytest.raises(SyntaxError):
        interpreter.execute("x = = 1")
    assert interpreter.execute("SUBMIT([x])") == FinalOutput({"output": [8]})
    interpreter.output_fields = [{"name": "a"}, {"name": "b"}]
    interpreter.tools["triple"] = lambda n: n * 3
    assert interpreter.execute("SUBMIT(triple(1), b='x')") == FinalOutput({"a": 3, "b": "x"})
    with pytest.raises(CodeExecutionError, match="b"):
        interpreter.execute("SUBMIT(a=1)")
    with pytest.raises(CodeInterpreterError, match="names of tools"):
        interpreter.execute("1", {"double": 1})
    with pytest.raises(CodeInterpreterError, match="not JSON|JSON"):
        interpreter.execute("1", {"v": object()})
    interpreter.shutdown()
    with pytest.raises(CodeInterpreterError, match="shut down"):
        interpreter.execute("1")


def test_time_limit(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.dspy import CellgateInterpreter

    with CellgateInterpreter(workspace=tmp_path, client=client, timeout=0.5) as i:
        with pytest.raises(CodeExecutionError):
            i.execute("while True: pass")
        assert i.execute("1") == "1"


def test_rlm(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.dspy import CellgateInterpreter

    model = DummyLM(
        [
            {"reasoning": "look", "code": "print(len(question), double(4))"},
            {"reasoning": "end", "code": "SUBMIT(answer=str(double(21)))"},
        ]
    )
    rlm = dspy.RLM(
        "question -> answer",
        tools=[double],
        interpreter_factory=lambda: CellgateInterpreter(workspace=tmp_path, client=client),
    )
    with dspy.context(lm=model):
        assert rlm(question="what").answer == "42"


@pytest.mark.parametrize("decision", [True, False, None])
def test_approval_of_mcp_tools(client: Any, tmp_path: Path, servers: Any, mark: Path, decision: bool | None) -> None:
    """In RLM: the error of a refused call goes to the model."""
    from cellgate.integrations.dspy import CellgateInterpreter

    workspace = tmp_path / "workspace"
    workspace.mkdir()
    code = f"try:\n    {DANGER.splitlines()[0]}; {DANGER.splitlines()[1]}; end = 'called'\nexcept Exception as e:\n"
    model = DummyLM([{"reasoning": "go", "code": f"{code}    end = type(e).__name__\nSUBMIT(answer=end)"}])
    approve = None if decision is None else lambda _: decision
    options = {"workspace": workspace, "client": client, "mcp_servers": servers, "approve": approve}
    rlm = dspy.RLM("question -> answer", interpreter_factory=lambda: CellgateInterpreter(**options))
    with dspy.context(lm=model):
        assert rlm(question="what").answer == ("called" if decision else "RejectedError")
    assert mark.exists() is bool(decision)


def test_images_are_left_out_and_output_is_harmless(interpreter: Any, listener: Any) -> None:
    """DSPy's protocol has text and values only: of an image there is nothing."""
    assert interpreter.execute(SHOW) is None
    check_harmless(interpreter.execute(HOSTILE))
    with pytest.raises(CodeExecutionError):
        interpreter.execute(reach(listener))
    assert not accepted(listener)


def test_interrupted_and_files(interpreter: Any) -> None:
    """DSPy has neither: both are the session's."""
    session = interpreter.session
    session.files.write("up.txt", b"6")
    assert interpreter.execute("x = int(open('up.txt').read()); x") == "6"

    def interrupt() -> None:
        started_in_thread(session)
        session.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(CodeExecutionError):
        interpreter.execute(ENDLESS)
    thread.join()
    assert interpreter.execute("open('down.txt', 'w').write('down'); x") == "6"
    assert session.files.read("down.txt") == b"down"
