"""The 23 MCP tools of a pipeline."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp_types import CallToolResult, ResourceLink
from pydantic import BaseModel, Field

from cellgate import CellgateError, render
from cellgate.sandboxmcp.core.models import ExecutionRequest, Language, ResourceLimits, SessionStatus
from cellgate.sandboxmcp.pipeline import ARTIFACTS, READ_MAX, RefusedError, SandboxPipeline
from cellgate.surfaces._serve import answer
from cellgate.surfaces.commands import PREFIX

ASK_S = 300.0
"""The longest wait for an answer of the user, after which a question is refused."""
_CALL: ContextVar[Context[Any, Any] | None] = ContextVar("call", default=None)
_COMMAND_MAX = 64 << 20  # bytes of a line of `cellgate sandboxmcp`
Words = Literal["python", "node", "shell"]


class _Decision(BaseModel):
    decision: Literal["refuse", "approve"] = Field("refuse", title="Decision")


class SandboxMCPServer:
    """`run()` serves a pipeline on standard input and output."""

    def __init__(self, sandbox: SandboxPipeline) -> None:
        self._sandbox = sandbox

    def run(self, transport: str = "stdio") -> None:
        if transport != "stdio":
            raise ValueError(f"transport={transport!r}: only stdio; `cellgate mcp serve --http` serves Streamable HTTP")
        tools(self._sandbox).run("stdio")


def ask_client(sandbox: SandboxPipeline) -> None:
    """Lets the user of the MCP client decide, by a form. A client that has no forms refuses."""

    async def ask(question: str) -> bool:
        context = _CALL.get()
        if context is None:  # a command: its terminal is another one
            return False
        capabilities = context.session.client_params.capabilities if context.session.client_params else None
        if capabilities is None or capabilities.elicitation is None:
            return False
        try:
            async with asyncio.timeout(ASK_S):
                found = await context.elicit(render(question), _Decision)
        except TimeoutError:
            return False
        return found.action == "accept" and found.data.decision == "approve"

    async def domain(name: str, namespace: str) -> bool:
        return await ask(f"Let the code of namespace {namespace} connect to {name}, until the server ends?")

    sandbox.ask, sandbox.network.questions.ask = ask, domain


def plain(model: BaseModel) -> dict[str, Any]:
    found: dict[str, Any] = model.model_dump(mode="json")
    return found


async def _call(tool: Callable[..., Awaitable[Any]], context: Context[Any, Any], **arguments: Any) -> CallToolResult:
    """Runs a tool, whose questions go to the client of the call."""

    async def work() -> Any:
        try:
            return await tool(**arguments)
        except ValueError as e:
            raise RefusedError(str(e)) from None

    token = _CALL.set(context)
    try:
        found = await answer(work(), {})
        for file in (found.structured_content or {}).get("artifacts", ()):
            if file["uri"]:
                link = ResourceLink(type="resource_link", name=file["name"], uri=file["uri"], size=file["size_bytes"])
                found.content.append(link)
        return found
    finally:
        _CALL.reset(token)


def _of_commands(sandbox: SandboxPipeline) -> dict[str, Callable[..., Awaitable[Any]]]:
    """What a person does at a terminal, and an agent cannot."""

    async def vault_add(namespace: str, key: str, value: str) -> Any:
        await sandbox.vault_add(namespace, key, value)
        return {"added": key}

    async def vault_delete(namespace: str, key: str) -> Any:
        await sandbox.vault_delete(namespace, key)
        return {"deleted": key}

    async def session_list() -> Any:
        return [plain(s) for s in await sandbox.list_sessions()]

    async def session_kill(session_id: str) -> Any:
        """Also of a beginning that no other session has."""
        found = [s for s in await sandbox.list_sessions() if s.id.startswith(session_id)]
        found = [s for s in found if s.status is not SessionStatus.killed]
        if len(found) != 1:
            raise RefusedError(f"{len(found)} sessions have an id that begins with {session_id}")
        await sandbox.kill_session(found[0].id, found[0].namespace)
        return {"killed": found[0].id}

    async def config() -> Any:
        network = {"enabled": sandbox.network.enabled, "allowed_domains": sandbox.network.allowed_domains}
        limits = {"limits": plain(sandbox.limits), "maximum": sandbox.caps.most}
        workspace = str(sandbox.workspace) if sandbox.workspace else None
        return {**limits, "network": network, "workspace": workspace, "max_concurrent": sandbox.max_concurrent}

    async def egress(domain: str, namespace: str) -> Any:
        sandbox.network.allow(namespace, domain)
        return {"domain": domain, "approved": True}

    async def vault_list(namespace: str) -> Any:
        return await sandbox.vault_list(namespace)

    own = (vault_add, vault_list, vault_delete, session_list, session_kill, config, egress)
    return {function.__name__: function for function in own}


@asynccontextmanager
async def _commands(known: Mapping[str, Callable[..., Awaitable[Any]]]) -> AsyncIterator[None]:
    """Takes the commands of `cellgate sandboxmcp`, from a socket that only programs of this user can reach."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            work = asyncio.ensure_future(known[request["tool"]](**request["arguments"]))
            gone = asyncio.ensure_future(reader.read(1))
            # The command may be interrupted, or wait no longer.
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
            found = None if work.cancelled() else work.result()
        except (CellgateError, ValueError, KeyError, TypeError) as e:
            found = {"error": str(e)}
        try:
            writer.write(json.dumps(found).encode() + b"\n")
            await writer.drain()
            writer.close()
        except OSError:
            pass

    if folder := os.environ.get("CELLGATE_RUNTIME"):
        path = Path(folder, f"{PREFIX}{os.getpid()}")
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(take, path, limit=_COMMAND_MAX)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)
    else:
        yield


