"""pydantic-ai: code mode, with a scripted model whose code calls the agent's tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from integrations.conftest import DANGER, ENDLESS, HOSTILE, SHOW, check_harmless, started
from pydantic_ai import Agent, BinaryContent, RunContext, Tool
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.usage import UsageLimits
from typing_extensions import TypedDict

pytestmark = pytest.mark.anyio

called: list[Any] = []


class Place(TypedDict):
    name: str
    people: int


def place(name: str, people: int = 1) -> Place:
    """Looks up a place."""
    called.append((name, people))
    return {"name": name, "people": people}


def delete(path: str) -> str:
    called.append(path)
    return f"deleted {path}"


class Script:
    """Calls run_code with each piece, then says the end."""

    def __init__(self, *pieces: str, tool: str = "run_code") -> None:
        self.pieces = list(pieces)
        self.tool = tool
        self.answers: list[Any] = []
        self.tools: dict[str, str] = {}
        self.model = FunctionModel(self._answer)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.tools = {t.name: t.description or "" for t in info.function_tools}
        self.answers += [p.content for p in messages[-1].parts if isinstance(p, ToolReturnPart)]
        if self.pieces:
            return ModelResponse([ToolCallPart(self.tool, {"code": self.pieces.pop(0)})])
        return ModelResponse([TextPart("the end")])


@asynccontextmanager
async def opened(client: Any, tmp_path: Path, **options: Any) -> AsyncIterator[Any]:
    import cellgate.aio

    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    called.clear()
    async with cellgate.aio.Session(workspace, client=client, **options) as session:
        yield session


async def run(session: Any, *pieces: str, tools: Any = (), handler: Any = None, limits: Any = None, **more: Any) -> Any:
    from cellgate.integrations.pydantic_code_mode import CellgateCodeMode

    script = Script(*pieces)
    capabilities = [CellgateCodeMode(session, **more)]
    if handler:
        capabilities.append(HandleDeferredToolCalls(handler))
    agent = Agent(script.model, tools=list(tools), capabilities=capabilities)
    result = await agent.run("go", usage_limits=limits)
    assert result.output == "the end"
    return script


async def test_cells_state_tools_image_and_time_limit(client: Any, tmp_path: Path) -> None:
    async with opened(client, tmp_path) as session:
        script = await run(
            session,
            "x = place(name='Ulm', people=6)['people']",
            "print('out')\nx + 1",
            "place(people='many', name='Ulm')",
            f"{SHOW}\n'shown'",
            "while True: pass",
            "place('Ulm')",
            HOSTILE,
            tools=[place],
            timeout=1,
        )
        answers = script.answers
        assert answers[1] == "out\n7\n" and "unable to parse" in answers[2] and called[0] == ("Ulm", 6)
        assert isinstance(answers[3][1], BinaryContent) and answers[3][1].data.startswith(b"\x89PNG")
        assert answers[4].startswith("timeout: ") and "TypeError" in answers[5]
        check_harmless(answers[6])
        assert list(script.tools) == ["run_code"]
        assert "def place(*, name: str, people: int = 1) -> Place" in script.tools["run_code"]
        assert "class Place(TypedDict)" in script.tools["run_code"]
        # Another agent has other tools; the state is the session's.
        assert (await run(session, "delete(path='a'), x", tools=[delete])).answers == ["('deleted a', 6)\n"]
        assert "place" in (await run(session, "place(name='Ulm')", tools=[delete])).answers[0]
        assert (await run(session, "x")).answers == ["6\n"]


@pytest.mark.parametrize("decision", [True, False, None])
async def test_approval_of_tools(client: Any, tmp_path: Path, decision: bool | None) -> None:
    def handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approvals={c.tool_call_id: bool(decision) for c in requests.approvals})

    async with opened(client, tmp_path) as session:
        script = await run(
            session,
            "try: print(delete(path='a'))\nexcept Exception as e: print('refused', e)",
            tools=[Tool(delete, requires_approval=True)],
            handler=None if decision is None else handler,
        )
        assert called == (["a"] if decision else [])
        assert script.answers[0].startswith("deleted a" if decision else "refused")


@pytest.mark.parametrize("decision", [True, False, None])
async def test_approval_of_mcp_tools(
    client: Any, tmp_path: Path, servers: Any, mark: Path, decision: bool | None
) -> None:
    async with opened(client, tmp_path, mcp_servers=servers) as session:
        approve: Callable[[Any], Any] | None = None if decision is None else lambda _: decision
        script = await run(session, DANGER, tools=[place], approve=approve)
        assert mark.exists() is bool(decision) and ("RejectedError" in script.answers[0]) is not bool(decision)


async def test_cancelled_and_files(client: Any, tmp_path: Path) -> None:
    async with opened(client, tmp_path) as session:
        await session.files.write("up.txt", b"6")
        await run(session, "x = int(open('up.txt').read())\nopen('down.txt', 'w').write('down')")
        assert await session.files.read("down.txt") == b"down"
        work = asyncio.ensure_future(run(session, ENDLESS))
        await started(session)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert (await run(session, "x", tools=[place])).answers == ["6\n"]


async def test_kernel_that_died_gets_its_functions_again(client: Any, tmp_path: Path) -> None:
    async with opened(client, tmp_path) as session:
        script = await run(session, "import os; os._exit(1)", "place(name='Ulm')['name']", tools=[place])
        assert script.answers[1] == "'Ulm'\n"


async def test_limits_of_calls(client: Any, tmp_path: Path) -> None:
    """A cell decides how often it calls: the program's limits hold whatever it does with the errors."""
    many = "n = 0\nfor i in range(9):\n    try: place(name='x'); n += 1\n    except Exception: pass\nn"
    threads = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f(i):\n    try: place(name='x'); return 1\n    except Exception: return 0\n"
        "with ThreadPoolExecutor(9) as pool: n = sum(pool.map(f, range(9)))\nn"
    )

    async with opened(client, tmp_path) as session:
        for code in (many, threads):
            assert (await run(session, code, tools=[place], max_tool_calls=4)).answers == ["4\n"]
            called.clear()
            with pytest.raises(UsageLimitExceeded):
                await run(session, code, tools=[place], limits=UsageLimits(tool_calls_limit=3))
            assert len(called) <= 3


