"""cellgate.srt: srt's interface, with real sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cellgate.srt import (
    NetworkConfig,
    NetworkHostPattern,
    SandboxManager,
    SandboxRuntimeConfig,
    SandboxViolationStore,
    ValidationError,
    _host,
    manager,
)
from cellgate.srt.config import SandboxRuntimeConfig as Same
from cellgate.srt.config import schemas
from cellgate.srt.sandbox_utils import state_folder

pytestmark = pytest.mark.anyio

FETCH = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://%s/ HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' {0} {0} >&3; head -n1 <&3"
OK, REFUSED = "HTTP/1.1 200 OK\n", "HTTP/1.1 403 Forbidden\n"


@pytest.fixture(autouse=True)
def folder(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder. Afterwards nothing of the manager is left."""
    monkeypatch.chdir(workspace)
    monkeypatch.setattr(manager, "_sandbox_violation_store", SandboxViolationStore())
    yield workspace
    asyncio.run(SandboxManager.reset())
    manager._config = None
    assert folders() == []


def folders() -> list[Path]:
    above = state_folder() / "srt"
    return list(above.iterdir()) if above.exists() else []


def config(allowed: list[str] | None = None, denied: list[str] | None = None, **more: Any) -> Any:
    network = {"allowed_domains": allowed or [], "denied_domains": denied or [], **more.pop("network", {})}
    return SandboxRuntimeConfig(network=network, filesystem={"allow_write": ["."]}, **more)


def shell(line: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, **options)


async def wrapped(command: str, *args: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Wraps the command and runs it, with the loop blocked meanwhile."""
    return shell(await SandboxManager.wrap_with_sandbox(command, *args, **options))


async def start(command: str, **options: Any) -> asyncio.subprocess.Process:
    line = await SandboxManager.wrap_with_sandbox(command, **options)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_shell(line, stdin=pipe, stdout=pipe, stderr=pipe)


async def read_line(p: asyncio.subprocess.Process) -> str:
    assert p.stdout
    return (await p.stdout.readline()).decode().replace("\r\n", "\n")


async def answers(p: asyncio.subprocess.Process, expected: str) -> None:
    """Has the command make requests until one has this result: it gets new rules a moment after the program's call."""
    assert p.stdin
    line = ""
    while line != expected:
        p.stdin.write(b"\n")
        line = await read_line(p)
        assert line in (OK, REFUSED)


def test_example(folder: Path, repo: Path, package: Path) -> None:
    """The one of docs/python-package.md."""
    text = (repo / "docs/python-package.md").read_text().partition("## In place of srt")[2]
    code = text.partition("```python\n")[2].partition("```")[0]
    assert "SandboxManager.initialize(" in code
    if not shutil.which("curl"):
        pytest.skip("there is no curl")
    p = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(package)}
    )
    assert p.returncode == 0, p.stderr
    said, line, end = p.stdout.splitlines()[0], *p.stdout.splitlines()[-2:]
    assert said.startswith("curl: ") and end == "</sandbox_violations>"
    assert line == "deny network-outbound example.org:443 (refused by the user)"


async def test_files_network_and_violations(folder: Path, port: int) -> None:
    seen: list[list[str]] = []
    await SandboxManager.initialize(config(["127.0.0.1"], ["other.example"]))
    assert await SandboxManager.wait_for_network_initialization()
    assert (SandboxManager.get_proxy_port(), SandboxManager.get_socks_proxy_port()) == (3128, 1080)
    SandboxManager.get_sandbox_violation_store().subscribe(lambda vs: seen.append([v.line for v in vs]))
    p = await wrapped("echo yes > inside; echo no > ../outside")
    assert p.returncode != 0 and "Read-only file system" in p.stderr
    assert (folder / "inside").read_text() == "yes\n" and not (folder.parent / "outside").exists()
    (write,) = SandboxManager.get_sandbox_violation_store().get_violations()
    assert write.line.startswith("deny file-write ") and "outside" in write.line
    p = await wrapped(FETCH.format(f"127.0.0.1:{port}"))
    assert p.stdout == OK, p.stderr
    command = FETCH.format("other.example")
    p = await wrapped(command)
    assert (p.stdout, p.stderr) == (REFUSED, "")
    (violation,) = SandboxManager.get_sandbox_violation_store().get_violations_for_command(command)
    line = violation.line
    assert line.startswith("deny network-outbound other.example:80 (") and violation.command == command[:100]
    annotated = SandboxManager.annotate_stderr_with_sandbox_failures(command, "text")
    assert annotated == f"text\n<sandbox_violations>\n{line}\n</sandbox_violations>"
    assert SandboxManager.annotate_stderr_with_sandbox_failures("another", "text") == "text"
    await asyncio.sleep(0)
    assert seen == [[], [write.line, line]] or seen == [[], [write.line], [write.line, line]]


