"""What validation costs, and numbers of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NESTED: dict[str, Callable[[dict[str, str]], dict[str, Any]]] = {
    "oneOf": lambda r: {"oneOf": [r, r]},
    "oneOf among others": lambda r: {"oneOf": [{"anyOf": [r, r]}, {"type": "null"}, r]},
    "anyOf": lambda r: {"anyOf": [r, r]},
    "allOf": lambda r: {"allOf": [r, r]},
    "allOf, evaluated": lambda r: {"allOf": [r, r], "unevaluatedProperties": True},
    "not": lambda r: {"not": r, "allOf": [r]},
    "if": lambda r: {"if": r, "then": r, "else": r},
    "fields": lambda r: {"allOf": [{"properties": {"a": r}}, {"properties": {"a": r}}]},
}


@pytest.mark.parametrize("keyword", NESTED)
@pytest.mark.parametrize("dialect", ["2020-12/schema", "draft-07/schema#"])
def test_work_grows_with_the_schema_and_not_with_its_paths(keyword: str, dialect: str) -> None:
    """60 levels, each of which names the one below twice or more: 2^60 paths."""
    from cellgate_tools._schema import _STEPS, Schema, _Check

    defs: dict[str, Any] = {"a0": {"type": "string"}}
    for i in range(1, 61):
        defs[f"a{i}"] = NESTED[keyword]({"$ref": f"#/$defs/a{i - 1}"})
    schema = Schema({"$schema": f"http://json-schema.org/{dialect}", "$defs": defs})
    for value in (1, "text", {"a": {"a": {"a": 1}}}):
        check = _Check(schema)
        check.apply(defs["a60"], value, "", 0, None)
        assert _STEPS - check.steps < 5000 and len(check.problems) < 100
        if keyword in ("anyOf", "allOf"):
            assert bool(check.problems) == (value != "text")


@pytest.mark.parametrize(
    ("value", "of", "fits"),
    [
        (3 * 10**400, 10**400, True),
        (7, 10**400, False),
        (1.5, 10**400, False),
        (1e308, 10**400, False),
        (10**400, 0.5, True),
        (10**400 + 1, 1.5, False),
        (10**998, 10**997, True),
        (1e300, 1e-300, True),
        (float("inf"), 10**400, True),
    ],
)
def test_multiples_of_numbers_of_any_size(value: float, of: float, fits: bool) -> None:
    from cellgate_tools._schema import Schema

    problems = Schema({"multipleOf": of, "minimum": -(10**999), "maximum": 10**999}).errors(value)
    assert fits == (not [p for p in problems if p.keyword == "multipleOf"])
    assert all(len(p.text) < 200 for p in problems)
