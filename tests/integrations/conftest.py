"""Agent frameworks with cellgate as their sandbox. Run with the interpreter of .deps/integrations-env."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

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
