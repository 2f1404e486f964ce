"""The environment that a client names: by whom it is refused, and that none of it runs before."""

from __future__ import annotations

from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client
from kernel_environment import PACKAGES, copy_environment


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """A virtual environment with the packages of the built-in one."""
    path = copy_environment(tmp_path / "env")
    (path / PACKAGES / "mine.py").write_text("value = 7")
    return path


def test_its_packages_are_imported_and_cannot_be_changed(env: Path, workspace: Path) -> None:
    with Client(kernel_env=str(env), no_spare=1) as client, client.session(workspace=workspace) as session:
        assert session.run("import mine, sys; print(mine.value, sys.prefix)").stdout == f"7 {env}\n"
        assert "Read-only" in session.run("open(mine.__file__, 'w')").result.text


def test_each_session_is_checked(env: Path, workspace: Path) -> None:
    mark = env.parent / "mark"
    (env / PACKAGES / "spy.pth").write_text(f"import os; open({str(mark)!r}, 'w')\n")
    with Client(kernel_env=str(env), no_spare=1) as client:
        with pytest.raises(CellgateError, match="cells could write"):
            client.session(workspace=env.parent)
        with pytest.raises(CellgateError, match="cells could write"):
            client.session(workspace=env / "lib")
        assert not mark.exists()  # nothing of it has run
        with client.session(workspace=workspace) as session:
            assert session.run("import mine; mine.value").value == "7"
        assert mark.exists()
        with pytest.raises(CellgateError, match="cells could write"):
            client.session(workspace=env.parent)
        # Without a sandbox cells can do anything; nothing is kept from them.
        with client.session(workspace=env.parent, sandbox=1) as session:
            assert session.run("import mine; mine.value").value == "7"


def test_names_and_folders_that_are_not_there(tmp_path: Path) -> None:
    for name, why in (
        ("no-such-env", "cellgate env create"),
        (str(tmp_path / "no"), "cellgate env create"),
        ("a b", "not a name"),
    ):
        with pytest.raises(CellgateError, match=why):
            Client(kernel_env=name)


def test_one_that_changes_is_refused(env: Path, workspace: Path) -> None:
    (env / ".cellgate-env").write_text("changing\n")
    with Client(kernel_env=str(env), no_spare=1) as client, pytest.raises(CellgateError, match="being changed"):
        client.session(workspace=workspace)
