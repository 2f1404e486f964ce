"""Client and session of libcellgate without any waiting: what the blocking and the asyncio front share."""

from __future__ import annotations

import atexit
import contextlib
import importlib.resources
import json
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

from cellgate._cellgate import ffi, lib
from cellgate._errors import CellgateError, ClosedError, ForkedError, InvalidArgumentError, LimitExceededError, check
from cellgate._events import (
    ApprovalClosed,
    CommandResult,
    Event,
    InputClosed,
    InputRequest,
    Question,
    Reply,
    Result,
    SessionClosed,
    from_c,
    refuse,
)

PathLike = str | os.PathLike[str]


def milliseconds(seconds: float | None) -> int:
    """libcellgate's form of an optional time: 0 is none, so a time that is none is at least 1 ms; inf is 31 years."""
    return 0 if seconds is None else max(1, round(min(seconds, 1e9) * 1000))


_kept: weakref.WeakKeyDictionary[Any, Arguments] = weakref.WeakKeyDictionary()


class Arguments:
    """Texts and arrays for a C call, kept alive as long as this object."""

    def __init__(self) -> None:
        self._keep: list[Any] = []

    def text(self, value: str | bytes | PathLike | None) -> Any:
        if value is None:
            return ffi.NULL
        data = os.fsencode(value)
        if b"\0" in data:
            raise ValueError("embedded null character")
        self._keep.append(ffi.new("char[]", data))
        return self._keep[-1]

    def texts(self, values: Sequence[str | bytes | PathLike] | None) -> Any:
        """A NULL-terminated array."""
        if values is None:
            return ffi.NULL
        if isinstance(values, (str, bytes)):
            raise TypeError("expected a sequence of texts, not one text")
        self._keep.append(ffi.new("char *[]", [*(self.text(v) for v in values), ffi.NULL]))
        return self._keep[-1]

    def env(self, values: Mapping[str, str] | None) -> Any:
        return self.texts(None if values is None else [f"{name}={value}" for name, value in values.items()])

    def json(self, value: Mapping[str, Any] | str | None) -> Any:
        return self.text(value if value is None or isinstance(value, str) else json.dumps(value))

    def buffers(self, values: Sequence[bytes]) -> Any:
        """An array of struct cg_buffer."""
        array = ffi.new("struct cg_buffer[]", len(values))
        views = [ffi.from_buffer(value) for value in values]
        for i, view in enumerate(views):
            array[i].data, array[i].len = view, len(view)
        self._keep += [array, views]
        return array

    def options(self, kind: str, **members: Any) -> Any:
        """A C struct of options with its size, and the members that are not None. Keeps this object alive."""
        o = ffi.new(f"struct {kind} *")
        o.size = ffi.sizeof(f"struct {kind}")
        for name, value in members.items():
            if value is not None:
                setattr(o, name, value)
        _kept[o] = self
        return o


RUNTIME = Path(str(importlib.resources.files("cellgate"))).parent / "cellgate_runtime"
"""cellgate's programs, where this package is one of a wheel: beside it, not wherever sys.path finds the name first."""


def _words(connect: Sequence[str] | Sequence[Sequence[str]] | None) -> Sequence[str] | None:
    """One command as it is; of several, ";" is between them."""
    if connect is None or isinstance(connect, str) or all(isinstance(word, str) for word in connect):
        return cast("Sequence[str] | None", connect)
    return [word for i, command in enumerate(connect) for word in ([";"] if i else []) + list(command)]


