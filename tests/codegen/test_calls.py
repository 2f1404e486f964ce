"""Calling tools through generated modules: what is accepted, what is sent, how a call can fail."""

from __future__ import annotations

import asyncio
import copy
import datetime
import enum
import inspect
import json
import math
import pathlib
import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from codegen.support import DATA, STUBS, Host, generate

Tool = Callable[..., Any]
OBJECT = {"type": "object"}


def test_ways_to_give_arguments(package: Tool, host: Host) -> None:
    """Fields, a Params object, a dict: the same bytes. Nested objects by class or as dicts."""
    edit_file = package((DATA / "files.json").read_bytes(), "files").edit_file
    edit = edit_file.Edit(oldText="a", newText="b")
    for call in (
        lambda: edit_file.run(path="p", edits=[edit], dryRun=True),
        lambda: edit_file.run(path="p", edits=({"oldText": "a", "newText": "b"},), dryRun=True),
        lambda: edit_file.run(edit_file.Params(path="p", edits=[edit], dryRun=True)),
        lambda: edit_file.run({"path": "p", "edits": [edit], "dryRun": True}),
        lambda: edit_file.call(path="p", edits=[edit], dryRun=True),
    ):
        host.answers({"structuredContent": {"content": "x"}})
        call()
        assert host.sent[-1] == (
            "files",
            "edit_file",
            b'{"path":"p","edits":[{"oldText":"a","newText":"b"}],"dryRun":true}',
            0,
        )
    from cellgate_tools import ParamsError

    with pytest.raises(TypeError, match="not both"):
        edit_file.run({"path": "p"}, edits=[])
    for wrong in (["p"], "p", 3):
        with pytest.raises(ParamsError, match=r"passed by name: run\(path=..., edits=...\)$"):
            edit_file.run(wrong)
    with pytest.raises(ParamsError, match="/path: expected string, got null$"):
        edit_file.run(path=None, edits=[])


def test_original_names_reach_the_wire(tool: Tool, host: Host) -> None:
    """Keywords, odd characters, names of our own, `params`: the byte-for-byte original, also nested."""
    names = [
        "from",
        "class",
        "x-y",
        "x_y",
        "x.y",
        "params",
        "fields",
        "self",
        "model_dump",
        "__class__",
        "_meta",
        "str",
        "2d",
        "",
        "\u65e5",
        "a b",
        "None",
        "$ref",
        "\ufb01",
        "fi",
    ]
    nested = {"type": "object", "properties": {n: {"type": "integer"} for n in names}, "required": names}
    t = tool(
        {"type": "object", "properties": {**{n: {"type": "integer"} for n in names}, "deep": nested}, "required": names}
    )
    values = {n: i for i, n in enumerate(names)}
    python = {wire: name for name, wire in t._tool.binding("Params").names.items()}
    assert python["from"] == "from_" and python["x_y"] == "x_y" and python["2d"] == "p_2d"
    assert all(p.isidentifier() for p in python.values()) and len(set(python.values())) == len(names) + 1
    t.call(values)
    assert host.last == values
    t.call(**{python[n]: v for n, v in values.items()}, deep=values)
    assert host.last == {**values, "deep": values} and list(host.last) == [*names, "deep"]
    t.call(**values)  # the original spelling through **
    assert host.last == values


def test_arguments_without_names_are_answered_with_the_names(tool: Tool, host: Host) -> None:
    t = tool({"type": "object", "properties": {"sku": {}, "n": {}}, "required": ["sku", "n"]})
    for function in (t.run, t.call, sys.modules[t.__name__]):
        for args in (("s1",), ("s1", 2)):
            assert "arguments are passed by name: run(sku=..., n=...)" in _message(lambda f=function, a=args: f(*a))
    assert not host.sent


def test_both_spellings_exist(tool: Tool, host: Host) -> None:
    t = tool({"type": "object", "properties": {"from": {}, "from_": {}, "from__": {}}})
    python = {wire: name for name, wire in t._tool.binding("Params").names.items()}
    assert python["from_"] == "from_" and python["from__"] == "from__" and python["from"].startswith("from__")
    t.call(**{"from_": 1, "from": 2, "from__": 3})
    assert host.last == {"from_": 1, "from": 2, "from__": 3}
    assert inspect.signature(t.run).parameters.keys() == {"params", *python.values()}


