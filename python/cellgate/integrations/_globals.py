"""Functions of the program as global names of cells, and one that ends the cell with a value."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from cellgate import Approve, Execution, Session, Status, aio

# A function takes its arguments by position or by name. The one called FINAL ends the cell, as an
# exception that `except Exception` does not catch.
_INSTALL = '''
def _install(package, tools, final):
    import importlib
    class FinalAnswer(BaseException):
        """The cell has given its final value."""
    def make(name, module, parameters):
        def function(*args, **fields):
            if len(args) > len(parameters):
                raise TypeError(f"{{name}}() takes {{len(parameters)}} arguments, not {{len(args)}}")
            fields = {{**dict(zip(parameters, args)), **fields}}
            value = importlib.import_module(f"mcptools.{{package}}.{{module}}").run(fields)
            if name == final:
                raise FinalAnswer
            return value
        function.__name__ = name
        return function
    return {{name: make(name, *more) for name, more in tools.items()}}
globals().update(_install(**__import__("json").loads({text!r})))
del _install
'''


# A cell that does not react to its time limit, or to cancel(), costs its kernel as well.
_SAME_KERNEL = (Status.OK, Status.ERROR)


def _installation(report: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]], final: str = "") -> str:
    """Code that makes global names of functions that were registered with @report."""
    tools = {
        tool["tool"]: [
            tool["module"],
            [n for n, p in inspect.signature(functions[tool["tool"]]).parameters.items() if p.kind != p.VAR_KEYWORD],
        ]
        for tool in report["tools"]
    }
    text = json.dumps({"package": report["package"], "tools": tools, "final": final})
    return _INSTALL.format(text=text)


class Globals:
    """A session whose cells have global functions."""

    def __init__(self, session: Session, name: str, final: str) -> None:
        """@name: of the set of functions. @final: the function that ends a cell."""
        self.session = session
        self._name = name
        self._final_name = final
        self._final: list[Any] = []
        self._setup = ""
        self._died = False

    def install(self, functions: Mapping[str, Callable[..., Any]], final: Callable[..., Any]) -> None:
        """@final returns the final value; its result goes to the program, not to the cell."""

        def finish(**fields: Any) -> None:
            self._final[:] = [final(**fields)]

        finish.__signature__ = inspect.signature(final)  # type: ignore[attr-defined]
        finish.__annotations__ = {}
        every = {**functions, self._final_name: finish}
        report = self.session.functions(every, name=self._name)[self._name]
        self._setup = _installation(report, every, self._final_name)
        self.session.run(self._setup, silent=True, history=False).check()

    def set_variables(self, variables: Mapping[str, Any]) -> None:
        """Only JSON values; TypeError or ValueError for others."""
        for name in variables:
            if not name.isidentifier():
                raise ValueError(f"{name!r} is not a name of a variable")
        text = json.dumps(variables, allow_nan=False)
        code = f"globals().update(__import__('json').loads({text!r}))"
        self.session.run(code, silent=True, history=False).check()

    def run(
        self, code: str, *, approve: Approve | None = None, timeout: float | None = None
    ) -> tuple[Execution, list[Any]]:
        """Runs a cell; the list has the final value if the cell has given one."""
        self._final.clear()
        if self._died:
            self.session.run(self._setup, silent=True, history=False).check()
            self._died = False
        execution = self.session.run(code, approve=approve, timeout=timeout)
        self._died = execution.status not in _SAME_KERNEL
        return execution, list(self._final)


class AsyncGlobals:
    """Global functions of the cells of one session of asyncio, which may be others in each cell."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = asyncio.Lock()
        self._installed: list[str] | None = []
        """None: unknown, as after a cell that was cancelled."""
        self._call: Callable[[str, dict[str, Any]], Awaitable[Any]] | None = None

    async def run(
        self,
        session: aio.Session,
        code: str,
        names: Sequence[str],
        call: Callable[[str, dict[str, Any]], Awaitable[Any]],
        *,
        approve: aio.Approve | None = None,
        timeout: float | None = None,
    ) -> Execution:
        """Runs a cell, which calls the functions @names with arguments by name; @call makes their values."""
        async with self._lock:
            wanted, installed = sorted(names), self._installed
            self._installed = None
            if wanted != installed:
                functions = {name: self._function(name) for name in names}
                report = await session.functions(functions, name=self._name)
                setup = _installation(report[self._name], functions)
                (await session.run(setup, silent=True, history=False)).check()
            self._call = call
            try:
                execution = await session.run(code, approve=approve, timeout=timeout)
            finally:
                self._call = None
            if execution.status in _SAME_KERNEL:
                self._installed = wanted
            return execution

    def _function(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def function(**fields: Any) -> Any:
            if self._call is None:
                raise RuntimeError("the cell that this function was made for has ended")
            return await self._call(name, fields)

        return function
