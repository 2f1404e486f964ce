"""cellgate.ipybox: ipybox's interface, with real kernels."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cellgate
import cellgate._core
import pytest
from cellgate.ipybox import (
    ApprovalRequest,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutor,
    ExecutionError,
    ExecutionResult,
    KernelClient,
    generate_mcp_sources,
)
from cellgate.ipybox.kernel_mgr import client as documented
from cellgate.ipybox.kernel_mgr.server import KernelGateway
from package_fixtures import SHOW

pytestmark = pytest.mark.anyio

CALL = "from tools.echo import danger\nprint(danger.run(danger.Params(text='x')))"


@pytest.fixture(autouse=True)
def folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, which is the workspace. With a client of its own, which has run no cell yet."""
    monkeypatch.chdir(workspace)
    with cellgate.Client() as client:
        monkeypatch.setitem(cellgate._core._shared, None, client)
        yield workspace


async def test_cells_chunks_images_and_errors(folder: Path) -> None:
    async with CodeExecutor(kernel_env={"A": "b"}) as executor:
        assert await executor.execute("x = 1") == CodeExecutionResult(None, [])
        assert (await executor.execute("import os\nprint(os.environ['A'])\nx + 1")).text == "b\n2"
        events = [e async for e in executor.stream("print('out')\nx", chunks=True)]
        assert events == [CodeExecutionChunk("out\n"), CodeExecutionChunk("1"), CodeExecutionResult("out\n1", [])]
        with pytest.raises(CodeExecutionError, match="^ZeroDivisionError: division by zero\n") as e:
            await executor.execute("1 / 0")
        assert "\x1b" not in str(e.value)
        (image,) = (await executor.execute(SHOW)).images
        assert image.parent == Path("images") and image.read_bytes().startswith(b"\x89PNG")
        assert not (await executor.execute("display({'image/png': 'no'}, raw=True)")).images
        await executor.reset()
        with pytest.raises(CodeExecutionError, match="NameError"):
            await executor.execute("x")


async def test_timeout_and_cancel() -> None:
    async with CodeExecutor() as executor:
        with pytest.raises(asyncio.TimeoutError, match=r"timeout of 0\.20s \(approval wait excluded\)"):
            await executor.execute("import time; time.sleep(60)", timeout=0.2)
        asyncio.get_running_loop().call_later(0.3, executor.cancel)
        assert await executor.execute("time.sleep(60)") == CodeExecutionResult(None, [])
        executor.cancel()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(executor.execute("time.sleep(60)"), 0.3)
        assert (await executor.execute("1")).text == "1"


async def test_working_dir_and_reset_message(tmp_path: Path) -> None:
    async with CodeExecutor(working_dir=tmp_path) as executor:
        assert (await executor.execute("import os\nos.chdir('/')")).text == f"[ipybox] cwd reset to {tmp_path}"
        assert (await executor.execute("print(os.getcwd())")).text == str(tmp_path)


async def test_tools(folder: Path, servers: dict[str, Any], mark: Path) -> None:
    long = {**servers["echo"], "args": [*servers["echo"]["args"], "x" * 300]}  # no path, and too long for one
    names = await generate_mcp_sources("echo", long, folder / "tools")
    assert "danger" in names and (folder / "tools/echo/danger.py").exists()
    async with CodeExecutor() as executor:
        decisions: list[bool] = []
        with pytest.raises(CodeExecutionError, match="RejectedError"):
            async for item in executor.stream(CALL):
                assert isinstance(item, ApprovalRequest) and str(item) == "echo.danger(text='x')"
                item.on_decision(decisions.append)
                await item.reject()
                await item.accept()  # too late
                assert await item.response() is False
        assert decisions == [False] and not mark.exists()
        async for item in executor.stream(CALL, timeout=1):  # the wait for the decision does not count
            if isinstance(item, ApprovalRequest):
                await asyncio.sleep(1.5)
                await item.accept()
        assert isinstance(item, CodeExecutionResult) and mark.exists()
        mark.unlink()
        await executor.execute(CALL)
        assert mark.exists()
        await executor.reset()
        await executor.execute(CALL)
        async for item in executor.stream(CALL):
            assert isinstance(item, ApprovalRequest)  # and nothing follows a call that was cancelled
            executor.cancel()
        assert await item.response() is False
    async with CodeExecutor(approve_tool_calls=False, approval_timeout=0.5) as executor:
        assert [type(item) async for item in executor.stream(CALL)] == [CodeExecutionResult]
    async with CodeExecutor(approval_timeout=0.3) as executor:
        with pytest.raises(CodeExecutionError, match="ApprovalTimeoutError"):
            async for item in executor.stream(CALL):
                assert isinstance(item, ApprovalRequest) and await item.response() is False


