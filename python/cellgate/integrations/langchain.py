# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""LangChain: a tool that runs Python.

    with cellgate.Session("/path/to/workspace") as session:
        agent = create_agent(model, tools=[python_tool(session, approve=ask)])

With a `cellgate.aio.Session` the tool is for `ainvoke()`, and a run that is cancelled ends its cell.
`approve` decides about MCP tools and connections, which are refused without it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import asdict
from enum import Enum
from typing import Any

from langchain_core.tools import StructuredTool

from cellgate import Execution, Session, aio
from cellgate.integrations._text import shown

DESCRIPTION = (
    "Runs Python in a sandboxed IPython kernel whose state persists, and returns what it prints, "
    "its last expression's value and its images."
)


def python_tool(
    session: Session | aio.Session,
    *,
    approve: Callable[[Any], Any] | None = None,
    timeout: float | None = 30 * 60,
    name: str = "run_python",
    description: str = DESCRIPTION,
) -> StructuredTool:
    """
    `timeout`: of each cell, in seconds, without waits for decisions. The artifact is the cell's Execution as a
    dictionary, as a checkpoint keeps it.
    """

    start: Callable[..., Any] = session.run

    def run(code: str) -> tuple[Any, dict[str, Any]]:
        return _content(start(code, approve=approve, timeout=timeout))

    async def arun(code: str) -> tuple[Any, dict[str, Any]]:
        return _content(await start(code, approve=approve, timeout=timeout))

    function: dict[str, Any] = {"coroutine": arun} if isinstance(session, aio.Session) else {"func": run}
    return StructuredTool.from_function(
        **function, name=name, description=description, response_format="content_and_artifact"
    )


def _content(execution: Execution) -> tuple[Any, dict[str, Any]]:
    text, images = shown(execution)
    artifact = asdict(execution, dict_factory=_plain)
    if not images:
        return text, artifact
    data = [base64.b64encode(image).decode() for image in images]
    blocks = [{"type": "image", "base64": image, "mime_type": "image/png"} for image in data]
    return [{"type": "text", "text": text}, *blocks], artifact


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Enum) else value for name, value in fields}
