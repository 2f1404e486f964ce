"""Hostile and broken tool lists: nothing runs, nothing is lost in silence, one bad tool costs no other."""

from __future__ import annotations

import inspect
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from codegen import hostile_cases
from codegen.hostile_cases import CASES, P, many, one
from codegen.support import SHARED, GenerationFailed, check_package, generate, import_all, shared_files


@pytest.fixture(scope="session")
def expanded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hostile")
    cases = f"{SHARED}/cases/tools/hostile.json"
    subprocess.run([sys.executable, f"{SHARED}/tools/expand_hostile.py", cases, out], check=True, timeout=60)
    return out


def _untouched_elsewhere(tmp_path: Path) -> None:
    assert {p.name for p in tmp_path.iterdir()} <= {"out"}
    assert {p.name for p in (tmp_path / "out").iterdir()} <= {"srv"}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_own_cases(build_dir: Path, tmp_path: Path, case: hostile_cases.Case) -> None:
    """Every case has the invariants of check_package() and imports, or is refused with nothing written."""
    if case.allowed == "-":
        with pytest.raises(GenerationFailed):
            generate(build_dir, "srv", tmp_path / "out", case.text)
        assert not (tmp_path / "out" / "srv").exists()
        return
    report = generate(build_dir, "srv", tmp_path / "out", case.text)
    check_package(tmp_path / "out" / "srv", report, "srv")
    statuses = {t["status"][0] for t in report["tools"]}
    assert statuses <= set(case.allowed), report
    for tool in report["tools"]:
        if tool["tool"] in ("good",):
            assert tool["status"] == "full"
    assert import_all(tmp_path / "out", "srv") == sum(t["module"] is not None for t in report["tools"])
    _untouched_elsewhere(tmp_path)


@pytest.mark.skipif(not SHARED, reason="CG_SHARED is not set: the shared hostile cases are not there")
@pytest.mark.parametrize(
    "case",
    json.loads(Path(shared_files("cases/tools/hostile.json")[0]).read_text())
    if shared_files("cases/tools/hostile.json")
    else [],
    ids=lambda c: c["id"],
)
def test_shared_cases(build_dir: Path, tmp_path: Path, expanded: Path, case: dict[str, Any]) -> None:
    server = case.get("server", "srv")
    text = (expanded / f"{case['id']}.json").read_bytes()
    try:
        report = generate(build_dir, server, tmp_path / "out", text)
    except GenerationFailed:
        assert case["outcome"] in ("fatal", "any", "reject")
        assert not (tmp_path / "out" / server).exists()
        return
    folder = tmp_path / "out" / report["package"]
    check_package(folder, report, server)
    import_all(tmp_path / "out", report["package"])
    statuses = {t["status"] for t in report["tools"]}
    if case["outcome"] == "full":
        assert statuses <= {"full"}, report
    if case["outcome"] == "degraded":
        assert statuses == {"degraded"}
    written = b"".join(p.read_bytes() for p in folder.iterdir() if p.is_file())
    assert b"SECRET" not in written


@pytest.mark.parametrize(
    "name", ["triple", "ends-backslash", "templates", "escapes", "astral", "indent", "ends-quotes"]
)
def test_help_shows_the_description(package: Callable[..., Any], name: str) -> None:
    """The docstring has all characters except control characters and hidden ones."""
    case = next(c for c in CASES if c.name == f"text-{name}")
    said = json.loads(case.text)["tools"][0]["description"]
    t = package(case.text).t
    assert (inspect.getdoc(t.run) or "").startswith(inspect.cleandoc(said) + "\n\nx: ")
    assert inspect.cleandoc(said) in t.__doc__ and inspect.getdoc(t.Params).startswith("x: ")


def test_control_characters_become_visible(package: Callable[..., Any]) -> None:
    doc = package(one(description="a\x1b[2J\rb\u202ec\x00d\u2028")).t.run.__doc__
    assert doc == "a\\x1b[2J\\x0db\\u202ec\\x00d\\u2028"


def test_crlf_is_a_line_end(package: Callable[..., Any]) -> None:
    doc = package(one(description="a\r\n\r\nb")).t.run.__doc__
    assert doc in ("a\n\n    b", "a\n\nb")  # Python 3.13 takes the indent away


def test_long_text_is_cut_and_says_so(package: Callable[..., Any]) -> None:
    doc = package(one(description="y" * 20000)).t.run.__doc__
    assert doc.startswith("y" * 16384 + "...") and "20000 characters" in doc


def test_one_bad_tool_costs_no_other(build_dir: Path, tmp_path: Path) -> None:
    """Elements that are no JSON, each with a neighbour that is."""
    text = b"""{"tools": [{"name": "a", "inputSchema": {"type": "object"}}, {"name": "bad", "inputSchema": {"x": NaN}},
        {"name": "b", "inputSchema": {"type": "object"}}, {"name": "utf", "description": "\xff"},
        {"name": "colon", "x" []},
        {"name": "c", "inputSchema": {"type": "object"}}]}"""
    report = generate(build_dir, "srv", tmp_path / "out", text)
    status = {t["tool"]: t["status"] for t in report["tools"]}
    assert status == {"a": "full", "bad": "rejected", "b": "full", "utf": "rejected", "colon": "rejected", "c": "full"}
    assert "line" in next(t for t in report["tools"] if t["tool"] == "bad")["warnings"][0]["text"]
    assert "Not available: bad" in (tmp_path / "out/srv/__init__.py").read_text()


def test_order_makes_no_difference(build_dir: Path, tmp_path: Path) -> None:
    names = [
        "get-user",
        "get_user",
        "GetUser",
        "getuser",
        "\u63d0",
        "\u7247",
        "2x",
        "t_2x",
        "x" * 300,
        "x" * 301,
        "a b",
        "a_b",
    ]
    tools = [{"name": n, "description": n, "inputSchema": {"type": "object"}} for n in names]
    written = []
    for i in range(4):
        random.Random(i).shuffle(tools)
        generate(build_dir, "srv", tmp_path / str(i), tools)
        written.append({p.name: p.read_bytes() for p in (tmp_path / str(i) / "srv").iterdir()})
    assert all(w == written[0] for w in written)


def test_same_names_are_told_apart(package: Callable[..., Any], host: Any) -> None:
    """All stay callable; the one that is the name keeps it; renames are reported; taken suffixes are left."""
    names = ["get-user", "get_user", "get.user", "getUser", "GetUser"]
    first = package(many(*({"name": n} for n in names)))
    module = {t["tool"]: t["module"] for t in first.REPORT["tools"]}
    assert module["get_user"] == "get_user" and len(set(module.values())) == 5
    assert any(
        module["get-user"] in w["text"] for t in first.REPORT["tools"] if t["tool"] == "get-user" for w in t["warnings"]
    )
    clash = package(many(*({"name": n} for n in [*names, module["get-user"]])))
    module = {t["tool"]: t["module"] for t in clash.REPORT["tools"]}
    assert len(set(module.values())) == 6
    for tool, name in module.items():
        getattr(clash, name).call()
        assert host.sent[-1][1] == tool


def test_first_of_two_equal_names_counts(package: Callable[..., Any]) -> None:
    made = package(many({"name": "dup", "description": "first"}, {"name": "dup", "description": "second"}))
    assert [t["status"] for t in made.REPORT["tools"]] == ["full", "rejected"]
    assert made.dup.run.__doc__ == "first"


def test_payload_would_be_noticed(tmp_path: Path) -> None:
    """The tests can fail: the payload does what they look for."""
    from codegen.support import PWNED

    exec(P)
    assert PWNED.exists()
    PWNED.unlink()
