"""MCP servers run outside of the sandbox: nothing that a cell can write may be what a server loads."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import web
from cellgate_api import CellgateError, Client
from mcp_http_server import Server
from processes import by_age, children, eventually, words
from server_definitions import PYTHON, SERVER, appended, definition, refuse, said, scripts, value

PLANTED = "import pathlib; pathlib.Path({mark!r}).write_text('ran')\n"


# ---------------------------------------------------------------- where a server starts


@pytest.mark.parametrize("restart", [False, True])
def test_a_module_in_the_workspace_is_not_imported(
    client: Client, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    """With `python -m`, modules are searched in the current folder first."""
    monkeypatch.chdir(workspace)
    mark, lib = tmp_path / "mark", tmp_path / "lib"
    lib.mkdir()
    shutil.copy(SERVER, lib / "planted_server.py")
    server = {"command": PYTHON, "args": ["-m", "planted_server"], "env": {"PYTHONPATH": str(lib)}}
    with client.session(workspace=workspace) as s:
        if restart:
            s.add_servers({"s": server})
        for name in ("json.py", "planted_server.py"):
            text = PLANTED.format(mark=str(mark))
            assert s.run(f"open({name!r}, 'w').write({text!r})").status == "ok"
        if restart:
            s.run("from mcptools.s import die\ndie.run()", lambda _: True)
        else:
            s.add_servers({"s": server})
        assert value(s, "from mcptools.s import echo\nstr(echo.run(text='hello'))") == "'hello'"
    assert not mark.exists()


def test_the_folder_is_private(client: Client, workspace: Path, tmp_path: Path) -> None:
    script = scripts(tmp_path / "lib")
    text = SERVER.read_text().replace('str(os.environ.get(args["name"]))', "os.getcwd()")
    script.write_text(text)
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": definition(script), "t": definition(script)})
        a, b = (Path(value(s, f"from mcptools.{n} import env\nstr(env.run(name='x'))").strip("'")) for n in "st")
        assert a != b and a.is_dir() and a.stat().st_mode & 0o77 == 0
        assert not appended(s, str(a / 'json.py'))
        assert value(s, f"import os; os.path.exists({str(a)!r})") == "False"
    # The folder ends with the session, whose end nothing waits for.


def test_a_cwd_that_cells_write_is_refused(client: Client, workspace: Path, tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", tmp_path / "link"
    outside.mkdir()
    link.symlink_to(workspace)
    (workspace / "sub").mkdir()
    with client.session(workspace=workspace) as s:
        for cwd in (workspace, workspace / "sub", workspace / "absent", link, outside / ".." / workspace.name):
            assert "cwd" in refuse(s, definition(cwd=str(cwd)))
        assert "cwd" in refuse(s, definition(cwd=str(tmp_path)))  # it contains the workspace
        assert "absolute" in refuse(s, definition(cwd="sub"))
        s.add_servers({"s": definition(cwd=str(outside))})


def test_a_cwd_that_is_the_folder_of_the_script(client: Client, workspace: Path) -> None:
    """It is read-only by then. What relative names lead to from there is looked at as well."""
    tools = scripts(workspace / "tools").parent
    (workspace / "flat.py").touch()
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, definition(tools / "server.py", cwd=str(tools)), tools)})
        for args in (["-m", "server"], ["server.py"], [f"{tools}/server.py"]):
            here = {"command": PYTHON, "args": args, "cwd": str(workspace), "code": [str(tools)]}
            assert '("cwd")' in refuse(s, here)
    with client.session(workspace=workspace) as s:
        more = {"command": "sh", "args": [f"{tools}/server.py", "../flat.py"], "cwd": str(tools)}
        assert "flat.py" in refuse(s, {**more, "code": [str(tools)]})


def test_a_link_that_a_cell_made_is_no_way_around(client: Client, workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with client.session(workspace=workspace) as s:
        s.run(f"import os; os.symlink({str(outside)!r}, 'l')")
        assert "cwd" in refuse(s, definition(cwd=str(workspace / "l")))


NAMED: list[dict[str, Any]] = [
    {"env": {"PYTHONPATH": "{w}"}},
    {"env": {"PYTHONPATH": "/usr/share:{w}/not/yet"}},
    {"env": {"PYTHONHOME": "{w}"}},
    {"env": {"NODE_OPTIONS": "--require {w}/x.js"}},
    {"env": {"LD_PRELOAD": "{w}/x.so"}},
    {"env": {"RUBYOPT": "-r{w}/x"}},
    {"env": {"BASH_ENV": "{w}/x"}},
    {"env": {"npm_config_cache": "{w}/c"}},
    {"env": {"UV_CACHE_DIR": "{w}/c"}},
    {"env": {"XDG_CONFIG_HOME": "{w}"}},
    {"env": {"HOME": "{w}"}},
    {"env": {"MY_PLUGINS": "file://{w}/p"}},
    {"env": {"PATH": "{w}:/usr/bin"}},
    {"args": ["-c", "exec(open('{w}/x.py').read())"]},
    {"args": ["{w}/server.py"]},
    {"args": ["{w}/absent/server.py"]},
    {"args": ["{w}"]},
    {"args": ["-X", "pycache_prefix={w}/c", "-m", "http"]},
    {"command": "{w}/server.py"},
    {"command": "{w}/absent"},
    {"command": "sh", "args": ["-c", "cd '{w}' && python3 server.py"]},
    {"command": "sh", "args": ["-c", "cd $PROJECT && python3 server.py"], "env": {"PROJECT": "{w}"}},
    {"command": "sh", "args": ["-c", "exec python3 $PROJECT/server.py"], "env": {"PROJECT": "{w}"}},
    {"command": "env", "args": ["PYTHONPATH={w}", "python3", "-m", "x"]},
    {"command": "env", "args": ["-C", "{w}", "python3", "-m", "x"]},
    {"command": "npx", "args": ["--prefix", "{w}", "x"]},
    {"command": "npx", "args": ["-y", "{w}"]},
    {"command": "uv", "args": ["--directory", "{w}", "run", "server.py"]},
    {"command": "uv", "args": ["run", "--project={w}", "x"]},
    {"command": "uv", "args": ["run", "python", "{w}/server.py"]},
    {"command": "node", "args": ["--import=file://{w}/x.mjs", "/opt/x.js"]},
    {"command": "node", "args": ["-r", "{w}/x.js", "/opt/x.js"]},
    {"command": "make", "args": ["-C", "{w}", "serve"]},
    {"command": "java", "args": ["-cp", "/opt/a.jar:{w}/classes", "Main"]},
    {"command": "ruby", "args": ["-I{w}/lib", "-e", "1"]},
]


def test_what_leads_to_where_cells_write_is_named(client: Client, workspace: Path) -> None:
    shutil.copy(SERVER, workspace / "server.py")
    (workspace / "server.py").chmod(0o755)
    with client.session(workspace=workspace) as s:
        for more in NAMED:
            text = json.dumps({"command": PYTHON, "args": [str(SERVER)], **more}).replace("{w}", str(workspace))
            message = refuse(s, json.loads(text))
            assert str(workspace) in message, more
            assert "sandbox" in message and "denyWrite" in message, more


def test_what_a_server_works_on_is_no_code(client: Client, workspace: Path) -> None:
    """What the definition says is data stays writable."""
    (workspace / "notes.sqlite").touch()
    env = {"MEMORY_FILE_PATH": f"{workspace}/m.json", "WORKSPACE_DIR": str(workspace)}
    with client.session(workspace=workspace) as s:
        args = [str(SERVER), str(workspace), "--db", f"{workspace}/notes.sqlite", f"--out={workspace}/new"]
        s.add_servers({"s": said(s, {"command": PYTHON, "args": args, "env": env}, workspace, "data")})
        assert appended(s, "notes.sqlite")


def test_relative_names_are_told(client: Client, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(SERVER, workspace / "server.py")
    with client.session(workspace=workspace) as s:
        message = refuse(s, {"command": PYTHON, "args": ["server.py"]})
        assert "whole path" in message and str(workspace / "server.py") in message
        assert "relative" in refuse(s, {"command": "./server.py"})


def test_inherited_path(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that a cell puts into a folder of PATH does not take the place of the one that is meant."""
    mark, own = tmp_path / "mark", workspace / "venv" / "bin"
    own.mkdir(parents=True)
    good = tmp_path / "bin" / "my-server"
    good.parent.mkdir()
    good.write_text(f"#!/bin/sh\nexec {PYTHON} {SERVER}\n")
    good.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}:.::{good.parent}:{os.environ['PATH']}")
    settings = web.settings(cellgate={"writableNames": ["venv/bin"]})
    with Client(log_level=0, no_spare=1) as c, c.session(workspace=workspace, settings=settings) as s:
        for name in ("my-server", "python3", "sh"):
            s.run(
                f"p = {str(own / name)!r}\nopen(p, 'w').write('#!/bin/sh\\ntouch {mark}')\nimport os; os.chmod(p, 0o755)"
            )
            assert (own / name).exists()
        s.add_servers({"s": {"command": "my-server"}})
        out = s.run("from mcptools.s import env\nstr(env.run(name='PATH'))", lambda _: True)
        entries = out.value.strip("'").split(":")
        assert str(own) not in entries and str(good.parent) in entries and "" not in entries and "." not in entries
    assert not mark.exists()


