"""Variables of the user's namespace for a debugger: names, short values and members."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cellgate_kernel import errors

# Most characters of a value's repr(), and most members that are shown.
_MAX_TEXT = 1000
_MAX_INSIDE = 1000
# Names that IPython adds.
_HIDDEN = {"get_ipython", "exit", "quit", "In", "Out", "_oh", "_dh", "_ih", "open", "_", "__", "___"}
_HIDDEN_FORM = re.compile(r"__.*__|_\d+|_i+\d*")
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def is_shown(name: str) -> bool:
    """True if the user has defined the name."""
    return name not in _HIDDEN and not _HIDDEN_FORM.fullmatch(name)


def _text(value: object) -> str:
    try:
        return errors.shorten(repr(value), _MAX_TEXT)
    except Exception as e:
        return f"<repr() raised {type(e).__name__}>"


class Explorer:
    """Assigns numbers to values with members, by which a front-end requests these."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}
        self._numbers = itertools.count(1)

    def look(self, namespace: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The user's variables. Invalidates all earlier numbers."""
        self._values.clear()
        own = ((name, value) for name, value in list(namespace.items()) if is_shown(name))
        return [self._describe(name, value, name) for name, value in own]

    def children(self, number: int) -> list[dict[str, Any]]:
        """The members of a value; empty for an unknown number."""
        if number not in self._values:
            return []
        inside: Iterable[tuple[str, Any]] = self._inside(self._values[number])
        return [self._describe(name, value, None) for name, value in itertools.islice(inside, _MAX_INSIDE)]

    def _describe(self, name: str, value: Any, expression: str | None) -> dict[str, Any]:
        number = 0
        if self._has_inside(value):
            number = next(self._numbers)
            self._values[number] = value
        found = {"name": name, "value": _text(value), "type": type(value).__name__, "variablesReference": number}
        return found if expression is None else found | {"evaluateName": expression}

    def _has_inside(self, value: Any) -> bool:
        if isinstance(value, _PLAIN):
            return False
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            return bool(value)
        return bool(_attributes(value))

    def _inside(self, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            yield from ((_text(k), v) for k, v in list(value.items()))
        elif isinstance(value, (list, tuple, set, frozenset)):
            yield from ((str(i), v) for i, v in enumerate(list(value)))
        else:
            yield from sorted(_attributes(value).items())


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes of the object, without properties, which would run code."""
    try:
        return {k: v for k, v in vars(value).items() if isinstance(k, str) and not k.startswith("__")}
    except Exception:
        return {}
