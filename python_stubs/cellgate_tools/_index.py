"""The index behind mcptools.search(): words of tools, ranked by BM25 with weights for their fields.

It is made when it is first needed and kept until a package changes.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_left
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ._data import load_package, stamp
from ._package import packages

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Entry", "Index", "distinct", "index", "sentence", "words"]

# Words that say nothing about a tool. Verbs stay: "close" and "open" tell tools apart.
_SAYS_NOTHING = """
a about all also am an and any are as at be been being but by can could did do does for from had has have how i if in
into is it its may me my of on one onto or our out please so some such than that the their them then there these this
those to us use used using via want was we were what when where which while who why will with would you your
"""
_STOP = frozenset(_SAYS_NOTHING.split())
# Groups of words that people use for each other. A word of the same group counts less than the word itself.
_GROUPS = (
    "add create insert make new",
    "append add insert",
    "delete remove drop erase forget",
    "find search lookup query",
    "search look",
    "get fetch read retrieve show view display print",
    "list show enumerate which",
    "update edit change modify replace patch set",
    "folder directory",
    "file document",
    "image picture photo media",
    "run execute exec evaluate start",
    "undo revert reset rollback unstage",
    "roll rollout rollback",
    "switch checkout select",
    "move rename",
    "size resize dimension big large",
    "book reserve order",
    "restaurant bistro",
    "close end finish stop",
    "stop pause",
    "post send publish say",
    "reply answer respond",
    "repo repository",
    "pr pull",
    "url link website site web page",
    "download fetch scrape",
    "pick choose select option",
    "db database",
    "advice advisor recommend",
    "cost price",
    "email mail profile",
    "people person user",
    "who user",
    "fact observation",
    "count number",
    "weather forecast temperature",
    "time date",
    "refund return money",
    "field schema column",
    "error fail",
    "allowed access permission",
    "link relation connect",
    "check status finished done",
    "ci status check",
    "js javascript",
    "k8s kubernetes kubectl",
    "mongo mongodb",
    "step sequential",
    "step thinking think",
    "issue ticket bug task",
    "row record",
    "sprint cycle iteration",
    "message chat dm",
    "event meeting appointment calendar",
    "invoice bill",
    "customer client",
    "comment note remark",
    "member user teammate",
    "order purchase buy",
    "spreadsheet sheet excel table",
    "mail message inbox",
    "duplicate copy clone",
    "upload attach",
)

_HOW_MANY = re.compile(r"\bhow (many|much)\b", re.IGNORECASE)
_CASES, _WORDS = re.compile(r"([a-z0-9])([A-Z])"), re.compile(r"[^\W_]+")
# Names of parameters have no weight: most tools have some of the usual ones.
_WEIGHTS = {"name": 3.0, "title": 1.5, "server": 1.0, "first": 1.6, "rest": 0.5}
# A query that names a server means its tools. Words of names of servers that name none of them.
_NAMED, _NO_NAME = 1.6, ("server", "mcp", "api", "python", "official", "local", "remote")
_K1, _RELATED, _PREFIX = 1.2, 0.55, 0.6


@lru_cache(10000)
def _stem(word: str) -> str:
    """A word without the endings of English plurals and verbs; empty for one that says nothing."""
    if word in _STOP:
        return ""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for end in ("ations", "ation", "ings", "ing", "ers", "ed", "es", "er"):
        if word.endswith(end) and len(word) - len(end) >= 4:
            word = word[: -len(end)]
            return word[:-1] if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "ls" else word.rstrip("e")
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def words(text: str) -> list[str]:
    """Stems of the words in text; identifiers are taken apart at _, - and changes of case."""
    if not text.islower():
        text = _CASES.sub(r"\1 \2", text).lower()
    return [stem for stem in map(_stem, _WORDS.findall(text)) if stem]


def _related() -> dict[str, set[str]]:
    groups: dict[str, set[str]] = {}
    for group in _GROUPS:
        stems = {_stem(w) for w in group.split()}
        for stem in stems:
            groups.setdefault(stem, set()).update(stems - {stem})
    return groups


_SYNONYMS = _related()
_NO_SERVER = frozenset(stem for word in _NO_NAME if (stem := _stem(word)))


def sentence(text: str) -> str:
    """The first sentence or line, with what could drive a terminal made visible."""
    text = re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0]
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def distinct(descriptions: list[str]) -> list[str]:
    """The descriptions without what all of them begin with, cut between words."""
    texts = [" ".join(d.split()) for d in descriptions]
    given = [t for t in texts if t]
    common = os.path.commonprefix(given) if len(given) > 2 else ""
    common = common[: common.rfind(" ") + 1]
    return [t[len(common) :] for t in texts]


class Entry(NamedTuple):
    """A tool in the index."""

    folder: str
    package: str
    server: str
    tool: str
    data: dict[str, Any]
    said: str
    """Its description without what all of the server's begin with."""

    @property
    def module(self) -> str:
        return f"{self.package}.{self.data['module']}"


