"""One kernel: configured right after its fork, then serving requests until it ends."""

from __future__ import annotations

import atexit
import errno
import faulthandler
import gc
import json
import os
import pwd
import signal
import sys
import traceback
from typing import Any, NoReturn

import IPython
from IPython.core.interactiveshell import ExecutionResult

import _cellgate
from cellgate_kernel import errors, jsontext, stdin, wrappers
from cellgate_kernel.loop import CellRunner
from cellgate_kernel.magics import KernelMagics
from cellgate_kernel.shell import ZMQInteractiveShell, content_of_reply, error_fields

_SHUTDOWN = -1


def _set_environment(config: dict[str, Any]) -> None:
    """The variables a kernel has: these, and what the host gave; nothing is inherited."""
    bin_dir = os.path.dirname(sys.executable)
    home = "/tmp/home" if config.get("sandbox", True) else pwd.getpwuid(os.getuid()).pw_dir
    env = {
        "PATH": f"{bin_dir}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": home,
        "TERM": "xterm-256color" if config.get("color") else "dumb",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
    }
    if not config.get("color"):
        env["NO_COLOR"] = "1"
    for item in config.get("env", []):
        name, _, value = item.partition("=")
        env[name] = value
    os.environ.clear()
    os.environ.update(env)
    if config.get("sandbox", True):
        os.makedirs(env["HOME"], exist_ok=True)


def _set_paths(config: dict[str, Any]) -> None:
    """The workspace comes last: a file there cannot stand in for a module of the library."""
    os.chdir(config["workspace"])
    sys.path.extend([*config.get("python_path", []), ""])
    sys.argv[:] = [""]


def _reseed() -> None:
    """Siblings are copies of one process; `random` reseeds itself after a fork, numpy does not."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


class Kernel:
    """Runs the requests."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.shell: ZMQInteractiveShell = ZMQInteractiveShell.instance()
        self.runner = CellRunner()
        self.watcher = wrappers.Watcher(config.get("python_path", []))
        self.shell.run_sync = self.runner.run_sync
        self.shell.run_async = self.runner.run_async
        self.shell.loop_runner = self.runner.run_async
        self.shell.was_interrupted = lambda: self.runner.interrupted
        if config.get("color"):
            self.shell.colors = "linux"
        KernelMagics.sandboxed = bool(config.get("sandbox", True))
        signal.signal(signal.SIGINT, _cellgate.on_sigint)

    # ---------------------------------------------------------------- one cell

    def _before_cell(self, allow_stdin: bool) -> None:
        stdin.set_allowed(allow_stdin)
        self.runner.interrupted = False
        if signal.getsignal(signal.SIGINT) is not _cellgate.on_sigint:  # a cell before this one has changed it
            signal.signal(signal.SIGINT, _cellgate.on_sigint)
        self.watcher.before_cell()

    def _after_cell(self) -> None:
        stdin.set_allowed(False)
        self.watcher.after_cell()
        if _cellgate.forked():
            # os.fork() in the cell, and the child has come to the cell's end: it ends here.
            sys.stdout.flush()
            os._exit(0)

    def execute(self, code: str, silent: bool, store_history: bool, allow_stdin: bool) -> str:
        """Run a cell; returns the reply's body. Runs as the cell: an interrupt can raise anywhere in here."""
        result: ExecutionResult | None = None
        try:
            self._before_cell(allow_stdin)
            result = self.shell.run_cell(code, store_history=store_history and not silent, silent=silent)
            self._after_cell()
            return content_of_reply(self.shell, result)
        except BaseException as e:
            return self._failed(e)

    def _failed(self, error: BaseException) -> str:
        """An exception that came out between the cell's own code and the reply, an interrupt most likely."""
        fields = {"status": "error", "execution_count": self.shell.execution_count - 1, **error_fields(error)}
        _cellgate.publish("error", errors.content(type(error), error, errors.plain_traceback(type(error), error, None)))
        return jsontext.dumps(fields)

    # ---------------------------------------------------------------- requests

    def _run_loop_or_wait(self) -> tuple[int, str, bool, bool, bool] | None:
        loop = self.runner.loop
        if loop.has_work():
            self.runner.run_idle(_cellgate.request_fd())
            return _cellgate.next_request(-1, False)
        request = _cellgate.next_request(loop.poll_fd(), True)
        if request is None:  # something in the loop has become ready
            self.runner.run_idle(_cellgate.request_fd())
        return request

    def _next_request(self) -> tuple[int, str, bool, bool, bool] | None:
        try:
            return self._run_loop_or_wait()
        except BaseException as e:
            lost = self.runner.loop.is_closed() or (isinstance(e, OSError) and e.errno == errno.EBADF)
            if not lost:  # a background task or a signal handler of a cell has raised: not the loop's fault
                traceback.print_exc()
            elif not self.runner.renew():
                return _cellgate.next_request(-1, True)
        return None

    def _serve_one(self) -> None:
        request = self._next_request()
        if request is None:
            return
        cell, code, silent, store_history, allow_stdin = request
        if cell == _SHUTDOWN:
            shut_down()
        _cellgate.run_cell(cell, allow_stdin, lambda: self.execute(code, silent, store_history, allow_stdin))

    def serve(self) -> None:
        """Serve until the process ends."""
        while True:
            try:
                self._serve_one()
            except BaseException:  # whatever a cell has broken: go on
                _cellgate.write_stderr("the kernel could not serve a request:\n" + traceback.format_exc())


def shut_down() -> None:
    """Run the cells' atexit functions, then end. The I/O thread ends the process when they take too long."""
    try:
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    _cellgate.exit(0)


_kernel: Kernel | None = None


def configure(text: str) -> None:
    """First call in a forked kernel.

    `text` is the spec's part for us, a JSON object: session, workspace, env, sandbox, color, python_path.
    """
    global _kernel
    config = json.loads(text)
    _set_environment(config)
    _set_paths(config)
    _reseed()
    _kernel = Kernel(config)
    gc.enable()


def _exit(status: int) -> NoReturn:
    """Exit at once, without cleaning up; what was printed before is sent."""
    _cellgate.exit(status)


def serve() -> None:
    """Second call: tell that we are ready, then serve. Does not return."""
    assert _kernel is not None
    os._exit = _exit
    faulthandler.enable(2)
    _cellgate.ready(jsontext.dumps({"python": sys.version.split()[0], "ipython": IPython.__version__}))
    _kernel.serve()
