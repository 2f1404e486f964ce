"""LangChain: an agent with a scripted model that runs Python."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from integrations.conftest import DANGER, ENDLESS, HOSTILE, SHOW, accepted, check_harmless, reach, started
from integrations.soak_deepagents import Model
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

pytestmark = pytest.mark.anyio


def run(tool: Any, *pieces: str) -> list[ToolMessage]:
    """The answers of the tool to pieces of code that an agent's model writes. A checkpoint keeps the same."""
    calls = [
        AIMessage("", tool_calls=[{"name": tool.name, "args": {"code": code}, "id": str(i)}])
        for i, code in enumerate(pieces)
    ]
    model, config = Model(messages=iter([*calls, AIMessage("the end")])), {"configurable": {"thread_id": "1"}}
    agent = create_agent(model, tools=[tool], checkpointer=InMemorySaver())
    messages = agent.invoke({"messages": [("user", "go")]}, config)["messages"]
    assert agent.get_state(config).values["messages"] == messages
    return [m for m in messages if isinstance(m, ToolMessage)]


def test_cells_state_images_and_time_limit(session: Any) -> None:
    from cellgate.integrations.langchain import python_tool

    tool = python_tool(session, timeout=1)
    answers = run(tool, "x = 6", "print('out')\nx", "1 / 0", SHOW, "while True: pass", "x + 1")
    assert answers[1].content == "out\n6\n" and answers[1].artifact["value"] == "6"
    assert "ZeroDivisionError" in answers[2].content
    assert [block["type"] for block in answers[3].content] == ["text", "image"]
    assert answers[4].content.startswith("timeout: ") and answers[5].content == "7\n"


@pytest.mark.parametrize("decision", [True, False, None])
def test_approval(session: Any, servers: Any, mark: Path, decision: bool | None) -> None:
    from cellgate.integrations.langchain import python_tool

    session.add_mcp_servers(servers)
    tool = python_tool(session, approve=None if decision is None else lambda _: decision)
    (answer,) = run(tool, DANGER)
    assert mark.exists() is bool(decision) and ("RejectedError" in answer.content) is not bool(decision)


async def test_cancelled_and_files(client: Any, tmp_path: Path) -> None:
    import cellgate.aio
    from cellgate.integrations.langchain import python_tool

    async with cellgate.aio.Session(tmp_path, client=client) as session:
        tool = python_tool(session)

        async def ask(code: str) -> str:
            call = AIMessage("", tool_calls=[{"name": tool.name, "args": {"code": code}, "id": "1"}])
            agent = create_agent(Model(messages=iter([call, AIMessage("the end")])), tools=[tool])
            messages = (await agent.ainvoke({"messages": [("user", "go")]}))["messages"]
            return next(str(m.content) for m in messages if isinstance(m, ToolMessage))

        await session.files.write("up.txt", b"6")
        assert await ask("x = int(open('up.txt').read()); open('down.txt', 'w').write('down'); x") == "6\n"
        assert await session.files.read("down.txt") == b"down"
        work = asyncio.ensure_future(ask(ENDLESS))
        await started(session)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await ask("x") == "6\n"


def test_harmless_output_and_no_connections(session: Any, listener: Any) -> None:
    from cellgate.integrations.langchain import python_tool

    answers = run(python_tool(session), HOSTILE, reach(listener), f"for i in range(20): {SHOW}")
    check_harmless(str(answers[0].content))
    assert answers[1].artifact["status"] == "error" and not accepted(listener)
    assert len(answers[2].content) == 17 and "4 images left out" in answers[2].content[0]["text"]
