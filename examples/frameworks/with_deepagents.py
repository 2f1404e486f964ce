"""deepagents: a session as the sandbox of an agent's commands and files."""

import tempfile

import cellgate
from cellgate.integrations.deepagents import CellgateSandbox
from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage


class Scripted(GenericFakeChatModel):
    """Stands for a language model: any chat model of LangChain takes its place."""

    def bind_tools(self, tools, **options):
        return self


command = {"name": "execute", "args": {"command": "echo $((6 * 7)) > answer; cat answer"}, "id": "1"}
model = Scripted(messages=iter([AIMessage("", tool_calls=[command]), AIMessage("It is 42.")]))
with tempfile.TemporaryDirectory() as workspace, cellgate.Session(workspace) as session:
    agent = create_deep_agent(model=model, backend=CellgateSandbox(session))
    messages = agent.invoke({"messages": [("user", "What is six times seven?")]})["messages"]
    print(messages[-2].content, messages[-1].content)
    print(session.files.read("answer").decode(), end="")  # the agent's file
