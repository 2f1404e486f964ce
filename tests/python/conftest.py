"""The installed Python package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from package_fixtures import anyio_backend, client, mark, package, servers  # noqa: F401

if TYPE_CHECKING:
    import cellgate


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "work space"
    path.mkdir()
    return path


@pytest.fixture
def session(client: cellgate.Client, workspace: Path) -> Iterator[cellgate.Session]:  # noqa: F811
    import cellgate

    with cellgate.Session(workspace, client=client) as s:
        yield s


@pytest.fixture
def tools(session: cellgate.Session, servers: dict[str, Any]) -> cellgate.Session:  # noqa: F811
    session.add_mcp_servers(servers)
    return session