async def test_the_other_ports_configuration(folder: Path, port: int) -> None:
    """config.schemas, from_json(), names in camelCase, dictionaries that change a part of the configuration."""
    host, url = f"127.0.0.1:{port}", FETCH.format(f"127.0.0.1:{port}")
    (folder / "secret").write_text("s\n")
    given = {
        "network": {"allowedDomains": ["127.0.0.1"], "deniedDomains": []},
        "filesystem": {"denyRead": ["secret"], "allowWrite": ["."], "denyWrite": ["kept"]},
    }
    assert SandboxRuntimeConfig is Same is schemas.SandboxRuntimeConfig
    assert ValidationError is schemas.ValidationError
    assert SandboxRuntimeConfig.from_json(given) == SandboxRuntimeConfig.from_json(json.dumps(given))
    with pytest.raises(ValidationError, match="unknown name"):
        SandboxRuntimeConfig.from_json({**given, "netwrok": {}})
    await SandboxManager.initialize(given)
    assert SandboxManager.get_config() == SandboxRuntimeConfig.from_json(given)
    assert (await wrapped(url)).stdout == OK and (await wrapped("echo x > f")).returncode == 0

    async def run(command: str, changes: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return await wrapped(command, None, changes)

    # A section that is left out, and what a section leaves out, is the program's.
    assert (await run("echo x > f", {"filesystem": {"allowWrite": []}})).returncode == 1
    assert (await run("cat secret", {"filesystem": {"allow_write": []}})).returncode == 1
    assert (await run("cat secret", {"filesystem": {"denyRead": []}})).stdout == "s\n"
    assert (await run(url, {"filesystem": {"allowWrite": []}})).stdout == OK
    assert (await run(url, {"network": {"allowedDomains": []}})).stdout == REFUSED
    assert (await run(url, {"network": {"deniedDomains": ["127.0.0.1"]}})).stdout == REFUSED
    assert (await run("cat secret", {"network": {"allowedDomains": []}})).returncode == 1
    assert (await run(url, {})).stdout == OK
    for wrong in (
        {"filesytem": {}},
        {"filesystem": {"allowWrite": [], "allow_write": ["/"]}},
        {"filesystem": {"allowWrit": []}},
        {"network": {"allowedDomains": ["https://example.org"]}},
        {"filesystem": "x"},
    ):
        with pytest.raises(ValidationError):
            await SandboxManager.wrap_with_sandbox("true", None, wrong)
    # The program's rules change for commands that leave the network out.
    SandboxManager.update_config({**given, "network": {"allowedDomains": ["other.example"]}})
    assert (await run(url, {"filesystem": {"allowWrite": []}})).stdout == REFUSED
    assert (await run(url, {"network": {"allowedDomains": [host.partition(":")[0]]}})).stdout == OK


async def test_update_is_checked_before_it_replaces(port: int) -> None:
    await SandboxManager.initialize(config(["127.0.0.1"]))
    before = SandboxManager.get_config()
    with pytest.raises(RuntimeError, match="not changed.*colour"):
        SandboxManager.update_config(config(cellgate={"colour": 1}))
    with pytest.raises(ValidationError):
        SandboxManager.update_config({})
    assert SandboxManager.get_config() is before
    assert (await wrapped(FETCH.format(f"127.0.0.1:{port}"))).stdout == OK


async def test_violations_of_system_calls_and_of_names() -> None:
    """And what a program writes into them: one line that ends no block and has no control characters."""
    await SandboxManager.initialize(config())
    name = "a\x1b[2J\n</sandbox_violations>\u202eb"
    command = (
        f"{sys.executable} -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)'; "
        f"mkdir -p '{name}'; touch '{name}/.bashrc'; true"
    )
    p = await wrapped(command)
    assert p.returncode == 0
    annotated = SandboxManager.annotate_stderr_with_sandbox_failures(command, "")
    lines = annotated.splitlines()
    assert lines[:2] == ["", "<sandbox_violations>"] and lines[-1] == "</sandbox_violations>"
    assert lines[2].startswith("deny socket socket(AF_UNIX, SOCK_DGRAM) (")

    assert any(".bashrc" in line for line in lines[2:-1]) and len(lines) == 5
    assert all(line.isprintable() for line in lines) and annotated.count("<") == 2


async def test_files_that_could_not_be_opened(folder: Path) -> None:
    await SandboxManager.initialize(config(), enable_log_monitor=True)
    command = "echo x > ../outside"
    await wrapped(command)
    annotated = SandboxManager.annotate_stderr_with_sandbox_failures(command, "")
    assert f"deny file-write {folder.parent}/outside (" in annotated


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "'",
        '"',
        "\\",
        "$HOME `id` $(id) !!",
        "a\nb\n",
        "-e",
        "\x01\x1b[2J",
        "\u4e16\u754c",
        os.fsdecode(b"\xff\xfe"),
        "x" * 60000,
    ],
)
@pytest.mark.parametrize("bin_shell", [None, "sh"])
async def test_quoting(text: str, bin_shell: str | None) -> None:
    line = await SandboxManager.wrap_with_sandbox(f"printf %s {shlex.quote(text)}", bin_shell)
    p = subprocess.run(line, shell=True, capture_output=True)
    assert (p.stdout, p.stderr) == (os.fsencode(text), b"")


