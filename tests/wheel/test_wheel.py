"""Kernels of a wheel: the extension module in an interpreter of the environment, and programs that find each other."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_readme import python_example
from kernel_environment import PACKAGES
from wheel.conftest import make_environment

# Run with the module as well: a part of what scripts/test runs with the program.
SUITES = [
    "kernel/test_zygote.py",
    "kernel/test_cells.py",
    "kernel/test_tracebacks.py",
    "api/test_approvals.py",
    "api/test_zygote_ends.py",
]


def run(python_env: Path, *argv: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python_env / "bin/python", *argv],
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
        **more,  # type: ignore[call-overload]
    )


def cell(env: Path, workspace: Path, code: str, **more: object) -> subprocess.CompletedProcess[str]:
    return run(env, "-m", "cellgate", "run", "--workspace", workspace, "-c", code, **more)


@pytest.fixture
def workspace(env: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Not in /tmp."""
    path = env.parent / "workspaces" / request.node.name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_files_need_libc_alone(files: Path) -> None:
    """Nothing of Python's, and no library of the system that another one may not have."""
    found = [p for p in files.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
    assert len(found) == 10
    needed = subprocess.run(["readelf", "-d", *found], check=True, capture_output=True, text=True).stdout
    libraries = {line.rpartition("[")[2].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line}
    assert libraries <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
    assert "RUNPATH" not in needed and "RPATH" not in needed


def test_no_path_of_the_build_is_compiled_in(files: Path, repo: Path, tmp_path: Path) -> None:
    for path in [*files.glob("_runtime/bin/*"), *files.glob("_runtime/libexec/cellgate/*"), *files.rglob("*.so")]:
        subprocess.run(["strip", "-o", tmp_path / "stripped", path], check=True)  # of debugging information
        assert str(repo).encode() not in (tmp_path / "stripped").read_bytes(), path


def test_readme_example(env: Path, workspace: Path) -> None:
    p = run(env, "-c", python_example(Path(__file__).parents[2] / "README.md"), cwd=workspace)
    assert p.returncode == 0, p.stderr
    assert p.stdout == "499500\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", SUITES)
def test_suites(runtime: Path, suite: str) -> None:
    environ = {**os.environ, "CG_PREFIX": str(runtime)}
    argv = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", suite]
    p = subprocess.run(argv, cwd=Path(__file__).parents[1], env=environ, capture_output=True, text=True, timeout=580)
    assert p.returncode == 0, p.stdout[-5000:]


def test_state_of_the_interpreter_is_that_of_the_program(env: Path, workspace: Path, prefix: Path) -> None:
    """The configuration is the program's: flags, signals, arguments, variables, byte code, the name of the process."""
    code = (
        "import json, os, signal, sys, __main__\n"
        "signals = [str(signal.getsignal(n)) for n in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM)]\n"
        "kept = {k: v for k, v in os.environ.items() if k != 'PATH'}\n"
        "name = open('/proc/self/comm').read()\n"
        "print(json.dumps([sys.flags, sys.argv, sys.orig_argv, signals, kept, name, sys.dont_write_bytecode,"
        " os.getcwd(), len(os.listdir('/proc/self/fd')), hasattr(__main__, '__file__'), sys.path[-2:],"
        " sys.stdin.encoding, sys.getfilesystemencoding(), sys.warnoptions, sys.getrecursionlimit()]))"
    )
    theirs = subprocess.run(
        [prefix / "bin/cellgate", "run", "--workspace", workspace, "-c", code], capture_output=True, text=True
    )
    ours = cell(env, workspace, code)
    assert ours.returncode == theirs.returncode == 0, ours.stderr + theirs.stderr
    assert json.loads(ours.stdout) == json.loads(theirs.stdout)