def test_absent_is_not_null(tool: Tool, host: Host) -> None:
    """UNSET is not sent; None is null; null inside free-form data stays; defaults are the server's to apply."""
    from cellgate_tools import UNSET

    t = tool(
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "default": "d"}, "o": {"type": "object"}}}
    )
    t.call(a=UNSET)
    assert host.last == {}
    t.call(a=None, o={"x": None, "y": [None], "z": UNSET})
    assert host.last == {"a": None, "o": {"x": None, "y": [None]}}
    assert not UNSET and t.Params().a is UNSET and t.Params(a=None).a is None


def test_annotations_say_what_none_is(tool: Tool) -> None:
    """The default is None where None leaves the field out, and UNSET where the schema has null."""
    from cellgate_tools import UNSET
    from cellgate_tools._signature import brief

    t = tool(OPTIONAL)
    fields = {name: (p.annotation, p.default) for name, p in inspect.signature(t.run).parameters.items()}
    assert fields["path"] == ("str", inspect.Parameter.empty)
    assert fields["verbose"] == ("bool | None", None) and fields["limits"] == ("list[Limits] | None", None)
    assert fields["null"] == ("str | None", UNSET) and fields["any"] == ("Any", UNSET)
    assert fields["nulls"] == ("list[str | None] | None", UNSET)
    absent = t.Params(path="p")
    assert absent.verbose is None and absent.null is UNSET and t.Limits(of="x").n is None
    assert "verbose?: bool," in brief(t) and "null?: str | None" in brief(t)


LIMITS = {"type": "object", "properties": {"n": {"type": "integer"}, "of": {"type": "string"}}, "required": ["of"]}
OPTIONAL = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "verbose": {"type": "boolean"},
        "sort": {"enum": ["name", "size"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "one": {"const": 1},
        "list": {"type": "array", "items": {"type": "string"}},
        "a/b": {"type": "integer"},
        "by/ref": {"$ref": "#/$defs/Limits"},
        "limits": {"type": "array", "items": {"$ref": "#/$defs/Limits"}},
        "nulls": {"type": "array", "items": {"type": ["string", "null"]}},
        "null": {"type": ["string", "null"]},
        "any": {},
    },
    "required": ["path"],
    "$defs": {"Limits": LIMITS},
}


@pytest.mark.parametrize("way", ["fields", "dict", "Params"])
def test_none_leaves_out_what_may_be_absent(tool: Tool, host: Host, way: str) -> None:
    """Where the schema has no null and does not require the field, at every level. Nulls of the schema are sent."""
    t = tool(OPTIONAL)
    call = {"fields": lambda v: t.call(**v), "dict": t.call, "Params": lambda v: t.call(t.Params(**v))}[way]
    for name in ("verbose", "sort", "either", "one", "list", "a/b", "by/ref", "limits", "nulls"):
        call({"path": "p", name: None})
        assert host.last == {"path": "p"}, name
    call({"path": "p", "verbose": None, "null": None, "any": None, "by/ref": {"n": None, "of": "x"}})
    assert host.last == {"path": "p", "null": None, "any": None, "by/ref": {"of": "x"}}
    call({"path": "p", "limits": [{"of": "x", "n": None}, {"of": "y", "n": 1}], "any": {"n": None, "l": [None]}})
    assert host.last == {"path": "p", "limits": [{"of": "x"}, {"of": "y", "n": 1}], "any": {"n": None, "l": [None]}}
    asyncio.run(t.acall(path="p", verbose=None))
    assert host.last == {"path": "p"}
    sent = len(host.sent)
    for wrong, message in (
        ({"path": None, "verbose": None}, "/path: expected string, got null"),
        ({"path": "p", "list": ["a", None]}, "/list/1: expected string, got null"),
        ({"path": "p", "by/ref": {"of": None}}, "/by/ref/of: expected string, got null"),
    ):
        assert message in _message(lambda wrong=wrong: call(wrong))
    text = _message(lambda: call({"path": 5, "verbose": None}))
    assert "/path: expected string, got integer 5" in text and "verbose" not in text
    assert len(host.sent) == sent


