"""The conformance suite of MCP against `cellgate mcp serve --http`, and against the fixture server (fixture.c).

What passes is listed, so that one more or one less fails; what passes whatever is answered is counted apart.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance import fixture
from conformance.proxy import proxy
from rounds import with_peers

pytestmark = [pytest.mark.slow, pytest.mark.no_sanitizer, pytest.mark.timeout(600)]

HERE = Path(__file__).parent

# What mcp serve passes without the suite's tools.
ITSELF = {
    "2025-11-25": {
        "dns-rebinding-protection",
        "logging-set-level",
        "ping",
        "resources-list",
        "server-initialize",
        "server-session-lifecycle",
        "server-sse-multiple-streams",
        "tools-list",
    },
    "2026-07-28": {
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-unsupported-methods",
        "resources-list",
        "sep-2164-resource-not-found",
        "server-sse-multiple-streams",
        "tools-list",
    },
}
# And what it passes because it has not got them.
BY_ACCIDENT = {"2025-11-25": set(), "2026-07-28": {"input-required-result-validate-input"}}
# What the fixture server passes as well where it gives one wrong answer to all calls: because the suite judges another
# thing, and because it judges nothing.
OF_LISTS = {
    "2025-11-25": {"json-schema-2020-12", "prompts-list"},
    "2026-07-28": {"caching", "json-schema-2020-12", "prompts-list"},
}
ANY_ANSWER = {
    "2025-11-25": {
        "prompts-get-simple",
        "resources-read-text",
        "resources-subscribe",
        "resources-unsubscribe",
        "tools-call-simple-text",
    },
    "2026-07-28": {
        "input-required-result-ignore-extra-params",
        "prompts-get-simple",
        "resources-read-text",
        "tools-call-simple-text",
    },
}
# What the fixture server does not pass, and why.
APART = {
    "2025-11-25": {},
    "2026-07-28": {
        "http-custom-header-server-validation": "no tool of cellgate takes arguments from headers",
        "tasks-lifecycle": "one check of nine: a task is a cell, which ends by a result and by no error of the protocol",
        "tasks-status-notifications": "the suite has no check yet",
    },
}


def fixture_words(build_dir: Path, options: list[str | Path]) -> list[str | Path]:
    program = build_dir / "tests/conformance/cellgate-fixture"
    if not program.exists():
        pytest.skip("the fixture server is not built: meson found no libmicrohttpd or GnuTLS")
    return [program, *options, "--", "cellgate", "mcp", "serve"]


@pytest.fixture
def serve(cellgate: Path, build_dir: Path, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Starts a server, and a proxy that adds its token, whose address it returns."""
    with contextlib.ExitStack() as ends:

        def start(kind: str) -> str:
            (tmp_path / "workspace").mkdir()
            made = fixture.table()
            (tmp_path / "table.json").write_text(json.dumps(fixture.wrong(made) if kind == "wrong" else made))
            asking = {"command": "/usr/bin/python3", "args": [str(HERE.parent / "asking_server.py")]}
            (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"asking": asking}}))
            # The suite opens a session for each scenario, under one name, and ends none.
            both: list[str | Path] = ["--max-sessions-per-client", "64", "--max-sessions", "64"]
            http = ["--http", "127.0.0.1:0", "--token-file", tmp_path / "token"]
            words = [cellgate, "mcp", "serve", *http] if kind == "itself" else fixture_words(build_dir, http + both)
            words += [*both, "--workspace", tmp_path / "workspace"]
            words += ["--mcp", tmp_path / "mcp.json", "--approve", "asking.ask"]
            env = {**os.environ, "CELLGATE_FIXTURE": str(tmp_path / "table.json")}
            server = ends.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env))
            ends.callback(server.terminate)
            assert server.stdout
            found = re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())
            assert found
            way = proxy(int(found[1]), (tmp_path / "token").read_text().strip())
            threading.Thread(target=way.serve_forever, daemon=True).start()
            ends.callback(way.server_close)
            ends.callback(way.shutdown)
            return f"http://127.0.0.1:{way.server_address[1]}/mcp"

        yield start


def judge(folder: Path) -> tuple[dict[str, list[str]], set[str]]:
    """What is wrong, by scenario; and the scenarios with at least one check passed and none failed."""
    found = {f.parent: json.loads(f.read_text()) for f in folder.rglob("checks.json")}
    names = {f: re.sub(r"^server-(.*?)(-\d{4}-\d\d-\d\dT.*)?$", r"\1", f.name) for f in found}
    wrong = {
        names[f]: [f"{c['id']}: {c.get('errorMessage')}" for c in checks if c["status"] in ("FAILURE", "WARNING")]
        for f, checks in found.items()
    }
    tried = {names[f] for f, checks in found.items() if "SUCCESS" in [c["status"] for c in checks]}
    return wrong, {n for n in tried if not wrong[n]}


@pytest.mark.parametrize(
    ("revision", "kind"),
    # The fixture is mcp serve with more tools.
    with_peers(itertools.product(ITSELF, ("itself", "fixture", "wrong")), ("2026-07-28", "fixture")),
)
def test_requirements(
    suite: Callable[..., subprocess.CompletedProcess[str]],
    serve: Callable[[str], str],
    tmp_path: Path,
    revision: str,
    kind: str,
) -> None:
    suite("next", "server", "--url", serve(kind), "--requirements", revision)
    wrong, good = judge(tmp_path)
    expected = {
        "itself": ITSELF[revision] | BY_ACCIDENT[revision],
        "fixture": set(wrong) - set(APART[revision]),
        "wrong": ITSELF[revision] | OF_LISTS[revision] | ANY_ANSWER[revision],
    }[kind]
    assert len(wrong) == {"2025-11-25": 33, "2026-07-28": 50}[revision]
    assert good == expected, {n: wrong[n] for n in good ^ expected}
    print(
        f"{revision}, {kind}: {len(good)} of {len(wrong)} scenarios, {len(good & ANY_ANSWER[revision])} by any answer"
    )
