"""Measures commands and files beside a session's cells, next to bubblewrap, srt, crun and cp, in one run.

Run by bench/exec. A command in cellgate runs in a sandbox that is there already, as `docker exec` does; crun has such a
container, too, where it can run (as root, with Debian's package). bubblewrap and srt make a sandbox for each command.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bench
import report
from bench_sandbox import start_ms

OURS, SPAWN, BWRAP, SRT, CRUN = "cellgate", "posix_spawn", "bwrap", "srt", "crun exec"
SECTIONS = ("exec", "files")
CONTAINER = f"cellgate-bench-{os.getpid()}"


@contextlib.contextmanager
def crun_container(folder: Path) -> Iterator[list[str] | None]:
    """The command line for a program in a container that runs, or None where crun is missing or cannot run."""
    crun = shutil.which("crun")
    if not crun or os.geteuid() != 0:
        yield None
        return
    call = [crun, "--cgroup-manager=disabled", "--root", str(folder / "state")]
    (folder / "rootfs").mkdir()
    subprocess.run([crun, "spec"], cwd=folder, check=True)
    spec = json.loads((folder / "config.json").read_text())
    spec["process"] |= {"terminal": False, "args": ["sleep", "86399"]}
    for name in ("usr", "bin", "lib", "lib64"):
        (folder / "rootfs" / name).mkdir()
        spec["mounts"].append({"destination": f"/{name}", "source": f"/{name}", "options": ["rbind", "ro"]})
    (folder / "config.json").write_text(json.dumps(spec))
    ran = subprocess.run([*call, "run", "-d", CONTAINER], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        yield [*call, "exec", CONTAINER] if ran.returncode == 0 else None
    finally:
        subprocess.run([*call, "delete", "-f", CONTAINER], stderr=subprocess.DEVNULL)


class Measurement:
    def __init__(self, opt: argparse.Namespace, driver: bench.Driver, commands: dict[str, list[str]]) -> None:
        self.opt = opt
        self.driver = driver
        self.commands = commands
        self.samples: dict[str, dict[str, list[float]]] = {}

    def add(self, row: str, peer: str, ms: list[float]) -> None:
        self.samples.setdefault(row, {}).setdefault(peer, []).extend(ms)

    def exec(self) -> None:
        env = {k: os.environ[k] for k in ("PATH", "LANG", "HOME") if k in os.environ}
        for i in range(self.opt.rounds + 1):
            turn = {OURS: [s * 1e3 for s in self.driver.command("exec 20 true")]}
            turn[SPAWN] = [s * 1e3 for s in self.driver.command("spawn 20 true")]
            for peer, argv in self.commands.items():
                turn[peer] = [start_ms([*argv, "true"], env) for _ in range(1 if peer == SRT else 5)]
            for peer, ms in turn.items():
                if i:  # before, everything is read from the disk
                    self.add("exec", peer, ms)

    def files(self) -> None:
        """In memory on both sides: the private /tmp, and /dev/shm."""
        with tempfile.TemporaryDirectory(prefix="cellgate-bench-", dir="/dev/shm") as folder:
            source, copy = Path(folder, "source"), Path(folder, "copy")
            with source.open("wb") as f:
                for _ in range(self.opt.megabytes):
                    f.write(os.urandom(1 << 20))
            unlink = '__import__("pathlib").Path("/tmp/file").unlink(missing_ok=True)'
            for i in range(self.opt.file_rounds + 1):
                self.driver.command(f"rtt 1 {unlink}")  # all three make a new file
                turn = {"put": self.driver.command(f"put 1 /tmp/file {source}")}
                turn["get"] = self.driver.command(f"get 1 /tmp/file {copy}")
                if copy.read_bytes() != source.read_bytes():
                    raise SystemExit("bench: the copy differs")
                copy.unlink()
                start = time.perf_counter()
                subprocess.run(["cp", source, copy], check=True)
                turn["cp"] = [time.perf_counter() - start]
                copy.unlink()
                for peer, seconds in turn.items():
                    if i:
                        self.add("files", peer, [s * 1e3 for s in seconds])

    def median(self, row: str, peer: str) -> float | None:
        values = self.samples.get(row, {}).get(peer)
        return statistics.median(values) if values else None


def targets(m: Measurement) -> report.Targets:
    """Targets of cellgate for the measured values: name, value, target, reached?"""

    def ratio(row: str, over: str, under: str) -> float | None:
        a, b = m.median(row, over), m.median(row, under)
        return a / b if a and b else None

    found = report.Targets()
    ours, spawn = m.median("exec", OURS), m.median("exec", SPAWN)
    found.most("`true`, ms over posix_spawn outside", ours - spawn if ours and spawn else None, 3)
    found.most("`true`, times bwrap's time", ratio("exec", OURS, BWRAP), 1)
    found.most("`true`, times crun's time", ratio("exec", OURS, CRUN), 1)
    found.least("`true`, times faster than srt", ratio("exec", SRT, OURS), 50)
    found.most("a file into the sandbox, times cp's time", ratio("files", "put", "cp"), 1)
    found.most("a file out of the sandbox, times cp's time", ratio("files", "get", "cp"), 1)
    return found


def table(m: Measurement) -> str:
    lines = ["medians, ms"]
    for row, peers in m.samples.items():
        what = "`true`" if row == "exec" else f"{m.opt.megabytes} MB"
        lines += [f"{what:12}{peer:16}{report.cell(m.median(row, peer), 12)}" for peer in peers]
    return "\n".join([*lines, "", *targets(m).lines(48)])


def parse_args() -> argparse.Namespace:
    ap = argparse.ArgumentParser(
        prog="bench/exec",
        description="Measures commands and files beside cells with bubblewrap, srt, crun and cp: medians and ratios.",
        epilog="crun only as root where Debian's package is installed. The figures are wall-clock times.",
    )
    ap.add_argument(
        "--rounds", type=int, default=15, help="turns of commands: srt once, others 5 or 20 times (default 15)"
    )
    ap.add_argument("--file-rounds", type=int, default=5, help="turns of copies (default 5)")
    ap.add_argument(
        "--megabytes",
        type=int,
        default=400,
        help="size of the file, of which the private /tmp must hold two (default 400)",
    )
    report.add_parts(ap, SECTIONS)
    report.add_options(ap, "bench-exec")
    opt = ap.parse_args()
    report.check_sections(ap, opt, SECTIONS)
    return opt


def main() -> int:
    opt = parse_args()
    if not opt.prefix:
        bench.build()
    program = bench.BUILD / "bench_api"
    with tempfile.TemporaryDirectory(prefix="bench-home-") as home:
        if opt.prefix:
            program = Path(home) / "bench_api"
            bench.build_driver(opt.prefix.resolve(), program)
        commands = {
            BWRAP: ["/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/", "/"],
            SRT: [str(bench.REPO / ".deps/bench-npm/node_modules/.bin/srt")],
        }
        (Path(home) / "crun").mkdir()
        with crun_container(Path(home) / "crun") as crun:
            commands |= {CRUN: crun} if crun else {}
            commands = {name: argv for name, argv in commands.items() if os.access(argv[0], os.X_OK)}
            driver = bench.Driver(OURS, [program], {}, Path(home) / "log")
            try:
                driver.command("cold")
                m = Measurement(opt, driver, commands)
                for name in opt.sections:
                    print(f"bench: {name}", file=sys.stderr, flush=True)
                    getattr(m, name)()
            finally:
                driver.close()
    figures = {"machine": report.machine(), "rows": m.samples, "targets": targets(m).report()}
    return report.finish(opt, table(m), figures, targets(m))


if __name__ == "__main__":
    sys.exit(main())
