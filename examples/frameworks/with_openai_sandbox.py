"""OpenAI's sandbox agents: commands and files of the agent are those of a session."""

import asyncio
import json

from agents import Model, ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from cellgate.integrations.openai_sandbox import CellgateSandboxClient
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Scripted(Model):
    """Stands for a language model: the name of one takes its place."""

    commands = ["echo $((6 * 7)) > answer", "cat answer"]

    async def get_response(self, *args, **options):
        if self.commands:
            command = json.dumps({"cmd": self.commands.pop(0)})
            item = ResponseFunctionToolCall(
                arguments=command, call_id=str(len(self.commands)), name="exec_command", type="function_call"
            )
        else:
            text = ResponseOutputText(annotations=[], text="It is 42.", type="output_text")
            item = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **options):
        raise NotImplementedError


async def main() -> None:
    set_tracing_disabled(True)
    agent = SandboxAgent(name="agent", model=Scripted(), capabilities=[Shell()])
    config = RunConfig(sandbox=SandboxRunConfig(client=CellgateSandboxClient()))
    result = await Runner.run(agent, "What is six times seven?", run_config=config)
    print(*(item.output for item in result.new_items if item.type == "tool_call_output_item"), sep="\n")
    print(result.final_output)


asyncio.run(main())
