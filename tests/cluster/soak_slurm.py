"""300 sessions on three nodes of Slurm: a node that is drained, scancel; and all that can be lost, each by itself.

Run by scripts/soak. Whatever happens, each session's answers are those of its cells, each once and in order; no cell ran
twice; no call of a function or tool came twice or after the end; nothing is left. docs/cluster.md has these losses.
"""

import contextlib
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.losses import SESSIONS, WORK, Loss, Many
from cluster.slurm import Cluster
from processes import words
from relay.conftest import kill, wait_until

pytestmark = pytest.mark.timeout(200)

HERE = Path(__file__).parent
NODES = ("n1", "n2", "n3")


def sessions(cluster: Cluster, ways: dict[str, str], count: int, server: str = "function") -> Many:
    """So many on each node; @server: the program of an MCP server."""
    nodes = " ".join(shlex.quote(f"{n}={w}") for n, w in ways.items())
    return Many(cluster, f"{cluster.python} {HERE / 'many.py'} {WORK} {count} {server} {nodes}", NODES)


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


def ways(cluster: Cluster, jobs: dict[str, str], by: str) -> dict[str, str]:
    """The commands that connect to the nodes."""
    step = {n: f"srun --jobid={job} --overlap" if by == "srun" else f"ssh {n}" for n, job in jobs.items()}
    return {n: f"{step[n]} env CELLGATE_NODE=/tmp/node {cluster.cellgate} relay" for n in NODES}


@pytest.fixture
def stack(jobs: dict[str, str]) -> Iterator[contextlib.ExitStack]:
    """Ended before the jobs, which are waited for."""
    with contextlib.ExitStack() as s:
        yield s


def one_cell(cluster: Cluster, way: str) -> "subprocess.CompletedProcess[str]":
    return cluster.run(f"{cluster.cellgate} run --connect '{way}' --workspace {WORK} -c 42", check=False)


