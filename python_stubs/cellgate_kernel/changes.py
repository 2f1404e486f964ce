"""The variables that a cell has made, changed and deleted, for hosts that ask."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from cellgate_kernel import errors, variables

# Most names of a list; longer names and names of types are cut.
_MAX_NAMES = 200
_MAX_TEXT = 200
# Only these exact types: a subclass could run code of the cell's, or claim any length.
_WITH_LENGTH = frozenset((str, bytes, bytearray, list, tuple, dict, set, frozenset))
# The types among them whose size can change.
_GROWING = frozenset((bytearray, list, dict, set))


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
        # IPython keeps two names for each cell, so this is on the path of every cell: no function call for a name.
        array = getattr(sys.modules.get("numpy"), "ndarray", None)
        self._before = dict(namespace)
        self._sizes = {n: _size(v) for n, v in self._before.items() if type(v) in _GROWING or type(v) is array}

    def compare(self, namespace: Mapping[str, Any]) -> dict[str, Any]:
        """Names with types and sizes. Changed: bound to another object, or of another size."""
        before, now, none = self._before, dict(namespace), object()
        other = {n: None for n, v in now.items() if before.get(n, none) is not v}
        grown = {n for n, size in self._sizes.items() if now.get(n) is before[n] and _size(now[n]) != size}
        names = self._shown([n for n in now if n in other or n in grown] if grown else other)
        made = [n for n in names if n not in before]
        changed = [n for n in names if n in before]
        gone = len(before) + len(now.keys() - before.keys()) - len(now)
        deleted = self._shown([n for n in before if n not in now]) if gone else []
        found: dict[str, Any] = {
            "made": [self._describe(name, now[name]) for name in islice(made, _MAX_NAMES)],
            "changed": [self._describe(name, now[name]) for name in islice(changed, _MAX_NAMES)],
            "deleted": [errors.shorten(name, _MAX_TEXT) for name in islice(deleted, _MAX_NAMES)],
        }
        left_out = sum(max(0, len(names) - _MAX_NAMES) for names in (made, changed, deleted))
        return found | {"left_out": left_out}

    @staticmethod
    def _shown(names: Iterable[object]) -> list[str]:
        return [name for name in names if isinstance(name, str) and variables.is_shown(name)]

    @staticmethod
    def _describe(name: str, value: object) -> dict[str, Any]:
        return {
            "name": errors.shorten(name, _MAX_TEXT),
            "type": errors.name_of(type(value)),
            **_size(value),
        }
