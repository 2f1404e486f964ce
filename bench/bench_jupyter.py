"""Measures cellgate's Jupyter kernel side by side with ipykernel, in one run on one machine; prints a table and JSON.

Run by bench/jupyter. Kernels are started as Jupyter starts them and driven over their ZeroMQ sockets by the same
client, in turns, so that what disturbs the machine disturbs both. cellgate's kernel runs in its sandbox.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import bench
import report

if TYPE_CHECKING:
    from jupyter_client_raw import Kernel

OURS, THEIRS = "cellgate", "ipykernel"
PROVISIONER, CLASS = "cellgate-provisioner", "cellgate.jupyter_provisioner:CellgateProvisioner"
KERNELS = 10  # of which the memory is taken
FIRST = 4  # of these: what cellgate prepares for all notebooks (completion) is in memory once these run
FLOOD = 20_000
PRINTS = "for i in range(100000): print('x' * 99)"
PRINTS_BYTES = 10_000_000
NATIVE = "sum(range(10**12))"
PNG = """
import os, struct, zlib
from IPython.display import Image, display
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
rows = b''.join(b'\\0' + os.urandom(3000) for _ in range(1000))
head = struct.pack('>IIBBBBB', 1000, 1000, 8, 2, 0, 0, 0)
png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', head) + chunk(b'IDAT', zlib.compress(rows, 1)) + chunk(b'IEND', b'')
"""

# Unit and what a row is, in the order of the table.
ROWS = {
    "start": ("ms", "start of a kernel to its first reply"),
    "start fresh": ("ms", "the same, forked when it is asked for (no spare)"),
    "start first": ("ms", "the same, nothing of cellgate running yet"),
    "client": ("ms", "start_new_kernel() of jupyter_client to the first result"),
    "restart": ("ms", "restart to the first reply of the new kernel"),
    "rtt pass": ("ms", "round trip of `pass`, to reply and idle"),
    "rtt 1": ("ms", "round trip of `1`, to reply and idle"),
    "rtt 1 reply": ("ms", "round trip of `1`, to the reply"),
    "complete": ("ms", "completion of `os.path.jo`"),
    "prints": ("ms", "10 MB in 100,000 prints"),
    "write": ("ms", "10 MB in one write"),
    "png": ("ms", "display of a 1000x1000 PNG, 3 MB"),
    "flood": ("us", f"each of {FLOOD:,} displays, reader asleep"),
    "interrupt loop": ("ms", "interrupt reaches a loop"),
    "interrupt sleep": ("ms", "interrupt reaches time.sleep()"),
    "interrupt await": ("ms", "interrupt reaches await asyncio.sleep()"),
    "interrupt reply": ("ms", "interrupt of `while True: pass` to reply and traceback"),
    "interrupt native": ("ms", f"interrupt of {NATIVE}"),
    "control idle": ("ms", "kernel_info on control, idle"),
    "control loop": ("ms", "kernel_info on control, `while True: pass` running"),
    "control native": ("ms", f"kernel_info on control, {NATIVE} running"),
    "heartbeat": ("ms", "heartbeat, the same running"),
    "shutdown": ("ms", "shutdown, idle, to the process's end"),
    "memory 1": ("MB", "memory with 1 idle kernel"),
    "memory all": ("MB", f"memory with {KERNELS} idle kernels"),
    "memory each": ("MB", f"memory of each kernel after the {FIRST}th"),
}

# The time at which a cell receives an interrupt. A sandbox has the same clock as the machine.
# Not `while True` directly in `try`: Python 3.11 finds no handler for what comes at its jump back.
REACHED = """
try:
    i = 1
    {}
except (KeyboardInterrupt, asyncio.CancelledError):
    reached = time.perf_counter()
