"""ipybox's KernelGateway: the settings of kernels under a host and a port, at which nothing listens."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from types import TracebackType

_free_ports = itertools.count(49152)
_running: dict[tuple[str, int], KernelGateway] = {}


def free_port() -> int:
    """A number that no gateway of this process has."""
    return next(_free_ports)


def running_gateway(host: str, port: int) -> KernelGateway:
    gateway = _running.get((host, port))
    if gateway is None:
        raise RuntimeError(
            f"Failed to create kernel: no KernelGateway of this process has started as {host}:{port}. "
            "cellgate's kernels belong to the process that started their KernelGateway or CodeExecutor"
        )
    return gateway


class KernelGateway:
    """Where KernelClients of this process get the folder, the environment and the sandbox of their kernels.

    Kernels are in a sandbox whether `sandbox` is set or not. `sandbox_config`: a settings file
    (docs/settings.md); sandbox-runtime's are understood.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8888,
        working_dir: Path | None = None,
        sandbox: bool = False,
        sandbox_config: Path | None = None,
        log_level: str = "INFO",
        log_to_stderr: bool = False,
        env: dict[str, str] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.working_dir = Path(working_dir).resolve() if working_dir is not None else None
        self.sandbox = sandbox
        self.sandbox_config = sandbox_config
        self.log_level = log_level
        self.log_to_stderr = log_to_stderr
        self.env = dict(env or {})
        self._stopped: asyncio.Event | None = None

    async def __aenter__(self) -> KernelGateway:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        if self._stopped is not None:
            raise RuntimeError("Kernel gateway is already running")
        if (self.host, self.port) in _running:
            raise RuntimeError(f"a kernel gateway of this process is already running as {self.host}:{self.port}")
        _running[self.host, self.port] = self
        self._stopped = asyncio.Event()

    async def stop(self, timeout: float = 10) -> None:
        """No further kernels; those that run belong to their clients."""
        if self._stopped is not None:
            del _running[self.host, self.port]
            self._stopped.set()
            self._stopped = None

    async def join(self) -> None:
        """Waits until it is stopped."""
        if self._stopped is not None:
            await self._stopped.wait()
