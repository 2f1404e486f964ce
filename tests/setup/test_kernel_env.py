"""scripts/kernel-env-install: an update keeps the packages that were added; what was left unfinished is made anew."""

import os
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest


def make_wheel(folder: Path, version: str) -> None:
    info = f"thing-{version}.dist-info"
    with zipfile.ZipFile(folder / f"thing-{version}-py3-none-any.whl", "w") as z:
        z.writestr("thing.py", f"version = {version!r}\n")
        z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: thing\nVersion: {version}\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")


@dataclass
class Tree:
    """The scripts, and requirements that need no network: one package, of which there are the versions 1 and 2."""

    path: Path
    env: Path

    def require(self, version: str) -> None:
        (self.path / "python_stubs/kernel-requirements.txt").write_text(f"thing=={version}\n")

    def install(self) -> subprocess.CompletedProcess[str]:
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.path), "PIP_CONFIG_FILE": os.devnull}
        return subprocess.run(
            [self.path / "scripts/kernel-env-install", self.env],
            capture_output=True,
            text=True,
            timeout=110,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.path), **pip},
        )

    @property
    def site(self) -> Path:
        return next(self.env.glob("lib/python3*/site-packages"))


@pytest.fixture
def tree(repo: Path, tmp_path: Path) -> Tree:
    path = tmp_path / "tree"
    shutil.copytree(repo / "scripts", path / "scripts")
    (path / "python_stubs").mkdir()
    for version in "12":
        make_wheel(path, version)
    return Tree(path, tmp_path / "env")


def test_what_was_left_unfinished_is_made_anew_and_an_update_keeps_what_was_added(tree: Tree) -> None:
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", tree.env], check=True)
    tree.require("1")
    p = tree.install()
    assert (p.returncode, "making" in p.stdout) == (0, True), p.stderr
    assert (tree.site / "thing.py").exists()
    (tree.site / "added.py").write_text("")
    p = tree.install()
    assert (p.returncode, p.stdout) == (0, "")
    tree.require("3")
    assert tree.install().returncode != 0
    tree.require("2")
    p = tree.install()
    assert (p.returncode, "updating" in p.stdout) == (0, True), p.stderr
    assert (tree.site / "thing.py").read_text() == "version = '2'\n"
    assert (tree.site / "added.py").exists()
