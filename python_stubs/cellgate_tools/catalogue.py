"""Search for tools: mcptools.search() and the attributes of the package mcptools."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ._data import load_package
from ._package import packages

__all__ = ["Match", "Matches", "search"]

_DETAILS = ("name", "signature", "full")


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


def _words(text: str) -> list[str]:
    """Lower-case words; identifiers are taken apart at _, - and changes of case. A final s does not count."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return [
        w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w
        for w in re.findall(r"[^\W_]+", text.lower())
    ]


def _weights(name: str, entry: dict[str, Any], server: str) -> dict[str, float]:
    """The words of a tool and their weights."""
    properties = entry["in"].get("properties") if isinstance(entry["in"], dict) else None
    sources = (
        (3.0, name),
        (2.0, entry.get("title", "")),
        (1.5, server),
        (1.0, entry.get("description", "")),
        (0.7, " ".join(properties) if isinstance(properties, dict) else ""),
    )
    weights: dict[str, float] = {}
    for weight, text in sources:
        for word in _words(text):
            weights[word] = max(weights.get(word, 0.0), weight)
    return weights


def _score(query: list[str], weights: dict[str, float], rarity: dict[str, float]) -> float:
    score = 0.0
    for asked in query:
        best = weights.get(asked, 0.0)
        if not best and len(asked) > 2:
            best = max((w / 2 for word, w in weights.items() if word.startswith(asked)), default=0.0)
        score += best * rarity[asked]
    return score


def _rarity(query: list[str], tools: list[dict[str, float]]) -> dict[str, float]:
    """Weights of words: rare words weigh more."""
    result = {}
    for asked in query:
        having = sum(1 for weights in tools if any(word.startswith(asked) for word in weights))
        result[asked] = math.log(1 + (len(tools) + 1) / (having + 0.5))
    return result


def _tools(path: Iterable[str], server: str | None) -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """(folder, package, server, tool, entry) of each tool."""
    for folder in path:
        for package in packages([folder]):
            try:
                data = load_package(os.path.join(folder, package))
            except (OSError, ValueError):
                continue
            if server in (None, package, data["server"]):
                for name, entry in data["tools"].items():
                    yield folder, package, data["server"], name, entry


def _show(detail: str, folder: str, package: str, entry: dict[str, Any]) -> str:
    module = f"{package}.{entry['module']}"
    if detail == "full":
        with open(os.path.join(folder, package, entry["module"] + ".py"), encoding="ascii") as file:
            return f"# {module}\n{file.read()}"
    text = re.split(r"(?<=\.)\s|\n", entry.get("description", entry.get("title", "")).strip(), maxsplit=1)[0]
    sentence = "".join(c if c.isprintable() else "?" for c in text[:160])
    hints = f" [{', '.join(entry['hints'])}]" if "hints" in entry else ""
    return f"{module}{entry['sig'] if detail == 'signature' else ''}: {sentence}{hints}"


def search(
    path: Iterable[str], query: str = "", *, server: str | None = None, detail: str = "signature", limit: int = 10
) -> Matches:
    """The tools that fit the words in query, best first; all, by name, when it is empty.

    server: only of this one (name as registered, or package). detail: "name", "signature" or "full".
    """
    if detail not in _DETAILS:
        raise ValueError(f"detail is one of {', '.join(_DETAILS)}, not {detail!r}")
    asked = list(dict.fromkeys(_words(query)))
    tools = list(_tools(path, server))
    weights = [_weights(name, entry, of) for _, _, of, name, entry in tools]
    rarity = _rarity(asked, weights)
    scores = [_score(asked, w, rarity) for w in weights]
    order = [i for i in range(len(tools)) if scores[i] > 0 or not asked]
    order.sort(key=lambda i: (-scores[i], tools[i][1], tools[i][4]["module"]))
    if asked:
        order = order[:limit]
    found = Matches()
    for i in order:
        folder, package, of, name, entry = tools[i]
        found.append(Match(of, name, f"{package}.{entry['module']}", scores[i], _show(detail, folder, package, entry)))
    return found
