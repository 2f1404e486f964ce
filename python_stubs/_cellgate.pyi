"""The module that the kernel program has built in (src/kernel/module*.c).

Functions that wait release the GIL and let signal handlers run. In a process that was forked from the kernel only the
write functions, flush() and forked() work; the others raise RuntimeError.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Any, NoReturn

Buffer = bytes | bytearray | memoryview

def write_stdout(text: str, /) -> int:
    """Append to the cell's standard output; lone surrogates become U+FFFD. Waits while 4 MiB wait unread."""

def write_stderr(text: str, /) -> int:
    """The same for standard error."""

def write_bytes(is_stderr: bool, data: bytes | bytearray | memoryview, /) -> int:
    """Append bytes; what is not UTF-8 becomes U+FFFD."""

def flush() -> None:
    """Send now what else would wait some milliseconds for more text."""

def dumps(value: Any, /) -> str:
    """JSON text in ASCII.

    Bytes become base64 text, NaN and infinities null, lone surrogates and NULs U+FFFD, numpy's scalars their item(),
    other objects their repr().
    """

def b2a_base64(data: Buffer, /, *, newline: bool = True) -> bytes:
    """As binascii.b2a_base64()."""

def publish(kind: str, content: str | dict[str, Any], buffers: Sequence[Buffer] = (), /) -> None:
    """Send rich output: `kind` is the Jupyter message's name, `content` its content or JSON text in ASCII of it.

    `comm` is a comm's message with buffers, `debug_event` the debugger's, `denied` tells what the sandbox refused.
    ValueError when it is over the kind's limit.
    """

def explain(operation: str, path: bytes, error: int, /) -> dict[str, Any] | None:
    """Which rule of the sandbox made it fail with this errno: None for none.

    `operation` is `file-read`, `file-write` or `exec`; "" leaves the first two to be found out. `network-outbound`
    (with the host as `path`) and `socket` ask about a connection past the proxy and about Unix sockets. The members:
    `operation`, `rule` (its name on the kernel wire), `setting` or None, `path` (resolved), `why`, and `how` to allow
    it or None.
    """

def ready(body: str, /) -> None:
    """Tell the supervisor that requests are served."""

cell: ContextVar[int]
"""The cell that this task was started by: its output is that cell's. Not set: that which runs, or ran last."""

def current_cell() -> int:
    """The cell that output of this code belongs to; 0 for none."""

def set_running(cell: int, /) -> None:
    """Until the next request, code without a cell of its own has this one; 0: that which runs."""

def request_fd(shell: str, /) -> int:
    """A descriptor that is readable while a request for this shell waits.

    Shells: "" is the main one, "control" the one that never waits for cells, others are subshells.
    """

def open_shell(name: str, /) -> None:
    """From now on requests for this subshell wait for it. ValueError when there are too many."""

def close_shell(name: str, /) -> None:
    """The subshell takes no more requests; the last that it gets is CLOSE. RuntimeError when there is no such one."""

def shell_gone(name: str, /) -> None:
    """The subshell's thread has served its last request."""

def call_main() -> None:
    """Make the main thread serve a request of the kind CALL, after the cell that runs."""

def crash_fd() -> int:
    """The descriptor that faulthandler is to write to, whose frames are shown without those that run the cell."""

def murmur2(data: bytes, seed: int, /) -> int:
    """MurmurHash2, 32 bits."""

def interrupt_subshell(cell: int, /) -> bool:
    """Raise KeyboardInterrupt in the subshell that runs this cell; False when none does."""

def on_control(func: Callable[[tuple[Any, ...]], str | None], /) -> None:
    """Let func() serve the control shell, in a thread of its own: it is given a request and returns a reply's content.

    Nothing is sent for an interrupt. Whatever it does, there is a reply to each other request.
    """

def may_ask() -> bool:
    """Whether the cell that this code was started by may ask for input now."""

def next_request(
    shell: str, loop_fd: int, block: bool, /
) -> tuple[int, int, str, tuple[bytes, ...], bool, bool, bool, bool, bool] | None:
    """The next request: the fields of cellgate_kernel.request.Request.

    None when there is none: at once, or with `block` when `loop_fd` has become readable.
    """

def next_offer(shell: str, /) -> tuple[int, int, str, tuple[bytes, ...], bool, bool, bool, bool, bool] | None:
    """The next request where it is an offer; None where it is none, or none waits."""

def answer(ident: int, content: str, /) -> None:
    """Send the REPLY to an offer."""

def run(shell: str, kind: int, ident: int, allow_stdin: bool, func: object, /) -> None:
    """Call func() as the running cell or request, then send what it returns as the reply.

    That is (body, content) of a cell, (content, buffers) of another request. Interrupts reach this thread only in
    func(). There is exactly one reply, whatever func() does.
    """

# Called in the main thread right before its KeyboardInterrupt is raised.
before_interrupt: Callable[[], object] | None

def on_sigint(signum: int, frame: FrameType | None, /) -> None:
    """The handler of SIGINT: raises KeyboardInterrupt while a cell runs, does nothing otherwise."""

def forked() -> bool:
    """True in a process that was forked from the kernel."""

def exit(status: int, /) -> NoReturn:
    """Send what is queued and end the process."""

def goes_on() -> None:
    """Tell that an interrupt has reached the cell, which goes on and is not replaced. For cells that may ask."""

def input(content: str, /) -> str | None:
    """Send INPUT_REQUEST and wait for the line; None for end of file."""

def tool_call(server: str, tool: str, arguments: bytes, timeout_ms: int, /) -> tuple[str, bytes]:
    """Call a tool and wait for its result: (status, content) as docs/wire.md describes CALL_RESULT.

    May be called by several threads at once. An interrupt cancels the call and raises KeyboardInterrupt.
    """
