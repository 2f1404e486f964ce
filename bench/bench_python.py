"""Measures the Python package next to the C API, and cellgate.ipybox next to ipybox, in one run.

Run by bench/python. Each peer is a driver process (bench_api.c, drive_cellgate.py, drive_ipybox.py), as in bench/run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import bench
import report

C, BLOCKING, AIO, OURS, IPYBOX = "C", "blocking", "asyncio", "cellgate.ipybox", "ipybox"
SECTIONS = ("cells", "calls", "bridge", "sessions", "ipybox")
BRIDGES = ("json json", "python python", "python node", "node python", "python shell", "shell python")

# Unit and what a row is, in the order of the table.
ROWS = {
    "rtt": ("ms", "round trip of `1`"),
    "tool": ("ms", "tool call, approved by a function of Python"),
    "function": ("ms", "function call of the host"),
    "prints": ("ms", "10 MB of prints"),
    **{
        f"{name} {path}": ("ms", f"bridge, {what}: {path.replace(' ', ' to ')}")
        for name, what in {"text": "16 MiB of text", "rows": "240,000 objects"}.items()
        for path in BRIDGES
    },
    "open": ("s", "opening all sessions in one event loop"),
    "answer": ("s", "a cell in each of them at the same time"),
    "threads": ("", "threads of the process"),
    "growth": ("MB", "memory of the process for each session"),
    "memory": ("MB", "memory of cellgate's processes for each session"),
    "start": ("ms", "CodeExecutor, start to first result, new process"),
    "again": ("ms", "the same, a further one in the process"),
    "ipybox tool": ("ms", "tool call of CodeExecutor, approved"),
}


class Measurement:
    def __init__(self, opt: argparse.Namespace, peers: dict[str, bench.Peer]) -> None:
        self.opt = opt
        self.peers = peers
        self.samples: dict[str, dict[str, list[float]]] = {row: {p: [] for p in peers} for row in ROWS}
        self.notes: list[str] = []

    def add(self, row: str, peer: str, seconds: list[float], factor: float = 1e3) -> None:
        self.samples[row][peer] += [s * factor for s in seconds]

    def driver(self, peer: str) -> bench.Driver:
        """That runs since its first use."""
        found = self.peers[peer]
        if found.driver is None:
            found.driver = found.start()
            found.driver.command("cold")
        return found.driver

    def turns(self, row: str, command: str, peers: tuple[str, ...], rounds: int) -> None:
        for i in range(rounds + 1):
            for peer in peers:
                seconds = self.driver(peer).command(command)
                if i:  # the first is for warming up
                    self.add(row, peer, seconds)

    def cells(self) -> None:
        self.turns("rtt", f"rtt {self.opt.round_trips} 1", (C, BLOCKING, AIO), self.opt.rounds)
        self.turns("prints", f"prints {bench.PRINTS_BYTES} {bench.PRINTS}", (C, BLOCKING, AIO), 3)

    def calls(self) -> None:
        server = bench.BUILD / "echo_server"
        self.turns("tool", f"tool {self.opt.round_trips} {server}", (C, BLOCKING, AIO), self.opt.rounds)
        self.turns("function", f"function {self.opt.round_trips}", (C, BLOCKING, AIO), self.opt.rounds)

    def bridge(self) -> None:
        for name in ("text", "rows"):
            for path in BRIDGES:
                self.turns(f"{name} {path}", f"bridge {self.opt.rounds} {name} {path}", (BLOCKING,), 1)

    def sessions(self) -> None:
        driver, n = self.driver(AIO), self.opt.sessions
        before = bench.settled_memory_mb(driver)
        opened, answered, threads, growth = driver.command(f"many {n}", 600)
        memory = bench.settled_memory_mb(driver) - before
        driver.command("keep 0", 600)
        for row, value in (("open", opened), ("answer", answered), ("threads", threads)):
            self.add(row, AIO, [value], 1)
        self.add("growth", AIO, [growth / n], 1)
        self.add("memory", AIO, [memory / n], 1)

    def ipybox(self) -> None:
        for i in range(self.opt.rounds + 1):
            for peer in (OURS, IPYBOX):
                driver = self.peers[peer].start()
                try:
                    start, again = driver.command("cold"), driver.command("again")
                except bench.DriverError as e:  # ipybox gives up after 10 s
                    self.notes.append(str(e))
                    continue
                finally:
                    driver.close()
                if i:
                    self.add("start", peer, start)
                    self.add("again", peer, again)
        server = bench.BUILD / "echo_server"
        self.turns("ipybox tool", f"tool {self.opt.round_trips} {server}", (OURS, IPYBOX), self.opt.rounds)

    def median(self, row: str, peer: str) -> float | None:
        values = self.samples[row].get(peer)
        return statistics.median(values) if values else None


def targets(m: Measurement) -> report.Targets:
    """Targets of the package: name, value, target, reached?"""

    def over_c(row: str, peer: str) -> float | None:
        ours, c = m.median(row, peer), m.median(row, C)
        return ours - c if ours is not None and c is not None else None

    def faster(row: str) -> float | None:
        ours, theirs = m.median(row, OURS), m.median(row, IPYBOX)
        return theirs / ours if ours and theirs else None

    found = report.Targets()
    found.most("`await s.run('1')` over C, ms", over_c("rtt", AIO), 0.25)
    found.most("`s.run('1')` over C, ms", over_c("rtt", BLOCKING), 0.25)
    found.most("approval by a function over C, asyncio, ms", over_c("tool", AIO), 0.3)
    found.most("approval by a function over C, blocking, ms", over_c("tool", BLOCKING), 0.3)
    for path in BRIDGES[1:]:
        found.most(f"bridge, 16 MiB of text, {path.replace(' ', ' to ')}, ms", m.median(f"text {path}", BLOCKING), 200)
    found.most(f"threads of {m.opt.sessions} sessions in one loop", m.median("threads", AIO), 40)
    found.least("CodeExecutor to first result, ipybox / cellgate.ipybox", faster("start"), 50)
    found.least("the same for a further one", faster("again"), 50)
    found.least("tool call, ipybox / cellgate.ipybox", faster("ipybox tool"), 8)
    return found


def table(m: Measurement) -> str:
    names = list(m.peers)
    lines = ["medians", " " * 52 + "".join(f"{n:>16}" for n in names)]
    for row, (unit, what) in ROWS.items():
        values = [m.median(row, n) for n in names]
        if any(v is not None for v in values):
            title = f"{what}, {unit}" if unit else what
            lines.append(f"{title:52}" + "".join(report.cell(v, 16) for v in values))
    lines += [f"note: {note}" for note in m.notes]
    return "\n".join([*lines, "", *targets(m).lines(56)])


def parse_args() -> argparse.Namespace:
    ap = argparse.ArgumentParser(
        prog="bench/python",
        description="Measures the Python package next to the C API, and cellgate.ipybox next to ipybox: medians.",
        epilog="Needs scripts/setup --bench, which bench/python calls. The figures are wall-clock times.",
    )
    ap.add_argument("--rounds", type=int, default=7, help="turns of each measurement (default 7)")
    ap.add_argument("--round-trips", type=int, default=100, help="cells or calls in a turn (default 100)")
    ap.add_argument("--sessions", type=int, default=500, help="sessions in one event loop (default 500)")
    ap.add_argument("--sections", default=",".join(SECTIONS), help=f"of: {','.join(SECTIONS)}")
    report.add_options(ap, "bench-python")
    opt = ap.parse_args()
    report.check_sections(ap, opt, SECTIONS)
    return opt


def main() -> int:
    opt = parse_args()
    bench.build()
    with tempfile.TemporaryDirectory(prefix="bench-home-") as home:
        # Nobody else's supervisor, and state of this run alone.
        env = {
            "PYTHONPATH": str(bench.PREFIX / "lib/cellgate/package"),
            "XDG_RUNTIME_DIR": home,
            "XDG_STATE_HOME": home,
        }
        python: list[str | Path] = [bench.BENCH_PYTHON, "-B"]
        cellgate, ipybox = bench.BENCH / "drive_cellgate.py", bench.BENCH / "drive_ipybox.py"
        peers = {
            C: bench.Peer(C, [bench.BUILD / "bench_api"], env),
            BLOCKING: bench.Peer(BLOCKING, [*python, cellgate, "blocking"], env),
            AIO: bench.Peer(AIO, [*python, cellgate, "aio"], env),
            OURS: bench.Peer(OURS, [*python, ipybox, "--cellgate"], env),
            IPYBOX: bench.Peer(IPYBOX, [*python, ipybox], {"PATH": os.environ["PATH"]}),
        }
        m = Measurement(opt, peers)
        try:
            for name in opt.sections:
                print(f"bench: {name}", file=sys.stderr, flush=True)
                getattr(m, name)()
        except bench.DriverError as e:
            sys.exit(f"bench: {e}")
        finally:
            for peer in peers.values():
                if peer.driver:
                    peer.driver.close()
    figures = {
        "machine": report.machine(),
        "rows": report.rows(ROWS, m.samples),
        "notes": m.notes,
        "targets": targets(m).report(),
    }
    return report.finish(opt, table(m), figures, targets(m))


if __name__ == "__main__":
    sys.exit(main())
