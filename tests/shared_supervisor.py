"""The supervisor that a user's commands share, in a runtime folder of the test's own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import parent


def find_supervisors(folder: Path) -> list[int]:
    """Processes of supervisors whose folder is in this one."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if words and words[0].endswith(b"cellgate-supervisor") and any(w.startswith(bytes(folder)) for w in words):
            found.append(int(entry.name))
    return [p for p in found if parent(p) not in found]  # a child before its exec has its parent's arguments


@contextlib.contextmanager
def runtime_folder() -> Iterator[Path]:
    """Not below pytest's: longer paths are not taken. Supervisors in it are ended afterwards; who could start another
    one must have ended before, so a fixture of a server comes after that of its folder."""
    folder = Path(tempfile.mkdtemp(prefix="cgj-", dir="/tmp"))
    try:
        yield folder
    finally:
        deadline = time.monotonic() + 60
        while (left := find_supervisors(folder)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):  # it has lingered long enough
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGTERM)
            time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)
        assert not left, f"these supervisors did not end: {left}"


def _make_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with runtime_folder() as folder:
        yield {"XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}


_account = pytest.fixture(scope="session", name="_account")(_make_account)
_own_account = pytest.fixture(name="_own_account")(_make_account)


@pytest.fixture(autouse=True)
def _own_state(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of that of conftest.py: the commands of many tests share a supervisor, as a user's do. Starting one
    takes most of the time of a small cell. With the mark "own_state" only those of the test share one, with
    "own_supervisor" each command starts one."""
    mark = request.node.get_closest_marker
    if mark("own_supervisor"):
        monkeypatch.setenv("XDG_STATE_HOME", str(request.getfixturevalue("tmp_path_factory").mktemp("state")))
        return
    monkeypatch.delenv("CELLGATE_PRIVATE")
    for name, value in request.getfixturevalue("_own_account" if mark("own_state") else "_account").items():
        monkeypatch.setenv(name, value)


class Shared:
    """The commands of one user."""

    def __init__(self, cellgate: Path, folder: Path, cwd: Path, slowness: float) -> None:
        self.cellgate, self.folder, self.cwd, self.slowness = cellgate, folder, cwd, slowness
        self.env = {k: v for k, v in os.environ.items() if k != "CELLGATE_PRIVATE"} | {"XDG_RUNTIME_DIR": str(folder)}

    def __call__(
        self, *args: str | Path, by: tuple[str, ...] = (), env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs `cellgate ARGS`; `by`: through another program."""
        return subprocess.run(
            [*by, str(self.cellgate), *map(str, args)],
            input="",
            capture_output=True,
            text=True,
            timeout=60 * self.slowness,
            cwd=cwd or self.cwd,
            env={**self.env, **(env or {})},
        )

    def run(self, code: str = "1", *args: str | Path, **how: Any) -> str:
        """The output of a cell."""
        done = self("run", *args, "-c", code, **how)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self, code: str, *args: str | Path) -> subprocess.Popen[str]:
        """A run that goes on; its output is waited for by its reader."""
        return subprocess.Popen(
            [str(self.cellgate), "run", *map(str, args), "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.cwd,
            env=self.env,
        )

    def supervisors(self) -> list[int]:
        return find_supervisors(self.folder)

    def status(self) -> list[dict[str, Any]]:
        done = self("daemon", "status", "--json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    @property
    def address(self) -> Path:
        (one,) = (self.folder / f"cellgate-{os.geteuid()}").glob("shared-*/")
        return one
