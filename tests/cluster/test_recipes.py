"""The recipes of docs/cluster.md for ssh and Slurm, as written but for the names of machines; soak_ray.py has that for Ray."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from cluster.slurm import Cluster
from docs_readme import read_commands

RECIPES = {"By ssh,": {"n1": 100}, "On Slurm,": {"n1": 50, "n2": 50}}


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


@pytest.mark.parametrize(("recipe", "nodes"), RECIPES.items())
def test_100_sessions(cluster: Cluster, repo: Path, recipe: str, nodes: dict[str, int]) -> None:
    changes = {"node1": "n1"} if recipe == "By ssh," else {}
    lines = run_recipe(cluster, repo, recipe, f"env PYTHONPATH={cluster.package} {cluster.python}", changes)
    assert {line["node"]: line["episodes"] for line in lines} == nodes, lines
    assert all(line["score"] == 1.0 for line in lines)
    cluster.run("pkill cellgate-superv || true")  # without a job it is shared, and stays for a while
    cluster.wait_until_empty()
