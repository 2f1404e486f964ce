"""MCP servers that run Python, from a client's side: cellgate over stdio and HTTP, and ipybox (with version 1 of mcp).

A client made by hand sends the same messages to each, the servers in turn: from a server's start to the result of its
first cell, and the round trip of the cell `1`. What waiting calls and the audit log cost is measured of cellgate alone,
since ipybox's server never asks and has no log. Report: ratios of medians, and the promises of the project.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import report

IPYBOX = report.REPO / ".deps/bench-env/bin/ipybox"
WAITING = 1000
FAKE = """
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    tool = {"name": "act", "description": "Acts.", "inputSchema": {"type": "object"}}
    result = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                             "serverInfo": {"name": "fake", "version": "1"}},
              "tools/list": {"tools": [tool]}}.get(m["method"], {"content": []})
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"""
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class Client:
    """The messages; a subclass sends them."""

    last = 0

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.last += 1
        message = self.exchange({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        if "error" in message:
            raise RuntimeError(message["error"]["message"])
        return message["result"]

    def initialize(self) -> None:
        self.request("initialize", INITIALIZE)
        self.notify({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def cell(self, code: str) -> str:
        result = self.request("tools/call", {"name": "execute_ipython_cell", "arguments": {"code": code}})
        return "".join(b.get("text", "") for b in result["content"])

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def notify(self, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Stdio(Client):
    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.p = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **env}
        )

    def notify(self, message: dict[str, Any]) -> None:
        assert self.p.stdin
        self.p.stdin.write(json.dumps(message).encode() + b"\n")
        self.p.stdin.flush()

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        self.notify(message)
        assert self.p.stdout
        for line in self.p.stdout:
            answer = json.loads(line)
            if answer.get("id") == message["id"]:
                return answer
        raise RuntimeError(f"the server has ended: {self.p.args}")

    def close(self) -> None:
        assert self.p.stdin
        self.p.stdin.close()
        self.p.wait(30)


class Http(Client):
    """Streamable HTTP over one connection that is kept."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.p = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, **env})
        assert self.p.stdout
        text = ""
        while not (at := re.search(r"(http://\S+/mcp)", text)) or not (file := re.search(r"(/\S+/token)", text)):
            line = self.p.stdout.readline().decode()
            if not line:
                raise RuntimeError(f"the server has ended: {text}")
            text += line
        self.connection = http.client.HTTPConnection(urlsplit(at[1]).netloc, timeout=60)
        self.headers = {
            "Authorization": f"Bearer {Path(file[1]).read_text().strip()}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }

    def post(self, message: dict[str, Any]) -> http.client.HTTPResponse:
        self.connection.request("POST", "/mcp", json.dumps(message), self.headers)
        response = self.connection.getresponse()
        if session := response.headers.get("Mcp-Session-Id"):
            self.headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": INITIALIZE["protocolVersion"]}
        return response

    def notify(self, message: dict[str, Any]) -> None:
        self.post(message).read()

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        response = self.post(message)
        body = response.read().decode()
        if response.headers.get_content_type() == "text/event-stream":
            events = [json.loads(line[5:]) for line in body.splitlines() if line.startswith("data:")]
            return next(e for e in events if e.get("id") == message["id"])
        return json.loads(body)

    def close(self) -> None:
        self.connection.close()
        self.p.terminate()
        self.p.wait(30)


def servers(prefix: Path, work: Path) -> dict[str, tuple[type[Client], list[str], dict[str, str]]]:
    serve = [str(prefix / "bin/cellgate"), "mcp", "serve", "--workspace", str(work)]
    own = {"XDG_STATE_HOME": str(work.parent / "state")}
    return {
        "cellgate": (Stdio, serve, own),
        "cellgate, nothing runs": (Stdio, [*serve, "--private"], own),
        "cellgate, HTTP": (Http, [*serve, "--http", "127.0.0.1:0"], own),
        "ipybox": (Stdio, [str(IPYBOX), "--workspace", str(work)], own),
    }


def measure(make: tuple[type[Client], list[str], dict[str, str]], cells: int) -> dict[str, list[float]]:
    kind, argv, env = make
    began = time.perf_counter()
    client = kind(argv, env)
    try:
        client.initialize()
        if "2" not in (text := client.cell("1 + 1")):
            raise RuntimeError(f"{argv[0]}: 1 + 1 is {text!r}")
        start = time.perf_counter() - began
        trips = []
        for _ in range(cells):
            began = time.perf_counter()
            client.cell("1")
            trips.append((time.perf_counter() - began) * 1e3)
    finally:
        client.close()
    return {"start": [start * 1e3], "cell": trips}


def processor_s(pid: int) -> float:
    """Processor time of a process and of all that it has started, in seconds."""
    ticks, waiting = 0, [pid]
    while waiting:
        entry = Path(f"/proc/{waiting.pop()}")
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
        waiting += map(int, (entry / f"task/{entry.name}/children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")


class Waiting:
    """A session whose cell waits for decisions about SIDE_BY_SIDE calls, its most at once."""

    SIDE_BY_SIDE = 250

    def __init__(self, prefix: Path, work: Path) -> None:
        (work.parent / "fake.py").write_text(FAKE)
        mcp = work.parent / "mcp.json"
        server = {"command": sys.executable, "args": [str(work.parent / "fake.py")]}
        mcp.write_text(json.dumps({"mcpServers": {"fake": server}}))
        argv = [prefix / "bin/cellgate", "run", "--json", "--private", "--mcp", mcp, "--workspace", work]
        self.p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.read("mcp_servers", 1)

    def read(self, event: str, times: int) -> None:
        assert self.p.stdout
        while times:
            line = json.loads(self.p.stdout.readline())
            if line["type"] in ("failed", "result"):
                raise RuntimeError(line)
            times -= line["type"] == event

    def call(self) -> None:
        assert self.p.stdin
        calls = f"await asyncio.gather(*(act.run_async() for _ in range({self.SIDE_BY_SIDE})))"
        code = f"import asyncio\nfrom mcptools.fake import act\n{calls}"
        self.p.stdin.write(json.dumps({"execute": {"code": code, "timeout": 0}}).encode() + b"\n")
        self.p.stdin.flush()
        self.read("approval_request", self.SIDE_BY_SIDE)


def waiting(prefix: Path, work: Path, seconds: float) -> dict[str, float]:
    """What WAITING calls that wait for a decision cost: ms of processor a second, with and without them."""
    sessions: list[Waiting] = []
    figures = {}
    try:
        sessions += [Waiting(prefix, work) for _ in range(WAITING // Waiting.SIDE_BY_SIDE)]
        for name in ("idle", "waiting"):
            if name == "waiting":
                for s in sessions:
                    s.call()
            time.sleep(2)
            before = sum(processor_s(s.p.pid) for s in sessions)
            time.sleep(seconds)
            figures[name] = (sum(processor_s(s.p.pid) for s in sessions) - before) / seconds * 1e3
    finally:
        for s in sessions:
            s.p.kill()
            s.p.wait()
    return figures


CALLS = """
import time
from mcptools.fake import act
times = []
for _ in range({}):
    began = time.perf_counter()
    act.run()
    times.append((time.perf_counter() - began) * 1e6)
print(times[20:])
"""
AUDIT = ("off", "best-effort", "strict")


def audit(prefix: Path, work: Path, mode: str, calls: int) -> list[float]:
    """Microseconds of each call of a tool that a rule accepts, as the cell sees it."""
    argv = [prefix / "bin/cellgate", "run", "--private", "--mcp", work.parent / "mcp.json", "--workspace", work]
    argv += ["--approve", "fake.*", "-c", CALLS.format(calls + 20), *(("--audit", mode) if mode != "off" else ())]
    env = {**os.environ, "XDG_STATE_HOME": str(work.parent / "state")}
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, env=env)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    ap = argparse.ArgumentParser(prog="bench/mcp", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--rounds", type=int, default=5, help="starts of each server (default 5)")
    ap.add_argument("--cells", type=int, default=100, help="cells of each start (default 100)")
    ap.add_argument("--seconds", type=float, default=5, help="for which waiting calls are watched (default 5)")
    ap.add_argument("--prefix", type=Path, help="an installed cellgate to measure, instead of building build/bench")
    report.add_options(ap, "mcp")
    opt = ap.parse_args()
    if not opt.prefix:
        sys.path.insert(0, str(report.REPO / "scripts"))
        import run_tests

        opt.prefix = run_tests.build("bench", "-Dbuildtype=release", "-Dtests=false") / "root"
    with tempfile.TemporaryDirectory(prefix="bench-mcp-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        peers = servers(opt.prefix, work)
        samples: dict[str, dict[str, list[float]]] = {r: {p: [] for p in peers} for r in ("start", "cell")}
        measure(peers["cellgate"], 1)  # the user's shared supervisor runs from now on
        for _ in range(opt.rounds):
            for name, make in peers.items():
                for row, values in measure(make, opt.cells).items():
                    samples[row][name] += values
        cost = waiting(opt.prefix, work, opt.seconds)
        calls: dict[str, list[float]] = {mode: [] for mode in AUDIT}
        for _ in range(opt.rounds):
            for mode in AUDIT:
                calls[mode] += audit(opt.prefix, work, mode, 3 * opt.cells)
    medians = {row: {n: statistics.median(v) for n, v in by.items()} for row, by in samples.items()}
    lines = [f"{'ms, medians':26}{'start to first result':>24}{'the cell 1':>14}"]
    lines += [f"{n:26}{medians['start'][n]:24.1f}{medians['cell'][n]:14.3f}" for n in peers]
    lines += [f"processor, ms a second: idle {cost['idle']:.2f}, {WAITING} calls that wait {cost['waiting']:.2f}"]
    call = {mode: statistics.median(values) for mode, values in calls.items()}
    ratios = ", ".join(f"{mode} {call[mode]:.0f} us ({call[mode] / call['off']:.2f} times)" for mode in AUDIT)
    lines += [f"a call of a tool, by --audit: {ratios}\n"]
    targets = report.Targets()
    start, trip = medians["start"], medians["cell"]
    targets.least("start to first result, times faster than ipybox", start["ipybox"] / start["cellgate"], 20)
    targets.least("the same with nothing running", start["ipybox"] / start["cellgate, nothing runs"], 10)
    targets.least("the cell 1 over stdio, times faster than ipybox", trip["ipybox"] / trip["cellgate"], 20)
    targets.most("over HTTP instead of stdio, ms more", trip["cellgate, HTTP"] - trip["cellgate"], 0.5)
    targets.most("calls that wait, ms of processor a second more", cost["waiting"] - cost["idle"], 5)
    for mode in AUDIT[1:]:
        targets.most(f"a call with --audit {mode}, us more", call[mode] - call["off"], 30)
    table = {"start": ("ms", "a server's start to the result of its first cell"), "cell": ("ms", "the cell `1`")}
    figures = {"machine": report.machine(), "rows": report.rows(table, samples), "promises": targets.report()}
    return report.finish(
        opt, "\n".join([*lines, *targets.lines(52)]), {**figures, "waiting": cost, "audit": call}, targets
    )


if __name__ == "__main__":
    sys.exit(main())
