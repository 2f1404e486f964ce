"""A session with a working directory: each cell starts there."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kernel.harness import Kernel


@pytest.fixture
def here(workspace: Path) -> Path:
    path = workspace / "here"
    path.mkdir()
    return path


@pytest.fixture
def kernel(spawn: Callable[..., Kernel], here: Path) -> Kernel:
    return spawn(working_dir=str(here))


def test_it_starts_there(kernel: Kernel, here: Path) -> None:
    r = kernel.run("import os; os.getcwd()")
    assert (r.result, r.out) == (repr(str(here)), "")


@pytest.mark.parametrize("code", ["%cd ..", "import os; os.chdir('..')", "import os; os.chdir('/')\n1/0"])
def test_it_is_restored_with_a_notice(kernel: Kernel, here: Path, code: str) -> None:
    assert f"[cellgate] cwd reset to {here}\n" in kernel.run(code).out
    r = kernel.run("import os; os.getcwd()")
    assert (r.result, r.out) == (repr(str(here)), "")


def test_a_deleted_directory_is_left(kernel: Kernel, here: Path) -> None:
    r = kernel.run("import os\nos.makedirs('/tmp/gone')\nos.chdir('/tmp/gone')\nos.rmdir('/tmp/gone')")
    assert r.out == f"[cellgate] cwd reset to {here}\n"
    assert kernel.run("os.getcwd()").result == repr(str(here))


def test_a_working_directory_that_is_deleted_is_the_cells_error(kernel: Kernel, here: Path) -> None:
    r = kernel.run("import os\nos.chdir('..')\nos.rmdir('here')")
    assert r.reply["ename"] == "FileNotFoundError"
    assert kernel.run("os.mkdir('here'); 1").result == "1"


def test_commands_and_imports_begin_there(kernel: Kernel, here: Path) -> None:
    (here / "mod.py").write_text("x = 5\n")
    kernel.run("%cd ..")
    assert kernel.run("import mod; mod.x").result == "5"
    assert kernel.run("!pwd").out == f"{here}\n"


def test_without_one_a_change_stays(spawn: Callable[..., Kernel], workspace: Path) -> None:
    kernel = spawn()
    assert "reset" not in kernel.run("import os; os.mkdir('sub'); os.chdir('sub')").out
    assert kernel.run("os.getcwd()").result == repr(str(workspace / "sub"))
