"""`cellgate node`: slots, refusals, its end in order, figures over HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from processes import alive, descendants, name_of
from relay.conftest import wait_until
from relay.test_links import whole_session

if TYPE_CHECKING:
    import cellgate

NO_USERS = Path(__file__).parents[1] / "sandbox_command/no_users.py"

pytestmark = pytest.mark.usefixtures("package")


class Node:
    def __init__(self, prefix: Path, tmp: Path, *options: str, by: Sequence[str] = ()) -> None:
        self.link = tmp / "node"
        self.log = tmp / "log"
        self.cellgate = prefix / "bin/cellgate"
        argv = [*by, self.cellgate, "node", "--link", self.link, "--http", "127.0.0.1:0", *options]
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

    def make(*options: str, by: Sequence[str] = ()) -> Node:
        folder = tmp_path / f"n{len(nodes)}"
        folder.mkdir()
        nodes.append(Node(prefix, folder, *options, by=by))
        return nodes[-1]

    yield make
    for node in nodes:
        node.process.send_signal(signal.SIGINT)
        node.process.wait(60)


@pytest.fixture(scope="module")
def steady(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node of tests that leave it as it is."""
    node = Node(prefix, tmp_path_factory.mktemp("steady"))
    yield node
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
    # One session, and a connection three times, which is tried again once beside the other node.
    assert (figures["slots"], figures["sessions_started_total"]) == (2, 3)
    assert figures["sessions_refused_total"] >= 1 + 3 + 1
    assert 0 < figures["session_start_seconds0.5"] <= figures["session_start_seconds0.99"] < 30
    assert figures["memory_bytes"] > 10 << 20


def test_what_a_client_of_a_node_cannot_do(steady: Node, tmp_path: Path) -> None:
    """Neither end the node, nor find others' sessions, nor run anything without a sandbox: refused by the node itself."""
    import cellgate

    with cellgate.Client(address=steady.ready["node"]) as other, steady.client() as c:
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


@pytest.mark.skipif(os.geteuid() != 0, reason="listens as another user, which only root may do")
@pytest.mark.parametrize("name", ["host.sock", "link-a.sock"])
def test_a_folder_of_another_user(steady: Node, name: str) -> None:
    """Its life.sock leads to the real node; what else is there is not given a token, code or streams."""
    import cellgate

    folder = Path(tempfile.mkdtemp(prefix="cg-"))
    (folder / "life.sock").symlink_to(f"{steady.ready['node']}/life.sock")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / name))
        os.seteuid(65534)
        other.listen()
        os.seteuid(0)
        connect = ["env", f"CELLGATE_NODE={folder}", str(steady.cellgate), "relay"]

        def say(first: dict[str, object]) -> bytes:
            line = f"cellgate-relay {json.dumps(first)}\n".encode()
            return subprocess.run(connect, input=line, stdout=subprocess.PIPE, check=True, timeout=60).stdout

        if name == "host.sock":
            for options in ({"connect": connect}, {"address": folder}):
                with pytest.raises(cellgate.CellgateError, match="another user"):
                    cellgate.Client(timeout=10, **options)  # type: ignore[arg-type]
        else:
            versions = json.loads(say({}).removeprefix(b"cellgate-relay "))
            resume = {"resume": {"link": "a", "token": "0" * 32}, "received": 0, "attempt": 1}
            assert say(versions | resume) == b"", "the host tries again"
        other.setblocking(False)
        with other.accept()[0] as got:
            assert got.recv(1000) == b""
    shutil.rmtree(folder)


def test_tools_of_a_session_stay_at_the_host(start: Callable[..., Node], tmp_path: Path) -> None:
    """Functions and MCP servers of a client, on a node and its spares: everything is done once."""
    with start("--spares", "1").client() as c:
        whole_session(c, tmp_path)


