"""Text of displays for agents: objects with a default repr are shown by their other forms.

Only sessions without a notebook use this; notebooks get all forms unchanged.
"""

from __future__ import annotations

import json
import re
from typing import Any

# The default repr() of objects, and that of IPython's pretty printer.
_DEFAULT_REPR = re.compile(r"<[\w.<>]+ object>|<[\w.<>]+(?: object)? at 0x[0-9a-f]+>")
# Most characters of the source that are read, and of the resulting text.
_MAX_SOURCE = 500_000
_MAX_TEXT = 100_000
# Most characters of a tag; further attributes are not read.
_MAX_TAG = 4096

_BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer "
        "form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section summary table tbody tfoot thead title tr ul",
    )
)
# Elements whose content is not text.
_SKIPPED = frozenset(("script", "style", "head", "template", "noscript", "metadata", "defs"))
_HEADINGS = {f"h{n}": "#" * n + " " for n in range(1, 7)}
_BLANKS = re.compile(r"[ \t\r\n\f]+")
# The text after a "<" that begins a tag.
_TAG = re.compile(r"<[/!?a-zA-Z]")


def _unescape(text: str) -> str:
    """`text` without character references, or unchanged if one has too many digits for int()."""
    import html  # its table is large

    try:
        return html.unescape(text)
    except ValueError:
        return text


class _Reader:
    """Collects the text of a document: blocks become lines, table cells are separated by bars.

    The standard library's parser takes quadratic time for malformed documents; this one takes linear
    time. A ">" in an attribute's value ends the tag.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lower = source.lower() if len(source.lower()) == len(source) else source
        self._parts: list[str] = []
        self._size = 0
        self._pre = 0
        self._cells = 0  # cells of the table row
        self._link = ""

    def _add(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._size += len(text)

    def _line(self) -> None:
        if self._parts and not self._parts[-1].endswith("\n"):
            self._add("\n")

    def _start(self, tag: str, attributes: str) -> None:
        if tag == "br":
            self._add("\n")
        elif tag in ("td", "th"):
            self._add(" | " if self._cells else "")
            self._cells += 1
        elif tag == "a":
            self._link = _attribute(attributes, "href")
        elif tag == "img":
            self._add(f"[image: {_attribute(attributes, 'alt') or 'without text'}]")
        elif tag in _BLOCKS:
            self._line()
            self._cells = 0
            self._pre += tag == "pre"
            self._add("- " if tag == "li" else _HEADINGS.get(tag, ""))

    def _end(self, tag: str) -> None:
        if tag == "a":
            if self._link.startswith(("http:", "https:", "mailto:")):
                self._add(f" ({self._link})")
            self._link = ""
        elif tag in _BLOCKS or tag == "text":
            self._line()
            self._pre -= tag == "pre" and self._pre > 0

    def _data(self, text: str) -> None:
        text = _unescape(text)
        if not self._pre:
            text = _BLANKS.sub(" ", text)
            if not self._parts or self._parts[-1].endswith(("\n", " ")):
                text = text.lstrip()
        self._add(text)

    def _tag(self, at: int) -> int:
        """Handle the tag that begins at `at`; returns the index after it, -1 at the end."""
        if self._source.startswith("<!--", at):
            end = self._source.find("-->", at)
            return end if end < 0 else end + 3
        end = self._source.find(">", at)
        if end < 0:
            return -1
        words = self._source[at + 1 : min(end, at + _MAX_TAG)].rstrip("/").split(None, 1)
        name = words[0].lower() if words else ""
        if name.startswith("/"):
            self._end(name[1:])
        elif name in _SKIPPED:
            return self._lower.find(f"</{name}", end)
        else:
            self._start(name, words[1] if len(words) > 1 else "")
        return end + 1

    def read(self) -> str:
        """The text."""
        at = 0
        while 0 <= at < len(self._source) and self._size < _MAX_TEXT:
            tag = _TAG.search(self._source, at)
            self._data(self._source[at : tag.start() if tag else None])
            at = self._tag(tag.start()) if tag else -1
        lines = [line.rstrip() for line in "".join(self._parts)[:_MAX_TEXT].split("\n")]
        kept = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
        return "\n".join(kept).strip("\n")


def _attribute(text: str, name: str) -> str:
    found = re.search(rf"""(?i)(?:^|\s){name}\s*=\s*("[^"]*|'[^']*|[^\s"'>]+)""", text)
    return _BLANKS.sub(" ", _unescape(found[1].strip("\"'"))) if found else ""


def from_html(source: str) -> str:
    """The text of an HTML or SVG document, about 100,000 characters at most; "" if none."""
    return _Reader(source[:_MAX_SOURCE]).read()


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}\n[... {len(text) - _MAX_TEXT} characters left out]"


def _from_svg(source: str) -> str:
    return f"[SVG image] {from_html(source)}".rstrip()


def _from_json(value: Any) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):
        return ""


def _text_of(data: dict[str, Any]) -> str:
    for kind in ("text/markdown", "text/latex"):
        if isinstance(source := data.get(kind), str) and source.strip():
            return _cut(source)
    if isinstance(source := data.get("text/html"), str) and (text := from_html(source)):
        return text
    if "application/json" in data and (text := _from_json(data["application/json"])):
        return _cut(text)
    if isinstance(source := data.get("image/svg+xml"), str):
        return _from_svg(source)
    return ""


def readable(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with a useful text/plain; `data` itself if it has one."""
    plain = data.get("text/plain")
    if plain is not None and not (
        isinstance(plain, str) and len(plain) < 500 and _DEFAULT_REPR.fullmatch(plain.strip())
    ):
        return data
    text = _text_of(data)
    return {**data, "text/plain": text} if text else data
