"""Exceptions that the sandbox caused: which rule it was, and what would allow it.

An exception says what failed, not who refused. Those that reach the cell's end are looked up in the sandbox's plan;
what is found stands below the traceback, and the host is told. What code catches, and what other processes fail at, is
not seen here.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import _cellgate
from cellgate_kernel import jsontext

# What a sentence begins with.
MARK = "[cellgate] "

# Exceptions that one exception came from, and sentences about them.
_MAX_CHAIN = 64
_MAX_SENTENCES = 4
_MAX_FRAMES = 1000

_FILE_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EBUSY})
_NETWORK_ERRORS = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH})
# Where nobody answers questions about names.
_NAME_ERRORS = frozenset({socket.EAI_AGAIN, socket.EAI_NONAME, socket.EAI_FAIL})

_VERBS = {
    "file-read": "reading",
    "file-write": "writing",
    "exec": "running",
    "network-outbound": "a connection to",
    "socket": "making a socket of the family",
}

# Who reads the sentences: a session's front. What each can do about the network; others are told of the options.
front = ""
_NETWORK = {
    "jupyter": "network.allowedDomains of a settings file, which `cellgate jupyter install --sandbox FILE` names",
    "mcp": "whoever starts `cellgate mcp serve` names hosts with --allow-host HOST; Python packages come by the tool "
    "install_package",
}

# The library's own functions, before a cell could put others in their place.
_GETADDRINFO = socket.getaddrinfo.__code__
_CREATE_CONNECTION = socket.create_connection.__code__
_SOCKET = socket.socket.__init__.__code__
_EXECUTE_CHILD: CodeType = subprocess.Popen._execute_child.__code__  # type: ignore[attr-defined]


def _chain(value: BaseException) -> Iterator[OSError]:
    """The errors of the operating system that `value` came from, itself included."""
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
    """The frames that it went through, the innermost first."""
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
    """Host and port of a connection, as far as the standard library's frames know them; "" and 0 where they do not."""
    host, port = _local(frames, _GETADDRINFO, "host"), _local(frames, _GETADDRINFO, "port")
    if host is None:
        address = _local(frames, _CREATE_CONNECTION, "address")
        if isinstance(address, tuple) and len(address) >= 2:
            host, port = address[:2]
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    number = port if isinstance(port, int) and 0 <= port <= 65535 else 0
    return (host[:255] if isinstance(host, str) else ""), number


def _of_file(e: OSError, frames: list[FrameType]) -> dict[str, Any] | None:
    exec_ = bool(frames) and frames[0].f_code is _EXECUTE_CHILD
    for name in (e.filename, e.filename2):
        if not isinstance(name, (str, bytes, os.PathLike)):
            continue
        path = os.fsencode(name)
        if not 0 < len(path) < 4096 or b"\0" in path:
            continue
        found = _cellgate.explain("exec" if exec_ else "", path, e.errno or 0)
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


def _sentence(found: dict[str, Any]) -> str:
    what = found.get("path", found.get("host")) or "a host"
    if found.get("port"):
        what = f"{what}:{found['port']}"
    advice = found["how"]
    if found["rule"] == "no-network" and advice and advice.startswith("--allow-host"):  # no settings say so
        advice = _NETWORK.get(front, advice)
    how = f"; to allow it: {advice}" if advice else ""
    return f"{MARK}{_VERBS[found['operation']]} {_plain(what)} is not allowed: {found['why']}{how}"


def _plain(text: str) -> str:
    """On one line, with nothing that a terminal would obey."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:1000])


def _tell(found: dict[str, Any], e: OSError) -> None:
    keys = ("operation", "rule", "setting", "path", "host", "port")
    message = {k: found[k] for k in keys if found.get(k) is not None}
    if not isinstance(e, socket.gaierror):
        message["errno"] = e.errno
    # Of sockets, and of files that it has refused itself, init has told.
    told = message["operation"] == "socket" or (message["rule"] in ("name", "deny-write") and e.errno == errno.EACCES)
    if not told and (message.get("path") or message.get("host")):
        _cellgate.publish("denied", jsontext.dumps({**message, "pid": os.getpid()}))


def explain(value: BaseException) -> list[str]:
    """What of `value` the sandbox caused, a sentence each; the host is told of them."""
    sentences: list[str] = []
    if _cellgate.forked():
        return sentences
    for e in _chain(value):
        found = _lookup(e)
        if found is None:
            continue
        sentence = _sentence(found)
        if sentence not in sentences:
            sentences.append(sentence)
            _tell(found, e)
        if len(sentences) == _MAX_SENTENCES:
            break
    return sentences


def _thread_ended(args: threading.ExceptHookArgs) -> None:
    threading.__excepthook__(args)
    if args.exc_value is None or isinstance(args.exc_value, SystemExit):
        return
    for sentence in explain(args.exc_value):
        print(sentence, file=sys.stderr)


def install() -> None:
    """Explain what ends a thread, too; it ends no cell."""
    threading.excepthook = _thread_ended
