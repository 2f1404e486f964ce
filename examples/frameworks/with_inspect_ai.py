"""Inspect: a task whose samples have the sandbox "cellgate"."""

import tempfile

import cellgate.integrations.inspect_ai  # noqa: F401 (registers the sandbox)
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash

# Stands for a language model: the name of one takes its place.
outputs = [
    ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat question.txt; echo $((6 * 7))"}),
    ModelOutput.from_content("mockllm/model", "It is 42."),
]
task = Task(
    dataset=[Sample(input="What is it?", target="42", files={"question.txt": "six times seven\n"})],
    solver=[use_tools(bash()), generate()],
    scorer=includes(),
    sandbox="cellgate",
)
with tempfile.TemporaryDirectory() as logs:
    (log,) = eval(task, model=get_model("mockllm/model", custom_outputs=outputs), log_dir=logs, display="none")
    print(log.status, *(m.text for m in log.samples[0].messages if m.role == "tool"))
