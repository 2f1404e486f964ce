"""How a sandbox ends, and that nothing is left of it. A pipe reports the end of all processes: each process inside has its other end."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import PROBE, Box, Launched

MODES = pytest.mark.parametrize("mode", [[], ["--off"]], ids=["on", "off"])


class Lifeline:
    """The reading end of a pipe whose other end goes into the sandbox."""

    def __init__(self) -> None:
        self.r, self.w = os.pipe()

    def opts(self) -> list[str]:
        return ["--keep", str(self.w)]

    def gone(self, seconds: float = 20) -> bool:
        """All holders have ended."""
        os.close(self.w)
        self.w = -1
        return bool(select.select([self.r], [], [], seconds)[0]) and os.read(self.r, 1) == b""

    def close(self) -> None:
        for fd in (self.r, self.w):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def lifeline() -> Iterator[Lifeline]:
    line = Lifeline()
    yield line
    line.close()


def program(box: Box, mode: list[str]) -> str:
    """The probe's path: without a sandbox there is no /run/probe."""
    return str(box.base / "bin/sandbox-probe") if mode else PROBE


@MODES
@pytest.mark.parametrize("code", [0, 1, 77, 255])
def test_exit_status(box: Box, mode: list[str], code: int) -> None:
    p = box.run("/bin/sh", "-c", f"exit {code}", opts=["--report", *mode])
    assert p.returncode == code
    assert f"status exit_code={code} signal=0 core=0" in p.stderr


@MODES
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT], ids=lambda s: s.name)
def test_signal(box: Box, mode: list[str], sig: signal.Signals) -> None:
    p = box.run(program(box, mode), "die", str(int(sig)), opts=["--report", *mode])
    assert p.returncode == 128 + sig
    assert f"status exit_code=-1 signal={int(sig)} core=0" in p.stderr


@MODES
def test_caller_that_ignores_sigchld(box: Box, mode: list[str]) -> None:
    assert box.run("/bin/sh", "-c", "exit 5", opts=["--ignore-sigchld", *mode]).returncode == 5


@MODES
def test_strays_end_with_the_main_process(box: Box, mode: list[str], lifeline: Lifeline) -> None:
    p = box.run(program(box, mode), "stray", opts=[*mode, *lifeline.opts()], fds=[lifeline.w])
    assert (p.returncode, p.stdout) == (0, "ok\n")
    assert lifeline.gone()


# Freeing so much memory takes longer than everything else at the end of a process.
MEMORY = "import os\nm = b'x' * (300 << 20)\n"


def stopped(box: Box, code: str) -> int:
    """How often, of five times, init reported before the process's end that nothing runs any more."""
    n = 0
    for _ in range(5):
        p = box.run(sys.executable, "-c", MEMORY + code, opts=["--report", "--stopped"])
        assert p.returncode == 3, p.stderr
        assert p.stderr.endswith("status exit_code=3 signal=0 core=0\n")
        n += "stopped\n" in p.stderr
    return n


@pytest.mark.skipif(tuple(map(int, os.uname().release.split(".")[:2])) < (6, 11), reason="Linux reports it at the end")
def test_stopped_is_reported_before_memory_is_freed(box: Box) -> None:
    assert stopped(box, "os.closerange(3, 1000)\nos._exit(3)") >= 1


@pytest.mark.sanitized_in_soak
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("fds = [os.open('/dev/null', os.O_RDONLY) for _ in range(4)]", id="file"),
        pytest.param("if not os.fork(): os.execv('/bin/sleep', ['sleep', '100'])", id="process"),
        pytest.param("if not os.fork(): os.setsid(); os.fork(); m * 2; os._exit(0)", id="orphans"),
    ],
)
def test_stopped_is_not_reported_while_something_is_left(box: Box, code: str) -> None:
    assert stopped(box, f"os.closerange(3, 1000)\n{code}\nos._exit(3)") == 0


@MODES
@pytest.mark.parametrize("stray", [False, True], ids=["", "stray"])
def test_all_ends_with_the_caller(box: Box, mode: list[str], stray: bool, lifeline: Lifeline) -> None:
    probe = program(box, mode)
    script = f"{probe} stray > /dev/null; exec {probe} pause" if stray else f"exec {probe} pause"
    with Launched(box, "/bin/sh", "-c", script, opts=[*mode, *lifeline.opts()], fds=[lifeline.w]) as p:
        p.proc.kill()
        assert lifeline.gone()


