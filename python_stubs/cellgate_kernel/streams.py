"""sys.stdout, sys.stderr and sys.stdin of a kernel."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterable
from typing import Any

import _cellgate
from cellgate_kernel import parents, stdin


class RawStream(io.RawIOBase):
    """sys.stdout.buffer: accepts bytes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any, /) -> int:
        return _cellgate.write_bytes(self._fd == 2, data)

    def flush(self) -> None:
        _cellgate.flush()

    def close(self) -> None:
        """Does nothing: a text stream that a cell has made on it closes it at its end."""


class OutStream(io.TextIOBase):
    """A text stream that writes to the kernel's output queue. It cannot be closed."""

    name: str
    mode = "w"
    encoding = "utf-8"
    errors = "replace"
    line_buffering = True
    write: Callable[[str], int]

    def __init__(self, name: str, fd: int, write: Callable[[str], int]) -> None:
        self.name = name
        self._fd = fd
        self._raw = RawStream(fd)
        self.write = write  # a C function, without a Python frame below print()

    @property
    def buffer(self) -> RawStream:
        return self._raw

    set_parent = staticmethod(parents.set_parent)
    set_thread_parent = staticmethod(parents.set_thread_parent)
    reset_thread_parent = staticmethod(parents.reset_thread_parent)

    def _is_master_process(self) -> bool:
        return not _cellgate.forked()

    def writelines(self, lines: Iterable[str], /) -> None:  # type: ignore[override]
        self.write("".join(lines))

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return False

    def flush(self) -> None:
        _cellgate.flush()

    def reconfigure(self, **_options: Any) -> None:
        """Ignored: the stream is always UTF-8."""

    def close(self) -> None:
        """Does nothing: later cells need the stream."""


class InStream(io.TextIOBase):
    """Standard input: lines from the host if the cell may ask for input, else end of file."""

    name = "<stdin>"
    mode = "r"
    encoding = "utf-8"

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def isatty(self) -> bool:
        return False

    def readline(self, _size: int | None = -1, /) -> str:  # type: ignore[override]
        if not stdin.allowed():
            return ""
        line = stdin.ask("", password=False)
        return "" if line is None else line + "\n"

    def read(self, _size: int | None = -1, /) -> str:
        return "".join(iter(self.readline, ""))

    def close(self) -> None:
        """Does nothing."""


def install() -> None:
    """Install the streams."""
    out = OutStream("<stdout>", 1, _cellgate.write_stdout)
    err = OutStream("<stderr>", 2, _cellgate.write_stderr)
    sys.stdout = sys.__stdout__ = out  # type: ignore[misc, assignment]
    sys.stderr = sys.__stderr__ = err  # type: ignore[misc, assignment]
    sys.stdin = sys.__stdin__ = InStream()  # type: ignore[misc, assignment]


def flush() -> None:
    """Flush the streams that cells have put in place of these: what they buffer is the running cell's."""
    for stream in (sys.stdout, sys.stderr):
        if is_captured(stream):
            with contextlib.suppress(Exception):  # it may be anything
                stream.flush()


def is_captured(stream: object) -> bool:
    """True if code of the cell has replaced sys.stdout to collect output."""
    return not isinstance(stream, OutStream)
