"""Measures everyday work outside, in bubblewrap and in `cellgate sandbox`, interleaved in one run: a table and JSON.

Run by bench/work. Processor time, context switches and system calls are those of the whole tree of processes, counted
by `perf stat`. Nothing needs a network: what is installed is made here.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import bench
import report

OUTSIDE, BWRAP, OURS = "outside", "bwrap", "cellgate"
CPU, WALL, SWITCHES, CALLS = range(4)  # places in a sample; ms, ms, numbers
FILES = 5000

# Name: command, and the most processor time beside bwrap's. Each file that a command makes, opens for writing or
# removes costs two to four switches to init (docs/sandbox.md), which cost most where the processors were idle.
WORK = {
    "true": ("/bin/true", 1.3),
    "untar": (f"tar xf $SEED/{FILES}.tar", 5.0),
    "rm -rf": ("rm -rf t", 4.0),
    "git clone": ("git -c protocol.file.allow=always clone -q --no-local $SEED/repo g", 3.2),
    "git status": ("cd g && for i in 1 2 3 4 5; do git status --short; done", 1.8),
    "cp -r": ("cp -r g/d1 g/d2 g/d3 g/d4 g/d5 g/d6 .", 2.4),
    "pip install": (
        "$PYTHON -m pip -q --no-cache-dir --disable-pip-version-check install --no-index --no-compile --target p"
        " $SEED/many-1.0-py3-none-any.whl",
        1.4,
    ),
    "npm install": (
        "npm install --silent --offline --no-audit --no-fund --cache $PWD/npmcache $SEED/many-1.0.0.tgz",
        1.4,
    ),
    "venv": ("/usr/bin/python3 -m venv --without-pip v", 1.3),
    "pytest": ("$PYTHON -m pytest -q -p no:cacheprovider --basetemp=$PWD/pt $SEED/tests", 1.3),
    "gcc": ("for i in $(seq 0 19); do gcc -c $SEED/c/f$i.c -o f$i.o; done", 1.1),
    "fork+exec": ("for i in $(seq 300); do /bin/true; done", 1.1),
}
TEST = """import pytest
@pytest.mark.parametrize('i', range(20))
def test_a(i, tmp_path):
    (tmp_path/'x').write_text('1')
    assert (tmp_path/'x').read_text()=='1'
