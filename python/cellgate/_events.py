"""Events of a session, as frozen dataclasses. Text in them comes from a kernel or an MCP server: untrusted."""

from __future__ import annotations

import base64
import contextlib
import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cellgate._cellgate import ffi, lib
from cellgate._errors import CellError, LimitExceededError, NotFoundError
from cellgate._functions import arguments

if TYPE_CHECKING:
    from cellgate._core import Core


class Status(enum.StrEnum):
    """How a cell, a request or a command ended."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    KERNEL_DIED = "kernel_died"


@dataclass(frozen=True, slots=True)
class Event:
    """What happened in a session. `cell` is the number of the cell or command that caused it, or 0."""

    cell: int
    foreign: bool
    """Another client of the session caused it; then `cell` is not a number of this one."""


@dataclass(frozen=True, slots=True)
class Stream(Event):
    """Text written to stdout or stderr."""

    text: str
    stderr: bool


@dataclass(frozen=True, slots=True)
class Display(Event):
    """Rich output: `data` has a representation for each MIME type, base64 for binary ones."""

    data: dict[str, Any]
    metadata: dict[str, Any]
    transient: dict[str, Any]

    @property
    def text(self) -> str | None:
        text = self.data.get("text/plain")
        return text if isinstance(text, str) else None

    @property
    def image(self) -> bytes | None:
        """The first image among the representations, decoded."""
        for mime, value in self.data.items():
            if mime.startswith("image/") and isinstance(value, str):
                try:
                    return value.encode() if mime == "image/svg+xml" else base64.b64decode(value)
                except ValueError:
                    continue  # a kernel may send anything
        return None


@dataclass(frozen=True, slots=True)
class DisplayUpdate(Display):
    """Replaces what was shown with the same `transient["display_id"]`."""


@dataclass(frozen=True, slots=True)
class ExecuteResult(Display):
    """The value of a cell's last expression."""

    execution_count: int


@dataclass(frozen=True, slots=True)
class ClearOutput(Event):
    """What was shown is to be removed, with `wait` when something new comes."""

    wait: bool


@dataclass(frozen=True, slots=True)
class Error(Event):
    """An exception that ended a cell."""

    ename: str
    evalue: str
    traceback: list[str]

    def __str__(self) -> str:
        return "\n".join(self.traceback) or f"{self.ename}: {self.evalue}"


@dataclass(frozen=True, slots=True)
class ExecuteInput(Event):
    """A cell starts."""

    execution_count: int
    code: str


@dataclass(frozen=True, slots=True)
class Question(Event):
    """Waits for a decision, which is used once."""

    number: int
    _core: Core = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ApprovalRequest(Question):
    """A tool call, or a request for a resource or a prompt, that runs only after accept().

    `method` is "tools/call", "resources/read" or "prompts/get"; `arguments_json` is exactly what
    goes to the server. A request that is left alone waits until the session's approval timeout.
    """

    server: str
    tool: str
    method: str
    arguments_json: str

    @property
    def arguments(self) -> dict[str, Any]:
        """`arguments_json`, parsed."""
        value: dict[str, Any] = json.loads(self.arguments_json)
        return value

    def accept(self) -> None:
        """Lets exactly this call run, once. NotFoundError: it has been decided or has ended."""
        self._core.call("cg_approval_accept", self.number)

    def reject(self, reason: str | None = None) -> None:
        """Refuses it: the call raises RejectedError in the cell, with @reason."""
        self._core.call("cg_approval_reject", self.number, _text(reason))

    def __str__(self) -> str:
        """On one line and safe to show: SERVER.TOOL and the arguments."""
        return render(f"{self.server}.{self.tool or self.method} {self.arguments_json}")


