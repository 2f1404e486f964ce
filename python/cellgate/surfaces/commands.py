"""`cellgate sandboxmcp`: the commands of sandboxmcp's document, for a running server of its tools.

The server listens in the user's runtime folder, which sandboxes do not see. A call is a line of JSON each way.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, TextIO

PREFIX = "sandboxmcp-"
CONNECT_S = 5.0
# After so long a command says what it waits for; and the time for an answer, with `run` beside the code's own.
SHOWN_S = 3.0
ANSWER_S = 60.0
ENDINGS = {".py": "python", ".js": "node", ".mjs": "node", ".cjs": "node", ".sh": "shell", ".bash": "shell"}
OPTIONS: dict[str, dict[str, Any]] = {
    "--namespace": {"default": "default"},
    "--language": {"choices": ("python", "node", "shell")},
    "--timeout": {"type": float},
    "--id": {"required": True},
    "--limit": {"type": int, "default": 50},
    "--ram": {"type": int},
    "--cpu": {"type": float},
    "--processes": {"type": int},
    "--no-auto-fix": {"action": "store_true"},
}
# Words, their arguments and options, and what it is for.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("file --language --timeout --namespace", "runs a file"),
    "queue status": ("", "executions that run and wait"),
    "session list": ("", "its sessions"),
    "session kill": ("--id", "ends a session"),
    "config": ("", "limits, network and workspace"),
    "vault add": ("key --namespace", "a secret, whose value is read from standard input"),
    "vault list": ("--namespace", "names of secrets"),
    "vault delete": ("key --namespace", "removes a secret"),
    "stats": ("", "queue, sessions and kept results"),
    "validate": ("file --language --no-auto-fix", "checks a file without running it"),
    "audit": ("--namespace --limit", "the last entries"),
    "inspect": ("--namespace", "names of secrets, and sessions with their variables"),
    "artifacts": ("request_id --namespace", "files that an execution has made"),
    "bridge": ("session_id key value --namespace", "sets a variable of a session to a JSON value"),
    "limits": ("--ram --cpu --timeout --processes", "changes the limits of later executions"),
    "egress": ("domain --namespace", "lets the code of a namespace connect to a domain"),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("cellgate sandboxmcp", description=__doc__, allow_abbrev=False)
    parser.add_argument("--server", metavar="PID", help="which server, where several run")
    first = parser.add_subparsers(required=True, metavar="COMMAND")
    groups: dict[str, Any] = {}
    for name, (arguments, text) in COMMANDS.items():
        *group, word = name.split()
        parent = first
        if group:
            if group[0] not in groups:
                groups[group[0]] = first.add_parser(group[0], help=f"see {group[0]} --help").add_subparsers(
                    required=True
                )
            parent = groups[group[0]]
        command = parent.add_parser(word, help=text, description=text, allow_abbrev=False)
        command.set_defaults(command=name)
        for argument in arguments.split():
            command.add_argument(argument, **OPTIONS.get(argument, {}))
    return parser


def _connect(wanted: str | None) -> tuple[str, socket.socket]:
    """Of one server its process and a connection."""
    found: dict[str, socket.socket] = {}
    for path in Path(os.environ["CELLGATE_RUNTIME"]).glob(f"{PREFIX}*"):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(CONNECT_S)
        try:
            peer.connect(str(path))
        except OSError:  # a server that was killed, or takes no calls
            continue
        found[path.name.removeprefix(PREFIX)] = peer
    if wanted:
        found = {pid: peer for pid, peer in found.items() if pid == wanted}
    if len(found) != 1:
        running = f"several run: --server {' or '.join(sorted(found))}" if found else "none runs that answers"
        sys.exit(f"cellgate sandboxmcp: of `cellgate mcp serve --compat sandboxmcp` {running}")
    return found.popitem()


def _call(server: str | None, tool: str, seconds: float = ANSWER_S, **arguments: Any) -> Any:
    """The server ends what it does for a call whose connection is closed."""
    pid, peer = _connect(server)
    shown, end, line = time.monotonic() + SHOWN_S, time.monotonic() + seconds, bytearray()
    with peer:
        peer.sendall(json.dumps({"tool": tool, "arguments": arguments}).encode() + b"\n")
        while not line.endswith(b"\n"):
            left = min(shown, end) - time.monotonic()
            if left <= 0 and shown < end:
                print(f"cellgate sandboxmcp: waiting for the server (process {pid}), {seconds:g} s", file=sys.stderr)
                shown = end
            elif left <= 0:
                sys.exit(f"cellgate sandboxmcp: the server (process {pid}) has not answered in {seconds:g} s")
            peer.settimeout(max(left, 0.001))
            try:
                part = peer.recv(1 << 20)
            except TimeoutError:
                continue
            if not part:
                sys.exit("cellgate sandboxmcp: the server has ended")
            line += part
    return json.loads(line)


def _call_of(given: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The tool of a command, or what only commands may do, and its arguments."""
    name, more = given.command, {"namespace": given.namespace} if "namespace" in given else {}
    if name in ("run", "validate"):
        file = Path(given.file)
        language = given.language or ENDINGS.get(file.suffix) or sys.exit(f"{file}: which --language?")
        more |= {"code": file.read_text(), "language": language}
        return (
            ("validate_code", more)
            if name == "validate"
            else ("execute_code", more | {"timeout_seconds": given.timeout})
        )
    if name == "vault add":
        return "vault_add", {**more, "key": given.key, "value": sys.stdin.read().removesuffix("\n")}
    if name == "bridge":
        return "bridge_data", {**more, "to_session": given.session_id, "data": {given.key: json.loads(given.value)}}
    if name == "limits":
        sizes = {"max_ram_mb": given.ram, "max_cpu_cores": given.cpu, "timeout_seconds": given.timeout}
        return "set_resource_limits", {**sizes, "max_processes": given.processes}
    tools = {"stats": "sandbox_stats", "queue status": "sandbox_stats", "audit": "audit_execution"}
    tools |= {"inspect": "inspect_state", "artifacts": "get_artifacts"}
    for argument in ("key", "id", "limit", "request_id", "domain"):
        if argument in given:
            more["session_id" if argument == "id" else argument] = getattr(given, argument)
    return tools.get(name, name.replace(" ", "_")), more


