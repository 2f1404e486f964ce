"""300 sessions on three nodes of Slurm: a node that is drained, processes that are killed, a link that is cut, scancel.

Run by scripts/soak. Whatever happens, each session's answers are the first ones of its cells, each once and in order;
no cell ran twice; no call of a function came after the end; nothing is left.
"""

import contextlib
import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.slurm import Cluster
from processes import name_of, words
from relay.conftest import descendants, kill, wait_until

pytestmark = pytest.mark.timeout(600)

MANY = Path(__file__).with_name("many.py")
NODES = ("n1", "n2", "n3")
WORK = "/home/alice/many"
Records = list[dict[str, Any]]


class Many:
    """many.py at the head."""

    def __init__(self, cluster: Cluster, words: dict[str, str], sessions: int, detach: float = 30) -> None:
        self.cluster, self.sessions = cluster, sessions
        cluster.run(f"rm -rf {WORK}; mkdir {WORK}")
        nodes = " ".join(shlex.quote(f"{n}={w}") for n, w in words.items())
        program = f"exec {cluster.python} {MANY} {WORK} {sessions} {detach} {nodes} 2>{WORK}/log"
        self.process = subprocess.Popen(cluster.words(program), stdout=subprocess.PIPE, text=True)

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
        return json.loads(self.cluster.run(f"cat {WORK}/progress 2>/dev/null || echo null").stdout) or {
            "least": {},
            "lost": [],
        }

    def answers(self, *nodes: str, more: int = 2, seconds: float = 200) -> None:
        """Waits until each session of the nodes has so many more answers."""
        begin = self.progress()["least"]

        def enough() -> bool:
            assert self.process.poll() is None, self.cluster.run(f"cat {WORK}/log").stdout
            least = self.progress()["least"]
            return all(least.get(n, 0) >= begin.get(n, 0) + more for n in nodes)

        wait_until(enough, f"no answers: {self.progress()}", seconds)

    def losses(self, node: str, count: int, seconds: float) -> float:
        """Waits until so many sessions of the node have ended. Returns the seconds."""
        begun = time.monotonic()
        wait_until(
            lambda: len([x for x in self.progress()["lost"] if x.startswith(node)]) >= count, "not lost", seconds
        )
        return time.monotonic() - begun

    def end(self, lost: dict[str, int]) -> Records:
        """Ends the sessions, and checks what they got; @lost: how many of a node are to have ended before."""
        self.cluster.run(f"touch {WORK}/stop")
        records: Records = json.loads(self.process.communicate(timeout=200)[0])
        for r in records:
            n = len(r["answered"])
            assert r["answered"] == list(range(n)), r
            assert r["ran"] in ([*range(n)], [*range(n + 1)]) if r["lost"] else r["ran"] == [*range(n)], r
            assert r["called"] in ([*range(n)], [*range(n + 1)]) if r["lost"] else r["called"] == [*range(n)], r
            assert r["late"] == 0, r
        assert {n: sum(bool(r["lost"]) for r in records if r["node"] == n) for n in NODES} == {
            **dict.fromkeys(NODES, 0),
            **lost,
        }
        return records


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[dict[str, str]]:
    """A job with `cellgate node` on each node. Yields their numbers."""
    started = {}
    for n in NODES:
        wrap = shlex.quote(
            f"exec {cluster.cellgate} node --slots 110 --slots-per-client 110 --link /tmp/node --drain 300"
        )
        started[n] = cluster.run(
            f"rm -f {n}.out; sbatch --parsable -w {n} -J node --mem=3G -o {n}.out --wrap {wrap}"
        ).stdout.strip()
    cluster.run("until grep -q node n1.out && grep -q node n2.out && grep -q node n3.out; do sleep 0.1; done")
    yield started
    cluster.run("scancel -n node; while squeue -h | grep -q .; do sleep 0.1; done")
    cluster.wait_until_empty()


@pytest.fixture
def by_srun(cluster: Cluster, jobs: dict[str, str]) -> dict[str, str]:
    return {
        n: f"srun --jobid={job} --overlap env CELLGATE_NODE=/tmp/node {cluster.cellgate} relay"
        for n, job in jobs.items()
    }


@pytest.fixture
def stack(by_srun: dict[str, str]) -> Iterator[contextlib.ExitStack]:
    """Ended before the jobs of @by_srun, which are waited for."""
    with contextlib.ExitStack() as s:
        yield s


def refused(cluster: Cluster, words: str) -> str:
    return cluster.run(f"{cluster.cellgate} run --connect '{words}' --workspace /home/alice -c 1", check=False).stderr


KILLED: dict[str, tuple[str, str, int]] = {
    "the relay here": ("head", "cellgate-relay", 10),
    "the supervisor": ("n1", "cellgate-superv", 10),
}


@pytest.mark.parametrize("who", KILLED)
def test_a_killed_process(stack: contextlib.ExitStack, cluster: Cluster, by_srun: dict[str, str], who: str) -> None:
    """Those of n1; the sessions of the other nodes go on."""
    node, name, count = KILLED[who]
    before = cluster.of_node("n1", name)  # slurmstepd of the job itself
    many = stack.enter_context(Many(cluster, by_srun, 10))
    many.answers(*NODES, more=1)
    if node == "head":
        job = by_srun["n1"].split()[1].encode()
        found = [p for p in many.here(name) if job in words(p)]
    else:
        found = [p for p in cluster.of_node("n1", name) if p not in before or name == "cellgate-superv"]
    assert found
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            kill(pid)
    print(f"{who}: {len(found)} killed, lost after", many.losses("n1", count, 60))
    many.answers("n2", "n3")
    many.end({"n1": count})
