"""Which files differ from the branch main, and which tests concern them: for `scripts/test --quick`.

The table in docs/architecture.md says which tests concern which code; tests/docs checks it with table_rows() and
table_paths().
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

REPO = Path(__file__).resolve().parent.parent
SECTION = "## Where a behaviour is implemented, and where it is tested"
# One or two short files for each part of cellgate. They run whatever has changed.
ALWAYS = (
    "docs",
    "layering",
    "api/test_approvals.py",
    "api/test_escapes.py",
    "cli/test_approvals.py",
    "codegen/test_calls.py",
    "egress/test_rules.py",
    "jupyter/test_messages.py",
    "kernel/test_cells.py",
    "mcp/test_rules.py",
    "mcp_serve/test_asking.py",
    "sandbox/test_filesystem.py",
)
# Tests of folders that are not in the table.
MORE = {"scripts": ("setup",), "share": ("setup",), "examples": ("examples",), "debian": ("setup",), ".ci": ("setup",)}


def table_rows() -> list[tuple[str, str, str]]:
    """The rows of the table: behaviour, code, tests."""
    text = (REPO / "docs/architecture.md").read_text().split(SECTION)[1].split("\n## ")[0]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return [(r[0], r[1], r[2]) for r in cells[1:]]


def table_paths(cell: str) -> list[str]:
    """The files and folders of a cell; one without a folder is in the folder of the one before it."""
    found, folder = [], ""
    for span in re.findall(r"`([\w./*-]+\.\w+|[\w./-]+/)`", cell):
        folder = span.rpartition("/")[0] if "/" in span else folder
        found.append(span if "/" in span else f"{folder}/{span}".lstrip("/"))
    return found


def files() -> list[Path]:
    """Files that differ from the branch main: of commits since it, changed, and new ones. All exist."""

    def git(*args: str) -> list[str]:
        p = subprocess.run(["git", "-C", REPO, *args], capture_output=True, text=True)
        return p.stdout.split("\0") if p.returncode == 0 else []

    base = next((b.strip() for b in git("merge-base", "HEAD", "main")), "HEAD")
    names = git("diff", "--name-only", "-z", base) + git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted(REPO / name for name in set(names) if name and (REPO / name).is_file())


def concerns(pattern: str, name: str) -> int:
    """How closely a path of the table, which may be below src/, names a file: characters of the path, or 0."""
    for path in (f"src/{pattern}", pattern):
        # A header belongs to the file of the same name.
        same = PurePath(name).match(path) or (name.endswith(".h") and PurePath(name[:-2] + ".c").match(path))
        if same or (path.endswith("/") and name.startswith(path)):
            return len(path)
    return 0


def concerned(name: str) -> set[str]:
    """The tests that the table, by its closest rows, has for a file; paths in tests/, and those of C are left out."""
    if name.startswith("tests/"):
        return {name.removeprefix("tests/")} if re.search(r"/test_\w+\.py$", name) else set()
    found: dict[int, set[str]] = {}
    for _, code, tests in table_rows():
        if closeness := max((concerns(path, name) for path in table_paths(code)), default=0):
            found.setdefault(closeness, set()).update(t for t in table_paths(tests) if not t.endswith(".c"))
    return found[max(found)] if found else set(MORE.get(name.partition("/")[0], ()))


def tests(changed: Iterable[Path]) -> Sequence[str]:
    """Return pytest's arguments for these files, relative to tests/: each file or folder once."""
    chosen = {name.rstrip("/") for name in ALWAYS}
    for file in changed:
        chosen |= {name.rstrip("/") for name in concerned(str(file.relative_to(REPO)))}
    return sorted(c for c in chosen if not any(str(parent) in chosen for parent in PurePath(c).parents))
