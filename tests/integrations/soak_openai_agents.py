"""OpenAI Agents: an agent with a scripted model that runs Python and shell commands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, Runner, ShellTool, Usage
from agents.tool import ShellActionRequest, ShellCallData, ShellCommandRequest
from integrations.conftest import DANGER, ENDLESS, HOSTILE, SHOW, accepted, check_harmless, reach, started
from openai.types.responses import (
    ResponseFunctionShellToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from openai.types.responses.response_function_shell_tool_call import Action

pytestmark = pytest.mark.anyio


class Script(Model):
    """Calls run_python with each piece, or the shell tool, then says the end."""

    def __init__(self, *pieces: str, shell: bool = False) -> None:
        self.pieces = list(pieces)
        self.shell = shell

    async def get_response(self, *args: Any, **more: Any) -> ModelResponse:
        item: Any
        if self.pieces and self.shell:
            name = f"call{len(self.pieces)}"
            action = Action(commands=[self.pieces.pop(0)], timeout_ms=20000)
            item = ResponseFunctionShellToolCall(
                id=name, call_id=name, action=action, status="completed", type="shell_call"
            )
        elif self.pieces:
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


async def test_python(client: Any, tmp_path: Path) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import python_tool

    async with cellgate.aio.Session(tmp_path, client=client) as session:
        model = Script("x = 6", "print('out')\nx", SHOW, "while True: pass", "x + 1")
        agent = Agent(name="agent", model=model, tools=[python_tool(session, timeout=1)])
        result = await Runner.run(agent, "go")
        outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
        assert outputs[1] == "out\n6\n" and outputs[4] == "7\n" and outputs[3].startswith("timeout: ")
        assert [o.type for o in outputs[2]] == ["text", "image"] and result.final_output == "the end"


@pytest.mark.parametrize("decision", [True, False, None])
async def test_approval_of_mcp_tools(
    client: Any, tmp_path: Path, servers: Any, mark: Path, decision: bool | None
) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import python_tool

    workspace = tmp_path / "workspace"
    workspace.mkdir()

    async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as session:
        approve = None if decision is None else lambda _: decision
        agent = Agent(name="agent", model=Script(DANGER), tools=[python_tool(session, approve=approve)])
        await Runner.run(agent, "go")
        assert mark.exists() is bool(decision)


@pytest.mark.parametrize("decision", [True, False])
async def test_approval_of_code(client: Any, tmp_path: Path, decision: bool) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import python_tool

    async with cellgate.aio.Session(tmp_path, client=client) as session:
        tool = python_tool(session, needs_approval=True)
        agent = Agent(name="agent", model=Script("open('ran', 'w').close()"), tools=[tool])
        result = await Runner.run(agent, "go")
        (question,) = result.interruptions
        state = result.to_state()
        state.approve(question) if decision else state.reject(question)
        await Runner.run(agent, state)
        assert (tmp_path / "ran").exists() is decision


async def test_shell(client: Any, tmp_path: Path) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import shell_executor

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


@pytest.mark.parametrize("decision", [True, False])
async def test_approval_of_commands(client: Any, tmp_path: Path, decision: bool) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import shell_executor

    async with cellgate.aio.Session(tmp_path, client=client) as session:
        tool = ShellTool(executor=shell_executor(session), needs_approval=True)
        agent = Agent(name="agent", model=Script("touch ran", shell=True), tools=[tool])
        result = await Runner.run(agent, "go")
        (question,) = result.interruptions
        state = result.to_state()
        state.approve(question) if decision else state.reject(question)
        await Runner.run(agent, state)
        assert (tmp_path / "ran").exists() is decision


@pytest.mark.parametrize("shell", [False, True])
async def test_cancelled_and_files(client: Any, tmp_path: Path, shell: bool) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import python_tool, shell_executor

    async with cellgate.aio.Session(tmp_path, client=client) as session:
        tools = [ShellTool(executor=shell_executor(session)) if shell else python_tool(session)]

        async def ask(code: str) -> str:
            agent = Agent(name="agent", model=Script(code, shell=shell), tools=tools)
            result = await Runner.run(agent, "go")
            return next(str(i.output) for i in result.new_items if i.type == "tool_call_output_item")

        await session.files.write("up.txt", b"up")
        copy = (
            "cat up.txt; echo down > down.txt" if shell else "print(open('up.txt').read(), file=open('down.txt', 'w'))"
        )
        await ask(copy)
        assert await session.files.read("down.txt") == (b"down\n" if shell else b"up\n")
        work = asyncio.ensure_future(ask("touch started; sleep 60; touch never" if shell else ENDLESS))
        await started(session)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert "42" in await ask("echo $((6 * 7)); pgrep sleep" if shell else "6 * 7")


async def test_harmless_output_and_no_connections(client: Any, tmp_path: Path, listener: Any) -> None:
    import cellgate.aio
    from cellgate.integrations.openai_agents import python_tool

    async with cellgate.aio.Session(tmp_path, client=client) as session:
        agent = Agent(name="agent", model=Script(HOSTILE, reach(listener)), tools=[python_tool(session)])
        result = await Runner.run(agent, "go")
        outputs = [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]
        check_harmless(outputs[0])
        assert "Error" in outputs[1] and not accepted(listener)
