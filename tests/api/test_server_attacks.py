"""Ways from what cells write to what an MCP server runs: links, objects in files, options, variables, and files in the home folder."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import Client
from server_definitions import PYTHON, SERVER, definition, refuse, scripts, value


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A program that is in no table."""
    path = tmp_path / "bin" / "launch"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\nexec {PYTHON} {SERVER}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def home_client(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    (tmp_path / "home").mkdir()
    os.environ.setdefault("CG_PREFIX", str(prefix))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with Client(log_level=0, no_spare=1) as c:
        yield c


def test_a_link_beside_a_script_that_cells_cannot_write(client: Client, workspace: Path, tmp_path: Path) -> None:
    """A package that is developed in the workspace, and used by a server elsewhere."""
    script = scripts(tmp_path / "tools")
    (workspace / "lib" / "helper").mkdir(parents=True)
    (script.parent / "helper").symlink_to(workspace / "lib" / "helper")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": definition(script)})
        assert value(s, "attempt(write, 'lib/helper/__init__.py')") != "'done'"
        assert value(s, "attempt(write, 'free.py')") == "'done'"


def test_a_linked_node_package(client: Client, workspace: Path, tmp_path: Path) -> None:
    """As `npm link` makes it; and a node_modules above the script that is a link itself."""
    for i, link in enumerate(("srv/node_modules/own", "node_modules")):
        script = tmp_path / f"app{i}" / "srv" / "index.js"
        script.parent.mkdir(parents=True)
        script.write_text(f"require('child_process').spawn({PYTHON!r}, [{str(SERVER)!r}], {{stdio: 'inherit'}})\n")
        at, own = tmp_path / f"app{i}" / link, workspace / f"own{i}"
        at.parent.mkdir(exist_ok=True)
        own.mkdir()
        (own / "package.json").write_text("{}")
        at.symlink_to(own)
        with client.session(workspace=workspace) as s:
            s.add_servers({"s": {"command": "node", "args": [str(script)]}})
            assert value(s, f"attempt(write, 'own{i}/index.js')") != "'done'"


def test_a_link_in_the_working_folder(client: Client, workspace: Path, tmp_path: Path) -> None:
    """With `python -m`, modules are searched there."""
    cwd = tmp_path / "cwd"
    (workspace / "lib").mkdir()
    cwd.mkdir()
    (cwd / "own_module").symlink_to(workspace / "lib")
    shutil.copy(SERVER, cwd / "planted_server.py")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": {"command": PYTHON, "args": ["-m", "planted_server"], "cwd": str(cwd)}})
        assert value(s, "attempt(write, 'lib/__init__.py')") != "'done'"


@pytest.mark.parametrize(
    "more",
    [
        {"args": ["run", "{w}/server.py:mcp"]},
        {"args": ["run", "--app={w}/server.py:mcp"]},
        {"args": ["test", "{w}/server.py::name"]},
        {"args": ["--app-dir", "{w}", "server:app"]},
        {"args": ["--app-dir={w}/not/yet", "server:app"]},
        {"args": ["--chdir", "{w}/lib", "x"]},
        {"args": ["--plugins", "{w}/lib"]},
        {"args": ["--load-extension={w}/lib"]},
        {"command": PYTHON, "args": ["-m", "fastmcp", "run", "{w}/server.py:mcp"]},
        {"command": PYTHON, "args": ["-m", "uvicorn", "--app-dir", "{w}", "x:y"]},
        {"env": {"DB_EXTENSIONS": "{w}/lib"}},
        {"env": {"PROJECT_PLUGINS": "{w}"}},
        {"env": {"MEMORY_MODULE_PATH": "{w}/lib"}},
        {"env": {"OUTPUT_COMMAND": "{w}/lib/run"}},
    ],
)
def test_code_by_other_names(client: Client, workspace: Path, program: str, more: dict[str, Any]) -> None:
    shutil.copy(SERVER, workspace / "server.py")
    (workspace / "lib").mkdir()
    text = json.dumps({"command": program, "args": [], **more}).replace("{w}", str(workspace))
    with client.session(workspace=workspace) as s:
        message = refuse(s, json.loads(text))
        assert str(workspace) in message and "would run outside of the sandbox" in message


def test_the_home_folder_of_a_user_by_name(client: Client) -> None:
    """As shells read it: ~NAME/folder."""
    user = pwd.getpwuid(os.geteuid())
    if not os.access(user.pw_dir, os.W_OK):
        pytest.skip(f"{user.pw_dir} cannot be written")
    with tempfile.TemporaryDirectory(dir=user.pw_dir) as workspace:
        script = f"cd ~{user.pw_name}/{Path(workspace).name} && exec python3 server.py"
        with client.session(workspace=workspace) as s:
            assert "cells can write there" in refuse(s, {"command": "sh", "args": ["-c", script]})


def test_what_is_no_code(client: Client, workspace: Path, program: str) -> None:
    """Data by name, also in a file with a colon; options that say nothing about code."""
    (workspace / "a:b.txt").touch()
    env = {"PROJECT_DIR": str(workspace), "OUTPUT_FILES": f"{workspace}/out", "SQLITE_DB": f"{workspace}/x.db"}
    args = ["--root", str(workspace), f"--db={workspace}/x.db", f"{workspace}/a:b.txt"]
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": {"command": program, "args": args, "env": env}})
        assert value(s, "attempt(write, 'a:b.txt')") == "'done'"


def test_files_of_the_home_folder(home_client: Client, workspace: Path, tmp_path: Path, program: str) -> None:
    """Caches that hold programs, and files with which programs start, where settings let cells write them."""
    home = tmp_path / "home"
    (home / ".cache" / "ms-playwright" / "chromium").mkdir(parents=True)
    settings = {
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": [".", str(home)], "denyWrite": []},
    }
    names = (".cache/ms-playwright/chromium/chrome", ".cache/puppeteer", ".conda", ".docker", ".psqlrc", ".sqliterc", ".pnpm-store", "go")
    with home_client.session(workspace=workspace, settings=json.dumps(settings)) as s:
        s.add_servers({"s": {"command": program}})
        for name in names:
            assert value(s, f"attempt(write, {str(home / name)!r})") != "'done'", name
        assert value(s, f"attempt(write, {str(home / 'notes')!r})") == "'done'"
