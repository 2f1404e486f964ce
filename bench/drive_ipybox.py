"""The measurements of bench_api.c for ipybox. Started by bench/run; same commands, same answers. Started by
bench/python also for cellgate.ipybox, which takes its place with `--cellgate`.

ipybox has no sandbox on Linux that lets it work, so this is ipybox without one. A further kernel is a further
KernelClient on the gateway that runs already, which is less work than a further CodeExecutor: `again` starts one.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

if "--cellgate" in sys.argv:
    from cellgate.ipybox import ApprovalRequest, CodeExecutionChunk, CodeExecutor, generate_mcp_sources
    from cellgate.ipybox.kernel_mgr.client import KernelClient
else:
    from ipybox import ApprovalRequest, CodeExecutionChunk, CodeExecutor, generate_mcp_sources
    from ipybox.kernel_mgr.client import KernelClient


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.executor: CodeExecutor | None = None
        self.kept: list[KernelClient] = []
        self.servers: set[str] = set()

    async def run(self, code: str) -> str:
        """Runs a cell, approves all its tool calls. Returns its output."""
        assert self.executor is not None
        text = []
        async for item in self.executor.stream(code, chunks=True):
            match item:
                case ApprovalRequest():
                    await item.accept()
                case CodeExecutionChunk():
                    text.append(item.text)
        return "".join(text)

    async def further_kernel(self) -> KernelClient:
        assert self.executor is not None
        client = KernelClient(
            host=self.executor.kernel_gateway_host, port=self.executor.kernel_gateway_port, images_dir=self.folder
        )
        await client.connect()
        await client.execute("1")
        return client

    async def cold(self, _n: int, _rest: str) -> list[float]:
        start = time.perf_counter()
        self.executor = CodeExecutor(
            images_dir=self.folder,
            kernel_env={"PYTHONPATH": str(self.folder), "PATH": os.environ["PATH"]},
            connect_timeout=60,
            kernel_init_timeout=60,  # on a machine with other work
        )
        await self.executor.start()
        await self.run("1")
        return [time.perf_counter() - start]

    async def again(self, _n: int, _rest: str) -> list[float]:
        assert self.executor is not None
        await self.executor.stop()
        return await self.cold(0, "")

    async def kernel(self, _n: int, _rest: str) -> list[float]:
        start = time.perf_counter()
        client = await self.further_kernel()
        seconds = time.perf_counter() - start
        await client.disconnect()
        return [seconds]

    async def rtt(self, n: int, code: str) -> list[float]:
        samples = []
        for _ in range(n):
            start = time.perf_counter()
            await self.run(code)
            samples.append(time.perf_counter() - start)
        return samples

    async def prints(self, n: int, code: str) -> list[float]:
        start = time.perf_counter()
        text = await self.run(code)
        seconds = time.perf_counter() - start
        # ipybox strips white space at the end of the output.
        if len(text) < n - 1:
            raise RuntimeError(f"{len(text)} of {n} bytes of output arrived")
        return [seconds]

    async def tool(self, n: int, server: str) -> list[float]:
        web = server.startswith("http://")
        name, params = ("web", {"url": server}) if web else ("echo", {"command": server, "args": []})
        if name not in self.servers:
            await generate_mcp_sources(name, params, self.folder / "mcptools")
            self.servers.add(name)
        text = await self.run(
            "import time\n"
            f"from mcptools.{name} import echo\n"
            "samples = []\n"
            f"for i in range({n}):\n"
            "    start = time.perf_counter()\n"
            "    assert echo.run(echo.Params(text='hello')) == 'hello'\n"
            "    samples.append(time.perf_counter() - start)\n"
            "print(samples)"
        )
        return list(json.loads(text))

    async def keep(self, n: int, _rest: str) -> list[float]:
        while len(self.kept) > n:
            await self.kept.pop().disconnect()
        while len(self.kept) < n:
            self.kept.append(await self.further_kernel())
        return []

    async def close(self) -> None:
        await self.keep(0, "")
        if self.executor:
            await self.executor.stop()


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cellgate-bench-") as folder:
        os.chdir(folder)  # the workspace: the servers' programs are outside
        bench = Bench(Path(folder))
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, n, rest = (line.rstrip("\n").split(" ", 2) + ["", ""])[:3]
            try:
                answer: dict[str, object] = {"samples": await getattr(bench, name)(int(n or 0), rest)}
            except Exception as e:
                answer = {"error": f"{type(e).__name__}: {e}"}
            print(json.dumps(answer), flush=True)
        await bench.close()


asyncio.run(main())
