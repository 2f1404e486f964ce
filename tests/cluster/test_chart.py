"""deploy/helm: kubernetes.yaml and tls-gate.conf with other values."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

VALUES = {
    "image": "registry.example.org/cellgate:1",
    "slots": 64,
    "memory": "16Gi",
    "clients": ["a.b", "*.example.org"],
}


def render(repo: Path, tmp: Path, values: dict[str, object]) -> "subprocess.CompletedProcess[str]":
    if not shutil.which("helm"):
        pytest.skip("no helm in the PATH")
    (tmp / "values.json").write_text(json.dumps(values))
    argv = ["helm", "template", "nodes", repo / "deploy/helm", "--values", tmp / "values.json"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def test_each_text_that_the_chart_replaces_is_there(repo: Path) -> None:
    chart = repo / "deploy/helm"
    texts = re.findall(r'^ +\(list ("(?:[^"\\]|\\.)*")', (chart / "templates/nodes.yaml").read_text(), re.M)
    assert len(texts) == 4
    assert all(json.loads(t) in (chart / "kubernetes.yaml").read_text() for t in texts)
    assert "\ncheckHost = agent.example.org\n" in (chart / "tls-gate.conf").read_text()


def test_the_values_are_in_the_manifests(repo: Path, tmp_path: Path) -> None:
    p = render(repo, tmp_path, VALUES)
    assert p.returncode == 0, p.stderr
    text = (repo / "deploy/kubernetes.yaml").read_text()
    for old, new in {
        "image: cellgate": f"image: {VALUES['image']}",
        '"32"': '"64"',
        '"24"': '"48"',
        "memory: 8Gi": "memory: 16Gi",
    }.items():
        text = text.replace(old, new)
    rendered = {d["kind"]: d for d in yaml.safe_load_all(p.stdout)}
    gate = rendered.pop("ConfigMap")["data"]["tls-gate.conf"]
    assert rendered == {d["kind"]: d for d in yaml.safe_load_all(text)}
    names = "checkHost = a.b\ncheckHost = *.example.org"
    assert (
        gate.strip()
        == (repo / "deploy/tls-gate.conf").read_text().replace("checkHost = agent.example.org", names).strip()
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"clients": []},
        {"clients": ["a\nCAfile = /tmp/x"]},
        {"slots": 0},
        {"image": "a\nb"},
        {"memory": "8"},
        {"slot": 1},
    ],
)
def test_wrong_values_are_refused(repo: Path, tmp_path: Path, wrong: dict[str, object]) -> None:
    assert "schema" in render(repo, tmp_path, {**VALUES, **wrong}).stderr
