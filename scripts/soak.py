"""Long tests: sessions opened and closed by the thousand, with what they leave behind counted; and fuzzing for minutes.

Run by scripts/soak with Debian's Python. scripts/test uses check_sessions() for its short form. The host that opens the
sessions is bench/bench_api.c: it takes one command a line, so between two sessions all stands still and can be counted.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import run_tests
from run_tests import REPO, StepError, build, build_asan, build_main, must

# valgrind does not know clone3 and cannot follow a kernel into its namespaces; and Python is not what is tested.
NOT_UNDER_VALGRIND = "*/cellgate-kernel,*/echo_server"


@dataclass
class Count:
    """What cellgate's processes hold at one moment."""

    processes: Counter[str]
    fds: Counter[str]
    private_kb: int
    files: int

    def __str__(self) -> str:
        return (
            f"{sum(self.processes.values())} processes, {sum(self.fds.values())} fds, "
            f"{self.private_kb / 1024:.1f} MB, {self.files} files"
        )


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


def private_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def count(root: int, folder: Path) -> Count:
    """Counts root's processes; folder is their TMPDIR."""
    processes: Counter[str] = Counter()
    fds: Counter[str] = Counter()
    memory = 0
    for pid in descendants(root):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            n = len(os.listdir(f"/proc/{pid}/fd"))
            memory += private_kb(pid)
        except OSError:  # it has just ended
            continue
        processes[name] += 1
        fds[name] += n
    return Count(processes, fds, memory, sum(len(d) + len(f) for _, d, f in os.walk(folder)))


