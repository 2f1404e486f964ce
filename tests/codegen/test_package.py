"""Writing packages: all or nothing, inside the output folder only, and names of servers."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from codegen.support import DATA, STUBS, GenerationFailed, check_package, generate, probe

TOOL = [{"name": "kept", "inputSchema": {"type": "object"}}]
SYSTEM, INVALID, EXISTS, PARSE = -2, -3, -7, -12


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _fails(code: int, build: Path, server: str, out: Path, tools: Any = TOOL, root: bool = False) -> str:
    with pytest.raises(GenerationFailed) as caught:
        generate(build, server, out, tools, root)
    assert caught.value.code == code, caught.value
    return str(caught.value)


def test_replaces_the_whole_package(build_dir: Path, tmp_path: Path) -> None:
    """Modules of tools that are gone are gone, bytecode as well."""
    generate(build_dir, "srv", tmp_path, [*TOOL, {"name": "gone", "inputSchema": {"type": "object"}}])
    (tmp_path / "srv/__pycache__").mkdir()
    (tmp_path / "srv/__pycache__/gone.cpython-311.pyc").write_bytes(b"x")
    report = generate(build_dir, "srv", tmp_path, TOOL)
    check_package(tmp_path / "srv", report, "srv")
    assert not (tmp_path / "srv/gone.py").exists() and not (tmp_path / "srv/__pycache__").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["srv"]


@pytest.mark.parametrize("text", [b"", b"{", b'{"tools":[NaN]}', b'[{"name":"\xff"}]'])
def test_failure_leaves_the_old_package(build_dir: Path, tmp_path: Path, text: bytes) -> None:
    generate(build_dir, "srv", tmp_path, TOOL)
    before = _snapshot(tmp_path)
    _fails(PARSE, build_dir, "srv", tmp_path, text)
    assert _snapshot(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["srv"]


def test_full_disk_leaves_the_old_package(build_dir: Path, tmp_path: Path) -> None:
    """The limit on file sizes simulates a disk that becomes full during a write."""
    generate(build_dir, "srv", tmp_path, TOOL)
    before = _snapshot(tmp_path)
    code = (
        "import resource, signal, sys, os\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    enum = b",".join(b'"%d"' % i for i in range(9000))
    text = (
        b'{"tools":[{"name":"a","inputSchema":{}},{"name":"b","inputSchema":{"properties":{"x":{"enum":[%s]}}}}]}'
        % enum
    )
    argv = [sys.executable, "-c", code, str(build_dir / "tests/codegen/gen-probe"), "generate", "srv", str(tmp_path)]
    done = subprocess.run(argv, input=text, capture_output=True, timeout=60)
    assert done.returncode == 1 and b"File too large" in done.stderr
    assert _snapshot(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["srv"]


def test_readers_never_see_half_a_package(build_dir: Path, tmp_path: Path) -> None:
    """While it is replaced again and again, the folder always holds a complete package."""
    two = [*TOOL, {"name": "other", "inputSchema": {"type": "object"}}]
    generate(build_dir, "srv", tmp_path, TOOL)
    complete = ({"__init__.py", "_tools.json", "kept.py"}, {"__init__.py", "_tools.json", "kept.py", "other.py"})
    done = threading.Event()
    odd: list[object] = []

    def look() -> None:
        while not done.is_set():
            try:
                fd = os.open(tmp_path / "srv", os.O_RDONLY)
            except FileNotFoundError as e:
                odd.append(e)
                return
            found = set(os.listdir(fd))
            # A folder that was replaced after it was opened is being emptied: not of interest.
            if found not in complete and os.stat(fd).st_ino == os.stat(tmp_path / "srv").st_ino:
                odd.append(found)
            os.close(fd)

    reader = threading.Thread(target=look)
    reader.start()
    for i in range(40):
        generate(build_dir, "srv", tmp_path, two if i % 2 else TOOL)
    done.set()
    reader.join(10)
    assert not odd and not reader.is_alive()


def test_two_at_a_time(build_dir: Path, tmp_path: Path) -> None:
    tools = {n: [{"name": f"{n}{i}", "inputSchema": {"type": "object"}} for i in range(30)] for n in "ab"}
    errors: list[Exception] = []

    def run(n: str) -> None:
        try:
            for _ in range(10):
                generate(build_dir, "srv", tmp_path, tools[n])
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(n,)) for n in "ab"]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    # Both may find no package at first; then one gets the error that the other was faster.
    assert all("cannot put" in str(e) for e in errors), errors
    names = {p.stem[0] for p in (tmp_path / "srv").glob("[ab]*.py")}
    assert len(names) == 1 and len(list((tmp_path / "srv").glob("[ab]*.py"))) == 30
    assert [p.name for p in tmp_path.iterdir()] == ["srv"]


def test_symlinks_are_refused(build_dir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "_tools.json").write_text('{"server":"srv",\n')
    (outside / "precious").write_text("x")
    (tmp_path / "link").symlink_to(outside)
    _fails(INVALID, build_dir, "srv", tmp_path / "link")
    out = tmp_path / "out"
    out.mkdir()
    (out / "srv").symlink_to(outside)
    assert "symlink" in _fails(EXISTS, build_dir, "srv", out)
    (out / "__init__.py").symlink_to(outside / "precious")
    _fails(EXISTS, build_dir, "other", out, root=True)
    assert (outside / "precious").read_text() == "x" and len(list(outside.iterdir())) == 2
    assert {p.name for p in out.iterdir()} == {"srv", "__init__.py"}


def test_symlinks_in_the_old_package_are_not_followed(build_dir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    generate(build_dir, "srv", tmp_path / "out", TOOL)
    (tmp_path / "out/srv/evil").symlink_to(outside)
    (tmp_path / "out/srv/kept.py").unlink()
    (tmp_path / "out/srv/kept.py").symlink_to(outside / "precious")
    generate(build_dir, "srv", tmp_path / "out", TOOL)
    assert (outside / "precious").read_text() == "x"
    assert {p.name for p in (tmp_path / "out/srv").iterdir()} == {"__init__.py", "_tools.json", "kept.py"}


def test_foreign_folders_are_left_alone(build_dir: Path, tmp_path: Path) -> None:
    """`cellgate gen src --out .` must not replace src; nor may one server replace another's package."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.c").write_text("int x;")
    assert "not made by cellgate" in _fails(EXISTS, build_dir, "src", tmp_path)
    assert (tmp_path / "src/main.c").read_text() == "int x;"
    (tmp_path / "file").write_text("x")
    _fails(EXISTS, build_dir, "file", tmp_path)
    generate(build_dir, "a-b", tmp_path, TOOL)
    assert "another server" in _fails(EXISTS, build_dir, "a_b", tmp_path)
    (tmp_path / "empty").mkdir()
    generate(build_dir, "empty", tmp_path, TOOL)
    assert {p.name for p in tmp_path.iterdir()} == {"src", "file", "a_b", "empty"}


