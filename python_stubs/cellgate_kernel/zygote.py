"""Preparation before any kernel exists: imports, the shell, and a warm-up without traces."""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import gc
import importlib
import os
import sys
import warnings
from typing import Any

# jedi needs a home folder on import, which a user without a passwd entry does not have.
if os.path.expanduser("~") == "~":
    os.environ["HOME"] = "/"

import IPython

from cellgate_kernel import (
    completion,
    debuggers,
    formatting,
    ipykernel_stub,
    loop,
    preload,
    shell,
    started,
    stdin,
    streams,
)

# Each makes IPython or the standard library import, compile or cache what the first cell needs.
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
    "!true",
    "int?",
    "import subprocess, threading, traceback, json, re, time, pathlib, datetime, random, collections, itertools",
)


def _warm(sh: shell.ZMQInteractiveShell) -> None:
    importlib.import_module("cellgate_kernel.kernel")  # also imports all modules of kernels
    runner = loop.CellRunner()
    sh.run_async = runner.run_async
    for code in _WARM_CELLS:
        shell.reply_of(sh, sh.run_cell(code, store_history=True))
    runner.loop.close()
    del sh.run_async
    for colors in ("neutral", "linux", "nocolor"):  # computed when first set, then cached
        sh.colors = colors


def _clean(sh: shell.ZMQInteractiveShell) -> None:
    import asyncio
    import linecache

    asyncio.set_event_loop(None)
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


def prepare(modules: str) -> tuple[str, str]:
    """Prepare for forks; `modules`: see preload. Returns versions of Python and IPython."""
    gc.disable()
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
    debuggers.install()
    ipykernel_stub.install()
    formatting.install()
    loop.prepare()
    sh = shell.make(color=False)
    preload.load(modules)
    _warm(sh)
    _clean(sh)
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("importing has started a thread, and a process with threads cannot be forked safely")
    gc.collect()
    gc.freeze()
    return sys.version.split()[0], IPython.__version__


def idle() -> bool:
    """Prepare something while no kernel is requested; returns True if there is more."""
    more = completion.step()
    gc.freeze()
    return more
