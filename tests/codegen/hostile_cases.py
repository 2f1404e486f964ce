"""Hostile and broken tool lists, made here: text that wants to be code, names that want to be paths, broken schemas."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

P = 'import os; os.system("touch /tmp/PWNED")'


class Case(NamedTuple):
    name: str
    text: bytes
    allowed: str
    """Statuses that the report may give, by first letter (f, d, r); "-" alone: the whole list is refused."""


def obj(properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": {"type": "string"}} if properties is None else properties, **more}


def one(**tool: Any) -> bytes:
    return json.dumps({"tools": [{"name": "t", "inputSchema": obj(), **tool}]}).encode()


def many(*tools: dict[str, Any]) -> bytes:
    return json.dumps({"tools": [{"inputSchema": obj(), **t} for t in tools]}).encode()


def schema(properties: dict[str, Any], **more: Any) -> bytes:
    return one(inputSchema=obj(properties, **more))


def _texts() -> list[Case]:
    texts = {
        "triple": f'Safe."""\n{P}\n"""',
        "triple-start": f'"""{P}',
        "ends-quote": 'say "hi"',
        "ends-quotes": 'x""',
        "ends-backslash": "C:\\temp\\",
        "backslash-quote": 'x\\"""\n' + P,
        "cr": f"a\r{P}\rb",
        "crlf": f"a\r\n{P}\r\nb\r",
        "line-ends": f"a\f{P}\v{P}\x85{P}\u2028{P}\u2029{P}\x1c{P}\x1e{P}",
        "nul": f"a\0{P}",
        "ansi": "\x1b[2J\x1b]0;owned\x07\b\x7f\x9b31m",
        "bidi": "user\u202e\u2066// x\u2069 \u200b\ufeff",
        "templates": "{x} {0} {{c}} %s %(x)s ${H} `id` {% x %}",
        "escapes": "\\x22\\x22\\x22 \\u0022 \\N{NOT A NAME} \\8",
        "cookie": f"# -*- coding: utf-7 -*-\n+ACIAIgAi-\n{P}",
        "surrogates": "\ud83d \udc00\ud83d \udc00",
        "astral": "\U0001f600 \U0010ffff",
        "indent": f"x\n        y\n{P}\n\t{P}",
        "blank": " \n\t ",
        "long": ('x"\\' * 22000),
    }
    cases = []
    for name, text in texts.items():
        everywhere = {
            "title": text,
            "description": text,
            "annotations": {"title": text, text or "k": 1},
            "inputSchema": obj(
                {
                    "x": {"type": "string", "title": text, "description": text, "default": text, "enum": [text, "a"]},
                    "o": obj({"y": {"const": text}}, title=text, description=text),
                    text: {"type": "string", "pattern": text, "format": text},
                },
                title=text,
                description=text,
                **{"$comment": text, "$defs": {text: {"type": "string"}}},
            ),
            "outputSchema": obj({"r": {"type": "string", "description": text}}, title=text),
        }
        cases.append(Case(f"text-{name}", one(**everywhere), "fd"))
        cases.append(Case(f"text-name-{name}", many({"name": text[:4000]}), "f"))
    return cases


def _names() -> list[Case]:
    names = {
        "path": ["../../x", "/etc/x", "..", ".", "a/b", "..\\x", "C:\\x"],
        "dunder": ["__init__", "__main__", "__class__", "__getattr__", "__dir__", "__name__", "__path__", "_tools"],
        "keyword": ["class", "import", "from", "None", "async", "match", "print"],
        "own": ["TOOLS", "run", "call", "bind", "Params", "UNSET", "cellgate_tools", "search", "_tool"],
        "alike": ["get-user", "get_user", "get.user", "get user", "getUser", "GetUser", "GETUSER", "getuser"],
        "empty": ["", " ", "-", "_", "__", "\u200b", "\u63d0\u53d6", "\u63d0\u7247"],
        "digit": ["2fa", "2fa.enable", "0", "t_0", "t_2fa"],
        "long": ["a" * 300, "a" * 300 + "b", "a" * 61, "a" * 60],
        "suffix": ["x.py", "evil.pth", "sitecustomize", "x.pyc", "x.so"],
        "nfkc": ["\ufb01nd", "find", "\uff46\uff49\uff4e\uff44"],
        "nul": ["a\0b", "a\nb", "a_b"],
    }
    return [Case(f"names-{k}", many(*({"name": n, "description": n} for n in v)), "f") for k, v in names.items()]


