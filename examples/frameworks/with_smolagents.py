"""smolagents: the code that a CodeAgent writes runs in a cell; the agent's tools stay in this program."""

import tempfile

import cellgate
from cellgate.integrations.smolagents import CellgateExecutor
from smolagents import CodeAgent, Model, tool
from smolagents.models import ChatMessage, MessageRole


class Scripted(Model):
    """Stands for a language model: any model of smolagents, such as LiteLLMModel, takes its place."""

    pieces = ["x = price('tea')\nprint(x)", "final_answer(3 * x)"]

    def generate(self, messages, **options):
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.pieces.pop(0)}\n</code>")


@tool
def price(item: str) -> int:
    """The price of an item.

    Args:
        item: its name
    """
    return {"tea": 14}[item]


with tempfile.TemporaryDirectory() as workspace, cellgate.Session(workspace) as session:
    agent = CodeAgent(tools=[price], model=Scripted(), executor=CellgateExecutor(session), verbosity_level=0)
    print(agent.run("What do three teas cost?"))  # 42