async def test_async_api_and_root_in_pythonpath(tmp_path: Path, servers: dict[str, Any], mark: Path) -> None:
    await generate_mcp_sources("echo", servers["echo"], tmp_path / "gen", async_api=True)
    async with CodeExecutor(kernel_env={"PYTHONPATH": str(tmp_path / "gen")}) as executor:
        await executor.execute("from echo.danger import run, Params\nprint(await run(Params(text='x')))")
        assert mark.exists()


async def test_packages_that_no_program_has_generated_call_nothing(
    folder: Path, tmp_path: Path, servers: dict[str, Any], mark: Path
) -> None:
    await generate_mcp_sources("echo", servers["echo"], tmp_path / "elsewhere")
    async with CodeExecutor() as executor:
        # The package is in no folder that this program's cells import from: a copy does not call.
        for path in (tmp_path / "elsewhere/echo").iterdir():
            copy = folder / "tools/echo" / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text())
        with pytest.raises(CodeExecutionError, match='there is no MCP server "echo"'):
            await executor.execute(CALL)
        # Nor can a cell read or write the definitions.
        state = Path(os.environ["XDG_STATE_HOME"], "cellgate/ipybox")
        (definition,) = state.iterdir()
        assert json.loads(definition.read_text())["server"] == "echo"
        for attempt in (f"open({str(definition)!r}).read()", f"open({str(state / 'x.json')!r}, 'w')"):
            with pytest.raises(CodeExecutionError, match=r"FileNotFound|Permission|OSError"):
                await executor.execute(attempt)
        assert [*state.iterdir()] == [definition] and not mark.exists()
    # Nor does a link of a cell in place of a folder of PYTHONPATH, made in this session or in an earlier one.
    for _ in range(2):
        async with CodeExecutor(kernel_env={"PYTHONPATH": str(folder / "lib")}) as executor:
            link = f"os.path.islink('lib') or os.symlink({str(tmp_path / 'elsewhere')!r}, 'lib')"
            await executor.execute(f"import os\n{link}")
            await executor.reset()
            with pytest.raises(CodeExecutionError, match='there is no MCP server "echo"'):
                await executor.execute(CALL)
    assert not mark.exists()
    # A link that no cell can have made is followed.
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    async with CodeExecutor(kernel_env={"PYTHONPATH": str(tmp_path / "link")}) as executor:
        await executor.execute(CALL)
        assert mark.exists()


