"""Objects in results are dicts with attributes: json, pandas, polars, match and the like take them unchanged."""

from __future__ import annotations

import collections.abc
import copy
import importlib
import json
import pickle
import pprint
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from codegen.support import STUBS, Host

Tool = Callable[..., Any]
OBJECT = {"type": "object"}
OWNER = {"type": "object", "title": "Owner", "properties": {"login": {"type": "string"}}, "required": ["login"]}
TICKET = {
    "type": "object",
    "title": "Ticket",
    "properties": {
        "id": {"type": "integer"},
        "from": {"type": "string"},
        "note": {"type": "string"},
        "owner": OWNER,
        "watchers": {"type": "array", "items": OWNER},
    },
    "required": ["id"],
}
OUT = {"type": "object", "properties": {"tickets": {"type": "array", "items": TICKET}, "total": {"type": "integer"}}}
FIRST = {"id": 1, "from": "a", "owner": {"login": "x"}, "watchers": [{"login": "y"}]}
SECOND = {"id": 2, "from": "b", "note": "n", "owner": {"login": "z"}, "watchers": []}
PLAIN = {"tickets": [FIRST, SECOND], "total": 2}


@pytest.fixture
def tickets(tool: Tool, host: Host) -> Any:
    """A tool whose result is PLAIN."""
    host.answers({"structuredContent": PLAIN})
    return tool(OBJECT, OUT)


def test_are_dicts_with_attributes(tickets: Any) -> None:
    r = tickets.run()
    assert r == PLAIN and isinstance(r, dict) and isinstance(r, collections.abc.Mapping)
    assert [type(t).__name__ for t in r.tickets] == ["Ticket", "Ticket"] and r.tickets is r["tickets"]
    first = r.tickets[0]
    assert first.id == first["id"] == 1 and first.from_ == "a" and first.owner.login == "x"
    assert first.get("watchers")[0].login == dict(first)["watchers"][0].login == "y"
    assert first.get("no") is None and first.get("no", 3) == 3 and "note" not in first and first.note is None
    assert list(first) == list(first.keys()) == ["id", "from", "owner", "watchers"] and len(first) == 4
    assert [type(v).__name__ for v in first.values()] == ["int", "str", "Owner", "list"]
    assert (lambda **fields: fields)(**first) == {**first} == first | {} == FIRST and dict(r) == PLAIN
    assert vars(first) == {"id": 1, "from_": "a", "owner": {"login": "x"}, "watchers": [{"login": "y"}]}
    assert first != r.tickets[1] and r.tickets == PLAIN["tickets"]
    assert repr(r.tickets[1].owner) == "Owner(login='z')" and "from_='a'" in repr(first)
    assert {"id", "from_", "items", "get", "model_dump"} <= set(dir(first))
    for wrong in ("nte", "__array__", "_ipython_display_", "__iter"):
        assert not hasattr(first, wrong)
    with pytest.raises(AttributeError, match="Ticket has no field 'nte'; did you mean 'note'"):
        first.nte  # noqa: B018
    with pytest.raises(AttributeError, match="no field 'to_dict'; fields: tickets, total. It is a dict with"):
        r.to_dict()
    with pytest.raises(KeyError):
        first["note"]
    with pytest.raises(TypeError):
        hash(first)


def test_json(tickets: Any) -> None:
    r = tickets.run()
    assert json.dumps(r) == json.dumps(PLAIN) and json.loads(json.dumps(r.tickets)) == PLAIN["tickets"]
    assert json.dumps(r, indent=1, sort_keys=True) == json.dumps(PLAIN, indent=1, sort_keys=True)
    assert json.dumps(r, default=vars) == json.dumps(PLAIN) and pprint.pformat(r) == pprint.pformat(r)
    dumped = r.model_dump()
    assert dumped == PLAIN and type(dumped) is dict and type(dumped["tickets"][0]["owner"]) is dict


def test_copies(tickets: Any) -> None:
    r = tickets.run()
    for again in (copy.copy(r), copy.deepcopy(r), pickle.loads(pickle.dumps(r)), r.copy(), type(r).model_validate(r)):
        assert again == PLAIN and type(again) is type(r) and again.tickets[0].owner.login == "x" and again is not r
    deep = copy.deepcopy(r)
    deep.tickets[0]["id"] = 9
    deep.tickets.clear()
    assert r == PLAIN
    shallow = copy.copy(r)
    shallow["total"] = 0
    assert r.total == 2 and shallow.tickets is r.tickets
    assert pickle.loads(pickle.dumps(r.tickets)) == PLAIN["tickets"]


