"""Ordinary tool lists: our own, and real servers' where CG_SHARED is set. Modules are well formed and check right."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import pydoc
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from codegen.hostile_cases import CASES
from codegen.support import DATA, STUBS, GenerationFailed, Host, check_package, generate, import_all, shared_files
from rounds import peer, with_peers

FILES = [*sorted(DATA.glob("*.json")), *(p for p in shared_files("cases/tools/*.json") if p.name != "hostile.json")]


def _tools(path: Path) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = json.loads(path.read_text())["tools"]
    return tools


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_modules(build_dir: Path, tmp_path: Path, path: Path) -> None:
    server = path.stem
    report = generate(build_dir, server, tmp_path / "out", path.read_bytes())
    data = check_package(tmp_path / "out" / report["package"], report, server)
    assert {t["tool"] for t in report["tools"]} == {t["name"] for t in _tools(path)} == set(data["tools"])
    assert not [t for t in report["tools"] if t["status"] == "rejected"]
    assert import_all(tmp_path / "out", report["package"]) == len(_tools(path))


def test_catalogue_and_modules_are_what_the_docs_show(build_dir: Path, tmp_path: Path) -> None:
    """One module word for word: a change of the text for agents should be reviewed."""
    generate(build_dir, "files", tmp_path / "mcptools", (DATA / "files.json").read_bytes())
    assert (tmp_path / "mcptools/files/edit_file.py").read_text() == (DATA / "edit_file.expected").read_text()
    catalogue = (tmp_path / "mcptools/files/__init__.py").read_text()
    assert (
        "read_file(path, head?, tail?) -> Result: Reads a whole file as text. [read-only]\n"
        "read_media_file(path) -> Result: Reads an image or a sound.\n"
        "write_file(path, content) -> Result: Makes a file, or replaces all of it. [destructive, idempotent]\n"
    ) in catalogue


def test_any_json(build_dir: Path, tmp_path: Path) -> None:
    """A type that contains itself ends in Any, and is written out once."""
    kinds = [{"type": t} for t in ("string", "number", "boolean", "null")]
    node = {"$ref": "#/$defs/J"}
    kinds += [{"type": "array", "items": node}, {"type": "object", "additionalProperties": node}]
    schema = {"type": "object", "properties": {"v": node, "w": node}, "$defs": {"J": {"anyOf": kinds}}}
    generate(build_dir, "srv", tmp_path, [{"name": "t", "inputSchema": schema}])
    text = (tmp_path / "srv/t.py").read_text()
    for field in "vw":
        assert f"    {field}: str | float | bool | None | list[Any] | dict[str, Any] | None = UNSET\n" in text


def test_many(build_dir: Path, tmp_path: Path) -> None:
    tools = [
        {**t, "name": f"{t['name']}_{i}"} for i in range(10) for p in sorted(DATA.glob("*.json")) for t in _tools(p)
    ]
    generate(build_dir, "srv", tmp_path / "out", tools)
    assert len(list((tmp_path / "out/srv").glob("*_9.py"))) == len(tools) / 10


# ---------------------------------------------------------------------- the same verdict as a reference validator


class Instances:
    """Makes values that fit a schema, more or less, and small changes to them."""

    def __init__(self, root: Any, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)

    def make(self, s: Any, depth: int = 0) -> Any:
        if not isinstance(s, dict) or depth > 8:
            return self.random.choice([None, 1, "x", [], {}])
        ref = s.get("$ref")
        if isinstance(ref, str) and ref.startswith("#"):
            at = self.root
            for token in ref[1:].split("/")[1:]:
                at = at[int(token)] if isinstance(at, list) else at[token]
            return self.make(at, depth + 1)
        if "const" in s:
            return s["const"]
        if s.get("enum"):
            return self.random.choice(s["enum"])
        for keyword in ("anyOf", "oneOf", "allOf"):
            if s.get(keyword) and "properties" not in s:
                return self.make(self.random.choice(s[keyword]), depth + 1)
        kind = s.get("type", "object" if "properties" in s else "string")
        kind = self.random.choice(kind) if isinstance(kind, list) else kind
        maker = {"object": self.object, "array": self.array, "string": self.string, "boolean": lambda *_: True}
        if kind in ("integer", "number"):
            return s.get("minimum", s.get("exclusiveMinimum", 0) + 1) if kind == "integer" else s.get("minimum", 2.5)
        return maker[kind](s, depth) if kind in maker else None

    def object(self, s: Any, depth: int) -> Any:
        keep = self.random.random()
        required = s.get("required", ())
        return {
            k: self.make(v, depth + 1)
            for k, v in s.get("properties", {}).items()
            if k in required or self.random.random() < keep / (1 + depth / 3)
        }

    def array(self, s: Any, depth: int) -> Any:
        n = max(s.get("minItems", 0), self.random.choice([0, 1, 2]) if depth < 6 else 0)
        return [self.make(s.get("items", {}), depth + 1) for _ in range(min(n, 20))]

    def string(self, s: Any, depth: int) -> Any:
        return "a" * max(s.get("minLength", 1), 1)

    def changed(self, value: Any) -> Any:
        """One place in value is something else."""
        value = json.loads(json.dumps(value))
        at, steps = value, self.random.randint(0, 4)
        for _ in range(steps):
            inside = [
                k for k in (at if isinstance(at, dict) else range(len(at))) if isinstance(at[k], (dict, list)) and at[k]
            ]
            if not inside:
                break
            at = at[self.random.choice(inside)]
        other = self.random.choice(
            [None, True, 0, -1, 1.5, 10**20, "", "x", "x\n", "\U0001f600" * 50, [], [1], {}, {"zz": 1}]
        )
        if isinstance(at, dict):
            keys = [*at, "zz"]
            key = self.random.choice(keys)
            if self.random.random() < 0.3 and key in at:
                del at[key]
            else:
                at[key] = other
        elif at:
            at[self.random.randrange(len(at))] = other
        return value


def _cases(schema: Any, seed: int) -> Iterator[Any]:
    instances = Instances(schema, seed)
    for _ in range(6):
        value = instances.make(schema)
        yield value
        if isinstance(value, dict):
            for _ in range(12):
                yield instances.changed(value)


def _ends_in_newline(value: Any) -> bool:
    """Python's $ matches before a last line end, ECMA's does not: there the reference is wrong."""
    return '\\n"' in json.dumps(value)


def _left_to_the_server(error: Any) -> bool:
    """A pattern that the runtime does not check."""
    from cellgate_tools._pattern import matches

    return error.validator == "pattern" and matches(error.validator_value, error.instance) is None


def check_verdicts(tools: list[dict[str, Any]]) -> None:
    """The runtime accepts the arguments that the reference validator accepts, and no others."""
    jsonschema = pytest.importorskip("jsonschema", reason="the reference validator is not installed")
    from cellgate_tools._schema import Schema

    wrong, cases = [], 0
    for i, tool in enumerate(tools):
        schema = tool["inputSchema"]
        old = "draft-07" in str(schema.get("$schema", ""))
        reference = (jsonschema.Draft7Validator if old else jsonschema.Draft202012Validator)(schema)
        ours = Schema(schema)
        for value in _cases(schema, i):
            cases += 1
            try:
                expected = all(_left_to_the_server(e) for e in reference.iter_errors(value))
            except Exception:  # patterns that Python cannot compile
                continue
            if (not ours.errors(value)) != expected and not _ends_in_newline(value):
                wrong.append((tool["name"], value, expected, ours.errors(value)[:2]))
    assert cases >= 6
    assert not wrong, (len(wrong), cases, wrong[:3])


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_verdicts_agree_with_jsonschema(path: Path) -> None:
    check_verdicts(_tools(path))


# ---------------------------------------------------------------------- what is sent


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_wire_is_what_was_given(package: Callable[..., Any], host: Host, path: Path) -> None:
    """model_validate() with original names, and fields by Python names: both send exactly the value."""
    made = package(path.read_bytes())
    data = {t["tool"]: t["module"] for t in made.REPORT["tools"]}
    sent = 0
    for i, tool in enumerate(_tools(path)):
        module = getattr(made, data[tool["name"]])
        python_name = {wire: name for name, wire in module._tool.binding("Params").names.items()}
        for value in _cases(tool["inputSchema"], i):
            if not isinstance(value, dict) or module._tool.schema("in").errors(value):
                continue
            module.call(value)
            by_dict = host.sent[-1]
            assert by_dict[1] == tool["name"] and host.last == value
            assert json.dumps(host.last) == json.dumps(value)  # 8 is not 8.0, true is not 1
            if set(value) <= set(python_name):
                module.call(**{python_name[k]: v for k, v in value.items()})
                assert host.sent[-1] == by_dict
            sent += 1
    assert sent


# ---------------------------------------------------------------------- type checkers


USE = """
from mcptools.files import edit_file, list_directory
from mcptools.everything import draw, find, merged
from mcptools.tracker import find_tickets
import mcptools
from mcptools import files
from json import dumps
e = edit_file.Edit(oldText='a', newText='b')
edit_file.run(edit_file.Params(path='a', edits=[e], dryRun=True)).content.upper()
edit_file.run(path='a', edits=[e]).content.upper()
edit_file.run({'path': 'a', 'edits': []}).content.upper()
edit_file.run(path='a', edits=[e], dryRun=None).content.upper()
find.call().summary().upper()
mcptools.search('x')[0].tool.upper()
mcptools.resources('files')[0].uri.upper()
mcptools.resource_templates('files')[0].template.upper()
mcptools.read_resource('files', 'file:///x').upper()
mcptools.read_resource('files', 'file:///x').images[0].save('x')
mcptools.prompts('files')[0].arguments[0].name.upper()
mcptools.get_prompt('files', 'greet', name='me', server='x').messages[0].role.upper()
found = find_tickets.run()
plain: dict[str, object] = found
rows: list[dict[str, object]] = [*found.items_]
dumps(found, default=vars)
dict(found, **found.items_[0])
for key, value in found.items():
    key.upper()
