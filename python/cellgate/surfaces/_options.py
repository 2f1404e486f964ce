"""The options of `cellgate mcp serve --compat`: nothing of the MCP SDK, whose import takes most of a second."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import secrets
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOKEN_MIN = 32


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
