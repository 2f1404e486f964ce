"""The kernel provisioner of the Python package, with jupyter_client and nbclient."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from clients.support import PEER, Jupyter, Kernel, text_of
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import AsyncKernelManager, KernelManager, start_new_async_kernel, start_new_kernel
from nbclient import NotebookClient
from processes import eventually

pytestmark = pytest.mark.skipif(bool(PEER), reason="of cellgate's package")
ENTRY = (
    "[jupyter_client.kernel_provisioners]\ncellgate-provisioner = cellgate.jupyter_provisioner:CellgateProvisioner\n"
)


@pytest.fixture(scope="module")
def package(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package and its entry point, as pip installs them, on sys.path."""
    folder = prefix / "lib/cellgate/package"
    if not (folder / "cellgate/jupyter_provisioner.py").is_file():
        pytest.skip("cellgate was built without -Dpython_package")
    info = tmp_path_factory.mktemp("site") / "cellgate-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cellgate\nVersion: 0\n")
    (info / "entry_points.txt").write_text(ENTRY)
    sys.path[:0] = [str(info.parent), str(folder)]
    yield folder
    sys.path[:] = sys.path[2:]


@pytest.fixture(scope="module")
def provisioned(jupyter: Jupyter, package: Path) -> str:
    servers = ("--mcp", jupyter.mcp_file(), "--approve", "!echo.danger")
    return jupyter.install("provisioned", "--provisioner", "always", *servers)


@contextlib.contextmanager
def started(jupyter: Jupyter, name: str) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    with jupyter.environment():
        manager, client = start_new_kernel(kernel_name=name, cwd=str(jupyter.work), env=dict(jupyter.env))
        try:
            yield manager, client
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=False)


def value(client: BlockingKernelClient, code: str) -> str:
    """The text of the cell's value; its output has to begin with its busy status."""
    request = client.execute(code)
    found = ""
    while True:
        message = client.get_iopub_msg(timeout=60)
        assert message["parent_header"]["msg_id"] == request, message
        if message["msg_type"] == "execute_result":
            found = message["content"]["data"]["text/plain"]
        if message["content"].get("execution_state") == "idle":
            return found


def test_the_entry_point_is_the_packages() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    section, entry = ENTRY.splitlines()
    name, module = entry.split(" = ")
    assert project["entry-points"] == {section.strip("[]"): {name: module}}


def test_start_to_first_result(jupyter: Jupyter, provisioned: str) -> None:
    with started(jupyter, provisioned) as (manager, client):
        assert type(manager.provisioner).__name__ == "CellgateProvisioner"
        assert value(client, "6 * 7") == "42"
        client.wait_for_ready(timeout=30)  # a second time
        assert value(client, "6 * 8") == "48"


def test_a_client_does_not_wait_for_silence(jupyter: Jupyter, provisioned: str) -> None:
    with started(jupyter, provisioned) as (manager, client):
        client.stop_channels()  # clients of one manager have the same identity
        took = []
        for _ in range(5):
            other = manager.client()
            other.start_channels()
            start = time.monotonic()
            other.wait_for_ready(timeout=30)
            took.append(time.monotonic() - start)
            assert value(other, "1 + 1") == "2"
            other.stop_channels()
        assert min(took) < 0.15, took  # jupyter_client's own takes 0.2 s at least


def test_restart_interrupt_and_end(jupyter: Jupyter, provisioned: str) -> None:
    with started(jupyter, provisioned) as (manager, client):
        assert value(client, "x = 1; x") == "1"
        first = manager.provisioner.pid
        manager.restart_kernel(now=False)
        client.wait_for_ready(timeout=60)
        assert manager.provisioner.pid != first
        assert value(client, "'x' in dir()") == "False"
        kernel = Kernel.__new__(Kernel)
        kernel.client, kernel.slowness = client, jupyter.slowness
        request = kernel.send("import time; print('in'); time.sleep(600)")
        kernel.says(request, "in")
        manager.interrupt_kernel()
        assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
        assert manager.is_alive()
    assert not manager.is_alive()


