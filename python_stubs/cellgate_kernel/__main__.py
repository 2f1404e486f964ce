"""Starts the zygote in a Python wheel: INTERPRETER -I -X utf8 .../cellgate_kernel/__main__.py OPTION...

The interpreter is the one of the kernels' environment, and `_cellgate` is an extension module. What
src/kernel/main.c does before Python runs, is done here: nothing that a cell or the user's
environment can change takes part in the start.
"""

# Nothing else is imported before paths.check(): sys.path may have a folder that cells write.
import os
import sys

_CONTROL_FD = 3
_E_UNSUPPORTED = -10
_STUBS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def _fail(message: str) -> None:
    """Report to the supervisor why there is no zygote, as cg_zygote_send_ready() does. Ends the process."""
    import json
    import socket

    report = {"ready": False, "code": _E_UNSUPPORTED, "message": message}
    socket.socket(fileno=_CONTROL_FD).send(json.dumps(report).encode())
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(1)


def _start() -> None:
    if not (sys.flags.isolated and sys.flags.utf8_mode):
        _fail("the interpreter of kernels must be started with -I -X utf8")
    sys.path.insert(0, _STUBS)
    from cellgate_kernel import paths

    try:
        paths.check()
    except ImportError as e:
        _fail(str(e))
    import signal
    import sysconfig

    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        _fail(f"{sys.executable} is a free-threaded build of Python: choose an environment of a standard build")
    try:
        import _cellgate
    except ImportError as e:
        found = [name.split(".")[1] for name in os.listdir(_STUBS) if name.startswith("_cellgate.")]
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
    _cellgate.zygote(options)


_start()
