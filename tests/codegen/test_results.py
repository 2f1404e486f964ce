"""Results of run() and call() for a tool's answer, and search() for tools."""

from __future__ import annotations

import asyncio
import base64
import copy
import gc
import importlib
import inspect
import io
import json
import pickle
import pydoc
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest
from codegen.support import DATA, Host, generate

Tool = Callable[..., Any]
OBJECT = {"type": "object"}
PNG = base64.b64encode(b"\x89PNG data").decode()
NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_text(tool: Tool, host: Host) -> None:
    t = tool(OBJECT)
    host.answers(
        {
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "data": PNG, "mimeType": "image/png"},
                {"type": "text", "text": "b"},
            ]
        }
    )
    text = t.run()
    assert text == "a\n[image image/png 9 bytes]\nb" and isinstance(text, str) and text.result.text == "a\nb"
    assert text.content == text.result.content and len(text.content) == 3 and text.text == "a\nb"
    assert repr(text.content) == '[TextBlock(text="a"), [image image/png 9 bytes], TextBlock(text="b")]'
    for wrong, said in (("r['a']", "which has no key 'a'$"), ("r.rows", "which has no attribute 'rows'$")):
        with pytest.raises((TypeError, AttributeError), match=said):
            eval(wrong, {"r": text})
    assert pickle.loads(pickle.dumps(text)) == text
    assert text._repr_mimebundle_()["image/png"] == PNG
    with pytest.raises(NotImplementedError):
        text._ipython_display_()
    host.answers({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})
    assert t.run() == "a\nb"
    host.answers({"content": []})
    assert t.run() == ""


def test_text_with_all_kinds_of_blocks(tool: Tool, host: Host, tmp_path: Path) -> None:
    """None is lost."""
    t = tool(OBJECT)
    host.answers(
        {
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "data": PNG, "mimeType": "image/png"},
                {"type": "image", "data": PNG, "mimeType": "image/jpeg"},
                {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
                {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "file:///b", "blob": PNG}},
                {"type": "resource_link", "uri": "file:///c", "name": "c"},
            ]
        }
    )
    text = t.run()
    assert text.splitlines() == [
        "a",
        "[image image/png 9 bytes]",
        "[image image/jpeg 9 bytes]",
        "[audio audio/wav 9 bytes]",
        "inside",
        "[resource file:///b 9 bytes]",
        "[resource_link file:///c]",
    ]
    assert [b.mime for b in text.images] == ["image/png", "image/jpeg"] and text.images == text.result.images
    assert len(text.audio) == 1 and [b.uri for b in text.resources] == ["file:///a", "file:///b"]
    assert [b.uri for b in text.links] == ["file:///c"]
    for block in (*text.images, *text.audio, *text.resources):
        assert Path(block.save(tmp_path / "x")).stat().st_size in (6, 9)
    shown: list[Any] = []
    display = ModuleType("IPython.display")
    display.display = lambda *blocks, raw=False: shown.extend(blocks)  # type: ignore[attr-defined]
    sys.modules["IPython.display"] = display
    try:
        text._ipython_display_()
    finally:
        del sys.modules["IPython.display"]
    assert shown[0]["text/plain"].startswith("'a") and shown[1:] == text.images


