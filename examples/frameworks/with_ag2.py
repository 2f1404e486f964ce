"""AG2: an agent with a tool that runs Python in cells, and bash in commands."""

import asyncio
import json
import tempfile

import cellgate.aio
from ag2 import Agent
from ag2.events import ToolCallEvent, ToolResultEvent
from ag2.testing import TestConfig
from ag2.tools import SandboxCodeTool
from cellgate.integrations.ag2 import CellgateCode


async def main() -> None:
    with tempfile.TemporaryDirectory() as workspace:
        async with cellgate.aio.Session(workspace) as session:
            tool = SandboxCodeTool(CellgateCode(session))
            call = ToolCallEvent(tool.name, arguments=json.dumps({"code": "6 * 7", "language": "python"}))
            # TestConfig stands for a language model: the configuration of one takes its place.
            reply = await Agent("agent", config=TestConfig(call, "That is all."), tools=[tool]).ask("Six times seven?")
            for event in await reply.history.get_events():
                if isinstance(event, ToolResultEvent):
                    print("".join(part.content for part in event.result.parts))
            print(reply.body)


asyncio.run(main())
