"""The tools of the MCP server of srt's Python port (sandbox-runtime 0.2.0 on PyPI).

Each execution has a session of its own, which ends with it: nothing that a command has started outlives it.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import signal
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult

from cellgate import CellgateError, CommandOutput, CommandResult, Denied, Event, Status, TimedOutError, aio
from cellgate.srt.config import NetworkConfig, ResourceLimitsConfig, SandboxRuntimeConfig
from cellgate.surfaces._options import Options, RefusedOptionError, env_number, name_ignored
from cellgate.surfaces._serve import RefusedError, answer

COMMAND_MAX = 100_000  # bytes; the machine's kernel takes 128 KiB
OUTPUT_MAX = 1 << 20
LINES_MAX = 10_000
STDIN_MAX = 1 << 20
KEPT = 50
VIOLATIONS_MAX = 20
GRACE_S = 5.0
_LINE = re.compile(r"[^\n]{0,8191}\n|[^\n]{1,8192}")
_PART_MAX = 8192
_PROCESSES = 512  # the default of sessions
_SEARCH_DEPTH = 3
_VARIABLES = {"SANDBOX_MAX_CONCURRENT", "SANDBOX_MAX_PER_SESSION", "SANDBOX_TIMEOUT"}
_OTHERWISE = {"SANDBOX_HOST": "--http", "SANDBOX_PORT": "--http", "SANDBOX_AUTH_TOKEN": "--token-file"}
_WIDER = ["allow_unix_sockets", "allow_all_unix_sockets", "allow_local_binding", "http_proxy_port", "socks_proxy_port"]
# Limits of a process that end it by a signal, by its exit status.
_ENDED_BY = {
    128 + signal.SIGXCPU: ("cpuSeconds", "seconds of CPU time"),
    128 + signal.SIGXFSZ: ("fileMb", "MB of a file"),
}


class _Network(NetworkConfig):
    """Hosts may have a port, as in --allow-host. The engine checks them when the session opens."""

    def check(self, name: str, value: object) -> None:
        pass


class Execution:
    """A command, with what it has written."""

    command: aio.Command | None = None
    task: asyncio.Task[None]

    def __init__(self, owner: str, text: str, interactive: bool, timeout: int, settings: Mapping[str, Any]) -> None:
        self.id = str(uuid.uuid4())
        self.owner, self.text, self.interactive, self.timeout = owner, text, interactive, timeout
        self.settings = settings
        self.roots = [Path(root) for root in settings["filesystem"]["allowWrite"]]
        self.status = "running"
        self.exit_code: int | None = None
        self.error: str | None = None
        self.events: list[dict[str, Any]] = []
        self.violations: list[str] = []
        self.started_at = time.time()
        self.completed_at: float | None = None
        self.cancelled = False
        self.started = asyncio.Event()
        """Its sandbox is complete, or it has failed."""
        self.ended = asyncio.Event()
        self._left = OUTPUT_MAX
        self._lines = 0
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(2)]

    def add(self, type: str, **more: Any) -> None:
        self.events.append({"type": type, "ts": time.time(), **more})

    def output(self, data: bytes, stderr: bool, last: bool = False) -> None:
        """An event for each line. What continues an unfinished line is added to its event."""
        within, stream = data[: self._left], "stderr" if stderr else "stdout"
        over = len(within) < len(data)
        self._left -= len(within)
        for line in _LINE.findall(self._decoders[stderr].decode(within, last)):
            before = self.events[-1] if self.events else {}
            if before.get("type") == stream and before["data"][-1] != "\n" and len(before["data"]) < _PART_MAX:
                before["data"] += line
            elif self._lines < LINES_MAX:
                self._lines += 1
                self.add(stream, data=line)
            else:
                over = True
        if over and self._lines <= LINES_MAX:
            self._left, self._lines = 0, LINES_MAX + 1
            reason = f"the output is over the limit of {OUTPUT_MAX} bytes or {LINES_MAX} lines: the rest was left out"
            self.add("resource_limit", reason=reason)

    def note(self, event: Event) -> None:
        if not isinstance(event, Denied):
            return
        if event.content.get("operation") == "limit":
            self.add("resource_limit", reason=event.text)
        elif event.text not in self.violations and len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(event.text)

    def finish(self, result: CommandResult | None, error: str) -> None:
        """The last event, by which the execution has ended."""
        for stderr in (False, True):
            self.output(b"", stderr, last=True)
        duration = round((time.time() - self.started_at) * 1000)
        code = None
        if result:
            code = result.exit_code if result.signal is None else 128 + result.signal
        if self.cancelled:
            self.status = "cancelled"
            self.add("cancelled")
        elif result and result.status is Status.TIMEOUT:
            self.status = "timeout"
            self.add("timeout", timeout_seconds=self.timeout, duration_ms=duration)
        elif code is not None:
            self.status, self.exit_code = "completed", code
            name, unit = _ENDED_BY.get(code, ("", ""))
            if limit := self.settings["cellgate"]["limits"].get(name):
                self.add("resource_limit", reason=f"the limit of {limit:g} {unit} was reached")
            self.add("exit", code=code, duration_ms=duration)
        else:
            self.status, self.error = "failed", (result.text if result else "") or error
            self.add("error", message=self.error)
        self.completed_at = time.time()
        self.started.set()
        self.ended.set()

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "status": self.status,
            "exit_code": self.exit_code,
            "output": [dict(e) for e in self.events],
        }
        if self.violations:
            found["violations"] = self.violations
        return found if self.error is None else found | {"error": self.error}

    def info(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": self.status,
            "command": self.text,
            "interactive": self.interactive,
            "started_at": self.started_at,
            "completed_at": self.completed_at,
        }

    def moves_root_of(self, other: Execution) -> bool:
        """Whether its command may replace a folder above one that the other's sandbox is to write."""
        return any(root != mine and root.is_relative_to(mine) for root in other.roots for mine in self.roots)


