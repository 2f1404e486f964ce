"""The functions behind the toolset `host`: what no approval allows, and what a hostile cell can try meanwhile."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from package_fixtures import package  # noqa: F401
from processes import eventually

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture
def host(package: Path) -> ModuleType:  # noqa: F811
    from cellgate.surfaces import host

    return host


@pytest.fixture
def run(host: ModuleType) -> Callable[..., dict[str, Any]]:
    return lambda *a, **k: asyncio.run(host.host_exec(*a, **k))


@pytest.fixture
def refused(host: ModuleType) -> Callable[..., str]:
    """The reason for which a function of the module refuses its arguments."""

    def call(name: str, *args: Any, **more: Any) -> str:
        with pytest.raises(host.RefusedError) as error:
            asyncio.run(getattr(host, name)(*args, **more))
        return str(error.value)

    return call


# ------------------------------------------------------------------ programs


def test_words_start_a_program_and_lines_a_shell(run) -> None:
    assert run("echo a  b")["stdout"] == "a b\n"
    assert run("echo a; echo b")["stdout"] == "a\nb\n"
    assert run(argv=["echo", "a; echo b"])["stdout"] == "a; echo b\n"
    assert run("exit 3;")["exit_code"] == 3


def test_nothing_of_the_servers_environment_reaches_it(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho planted\n")
    (tmp_path / "id").chmod(0o755)
    for name, value in {"PATH": f"{tmp_path}", "API_TOKEN": "secret", "BASH_ENV": f"{tmp_path}/id"}.items():
        monkeypatch.setenv(name, value)
    out = run("env; id; readlink /proc/self/fd/0")["stdout"]
    assert "secret" not in out and "planted" not in out and str(tmp_path) not in out
    assert "uid=" in out and out.endswith("/dev/null\n")


def test_its_group_ends_with_it_and_with_its_time(run, tmp_path: Path) -> None:
    for command, timeout in (
        (f"sleep 987 & echo $! > {tmp_path}/pid", 20),
        (f"echo $$ > {tmp_path}/pid; sleep 987", 0.5),
    ):
        done = run(command, timeout=timeout)
        assert done["timed_out"] == (timeout < 1) and done["duration_ms"] < 15_000
        eventually(lambda: _is_zombie(tmp_path / "pid"))


def _is_zombie(file: Path) -> bool:
    try:
        return Path(f"/proc/{file.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_cancelled_call_ends_it(host, tmp_path: Path) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(host.host_exec(f"echo $$ > {tmp_path}/pid; sleep 987"))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancelled())
    eventually(lambda: _is_zombie(tmp_path / "pid"))


def test_it_ends_where_it_cannot_be_watched(host, refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when this process has too many descriptors."""

    def fail(pid: int) -> int:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", fail)
    assert "Too many open files" in refused("host_exec", command=f"echo $$ > {tmp_path}/pid; sleep 987")
    eventually(lambda: _is_zombie(tmp_path / "pid"))


