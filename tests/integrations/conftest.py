"""Agent frameworks with cellgate as their sandbox. Run with the interpreter of .deps/integrations-env."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
# Says when it runs.
ENDLESS = "open('started', 'w').close()\nwhile True: pass"
# An escape sequence that terminals obey, and more text than anybody wants.
HOSTILE = "print('\\x1b]0;title\\x07', 'x' * (8 << 20))"
DANGER = "from mcptools.echo import danger\ndanger.run(text='x')"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Where the tool `danger` leaves a mark."""
    return tmp_path / "mark"


@pytest.fixture
def servers(repo: Path, mark: Path) -> dict[str, object]:
    server = {"command": sys.executable, "args": [str(repo / "tests/api/echo_server.py")], "env": {"MARK": str(mark)}}
    return {"echo": server}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server of the host, which no cell may reach: accepted() says whether one has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def reach(listener: socket.socket) -> str:
    """Code that tries to connect to it."""
    return f"import socket\nsocket.create_connection({listener.getsockname()!r}, 2).send(b'x')"


def accepted(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


async def started(session: Any) -> None:
    """Waits until what was to be started runs, and forgets it."""
    for _ in range(200):
        if await session.files.exists("started"):
            await session.files.remove("started")
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it has not started")


def started_in_thread(session: Any) -> None:
    """As started(), for what a thread runs."""
    for _ in range(200):
        if session.files.exists("started"):
            session.files.remove("started")
            return
        time.sleep(0.05)
    raise AssertionError("it has not started")


def check_harmless(text: str) -> None:
    """What an integration makes of HOSTILE."""
    assert "\x1b" not in text and "\x07" not in text and "]0;title" in text
    assert len(text) < 2 << 20 and "left out" in text
