"""Inspect: its own checks of sandboxes, and a task with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.approval import ApprovalPolicy, auto_approver
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _one_user(request: pytest.FixtureRequest) -> None:
    if request.node.name == "test_exec_as_user":
        request.applymarker(pytest.mark.xfail(strict=True, reason="a sandbox has one user"))


@pytest.fixture
async def sandbox_env(anyio_backend: str, package: Any) -> AsyncIterator[Any]:
    from cellgate.integrations.inspect_ai import CellgateSandboxEnvironment as Environment

    environments = await Environment.sample_init("task", None, {})
    yield environments["default"]
    await Environment.sample_cleanup("task", None, environments, False)


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_task_with_approval(package: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, decision: Any) -> None:
    import cellgate.integrations.inspect_ai  # noqa: F401

    async def count(self: Any, text: str) -> int:  # Inspect's own loads a file from the network
        return len(text)

    monkeypatch.setattr("inspect_ai.model._model.ModelAPI.count_text_tokens", count)
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat greeting.txt; echo 6 > x; cat x"}),
        ModelOutput.from_content("mockllm/model", "the end"),
    ]
    task = Task(
        dataset=[Sample(input="go", files={"greeting.txt": "hello\n"})],
        solver=[use_tools(bash()), generate()],
        sandbox="cellgate",
        approval=[ApprovalPolicy(auto_approver(decision), "*")],
    )
    (log,) = eval(
        task,
        model=get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(tmp_path),
        display="none",
    )
    assert log.status == "success" and log.samples, log.error
    texts = [m.text for m in log.samples[0].messages if m.role == "tool"]
    assert ("hello\n6" in texts[0]) is (decision == "approve")