def test_the_path_of_a_server_that_runs(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the folders that cells of a later session could write: these are read-only for them."""
    own, other = workspace / "venv" / "bin", tmp_path / "other"
    own.mkdir(parents=True)
    other.mkdir()
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    settings = web.settings(cellgate={"writableNames": ["venv/bin"]})
    with Client(log_level=0, no_spare=1) as c, c.session(workspace=other) as first:
        first.add_servers({"s": definition()})
        out = first.run("from mcptools.s import env\nstr(env.run(name='PATH'))", lambda _: True)
        assert out.value.startswith(f"'{own}:")
        with c.session(workspace=workspace, settings=settings) as s:
            assert appended(s, "venv/free")
            assert not appended(s, own / "sh")


@pytest.mark.parametrize(("name", "file"), [("SHELL", "tools/sh"), ("TMPDIR", "tools")])
def test_variables_of_a_server_that_runs(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    """A program that it starts, and the folder of its own files: as with its PATH."""
    other = tmp_path / "other"
    (workspace / "tools").mkdir()
    (workspace / "tools" / "sh").write_text("")
    other.mkdir()
    monkeypatch.setenv(name, str(workspace / file))
    with Client(log_level=0, no_spare=1) as c, c.session(workspace=other) as first:
        first.add_servers({"s": definition()})
        out = first.run(f"from mcptools.s import env\nstr(env.run(name={name!r}))", lambda _: True)
        assert out.value == f"'{workspace / file}'"
        with c.session(workspace=workspace) as s:
            assert appended(s, "free")
            assert not appended(s, "tools/sh")


def test_a_file_that_variables_no_longer_protect(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server reads git's settings; a session that was started ahead is opened without their variable."""
    config, other = workspace / "gitconfig", tmp_path / "other"
    config.write_text("")
    other.mkdir()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    with Client(log_level=0) as c, c.session(workspace=other) as first:
        first.add_servers({"s": definition(env={"CONF": str(config)})})
        with c.session(workspace=workspace) as s:
            assert not appended(s, config)
            supervisor = by_age(children(os.getpid()))[-1]
            zygote = next(p for p in children(supervisor) if b"--zygote" in words(p))
            eventually(lambda: len(children(zygote)) == 3)
        monkeypatch.delenv("GIT_CONFIG_GLOBAL")
        with pytest.raises(CellgateError, match="gitconfig"):
            c.session(workspace=workspace)


def test_a_path_with_a_space_by_a_link_from_elsewhere(client: Client, workspace: Path, tmp_path: Path) -> None:
    """Nothing is there yet, and cells could put it there."""
    (tmp_path / "my link").symlink_to(workspace)
    with client.session(workspace=workspace) as s:
        path = f"{tmp_path}/my link/new.py"
        assert path in refuse(s, {"command": PYTHON, "args": [str(SERVER), path]})


def test_settings_of_its_sandbox_by_a_link_from_elsewhere(client: Client, workspace: Path, tmp_path: Path) -> None:
    """The program has one name only: no other guard has kernels that run examined."""
    (tmp_path / "link").symlink_to(workspace)
    (workspace / "box.json").write_text(json.dumps(web.settings()))
    (tmp_path / "bin").mkdir()
    python = str(shutil.copy(os.path.realpath(PYTHON), tmp_path / "bin/python"))
    args = [str(scripts(tmp_path / "lib"))]
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": {"command": python, "args": args, "sandbox": f"{tmp_path}/link/box.json"}})
        assert not appended(s, "box.json")


# ---------------------------------------------------------------- what is read-only


def test_a_script_and_what_lies_beside_it(client: Client, workspace: Path, tmp_path: Path) -> None:
    mark, script = tmp_path / "mark", scripts(workspace / "tools" / "srv")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, definition(script), script.parent)})
        for path in ("tools/srv/server.py", "tools/srv/json.py", "tools/srv/new/x"):
            assert (
                value(
                    s, f"import os\nattempt(os.makedirs, {path!r}) if '/new/' in {path!r} else attempt(write, {path!r})"
                )
                != "'done'"
            )
        assert value(s, "attempt(os.rename, 'tools/srv', 'tools/old')") != "'done'"
        assert value(s, "attempt(os.rename, 'tools', 'old')") != "'done'"
        assert appended(s, "tools/free")
        s.reset()
        assert not appended(s, "tools/srv/json.py")
        s.run("from mcptools.s import die\ndie.run()", lambda _: True)
        assert value(s, "from mcptools.s import echo\nstr(echo.run(text='hello'))") == "'hello'"
    assert not mark.exists()


