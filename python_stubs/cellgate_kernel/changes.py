"""The variables that a cell has made, changed and deleted, for hosts that ask."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import islice
from typing import Any

from cellgate_kernel import errors, variables

# Most names of a list; longer names and names of types are cut.
_MAX_NAMES = 200
_MAX_TEXT = 200
# Only these exact types: a subclass could run code of the cell's, or claim any length.
_WITH_LENGTH = (str, bytes, bytearray, list, tuple, dict, set, frozenset)


def _size(value: object) -> dict[str, int]:
    """What is known of the size without running code of the value."""
    kind = type(value)
    if kind in _WITH_LENGTH:
        return {"length": len(value)}  # type: ignore[arg-type]
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    if array is not None and kind is array:
        return {"bytes": int(value.nbytes)}  # type: ignore[attr-defined]
    return {}


class Look:
    """The namespace before a cell. It keeps the values, so that no other gets the identity of one."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._before = self._shown(namespace)

    @staticmethod
    def _shown(namespace: Mapping[str, Any]) -> dict[str, tuple[Any, dict[str, int]]]:
        return {
            name: (value, _size(value))
            for name, value in list(namespace.items())
            if isinstance(name, str) and variables.is_shown(name)
        }

    def compare(self, namespace: Mapping[str, Any]) -> dict[str, Any]:
        """Names with types and sizes. Changed: bound to another object, or of another size."""
        now = self._shown(namespace)
        made = [name for name in now if name not in self._before]
        changed = [
            name
            for name, (value, size) in now.items()
            if name in self._before and (value is not self._before[name][0] or size != self._before[name][1])
        ]
        deleted = [name for name in self._before if name not in now]
        found: dict[str, Any] = {
            "made": [self._describe(name, *now[name]) for name in islice(made, _MAX_NAMES)],
            "changed": [self._describe(name, *now[name]) for name in islice(changed, _MAX_NAMES)],
            "deleted": [errors.shorten(name, _MAX_TEXT) for name in islice(deleted, _MAX_NAMES)],
        }
        left_out = sum(max(0, len(names) - _MAX_NAMES) for names in (made, changed, deleted))
        return found | {"left_out": left_out}

    @staticmethod
    def _describe(name: str, value: object, size: dict[str, int]) -> dict[str, Any]:
        return {
            "name": errors.shorten(name, _MAX_TEXT),
            "type": errors.name_of(type(value)),
            **size,
        }
