"""The official Python SDK's client of HTTP+SSE, 1.x or 2.x. Arguments: URL, token, code that asks, FIFO. Prints JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.types import ElicitResult


async def main(url: str, token: str, asking: str, fifo: str) -> None:
    async def asked(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"decision": "approve"})

    progress: list[str | None] = []

    async def on_progress(done: float, total: float | None, text: str | None) -> None:
        if not progress:
            Path(fifo).write_bytes(b"")  # the cell goes on
        progress.append(text)

    async with sse_client(url, {"Authorization": f"Bearer {token}"}) as (read, write):
        async with ClientSession(read, write, elicitation_callback=asked) as session:

            async def run(code: str, **more: Any) -> str:
                result = await session.call_tool("execute_ipython_cell", {"code": code}, **more)
                return result.content[0].text

            await session.initialize()
            report = {
                "tools": [t.name for t in (await session.list_tools()).tools],
                "state": [await run("x = 41"), await run("x + 1")],
                "asked": await run(asking),
                "long": await run("print('first', flush=True); f = open('go').read()", progress_callback=on_progress),
                "progress": progress,
            }
    print(json.dumps(report))


anyio.run(main, *sys.argv[1:])