async def test_commands_that_are_no_line(folder: Path) -> None:
    for command in ("", "-x; true", "--help; true", "exit 7"):
        p = await wrapped(command)
        assert p.returncode == {"": 0, "exit 7": 7}.get(command, 0), (command, p)
    with pytest.raises(ValueError, match="NUL"):
        await SandboxManager.wrap_with_sandbox("a\0b")
    with pytest.raises(ValueError, match="NUL"):
        await SandboxManager.wrap_with_sandbox("a", "sh\0")
    # Without a configuration nothing is allowed.
    assert "Read-only" in (await wrapped("echo x > file")).stderr
    p = await wrapped(FETCH.format("other.example"))
    assert p.stdout == REFUSED
    assert (await wrapped("x", "no such shell")).returncode == 127


async def test_configuration_of_one_command(folder: Path, port: int) -> None:
    """Its own lists; what the program denies stays denied, and what it leaves out is the program's."""
    general = config(["127.0.0.1"], resource_limits={"max_file_size_mb": 1})
    await SandboxManager.initialize(general)
    url = FETCH.format(f"127.0.0.1:{port}")
    assert (await wrapped(url, custom_config=config(["localhost"]))).stdout == REFUSED
    assert (await wrapped(url, custom_config=config())).stdout == REFUSED
    assert (await wrapped(url, custom_config=config(["127.0.0.1"]))).stdout == OK
    big = "head -c 2000000 /dev/zero > big"
    assert (await wrapped(big, custom_config=config())).returncode == 153
    more = config(resource_limits={"max_file_size_mb": 4})
    assert (await wrapped(big, custom_config=more)).returncode == 0
    SandboxManager.update_config(config(denied=["127.0.0.1"]))
    assert (await wrapped(url, custom_config=config(["127.0.0.1"]))).stdout == REFUSED
    assert await SandboxManager.wait_for_network_initialization()


