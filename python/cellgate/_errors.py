"""Exceptions of this package."""

from __future__ import annotations

import json
from typing import Any

from cellgate._cellgate import ffi, lib


class CellgateError(Exception):
    """Something failed; the message says what, and what to do.

    `code` is one of libcellgate's CG_E_* numbers, and `errno` that of a failed system call, else 0.
    """

    code = 0

    def __init__(self, message: str, code: int | None = None, errno: int = 0) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.errno = errno


class InvalidArgumentError(CellgateError, ValueError):
    """An argument is wrong."""


class LimitExceededError(CellgateError):
    """A size, count or depth is over its limit."""


class NotFoundError(CellgateError, LookupError):
    """There is no such thing, or it has ended."""


class AlreadyExistsError(CellgateError):
    """It exists already."""


class ClosedError(CellgateError):
    """The session, or the supervisor behind it, has ended."""


class UnsupportedError(CellgateError):
    """This machine cannot do it."""


class BusyError(CellgateError):
    """The node is full, or is being drained: try another one, or later."""


class TimedOutError(CellgateError, TimeoutError):  # type: ignore[misc]
    """It did not happen in time."""


class ForkedError(CellgateError, RuntimeError):
    """The object belongs to the process that this one was forked from."""


class CellError(CellgateError):
    """A cell did not end well: see `execution`. Raised by Execution.check() only."""

    def __init__(self, message: str, execution: object) -> None:
        super().__init__(message)
        self.execution = execution


class VariableError(CellgateError):
    """A variable of a kernel could not be set or read: its `name`, its `type`, and where in its value."""

    def __init__(self, message: str, name: str = "", type: str = "", path: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.type = type
        self.path = path


_CLASSES: dict[int, type[CellgateError]] = {
    lib.CG_E_INVAL: InvalidArgumentError,
    lib.CG_E_PARSE: InvalidArgumentError,
    lib.CG_E_LIMIT: LimitExceededError,
    lib.CG_E_NOTFOUND: NotFoundError,
    lib.CG_E_EXISTS: AlreadyExistsError,
    lib.CG_E_CLOSED: ClosedError,
    lib.CG_E_UNSUPPORTED: UnsupportedError,
    lib.CG_E_TIMEDOUT: TimedOutError,
    lib.CG_E_BUSY: BusyError,
}


def error(code: int, message: str, errno: int = 0) -> CellgateError:
    """The exception for a result of libcellgate."""
    return _CLASSES.get(code, CellgateError)(message, code, errno)


def check(result: int, err: ffi.CData) -> int:
    """The result of a call that has written to @err where it failed."""
    if result < 0:
        raise error(result, ffi.string(err.msg).decode(errors="replace"), err.sys_errno)
    return result


def parse(text: str | bytes) -> Any:
    """JSON that comes from a kernel or another machine. CellgateError: Python cannot read it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:  # also for a number of too many digits
        raise CellgateError(f"JSON that cannot be read: {e}", lib.CG_E_PROTO) from None
