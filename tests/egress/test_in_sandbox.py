"""The proxy as `cellgate sandbox` starts it: real programs inside, and nothing left whichever process is killed."""

import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from egress.harness import Peer, Server, read_all, until
from processes import alive

Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder that is not below /tmp, which is private inside."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(work: Path, cellgate: Path) -> Iterator[Run]:
    started = []

    def run(command: str, **network: object) -> "subprocess.Popen[str]":
        settings = {
            "network": {"allowedDomains": [], "deniedDomains": [], **network},
            "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
        }
        file = work / "settings.json"
        file.write_text(json.dumps(settings))
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        argv = [cellgate, "sandbox", "--settings", file, "-c", command]
        proc = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=work, env=env)
        started.append(proc)
        return proc

    yield run
    for proc in started:
        with contextlib.suppress(ProcessLookupError):
            proc.kill()
        proc.wait()


def output(proc: "subprocess.Popen[str]", slowness: float) -> str:
    return proc.communicate(timeout=30 * slowness)[0]


def tree(pid: int) -> dict[str, int]:
    """All processes below one, by what they call themselves; of equal names the first."""
    found: dict[str, int] = {}
    waiting = [pid]
    while waiting:
        p = waiting.pop(0)
        with contextlib.suppress(OSError):
            found.setdefault(Path(f"/proc/{p}/comm").read_text().strip(), p)
            waiting += map(int, Path(f"/proc/{p}/task/{p}/children").read_text().split())
    return found


def test_curl_and_its_variables(start: Run, server: Server, slowness: float) -> None:
    url = f"http://127.0.0.1:{server.port}/x"
    ways = [
        f"curl -sS --noproxy '' {url}",
        f"curl -sS --noproxy '' -p {url}",
        f'curl -sS --noproxy "" --proxy "$FTP_PROXY" {url}',
        f'curl -sS --noproxy "" --proxy "$ALL_PROXY" {url}',
        f'curl -sS --noproxy "" --socks5-hostname "$RSYNC_PROXY" {url}',
    ]
    said = output(start("; ".join(ways), allowedDomains=["127.0.0.1"]), slowness)
    assert said.count("HELLO") == len(ways), said
    said = output(start("; ".join(ways), allowedDomains=["127.0.0.2"]), slowness)
    assert "HELLO" not in said and "Connection blocked by network allowlist" in said


def test_no_connection_no_process(start: Run, slowness: float) -> None:
    proc = start("echo up; read line", allowedDomains=["127.0.0.1"])
    assert proc.stdout and proc.stdout.readline() == "up\n"
    assert "cg-egress" not in tree(proc.pid)
    assert output(proc, slowness) == ""


def test_ssh_through_the_proxy(start: Run, peer: Peer, slowness: float) -> None:
    """git's ssh connects to its server, by a command that needs no other program, or gets the reason."""
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh")
    if os.getuid() not in {u.pw_uid for u in pwd.getpwall()}:
        pytest.skip("ssh does not run for a user without a name")
    command = f"eval $GIT_SSH_COMMAND -o BatchMode=yes -p {peer.port} git@127.0.0.1 true"
    proc = start(command, allowedDomains=["127.0.0.1"])
    far = peer.accept()
    assert far.recv(100).startswith(b"SSH-2.0-OpenSSH")
    far.close()
    output(proc, slowness)
    denied = {"deniedDomains": ["127.0.0.1"], "deniedDomainReasons": {"127.0.0.1": "use https"}}
    assert f"127.0.0.1:{peer.port}: use https (403)" in output(start(command, **denied), slowness)


CLIENT = """
python3 - <<'PY'
import socket
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n")
s.recv(100)
print("connected", flush=True)
try:
    print("ended", s.recv(1), flush=True)
except OSError as e:
    print("ended", e, flush=True)
for _ in range(1000):
    try:
        socket.create_connection(("127.0.0.1", 3128)).close()
    except OSError as e:
        print(type(e).__name__, flush=True)
        break
PY
"""


@pytest.mark.parametrize("victim", ["cellgate", "cg-init", "cg-egress", "cg-relay"])
def test_killed(start: Run, peer: Peer, slowness: float, victim: str) -> None:
    """An open connection ends, and no process remains. Without its proxy a command continues without a network."""
    proc = start(CLIENT % peer.port, allowedDomains=["127.0.0.1"])
    far = peer.accept()
    assert proc.stdout and proc.stdout.readline() == "connected\n", proc.communicate()
    pids = tree(proc.pid)
    assert {"cellgate", "cg-init", "cg-egress", "cg-relay"} <= set(pids), pids
    os.kill(pids[victim], signal.SIGKILL)
    assert read_all(far) == b""
    said = output(proc, slowness)
    if victim in ("cg-egress", "cg-relay"):
        assert "ended" in said and re.search("Connection(Refused|Reset)Error", said), said
        assert proc.returncode == 0
    until(lambda: not any(alive(p) for p in pids.values()), 10 * slowness, f"still there: {pids}")


def test_the_network_is_not_the_hosts(start: Run, slowness: float) -> None:
    """A port of the host's that nothing listens at inside."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = f"curl -sS -m 5 --noproxy '*' http://127.0.0.1:{port}/"
        assert "curl: (7)" in output(start(command, allowedDomains=["127.0.0.1"]), slowness)