def test_can_be_changed(tickets: Any) -> None:
    """Like any dict; changes inside of a result last."""
    r = tickets.run()
    ticket = r.tickets[0]
    ticket.note = "new"
    ticket["more"] = 5
    ticket.update({"id": 7})
    del ticket.from_
    assert ticket.pop("owner").login == "x"
    assert r["tickets"][0] == {"id": 7, "watchers": [{"login": "y"}], "note": "new", "more": 5}
    assert ticket.note == "new" and ticket.more == 5 and ticket.id == 7 and ticket.from_ is None
    with pytest.raises(AttributeError, match=r"no field 'unknown'; to add a key: r\['unknown'\] = ..."):
        ticket.unknown = 1
    assert tickets.run() == PLAIN


def test_match(tickets: Any) -> None:
    def seen(value: Any) -> Any:
        match value:
            case tickets.Ticket(id=1, owner=tickets.Owner(login=login)):
                return "class", login
            case {"id": 2, "owner": {"login": login}, **rest}:
                return "mapping", login, sorted(rest)
            case {"tickets": [tickets.Ticket(id=number), *_]}:
                return "result", number
        return None

    r = tickets.run()
    assert seen(r.tickets[0]) == ("class", "x") and seen(r) == ("result", 1)
    assert seen(r.tickets[1]) == ("mapping", "z", ["from", "note", "watchers"])
    assert seen(r.tickets[0].owner) is None
    match r.tickets[0]:
        case dict() as d:
            assert d is r.tickets[0]
        case _:
            raise AssertionError


def test_are_arguments_again(tickets: Any, tool: Tool, host: Host) -> None:
    r = tickets.run()
    other = tool({"type": "object", "properties": {"ticket": TICKET, "any": {}}, "required": ["ticket"]})
    other.call(ticket=r.tickets[0], any=r)
    assert host.last == {"ticket": FIRST, "any": PLAIN}


def test_made_by_hand(tickets: Any) -> None:
    """For tests of programs: checked against the schema, also inside."""
    from cellgate_tools import ParamsError

    r = tickets.Result(tickets=[tickets.Ticket(id=1, from_="a"), {"id": 2, "owner": {"login": "x"}}])
    assert r == {"tickets": [{"id": 1, "from": "a"}, {"id": 2, "owner": {"login": "x"}}]}
    assert r.tickets[1].owner.login == "x" and r.total is None
    with pytest.raises(ParamsError, match="/tickets/0: 'id' is required"):
        tickets.Result(tickets=[{}])
    with pytest.raises(ParamsError, match="did you mean 'total'"):
        tickets.Result(totl=1)


METHODS = ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"]


@pytest.mark.parametrize("value", [[1, {"a": 2}], "text", 5, 2.5, {"k": 1}, None, True])
def test_fields_called_like_methods_of_dict(tool: Tool, host: Host, value: Any) -> None:
    """The methods work, the fields have an underscore; who takes the method for the field gets its value, too."""
    t = tool(OBJECT, {"type": "object", "properties": {m: {} for m in METHODS} | {"items_": {}}, "required": METHODS})
    plain = dict.fromkeys(METHODS, value)
    host.answers({"structuredContent": plain})
    r = t.run()
    assert r == plain and json.loads(json.dumps(r)) == plain and dict(r.items()) == {**r} == dict(r) == plain
    assert list(r.keys()) == METHODS and list(r.values()) == [value] * 11 and r.get("keys") == value
    assert r.copy() == plain and type(r.copy()) is type(r) and r.setdefault("get", 3) == value
    assert r.items_ is None and r.keys_ == r["keys"] == value and pickle.loads(pickle.dumps(r)) == plain
    match r:
        case {"get": found}:
            assert found == value
        case _:
            raise AssertionError
    if value is not None and value is not True:
        assert r.values == value and isinstance(r.values, type(value)) and json.dumps(r.values) == json.dumps(value)
        assert type(copy.deepcopy(r.values)) is type(pickle.loads(pickle.dumps(r.values))) is type(value)
    assert r.pop("values") == value and "values" not in r and callable(r.values)


