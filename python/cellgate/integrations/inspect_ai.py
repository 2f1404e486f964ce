# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""Inspect: the sandbox "cellgate", registered when this module is imported.

    import cellgate.integrations.inspect_ai
    Task(..., sandbox="cellgate")

A sample has a session with an empty workspace. The sandbox's configuration is the path of a
settings file (docs/settings.md); without one there is no network.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
from pathlib import Path
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)

from cellgate import CellgateError, ClosedError, Completed, Status
from cellgate.aio import Session
from cellgate.integrations._errors import os_error
from cellgate.integrations._folders import make_folder, remove_folder


@sandboxenv(name="cellgate")
class CellgateSandboxEnvironment(SandboxEnvironment):
    def __init__(self, session: Session, folder: str) -> None:
        super().__init__()
        self.session = session
        self.folder = folder

    @classmethod
    def config_files(cls) -> list[str]:
        return ["cellgate.json"]

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        if config is not None and not isinstance(config, str):
            raise TypeError("the configuration of the sandbox cellgate is the path of a settings file")
        settings = Path(config).read_text(encoding="utf-8") if config else None
        folder = make_folder()
        try:
            session = await Session(folder, settings=settings)
        except BaseException:
            remove_folder(folder)
            raise
        return {"default": cls(session, folder)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        own = [environment.as_type(CellgateSandboxEnvironment) for environment in environments.values()]
        await asyncio.shield(asyncio.gather(*(environment._end() for environment in own)))

    async def _end(self) -> None:
        try:
            await self.session.close()
        finally:
            await asyncio.to_thread(remove_folder, self.folder)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None:
            raise SandboxUserUnsupportedError(f"cellgate runs everything as one user, not as {user!r}")
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        data = input.encode() if isinstance(input, str) else input
        folder = posixpath.join(self.folder, cwd or "")
        options: dict[str, Any] = {"cwd": folder, "env": env, "timeout": timeout, "output_limit": 2 * limit}
        try:
            done = await self.session.exec(cmd, input=data, **options)
        except ClosedError as e:
            raise SandboxUnavailableError(str(e)) from e
        if done.status is Status.TIMEOUT:
            raise TimeoutError(f"the command took longer than {timeout} s")
        if done.status in (Status.KERNEL_DIED, Status.CANCELLED):
            raise CellgateError(f"the sandbox ended while the command ran: {done.text}")
        stdout, stderr = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if done.truncated or len(done.stdout) > limit or len(done.stderr) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, (stdout + stderr)[:limit])
        if done.exit_code is None and done.signal is None:
            _raise_denied(done)
            stderr += done.text + "\n"
        return ExecResult(done.returncode == 0, done.returncode, stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = posixpath.join(self.folder, file)
        try:
            # write() replaces a file, also one without permission to write.
            if await self.session.files.exists(path) and not (await self.session.files.stat(path))["mode"] & 0o222:
                raise PermissionError(errno.EACCES, "Permission denied", file)
            await self.session.files.mkdir(posixpath.dirname(path))
            await self.session.files.write(path, contents)
        except CellgateError as e:
            raise os_error(e, file) from e

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self.session.files.read(posixpath.join(self.folder, file), limit=limit + 1)
        except CellgateError as e:
            raise os_error(e, file) from e
        if len(data) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data


def _raise_denied(done: Completed) -> None:
    """PermissionError where a program exists and may not be started, as Inspect asks."""
    if "ermission denied" in done.text:
        raise PermissionError(done.text)
