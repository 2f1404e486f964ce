"""Functions of the program that cells call, and JSON that only some readers can read."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any, List, Literal  # noqa: UP035

import cellgate
import pytest
from cellgate._functions import arguments as check
from cellgate._functions import definitions


def add(a: int, b: int = 1, *, how: Literal["plain", "loud"] = "plain") -> int:
    """Adds two numbers."""
    if how == "loud":
        raise OverflowError("too loud")
    return a + b


def test_functions_of_a_blocking_session(session: Any) -> None:
    seen: list[Any] = []

    def look(items: list[dict[str, int]], note: str | None = None) -> Any:
        seen.append((items, note, threading.current_thread()))
        return {"n": len(items)}

    def strange() -> Any:
        return {1, 2}

    session.functions({"add": add, "look": look, "strange": strange})
    assert session.run("from mcptools.host import add, look, strange\nadd.run(a=2)").value == "3"
    assert session.run("look.run(items=[{'x': 1}], note=None)['n']").value == "1"
    assert seen == [([{"x": 1}], None, threading.current_thread())]
    assert session.run("add.run(a=1, how='loud')").error.evalue.endswith("OverflowError: too loud")
    assert "not JSON" in session.run("strange.run()").error.evalue
    assert session.run("add.run(a='x')").error.ename == "ParamsError"
    # Of a stream: only what its reader calls.
    with session.stream("add.run(a=5)") as cell:
        values = []
        for event in cell:
            if type(event).__name__ == "FunctionCall":
                event.run()
            values.append(getattr(event, "text", None))
    assert "6" in values
    session.functions({})
    assert not session.run("add.run(a=2)").ok


def test_asking_and_refusing(session: Any) -> None:
    called: list[int] = []

    def act(n: int) -> None:
        called.append(n)

    session.functions({"act": act}, ask=True)
    code = "from mcptools.host import act\nact.run(n=1)"
    assert session.run(code).refused and session.run(code, approve=lambda _: False).refused and not called
    assert session.run(code, approve=lambda request: request.arguments == {"n": 1}).ok and called == [1]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("{'a': 'x'}", "does not fit"),
        ("{'a': True}", "does not fit"),
        ("{'b': 1}", "is missing"),
        ("{'a': 1, 'c': 2}", "no parameter"),
        ("{'a': 1, 'how': 'other'}", "does not fit"),
    ],
)
def test_arguments_are_checked_without_the_generated_module(arguments: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check(add, json.dumps(eval(arguments)))
    assert check(add, '{"a": 1}') == {"a": 1}
    with pytest.raises(ValueError, match="nested"):
        check(add, '{"a": ' + "[" * 100000 + "]" * 100000 + "}")


def test_a_list_of_anything() -> None:
    def old(items: List) -> None:  # type: ignore[type-arg]  # noqa: UP006
        pass

    assert definitions({"old": old})[0]["inputSchema"]["properties"] == {"items": {"type": "array"}}
    with pytest.raises(ValueError, match="does not fit"):
        check(old, '{"items": 1}')


def test_signatures_that_cells_cannot_use(session: Any) -> None:
    for function in (lambda *a: a, lambda a, /: a):
        with pytest.raises(ValueError, match="by name"):
            session.functions({"f": function})


def test_functions_for_asyncio(client: Any, workspace: Path) -> None:
    async def main() -> None:
        async def slowly(n: int) -> int:
            await asyncio.sleep(0.2)
            return n * 2

        async with cellgate.aio.Session(workspace, client=client) as s:
            await s.functions({"add": add, "slowly": slowly})
            assert (await s.run("from mcptools.host import add, slowly\nadd.run(a=1)")).value == "2"
            both = "import asyncio\nawait asyncio.gather(*(slowly.run_async(n=i) for i in range(8)))"
            assert (await s.run(both)).value == str([i * 2 for i in range(8)])
            stopped = asyncio.ensure_future(s.run("slowly.run(n=1)"))
            await asyncio.sleep(0.1)
            stopped.cancel()
            assert (await s.run("1")).value == "1"

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("value", ["10 ** 5000", "__import__('functools').reduce(lambda a, _: [a], range(1500), 1)"])
def test_events_that_python_cannot_read_end_no_session(client: Any, workspace: Path, value: str) -> None:
    code = f"import sys\nsys.set_int_max_str_digits(0)\ndisplay({{'application/json': {value}}}, raw=True)\n7"
    with cellgate.Session(workspace, client=client) as s:
        assert s.run(code).result.status in ("ok", "error")
        assert s.run("1").value == "1"

    async def main() -> None:
        async with cellgate.aio.Session(workspace, client=client) as s:
            assert (await s.run(code)).result.status in ("ok", "error")
            assert (await s.run("1")).value == "1"

    asyncio.run(asyncio.wait_for(main(), 60))