def test_none_in_objects_by_class_and_alternatives(tool: Tool, host: Host) -> None:
    made = tool({"type": "object", "properties": {"limit": {**LIMITS, "title": "Limit"}}})
    made.call(limit=made.Limit(of="x", n=None))
    assert host.last == {"limit": {"of": "x"}}
    by = [{"properties": {key: {"type": "string"}}, "required": [key]} for key in ("id", "name")]
    t = tool({"type": "object", "oneOf": by})
    t.call(id="1", name=None)
    assert host.last == {"id": "1"}


def test_values_are_not_changed(tool: Tool, host: Host) -> None:
    t = tool({"type": "object"})
    for value in (
        8,
        8.0,
        True,
        1,
        "1",
        2**70,
        1e300,
        -0.0,
        5e-324,
        "\ud800",
        "\0",
        "\u2028",
        "https://example.com",
        [[]],
        {"": {}},
    ):
        t.call({"v": value})
        assert json.dumps(host.last["v"]) == json.dumps(value)


def test_an_array_is_no_integer(tool: Tool, host: Host) -> None:
    from cellgate_tools import ParamsError

    class Array:
        def __index__(self) -> int:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")

    with pytest.raises(ParamsError, match="^Params: /a: a Array has no JSON form$"):
        tool({"type": "object"}).call({"a": Array()})


def test_python_objects_with_one_plain_meaning(tool: Tool, host: Host) -> None:
    class Colour(enum.Enum):
        RED = "red"

    class Level(enum.IntEnum):
        LOW = 1

    class Number:
        def __index__(self) -> int:
            return 7

    t = tool({"type": "object"})
    when = datetime.datetime(2024, 1, 2, 3, 4, tzinfo=datetime.UTC)
    u = uuid.uuid4()
    t.call(
        {
            "p": pathlib.Path("/a/b"),
            "c": Colour.RED,
            "l": Level.LOW,
            "w": when,
            "d": when.date(),
            "t": (1, 2),
            "n": Number(),
            "u": u,
        }
    )
    assert host.last == {
        "p": "/a/b",
        "c": "red",
        "l": 1,
        "w": "2024-01-02T03:04:00+00:00",
        "d": "2024-01-02",
        "t": [1, 2],
        "n": 7,
        "u": str(u),
    }


def test_what_has_no_json_form(tool: Tool, host: Host) -> None:
    from cellgate_tools import UNSET, ParamsError

    t = tool({"type": "object"})
    loop: list[Any] = []
    loop.append(loop)
    for value in (float("nan"), float("inf"), {1: 2}, {1, 2}, b"x", object(), [UNSET], loop, 1 + 2j):
        with pytest.raises(ParamsError):
            t.call({"v": value})
    for value in (10**999, -(10**999), {"a": [1 << 20000]}):  # Python hosts could not read it
        with pytest.raises(ParamsError, match="an integer of more than 999 digits cannot be sent"):
            t.call({"v": value})
    assert not host.sent
    t.call({"v": 10**999 - 1})
    assert host.sent


def _message(call: Callable[[], Any]) -> str:
    from cellgate_tools import ParamsError

    with pytest.raises(ParamsError) as caught:
        call()
    assert isinstance(caught.value, ValueError) and caught.value.errors
    return str(caught.value)


def test_errors_say_everything_at_once(package: Tool, host: Host) -> None:
    edit_file = package((DATA / "files.json").read_bytes(), "files").edit_file
    text = _message(lambda: edit_file.run(path=1, edit=[], edits=[{"oldText": 1, "newTxt": "b"}]))
    for part in (
        "Params: ",
        "unknown field 'edit'; did you mean 'edits'?",
        "fields: path, edits, dryRun",
        "/path: expected string, got integer 1",
        "/edits/0/oldText: expected string",
        "/edits/0: 'newText' is required",
        "unknown field 'newTxt'; did you mean 'newText'?",
    ):
        assert part in text, (part, text)
    assert not host.sent


