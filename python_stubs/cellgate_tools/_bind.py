"""bind(): makes the functions of a generated module, their signatures and the texts that help() shows.

Generated modules hold data only: classes with annotated fields, docstrings, and one call of bind().
"""

from __future__ import annotations

import sys
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, cleandoc
from opcode import opmap
from types import ModuleType
from typing import TYPE_CHECKING, Any, ForwardRef, Generic, ParamSpec, Protocol, TypeVar, overload

from ._result import ToolResult
from ._signature import of_function, one_line
from ._tool import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from ._model import Model

__all__ = ["Returns", "bind"]

P = ParamSpec("P")
M = TypeVar("M", contravariant=True)
R = TypeVar("R")
C = TypeVar("C", covariant=True)

if TYPE_CHECKING:

    class Returns(Generic[R]):
        """Type of a result that has no class of its own: Returns["list[Item] | None"]."""

    class Function(Protocol[P, M, C]):
        """run() and call() take the fields of Params, or one object: a Params or a dict with the original names."""

        @overload
        def __call__(self, params: M | Mapping[str, Any], /) -> C: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C: ...

    class AsyncFunction(Protocol[P, M, C]):
        """The same, to be awaited."""

        @overload
        async def __call__(self, params: M | Mapping[str, Any], /) -> C: ...
        @overload
        async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C: ...

    Functions = tuple[
        Function[P, M, C],
        Function[P, M, ToolResult],
        AsyncFunction[P, M, C],
        AsyncFunction[P, M, ToolResult],
        AsyncFunction[P, M, C],
        AsyncFunction[P, M, ToolResult],
    ]

else:

    class Returns:
        """Type of a result that has no class of its own. Here it is the text between the brackets."""

        def __class_getitem__(cls, text):
            return text


class _Names(tuple[str, ...]):
    """__all__ of a generated module: `import *` takes all names, help() shows the docstring alone."""

    def __contains__(self, name: object) -> bool:
        return False


class ToolModule(ModuleType):
    # A tool's module, which can be called as its run(). IPython's "?" would show a docstring.

    def __call__(self, *args: Any, **fields: Any) -> Any:
        tool: Tool = self.__dict__["_tool"]
        params = _params(args)
        return tool.run_async(params, fields) if _is_awaited(sys._getframe(1)) else tool.run(params, fields)


def _params(args: tuple[Any, ...]) -> Any:
    """One object with all arguments. Of several a ParamsError says that fields have names."""
    return args[0] if len(args) == 1 else args or None


def _is_awaited(frame: FrameType) -> bool:
    """True if the frame is about to await what the function returns that it calls.

    `await tool.run()` would fail only after the call was made, so that a program makes it again.
    """
    code = frame.f_code
    if not code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
        return False
    i = frame.f_lasti + 2
    while code.co_code[i] == opmap["CACHE"]:
        i += 2
    return code.co_code[i] == opmap["GET_AWAITABLE"]


def _help(description: str, params: type[Model], classes: list[type[Model]]) -> str:
    """The description, then each documented field, then the fields of the other classes."""
    parts = [cleandoc(description), cleandoc(params.__doc__ or "")]
    for cls in classes:
        doc = cleandoc(cls.__doc__ or "")
        parts.append(f"{cls.__name__}({one_line(cls)})" + ("\n  " + doc.replace("\n", "\n  ") if doc else ""))
    return "\n\n".join(part for part in parts if part)


if TYPE_CHECKING:

    @overload
    def bind(
        module: dict[str, Any], name: str, params: Callable[P, M], returns: type[Returns[R]]
    ) -> Functions[P, M, R]: ...
    @overload
    def bind(module: dict[str, Any], name: str, params: Callable[P, M], returns: type[R]) -> Functions[P, M, R]: ...


def bind(module: Any, name: Any, params: Any, returns: Any) -> Any:
    """Called once by a generated module, with its globals, the tool's original name, and types.

    Returns run, call, run_async, call_async, arun (which is run_async) and acall (call_async).
    """
    tool = Tool(module, name)
    header, _, description = module["__doc__"].partition("\n\n")
    shown = returns if isinstance(returns, str) else returns.__name__

    def run(*args: Any, **fields: Any) -> Any:
        params = _params(args)
        return tool.run_async(params, fields) if _is_awaited(sys._getframe(1)) else tool.run(params, fields)

    def call(*args: Any, **fields: Any) -> Any:
        """Like run(), but returns every content block and does not raise when the tool reports an error."""
        params = _params(args)
        return tool.call_async(params, fields) if _is_awaited(sys._getframe(1)) else tool.call(params, fields)

    async def run_async(*args: Any, **fields: Any) -> Any:
        """Like run(), to be awaited: any number of calls may wait at once."""
        return await tool.run_async(_params(args), fields)

    async def call_async(*args: Any, **fields: Any) -> ToolResult:
        """Like call(), to be awaited."""
        return await tool.call_async(_params(args), fields)

    def call_module(*args: Any, **fields: Any) -> Any:
        return run(*args, **fields)

    own = module["__name__"]
    classes = [v for v in module.values() if isinstance(v, type) and v.__module__ == own]
    run.__doc__ = _help(description, params, [c for c in classes if c is not params])
    module["__doc__"] = f"{header}\n\nrun({one_line(params)}) -> {shown}\n\n{run.__doc__}"
    functions: tuple[Any, ...] = (run, call, run_async, call_async)
    for function in functions:
        is_run = function in (run, run_async)
        function.__signature__ = of_function(params, shown if is_run else "ToolResult")
        # For get_type_hints(), which has not the names of the module.
        function.__annotations__["return"] = ForwardRef(shown, module=own) if is_run else ToolResult
        function.__module__ = own
        function.__qualname__ = function.__name__
    names = [*(c.__name__ for c in classes), "run", "call", "arun", "acall", "run_async", "call_async"]
    module["__all__"] = _Names(names)
    module["__dir__"] = lambda: names
    module["_tool"] = tool
    module["__signature__"] = run.__signature__  # type: ignore[attr-defined]
    # Only "?" looks for __call__ here. It would show another signature, and a docstring a second time.
    module["__call__"] = call_module
    call_module.__signature__ = run.__signature__  # type: ignore[attr-defined]
    if type(sys.modules.get(own)) is ModuleType:
        sys.modules[own].__class__ = ToolModule
    return run, call, run_async, call_async, run_async, call_async
