"""Exceptions of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._result import ToolResult

__all__ = ["ParamsError", "ProtocolError", "RejectedError", "ToolError", "UnavailableError"]

_SHOWN = 8


class ParamsError(ValueError):
    """The arguments do not fit the tool's inputSchema; nothing was sent.

    .errors is the list of (place as JSON pointer, what is wrong), all of them.
    """

    def __init__(self, what: str, errors: Sequence[tuple[str, str]]) -> None:
        self.what = what
        self.errors = list(errors)
        text = "; ".join(f"{place or '(root)'}: {problem}" for place, problem in self.errors[:_SHOWN])
        more = f" (and {len(self.errors) - _SHOWN} more)" if len(self.errors) > _SHOWN else ""
        super().__init__(f"{what}: {text}{more}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.errors)


class ToolError(RuntimeError):
    """The tool reported an error. str() is its text; .result is the whole ToolResult, None when there is none.

    Also the base of the other ways in which a call fails: RejectedError, ProtocolError, UnavailableError.
    """

    def __init__(self, text: str, result: ToolResult | None = None) -> None:
        super().__init__(text)
        self.result = result


class RejectedError(ToolError):
    """The call was not approved and did not reach the server. .server, .tool and .reason ("" when none was given)."""

    def __init__(self, server: str, tool: str, reason: str = "") -> None:
        why = reason or "the host refused it and gave no reason"
        super().__init__(f"{server}.{tool} was not run: {why}")
        self.server = server
        self.tool = tool
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.server, self.tool, self.reason)


class ProtocolError(ToolError):
    """The server answered with a JSON-RPC error. .code, .message and .data (None when there is none)."""

    def __init__(self, what: str, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{what}: {message} (JSON-RPC error {code})")
        self.what = what
        self.code = code
        self.message = message
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.code, self.message, self.data)


class UnavailableError(ToolError):
    """The call could not be carried out: the server did not start, ended or timed out, or there is no host."""
