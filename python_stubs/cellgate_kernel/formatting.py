"""What display() and the value of a cell's last expression become: mime bundles, and messages."""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter

import _cellgate
from cellgate_kernel import jsontext

# Types whose only representation is repr(), unless somebody registers a formatter for them.
_PLAIN = (int, str, float, bool, type(None), bytes, complex)


class KernelFormatter(DisplayFormatter):
    """Asks a dozen formatters in turn, except for plain values."""

    # For each formatter: its tables of printers by type and by name, and what the first had for plain types at start.
    _tables: list[tuple[dict[type, Any], dict[tuple[str, str], Any], dict[type, Any]]] | None = None

    def remember_defaults(self) -> None:
        """Note how plain values are printed before any cell can change it."""
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
        return kind is not float or self.formatters["text/plain"].float_format == "%r"  # %precision changes it

    def format(
        self, obj: Any, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (data, metadata), both by mime type."""
        if not include and not exclude and self._is_plain(type(obj)):
            try:
                return {"text/plain": repr(obj)}, {}
            except ValueError:  # an integer too long to print: the formatter says so
                pass
        result: tuple[dict[str, Any], dict[str, Any]] = super().format(obj, include=include, exclude=exclude)
        return result


class KernelDisplayHook(DisplayHook):
    """Sends the value of the last expression as execute_result."""

    shell: Any
    _data: dict[str, Any]
    _metadata: dict[str, Any]

    def quiet(self) -> bool:
        """Whether the cell ends with a semicolon."""
        source = self.shell.running_source
        return ";" in source and bool(self.semicolon_at_end_of_expression(source))

    def start_displayhook(self) -> None:
        self._data, self._metadata = {}, {}

    def write_output_prompt(self) -> None:
        """There is none: the message has the number."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self._data, self._metadata = format_dict, md_dict or {}

    def log_output(self, format_dict: dict[str, Any]) -> None:
        """Outputs are the host's to keep: a copy of each image would fill the kernel."""
        if self.shell.logger.log_output and "text/plain" in format_dict:
            self.shell.logger.log_write(format_dict["text/plain"], "output")

    def finish_displayhook(self) -> None:
        if self._data:
            message = {"execution_count": self.prompt_count, "data": self._data, "metadata": self._metadata}
            self._data, self._metadata = {}, {}
            _cellgate.publish("execute_result", jsontext.dumps(message))
            if self.shell.ast_node_interactivity != "last_expr":  # else the reply follows at once and takes it along
                _cellgate.flush()


class KernelDisplayPublisher(DisplayPublisher):
    """Sends what display() is given."""

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
        """Send a mime bundle; `transient` may have a display_id, which a later `update` names."""
        self._validate_data(data, metadata)
        message = {"data": data, "metadata": metadata or {}, "transient": transient or {}}
        if _cellgate.forked():
            _cellgate.write_stdout(str(data.get("text/plain", "")) + "\n")
        else:
            _cellgate.publish("update_display_data" if update else "display_data", jsontext.dumps(message))

    def clear_output(self, wait: bool = False) -> None:
        """Ask that the cell's output so far be removed; with `wait` when the next output comes."""
        _cellgate.publish("clear_output", jsontext.dumps({"wait": bool(wait)}))
