"""pydantic-ai: its own tests of workspaces, and an agent with a scripted model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from integrations.conftest import PNG, accepted, reach
from pydantic_ai import Agent, BinaryContent, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.workspaces import Workspace, WorkspaceTimeoutError
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

pytestmark = pytest.mark.anyio


class TestWorkspace(WorkspaceBackendSuite):
    @pytest.fixture
    def make(self, client: Any, tmp_path: Path) -> Callable[..., Any]:
        from cellgate.integrations.pydantic_ai import CellgateWorkspace

        def make(**options: Any) -> Any:
            return CellgateWorkspace(tmp_path, client=client, **options)

        return make

    @pytest.fixture
    async def backend(self, anyio_backend: str, make: Callable[..., Any]) -> AsyncIterator[Any]:
        backend = make()
        yield backend
        if backend.ref:
            await backend.delete(backend.ref)

    @pytest.fixture
    def fresh_backend(self, make: Callable[..., Any]) -> Callable[[], Any]:
        return make

    @pytest.fixture
    def attach_backend(self, make: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda ref: make(ref=ref)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[Any], Awaitable[None]]:
        async def destroy(backend: Any) -> None:
            await backend.delete(backend.ref)

        return destroy


@pytest.mark.skipif(os.geteuid() != 0, reason="the others run as an ordinary user already")
def test_permissions_as_an_ordinary_user() -> None:
    """The test of the suite that is skipped for root, whom permissions do not bind."""
    with tempfile.TemporaryDirectory(prefix="cellgate-test-") as folder:
        os.chown(folder, USER, USER)
        command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--"]
        command += [sys.executable, "-m", "pytest", "-q", "-c", "pytest.ini", "-p", "no:cacheprovider"]
        command += [f"--basetemp={folder}/pytest", f"{__file__}::TestWorkspace", "-k", "permission_denied"]
        env = {**os.environ, "HOME": folder, "TMPDIR": folder, "XDG_RUNTIME_DIR": folder}
        cwd = Path(__file__).parents[1]
        done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
        assert "1 passed" in done.stdout, done.stdout + done.stderr


USER = 61235


async def run(ctx: RunContext[Any], command: str) -> str:
    """Runs a command."""
    try:
        done = await ctx.workspace.run(command, shell=True, timeout=1)
    except WorkspaceTimeoutError:
        return "timeout"
    return f"{done.stdout}{done.stderr}[{done.exit_code}]"


async def look(ctx: RunContext[Any], path: str) -> BinaryContent:
    """Shows an image."""
    folder = await ctx.workspace.working_dir()
    return BinaryContent(await ctx.workspace.read_bytes(f"{folder}/{path}"), media_type="image/png")


def scripted(*calls: tuple[str, dict[str, str]]) -> FunctionModel:
    left = list(calls)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart(*left.pop(0)) if left else TextPart("the end")])

    return FunctionModel(answer)


def answers(result: Any) -> list[Any]:
    return [p.content for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]


async def test_commands_state_image_time_limit_and_files(client: Any, tmp_path: Path, listener: Any) -> None:
    """A workspace has no cells: its state is files, and its images are files that tools read."""
    import base64

    from cellgate.integrations.pydantic_ai import CellgateWorkspace

    backend = CellgateWorkspace(tmp_path, client=client)
    workspace = backend.untrusted()
    folder = await backend.working_dir()
    await workspace.write_bytes(f"{folder}/up.txt", b"6")
    await workspace.write_bytes(f"{folder}/image.png", base64.b64decode(PNG))
    await workspace.write_bytes(f"{folder}/n.py", reach(listener).encode())
    commands = (
        "python3 -c 'print(int(open(\"up.txt\").read()) * 7)' > state",
        "cat state; exit 3",
        "sleep 60",
        "python3 n.py",
    )
    calls = [*(("run", {"command": c}) for c in commands), ("look", {"path": "image.png"})]
    agent = Agent(scripted(*calls), tools=[run, look])
    result = await agent.run("go", workspace=backend.untrusted())
    assert answers(result)[1:3] == ["42\n[3]", "timeout"] and "Error" in answers(result)[3]
    assert not accepted(listener)
    assert answers(result)[4].data.startswith(b"\x89PNG")
    assert await workspace.read_bytes(f"{folder}/state") == b"42\n"
    (tmp_path / "link").symlink_to("/etc/shadow")
    with pytest.raises(OSError, match="."):
        await workspace.read_bytes(f"{folder}/link")
    (tmp_path / "loop").symlink_to("loop")
    assert await backend.realpath(f"{folder}/loop/x") == f"{folder}/loop/x"
    assert await workspace.authority_of(f"{folder}/AGENTS.md") == "none"
    assert await Workspace(backend).authority_of(f"{folder}/AGENTS.md") == "operator"
    assert backend.ref
    await backend.delete(backend.ref)


@pytest.mark.parametrize("decision", [True, False])
async def test_approval(client: Any, tmp_path: Path, decision: bool) -> None:
    from cellgate.integrations.pydantic_ai import CellgateWorkspace

    backend = CellgateWorkspace(tmp_path, client=client)
    tool = Tool(run, requires_approval=True)
    model = scripted(("run", {"command": "touch ran"}))
    agent = Agent(model, tools=[tool], output_type=[str, DeferredToolRequests])
    first = await agent.run("go", workspace=backend.untrusted())
    assert isinstance(first.output, DeferredToolRequests) and not (tmp_path / "ran").exists()
    decided = DeferredToolResults(approvals={c.tool_call_id: decision for c in first.output.approvals})
    await agent.run(message_history=first.all_messages(), deferred_tool_results=decided, workspace=backend.untrusted())
    assert (tmp_path / "ran").exists() is decision
    if backend.ref:
        await backend.delete(backend.ref)


async def test_cancelled(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.pydantic_ai import CellgateWorkspace

    backend = CellgateWorkspace(tmp_path, client=client)
    agent = Agent(scripted(("run", {"command": "touch started; sleep 60"})), tools=[run])
    await backend.working_dir()
    work = asyncio.ensure_future(agent.run("go", workspace=backend))
    while not (tmp_path / "started").exists():
        await asyncio.sleep(0.02)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await backend.run(["pgrep", "-x", "sleep"])).exit_code == 1
    assert backend.ref
    await backend.delete(backend.ref)
