"""Results that stay with the tool server because they are large. Their strings are read when they are needed.

C code reads the characters of a str directly, so no str can read its characters when they are needed. What run()
returns is therefore read whole; in the blocks of a ToolResult large strings are LargeText.
"""

from __future__ import annotations

import contextlib
import json
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._data import json_of, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LargeText", "drop", "parse"]

_PART = 1 << 20  # CG_MAX_RESULT_PART
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


class _Kept:
    """The handle of a result. The tool server keeps it as long as this object exists."""

    def __init__(self, handle: int) -> None:
        self.host = import_module("_cellgate")
        self.handle = handle

    def read(self, offset: int, length: int) -> bytes:
        parts = range(offset, offset + length, _PART)
        return b"".join(self.host.result_read(self.handle, i, min(_PART, offset + length - i)) for i in parts)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the interpreter
            self.host.result_free(self.handle)


class LargeText:
    """A large string of a result, which stays with the tool server. It is no str: str() gives all of it as one.

    len() and slices read what they need, parts() and save() one part after the other; methods of str read all of it.
    """

    def __init__(self, kept: _Kept, offset: int, length: int, width: int) -> None:
        self._kept = kept
        self._offset = offset
        self._length = length
        self._width = width

    def _read(self, start: int, stop: int) -> str:
        data = self._kept.read(self._offset + start * self._width, (stop - start) * self._width)
        return data.decode(_ENCODINGS[self._width], "surrogatepass")

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int | slice) -> str:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step != 1:
                return str(self)[index]
            return self._read(start, max(start, stop))
        index = range(self._length)[index]  # IndexError
        return self._read(index, index + 1)

    def parts(self) -> Iterator[str]:
        """The text in pieces of at most a million characters."""
        size = _PART // self._width
        for start in range(0, self._length, size):
            yield self._read(start, min(start + size, self._length))

    def __str__(self) -> str:
        return self._read(0, self._length)

    def __iter__(self) -> Iterator[str]:
        for part in self.parts():
            yield from part

    def __contains__(self, text: str) -> bool:
        return text in str(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return len(other) == self._length and str(self) == other
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<LargeText of {self._length} characters: {self[:60]!r}...>"

    def json(self) -> Any:
        """The value of a text that is JSON. ValueError: it is none."""
        return json_of(str(self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(str, name):
            raise AttributeError(f"LargeText has no attribute {name!r}; str() of it gives the whole text")
        return getattr(str(self), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def save(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """Writes the text to a file as UTF-8; returns path."""
        with open(path, "wb") as file:
            for part in self.parts():
                file.write(part.encode("utf-8", "surrogatepass"))
        return path


def _put(value: Any, texts: dict[str, LargeText], whole: bool) -> Any:
    """value with the texts in their places; whole: as str."""
    if isinstance(value, str):
        text = texts.get(value)
        return value if text is None else str(text) if whole else text
    if isinstance(value, list):
        return [_put(item, texts, whole) for item in value]
    if isinstance(value, dict):
        return {key: _put(item, texts, whole or key == "structuredContent") for key, item in value.items()}
    return value


def drop(payload: bytes) -> None:
    """Free a kept result that nobody gets."""
    _Kept(json.loads(payload.partition(b"\n")[0])["handle"])


def parse(payload: bytes) -> Any:
    """The answer of a kept result. ValueError, RecursionError."""
    line, _, skeleton = payload.partition(b"\n")
    head = json.loads(line)
    kept = _Kept(head["handle"])
    mark = os.urandom(16).hex()  # no string of the server is one of the marks
    texts, pieces, end = {}, [], 0
    for i, (position, offset, length, width) in enumerate(head["parts"]):
        name = f"{mark}-{i}"
        pieces += [skeleton[end:position], name.encode()]
        texts[name] = LargeText(kept, offset, length, width)
        end = position
    return _put(parse_json(b"".join([*pieces, skeleton[end:]])), texts, False)
