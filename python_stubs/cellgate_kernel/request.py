"""Requests of the supervisor: cells, other requests, and the end."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

CELL, OTHER, SHUTDOWN, INTERRUPT, CLOSE, CALL = 1, 2, 3, 4, 5, 6
MAIN, CONTROL = "", "control"


class BadRequest(Exception):
    """The content of a request does not fit its type."""


class Request(NamedTuple):
    """One request, as `_cellgate.next_request()` returns it."""

    kind: int
    id: int
    text: str
    """The code of a cell; the type of another request."""
    frames: tuple[bytes, ...]
    """The extra frame of a cell; content and buffers of another request."""
    silent: bool
    store_history: bool
    allow_stdin: bool
    warm: bool
    """The supervisor's own cell in a kernel that is started ahead: it must leave no trace."""
    offer: bool
    """A comm message for a waiting cell, not handled after the cell's end."""


def parse_object(data: bytes, what: str, **options: Any) -> dict[str, Any]:
    """The JSON object; BadRequest if it is none. `options` are those of json.loads()."""
    try:
        value = json.loads(data, **options)
    except (ValueError, RecursionError) as e:
        raise BadRequest(f"{what} is not JSON: {e}") from None
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is not a JSON object")
    return value


_REQUIRED: Any = object()


def field(content: dict[str, Any], name: str, kind: type | tuple[type, ...], default: Any = _REQUIRED) -> Any:
    """A member of the content; BadRequest if missing without a default or of another type."""
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
