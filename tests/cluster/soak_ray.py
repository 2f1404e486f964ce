"""200 sessions by the example for Ray on two nodes; and what can be lost there, each by itself.

Run by scripts/soak, on the machines of slurm.py: the head of Ray has no processors, so that actors are on the nodes.
The same is checked as in soak_slurm.py; docs/cluster.md has these losses.
"""

import contextlib
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.losses import SESSIONS, WORK, Loss, Many
from cluster.slurm import Cluster
from cluster.test_recipes import run_recipe
from relay.conftest import kill, wait_until

pytestmark = pytest.mark.timeout(400)

HERE = Path(__file__).parent
NODES = ("n1", "n2")
OURS = ("cellgate", "cg-", "ray::Host", "ray::Rollouts")
ADDRESS = {"RAY_AUTH_MODE": "token", "RAY_ADDRESS": "10.9.9.1:6379"}


class Ray:
    def __init__(self, cluster: Cluster, env: Path) -> None:
        self.cluster, self.env = cluster, env
        cluster.run(f"rm -rf .ray; {self.ray('get-auth-token --generate')}")
        self.start("head", "--head --port=6379 --include-dashboard=false --node-ip-address=10.9.9.1 --num-cpus=0")
        cluster.run(f"until {self.ray('status')}; do sleep 0.2; done", timeout=120)
        for n in NODES:
            self.start_node(n)

    def words(self, program: str) -> str:
        given = " ".join(f"{k}={v}" for k, v in {**ADDRESS, "PYTHONPATH": str(self.cluster.package)}.items())
        return f"env {given} {self.env}/bin/{program}"

    def ray(self, command: str, node: str = "head") -> str:
        words = f"{self.words('ray')} {command}"
        return words if node == "head" else f"ssh {node} {shlex.quote(words)}"

    def start(self, node: str, options: str) -> None:
        words = f"start {options} --disable-usage-stats --object-store-memory=80000000"
        self.cluster.run(f"{self.ray(words, node)} >>ray.log 2>&1", timeout=200)

    def start_node(self, node: str) -> None:
        resources = shlex.quote(f'{{"{node}": 1}}')
        where = f"--address={ADDRESS['RAY_ADDRESS']} --node-ip-address=10.9.9.1{node[1:]}"
        self.start(node, f"{where} --num-cpus=2 --resources={resources}")

    def stop(self, node: str) -> None:
        self.cluster.run(f"{self.ray('stop --force', node)} >>ray.log 2>&1", timeout=200)

    def many(self) -> Many:
        """ray_many.py at the head."""
        return Many(
            self.cluster, self.words(f"python -B {HERE}/ray_many.py {WORK} {SESSIONS} {' '.join(NODES)}"), NODES
        )

    def wait_until_empty(self, node: str) -> None:
        wait_until(lambda: not any(self.cluster.of_node(node, name) for name in OURS), f"processes stay on {node}", 60)


@pytest.fixture(scope="module")
def ray(cluster: Cluster, repo: Path) -> Iterator[Ray]:
    env = repo / ".deps/ray-env"
    assert (env / "bin/ray").exists(), f"{env}: run scripts/setup --ray"
    r = Ray(cluster, env)
    yield r
    for node in ("head", *NODES):
        r.stop(node)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as s:
        yield s


def test_the_recipe_with_200_sessions(ray: Ray, repo: Path) -> None:
    lines = run_recipe(ray.cluster, repo, "On Ray,", ray.words("python"), {" 2 50": " 2 100"})
    assert {line["node"]: line["episodes"] for line in lines} == {"n1": 100, "n2": 100}, lines
    assert all(line["score"] == 1.0 for line in lines)
    print("opened:", [line["slowest_open_s"] for line in lines])
    for node in NODES:
        ray.wait_until_empty(node)


LOSSES = {
    "an actor": Loss("", "", "ray::Host", "all", "ActorDiedError"),
    "the supervisor": Loss("", "", "cellgate-superv", "all", "ClosedError"),
    "the zygote": Loss("", "", "cellgate-kernel", "all", "kernel_died"),
    "a raylet": Loss("", "", "raylet", "all", "Actor(Died|Unavailable)Error", node=False),
    "the link for 5 s": Loss("", "link", "5", "none"),
    "the link for good": Loss("", "link", "", "all", "Actor(Died|Unavailable)Error", node=False),
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_loss(stack: contextlib.ExitStack, ray: Ray, what: str) -> None:
    """On n1; the sessions of n2 go on."""
    loss = LOSSES[what]
    lost = SESSIONS if loss.ended == "all" else 0
    many = stack.enter_context(ray.many())
    if loss.at == "link":
        ray.cluster.admin("ip link set n1 down")
        stack.callback(ray.cluster.admin, "ip link set n1 up")
        time.sleep(float(loss.name or 0))
    else:
        kill(ray.cluster.of_node("n1", loss.name)[0])
    print(f"{what}: lost after", many.losses("n1", lost, 200))
    many.answers("n2")
    if loss.at == "link":
        ray.cluster.admin("ip link set n1 up")
    if not lost:
        many.answers("n1")
    elif loss.seen.startswith("Actor"):
        ray.wait_until_empty("n1")
        many.nothing_goes_on("n1")
    seen = [r["lost"] for r in many.end({"n1": lost}) if r["lost"]]
    assert all(re.search(loss.seen, text) for text in seen), seen
    for node in NODES:
        ray.wait_until_empty(node)
    if not loss.node:
        ray.stop("n1")
        ray.start_node("n1")
    with ray.many() as again:
        again.end({})


def test_the_killed_driver(stack: contextlib.ExitStack, ray: Ray) -> None:
    many = stack.enter_context(ray.many())
    many.kill()
    for node in NODES:
        ray.wait_until_empty(node)
    many.nothing_goes_on(*NODES)
