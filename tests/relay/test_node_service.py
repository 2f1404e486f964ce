"""`cellgate node`: slots, refusals, its end in order, figures over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from relay.conftest import descendants, is_alive, wait_until
from relay.test_links import whole_session

if TYPE_CHECKING:
    import cellgate

pytestmark = pytest.mark.usefixtures("package")


class Node:
    def __init__(self, prefix: Path, tmp: Path, *options: str) -> None:
        self.link = tmp / "node"
        self.log = tmp / "log"
        self.cellgate = prefix / "bin/cellgate"
        argv = [self.cellgate, "node", "--link", self.link, "--http", "127.0.0.1:0", *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.ready: dict[str, str] = json.loads(line)

    @property
    def connect(self) -> list[str]:
        return ["env", f"CELLGATE_NODE={self.link}", str(self.cellgate), "relay"]

    def client(self) -> cellgate.Client:
        import cellgate

        return cellgate.Client(connect=self.connect)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.ready['http']}{path}", timeout=30) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def figures(self) -> dict[str, float]:
        found = re.findall(r'^cellgate_(\w+)(?:\{[^}]*?(0\.\d+)?"?\})? (\S+)$', self.get("/metrics")[1], re.M)
        return {name + quantile: float(value) for name, quantile, value in found}

    def records(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def start(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def make(*options: str) -> Node:
        folder = tmp_path / f"n{len(nodes)}"
        folder.mkdir()
        nodes.append(Node(prefix, folder, *options))
        return nodes[-1]

    yield make
    for node in nodes:
        node.process.send_signal(signal.SIGINT)
        node.process.wait(60)


def test_slots(start: Callable[..., Node], tmp_path: Path) -> None:
    """A full node refuses sessions and connections; of several nodes the one with a free slot is taken."""
    import cellgate

    full, free = start("--slots", "2", "--slots-per-client", "1", "--spares", "0"), start("--slots", "1")
    with full.client() as a, full.client() as b, cellgate.Session(tmp_path, client=a) as s:
        assert s.run("6 * 7").value == "42"
        with pytest.raises(cellgate.LimitExceededError, match="has 1 sessions"):
            cellgate.Session(tmp_path, client=a)
        with cellgate.Session(tmp_path, client=b), pytest.raises(cellgate.BusyError, match="all of its 2 slots"):
            full.client()
        last = cellgate.Session(tmp_path, client=b)
        c = cellgate.Client(connect=[full.connect, free.connect])
        with c, cellgate.Session(tmp_path, client=c) as elsewhere:
            assert elsewhere.run("1").ok
            with pytest.raises(cellgate.BusyError):
                cellgate.Client(connect=[full.connect, free.connect])
        last.close()
    wait_until(lambda: full.figures()["sessions"] == 0, "the sessions have ended")
    figures = full.figures()
    assert (figures["slots"], figures["sessions_started_total"], figures["sessions_refused_total"]) == (2, 3, 1)
    assert 0 < figures["session_start_seconds0.5"] <= figures["session_start_seconds0.99"] < 30
    assert figures["memory_bytes"] > 10 << 20


def test_what_a_client_of_a_node_cannot_do(start: Callable[..., Node], tmp_path: Path) -> None:
    """Neither end the node, nor find others' sessions, nor run anything without a sandbox: refused by the node itself."""
    import cellgate

    node = start()
    with cellgate.Client(address=node.ready["node"]) as other, node.client() as c:
        with cellgate.Session(tmp_path, client=c) as s:
            assert s.run("1").ok
            for request in (other.status, lambda: other.stop(force=True)):
                with pytest.raises(cellgate.UnsupportedError, match="not on a node"):
                    request()
            with pytest.raises(cellgate.UnsupportedError, match="without a sandbox"):
                cellgate.Session(tmp_path, client=other, sandbox=False)
            with cellgate.Session(tmp_path, client=other) as mine:
                servers = {"echo": {"command": "true"}}
                with pytest.raises(cellgate.UnsupportedError, match="MCP servers run at the host"):
                    mine.add_mcp_servers(servers)
            assert s.run("2").ok


def test_tools_of_a_session_stay_at_the_host(start: Callable[..., Node], tmp_path: Path) -> None:
    """Functions and MCP servers of a client, on a node and its spares: everything is done once."""
    with start("--spares", "1").client() as c:
        whole_session(c, tmp_path)


