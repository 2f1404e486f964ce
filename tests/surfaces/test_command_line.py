"""`cellgate mcp serve --compat`: how it starts, what it refuses, and its HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient, ConnectError
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

Run = Callable[..., "subprocess.CompletedProcess[str]"]
START = ["mcp", "serve", "--compat"]


def test_options(run_cellgate: Run, package: Path) -> None:
    p = run_cellgate(*START, "nothing")
    assert (p.returncode, p.stdout) == (2, "") and "invalid choice: 'nothing'" in p.stderr
    from cellgate.surfaces._options import RefusedOptionError, parse

    for options, why in (
        (["ipybox"], "`cellgate mcp serve --plain-results`"),
        (["context-forge", "--approve", "all"], "argument --approve: invalid choice: 'all'"),
        (["context-forge", "--approve", "ask"], "only --compat sandboxmcp"),
        (["context-forge", "--images", "x"], "unrecognized arguments: --images x: with --compat only"),
    ):
        with pytest.raises(RefusedOptionError, match=re.escape(why)):
            parse(["--compat", *options], ["context-forge", "sandboxmcp"])
    p = run_cellgate(*START, "context-forge", "--workspace", "missing")
    assert (p.returncode, p.stdout) == (2, "") and "No such file or directory" in p.stderr
    assert "did you mean --compat?" in run_cellgate("mcp", "serve", "--compatt").stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--http", "0.0.0.0:0", "--token-file", "t"], "nothing that others reach"),
        (["--http", "example.org:1", "--token-file", "t"], "nothing that others reach"),
        (["--http", "unix:t", "--token-file", "t"], "nothing that others reach"),
        (["--http", "127.0.0.1:0"], "--http needs --token-file"),
        (["--sandbox", "s.json"], "unrecognized arguments"),
    ],
)
def test_options_that_are_refused(package: Path, options: list[str], says: str) -> None:
    from cellgate.surfaces._options import RefusedOptionError, parse

    with pytest.raises(RefusedOptionError, match=says):
        parse(["--compat", "context-forge", *options], ["context-forge"])


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SANDBOX_TIMEOUT", "301", "a whole number from 1 to 300"),
        ("SANDBOX_TIMEOUT", "-1", "a whole number from 1 to 300"),
        ("SANDBOX_MAX_OUTPUT_SIZE", "0", "a whole number from 1"),
        ("SANDBOX_ENABLE_NETWORK", "maybe", "true or false"),
        ("SANDBOX_ENABLE_CONTAINER_MODE", "maybe", "true or false"),
        ("SANDBOX_DEFAULT_MEMORY_LIMIT", "1m", "memory_limit 1m is less than"),
        ("SANDBOX_CONTAINER_IMAGE", "mine:1", "--kernel-env names an environment"),
    ],
)
def test_variables_that_are_refused(package: Path, name: str, value: str, says: str) -> None:
    from cellgate.surfaces._options import RefusedOptionError
    from cellgate.surfaces.context_forge import Config

    with pytest.raises(RefusedOptionError, match=says) as e:
        Config.read({name: value})
    assert str(e.value).startswith(name)
    assert Config.read({}).enabled == ("basic",)


def test_without_the_package(run_cellgate: Run) -> None:
    """The error says what is missing, where, and how to install it."""
    p = run_cellgate(*START, "context-forge", env={"CELLGATE_PYTHON": "/usr/bin/python3"})
    assert p.returncode == 1 and "which /usr/bin/python3 does not have" in p.stderr
    assert 'pip install "cellgate[surfaces]"' in p.stderr
    p = run_cellgate(*START, "context-forge", env={"CELLGATE_PYTHON": "/nonexistent/python"})
    assert p.returncode != 0 and "/nonexistent/python" in p.stderr


def test_code_of_the_current_folder_is_not_imported(run_cellgate: Run, package: Path, tmp_path: Path) -> None:
    """Cells may write there, and the server runs outside of the sandbox."""
    for name in ("cellgate", "mcp", "json"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')")
    run_cellgate(*START, "context-forge", env={"PYTHONPATH": "."})
    assert not (tmp_path / "imported").exists()


def test_variables_are_read_with_the_option_only(run_cellgate: Run) -> None:
    p = run_cellgate("mcp", "serve", env={"SANDBOX_TIMEOUT": "nonsense"})
    assert (p.returncode, p.stderr) == (0, "")


def test_the_token_file(package: Path, tmp_path: Path) -> None:
    from cellgate.surfaces._options import RefusedOptionError, read_token

    token = tmp_path / "token"
    made = read_token(token)
    assert len(made) >= 32 and read_token(token) == made and token.stat().st_mode & 0o777 == 0o600
    token.chmod(0o644)
    with pytest.raises(RefusedOptionError, match="chmod 600"):
        read_token(token)
    token.chmod(0o600)
    token.write_text("short")
    with pytest.raises(RefusedOptionError, match="at least 32"):
        read_token(token)


def test_http(cellgate: Path, package: Path, build_dir: Path, tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    token = build_dir / f"token-{os.getpid()}"  # sandboxes have a /tmp of their own
    argv = [cellgate, *START, "context-forge", "--http", f"127.0.0.1:{port}", "--token-file", token]
    server = subprocess.Popen(argv, cwd=tmp_path, env=os.environ)
    url = f"http://127.0.0.1:{port}/mcp"

    async def talk() -> Any:
        while True:
            async with AsyncClient() as client:
                try:
                    refused = await client.post(url, json={})
                    break
                except ConnectError:  # it does not listen yet
                    await asyncio.sleep(0.05)
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"}
        async with AsyncClient() as client:
            foreign = await client.post(url, json={}, headers={**headers, "Host": "evil.example"})
        async with AsyncClient(headers=headers) as client:
            async with (
                streamable_http_client(url, http_client=client) as (read, write, *_),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                hidden = await session.call_tool("execute_code", {"code": f"print(open('{token}').read())\n"})
                return refused, foreign, hidden, await session.call_tool("execute_code", {"code": "6 * 7"})

    try:
        refused, foreign, hidden, answer = asyncio.run(asyncio.wait_for(talk(), 60))
    finally:
        server.terminate()
        server.wait(20)
        made, mode = token.read_text().strip(), token.stat().st_mode & 0o777
        token.unlink()
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert foreign.status_code in (403, 421)
    assert hidden.is_error and made not in hidden.content[0].text
    assert answer.structured_content["result"] == 42
    assert mode == 0o600


def test_ends_with_its_client(cellgate: Path, package: Path, tmp_path: Path) -> None:
    """At the end of standard input, with its sessions."""
    p = subprocess.run([cellgate, *START, "context-forge"], stdin=subprocess.DEVNULL, cwd=tmp_path, timeout=60)
    assert p.returncode == 0


@pytest.mark.parametrize("kind", ["pipes", "sockets", "socket"])
def test_messages_of_a_client_that_reads_late(cellgate: Path, package: Path, kind: str) -> None:
    """All come. Nothing else that the server and its children read and write concerns the client."""
    pairs = [socket.socketpair() for _ in range(2 if kind == "sockets" else 1)]
    ends: Any = [subprocess.PIPE] * 2 if kind == "pipes" else [pairs[0][1], pairs[-1][1]]
    command = [cellgate, *START, "sandboxmcp"]
    server = subprocess.Popen(command, stdin=ends[0], stdout=ends[1], stderr=subprocess.DEVNULL)
    for pair in pairs:
        pair[1].close()
    write: Any = server.stdin or pairs[0][0].makefile("wb")
    read: Any = server.stdout or pairs[-1][0].makefile("rb")

    def send(*messages: dict[str, Any]) -> None:
        write.write(b"".join(json.dumps({"jsonrpc": "2.0", **m}).encode() + b"\n" for m in messages))
        write.flush()

    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    send({"id": 0, "method": "initialize", "params": hello})
    assert json.loads(read.readline())["id"] == 0
    send({"method": "notifications/initialized"})
    for first in (1, 51):
        send(*({"id": i, "method": "tools/list"} for i in range(first, first + 50)))
        answers = [json.loads(read.readline()) for _ in range(50)]
        assert {a["id"] for a in answers} == {*range(first, first + 50)} and all("result" in a for a in answers)
    assert [os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in range(3)] == ["/dev/null"] * 3
    write.close()
    for pair in pairs:
        pair[0].shutdown(socket.SHUT_WR)
    assert server.wait(20) == 0


def test_the_folder_without_a_workspace(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cellgate
    from cellgate.surfaces.context_forge import empty_folder

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = empty_folder()
    assert empty_folder() == folder and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(cellgate.CellgateError, match="only you can write"):
        empty_folder()
    folder.rmdir()
    folder.symlink_to("/etc")
    with pytest.raises(cellgate.CellgateError, match="only you can write"):
        empty_folder()


def test_a_maximum_of_memory_below_the_default(run_cellgate: Run, package: Path) -> None:
    p = run_cellgate(*START, "context-forge", "--limit", "memoryMb=100", "--limit", "cores=1.5")
    assert p.returncode == 2 and "SANDBOX_DEFAULT_MEMORY_LIMIT (128m) is over the maximum of 100m" in p.stderr
