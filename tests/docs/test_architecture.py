"""docs/architecture.md names files that exist."""

from pathlib import Path

import pytest
from changed import table_paths, table_rows


def exists(repo: Path, roots: tuple[str, ...], path: str) -> bool:
    return any(list((repo / root).glob(path.rstrip("/"))) for root in roots)


def test_every_row_names_what_exists(repo: Path) -> None:
    assert len(table_rows()) > 30
    wrong = []
    for behaviour, code, tests in table_rows():
        assert table_paths(code), behaviour
        assert table_paths(tests), behaviour
        wrong += [p for p in table_paths(code) if not exists(repo, ("src", "."), p)]
        wrong += [p for p in table_paths(tests) if not exists(repo, ("tests",), p)]
    assert wrong == []


@pytest.mark.parametrize("root", ["src", "tests"])
def test_every_folder_is_in_the_table(repo: Path, root: str) -> None:
    text = " ".join(row[1 if root == "src" else 2] for row in table_rows())
    named = {p.rpartition("/")[0] for p in table_paths(text)}
    support = {"tests/fuzz", "tests/threads", "tests/valgrind", "tests/examples", "tests/cli/data"}
    folders = {p.parent for suffix in ("*.c", "test_*.py") for p in (repo / root).rglob(suffix)}
    missing = [
        str(f.relative_to(repo))
        for f in folders
        if not any((n + "/").startswith(str(f.relative_to(repo / root)) + "/") for n in named)
    ]
    assert sorted(set(missing) - support) == []
