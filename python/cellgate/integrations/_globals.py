"""Functions of the program as global names of cells, and one that ends the cell with a value."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from cellgate import Approve, Execution, Session

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


class Globals:
    """A session whose cells have global functions."""

    def __init__(self, session: Session, name: str, final: str) -> None:
        """@name: of the set of functions. @final: the function that ends a cell."""
        self.session = session
        self._name = name
        self._final_name = final
        self._final: list[Any] = []

    def install(self, functions: Mapping[str, Callable[..., Any]], final: Callable[..., Any]) -> None:
        """@final returns the final value; its result goes to the program, not to the cell."""

        def finish(**fields: Any) -> None:
            self._final[:] = [final(**fields)]

        finish.__signature__ = inspect.signature(final)  # type: ignore[attr-defined]
        finish.__annotations__ = {}
        every = {**functions, self._final_name: finish}
        report = self.session.functions(every, name=self._name)[self._name]
        tools = {
            tool["tool"]: [tool["module"], list(inspect.signature(every[tool["tool"]]).parameters)]
            for tool in report["tools"]
        }
        text = json.dumps({"package": report["package"], "tools": tools, "final": self._final_name})
        self.session.run(_INSTALL.format(text=text), silent=True, history=False).check()

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
        execution = self.session.run(code, approve=approve, timeout=timeout)
        return execution, list(self._final)
