"""How it ends, what it may do, and what becomes of it when one of its processes is killed."""

import os
import signal
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from egress.harness import Egress, Peer, as_policy, read_all, status_of, until
from processes import alive

ALLOW = {"allowedDomains": ["127.0.0.1"]}


def gone(pids: list[int]) -> bool:
    return not any(map(alive, pids))


def test_the_host_goes(program: Path, slowness: float, peer: Peer) -> None:
    """No control channel: nothing is decided any more, everything ends."""
    egress = Egress(program, slowness)
    box = egress.open(ALLOW)
    tunnel, _ = box.tunnel("127.0.0.1", peer.port)
    waiting = box.connect()
    pids = egress.pids()
    egress.control.close()
    assert egress.proc.wait(egress.timeout) == 0
    until(lambda: gone(pids), egress.timeout, "the relay has not ended")
    assert read_all(tunnel) == b""
    assert read_all(waiting) == b""
    with pytest.raises(ConnectionRefusedError):
        box.connect()


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_one_of_its_processes_is_killed(program: Path, slowness: float, peer: Peer, victim: int) -> None:
    egress = Egress(program, slowness)
    box = egress.open(ALLOW)
    tunnel, _ = box.tunnel("127.0.0.1", peer.port)
    pids = egress.pids()
    os.kill(pids[victim], signal.SIGKILL)
    assert egress.proc.wait(egress.timeout) != 0
    until(lambda: gone(pids), egress.timeout, "the other process has not ended")
    while egress.receive() is not None:
        pass
    assert read_all(tunnel) == b""
    with pytest.raises(ConnectionRefusedError):
        box.connect()


def test_the_host_does_not_read(egress: Egress) -> None:
    """While the host does not read, nothing is decided and no buffer grows; afterwards all requests continue."""
    box = egress.open({})
    egress.control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    answered = 0
    for _ in range(3000):
        s = box.connect()
        s.settimeout(1)
        s.sendall(b"CONNECT a.example.com:443 HTTP/1.1\r\n\r\n")
        try:
            assert status_of(s.recv(100)) == 403
            answered += 1
        except TimeoutError:
            break
    assert answered < 3000
    s.settimeout(egress.timeout)
    for _ in range(answered):
        assert not egress.decision()["allowed"]
    assert status_of(s.recv(100)) == 403


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">I", 4) + b"[1]\n",
        struct.pack(">I", 5) + b'{"a"\n',
        struct.pack(">I", 15) + b'{"type":"bad"}\n',
    ],
)
def test_a_channel_that_makes_no_sense(program: Path, slowness: float, data: bytes) -> None:
    egress = Egress(program, slowness)
    egress.open(ALLOW)
    egress.control.sendall(data)
    assert egress.wait("error")["message"]
    assert egress.proc.wait(egress.timeout) == 1


def test_a_listener_that_was_not_sent(program: Path, slowness: float) -> None:
    egress = Egress(program, slowness)
    egress.send({"type": "open", "sandbox": 1, "listeners": 1, "policy": as_policy(ALLOW)})
    assert "descriptors" in egress.wait("error")["message"]
    assert egress.proc.wait(egress.timeout) == 1


def status(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def test_rights(egress: Egress, sanitized: bool) -> None:
    assert egress.ready["layers"].split()[:2] == ["capabilities", "no_new_privs"]
    for pid in egress.pids():
        s = status(pid)
        assert s["NoNewPrivs"] == "1"
        assert {s[f"Cap{c}"] for c in ("Eff", "Prm", "Inh", "Amb")} == {"0000000000000000"}
        if not sanitized:
            assert s["Seccomp"] == "2"
    if not sanitized:
        assert egress.ready["layers"] == "capabilities no_new_privs landlock seccomp"


def test_the_log_is_silent(program: Path, slowness: float) -> None:
    """Nothing that a sandbox sends gets there."""
    ours, theirs = socket.socketpair()
    proc = subprocess.Popen(
        ["bash", "-c", f'exec 3<&{theirs.fileno()}; exec "$0"', str(program)],
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
    )
    theirs.close()
    ours.recv(1000)
    ours.close()
    assert proc.communicate(timeout=10 * slowness)[1] == b""


def test_by_hand(program: Path) -> None:
    done = subprocess.run([program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "started by cellgate" in done.stderr
    done = subprocess.run([program, "-x"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "usage" in done.stderr


def test_connect_helper(egress: Egress, program: Path, peer: Peer) -> None:
    """Standard input and output through the proxy: ssh's ProxyCommand."""
    box = egress.open({**ALLOW, "deniedDomains": ["*:22"], "deniedDomainReasons": {"*:22": "use https"}})
    argv = [program, "--connect", f"127.0.0.1:{box.port}", "127.0.0.1"]
    proc = subprocess.Popen([*argv, str(peer.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    far = peer.accept()
    assert proc.stdin and proc.stdout
    proc.stdin.write(b"question")
    proc.stdin.close()
    assert read_all(far) == b"question"
    far.sendall(b"answer")
    far.close()
    assert proc.stdout.read() == b"answer"
    assert proc.wait(box.timeout) == 0
    done = subprocess.run([*argv, "22"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=box.timeout)
    assert done.returncode == 1 and "127.0.0.1:22: use https (403)" in done.stderr
