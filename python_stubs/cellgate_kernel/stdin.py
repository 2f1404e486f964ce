"""input() and getpass(): questions to the host."""

from __future__ import annotations

import builtins
import getpass
from typing import Any

from IPython.core.error import StdinNotImplementedError

import _cellgate
from cellgate_kernel import jsontext

# What a cell is told that may not ask. Jupyter's clients know it in ipykernel's words.
JUPYTER_REFUSAL = "raw_input was called, but this frontend does not support input requests."
refusal = (
    "input is not possible in this cell: nobody is there to answer. Put the value into the code, "
    "or have the host run the cell with allow_stdin."
)


def allowed() -> bool:
    """Whether the cell that this code was started by may ask for input."""
    return _cellgate.may_ask()


def ask(prompt: str, *, password: bool) -> str | None:
    """Ask the host; None for end of file. StdinNotImplementedError where the cell may not ask."""
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
    """Read a line from the host, which does not show it."""
    return _answer(prompt, password=True)


def install() -> None:
    """Replace the functions that would read from a terminal."""
    builtins.input = _input
    getpass.getpass = _getpass
