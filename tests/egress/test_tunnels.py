"""CONNECT and SOCKS: bytes both ways, ends, and what is no tunnel."""

import os
import resource
import socket
import threading

import pytest
from egress.harness import Egress, Peer, Server, read_all, read_head, status_of, until

ALLOW = {
    "allowedDomains": ["127.0.0.1", "[::1]"],
    "deniedDomains": ["*:22"],
    "deniedDomainReasons": {"*:22": "use https"},
}


def test_connect(egress: Egress, server: Server) -> None:
    box = egress.open(ALLOW)
    done = box.curl("-p", f"http://127.0.0.1:{server.port}/x")
    assert done.stdout.startswith("HELLO\nGET /x\n"), done
    assert egress.decision()["protocol"] == "connect"


def test_connect_has_srts_answer(egress: Egress, peer: Peer) -> None:
    s, head = egress.open(ALLOW).tunnel("127.0.0.1", peer.port)
    assert head == b"HTTP/1.1 200 Connection Established\r\n\r\n"
    s.close()


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
@pytest.mark.parametrize("user", ["", "any:thing@"])
def test_socks_with_curl(egress: Egress, server: Server, scheme: str, user: str) -> None:
    box = egress.open(ALLOW)
    done = box.curl("--proxy", f"{scheme}://{user}127.0.0.1:{box.port}", f"http://127.0.0.1:{server.port}/x")
    assert done.stdout.startswith("HELLO\nGET /x\n"), done
    assert egress.decision()["protocol"] == "socks"


def test_socks_address_types(egress: Egress) -> None:
    box = egress.open(ALLOW)
    six = socket.create_server(("::1", 0), family=socket.AF_INET6)
    port = six.getsockname()[1]
    s, code = box.socks(socket.inet_pton(socket.AF_INET6, "::1"), port, kind=4)
    assert code == 0
    s.close()
    s, code = box.socks(socket.inet_pton(socket.AF_INET6, "::2"), port, kind=4)
    assert code == 2
    s.close()
    s, code = box.socks(b"\x7f\0\0\2", port, kind=1)
    assert code == 2
    s.close()
    six.close()


@pytest.mark.parametrize("command", [2, 3, 0xF0])
def test_socks_connect_only(egress: Egress, peer: Peer, command: int) -> None:
    s, code = egress.open(ALLOW).socks(b"127.0.0.1", peer.port, command=command)
    assert code == 7
    assert read_all(s) == b""
    s.close()


def test_socks_methods(egress: Egress) -> None:
    box = egress.open(ALLOW)
    assert box.raw(b"\5\1\1") == b"\5\xff"
    assert box.raw(b"\5\0") == b"\5\xff"
    assert box.raw(b"\4\1\0\x50\x7f\0\0\1\0") == b"\0\x5b" + bytes(6)


def test_socks_byte_by_byte(egress: Egress, peer: Peer) -> None:
    box = egress.open(ALLOW)
    with box.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"\5\2\1\2":
            s.sendall(bytes([byte]))
        assert s.recv(2) == b"\5\2"
        for byte in b"\1\4user\4word":
            s.sendall(bytes([byte]))
        assert s.recv(2) == b"\1\0"
        for byte in b"\5\1\0\3\x09127.0.0.1" + peer.port.to_bytes(2, "big"):
            s.sendall(bytes([byte]))
        assert s.recv(10)[:2] == b"\5\0"


def test_ssh_is_told_why(egress: Egress) -> None:
    s, code = egress.open(ALLOW).socks(b"127.0.0.1", 22)
    assert code == 0
    said = read_all(s)
    assert said.startswith(b"SSH-2.0-") and b"use https" in said
    s.close()


