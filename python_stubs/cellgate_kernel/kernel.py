"""One kernel: configured right after its fork, then serves requests until it ends."""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import IPython

import _cellgate
from cellgate_kernel import (
    comms,
    debugger,
    denials,
    ipykernel_stub,
    jsontext,
    preload,
    recursion,
    reserve,
    stdin,
    wrappers,
)
from cellgate_kernel.control import Control
from cellgate_kernel.frontend import FrontendKernel
from cellgate_kernel.magics import KernelMagics
from cellgate_kernel.request import MAIN
from cellgate_kernel.requests import Requests
from cellgate_kernel.shell import ZMQInteractiveShell
from cellgate_kernel.worker import Worker


def _set_environment(config: dict[str, Any]) -> None:
    """The variables of a kernel, which inherits none."""
    env = dict(item.split("=", 1) for item in config["environ"])
    env.setdefault("MPLBACKEND", preload.INLINE_BACKEND)
    os.environ.clear()
    os.environ.update(env)
    if config.get("sandbox", True):
        os.makedirs(env["HOME"], exist_ok=True)


def _set_paths(config: dict[str, Any]) -> None:
    """Add the workspace last, so that its files cannot replace modules of the library."""
    os.chdir(config.get("working_dir") or config["workspace"])
    history: Any = ZMQInteractiveShell.instance().history_manager
    history.dir_hist[:] = [pathlib.Path.cwd()]  # for `%cd -`
    sys.path.extend([*config.get("python_path", []), ""])
    sys.argv[:] = [""]
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:  # child processes resolve "" on sys.path by it; set in the zygote
        process.ORIGINAL_DIR = os.getcwd()


if TYPE_CHECKING:
    from cellgate_kernel.languages import Language

T = TypeVar("T")


class Kernel:
    """One kernel: its shell and the workers that serve requests."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.shell: ZMQInteractiveShell = ZMQInteractiveShell.instance()
        self.watcher = wrappers.Watcher([])
        self.working_dir: str = config.get("working_dir") or ""
        self.front = FrontendKernel(self.shell, self)
        self.requests = Requests(self.shell, self.front)
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self.main = Worker(self, MAIN)
        self.workers: dict[int, Worker] = {self.main.thread_id: self.main}
        self.control = Control(self)
        _cellgate.on_control(self.control.serve)
        self._configure_shell(config)
        self.language: Language | None = None
        signal.signal(signal.SIGINT, _cellgate.on_sigint)
        sys.unraisablehook = _cellgate.on_unraisable

    def _configure_shell(self, config: dict[str, Any]) -> None:
        shell = self.shell
        shell.run_sync = lambda func: self.worker().runner.run_sync(func)
        shell.run_async = shell.loop_runner = lambda coro: self.worker().run_async(coro)
        shell.was_interrupted = lambda: self.worker().runner.interrupted
        shell.front = config.get("front") or ""
        denials.front = shell.front
        shell.kernel = self.front
        comms.install()
        comms.worker = self.worker
        denials.install()
        recursion.install()
        if shell.for_notebook:
            ipykernel_stub.show()
            stdin.refusal = stdin.JUPYTER_REFUSAL
        shell.sandboxed = KernelMagics.sandboxed = bool(config.get("sandbox", True))
        shell.environment = config.get("kernel_env") or ""
        if config.get("exec") in ("ask", "each"):
            # Both keep the parent, which holds the GIL, from running until the host has decided.
            vars(subprocess).update(_USE_VFORK=False, _USE_POSIX_SPAWN=False)

    def worker(self) -> Worker:
        """The worker of this thread; in other threads the main one."""
        return self.workers.get(threading.get_ident(), self.main)

    def call_in_main(self, func: Callable[[], T], timeout: float) -> T:
        """Call func() in the main thread between cells. TimeoutError if a cell runs for longer."""
        future: Future[T] = Future()
        self._calls.append((future, func))
        _cellgate.call_main()
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise TimeoutError("the cell that runs must end first") from None

    def run_calls(self) -> None:
        """Run the functions that other threads wait for."""
        while self._calls:
            future, func = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(func())
            except BaseException as e:
                future.set_exception(e)

    def shut_down(self) -> NoReturn:
        """Run atexit functions of cells, then exit; the I/O thread enforces a time limit."""
        try:
            if self.language is not None:
                self.language.close()
            atexit._run_exitfuncs()
        except BaseException:
            traceback.print_exc()
        _cellgate.exit(0)


_kernel: Kernel | None = None


def make(text: str) -> None:
    """First call in a forked kernel, while its sandbox is made: must not use files or threads.

    `text` is the kernel's part of the spec, a JSON object: session, workspace, environ, sandbox, color,
    python_path, front, working_dir.
    """
    global _kernel
    _kernel = Kernel(json.loads(text))
    # This only copies memory that every cell would write to anyway.
    _kernel.shell.run_cell("1", silent=True)
    _kernel.shell.forget_cells()


def configure() -> None:
    """Second call, inside of the sandbox."""
    assert _kernel is not None
    config = _kernel.config
    _set_environment(config)
    _set_paths(config)
    if config.get("language"):
        from cellgate_kernel import languages  # imports asyncio, which the first kernel does not need

        _kernel.language = languages.make(_kernel, config)
    if config.get("color"):  # the colors "linux" use white text, unreadable on the white page of a notebook
        _kernel.shell.colors = "neutral" if _kernel.shell.for_notebook else "linux"
    _kernel.watcher = wrappers.Watcher(config.get("python_path", []))
    if (tempfile := sys.modules.get("tempfile")) is not None:
        vars(tempfile)["tempdir"] = None  # the zygote's value, if a preloaded module has used it
    compiler: Any = _kernel.shell.compile
    compiler.cells_are_files = debugger.installed and _kernel.shell.for_notebook
    preload.after_fork()
    if config.get("sandbox", True):  # only this session uses this home
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "matplotlib")
        places = [*config.get("python_path", []), sys.prefix]
        _kernel.watcher.changed = lambda: preload.show_fonts(cache, places)
        _kernel.watcher.changed()
    if profiles := os.environ.get("CELLGATE_PROFILES"):  # of `cellgate run --profile`
        importlib.import_module("cellgate_kernel.imports").follow(profiles.split())
    reserve.hold()
    gc.enable()


def _exit(status: int) -> NoReturn:
    """Exit without cleaning up; earlier output is sent."""
    _cellgate.exit(status)


def serve() -> None:
    """Third call: report that the kernel is ready, then serve. Does not return."""
    assert _kernel is not None
    os._exit = _exit
    faulthandler.enable(_cellgate.crash_fd())
    versions = {"python": sys.version.split()[0], "ipython": IPython.__version__}
    denials.watch_reads()
    _cellgate.ready(jsontext.dumps({**versions, "debugger": debugger.installed}))
    if _kernel.language is not None:
        with contextlib.suppress(Exception):  # the first cell tries again, and reports it
            _kernel.language.start()
    _kernel.main.serve()
