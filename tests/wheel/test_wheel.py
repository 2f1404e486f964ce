"""Kernels of a wheel: the extension module in an interpreter of the environment, and programs that find each other."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import certificates
import pytest
from docs_readme import python_example
from kernel_environment import PACKAGES, copy_environment
from mcp_http.helpers import Server, Session
from mcp_serve.helpers import Raw, text_of
from rounds import peer, with_peers
from wheel.conftest import make_environment

# Run with the module as well.
SUITES = [
    "kernel/test_zygote.py",
    "api/test_zygote_ends.py",
    "api/test_approvals.py",
    "kernel/test_cells.py",
    "kernel/test_tracebacks.py",
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


@peer
def test_compat_is_handed_to_the_python_of_the_wheel(env: Path, workspace: Path) -> None:
    """Which has no MCP SDK here."""
    p = run(env, "-m", "cellgate", "mcp", "serve", "--compat", "context-forge")
    assert p.returncode == 1 and re.search(rf"needs the Python module (mcp|anyio), which {env}/bin/python does not", p.stderr)
    p = run(env, "-c", "from cellgate.validate import validate_code as v; print(v('json.x')['verdict'])", cwd=workspace)
    assert (p.stdout, p.stderr) == ("fixed\n", "")


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
    assert len(found) == 16
    needed = subprocess.run(["readelf", "-d", *found], check=True, capture_output=True, text=True).stdout
    libraries = {line.rpartition("[")[2].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line}
    assert libraries <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
    assert "RUNPATH" not in needed and "RPATH" not in needed


def test_no_path_of_the_build_is_compiled_in(files: Path, repo: Path, tmp_path: Path) -> None:
    for path in [*files.glob("*/bin/*"), *files.glob("*/libexec/cellgate/*"), *files.rglob("*.so")]:
        subprocess.run(["strip", "-o", tmp_path / "stripped", path], check=True)  # of debugging information
        assert str(repo).encode() not in (tmp_path / "stripped").read_bytes(), path


@peer
def test_http_with_tls(env: Path, workspace: Path, tmp_path: Path) -> None:
    """By a program that contains libmicrohttpd and GnuTLS."""
    files = certificates.make(tmp_path)
    argv = [env / "bin/python", "-m", "cellgate", "mcp", "serve", "--http", "127.0.0.1:0", "--workspace", workspace]
    argv += ["--token-file", tmp_path / "token", *files.options]
    server = Server([str(a) for a in argv], tmp_path, dict(os.environ), 1)
    server.tls = files.context()
    assert Session(server).text("6 * 7") == "42"
    assert server.end() == 128 + signal.SIGTERM


def test_example_of_the_documents(env: Path, repo: Path, workspace: Path) -> None:
    p = run(env, "-c", python_example(repo / "docs/python-package.md", "A session"), cwd=workspace)
    assert p.returncode == 0, p.stderr
    assert p.stdout == "499500\n2 data.csv\n"


@peer
@pytest.mark.timeout(600)
def test_suites(runtime: Path) -> None:
    environ = {**os.environ, "CG_PREFIX": str(runtime)}
    argv = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *SUITES]
    p = subprocess.run(argv, cwd=Path(__file__).parents[1], env=environ, capture_output=True, text=True, timeout=580)
    assert p.returncode == 0, p.stdout[-5000:]


@peer
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
    program = env / PACKAGES / "cellgate_runtime/bin/cellgate"
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


def test_an_environment_in_the_workspace_is_not_written(project: Path, workspace: Path) -> None:
    attempts = [
        "open('proj/.venv/x', 'w')",
        "open('proj/.venv/" + PACKAGES + "/IPython/__init__.py', 'a')",
        "open('proj/.venv/" + PACKAGES + "/cellgate_runtime/libexec/cellgate/cellgate-supervisor', 'ab')",
        "os.rename('proj/.venv', 'proj/old')",
        "os.rename('proj', 'old')",
        "os.replace('/bin/true', 'proj/.venv/bin/python')",
        "os.symlink('/bin/true', 'proj/.venv/bin/python3.99')",
    ]
    code = "import os\n" + "".join(f"try:\n    {a}\n    print({a!r})\nexcept OSError:\n    pass\n" for a in attempts)
    p = cell(project, workspace, code + "print('all')")
    assert (p.returncode, p.stdout) == (0, "all\n"), p.stderr
    assert (workspace / "proj/.venv/bin/python").exists()


@pytest.mark.parametrize("name", with_peers(["_proj.pth", "__editable___proj_finder.py", "link"], "_proj.pth"))
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


@peer
def test_a_refusal_of_the_module_reaches_the_host(project: Path, workspace: Path) -> None:
    (module,) = (project / PACKAGES / "_cellgate_kernel").glob("_cellgate.*.so")
    module.write_text("no module")
    p = cell(project, workspace, "1")
    assert p.returncode != 0 and "cannot load the kernel's module" in p.stderr, p.stderr


@peer
def test_the_interpreter_must_be_isolated(env: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = env / PACKAGES / "_cellgate_kernel/cellgate_kernel/__main__.py"
    line = f'exec 3<&{theirs.fileno()}; exec "$@"'
    subprocess.run(
        ["bash", "-c", line, "bash", env / "bin/python", script, "--zygote"], pass_fds=[theirs.fileno()], timeout=30
    )
    assert "must be started with -I -X utf8" in json.loads(ours.recv(4096))["message"]


@peer
def test_the_programs_package_must_be_named(env: Path) -> None:
    """Without it the module would not know which files cells must not change."""
    script = env / PACKAGES / "_cellgate_kernel/cellgate_kernel/__main__.py"
    p = run(env, "-I", "-X", "utf8", script, "--zygote")
    assert p.returncode == 2 and "usage" in p.stderr, p.stderr


@pytest.fixture(scope="module")
def other(env: Path, files: Path, packages: Path) -> Iterator[Path]:
    """Another environment with cellgate."""
    yield make_environment(env.parent / "other-env", files, packages)
    shutil.rmtree(env.parent / "other-env")


@pytest.fixture
def changed(env: Path, other: Path) -> Iterator[Path]:
    """It; what tests change is put back."""
    saved, parts = env.parent / "saved", ("pyvenv.cfg", "bin", f"{PACKAGES}/_cellgate_kernel")
    saved.mkdir()
    subprocess.run(["cp", "-a", "--parents", *parts, saved], cwd=other, check=True)
    names = os.listdir(other / PACKAGES)
    yield other
    (folder,) = other.glob("lib/python*")  # whose name may be another version's
    folder.rename((other / PACKAGES).parent)
    added = [f"{PACKAGES}/{name}" for name in os.listdir(other / PACKAGES) if name not in names]
    subprocess.run(["rm", "-rf", "--", *added, *parts], cwd=other, check=True)
    subprocess.run(["cp", "-a", f"{saved}/.", other], check=True)
    if (other / "IPython").exists():
        (other / "IPython").rename(other / PACKAGES / "IPython")
    shutil.rmtree(saved)


# Prints the environment that cells run in.
PREFIX = "import sys, cellgate\nwith cellgate.Session('.'{}) as s:\n    print(s.run('import sys; sys.prefix').value)"
AIO = (
    "import asyncio, cellgate.aio\nasync def main():\n    async with cellgate.aio.Session('.'{}) as s:\n"
    "        print((await s.run('import sys; sys.prefix')).value)\nasyncio.run(main())"
)


@peer
def test_another_environment_is_chosen_by_a_variable(env: Path, other: Path, workspace: Path) -> None:
    variable = {**os.environ, "CELLGATE_KERNEL_ENV": str(other)}
    p = run(env, "-c", PREFIX.format(""), cwd=workspace, env=variable)
    assert p.stdout == f"{str(other)!r}\n", p.stderr
    p = run(env, "-c", PREFIX.format(""), cwd=workspace)
    assert p.stdout == f"{str(env)!r}\n", p.stderr
    p = run(env, "-c", PREFIX.format(f", python={str(env)!r}"), cwd=workspace, env=variable)
    assert p.stdout == f"{str(env)!r}\n", p.stderr


@peer
@pytest.mark.parametrize("front", [PREFIX, AIO])
@pytest.mark.parametrize("spelling", ["", "/bin/python", "/bin/python3"])
def test_another_environment_is_chosen_by_its_python(
    env: Path, other: Path, workspace: Path, front: str, spelling: str
) -> None:
    """Its interpreter is a symlink to the system's, as that of every environment."""
    p = run(env, "-c", front.format(f", python={str(other) + spelling!r}"), cwd=workspace)
    assert p.stdout == f"{str(other)!r}\n", p.stderr


