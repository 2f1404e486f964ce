"""Programs and files of the host, outside of any sandbox: an MCP server for cellgate (docs/host-web.md).

Nothing here asks anybody: cellgate registers this server as any other, so that each call waits for an approval, by its
policy and with a record in its audit log. A program that calls these functions itself has to ask first.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import ctypes
import errno
import itertools
import os
import pwd
import re
import secrets
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult

from cellgate import protected_name
from cellgate.surfaces._options import Options
from cellgate.surfaces._serve import RefusedError, answer

TIMEOUT = 120.0
TIMEOUT_MAX = 3600.0
OUTPUT_MAX = 1 << 20
READ_DEFAULT = 1_000_000
FILE_MAX = 16 << 20
LIST_MAX = 1000
SCAN_MAX = 100_000
PATTERNS_MAX = 100
# Means the same to every shell and to none. As in src/policy/argv.c.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-]+( +[A-Za-z0-9_@%+=:,./-]+)*")
_PATTERN = re.compile(r"[A-Za-z0-9_@%+:,./-]+( +[A-Za-z0-9_@%+=:,./*?-]+)*")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# File systems without files: devices, other processes' memory and variables, settings of the kernel.
_PSEUDO = ("/proc", "/sys", "/dev")

_libc = ctypes.CDLL(None, use_errno=True)
_SYS_OPENAT2 = 437
_NO_LINKS = 0x02 | 0x04  # RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


# ------------------------------------------------------------------ programs


def plain_words(command: str) -> list[str] | None:
    """The program and the arguments that a command without shell syntax has; None: it is a line for a shell."""
    return command.split() if _PLAIN.fullmatch(command) else None


def environment() -> dict[str, str]:
    """The variables of programs: those of the account, none of the server's."""
    account = pwd.getpwuid(os.getuid())
    names = {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name}
    return {**names, "PATH": _PATH, "SHELL": "/bin/sh", "LANG": "C.UTF-8", "TERM": "dumb"}


