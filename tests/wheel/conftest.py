"""cellgate as a Python wheel: installed in a virtual environment that has what kernels need."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel_environment import PACKAGES, copy_environment


@pytest.fixture(scope="session")
def files(build_dir: Path, repo: Path, test_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as the wheel has them. scripts/test has built them before: this takes long only by hand."""
    build, root = build_dir.parent / "wheel", tmp_path_factory.mktemp("wheel")
    build.mkdir(exist_ok=True)
    with open(build / ".lock", "w") as lock:  # of all workers
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (build / "build.ninja").exists():
            setup = ["meson", "setup", build, repo, "--prefix=/cellgate", "-Dwheel=true", "-Dwerror=true"]
            subprocess.run([*setup, f"-Dpython={test_python}"], check=True, capture_output=True)
        subprocess.run(["ninja", "-C", build], check=True, capture_output=True)
        install = ["meson", "install", "-C", build, "--no-rebuild", "--tags=runtime,python-runtime"]
        subprocess.run([*install, "--destdir", root], check=True, capture_output=True)
    (found,) = root.rglob("cellgate_runtime")
    return found.parent


def make_environment(path: Path, files: Path, packages: Path) -> Path:
    """What `pip install .` makes: cellgate, the kernels' packages and cffi in an environment."""
    copy_environment(path)
    shutil.copytree(files, path / PACKAGES, symlinks=True, dirs_exist_ok=True)
    for name in ("cffi", "pycparser"):
        shutil.copytree(packages / name, path / PACKAGES / name)
    for library in packages.glob("_cffi_backend*"):
        shutil.copy2(library, path / PACKAGES)
    return path


@pytest.fixture(scope="session")
def packages(test_python: str) -> Path:
    """The packages of the tests' environment."""
    return Path(test_python).parents[1] / PACKAGES


@pytest.fixture(scope="session")
def env(files: Path, packages: Path, build_dir: Path) -> Iterator[Path]:
    """The environment, not in /tmp: sandboxes have a /tmp of their own."""
    folder = build_dir.parent / f"wheel/{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield make_environment(folder / "env", files, packages)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def runtime(env: Path) -> Path:
    return env / PACKAGES / "cellgate_runtime"
