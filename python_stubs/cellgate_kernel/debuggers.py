"""The pdb of cells: IPython's, which an interrupt ends.

The standard library's asks its next question after an interrupt. In a notebook the cell goes on without the debugger,
as with ipykernel; an agent's cell ends: that is what its host's interrupt is for. After `continue` an interrupt is the
cell's in both.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import pdb
from typing import Any

from IPython.core import debugger

import _cellgate

# A step out of a cell, or over its last expression, would stop there.
_NOT_THE_USERS = ("cellgate_kernel.*", "IPython.core.displayhook", "IPython.core.interactiveshell")


class CellPdb(debugger.InterruptiblePdb):
    """Ends the cell, where IPython's would let it go on."""

    ends_cell = True

    _interrupted = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.skip = {*(self.skip or ()), *_NOT_THE_USERS}
        # pdb's handler of SIGINT, which `continue` would put in place of the kernel's, stops in the debugger, also when
        # the cell has come to its end; and the kernel repeats an interrupt until its own handler has run.
        self.nosigint = True

    def setup(self, *args: Any) -> Any:
        done = super().setup(*args)
        if done:  # by commands of .pdbrc
            self._interrupted = False
        return done

    def cmdloop(self, intro: Any = None) -> Any:
        result = super().cmdloop(intro)
        self._interrupted = False
        return result

    def interaction(self, *args: Any, **options: Any) -> None:
        self._interrupted = True  # unless it comes to its end: IPython drops a KeyboardInterrupt
        super().interaction(*args, **options)
        if self._interrupted and self.ends_cell:
            raise KeyboardInterrupt
        if self._interrupted:
            _cellgate.goes_on()


def install() -> None:
    """Put it in place for breakpoint(), pdb.set_trace() and %debug. Once, in the zygote."""
    debugger.Pdb = pdb.Pdb = CellPdb  # type: ignore[misc]
    pdb.set_trace = debugger.set_trace
