"""Importing generated packages: a finder that knows every tool, so that nothing is looked for on disk.

It reads the modules itself, because Python's own loader would try to write byte code next to each one.
That folder is read-only in a sandbox, and a refused mkdir() costs more there than compiling a module.
No byte code is kept: the text is the only thing that is obeyed.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from ._data import DATA

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Package", "package", "packages"]


def packages(path: Iterable[str]) -> list[str]:
    """Names of the generated packages in the folders of path."""
    found: set[str] = set()
    for folder in path:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found.update(n for n in names if n.isidentifier() and os.path.isfile(os.path.join(folder, n, DATA)))
    return sorted(found)


def folder_stamp(folder: str) -> tuple[int, int] | None:
    """Changes when the folder is replaced, as that of a package is; None when there is none."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


class Package(ModuleType):
    """The package of a server, or the one that holds them. Its attributes are imported when they are used."""

    TOOLS: tuple[str, ...]
    __path__: list[str]

    def _names(self) -> tuple[str, ...] | list[str]:
        """Modules of the tools, or packages of the servers."""
        tools = self.__dict__.get("TOOLS")
        return packages(self.__path__) if tools is None else tools

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            try:
                return import_module(f"{self.__name__}.{name}")
            except ImportError as e:  # also of a server that did not start: help() and hasattr() go on
                if isinstance(e, ModuleNotFoundError) and e.name is not None:
                    raise
                raise AttributeError(str(e)) from None
        raise AttributeError(f"{self.__name__} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        own = [n for n, value in self.__dict__.items() if not n.startswith("_") and not isinstance(value, ModuleType)]
        return [*(n for n in own if n != "TOOLS"), *self._names()]


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)


class _Alias:
    """Gives a module a second name."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import has replaced it


class _Finder:
    """Finds what is in generated packages; names in lower case lead to the module that has the tool's case."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parent, _, name = fullname.rpartition(".")
        package = sys.modules.get(parent)
        if type(package) is not Package:
            return None
        names = package._names()
        if name not in names:
            same = [n for n in names if n.lower() == name.lower()]
            if not same:
                _missing(package, name, names)
                return None
            return ModuleSpec(fullname, _Alias(import_module(f"{parent}.{same[0]}")))  # type: ignore[arg-type]
        is_tool = "TOOLS" in package.__dict__
        for folder in package.__path__:
            below = os.path.join(folder, name)
            file = below + ".py" if is_tool else os.path.join(below, "__init__.py")
            if len(package.__path__) > 1 and not os.path.isfile(file):
                continue
            spec = ModuleSpec(fullname, _Loader(fullname, file), origin=file, is_package=not is_tool)
            spec.has_location = True
            if not is_tool:
                spec.submodule_search_locations = [below]
            return spec
        return None


def _missing(package: Package, name: str, names: tuple[str, ...] | list[str]) -> None:
    """Raises ModuleNotFoundError, unless the name is one that Python looks for by itself.

    The error has no .name: `from PACKAGE import NAME` then shows it in place of one without a reason.
    """
    if name.startswith("_"):
        return
    from difflib import get_close_matches

    what = "tool" if "TOOLS" in package.__dict__ else "server"
    lower = {n.lower(): n for n in names}
    near = [lower[n] for n in get_close_matches(name.lower(), lower, 3)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"{what}s: {', '.join(names[:30]) or 'none'}"
    raise ModuleNotFoundError(f"{package.__name__} has no {what} {name!r}; {hint}")


def package(name: str) -> None:
    """Called by the __init__ of generated packages, with their names."""
    module = sys.modules[name]
    module.__class__ = Package
    if "TOOLS" in module.__dict__:
        module.__dict__["__all__"] = module.__dict__["TOOLS"]
    module.__dict__["_stamp"] = folder_stamp(module.__dict__.get("__path__", [""])[0])
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
