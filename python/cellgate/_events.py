"""Events of a session, as frozen dataclasses. Text in them comes from a kernel or an MCP server: untrusted."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from cellgate._cellgate import ffi, lib
from cellgate._errors import CellError, ClosedError, LimitExceededError, NotFoundError, parse
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

    @property
    def _size(self) -> int:
        """In characters, about."""
        values = (*self.data.values(), self.metadata, self.transient)
        return 64 + sum(len(v if isinstance(v, str) else json.dumps(v)) for v in values if v)


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

    def reject(self, reason: str | None = None) -> None:
        """Refuses it: each kind of question can be refused."""
        raise NotImplementedError


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
        value: dict[str, Any] = parse(self.arguments_json)
        return value

    def share(self) -> None:
        """Lets other programs of the user decide, too, in a session with `deciders="user"`; before it none sees it."""
        self._core.call("cg_approval_share", self.number)

    def accept(self) -> None:
        """Lets exactly this call run, once. NotFoundError: it has been decided or has ended."""
        self._core.decide("cg_approval_accept", self.number)

    def reject(self, reason: str | None = None) -> None:
        """Refuses it: the call raises RejectedError in the cell, with @reason."""
        self._core.decide("cg_approval_reject", self.number, _text(reason))

    def __str__(self) -> str:
        """On one line and safe to show: SERVER.TOOL and the arguments, long runs of blanks as their number.

        Of a program (`method` "exec") the file that would run comes first: `argv[0]` may name another one.
        """
        subject = f"{self.server}.{self.tool or self.method}"
        if self.method == "exec":
            subject = f"start {json.dumps(self.arguments.get('program'))}"
        return render(f"{subject} {_fold(self.arguments_json)}")


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
            self._core.decide("cg_function_return", self.number, outcome, data, len(data))


@dataclass(frozen=True, slots=True)
class EgressRequest(Question):
    """A connection that no setting decides; for sessions with `ask_egress`."""

    host: str
    port: int
    protocol: str

    def share(self) -> None:
        """Lets other programs of the user decide, too, in a session with `deciders="user"`; before it none sees it."""
        self._core.call("cg_approval_share", self.number)

    def accept(self, *, session: bool = False) -> None:
        """Allows the connections to this host and port that wait; with @session all, until the kernel ends."""
        self._decide(lib.CG_EGRESS_ALLOW_SESSION if session else lib.CG_EGRESS_ALLOW_ONCE, None)

    def reject(self, reason: str | None = None, *, session: bool = False) -> None:
        self._decide(lib.CG_EGRESS_DENY_SESSION if session else lib.CG_EGRESS_DENY_ONCE, reason)

    def _decide(self, decision: int, reason: str | None) -> None:
        self._core.decide("cg_egress_decide", self.number, decision, _text(reason))

    def __str__(self) -> str:
        return render(f"{self.protocol} {self.host}:{self.port}")


Decidable: TypeAlias = ApprovalRequest | EgressRequest  # allowed or refused; other programs may decide, too


@dataclass(frozen=True, slots=True)
class ServerRequest(Question):
    """An MCP server asks the host, by `method`: elicitation or sampling (`params` as the server sent them)."""

    server: str
    method: str
    call: int | None
    params: dict[str, Any]

    def answer(self, result: dict[str, Any]) -> None:
        """Sends @result, checked first: InvalidArgumentError says what is wrong, and it still waits."""
        self._core.decide("cg_server_request_answer", self.number, json.dumps(result).encode())

    def decline(self) -> None:
        self._core.decide("cg_server_request_decline", self.number)

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
        self._core.decide("cg_session_input", -self.cell, ffi.NULL if data is None else data, len(data or b""))


@dataclass(frozen=True, slots=True)
class InputClosed(Event):
    """The cell's last InputRequest wants no answer any more."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that was made or changed while a cell ran, as of its end."""

    path: str
    """Absolute, as in the sandbox; a name that is not UTF-8 as by os.fsdecode()."""
    size: int
    sha256: str | None
    """None: too large, or not readable."""


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
    artifacts: list[Artifact] | None = None
    """With run(..., artifacts=True): files that were made or changed."""
    artifacts_truncated: str | None = None
    artifacts_signed: dict[str, str] | None = None
    """With sign_artifacts: `execution` and `signature` of the list; None: no files, or see `artifacts_unsigned`."""
    artifacts_unsigned: str | None = None
    """Why some may be missing; None: none is."""


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
    truncated: bool
    """Text or displays over run()'s `output_limit` were left out."""

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
        """`output`, whether some of it was left out, and why the cell did not end well if it did not."""
        left_out = "[output over the limit was left out]\n" if self.truncated else ""
        return f"{self.output}{left_out}" if self.ok else f"{self.output}{left_out}{self._why()}\n"

    def _why(self) -> str:
        # A cell that was interrupted has an error, too: KeyboardInterrupt.
        return str(self.error) if self.status is Status.ERROR and self.error else f"{self.status}: {self.text}"

    @property
    def variables(self) -> dict[str, Any] | None:
        """With run(..., variables=True): what was "made", "changed" and "deleted", see cg_event_json()."""
        found = self.result.content.get("variables")
        return found if isinstance(found, dict) else None

    @property
    def artifacts(self) -> list[Artifact]:
        """With run(..., artifacts=True): files that were made or changed. Result.artifacts_truncated: not all."""
        return self.result.artifacts or []

    @property
    def images(self) -> list[bytes]:
        return [image for d in self.displays if (image := d.image) is not None]

    def check(self) -> Execution:
        """Returns self. CellError: the cell did not end well."""
        if not self.ok:
            raise CellError(self._why(), self)
        return self


