"""Files of MCP servers that have a second name (hard link) or a link where cells write, and large folders."""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import CellgateError, Client, Session
from kernel_environment import PACKAGES, copy_environment
from processes import children, parent, words
from server_definitions import PYTHON, SERVER, appended, definition, refuse, said, scripts, value

MODULE = "TEXT = 'as installed'\n"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder outside of the workspace with a script and a module of it."""
    script = scripts(tmp_path / "tools")
    (script.parent / "helper.py").write_text(MODULE)
    return script.parent


def program(path: Path, text: str = f"exec {PYTHON} {SERVER}") -> Path:
    """A script of the shell, by default one that starts the server."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def environment(folder: Path, n: int = 3) -> list[Path]:
    """A virtual environment with some modules."""
    packages = folder / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    files = [packages / f"module{i}.py" for i in range(n)]
    for f in files:
        f.write_text(MODULE)
    return files


def test_a_module_that_has_a_name_in_the_workspace(client: Client, workspace: Path, tools: Path) -> None:
    """Only files with a name elsewhere are denied, and the denial says why."""
    os.link(tools / "helper.py", workspace / "copy.py")
    (workspace / "free.py").touch()
    os.link(workspace / "free.py", workspace / "b")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": definition(tools / "server.py")})
        assert not appended(s, "copy.py")
        assert appended(s, "free.py") and appended(s, "b") and appended(s, "new.py")
        s.reset()
        assert not appended(s, "copy.py")
        assert value(s, "import os\nattempt(os.truncate, 'copy.py', 0)") != "'done'"
        out = s.run("open('copy.py', 'a')", lambda _: True)
        assert out.status == "error" and "hard link" in json.dumps(out.__dict__, default=str)
    assert (tools / "helper.py").read_text() == MODULE


def test_the_program_itself_has_a_name_in_the_workspace(client: Client, workspace: Path, tmp_path: Path) -> None:
    server = program(tmp_path / "bin" / "my-server")
    os.link(server, workspace / "other")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": {"command": str(server)}})
        assert not appended(s, "other")


def test_links_that_no_server_has_are_nobodys_business(client: Client, workspace: Path, tmp_path: Path) -> None:
    """A server without links changes nothing for the workspace; the folder of a file that is no code is not searched."""
    (tmp_path / "backup").touch()
    os.link(tmp_path / "backup", workspace / "file")
    (tmp_path / "me").mkdir()
    (tmp_path / "me" / "key.json").write_text("{}")
    (tmp_path / "me" / "work").symlink_to(workspace)
    server = definition(scripts(tmp_path / "plain"), env={"APP_CREDENTIALS": str(tmp_path / "me" / "key.json")})
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": server})
        assert appended(s, "file") and appended(s, "free.py")


