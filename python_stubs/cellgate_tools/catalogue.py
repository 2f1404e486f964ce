"""Finding tools, in levels: the functions of the package mcptools.

servers(), tools(SERVER) with names, tools(SERVER, describe=True) with what distinguishes them,
signature(TOOL), search(WORDS). Each takes the folders of the package first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import NamedTuple

from ._index import Entry, index, sentence, words
from ._package import packages
from ._schema import hint
from ._signature import brief

__all__ = ["Lines", "Match", "Matches", "search", "servers", "signature", "tools"]

_DETAILS = ("name", "signature", "full")
_DESCRIPTION = 44  # characters of tools(describe=True)


class Match(NamedTuple):
    """A tool that was found."""

    server: str
    """Name of the server as it is registered."""
    tool: str
    """Name of the tool as the server lists it."""
    module: str
    """Name to import, below the mcptools package."""
    score: float
    text: str
    """The detail that search() was called with."""

    def __repr__(self) -> str:
        return self.text


class Matches(list[Match]):
    """The tools that were found, best first; shown as one line (or text) for each."""

    def __repr__(self) -> str:
        return "\n".join(match.text for match in self) or "no tool found"


class Lines(list[str]):
    """Texts, shown as one line for each."""

    def __repr__(self) -> str:
        return "\n".join(self)


def _of(path: Iterable[str], server: str) -> list[Entry]:
    """The tools of a server, by its registered name or its package, in any case."""
    entries = index(path).entries
    found = [e for e in entries if server in (e.server, e.package)]
    found = found or [e for e in entries if server.lower() in (e.server.lower(), e.package)]
    if not found:
        names = sorted({e.package for e in entries})
        near = hint(server.lower(), names) or f"; servers: {', '.join(names) or 'none'}"
        raise LookupError(f"there is no server {server!r} with tools{near}")
    return found


def servers(path: Iterable[str]) -> Lines:
    """Names of the packages below mcptools."""
    return Lines(packages(path))


def tools(path: Iterable[str], server: str, *, describe: bool = False) -> Lines:
    """Modules of a server's tools; describe: with the words that distinguish them."""
    lines = Lines()
    for entry in _of(path, server):
        name = entry.data["module"]
        text = _distinctive(entry) if describe else ""
        lines.append(f"{name}: {text}" if text else name)
    return lines


def _distinctive(entry: Entry) -> str:
    """The start of the first sentence; nothing when it only repeats the name."""
    text = sentence(entry.said)
    known = set(words(entry.tool))
    if not set(words(text)) - known:
        return ""
    if len(text) > _DESCRIPTION:
        text = text[:_DESCRIPTION].rpartition(" ")[0] + "..."
    return text.rstrip(".") if not text.endswith("...") else text


def signature(parent: str, path: Iterable[str], tool: str, server: str | None = None) -> str:
    """One tool's call, for example "create_issue(title: str, body?: str) -> Text". tool: NAME or SERVER.NAME."""
    entries = index(path).entries if server is None else _of(path, server)
    name = tool.lower()
    found = [e for e in entries if name in (e.module.lower(), e.data["module"].lower(), e.tool.lower())]
    if len(found) == 1:
        entry = found[0]
        return brief(import_module(f"{parent}.{entry.module}"))
    if found:
        raise LookupError(f"{len(found)} servers have a tool {tool!r}: {', '.join(e.module for e in found)}")
    names = {n: None for e in entries for n in (e.data["module"], e.module)}
    raise LookupError(f"there is no tool {tool!r}{hint(tool, names)}")


def _show(detail: str, entry: Entry) -> str:
    if detail == "full":
        with open(os.path.join(entry.folder, entry.package, entry.data["module"] + ".py"), encoding="ascii") as file:
            return f"# {entry.module}\n{file.read()}"
    hints = f" [{', '.join(entry.data['hints'])}]" if "hints" in entry.data else ""
    return f"{entry.module}{entry.data['sig'] if detail == 'signature' else ''}: {sentence(entry.said)[:160]}{hints}"


def search(
    path: Iterable[str], query: str = "", *, server: str | None = None, detail: str = "signature", limit: int = 10
) -> Matches:
    """The tools that fit the words in query, best first; all, by name, when it is empty.

    server: only of this one (name as registered, or package). detail: "name", "signature" or "full".
    """
    if detail not in _DETAILS:
        raise ValueError(f"detail is one of {', '.join(_DETAILS)}, not {detail!r}")
    kept = index(path)
    entries = kept.entries
    asked = bool(query.strip())
    scores = kept.scores(query) if asked else dict.fromkeys(range(len(entries)), 0.0)
    order = [i for i in scores if server is None or server in (entries[i].package, entries[i].server)]
    order.sort(key=lambda i: (-scores[i], entries[i].package, entries[i].data["module"]))
    if asked:
        order = order[:limit]
    return Matches(
        Match(entries[i].server, entries[i].tool, entries[i].module, scores[i], _show(detail, entries[i]))
        for i in order
    )
