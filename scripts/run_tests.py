"""Builds cellgate in every way its tests need, runs them all, and adds up the results.

Run by scripts/test (which first installs what is missing) with Debian's Python, standard library only. A step is a
function that records single tests in a Tally; the last line printed is the sum over all steps. A step that cannot
run at all is one failed test, never silence.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import changed

REPO = Path(__file__).resolve().parent.parent
DEPS = REPO / ".deps"
LOGS = DEPS / "log"
BUILDS = REPO / "build"
TEST_PYTHON = DEPS / "test-env/bin/python"
KERNEL_ENV = DEPS / "kernel-env"
# --rootdir: else the folder tests/mcp would be the package `mcp`, and hide the SDK of that name.
PYTEST = (TEST_PYTHON, "-m", "pytest", "-c", REPO / "tests/pytest.ini", f"--rootdir={REPO}")
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
JOBS = len(os.sched_getaffinity(0))
# Processes of pytest: tests wait for about half of their time, and at any time one of them waits for a deadline.
WORKERS = 2 * JOBS + 1
# Limit of a run of pytest; it takes a third of it on a machine that does nothing else.
PYTEST_S = 3000
# With sanitizers the deadlines of tests are five times as long, so more of them can run at once.
SANITIZED_WORKERS = 4 * JOBS
# Niceness of the steps that run beside the tests.
BESIDE_NICE = 5
# Two builds of one folder would disturb each other.
build_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
interrupted = threading.Event()

SANITIZER_ENV = {
    # allocator_may_return_null: libzmq tries to allocate what a hostile peer announces, and handles the failure.
    "ASAN_OPTIONS": "allocator_may_return_null=1:abort_on_error=0:handle_abort=1"
    ":detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "LSAN_OPTIONS": "print_suppressions=0",
    "TSAN_OPTIONS": f"halt_on_error=1:second_deadlock_stack=1:suppressions={REPO}/scripts/tsan.supp",
}


@dataclass
class Tally:
    """Results of the tests of one step, by name."""

    passed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def record(self, name: str, failure: str | None) -> None:
        """One test: passed where failure is None, else failed with that text."""
        if failure is None:
            self.passed += 1
        else:
            self.failed.append((name, failure))

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


class StepError(Exception):
    """The step could not run to its end; the text says why and where the log is."""


def run(
    name: str, argv: Sequence[str | Path], limit_s: float, env: Mapping[str, str] | None = None, cwd: Path = REPO
) -> tuple[int, Path]:
    """Runs one command with a deadline, its output in a log file. Returns its exit status and the log.

    At the deadline the command's whole process group is killed and the status is 124; before, its Python programs say
    in the log where they are.
    """
    if interrupted.is_set():
        raise KeyboardInterrupt
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"test-{name}.log"
    with log.open("wb") as out:
        out.write(f"$ {shlex.join(map(str, argv))}\n".encode())
        out.flush()
        proc = subprocess.Popen(
            [str(a) for a in argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        if threading.current_thread() is not threading.main_thread():
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PGRP, proc.pid, BESIDE_NICE)
        try:
            return wait(proc, limit_s), log
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as e:
            if not isinstance(e, KeyboardInterrupt):
                abort_python(proc.pid)
            os.killpg(proc.pid, signal.SIGKILL)
            proc.wait()
            if isinstance(e, KeyboardInterrupt):
                raise
            out.write(f"\nended after {limit_s:.0f} s\n".encode())
            return 124, log


def wait(proc: subprocess.Popen[bytes], limit_s: float) -> int:
    """Waits for a process. Raises KeyboardInterrupt in every thread once the main thread has been interrupted."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return proc.wait(min(1, max(0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if interrupted.is_set():
                raise KeyboardInterrupt from None
            if time.monotonic() >= deadline:
                raise


