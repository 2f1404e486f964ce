"""The test suites of Jupyter's clients, run with ipykernel and with cellgate's kernel as `python3`.

Each test that passes with ipykernel must pass with ours, but for those in suites-exceptions.txt, each with its reason.
An exception that passes, or that does not pass with ipykernel either, is an error as well: the list stays true. The
suites come from the source distributions of pinned versions. Run by scripts/suites with Debian's Python.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
EXCEPTIONS = REPO / "scripts/suites-exceptions.txt"
# Packages that the suites need. The kernel's own IPython is the one of share/kernel-requirements.
PACKAGES = (
    "ipython==9.18.1",
    "ipywidgets==8.1.9",
    "nbconvert==7.17.2",
    "notebook==7.6.5",
    "debugpy==1.8.22",
    "matplotlib",
    "pytest==9.2.0",
    "pytest-asyncio==1.5.0",
    "pytest-cov==7.1.0",
    "pytest-env==1.8.5",
    "pytest-jupyter[client]==0.11.0",
    "pytest-mock==3.17.0",
    "pytest-timeout==2.4.0",
    "boto3",
    "flaky==3.8.1",
    "ipyparallel",
    "moto==5.0.28",
    "msgpack",
    "psutil",
    "requests",
    "testpath",
    "trio",
    "xmltodict",
    "azure-datalake-store",
    "azure-identity",
    "azure-storage-blob",
    "hatchling",
    "setuptools",
    "wheel",
)
ENVIRONMENTS = ("ipykernel", "cellgate")
LONGEST_S = 3600


@dataclass(frozen=True)
class Suite:
    """One package and where its tests are."""

    package: str
    version: str
    tests: str
    reached: int  # how many of its tests use a kernel of cellgate, at least

    @property
    def folder(self) -> str:
        return f"{self.package}-{self.version}"


SUITES = (
    Suite("ipykernel", "7.4.0", "tests", 95),
    Suite("nbclient", "0.11.0", "tests", 45),
    Suite("jupyter_client", "8.10.0", "tests", 65),
    Suite("papermill", "2.7.0", "papermill/tests", 11),
)


def run(*argv: str | Path, **options: object) -> None:
    """Run a program; its failure ends this one."""
    r = subprocess.run([str(a) for a in argv], check=False, **options)  # type: ignore[call-overload]
    if r.returncode != 0:
        sys.exit(f"{argv[0]} failed with status {r.returncode}: {' '.join(map(str, argv))}")


def prepare(work: Path) -> None:
    """Two equal environments, and the sources; what is there already stays."""
    stamp = work / "prepared"
    wanted = "\n".join([*(f"{s.package}=={s.version}" for s in SUITES), *PACKAGES])
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name in ENVIRONMENTS:
        # Made twice, not copied: console scripts of a copy would run the other one's Python.
        run("/usr/bin/python3", "-m", "venv", work / name)
        run(work / name / "bin/pip", "install", "-q", *wanted.split("\n"))
    pip = work / ENVIRONMENTS[0] / "bin/pip"
    for suite in SUITES:
        options = ("-q", "--no-deps", "--no-build-isolation", "--no-binary", suite.package)
        run(pip, "download", *options, "-d", work, f"{suite.package}=={suite.version}")
        run("tar", "-xzf", work / f"{suite.folder}.tar.gz", "-C", work)
    stamp.write_text(wanted)


def install(cellgate: Path, env: Path) -> None:
    """Our kernelspec as python3; the kernels have the packages of the tests."""
    shutil.rmtree(env / "share/jupyter/kernels/python3", ignore_errors=True)
    options = ("--prefix", env, "--name", "python3", "--kernel-env", env, "--linger", "5")
    run(cellgate, "jupyter", "install", *options, "--display-name", "Python 3 (ipykernel)", stdout=subprocess.DEVNULL)
    # Through a script that records each start, for suites_plugin.py.
    spec = env / "share/jupyter/kernels/python3/kernel.json"
    program = env / "counted"
    program.write_text('#!/bin/sh\necho "$PYTEST_CURRENT_TEST" >>"${CELLGATE_STARTS:-/dev/null}"\nexec "$@"\n')
    program.chmod(0o755)
    content = json.loads(spec.read_text())
    spec.write_text(json.dumps({**content, "argv": [str(program), *content["argv"]]}))


def end_supervisors(folder: Path) -> None:
    """Those that linger there."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if words and words[0].endswith(b"cellgate-supervisor") and any(bytes(folder) in w for w in words):
            os.kill(int(entry.name), signal.SIGTERM)


def outcomes(report: Path) -> dict[str, str]:
    """Each test's outcome by its name: passed, skipped, failed."""
    found: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        bad = any(case.find(tag) is not None for tag in ("failure", "error"))
        outcome = "failed" if bad else "skipped" if case.find("skipped") is not None else "passed"
        if found.get(name) != "failed":
            found[name] = outcome
    return found


