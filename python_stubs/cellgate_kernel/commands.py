"""Shell commands of cells: `!cmd` and `x = !cmd`.

Their standard input is /dev/null, so that a command that asks a question ends. Their output goes to
descriptors 1 and 2, which the kernel captures in order with all other output.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from cellgate_kernel import denials, streams


def _shell() -> str:
    return "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the command and its descendants, first with SIGINT. A further interrupt ends them at once."""
    try:
        for number, patience in ((signal.SIGINT, 0.3), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(process.pid, number)
                process.wait(patience)
                return
            except ProcessLookupError:
                process.wait()
                return
            except subprocess.TimeoutExpired:
                continue
    except BaseException:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        raise


def _status(code: int) -> int:
    """IPython's _exit_code: signals are negative, also where the shell reports 128 + n."""
    return -(code - 128) if code > 128 else code


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end. In a subshell's thread interrupts arrive only between two waits."""
    while not _in_main_thread():
        try:
            return process.wait(1.0)
        except subprocess.TimeoutExpired:
            continue
    return process.wait()


def _communicate(process: subprocess.Popen[bytes]) -> bytes:
    while not _in_main_thread():
        try:
            return process.communicate(timeout=0.1)[0]
        except subprocess.TimeoutExpired:
            continue
    return process.communicate()[0]


class _Command:
    """A running command. An interrupt ends it at any time, also before its process number is known."""

    def __init__(self, command: str, **options: Any) -> None:
        self._options = {"args": command, "shell": True, "executable": _shell(), "stdin": subprocess.DEVNULL, **options}
        self._lock = threading.Lock()
        self._started = threading.Event()
        self._unwanted = False
        self._process: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None

    def _start(self) -> None:
        try:
            process = subprocess.Popen(**self._options, start_new_session=True)
            process._sigint_wait_secs = 0  # type: ignore[attr-defined]  # its session gets no SIGINT
            with self._lock:
                self._process = process
                unwanted = self._unwanted
            if unwanted:
                _end_group(process)
        except BaseException as e:
            self._error = e
        self._started.set()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process in a thread of its own, because interrupts are raised only in the caller's."""
        _thread.start_new_thread(self._start, ())
        self._started.wait()
        if self._process is None:
            assert self._error is not None
            raise self._error
        return self._process

    def end(self) -> None:
        """End the command, now or as soon as its process has started."""
        with self._lock:
            self._unwanted = True
            process = self._process
        if process is not None:
            _end_group(process)


def run(command: str) -> int:
    """Run a command with the cell's output and return its status. An interrupt ends it."""
    if streams.is_captured(sys.stdout):  # %%capture and redirect_stdout must get the output
        code, text = get_output(command)
        sys.stdout.write(text)
        return _status(code)
    sys.stdout.flush()
    running = _Command(command)
    try:
        return _status(_wait(running.start()))
    except BaseException:
        running.end()
        raise


def get_output(command: str) -> tuple[int, str]:
    """Run a command; return its status, standard output and standard error."""
    running = _Command(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        process = running.start()
        out = _communicate(process)
    except BaseException:
        running.end()
        raise
    if process.returncode:
        denials.note_output(out)
    return process.returncode, out.decode("utf-8", "replace")