def test_errors_name_the_alternatives(package: Tool) -> None:
    made = package((DATA / "everything.json").read_bytes(), "everything")
    assert '/shape/type: none of "circle", "rect"' in _message(lambda: made.draw.run(shape={"type": "square"}))
    assert "/shape: 'r' is required" in _message(lambda: made.draw.run(shape={"type": "circle"}))
    assert '"Rome" is not one of "New York", "Chicago"' in _message(
        lambda: made.get_structured_content.run(location="Rome")
    )
    assert "500 is greater than 100" in _message(lambda: made.list_items.run(limit=500))
    assert "'name' is required" in _message(lambda: made.find.run()) or "'id' is required" in _message(
        lambda: made.find.run()
    )


def test_no_coercion(tool: Tool, host: Host) -> None:
    t = tool(
        {
            "type": "object",
            "properties": {
                "i": {"type": "integer"},
                "b": {"type": "boolean"},
                "s": {"type": "string"},
                "one": {"const": 1},
                "yes": {"enum": [True]},
            },
        }
    )
    for bad in (
        {"i": "5"},
        {"i": True},
        {"i": 1.5},
        {"b": 1},
        {"b": "yes"},
        {"s": 5},
        {"one": True},
        {"yes": 1},
    ):
        _message(lambda bad=bad: t.call(**bad))
    t.call(i=1.0)
    assert host.sent[-1][2] == b'{"i":1.0}'


def test_unknown_fields(tool: Tool, host: Host) -> None:
    """Typing errors are caught where the schema says nothing; what the schema lets through, a dict can send."""
    closed = tool({"type": "object", "properties": {"a": {}}})
    _message(lambda: closed.call(b=1))
    closed.call({"b": 1})
    assert host.last == {"b": 1}
    for schema in (
        {"properties": {"a": {}}, "additionalProperties": True},
        {"patternProperties": {"^b": {"type": "integer"}}},
        {},
    ):
        tool({"type": "object", **schema}).call(b=1)
        assert host.last == {"b": 1}
    strict = tool({"type": "object", "properties": {"a": {}}, "additionalProperties": False})
    _message(lambda: strict.call({"b": 1}))


def test_models(package: Tool) -> None:
    """Params objects are fixed, compare, copy, pickle, and show their fields."""
    edit_file = package((DATA / "files.json").read_bytes(), "files").edit_file
    p = edit_file.Params(path="p", edits=[{"oldText": "a", "newText": "b"}])
    assert p.path == p["path"] == "p" and "edits" in p and "dryRun" not in p and not p.dryRun
    assert isinstance(p.edits[0], edit_file.Edit) and p.edits[0].oldText == "a"
    assert repr(p) == "Params(path='p', edits=[Edit(oldText='a', newText='b')])"
    assert p == edit_file.Params.model_validate(p.model_dump()) == copy.deepcopy(p) == pickle.loads(pickle.dumps(p))
    assert {"path", "edits", "dryRun", "model_dump"} <= set(dir(p))
    with pytest.raises(AttributeError, match="fixed"):
        p.path = "q"
    with pytest.raises(AttributeError, match="did you mean 'path'"):
        p.pth  # noqa: B018
    assert not hasattr(p, "_repr_html_") and not hasattr(p, "__len__")
    dumped = p.model_dump()
    dumped["edits"].clear()
    assert p.edits
    assert edit_file.Params.model_json_schema()["required"] == ["path", "edits"]
    with pytest.raises(TypeError):
        iter(p)


def test_two_calls_share_nothing(tool: Tool, host: Host) -> None:
    t = tool(
        {
            "type": "object",
            "properties": {"a": {"type": "array", "default": []}, "b": {"type": "object", "default": {"k": [1]}}},
        }
    )
    mine = [1]
    p = t.Params(a=mine)
    mine.append(2)
    t.call(p)
    assert host.last == {"a": [1]} and t.Params().a is not t.Params(a=[]).a


