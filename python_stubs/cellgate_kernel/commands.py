"""Shell commands of cells: `!cmd` and `x = !cmd`.

Their standard input is /dev/null, so that a command that asks a question ends. Their output goes to
descriptors 1 and 2, which the kernel captures in order with all other output.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from cellgate_kernel import streams


def _shell() -> str:
    return "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the command and its descendants, first with SIGINT."""
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


def run(command: str) -> int:
    """Run a command with the cell's output and return its status. An interrupt ends it."""
    if streams.is_captured(sys.stdout):  # %%capture and redirect_stdout must get the output
        code, text = get_output(command)
        sys.stdout.write(text)
        return _status(code)
    sys.stdout.flush()
    process = subprocess.Popen(
        command, shell=True, executable=_shell(), stdin=subprocess.DEVNULL, start_new_session=True
    )
    process._sigint_wait_secs = 0  # type: ignore[attr-defined]  # it is in another session, which gets no SIGINT
    try:
        return _status(_wait(process))
    except BaseException:
        _end_group(process)
        raise


def get_output(command: str) -> tuple[int, str]:
    """Run a command; return its status, standard output and standard error."""
    process = subprocess.Popen(
        command,
        shell=True,
        executable=_shell(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    process._sigint_wait_secs = 0  # type: ignore[attr-defined]
    try:
        out = _communicate(process)
    except BaseException:
        _end_group(process)
        raise
    return process.returncode, out.decode("utf-8", "replace")
