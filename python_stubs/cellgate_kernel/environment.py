"""Whether the environment has what kernels import. Imported before IPython, so it needs nothing but the library."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

# Modules that kernels import, and the packages that have them. The rest of these packages' needs comes along.
_NEEDED = {"IPython": "ipython", "comm": "comm", "traitlets": "traitlets"}
# The first version of IPython that the shell was written for.
_IPYTHON = (9, 0)


def missing() -> list[str]:
    """Packages that have to be installed, as pip takes them."""
    found = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if "ipython" not in found:
        ipython: Any = importlib.import_module("IPython")
        if ipython.version_info[:2] < _IPYTHON:
            found.append(f"ipython>={_IPYTHON[0]}.{_IPYTHON[1]}")
    return found


def check() -> None:
    """Raise ImportError with what is missing, and the command that adds it."""
    if packages := missing():
        raise ImportError(
            f"the environment {sys.prefix} lacks what kernels need: {', '.join(packages)}. "
            f"`cellgate env add {sys.prefix}` adds it"
        )
