"""Results of tools: content blocks, structured content, flags; for any content of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._values import UNSET, short

if TYPE_CHECKING:
    import os

__all__ = ["Audio", "Block", "Image", "Resource", "ResourceLink", "Text", "TextBlock", "ToolResult"]


def _string(raw: Any, key: str) -> str | None:
    value = raw.get(key) if isinstance(raw, dict) else None
    return value if isinstance(value, str) else None


def _decoded(text: str | None) -> bytes | None:
    import base64
    import binascii

    if text is None:
        return None
    try:
        return base64.b64decode(text)
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
    def text(self) -> str | None:
        return _string(self._body, "text")

    @property
    def data(self) -> bytes | None:
        return _decoded(_string(self._body, "data") or _string(self._body, "blob"))

    @property
    def mime(self) -> str | None:
        return _string(self._body, "mimeType")

    @property
    def uri(self) -> str | None:
        return _string(self._body, "uri")

    def save(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """Writes the data, or the text as UTF-8, to a file; returns path. Raises ValueError when there is neither."""
        data = self.data
        if data is None:
            if self.text is None:
                raise ValueError(f"nothing to save in {self!r}")
            data = self.text.encode("utf-8", "surrogatepass")
        with open(path, "wb") as file:
            file.write(data)
        return path

    def __repr__(self) -> str:
        data, text = self.data, self.text
        size = f"{len(data)} bytes" if data is not None else f"{len(text)} characters" if text is not None else None
        return "[" + " ".join(part for part in (self.kind, self.mime, self.uri, size) if part) + "]"


class TextBlock(Block):
    """Text."""


class _Media(Block):
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        if self.mime and "/" in self.mime and self.data:
            bundle[self.mime] = _string(self.raw, "data")
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


class ToolResult:
    """The whole answer of a tool.

    .content     list of Block
    .structured  structured content as plain JSON values; UNSET when there is none ({} and null are results)
    .text        the text blocks, joined by line ends
    .is_error    the tool says that it failed
    .meta        "_meta" of the answer, or None
    .raw         all of it
    """

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        content = raw.get("content")
        self.content = [
            _BLOCKS.get(_string(block, "type"), Block)(block)
            for block in (content if isinstance(content, list) else ())
        ]
        self.structured: Any = raw.get("structuredContent", UNSET)
        self.is_error = raw.get("isError") is True
        self.meta: Any = raw.get("_meta")

    @property
    def text(self) -> str:
        return "\n".join(block.text or "" for block in self.content if isinstance(block, TextBlock))

    def summary(self) -> str:
        """The text, or, when there is none, a line for each other block."""
        if any(isinstance(block, TextBlock) for block in self.content):
            return self.text
        return "\n".join(map(repr, self.content))

    def __repr__(self) -> str:
        content = ", ".join(short(b.text, 200) if isinstance(b, TextBlock) else repr(b) for b in self.content)
        structured = "" if self.structured is UNSET else f", structured={short(self.structured, 200)}"
        return f"ToolResult(is_error={self.is_error}, content=[{content}]{structured})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return _bundle(self, repr(self))


def _bundle(result: ToolResult, text: str) -> dict[str, Any]:
    """Shows the image of a result that has exactly one."""
    images = [block for block in result.content if isinstance(block, Image)]
    bundle = images[0]._repr_mimebundle_() if len(images) == 1 else {}
    return {**bundle, "text/plain": text}


class Text(str):
    """The text of a result, returned by run() of tools without an output schema; .result is all of it."""

    result: ToolResult

    def __new__(cls, text: str, result: ToolResult) -> Text:
        self = super().__new__(cls, text)
        self.result = result
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Text, (str(self), self.result)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return _bundle(self.result, repr(self))
