# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""OpenAI Agents: a client for sandbox agents, whose commands and files are those of a session.

    client = CellgateSandboxClient(settings="cellgate.json")
    agent = SandboxAgent(name="agent", model=model)
    await Runner.run(agent, "...", run_config=RunConfig(sandbox=SandboxRunConfig(client=client)))

The workspace is the manifest's root, or by default a new folder, which delete() removes. The framework
asks about tools by their `needs_approval`; connections are refused if the settings do not allow them. A
command has the time that the model gives it, by default 10 seconds.
"""

from __future__ import annotations

import asyncio
import io
import uuid
from pathlib import Path
from typing import Any, Literal

from agents import sandbox as sdk
from agents.sandbox.session import BaseSandboxClient, BaseSandboxSession, SandboxSession, SandboxSessionState

from cellgate import NotFoundError, Status
from cellgate.aio import Session
from cellgate.integrations._folders import is_made_folder, make_folder, remove_folder

OUTPUT_MAX = 16 << 20
FILE_MAX = 256 << 20
ARCHIVE_MAX = 512 << 20


class CellgateSandboxState(SandboxSessionState):
    type: Literal["cellgate"] = "cellgate"
    own_root: bool = False


class CellgateSandboxSession(BaseSandboxSession):
    def __init__(self, state: CellgateSandboxState, options: dict[str, Any]) -> None:
        self.state, self._options = state, options
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """What runs, with cells and all else that cellgate has."""
        assert self._session, "the sandbox has not been started, or has ended"
        return self._session

    async def _ensure_backend_started(self) -> None:
        if self._session is None:
            self._session = await Session(self.state.manifest.root, **self._options)

    async def _shutdown_backend(self) -> None:
        session, self._session = self._session, None
        if session:
            await session.close()

    async def running(self) -> bool:
        return self._session is not None

    def _prepare_exec_command(self, *command: str | Path, shell: bool | list[str], user: Any) -> list[str]:
        if user:
            raise ValueError(f"cellgate runs everything as one user, not as {user!r}")
        shell = ["sh", "-c"] if shell is True else shell
        return list(super()._prepare_exec_command(*command, shell=shell, user=None))

    def _should_compute_snapshot_fingerprint_on_persist(self) -> bool:
        return False  # it would be computed in the sandbox, where cells can forge it

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> sdk.ExecResult:
        argv = [str(part) for part in command]
        env = await self.state.manifest.environment.resolve()
        limit = 30 * 60 if timeout is None else timeout
        done = await self.session.exec(argv, env=env, timeout=limit, output_limit=OUTPUT_MAX)
        if done.status is Status.TIMEOUT:
            raise sdk.ExecTimeoutError(command=argv, timeout_s=limit)
        why = done.text or (f"more than {OUTPUT_MAX >> 20} MiB: the rest was thrown away" if done.truncated else "")
        stderr = done.stderr + f"\n[{why}]".encode() if why else done.stderr
        return sdk.ExecResult(stdout=done.stdout, stderr=stderr, exit_code=done.returncode)

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        self._prepare_exec_command(shell=False, user=user)
        try:
            data = await self.session.files.read(self.normalize_path(path), limit=FILE_MAX + 1)
        except NotFoundError as e:
            raise sdk.WorkspaceReadNotFoundError(path=path, cause=e) from e
        if len(data) > FILE_MAX:
            raise sdk.WorkspaceArchiveReadError(path=path, context={"reason": f"more than {FILE_MAX >> 20} MiB"})
        return io.BytesIO(data)

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        self._prepare_exec_command("tee", shell=False, user=user)
        target = self.normalize_path(path, for_write=True)
        await self.session.files.mkdir(target.parent)
        await self.session.files.write(target, data.read())

    async def persist_workspace(self) -> io.IOBase:
        skip = [f"--exclude=./{path.as_posix()}" for path in self._persist_workspace_skip_relpaths()]
        argv = ["tar", "-c", "--anchored", "--no-wildcards", *skip, "."]
        done = await self.session.exec(argv, output_limit=ARCHIVE_MAX)
        if not done.truncated and done.returncode in (0, 1):  # 1: a file has changed meanwhile
            return io.BytesIO(done.stdout)
        reason = f"tar has ended with {done.returncode}, or made more than {ARCHIVE_MAX >> 20} MiB"
        raise sdk.WorkspaceArchiveReadError(path=self._workspace_root_path(), context={"reason": reason})

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        done = await self.session.exec(["tar", "-x"], input=data.read(ARCHIVE_MAX + 1))
        if not done.ok:
            reason = f"tar has ended with {done.returncode}: {done.output[-1000:]!r}"
            raise sdk.WorkspaceArchiveWriteError(path=self._workspace_root_path(), context={"reason": reason})


class CellgateSandboxClient(BaseSandboxClient[None]):
    backend_id = "cellgate"
    supports_default_options = True

    def __init__(self, **options: Any) -> None:
        """`options`: of each sandbox, as of cellgate.Session."""
        self._options = options

    async def create(self, *, snapshot: Any = None, manifest: Any = None, options: Any = None) -> SandboxSession:
        manifest = self._validate_manifest_for_create(manifest or sdk.Manifest())
        own, number = manifest.root == sdk.Manifest().root, uuid.uuid4()
        if own:
            manifest = manifest.model_copy(update={"root": make_folder()}, deep=True)
        saved = sdk.resolve_snapshot(snapshot, str(number))
        state = CellgateSandboxState(session_id=number, manifest=manifest, snapshot=saved, own_root=own)
        return self._wrap_session(CellgateSandboxSession(state, self._options))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends the sandbox, and removes the folder that create() has made."""
        inner: Any = session._inner
        await inner.shutdown()
        if inner.state.own_root and is_made_folder(inner.state.manifest.root):
            await asyncio.to_thread(remove_folder, inner.state.manifest.root)
        return session

    async def resume(self, state: Any) -> SandboxSession:
        """A sandbox in the folder of @state, or in a new one with its snapshot."""
        state.assert_path_grants_rebound()
        there = not state.own_root or is_made_folder(state.manifest.root)
        if not there:
            manifest = state.manifest.model_copy(update={"root": make_folder()}, deep=True)
            state = state.model_copy(update={"manifest": manifest, "workspace_root_ready": False})
        inner = CellgateSandboxSession(state, self._options)
        inner._set_start_state_preserved(there)
        return self._wrap_session(inner)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, CellgateSandboxState)