def test_an_environment_that_shares_its_packages(client: Client, workspace: Path, tmp_path: Path) -> None:
    """As uv makes them: every file is a link to the cache. More files than there may be rules."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", tmp_path / "own"], check=True)
    (own,) = (tmp_path / "own").glob("lib/python3*/site-packages")
    for f in environment(workspace / "project" / ".venv", 1500):
        os.link(f, own / f.name)
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": {"command": str(tmp_path / "own" / "bin" / "python"), "args": [str(SERVER)]}})
        packages = "project/.venv/lib/python3.11/site-packages"
        assert not appended(s, f"{packages}/module7.py") and not appended(s, f"{packages}/new.py")
        assert appended(s, "project/main.py")


def test_node_packages_that_share_a_store(client: Client, workspace: Path, tmp_path: Path) -> None:
    server = program(tmp_path / "global" / "node_modules" / "srv" / "index.js")
    (server.parents[1] / "zod.js").touch()
    (workspace / "app" / "node_modules" / ".pnpm" / "zod").mkdir(parents=True)
    os.link(server.parents[1] / "zod.js", workspace / "app" / "node_modules" / ".pnpm" / "zod" / "zod.js")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": {"command": str(server)}})
        assert not appended(s, "app/node_modules/.pnpm/zod/zod.js")
        assert appended(s, "app/index.js")


def test_launchers_that_link_from_a_cache(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that uvx will run are not known in advance: all files with names outside are denied."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cache = tmp_path / "home" / ".cache" / "uv" / "archive-v0" / "x"
    cache.mkdir(parents=True)
    for f in environment(workspace / ".venv"):
        os.link(f, cache / f.name)
    launcher = program(tmp_path / "bin" / "uvx")
    wrapper = program(tmp_path / "bin" / "start", f"exec {launcher} a-server")
    with Client(log_level=0, no_spare=1) as c:
        for server in (
            {"command": str(launcher), "args": ["a-server"]},
            {"command": "sh", "args": ["-c", f"exec {launcher} a-server"]},
            {"command": str(wrapper)},
        ):
            with c.session(workspace=workspace) as s:
                s.add_servers({"s": server})
                assert not appended(s, ".venv/lib/python3.11/site-packages/module0.py"), server
                assert appended(s, "main.py"), server


def test_too_many_links_are_refused(client: Client, workspace: Path, tools: Path) -> None:
    for i in range(600):
        (tools / f"m{i}.py").touch()
        os.link(tools / f"m{i}.py", workspace / f"m{i}.py")
    with client.session(workspace=workspace) as s:
        message = refuse(s, definition(tools / "server.py"))
        assert "hard links" in message and "UV_LINK_MODE=copy" in message
        assert s.run("6 * 7").value == "42"


def test_cells_that_ran_before(client: Client, workspace: Path, tools: Path) -> None:
    os.link(tools / "helper.py", workspace / "copy.py")
    with client.session(workspace=workspace) as s:
        assert s.run("1").status == "ok"
        assert "before the first cell" in refuse(s, definition(tools / "server.py"))


def test_links_in_other_sessions(client: Client, workspace: Path, tmp_path: Path, tools: Path) -> None:
    """Those that are there, and those that come later."""
    other = tmp_path / "other"
    other.mkdir()
    os.link(tools / "helper.py", other / "copy.py")
    with client.session(workspace=workspace) as a, client.session(workspace=other) as b:
        a.add_servers({"s": definition(tools / "server.py")})
        assert not appended(b, other / "copy.py")
        with client.session(workspace=other) as c:
            assert not appended(c, other / "copy.py")


def test_an_environment_of_kernels_that_shares_its_packages(workspace: Path, tmp_path: Path) -> None:
    """Its modules run in the zygote, outside of the sandbox."""
    env = copy_environment(tmp_path / "env")
    metadata = next((env / PACKAGES).glob("*.dist-info/METADATA"))
    os.link(metadata, workspace / "METADATA")
    (tmp_path / "backup").touch()
    os.link(tmp_path / "backup", workspace / "backup")
    with Client(log_level=0, no_spare=1, kernel_env=str(env)) as c, c.session(workspace=workspace) as s:
        assert value(s, "attempt(open, 'METADATA', 'a')") != "'done'"
        assert value(s, "import os\nattempt(os.chmod, 'METADATA', 0o666)") != "'done'"
        os.link(metadata, workspace / "later")
        assert value(s, "attempt(open, 'later', 'a')") != "'done'"
        assert value(s, "attempt(os.truncate, 'later', 0)") != "'done'"
        # Files that are linked to others are not searched for.
        assert value(s, "attempt(open, 'backup', 'a')") == "'done'"


# ---------------------------------------------------------------- large folders, links, other sessions


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script with a module and 20,000 files beside it."""
    script = scripts(tmp_path_factory.mktemp("links") / "large")
    (script.parent / "helper.py").write_text(MODULE)
    for i in range(20):
        package = f"{script.parent}/node_modules/p{i}"
        os.makedirs(package)
        for k in range(1000):
            os.symlink("0.js", f"{package}/{k + 1}.js")
        os.mknod(f"{package}/0.js")
    return script


def processes_of(name: str) -> list[int]:
    """Of this test's supervisor: those whose first word is the name."""
    return [p for c in children(os.getpid()) for p in children(c) if words(p)[:1] == [name.encode()]]


