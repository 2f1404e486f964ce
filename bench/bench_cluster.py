"""Sessions on another machine (`connect`) beside sessions here, the far end being on this machine as well.

The same calls of the Python package with a private supervisor and through `cellgate relay`, in turn: what the link
adds to a cell and to a call that is approved, and how fast files cross it. A network adds its own time to each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
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


def main() -> int:
    ap = argparse.ArgumentParser(
        prog="bench/cluster", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    ap.add_argument("--rounds", type=int, default=5, help="clients of each kind (default 5)")
    ap.add_argument("--cells", type=int, default=200, help="cells of each client (default 200)")
    ap.add_argument("--prefix", type=Path, help="an installed cellgate to measure, instead of building build/bench")
    report.add_options(ap, "cluster")
    opt = ap.parse_args()
    if not opt.prefix:
        sys.path.insert(0, str(report.REPO / "scripts"))
        import run_tests

        options = ("-Dbuildtype=release", "-Dtests=false", f"-Dpython_package={sys.executable}")
        opt.prefix = run_tests.build("bench", *options) / "root"
    sys.path.insert(0, str(opt.prefix / "lib/cellgate/package"))
    import cellgate

    kinds = {"here": {}, "connect": {"connect": [str(opt.prefix / "bin/cellgate"), "relay"]}}
    samples: dict[str, dict[str, list[float]]] = {row: {k: [] for k in kinds} for row in ROWS}
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
        for _ in range(opt.rounds):
            for kind, options_of in kinds.items():
                for row, values in measure(cellgate, options_of, Path(folder), opt.cells).items():
                    samples[row][kind] += values
    medians = {row: {k: statistics.median(v) for k, v in by.items()} for row, by in samples.items()}
    lines = [f"{'medians':52}{'here':>10}{'connect':>10}"]
    lines += [
        f"{what + ', ' + unit:52}{medians[r]['here']:10.2f}{medians[r]['connect']:10.2f}"
        for r, (unit, what) in ROWS.items()
    ]
    targets = report.Targets()
    targets.most("what the link adds to a cell, ms", medians["cell"]["connect"] - medians["cell"]["here"], 0.3)
    figures = {"machine": report.machine(), "rows": report.rows(ROWS, samples), "promises": targets.report()}
    return report.finish(opt, "\n".join([*lines, *targets.lines(52)]), figures, targets)


if __name__ == "__main__":
    sys.exit(main())
