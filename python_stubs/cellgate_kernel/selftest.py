"""Attempts of `cellgate selftest` inside of a kernel: calls without approval, forged messages.

A cell calls `selftest.run(NAME, ATTEMPT)`, which prints OUTCOME <tab> NOTE. The host counts the calls
that reach the tool, so the result does not depend on this code. It is not imported otherwise.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _cellgate

Verdict = tuple[str, str]
"""held, hole, works or fails, and a note."""

# Seconds before a decision is forged for a waiting call, and for a forged one to take effect.
_BEFORE_S = 0.15
_AFTER_S = 0.25


def run(name: str, attempt: Callable[[str], Verdict]) -> None:
    """Make one attempt and print the outcome."""
    try:
        outcome, note = attempt(name)
    except Exception as e:
        outcome, note = "fails", f"{type(e).__name__}: {e}"
    print(f"{outcome}\t{note}".replace("\n", " "), flush=True)


def _errno_name(e: OSError) -> str:
    return errno.errorcode.get(e.errno or 0, "an unknown error")


def _mark(text: str) -> Any:
    return importlib.import_module("mcptools.canary.mark").run(text=text)


# ---- calls


def refused(name: str) -> Verdict:
    """A call that the host refuses."""
    try:
        _mark(f"refuse:{name}")
    except Exception as e:
        return "held", type(e).__name__
    return "hole", "it returned as if it had been made"


def allowed(name: str) -> Verdict:
    """A call that the host approves."""
    _mark(f"allow:{name}")
    return "works", ""


def again(name: str) -> Verdict:
    """The same call twice; the host approves the first one only."""
    _mark(f"once:{name}")
    try:
        _mark(f"once:{name}")
    except Exception as e:
        return "held", f"the second one: {type(e).__name__}"
    return "hole", "the second one was made too"


def raw(name: str) -> Verdict:
    """A call without the generated modules."""
    status, content, _ = _cellgate.tool_call("canary", "mark", b'{"text": "refuse:' + name.encode() + b'"}', 0)
    return ("hole", "it was made") if b"marked" in content else ("held", status)


def changed(name: str) -> Verdict:
    """Overwrite the arguments in memory while the call waits for approval."""
    args = f'{{"text": "later:{name}"}}'.encode()
    evil = args.replace(b"later:", b"evil::")
    evil = evil[: -len(name) - 2] + b"x" * len(name) + b'"}'

    def overwrite() -> None:
        time.sleep(_BEFORE_S)
        ctypes.memmove(id(args) + bytes.__basicsize__ - 1, evil, len(evil))
        print("changed", flush=True)

    threading.Thread(target=overwrite, daemon=True).start()
    status, *_ = _cellgate.tool_call("canary", "mark", args, 0)
    return "held", status


def bad(server: str, tool: str, args: bytes) -> Callable[[str], Verdict]:
    """A call that must fail before approval; @NAME@ in the arguments is the attempt's name."""

    def attempt(name: str) -> Verdict:
        try:
            status, content, _ = _cellgate.tool_call(server, tool, args.replace(b"@NAME@", name.encode()), 0)
        except (ValueError, OverflowError) as e:
            return "held", type(e).__name__
        return ("hole", "it was made") if b"marked" in content else ("held", status)

    return attempt


# ---- programs


def _exit_status(start: Callable[[], Any]) -> int:
    """Of a fork that calls start(); 77: start() failed."""
    pid = os.fork()
    if pid == 0:
        try:
            start()
        finally:
            os._exit(77)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def program(name: str) -> Verdict:
    """Start a program in several ways, each of which the host refuses."""
    path, argv = "/bin/true", ["true", f"refuse:{name}"]

    def in_memory() -> None:
        fd = os.memfd_create("program")
        with open(path, "rb") as f:
            os.write(fd, f.read())
        os.execve(fd, argv, {})

    ways: dict[str, Callable[[], Any]] = {
        "execve": lambda: os.execve(path, argv, {}),
        "a descriptor": lambda: os.execve(os.open(path, os.O_RDONLY), argv, {}),
        "a file in memory": in_memory,
        "posix_spawn": lambda: os._exit(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(path, argv, {}), 0)[1])),
        "a shell": lambda: os._exit(os.waitstatus_to_exitcode(os.system(f"exit 0 # {name}"))),
    }
    ran = [way for way, start in ways.items() if _exit_status(start) == 0]
    return ("hole", f"it ran by {', '.join(ran)}") if ran else ("held", "")


def program_changed(name: str) -> Verdict:
    """Change the arguments in memory while the host is asked."""
    libc = ctypes.CDLL(None)
    argv = (ctypes.c_char_p * 4)(b"sh", f"later:{name}".encode(), None, None)
    none = (ctypes.c_char_p * 1)(None)

    def change() -> None:
        time.sleep(_BEFORE_S)
        argv[1:3] = [b"-c", b"exit 3"]

    def start() -> None:
        threading.Thread(target=change, daemon=True).start()
        libc.execve(b"/bin/sh", argv, none)

    pid = os.fork()
    if pid == 0:
        try:
            start()
        finally:
            os._exit(77)
    time.sleep(2 * _BEFORE_S + _AFTER_S)
    print("changed", flush=True)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return ("hole", "it ran") if status == 3 else ("held", f"status {status}")


# ---- forged messages


def _connections() -> list[socket.socket]:
    """Duplicates of the kernel's connected sockets."""
    found: list[socket.socket] = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            s = socket.socket(fileno=os.dup(int(fd)))
        except OSError:
            continue
        try:
            if s.family == socket.AF_UNIX and not s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                s.getpeername()
                found.append(s)
                continue
        except OSError:
            pass
        s.close()
    return found


