"""Agent frameworks with cellgate as their sandbox. Run with the interpreter of .deps/integrations-env."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import cellgate


@pytest.fixture(scope="session", autouse=True)
def package(prefix: Path) -> Path:
    folder = prefix / "lib/cellgate/package"
    sys.path.insert(0, str(folder))
    return folder


@pytest.fixture(scope="session")
def client(package: Path) -> Iterator[cellgate.Client]:
    import cellgate

    with cellgate.Client() as c:
        yield c


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="class")
def session(client: cellgate.Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cellgate.Session]:
    import cellgate

    with cellgate.Session(tmp_path_factory.mktemp("workspace"), client=client) as s:
        yield s


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHOW = f"display({{'image/png': {PNG!r}}}, raw=True)"
DANGER = "from mcptools.echo import danger\ndanger.run(text='x')"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Where the tool `danger` leaves a mark."""
    return tmp_path / "mark"


@pytest.fixture
def servers(repo: Path, mark: Path) -> dict[str, object]:
    server = {"command": sys.executable, "args": [str(repo / "tests/api/echo_server.py")], "env": {"MARK": str(mark)}}
    return {"echo": server}
