"""examples/frameworks: each program gets its answer, with the framework and a scripted model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples/frameworks"
# Inspect counts words with a file that it loads from the network.
RUN = """
import runpy, sys
if "inspect" in sys.argv[1]:
    from inspect_ai.model._model import ModelAPI
    async def count(self, text): return len(text)
    ModelAPI.count_text_tokens = count
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_example(package: Path, tmp_path: Path, name: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(package)}
    argv = [sys.executable, "-c", RUN, str(EXAMPLES / name)]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout
