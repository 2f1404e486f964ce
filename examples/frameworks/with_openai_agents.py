"""OpenAI Agents: an agent with a tool that runs Python in a session."""

import asyncio
import json
import tempfile

import cellgate.aio
from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from cellgate.integrations.openai_agents import python_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Scripted(Model):
    """Stands for a language model: the name of one takes its place."""

    pieces = ["x = 6", "x * 7"]

    async def get_response(self, *args, **options):
        if self.pieces:
            code = json.dumps({"code": self.pieces.pop(0)})
            item = ResponseFunctionToolCall(
                arguments=code, call_id=str(len(self.pieces)), name="run_python", type="function_call"
            )
        else:
            text = ResponseOutputText(annotations=[], text="It is 42.", type="output_text")
            item = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **options):
        raise NotImplementedError


async def main() -> None:
    set_tracing_disabled(True)
    with tempfile.TemporaryDirectory() as workspace:
        async with cellgate.aio.Session(workspace) as session:
            agent = Agent(name="agent", model=Scripted(), tools=[python_tool(session)])
            result = await Runner.run(agent, "What is six times seven?")
            print(*(item.output for item in result.new_items if item.type == "tool_call_output_item"), sep="")
            print(result.final_output)


asyncio.run(main())
