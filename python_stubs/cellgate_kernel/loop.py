"""One asyncio loop for the life of a kernel.

The loop does not run while a cell without `await` runs, but is marked as the running one, so that
create_task() and get_running_loop() work; asyncio.run() and run_until_complete() remove the mark.
Cells with top-level `await` run as tasks. Between cells the loop runs until the next request, so
background tasks continue. All cells share one context.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events, runners
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

# After this number of interrupts a coroutine that ignores its cancellation is abandoned.
_CANCEL_ATTEMPTS = 3


def _only_marked() -> asyncio.AbstractEventLoop | None:
    """The loop that is marked as running but does not run, or None."""
    loop = events._get_running_loop()
    return None if loop is None or loop.is_running() else loop


@contextmanager
def _mark_lifted() -> Iterator[None]:
    marked = _only_marked()
    if marked is None:
        yield
        return
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(marked)


class KernelLoop(asyncio.SelectorEventLoop):
    """A loop that can be run while another one is only marked as running."""

    cellgate_calls: Any = None  # set by cellgate_tools: the tool calls that coroutines wait for

    def close(self) -> None:
        super().close()
        calls, self.cellgate_calls = self.cellgate_calls, None
        if calls is not None:
            calls.close()

    def run_forever(self) -> None:
        with _mark_lifted():
            super().run_forever()

    def _check_running(self) -> None:
        with _mark_lifted():
            super()._check_running()  # type: ignore[misc]

    def poll_fd(self) -> int:
        """A descriptor that is readable when one of the loop's descriptors is."""
        return int(self._selector.fileno())  # type: ignore[attr-defined]

    def has_work(self) -> bool:
        """True if callbacks are queued: polling poll_fd() is not enough, the loop has to run."""
        return bool(self._ready or self._scheduled)  # type: ignore[attr-defined]


class KernelLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes new_event_loop() return loops of this class."""

    _loop_factory = KernelLoop


def _patch_runners() -> None:
    original, original_close = runners.Runner.run, runners.Runner.close

    def run(self: Any, coro: Any, *, context: contextvars.Context | None = None) -> Any:
        with _mark_lifted():
            return original(self, coro, context=context)

    def close(self: Any) -> None:
        with _mark_lifted():  # gather() of Python 3.14 assumes that its futures have the running loop
            original_close(self)

    def asyncio_run(main: Any, **options: Any) -> Any:
        if events._get_running_loop() is not _only_marked():
            raise RuntimeError("asyncio.run() cannot be called from a running event loop: use await")
        marked = _only_marked()
        try:
            with runners.Runner(**options) as runner:
                return runner.run(main)
        finally:
            if marked is not None:  # after Runner.close()
                asyncio.set_event_loop(marked)

    runners.Runner.run, runners.Runner.close = run, close  # type: ignore[method-assign]
    runners.run = asyncio.run = asyncio_run


def prepare() -> None:
    """Patch asyncio, once, in the zygote. Makes no loop: forked processes must not share one."""
    asyncio.set_event_loop_policy(KernelLoopPolicy())
    _patch_runners()


class CellRunner:
    """Runs the code of cells in the kernel's loop and context."""

    def __init__(self) -> None:
        self.loop = KernelLoop()
        asyncio.set_event_loop(self.loop)
        self.context = contextvars.copy_context()
        self.interrupted = False
        self.waits = False  # a cell runs in the loop, so nested runs are allowed
        self._inside = False

    def run_sync(self, func: Callable[[], T]) -> T:
        """Run code without `await`."""
        if self._inside:  # a cell that runs a cell
            return func()
        self._inside = True
        events._set_running_loop(self.loop)
        try:
            return self.context.run(func)
        finally:
            events._set_running_loop(None)
            self._inside = False

    def run_async(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run code with `await` until it ends; an interrupt cancels it."""
        nested = self._inside
        context = contextvars.copy_context() if nested else self.context
        self._inside = True
        try:
            return self._run_task(self.loop.create_task(coro, context=context))
        finally:
            self._inside = nested

    def _run_task(self, task: asyncio.Task[T]) -> T:
        self.interrupted = False
        attempts = 0
        while True:
            try:
                self.waits = True
                return self.loop.run_until_complete(task)
            except KeyboardInterrupt:
                # Raised in the loop's code while the task was waiting: cancel the task.
                attempts += 1
                if task.done() or attempts > _CANCEL_ATTEMPTS:
                    raise
                self.interrupted = True
                task.cancel()
            finally:
                self.waits = False

    def renew(self) -> bool:
        """Make a new loop if a cell has closed this one; False if that is impossible."""
        try:
            self.loop = KernelLoop()
            asyncio.set_event_loop(self.loop)
        except Exception:
            return False
        return True

    def close(self) -> None:
        """Cancel all tasks: the thread ends."""
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
