"""Preparation of the process that all kernels are forked from.

The first kernel is forked as soon as the shell can run a cell, and imports what else it needs itself.
Then the zygote warms up. Later kernels share what that has imported, compiled and cached.
"""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import select
import sys
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

# jedi needs a home folder on import, which a user without a passwd entry does not have.
if os.path.expanduser("~") == "~":
    os.environ["HOME"] = "/"

import IPython

from cellgate_kernel import (
    completion,
    formatting,
    ipykernel_stub,
    late,
    preload,
    runner,
    shell,
    started,
    stdin,
    streams,
)

# Modules that the cells below, and most cells of users, import. Each row is a step of the warm-up.
_WARM_IMPORTS = (
    ("asyncio", "cellgate_kernel.lang_node", "cellgate_kernel.lang_shell"),
    ("asttokens", "executing", "pure_eval"),
    ("decimal", "fractions", "stack_data"),
    ("IPython.core.magics.namespace", "pygments.formatters", "pygments.formatters.terminal256", "pygments.styles"),
    ("pygments.formatters.html", "pygments.lexers", "pygments.lexers.python", "pygments.styles.default"),
    ("html", "importlib.resources", "pdb", "random", "shutil", "sysconfig", "tempfile"),
    ("IPython.core.completer", "IPython.core.completerlib", "IPython.core.magics.code", "IPython.core.magics.config"),
)
# Each makes IPython or the standard library import, compile or cache what cells need.
_WARM_CELLS = (
    "1",
    "x = [1, 2.5, 'a', None, {'k': (1, 2)}]\nx",
    "print('x')",
    "1/0",
    "def f(:",
    "import asyncio\nawait asyncio.sleep(0)",
    "raise ValueError('x') from KeyError('y')",
    "from IPython.display import HTML, display\ndisplay(HTML('x'))",
    "%who",
    "int?",
    "import subprocess, threading, traceback, json, re, time, pathlib, datetime, random, collections, itertools",
)


def _import(names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(Exception):  # a cell that imports it sees the error
            importlib.import_module(name)
    gc.freeze()


def _run_cells(sh: shell.ZMQInteractiveShell) -> None:
    cells = runner.CellRunner()
    sh.run_async = cells.run_async
    for code in _WARM_CELLS:
        shell.reply_of(sh, sh.run_cell(code, store_history=True))
    cells.close()
    del sh.run_async
    _ = sh.Completer
    for colors in ("neutral", "linux", "nocolor"):  # computed when first set, then cached
        sh.colors = colors
    _clean(sh)  # collects the garbage of the cells, too
    _freeze()


def _clean(sh: shell.ZMQInteractiveShell) -> None:
    import linecache

    history: Any = sh.history_manager
    history.db.close()
    history.init_db()
    history.db_input_cache.clear()
    history.db_output_cache.clear()
    history.output_hist_reprs.clear()
    sh.reset(new_session=False)
    history.new_session()
    for name in ("last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
    history.input_hist_parsed[:] = [""]
    history.input_hist_raw[:] = [""]
    history._i00 = history._i = history._ii = history._iii = ""
    sh.user_ns.update({"_": "", "__": "", "___": ""})
    sh.execution_count = 1
    sh.compile = sh.compiler_class()
    linecache.clearcache()


def _freeze() -> None:
    """The last step before a fork: the collector of a kernel would write to all objects."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("importing has started a thread, and a process with threads cannot be forked safely")
    gc.freeze()


# The supervisor's requests arrive at this descriptor (program.c).
_control = select.poll()
_control.register(3, select.POLLIN)

# The steps of the warm-up that are left.
_todo: deque[Callable[[], None]] = deque()


def prepare(modules: str) -> tuple[str, str]:
    """Prepare for the first fork; `modules`: see preload. Returns versions of Python and IPython."""
    # Caused by an interrupt right before a cell's coroutine starts.
    warnings.filterwarnings("ignore", message="coroutine 'InteractiveShell.run_cell_async' was never awaited")
    # Forks are safe: the kernel's own threads hold no locks of Python.
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded, use of fork")
    if sys.version_info >= (3, 14):  # the default is a fork server, which needs sockets, which the sandbox denies
        default: Any = vars(importlib.import_module("multiprocessing.context"))["_default_context"]
        default._default_context = default.get_context("fork")  # set_start_method() works once, and is for cells
    streams.install()
    started.install()
    stdin.install()
    ipykernel_stub.install()
    formatting.install()
    late.patch("asyncio", late.run("loop", "install"))
    # IPython's debugger has a subclass of pdb's: it is imported, and patched, after pdb
    late.patch("pdb", lambda: importlib.import_module("IPython.core.debugger"))
    late.patch("IPython.core.debugger", late.run("debuggers", "install"))
    sh = shell.make(color=False)
    preload.load(modules)
    importlib.import_module("cellgate_kernel.kernel")  # also imports all modules of kernels
    # Imports and pages of memory that each first cell would need. make() cannot import.
    shell.reply_of(sh, sh.run_cell("1", store_history=True))
    sh.forget_cells()
    _freeze()
    _todo.extend(functools.partial(_import, names) for names in _WARM_IMPORTS)
    _todo.append(functools.partial(_run_cells, sh))
    return sys.version.split()[0], IPython.__version__


def warm_up() -> bool:
    """Take a step, after which kernels can be forked; returns True if there are more. One that fails is taken again."""
    if _todo:
        _todo[0]()
        _todo.popleft()
    return bool(_todo)


def plan_completion() -> None:
    """Leave the preparation of completion to this process: kernels do not begin it before they complete."""
    completion.wanted = False


def prepare_completion() -> bool:
    """Prepare a part of completion while no kernel is requested; returns True if there is more."""
    more = completion.step(lambda: bool(_control.poll(0)))
    if not completion.given_up():  # what it leaves is collected before the next part
        gc.freeze()
    return more
