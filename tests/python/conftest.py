"""The installed Python package."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cellgate_api  # noqa: F401  puts the package in sys.path, for all modules of this folder
import pytest
from package_fixtures import anyio_backend, client, mark, package, servers  # noqa: F401


@pytest.fixture
def session(client: Any, workspace: Path) -> Iterator[Any]:  # noqa: F811
    import cellgate

    with cellgate.Session(workspace, client=client) as s:
        yield s


@pytest.fixture
def tools(session: Any, servers: dict[str, Any]) -> Any:  # noqa: F811
    session.add_mcp_servers(servers)
    return session


@pytest.fixture
def script(package: Path, workspace: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:  # noqa: F811
    """Runs a program that uses the package, in the workspace."""

    def run(text: str) -> subprocess.CompletedProcess[str]:
        code = f"import sys\nsys.path.insert(0, {str(package)!r})\nimport asyncio, cellgate, gc, os, threading, time\n"
        argv = [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", code + textwrap.dedent(text)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=workspace)

    return run
