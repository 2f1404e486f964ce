"""Refusals of the sandbox that a cell met: the rule, and the setting that would allow the access.

Uncaught exceptions of cells are looked up in the sandbox's plan. The result is shown below the
traceback and sent to the host. At the end of a cell the same is done with lines of its output in
which a program or a caught exception reports an error of a file: the file system itself reports no
refusal. Such lines are the host's only; they are not shown here.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import _cellgate
from cellgate_kernel import jsontext

# The start of a sentence, by operation.
MARK = "[cellgate] "

# Most causes of an exception that are looked up, and most sentences.
_MAX_CHAIN = 64
_MAX_SENTENCES = 4
_MAX_FRAMES = 1000
# Most bytes at the end of a captured output that are looked at.
_MAX_OUTPUT = 8192

_FILE_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EBUSY})
_NETWORK_ERRORS = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH})
# Errors of name resolution without a network.
_NAME_ERRORS = frozenset({socket.EAI_AGAIN, socket.EAI_NONAME, socket.EAI_FAIL})

_VERBS = {
    "file-read": "reading",
    "file-write": "writing",
    "exec": "running",
    "network-outbound": "a connection to",
    "socket": "making a socket of the family",
}

# The way to get a network, for the reader of the sentences, by the session's front.
front = ""
_NETWORK = {
    "jupyter": "network.allowedDomains of a settings file, which `cellgate jupyter install --sandbox FILE` names",
    "mcp": "whoever starts `cellgate mcp serve` names hosts with --allow-host HOST; Python packages come by the tool "
    "install_package",
}

# The library's functions, before a cell can replace them.
_GETADDRINFO = socket.getaddrinfo.__code__
_CREATE_CONNECTION = socket.create_connection.__code__
_SOCKET = socket.socket.__init__.__code__
_EXECUTE_CHILD: CodeType = subprocess.Popen._execute_child.__code__  # type: ignore[attr-defined]


def _chain(value: BaseException) -> Iterator[OSError]:
    """`value` and its causes, as far as they are errors of the operating system."""
    todo: list[BaseException | None] = [value]
    seen: set[int] = set()
    while todo and len(seen) < _MAX_CHAIN:
        e = todo.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        if isinstance(e, OSError):
            yield e
        if isinstance(e, BaseExceptionGroup):
            todo.extend(e.exceptions[:_MAX_CHAIN])
        todo.extend((e.__context__, e.__cause__))


def _frames(e: BaseException) -> list[FrameType]:
    """The frames of its traceback, the innermost first."""
    frames: list[FrameType] = []
    tb = e.__traceback__
    while tb is not None and len(frames) < _MAX_FRAMES:
        frames.append(tb.tb_frame)
        tb = tb.tb_next
    return frames[::-1]


def _local(frames: list[FrameType], code: CodeType, name: str) -> Any:
    for frame in frames:
        if frame.f_code is code:
            return frame.f_locals.get(name)
    return None


def _target(frames: list[FrameType]) -> tuple[str, int]:
    """Host and port of a connection, from frames of the standard library; "" and 0 if unknown."""
    host, port = _local(frames, _GETADDRINFO, "host"), _local(frames, _GETADDRINFO, "port")
    if host is None:
        address = _local(frames, _CREATE_CONNECTION, "address")
        if isinstance(address, tuple) and len(address) >= 2:
            host, port = address[:2]
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    number = port if isinstance(port, int) and 0 <= port <= 65535 else 0
    return (host[:255] if isinstance(host, str) else ""), number


def _which(name: Any) -> Any:
    import shutil  # with what it imports, as much time of a first kernel as the rest of this module

    return shutil.which(name)


def _explain(operation: str, path: bytes, error: int) -> dict[str, Any] | None:
    """The rule for a path; the names of the user's home folder are those of the private one here."""
    found = _cellgate.explain(operation, path, error)
    home = os.fsencode(os.path.join(os.environ.get("HOME") or "/", ""))
    if found is None and error == errno.ENOENT and path.startswith(home) and operation != "file-write":
        found = _cellgate.explain("home", path[len(home) :], error)
    return found


def _of_file(e: OSError, frames: list[FrameType]) -> dict[str, Any] | None:
    exec_ = bool(frames) and frames[0].f_code is _EXECUTE_CHILD
    for name in (e.filename, e.filename2):
        if not isinstance(name, (str, bytes, os.PathLike)):
            continue
        path = os.fsencode((_which(name) if exec_ else None) or name)
        if not 0 < len(path) < 4096 or b"\0" in path:
            continue
        found = _explain("exec" if exec_ else "", path, e.errno or 0)
        if found is not None:
            return found
    return None


