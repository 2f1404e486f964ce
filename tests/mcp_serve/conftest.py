"""`cellgate mcp serve` under test, line by line."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mcp_serve.helpers import Raw
from shared_supervisor import _account, _own_account, _own_state  # noqa: F401

FAKE = Path(__file__).with_name("fake_server.py")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def environment() -> dict[str, str]:
    """With a cache folder that is not the user's, so that it can be looked at."""
    return {**os.environ, "XDG_CACHE_HOME": os.environ["XDG_STATE_HOME"] + "-cache"}


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that the fake server writes when its tool `leave_mark` runs."""
    return tmp_path / "mark"


@pytest.fixture
def mcp_file(tmp_path: Path, mark: Path) -> Path:
    """Settings with the fake server, as `fake`."""
    path = tmp_path / "servers.json"
    server = {"command": "/usr/bin/python3", "args": [str(FAKE)], "env": {"MARK": str(mark)}}
    path.write_text(json.dumps({"mcpServers": {"fake": server}}))
    return path


@pytest.fixture
def serve(
    cellgate: Path, workspace: Path, environment: dict[str, str], slowness: float
) -> Iterator[Callable[..., Raw]]:
    """Starts `cellgate mcp serve ARGS...` in the workspace, driven by hand."""
    started: list[Raw] = []

    def start(*args: str | Path, env: dict[str, str] | None = None, read: bool = True) -> Raw:
        argv = [str(cellgate), "mcp", "serve", *map(str, args)]
        started.append(Raw(argv, workspace, {**environment, **(env or {})}, slowness, read))
        return started[-1]

    yield start
    for server in started:
        server.end()