def _properties() -> list[Case]:
    names = {
        "keyword": ["from", "from_", "from__", "class", "None", "True", "import", "lambda"],
        "types": ["str", "int", "float", "bool", "list", "dict", "Any", "Literal", "Model", "UNSET", "None", "object"],
        "own": [
            "params",
            "fields",
            "self",
            "cls",
            "model_dump",
            "model_validate",
            "model_json_schema",
            "_data",
            "_tool",
        ],
        "dunder": ["__class__", "__init__", "__dict__", "__slots__", "__getattr__", "_", "__", "__x", "_x_"],
        "alike": ["a-b", "a_b", "a.b", "a b", "a$b", "id", "ID", "Id"],
        "odd": [
            "",
            " ",
            "$ref",
            "$schema",
            "2d",
            "\u65e5",
            "\ufb01eld",
            "field",
            "x" * 500,
            "x" * 501,
            "a\0b",
            "\ud800",
        ],
        "code": [f"x: int = 1\n{P}", f"a'] = {P} #", f'"""\n{P}', "x=1, **y"],
    }
    cases = []
    for k, v in names.items():
        properties = {n: {"type": "integer"} for n in v}
        cases.append(Case(f"properties-{k}", schema(properties, required=v[:3]), "f"))
        cases.append(Case(f"properties-out-{k}", one(outputSchema=obj(properties)), "f"))
    cases += [
        Case("properties-required-only", schema({}, required=["a", "b c"]), "f"),
        Case(
            "properties-malformed",
            many(
                *(
                    {"name": f"t{i}", "inputSchema": {"type": "object", "properties": p}}
                    for i, p in enumerate(
                        ([1], None, "x", {"a": "string", "b": None, "c": 7, "d": [], "e": True, "f": False})
                    )
                ),
                {"name": "good"},
            ),
            "fd",
        ),
        Case(
            "properties-many", schema({f"p{i}": {"type": "string", "description": str(i)} for i in range(10000)}), "f"
        ),
    ]
    return cases


def _values() -> list[Case]:
    raw = (
        b'{"tools":[{"name":"bad","inputSchema":{"type":"object","properties":{"x":{"default":%s}}}},'
        b'{"name":"good","inputSchema":{"type":"object"}}]}'
    )
    cases = [
        Case(f"value-{name}", raw % text, "fd")
        for name, text in {
            "u64": b"18446744073709551615",
            "e400": b"1" + b"0" * 400,
            "e5000": b"-1" + b"0" * 5000,
            "real": b"1e999",
            "minus-zero": b"-0.0",
            "exact": b"9007199254740993",
            "surrogate": b'"\\ud800"',
            "nul": b'"\\u0000"',
            "duplicate": b'{"a":1,"a":2}',
            "deep": b"[" * 300 + b"]" * 300,
        }.items()
    ]
    cases += [
        Case(f"syntax-{name}", raw % text, "fr")
        for name, text in {
            "nan": b"NaN",
            "infinity": b"-Infinity",
            "comma": b"[1,]",
            "comment": b"1/*x*/",
            "utf8": b'"\xff\xfe"',
            "overlong": b'"\xc0\xaf"',
            "cesu": b'"\xed\xa0\x80"',
            "zero": b"01",
            "hex": b"0x1",
            "control": b'"a\nb"',
            "escape": b'"\\x"',
            "word": b"nul",
            "plus": b"+1",
            "quote": b"'a'",
        }.items()
    ]
    enums = {
        "mixed": [1, "1", True, None, 2.5, 0, False, ""],
        "twice": ["a", "a", "b"],
        "empty": [],
        "long": ["v" * 3000] * 2,
        "many": [f"value-{i}" for i in range(20000)],
        "objects": [{}, [], [False], {"a": 0}],
        "odd": ["", " ", "None", "mro", "\n", '"', "\\", f'"""{P}', "\u65e5\u672c", "]", "Literal["],
    }
    cases += [Case(f"enum-{k}", schema({"x": {"enum": v}}), "d" if k == "empty" else "f") for k, v in enums.items()]
    cases.append(Case("enum-contradiction", schema({"x": {"type": "integer", "enum": ["1", 2]}}), "d"))
    return cases