def abort_python(group: int) -> None:
    """Aborts the Python programs of a process group, at which pytest's say where each thread is; one after the other,
    for they write into one file."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().startswith("python"):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    os.kill(int(entry.name), signal.SIGABRT)
                    time.sleep(0.5)
        except OSError:  # ended meanwhile
            continue


def tail(log: Path, lines: int = 40) -> str:
    return "\n".join(line[:1000] for line in log.read_text(errors="replace").splitlines()[-lines:])


def shorten(text: str, lines: int = 40) -> str:
    """The end of a long text: there a traceback says what happened."""
    all_lines = text.splitlines()
    left_out = len(all_lines) - lines
    return text if left_out <= 0 else "\n".join([f"... ({left_out} lines left out)", *all_lines[-lines:]])


def where_it_hung(log: Path) -> str:
    """Return the stacks that Python's faulthandler wrote into a log, without lines of libraries; "": none."""
    lines = log.read_text(errors="replace").splitlines()
    starts = ("Timeout (0:", "Fatal Python error: ")  # after the dots of a line of progress
    first = next((i for i, line in enumerate(lines) if any(s in line for s in starts)), len(lines))
    heads = (*starts, "Thread 0x", "Current thread 0x")
    ours = '  File "'
    libraries = "/site-packages/"
    found = [n for n in lines[first:] if any(h in n for h in heads) or (n.startswith(ours) and libraries not in n)]
    return "\n".join(found)


def must(name: str, argv: Sequence[str | Path], limit_s: float, env: Mapping[str, str] | None = None) -> None:
    """Runs a command that has to succeed for the step to make sense."""
    status, log = run(name, argv, limit_s, env)
    if status != 0:
        raise StepError(f"{shlex.join(map(str, argv))}: exit status {status}; the end of {log}:\n{tail(log)}")


def read_junit(file: Path, prefix: str) -> Tally:
    """Counts the test cases of a JUnit report, as pytest and meson write them."""
    tally = Tally()
    # meson copies what tests print, control characters too, which XML cannot hold.
    text = NOT_XML.sub("?", file.read_text(encoding="utf-8", errors="replace"))
    for case in ET.fromstring(text.encode()).iter("testcase"):
        name = f"{prefix}{case.get('classname') or ''}::{case.get('name')}"
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skip = case.find("skipped")
        if bad is not None:
            said = [bad.text, bad.get("message"), case.findtext("system-out"), case.findtext("system-err")]
            tally.failed.append((name, "\n".join(t.strip() for t in said if t and t.strip())))
        elif skip is not None:
            tally.skipped.append((name, (skip.get("message") or skip.text or "no reason given").strip()))
        else:
            tally.passed += 1
    return tally


# ---------------------------------------------------------------- builds


def build(name: str, *options: str, install: bool = True, cc: str = "gcc", targets: Sequence[str] = ()) -> Path:
    """Configures (once) and builds build/NAME; installs it in build/NAME/root. Returns the build folder.

    Without targets it builds everything. Uses ccache where that is installed.
    """
    with build_locks[name]:
        return build_locked(name, *options, install=install, cc=cc, targets=targets)


def build_locked(name: str, *options: str, install: bool, cc: str, targets: Sequence[str]) -> Path:
    folder = BUILDS / name
    cc = f"ccache {cc}" if shutil.which("ccache") else cc
    wanted = json.dumps([options, cc])
    stamp = folder / ".options"
    if folder.exists() and (not stamp.exists() or stamp.read_text() != wanted):
        shutil.rmtree(folder)
    if not folder.exists():
        argv = ["meson", "setup", folder, REPO, f"--prefix={folder}/root", f"-Dkernel_env={KERNEL_ENV}", *options]
        try:
            must(f"{name}-setup", argv, 300, {"CC": cc})
        except StepError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        stamp.write_text(wanted)
    # Without the folder's name in the key ccache has more than half of the wheel's objects from build/test, by their
    # preprocessed text. Other builds share none, so that the preprocessor need not run by itself.
    env = {"CCACHE_NOHASHDIR": "1"} if name in ("test", "wheel") else {"CCACHE_DEPEND": "1"}
    must(f"{name}-build", ["ninja", "-C", folder, *targets], 1200, env)
    if install and name not in installed:
        installed.add(name)
        shutil.rmtree(folder / "root", ignore_errors=True)
        must(f"{name}-install", ["meson", "install", "-C", folder, "--no-rebuild"], 600)
    return folder