def _frames(*frames: bytes) -> bytes:
    """Frames in ZMTP: each with flags (more, long) and length."""
    last = len(frames) - 1
    return b"".join(bytes([2 | (i < last)]) + struct.pack(">Q", len(f)) + f for i, f in enumerate(frames))


def message(
    version: int, wire: int, kind: int, body: bytes = b"", raw_frame: bytes | None = None, session: int = 1
) -> bytes:
    """A message of any wire, as in src/base/wire.h."""
    head = b"CG" + bytes([version, wire]) + struct.pack("<HHQQ", kind, 0, session, 1)
    return _frames(head, body, *([] if raw_frame is None else [raw_frame]))


def forge(data: bytes) -> Callable[[str], Verdict]:
    """Write these bytes to all connections while a call waits for its decision."""

    def attempt(name: str) -> Verdict:
        done: list[bool] = []

        def call() -> None:
            try:
                _mark(f"wait:{name}")
                done.append(True)
            except Exception:
                done.append(False)

        threading.Thread(target=call, daemon=True).start()
        time.sleep(_BEFORE_S)
        written = 0
        for s in _connections():
            s.setblocking(True)
            try:
                s.sendall(data)
                written += 1
            except OSError:
                pass
        time.sleep(_AFTER_S)
        if done == [True]:
            return "hole", "the call was made"
        return ("held", f"written to {written} connections") if written else ("fails", "there was no connection")

    return attempt


# ---- other sessions, the host


def private_file(path: str) -> Callable[[str], Verdict]:
    """A file of another session or the host must not exist here."""

    def attempt(name: str) -> Verdict:
        return ("hole", f"{path} is there") if Path(path).exists() else ("held", "not there")

    return attempt


def own_file(path: str) -> Callable[[str], Verdict]:
    """Make a file in the private /tmp; the host checks that it is not in its /tmp."""

    def attempt(name: str) -> Verdict:
        Path(path).write_text("x")
        return "held", "written into the kernel's own"

    return attempt


def in_memory(pattern: str) -> Callable[[str], Verdict]:
    """Search this process for a secret of the host. The pattern must not match its own text."""

    def attempt(name: str) -> Verdict:
        secret = re.compile(pattern.encode())
        regions = 0
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, perms = line.split()[:2]
            if "r" not in perms or "[v" in line:
                continue
            start, end = (int(x, 16) for x in span.split("-"))
            try:
                with open("/proc/self/mem", "rb") as f:
                    f.seek(start)
                    if secret.search(f.read(end - start)):
                        return "hole", f"in {line.split()[-1]}"
            except (OSError, OverflowError, MemoryError):
                continue
            regions += 1
        return "held", f"in none of {regions} regions"

    return attempt


def _write_into(folder: Path) -> Verdict:
    try:
        (folder / "cellgate_selftest_made.py").write_text("")
    except OSError as e:
        try:
            with open(next(folder.glob("*.py")), "a"):
                return "hole", "a module can be changed"
        except OSError:
            return "held", _errno_name(e)
    (folder / "cellgate_selftest_made.py").unlink()
    return "hole", f"{folder} can be written"


def modules(name: str) -> Verdict:
    """The generated modules of MCP servers."""
    package = importlib.import_module("mcptools.canary")
    return _write_into(Path(str(package.__file__)).parent)


def runtime(name: str) -> Verdict:
    """The Python modules of later kernels."""
    return _write_into(Path(__file__).parent)


def site(name: str) -> Verdict:
    """The packages that later kernels import."""
    return _write_into(Path(str(importlib.import_module("IPython").__file__)).parent)


def server_program(name: str) -> Verdict:
    """The folder of an MCP server's script: the script, other modules, and the folder's name."""
    folder, moved = Path("server"), Path("server-moved")
    script = folder / "run.sh"
    if not script.is_file():
        return "fails", f"{script.absolute()} is not there"
    try:
        folder.rename(moved)
    except OSError:
        pass
    else:
        moved.rename(folder)
        return "hole", f"{folder} can be renamed"
    try:
        with open(script, "a"):
            return "hole", f"{script} can be changed"
    except OSError:
        pass
    try:
        (folder / "cellgate_selftest_made").write_text("")
    except OSError as e:
        return "held", _errno_name(e)
    return "hole", f"{folder} can be written"


def _has_entries(path: str) -> bool:
    try:
        return bool(os.listdir(path))
    except OSError:
        return False


def folders(name: str) -> Verdict:
    """The folders of the supervisors' sockets."""
    places = ["/tmp", "/run", "/var/tmp", "/dev/shm", f"/run/user/{os.getuid()}"]
    for place in filter(os.path.isdir, places):
        for entry in os.listdir(place):
            if entry.startswith("cellgate-") and _has_entries(os.path.join(place, entry)):
                return "hole", f"{place}/{entry}"
    return "held", "none is there"


def descriptors(name: str) -> Verdict:
    """No open descriptor leads to a file or folder of the host."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/memfd:", "/tmp/")):
            return "hole", f"descriptor {fd}: {target}"
    return "held", "only its own sockets and pipes"


def kill_init(name: str) -> Verdict:
    """Pid 1 holds the sandbox together and reports how it ended."""
    try:
        os.kill(1, signal.SIGKILL)
    except OSError as e:
        return "held", _errno_name(e)
    return "held", "it has no effect on pid 1"


def others(name: str) -> Verdict:
    """Other sessions' kernels, the zygote, the supervisor."""
    here = {p for p in os.listdir("/proc") if p.isdigit()} - {"1", str(os.getpid())}
    alive = sorted(p for p in here if os.path.lexists(f"/proc/{p}/exe"))
    if alive:
        return "hole", f"{len(alive)} processes"
    return "held", "only pid 1 and this one"