class Collected:
    """What a cell shows, collected from its events; of text and of displays so many characters each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._error: Error | None = None
        self._value: str | None = None
        self._truncated = False
        self._clear = False  # before the next output
        self._empty()

    def _empty(self) -> None:
        self._clear = False
        self._streams = io.StringIO(), io.StringIO()
        self._text_left = self._limit
        self._displays: list[Display] = []
        self._displays_left = self._limit

    def add(self, event: Event) -> None:
        if isinstance(event, ClearOutput):
            self._clear = event.wait
            if not event.wait:
                self._empty()
        elif isinstance(event, (Stream, Display)):
            if self._clear:
                self._empty()
            if isinstance(event, Stream):
                text = event.text[: self._text_left]
                self._text_left -= len(text)
                self._truncated = self._truncated or len(text) < len(event.text)
                self._streams[event.stderr].write(text)
            elif isinstance(event, DisplayUpdate):
                wanted = event.transient.get("display_id")
                for i, shown in enumerate(self._displays):
                    same = wanted is not None and shown.transient.get("display_id") == wanted
                    if same and self._fits(event, shown):
                        self._displays[i] = event
            elif self._fits(event, None):
                self._displays.append(event)
                self._value = event.text if isinstance(event, ExecuteResult) else self._value
        elif isinstance(event, Error):
            self._error = event

    def _fits(self, event: Display, instead_of: Display | None) -> bool:
        more = event._size - (instead_of._size if instead_of else 0)
        if more > self._displays_left:
            self._truncated = True
            return False
        self._displays_left -= more
        return True

    def execution(self, result: Result) -> Execution:
        return Execution(
            status=result.status,
            text=result.text,
            stdout=self._streams[False].getvalue(),
            stderr=self._streams[True].getvalue(),
            value=self._value,
            displays=self._displays,
            error=self._error,
            refused=result.refused,
            execution_count=result.execution_count,
            result=result,
            truncated=self._truncated,
        )


def protected_name(path: str, write: bool = False) -> str | None:
    """The name in docs/names.md for which agents may not use a file, whatever any rule says."""
    name = lib.cg_protected_name(path.encode(errors="surrogateescape"), write)
    return None if name == ffi.NULL else ffi.string(name).decode()


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


_MAX_BLANKS = 40
_BLANK = (
    r"(?:[\s\xad\u115f\u1160\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]"
    r"|\\[tnrf]|\\u00(?:09|0[a-dA-D]|20|85|[aA][0dD])|\\u(?:115[fF]|1160|1680|180[b-fB-F]|20[0-6].|2800|3000|3164"
    r"|[fF][eE]0.|[fF][eE][fF]{2}|[fF]{2}[aA]0))"
)
_JSON_PART = re.compile(r'"(?:[^"\\]|\\.)*"|\s+')
_STRING_PART = re.compile(rf"((?:{_BLANK}){{{_MAX_BLANKS + 1},}})|\\.")


def _fold(text: str) -> str:
    """JSON text in which nothing is pushed out of sight: a long run of blanks is shown as its length.

    The length stands between a closing and an opening quote, where no string can write.
    """

    def run(match: re.Match[str]) -> str:
        return f'" [{len(re.findall(_BLANK, match[1]))} blanks] "' if match[1] else match[0]

    def part(match: re.Match[str]) -> str:
        return _STRING_PART.sub(run, match[0]) if match[0].startswith('"') else " "

    return _JSON_PART.sub(part, text)


def _text(reason: str | None) -> Any:
    return ffi.NULL if reason is None else reason.encode(errors="replace")


# ---------------------------------------------------------------- from C

_Maker = Callable[[Any, "Core", int, bool], Event]
"""Makes an event of a struct cg_batch_event."""

_STATUSES = [Status(ffi.string(lib.cg_status_name(i)).decode()) for i in range(len(Status))]


def _str(text: Any, length: int) -> str:
    decoded: str = ffi.unpack(text, length).decode(errors="replace")
    return decoded


def _name(text: Any) -> str:
    name: str = ffi.string(text).decode()
    return name


def _json(e: Any) -> dict[str, Any]:
    """Empty where Python cannot read what a kernel has sent: nested too deeply, or a number of too many digits."""
    if e.json_len == 2:
        return {}
    try:
        value: dict[str, Any] = json.loads(ffi.unpack(e.json, e.json_len).decode())
    except (ValueError, RecursionError):
        return {}
    return value


def _buffers(e: Any) -> list[bytes]:
    length = ffi.new("size_t *")
    return [
        ffi.unpack(ffi.cast("char *", lib.cg_event_buffer(e.event, i, length)), length[0]) for i in range(e.n_buffers)
    ]


def _dict(content: dict[str, Any], name: str) -> dict[str, Any]:
    """A member that a kernel has sent, which may be anything."""
    value = content.get(name)
    return value if isinstance(value, dict) else {}


def _rich(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    return _dict(content, "data"), _dict(content, "metadata"), _dict(content, "transient")


def _stream(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    return Stream(cell, foreign, _str(e.text, e.text_len), bool(e.is_stderr))


def _display(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    return Display(cell, foreign, *_rich(_json(e)))


def _display_update(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    return DisplayUpdate(cell, foreign, *_rich(_json(e)))


def _execute_result(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    content = _json(e)
    count = content.get("execution_count")
    return ExecuteResult(cell, foreign, *_rich(content), count if isinstance(count, int) else 0)


def _error(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    c = _json(e)
    lines = c.get("traceback")
    traceback = [str(line) for line in lines] if isinstance(lines, list) else []
    return Error(cell, foreign, str(c.get("ename", "")), str(c.get("evalue", "")), traceback)


def _approval(e: Any, core: Core, cell: int, foreign: bool) -> Event:
    names = (_name(e.server), _name(e.tool), _name(e.method))
    return ApprovalRequest(cell, foreign, e.approval, core, *names, _str(e.arguments, e.arguments_len))


def _function_call(e: Any, core: Core, cell: int, foreign: bool) -> Event:
    names = (_name(e.server), _name(e.tool))
    return FunctionCall(cell, foreign, e.approval, core, *names, _str(e.arguments, e.arguments_len))


def _egress(e: Any, core: Core, cell: int, foreign: bool) -> Event:
    c = _json(e)
    return EgressRequest(cell, foreign, e.approval, core, str(c["host"]), int(c["port"]), str(c["protocol"]))


def _server_request(e: Any, core: Core, cell: int, foreign: bool) -> Event:
    c = _json(e)
    return ServerRequest(cell, foreign, e.approval, core, c["server"], c["method"], c.get("call"), c["params"])


def _input(e: Any, core: Core, cell: int, foreign: bool) -> Event:
    c = _json(e)
    return InputRequest(cell, foreign, str(c.get("prompt", "")), bool(c.get("password")), core)


def _result(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    text, count = _str(e.text, e.text_len), e.execution_count
    found = lib.cg_event_artifacts(e.event, ffi.NULL)
    result = Result(cell, foreign, _STATUSES[e.status], text, count, bool(e.refused), _json(e))
    return dataclasses.replace(result, **_artifacts(found)) if found else result


def _artifacts(text: Any) -> dict[str, Any]:
    found = json.loads(_name(text))
    paths = [f["path"] if "path" in f else os.fsdecode(bytes.fromhex(f["path_hex"])) for f in found["files"]]
    files = [Artifact(p, f["size"], f.get("sha256")) for p, f in zip(paths, found["files"], strict=True)]
    more = {f"artifacts_{name}": found.get(name) for name in ("truncated", "signed", "unsigned")}
    return {"artifacts": files, **more}


def _reply(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    return Reply(cell, foreign, _STATUSES[e.status], _json(e), _buffers(e))


def _comm(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    c = _json(e)
    kind = str(c.get("msg_type", ""))
    return Comm(cell, foreign, kind, _dict(c, "content"), _dict(c, "metadata"), _buffers(e))


def _command_output(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    return CommandOutput(cell, foreign, ffi.unpack(e.text, e.text_len), bool(e.is_stderr))


def _command_result(e: Any, _: Core, cell: int, foreign: bool) -> Event:
    c = _json(e)
    text = _str(e.text, e.text_len)
    return CommandResult(cell, foreign, _STATUSES[e.status], c.get("exit_code"), c.get("signal"), text)


_MAKERS: dict[int, _Maker] = {
    lib.CG_EVENT_STREAM: _stream,
    lib.CG_EVENT_DISPLAY_DATA: _display,
    lib.CG_EVENT_UPDATE_DISPLAY_DATA: _display_update,
    lib.CG_EVENT_EXECUTE_RESULT: _execute_result,
    lib.CG_EVENT_CLEAR_OUTPUT: lambda e, _, n, f: ClearOutput(n, f, bool(_json(e).get("wait"))),
    lib.CG_EVENT_ERROR: _error,
    lib.CG_EVENT_APPROVAL_REQUEST: _approval,
    lib.CG_EVENT_APPROVAL_CLOSED: lambda e, _, n, f: ApprovalClosed(n, f, e.approval),
    lib.CG_EVENT_INPUT_REQUEST: _input,
    lib.CG_EVENT_RESULT: _result,
    lib.CG_EVENT_KERNEL_DIED: lambda e, _, n, f: KernelDied(n, f, _str(e.text, e.text_len)),
    lib.CG_EVENT_SESSION_CLOSED: lambda e, _, n, f: SessionClosed(n, f, _str(e.text, e.text_len)),
    lib.CG_EVENT_NOTICE: lambda e, _, n, f: Notice(n, f, _str(e.text, e.text_len)),
    lib.CG_EVENT_EXECUTE_INPUT: lambda e, _, n, f: ExecuteInput(n, f, e.execution_count, _str(e.text, e.text_len)),
    lib.CG_EVENT_REPLY: _reply,
    lib.CG_EVENT_COMM: _comm,
    lib.CG_EVENT_DEBUG_EVENT: lambda e, _, n, f: DebugEvent(n, f, _json(e)),
    lib.CG_EVENT_EGRESS_REQUEST: _egress,
    lib.CG_EVENT_DENIED: lambda e, _, n, f: Denied(n, f, _str(e.text, e.text_len), _json(e)),
    lib.CG_EVENT_INPUT_CLOSED: lambda e, _, n, f: InputClosed(n, f),
    lib.CG_EVENT_PROGRESS: lambda e, _, n, f: Progress(n, f, _str(e.text, e.text_len), _json(e)),
    lib.CG_EVENT_SERVER_REQUEST: _server_request,
    lib.CG_EVENT_COMMAND_OUTPUT: _command_output,
    lib.CG_EVENT_COMMAND_RESULT: _command_result,
    lib.CG_EVENT_FUNCTION_CALL: _function_call,
}


def from_c(e: Any, core: Core) -> Event:
    """A copy of the event in a struct cg_batch_event."""
    kind, cell, foreign = e.type, e.cell, bool(e.foreign)
    make = _MAKERS.get(kind)
    if make:
        return make(e, core, cell, foreign)
    return UnknownEvent(cell, foreign, _name(lib.cg_event_type_name(kind)), _str(e.text, e.text_len), _json(e))


def share(event: Decidable) -> None:
    """Leaves a question that has not ended to this program and others."""
    with contextlib.suppress(NotFoundError, ClosedError):
        event.share()


def refuse(event: Event, why: str) -> bool:
    """Refuses a question that nobody will answer; other events are left alone. True: it was not decided before."""
    try:
        if isinstance(event, Question):
            event.reject(why)
            return True
    except (NotFoundError, ClosedError):
        pass  # it has ended, or its session has
    return False