class Opened:
    """Waits until a process opens the folder, or a folder in it."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_CLOEXEC)
        in_open = 0x20
        assert self.fd >= 0 and libc.inotify_add_watch(self.fd, os.fsencode(folder), in_open) >= 0

    def wait(self) -> None:
        ready, _, _ = select.select([self.fd], [], [], 60)
        os.close(self.fd)
        assert ready, "nobody has opened the folder"


def answer_of(session: Session, server: dict[str, Any], answers: list[str]) -> threading.Thread:
    """Adds the server in a thread; the error's text, or "added", is appended to the list."""

    def add() -> None:
        try:
            session.add_servers({"s": server})
            answers.append("added")
        except CellgateError as e:
            answers.append(str(e))

    thread = threading.Thread(target=add)
    thread.start()
    return thread


def test_a_session_that_ends_during_the_search(client: Client, workspace: Path, tmp_path: Path, large: Path) -> None:
    """Its cells could have changed a file by another name, which is found only then."""
    answers: list[str] = []
    (tmp_path / "first").mkdir()
    os.link(large.parent / "helper.py", workspace / "copy.py")
    with client.session(workspace=tmp_path / "first") as a:
        b = client.session(workspace=workspace)
        b.run("1")
        opened = Opened(large.parent)
        thread = answer_of(a, definition(large), answers)
        opened.wait()
        b.close()
        thread.join()
        assert "has ended meanwhile" in answers[0] or "before the first cell" in answers[0]


def test_others_do_not_wait_for_the_search(client: Client, workspace: Path, large: Path) -> None:
    """Not even where it waits itself: a FIFO in place of a folder's file, or a slow file system."""
    answers: list[str] = []
    with client.session(workspace=workspace) as a, client.session(workspace=workspace) as b:
        opened = Opened(large.parent)
        thread = answer_of(a, definition(large), answers)
        opened.wait()
        (search,) = processes_of("cellgate-search")
        os.kill(search, signal.SIGSTOP)
        assert b.run("6 * 7").value == "42"
        assert a.run("6 * 7").value == "42"
        with client.session(workspace=workspace) as c:
            assert c.run("6 * 7").value == "42"
        with pytest.raises(CellgateError, match="being added already"):
            a.add_servers({"t": definition()})
        os.kill(search, signal.SIGCONT)
        thread.join()
        assert answers == ["added"]


def test_a_search_that_ends_without_an_answer(client: Client, workspace: Path, large: Path) -> None:
    answers: list[str] = []
    with client.session(workspace=workspace) as s:
        opened = Opened(large.parent)
        thread = answer_of(s, definition(large), answers)
        opened.wait()
        (search,) = processes_of("cellgate-search")
        os.kill(search, signal.SIGKILL)
        thread.join()
        assert "were not checked" in answers[0]
        s.add_servers({"s": definition(large)})


def test_a_supervisor_that_ends_during_the_search(workspace: Path, tmp_path: Path, large: Path) -> None:
    """In order: an assertion of libuv would be in its log."""
    answers: list[str] = []
    with open(tmp_path / "log", "w+") as log, Client(no_spare=1, log_fd=log.fileno()) as c:
        s = c.session(workspace=workspace)
        opened = Opened(large.parent)
        thread = answer_of(s, definition(large), answers)
        opened.wait()
        (search,) = processes_of("cellgate-search")
        os.kill(search, signal.SIGSTOP)
        os.kill(parent(search), signal.SIGTERM)
        thread.join()
        c.close()
        log.seek(0)
        assert "Assertion" not in log.read() and "added" not in answers


def test_a_session_that_opens_during_the_check(client: Client, workspace: Path, large: Path) -> None:
    answers: list[str] = []
    with client.session(workspace=workspace) as a:
        opened = Opened(large.parent)
        thread = answer_of(a, definition(large), answers)
        opened.wait()
        with client.session(workspace=large.parents[1]) as b:
            thread.join()
            assert answers == ["added"]
            assert not appended(b, large)
            assert appended(b, "free.py")


