"""deepagents: its own tests of sandboxes, and an agent with a scripted model."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox
from integrations.conftest import PNG, accepted, reach, started_in_thread
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_tests.integration_tests import SandboxIntegrationTests
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

# langchain-tests 1.1.9 expects of these what deepagents had before 0.7: BaseSandbox itself fails them.
OUTDATED = {
    "test_glob",
    "test_glob_basic_pattern",
    "test_glob_hidden_files_explicitly",
    "test_glob_with_character_class",
    "test_glob_with_directories",
    "test_glob_with_question_mark",
    "test_write_existing_file_fails",
}


@pytest.mark.anyio
class TestSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, session: Any) -> Iterator[Any]:
        from cellgate.integrations.deepagents import CellgateSandbox

        yield CellgateSandbox(session)

    @pytest.fixture(autouse=True)
    def outdated(self, request: pytest.FixtureRequest) -> None:
        if request.node.name in OUTDATED:
            request.applymarker(pytest.mark.xfail(strict=True, reason="not what deepagents 0.7 does"))


class Plain(BaseSandbox):
    """Nothing but commands and files of this machine, without a sandbox."""

    id = "plain"

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return ExecuteResponse(output=done.stdout.decode(), exit_code=done.returncode, truncated=False)

    def upload_files(self, files: Any) -> Any:
        for path, content in files:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
        return [FileUploadResponse(path=path, error=None) for path, _ in files]

    def download_files(self, paths: Any) -> Any:
        return [FileDownloadResponse(path=path, content=Path(path).read_bytes(), error=None) for path in paths]


@pytest.mark.parametrize("name", sorted(OUTDATED))
def test_outdated_expectations_fail_without_cellgate(name: str, tmp_path: Path) -> None:
    """So none of them is an error of cellgate's backend."""
    with pytest.raises(AssertionError):
        getattr(SandboxIntegrationTests(), name)(Plain(), str(tmp_path))


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_agent_with_approval(session: Any, decision: str) -> None:
    from cellgate.integrations.deepagents import CellgateSandbox

    call = {"name": "execute", "args": {"command": f"echo done > {decision}.txt; pwd"}, "id": "1"}
    model = Model(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("the end")]))
    agent = create_deep_agent(
        model=model, backend=CellgateSandbox(session), interrupt_on={"execute": True}, checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    assert "__interrupt__" in agent.invoke({"messages": [("user", "go")]}, config)
    assert not session.files.exists(f"{decision}.txt")
    messages = agent.invoke(Command(resume={"decisions": [{"type": decision}]}), config)["messages"]
    assert messages[-1].content == "the end"
    assert session.files.exists(f"{decision}.txt") is (decision == "approve")


def test_time_limit_and_output_limit(session: Any) -> None:
    from cellgate.integrations.deepagents import CellgateSandbox

    sandbox = CellgateSandbox(session)
    late = sandbox.execute("echo early; sleep 60", timeout=1)
    assert late.exit_code == 124 and late.output.startswith("early\n") and "time limit" in late.output
    assert sandbox.execute("yes | head -c 3000000").truncated
    assert sandbox.execute("kill -9 $$").exit_code == 137


def test_state_image_files_and_no_connections(session: Any, listener: Any) -> None:
    """A deep agent has no cells: its state is files, and its images are files that it reads."""
    from cellgate.integrations.deepagents import CellgateSandbox

    sandbox = CellgateSandbox(session)
    folder = sandbox.execute("pwd").output.strip()
    uploads = [(f"{folder}/up.txt", b"6"), (f"{folder}/image.png", base64.b64decode(PNG)), (f"{folder}/n.py", b"")]
    uploads[2] = (uploads[2][0], reach(listener).encode())
    assert [r.error for r in sandbox.upload_files(uploads)] == [None] * 3
    calls = [
        {"name": "execute", "args": {"command": "python3 -c 'print(int(open(\"up.txt\").read()) * 7)' > state"}},
        {"name": "execute", "args": {"command": "cat state; python3 n.py"}},
        {"name": "read_file", "args": {"file_path": f"{folder}/image.png"}},
    ]
    messages = [AIMessage("", tool_calls=[{**call, "id": str(i)}]) for i, call in enumerate(calls)]
    agent = create_deep_agent(model=Model(messages=iter([*messages, AIMessage("the end")])), backend=sandbox)
    answers = [m for m in agent.invoke({"messages": [("user", "go")]})["messages"] if isinstance(m, ToolMessage)]
    assert "42" in answers[1].content and "Error" in answers[1].content and not accepted(listener)
    (image,) = answers[2].content_blocks
    assert image["type"] == "image" and image["base64"] == PNG
    (down,) = sandbox.download_files([f"{folder}/state"])
    assert down.content == b"42\n"


def test_cancelled(session: Any) -> None:
    """Of asyncio; a command of a thread ends with its time limit or the session."""
    from cellgate.integrations.deepagents import CellgateSandbox

    sandbox = CellgateSandbox(session)
    call = {"name": "execute", "args": {"command": "touch started; sleep 60; touch never"}, "id": "1"}

    async def main() -> None:
        agent = create_deep_agent(model=Model(messages=iter([AIMessage("", tool_calls=[call])])), backend=sandbox)
        work = asyncio.ensure_future(agent.ainvoke({"messages": [("user", "go")]}))
        await asyncio.to_thread(started_in_thread, session)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())
    assert sandbox.execute("while pgrep -x sleep; do sleep 0.1; done; ls never", timeout=20).exit_code == 2


def test_links_of_cells(session: Any, tmp_path: Path) -> None:
    from cellgate.integrations.deepagents import CellgateSandbox

    (tmp_path / "secret").write_text("secret")
    sandbox = CellgateSandbox(session)
    folder = sandbox.execute(f"ln -s {tmp_path} link; mkfifo pipe; pwd").output.strip()
    downloads = sandbox.download_files([f"{folder}/link/secret", f"{folder}/pipe", f"{tmp_path}/secret"])
    assert [d.content for d in downloads] == [None] * 3 and all(d.error for d in downloads)
    uploads = sandbox.upload_files([(f"{folder}/link/new", b"x"), (f"{tmp_path}/new", b"x")])
    # What is there for commands, in the sandbox's own /tmp, may be written; the host has none of it.
    assert len(uploads) == 2 and [f.name for f in tmp_path.iterdir()] == ["secret"]
