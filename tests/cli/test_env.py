"""`cellgate env` and --kernel-env: made, extended, used read-only, and never run where cells could have written it."""

import base64
import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import web
from shared_supervisor import runtime_folder

# One worker: these tests share an environment. What they run is pip, and Python.
pytestmark = [pytest.mark.xdist_group("env"), pytest.mark.no_sanitizer, pytest.mark.own_supervisor]

Env = Callable[..., "subprocess.CompletedProcess[str]"]
KERNEL_ENV = Path(__file__).parents[2] / ".deps/kernel-env"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def write_wheel(folder: Path, stem: str, tag: str, files: dict[str, bytes]) -> None:
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    with zipfile.ZipFile(folder / f"{stem}-{tag}.whl", "w") as z:
        for name, data in files.items():
            z.writestr(name, data)
        z.writestr(f"{stem}.dist-info/RECORD", f"{record}{stem}.dist-info/RECORD,,\n")


# A replacement of matplotlib: its module of fonts reads a list of fonts, or writes one if there is none. Like the
# real one it takes settings from a file of the current folder, which can have code in them.
FONTS = """
import os, pathlib, sys
sys.modules["matplotlib.font_manager"] = sys.modules[__name__]
get_configdir = get_cachedir = lambda: str(folder)
folder = pathlib.Path(os.environ.get("MPLCONFIGDIR") or os.path.expanduser("~/.cache/matplotlib"))
made = not (folder / "fontlist-v9.json").exists()
if made:
    (folder / "fontlist-v9.json").write_text("[]" if not os.path.exists("matplotlibrc") else open("matplotlibrc").read())
"""


