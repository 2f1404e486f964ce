"""The recipes of docs/cluster.md for ssh and Slurm, as written but for the names of machines; soak_ray.py has that for Ray."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from cluster.slurm import Cluster
from docs_readme import read_commands
from rounds import with_peers

# Changes to the page: the name of the machine, and fewer sessions.
RECIPES: dict[str, dict[str, str]] = {
    "By ssh,": {"node1": "n1", "rollouts.py 100": "rollouts.py 20"},
    "On Slurm,": {"rollouts.sbatch 50": "rollouts.sbatch 10"},
}
NODES = {"By ssh,": {"n1": 20}, "On Slurm,": {"n1": 10, "n2": 10}}


def run_recipe(cluster: Cluster, repo: Path, name: str, python: str, changes: dict[str, str]) -> list[dict[str, Any]]:
    """Returns the lines of JSON that it has printed. @python: the command that is ~/env/bin/python."""
    script = f'#!/bin/sh\nexec {python} "$@"\n'
    cluster.run(
        f"rm -rf env clone; mkdir -p env/bin clone; cp -r {cluster.examples} clone/; "
        f"printf %s {shlex.quote(script)} > env/bin/python; chmod +x env/bin/python"
    )
    page = (repo / "docs/cluster.md").read_text()
    block = page.partition(f"\n{name}")[2].partition("```\n")[2].partition("```")[0]
    text = " && ".join(c.text for c in read_commands(block.splitlines()))
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    p = cluster.run(f"cd clone && {text}", timeout=200)
    return [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("recipe", with_peers(RECIPES, "By ssh,"))
def test_sessions(cluster: Cluster, repo: Path, recipe: str) -> None:
    lines = run_recipe(cluster, repo, recipe, f"env PYTHONPATH={cluster.package} {cluster.python}", RECIPES[recipe])
    assert {line["node"]: line["episodes"] for line in lines} == NODES[recipe], lines
    assert all(line["score"] == 1.0 for line in lines)
    cluster.run("pkill cellgate-superv || true")  # without a job it is shared, and stays for a while
    cluster.wait_until_empty()