def test_variables_and_the_current_folder_do_not_take_part(env: Path, workspace: Path) -> None:
    """What a cell can write, and the user's own variables, are not obeyed by the zygote."""
    for name in ("sitecustomize", "usercustomize", "IPython", "json", "_cellgate", "comm"):
        (workspace / f"{name}.py").write_text(f"open({str(workspace / 'mark')!r}, 'a').write({name!r})\n")
    (workspace / "pyvenv.cfg").write_text(f"home = {workspace}\n")
    startup = str(workspace / "sitecustomize.py")
    poisoned = {
        "PYTHONPATH": str(workspace),
        "PYTHONSTARTUP": startup,
        "PYTHONHOME": str(workspace),
        "HOME": str(workspace),
    }
    program = env / PACKAGES / "cellgate/_runtime/bin/cellgate"
    p = subprocess.run(
        [program, "run", "--workspace", workspace, "-c", "1 + 1"],
        cwd=workspace,
        env={
            **os.environ,
            **poisoned,
            "PYTHONUSERBASE": str(workspace),
            "PYTHONINSPECT": "1",
            "PYTHONBREAKPOINT": "sitecustomize.x",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (p.returncode, p.stdout) == (0, "2\n"), p.stderr
    assert not (workspace / "mark").exists()


@pytest.fixture
def project(files: Path, packages: Path, workspace: Path) -> Path:
    """An environment in the workspace, below a folder of the workspace."""
    (workspace / "proj").mkdir()
    return make_environment(workspace / "proj/.venv", files, packages)


@pytest.mark.parametrize(
    "attempt",
    [
        "open('proj/.venv/x', 'w')",
        "open('proj/.venv/" + PACKAGES + "/IPython/__init__.py', 'a')",
        "open('proj/.venv/" + PACKAGES + "/cellgate/_runtime/libexec/cellgate/cellgate-supervisor', 'ab')",
        "import os; os.rename('proj/.venv', 'proj/old')",
        "import os; os.rename('proj', 'old')",
        "import os; os.replace('/bin/true', 'proj/.venv/bin/python')",
        "import os; os.symlink('/bin/true', 'proj/.venv/bin/python3.99')",
    ],
)
def test_an_environment_in_the_workspace_is_not_written(project: Path, workspace: Path, attempt: str) -> None:
    code = f"try:\n    {attempt}\nexcept OSError as e:\n    print('refused')"
    p = cell(project, workspace, code)
    assert (p.returncode, p.stdout) == (0, "refused\n"), p.stderr
    assert (workspace / "proj/.venv/bin/python").exists()


@pytest.mark.parametrize("name", ["_proj.pth", "__editable___proj_finder.py", "link"])
def test_an_environment_that_imports_from_elsewhere_is_refused(project: Path, workspace: Path, name: str) -> None:
    """`pip install -e .` makes the zygote import what cells can write."""
    (workspace / "src").mkdir()
    path = project / PACKAGES / name
    if name == "link":
        path.symlink_to(workspace / "src")
    else:
        path.write_text(f"{workspace}/src\n")
    p = cell(project, workspace, "1")
    assert p.returncode != 0 and "outside of it" in p.stderr, p.stderr


def test_a_refusal_of_the_module_reaches_the_host(project: Path, workspace: Path) -> None:
    stubs = project / PACKAGES / "cellgate/_runtime/lib/cellgate/python"
    (module,) = stubs.glob("_cellgate.*.so")
    module.rename(stubs / "_cellgate.cpython-399-x86_64-linux-gnu.so")
    p = cell(project, workspace, "1")
    assert p.returncode != 0 and "cannot load the kernel's module, which is for cpython-399" in p.stderr, p.stderr


def test_the_interpreter_must_be_isolated(env: Path, runtime: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = runtime / "lib/cellgate/python/cellgate_kernel/__main__.py"
    line = f'exec 3<&{theirs.fileno()}; exec "$@"'
    subprocess.run(
        ["bash", "-c", line, "bash", env / "bin/python", script, "--zygote"], pass_fds=[theirs.fileno()], timeout=30
    )
    assert "must be started with -I -X utf8" in json.loads(ours.recv(4096))["message"]


def test_another_environment_is_chosen_by_a_variable(env: Path, files: Path, packages: Path, workspace: Path) -> None:
    other = make_environment(env.parent / "other-env", files, packages)
    code = "import cellgate, sys\nwith cellgate.Session('.') as s:\n    print(s.run('import sys; sys.prefix').value)"
    try:
        p = run(env, "-c", code, cwd=workspace, env={**os.environ, "CELLGATE_KERNEL_ENV": str(other)})
        assert p.stdout == f"{str(other)!r}\n", p.stderr
        p = run(env, "-c", code, cwd=workspace)
        assert p.stdout == f"{str(env)!r}\n", p.stderr
    finally:
        shutil.rmtree(other)
