r"""Regular expressions of JSON Schema (ECMA-262), as far as Python can run them in bounded time.

Patterns come from MCP servers, and Python's re has no time limit. Only a subset is run: characters,
classes, escapes, ^, $, \b, groups, alternatives and repeats, and a group is repeated a fixed number
of times at most. Other patterns, and patterns on long texts, are left to the MCP server to check.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import inf, isinf, prod

__all__ = ["matches"]

_STEPS = 10_000_000
"""Limit of the tokens that one check may try, over all ways of matching: about a second."""
_LENGTH = 5000
"""Most characters of a pattern."""
_CHOICES = 200
"""Most groups and repeats of a pattern, after repeated groups are written out."""
_SPACE = r"\s\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff\u2028\u2029"
_ESCAPE = r"\\(?:u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]+\}|x[0-9a-fA-F]{2}|c[A-Za-z]|0(?!\d)|[dDwWsSnrtfv]|\W)"
_TOKEN = re.compile(
    rf"""
      (?P<open> \( (?: \?: | \?<[A-Za-z_]\w*> | (?!\?) ) )
    | (?P<close> \) )
    | (?P<or> \| )
    | (?P<edge> [\^$] | \\[bB] )
    | (?P<set> \[ (?: [^\]\\] | \\. )* \] )
    | (?P<escape> {_ESCAPE} )
    | (?P<char> [^\\()[\]{{}}*+?|] )
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_SET = re.compile(f"{_ESCAPE}|.", re.DOTALL)
_REPEAT = re.compile(r"(?:(?P<sign>[*+?])|\{(?P<low>\d+)(?P<comma>,(?P<high>\d*))?\})\??")


def matches(pattern: str, text: str) -> bool | None:
    """Whether pattern matches somewhere in text; None when this is not checked."""
    compiled = _compile(pattern)
    if compiled is None:
        return None
    regex, power, factor = compiled
    if (len(text) + 1) ** power * factor > _STEPS:
        return None
    return regex.search(text) is not None


@lru_cache(500)
def _compile(source: str) -> tuple[re.Pattern[str], int, int] | None:
    """The pattern and its cost: up to factor * length ** power tokens. None: not in the subset."""
    try:
        translated, ways, tokens = _translate(source)
        regex = re.compile(translated, re.ASCII)
    except (re.error, ValueError, IndexError, OverflowError, RecursionError):
        return None
    power = sum(map(isinf, ways))
    factor = (1 + tokens) * prod(int(n) for n in ways if not isinf(n))
    return (regex, power, factor) if power <= 8 and factor <= _STEPS else None


def _translate(source: str) -> tuple[str, list[float], int]:
    """The pattern for Python, the number of ways of each choice in it, and the tokens of one way.

    Raises ValueError or IndexError for a pattern that is not in the subset.
    """
    out: list[str] = []
    ways: list[float] = [1]  # alternatives of groups and counts of repeats; inf: the text's length
    tokens = 0  # with fixed repetitions written out
    groups = [(0, 0)]  # open groups: their index in ways, and tokens at their start
    at = 0
    if len(source) > _LENGTH:
        raise ValueError("long")
    while at < len(source):
        token = _TOKEN.match(source, at)
        if token is None:
            raise ValueError("not in the subset")
        kind, text, at = token.lastgroup, token[0], token.end()
        group: tuple[int, int] | None = None
        if kind == "open":
            groups.append((len(ways), tokens))
            ways.append(1)
            out.append("(?:")
            continue
        if kind == "close":
            group = groups.pop()
        elif kind == "or":
            ways[groups[-1][0]] += 1
        else:
            tokens += 1 + len(text) // 32  # a set is searched one character after the other
        out.append(_translate_token(kind, text))
        repeat = _REPEAT.match(source, at)
        if repeat is not None:
            if kind in ("edge", "or"):
                raise ValueError("nothing to repeat")
            low, high = _bounds(repeat)
            if group is not None:
                start, before = group
                if isinf(high) or (len(ways) - start) * high > _CHOICES:
                    raise ValueError("repeated group")
                ways[start:] *= int(high)
                tokens = before + (tokens - before) * int(high)
            tokens += max(0, low - 1)
            ways.append(high - low + 1)
            out.append(repeat[0])
            at = repeat.end()
        if len(ways) > _CHOICES:
            raise ValueError("many choices")
    if len(groups) != 1:
        raise ValueError("open group")
    if not source.startswith("^") or ways[0] != 1:
        ways.append(inf)  # it may match from each character on
    return "".join(out), ways, tokens


def _bounds(repeat: re.Match[str]) -> tuple[int, float]:
    if repeat["sign"]:
        return {"*": (0, inf), "+": (1, inf), "?": (0, 1)}[repeat["sign"]]
    low = int(repeat["low"])
    if repeat["comma"] is None:
        return low, low
    return low, int(repeat["high"]) if repeat["high"] else inf


def _translate_token(kind: str | None, text: str) -> str:
    if text == "$":
        return r"\Z"
    if text == ".":
        return r"[^\n\r\u2028\u2029]"
    if kind == "escape":
        return {r"\s": f"[{_SPACE}]", r"\S": f"[^{_SPACE}]"}.get(text) or _escape(text)
    if kind == "set":
        if text == "[]":
            return "(?!)"
        if text == "[^]":
            return r"[\s\S]"
        start = "[^" if text.startswith("[^") else "["
        return start + _IN_SET.sub(_in_set, text[len(start) : -1]) + "]"
    return text


def _in_set(match: re.Match[str]) -> str:
    text = match[0]
    if text in ("\\", r"\S"):  # an escape that is not in the subset
        raise ValueError("escape in a set")
    if text == r"\s":
        return _SPACE
    # [ and doubled &, ~ and | are reserved in Python.
    return _escape(text) if len(text) > 1 else "\\" + text if text in "[&~|" else text


def _escape(text: str) -> str:
    char = text[1]
    if char in "ux":
        return re.escape(chr(int(text[2:].strip("{}"), 16)))
    if char == "c":
        return re.escape(chr(ord(text[2]) % 32))
    return text if char.isalnum() else re.escape(char)
