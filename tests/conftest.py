"""Fixtures of all pytest tests: the paths of the installed programs.

scripts/test sets the variables. By hand, in tests/: CG_PREFIX=... ../.deps/test-env/bin/pytest --rootdir=.. FILES
  CG_PREFIX       installed tree with bin/cellgate          CG_BUILD   meson build folder it came from
  CG_NPM          folder with node_modules                  CG_TEST_PYTHON   interpreter with the test packages
  CG_PACKAGES_ENV an environment for kernels with matplotlib, ipywidgets, debugpy...
  CG_SANITIZED    "address" when the programs are built with a sanitizer: everything is several times slower
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rounds import ALL
from run_tests import SANITIZED_TESTS
from web import web_server

REPO = Path(__file__).resolve().parent.parent
# Each worker would compile all tests anew, for ten seconds. Programs under test write none: their variable says so.
sys.dont_write_bytecode, sys.pycache_prefix = False, str(REPO / "build/pycache")
# Files of half a minute or more, the longest first. They start first, so that no worker runs one of them while the
# others have finished.
LONG = (
    "cli/test_env.py",
    "conformance/test_server.py",
    "wheel/test_wheel.py",
    "conformance/test_clients.py",
    "relay/test_links.py",
    "real_servers/test_real_servers.py",
    "clients/test_ends.py",
    "api/test_server_sandboxes.py",
    "mcp_http/test_tls.py",
    "sandbox_command/test_selftest.py",
    "codegen/test_real_tools.py",
    "codegen/test_hostile.py",
    "setup/test_kernel_env.py",
    "setup/test_scripts.py",
    "python/test_ends.py",
)
# Init decides about names, attributes, doors and hosts in the same way for each user: only root's cases run with
# sanitizers. What differs between users is in sandbox/test_ends.py and sandbox_command/test_command.py.
ALIKE = (
    "sandbox/test_filesystem.py",
    "sandbox/test_processes.py",
    "sandbox_command/test_attribute_races.py",
    "sandbox_command/test_denials.py",
    "sandbox_command/test_doors.py",
    "sandbox_command/test_files.py",
    "sandbox_command/test_folder_races.py",
    "sandbox_command/test_landlock.py",
    "sandbox_command/test_natively.py",
    "sandbox_command/test_network.py",
    "sandbox_command/test_repositories.py",
)
# These find errors of Python, of other clients, and of the rules of a sandbox: the C below them, of cells, replies, requests
# and calls, runs in the others of their folders.
ABOVE_C = (
    "cli/test_no_network.py",
    "cli/test_text_table.py",
    "kernel/test_asyncio.py",
    "kernel/test_comms.py",
    "kernel/test_debugger.py",
    "kernel/test_magics.py",
    "kernel/test_missing.py",
    "kernel/test_notebook_signs.py",
    "kernel/test_plaintext.py",
    "kernel/test_preload.py",
    "kernel/test_requests.py",
    "kernel/test_subshells.py",
    "kernel/test_tracebacks.py",
    "kernel/test_widgets.py",
    "kernel/test_working_dir.py",
    "kernel/test_wrappers.py",
    "mcp/test_real_servers.py",
    "mcp_http/test_clients.py",
    "mcp_serve/test_npm.py",
    "sandbox_command/test_known_limits.py",
    "sandbox_command/test_selftest.py",
)


# Under AddressSanitizer these took more than half of all processor time, for 6 % of the branches that the others do not
# take (of the programs outside of a sandbox, by gcov): with sanitizers they run in `scripts/soak --only asan-tests`, as
# single tests with the mark do.
SANITIZED_IN_SOAK = (
    "cli/test_approvals.py",
    "cli/test_bad_servers.py",
    "cli/test_daemon.py",
    "cli/test_exec.py",
    "cli/test_mcp_accept.py",
    "cli/test_mcp_file.py",
    "cli/test_policy_run.py",
    "cli/test_terminal.py",
    "cli/test_tier.py",
    "cli/test_webhook.py",
    "jupyter/test_approvals.py",
    "jupyter/test_control.py",
    "jupyter/test_deaths.py",
    "jupyter/test_execute.py",
    "jupyter/test_floods.py",
    "jupyter/test_install.py",
    "jupyter/test_iopub.py",
    "jupyter/test_sandbox.py",
    "jupyter/test_stdin.py",
    "kernel/test_interrupts.py",
    "mcp/test_concurrency.py",
    "mcp/test_end.py",
    "mcp/test_lazy.py",
    "mcp/test_progress.py",
    "mcp/test_resources.py",
    "mcp_http/test_answers.py",
    "mcp_http/test_ends.py",
    "mcp_http/test_requests.py",
    "mcp_http/test_sse.py",
    "mcp_http/test_stateless.py",
    "mcp_http/test_tls.py",
    "mcp_serve/test_approver.py",
    "mcp_serve/test_connect.py",
    "mcp_serve/test_jobs.py",
    "mcp_serve/test_sandbox.py",
    "mcp_serve/test_tools.py",
    "sandbox_command/test_attribute_races.py",
    "sandbox_command/test_natively.py",
    "sandbox_command/test_repositories.py",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that have nothing for the step asan: each of its workers would import them."""
    if config.getoption("markexpr") != "sanitized" or not collection_path.is_relative_to(REPO / "tests"):
        return None
    return str(collection_path.relative_to(REPO / "tests")) in (*ABOVE_C, *SANITIZED_IN_SOAK) or None


