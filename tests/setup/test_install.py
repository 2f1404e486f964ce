"""`meson install`: the library is found, an update leaves nothing of the version before, the uninstallation nothing at all.

The installed tree is shared with other tests: a copy of it is bound over its place, in a private view of the file system.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Installed:
    """A private copy of the installed tree, at its own path for those who run in its view."""

    prefix: Path
    copy: Path
    build_dir: Path

    def run(self, *argv: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        view: list[str | Path] = ["bwrap", "--dev-bind", "/", "/", "--bind", self.copy, self.prefix]
        return subprocess.run(
            [str(a) for a in [*view, *argv]],
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )

    def meson_install(self) -> None:
        p = self.run("meson", "install", "-C", self.build_dir, "--no-rebuild")
        assert p.returncode == 0, p.stdout + p.stderr

    def uninstall(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.prefix / "libexec/cellgate/uninstall", *args)

    def files(self) -> set[str]:
        """Without what Python has compiled of the package: tests that use it do so at any time."""
        found = {str(p.relative_to(self.copy)) for p in self.copy.rglob("*")}
        return {f for f in found if not ("/package/" in f and "__pycache__" in f)}


@pytest.fixture
def installed(prefix: Path, build_dir: Path, tmp_path: Path) -> Installed:
    copy = tmp_path / "root"
    shutil.copytree(prefix, copy, symlinks=True)
    return Installed(prefix, copy, build_dir)


def test_an_update_leaves_nothing_of_the_version_before(installed: Installed) -> None:
    before = installed.files()
    python = installed.copy / "lib/cellgate/python"
    stale = ["cellgate_kernel/gone.py", "gone/__init__.py", "cellgate_kernel/__pycache__/gone.cpython-311.pyc"]
    for path in [*(python / s for s in stale), installed.copy / "libexec/cellgate/cellgate-gone"]:
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    kept = [
        "lib/cellgate/kernel-env",
        "lib/cellgate/kernel-env/added.py",
        "share/cellgate/envs",
        "share/cellgate/envs/science",
    ]
    for path in kept:
        (installed.copy / path).mkdir()
    installed.meson_install()
    assert installed.files() == before | set(kept)
    p = installed.run(installed.prefix / "bin/cellgate", "run", "-c", "print(6 * 7)")
    assert (p.stdout, p.returncode) == ("42\n", 0)


def test_byte_code_is_installed(installed: Installed) -> None:
    """Kernels cannot write it."""
    package = installed.copy / "lib/cellgate/python/cellgate_kernel"
    shutil.rmtree(package / "__pycache__")
    installed.meson_install()
    compiled = {p.name.partition(".")[0] for p in (package / "__pycache__").iterdir()}
    assert compiled == {p.stem for p in package.glob("*.py")}


def test_destdir_holds_everything_and_nothing_else_is_touched(installed: Installed, tmp_path: Path) -> None:
    shutil.rmtree(installed.copy)
    installed.copy.mkdir()
    dest = tmp_path / "dest"
    p = installed.run("meson", "install", "-C", installed.build_dir, "--no-rebuild", "--destdir", dest)
    assert p.returncode == 0, p.stdout + p.stderr
    assert installed.files() == set()
    root = Path(f"{dest}{installed.prefix}")
    assert (root / "bin/cellgate").is_file()
    assert list((root / "lib/cellgate/python/cellgate_kernel/__pycache__").iterdir())


def test_uninstall_leaves_nothing(installed: Installed) -> None:
    (installed.copy / "lib/cellgate/kernel-env/bin").mkdir(parents=True)
    (installed.copy / "bin/srt").symlink_to("cellgate")
    p = installed.uninstall()
    assert (p.returncode, p.stderr) == (0, "")
    assert installed.files() == set()


def test_uninstall_leaves_what_is_not_its_own(installed: Installed) -> None:
    for name in ("bin/srt", "lib/libother.so", "lib/pkgconfig/other.pc", "libexec/other"):
        (installed.copy / name).write_text("")
    (installed.copy / "lib/cellgate/kernel-env/bin").mkdir(parents=True)
    # With the prefix ~/.local: what `cellgate env create science` makes.
    (installed.copy / "share/cellgate/envs/science").mkdir(parents=True)
    p = installed.uninstall("--keep-kernel-env")
    assert (p.returncode, p.stderr) == (0, "")
    assert {f for f in installed.files() if not (installed.copy / f).is_dir()} == {
        "bin/srt",
        "lib/libother.so",
        "lib/pkgconfig/other.pc",
        "libexec/other",
    }
    assert (installed.copy / "lib/cellgate/kernel-env/bin").is_dir()
    assert (installed.copy / "share/cellgate/envs/science").is_dir()


def test_uninstall_usage(installed: Installed) -> None:
    before = installed.files()
    p = installed.uninstall("--nonsense")
    assert (p.returncode, p.stdout) == (2, "")
    p = installed.uninstall("--help")
    assert (p.returncode, p.stderr) == (0, "")
    assert "kernelspec remove" in p.stdout
    assert installed.files() == before


def test_uninstall_by_another_user_names_the_command(installed: Installed, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.owner() == "root" and parent != Path("/tmp") and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    before = installed.files()
    user = ["setpriv", "--reuid=61235", "--regid=61235", "--clear-groups", "--"]
    p = installed.run(*user, installed.prefix / "libexec/cellgate/uninstall")
    assert p.returncode == 1
    assert f"sudo {installed.prefix}/libexec/cellgate/uninstall" in p.stderr
    assert installed.files() == before


def test_ldconfig_is_run_for_a_folder_that_the_linker_looks_in(repo: Path, prefix: Path, tmp_path: Path) -> None:
    """The real one, on a copy of what it writes: a C program then starts without further ado."""
    if os.geteuid() != 0:
        pytest.skip("needs root, as ldconfig does")
    local, etc = tmp_path / "local", tmp_path / "etc"
    (local / "lib").mkdir(parents=True)
    etc.mkdir()
    for name in ("ld.so.conf", "ld.so.cache", "ld.so.conf.d", "passwd", "alternatives"):
        source = Path("/etc", name)
        if source.is_dir():
            shutil.copytree(source, etc / name, symlinks=True)
        elif source.exists():
            shutil.copy(source, etc / name)
    for library in (prefix / "lib").glob("libcellgate.so*"):
        shutil.copy(library, local / "lib", follow_symlinks=False)
    shutil.copy(prefix / "include/cellgate.h", tmp_path)
    program = tmp_path / "minimal"
    flags = ["-std=c11", f"-I{tmp_path}", f"-L{local / 'lib'}", "-lcellgate", "-Wl,--allow-shlib-undefined"]
    subprocess.run(["cc", repo / "examples/minimal.c", "-o", program, *flags], check=True, timeout=60)
    view = ["bwrap", "--dev-bind", "/", "/", "--bind", local, "/usr/local", "--bind", etc, "/etc"]

    def ldd() -> str:
        return subprocess.run([*view, "ldd", program], capture_output=True, text=True, timeout=60).stdout

    def register(libdir: str) -> subprocess.CompletedProcess[str]:
        code = "import importlib.util as u; s = u.spec_from_file_location('p', {0!r}); m = u.module_from_spec(s); s.loader.exec_module(m); m.register_library({1!r})"
        argv: Sequence[str | Path] = [
            *view,
            sys.executable,
            "-B",
            "-c",
            code.format(str(repo / "scripts/post-install.py"), libdir),
        ]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    assert "libcellgate.so.0 => not found" in ldd()
    assert register("/opt/cellgate/lib").returncode == 0
    assert "libcellgate.so.0 => not found" in ldd()
    p = register("/usr/local/lib")
    assert (p.returncode, p.stdout, p.stderr) == (0, "", "")
    assert "libcellgate.so.0 => /usr/local/lib/libcellgate.so.0" in ldd()
