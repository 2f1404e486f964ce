"""src/base/text_table.h is what scripts/text_table.py makes of the Unicode data that tests/requirements.txt pins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_the_table_is_what_its_generator_writes(repo: Path) -> None:
    for package in "confusable_homoglyphs", "fontTools", "unicodedata2":
        pytest.importorskip(package, reason=f"no {package}: run scripts/setup --test")
    made = subprocess.run([sys.executable, repo / "scripts/text_table.py"], capture_output=True, text=True, check=True)
    assert made.stdout == (repo / "src/base/text_table.h").read_text()