found.items_[0].owner.login.upper()
found.copy().items_[0].copy().id.bit_length()
match found.items_[0]:
    case find_tickets.Item(id=number, note=str(note)):
        number.bit_length() + len(note)
    case {"id": int(number)}:
        number.bit_length()
if found.items_[0].note is not None:
    found.items_[0].note.upper()
made = find_tickets.Result(items_=[find_tickets.Item(id=1, owner=find_tickets.Owner(login='x'), copy_=True)])
async def later() -> None:
    (await edit_file.arun(path='a', edits=[e])).content.upper()
    (await edit_file.call_async(path='a', edits=[e])).summary()
    (await mcptools.aread_resource('files', 'file:///x')).upper()
    (await mcptools.aget_prompt('files', 'greet', who='me')).messages[0].content.mime
    await mcptools.aget_prompt('files', 'greet', who=1)  # wrong
    await edit_file.run_async(path=1, edits=[e])  # wrong
    await edit_file.acall(path='a')  # wrong
edit_file.Params(path=1, edits=[e])  # wrong
edit_file.Params(path='a', edits=[e], dryrun=True)  # wrong
edit_file.Params(edits=[e])  # wrong
list_directory.Params(path='a', sortBy='date')  # wrong
edit_file.run(path=1, edits=[e])  # wrong
edit_file.run(path='a', edits=[e], dryrun=True)  # wrong
edit_file.run(path='a')  # wrong
edit_file.run(path=None, edits=[e])  # wrong
of_package: str = files.edit_file.run(path='a', edits=[e]).content
files.list_directory.run(path=1)  # wrong
files.no_such_tool  # wrong
edit_file.call(path='a', edits=[{'oldText': 1}])  # wrong
list_directory.run(path='a', sortBy='date')  # wrong
list_directory.run(edit_file.Params(path='a', edits=[e]))  # wrong
edit_file.run(path='a', edits=[e]).contents  # wrong
found.items_[0].idd  # wrong
found.items_[0].note.upper()  # wrong
found.items_[0].id.upper()  # wrong
found.items[0]  # wrong
find_tickets.Item(id='x', owner=find_tickets.Owner(login='x'))  # wrong
find_tickets.Item(id=1)  # wrong
mcptools.resources('files')[0].url  # wrong
mcptools.read_resource('files')  # wrong
mcptools.read_resource('files', 1)  # wrong
mcptools.get_prompt('files', 'greet', who=1)  # wrong
"""
WRONG = {i for i, line in enumerate(USE.splitlines(), 1) if line.endswith("# wrong")}
"""Lines in which type checkers must find an error, and nowhere else."""


@pytest.fixture(scope="module", params=with_peers(["real", "hostile"], "real"))
def typed(build_dir: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Packages of all tool lists, perhaps of hostile ones as well, and use.py."""
    out = tmp_path_factory.mktemp("typed")
    hostile = CASES if request.param == "hostile" else []
    for i, case in enumerate(c for c in hostile if c.name != "many-tools"):  # whose thousand modules are alike
        with contextlib.suppress(GenerationFailed):
            generate(build_dir, f"hostile{i}", out / "mcptools", case.text, root=True)
    for path in FILES:
        generate(build_dir, path.stem, out / "mcptools", path.read_bytes(), root=True)
    owner = {"type": "object", "title": "Owner", "properties": {"login": {"type": "string"}}, "required": ["login"]}
    fields = {"id": {"type": "integer"}, "owner": owner, "note": {"type": "string"}, "copy": {"type": "boolean"}}
    item = {"type": "object", "title": "Item", "properties": fields, "required": ["id", "owner"]}
    found = {"type": "object", "properties": {"items": {"type": "array", "items": item}}, "required": ["items"]}
    tools = [{"name": "find_tickets", "inputSchema": {"type": "object"}, "outputSchema": found}]
    generate(build_dir, "tracker", out / "mcptools", tools, root=True)
    (out / "use.py").write_text(USE)
    return out


