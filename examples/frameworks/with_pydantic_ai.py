"""pydantic-ai: a workspace in which an agent runs commands and edits files."""

import asyncio
import tempfile

from cellgate.integrations.pydantic_ai import CellgateWorkspace
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


def scripted(messages, info):
    """Stands for a language model: the name of one, such as "openai:...", takes its place."""
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("shell", {"command": "echo $((6 * 7))"})])
    return ModelResponse([TextPart("It is 42.")])


agent = Agent(FunctionModel(scripted))


@agent.tool
async def shell(context: RunContext, command: str) -> str:
    result = await context.workspace.run(command, shell=True)
    print("shell:", result.stdout, end="")
    return result.stdout


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        backend = CellgateWorkspace(folder)
        try:
            result = await agent.run("What is six times seven?", workspace=backend.untrusted())
            print(result.output)
        finally:
            if backend.ref:  # the workspace was used
                await CellgateWorkspace.delete(backend.ref)


asyncio.run(main())
