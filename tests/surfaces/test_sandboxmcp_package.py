"""`cellgate.sandboxmcp`: the blocks of sandboxmcp's document after the import line was changed, and what they promise."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

# (code, what holds after it)
BLOCKS = re.findall(
    r"```python\n((?:.|\n)*?)```\n\n    (.*)\n", (Path(__file__).parent / "data/sandboxmcp.md").read_text()
)


async def in_turn(names: dict[str, Any], code: str) -> Any:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    found = eval(compile(code.replace("from sandboxmcp", "from cellgate.sandboxmcp"), "<block>", "exec", flags), names)
    return await found if inspect.iscoroutine(found) else found


def test_the_blocks_of_the_document(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cellgate.sandboxmcp.events import SandboxEventType, emit

    monkeypatch.chdir(tmp_path)
    tasks: list[asyncio.Task[None]] = []

    def approve_when_asked(guard: Any) -> None:
        async def approve() -> None:
            while not guard.approve_egress("default", "api.example.com"):
                await asyncio.sleep(0)

        tasks.append(asyncio.create_task(approve()))

    def emit_soon() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: emit(SandboxEventType.package_installed, "default", "six"))

    async def run() -> None:
        names: dict[str, Any] = {
            "data_bytes": b"a,b\n1",
            "emit_soon": emit_soon,
            "approve_when_asked": approve_when_asked,
        }
        for code, check in BLOCKS:
            await in_turn(names, code)
            assert eval(check, names), (code, names.get("result"))
        for sandbox in [v for v in names.values() if hasattr(v, "aclose") and hasattr(v, "vault_add")]:
            await sandbox.aclose()

    asyncio.run(asyncio.wait_for(run(), 240))


def with_sandbox(work: Callable[[Any], Awaitable[Any]], **parameters: Any) -> Any:
    """The result of `work`, with a pipeline that ends after it."""
    from cellgate.sandboxmcp import SandboxFactory

    async def run() -> Any:
        sandbox = SandboxFactory.create(**parameters)
        try:
            return await work(sandbox)
        finally:
            await sandbox.aclose()

    return asyncio.run(asyncio.wait_for(run(), 120))


def test_events_of_real_actions(package: Path) -> None:
    """13 of the 14 in their order; package.installed needs an index."""
    from cellgate.sandboxmcp import ExecutionRequest, ResourceLimits, sandbox_event_bus

    async def work(sandbox: Any) -> list[str]:
        queue = sandbox_event_bus.subscribe("n")

        async def run(code: str, **more: Any) -> Any:
            return await sandbox.execute(ExecutionRequest(code=code, namespace="n", **more))

        async def decide(domain: str, namespace: str) -> bool:
            return domain == "good.example"

        sandbox.network.questions.ask = decide
        session = await sandbox.create_session(namespace="n")
        await run("open('f', 'w').write('1')", session_id=session.id)
        await sandbox.kill_session(session.id, "n")
        await run("1 / 0")
        await sandbox.vault_add("n", "KEY", "value")
        await run("while True: pass", resource_limits=ResourceLimits(timeout_seconds=1))
        await sandbox.vault_delete("n", "KEY")
        await run("print('x' * 5_000_000)", resource_limits=ResourceLimits(max_output_bytes=1000))
        await run("1", allowed_domains=["good.example"])
        await run("1", allowed_domains=["bad.example"])
        await asyncio.gather(*(run("import time; time.sleep(0.5)") for _ in range(2)))
        sandbox_event_bus.unsubscribe(queue)
        return [queue.get_nowait().type.value for _ in range(queue.qsize())]

    events = with_sandbox(work, enable_network=True, max_concurrent_jobs=1)
    ran = ["execution.started", "execution.completed"]
    assert events[:14] == [
        "session.created",
        "execution.started",
        "artifact.signed",
        "execution.completed",
        "session.killed",
        "execution.started",
        "execution.failed",
        "vault.accessed",
        "execution.started",
        "execution.timeout",
        "execution.started",
        "resource.exceeded",
        "execution.completed",
        "egress.requested",
    ]
    assert events[14:17] == ["egress.approved", *ran]
    assert events[17:20] == ["egress.requested", "egress.denied", "execution.failed"]
    assert sorted(events[20:]) == sorted(["queue.backpressure", *ran, *ran])


def test_a_full_queue_is_an_error(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cellgate.sandboxmcp import ExecutionRequest

    monkeypatch.setattr("cellgate.sandboxmcp.pipeline.QUEUE_MAX", 1)

    async def work(sandbox: Any) -> list[Any]:
        return await asyncio.gather(
            *(sandbox.execute(ExecutionRequest(code="import time; time.sleep(0.5)")) for _ in range(4))
        )

    results = with_sandbox(work, max_concurrent_jobs=1)
    refused = [r for r in results if not r.success]
    assert len(refused) == 2 and all("the queue is full" in r.stderr for r in refused)


def test_artifacts_are_checked(package: Path) -> None:
    from cellgate.sandboxmcp import ArtifactSigner

    artifact = ArtifactSigner.sign("a", b"content")
    assert ArtifactSigner.verify(artifact, artifact.sha256)
    other = ArtifactSigner.sign("b", b"other")
    for change in (
        {"content_b64": other.content_b64},
        {"content_b64": other.content_b64, "sha256": other.sha256},
        {"signature": other.signature},
        {"signature": ""},
        {"name": "b"},
        {"size_bytes": 1},
    ):
        forged = artifact.model_copy(update=change)
        assert not ArtifactSigner.verify(forged, forged.sha256), change


def test_an_undecided_domain_is_refused(package: Path) -> None:
    from cellgate.sandboxmcp import NetworkGuard

    async def work() -> None:
        guard = NetworkGuard(enable_network=True)
        guard.questions.timeout = 0.05
        assert await guard.request_egress("a.example", "n") is False and guard.pending_requests == []
        assert not guard.approve_egress("n", "a.example") and guard.hosts("n") == []
        assert await asyncio.gather(*(guard.request_egress("a.example", "n") for _ in range(2))) == [False, False]
        both = asyncio.gather(*(guard.request_egress("a.example", "n") for _ in range(2)))
        await asyncio.sleep(0)
        assert guard.pending_requests == [{"namespace": "n", "domain": "a.example"}]
        assert guard.approve_egress("n", "A.example")
        assert await both == [True, True] and guard.hosts("other") == []
        assert await NetworkGuard().request_egress("a.example", "n") is False
        for wrong in ("*", "*.example", "a b", "", "[::1]"):
            assert await guard.request_egress(wrong, "n") is False

    asyncio.run(work())


def test_a_host_of_the_list_is_asked_about_with_another_port(package: Path) -> None:
    from cellgate.sandboxmcp import ExecutionRequest

    asked: list[str] = []

    async def decide(domain: str, namespace: str) -> bool:
        asked.append(domain)
        return False

    async def work(sandbox: Any) -> None:
        sandbox.network.questions.ask = decide
        code = "import urllib.request as u\nfor port in (81, 82):\n  try: u.urlopen(f'http://good.example:{port}')\n"
        done = await sandbox.execute(ExecutionRequest(code=f"{code}  except OSError as e: print(e)"))
        assert asked == ["good.example:82"] and len(done.stdout.splitlines()) == 2
        assert await sandbox.request_egress("good.example:81") and await sandbox.request_egress("good.example")

    with_sandbox(work, enable_network=True, allowed_domains=["good.example:81"])


GIVES_UP = """
import os, socket, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
for host in ("good.example", "later.example"):
    with socket.create_connection((proxy.hostname, proxy.port)) as connection:
        connection.sendall(f"CONNECT {host}:443 HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
        connection.settimeout(0.5 if host == "good.example" else None)
        try:
            print(connection.recv(100))
        except TimeoutError:
            pass
"""


def test_code_that_gives_up_before_the_decision_goes_on(package: Path) -> None:
    async def work(sandbox: Any) -> None:
        session = await sandbox.create_session()
        core = sandbox.session(session.id, "default").session._core

        ended = asyncio.Event()

        async def decide(domain: str, namespace: str) -> bool:
            if domain == "later.example":
                return not await ended.wait()
            (number,) = core.undecided
            while number in core.undecided:
                await asyncio.sleep(0.01)
            ended.set()
            return True

        sandbox.network.questions.ask = decide
        done = await sandbox.execute_in_session(session.id, GIVES_UP)
        assert done.success and "403" in done.stdout and ended.is_set()

    with_sandbox(work, enable_network=True)


def test_sessions_that_are_opened_at_once_have_a_limit(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cellgate.sandboxmcp.pipeline.SESSIONS_MAX", 1)

    async def work(sandbox: Any) -> None:
        first, second = await asyncio.gather(*(sandbox.create_session() for _ in range(2)), return_exceptions=True)
        assert first.status == "idle" and "terminate one" in str(second)
        await sandbox.kill_session(first.id)
        assert (await sandbox.create_session()).status == "idle"

    with_sandbox(work)


def test_code_that_waits_for_a_session_that_ends(package: Path) -> None:
    async def work(sandbox: Any) -> None:
        session = await sandbox.create_session()
        waits = [asyncio.create_task(sandbox.execute_in_session(session.id, "while True: pass")) for _ in range(2)]
        while not sandbox.session(session.id, "default").session._core.consumers or sandbox.queue["active"] < 2:
            await asyncio.sleep(0.01)
        await sandbox.kill_session(session.id)
        assert not any(done.success for done in await asyncio.gather(*waits))
        assert [s.status for s in await sandbox.list_sessions()] == ["killed"]

    with_sandbox(work)


def test_packages_are_asked_about(package: Path) -> None:
    """Without an index the installation fails, in its sandbox; nothing is asked twice or about a flag."""
    from cellgate.sandboxmcp import Language

    asked: list[str] = []

    async def ask(question: str) -> bool:
        asked.append(question)
        return True

    async def work(sandbox: Any) -> None:
        sandbox.ask = ask
        done, text = await sandbox.install_package(Language.python, ["cellgate-no-such-package==1"])
        assert not done and text and asked == ["install cellgate-no-such-package==1 for python from pypi.org"]
        for wrong in (["-r x"], ["git+https://a"], ["../x"], []):
            assert (await sandbox.install_package(Language.python, wrong))[0] is False
        assert (await sandbox.install_package(Language.shell, ["six"]))[0] is False
        assert len(asked) == 1

    with_sandbox(work)


@pytest.mark.parametrize(
    ("language", "host", "package_name", "code"),
    [
        ("python", "pypi.org", "six==1.17.0", "import six; print(six.__version__)"),
        ("node", "registry.npmjs.org", "left-pad@1.3.0", "console.log(require('left-pad')('1.17.0', 6))"),
    ],
)
def test_packages_of_the_index(package: Path, language: str, host: str, package_name: str, code: str) -> None:
    """Executions and sessions that are open see them; the event says what was installed."""
    from cellgate.sandboxmcp import ExecutionRequest, Language, sandbox_event_bus

    try:
        socket.create_connection((host, 443), 5).close()
    except OSError as e:
        pytest.skip(f"{host} cannot be reached: {e}")

    async def ask(question: str) -> bool:
        return True

    async def work(sandbox: Any) -> None:
        sandbox.ask, queue = ask, sandbox_event_bus.subscribe()
        session = await sandbox.create_session(Language(language))
        request = ExecutionRequest(code=code, language=Language(language), packages=[package_name])
        first = await sandbox.execute(request)
        assert first.stdout == "1.17.0\n", first.stderr
        assert (await sandbox.execute_in_session(session.id, code)).stdout == "1.17.0\n"
        assert "package.installed" in [queue.get_nowait().type.value for _ in range(queue.qsize())]

    with_sandbox(work)


def test_yaml(package: Path, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    from cellgate.sandboxmcp import SandboxFactory

    file = tmp_path / "sandbox_config.yaml"
    file.write_text("max_ram_mb: 256\nvault: env\n")
    assert SandboxFactory.from_yaml(file).limits.max_ram_mb == 256
    file.write_text("max_ram: 256\n")
    with pytest.raises(ValueError, match="max_ram is no parameter"):
        SandboxFactory.from_yaml(file)


def test_what_is_refused(package: Path) -> None:
    from cellgate.sandboxmcp import SandboxFactory
    from cellgate.sandboxmcp.mcp_server import SandboxMCPServer

    for parameters, says in (
        ({"default_backend": "docker", "image": "python:3"}, "no container runs here"),
        ({"default_backend": "docker", "hardened": False}, "no weaker sandbox"),
        ({"default_backend": "docker", "network_mode": "bridge"}, "network_mode"),
        ({"default_backend": "vm"}, "default_backend is one of"),
        ({"sqlite_path": "mine.db"}, "cellgate audit"),
        ({"redact_pii": True}, "redact_pii is no parameter"),
    ):
        with pytest.raises(ValueError, match=says):
            SandboxFactory.create(**parameters)
    with pytest.raises(ValueError, match="only stdio"):
        SandboxMCPServer(SandboxFactory.default()).run(transport="sse")


@pytest.mark.parametrize(
    "line",
    [
        "date; id > f",
        "date && id",
        "date | id",
        "date $(id)",
        "date `id`",
        "date > f",
        "date\nid",
        "date 'a b'",
        "date\tid",
        "$X",
        "date x",
        "./date",
        "/tmp/date",
        "DATE=1 id",
        "~/date",
        "{id,}",
        "uname\x00-a",
    ],
)
def test_lines_for_a_shell_match_no_pattern(package: Path, line: str) -> None:
    from cellgate.sandboxmcp.security.host_guard import HostGuard

    assert HostGuard().check(line) == "denied"
    assert HostGuard().check("date") == HostGuard().check("uname -a") == "allowed"
    assert HostGuard(blocked=["*"]).check("date") == "blocked"
    assert HostGuard(always_allowed=["*"]).check("date; id") == "denied"


def test_artifacts_have_bounds(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cellgate import CellgateError
    from cellgate.sandboxmcp import ExecutionRequest

    monkeypatch.setattr("cellgate.sandboxmcp.pipeline._CONTENTS_MAX", 1500)
    monkeypatch.setattr("cellgate.sandboxmcp.pipeline._HASHED_MAX", 3500)

    monkeypatch.setattr("cellgate.sandboxmcp.pipeline.KEPT_FILES", 3500)

    async def work(sandbox: Any) -> Any:
        code = "for i in range(9): open(f'f{i}', 'w').write(f'{i}' * 1000)"
        first, second = [await sandbox.execute(ExecutionRequest(code=code)) for _ in range(2)]
        for n in (1, 2):
            name = second.artifacts[n].name
            assert second.artifacts[n].uri == f"sandboxmcp://artifact/{second.request_id}/{n}"
            assert await sandbox.read_artifact(second.request_id, n) == name[1:].encode() * 1000
        # Those of the first have made room, and the one with content is no resource.
        for id, n in ((first.request_id, 1), (second.request_id, 0), (second.request_id, 3), ("x", 1)):
            with pytest.raises(CellgateError, match="no content is kept"):
                await sandbox.read_artifact(id, n)
        return second

    result = with_sandbox(work)
    assert [bool(a.content_b64) for a in result.artifacts] == [True, False, False]
    assert "left out" in result.metadata["artifacts_truncated"]


def test_a_program_at_home_does_not_show_the_home(
    package: Path, monkeypatch: pytest.MonkeyPatch, build_dir: Path
) -> None:
    """node in ~/bin: nothing else of the home folder is visible."""
    from cellgate.sandboxmcp import ExecutionRequest

    async def work(sandbox: Any) -> Any:
        code = f"import os; print(os.path.exists({home + '/secret'!r}))"
        return await sandbox.execute(ExecutionRequest(code=code))

    with TemporaryDirectory(dir=build_dir) as home:
        (Path(home) / "bin").mkdir()
        (Path(home) / "secret").write_text("hidden")
        node = Path(home) / "bin/node"
        node.write_text("#!/bin/sh\n")
        node.chmod(0o755)
        monkeypatch.setenv("HOME", home)
        monkeypatch.setenv("PATH", f"{home}/bin:/usr/bin:/bin")
        assert with_sandbox(work).stdout == "False\n"
