"""Output belongs to the cell that started the code that makes it.

A context variable says which: asyncio tasks and callbacks keep it by themselves; threads and the work items of thread
pools take it from the code that starts or submits them.
"""

from __future__ import annotations

import concurrent.futures.thread
import contextvars
import sys
import threading
from typing import Any

import _cellgate


def _patch_threads() -> None:
    start, bootstrap = threading.Thread.start, threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def start_in_cell(self: Any) -> None:
        cell = _cellgate.current_cell()
        if cell:
            if not hasattr(self, "_context"):
                self._cellgate_cell = cell
            elif self._context is None and not getattr(sys.flags, "thread_inherit_context", False):
                self._context = contextvars.Context()  # since Python 3.14 a thread runs in one
                self._context.run(_cellgate.cell.set, cell)
        start(self)

    def bootstrap_in_cell(self: Any) -> None:
        cell = self.__dict__.get("_cellgate_cell")
        if cell is not None:
            _cellgate.cell.set(cell)
        bootstrap(self)

    start_in_cell.__name__ = start_in_cell.__qualname__ = "start"
    threading.Thread.start = start_in_cell  # type: ignore[method-assign]
    threading.Thread._bootstrap_inner = bootstrap_in_cell  # type: ignore[attr-defined]


def _patch_pools() -> None:
    item = concurrent.futures.thread._WorkItem
    make, run = item.__init__, item.run

    def make_in_cell(self: Any, *args: Any) -> None:
        make(self, *args)
        self.cellgate_cell = _cellgate.current_cell()

    def run_in_cell(self: Any, *args: Any) -> None:
        if not self.cellgate_cell:
            run(self, *args)
            return
        token = _cellgate.cell.set(self.cellgate_cell)
        try:
            run(self, *args)
        finally:
            _cellgate.cell.reset(token)

    item.__init__ = make_in_cell  # type: ignore[assignment, method-assign]
    item.run = run_in_cell  # type: ignore[method-assign]


def install() -> None:
    """Make threads and pools pass the cell on. Once, in the zygote."""
    _patch_threads()
    _patch_pools()
