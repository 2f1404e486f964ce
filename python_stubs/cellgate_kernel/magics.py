"""Magics that need a terminal or a network, as a kernel in a sandbox has them."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from IPython.core import page
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

# Commands of pip that do not ask the network.
_LOCAL_PIP = {
    "list",
    "show",
    "freeze",
    "check",
    "config",
    "debug",
    "help",
    "inspect",
    "cache",
    "hash",
    "completion",
    "",
}


def _show(path: str) -> None:
    with open(path, encoding="utf-8", errors="replace") as f:
        page.page(f.read())


@magics_class
class KernelMagics(Magics):
    """Replacements for IPython's magics of the same names."""

    shell: Any
    sandboxed = True

    @line_magic
    def pip(self, line: str) -> None:
        """Run pip for the interpreter of this kernel."""
        words = [w for w in line.split() if not w.startswith("-")]
        command = words[0] if words else ""
        if self.sandboxed and command not in _LOCAL_PIP:
            raise UsageError(
                f"%pip {command}: this kernel has no network and its packages are read-only. "
                "Ask the host application to install what you need (over MCP: the tool install_package), "
                "or do without it: %pip list shows what is there."
            )
        self.shell.system(f"{shlex.quote(sys.executable)} -m pip {line}")

    @line_magic
    def edit(self, line: str) -> None:
        """There is no editor here."""
        raise UsageError("%edit: there is no editor in this kernel. Write files with %%writefile or Python.")

    @line_magic
    def less(self, line: str) -> None:
        """Show a file."""
        _show(line.strip())

    @line_magic
    def more(self, line: str) -> None:
        """Show a file."""
        _show(line.strip())

    @line_magic
    def clear(self, line: str) -> None:
        """Clear the cell's output."""
        self.shell.display_pub.clear_output()