def test_environments_are_the_nodes(start: Callable[..., Node]) -> None:
    import cellgate

    node = start()
    with pytest.raises(cellgate.UnsupportedError, match="those of `cellgate node`"):
        cellgate.Client(connect=node.connect, preload=["json"])


def test_drain(start: Callable[..., Node], tmp_path: Path) -> None:
    """After SIGTERM sessions are told and go on; no new ones open; the node ends with the last of them."""
    import cellgate

    node = start("--drain", "60", "--tenant", "blue")
    wait_until(lambda: node.get("/readyz")[0] == 200, "ready", 60)
    told: list[Any] = []
    with node.client() as c, cellgate.Session(tmp_path, client=c) as s:
        assert s.run("x = 1").ok
        node.process.send_signal(signal.SIGTERM)
        wait_until(lambda: node.get("/readyz")[0] == 503, "not ready")
        assert node.get("/healthz")[0] == 200
        assert s.run("print(x)", on_event=told.append).ok
        assert any("being drained" in str(e) for e in told)
        with pytest.raises(cellgate.BusyError, match="drained"):
            cellgate.Session(tmp_path, client=c)
        with pytest.raises(cellgate.BusyError, match="drained"):
            node.client()
        assert 'draining{tenant="blue"} 1' in node.get("/metrics")[1]
        assert node.process.poll() is None
    assert node.process.wait(30) == 0
    assert not node.link.is_symlink()
    assert not Path(node.ready["node"]).exists()
    assert all(record["tenant"] == "blue" and record["time"] and record["level"] for record in node.records())


def test_drain_has_an_end(start: Callable[..., Node], tmp_path: Path) -> None:
    import cellgate

    node = start("--drain", "0.5")
    with node.client() as c, cellgate.Session(tmp_path, client=c) as s:
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(30) == 0
        with pytest.raises(cellgate.ClosedError):
            s.run("1").check()


def test_a_killed_node_leaves_nothing(start: Callable[..., Node], tmp_path: Path) -> None:
    """Its link is of use to the next one."""
    import cellgate

    node = start()
    c = node.client()
    s = cellgate.Session(tmp_path, client=c)
    assert s.run("1").ok
    below = descendants(node.process.pid)
    assert len(below) > 3
    node.process.kill()
    wait_until(lambda: not any(map(is_alive, below)), "all processes have ended")
    c.close()
    argv = [node.cellgate, "node", "--link", node.link]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout and p.stdout.readline()
        taken = subprocess.run(argv, capture_output=True, text=True)
        assert taken.returncode == 1 and "another node is there" in taken.stderr
        assert os.path.exists(node.link / "life.sock")
        p.send_signal(signal.SIGINT)
        assert p.wait(30) == 0


def test_http(start: Callable[..., Node]) -> None:
    node = start()
    assert node.get("/")[0] == node.get("/metrics/x")[0] == 404
    status = Path(f"/proc/{front(node)}/status").read_text()
    assert re.search(r"CapEff:\s*0+\n", status) and "NoNewPrivs:\t1" in status
    os.kill(front(node), signal.SIGKILL)
    wait_until(lambda: answers(node), "it is started again")


def test_the_process_that_reads_http_has_no_rights(start: Callable[..., Node]) -> None:
    assert "Seccomp:\t2" in Path(f"/proc/{front(start())}/status").read_text()


def answers(node: Node) -> bool:
    try:
        return node.get("/healthz")[0] == 200
    except OSError:
        return False


def front(node: Node) -> int:
    assert node.get("/healthz")[0] == 200  # it has started
    (pid,) = (p for p in descendants(node.process.pid) if Path(f"/proc/{p}/comm").read_text() == "cg-node-front\n")
    return pid


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--http", "0.0.0.0:0"], "--http-open"),
        (["--http", "example.org:1"], "address of this machine"),
        (["--slots", "0"], "--slots"),
        (["--link", "node"], "absolute path"),
        (["--tenant", 'a"b'], "--tenant"),
        (["--tier", "none"], "--tier"),
        (["x"], "unexpected argument"),
    ],
)
def test_wrong_options(prefix: Path, options: list[str], text: str) -> None:
    p = subprocess.run([prefix / "bin/cellgate", "node", *options], capture_output=True, text=True, timeout=60)
    assert p.returncode == 2 and text in p.stderr
