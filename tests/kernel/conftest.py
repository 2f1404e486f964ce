"""A zygote for all tests of this folder, and a fresh kernel for each."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel.harness import Kernel, Zygote


@pytest.fixture(scope="session")
def zygote(prefix: Path) -> Iterator[Zygote]:
    with Zygote(prefix) as z:
        assert z.ready.get("ready") is True, z.ready
        yield z
        assert "runtime error" not in z.log, z.log  # UBSan


@pytest.fixture(scope="session")
def packages_zygote(prefix: Path, packages_env: Path) -> Iterator[Zygote]:
    """A zygote whose kernels have matplotlib, ipywidgets, debugpy..."""
    with Zygote(prefix, kernel_env=packages_env) as z:
        assert z.ready.get("ready") is True, z.ready
        yield z


@pytest.fixture
def spawn(zygote: Zygote, workspace: Path) -> Iterator[Callable[..., Kernel]]:
    """Start kernels that are ended after the test."""
    kernels: list[Kernel] = []

    def start(**spec: Any) -> Kernel:
        kernels.append(zygote.spawn(workspace, **spec))
        return kernels[-1]

    yield start
    for k in kernels:
        k.close()


@pytest.fixture
def packages_kernel(packages_zygote: Zygote, workspace: Path) -> Iterator[Kernel]:
    """A sandboxed kernel with matplotlib, ipywidgets, debugpy..."""
    with packages_zygote.spawn(workspace) as k:
        yield k


@pytest.fixture
def kernel(spawn: Callable[..., Kernel]) -> Kernel:
    """A sandboxed kernel."""
    return spawn()
