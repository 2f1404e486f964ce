"""The first kernels of a zygote, which are forked before the warm-up, and import what they need themselves."""

import ast
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel.harness import KERNEL_ENV, Kernel, Zygote
from processes import eventually
from rounds import dear

# Imported by the warm-up.
WARM = "import sys; 'stack_data' in sys.modules, 'asyncio' in sys.modules, 'pdb' in sys.modules"

# Preloaded: records what a kernel imports and opens from its fork to configure(), which changes the folder.
PROBE = """
import os, sys
zygote, seen, configured = os.getpid(), [], False
def hook(event, args):
    global configured
    if os.getpid() != zygote and not configured:
        configured = event == "os.chdir"
        if event in ("import", "open", "os.listdir", "os.scandir", "_thread.start_new_thread"):
            seen.append(f"{event} {args[0]}")
sys.addaudithook(hook)
"""

# Allocates blocks of all sizes. The memory that it has shared until then, in kB, and how much of that it has copied.
ALLOCATE = """
import re
def shared():
    n, counts = 0, False
    for line in open("/proc/self/smaps"):
        mapping = re.match(r"[0-9a-f]+-[0-9a-f]+ (\\S+) \\S+ \\S+ \\d+ *(.*)", line)
        if mapping:
            counts = "w" in mapping[1] and mapping[2] in ("", "[heap]")
        elif counts and line.startswith("Shared_"):
            n += int(line.split()[1])
    return n
shared()
before = shared()
keep = [bytearray(n) for n in range(1, 8000, 3)]
before, before - shared()
"""


@pytest.fixture
def first(prefix: Path, workspace: Path) -> Iterator[Kernel]:
    with Zygote(prefix) as z, z.spawn(workspace) as kernel:
        yield kernel


def test_four_kernels_at_most_come_before_the_warm_up(prefix: Path, workspace: Path) -> None:
    with contextlib.ExitStack() as stack:
        z = stack.enter_context(Zygote(prefix))
        kernels = [stack.enter_context(z.spawn(workspace)) for _ in range(6)]
        warm = [k.run(WARM).result for k in kernels]
    assert warm[0] == "(False, False, False)"
    assert warm[4:] == ["(True, True, True)"] * 2


def test_a_spare_waits_for_the_warm_up(prefix: Path, workspace: Path) -> None:
    with Zygote(prefix) as z, z.spawn(workspace, spare=True) as kernel:
        assert kernel.run(WARM).result == "(True, True, True)"


@pytest.mark.no_sanitizer
def test_new_objects_are_on_pages_of_their_own(prefix: Path, workspace: Path) -> None:
    """A kernel does not copy pages of the zygote for the sake of free blocks in them."""
    with Zygote(prefix) as z, z.spawn(workspace, spare=True) as kernel:
        shared, copied = ast.literal_eval(kernel.run(ALLOCATE).result or "")
    assert shared > 4000 and copied < 300


def ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def wait_until_idle(pid: int, work: int) -> None:
    """Wait until the process has worked for so many ticks more, and then does nothing."""
    start = ticks(pid)
    eventually(lambda: ticks(pid) >= start + work)
    before = -1
    while (now := ticks(pid)) != before:
        before = now
        time.sleep(0.5)  # no event says that it is idle, and it begins what it prepares after 0.2 s


# Completion is prepared by Python, for seconds; with a sanitizer the zygote of tests/jupyter does so.
@pytest.mark.no_sanitizer
@pytest.mark.parametrize("front", ["", "jupyter"])
def test_completion_is_prepared_once_there_are_several_notebooks(prefix: Path, workspace: Path, front: str) -> None:
    with Zygote(prefix) as z:

        def has_completion() -> bool:
            wait_until_idle(z.process.pid, 0)
            with z.spawn(workspace, front=front, spare=True) as kernel:
                return kernel.run("'jedi' in __import__('sys').modules").result == "True"

        wait_until_idle(z.process.pid, 3)
        assert [has_completion() for _ in range(3)] == [False] * 3
        if front:
            eventually(has_completion, 60)
        else:
            assert not has_completion()


