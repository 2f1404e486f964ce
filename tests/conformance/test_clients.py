"""The conformance suite of MCP against cellgate as the client (driver.py): the scenarios that its requirement sets score."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.driver import UNSUPPORTED
from rounds import with_peers

# A host and a kernel for each scenario.
pytestmark = [pytest.mark.slow, pytest.mark.no_sanitizer, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
NEWEST = ("next", "--requirements 2026-07-28", 39)
# The next suite has all checks of the released one, and more, but for the scenarios of backcompat.
RUNS = [("released", "--suite backcompat", 2), ("next", "--requirements 2025-11-25", 25), NEWEST]


@pytest.mark.parametrize(("suite_name", "options", "count"), with_peers(RUNS, NEWEST), ids=lambda v: str(v).rpartition(" ")[2])
def test_scenarios(
    failing: Callable[..., dict[str, str]], prefix: Path, suite_name: str, options: str, count: int
) -> None:
    driver = shlex.join([sys.executable, str(HERE / "driver.py")])
    # For the last scenario of a set to begin: the driver runs a few of them at a time.
    words = ["client", "--command", driver, *options.split(), "--timeout", "500000"]
    found = failing(suite_name, count, *words, env={"CG_PREFIX": str(prefix)})
    assert set(found) == (UNSUPPORTED if "--requirements" in options else set()), found