def test_root_alternatives(tool: Tool, host: Host) -> None:
    """All properties of all branches can be given; the rule itself is checked."""
    t = tool(
        {
            "type": "object",
            "oneOf": [
                {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
                {"properties": {"name": {"type": "string"}}, "required": ["name"]},
            ],
        }
    )
    t.call(id=1)
    assert host.last == {"id": 1}
    t.call(name="x")
    _message(lambda: t.call(id=1, name="x"))
    _message(lambda: t.call())
    t = tool(
        {
            "type": "object",
            "properties": {"a": {}},
            "if": {"required": ["a"]},
            "then": {"properties": {"b": {"const": 1}}, "required": ["b"]},
        }
    )
    t.call(a=1, b=1)
    _message(lambda: t.call(a=1))


def test_signature_and_help(package: Tool) -> None:
    edit_file = package((DATA / "files.json").read_bytes(), "files").edit_file
    for function in (edit_file.run, edit_file.call, edit_file.run_async, edit_file.call_async):
        parameters = inspect.signature(function).parameters
        assert list(parameters) == ["params", "path", "edits", "dryRun"]
        assert parameters["edits"].annotation == "list[Edit]" and parameters["edits"].default is inspect.Parameter.empty
        assert parameters["dryRun"].default is None and parameters["dryRun"].annotation == "bool | None"
    assert inspect.signature(edit_file.run).return_annotation == "Result"
    assert inspect.iscoroutinefunction(edit_file.run_async)


# ---------------------------------------------------------------------- how calls fail


def _failure(host: Host, t: Any, status: str, payload: bytes) -> Any:
    from cellgate_tools import ToolError

    host.answer = (status, payload)
    with pytest.raises(ToolError) as caught:
        t.run()
    with pytest.raises(ToolError) as again:
        asyncio.run(t.run_async())
    assert str(again.value) == str(caught.value) and type(again.value) is type(caught.value)
    loaded = pickle.loads(pickle.dumps(caught.value))
    assert type(loaded) is type(caught.value) and str(loaded) == str(caught.value)
    assert vars(loaded) == vars(caught.value)
    assert caught.value.tool == "t" and caught.value.server
    return caught.value


def test_rejected(tool: Tool, host: Host) -> None:
    t = tool(OBJECT)
    error = _failure(host, t, "rejected", "not today \u2603".encode())
    assert type(error).__name__ == "RejectedError" and type(error).__module__ == "cellgate_tools"
    assert error.tool == "t" and error.reason == "not today \u2603"
    assert f"{error.server}.t" in str(error) and "not today" in str(error)
    assert error.kind == "rejected" and error.message == str(error)
    error = _failure(host, t, "rejected", b"")
    assert "the host refused it" in str(error) and error.reason == "" and f"{error.server}.t" in str(error)


def test_protocol_error(tool: Tool, host: Host) -> None:
    t = tool(OBJECT)
    error = _failure(host, t, "protocol_error", b'{"code":-32602,"message":"bad \\ud800","data":{"k":1}}')
    assert type(error).__name__ == "ProtocolError" and (error.code, error.data) == (-32602, {"k": 1})
    assert "-32602" in str(error) and error.message == "bad \ud800" and error.kind == "protocol"
    assert _failure(host, t, "protocol_error", b"{}").code == 0


@pytest.mark.parametrize(
    ("status", "payload", "part"),
    [
        ("failed", b"the server exited", "the server exited"),
        ("failed", b"\xff", "\ufffd"),
        ("failed", b"", "failed"),
        ("ok", b"", "cannot be read"),
        ("ok", b"{", "cannot be read"),
        ("ok", b"[]", "no object"),
        ("ok", b"null", "no object"),
        ("ok", b"[" * 100000, "cannot be read"),
        ("ok", b'{"content":"\xff"}', "cannot be read"),
        ("strange", b"", "strange"),
    ],
)
def test_unavailable(tool: Tool, host: Host, status: str, payload: bytes, part: str) -> None:
    error = _failure(host, tool(OBJECT), status, payload)
    assert type(error).__name__ == "UnavailableError" and part in str(error)


@pytest.mark.parametrize("kind", ["timeout", "cancelled", "died", "too_large", "unavailable"])
def test_kinds_of_failures(tool: Tool, host: Host, kind: str) -> None:
    host.kind = kind
    error = _failure(host, tool(OBJECT), "failed", b"why")
    assert type(error).__name__ == "UnavailableError" and error.kind == kind and "why" in error.message


def test_approval_timeout(tool: Tool, host: Host) -> None:
    """Who catches refusals catches it too."""
    from cellgate_tools import ApprovalRejectedError, RejectedError, ToolRunnerError

    host.kind = "approval_timeout"
    error = _failure(host, tool(OBJECT), "rejected", b"nobody decided in time")
    assert type(error).__name__ == "ApprovalTimeoutError" and error.kind == "approval_timeout"
    assert isinstance(error, RejectedError) and RejectedError is ApprovalRejectedError
    assert isinstance(error, ToolRunnerError) and error.reason == "nobody decided in time"


def test_wrong_arguments_are_an_error_of_calls(tool: Tool, host: Host) -> None:
    from cellgate_tools import ParamsError, ToolRunnerError

    with pytest.raises(ParamsError) as caught:
        tool({"type": "object", "properties": {"n": {"type": "integer"}}}).run(n="x")
    error = caught.value
    assert isinstance(error, ToolRunnerError) and isinstance(error, ValueError) and error.kind == "params"
    loaded = pickle.loads(pickle.dumps(error))
    assert (str(loaded), loaded.errors, loaded.kind) == (str(error), error.errors, "params") and host.sent == []


def test_outside_of_a_kernel(build_dir: Path, tmp_path: Path) -> None:
    """Importing works; calling says what is missing; arguments are checked before."""
    generate(build_dir, "files", tmp_path, (DATA / "files.json").read_bytes())
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from files import read_file\n"
        "import cellgate_tools\n"
        "try: read_file.run()\n"
        "except cellgate_tools.ParamsError: pass\n"
        "read_file.run(path='x')\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, STUBS, tmp_path], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "cellgate_tools.UnavailableError: files.read_file cannot be called here" in done.stderr


def test_timeout_option(tool: Tool, host: Host) -> None:
    from cellgate_tools import options

    t = tool(OBJECT)
    with options(timeout=1.5):
        t.call()
        asyncio.run(t.call_async())
        with options(strict=True):
            t.call()
    t.call()
    with options(timeout=math.inf):
        t.call()
    assert [s[3] for s in host.sent] == [1500, 1500, 1500, 0, 10**12]


def test_async_calls_run_side_by_side(tool: Tool, host: Host) -> None:
    """The loop continues while calls wait: none ends before four of them wait."""
    host.at = 4
    host.answers({"content": [{"type": "text", "text": "x"}]})
    t = tool(OBJECT)

    async def all_of_them() -> list[str]:
        return await asyncio.gather(t.run_async(), t.arun(), t.run_async(), t.run_async())

    assert asyncio.run(all_of_them()) == ["x"] * 4
    assert t.arun is t.run_async and t.acall is t.call_async and host.cancelled == []


def test_cancelled_coroutines_cancel_their_calls(tool: Tool, host: Host) -> None:
    host.at = 100
    t = tool(OBJECT)

    async def cancel() -> None:
        task = asyncio.create_task(t.acall())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)
        assert host.cancelled == [1]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(t.arun(), 0.01)
        await asyncio.sleep(0)
        assert host.cancelled == [1, 2]
        coroutine = t.acall()
        coroutine.send(None)
        coroutine.close()
        assert host.cancelled == [1, 2, 3]

    asyncio.run(cancel())
    assert len(host.sent) == 3