def test_a_second_name_of_a_script(client: Client, workspace: Path) -> None:
    """A hard link that was made before is the same file."""
    script = scripts(workspace / "tools")
    os.link(script, workspace / "mine.py")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, definition(script), script.parent)})
        assert not appended(s, "mine.py")


def test_a_venv(client: Client, workspace: Path) -> None:
    venv = workspace / "env"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    shutil.copy(SERVER, venv / "lib" / "server_module.py")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, {"command": str(venv / "bin" / "python"), "args": [str(SERVER)]}, venv)})
        for path in ("env/bin/python", "env/pyvenv.cfg", "env/lib/x.pth", "env/lib/python9/sitecustomize.py"):
            assert (
                value(s, f"import os\nattempt(os.makedirs, 'env/lib/python9') and attempt(write, {path!r})") != "'done'"
            )


def test_node_packages(workspace: Path) -> None:
    """The topmost node_modules, and the absent ones above, where node looks for packages that may be missing."""
    if not shutil.which("node"):
        pytest.skip("node is not there")
    package = workspace / "a" / "b" / "node_modules" / "srv"
    (package / "dist").mkdir(parents=True)
    (package / "package.json").write_text("{}")
    run = f"require('child_process').spawn({PYTHON!r}, [{str(SERVER)!r}], {{stdio: 'inherit'}})"
    program = package / "dist" / "index.js"
    program.write_text(f"#!/usr/bin/env node\ntry {{ require('optional-one') }} catch (e) {{}}\n{run}\n")
    program.chmod(0o755)
    link = package.parent / ".bin" / "srv"
    link.parent.mkdir()
    link.symlink_to("../srv/dist/index.js")
    with Client(log_level=0, no_spare=1) as client, client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, {"command": str(link)}, workspace / "a" / "b" / "node_modules")})
        for path in ("a/b/node_modules/zod", "a/node_modules", "node_modules", "a/b/node_modules/.bin/x"):
            assert value(s, f"import os\nattempt(os.mkdir, {path!r})") != "'done'", path
        assert value(s, "attempt(os.remove, 'a/b/node_modules/.bin/srv')") != "'done'"
        assert appended(s, "a/b/other")
    assert not (workspace / "node_modules").exists()


