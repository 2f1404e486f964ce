"""What all pytest tests share: where the installed programs are, and that none of their processes outlives the tests.

scripts/test sets the variables. By hand, in tests/: CG_PREFIX=... ../.deps/test-env/bin/pytest --rootdir=.. FILES
  CG_PREFIX       installed tree with bin/cellgate          CG_BUILD   meson build folder it came from
  CG_NPM          folder with node_modules                  CG_TEST_PYTHON   interpreter with the test packages
  CG_SANITIZED    "address" when the programs are built with a sanitizer: everything is several times slower
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


def _folder(variable: str, default: Path, hint: str) -> Path:
    path = Path(os.environ.get(variable, default)).resolve()
    if not path.is_dir():
        pytest.exit(f"{variable}: no folder {path}; {hint}", returncode=3)
    return path


@pytest.fixture(scope="session")
def repo() -> Path:
    """The work tree."""
    return REPO


@pytest.fixture(scope="session")
def build_dir() -> Path:
    """The meson build folder."""
    return _folder("CG_BUILD", REPO / "build/test", "run scripts/test")


@pytest.fixture(scope="session")
def prefix() -> Path:
    """The installed tree under test."""
    return _folder("CG_PREFIX", REPO / "build/test/root", "run scripts/test")


@pytest.fixture(scope="session")
def npm_dir() -> Path:
    """Folder whose node_modules/.bin holds mcp-server-filesystem and the others."""
    return _folder("CG_NPM", REPO / ".deps/npm", "run scripts/setup --test")


@pytest.fixture(scope="session")
def test_python() -> str:
    """Interpreter with the packages of tests/requirements.txt."""
    return os.environ.get("CG_TEST_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def slowness() -> float:
    """Factor for deadlines: more than 1 with sanitizers."""
    return 5.0 if os.environ.get("CG_SANITIZED") else 1.0


@pytest.fixture(scope="session")
def cellgate(prefix: Path) -> Path:
    """The installed command."""
    return prefix / "bin/cellgate"


@pytest.fixture
def run_cellgate(cellgate: Path, tmp_path: Path, slowness: float) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs `cellgate ARGS...` in the test's own folder; returns what subprocess.run returns, as text."""

    def run(
        *args: str | Path,
        input: str = "",
        timeout: float = 30,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(cellgate), *map(str, args)],
            input=input,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout * slowness,
            cwd=cwd or tmp_path,
            env={**os.environ, **(env or {})},
        )

    return run


def processes_of(prefix: Path) -> dict[int, str]:
    """Processes whose program is one of the installed ones: pid to command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            exe = os.readlink(entry / "exe")
            if exe.startswith(f"{prefix}/"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


@pytest.fixture(scope="session", autouse=True)
def nothing_left_running() -> Iterator[None]:
    """No process of the programs under test may survive the tests."""
    where = os.environ.get("CG_PREFIX")
    if not where:
        yield
        return
    prefix = Path(where).resolve()
    before = processes_of(prefix)
    yield
    deadline = time.monotonic() + 10
    while left := {p: c for p, c in processes_of(prefix).items() if p not in before}:
        assert time.monotonic() < deadline, f"processes left behind: {left}"
        time.sleep(0.05)
