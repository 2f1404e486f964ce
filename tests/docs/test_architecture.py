"""docs/architecture.md names files that exist."""

import re
from pathlib import Path

import pytest

SECTION = "## Where a behaviour is implemented, and where it is tested"


def rows(repo: Path) -> list[tuple[str, str, str]]:
    text = (repo / "docs/architecture.md").read_text().split(SECTION)[1].split("\n## ")[0]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return [(r[0], r[1], r[2]) for r in cells[1:]]


def paths(cell: str) -> list[str]:
    """The files of a cell; one without a folder lies where the one before it does."""
    found, folder = [], ""
    for span in re.findall(r"`([\w./*-]+\.\w+|[\w./-]+/)`", cell):
        folder = span.rpartition("/")[0] if "/" in span else folder
        found.append(span if "/" in span else f"{folder}/{span}".lstrip("/"))
    return found


def exists(repo: Path, roots: tuple[str, ...], path: str) -> bool:
    return any(list((repo / root).glob(path.rstrip("/"))) for root in roots)


def test_every_row_names_what_exists(repo: Path) -> None:
    assert len(rows(repo)) > 30
    wrong = []
    for behaviour, code, tests in rows(repo):
        assert paths(code), behaviour
        assert paths(tests), behaviour
        wrong += [p for p in paths(code) if not exists(repo, ("src", "."), p)]
        wrong += [p for p in paths(tests) if not exists(repo, ("tests",), p)]
    assert wrong == []


@pytest.mark.parametrize("root", ["src", "tests"])
def test_every_folder_is_in_the_table(repo: Path, root: str) -> None:
    text = " ".join(row[1 if root == "src" else 2] for row in rows(repo))
    named = {p.rpartition("/")[0] for p in paths(text)}
    support = {"tests/fuzz", "tests/threads", "tests/valgrind", "tests/examples", "tests/cli/data"}
    folders = {p.parent for suffix in ("*.c", "test_*.py") for p in (repo / root).rglob(suffix)}
    missing = [
        str(f.relative_to(repo))
        for f in folders
        if not any((n + "/").startswith(str(f.relative_to(repo / root)) + "/") for n in named)
    ]
    assert sorted(set(missing) - support) == []