def test_node_packages_above_a_folder_with_a_similar_name(client: Client, workspace: Path) -> None:
    script = scripts(workspace / "node_modules_old" / "srv")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": definition(script, code=[str(script.parent)])})
        for path in ("node_modules_old/node_modules", "node_modules"):
            assert value(s, f"import os\nattempt(os.mkdir, {path!r})") != "'done'", path
        assert appended(s, "node_modules_old/other")


def test_links_out_of_a_protected_folder(client: Client, workspace: Path) -> None:
    """The target of a link in the program's folder is loaded by the link's name."""
    script = scripts(workspace / "tools")
    (workspace / "shared" / "lib").mkdir(parents=True)
    (workspace / "tools" / "lib").symlink_to("../shared/lib")
    server = definition(script, code=[str(script.parent)])
    with client.session(workspace=workspace) as s:
        assert str(workspace / "shared" / "lib") in refuse(s, server)
        server["code"].append(str(workspace / "shared" / "lib"))
        s.add_servers({"s": server})
        assert not appended(s, "shared/lib/x.py")
        assert appended(s, "shared/x.py")
    (workspace / "tools" / "all").symlink_to(workspace)
    with client.session(workspace=workspace) as s:
        assert str(workspace) in refuse(s, server)


def test_editable_installations(client: Client, workspace: Path, tmp_path: Path) -> None:
    """A Python outside of the workspace whose modules lie in it."""
    venv = tmp_path / "venv"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python3*/site-packages")
    (workspace / "src" / "x").mkdir(parents=True)
    server = {"command": str(venv / "bin" / "python"), "args": [str(SERVER)]}
    with client.session(workspace=workspace) as s:
        for name in ("__editable__.x-1.pth", "__editable___x_finder.py", "x.egg-link", "x.pth"):
            finder = name.endswith(".py")
            (site / name).write_text(f"{workspace}\n")
            assert str(workspace) in refuse(s, server), name
            (site / name).write_text(f"MAPPING = {{'x': '{workspace}/src/x'}}\n" if finder else f"{workspace}/src\n")
            added = said(s, server, workspace / "src" / "x" if finder else workspace / "src")
            if name != "x.pth":
                (site / name).unlink()
        s.add_servers({"s": added})
        assert not appended(s, "src/x/__init__.py")


