"""Measures cellgate side by side with ipykernel and ipybox, in one run on one machine; prints a table and writes JSON.

Run by bench/run. Each peer is a driver process (bench_api.c, drive_*.py) that takes a command a line and answers with
samples, so the peers are measured in turns: A B C A B C, and what disturbs the machine disturbs them all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import report

REPO = report.REPO
BENCH = REPO / "bench"
BUILD = REPO / "build/bench"
PREFIX = BUILD / "root"
BENCH_PYTHON = REPO / ".deps/bench-env/bin/python"
C_FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra"]
PRINTS = "for i in range(100000): print('x' * 99)"
PRINTS_BYTES = 10_000_000

# Unit and what a row is, in the order of the table.
ROWS = {
    "cold": ("ms", "cold start: host process to first result"),
    "first": ("ms", "first `cellgate run -c 1`, start to exit"),
    "warm": ("ms", "the same with the shared supervisor that it has left"),
    "kernel": ("ms", "start of a further kernel to its first result"),
    "kernel fresh": ("ms", "the same, forked when it is asked for (no spare)"),
    "rtt pass": ("ms", "round trip of `pass`"),
    "rtt 1": ("ms", "round trip of `1`"),
    "prints": ("ms", "10 MB of prints"),
    "tool": ("ms", "tool call, approved"),
    "tool http": ("ms", "tool call over HTTP, approved"),
    "function": ("ms", "function call of the host"),
    "memory 1": ("MB", "memory with 1 idle kernel"),
    "memory 20": ("MB", "memory with 20 idle kernels"),
    "memory each": ("MB", "memory of each further kernel"),
}


# Each peer's processes are below its driver, which measures their memory.
os.environ["CELLGATE_PRIVATE"] = "1"


class DriverError(Exception):
    pass


class Driver:
    """One process that measures one peer."""

    def __init__(self, name: str, argv: list[str | Path], env: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log.open("ab")
        self.proc = subprocess.Popen(
            [str(a) for a in argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, **env},
        )

    def command(self, text: str, limit_s: float = 300) -> list[float]:
        assert self.proc.stdin and self.proc.stdout
        self.proc.stdin.write(text.encode() + b"\n")
        self.proc.stdin.flush()
        if not select.select([self.proc.stdout], [], [], limit_s)[0]:
            raise DriverError(f"{self.name}: no answer to {text!r} in {limit_s:.0f} s")
        line = self.proc.stdout.readline()
        if not line:
            raise DriverError(f"{self.name}: the driver ended; see {self.log.name}")
        answer = json.loads(line)
        if "error" in answer:
            raise DriverError(f"{self.name}: {text!r}: {answer['error']}")
        return list(answer["samples"])

    def close(self) -> None:
        assert self.proc.stdin
        self.proc.stdin.close()
        try:
            self.proc.wait(60)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        self.log.close()


class Peer:
    """How to start the driver of one peer, and what it can do."""

    def __init__(
        self, name: str, argv: list[str | Path], env: dict[str, str] | None = None, tools: bool = True
    ) -> None:
        self.name = name
        self.argv = argv
        self.env = env or {}
        self.tools = tools
        self.driver: Driver | None = None

    def start(self) -> Driver:
        return Driver(self.name, self.argv, self.env, BUILD / f"{self.name}.log")


# ------------------------------------------------------------------ memory


def descendants(root: int) -> Iterator[int]:
    """All processes below root, without root itself."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    todo = list(children.get(root, []))
    while todo:
        pid = todo.pop()
        yield pid
        todo += children.get(pid, [])


def pss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0  # a process without memory: it has just ended


def memory_mb(driver: Driver) -> float:
    """PSS of all processes that the host library started. Not of the driver itself, which is not C for all peers."""
    return sum(pss_mb(pid) for pid in descendants(driver.proc.pid))


def settled_memory_mb(driver: Driver) -> float:
    """The memory once it has stopped changing: two looks, 0.3 s apart, within 1 %; 15 s at the longest."""
    last, deadline = memory_mb(driver), time.monotonic() + 15
    while time.monotonic() < deadline:
        time.sleep(0.3)
        here = memory_mb(driver)
        if abs(here - last) <= 0.01 * here:
            return here
        last = here
    return last


# ---------------------------------------------------------------- measuring


