"""The asyncio front: the same as `cellgate.Session`, with nothing that blocks the loop and no thread for a session.

async with cellgate.aio.Session("/path/to/workspace") as session:
    print((await session.run("1 + 1")).value)
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from cellgate import _session as blocking
from cellgate._cellgate import ffi, lib
from cellgate._core import (
    Client,
    Consumer,
    Core,
    PathLike,
    answering,
    environment_name,
    milliseconds,
    new_events,
    open_core,
)
from cellgate._errors import CellgateError, ClosedError
from cellgate._events import (
    Collected,
    Decidable,
    Event,
    Execution,
    FunctionCall,
    InputRequest,
    Reply,
    Result,
    refuse,
    share,
)
from cellgate._functions import is_coroutine_function
from cellgate._session import Completed, apply_decision

Approve: TypeAlias = Callable[[Decidable], bool | None | Awaitable[bool | None]]
"""Decides about a question, as `cellgate.Approve`; a coroutine function may take any time, in a task of its own."""


class Session:
    """A Python kernel in a sandbox: see `cellgate.Session`. Opened by `async with` or `await`.

    Belongs to the event loop in which it was opened. Cancelling a task that waits for a cell cancels
    the cell.
    """

    def __init__(
        self,
        workspace: PathLike | None = None,
        *,
        client: Client | None = None,
        python: PathLike | None = None,
        private: bool = False,
        mcp_servers: Mapping[str, Any] | str | None = None,
        on_event: Callable[[Event], None] | None = None,
        attach: str | None = None,
        **session_options: Any,
    ) -> None:
        """As `cellgate.Session`; nothing happens before it is opened."""
        members = {"workspace": workspace, **session_options}
        self._open = partial(open_core, client, python, private, on_event, attach, members)
        self._servers = mcp_servers
        self._core_: Core | None = None
        self._waiting: set[_Reader] = set()
        """The loop keeps these, and so their session and their tasks."""
        self.files = Files(self)

    def __await__(self) -> Generator[Any, None, Session]:
        return self._opened().__await__()

    async def _opened(self) -> Session:
        if self._core_ is not None:
            raise CellgateError("the session is open already", lib.CG_E_STATE)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        opening = self._loop.run_in_executor(None, self._open)
        try:
            self._core_ = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        self._fd = self._core_.run(lib.cg_session_fd)
        self._read = False
        self._resume()
        if self._servers:
            try:
                await self.add_mcp_servers(self._servers)
            except BaseException:
                await self.close()
                raise
        return self

    async def __aenter__(self) -> Session:
        return await self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def _core(self) -> Core:
        if self._core_ is None:
            raise CellgateError("the session was not opened: use `async with` or `await`", lib.CG_E_STATE)
        return self._core_

    async def close(self) -> None:
        """Ends the session with its kernel, servers and open questions."""
        core = self._core
        self._pause()
        core.end("the session is closed")
        # It may wait for a thread that adds servers or copies a file.
        await asyncio.shield(self._loop.run_in_executor(None, core.close))

    @property
    def id(self) -> str:
        return self._core.own_text("cg_session_id")

    @property
    def info(self) -> dict[str, Any]:
        """What protects this session: see cg_session_info()."""
        info: dict[str, Any] = json.loads(self._core.own_text("cg_session_info"))
        return info

    # ------------------------------------------------------------ events

    def _resume(self) -> None:
        if not self._read and self._core.closed is None:
            self._read = True
            self._loop.add_reader(self._fd, _pump, weakref.ref(self), self._waiting)

    def _pause(self) -> None:
        if self._read:
            self._read = False
            self._loop.remove_reader(self._fd)

    def _pump(self) -> None:
        core = self._core
        try:
            if core.read(0):
                core.dispatch()
        except CellgateError as e:
            core.end(str(e))
        except BaseException:  # of on_event
            self._loop.call_soon(self._pump)
            raise
        if core.closed is not None:
            self._pause()
        elif core.full():
            self._pause()
            for consumer in core.consumers.values():
                consumer.wake()  # one may wait in vain

    def _begin(self, queue: str | None, name: str, *args: Any) -> _Reader:
        self._core.check_process()
        if asyncio.get_running_loop() is not self._loop:
            raise CellgateError("the session belongs to the event loop in which it was opened", lib.CG_E_STATE)
        reader = _Reader(self)
        reader.consumer = Consumer(reader.wake, id(asyncio.current_task()), queue)
        self._core.check_queue(queue, reader.consumer.reader)
        self._core.begin(reader.consumer, name, *args)
        return reader

    def _closed(self) -> ClosedError:
        return ClosedError(self._core.closed or "the session has ended", lib.CG_E_CLOSED)

    def __del__(self) -> None:
        if self._core_ is None or not self._read or self._loop.is_closed() or not self._core_.own_process():
            return
        if threading.get_ident() == self._thread:
            self._pause()
        else:  # the descriptor stays open until the loop does not use it any more
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_forget, self._loop, self._fd, self._core_)

    async def _blocking(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return await self._loop.run_in_executor(None, partial(function, *args, **more))

    # ------------------------------------------------------------ cells

    def stream(
        self,
        code: str,
        *,
        timeout: float | None = None,
        silent: bool = False,
        stdin: bool = False,
        history: bool = True,
        variables: bool = False,
        artifacts: bool = False,
        extra: Mapping[str, Any] | None = None,
        subshell: str | None = None,
    ) -> Cell:
        """Runs a cell; `async for` over the result for its events: see `cellgate.Session.stream()`."""
        arguments = blocking.execute_arguments(
            code, timeout, silent, stdin, history, variables, artifacts, extra, subshell
        )
        return Cell(self._begin(subshell or "", "cg_session_execute", *arguments))

    async def run(
        self,
        code: str,
        *,
        approve: Approve | None = None,
        input: Callable[[InputRequest], str | None | Awaitable[str | None]] | None = None,
        on_event: Callable[[Event], None] | None = None,
        timeout: float | None = None,
        output_limit: int = blocking.OUTPUT_MAX,
        **more: Any,
    ) -> Execution:
        """Runs a cell to its end: see `cellgate.Session.run()`. Coroutines of `approve` run at the same time."""
        shown = Collected(output_limit)
        result: Result | None = None
        questions: set[asyncio.Task[None]] = set()
        failed: list[BaseException] = []
        in_task = approve is not None and is_coroutine_function(approve)

        async with self.stream(code, timeout=timeout, stdin=input is not None, **more) as cell:

            def ask(work: Awaitable[None]) -> None:
                task = asyncio.ensure_future(work)
                questions.add(task)
                task.add_done_callback(done)

            def done(task: asyncio.Task[None]) -> None:
                questions.discard(task)
                if not task.cancelled() and (problem := task.exception()):
                    failed.append(problem)
                    cell.cancel()

            try:
                async for event in cell:
                    if on_event:
                        on_event(event)
                    if isinstance(event, Decidable) and approve:
                        with answering(cell._reader.consumer):
                            # A task of its own costs a turn of the loop, in which the call waits.
                            if in_task:
                                ask(_decide(event, approve))
                            elif later := _decide_now(event, approve):
                                ask(later)
                    elif isinstance(event, InputRequest) and input:
                        with answering(cell._reader.consumer):
                            ask(_answer(event, input))
                    elif isinstance(event, FunctionCall):
                        with answering(cell._reader.consumer):
                            ask(carry_out(event))
                    elif isinstance(event, Result) and event.cell == cell.number:
                        result = event
                    elif isinstance(event, Decidable) and event._core.others_decide:
                        share(event)
                    else:
                        refuse(event, "this program accepts no calls (run() was given no `approve`)")
                        shown.add(event)
                    if failed:
                        break
            finally:
                for task in questions:
                    task.cancel()
        if failed:
            raise failed[0]
        if result is None:
            raise self._closed()
        return shown.execution(result)

    async def request(
        self,
        type: str,
        content: Mapping[str, Any],
        *,
        timeout: float | None = None,
        buffers: Sequence[bytes] = (),
        subshell: str | None = None,
    ) -> Reply:
        """Sends the kernel another request of the Jupyter protocol: see cg_session_request()."""
        arguments = blocking.request_arguments(type, content, timeout, buffers, subshell)
        async with Cell(self._begin(blocking.queue_of(type, subshell), "cg_session_request", *arguments)) as events:
            async for event in events:
                if isinstance(event, Reply):
                    return event
                refuse(event, "nobody handles the events of this request")
        raise self._closed()

    async def set_variables(
        self,
        variables: Mapping[str, Any] | None = None,
        *,
        pickled: Mapping[str, bytes] | None = None,
        arrow: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Sets variables of the kernel: see `cellgate.Session.set_variables()`."""
        content, buffers = blocking.set_request(variables, pickled, arrow)
        blocking.check_reply(await self.request("set_variables", content, buffers=buffers, timeout=timeout))

    async def get_variables(self, *names: str, lossy: bool = False, timeout: float | None = None) -> dict[str, Any]:
        """Values of the kernel's variables: see `cellgate.Session.get_variables()`."""
        content = {"names": names, "lossy": lossy}
        return blocking.values_of(await self.request("get_variables", content, timeout=timeout), names)

    async def get_untrusted_pickles(self, *names: str, timeout: float | None = None) -> dict[str, bytes]:
        """Never load them here: see `cellgate.Session.get_untrusted_pickles()`."""
        reply = await self.request("get_variables", {"untrusted_pickle": names}, timeout=timeout)
        return blocking.buffers_of(reply, "untrusted_pickle", names)

    async def get_untrusted_arrow(self, *names: str, timeout: float | None = None) -> dict[str, bytes]:
        """Tables in Arrow's IPC stream format: see `cellgate.Session.get_untrusted_arrow()`."""
        reply = await self.request("get_variables", {"untrusted_arrow": names}, timeout=timeout)
        return blocking.buffers_of(reply, "untrusted_arrow", names)

    async def bridge(
        self,
        other: Session,
        *names: str,
        as_: str | Sequence[str] | None = None,
        lossy: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Copies variables to another session: see `cellgate.Session.bridge()`."""
        steps = blocking.bridge_steps(self, other, names, as_, lossy)
        with contextlib.suppress(StopIteration):
            session, type, content, buffers = next(steps)
            while True:
                reply = await session.request(type, content, buffers=buffers, timeout=timeout)
                session, type, content, buffers = steps.send(reply)

    def interrupt(self) -> None:
        """KeyboardInterrupt in the cell that runs."""
        self._core.cancel(0)

    async def reset(self, timeout: float | None = None) -> None:
        """Replaces the kernel by a fresh one; workspace, MCP servers and wrappers stay."""
        await self._blocking(self._core.call, "cg_session_reset", milliseconds(timeout))

    async def add_event(self, type: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Reports an event: see `cellgate.Session.add_event()`."""
        await self._blocking(self._core.add_event, type, message, data)

    async def add_mcp_servers(self, servers: Mapping[str, Any] | str, timeout: float | None = None) -> dict[str, Any]:
        """Defines MCP servers: see `cellgate.Session.add_mcp_servers()`."""
        report: dict[str, Any] = await self._blocking(blocking.add_servers, self._core, servers, timeout)
        return report

    async def functions(
        self, functions: Mapping[str, Callable[..., Any]], *, name: str = "host", ask: bool = False
    ) -> dict[str, Any]:
        """Lets cells call functions of this program: see `cellgate.Session.functions()`.

        Coroutine functions run in the loop, others in threads of its executor.
        """
        report: dict[str, Any] = await self._blocking(blocking.add_functions, self._core, functions, name, ask)
        return report

    # ------------------------------------------------------------ commands

    def start(
        self,
        argv: Sequence[str | bytes],
        *,
        env: Mapping[str, str] | None = None,
        cwd: PathLike | None = None,
        timeout: float | None = None,
        stdin: bool = False,
        terminal: tuple[int, int] | None = None,
    ) -> Command:
        """Starts a program in the session's sandbox: see `cellgate.Session.start()`."""
        return Command(
            self._begin(None, "cg_session_exec", blocking.exec_arguments(argv, env, cwd, timeout, stdin, terminal))
        )

    async def exec(
        self,
        argv: Sequence[str | bytes] | str,
        *,
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: PathLike | None = None,
        timeout: float | None = None,
        output_limit: int = blocking.OUTPUT_MAX,
    ) -> Completed:
        """Runs a program to its end and returns what it has written: see `cellgate.Session.exec()`."""
        if isinstance(argv, str):
            argv = ["bash", "-c", argv]
        async with self.start(argv, env=env, cwd=cwd, timeout=timeout, stdin=input is not None) as command:
            feeding = asyncio.ensure_future(_feed(command, input)) if input is not None else None
            completed = Completed(output_limit)
            try:
                async for event in command:
                    if completed.add(event):
                        return completed
            finally:
                if feeding:
                    feeding.cancel()
        raise self._closed()


def _pump(session: weakref.ref[Session], _waiting: set[_Reader]) -> None:
    """The loop does not keep a session for which no task waits."""
    if found := session():
        found._pump()


def _forget(loop: asyncio.AbstractEventLoop, fd: int, _core: Core) -> None:
    loop.remove_reader(fd)


class _Reader:
    """Waits for the events of one consumer in the loop."""

    consumer: Consumer

    def __init__(self, session: Session) -> None:
        self.session = session
        self._waiting: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if threading.get_ident() == self.session._thread:
            self._wake()
        else:  # that closes the client
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.session._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self) -> Event | None:
        core, consumer = self.session._core, self.consumer
        consumer.reader = task = id(asyncio.current_task())
        while not consumer.events:
            if consumer.ended:
                return None
            if self._waiting:
                raise RuntimeError("another task waits for the events of this cell")
            self._waiting = self.session._loop.create_future()
            self.session._waiting.add(self)
            other = core.full()
            try:
                if other and other.reader == task:
                    unread = other.bytes
                    done, _ = await asyncio.wait({self._waiting}, timeout=core.STALLED)
                    if not done and other.bytes == unread:
                        raise core.stalled(other)
                else:
                    await self._waiting
            finally:
                self._waiting = None
                self.session._waiting.discard(self)
        event = consumer.take()
        if not self.session._read and consumer.bytes < core.QUEUE_BYTES // 2:
            self.session._resume()
        return event

    def drop(self) -> None:
        if not self.consumer.dropped:
            self.session._core.drop(self.consumer)
            self.session._resume()


