"""JSON text that every reader accepts: ASCII, no NaN, no lone surrogates, no NULs."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

# Tokens of ASCII JSON text that matter: an escaped backslash (so that what follows it is no escape), a surrogate pair,
# a surrogate alone, a NUL.
_escapes = re.compile(r"\\\\|\\ud[89ab]..\\ud[c-f]..|(\\ud[89a-f]..|\\u0000)")


def _replace(match: re.Match[str]) -> str:
    return "\\ufffd" if match.group(1) else match.group(0)


def _default(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if hasattr(value, "item") and callable(value.item):  # numpy's scalars
        return value.item()
    return repr(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


_encode = json.JSONEncoder(default=_default, allow_nan=False, separators=(",", ":")).encode


def dumps(value: Any) -> str:
    """Encode `value`; bytes become base64 text, NaN and infinities null, other objects their repr()."""
    try:
        text = _encode(value)
    except (TypeError, ValueError):
        text = json.dumps(_finite(value), default=_default, skipkeys=True, separators=(",", ":"))
    if "\\ud" in text or "\\u0000" in text:
        text = _escapes.sub(_replace, text)
    return text
