"""Tables of cases in data files: JSON, whose cases have names and are in sections.

{"repeated": [[TEXT, TIMES]..]} is a long text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def _text(o: dict[str, Any]) -> Any:
    return "".join(text * times for text, times in o["repeated"]) if "repeated" in o else o


def read_table(file: Path) -> Any:
    return json.loads(file.read_text(), object_hook=_text)


def cases(sections: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """All of them, by name."""
    return {name: case for section in sections.values() for name, case in section.items()}