def test_early_bytes_are_kept(egress: Egress, peer: Peer) -> None:
    box = egress.open(ALLOW)
    early = os.urandom(40000)
    with box.connect() as s:
        s.sendall(f"CONNECT 127.0.0.1:{peer.port} HTTP/1.1\r\n\r\n".encode() + early)
        far = peer.accept()
        got = b""
        while len(got) < len(early):
            got += far.recv(65536)
        assert got == early
        far.close()


def test_the_clients_half_close(egress: Egress, peer: Peer) -> None:
    s, _ = egress.open(ALLOW).tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    s.sendall(b"question")
    s.shutdown(socket.SHUT_WR)
    assert read_all(far) == b"question"
    far.sendall(b"answer")
    far.close()
    assert read_all(s) == b"answer"
    s.close()


def test_the_servers_half_close(egress: Egress, peer: Peer) -> None:
    s, _ = egress.open(ALLOW).tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    far.sendall(b"hello")
    far.shutdown(socket.SHUT_WR)
    assert read_all(s) == b"hello"
    s.sendall(b"still here")
    s.close()
    assert read_all(far) == b"still here"
    far.close()


def test_head_and_body_arrive_together(egress: Egress, peer: Peer) -> None:
    """A client that reads once gets what a server wrote in two pieces, as behind other proxies."""
    s, _ = egress.open(ALLOW).tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
    far.sendall(b"body")
    assert s.recv(4096).endswith(b"body")
    s.close()
    # A head that nothing follows is not kept.
    s, _ = egress.open(ALLOW, 2).tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    far.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert status_of(s.recv(4096)) == 204
    s.close()


def test_a_reset_is_a_reset(egress: Egress, peer: Peer) -> None:
    s, _ = egress.open(ALLOW).tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    far.close()
    with pytest.raises(ConnectionResetError):
        s.recv(1)
    s.close()


