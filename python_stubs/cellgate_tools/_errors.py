"""Exceptions of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._result import ToolResult

__all__ = [
    "ApprovalTimeoutError",
    "ParamsError",
    "ProtocolError",
    "RejectedError",
    "ToolError",
    "ToolRunnerError",
    "UnavailableError",
]

_SHOWN = 8


class ToolRunnerError(RuntimeError):
    """Base of all errors of calls.

    .server, .tool   the call's names; "" where the error does not come from a call; .tool is also "" where
                     it is about a resource or a prompt
    .message         what happened
    .result          the whole ToolResult, None when there is none
    .kind            how the call failed:

        tool              the tool reported an error, or its result cannot be used
        params            the arguments do not fit the tool's schema; nothing was sent
        rejected          the host did not approve the call
        approval_timeout  nobody decided in time
        timeout           the tool did not answer in time
        cancelled         the call was cancelled
        died              the server ended during the call; whether the tool ran is not known
        too_large         the result is over a limit, or larger than the memory that is left
        protocol          the server answered with an error of the protocol, or against its rules
        unavailable       the server or the tool is not there, did not start, or could not be asked
    """

    def __init__(
        self, text: str, result: ToolResult | None = None, *, server: str = "", tool: str = "", kind: str = "tool"
    ) -> None:
        super().__init__(text)
        self.message = text
        self.result = result
        self.server = server
        self.tool = tool
        self.kind = kind


class ParamsError(ToolRunnerError, ValueError):
    """The arguments do not fit the tool's inputSchema; nothing was sent.

    .errors is the list of (place as JSON pointer, what is wrong), all of them.
    """

    def __init__(self, what: str, errors: Sequence[tuple[str, str]]) -> None:
        self.what = what
        self.errors = list(errors)
        text = "; ".join(f"{place or '(root)'}: {problem}" for place, problem in self.errors[:_SHOWN])
        more = f" (and {len(self.errors) - _SHOWN} more)" if len(self.errors) > _SHOWN else ""
        super().__init__(f"{what}: {text}{more}", kind="params")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.errors), self.__dict__


class ToolError(ToolRunnerError):
    """The tool reported an error. str() is its text; .result is the whole ToolResult.

    Also the base of the other ways in which a call fails: RejectedError, ProtocolError, UnavailableError.
    """


class RejectedError(ToolError):
    """The call was not approved and did not reach the server. .server, .tool and .reason ("" when none was given)."""

    def __init__(self, server: str, tool: str, reason: str = "", kind: str = "rejected", what: str = "") -> None:
        self.what = what or f"{server}.{tool}"
        why = reason or "the host refused it and gave no reason"
        super().__init__(f"{self.what} was not run: {why}", server=server, tool=tool, kind=kind)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.server, self.tool, self.reason, self.kind, self.what)


class ApprovalTimeoutError(RejectedError):
    """Nobody decided about the call in time. It did not reach the server."""


class ProtocolError(ToolError):
    """The server answered with a JSON-RPC error. .code, .message and .data (None when there is none)."""

    def __init__(self, what: str, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{what}: {message} (JSON-RPC error {code})", kind="protocol")
        self.what = what
        self.code = code
        self.message = message
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.code, self.message, self.data), self.__dict__


class UnavailableError(ToolError):
    """The call could not be carried out: the server did not start, ended or timed out, or there is no host."""
