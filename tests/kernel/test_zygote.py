"""The zygote: control protocol, ends, and many forks."""

import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from kernel.harness import SLOWNESS, Kernel, Zygote, listener, program
from processes import alive, children, eventually
from rounds import rounds


def test_ready_message(zygote: Zygote) -> None:
    assert set(zygote.ready) == {"ready", "python", "ipython"}


def test_one_thread(zygote: Zygote) -> None:
    assert len(os.listdir(f"/proc/{zygote.process.pid}/task")) == 1


def test_layers_and_pid(kernel: Kernel) -> None:
    assert {"user", "mount", "pid", "net", "seccomp", "landlock"} <= set(kernel.answer["layers"])
    assert alive(kernel.pid)


def test_ended_kernels_are_reaped(zygote: Zygote, spawn: Callable[..., Kernel]) -> None:
    before = set(children(zygote.process.pid))
    kernels = [spawn() for _ in range(3)]
    for k in kernels:
        k.close()
    eventually(lambda: set(children(zygote.process.pid)) <= before)


def test_descriptors_do_not_pile_up(zygote: Zygote, spawn: Callable[..., Kernel]) -> None:
    def count() -> int:
        return len(os.listdir(f"/proc/{zygote.process.pid}/fd"))

    spawn().close()
    time.sleep(0.2)
    before = count()
    for _ in range(10):
        spawn().close()
    eventually(lambda: count() <= before)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (b"not json", "spawn request"),
        (b"[]", "spawn request"),
        (b'{"workspace": 5}', "workspace"),
        (b'{"workspace": "relative"}', "relative"),
        (b'{"workspace": "/nonexistent/folder"}', "/nonexistent/folder"),
        (b'{"workspace": "WORKSPACE", "bind_ro": [5]}', "bind_ro"),
        (b'{"workspace": "WORKSPACE", "hide": 5}', "hide"),
        (b'{"workspace": "WORKSPACE", "limits": {"memory_bytes": -1}}', "memory_bytes"),
    ],
)
def test_bad_specs_are_answered(zygote: Zygote, workspace: Path, tmp_path: Path, spec: bytes, text: str) -> None:
    listeners = [listener(tmp_path / n) for n in "abc"]
    memfd = os.memfd_create("spec")
    os.write(memfd, spec.replace(b"WORKSPACE", str(workspace).encode()))
    socket.send_fds(zygote.control, [json.dumps({"spawn": 4242}).encode()], [memfd, *(s.fileno() for s in listeners)])
    os.close(memfd)
    answer, fds = zygote._receive(10 * SLOWNESS)
    assert answer["failed"] == 4242
    assert answer["code"] < 0 and isinstance(answer["errno"], int)
    assert text in answer["message"]
    assert fds == []


@pytest.mark.parametrize("message", [b"junk", b"{}", b'{"spawn": "x"}', b'{"spawn": 1}', b'{"spawn": 1, "spare": 2}'])
def test_bad_requests_are_answered(zygote: Zygote, message: bytes) -> None:
    socket.send_fds(zygote.control, [message], [])
    answer, _ = zygote._receive(10 * SLOWNESS)
    assert "failed" in answer and answer["message"]


def test_hang_up_ends_everything(prefix: Path, workspace: Path) -> None:
    z = Zygote(prefix)
    kernels = [z.spawn(workspace, sandbox=s) for s in (True, False)]
    inner = [c for k in kernels for c in children(k.pid)]
    assert inner
    z.close()
    assert z.process.returncode == 0
    for k in kernels:
        k.wait_gone()
    eventually(lambda: not any(alive(p) for p in inner))


