"""Makes what a release consists of, in build/release: the source archive, wheels, Debian packages, the npm package,
notes, checksums.

  scripts/release.py [--out DIR] [--debian] [--unfinished] [PYTHON...]

PYTHON: interpreters of the wheels, see scripts/build_wheels.py; none: no wheels. --debian builds the Debian packages
from the source archive, for the Debian that this runs on: `apt-get build-dep ./` installs what that needs, and
debian/rules needs a network that reaches the Python package index. The version is meson.build's. Refused
where the work tree has changes, or CHANGELOG.md has no dated section of the version; --unfinished makes it anyway.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent


def run(*argv: str | Path, cwd: Path = REPO) -> str:
    return subprocess.run([str(a) for a in argv], cwd=cwd, stdout=subprocess.PIPE, text=True, check=True).stdout


def debian_packages(archive: Path, out: Path) -> None:
    """Binary packages of the source archive, without those of debugging symbols."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder], check=True)
        (source,) = Path(folder).iterdir()
        argv = ["dpkg-buildpackage", "-us", "-uc", "-b"]
        subprocess.run(argv, cwd=source, env={**os.environ, "DEB_BUILD_OPTIONS": "noautodbgsym"}, check=True)
        for package in Path(folder).glob("*.deb"):
            shutil.move(package, out)


def section(version: str) -> tuple[str, str]:
    """What CHANGELOG.md has after the version in its heading, and below it."""
    changes = (REPO / "CHANGELOG.md").read_text()
    found = re.search(rf"^## \[{re.escape(version)}\] - (.*)\n([^\0]*?)(?=^## \[|\Z)", changes, re.MULTILINE)
    return (found[1], found[2].strip() + "\n") if found else ("", "")


def main() -> str | None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, default=REPO / "build/release", help="where it is put (build/release)")
    ap.add_argument("--debian", action="store_true", help="also Debian packages")
    ap.add_argument("--unfinished", action="store_true", help="also with changes, and without a date")
    ap.add_argument("python", nargs="*", metavar="PYTHON", help="an interpreter, 3.11 to 3.14")
    opt = ap.parse_args()
    version = re.findall(r"^  version: '(.+)',$", (REPO / "meson.build").read_text(), re.MULTILINE)[0]
    date, notes = section(version)
    if not opt.unfinished and run("git", "status", "--porcelain"):
        return "the work tree has changes: commit them"
    if not opt.unfinished and not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        return f'CHANGELOG.md has no heading "## [{version}] - YEAR-MONTH-DAY"'
    opt.out.mkdir(parents=True, exist_ok=True)
    if any(opt.out.iterdir()):
        return f"{opt.out} is not empty"
    name = f"cellgate-{version}"
    run("git", "archive", f"--prefix={name}/", "-o", opt.out.resolve() / f"{name}.tar.gz", "HEAD")
    if opt.debian:
        debian_packages(opt.out / f"{name}.tar.gz", opt.out)
    run("npm", "pack", "--silent", "--pack-destination", opt.out.resolve(), REPO / "npm")
    if opt.python:
        run(sys.executable, "-B", REPO / "scripts/build_wheels.py", "--out", opt.out.resolve(), *opt.python)
    sums = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in sorted(opt.out.iterdir())]
    (opt.out / "SHA256SUMS").write_text("".join(sums))
    (opt.out / "NOTES.md").write_text(notes)
    print(*(f"{f}" for f in sorted(opt.out.iterdir())), sep="\n")
    return None


if __name__ == "__main__":
    sys.exit(main())