def _references() -> list[Case]:
    ref = "$ref"
    defs = {
        f"d{i}": {
            "type": "object",
            "properties": {"a": {ref: f"#/$defs/d{i - 1}"}, "b": {ref: f"#/$defs/d{i - 1}"}},
            "allOf": [{ref: f"#/$defs/d{i - 1}"}] * 2,
        }
        for i in range(1, 30)
    }
    wide = {
        f"d{i}": {"anyOf": [{ref: f"#/$defs/d{i - 1}"}, {"type": "array", "items": {ref: f"#/$defs/d{i - 1}"}}]}
        for i in range(1, 60)
    }
    chain = {f"d{i}": {ref: f"#/$defs/d{i + 1}"} for i in range(5000)}
    return [
        Case(
            "ref-loop",
            schema({"x": {ref: "#/$defs/a"}}, **{"$defs": {"a": {ref: "#/$defs/b"}, "b": {ref: "#/$defs/a"}}}),
            "d",
        ),
        Case("ref-self", schema({"x": {ref: "#/properties/x"}}), "d"),
        Case("ref-root", schema({"x": {ref: "#"}, "y": {"type": "array", "items": {ref: "#"}}}), "f"),
        Case("ref-dangling", schema({"x": {ref: "#/$defs/no"}, "y": {ref: "#/properties/x/items"}}), "d"),
        Case("ref-file", schema({"x": {ref: "file:///etc/passwd"}}), "r"),
        Case("ref-http", schema({"x": {"items": {ref: "https://example.com/s.json#/a"}}}), "r"),
        Case("ref-relative", schema({"x": {ref: "../secret.json#/a"}}), "r"),
        Case("ref-number", schema({"x": {ref: 7}, "y": {ref: None}, "z": {ref: ""}}), "d"),
        Case(
            "ref-no-schema",
            schema({"x": {ref: "#/required"}, "y": {ref: "#/type"}, "z": {ref: "#/required/0"}}, required=["x"]),
            "d",
        ),
        Case(
            "ref-escapes",
            schema({"x": {ref: "#/$defs/a~1b%25c~0d"}}, **{"$defs": {"a/b%c~d": {"type": "integer"}}}),
            "f",
        ),
        Case(
            "ref-anchor", schema({"x": {ref: "#here"}}, **{"$defs": {"A": {"$anchor": "here", **obj({"s": {}})}}}), "f"
        ),
        Case("ref-id", schema({"x": {ref: "urn:x"}}, **{"$defs": {"A": {"$id": "urn:x", **obj({"s": {}})}}}), "f"),
        Case("ref-laughs", schema({"x": {ref: "#/$defs/d29"}}, **{"$defs": {"d0": obj({"v": {}}), **defs}}), "fd"),
        Case("ref-wide", schema({"x": {ref: "#/$defs/d59"}}, **{"$defs": {"d0": obj({"v": {}}), **wide}}), "fd"),
        Case(
            "ref-chain", schema({"x": {ref: "#/$defs/d0"}}, **{"$defs": {**chain, "d5000": {"type": "integer"}}}), "d"
        ),
    ]


def _deep(opening: str, closing: str, n: int) -> bytes:
    return (
        '{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"x":'
        + opening * n
        + '{"type":"string"}'
        + closing * n
        + "}}}]}"
    ).encode()


def _sizes() -> list[Case]:
    nested, close = '{"type":"object","properties":{"a":', "}}"
    good = b'{"tools":[{"name":"good","inputSchema":{"type":"object"}},'
    return [
        Case("deep-60", _deep(nested, close, 60), "fd"),
        Case("deep-1000", _deep(nested, close, 1000), "d"),
        Case("deep-items-3000", _deep('{"type":"array","items":', "}", 3000), "d"),
        Case("deep-anyof", _deep('{"anyOf":[', "]}", 1000), "d"),
        Case("deep-100000", _deep('{"type":"array","items":', "}", 100000), "-"),
        Case("deep-brackets", good + b'{"name":"bad","inputSchema":' + b"[" * 1000000 + b"]" * 1000000 + b"}]}", "fr"),
        Case("big-tool", many({"name": "big", "description": "x" * (5 << 20)}, {"name": "good"}), "fr"),
        Case(
            "wide-anyof", schema({"x": {"anyOf": [obj({f"k{i}": {}}, required=[f"k{i}"]) for i in range(10000)]}}), "d"
        ),
        Case(
            "wide-root",
            one(
                inputSchema={"type": "object", "anyOf": [obj({f"k{i}": {}}, required=[f"k{i}"]) for i in range(10000)]}
            ),
            "d",
        ),
        Case(
            "product",
            one(inputSchema=obj({}, allOf=[{"anyOf": [obj({f"a{i}": {}}), obj({f"b{i}": {}})]} for i in range(40)])),
            "f",
        ),
        Case(
            "limits",
            schema(
                {
                    "a": {"type": "array", "minItems": 10**9},
                    "b": {"type": "string", "maxLength": 1e30, "minLength": 0.0},
                }
            ),
            "f",
        ),
        Case("many-tools", many(*({"name": f"tool_{i}"} for i in range(1000))), "f"),
        Case("long-keys", schema({"k" * 200000: obj({"k" * 200000: obj({"z": {}})})}), "fd"),
    ]


