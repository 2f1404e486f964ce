"""Long tests: sessions opened and closed by the thousand, with what they leave behind counted; and fuzzing for minutes.

Run by scripts/soak with Debian's Python. scripts/test uses check_sessions() for its short form. The host that opens the
sessions is bench/bench_api.c, or bench/drive_cellgate.py for the Python package: it takes one command a line, so the
state between two sessions does not change and can be counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import run_tests
from run_tests import REPO, StepError, build, build_asan, build_main, must

# valgrind cannot follow a kernel into its namespaces; and Python is not what is tested.
NOT_UNDER_VALGRIND = "*/cellgate-kernel,*/echo_server"


@dataclass
class Count:
    """Resources of cellgate's processes at one moment."""

    processes: Counter[str]
    fds: Counter[str]
    files: int

    def __str__(self) -> str:
        return f"{self.processes.total()} processes, {self.fds.total()} fds, {self.files} files"


@dataclass
class Memory:
    """A way to see memory that stays."""

    measure: Callable[[int, Path], Counter[str]]  # bytes by process name, below that process; its log
    allowed: int  # growth of one of them, at a constant rate, that is not wrong yet


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def private_memory(root: int, _log: Path) -> Counter[str]:
    """Bytes of pages that one process alone has written to, summed for the processes of each name.

    Clean pages say nothing: those of a library become private when another program that uses it ends.
    """
    found: Counter[str] = Counter()
    for pid in descendants(root):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        found[name] += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))
    return found


def live_bytes(root: int, log: Path) -> Counter[str]:
    """Bytes that are allocated and not freed, as AddressSanitizer counts them in each process (src/base/asan.c).

    The memory that the system sees would not do: the sanitizer keeps what was freed, to find uses of it, up to 256 MB
    in the zygote, whose environment is empty. Kernels are left out: their standard error does not lead to the log.
    """
    asked: dict[int, str] = {}
    start = log.stat().st_size
    for pid in descendants(root):
        proc = Path(f"/proc/{pid}")
        sandboxed = os.readlink(proc / "ns/pid") != os.readlink("/proc/self/ns/pid")
        if sandboxed or "libasan" not in (proc / "maps").read_text():
            continue
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", (proc / "status").read_text(), re.MULTILINE)
        if not caught or not int(caught[1], 16) >> (signal.SIGRTMAX - 1) & 1:
            raise StepError(f"process {pid} does not report its live bytes: it has no handler for SIGRTMAX")
        asked[pid] = (proc / "comm").read_text().strip()
        os.kill(pid, signal.SIGRTMAX)
    deadline = time.monotonic() + 60
    while True:
        said = log.read_bytes()[start:].decode(errors="replace")
        answers = {int(p): int(n) for p, n in re.findall(r"^cellgate live bytes: process (\d+) has (\d+)$", said, re.M)}
        if asked.keys() <= answers.keys():
            break
        if time.monotonic() > deadline:
            raise StepError(f"no answer from {[p for p in asked if p not in answers]}; see {log}")
        time.sleep(0.05)
    found: Counter[str] = Counter()
    for pid, name in asked.items():
        found[name] += answers[pid]
    return found


def count(root: int, folder: Path) -> Count:
    """Counts root's processes; folder is their TMPDIR."""
    processes: Counter[str] = Counter()
    fds: Counter[str] = Counter()
    for pid in descendants(root):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            n = len(os.listdir(f"/proc/{pid}/fd"))
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        processes[name] += 1
        fds[name] += n
    return Count(processes, fds, sum(len(d) + len(f) for _, d, f in os.walk(folder)))


def settled(root: int, folder: Path) -> Count:
    """Return the count when it has not become smaller for half a second, or after 10 s."""
    deadline = time.monotonic() + 10
    least, since = count(root, folder), time.monotonic()
    while time.monotonic() < min(deadline, since + 0.5):
        time.sleep(0.05)
        now = count(root, folder)
        if now.fds.total() + now.files < least.fds.total() + least.files:
            least, since = now, time.monotonic()
    return least


