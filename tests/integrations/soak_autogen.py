"""AutoGen: its code executor, and an agent with a scripted model's code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.agents._code_executor_agent import ApprovalRequest, ApprovalResponse
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from integrations.conftest import DANGER, HOSTILE, SHOW, accepted, check_harmless, reach

pytestmark = pytest.mark.anyio


async def test_blocks(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.autogen import CellgateCodeExecutor

    async with CellgateCodeExecutor(tmp_path, client=client) as executor:

        async def run(*blocks: tuple[str, str]) -> Any:
            code = [CodeBlock(code=c, language=language) for language, c in blocks]
            return await executor.execute_code_blocks(code, CancellationToken())

        both = await run(("python", "x = 6\nprint('out')\nx"), ("bash", "echo shell; exit 3"), ("python", "never"))
        assert (both.exit_code, both.output) == (3, "out\n6\nshell\n")
        failed = await run(("python", "1 / 0"))
        assert failed.exit_code == 1 and "ZeroDivisionError" in failed.output
        assert (await run(("python", f"{SHOW}\nx"))).images[0].startswith(b"\x89PNG")
        with pytest.raises(ValueError, match="not 'perl'"):
            await run(("perl", "1"))
        token = CancellationToken()
        work = asyncio.ensure_future(
            executor.execute_code_blocks([CodeBlock(code="while True: pass", language="python")], token)
        )
        await asyncio.sleep(0.5)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert (await run(("python", "x"))).output == "6\n"
        await executor.session.files.write("up.txt", b"up")
        assert (await run(("sh", "cat up.txt; echo down > down.txt"))).output == "up"
        assert await executor.session.files.read("down.txt") == b"down\n"
        await executor.restart()
        assert "NameError" in (await run(("python", "x"))).output
    with pytest.raises(RuntimeError, match="started"):
        await run(("python", "1"))


@pytest.mark.parametrize("decision", [True, False, None])
async def test_approval_and_time_limit(
    client: Any, tmp_path: Path, servers: Any, mark: Path, decision: bool | None
) -> None:
    from cellgate.integrations.autogen import CellgateCodeExecutor

    workspace = tmp_path / "workspace"
    workspace.mkdir()

    approve = None if decision is None else lambda _: decision
    async with CellgateCodeExecutor(
        workspace, client=client, mcp_servers=servers, approve=approve, timeout=2
    ) as executor:
        block = CodeBlock(code=DANGER, language="python")
        result = await executor.execute_code_blocks([block], CancellationToken())
        assert mark.exists() is bool(decision) and (result.exit_code == 0) is bool(decision)
        for code, language in (("while True: pass", "python"), ("sleep 60", "sh")):
            with pytest.raises(TimeoutError):
                await executor.execute_code_blocks([CodeBlock(code=code, language=language)], CancellationToken())


@pytest.mark.parametrize("decision", [True, False])
async def test_agent_with_approval_of_code(client: Any, tmp_path: Path, decision: bool) -> None:
    """The framework asks about blocks by `approval_func`."""
    from cellgate.integrations.autogen import CellgateCodeExecutor

    def ask(request: ApprovalRequest) -> ApprovalResponse:
        assert "6 * 7" in request.code
        return ApprovalResponse(approved=decision, reason="because")

    async with CellgateCodeExecutor(tmp_path, client=client) as executor:
        agent = CodeExecutorAgent("runner", code_executor=executor, approval_func=ask)
        code = TextMessage(content="```python\nopen('ran', 'w').close()\n6 * 7\n```", source="model")
        text = (await agent.on_messages([code], CancellationToken())).chat_message.to_text()
        assert ("42" in text) is decision and (tmp_path / "ran").exists() is decision


async def test_harmless_output_and_no_connections(client: Any, tmp_path: Path, listener: Any) -> None:
    from cellgate.integrations.autogen import CellgateCodeExecutor

    async with CellgateCodeExecutor(tmp_path, client=client) as executor:

        async def run(code: str, language: str = "python") -> Any:
            return await executor.execute_code_blocks([CodeBlock(code=code, language=language)], CancellationToken())

        check_harmless((await run(HOSTILE)).output)
        shell = (await run("printf 'a\\033]0;title'; yes | head -c 3000000", "sh")).output
        assert "\x1b" not in shell and "thrown away" in shell
        assert (await run(reach(listener))).exit_code == 1 and not accepted(listener)
