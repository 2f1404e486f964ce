"""Hostile and broken tool lists: text that wants to be code, names that want to be paths, broken schemas.

They are the fuzz target's corpus; what is too large for a file there is made here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

CORPUS = Path(__file__).parent.parent / "fuzz/corpus/codegen"
P = 'import os; os.system("touch /tmp/PWNED")'


class Case(NamedTuple):
    name: str
    text: bytes
    allowed: str
    """Statuses that the report may give, by first letter (f, d, r); "-" alone: the whole list is refused."""


# By name, or by the first part of names.
ALLOWED = {
    "-": "list-refused",
    "f": "text-name names properties enum limits draft4 regex list product ref-root ref-escapes ref-anchor ref-id",
    "d": "ref enum-empty enum-contradiction input keywords-wrong hints annotations-list",
    "r": "ref-file ref-http ref-relative",
    "fd": "text properties-malformed value ref-laughs ref-wide deep output-wrong",
    "fr": "syntax list-odd list-duplicates",
    "fdr": "input-wrong",
}
_BY_NAME = {name: statuses for statuses, names in ALLOWED.items() for name in names.split()}
# Ordinary lists, which are in codegen/data as well.
_ORDINARY = {"everything", "files", "graph"}


def obj(properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": {"type": "string"}} if properties is None else properties, **more}


def one(**tool: Any) -> bytes:
    return many({"name": "t", **tool})


def many(*tools: dict[str, Any]) -> bytes:
    return json.dumps({"tools": [{"inputSchema": obj(), **t} for t in tools]}).encode()


def schema(properties: dict[str, Any], **more: Any) -> bytes:
    return one(inputSchema=obj(properties, **more))


def of_corpus(path: Path) -> Case:
    parts = path.name.split("-")
    prefixes = ("-".join(parts[:n]) for n in range(len(parts), 0, -1))
    return Case(path.name, path.read_bytes(), next(_BY_NAME[p] for p in prefixes if p in _BY_NAME))


def _deep(opening: str, closing: str, n: int) -> bytes:
    text = '{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"x":%s{"type":"string"}%s}}}]}'
    return (text % (opening * n, closing * n)).encode()


def large() -> list[Case]:
    ref, alternatives = "$ref", [obj({f"k{i}": {}}, required=[f"k{i}"]) for i in range(10000)]
    chain = {f"d{i}": {ref: f"#/$defs/d{i + 1}"} for i in range(5000)}
    items = '{"type":"array","items":'
    good = b'{"tools":[{"name":"good","inputSchema":{"type":"object"}},'
    short, text = (json.dumps(t)[1:-1] for t in ("C:\\temp\\", 'x"\\' * 22000))
    everywhere = (CORPUS / "text-ends-backslash").read_text().replace(short, text).encode()
    return [
        Case("text-long", everywhere, "fd"),
        Case("properties-many", schema({f"p{i}": {"type": "string", "description": str(i)} for i in range(10000)}), "f"),
        Case("enum-many", schema({"x": {"enum": [f"value-{i}" for i in range(20000)]}}), "f"),
        Case("ref-chain", schema({"x": {ref: "#/$defs/d0"}}, **{"$defs": {**chain, "d5000": {"type": "integer"}}}), "d"),
        Case("deep-1000", _deep('{"type":"object","properties":{"a":', "}}", 1000), "d"),
        Case("deep-items-3000", _deep(items, "}", 3000), "d"),
        Case("deep-anyof", _deep('{"anyOf":[', "]}", 1000), "d"),
        Case("deep-100000", _deep(items, "}", 100000), "-"),
        Case("deep-brackets", good + b'{"name":"bad","inputSchema":' + b"[" * 1000000 + b"]" * 1000000 + b"}]}", "fr"),
        Case("big-tool", many({"name": "big", "description": "x" * (5 << 20)}, {"name": "good"}), "fr"),
        Case("wide-anyof", schema({"x": {"anyOf": alternatives}}), "d"),
        Case("wide-root", one(inputSchema={"type": "object", "anyOf": alternatives}), "d"),
        Case("many-tools", many(*({"name": f"tool_{i}"} for i in range(1000))), "f"),
        Case("long-keys", schema({"k" * 200000: obj({"k" * 200000: obj({"z": {}})})}), "fd"),
    ]


CASES = [of_corpus(path) for path in sorted(CORPUS.iterdir()) if path.name not in _ORDINARY] + large()
