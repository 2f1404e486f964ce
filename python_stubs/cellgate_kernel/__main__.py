"""Starts the zygote in a Python wheel: INTERPRETER -I -X utf8 .../cellgate_kernel/__main__.py OPTION...

The interpreter is the one of the kernels' environment, and `_cellgate` is an extension module. What
src/kernel/main.c does before Python runs, is done here: nothing that a cell or the user's
environment can change takes part in the start.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn

_CONTROL_FD = 3
_E_UNSUPPORTED = -10
_STUBS = Path(__file__).resolve().parents[1]


def _fail(message: str) -> NoReturn:
    """Report to the supervisor why there is no zygote, as cg_zygote_send_ready() does."""
    report = {"ready": False, "code": _E_UNSUPPORTED, "message": message}
    socket.socket(fileno=_CONTROL_FD).send(json.dumps(report).encode())
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(1)


def _start() -> None:
    if not (sys.flags.isolated and sys.flags.utf8_mode):
        _fail("the interpreter of kernels must be started with -I -X utf8")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        _fail(f"{sys.executable} is a free-threaded build of Python: choose an environment of a standard build")
    sys.path.append(str(_STUBS))
    try:
        import _cellgate
    except ImportError as e:
        found = [path.name.split(".")[1] for path in _STUBS.glob("_cellgate.*.so")]
        _fail(
            f"{sys.executable} (Python {sys.version_info[0]}.{sys.version_info[1]}) cannot load the kernel's module, "
            f"which is for {' and '.join(found) or 'no version here'}: {e}. "
            "Choose an environment of that version, or install cellgate in this one"
        )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the host handles Ctrl-C at its terminal
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.environ.pop("LC_CTYPE", None)  # the interpreter sets it where there is no locale
    options = sys.argv[1:]
    sys.argv[:] = [""]
    sys.orig_argv.clear()
    _cellgate.zygote(str(_STUBS.parents[2]), options)


_start()