def _of_network(frames: list[FrameType]) -> dict[str, Any] | None:
    host, port = _target(frames)
    if host in ("localhost", "127.0.0.1", "::1"):
        return None
    found = _cellgate.explain("network-outbound", host.encode("utf-8", "replace"), 0)
    if found is not None:
        found["host"], found["port"] = found.pop("path"), port
    return found


def _lookup(e: OSError) -> dict[str, Any] | None:
    frames = _frames(e)
    if isinstance(e, socket.gaierror):
        return _of_network(frames) if e.errno in _NAME_ERRORS else None
    if e.errno in _NETWORK_ERRORS:
        return _of_network(frames)
    if e.errno == errno.EPERM and _local(frames, _SOCKET, "family") == socket.AF_UNIX:
        return _cellgate.explain("socket", b"AF_UNIX", 0)
    return _of_file(e, frames) if e.errno in _FILE_ERRORS else None


def _what(found: dict[str, Any]) -> str:
    what = found.get("path", found.get("host")) or "a host"
    return _plain(f"{what}:{found['port']}" if found.get("port") else what)


def _sentence(found: dict[str, Any], what: str) -> str:
    advice = found["how"]
    if found["rule"] == "no-network" and advice and advice.startswith("--allow-host"):  # there are no settings
        advice = _NETWORK.get(front, advice)
    how = f"; to allow it: {advice}" if advice else ""
    return f"{MARK}{_VERBS[found['operation']]} {what} is not allowed: {found['why']}{how}"