def test_a_program_of_another_user_is_not_waited_for(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sudo, which may not be killed."""

    def fail(pid: int, signal: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    kill = os.killpg
    monkeypatch.setattr(os, "killpg", fail)
    done = run("echo a")
    assert (done["exit_code"], done["stdout"]) == (0, "a\n")
    done = run(f"echo $$ > {tmp_path}/pid; exec sleep 987", timeout=0.5)
    try:
        assert done["timed_out"] and done["exit_code"] is None
    finally:
        kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_output_is_at_most_1_mib(run) -> None:
    done = run("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert done["truncated"] and done["exit_code"] == 0
    assert len(done["stdout"]) + len(done["stderr"]) == 1 << 20


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "either argv"),
        ({"argv": []}, "either argv"),
        ({"argv": ["id"], "command": "id"}, "either argv"),
        ({"argv": ["a\0b"]}, "NUL"),
        ({"argv": ["bin/id"]}, "absolute path"),
        ({"argv": ["no-such-program"]}, "No such file"),
        ({"argv": ["id"], "timeout": 0}, "timeout"),
        ({"argv": ["id"], "timeout": 3601}, "timeout"),
        ({"argv": ["id"], "cwd": "relative"}, "absolute"),
        ({"argv": ["id"], "cwd": "/proc/self/cwd"}, "link"),
    ],
)
def test_arguments_that_are_refused(refused, arguments: dict[str, Any], why: str) -> None:
    assert why in refused("host_exec", **arguments)


def test_requested_patterns_are_words(host, refused) -> None:
    access = host.Access()
    assert asyncio.run(access.request_host_access("docker restart *"))["approved"] == ["docker restart *"]
    for pattern in ("*", "d* ps", "cat x; id", "cat $(id)", "", " ls", "A=b", "ls\n", "cat 'x'"):
        with pytest.raises(host.RefusedError):
            asyncio.run(access.request_host_access(pattern))


# ------------------------------------------------------------------ files


def test_files(host, tmp_path: Path) -> None:
    path, run = tmp_path / "a.txt", asyncio.run
    run(host.host_file_write(f"{path}", "text"))
    assert path.read_text() == "text" and path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    run(host.host_file_write(f"{path}", "AP8=", "base64"))
    assert path.read_bytes() == b"\0\xff" and path.stat().st_mode & 0o777 == 0o600
    assert run(host.host_file_read(f"{path}"))["base64"] == "AP8="
    assert run(host.host_file_copy(f"{path}", "b.txt", tmp_path))["size"] == 2
    assert [e["name"] for e in run(host.host_file_list(f"{tmp_path}"))["entries"]] == ["a.txt", "b.txt"]
    (tmp_path / "long").write_text("0123456789")
    part = run(host.host_file_read(f"{tmp_path}/long", 2, 3))
    assert (part["text"], part["size"], part["truncated"]) == ("234", 10, True)


def test_names_that_a_cell_may_have_chosen(host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is not UTF-8 does not make the answer one that cannot be sent; many names are not all read."""
    for name in (b"\xff", b"new\nline\x1b[2J", b"plain"):
        (tmp_path / os.fsdecode(name)).touch()
    listed = asyncio.run(host.host_file_list(f"{tmp_path}"))
    assert [e["name"] for e in listed["entries"]] == ["new\nline\x1b[2J", "plain", "\\xff"]
    json.dumps(listed, ensure_ascii=False).encode()
    monkeypatch.setattr(host, "LIST_MAX", 1)
    monkeypatch.setattr(host, "SCAN_MAX", 2)
    listed = asyncio.run(host.host_file_list(f"{tmp_path}"))
    assert len(listed["entries"]) == 1 and listed["truncated"]


NAMES = [".ssh/id_rsa", ".aws/credentials", ".env", ".netrc", "sub/.git-credentials", ".SSH/id_rsa"]
OBEYED = [
    ".bashrc",
    ".git/config",
    ".git/hooks/pre-commit",
    ".vscode/tasks.json",
    ".mcp.json",
    ".BASHRC",
    "bare/hooks/update",
]


@pytest.mark.parametrize("name", [*NAMES, *OBEYED])
def test_names_are_refused_whatever_is_approved(refused, host, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("before")
    (tmp_path / "bare").mkdir(exist_ok=True)
    (tmp_path / "bare/HEAD").touch()
    (tmp_path / "plain").touch()
    assert "docs/names.md" in refused("host_file_write", f"{path}", "x")
    assert "docs/names.md" in refused("host_file_copy", f"{tmp_path}/plain", f"{path}")
    if name in NAMES:
        assert "docs/names.md" in refused("host_file_read", f"{path}")
        assert "docs/names.md" in refused("host_file_copy", f"{path}", f"{tmp_path}/out")
    else:
        assert asyncio.run(host.host_file_read(f"{path}"))["text"] == "before"
    assert path.read_text() == "before" and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "path",
    ["/etc/shadow", "/proc/self/environ", "/proc/1/mem", "/dev/mem", "/dev/stdin", "/sys/kernel", "/etc/sudoers"],
)
def test_credentials_and_devices_of_the_system_are_refused(refused, path: str) -> None:
    for name, *more in (("host_file_read",), ("host_file_write", "x"), ("host_file_list",)):
        assert path in refused(name, path, *more)


def test_other_spellings_links_and_devices_are_refused(refused, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_text("x")
    (tmp_path / "link").symlink_to("d")
    (tmp_path / "file").symlink_to("d/f")
    (tmp_path / "magic").symlink_to("/proc/self/environ")
    os.mkfifo(tmp_path / "fifo")
    for path in ("d/../d/f", "./d/f", "d//f", "link/f", "file", "magic", "fifo", "d"):
        assert refused("host_file_read", f"{tmp_path}/{path}")
        assert refused("host_file_write", f"{tmp_path}/{path}", "y")
    assert refused("host_file_read", "d/f") and refused("host_file_list", f"{tmp_path}/link")
    assert refused("host_file_copy", f"{tmp_path}/d/f", "x") and refused(
        "host_file_copy", f"{tmp_path}/d/f", "../x", tmp_path
    )
    assert (tmp_path / "d/f").read_text() == "x"


def test_a_write_fails_as_a_whole(refused, host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("before")

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host.os, "rename", fails)
    assert "No space left" in refused("host_file_write", f"{tmp_path}/f", "after")
    assert [p.name for p in tmp_path.iterdir()] == ["f"] and (tmp_path / "f").read_text() == "before"


def test_a_cell_that_exchanges_folders_for_links_gains_nothing(host, tmp_path: Path) -> None:
    """The attacker moves links to a secret, and to a folder outside, to the approved path while calls run."""
    shared, outside = tmp_path / "shared", tmp_path / "outside"
    for folder in (shared / "d", outside):
        folder.mkdir(parents=True)
        (folder / "f").write_text("public" if folder.parent == shared else "secret")
    (shared / "folder").symlink_to(outside)
    (shared / "d/link").symlink_to(outside / "f")
    stop = threading.Event()

    def attack() -> None:
        """RENAME_EXCHANGE, so that the path always exists."""
        exchange = [
            "python3",
            "-c",
            f"""
import ctypes, os
rename = ctypes.CDLL(None).renameat2
a, b = (os.fsencode({str(shared)!r} + n) for n in ("/d", "/folder"))
c, e = (os.fsencode({str(shared)!r} + n) for n in ("/d/f", "/d/link"))
while os.getppid() == {os.getpid()}:
    rename(-100, a, -100, b, 2)
    rename(-100, c, -100, e, 2)
""",
        ]
        process = subprocess.Popen(exchange)
        stop.wait()
        process.kill()
        process.wait()

    attacker = threading.Thread(target=attack)
    attacker.start()
    read, folders, written, refusals = set(), set(), 0, 0
    try:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            for call in (
                lambda: host.host_file_read(f"{shared}/d/f"),
                lambda: host.host_file_write(f"{shared}/d/f", "public"),
            ):
                try:
                    result = asyncio.run(call())
                    read.add(result.get("text"))
                    written += "text" not in result
                except host.RefusedError:
                    refusals += 1
            try:
                folders.add(asyncio.run(host.host_exec(argv=["pwd", "-P"], cwd=f"{shared}/d"))["stdout"].strip())
            except host.RefusedError:
                refusals += 1
    finally:
        stop.set()
        attacker.join()
    assert refusals and written, "the attack met no call"
    assert str(outside) not in folders and folders
    assert "secret" not in read and (outside / "f").read_text() == "secret"
    assert sorted(p.name for p in outside.iterdir()) == ["f"]
