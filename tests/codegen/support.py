"""Support for the generator's tests: running the generator, checking its files, and a host that answers calls."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

REPO = Path(__file__).resolve().parent.parent.parent
STUBS = REPO / "python_stubs"
DATA = Path(__file__).resolve().parent / "data"
PWNED = Path("/tmp/PWNED")
"""The file that payloads in hostile definitions would make."""

SHARED = os.environ.get("CG_SHARED")
"""Folder with more cases (cases/tools, cases/json-schema-suite, tools/expand_hostile.py), where there is one."""


def shared_files(pattern: str) -> list[Path]:
    return sorted(Path(SHARED).glob(pattern)) if SHARED else []


class GenerationFailed(Exception):
    """cg_codegen() returned an error: .code and the message."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = int(text.split(" ", 1)[0])


def probe(build: Path, *args: str | Path, text: bytes = b"", timeout: float = 60) -> str:
    done = subprocess.run(
        [str(build / "tests/codegen/gen-probe"), *map(str, args)], input=text, capture_output=True, timeout=timeout
    )
    if done.returncode == 1:
        raise GenerationFailed(done.stderr.decode())
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode("ascii")


def as_list(tools: Any) -> bytes:
    """The JSON text of a tools/list result."""
    if isinstance(tools, bytes):
        return tools
    return json.dumps({"tools": tools}).encode("ascii")


def generate(build: Path, server: str, out: Path, tools: Any, root: bool = False) -> dict[str, Any]:
    args = ["--root"] if root else []
    report: dict[str, Any] = json.loads(probe(build, "generate", server, out, *args, text=as_list(tools)))
    return report


# ---------------------------------------------------------------------- what generated files may look like

