"""Sessions on a cluster of which something is lost, for soak_slurm.py and soak_ray.py."""

import json
import subprocess
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from cluster.slurm import Cluster
from processes import descendants, name_of
from relay.conftest import kill, wait_until

WORK = "/home/alice/many"
SESSIONS = 10  # on each node, of which something is lost
Records = list[dict[str, Any]]


class Many:
    """many.py at the head, or what prints the same, with sessions on each of the nodes; @program: its command."""

    def __init__(self, cluster: Cluster, program: str, nodes: Sequence[str]) -> None:
        self.cluster, self.nodes = cluster, nodes
        cluster.run(f"rm -rf {WORK}; mkdir {WORK}")
        self.process = subprocess.Popen(
            cluster.words(f"exec {program} 2>{WORK}/log"), stdout=subprocess.PIPE, text=True
        )
        self.answers(*nodes, more=1)

    def __enter__(self) -> "Many":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def here(self, name: str) -> list[int]:
        """Its processes with that name, at the head."""
        return [p for p in descendants(self.process.pid) if name_of(p).startswith(name)]

    def kill(self) -> None:
        for pid in self.here("python"):
            kill(pid)
        self.process.wait(30)

    def progress(self) -> dict[str, Any]:
        found = self.cluster.run(f"cat {WORK}/*.progress", check=False).stdout
        all_of = [json.loads(line) for line in found.splitlines()]
        least = {n: least for p in all_of for n, least in p["least"].items()}
        return {"least": least, "lost": sorted({name for p in all_of for name in p["lost"]})}

    def answers(self, *nodes: str, more: int = 2, seconds: float = 200) -> None:
        """Waits until each session of the nodes has so many more answers."""
        begin = self.progress()["least"]

        def enough() -> bool:
            assert self.process.poll() is None, self.cluster.run(f"cat {WORK}/log").stdout
            least = self.progress()["least"]
            return all(least.get(n, 0) >= begin.get(n, 0) + more for n in nodes)

        wait_until(enough, f"no answers: {self.progress()}", seconds)

    def losses(self, node: str, count: int, seconds: float) -> float:
        """Waits until so many sessions of the node have ended, or failed. Returns the seconds."""
        begun = time.monotonic()
        wait_until(
            lambda: len([x for x in self.progress()["lost"] if x.startswith(node)]) >= count,
            f"not lost: {self.progress()}",
            seconds,
        )
        return time.monotonic() - begun

    def end(self, lost: dict[str, int]) -> Records:
        """Ends the sessions, and checks what they got; @lost: how many of a node are to have ended before."""
        self.cluster.run(f"touch {WORK}/stop")
        lines = self.process.communicate(timeout=200)[0].splitlines()
        records: Records = json.loads(next(line for line in lines if line.startswith("[{")))  # Ray prints more
        for r in records:
            cells = [*range(len(r["answered"]) + len(r["failed"]))]
            begun = [cells, [*cells, len(cells)]] if r["lost"] else [cells]
            assert sorted([*r["answered"], *map(int, r["failed"])]) == cells and r["answered"] == sorted(
                r["answered"]
            ), r
            assert r["ran"] in begun, r
            assert r["called"] == sorted(set(r["called"])) and {*r["answered"]} <= {*r["called"]} <= {*begun[-1]}, r
            assert r["late"] == 0, r
        ended = {n: sum(bool(r["lost"]) for r in records if r["node"] == n) for n in self.nodes}
        assert ended == {**dict.fromkeys(self.nodes, 0), **lost}
        return records

    def nothing_goes_on(self, *nodes: str) -> None:
        """Of sessions that have ended no cell runs, and nothing calls."""
        files = " ".join(f"{WORK}/{n}-*" for n in nodes)
        before = self.cluster.run(f"cat {files}").stdout
        time.sleep(1)
        assert self.cluster.run(f"cat {files}").stdout == before


class Loss(NamedTuple):
    """Processes of n1's sessions that are killed, or the seconds for which its link is cut."""

    by: str
    at: str
    name: str
    ended: str
    """Which of its sessions end: "all", "one", "none", or "failed": none, but a cell of each fails."""
    seen: str = ""
    """What the host sees."""
    node: bool = True
    """The node goes on: it takes new sessions."""
    which: str = "new"
    """Of the processes with this name: those that the sessions have brought, the first one of these, or all."""
