"""Magics of ipykernel, and replacements for magics that need a terminal or a network."""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import os
import shlex
import sys
import threading
from typing import Any

from IPython.core import page
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.display import Javascript, display

from cellgate_kernel import missing

# Commands of pip that need no network.
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


def _show(shell: Any, line: str) -> None:
    path = os.path.expanduser(line.strip())
    if not path:
        raise UsageError("say which file to show")
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    if path.endswith(".py") and shell.colors.lower() != "nocolor":
        text = shell.pycolorize(text)
    page.page(text)


@magics_class
class KernelMagics(Magics):
    """Magics of ipykernel, and replacements for IPython's magics of the same names."""

    shell: Any
    sandboxed = True

    @line_magic
    def pip(self, line: str) -> None:
        """Run pip for the interpreter of this kernel."""
        words = [w for w in line.split() if not w.startswith("-")]
        command = words[0] if words else ""
        if self.sandboxed and command not in _LOCAL_PIP:
            how = missing.how("PACKAGE", self.shell.front, True, self.shell.environment)
            raise UsageError(
                f"%pip {command}: this kernel's packages are read-only. To install one: {how}. "
                "%pip list shows what is there."
            )
        self.shell.system(f"{shlex.quote(sys.executable)} -m pip {line}")

    @line_magic
    def tb(self, line: str) -> None:
        """Show the last traceback, with all of its frames. `%tb MODE`: as after %xmode MODE."""
        own: Any = self.shell.magics_manager.registry["ExecutionMagics"]
        self.shell.whole_traceback = True
        try:
            own.tb(line)
        finally:
            self.shell.whole_traceback = False

    @line_magic
    def edit(self, line: str) -> None:
        """Open a file, or where a thing is defined, in the front-end's editor."""
        if not self.shell.for_notebook:
            raise UsageError("%edit: there is no editor in this kernel. Write files with %%writefile or Python.")
        from IPython.core.magics.code import CodeMagics, InteractivelyDefined, MacroToEdit

        opts, args = self.parse_options(line, "prn:")
        try:
            filename, number, _ = CodeMagics._find_edit_target(self.shell, args, opts, ["", ""])
        except MacroToEdit:
            raise UsageError("%edit: macros cannot be edited here") from None
        except InteractivelyDefined as e:
            raise UsageError(f"%edit: that was defined in the cell [{e.index}]") from None
        if filename is not None:
            payload = {"source": "edit_magic", "filename": os.path.abspath(filename), "line_number": number}
            self.shell.write_payload(payload)

    @line_magic
    def less(self, line: str) -> None:
        """Show a file."""
        _show(self.shell, line)

    @line_magic
    def more(self, line: str) -> None:
        """Show a file."""
        _show(self.shell, line)

    @line_magic
    def man(self, line: str) -> None:
        """Show a manual page."""
        if not line.strip():
            raise UsageError("say which manual page to show")
        text = self.shell.getoutput(f"MANPAGER=cat MAN_KEEP_FORMATTING=0 man {line} | col -b", split=False)
        page.page(text)

    @line_magic
    def clear(self, line: str) -> None:
        """Clear the cell's output."""
        self.shell.display_pub.clear_output()

    @line_magic("config")  # type: ignore[arg-type]  # its annotation knows only the form without a name
    def configure(self, line: str) -> Any:
        """Show or set IPython's options, also those of InlineBackend before the first figure."""
        if line.strip().startswith("InlineBackend"):
            _know_inline_backend(self.shell)
        from IPython.core.magics.config import ConfigMagics

        _ = self.shell.Completer  # has options, and is made when it is first used
        magics: Any = ConfigMagics(self.shell)
        return magics.magics["line"]["config"](line)  # the attribute "config" is another object

    @line_magic
    def autosave(self, line: str) -> None:
        """Set how often a notebook is saved, in seconds; 0 for never."""
        try:
            seconds = int(line)
        except ValueError:
            raise UsageError(f"%autosave wants a number of seconds, got {line!r}") from None
        script = Javascript(f"IPython.notebook.set_autosave_interval({seconds * 1000})")
        display(script, include=["application/javascript"])
        print(f"Autosaving every {seconds} seconds" if seconds else "Autosave disabled")

    @line_magic
    def subshell(self, line: str) -> None:
        """Show the subshell of this cell and all subshells."""
        kernel = self.shell.kernel.cellgate
        worker = kernel.worker()
        print(f"subshell id: {worker.name or None}")
        print(f"thread id: {threading.get_ident()}")
        print(f"main thread id: {threading.main_thread().ident}")
        print(f"pid: {os.getpid()}")
        print(f"subshell list: {[w.name for w in kernel.workers.values() if w.name]}")

    @line_magic
    def connect_info(self, line: str) -> None:
        """Show how to connect another client to this kernel."""
        raise UsageError(
            "%connect_info: this kernel knows no connection file, and cannot be connected to from inside. "
            "Whoever started it knows: `cellgate jupyter attach SESSION`, or the program that runs the notebook."
        )

    @line_magic
    def qtconsole(self, line: str) -> None:
        """Open a console on this kernel."""
        raise UsageError(
            "%qtconsole: a kernel has no display. Start `jupyter console --existing` where the notebook runs."
        )


def _know_inline_backend(shell: Any) -> None:
    from matplotlib_inline.config import InlineBackend

    backend = InlineBackend.instance(parent=shell)
    if backend not in shell.configurables:
        backend.shell = shell
        shell.configurables.append(backend)
