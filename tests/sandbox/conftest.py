"""Runs sandbox-launch with sandbox-probe inside: every test once as root and once as an ordinary user.

The ordinary user is a number without a name: nothing has to be made on the machine for it. Without root the tests run
as whoever runs them, and those for root are skipped.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

USER = 61234
PROBE = "/run/probe"


class Box:
    """A way to run commands: inside a sandbox, and outside of it as the same user."""

    def __init__(self, base: Path, uid: int, slowness: float) -> None:
        self.base = base
        self.uid = uid
        self.root = uid == 0
        self.timeout = 30 * slowness
        switch = uid != os.geteuid()
        self.as_user = (
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--"] if switch else []
        )
        self.launcher = [*self.as_user, str(base / "bin/sandbox-launch")]
        self.work = self.folder("work")
        self.out = self.folder("out")

    def folder(self, name: str) -> Path:
        """A folder of the user's outside of every private place."""
        path = self.base / name
        path.mkdir(parents=True)
        self.own(path)
        return path

    def file(self, path: Path, text: str = "text\n") -> Path:
        path.write_text(text)
        self.own(path)
        return path

    def own(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.uid)

    def argv(self, *cmd: str | Path, opts: Sequence[str | Path] = ()) -> list[str]:
        ro = f"{self.base}/bin/sandbox-probe={PROBE}"
        return [*self.launcher, "--ro", ro, *map(str, opts), "--", *map(str, cmd)]

    def run(
        self, *cmd: str | Path, opts: Sequence[str | Path] = (), fds: Sequence[int] = (), input: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.argv(*cmd, opts=opts),
            input=input,
            capture_output=True,
            text=True,
            timeout=self.timeout,
            pass_fds=fds,
            cwd=self.base,
        )

    def sh(self, script: str, opts: Sequence[str | Path] = ()) -> "subprocess.CompletedProcess[str]":
        return self.run("/bin/sh", "-c", script, opts=opts)

    def probe(self, *args: str | Path | int, opts: Sequence[str | Path] = (), fds: Sequence[int] = ()) -> str:
        """Return the probe's output inside."""
        p = self.run(PROBE, *map(str, args), opts=opts, fds=fds)
        assert p.returncode == 0, f"probe {args}: status {p.returncode}, {p.stdout!r} {p.stderr!r}"
        return p.stdout.strip()

    def outside(self, *args: str | Path | int) -> str:
        """Return the probe's output on the host."""
        argv = [*self.as_user, str(self.base / "bin/sandbox-probe"), *map(str, args)]
        p = subprocess.run(argv, capture_output=True, text=True, timeout=self.timeout, cwd=self.base)
        assert p.returncode == 0, f"probe {args} outside: status {p.returncode}, {p.stderr!r}"
        return p.stdout.strip()


class Launched:
    """A sandbox that is running, its command having said `ready`. Killed on leaving."""

    def __init__(self, box: Box, *cmd: str | Path, opts: Sequence[str | Path] = (), fds: Sequence[int] = ()) -> None:
        self.proc = subprocess.Popen(
            box.argv(*cmd, opts=["--report", *opts]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=fds,
            cwd=box.base,
        )
        assert self.proc.stdout and self.proc.stderr
        line = self.proc.stdout.readline()
        assert line == "ready\n", self.proc.communicate(timeout=30)
        self.init = int(self.proc.stderr.readline().split()[1])

    def __enter__(self) -> "Launched":
        return self

    def __exit__(self, *exc: object) -> None:
        self.proc.kill()
        self.proc.communicate(timeout=30)


def _base() -> Path:
    """A folder that the sandbox shows: not in /tmp, /var/tmp or /run."""
    for parent in (Path("/srv"), Path("/opt"), Path.home()):
        private = any(parent.is_relative_to(p) for p in ("/tmp", "/var/tmp", "/run"))
        if parent.is_dir() and os.access(parent, os.W_OK) and not private:
            path = Path(tempfile.mkdtemp(prefix="cg-sandbox-", dir=parent))
            path.chmod(0o755)
            return path
    pytest.skip("no folder outside of /tmp that the tests may write to")


@pytest.fixture(scope="session")
def programs(build_dir: Path) -> Path:
    where = build_dir / "tests/sandbox"
    assert (where / "sandbox-launch").is_file(), f"{where}: not built"
    return where


@pytest.fixture(params=["root", "user"])
def box(request: pytest.FixtureRequest, programs: Path, slowness: float) -> Iterator[Box]:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("needs root")
    base = _base()
    try:
        (base / "bin").mkdir()
        for name in ("sandbox-launch", "sandbox-probe"):
            shutil.copy(programs / name, base / "bin")
            (base / "bin" / name).chmod(0o755)
        uid = 0 if request.param == "root" else USER if os.geteuid() == 0 else os.geteuid()
        yield Box(base, uid, slowness)
    finally:
        shutil.rmtree(base)
