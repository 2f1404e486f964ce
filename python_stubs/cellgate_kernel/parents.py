"""ipykernel's set_parent() and related functions: they set the cell that output belongs to.

A context variable contains the cell of a task; threads do not inherit it. Output of code without it
belongs to the running or last cell, as with ipykernel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Token
from typing import Any

import _cellgate


def _none(_parent: dict[str, Any]) -> int:
    return 0


# Returns the cell that a message started; set by the kernel.
cell_of: Callable[[dict[str, Any]], int] = _none


def set_parent(parent: dict[str, Any]) -> None:
    """Assign output of this thread, and until the next request of others without one, to `parent`.

    `parent` is a request message or its header, as get_parent() returns it; unknown ones have no cell.
    """
    cell = cell_of(parent)
    _cellgate.cell.set(cell)
    _cellgate.set_running(cell)


def set_thread_parent(parent: dict[str, Any]) -> Token[int]:
    """Assign output of this thread to `parent`; returns the token for reset_thread_parent()."""
    return _cellgate.cell.set(cell_of(parent))


def reset_thread_parent(token: Token[int]) -> None:
    """Undo the call of set_thread_parent() that returned the token."""
    _cellgate.cell.reset(token)