"""
INTERRUPTS = {
    "interrupt loop": REACHED.format("while time: i = 0"),
    "interrupt sleep": REACHED.format("time.sleep(600)"),
    "interrupt await": REACHED.format("await asyncio.sleep(600)"),
    "interrupt reply": "while True: pass",
    "interrupt native": NATIVE,
}
BUSY = {"control idle": "", "control loop": "while True: pass", "control native": NATIVE}


class Peer:
    """How kernels of one kind are started. Their processes are recognised by a folder in the environment."""

    def __init__(self, name: str, argv: list[str], by_message: bool, transport: str) -> None:
        self.name = name
        self.argv = argv
        self.by_message = by_message
        self.transport = transport
        self.folder = tempfile.TemporaryDirectory(prefix="bench-home-")
        self.env = {**os.environ, "XDG_RUNTIME_DIR": self.folder.name, "IPYTHONDIR": f"{self.folder.name}/ipython"}
        self.env["JPY_PARENT_PID"] = str(os.getpid())
        del self.env["CELLGATE_PRIVATE"]  # bench.py's
        os.chmod(self.folder.name, 0o700)
        self.cwd = Path(self.folder.name) / "notebooks"  # of all kernels, as of those of one server
        self.cwd.mkdir()

    def kernel(self, *options: str) -> Kernel:
        from jupyter_client_raw import Kernel

        return Kernel([*self.argv, *options], self.env, self.cwd, self.transport, self.by_message)

    @contextlib.contextmanager
    def running(self) -> Iterator[Kernel]:
        kernel = self.kernel()
        try:
            yield kernel.ready()
        finally:
            kernel.close()

    def processes(self) -> set[int]:
        """Those with our folder in their environment, and all below them: sandboxed kernels have another."""
        wanted = f"XDG_RUNTIME_DIR={self.folder.name}".encode()
        found: set[int] = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
        return found.union(*(bench.descendants(pid) for pid in found))

    def memory_mb(self) -> float:
        """PSS of all processes once it has stopped changing: two looks, 0.5 s apart, within 1 %; at most 15 s."""

        def now() -> float:
            total = 0.0
            for pid in self.processes():
                with contextlib.suppress(OSError):
                    total += bench.pss_mb(pid)
            return total

        last, deadline = now(), time.monotonic() + 15
        while time.monotonic() < deadline:
            time.sleep(0.5)
            here = now()
            if abs(here - last) <= 0.01 * here:
                return here
            last = here
        return last

    def end_all(self) -> None:
        """Make cellgate's supervisor end at once instead of waiting for further notebooks."""
        deadline = time.monotonic() + 15
        asked: set[int] = set()
        while (alive := self.processes()) and time.monotonic() < deadline:
            for pid in alive - asked:
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text().startswith("cellgate-superv"):
                        os.kill(pid, signal.SIGTERM)
                        asked.add(pid)
            time.sleep(0.02)

    def close(self) -> None:
        self.end_all()
        self.folder.cleanup()


