"""SandboxPipeline: executions and sessions in cellgate's sandbox, with their queue, secrets, network and artifacts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cellgate
from cellgate import (
    ApprovalRequest,
    CellgateError,
    Denied,
    EgressRequest,
    Event,
    ExecuteResult,
    Execution,
    NotFoundError,
    Status,
    aio,
)
from cellgate.sandboxmcp.core.models import (
    Artifact,
    AuditAction,
    AuditEntry,
    ExecutionRequest,
    Language,
    ResourceLimits,
    SandboxResult,
    Session,
    SessionStatus,
    ValidationResult,
)
from cellgate.sandboxmcp.events import SandboxEventType, emit
from cellgate.sandboxmcp.security.crypto import ArtifactSigner
from cellgate.sandboxmcp.security.egress import OFF, NetworkGuard, covered
from cellgate.sandboxmcp.security.resource import ResourceGuard
from cellgate.sandboxmcp.security.validator import CodeValidator
from cellgate.sandboxmcp.security.vault import InMemoryVault, Vault, check_name, mask
from cellgate.surfaces._profiles import PRIVATE, empty_folder

ARTIFACTS = "sandboxmcp://artifact/"
CONTENT_MAX = 10 << 20  # of an artifact that a result has
_CONTENTS_MAX, _HASHED_MAX = 16 << 20, 128 << 20  # of the artifacts of one execution
KEPT_BYTES, KEPT = 64 << 20, 100  # of artifacts of earlier executions
KEPT_FILES = 256 << 20  # of those that no result has, in files without a name
READ_MAX = 16 << 20
QUEUE_MAX = 256
AUDIT_MAX = 10_000
SESSIONS_MAX = 32
_AFTER_S = 0.01
READY = 2
"""Sandboxes that wait for executions, of each language that was used."""
_OWN = {Language.python: 8, Language.node: 16, Language.shell: 8}  # processes of a kernel
_LEAST_MB = {Language.python: 64, Language.node: 128, Language.shell: 64}
_PACKAGE = {
    Language.python: re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?((==|>=|<=|~=|!=|<|>)[\w.*+!-]+)?"),
    Language.node: re.compile(r"(@[\w.-]+/)?[a-z0-9][\w.-]*(@[\w.^~*+-]+)?"),
}
_INDEX = {Language.python: ["pypi.org", "files.pythonhosted.org"], Language.node: ["registry.npmjs.org"]}
_INSTALL_S = 600.0
_AUTHORITIES = ("PIP_CERT", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")
# Moves code into its private home.
_HOME = {
    Language.python: "import os\nos.chdir(os.path.expanduser('~'))\nprint(os.getcwd())\ndel os",
    Language.node: "process.chdir(process.env.HOME); console.log(process.cwd())",
    Language.shell: "cd; pwd",
}
# Counts what is there, in the kernel of each language: a walk by a process of its own costs more than most code.
_EXTRA = {"user_expressions": {"files": "len(__import__('os').listdir(__import__('os').environ['HOME']))"}}
_FILES_MAX = 1000
_LOOK = "import sys\nfolders = [sys.prefix, sys.base_prefix, *filter(None, sys.path)]\n"
_NAMES = """exec('''from IPython import get_ipython
from cellgate_kernel.changes import Look
import json
print(json.dumps([[v["name"], v["type"]] for v in Look({}).compare(get_ipython().user_ns)["made"]]))
''', {})"""

Ask = Callable[[str], Awaitable[bool]]


class RefusedError(CellgateError):
    """A request asks for what this sandbox does not allow; the text says why."""


@dataclass
class _Made:
    """Artifacts of an execution. `file` has the contents that no result has, at the `places` by index."""

    namespace: str
    artifacts: list[Artifact] = field(default_factory=list)
    file: Any = None
    places: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(size for _, size in self.places.values())

    def keep(self, data: bytes) -> None:
        """Of the next artifact."""
        self.file = self.file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        start = self.size
        if os.pwrite(self.file.fileno(), data, start) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.places[len(self.artifacts)] = start, len(data)

    def close(self) -> None:
        self.places.clear()
        if self.file:
            self.file.close()


class _Open:
    """A session of the library, with the folder that its code starts in."""

    def __init__(self, session: aio.Session, folder: str) -> None:
        self.session, self.folder = session, folder
        self.lock = asyncio.Lock()
        self.seen: dict[str, Any] = {}
        """Files of the folder after the last execution."""
        self.model = Session()
        self.limits = ResourceLimits()
        self.env: dict[str, str] = {}
        self.language = Language.python
        self.enforced: Any = session.info["limits"]

    async def files(self) -> dict[str, Any]:
        """Regular files below the folder, except hidden ones, with size and time."""
        found: dict[str, Any] = {}
        folders, seen = [self.folder], 0
        while folders and max(seen, len(found)) < _FILES_MAX:
            folder, seen = folders.pop(), seen + 1
            try:
                entries = await self.session.files.list(folder, timeout=30)
            except CellgateError:
                continue  # removed meanwhile, unreadable, or deeper than a path can say
            for entry in entries:
                name = entry.get("name", ".")  # it has none if its name is not UTF-8
                path = f"{folder}/{name}"
                if name.startswith("."):
                    continue
                if entry["type"] == "folder":
                    folders.append(path)
                elif entry["type"] == "file":
                    found[path] = entry["size"], entry["mtime_ns"]
        return found


class SandboxPipeline:
    """See SandboxFactory for the parameters. The sandbox is the same whatever `backend` is."""

    def __init__(
        self,
        backend: Any = None,
        vault: Vault | None = None,
        network_guard: NetworkGuard | None = None,
        code_validator: CodeValidator | None = None,
        resource_limits: ResourceLimits | None = None,
        *,
        max_concurrent_jobs: int = 4,
        caps: ResourceGuard | None = None,
        workspace: Path | None = None,
        session_options: Mapping[str, Any] | None = None,
    ) -> None:
        """`workspace`: the folder of all executions; without it each has one of its own, which ends with it.

        `session_options` are those of every cellgate.aio.Session.
        """
        self.backend = backend
        self.vault = vault or InMemoryVault()
        self.network = network_guard or NetworkGuard()
        self.validator = code_validator or CodeValidator()
        self.caps = caps or ResourceGuard()
        self.limits = ResourceLimits(max_ram_mb=512).model_copy(update=_given(resource_limits))
        self.max_concurrent = max_concurrent_jobs
        self.ask: Ask | None = None
        """Decides about installations and programs that code starts with exec="ask". Without it they are refused."""
        self.workspace = workspace
        self.more_limits: dict[str, float] = {}
        """As in settings files."""
        self._options = dict(session_options or {})
        self._hidden = (*PRIVATE, str(Path.home()))
        self._sessions: dict[str, _Open] = {}
        self._ended: deque[Session] = deque(maxlen=SESSIONS_MAX)
        self._artifacts: dict[str, _Made] = {}
        self._entries: deque[AuditEntry] = deque(maxlen=AUDIT_MAX)
        self._active = self._queued = self._total = self._opening = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._packages = tempfile.TemporaryDirectory(prefix="cellgate-packages-")
        for folder in _OWN:
            Path(self._packages.name, folder).mkdir()

    def _start(self) -> None:
        """Sessions belong to an event loop; those of an earlier one are gone."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._slots = asyncio.Semaphore(self.max_concurrent)
            self._ready: dict[Language, tuple[Any, list[asyncio.Task[_Open]]]] = {}
            self._folders: asyncio.Task[list[str]] | None = None
            self._closing: set[asyncio.Task[None]] = set()
            self._ending = False
            self._sessions.clear()

    async def aclose(self) -> None:
        """Ends all sessions."""
        self._start()
        self._ending = True
        for open_ in self._sessions.values():
            self._close(open_)
        self._sessions.clear()
        for _, tasks in self._ready.values():
            for task in tasks:
                self._drop(task)
        self._ready.clear()
        for made in self._artifacts.values():
            made.close()
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)
        self._ending = False

    # ------------------------------------------------------------ sandboxes

    async def _readable(self) -> list[str]:
        """What code needs of the hidden folders: its own, and those of interpreters and packages."""

        async def look() -> list[str]:
            async with aio.Session(self._packages.name, **self._plain(self._options)) as session:
                (await session.run(_LOOK, silent=True, history=False, timeout=60)).check()
                found: list[str] = (await session.get_variables("folders"))["folders"]
            if node := shutil.which("node"):
                program = Path(node).resolve()
                found += [str(program), f"{program.parents[1]}/lib/node_modules"]
            found += [*map(os.path.realpath, found), str(self.workspace or empty_folder()), self._packages.name]
            return sorted({f for f in found if any(f.startswith(os.path.join(h, "")) for h in self._hidden)})

        if not self._folders or (self._folders.done() and self._folders.exception()):
            self._folders = asyncio.create_task(look())
        return await asyncio.shield(self._folders)

    @staticmethod
    def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in options.items() if k in ("python", "tier", "client", "private", "hide", "audit")}

    def _wanted(
        self, language: Language, limits: ResourceLimits, hosts: list[str], env: dict[str, str], namespace: str
    ) -> Any:
        return language, tuple(limits), tuple(hosts), tuple(sorted(env.items())), namespace

    async def _settings(self, hosts: Sequence[str], asks: bool, write: bool) -> dict[str, Any]:
        return {
            "network": {"allowedDomains": list(hosts), "deniedDomains": [], "strictAllowlist": not asks},
            "filesystem": {
                "allowWrite": ["."] if write else [],
                "denyWrite": [],
                "denyRead": list(self._hidden),
                "allowRead": await self._readable(),
            },
            "cellgate": {"networkOff": not hosts and not asks, "limits": self.more_limits},
        }

    async def _open(
        self, language: Language, limits: ResourceLimits, hosts: Sequence[str], env: Mapping[str, str], namespace: str
    ) -> _Open:
        folder = self.workspace or empty_folder()
        asks = self.network.enabled
        settings = await self._settings(hosts, asks, self.workspace is not None)
        packages = Path(self._packages.name, language)
        if language is Language.node:
            env = {"NODE_PATH": str(packages / "node_modules"), **env}
        session = aio.Session(
            folder,
            language=str(language),
            namespace=namespace,
            settings=settings,
            ask_egress=asks,
            env=env,
            python_path=[packages],
            memory_bytes=int(limits.max_ram_mb) << 20,
            cores=limits.max_cpu_cores,
            processes=limits.max_processes + _OWN[language],
            output_bytes=2 * limits.max_output_bytes + (1 << 20),
            **self._options,
        )
        await session
        opened = _Open(session, str(folder))
        opened.limits, opened.env, opened.language = limits, dict(env), language
        if not self.workspace:
            start = (await session.run(_HOME[language], silent=True, history=False, timeout=60)).check()
            opened.folder = start.stdout.strip()
        return opened

    async def _take(self, key: Any, *wanted: Any) -> _Open:
        """A sandbox that is ready, or a new one."""
        known, tasks = self._ready.get(key[0], (None, []))
        if known != key:
            for task in tasks:
                self._drop(task)
            self._ready[key[0]] = key, []
        elif tasks:
            with contextlib.suppress(CellgateError):  # then a new one says why
                return await tasks.pop(0)
        return await self._open(*wanted)

    async def _renew(self, opened: _Open, key: Any, *wanted: Any) -> None:
        """Replaces a sandbox that was used, when its result is on its way."""
        await asyncio.sleep(_AFTER_S)
        await opened.session.close()
        known, tasks = self._ready.get(key[0], (None, []))
        while known == key and len(tasks) < READY and not self._ending:
            tasks.append(asyncio.create_task(self._open(*wanted)))

    def _drop(self, task: asyncio.Task[_Open]) -> None:
        async def close() -> None:
            with contextlib.suppress(CellgateError):
                await (await task).session.close()

        self._later(close())

    def _close(self, opened: _Open) -> None:
        self._later(opened.session.close())

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # ------------------------------------------------------------ execute

    async def execute(self, request: ExecutionRequest) -> SandboxResult:
        """Runs code. What is refused, or fails, is a result without `success`."""
        self._start()
        begin = time.perf_counter()
        result = SandboxResult(request_id=request.id, language=request.language, namespace=request.namespace)
        try:
            await self._execute(request, result)
        except (RefusedError, CellgateError, ValueError) as e:
            result.success, result.exit_code, result.stderr = False, result.exit_code or 1, f"{result.stderr}{e}\n"
        result.duration_ms = round((time.perf_counter() - begin) * 1000, 3)
        self._log(
            AuditAction.execute,
            request.namespace,
            f"{request.language}: exit={result.exit_code}",
            request_id=request.id,
            language=request.language,
            exit_code=result.exit_code,
            duration_ms=result.duration_ms,
            success=result.success,
        )
        data = {"request_id": request.id, "exit_code": result.exit_code}
        name = SandboxEventType.execution_completed if result.success else SandboxEventType.execution_failed
        if result.exit_code == TIMED_OUT:
            name = SandboxEventType.execution_timeout
        emit(name, request.namespace, result.stderr[-200:] if not result.success else "", **data)
        return result

    async def _execute(self, request: ExecutionRequest, result: SandboxResult) -> None:
        limits = self._limits_of(request)
        for name in request.env_vars:
            check_name(name)
        await self._network_of(request)
        if request.packages:
            done, text = await self.install_package(request.language, request.packages, request.namespace)
            if not done:
                raise RefusedError(text)
        secrets = await self.vault.get_secrets(request.namespace)
        if secrets:
            emit(SandboxEventType.vault_accessed, request.namespace, ", ".join(secrets), request_id=request.id)
        async with self._slot(request.namespace):
            emit(SandboxEventType.execution_started, request.namespace, request_id=request.id)
            if request.session_id is not None:
                await self._in_session(request, result, limits, secrets)
                return
            hosts = self.network.hosts(request.namespace)
            wanted = request.language, limits, hosts, {**secrets, **request.env_vars}, request.namespace
            key = self._wanted(*wanted)
            opened = await self._take(key, *wanted)
            try:
                await self._run(opened, request, result, limits, secrets)
            finally:
                self._later(self._renew(opened, key, *wanted))

    def _limits_of(self, request: ExecutionRequest) -> ResourceLimits:
        limits = self.limits.model_copy(update=_given(request.resource_limits))
        if why := self.caps.why_not(limits):
            raise RefusedError(why)
        if limits.max_ram_mb < _LEAST_MB[request.language]:
            least = _LEAST_MB[request.language]
            raise RefusedError(f"invalid limit: max_ram_mb is at least {least}, which {request.language} needs")
        return limits

    async def _network_of(self, request: ExecutionRequest) -> None:
        """A request for domains is a question about those that are not allowed yet."""
        for domain in dict.fromkeys(request.allowed_domains):
            if await self.request_egress(domain, request.namespace):
                continue
            off = "" if self.network.enabled else f": {OFF}"
            raise RefusedError(f"Domain blocked: {domain} was not approved{off}; the code did not run")

    async def request_egress(self, domain: str, namespace: str = "default") -> bool:
        """Asks about a domain; see NetworkGuard."""
        approved = await self.network.request_egress(domain, namespace)
        action = AuditAction.egress_request if approved else AuditAction.egress_denied
        self._log(action, namespace, domain, success=approved)
        return approved

    @contextlib.asynccontextmanager
    async def _slot(self, namespace: str) -> AsyncIterator[None]:
        if self._queued >= QUEUE_MAX:
            emit(SandboxEventType.queue_backpressure, namespace, f"{QUEUE_MAX} executions wait")
            raise RefusedError(f"the queue is full: {QUEUE_MAX} executions wait; try again in a few seconds")
        if self._slots.locked():
            emit(SandboxEventType.queue_backpressure, namespace, f"{self._active} executions run")
        self._queued += 1
        try:
            await self._slots.acquire()
        finally:
            self._queued -= 1
        self._active += 1
        self._total += 1
        try:
            yield
        finally:
            self._active -= 1
            self._slots.release()

    async def _in_session(
        self, request: ExecutionRequest, result: SandboxResult, limits: ResourceLimits, secrets: Mapping[str, str]
    ) -> None:
        opened = self.session(request.session_id or "", request.namespace)
        if opened.model.language is not request.language and "language" in request.model_fields_set:
            raise RefusedError(f"the session's language is {opened.model.language}, not {request.language}")
        result.language = opened.model.language
        other = {k for k, v in request.env_vars.items() if opened.env.get(k) != v}
        given = _given(request.resource_limits).keys() - {"timeout_seconds", "max_output_bytes"}
        if other or any(getattr(limits, name) != getattr(opened.limits, name) for name in given):
            what = "variables" if other else "limits"
            raise RefusedError(
                f"the {what} of a session are set when it is created: leave out session_id, or create one"
            )
        for domain in request.allowed_domains:
            if not covered(domain.lower(), opened.model.metadata["hosts"]):
                raise RefusedError(f"{domain} was approved after the session was created: create another one")
        async with opened.lock:
            self.session(request.session_id or "", request.namespace)  # it may have been ended meanwhile
            opened.model.status = SessionStatus.running
            try:
                await self._run(opened, request, result, limits, secrets)
            finally:
                opened.model.last_activity = datetime.now(UTC)
                if opened.model.status is SessionStatus.running:
                    opened.model.status = SessionStatus.idle

    async def _run(
        self,
        opened: _Open,
        request: ExecutionRequest,
        result: SandboxResult,
        limits: ResourceLimits,
        secrets: Mapping[str, str],
    ) -> None:
        denied: list[str] = []
        value: list[str] = []

        def note(event: Event) -> None:
            if isinstance(event, ExecuteResult) and event.text:
                value.append(event.text)
            elif isinstance(event, Denied):
                denied.append(event.text)
                if event.content.get("operation") == "limit":
                    emit(SandboxEventType.resource_exceeded, request.namespace, event.text, request_id=request.id)
                    self._log(AuditAction.resource_exceeded, request.namespace, event.text, request_id=request.id)

        async def decide(question: ApprovalRequest | EgressRequest) -> bool:
            if isinstance(question, EgressRequest):
                host, hosts = question.host, self.network.hosts(request.namespace)
                if covered(host, hosts) and not covered(f"{host}:{question.port}", hosts):
                    host = f"{host}:{question.port}"  # the list has it with other ports
                if not await self.request_egress(host, request.namespace):
                    return False
                with contextlib.suppress(NotFoundError):  # the code has given up
                    question.accept(session=True)
                return True
            return self.ask is not None and await self.ask(str(question))

        if secrets:  # also for readers of `cellgate events`
            await opened.session.add_event("vault.accessed", ", ".join(secrets))
        done = await opened.session.run(
            request.code,
            extra=None if self.workspace else _EXTRA,
            timeout=limits.timeout_seconds,
            output_limit=limits.max_output_bytes,
            artifacts=self.workspace is not None,
            approve=decide,
            on_event=note,
        )
        result.success, result.exit_code, why = _end(done, limits)
        if result.exit_code == TIMED_OUT:
            self._log(AuditAction.timeout, request.namespace, why, request_id=request.id, success=False)
        hidden = secrets.values()
        result.stdout = mask(done.stdout, hidden)
        text = f"{done.stderr}{why}\n" if why else done.stderr
        result.stderr = mask(text, hidden)[-limits.max_output_bytes :]
        if denied:
            result.metadata["denied"] = [mask(text, hidden) for text in dict.fromkeys(denied)][:20]
        if value:
            result.metadata["result"] = mask(value[-1], hidden)[: limits.max_output_bytes]
        if done.result.artifacts_signed:
            result.metadata["signed"] = done.result.artifacts_signed
        if done.truncated:
            result.metadata["truncated"] = f"output over {limits.max_output_bytes} characters was left out"
        result.resource_usage = {"limits": dict(limits), "enforced": opened.enforced}
        await self._collect(opened, done, result)

    async def _changed(self, opened: _Open, done: Execution) -> dict[str, int]:
        """Files that the code has made or changed, with their sizes."""
        if self.workspace:
            return {file.path: file.size for file in done.artifacts}
        try:
            count = done.result.content["user_expressions"]["files"]["data"]["text/plain"]
        except (LookupError, TypeError):
            count = None  # the code has failed
        if count == "0" and not opened.seen:
            return {}
        before, opened.seen = opened.seen, await opened.files()
        return {path: size for path, (size, time_) in opened.seen.items() if before.get(path) != (size, time_)}

    async def _collect(self, opened: _Open, done: Execution, result: SandboxResult) -> None:
        """Signs the content of files, as it is now: what goes on in the background may still change them."""
        hashed, kept, made = 0, 0, _Made(result.namespace, result.artifacts)
        for path, size in (await self._changed(opened, done)).items():
            if not Path(path).is_relative_to(opened.folder):
                continue
            if hashed + size > _HASHED_MAX:
                result.metadata["artifacts_truncated"] = f"files over {_HASHED_MAX >> 20} MiB together were left out"
                continue
            hashed += size
            try:
                data = await opened.session.files.read(path, limit=size + 1, timeout=60)
            except CellgateError:
                continue  # removed meanwhile, or no file
            if len(data) != size:
                continue  # being written
            name = os.fsencode(Path(path).relative_to(opened.folder)).decode(errors="backslashreplace")
            artifact = Artifact.from_bytes(name, data)
            if size > CONTENT_MAX or kept + size > _CONTENTS_MAX:
                artifact.content_b64 = ""
                try:
                    made.keep(data)
                    artifact.uri = f"{ARTIFACTS}{result.request_id}/{len(made.artifacts)}"
                except OSError as e:
                    result.metadata["artifacts_not_kept"] = f"a file of the server: {e.strerror}"
            else:
                kept += size
            result.artifacts.append(ArtifactSigner.sign_artifact(artifact))
            emit(SandboxEventType.artifact_signed, result.namespace, artifact.name, sha256=artifact.sha256)
        if names := [artifact.name for artifact in result.artifacts]:
            await opened.session.add_event("artifact.signed", ", ".join(names)[:1000], {"files": len(names)})
        self._artifacts[result.request_id] = made
        kept = sum(len(a.content_b64) for m in self._artifacts.values() for a in m.artifacts)
        large = sum(m.size for m in self._artifacts.values())
        while len(self._artifacts) > KEPT or ((kept > KEPT_BYTES or large > KEPT_FILES) and len(self._artifacts) > 1):
            oldest = self._artifacts.pop(next(iter(self._artifacts)))
            kept -= sum(len(a.content_b64) for a in oldest.artifacts)
            large -= oldest.size
            oldest.close()

    async def get_artifacts(
        self, request_id: str, name: str | None = None, namespace: str = "default"
    ) -> list[Artifact]:
        """Of one of the last executions."""
        found = self._artifacts.get(request_id)
        if found is None or found.namespace != namespace:
            raise RefusedError(f"no artifacts are kept of {request_id[:100]}: those of the last {KEPT} executions are")
        if name is not None and not any(a.name == name for a in found.artifacts):
            raise RefusedError(f"the execution has made no {name[:1000]}")
        return [a for a in found.artifacts if name in (None, a.name)]

    async def read_artifact(self, request_id: str, index: int, offset: int = 0, length: int = READ_MAX) -> bytes:
        """Of an artifact with a `uri`, which has the first two arguments. At most READ_MAX bytes."""
        made = self._artifacts.get(request_id)
        if made is None or index not in made.places:
            raise RefusedError(
                f"no content is kept of file {index} of {request_id[:100]}: get_artifacts names the others"
            )
        start, size = made.places[index]
        if not 0 <= offset <= size or length < 0:
            raise RefusedError(f"offset {offset}, length {length}: the file has {size} bytes")
        # In this thread: another one could read while the file is closed, and its number is another file's.
        return os.pread(made.file.fileno(), min(length, READ_MAX, size - offset), start + offset)

    async def verify_artifact(self, artifact: Artifact, expected_hash: str) -> bool:
        return ArtifactSigner.verify(artifact, expected_hash)

    # ------------------------------------------------------------ sessions

    async def create_session(
        self, language: Language = Language.python, namespace: str = "default", limits: ResourceLimits | None = None
    ) -> Session:
        """A kernel with state, for execute() with its id."""
        self._start()
        if len(self._sessions) + self._opening >= SESSIONS_MAX:
            raise RefusedError(f"{SESSIONS_MAX} sessions are open: terminate one")
        request = ExecutionRequest(code="-", language=language, namespace=namespace, resource_limits=limits)
        found, hosts = self._limits_of(request), self.network.hosts(namespace)
        self._opening += 1
        try:
            secrets = await self.vault.get_secrets(namespace)
            opened = await self._open(language, found, hosts, secrets, namespace)
        finally:
            self._opening -= 1
        opened.model = Session(
            language=language,
            namespace=namespace,
            resource_limits=found,
            metadata={"hosts": hosts},
        )
        self._sessions[opened.model.id] = opened
        self._log(AuditAction.create_session, namespace, opened.model.id, language=language)
        emit(SandboxEventType.session_created, namespace, session_id=opened.model.id)
        return opened.model

    async def execute_in_session(self, session_id: str, code: str, namespace: str = "default") -> SandboxResult:
        """execute() with an id."""
        return await self.execute(ExecutionRequest(code=code, session_id=session_id, namespace=namespace))

    def session(self, session_id: str, namespace: str) -> _Open:
        found = self._sessions.get(session_id)
        if found is None or found.model.namespace != namespace:
            raise RefusedError(f"no such session: {session_id}")
        return found

    async def kill_session(self, session_id: str, namespace: str = "default") -> None:
        """Ends a session with all its state, also while code runs."""
        self._start()
        opened = self.session(session_id, namespace)
        del self._sessions[session_id]
        opened.model.status = SessionStatus.killed
        self._ended.append(opened.model)
        await opened.session.close()
        self._log(AuditAction.kill_session, namespace, session_id)
        emit(SandboxEventType.session_killed, namespace, session_id=session_id)

    async def list_sessions(self) -> list[Session]:
        """With the last ones that were ended."""
        return [*(o.model for o in self._sessions.values()), *self._ended]

    async def variables(self, session_id: str, namespace: str = "default") -> list[list[str]] | None:
        """Names and types; None: the language has no list of them, or code runs. What they say is up to the code."""
        opened = self.session(session_id, namespace)
        if opened.model.language is not Language.python or opened.lock.locked():
            return None
        done = await opened.session.run(_NAMES, silent=True, history=False, timeout=10, output_limit=1 << 20)
        return _pairs(done.stdout)

    async def bridge_data(
        self,
        to_session: str,
        data: Mapping[str, Any] | None = None,
        from_session: str | None = None,
        names: Sequence[str] = (),
        as_: str | Sequence[str] | None = None,
        namespace: str = "default",
    ) -> list[str]:
        """Sets variables of a session: those of `data`, or those of another session that `names` lists. All or none."""
        self._start()
        target = self.session(to_session, namespace).session
        if bool(data) == bool(names) or bool(names) != (from_session is not None):
            raise RefusedError("bridge_data takes either data, or from_session with names of its variables")
        if data:
            await target.set_variables(data, timeout=30)
            return list(data)
        source = self.session(from_session or "", namespace).session
        await source.bridge(target, *names, as_=as_, timeout=30)
        return [as_] if isinstance(as_, str) else list(as_ or names)

    # ------------------------------------------------------------ packages

    async def install_package(
        self, language: Language, packages: Sequence[str], namespace: str = "default"
    ) -> tuple[bool, str]:
        """For the Python or node of later and open sessions of this pipeline. Asked about, in a sandbox of its own."""
        self._start()
        rule = _PACKAGE.get(language)
        wrong = [p for p in packages if not rule or not rule.fullmatch(p)]
        if wrong or not packages:
            return False, f"packages are names of pip or npm with a version, not {wrong[:3]}; of {language}"
        hosts = _INDEX[language]
        question = f"install {', '.join(packages)} for {language} from {hosts[0]}"
        if self.ask is None or not await self.ask(question):
            return False, f"{question}: not approved"
        folder = Path(self._packages.name, language)
        pip = ["python3", "-m", "pip", "install", "--no-input", "--upgrade", "--target", ".", "--", *packages]
        npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", ".", "--", *packages]
        settings = await self._settings(hosts, False, True)
        async with aio.Session(folder, settings=settings, namespace=namespace, **self._plain(self._options)) as session:
            argv = pip if language is Language.python else npm
            env = {name: os.environ[name] for name in _AUTHORITIES if name in os.environ}
            done = await session.exec(argv, env=env, timeout=_INSTALL_S, output_limit=1 << 20)
            if done.ok:
                await session.add_event("package.installed", ", ".join(packages)[:1000], {"language": str(language)})
        text = done.output.decode(errors="replace")[-20_000:] + done.text
        self._log(AuditAction.install_package, namespace, f"{language}: {packages}", success=done.ok)
        if done.ok:
            emit(SandboxEventType.package_installed, namespace, ", ".join(packages), language=str(language))
        return done.ok, text

    # ------------------------------------------------------------ state

    async def validate_code(self, code: str, language: Language = Language.python) -> ValidationResult:
        """Checks code without running it, in a sandbox as it would have."""
        self._start()
        hosts = self.network.hosts("default")
        opened = await self._open(Language.python, self.limits, hosts, {}, "default")
        try:
            return await self.validator.check(code, language, opened.session, hosts)
        finally:
            self._close(opened)

    async def list_runtimes(self) -> list[dict[str, Any]]:
        """The languages of this machine, found by trying."""
        found: list[dict[str, Any]] = await asyncio.to_thread(cellgate.list_runtimes)
        return [{**runtime, "backend": "process"} for runtime in found]

    @property
    def queue(self) -> dict[str, int]:
        waiting = {"active": self._active, "queued": self._queued, "max_queue": QUEUE_MAX}
        return {"max_concurrent": self.max_concurrent, **waiting, "total_processed": self._total}

    async def get_stats(self) -> dict[str, Any]:
        return {"queue": self.queue, "sessions": len(self._sessions), "artifacts_of": len(self._artifacts)}

    def set_limits(self, **given: float | None) -> ResourceLimits:
        """Changes the limits of later executions and sessions, up to the caps."""
        limits = self.limits.model_copy(update={k: v for k, v in given.items() if v is not None})
        if why := self.caps.why_not(limits):
            raise RefusedError(why)
        self.limits = limits
        return limits

    async def vault_add(self, namespace: str, key: str, value: str, ttl_seconds: float | None = None) -> None:
        await self.vault.set_secret(namespace, key, value, ttl_seconds)
        self._log(AuditAction.vault_access, namespace, f"added {key}")

    async def vault_list(self, namespace: str) -> list[str]:
        return await self.vault.list_keys(namespace)

    async def vault_delete(self, namespace: str, key: str) -> None:
        await self.vault.delete_secret(namespace, key)
        self._log(AuditAction.vault_access, namespace, f"deleted {key}")

    async def audit_log(
        self, namespace: str = "default", action: AuditAction | None = None, limit: int = 50
    ) -> list[AuditEntry]:
        """The last entries of this process, the newest first. `cellgate audit` has the signed log."""
        found = [e for e in reversed(self._entries) if e.namespace == namespace and action in (None, e.action)]
        return found[: max(0, limit)]

    def _log(self, action: AuditAction, namespace: str, detail: str = "", **more: Any) -> None:
        self._entries.append(AuditEntry(action=action, namespace=namespace, detail=detail[:1000], **more))


TIMED_OUT = 124  # exit status, as of timeout(1)


def _given(limits: ResourceLimits | None) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in limits.model_fields_set} if limits else {}


def _end(done: Execution, limits: ResourceLimits) -> tuple[bool, int, str]:
    """Success, exit status and what standard error says about it."""
    if done.ok:
        return True, 0, ""
    if done.status is Status.TIMEOUT:
        return False, TIMED_OUT, f"Execution timed out after {limits.timeout_seconds:g} seconds"
    error = done.error
    if done.status is not Status.ERROR or error is None:
        return False, 137 if done.status is Status.KERNEL_DIED else 1, done.text or str(done.status)
    if error.ename in ("ExitStatus", "SystemExit") and re.fullmatch(r"\d{1,3}", error.evalue):
        code = int(error.evalue)
        return code == 0, code, ""
    return False, 1, str(error)


def _pairs(text: str) -> list[list[str]] | None:
    """Names and types as a kernel has sent them, which it may have made up."""
    try:
        found = json.loads(text)
        return [[str(name), str(kind)] for name, kind in found]
    except (ValueError, TypeError, RecursionError):
        return None