@peer
def test_a_program_uses_several_environments(env: Path, other: Path, workspace: Path) -> None:
    """Sessions of one environment share a client. A client has one environment."""
    code = (
        "import cellgate, os\n"
        f"envs = [None, {str(other)!r}, os.path.relpath({str(other)!r})]\n"
        "sessions = [cellgate.Session('.', python=e) for e in envs]\n"
        "print([s.run('import sys; sys.prefix').value for s in sessions])\n"
        "print(len({s._core.client for s in sessions}))\n"
        "try:\n    cellgate.Session('.', client=sessions[0]._core.client, python=envs[1])\n"
        "except cellgate.InvalidArgumentError as e:\n    print(e)"
    )
    p = run(env, "-c", code, cwd=workspace)
    lines = p.stdout.splitlines()
    assert lines[0] == repr([repr(str(e)) for e in (env, other, other)]), p.stderr
    assert lines[1] == "2" and "python belongs to the client" in lines[2]


@peer
def test_an_environment_without_the_package_takes_the_module_of_this_one(env: Path, workspace: Path) -> None:
    """Those that `cellgate env create` makes. The module is of the same Python version."""
    path = copy_environment(env.parent / "plain-env")
    try:
        p = run(env, "-c", PREFIX.format(f", python={str(path)!r}"), cwd=workspace)
        assert p.stdout == f"{str(path)!r}\n", p.stderr
    finally:
        shutil.rmtree(path)


