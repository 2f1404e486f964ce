"""Looking at processes of this machine, and waiting for what they do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def eventually(check: Callable[[], bool], seconds: float = 20) -> None:
    """Looks until it is so; the time is only where the test gives up."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """Of all threads; none where the process has gone."""
    try:
        return [
            int(p)
            for t in os.listdir(f"/proc/{pid}/task")
            for p in Path(f"/proc/{pid}/task/{t}/children").read_text().split()
        ]
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
