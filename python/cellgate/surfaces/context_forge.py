"""The tools of context-forge's python_sandbox_server, as its document describes them.

Each execution has a session of its own, which ends with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult

from cellgate import CellgateError, Denied, Event, ExecuteResult, Execution, Status, aio
from cellgate._imports import ADVISORY, MODULES, hints, permitted, scope_of, why_not
from cellgate.surfaces._options import Options, RefusedOptionError, env_number, name_ignored
from cellgate.surfaces._profiles import ENABLED_BY, VARIABLES, empty_folder, hook, settings, summary
from cellgate.surfaces._serve import RefusedError, answer
from cellgate.validate import NOTICE, validate_code_async

TIMEOUT_MAX = 300
CODE_MAX = 100_000
MEMORY_MIN = 64 << 20  # what a kernel needs
AT_ONCE = 4
WARNINGS_MAX = 20
_PREPARE_S = 60.0
_LOOKUP_S = 5.0
_IMAGE = "python-sandbox:latest"
# Queries the kernels' environment: folders that must stay visible, and modules that are absent.
_PROBE = """
import sys as _s, importlib.machinery as _m
facts = {"folders": [_s.prefix, _s.base_prefix, *filter(None, _s.path)], "missing": [n for n in NAMES
    if n.partition(".")[0] not in _s.builtin_module_names and not _m.PathFinder.find_spec(n.partition(".")[0])]}
"""
# Private to the session; its path depends on the tier.
_PRIVATE = "import os\nos.chdir(os.environ.get('TMPDIR', '/tmp'))\ndel os\n"


@dataclass(frozen=True)
class Config:
    """The variables SANDBOX_* of the document."""

    timeout: int
    max_output: int
    memory_limit: str
    enabled: tuple[str, ...]
    listed: tuple[str, ...] | None
    """SANDBOX_ALLOWED_IMPORTS, in place of the profiles' lists."""

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Config:
        def flag(name: str) -> bool:
            text = env.get(name, "false").lower()
            if text not in ("true", "false", "1", "0"):
                raise RefusedOptionError(f"{name}={text}: true or false")
            return text in ("true", "1")

        if env.get("SANDBOX_CONTAINER_IMAGE", _IMAGE) != _IMAGE:
            raise RefusedOptionError(
                "SANDBOX_CONTAINER_IMAGE: no container runs here, so the packages of an image would be missing:"
                " --kernel-env names an environment that has them"
            )
        flag("SANDBOX_ENABLE_CONTAINER_MODE")  # the sandbox of both modes is the same
        known = {"TIMEOUT", "MAX_OUTPUT_SIZE", "ALLOWED_IMPORTS", "DEFAULT_MEMORY_LIMIT", "ENABLE_CONTAINER_MODE"}
        known = {f"SANDBOX_{name}" for name in known} | {"SANDBOX_CONTAINER_IMAGE", *VARIABLES.values()}
        name_ignored(env, known, "context-forge")
        listed = tuple(m.strip() for m in env.get("SANDBOX_ALLOWED_IMPORTS", "").split(",") if m.strip())
        memory = env.get("SANDBOX_DEFAULT_MEMORY_LIMIT", "128m")
        try:
            memory_bytes(memory)
        except RefusedError as e:
            raise RefusedOptionError(f"SANDBOX_DEFAULT_MEMORY_LIMIT: {e}") from None
        return cls(
            env_number(env, "SANDBOX_TIMEOUT", 30, TIMEOUT_MAX),
            env_number(env, "SANDBOX_MAX_OUTPUT_SIZE", 1 << 20, 64 << 20),
            memory,
            ("basic", *(name for name, variable in VARIABLES.items() if flag(variable))),
            listed or None,
        )

    @property
    def modules(self) -> list[str]:
        return list(self.listed) if self.listed else [m for name in self.enabled for m in MODULES[name]]

    @property
    def scope(self) -> str:
        return "SANDBOX_ALLOWED_IMPORTS" if self.listed else scope_of(self.enabled)


