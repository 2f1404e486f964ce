"""TypeScript declarations of tools: the compiler of TypeScript reads them, and what it refuses, a call would refuse."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from codegen.hostile_cases import CASES
from codegen.support import DATA, GenerationFailed, generate, shared_files

Compile = Callable[..., list[str]]
NODE = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/N"}, "m": {"additionalProperties": {"type": "number"}}},
}
NODE["properties"]["m"]["type"] = "object"  # type: ignore[index]
LIST = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "depth": {"type": "integer"},
        "kind": {"enum": ["a", "b", 1, None]},
        "f-x": {"type": ["string", "null"]},
        "deep": {"$ref": "#/$defs/N"},
        "either": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "boolean"}}]},
    },
    "required": ["path"],
    "$defs": {"N": NODE},
}
TOOLS = [
    {
        "name": "list",
        "inputSchema": LIST,
        "outputSchema": {"properties": {"content": {"type": "string"}}, "type": "object"},
    },
    {"name": "delete", "inputSchema": {"type": "object"}, "description": "a */ b\r\n`${x}`\u2028 */"},
]


def declared(out: Path) -> str:
    from cellgate_tools.declarations import declarations

    return declarations([str(out)], lambda server, tool: f"{server} {tool} */ declare")


@pytest.fixture
def tsc(tmp_path: Path) -> Compile:
    """tsc(DECLARATIONS, CODE="") -> its errors."""
    program = Path(os.environ.get("CG_NPM", "")).parent / "test-npm/node_modules/typescript/bin/tsc"
    if not program.exists():
        pytest.skip("the compiler of TypeScript is not installed: scripts/setup --test gets it from npm")

    def compile(text: str, code: str = "") -> list[str]:
        (tmp_path / "mcptools.d.ts").write_text(text)
        (tmp_path / "code.ts").write_text(code + "\nexport {};\n")
        options = ["--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler"]
        argv = ["node", program, *options, "--lib", "es2022", "code.ts", "mcptools.d.ts"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        return [line for line in done.stdout.splitlines() if "error TS" in line]

    return compile


def test_calls(build_dir: Path, tmp_path: Path, tsc: Compile) -> None:
    generate(build_dir, "My-Files", tmp_path / "out", TOOLS)
    text = declared(tmp_path / "out")
    begin = 'import { list, delete as remove } from "mcptools/my_files";\n'
    good = """import { list as same } from "mcptools/My-Files";
import { types, search, RejectedError } from "mcptools";
const found = await list({ path: "/x", deep: { next: { m: { a: 1 } } }, "f-x": null, either: [true] });
const content: string | undefined = found.content, text: string = await remove();
await same({ path: "/", kind: 1 }); await types("my_files"); (await search("x"))[0].tool; new RejectedError("x").kind;
await remove({ anything: 1 });"""
    assert tsc(text, begin + good) == []
    bad = """await list({ path: 1 });
await list({});
await list({ path: "", other: 1 });
await list({ path: "", deep: { next: { m: { a: "x" } } } });
await list({ path: "", kind: "c" });
await list({ path: "", either: [1] });
(await list({ path: "" })).none;
(await remove()).content;"""
    lines = [int(error.split("(")[1].split(",")[0]) for error in tsc(text, begin + bad)]
    assert lines == list(range(2, 10))


def test_any_server_s_tools_compile(build_dir: Path, tmp_path: Path, tsc: Compile) -> None:
    """Ordinary lists of tools, and hostile ones: no text of theirs becomes a declaration, and none has an error."""
    lists = {
        f"real{i}": path.read_bytes()
        for i, path in enumerate([*DATA.glob("*.json"), *shared_files("cases/tools/*.json")])
    }
    lists |= {f"hostile{i}": case.text for i, case in enumerate(CASES)}
    written = 0
    for name, tools in lists.items():
        try:
            generate(build_dir, name, tmp_path / "out", tools)
            written += 1
        except GenerationFailed:
            continue
    assert written > 50
    text = declared(tmp_path / "out")
    assert tsc(text) == []
    assert text.isascii() or all(c.isprintable() or c == "\n" for c in text)
    assert sum(line.startswith("declare module ") for line in text.splitlines()) > 100
    modules = json.dumps(sorted(line for line in text.splitlines() if "declare" in line and not line.startswith(" ")))
    assert "PWNED" not in modules


ODD = [
    {"$ref": "#"},
    {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
        "$ref": "#/$defs/a",
    },
    {"type": "array", "items": {"$ref": "#"}},
    {"type": "object", "additionalProperties": {"$ref": "#"}},
    {"enum": []},
    {"enum": [1, {"a": 1}]},
    {"const": "x\u2028\"'"},
    {"type": [], "properties": {"__proto__": {"type": "string"}, "a b": False}},
    {
        "type": "object",
        "properties": {"constructor": {"const": True}},
        "required": ["x", 1],
        "additionalProperties": {},
    },
]


def test_odd_schemas_compile(build_dir: Path, tmp_path: Path, tsc: Compile) -> None:
    """Each in a module of its own."""
    for i, schema in enumerate(ODD):
        tool = {"name": "t", "inputSchema": {"type": "object", "properties": {"x": schema}}, "outputSchema": schema}
        root = [{"name": "r", "inputSchema": {"type": "object", **schema}}] if "$defs" not in schema else []
        generate(build_dir, f"s{i}", tmp_path / "out", [tool, *root])
    text = declared(tmp_path / "out")
    assert all(f"s{i}" in text for i in range(len(ODD))) and tsc(text) == []


def test_deep_schemas(build_dir: Path, tmp_path: Path, tsc: Compile) -> None:
    definitions = {f"d{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(3000)}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
    generate(build_dir, "s", tmp_path / "out", [{"name": "t", "inputSchema": schema}])
    assert tsc(declared(tmp_path / "out")) == []