@dear
@pytest.mark.no_sanitizer
def test_notebooks_that_are_opened_at_once_do_not_each_prepare_completion(prefix: Path, workspace: Path) -> None:
    with contextlib.ExitStack() as stack:
        z = stack.enter_context(Zygote(prefix))
        kernels = [stack.enter_context(z.spawn(workspace, front="jupyter")) for _ in range(4)]
        for kernel in kernels:
            kernel.run("pass")

        def prepared(kernel: Kernel) -> bool:
            init = kernel.pid
            wait_until_idle(int(Path(f"/proc/{init}/task/{init}/children").read_text().split()[0]), 0)
            return kernel.run("__import__('cellgate_kernel').completion.pending()").result == "False"

        assert [prepared(kernel) for kernel in kernels[:2]] == [True] * 2
        wait_until_idle(z.process.pid, 0)
        assert [kernel.run("'jedi' in __import__('sys').modules").result for kernel in kernels[2:]] == ["False"] * 2
        assert kernels[2].ask("complete_request", {"code": "import os\nos.path.joi"})["matches"] == ["join"]
        assert [prepared(kernel) for kernel in kernels[2:]] == [True, False]


def test_an_idle_zygote_warms_up(prefix: Path, workspace: Path) -> None:
    with Zygote(prefix) as z:
        wait_until_idle(z.process.pid, 3)
        with z.spawn(workspace) as kernel:
            assert kernel.run(WARM).result == "(True, True, True)"
            assert kernel.run("len(In), len(Out), [n for n in dir() if n[0] != '_']").result.startswith("(3, 1, [")


@pytest.mark.parametrize("spec", [{}, {"color": True}, {"color": True, "front": "jupyter"}, {"exec": "ask"}])
def test_before_its_sandbox_a_kernel_uses_no_files(
    prefix: Path, workspace: Path, tmp_path: Path, spec: dict[str, object]
) -> None:
    env, own = tmp_path / "env", prefix / "lib/cellgate/kernel-env"  # of another version of Python
    like = own if own.exists() else KERNEL_ENV
    (found,) = like.glob("lib/python3*/site-packages")
    packages = env / found.relative_to(like)
    packages.mkdir(parents=True)
    (packages / "probe.py").write_text(PROBE)
    for package in found.iterdir():
        (packages / package.name).symlink_to(package.resolve())
    (env / "bin").mkdir()
    (env / "bin/python").symlink_to(os.path.realpath(like / "bin/python"))
    (env / "pyvenv.cfg").write_text((like / "pyvenv.cfg").read_text())
    with Zygote(prefix, "--preload", "probe", kernel_env=env) as z:
        assert z.ready["ready"] is True, z.ready
        z.libraries.append([str(like.resolve())] * 2)
        with z.spawn(workspace, **spec) as one, z.spawn(workspace, **spec) as two:
            for kernel in (one, two):
                assert kernel.run("import probe; print(probe.configured, probe.seen)").out == "True []\n"


def test_the_cell_that_imports_asyncio_has_its_loop(first: Kernel) -> None:
    first.run("import sys; assert 'asyncio' not in sys.modules")
    code = """
        import asyncio
        async def two():
            await asyncio.sleep(0.01)
            return 2
        loop = asyncio.get_running_loop()
        task = loop.create_task(two())
    """
    first.run("import importlib.util; assert 'pdb' not in sys.modules")
    assert "code object" in str(first.run("importlib.util.find_spec('pdb').loader.get_code('pdb')").result)
    assert first.run(code).status == "ok"
    assert first.run("await task").result == "2"
    assert first.run("asyncio.get_running_loop() is loop").result == "True"
    assert first.run("asyncio.run(two()), type(loop).__name__").result == "(2, 'KernelLoop')"
    assert first.run("asyncio.__spec__.loader is asyncio.__loader__, asyncio.__loader__").result.startswith(
        "(True, <_frozen_importlib_external.SourceFileLoader"
    )


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio.subprocess as s; s.__name__",
        "from asyncio import events; events.__name__",
        "import concurrent.futures as c, asyncio; c.__name__",
    ],
)
def test_other_ways_to_import_asyncio(first: Kernel, code: str) -> None:
    assert first.run(code).status == "ok"
    assert first.run("import asyncio; type(asyncio.get_running_loop()).__name__").result == "'KernelLoop'"


