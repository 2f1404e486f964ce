"""Jupyter's own clients against the installed programs. Files named soak_* are run by scripts/soak, not by scripts/test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clients.support import PEER, Jupyter, Kernel, packages_of


@pytest.fixture(scope="module")
def jupyter(prefix: Path, slowness: float) -> Iterator[Jupyter]:
    """Jupyter folders of this file's own."""
    user = Jupyter(prefix, slowness)
    yield user
    left = user.close()
    assert not left, f"these did not end: {left}"


@pytest.fixture(scope="module")
def spec(jupyter: Jupyter, packages_env: Path) -> str:
    """A kernelspec: sandboxed, with the MCP server `echo`, of whose tools only echo is approved."""
    return jupyter.install(
        "cellgate-test",
        "--kernel-env",
        packages_env,
        *("--mcp", jupyter.mcp_file(), "--approve", "echo.echo", "--approve", "!echo.danger"),
    )


@pytest.fixture
def kernel(jupyter: Jupyter, spec: str) -> Iterator[Kernel]:
    with jupyter.kernel(spec) as k:
        yield k


@pytest.fixture(scope="session")
def packages(packages_env: Path) -> set[str]:
    """Which packages the kernels' environment has."""
    return packages_of(PEER or packages_env / "bin/python")


@pytest.fixture(scope="session")
def ours() -> bool:
    """The kernel under test is cellgate's."""
    return not PEER


Start = Callable[..., Kernel]