# ---------------------------------------------------------------------- results that stay with the tool server


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u20ac", "\ud800", "\U0001f600"])
def test_large_text_is_a_str(tool: Tool, host: Host, tmp_path: Path, letter: str) -> None:
    """C code reads the characters of a str without asking: everything that takes one takes this one."""
    from cellgate_tools import Text

    value = {"rows": [f"{i:07}{letter}" for i in range(200_000)]}
    whole = json.dumps(value, ensure_ascii=False)
    host.keeps('{"content":[{"type":"text","text":"@"}]}', whole)
    t = tool(OBJECT)
    for text in (t.run(), asyncio.run(t.arun())):
        assert type(text) is Text and text == whole and whole == text and hash(text) == hash(whole)
        assert json.loads(text) == value and text.splitlines() == [whole] and f"0199999{letter}" in text
        assert re.search("0000(12)3", text)[1] == "12" and text[-12:-2] == whole[-12:-2] and len(text) == len(whole)
        assert "".join([text, "x"]) == text + "x" == f"{text}x" == whole + "x" and text.encode("utf-8", "surrogatepass")
        assert io.StringIO(text).read(20) == whole[:20] and {text: 1}[whole] == 1 and sorted(text)[0] == " "
        (tmp_path / "x").write_text(text, encoding="utf-8", errors="surrogatepass")
        assert (tmp_path / "x").stat().st_size == len(whole.encode("utf-8", "surrogatepass"))
        assert pickle.loads(pickle.dumps(text)) == copy.deepcopy(text) == whole and text.content == text.result.content
        shown = text._repr_mimebundle_()["text/plain"]
        assert shown.startswith("'{\"rows\": [\"0000000") and shown.endswith(f"... ({len(whole)} characters)") and len(shown) < 12_000


def test_large_texts_beside_others(tool: Tool, host: Host) -> None:
    """None of them is left out."""
    one, two = "a" * 70_000, "\u20ac" * 80_000
    host.keeps(
        '{"content":[{"type":"text","text":"@"},{"type":"text","text":"b"},'
        '{"type":"resource","resource":{"uri":"u","text":"@"}}]}',
        *(one, two),
    )
    t = tool(OBJECT)
    assert t.run() == f"{one}\nb\n{two}" and t.call().text == f"{one}\nb"