@pytest.mark.parametrize(
    ("answer", "reached"), [(True, True), (False, False), (1, False), ("yes", False), (ValueError("x"), False)]
)
async def test_ask_callback(port: int, answer: object, reached: bool) -> None:
    asked: list[NetworkHostPattern] = []

    async def ask(host: NetworkHostPattern) -> Any:
        asked.append(host)
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await SandboxManager.initialize(config(["other.example"]), ask)
    loop = asyncio.get_running_loop()
    p = await loop.run_in_executor(
        None, shell, await SandboxManager.wrap_with_sandbox(FETCH.format(f"127.0.0.1:{port}"))
    )
    assert p.stdout == (OK if reached else REFUSED)
    assert asked == [NetworkHostPattern("127.0.0.1", port)]
    # Nothing is allowed: nobody is asked.
    p = await loop.run_in_executor(
        None,
        shell,
        await SandboxManager.wrap_with_sandbox(FETCH.format(f"127.0.0.1:{port}"), custom_config=config()),
    )
    assert p.stdout == REFUSED and len(asked) == 1


def test_ask_callback_without_a_loop(port: int) -> None:
    """Of a program that has called initialize() in a loop that has ended, and which may be a plain function."""
    asked: list[str] = []

    def ask(host: Any) -> Any:
        asked.append(host.host)
        return True

    asyncio.run(SandboxManager.initialize(config(["other.example"]), ask))
    line = asyncio.run(SandboxManager.wrap_with_sandbox(FETCH.format(f"127.0.0.1:{port}")))
    assert shell(line).stdout == OK and asked == ["127.0.0.1"]


async def test_a_question_that_nobody_waits_for() -> None:
    ended = asyncio.Event()

    async def ask(host: Any) -> bool:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            ended.set()
        return True

    await SandboxManager.initialize(config(["other.example"]), ask)
    connect = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT 127.0.0.1:1 HTTP/1.1\\r\\n\\r\\n' >&3"
    p = await start(f"{connect}; read x; exec 3>&-; read x")
    assert p.stdin
    await asyncio.sleep(0.5)
    p.stdin.write(b"\n")
    await asyncio.wait_for(ended.wait(), 30)
    p.stdin.write(b"\n")
    await p.wait()


async def test_new_rules_for_commands_that_run_and_that_were_wrapped(folder: Path, port: int) -> None:
    await SandboxManager.initialize(config(["127.0.0.1"]))
    fetch = FETCH.format(f"127.0.0.1:{port}")
    p = await start(f"while read x; do ({fetch}); done")
    later = await SandboxManager.wrap_with_sandbox(f"{fetch}; touch later")
    await answers(p, OK)
    new = config(["other.example"])
    new.filesystem.allow_write = []
    SandboxManager.update_config(new)
    new.network.allowed_domains.append("127.0.0.1")  # a copy is in force
    await answers(p, REFUSED)
    # The network is today's; the files are those of the configuration that it was wrapped with.
    assert shell(later).stdout == REFUSED and (folder / "later").exists()
    SandboxManager.update_config(new)
    await answers(p, OK)
    assert p.stdin
    p.stdin.close()
    assert await p.wait() == 0
    assert "Read-only" in (await wrapped("touch now")).stderr


async def test_a_host_that_is_late(port: int) -> None:
    """It takes a connection, and reads denials, only after the program has gone on."""

    def delay(seconds: float) -> None:
        assert manager._host
        manager._host._loop.call_soon_threadsafe(time.sleep, seconds)

    await SandboxManager.initialize(config(["127.0.0.1"]))
    command = FETCH.format("other.example")
    line = await SandboxManager.wrap_with_sandbox(command)
    delay(1)
    assert shell(line).stdout == REFUSED
    assert "other.example" in SandboxManager.annotate_stderr_with_sandbox_failures(command, "")
    delay(2)
    p = await start(f"echo ready; while read x; do ({FETCH.format(f'127.0.0.1:{port}')}); done")
    assert await read_line(p) == "ready\n" and p.stdin
    SandboxManager.update_config(config(["other.example"]))
    await answers(p, REFUSED)
    p.stdin.close()
    await p.wait()


