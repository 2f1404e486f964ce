"""The public JSON Schema test suite through the validator of the runtime, and through the generator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from codegen.support import SHARED, check_package, generate, shared_files

DRAFTS = ("draft2020-12", "draft7")
TIER_1 = [
    "type",
    "properties",
    "required",
    "enum",
    "const",
    "default",
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "anyOf",
    "allOf",
    "oneOf",
    "boolean_schema",
    "ref",
    "defs",
    "definitions",
    "format",
    "infinite-loop-detection",
]
TIER_2 = [
    "not",
    "if-then-else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "patternProperties",
    "propertyNames",
    "contains",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "content",
]

pytestmark = pytest.mark.skipif(not SHARED, reason="CG_SHARED is not set: the suite is not there")


def _needs_more(schema: Any) -> bool:
    """Base URIs, anchors, remote references: tier 3, whatever the file."""
    if isinstance(schema, dict):
        if (
            any(k in schema for k in ("$id", "id", "$anchor", "$dynamicRef", "$dynamicAnchor"))
            and "properties" not in schema
        ):
            return True
        ref = schema.get("$ref")
        if isinstance(ref, str) and not ref.startswith("#"):
            return True
        return any(map(_needs_more, schema.values()))
    return isinstance(schema, list) and any(map(_needs_more, schema))


def _has_id(schema: Any) -> bool:
    return "$id" in json.dumps(schema) or "$anchor" in json.dumps(schema)


def _schema(draft: str, schema: Any) -> Any:
    if draft == "draft7" and isinstance(schema, dict):
        return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    return schema


def _groups(draft: str, names: list[str] | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in shared_files(f"cases/json-schema-suite/{draft}/**/*.json"):
        in_tier = names is None or (path.stem in names and path.parent.name == draft)
        for group in json.loads(path.read_text()) if in_tier else ():
            yield path, group


def _verdicts(draft: str, names: list[str] | None) -> Iterator[tuple[bool, bool, str]]:
    from cellgate_tools._schema import Schema

    for path, group in _groups(draft, names):
        if names is not None and (_needs_more(group["schema"]) or _has_id(group["schema"])):
            continue
        schema = Schema(_schema(draft, group["schema"]))
        for test in group["tests"]:
            yield (
                not schema.errors(test["data"]),
                test["valid"],
                f"{path.stem}: {group['description']}: {test['description']}",
            )


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("tier", [TIER_1, TIER_2], ids=["tier1", "tier2"])
def test_tiers(draft: str, tier: list[str]) -> None:
    verdicts = list(_verdicts(draft, tier))
    wrong = [name for got, expected, name in verdicts if got != expected]
    # Python's re has no \p{}; such a pattern is not checked.
    assert [w for w in wrong if "Unicode property escape" not in w] == []
    assert len(verdicts) > 240


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_rest_is_hardly_ever_refused_wrongly(draft: str) -> None:
    """Dynamic references, ids inside of data, custom vocabularies: a handful. Nothing crashes."""
    verdicts = list(_verdicts(draft, None))
    refused = [name for got, expected, name in verdicts if expected and not got]
    assert len(refused) <= 4, refused
    assert len(verdicts) > 1000


@pytest.mark.parametrize("draft", DRAFTS)
def test_every_schema_generates(build_dir: Path, tmp_path: Path, draft: str) -> None:
    tools = [
        {"name": f"t{i}", "inputSchema": {"type": "object", "properties": {"v": _schema(draft, g["schema"])}}}
        for i, (_, g) in enumerate(_groups(draft, None))
    ]
    report = generate(build_dir, "suite", tmp_path / "out", tools)
    check_package(tmp_path / "out/suite", report, "suite")
    rejected = [t for t in report["tools"] if t["status"] == "rejected"]
    assert all(any("leads out of the schema" in w["text"] for w in t["warnings"]) for t in rejected)
    assert len(rejected) < len(tools) / 4
