"""A real Slurm cluster of three nodes with a real sshd on each, in namespaces of their own (cluster.sh)."""

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from processes import descendants, name_of, words

HERE = Path(__file__).parent
READY_S = 60


@dataclass
class Cluster:
    pid: int
    package: Path
    """The folder of the Python package."""
    cellgate: str
    python: str
    examples: Path
    slowness: float

    def words(self, command: str, user: bool = True) -> list[str]:
        """Runs a line of bash on the head node, as the user alice or as root."""
        enter = ["nsenter", f"--target={self.pid}", "--all", "--root"]
        alice = ["setpriv", "--reuid=1234", "--regid=1234", "--init-groups"] if user else []
        own = {"HOME": "/home/alice", "USER": "alice", "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        own["PYTHONPATH"] = str(self.package)
        return [*enter, *alice, "env", "-i", *(f"{k}={v}" for k, v in own.items()), "bash", "-c", f"cd && {command}"]

    def run(
        self, command: str, timeout: float = 60, check: bool = True, user: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        p = subprocess.run(
            self.words(command, user),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout * self.slowness,
        )
        assert p.returncode == 0 or not check, f"{command}: {p.returncode}\n{p.stdout}\n{p.stderr}"
        return p

    def admin(self, command: str) -> None:
        self.run(command, user=False)

    def of_node(self, node: str, name: str) -> list[int]:
        """The processes with that name on a node, as this machine numbers them."""
        first = f"bash\0-ec\0node {node[1:]}\0".encode().split(b"\0")
        below = descendants(next(p for p in descendants(self.pid) if words(p) == first))
        return [p for p in below if name_of(p).startswith(name)]

    def processes(self) -> list[str]:
        """The processes of cellgate on all nodes."""
        return self.run("pgrep -l 'cellgate|cg-' || true").stdout.splitlines()

    def wait_until_empty(self) -> None:
        deadline = time.monotonic() + 20 * self.slowness
        while found := self.processes():
            assert time.monotonic() < deadline, found
            time.sleep(0.1)


def _shown(prefix: Path, python: str, repo: Path) -> list[str]:
    """What the nodes use of this machine, also where it is on a file system of its own."""
    links = [p.resolve() for p in (repo / ".deps").iterdir() if p.is_dir()]
    return sorted({str(p) for p in (repo, prefix, Path(python).parent.parent, *links)})


@contextmanager
def start_cluster(prefix: Path, python: str, repo: Path, slowness: float) -> Iterator[Cluster]:
    packages = repo / ".deps/cluster"
    with tempfile.TemporaryDirectory(prefix="cg-cluster-") as work:
        spaces = ["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child"]
        argv = ["unshare", *spaces, HERE / "cluster.sh", packages.resolve(), work, *_shown(prefix, python, repo)]
        p = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert p.stdout and p.stderr
            ready, _, _ = select.select([p.stdout], [], [], READY_S * slowness)
            line = p.stdout.readline() if ready else ""
            if line != "ready\n":
                os.killpg(p.pid, signal.SIGKILL)
                raise RuntimeError(f"the cluster did not start:\n{p.stderr.read()}")
            children = Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()
            package, examples = prefix / "lib/cellgate/package", repo / "examples"
            yield Cluster(int(children[0]), package, str(prefix / "bin/cellgate"), python, examples, slowness)
        finally:
            p.kill()
            p.communicate()
