"""examples/cluster in real actors of Ray: each has a supervisor, which ends with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples/cluster/ray_rollouts.py"


def test_actors(package: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(package)}
    argv = [sys.executable, PROGRAM, "2", "20"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["episodes"], line["score"]) for line in lines] == [(20, 1.0), (20, 1.0)]