def test_300_sessions_a_drained_node_and_scancel(
    stack: contextlib.ExitStack, cluster: Cluster, jobs: dict[str, str]
) -> None:
    by = ways(cluster, jobs, "srun")
    many = stack.enter_context(sessions(cluster, by, 100))
    cluster.run(f"scancel --batch --signal=TERM {jobs['n3']}")
    cluster.admin("scontrol update nodename=n3 state=drain reason=test")
    try:
        wait_until(lambda: "being drained" in one_cell(cluster, by["n3"]).stderr, "n3 takes sessions")
        many.answers(*NODES)
        assert many.progress()["lost"] == []
        cluster.run(f"scancel {jobs['n1']}")
        print("scancel: lost after", many.losses("n1", 100, 60))
        many.answers("n2", "n3")
        records = many.end({"n1": 100})
        opened = sorted(r["opened_s"] for r in records)
        print("opened:", opened[len(opened) // 2], opened[-1], "answers:", sum(len(r["answered"]) for r in records))
    finally:
        cluster.admin("scontrol update nodename=n3 state=resume")


LOSSES = {
    "its `cellgate-relay`": Loss("srun", "here", "cellgate-relay", "all", "ClosedError"),
    "`srun`": Loss("srun", "here", "srun", "all", "ClosedError"),
    "`ssh`": Loss("ssh", "here", "ssh", "none"),
    "the tool server here": Loss(
        "srun", "here", "cellgate-toolse", "failed", "tool server of the host has ended", which="server"
    ),
    "`cellgate-relay` there, by srun": Loss("srun", "there", "cellgate-relay", "all", "ClosedError"),
    "`cellgate-relay` there, by ssh": Loss("ssh", "there", "cellgate-relay", "none"),
    "what keeps the sessions": Loss("ssh", "there", "cellgate-keeper", "all", "ClosedError"),
    "sshd": Loss("ssh", "there", "sshd", "none"),
    "slurmstepd of the step": Loss("srun", "there", "slurmstepd", "all", "ClosedError"),
    "slurmd": Loss("srun", "there", "slurmd", "none", which="all"),
    "`cellgate node`": Loss("srun", "there", "cellgate", "all", "ClosedError", node=False, which="first"),
    "the supervisor": Loss("srun", "there", "cellgate-superv", "all", "ClosedError", node=False, which="all"),
    "the zygote": Loss("srun", "there", "cellgate-kernel", "all", "kernel_died", which="first"),
    "a kernel": Loss("srun", "there", "cellgate-kernel", "one", "kernel_died", which="one"),
    "a kernel's init": Loss("srun", "there", "cg-init", "one", "kernel_died", which="one"),
    "the tool server there": Loss("srun", "there", "cellgate-toolse", "none", which="all"),
    "the link for 5 s, by srun": Loss("srun", "link", "5", "none"),
    "the link for 20 s, by srun": Loss("srun", "link", "20", "all", "ClosedError"),
    "the link for 20 s, by ssh": Loss("ssh", "link", "20", "none"),
    "the link for good, by srun": Loss("srun", "link", "", "all", "ClosedError"),
    "the link for good, by ssh": Loss("ssh", "link", "", "all", "ClosedError"),
}


def found(cluster: Cluster, many: Many, loss: Loss, way: str, before: list[int]) -> list[int]:
    if loss.at == "here":
        mark = way.split()[1].encode()  # the node or its job
        return [p for p in many.here(loss.name) if loss.which == "server" or mark in words(p)]
    now = cluster.of_node("n1", loss.name)
    new = [p for p in now if p not in before]
    return {"all": now, "first": now[:1], "new": new, "one": new[:1]}[loss.which]


@pytest.mark.parametrize("what", LOSSES)
def test_a_loss(stack: contextlib.ExitStack, cluster: Cluster, jobs: dict[str, str], what: str) -> None:
    """Of n1's; the sessions of the other nodes go on."""
    loss = LOSSES[what]
    before = cluster.of_node("n1", loss.name)
    by = ways(cluster, jobs, loss.by)
    server = str(HERE.parent / "api/echo_server.py") if loss.which == "server" else "function"
    many = stack.enter_context(sessions(cluster, by, SESSIONS, server))
    if loss.at == "link":
        cluster.admin("ip link set n1 down")
        stack.callback(cluster.admin, "ip link set n1 up")
        time.sleep(float(loss.name or 0))
    else:
        pids = found(cluster, many, loss, by["n1"], before)
        assert pids
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                kill(pid)
    lost = {"all": SESSIONS, "one": 1}.get(loss.ended, 0)
    print(f"{what}: lost after", many.losses("n1", SESSIONS if loss.ended == "failed" else lost, 60))
    if loss.ended == "all":  # but for the spare one
        wait_until(lambda: len(cluster.of_node("n1", "cg-init")) <= 1, "sessions stay at the node", 90)
    if loss.at == "link":
        cluster.admin("ip link set n1 up")
    many.answers(*{"all": NODES[1:], "failed": ()}.get(loss.ended, NODES))
    if loss.node:
        wait_until(lambda: one_cell(cluster, by["n1"]).stdout == "42\n", "n1 takes no sessions", 60)
    records = many.end({"n1": lost})
    seen = [*(r["lost"] for r in records if r["lost"]), *(e for r in records for e in r["failed"].values())]
    assert all(re.search(loss.seen, text) for text in seen), seen
    assert loss.ended != "none" or not seen, seen


def test_the_killed_host(stack: contextlib.ExitStack, cluster: Cluster, jobs: dict[str, str]) -> None:
    many = stack.enter_context(sessions(cluster, ways(cluster, jobs, "srun"), SESSIONS))
    many.kill()
    wait_until(lambda: not cluster.of_node("n1", "cellgate-relay"), "a relay stays", 60)
    many.nothing_goes_on(*NODES)
