"""The official SDKs' clients: a session from its begin to its end, with a question that is declined and accepted."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp_http.helpers import Server
from processes import eventually
from rounds import peer, with_peers

CODE = "from mcptools.fake import leave_mark\nprint(leave_mark.run(text='x'))"
HERE = Path(__file__).parent


@pytest.mark.parametrize("client", with_peers(["Python 2.x", "Python 1.x", "TypeScript 1.x"], "Python 2.x"))
def test_sdk(
    serve: Callable[..., Server],
    mcp_file: Path,
    mark: Path,
    npm_dir: Path,
    test_python: str,
    client: str,
    slowness: float,
) -> None:
    server = serve("--mcp", mcp_file, "--approve", "ask")
    sdk1 = npm_dir.parent / "servers-sdk1-env/bin/python"
    argv = {
        "Python 2.x": [test_python, str(HERE / "sdk_client.py")],
        "Python 1.x": [str(sdk1), str(HERE / "sdk_client.py")],
        "TypeScript 1.x": [
            "node",
            str(HERE / "sdk_client.mjs"),
            str(npm_dir / "node_modules/@modelcontextprotocol/sdk"),
        ],
    }[client]
    p = subprocess.run([*argv, server.url, server.token, CODE], capture_output=True, text=True, timeout=60 * slowness)
    assert p.returncode == 0, p.stderr
    report = json.loads(p.stdout)
    assert "execute_ipython_cell" in report["tools"]
    assert report["state"] == [[False, "(no output)"], [False, "42"]]
    (declined, why), (accepted, text) = report["asked"]
    assert declined and "rejected" in why
    assert not accepted and text == "leave_mark: x" and mark.read_text() == "x\n"
    eventually(lambda: server.sessions() == 0)  # the client has ended it


@peer
@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_typescript_sdk_2(
    serve: Callable[..., Server], mcp_file: Path, mark: Path, npm_dir: Path, mode: str, version: str, slowness: float
) -> None:
    packages = npm_dir.parent / "test-npm/node_modules"
    package = packages / "@modelcontextprotocol/client"
    node = next((p for p in packages.glob("node-linux-*/bin/node")), None)
    if node is None or not package.exists():
        pytest.skip("the TypeScript SDK 2.x and its Node are not installed: scripts/setup gets them from npm")
    server = serve("--mcp", mcp_file, "--approve", "ask")
    argv = [node, HERE / "sdk2_client.mjs", package, server.url, server.token, CODE, mode]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=60 * slowness)
    assert p.returncode == 0, p.stderr
    report = json.loads(p.stdout)
    assert report["version"] == version
    (_, first), (failed, second) = report["state"]
    assert first.startswith("[cellgate: a new session") == (mode == "auto")
    assert not failed and second == "42"
    (declined, why), (accepted, text) = report["asked"]
    assert declined and "rejected" in why
    assert not accepted and text == "leave_mark: x" and mark.read_text() == "x\n"
