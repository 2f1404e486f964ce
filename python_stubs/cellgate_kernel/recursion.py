"""A ceiling for sys.setrecursionlimit().

From Python 3.11 on a recursion without an end takes no stack but memory: with the limits that people write, such as
10**9, all of the machine's, and minutes until its RecursionError. Before, no program came as far as our ceiling.
"""

from __future__ import annotations

import sys

CEILING = 200_000

_set = sys.setrecursionlimit


def _setrecursionlimit(limit: int, /) -> None:
    """Set the maximum depth of the Python interpreter stack to n, at most 200,000 in this kernel."""
    if limit > CEILING:
        print(f"[cellgate] the recursion limit is set to {CEILING:,}, the most that a kernel allows", file=sys.stderr)
        limit = CEILING
    _set(limit)


def install() -> None:
    """Put it in the place of Python's own."""
    _setrecursionlimit.__name__ = _setrecursionlimit.__qualname__ = "setrecursionlimit"
    sys.setrecursionlimit = _setrecursionlimit