def settled(root: int, folder: Path) -> Count:
    """What is there once what ends has ended: nothing was less in half a second; 10 s at the longest."""
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
    slowness: float = 1,
    verbose: bool = False,
) -> list[str]:
    """Opens and closes n sessions, every tenth with an MCP server and a call. Returns what they left, one line each."""
    wrong = []
    with tempfile.TemporaryDirectory(prefix=f"cellgate-soak-{name}-") as temporary:
        folder = Path(temporary)
        host = Host(
            argv,
            {**env, "TMPDIR": temporary, "XDG_RUNTIME_DIR": temporary, "BENCH_NO_SPARE": "1"},
            run_tests.LOGS / f"soak-{name}.log",
        )
        pids: set[int] = set()
        status = None
        try:
            host.command("cold", 120 * slowness)
            first: Count | None = None
            for i in range(n):
                host.command(f"whole 0 {server}" if i % 10 == 0 else "kernel", 60 * slowness)
                if i + 1 == max(1, n // 5):  # caches are full by now
                    first = settled(host.proc.pid, folder)
                if verbose and (i + 1) % 100 == 0:
                    print(f"{name}: {i + 1} sessions: {count(host.proc.pid, folder)}", flush=True)
            assert first
            last = settled(host.proc.pid, folder)
            pids = set(descendants(host.proc.pid))
        finally:
            status = host.close(120 * slowness)
        if last.processes - first.processes:
            wrong.append(f"processes left: {dict(last.processes - first.processes)}")
        if last.fds - first.fds:
            wrong.append(f"file descriptors left: {dict(last.fds - first.fds)}")
        if last.files > first.files:
            wrong.append(f"files left: {first.files} became {last.files}")
        # 1 kB a session is more than the allocator's own unrest, and far less than any real leak of a session's state.
        if last.private_kb - first.private_kb > max(2048, n) * slowness:
            wrong.append(f"memory left: {first.private_kb} kB became {last.private_kb} kB")
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
    return check_sessions("plain", [host], server, n, {}, verbose=verbose)


def sessions_asan(n: int) -> list[str]:
    folder = build_asan()
    host, server = compile_host(folder, "-fsanitize=address,undefined")
    with tempfile.TemporaryDirectory(prefix="cellgate-soak-reports-") as reports:
        env = {k: f"{v}:log_path={reports}/report" for k, v in run_tests.SANITIZER_ENV.items() if k[0] in "AU"}
        # Freed memory is kept aside up to this size: by default far more than any leak that is looked for.
        env["ASAN_OPTIONS"] += ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
        wrong = check_sessions("asan", [host], server, n, env, slowness=5, verbose=True)
        wrong += [f.read_text(errors="replace")[:4000] for f in sorted(Path(reports).iterdir())[:3]]
    return wrong


def sessions_valgrind(n: int) -> list[str]:
    host, server = compile_host(build_main())
    with tempfile.TemporaryDirectory(prefix="cellgate-soak-reports-") as reports:
        argv: list[str | Path] = [
            "valgrind",
            "--quiet",
            "--leak-check=full",
            "--show-leak-kinds=definite,possible",
            "--errors-for-leak-kinds=definite",
            "--track-fds=no",
            "--trace-children=yes",
            f"--trace-children-skip={NOT_UNDER_VALGRIND}",
            f"--log-file={reports}/%p",
            host,
        ]
        wrong = check_sessions("valgrind", argv, server, n, {}, slowness=20, verbose=True)
        wrong += [
            text for f in sorted(Path(reports).iterdir()) if (text := f.read_text(errors="replace")[:4000]).strip()
        ]
    return wrong


def fuzz(minutes: float) -> list[str]:
    """Each target for so long. New inputs and crashes stay in build/fuzz/found/NAME."""
    wrong = []
    folder = build("fuzz", *run_tests.FUZZ_OPTIONS, install=False, cc="clang")
    for target in run_tests.fuzz_targets(folder):
        name = target.name.removeprefix("fuzz-")
        print(f"fuzz {name}: {minutes:g} minutes", flush=True)
        failure = run_tests.fuzz_one(folder, target, minutes * 60)
        if failure:
            wrong.append(f"fuzz {name}: {failure}")
    return wrong


def main() -> int:
    ap = argparse.ArgumentParser(
        prog="scripts/soak",
        description="The long tests. Without options: 1,000 sessions plain, 300 with AddressSanitizer, 50 under "
        "valgrind, and every fuzz target for 5 minutes.",
        epilog="Sessions: every tenth also starts an MCP server and makes an approved call. After a fifth of them, and "
        "at the end, processes, file descriptors, files and private memory of all of cellgate's processes are counted; "
        "growth fails. With valgrind the kernels themselves run outside of it. Logs: .deps/log/soak-*.log; crashes: "
        "build/fuzz/found/.",
    )
    ap.add_argument("--sessions", type=int, default=1000, metavar="N", help="plain sessions (default 1000; 0: none)")
    ap.add_argument("--asan-sessions", type=int, default=300, metavar="N", help="with AddressSanitizer (default 300)")
    ap.add_argument("--valgrind-sessions", type=int, default=50, metavar="N", help="under valgrind (default 50)")
    ap.add_argument(
        "--fuzz-minutes", type=float, default=5, metavar="M", help="for each fuzz target (default 5; 0: none)"
    )
    opt = ap.parse_args()
    plans = (
        ("sessions", opt.sessions, lambda: sessions_plain(opt.sessions, True)),
        ("sessions with AddressSanitizer", opt.asan_sessions, lambda: sessions_asan(opt.asan_sessions)),
        ("sessions under valgrind", opt.valgrind_sessions, lambda: sessions_valgrind(opt.valgrind_sessions)),
        ("fuzzing", opt.fuzz_minutes, lambda: fuzz(opt.fuzz_minutes)),
    )
    bad = False
    for name, amount, work in plans:
        if not amount:
            continue
        started = time.monotonic()
        try:
            wrong = work()
        except StepError as e:
            wrong = [str(e)]
        for line in wrong:
            print(f"FAILED {name}: {line}")
        print(f"{name}: {'failed' if wrong else 'ok'} ({time.monotonic() - started:.0f} s)", flush=True)
        bad = bad or bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
