"""Mime bundles and messages of display() and of the value of a cell's last expression."""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from IPython.core import display, pylabtools
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter

import _cellgate
from cellgate_kernel import parents, plaintext

# Types whose only representation is repr(), unless a formatter is registered for them.
_PLAIN = (int, str, float, bool, type(None), bytes, complex)


# Most characters of an output that the history keeps for history_request.
_MAX_REMEMBERED = 4096


class Hooks(threading.local):
    """Functions that can change or drop the messages of a thread before they are sent."""

    def __init__(self) -> None:
        self.functions: list[Callable[[dict[str, Any]], dict[str, Any] | None]] = []

    def register(self, hook: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        """Add a hook, which returns the message to send, or None for none."""
        self.functions.append(hook)

    def unregister(self, hook: Callable[[dict[str, Any]], dict[str, Any] | None]) -> bool:
        """Remove a hook; False if it was not added."""
        try:
            self.functions.remove(hook)
        except ValueError:
            return False
        return True

    def send(self, shell: Any, kind: str, content: dict[str, Any]) -> None:
        """Send a message after calling the hooks."""
        if not self.functions or shell.kernel is None:
            _cellgate.publish(kind, content)
            return
        session = shell.kernel.session
        message: dict[str, Any] | None = session.msg(kind, content, parent=shell.get_parent())
        for hook in list(self.functions):
            message = hook(message) if message is not None else None
        if message is not None:
            session.send(shell.kernel.iopub_socket, message)


class KernelFormatter(DisplayFormatter):
    """DisplayFormatter that does not call all formatters for plain values."""

    # Each formatter's printers by type and by name, and its initial printers of plain types.
    _tables: list[tuple[dict[type, Any], dict[tuple[str, str], Any], dict[type, Any]]] | None = None

    def remember_defaults(self) -> None:
        """Remember how plain values are printed, before a cell can change that."""
        formatters = [*self.formatters.values(), self.mimebundle_formatter, self.ipython_display_formatter]
        self._tables = [
            (f.type_printers, f.deferred_printers, {t: f.type_printers.get(t) for t in _PLAIN}) for f in formatters
        ]

    def _is_plain(self, kind: type) -> bool:
        if kind not in _PLAIN or self._tables is None or len(self.formatters) != len(self._tables) - 2:
            return False
        name = (kind.__module__, kind.__name__)
        for by_type, by_name, defaults in self._tables:
            if by_type.get(kind) is not defaults[kind] or name in by_name:
                return False
        return kind is not float or self.formatters["text/plain"].float_format == "%r"  # changed by %precision

    def format(
        self, obj: Any, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (data, metadata), both by mime type."""
        if not include and not exclude and self._is_plain(type(obj)):
            try:
                return {"text/plain": repr(obj)}, {}
            except ValueError:  # an integer too long to print: the formatter reports that
                pass
        result: tuple[dict[str, Any], dict[str, Any]] = super().format(obj, include=include, exclude=exclude)
        return result


class _Result(threading.local):
    """The value that is being displayed, per thread."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.showing = False


class KernelDisplayHook(DisplayHook):
    """Sends the value of the last expression as execute_result."""

    set_parent = staticmethod(parents.set_parent)
    set_thread_parent = staticmethod(parents.set_thread_parent)
    reset_thread_parent = staticmethod(parents.reset_thread_parent)

    shell: Any
    hooks: Hooks

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._local = _Result()
        self.hooks = Hooks()
        self.register_hook = self.hooks.register
        self.unregister_hook = self.hooks.unregister

    def __call__(self, result: Any = None) -> None:
        self._local.showing = True
        try:
            super().__call__(result)
        finally:
            self._local.showing = False

    @property
    def showing(self) -> bool:
        """True while a result is being formatted in this thread."""
        return self._local.showing

    @property
    def prompt_count(self) -> int:
        """The cell's number. IPython has the previous one's if this one does not count."""
        return int(self.shell.local.number)

    def quiet(self) -> bool:
        """True if the cell ends with a semicolon."""
        source = self.shell.local.source
        return ";" in source and bool(self.semicolon_at_end_of_expression(source))

    def start_displayhook(self) -> None:
        self._local.data, self._local.metadata = {}, {}

    def write_output_prompt(self) -> None:
        """No prompt is written: the message contains the number."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self._local.data, self._local.metadata = format_dict, md_dict or {}

    def log_output(self, format_dict: dict[str, Any]) -> None:
        """Keep the start of the text for the history; the host keeps the whole output."""
        text = format_dict.get("text/plain")
        if text is None:
            return
        if self.shell.logger.log_output:
            self.shell.logger.log_write(text, "output")
        if self.shell.local.stored:
            self.shell.history_manager.output_hist_reprs[self.prompt_count] = text[:_MAX_REMEMBERED]

    def finish_displayhook(self) -> None:
        local = self._local
        if local.data:
            data = local.data if self.shell.for_notebook else plaintext.readable(local.data)
            message = {"execution_count": self.prompt_count, "data": data, "metadata": local.metadata}
            local.data, local.metadata = {}, {}
            self.hooks.send(self.shell, "execute_result", message)
            if self.shell.ast_node_interactivity != "last_expr":  # else the reply follows and sends it too
                _cellgate.flush()


class KernelDisplayPublisher(DisplayPublisher):
    """Sends the mime bundles of display()."""

    set_parent = staticmethod(parents.set_parent)
    set_thread_parent = staticmethod(parents.set_thread_parent)
    reset_thread_parent = staticmethod(parents.reset_thread_parent)

    hooks: Hooks

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.hooks = Hooks()
        self.register_hook = self.hooks.register
        self.unregister_hook = self.hooks.unregister

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: Any = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_options: Any,
    ) -> None:
        """Send a mime bundle; `transient` may have a display_id for a later `update`."""
        self._validate_data(data, metadata)
        if not self.shell.for_notebook:
            data = plaintext.readable(data)
        message = {"data": data, "metadata": metadata or {}, "transient": transient or {}}
        if _cellgate.forked():
            _cellgate.write_stdout(str(data.get("text/plain", "")) + "\n")
        else:
            self.hooks.send(self.shell, "update_display_data" if update else "display_data", message)

    def clear_output(self, wait: bool = False) -> None:
        """Clear the cell's output; with `wait`, when the next output arrives."""
        self.hooks.send(self.shell, "clear_output", {"wait": bool(wait)})


def install() -> None:
    """Make IPython encode images with _cellgate.b2a_base64(), which is many times as fast."""
    for module in (display, pylabtools):
        module.b2a_base64 = _cellgate.b2a_base64  # type: ignore[attr-defined]