"""


def shell(command: str, cwd: Path) -> None:
    subprocess.run(["bash", "-c", command], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def make_seed(seed: Path) -> None:
    """What the commands work on: an archive, a repository, a wheel, a package of npm, tests and sources."""
    with tarfile.open(seed / f"{FILES}.tar", "w") as archive:
        for d in range(FILES // 100):
            info = tarfile.TarInfo(f"t/d{d}")
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(info)
            for f in range(100):
                info = tarfile.TarInfo(f"t/d{d}/f{f}.txt")
                info.size, info.mode = 1000, 0o644
                archive.addfile(info, io.BytesIO(b"x" * 1000))
    identity = "-c user.name=bench -c user.email=bench@example.org"
    shell(
        f"tar xf {FILES}.tar && mv t repo && cd repo && git init -q && git add -A && git {identity} commit -qm 1", seed
    )
    with zipfile.ZipFile(seed / "many-1.0-py3-none-any.whl", "w") as wheel:
        names = {f"many/m{f}.py": f"x = {f}\n" * 50 for f in range(600)}
        names["many-1.0.dist-info/METADATA"] = "Metadata-Version: 2.1\nName: many\nVersion: 1.0\n"
        names["many-1.0.dist-info/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        names["many-1.0.dist-info/RECORD"] = "".join(f"{n},,\n" for n in [*names, "many-1.0.dist-info/RECORD"])
        for name, text in names.items():
            wheel.writestr(name, text)
    files = {"package/package.json": '{"name":"many","version":"1.0.0"}'}
    files |= {f"package/lib/m{f}.js": f"module.exports={f};\n" * 20 for f in range(1500)}
    files |= {f"c/f{f}.c": f'#include <stdio.h>\nint f{f}(void){{return printf("{f}");}}\n' for f in range(20)}
    files |= {f"tests/test_{f}.py": TEST for f in range(20)}
    for name, text in files.items():
        (seed / name).parent.mkdir(parents=True, exist_ok=True)
        (seed / name).write_text(text)
    if shutil.which("npm"):
        shell("npm pack --silent ./package", seed)


class Failed(Exception):
    """A command did not end with success."""


def measure(argv: list[str], cwd: Path, env: dict[str, str], stat: Path) -> list[float]:
    """One sample."""
    events = "task-clock,context-switches,raw_syscalls:sys_enter"
    began = time.perf_counter()
    p = subprocess.run(
        ["perf", "stat", "-x,", "-o", stat, "-e", events, "--", *argv],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    wall = (time.perf_counter() - began) * 1e3
    if p.returncode:
        raise Failed(f"`{argv[-1]}` ended with {p.returncode}: {' '.join(p.stdout.split())[-200:]}")
    fields = [line.split(",") for line in stat.read_text().splitlines() if "," in line]
    cpu, switches, calls = (float(f[0]) for f in fields)
    return [cpu, wall, switches, calls]


class Measurement:
    def __init__(self, opt: argparse.Namespace, base: Path) -> None:
        self.opt = opt
        self.base = base
        self.work = base / "work"
        self.samples: dict[str, dict[str, list[list[float]]]] = {w: {} for w in opt.only}
        self.skipped: list[str] = []
        python = bench.REPO / ".deps/test-env/bin/python"
        self.env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(base / "home"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SEED": str(base / "seed"),
            "PYTHON": str(python),
        }
        for name in ("home", "seed", "work"):
            (base / name).mkdir()
        make_seed(base / "seed")
        settings = base / "settings.json"
        files = {"denyRead": [], "allowWrite": [str(self.work)], "denyWrite": []}
        network: dict[str, list[str]] = {"allowedDomains": [], "deniedDomains": []}
        settings.write_text(json.dumps({"network": network, "filesystem": files}))
        root = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(self.work), str(self.work)]
        ours = [str(opt.prefix / "bin/cellgate"), "sandbox", "-q", "-s", str(settings)]
        self.peers = {
            OUTSIDE: [],
            BWRAP: ["bwrap", *root, "--unshare-all", "--die-with-parent", "--"],
            OURS: [*ours, *(["--tier", opt.tier] if opt.tier else []), "--"],
        }

    def run(self) -> None:
        names = list(self.peers)
        for turn in range(self.opt.rounds):
            for peer in names[turn % len(names) :] + names[: turn % len(names)]:
                shutil.rmtree(self.work)
                self.work.mkdir()
                for name in list(self.samples):
                    self.sample(name, peer)
            print(f"bench: round {turn + 1} of {self.opt.rounds}", file=sys.stderr, flush=True)

    def sample(self, name: str, peer: str) -> None:
        """A command that fails outside (there is no npm, say) is left out; one that fails inside ends the program."""
        argv = [*self.peers[peer], "bash", "-c", WORK[name][0]]
        try:
            sample = measure(argv, self.work, self.env, self.base / "stat")
        except Failed as e:
            if peer != OUTSIDE:
                sys.exit(f"bench: {name} in {peer}: {e}")
            del self.samples[name]
            self.skipped.append(f"skipped: {name}: {e}")
        else:
            self.samples[name].setdefault(peer, []).append(sample)

    def median(self, name: str, peer: str, place: int) -> float:
        return statistics.median(sample[place] for sample in self.samples[name][peer])

    def ratio(self, name: str, peer: str, place: int) -> float:
        return self.median(name, OURS, place) / self.median(name, peer, place)


def targets(m: Measurement) -> report.Targets:
    found = report.Targets()
    for name in m.samples:
        found.most(f"`{name}`, times bwrap's CPU", m.ratio(name, BWRAP, CPU), WORK[name][1])
    return found


def table(m: Measurement) -> str:
    lines = [
        f"{'medians of the whole tree':26}" + "".join(f"{p:>34}" for p in m.peers) + "    CPU / bwrap  wall / bwrap"
    ]
    lines.append(" " * 26 + f"{'CPU ms':>9}{'wall ms':>9}{'switches':>8}{'calls':>8}" * len(m.peers))
    for name in m.samples:
        values = "".join(
            f"{m.median(name, p, CPU):9.1f}{m.median(name, p, WALL):9.1f}"
            f"{m.median(name, p, SWITCHES):8.0f}{m.median(name, p, CALLS):8.0f}"
            for p in m.peers
        )
        lines.append(f"{name:26}{values}{m.ratio(name, BWRAP, CPU):15.2f}{m.ratio(name, BWRAP, WALL):14.2f}")
    return "\n".join([*lines, *m.skipped, "", *targets(m).lines(40)])


def figures(m: Measurement) -> dict[str, object]:
    columns = ["cpu_ms", "wall_ms", "switches", "calls"]
    return {
        "machine": report.machine(),
        "columns": columns,
        "rows": m.samples,
        "skipped": m.skipped,
        "targets": targets(m).report(),
    }


def main() -> int:
    ap = argparse.ArgumentParser(
        prog="bench/work",
        description="Measures everyday work outside, in bubblewrap and in cellgate sandbox: medians and ratios.",
        epilog="Needs scripts/setup --bench, which bench/work calls, and perf (Debian: linux-perf).",
    )
    ap.add_argument("--rounds", type=int, default=5, help="turns of each command (default 5)")
    ap.add_argument("--only", default=",".join(WORK), help="commands, in this order; some need those before them")
    ap.add_argument("--tier", help="of cellgate sandbox: full or landlock")
    ap.add_argument("--prefix", type=Path, help="an installed cellgate to measure, instead of building build/bench")
    report.add_options(ap, "bench-work")
    opt = ap.parse_args()
    opt.only = opt.only.split(",")
    if unknown := set(opt.only) - set(WORK):
        ap.error(f"no command {', '.join(unknown)}; there are: {', '.join(WORK)}")
    if not shutil.which("perf"):
        sys.exit("perf is not there: install the package linux-perf (Ubuntu: linux-tools-generic)")
    if not opt.prefix:
        bench.build()
    opt.prefix = (opt.prefix or bench.PREFIX).resolve()
    # Sandboxes have a /tmp and a /dev/shm of their own.
    with tempfile.TemporaryDirectory(prefix="bench-work-", dir="/var/tmp") as base:
        if os.geteuid() == 0:  # a disk disturbs the figures
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "bench", base], check=True)
        try:
            m = Measurement(opt, Path(base))
            m.run()
        finally:
            if os.geteuid() == 0:
                subprocess.run(["umount", base], check=True)
    return report.finish(opt, table(m), figures(m), targets(m))


if __name__ == "__main__":
    sys.exit(main())
