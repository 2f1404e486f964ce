"""Definitions of MCP servers, and what cells can write meanwhile."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import CellgateError, Session

SERVER = Path(__file__).parent / "api" / "echo_server.py"
PYTHON = "/usr/bin/python3"
ATTEMPT = """
def attempt(f, *a):
    try:
        f(*a)
    except OSError as e:
        return e.strerror
    return "done"

def write(path, text="x"):
    with open(path, "a") as f:
        f.write(text)
"""


def refuse(session: Session, definition: dict[str, Any]) -> str:
    with pytest.raises(CellgateError) as e:
        session.add_servers({"s": definition})
    assert '"s"' in str(e.value)
    return str(e.value)


def said(session: Session, definition: dict[str, Any], path: Path | str, key: str = "code") -> dict[str, Any]:
    """The definition with the line that its refusal names: a path that cells write, and what is there."""
    line = f'"{key}": [{json.dumps(str(path))}]'
    assert line in refuse(session, definition)
    return {**definition, key: [str(path)]}


def definition(script: Path | str = SERVER, **more: Any) -> dict[str, Any]:
    return {"command": PYTHON, "args": [str(script)], **more}


def echo(mark: Path) -> dict[str, Any]:
    """The server "echo", whose tool `danger` leaves its marks in that file."""
    return {"echo": definition(env={"MARK": str(mark)})}


def scripts(folder: Path) -> Path:
    """A folder with a server's script."""
    folder.mkdir(parents=True)
    shutil.copy(SERVER, folder / "server.py")
    return folder / "server.py"


def value(session: Session, code: str) -> Any:
    out = session.run(ATTEMPT + code, lambda _: True)
    assert out.status == "ok", out
    return out.value


def appended(session: Session, path: Path | str) -> bool:
    """A cell can append to that file, or create it."""
    return bool(value(session, f"attempt(write, {str(path)!r})") == "'done'")