def test_dots_are_left_to_the_file_system(client: Client, workspace: Path, tmp_path: Path) -> None:
    (workspace / "sub").mkdir()
    (tmp_path / "l").symlink_to(workspace / "sub")
    shutil.copy(SERVER, workspace / "server.py")
    with client.session(workspace=workspace) as s:
        assert "cwd" in refuse(s, definition(cwd=f"{tmp_path}/l/.."))
        assert "server.py" in refuse(s, definition(f"{tmp_path}/l/../server.py"))


def test_a_server_that_is_added_to_a_kernel_that_has_run(client: Client, workspace: Path) -> None:
    script = scripts(workspace / "tools")
    server = definition(script, code=[str(script.parent)])
    with client.session(workspace=workspace) as s:
        assert s.run("x = 1").status == "ok"
        for _ in range(2):
            with pytest.raises(CellgateError, match="before the first cell") as e:
                s.add_servers({"s": server})
            assert str(script.parent) in str(e.value)
            s.reset()  # which does not undo what cells wrote
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": server})
        assert not appended(s, "tools/json.py")


def test_servers_that_share_a_folder_are_refused_together(client: Client, workspace: Path) -> None:
    script = scripts(workspace / "tools")
    second = shutil.copy(script, script.parent / "second.py")
    with client.session(workspace=workspace) as s:
        assert s.run("x = 1").status == "ok"
        with pytest.raises(CellgateError, match="before the first cell"):
            code = [str(script.parent)]
            s.add_servers({"a": definition(script, code=code), "b": definition(second, code=code)})
        assert "echo" not in value(
            s, "import importlib\nstr(attempt(lambda: dir(importlib.import_module('mcptools'))))"
        )


def test_a_folder_stays_read_only_as_long_as_one_of_its_servers_runs(client: Client, tmp_path: Path) -> None:
    top = tmp_path / "top"
    script = scripts(top / "tools")
    first, second = client.session(workspace=top), client.session(workspace=top)
    for s in (first, second):
        s.add_servers({"s": definition(script, code=[str(script.parent)])})
    first.close()
    second.reset()
    assert not appended(second, "tools/json.py")
    second.close()


def test_a_refused_definition_leaves_the_running_server_as_it_is(client: Client, workspace: Path) -> None:
    script = scripts(workspace / "tools")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": definition(script, code=[str(script.parent)])})
        with pytest.raises(CellgateError):
            s.add_servers({"s": definition(cwd=str(workspace))})
        s.reset()
        assert not appended(s, "tools/json.py")


@pytest.mark.parametrize("trap", ["fifo", "links"])
def test_what_cells_put_beside_a_server_does_not_stop_the_supervisor(
    client: Client, workspace: Path, trap: str
) -> None:
    venv = workspace / "env"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    if trap == "fifo":
        os.mkfifo(next(venv.glob("lib/python3*/site-packages")) / "x.pth")
    else:
        for i in range(1500):
            (workspace / f"d{i}").mkdir()
            (workspace / f"d{i}" / "l").symlink_to(f"../d{i + 1}")
        (workspace / "d1500").mkdir()
        (venv / "lib" / "l").symlink_to("../../d0")
    with client.session(workspace=workspace) as s:
        with contextlib.suppress(CellgateError):  # refused or not, there is an answer
            # A Python that finds a FIFO in place of a .pth file waits for ever.
            python = str(venv / "bin" / "python")
            s.add_servers({"s": {"command": python, "args": [str(SERVER)], "code": [str(venv)], "startTimeout": 2}})
        assert s.run("6 * 7").value == "42"


