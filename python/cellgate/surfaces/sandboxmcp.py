"""sandboxmcp's tools by the options of `cellgate mcp serve --compat sandboxmcp`."""

from __future__ import annotations

import os
from typing import Any

from mcp.server.mcpserver import MCPServer

from cellgate.sandboxmcp.core.models import ResourceLimits
from cellgate.sandboxmcp.factory import SandboxFactory, parameters
from cellgate.sandboxmcp.mcp_server import ask_client, tools
from cellgate.sandboxmcp.pipeline import SandboxPipeline
from cellgate.sandboxmcp.security.resource import ResourceGuard
from cellgate.surfaces._options import Options, RefusedOptionError

_LIMITS = {"memoryMb": "max_ram_mb", "cores": "max_cpu_cores", "processes": "max_processes"}
_MORE = ("fileMb", "openFiles", "cpuSeconds")


def pipeline(options: Options) -> SandboxPipeline:
    """By the document's variables, and the command line, which sets the caps."""
    try:
        found = parameters(os.environ)
        network = (
            found.pop("enable_network", False) or bool(options.hosts or options.session.get("policy")) or options.ask
        )
        session = {k: v for k, v in options.session.items() if v is not None}
        sandbox = SandboxFactory.create(
            **found, enable_network=network, allowed_domains=options.hosts, session_options=session
        )
    except ValueError as e:
        raise RefusedOptionError(str(e)) from None
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 21
    most: dict[str, float] = {"max_ram_mb": machine}
    for name, number in options.limits.items():
        if name in _LIMITS:
            most[_LIMITS[name]] = number
        elif name not in _MORE:
            raise RefusedOptionError(f"--limit {name}: with --compat sandboxmcp {', '.join((*_LIMITS, *_MORE))}")
    sandbox.caps = ResourceGuard(**most)
    limits = {name: min(value, most.get(name, value)) for name, value in sandbox.limits}
    sandbox.limits = ResourceLimits(**limits)
    sandbox.more_limits = {name: n for name, n in options.limits.items() if name in _MORE}
    sandbox.workspace = options.workspace
    if options.ask:
        ask_client(sandbox)
    else:
        sandbox.network.questions.ask = _refuse
    return sandbox


async def _refuse(domain: str, namespace: str) -> bool:
    return False


def build(options: Options) -> MCPServer[Any]:
    """The server."""
    return tools(pipeline(options))
