"""Runs the code of cells, in one asyncio loop for the life of a kernel.

The loop does not run while a cell without `await` runs, but is marked as the running one, so that
create_task() and get_running_loop() work; asyncio.run() and run_until_complete() remove the mark.
Cells with top-level `await` run as tasks. Between cells the loop runs until the next request, so
background tasks continue. All cells share one context. There is no loop before asyncio is imported.
"""

from __future__ import annotations

import contextvars
import importlib
import threading
from collections.abc import Callable, Coroutine
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import _cellgate

if TYPE_CHECKING:
    import asyncio

    from cellgate_kernel.loop import KernelLoop

T = TypeVar("T")

# After this number of interrupts a coroutine that ignores its cancellation is abandoned.
_CANCEL_ATTEMPTS = 3

# Besides asyncio: modules with code of the loop, and callbacks that complete what tasks wait for.
_LOOP_MODULES = frozenset(
    ("cellgate_kernel.jsontext", "cellgate_kernel.loop", "cellgate_tools._async")
    + ("contextlib", "heapq", "hmac", "json", "json.decoder", "selectors")
)
# Modules of languages, which call no code of cells, whatever they call.
_LANGUAGES = ("cellgate_kernel.lang_", "cellgate_kernel.languages")


class _Thread(threading.local):
    runner: CellRunner | None = None  # of the cell without `await` that this thread runs


_thread = _Thread()
# Functions of loop.py, once asyncio is imported: make a loop, mark one as running.
_make_loop: Callable[[], KernelLoop] | None = None
_mark: Callable[[KernelLoop | None], None] = lambda _loop: None  # noqa: E731


def asyncio_imported(make_loop: Callable[[], KernelLoop], mark: Callable[[Any], None]) -> None:
    """Use these functions, also for the cell that imports asyncio."""
    global _make_loop, _mark
    _make_loop, _mark = make_loop, mark
    if _thread.runner is not None:
        _mark(_thread.runner.loop)


def _is_loops_own(frame: FrameType | None, runs: CodeType) -> bool:
    """True if no code of a cell runs: an exception would lose a callback of the loop, and leave tasks waiting."""
    own = True
    while frame is not None and frame.f_code is not runs:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(_LANGUAGES):
            own = True
        elif name not in _LOOP_MODULES and not name.startswith("asyncio."):
            own = False
        frame = frame.f_back
    return own and frame is not None


class CellRunner:
    """Runs the code of cells in the kernel's loop and context."""

    def __init__(self) -> None:
        self.made_loop = _make_loop() if _make_loop is not None else None
        self.context = contextvars.copy_context()
        self.interrupted = False
        self.waits = False  # a cell runs in the loop, so nested runs are allowed
        self._inside = False

    @property
    def loop(self) -> KernelLoop:
        """The loop, which is made here if asyncio was imported later. Only in the runner's thread."""
        if self.made_loop is None:
            importlib.import_module("asyncio")
            assert _make_loop is not None
            self.made_loop = _make_loop()
        return self.made_loop

    def current_loop(self) -> KernelLoop | None:
        """The loop, or None before asyncio is imported."""
        return None if _make_loop is None else self.loop

    def run_sync(self, func: Callable[[], T]) -> T:
        """Run code without `await`."""
        if self._inside:  # a cell that runs a cell
            return func()
        self._inside = True
        _thread.runner = self
        _mark(self.current_loop())
        try:
            return self.context.run(func)
        finally:
            _mark(None)
            _thread.runner = None
            self._inside = False

    def run_async(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run code with `await` until it ends; an interrupt cancels it."""
        nested = self._inside
        context = contextvars.copy_context() if nested else self.context
        self._inside = True
        try:
            task: asyncio.Task[T] = self.loop.create_task(coro, context=context)
            return self._run_task(task)
        except KeyboardInterrupt:
            self.loop.cancel_new_tasks()  # one that the loop has not run would begin in the next cell
            raise
        finally:
            self._inside = nested

    def _run_task(self, task: asyncio.Task[T]) -> T:
        self.interrupted = False
        attempts = 0
        loop = self.loop

        def cancel() -> bool:
            """Cancel the task. False if it has ended, or ignores this."""
            nonlocal attempts
            attempts += 1
            if task.done() or attempts > _CANCEL_ATTEMPTS:
                return False
            self.interrupted = True
            loop.call_first(task.cancel)
            return True

        def interrupt_in_loop(_signum: int, frame: FrameType | None) -> bool:
            loop.cancel_new_tasks()
            return _is_loops_own(frame, CellRunner._run_task.__code__) and cancel()

        outer = _cellgate.interrupt_in_loop
        signals = threading.current_thread() is threading.main_thread()  # others are interrupted without a signal
        while True:
            try:
                self.waits = True
                if signals:
                    _cellgate.interrupt_in_loop = interrupt_in_loop
                return loop.run_until_complete(task)
            except KeyboardInterrupt:
                # Raised in code of a callback while the task was waiting.
                loop.cancel_new_tasks()
                if not cancel():
                    raise
            finally:
                if signals:
                    _cellgate.interrupt_in_loop = outer
                self.waits = False

    def renew(self) -> bool:
        """Make a new loop if a cell has closed this one; False if that is impossible."""
        if _make_loop is None:
            return False
        try:
            self.made_loop = _make_loop()
        except Exception:
            return False
        return True

    def close(self) -> None:
        """Cancel all tasks: the thread ends."""
        if self.made_loop is None:
            return
        import asyncio

        try:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()
        except BaseException:  # a task that ignores its cancellation, or a closed loop
            pass
        asyncio.set_event_loop(None)

    def run_idle(self, wake_fd: int) -> None:
        """Run background tasks until `wake_fd` is readable or there are none."""
        self.loop.add_reader(wake_fd, self.loop.stop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.remove_reader(wake_fd)
