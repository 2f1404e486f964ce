"""OpenAI Agents: an agent with a scripted model that runs Python and shell commands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, Runner, ShellTool, Usage
from agents.tool import ShellActionRequest, ShellCallData, ShellCommandRequest
from integrations.conftest import DANGER, SHOW
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Script(Model):
    """Calls run_python with each piece, then says the end."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)

    async def get_response(self, *args: Any, **more: Any) -> ModelResponse:
        item: Any
        if self.pieces:
            arguments = json.dumps({"code": self.pieces.pop(0)})
            name = f"call{len(self.pieces)}"
            item = ResponseFunctionToolCall(arguments=arguments, call_id=name, name="run_python", type="function_call")
        else:
            text = ResponseOutputText(annotations=[], text="the end", type="output_text")
            item = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")


def test_python(client: Any, tmp_path: Path) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import python_tool

    async def main() -> None:
        async with cellgate.aio.Session(tmp_path, client=client) as session:
            model = Script("x = 6", "print('out')\nx", SHOW, "while True: pass", "x + 1")
            agent = Agent(name="agent", model=model, tools=[python_tool(session, timeout=1)])
            result = await Runner.run(agent, "go")
            outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
            assert outputs[1] == "out\n6\n" and outputs[4] == "7\n" and outputs[3].startswith("timeout: ")
            assert [o.type for o in outputs[2]] == ["text", "image"] and result.final_output == "the end"

    asyncio.run(main())


@pytest.mark.parametrize("decision", [True, False, None])
def test_approval_of_mcp_tools(client: Any, tmp_path: Path, servers: Any, mark: Path, decision: bool | None) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import python_tool

    workspace = tmp_path / "workspace"
    workspace.mkdir()

    async def main() -> None:
        async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as session:
            approve = None if decision is None else lambda _: decision
            agent = Agent(name="agent", model=Script(DANGER), tools=[python_tool(session, approve=approve)])
            await Runner.run(agent, "go")
            assert mark.exists() is bool(decision)

    asyncio.run(main())


@pytest.mark.parametrize("decision", [True, False])
def test_approval_of_code(client: Any, tmp_path: Path, decision: bool) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import python_tool

    async def main() -> None:
        async with cellgate.aio.Session(tmp_path, client=client) as session:
            tool = python_tool(session, needs_approval=True)
            agent = Agent(name="agent", model=Script("open('ran', 'w').close()"), tools=[tool])
            result = await Runner.run(agent, "go")
            (question,) = result.interruptions
            state = result.to_state()
            state.approve(question) if decision else state.reject(question)
            await Runner.run(agent, state)
            assert (tmp_path / "ran").exists() is decision

    asyncio.run(main())


def test_shell(client: Any, tmp_path: Path) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import shell_executor

    async def main() -> None:
        async with cellgate.aio.Session(tmp_path, client=client) as session:
            tool = ShellTool(executor=shell_executor(session), needs_approval=True)

            async def run(*commands: str, timeout_ms: int | None = None) -> Any:
                action = ShellActionRequest(list(commands), timeout_ms)
                request = ShellCommandRequest(None, ShellCallData("1", action))  # type: ignore[arg-type]
                return await tool.executor(request)  # type: ignore[misc]

            done = (await run("echo out; echo err >&2; exit 3", "cat /etc/shadow")).output
            assert (done[0].stdout, done[0].stderr, done[0].exit_code) == ("out\n", "err\n", 3)
            assert done[1].exit_code == 1
            late = (await run("sleep 60", "never", timeout_ms=500)).output
            assert [o.status for o in late] == ["timeout"]

    asyncio.run(main())