def memory_bytes(text: str) -> int:
    """Docker's form: 128m, 1g, 67108864."""
    match = re.fullmatch(r"(\d{1,15})([bkmg]?)b?", text.strip().lower())
    if not match:
        raise RefusedError(f"memory_limit {text!r} is no size such as 128m or 1g")
    size = int(match[1]) << {"": 0, "b": 0, "k": 10, "m": 20, "g": 30}[match[2]]
    if size < MEMORY_MIN:
        raise RefusedError(f"memory_limit {text} is less than the {MEMORY_MIN >> 20}m that a Python kernel needs")
    return size


class Sandbox:
    """The server's tools."""

    def __init__(self, options: Options, config: Config) -> None:
        self.options = options
        self.config = config
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        self.memory_max = int(options.limits.get("memoryMb", 0)) << 20 or machine
        self.memory = memory_bytes(config.memory_limit)
        if self.memory > self.memory_max:
            raise RefusedOptionError(
                f"SANDBOX_DEFAULT_MEMORY_LIMIT ({config.memory_limit}) is over the maximum of"
                f" {self.memory_max >> 20}m (--limit memoryMb): set it to less"
            )
        self.writable = options.workspace if "filesystem" in config.enabled else None
        self.asked = "network" in config.enabled and bool(options.session.get("policy"))
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._preparing: asyncio.Task[dict[str, Any]] | None = None

    def _session(self, settings: Any, memory: int) -> aio.Session:
        # A write over the session's own limit is lost as a whole, so that is more than what run() keeps.
        output = int(self.options.limits.get("outputMb", 0)) << 20 or 2 * self.config.max_output + (1 << 20)
        options = {"memory_bytes": memory, "output_bytes": output, "ask_egress": self.asked, **self.options.session}
        options["exec"] = options["exec"] or "deny"
        return aio.Session(self.writable or empty_folder(), settings=settings, **options)

    async def _prepare(self) -> dict[str, Any]:
        """Facts of the kernels' environment and the settings; opens one session, after which others are ready."""
        config, options = self.config, self.options
        async with self._session(settings((), (), False, self.writable, ()) | {"filesystem": _READ_ALL}, 0) as session:
            names = [m for modules in MODULES.values() for m in modules]
            (await session.run(f"NAMES = {names!r}\n{_PROBE}", silent=True, history=False, timeout=_PREPARE_S)).check()
            facts = (await session.get_variables("facts"))["facts"]
        folders = [Path(f) for f in facts["folders"]]
        needed = [*folders, *(f.resolve() for f in folders), *([self.writable] if self.writable else [])]
        facts["settings"] = settings(config.enabled, options.hosts, self.asked, self.writable, needed)
        facts["settings"]["cellgate"]["limits"] |= options.limits
        async with self._session(facts["settings"], self.memory):
            return dict(facts)

    async def facts(self) -> dict[str, Any]:
        task = self._preparing
        if not task or (task.done() and (task.cancelled() or task.exception())):  # again after a failure
            task = self._preparing = asyncio.create_task(self._prepare())
        return await asyncio.shield(task)

    # ------------------------------------------------------------ execute_code

    async def execute(
        self, code: str, timeout: float, capture: bool, allowed_imports: list[str] | None, memory_limit: str
    ) -> dict[str, Any]:
        memory = self._check(code, timeout, memory_limit)
        allowed, scope = self.config.modules, self.config.scope
        if allowed_imports is not None:
            for module in allowed_imports:
                if not permitted(module, [], allowed):
                    raise RefusedError(f"allowed_imports: {self._why(module)}")
            allowed, scope = allowed_imports, "allowed_imports of this call"
        denied: list[str] = []

        shown = False

        def note(event: Event) -> None:
            nonlocal shown
            shown = shown or isinstance(event, ExecuteResult)
            if isinstance(event, Denied) and event.text not in denied:
                denied.append(event.text)

        facts = await self.facts()
        async with self._slots, self._session(facts["settings"], memory) as session:
            prelude = hook(
                allowed, scope, {} if allowed_imports is not None else hints(self.config.enabled, ENABLED_BY)
            )
            if "filesystem" in self.config.enabled and not self.writable:
                prelude = _PRIVATE + prelude
            (await session.run(prelude, silent=True, history=False, timeout=_PREPARE_S)).check()
            start = time.perf_counter()
            limit = self.config.max_output
            done = await session.run(code, timeout=timeout, variables=True, on_event=note, output_limit=limit)
            spent = time.perf_counter() - start
            result = {
                "success": done.ok,
                "stdout": done.stdout if capture else "",
                "stderr": done.stderr if capture else "",
                "execution_time": round(spent, 6),
                "security_warnings": denied[:WARNINGS_MAX],
            }
            if done.truncated:
                result["truncated"] = f"output over {self.config.max_output} characters was left out"
            if not done.ok:
                return result | self._failure(done, timeout, memory_limit)
            made = [v for v in (done.variables or {}).get("made", ()) if v.get("type") != "module"]
            names = [str(v.get("name")) for v in made]
            return result | {"result": await self._value(session, shown, code, names), "variables": names}

    def _check(self, code: str, timeout: float, memory_limit: str) -> int:
        """Returns the memory in bytes. What is over a maximum is refused, for a smaller value is not what was asked."""
        if len(code) > CODE_MAX:
            raise RefusedError(f"the code has {len(code)} characters; the maximum is {CODE_MAX}")
        if not 0 < timeout <= TIMEOUT_MAX:
            raise RefusedError(f"timeout {timeout:g} is not from 0 to the maximum of {TIMEOUT_MAX} seconds")
        memory = memory_bytes(memory_limit)
        if memory > self.memory_max:
            most = f"{self.memory_max >> 20}m (--limit memoryMb of the server)"
            raise RefusedError(f"memory_limit {memory_limit} is over the maximum of {most}")
        return memory

    def _why(self, module: str) -> str:
        return why_not(module, self.config.scope, hints(self.config.enabled, ENABLED_BY))

    def _failure(self, done: Execution, timeout: float, memory_limit: str) -> dict[str, Any]:
        if done.status is Status.TIMEOUT:
            return {"error": f"Execution timed out after {timeout:g} seconds"}
        if done.status is not Status.ERROR or done.error is None:
            return {"error": f"{done.text or done.status} (memory_limit was {memory_limit})"}
        error = done.error
        text = f"{error.ename}: {error.evalue}"
        if error.ename in ("SyntaxError", "IndentationError", "TabError"):
            text = f"Syntax error: {error.evalue}"
        elif error.ename == "MemoryError":
            text = f"MemoryError: the code has reached its memory_limit of {memory_limit}"
        blocked = {"security_event": "blocked_import"} if ADVISORY in error.evalue else {}
        limit = self.config.max_output
        return {"error": text[:limit], "traceback": "\n".join(error.traceback)[-limit:], **blocked}

    async def _value(self, session: aio.Session, shown: bool, code: str, names: Sequence[str]) -> Any:
        """The last expression, where its value was `shown`, or else the variable result, output or _."""
        name = next((n for n in ("result", "output") if n in names), None)
        if shown or (name is None and re.search(r"\b_\b", code)):
            name = "result"
            await session.run("result = _", silent=True, history=False, timeout=_LOOKUP_S)
        if name is None:
            return None
        try:
            value = (await session.get_variables(name, lossy=True, timeout=_LOOKUP_S))[name]
        except CellgateError as e:
            return f"[the result has no form in JSON: {e}]"
        size = len(json.dumps(value))
        if size > self.config.max_output:
            return f"[a result of {size} characters was left out: the maximum is {self.config.max_output}]"
        return None if value == "" and not shown and name not in names else value

    # ------------------------------------------------------------ the other tools

    async def validate(self, code: str) -> dict[str, Any]:
        hosts = self.options.hosts if "network" in self.config.enabled else ()
        facts = await self.facts()
        async with self._slots, self._session(facts["settings"], self.memory) as session:
            found = await validate_code_async(
                code, session=session, allowed_imports=self.config.modules, hosts=hosts or []
            )
        errors = [issue for issue in found["issues"] if issue["severity"] == "error"]
        blocked = [issue for issue in errors if issue["rule"] == "import-not-allowed"]
        message = "Code contains restricted operations" if blocked else "Code has syntax errors"
        advice = ["Some operations may be restricted in sandbox environment"] if found["issues"] else []
        for issue in blocked:
            module = issue["message"].split("'")[1]
            advice.append(self._why(module))
        if found["fixed_code"]:
            advice.append(f"fixed_code has what is missing: {'; '.join(found['fixes_applied'])}")
        validation = {
            "valid": found["valid"],
            "errors": [f"Line {issue['line']}: {issue['message']}" for issue in errors],
            "message": message if errors else "Code passed validation",
            **{k: v for k, v in found.items() if k not in ("valid", "analysis")},
        }
        return {"validation": validation, "analysis": found["analysis"], "recommendations": [*advice, NOTICE]}

    async def info(self) -> dict[str, Any]:
        facts = await self.facts()
        config = self.config
        async with self._slots, self._session(facts["settings"], self.memory) as session:
            enforced = session.info
        profiles = {
            name: {
                "enabled": name in config.enabled,
                "modules": modules,
                "not_installed": [m for m in modules if m in facts["missing"]],
                "sandbox": summary(name, self.options.hosts, self.options.workspace),
            }
            for name, modules in MODULES.items()
        }
        return {
            "success": True,
            "security_profiles": profiles,
            "allowed_imports": {"modules": config.modules, "enforcement": ADVISORY},
            "resource_limits": {
                "timeout": config.timeout,
                "max_timeout": TIMEOUT_MAX,
                "max_output_size": config.max_output,
                "memory_limit": config.memory_limit,
                "max_memory_limit": f"{self.memory_max >> 20}m",
                "enforced": enforced["limits"],
            },
            "container_mode": {"available": True, "enabled": True, "runtime": "cellgate's sandbox, in either mode"},
            "sandbox": {k: enforced.get(k) for k in ("tier", "layers", "exec", "python")},
        }


