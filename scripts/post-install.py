"""Run by `meson install` when all files are in place: what an installation needs besides its files.

  post-install.py PYTHON LIBDIR LIBEXECDIR

Removes what an earlier version installed in cellgate's own folders and this one does not, makes byte code (kernels
cannot write there), and on the running system has the dynamic linker find the library and AppArmor know the programs.
With DESTDIR the last two are left to the package that is being made.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SBIN = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def installed() -> set[Path]:
    """Every file that this version installs."""
    introspect = [*shlex.split(os.environ["MESONINTROSPECT"]), "--installed", os.environ["MESON_BUILD_ROOT"]]
    found = subprocess.run(introspect, check=True, capture_output=True, text=True).stdout
    files = set()
    for source, target in json.loads(found).items():
        if Path(source).is_dir():
            files |= {Path(target) / p.relative_to(source) for p in Path(source).rglob("*")}
        else:
            files.add(Path(target))
    return files


def remove_stale(destdir: str, folders: list[Path]) -> None:
    """Folders that are cellgate's alone hold nothing but what this version installs."""
    keep = installed()
    for folder in folders:
        top = Path(f"{destdir}{folder}")
        for path in sorted(top.rglob("*"), reverse=True):
            if folder / path.relative_to(top) in keep:
                continue
            if path.is_dir() and not path.is_symlink():
                if path.name == "__pycache__":
                    shutil.rmtree(path)
                elif not any(path.iterdir()):
                    path.rmdir()
            elif "__pycache__" not in path.parts:
                path.unlink()


def linker_looks_in(libdir: str) -> bool:
    listed = subprocess.run(["ldconfig", "-v", "-N", "-X"], env={"PATH": SBIN}, capture_output=True, text=True).stdout
    return any(line.startswith(f"{libdir}:") for line in listed.splitlines()) or libdir.startswith(("/usr/lib", "/lib"))


def register_library(libdir: str) -> None:
    if not shutil.which("ldconfig", path=SBIN) or not linker_looks_in(libdir):
        return  # cellgate.pc names the folder to the programs that are linked with the library
    if os.geteuid() == 0:
        subprocess.run(["ldconfig"], env={"PATH": SBIN}, check=True)
    else:
        print("cellgate: run `ldconfig` as root: programs find libcellgate.so.0 only then")


def main() -> None:
    python, libdir, libexecdir = sys.argv[1:]
    destdir = os.environ.get("DESTDIR", "")
    stubs = Path(libdir, "cellgate/python")
    # Not DATADIR/cellgate: in ~/.local it is also where a user's environments are.
    remove_stale(destdir, [stubs, Path(libdir, "cellgate/package"), Path(libexecdir)])
    paths = ["-s", destdir, "-p", "/"] if destdir else []
    subprocess.run([python, "-m", "compileall", "-q", *paths, f"{destdir}{stubs}"], check=True)
    if not destdir:
        register_library(libdir)
        subprocess.run(["/bin/sh", f"{libexecdir}/apparmor", "--if-needed"], check=True)


if __name__ == "__main__":
    main()
