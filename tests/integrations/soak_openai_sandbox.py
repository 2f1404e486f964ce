"""OpenAI Agents: a sandbox agent with a scripted model, in a sandbox of cellgate."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Model, ModelResponse, RunConfig, Runner, Usage
from agents.sandbox import (
    Dir,
    ExecTimeoutError,
    LocalFile,
    LocalSnapshotSpec,
    Manifest,
    SandboxAgent,
    SandboxRunConfig,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import File
from agents.sandbox.manifest import Environment
from integrations.conftest import PNG, accepted, reach, started
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

pytestmark = pytest.mark.anyio


class Script(Model):
    """Calls tools, then says the end."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self.calls = list(calls)

    async def get_response(self, *args: Any, **more: Any) -> ModelResponse:
        item: Any
        if self.calls:
            name, arguments = self.calls.pop(0)
            number = f"call{len(self.calls)}"
            item = ResponseFunctionToolCall(
                arguments=json.dumps(arguments), call_id=number, name=name, type="function_call"
            )
        else:
            text = ResponseOutputText(annotations=[], text="the end", type="output_text")
            item = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError


def shell(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "exec_command", {"cmd": command, **more}


@pytest.fixture(autouse=True)
def own_tmp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No tracing, and a folder of temporary files where nothing may be left."""
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@asynccontextmanager
async def opened(sandboxes: Any, **more: Any) -> AsyncIterator[Any]:
    box = await sandboxes.create(**more)
    try:
        async with box:
            yield box
    finally:
        await sandboxes.delete(box)


async def run(model: Script, sandbox: Any, **more: Any) -> Any:
    agent = SandboxAgent(name="agent", model=model, **more)
    return await Runner.run(agent, "go", run_config=RunConfig(sandbox=sandbox))


def outputs(result: Any) -> list[Any]:
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


async def test_commands_state_image_and_time_limit(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: Any
) -> None:
    from cellgate.integrations.openai_sandbox import CellgateSandboxClient

    (tmp_path / "host.txt").write_text("from the host")
    monkeypatch.chdir(tmp_path)  # the framework takes files from there
    manifest = Manifest(
        entries={
            "up.txt": File(content=b"up"),
            "folder": Dir(children={"image.png": File(content=base64.b64decode(PNG))}),
            "host.txt": LocalFile(src=Path("host.txt")),
        },
        environment=Environment(value={"WORD": "set", "CODE": reach(listener)}),
    )
    script = Script(
        shell("cat up.txt host.txt; echo $WORD; echo 6 > state"),
        shell("python3 -c 'print(int(open(\"state\").read()) + 1)'; cat /etc/shadow"),
        shell("sleep 60", yield_time_ms=500),
        shell('python3 -c "$CODE"'),
        ("view_image", {"path": "folder/image.png"}),
        ("view_image", {"path": "/etc/passwd"}),
    )

    sandbox = SandboxRunConfig(client=CellgateSandboxClient(client=client), manifest=manifest)
    result = await run(script, sandbox, capabilities=[Shell(), Filesystem()])
    texts = outputs(result)
    assert "upfrom the hostset" in texts[0].replace("\n", "") and "exited with code 0" in texts[0]
    assert "7\n" in texts[1] and "Permission denied" in texts[1] and "timed out" in texts[2]
    assert "Error" in texts[3] and not accepted(listener)
    assert texts[4].image_url == f"data:image/png;base64,{PNG}" and "Invalid path" in texts[5]
    assert not list((tmp_path / "tmp").glob("cellgate-*"))


@pytest.mark.parametrize("decision", [True, False])
async def test_approval(client: Any, tmp_path: Path, decision: bool) -> None:
    from cellgate.integrations.openai_sandbox import CellgateSandboxClient

    sandboxes = CellgateSandboxClient(client=client)
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    def ask(tools: Any) -> None:
        tools.exec_command.needs_approval = True

    agent = SandboxAgent(name="agent", model=Script(shell("touch ran")), capabilities=[Shell(configure_tools=ask)])
    async with opened(sandboxes, manifest=Manifest(root=str(workspace))) as box:
        config = RunConfig(sandbox=SandboxRunConfig(session=box))
        result = await Runner.run(agent, "go", run_config=config)
        (question,) = result.interruptions
        assert not (workspace / "ran").exists()
        state = result.to_state()
        state.approve(question) if decision else state.reject(question)
        await Runner.run(agent, state, run_config=config)
        assert (workspace / "ran").exists() is decision
    assert workspace.exists()  # the program's own


async def test_files_errors_and_cancelled(client: Any) -> None:
    from cellgate.integrations.openai_sandbox import CellgateSandboxClient

    async with opened(CellgateSandboxClient(client=client)) as box:
        await box.write(Path("a/b.txt"), io.BytesIO(b"up"))
        assert (await box.exec("cat a/b.txt; echo down > down")).stdout == b"up"
        assert (await box.read(Path("down"))).read() == b"down\n"
        assert [Path(f.path).name for f in await box.ls("a") if f.kind.value == "file"] == ["b.txt"]
        with pytest.raises(WorkspaceReadNotFoundError):
            await box.read(Path("missing"))
        with pytest.raises(Exception, match="one user"):
            await box.exec("id", user="somebody")
        with pytest.raises(ExecTimeoutError):
            await box.exec("sleep 60", timeout=0.5)
        assert b"thrown away" in (await box.exec("yes | head -c 40000000")).stderr
        work = asyncio.ensure_future(box.exec("touch started; sleep 60; touch never"))
        await started(box._inner.session)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert (await box.exec("pgrep sleep", shell=True)).stdout == b""
        assert (await box._inner.session.run("6 * 7")).value == "42"


async def test_snapshots_and_resume(client: Any, tmp_path: Path) -> None:
    from cellgate.integrations.openai_sandbox import CellgateSandboxClient

    sandboxes = CellgateSandboxClient(client=client)
    (tmp_path / "saved").mkdir()
    secret = File(content=b"secret", ephemeral=True)
    snapshot = LocalSnapshotSpec(base_path=tmp_path / "saved")
    box = await sandboxes.create(snapshot=snapshot, manifest=Manifest(entries={"secret": secret}))
    async with box:
        await box.exec("echo kept > kept; ln -s /etc/passwd link; ls")
    payload = json.loads(json.dumps(sandboxes.serialize_session_state(box.state)))
    (archive,) = (f for f in (tmp_path / "saved").rglob("*") if f.is_file())
    with tarfile.open(archive) as tar:
        assert "./kept" in tar.getnames() and not any("secret" in n for n in tar.getnames())
    # The folder is there; then it is gone, and its name is taken by somebody else.
    for gone in (False, True):
        if gone:
            await sandboxes.delete(box)
            Path(box.state.manifest.root).symlink_to(tmp_path)
        again = await sandboxes.resume(sandboxes.deserialize_session_state(dict(payload)))
        assert (again.state.manifest.root == box.state.manifest.root) is not gone
        async with again:
            assert (await again.exec("cat kept secret")).stdout == b"kept\nsecret"
        if gone:
            await sandboxes.delete(again)
    await sandboxes.delete(box)
    assert (tmp_path / "saved").exists()
    forged = sandboxes.deserialize_session_state({**payload, "manifest": {"root": str(tmp_path / "saved")}})
    other = await sandboxes.resume(forged)
    assert other.state.manifest.root != str(tmp_path / "saved")
    await sandboxes.delete(other)
    assert archive.exists()


async def test_what_cells_write_stays_in_the_sandbox(client: Any, tmp_path: Path) -> None:
    """Links to files of the host, archives that leave their folder, folders that are hard to remove."""
    from cellgate.integrations.openai_sandbox import CellgateSandboxClient

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in (f"{outside}/absolute", "../../up", "link/through"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    data.seek(0)

    async with opened(CellgateSandboxClient(client=client)) as box:
        await box.exec(f"ln -s {outside} link; ln -s {outside}/secret file; mkfifo pipe")
        for path in ("link/secret", "file", "pipe"):
            with pytest.raises(Exception, match="."):
                await box.read(Path(path))
        for path in ("link/new", f"{outside}/new", "../new"):
            with pytest.raises(Exception, match="."):
                await box.write(Path(path), io.BytesIO(b"x"))
        with pytest.raises(Exception, match="archive"):
            await box.hydrate_workspace(data)
        assert [f.name for f in outside.iterdir()] == ["secret"]
        deep = "import os\nfor i in range(1200): os.mkdir('d'); os.chdir('d')"
        await box.exec("python3", "-c", deep, shell=False)
        await box.exec("mkdir -p closed/inner; chmod 0 closed")
    assert not list((tmp_path / "tmp").glob("cellgate-*"))
