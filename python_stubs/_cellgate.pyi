"""The built-in module of the kernel program (src/kernel/module*.c).

Functions that wait release the GIL and run signal handlers. In a process that was forked from the
kernel only the write functions, flush() and forked() work; the others raise RuntimeError.
"""

import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Any, NoReturn

Buffer = bytes | bytearray | memoryview

def zygote(options: list[str], /) -> NoReturn:
    """Become the zygote, with the options of cellgate-kernel. Only in an extension module."""

def write_stdout(text: str, /) -> int:
    """Append to the cell's standard output; lone surrogates become U+FFFD. Waits while 4 MiB are unread."""

def write_stderr(text: str, /) -> int:
    """The same for standard error."""

def write_bytes(is_stderr: bool, data: bytes | bytearray | memoryview, /) -> int:
    """Append bytes; invalid UTF-8 becomes U+FFFD."""

def flush() -> None:
    """Send all output so far; return when the connection has it. Waits while the host does not read."""

def dumps(value: Any, /) -> str:
    """JSON text in ASCII.

    Bytes become base64 text, NaN and infinities null, lone surrogates and NULs U+FFFD, numpy scalars
    their item(), other objects their repr().
    """

def exact(value: Any, limit: int, levels: int, /) -> bytes | None:
    """JSON text in UTF-8 of at most `limit` bytes; None: this value has no such text that is exact.

    It has one if all of it is just None, bool, int, finite float, str without half of a surrogate pair, list,
    and dict with keys of str.
    """

def members(text: Buffer, levels: int, /) -> tuple[dict[str, bytes], int]:
    """The members of a JSON object text, checked and not converted, and the most digits of an integer in them.

    ValueError if it is no JSON, and where cg_json_check_encodable() fails.
    """

def b2a_base64(data: Buffer, /, *, newline: bool = True) -> bytes:
    """As binascii.b2a_base64()."""

def publish(kind: str, content: str | dict[str, Any], buffers: Sequence[Buffer] = (), /) -> None:
    """Send rich output: `kind` is the name of the Jupyter message, `content` its content or JSON text.

    `comm` is a comm message with buffers, `debug_event` an event of the debugger, `denied` a refusal of
    the sandbox. ValueError above the limit of the kind.
    """

def explain(operation: str, path: bytes, error: int, /) -> dict[str, Any] | None:
    """The sandbox rule that caused this errno, or None.

    `operation` is `file-read`, `file-write` or `exec`; "": one of the first two. `network-outbound`
    (`path` is the host) is a connection without the proxy, `socket` a Unix socket, `home` a name in the
    private home folder that is hidden in the user's own. Members: `operation`,
    `rule` (its name on the kernel wire), `setting` or None, `path` (resolved), `why`, and `how` to allow
    the access, or None.
    """

def hidden() -> list[str]:
    """The last names of the paths that the sandbox's plan hides."""

def watch_reads(reader: Callable[[str, tuple[Any, ...]], None], /) -> None:
    """Call it for the audit events `open`, `os.listdir` and `os.scandir`, for good.

    A hook of sys.addaudithook() takes time for each event, of which a cell has several.
    """

def error_lines() -> bytes:
    """The lines of the output since the last call in which programs report a refused file: at most 8 KiB.

    They contain an error text of the C library for EACCES, EROFS or ENOENT.
    """

def ready(body: str, /) -> None:
    """Report to the supervisor that requests are served."""

cell: ContextVar[int]
"""The cell that started this task and gets its output. Not set: the running or last cell."""

def current_cell() -> int:
    """The cell that output of this code belongs to; 0: none."""

def set_running(cell: int, /) -> None:
    """Set the cell of code without one until the next request; 0: the running cell."""

def request_fd(shell: str, /) -> int:
    """A descriptor that is readable while requests for this shell are queued.

    Shells: "" is the main one, "control" does not wait for cells, others are subshells.
    """

def open_shell(name: str, /) -> None:
    """Make a subshell, whose requests are queued from now on. ValueError: there are too many."""

def close_shell(name: str, /) -> None:
    """Queue CLOSE as the last request of the subshell. RuntimeError: there is no such subshell."""

def shell_gone(name: str, /) -> None:
    """The thread of the subshell has served its last request."""

def call_main() -> None:
    """Queue a request of the kind CALL for the main thread."""

def crash_fd() -> int:
    """The descriptor for faulthandler; frames that run the cell are removed from its output."""

def murmur2(data: bytes, seed: int, /) -> int:
    """MurmurHash2, 32 bits."""

