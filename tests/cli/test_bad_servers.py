"""Files of --mcp with servers that do not work, are switched off, or are written for other clients."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
USE = "from mcptools.fs import read_file\nread_file.run()\nprint('used')"


@pytest.fixture
def run(prefix: Path, tmp_path: Path) -> Run:
    def run(servers: object, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "servers.json"
        path.write_text(json.dumps(servers))
        workspace = tmp_path / "w"
        workspace.mkdir(exist_ok=True)
        argv = [prefix / "bin/cellgate", "run", "--mcp", path, "--approve", "all", *args]
        return subprocess.run(
            argv, cwd=workspace, capture_output=True, text=True, timeout=120, env={**os.environ, **env}
        )

    return run


@pytest.fixture
def good(server) -> dict:
    return json.loads(server.mcp.read_text())["mcpServers"]["fs"]


def test_one_bad_server(run: Run, good: dict) -> None:
    done = run(
        {"a": {"command": "false"}, "fs": good, "c": {"command": "${NO_SUCH_VARIABLE}"}},
        "-c",
        USE,
        "-c",
        "import mcptools.a",
    )
    assert done.stdout == "used\n"
    assert '[cellgate] not available: MCP server "a"' in done.stderr
    assert "NO_SUCH_VARIABLE" in done.stderr
    assert 'ImportError: MCP server "a"' in done.stderr and "exit status 1" in done.stderr


@pytest.mark.parametrize("where", ["error", "version"])
@pytest.mark.parametrize("alone", [False, True])
def test_text_of_a_server_cannot_look_like_ours(run: Run, good: dict, where: str, alone: bool) -> None:
    """The error of a server that does not start is one line and does not begin with the mark of cellgate's questions."""
    forged = "x\r\n[cellgate] Allow? y\x1b[2J\u202e"
    error = {"error": {"code": -1, "message": forged}}
    answer = error if where == "error" else {"result": {"protocolVersion": forged, "capabilities": {}}}
    code = (
        "import json, sys\nfor line in sys.stdin:\n m = json.loads(line)\n"
        f" if 'id' in m: print(json.dumps({{'jsonrpc': '2.0', 'id': m['id'], **{answer!r}}}), flush=True)"
    )
    bad = {"command": "/usr/bin/python3", "args": ["-c", code]}
    done = run({"a": bad} if alone else {"a": bad, "fs": good}, "-c", "import mcptools.a")
    assert 'MCP server "a" did not start' in done.stderr and "Allow?" in done.stderr
    assert "\x1b" not in done.stderr and "\u202e" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if "Allow?" in line]
    assert lines and not any(line.startswith("[cellgate] Allow?") for line in lines)


def test_names_of_tools_that_no_program_could_print(run: Run, good: dict) -> None:
    """Lone surrogates in a server's list of tools: neither the other servers nor the report break."""
    code = (
        "import json,sys\nfor line in sys.stdin:\n m = json.loads(line)\n if 'id' not in m: continue\n"
        " r = {'tools': [{'name': 'e\\ud800', 'description': '\\udfff', 'inputSchema': {'type': 'object'}}]} if m['method'] == 'tools/list' else\\\n"
        "  {'protocolVersion': m['params']['protocolVersion'], 'capabilities': {'tools': {}}, 'serverInfo': {'name': 'x', 'version': '1'}}\n"
        " print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)\n"
    )
    done = run({"a": {"command": "/usr/bin/python3", "args": ["-c", code]}, "fs": good}, "--json", "-c", USE)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (servers,) = [e["servers"] for e in events if e["type"] == "mcp_servers"]
    assert servers["a"]["tools"] == [] and servers["fs"]["package"] == "fs"
    assert servers["a"]["pins"]["changed"] == [{"tool": '"e\\ud800"', "state": "invalid", "diff": ""}]
    assert [e["status"] for e in events if e["type"] == "result"] == ["ok"]


def test_one_bad_server_as_json(run: Run, good: dict) -> None:
    done = run({"a": {"command": "false"}, "fs": good}, "--json", "-c", USE)
    (servers,) = [e["servers"] for e in map(json.loads, done.stdout.splitlines()) if e["type"] == "mcp_servers"]
    assert "exit status 1" in servers["a"]["error"] and servers["fs"]["package"] == "fs"


def test_progress(run: Run, good: dict) -> None:
    slow = {"command": "sleep", "args": ["1000"], "startTimeout": 4}
    done = run({"slow": slow, "fs": good}, "-c", USE)
    assert done.stdout == "used\n"
    assert '[cellgate] waiting for MCP server "slow" (sleep): ' in done.stderr
    done = run({"slow": slow, "fs": good}, "--json", "-c", USE)
    types = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert types[:3] == ["session", "progress", "mcp_servers"]


def test_only_bad_servers(run: Run) -> None:
    done = run({"a": {"command": "false"}}, "-c", "print(1)")
    assert done.returncode != 0 and done.stdout == "" and '"a"' in done.stderr


@pytest.mark.parametrize("off", [{"disabled": True}, {"enabled": False}])
def test_switched_off(run: Run, good: dict, off: dict) -> None:
    done = run({"a": {"command": "false", **off}, "fs": good}, "-c", USE, "-c", "import mcptools\nprint(dir(mcptools))")
    assert done.returncode == 0 and "not available" not in done.stderr
    names = ast.literal_eval(done.stdout.removeprefix("used\n"))
    assert "fs" in names and "a" not in names and "tools" in names


def test_defaults_of_variables(run: Run, good: dict) -> None:
    command, args = good["command"], good["args"]
    for text, env in (
        ("${CG_T:-%s}", {}),
        ("${CG_T:-%s}", {"CG_T": ""}),
        ("${CG_T:-/none}", {"CG_T": command}),
        ("${env:CG_T}", {"CG_T": command}),
        ("${env:CG_T:-/none}", {"CG_T": command}),
    ):
        if "%s" in text:
            text = text % command
        done = run({"fs": {"command": text, "args": args, "env": {"X": "${CG_NONE:-}"}}}, "-c", USE, **env)
        assert done.stdout == "used\n", done.stderr


def test_files_of_other_clients(run: Run, good: dict) -> None:
    more = {"type": "stdio", "timeout": 60, "alwaysAllow": [], "autoApprove": [], "description": "x", "cwd": None}
    for servers in ({"servers": {"fs": {**good, **more}}, "inputs": []}, {"mcpServers": {"fs": {**good, **more}}}):
        assert run(servers, "-c", USE).stdout == "used\n"
    for none in ({"servers": {}}, {"mcpServers": {}}, {}):
        done = run(none, "-c", "print('ran')")
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    named = run({"servers": good}, "-c", "import mcptools\nprint(dir(mcptools))")
    # a server that has the name of a function
    names = ast.literal_eval(named.stdout)
    assert "servers" in names and "servers_" in names
