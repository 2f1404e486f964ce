"""`cellgate mcp serve --compat sandboxmcp` beside sandboxmcp (with version 1 of mcp): execute_code in each language.

A client made by hand sends the same calls to both, in turns, with a pause before each: without one, the sandboxes that
are made in advance would not be ready. sandbox_stats, which does nearly nothing, shows what the MCP SDK needs.
Report: ratios of medians, and the promises of the project.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report
from bench_mcp import Stdio

SANDBOXMCP = report.REPO / ".deps/bench-env/bin/sandboxmcp"
CODES = {"python": "print(2+2)", "node": "console.log(2+2)", "shell": "echo $((2+2))"}


def call(client: Stdio, name: str, arguments: dict[str, str]) -> tuple[float, dict[str, Any]]:
    """The time of a call in ms, and its result."""
    began = time.perf_counter()
    answer = client.request("tools/call", {"name": name, "arguments": arguments})
    return (time.perf_counter() - began) * 1e3, json.loads(answer["content"][0]["text"])


def execute(client: Stdio, language: str, **more: str) -> float:
    """The time of a call in ms."""
    spent, result = call(client, "execute_code", {"code": CODES[language], "language": language, **more})
    if result["stdout"] != "4\n":
        raise RuntimeError(f"{language}: {result}")
    return spent


def main() -> int:
    ap = argparse.ArgumentParser(prog="bench/surfaces", description=__doc__)
    ap.add_argument("--calls", type=int, default=50, help="calls of each language (default 50)")
    ap.add_argument("--pause", type=float, default=0.1, help="seconds before each (default 0.1)")
    ap.add_argument("--prefix", type=Path, help="an installed cellgate to measure, instead of building build/bench")
    ap.add_argument("--sandboxmcp", type=Path, default=SANDBOXMCP, help="the program of sandboxmcp 1.1")
    report.add_options(ap, "surfaces")
    opt = ap.parse_args()
    if not opt.prefix:
        sys.path.insert(0, str(report.REPO / "scripts"))
        import run_tests

        options = ("-Dbuildtype=release", "-Dtests=false", f"-Dpython_package={run_tests.TEST_PYTHON}")
        opt.prefix = run_tests.build("bench", *options) / "root"
    program, original = (opt.prefix / "bin/cellgate").resolve(), opt.sandboxmcp.absolute()
    samples: dict[str, dict[str, list[float]]] = {language: {} for language in CODES}
    with tempfile.TemporaryDirectory(prefix="bench-surfaces-") as folder:
        os.chdir(folder)  # sandboxmcp makes its log there
        serve = [str(program), "mcp", "serve", "--compat", "sandboxmcp"]
        peers = {
            "cellgate": Stdio(serve, {"XDG_STATE_HOME": f"{folder}/state"}),
            "sandboxmcp": Stdio([str(original), "serve"], {}),
        }
        for client in peers.values():
            client.initialize()
        for language, by in samples.items():
            arguments = {"language": language}
            session = call(peers["cellgate"], "create_session", arguments)[1]["id"]
            calls = [(name, client, {}) for name, client in peers.items()]
            calls.append(("cellgate, in a session", peers["cellgate"], {"session_id": session}))
            for i in range(opt.calls + 3):  # the first ones start what stays
                for name, client, more in calls:
                    time.sleep(opt.pause)
                    spent = execute(client, language, **more)
                    if i >= 3:
                        by.setdefault(name, []).append(spent)
                time.sleep(opt.pause)
                by.setdefault("cellgate, sandbox_stats", []).append(call(peers["cellgate"], "sandbox_stats", {})[0])
        for client in peers.values():
            client.close()
    lines = [f"{'ms, medians':26}" + "".join(f"{language:>12}" for language in CODES)]
    medians = {language: {n: statistics.median(v) for n, v in by.items()} for language, by in samples.items()}
    for name in samples["python"]:
        lines.append(f"{name:26}" + "".join(f"{medians[language][name]:12.2f}" for language in CODES))
    targets = report.Targets()
    for language, least in {"python": 20, "node": 10}.items():
        ratio = medians[language]["sandboxmcp"] / medians[language]["cellgate"]
        targets.least(f"{CODES[language]} in {language}, times faster than sandboxmcp", ratio, least)
    table = {language: ("ms", f"execute_code of {code}") for language, code in CODES.items()}
    figures = {"machine": report.machine(), "rows": report.rows(table, samples), "promises": targets.report()}
    return report.finish(opt, "\n".join([*lines, "", *targets.lines(60)]), figures, targets)


if __name__ == "__main__":
    sys.exit(main())
