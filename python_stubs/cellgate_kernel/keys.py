"""The keys that there are, where a cell has asked a dict or a table for one that there is not."""

from __future__ import annotations

import ast
import itertools
import linecache
from types import FrameType, TracebackType
from typing import Any

from cellgate_kernel import errors

_MAX_NAMES = 1_000
_MAX_SHOWN = 300


def explain(value: BaseException) -> list[str]:
    """A line for a KeyError, or none."""
    if not isinstance(value, KeyError) or len(value.args) != 1 or value.__traceback__ is None:
        return []
    names = _names(_asked(value.__traceback__))
    if not names:
        return []
    import difflib  # half a millisecond of a first kernel's start

    near = difflib.get_close_matches(str(value.args[0]), map(str, names), 1, 0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(map(repr, names[:50]))
    return [f"{hint}Keys: {shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + '...'}"]


def _asked(tb: TracebackType) -> Any:
    """The object in the last frame of the user's code that was asked: d of d[key], and of d.method(key)."""
    own: TracebackType | None = None
    link: TracebackType | None = tb
    while link is not None:
        own = own if errors.is_library(link.tb_frame) else link
        link = link.tb_next
    if own is None:
        return None
    code = own.tb_frame.f_code
    place = next(itertools.islice(code.co_positions(), own.tb_lasti // 2, None), (None, None, None, None))
    first, last, start, end = place
    if first is None or first != last:
        return None
    line = linecache.getline(code.co_filename, first, own.tb_frame.f_globals)
    node = ast.parse(line.encode()[start:end].decode().strip(), mode="eval").body
    if isinstance(node, ast.Subscript):
        return _value(node.value, own.tb_frame)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _value(node.func.value, own.tb_frame)
    return None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name, or of an item of one; no code of the cell runs."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        of = _value(node.value, frame)
        if isinstance(of, dict):
            return dict.get(of, node.slice.value)
        if type(of) is list and type(node.slice.value) is int and node.slice.value < len(of):
            return of[node.slice.value]
    return None


def _names(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(itertools.islice(dict.keys(value), _MAX_NAMES))
    if type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns"):
        return list(value.columns[:_MAX_NAMES])
    return []
