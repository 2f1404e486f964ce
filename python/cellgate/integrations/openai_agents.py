# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""OpenAI Agents: an executor for ShellTool, and a tool that runs Python.

    async with cellgate.aio.Session("/path/to/workspace") as session:
        shell = ShellTool(executor=shell_executor(session), needs_approval=True)
        agent = Agent(name="agent", tools=[shell, python_tool(session, approve=ask)])

The framework asks about shell calls (`needs_approval`). `approve` decides about MCP tools and
connections of cells, which are refused without it.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

from agents import (
    FunctionTool,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
)

from cellgate import Status
from cellgate.aio import Approve, Session
from cellgate.integrations._text import shown

OUTPUT_MAX = 1 << 20


def shell_executor(
    session: Session, *, timeout: float = 30 * 60
) -> Callable[[ShellCommandRequest], Awaitable[ShellResult]]:
    """`timeout`: of commands that are run without one, in seconds."""

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        seconds = action.timeout_ms / 1000 if action.timeout_ms else timeout
        output = []
        for command in action.commands:
            done = await session.exec(command, timeout=seconds, output_limit=OUTPUT_MAX)
            late = done.status is Status.TIMEOUT
            outcome = ShellCallOutcome("timeout") if late else ShellCallOutcome("exit", done.returncode)
            stderr = done.stderr.decode(errors="replace")
            if done.truncated:
                stderr += f"\n[more than {OUTPUT_MAX >> 20} MiB: the rest was thrown away]"
            output.append(ShellCommandOutput(done.stdout.decode(errors="replace"), stderr, outcome, command))
            if late:
                break
        return ShellResult(output, max_output_length=action.max_output_length)

    return execute


def python_tool(
    session: Session,
    *,
    approve: Approve | None = None,
    timeout: float | None = 30 * 60,
    needs_approval: Any = False,
) -> FunctionTool:
    """`timeout`: of each cell, in seconds, without waits for decisions. `needs_approval`: as of function_tool()."""

    @function_tool(needs_approval=needs_approval)
    async def run_python(code: str) -> Any:
        """Runs Python in a sandboxed IPython kernel whose state persists, and returns what it prints,
        its last expression's value and its images."""
        execution = await session.run(code, approve=approve, timeout=timeout)
        text, images = shown(execution)
        urls = [f"data:image/png;base64,{base64.b64encode(image).decode()}" for image in images]
        if not urls:
            return text
        return [ToolOutputText(text=text), *(ToolOutputImage(image_url=url) for url in urls)]

    tool: FunctionTool = run_python
    return tool