def test_root_package(build_dir: Path, tmp_path: Path) -> None:
    generate(build_dir, "srv", tmp_path / "mcptools", TOOL, root=True)
    first = _snapshot(tmp_path)
    assert {"mcptools/__init__.py", "mcptools/py.typed", "mcptools/srv/__init__.py"} <= set(first)
    generate(build_dir, "srv", tmp_path / "mcptools", TOOL, root=True)
    assert _snapshot(tmp_path) == first
    compile(first["mcptools/__init__.py"], "x", "exec")
    (tmp_path / "mcptools/__init__.py").write_text("mine = 1\n")
    _fails(EXISTS, build_dir, "new", tmp_path / "mcptools", root=True)
    assert (tmp_path / "mcptools/__init__.py").read_text() == "mine = 1\n"
    assert not (tmp_path / "mcptools/new").exists()


def test_umask_does_not_matter(build_dir: Path, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        generate(build_dir, "srv", tmp_path / "out", TOOL)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out/srv").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "out/srv/kept.py").stat().st_mode) == 0o644


def test_missing_parents_are_an_error(build_dir: Path, tmp_path: Path) -> None:
    assert "no/such" in _fails(SYSTEM, build_dir, "srv", tmp_path / "no/such")


def test_unwritable_folder(build_dir: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o555)
    _fails(SYSTEM, build_dir, "srv", tmp_path)


# ---------------------------------------------------------------------- names of servers

REFUSED = ["", ".", "..", "a/b", "../x", "/etc", "a\\b", "a\nb", "\x1b[2J", "x" * 65]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_server_names(build_dir: Path, tmp_path: Path, name: str) -> None:
    _fails(INVALID, build_dir, name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("filesystem", "filesystem"),
        ("my-server", "my_server"),
        ("My.Server 2", "my_server_2"),
        ("json", "json"),
        ("time", "time"),
        ("class", "class_"),
        ("search", "search_"),
        ("tools", "tools_"),
        ("catalogue", "catalogue"),
        ("cellgate_tools", "cellgate_tools"),
        ("2fa", "s_2fa"),
        ("__init__", "init"),
        ("_x", "x"),
        ("none", "none"),
        ("os", "os"),
        ("cProfile", "cprofile"),
    ],
)
def test_package_names(build_dir: Path, name: str, package: str) -> None:
    assert probe(build_dir, "package", name).strip() == package


def test_package_names_are_identifiers(build_dir: Path) -> None:
    for name in ("\u63d0\u53d6", "\U0001f600", "r\u00e9sum\u00e9", "-", "x" * 64, "9" * 64, "\u00e9" * 64):
        made = probe(build_dir, "package", name).strip()
        assert made.isidentifier() and made.isascii() and made == made.lower() and len(made) < 72
    assert probe(build_dir, "package", "\u63d0") != probe(build_dir, "package", "\u53d6")


