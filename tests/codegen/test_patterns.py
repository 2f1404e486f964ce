"""Regular expressions of schemas: ECMA's meaning, and never for long."""

from __future__ import annotations

import pytest

MATCHES = [
    ("^abc$", "abc", "abc\n"),
    ("^\\d+$", "123", "\u0661"),
    ("b", "abc", "ac"),
    ("^\\w$", "a", "\u00e9"),
    ("^a.b$", "a\u00e9b", "a\u2028b"),
    ("^[^]$", "\n", "xx"),
    ("^(?<y>\\d{4})-\\k<y>$", "2024-2024", "2024-2025"),
    ("^\\u0041\\x42$", "AB", "ab"),
    ("^\\u{1F600}$", "\U0001f600", "x"),
    ("^\\cA$", "\x01", "A"),
    ("^\\s$", "\ufeff", "x"),
    ("^\\S$", "x", "\u00a0"),
    ("^[[]$", "[", "]"),
    ("^[a&&b]$", "&", "c"),
    ("^\\/\\-$", "/-", "x"),
    ("^(?:[a-z0-9-]+\\.)+[a-z]{2,}$", "a.b-c.example", "a..b"),
    ("^[a-z]+(?:-[a-z]+)*$", "a-b-c", "a--c"),
    ("^\\d+(\\.\\d+)*$", "1.2.3", "1..3"),
    ("^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z0-9][a-z0-9-]{0,61}[a-z0-9]$", "a.b-c.de", "-a.de"),
    ("^(?:\\d{1,3}\\.){3}\\d{1,3}$", "10.0.0.1", "10.0.0.1234"),
    ("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==)?$", "QUJDRA==", "QUJDRA="),
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
    from cellgate_tools._pattern import compile_pattern

    compiled = compile_pattern(pattern)
    assert compiled is not None
    assert good is None or compiled.allows(good)
    assert not compiled.allows(bad)


@pytest.mark.parametrize("pattern", UNCHECKED)
def test_left_to_the_server(pattern: str) -> None:
    from cellgate_tools._pattern import compile_pattern

    assert compile_pattern(pattern) is None


@pytest.mark.parametrize("pattern", SLOW)
@pytest.mark.parametrize("text", ["a" * 50 + "!", "a" * 5000 + "!", "a." * 2000 + "!", "a-" * 3000 + "!", "a" * 100000])
@pytest.mark.timeout(20)  # with backtracking it would be years
def test_it_ends(pattern: str, text: str) -> None:
    from cellgate_tools._schema import Schema

    Schema({"pattern": pattern}).errors(text)