class Client:
    """A connection to a supervisor, which runs the kernels of all sessions that are opened with it.

    Without `address` it uses the supervisor that this user's programs share, or starts it. With
    `private`, or where CELLGATE_PRIVATE is set in the environment, it starts one of its own, which
    ends with the client; so it does with `supervisor`, `log_fd` and a `log_level` above 1. With
    `connect`, such as `["ssh", "host"]`, sessions run on another machine; of a list of such commands
    one is taken whose node is not busy. Sessions that are given no client share
    one of the process. May be used by several threads; not after a fork.
    """

    def __init__(
        self,
        *,
        private: bool = False,
        address: PathLike | None = None,
        start: bool = False,
        linger: float | None = None,
        connect: Sequence[str] | Sequence[Sequence[str]] | None = None,
        detach: float | None = None,
        preload: Sequence[str] = (),
        kernel_env: PathLike | None = None,
        spares: int | None = None,
        supervisor: PathLike | None = None,
        audit_key: PathLike | None = None,
        audit_head: PathLike | None = None,
        log_level: int = 0,
        log_fd: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """See struct cg_client_options in cellgate.h; times in seconds. `spares=0`: no session in advance.

        `detach`: for so long sessions with `connect` wait for a new connection (default 30; 0: not).
        """
        private = private or bool(os.environ.get("CELLGATE_PRIVATE")) or supervisor is not None
        private = private or log_fd is not None or log_level > 1
        environment = kernel_env if connect is not None else kernel_env or os.environ.get("CELLGATE_KERNEL_ENV")
        packaged = RUNTIME / "libexec/cellgate/cellgate-supervisor"
        if supervisor is None and packaged.exists():  # else libcellgate knows where it is
            supervisor = packaged
        args = Arguments()
        o = args.options(
            "cg_client_options",
            address=args.text(address),
            supervisor=args.text(supervisor),
            preload=args.text(",".join(preload) or None),
            log_level=log_level,
            log_fd=log_fd,
            timeout_ms=milliseconds(timeout),
            no_spare=int(spares == 0),
            start=int(start),
            linger_ms=milliseconds(linger),
            spares=spares or 0,
            kernel_env=args.text(environment),
            share=int(address is None and not private and connect is None),
            connect=args.texts(_words(connect)),
            detach_ms=-1 if detach == 0 else milliseconds(detach),
            audit_key=args.text(audit_key),
            audit_head=args.text(audit_head),
        )
        ret, err = ffi.new("struct cg_client **"), ffi.new("struct cg_err *")
        check(lib.cg_client_open(o, ret, err), err)
        self._ptr = ret[0]
        self._pid = os.getpid()
        self._cores: weakref.WeakSet[Core] = weakref.WeakSet()
        self._end = weakref.finalize(self, Client._close, self._ptr, self._cores, self._pid)

    @staticmethod
    def _close(ptr: Any, cores: weakref.WeakSet[Core], pid: int) -> None:
        if os.getpid() != pid:
            return  # a forked copy: the connection is the parent's
        for core in list(cores):
            core.close()
        lib.cg_client_close(ptr)

    @property
    def ptr(self) -> Any:
        if os.getpid() != self._pid:
            raise ForkedError("this client belongs to the process that this one was forked from: open a new one")
        if not self._end.alive:
            raise ClosedError("the client is closed", lib.CG_E_CLOSED)
        return self._ptr

    def close(self) -> None:
        """Ends its sessions, and a private supervisor with all its processes."""
        self._end()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def why_private(self) -> str | None:
        """Why it has a private supervisor although it asked to share one; None: it shares one, or did not ask to."""
        why = lib.cg_client_why_private(self.ptr)
        return None if why == ffi.NULL else ffi.string(why).decode()

    def status(self) -> dict[str, Any]:
        """The supervisor and its clients: see cg_client_status()."""
        ret, err = ffi.new("char **"), ffi.new("struct cg_err *")
        check(lib.cg_client_status(self.ptr, ret, err), err)
        status: dict[str, Any] = json.loads(take_text(ret[0]))
        return status

    def stop(self, force: bool = False) -> None:
        """Ends the supervisor; with `force` also where other clients have sessions."""
        err = ffi.new("struct cg_err *")
        check(lib.cg_client_stop(self.ptr, int(force), err), err)

    def sessions(self) -> list[dict[str, Any]]:
        """The open sessions of the supervisor that this client may see."""
        ret, err = ffi.new("char **"), ffi.new("struct cg_err *")
        check(lib.cg_client_sessions(self.ptr, ret, err), err)
        found: list[dict[str, Any]] = json.loads(take_text(ret[0]))
        return found

    def runtimes(self, node: PathLike | None = None) -> list[dict[str, Any]]:
        """The languages that sessions can have, found by trying: see cg_client_runtimes()."""
        args, ret, err = Arguments(), ffi.new("char **"), ffi.new("struct cg_err *")
        check(lib.cg_client_runtimes(self.ptr, args.text(node), ret, err), err)
        found: list[dict[str, Any]] = json.loads(take_text(ret[0]))
        return found

    def approvals(self) -> dict[str, Any]:
        """What waits in sessions with `deciders="user"`, also of other programs: see cg_client_approvals()."""
        ret, err = ffi.new("char **"), ffi.new("struct cg_err *")
        check(lib.cg_client_approvals(self.ptr, ret, err), err)
        found: dict[str, Any] = json.loads(take_text(ret[0]))
        return found

    def approvals_fd(self) -> int:
        """A descriptor that is readable once approvals() may return something else than before."""
        err = ffi.new("struct cg_err *")
        fd: int = lib.cg_client_approvals_fd(self.ptr, err)
        check(min(fd, 0), err)
        return fd

    def jobs(self) -> list[dict[str, Any]]:
        """The sessions of all programs of the supervisor, and what runs in them: see cg_client_jobs()."""
        ret, err = ffi.new("char **"), ffi.new("struct cg_err *")
        check(lib.cg_client_jobs(self.ptr, ret, err), err)
        found: list[dict[str, Any]] = json.loads(take_text(ret[0]))
        return found

    def events(self, after: int = 0, *, since: float = 0, namespace: str | None = None) -> dict[str, Any]:
        """What has happened in all sessions, `after` the "last" of the call before: see cg_client_events()."""
        args, ret, err = Arguments(), ffi.new("char **"), ffi.new("struct cg_err *")
        options = args.options(
            "cg_events_options", after=after, since_ms=int(since * 1000), namespace_name=args.text(namespace)
        )
        check(lib.cg_client_events(self.ptr, options, ret, err), err)
        found: dict[str, Any] = json.loads(take_text(ret[0]))
        return found

    def events_fd(self) -> int:
        """A descriptor that is readable once events() may return something new."""
        err = ffi.new("struct cg_err *")
        fd: int = lib.cg_client_events_fd(self.ptr, err)
        check(min(fd, 0), err)
        return fd

    def approval(self, id: str) -> dict[str, Any]:
        """One of them, whole, with its digest: see cg_client_approval()."""
        ret, err = ffi.new("char **"), ffi.new("struct cg_err *")
        check(lib.cg_client_approval(self.ptr, Arguments().text(id), ret, err), err)
        found: dict[str, Any] = json.loads(take_text(ret[0]))
        return found

    def decide(self, id: str, digest: str, accept: bool, reason: str | None = None) -> None:
        """Decides about what approval() has shown, once. NotFoundError: it has been decided or has ended."""
        args, err = Arguments(), ffi.new("struct cg_err *")
        words = args.text(id), args.text(digest), int(accept), args.text(reason)
        check(lib.cg_client_decide(self.ptr, *words, err), err)


def take_text(ptr: Any) -> bytes:
    """The text that libcellgate has returned, and frees it."""
    try:
        text: bytes = ffi.string(ptr)
        return text
    finally:
        lib.cg_free(ptr)


_shared: dict[str | None, Client] = {}
_private: dict[str | None, Client] = {}
_shared_lock = threading.Lock()


def environment_name(python: PathLike | None = None) -> str | None:
    """The environment of kernels where none is named."""
    name = os.fspath(python or os.environ.get("CELLGATE_KERNEL_ENV") or "") or None
    return os.path.abspath(os.path.expanduser(name)) if name and "/" in name else name


def shared_client(python: PathLike | None = None, private: bool = False, ended: Client | None = None) -> Client:
    """The client of sessions that are given none, one for each environment; a new one in a fork, or for `ended`."""
    name = environment_name(python)
    clients = _private if private else _shared
    with _shared_lock:
        client = clients.get(name)
        if not client or client is ended or not client._end.alive or client._pid != os.getpid():
            client = clients[name] = Client(kernel_env=name, private=private)
        return client


def _replace_lock() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_replace_lock)


