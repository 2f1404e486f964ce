"""DSPy: RLM with code that runs in cells; the program's tools stay in this program."""

import tempfile

import dspy
from cellgate.integrations.dspy import CellgateInterpreter
from dspy.utils import DummyLM

# Stands for a language model: dspy.LM("...") takes its place.
model = DummyLM(
    [
        {"reasoning": "Look the price up.", "code": "x = price('tea')\nprint(x)"},
        {"reasoning": "That is all.", "code": "SUBMIT(answer=str(3 * x))"},
    ]
)


def price(item: str) -> int:
    """The price of an item."""
    return {"tea": 14}[item]


with tempfile.TemporaryDirectory() as workspace:
    rlm = dspy.RLM(
        "question -> answer", tools=[price], interpreter_factory=lambda: CellgateInterpreter(workspace=workspace)
    )
    with dspy.context(lm=model):
        print(rlm(question="What do three teas cost?").answer)