_IMPORTS = {"__future__", "typing", "cellgate_tools"}
_FUNCTIONS = ast.dump(ast.parse("run, call, run_async, call_async, arun, acall = 0").body[0].targets[0])
_INIT_TYPING = ast.dump(ast.parse("import typing as _typing").body[0])
_INIT_IMPORT = ast.dump(ast.parse("from cellgate_tools import package as _package").body[0])
_INIT_LAST = ast.dump(ast.parse("_package(__name__)").body[0])


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_doc(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and _is_string(node.value)


def _check_annotation(node: ast.AST) -> None:
    allowed = (ast.Name, ast.Load, ast.Subscript, ast.BinOp, ast.BitOr, ast.Constant, ast.Tuple, ast.UnaryOp, ast.USub)
    for part in ast.walk(node):
        assert isinstance(part, allowed), ast.dump(part)
        if isinstance(part, ast.Constant):
            assert part.value is None or type(part.value) in (str, int, bool)


def _check_class(node: ast.ClassDef) -> None:
    assert [b.id for b in node.bases] in (["Model"], ["Open"], ["DictModel"])
    assert not node.decorator_list and not node.keywords
    for part in node.body:
        if isinstance(part, ast.AnnAssign):
            assert isinstance(part.target, ast.Name) and not part.target.id.startswith("_")
            assert part.value is None or ast.unparse(part.value) in ("None", "UNSET" if node.bases[0].id == "Model" else "")
            _check_annotation(part.annotation)
        else:
            assert _is_doc(part) or isinstance(part, ast.Pass), ast.dump(part)


def reported(name: str) -> str:
    """A tool's name as reports have it: text that can be encoded."""
    return re.sub("[\ud800-\udfff]", "\ufffd", name)


def check_module(text: str, tool: str | None) -> ast.Module:
    """A tool's module has this form: data, classes with annotated fields, and one call of bind()."""
    tree = ast.parse(text)
    assert _is_doc(tree.body[0])
    *body, last = tree.body[1:]
    for node in body:
        if isinstance(node, ast.ImportFrom):
            assert node.module in _IMPORTS and node.level == 0 and not any(n.asname for n in node.names)
        else:
            assert isinstance(node, ast.ClassDef), ast.dump(node)
            _check_class(node)
    assert isinstance(last, ast.Assign) and [ast.dump(t) for t in last.targets] == [_FUNCTIONS]
    name, params, returns = last.value.args[1:]
    assert tool is None or reported(name.value) == tool
    assert ast.dump(last.value.func) == ast.dump(ast.parse("bind", mode="eval").body) and not last.value.keywords
    assert ast.dump(last.value.args[0]) == ast.dump(ast.parse("globals()", mode="eval").body)
    assert _is_string(name) and isinstance(params, ast.Name) and params.id == "Params" and len(last.value.args) == 4
    if not isinstance(returns, ast.Name):
        assert isinstance(returns, ast.Subscript) and returns.value.id == "Returns" and _is_string(returns.slice)
        _check_annotation(ast.parse(returns.slice.value, mode="eval").body)
    return tree


def check_init(text: str) -> tuple[str, ...]:
    """The package's __init__.py has this form; returns TOOLS."""
    doc, typing, imports, tools, typed, last = ast.parse(text).body
    assert _is_doc(doc)
    assert isinstance(tools, ast.Assign) and [t.id for t in tools.targets] == ["TOOLS"]
    assert isinstance(tools.value, ast.Tuple) and all(map(_is_string, tools.value.elts))
    assert [ast.dump(typing), ast.dump(imports), ast.dump(last)] == [_INIT_TYPING, _INIT_IMPORT, _INIT_LAST]
    names = tuple(e.value for e in tools.value.elts)
    checked = "\n    ".join(["if _typing.TYPE_CHECKING:", "...", *(f"from . import {n} as {n}" for n in names)])
    assert ast.dump(typed) == ast.dump(ast.parse(checked).body[0])
    return names


def check_package(folder: Path, report: dict[str, Any], server: str) -> dict[str, Any]:
    """Everything that holds for every package; returns the parsed _tools.json."""
    modules = {t["module"]: t["tool"] for t in report["tools"] if t["module"] is not None}
    files = {p.name for p in folder.iterdir() if p.name != "__pycache__"}
    assert files == {"__init__.py", "_tools.json", *(m + ".py" for m in modules)}
    assert len({f.lower() for f in files}) == len(files), "a file system may not tell case apart"
    for path in folder.iterdir():
        if path.is_file():
            assert path.read_bytes().isascii(), path
            assert not any(c < 32 and c != 10 for c in path.read_bytes()), path
            assert path.stat().st_mode & 0o777 == 0o644
    for module, tool in modules.items():
        assert module.isidentifier() and not module.startswith("_") and len(module) <= 80
        check_module((folder / f"{module}.py").read_text("ascii"), tool)
    assert check_init((folder / "__init__.py").read_text("ascii")) == tuple(sorted(modules))
    data: dict[str, Any] = json.loads((folder / "_tools.json").read_text("ascii"))
    assert data["server"] == server
    assert {reported(t): e["module"] for t, e in data["tools"].items()} == {t: m for m, t in modules.items()}
    for tool in report["tools"]:
        assert tool["status"] in ("full", "degraded", "rejected")
        assert (tool["module"] is None) == (tool["status"] == "rejected")
        assert tool["status"] == "full" or tool["warnings"], tool
    return data


IMPORT_ALL = """
import importlib, inspect, json, os, pydoc, sys
sys.path[:0] = sys.argv[1:3]
import cellgate_tools
audited = []
def hook(event, args):
    if event in ("os.system", "subprocess.Popen", "os.exec", "socket.connect", "os.remove", "os.rename"):
        audited.append(event)
    if event == "open" and isinstance(args[1], str) and set("wax+") & set(args[1]):
        audited.append(str(args[0]))
sys.dont_write_bytecode = True
sys.addaudithook(hook)
package = importlib.import_module(sys.argv[3])
for name in package.TOOLS:
    module = getattr(package, name)
    module._tool.entry
    for cls in module._tool.entry["classes"]:
        dir(getattr(module, cls).__new__(getattr(module, cls)))
    for function in (module.run, module.call, module.run_async, module.call_async):
        assert inspect.signature(function).parameters and inspect.getdoc(function) and str(inspect.signature(function))
    assert module.__doc__ and str(inspect.signature(module.Params)) and pydoc.render_doc(module)
assert not audited, audited
print(len(package.TOOLS))
"""


def import_all(out: Path, package: str, timeout: float = 60) -> int:
    """Imports every module in a fresh interpreter in which a warning is an error; returns how many."""
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", IMPORT_ALL, STUBS, out.parent, f"{out.name}.{package}"],
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not PWNED.exists()
    return int(done.stdout)


class Calls:
    """Stands for _cellgate.Calls. Calls end when `at` of them wait."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.waiting: list[tuple[int, Any]] = []

    def fileno(self) -> int:
        return self.fd

    def start(self, server: str, tool: str, arguments: bytes, timeout_ms: int, key: int) -> None:
        self.waiting.append((key, self.host.module.tool_call(server, tool, arguments, timeout_ms)))
        if len(self.waiting) == self.host.at:
            os.eventfd_write(self.fd, 1)

    request = start

    def cancel(self, keys: list[int]) -> None:
        self.host.cancelled.extend(keys)

    def results(self, into: list[tuple[int, Any]]) -> None:
        if not self.waiting:
            os.eventfd_read(self.fd)
        into.extend(self.waiting)
        self.waiting.clear()

    def __del__(self) -> None:
        os.close(self.fd)


class Host:
    """Replaces the kernel's module _cellgate: records sent messages and returns prepared answers."""

    def __init__(self) -> None:
        self.module: Any = ModuleType("_cellgate")
        self.module.tool_call = self.tool_call
        self.module.mcp_request = self.tool_call
        self.module.Calls = lambda: Calls(self)
        self.sent: list[tuple[str, str, bytes, int]] = []
        self.cancelled: list[int] = []
        self.at = 1
        self.answer: tuple[str, bytes] = ("ok", b'{"content":[]}')
        self.kind = ""
        self.file = b""  # of a kept result
        self.read: list[int] = []  # sizes of what was read of it
        self.freed: list[int] = []
        self.module.result_read = self.result_read
        self.module.result_free = self.freed.append

    def tool_call(self, server: str, tool: str, arguments: bytes, timeout_ms: int) -> tuple[str, bytes, str]:
        assert type(server) is str and type(tool) is str and type(arguments) is bytes and type(timeout_ms) is int
        self.sent.append((server, tool, arguments, timeout_ms))
        return (*self.answer, self.kind)

    def result_read(self, handle: int, offset: int, length: int) -> bytes:
        assert handle == 7 and 0 < length <= 1 << 20 and offset + length <= len(self.file)
        self.read.append(length)
        return self.file[offset : offset + length]

    def keeps(self, before: str, *texts: str) -> None:
        """Answer with the JSON text `before`, in which each @ stands for a text that the tool server keeps."""
        parts, skeleton, self.file = [], b"", b""
        pieces = before.split("@")
        for piece, text in zip(pieces, [*texts, None], strict=True):
            skeleton += piece.encode()
            if text is not None:
                largest = max(map(ord, text))
                width, name = (1, "latin-1") if largest < 256 else (2, "utf-16-le") if largest < 65536 else (4, "utf-32-le")
                parts.append([len(skeleton), len(self.file), len(text), width])
                self.file += text.encode(name, "surrogatepass")
        self.kind = "kept"
        self.answer = ("ok", json.dumps({"handle": 7, "parts": parts}).encode() + b"\n" + skeleton)

    def answers(self, result: Any, status: str = "ok") -> None:
        self.answer = (status, result if isinstance(result, bytes) else json.dumps(result).encode())

    @property
    def last(self) -> Any:
        """The arguments of the last call."""
        assert self.sent[-1][2].isascii()
        return json.loads(self.sent[-1][2])