def _plain(text: str) -> str:
    """`text` on one line, without control characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:1000])


def _message(found: dict[str, Any]) -> dict[str, Any]:
    keys = ("operation", "rule", "setting", "path", "host", "port")
    return {k: found[k] for k in keys if found.get(k) is not None}


def _report(found: dict[str, Any], e: OSError) -> None:
    message = _message(found)
    if not isinstance(e, socket.gaierror):
        message["errno"] = e.errno
    # The host has a better report of these.
    if message["operation"] == "socket" or message["rule"] == "not-approved":
        return
    if message.get("path") or message.get("host"):
        _cellgate.publish("denied", jsontext.dumps({**message, "pid": os.getpid()}))


def explain(value: BaseException) -> list[str]:
    """A sentence for each reason for which the sandbox refused causes of `value`; reports them to the host."""
    seen: list[dict[str, Any]] = []
    reasons: dict[tuple[str, str, str], tuple[dict[str, Any], list[str]]] = {}
    for e in () if _cellgate.forked() else _chain(value):
        found = _lookup(e)
        if found is None or found in seen:
            continue
        seen.append(found)
        _report(found, e)
        reason = (found["operation"], found["why"], found["how"] or "")
        reasons.setdefault(reason, (found, []))[1].append(_what(found))
        if len(seen) == _MAX_SENTENCES:
            break
    return [_sentence(found, ", ".join(names)) for found, names in reasons.values()]


# Errors by which an access fails that the sandbox refuses.
_REFUSALS = {
    "file-read": (errno.EACCES, errno.ENOENT),
    "file-write": (errno.EROFS, errno.EACCES),
    "exec": (errno.EPERM, errno.EACCES),
    "network-outbound": (0,),
}


def why(operation: str, what: str) -> str:
    """Whether the sandbox refuses an access that nobody has tried: one sentence."""
    path = what
    if operation == "exec":
        path = _which(what) or what
    if operation != "network-outbound":
        path = os.path.abspath(os.path.expanduser(path))
    for error in _REFUSALS[operation] if "\0" not in path else ():
        found = _explain(operation, os.fsencode(path), error)
        if found is not None:
            return _sentence(found, _what(found)).removeprefix(MARK)
    return f"{_VERBS[operation]} {_plain(path)} is not refused by the sandbox; its own permissions may refuse it"


# ---------------------------------------------------------------- output

# Texts of errors that programs print, with the access and the errno that they mean: a read is only
# refused where the path is hidden. Init reports most writes that are refused (src/sandbox/inside/watch.h).
_TEXTS = (
    (b"ermission denied", "file-read", errno.EACCES),
    (b"o such file or directory", "file-read", errno.ENOENT),
    (b"ead-only file system", "file-write", errno.EROFS),
)
# Go's programs name a socket as in "dial unix /run/x: ..." and "unix:///run/x: ..."; init does not report the
# call with which they make it, since the C library makes the same one before each lookup of a user.
_SOCKET_PATH = re.compile(rb"""unix(?:://| )(/[^\s:'"\0]{1,200})""")
# Most lines of an output that are looked up.
_MAX_LINES = 100
_QUOTED = re.compile(rb"""'([^']+)'|"([^"]+)"|`([^'`]+)[`']|\xe2\x80\x98(.+?)\xe2\x80\x99""")
_WORD = re.compile(rb"""[^\s:;,()'"`\[\]]+""")
# Names of the error itself.
_ERROR = re.compile(rb"\[Errno \d+\]|\bE[A-Z]+\b")
_outputs: list[bytes] = []
# The hidden paths that audit events about reading were about in this cell: a caught exception and an
# empty list of files show nothing. Programs that cells start are not seen.
_MAX_READ = 32
_read: dict[str, dict[str, Any]] = {}
_hidden: frozenset[str] = frozenset()


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if len(_read) == _MAX_READ or (event == "open" and args[2] & os.O_ACCMODE):
        return
    path = os.fsdecode(args[0]) if type(args[0]) is bytes else args[0]
    if type(path) is not str or _hidden.isdisjoint(path.split("/")) or "\0" in path or len(path) >= 4096:
        return
    found = _cellgate.explain("file-read", os.fsencode(path), errno.EACCES)
    if found is not None:
        _read[found["path"]] = found


def note_output(text: object) -> None:
    """Keep the output of a failed program, which the cell may not print, for the end of the cell."""
    if isinstance(text, str):
        text = text[-_MAX_OUTPUT:].encode("utf-8", "replace")
    if isinstance(text, bytes) and len(_outputs) < _MAX_SENTENCES and not _cellgate.forked():
        _outputs.append(text[-_MAX_OUTPUT:])


def _paths(line: bytes, text: bytes) -> list[bytes]:
    """What the line may name as the path, the likeliest first: what is nearest to the error's text.

    cat: /etc/x: Permission denied; OSError: [Errno 30] Read-only file system: '/etc/x'
    """
    before, found, after = _ERROR.sub(b"", line).partition(text)
    if not found:
        return []
    before = before[:-1]  # the text's first letter
    quoted = [b"".join(m) for m in _QUOTED.findall(before)], [b"".join(m) for m in _QUOTED.findall(after)]
    words = _WORD.findall(before), [word for word in _WORD.findall(after) if b"/" in word]
    paths = [*quoted[0][-1:], *words[0][-1:], *quoted[1][:1], *words[1][:1]]
    return [os.path.expanduser(path) for path in paths if b"\0" not in path and len(path) < 4096]


def _of_line(line: bytes) -> dict[str, Any] | None:
    at = _SOCKET_PATH.search(line)
    if at and (b"ermission denied" in line or b"peration not permitted" in line):
        return _cellgate.explain("socket", at[1], 0)
    for text, operation, error in _TEXTS:
        for path in _paths(line, text):
            found = _explain(operation, path, error)
            if found is not None:
                return found
    return None


def explain_output() -> None:
    """Report to the host what the sandbox refused, as the cell's output tells it; at the end of a cell."""
    printed = _cellgate.error_lines()
    if not (printed or _outputs or _read):  # most cells
        return
    lines = printed.splitlines()
    for text in _outputs:
        lines += text.splitlines()
    _outputs.clear()
    refused = [*_read.values()]
    _read.clear()
    if _cellgate.forked():
        return
    for line in lines[:_MAX_LINES]:
        found = _of_line(line)
        if found is not None and found not in refused:
            refused.append(found)
    for found in refused:
        _cellgate.publish("denied", jsontext.dumps({**_message(found), "output": True}))


def _noting(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        if self.returncode:
            note_output(self.stderr)
            note_output(self.stdout)

    return __init__


# ---------------------------------------------------------------- installation


def _thread_ended(args: threading.ExceptHookArgs) -> None:
    threading.__excepthook__(args)
    if args.exc_value is None or isinstance(args.exc_value, SystemExit):
        return
    for sentence in explain(args.exc_value):
        print(sentence, file=sys.stderr)


def install() -> None:
    """Explain uncaught exceptions of threads too, which end no cell, and captured output of programs."""
    threading.excepthook = _thread_ended
    for kind in (subprocess.CompletedProcess, subprocess.CalledProcessError):
        kind.__init__ = _noting(kind.__init__)  # type: ignore[method-assign]


def watch_reads() -> None:
    """Look for paths that the sandbox's plan hides, once that is known."""
    global _hidden
    _hidden = frozenset(_cellgate.hidden())
    if _hidden:
        _cellgate.watch_reads(_audit)
