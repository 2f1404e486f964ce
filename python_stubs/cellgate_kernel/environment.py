"""Checks the environment's packages. Runs before IPython is imported: standard library only."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

# Modules that kernels import, and their packages, whose dependencies have the others.
_NEEDED = {"IPython": "ipython", "comm": "comm", "traitlets": "traitlets"}
# The oldest supported version of IPython.
_IPYTHON = (9, 0)


def missing() -> list[str]:
    """Requirements (for pip) that are not installed."""
    found = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if "ipython" not in found:
        ipython: Any = importlib.import_module("IPython")
        if ipython.version_info[:2] < _IPYTHON:
            found.append(f"ipython>={_IPYTHON[0]}.{_IPYTHON[1]}")
    return found


def check() -> None:
    """Raise ImportError with the missing packages and the command that installs them."""
    if packages := missing():
        raise ImportError(
            f"the environment {sys.prefix} lacks what kernels need: {', '.join(packages)}. "
            f"`cellgate env add {sys.prefix}` adds it"
        )