async def test_reset_while_commands_run(port: int) -> None:
    await SandboxManager.initialize(config(["127.0.0.1"]))
    fetch = FETCH.format(f"127.0.0.1:{port}")
    p = await start(f"({fetch}); while read x; do ({fetch}); echo end >&2; done; true")
    later = await SandboxManager.wrap_with_sandbox("echo ran")
    assert await read_line(p) == OK and p.stdin and p.stderr
    await SandboxManager.reset()
    assert b"no network any more" in await p.stderr.readline()
    said = b""
    while b"Connection refused" not in said:  # the proxy's processes may still be ending
        p.stdin.write(b"\n")
        said = await p.stderr.readuntil(b"end\n")
    p.stdin.close()
    assert await read_line(p) == ""
    assert await p.wait() == 0
    q = shell(later)
    assert q.returncode == 1 and "Refusing to run" in q.stderr and q.stdout == ""
    assert not await SandboxManager.wait_for_network_initialization()
    assert SandboxManager.is_sandboxing_enabled()  # as in srt
    await SandboxManager.initialize(config(["127.0.0.1"]))
    assert (await wrapped(fetch)).stdout == OK


HOST = """
import asyncio, os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from cellgate.srt import SandboxManager, SandboxRuntimeConfig
async def main():
    c = SandboxRuntimeConfig(network={"allowed_domains": ["127.0.0.1"]}, filesystem={})
    await SandboxManager.initialize(c)
    line = await SandboxManager.wrap_with_sandbox(sys.argv[2])
    subprocess.Popen(["sh", "-c", line])
    if len(sys.argv) > 3 and os.fork() == 0:
        while os.read(0, 1): pass
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.parametrize("forked", [False, True])
def test_a_host_that_is_killed(folder: Path, package: Path, port: int, forked: bool) -> None:
    """Also where a child of it lives on: its commands lose their network, and its folder is removed by the next one."""
    fetch = FETCH.format(f"127.0.0.1:{port}")
    os.mkfifo("go")
    command = f"{fetch}; read x < go; ({fetch}) 2>&1; echo end"
    argv = [sys.executable, "-c", HOST, str(package), command, *(["fork"] if forked else [])]
    r, w = os.pipe()
    with subprocess.Popen(argv, stdin=r, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        os.close(r)
        try:
            assert p.stdout and p.stdout.readline() == OK
            (left,) = folders()
            p.send_signal(signal.SIGKILL)
            p.wait()
            # The sandbox learns of the end when it next runs: until then the command has its network.
            assert p.stderr and any("no network any more" in line for line in p.stderr)
            Path("go").write_text("\n")
            lines = [p.stdout.readline()]
            while lines[-1] != "end\n":
                lines.append(p.stdout.readline())
            assert OK not in lines
        finally:
            p.kill()
            os.close(w)  # the child ends
    assert left.exists()
    asyncio.run(SandboxManager.initialize(config()))
    assert left not in folders()


def test_a_child_after_a_fork_has_a_host_of_its_own() -> None:
    async def main() -> None:
        assert (await wrapped("echo x")).stdout == "x\n"

    asyncio.run(SandboxManager.initialize(config()))
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(main())
            asyncio.run(SandboxManager.reset())
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    asyncio.run(main())
    assert len(folders()) == 1


@pytest.mark.parametrize("taken", [True, False])
def test_a_child_after_a_fork_has_no_connection(taken: bool) -> None:
    """Also none whose command has not said anything yet, and none that waits to be taken. Other sockets stay."""
    asyncio.run(SandboxManager.initialize(config()))
    host = manager._host
    assert host
    ours, theirs = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as s, ours, theirs:
        s.settimeout(30)
        before = host._progress
        if not taken:
            host._loop.call_soon_threadsafe(time.sleep, 1)
        s.connect(str(host.path))
        while taken and host._progress == before:
            time.sleep(0.01)
        socket.setdefaulttimeout(30)
        pid = os.fork()
        if pid == 0:
            try:
                s.close()
                os._exit(0 if theirs.recv(1) == b"x" else 1)
            finally:
                os._exit(2)
        try:
            socket.setdefaulttimeout(None)
            asyncio.run(SandboxManager.reset())
            assert s.recv(1) == b""
        finally:
            ours.send(b"x")
            assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("home", [True, False])
async def test_commands_do_not_see_their_host(folder: Path, home: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither files nor socket: also with a home of their own, and where they may use all sockets and write above."""
    c = config(network={"allow_all_unix_sockets": True})
    c.filesystem.allow_write = [str(state_folder().parent)]
    await SandboxManager.initialize(c)
    await wrapped("true")
    (mine,) = folders()
    code = f"""
        import os, socket
        for f in ("0.json", "socket"):
            try: open({str(mine)!r} + "/" + f, "r+"); print("open")
            except OSError as e: print(type(e).__name__)
        try: open({str(mine)!r} + "/0.json", "x"); print("open")
        except OSError as e: print(type(e).__name__)
        try: os.rename({str(mine)!r}, {str(mine)!r} + "2"); print("renamed")
        except OSError as e: print(type(e).__name__)
        try: socket.socket(socket.AF_UNIX).connect({str(mine / "socket")!r}); print("connected")
        except OSError as e: print(type(e).__name__)
    """
    line = await SandboxManager.wrap_with_sandbox(f"{sys.executable} - <<'E'\n{textwrap.dedent(code)}\nE")
    env = dict(os.environ) if home else {"PATH": os.environ["PATH"], "HOME": str(folder)}
    p = shell(line, env=env)
    assert p.returncode == 0, p.stderr
    assert "open" not in p.stdout and "renamed" not in p.stdout and "connected" not in p.stdout, p.stdout
    assert p.stdout.split()[-1] == "FileNotFoundError"
    assert (mine / "0.json").exists() and stat_mode(mine) == 0o700 and stat_mode(mine / "0.json") == 0o600


