"""The recipes of docs/cluster.md for ssh and Slurm, as written but for the names of machines."""

import json
import shlex
from pathlib import Path

import pytest
from cluster.slurm import Cluster
from docs_readme import read_commands

RECIPES = {"By ssh,": {"n1": 100}, "On Slurm,": {"n1": 50, "n2": 50}}


@pytest.mark.parametrize(("recipe", "nodes"), RECIPES.items())
def test_100_sessions(cluster: Cluster, repo: Path, recipe: str, nodes: dict[str, int]) -> None:
    script = f'#!/bin/sh\nPYTHONPATH={cluster.package} exec {cluster.python} "$@"\n'
    cluster.run(
        f"rm -rf env clone; mkdir -p env/bin clone; cp -r {cluster.examples} clone/; "
        f"printf %s {shlex.quote(script)} > env/bin/python; chmod +x env/bin/python"
    )
    page = (repo / "docs/cluster.md").read_text()
    block = page.partition(f"\n{recipe}")[2].partition("```\n")[2].partition("```")[0]
    commands = [c.text.replace("node1", "n1") for c in read_commands(block.splitlines())]
    assert len(commands) == 2
    p = cluster.run("cd clone && " + " && ".join(commands), timeout=120)
    done = [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]
    assert {line["node"]: line["episodes"] for line in done} == nodes, p.stdout
    assert all(line["score"] == 1.0 for line in done)
    cluster.run("pkill cellgate-superv || true")  # without a job it is shared, and stays for a while
    cluster.wait_until_empty()