# Lines for reports and stacks: all of -g takes the compiler a quarter longer.
LINES = "-Dc_args=-g1"

# Builds that this run has installed: a second installation would replace programs that tests run.
installed: set[str] = set()


def build_main() -> Path:
    return build("test", "-Dwerror=true", LINES, f"-Dpython_package={TEST_PYTHON}")


def build_wheel() -> Path:
    """What a Python wheel has; tests/wheel installs it."""
    return build("wheel", "-Dwerror=true", "-Dwheel=true", LINES, f"-Dpython={TEST_PYTHON}", install=False)


def build_asan() -> Path:
    # b_lundef: the sanitizers' own symbols are undefined in a shared library. optimization: -O2 compiles for longer.
    options = ("-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dwerror=true", "-Doptimization=1", LINES)
    return build("asan", *options, f"-Dpython_package={TEST_PYTHON}")


def build_tsan() -> Path:
    """The client library alone."""
    options = ("-Db_sanitize=thread", "-Db_lundef=false", "-Dtests=false", LINES)
    return build("tsan", *options, install=False, targets=["client-library"])


# ---------------------------------------------------------------- tests


def compile_tests() -> None:
    """Compiles the pytest files, for which each worker would else take 15 seconds."""
    must("collect", [*PYTEST, "--quiet", "--collect-only", REPO / "tests"], 600)


def unit_tests(
    folder: Path, name: str, env: Mapping[str, str] | None = None, wrapper: Sequence[str | Path] = ()
) -> Tally:
    argv: list[str | Path] = ["meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs"]
    argv.append("--timeout-multiplier=10")  # of 30 s: the machine may be busy
    report = folder / "meson-logs/testlog.junit.xml"
    if wrapper:
        argv += [f"--wrapper={shlex.join(map(str, wrapper))}", "--no-suite=no-valgrind"]
        report = report.with_name(f"testlog-{wrapper[0]}.junit.xml")
    report.unlink(missing_ok=True)
    status, log = run(f"{name}-unit", argv, 1200, env)
    tally = read_junit(report, f"{name}:") if report.exists() else Tally()
    if status != 0 and not tally.failed:
        tally.failed.append((f"{name}:meson test", tail(log)))
    if tally.passed + len(tally.failed) + len(tally.skipped) == 0:
        tally.failed.append((f"{name}:meson test", f"no test ran: {tail(log)}"))
    return tally


def pytest(
    folder: Path,
    name: str,
    args: Sequence[str],
    limit_s: float,
    env: Mapping[str, str] | None = None,
    dist: str = "loadfile",
    workers: int = WORKERS,
) -> Tally:
    """Runs pytest with these arguments. dist is xdist's: "loadfile" where the tests of a file share what is expensive
    to start, "loadgroup" where each test starts its own programs (files that do not are groups, by a mark)."""
    report = LOGS / f"{name}-pytest.xml"
    report.unlink(missing_ok=True)
    full_env = {
        "CG_BUILD": str(folder),
        "CG_PREFIX": str(folder / "root"),
        "CG_NPM": str(DEPS / "npm"),
        "CG_PACKAGES_ENV": str(DEPS / "packages-env"),
        "CG_TEST_PYTHON": str(TEST_PYTHON),
        "PYTHONDONTWRITEBYTECODE": "1",
        **(env or {}),
    }
    argv = [
        *PYTEST,
        "-v",  # the log says which tests have begun
        f"--junit-xml={report}",
        "-n",
        str(workers),
        f"--dist={dist}",
        # loadfile: keep the order of tests/conftest.py; loadgroup: start with the groups.
        *(["--no-loadscope-reorder"] if dist == "loadfile" else []),
        # A worker that was killed is a failed test, and the end: with another in its place xdist may wait for ever.
        "--max-worker-restart=0",
    ]
    status, log = run(f"{name}-pytest", [*argv, *args], limit_s, full_env, REPO / "tests")
    tally = read_junit(report, f"{name}:") if report.exists() else Tally()
    hung = where_it_hung(log) if status != 0 else ""
    if hung or (status != 0 and not tally.failed):
        tally.failed.append((f"{name}:pytest", f"exit status {status}:\n{hung}\n{tail(log, 8 if hung else 40)}"))
    left = left_running(folder / "root")
    tally.record(f"{name}:nothing is left running", "\n".join(left) or None)
    return tally


