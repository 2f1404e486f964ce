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
"""Ways of matching that one check may try at worst, about a second."""
_REPEATS = 8
"""A repeat that can match more often counts as unbounded; also the highest power of a text's length that is run."""
_CACHE: dict[str, Pattern | None] = {}
_CACHE_SIZE = 500
_SPACE = r"\s\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff\u2028\u2029"


class Pattern:
    """A pattern that can be run. Matching can take the text's length to the power of cost[0], times cost[1], steps."""

    __slots__ = ("_cost", "_regex")

    def __init__(self, regex: re.Pattern[str], cost: tuple[int, int]) -> None:
        self._regex = regex
        self._cost = cost

    def allows(self, text: str) -> bool:
        """False when text certainly does not match."""
        power, factor = self._cost
        if len(text) ** power * factor > _STEPS:
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


def _cost(pattern: str) -> tuple[int, int] | None:
    """How many ways of matching there are at worst: length ** first * second; None: maybe exponentially many."""
    tree = import_module("re._parser").parse(pattern, re.ASCII)
    ways = _ways(tree)
    if ways is None:
        return None
    anchored = bool(len(tree)) and str(tree[0][0]) == "AT" and "BEGINNING" in str(tree[0][1])
    return max(1, ways[0] + (not anchored)), ways[1]


def _ways(tree: Any) -> tuple[int, int] | None:
    """Ways of things that follow each other: each may be combined with each."""
    power, factor = 0, 1
    for operation, value in tree:
        found = _ways_of(str(operation), value)
        if found is None:
            return None
        power += found[0]
        factor *= found[1]
        if power > _REPEATS or factor > _STEPS:
            return None
    return power, factor


def _ways_of(operation: str, value: Any) -> tuple[int, int] | None:
    if operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _ways_of_repeat(*value)
    if operation == "SUBPATTERN":
        return _ways(value[-1])
    if operation in ("ASSERT", "ASSERT_NOT"):
        return _ways(value[1])
    if operation == "BRANCH":
        branches = [_ways(branch) for branch in value[1]]
        known = [b for b in branches if b is not None]
        return (max(p for p, _ in known), sum(n for _, n in known)) if len(known) == len(branches) else None
    return (1, 1) if operation in ("GROUPREF", "GROUPREF_EXISTS") else (0, 1)


def _ways_of_repeat(low: int, high: int, body: Any) -> tuple[int, int] | None:
    """Rounds multiply: only a body with one way to match can be repeated without a limit, (a{1,3})* cannot."""
    found = _ways(body)
    many = high > _REPEATS and high != low
    if many or (found and found[0] and high > 1):
        if _delimited(list(body)):
            return 2, 1
        return (1, 1) if many and found == (0, 1) else None
    if found is None or (found[1] > 1 and high > _STEPS.bit_length()):
        return None
    return found[0] * high, sum(found[1] ** k for k in range(low, high + 1))


def _flat(items: list[Any]) -> list[Any]:
    """Without the groups that only bracket."""
    result: list[Any] = []
    for operation, value in items:
        result += _flat(list(value[-1])) if str(operation) == "SUBPATTERN" else [(operation, value)]
    return result


def _delimited(body: list[Any]) -> bool:
    """Whether repeating body cannot match one text in two ways, so that nested repeats do not multiply.

    So it is when each round begins or ends with a character that stands nowhere else in it, and the rest has one way to
    match: a-b-c by (-[a-z]+)*, host names by ([a-z0-9-]+[.])+, versions by ([.][0-9]+)*.
    """
    body = _flat(body)
    if len(body) < 2:
        return False
    for mark, rest in ((body[0], body[1:]), (body[-1], body[:-1])):
        if str(mark[0]) == "LITERAL" and _single_way(rest) and not any(_may_match(item, mark[1]) for item in rest):
            return True
    return False


def _single_way(items: list[Any]) -> bool:
    """Single characters and at most one repeat of variable length: then the text's length decides how it is matched."""
    variable = 0
    for operation, value in _flat(items):
        if str(operation) in ("LITERAL", "NOT_LITERAL", "IN"):
            continue
        if str(operation) not in ("MAX_REPEAT", "MIN_REPEAT"):
            return False
        low, high, body = value
        inner = _flat(list(body))
        single = len(inner) == 1 and str(inner[0][0]) in ("LITERAL", "NOT_LITERAL", "IN")
        optional = high == 1 and body.getwidth()[0] > 0 and _single_way(inner)
        if not single and not optional:
            return False
        variable += low != high
    return variable <= 1


def _may_match(item: Any, char: int) -> bool:
    operation, value = str(item[0]), item[1]
    if operation == "LITERAL":
        return bool(value == char)
    if operation == "NOT_LITERAL":
        return bool(value != char)
    if operation == "IN":
        negated = str(value[0][0]) == "NEGATE"
        return negated != any(_in_set(part, char) for part in value)
    if operation in ("MAX_REPEAT", "MIN_REPEAT"):
        return any(_may_match(inner, char) for inner in _flat(list(value[2])))
    return True


_CATEGORIES = {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w", "CATEGORY_SPACE": r"\s"}


def _in_set(part: Any, char: int) -> bool:
    operation, value = str(part[0]), part[1]
    if operation == "LITERAL":
        return bool(value == char)
    if operation == "RANGE":
        return bool(value[0] <= char <= value[1])
    if operation == "CATEGORY":
        name = str(value)
        hit = re.match(_CATEGORIES[name.replace("_NOT", "")], chr(char), re.ASCII) is not None
        return hit != ("_NOT" in name)
    return False
