"""Memory reserved for the cell after a MemoryError.

With a memory limit, the memory is still in use when the cell has failed, and without a reserve the
cell that frees it could not be compiled. Untouched pages use no memory but count for the limit.
"""

from __future__ import annotations

import mmap

_SIZE = 8 << 20

_held: mmap.mmap | None = None


def hold() -> None:
    """Reserve memory if there is enough."""
    global _held
    if _held is None:
        try:
            _held = mmap.mmap(-1, _SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, MemoryError):
            _held = None


def release() -> None:
    """Release the reserve."""
    global _held
    if _held is not None:
        _held.close()
        _held = None
