"""LangChain: an agent with a tool that runs Python in a session."""

import tempfile

import cellgate
from cellgate.integrations.langchain import python_tool
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage


class Scripted(GenericFakeChatModel):
    """Stands for a language model: any chat model of LangChain takes its place."""

    def bind_tools(self, tools, **options):
        return self


def call(number: str, code: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "run_python", "args": {"code": code}, "id": number}])


model = Scripted(messages=iter([call("1", "x = 6"), call("2", "x * 7"), AIMessage("It is 42.")]))
with tempfile.TemporaryDirectory() as workspace, cellgate.Session(workspace) as session:
    # `approve` decides about MCP tools and connections of cells: here there are none.
    agent = create_agent(model, tools=[python_tool(session, approve=lambda request: False)])
    for message in agent.invoke({"messages": [("user", "What is six times seven?")]})["messages"][2:]:
        print(message.type, message.content)
