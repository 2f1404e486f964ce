"""Patches of modules that are applied when something imports the module.

Importing asyncio and pdb takes as long as a fifth of IPython, and a first cell seldom needs them.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_patches: dict[str, Callable[[], object]] = {}


class _Loader:
    """The module's own loader, and then the patch. Before the import find_spec() shows this one."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import is a cell's, the use of what is deprecated is ours
            _patches[module.__name__]()
        del _patches[module.__name__]
        if not _patches:
            sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _patches:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = _Loader(spec.loader)
            spec.loader = loader
        return spec


def patch(name: str, function: Callable[[], object]) -> None:
    """Call `function` when the module has been imported, now if it is."""
    if name in sys.modules:
        function()
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _patches[name] = function


def run(module: str, function: str) -> Callable[[], object]:
    """A patch: a function of a module of this package that is imported only then."""
    return lambda: getattr(importlib.import_module(f"cellgate_kernel.{module}"), function)()
