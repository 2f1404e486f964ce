"""Calls of tools: arguments are checked and encoded, the host approves and calls, results decoded.

All calls use _cellgate.tool_call(server, tool, arguments, timeout_ms), function_call() for functions of
the host, or their forms for coroutines, of the kernel. They only name the tool; the host knows the
server, and approves exactly these bytes.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ._data import load_package, parse_json
from ._errors import (
    ApprovalTimeoutError,
    ParamsError,
    ProtocolError,
    RejectedError,
    ToolError,
    UnavailableError,
)
from ._model import Binding, Model, wrapper
from ._result import Text, ToolResult
from ._schema import Schema
from ._values import UNSET, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Tool", "answer_of", "host", "options", "timeout_ms", "whole"]


class _Options(NamedTuple):
    timeout_ms: int = 0  # none
    strict: bool = False


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_DEFAULT = _Options()
_OPTIONS: contextvars.ContextVar[_Options] = contextvars.ContextVar("cellgate_tools.options", default=_DEFAULT)


@contextlib.contextmanager
def options(*, timeout: float | None = None, strict: bool | None = None) -> Iterator[None]:
    """Settings for the calls in a with block.

    timeout: seconds that a call may take, without waiting for approval; the host's limit applies too.
    strict: a result that violates the tool's outputSchema raises ToolError instead of a warning.
    """
    changed = _OPTIONS.get()
    if timeout is not None:
        changed = changed._replace(timeout_ms=max(1, round(min(timeout, 1e9) * 1000)))
    if strict is not None:
        changed = changed._replace(strict=strict)
    token = _OPTIONS.set(changed)
    try:
        yield
    finally:
        _OPTIONS.reset(token)


def timeout_ms() -> int:
    """Of the options in force."""
    return _OPTIONS.get().timeout_ms


def host(server: str, tool: str, what: str = "") -> Any:
    """The module _cellgate. what: of a request that is no call of a tool."""
    try:
        import _cellgate
    except ImportError:
        raise UnavailableError(
            f"{what or f'{server}.{tool}'} cannot be called here: this is no cellgate kernel"
            " (it has no module _cellgate)",
            server=server,
            tool=tool,
            kind="unavailable",
        ) from None
    return _cellgate


def answer_of(server: str, tool: str, status: str, payload: bytes, kind: str, what: str = "") -> dict[str, Any]:
    """The result object of a call. Raises RejectedError, ProtocolError, UnavailableError, but not for error results."""
    what = what or f"{server}.{tool}"

    def unavailable(text: str, kind: str) -> UnavailableError:
        return UnavailableError(f"{what}{text}", server=server, tool=tool, kind=kind)

    if status == "rejected":
        cls = ApprovalTimeoutError if kind == "approval_timeout" else RejectedError
        raise cls(server, tool, payload.decode("utf-8", "replace"), kind or "rejected", what)
    if status not in ("ok", "protocol_error"):
        raise unavailable(f" failed: {payload.decode('utf-8', 'replace') or status}", kind or "unavailable")
    try:
        if kind == "kept":
            from . import _kept

            answer = _kept.parse(payload)
        else:
            answer = parse_json(payload)
    except (ValueError, RecursionError) as e:
        raise unavailable(f": the server's answer cannot be read: {e}", "protocol") from None
    except RuntimeError as e:  # of result_read()
        raise unavailable(f": the kept answer cannot be read: {e}", "unavailable") from None
    if not isinstance(answer, dict):
        raise unavailable(": the server's answer is no object", "protocol")
    if status == "ok":
        form = answer.get("resultType", "complete")
        if form != "complete":
            raise unavailable(f": the server's answer is of an unknown type: {short(form)}", "protocol")
        return answer
    code, message = answer.get("code"), answer.get("message")
    error = ProtocolError(what, code if isinstance(code, int) else 0, str(message or "no message"), answer.get("data"))
    error.server, error.tool = server, tool
    raise error


def _result(server: str, tool: str, status: str, payload: bytes, kind: str) -> ToolResult:
    return ToolResult(answer_of(server, tool, status, payload, kind))


T = TypeVar("T")

_MAX_LEARNED = 1 << 20
"""Most characters of a text of which the shape is learned."""


def whole(read: Callable[[], T], result: ToolResult, server: str, tool: str, what: str = "") -> T:
    """What read() makes of a result, of which parts may stay with the tool server. Raises UnavailableError."""
    what = what or f"{server}.{tool}"
    try:
        return read()
    except RuntimeError as e:  # of result_read()
        text, kind = f"{what}: the kept answer cannot be read: {e}", "unavailable"
    except MemoryError:
        text, kind = (
            f"{what}: the text is larger than the memory that is left. The call was made. .result of this error has"
            " the text: .result.large() can be sliced, read by .parts() and written to a file by .save(PATH)",
            "too_large",
        )
    raise UnavailableError(text, result, server=server, tool=tool, kind=kind)


class Tool:
    """The tool of a generated module. Its data is read when first needed, so imports are fast."""

    __slots__ = ("_entry", "_function", "_learned", "_module", "_schemas", "_server", "_warned", "name")

    def __init__(self, module: dict[str, Any], name: str) -> None:
        self._module = module
        self.name = name
        self._entry: dict[str, Any] | None = None
        self._server = ""
        self._function = False  # of the host
        self._schemas: dict[str, Schema] = {}
        self._warned = False
        self._learned = False  # what results look like

    @property
    def entry(self) -> dict[str, Any]:
        """The tool's part of _tools.json."""
        if self._entry is None:
            package = load_package(os.path.dirname(self._module["__file__"]))
            if self.name not in package["tools"]:
                raise UnavailableError(
                    f"{self.name} is gone from its package: the package was generated again; restart",
                    server=package["server"],
                    tool=self.name,
                    kind="unavailable",
                )
            self._server = package["server"]
            self._function = package.get("functions", False)
            self._entry = package["tools"][self.name]
        return self._entry

    @property
    def server(self) -> str:
        """The server's name as it is registered."""
        return self._server if self.entry else ""

    def schema(self, side: str) -> Schema:
        """side: "in" or "out"."""
        if side not in self._schemas:
            self._schemas[side] = Schema(self.entry[side])
        return self._schemas[side]

    def binding(self, cls: str) -> Binding:
        entry = self.entry["classes"][cls]
        return Binding(self.schema(entry.get("s", "in")), entry)

    def arguments(self, params: Any, fields: dict[str, Any]) -> bytes:
        """The JSON text that is approved and sent. Raises ParamsError."""
        cls: type[Model] = self._module["Params"]
        if params is None:
            params = cls(**fields)
        elif not isinstance(params, (Model, Mapping)):
            names = ", ".join(f"{name}=..." for name in cls.__annotations__ if name not in cls._defaults)
            raise ParamsError(cls.__name__, [("", f"arguments are passed by name: run({names or '**fields'})")])
        elif fields:
            raise TypeError("give either a Params object or fields, not both")
        else:  # also if it is a Params: its values may have changed, or it may be of another tool
            params = cls.model_validate(params)
        try:
            text = _encode(params.model_dump())
        except (ValueError, RecursionError) as e:
            raise ParamsError(cls.__name__, [("", f"it cannot be written as JSON: {e}")]) from None
        return text.encode("ascii")

    def call(self, params: Any, fields: dict[str, Any]) -> ToolResult:
        arguments = self.arguments(params, fields)
        kernel = host(self.server, self.name)
        call = kernel.function_call if self._function else kernel.tool_call
        return _result(self.server, self.name, *call(self.server, self.name, arguments, _OPTIONS.get().timeout_ms))

    def run(self, params: Any, fields: dict[str, Any]) -> Any:
        return self.value(self.call(params, fields))

    async def call_async(self, params: Any, fields: dict[str, Any]) -> ToolResult:
        from . import _async

        arguments = self.arguments(params, fields)
        host(self.server, self.name)
        call = _async.function if self._function else _async.call
        answer = await call(self.server, self.name, arguments, _OPTIONS.get().timeout_ms)
        return _result(self.server, self.name, *answer)

    async def run_async(self, params: Any, fields: dict[str, Any]) -> Any:
        return self.value(await self.call_async(params, fields))

    def value(self, result: ToolResult) -> Any:
        """The value that run() returns. Raises ToolError."""
        if result.is_error:
            raise self._error(result.summary(2000) or f"{self.server}.{self.name} failed and gave no reason", result)
        if "out" not in self.entry:
            if result.structured is not UNSET and not result.content:
                self._learn(result.structured, "")
                return result.structured
            text = whole(lambda: Text(result.summary(), result), result, self.server, self.name)
            if not self._learned and text[:1] in ("{", "[") and len(text) <= _MAX_LEARNED:
                with contextlib.suppress(ValueError):
                    self._learn(text.json(), "JSON; .json() is ")
            return text
        value = self._structured(result)
        self._check(value, result)
        key = self.entry.get("unwrap")
        if key and isinstance(value, dict) and key in value:
            value = value[key]
        return wrapper(self._module, spec)(value, 0) if (spec := self.entry.get("ret")) else value

    def _learn(self, value: Any, how: str) -> None:
        """Show in help() what a result looks like, as the server does not say it."""
        if self._learned or value in ({}, []):
            return
        from ._shape import shape

        self._learned = True
        note = f"\n\nThe first result was {how}{shape(value)}"
        self._module["__doc__"] += note
        self._module["run"].__doc__ += note

    def _error(self, text: str, result: ToolResult) -> ToolError:
        return ToolError(text, result, server=self.server, tool=self.name)

    def _structured(self, result: ToolResult) -> Any:
        if result.structured is not UNSET:
            return result.structured
        text = whole(lambda: result.text, result, self.server, self.name)
        try:  # some servers declare a schema but send the JSON as text only
            return parse_json(text)
        except (ValueError, RecursionError):
            raise self._error(
                f"{self.server}.{self.name} declares structured results and sent none (call() shows all of it): "
                + result.summary(500)[:500],
                result,
            ) from None

    def _check(self, value: Any, result: ToolResult) -> None:
        """Warn about a result that violates its schema, or raise if strict."""
        strict = _OPTIONS.get().strict
        if self._warned and not strict:
            return
        problems = self.schema("out").errors(value)
        if not problems:
            return
        what = f"{self.server}.{self.name}: the result does not fit the tool's outputSchema"
        text = f"{what}: {problems[0].path or '(root)'}: {problems[0].text}"
        if strict:
            raise self._error(text, result)
        import warnings

        self._warned = True
        warnings.warn(text, stacklevel=_depth_of_caller(self._module))


def _depth_of_caller(module: dict[str, Any]) -> int:
    """The stacklevel of warnings: frames up to the caller of the generated module."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back and (frame.f_globals is module or frame.f_globals.get("__package__") == __package__):
        depth, frame = depth + 1, frame.f_back
    return depth
