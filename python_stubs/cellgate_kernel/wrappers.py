"""Detects generated packages that were replaced between two cells.

The host replaces the whole folder PATH/mcptools/SERVER/. A session that has imported the old package
gets the new one with its next import.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable

PACKAGE = "mcptools"

Stamp = tuple[int, int] | None


def _stamp(path: str) -> Stamp:
    try:
        st = os.stat(path)
    except OSError:
        return None
    return (st.st_ino, st.st_mtime_ns)


class Watcher:
    """Compares the folders with their state at the last cell, by one stat() each."""

    def __init__(self, paths: list[str]) -> None:
        self._folders = [p for path in paths for p in (path, os.path.join(path, PACKAGE))]
        self._stamps = self._look()
        self._packages: dict[str, tuple[str, Stamp]] = {}
        self._news: list[str] = []
        self.changed: Callable[[], None] = lambda: None  # called when there is a request

    def _look(self) -> list[Stamp]:
        return [_stamp(p) for p in self._folders]

    def _loaded(self) -> dict[str, str]:
        """Imported packages of servers: module name and folder."""
        prefix = PACKAGE + "."
        found = {}
        for name, module in list(sys.modules.items()):
            if name.startswith(prefix) and "." not in name[len(prefix) :]:
                path = getattr(module, "__path__", None)
                if path:
                    found[name] = str(list(path)[0])
        return found

    def before_cell(self) -> None:
        """Remove modules whose files were replaced, and import caches of the folders."""
        if not self._folders:
            return
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            importlib.invalidate_caches()
            self.changed()
        if PACKAGE not in sys.modules:
            return
        for name, (folder, stamp) in list(self._packages.items()):
            if _stamp(folder) != stamp:
                tools = getattr(sys.modules.get(name), "TOOLS", None)
                self._drop(name)
                del self._packages[name]
                if tools is not None:
                    self._compare(name, set(tools))

    def after_cell(self) -> None:
        """Record the state of the packages that the cell has imported."""
        if PACKAGE not in sys.modules:
            return
        for name, folder in self._loaded().items():
            if name not in self._packages:  # it may have been replaced after the import, in the same cell
                self._packages[name] = (folder, getattr(sys.modules[name], "_stamp", _stamp(folder)))

    def _compare(self, name: str, before: set[str]) -> None:
        """Record which tools have come and gone, for the next cell."""
        try:
            now = set(importlib.import_module(name).TOOLS)
        except Exception:  # the import in the cell raises it again
            return
        parts = [
            f"{what} {', '.join(sorted(names)[:10])}{f' and {len(names) - 10} more' if len(names) > 10 else ''}"
            for what, names in (("added", now - before), ("removed", before - now))
            if names
        ]
        said = f"; {'; '.join(parts)}" if parts else ""
        self._news.append(f"cellgate: the tools of {name} have changed{said}: import them again")

    def report(self) -> None:
        """Show the cell that runs now which packages were replaced."""
        for line in self._news:
            print(line, file=sys.stderr)
        self._news.clear()

    def _drop(self, name: str) -> None:
        importlib.invalidate_caches()
        for module in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
            del sys.modules[module]
        parent = sys.modules.get(PACKAGE)
        if parent is not None:
            vars(parent).pop(name.rpartition(".")[2], None)
