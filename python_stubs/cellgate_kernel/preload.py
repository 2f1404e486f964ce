"""Modules that are imported in the zygote, for all kernels.

The zygote is forked and therefore must have one thread. What libraries set up per process is set up
in each kernel instead: thread pools, random numbers, folders.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

# One thread while importing: these libraries start their thread pools on import, and pyarrow's allocator a thread.
_ONE_THREAD = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# Time for the thread of a cancelled timer (matplotlib) to end, in seconds.
_PATIENCE = 1.0
# Names of the function in builds of OpenBLAS.
_SET_THREADS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)
# The functions of OpenBLAS that were found, and the type of their argument.
_blas: list[tuple[Callable[[Any], Any], Callable[[int], Any]]] = []
INLINE_BACKEND = "module://matplotlib_inline.backend_inline"


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _only_one_thread() -> bool:
    end = time.monotonic() + _PATIENCE
    while _threads() != 1:
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def _refuse_threads(name: str) -> None:
    if _only_one_thread():
        return
    own = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
    which = f" ({', '.join(own)})" if own else ""
    raise ImportError(
        f"cannot preload {name}: importing it starts a thread{which}, and a process with threads cannot be forked "
        "safely. Leave it out of the list: a cell can still import it"
    )


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except BaseException as e:
        raise ImportError(f"cannot preload {name}: {type(e).__name__}: {e}") from e
    _refuse_threads(name)


def _fonts_in(folder: str) -> list[str]:
    """matplotlib's font lists that `cellgate env` and install_package made, read-only for cells."""
    folder = os.path.join(folder, "share/cellgate/matplotlib")
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.startswith("fontlist-") and name.endswith(".json")]


def show_fonts(cache: str, places: Iterable[str]) -> None:
    """Link these lists into matplotlib's folder `cache`: making one takes more than a second."""
    for place in places:
        for path in _fonts_in(place):
            with contextlib.suppress(OSError):
                os.makedirs(cache, exist_ok=True)
                os.symlink(path, os.path.join(cache, os.path.basename(path)))


def load(names: str) -> None:
    """Import comma-separated modules; ImportError names a module that fails or starts a thread."""
    wanted = [n.strip() for n in names.split(",") if n.strip()]
    if not wanted:
        return
    import shutil
    import tempfile

    # In the supervisor's folder, which no cell can write: what lies in such a folder can run code here.
    folder = tempfile.mkdtemp(prefix="preload-")
    show_fonts(folder, [sys.prefix])
    before = dict(os.environ)
    os.environ.update(_ONE_THREAD, MPLBACKEND=INLINE_BACKEND, MPLCONFIGDIR=folder)
    try:
        for name in wanted:
            _import(name)
        _prepare_numpy(sys.modules.get("numpy"))
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)
        tempfile.tempdir = None  # a kernel has its own


def _prepare_numpy(numpy: Any) -> None:
    """Find the functions for after_fork() here, in the zygote, to save time in kernels."""
    if numpy is None:
        return
    import ctypes

    numpy.random.seed()  # the first use imports more
    for path in _libraries("openblas"):
        library = ctypes.CDLL(path)
        found = [getattr(library, name) for name in _SET_THREADS if hasattr(library, name)]
        _blas.extend((f, ctypes.c_int) for f in found[:1])


def _libraries(word: str) -> set[str]:
    """Loaded shared libraries whose file name contains this word."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as f:
        paths = {line.split(maxsplit=5)[5].strip() for line in f if line.count("/")}
    return {p for p in paths if word in os.path.basename(p) and ".so" in p}


# ------------------------------------------------------------------ in a kernel


def _processors(variable: str) -> int:
    """The number of threads of a pool: from the environment, else the number of processors."""
    try:
        return max(1, int(os.environ.get(variable) or os.environ.get("OMP_NUM_THREADS") or ""))
    except ValueError:
        return len(os.sched_getaffinity(0))


def _fix_numpy(numpy: Any) -> None:
    """Seed numpy's generator: forked kernels would all have the same random numbers."""
    numpy.random.seed()
    count = _processors("OPENBLAS_NUM_THREADS")
    for set_threads, number in _blas:
        if count > 1:
            set_threads(number(count))


def _fix_numexpr(numexpr: Any) -> None:
    numexpr.set_num_threads(_processors("NUMEXPR_NUM_THREADS"))


def _fix_matplotlib(matplotlib: Any) -> None:
    """Reset the cached folders, which are the zygote's, and the backend."""
    for name in ("get_configdir", "get_cachedir"):
        function = getattr(matplotlib, name)
        setattr(matplotlib, name, getattr(function, "__wrapped__", function))
    backend = os.environ.get("MPLBACKEND", INLINE_BACKEND)
    if backend != INLINE_BACKEND:
        matplotlib.rcParams["backend"] = backend


_FIXES: dict[str, Callable[[Any], None]] = {
    "numpy": _fix_numpy,
    "numexpr": _fix_numexpr,
    "matplotlib": _fix_matplotlib,
}


def after_fork() -> None:
    """Set up libraries in a kernel, whose environment variables are already set."""
    for name, fix in _FIXES.items():
        module = sys.modules.get(name)
        if module is not None:
            fix(module)
