"""A server on FastMCP 4. usage: fast.py FOLDER [PORT]; without PORT over stdio."""

import sys
from pathlib import Path
from typing import Any, Literal

from fastmcp import Context, FastMCP
from fastmcp.utilities.types import Image
from pydantic import BaseModel, Field

folder = Path(sys.argv[1])
server = FastMCP("fast")


class Note(BaseModel):
    text: str
    tags: list[str] = Field(default_factory=list, description="Words to find it with")


@server.tool
async def note(entry: Note, ctx: Context, mode: Literal["append", "replace"] = "append") -> dict[str, Any]:
    """Write a note."""
    with (folder / "notes").open("a" if mode == "append" else "w", encoding="utf-8") as file:
        file.write(entry.text + "\n")
    await ctx.report_progress(1, 1)
    return {"written": entry.model_dump(), "mode": mode, "missing": None}


@server.tool
def draw(size: int) -> Image:
    """Draw a picture."""
    return Image(data=b"\x89PNG" + b"\0" * size, format="png")


@server.tool
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


if len(sys.argv) > 2:
    server.run("http", port=int(sys.argv[2]), show_banner=False)
else:
    server.run(show_banner=False)