def _imports(out: Path, code: str) -> str:
    """What code prints in an interpreter that finds the package out and cellgate_tools."""
    paths = (
        f"import sys; sys.dont_write_bytecode = True; sys.path[:0] = {[str(STUBS), str(out.parent)]}\n"
        "import cellgate_tools; sys.dont_write_bytecode = False\n"
    )
    argv = [sys.executable, "-I", "-W", "error", "-c", paths + code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_servers_called_like_modules_of_python(build_dir: Path, tmp_path: Path) -> None:
    """Each has its own name below mcptools, and Python's module keeps it."""
    servers = [n for n in sorted(sys.stdlib_module_names) if not n.startswith("_")]
    for name in servers:
        made = probe(build_dir, "package", name).strip()
        assert made == name.lower()
    for name in ("time", "json", "catalogue", "types"):
        generate(build_dir, name, tmp_path / "mcptools", TOOL, root=True)
    code = """
import time, json, types, mcptools
from mcptools.time import kept as a
from mcptools.json import kept as b
assert a._tool.server == "time" and b._tool.server == "json" and time.time() and json.dumps(1)
assert mcptools.types.kept._tool.server == "types" and types.ModuleType
from mcptools import catalogue
assert catalogue.kept._tool.server == "catalogue"
"""
    _imports(tmp_path / "mcptools", code)


def test_names_keep_their_case(build_dir: Path, tmp_path: Path) -> None:
    """Any case of a tool's or server's name leads to the one module; nothing is written when it is imported."""
    names = ["linear_getIssueById", "listTeams", "TOOLS", "Class", "class", "package", "TOOLS_x"]
    tools = [{"name": n, "inputSchema": {"type": "object"}} for n in names]
    report = generate(build_dir, "Linear", tmp_path / "mcptools", tools, root=True)
    check_package(tmp_path / "mcptools/linear", report, "Linear")
    module = {t["tool"]: t["module"] for t in report["tools"]}
    assert [module[n] for n in names[:2]] == names[:2]
    before = _snapshot(tmp_path)
    code = """
import importlib, mcptools
from mcptools.linear import linear_getissuebyid
from mcptools.linear import linear_getIssueById
import mcptools.linear.linear_GETissuebyid as third
assert linear_getissuebyid is linear_getIssueById is third
assert third.__name__ == third.__spec__.name == "mcptools.linear.linear_getIssueById"
assert mcptools.linear.LISTTEAMS._tool.name == "listTeams" and mcptools.LINEAR is mcptools.linear
from mcptools.linear import TOOLS_, Class, class_, package
assert [t._tool.name for t in (TOOLS_, Class, class_, package)] == ["TOOLS", "Class", "class", "package"]
assert dir(mcptools.linear) == sorted(mcptools.linear.TOOLS)
assert importlib.reload(package) is package
"""
    _imports(tmp_path / "mcptools", code)
    after = _snapshot(tmp_path)
    assert {n for n in after if not n.startswith("mcptools/__pycache__/__init__")} == set(before)


def test_a_server_that_did_not_start_hides_no_help(build_dir: Path, tmp_path: Path) -> None:
    generate(build_dir, "srv", tmp_path / "mcptools", TOOL, root=True)
    shutil.copytree(tmp_path / "mcptools/srv", tmp_path / "mcptools/broken")
    (tmp_path / "mcptools/broken/__init__.py").write_text('raise ImportError("it ended")\n')
    code = "import pydoc, mcptools; print('search' in pydoc.render_doc(mcptools), hasattr(mcptools, 'broken'))\n"
    code += "try:\n    from mcptools import broken\nexcept ImportError as e:\n    print(e)\n"
    assert _imports(tmp_path / "mcptools", code).split("\n")[:2] == ["True False", "it ended"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("from mcptools.srv import kep", "mcptools.srv has no tool 'kep'; did you mean kept?"),
        ("import mcptools.srv.nothing_like_it", "tools: kept"),
        ("import mcptools.srb", "mcptools has no server 'srb'; did you mean srv?"),
        ("import mcptools; mcptools.zzzz", "servers: srv"),
        ("import mcptools.srv.kept.more", "is not a package"),
        ("from mcptools.srv import *; print(kept.run.__name__)", "run"),
    ],
)
def test_wrong_names_say_what_there_is(build_dir: Path, tmp_path: Path, code: str, said: str) -> None:
    generate(build_dir, "srv", tmp_path / "mcptools", TOOL, root=True)
    code = f"try:\n    {code}\nexcept (ModuleNotFoundError, AttributeError) as e:\n    print(e)\n"
    assert said in _imports(tmp_path / "mcptools", code)


def test_nothing_but_the_name_is_known(build_dir: Path, tmp_path: Path) -> None:
    """The same list gives the same bytes wherever it is written."""
    for n in ("one", "two"):
        generate(build_dir, "files", tmp_path / n, (DATA / "files.json").read_bytes())
    assert _snapshot(tmp_path / "one") == _snapshot(tmp_path / "two")
