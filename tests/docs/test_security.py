"""docs/security.md: each claim names what shows it, and all that is named exists."""

import json
import re
import subprocess
from pathlib import Path

import pytest

TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ATTEMPTS = re.compile(r"`selftest ([\w -]+)`")


@pytest.fixture(scope="module")
def page(repo: Path) -> str:
    return (repo / "docs/security.md").read_text()


def claims(page: str) -> list[tuple[str, str]]:
    """The rows of all tables that have a column "shown by"."""
    found = []
    rows = page.splitlines()
    for i, row in enumerate(rows):
        if row == "| claim | shown by |":
            for line in rows[i + 2 :]:
                if not line.startswith("|"):
                    break
                claim, _, shown = line.strip("| ").partition(" | ")
                found.append((claim, shown))
    return found


def test_every_claim_names_what_shows_it(page: str) -> None:
    rows = claims(page)
    assert len(rows) >= 40
    assert [claim for claim, shown in rows if not TEST.search(shown) and not ATTEMPTS.search(shown)] == []
    # The column has only names of tests and attempts: a misspelt name would not be checked.
    for _, shown in rows:
        assert re.sub(r"[,\s]", "", ATTEMPTS.sub("", TEST.sub("", shown))) == "", shown


def test_named_tests_exist(repo: Path, page: str) -> None:
    named = set(TEST.findall(page))
    assert len(named) >= 60
    missing = []
    for file, function in sorted(named):
        path = repo / file
        if not path.exists() or not re.search(rf"^(async )?def {function}\(", path.read_text(), re.M):
            missing.append(f"{file}::{function}")
    assert missing == []


def test_named_attempts_exist(cellgate: Path, page: str) -> None:
    p = subprocess.run(
        [str(cellgate), "selftest", "--list", "--json"], check=True, capture_output=True, text=True, timeout=30
    )
    there = {json.loads(line)["name"] for line in p.stdout.splitlines()}
    named = {name for names in ATTEMPTS.findall(page) for name in names.split()}
    assert len(named) >= 100
    assert sorted(named - there) == []


def test_readme_leads_here(repo: Path) -> None:
    assert "docs/security.md" in (repo / "README.md").read_text()
