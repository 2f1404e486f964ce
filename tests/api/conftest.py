"""A client and sessions of the installed libcellgate, through ctypes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import Client, Session


@pytest.fixture(scope="module")
def client(prefix: Path) -> Iterator[Client]:
    os.environ.setdefault("CG_PREFIX", str(prefix))
    with Client(log_level=0) as c:
        yield c


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "work space"
    path.mkdir()
    return path


@pytest.fixture
def session(client: Client, workspace: Path) -> Iterator[Session]:
    with client.session(workspace=workspace) as s:
        yield s


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Where echo_server's `danger` leaves its marks, out of every kernel's reach."""
    return tmp_path / "mark"


@pytest.fixture
def tools(session: Session, mark: Path) -> Session:
    """A session with the MCP server "echo"."""
    server = {
        "command": sys.executable,
        "args": [str(Path(__file__).parent / "echo_server.py")],
        "env": {"MARK": str(mark)},
    }
    session.add_servers({"echo": server})
    return session
