"""The measurements of bench_api.c for ipykernel, through jupyter_client. Started by bench/run; the same commands."""

import json
import sys
import time
from queue import Empty

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager


class Kernel:
    """One ipykernel process and a client of it."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel()
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        # Not wait_for_ready(): that polls with pauses of its own. A reply to the first request says as much; and
        # something on iopub says that later outputs will not be lost, as they are until the subscription has arrived.
        self._ask()
        while not self._hears_output(0.05):
            self._ask()

    def _ask(self) -> None:
        request = self.client.kernel_info()
        while self.client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") != request:
            pass

    def _hears_output(self, timeout: float) -> bool:
        try:
            self.client.get_iopub_msg(timeout=timeout)
        except Empty:
            return False
        return True

    def run(self, code: str) -> str:
        """Runs a cell until its reply and its last output are here. Returns its standard output."""
        request = self.client.execute(code)
        text = []
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                text.append(content["text"])
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                break
        while (reply := self.client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != request:
            pass
        if reply["content"]["status"] != "ok":
            raise RuntimeError(reply["content"].get("evalue"))
        return "".join(text)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


class Bench:
    def __init__(self) -> None:
        self.kernel: Kernel | None = None
        self.kept: list[Kernel] = []

    def cold(self, _n: int, _rest: str) -> list[float]:
        start = time.perf_counter()
        self.kernel = Kernel()
        self.kernel.run("1")
        return [time.perf_counter() - start]

    def kernel_start(self, _n: int, _rest: str) -> list[float]:
        start = time.perf_counter()
        kernel = Kernel()
        kernel.run("1")
        seconds = time.perf_counter() - start
        kernel.close()
        return [seconds]

    def rtt(self, n: int, code: str) -> list[float]:
        samples = []
        for _ in range(n):
            start = time.perf_counter()
            self.kernel.run(code)
            samples.append(time.perf_counter() - start)
        return samples

    def prints(self, n: int, code: str) -> list[float]:
        start = time.perf_counter()
        text = self.kernel.run(code)
        seconds = time.perf_counter() - start
        if len(text) != n:
            raise RuntimeError(f"{len(text)} of {n} bytes of output arrived")
        return [seconds]

    def keep(self, n: int, _rest: str) -> list[float]:
        while len(self.kept) > n:
            self.kept.pop().close()
        while len(self.kept) < n:
            self.kept.append(Kernel())
            self.kept[-1].run("1")
        return []


def main() -> None:
    bench = Bench()
    commands = {
        "cold": bench.cold,
        "kernel": bench.kernel_start,
        "rtt": bench.rtt,
        "prints": bench.prints,
        "keep": bench.keep,
    }
    for line in sys.stdin:
        name, n, rest = (line.rstrip("\n").split(" ", 2) + ["", ""])[:3]
        try:
            answer: dict[str, object] = {"samples": commands[name](int(n or 0), rest)}
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)
    bench.keep(0, "")
    if bench.kernel:
        bench.kernel.close()


main()
