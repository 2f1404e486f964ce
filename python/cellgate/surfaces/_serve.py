"""What the surfaces share: the options of the command line, and the transports."""

from __future__ import annotations

import argparse
import asyncio
import hmac
import ipaddress
import json
import os
import secrets
import stat
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
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

TOKEN_MIN = 32
_LINE_MAX = 64 << 20  # bytes of a message on standard input


@dataclass(frozen=True)
class Options:
    """The command line: what the server's owner allows, which no surface and no call goes beyond."""

    surfaces: tuple[str, ...]
    workspace: Path | None = None
    hosts: tuple[str, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)
    """As in settings files: memoryMb, cores..."""
    session: dict[str, Any] = field(default_factory=dict)
    """Options of every session."""
    http: tuple[str, int] | None = None
    token: str = ""
    ask: bool = False
    """The user decides what the options leave open, where the client shows forms."""


class RefusedOptionError(ValueError):
    """The command line or the environment asks for what this server does not do; the text says why."""


class RefusedError(Exception):
    """A call asks for what the document or this server does not allow."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise RefusedOptionError(f"{message}: with --compat only the options of docs/surfaces.md can be used")


def parse(argv: Sequence[str], surfaces: Sequence[str]) -> Options:
    """The command line of `cellgate mcp serve`, which the command has checked."""
    p = _Parser(prog="cellgate mcp serve", allow_abbrev=False, add_help=False)
    p.add_argument("--compat", choices=(*surfaces, "ipybox"), required=True, action="append")
    for name in ("workspace", "tier", "exec", "audit", "kernel-env", "http", "token-file"):
        p.add_argument(f"--{name}")
    p.add_argument("--sign-artifacts", action="store_true")
    p.add_argument("--approve", choices=("ask", "none"), default="none")
    for name in ("allow-host", "policy", "limit"):
        p.add_argument(f"--{name}", action="append", default=[])
    given = p.parse_args(argv)
    if "ipybox" in given.compat:
        raise RefusedOptionError("--compat ipybox: its tools are those of `cellgate mcp serve --plain-results`")
    if "srt" in given.compat and (given.exec or given.policy):
        # Both are about cells, and this surface runs commands.
        raise RefusedOptionError("--exec and --policy have no effect on the commands of --compat srt")
    if given.approve == "ask" and "sandboxmcp" not in given.compat:
        raise RefusedOptionError("--approve ask: only --compat sandboxmcp has tools that ask")
    session = {"exec": given.exec, "tier": given.tier, "audit": given.audit, "python": given.kernel_env}
    session["sign_artifacts"] = given.sign_artifacts
    session["policy"] = [Path(f).resolve(strict=True) for f in given.policy] or None
    limits = {name: json.loads(number) for name, _, number in (limit.partition("=") for limit in given.limit)}
    address, token = None, ""
    if given.http:
        address = _loopback(given.http)
        if not given.token_file:
            raise RefusedOptionError("--http needs --token-file FILE here: the token that requests bring")
        token = read_token(Path(given.token_file))
        session["hide"] = [given.token_file]
    workspace = Path(given.workspace).resolve(strict=True) if given.workspace else None
    ask = given.approve == "ask"
    names = tuple(dict.fromkeys(given.compat))
    return Options(names, workspace, tuple(given.allow_host), limits, session, address, token, ask)


def _loopback(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    try:
        if ipaddress.ip_address(host.strip("[]")).is_loopback:
            return host.strip("[]"), int(port)
    except ValueError:
        pass
    raise RefusedOptionError(
        f"--http {text}: with --compat it is 127.0.0.1:PORT or [::1]:PORT, nothing that others reach"
    )


def read_token(file: Path) -> str:
    """The token in the file, which is made if it is absent. Only its owner may read it."""
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if file.stat().st_mode & 0o077:
            raise RefusedOptionError(f"--token-file {file}: others can read it: chmod 600 {file}") from None
    else:
        with os.fdopen(fd, "w") as new:
            new.write(secrets.token_urlsafe(TOKEN_MIN) + "\n")
    token = file.read_text().strip()
    if len(token) < TOKEN_MIN:
        raise RefusedOptionError(f"--token-file {file}: the token has {len(token)} characters; at least {TOKEN_MIN}")
    return token


def env_number(env: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A variable that is a whole number from 1 to `most`."""
    text = env.get(name, str(default))
    if not text.isdecimal() or not 0 < int(text) <= most:
        raise RefusedOptionError(f"{name}={text}: a whole number from 1 to {most}")
    return int(text)


def name_ignored(env: Mapping[str, str], known: Collection[str], server: str) -> None:
    """Names the variables SANDBOX_* that have no meaning here."""
    for name in sorted(n for n in env if n.startswith("SANDBOX_") and n not in known):
        print(f"cellgate mcp serve: {name} is no variable of --compat {server}: ignored", file=sys.stderr)


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