def run_suite(work: Path, suite: Suite, env: str, *options: str) -> dict[str, str]:
    """Outcomes of one suite with one kernel. The log and the report stay in the work folder."""
    out = work / f"{suite.package}-{env}"
    report = out.with_suffix(".xml")
    report.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="cgs-", dir="/tmp") as scratch:
        folder = Path(scratch)
        (folder / "home").mkdir()
        environ = os.environ | {
            "HOME": str(folder / "home"),
            "XDG_RUNTIME_DIR": scratch,
            "PATH": f"{work / env / 'bin'}:{os.environ['PATH']}",
            "CELLGATE_PRIVATE": "1",
        }
        argv = [work / env / "bin/python", "-m", "pytest", suite.tests, "-q", "-p", "no:cacheprovider", "-W", "default"]
        argv += ["--color=no", "-o", "log_cli=false", f"--junitxml={report}", *options]
        if env == "cellgate":
            starts = out.with_suffix(".starts")
            starts.write_text("")
            starts.with_suffix(".tests").write_text("")
            environ["CELLGATE_STARTS"] = str(starts)
            environ["CELLGATE_SPEC"] = str(work / env / "share/jupyter/kernels/python3/kernel.json")
            environ["PYTHONPATH"] = str(Path(__file__).parent)
            argv += ["-p", "suites_plugin"]
        with open(out.with_suffix(".log"), "w") as log:
            subprocess.run(
                [str(a) for a in argv],
                cwd=work / suite.folder,
                env=environ,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=LONGEST_S,
                check=False,
            )
        end_supervisors(folder)
    if not report.exists():
        sys.exit(f"{suite.package} with {env} did not run: {out.with_suffix('.log')}")
    return outcomes(report)


def read_exceptions() -> dict[tuple[str, str], str]:
    """(package, test): the reason. A line each: package, test, |, reason."""
    found = {}
    for line in EXCEPTIONS.read_text().splitlines():
        if line and not line.startswith("#"):
            name, bar, reason = line.partition(" | ")
            package, _, test = name.partition(" ")
            if not bar or not reason or not test:
                sys.exit(f"{EXCEPTIONS}: no reason: {line}")
            found[package, test.strip()] = reason
    return found


def again_alone(work: Path, suite: Suite, failed: list[str]) -> dict[str, str]:
    """Once more, only these: what a busy machine has failed passes now."""
    names = " or ".join(sorted({name.rpartition("::")[2].partition("[")[0] for name in failed}))
    kept = {p: p.read_bytes() for p in work.glob(f"{suite.package}-cellgate.*")}
    found = run_suite(work, suite, "cellgate", "-k", names)
    for path, data in kept.items():
        path.write_bytes(data)
    return {name: found[name] for name in failed if name in found}


def check(work: Path, suite: Suite, exceptions: dict[tuple[str, str], str]) -> list[str]:
    """Return the errors of one suite."""
    started = time.monotonic()
    theirs = run_suite(work, suite, "ipykernel")
    ours = run_suite(work, suite, "cellgate")
    reached = len(set((work / f"{suite.package}-cellgate.tests").read_text().splitlines()))
    expected = {test for package, test in exceptions if package == suite.package}
    passed = {name for name, outcome in theirs.items() if outcome == "passed"}
    lost = [name for name in sorted(passed) if ours.get(name) != "passed" and name not in expected]
    if lost:
        ours |= again_alone(work, suite, lost)
    wrong = [f"{name}: {ours.get(name, 'not run')}" for name in lost if ours.get(name) != "passed"]
    for name in sorted(expected):
        if ours.get(name) == "passed":
            wrong.append(f"{name}: passes, but {EXCEPTIONS.name} excepts it")
        elif name not in passed:
            theirs_is = theirs.get(name, "not there")
            wrong.append(f"{name}: {EXCEPTIONS.name} excepts it, and with ipykernel it is {theirs_is}")
    if not passed:
        wrong.append(f"no test passes with ipykernel: {work / suite.package}-ipykernel.log says why")
    if reached < suite.reached:
        wrong.append(f"{reached} tests reached a kernel of cellgate, and {suite.reached} did once")
    good = sum(ours.get(name) == "passed" for name in passed)
    print(
        f"{suite.folder}: {len(theirs)} tests, {len(passed)} pass with ipykernel, {good} of them with cellgate, "
        f"{reached} tests reached its kernel, "
        f"{len(expected)} exceptions, {len(wrong)} wrong; {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return [f"{suite.package} {line}" for line in wrong]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/suites", description=__doc__)
    program, work = REPO / "build/test/root/bin/cellgate", REPO / ".deps/suites"
    names = [s.package for s in SUITES]
    parser.add_argument("--cellgate", type=Path, default=program, help="the installed program")
    parser.add_argument("--work", type=Path, default=work, help="environments, sources, logs (default: .deps/suites)")
    parser.add_argument("--only", choices=names, action="append", help="this suite; may be repeated")
    args = parser.parse_args()
    if not args.cellgate.exists():
        sys.exit(f"{args.cellgate} is not there: build and install first, or give --cellgate")
    work = args.work.resolve()
    exceptions = read_exceptions()
    prepare(work)
    install(args.cellgate, work / "cellgate")
    wrong = []
    for suite in SUITES:
        if not args.only or suite.package in args.only:
            wrong += check(work, suite, exceptions)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
