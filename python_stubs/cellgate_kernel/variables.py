"""The variables of the user's namespace as a debugger's view shows them: names, short values, and what is inside."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cellgate_kernel import errors

# What is shown of one value: characters of its repr(), and things inside.
_MAX_TEXT = 1000
_MAX_INSIDE = 1000
# Names that IPython puts there.
_HIDDEN = {"get_ipython", "exit", "quit", "In", "Out", "_oh", "_dh", "_ih", "open", "_", "__", "___"}
_HIDDEN_FORM = re.compile(r"__.*__|_\d+|_i+\d*")
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def is_shown(name: str) -> bool:
    """Whether a name is the user's own."""
    return name not in _HIDDEN and not _HIDDEN_FORM.fullmatch(name)


def _text(value: object) -> str:
    try:
        return errors.shorten(repr(value), _MAX_TEXT)
    except Exception as e:
        return f"<repr() raised {type(e).__name__}>"


class Explorer:
    """Gives numbers to values with something inside, for a front-end to ask about."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}
        self._numbers = itertools.count(1)

    def look(self, namespace: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The user's variables. Numbers given before are void."""
        self._values.clear()
        own = ((name, value) for name, value in list(namespace.items()) if is_shown(name))
        return [self._describe(name, value, name) for name, value in own]

    def children(self, number: int) -> list[dict[str, Any]]:
        """What is inside a value; nothing for a number that is not known."""
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
    """The object's own; properties are code that nobody has asked to run."""
    try:
        return {k: v for k, v in vars(value).items() if isinstance(k, str) and not k.startswith("__")}
    except Exception:
        return {}