def test_no_session_has_more_than_the_node(start: Callable[..., Node], tmp_path: Path) -> None:
    import cellgate

    node = start("--memory", "512", "--slots", "1")
    with node.client() as c:
        settings = {
            "network": {"allowedDomains": [], "deniedDomains": []},
            "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
            "cellgate": {"limits": {"memoryMb": 513}},
        }
        for options in ({"memory_bytes": (512 << 20) + 1}, {"settings": settings}):
            with pytest.raises(cellgate.LimitExceededError, match="513 MiB is over the 512 MiB"):
                cellgate.Session(tmp_path, client=c, **options)
        with pytest.raises(cellgate.LimitExceededError, match="4097 processes is over the 4096"):
            cellgate.Session(tmp_path, client=c, processes=4097)
        with cellgate.Session(tmp_path, client=c, memory_bytes=512 << 20, processes=4096) as s:
            assert s.run("1").ok


def test_memory_limits_of_all_sessions(start: Callable[..., Node], tmp_path: Path) -> None:
    """--memory bounds their sum, without spares; without it each is bounded alone."""
    import cellgate

    full, free = start("--memory", "768", "--slots", "3", "--spares", "1"), start("--slots", "3")
    options = {"workspace": tmp_path, "memory_bytes": 512 << 20}
    with full.client() as c, free.client() as other:
        with cellgate.Session(client=c, **options) as s:
            assert s.run("1").ok
            wait_until(lambda: full.figures()["spares"] == 1, "a spare has the same limit")
            with pytest.raises(cellgate.BusyError, match="512 MiB does not fit: of the node's 768 MiB, .* 512 MiB"):
                cellgate.Session(client=c, **options)
            with cellgate.Session(tmp_path, client=c) as rest:  # of the default limit
                assert rest.run("1").ok
                with pytest.raises(cellgate.BusyError, match="memory limits of 768 MiB, of 768 MiB for all"):
                    full.client()
                both = cellgate.Client(connect=[full.connect, free.connect])
                with both, cellgate.Session(client=both, **options) as elsewhere:
                    assert elsewhere.run("1").ok

            def ended() -> bool:
                figures = full.figures()  # old ones may be those of the beginning
                return figures["sessions_refused_total"] >= 2 and figures["memory_limits_bytes"] == 512 << 20

            wait_until(ended, "the other has ended")
        with cellgate.Session(client=c, **options) as s:
            assert s.run("1").ok
        with cellgate.Session(tmp_path, client=other):
            wait_until(lambda: free.figures()["memory_limits_bytes"] > 0, "a third of what there is")
            most = {**options, "memory_bytes": int(free.figures()["memory_limits_bytes"]) * 2}
            with cellgate.Session(client=other, **most), cellgate.Session(client=other, **most) as s:
                assert s.run("1").ok


def test_what_connects_and_says_nothing(start: Callable[..., Node], tmp_path: Path) -> None:
    """Clients that never say HELLO neither keep others out nor stay for ever."""
    import cellgate

    node = start("--slots", "1")
    mark = b"cellgate-relay "
    with ExitStack() as stack:

        def say(first: dict[str, object]) -> dict[str, object]:
            pipe = subprocess.PIPE
            p = stack.enter_context(subprocess.Popen(node.connect, stdin=pipe, stdout=pipe))
            assert p.stdin and p.stdout
            p.stdin.write(mark + json.dumps(first).encode() + b"\n")
            p.stdin.flush()
            answer: dict[str, object] = json.loads(p.stdout.readline().removeprefix(mark))
            return answer

        versions = say({})
        assert "error" in versions
        for _ in range(70):
            assert "resume" in say({**versions, "detach_ms": 3600000})
        keepers = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and is_keeper(p, node)]
        assert len(keepers) > 60
        with node.client() as c, cellgate.Session(tmp_path, client=c) as s:
            assert s.run("1").ok
    # Without the node they do not wait for their clients as long as these want.
    node.process.send_signal(signal.SIGINT)
    assert node.process.wait(30) == 0
    wait_until(lambda: not any(map(alive, keepers)), "they end", 40)


def is_keeper(process: Path, node: Node) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return b"keep" in words and f"CELLGATE_NODE={node.link}".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def test_environments_are_the_nodes(steady: Node) -> None:
    import cellgate

    with pytest.raises(cellgate.UnsupportedError, match="those of `cellgate node`"):
        cellgate.Client(connect=steady.connect, preload=["json"])


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
        wait_until(lambda: 'draining{tenant="blue"} 1' in node.get("/metrics")[1], "draining")
        assert node.process.poll() is None
    assert node.process.wait(30) == 0
    assert not node.link.is_symlink()
    assert not Path(node.ready["node"]).exists()
    assert all(record["tenant"] == "blue" and record["time"] and record["level"] for record in node.records())


