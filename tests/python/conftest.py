"""The installed Python package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import cellgate


@pytest.fixture(scope="session", autouse=True)
def package(prefix: Path) -> Path:
    """The folder that has the package, in sys.path."""
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
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "work space"
    path.mkdir()
    return path


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Where echo_server's `danger` leaves its marks, out of every kernel's reach."""
    return tmp_path / "mark"


@pytest.fixture
def servers(mark: Path) -> dict[str, Any]:
    """The MCP server "echo"."""
    script = Path(__file__).parent.parent / "api/echo_server.py"
    return {"echo": {"command": sys.executable, "args": [str(script)], "env": {"MARK": str(mark)}}}


@pytest.fixture
def session(client: cellgate.Client, workspace: Path) -> Iterator[cellgate.Session]:
    import cellgate

    with cellgate.Session(workspace, client=client) as s:
        yield s


@pytest.fixture
def tools(session: cellgate.Session, servers: dict[str, Any]) -> cellgate.Session:
    session.add_mcp_servers(servers)
    return session