def test_death_is_noticed(jupyter: Jupyter, provisioned: str) -> None:
    with started(jupyter, provisioned) as (manager, client):
        os.kill(manager.provisioner.pid, signal.SIGKILL)
        eventually(lambda: not manager.is_alive())
        with pytest.raises(RuntimeError, match="Kernel died before replying"):
            client.wait_for_ready(timeout=20)
        manager.restart_kernel()  # its request to the dead program must not end the new one
        client.wait_for_ready(timeout=60)
        assert value(client, "2 + 2") == "4"


def test_provisioner_info(jupyter: Jupyter, provisioned: str) -> None:
    from jupyter_core.utils import run_sync

    with started(jupyter, provisioned) as (manager, _):
        info = run_sync(manager.provisioner.get_provisioner_info)()
        assert (info["pid"], info["pgid"]) == (manager.provisioner.pid, os.getpgid(manager.provisioner.pid))
        other = type(manager.provisioner)(kernel_id="x", kernel_spec=manager.kernel_spec, parent=manager)
        run_sync(other.load_provisioner_info)(info)
        assert (other.pid, other.pgid) == (info["pid"], info["pgid"])


def test_calls_are_decided_as_before(jupyter: Jupyter, provisioned: str) -> None:
    with started(jupyter, provisioned) as (_, client):
        kernel = Kernel.__new__(Kernel)
        kernel.client, kernel.slowness = client, jupyter.slowness
        refused = kernel.run("from mcptools.echo import danger; danger.run()")[0]
        assert refused["status"] == "error"
        assert "!echo.danger" in refused["evalue"]
        request = kernel.send("from mcptools.echo import echo; print(echo.run(text='hello'))", allow_stdin=True)
        question = client.get_stdin_msg(timeout=60)["content"]["prompt"]
        assert "echo" in question
        time.sleep(0.8)  # no answer is taken before the question could be read (base/confirm.h)
        client.input("n")
        assert kernel.reply(request)["status"] == "error"


def test_asyncio(jupyter: Jupyter, provisioned: str) -> None:
    async def main() -> None:
        manager, client = await start_new_async_kernel(
            kernel_name=provisioned, cwd=str(jupyter.work), env=dict(jupyter.env)
        )
        try:
            assert type(client).__mro__[1] is AsyncKernelClient
            reply = await client.execute_interactive("y = 5", timeout=60)
            assert reply["content"]["status"] == "ok"
            await manager.restart_kernel()
            await client.wait_for_ready(timeout=60)
            reply = await client.execute_interactive("y", timeout=60)
            assert reply["content"]["ename"] == "NameError"
        finally:
            client.stop_channels()
            await manager.shutdown_kernel()
        assert not await manager.is_alive()

    with jupyter.environment():
        asyncio.run(main())


def test_a_cancelled_start_leaves_no_process(jupyter: Jupyter, provisioned: str) -> None:
    async def main() -> None:
        manager = AsyncKernelManager(kernel_name=provisioned)
        start = asyncio.create_task(manager.start_kernel(cwd=str(jupyter.work), env=dict(jupyter.env)))
        while not (manager.provisioner and manager.provisioner.process):
            await asyncio.sleep(0)
        process = manager.provisioner.process
        assert start.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await start
        process.wait(20)

    with jupyter.environment():
        asyncio.run(main())


def test_many_at_once(jupyter: Jupyter, provisioned: str) -> None:
    async def one(number: int) -> Any:
        manager = AsyncKernelManager(kernel_name=provisioned)
        await manager.start_kernel(cwd=str(jupyter.work), env=dict(jupyter.env))
        client = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=60 * jupyter.slowness)
            return (await client.execute_interactive(f"assert {number}", timeout=60))["content"]["status"]
        finally:
            client.stop_channels()
            await manager.shutdown_kernel()

    async def main() -> list[Any]:
        return await asyncio.gather(*(one(n + 1) for n in range(5)))

    with jupyter.environment():
        assert asyncio.run(main()) == ["ok"] * 5