@peer
def test_install_package_runs_pip_of_the_kernels_environment(env: Path, workspace: Path, slowness: float) -> None:
    """It chooses wheels for the Python that runs it."""
    path = copy_environment(env.parent / "pip-env")
    pip = path / PACKAGES / "pip"
    shutil.rmtree(pip)
    pip.mkdir()
    (pip / "__main__.py").write_text("import sys; print('pip of', sys.prefix, sys.argv[-1])")
    argv = [str(env / "bin/python"), "-m", "cellgate", "mcp", "serve", "--workspace", str(workspace)]
    argv += ["--kernel-env", str(path), "--approve", "cellgate.install_package"]
    server = Raw(argv, workspace, {**os.environ, "XDG_CACHE_HOME": str(path)}, slowness)
    try:
        server.initialize()
        answer = text_of(server.result(server.call("install_package", package_name="x")))
        assert f"pip of {path} x" in answer
        shutil.rmtree(pip)
        answer = text_of(server.result(server.call("install_package", package_name="x")))
        assert f"{path} has no pip; `{path}/bin/python -m ensurepip`" in answer
        server.end()
    finally:
        server.process.kill()
        shutil.rmtree(path)


@peer
def test_the_default_environment_is_one_of_cellgate_env(env: Path, changed: Path, workspace: Path) -> None:
    """Where the own one cannot be used, as with a package that was installed outside of an environment."""
    (changed / "pyvenv.cfg").unlink()
    data = workspace.parent / f"{workspace.name}-data"
    environ = {**os.environ, "XDG_DATA_HOME": str(data)}
    program = changed / PACKAGES / "cellgate_runtime/bin/cellgate"
    argv = [program, "run", "--workspace", workspace, "-c", "import sys; print(sys.prefix)"]
    p = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60)
    assert p.returncode != 0 and "`cellgate env create default`" in p.stderr, p.stderr
    (data / "cellgate/envs").mkdir(parents=True)
    default = copy_environment(data / "cellgate/envs/default")
    p = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60)
    assert p.stdout == f"{default}\n", p.stderr
    shutil.rmtree(data)


