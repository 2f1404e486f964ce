# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""LangChain: a tool that runs Python.

    with cellgate.Session("/path/to/workspace") as session:
        agent = create_agent(model, tools=[python_tool(session, approve=ask)])

`approve` decides about MCP tools and connections, which are refused without it.
"""

from __future__ import annotations

import base64
from typing import Any

from langchain_core.tools import StructuredTool

from cellgate import Approve, Execution, Session

PNG = b"\x89PNG\r\n\x1a\n"
DESCRIPTION = (
    "Runs Python in a sandboxed IPython kernel whose state persists, and returns what it prints, "
    "its last expression's value and its images."
)


def python_tool(
    session: Session,
    *,
    approve: Approve | None = None,
    timeout: float | None = 30 * 60,
    name: str = "run_python",
    description: str = DESCRIPTION,
) -> StructuredTool:
    """`timeout`: of each cell, in seconds, without waits for decisions. The artifact is the cell's Execution."""

    def run(code: str) -> tuple[Any, Execution]:
        execution = session.run(code, approve=approve, timeout=timeout)
        text = execution.report
        images = [base64.b64encode(image).decode() for image in execution.images if image.startswith(PNG)]
        if not images:
            return text, execution
        blocks = [{"type": "image", "base64": image, "mime_type": "image/png"} for image in images]
        return [{"type": "text", "text": text}, *blocks], execution

    return StructuredTool.from_function(run, name=name, description=description, response_format="content_and_artifact")