@contextlib.contextmanager
def web_server() -> Iterator[str]:
    """The URL of echo_http, which runs meanwhile."""
    with subprocess.Popen([BUILD / "echo_http"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        process.communicate()


class Measurement:
    def __init__(self, peers: list[Peer], opt: argparse.Namespace) -> None:
        self.peers = peers
        self.opt = opt
        self.samples: dict[str, dict[str, list[float]]] = {row: {p.name: [] for p in peers} for row in ROWS}
        self.imports: list[float] = []
        self.direct: list[float] = []
        self.direct_http: list[float] = []
        self.unaudited: list[float] = []
        self.audited: list[float] = []
        self.notes: list[str] = []

    def add(self, row: str, peer: Peer, seconds: list[float]) -> None:
        self.samples[row][peer.name] += [s * 1000 for s in seconds]

    def cold(self) -> None:
        """Each time a new host process, from its start (its imports belong to it) to the first result."""
        for _ in range(self.opt.rounds):
            for peer in self.peers:
                start = time.perf_counter()
                driver = peer.start()
                try:
                    driver.command("cold")
                    self.add("cold", peer, [time.perf_counter() - start])
                finally:
                    driver.close()

    def first(self) -> None:
        """`cellgate run` where no supervisor runs yet, then where one does, beside the import of IPython alone."""
        cellgate, python = PREFIX / "bin/cellgate", REPO / ".deps/kernel-env/bin/python"
        for _ in range(self.opt.rounds):
            with tempfile.TemporaryDirectory(prefix="cgb-") as runtime:
                env = {k: v for k, v in os.environ.items() if k != "CELLGATE_PRIVATE"} | {"XDG_RUNTIME_DIR": runtime}

                def measure(samples: list[float], *argv: str | Path, env: dict[str, str] = env) -> None:
                    start = time.perf_counter()
                    folder = env["XDG_RUNTIME_DIR"]
                    subprocess.run(argv, env=env, cwd=folder, capture_output=True, timeout=60, check=True)
                    samples.append((time.perf_counter() - start) * 1000)

                measure(self.samples["first"]["cellgate"], cellgate, "run", "-c", "1")
                for _ in range(5):
                    time.sleep(0.2)  # a person or an agent: the next spare is ready
                    measure(self.samples["warm"]["cellgate"], cellgate, "run", "-c", "1")
                subprocess.run([cellgate, "daemon", "stop"], env=env, capture_output=True, timeout=60, check=True)
                measure(self.imports, python, "-c", "import IPython")

    def rounds(self) -> None:
        """Everything that needs a host that runs already, in turns."""
        server = BUILD / "echo_server"
        for peer in self.peers:
            assert peer.driver
            peer.driver.command("cold")
            peer.driver.command("rtt 20 pass")
        for _ in range(self.opt.rounds):
            for peer in self.peers:
                assert peer.driver
                seconds = peer.driver.command("kernel")
                self.add("kernel", peer, seconds)
                fresh = peer.driver.command("fresh") if peer.name == "cellgate" else seconds
                self.add("kernel fresh", peer, fresh)
        for row, code in (("rtt pass", "pass"), ("rtt 1", "1")):
            for _ in range(self.opt.rounds):
                for peer in self.peers:
                    assert peer.driver
                    self.add(row, peer, peer.driver.command(f"rtt {self.opt.round_trips} {code}"))
        complete = list(self.peers)
        for _ in range(max(3, self.opt.rounds // 2)):
            for peer in list(complete):
                assert peer.driver
                try:
                    self.add("prints", peer, peer.driver.command(f"prints {PRINTS_BYTES} {PRINTS}"))
                except DriverError as e:  # a peer that loses output has no figure here
                    self.notes.append(str(e))
                    complete.remove(peer)
        with web_server() as url:
            self.tools({"tool": str(server), "tool http": url})

    def tools(self, servers: dict[str, str]) -> None:
        """Calls of the same tool, and the same calls without a kernel."""
        with_tools = [p for p in self.peers if p.tools]
        for peer in with_tools:
            for server in servers.values():
                assert peer.driver
                peer.driver.command(f"tool 5 {server}")
        for _ in range(self.opt.rounds):
            for row, server in servers.items():
                for peer in with_tools:
                    assert peer.driver
                    self.add(row, peer, peer.driver.command(f"tool {self.opt.round_trips} {server}"))
            assert self.peers[0].driver
            calls = self.peers[0].driver.command(f"function {self.opt.round_trips}")
            self.add("function", self.peers[0], calls)
            direct = self.peers[0].driver.command(f"direct {self.opt.round_trips} {servers['tool']}")
            self.direct += [s * 1000 for s in direct]
            argv = [BUILD / "direct_http", str(self.opt.round_trips), servers["tool http"]]
            answer = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True).stdout
            self.direct_http += [s * 1000 for s in json.loads(answer)]

    def audit(self) -> None:
        """The same tool call in a session with an audit log, and in one without."""
        if not self.samples["tool"]["cellgate"]:
            return
        peer, server = self.peers[0], BUILD / "echo_server"
        with tempfile.TemporaryDirectory(prefix="cgb-") as state:
            env = {"BENCH_AUDIT": "strict", "XDG_STATE_HOME": state}
            plain, audited = peer.start(), Driver("audited", peer.argv, env, BUILD / "audited.log")
            try:
                for driver in (plain, audited):
                    driver.command("cold")
                    driver.command(f"tool 20 {server}")
                for _ in range(2 * self.opt.rounds):
                    command = f"tool {self.opt.round_trips} {server}"
                    self.unaudited += [s * 1000 for s in plain.command(command)]
                    self.audited += [s * 1000 for s in audited.command(command)]
            finally:
                plain.close()
                audited.close()

    def memory(self) -> None:
        for _ in range(2):
            for peer in self.peers:
                driver = peer.start()
                try:
                    driver.command("cold")  # kernel number one
                    one = settled_memory_mb(driver)
                    driver.command("keep 19", 600)
                    twenty = settled_memory_mb(driver)
                finally:
                    driver.close()
                for row, value in (("memory 1", one), ("memory 20", twenty), ("memory each", (twenty - one) / 19)):
                    self.samples[row][peer.name].append(value)

    def run(self) -> None:
        self.cold()
        if "cellgate" in self.samples["first"]:
            self.first()
        try:
            for peer in self.peers:
                peer.driver = peer.start()
            self.rounds()
        finally:
            for peer in self.peers:
                if peer.driver:
                    peer.driver.close()
        self.audit()
        self.memory()

    def median(self, row: str, name: str) -> float | None:
        values = self.samples[row].get(name)
        return statistics.median(values) if values else None


# ----------------------------------------------------------------- reporting


def targets(m: Measurement) -> report.Targets:
    """Targets of cellgate: name, value, target, reached?"""

    def ratio(row: str, other: str = "ipykernel") -> float:
        ours, theirs = m.median(row, "cellgate"), m.median(row, other)
        return theirs / ours if ours and theirs else 0.0

    def overhead(row: str, direct: list[float]) -> float:
        tool = m.median(row, "cellgate")
        return tool - statistics.median(direct) if tool is not None and direct else float("inf")

    first, warm = m.median("first", "cellgate"), m.median("warm", "cellgate")
    functions, tools = m.median("function", "cellgate"), m.median("tool", "cellgate")
    found = report.Targets()
    imports = first / statistics.median(m.imports) if first and m.imports else 9.0
    found.most("first `cellgate run -c 1` / `import IPython`", imports, 1.5)
    found.least("further kernel, ipykernel / cellgate", ratio("kernel"), 30)
    found.least("`cellgate run -c 1`, the first / further ones", first / warm if first and warm else 0.0, 15)
    found.least("round trip of `1`, ipykernel / cellgate", ratio("rtt 1"), 4)
    found.least("memory of a further kernel, ipykernel / cellgate", ratio("memory each"), 6)
    found.least("approved tool call, ipybox / cellgate", ratio("tool", "ipybox"), 8)
    found.most("function call of the host / approved tool call", functions / tools if functions and tools else 9.0, 0.5)
    found.least("approved tool call over HTTP, ipybox / cellgate", ratio("tool http", "ipybox"), 8)
    found.most("approved tool call minus direct call, ms", overhead("tool", m.direct), 1)
    found.most("the same over HTTP, minus libcurl's own call, ms", overhead("tool http", m.direct_http), 0.3)
    if m.audited:
        record = (statistics.median(m.audited) - statistics.median(m.unaudited)) * 1000
        found.most("audit of a tool call, us", record, 30)
    return found


def table(m: Measurement) -> str:
    names = [p.name for p in m.peers]
    heads = [*names, *(f"/{n}" for n in names[1:])]
    lines = ["medians; the columns with / say how many times cellgate's figure the other's is", " " * 50]
    lines[1] += "".join(f"{h:>14}" for h in heads)
    for row, (unit, what) in ROWS.items():
        values = [m.median(row, n) for n in names]
        cells = "".join(report.cell(v, 14) for v in values)
        ratios = "".join(report.times(v, values[0], 14) for v in values[1:])
        lines.append(f"{what + ', ' + unit:50}{cells}{ratios}")
    if m.imports:
        lines.append(f"{'`import IPython` by Python itself, start to exit, ms':50}{statistics.median(m.imports):14.3f}")
    if m.direct:
        lines.append(f"{'the same tool call made directly, ms':50}{statistics.median(m.direct):14.3f}")
    if m.direct_http:
        lines.append(f"{'the same over HTTP, by libcurl alone, ms':50}{statistics.median(m.direct_http):14.3f}")
    if m.audited:
        lines.append(f"{'the tool call in a session with an audit log, ms':50}{statistics.median(m.audited):14.3f}")
    lines += [f"note: {note}" for note in m.notes]
    return "\n".join([*lines, "", *targets(m).lines(54)])


def figures(m: Measurement) -> dict[str, object]:
    return {
        "machine": report.machine(),
        "rows": report.rows(ROWS, m.samples),
        "notes": m.notes,
        "import IPython": {"unit": "ms", **report.numbers(m.imports)} if m.imports else None,
        "direct": {"unit": "ms", **report.numbers(m.direct)} if m.direct else None,
        "direct http": {"unit": "ms", **report.numbers(m.direct_http)} if m.direct_http else None,
        "audited": {"unit": "ms", **report.numbers(m.audited)} if m.audited else None,
        "targets": targets(m).report(),
    }


# ------------------------------------------------------------------ building


def shell(*argv: str | Path, limit_s: float = 1200) -> None:
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=limit_s, cwd=REPO)
    if r.returncode != 0:
        sys.exit(f"bench: this failed: {shlex.join(map(str, argv))}\n{r.stdout[-3000:]}{r.stderr[-3000:]}")


def build_driver(prefix: Path, program: Path) -> None:
    """bench_api.c, linked to the library that is installed there."""
    library = next(prefix.rglob("libcellgate.so"))
    flags = [*C_FLAGS, f"-I{prefix}/include", f"-Wl,-rpath,{library.parent}"]
    shell("gcc", *flags, BENCH / "bench_api.c", "-o", program, library)


def build() -> None:
    """A release build of this tree in build/bench, and the benchmark's C programs, linked to what it installs."""
    package = BUILD / "python/cellgate"
    if not (BUILD / "build.ninja").exists() or not package.exists():  # an older one has no package
        shutil.rmtree(BUILD, ignore_errors=True)
        shell(
            "meson",
            "setup",
            BUILD,
            REPO,
            f"--prefix={PREFIX}",
            "--buildtype=release",
            "-Dtests=false",
            f"-Dkernel_env={REPO}/.deps/kernel-env",
            f"-Dpython_package={BENCH_PYTHON}",
        )
    shell("ninja", "-C", BUILD)
    shell("meson", "install", "-C", BUILD, "--no-rebuild")
    build_driver(PREFIX, BUILD / "bench_api")
    for name, libraries in (
        ("echo_server", ["-ljansson"]),
        ("echo_http", ["-ljansson", "-lmicrohttpd"]),
        ("direct_http", ["-lcurl"]),
    ):
        shell("gcc", *C_FLAGS, BENCH / f"{name}.c", "-o", BUILD / name, *libraries)


def parse_args() -> argparse.Namespace:
    ap = argparse.ArgumentParser(
        prog="bench/run",
        description="Measures cellgate side by side with ipykernel and ipybox in one run; prints medians and ratios.",
        epilog="Needs scripts/setup --bench, which bench/run calls. The figures are wall-clock times.",
    )
    ap.add_argument("--rounds", type=int, default=7, help="turns of each measurement (default 7)")
    ap.add_argument("--round-trips", type=int, default=100, help="cells or calls in a turn (default 100)")
    ap.add_argument(
        "--only", default="", metavar="PEER[,PEER]", help="cellgate, ipykernel, ipybox; the first is what ratios are of"
    )
    report.add_options(ap, "bench")
    return ap.parse_args()


def main() -> int:
    opt = parse_args()
    build()
    peers = [
        Peer("cellgate", [BUILD / "bench_api"]),
        Peer("ipykernel", [BENCH_PYTHON, BENCH / "drive_ipykernel.py"], tools=False),
        Peer("ipybox", [BENCH_PYTHON, BENCH / "drive_ipybox.py"]),
    ]
    if opt.only:
        peers = [p for p in peers if p.name in opt.only.split(",")]
    m = Measurement(peers, opt)
    try:
        m.run()
    except DriverError as e:
        sys.exit(f"bench: {e}")
    return report.finish(opt, table(m), figures(m), targets(m))


if __name__ == "__main__":
    sys.exit(main())
