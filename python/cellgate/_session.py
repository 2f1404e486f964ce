"""The blocking front."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from cellgate._cellgate import ffi, lib
from cellgate._core import Arguments, Client, Consumer, PathLike, milliseconds, open_core, take_text
from cellgate._errors import ClosedError, InvalidArgumentError, NotFoundError, TimedOutError, VariableError, parse
from cellgate._events import (
    Collected,
    CommandOutput,
    CommandResult,
    Decidable,
    Event,
    Execution,
    FunctionCall,
    InputRequest,
    Reply,
    Result,
    Status,
    refuse,
    share,
)
from cellgate._functions import definitions, is_coroutine_function

Approve: TypeAlias = Callable[[Decidable], bool | None]
"""Decides about a question: True accepts, False refuses, None: it has called accept() or reject() itself.
Else the question is refused, with a warning."""

OUTPUT_MAX = 64 << 20

_Kind = TypeVar("_Kind", bound="Cell")


class Session:
    """A Python kernel in a sandbox, whose tool calls wait until this program accepts them.

    Opening blocks until the kernel is there. Several threads may use a session at the same time.
    Cells that are run while another runs wait their turn. Keyword arguments: see
    struct cg_session_options in cellgate.h; `session_options()` lists them.
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
        **session_options: Any,
    ) -> None:
        """`workspace`: the folder that cells may write (default: the current one).

        `python`: the environment of the kernel, where no client is given: its interpreter or folder,
        or a name that `cellgate env create` has made. Default: the variable CELLGATE_KERNEL_ENV, or
        else the installed one. Sessions with the same environment share a client.
        `private`: in a supervisor of this process alone, where no client is given (see Client).
        `mcp_servers`: see add_mcp_servers(). `on_event` gets the events that belong to no cell,
        command or request of this object, in the thread that waits for others.
        """
        self._core = open_core(client, python, private, on_event, None, {"workspace": workspace, **session_options})
        self._start()
        if mcp_servers:
            try:
                self.add_mcp_servers(mcp_servers)
            except BaseException:
                self.close()
                raise

    @classmethod
    def attach(cls, client: Client, id: str, on_event: Callable[[Event], None] | None = None) -> Session:
        """Takes part in a session of another client of the same supervisor: see cg_session_attach()."""
        self = cls.__new__(cls)
        self._core = open_core(client, None, False, on_event, id, {})
        self._start()
        return self

    def _start(self) -> None:
        # Guards the consumers. The thread that reads from the library does not hold it meanwhile.
        self._changed = threading.Condition()
        self._reading = False
        self.files = Files(self)

    def close(self) -> None:
        """Ends the session with its kernel, servers and open questions; waits for calls of other threads."""
        self._core.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        return self._core.own_text("cg_session_id")

    @property
    def info(self) -> dict[str, Any]:
        """What protects this session: see cg_session_info()."""
        info: dict[str, Any] = json.loads(self._core.own_text("cg_session_info"))
        return info

    # ------------------------------------------------------------ events

    def _begin(self, kind: type[_Kind], queue: str | None, name: str, *args: Any) -> _Kind:
        """Begins a cell, a request or a command. An interrupt ends it, whenever it comes."""
        self._core.check_process()  # another thread may have held the lock at the fork
        consumer = Consumer(self._wake, threading.get_ident(), queue)
        try:
            with self._changed:
                self._core.check_queue(queue, consumer.reader)
                self._core.begin(consumer, name, *args)
            return kind(self, consumer)
        except BaseException:
            self._drop(consumer)
            raise

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # So long does a reader wait for the library before it looks whether the session was closed.
    _SLICE_MS = 500

    def _next(self, consumer: Consumer, deadline: float | None = None) -> Event | None:
        """The next event of @consumer. None: there is none any more, or the time is over."""
        core = self._core
        with self._changed:
            consumer.reader = threading.get_ident()
            while True:
                if consumer.events:
                    full = consumer.bytes >= core.QUEUE_BYTES
                    event = consumer.take()
                    if full and consumer.bytes < core.QUEUE_BYTES:
                        self._changed.notify_all()
                    return event
                if consumer.ended:
                    return None
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                if self._reading:
                    self._changed.wait(left)
                elif other := core.full():
                    self._wait_for(other, left)
                else:
                    self._read(self._SLICE_MS if left is None else min(self._SLICE_MS, milliseconds(left)))

    def _read(self, wait_ms: int) -> None:
        """Reads for all consumers; other threads may use the session while the library waits."""
        self._reading = True
        ready = False
        try:
            try:
                self._changed.release()  # an interrupt comes when it has been done
                ready = self._core.read(wait_ms)
            finally:
                self._changed.acquire()
        except ClosedError as e:
            self._core.end(str(e))
        finally:
            self._reading = False
            self._changed.notify_all()
        if ready:
            self._core.dispatch()

    def _wait_for(self, other: Consumer, left: float | None) -> None:
        """Until another thread has read what is unread of @other."""
        limit = self._core.STALLED if other.reader == threading.get_ident() else None
        unread = other.bytes
        notified = self._changed.wait(limit if left is None or (limit and limit < left) else left)
        if limit and (left is None or limit < left) and not notified and other.bytes == unread:
            raise self._core.stalled(other)

    def _drop(self, consumer: Consumer) -> None:
        with self._changed:
            self._core.drop(consumer)
            self._changed.notify_all()

    def _closed(self) -> ClosedError:
        return ClosedError(self._core.closed or "the session has ended", lib.CG_E_CLOSED)

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
        """Runs a cell; iterate over the result for its events, the last of them a Result.

        Questions among them (ApprovalRequest, EgressRequest) wait for accept() or reject(). `timeout`:
        running time in seconds, without waits for approvals.
        """
        arguments = execute_arguments(code, timeout, silent, stdin, history, variables, artifacts, extra, subshell)
        return self._begin(Cell, subshell or "", "cg_session_execute", *arguments)

    def run(
        self,
        code: str,
        *,
        approve: Approve | None = None,
        input: Callable[[InputRequest], str | None] | None = None,
        on_event: Callable[[Event], None] | None = None,
        timeout: float | None = None,
        output_limit: int = OUTPUT_MAX,
        **more: Any,
    ) -> Execution:
        """Runs a cell to its end. Without `approve` all that it asks for is refused, or with `deciders="user"` left
        to other programs.

        `approve` is called with each question, and the cell waits meanwhile; an exception in it
        refuses the call, cancels the cell and is raised here. `input` answers input(). Neither can run
        another cell of the session, which would wait for this one; exec() and `files` work. A cell that
        fails is no exception: see Execution.status and Execution.check(). Of text and of displays
        over `output_limit` characters the rest is thrown away, see Execution.truncated.
        """
        shown = Collected(output_limit)
        cell = self.stream(code, timeout=timeout, stdin=input is not None, **more)
        try:  # as in request()
            for event in cell:
                if on_event:
                    on_event(event)
                if isinstance(event, Decidable):
                    _decide(event, approve)
                elif isinstance(event, FunctionCall):
                    event.run()
                elif isinstance(event, InputRequest) and input:
                    event.answer(input(event))
                elif isinstance(event, Result) and event.cell == cell.number:
                    return shown.execution(event)
                else:
                    refuse(event, "this program answers no such requests")
                    shown.add(event)
        finally:
            cell.close()
        raise self._closed()

    def request(
        self,
        type: str,
        content: Mapping[str, Any],
        *,
        timeout: float | None = None,
        buffers: Sequence[bytes] = (),
        subshell: str | None = None,
    ) -> Reply:
        """Sends the kernel another request of the Jupyter protocol: see cg_session_request()."""
        arguments = request_arguments(type, content, timeout, buffers, subshell)
        events = self._begin(Cell, queue_of(type, subshell), "cg_session_request", *arguments)
        try:  # not `with`: an interrupt in its __enter__() would have the traceback keep it
            for event in events:
                if isinstance(event, Reply):
                    return event
                refuse(event, "nobody handles the events of this request")
        finally:
            events.close()
        raise self._closed()

    def set_variables(
        self,
        variables: Mapping[str, Any] | None = None,
        *,
        pickled: Mapping[str, bytes] | None = None,
        arrow: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Sets variables of the kernel, all or none, after the cells that were sent before.

        `variables`: values that JSON can express. `pickled`: bytes that the kernel unpickles. `arrow`:
        tables in Arrow's IPC stream format, which become pyarrow.Table.
        Raises where a value or name is not possible: see set_variables at cg_session_request().
        """
        content, buffers = set_request(variables, pickled, arrow)
        check_reply(self.request("set_variables", content, buffers=buffers, timeout=timeout))

    def get_variables(self, *names: str, lossy: bool = False, timeout: float | None = None) -> dict[str, Any]:
        """Values of the kernel's variables, as JSON can express them. What they say is up to the cells.

        Raises NotFoundError where one is missing, VariableError where one has no exact form in JSON,
        unless it is `lossy`: see get_variables at cg_session_request().
        """
        content = {"names": names, "lossy": lossy}
        return values_of(self.request("get_variables", content, timeout=timeout), names)

    def get_untrusted_pickles(self, *names: str, timeout: float | None = None) -> dict[str, bytes]:
        """Pickles of the kernel's variables, to be given back to set_variables().

        Never load them here: cells decide what they contain, so that pickle.loads() of one would run
        code of theirs in this process, outside of the sandbox.
        """
        content = {"untrusted_pickle": names}
        return buffers_of(self.request("get_variables", content, timeout=timeout), "untrusted_pickle", names)

    def get_untrusted_arrow(self, *names: str, timeout: float | None = None) -> dict[str, bytes]:
        """Variables of the kernel that are tables or data frames, in Arrow's IPC stream format.

        pyarrow in the kernel's environment writes them. Cells decide what the bytes are: read them with
        pyarrow 14.0.1 or newer, and call validate(full=True) before the table is used:

            table = pyarrow.ipc.open_stream(data).read_all()
            table.validate(full=True)
        """
        content = {"untrusted_arrow": names}
        return buffers_of(self.request("get_variables", content, timeout=timeout), "untrusted_arrow", names)

    def bridge(
        self,
        other: Session,
        *names: str,
        as_: str | Sequence[str] | None = None,
        lossy: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Copies variables to another session, of any language: all or none.

        `as_`: their names there. What goes over is JSON of at most 16 MiB, which neither kernel nor this program
        runs. Tables (pandas, polars, pyarrow) arrive as pyarrow.Table where both kernels have pyarrow, else as
        lists of rows. Without `lossy` what has no exact form is a VariableError, as integers beyond 2**53 for node.
        """
        steps = bridge_steps(self, other, names, as_, lossy)
        with contextlib.suppress(StopIteration):
            session, type, content, buffers = next(steps)
            while True:
                reply = session.request(type, content, buffers=buffers, timeout=timeout)
                session, type, content, buffers = steps.send(reply)

    def interrupt(self) -> None:
        """KeyboardInterrupt in the cell that runs."""
        self._core.cancel(0)

    def reset(self, timeout: float | None = None) -> None:
        """Replaces the kernel by a fresh one; workspace, MCP servers and wrappers stay."""
        self._core.call("cg_session_reset", milliseconds(timeout))

    def add_event(self, type: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Reports to `cellgate.events()` what only this program knows: see cg_session_add_event()."""
        self._core.add_event(type, message, data)

    def add_mcp_servers(self, servers: Mapping[str, Any] | str, timeout: float | None = None) -> dict[str, Any]:
        """Defines MCP servers, as in the `mcpServers` of MCP clients; cells then import mcptools.NAME.

        Returns the report of cg_session_add_mcp_servers(): a member for each server, with "error"
        where it could not be added. Raises if none could be.
        """
        return add_servers(self._core, servers, timeout)

    def functions(
        self, functions: Mapping[str, Callable[..., Any]], *, name: str = "host", ask: bool = False
    ) -> dict[str, Any]:
        """Lets cells call functions of this program: `from mcptools.NAME import FUNCTION; FUNCTION.run(...)`.

        Their schemas come from their signatures; arguments are checked against them. Values have to
        be JSON. run() calls them; of stream(), FunctionCall.run(). `ask`: each call is an
        ApprovalRequest first. Replaces the set of that name; returns a report as add_mcp_servers().
        Coroutine functions are for `cellgate.aio.Session`.
        """
        for tool, function in functions.items():
            if is_coroutine_function(function):
                text = f"{tool} is a coroutine function, which this session cannot call: use cellgate.aio.Session"
                raise InvalidArgumentError(text, lib.CG_E_INVAL)
        return add_functions(self._core, functions, name, ask)

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
        """Starts a program in the session's sandbox, beside its cells: see cg_session_exec().

        `stdin`: write() will feed it. `terminal`: rows and columns of a terminal of its own.
        """
        arguments = exec_arguments(argv, env, cwd, timeout, stdin, terminal)
        return self._begin(Command, None, "cg_session_exec", arguments)

    def exec(
        self,
        argv: Sequence[str | bytes] | str,
        *,
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: PathLike | None = None,
        timeout: float | None = None,
        output_limit: int = OUTPUT_MAX,
    ) -> Completed:
        """Runs a program, or a line of `bash -c`, to its end and returns what it has written.

        Output over `output_limit` bytes is thrown away, see Completed.truncated.
        """
        if isinstance(argv, str):
            argv = ["bash", "-c", argv]
        command = self.start(argv, env=env, cwd=cwd, timeout=timeout, stdin=input is not None)
        try:  # as in request()
            writer = None
            if input is not None:
                writer = threading.Thread(target=_feed, args=(command, input), daemon=True)
                writer.start()
            completed = Completed(output_limit)
            for event in command:
                if completed.add(event):
                    return completed
        finally:
            command.close()
        raise self._closed()


class Cell:
    """A cell that runs: an iterator over its events. Leaving `with`, or the iterator's end by the
    garbage collector, cancels it."""

    def __init__(self, session: Session, consumer: Consumer) -> None:
        self._session = session
        self._consumer = consumer

    @property
    def number(self) -> int:
        return self._consumer.number

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._session._next(self._consumer)
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout: float | None = None) -> Event | None:
        """The same with a limit in seconds. None: nothing came in time, or all has come."""
        return self._session._next(self._consumer, None if timeout is None else time.monotonic() + min(timeout, 1e9))

    def cancel(self) -> None:
        """Ends it; its last event still comes."""
        self._session._core.cancel(self.number)

    def close(self) -> None:
        """Ends it if it has not ended; its events are lost, its questions refused."""
        if not self._consumer.dropped and (self._consumer.events or not self._consumer.ended):
            self._session._drop(self._consumer)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the session has ended, or this is a forked copy
            self.close()


class Command(Cell):
    """A program that runs beside the cells; its events are CommandOutput, and at last CommandResult."""

    def write(self, data: bytes, timeout: float | None = None) -> None:
        """Feeds its standard input; waits while it does not read. TimedOutError: the rest was not sent."""
        write_all(self._session._core, self.number, data, timeout)

    def close_stdin(self) -> None:
        self._session._core.call("cg_command_write", self.number, ffi.NULL, 0, -1)

    def send_signal(self, signal: int) -> None:
        """To the program's process group."""
        self._session._core.call("cg_command_signal", self.number, signal)

    def resize(self, rows: int, columns: int) -> None:
        """Of its terminal."""
        self._session._core.call("cg_command_resize", self.number, rows, columns)


class Completed:
    """A command that has ended."""

    def __init__(self, limit: int) -> None:
        self._parts: list[tuple[bool, bytes]] = []
        self._left = limit
        self.truncated = False
        """It has written more than the limit; the rest was thrown away."""
        self.status = Status.OK
        self.exit_code: int | None = None
        """None: it was ended by `signal`, or did not start (`text` says why)."""
        self.signal: int | None = None
        self.text = ""

    def add(self, event: Event) -> bool:
        """Takes an event of the command. True: it was the last."""
        if isinstance(event, CommandOutput):
            data = event.data[: self._left]
            self._left -= len(data)
            self.truncated = self.truncated or len(data) < len(event.data)
            if data:
                self._parts.append((event.stderr, data))
        elif isinstance(event, CommandResult):
            self.status, self.exit_code, self.signal, self.text = (
                event.status,
                event.exit_code,
                event.signal,
                event.text,
            )
            return True
        return False

    @property
    def stdout(self) -> bytes:
        return b"".join(data for stderr, data in self._parts if not stderr)

    @property
    def stderr(self) -> bytes:
        return b"".join(data for stderr, data in self._parts if stderr)

    @property
    def output(self) -> bytes:
        """Both in the order in which they came."""
        return b"".join(data for _, data in self._parts)

    @property
    def returncode(self) -> int:
        """As a shell reports it: 124 for the time limit, 128 and the signal, 127 for what did not start."""
        if self.status is Status.TIMEOUT:
            return 124
        if self.exit_code is not None:
            return self.exit_code
        return 127 if self.signal is None else 128 + self.signal

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.status is Status.OK

    def __repr__(self) -> str:
        return f"<Completed {self.status} exit_code={self.exit_code} signal={self.signal} {self.text!r}>"


class Files:
    """Files as the programs in the session's sandbox see them: see cg_session_files_read() and what
    follows it in cellgate.h. Relative paths are below the workspace; times in seconds."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def _call(self, name: str, *args: Any) -> None:
        self._session._core.call(f"cg_session_files_{name}", *args)

    def read(self, path: PathLike, *, offset: int = 0, limit: int = -1, timeout: float | None = None) -> bytes:
        """At most @limit bytes of a file from @offset on; without a limit up to 1 GiB."""
        ret, length = ffi.new("char **"), ffi.new("size_t *")
        self._call("read", _path(path), offset, limit, milliseconds(timeout), ret, length)
        try:
            return bytes(ffi.buffer(ret[0], length[0]))
        finally:
            lib.cg_free(ret[0])

    def write(self, path: PathLike, data: bytes | str, *, mode: int = 0o666, timeout: float | None = None) -> None:
        """Replaces a file atomically, or makes it with @mode."""
        data = data.encode() if isinstance(data, str) else data
        self._call("write", _path(path), mode, ffi.from_buffer(data), len(data), milliseconds(timeout))

    def download(self, path: PathLike, to: PathLike, *, limit: int = -1, timeout: float | None = None) -> None:
        """Copies a file to the host's @to, which is replaced; nothing is changed where the file cannot be opened."""
        self.read(path, limit=0, timeout=timeout)
        with open(to, "wb") as f:
            self._call("get", _path(path), f.fileno(), limit, milliseconds(timeout))

    def upload(self, source: PathLike, path: PathLike, *, mode: int = 0o666, timeout: float | None = None) -> None:
        """Copies the host's file @source into the sandbox."""
        with open(source, "rb") as f:
            self._call("put", _path(path), mode, f.fileno(), milliseconds(timeout))

    def stat(self, path: PathLike, *, timeout: float | None = None) -> dict[str, Any]:
        """{"type", "size", "mode", "mtime_ns", "target"}; a link is not followed."""
        found: dict[str, Any] = parse(self._text("stat", path, timeout))
        return found

    def exists(self, path: PathLike, *, timeout: float | None = None) -> bool:
        try:
            self.stat(path, timeout=timeout)
        except NotFoundError:
            return False
        return True

    def list(self, path: PathLike = ".", *, timeout: float | None = None) -> list[dict[str, Any]]:
        """The entries of a folder, in no order, as stat() with "name"."""
        found: list[dict[str, Any]] = parse(self._text("list", path, timeout))
        return found

    def mkdir(self, path: PathLike, *, mode: int = 0o777, timeout: float | None = None) -> None:
        """With missing parents; a folder that exists is no error."""
        self._call("mkdir", _path(path), mode, milliseconds(timeout))

    def remove(self, path: PathLike, *, timeout: float | None = None) -> None:
        """A file, a link, or a folder with all that it contains."""
        self._call("remove", _path(path), milliseconds(timeout))

    def rename(self, source: PathLike, to: PathLike, *, timeout: float | None = None) -> None:
        self._call("rename", _path(source), _path(to), milliseconds(timeout))

    def pack(self, path: PathLike, fd: int, *, limit: int = -1, timeout: float | None = None) -> None:
        """A folder's content as tar to the host's descriptor @fd. Unpack it with care: it is untrusted."""
        self._call("pack", _path(path), fd, limit, milliseconds(timeout))

    def unpack(self, path: PathLike, fd: int, *, timeout: float | None = None) -> None:
        """A tar archive from the host's descriptor @fd into a folder."""
        self._call("unpack", _path(path), fd, milliseconds(timeout))

    def _text(self, name: str, path: PathLike, timeout: float | None) -> bytes:
        return bytes(self._session._core.call_text(f"cg_session_files_{name}", _path(path), milliseconds(timeout)))


def _path(path: PathLike) -> bytes:
    data = str(path).encode(errors="surrogateescape")
    if b"\0" in data:
        raise ValueError("embedded null character")
    return data


def _feed(command: Command, data: bytes) -> None:
    try:
        command.write(data)
        command.close_stdin()
    except Exception:  # it has ended without reading all
        pass


WRITE_MAX = 1 << 20


def write_all(core: Any, number: int, data: bytes, timeout: float | None) -> None:
    """Feeds a command piece by piece."""
    deadline = None if timeout is None else time.monotonic() + timeout
    for at in range(0, len(data), WRITE_MAX):
        piece = data[at : at + WRITE_MAX]
        left = -1 if deadline is None else milliseconds(max(0, deadline - time.monotonic()))
        if core.call("cg_command_write", number, piece, len(piece), left) == lib.CG_TIMEOUT:
            raise TimedOutError(f"the program does not read; {at} of {len(data)} bytes were sent", lib.CG_E_TIMEDOUT)


def execute_arguments(
    code: str,
    timeout: float | None,
    silent: bool,
    stdin: bool,
    history: bool,
    variables: bool,
    artifacts: bool,
    extra: Mapping[str, Any] | None,
    subshell: str | None,
) -> tuple[Any, ...]:
    """Those of cg_session_execute() up to the options."""
    args, data = Arguments(), code.encode()
    plain = not (silent or stdin or variables or artifacts or extra)
    if timeout is None and history and subshell is None and plain:
        return data, len(data), ffi.NULL
    o = args.options(
        "cg_execute_options",
        timeout_ms=milliseconds(timeout),
        silent=int(silent),
        allow_stdin=int(stdin),
        no_history=int(not history),
        extra=args.json({**(extra or {}), "variables": True} if variables else extra),
        subshell=args.text(subshell),
        artifacts=int(artifacts),
    )
    return data, len(data), o


def request_arguments(
    type: str, content: Mapping[str, Any], timeout: float | None, buffers: Sequence[bytes], subshell: str | None
) -> tuple[Any, ...]:
    """Those of cg_session_request() up to the options."""
    args, text = Arguments(), json.dumps(content).encode()
    o = args.options(
        "cg_request_options",
        timeout_ms=milliseconds(timeout),
        subshell=args.text(subshell),
        buffers=args.buffers(buffers),
        n_buffers=len(buffers),
    )
    return type.encode(), text, len(text), o


def queue_of(type: str, subshell: str | None) -> str | None:
    """Consumer.queue of a request."""
    beside = type in ("debug_request", "usage_request") or type.endswith("_subshell_request")
    return None if beside else subshell or ""


def set_request(
    variables: Mapping[str, Any] | None, pickled: Mapping[str, bytes] | None, arrow: Mapping[str, bytes] | None
) -> tuple[dict[str, Any], list[bytes]]:
    """Content and buffers of set_variables."""
    plain, pickles, tables = dict(variables or {}), dict(pickled or {}), dict(arrow or {})
    try:
        same = json.loads(json.dumps(plain, allow_nan=False)) == plain  # not for tuples, or keys that are no str
    except (TypeError, ValueError, RecursionError) as e:
        raise InvalidArgumentError(f"the variables have no form in JSON: {e}", lib.CG_E_INVAL) from None
    if not same:
        text = "not exact in JSON: use None, bool, int, float, str, list, and dict with keys of str, or `pickled`"
        raise InvalidArgumentError(text, lib.CG_E_INVAL)
    content = {"variables": plain, "pickled": list(pickles), "arrow": list(tables)}
    return content, [*pickles.values(), *tables.values()]


# The most that bridge() copies.
BRIDGE_BYTES = 16 << 20


class _Bridged(Protocol):
    """A session of either front."""

    @property
    def info(self) -> dict[str, Any]: ...

    @property
    def request(self) -> Callable[..., Any]: ...


def check_reply(reply: Reply) -> dict[str, Any]:
    """The content of a reply about variables. Raises where it is an error."""
    content = reply.content
    if content.get("status") == "ok" and reply.status is Status.OK:
        return content
    text, ename, name = (str(content.get(key, "")) for key in ("evalue", "ename", "name"))
    if reply.status is Status.TIMEOUT:
        raise TimedOutError(text, lib.CG_E_TIMEDOUT)
    if ename == "NameError":
        raise NotFoundError(text, lib.CG_E_NOTFOUND)
    if ename == "BadRequest":
        raise InvalidArgumentError(text, lib.CG_E_INVAL)
    raise VariableError(f"{ename}: {text}", name, str(content.get("type", "")), str(content.get("path", "")))


def values_of(reply: Reply, names: Sequence[str]) -> dict[str, Any]:
    """The variables of a reply, which the kernel may have made up."""
    found = check_reply(reply).get("variables")
    if not isinstance(found, dict) or sorted(found) != sorted(names):
        raise VariableError("the kernel's reply does not have the variables that were asked for")
    return found


def buffers_of(reply: Reply, form: str, names: Sequence[str]) -> dict[str, bytes]:
    """The same for "untrusted_pickle" and "untrusted_arrow"."""
    if check_reply(reply).get(form) != list(names) or len(reply.buffers) != len(names):
        raise VariableError("the kernel's reply does not have the variables that were asked for")
    return dict(zip(names, reply.buffers, strict=True))


def bridge_steps(
    source: _Bridged, target: _Bridged, names: Sequence[str], as_: str | Sequence[str] | None, lossy: bool
) -> Generator[tuple[_Bridged, str, dict[str, Any], Sequence[bytes]], Reply, None]:
    """The requests of bridge(): which session, type, content and buffers. Is sent their replies."""
    there = [as_] if isinstance(as_, str) else list(as_ or names)
    if not names or len(there) != len(names) or len(set(names)) != len(names):
        raise InvalidArgumentError("bridge() needs names, each once, and as many in `as_`", lib.CG_E_INVAL)
    targets = dict(zip(names, there, strict=True))
    tables = source.info.get("language") == target.info.get("language") == "python"
    while True:
        wanted = {"names": names, "json": True, "lossy": lossy, "tables": tables}
        reply = yield source, "get_variables", wanted, ()
        arrow = check_reply(reply).get("untrusted_arrow")
        allowed = names if tables else ()
        if not isinstance(arrow, list) or len(reply.buffers) != len(arrow) + 1 or not set(arrow) <= set(allowed):
            raise VariableError("the kernel's reply does not have the variables that were asked for")
        if sum(map(len, reply.buffers)) > BRIDGE_BYTES:
            raise VariableError(f"the kernel's reply has more than {BRIDGE_BYTES} bytes")
        plain = {name: targets[name] for name in names if name not in arrow}
        content = {"json": plain, "arrow": [targets[name] for name in arrow], "lossy": lossy}
        reply = yield target, "set_variables", content, reply.buffers
        if not arrow or reply.content.get("ename") != "ArrowError":
            check_reply(reply)
            return
        tables = False  # the other kernel has no pyarrow


def exec_arguments(
    argv: Sequence[str | bytes],
    env: Mapping[str, str] | None,
    cwd: PathLike | None,
    timeout: float | None,
    stdin: bool,
    terminal: tuple[int, int] | None,
) -> Any:
    """struct cg_exec_options."""
    args = Arguments()
    o = args.options(
        "cg_exec_options",
        argv=args.texts(argv),
        env=args.env(env),
        cwd=args.text(cwd),
        timeout_ms=milliseconds(timeout),
        input=int(stdin),
        rows=terminal[0] if terminal else 0,
        columns=terminal[1] if terminal else 0,
    )
    return o


def add_servers(core: Any, servers: Mapping[str, Any] | str, timeout: float | None) -> dict[str, Any]:
    text = (servers if isinstance(servers, str) else json.dumps(servers)).encode()
    ret = ffi.new("char **")
    core.call("cg_session_add_mcp_servers", text, len(text), milliseconds(timeout), ret)
    report: dict[str, Any] = json.loads(take_text(ret[0]))
    return report


def add_functions(core: Any, functions: Mapping[str, Callable[..., Any]], name: str, ask: bool) -> dict[str, Any]:
    text = json.dumps(definitions(functions)).encode()
    args, ret = Arguments(), ffi.new("char **")
    o = args.options("cg_functions_options", ask=int(ask))
    core.call("cg_session_add_functions", name.encode(), text, len(text), o, ret)
    report: dict[str, Any] = json.loads(take_text(ret[0]))
    rejected = [tool["tool"] for tool in report[name]["tools"] if tool["status"] == "rejected"]
    core.functions = {k: f for k, f in core.functions.items() if k[0] != name}
    core.functions |= {(name, tool): f for tool, f in functions.items()}
    if rejected:
        raise InvalidArgumentError(f"cells cannot call these functions: {', '.join(rejected)}", lib.CG_E_INVAL)
    return report


def _decide(event: Decidable, approve: Approve | None) -> None:
    if approve is None and event._core.others_decide:
        share(event)
        return
    if approve is None:
        refuse(event, "this program accepts no calls (run() was given no `approve`)")
        return
    try:
        decision = approve(event)
    except BaseException:
        refuse(event, "the program's `approve` failed")
        raise
    apply_decision(event, decision)


def apply_decision(event: Decidable, decision: bool | None) -> None:
    """What `approve` has returned. A question that has ended meanwhile is no error."""
    if decision is not None and not isinstance(decision, bool):
        refuse(event, "the program's `approve` failed")
        raise TypeError(f"approve() must return True, False or None, not {type(decision).__name__}")
    try:
        if decision:
            event.accept()
        elif decision is False:
            event.reject()
        elif refuse(event, "the program's `approve` has not decided"):
            warnings.warn(
                f"`approve` has returned None and has not decided about {event}: it is refused. Return True or False, "
                "or call accept() or reject() before",
                RuntimeWarning,
                stacklevel=2,
            )
    except NotFoundError:
        pass