def tools(sandbox: SandboxPipeline) -> MCPServer[Any]:
    """A server with the tools, whose end ends the sandboxes."""
    known = _of_commands(sandbox)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncIterator[None]:
        async with _commands(known):
            yield
        await sandbox.aclose()

    server: MCPServer[Any] = MCPServer("sandboxmcp", version="cellgate", lifespan=lifespan, log_level="WARNING")

    def tool(text: str) -> Callable[[Callable[..., Awaitable[Any]]], None]:
        def add(function: Callable[..., Awaitable[Any]]) -> None:
            async def call(context: Context[Any, Any], **arguments: Any) -> CallToolResult:
                if "as" in arguments:
                    arguments["as_"] = arguments.pop("as")
                return await _call(function, context, **arguments)

            own, context = signature(function, eval_str=True), signature(call, eval_str=True).parameters["context"]
            more = context.replace(kind=Parameter.KEYWORD_ONLY)
            call.__signature__ = own.replace(parameters=[*own.parameters.values(), more])  # type: ignore[attr-defined]
            known[function.__name__] = function
            server.add_tool(call, name=function.__name__, description=text, structured_output=False)

        return add

    # ------------------------------------------------------------ execution

    @tool("Run code in an isolated sandbox (Python, Node.js or Shell). With session_id it runs in that session.")
    async def execute_code(
        code: str,
        language: Words | None = None,
        allowed_domains: list[str] | None = None,
        timeout_seconds: float | None = None,
        session_id: str | None = None,
        env_vars: dict[str, str] | None = None,
        packages: list[str] | None = None,
        resource_limits: dict[str, float] | None = None,
        namespace: str = "default",
    ) -> Any:
        given = {**(resource_limits or {}), **({"timeout_seconds": timeout_seconds} if timeout_seconds else {})}
        if unknown := given.keys() - ResourceLimits.model_fields.keys():
            raise RefusedError(f"resource_limits has no {min(unknown)}")
        for name, value in given.items():
            if value > (most := getattr(sandbox.limits, name)) and name != "timeout_seconds":
                raise RefusedError(f"invalid limit: {name} is over the server's {most:g} (set_resource_limits)")
        request = ExecutionRequest(
            code=code,
            session_id=session_id,
            env_vars=env_vars or {},
            packages=packages or [],
            allowed_domains=allowed_domains or [],
            resource_limits=ResourceLimits(**given) if given else None,  # type: ignore[arg-type]
            namespace=namespace,
        )
        if language:
            request.language = Language(language)
        result = plain(await sandbox.execute(request))
        if not result["success"]:
            lines = result["stderr"].strip().splitlines() or [f"exit status {result['exit_code']}"]
            result["error"] = lines[-1]
        return result

    @tool("Install pip or npm packages for later code. The user is asked.")
    async def install_package(
        language: Literal["python", "node"], packages: list[str], namespace: str = "default"
    ) -> Any:
        done, output = await sandbox.install_package(Language(language), packages, namespace)
        return {"success": done, "output": output, **({} if done else {"error": output[-500:]})}

    @tool("Check code without running it: syntax, missing imports, and what the sandbox will refuse.")
    async def validate_code(code: str, language: Words = "python") -> Any:
        return plain(await sandbox.validate_code(code, Language(language)))

    # ------------------------------------------------------------ sessions

    @tool("Start a session: its variables, functions and files stay until terminate_session.")
    async def create_session(
        language: Words = "python", timeout_seconds: float | None = None, namespace: str = "default"
    ) -> Any:
        limits = ResourceLimits(timeout_seconds=timeout_seconds) if timeout_seconds else None
        return plain(await sandbox.create_session(Language(language), namespace, limits))

    @tool("End a session and wipe its state.")
    async def terminate_session(session_id: str, namespace: str = "default") -> Any:
        await sandbox.kill_session(session_id, namespace)
        return {"killed": session_id}

    @tool("Set variables of a session, of any language: `data`, or the variables `names` of from_session.")
    async def bridge_data(
        data: dict[str, Any] | None = None,
        from_session: str | None = None,
        to_session: str | None = None,
        names: list[str] | None = None,
        as_: Annotated[list[str] | str | None, Field(alias="as")] = None,
        namespace: str = "default",
    ) -> Any:
        if to_session is None:
            raise RefusedError("to_session: which session gets the data?")
        found = await sandbox.bridge_data(to_session, data, from_session, names or (), as_, namespace)
        return {"bridged": True, "to_session": to_session, "names": found}

    # ------------------------------------------------------------ configuration and monitoring

    @tool("The languages of this machine, found by trying.")
    async def list_runtimes() -> Any:
        return await sandbox.list_runtimes()

    @tool("Change the limits of later executions and sessions, up to the server's maximum.")
    async def set_resource_limits(
        max_ram_mb: int | None = None,
        max_cpu_cores: float | None = None,
        timeout_seconds: float | None = None,
        max_processes: int | None = None,
    ) -> Any:
        before, given = plain(sandbox.limits), {"max_ram_mb": max_ram_mb, "max_cpu_cores": max_cpu_cores}
        now = sandbox.set_limits(**given, timeout_seconds=timeout_seconds, max_processes=max_processes)
        return {"previous": before, "current": plain(now), "maximum": sandbox.caps.most}

    @tool("Queue, sessions and kept results.")
    async def sandbox_stats() -> Any:
        return await sandbox.get_stats()

    @tool("Names of secrets, never their values, and the sessions with their variables.")
    async def inspect_state(namespace: str = "default") -> Any:
        sessions = [s for s in await sandbox.list_sessions() if s.namespace == namespace]
        found = []
        for session in sessions:
            ended = session.status is SessionStatus.killed
            variables = None if ended else await sandbox.variables(session.id, namespace)
            found.append({**plain(session), "variables": variables})
        return {"vault_keys": await sandbox.vault_list(namespace), "sessions": found}

    @tool("Files that an execution has made: SHA-256, size, signature, and content up to 10 MB in base64, else a uri.")
    async def get_artifacts(request_id: str, name: str | None = None, namespace: str = "default") -> Any:
        found = await sandbox.get_artifacts(request_id, name, namespace)
        return {"request_id": request_id, "artifacts": [plain(a) for a in found]}

    @server.resource(
        f"{ARTIFACTS}{{request_id}}/{{index}}{{?offset,length}}",
        name="Content of a file of an execution",
        mime_type="application/octet-stream",
        description=f"Of an artifact with a uri. A read returns at most {READ_MAX} bytes: length, from offset (0) on.",
    )
    async def content(request_id: str, index: str, offset: str = "0", length: str = str(READ_MAX)) -> bytes:
        try:
            return await sandbox.read_artifact(request_id, int(index), int(offset), int(length))
        except (RefusedError, ValueError) as e:
            raise ResourceNotFoundError(str(e)) from None

    # ------------------------------------------------------------ security

    @tool("Ask the user to let code connect to a domain.")
    async def request_egress(domain: str, namespace: str = "default") -> Any:
        approved = await sandbox.request_egress(domain, namespace)
        return {"domain": domain, "approved": approved, **({} if approved else {"error": f"Blocked: {domain}"})}

    @tool("The last entries of the audit log of this server.")
    async def audit_execution(namespace: str = "default", limit: int = 50) -> Any:
        return [plain(entry) for entry in await sandbox.audit_log(namespace, limit=limit)]

    # ------------------------------------------------------------ host and web

    def missing(what: str) -> Any:
        toolset = "host" if "host" in what else "web"
        raise RefusedError(f"{what}: cellgate mcp serve --toolsets {toolset} has such tools; this surface has none")

    @tool("Run a program on the host, outside of the sandbox.")
    async def host_exec(command: str, timeout: float = 120) -> Any:
        missing("programs of the host")

    @tool("Ask the user to allow programs of the host by a pattern.")
    async def request_host_access(pattern: str) -> Any:
        missing("programs of the host")

    @tool("Patterns of allowed, approved and blocked programs of the host.")
    async def list_host_access() -> Any:
        missing("programs of the host")

    @tool("Read a file of the host.")
    async def host_file_read(path: str) -> Any:
        missing("files of the host")

    @tool("Write a file of the host.")
    async def host_file_write(path: str, content: str) -> Any:
        missing("files of the host")

    @tool("List a folder of the host.")
    async def host_file_list(path: str) -> Any:
        missing("files of the host")

    @tool("Copy a file of the host into the workspace.")
    async def host_file_copy(source: str, destination: str = "") -> Any:
        missing("files of the host")

    @tool("Search the web.")
    async def web_search(query: str) -> Any:
        missing("web_search")

    @tool("A web page as Markdown.")
    async def fetch_webpage(url: str) -> Any:
        missing("fetch_webpage")

    @tool("A web page as Markdown, after its scripts have run in Chromium.")
    async def browser_fetch(
        url: str,
        wait_for_selector: str | None = None,
        timeout_ms: int = 30_000,
        wait_until: Literal["load", "domcontentloaded", "networkidle", "commit"] = "networkidle",
        screenshot: bool = False,
    ) -> Any:
        missing("browser_fetch")

    return server