@peer
def test_a_kernelspec_is_written_by_the_interpreter_beside_the_program_or_a_named_one(
    changed: Path, tmp_path: Path
) -> None:
    """An installation with --user has none beside it; the package's front names its own."""
    program = changed / PACKAGES / "cellgate_runtime/bin/cellgate"

    def install(name: str, **environ: str) -> subprocess.CompletedProcess[str]:
        argv = [program, "jupyter", "install", "--prefix", tmp_path, "--name", name]
        return subprocess.run(argv, env=os.environ | environ, capture_output=True, text=True, timeout=60)

    assert install("own").returncode == 0
    (changed / "bin/python").unlink()
    assert "bin/python: No such file or directory" in install("none").stderr
    assert install("named", CELLGATE_PYTHON=sys.executable).returncode == 0
    assert sorted(p.name for p in (tmp_path / "share/jupyter/kernels").iterdir()) == ["named", "own"]


def set_version(env: Path, version: str) -> None:
    """As if the environment were of another Python: only what pyvenv.cfg states and the folder of packages."""
    config = (env / "pyvenv.cfg").read_text()
    lines = [line for line in config.splitlines() if not line.startswith("version")]
    (env / "pyvenv.cfg").write_text("\n".join([*lines, f"version = {version}\n"]))
    ours = env / PACKAGES
    ours.parent.rename(ours.parent.with_name(f"python{'.'.join(version.split('.')[:2])}"))


def other_version(env: Path) -> None:
    set_version(env, "3.99.1")


def older_cellgate(env: Path) -> None:
    (env / PACKAGES / "_cellgate_kernel/VERSION").write_text("0.0.1\n")
    set_version(env, "3.99.1")
    packages = env / "lib/python3.99/site-packages/_cellgate_kernel"
    (module,) = packages.glob("_cellgate.*.so")
    module.rename(packages / "_cellgate.cpython-399-x86_64-linux-gnu.so")


def free_threaded(env: Path) -> None:
    (env / PACKAGES).parent.rename((env / PACKAGES).parent.with_name((env / PACKAGES).parent.name + "t"))


def free_threaded_interpreter(env: Path) -> None:
    """Its folders are those of a standard build: the interpreter itself says what it is."""
    code = "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n"
    (env / PACKAGES / "build.pth").write_text(code)


def no_ipython(env: Path) -> None:
    (env / PACKAGES / "IPython").rename(env / "IPython")


def no_environment(env: Path) -> None:
    (env / "pyvenv.cfg").unlink()


def no_base(env: Path) -> None:
    (env / "pyvenv.cfg").write_text("".join(f"version = {sys.version_info[0]}.{sys.version_info[1]}.0\n"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (other_version, "is of Python 3.99.1, and has no module for kernels: install cellgate-kernel"),
        (older_cellgate, "has cellgate-kernel 0.0.1, and this is cellgate"),
        (free_threaded, "is of a free-threaded build of Python"),
        (free_threaded_interpreter, "is a free-threaded build of Python"),
        (no_ipython, "lacks what kernels need: ipython"),
        (no_environment, "is no virtual environment"),
        (no_base, "has no base Python"),
    ],
)
def test_an_environment_that_kernels_cannot_use_is_refused(
    env: Path, changed: Path, workspace: Path, change: Callable[[Path], None], why: str
) -> None:
    change(changed)
    p = run(env, "-c", PREFIX.format(f", python={str(changed)!r}"), cwd=workspace)
    assert p.returncode == 1 and why in p.stderr, p.stderr


