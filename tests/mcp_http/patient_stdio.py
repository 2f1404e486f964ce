"""A cell of several minutes by a client that starts the server as Claude Code and Codex do, and as ipybox's client.

A command with arguments, the variables HOME, PATH, SHELL, TERM and USER, pipes; a call is given up after 120 s. With
--plain-results the client reads the text alone, as ipybox's does. Arguments: code, command. Prints the output.
"""

import os
import re
import sys
from datetime import timedelta
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(code: str, command: str, *args: str) -> None:
    env = {name: os.environ[name] for name in ("HOME", "PATH", "SHELL", "TERM", "USER") if name in os.environ}
    parameters = StdioServerParameters(command=command, args=list(args), env=env)
    limit: Any = 120.0 if hasattr(ClientSession, "discover") else timedelta(seconds=120)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write, read_timeout_seconds=limit) as s:
        await s.initialize()
        tool, arguments, output = "execute_ipython_cell", dict[str, Any](code=code, timeout=600), ""
        while True:
            text = "".join(b.text for b in (await s.call_tool(tool, arguments)).content)
            more = re.search(
                r"\n?\[cellgate: .*execution_id: (cell-\d+).*from=(\d+)\) returns the rest", text, re.DOTALL
            )
            text = text[: more.start()] if more else text
            output += text if text != "(no output)" else ""
            if not more:
                break
            tool, arguments = "cell_result", {"execution_id": more[1], "from": int(more[2])}
        print(output, end="")


anyio.run(main, *sys.argv[1:])