@dataclass(frozen=True, slots=True)
class FunctionCall(Question):
    """A cell calls a function of functions(): answer by run(), or give_back(), fail() or reject().

    `arguments_json` comes from a kernel: nothing has checked it.
    """

    name: str
    """Of the set of functions."""
    tool: str
    arguments_json: str

    def run(self) -> None:
        """Calls the function, here, and gives back its value or its exception."""
        try:
            function, values = self._bound()
            value = function(**values)
        except Exception as e:
            self.fail(f"{type(e).__name__}: {e}")
            return
        except BaseException:
            refuse(self, "the program was interrupted")
            raise
        self.give_back(value)

    def _bound(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        function = self._core.functions.get((self.name, self.tool))
        if function is None:
            raise LookupError(f"the program has no function {self.tool} any more")
        return function, arguments(function, self.arguments_json)

    def give_back(self, value: Any) -> None:
        """Ends the call; @value has to be JSON, or the call fails."""
        try:
            data = json.dumps(value).encode()
        except (TypeError, ValueError, RecursionError) as e:
            self.fail(f"{self.tool} has returned what is not JSON: {e}")
            return
        try:
            self._end(lib.CG_FUNCTION_VALUE, data)
        except LimitExceededError as e:
            self.fail(str(e))

    def fail(self, text: str) -> None:
        """The call raises ToolError with @text in the cell."""
        self._end(lib.CG_FUNCTION_ERROR, text.encode(errors="replace")[:65536])

    def reject(self, reason: str | None = None) -> None:
        """The call raises RejectedError in the cell."""
        self._end(lib.CG_FUNCTION_REFUSED, (reason or "refused").encode(errors="replace"))

    def _end(self, outcome: int, data: bytes) -> None:
        with contextlib.suppress(NotFoundError):  # the call was cancelled meanwhile
            self._core.call("cg_function_return", self.number, outcome, data, len(data))


@dataclass(frozen=True, slots=True)
class EgressRequest(Question):
    """A connection that no setting decides; for sessions with `ask_egress`."""

    host: str
    port: int
    protocol: str

    def accept(self, *, session: bool = False) -> None:
        """Allows the connections to this host and port that wait; with @session all, until the kernel ends."""
        self._decide(lib.CG_EGRESS_ALLOW_SESSION if session else lib.CG_EGRESS_ALLOW_ONCE, None)

    def reject(self, reason: str | None = None, *, session: bool = False) -> None:
        self._decide(lib.CG_EGRESS_DENY_SESSION if session else lib.CG_EGRESS_DENY_ONCE, reason)

    def _decide(self, decision: int, reason: str | None) -> None:
        self._core.call("cg_egress_decide", self.number, decision, _text(reason))

    def __str__(self) -> str:
        return render(f"{self.protocol} {self.host}:{self.port}")


@dataclass(frozen=True, slots=True)
class ServerRequest(Question):
    """An MCP server asks the host, by `method`: elicitation or sampling (`params` as the server sent them)."""

    server: str
    method: str
    call: int | None
    params: dict[str, Any]

    def answer(self, result: dict[str, Any]) -> None:
        """Sends @result, checked first: InvalidArgumentError says what is wrong, and it still waits."""
        self._core.call("cg_server_request_answer", self.number, json.dumps(result).encode())

    def decline(self) -> None:
        self._core.call("cg_server_request_decline", self.number)

    def reject(self, reason: str | None = None) -> None:
        """The same as decline(), so that all questions can be refused alike."""
        self.decline()


@dataclass(frozen=True, slots=True)
class ApprovalClosed(Event):
    """The question with this number waits no more."""

    number: int


@dataclass(frozen=True, slots=True)
class InputRequest(Event):
    """input() or getpass() of a cell waits for answer()."""

    prompt: str
    password: bool
    _core: Core = field(repr=False, compare=False)

    def answer(self, text: str | None) -> None:
        """@text without a newline; None is the end of file."""
        data = None if text is None else text.encode()
        self._core.call("cg_session_input", ffi.NULL if data is None else data, len(data or b""))


@dataclass(frozen=True, slots=True)
class InputClosed(Event):
    """The cell's last InputRequest wants no answer any more."""


@dataclass(frozen=True, slots=True)
class Result(Event):
    """The last event of a cell."""

    status: Status
    text: str
    """An explanation, where the status is neither OK nor ERROR."""
    execution_count: int
    refused: bool
    """The exception is a refused approval that the cell did not catch."""
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply(Event):
    """The end of a request()."""

    status: Status
    content: dict[str, Any]
    buffers: list[bytes]


@dataclass(frozen=True, slots=True)
class Comm(Event):
    """A comm's message: `msg_type` is "comm_open", "comm_msg" or "comm_close"."""

    msg_type: str
    content: dict[str, Any]
    metadata: dict[str, Any]
    buffers: list[bytes]


@dataclass(frozen=True, slots=True)
class DebugEvent(Event):
    """An event of the debugger."""

    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Denied(Event):
    """The sandbox refused an operation: `text` in one sentence; `content` as docs/denials.md says."""

    text: str
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """For display: a server starts, or a tool call progresses. `text` in one line."""

    text: str
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """A message for the host's user."""

    text: str


@dataclass(frozen=True, slots=True)
class KernelDied(Event):
    """The kernel ended by itself; a fresh one is being started."""

    text: str


@dataclass(frozen=True, slots=True)
class SessionClosed(Event):
    """The session has ended."""

    text: str


@dataclass(frozen=True, slots=True)
class CommandOutput(Event):
    """A command has written; `data` is bytes of any kind."""

    data: bytes
    stderr: bool


@dataclass(frozen=True, slots=True)
class CommandResult(Event):
    """The last event of a command. `exit_code` or `signal` is set, unless it did not start (`text` says why)."""

    status: Status
    exit_code: int | None
    signal: int | None
    text: str


@dataclass(frozen=True, slots=True)
class UnknownEvent(Event):
    """An event of a later libcellgate."""

    type: str
    text: str
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Execution:
    """What a cell has done, collected from its events."""

    status: Status
    text: str
    """Why the status is neither OK nor ERROR."""
    stdout: str
    stderr: str
    value: str | None
    """The last expression's value as text."""
    displays: list[Display]
    error: Error | None
    refused: bool
    execution_count: int
    result: Result

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def output(self) -> str:
        """stdout, stderr and the value in that order, as a model would be shown."""
        parts = (self.stdout, self.stderr, self.value or "")
        return "".join(p if not p or p.endswith("\n") else p + "\n" for p in parts)

    @property
    def report(self) -> str:
        """`output`, and why the cell did not end well if it did not."""
        if self.ok:
            return self.output
        return f"{self.output}{self._why()}\n"

    def _why(self) -> str:
        # A cell that was interrupted has an error, too: KeyboardInterrupt.
        return str(self.error) if self.status is Status.ERROR and self.error else f"{self.status}: {self.text}"

    @property
    def variables(self) -> dict[str, Any] | None:
        """With run(..., variables=True): what was "made", "changed" and "deleted", see cg_event_json()."""
        found = self.result.content.get("variables")
        return found if isinstance(found, dict) else None

    @property
    def images(self) -> list[bytes]:
        return [image for d in self.displays if (image := d.image) is not None]

    def check(self) -> Execution:
        """Returns self. CellError: the cell did not end well."""
        if not self.ok:
            raise CellError(self._why(), self)
        return self


def collect(events: list[Event], result: Result) -> Execution:
    """An Execution of a cell's events."""
    displays: list[Display] = []
    streams: dict[bool, list[str]] = {False: [], True: []}
    failure: Error | None = None
    value: str | None = None
    clear = False
    for e in events:
        if isinstance(e, ClearOutput):
            clear = e.wait
            if not e.wait:
                displays, streams = [], {False: [], True: []}
        elif isinstance(e, (Stream, Display)):
            if clear:
                clear, displays, streams = False, [], {False: [], True: []}
            if isinstance(e, Stream):
                streams[e.stderr].append(e.text)
            elif isinstance(e, DisplayUpdate):
                wanted = e.transient.get("display_id")
                displays = [e if d.transient.get("display_id") == wanted else d for d in displays]
            else:
                displays.append(e)
                value = e.text if isinstance(e, ExecuteResult) else value
        elif isinstance(e, Error):
            failure = e
    return Execution(
        status=result.status,
        text=result.text,
        stdout="".join(streams[False]),
        stderr="".join(streams[True]),
        value=value,
        displays=displays,
        error=failure,
        refused=result.refused,
        execution_count=result.execution_count,
        result=result,
    )


def render(text: str, limit: int = 0) -> str:
    """Untrusted text made safe to show on a terminal, at most @limit bytes (0: all): see cg_render()."""
    data = text.encode(errors="replace")
    ret = ffi.new("char **")
    if lib.cg_render(data, len(data), limit, ret, ffi.NULL) < 0:
        raise MemoryError("cg_render()")
    try:
        shown: str = ffi.string(ret[0]).decode()
        return shown
    finally:
        lib.cg_free(ret[0])


def _text(reason: str | None) -> Any:
    return ffi.NULL if reason is None else reason.encode(errors="replace")


# ---------------------------------------------------------------- from C

_Maker = Callable[[Any, "Core", int, bool], Event]


def _bytes(ptr: Any, name: str) -> bytes:
    length = ffi.new("size_t *")
    at = getattr(lib, name)(ptr, length)
    return bytes(ffi.buffer(at, length[0])) if at != ffi.NULL else b""


def _str(ptr: Any, name: str = "cg_event_text") -> str:
    return _bytes(ptr, name).decode(errors="replace")


def _json(ptr: Any) -> dict[str, Any]:
    """Empty where Python cannot read what a kernel has sent: nested too deeply, or a number of too many digits."""
    try:
        value: dict[str, Any] = json.loads(_bytes(ptr, "cg_event_json"))
    except (ValueError, RecursionError):
        return {}
    return value


def _buffers(ptr: Any) -> list[bytes]:
    length = ffi.new("size_t *")
    found = []
    for i in range(lib.cg_event_n_buffers(ptr)):
        at = lib.cg_event_buffer(ptr, i, length)
        found.append(bytes(ffi.buffer(at, length[0])))
    return found


def _status(ptr: Any) -> Status:
    return Status(ffi.string(lib.cg_status_name(lib.cg_event_status(ptr))).decode())


def _rich(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    return content.get("data") or {}, content.get("metadata") or {}, content.get("transient") or {}


def _display(p: Any, _: Core, cell: int, foreign: bool) -> Event:
    return Display(cell, foreign, *_rich(_json(p)))


def _display_update(p: Any, _: Core, cell: int, foreign: bool) -> Event:
    return DisplayUpdate(cell, foreign, *_rich(_json(p)))


def _execute_result(p: Any, _: Core, cell: int, foreign: bool) -> Event:
    content = _json(p)
    return ExecuteResult(cell, foreign, *_rich(content), int(content.get("execution_count") or 0))


def _error(p: Any, _: Core, cell: int, foreign: bool) -> Event:
    c = _json(p)
    return Error(
        cell, foreign, str(c.get("ename", "")), str(c.get("evalue", "")), [str(t) for t in c.get("traceback") or ()]
    )


def _approval(p: Any, core: Core, cell: int, foreign: bool) -> Event:
    server, tool, method = (
        ffi.string(getattr(lib, name)(p)).decode() for name in ("cg_event_server", "cg_event_tool", "cg_event_method")
    )
    number = lib.cg_event_approval(p)
    return ApprovalRequest(cell, foreign, number, core, server, tool, method, _str(p, "cg_event_arguments"))


def _function_call(p: Any, core: Core, cell: int, foreign: bool) -> Event:
    name, tool = (ffi.string(getattr(lib, n)(p)).decode() for n in ("cg_event_server", "cg_event_tool"))
    return FunctionCall(cell, foreign, lib.cg_event_approval(p), core, name, tool, _str(p, "cg_event_arguments"))


def _egress(p: Any, core: Core, cell: int, foreign: bool) -> Event:
    c = _json(p)
    return EgressRequest(
        cell, foreign, lib.cg_event_approval(p), core, str(c["host"]), int(c["port"]), str(c["protocol"])
    )


def _server_request(p: Any, core: Core, cell: int, foreign: bool) -> Event:
    c = _json(p)
    return ServerRequest(
        cell, foreign, lib.cg_event_approval(p), core, c["server"], c["method"], c.get("call"), c["params"]
    )


def _input(p: Any, core: Core, cell: int, foreign: bool) -> Event:
    c = _json(p)
    return InputRequest(cell, foreign, str(c.get("prompt", "")), bool(c.get("password")), core)


def _result(p: Any, _: Core, cell: int, foreign: bool) -> Event:
    count = lib.cg_event_execution_count(p)
    return Result(cell, foreign, _status(p), _str(p), count, bool(lib.cg_event_refused(p)), _json(p))


def _comm(p: Any, _: Core, cell: int, foreign: bool) -> Event:
    c = _json(p)
    return Comm(cell, foreign, str(c.get("msg_type", "")), c.get("content") or {}, c.get("metadata") or {}, _buffers(p))


def _command_result(p: Any, _: Core, cell: int, foreign: bool) -> Event:
    c = _json(p)
    return CommandResult(cell, foreign, _status(p), c.get("exit_code"), c.get("signal"), _str(p))


_MAKERS: dict[int, _Maker] = {
    lib.CG_EVENT_STREAM: lambda p, _, n, f: Stream(n, f, _str(p), bool(lib.cg_event_is_stderr(p))),
    lib.CG_EVENT_DISPLAY_DATA: _display,
    lib.CG_EVENT_UPDATE_DISPLAY_DATA: _display_update,
    lib.CG_EVENT_EXECUTE_RESULT: _execute_result,
    lib.CG_EVENT_CLEAR_OUTPUT: lambda p, _, n, f: ClearOutput(n, f, bool(_json(p).get("wait"))),
    lib.CG_EVENT_ERROR: _error,
    lib.CG_EVENT_APPROVAL_REQUEST: _approval,
    lib.CG_EVENT_APPROVAL_CLOSED: lambda p, _, n, f: ApprovalClosed(n, f, lib.cg_event_approval(p)),
    lib.CG_EVENT_INPUT_REQUEST: _input,
    lib.CG_EVENT_RESULT: _result,
    lib.CG_EVENT_KERNEL_DIED: lambda p, _, n, f: KernelDied(n, f, _str(p)),
    lib.CG_EVENT_SESSION_CLOSED: lambda p, _, n, f: SessionClosed(n, f, _str(p)),
    lib.CG_EVENT_NOTICE: lambda p, _, n, f: Notice(n, f, _str(p)),
    lib.CG_EVENT_EXECUTE_INPUT: lambda p, _, n, f: ExecuteInput(n, f, lib.cg_event_execution_count(p), _str(p)),
    lib.CG_EVENT_REPLY: lambda p, _, n, f: Reply(n, f, _status(p), _json(p), _buffers(p)),
    lib.CG_EVENT_COMM: _comm,
    lib.CG_EVENT_DEBUG_EVENT: lambda p, _, n, f: DebugEvent(n, f, _json(p)),
    lib.CG_EVENT_EGRESS_REQUEST: _egress,
    lib.CG_EVENT_DENIED: lambda p, _, n, f: Denied(n, f, _str(p), _json(p)),
    lib.CG_EVENT_INPUT_CLOSED: lambda p, _, n, f: InputClosed(n, f),
    lib.CG_EVENT_PROGRESS: lambda p, _, n, f: Progress(n, f, _str(p), _json(p)),
    lib.CG_EVENT_SERVER_REQUEST: _server_request,
    lib.CG_EVENT_COMMAND_OUTPUT: lambda p, _, n, f: CommandOutput(
        n, f, _bytes(p, "cg_event_text"), bool(lib.cg_event_is_stderr(p))
    ),
    lib.CG_EVENT_COMMAND_RESULT: _command_result,
    lib.CG_EVENT_FUNCTION_CALL: _function_call,
}


def from_c(ptr: Any, core: Core) -> Event:
    """Copies the event at @ptr and frees it."""
    try:
        kind, cell, foreign = lib.cg_event_type(ptr), lib.cg_event_cell(ptr), bool(lib.cg_event_foreign(ptr))
        make = _MAKERS.get(kind)
        if make:
            return make(ptr, core, cell, foreign)
        name = ffi.string(lib.cg_event_type_name(kind)).decode()
        return UnknownEvent(cell, foreign, name, _str(ptr), _json(ptr))
    finally:
        lib.cg_event_free(ptr)


def refuse(event: Event, why: str) -> None:
    """Refuses a question that nobody will answer; other events are left alone."""
    try:
        if isinstance(event, (ApprovalRequest, EgressRequest, FunctionCall, ServerRequest)):
            event.reject(why)
    except NotFoundError:
        pass  # it has ended
