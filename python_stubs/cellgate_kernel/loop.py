"""asyncio's loop of a kernel, and what a loop that is only marked as running needs; see runner.py.

Imported right after asyncio, by late.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from asyncio import events, runners
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cellgate_kernel import runner


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

    def create_task(self, coro: Any, **options: Any) -> Any:
        """As _patch_waits(), for asyncio.create_task() and groups of tasks, too."""
        return super().create_task(_task_of(coro), **options)

    def call_first(self, callback: Callable[[], object]) -> None:
        """Call it before all callbacks that are queued. For the loop's thread and its signal handlers."""
        self._ready.appendleft(events.Handle(callback, (), self))  # type: ignore[attr-defined]
        self._write_to_self()  # type: ignore[attr-defined]

    def cancel_new_tasks(self) -> None:
        """Cancel all tasks that have not begun. For the loop's thread and its signal handlers.

        Where an interrupt has ended gather() or create_task() of a group early, no code waits for them.
        """
        for handle in list(self._ready):  # type: ignore[attr-defined]
            task = getattr(handle._callback, "__self__", None)
            if not isinstance(task, asyncio.Task):
                continue
            coro = task.get_coro()
            if inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
                task.cancel()

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
            return original(self, _task_of(coro), context=context)

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


async def _done(value: Any) -> object:
    return await value if inspect.isawaitable(value) else value


def _is_value(value: object) -> bool:
    """True for results of tools, which are JSON; not for a list of coroutines, whose star is missing."""
    if isinstance(value, list):
        return not any(inspect.isawaitable(item) for item in value[:1])
    return value is None or isinstance(value, (str, dict, int, float))


def _task_of(value: Any) -> Any:
    return _done(value) if _is_value(value) else value


def _patch_waits() -> None:
    """For programs with tool.run() in place of arun(): the calls were made, so their results are what is waited for."""
    gather_of, completed_of = asyncio.gather, asyncio.as_completed

    @functools.wraps(gather_of)
    def gather(*args: Any, **options: Any) -> Any:
        return gather_of(*map(_task_of, args), **options)

    @functools.wraps(completed_of)
    def as_completed(fs: Any, **options: Any) -> Any:
        return completed_of([*map(_task_of, fs)], **options)

    def patch_first(name: str) -> None:
        original = getattr(asyncio, name)
        first = next(iter(inspect.signature(original).parameters))

        @functools.wraps(original)
        def wait(*args: Any, **options: Any) -> Any:
            if first in options:
                args = (options.pop(first), *args)
            return original(*map(_task_of, args[:1]), *args[1:], **options)

        setattr(asyncio, name, wait)
        setattr(asyncio.tasks, name, wait)

    asyncio.gather = asyncio.tasks.gather = gather
    asyncio.as_completed = asyncio.tasks.as_completed = as_completed
    for name in ("wait_for", "ensure_future", "shield"):
        patch_first(name)


def _make() -> KernelLoop:
    loop = KernelLoop()
    asyncio.set_event_loop(loop)
    return loop


def install() -> None:
    """Patch asyncio, once. In the zygote this makes no loop: forked processes must not share one."""
    asyncio.set_event_loop_policy(KernelLoopPolicy())
    _patch_runners()
    _patch_waits()
    runner.asyncio_imported(_make, events._set_running_loop)
