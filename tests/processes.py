"""Looking at processes of this machine, and waiting for what they do."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path


def eventually(check: Callable[[], bool], seconds: float = 20) -> None:
    """Looks until it is so; the time is only where the test gives up, with a sanitizer later."""
    deadline = time.monotonic() + seconds * (5 if os.environ.get("CG_SANITIZED") else 1)
    while not check():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def gate(folder: Path, name: str = "go") -> Callable[[], None]:
    """Makes a FIFO at which a cell waits by `open(NAME).read()`. The result lets the cell continue."""
    os.mkfifo(folder / name)

    def release() -> None:
        (folder / name).write_bytes(b"")

    return release


def children(pid: int) -> list[int]:
    """Children of all threads; none if the process has ended."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended, and others have its children
            found += map(int, thread.read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    return [p for child in children(pid) for p in (child, *descendants(child))]


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent...; none if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid: int) -> bool:
    """True if the process runs; false for a zombie."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def parent(pid: int) -> int:
    """0 where the process has gone."""
    return int((_stat(pid) or "00")[1])


def zombie(pid: int) -> bool:
    """True if the process has ended and its parent has not waited for it."""
    return _stat(pid)[:1] == ["Z"]


def name_of(pid: int) -> str:
    """The name of the process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def words(pid: int) -> list[bytes]:
    """Its arguments; none where it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def by_age(pids: list[int]) -> list[int]:
    """Those that there are, the oldest first; by their start, for numbers begin again after the largest."""
    started = {p: int(stat[19]) for p in pids if (stat := _stat(p))}
    return sorted(started, key=lambda p: (started[p], p))


def named(pids: list[int], wanted: str) -> int:
    """The newest of these processes with this name."""
    return [p for p in by_age(pids) if name_of(p) == wanted][-1]