def left_running(prefix: Path) -> list[str]:
    """Processes whose program is an installed one, 30 seconds after the last test at the latest. Descendants of this
    process are skipped: they belong to the step sessions. Processes that tests left have another parent.

    Without a sandbox the attempt "stray-process" of `cellgate selftest` leaves one for 20 seconds.
    """
    import soak  # it imports this module

    deadline = time.monotonic() + 30
    while True:
        found = []
        ours = set(map(str, soak.descendants(os.getpid())))
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or entry.name in ours:
                    continue
                if os.readlink(entry / "exe").startswith(f"{prefix}/"):
                    found.append(f"{entry.name} {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
            except OSError:  # ended meanwhile, or another user's
                continue
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


NOT_ROOT = "needs root: the processes of cellgate hide their /proc files from other processes of their user"


def sessions(name: str, work: Callable[[], list[str]]) -> Tally:
    """One of soak's functions as one test."""
    if os.geteuid() != 0:
        return Tally(skipped=[(name, NOT_ROOT)])
    try:
        wrong = work()
    except StepError as e:
        wrong = [str(e)]
    tally = Tally()
    tally.record(name, "\n".join(wrong) or None)
    return tally


def step_unit(opt: argparse.Namespace) -> Tally:
    """C unit tests (cmocka)"""
    return unit_tests(build_main(), "unit")


# Where C code runs; the generator, the layering and the installation are as they are in any build. tests/api is not
# among them: it loads the library into its own interpreter, which cannot take a sanitized one; the same programs are
# driven by cli and mcp_serve. tests/conftest.py gives their tests the mark "sanitized", except for those that are slow
# or cannot run there.
SANITIZED_TESTS = ("cli", "egress", "jupyter", "kernel", "mcp", "mcp_http", "mcp_serve", "sandbox", "sandbox_command")


def step_pytest(opt: argparse.Namespace) -> Tally:
    """tests of the installed programs (pytest), without those that the step asan runs"""
    folder = build_main()
    if opt.quick:
        return pytest(folder, "test", ["-m", "not slow", *changed.tests(opt.changed)], 600)
    build_wheel()
    if "asan" not in opt.steps:
        return pytest(folder, "test", ["-k", opt.k] if opt.k else [], PYTEST_S)
    return pytest(folder, "test", ["-m", "not sanitized"], PYTEST_S)


LSAN_THREAD_WENT = re.compile(r"Unable to get registers from thread|Running thread \d+ was not suspended")


def only_a_thread_that_went(report: Path) -> bool:
    """LeakSanitizer says so when a thread ends while it looks for leaks at the process's end; it has found nothing."""
    lines = [line for line in report.read_text(errors="replace").splitlines() if line.strip()]
    return all(LSAN_THREAD_WENT.search(line) for line in lines)


def step_asan(opt: argparse.Namespace) -> Tally:
    """unit tests and tests of the programs with AddressSanitizer and UndefinedBehaviorSanitizer"""
    return asan("asan", ["-m", "sanitized", *(["-k", opt.k] if opt.k else [])])


def asan(name: str, args: Sequence[str]) -> Tally:
    folder = build_asan()
    reports = folder / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    # Reports go to files: the programs' standard error is often read by the program under test.
    env = {k: f"{v}:log_path={reports}/report" for k, v in SANITIZER_ENV.items() if k[0] in "AU"}
    tally = unit_tests(folder, name, env)
    env["CG_SANITIZED"] = "address"
    tally.add(pytest(folder, name, [*args, *SANITIZED_TESTS], PYTEST_S, env, "loadgroup", SANITIZED_WORKERS))
    found = [f for f in sorted(reports.iterdir()) if not only_a_thread_that_went(f)]
    text = "\n".join(f.read_text(errors="replace")[:4000] for f in found[:3])
    tally.record(f"{name}:no report", f"{len(found)} reports in {reports}:\n{text}" if found else None)
    return tally


def step_tsan(opt: argparse.Namespace) -> Tally:
    """the client library used by many threads, with ThreadSanitizer"""
    tally = Tally()
    main = build_main()
    folder = build_tsan()
    library = folder / "src/client/libcellgate.so"
    program = folder / "client-threads"
    flags = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=thread", f"-I{REPO}/include"]
    source = REPO / "tests/threads/client-threads.c"
    must(
        "tsan-compile",
        ["gcc", *flags, source, "-o", program, library, f"-Wl,-rpath,{library.parent}", "-lpthread"],
        120,
    )
    supervisor = main / "root/libexec/cellgate/cellgate-supervisor"
    # setarch -R: gcc's ThreadSanitizer does not know the address layouts of newer kernels.
    server = {"command": "/usr/bin/python3", "args": [str(REPO / "tests/api/echo_server.py")]}
    with tempfile.TemporaryDirectory() as workspace:
        argv = ["setarch", "-R", program, supervisor, json.dumps({"echo": server}), workspace]
        status, log = run("tsan-run", argv, 300, SANITIZER_ENV)
    tally.record("tsan:client-threads", None if status == 0 else f"exit status {status}:\n{tail(log, 80)}")
    return tally


# Everything that was allocated must be freed at the end, also what something still points to. fair-sched: else a
# thread that never waits keeps others from running for many seconds. child-silent: a child before its exec would write
# into its parent's log.
VALGRIND = (
    "valgrind",
    "--leak-check=full",
    "--show-leak-kinds=all",
    "--errors-for-leak-kinds=all",
    f"--suppressions={REPO}/scripts/valgrind.supp",
    "--error-exitcode=9",
    "--fair-sched=yes",
    "--child-silent-after-fork=yes",
)


def valgrind_env() -> dict[str, str]:
    """The environment of what runs under valgrind: without it no child process can be started there."""
    library = BUILDS / "valgrind/syscalls.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = REPO / "tests/valgrind/syscalls.c"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    must("valgrind-compile", ["gcc", *flags, source, "-o", library], 120)
    return {"LD_PRELOAD": str(library), "CG_VALGRIND": "1"}  # tests/unit/unit.h


def valgrind_unit_tests() -> Tally:
    return unit_tests(build_main(), "valgrind", valgrind_env(), [*VALGRIND, "--quiet"])


def step_valgrind(opt: argparse.Namespace) -> Tally:
    """unit tests under valgrind"""
    return valgrind_unit_tests()


FUZZ_OPTIONS = ("-Dfuzz=true", "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dtests=false", LINES)


def build_fuzz() -> Path:
    return build("fuzz", *FUZZ_OPTIONS, install=False, cc="clang", targets=["fuzz-targets"])


def fuzz_targets(folder: Path) -> list[Path]:
    found = sorted(p for p in (folder / "tests/fuzz").glob("fuzz-*") if p.is_file() and os.access(p, os.X_OK))
    if not found:
        raise StepError(f"no fuzz target in {folder}/tests/fuzz")
    return found


def case_seeds(name: str, folder: Path) -> None:
    """Writes the cases of the unit test of that name as inputs; their syntax is in tests/unit/cases.h."""
    cases = REPO / f"tests/unit/cases/{name}.txt"
    for number, line in enumerate(cases.read_text().splitlines() if cases.exists() else []):
        if line and not line.startswith(("#", "== ")):
            text = line.split(" => ")[0].encode().decode("unicode_escape")
            (folder / f"case-{number}").write_bytes(text.encode("latin-1"))


def fuzz_one(folder: Path, target: Path, seconds: float) -> str | None:
    """Replays the target's corpus, or searches from it for so long. Returns what went wrong."""
    name = target.name.removeprefix("fuzz-")
    corpus = REPO / "tests/fuzz/corpus" / name
    # libFuzzer writes what it finds into the first folder: a scratch one.
    scratch = folder / "found" / name
    scratch.mkdir(parents=True, exist_ok=True)
    case_seeds(name, scratch)
    folders = [scratch, *([corpus] if corpus.is_dir() else [])]
    env = {}
    if seconds:
        limits = [f"-max_total_time={max(1, round(seconds))}", "-timeout=10", "-rss_limit_mb=2048"]
        argv = [target, *limits, f"-artifact_prefix={scratch}/", *folders]
    else:
        argv = [target, *sorted(file for f in folders for file in f.iterdir())]
        env = {**SANITIZER_ENV, "ASAN_OPTIONS": f"{SANITIZER_ENV['ASAN_OPTIONS']}:hard_rss_limit_mb=2048"}
    status, log = run(f"fuzz-{name}", argv, seconds + 300, env)
    return None if status == 0 else f"exit status {status}:\n{tail(log)}"


def step_fuzz(opt: argparse.Namespace) -> Tally:
    """every fuzz target over its corpus; scripts/soak searches further"""
    tally = Tally()
    folder = build_fuzz() if opt.fuzz_seconds else build_asan()
    targets = fuzz_targets(folder)
    with ThreadPoolExecutor(JOBS) as pool:
        failures = pool.map(lambda t: fuzz_one(folder, t, opt.fuzz_seconds), targets)
        for target, failure in zip(targets, failures, strict=True):
            tally.record(f"fuzz:{target.name}", failure)
    return tally


def step_sessions(opt: argparse.Namespace) -> Tally:
    """250 sessions opened and closed, 100 with AddressSanitizer, 20 under valgrind: nothing of them stays"""
    import soak  # it imports this module

    tally = sessions("sessions:nothing stays of 250", lambda: soak.sessions_plain(250))
    tally.add(sessions("asan:100 sessions", lambda: soak.sessions_asan(100)))
    tally.add(sessions("valgrind:20 sessions", lambda: soak.sessions_valgrind(20)))
    return tally


FORMATTED = ("src", "include", "tests", "examples", "bench")
GENERATED = REPO / "src/base/text_table.h"


def c_sources() -> list[Path]:
    return sorted(p for d in ("src", "examples", "bench") for p in (REPO / d).rglob("*.c"))


def tidy_key(command: Mapping[str, str], checker: bytes) -> str:
    """Return a hash of all input of clang-tidy for a translation unit: its text with all that it includes."""
    words = shlex.split(command["command"])
    for option in ("-o", "-MF", "-MQ"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    # With comments: some of them are for clang-tidy.
    argv = [w for w in words if w not in ("-MD", "-c")] + ["-E", "-C"]
    text = subprocess.run(argv, cwd=command["directory"], capture_output=True, check=True).stdout
    return hashlib.sha256(checker + text).hexdigest()


def step_lint_c(opt: argparse.Namespace) -> Tally:
    """cppcheck, clang-format and clang-tidy over the C sources; with --quick over changed ones"""
    tally = Tally()
    folder = build_main()
    chosen = set(opt.changed) if opt.quick else None
    checked = [f for f in (REPO / "src", REPO / "examples") if chosen is None]
    checked += [f for f in c_sources() if chosen is not None and f in chosen and f.parts[len(REPO.parts)] != "bench"]
    config = [REPO / "scripts/cppcheck.supp", REPO / "scripts/cppcheck.cfg"]
    # Its findings in files that have not changed since.
    known = DEPS / "cppcheck" / hashlib.sha256(b"".join(f.read_bytes() for f in config)).hexdigest()[:16]
    known.mkdir(parents=True, exist_ok=True)
    cppcheck = [
        "cppcheck",
        "--quiet",
        *([f"--cppcheck-build-dir={known}"] if chosen is None else []),
        f"-j{JOBS}",
        "--std=c11",
        "--enable=warning,portability",
        "--inline-suppr",
        "--error-exitcode=1",
        f"--suppressions-list={config[0]}",
        f"-I{REPO}/include",
        f"-I{REPO}/src",
        f"--library={config[1]}",
        "-D__linux__",
        "-D_GNU_SOURCE",
        *checked,
    ]
    if checked:
        status, log = run("cppcheck", cppcheck, 600)
        tally.record("lint:cppcheck", None if status == 0 else tail(log))
    formatted = [f for d in FORMATTED for f in sorted((REPO / d).rglob("*.[ch]")) if f != GENERATED]
    formatted = [f for f in formatted if chosen is None or f in chosen]
    if formatted:
        status, log = run("clang-format", ["clang-format", "--dry-run", "-Werror", *formatted], 300)
        tally.record("lint:clang-format", None if status == 0 else tail(log))

    commands = {
        Path(c["directory"], c["file"]).resolve(): c for c in json.loads((folder / "compile_commands.json").read_text())
    }
    files = [f for f in c_sources() if f in commands and (chosen is None or f in chosen)]
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    checker = version + (REPO / "scripts/clang-tidy.yaml").read_bytes()

    seen = DEPS / "clang-tidy"
    seen.mkdir(parents=True, exist_ok=True)

    def tidy(file: Path) -> tuple[Path, int, Path | None]:
        """Nothing to do where the same text was found to be right before; a log else."""
        stamp = seen / tidy_key(commands[file], checker)
        if stamp.exists():
            stamp.touch()
            return file, 0, None
        argv = [
            "clang-tidy",
            "--quiet",
            f"--config-file={REPO}/scripts/clang-tidy.yaml",
            "-p",
            folder,
            "--extra-arg=-Wno-unknown-warning-option",
            "--extra-arg=-ftrivial-auto-var-init=pattern",  # for clang 14 our "zero" is an error
            file,
        ]
        name = "tidy-" + str(file.relative_to(REPO)).replace("/", "-")
        status, log = run(name, argv, 300)
        if status == 0:
            stamp.touch()
        return file, status, log

    with ThreadPoolExecutor(JOBS) as pool:
        for file, status, log in pool.map(tidy, files):
            tally.record(f"lint:clang-tidy {file.relative_to(REPO)}", tail(log) if log and status != 0 else None)
    month_s = 30 * 24 * 3600
    for stamp in seen.iterdir():
        if time.time() - stamp.stat().st_mtime > month_s:
            stamp.unlink()
    return tally


def step_lint_python(opt: argparse.Namespace) -> Tally:
    """mypy and ruff over python_stubs and python, ruff over the other Python; with --quick mypy only of changes"""
    tally = Tally()
    bin_dir = TEST_PYTHON.parent
    stubs, package = REPO / "python_stubs", REPO / "python"
    packages = sorted(p.parent.name for p in stubs.glob("*/__init__.py"))
    if not packages:
        raise StepError(f"no Python package in {stubs}")
    checks: list[tuple[str, list[str | Path]]] = [
        ("mypy of the package", [bin_dir / "mypy", "--strict", f"--cache-dir={DEPS}/mypy-package", "-p", "cellgate"]),
        (
            "mypy",
            [
                bin_dir / "mypy",
                "--strict",
                f"--python-executable={KERNEL_ENV}/bin/python",
                f"--cache-dir={DEPS}/mypy",
                *(a for p in packages for a in ("-p", p)),
            ],
        ),
        (
            "ruff check",
            [
                bin_dir / "ruff",
                "check",
                "--no-cache",
                f"--config={REPO}/ruff.toml",
                stubs,
                package,
                REPO / "tests",
                REPO / "bench",
                REPO / "scripts",
            ],
        ),
        (
            "ruff format",
            [bin_dir / "ruff", "format", "--no-cache", "--check", f"--config={REPO}/ruff.toml", stubs, package],
        ),
    ]
    if opt.quick:
        folders = {"mypy": stubs, "mypy of the package": package}
        checks = [c for c in checks if c[0] not in folders or any(f.is_relative_to(folders[c[0]]) for f in opt.changed)]
    for name, argv in checks:
        # mypy finds packages from where it runs; ruff's patterns are relative to it.
        cwd = {"mypy": stubs, "mypy of the package": package}.get(name, REPO)
        status, log = run(name.replace(" ", "-"), argv, 300, cwd=cwd)
        tally.record(f"lint:{name}", None if status == 0 else tail(log))
    return tally


STEPS: dict[str, Callable[[argparse.Namespace], Tally]] = {
    "unit": step_unit,
    "pytest": step_pytest,
    "asan": step_asan,
    "tsan": step_tsan,
    "sessions": step_sessions,
    "lint-python": step_lint_python,
    "lint-c": step_lint_c,
    "fuzz": step_fuzz,
    "valgrind": step_valgrind,
}
QUICK = ("unit", "pytest", "lint-python", "lint-c")
# These measure no times: they run beside the other steps, which often wait; all but "sessions" at a lower priority.
BESIDE = ("unit", "lint-python", "lint-c", "fuzz", "valgrind", "tsan", "sessions")


def parse_args() -> argparse.Namespace:
    # Help is printed by scripts/test, also where there is no Python yet.
    ap = argparse.ArgumentParser(prog="scripts/test", add_help=False, allow_abbrev=False)
    ap.usage = "scripts/test --help lists the options"
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--only", metavar="STEP[,STEP]")
    ap.add_argument("-k", metavar="EXPR")
    ap.add_argument("--fuzz-seconds", type=int, default=0, metavar="N")
    ap.add_argument("--no-setup", action="store_true")
    opt = ap.parse_args()
    names = opt.only.split(",") if opt.only else ["pytest"] if opt.k else list(QUICK) if opt.quick else list(STEPS)
    for name in names:
        if name not in STEPS:
            ap.error(f"no step {name!r}; there are: {', '.join(STEPS)}")
    opt.steps = names
    opt.changed = changed.files() if opt.quick else []
    return opt


def on_terminate(_signum: int, _frame: object) -> None:
    raise KeyboardInterrupt


def run_step(name: str, opt: argparse.Namespace) -> Tally:
    """Runs a step and prints what came of it. Raises nothing but KeyboardInterrupt."""
    started = time.monotonic()
    try:
        tally = STEPS[name](opt)
    except StepError as e:
        tally = Tally(failed=[(f"{name}: could not run", str(e))])
    except Exception as e:  # whatever it is, the other steps and the total still matter
        tally = Tally(failed=[(f"{name}: could not run", f"{type(e).__name__}: {e}")])
    text = "".join(f"\nFAILED {test}\n{shorten(why)}\n\n" for test, why in tally.failed)
    text += f"{name}: {tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped "
    print(f"{text}({time.monotonic() - started:.0f} s)", flush=True)
    return tally


def main() -> int:
    opt = parse_args()
    # Commands run in process groups of their own, so they must be ended explicitly.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_terminate)
    # Started in the background by a shell, we would ignore ^C, and so would every program under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Pipes of a host that vanished, a locale's messages, a proxy for localhost: none of that in the tests.
    os.environ["LC_ALL"] = "C.UTF-8"
    os.environ["CELLGATE_PRIVATE"] = "1"  # no supervisor that stays after a test
    total = Tally()
    beside = [name for name in BESIDE if name in opt.steps]
    alone = [name for name in opt.steps if name not in BESIDE]

    def run_beside() -> list[Tally]:
        # While the step pytest builds and runs. A failure is reported by the step that needs it, which tries again.
        for name, prepare in (("pytest", compile_tests), ("asan", build_asan)):
            if name in alone:
                with contextlib.suppress(StepError):
                    prepare()
        return [run_step(name, opt) for name in beside]

    # Where there is nothing to run beside, the main thread runs all.
    lane = ThreadPoolExecutor(1).submit(run_beside) if alone and beside else None
    try:
        for tally in [run_step(name, opt) for name in (alone or beside)] + (lane.result() if lane else []):
            total.add(tally)
    except KeyboardInterrupt:
        interrupted.set()
        raise
    for test, why in total.skipped:
        print(f"skipped: {test}: {why}")
    for test, _ in total.failed:
        print(f"failed: {test}")
    print(f"{total.passed} passed, {len(total.failed)} failed, {len(total.skipped)} skipped", flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.modules["run_tests"] = sys.modules["__main__"]  # soak imports it by name
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
