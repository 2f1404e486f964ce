"""The module that the kernel program has built in (src/kernel/module.c).

Functions that wait release the GIL and let signal handlers run. In a process that was forked from the kernel only the
write functions, flush() and forked() work; the others raise RuntimeError.
"""

from types import FrameType
from typing import NoReturn

def write_stdout(text: str, /) -> int:
    """Append to the cell's standard output; lone surrogates become U+FFFD. Waits while 4 MiB wait unread."""

def write_stderr(text: str, /) -> int:
    """The same for standard error."""

def write_bytes(is_stderr: bool, data: bytes | bytearray | memoryview, /) -> int:
    """Append bytes; what is not UTF-8 becomes U+FFFD."""

def flush() -> None:
    """Send now what else would wait some milliseconds for more text."""

def publish(kind: str, content: str, /) -> None:
    """Send rich output: `kind` is the Jupyter message's name, `content` its content as JSON text in ASCII.

    ValueError when the content is over the kind's limit.
    """

def ready(body: str, /) -> None:
    """Tell the supervisor that requests are served."""

def request_fd() -> int:
    """A descriptor that is readable while a request waits."""

def next_request(loop_fd: int, block: bool, /) -> tuple[int, str, bool, bool, bool] | None:
    """The next request: (cell, code, silent, store_history, allow_stdin); cell -1 asks to shut down.

    None when there is none: at once, or with `block` when `loop_fd` has become readable.
    """

def run_cell(cell: int, allow_stdin: bool, func: object, /) -> None:
    """Call func() as the running cell, then send what it returns as the body of EXECUTE_REPLY.

    Interrupts reach the main thread only in func(). There is exactly one reply, whatever func() does.
    """

def on_sigint(signum: int, frame: FrameType | None, /) -> None:
    """The handler of SIGINT: raises KeyboardInterrupt while a cell runs, does nothing otherwise."""

def forked() -> bool:
    """True in a process that was forked from the kernel."""

def exit(status: int, /) -> NoReturn:
    """Send what is queued and end the process."""

def input(content: str, /) -> str | None:
    """Send INPUT_REQUEST and wait for the line; None for end of file."""

def tool_call(server: str, tool: str, arguments: bytes, timeout_ms: int, /) -> tuple[str, bytes]:
    """Call a tool and wait for its result: (status, content) as docs/wire.md describes CALL_RESULT.

    May be called by several threads at once. An interrupt cancels the call and raises KeyboardInterrupt.
    """
