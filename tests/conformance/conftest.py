"""The conformance suite of MCP, released and next, and a Node that runs it: tests/npm/package.json.

A scenario passes with at least one check passed and none failed: two of them tick with no checks at all.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def suite(tmp_path: Path, slowness: float) -> Callable[..., subprocess.CompletedProcess[str]]:
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
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=200 * slowness)

    return run


@pytest.fixture
def scenario(suite: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Callable[..., None]:
    """Runs `SUITE's program WORDS...`, and judges its checks."""

    def run(name: str, *words: str, env: dict[str, str] | None = None) -> None:
        p = suite(name, *words, env=env)
        checks = [c for f in tmp_path.rglob("checks.json") for c in json.loads(f.read_text())]
        passed = [c["id"] for c in checks if c["status"] == "SUCCESS"]
        failed = [f"{c['id']}: {c['description']}" for c in checks if c["status"] in ("FAILURE", "WARNING")]
        log = "".join(f.read_text() for f in tmp_path.rglob("stderr.txt"))
        assert passed and not failed, f"{len(passed)} passed; {failed}\n{p.stdout[-1000:]}\n{log[-2000:]}"

    return run