class Sandbox:
    """The server's tools."""

    def __init__(self, options: Options, env: Mapping[str, str]) -> None:
        for name, option in _OTHERWISE.items():
            if name in env:
                raise RefusedOptionError(f"{name}: use the option {option}, and remove the variable")
        name_ignored(env, _VARIABLES, "srt")
        self.concurrent = env_number(env, "SANDBOX_MAX_CONCURRENT", 10, 32)
        self.per_session = env_number(env, "SANDBOX_MAX_PER_SESSION", 5, 32)
        self.timeout = env_number(env, "SANDBOX_TIMEOUT", 300, 86400)
        self.options = options
        self.folder = (options.workspace or Path.cwd()).resolve()
        if self.folder == Path("/"):
            raise RefusedOptionError("the folder / cannot be the one of commands: name another by --workspace")
        self.roots = [self.folder] if options.workspace else []
        self.executions: dict[str, Execution] = {}

    # ------------------------------------------------------------ what a call may ask for

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a sandbox, narrowed by sandbox_config."""
        try:
            network = _Network.model_validate(given.get("network", {}))
            config = SandboxRuntimeConfig.model_validate({"filesystem": {}, **given, "network": network})
            roots = self._roots(config.filesystem.allow_write) if "filesystem" in given else self.roots
        except ValueError as e:
            raise RefusedError(f"Invalid sandbox config: {e}") from None
        wider = [f"network.{name}" for name in _WIDER if getattr(network, name)]
        wider += ["filesystem.allow_git_config"] if config.filesystem.allow_git_config else []
        wider += [n for n in ("enable_weaker_nested_sandbox", "cellgate") if getattr(config, n)]
        if wider:
            raise RefusedError(f"sandbox_config: {wider[0]} allows what this server's options do not")
        depth = config.mandatory_deny_search_depth or _SEARCH_DEPTH
        if depth < _SEARCH_DEPTH:
            raise RefusedError(f"sandbox_config: mandatory_deny_search_depth is at least {_SEARCH_DEPTH}")
        hosts = list(self.options.hosts)
        if "network" in given:
            hosts = network.allowed_domains
            named = f"the hosts of the server's --allow-host ({', '.join(self.options.hosts) or 'none'})"
            for host in hosts:
                if not any(covers(allowed, host) for allowed in self.options.hosts):
                    raise RefusedError(f"sandbox_config: network.allowed_domains: {host} is not among {named}")
        return {
            "network": {"allowedDomains": hosts, "deniedDomains": network.denied_domains, "strictAllowlist": True},
            "filesystem": {
                "allowWrite": [str(root) for root in roots],
                "denyWrite": config.filesystem.deny_write,
                "denyRead": config.filesystem.deny_read,
            },
            "ignoreViolations": config.ignore_violations or {},
            "mandatoryDenySearchDepth": depth,
            "cellgate": {
                "networkOff": not hosts,
                "limits": self._limits(config.resource_limits or ResourceLimitsConfig()),
            },
        }

    def _roots(self, entries: Sequence[str]) -> list[Path]:
        found: list[Path] = []
        for entry in entries:
            if entry.rstrip("/") == "/tmp":
                continue  # a private one can be written anyway
            path = self._inside(entry)
            if not any(path.is_relative_to(root) for root in self.roots):
                allowed = self.roots[0] if self.roots else "nothing, for it has no --workspace"
                raise RefusedError(f"sandbox_config: filesystem.allow_write: {entry}: the server may write {allowed}")
            found.append(path)
        return [p for p in dict.fromkeys(found) if not any(p != q and p.is_relative_to(q) for q in found)]

    def _inside(self, entry: str) -> Path:
        return Path(os.path.realpath(self.folder / os.path.expanduser(entry)))

    def _limits(self, given: ResourceLimitsConfig) -> dict[str, float]:
        memory: float = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 21
        limits = dict(self.options.limits)
        for name, key, most in (
            ("max_memory_mb", "memoryMb", memory),
            ("max_cpu_seconds", "cpuSeconds", inf),
            ("max_file_size_mb", "fileMb", inf),
            ("max_processes", "processes", _PROCESSES),
        ):
            value, most = getattr(given, name), self.options.limits.get(key, most)
            if value is None:
                continue
            if value > most:
                over = f"{value} is over the maximum of {most:g} (--limit {key} of the server)"
                raise RefusedError(f"sandbox_config: resource_limits.{name}: {over}")
            limits[key] = value
        return limits

    # ------------------------------------------------------------ executions

    def start(
        self,
        owner: str,
        command: str,
        timeout_seconds: int,
        interactive: bool,
        working_directory: str | None,
        environment: Mapping[str, str] | None,
        sandbox_config: Mapping[str, Any] | None,
    ) -> Execution:
        size = len(command.encode())
        if size > COMMAND_MAX:
            raise RefusedError(f"the command has {size} bytes; the maximum is {COMMAND_MAX}")
        if not 0 < timeout_seconds <= self.timeout:
            most = f"the maximum of {self.timeout} (SANDBOX_TIMEOUT)"
            raise RefusedError(f"timeout_seconds {timeout_seconds} is not from 1 to {most}")
        for text in (command, working_directory or "", *(environment or {}), *(environment or {}).values()):
            if "\0" in text:
                raise RefusedError("command, working_directory and environment cannot contain NUL")
        for name in environment or {}:
            if not name or "=" in name:
                raise RefusedError(f"environment: {name!r} is no name of a variable")
        cwd = self._inside(working_directory or ".")
        if not cwd.is_relative_to(self.folder) or not cwd.is_dir():
            raise RefusedError(f"working_directory {working_directory}: no folder in {self.folder}")
        settings = self.settings(sandbox_config or {})
        running = [e for e in self.executions.values() if not e.ended.is_set()]
        if len([e for e in running if e.owner == owner]) >= self.per_session:
            raise RefusedError(
                f"Maximum {self.per_session} concurrent executions per session (SANDBOX_MAX_PER_SESSION)"
            )
        if len(running) >= self.concurrent:
            raise RefusedError(f"Maximum {self.concurrent} concurrent executions (SANDBOX_MAX_CONCURRENT)")
        execution = Execution(owner, command, interactive, timeout_seconds, settings)
        for other in running:
            if other.moves_root_of(execution):
                why = f"execution {other.id}, which runs, can replace the folder; wait for it, or cancel it"
                raise RefusedError(f"sandbox_config: filesystem.allow_write: {why}")
        before = [e for e in running if execution.moves_root_of(e)]
        self.executions[execution.id] = execution
        execution.task = asyncio.create_task(self._run(execution, before, cwd, environment))
        return execution

    async def _run(
        self, execution: Execution, before: Sequence[Execution], cwd: Path, environment: Mapping[str, str] | None
    ) -> None:
        result, error = None, "the server ends"
        try:
            for other in before:
                await other.started.wait()
            # No cells run, so nothing has to keep them from starting programs.
            options = {**self.options.session, "exec": None, "settings": execution.settings}
            async with aio.Session(self.folder, on_event=execution.note, **options) as session:
                argv, stdin, timeout = ["bash", "-c", execution.text], execution.interactive, execution.timeout
                async with session.start(argv, env=environment, cwd=cwd, timeout=timeout, stdin=stdin) as command:
                    execution.command = command
                    execution.add("ready")
                    execution.started.set()
                    async for event in command:
                        if isinstance(event, CommandOutput):
                            execution.output(event.data, event.stderr)
                        elif isinstance(event, CommandResult):
                            result = event
        except Exception as e:
            error = str(e)
        finally:
            execution.finish(result, error)
            ended = [e.id for e in self.executions.values() if e.ended.is_set()]
            for old in ended[:-KEPT]:
                del self.executions[old]

    def find(self, owner: str, execution_id: str) -> Execution:
        execution = self.executions.get(execution_id)
        if execution is None or execution.owner != owner:
            raise RefusedError(f"Execution not found; the server keeps the last {KEPT} that have ended")
        return execution

    async def run(self, wait: bool, *call: Any) -> dict[str, Any]:
        execution = self.start(*call)
        if not wait:
            text = "Execution started. Use get_execution_output to retrieve results."
            return {"execution_id": execution.id, "status": "running", "message": text}
        try:
            await execution.ended.wait()
        except asyncio.CancelledError:  # the client has cancelled the call
            self.stop(execution)
            raise
        return {"execution_id": execution.id, **execution.result()}

    async def output(self, owner: str, execution_id: str, wait: bool) -> dict[str, Any]:
        execution = self.find(owner, execution_id)
        if wait:
            await execution.ended.wait()
        return execution.result()

    async def status(self, owner: str, execution_id: str) -> dict[str, Any]:
        execution = self.find(owner, execution_id)
        return {**execution.info(), "exit_code": execution.exit_code, "error_message": execution.error}

    async def list(self, owner: str) -> Any:
        return [e.info() for e in self.executions.values() if e.owner == owner]

    def stop(self, execution: Execution) -> None:
        """Ends all processes of an execution."""
        execution.cancelled = True
        if execution.command:
            execution.command.cancel()
        else:
            execution.task.cancel()

    async def cancel(self, owner: str, execution_id: str, force: bool) -> dict[str, Any]:
        execution = self.find(owner, execution_id)
        was_running = not execution.ended.is_set()
        if was_running and not force and execution.command:
            execution.cancelled = True
            with contextlib.suppress(CellgateError):  # it has just ended
                execution.command.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(execution.ended.wait(), GRACE_S)
        if not execution.ended.is_set():
            self.stop(execution)
            await execution.ended.wait()
        return {"success": True, "was_running": was_running}

    async def write(self, owner: str, execution_id: str, text: str) -> dict[str, Any]:
        execution = self.find(owner, execution_id)
        data = (text if text.endswith("\n") else text + "\n").encode()
        if not execution.interactive:
            raise RefusedError("Execution is not interactive")
        if len(data) > STDIN_MAX:
            raise RefusedError(f"input_data has {len(data)} bytes; the maximum is {STDIN_MAX}")
        await execution.started.wait()
        if execution.ended.is_set() or not execution.command:
            raise RefusedError("Execution already completed")
        try:
            await execution.command.write(data, timeout=0)
        except TimedOutError:
            text = f"the program has not read {STDIN_MAX} bytes of earlier input; nothing was sent"
            raise RefusedError(text) from None
        return {"success": True}

    async def close(self) -> None:
        running = [e for e in self.executions.values() if not e.ended.is_set()]
        for execution in running:
            execution.task.cancel()
        await asyncio.gather(*(e.task for e in running), return_exceptions=True)


def covers(allowed: str, host: str) -> bool:
    """Whether an entry of a list of hosts allows all that another one does."""
    (name, port), (wanted, wanted_port) = split_port(allowed), split_port(host)
    same = name == wanted or (name.startswith("*.") and wanted.endswith(name[1:]))
    return same and port in ("", wanted_port)


def split_port(entry: str) -> tuple[str, str]:
    """A host, in small letters, and its port, if it has one."""
    match = re.fullmatch(r"(\[.*\]|[^:]*)(?::(\d+))?", entry.lower())
    return (match[1], match[2] or "") if match else (entry.lower(), "")


def build(options: Options) -> MCPServer[Any]:
    """The server."""
    sandbox = Sandbox(options, os.environ)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncIterator[None]:
        yield
        await sandbox.close()

    server = MCPServer("Sandbox Execution Server", version="cellgate", lifespan=lifespan, log_level="WARNING")
    seconds = min(60, sandbox.timeout)

    def owner(context: Context[Any, Any]) -> str:
        """The MCP session; there is one over stdio, and for requests that name none."""
        return (context.headers or {}).get("mcp-session-id", "")

    @server.tool(description="Execute a command in an isolated sandbox.", structured_output=False)
    async def execute_code(
        command: str,
        context: Context[Any, Any],
        timeout_seconds: int = seconds,
        interactive: bool = False,
        working_directory: str | None = None,
        environment: dict[str, str] | None = None,
        sandbox_config: dict[str, Any] | None = None,
        wait_for_completion: bool = True,
    ) -> CallToolResult:
        more = (timeout_seconds, interactive, working_directory, environment, sandbox_config)
        return await answer(sandbox.run(wait_for_completion, owner(context), command, *more), {"status": "failed"})

    @server.tool(description="Start a command without waiting for its end.", structured_output=False)
    async def execute_code_async(
        command: str,
        context: Context[Any, Any],
        timeout_seconds: int = seconds,
        interactive: bool = False,
        working_directory: str | None = None,
        environment: dict[str, str] | None = None,
        sandbox_config: dict[str, Any] | None = None,
    ) -> CallToolResult:
        more = (timeout_seconds, interactive, working_directory, environment, sandbox_config)
        return await answer(sandbox.run(False, owner(context), command, *more), {"status": "failed"})

    @server.tool(description="Send a line of input to an interactive execution.", structured_output=False)
    async def send_stdin(execution_id: str, input_data: str, context: Context[Any, Any]) -> CallToolResult:
        return await answer(sandbox.write(owner(context), execution_id, input_data), {"success": False})

    @server.tool(description="Cancel an execution, with all its processes.", structured_output=False)
    async def cancel_execution(execution_id: str, context: Context[Any, Any], force: bool = False) -> CallToolResult:
        return await answer(sandbox.cancel(owner(context), execution_id, force), {"success": False})

    @server.tool(description="List the executions of this session.", structured_output=False)
    async def list_executions(context: Context[Any, Any]) -> CallToolResult:
        return await answer(sandbox.list(owner(context)), {})

    @server.tool(description="The status of an execution.", structured_output=False)
    async def get_execution_status(execution_id: str, context: Context[Any, Any]) -> CallToolResult:
        return await answer(sandbox.status(owner(context), execution_id), {})

    @server.tool(description="The output of an execution so far, or at its end.", structured_output=False)
    async def get_execution_output(execution_id: str, context: Context[Any, Any], wait: bool = False) -> CallToolResult:
        return await answer(sandbox.output(owner(context), execution_id, wait), {"output": []})

    return server
