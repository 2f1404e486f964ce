"""The conformance suite of MCP against cellgate as the client (driver.py): the scenarios that its requirement sets score."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rounds import ALL

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
# How a client signs in depends on the revision in NEW_AUTH alone: scripts/soak runs AUTH with both.
# The next suite has all checks of the released one, and more; the released one alone has these scenarios.
SCENARIOS = [
    *(("released", "2025-11-25", f"auth/{a}") for a in BACKCOMPAT),
    *(("next", "2025-11-25", s) for s in [*OLD, *(f"auth/{a}" for a in AUTH if ALL)]),
    *(("next", "2026-07-28", s) for s in [*NEW, *(f"auth/{a}" for a in [*AUTH, *NEW_AUTH])]),
]


@pytest.mark.parametrize(("suite_name", "version", "name"), SCENARIOS, ids=lambda v: str(v).removeprefix("auth/"))
def test_scenario(scenario: Callable[..., None], prefix: Path, suite_name: str, version: str, name: str) -> None:
    driver = shlex.join([sys.executable, str(HERE / "driver.py")])
    words = ["client", "--command", driver, "--scenario", name]
    more = ["--spec-version", version] if suite_name == "next" else []
    scenario(suite_name, *words, *more, env={"CG_PREFIX": str(prefix)})
