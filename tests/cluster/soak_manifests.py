"""deploy/kubernetes.yaml and the chart's output against the schemas of three versions of Kubernetes.

Run by scripts/soak, for which scripts/setup installs kubernetes-validate (tests/cluster/manifests-requirements.txt):
its schemas are those of Kubernetes, with which it refuses members that they do not have.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.test_chart import VALUES, render

VERSIONS = ("1.30", "1.33", "1.37")
OF_OTHERS = {"Certificate"}  # of cert-manager, which has its own schema
KINDS = {"Deployment", "NetworkPolicy", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"}


def validate(repo: Path, tmp: Path, version: str, documents: list[dict[str, Any]]) -> str:
    """The complaints; "" where there are none."""
    python = repo / ".deps/manifests-env/bin/python"
    assert python.exists(), f"{python} is not there: run scripts/setup --manifests"
    (tmp / "manifests.yaml").write_text(yaml.safe_dump_all(documents))
    argv = [python, "-B", "-m", "kubernetes_validate", "--strict", "-k", version, tmp / "manifests.yaml"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    passed = [line for line in lines if line.startswith("INFO ") and line.endswith(f"against version {version}")]
    assert bool(done.returncode) == (len(passed) < len(documents)), lines
    return "\n".join(line for line in lines if line not in passed)


def manifests(text: str) -> list[dict[str, Any]]:
    documents = [d for d in yaml.safe_load_all(text) if d["kind"] not in OF_OTHERS]
    assert {d["kind"] for d in documents} >= KINDS
    return documents


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests(repo: Path, tmp_path: Path, version: str) -> None:
    documents = manifests((repo / "deploy/kubernetes.yaml").read_text())
    assert validate(repo, tmp_path, version, documents) == ""
    pod = documents[0]["spec"]["template"]["spec"]
    for place, name, value in (
        (pod, "restart", "Always"),
        (pod["containers"][0], "ports", "9090"),
        (pod["volumes"][3]["emptyDir"], "sizeLimits", "1Gi"),
    ):
        kept = dict(place)
        place[name] = value
        assert name in validate(repo, tmp_path, version, documents), "a mistake is found"
        place.clear()
        place.update(kept)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_chart(repo: Path, tmp_path: Path, version: str) -> None:
    rendered = render(repo, tmp_path, VALUES)
    assert rendered.returncode == 0, rendered.stderr
    assert validate(repo, tmp_path, version, manifests(rendered.stdout)) == ""
