"""Sessions on another machine (`connect`) beside sessions here, the far end being on this machine as well.

The same calls of the Python package with a private supervisor, through `cellgate relay`, and through it behind TLS as
deploy/ has it, in turn: what the link adds to a cell and to a call that is approved, and how fast files cross it,
beside a bare stream of TLS. A network adds its own time to each. Then 1,000 sessions on four nodes (--sessions), and
from `sbatch` to the first cell, as root with the cluster of tests/cluster. Needs stunnel, socat and openssl.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import report

FILE = 64 << 20
ROWS = {
    "connect": ("ms", "a client, and its first session"),
    "cell": ("ms", "the cell `1`"),
    "call": ("ms", "a cell with a call of a function that the program approves"),
    "write": ("MiB/s", "a file of 64 MiB to the session's folder"),
    "read": ("MiB/s", "the same file back"),
}


def timed(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return (time.perf_counter() - start) * 1000


def measure(cellgate: Any, options: dict[str, Any], work: Path, cells: int) -> dict[str, list[float]]:
    data = os.urandom(FILE)
    opened: list[Any] = []

    def connect() -> None:
        client = cellgate.Client(private=True, **options)
        opened.extend((client, cellgate.Session(work, client=client)))

    found = {"connect": [timed(connect)]}
    client, s = opened
    s.functions({"act": lambda n: n + 1}, ask=True)
    s.run("from mcptools.host import act\nact.run(n=1)", approve=lambda _: True).check()
    found["cell"] = [timed(lambda: s.run("1")) for _ in range(cells)]
    found["call"] = [timed(lambda: s.run("act.run(n=1)", approve=lambda _: True)) for _ in range(cells)]
    found["write"] = [FILE / (1 << 20) / timed(lambda: s.files.write("file", data)) * 1000 for _ in range(3)]
    found["read"] = [FILE / (1 << 20) / timed(lambda: s.files.read("file")) * 1000 for _ in range(3)]
    s.close()
    client.close()
    return found


CERTIFICATES = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=authority -keyout ca.key -out ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -keyout tls.key -out request
echo subjectAltName=DNS:localhost,DNS:agent.example.org > names
openssl x509 -req -in request -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names -out tls.crt
"""


@contextlib.contextmanager
def gate(program: str, words: str, folder: Path) -> Iterator[list[str]]:
    """stunnel in front of @program, with certificates in @folder. Yields the words of a link to it."""
    if not (folder / "tls.crt").exists():
        subprocess.run(["sh", "-ec", CERTIFICATES], cwd=folder, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    text = (report.REPO / "deploy/tls-gate.conf").read_text()
    changes = {"7443": f"127.0.0.1:{port}", "/usr/bin/cellgate": program, "cellgate relay": words}
    for old, new in {**changes, "/etc/cellgate/tls": str(folder), "debug = notice": "debug = err"}.items():
        text = text.replace(old, new)
    conf = folder / f"{port}.conf"
    conf.write_text(text)
    p = subprocess.Popen(["stunnel", conf], stderr=subprocess.DEVNULL)
    while p.poll() is None:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.02)
    yield ["env", f"TLS_DIR={folder}", str(report.REPO / "deploy/tls-link"), "localhost", str(port), "relay"]
    p.terminate()
    p.wait()


def bare_stream(folder: Path) -> float:
    """MiB/s of a file through TLS to stunnel and a program that reads it."""
    data = os.urandom(FILE)
    reader = folder / "reader"
    reader.write_text(f"#!/bin/sh\nhead -c {FILE} | wc -c\n")
    reader.chmod(0o755)
    with gate(str(reader), "reader", folder) as words:
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        with (
            socket.create_connection((words[3], int(words[4]))) as s,
            context.wrap_socket(s, server_hostname="localhost") as t,
        ):

            def send() -> None:
                t.sendall(data)
                t.recv(100)

            return FILE / (1 << 20) / timed(send) * 1000


def open_on_nodes(cellgate: Any, program: str, folder: Path, count: int) -> float:
    """Seconds until so many sessions are open on four nodes at once."""
    with contextlib.ExitStack() as stack:
        clients = []
        for i in range(4):
            argv = [program, "node", "--slots", str(count), "--link", str(folder / f"node{i}")]
            p = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            stack.callback(p.send_signal, signal.SIGINT)
            assert p.stdout and p.stdout.readline()
            words = ["env", f"CELLGATE_NODE={folder}/node{i}", program, "relay"]
            clients.append(stack.enter_context(cellgate.Client(connect=words)))

        def new(i: int) -> Any:
            return cellgate.Session(folder, client=clients[i % len(clients)], memory_bytes=256 << 20)

        with ThreadPoolExecutor(16) as pool:
            opened: list[Any] = []
            seconds = timed(lambda: opened.extend(pool.map(new, range(count)))) / 1000
            assert all(pool.map(lambda s: s.run("1").ok, opened))
            list(pool.map(lambda s: s.close(), opened))
        return seconds


