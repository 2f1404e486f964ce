"""A cell of several minutes by FastMCP's client, which gives up a request after some seconds.

Arguments: URL, token, code, seconds. Prints the cell's whole output.
"""

import asyncio
import sys
from typing import Any

from fastmcp import Client


async def main(url: str, token: str, code: str, seconds: str) -> None:
    async with Client(url, auth=token, timeout=float(seconds)) as client:
        arguments: dict[str, Any] = {"code": code, "timeout": 600}
        tool = "execute_ipython_cell"
        while True:
            data = (await client.call_tool(tool, arguments)).structured_content
            if data["status"] != "running":
                break
            tool, arguments = "cell_result", {"execution_id": data["execution_id"]}
        print(data["stdout"], end="")


asyncio.run(main(*sys.argv[1:]))
