"""ipybox's KernelClient."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType

from cellgate import UnsupportedError
from cellgate.ipybox.kernel import ExecutionError, ExecutionResult, Kernel
from cellgate.ipybox.kernel_mgr.server import running_gateway

__all__ = ["ExecutionError", "ExecutionResult", "KernelClient"]


class KernelClient:
    """A kernel with the settings of a KernelGateway or CodeExecutor of this process. It calls no tools."""

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8888,
        working_dir: Path | None = None,
        images_dir: Path | None = None,
        ping_interval: float = 10,
        approve_shell_cmds: bool = False,
        require_shell_escape: bool = False,
        tool_server_host: str = "localhost",
        tool_server_port: int = 0,
        kernel_init_timeout: float = 10,
    ) -> None:
        if require_shell_escape and not approve_shell_cmds:
            raise ValueError("require_shell_escape=True requires approve_shell_cmds=True")
        if approve_shell_cmds:
            raise UnsupportedError("a KernelClient has nobody to ask about commands: use CodeExecutor")
        self.host = host
        self.port = port
        self.working_dir = Path(working_dir).resolve() if working_dir is not None else None
        self.images_dir = Path(images_dir or "images")
        self.ping_interval = ping_interval
        self.approve_shell_cmds = approve_shell_cmds
        self.require_shell_escape = require_shell_escape
        self.tool_server_host = tool_server_host
        self.tool_server_port = tool_server_port
        self.kernel_init_timeout = kernel_init_timeout
        self._kernel: Kernel | None = None

    async def __aenter__(self) -> KernelClient:
        await self.connect()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.disconnect()

    @property
    def _connected(self) -> Kernel:
        if self._kernel is None:
            raise RuntimeError("Not connected to kernel")
        return self._kernel

    @property
    def kernel_id(self) -> str:
        return self._connected.session.id

    async def connect(
        self, retries: int = 10, retry_interval: float = 1.0, kernel_init_timeout: float | None = None
    ) -> None:
        """Starts a kernel. `retries` and `retry_interval` have no use here: nothing has to come up first."""
        gateway = running_gateway(self.host, self.port)
        kernel = Kernel(
            working_dir=self.working_dir,
            workspace=gateway.working_dir or self.working_dir,
            images_dir=self.images_dir,
            env=gateway.env,
            sandbox_config=gateway.sandbox_config,
            log_level=gateway.log_level,
        )
        await kernel.start(self.kernel_init_timeout if kernel_init_timeout is None else kernel_init_timeout)
        self._kernel = kernel

    async def disconnect(self) -> None:
        kernel, self._kernel = self._kernel, None
        if kernel:
            await kernel.stop()

    async def reset(self) -> None:
        """Replaces the kernel by a fresh one."""
        await self._connected.reset()

    async def execute(self, code: str, timeout: float | None = None) -> ExecutionResult | None:
        async for item in self.stream(code, timeout):
            if isinstance(item, ExecutionResult):
                return item
        return None

    async def stream(self, code: str, timeout: float | None = None) -> AsyncIterator[str | ExecutionResult]:
        """Runs a cell: yields its output and at last an ExecutionResult."""
        async for item in self._connected.run(code, timeout):
            if isinstance(item, (str, ExecutionResult)):
                yield item
            else:
                await item.reject()

    async def interrupt(self) -> None:
        self._connected.session.interrupt()

    async def drain(self, timeout: float = 1.0) -> int:
        """Nothing is left to be read between two cells: 0."""
        return 0

    async def interrupt_and_drain(self, drain_timeout: float = 1.0, settle_delay: float = 0.2) -> None:
        await self.interrupt()
        await asyncio.sleep(0)