async def test_names_and_tools_that_code_does_not_call(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.pydantic_code_mode import CellgateCodeMode

    async with opened(client, tmp_path) as session:
        odd = [Tool(place, name="get-place"), Tool(place, name="class")]
        assert (await run(session, "get_place(name='a'), _class(name='b')", tools=odd)).answers[0].count("people") == 2
        with pytest.raises(UserError, match="another function"):
            await run(session, "1", tools=[Tool(place, name="a-b"), Tool(place, name="a_b")])
        with pytest.raises(UserError, match="'run_code'"):
            await run(session, "1", tools=[Tool(place, name="run_code")])
        direct = Script("x")
        agent = Agent(direct.model, tools=[place, delete], capabilities=[CellgateCodeMode(session, tools=["place"])])
        await agent.run("go")
        assert sorted(direct.tools) == ["delete", "run_code"]

        async def nested() -> str:
            """Runs another agent in the same session."""
            return str((await run(session, "1", tools=[place])).answers)

        script = await run(session, "nested()", tools=[nested])
        assert "cannot run code in the same session" in script.answers[0]

        async def elsewhere() -> str:
            """Runs another agent in another session."""
            async with opened(client, tmp_path) as other:
                return str((await run(other, "place(name='Ulm')['name']", tools=[place])).answers[0])

        assert "Ulm" in (await run(session, "elsewhere()", tools=[elsewhere])).answers[0]


async def test_agents_in_turns_in_one_session(client: Any, tmp_path: Path) -> None:
    """Code of an agent calls its own tools, also where another one has a tool of the same name."""
    from cellgate.integrations.pydantic_code_mode import CellgateCodeMode

    def agent(name: str, *codes: str) -> tuple[Script, Any]:
        async def who() -> str:
            return name

        script = Script(*codes)
        tools = [who, place] if name == "first" else [who]
        return script, Agent(script.model, tools=tools, capabilities=[CellgateCodeMode(session)])

    async with opened(client, tmp_path) as session:
        wait = "open('started', 'w').close()\nimport time, os\nwhile not os.path.exists('go'): time.sleep(0.02)\nwho()"
        first, one = agent("first", "who()", wait)
        second, two = agent("second", "who()", "who()")
        work = asyncio.ensure_future(one.run("go"))
        await started(session)
        other = asyncio.ensure_future(two.run("go"))
        await asyncio.wait({other}, timeout=0.5)  # it waits for the cell of the first
        await session.files.write("go", b"")
        await work
        await other
        assert (first.answers, second.answers) == (["'first'\n"] * 2, ["'second'\n"] * 2)
        first.pieces = ["place(name='Ulm')['name'], who()"]
        await one.run("go")
        assert first.answers[2] == "('Ulm', 'first')\n"


async def test_functions_are_there_after_a_deaf_cell_and_a_cancelled_change(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.pydantic_code_mode import CellgateCodeMode

    deaf = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(9)"
    async with opened(client, tmp_path) as session:
        mode = CellgateCodeMode(session, timeout=1)
        script = Script("place(name='Ulm')['name']", deaf, "place(name='Ulm')['name']")
        agent = Agent(script.model, tools=[place], capabilities=[mode])
        await agent.run("go")
        assert script.answers[1].startswith("timeout: ") and script.answers[2] == "'Ulm'\n"
        add, stop = session.functions, True

        async def functions(*args: Any, **more: Any) -> Any:
            report = await add(*args, **more)
            if stop:
                raise asyncio.CancelledError
            return report

        session.functions = functions
        with pytest.raises(asyncio.CancelledError):
            await mode._globals.run(session, "1", ["delete"], None)
        stop = False
        script.pieces = ["place(name='Ulm')['name']"]
        await agent.run("go")
        assert script.answers[3] == "'Ulm'\n"