def test_sessions_of_one_supervisor(client: Client, tmp_path: Path) -> None:
    """A program of one session's server is read-only in the kernels of the others."""
    top = tmp_path / "top"
    script = scripts(top / "tools")
    server = definition(script, code=[str(script.parent)])
    with client.session(workspace=top) as a, client.session(workspace=top) as b:
        a.run("1")
        with pytest.raises(CellgateError, match="another session"):
            b.add_servers({"s": server})
    with client.session(workspace=top) as a, client.session(workspace=top) as b:
        b.add_servers({"s": server})
        assert not appended(a, "tools/json.py")
        with client.session(workspace=top) as c:
            assert not appended(c, "tools/json.py")
        with pytest.raises(CellgateError, match="tools"):
            client.session(workspace=top / "tools")


def test_cells_of_a_session_elsewhere_cannot_write_a_servers_files(client: Client, tmp_path: Path) -> None:
    """The server's files are outside of its own session's workspace, and in that of another, older or later one."""
    first, tools = tmp_path / "first", scripts(tmp_path / "second" / "tools")
    first.mkdir()
    with client.session(workspace=first) as a:
        for name, server in {
            "directly": definition(tmp_path / "directly/server.py"),
            "module": {"command": PYTHON, "args": ["-m", "server"], "env": {"PYTHONPATH": f"{tmp_path}/module"}},
            "cwd": definition(SERVER, cwd=str(tmp_path / "cwd")),
        }.items():
            second = scripts(tmp_path / name).parent
            a.add_servers({"s": server})
            with pytest.raises(CellgateError, match="MCP server of another session"):
                client.session(workspace=second)
            a.add_servers({"s": definition()})
            with client.session(workspace=second):
                assert str(second) in refuse(a, server)
        second = tools.parents[1]
        with client.session(workspace=second) as older:
            a.add_servers({"s": definition(tools)})
            with client.session(workspace=second) as later:
                for other in (older, later):
                    assert not appended(other, "tools/json.py")
                    assert not appended(other, "tools/server.py")
                    assert appended(other, "free")


def test_a_workspace_that_was_moved(client: Client, tmp_path: Path) -> None:
    """Cells write there under the new name as well; a folder that was removed concerns nobody."""
    top, moved, other = tmp_path / "top", tmp_path / "moved", tmp_path / "other"
    scripts(top / "tools")
    other.mkdir()
    server = definition(moved / "tools/server.py", code=[str(moved / "tools")])
    with client.session(workspace=top) as a, client.session(workspace=other) as b:
        a.run("1")
        top.rename(moved)
        assert appended(a, "tools/json.py")
        with pytest.raises(CellgateError, match="another session"):
            b.add_servers({"s": server})
    top.mkdir()
    with client.session(workspace=top) as a, client.session(workspace=other) as b:
        a.run("1")
        top.rmdir()
        (moved / "tools/json.py").unlink()
        b.add_servers({"s": server})


def test_a_server_of_a_session_without_a_sandbox(client: Client, workspace: Path) -> None:
    script = scripts(workspace / "tools")
    with client.session(workspace=workspace, sandbox=1) as a, client.session(workspace=workspace) as b:
        a.add_servers({"s": definition(script)})
        assert not appended(b, "tools/json.py")
        with client.session(workspace=workspace) as c:
            assert not appended(c, "tools/json.py")


def test_with_settings(client: Client, workspace: Path) -> None:
    """denyWrite is the way to keep a script in the workspace's own folder."""
    shutil.copy(SERVER, workspace / "server.py")
    settings = web.settings(filesystem={"allowWrite": ["data"]})
    (workspace / "data").mkdir()
    with client.session(workspace=workspace, settings=json.dumps(settings)) as s:
        s.add_servers({"s": definition(workspace / "server.py")})
        refuse(s, definition(cwd=str(workspace / "data")))
    settings["filesystem"]["allowWrite"] = ["."]
    settings["filesystem"]["denyWrite"] = ["tools"]
    script = scripts(workspace / "tools")
    with client.session(workspace=workspace, settings=json.dumps(settings)) as s:
        refuse(s, definition(workspace / "server.py"))
        s.add_servers({"s": definition(script, cwd=str(workspace / "tools"))})


