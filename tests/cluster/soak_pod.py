"""The Deployment of deploy/kubernetes.yaml as a pod of podman: ready, cells, the selftest, and its end in order.

Run by scripts/soak with an image `cellgate` of the Containerfile (podman build -t cellgate .), made from this tree.
CG_PODMAN names another program than podman. podman has no probes, so /readyz is read here.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from certificates import Authority
from cryptography import x509
from package_fixtures import package  # noqa: F401
from relay.conftest import wait_until

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("package")]

PODMAN = os.environ.get("CG_PODMAN", "podman")
NODE = "cellgate-node-pod-0-node"
DRAIN_S = "20"


def podman(*argv: str | Path, check: bool = True, input: str = "") -> str:
    done = subprocess.run([PODMAN, *argv], capture_output=True, text=True, timeout=120, check=False, input=input)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def manifests(repo: Path, tmp: Path) -> list[dict[str, Any]]:
    """As Kubernetes would have them, but for what podman 4.3 has not: a Secret's files are a ConfigMap's."""
    authority = Authority(tmp)
    files = authority.issue(tmp, x509.DNSName("cellgate-node"))
    secret = {"tls.crt": files.cert.read_text(), "tls.key": files.key.read_text(), "ca.crt": authority.file.read_text()}
    deployment = next(yaml.safe_load_all((repo / "deploy/kubernetes.yaml").read_text()))
    pod = deployment["spec"]["template"]["spec"]
    deployment["spec"]["replicas"] = 1
    for container in pod["containers"]:
        container |= {"image": "localhost/cellgate:latest", "imagePullPolicy": "Never"}
        del container["ports"]  # nothing but `podman exec` reaches the pod
    args = pod["containers"][0]["args"]
    args[args.index("300")] = DRAIN_S
    pod["restartPolicy"] = "Never"  # whose exit status is read
    pod["volumes"] = [
        v if v["name"] != "tls" else {"name": "tls", "configMap": {"name": "tls"}} for v in pod["volumes"]
    ]
    data = {"cellgate-gate": {"tls-gate.conf": (repo / "deploy/tls-gate.conf").read_text()}, "tls": secret}
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": n}, "data": d} for n, d in data.items()]
    return [*maps, deployment]


def readyz() -> str:
    ask = "printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' | socat -t5 - TCP:127.0.0.1:9090"
    return podman("exec", NODE, "sh", "-c", ask, check=False).partition("\n")[0]


@pytest.fixture
def pod(repo: Path, tmp_path: Path) -> Iterator[list[str]]:
    """The words of --connect."""
    if not shutil.which(PODMAN) or podman("images", "-q", "localhost/cellgate").strip() == "":
        pytest.skip("no podman with an image cellgate: podman build -t cellgate .")
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump_all(manifests(repo, tmp_path)))
    try:
        podman("kube", "play", "--network", "none", file)
        wait_until(lambda: readyz().endswith("200 OK"), "ready", 60)
        yield [PODMAN, "exec", "-i", NODE, "cellgate", "relay"]
    finally:
        podman("kube", "down", file, check=False)


def test_selftest(pod: list[str]) -> None:
    text = podman("exec", NODE, "cellgate", "selftest", "--tier", "landlock:freeze", check=False)
    assert re.search(r"\d{3} held, 0 holes, \d+ skipped\n", text), text[-3000:]


def test_100_sessions(pod: list[str], repo: Path) -> None:
    """The recipe of docs/cluster.md, its last line."""
    (line,) = re.findall(r"exec rollouts -- (env .*)", (repo / "docs/cluster.md").read_text())
    podman(
        "exec",
        "-i",
        NODE,
        "sh",
        "-c",
        "cat >/tmp/rollouts.py",
        input=(repo / "examples/cluster/rollouts.py").read_text(),
    )
    assert '"episodes": 100, "score": 1.0' in podman("exec", NODE, *line.split())


def test_a_folder_there_and_back(pod: list[str], tmp_path: Path) -> None:
    import cellgate

    podman("exec", NODE, "mkdir", "/home/user/work")
    (tmp_path / "folder").mkdir()
    with (
        cellgate.Client(connect=pod) as client,
        cellgate.Sync(tmp_path / "folder", client, "/home/user/work", tier="landlock") as copy,
        cellgate.Session(copy.path, client=client, tier="landlock") as session,
    ):
        session.run("open('made', 'w').write('42')").check()
    assert copy.report and copy.report["changed"] == ["made"] and (tmp_path / "folder/made").read_text() == "42"


def test_its_end(pod: list[str]) -> None:
    """SIGTERM while a cell runs: not ready, the session is told, a new one refused, and the end at the limit."""
    import cellgate

    told: list[Any] = []
    with cellgate.Client(connect=pod) as client, cellgate.Session("/home/user", client=client, tier="landlock") as s:
        cell = s.stream("import time\nprint('in the cell', flush=True)\ntime.sleep(600)")
        assert "in the cell" in str(next(e for e in cell if isinstance(e, cellgate.Stream)))
        podman("kill", "--signal", "TERM", NODE)
        wait_until(lambda: readyz().endswith("503 Service Unavailable"), "not ready")
        with pytest.raises(cellgate.BusyError, match="drained"):
            cellgate.Session("/home/user", client=client, tier="landlock")
        with contextlib.suppress(cellgate.ClosedError):
            told.extend(cell)
    assert any("being drained" in str(e) for e in told)
    assert podman("wait", NODE).strip() == "0"
