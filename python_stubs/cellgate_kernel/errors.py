"""Name, text and traceback of exceptions for messages, whatever methods of their classes do."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import traceback
from collections.abc import Callable, Iterator, Sequence
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
_PACKAGES = ("/site-packages/", "/dist-packages/")
_USER_CODE = ("<Cell In", "<string>", "<stdin>", "<ipython")
# Limits of a brief traceback: frames of the user at either end; characters of a line of code, of a
# frame, of the text of an exception, of a group of exceptions, and of an exception behind it.
_MAX_OWN = 4
_LONG_LINE = re.compile(r"(?m)^((?:-+> *| +)\d+ .{240}).+$")
_SIGNATURE = re.compile(r"(?m)^(File [^\n]*, in [^\n(]+)\([^\n]{60,}\)$")
_MAX_BLOCK = 2_000
_MAX_MESSAGE = 400
_MAX_GROUP = 600
_MAX_FOLDED = 200
# Most characters of the output of a program that failed.
_MAX_CAPTURED = 400


# Fewer characters are not left out: the note about them would be as long.
_MIN_CUT = 40


def shorten(text: str, limit: int = _MAX_TEXT) -> str:
    """Both ends of `text`, about `limit` characters, and the number of characters left out."""
    if len(text) <= limit + _MIN_CUT:
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


def captured(value: BaseException) -> list[str]:
    """The end of the output of a program that failed, which subprocess has captured and nobody has seen."""
    if not isinstance(value, (subprocess.CalledProcessError, subprocess.TimeoutExpired)):
        return []
    for name, text in (("standard error", value.stderr), ("standard output", value.output)):
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        if isinstance(text, str) and text.strip():
            return [f"The end of its {name}: {text.strip()[-_MAX_CAPTURED:]}"]
    return []


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


def is_library(frame: FrameType) -> bool:
    """Not of the user's code."""
    name = frame.f_code.co_filename
    if name.startswith("<"):  # generated code, unless the user's own code has made it
        return not name.startswith(_USER_CODE)
    if not name.startswith("/"):  # Cython's, in the folder of the library's build
        name = str(frame.f_globals.get("__file__"))
    return name.startswith(_STDLIB) or any(part in name for part in _PACKAGES)


class Brief:
    """Tracebacks for agents and terminals: the user's frames and the last one of each exception.

    A traceback through pandas takes more than 1,000 tokens, and an agent reads its first and last lines.
    """

    def __init__(self, left_out: int) -> None:
        self.left_out = left_out
        self._folded: list[BaseException] = []

    def shorten(self, tb: TracebackType | None) -> TracebackType | None:
        """`tb` with its first frame, which is IPython's own for cells, those of the user and the last one."""
        tb = _without_internal(tb)
        links = []
        while tb is not None:
            links.append(tb)
            tb = tb.tb_next
        own = [i for i, link in enumerate(links) if not is_library(link.tb_frame)]
        keep = {0, *own[:_MAX_OWN], *own[-_MAX_OWN:], len(links) - 1}
        short: TracebackType | None = None
        for i, link in reversed(list(enumerate(links))):
            if i in keep:
                short = TracebackType(short, link.tb_frame, link.tb_lasti, link.tb_lineno)
            else:
                self.left_out += 1
        return short

    @contextlib.contextmanager
    def without_library_errors(self, value: BaseException) -> Iterator[None]:
        """While formatting, hide the errors behind `value` that the user's code has not met."""
        chain = [value]
        while len(chain) < _MAX_DEPTH:
            e = chain[-1]
            behind = e.__cause__ or (None if e.__suppress_context__ else e.__context__)
            if behind is None or any(behind is known for known in chain):
                break
            chain.append(behind)
        last = max((i for i, e in enumerate(chain) if i == 0 or _has_own_frame(e)), default=0)
        end = chain[last]
        before = end.__cause__, end.__context__, end.__suppress_context__
        self._folded += chain[last + 1 :]
        self.left_out += sum(depth_of(e.__traceback__) for e in chain[last + 1 :])
        try:
            if chain[last + 1 :]:
                end.__cause__ = end.__context__ = None
            yield
        finally:
            end.__cause__, end.__context__, end.__suppress_context__ = before

    def lines(self, frames: list[str]) -> list[str]:
        """The formatted traceback, with short lines, and with one line for what is left out."""
        if frames and str(frames[0]).startswith("  + Exception Group"):  # one item for each line
            frames = ["\n".join(map(str, frames))]
        message = str(frames[-1]) if frames else ""
        frames = [shorten(_shorten_lines(str(frame)), _MAX_BLOCK) for frame in frames[:-1]]
        limit = _MAX_GROUP if message.startswith(" ") else _MAX_MESSAGE
        frames += [shorten(message, limit)] if message else []
        folded = [f"{name_of(type(e))}: {shorten(text_of(e), _MAX_FOLDED)}" for e in self._folded[:3]]
        if self.left_out:
            because = f", behind the error was {' after '.join(folded)}" if folded else ""
            s = "s" if self.left_out > 1 else ""
            frames.append(f"[{self.left_out:,} frame{s} left out{because}; %tb shows all]")
        elif len(message) > limit:
            frames.append("[%tb shows all]")
        return frames


def _has_own_frame(e: BaseException) -> bool:
    tb = e.__traceback__
    while tb is not None:
        if not is_library(tb.tb_frame) and not _is_internal(tb.tb_frame):
            return True
        tb = tb.tb_next
    return False


def _shorten_lines(text: str) -> str:
    if "\x1b" in text:
        return text
    header, *lines = text.split("\n")
    arrow = next((i for i, line in enumerate(lines) if line.startswith("-")), None)
    if arrow is not None and header.startswith("File ") and any(part in header for part in (_STDLIB, *_PACKAGES)):
        text = "\n".join([header, lines[arrow]])
    return _LONG_LINE.sub(r"\1 ...", _SIGNATURE.sub(r"\1(...)", text))


@contextlib.contextmanager
def user_frames(
    value: BaseException,
    tb: TracebackType | None,
    shorten: Callable[[TracebackType | None], TracebackType | None] = _without_internal,
) -> Iterator[TracebackType | None]:
    """While formatting, hide internal frames of `value` and its causes; yields `tb` without them.

    Afterwards debuggers find all frames. A `tb` of internal frames only is left unchanged.
    """
    before: list[tuple[BaseException, TracebackType]] = []
    todo: list[BaseException | None] = [value]
    shown = shorten(tb) or tb
    try:
        while todo and len(before) < _MAX_DEPTH:
            e = todo.pop()
            if e is None or e.__traceback__ is None or any(e is known for known, _ in before):
                continue
            before.append((e, e.__traceback__))
            e.__traceback__ = shown if e is value and tb is not None else shorten(e.__traceback__)
            if isinstance(e, BaseExceptionGroup):
                todo.extend(e.exceptions[:_MAX_DEPTH])
            todo.extend((e.__context__, e.__cause__))
        yield shown
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
