"""Fixtures for the tests of the code generator and of the runtime that generated modules use."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from codegen.support import PWNED, STUBS, Host, generate

_NUMBERS = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def runtime() -> Iterator[None]:
    """cellgate_tools can be imported."""
    sys.path.insert(0, str(STUBS))
    sys.dont_write_bytecode = True
    yield
    sys.path.remove(str(STUBS))


@pytest.fixture(autouse=True)
def not_pwned() -> Iterator[None]:
    PWNED.unlink(missing_ok=True)
    yield
    assert not PWNED.exists()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    monkeypatch.setitem(sys.modules, "_cellgate", host.module)
    return host


@pytest.fixture
def package(build_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """package(tools, server="srv") generates and imports a package; .REPORT is the generator's report."""
    made: list[str] = []

    def make(tools: Any, server: str | None = None) -> Any:
        name = server or f"srv{next(_NUMBERS)}"
        report = generate(build_dir, name, tmp_path / "out", tools)
        monkeypatch.syspath_prepend(str(tmp_path / "out"))
        importlib.invalidate_caches()
        made.append(report["package"])
        module = importlib.import_module(report["package"])
        module.REPORT = report
        return module

    yield make
    for name in [n for n in sys.modules if n.split(".")[0] in made]:
        del sys.modules[name]


@pytest.fixture
def tool(package: Callable[..., Any]) -> Callable[..., Any]:
    """tool({"properties": ...}, out=None, **more) generates and imports one tool called "t"; returns its module."""

    def make(schema: Any, out: Any = None, **more: Any) -> Any:
        definition = {"name": "t", "description": "d", "inputSchema": schema, **more}
        if out is not None:
            definition["outputSchema"] = out
        module = package([definition]).t
        return module

    return make
