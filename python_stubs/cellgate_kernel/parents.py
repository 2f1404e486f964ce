"""Whose output it is, by the message that a library gives: ipykernel's set_parent() and its relatives.

A context variable says which cell a task belongs to; threads do not inherit it. Output of code without it belongs to
the cell that runs, or else ran last, as ipykernel has it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Token
from typing import Any

import _cellgate


def _none(_parent: dict[str, Any]) -> int:
    return 0


# Finds the cell that a message started; set by the kernel.
cell_of: Callable[[dict[str, Any]], int] = _none


def set_parent(parent: dict[str, Any]) -> None:
    """Output of this thread, and until the next request of all threads that have no parent, belongs to `parent`.

    That is a request's message or its header, as get_parent() returns it; one that is not known has no cell.
    """
    cell = cell_of(parent)
    _cellgate.cell.set(cell)
    _cellgate.set_running(cell)


def set_thread_parent(parent: dict[str, Any]) -> Token[int]:
    """Output of this thread belongs to `parent`; returns the token for reset_thread_parent()."""
    return _cellgate.cell.set(cell_of(parent))


def reset_thread_parent(token: Token[int]) -> None:
    """Undo the call of set_thread_parent() that returned the token."""
    _cellgate.cell.reset(token)