def first_cell(prefix: Path, python: str, rounds: int) -> list[float]:
    """Seconds from `sbatch`, which starts a node, to the answer of a cell in its job by `srun --overlap`."""
    sys.path.insert(0, str(report.REPO / "tests"))
    from cluster.slurm import start_cluster

    job = "sbatch --parsable -J node -o {0}/out --wrap 'exec {1} node --link {0}/node'"
    relay = "srun --jobid=$job --overlap env CELLGATE_NODE={0}/node {1} relay"
    line = f'job=$({job}) && until [ -s {{0}}/out ]; do sleep 0.005; done && {{1}} run --connect "{relay}" -c 1'
    found = []
    with start_cluster(prefix, python, report.REPO, 1) as cluster:
        for i in range(rounds):
            cluster.run(f"mkdir -p first{i}")
            command = line.format(f"/home/alice/first{i}", cluster.cellgate)
            found.append(timed(lambda command=command: cluster.run(command)) / 1000)
            cluster.run("scancel -n node; while squeue -h | grep -q .; do sleep 0.1; done")
    return found


def main() -> int:
    ap = argparse.ArgumentParser(
        prog="bench/cluster", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    ap.add_argument("--rounds", type=int, default=5, help="clients of each kind (default 5)")
    ap.add_argument("--cells", type=int, default=200, help="cells of each client (default 200)")
    ap.add_argument("--prefix", type=Path, help="an installed cellgate to measure, instead of building build/bench")
    ap.add_argument("--sessions", type=int, default=1000, help="on four nodes at once (default 1000)")
    report.add_options(ap, "cluster")
    opt = ap.parse_args()
    if not opt.prefix:
        sys.path.insert(0, str(report.REPO / "scripts"))
        import run_tests

        options = ("-Dbuildtype=release", "-Dtests=false", f"-Dpython_package={sys.executable}")
        opt.prefix = run_tests.build("bench", *options) / "root"
    sys.path.insert(0, str(opt.prefix / "lib/cellgate/package"))
    import cellgate

    cellgate_program = str(opt.prefix / "bin/cellgate")
    kinds: dict[str, dict[str, Any]] = {"here": {}, "connect": {"connect": [cellgate_program, "relay"]}}
    samples: dict[str, dict[str, list[float]]] = {row: {k: [] for k in (*kinds, "tls")} for row in ROWS}
    bare = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder,
        tempfile.TemporaryDirectory(prefix="bench-tls-") as certificates,
        gate(cellgate_program, "cellgate relay", Path(certificates)) as link,
    ):
        for _ in range(opt.rounds):
            bare.append(bare_stream(Path(certificates)))
            for kind, options_of in {**kinds, "tls": {"connect": link}}.items():
                for row, values in measure(cellgate, options_of, Path(folder), opt.cells).items():
                    samples[row][kind] += values
    medians = {row: {k: statistics.median(v) for k, v in by.items()} for row, by in samples.items()}
    lines = [f"{'medians':52}{'here':>10}{'connect':>10}{'tls':>10}"]
    lines += [
        f"{what + ', ' + unit:52}" + "".join(f"{v:10.2f}" for v in medians[r].values())
        for r, (unit, what) in ROWS.items()
    ]
    lines += [f"{'a bare stream of TLS, MiB/s':72}{statistics.median(bare):10.2f}"]
    cell, write = medians["cell"], medians["write"]
    targets = report.Targets()
    targets.most("what the link adds to a cell, ms", cell["connect"] - cell["here"], 0.3)
    targets.most("what the link and TLS add to a cell, ms", cell["tls"] - cell["here"], 0.5)
    targets.least("a file's speed over TLS, of a bare stream's", write["tls"] / statistics.median(bare), 0.5)
    with tempfile.TemporaryDirectory(prefix="bench-nodes-") as folder:
        seconds = open_on_nodes(cellgate, cellgate_program, Path(folder), opt.sessions)
    targets.most(f"{opt.sessions} sessions on four nodes, s", seconds, 10 * opt.sessions / 1000)
    if os.geteuid() == 0 and (report.REPO / ".deps/cluster").exists():
        firsts = first_cell(opt.prefix, sys.executable, opt.rounds)
        targets.most("from sbatch to the first cell, s", statistics.median(firsts), 0.4)
    figures = {"machine": report.machine(), "rows": report.rows(ROWS, samples), "promises": targets.report()}
    return report.finish(opt, "\n".join([*lines, *targets.lines(52)]), figures, targets)


if __name__ == "__main__":
    sys.exit(main())
