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


def windows(words: list[str], size: int) -> list[list[str]]:
    return [words[i : i + size] for i in range(len(words))]


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
    """By tasks."""
    argv, env = inspector
    server = serve()
    call = ["--method", "tools/call", "--tool-name", "execute_ipython_cell"]
    arguments = ["--tool-arg", f"code={CODE}", "--tool-arg", "timeout=600"]
    words = ["--transport", "http", "--server-url", server.url, "--header", f"Authorization: Bearer {server.token}"]
    line = [*argv, "--cli", "--protocol-era", "modern", *call, *arguments, *words]
    p = subprocess.run(line, env=env, capture_output=True, text=True, timeout=2 * SECONDS)
    assert p.returncode == 0, p.stderr
    assert json.loads(p.stdout)["structuredContent"]["stdout"] == WHOLE


def test_a_cell_of_minutes_in_the_older_era(
    inspector: tuple[list[str], dict[str, str]], serve: Callable[..., Server]
) -> None:
    """By mcpdo, which keeps its connection, and so its session, from one command to the next."""
    (node, main), env = inspector
    server = serve()
    command = [node, Path(main).parents[2] / "mcpdo/build/mcp-bin.js", "--format", "json", "--connection"]

    def run(*words: str) -> dict[str, Any]:
        p = subprocess.run([*command, server.url, *words], env=env, capture_output=True, text=True, timeout=60)
        assert p.returncode == 0, p.stdout + p.stderr
        return json.loads(p.stdout)

    run("connect", server.url, "--era", "legacy", "--header", f"Authorization: Bearer {server.token}")
    try:
        arguments = json.dumps({"code": CODE, "timeout": 600})
        result = run("tools/call", "execute_ipython_cell", "--tool-args-json", arguments)
        while result["structuredContent"]["status"] == "running":
            result = run("tools/call", "cell_result", "--tool-args-json", '{"execution_id": "cell-1"}')
        assert result["structuredContent"]["stdout"] == WHOLE
    finally:
        run("daemon", "stop")


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


@pytest.fixture
def browse(
    inspector: tuple[list[str], dict[str, str]], target: tuple[list[str], str], npm_dir: Path, tmp_path: Path
) -> Callable[..., str]:
    """Runs a cell on the page; returns what that prints, with the form."""
    argv, env = inspector
    words, transport = target
    playwright = npm_dir.parent / "test-npm/node_modules/playwright-core"

    def run(cell: str, *seconds: str) -> str:
        with page(argv, env, words) as url:
            command = [argv[0], HERE / "inspector_page.cjs", playwright, url, transport, cell, "and 42"]
            command += [tmp_path / "page.png", *seconds]
            p = subprocess.run(command, capture_output=True, text=True, timeout=120 + SECONDS)
        assert p.returncode == 0, p.stdout + p.stderr
        assert "wants to call a tool" in p.stdout
        return p.stdout

    return run


@pytest.mark.parametrize("target", ["stdio", "http"], indirect=True)
def test_page(browse: Callable[..., str]) -> None:
    browse(CELL)


@pytest.mark.parametrize("target", ["stdio", "http"], indirect=True)
def test_page_with_a_cell_of_minutes(browse: Callable[..., str]) -> None:
    """Its question comes when its call was answered long ago, and cell_result has all of its output."""
    line = f"exec({CODE + chr(10) + CELL!r})"  # the page's field for code has one line
    assert WHOLE.split() in windows(browse(line, str(SECONDS)).split(), SECONDS)
