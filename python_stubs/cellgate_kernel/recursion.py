"""A ceiling for sys.setrecursionlimit().

From Python 3.11 on recursion uses memory instead of stack: with common limits such as 10**9, infinite
recursion would use all memory and take minutes. Older versions cannot reach this ceiling.
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
    """Replace Python's function."""
    _setrecursionlimit.__name__ = _setrecursionlimit.__qualname__ = "setrecursionlimit"
    sys.setrecursionlimit = _setrecursionlimit