def stat_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_strangers_at_the_socket(folder: Path) -> None:
    """Lines that no command sends end the connection, and nothing else."""
    await SandboxManager.initialize(config())
    await wrapped("true")
    (mine,) = folders()
    denied = '{"type":"denied","unsent":0,"denial":{"line":"deny x"}}'
    lines = [
        "x",
        "[]",
        "{}",
        '{"id":1}',
        '{"id":"9:"}',
        '{"id":"-2:"}',
        '{"id":"0:%"}\n' + denied,
        '{"id":"0:"}\n[]',
    ]
    lines += ['{"id":"0:"}\n' + json.dumps({"type": "denied", "denial": {}}), "x" * 3_000_000, "[" * 100_000]
    for line in lines:
        with socket.socket(socket.AF_UNIX) as s, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            s.settimeout(30)
            s.connect(str(mine / "socket"))
            s.sendall(line.encode() + b"\n")
            assert s.recv(1) == b"", line
    assert SandboxManager.get_sandbox_violation_store().get_total_count() == 0
    assert (await wrapped("echo x")).stdout == "x\n"


async def test_a_flood_of_violations() -> None:
    """The store is bounded, listeners are called less often than that, and one that fails stops nobody."""
    calls: list[int] = []

    def fail(_: object) -> None:
        if calls:
            raise ValueError

    await SandboxManager.initialize(config(["other.example"]))
    store = SandboxManager.get_sandbox_violation_store()
    store.subscribe(fail)
    store.subscribe(lambda vs: calls.append(len(vs)))
    code = """
        import http.client
        for i in range(1000):
            c = http.client.HTTPConnection("127.0.0.1", 3128)
            c.request("GET", "http://h%d.example/" % i); c.getresponse(); c.close()
    """
    p = await wrapped(f"{sys.executable} - <<'E'\n{textwrap.dedent(code)}\nE")
    assert p.returncode == 0, p.stderr
    store = SandboxManager.get_sandbox_violation_store()
    assert store.get_count() == 100 < store.get_total_count() <= 1000
    await asyncio.sleep(0)
    assert calls == [0, 100]
    assert (
        len(
            SandboxManager.annotate_stderr_with_sandbox_failures(
                f"{sys.executable} - <<'E'\n{textwrap.dedent(code)}\nE", ""
            )
        )
        < 20000
    )


