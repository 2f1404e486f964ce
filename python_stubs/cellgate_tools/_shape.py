"""What JSON values look like, in a line: for tools that declare nothing about their results."""

from __future__ import annotations

from typing import Any

__all__ = ["shape"]

_ITEMS = 50  # of lists, for one type
_FIELDS = 30
_DEPTH = 6
_LENGTH = 1000
_KINDS = {bool: "bool", int: "int", float: "float", str: "str", type(None): "None"}


def shape(value: Any) -> str:
    """For example "{records: list[{id: str, note?: str | None}], total: int}"; ?: not in all of them."""
    text = _of([value], 0)
    return text if len(text) <= _LENGTH else text[:_LENGTH] + "..."


def _of(values: list[Any], depth: int) -> str:
    """The type of all values."""
    objects = [v for v in values if isinstance(v, dict)]
    lists = [v for v in values if isinstance(v, list)]
    parts = [_object(objects, depth)] if objects else []
    if lists:
        items = [item for found in lists for item in found[:_ITEMS]][:_ITEMS]
        parts.append(f"list[{_of(items, depth + 1)}]" if items and depth < _DEPTH else "list")
    kinds = {_KINDS[type(v)] for v in values if type(v) in _KINDS}
    if "float" in kinds:
        kinds.discard("int")
    parts += [name for name in _KINDS.values() if name in kinds]
    return " | ".join(parts)


def _object(objects: list[dict[str, Any]], depth: int) -> str:
    names = list(dict.fromkeys(name for found in objects for name in found))
    if depth >= _DEPTH:
        return "dict"
    fields = []
    for name in names[:_FIELDS]:
        values = [found[name] for found in objects if name in found]
        shown = name if name.isidentifier() and name.isascii() else ascii(name)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        fields.append(f"{shown}{'?' if len(values) < len(objects) else ''}: {_of(values, depth + 1)}")
    return "{" + ", ".join(fields + ["..."] * (len(names) > _FIELDS)) + "}"
