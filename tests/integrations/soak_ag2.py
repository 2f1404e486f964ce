"""AG2: an agent with a scripted model that runs Python and shell commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from ag2 import Agent
from ag2.events import ToolCallEvent, ToolResultEvent
from ag2.middleware import approval_required
from ag2.testing import TestConfig as Script
from ag2.tools import SandboxCodeTool, SandboxShellTool
from integrations.conftest import DANGER, ENDLESS, HOSTILE, SHOW, check_harmless, started

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(client: Any, tmp_path: Path, **options: Any) -> AsyncIterator[Any]:
    import cellgate.aio

    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    async with cellgate.aio.Session(workspace, client=client, **options) as session:
        yield session


async def ask(tool: Any, *arguments: dict[str, str], **more: Any) -> list[str]:
    """The answers of the tool to calls of an agent's model."""
    calls = [ToolCallEvent(tool.name, arguments=json.dumps(a)) for a in arguments]
    reply = await Agent("agent", config=Script(*calls, "the end"), tools=[tool], **more).ask("go")
    assert reply.body == "the end"
    events = [e for e in await reply.history.get_events() if isinstance(e, ToolResultEvent)]
    return ["".join(p.content for p in e.result.parts) for e in events]


def python(*pieces: str) -> list[dict[str, str]]:
    return [{"code": code, "language": "python"} for code in pieces]


async def test_cells_state_image_and_time_limit(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.ag2 import CellgateCode

    async with opened(client, tmp_path) as session:
        code = CellgateCode(session, timeout=1)
        tool = SandboxCodeTool(code)
        answers = await ask(tool, *python("x = 6", "print('out')\nx", "1 / 0", "while True: pass", "x + 1", SHOW))
        assert answers[1] == "out\n6" and answers[4] == "7"
        assert "ZeroDivisionError" in answers[2] and "[exit code: 1]" in answers[2]
        assert "timeout" in answers[3] and "[exit code: 124]" in answers[3]
        assert code.images[0].startswith(b"\x89PNG") and "Image" not in answers[5]
        bash = [{"code": c, "language": "bash"} for c in ("echo $((6 * 7)); exit 3", "sleep 60")]
        answers = await ask(tool, *bash, {"code": "1", "language": "javascript"})
        assert answers[0] == "42\n[exit code: 3]" and "[exit code: 124]" in answers[1] and "not 'java" in answers[2]
        (answer,) = await ask(tool, *python(HOSTILE))
        check_harmless(answer)


@pytest.mark.parametrize("decision", [True, False, None])
async def test_approval_of_mcp_tools(
    client: Any, tmp_path: Path, servers: Any, mark: Path, decision: bool | None
) -> None:
    from cellgate.integrations.ag2 import CellgateCode

    async with opened(client, tmp_path, mcp_servers=servers) as session:
        code = CellgateCode(session, approve=None if decision is None else lambda _: decision)
        (answer,) = await ask(SandboxCodeTool(code), *python(DANGER))
        assert mark.exists() is bool(decision) and ("RejectedError" in answer) is not bool(decision)


@pytest.mark.parametrize("decision", ["y", "n"])
async def test_approval_of_code(client: Any, tmp_path: Path, decision: str) -> None:
    from cellgate.integrations.ag2 import CellgateCode, CellgateShell

    async with opened(client, tmp_path) as session:
        code = SandboxCodeTool(CellgateCode(session), middleware=[approval_required()])
        await ask(code, *python("open('cell', 'w').close()"), hitl_hook=lambda: decision)
        shell = SandboxShellTool(CellgateShell(session), middleware=[approval_required()])
        await ask(shell, {"command": "touch command"}, hitl_hook=lambda: decision)
        ran = {f["name"] for f in await session.files.list()}
        assert ({"cell", "command"} <= ran) is (decision == "y") and bool(ran & {"cell", "command"}) is (
            decision == "y"
        )


async def test_cancelled(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.ag2 import CellgateCode, CellgateShell

    async with opened(client, tmp_path) as session:
        tools = SandboxCodeTool(CellgateCode(session)), SandboxShellTool(CellgateShell(session))
        (answer,) = await ask(tools[0], *python("x = 6"))
        calls = (python(ENDLESS)[0], {"command": "touch started; sleep 60"})
        for tool, arguments in zip(tools, calls, strict=True):
            work = asyncio.ensure_future(ask(tool, arguments))
            await started(session)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        assert await ask(tools[0], *python("x")) == ["6"]


async def test_shell_and_files(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.ag2 import CellgateShell

    async with opened(client, tmp_path) as session:
        sandbox = CellgateShell(session, timeout=1)
        await sandbox.put_file(PurePosixPath("folder/up.txt"), b"up")
        answers = await ask(
            SandboxShellTool(sandbox),
            {"command": "cat folder/up.txt; echo down > down.txt"},
            {"command": "cat /etc/shadow"},
            {"command": "sleep 60"},
        )
        assert answers[0] == "up" and "[exit code: 1]" in answers[1] and "[exit code: 124]" in answers[2]
        assert await session.files.read("down.txt") == b"down\n"
        limited = SandboxShellTool(sandbox, allowed=["echo"])
        assert await ask(limited, {"command": "echo $HOME"}, {"command": "cat down.txt"}) != ["", "down"]
        # Links of cells lead nowhere but in the sandbox, whatever their paths are on the host.
        outside = tmp_path / "outside"
        outside.mkdir()
        await session.exec(f"ln -s {outside} link")
        with pytest.raises(Exception, match="."):
            await sandbox.put_file(PurePosixPath("link/x"), b"x")
        assert not list(outside.iterdir()) and sandbox.host_workdir is None
        for path in ("../x", "/x"):
            with pytest.raises(ValueError, match="working directory"):
                await sandbox.put_file(PurePosixPath(path), b"x")
        await sandbox.remove_file(PurePosixPath("folder/up.txt"))
        await sandbox.remove_file(PurePosixPath("folder/up.txt"))
        assert not await session.files.exists("folder/up.txt")
