"""Inspect: its own checks of sandboxes, and a task with a scripted model."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.approval import ApprovalPolicy, auto_approver
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxUnavailableError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from integrations.conftest import PNG, accepted, reach

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


@pytest.fixture
async def environment(anyio_backend: str, package: Any) -> AsyncIterator[Any]:
    from cellgate.integrations.inspect_ai import CellgateSandboxEnvironment as Environment

    environments = await Environment.sample_init("task", None, {})
    yield environments["default"]
    await Environment.sample_cleanup("task", None, environments, False)
    assert not Path(environments["default"].folder).exists()  # type: ignore[attr-defined]


async def test_state_image_and_no_connections(environment: Any, listener: Any) -> None:
    """Inspect has no cells: the state is files, and images are files that are read."""
    await environment.write_file("image.png", base64.b64decode(PNG))
    assert (await environment.exec(["sh", "-c", "echo 6 > state"])).success
    code = "print(int(open('state').read()) * 7)"
    assert (await environment.exec(["python3", "-c", code])).stdout == "42\n"
    assert await environment.read_file("image.png", text=False) == base64.b64decode(PNG)
    assert not (await environment.exec(["python3", "-c", reach(listener)])).success and not accepted(listener)


async def test_cancelled(environment: Any) -> None:
    work = asyncio.ensure_future(environment.exec(["sh", "-c", "touch started; sleep 60"]))
    while not (Path(environment.folder) / "started").exists():
        await asyncio.sleep(0.02)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not (await environment.exec(["pgrep", "-x", "sleep"])).success


async def test_links_and_folders_that_are_hard_to_remove(environment: Any, tmp_path: Path) -> None:
    """The folder of a sample is removed whatever the sample has made of it."""
    (tmp_path / "secret").write_text("secret")
    await environment.exec(["sh", "-c", f"ln -s {tmp_path} link; mkdir -p closed/inner; chmod 0 closed"])
    deep = "import os\nfor i in range(1200): os.mkdir('d'); os.chdir('d')"
    assert (await environment.exec(["python3", "-c", deep])).success
    for path in ("link/secret", f"{tmp_path}/secret"):
        with pytest.raises(OSError, match="."):
            await environment.read_file(path)
    with pytest.raises(Exception, match="."):
        await environment.write_file("link/new", "x")
    assert [f.name for f in tmp_path.iterdir()] == ["secret"]


async def test_cleanup_that_is_cancelled_and_a_sandbox_that_has_ended(anyio_backend: str, package: Any) -> None:
    from cellgate.integrations.inspect_ai import CellgateSandboxEnvironment as Environment

    environments = await Environment.sample_init("task", None, {})
    ended: Any = environments["default"]
    work = asyncio.ensure_future(Environment.sample_cleanup("task", None, environments, False))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    for _ in range(500):
        if not Path(ended.folder).exists():
            break
        await asyncio.sleep(0.02)
    assert not Path(ended.folder).exists()
    with pytest.raises(SandboxUnavailableError, match="the session is closed"):
        await ended.exec(["true"])