def _shown(text: str, to: TextIO) -> str:
    """A text of code: what would control a terminal is spelled out there."""
    if not to.isatty():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def main() -> None:
    """Prints the answer as JSON; of `run` the output, with the exit status of the code."""
    given = _parser().parse_args()
    try:
        tool, arguments = _call_of(given)
    except (OSError, ValueError) as e:
        sys.exit(f"cellgate sandboxmcp: {e}")
    seconds = ANSWER_S
    if given.command == "run":
        seconds += given.timeout or _call(given.server, "config")["limits"]["timeout_seconds"]
    try:
        found = _call(given.server, tool, seconds, **arguments)
    except OSError as e:
        sys.exit(f"cellgate sandboxmcp: {e or type(e).__name__}")
    if given.command == "run" and "stdout" in found:
        print(_shown(found["stdout"], sys.stdout), end="")
        print(_shown(found["stderr"], sys.stderr), end="", file=sys.stderr)
        sys.exit(found["exit_code"])
    if isinstance(found, dict) and "error" in found:
        sys.exit(f"cellgate sandboxmcp: {_shown(str(found['error']), sys.stderr)}")
    if given.command == "queue status":
        found = found["queue"]
    if given.command == "validate" and given.no_auto_fix:
        found |= {"fixed_code": None, "fixes_applied": []}
    print(json.dumps(found, indent=2))
    sys.exit(int(given.command == "validate" and not found["valid"]))


if __name__ == "__main__":
    main()
