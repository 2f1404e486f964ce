"""What a commit would leave out: no source file matches a pattern of .gitignore."""

import subprocess
from pathlib import Path

import pytest


def test_git_ignores_no_source(repo: Path) -> None:
    if not (repo / ".git").exists():
        pytest.skip("the sources are no git work tree")
    argv = [
        "git",
        "ls-files",
        "--others",
        "--ignored",
        "--exclude-standard",
        "--",
        "src",
        "include",
        "python*",
        "tests",
    ]
    found = subprocess.run(argv, cwd=repo, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert [f for f in found if Path(f).suffix in (".c", ".h", ".py", ".mjs", ".bash", ".json", ".build")] == []
