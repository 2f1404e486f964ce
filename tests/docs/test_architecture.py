"""docs/architecture.md names files that exist; it and CONTRIBUTING.md name functions with the file that has them."""

import re
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


def test_functions_are_in_a_file_that_is_named_with_them(repo: Path) -> None:
    """In the same row of the table, or recipe: a function that moves to another file, or gets another name, is found."""
    recipes = (repo / "CONTRIBUTING.md").read_text().partition("\n## How to add\n")[2].partition("\n## ")[0]
    rows = [line for line in (repo / "docs/architecture.md").read_text().splitlines() if line.startswith("| ")]
    seen, wrong = 0, []
    for text in [*recipes.split("\n\n**To add "), *rows]:
        names = re.findall(r"`([\w./-]+\.(?:c|h|py|pyi))`", text)
        roots = [repo / root for root in ("", "src", "src/sandbox", "tests")]
        files = [p for name in names for root in roots if (p := root / name).is_file()]
        # "`events.c` there": in the folder of another.
        files += [p for name in names for folder in {f.parent for f in files} if (p := folder / name).is_file()]
        code = "\n".join(f.read_text() for f in files)
        for name, kind in re.findall(r"`([a-z0-9_]+)(\(\)|\[\])`", text):
            seen += 1
            pattern = rf"^(?:\w.*\b|\s*(?:async )?def ){name}\(" if kind == "()" else rf"\b{name}\[\] = "
            if name != "input" and not re.search(pattern, code, re.M):
                wrong.append(f"{name}{kind}: {text[:60]}")
    assert seen > 80
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
