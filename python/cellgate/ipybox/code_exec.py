"""ipybox's CodeExecutor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cellgate.ipybox.approvals import ApprovalRequest
from cellgate.ipybox.kernel import ExecutionError, ExecutionResult, Kernel, Running
from cellgate.ipybox.kernel_mgr.server import KernelGateway, free_port


class CodeExecutionError(Exception):
    """A cell raised: the message has the traceback."""


@dataclass
class CodeExecutionResult:
    """What a cell has written, and the paths of its images."""

    text: str | None
    images: list[Path]


@dataclass
class CodeExecutionChunk:
    """A piece of a cell's output."""

    text: str


class CodeExecutor:
    """Runs cells in a sandboxed kernel, which call the tools of generate_mcp_sources() after approval."""

    def __init__(
        self,
        tool_server_host: str = "localhost",
        tool_server_port: int | None = None,
        kernel_gateway_host: str = "localhost",
        kernel_gateway_port: int | None = None,
        kernel_env: dict[str, str] | None = None,
        working_dir: Path | None = None,
        images_dir: Path | None = None,
        approval_timeout: float | None = None,
        connect_timeout: float = 30,
        kernel_init_timeout: float = 10,
        sandbox: bool = False,
        sandbox_config: Path | None = None,
        log_level: str = "WARNING",
        approve_tool_calls: bool = True,
        approve_shell_cmds: bool = False,
        require_shell_escape: bool = False,
    ) -> None:
        """As ipybox's. Nothing listens at hosts and ports: they only name the gateway for KernelClients.

        `approve_shell_cmds` asks about every program that a cell starts, by whatever means, and
        `require_shell_escape` refuses all but `!`, %%bash and %%sh. Kernels are in a sandbox whether
        `sandbox` is set or not; the workspace, which cells can
        write, is `working_dir` or the current folder.
        """
        if require_shell_escape and not approve_shell_cmds:
            raise ValueError("require_shell_escape=True requires approve_shell_cmds=True")
        self.tool_server_host = tool_server_host
        self.tool_server_port = tool_server_port or free_port()
        self.kernel_gateway_host = kernel_gateway_host
        self.kernel_gateway_port = kernel_gateway_port or free_port()
        self.kernel_env = dict(kernel_env or {})
        self.working_dir = Path(working_dir).resolve() if working_dir is not None else None
        self.images_dir = images_dir
        self.approval_timeout = approval_timeout
        self.connect_timeout = connect_timeout
        self.kernel_init_timeout = kernel_init_timeout
        self.sandbox = sandbox
        self.sandbox_config = sandbox_config
        self.log_level = log_level
        self.approve_tool_calls = approve_tool_calls
        self.approve_shell_cmds = approve_shell_cmds
        self.require_shell_escape = require_shell_escape
        self._started: tuple[KernelGateway, Kernel] | None = None
        self._running: Running | None = None

    async def __aenter__(self) -> CodeExecutor:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        if self._started:
            raise RuntimeError("the executor has been started already")
        gateway = KernelGateway(
            host=self.kernel_gateway_host,
            port=self.kernel_gateway_port,
            working_dir=self.working_dir,
            sandbox=self.sandbox,
            sandbox_config=self.sandbox_config,
            log_level=self.log_level,
            env=self.kernel_env,
        )
        kernel = Kernel(
            working_dir=self.working_dir,
            workspace=self.working_dir,
            images_dir=Path(self.images_dir or "images"),
            env=self.kernel_env,
            sandbox_config=self.sandbox_config,
            log_level=self.log_level,
            approval_timeout=self.approval_timeout,
            connect_timeout=self.connect_timeout,
            tools=True,
            approve_shell_cmds=self.approve_shell_cmds,
            require_shell_escape=self.require_shell_escape,
        )
        await gateway.start()
        try:
            await kernel.start(self.kernel_init_timeout)
        except BaseException:
            await gateway.stop()
            raise
        self._started = gateway, kernel

    async def stop(self) -> None:
        started, self._started = self._started, None
        if started:
            gateway, kernel = started
            await gateway.stop()
            await kernel.stop()

    @property
    def _kernel(self) -> Kernel:
        if not self._started:
            raise RuntimeError("the executor is not running: use `async with`, or await start()")
        return self._started[1]

    async def reset(self) -> None:
        """Replaces the kernel by a fresh one and stops MCP servers, which start again when they are called."""
        await self._kernel.reset()

    def cancel(self) -> None:
        """Ends the cell that runs: its stream ends without an exception. Without effect if none runs."""
        if self._running:
            self._running.cancel()

    async def stream(
        self, code: str, timeout: float | None = None, chunks: bool = False
    ) -> AsyncIterator[ApprovalRequest | CodeExecutionChunk | CodeExecutionResult]:
        """Runs a cell. Its tool calls are yielded as ApprovalRequests and wait for a decision.

        `timeout` in seconds does not count waits for decisions.
        """
        running = self._kernel.run(code, timeout, ask=self.approve_tool_calls)
        self._running = running
        try:
            async for item in running:
                if isinstance(item, ExecutionResult):
                    yield CodeExecutionResult(item.text, item.images)
                elif isinstance(item, ApprovalRequest):
                    yield item
                elif chunks:
                    yield CodeExecutionChunk(item)
        except ExecutionError as e:
            raise CodeExecutionError(str(e)) from None
        except TimeoutError:
            raise TimeoutError(
                f"Code execution exceeded timeout of {timeout or 0:.2f}s (approval wait excluded)."
            ) from None
        finally:
            if self._running is running:
                self._running = None
            running.close()

    async def execute(self, code: str, timeout: float | None = None) -> CodeExecutionResult:
        """Runs a cell and accepts all its tool calls. A cell that was cancelled has no text and no images."""
        async for item in self.stream(code, timeout):
            if isinstance(item, ApprovalRequest):
                await item.accept()
            elif isinstance(item, CodeExecutionResult):
                return item
        return CodeExecutionResult(None, [])
