# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""AutoGen: runs blocks of Python as cells, and blocks of shell as commands.

    async with CellgateCodeExecutor("/path/to/workspace") as executor:
        agent = CodeExecutorAgent("runner", code_executor=executor)

`approve` decides about MCP tools and connections, which are refused without it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from cellgate import Status
from cellgate._core import PathLike
from cellgate.aio import Approve, Session
from cellgate.integrations._text import CELL_OUTPUT_MAX, TEXT_MAX, plain, shown

PYTHON = ("python", "py", "python3", "ipython")
SHELL = ("sh", "bash", "shell")


@dataclass
class CellgateCodeResult(CodeResult):
    images: list[bytes] = field(default_factory=list)


class CellgateCodeExecutor(CodeExecutor):
    def __init__(
        self,
        workspace: PathLike | None = None,
        *,
        approve: Approve | None = None,
        timeout: float | None = 30 * 60,
        **options: Any,
    ) -> None:
        """`timeout`: of each block, in seconds, without waits for decisions. Others: as of `cellgate.Session`."""
        self._workspace = workspace
        self._options = {"output_bytes": CELL_OUTPUT_MAX, **options}
        self._approve = approve
        self._timeout = timeout
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            raise RuntimeError("the executor has not been started")
        return self._session

    async def start(self) -> None:
        if self._session is None:
            self._session = await Session(self._workspace, **self._options)

    async def stop(self) -> None:
        session, self._session = self._session, None
        if session:
            await session.close()

    async def restart(self) -> None:
        """A fresh kernel; the workspace stays."""
        await self.session.reset()

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CellgateCodeResult:
        """Runs the blocks until one fails. TimeoutError: one took too long."""
        for block in code_blocks:
            if block.language.lower() not in PYTHON + SHELL:
                raise ValueError(f"cellgate runs Python and shell, not {block.language!r}")
        work = asyncio.ensure_future(self._run(code_blocks))
        cancellation_token.link_future(work)
        return await work

    async def _run(self, blocks: list[CodeBlock]) -> CellgateCodeResult:
        result = CellgateCodeResult(0, "")
        for block in blocks:
            if block.language.lower() in PYTHON:
                execution = await self.session.run(block.code, approve=self._approve, timeout=self._timeout)
                status = execution.status
                text, images = shown(execution)
                result.output += text
                result.images += images
                result.exit_code = int(not execution.ok)
            else:
                done = await self.session.exec(block.code, timeout=self._timeout, output_limit=TEXT_MAX)
                status = done.status
                result.output += plain(done.output.decode(errors="replace"))
                if done.truncated:
                    result.output += f"\n[more than {TEXT_MAX >> 20} MiB: the rest was thrown away]\n"
                result.exit_code = done.returncode
            if status is Status.TIMEOUT:
                raise TimeoutError(f"the code took longer than {self._timeout} s; so far:\n{result.output}")
            if result.exit_code:
                break
        return result
