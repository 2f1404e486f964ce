"""Measures `cellgate sandbox` side by side with bubblewrap and srt in one run; prints a table and JSON.

Run by bench/sandbox. The commands take turns, so that what disturbs the machine disturbs them all. What goes through
the proxies is measured by bench_egress.py.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import bench
import bench_egress
import report

OURS, BWRAP, SRT = "cellgate", "bwrap", "srt"
SECTIONS = ("start", "memory", "files", "egress")
SLEEP = "86399"  # nobody else's


def start_ms(argv: list[str], env: dict[str, str]) -> float:
    """From the program's start to its end, as a shell would see it."""
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env)
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"{argv}: ended with wait status {status}")
    return seconds * 1e3


# Runs in the sandbox and outside of it: microseconds for a file that is made, closed and removed, the best of batches.
FILES = """
import os, time
best = []
for _ in range(100):
    began = time.perf_counter()
    for _ in range(100):
        os.close(os.open("bench-file", os.O_CREAT | os.O_WRONLY, 0o644))
        os.unlink("bench-file")
    best.append((time.perf_counter() - began) * 1e4)
print(min(best))
"""
WRITES = """{"network": {"allowedDomains": [], "deniedDomains": []},
"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}"""


def file_us(argv: list[str], env: dict[str, str]) -> float:
    p = subprocess.run([*argv, "/usr/bin/python3", "-c", FILES], env=env, capture_output=True, text=True, check=True)
    return float(p.stdout)


def command_line(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    return []


def wrapper_mb(argv: list[str], env: dict[str, str]) -> float:
    """PSS of all processes that the wrapper has, less the command's own."""
    pid = os.posix_spawn(argv[0], [*argv, "sleep", SLEEP], env, setsid=True)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            time.sleep(0.1)
            everybody = {pid, *bench.descendants(pid)}
            sleeping = {p for p in everybody if command_line(p) == [b"sleep", SLEEP.encode()]}
            if sleeping:
                time.sleep(1)
                everybody = {pid, *bench.descendants(pid)} - sleeping
                return sum(bench.pss_mb(p) for p in everybody)
        raise SystemExit(f"{argv}: the command did not start within 30 s")
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


class Measurement:
    def __init__(self, opt: argparse.Namespace, commands: dict[str, list[str]], env: dict[str, str]) -> None:
        self.opt = opt
        self.commands = commands
        self.env = env
        self.samples: dict[str, dict[str, list[float]]] = {}

    def add(self, row: str, peer: str, value: float) -> None:
        self.samples.setdefault(row, {}).setdefault(peer, []).append(value)

    def start(self) -> None:
        for i in range(self.opt.rounds + 2):
            for peer, argv in self.commands.items():
                for _ in range(1 if peer == SRT else 5):
                    took = start_ms([*argv, "true"], self.env)
                    if i >= 2:  # before, everything is read from the disk
                        self.add("start", peer, took)

    def memory(self) -> None:
        for _ in range(3):
            for peer, argv in self.commands.items():
                if peer != BWRAP:
                    self.add("memory", peer, wrapper_mb(argv, self.env))

    def files(self) -> None:
        Path("settings.json").write_text(WRITES)
        here = [*self.commands[OURS], "-s", "settings.json", "--"]
        for _ in range(5):
            self.add("file", "direct", file_us([], self.env))
            self.add("file", OURS, file_us(here, self.env))

    def egress(self) -> None:
        peers = {peer: " ".join(argv) for peer, argv in self.commands.items() if peer != BWRAP}
        for row, values in bench_egress.run(peers, self.opt.egress_rounds).items():
            self.samples[row] = values

    def median(self, row: str, peer: str) -> float | None:
        values = self.samples.get(row, {}).get(peer)
        return statistics.median(values) if values else None

    def ratio(self, row: str, over: str, under: str) -> float | None:
        a, b = self.median(row, over), self.median(row, under)
        return a / b if a and b else None


def targets(m: Measurement) -> report.Targets:
    """Targets of cellgate for the measured values: name, value, target, reached?"""
    found = report.Targets()
    found.most("`true`, times bwrap's time", m.ratio("start", OURS, BWRAP), 1.2)
    found.least("`true`, times faster than srt", m.ratio("start", SRT, OURS), 50)
    found.most("memory of the wrapper, MB", m.median("memory", OURS), 3)
    ours, direct = m.median("file", OURS), m.median("file", "direct")
    found.most("a file made and removed: us over direct", ours - direct if ours and direct else None, 60)
    for way in bench_egress.WAYS:
        found.least(f"download {way}: times srt's rate", m.ratio(f"download {way}", OURS, SRT), 4)
        ours, direct = m.median(f"connection {way}", OURS), m.median("connection", "direct")
        found.most(f"connection {way}: ms over direct", ours - direct if ours and direct else None, 0.5)
    return found


def table(m: Measurement) -> str:
    peers = ("direct", OURS, BWRAP, SRT)
    units = {"start": "`true`, ms", "memory": "memory of the wrapper, MB", "file": "a file made and removed, us"}
    lines = [f"{'medians':32}" + "".join(f"{p:>12}" for p in peers)]
    for row in m.samples:
        unit = units.get(row, f"{row}, {'MB/s' if row.startswith('download') else 'ms'}")
        values = [m.median(row, p) for p in peers]
        lines.append(f"{unit:32}" + "".join(report.cell(v, 12) for v in values))
    return "\n".join([*lines, "", *targets(m).lines(48)])


def figures(m: Measurement) -> dict[str, object]:
    return {"machine": report.machine(), "rows": m.samples, "targets": targets(m).report()}


def parse_args() -> argparse.Namespace:
    ap = argparse.ArgumentParser(
        prog="bench/sandbox",
        description="Measures cellgate sandbox side by side with bubblewrap and srt in one run: medians and ratios.",
        epilog="Needs scripts/setup --bench, which bench/sandbox calls. The figures are wall-clock times.",
    )
    ap.add_argument("--rounds", type=int, default=15, help="turns of the starts: srt once, others 5 times (default 15)")
    ap.add_argument("--egress-rounds", type=int, default=15, help="turns through the proxies (default 15)")
    report.add_parts(ap, SECTIONS)
    report.add_options(ap, "bench-sandbox")
    opt = ap.parse_args()
    report.check_sections(ap, opt, SECTIONS)
    return opt


def main() -> int:
    opt = parse_args()
    if not opt.prefix:
        bench.build()
    opt.prefix = (opt.prefix or bench.PREFIX).resolve()
    with tempfile.TemporaryDirectory(prefix="bench-home-") as home:  # no settings: no network, no writes
        commands = {
            OURS: [str(opt.prefix / "bin/cellgate"), "sandbox"],
            BWRAP: ["/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/", "/"],
            SRT: [str(bench.REPO / ".deps/bench-npm/node_modules/.bin/srt")],
        }
        keep = {k: os.environ[k] for k in ("PATH", "LANG") if k in os.environ}
        m = Measurement(opt, commands, {**keep, "HOME": home})
        os.chdir(home)
        for name in SECTIONS:
            if name in opt.sections:
                print(f"bench: {name}", file=sys.stderr, flush=True)
                getattr(m, name)()
        os.chdir("/")
    return report.finish(opt, table(m), figures(m), targets(m))


if __name__ == "__main__":
    sys.exit(main())
