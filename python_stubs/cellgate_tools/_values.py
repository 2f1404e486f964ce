"""Conversion of Python values to JSON, and UNSET for absent fields."""

from __future__ import annotations

import contextlib
import datetime
import enum
import math
import operator
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UNSET", "Unset", "WireError", "short", "to_wire"]


# The tool server refuses numbers of more than 1000 characters (CG_MAX_NUMBER), sign included.
_DIGITS = 999
_INTEGER_END: Final = 10**_DIGITS


class Unset:
    """The type of UNSET."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNSET"


UNSET: Final[Any] = Unset()
"""Not given. A field that is UNSET is not sent at all, while None is sent as null where the schema has null."""


class WireError(ValueError):
    """A Python value that has no JSON form. .path is its place (JSON pointer)."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path


def to_wire(value: Any, dump: Callable[[Any], Any], path: str = "") -> Any:
    """A copy of value that holds only dict, list, str, int, float, bool and None.

    Only objects with one obvious form as text or number are converted (paths, dates, enum members,
    integers of other libraries), and tuples become lists. dump converts a Model to its dict, other
    objects to UNSET. Raises WireError.
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return value
    if kind is int:
        return _integer(value, path)
    if isinstance(value, enum.Enum):
        return to_wire(value.value, dump, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise WireError(path, f"{value!r} cannot be sent: JSON has no such number")
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, dict):
        return _object(value, dump, path)
    if isinstance(value, (list, tuple)):
        return [to_wire(item, dump, f"{path}/{i}") for i, item in enumerate(value)]
    return _special(value, dump, path)


def _integer(value: int, path: str) -> int:
    if -_INTEGER_END < value < _INTEGER_END:
        return value
    raise WireError(path, f"an integer of more than {_DIGITS} digits cannot be sent: pass it as a string")


def _object(value: dict[Any, Any], dump: Callable[[Any], Any], path: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(key, enum.Enum):
            key = key.value
        if not isinstance(key, str):
            raise WireError(path, f"the key {key!r} is no string")
        if item is not UNSET:
            result[str.__str__(key)] = to_wire(item, dump, f"{path}/{key}")
    return result


def _special(value: Any, dump: Callable[[Any], Any], path: str) -> Any:
    if value is UNSET:
        raise WireError(path, "UNSET stands for a field that is not given; it cannot be an item of a list")
    plain = dump(value)
    if plain is not UNSET:
        return plain
    if isinstance(value, os.PathLike):
        text = os.fspath(value)
        if isinstance(text, str):
            return text
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if type(value).__name__ == "UUID":
        return str(value)
    with contextlib.suppress(TypeError):  # also of arrays, which have __index__()
        return _integer(operator.index(value), path)
    raise WireError(path, f"a {type(value).__name__} has no JSON form")


def short(value: Any, limit: int = 60) -> str:
    """Value as JSON for an error message, shortened."""
    import json

    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        text = f"<{type(value).__name__}>"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else text[: limit - 3] + "..."
