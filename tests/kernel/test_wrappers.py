"""Generated packages on python_path: found, replaced, never shadowed by the workspace."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from codegen.support import generate
from kernel.harness import Kernel


def write_package(root: Path, name: str, value: str) -> None:
    """Replace the folder as the generator does."""
    new = root / "mcptools" / f".{name}.new"
    (new / "sub").mkdir(parents=True)
    (new / "__init__.py").write_text(f"value = {value!r}\n")
    (new / "tool.py").write_text("from . import value\nvalue = value + ' from tool'\n")
    old = root / "mcptools" / name
    if old.exists():
        old.rename(root / "mcptools" / f".{name}.old{os.urandom(4).hex()}")
    new.rename(old)


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    path = tmp_path / "lib"
    path.mkdir()
    return path


@pytest.fixture(params=[True, False], ids=["sandbox", "no-sandbox"])
def wrapped(spawn: Callable[..., Kernel], lib: Path, request: pytest.FixtureRequest) -> Kernel:
    if request.param:
        return spawn(python_path=["/run/cellgate/lib"], bind_ro=[[str(lib), "/run/cellgate/lib"]])
    return spawn(sandbox=False, python_path=[str(lib)])


def test_package_that_comes_later_is_found(wrapped: Kernel, lib: Path) -> None:
    assert wrapped.run("import mcptools.one").reply["ename"] == "ModuleNotFoundError"
    write_package(lib, "one", "1")
    assert wrapped.run("import mcptools.one; mcptools.one.value").result == "'1'"
    write_package(lib, "two", "2")
    assert wrapped.run("from mcptools.two import tool; tool.value").result == "'2 from tool'"


def test_replaced_package_is_forgotten(wrapped: Kernel, lib: Path) -> None:
    write_package(lib, "one", "old")
    write_package(lib, "two", "stays")
    assert wrapped.run("import mcptools.two; from mcptools.one import tool; tool.value").result == "'old from tool'"
    wrapped.run("mcptools.two.mark = 1")
    write_package(lib, "one", "new")
    assert wrapped.run("from mcptools.one import tool; tool.value").result == "'new from tool'"
    assert wrapped.run("import mcptools.two; mcptools.two.mark").result == "1"


def test_replaced_often(wrapped: Kernel, lib: Path) -> None:
    for i in range(10):
        write_package(lib, "one", str(i))
        assert wrapped.run("import mcptools.one; mcptools.one.value").result == repr(str(i))


def test_cell_is_told_which_tools_have_changed(spawn: Callable[..., Kernel], lib: Path, build_dir: Path) -> None:
    def write(server: str, *names: str) -> None:
        tools = [{"name": n, "inputSchema": {"type": "object"}} for n in names]
        generate(build_dir, server, lib / "mcptools", tools, root=True)

    write("one", "read", "close")
    write("two", "read")
    kernel = spawn(python_path=["/run/cellgate/lib"], bind_ro=[[str(lib), "/run/cellgate/lib"]])
    kernel.run("from mcptools.one import read, close")
    assert kernel.run("1").text() == ""
    write("one", "read", "write")
    write("two", "other")  # no cell has imported it
    said = "cellgate: the tools of mcptools.one have changed; added write; removed close: import them again\n"
    assert kernel.run("from mcptools.one import write; print(write.__name__)").text() == (
        said + "mcptools.one.write\n"
    )
    assert "no tool 'close'" in kernel.run("from mcptools.one import close").reply["evalue"]
    assert kernel.run("1").text() == ""


def test_workspace_does_not_shadow(wrapped: Kernel, lib: Path, workspace: Path) -> None:
    write_package(lib, "one", "right")
    (workspace / "mcptools").mkdir()
    (workspace / "mcptools" / "__init__.py").write_text("")
    (workspace / "cellgate_tools.py").write_text("raise SystemError")
    r = wrapped.run("import mcptools.one; mcptools.one.value")
    assert r.result == "'right'" or r.reply["ename"] == "ModuleNotFoundError"


def test_read_only(spawn: Callable[..., Kernel], lib: Path) -> None:
    kernel = spawn(python_path=["/run/cellgate/lib"], bind_ro=[[str(lib), "/run/cellgate/lib"]])
    assert kernel.run("open('/run/cellgate/lib/x', 'w')").reply["ename"] in ("OSError", "PermissionError")


def test_200_modules_are_imported_fast(spawn: Callable[..., Kernel], lib: Path, build_dir: Path) -> None:
    """A tenth of a second where the machine is idle (bench/wrappers); help() and ? show the tool's text."""
    schema = {"type": "object", "properties": {f"field{i}": {"type": "string"} for i in range(5)}}
    tools = [{"name": f"readTool{i}", "description": "Reads it.", "inputSchema": schema} for i in range(200)]
    generate(build_dir, "many", lib / "mcptools", tools, root=True)
    kernel = spawn(python_path=["/run/cellgate/lib"], bind_ro=[[str(lib), "/run/cellgate/lib"]])
    code = """
import time, mcptools, sys
from importlib import import_module
start = time.process_time()
for name in mcptools.tools("many"):
    import_module(f"mcptools.many.{name}")
took = time.process_time() - start
took < 1, len([m for m in sys.modules if m.startswith("mcptools.many.")])
"""
    assert kernel.run(code).result == "(True, 200)"
    assert kernel.run("from mcptools.many import readtool7; readtool7.__name__").result == "'mcptools.many.readTool7'"
    shown = str(kernel.run("readtool7?").__dict__)
    assert "Reads it." in shown and "field4: str" in shown, shown
    assert "Class docstring" not in shown and "Call " not in shown and len(shown) < 2500, shown
    shown = kernel.run("help(readtool7)").out
    assert "Reads it." in shown and "field4: str" in shown and len(shown) < 600, shown
