"""Regular expressions of schemas: those that are run mean what ECMA-262 says, and all end soon."""

from __future__ import annotations

from typing import Any

import pytest

MATCHES = [
    ("^abc$", "abc", "abc\n"),
    ("^\\d+$", "123", "\u0661"),
    ("b", "abc", "ac"),
    ("^\\w$", "a", "\u00e9"),
    ("^a.b$", "a\u00e9b", "a\u2028b"),
    ("^[^]$", "\n", "xx"),
    ("^\\u0041\\x42$", "AB", "ab"),
    ("^\\u{1F600}$", "\U0001f600", "x"),
    ("^\\cA$", "\x01", "A"),
    ("^\\s$", "\ufeff", "x"),
    ("^\\S$", "x", "\u00a0"),
    ("^[[]$", "[", "]"),
    ("^[a&&b]$", "&", "c"),
    ("^\\/\\-$", "/-", "x"),
    ("^(?:\\d{1,3}\\.){3}\\d{1,3}$", "10.0.0.1", "10.0.0.1234"),
    ("^(?<year>\\d{4})-\\d\\d$", "2024-12", "24-12"),
    ("^(?:a|b(?:c|d)?)$", "bd", "bcd"),
    ("^a|b$", "xb", "xa"),
    ("\\bab\\b", "x ab", "xab"),
    ("^[\\s\\d_-]+$", "1 -_\u00a0", "a"),
    ("^[^\\]x]$", "y", "]"),
    ("^[a-z0-9][a-z0-9_-]*$", "a_b", "_a"),
    ("^[^@\\s]+@[^@\\s]+\\.[^@\\s]+$", "a@b.c", "a@b"),
    ("[]", None, "x"),
]
UNCHECKED = [
    "(",
    "*a",
    "^\\p{L}+$",
    "a{2,1}",
    "\\",
    "a++",
    "(?i)a",
    "(?P<x>a)",
    "(a|b",
    "a)",
    "(?=a)b",
    "(?<!a)b",
    "^(?<y>\\d)\\k<y>$",
    "(a)\\1",
    "[\\p{L}]",
    "[\\S]",
    "^*a",
    "^(?:[a-z0-9-]+\\.)+[a-z]{2,}$",
    "^(?:[A-Za-z0-9+/]{4})*$",
    "(a|b|c){0,200}",
    "(a+)+$",
    "^(a|a)*$",
    "^(a|ab)*c$",
    "(.*)*x",
    "^((a?a?)*)*$",
    "(?:a*a*b)+$",
    "(?:a?a*\\.)+$",
    "(?:[a.]+\\.)+$",
    "^(a{1,3})*$",
    "^(?:aa?b?)*$",
    "^((a{0,8}){0,8}){0,8}$",
    "x" * 6000,
]
SLOW = [
    "^(a+)+$",
    "^(a|a)*$",
    "^(a*)*$",
    "a*a*a*a*a*a*b",
    "(?:a*a*b)+c",
    "^(?:(?:a{0,60})b?){0,60}$",
    ".*.*.*.*=.*",
    "^([a-zA-Z0-9])(([\\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
    "^(?:[a-z0-9-]+\\.)+[a-z]{2,}$",
    "^[a-z]+(?:-[a-z]+)*$",
    "(?:-[a-z]*)*!",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "^(aa?)*$",
    "^(?:a{0,8}a)*$",
    "(?:a{0,8}){0,8}(?:a{0,8}){0,8}$",
    "^(?:a|a|a|a|a|a|a|a){8}$",
    "^(?:(?:a|a){8}){8}$",
    "^(?:(?:a|a)?){60}$",
    "(?:a*){0,8}b",
]


@pytest.mark.parametrize(("pattern", "good", "bad"), MATCHES)
def test_meaning(pattern: str, good: str | None, bad: str) -> None:
    from cellgate_tools._pattern import matches

    assert good is None or matches(pattern, good) is True
    assert matches(pattern, bad) is False


@pytest.mark.parametrize("pattern", UNCHECKED)
def test_left_to_the_server(pattern: str) -> None:
    from cellgate_tools._pattern import matches

    assert matches(pattern, "a") is None


def test_long_texts_are_left_to_the_server() -> None:
    from cellgate_tools._pattern import matches

    assert matches("^a*b*c*$", "a" * 100) is True
    assert matches("^a*b*c*$", "a" * 1000) is None


def test_the_length_of_a_pattern_counts() -> None:
    """One way of matching may try each token of the pattern."""
    from cellgate_tools._pattern import matches

    pattern = "[ab]" * 1000 + "c"
    assert matches(pattern, "a" * 5000) is False
    assert matches(pattern, "a" * 100000) is None
    assert matches("(?:[ab][ab]){100}c", "a" * 100000) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "(a+)+$"},
        {"not": {"pattern": "(a+)+$"}},
        {"oneOf": [{"pattern": "(a+)+$"}, {"type": "string"}]},
        {"if": {"pattern": "(a+)+$"}, "then": False},
    ],
)
def test_unchecked_patterns_refuse_nothing(schema: dict[str, Any]) -> None:
    """It is unknown if these patterns match, so keywords around them must not depend on the result."""
    from cellgate_tools._schema import Schema

    assert Schema(schema).errors("b") == []


def test_unchecked_names_may_match() -> None:
    from cellgate_tools._schema import Schema

    named = {"patternProperties": {"(a+)+$": {"type": "integer"}}}
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        assert Schema({**named, keyword: False}).errors({"b": 1}) == []
        assert Schema({"patternProperties": {"^a$": {}}, keyword: False}).errors({"b": 1}) != []


@pytest.mark.parametrize("pattern", SLOW)
@pytest.mark.parametrize("text", ["a" * 50 + "!", "a" * 5000 + "!", "a." * 2000 + "!", "a-" * 3000 + "!", "a" * 100000])
@pytest.mark.timeout(20)  # with backtracking it would be years
def test_it_ends(pattern: str, text: str) -> None:
    from cellgate_tools._schema import Schema

    Schema({"pattern": pattern}).errors(text)
