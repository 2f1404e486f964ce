"""JSON text that every reader accepts: ASCII, no NaN, no lone surrogates, no NULs."""

from __future__ import annotations

from typing import Any

import _cellgate


def dumps(value: Any) -> str:
    """Encode `value`: bytes as base64 text, NaN and infinities as null, other objects as repr()."""
    return _cellgate.dumps(value)
