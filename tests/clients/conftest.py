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
def spec(jupyter: Jupyter) -> str:
    """A kernelspec: sandboxed, with the MCP server `echo`, of whose tools only echo is approved."""
    return jupyter.install(
        "cellgate-test", "--mcp", jupyter.mcp_file(), "--approve", "echo.echo", "--approve", "!echo.danger"
    )


@pytest.fixture
def kernel(jupyter: Jupyter, spec: str) -> Iterator[Kernel]:
    with jupyter.kernel(spec) as k:
        yield k


@pytest.fixture(scope="session")
def packages(build_dir: Path) -> set[str]:
    """Which packages the kernels' environment has."""
    if PEER:
        return packages_of(PEER)
    import json

    options = json.loads((build_dir / "meson-info/intro-buildoptions.json").read_text())
    folder = next(o["value"] for o in options if o["name"] == "kernel_env")
    return packages_of(Path(folder) / "bin/python")


@pytest.fixture(scope="session")
def ours() -> bool:
    """The kernel under test is cellgate's."""
    return not PEER


Start = Callable[..., Kernel]
