"""A server on version 2 of MCP's Python SDK. usage: python_sdk.py FOLDER [PORT]; without PORT over stdio."""

import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from pydantic import BaseModel

folder = Path(sys.argv[1])
server = MCPServer("python-sdk")


class Note(BaseModel):
    text: str
    lines: int
    revision: str | None


@server.tool()
async def note(text: str, ctx: Context, times: int = 1) -> Note:
    """Append a text to the notes."""
    with (folder / "notes").open("a", encoding="utf-8") as file:
        for i in range(times):
            file.write(text + "\n")
            await ctx.report_progress(i + 1, times)
    return Note(text=text, lines=times, revision=ctx.protocol_version)


@server.tool(structured_output=False)
def draw(size: int) -> list[Any]:
    """Draw a picture."""
    return ["a picture", Image(data=b"\x89PNG" + b"\0" * size, format="png")]


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


if len(sys.argv) > 2:
    server.run("streamable-http", port=int(sys.argv[2]))
else:
    server.run()
