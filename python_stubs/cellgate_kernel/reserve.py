"""Memory set aside for the cell after a MemoryError.

With a memory limit, what has used it up is still there when its cell has failed; without any left, the cell that would
free it could not even be compiled. Pages that nobody touches cost nothing, but count for the limit.
"""

from __future__ import annotations

import mmap

_SIZE = 8 << 20

_held: mmap.mmap | None = None


def hold() -> None:
    """Set it aside, where there is enough."""
    global _held
    if _held is None:
        try:
            _held = mmap.mmap(-1, _SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, MemoryError):
            _held = None


def release() -> None:
    """Make it usable."""
    global _held
    if _held is not None:
        _held.close()
        _held = None