def _schemas() -> list[Case]:
    wrong = {
        "a": {"type": "integer", "minimum": "5"},
        "b": {"minLength": -1, "maxLength": "x"},
        "c": {"pattern": 5},
        "d": {"multipleOf": 0},
        "e": {"type": "array", "minItems": None, "items": "x"},
        "f": {"type": 7},
        "g": {"enum": "a"},
        "h": {"type": ["string", 5, "nope"]},
        "i": {"anyOf": {}},
        "j": {"anyOf": []},
        "k": {"required": True},
    }
    return [
        Case("input-missing", json.dumps([{"name": "a"}, {"name": "b", "inputSchema": None}]).encode(), "d"),
        Case(
            "input-wrong",
            many(
                *({"name": f"t{i}", "inputSchema": s} for i, s in enumerate([True, False, "object", [], 3])),
                {"name": "good"},
            ),
            "fdr",
        ),
        Case("input-array", one(inputSchema={"type": "array"}), "d"),
        Case(
            "output-wrong",
            many(*({"name": f"t{i}", "outputSchema": s} for i, s in enumerate([True, False, "x", [], 3, None, {}]))),
            "fd",
        ),
        Case("keywords-wrong", schema(wrong), "d"),
        Case(
            "draft4",
            one(
                inputSchema={
                    "$schema": "http://json-schema.org/draft-04/schema#",
                    "id": "x",
                    **obj({"a": {"type": "number", "minimum": 0, "exclusiveMinimum": True}}),
                }
            ),
            "f",
        ),
        Case(
            "regex",
            schema(
                {
                    k: {"type": "string", "pattern": p}
                    for k, p in zip(
                        "abcdefg", ["(", "*a", "^\\p{L}+$", "(?<y>\\d{4})", "[^]", "a{2,1}", "\\"], strict=True
                    )
                }
            ),
            "f",
        ),
        Case(
            "hints",
            one(annotations={"readOnlyHint": "false", "destructiveHint": 0, "openWorldHint": None, f'x"\n{P}': 1}),
            "d",
        ),
        Case("annotations-list", one(annotations=[1]), "d"),
        Case(
            "list-odd",
            b'{"tools":[1,null,"x",[],{},{"name":7},{"name":"good","inputSchema":{"type":"object"}}],"nextCursor":"c"}',
            "fr",
        ),
        Case("list-bare", b'  [{"name":"t","inputSchema":{"type":"object"}}]\n', "f"),
        Case("list-bom", b'\xef\xbb\xbf{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}', "f"),
        Case(
            "list-rpc",
            b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}',
            "f",
        ),
        Case("list-empty", b'{"tools":[]}', "f"),
        Case(
            "list-duplicates",
            many({"name": "dup", "description": "first"}, {"name": "dup", "description": "second"}),
            "fr",
        ),
        *(
            Case(f"list-refused-{i}", t, "-")
            for i, t in enumerate(
                (
                    b"",
                    b"{",
                    b"[",
                    b"null",
                    b'"x"',
                    b'{"tools":{}}',
                    b'{"x":[]}',
                    b'{"tools":[{"name":"t"',
                    b'{"tools":[{}]}x',
                    b"[]x",
                    b'[{"name":"\xff"}]',
                    b'{"tools":[NaN]}',
                    b'{"tools":[,]}',
                    b'{"tools":[1,]}',
                    b'{"tools" []}',
                    b'{"a":1 "tools":[]}',
                )
            )
        ),
    ]


CASES = [*_texts(), *_names(), *_properties(), *_values(), *_references(), *_sizes(), *_schemas()]
