"""The conformance suite of MCP against cellgate as the client (driver.py): the scenarios that its requirement sets score.

The suite, released and next, and a Node that runs it are in tests/npm/package.json. A scenario passes with at least one
check passed and none failed: two of them tick with no checks at all.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.no_sanitizer]  # half a minute in all; a host and a kernel for each

HERE = Path(__file__).parent
AUTH = [
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
]
NEW_AUTH = [
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "authorization-server-migration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
]
OLD = ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"]
NEW = [
    "tools_call",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
]
BACKCOMPAT = ["2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback", "client-credentials-basic"]
SCENARIOS = [
    *(("released", "2025-11-25", s) for s in [*OLD, *(f"auth/{a}" for a in [*AUTH, *BACKCOMPAT])]),
    *(("next", "2025-11-25", s) for s in [*OLD, *(f"auth/{a}" for a in AUTH)]),
    *(("next", "2026-07-28", s) for s in [*NEW, *(f"auth/{a}" for a in [*AUTH, *NEW_AUTH])]),
]


@pytest.fixture(scope="module")
def packages() -> Path:
    """Folder node_modules with the suites and Node."""
    folder = Path(os.environ.get("CG_NPM", "")).parent / "test-npm/node_modules"
    if not (folder / "conformance-next").exists():
        pytest.skip("the conformance suite of MCP is not installed: scripts/setup gets it from npm")
    return folder


@pytest.mark.parametrize(("suite", "version", "scenario"), SCENARIOS, ids=lambda v: str(v).removeprefix("auth/"))
def test_scenario(
    packages: Path, prefix: Path, tmp_path: Path, slowness: float, suite: str, version: str, scenario: str
) -> None:
    node = next((p for p in packages.glob("node-linux-*/bin/node")), None)
    if node is None:
        pytest.skip("npm has no Node 22 for this processor")
    driver = shlex.join([sys.executable, str(HERE / "driver.py")])
    words = [node, packages / f"conformance-{suite}/dist/index.js", "client", "--command", driver, "--scenario", scenario]
    words += ["-o", tmp_path] + (["--spec-version", version] if suite == "next" else [])
    env = {**os.environ, "CG_PREFIX": str(prefix)}
    p = subprocess.run(words, env=env, capture_output=True, text=True, timeout=100 * slowness)
    checks = [c for f in tmp_path.rglob("checks.json") for c in json.loads(f.read_text())]
    passed = [c["id"] for c in checks if c["status"] == "SUCCESS"]
    failed = [f"{c['id']}: {c['description']}" for c in checks if c["status"] in ("FAILURE", "WARNING")]
    log = "".join(f.read_text() for f in tmp_path.rglob("stderr.txt"))
    assert passed and not failed, f"{len(passed)} passed; {failed}\n{p.stdout[-1000:]}\n{log[-2000:]}"
