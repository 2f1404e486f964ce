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
import web
from cellgate_api import CellgateError, Client
from server_definitions import PYTHON, SERVER, appended, definition, refuse, said, scripts, value


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A program that is in no table."""
    path = tmp_path / "bin" / "launch"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\nexec {PYTHON} {SERVER}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def home_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with Client(log_level=0, no_spare=1) as c:
        yield c


def writable(*folders: str) -> str:
    return json.dumps(web.settings(filesystem={"allowWrite": list(folders)}))


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
            s.add_servers({"s": said(s, {"command": "node", "args": [str(script)]}, own)})
            assert not appended(s, f"own{i}/index.js")


def test_a_link_in_the_working_folder(client: Client, workspace: Path, tmp_path: Path) -> None:
    """With `python -m`, modules are searched there."""
    cwd = tmp_path / "cwd"
    (workspace / "lib").mkdir()
    cwd.mkdir()
    (cwd / "own_module").symlink_to(workspace / "lib")
    shutil.copy(SERVER, cwd / "planted_server.py")
    with client.session(workspace=workspace) as s:
        server = {"command": PYTHON, "args": ["-m", "planted_server"], "cwd": str(cwd)}
        s.add_servers({"s": said(s, server, workspace / "lib")})
        assert not appended(s, "lib/__init__.py")


OTHER_NAMES: list[dict[str, Any]] = [
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
]


def test_code_by_other_names(client: Client, workspace: Path, program: str) -> None:
    shutil.copy(SERVER, workspace / "server.py")
    (workspace / "lib").mkdir()
    with client.session(workspace=workspace) as s:
        for more in OTHER_NAMES:
            text = json.dumps({"command": program, "args": [], **more}).replace("{w}", str(workspace))
            message = refuse(s, json.loads(text))
            assert str(workspace) in message and "would run outside of the sandbox" in message, more


def test_the_home_folder_of_a_user_by_name(client: Client) -> None:
    """As shells read it: ~NAME/folder."""
    user = pwd.getpwuid(os.geteuid())
    if not os.access(user.pw_dir, os.W_OK):
        pytest.skip(f"{user.pw_dir} cannot be written")
    with tempfile.TemporaryDirectory(dir=user.pw_dir) as workspace:
        script = f"cd ~{user.pw_name}/{Path(workspace).name} && exec python3 server.py"
        with client.session(workspace=workspace) as s:
            assert "cells can write there" in refuse(s, {"command": "sh", "args": ["-c", script]})


def test_variables_that_servers_inherit(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", workspace.name)
    script = f"cd {workspace.parent}/$LOGNAME && exec python3 server.py"
    with Client(log_level=0, no_spare=1) as c, c.session(workspace=workspace) as s:
        for _ in range(2):
            assert str(workspace) in refuse(s, {"command": "sh", "args": ["-c", script]})
            script = script.replace("$LOGNAME", "${LOGNAME}")


def test_what_is_no_code(client: Client, workspace: Path, program: str) -> None:
    """Data in options and variables, also in a file with a colon."""
    (workspace / "a:b.txt").touch()
    env = {"PROJECT_DIR": str(workspace), "OUTPUT_FILES": f"{workspace}/out", "SQLITE_DB": f"{workspace}/x.db"}
    args = ["--root", str(workspace), f"--db={workspace}/x.db", f"{workspace}/a:b.txt"]
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, {"command": program, "args": args, "env": env}, workspace, "data")})
        assert appended(s, "a:b.txt")


def test_a_home_folder_that_cells_write(home_client: Client, workspace: Path, tmp_path: Path, program: str) -> None:
    """Settings and caches with which programs start, where settings let cells write in all of it."""
    home, other = tmp_path / "home", tmp_path / "other"
    other.mkdir()
    with home_client.session(workspace=workspace, settings=writable(".", str(home))) as s:
        assert "its home folder is" in refuse(s, {"command": program, "data": [str(home)]})
        s.add_servers({"s": {"command": program, "env": {"HOME": str(other)}}})
        assert appended(s, str(home / 'notes'))


HOME_FOLDERS = [".cache/ms-playwright", ".cache/puppeteer", ".conda", ".docker", ".pnpm-store", "go", ".local/share/uv"]


def test_folders_of_the_home_folder(home_client: Client, workspace: Path, tmp_path: Path, program: str) -> None:
    """The same where settings let cells write in such a folder: it is read-only while a server runs."""
    home = tmp_path / "home"
    folders = [home / name for name in HOME_FOLDERS]
    for f in (*folders, home / "notes"):
        f.mkdir(parents=True)
    # Where .local is, .local/share/uv would prove nothing.
    for opened in (folders, [home / ".local"]):
        roots = [".", *map(str, opened), str(home / "notes")]
        with home_client.session(workspace=workspace, settings=writable(*roots)) as s:
            s.add_servers({"s": {"command": program}})
            for f in opened:
                assert not appended(s, str(f / 'x')), f
            assert appended(s, str(home / 'notes/x'))


def test_a_workspace_among_caches(home_client: Client, tmp_path: Path, program: str) -> None:
    """Nobody can work in a folder that is read-only: the definition says whether programs obey what is there."""
    workspace = tmp_path / "home" / ".cache" / "work"
    workspace.mkdir(parents=True)
    with home_client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, {"command": program}, workspace, "data")})
        assert appended(s, "x")


# ---------------------------------------------------------------- what a definition says


def test_paths_that_code_cannot_name(client: Client, workspace: Path, tmp_path: Path) -> None:
    script = scripts(workspace / "tools")
    (workspace / "link").symlink_to(script.parent)
    (workspace / "server.py").touch()
    with client.session(workspace=workspace) as s:
        for path, why in (
            (workspace, "cells work in"),
            (workspace.parent, "cells work in"),
            (workspace / "server.py", "so would be what it imports"),
            (script, "so would be what it imports"),
            (workspace / "link", "link"),
            ("tools", "absolute"),
        ):
            assert why in refuse(s, definition(script, code=[str(path)])), path


def test_keys_of_another_type(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        for key in ("code", "data"):
            for wrong in ("/a", [1], {"/a": 1}, ["/a"] * 65):
                assert f'"{key}" must be an array' in refuse(s, {**definition(), key: wrong}), wrong


def test_data_is_no_program(client: Client, workspace: Path, program: str) -> None:
    """Nor is it a folder of programs, or a home folder: these are obeyed whatever a definition says."""
    shutil.copy(program, workspace / "launch")
    data = {"data": [str(workspace)]}
    with client.session(workspace=workspace) as s:
        for more in (
            {"command": str(workspace / "launch")},
            {"command": program, "env": {"PATH": f"{workspace}:/usr/bin"}},
            {"command": program, "env": {"HOME": str(workspace)}},
        ):
            assert "cells can write there" in refuse(s, {**more, **data})


def test_data_is_what_its_name_says(client: Client, workspace: Path, tmp_path: Path, program: str) -> None:
    """A link, a name with words of a shell, or a name that is longer leads to nothing else."""
    for name in ("data", "data2"):
        (workspace / name).mkdir()
    (workspace / "data" / "out").symlink_to(workspace / "data2")
    (workspace / "link").symlink_to(workspace / "data")
    strange = workspace / "data" / f"x;cd {workspace}"
    strange.mkdir(parents=True)
    data = {"command": program, "data": [str(workspace / "data")]}
    with client.session(workspace=workspace) as s:
        for path in ("data2", "data/out/x", "data/../data2", "link"):
            assert "cells can write there" in refuse(s, {**data, "args": [str(workspace / path)]}), path
        assert "cells can write there" in refuse(s, {**data, "args": [str(strange)]})
        assert "link" in refuse(s, {"command": program, "data": [str(workspace / "link")]})
        s.add_servers({"s": {**data, "args": [str(workspace / "data" / "new"), f"--db={workspace}/data/x.db"]}})


def test_names_with_spaces(client: Client, workspace: Path, program: str) -> None:
    notes = workspace / "my notes, old"
    notes.mkdir()
    script = scripts(workspace / "my tools")
    with client.session(workspace=workspace) as s:
        s.add_servers({"a": said(s, {"command": program, "args": [str(notes)]}, notes, "data")})
        s.add_servers({"b": said(s, definition(script), script.parent)})


def test_data_in_a_list(client: Client, workspace: Path, program: str) -> None:
    """Each part of a list is judged, also where a path has the list as its name."""
    data, tools = workspace / "data", workspace / "tools"
    scripts(tools)
    said_so = {"data": [str(data)], "code": [str(tools)]}
    for folder in (data, tools):
        (workspace / f"{folder}:{workspace}" / "evil").mkdir(parents=True)
    with client.session(workspace=workspace) as s:
        for text in (f"{data}:{workspace}/evil", f"{tools}:{workspace}/evil", f"{data}/x;cd {workspace}/evil"):
            assert f"{workspace}/evil" in refuse(s, {"command": program, "env": {"LIST": text}, **said_so}), text


def test_code_that_links_into_data(client: Client, workspace: Path) -> None:
    """The workspace as data does not make data of what a program loads from it by a link."""
    script = scripts(workspace / "tools")
    (workspace / "lib").mkdir()
    (script.parent / "lib").symlink_to(workspace / "lib")
    server = definition(script, code=[str(script.parent)], data=[str(workspace)])
    with client.session(workspace=workspace) as s:
        assert str(workspace / "lib") in refuse(s, server)
        s.add_servers({"a": {**server, "data": [str(workspace), str(workspace / "lib")]}})
        assert appended(s, "lib/x.py")
    with client.session(workspace=workspace) as s:
        s.add_servers({"b": {**server, "code": [str(script.parent), str(workspace / "lib")]}})
        assert not appended(s, "lib/x.py")


def test_packages_above_a_script_that_settings_protect(client: Client, workspace: Path) -> None:
    """node looks for them in folders that cells write."""
    scripts(workspace / "tools")
    settings = json.loads(writable("."))
    settings["filesystem"]["denyWrite"] = ["tools"]
    with client.session(workspace=workspace, settings=json.dumps(settings)) as s:
        s.add_servers({"s": definition(workspace / "tools" / "server.py")})
        assert value(s, "import os\nattempt(os.mkdir, 'node_modules')") != "'done'"


def test_a_chain_of_links_through_a_folder_that_settings_protect(
    client: Client, workspace: Path, tmp_path: Path
) -> None:
    script = scripts(tmp_path / "srv")
    (workspace / "fixed").mkdir()
    (workspace / "free").mkdir()
    (script.parent / "lib").symlink_to(workspace / "fixed")
    (workspace / "fixed" / "lib").symlink_to(workspace / "free")
    settings = json.loads(writable("."))
    settings["filesystem"]["denyWrite"] = ["fixed"]
    with client.session(workspace=workspace, settings=json.dumps(settings)) as s:
        assert str(workspace / "free") in refuse(s, definition(script))


def test_a_workspace_that_a_server_of_another_session_works_on(client: Client, tmp_path: Path, program: str) -> None:
    """Its cells would write what that server may load: the definition says that it is data."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    server = {"command": program, "args": [str(second)]}
    with client.session(workspace=first) as a:
        a.add_servers({"s": server})
        with pytest.raises(CellgateError, match='"data"'):
            client.session(workspace=second)
        a.add_servers({"s": {**server, "data": [str(second)]}})
        with client.session(workspace=second) as b:
            assert appended(b, "x")
