"""TypeScript declarations of tools, for programs in node: a module "mcptools/SERVER" for each server.

They are made of the schemas that decide what is valid. Like annotations of the Python modules they may be looser.
Text of servers gets into them as names of types, quoted names and comments only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ._data import load_package
from ._package import packages
from ._schema import Schema

__all__ = ["declarations"]

_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_RESERVED = re.compile(
    "await|break|case|catch|class|const|continue|debugger|default|delete|do|else|enum|export|extends|false|finally|for|"
    "function|if|import|in|instanceof|new|null|return|super|switch|this|throw|true|try|typeof|var|void|while|with|"
    "implements|interface|let|package|private|protected|public|static|yield|arguments|eval"
)
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_DEPTH, _PARTS, _NAMED, _UNIONS = 40, 100, 1000, 4
_COMMON = """declare module "mcptools" {
  export class ToolError extends Error { readonly kind: string; }
  export class RejectedError extends ToolError {}
  export interface Match { server: string; tool: string; module: string; text: string; }
  export function servers(): Promise<string[]>;
  export function search(words: string): Promise<Match[]>;
  export function help(server: string, tool?: string): Promise<string>;
  export function types(server?: string): Promise<string>;
}
"""


class _Types:
    """The types of one schema of a tool. What is referred to has a name, so that it can refer to itself."""

    def __init__(self, doc: Any, prefix: str, taken: set[str]) -> None:
        self._schema, self._prefix, self._taken = Schema(doc), prefix, taken
        self._names: dict[int, str] = {}
        self.lines: list[str] = []

    def alias(self, at: Any, hint: str, depth: int = 0, direct: frozenset[int] = frozenset()) -> str:
        """The name of a type that is declared here."""
        base = name = f"{self._prefix}_{re.sub(r'[^A-Za-z0-9_]', '_', hint)[:60]}"
        number = 1
        while name in self._taken:
            number += 1
            name = f"{base}{number}"
        self._taken.add(name)
        self._names[id(at)] = name
        self.lines.append(f"  export type {name} = {self.of(at, depth, direct | {id(at)})};")
        return name

    def of(self, s: Any, depth: int, direct: frozenset[int]) -> str:
        """`direct`: what a type would contain without an object or a list between, were it named again."""
        if s is False:
            return "never"
        if not isinstance(s, dict) or depth > _DEPTH:
            return "unknown"
        if isinstance(s.get("$ref"), str):
            return self._ref(s["$ref"], depth, direct)
        if "const" in s:
            return _literals([s["const"]])
        if isinstance(s.get("enum"), list):
            return _literals(s["enum"])
        found = [self._plain(s, depth, direct)]
        for key, sign in (("allOf", " & "), ("anyOf", " | "), ("oneOf", " | ")):
            if isinstance(s.get(key), list) and s[key]:
                parts = dict.fromkeys(self.of(part, depth + 1, direct) for part in s[key][:_PARTS])
                if key == "allOf":  # a compiler multiplies them out
                    unions = [text for text in parts if " | " in text]
                    parts = {text: None for text in parts if text not in unions[_UNIONS:]}
                if len(s[key]) <= _PARTS and "unknown" not in parts:
                    found.append(f"({sign.join(parts)})" if len(parts) > 1 else next(iter(parts)))
        known = [text for text in found if text != "unknown"]
        return " & ".join(known) if known else "unknown"

    def _ref(self, ref: str, depth: int, direct: frozenset[int]) -> str:
        at = self._schema.resolve(ref)
        if not isinstance(at, dict) or id(at) in direct or len(self._names) > _NAMED:
            return "unknown"
        return self._names.get(id(at)) or self.alias(at, ref.rpartition("/")[2] or "Type", depth + 1, direct)

    def _plain(self, s: dict[str, Any], depth: int, direct: frozenset[int]) -> str:
        kinds = s.get("type")
        if kinds is None and isinstance(s.get("properties"), dict):
            kinds = "object"
        texts: dict[str, None] = {}
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if kind == "object":
                texts[self._object(s, depth)] = None
            elif kind == "array":
                item = "unknown" if "prefixItems" in s else self.of(s.get("items", True), depth + 1, frozenset())
                texts[f"Array<{item}>"] = None
            else:
                texts[_PLAIN.get(kind, "unknown") if isinstance(kind, str) else "unknown"] = None
        if "unknown" in texts or not texts:
            return "unknown"
        return f"({' | '.join(texts)})" if len(texts) > 1 else next(iter(texts))

    def _object(self, s: dict[str, Any], depth: int) -> str:
        fields, required = s.get("properties"), s.get("required")
        needed = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        known = dict(fields) if isinstance(fields, dict) else {}
        lines = []
        for name, at in {**known, **{name: True for name in needed if name not in known}}.items():
            optional = "" if name in needed else "?"
            lines.append(f"{_quoted(name)}{optional}: {self.of(at, depth + 1, frozenset())};")
        more = s.get("additionalProperties", not known)
        if more is not False:
            of = "unknown" if known else self.of(more, depth + 1, frozenset())
            lines.append(f"[name: string]: {of};")
        return f"{{ {' '.join(lines)} }}" if lines else "{ [name: string]: never }"


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else json.dumps(name)


def _literals(values: list[Any]) -> str:
    texts = {json.dumps(v): None for v in values if v is None or isinstance(v, (str, int, float))}
    if len(texts) < len(values) or len(values) > _PARTS or not values:
        return "unknown"
    return f"({' | '.join(texts)})" if len(texts) > 1 else next(iter(texts))


def _comment(text: str) -> list[str]:
    lines = "".join(c if c.isprintable() or c == "\n" else " " for c in text).replace("*/", "*\\/").strip().split("\n")
    return ["  /**", *(f"   * {line}".rstrip() for line in lines), "   */"]


def _server(package: str, data: dict[str, Any], describe: Callable[[str], str]) -> str:
    functions = bool(data.get("functions"))
    lines, taken = [f"declare module {json.dumps(f'mcptools/{package}')} {{"], set[str]()
    for tool in data["tools"].values():
        name = tool.get("module")
        if not name:
            continue  # rejected

        made, out, result = _Types(tool["in"], name, taken), tool.get("out"), "string"
        params = made.alias(tool["in"], "Params")
        lines += made.lines
        if out is not None:
            made = _Types(out, name, taken)
            result = made.alias(out["properties"][tool["unwrap"]] if "unwrap" in tool else out, "Result")
            lines += made.lines
        elif functions:
            result = "unknown"
        optional = "" if isinstance(tool["in"], dict) and tool["in"].get("required") else "?"
        own = f"{name}$" if _RESERVED.fullmatch(name) else name
        lines += _comment(describe(name))
        lines.append(f"  export function {own}(params{optional}: {params}): Promise<{result}>;")
        if own != name:
            lines.append(f"  export {{ {own} as {name} }};")
    lines.append("}\n")
    server = data.get("server", package)
    if server != package:
        lines.append(f"declare module {json.dumps(f'mcptools/{server}')} {{")
        lines.append(f"  export * from {json.dumps(f'mcptools/{package}')};\n}}\n")
    return "\n".join(lines)


def declarations(path: Iterable[str], describe: Callable[[str, str], str], server: str | None = None) -> str:
    """A file .d.ts with the modules of all servers, or of one. describe: the text about a tool of a server."""
    folders = list(path)
    texts = [_COMMON]
    for package in packages(folders):
        for folder in folders:
            data = load_package(f"{folder}/{package}")
            if not data.get("tools") or (server is not None and server not in (package, data.get("server"))):
                continue
            texts.append(_server(package, data, partial(describe, package)))
            break
    if server is not None and len(texts) == 1:
        raise LookupError(f"there is no server {server!r} with tools")
    return "\n".join(texts)
