"""Validation by JSON Schema (2020-12 and draft-07) as tools use it: exact, bounded, and readable errors.

What cannot be checked is left to the server: some regular expressions (see _pattern), a $ref without
a target, infinite nesting. Only certain violations are errors. format is an annotation. Nothing is
coerced: true is not 1, "5" is not 5, but 1.0 is an integer, as the specification says.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

from ._pattern import matches
from ._values import short

__all__ = ["Problem", "Schema", "hint"]

_STEPS = 1_000_000
"""Most schemas applied in one validation, about 2 s."""
_DEPTH = 150
"""Most nested schemas. Python allows about 1000 calls, and each level takes up to three."""


class Problem(NamedTuple):
    """A violation of the schema."""

    path: str
    text: str
    keyword: str
    expected: tuple[Any, ...] = ()


class _Enough(Exception):
    """The limit of steps is reached."""


class _Seen:
    """Evaluated names and indexes, for unevaluatedProperties and unevaluatedItems."""

    __slots__ = ("items", "names", "unsure")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.items: set[int] = set()
        self.unsure = False  # part of the schema could not be applied: its evaluated names and indexes are unknown

    def add(self, other: _Seen) -> None:
        self.names |= other.names
        self.items |= other.items
        self.unsure |= other.unsure


class Schema:
    """One schema document."""

    __slots__ = ("_anchors", "_refs", "doc", "draft7")

    def __init__(self, doc: Any) -> None:
        self.doc = doc
        dialect = doc.get("$schema") if isinstance(doc, dict) else None
        old = ("draft-07", "draft-06", "draft-04", "draft-03")
        self.draft7 = isinstance(dialect, str) and any(name in dialect for name in old)
        self._refs: dict[str, Any] = {}
        self._anchors: dict[str, Any] | None = None

    def at(self, pointer: str) -> Any:
        """The value at a JSON pointer. KeyError, IndexError, ValueError or TypeError if there is none."""
        return _follow(self.doc, pointer)

    def errors(self, value: Any, pointer: str = "") -> list[Problem]:
        """All violations of the schema at pointer."""
        check = _Check(self)
        with contextlib.suppress(_Enough, RecursionError):
            check.apply(self.at(pointer), value, "", 0, None)
        return check.problems

    def resolve(self, ref: Any) -> Any:
        """The schema that a $ref names, or None; other documents are never loaded."""
        if not isinstance(ref, str):
            return None
        if ref not in self._refs:
            self._refs[ref] = self._find(ref)
        return self._refs[ref]

    def resolve_dynamic(self, ref: Any) -> Any:
        """The schema that a $dynamicRef names, if it is unambiguous."""
        target = self.resolve(ref)
        if not isinstance(target, dict) or "$dynamicAnchor" not in target:
            return target
        return self._anchor(f"?{target['$dynamicAnchor']}")

    def _find(self, ref: str) -> Any:
        base, _, part = ref.partition("#")
        if "%" in part:
            from urllib.parse import unquote

            part = unquote(part)
        start = self._anchor(base + "#") if base else self.doc
        try:
            found = _follow(start, part) if not part or part.startswith("/") else self._anchor(part)
        except (KeyError, IndexError, ValueError, TypeError):
            return None
        return found if isinstance(found, (dict, bool)) else None

    def _anchor(self, name: str) -> Any:
        """By $anchor; by $id when the name ends in "#"."""
        if self._anchors is None:
            self._anchors = {}
            todo = [self.doc]
            while todo:
                node = todo.pop()
                if isinstance(node, dict):
                    self._note_anchors(node, self._anchors)
                    todo.extend(
                        item for name, item in node.items() if name not in ("enum", "const", "default", "examples")
                    )
                elif isinstance(node, list):
                    todo.extend(node)
        return self._anchors.get(name)

    @staticmethod
    def _note_anchors(node: dict[str, Any], anchors: dict[str, Any]) -> None:
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(keyword), str):
                anchors.setdefault(node[keyword], node)
        if isinstance(node.get("$dynamicAnchor"), str):
            # With several, the right one depends on the dynamic scope, which is not tracked: use none.
            dynamic = "?" + node["$dynamicAnchor"]
            anchors[dynamic] = None if dynamic in anchors else node
        for keyword in ("$id", "id"):
            name = node.get(keyword)
            if isinstance(name, str):
                anchors.setdefault(name[1:] if name.startswith("#") else name.rstrip("#") + "#", node)


def _follow(node: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        node = node[int(token)] if isinstance(node, list) else node[token]
    return node


# ---------------------------------------------------------------------- values


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool) or isinstance(v, float) and v.is_integer(),
    "number": _is_number,
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}


def _type_name(value: Any) -> str:
    return next((name for name, fits in _TYPES.items() if fits(value)), type(value).__name__)


def _shown(value: Any) -> str:
    return "null" if value is None else f"{_type_name(value)} {short(value)}"


def _key(value: Any) -> Any:
    """A hashable that is equal for equal JSON values: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", tuple(map(_key, value)))
    if isinstance(value, dict):
        return ("object", frozenset((name, _key(item)) for name, item in value.items()))
    return value


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, (list, dict)) or isinstance(other, (list, dict)):
        return type(one) is type(other) and len(one) == len(other) and bool(_key(one) == _key(other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _not_multiple(value: float, of: float) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return value % of != 0
    if any(isinstance(n, float) and not math.isfinite(n) for n in (value, of)):
        return False
    from fractions import Fraction

    # By the decimal digits, so that 0.0075 is a multiple of 0.0001.
    exact = [Fraction(n) if isinstance(n, int) else Fraction(repr(n)) for n in (value, of)]
    return (exact[0] / exact[1]).denominator != 1


def hint(name: str, names: Any) -> str:
    """'; did you mean ...?' when one of names is similar."""
    import difflib

    close = difflib.get_close_matches(name, list(names)[:1000], 1, 0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


# ---------------------------------------------------------------------- keywords


class _Check:
    """One validation."""

    __slots__ = ("draft7", "known", "problems", "schema", "steps", "unchecked")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.draft7 = schema.draft7
        self.problems: list[Problem] = []
        self.steps = _STEPS
        self.known: dict[tuple[int, int, str, bool], tuple[list[Problem], int, _Seen | None]] = {}
        """What a $ref's target has made of a value: alternatives that name each other ask again and again."""
        self.unchecked = 0
        """Number of patterns that were not run; if it grew, a value without problems may not fit."""

    def bad(self, path: str, text: str, keyword: str, expected: tuple[Any, ...] = ()) -> None:
        self.problems.append(Problem(path, text, keyword, expected))

    def problems_of(self, s: Any, v: Any, path: str, depth: int, seen: _Seen | None) -> list[Problem]:
        """The problems of one alternative, which are not added to those of the whole."""
        kept, self.problems = self.problems, []
        try:
            self.apply(s, v, path, depth, seen)
            return self.problems
        finally:
            self.problems = kept

    def apply(self, s: Any, v: Any, path: str, depth: int, seen: _Seen | None) -> None:
        """Applies schema s to value v; seen collects what was evaluated, for the enclosing schema."""
        if s is False:
            self.bad(path, "nothing is allowed here", "false")
        if not isinstance(s, dict) or not s or depth > _DEPTH:
            return
        self.steps -= 1
        if self.steps < 0:
            raise _Enough
        if len(s) == 1 and "type" in s:  # most schemas of real tools
            self.values(s, v, path)
            return
        if "$ref" in s and self.draft7:
            self.refer(self.schema.resolve(s["$ref"]), v, path, depth, seen)
            return
        mine = _Seen() if seen is not None or "unevaluatedProperties" in s or "unevaluatedItems" in s else None
        if "$ref" in s:
            self.refer(self.schema.resolve(s["$ref"]), v, path, depth, mine)
        if "$dynamicRef" in s:
            self.refer(self.schema.resolve_dynamic(s["$dynamicRef"]), v, path, depth, mine)
        self.values(s, v, path)
        if isinstance(v, str):
            self.string(s, v, path)
        elif isinstance(v, list):
            self.array(s, v, path, depth, mine)
        elif isinstance(v, dict):
            self.object(s, v, path, depth, mine)
        elif _is_number(v):
            self.number(s, v, path)
        self.combine(s, v, path, depth, mine)
        if mine is not None:
            self.unevaluated(s, v, path, depth, mine)
            if seen is not None:
                seen.add(mine)

    def refer(self, target: Any, v: Any, path: str, depth: int, seen: _Seen | None) -> None:
        if target is None and seen is not None:
            seen.unsure = True
        key = id(target), id(v), path, seen is not None
        if key not in self.known:
            found = _Seen() if seen is not None else None
            unchecked = self.unchecked
            problems = self.problems_of(target, v, path, depth + 1, found)
            self.known[key] = problems, self.unchecked - unchecked, found
            self.unchecked = unchecked
        problems, unchecked, found = self.known[key]
        self.unchecked += unchecked
        same = set(map(id, self.problems))
        self.problems.extend(p for p in problems if id(p) not in same)
        if seen is not None and found is not None:
            seen.add(found)

    def values(self, s: dict[str, Any], v: Any, path: str) -> None:
        said = s.get("type")
        kinds: list[Any] = said if isinstance(said, list) else [] if said is None else [said]
        known = bool(kinds) and all(isinstance(k, str) and k in _TYPES for k in kinds)
        if known and not any(_TYPES[k](v) for k in kinds):  # unknown types are not checked
            self.bad(path, f"expected {' or '.join(kinds)}, got {_shown(v)}", "type")
        values = s.get("enum")
        if isinstance(values, list) and not any(_equal(v, e) for e in values):
            listed = ", ".join(map(short, values[:12])) + (f", ... ({len(values)} values)" if len(values) > 12 else "")
            near = hint(v, [e for e in values if isinstance(e, str)]) if isinstance(v, str) and len(values) > 12 else ""
            self.bad(path, f"{short(v)} is not one of {listed}{near}", "enum", tuple(values))
        if "const" in s and not _equal(v, s["const"]):
            self.bad(path, f"expected {short(s['const'])}, got {short(v)}", "const", (s["const"],))

    def string(self, s: dict[str, Any], v: str, path: str) -> None:
        low, high, pattern = s.get("minLength"), s.get("maxLength"), s.get("pattern")
        if _is_number(low) and len(v) < low:
            self.bad(path, f"shorter than {low} characters", "minLength")
        if _is_number(high) and len(v) > high:
            self.bad(path, f"longer than {high} characters", "maxLength")
        if isinstance(pattern, str):
            matched = matches(pattern, v)
            self.unchecked += matched is None
            if matched is False:
                self.bad(path, f"{short(v)} does not match {pattern!r}", "pattern")

    def number(self, s: dict[str, Any], v: float, path: str) -> None:
        low, above = s.get("minimum"), s.get("exclusiveMinimum")
        high, below = s.get("maximum"), s.get("exclusiveMaximum")
        if _is_number(low) and (v < low or above is True and v == low):
            self.bad(path, f"{short(v)} is {'less' if v < low else 'not greater'} than {short(low)}", "minimum")
        if _is_number(above) and v <= above:
            self.bad(path, f"{short(v)} is not greater than {short(above)}", "exclusiveMinimum")
        if _is_number(high) and (v > high or below is True and v == high):
            self.bad(path, f"{short(v)} is {'greater' if v > high else 'not less'} than {short(high)}", "maximum")
        if _is_number(below) and v >= below:
            self.bad(path, f"{short(v)} is not less than {short(below)}", "exclusiveMaximum")
        of = s.get("multipleOf")
        if _is_number(of) and of > 0 and _not_multiple(v, of):
            self.bad(path, f"{short(v)} is not a multiple of {short(of)}", "multipleOf")

    def count(self, s: dict[str, Any], n: int, low: str, high: str, what: str, path: str) -> None:
        least, most = s.get(low), s.get(high)
        if _is_number(least) and n < least:
            self.bad(path, f"fewer than {least} {what}", low)
        if _is_number(most) and n > most:
            self.bad(path, f"more than {most} {what}", high)

    def array(self, s: dict[str, Any], v: list[Any], path: str, depth: int, seen: _Seen | None) -> None:
        self.count(s, len(v), "minItems", "maxItems", "items", path)
        first, rest = s.get("prefixItems"), s.get("items")
        if isinstance(rest, list):  # draft-07
            first, rest = rest, s.get("additionalItems")
        elif self.draft7 or not isinstance(first, list):
            first = []
        for i, item in enumerate(v):
            if i < len(first):
                self.apply(first[i], item, f"{path}/{i}", depth + 1, None)
            elif isinstance(rest, (dict, bool)):
                self.apply(rest, item, f"{path}/{i}", depth + 1, None)
            else:
                break
        if seen is not None:
            seen.items.update(range(len(v) if isinstance(rest, (dict, bool)) else min(len(first), len(v))))
        if s.get("uniqueItems") is True:
            self.unique(v, path)
        if "contains" in s:
            self.contains(s, v, path, depth, seen)

    def unique(self, v: list[Any], path: str) -> None:
        known = set()
        for i, item in enumerate(v):
            key = _key(item)
            if key in known:
                self.bad(f"{path}/{i}", f"{short(item)} is a duplicate", "uniqueItems")
                return
            known.add(key)

    def contains(self, s: dict[str, Any], v: list[Any], path: str, depth: int, seen: _Seen | None) -> None:
        unchecked = self.unchecked
        hits = [i for i, x in enumerate(v) if not self.problems_of(s["contains"], x, f"{path}/{i}", depth + 1, None)]
        low, high = (1, None) if self.draft7 else (s.get("minContains", 1), s.get("maxContains"))
        if _is_number(low) and len(hits) < low:
            self.bad(path, f'fewer than {low} items of the kind that "contains" asks for', "contains")
        if _is_number(high) and len(hits) > high and self.unchecked == unchecked:
            self.bad(path, f'more than {high} items of the kind that "contains" asks for', "contains")
        if seen is not None and not self.draft7:
            seen.items.update(hits)

    def object(self, s: dict[str, Any], v: dict[str, Any], path: str, depth: int, seen: _Seen | None) -> None:
        self.count(s, len(v), "minProperties", "maxProperties", "properties", path)
        required = s.get("required")
        for name in required if isinstance(required, list) else ():
            if isinstance(name, str) and name not in v:
                self.bad(path, f"{name!r} is required", "required")
        self.properties(s, v, path, depth, seen)
        if "propertyNames" in s:
            for name in v:
                self.apply(s["propertyNames"], name, path, depth + 1, None)
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            needs = s.get(keyword)
            for name, need in needs.items() if isinstance(needs, dict) else ():
                if name in v:
                    self.dependent(name, need, v, path, depth, seen)

    def dependent(self, name: str, needs: Any, v: dict[str, Any], path: str, depth: int, seen: _Seen | None) -> None:
        if not isinstance(needs, list):
            self.apply(needs, v, path, depth + 1, seen)
            return
        for other in needs:
            if isinstance(other, str) and other not in v:
                self.bad(path, f"{other!r} is required when {name!r} is given", "dependentRequired")

    def properties(self, s: dict[str, Any], v: dict[str, Any], path: str, depth: int, seen: _Seen | None) -> None:
        own, patterns, more = s.get("properties"), s.get("patternProperties"), s.get("additionalProperties")
        known: dict[str, Any] = own if isinstance(own, dict) else {}
        named: dict[str, Any] = patterns if isinstance(patterns, dict) else {}
        for name, item in v.items():
            place = f"{path}/{name}"
            hit = name in known
            unsure = False
            if hit:
                self.apply(known[name], item, place, depth + 1, None)
            for pattern, x in named.items():
                matched = matches(pattern, name)
                unsure |= matched is None
                if matched:
                    hit = True
                    self.apply(x, item, place, depth + 1, None)
            self.unchecked += unsure
            if not hit and more is False and not unsure:
                self.bad(path, f"unknown field {name!r}{hint(name, known)}", "additionalProperties")
            elif not hit and isinstance(more, dict) and not unsure:
                self.apply(more, item, place, depth + 1, None)
            if seen is not None and (hit or unsure or "additionalProperties" in s):
                seen.names.add(name)

    def combine(self, s: dict[str, Any], v: Any, path: str, depth: int, seen: _Seen | None) -> None:
        branches = s.get("allOf")
        for x in branches if isinstance(branches, list) else ():
            self.apply(x, v, path, depth + 1, seen)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(s.get(keyword), list):
                self.alternatives(keyword, s[keyword], v, path, depth, seen)
        if "not" in s:
            unchecked = self.unchecked
            if not self.problems_of(s["not"], v, path, depth + 1, None) and self.unchecked == unchecked:
                self.bad(path, f"{short(v)} is what the schema excludes", "not")
        if "if" in s:
            tried = _Seen() if seen is not None else None
            unchecked = self.unchecked
            failed = self.problems_of(s["if"], v, path, depth + 1, tried)
            if not failed and seen is not None and tried is not None:
                seen.add(tried)
            if failed or self.unchecked == unchecked:
                self.apply(s.get("else" if failed else "then", True), v, path, depth + 1, seen)
            elif seen is not None:
                seen.unsure = True

    def alternatives(
        self, keyword: str, branches: list[Any], v: Any, path: str, depth: int, seen: _Seen | None
    ) -> None:
        fitting, certain, failed = 0, 0, []
        for x in branches:
            tried = _Seen() if seen is not None else None
            unchecked = self.unchecked
            problems = self.problems_of(x, v, path, depth + 1, tried)
            if problems:
                failed.append(problems)
                continue
            fitting += 1
            certain += self.unchecked == unchecked
            if seen is not None and tried is not None:
                seen.add(tried)
            if (keyword == "anyOf" and seen is None) or (keyword == "oneOf" and certain > 1):
                break
        if not fitting and failed:
            self.problems.extend(_explain(failed, v, path))
        elif keyword == "oneOf" and certain > 1:
            self.bad(path, f"{short(v)} fits more than one of the alternatives", "oneOf")

    def unevaluated(self, s: dict[str, Any], v: Any, path: str, depth: int, seen: _Seen) -> None:
        if seen.unsure:
            return
        if isinstance(v, dict) and "unevaluatedProperties" in s:
            for name, item in v.items():
                if name not in seen.names and s["unevaluatedProperties"] is False:
                    self.bad(path, f"unknown field {name!r}", "unevaluatedProperties")
                elif name not in seen.names:
                    self.apply(s["unevaluatedProperties"], item, f"{path}/{name}", depth + 1, None)
            seen.names.update(v)
        if isinstance(v, list) and "unevaluatedItems" in s:
            for i, item in enumerate(v):
                if i not in seen.items:
                    self.apply(s["unevaluatedItems"], item, f"{path}/{i}", depth + 1, None)
            seen.items.update(range(len(v)))


# ---------------------------------------------------------------------- errors of alternatives


def _told_apart(failed: list[list[Problem]], v: Any) -> Problem | None:
    """The wrong value of a discriminator, if every alternative requires another value there."""
    wanted = [{p.path: p.expected for p in problems if p.keyword in ("const", "enum")} for problems in failed]
    for place in wanted[0]:
        if all(place in w for w in wanted):
            values = [value for w in wanted for value in w[place]]
            listed = ", ".join(dict.fromkeys(map(short, values[:20])))
            return Problem(place, f"none of {listed}", "enum", tuple(values))
    return None


def _explain(failed: list[list[Problem]], v: Any, path: str) -> list[Problem]:
    """The problems of the most probable alternative."""

    def rank(problems: list[Problem]) -> tuple[bool, int, int]:
        wrong_type = any(p.path == path and p.keyword == "type" for p in problems)
        return wrong_type, sum(p.keyword in ("const", "enum") for p in problems), len(problems)

    if len(failed) == 1:
        return failed[0]
    told_apart = _told_apart(failed, v)
    if told_apart is not None:
        return [told_apart]
    best = min(failed, key=rank)
    if all(p.path == path and p.keyword == "type" for problems in failed for p in problems):
        wanted = [p.text.partition(", got")[0].removeprefix("expected ") for problems in failed for p in problems]
        return [Problem(path, f"expected {' or '.join(dict.fromkeys(wanted))}, got {_shown(v)}", "type")]
    if not rank(best)[0] and len(failed) <= 6:
        return best
    closest = f"{best[0].path or '(root)'}: {best[0].text}"
    return [Problem(path, f"{short(v)} fits none of {len(failed)} alternatives; closest: {closest}", "anyOf")]