@pytest.mark.timeout(600)
def test_mypy_strict_takes_the_packages_and_finds_wrong_calls(typed: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    argv = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", typed / "cache"]
    argv += ["-p", "mcptools", "-m", "use"]
    env = {"MYPYPATH": f"{STUBS}:{typed}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, cwd=typed, env=env, capture_output=True, text=True, timeout=580)
    lines = {line.split(": error")[0] for line in done.stdout.splitlines() if ": error" in line}
    assert lines == {f"use.py:{n}" for n in WRONG}, done.stdout[-3000:] + done.stderr


@peer  # mypy finds the same
@pytest.mark.timeout(600)
def test_pyright_takes_the_packages_and_finds_wrong_calls(typed: Path) -> None:
    pyright = Path(os.environ.get("CG_NPM", "")).parent / "test-npm/node_modules/.bin/pyright"
    if not pyright.exists():
        pytest.skip("pyright is not installed: scripts/setup gets it")
    (typed / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(STUBS)], "include": ["mcptools", "use.py"]}))
    argv = [pyright, "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(argv, cwd=typed, capture_output=True, text=True, timeout=580)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = {(Path(d["file"]).name, d["range"]["start"]["line"] + 1) for d in found if d["severity"] == "error"}
    assert lines == {("use.py", n) for n in WRONG}, done.stdout[-3000:]


# ---------------------------------------------------------------------- what agents read


def _tokens(text: str) -> float:
    """A quarter of the characters: exact tokenizers need their tables from the network."""
    return len(text) / 4


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_help_is_as_short_as_the_module(package: Callable[..., Any], path: Path) -> None:
    """help() of a module and of run() show what the module's text has, in no more space."""
    made = package(path.read_bytes())
    plain = pydoc.plaintext
    sizes = {"text": 0.0, "module": 0.0, "run": 0.0, "Params": 0.0}
    for name in made.TOOLS:
        module = getattr(made, name)
        shown = {"module": module, "run": module.run, "Params": module.Params}
        texts = {k: plain.document(v) for k, v in shown.items()} | {"text": Path(module.__file__).read_text()}
        for k, text in texts.items():
            sizes[k] += _tokens(text)
        for field, kind in module.Params.__annotations__.items():
            assert all(f"{field}: {kind}" in texts[k].replace("\n ", " ") for k in shown), field
        for line in (inspect.getdoc(module.Params) or "").splitlines():
            assert all(line.strip() in texts[k] for k in shown), line
            assert line.strip() in module.__doc__
    # The path of the file and the names of packages are the tests' own.
    assert sizes["module"] - 40 * len(made.TOOLS) < sizes["text"], sizes
    assert sizes["run"] < sizes["text"] + 10 * len(made.TOOLS), sizes
    assert sizes["Params"] < sizes["text"] + 10 * len(made.TOOLS), sizes


def test_import_star_takes_all_names(package: Callable[..., Any]) -> None:
    names: dict[str, Any] = {}
    made = package((DATA / "files.json").read_bytes())
    exec(f"from {made.__name__}.edit_file import *", names)
    assert {"run", "call", "arun", "acall", "Params", "Result", "Edit"} <= set(names)
    assert set(dir(made.edit_file)) == set(names) - {"__builtins__"} and made.edit_file.arun is made.edit_file.run_async