def test_an_object_in_a_field_called_like_a_method(tool: Tool, host: Host) -> None:
    inner = {"type": "object", "properties": {"k": {"type": "integer"}, "items": {"type": "array"}}}
    t = tool(OBJECT, {"type": "object", "properties": {"values": inner, "items": {"type": "array", "items": inner}}})
    plain = {"values": {"k": 1, "items": [2]}, "items": [{"k": 3}]}
    host.answers({"structuredContent": plain})
    r = t.run()
    assert r.values == plain["values"] and r.values.k == 1 and r.values["k"] == 1 and r.values.items == [2]
    assert list(r.values()) == list(plain.values()) and isinstance(r.values, dict) and r.items[0].k == 3
    assert json.dumps(r.values) == json.dumps(plain["values"]) and repr(r.values) == repr(r.values_)
    for copied in (copy.deepcopy(r.values), pickle.loads(pickle.dumps(r.values)), r.values.copy()):
        assert copied == plain["values"] and copied.k == 1
    assert "values_" in dir(r) and r.values_.k == 1


def test_arguments_keep_such_names(tool: Tool, host: Host) -> None:
    t = tool({"type": "object", "properties": {m: {"type": "integer"} for m in METHODS}})
    t.call(**dict.fromkeys(METHODS, 1))
    assert host.last == dict.fromkeys(METHODS, 1) and t.Params(items=3).items == 3


def test_fields_that_the_schema_does_not_list(tool: Tool, host: Host) -> None:
    plain = {"a": 1, "b": {"c": 1}, "class": 2}
    host.answers({"structuredContent": plain})
    r = tool(OBJECT, {"type": "object", "properties": {"a": {}}, "additionalProperties": True}).run()
    assert r.b == {"c": 1} and r["class"] == 2 and r == plain and vars(r) == plain and not hasattr(r, "no")
    assert type(tool(OBJECT, OBJECT).run()) is dict


def test_alternatives(tool: Tool, host: Host) -> None:
    """By their fixed values and required fields, else by the whole schema."""

    def one(title: str, **fields: Any) -> Any:
        return {"type": "object", "title": title.title(), "properties": fields, "required": list(fields)}

    circle = one("circle", kind={"const": "circle"}, r={"type": "number"})
    rect = one("rect", kind={"enum": ["rect"]}, w={"type": "number"})
    named, numbered = one("named", id={"type": "string"}), one("numbered", id={"type": "integer"})
    out = {
        "type": "object",
        "properties": {
            "shapes": {"type": "array", "items": {"oneOf": [circle, rect]}},
            "ids": {"type": "array", "items": {"anyOf": [named, numbered]}},
            "free": {"anyOf": [named, {"type": "object", "additionalProperties": numbered}]},
        },
    }
    t = tool(OBJECT, out)
    plain = {
        "shapes": [{"kind": "rect", "w": 1}, {"kind": "circle", "r": 2}],
        "ids": [{"id": 1}, {"id": "x"}],
        "free": {"a": {"id": 5}},
    }
    host.answers({"structuredContent": plain})
    r = t.run()
    assert [type(x).__name__ for x in (*r.shapes, *r.ids)] == ["Rect", "Circle", "Numbered", "Named"] and r == plain
    assert type(r.free) is dict and r.free["a"].id == 5


def test_deep_results(tool: Tool, host: Host) -> None:
    """From some level on objects are dicts alone; none is lost, and nothing fails."""
    out = {
        "$ref": "#/$defs/N",
        "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}, "v": {}}}},
    }
    t = tool(OBJECT, out)
    value: dict[str, Any] = {"v": 0}
    for i in range(400):
        value = {"next": value, "v": i}
    host.answers({"structuredContent": value})
    r = t.run()
    assert r.next.next.v == 397
    for _ in range(400):
        r = r["next"]
    assert r == {"v": 0}


def test_result_that_violates_its_schema(tool: Tool, host: Host) -> None:
    t = tool(OBJECT, OUT)
    host.answers({"structuredContent": {"tickets": [{"id": "x", "owner": 5, "watchers": {"login": 1}}, 7, None]}})
    with pytest.warns(UserWarning, match="does not fit"):
        r = t.run()
    assert r.tickets[0].id == "x" and r.tickets[0].owner == 5 and r.tickets[1:] == [7, None]
    host.answers({"structuredContent": [1]})
    assert t.run() == [1]


def test_call_gives_plain_values(tickets: Any) -> None:
    tickets.run()
    structured = tickets.call().structured
    assert type(structured) is dict and type(structured["tickets"][0]) is dict


def test_fields_that_libraries_look_for(tool: Tool, host: Host) -> None:
    names = ["name", "index", "columns", "shape", "dtype", "data", "size", "T", "type", "model_fields", "schema"]
    row = {"type": "object", "title": "Row", "properties": {n: {"type": "integer"} for n in names}}
    t = tool(OBJECT, {"type": "array", "items": row})
    plain = [{n: i for i, n in enumerate(names)}]
    host.answers({"structuredContent": plain})
    rows = t.run()
    assert rows == plain and rows[0].dtype == 4 and rows[0].index == 1 and rows[0].model_fields == 9


