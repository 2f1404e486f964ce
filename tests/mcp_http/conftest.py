"""`cellgate mcp serve --http` under test."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import certificates
import pytest
from mcp_http.helpers import Server
from mcp_serve.conftest import environment, mark, mcp_file, workspace
from shared_supervisor import _account, _own_account, _own_state  # noqa: F401

__all__ = ["environment", "mark", "mcp_file", "workspace"]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> certificates.Files:
    """Of 127.0.0.1 and localhost."""
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def serve(
    cellgate: Path, workspace: Path, tmp_path: Path, environment: dict[str, str], slowness: float
) -> Iterator[Callable[..., Server]]:
    """Starts `cellgate mcp serve --http ARGS...`, at a free port of 127.0.0.1 unless `address` is another."""
    started: list[Server] = []

    def start(*args: str | Path, address: str = "127.0.0.1:0", env: dict[str, str] | None = None) -> Server:
        argv = [str(cellgate), "mcp", "serve", "--http", address, "--workspace", str(workspace), *map(str, args)]
        started.append(Server(argv, tmp_path, {**os.environ, **environment, **(env or {})}, slowness))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.end()
        server.process.wait(30 * slowness)