def test_a_server_with_a_sandbox_of_its_own(client: Client, workspace: Path) -> None:
    """What it runs in that sandbox may be the cells', where the definition says so: a sandbox says nothing by itself."""
    inside = web.settings(filesystem={"allowWrite": [str(workspace)]}, cellgate={"hideCredentials": True})
    shutil.copy(SERVER, workspace / "server.py")
    here = definition(workspace / "server.py", cwd=str(workspace), sandbox=inside)
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, here, workspace, "data")})
        for path, wide in (
            (("filesystem", "allowWrite"), ["/var"]),
            (("network", "allowedDomains"), ["example.org"]),
            (("cellgate", "hideCredentials"), False),
            (("filesystem", "disabled"), True),
        ):
            wider = json.loads(json.dumps(inside))
            wider[path[0]][path[1]] = wide
            refuse(s, {**here, "sandbox": wider})
        refuse(s, {**here, "env": {"API_KEY": "secret-secret"}})


def test_a_path_of_its_own_is_judged_by_the_cells_of_every_session(client: Client, tmp_path: Path) -> None:
    """Three sessions, and a server whose own sandbox is judged by the cells of each: the PATH stays whole."""
    folders = [tmp_path / n for n in "abc"]
    for f in folders:
        f.mkdir()
    inside = web.settings(filesystem={"allowWrite": [str(folders[1])]}, cellgate={"hideCredentials": True})
    shutil.copy(SERVER, folders[1] / "server.py")
    server = {
        **{"command": "env", "args": ["python3", str(folders[1] / "server.py")], "cwd": str(folders[1])},
        **{"sandbox": inside, "data": [str(folders[1])], "env": {"PATH": "/usr/bin:/bin:relative"}},
    }
    with (
        client.session(workspace=folders[0]) as a,
        client.session(workspace=folders[1]),
        client.session(workspace=folders[2]),
    ):
        a.add_servers({"s": server})
        r = a.run("from mcptools.s import env\nstr(env.run(name='PATH'))", lambda _: True)
        assert r.value == "'/usr/bin:/bin'"


def test_cellgates_own_files(client: Client, prefix: Path, tmp_path: Path) -> None:
    """The workspace is a folder above the installation."""
    with client.session(workspace=prefix.parent) as s:
        at = prefix.relative_to(prefix.parent)
        for path in (
            "bin/cellgate",
            "bin/env",
            "libexec/cellgate/cellgate-supervisor",
            "libexec/cellgate/new",
            "lib/libcellgate.so.0",
            "lib/libc.so.6",
            "lib/cellgate/python/_new.py",
            "share/cellgate/new",
        ):
            assert value(s, f"attempt(write, {str(at / path)!r}, '')") != "'done'", path
        for path in ("bin/cellgate", "lib", "libexec", "."):
            assert value(s, f"import os\nattempt(os.rename, {str(at / path)!r}, 'moved')") != "'done'", path
    for folder in ("libexec/cellgate", "lib/cellgate/python", "lib", "bin"):
        with pytest.raises(CellgateError, match="cellgate"):
            client.session(workspace=prefix / folder)


def test_the_base_python_is_no_workspace(client: Client, workspace: Path) -> None:
    """Neither its folders nor any in its standard library, which is imported before kernels are sandboxed."""
    with client.session(workspace=workspace) as s:
        base = Path(value(s, "import os\nos.path.realpath(os.path.dirname(os.__file__))").strip("'"))
    for folder in (base, base / "json", base.parent):
        with pytest.raises(CellgateError, match="Python that kernels run"):
            client.session(workspace=folder)
    settings = json.dumps(web.settings(filesystem={"allowWrite": [str(base / "json")]}))
    with client.session(workspace=workspace, settings=settings) as s:
        assert not appended(s, str(base / 'json' / 'new.py'))


