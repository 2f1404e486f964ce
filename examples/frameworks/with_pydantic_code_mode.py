"""pydantic-ai's code mode: the model writes Python that calls the agent's tools."""

import asyncio
import tempfile

import cellgate.aio
from cellgate.integrations.pydantic_code_mode import CellgateCodeMode
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

CODE = "sum(price(item=i) for i in ('tea', 'tea', 'tea'))"


def scripted(messages, info):
    """Stands for a language model: the name of one, such as "openai:...", takes its place."""
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("run_code", {"code": CODE})])
    return ModelResponse([TextPart(str(messages[-1].parts[0].content))])


def price(item: str) -> int:
    """The price of an item."""
    return {"tea": 14}[item]


async def main() -> None:
    with tempfile.TemporaryDirectory() as workspace:
        async with cellgate.aio.Session(workspace) as session:
            agent = Agent(FunctionModel(scripted), tools=[price], capabilities=[CellgateCodeMode(session)])
            print((await agent.run("What do three teas cost?")).output)


asyncio.run(main())