class _Output:
    """What a program writes, up to OUTPUT_MAX bytes of both streams together."""

    def __init__(self) -> None:
        self.texts: dict[int, bytearray] = {}
        self.left = OUTPUT_MAX
        self.truncated = False

    def read(self, fd: int) -> bool:
        """False: there is nothing more for now, or ever."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        text = self.texts.setdefault(fd, bytearray())
        text += data[: self.left]
        self.truncated |= len(data) > self.left
        self.left -= min(self.left, len(data))
        if not data:
            asyncio.get_running_loop().remove_reader(fd)
        return bool(data)

    def text(self, fd: int) -> str:
        return self.texts.get(fd, bytearray()).decode(errors="replace")


async def host_exec(
    command: str | None = None, argv: list[str] | None = None, cwd: str | None = None, timeout: float = TIMEOUT
) -> dict[str, Any]:
    """Runs a program: `exit_code` (negative: a signal), `stdout`, `stderr`, `timed_out`, `truncated`, `duration_ms`.

    `argv` is the program and its arguments; `command` the same as one text, or else a line for /bin/sh. `cwd` is the
    home folder by default. After `timeout` seconds, and when the program has ended, its process group is killed.
    """
    if (command is None) == (argv is None) or argv == []:
        raise RefusedError("host_exec takes either argv, a list with the program first, or command")
    if not 0 < timeout <= TIMEOUT_MAX:
        raise RefusedError(f"timeout {timeout:g} is not between 0 and {TIMEOUT_MAX:g} s")
    words = argv or plain_words(command or "") or ["/bin/sh", "-c", command or ""]
    if any("\0" in word for word in words):
        raise RefusedError("arguments cannot contain NUL")
    if "/" in words[0] and not words[0].startswith("/"):
        raise RefusedError(f"{words[0]}: a program is a name of {_PATH} or an absolute path")
    env, begin = environment(), time.monotonic()
    # The folder that is opened here, whatever has its name later.
    folder = _open(env["HOME"] if cwd is None else cwd, os.O_PATH | os.O_DIRECTORY)
    try:
        place, pipe = f"/proc/{os.getpid()}/fd/{folder}", subprocess.PIPE
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=place, env=env, start_new_session=True
        )
    except OSError as e:
        raise RefusedError(f"{words[0]}: {e.strerror}") from None
    finally:
        os.close(folder)
    assert child.stdout and child.stderr
    pipes, output = (child.stdout.fileno(), child.stderr.fileno()), _Output()
    loop, pidfd = asyncio.get_running_loop(), -1
    ended, timed_out = asyncio.Event(), False
    try:
        pidfd = os.pidfd_open(child.pid)
        loop.add_reader(pidfd, ended.set)
        for fd in pipes:
            os.set_blocking(fd, False)
            loop.add_reader(fd, output.read, fd)
        await asyncio.wait_for(ended.wait(), timeout)
    except TimeoutError:
        timed_out = True
    except OSError as e:
        raise RefusedError(f"{words[0]}: {e.strerror}") from None
    finally:
        if pidfd >= 0:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        for fd in pipes:
            loop.remove_reader(fd)
        reap: Callable[[], Any] = child.wait
        try:
            os.killpg(child.pid, signal.SIGKILL)  # it is not reaped yet, so the number is still its own
        except ProcessLookupError:
            pass
        except PermissionError:  # another user's, as of sudo: what has not ended goes on
            reap = child.poll
        reap()
        for fd in pipes:  # what is there; a process that left the group may keep it open
            while output.left and output.read(fd):
                pass
        child.stdout.close()
        child.stderr.close()
    return {
        "exit_code": child.returncode,
        "stdout": output.text(pipes[0]),
        "stderr": output.text(pipes[1]),
        "timed_out": timed_out,
        "truncated": output.truncated,
        "duration_ms": round((time.monotonic() - begin) * 1000),
    }


class Access:
    """What request_host_access() was granted in this session."""

    def __init__(self) -> None:
        self.patterns: list[str] = []

    async def request_host_access(self, pattern: str) -> dict[str, Any]:
        """The call was approved: cellgate accepts host_exec without a question where the pattern matches."""
        if not _PATTERN.fullmatch(pattern):
            raise RefusedError(
                "a pattern is a program and its arguments with single words, in which * matches any characters:"
                " shell syntax cannot be allowed in advance"
            )
        if len(self.patterns) >= PATTERNS_MAX:
            raise RefusedError(f"there are {PATTERNS_MAX} patterns already")
        if pattern not in self.patterns:
            self.patterns.append(pattern)
        return await self.list_host_access()

    async def list_host_access(self) -> dict[str, Any]:
        """The patterns of this session."""
        return {"approved": self.patterns, "rule": "all other calls are asked about, or decided by the host's policy"}


# ------------------------------------------------------------------ files


def _refuse_path(path: str, write: bool) -> None:
    if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path or path.startswith("//"):
        raise RefusedError(f"{path!r} is not an absolute path without `.`, `..`, double and last slashes")
    if any(path == p or path.startswith(p + "/") for p in _PSEUDO):
        raise RefusedError(
            f"{path} is in {path[: path.find('/', 1)] if path.count('/') > 1 else path}: no files of the host"
        )
    name = protected_name(path, write)
    if name:
        raise RefusedError(f"{path} is refused whatever is approved: {name} is in the table of docs/names.md")


def _open(path: str, flags: int) -> int:
    """Opens a path none of whose parts is a link."""
    if not path.startswith("/"):
        raise RefusedError(f"{path!r} is not an absolute path")
    how = _How(flags | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK, 0, _NO_LINKS)
    if flags & os.O_PATH:
        how.flags &= ~(os.O_NOCTTY | os.O_NONBLOCK)
    fd: int = _libc.syscall(_SYS_OPENAT2, -100, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if fd >= 0:
        return fd
    code = ctypes.get_errno()
    if code == errno.ELOOP:
        raise RefusedError(f"{path}: a part of it is a symbolic link; give the path that it leads to")
    raise RefusedError(f"{path}: {os.strerror(code)}")


def _read(path: str, offset: int, most: int) -> tuple[bytes, int]:
    """A part of a regular file, and the size of all."""
    _refuse_path(path, write=False)
    # A FIFO and a device must not be opened to find out what they are.
    seen = _open(path, os.O_PATH)
    try:
        if not stat.S_ISREG(os.fstat(seen).st_mode):
            raise RefusedError(f"{path} is not a regular file")
        fd = os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        raise RefusedError(f"{path}: {e.strerror}") from None
    finally:
        os.close(seen)
    with open(fd, "rb") as file:
        file.seek(offset)
        return file.read(most), os.fstat(fd).st_size


async def host_file_read(path: str, offset: int = 0, max_bytes: int = READ_DEFAULT) -> dict[str, Any]:
    """A part of a file: `text`, or `base64` where it is no UTF-8; `size` of all."""
    if offset < 0 or not 0 < max_bytes <= FILE_MAX:
        raise RefusedError(f"offset is 0 or more, max_bytes 1 to {FILE_MAX}")
    data, size = _read(path, offset, max_bytes)
    result: dict[str, Any] = {"path": path, "size": size, "truncated": offset + len(data) < size}
    try:
        return {**result, "text": data.decode()}
    except UnicodeDecodeError:
        return {**result, "base64": base64.b64encode(data).decode()}


def _write(path: str, data: bytes) -> dict[str, Any]:
    _refuse_path(path, write=True)
    if len(data) > FILE_MAX:
        raise RefusedError(f"a file has at most {FILE_MAX} bytes")
    folder_path, name = os.path.split(path)
    folder = _open(folder_path, os.O_PATH | os.O_DIRECTORY)
    own = f".cellgate-{secrets.token_hex(8)}"
    try:
        mode = 0o644
        with contextlib.suppress(FileNotFoundError):
            before = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(before.st_mode):
                raise RefusedError(f"{path} is not a regular file")
            mode = before.st_mode & 0o777
        fd = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                os.fchmod(fd, mode)
            os.rename(own, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(own, dir_fd=folder)
            raise
    except OSError as e:
        raise RefusedError(f"{path}: {e.strerror}") from None
    finally:
        os.close(folder)
    return {"path": path, "size": len(data)}


async def host_file_write(path: str, content: str, encoding: str = "utf-8") -> dict[str, Any]:
    """Makes or replaces a file, as a whole or not at all. `encoding` may be base64."""
    if encoding not in ("utf-8", "base64"):
        raise RefusedError("encoding is utf-8 or base64")
    try:
        data = content.encode() if encoding == "utf-8" else base64.b64decode(content, validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise RefusedError(f"content is no {encoding}") from None
    return _write(path, data)


async def host_file_list(path: str) -> dict[str, Any]:
    """What is in a folder: `entries` of `name`, `type` and `size`."""
    _refuse_path(path, write=False)
    fd = _open(path, os.O_RDONLY | os.O_DIRECTORY)
    kinds: list[tuple[Callable[[int], bool], str]] = [
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "link"),
    ]
    entries: list[dict[str, Any]] = []
    try:
        with os.scandir(fd) as found:
            names = sorted(entry.name for entry in itertools.islice(found, SCAN_MAX))
        for name in names[:LIST_MAX]:
            with contextlib.suppress(OSError):  # removed since
                st = os.stat(name, dir_fd=fd, follow_symlinks=False)
                kind = next((text for test, text in kinds if test(st.st_mode)), "other")
                shown = os.fsencode(name).decode(errors="backslashreplace")  # JSON has UTF-8 only
                entries.append({"name": shown, "type": kind, "size": st.st_size})
    finally:
        os.close(fd)
    return {"path": path, "entries": entries, "truncated": len(names) > LIST_MAX}


async def host_file_copy(source: str, destination: str, workspace: Path | None = None) -> dict[str, Any]:
    """Copies a file. A relative destination is in the workspace."""
    if not destination.startswith("/"):
        if workspace is None:
            raise RefusedError(f"{destination!r} is not an absolute path, and there is no workspace")
        destination = f"{workspace}/{destination}"
    _refuse_path(destination, write=True)
    data, size = _read(source, 0, FILE_MAX + 1)
    if size > FILE_MAX:
        raise RefusedError(f"{source} has {size} bytes; the maximum is {FILE_MAX}")
    return {"source": source, **_write(destination, data)}


# ------------------------------------------------------------------ the server


def build(options: Options) -> MCPServer[Any]:
    """The server."""
    server, access = MCPServer("host", version="cellgate", log_level="WARNING"), Access()

    @server.tool(
        name="host_exec",
        description="Run a program on the host, outside of the sandbox. Give argv, or command: words without shell"
        " syntax, or a line for /bin/sh. Each call is asked about.",
        structured_output=False,
    )
    async def run(
        command: str | None = None, argv: list[str] | None = None, cwd: str | None = None, timeout: float = TIMEOUT
    ) -> CallToolResult:
        return await answer(host_exec(command, argv, cwd, timeout), {})

    @server.tool(
        name="host_file_read", description="Read a file of the host, at an absolute path.", structured_output=False
    )
    async def read(path: str, offset: int = 0, max_bytes: int = READ_DEFAULT) -> CallToolResult:
        return await answer(host_file_read(path, offset, max_bytes), {})

    @server.tool(
        name="host_file_write",
        description="Make or replace a file of the host. encoding: utf-8 or base64.",
        structured_output=False,
    )
    async def write(path: str, content: str, encoding: str = "utf-8") -> CallToolResult:
        return await answer(host_file_write(path, content, encoding), {})

    @server.tool(name="host_file_list", description="List a folder of the host.", structured_output=False)
    async def list_files(path: str) -> CallToolResult:
        return await answer(host_file_list(path), {})

    @server.tool(
        name="host_file_copy",
        description="Copy a file of the host. A relative destination is in the workspace.",
        structured_output=False,
    )
    async def copy(source: str, destination: str) -> CallToolResult:
        return await answer(host_file_copy(source, destination, options.workspace), {})

    @server.tool(
        name="request_host_access",
        description="Ask to run programs on the host that match a pattern, such as `docker restart *`, without further"
        " questions in this session. * matches one argument.",
        structured_output=False,
    )
    async def request(pattern: str) -> CallToolResult:
        return await answer(access.request_host_access(pattern), {})

    @server.tool(name="list_host_access", description="List the patterns that were granted.", structured_output=False)
    async def list_access() -> CallToolResult:
        return await answer(access.list_host_access(), {})

    return server
