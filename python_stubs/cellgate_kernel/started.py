"""Programs that this process's Python starts: counts them, for the costs of cells.

Output is sent before, so that it reaches the host before a question about the program.

Programs that other code starts, such as C libraries and forked children, are not counted.
"""

from __future__ import annotations

import _posixsubprocess
import functools
import os
import posix
import subprocess
from collections.abc import Callable
from typing import Any

import _cellgate

# Modules and names of the functions that start programs, with the copies that other modules have.
_FUNCTIONS = (
    (_posixsubprocess, "fork_exec"),
    (subprocess, "_fork_exec"),  # since Python 3.12 a member of another name
    (posix, "posix_spawn"),
    (os, "posix_spawn"),
    (posix, "posix_spawnp"),
    (os, "posix_spawnp"),
    (posix, "system"),
    (os, "system"),
)

_count = 0


def count() -> int:
    """How many programs were started, or could not be started, since the process began."""
    return _count


def _counting(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def start(*args: Any, **options: Any) -> Any:
        global _count
        _count += 1
        _cellgate.flush()
        return func(*args, **options)

    return start


def install() -> None:
    """Replace the functions; each has one replacement, so that it can be pickled."""
    made: dict[Any, Callable[..., Any]] = {}
    for module, name in _FUNCTIONS:
        func = getattr(module, name, None)
        if func is not None:
            setattr(module, name, made.setdefault(func, _counting(func)))
