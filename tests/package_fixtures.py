"""Fixtures of the tests of the Python package: tests/python, and tests/integrations with agent frameworks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import cellgate

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHOW = f"display({{'image/png': {PNG!r}}}, raw=True)"


@pytest.fixture(scope="session", autouse=True)
def package(prefix: Path) -> Path:
    """The folder that has the installed package, in sys.path."""
    folder = prefix / "lib/cellgate/package"
    if not (folder / "cellgate").is_dir():
        pytest.skip("cellgate was built without -Dpython_package")
    sys.path.insert(0, str(folder))
    return folder


@pytest.fixture(scope="module")
def client(package: Path) -> Iterator[cellgate.Client]:
    import cellgate

    with cellgate.Client() as c:
        yield c


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Where echo_server's `danger` leaves its marks, out of every kernel's reach."""
    return tmp_path / "mark"


@pytest.fixture
def servers(mark: Path) -> dict[str, Any]:
    """The MCP server "echo"."""
    script = Path(__file__).parent / "api/echo_server.py"
    return {"echo": {"command": "/usr/bin/python3", "args": [str(script)], "env": {"MARK": str(mark)}}}
