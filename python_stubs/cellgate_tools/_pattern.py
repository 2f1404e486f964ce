"""Regular expressions of JSON Schema (ECMA-262) as Python patterns, and which of them are safe to run.

Python's re has no time limit, and patterns come from the server: one that could take exponential time is not run, and
one that could take polynomial time is not run on long text. A check that is left out means that the server decides.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

__all__ = ["Pattern", "compile_pattern"]

_STEPS = 10_000_000
"""Steps of the matcher that one check may take at worst, about 0.1 s."""
_REPEATS = 8
"""A repeat that can match more often than this counts as unbounded inside another one."""
_CACHE: dict[str, Pattern | None] = {}
_CACHE_SIZE = 500
_SPACE = r"\s\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff\u2028\u2029"


class Pattern:
    """A pattern that can be run. cost is the power of the text's length that matching can take."""

    __slots__ = ("_cost", "_regex")

    def __init__(self, regex: re.Pattern[str], cost: int) -> None:
        self._regex = regex
        self._cost = cost

    def allows(self, text: str) -> bool:
        """False when text certainly does not match."""
        if len(text) ** self._cost > _STEPS:
            return True
        return self._regex.search(text) is not None


def compile_pattern(source: str) -> Pattern | None:
    """The pattern, or None when Python has no equal for it or running it could take for ever."""
    if source not in _CACHE:
        if len(_CACHE) >= _CACHE_SIZE:
            _CACHE.clear()
        _CACHE[source] = _compile(source)
    return _CACHE[source]


def _compile(source: str) -> Pattern | None:
    if len(source) > 5000:
        return None
    try:
        translated = _Translator(source).run()
        cost = _cost(translated)
        return None if cost is None else Pattern(re.compile(translated, re.ASCII), cost)
    except (re.error, ValueError, IndexError, OverflowError, RecursionError):
        return None


class _Translator:
    """Walks through an ECMA-262 pattern once; raises ValueError where Python has no equal."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.out: list[str] = []
        self.in_class = False

    def run(self) -> str:
        while self.at < len(self.source):
            char = self.source[self.at]
            if char == "\\":
                self.escape()
            elif self.in_class:
                self.class_char(char)
            else:
                self.char(char)
        return "".join(self.out)

    def put(self, text: str, length: int) -> None:
        self.out.append(text)
        self.at += length

    def class_char(self, char: str) -> None:
        if char == "]":
            self.in_class = False
        # A bare [ or a doubled operator means itself in ECMA-262; Python keeps them for later use.
        self.put("\\" + char if char in "[&~|" else char, 1)

    def char(self, char: str) -> None:
        rest = self.source[self.at : self.at + 4]
        if rest.startswith("[^]"):
            self.put(r"[\s\S]", 3)
        elif rest.startswith("[]"):
            self.put("(?!)", 2)
        elif char == "[":
            self.in_class = True
            negated = rest.startswith("[^")
            self.put("[^" if negated else "[", 2 if negated else 1)
        elif char == "$":
            self.put(r"\Z", 1)
        elif char == ".":
            self.put(r"[^\n\r\u2028\u2029]", 1)
        elif rest.startswith("(?<") and rest[3:4] not in ("=", "!"):
            self.put("(?P<", 3)
        elif rest.startswith("(?") and rest[2:3] not in (":", "=", "!", "<"):
            raise ValueError("no such group")
        elif char == "+" and self.out and self.out[-1] in ("*", "+", "?", "}"):
            raise ValueError("nothing to repeat")  # Python would take it for a possessive repeat
        else:
            self.put(char, 1)

    def escape(self) -> None:
        char = self.source[self.at + 1]
        if char in "pP":
            raise ValueError("Unicode properties")
        if char == "u":
            self.code_point()
        elif char == "c":
            self.put(re.escape(chr(ord(self.source[self.at + 2]) % 32)), 3)
        elif char == "k":
            end = self.source.index(">", self.at)
            self.put(f"(?P={self.source[self.at + 3 : end]})", end + 1 - self.at)
        elif char == "s":
            self.put(_SPACE if self.in_class else f"[{_SPACE}]", 2)
        elif char == "S":
            if self.in_class:
                raise ValueError("everything but space in a class")
            self.put(f"[^{_SPACE}]", 2)
        elif char.isalnum() and char not in "bBdDwWnrtfvx0123456789":
            self.put(re.escape(char), 2)
        elif char.isalnum():
            self.put("\\" + char, 2)
        else:
            self.put(re.escape(char), 2)

    def code_point(self) -> None:
        braces = self.source[self.at + 2 : self.at + 3] == "{"
        end = self.source.index("}", self.at) if braces else self.at + 6
        digits = self.source[self.at + 3 : end] if braces else self.source[self.at + 2 : end]
        if not braces and len(digits) != 4:
            raise ValueError("unfinished escape")
        self.put(re.escape(chr(int(digits, 16))), end + braces - self.at)


def _cost(pattern: str) -> int | None:
    """The power of the text's length that matching takes at worst; None when it may be exponential."""
    tree = import_module("re._parser").parse(pattern, re.ASCII)
    repeats = _repeats(tree, False)
    if repeats is None:
        return None
    anchored = bool(len(tree)) and str(tree[0][0]) == "AT" and "BEGINNING" in str(tree[0][1])
    return max(1, repeats + (not anchored))


def _repeats(tree: Any, inside: bool) -> int | None:
    """How many unbounded repeats follow each other; None for an unbounded repeat in one, or an alternation in one."""
    total = 0
    for operation, value in tree:
        found = _repeats_of(str(operation), value, inside)
        if found is None:
            return None
        total += found
    return total


def _repeats_of(operation: str, value: Any, inside: bool) -> int | None:
    if operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        low, high, body = value
        many = high > _REPEATS and high != low
        if many and inside:
            return None
        found = _repeats(body, inside or many or high > _REPEATS)
        return None if found is None else found + many
    if operation == "SUBPATTERN":
        return _repeats(value[-1], inside)
    if operation in ("ASSERT", "ASSERT_NOT"):
        return _repeats(value[1], inside)
    if operation == "BRANCH":
        if inside:
            return None
        counts = [_repeats(branch, inside) for branch in value[1]]
        return None if None in counts else max(n for n in counts if n is not None)
    return 1 if operation in ("GROUPREF", "GROUPREF_EXISTS") else 0