def test_coroutines_without_a_loop(tool: Tool, host: Host) -> None:
    with pytest.raises(RuntimeError, match="trio"):
        tool(OBJECT).acall().send(None)
    assert host.sent == []


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "title": "Number"}
WRAPPED = {"type": "object", "properties": {"result": {}}, "required": ["result"], "title": "tOutput"}


def test_modules_are_called_as_their_run(package: Tool, host: Host) -> None:
    """As catalogues print the tools: files.edit_file(path, edits) -> Result."""
    made = package((DATA / "files.json").read_bytes(), "files")
    host.answers({"structuredContent": {"content": "x"}})
    assert made.read_file(path="p").content == made.read_file({"path": "p"}).content == "x"
    assert made.read_file(made.read_file.Params(path="p")) == {"content": "x"}
    assert [s[1:3] for s in host.sent] == [("read_file", b'{"path":"p"}')] * 3
    assert str(inspect.signature(made.read_file)) == str(inspect.signature(made.read_file.run))
    _message(lambda: made.read_file(pth="p"))
    assert inspect.ismodule(made.read_file) and len(host.sent) == 3 and "__signature__" not in dir(made.read_file)

    async def later() -> Any:
        return await made.read_file(path="p")

    assert asyncio.run(later()).content == "x" and len(host.sent) == 4


