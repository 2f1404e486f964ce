"""The conformance suite of MCP against `cellgate mcp serve --http`: the scenarios of both revisions.

Those that call the suite's own tools call cells in their place (aliases.py).
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance import aliases

pytestmark = [pytest.mark.slow, pytest.mark.no_sanitizer]  # a server and a kernel for each

HERE = Path(__file__).parent

OLD = ["server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"]
STATELESS = [
    "server-stateless",
    "http-header-validation",
    "tools-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
    "input-required-result-unsupported-methods",
]
# What the revisions require and mcp serve does not pass: what it has no use for, by reason.
APART = {
    "no resources but outputs of cells": {
        *(f"resources-{n}" for n in ("read-text", "read-binary", "templates-read", "subscribe", "unsubscribe")),
        "caching",  # its checks of lists of tools and resources pass
    },
    "no prompts": {
        *(f"prompts-{n}" for n in ("list", "get-simple", "get-with-args", "get-embedded-resource", "get-with-image")),
        "completion-complete",
        "input-required-result-non-tool-request",
    },
    "no log messages of tools": {"tools-call-with-logging"},
    "no such content in results": {
        *(f"tools-call-{n}" for n in ("audio", "embedded-resource", "mixed-content")),
        "json-schema-2020-12",
        "http-custom-header-server-validation",
    },
    "no sampling and no roots": {
        "tools-call-sampling",
        "input-required-result-basic-sampling",
        "input-required-result-basic-list-roots",
        "input-required-result-multiple-input-requests",
        "input-required-result-capability-check",
    },
    "its checks only inform": {"server-sse-polling"},
    "our own names of questions; no answers before the question": {
        "input-required-result-basic-elicitation",
        "input-required-result-ignore-extra-params",
    },
    "some checks want tools in tools/list: test_stateless judges the others": {"server-stateless"},
    "no task fails but by its code; one check": {"tasks-lifecycle"},
    "questions of a cell are those of its task": {"tasks-mrtr-composition"},
    "the first line says that the session is new; one check": {"tasks-request-headers"},
    "no tool needs tasks": {"tasks-required-task-error"},
    "the suite skips it": {"tasks-status-notifications"},
}
# What passes only by the cells that stand for the suite's tools.
BY_CELLS = {
    "2025-11-25": {
        *(f"tools-call-{n}" for n in ("simple-text", "image", "error", "with-progress", "elicitation")),
        "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums",
    },
    "2026-07-28": {
        *(f"tools-call-{n}" for n in ("simple-text", "image", "error", "with-progress")),
        "input-required-result-missing-input-response",
        "input-required-result-multi-round",
        "input-required-result-request-state",
        "input-required-result-result-type",
        "input-required-result-tampered-state",
        *(f"tasks-{n}" for n in ("capability-negotiation", "dispatch-and-envelope", "mrtr-input")),
        *(f"tasks-{n}" for n in ("request-state-removal", "wire-fields")),
    },
}
# What passes without its tool as well, so that nothing was judged.
BY_ACCIDENT = {"2025-11-25": set(), "2026-07-28": {"input-required-result-validate-input"}}
# What passes by what the server is.
ITSELF = {
    "2025-11-25": {*OLD, "server-session-lifecycle", "resources-list", "logging-set-level"},
    "2026-07-28": {*STATELESS, "resources-list", "sep-2164-resource-not-found"} - {"server-stateless"},
}


@pytest.fixture
def serve(cellgate: Path, tmp_path: Path) -> Iterator[Callable[[dict[str, str]], str]]:
    """Starts a server, and a proxy with these aliases, whose address it returns."""
    with contextlib.ExitStack() as ends:

        def start(cells: dict[str, str]) -> str:
            (tmp_path / "workspace").mkdir()
            asking = {"command": sys.executable, "args": [str(HERE.parent / "asking_server.py")]}
            (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"asking": asking}}))
            words = [cellgate, "mcp", "serve", "--http", "127.0.0.1:0", "--workspace", tmp_path / "workspace"]
            # The suite opens a session for each scenario, under one name, and ends none.
            words += ["--max-sessions-per-client", "64", "--max-sessions", "64"]
            words += ["--token-file", tmp_path / "token", "--mcp", tmp_path / "mcp.json", "--approve", "asking.ask"]
            server = ends.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            ends.callback(server.terminate)
            assert server.stdout
            found = re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())
            assert found
            proxy = aliases.proxy(int(found[1]), (tmp_path / "token").read_text().strip(), cells)
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            ends.callback(proxy.server_close)
            ends.callback(proxy.shutdown)
            return f"http://127.0.0.1:{proxy.server_address[1]}/mcp"

        yield start


def test_stateless(scenario: Callable[..., None], serve: Callable[..., str]) -> None:
    scenario("next", "server", "--url", serve({}), "--scenario", "server-stateless", "--spec-version", "2026-07-28")


def passed(checks: list[dict[str, str]]) -> bool:
    states = [c["status"] for c in checks]
    return "SUCCESS" in states and not {"FAILURE", "WARNING"} & set(states)


def judge(folder: Path) -> tuple[set[str], set[str]]:
    """The scenarios that passed, and all."""
    found = {f.parent: json.loads(f.read_text()) for f in folder.rglob("checks.json")}
    names = {f: re.sub(r"^server-(.*?)(-\d{4}-\d\d-\d\dT.*)?$", r"\1", f.name) for f in found}
    return {names[f] for f, checks in found.items() if passed(checks)}, set(names.values())


@pytest.mark.parametrize("cells", [aliases.CELLS, {}], ids=["cells", "nothing"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_requirements(
    suite: Callable[..., subprocess.CompletedProcess[str]],
    serve: Callable[..., str],
    tmp_path: Path,
    revision: str,
    cells: dict[str, str],
) -> None:
    suite("next", "server", "--url", serve(cells), "--requirements", revision)
    good, every = judge(tmp_path)
    expected = ITSELF[revision] | BY_ACCIDENT[revision] | (BY_CELLS[revision] if cells else set())
    assert good == expected
    assert not cells or every - good == every & {n for names in APART.values() for n in names}
    print(f"{revision}: {len(good)} of {len(every)} scenarios, {len(BY_ACCIDENT[revision])} by accident")
