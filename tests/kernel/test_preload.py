"""Modules imported before the fork."""

import base64
import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kernel.harness import Kernel, Zygote

# One worker: these tests share a zygote that has imported much.
pytestmark = pytest.mark.xdist_group("preload")

MODULES = "numpy,pandas,matplotlib.pyplot"

# Counts as the zygote would: the kernel's own threads are not the module's.
IN_A_CELL = (
    "import cellgate_kernel.preload as p, os\n"
    "real, base = p._threads, p._threads()\n"
    "p._threads = lambda: real() - base + 1\n"
)


@contextlib.contextmanager
def changes_of(folder: Path) -> Iterator[Callable[[], list[str]]]:
    """Names of files that are created in the folder from now on (inotify)."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(folder), 0x100) >= 0  # IN_CREATE

    def seen() -> list[str]:
        names = []
        with contextlib.suppress(BlockingIOError):
            while data := os.read(fd, 65536):
                while data:
                    size = int.from_bytes(data[12:16], "little")
                    names.append(data[16 : 16 + size].rstrip(b"\0").decode())
                    data = data[16 + size :]
        return names

    try:
        yield seen
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True, name='worker-of-mine').start()",
            "worker-of-mine",
        ),
        ("import _thread, threading\n_thread.start_new_thread(threading.Event().wait, ())", "starts a thread"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("1/0", "ZeroDivisionError"),
    ],
)
def test_refused_with_its_name(kernel: Kernel, code: str, problem: str) -> None:
    (kernel.workspace / "bad_one.py").write_text(code + "\n")
    kernel.run(IN_A_CELL + "before = dict(os.environ)")
    r = kernel.run("p.load('json, bad_one, re')")
    assert r.reply["ename"] == "ImportError"
    assert "cannot preload bad_one" in r.reply["evalue"] and problem in r.reply["evalue"]
    assert kernel.run("dict(os.environ) == before").result == "True"


def test_a_thread_that_ends_is_waited_for(kernel: Kernel) -> None:
    (kernel.workspace / "timer_one.py").write_text(
        "import threading\nt = threading.Timer(50, print)\nt.start()\nthreading.Timer(0.2, t.cancel).start()\n"
    )
    assert kernel.run(IN_A_CELL + "p.load('timer_one')").status == "ok"


@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize("front", ["", "jupyter"])
@pytest.mark.parametrize("modules", [[], ["--preload", "json"]])
def test_temporary_files_are_the_kernels_own(
    prefix: Path, tmp_path: Path, modules: list[str], front: str, sandbox: bool
) -> None:
    """Not in the zygote's folder, and no code writes there before the sandbox is complete."""
    (theirs := tmp_path / "theirs").mkdir()
    (work := tmp_path / "work").mkdir()
    (mine := tmp_path / "mine").mkdir()
    with Zygote(prefix, *modules, env={"TMPDIR": str(theirs)}) as zygote, changes_of(theirs) as seen:
        where = {} if sandbox else {"env": [f"TMPDIR={mine}"]}
        kernel = zygote.spawn(work, sandbox=sandbox, front=front, **where)
        try:
            assert kernel.run("import tempfile; tempfile.gettempdir()").result == repr("/tmp" if sandbox else str(mine))
        finally:
            kernel.close()
        assert seen() == []


def test_one_thread_while_importing(kernel: Kernel) -> None:
    (kernel.workspace / "looks.py").write_text(
        "import os\nseen = os.environ['OPENBLAS_NUM_THREADS'], os.environ['MPLBACKEND']\n"
    )
    kernel.run(IN_A_CELL + "p.load('looks')")
    assert kernel.run("import looks\nlooks.seen").result == "('1', 'module://matplotlib_inline.backend_inline')"
    assert kernel.run("'OPENBLAS_NUM_THREADS' in os.environ").result == "False"


@pytest.fixture(scope="module")
def scientific(prefix: Path, packages_env: Path) -> Iterator[Zygote]:
    with Zygote(prefix, "--preload", MODULES, kernel_env=packages_env) as z:
        assert z.ready["ready"] is True, z.ready
        yield z


def test_all_are_there(scientific: Zygote, workspace: Path) -> None:
    with scientific.spawn(workspace) as kernel:
        r = kernel.run(f"import sys\n[m in sys.modules for m in {MODULES!r}.split(',')]")
        assert r.result == "[True, True, True]"


def test_siblings_have_different_random_numbers(scientific: Zygote, workspace: Path) -> None:
    seen = set()
    for _ in range(3):
        with scientific.spawn(workspace) as kernel:
            seen.add(kernel.run("import numpy as np; np.random.rand()").result)
            seen.add(kernel.run("np.random.default_rng().random()").result)
    assert len(seen) == 6


def test_threads_of_blas_as_the_environment_says(scientific: Zygote, workspace: Path) -> None:
    threads = "import os; len(os.listdir('/proc/self/task'))"
    with scientific.spawn(workspace, env=["OPENBLAS_NUM_THREADS=1"]) as kernel:
        one = int(kernel.run(threads).result or 0)
        assert kernel.run("import numpy as np\na = np.ones((500, 500))\nfloat((a @ a)[0, 0])").result == "500.0"
        assert int(kernel.run(threads).result or 0) == one
    with scientific.spawn(workspace, env=["OPENBLAS_NUM_THREADS=3"]) as kernel:
        assert kernel.run("import numpy as np\na = np.ones((500, 500))\nfloat((a @ a)[0, 0])").result == "500.0"
        assert int(kernel.run(threads).result or 0) == one + 2


def test_many_kernels_multiply(scientific: Zygote, workspace: Path) -> None:
    for _ in range(10):
        with scientific.spawn(workspace) as kernel:
            r = kernel.run(
                "import numpy as np\na = np.random.rand(300, 300)\nbool(np.allclose(np.linalg.inv(a) @ a, np.eye(300), atol=1e-6))"
            )
            assert r.result == "True"


def test_pandas_tables(scientific: Zygote, workspace: Path) -> None:
    with scientific.spawn(workspace) as kernel:
        r = kernel.run("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
        assert "text/html" in r.of("EXECUTE_RESULT")[0].json["data"]


def test_pyarrow_computes_with_threads(scientific: Zygote, workspace: Path) -> None:
    """pandas has imported it."""
    code = (
        "import sys, pyarrow as pa, pyarrow.compute as pc\n"
        "t = pa.table({f'c{i}': range(200_000) for i in range(8)})\n"
        "sum(pc.sum(c).as_py() for c in t.columns), len(t.to_pandas(use_threads=True))"
    )
    for _ in range(3):
        with scientific.spawn(workspace) as kernel:
            assert kernel.run("import sys; 'pyarrow.lib' in sys.modules").result == "True"
            assert kernel.run(code).result == f"({8 * sum(range(200_000))}, 200000)"


def test_figures(scientific: Zygote, workspace: Path) -> None:
    with scientific.spawn(workspace) as kernel:
        r = kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]);", timeout=60)
        assert base64.b64decode(r.of("DISPLAY_DATA")[0].json["data"]["image/png"]).startswith(b"\x89PNG")
        r = kernel.run("import matplotlib\nfolder = matplotlib.get_cachedir()\nimport os; os.path.isdir(folder)")
        assert r.result == "True"


def test_another_backend(scientific: Zygote, workspace: Path) -> None:
    with scientific.spawn(workspace, env=["MPLBACKEND=agg"]) as kernel:
        r = kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.get_backend()", timeout=60)
        assert (r.result, r.of("DISPLAY_DATA")) == ("'agg'", [])