class Index:
    """All tools below some folders."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.postings: dict[str, list[tuple[int, float]]] = {}
        for i, entry in enumerate(entries):
            for word, weight in self._weights(entry).items():
                self.postings.setdefault(word, []).append((i, weight))
        self.vocabulary = sorted(self.postings)
        self.servers: dict[str, set[str]] = {}
        self.of_server: dict[str, list[int]] = {}
        for i, entry in enumerate(entries):
            self.of_server.setdefault(entry.server, []).append(i)
        for server in self.of_server:
            for word in set(words(server)) - _NO_SERVER:
                self.servers.setdefault(word, set()).add(server)

    @staticmethod
    def _weights(entry: Entry) -> dict[str, float]:
        first = sentence(entry.said)
        texts = {
            "name": entry.tool,
            "title": entry.data.get("title", ""),
            "server": entry.server,
            "first": first,
            "rest": entry.said[len(first) : 1000],
        }
        found: dict[str, float] = {}
        for field, text in texts.items():
            stems = words(text)
            counts = Counter(stems)
            weight, length = _WEIGHTS[field], _K1 * (0.4 + len(stems) / 20)
            for word, n in counts.items():
                found[word] = found.get(word, 0.0) + weight * n / (n + length)
        return found

    def _matches(self, word: str) -> dict[int, float]:
        """Tools with the word, or one that begins with it, or one of the same group; scores without rarity."""
        found = dict(self.postings.get(word, ()))
        if len(word) > 2:
            at = bisect_left(self.vocabulary, word)
            while at < len(self.vocabulary) and self.vocabulary[at].startswith(word):
                for i, weight in self.postings[self.vocabulary[at]]:
                    found[i] = max(found.get(i, 0.0), _PREFIX * weight)
                at += 1
        return found

    def _level(self, scores: dict[int, float], server: str) -> None:
        """Give all tools of a server the best score of one: its name does not tell them apart."""
        own = self.of_server[server]
        best = max((scores.get(i, 0.0) for i in own), default=0.0)
        scores.update(dict.fromkeys(own, best))

    def scores(self, query: str) -> dict[int, float]:
        total: dict[int, float] = {}
        fits: Counter[int] = Counter()
        asked = list(dict.fromkeys(words(_HOW_MANY.sub("count", query))))
        n = len(self.entries) + 1
        for word in asked:
            found = self._matches(word)
            rarity = math.log(1 + n / (len(found) + 0.5))
            best = {i: rarity * weight for i, weight in found.items()}
            for other in _SYNONYMS.get(word, ()):
                related = self.postings.get(other, ())
                rarity = math.log(1 + n / (len(related) + 0.5))
                for i, weight in related:
                    best[i] = max(best.get(i, 0.0), _RELATED * rarity * weight)
            for server in self.servers.get(word, ()):
                self._level(best, server)
            for i, score in best.items():
                total[i] = total.get(i, 0.0) + score
            fits.update(best.keys())
        named = set().union(*(self.servers.get(word, ()) for word in asked))
        return {
            i: score * (0.4 + 0.6 * fits[i] / len(asked)) * (_NAMED if self.entries[i].server in named else 1)
            for i, score in total.items()
        }


_KEPT: dict[tuple[str, ...], tuple[list[Any], Index]] = {}


def index(path: Iterable[str]) -> Index:
    """The index of all packages below the folders in path; made again after one of them was replaced."""
    folders = tuple(path)
    found = [(folder, name) for folder in folders for name in packages([folder])]
    stamps = [(name, stamp(os.path.join(folder, name))) for folder, name in found]
    kept = _KEPT.get(folders)
    if kept is None or kept[0] != stamps:
        entries: list[Entry] = []
        for folder, name in found:
            try:
                data = load_package(os.path.join(folder, name))
            except (OSError, ValueError):
                continue
            tools = data["tools"]
            said = distinct([e.get("description", e.get("title", "")) for e in tools.values()])
            for (tool, entry), text in zip(tools.items(), said, strict=True):
                entries.append(Entry(folder, name, data["server"], tool, entry, text))
        kept = _KEPT[folders] = (stamps, Index(entries))
    return kept[1]