class Measurement:
    def __init__(self, peers: list[Peer], opt: argparse.Namespace, package: Path) -> None:
        self.peers = peers
        self.opt = opt
        self.package = package
        self.samples: dict[str, dict[str, list[float]]] = {row: {p.name: [] for p in peers} for row in ROWS}
        self.notes: list[str] = []
        self.flood_lost: dict[str, int] = {}

    def add(self, row: str, peer: Peer, *seconds: float) -> None:
        scale = {"ms": 1e3, "us": 1e6}[ROWS[row][0]]
        self.samples[row][peer.name] += [s * scale for s in seconds]

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def turns(self, work: Callable[[Peer], None], rounds: int) -> None:
        for _ in range(rounds):
            for peer in self.peers:
                work(peer)

    # ------------------------------------------------------------- sections

    def starts(self) -> None:
        def start(peer: Peer, row: str, *options: str) -> None:
            kernel = peer.kernel(*options)
            try:
                self.add(row, peer, kernel.first_result())
            finally:
                kernel.close()

        def first(peer: Peer) -> None:
            peer.end_all()
            start(peer, "start first")

        def next_one(peer: Peer) -> None:
            time.sleep(0.3)  # a spare is made after the kernel before this one has gone
            start(peer, "start")

        def fresh(peer: Peer) -> None:
            start(peer, "start fresh", *(("--spares", "0") if peer.name == OURS else ()))

        self.turns(first, max(3, self.opt.rounds // 2))
        self.turns(next_one, self.opt.rounds)
        for peer in self.peers:
            peer.end_all()  # a supervisor keeps the spares that it was started with
        warm = {p.name: p.kernel(*(("--spares", "0") if p.name == OURS else ())).ready() for p in self.peers}
        try:
            self.turns(fresh, self.opt.rounds)
        finally:
            for kernel in warm.values():
                kernel.close()
            for peer in self.peers:
                peer.end_all()

    def clients(self) -> None:
        """As notebooks' programs start kernels; cellgate's by the provisioner of its Python package."""
        from jupyter_client.manager import start_new_kernel

        def first_result(peer: Peer) -> float:
            start = time.perf_counter()
            manager, client = start_new_kernel(kernel_name=peer.name, cwd=str(peer.cwd), env=peer.env)
            client.execute("1")
            while client.get_iopub_msg(timeout=60)["msg_type"] != "execute_result":
                pass
            seconds = time.perf_counter() - start
            client.stop_channels()
            manager.shutdown_kernel(now=False)
            return seconds

        with kernelspecs(self.peers, self.package) as path, self.environment(JUPYTER_PATH=str(path)):
            for peer in self.peers:
                first_result(peer)
            for _ in range(self.opt.rounds):
                for peer in self.peers:
                    time.sleep(0.3)  # a spare is made after the kernel before this one has gone
                    self.add("client", peer, first_result(peer))

    @staticmethod
    @contextlib.contextmanager
    def environment(**variables: str) -> Iterator[None]:
        before = dict(os.environ)
        os.environ.update(variables)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def restarts(self) -> None:
        for _ in range(self.opt.rounds):
            for peer in self.peers:
                with peer.running() as kernel:
                    time.sleep(0.3)
                    self.add("restart", peer, kernel.restart())
                    time.sleep(0.3)
                    start = time.perf_counter()
                    kernel.send("shutdown_request", {"restart": False}, "control")
                    assert kernel.process
                    kernel.process.wait(20)
                    self.add("shutdown", peer, time.perf_counter() - start)

    def cells(self) -> None:
        with contextlib.ExitStack() as stack:
            kernels = {p.name: stack.enter_context(p.running()) for p in self.peers}
            for kernel in kernels.values():
                for code in (*["pass", "1"] * 15, "import os, sys", PNG):
                    kernel.run(code)
            self.turns(lambda p: self.round_trips(p, kernels[p.name]), self.opt.rounds)
            self.turns(lambda p: self.outputs(p, kernels[p.name]), max(3, self.opt.rounds // 2))

    def round_trips(self, peer: Peer, kernel: Kernel) -> None:
        for row, code in (("rtt pass", "pass"), ("rtt 1", "1")):
            for _ in range(self.opt.round_trips):
                start = time.perf_counter()
                kernel.run(code)
                self.add(row, peer, time.perf_counter() - start)
        for _ in range(self.opt.round_trips):
            start = time.perf_counter()
            request = kernel.execute("1")
            kernel.reply(request)
            self.add("rtt 1 reply", peer, time.perf_counter() - start)
            kernel.outputs(request)
        for _ in range(max(3, self.opt.round_trips // 10)):
            start = time.perf_counter()
            kernel.reply(kernel.send("complete_request", {"code": "os.path.jo", "cursor_pos": 10}))
            self.add("complete", peer, time.perf_counter() - start)
        kernel.drain()

    def outputs(self, peer: Peer, kernel: Kernel) -> None:
        for row, code in (("prints", PRINTS), ("write", f"_ = sys.stdout.write('x' * {PRINTS_BYTES})")):
            start = time.perf_counter()
            _, found = kernel.run(code)
            seconds = time.perf_counter() - start
            size = sum(len(m.content["text"]) for m in found if m.type == "stream")
            if size == PRINTS_BYTES:
                self.add(row, peer, seconds)
            else:
                self.note(f"{peer.name}: {ROWS[row][1]}: {size:,} of {PRINTS_BYTES:,} bytes arrived")
        start = time.perf_counter()
        _, found = kernel.run("display(Image(data=png))")
        seconds = time.perf_counter() - start
        if any(m.type == "display_data" and len(m.raw_content) > 3_000_000 for m in found):
            self.add("png", peer, seconds)

    def flood(self) -> None:
        """The reader sleeps until the reply is there, with the buffers that a client has by default."""
        code = f"p = get_ipython().display_pub.publish\nfor i in range({FLOOD}): p({{'text/plain': str(i)}})"
        for peer in self.peers:
            kernel = peer.kernel()
            try:
                kernel.received_at_most = 1000  # zmq's default
                kernel.ready()
                start = time.perf_counter()
                request = kernel.execute(code)
                kernel.reply(request, limit_s=120)
                self.add("flood", peer, (time.perf_counter() - start) / FLOOD)
                time.sleep(2)
                received, idle = 0, False
                while not idle and (m := kernel.receive("iopub", 3)):
                    if m.parent.get("msg_id") == request:
                        received += m.type == "display_data"
                        idle = m.type == "status" and m.content["execution_state"] == "idle"
                self.flood_lost[peer.name] = FLOOD - received
                self.note(
                    f"{peer.name}: of {FLOOD:,} displays {received:,} arrived, idle {'too' if idle else 'did not'}"
                )
            finally:
                kernel.close()

    def interrupts(self) -> None:
        from jupyter_client_raw import Lost

        def one(peer: Peer, row: str) -> None:
            with peer.running() as kernel:
                kernel.run("import asyncio, time")
                for _ in range(1 if row == "interrupt native" else 5):
                    request = kernel.execute(INTERRUPTS[row])
                    time.sleep(0.2)
                    start = time.perf_counter()
                    kernel.interrupt()
                    try:
                        kernel.reply(request, limit_s=4)
                    except Lost:
                        self.note(f"{peer.name}: {ROWS[row][1]}: no reply in 4 s")
                        return
                    seconds = time.perf_counter() - start
                    kernel.drain()
                    if "reached" in INTERRUPTS[row]:
                        seconds = float(kernel.value("reached")) - start
                    self.add(row, peer, seconds)

        for row in INTERRUPTS:
            for peer in self.peers:
                one(peer, row)

    def control(self) -> None:
        from jupyter_client_raw import Lost

        for row, code in BUSY.items():
            for peer in self.peers:
                with peer.running() as kernel:
                    if code:
                        kernel.execute(code)
                        time.sleep(0.2)
                    try:
                        for _ in range(self.opt.round_trips):
                            start = time.perf_counter()
                            kernel.reply(kernel.send("kernel_info_request", {}, "control"), "control", 3)
                            self.add(row, peer, time.perf_counter() - start)
                    except Lost:
                        self.note(f"{peer.name}: {ROWS[row][1]}: no reply in 3 s")
                    if row == "control native":
                        for _ in range(self.opt.round_trips):
                            start = time.perf_counter()
                            kernel.sockets["hb"].send(b"ping")
                            kernel.sockets["hb"].recv()
                            self.add("heartbeat", peer, time.perf_counter() - start)

    def memory(self) -> None:
        for peer in self.peers:
            peer.end_all()
            kernels = []
            try:
                used = {}
                while len(kernels) < KERNELS:
                    kernels.append(peer.kernel().ready())
                    if len(kernels) in (1, FIRST, KERNELS):
                        used[len(kernels)] = peer.memory_mb()
            finally:
                for kernel in kernels:
                    kernel.close()
            each = (used[KERNELS] - used[FIRST]) / (KERNELS - FIRST)
            for row, value in (("memory 1", used[1]), ("memory all", used[KERNELS]), ("memory each", each)):
                self.samples[row][peer.name].append(value)

    def run(self) -> None:
        for name in SECTIONS:
            if name in self.opt.sections:
                print(f"bench: {name}", file=sys.stderr, flush=True)
                getattr(self, name)()

    # ------------------------------------------------------------- figures

    def median(self, row: str, name: str) -> float | None:
        values = self.samples[row].get(name)
        return statistics.median(values) if values else None

    def p99(self, row: str, name: str) -> float | None:
        values = sorted(self.samples[row].get(name, []))
        return values[min(len(values) - 1, int(len(values) * 0.99))] if values else None


SECTIONS = ("starts", "clients", "restarts", "cells", "flood", "interrupts", "control", "memory")


def targets(m: Measurement) -> report.Targets:
    """Targets of cellgate for the measured values: name, value, target, reached?"""
    found = report.Targets()

    def times(row: str, promise: float) -> None:
        ours, theirs = m.median(row, OURS), m.median(row, THEIRS)
        if ours and theirs:
            found.least(f"{ROWS[row][1]}: times faster", theirs / ours, promise)

    found.most("round trip of `1`, ms", m.median("rtt 1 reply", OURS), 0.8)
    times("rtt 1", 4)
    found.most("start from the zygote, ms", m.median("start fresh", OURS), 15)
    # Of which the program's start is 1, the session 2.5, its cell 1; the client connects again each millisecond.
    found.most("start with a spare, ms", m.median("start", OURS), 10)
    found.most("start by jupyter_client to the first result, ms", m.median("client", OURS), 60)
    times("restart", 15)  # the end of the old kernel takes as long as the new one's start with a spare
    times("prints", 3)  # nine tenths of ours are spent in Python's print()
    times("png", 3)
    found.most(f"memory of each kernel after the {FIRST}th, MB", m.median("memory each", OURS), 8)
    if OURS in m.flood_lost:
        found.most("displays lost in the flood", float(m.flood_lost[OURS]), 0)
    for row in BUSY:
        found.most(f"{ROWS[row][1]}: p99, ms", m.p99(row, OURS), 1)
    for row in ("interrupt loop", "interrupt sleep", "interrupt await"):
        found.most(f"{ROWS[row][1]}, ms", m.median(row, OURS), 5)
    # The interrupt is repeated after 2 s, and the kernel replaced after 4 s (docs/jupyter.md, Ends).
    found.most("interrupt of native code, ms", m.median("interrupt native", OURS), 4500)
    return found


def table(m: Measurement) -> str:
    names = [p.name for p in m.peers]
    lines = [f"{'medians':56}" + "".join(f"{n:>12}" for n in names) + f"{'times':>10}"]
    for row, (unit, what) in ROWS.items():
        values = [m.median(row, n) for n in names]
        if not any(v is not None for v in values):
            continue
        cells = "".join(report.cell(v, 12) for v in values)
        ratio = report.times(values[-1] if len(values) > 1 else None, values[0], 10)
        lines.append(f"{what + ', ' + unit:56}{cells}{ratio}")
    lines += [f"note: {note}" for note in m.notes]
    return "\n".join([*lines, "", *targets(m).lines(68)])


def figures(m: Measurement) -> dict[str, object]:
    return {
        "machine": report.machine(),
        "transport": m.opt.transport,
        "rows": report.rows(ROWS, m.samples),
        "notes": m.notes,
        "targets": targets(m).report(),
    }


def parse_args() -> argparse.Namespace:
    ap = argparse.ArgumentParser(
        prog="bench/jupyter",
        description="Measures cellgate's Jupyter kernel side by side with ipykernel in one run: medians and ratios.",
        epilog="Needs scripts/setup --bench, which bench/jupyter calls. The figures are wall-clock times.",
    )
    ap.add_argument("--rounds", type=int, default=7, help="turns of each measurement (default 7)")
    ap.add_argument("--round-trips", type=int, default=100, help="cells in a turn (default 100)")
    ap.add_argument("--transport", choices=("tcp", "ipc"), default="tcp", help="default tcp")
    ap.add_argument("--only", choices=(OURS, THEIRS), help="only this kernel")
    report.add_parts(ap, SECTIONS)
    report.add_options(ap, "bench-jupyter")
    opt = ap.parse_args()
    report.check_sections(ap, opt, SECTIONS)
    return opt


def installed(program: Path) -> list[str]:
    """Return argv of the kernelspec, which Jupyter executes."""
    with tempfile.TemporaryDirectory(prefix="bench-kernelspec-") as folder:
        subprocess.run([program, "jupyter", "install", "--prefix", folder], check=True, stdout=subprocess.DEVNULL)
        spec = json.loads((Path(folder) / "share/jupyter/kernels/cellgate/kernel.json").read_text())
    return [str(word) for word in spec["argv"]]


@contextlib.contextmanager
def kernelspecs(peers: list[Peer], package: Path) -> Iterator[Path]:
    """A folder of Jupyter's with the peers as kernels; the package and its entry point are on sys.path."""
    with tempfile.TemporaryDirectory(prefix="bench-jupyter-") as folder:
        info = Path(folder) / "site/cellgate-0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cellgate\nVersion: 0\n")
        (info / "entry_points.txt").write_text(f"[jupyter_client.kernel_provisioners]\n{PROVISIONER} = {CLASS}\n")
        for peer in peers:
            spec = {"argv": peer.argv, "display_name": peer.name, "language": "python"}
            if peer.name == OURS:
                spec |= {"metadata": {"kernel_provisioner": {"provisioner_name": PROVISIONER}}}
            (Path(folder) / "kernels" / peer.name).mkdir(parents=True)
            (Path(folder) / "kernels" / peer.name / "kernel.json").write_text(json.dumps(spec))
        sys.path[:0] = [str(info.parent), str(package)]
        try:
            yield Path(folder)
        finally:
            del sys.path[:2]


def main() -> int:
    opt = parse_args()
    if not opt.prefix:
        bench.build()
    prefix = (opt.prefix or bench.PREFIX).resolve()
    ours = installed(prefix / "bin/cellgate")
    theirs = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    peers = [Peer(OURS, ours, True, opt.transport), Peer(THEIRS, theirs, False, opt.transport)]
    peers = [p for p in peers if opt.only in (None, p.name)]
    m = Measurement(peers, opt, prefix / "lib/cellgate/package")
    try:
        m.run()
    finally:
        for peer in peers:
            peer.close()
    return report.finish(opt, table(m), figures(m), targets(m))


if __name__ == "__main__":
    sys.exit(main())