def test_links_of_a_server_into_the_workspace_of_another_session(
    client: Client, workspace: Path, tmp_path: Path
) -> None:
    """Of one that is older than the server, and of a later one; also by way of a folder that no cell can write."""
    (tmp_path / "first").mkdir()
    (tmp_path / "between").mkdir()
    servers, modules = {}, []
    for kind in ("within", "outside", "chain"):
        modules.append(workspace / kind / "x" / "m.py")
        target = modules[-1].parent
        target.mkdir(parents=True)
        modules[-1].touch()
        script = scripts((workspace if kind == "within" else tmp_path) / f"srv-{kind}")
        if kind == "chain":
            (tmp_path / "between" / "y").symlink_to(target)
            target = tmp_path / "between"
        (script.parent / "lib").symlink_to(target)
        servers[kind] = definition(script)
    with client.session(workspace=workspace) as older, client.session(workspace=tmp_path / "first") as a:
        a.add_servers(servers)
        with client.session(workspace=workspace) as later:
            for b in (older, later):
                assert not [m for m in modules if appended(b, m)]
                assert appended(b, "free.py")


def test_links_by_way_of_a_folder_that_no_cell_can_write(client: Client, workspace: Path, tmp_path: Path) -> None:
    script = scripts(tmp_path / "srv")
    (tmp_path / "between").mkdir()
    (workspace / "lib").mkdir()
    (tmp_path / "between" / "y").symlink_to(workspace / "lib")
    (script.parent / "lib").symlink_to(tmp_path / "between")
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, definition(script), workspace / "lib")})
        assert not appended(s, "lib/m.py")


NAMED = {
    "PYTHONPATH": lambda f: {"command": PYTHON, "args": [str(SERVER)], "env": {"PYTHONPATH": f"/etc/skel:{f}"}},
    "NODE_PATH": lambda f: {"command": PYTHON, "args": [str(SERVER)], "env": {"NODE_PATH": str(f)}},
    "options": lambda f: {"command": PYTHON, "args": [str(SERVER)], "env": {"NODE_OPTIONS": f"-r {f}/helper.py"}},
    "env": lambda f: {"command": "env", "args": [f"PYTHONPATH={f}", PYTHON, str(SERVER)]},
    "option": lambda f: {"command": str(f.parent / "srv"), "args": ["--plugin-dir", str(f)]},
    "option=": lambda f: {"command": str(f.parent / "srv"), "args": [f"--app-dir={f}"]},
    "pattern": lambda f: {"command": PYTHON, "args": [str(SERVER)], "env": {"LUA_PATH": f"{f}/?.lua;;"}},
    "glued": lambda f: {"command": PYTHON, "args": [str(SERVER)], "env": {"PERL5OPT": f"-I{f}"}},
    "shell": lambda f: {"command": "sh", "args": ["-c", f"cd {f}&&exec {PYTHON} {SERVER}"]},
    "expanded": lambda f: {
        "command": "sh",
        "args": ["-c", f"PYTHONPATH=$TOOLS/lib exec {PYTHON} {SERVER}"],
        "env": {"TOOLS": str(f.parent)},
    },
    "relative": lambda f: {
        "command": PYTHON,
        "args": [str(SERVER)],
        "cwd": str(f.parent),
        "env": {"PYTHONPATH": "lib"},
    },
}
WITHOUT_SPACES = ("options", "pattern", "glued", "shell", "expanded")


def test_links_in_a_folder_that_a_definition_names(client: Client, workspace: Path, tmp_path: Path) -> None:
    """The refusal names the folder that a link leads to; a single file cannot be protected in its place."""
    (workspace / "pkg").mkdir()
    (workspace / "m.py").write_text(MODULE)
    with client.session(workspace=workspace) as s:
        for i, (name, server) in enumerate(NAMED.items()):
            lib = tmp_path / ("words" if name in WITHOUT_SPACES else "with space") / str(i) / "lib"
            lib.mkdir(parents=True)
            (lib / "helper.py").write_text(MODULE)
            program(lib.parent / "srv")
            if name == "PYTHONPATH":
                s.add_servers({"without": server(lib)})
            (lib / "pkg").symlink_to(workspace / "pkg")
            added = said(s, server(lib), workspace / "pkg")
        (lib / "m.py").symlink_to(workspace / "m.py")
        assert "m.py" in refuse(s, added)
        (lib / "m.py").unlink()
        s.add_servers({"s": added})
        assert not appended(s, "pkg/new.py")
        assert appended(s, "m.py") and appended(s, "free.py")


