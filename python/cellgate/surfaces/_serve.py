"""What the surfaces share: the answers of tools, and the transports."""

from __future__ import annotations

import asyncio
import hmac
import os
import stat
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, TextContent
from pydantic_core import to_json
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cellgate import CellError, CellgateError
from cellgate.surfaces._options import Options

_LINE_MAX = 64 << 20  # bytes of a message on standard input


class RefusedError(Exception):
    """A call asks for what the document or this server does not allow."""


async def answer(work: Awaitable[Any], failed: Mapping[str, Any], **more: Any) -> CallToolResult:
    """The result of a tool: JSON as text, as the original's clients read it, and as structured content."""
    try:
        result = await work
    except (RefusedError, CellgateError, CellError) as e:
        result = {**failed, "error": str(e)}
    if isinstance(result, dict):
        result = {**result, **more}
    content = result if isinstance(result, dict) else {"result": result}
    # As json.dumps(), whose encoder is Python as soon as it indents.
    text = TextContent(type="text", text=to_json(result, indent=2).decode())
    return CallToolResult(content=[text], structured_content=content, is_error="error" in content)


def together(servers: Mapping[str, MCPServer[Any]]) -> MCPServer[Any]:
    """One server with the tools of several. Names that two of them have get a prefix."""
    found = {name: server._tool_manager.list_tools() for name, server in servers.items()}
    count = Counter(tool.name for tools in found.values() for tool in tools)

    def named(surface: str, tool: Tool) -> Tool:
        name = tool.name if count[tool.name] == 1 else f"{surface.replace('-', '_')}_{tool.name}"
        return tool.model_copy(update={"name": name, "fn": tool.fn})

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for server in servers.values():
                if server.settings.lifespan:
                    await stack.enter_async_context(server.settings.lifespan(server))
            yield

    tools = [named(surface, tool) for surface, tools in found.items() for tool in tools]
    name = f"cellgate ({', '.join(servers)})"
    both = MCPServer(name, version="cellgate", tools=tools, lifespan=lifespan, log_level="WARNING")
    for server in servers.values():
        both._resource_manager._templates |= server._resource_manager._templates
    return both


def guarded(app: ASGIApp, token: str) -> ASGIApp:
    """Only requests with the token reach the server."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] != "lifespan" and not hmac.compare_digest(given, f"Bearer {token}".encode()):
            answer = PlainTextResponse("the token of --token-file is needed\n", 401, {"WWW-Authenticate": "Bearer"})
            await answer(scope, receive, send)
            return
        await app(scope, receive, send)

    return guard


class _Lines:
    """Standard input and output for the SDK, by the event loop. Its own way uses a thread for each line and write."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        if line := await self._reader.readline():
            return line.decode(errors="replace")
        raise StopAsyncIteration

    async def write(self, text: str) -> None:
        self._writer.write(text.encode())

    async def flush(self) -> None:
        await self._writer.drain()


async def _over_pipes(server: MCPServer[Any]) -> None:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(_LINE_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(0), "rb"))
    transport, flow = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(os.dup(1), "wb")
    )
    transport.set_write_buffer_limits(0)  # so that drain() waits for all
    # Only messages come from and go to the client, whatever else this process and its children read and print.
    with open(os.devnull) as null:
        os.dup2(null.fileno(), 0)
    os.dup2(2, 1)
    lines = cast(Any, _Lines(reader, asyncio.StreamWriter(transport, flow, None, loop)))
    async with stdio_server(lines, lines) as (read, write):
        low = server._lowlevel_server
        await low.run(read, write, low.create_initialization_options())


def serve(server: MCPServer[Any], options: Options) -> None:
    """Until standard input ends, or over HTTP until a signal."""
    if not options.http:
        ends = os.fstat(0), os.fstat(1)
        # One socket for both would end the output at the next input: asyncio takes that for the reader's end.
        if all(stat.S_ISFIFO(e.st_mode) or stat.S_ISSOCK(e.st_mode) for e in ends) and not os.path.samestat(*ends):
            anyio.run(_over_pipes, server)
        else:
            server.run("stdio")
        return
    import uvicorn

    host, port = options.http
    # For a loopback host the SDK refuses other names in Host and Origin, which web pages could use.
    app = server.streamable_http_app(host=host)
    uvicorn.run(guarded(app, options.token), host=host, port=port, log_level="warning")