class Host:
    """bench_api as a child process."""

    def __init__(self, argv: list[str | Path], env: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as errors:
            self.proc = subprocess.Popen(
                [str(a) for a in argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **env},
            )

    def command(self, text: str, limit_s: float) -> None:
        assert self.proc.stdin and self.proc.stdout
        self.proc.stdin.write(text.encode() + b"\n")
        self.proc.stdin.flush()
        if not select.select([self.proc.stdout], [], [], limit_s)[0]:
            raise StepError(f"{text}: no answer in {limit_s:.0f} s; see {self.log}")
        answer = json.loads(self.proc.stdout.readline() or b'{"error": "the host ended"}')
        if "error" in answer:
            raise StepError(f"{text}: {answer['error']}; see {self.log}")

    def close(self, limit_s: float) -> int:
        """Ends it in order. Returns its exit status."""
        assert self.proc.stdin
        self.proc.stdin.close()
        try:
            return self.proc.wait(limit_s)
        finally:
            self.proc.kill()
            self.proc.wait()


def compile_host(folder: Path, *flags: str) -> tuple[Path, Path]:
    """bench_api and echo_server for the tree installed in folder/root."""
    library = next((folder / "root").rglob("libcellgate.so"))
    host, server = folder / "bench_api", folder / "echo_server"
    gcc = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", f"-I{REPO}/include"]
    must(
        "soak-host",
        [*gcc, *flags, REPO / "bench/bench_api.c", "-o", host, library, f"-Wl,-rpath,{library.parent}"],
        120,
    )
    must("soak-server", [*gcc, REPO / "bench/echo_server.c", "-o", server, "-ljansson"], 120)
    return host, server


def check_sessions(
    name: str,
    argv: list[str | Path],
    server: Path,
    n: int,
    env: dict[str, str],
    memory: Memory | None,
    slowness: float = 1,
    verbose: bool = False,
    warm_up: int = 0,
) -> list[str]:
    """Opens and closes n sessions, every tenth with an MCP server and a call. Returns what they left, one line each.

    The state at the end is compared with the state after `warm_up` additional sessions before them (default: n / 5).
    Memory is a leak if a process grows in both halves of the sessions between: on a busy machine a queue grows once.
    """
    wrong = []
    with tempfile.TemporaryDirectory(prefix=f"cellgate-soak-{name}-") as temporary:
        folder = Path(temporary)
        host = Host(
            argv,
            {
                **env,
                "TMPDIR": temporary,
                "XDG_RUNTIME_DIR": temporary,
                "BENCH_NO_SPARE": "1",
                "CELLGATE_JOBS_MAX_EVENTS": "64",
            },
            run_tests.LOGS / f"soak-{name}.log",
        )
        pids: set[int] = set()
        status = None
        measured: list[Counter[str]] = []
        start, total = warm_up or max(1, n // 5), warm_up + n  # caches are full at the start
        try:
            host.command("cold", 120 * slowness)
            first: Count | None = None
            for i in range(1, total + 1):
                if run_tests.interrupted.is_set():
                    raise KeyboardInterrupt
                host.command(f"whole 0 {server}" if i % 10 == 1 else "kernel", 60 * slowness)
                if i in (start, (start + total) // 2, total):
                    last = settled(host.proc.pid, folder)
                    first = first or last
                    if memory:
                        measured.append(memory.measure(host.proc.pid, host.log))
                if verbose and i % 100 == 0:
                    print(f"{name}: {i} sessions: {count(host.proc.pid, folder)}", flush=True)
            assert first
            pids = set(descendants(host.proc.pid))
        finally:
            status = host.close(120 * slowness)
        if last.processes - first.processes:
            wrong.append(f"processes left: {dict(last.processes - first.processes)}")
        if last.fds - first.fds:
            wrong.append(f"file descriptors left: {dict(last.fds - first.fds)}")
        if last.files > first.files:
            wrong.append(f"files left: {first.files} became {last.files}")
        for who in set().union(*measured):
            sizes = [m[who] for m in measured]
            text = f"{who}: {sizes} bytes at the start, in the middle and at the end"
            if verbose:
                print(f"{name}: {text}", flush=True)
            if memory and min(b - a for a, b in itertools.pairwise(sizes)) > memory.allowed // 2:
                wrong.append(f"memory left: {text}")
        if status != 0:
            wrong.append(f"the host ended with status {status}; see {host.log}")
        deadline = time.monotonic() + 10
        while (alive := [p for p in pids if Path(f"/proc/{p}").exists()]) and time.monotonic() < deadline:
            time.sleep(0.05)
        if alive:
            wrong.append(f"processes that outlived the host: {alive}")
        # The folder of all this user's supervisors stays, empty.
        if left := [p for p in folder.rglob("*") if p != folder / f"cellgate-{os.getuid()}"]:
            wrong.append(f"files that outlived the host: {left}")
    return wrong


def sessions_plain(n: int, verbose: bool = False) -> list[str]:
    host, server = compile_host(build_main())
    # The allocators' own unrest is 150 kB in the first 200 sessions and nothing in the 800 after them.
    memory = Memory(private_memory, 512 << 10)
    return check_sessions("plain", [host], server, n, {}, memory, verbose=verbose)


def sessions_python(n: int, front: str) -> list[str]:
    """The same by the Python package."""
    folder = build_main()
    _, server = compile_host(folder)
    argv: list[str | Path] = [run_tests.TEST_PYTHON, "-B", REPO / "bench/drive_cellgate.py", front]
    env = {"PYTHONPATH": str(folder / "root/lib/cellgate/package")}
    memory = Memory(private_memory, 1 << 20)
    return check_sessions(f"python-{front}", argv, server, n, env, memory, verbose=True)


def kills(n: int) -> list[str]:
    """Programs of the Python package that are killed at random points."""
    tally = run_tests.pytest(
        build_main(),
        "soak-kills",
        ["python/test_ends.py", "-k", "killed", f"--timeout={40 * n}", f"--override-ini=faulthandler_timeout={40 * n}"],
        40 * n,
        {"CG_KILLS": str(n)},
        workers=1,
    )
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def reports(folder: Path) -> list[str]:
    """The beginnings of the first three of the files there."""
    return [f.read_text(errors="replace")[:4000] for f in sorted(folder.iterdir())[:3]]


def sessions_asan(n: int) -> list[str]:
    folder = build_asan()
    host, server = compile_host(folder, "-fsanitize=address,undefined")
    with tempfile.TemporaryDirectory(prefix="cellgate-soak-reports-") as temporary:
        env = {k: f"{v}:log_path={temporary}/report" for k, v in run_tests.SANITIZER_ENV.items() if k[0] in "AU"}
        # Each queue of libzmq takes one chunk of 16 kB more, once, when as many messages have gone through it; after 75
        # sessions all had, and not a byte was added in the next 325. Allowed is one of them.
        memory = Memory(live_bytes, 20 << 10)
        wrong = check_sessions("asan", [host], server, n, env, memory, slowness=5, verbose=True, warm_up=100)
        wrong += reports(Path(temporary))
    # The zygote and the kernels do not have this environment: what they report is in the host's log.
    log = run_tests.LOGS / "soak-asan.log"
    if found := re.findall(r"^.*(?:ERROR: |runtime error: ).*$", log.read_text(errors="replace"), re.MULTILINE):
        wrong.append(f"{found[0]}; see {log}")
    return wrong


def python_asan() -> list[str]:
    """tests/python with the extension module, and all programs behind it, built with AddressSanitizer."""
    folder = build_asan()
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="cellgate-soak-reports-") as temporary:
        env = {k: f"{v}:log_path={temporary}/report" for k, v in run_tests.SANITIZER_ENV.items() if k[0] in "AU"}
        env["ASAN_OPTIONS"] += ":detect_leaks=0"  # of the interpreter
        env |= {"LD_PRELOAD": library.strip(), "CG_SANITIZED": "address"}
        # srt's commands run programs of this machine, which inherit the library, in sandboxes.
        args = ["python", "--ignore=python/test_srt.py", "-m", "not no_sanitizer"]
        tally = run_tests.pytest(folder, "soak-python-asan", args, 1800, env)
        wrong = [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]
        return wrong + reports(Path(temporary))


# Those of one run that must have been under valgrind's eyes until their end.
WATCHED = ("bench_api", "cellgate-supervisor", "cellgate-toolserver")


def read_valgrind(folder: Path) -> list[str]:
    """Return the errors in valgrind's reports, a file for each process. That of a killed process is incomplete."""
    wrong = []
    ended: Counter[str] = Counter()
    for file in sorted(folder.iterdir()):
        text = file.read_text(errors="replace")
        command = re.search(r"Command: (\S+)", text)
        ended[Path(command[1]).name if command else "?"] += 1
        if "ERROR SUMMARY: 0 errors from" not in text:
            wrong.append(f"errors, or no end:\n{text[:4000]}")
    wrong += [f"no report of {name}: {dict(ended)}" for name in WATCHED if not ended[name]]
    return wrong


def sessions_valgrind(n: int, verbose: bool = False) -> list[str]:
    host, server = compile_host(build_main())
    with tempfile.TemporaryDirectory(prefix="cellgate-soak-reports-") as temporary:
        argv: list[str | Path] = [
            *run_tests.VALGRIND,
            "--trace-children=yes",
            f"--trace-children-skip={NOT_UNDER_VALGRIND}",
            f"--log-file={temporary}/%p",
            host,
        ]
        env = run_tests.valgrind_env()
        # No look at memory from outside, where valgrind's own is most of it: it counts every block itself.
        wrong = check_sessions("valgrind", argv, server, n, env, None, slowness=20, verbose=verbose)
        wrong += read_valgrind(Path(temporary))
    return wrong


def unit_valgrind() -> list[str]:
    return [f"{name}: {run_tests.shorten(why)}" for name, why in run_tests.valgrind_unit_tests().failed]


CALLS = """
import os, time
from mcptools.web import echo as web
from mcptools.std import echo as std
def mark(n):
    print("mark", flush=True)
    while not os.path.exists(f"go{{n}}"): time.sleep(0.02)
def loop(tool, n):
    assert all(tool.run(text="hello") == "hello" for _ in range(n))
loop(web, 1000); loop(std, 1000); mark(1)
loop(web, {number}); loop(std, {number} // 10); mark(2)
"""


def calls(number: int) -> list[str]:
    """So many calls over HTTP, a tenth over stdio: none is lost, and the tool server does not grow."""
    cellgate = build_main() / "root/bin/cellgate"

    def state(root: int) -> tuple[int, int]:
        """File descriptors of the tool server and its guard; their memory, and that of the MCP server."""
        guard, inner = (p for p in descendants(root) if "cellgate-toolserver" in os.readlink(f"/proc/{p}/exe"))
        fds = sum(len(os.listdir(f"/proc/{p}/fd")) for p in (guard, inner))
        return fds, private_memory(guard, Path()).total()

    with tempfile.TemporaryDirectory(prefix="cg-soak-") as name:
        folder, marks = Path(name), []
        (folder / "ws").mkdir()
        for server in ("echo_server", "http_echo_server"):
            source = [REPO / f"bench/{server}.c", "-o", folder / server, "-ljansson", "-lpthread"]
            must("soak-compile", ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", *source], 120)
        with subprocess.Popen([folder / "http_echo_server"], stdout=subprocess.PIPE, text=True) as http:
            assert http.stdout
            servers = {"web": {"url": http.stdout.readline().strip()}, "std": {"command": str(folder / "echo_server")}}
            (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
            options = ["--workspace", folder / "ws", "--mcp", folder / "mcp.json", "--approve", "all"]
            argv = [cellgate, "run", *options, "-c", CALLS.format(number=number)]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
                assert run.stdout
                for line in run.stdout:
                    if line == "mark\n":
                        marks.append(state(run.pid))
                        (folder / f"ws/go{len(marks)}").touch()
            http.kill()
    if run.returncode != 0 or len(marks) != 2:
        return [f"calls: exit status {run.returncode}"]
    (fds, memory), (fds_after, memory_after) = marks
    print(f"calls: {fds} to {fds_after} fds, {memory >> 10} to {memory_after >> 10} KiB", flush=True)
    return ["the tool server has grown"] if fds_after > fds or memory_after - memory > 2 << 20 else []


def audit_kills(number: int) -> list[str]:
    """The writer of the audit log, killed so often; the log is checked each time."""
    limit = 2 * number  # seconds
    args = ["api/test_audit.py", "-k", "after_each_kill", f"--timeout={limit}"]
    args.append(f"--override-ini=faulthandler_timeout={limit}")
    tally = run_tests.pytest(build_main(), "soak-audit", args, limit, {"CG_KILLS": str(number)}, workers=1)
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def fuzz(minutes: float) -> list[str]:
    """Each target for so long. New inputs and crashes stay in build/fuzz/found/NAME."""
    wrong = []
    folder = run_tests.build_fuzz()
    for target in run_tests.fuzz_targets(folder):
        name = target.name.removeprefix("fuzz-")
        print(f"fuzz {name}: {minutes:g} minutes", flush=True)
        failure = run_tests.fuzz_one(folder, target, minutes * 60)
        if failure:
            wrong.append(f"fuzz {name}: {failure}")
    return wrong


FRAMEWORKS_PYTHON = run_tests.DEPS / "integrations-env/bin/python"


def build_clients() -> Path:
    """Kernels have the packages that notebooks use; the binding is for the environment with the frameworks."""
    kernels = f"-Dkernel_env={run_tests.DEPS}/packages-env"
    return build("clients", "-Dwerror=true", kernels, f"-Dpython_package={FRAMEWORKS_PYTHON}")


def pytest_by(python: Path, name: str, env: dict[str, str], *arguments: str | Path) -> run_tests.Tally:
    """Runs pytest with build_clients() in another environment than that of scripts/test."""
    folder = build_clients()
    report = run_tests.LOGS / f"soak-{name}.xml"
    report.unlink(missing_ok=True)
    env = {"CG_BUILD": str(folder), "CG_PREFIX": str(folder / "root"), "PYTHONDONTWRITEBYTECODE": "1", **env}
    argv: list[str | Path] = [python, "-m", "pytest", "-q", "-c", REPO / "tests/pytest.ini", f"--rootdir={REPO}"]
    status, log = run_tests.run(f"soak-{name}", [*argv, f"--junit-xml={report}", *arguments], 1200, env, REPO / "tests")
    tally = run_tests.read_junit(report, "") if report.exists() else run_tests.Tally()
    if (status != 0 and not tally.failed) or not tally.passed:
        tally.failed.append((name, f"exit status {status}:\n{run_tests.tail(log)}"))
    print(f"{name}: {tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped", flush=True)
    return tally


def clients() -> list[str]:
    """A notebook in each of Jupyter's programs, and the tests of tests/clients in the notebook's environment."""
    folder = build_clients()
    shots = folder / "shots"
    shutil.rmtree(shots, ignore_errors=True)
    env = {"CG_CLIENTS_NPM": str(run_tests.DEPS / "clients-npm"), "CG_CLIENTS_SHOTS": str(shots)}
    names = ("test_notebook.py", "test_kernel_test.py", "test_debugger.py", "soak_clients.py", "soak_jupyterlab.py")
    patient = "--override-ini=faulthandler_timeout=700"  # these may take longer than the others
    files = [REPO / "tests/clients" / n for n in names]
    tally = pytest_by(run_tests.DEPS / "clients-env/bin/python", "clients", env, patient, *files)
    # Here everything that is needed is installed: a skip would be a test that nobody runs.
    wrong = [f"{name} was skipped: {why}" for name, why in tally.skipped]
    # Figures, widgets, preloading, the debugger: what the kernels of scripts/test have no packages for.
    kernels = run_tests.pytest(folder, "soak-kernel", ["kernel"], 600)
    wrong += [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed + kernels.failed]
    return wrong + [f"left running: {p}" for p in run_tests.left_running(folder / "root")]


def frameworks() -> list[str]:
    """The Python package in agent frameworks, with the frameworks' own tests of sandboxes."""
    files = sorted((REPO / "tests/integrations").glob("soak_*.py"))
    tally = pytest_by(FRAMEWORKS_PYTHON, "frameworks", {}, *files)
    wrong = [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]
    return wrong + [f"left running: {p}" for p in run_tests.left_running(build_clients() / "root")]


def races() -> list[str]:
    """Tests that scripts/test runs for a part of their rounds or cases."""
    used = re.compile(r"from rounds import .*\b(ALL|rounds)\b")
    files = [f for f in (REPO / "tests").rglob("test_*.py") if used.search(f.read_text())]
    args = ["-m", "not peer", *sorted(map(str, files))]
    tally = run_tests.pytest(build_main(), "soak-races", args, 5400, {"CG_ROUNDS": "all"})
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def peers() -> list[str]:
    """The tests with other programs than those that scripts/test takes for their kind."""
    run_tests.build_wheel()
    tally = run_tests.pytest(build_main(), "soak-peers", ["-m", "peer"], 3000, {"CG_ROUNDS": "all"})
    for name, why in tally.skipped:
        print(f"{name}: not run: {why}")
    print(f"peers: {tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped", flush=True)
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def asan_tests() -> list[str]:
    """The tests that take scripts/test too long with AddressSanitizer."""
    tally = run_tests.asan("soak-asan", ["-m", "sanitized_in_soak"])
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def patience() -> list[str]:
    """Clients of `mcp serve --http` that give up a call before its cell ends."""
    tally = run_tests.pytest(run_tests.build_main(), "soak-patience", ["mcp_http/soak_patience.py"], 900)
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def load() -> list[str]:
    """Clients of `mcp serve --http`, many at once and some of them hostile."""
    figures = run_tests.LOGS / "soak-load.json"
    figures.unlink(missing_ok=True)
    tally = run_tests.pytest(
        run_tests.build_main(),
        "soak-load",
        ["mcp_http/soak_load.py", "--override-ini=faulthandler_timeout=1000"],
        1000,
        {"CG_LOAD_FIGURES": str(figures)},
        workers=1,
    )
    if figures.exists():
        for name, values in json.loads(figures.read_text()).items():
            print(f"load: {name}: {values}", flush=True)
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def jobs() -> list[str]:
    """500 submitters on 2 and on 50 sessions of one supervisor, some of whose processes are killed."""
    tally = run_tests.pytest(run_tests.build_main(), "soak-jobs", ["api/soak_jobs.py"], 900, workers=1)
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def slurm() -> list[str]:
    """Sessions on three nodes of Slurm, some of whose processes are killed."""
    tally = run_tests.pytest(run_tests.build_main(), "soak-slurm", ["cluster/soak_slurm.py"], 1800, workers=1)
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def ray() -> list[str]:
    """The example for Ray on two nodes, and processes and links of Ray that are lost."""
    tally = run_tests.pytest(run_tests.build_main(), "soak-ray", ["cluster/soak_ray.py"], 1800, workers=1)
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def deployment(name: str) -> list[str]:
    """deploy/ against the schemas of three versions of Kubernetes, or its Deployment as a pod of podman."""
    tally = run_tests.pytest(run_tests.build_main(), f"soak-{name}", [f"cluster/soak_{name}.py"], 900, workers=1)
    for name, why in tally.skipped:
        print(f"{name}: not run: {why}")
    return [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def inspector() -> list[str]:
    """MCP's Inspector with `mcp serve` over both transports."""
    env = {"CG_CLIENTS_NPM": str(run_tests.DEPS / "clients-npm")}
    tally = run_tests.pytest(run_tests.build_main(), "soak-inspector", ["mcp_http/soak_inspector.py"], 1500, env)
    wrong = [f"{name} was skipped: {why}" for name, why in tally.skipped]
    return wrong + [f"{name}\n{run_tests.shorten(why)}" for name, why in tally.failed]


def srt_port() -> list[str]:
    """The tests of srt's Python port on cellgate.srt."""
    repository = os.environ.get("CG_SRT_REPOSITORY", "https://github.com/thoo/sandbox-runtime-py")
    if subprocess.run(["timeout", "60", "git", "ls-remote", "--quiet", repository], capture_output=True).returncode:
        print(f"srt's Python port: not run: no access to {repository}; CG_SRT_REPOSITORY may name a clone")
        return []
    package = build_clients() / "root/lib/cellgate/package"
    argv = [FRAMEWORKS_PYTHON, REPO / "scripts/srt-tests", repository, package, "-q"]
    status, log = run_tests.run("soak-srt", argv, 600)
    return [run_tests.tail(log)] if status else []


def sandboxmcp() -> list[str]:
    """The tests of sandboxmcp on cellgate.sandboxmcp."""
    package = run_tests.build_main() / "root/lib/cellgate/package"
    python = run_tests.DEPS / "test-env/bin/python"
    status, log = run_tests.run("soak-sandboxmcp", [python, REPO / "scripts/sandboxmcp-tests", package], 600)
    return [run_tests.tail(log)] if status else []


def wheels(pythons: list[str]) -> list[str]:
    """A wheel for each interpreter, installed in a clean environment, where the package's first example runs."""
    argv = [sys.executable, REPO / "scripts/build_wheels.py", "--out", run_tests.BUILDS / "wheels", *pythons]
    status, log = run_tests.run("soak-wheels", argv, 600 * len(pythons))
    return [run_tests.tail(log)] if status else []


# The steps: their texts for --help, and their functions.
STEPS: dict[str, tuple[str, Callable[[argparse.Namespace], list[str]]]] = {
    "sessions": ("sessions by the C API", lambda o: sessions_plain(o.sessions, True)),
    "python": ("the same by the Python package", lambda o: sessions_python(o.sessions, "blocking")),
    "asyncio": ("the same by its asyncio front", lambda o: sessions_python(o.sessions, "aio")),
    "kills": ("programs with the Python package, killed at random points", lambda o: kills(o.kills)),
    "audit-kills": ("the audit log's writer, killed at random points", lambda o: audit_kills(o.kills)),
    "python-asan": ("tests/python with AddressSanitizer", lambda _: python_asan()),
    "asan-tests": ("tests that take scripts/test too long with AddressSanitizer", lambda _: asan_tests()),
    "asan": ("sessions with AddressSanitizer", lambda o: sessions_asan(o.asan_sessions)),
    "valgrind": ("sessions under valgrind", lambda o: sessions_valgrind(o.valgrind_sessions, True)),
    "valgrind-unit": ("the unit tests under valgrind", lambda _: unit_valgrind()),
    "calls": ("tool calls over HTTP and stdio", lambda o: calls(o.calls)),
    "fuzz": ("every fuzz target for some minutes", lambda o: fuzz(o.fuzz_minutes)),
    "wheels": ("Python wheels, installed in clean environments", lambda o: wheels(o.wheels.split(","))),
    "notebooks": ("a notebook in each of Jupyter's programs, and tests/kernel", lambda _: clients()),
    "frameworks": ("the Python package in agent frameworks, and their tests of sandboxes", lambda _: frameworks()),
    "peers": ("all MCP servers and clients, languages, wheels that tests have, and dear tests", lambda _: peers()),
    "races": ("all rounds of the tests of races", lambda _: races()),
    "patience": ("cells of minutes by MCP clients that give up a call after one", lambda _: patience()),
    "load": ("50 MCP clients at once over HTTP, 500 sessions, hostile clients", lambda _: load()),
    "jobs": ("500 submitters on 2 and on 50 sessions, with killed processes", lambda _: jobs()),
    "slurm": ("300 sessions on three nodes of Slurm, with killed processes", lambda _: slurm()),
    "ray": ("200 sessions on two nodes of Ray, with killed processes", lambda _: ray()),
    "manifests": ("deploy/ against the schemas of Kubernetes 1.30, 1.33 and 1.37", lambda _: deployment("manifests")),
    "pod": ("the Deployment as a pod of podman, with an image that is there", lambda _: deployment("pod")),
    "inspector": ("MCP's Inspector, its command line and its page in Chromium", lambda _: inspector()),
    "srt": ("the tests of srt's Python port", lambda _: srt_port()),
    "sandboxmcp": ("the tests of sandboxmcp, which pip downloads", lambda _: sandboxmcp()),
}


def main() -> int:
    os.environ["CELLGATE_PRIVATE"] = "1"  # no supervisor that stays
    width = max(map(len, STEPS))
    ap = argparse.ArgumentParser(
        prog="scripts/soak",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The long tests: all of these steps, or those of --only.\n\n"
        + "\n".join(f"  {name:{width}}  {what}" for name, (what, _) in STEPS.items()),
        epilog="""\
Sessions: every tenth also starts an MCP server and makes an approved call. After a fifth of them (AddressSanitizer:
after 100 more before them), and at the end, processes, file descriptors, files and memory of all of cellgate's
processes are counted; growth fails. Memory: plain, what the system has given to these processes alone; with
AddressSanitizer, the bytes that it says are allocated; under valgrind every block that is not freed at the end
(kernels run outside of it). Needs root, which may see all of it.
Notebooks: nbconvert, papermill, jupyter console, JupyterLab in Chromium, JupyterLab's client library. Kernels have
pandas, matplotlib, ipywidgets and more. What the browser showed: build/clients/shots/.
Logs: .deps/log/soak-*.log; crashes: build/fuzz/found/.""",
    )
    ap.add_argument("--only", default=",".join(STEPS), metavar="STEP,...", help="only these steps")
    ap.add_argument("--sessions", type=int, default=1000, metavar="N", help="of each front (default 1000)")
    ap.add_argument(
        "--kills", type=int, default=200, metavar="N", help="programs and writers that are killed (default 200)"
    )
    ap.add_argument("--asan-sessions", type=int, default=300, metavar="N", help="with AddressSanitizer (default 300)")
    ap.add_argument("--valgrind-sessions", type=int, default=50, metavar="N", help="under valgrind (default 50)")
    ap.add_argument(
        "--calls", type=int, default=100_000, metavar="N", help="calls over HTTP, a tenth over stdio (default 100000)"
    )
    ap.add_argument("--fuzz-minutes", type=float, default=5, metavar="M", help="for each fuzz target (default 5)")
    ap.add_argument(
        "--wheels",
        default="/usr/bin/python3",
        metavar="PYTHON,...",
        help="for which a wheel is made and installed (default /usr/bin/python3)",
    )
    opt = ap.parse_args()
    chosen = opt.only.split(",")
    if unknown := sorted({*chosen} - {*STEPS}):
        ap.error(f"no step {unknown[0]!r}; there are: {', '.join(STEPS)}")
    if os.geteuid() != 0:
        ap.error(run_tests.NOT_ROOT)
    bad = False
    for name in chosen:
        started = time.monotonic()
        try:
            wrong = STEPS[name][1](opt)
        except StepError as e:
            wrong = [str(e)]
        for line in wrong:
            print(f"FAILED {name}: {line}")
        print(f"{name}: {'failed' if wrong else 'ok'} ({time.monotonic() - started:.0f} s)", flush=True)
        bad = bad or bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
