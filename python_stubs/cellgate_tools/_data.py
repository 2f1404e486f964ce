"""_tools.json of generated packages."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["DATA", "json_of", "load_package", "parse_json", "stamp"]

DATA = "_tools.json"
_LOADED: dict[str, tuple[tuple[int, int, int] | None, dict[str, Any]]] = {}


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more digits than int() accepts
        return float(digits)


_decode = json.JSONDecoder(parse_int=_integer).decode  # json.loads() would make a decoder for each text


def parse_json(text: bytes | str) -> Any:
    """Parse JSON with lone surrogates, large integers or a byte order mark. ValueError, RecursionError."""
    if isinstance(text, bytes):
        text = text.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogatepass")
    return _decode(text)


def json_of(text: str) -> Any:
    """The value of a text that is JSON. ValueError: it is none."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as e:
        start = ascii(text[:60]) + ("..." if len(text) > 60 else "")
        how = "; if it is Python's repr(), ast.literal_eval() reads it" if text[:2] in ("{'", "[{", "['", "[(") else ""
        raise ValueError(f"the text of this result is not JSON: {e}. It begins with {start}{how}") from None


def stamp(folder: str) -> tuple[int, int, int] | None:
    """Changes when the package in folder is replaced; None when there is none."""
    try:
        status = os.stat(os.path.join(folder, DATA))
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def load_package(folder: str) -> dict[str, Any]:
    """{"server": name as registered, "tools": {tool: entry}}; read again when the package was replaced.

    "functions": true if they are functions of the host.
    """
    now = stamp(folder)
    loaded = _LOADED.get(folder)
    if loaded is None or loaded[0] != now:
        with open(os.path.join(folder, DATA), "rb") as file:
            data = parse_json(file.read())
        loaded = _LOADED[folder] = (now, data)
    return loaded[1]