class Cell:
    """A cell that runs: iterate over its events with `async for`. Leaving `async with`, or the end of
    this object, cancels it."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    @property
    def number(self) -> int:
        return self._reader.consumer.number

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        try:
            event = await self._reader.next()
        except asyncio.CancelledError:
            self.close()
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    def cancel(self) -> None:
        """Ends it; its last event still comes."""
        self._reader.session._core.cancel(self.number)

    def close(self) -> None:
        """Ends it if it has not ended; its events are lost, its questions refused."""
        self._reader.drop()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Another thread may collect it: only the loop's thread may touch the session.
        reader = self._reader
        if not reader.consumer.ended and not reader.consumer.dropped:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                reader.session._loop.call_soon_threadsafe(reader.drop)


class Command(Cell):
    """A program that runs beside the cells: see `cellgate.Command`."""

    async def write(self, data: bytes, timeout: float | None = None) -> None:
        """Feeds its standard input; waits while it does not read. TimedOutError: the rest was not sent."""
        session = self._reader.session
        await session._blocking(blocking.write_all, session._core, self.number, data, timeout)

    async def close_stdin(self) -> None:
        session = self._reader.session
        await session._blocking(session._core.call, "cg_command_write", self.number, ffi.NULL, 0, -1)

    def send_signal(self, signal: int) -> None:
        """To the program's process group."""
        self._reader.session._core.call("cg_command_signal", self.number, signal)

    def resize(self, rows: int, columns: int) -> None:
        """Of its terminal."""
        self._reader.session._core.call("cg_command_resize", self.number, rows, columns)


