"""One conversation by the official Python SDK, 1.x or 2.x. Arguments: URL, token, code that asks. Prints JSON."""

import json
import sys
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client import streamable_http
from mcp.types import ElicitResult


def connect(url: str, headers: dict[str, str]) -> Any:
    if hasattr(streamable_http, "httpx2"):
        client = streamable_http.create_mcp_http_client(headers)  # with its time limits
        return streamable_http.streamable_http_client(url, http_client=client)
    return streamable_http.streamablehttp_client(url, headers=headers)


async def main(url: str, token: str, asking: str) -> None:
    actions = ["decline", "accept"]

    async def asked(context: Any, params: Any) -> ElicitResult:
        action = actions.pop(0)
        return ElicitResult(action=action, content={"decision": "approve"} if action == "accept" else None)

    async with connect(url, {"Authorization": f"Bearer {token}"}) as streams:
        async with ClientSession(streams[0], streams[1], elicitation_callback=asked) as session:

            async def run(code: str) -> list[Any]:
                result = await session.call_tool("execute_ipython_cell", {"code": code})
                error = getattr(result, "isError", None) or getattr(result, "is_error", None)
                return [bool(error), result.content[0].text]

            await session.initialize()
            report = {
                "tools": [t.name for t in (await session.list_tools()).tools],
                "state": [await run("x = 41"), await run("x + 1")],
                "asked": [await run(asking), await run(asking)],
            }
    print(json.dumps(report))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