def test_an_error_about_them_costs_no_state(
    client: Client, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host gets the reason of a failed write; it is one of the reasons that a kernel may send."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "data/cellgate/envs").mkdir(parents=True)
    (tmp_path / "lib").mkdir()
    with Client(no_spare=1) as own:
        for workspace, path, why in (
            (prefix.parent, prefix / "libexec/cellgate/x", "belongs to cellgate"),
            (tmp_path, tmp_path / "data/cellgate/envs/x", "uses it outside"),
        ):
            with own.session(workspace=workspace) as s:
                out = s.run(f"state = 1\nopen({str(path)!r}, 'w')")
                assert why in out.result.text, out
                out = s.run("print(state)")
                assert (out.status, out.stdout) == ("ok", "1\n"), out


def test_places_of_cellgates_own_are_no_workspaces(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, name in (("XDG_DATA_HOME", "data"), ("XDG_CACHE_HOME", "cache")):
        monkeypatch.setenv(variable, str(tmp_path / name))
        (tmp_path / name / "cellgate/in").mkdir(parents=True)
    with Client(no_spare=1) as own:
        for folder in ("data/cellgate", "data/cellgate/in", "cache/cellgate"):
            with pytest.raises(CellgateError, match="files of its own"):
                own.session(workspace=tmp_path / folder)
        with own.session(workspace=tmp_path) as s:
            for path in ("data/cellgate/x", "cache/cellgate/in/x"):
                assert not appended(s, path), path
            assert appended(s, "data/free")


def test_the_kernels_environment(client: Client) -> None:
    env = Path(__file__).parents[2] / ".deps" / "kernel-env"
    if not env.is_dir():
        pytest.skip("the kernels' environment is elsewhere")
    with client.session(workspace=env.parent) as s:
        for path in ("bin/python3", "pyvenv.cfg", "x", "lib/x"):
            assert value(s, f"attempt(write, {f'{env.name}/{path}'!r}, '')") != "'done'", path
    with pytest.raises(CellgateError, match="cellgate"):
        client.session(workspace=env)


@pytest.mark.parametrize(
    ("tier", "holds"), [("landlock", False), ("landlock:accept", False), ("landlock:freeze", True)]
)
def test_the_landlock_tier(client: Client, workspace: Path, tier: str, holds: bool) -> None:
    """Rules that the tier cannot enforce are refused; the session continues."""
    script = scripts(workspace / "tools")
    server = definition(script, code=[str(script.parent)])
    try:
        session = client.session(workspace=workspace, tier=tier)
    except CellgateError as e:
        pytest.skip(f"no landlock tier here: {e}")
    with session as s:
        if holds:
            s.add_servers({"s": server})
            assert not appended(s, "tools/json.py")
        else:
            with pytest.raises(CellgateError, match="landlock:freeze"):
                s.add_servers({"s": server})
            s.add_servers({"t": definition()})
        assert s.run("1").value == "1"


def test_without_a_sandbox_nothing_is_refused(client: Client, workspace: Path) -> None:
    shutil.copy(SERVER, workspace / "server.py")
    with client.session(workspace=workspace, sandbox=1) as s:
        s.add_servers({"s": definition(workspace / "server.py", cwd=str(workspace))})


def test_cellgates_own_files_from_a_command(prefix: Path, tmp_path: Path) -> None:
    """`cellgate sandbox` with a write root above the installation."""
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(web.settings(filesystem={"allowWrite": [str(prefix.parent)]})))
    script = "for p in bin/cellgate libexec/cellgate/x lib/libc.so.6 share/cellgate/x; do echo x >>$p && echo hole $p; done; touch ../free"
    argv = [prefix / "bin/cellgate", "sandbox", "-s", settings, "-c", script]
    done = subprocess.run(argv, cwd=prefix, capture_output=True, text=True, timeout=60)
    assert done.stdout == "" and (prefix.parent / "free").exists(), done.stderr
    (prefix.parent / "free").unlink()


# ---------------------------------------------------------------- servers over HTTP


def test_a_server_with_a_url(client: Client, workspace: Path, tmp_path: Path) -> None:
    """Nothing of it runs here; only the certificates that it trusts must not be the cells'."""
    server = Server()
    inside, outside = workspace / "ca.pem", tmp_path / "ca.pem"
    for file in (inside, outside):
        file.write_text("")
    try:
        with client.session(workspace=workspace) as s:
            message = refuse(s, {"url": server.url, "caFile": str(inside)})
            assert "caFile" in message and "cells can write there" in message
            assert server.requests == []
            s.add_servers({"web": {"url": server.url, "caFile": str(outside)}})
            assert value(s, "from mcptools.web import echo\nstr(echo.run(x=1))") == """'{"x": 1}'"""
    finally:
        server.close()