@MODES
def test_all_ends_with_the_caller_whoever_holds_the_status_pipe(box: Box, mode: list[str], lifeline: Lifeline) -> None:
    opts = [*mode, *lifeline.opts(), "--share"]
    with Launched(box, program(box, mode), "pause", opts=opts, fds=[lifeline.w]) as p:
        p.proc.kill()
        assert lifeline.gone()


@MODES
def test_all_ends_when_nobody_holds_the_status_pipe(box: Box, mode: list[str], lifeline: Lifeline) -> None:
    p = box.run(program(box, mode), "pause", opts=[*mode, *lifeline.opts(), "--abandon"], fds=[lifeline.w])
    assert p.returncode == 126
    assert lifeline.gone()


def test_killed_init(box: Box, lifeline: Lifeline) -> None:
    script = f"{PROBE} stray > /dev/null; exec {PROBE} pause"
    with Launched(box, "/bin/sh", "-c", script, opts=lifeline.opts(), fds=[lifeline.w]) as p:
        os.kill(p.init, signal.SIGKILL)
        assert lifeline.gone()
        assert p.proc.wait(30) == 126  # the pipe closed with nothing in it


def test_killed_init_without_sandbox(box: Box, lifeline: Lifeline) -> None:
    with Launched(box, program(box, ["--off"]), "pause", opts=["--off", *lifeline.opts()], fds=[lifeline.w]) as p:
        os.kill(p.init, signal.SIGKILL)
        assert lifeline.gone()
        assert p.proc.wait(30) == 126


def test_sigterm_ends_all_without_sandbox(box: Box, lifeline: Lifeline) -> None:
    probe = program(box, ["--off"])
    script = f"{probe} stray > /dev/null; exec {probe} pause"
    with Launched(box, "/bin/sh", "-c", script, opts=["--off", *lifeline.opts()], fds=[lifeline.w]) as p:
        os.kill(p.init, signal.SIGTERM)
        assert lifeline.gone()
        assert p.proc.wait(30) == 126


def test_sigterm_from_inside_does_nothing(box: Box) -> None:
    """Nor from outside: a terminal's or service manager's group signal is for the caller."""
    with Launched(box, PROBE, "pause") as p:
        os.kill(p.init, signal.SIGTERM)
        os.kill(p.init, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            p.proc.wait(0.3)


def test_orphans_are_reaped(box: Box) -> None:
    """Children whose parent ends first become init's, and do not stay as zombies."""
    script = (
        "for i in 1 2 3 4 5; do (sh -c 'exit 3' & ) ; done; while grep -qs '^State:.Z' /proc/[0-9]*/status; do :; done"
    )
    assert box.sh(script + "; echo ok").stdout == "ok\n"


def test_off_isolates_nothing_but_limits(box: Box) -> None:
    box.file(box.out / "f")
    probe = program(box, ["--off"])
    opts = ["--off", "--open-files", "77"]
    assert box.run(probe, "write", box.out / "f", opts=opts).stdout == "ok\n"
    assert box.run(probe, "socket", "1", "1", "0", opts=opts).stdout == "ok\n"
    assert box.sh("ulimit -n; ulimit -c; readlink /proc/self/ns/user", opts=opts).stdout.split() == [
        "77",
        "0",
        os.readlink("/proc/self/ns/user"),
    ]


# ---- what cannot be made says why


def error_of(box: Box, *opts: str | Path) -> str:
    p = box.run("/bin/true", opts=opts)
    assert p.returncode in (2, 125), p
    return p.stderr


def test_errors_name_step_and_reason(box: Box) -> None:
    assert "working directory /no/such/folder: No such file or directory" in error_of(box, "--cwd", "/no/such/folder")
    assert "the caller has 2 threads and must have one" in error_of(box, "--second-thread")
    assert 'write root "relative" is not an absolute path' in error_of(box, "--write", "relative")
    assert "write root /no/such: No such file or directory" in error_of(box, "--write", "/no/such")
    assert "/proc, /sys and /dev are the sandbox's own" in error_of(box, "--write", "/proc/self")
    assert "read-only source /no/such: No such file" in error_of(box, "--ro", "/no/such=/run/x")
    assert "descriptor 77 to be kept is not open" in error_of(box, "--keep", "77")


def test_no_room_for_namespaces(box: Box) -> None:
    """Inside a sandbox there is none: the second launcher must fail, not continue without it."""
    launcher = box.base / "bin/sandbox-launch"
    p = box.run("env", "ASAN_OPTIONS=detect_leaks=0", launcher, "--", "/bin/true")  # LeakSanitizer needs ptrace
    assert p.returncode == 125
    assert "new namespaces" in p.stderr