async def test_a_package_that_a_cell_has_closed_is_no_error_elsewhere(
    folder: Path, tmp_path: Path, servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await generate_mcp_sources("echo", servers["echo"], tmp_path / "closed")
    stat = os.stat

    def refuse(path: Any, *args: Any, **more: Any) -> os.stat_result:  # a chmod() would not stop root
        if str(path).startswith(f"{tmp_path / 'closed'}/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return stat(path, *args, **more)

    monkeypatch.setattr(os, "stat", refuse)
    async with CodeExecutor() as executor:
        assert (await executor.execute("1")).text == "1"


async def test_kernel_that_was_replaced(folder: Path) -> None:
    (folder / "lib").mkdir()
    (folder / "lib/own.py").write_text("x = 1")
    env = {"PYTHONPATH": str(folder / "lib")}
    deaf = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(9)"
    async with CodeExecutor(kernel_env=env, approve_shell_cmds=True, require_shell_escape=True) as executor:
        for code in ("import time; time.sleep(60)", deaf):
            with pytest.raises(TimeoutError):
                await executor.execute(code, timeout=0.2)
            assert (await executor.execute("import own\nown.x")).text == "1"
            assert (await executor.execute("%%bash\necho 6")).text == "6"
            with pytest.raises(CodeExecutionError, match=r"Direct os\.system\(\) calls"):
                await executor.execute("import os\nos.system('true')")


async def test_links_of_cells_lead_nowhere(folder: Path, tmp_path: Path, servers: dict[str, Any]) -> None:
    target = tmp_path / "target"
    (target / "echo").mkdir(parents=True)

    async with CodeExecutor() as executor:
        await executor.execute(f"import os\nos.symlink({str(target)!r}, 'images'); os.symlink('images', 'tools')")
        with pytest.raises(PermissionError, match="symbolic link that a cell could have made"):
            await executor.execute(SHOW)
        for root in ("tools", "tools/below"):
            with pytest.raises(PermissionError, match="symbolic link"):
                await generate_mcp_sources("echo", servers["echo"], Path(root))
        await executor.execute(f"os.mkdir('real'); os.symlink({str(target / 'echo')!r}, 'real/echo')")
        await generate_mcp_sources("echo", servers["echo"], Path("real"))
        await executor.execute("os.chdir('real/echo')\nfor i in range(1100): os.mkdir('d'); os.chdir('d')")
        await generate_mcp_sources("echo", servers["echo"], Path("real"))
        assert not Path("real/echo/d").exists()
    assert [p.name for p in target.rglob("*")] == ["echo"] and not Path("real/echo").is_symlink()


async def test_commands_are_asked_about(folder: Path) -> None:
    with pytest.raises(ValueError, match="require_shell_escape=True requires approve_shell_cmds=True"):
        CodeExecutor(require_shell_escape=True)
    with pytest.raises(cellgate.UnsupportedError, match="use CodeExecutor"):
        KernelClient(approve_shell_cmds=True)
    direct = "import subprocess; subprocess.run(['touch', 'direct'])"
    fake = (
        "import shutil\nshutil.copy('/bin/true', 'bash')\nimport subprocess\n"
        "subprocess.run(['/bin/bash', '-c', 'ls'], executable='./bash')"
    )

    async def ask(executor: CodeExecutor, code: str, accept: bool) -> list[Any]:
        asked = []
        async for item in executor.stream(code):
            if isinstance(item, ApprovalRequest):
                asked.append((item.server_name, item.tool_name, item.tool_args["cmd"]))
                await (item.accept() if accept else item.reject())
            else:
                asked.append(item)
        return asked

    async with CodeExecutor(approve_shell_cmds=True) as executor:
        request, result = await ask(executor, "x = 'a'\n!echo {x}b", True)
        assert request == ("ipybox", "shell", "echo ab") and result.text == "ab"
        request, result = await ask(executor, "%%bash\necho c\necho d", True)
        assert request == ("ipybox", "shell_magic", "echo c\necho d\n") and result.text == "c\nd"
        assert (await ask(executor, "%%bash --err e\necho c", True))[0] == ("ipybox", "shell_magic", "bash")
        assert (await ask(executor, direct, True))[0] == ("ipybox", "shell", "touch direct")
        Path("direct").unlink()
        with pytest.raises(CodeExecutionError, match="Rejected: ipybox.shell"):
            await ask(executor, direct, False)
        assert (await ask(executor, fake, True))[0][2] != "ls"  # not the shell that it calls itself
        assert (await executor.execute("!echo d")).text == "d"
    async with CodeExecutor(approve_shell_cmds=True, require_shell_escape=True) as executor:
        for code in (
            direct,
            fake,
            "import _posixsubprocess as p, importlib; importlib.reload(subprocess)\n" + direct,
        ):
            with pytest.raises(CodeExecutionError, match="Direct subprocess calls are not allowed"):
                await executor.execute(code)
        with pytest.raises(CodeExecutionError, match=r"Direct os.system\(\) calls are not allowed"):
            await executor.execute("import os; os.system('true')")
        assert (await executor.execute("!echo e")).text == "e" and not Path("direct").exists()


async def test_kernel_client(folder: Path) -> None:
    assert documented.KernelClient is KernelClient
    with pytest.raises(RuntimeError, match="no KernelGateway of this process"):
        await KernelClient(port=1).connect()
    async with KernelGateway(env={"A": "b"}) as gateway:
        with pytest.raises(RuntimeError, match="already running"):
            await KernelGateway().start()
        async with KernelClient(gateway.host, gateway.port) as client:
            assert client.kernel_id
            items = [item async for item in client.stream("import os\nprint(os.environ['A'])")]
            assert items == ["b\n", ExecutionResult("b", [])]
            with pytest.raises(ExecutionError, match="NameError"):
                await client.execute("y")
            with pytest.raises(TimeoutError):
                await client.execute("while True: pass", timeout=0.3)
            await client.reset()
            await client.interrupt_and_drain()
            assert (await client.execute("1")).text == "1"  # type: ignore[union-attr]
        with pytest.raises(RuntimeError, match="Not connected"):
            await client.execute("1")
    async with CodeExecutor() as executor:
        port = executor.kernel_gateway_port
        async with KernelClient(executor.kernel_gateway_host, port) as client:
            assert (await client.execute("2")).text == "2"  # type: ignore[union-attr]