def test_drain_without_an_end(start: Callable[..., Node], tmp_path: Path) -> None:
    """0 is no limit, as everywhere; a second SIGTERM ends the node at once."""
    import cellgate

    node = start("--drain", "0")
    with node.client() as c, cellgate.Session(tmp_path, client=c) as s:
        node.process.send_signal(signal.SIGTERM)
        wait_until(lambda: node.figures()["draining"] == 1, "draining")
        told: list[Any] = []
        assert s.run("1", on_event=told.append).ok
        assert any("being drained: open another" in str(e) for e in told)
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(30) == 0
        with pytest.raises(cellgate.ClosedError):
            s.run("1").check()


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
    wait_until(lambda: not any(map(alive, below)), "all processes have ended")
    c.close()
    argv = [node.cellgate, "node", "--link", node.link]
    # One of the same number was killed before its link had its name.
    dies = 'ln -s nowhere "$4.$$"; exec "$@"'
    with subprocess.Popen(["sh", "-c", dies, *argv[:1], *argv], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout and p.stdout.readline()
        assert not [*node.link.parent.glob("node.*")]
        taken = subprocess.run(argv, capture_output=True, text=True)
        assert taken.returncode == 1 and "another node is there" in taken.stderr
        assert os.path.exists(node.link / "life.sock")
        p.send_signal(signal.SIGINT)
        assert p.wait(30) == 0


def test_http(steady: Node) -> None:
    assert steady.get("/")[0] == steady.get("/metrics/x")[0] == 404
    status = Path(f"/proc/{front(steady)}/status").read_text()
    assert re.search(r"CapEff:\s*0+\n", status) and "NoNewPrivs:\t1" in status
    os.kill(front(steady), signal.SIGKILL)
    wait_until(lambda: answers(steady), "it is started again")


def test_figures(start: Callable[..., Node], tmp_path: Path) -> None:
    """Each is that of what is there."""
    import cellgate

    node = start("--slots", "3", "--spares", "2")
    began = node.figures()
    assert (began["slots"], began["sessions"], began["spares"], began["questions_waiting"]) == (3, 0, 0, 0)
    asked: list[dict[str, float]] = []

    def approve(_: object) -> bool:
        wait_until(lambda: node.figures()["questions_waiting"] == 1, "the question is counted")
        asked.append(node.figures())
        return True

    with node.client() as c, cellgate.Session(tmp_path, client=c, exec="ask") as s:
        s.run("held = bytearray(100 << 20)").check()
        s.run("import subprocess\nsubprocess.run(['true'], check=True)", approve=approve, timeout=60).check()
        # Figures may be some time old.
        wait_until(lambda: node.figures()["questions_waiting"] == 0, "the question has ended")
        wait_until(lambda: node.figures()["spares"] == 2, "the spares are counted")
        now = node.figures()
        assert now["sessions"] == 1 and asked
        assert now["memory_bytes"] > began["memory_bytes"] + (100 << 20)
    wait_until(lambda: node.figures()["sessions"] == 0, "the session's end is counted")


HOLD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opening a FIFO waits for its other end, which the test has. */
static void hold(const char *path)
{
        int fd;

        if (!strstr(path, "/smaps_rollup") || (fd = open(getenv("BEGUN"), O_WRONLY | O_CLOEXEC)) < 0)
                return;
        close(fd);
        close(open(getenv("GO"), O_RDONLY | O_CLOEXEC));
}

#define REPLACE(name) \
        int name(const char *path, int flags, ...) \
        { \
                int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, #name), mode; \
                va_list more; \
                va_start(more, flags); \
                mode = va_arg(more, int); \
                va_end(more); \
                hold(path); \
                return next(path, flags, mode); \
        }
REPLACE(open)
REPLACE(open64)
"""


def test_sessions_do_not_wait_for_figures(
    start: Callable[..., Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of many processes takes time to count."""
    import cellgate

    library, begun, go = (tmp_path / name for name in ("hold.so", "begun", "go"))
    cc = ["cc", "-shared", "-fPIC", "-o", library, "-xc", "-"]
    subprocess.run(cc, input=HOLD, text=True, check=True)
    monkeypatch.setenv("BEGUN", str(begun))
    monkeypatch.setenv("GO", str(go))
    sanitizer = f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"
    node = start(by=["env", f"LD_PRELOAD={library}", f"ASAN_OPTIONS={sanitizer}"])
    with node.client() as c, cellgate.Session(tmp_path, client=c) as s, ThreadPoolExecutor(2) as pool:
        s.run("1").check()
        for fifo in (begun, go):
            os.mkfifo(fifo)
        # Figures are new only some time after the last.
        scraped = pool.submit(wait_until, lambda: node.figures() and not begun.exists(), "the memory is counted")
        with begun.open("rb"):
            begun.unlink()
        ran = pool.submit(s.run, "6 * 7")
        try:
            assert ran.result(30).value == "42"
        finally:
            go.open("wb").close()
        scraped.result()
        assert node.figures()["memory_bytes"] > 10 << 20


@pytest.mark.parametrize("tier", ["full", "landlock", "auto"])
def test_a_service_is_ready(start: Callable[..., Node], tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    node = start("--tier", tier)
    wait_until(lambda: node.get("/readyz")[0] == 200, "ready", 60)


def test_a_machine_without_sandboxes_is_not_ready(start: Callable[..., Node]) -> None:
    node = start("--tier", "full", by=[sys.executable, str(NO_USERS)])
    wait_until(lambda: any("not ready" in record["text"] for record in node.records()), "the log", 60)
    assert node.get("/readyz")[0] == 503 and node.get("/healthz")[0] == 200


def test_the_process_that_reads_http_has_no_rights(steady: Node) -> None:
    """Nor the log, in which it could forge records. What its filter denies: tests/unit/test-egress-lock.c."""
    pid = front(steady)
    assert "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()
    held = []
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # the connection of our own request
                held.append(os.readlink(fd))
        held.sort()
    except PermissionError:
        pytest.skip("only root sees the descriptors of such a process")
    assert held[:3] == ["/dev/null"] * 3 and not any(f.startswith(("/", "pipe:")) for f in held[3:])


def test_http_clients_that_send_nothing(steady: Node) -> None:
    """Nor all of a request: they do not keep the next one out."""
    host, port = steady.ready["http"].split(":")
    with ExitStack() as stack:
        for _ in range(200):
            c = stack.enter_context(socket.create_connection((host, int(port))))
            c.sendall(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        assert steady.get("/healthz")[0] == 200
        assert time.monotonic() - began < 3


def test_lines_of_any_bytes_are_in_the_log(start: Callable[..., Node]) -> None:
    node = start()
    links = [os.readlink(fd) for fd in Path(f"/proc/{node.process.pid}/fd").iterdir()]
    (log,) = (fd for fd in Path(f"/proc/{node.process.pid}/fd").iterdir() if is_written(fd, links))
    with log.open("wb") as f:
        f.write(b"one \xff\x1b[2J\n2026-01-01T00:00:00.000Z warn zygote: two \xc3\x00\n" + b"x" * 20000 + b"\n")
    wait_until(lambda: len(node.records()) >= 3, "the records")
    one, two, *rest = node.records()
    assert (one["from"], one["text"]) == ("node", r"one \xff\x1b[2J")
    assert (two["from"], two["level"], two["text"]) == ("zygote", "warn", r"two \xc3\x00")
    assert rest[0]["text"].startswith("xxx")


def is_written(fd: Path, links: list[str]) -> bool:
    """A pipe of which the process has both ends: this is the one for writing."""
    link = os.readlink(fd)
    flags = int((fd.parents[1] / "fdinfo" / fd.name).read_text().split()[3], 8)
    return link.startswith("pipe:") and links.count(link) == 2 and flags & os.O_ACCMODE == os.O_WRONLY


def answers(node: Node) -> bool:
    try:
        return node.get("/healthz")[0] == 200
    except OSError:
        return False


def front(node: Node) -> int:
    assert node.get("/healthz")[0] == 200  # it has started
    (pid,) = (p for p in descendants(node.process.pid) if name_of(p) == "cg-node-front")
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
