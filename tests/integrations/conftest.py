"""Agent frameworks with cellgate as their sandbox. Run with the interpreter of .deps/integrations-env."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from package_fixtures import PNG, SHOW, anyio_backend, client, mark, package, servers  # noqa: F401

if TYPE_CHECKING:
    import cellgate


@pytest.fixture(scope="class")
def session(client: cellgate.Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cellgate.Session]:  # noqa: F811
    import cellgate

    with cellgate.Session(tmp_path_factory.mktemp("workspace"), client=client) as s:
        yield s


# Says when it runs.
ENDLESS = "open('started', 'w').close()\nwhile True: pass"
# An escape sequence that terminals obey, and more text than anybody wants.
HOSTILE = "print('\\x1b]0;title\\x07', 'x' * (8 << 20))"
DANGER = "from mcptools.echo import danger\ndanger.run(text='x')"


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
