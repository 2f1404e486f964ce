"""A client and sessions of the installed libcellgate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import Client, Session
from server_definitions import echo


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(log_level=0) as c:
        yield c


@pytest.fixture
def session(client: Client, workspace: Path) -> Iterator[Session]:
    with client.session(workspace=workspace) as s:
        yield s


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of `used` and of `used_tools`."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def module_session(client: Client, work: Path) -> Iterator[Session]:
    with client.session(workspace=work) as s:
        yield s


@pytest.fixture
def used(module_session: Session) -> Session:
    """A session that tests of a file share: each leaves it without cells, and finds what others have left in it."""
    while module_session.next(0):
        pass
    return module_session


@pytest.fixture(scope="module")
def used_mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks") / "mark"


@pytest.fixture(scope="module")
def module_tools(client: Client, work: Path, used_mark: Path) -> Iterator[Session]:
    with client.session(workspace=work) as s:
        s.add_servers(echo(used_mark))
        yield s


@pytest.fixture
def used_tools(module_tools: Session, used_mark: Path) -> Session:
    """The same with the MCP server "echo"."""
    while module_tools.next(0):
        pass
    used_mark.unlink(missing_ok=True)
    return module_tools


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Where echo_server's `danger` leaves its marks, out of every kernel's reach."""
    return tmp_path / "mark"


@pytest.fixture
def tools(session: Session, mark: Path) -> Session:
    """A session with the MCP server "echo"."""
    session.add_servers(echo(mark))
    return session


@pytest.fixture
def home(outside: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with secrets, of the supervisor's that the test starts."""
    path = outside / "home"
    for name in (".ssh/id_rsa", ".aws/credentials", ".gnupg/key", ".config/gh/hosts.yml", "notes.txt"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("a secret of " + name)
    monkeypatch.setenv("HOME", str(path))
    return path
