"""cellgate-egress by itself: each test gets a proxy of its own, a server to reach, and ends both."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from egress.harness import Egress, Peer, Server, http_server


@pytest.fixture
def program(prefix: Path) -> Path:
    return prefix / "libexec/cellgate/cellgate-egress"


@pytest.fixture
def sanitized() -> bool:
    return bool(os.environ.get("CG_SANITIZED"))


@pytest.fixture
def egress(program: Path, slowness: float) -> Iterator[Egress]:
    proxy = Egress(program, slowness)
    yield proxy
    proxy.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with http_server() as s:
        yield s


@pytest.fixture
def peer(slowness: float) -> Iterator[Peer]:
    p = Peer(10 * slowness)
    yield p
    p.close()