@pytest.mark.parametrize(
    ("python", "why"),
    [("pyvenv.cfg", "neither an environment nor"), ("bin/no", "there is no environment"), ("a b", "not a name")],
)
def test_what_is_no_interpreter_is_refused(env: Path, other: Path, workspace: Path, python: str, why: str) -> None:
    path = str(other / python) if "/" in python or "." in python else python
    p = run(env, "-c", PREFIX.format(f", python={path!r}"), cwd=workspace)
    assert p.returncode == 1 and why in p.stderr, p.stderr


def interpreter_in_the_workspace(env: Path, workspace: Path) -> None:
    (env / "bin/python").unlink()
    shutil.copy("/usr/bin/python3", workspace / "python3")
    (env / "bin/python").symlink_to(workspace / "python3")


def interpreter_behind_a_link(env: Path, workspace: Path) -> None:
    (env / "bin/python").unlink()
    (workspace / "link").symlink_to("/usr/bin")
    (env / "bin/python").symlink_to(workspace / "link/python3")


def base_behind_a_link(env: Path, workspace: Path) -> None:
    config = (env / "pyvenv.cfg").read_text()
    (workspace / "link").symlink_to("/usr")
    (env / "pyvenv.cfg").write_text(config.replace("home = /usr/bin", f"home = {workspace}/link/bin"))
    assert str(workspace) in (env / "pyvenv.cfg").read_text()


def path_file(env: Path, workspace: Path) -> None:
    (env / PACKAGES / "a.pth").write_text(f"{workspace}\n")


def path_in_code(env: Path, workspace: Path) -> None:
    (env / PACKAGES / "a.pth").write_text(f"import sys; sys.path.insert(0, {str(workspace)!r})\n")


def path_that_code_makes(env: Path, workspace: Path) -> None:
    (env / PACKAGES / "a.pth").write_text(f"import sys; sys.path.append('/' + {str(workspace)[1:]!r})\n")


def packages_by_link(env: Path, workspace: Path) -> None:
    (env / PACKAGES / "_cellgate_kernel").rename(workspace / "kernel")
    (env / PACKAGES / "_cellgate_kernel").symlink_to(workspace / "kernel")


@pytest.mark.parametrize(
    "plant",
    [
        interpreter_in_the_workspace,
        interpreter_behind_a_link,
        base_behind_a_link,
        path_file,
        path_in_code,
        path_that_code_makes,
        packages_by_link,
    ],
)
def test_nothing_that_cells_write_runs_in_the_zygote(
    env: Path, changed: Path, workspace: Path, plant: Callable[[Path, Path], None]
) -> None:
    """Each leads to a file of the workspace which is a right one now, and which a cell could change."""
    mark = workspace / "mark"
    for name in ("IPython", "sitecustomize", "usercustomize", "cellgate_kernel", "_cellgate", "comm", "json"):
        (workspace / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    plant(changed, workspace)
    code = PREFIX.format(f", python={str(changed)!r}").replace("'.'", repr(str(workspace)))
    p = run(env, "-I", "-c", code)
    assert p.returncode == 1 and ("cells could write" in p.stderr or "outside of it" in p.stderr), p.stderr
    assert not mark.exists()


@peer
def test_other_languages(env: Path, workspace: Path) -> None:
    """The kernel's files of bash and node, and data between sessions."""
    code = """
import cellgate, sys
with (
    cellgate.Session(sys.argv[1]) as python,
    cellgate.Session(sys.argv[1], language="shell") as shell,
    cellgate.Session(sys.argv[1], language="node") as node,
):
    python.run("v = [1, {'a': 'b'}]")
    for source, target in ((python, node), (node, shell)):
        source.bridge(target, "v")
    shell.bridge(python, "v", as_="w")
    print(python.run("v == w").value, node.run("v[1].a").value, shell.run("echo $v").stdout, end="")
"""
    p = run(env, "-c", code, str(workspace))
    assert p.stdout == 'True \'b\' [1,{"a":"b"}]\n', p.stderr