def test_a_folder_of_modules_of_the_users_own(client: Client, workspace: Path, tmp_path: Path) -> None:
    """A *.pth file there names further folders; the path is no pattern, and a NUL is not the end of the file."""
    with client.session(workspace=workspace) as s:
        for name, base, before in (("a", "base", ""), ("b", "ba[1]s*e", ""), ("c", "other", "# \0\n")):
            packages = tmp_path / base / "lib" / "python3.11" / "site-packages"
            packages.mkdir(parents=True)
            (workspace / name / "src").mkdir(parents=True)
            (packages / "editable.pth").write_text(f"{before}{workspace}/{name}/src\n")
            server = {"command": PYTHON, "args": [str(SERVER)], "env": {"PYTHONUSERBASE": str(tmp_path / base)}}
            added = said(s, server, workspace / name / "src")
        s.add_servers({"s": added})
        assert not appended(s, "c/src/m.py")
        assert appended(s, "c/free.py")


def test_text_that_is_too_long_to_be_searched(client: Client, workspace: Path, tmp_path: Path) -> None:
    packages = tmp_path / "base" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    env = {"PYTHONUSERBASE": str(tmp_path / "base")}
    large = env | {"BIG": "x" * 100000, "ALL": "$BIG" * 11 + " /opt"}
    with client.session(workspace=workspace) as s:
        assert "more than 1 MiB" in refuse(s, {"command": PYTHON, "args": [str(SERVER)], "env": large})
        (packages / "editable.pth").write_text("#" * (1 << 20) + f"\n{workspace}\n")
        assert "editable.pth" in refuse(s, {"command": PYTHON, "args": [str(SERVER)], "env": env})


def test_packages_above_a_folder_whose_name_is_not_utf8(client: Client, workspace: Path, tmp_path: Path) -> None:
    """What cannot be noted as searched is refused, not left out."""
    folder = os.fsdecode(os.fsencode(str(tmp_path)) + b"/above/\xff")
    Path(folder).mkdir(parents=True)
    (tmp_path / "above" / "node_modules").symlink_to(workspace)
    (Path(folder) / "index.js").touch()
    (tmp_path / "link.js").symlink_to(f"{folder}/index.js")
    with client.session(workspace=workspace) as s:
        assert "UTF-8" in refuse(s, {"command": "node", "args": [str(tmp_path / "link.js")]})


def test_a_file_in_a_list_of_an_option(client: Client, workspace: Path, tmp_path: Path) -> None:
    server = str(program(tmp_path / "bin" / "srv"))
    (workspace / "x.py").write_text(MODULE)
    with client.session(workspace=workspace) as s:
        for option in ("--plugins=/usr/lib:{}", "--plugins=hook:{}", "--plugins=/usr/lib,{}"):
            assert "x.py" in refuse(s, {"command": server, "args": [option.format(workspace / "x.py")]}), option


