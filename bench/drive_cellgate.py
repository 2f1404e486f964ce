"""The measurements of bench_api.c for the Python package. Started by bench/python, and by scripts/soak, which counts
what sessions leave; same commands, same answers, and

    many N            open N sessions in one event loop and run a cell in each at the same time: seconds of opening,
                      seconds of the cells, threads after it, and MB by which this process has grown
    keep 0            close them
    bridge N V A B    N times the variable V (text: 16 MiB, rows: 240,000 objects, 15 MiB) from a session of language A
                      to another one of language B; "json" as A and B: json.dumps() and json.loads() of it, here

Argument: "blocking" or "aio", the front that is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import cellgate
import cellgate.aio

DATA = """
text = 'x' * ((16 << 20) - 64)
rows = [{'i': i, 'name': f'row {i:07}', 'x': i / 7, 'ok': i % 2 == 0} for i in range(240_000)]
"""


def resident_mb() -> float:
    """Of this process alone: pages that it has written to."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Bench:
    def __init__(self, front: str, workspace: str) -> None:
        self.front = front
        self.workspace = workspace
        self.client = cellgate.Client(spares=0) if os.environ.get("BENCH_NO_SPARE") else None
        self.session: Any = None
        self.servers: set[str] = set()
        self.kept: list[cellgate.aio.Session] = []
        self.bridged: dict[str, Any] = {}

    async def result(self, value: Any) -> Any:
        """Of a method of either front."""
        return await value if self.front == "aio" else value

    async def cold(self, _n: int, _rest: str) -> list[float]:
        start = time.perf_counter()
        self.session = await self.new_session()
        await self.result(self.session.run("1"))
        return [time.perf_counter() - start]

    async def new_session(self) -> Any:
        if self.front == "aio":
            return await cellgate.aio.Session(self.workspace, client=self.client)
        return cellgate.Session(self.workspace, client=self.client)

    async def kernel(self, _n: int, _rest: str) -> list[float]:
        start = time.perf_counter()
        session = await self.new_session()
        await self.result(session.run("1"))
        await self.result(session.close())
        return [time.perf_counter() - start]

    async def whole(self, _n: int, server: str) -> list[float]:
        start = time.perf_counter()
        session = await self.new_session()
        await self.result(session.add_mcp_servers({"echo": {"command": server}}))
        code = "from mcptools.echo import echo\nassert echo.run(text='hello') == 'hello'"
        (await self.result(session.run(code, approve=lambda request: True))).check()
        await self.result(session.close())
        return [time.perf_counter() - start]

    async def rtt(self, n: int, code: str) -> list[float]:
        run, samples = self.session.run, []
        for _ in range(n):
            start = time.perf_counter()
            if self.front == "aio":
                await run(code)
            else:
                run(code)
            samples.append(time.perf_counter() - start)
        return samples

    async def prints(self, n: int, code: str) -> list[float]:
        start = time.perf_counter()
        result = await self.result(self.session.run(code))
        seconds = time.perf_counter() - start
        if len(result.stdout) != n:
            raise RuntimeError(f"{len(result.stdout)} of {n} bytes of output arrived")
        return [seconds]

    async def tool(self, n: int, server: str) -> list[float]:
        if "echo" not in self.servers:
            await self.result(self.session.add_mcp_servers({"echo": {"command": server}}))
            self.servers.add("echo")
        return await self.calls(n, "echo", approve=lambda request: True)

    async def function(self, n: int, _rest: str) -> list[float]:
        def echo(text: str) -> str:
            return text

        if "own" not in self.servers:
            await self.result(self.session.functions({"echo": echo}, name="own"))
            self.servers.add("own")
        return await self.calls(n, "own")

    async def calls(self, n: int, package: str, **options: Any) -> list[float]:
        code = (
            "import time\n"
            f"from mcptools.{package} import echo\n"
            "samples = []\n"
            f"for i in range({n}):\n"
            "    start = time.perf_counter()\n"
            "    assert echo.run(text='hello') == 'hello'\n"
            "    samples.append(time.perf_counter() - start)\n"
            "print(samples)"
        )
        result = await self.result(self.session.run(code, **options))
        return list(json.loads(result.check().stdout))

    async def many(self, n: int, _rest: str) -> list[float]:
        before = resident_mb()
        self.kept = [cellgate.aio.Session(self.workspace, client=self.client) for _ in range(n)]
        start = time.perf_counter()
        await asyncio.gather(*(s._opened() for s in self.kept))
        opened = time.perf_counter()
        results = await asyncio.gather(*(s.run(str(i)) for i, s in enumerate(self.kept)))
        ended = time.perf_counter()
        if [r.value for r in results] != [str(i) for i in range(n)]:
            raise RuntimeError("a session has not answered")
        return [opened - start, ended - opened, threading.active_count(), resident_mb() - before]

    async def keep(self, _n: int, _rest: str) -> list[float]:
        await asyncio.gather(*(s.close() for s in self.kept))
        self.kept = []
        return []

    async def bridge(self, n: int, rest: str) -> list[float]:
        name, source, target = rest.split()
        samples = []
        if source == "json":
            variables: dict[str, Any] = {}
            exec(DATA, variables)
            for _ in range(n):
                start = time.perf_counter()
                json.loads(json.dumps(variables[name], ensure_ascii=False, separators=(",", ":")))
                samples.append(time.perf_counter() - start)
            return samples
        if not self.bridged:
            for key, language in {"first": None, "python": None, "node": "node", "shell": "shell"}.items():
                folder = tempfile.mkdtemp(dir=self.workspace)
                self.bridged[key] = cellgate.Session(folder, client=self.client, language=language)
            self.bridged["first"].run(DATA).check()
        first, end = self.bridged["first"], self.bridged[target]
        begin = first if source == "python" else self.bridged[source]
        if begin is not first:
            first.bridge(begin, name)
        for _ in range(n):
            start = time.perf_counter()
            begin.bridge(end, name)
            samples.append(time.perf_counter() - start)
        return samples

    async def close(self) -> None:
        await self.keep(0, "")
        for session in self.bridged.values():
            session.close()
        if self.session:
            await self.result(self.session.close())
        if self.client:
            self.client.close()


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cellgate-bench-") as folder:
        bench = Bench(sys.argv[1], folder)
        # A reader in a thread would compete with the measurements for the interpreter.
        while line := sys.stdin.readline():
            name, n, rest = (line.rstrip("\n").split(" ", 2) + ["", ""])[:3]
            try:
                answer: dict[str, object] = {"samples": await getattr(bench, name)(int(n or 0), rest)}
            except Exception as e:
                answer = {"error": f"{type(e).__name__}: {e}"}
            print(json.dumps(answer), flush=True)
        await bench.close()


asyncio.run(main())