class Files:
    """`cellgate.Files` for asyncio: every method is a coroutine that works in a thread of the loop's executor."""

    def __init__(self, session: Session) -> None:
        self._files = blocking.Files(session)
        self._session = session

    async def read(self, path: PathLike, *, offset: int = 0, limit: int = -1, timeout: float | None = None) -> bytes:
        data: bytes = await self._run(self._files.read, path, offset=offset, limit=limit, timeout=timeout)
        return data

    async def write(
        self, path: PathLike, data: bytes | str, *, mode: int = 0o666, timeout: float | None = None
    ) -> None:
        await self._run(self._files.write, path, data, mode=mode, timeout=timeout)

    async def download(self, path: PathLike, to: PathLike, *, limit: int = -1, timeout: float | None = None) -> None:
        await self._run(self._files.download, path, to, limit=limit, timeout=timeout)

    async def upload(
        self, source: PathLike, path: PathLike, *, mode: int = 0o666, timeout: float | None = None
    ) -> None:
        await self._run(self._files.upload, source, path, mode=mode, timeout=timeout)

    async def stat(self, path: PathLike, *, timeout: float | None = None) -> dict[str, Any]:
        found: dict[str, Any] = await self._run(self._files.stat, path, timeout=timeout)
        return found

    async def exists(self, path: PathLike, *, timeout: float | None = None) -> bool:
        found: bool = await self._run(self._files.exists, path, timeout=timeout)
        return found

    async def list(self, path: PathLike = ".", *, timeout: float | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._run(self._files.list, path, timeout=timeout)
        return found

    async def mkdir(self, path: PathLike, *, mode: int = 0o777, timeout: float | None = None) -> None:
        await self._run(self._files.mkdir, path, mode=mode, timeout=timeout)

    async def remove(self, path: PathLike, *, timeout: float | None = None) -> None:
        await self._run(self._files.remove, path, timeout=timeout)

    async def rename(self, source: PathLike, to: PathLike, *, timeout: float | None = None) -> None:
        await self._run(self._files.rename, source, to, timeout=timeout)

    async def pack(self, path: PathLike, fd: int, *, limit: int = -1, timeout: float | None = None) -> None:
        await self._run(self._files.pack, path, fd, limit=limit, timeout=timeout)

    async def unpack(self, path: PathLike, fd: int, *, timeout: float | None = None) -> None:
        await self._run(self._files.unpack, path, fd, timeout=timeout)

    async def _run(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return await self._session._blocking(function, *args, **more)


def _close_unwanted(opening: asyncio.Future[Core]) -> None:
    if not opening.cancelled() and not opening.exception():
        opening.result().close()


async def _feed(command: Command, data: bytes) -> None:
    try:
        await command.write(data)
        await command.close_stdin()
    except CellgateError:  # it has ended without reading all
        pass


def _decide_now(event: Decidable, approve: Approve) -> Awaitable[None] | None:
    """Returns what is left to do where `approve` returns an awaitable, although it is no coroutine function."""
    try:
        decision = approve(event)
    except BaseException:
        refuse(event, "the program's `approve` failed")
        raise
    if inspect.isawaitable(decision):
        return _decide(event, lambda _event: decision)
    apply_decision(event, decision)
    return None


async def _decide(event: Decidable, approve: Approve) -> None:
    try:
        decision = approve(event)
        if inspect.isawaitable(decision):
            decision = await decision
    except BaseException:
        refuse(event, "the program's `approve` failed")
        raise
    apply_decision(event, decision)


async def carry_out(event: FunctionCall) -> None:
    """FunctionCall.run() for asyncio."""
    try:
        function, values = event._bound()
        if is_coroutine_function(function):
            value = await function(**values)
        else:
            value = await asyncio.to_thread(function, **values)
    except Exception as e:
        event.fail(f"{type(e).__name__}: {e}")
    except BaseException:
        refuse(event, "the program was interrupted")
        raise
    else:
        event.give_back(value)


async def _answer(event: InputRequest, answer: Callable[[InputRequest], Any]) -> None:
    text = answer(event)
    if inspect.isawaitable(text):
        text = await text
    event.answer(text)


async def events(
    *, namespace: str | None = None, since: float | None = None, client: Client | None = None
) -> AsyncIterator[dict[str, Any]]:
    """As `cellgate.events()`; a task that waits can be cancelled."""
    source = await asyncio.to_thread(lambda: client or Client(kernel_env=environment_name()))
    loop = asyncio.get_running_loop()
    begin = time.time() if since is None else since
    fd, last = source.events_fd(), 0
    try:
        while True:
            reply = await asyncio.to_thread(source.events, last, since=begin, namespace=namespace)
            last = reply["last"]
            for event in new_events(reply):
                yield event
            if reply["events"]:
                continue
            changed = asyncio.Event()
            loop.add_reader(fd, changed.set)
            try:
                await changed.wait()
            finally:
                loop.remove_reader(fd)
    except ClosedError:
        return
    finally:
        if client is None:
            source.close()
