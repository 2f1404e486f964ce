"""A copy of the environment that kernels run in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

BUILT_IN = Path(__file__).parents[1] / ".deps/kernel-env"
PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def copy_environment(path: Path) -> Path:
    """
    A virtual environment with the packages of the built-in one, as hard links. Not of the files by which the
    supervisor sees that an environment shares its files: it would take the built-in one for such in all tests.
    """
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", path], check=True)
    for item in (BUILT_IN / PACKAGES).iterdir():
        if item.name.endswith(".dist-info"):
            shutil.copytree(item, path / PACKAGES / item.name)
        else:
            subprocess.run(["cp", "-al", item, path / PACKAGES], check=True)
    return path
