"""pdb in cells: IPython's debugger, which an interrupt ends.

The standard library's pdb would show its prompt again. In a notebook the cell goes on without the
debugger, as with ipykernel; an agent's cell ends, as its host wanted. After `continue` an interrupt
always interrupts the cell.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import pdb
from typing import Any

from IPython.core import debugger

import _cellgate
from cellgate_kernel.shell import ZMQInteractiveShell

# Modules in which a step out of the cell or over its last expression must not stop.
_NOT_THE_USERS = ("cellgate_kernel.*", "IPython.core.displayhook", "IPython.core.interactiveshell")


class CellPdb(debugger.InterruptiblePdb):
    """Ends the cell, which would go on with IPython's own exception."""

    _interrupted = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.skip = {*(self.skip or ()), *_NOT_THE_USERS}
        # Without pdb's SIGINT handler, which `continue` would install: it stops in the debugger even
        # after the cell's end.
        self.nosigint = True

    def setup(self, *args: Any) -> Any:
        done = super().setup(*args)
        if done:  # set by commands of .pdbrc
            self._interrupted = False
        return done

    def cmdloop(self, intro: Any = None) -> Any:
        result = super().cmdloop(intro)
        self._interrupted = False
        return result

    def interaction(self, *args: Any, **options: Any) -> None:
        self._interrupted = True  # IPython drops a KeyboardInterrupt
        super().interaction(*args, **options)
        if self._interrupted and not ZMQInteractiveShell.instance().for_notebook:
            raise KeyboardInterrupt
        if self._interrupted:
            _cellgate.goes_on()


def install() -> None:
    """Install it for breakpoint(), pdb.set_trace() and %debug. Called once, by late.py."""
    debugger.Pdb = pdb.Pdb = CellPdb  # type: ignore[misc]
    pdb.set_trace = debugger.set_trace