def test_packages_above_what_a_variable_leads_to(client: Client, workspace: Path, tmp_path: Path) -> None:
    """node searches them in all folders above, before NODE_PATH."""
    node = program(tmp_path / "bin" / "node")
    script = scripts(tmp_path / "app").with_name("server.js")
    script.write_text("")
    (tmp_path / "lib").mkdir()
    (workspace / "packages" / "pkg").mkdir(parents=True)
    (tmp_path / "lib" / "pkg").symlink_to(workspace / "packages" / "pkg")
    server = {"command": str(node), "args": [str(script)], "env": {"NODE_PATH": str(tmp_path / "lib")}}
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, server, workspace / "packages" / "pkg")})
        assert not appended(s, "packages/pkg/m.js")
        assert value(s, "import os\nattempt(os.mkdir, 'node_modules')") != "'done'"
        assert appended(s, "free.js")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with more entries than are searched where a program may or may not load files."""
    folder = tmp_path_factory.mktemp("many")
    for i in range(100):
        os.mkdir(f"{folder}/{i}")
        os.mknod(f"{folder}/{i}/0")
        for k in range(1, 1010):  # links: files are more work to make
            os.link(f"{folder}/{i}/0", f"{folder}/{i}/{k}")
    yield folder
    shutil.rmtree(folder)


def test_a_large_folder_of_data_does_not_end_the_search(
    client: Client, workspace: Path, tmp_path: Path, many: Path
) -> None:
    """Each folder has a limit of its own."""
    script = scripts(tmp_path / "app")
    (workspace / "lib").mkdir()
    (script.parent / "sub").mkdir()
    (script.parent / "sub" / "lib").symlink_to(workspace / "lib")
    server = {"command": "env", "args": [f"LIBRARY={many}", PYTHON, str(script)]}
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": said(s, server, workspace / "lib")})
        assert not appended(s, "lib/m.py")
        assert appended(s, "free.py")


def test_a_hidden_folder_beside_a_wrapper(client: Client, workspace: Path, tmp_path: Path) -> None:
    """The wrapper does not load it, but the Python that the wrapper starts does."""
    wrapper = program(tmp_path / "srv" / "wrapper", 'exec "$@"')
    venv = wrapper.parent / ".venv"
    environment(venv)
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(PYTHON)
    (workspace / "lib").mkdir()
    (venv / "lib" / "more").symlink_to(workspace / "lib")
    with client.session(workspace=workspace) as s:
        server = {"command": "nice", "args": [str(wrapper), str(venv / "bin" / "python"), str(SERVER)]}
        s.add_servers({"s": said(s, server, workspace / "lib")})
        assert not appended(s, "lib/m.py")


def test_servers_whose_denials_are_too_many_together(client: Client, workspace: Path) -> None:
    """Kernels can still start."""
    servers = {}
    for name in ("s", "t"):
        script = scripts(workspace / name)
        servers[name] = definition(script, code=[str(script.parent)])
        for i in range(300):
            (script.parent / f"m{i}.py").touch()
            os.link(script.parent / f"m{i}.py", workspace / f"{name}{i}.py")
    with client.session(workspace=workspace) as s:
        report = s.add_servers(servers)
        assert "error" not in report["s"] and "hard links" in report["t"]["error"]
        assert not appended(s, "s0.py")
        assert appended(s, "t0.py")
        s.reset()
        assert s.run("6 * 7").value == "42"


def test_a_tree_that_is_too_large(client: Client, workspace: Path) -> None:
    """Deep folders, as many as a path can hold. Beside a program, as in a home folder, they need not have to do with it."""
    script = scripts(workspace.with_name("home"))
    named = scripts(workspace / "deep")
    for folder in (script.parent, named.parent):
        (folder / Path(*["d"] * 120)).mkdir(parents=True)
    with client.session(workspace=workspace) as s:
        s.add_servers({"s": definition(script)})
        assert "deep" in refuse(s, definition(named, code=[str(named.parent)]))
        assert s.run("6 * 7").value == "42"
    shutil.rmtree(named.parent)


def test_many_servers_with_many_files(client: Client, large: Path) -> None:
    """Each has a time of its own."""
    more = {"cwd": "/nonexistent", "code": [str(large.parent)]}
    many = {f"s{i}": {"command": PYTHON, "args": [str(large), f"--number={i}"], **more} for i in range(12)}
    small = scripts(large.parents[1] / "small")
    with client.session(workspace=large.parents[1]) as s:
        report = s.add_servers({**many, "last": definition(small, code=[str(small.parent)])})
        assert "error" not in report["last"]
        assert all("/nonexistent" in report[name]["error"] for name in many)
