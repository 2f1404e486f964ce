"""_tools.json of generated packages."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["DATA", "load_package", "parse_json"]

DATA = "_tools.json"
_LOADED: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {}


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more digits than int() accepts
        return float(digits)


def parse_json(text: bytes | str) -> Any:
    """Parse JSON with lone surrogates, large integers or a byte order mark. ValueError, RecursionError."""
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig", "surrogatepass")
    return json.loads(text, parse_int=_integer)


def load_package(folder: str) -> dict[str, Any]:
    """{"server": name as registered, "tools": {tool: entry}}; read again when the package was replaced."""
    path = os.path.join(folder, DATA)
    status = os.stat(path)
    stamp = status.st_ino, status.st_mtime_ns, status.st_size
    loaded = _LOADED.get(path)
    if loaded is None or loaded[0] != stamp:
        with open(path, "rb") as file:
            loaded = stamp, parse_json(file.read())
        _LOADED[path] = loaded
    return loaded[1]
