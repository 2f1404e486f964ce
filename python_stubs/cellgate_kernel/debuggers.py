"""The pdb of cells: IPython's, which an interrupt leaves together with the cell.

The standard library's asks its next question after an interrupt, and a cell at its prompt could not be ended.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import pdb
from typing import Any

from IPython.core import debugger

# A step out of a cell, or over its last expression, would stop there.
_NOT_THE_USERS = ("cellgate_kernel.*", "IPython.core.displayhook", "IPython.core.interactiveshell")


class CellPdb(debugger.InterruptiblePdb):
    """Ends the cell, where IPython's would let it go on: that is what an interrupt is for."""

    _interrupted = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.skip = {*(self.skip or ()), *_NOT_THE_USERS}

    def cmdloop(self, intro: Any = None) -> Any:
        try:
            return super().cmdloop(intro)
        except KeyboardInterrupt:
            self._interrupted = True
            raise

    def interaction(self, *args: Any, **options: Any) -> None:
        self._interrupted = False
        super().interaction(*args, **options)
        if self._interrupted:
            raise KeyboardInterrupt


def install() -> None:
    """Put it in place for breakpoint(), pdb.set_trace() and %debug. Once, in the zygote."""
    debugger.Pdb = pdb.Pdb = CellPdb  # type: ignore[misc]
    pdb.set_trace = debugger.set_trace
