"""Sessions on another machine: `connect` with the relay of this machine as the far end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from package_fixtures import mark, package  # noqa: F401
from shared_supervisor import Shared, runtime_folder

if TYPE_CHECKING:
    import cellgate

NODE = Path(__file__).parent / "node.py"


@pytest.fixture(scope="session")
def relay(prefix: Path) -> list[str]:
    """With a supervisor of its own."""
    return [str(prefix / "bin/cellgate"), "relay"]


@pytest.fixture(scope="module")
def shared_relay(prefix: Path, tmp_path_factory: pytest.TempPathFactory, slowness: float) -> Iterator[list[str]]:
    """To a supervisor of this file: starting one takes most of the time of a small session."""
    with runtime_folder() as folder:
        shared = Shared(prefix / "bin/cellgate", folder, tmp_path_factory.mktemp("shared"), slowness)
        shared.run()
        yield ["env", f"CELLGATE_NODE={shared.address}", str(shared.cellgate), "relay"]


@pytest.fixture
def node(relay: list[str]) -> Callable[..., list[str]]:
    """The words of a node that misbehaves: node.py."""
    return lambda *how: [sys.executable, "-B", str(NODE), *how, *relay]


@pytest.fixture
def client(package: Any, shared_relay: list[str]) -> Iterator[cellgate.Client]:  # noqa: F811
    import cellgate

    c = cellgate.Client(connect=shared_relay)
    yield c
    c.close()


@pytest.fixture
def session(client: cellgate.Client, tmp_path: Path) -> Iterator[cellgate.Session]:
    import cellgate

    with cellgate.Session(tmp_path, client=client) as s:
        yield s


def wait_until(check: Callable[[], bool], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def kill(pid: int, sig: int = signal.SIGKILL) -> None:
    os.kill(pid, sig)