_FAILED = {"success": False}
_READ_ALL: dict[str, list[str]] = {"allowWrite": [], "denyWrite": [], "denyRead": []}


def build(options: Options) -> MCPServer[Any]:
    """The server."""
    config = Config.read(os.environ)
    sandbox = Sandbox(options, config)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncIterator[None]:
        warm = asyncio.create_task(sandbox.facts())
        warm.add_done_callback(lambda task: task.cancelled() or task.exception())  # a call reports it
        yield
        warm.cancel()

    server = MCPServer(
        "python-sandbox-server", version="cellgate", lifespan=lifespan, log_level="WARNING", instructions=_INSTRUCTIONS
    )

    @server.tool(description="Execute Python code in a sandbox of its own.", structured_output=False)
    async def execute_code(
        code: str,
        timeout: float = config.timeout,
        capture_output: bool = True,
        allowed_imports: list[str] | None = None,
        use_container: bool = False,
        memory_limit: str = config.memory_limit,
    ) -> CallToolResult:
        work = sandbox.execute(code, timeout, capture_output, allowed_imports, memory_limit)
        return await answer(work, _FAILED, execution_id=str(uuid.uuid4()))

    @server.tool(description="Validate Python code without executing it.", structured_output=False)
    async def validate_code(code: str) -> CallToolResult:
        return await answer(sandbox.validate(code), _FAILED)

    async def get_sandbox_info() -> CallToolResult:
        return await answer(sandbox.info(), _FAILED)

    for name in ("get_sandbox_info", "list_capabilities"):
        text = "Capabilities and limits of the sandbox, as they are enforced now."
        server.add_tool(get_sandbox_info, name=name, description=text, structured_output=False)
    return server


_INSTRUCTIONS = (
    "Each execution has a fresh Python in a sandbox of its own; nothing stays. The value of the last expression is the"
    " result, or else the variable result, output or _."
)
