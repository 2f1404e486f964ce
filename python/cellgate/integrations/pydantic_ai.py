# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""pydantic-ai: a workspace in which agents run commands and edit files.

    backend = CellgateWorkspace("/path/to/workspace")
    await agent.run("...", workspace=backend.untrusted())
    ...
    await CellgateWorkspace.delete(backend.ref)

Approval of tools is pydantic-ai's (`requires_approval`). Of a backend without untrusted(), pydantic-ai
gives files the authority of the application, although commands write them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic_ai.workspaces import (
    AuthorityWorkspace,
    CommandResult,
    SupportsCommands,
    SupportsRealpath,
    Workspace,
    WorkspaceBackend,
    WorkspaceCommand,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.protocol import validate_timeout

from cellgate import ClosedError, Status
from cellgate._core import PathLike
from cellgate.aio import Session

OUTPUT_MAX = 64 << 20
PROVIDER = "cellgate"

_sessions: dict[str, Session] = {}


class CellgateWorkspace(WorkspaceBackend, SupportsCommands, SupportsRealpath):
    """A session that starts with the first command, and runs until delete(). Files are accessed by commands."""

    def __init__(self, workspace: PathLike | None = None, *, ref: WorkspaceRef | None = None, **options: Any) -> None:
        """`workspace` and `options`: as of `cellgate.Session`. `ref`: a workspace of this process instead."""
        self._workspace = workspace
        self._options = options
        self._ref = ref
        self._opening = asyncio.Lock()
        self._folder: str | None = None

    def untrusted(self) -> Workspace:
        """The workspace with files that have no authority, whatever instructions are in them."""
        return AuthorityWorkspace(Workspace(self), authority="none")

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    @staticmethod
    async def delete(ref: WorkspaceRef) -> None:
        """Ends the session."""
        if session := _sessions.pop(ref.id, None):
            await session.close()

    async def _session(self) -> Session:
        if self._ref is None:
            # A caller that is cancelled leaves the session to the others.
            await asyncio.shield(asyncio.ensure_future(self._open()))
        assert self._ref
        session = _sessions.get(self._ref.id)
        if session is None:
            raise WorkspaceUnavailableError(f"no session {self._ref.id} of cellgate runs in this process")
        return session

    async def _open(self) -> None:
        async with self._opening:
            if self._ref is None:
                session = await Session(self._workspace, **self._options)
                _sessions[session.id] = session
                self._ref = WorkspaceRef(provider=PROVIDER, id=session.id)

    async def working_dir(self) -> str:
        if self._folder is None:
            self._folder = (await self.run(["pwd", "-P"])).stdout.rstrip("\n")
        else:
            await self._session()
        return self._folder

    async def realpath(self, path: str) -> str:
        found = await self.run(["realpath", "-zm", "--", path])
        if found.exit_code:
            raise OSError(found.stderr.strip())
        return str(found.stdout).rstrip("\0")

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        validate_timeout(timeout)
        if isinstance(command, str) != shell:
            raise TypeError("a string needs shell=True, and a sequence of arguments shell=False")
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        session = await self._session()
        try:
            done = await session.exec(argv, env=env, timeout=timeout, output_limit=OUTPUT_MAX)
        except ClosedError as e:
            raise WorkspaceUnavailableError(str(e)) from e
        stdout, stderr = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if done.status is Status.TIMEOUT:
            raise WorkspaceTimeoutError(f"the command took longer than {timeout} s", stdout=stdout, stderr=stderr)
        if done.status in (Status.KERNEL_DIED, Status.CANCELLED):
            raise WorkspaceUnavailableError(f"the sandbox ended while the command ran: {done.text}")
        if done.truncated:
            message = f"the command has written more than {OUTPUT_MAX >> 20} MiB"
            raise WorkspaceOutputLimitError(message, limit=OUTPUT_MAX, stdout=stdout, stderr=stderr)
        if done.exit_code is None and done.signal is None:
            stderr += done.text + "\n"
        return CommandResult(exit_code=done.returncode, stdout=stdout, stderr=stderr)
