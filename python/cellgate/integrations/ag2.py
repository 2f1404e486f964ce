# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""AG2: an environment for SandboxCodeTool, and one for SandboxShellTool.

    async with cellgate.aio.Session("/path/to/workspace") as session:
        code = SandboxCodeTool(CellgateCode(session, approve=ask), middleware=[approval_required()])
        shell = SandboxShellTool(CellgateShell(session))
        agent = Agent("agent", config=config, tools=[code, shell])

AG2 asks about tools by `approval_required()`. `approve` decides about MCP tools and connections of
cells, which are refused without it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from typing import Any

from ag2.tools.code import CodeLanguage, CodeRunResult
from ag2.tools.sandbox import ExecResult, SandboxBase

from cellgate import Completed, Status
from cellgate.aio import Approve, Session
from cellgate.integrations._text import plain, shown

OUTPUT_MAX = 1 << 20
TIMEOUT = 124


class CellgateCode:
    """Runs Python as cells, whose state persists, and bash as commands."""

    supported_languages: tuple[CodeLanguage, ...] = ("python", "bash")

    def __init__(self, session: Session, *, approve: Approve | None = None, timeout: float | None = 30 * 60) -> None:
        """`timeout`: of each piece of code, in seconds, without waits for decisions."""
        self._session = session
        self._approve = approve
        self._timeout = timeout
        self.images: list[bytes] = []
        """Those that the last piece of Python has shown: AG2's tool returns text only."""

    def __deepcopy__(self, memo: dict[int, Any]) -> CellgateCode:
        return self  # agents copy their tools

    async def run(self, code: str, language: CodeLanguage, *, context: Any = None) -> CodeRunResult:
        if language == "bash":
            done = await self._session.exec(code, timeout=self._timeout, output_limit=OUTPUT_MAX)
            return CodeRunResult(output=_output(done), exit_code=done.returncode)
        if language != "python":
            return CodeRunResult(output=f"cellgate runs Python and bash, not {language!r}", exit_code=2)
        execution = await self._session.run(code, approve=self._approve, timeout=self._timeout)
        text, self.images = shown(execution)
        exit_code = TIMEOUT if execution.status is Status.TIMEOUT else int(not execution.ok)
        return CodeRunResult(output=text.strip(), exit_code=exit_code)


class CellgateShell(SandboxBase):
    """Commands and files of a session, beside its cells. Close the session to end it."""

    def __init__(self, session: Session, *, timeout: float = 30 * 60) -> None:
        """`timeout`: of commands that are run without one, in seconds."""
        self._session = session
        self._timeout = timeout

    def __deepcopy__(self, memo: dict[int, Any]) -> CellgateShell:
        return self  # agents copy their tools

    @asynccontextmanager
    async def open(self, context: Any = None) -> AsyncGenerator[CellgateShell]:
        yield self

    @property
    def workdir(self) -> PurePosixPath:
        return PurePosixPath(".")

    @property
    def host_workdir(self) -> None:
        """None: AG2 would follow links there, which cells make."""

    async def exec(
        self, argv: list[str], *, env: dict[str, str] | None = None, timeout: float | None = None
    ) -> ExecResult:
        limit = self._timeout if timeout is None else timeout
        done = await self._session.exec(argv, env=env, timeout=limit, output_limit=OUTPUT_MAX)
        return ExecResult(output=_output(done), exit_code=done.returncode)

    async def put_file(self, path: PurePosixPath, content: bytes) -> None:
        target = self._inside(path)
        await self._session.files.mkdir(target.parent)
        await self._session.files.write(target, content)

    async def remove_file(self, path: PurePosixPath) -> None:
        target = self._inside(path)
        if await self._session.files.exists(target):
            await self._session.files.remove(target)

    def _inside(self, path: PurePosixPath) -> PurePosixPath:
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{path} is not a path in the working directory")
        return path


def _output(done: Completed) -> str:
    """What a command has written, and why it did not end by itself."""
    text = plain(done.output.decode(errors="replace"))
    if done.truncated:
        text += f"\n[more than {OUTPUT_MAX >> 20} MiB: the rest was thrown away]"
    return f"{text}\n[{done.text}]".strip() if done.text else text.strip()