async def test_many_commands_at_once() -> None:
    await SandboxManager.initialize(config(["other.example"]))
    processes = [await start(FETCH.format(f"h{i}.example") + f"; exit {i}") for i in range(20)]
    assert [await p.wait() for p in processes] == list(range(20))
    lines = [v.line.split()[2] for v in SandboxManager.get_sandbox_violation_store().get_violations()]
    assert sorted(lines) == sorted(f"h{i}.example:80" for i in range(20))


async def test_configurations_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="not available on this system.*colour"):
        await SandboxManager.initialize(config(cellgate={"colour": 1}))
    assert not SandboxManager.is_sandboxing_enabled()
    assert SandboxManager.check_dependencies()
    monkeypatch.setattr(manager, "program", lambda: Path("/nowhere/cellgate"))
    assert not SandboxManager.check_dependencies()
    with pytest.raises(RuntimeError, match="/nowhere/cellgate"):
        await SandboxManager.initialize(config())


async def test_too_many_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_host, "_FILES_MAX", 2)

    for host in ("a.example", "b.example", "a.example"):
        await SandboxManager.wrap_with_sandbox("true", custom_config=config([host]))
    with pytest.raises(RuntimeError, match="reset"):
        await SandboxManager.wrap_with_sandbox("true", custom_config=config(["c.example"]))
    await SandboxManager.reset()
    await SandboxManager.wrap_with_sandbox("true", custom_config=config(["c.example"]))


def test_a_state_folder_that_others_may_enter() -> None:
    above = state_folder() / "srt"
    above.mkdir(parents=True)
    above.chmod(0o755)
    with pytest.raises(RuntimeError, match="chmod or remove"):
        asyncio.run(SandboxManager.wrap_with_sandbox("true"))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"network": {}}, "SandboxRuntimeConfig.filesystem: required"),
        ({"network": {}, "filesystem": []}, "must be an object"),
        ({"network": {"alowedDomains": []}, "filesystem": {}}, "NetworkConfig.alowedDomains: unknown name"),
        ({"network": {"allowedDomains": [], "allowed_domains": []}, "filesystem": {}}, "given twice"),
        ({"network": {"allowedDomains": "a.b"}, "filesystem": {}}, "must be a list"),
        ({"network": {"allowedDomains": [1]}, "filesystem": {}}, "must be of type str"),
        ({"network": {"httpProxyPort": True}, "filesystem": {}}, "must be of type int"),
        ({"network": {"httpProxyPort": 0}, "filesystem": {}}, "must be 1 to 65535"),
        ({"network": {}, "filesystem": {"denyRead": [""]}}, "cannot be empty"),
        ({"network": {}, "filesystem": {}, "ignoreViolations": {"*": "x"}}, "must be a list"),
    ],
)
def test_configurations_that_are_wrong(values: dict[str, Any], error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        SandboxRuntimeConfig.model_validate(values)


def test_models() -> None:
    text = json.dumps(
        {
            "network": {"allowedDomains": ["a.example"], "httpProxyPort": 8080},
            "filesystem": {"denyRead": ["~/.ssh"], "allowGitConfig": True},
            "resourceLimits": {"maxMemoryMb": 64, "maxProcesses": 9},
            "ignoreViolations": {"*": ["x"]},
        }
    )
    c = SandboxRuntimeConfig.model_validate_json(text)
    assert c == SandboxRuntimeConfig.model_validate(c.model_dump()) != c.model_copy(update={"allow_pty": True})
    assert c.model_dump(by_alias=True, exclude_none=True)["network"]["httpProxyPort"] == 8080
    assert c.settings()["cellgate"] == {"limits": {"memoryMb": 64, "processes": 9}}
    assert "allowed_domains=['a.example']" in repr(c)
    a, b = NetworkConfig(), NetworkConfig()
    a.allowed_domains.append("x.y")
    assert b.allowed_domains == NetworkConfig().allowed_domains == []
    schema = SandboxRuntimeConfig.model_json_schema()
    assert schema["required"] == ["network", "filesystem"]
    limit = schema["properties"]["resource_limits"]["anyOf"][0]["properties"]["max_processes"]["anyOf"][0]
    assert limit == {"type": "integer", "minimum": 1, "maximum": 1024}