def interrupt_subshell(cell: int, /) -> bool:
    """Raise KeyboardInterrupt in the subshell that runs this cell; False: none does."""

def on_control(func: Callable[[tuple[Any, ...]], str | None], /) -> None:
    """Set the function that serves the control shell: it gets a request and returns a reply's content.

    It runs in its own thread. Interrupts have no reply, all other requests have one, also on errors.
    """

def may_ask() -> bool:
    """True if the cell that started this code may ask for input now."""

def next_request(
    shell: str, loop_fd: int, block: bool, /
) -> tuple[int, int, str, tuple[bytes, ...], bool, bool, bool, bool, bool] | None:
    """The next request: the fields of cellgate_kernel.request.Request.

    None: there is none, or with `block`: `loop_fd` has become readable.
    """

def next_offer(shell: str, /) -> tuple[int, int, str, tuple[bytes, ...], bool, bool, bool, bool, bool] | None:
    """The next request if it is an offer, else None."""

def answer(ident: int, content: str, /) -> None:
    """Send the REPLY to an offer."""

def run(shell: str, kind: int, ident: int, allow_stdin: bool, func: object, /) -> None:
    """Call func() as the running cell or request, then send its result as the reply.

    The result is (body, content) for a cell, (content, buffers) for another request. Interrupts reach
    this thread only in func(). There is exactly one reply, whatever func() does.
    """

# Called in the main thread right before its KeyboardInterrupt is raised.
before_interrupt: Callable[[], object] | None
# Called with the arguments of a signal handler before it is raised; True: it is not, the cell's task was cancelled.
interrupt_in_loop: Callable[[int, FrameType | None], bool] | None

def on_sigint(signum: int, frame: FrameType | None, /) -> None:
    """The handler of SIGINT: raises KeyboardInterrupt if a cell runs."""

def on_unraisable(unraisable: sys.UnraisableHookArgs, /) -> None:
    """For sys.unraisablehook: raises an ignored KeyboardInterrupt again, soon and in the same thread."""

def forked() -> bool:
    """True in a process that was forked from the kernel."""

def exit(status: int, /) -> NoReturn:
    """Send queued output and end the process."""

def goes_on() -> None:
    """Report that the cell was interrupted and continues. For cells that may ask for input."""

def input(content: str, /) -> str | None:
    """Send INPUT_REQUEST and wait for the line; None: end of file."""

def tool_call(server: str, tool: str, arguments: Buffer, timeout_ms: int, /) -> tuple[str, bytes, str]:
    """Call a tool and wait for its result: (status, content, kind) as docs/wire.md describes CALL_RESULT.

    May be called by several threads at once. An interrupt cancels the call and raises KeyboardInterrupt.
    """

def mcp_request(server: str, method: str, params: Buffer, timeout_ms: int, /) -> tuple[str, bytes, str]:
    """Send another request of MCP, such as resources/read, and wait for its result, as tool_call() does."""

def function_call(server: str, tool: str, arguments: Buffer, timeout_ms: int, /) -> tuple[str, bytes, str]:
    """Call a function of the host and wait for its result, as tool_call() does."""

def result_read(handle: int, offset: int, length: int, /) -> bytes:
    """Bytes of a result that stays with the tool server, 1 MiB at most. RuntimeError: it is gone."""

def result_free(handle: int, /) -> None:
    """This result is not read any more."""

class Calls:
    """Calls of one event loop. Any number may wait; above CG_MAX_CALLS they are sent in order.

    Calls without a result are cancelled when the object is closed or collected.
    """

    def fileno(self) -> int:
        """A descriptor that is readable when results() has some."""

    def start(self, server: str, tool: str, arguments: Buffer, timeout_ms: int, key: int, /) -> None:
        """Queue a call, under a key of the caller's own, from 1 on. ValueError: over a limit."""

    def request(self, server: str, method: str, params: Buffer, timeout_ms: int, key: int, /) -> None:
        """The same for mcp_request()."""

    def function(self, server: str, tool: str, arguments: Buffer, timeout_ms: int, key: int, /) -> None:
        """The same for function_call()."""

    def cancel(self, keys: list[int], /) -> None:
        """Cancel these calls at once: their servers, and hosts that are asked about them, are notified."""

    def results(self, into: list[tuple[int, tuple[str, bytes, str]]], /) -> None:
        """Append the calls that have ended since: the key, and what tool_call() returns."""

    def close(self) -> None:
        """Cancel all calls. start(), fileno() and results() raise RuntimeError from now on."""