def test_nbclient(jupyter: Jupyter, provisioned: str) -> None:
    cells = [nbformat.v4.new_code_cell(c) for c in ("print('hello')", "a = 2", "a ** 10")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with jupyter.environment():
        NotebookClient(notebook, kernel_name=provisioned, timeout=60).execute(cwd=str(jupyter.work))
    assert notebook.cells[0].outputs[0].text == "hello\n"
    assert notebook.cells[2].outputs[0].data["text/plain"] == "1024"


def test_sessions_can_be_attached(jupyter: Jupyter, provisioned: str) -> None:
    with started(jupyter, provisioned) as (_, client):
        assert value(client, "shared = 7; shared") == "7"
        program = jupyter.prefix / "bin/cellgate"
        (session,) = json.loads(jupyter.run(program, "jupyter", "list", "--json").stdout)
        assert Path(session["workspace"]) == jupyter.work.resolve()


def test_ipc(jupyter: Jupyter, provisioned: str) -> None:
    with jupyter.kernel(provisioned, transport="ipc") as kernel:
        reply, output = kernel.run("print(2 ** 8)")
        assert (reply["status"], text_of(output)) == ("ok", "256\n")


class OwnClient(BlockingKernelClient):
    pass


def test_a_managers_own_class_of_clients_stays(jupyter: Jupyter, provisioned: str) -> None:
    with jupyter.environment():
        manager = KernelManager(kernel_name=provisioned, client_factory=OwnClient)
        manager.start_kernel(cwd=str(jupyter.work), env=dict(jupyter.env))
        try:
            assert type(manager.client()) is OwnClient
        finally:
            manager.shutdown_kernel(now=True)


def respec(jupyter: Jupyter, provisioned: str, name: str, argv: list[str]) -> str:
    """A kernelspec with the provisioner and this argv."""
    spec = json.loads((jupyter.data / "kernels" / provisioned / "kernel.json").read_text())
    folder = jupyter.data / "kernels" / name
    folder.mkdir()
    (folder / "kernel.json").write_text(json.dumps({**spec, "argv": argv}))
    return name


def test_a_program_that_ends(jupyter: Jupyter, provisioned: str) -> None:
    program = str(jupyter.prefix / "bin/cellgate")
    name = respec(jupyter, provisioned, "ends", [program, "jupyter", "run", "--nonsense", "-f", "{connection_file}"])
    with jupyter.environment():
        manager = KernelManager(kernel_name=name)
        with pytest.raises(RuntimeError, match="ended with status 2 before clients could connect"):
            manager.start_kernel()
        assert not manager.is_alive()


def test_a_program_that_says_nothing(
    jupyter: Jupyter, provisioned: str, monkeypatch: pytest.MonkeyPatch, package: Path
) -> None:
    from cellgate import jupyter_provisioner

    monkeypatch.setattr(jupyter_provisioner, "_LIMIT_S", 0.2)
    name = respec(jupyter, provisioned, "silent", ["/bin/sh", "-c", "exec sleep 600"])
    open_before = len(os.listdir("/proc/self/fd"))
    with jupyter.environment():
        manager = KernelManager(kernel_name=name)
        manager.start_kernel()
        assert manager.is_alive()
        manager.shutdown_kernel(now=True)
    manager.context.destroy()
    assert len(os.listdir("/proc/self/fd")) <= open_before + 1


def test_a_start_that_times_out(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a program on a file system that does not answer."""
    from cellgate.jupyter_provisioner import CellgateProvisioner, LocalProvisioner

    async def fail(self: Any, cmd: list[str], **more: Any) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(LocalProvisioner, "launch_kernel", fail)
    with pytest.raises(TimeoutError, match="no answer"):
        asyncio.run(CellgateProvisioner().launch_kernel(["cellgate"]))


def test_without_the_package(jupyter: Jupyter, provisioned: str) -> None:
    name = respec(jupyter, provisioned, "missing", ["x"])
    path = jupyter.data / "kernels" / name / "kernel.json"
    path.write_text(path.read_text().replace("cellgate-provisioner", "no-such-provisioner"))
    with jupyter.environment(), pytest.raises(NoSuchKernel):
        KernelManager(kernel_name=name).start_kernel()
