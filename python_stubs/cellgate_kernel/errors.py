"""Name, text and traceback of exceptions for messages, whatever methods of their classes do."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any

from cellgate_kernel import jsontext

# Most characters of an exception's text; some contain whole documents.
_MAX_TEXT = 16_384
# Most bytes of JSON of a traceback; the limit of the wire is 1 MiB.
_MAX_CONTENT = 900_000
# Most frames of a traceback. A recursion has a thousand; IPython takes 1 ms for each.
_MAX_DEPTH = 200
# Python 3.13 and later raise _IncompleteInputError for incomplete code; its base class is shown.
_INCOMPLETE = "_IncompleteInputError"
# Modules whose frames are hidden: those of the kernel and of tool calls.
_INTERNAL = ("cellgate_kernel", "cellgate_tools", "mcptools")
_STDLIB = os.path.dirname(traceback.__file__) + "/"


def shorten(text: str, limit: int = _MAX_TEXT) -> str:
    """Both ends of `text`, about `limit` characters, and the number of characters left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def name_of(etype: type) -> str:
    """The exception's name for the reply."""
    try:
        name = str(etype.__name__)
        return "SyntaxError" if name == _INCOMPLETE else shorten(name, 200)
    except BaseException:  # a metaclass can make this raise
        return "BaseException"


def text_of(value: object) -> str:
    """str() of an exception, or a substitute if that raises."""
    try:
        return shorten(str(value))
    except BaseException as e:
        return f"<text of {name_of(type(value))} not available: its __str__ raised {name_of(type(e))}>"


def depth_of(tb: TracebackType | None) -> int:
    """The number of frames of a traceback."""
    n = 0
    while tb is not None:
        n, tb = n + 1, tb.tb_next
    return n


def _short_chain(tb: TracebackType) -> TracebackType:
    links = []
    link: TracebackType | None = tb
    while link is not None:
        links.append(link)
        link = link.tb_next
    if len(links) <= _MAX_DEPTH:
        return tb
    half = _MAX_DEPTH // 2
    short: TracebackType | None = None
    for link in reversed([*links[:half], *links[-half:]]):
        short = TracebackType(short, link.tb_frame, link.tb_lasti, link.tb_lineno)
    assert short is not None
    return short


def short_traceback(value: BaseException, tb: TracebackType | None) -> TracebackType | None:
    """Shorten `tb` and those of `value`'s causes: formatting a million frames takes minutes."""
    seen: set[int] = set()
    link: BaseException | None = value
    while link is not None and id(link) not in seen and len(seen) < _MAX_DEPTH:
        seen.add(id(link))
        if link.__traceback__ is not None:
            link.__traceback__ = _short_chain(link.__traceback__)
        link = link.__cause__ or link.__context__
    return None if tb is None else _short_chain(tb)


def _is_internal(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in _INTERNAL


def _without_internal(tb: TracebackType | None) -> TracebackType | None:
    """`tb` without internal frames, and without those of the standard library between them."""
    links = []
    while tb is not None:
        links.append(tb)
        tb = tb.tb_next
    internal = [i for i, link in enumerate(links) if _is_internal(link.tb_frame)]
    if not internal:
        return links[0] if links else None
    first, last = internal[0], internal[-1]
    short: TracebackType | None = None
    for i, link in reversed(list(enumerate(links))):
        between = first <= i <= last and link.tb_frame.f_code.co_filename.startswith(_STDLIB)
        if not between and not _is_internal(link.tb_frame):
            short = TracebackType(short, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return short


@contextlib.contextmanager
def user_frames(value: BaseException, tb: TracebackType | None) -> Iterator[TracebackType | None]:
    """While formatting, hide internal frames of `value` and its causes; yields `tb` without them.

    Afterwards debuggers find all frames. A traceback of internal frames only is left unchanged.
    """
    before: list[tuple[BaseException, TracebackType]] = []
    todo: list[BaseException | None] = [value]
    try:
        while todo and len(before) < _MAX_DEPTH:
            e = todo.pop()
            if e is None or e.__traceback__ is None or any(e is known for known, _ in before):
                continue
            before.append((e, e.__traceback__))
            e.__traceback__ = _without_internal(e.__traceback__) or e.__traceback__
            if isinstance(e, BaseExceptionGroup):
                todo.extend(e.exceptions[:_MAX_DEPTH])
            todo.extend((e.__context__, e.__cause__))
        yield _without_internal(tb) or tb
    finally:
        for e, whole in before:
            e.__traceback__ = whole


def plain_traceback(etype: type[BaseException], value: BaseException, tb: TracebackType | None) -> list[str]:
    """The traceback as the standard library formats it, or part of it if that raises."""
    try:
        return "".join(traceback.format_exception(etype, value, short_traceback(value, tb))).splitlines()
    except BaseException:
        return [f"{name_of(etype)}: {text_of(value)}"]


def content(etype: type, value: object, frames: list[str], notes: Sequence[str] = ()) -> str:
    """The content of an `error` message, as JSON text; `notes` follow the traceback."""
    lines = [str(f).replace(_INCOMPLETE, "SyntaxError") if isinstance(value, SyntaxError) else str(f) for f in frames]
    message: dict[str, Any] = {
        "ename": name_of(etype),
        "evalue": "\n".join([text_of(value), *notes]),
        "traceback": [*lines, *notes],
    }
    text = jsontext.dumps(message)
    if len(text) > _MAX_CONTENT:
        message["traceback"] = [shorten(f, 4096) for f in _ends(message["traceback"], 16)]
        message["evalue"] = shorten(message["evalue"], 2048)
        text = jsontext.dumps(message)
    return text


def _ends(items: list[str], n: int) -> list[str]:
    if len(items) <= 2 * n:
        return items
    return [*items[:n], f"[... {len(items) - 2 * n} frames left out ...]", *items[-n:]]
