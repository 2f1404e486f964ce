"""Results of tools: content blocks, structured content, flags; for any content of the server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._data import json_of
from ._kept import LargeText
from ._values import UNSET, short

if TYPE_CHECKING:
    import os
    from typing import Self

__all__ = ["Audio", "Block", "Image", "Resource", "ResourceLink", "Text", "TextBlock", "ToolResult", "block_of"]


def _string(raw: Any, key: str) -> str | None:
    value = raw.get(key) if isinstance(raw, dict) else None
    return value if isinstance(value, str) else None


def _text(raw: Any, key: str) -> str | LargeText | None:
    value = raw.get(key) if isinstance(raw, dict) else None
    return value if isinstance(value, (str, LargeText)) else None


def _decoded(text: str | LargeText | None) -> bytes | None:
    import base64
    import binascii

    if text is None:
        return None
    try:
        return base64.b64decode(str(text))
    except (binascii.Error, ValueError):
        return None


class Block:
    """One content block. .kind is its "type", .raw all of it; .text, .data (bytes), .mime, .uri are None if absent."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.kind = _string(raw, "type") or "unknown"

    @property
    def _body(self) -> Any:
        return self.raw

    @property
    def text(self) -> str | LargeText | None:
        return _text(self._body, "text")

    @property
    def _base64(self) -> str | LargeText | None:
        return _text(self._body, "data") or _text(self._body, "blob")

    @property
    def data(self) -> bytes | None:
        return _decoded(self._base64)

    @property
    def mime(self) -> str | None:
        return _string(self._body, "mimeType")

    @property
    def uri(self) -> str | None:
        return _string(self._body, "uri")

    def save(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """Writes the data, or the text as UTF-8, to a file; returns path. Raises ValueError when there is neither."""
        encoded, text = self._base64, self.text
        if isinstance(text, LargeText):
            return text.save(path)
        if isinstance(encoded, LargeText):
            _save_base64(encoded, path)
            return path
        data = self.data
        if data is None:
            if text is None:
                raise ValueError(f"nothing to save in {self!r}")
            data = text.encode("utf-8", "surrogatepass")
        with open(path, "wb") as file:
            file.write(data)
        return path

    def __repr__(self) -> str:
        encoded, text = self._base64, self.text
        if isinstance(encoded, LargeText):
            size: str | None = f"{len(encoded) // 4 * 3 - encoded[-2:].count('=')} bytes"
        elif encoded is not None and (data := self.data) is not None:
            size = f"{len(data)} bytes"
        else:
            size = None if text is None else f"{len(text)} characters"
        return "[" + " ".join(part for part in (self.kind, self.mime, self.uri, size) if part) + "]"


def _save_base64(encoded: LargeText, path: str | os.PathLike[str]) -> None:
    import base64

    rest = ""
    with open(path, "wb") as file:
        for part in encoded.parts():
            rest += "".join(part.split())
            whole = len(rest) // 4 * 4
            file.write(base64.b64decode(rest[:whole]))
            rest = rest[whole:]
        file.write(base64.b64decode(rest))


class TextBlock(Block):
    """Text."""

    def __repr__(self) -> str:
        text = self.text
        return f"TextBlock(text={short(text, 200)})" if isinstance(text, str) else super().__repr__()


class _Media(Block):
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        if self.mime and "/" in self.mime and self.data:
            bundle[self.mime] = str(self._base64)
        return bundle


class Image(_Media):
    """An image; shown when it is the last expression of a cell."""


class Audio(_Media):
    """A sound."""


class Resource(Block):
    """A resource with its contents: .uri, .mime, and .text or .data."""

    @property
    def _body(self) -> Any:
        return self.raw.get("resource") if isinstance(self.raw, dict) else None


class ResourceLink(Block):
    """The address of a resource, without its contents: .uri."""


_BLOCKS: dict[str | None, type[Block]] = {
    "text": TextBlock,
    "image": Image,
    "audio": Audio,
    "resource": Resource,
    "resource_link": ResourceLink,
}


def block_of(raw: Any) -> Block:
    return _BLOCKS.get(_string(raw, "type"), Block)(raw)


def _shown_text(block: Block) -> str | LargeText | None:
    text = block.text if isinstance(block, (TextBlock, Resource)) else None
    return "" if text is None and isinstance(block, TextBlock) else text


class ToolResult:
    """The whole answer of a tool. Nothing of a large text is read before it is used.

    .content     list of Block
    .structured  structured content as plain JSON values; UNSET when there is none ({} and null are results)
    .text        the text blocks, joined by line ends
    .images .audio .resources .links    the other blocks
    .is_error    the tool says that it failed
    .meta        "_meta" of the answer, or None
    .raw         all of it
    """

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        content = raw.get("content")
        self.content = [block_of(block) for block in (content if isinstance(content, list) else ())]
        self.structured: Any = raw.get("structuredContent", UNSET)
        self.is_error = raw.get("isError") is True
        self.meta: Any = raw.get("_meta")

    @property
    def text(self) -> str:
        return "\n".join(str(block.text or "") for block in self.content if isinstance(block, TextBlock))

    @property
    def images(self) -> list[Image]:
        return [block for block in self.content if isinstance(block, Image)]

    @property
    def audio(self) -> list[Audio]:
        return [block for block in self.content if isinstance(block, Audio)]

    @property
    def resources(self) -> list[Resource]:
        return [block for block in self.content if isinstance(block, Resource)]

    @property
    def links(self) -> list[ResourceLink]:
        return [block for block in self.content if isinstance(block, ResourceLink)]

    def large(self) -> LargeText | None:
        """The text of a result that is nothing but one text of more than 1 MiB, else None."""
        text = self.content[0].text if len(self.content) == 1 else None
        return text if isinstance(text, LargeText) else None

    def summary(self, limit: int | None = None) -> str:
        """The text, that of embedded resources too, and a line for each other block.

        limit: most characters of each large text.
        """
        shown = ((block, _shown_text(block)) for block in self.content)
        return "\n".join(
            repr(block)
            if text is None
            else text[:limit] + "..."
            if limit and isinstance(text, LargeText)
            else str(text)
            for block, text in shown
        )

    def __repr__(self) -> str:
        content = ", ".join(map(repr, self.content))
        structured = "" if self.structured is UNSET else f", structured={short(self.structured, 200)}"
        return f"ToolResult(is_error={self.is_error}, content=[{content}]{structured})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return _bundle(self, repr(self))

    def _ipython_display_(self) -> None:
        _display(self, repr(self))


_MAX_SHOWN = 1 << 20


def _short_repr(text: str) -> str:
    """repr(), of very long texts that of the start."""
    return repr(text) if len(text) <= _MAX_SHOWN else f"{text[:1000]!r}... ({len(text)} characters)"


def _bundle(result: ToolResult, text: str) -> dict[str, Any]:
    """Shows the image of a result that has exactly one."""
    images = result.images
    bundle = images[0]._repr_mimebundle_() if len(images) == 1 else {}
    return {**bundle, "text/plain": text}


def _display(result: ToolResult, text: str) -> None:
    """Shows several images, for which one bundle has no place; IPython uses the bundle after the exception."""
    if len(result.images) < 2:
        raise NotImplementedError
    display: Any = import_module("IPython.display").display
    display({"text/plain": text}, raw=True)
    display(*result.images)


class Text(str):
    """What run() of tools without an output schema returns: the text, and a line for each block that is no text.

    .json() is the value of a text that is JSON. .result is all of the result; .content is the list of its blocks, as in
    MCP, .text the text of those that are text, and .images, .audio, .resources and .links are the others.
    """

    result: ToolResult

    def __new__(cls, text: str, result: ToolResult) -> Self:
        self = super().__new__(cls, text)
        self.result = result
        return self

    @property
    def content(self) -> list[Block]:
        return self.result.content

    @property
    def text(self) -> str:
        return self.result.text

    @property
    def images(self) -> list[Image]:
        return self.result.images

    @property
    def audio(self) -> list[Audio]:
        return self.result.audio

    @property
    def resources(self) -> list[Resource]:
        return self.result.resources

    @property
    def links(self) -> list[ResourceLink]:
        return self.result.links

    def json(self) -> Any:
        """The value of a text that is JSON. ValueError: it is none."""
        return json_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.result)

    if not TYPE_CHECKING:

        def __getitem__(self, key):
            if isinstance(key, str):
                raise TypeError(self._is_text(f"which has no key {key!r}"))
            return super().__getitem__(key)

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(self._is_text(f"which has no attribute {name!r}"))

        def _is_text(self, why):
            how = "; its value as JSON: r.json()" if self[:1] in ("{", "[") else ""
            return f"the result is a text (str), {why}{how}"

        def __await__(self):
            """For programs that wait for run() in place of arun(): the call was made."""
            return self
            yield

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return _bundle(self.result, _short_repr(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(_short_repr(self))  # IPython would take its printer of str

    def _ipython_display_(self) -> None:
        _display(self.result, _short_repr(self))