FRAMES = """
import json, sys, types
sys.path[:0] = sys.argv[1:3]
host = types.ModuleType("_cellgate")
host.tool_call = lambda *a: ("ok", sys.argv[4].encode(), "")
sys.modules["_cellgate"] = host
import importlib
r = importlib.import_module(sys.argv[3]).run()
plain = json.loads(sys.argv[4])["structuredContent"]
rows, expected = r.rows, plain["rows"]
assert rows == expected and type(rows[0]) is not dict
"""
PANDAS = """
import pandas as pd
for make in (
    lambda rows, r: pd.DataFrame(rows), lambda rows, r: pd.DataFrame(rows, columns=["id", "items"]),
    lambda rows, r: pd.DataFrame([rows[0]]), lambda rows, r: pd.DataFrame(rows[0], index=[0, 1]),
    lambda rows, r: pd.DataFrame.from_records(rows), lambda rows, r: pd.DataFrame(r.columns),
    lambda rows, r: pd.DataFrame({i: row for i, row in enumerate(rows)}), lambda rows, r: pd.json_normalize(rows),
    lambda rows, r: pd.json_normalize(rows, "items", ["id"]), lambda rows, r: pd.json_normalize(rows[0]),
    lambda rows, r: pd.Series(rows[0]).to_frame(), lambda rows, r: pd.DataFrame.from_dict(r.columns, orient="index"),
    lambda rows, r: pd.DataFrame([{**row} for row in rows]).set_index("id"),
):
    got, wanted = make(rows, r), make(expected, types.SimpleNamespace(columns=plain["columns"]))
    pd.testing.assert_frame_equal(got, wanted)
assert list(pd.DataFrame(rows).columns) == ["id", "owner", "items", "dtype", "note"]
"""
POLARS = """
import polars as pl
from polars.testing import assert_frame_equal
for make in (
    lambda rows, r: pl.DataFrame(rows), lambda rows, r: pl.DataFrame([rows[0]]), lambda rows, r: pl.DataFrame(r.columns),
    lambda rows, r: pl.from_dicts(rows), lambda rows, r: pl.from_dict(r.columns), lambda rows, r: pl.DataFrame(rows[1]),
    lambda rows, r: pl.DataFrame({"rows": rows}).unnest("rows"), lambda rows, r: pl.Series("x", rows).to_frame(),
    lambda rows, r: pl.DataFrame(rows, schema={"id": pl.Int64, "owner": pl.Struct({"login": pl.String})}),
):
    assert_frame_equal(make(rows, r), make(expected, types.SimpleNamespace(columns=plain["columns"])))
assert pl.DataFrame(rows).columns[:2] == ["id", "owner"] and pl.DataFrame(rows)["owner"].struct.field("login")[1] == "y"
"""


@pytest.mark.parametrize(("library", "code"), [("pandas", PANDAS), ("polars", POLARS)])
def test_data_frames(package: Tool, packages_env: Path, library: str, code: str) -> None:
    """The same frames as from plain dicts; with a field that is called like a method."""
    python = packages_env / "bin/python"
    if subprocess.run([python, "-c", f"import {library}"], capture_output=True).returncode:
        pytest.skip(f"{packages_env} has no {library}: run scripts/setup --test")
    item = {"type": "object", "title": "Item", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}
    fields = {
        "id": {"type": "integer"},
        "owner": OWNER,
        "items": {"type": "array", "items": item},
        "dtype": {},
        "note": {},
    }
    row = {"type": "object", "title": "Row", "properties": fields, "required": ["id"]}
    columns = {
        "type": "object",
        "title": "Columns",
        "properties": {"a": {"type": "array"}, "values": {"type": "array"}},
    }
    out = {"type": "object", "properties": {"rows": {"type": "array", "items": row}, "columns": columns}}
    made = package([{"name": "t", "inputSchema": OBJECT, "outputSchema": out}])
    rows = [
        {"id": 1, "owner": {"login": "x"}, "items": [{"sku": "a"}, {"sku": "b"}], "dtype": "d"},
        {"id": 2, "owner": {"login": "y"}, "items": [{"sku": "c"}], "dtype": "e", "note": "n"},
    ]
    answer = json.dumps({"structuredContent": {"rows": rows, "columns": {"a": [1, 2], "values": [3, 4]}}})
    folder = Path(importlib.import_module(made.__name__).__file__ or "").parent
    argv = [python, "-I", "-c", FRAMES + code, STUBS, folder.parent, f"{made.__name__}.t", answer]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