def test_a_supervisor_that_ends_before_its_spare_is_made_is_no_warning(
    prefix: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = Zygote(prefix)

    def hang_up(timeout: float) -> NoReturn:
        z.control.close()
        raise EOFError

    monkeypatch.setattr(z, "_receive", hang_up)
    with pytest.raises(EOFError):
        z.spawn(workspace, spare=True)  # waits for the warm-up first
    assert z.process.wait(10 * SLOWNESS) == 0
    assert z.log == ""
    z.close()


@pytest.mark.parametrize("sandbox", [True, False])
def test_killed_zygote_takes_its_kernels_along(prefix: Path, workspace: Path, sandbox: bool) -> None:
    z = Zygote(prefix)
    kernel = z.spawn(workspace, sandbox=sandbox)
    inner = children(kernel.pid)
    z.process.kill()
    kernel.wait_gone()
    eventually(lambda: not any(alive(p) for p in inner))
    kernel.close()
    z.close()


def test_preload(prefix: Path, workspace: Path) -> None:
    with Zygote(prefix, "--preload", "sqlite3, xml.dom") as z, z.spawn(workspace) as kernel:
        assert kernel.run("import sys; 'sqlite3' in sys.modules and 'xml.dom' in sys.modules").result == "True"


def test_preload_that_fails(prefix: Path) -> None:
    with Zygote(prefix, "--preload", "json,no_such_module") as z:
        assert z.ready["ready"] is False
        assert "no_such_module" in z.ready["message"]
        assert z.process.wait(10) == 1


@pytest.mark.parametrize("arguments", [["--nonsense"], ["extra"], ["--preload"]])
def test_usage_errors(prefix: Path, arguments: list[str]) -> None:
    import subprocess

    r = subprocess.run(
        [*program(prefix), "--zygote", *arguments], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL
    )
    assert r.returncode == 2
    assert "usage" in r.stderr


def test_environment_of_the_zygote_does_not_matter(prefix: Path, workspace: Path) -> None:
    env = {
        "PYTHONPATH": "/nonexistent",
        "PYTHONSTARTUP": "/nonexistent",
        "PYTHONHOME": "/nonexistent",
        "SECRET_OF_HOST": "x",
    }
    with Zygote(prefix, env=env) as z, z.spawn(workspace) as kernel:
        assert "SECRET_OF_HOST" not in kernel.run("import os; print(dict(os.environ))").out
        assert "SECRET" not in kernel.run("!env").out


# The text comes backwards and becomes a pattern character by character: nothing here is a copy of it.
FIND = """
import re
pattern = re.compile(b''.join(b'[%c]' % c for c in reversed(b{backwards!r})))
found = 0
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb') as mem:
    for line in maps.read().splitlines():
        where, mode = line.split()[:2]
        if 'rw' not in mode: continue
        a, b = (int(x, 16) for x in where.split('-'))
        mem.seek(a)
        try: found += sum(1 for _ in pattern.finditer(mem.read(b - a)))
        except OSError: pass
found
"""


@pytest.mark.no_sanitizer  # the shadow memory has terabytes to search
def test_variables_of_one_session_are_not_in_the_next(spawn: Callable[..., Kernel]) -> None:
    """Later kernels are forked from the zygote, whose memory must not contain earlier specs."""

    def copies(kernel: Kernel, secret: str) -> int:
        return int(kernel.run(FIND.format(backwards=secret[::-1]), timeout=30).result or "-1")

    secret = os.urandom(12).hex()
    assert copies(spawn(), secret) == 0
    assert copies(spawn(env=[f"TOKEN={secret}"]), secret) > 0
    assert copies(spawn(), secret) == 0


@pytest.mark.slow
def test_many_forks_without_a_hang(zygote: Zygote, workspace: Path) -> None:
    for i in range(rounds(300)):
        with zygote.spawn(workspace, sandbox=bool(i % 2)) as kernel:
            assert (
                kernel.run("import threading, logging\nlogging.getLogger().warning('x')\n40 + 2", timeout=20).result
                == "42"
            ), i


def test_kernels_at_the_same_time(spawn: Callable[..., Kernel]) -> None:
    kernels = [spawn() for _ in range(12)]
    cells = [(k, k.execute(f"x = {i}\nx * 2")) for i, k in enumerate(kernels)]
    for i, (k, cell) in enumerate(cells):
        assert k.collect(cell).result == str(i * 2)


@pytest.mark.no_sanitizer  # the sanitizer has its own memory
def test_memory_of_a_kernel(prefix: Path, workspace: Path) -> None:
    """A kernel's own memory: its proportional share with ten siblings, in kB."""
    with contextlib.ExitStack() as stack:
        zygote = stack.enter_context(Zygote(prefix))
        kernels = [stack.enter_context(zygote.spawn(workspace)) for _ in range(10)]
        for k in kernels:
            k.run("1")
        shares = []
        for k in kernels:
            r = k.run("print(open('/proc/self/smaps_rollup').read())")
            shares += [int(line.split()[1]) for line in r.out.splitlines() if line.startswith("Pss:")]
    assert sorted(shares)[5] < 8 * 1024, shares


@pytest.mark.no_sanitizer
def test_init_frees_the_data_of_python(spawn: Callable[..., Kernel]) -> None:
    def resident() -> int:
        """Of the data of libpython, in kB; 0 as well where it is a part of the program."""
        found, on = 0, False
        for line in Path(f"/proc/{kernel.pid}/smaps").read_text().splitlines():
            mapping = re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+) .* (\S*)$", line)
            if mapping:
                on = "w" in mapping[1] and "libpython" in mapping[2]
            elif on and line.startswith("Rss:"):
                found += int(line.split()[1])
        return found

    kernel = spawn()
    try:
        eventually(lambda: resident() == 0)
    except PermissionError:
        pytest.skip("init's memory cannot be seen by this user")
    assert kernel.run("open('f', 'w').write('x')").result == "1"  # by init


def test_signals_to_the_zygote_group(prefix: Path, workspace: Path) -> None:
    """Ctrl-C at the host's terminal reaches the whole group: neither zygote nor kernels end or raise."""
    with Zygote(prefix) as z, z.spawn(workspace) as kernel:
        os.kill(z.process.pid, signal.SIGINT)
        assert kernel.run("1").result == "1"
        assert z.spawn(workspace).run("2").result == "2"