def _is_users(item: pytest.Item) -> bool:
    """Whether it is the case of an ordinary user."""
    return isinstance(item, pytest.Function) and hasattr(item, "callspec") and "user" in item.callspec.id.split("-")


def _is_plain(item: pytest.Item, path: str) -> bool:
    """Whether the test runs without sanitizers alone."""
    marks = (item.get_closest_marker("slow"), item.get_closest_marker("no_sanitizer"))
    return any(marks) or path in ABOVE_C or (path in ALIKE and _is_users(item))


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that scripts/test runs with sanitizers, and move the tests of LONG to the front."""
    tests = REPO / "tests"
    for item in items:
        path = str(item.path.relative_to(tests))
        # Others run as root with sanitizers, and as a user without: these would run twice without.
        if path in ALIKE and path in SANITIZED_IN_SOAK and _is_users(item) and os.geteuid() == 0:
            item.add_marker("peer")
    items[:] = [item for item in items if ALL or not item.get_closest_marker("peer")]
    for item in items:
        path = item.path.relative_to(tests)
        if path.parts[0] in SANITIZED_TESTS and not _is_plain(item, str(path)):
            in_soak = str(path) in SANITIZED_IN_SOAK or item.get_closest_marker("sanitized_in_soak")
            item.add_marker("sanitized_in_soak" if in_soak else "sanitized")
    order = {name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(str(item.path.relative_to(tests)), len(LONG)))


# Programs under test end with the test: those that share a supervisor leave one behind. shared_supervisor.py has what
# tests that share one need.
os.environ["CELLGATE_PRIVATE"] = "1"
# Below 2, a bash whose standard input is a socket, as node's is, reads the account's ~/.bashrc.
os.environ["SHLVL"] = "2"


def _raise_descriptor_limit() -> None:
    """Some tests open a thousand connections; 1,024 descriptors are what a login shell gives."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_raise_descriptor_limit()


def _take_signals() -> None:
    """Reset signals that nohup or a shell's background job ignores: programs under test would inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


_take_signals()


@pytest.fixture(scope="module", autouse=True)
def _state_of_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a file's tests share, such as a client, keeps tools and tokens apart from other files and from the user."""
    with pytest.MonkeyPatch.context() as m:
        m.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own state folder: the tools of test servers are pinned there, and differ between tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "work space"
    path.mkdir()
    return path


def _folder(variable: str, default: Path, hint: str) -> Path:
    path = Path(os.environ.get(variable, default)).resolve()
    if not path.is_dir():
        pytest.fail(f"{variable}: no folder {path}; {hint}", pytrace=False)
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
def packages_env() -> Path:
    """An environment for kernels that has the packages of tests/packages-env-requirements.txt."""
    return _folder("CG_PACKAGES_ENV", REPO / ".deps/packages-env", "run scripts/setup --test")


@pytest.fixture(scope="session")
def jupyter_kernels() -> Path:
    """An environment with the kernels of tests/jupyter-kernels-requirements.txt."""
    folder = Path(os.environ.get("CG_JUPYTER_KERNELS", REPO / ".deps/jupyter-kernels"))
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: run scripts/setup --test")
    return folder.resolve()


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that kernels see: /tmp is their own."""
    with tempfile.TemporaryDirectory(prefix="cellgate-test-", dir=Path.home()) as path:
        yield Path(path)


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


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a web server on this machine's loopback, which answers "hello from outside"."""
    with web_server() as port:
        yield port


@pytest.fixture
def echo() -> Iterator[tuple[int, list[dict[str, str]]]]:
    """The port of such a server, and the fields of what it was asked."""
    seen: list[dict[str, str]] = []
    with web_server(seen) as port:
        yield port, seen


@pytest.fixture
def asking(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """asking(HABIT=...): the settings file of the server "s" (asking_server.py)."""

    def make(**habits: object) -> Path:
        path = tmp_path_factory.mktemp("asking") / "mcp.json"
        script = Path(__file__).with_name("asking_server.py")
        definition = {"command": "/usr/bin/python3", "args": [str(script), json.dumps(habits)]}
        path.write_text(json.dumps({"mcpServers": {"s": definition}}))
        return path

    return make