@pytest.mark.parametrize("slow", [False, True])
def test_many_bytes_both_ways(egress: Egress, peer: Peer, slow: bool) -> None:
    """More than any buffer holds, in both directions at once; the slow side gets all of it in order."""
    s, _ = egress.open(ALLOW).tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    data = os.urandom(1 << 20) * (2 if slow else 16)
    got: dict[str, bytes] = {}

    def receive(name: str, sock: socket.socket) -> None:
        parts = []
        while part := sock.recv(3000 if slow else 1 << 20):
            parts.append(part)
        got[name] = b"".join(parts)

    def send(sock: socket.socket) -> None:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    threads = [
        threading.Thread(target=receive, args=("far", far)),
        threading.Thread(target=receive, args=("near", s)),
        threading.Thread(target=send, args=(s,)),
        threading.Thread(target=send, args=(far,)),
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(50)
    assert got["far"] == data
    assert got["near"] == data
    s.close()
    far.close()


def test_a_client_that_does_not_read_stops_the_server(egress: Egress, peer: Peer) -> None:
    """Nothing grows in the proxy: the sender's writes block."""
    s, _ = egress.open(ALLOW).tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    far.settimeout(1)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 1 << 30:
            sent += far.send(b"x" * (1 << 20))
    assert sent < 100 << 20
    s.close()
    far.close()


def test_refused_tunnels(egress: Egress, peer: Peer) -> None:
    box = egress.open({**ALLOW, "refuseOpaqueTunnels": True})
    s, head = box.tunnel("127.0.0.1", peer.port)
    assert status_of(head) == 403 and b"X-Proxy-Error: blocked-by-sandbox-runtime" in head
    s.close()
    s, code = box.socks(b"127.0.0.1", peer.port)
    assert code == 1
    s.close()


def test_a_client_that_goes_while_it_waits(egress: Egress) -> None:
    """Its question is taken back."""
    box = egress.open({**ALLOW, "ask": True})
    with box.connect() as s:
        s.sendall(b"CONNECT ask.example.com:443 HTTP/1.1\r\n\r\n")
        request = egress.wait("egress_request")
    assert egress.wait("egress_cancel")["id"] == request["id"]


def test_idle_connections_end(egress: Egress, peer: Peer) -> None:
    box = egress.open({**ALLOW, "limits": {"idleMs": 200}})
    s, _ = box.tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    assert read_all(s) == b""
    assert read_all(far) == b""


def test_a_busy_connection_does_not_end(egress: Egress, peer: Peer) -> None:
    box = egress.open({**ALLOW, "limits": {"idleMs": 1000}})
    s, _ = box.tunnel("127.0.0.1", peer.port)
    far = peer.accept()
    stop = threading.Event()
    for _ in range(8):
        far.sendall(b"x")
        assert s.recv(1) == b"x"
        stop.wait(0.25)
    s.close()
    far.close()


@pytest.mark.parametrize("start", [b"", b"G", b"GET http://127.0.0.1/ HTTP/1.1\r\nX: ", b"\5", b"\5\1\0\5\1\0\3\x20"])
def test_slow_heads_end(egress: Egress, start: bytes) -> None:
    box = egress.open({**ALLOW, "limits": {"headMs": 200}})
    answer = box.raw(start)
    assert status_of(answer) == 400 if start[:1] == b"G" else answer in (b"", b"\5\0")


def test_a_slow_head_ends_however_steady_it_is(egress: Egress) -> None:
    box = egress.open({**ALLOW, "limits": {"headMs": 300}})
    stop = threading.Event()
    with box.connect() as s:
        s.sendall(b"GET http://127.0.0.1/ HTTP/1.1\r\n")
        with pytest.raises(OSError):
            for i in range(200):
                s.sendall(b"X-%d: y\r\n" % i)
                stop.wait(0.05)


def test_a_thousand_connections(egress: Egress, peer: Peer, sanitized: bool) -> None:
    count = 200 if sanitized else 1000
    if (hard := resource.getrlimit(resource.RLIMIT_NOFILE)[1]) != resource.RLIM_INFINITY and hard < 2 * count + 100:
        pytest.skip(f"both ends are the test's own: that are more than the {hard} open files it may have")
    box = egress.open(ALLOW)
    near, far = [], []
    for i in range(count):
        s, head = box.tunnel("127.0.0.1", peer.port)
        assert status_of(head) == 200, i
        near.append(s)
        far.append(peer.accept())
    for i, s in enumerate(near):
        s.sendall(b"%06d" % i)
    for i, s in enumerate(far):
        got = s.recv(6)
        assert got == b"%06d" % i
        s.sendall(got)
    for i, s in enumerate(near):
        assert s.recv(6) == b"%06d" % i
    for s in near + far:
        s.close()


def test_more_than_the_limit_wait(egress: Egress, peer: Peer) -> None:
    box = egress.open({**ALLOW, "limits": {"connections": 2}})
    first, _ = box.tunnel("127.0.0.1", peer.port)
    second, _ = box.tunnel("127.0.0.1", peer.port)
    third = box.connect()
    third.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % peer.port)
    third.settimeout(0.3)
    with pytest.raises(TimeoutError):
        third.recv(1)
    first.close()
    peer.accept().close()
    third.settimeout(box.timeout)
    assert status_of(read_head(third)) == 200
    for s in (second, third):
        s.close()


def test_nothing_stays_open(egress: Egress, server: Server) -> None:
    """Descriptors of both processes are back where they were."""

    def count() -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in egress.pids()]

    if os.geteuid() != 0:
        pytest.skip("the processes are not dumpable: only root sees their descriptors")
    box = egress.open(ALLOW)
    assert box.curl(f"http://127.0.0.1:{server.port}/x").returncode == 0
    before = count()
    for _ in range(10):
        box.curl(f"http://127.0.0.1:{server.port}/size/1000000")
        box.tunnel("127.0.0.1", server.port)[0].close()
        box.raw(b"GET http://denied.example.com/ HTTP/1.1\r\n\r\n")
    until(lambda: count() <= before, box.timeout, f"more descriptors than {before}: {count()}")
