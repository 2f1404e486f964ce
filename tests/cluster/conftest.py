"""The cluster of slurm.py, as root."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.slurm import Cluster, start_cluster


@pytest.fixture(scope="session")
def cluster(prefix: Path, test_python: str, repo: Path, slowness: float) -> Iterator[Cluster]:
    if os.geteuid() != 0:
        pytest.skip("needs root: a cluster of namespaces has nodes with users of their own")
    assert (repo / ".deps/cluster/usr/bin/srun").exists(), ".deps/cluster: run scripts/setup --test"
    with start_cluster(prefix, test_python, repo, slowness) as c:
        yield c