def test_large_text_without_room(tool: Tool, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call was made: the error has its text, and names the ways to it."""
    from cellgate_tools import ToolError

    host.keeps('{"content":[{"type":"text","text":"@"}]}', "0123456789" * 300_000)
    t = tool(OBJECT)
    read = host.module.result_read

    def result_read(handle: int, offset: int, length: int) -> bytes:
        if length == 1 << 20:
            raise MemoryError
        return read(handle, offset, length)

    monkeypatch.setattr(host.module, "result_read", result_read)
    with pytest.raises(ToolError, match=r"t: the text is larger than the memory that is left.*\.save\(PATH\)") as caught:
        t.run()
    assert caught.value.kind == "too_large" and caught.value.result.large()[-3:] == "789" and len(host.sent) == 1


def test_large_text_that_is_gone(tool: Tool, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from cellgate_tools import UnavailableError

    def result_read(handle: int, offset: int, length: int) -> bytes:
        raise RuntimeError("no such result")

    host.keeps('{"content":[{"type":"text","text":"@"}]}', "0123456789" * 300_000)
    monkeypatch.setattr(host.module, "result_read", result_read)
    for t in (tool(OBJECT), tool(OBJECT, OBJECT)):
        with pytest.raises(UnavailableError, match="the kept answer cannot be read: no such result") as caught:
            t.run()
        assert caught.value.kind == "unavailable" and caught.value.tool == "t"


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u20ac", "\ud800", "\U0001f600"])
def test_large_text_in_parts(tool: Tool, host: Host, tmp_path: Path, letter: str) -> None:
    """len() reads nothing, a slice its part; what str() gives is exact."""
    from cellgate_tools import LargeText

    whole = "".join(f"{i:07}" + letter for i in range(300_000))
    host.keeps('{"content":[{"type":"text","text":"@"}]}', whole)
    result = tool(OBJECT).call()
    text = result.large()
    assert text is result.content[0].text and type(text) is LargeText and len(text) == len(whole) and text and host.read == []
    for cut in (slice(5), slice(-9, None), slice(100, 90), slice(16, 80, 3), slice(0, 10**9, 10**5)):
        assert text[cut] == whole[cut]
    assert text[7] == letter and text[-1] == letter and text[:0] == ""
    assert sum(host.read[:2]) < 100 and len(host.read) < 30
    with pytest.raises(IndexError):
        text[len(whole)]
    assert str(text) == whole and text == whole and text != whole + "x" and "0299999" in text
    assert "".join(text.parts()) == whole and pickle.loads(pickle.dumps(text)) == whole
    assert Path(text.save(tmp_path / "x")).read_bytes() == whole.encode("utf-8", "surrogatepass")
    assert repr(text).startswith("<LargeText of 2400000 characters: '0000000") and len(repr(text)) < 600
    assert text.splitlines() == [whole] and text.startswith("0000000") and text.partition(letter)[0] == "0000000"
    with pytest.raises(AttributeError, match=r"str\(\) of it gives the whole text"):
        text.rows  # noqa: B018
    assert str(result.content[0]) == "[text 2400000 characters]" and len(repr(result)) < 200 and result.text == whole
    del text, result
    gc.collect()
    assert host.freed == [7]


def test_large_parts_of_a_result(tool: Tool, host: Host, tmp_path: Path) -> None:
    data = bytes(range(256)) * 9_001
    encoded = base64.b64encode(data).decode()
    wrapped = "\n".join(encoded[i : i + 76] for i in range(0, len(encoded), 76))
    host.keeps(
        '{"content":[{"type":"text","text":"small"},{"type":"text","text":"@"},'
        '{"type":"image","mimeType":"image/png","data":"@"},{"type":"audio","data":"@"},'
        '{"type":"resource","resource":{"uri":"u","blob":"@"}},{"type":"resource","resource":{"uri":"v","text":"@"}}],'
        '"_meta":{"m":"7-0"}}',
        *("x" * 70_000, encoded, wrapped, encoded, "y" * 80_000),
    )
    text = tool(OBJECT).run()
    assert text.splitlines() == [
        "small",
        "x" * 70_000,
        "[image image/png 2304256 bytes]",
        "[audio 2334574 bytes]",  # with its line ends: nothing is read for this
        "[resource u 2304256 bytes]",
        "y" * 80_000,
    ]
    assert sum(host.read) < 150_100  # none of the data
    for block in (text.images[0], text.audio[0], text.resources[0]):
        assert block.data == data and Path(block.save(tmp_path / "x")).read_bytes() == data
    assert text.images[0]._repr_mimebundle_()["image/png"] == encoded
    assert Path(text.resources[1].save(tmp_path / "x")).read_text() == "y" * 80_000


def test_large_structured_result(package: Tool, host: Host) -> None:
    """Structured content is plain values."""
    module = package(
        [{"name": "t", "inputSchema": OBJECT, "outputSchema": {"type": "object", "properties": {"s": {"type": "string"}}}}]
    ).t
    host.keeps('{"content":[],"structuredContent":{"s":"@","l":["@"]}}', "a" * 70_000, "\u20ac" * 70_000)
    result = module.call()
    assert result.structured == {"s": "a" * 70_000, "l": ["\u20ac" * 70_000]} and type(result.structured["s"]) is str
    assert module.run().s == "a" * 70_000


def test_kept_structured_result_that_cannot_be_read(
    package: Tool, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cellgate_tools import UnavailableError
    from cellgate_tools._tool import _result

    def result_read(handle: int, offset: int, length: int) -> bytes:
        raise RuntimeError("the result is gone")

    monkeypatch.setattr(sys.modules["_cellgate"], "result_read", result_read)
    payload = b'{"handle":1,"parts":[[27,0,4,1]]}\n{"structuredContent":{"t":""}}'
    with pytest.raises(UnavailableError, match="the result is gone") as e:
        _result("s", "t", "ok", payload, "kept")
    assert e.value.kind == "unavailable"


def test_large_error(tool: Tool, host: Host) -> None:
    from cellgate_tools import ToolError

    host.keeps('{"isError":true,"content":[{"type":"text","text":"@"}]}', "why" * 100_000)
    with pytest.raises(ToolError) as caught:
        tool(OBJECT).run()
    assert caught.value.message == ("why" * 1000)[:2000] + "..." and len(caught.value.result.content[0].text) == 300_000
    host.keeps(
        '{"isError":true,"content":[{"type":"text","text":"@"},{"type":"text","text":"end"}]}', "why" * 100_000
    )
    with pytest.raises(ToolError) as caught:
        tool(OBJECT).run()
    assert caught.value.message == ("why" * 1000)[:2000] + "...\nend"


@pytest.mark.parametrize("form", ["input_required", "later", 1, None])
def test_result_of_an_unknown_type(tool: Tool, host: Host, form: Any) -> None:
    from cellgate_tools import ToolRunnerError

    host.answers({"content": [], "resultType": form})
    with pytest.raises(ToolRunnerError, match="unknown type") as caught:
        tool(OBJECT).run()
    assert caught.value.kind == "protocol"
    host.answers({"content": [], "resultType": "complete"})
    assert tool(OBJECT).run() == ""


def test_blocks(tool: Tool, host: Host, tmp_path: Path) -> None:
    t = tool(OBJECT)
    blocks = [
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "t"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": PNG}},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
        {"type": "later", "x": 1},
    ]
    host.answers({"content": blocks, "_meta": {"m": 1}})
    result = t.call()
    image, audio, text, blob, link, later = result.content
    assert [type(b).__name__ for b in result.content] == [
        "Image",
        "Audio",
        "Resource",
        "Resource",
        "ResourceLink",
        "Block",
    ]
    assert image.data == audio.data == blob.data == b"\x89PNG data" and image.mime == "image/png"
    assert image._repr_mimebundle_() == {"text/plain": "[image image/png 9 bytes]", "image/png": PNG}
    assert (
        text.text == "t"
        and text.uri == "file:///a"
        and link.uri == "file:///c"
        and later.raw == {"type": "later", "x": 1}
    )
    assert Path(image.save(tmp_path / "i.png")).read_bytes() == b"\x89PNG data"
    assert Path(text.save(tmp_path / "t")).read_text() == "t"
    with pytest.raises(ValueError, match="nothing to save"):
        link.save(tmp_path / "x")
    assert result.meta == {"m": 1} and result.raw["content"] == blocks and not result.is_error
    assert t.run().splitlines()[0] == "[image image/png 9 bytes]"
    assert "[audio audio/wav 9 bytes]" in repr(result)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"content": None},
        {"content": "x"},
        {"content": [1, None, "x", []]},
        {"content": [{"type": 5}, {"type": "text"}]},
        {
            "content": [
                {"type": "image", "data": 7},
                {"type": "image", "data": "*"},
                {"type": "resource"},
                {"type": "resource", "resource": 3},
            ]
        },
        {"content": [{"type": "text", "text": None}], "isError": "yes", "_meta": 3},
    ],
)
def test_odd_answers_do_not_break(tool: Tool, host: Host, answer: Any) -> None:
    t = tool(OBJECT)
    host.answers(answer)
    result = t.call()
    assert result.raw == answer and repr(result) and isinstance(t.run(), str)
    for block in result.content:
        assert repr(block) and (block.data, block.text, block.mime, block.uri) is not None


def test_tolerant_reading(tool: Tool, host: Host) -> None:
    """Results may have values that jansson would refuse: big integers, lone surrogates, NUL, a BOM, duplicate keys."""
    t = tool(OBJECT, {"type": "object"})
    digits = b"9" * 5000
    host.answer = (
        "ok",
        b'\xef\xbb\xbf{"structuredContent":{"u":18446744073709551615,"s":"\\ud800\\u0000","a":1,"a":2,"n":'
        + digits
        + b"}}",
    )
    value = t.run()
    assert value["u"] == 2**64 - 1 and value["s"] == "\ud800\0" and value["a"] == 2 and value["n"] == float("inf")


def test_structured(package: Tool, host: Host) -> None:
    made = package((DATA / "graph.json").read_bytes(), "graph")
    relation = {"from": "a", "to": "b", "relationType": "knows"}
    host.answers({"content": [], "structuredContent": {"relations": [relation]}})
    result = made.create_relations.run(
        relations=[made.create_relations.Relation(from_="a", to="b", relationType="knows")]
    )
    assert host.last == {"relations": [relation]}
    assert type(result) is made.create_relations.Result and type(result.relations[0]) is made.create_relations.Relation2
    assert (
        result.relations[0].from_ == "a"
        and result["relations"][0]["from"] == "a"
        and result.model_dump() == {"relations": [relation]}
    )
    call = made.create_relations.call(relations=[])
    assert call.structured == {"relations": [relation]}


def test_absent_structured_content_is_not_an_empty_one(tool: Tool, host: Host) -> None:
    from cellgate_tools import UNSET

    t = tool(OBJECT, {})
    for value in ({}, [], 0, False, None, ""):
        host.answers({"content": [{"type": "text", "text": "other"}], "structuredContent": value})
        assert t.run() == value and type(t.run()) is type(value) and t.call().structured == value
    host.answers({"content": []})
    assert t.call().structured is UNSET


def test_schema_but_text_only(tool: Tool, host: Host) -> None:
    from cellgate_tools import ToolError

    t = tool(OBJECT, NUMBERS)
    host.answers({"content": [{"type": "text", "text": '{"n": 3}'}]})
    assert t.run().n == 3
    host.answers({"content": [{"type": "text", "text": "no json"}]})
    with pytest.raises(ToolError, match="no json"):
        t.run()


@pytest.mark.parametrize(
    ("out", "structured", "returned", "annotation"),
    [
        (
            {
                "type": "object",
                "properties": {"result": {"type": "number"}},
                "required": ["result"],
                "title": "sumOutput",
            },
            {"result": 3},
            3,
            "float",
        ),
        (
            {
                "type": "object",
                "x-fastmcp-wrap-result": True,
                "properties": {"result": {"type": "array", "items": {"type": "string"}}},
            },
            {"result": ["a"]},
            ["a"],
            "list[str]",
        ),
        (
            {
                "type": "object",
                "x-fastmcp-wrap-result": True,
                "properties": {"result": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            },
            {"result": None},
            None,
            "int | None",
        ),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2], [1, 2], "list[int]"),
        ({"type": "string"}, "s", "s", "str"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, {"a": 1}, {"a": 1}, "dict[str, float]"),
        (
            {
                "type": "object",
                "properties": {"result": {"type": "number"}, "more": {}},
                "required": ["result"],
                "title": "XOutput",
            },
            {"result": 3},
            None,
            "Result",
        ),
    ],
)
def test_kinds_of_results(tool: Tool, host: Host, out: Any, structured: Any, returned: Any, annotation: str) -> None:
    t = tool(OBJECT, out)
    host.answers({"structuredContent": structured})
    assert str(inspect.signature(t.run)).endswith(f"-> {annotation}")
    assert get_type_hints(t.run)["return"] == eval(annotation, dict(vars(t)))
    assert get_type_hints(t.acall)["return"].__name__ == "ToolResult"
    result = t.run()
    assert result == returned if annotation != "Result" else result.result == 3
    assert t.call().structured == structured


def test_wrapped_objects(tool: Tool, host: Host) -> None:
    """Lists, mappings and unions of objects get their classes in every place of a schema."""
    item = {"type": "object", "title": "Item", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    shape = {
        "type": "object",
        "title": "Shape",
        "properties": {"kind": {"const": "shape"}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    out = {
        "type": "object",
        "properties": {
            "one": item,
            "many": {"type": "array", "items": item},
            "by": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Thing"}},
            "either": {"type": "array", "items": {"anyOf": [item, shape, {"type": "null"}]}},
            "mixed": {"anyOf": [{"type": "array", "items": shape}, item]},
            "table": {"type": "array", "items": {"type": "array", "items": item}},
        },
        "$defs": {"Thing": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Thing"}, "v": {}}}},
    }
    t = tool(OBJECT, out)
    host.answers(
        {
            "structuredContent": {
                "one": {"id": 1},
                "many": [{"id": 2}],
                "by": {"k": {"next": {"next": {"v": 5}}}},
                "either": [{"kind": "shape"}, {"id": 3}, None],
                "mixed": [{"kind": "shape"}],
                "table": [[{"id": 4}]],
            }
        }
    )
    r = t.run()
    assert r.one.id == 1 and r.many[0].id == 2 and r.by["k"].next.next.v == 5
    assert r.either[0].kind == "shape" and r.either[1].id == 3 and r.either[2] is None
    assert r.mixed[0].kind == "shape" and r.table[0][0].id == 4


def test_text_that_is_json(tool: Tool, host: Host) -> None:
    t = tool(OBJECT)
    host.answers({"content": [{"type": "text", "text": '{"rows": [{"id": 18446744073709551615}]}'}]})
    assert t.run().json() == {"rows": [{"id": 2**64 - 1}]}
    with pytest.raises(TypeError, match=r"is a text \(str\), which has no key 'rows'; its value as JSON: r.json\(\)"):
        t.run()["rows"]
    assert t.run()[0] == "{" and t.run()[:3] == '{"r' and not hasattr(t.run(), "__array__")
    host.answers({"content": [{"type": "text", "text": "[{'a': None}]"}]})
    with pytest.raises(ValueError, match=r"ast.literal_eval\(\) reads it$"):
        t.run().json()
    host.keeps('{"content":[{"type":"text","text":"@"}]}', json.dumps(["x" * 100_000]))
    assert t.run().json() == t.call().large().json() == ["x" * 100_000]
    host.kind = ""
    for text in ("no\x1b json " * 10, "", "[" * 5000, '{"a":1} x'):
        host.answers({"content": [{"type": "text", "text": text}]})
        with pytest.raises(ValueError, match="the text of this result is not JSON: ") as caught:
            t.run().json()
        assert len(str(caught.value)) < 300 and "\x1b" not in str(caught.value)


def test_shape_is_learned_from_the_first_result(tool: Tool, host: Host) -> None:
    """help() shows it where the server declares nothing."""

    def said(answer: Any, out: Any = None) -> list[str]:
        t = tool(OBJECT, out)
        before = t.__doc__
        for content in ("", "[]", "plain {text}"):
            host.answers({"content": [{"type": "text", "text": content}]} if out is None else {"structuredContent": {}})
            t.run()
        assert t.__doc__ == before
        host.answers(answer)
        t.run()
        host.answers({"content": [{"type": "text", "text": '{"other": 1}'}], "structuredContent": {}})
        t.run()
        for shown in (t, t.run):
            assert pydoc.plaintext.document(shown).count("first result") == ("first result" in t.__doc__)
        return [line for line in t.__doc__.splitlines() if line not in before.splitlines()]

    rows = [{"id": 1, "f": {"Due date": None}, "n": 1, "tags": ["x"]}, {"id": 2, "f": {}, "n": 2.5, "tags": []}]
    text = json.dumps({"records": rows, "offset": None, "ok": True})
    shape = "{records: list[{id: int, f: {'Due date'?: None}, n: float, tags: list[str]}], offset: None, ok: bool}"
    assert said({"content": [{"type": "text", "text": text}]}) == [f"The first result was JSON; .json() is {shape}"]
    assert said({"structuredContent": [1, "a"]}) == ["The first result was list[int | str]"]
    other = ["The first result was JSON; .json() is {other: int}"]
    assert said({"content": [{"type": "text", "text": "{no json"}]}) == other
    assert said({"content": [{"type": "text", "text": '{"a": 1}'}], "isError": False}, NUMBERS | {"required": []}) == []
    evil = {f"k{i}\x1b[0m\u202e\n": {} for i in range(100)}
    (line,) = said({"content": [{"type": "text", "text": json.dumps(evil)}]})
    assert line.isascii() and line.isprintable() and len(line) < 1100 and line.count("k") < 40
    deep: Any = 1
    for _ in range(200):
        deep = {"d": [deep]}
    (line,) = said({"content": [{"type": "text", "text": json.dumps(deep)}]})
    assert line.endswith(".json() is {d: list[{d: list[{d: list[dict]}]}]}")


def test_error_results(tool: Tool, host: Host) -> None:
    from cellgate_tools import ToolError

    t = tool(OBJECT, NUMBERS)
    host.answers(
        {"content": [{"type": "text", "text": "Access denied"}], "isError": True, "structuredContent": {"bad": 1}}
    )
    with pytest.raises(ToolError, match="^Access denied$") as caught:
        t.run()
    assert type(caught.value) is ToolError and caught.value.result.is_error
    assert caught.value.kind == "tool" and caught.value.tool == "t" and caught.value.message == "Access denied"
    assert t.call().is_error
    host.answers({"content": [], "isError": True})
    with pytest.raises(ToolError, match="gave no reason"):
        t.run()


def test_result_that_misses_its_schema(tool: Tool, host: Host) -> None:
    """It is returned, with one warning; strict refuses it."""
    from cellgate_tools import ToolError, options

    t = tool(OBJECT, NUMBERS)
    host.answers({"structuredContent": {"n": "x", "more": 1}})
    with pytest.warns(UserWarning, match="does not fit") as seen:
        assert t.run().n == "x"
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert t.run().more == 1
        with options(strict=True), pytest.raises(ToolError, match="/n: expected integer"):
            t.run()


def test_search(build_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in ("files", "graph", "everything"):
        generate(build_dir, name, tmp_path / "mcptools", (DATA / f"{name}.json").read_bytes(), root=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    try:
        mcptools = importlib.import_module("mcptools")
        found = mcptools.search("write a file")
        assert (found[0].server, found[0].tool, found[0].module) == ("files", "write_file", "files.write_file")
        assert repr(found).splitlines()[0] == (
            "files.write_file(path, content) -> Result: Makes a file, or replaces all of it. [destructive, idempotent]"
        )
        assert mcptools.search("relation", detail="name")[0].text.startswith("graph.create_relations: Makes relations")
        assert "class Edit(Model):" in mcptools.search("edit", limit=1, detail="full")[0].text
        assert {m.server for m in mcptools.search(server="graph")} == {"graph"}
        assert len(mcptools.search()) == sum(
            len(json.loads((DATA / f"{n}.json").read_text())["tools"]) for n in ("files", "graph", "everything")
        )
        assert mcptools.search("colour") == []  # a parameter's name
        assert mcptools.search("zebra") == [] and repr(mcptools.search("zebra")) == "no tool found"
        assert mcptools.search("!!! ''' \ud800") is not None
        with pytest.raises(ValueError, match="detail"):
            mcptools.search("x", detail="all")
        functions = ["search", "servers", "signature", "tools", "resources", "resource_templates", "prompts"]
        functions += ["read_resource", "aread_resource", "get_prompt", "aget_prompt"]
        assert sorted(dir(mcptools)) == sorted(["everything", "files", "graph", *functions])
        assert mcptools.files.edit_file.run and "edit_file" in dir(mcptools.files)
        with pytest.raises(AttributeError, match="servers: everything, files, graph"):
            mcptools.nothing  # noqa: B018
        generate(build_dir, "late", tmp_path / "mcptools", [{"name": "t", "inputSchema": {}}], root=True)
        assert mcptools.late.t.run
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == "mcptools"]:
            del sys.modules[name]
