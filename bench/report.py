"""Command lines and reports of the benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent


class Targets(list[tuple[str, float, str, bool]]):
    """Targets of cellgate for the measured values: name, value, target, reached?"""

    def most(self, what: str, value: float | None, promise: float) -> None:
        if value is not None:
            self.append((what, value, f"<= {promise:g}", value <= promise))

    def least(self, what: str, value: float | None, promise: float) -> None:
        if value is not None:
            self.append((what, value, f">= {promise:g}", value >= promise))

    def lines(self, width: int) -> list[str]:
        """The names in so many columns."""
        return [
            f"{name:{width}}{value:10.2f}   promised {promise:8} {'kept' if kept else 'NOT KEPT'}"
            for name, value, promise, kept in self
        ]

    def report(self) -> list[dict[str, object]]:
        return [{"name": n, "value": v, "promise": p, "kept": k} for n, v, p, k in self]


def cell(value: float | None, width: int) -> str:
    """A figure of a table, or that there is none."""
    return f"{value:{width}.3f}" if value is not None else f"{'-':>{width}}"


def times(value: float | None, of: float | None, width: int) -> str:
    """How many times the other figure it is."""
    return f"{value / of:{width - 1}.1f}x" if value is not None and of else f"{'-':>{width}}"


def machine() -> dict[str, object]:
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }


def numbers(values: list[float]) -> dict[str, object]:
    low, high = min(values), max(values)
    return {"n": len(values), "median": statistics.median(values), "min": low, "max": high, "samples": values}


def rows(table: dict[str, tuple[str, str]], samples: dict[str, dict[str, list[float]]]) -> dict[str, object]:
    """Return the peers' figures for each row of the table (unit, description)."""
    return {
        row: {"unit": unit, "what": what, "peers": {n: numbers(v) for n, v in samples[row].items() if v}}
        for row, (unit, what) in table.items()
    }


def add_options(ap: argparse.ArgumentParser, name: str) -> None:
    """Where the figures go, by default to build/NAME.json, and whether they decide the exit status."""
    where = f"where to write (default build/{name}.json)"
    ap.add_argument("--json", type=Path, default=REPO / f"build/{name}.json", help=where)
    ap.add_argument("--check", action="store_true", help="exit status 1 when a promise of the project is not kept")


def add_parts(ap: argparse.ArgumentParser, sections: tuple[str, ...]) -> None:
    """Which sections, and of which programs."""
    ap.add_argument("--sections", default=",".join(sections), help=f"of: {','.join(sections)}")
    ap.add_argument("--prefix", type=Path, help="an installed cellgate to measure, instead of building build/bench")


def check_sections(ap: argparse.ArgumentParser, opt: argparse.Namespace, sections: tuple[str, ...]) -> None:
    opt.sections = opt.sections.split(",")
    if unknown := set(opt.sections) - set(sections):
        ap.error(f"no section {', '.join(unknown)}; there are: {', '.join(sections)}")


def finish(opt: argparse.Namespace, table: str, report: dict[str, object], targets: Targets) -> int:
    """Prints the table and writes the report. The exit status."""
    print(table)
    opt.json.parent.mkdir(parents=True, exist_ok=True)
    opt.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nall samples: {opt.json}")
    return 1 if opt.check and not all(kept for *_, kept in targets) else 0