@atexit.register
def _close_shared() -> None:
    for client in (*_shared.values(), *_private.values()):
        client.close()


class Consumer:
    """Receives the events of one cell, request or command until its last."""

    def __init__(self, wake: Callable[[], None], reader: object, queue: str | None = None) -> None:
        self.queue = queue
        """What has the same runs one after another: "", or a subshell's id. None: it runs beside all others."""
        self.number = 0
        """0: it has not begun."""
        self.events: deque[tuple[Event, int]] = deque()
        """With the size of each."""
        self.bytes = 0
        """Of all in `events`."""
        self.reader = reader
        """The thread or task that has begun it, or has read it last."""
        self.questions: set[int] = set()
        """Numbers of all that it was asked: of the event that closes one, only that is known."""
        self.wake = wake
        self.ended = False
        """No event comes any more; those in `events` were not read yet."""
        self.dropped = False
        """Nobody reads it: its questions are refused, and its events thrown away."""

    def take(self) -> Event:
        """The oldest event."""
        event, size = self.events.popleft()
        self.bytes -= size
        return event


_answering: ContextVar[tuple[Consumer, ...]] = ContextVar("answering", default=())
"""In a task that answers a question: the consumers that were asked."""


@contextlib.contextmanager
def answering(consumer: Consumer) -> Iterator[None]:
    """Tasks that are made meanwhile answer a question to this consumer."""
    before = _answering.set((*_answering.get(), consumer))
    try:
        yield
    finally:
        _answering.reset(before)