def test_await_without_asyncio(first: Kernel) -> None:
    code = """
        async def f():
            return 3
        await f()
    """
    assert first.run(code).result == "3"
    assert first.run("import asyncio; type(asyncio.get_running_loop()).__name__").result == "'KernelLoop'"


def test_asyncio_imported_by_a_thread(first: Kernel) -> None:
    code = """
        import threading
        def work():
            import asyncio
            async def f(): return 4
            print(asyncio.run(f()))
        t = threading.Thread(target=work); t.start(); t.join()
    """
    assert first.run(code).out == "4\n"
    assert first.run("import asyncio; type(asyncio.get_running_loop()).__name__").result == "'KernelLoop'"


@pytest.mark.parametrize("module", ["pdb", "IPython.core.debugger", "IPython.terminal.debugger"])
def test_debuggers_are_replaced_when_they_are_imported(first: Kernel, module: str) -> None:
    assert first.run(f"import {module}; import pdb, IPython.core.debugger as d; pdb.Pdb is d.Pdb").result == "True"
    assert first.run("pdb.Pdb.__name__, pdb.set_trace is d.set_trace").result == "('CellPdb', True)"


def test_a_patch_that_fails_is_tried_again(first: Kernel) -> None:
    code = """
        import builtins, resource
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            import pdb
        except (ImportError, OSError) as e:
            print(type(e).__name__)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        import pdb
        print(pdb.Pdb.__name__)
    """
    assert first.run(code).out.split()[-1] == "CellPdb"


def test_patches_do_not_warn(first: Kernel) -> None:
    """Python 3.14 deprecates the policies of loops."""
    r = first.run("import warnings; warnings.simplefilter('error'); import asyncio, pdb; pdb.Pdb.__name__")
    assert (r.result, r.err) == ("'CellPdb'", "")


def test_the_completer_is_made_when_it_is_used(first: Kernel) -> None:
    assert first.run("'IPython.core.completer' in __import__('sys').modules").result == "False"
    assert "IPCompleter" in first.run("%config").out
    assert first.run("%config IPCompleter.greedy = True\nget_ipython().Completer.greedy").result == "True"
    assert first.run("get_ipython().Completer.use_jedi, 'Completer' in vars(get_ipython())").result.endswith("True)")
    error = first.run("get_ipython().nonsense").error
    assert error["ename"] == "AttributeError"
    assert error["evalue"] == "'ZMQInteractiveShell' object has no attribute 'nonsense'"


def test_a_first_cell_is_number_one(first: Kernel) -> None:
    """The zygote has run one before, which leaves no trace."""
    r = first.run("In[:-1], Out, _, __, _i, [n for n in globals() if n.startswith(('_1', '_i1'))]")
    assert (r.reply["execution_count"], r.result) == (1, "([''], {}, '', '', '', ['_i1'])")


def test_errors_of_a_first_cell(first: Kernel) -> None:
    error = first.run("def f():\n    1/0\nf()").error
    assert error["ename"] == "ZeroDivisionError"
    assert "----> 2     1/0" in "\n".join(error["traceback"])
    assert first.run("int?").status == "ok"


def test_many_descriptors_in_a_first_cell(first: Kernel) -> None:
    """No file can be opened for the traceback: the plain one is shown."""
    error = first.run("import os\nfds = []\nwhile True:\n    fds.append(os.dup(0))").error
    assert error["ename"] == "OSError"
    assert "fds.append(os.dup(0))" in "\n".join(error["traceback"])
