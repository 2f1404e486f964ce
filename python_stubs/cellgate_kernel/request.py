"""What the supervisor asks for: cells, other requests, and the end."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

CELL, OTHER, SHUTDOWN, INTERRUPT, CLOSE, CALL = 1, 2, 3, 4, 5, 6
MAIN, CONTROL = "", "control"


class BadRequest(Exception):
    """A request whose content is not what its type says."""


class Request(NamedTuple):
    """One request, as `_cellgate.next_request()` gives it."""

    kind: int
    id: int
    text: str
    """A cell's code; otherwise the request's type."""
    frames: tuple[bytes, ...]
    """A cell's extra; otherwise content and buffers."""
    silent: bool
    store_history: bool
    allow_stdin: bool
    warm: bool
    """The supervisor's own cell in a kernel that is started ahead: no trace of it is to be left."""
    offer: bool
    """A comm's message for a cell that waits: not to be handled after its end."""


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object; BadRequest when it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise BadRequest(f"{what} is not JSON: {e}") from None
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is not a JSON object")
    return value


_REQUIRED: Any = object()


def field(content: dict[str, Any], name: str, kind: type | tuple[type, ...], default: Any = _REQUIRED) -> Any:
    """A member of the content; BadRequest when it is missing without a default, or of another type."""
    value = content.get(name, default)
    if value is _REQUIRED:
        raise BadRequest(f'the content has no "{name}"')
    if value is default:
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join(k.__name__ for k in kinds)
        raise BadRequest(f'"{name}" is {type(value).__name__}, expected {names}')
    return value
