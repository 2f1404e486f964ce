# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""deepagents: a sandbox in which agents run commands and edit files.

with cellgate.Session("/path/to/workspace") as session:
    agent = create_deep_agent(model, backend=CellgateSandbox(session), interrupt_on={"execute": True})

deepagents asks about commands by `interrupt_on`.
"""

from __future__ import annotations

import asyncio
import contextlib

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from cellgate import CellgateError, ClosedError, Command, Completed, Session
from cellgate.integrations._errors import os_error

OUTPUT_MAX = 1 << 20
FILE_MAX = 256 << 20


class CellgateSandbox(BaseSandbox):
    """Commands and files of a session, whose cells are not concerned. Close the session to end it."""

    def __init__(self, session: Session, *, timeout: int = 30 * 60) -> None:
        """`timeout`: of commands that are run without one, in seconds."""
        self._session = session
        self._timeout = timeout

    @property
    def id(self) -> str:
        return self._session.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._execute(command, timeout, _Running())

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The same for asyncio: a task that is cancelled ends its command."""
        running = _Running()
        try:
            return await asyncio.to_thread(self._execute, command, timeout, running)
        except asyncio.CancelledError:
            running.cancel()
            raise

    def _execute(self, line: str, timeout: int | None, running: _Running) -> ExecuteResponse:
        limit = self._timeout if timeout is None else timeout
        done = Completed(OUTPUT_MAX)
        with self._session.start(["bash", "-c", line], timeout=limit or None) as command:
            running.begin(command)
            if not any(done.add(event) for event in command):
                raise ClosedError("the session has ended")
        output = done.output.decode(errors="replace")
        if done.text:
            output += f"\n[{done.text}]"
        return ExecuteResponse(output=output, exit_code=done.returncode, truncated=done.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self._session.files.mkdir(path.rpartition("/")[0] or "/")
            self._session.files.write(path, content)
        except (CellgateError, ValueError) as e:
            return _code(e, path)
        return None

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        found = []
        for path in paths:
            content, error = None, None
            try:
                if not path.startswith("/"):
                    raise ValueError("the path is not absolute")
                content = self._session.files.read(path, limit=FILE_MAX + 1)
                if len(content) > FILE_MAX:
                    content, error = None, f"the file is larger than {FILE_MAX >> 20} MiB"
            except (CellgateError, ValueError) as e:
                error = _code(e, path)
            found.append(FileDownloadResponse(path=path, content=content, error=error))
        return found


class _Running:
    """A command that another thread may cancel, also before it has begun."""

    def __init__(self) -> None:
        self._command: Command | None = None
        self._cancelled = False

    def begin(self, command: Command) -> None:
        self._command = command
        if self._cancelled:
            command.cancel()

    def cancel(self) -> None:
        self._cancelled = True
        if self._command:
            with contextlib.suppress(CellgateError):  # it has ended
                self._command.cancel()


def _code(e: Exception, path: str) -> str:
    """One of deepagents' names for errors, or the message."""
    known = os_error(e, path) if isinstance(e, CellgateError) else e
    for kind, code in (
        (FileNotFoundError, "file_not_found"),
        (PermissionError, "permission_denied"),
        (IsADirectoryError, "is_directory"),
        (NotADirectoryError, "invalid_path"),
        (ValueError, "invalid_path"),
    ):
        if isinstance(known, kind):
            return code
    return str(e)
