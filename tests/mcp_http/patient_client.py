"""A cell of several minutes by the official Python SDK, 1.x or 2.x, that gives up a request after some seconds.

Arguments: URL, token, code, seconds. Prints the cell's whole output.
"""

import sys
from datetime import timedelta
from typing import Any

import anyio
from mcp import ClientSession
from mcp_http.sdk_client import connect


async def main(url: str, token: str, code: str, seconds: str) -> None:
    async with connect(url, {"Authorization": f"Bearer {token}"}) as streams:
        limit: Any = float(seconds)
        if not hasattr(ClientSession, "discover"):  # 1.x
            limit = timedelta(seconds=limit)
        async with ClientSession(streams[0], streams[1], read_timeout_seconds=limit) as session:
            await session.initialize()
            arguments: dict[str, Any] = {"code": code, "timeout": 600}
            tool = "execute_ipython_cell"
            while True:
                result = (await session.call_tool(tool, arguments)).model_dump(by_alias=True)
                data = result["structuredContent"]
                if data["status"] != "running":
                    break
                tool, arguments = "cell_result", {"execution_id": data["execution_id"]}
            print(data["stdout"], end="")


anyio.run(main, *sys.argv[1:])