def own_wheel(folder: Path, name: str, code: str, file: str = "") -> None:
    stem = f"{name}-1.0"
    files = {
        file or f"{name}.py": code,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    write_wheel(folder, stem, "py3-none-any", {k: v.encode() for k, v in files.items()})


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the built-in environment as wheels again, and one of our own: no network is needed."""
    folder = tmp_path_factory.mktemp("wheels")
    packages = KERNEL_ENV / f"lib/python{VERSION}/site-packages"
    for dist in importlib.metadata.distributions(path=[str(packages)]):
        if (wheel := dist.read_text("WHEEL")) is None or dist.files is None:
            continue
        info = next(str(f.parent) for f in dist.files if str(f).endswith("dist-info/METADATA"))
        if info.startswith(("pip-", "setuptools-")):
            continue
        names = [str(f) for f in dist.files if not str(f).startswith("..") and "__pycache__" not in str(f)]
        files = {
            n: (packages / n).read_bytes() for n in names if not n.endswith("/RECORD") and (packages / n).is_file()
        }
        tag = [line.split()[1] for line in wheel.splitlines() if line.startswith("Tag: ")][-1]
        write_wheel(folder, info.removesuffix(".dist-info"), tag, files)
    own_wheel(folder, "cgwheel", "value = 41")
    own_wheel(folder, "cgsecond", "value = 42")
    own_wheel(folder, "matplotlib", FONTS, "matplotlib/__init__.py")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def cellgate(prefix: Path, index: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Env:
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    def run(*args: str, cwd: Path = elsewhere, **env: str) -> "subprocess.CompletedProcess[str]":
        pip = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(index),
            "PIP_TARGET": str(elsewhere),
            "PIP_CONFIG_FILE": "/dev/null",
        }
        return subprocess.run(
            [str(prefix / "bin/cellgate"), *args],
            env=os.environ | pip | {"XDG_DATA_HOME": str(data)} | env,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture(scope="module")
def science(cellgate: Env, data: Path) -> Iterator[Path]:
    made = cellgate("env", "create", "science", "cgwheel")
    assert made.returncode == 0, made.stderr
    assert "--kernel-env science" in made.stderr
    yield Path(made.stdout.strip())


@pytest.fixture(scope="module")
def plots(cellgate: Env, science: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy with matplotlib, which was installed where cells have been."""
    workspace = tmp_path_factory.mktemp("plots")
    (workspace / "matplotlibrc").write_text("a cell's")
    path = shutil.copytree(science, science.parent / "plots", symlinks=True)
    added = cellgate("env", "add", "plots", "matplotlib", cwd=workspace)
    assert added.returncode == 0, added.stderr
    yield path
    assert cellgate("env", "remove", "plots").returncode == 0


@pytest.fixture
def shared_runtime() -> Iterator[Path]:
    with runtime_folder() as folder:
        yield folder


@pytest.fixture
def bare(tmp_path: Path, workspace: Path) -> Path:
    """An environment of the user's own, without anything that kernels need."""
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare"


def test_an_environment_is_made_listed_used_and_extended(cellgate: Env, science: Path, data: Path) -> None:
    assert science == data / "cellgate/envs/science"
    assert "science" in cellgate("env", "list").stdout and str(science) in cellgate("env", "list").stdout
    code = (
        "import cgwheel, sys\nprint(cgwheel.value, sys.prefix)\ntry: import cgsecond\nexcept ImportError: print('no')"
    )
    assert cellgate("run", "--kernel-env", "science", "-c", code).stdout.split() == ["41", str(science), "no"]
    added = cellgate("env", "add", "science", "cgsecond")
    assert added.returncode == 0, added.stderr
    used = cellgate("run", "--kernel-env", str(science), "-c", "import cgsecond; print(cgsecond.value)")
    assert used.stdout == "42\n", used.stderr
    note = cellgate("run", "--kernel-env", "science", "-c", "import yaml").stderr
    assert f"`cellgate env add {science} PyYAML`" in note
    assert "ModuleNotFoundError" in cellgate("run", "-c", "import cgwheel").stderr  # the built-in one has no part of it


def test_fonts_are_listed_once_and_by_no_cell(cellgate: Env, plots: Path) -> None:
    own = plots / "share/cellgate/matplotlib/fontlist-v9.json"
    assert own.read_text() == "[]"  # made outside of the sandbox, without the settings of the current folder
    code = """
import matplotlib, os, pathlib
path = pathlib.Path(os.path.expanduser("~/.cache/matplotlib/fontlist-v9.json"))
print(matplotlib.made, path.read_text())
try: path.write_text("poison")
except OSError as e: print(type(e).__name__)
path.unlink()
_ = path.write_text("poison")
"""
    for _ in range(2):  # what a session makes of its own link no other sees
        assert cellgate("run", "--kernel-env", "plots", "-c", code).stdout.split() == ["False", "[]", "OSError"]
    assert own.read_text() == "[]"


def test_modules_are_preloaded_with_no_folder_that_cells_write(
    cellgate: Env, plots: Path, shared_runtime: Path
) -> None:
    """matplotlib reads settings in its folder, which can have code in them: /tmp may be a workspace."""
    code = "import matplotlib, tempfile; print(matplotlib.folder, tempfile.gettempdir())"
    options = ("--kernel-env", str(plots), "--preload", "matplotlib")
    run = cellgate("run", *options, "-c", code, XDG_RUNTIME_DIR=str(shared_runtime))
    assert run.returncode == 0, run.stderr
    used, temporary = run.stdout.split()
    assert Path(used).is_relative_to(shared_runtime / f"cellgate-{os.geteuid()}"), run.stderr
    assert not Path(used).exists()
    assert temporary == "/tmp"


def test_cells_read_it_only(cellgate: Env, science: Path) -> None:
    code = "import sys, os, subprocess\nfor p in ('/x', '/bin/python', '/.cellgate-env'):\n    try: open(sys.prefix + p, 'w')\n"
    code += "    except OSError as e: print(type(e).__name__)\nprint(subprocess.run([sys.executable, '-c', 'import cgwheel']).returncode)"
    run = cellgate("run", "--kernel-env", "science", "-c", code)
    assert run.stdout.split() == ["OSError"] * 3 + ["0"], run.stdout


def test_what_cannot_be_made_leaves_nothing(cellgate: Env, data: Path, tmp_path: Path) -> None:
    # Without an index: it is found before what kernels need is looked for.
    failed = cellgate("env", "create", "half", "no-such-package", PIP_FIND_LINKS=str(tmp_path))
    assert failed.returncode == 1
    assert "No matching distribution found for no-such-package" in failed.stderr  # what pip said last
    assert not (data / "cellgate/envs/half").exists()
    assert cellgate("env", "create", ".half").returncode == 2
    assert cellgate("env", "create", "half", "--target=x").returncode == 2
    assert cellgate("env", "create", str(tmp_path / "no/such/parent")).returncode == 2
    for name in "relative/", "/", "./.", f"{tmp_path}/..":
        unnamed = cellgate("env", "create", name)
        assert unnamed.returncode == 2
        assert f"{name} names no new folder" in unnamed.stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    assert "exists; " in cellgate("env", "create", str(tmp_path / "full")).stderr
    assert (tmp_path / "full/file").read_text() == "mine"


@pytest.mark.parametrize(("command", "number"), [("create", signal.SIGTERM), ("add", signal.SIGKILL)])
def test_an_end_in_the_middle_ends_what_was_started(
    prefix: Path, science: Path, tmp_path: Path, command: str, number: signal.Signals
) -> None:
    env = tmp_path / "env"
    if command == "add":
        shutil.copytree(science, env, symlinks=True)
    with socket.create_server(("127.0.0.1", 0)) as index:  # which does not answer
        url = f"http://127.0.0.1:{index.getsockname()[1]}/"
        pip = {"PIP_INDEX_URL": url, "PIP_CONFIG_FILE": "/dev/null", "NO_PROXY": "*", "no_proxy": "*"}
        argv = [prefix / "bin/cellgate", "env", command, env, "cgfirst"]
        with subprocess.Popen(argv, env=os.environ | pip, stderr=subprocess.PIPE, text=True) as made:
            index.settimeout(100)
            connection = index.accept()[0]
            assert connection.recv(1)
            made.send_signal(number)
            assert made.stderr
            assert ("cellgate env: interrupted" in made.stderr.read()) == (number == signal.SIGTERM)
        assert made.returncode == (130 if number == signal.SIGTERM else -number)
        if command == "create":
            assert not env.exists()
        else:
            assert (env / ".cellgate-env").read_text() == "changing\n"
        connection.settimeout(30)
        with connection, contextlib.suppress(ConnectionResetError):
            while connection.recv(65536):  # pip has ended: its connection does
                pass


def test_a_failed_add_keeps_the_environment(cellgate: Env, science: Path) -> None:
    assert cellgate("env", "add", "science", "no-such-package").returncode == 1
    assert cellgate("run", "--kernel-env", "science", "-c", "import cgwheel").returncode == 0


def test_an_unfinished_environment_is_not_used_and_can_be_finished(cellgate: Env, science: Path) -> None:
    (science / ".cellgate-env").write_text("changing\n")
    assert "(unfinished" in cellgate("env", "list").stdout
    refused = cellgate("run", "--kernel-env", "science", "-c", "1")
    assert refused.returncode == 2 and "`cellgate env add" in refused.stderr
    with open(science / ".cellgate-env.lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another `cellgate env`" in cellgate("env", "add", "science").stderr
    assert cellgate("env", "add", "science").returncode == 0
    assert cellgate("run", "--kernel-env", "science", "-c", "1").returncode == 0


def test_remove(cellgate: Env, data: Path, bare: Path) -> None:
    assert "remove it yourself" in cellgate("env", "remove", str(bare)).stderr and bare.exists()
    assert "no environment" in cellgate("env", "remove", "nosuch").stderr
    left = data / "cellgate/envs/left"  # of a create that was killed
    left.mkdir(parents=True)
    (left / ".cellgate-env").write_text("changing\n")
    assert cellgate("env", "remove", "left").returncode == 0 and not left.exists()


def test_ones_own_environment_says_what_it_lacks(cellgate: Env, bare: Path, tmp_path: Path) -> None:
    refused = cellgate("run", "--kernel-env", str(bare), "-c", "1")
    assert "lacks what kernels need: ipython, comm, traitlets" in refused.stderr
    assert f"`cellgate env add {bare}`" in refused.stderr


def test_ones_own_environment_stays_ones_own(cellgate: Env, science: Path, tmp_path: Path) -> None:
    """`add` makes it no environment of ours: nothing removes it or replaces versions, also after an interrupted `add`."""
    without = shutil.ignore_patterns(".cellgate-env*", "cgwheel*", "comm", "comm-*")
    own = shutil.copytree(science, tmp_path / "own", symlinks=True, ignore=without)
    versions = own / f"lib/python{VERSION}/site-packages"
    (info,) = versions.glob("matplotlib_inline-*")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: matplotlib-inline\nVersion: 1.0\n")
    info.rename(versions / "matplotlib_inline-1.0.dist-info")  # another version than the one that `create` installs

    def check_kept() -> None:
        assert "remove it yourself" in cellgate("env", "remove", str(own)).stderr
        assert "exists; " in cellgate("env", "create", str(own)).stderr
        assert [p.name for p in versions.glob("matplotlib_inline-*")] == ["matplotlib_inline-1.0.dist-info"]

    assert cellgate("env", "add", str(own), "cgwheel").returncode == 0
    check_kept()
    assert cellgate("env", "add", str(own)).returncode == 0
    check_kept()
    (own / ".cellgate-env").write_text("changing, foreign\n")  # of an `add` that was killed
    assert "`cellgate env add" in cellgate("run", "--kernel-env", str(own), "-c", "1").stderr
    check_kept()
    assert cellgate("env", "add", str(own)).returncode == 0
    check_kept()
    used = cellgate("run", "--kernel-env", str(own), "-c", "import cgwheel; print(cgwheel.value)")
    assert used.stdout == "41\n", used.stderr


def test_another_version_is_refused(cellgate: Env, bare: Path) -> None:
    (bare / f"lib/python{VERSION}").rename(bare / "lib/python3.2")
    config = (bare / "pyvenv.cfg").read_text()
    (bare / "pyvenv.cfg").write_text(
        "\n".join("version = 3.2.1" if x.startswith("version") else x for x in config.splitlines())
    )
    refused = cellgate("run", "--kernel-env", str(bare), "-c", "1")
    assert "is of Python 3.2.1" in refused.stderr and f"kernels need Python {VERSION}" in refused.stderr
    assert "no virtual environment" in cellgate("run", "--kernel-env", str(bare.parent), "-c", "1").stderr


# ---------------------------------------------------------------- what cells could have written

SPY = "import os, pathlib\npathlib.Path({!r}).write_text('ran')\n"


def spied(env: Path, mark: Path) -> None:
    """Make every start of this environment's Python write the file `mark`."""
    packages = env / f"lib/python{VERSION}/site-packages"
    (packages / "spy.pth").write_text(f"import pathlib; pathlib.Path({str(mark)!r}).write_text('ran')\n")


def test_a_spy_would_notice(cellgate: Env, bare: Path, tmp_path: Path) -> None:
    spied(bare, tmp_path / "mark")
    assert "lacks what kernels need" in cellgate("run", "--kernel-env", str(bare), "-c", "1").stderr
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("front", ["run", "json"])
@pytest.mark.parametrize("how", ["below", "is", "settings", "link"])
def test_an_environment_that_cells_write_never_runs(
    cellgate: Env, workspace: Path, tmp_path: Path, how: str, front: str
) -> None:
    env = workspace / ".venv"
    mark = tmp_path / "mark"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", env], check=True)
    spied(env, mark)
    more = ["--workspace", str(env if how == "is" else workspace)]
    if how == "settings":
        settings = tmp_path / "settings.json"
        settings.write_text(json.dumps(web.settings(filesystem={"allowWrite": [str(workspace / ".venv/lib")]})))
        more = ["--workspace", str(tmp_path), "--sandbox", str(settings)]
    if how == "link":
        (tmp_path / "link").symlink_to(env)
        env = tmp_path / "link"
    refused = cellgate("run", *more, "--kernel-env", str(env), *(["--json"] if front == "json" else []), "-c", "1")
    assert refused.returncode == 2 and "cells could write" in refused.stderr, refused.stderr
    assert not mark.exists()


@pytest.mark.parametrize("link", [False, True])
def test_a_base_python_that_cells_write_never_runs(cellgate: Env, bare: Path, workspace: Path, link: bool) -> None:
    """Behind a link it is a right one now; a cell could redirect the link before the zygote starts again."""
    base = workspace / "python"
    if link:
        base.symlink_to("/usr")
    else:
        (base / "bin").mkdir(parents=True)
        (base / "bin/python3").symlink_to("/usr/bin/python3")
    (bare / "pyvenv.cfg").write_text(f"home = {base}/bin\nversion = {VERSION}.0\n")
    refused = cellgate("run", "--workspace", str(workspace), "--kernel-env", str(bare), "-c", "1")
    assert refused.returncode == 2 and "cells could write" in refused.stderr, refused.stderr


def test_folders_that_code_of_an_environment_adds_are_not_imported_from(
    cellgate: Env, bare: Path, workspace: Path, tmp_path: Path
) -> None:
    """The zygote looks for its own modules last."""
    mark = tmp_path / "mark"
    for module in ("IPython", "cellgate_kernel", "cellgate_tools", "comm", "json", "pathlib", "sitecustomize"):
        (workspace / f"{module}.py").write_text(SPY.format(str(mark)))
    packages = bare / f"lib/python{VERSION}/site-packages"
    (packages / "cgspy.pth").write_text(f"import sys; sys.path.append('/' + {str(workspace)[1:]!r})\n")
    refused = cellgate("run", "--workspace", str(workspace), "--kernel-env", str(bare), "-c", "1")
    assert refused.returncode != 0 and f"imports from {workspace}, outside of it" in refused.stderr, refused.stderr
    assert not mark.exists()


@pytest.mark.parametrize("how", ["pth", "finder", "link"])
def test_packages_elsewhere_never_run(cellgate: Env, bare: Path, workspace: Path, tmp_path: Path, how: str) -> None:
    packages = bare / f"lib/python{VERSION}/site-packages"
    mark = tmp_path / "mark"
    (workspace / "cgspy.py").write_text(SPY.format(str(mark)))
    (packages / "z.pth").write_text("import cgspy\n")
    if how == "pth":
        (packages / "mine.pth").write_text(f"# mine\n{workspace}\n")
    elif how == "finder":
        (packages / "__editable___mine_finder.py").write_text("MAPPING = {}\n")
    else:
        (packages / "cgspy.py").symlink_to(workspace / "cgspy.py")
    refused = cellgate("run", "--kernel-env", str(bare), "-c", "1")
    assert refused.returncode == 2 and "without -e" in refused.stderr, refused.stderr
    assert not mark.exists()


@pytest.mark.parametrize("made", [True, False])
def test_environments_are_read_only_below_a_workspace(cellgate: Env, workspace: Path, made: bool) -> None:
    envs = workspace / "data/cellgate/envs"
    if made:
        (envs / "x").mkdir(parents=True)
    code = f"import os\ntry: os.makedirs({str(envs)!r} + '/x/bin')\nexcept OSError as e: print(type(e).__name__)"
    run = cellgate("run", "--workspace", str(workspace), "-c", code, XDG_DATA_HOME=str(workspace / "data"))
    assert run.stdout.split() == ["OSError"] or run.stdout.split() == ["PermissionError"], (run.stdout, run.stderr)
    if made:
        inside = cellgate("run", "--workspace", str(envs / "x"), "-c", "1", XDG_DATA_HOME=str(workspace / "data"))
        assert inside.returncode == 2 and "cellgate keeps files of its own in" in inside.stderr


def test_denied_writing_allows_it(cellgate: Env, workspace: Path, science: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    deny = web.settings(filesystem={"allowWrite": [str(science.parent)], "denyWrite": [str(science)]})
    settings.write_text(json.dumps(deny))
    run = cellgate("run", "--sandbox", str(settings), "--kernel-env", "science", "-c", "import cgwheel")
    assert run.returncode == 0, run.stderr
    assert (
        cellgate("run", "--no-sandbox", "--workspace", str(science), "--kernel-env", "science", "-c", "1").returncode
        == 0
    )


def test_jupyter_installs_its_folder(cellgate: Env, science: Path, tmp_path: Path) -> None:
    assert cellgate("jupyter", "install", "--prefix", str(tmp_path), "--kernel-env", "science").returncode == 0
    (spec,) = tmp_path.glob("share/jupyter/kernels/*/kernel.json")
    assert f"--kernel-env={science}" in json.loads(spec.read_text())["argv"]
    assert cellgate("jupyter", "install", "--prefix", str(tmp_path), "--kernel-env", "nosuch").returncode == 2
