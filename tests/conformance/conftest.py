"""The conformance suite of MCP, released and next, and a Node that runs it: tests/npm/package.json.

A scenario passes with at least one check passed and none failed: two of them tick with no checks at all.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from shared_supervisor import _account, _own_account, _own_state, runtime_folder  # noqa: F401


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `SUITE's program WORDS...` to its end. Its files are below tmp_path."""
    packages = Path(os.environ.get("CG_NPM", "")).parent / "test-npm/node_modules"
    if not (packages / "conformance-next").exists():
        pytest.skip("the conformance suite of MCP is not installed: scripts/setup gets it from npm")
    node = next((p for p in packages.glob("node-linux-*/bin/node")), None)
    if node is None:
        pytest.skip("npm has no Node 22 for this processor")

    def run(suite: str, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        argv = [node, packages / f"conformance-{suite}/dist/index.js", *words, "-o", tmp_path]
        environment = {**os.environ, **(env or {})}
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=550)

    return run


@pytest.fixture
def failing(suite: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Runs `SUITE's program WORDS...`. Returns what the scenarios that fail said; there must be COUNT scenarios."""

    def run(name: str, count: int, *words: str, env: dict[str, str]) -> dict[str, str]:
        with runtime_folder() as slots:
            p = suite(name, *words, env={**env, "CG_CONFORMANCE_SLOTS": str(slots)})
        wrong = {}
        found = list(tmp_path.rglob("checks.json"))
        assert len(found) == count, p.stdout
        for file in found:
            checks = json.loads(file.read_text())
            failed = [f"{c['id']}: {c['description']}" for c in checks if c["status"] in ("FAILURE", "WARNING")]
            if failed or "SUCCESS" not in [c["status"] for c in checks]:
                scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", str(file.parent.relative_to(tmp_path)))
                wrong[scenario] = f"{failed}\n{(file.parent / 'stderr.txt').read_text()[-2000:]}"
        return wrong

    return run
