"""MCP's Inspector, its command line and its page in Chromium, with `cellgate mcp serve` over both transports.

Run by scripts/soak, which sets CG_CLIENTS_NPM to the folder that has its package.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_http.helpers import Server
from mcp_http.soak_patience import CODE, SECONDS, WHOLE

pytestmark = pytest.mark.timeout(180 + 2 * SECONDS)

HERE = Path(__file__).parent
CELL = "from mcptools.asking import hello; print(hello.call({}), 'and', 6 * 7)"


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return str(s.getsockname()[1])


@pytest.fixture
def target(
    request: pytest.FixtureRequest, cellgate: Path, serve: Callable[..., Server], workspace: Path, tmp_path: Path
) -> tuple[list[str], str]:
    """The Inspector's words for a server with a tool that is asked about, and its name of the transport."""
    asking = {"command": sys.executable, "args": [str(HERE.parent / "asking_server.py")]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"asking": asking}}))
    options = ["--mcp", str(tmp_path / "mcp.json"), "--approve", "ask"]
    if request.param == "stdio":
        return ["--", str(cellgate), "mcp", "serve", "--workspace", str(workspace), *options], "Standard I/O"
    server = serve(*options)
    words = ["--transport", "http", "--server-url", server.url, "--header", f"Authorization: Bearer {server.token}"]
    return words, "Streamable HTTP"


@pytest.fixture
def inspector(npm_dir: Path, tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """Its command line and environment: with a home of its own."""
    package = Path(os.environ["CG_CLIENTS_NPM"]) / "node_modules/@modelcontextprotocol/inspector"
    main = package / "clients/launcher/build/index.js"
    node = next(npm_dir.parent.glob("test-npm/node_modules/node-linux-*/bin/node"))
    (tmp_path / "home").mkdir()
    own = {"HOME": str(tmp_path / "home"), "MCP_INSPECTOR_SECRET_STORE": "memory", "MCP_AUTO_OPEN_ENABLED": "false"}
    return [str(node), str(main)], {**os.environ, **own, "CLIENT_PORT": free_port(), "MCP_SANDBOX_PORT": "0"}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("target", ["stdio", "http"], indirect=True)
def test_command_line(inspector: tuple[list[str], dict[str, str]], target: tuple[list[str], str], era: str) -> None:
    argv, env = inspector

    def ask(*words: str) -> dict[str, Any]:
        line = [*argv, "--cli", "--protocol-era", era, *words, *target[0]]
        p = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60)
        assert p.returncode == 0, p.stderr
        return json.loads(p.stdout)

    names = [t["name"] for t in ask("--method", "tools/list", "--strict")["tools"]]
    assert names[0] == "execute_ipython_cell" and "cell_result" in names
    call = ["--method", "tools/call", "--tool-name", "execute_ipython_cell", "--tool-arg"]
    result = ask(*call, "code=print(6 * 7)")
    text = result["content"][0]["text"].splitlines()
    assert text[-1] == "42"
    assert ["a new session" in t for t in text[:-1]] == ([True] if era == "modern" and "--" not in target[0] else [])
    assert result["structuredContent"]["stdout"] == "42\n"


def test_a_cell_of_minutes(inspector: tuple[list[str], dict[str, str]], serve: Callable[..., Server]) -> None:
    """By tasks: in the older era the command line gives up after 60 s, and the next one is another client."""
    argv, env = inspector
    server = serve()
    call = ["--method", "tools/call", "--tool-name", "execute_ipython_cell"]
    arguments = ["--tool-arg", f"code={CODE}", "--tool-arg", "timeout=600"]
    words = ["--transport", "http", "--server-url", server.url, "--header", f"Authorization: Bearer {server.token}"]
    line = [*argv, "--cli", "--protocol-era", "modern", *call, *arguments, *words]
    p = subprocess.run(line, env=env, capture_output=True, text=True, timeout=2 * SECONDS)
    assert p.returncode == 0, p.stderr
    assert json.loads(p.stdout)["structuredContent"]["stdout"] == WHOLE


@contextlib.contextmanager
def page(argv: list[str], env: dict[str, str], words: list[str]) -> Iterator[str]:
    """The address of its page."""
    line = [*argv, "--web", *words]
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True) as web:
        try:
            assert web.stdout
            found = None
            while not found:
                text = web.stdout.readline()
                assert text, "the Inspector has ended"
                found = re.search(r"http:\S+API_TOKEN=\S+", text)
            yield found[0]
        finally:
            os.killpg(web.pid, signal.SIGTERM)


@pytest.mark.parametrize("target", ["stdio", "http"], indirect=True)
def test_page(
    inspector: tuple[list[str], dict[str, str]], target: tuple[list[str], str], npm_dir: Path, tmp_path: Path
) -> None:
    argv, env = inspector
    words, transport = target
    playwright = npm_dir.parent / "test-npm/node_modules/playwright-core"
    with page(argv, env, words) as url:
        browse = [
            argv[0],
            HERE / "inspector_page.cjs",
            playwright,
            url,
            transport,
            CELL,
            "and 42",
            tmp_path / "page.png",
        ]
        p = subprocess.run(browse, capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, p.stdout + p.stderr
    assert "wants to call a tool" in p.stdout