Handler = Callable[[Event], None]


class Core:
    """A session's C object, and the way of its events to their consumers.

    run(), call() and close() are for any thread; for the rest the fronts make sure that one thread at a time uses it.
    """

    # From so much on that waits for one reader the session is not read: the kernel's writes block.
    QUEUE_BYTES = 16 << 20
    # After so long a thread or task that waits for one cell, and does not read another that is full, gets an error.
    STALLED = 5.0

    def __init__(self, client: Client, ptr: Any, on_event: Handler | None) -> None:
        self.client = client
        self.on_event = on_event
        self.consumers: dict[int, Consumer] = {}
        self.functions: dict[tuple[str, str], Callable[..., Any]] = {}
        """Those of functions(), by the name of their set and their own."""
        self.watched: dict[int, Callable[[], None]] = {}
        """What to call when the question with this number waits no more, whether its events are read or not."""
        self.undecided: set[int] = set()
        """Numbers of questions that a consumer was given; of a cell's input() the cell's, negative."""
        self.closed: str | None = None
        """Why the session has ended; None while it is open."""
        self.others_decide = False
        """A question that this program does not decide stays open for other clients."""
        self._pid = os.getpid()
        self._ptr = ptr
        self._batch = ffi.gc(ffi.new("struct cg_batch *"), lib.cg_batch_clear)
        self._read_err = ffi.new("struct cg_err *")
        self._lock = threading.RLock()  # a collected cell is cancelled in any thread, at any time
        self._unused = threading.Condition(self._lock)
        self._users: set[object] = set()  # one for each use of the C object, which is not freed meanwhile
        self._closing = False
        self._free = weakref.finalize(self, Core._free_ptr, ptr, client, self._pid)
        self._free.atexit = False  # the client's end frees all
        client._cores.add(self)

    @staticmethod
    def _free_ptr(ptr: Any, client: Client, pid: int) -> None:
        if os.getpid() == pid:
            lib.cg_session_free(ptr)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(C object, *args), which is not freed meanwhile. An interrupt at any place leaves no use behind."""
        self.check_process()
        use = object()
        try:
            self._users.add(use)
            # Where both are garbage, the session is freed before a coroutine ends that uses it.
            if self._closing or not self._free.alive:
                raise ClosedError("the session is closed", lib.CG_E_CLOSED)
            return function(self._ptr, *args)
        finally:
            self._users.discard(use)
            if self._closing:
                with self._lock:
                    self._unused.notify_all()

    def own_process(self) -> bool:
        """False after a fork."""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        if not self.own_process():
            raise ForkedError("this session belongs to the process that this one was forked from: open a new one")

    def close(self) -> None:
        """Ends the session, after the calls of other threads have returned."""
        if not self.own_process():
            return
        with self._lock:
            self._closing = True
        self.end("the session is closed")
        with self._lock:
            while self._users:
                self._unused.wait(1)  # an interrupt may prevent the notification
            self._free()

    def call(self, name: str, *args: Any) -> int:
        """A function of libcellgate on this session; raises for a negative result."""
        err = ffi.new("struct cg_err *")
        return check(self.run(getattr(lib, name), *args, err), err)

    def call_text(self, name: str, *args: Any) -> bytes:
        """The same where the last argument but the error returns a text."""
        ret = ffi.new("char **")
        self.call(name, *args, ret)
        return take_text(ret[0])

    def own_text(self, name: str) -> str:
        """A text that belongs to the session."""
        function = getattr(lib, name)
        text: str = self.run(lambda ptr: ffi.string(function(ptr)).decode())
        return text

    def begin(self, consumer: Consumer, name: str, *args: Any) -> None:
        """The same where that argument returns a number, whose events then go to the consumer."""
        number = ffi.new("uint64_t *")
        try:
            self.call(name, *args, number)
        finally:  # an interrupt may come between the end of the C function and the next line
            if number[0]:
                consumer.number = number[0]
                self.consumers[consumer.number] = consumer

    def decide(self, name: str, number: int, *args: Any) -> None:
        """call() of a function that answers the question with this number."""
        try:
            self.call(name, *args) if number < 0 else self.call(name, number, *args)
        except InvalidArgumentError:
            raise  # it still waits
        except BaseException:
            self.undecided.discard(number)
            raise
        self.undecided.discard(number)

    def check_queue(self, queue: str | None, reader: object) -> None:
        """Raises where @reader would wait for ever: what it begins runs after a cell that waits for its answer."""
        for consumer in self.consumers.values():
            if queue is None or consumer.queue != queue or consumer.dropped:
                continue
            mine = consumer.reader == reader or consumer in _answering.get()
            if mine and not self.undecided.isdisjoint(consumer.questions):
                raise CellgateError(
                    f"this would wait for ever: it runs after cell {consumer.number}, which waits for this program to "
                    "answer (`approve`, `input` or a function). Answer first, or use exec(), `files`, a subshell or "
                    "another session",
                    lib.CG_E_STATE,
                )

    def add_event(self, type: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """See cg_session_add_event()."""
        args = Arguments()
        self.call("cg_session_add_event", args.text(type), args.text(message), args.json(data))

    def cancel(self, number: int) -> None:
        self.call("cg_session_cancel", number)

    def read(self, timeout_ms: int) -> bool:
        """Waits with the interpreter unlocked. False: nothing came; else there is something for dispatch()."""
        if self._batch.used < self._batch.n:
            return True  # a handler has raised
        result = self.run(lib.cg_batch_read, timeout_ms, self._batch, self._read_err)
        if result == lib.CG_CLOSED:
            raise ClosedError(self.closed or "the session has ended", lib.CG_E_CLOSED)
        return check(result, self._read_err) == 0

    def dispatch(self) -> None:
        """Gives what read() has read to its consumers. Where on_event raises, the rest is for the next call."""
        batch = self._batch
        woken = set()
        try:
            while batch.used < batch.n:
                e = batch.events[batch.used]
                batch.used += 1
                if consumer := self._give(from_c(e, self), e.bytes):
                    woken.add(consumer)
        finally:
            for consumer in woken:
                consumer.wake()
            if batch.used == batch.n:
                lib.cg_batch_clear(batch)

    def _give(self, event: Event, size: int) -> Consumer | None:
        """To its consumer, which it returns; what belongs to none, to on_event or the oldest consumer."""
        if isinstance(event, SessionClosed):
            self.end(event.text)
        consumer = None if event.foreign else self.consumers.get(event.cell)
        if isinstance(event, InputClosed):
            self.undecided.discard(-event.cell)
        if isinstance(event, ApprovalClosed):
            self.undecided.discard(event.number)
            self.watched.pop(event.number, lambda: None)()
            consumer = next((c for c in self.consumers.values() if event.number in c.questions), None)
            if consumer is None:
                return None  # its cell has ended
        if consumer is None and self.on_event:
            self.on_event(event)
            return None
        if consumer is None and not event.foreign:
            consumer = next((c for c in self.consumers.values() if not c.dropped), None)
        if consumer is None or consumer.dropped:
            refuse(event, "nobody handles the events of this cell")
        else:
            consumer.events.append((event, size))
            consumer.bytes += size
            if isinstance(event, (Question, InputRequest)):
                number = event.number if isinstance(event, Question) else -event.cell
                consumer.questions.add(number)
                self.undecided.add(number)
        if consumer and event.cell == consumer.number and isinstance(event, (Result, Reply, CommandResult)):
            consumer.ended = True
            self.undecided -= consumer.questions
            del self.consumers[consumer.number]
        return consumer

    def full(self) -> Consumer | None:
        """A consumer that has so much unread that nothing is read for others."""
        return next((c for c in self.consumers.values() if c.bytes >= self.QUEUE_BYTES), None)

    def stalled(self, consumer: Consumer) -> LimitExceededError:
        """For a thread or task that would wait for ever."""
        return LimitExceededError(
            f"{consumer.bytes >> 20} MiB of events of cell or command {consumer.number} were not read, and those that "
            "are waited for come after them: read it, or close it, or read it in a thread or task of its own",
            lib.CG_E_LIMIT,
        )

    def end(self, why: str) -> None:
        """The session has ended, and with it all that it runs."""
        if self.closed is None:
            self.closed = why
        watched, self.watched = list(self.watched.values()), {}
        for expire in watched:
            expire()
        consumers, self.consumers = list(self.consumers.values()), {}
        for consumer in consumers:
            consumer.ended = True
            consumer.wake()

    def drop(self, consumer: Consumer) -> None:
        """Its reader leaves: cancels what runs, and refuses what it asks."""
        consumer.dropped = True
        while consumer.events:
            refuse(consumer.take(), "nobody handles the events of this cell")
        if consumer.number and not consumer.ended and self.own_process():
            with contextlib.suppress(ClosedError):
                self.cancel(consumer.number)


def new_events(reply: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reply["events"]
    lost = [{"type": "events.lost", "data": {"lost": reply["lost"]}}] if reply["lost"] else []
    return lost + found


def events(
    *, namespace: str | None = None, since: float | None = None, client: Client | None = None
) -> Iterator[dict[str, Any]]:
    """What happens in the sessions of all programs that share the supervisor, as it happens; ends with the supervisor.

    since: also what has happened since this time (time.time(); 0: all that is kept); None: from now on. The members are
    those of docs/events.md. A reader that is too slow gets {"type": "events.lost", "data": {"lost": number}}.
    client: one that no other reader of events has, since events_fd() is readable for one of them; None: one of its own.
    """
    source = client or Client(kernel_env=environment_name())
    begin = time.time() if since is None else since
    poll = select.poll()
    poll.register(source.events_fd(), select.POLLIN)
    try:
        reply = source.events(since=begin, namespace=namespace)
        while True:
            yield from new_events(reply)
            if not reply["events"]:
                poll.poll()
            reply = source.events(reply["last"], since=begin, namespace=namespace)
    except ClosedError:
        return
    finally:
        if client is None:
            source.close()


def list_runtimes(client: Client | None = None, *, node: PathLike | None = None) -> list[dict[str, Any]]:
    """The languages that sessions can have, found by opening one of each: see cg_client_runtimes()."""
    return (client or shared_client()).runtimes(node)


def session_options(
    args: Arguments,
    *,
    workspace: PathLike | None = None,
    env: Mapping[str, str] | None = None,
    python_path: Sequence[PathLike] | None = None,
    sandbox: bool = True,
    color: bool = False,
    settings: Mapping[str, Any] | str | None = None,
    hide: Sequence[PathLike] | None = None,
    working_dir: PathLike | None = None,
    tier: str | None = None,
    ask_egress: bool = False,
    exec: Mapping[str, Any] | str | None = None,
    audit: str | None = None,
    sign_artifacts: bool = False,
    deciders: str = "host",
    policy: PathLike | Sequence[PathLike] | None = None,
    language: str | None = None,
    node: PathLike | None = None,
    namespace: str | None = None,
    answer: Sequence[str] = (),
    approval_timeout: float | None = None,
    start_timeout: float | None = None,
    memory_bytes: int = 0,
    processes: int = 0,
    file_bytes: int = 0,
    open_files: int = 0,
    cores: float = 0,
    cpu_seconds: int = 0,
    wall_seconds: int = 0,
    output_bytes: int = 0,
) -> Any:
    """struct cg_session_options: see cellgate.h. Times in seconds; a limit of 0 is the default."""
    kinds = {
        "elicitation": lib.CG_SERVER_REQUEST_ELICITATION,
        "sampling": lib.CG_SERVER_REQUEST_SAMPLING,
        "url": lib.CG_SERVER_REQUEST_URL,
    }
    if unknown := set(answer) - kinds.keys():
        raise InvalidArgumentError(f"answer is a list of {', '.join(kinds)}: it has {min(unknown)!r}", lib.CG_E_INVAL)
    if deciders not in ("host", "user", "mcp", "user,mcp"):
        raise InvalidArgumentError(f'deciders is "host", "user", "mcp" or "user,mcp", not {deciders!r}', lib.CG_E_INVAL)
    return args.options(
        "cg_session_options",
        workspace=args.text(workspace),
        env=args.env(env),
        python_path=args.texts(python_path),
        sandbox=lib.CG_SANDBOX_ON if sandbox else lib.CG_SANDBOX_OFF,
        color=int(color),
        settings=args.json(settings),
        hide=args.texts(hide if isinstance(hide, str | None) else [Path(h).absolute() for h in hide]),
        working_dir=args.text(working_dir),
        tier=args.text(tier),
        ask_egress=int(ask_egress),
        exec=args.json(exec),
        audit=args.text(audit),
        sign_artifacts=int(sign_artifacts),
        deciders=lib.CG_DECIDERS_USER if deciders.startswith("user") else lib.CG_DECIDERS_HOST,
        approvers=args.text("mcp" if deciders.endswith("mcp") else None),
        policies=args.texts([policy] if isinstance(policy, str | os.PathLike) else policy),
        language=args.text(language),
        node=args.text(node),
        namespace_name=args.text(namespace),
        server_requests=sum({kinds[a] for a in answer}),
        approval_timeout_ms=milliseconds(approval_timeout),
        timeout_ms=milliseconds(start_timeout),
        memory_bytes=memory_bytes,
        processes=processes,
        file_bytes=file_bytes,
        open_files=open_files,
        cores_milli=round(cores * 1000) or int(cores != 0),
        cpu_seconds=cpu_seconds,
        wall_seconds=wall_seconds,
        output_bytes=output_bytes,
    )


def open_core(
    client: Client | None,
    python: PathLike | None,
    private: bool,
    on_event: Handler | None,
    attach: str | None,
    members: dict[str, Any],
) -> Core:
    """Opens a session, or takes part in one; blocks."""
    if client and python is not None:
        raise InvalidArgumentError("python belongs to the client: cellgate.Client(kernel_env=...)", lib.CG_E_INVAL)
    if client:
        return _open_by(client, on_event, attach, members)
    # Code without a sandbox could end a supervisor, and with it the sessions of other programs.
    private = private or not members.get("sandbox", True)
    client = shared_client(python, private)
    try:
        return _open_by(client, on_event, attach, members)
    except ClosedError:  # its supervisor has ended
        return _open_by(shared_client(python, private, ended=client), on_event, attach, members)


def _open_by(client: Client, on_event: Handler | None, attach: str | None, members: dict[str, Any]) -> Core:
    args = Arguments()
    ret, err = ffi.new("struct cg_session **"), ffi.new("struct cg_err *")
    if attach is not None:
        check(lib.cg_session_attach(client.ptr, args.text(attach), ret, err), err)
    else:
        check(lib.cg_session_new(client.ptr, session_options(args, **members), ret, err), err)
    core = Core(client, ret[0], on_event)
    core.others_decide = members.get("deciders", "host") != "host"
    return core