@pytest.mark.parametrize(
    ("out", "answer", "value"),
    [
        (None, {"content": [{"type": "text", "text": "x"}]}, "x"),
        (NUMBER, {"structuredContent": {"n": 1}}, {"n": 1}),
        *((WRAPPED, {"structuredContent": {"result": v}}, v) for v in ([1], None, True, 5, "x", {"a": 1})),
        ({"type": "array", "items": NUMBER}, {"structuredContent": [{"n": 1}]}, [{"n": 1}]),
    ],
)
def test_run_can_be_awaited(tool: Tool, host: Host, out: Any, answer: Any, value: Any) -> None:
    """It is arun() then: an error after the call would have programs make it again."""
    t = tool({"type": "object", "properties": {"i": {"type": "integer"}}}, out)
    host.answers(answer)

    async def every_way() -> list[Any]:
        found = [await t.run(), await t.run({"i": 1}), await t.run(i=1), await t.run(**{"i": 1})]
        found += [await t.run(i=i) for i in range(2)]
        found += [x async for x in (await t.run(i=i) for i in range(2))]
        result = await t.call(i=1)
        assert type(result).__name__ == "ToolResult"
        return found

    assert asyncio.run(every_way()) == [value] * 8 and len(host.sent) == 9 and type(t.run()) is not type(t.arun)

    async def at_once() -> list[Any]:
        host.at = 3
        return [await asyncio.wait_for(t.run(), 5) if out in (None, NUMBER) else 0, t.run(), (t.run(), 1)[0]]

    assert asyncio.run(at_once())[1:] == [value, value]
    assert not inspect.iscoroutinefunction(t.run)


@pytest.mark.parametrize("out", [None, NUMBER])
def test_results_can_be_awaited(tool: Tool, host: Host, out: Any) -> None:
    """asyncio's functions get results of run() that are made already; objects are dicts, which gather() cannot take."""
    t = tool(OBJECT, out)
    host.answers({"content": [{"type": "text", "text": '{"n": 1}'}]})

    async def both() -> list[Any]:
        several = await asyncio.gather(t.run(), t.run()) if out is None else [t.run(), t.run()]
        return [*several, await asyncio.wait_for(t.run(), 5)]

    assert asyncio.run(both()) == [t.run()] * 3 and len(host.sent) == 4


def test_run_in_a_thread_is_not_awaited(tool: Tool, host: Host) -> None:
    t = tool(OBJECT, NUMBER)
    host.answers({"structuredContent": {"n": 1}})

    async def in_thread() -> Any:
        return await asyncio.to_thread(t.run), await asyncio.to_thread(lambda: t.run().n)

    assert asyncio.run(in_thread()) == ({"n": 1}, 1)


def test_interrupt_reaches_the_caller(tool: Tool, host: Host) -> None:
    def tool_call(*args: Any) -> tuple[str, bytes]:
        raise KeyboardInterrupt

    host.module.tool_call = tool_call  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        tool(OBJECT).run()


def test_reload_after_the_package_was_replaced(package: Tool, host: Host, build_dir: Path, tmp_path: Path) -> None:
    import importlib

    made = package([{"name": "a", "inputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}}}], "srv")
    made.a.call(x=1)
    changed = [{"name": "a", "inputSchema": {"type": "object", "properties": {"y": {"type": "integer"}}}}]
    generate(build_dir, "srv", tmp_path / "out", changed)
    importlib.reload(made.a)
    made.a.call(y=1)
    assert host.last == {"y": 1}
