"""input() and getpass(), which ask the host."""

from __future__ import annotations

import builtins
import getpass
from typing import Any

from IPython.core.error import StdinNotImplementedError

import _cellgate
from cellgate_kernel import jsontext

# Errors of cells that may not ask; Jupyter clients know the text of ipykernel.
JUPYTER_REFUSAL = "raw_input was called, but this frontend does not support input requests."
refusal = (
    "input is not possible in this cell: nobody is there to answer. Put the value into the code, "
    "or have the host run the cell with allow_stdin."
)


def allowed() -> bool:
    """True if the cell that started this code may ask for input."""
    return _cellgate.may_ask()


def ask(prompt: str, *, password: bool) -> str | None:
    """Ask the host; None: end of file. StdinNotImplementedError: the cell may not ask."""
    if not allowed():
        raise StdinNotImplementedError(refusal)
    return _cellgate.input(jsontext.dumps({"prompt": prompt, "password": password}))


def _answer(prompt: object, *, password: bool) -> str:
    line = ask(str(prompt), password=password)
    if line is None:
        raise EOFError("end of input")
    return line


def _input(prompt: object = "", /) -> str:
    """Read a line from the host."""
    return _answer(prompt, password=False)


def _getpass(prompt: object = "Password: ", stream: Any = None, **_options: Any) -> str:
    """Read a line from the host without echo."""
    return _answer(prompt, password=True)


def install() -> None:
    """Replace the functions that read from a terminal."""
    builtins.input = _input
    getpass.getpass = _getpass
