"""Calls that coroutines wait for. A call takes no thread: its result completes a future of the event loop."""

from __future__ import annotations

import asyncio

__all__ = ["call", "function", "request"]

Result = tuple[str, bytes, str]

_ATTRIBUTE = "cellgate_calls"


def _drop(result: Result) -> None:
    """Free what the tool server keeps of a result that nobody gets."""
    if result[2] == "kept":
        from . import _kept

        _kept.drop(result[1])


class _LoopCalls:
    """The calls of one event loop. An attribute of the loop, so that both are collected together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        from _cellgate import Calls

        self.loop = loop
        self.calls = Calls()
        self.fd = self.calls.fileno()
        self.reads = False  # once, for good: an interrupt of remove_reader() could leave half of it in the selector
        self.waiting: dict[int, asyncio.Future[Result]] = {}
        self.last = 0
        self.cancelled: list[int] = []
        self.ended: list[tuple[int, Result]] = []

    def on_results(self) -> None:
        """The descriptor stays readable until results() finds nothing: an interrupt may end this at any place."""
        self.calls.results(self.ended)
        for key, result in self.ended:
            future = self.waiting.get(key)
            if future is not None and not future.done():
                future.set_result(result)
            elif future is None and key in self.cancelled or future is not None and future.cancelled():
                _drop(result)
        self.ended.clear()

    async def call(self, kind: str, *arguments: str | bytes | int) -> Result:
        """kind: a method of Calls that queues a call."""
        future: asyncio.Future[Result] = self.loop.create_future()
        self.last = key = self.last + 1
        self.waiting[key] = future
        try:
            if not self.reads:
                self.loop.add_reader(self.fd, self.on_results)
                self.reads = True
            getattr(self.calls, kind)(*arguments, key)
            return await future
        except BaseException as error:
            if future.done() and not future.cancelled():
                _drop(future.result())
            elif isinstance(error, GeneratorExit):  # the coroutine was closed, perhaps without a loop that runs
                self.calls.cancel([key])
            else:
                # A cancelled gather() cancels its calls one by one, and an interrupt of one call is followed by the
                # cancellation of others. They are collected and cancelled together, so that no waiting call starts
                # in the place of one that is cancelled first.
                if not self.cancelled:
                    self.loop.call_soon(self.loop.call_soon, self.cancel)
                self.cancelled.append(key)
            raise
        finally:
            del self.waiting[key]

    def cancel(self) -> None:
        keys, self.cancelled = self.cancelled, []
        self.calls.cancel(keys)

    def close(self) -> None:
        """Cancel all calls, when the loop is closed."""
        self.calls.close()


async def call(server: str, tool: str, arguments: bytes, timeout_ms: int) -> Result:
    """As _cellgate.tool_call(). Cancelling the task cancels the call."""
    return await _of_loop("run_async() and call_async()").call("start", server, tool, arguments, timeout_ms)


async def function(server: str, tool: str, arguments: bytes, timeout_ms: int) -> Result:
    """As _cellgate.function_call(). Cancelling the task cancels the call."""
    return await _of_loop("run_async() and call_async()").call("function", server, tool, arguments, timeout_ms)


async def request(server: str, method: str, params: bytes, timeout_ms: int) -> Result:
    """As _cellgate.mcp_request(). Cancelling the task cancels the request."""
    return await _of_loop("aread_resource() and aget_prompt()").call("request", server, method, params, timeout_ms)


def _of_loop(functions: str) -> _LoopCalls:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            f"{functions} need asyncio's event loop; with trio, call the function that is no coroutine in a thread: "
            "await trio.to_thread.run_sync(lambda: tool.run(...))"
        ) from None
    calls: _LoopCalls | None = getattr(loop, _ATTRIBUTE, None)
    if calls is None:
        calls = _LoopCalls(loop)
        setattr(loop, _ATTRIBUTE, calls)
    return calls
