"""Masked credentials: masked values are replaced in requests to the hosts that may have them, and nowhere else."""

import contextlib
import gzip
import http.client
import os
import socket
import struct
from pathlib import Path

import pytest
from egress.harness import Box, Egress, Peer, Server, as_policy, read_all, read_head

LONG = (b"fake_value_0b0e3c5a-long-as-the-real-one", b"REAL_value_0123456789-long-as-the-real-1")
SHORT = (b"fake_value_5a1d7f00-8a9b-4c3d-9e8f-112233445566", b"s3cret")
OTHER = (b"fake_value_77777777-8a9b-4c3d-9e8f-112233445566", b"REAL-of-the-other-host")
LINES = (b"fake_value_99999999-8a9b-4c3d-9e8f-112233445566", b"two\r\nX-Evil: lines")

POLICY = {
    "allowedDomains": ["127.0.0.1", "localhost"],
    "inject": [{}, {"hosts": ["127.0.0.1"], "resized": True}, {"hosts": ["localhost"]}, {"resized": True}],
}
SECRETS = [(0, *LONG), (1, *SHORT), (2, *OTHER), (3, *LINES)]
SAME = {"allowedDomains": ["127.0.0.1"], "inject": [{}]}


@pytest.fixture
def box(egress: Egress) -> Box:
    return egress.open(POLICY, secrets=SECRETS)


def request(box: Box, peer: Peer, head: bytes, body: bytes = b"", host: str = "127.0.0.1") -> tuple[bytes, bytes]:
    """Return the request that the server receives, and the client's answer."""
    target = f"http://{host}:{peer.port}/".encode()
    with box.connect() as s:
        s.sendall(head.replace(b"URL", target, 1))
        with contextlib.suppress(OSError):
            s.sendall(body)
        with peer.accept() as up:
            got = read_head(up)
            rest = b""
            length = [int(f.split(b":")[1]) for f in got.split(b"\r\n") if f.lower().startswith(b"content-length:")]
            while length and len(rest) < length[0]:
                rest += up.recv(65536)
            while b"Transfer-Encoding: chunked" in got and not rest.endswith(b"0\r\n\r\n"):
                rest += up.recv(65536)
            up.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            up.shutdown(socket.SHUT_WR)
            answer = read_head(s) + s.recv(2)
    return got + rest, answer


def unchunk(data: bytes) -> bytes:
    body = b""
    while True:
        size, data = data.split(b"\r\n", 1)
        n = int(size, 16)
        if n == 0:
            return body
        body += data[:n]
        data = data[n + 2 :]


def test_fields(box: Box, peer: Peer) -> None:
    head = b"GET URL HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nX-Two: %s,%s;\r\n\r\n"
    got, answer = request(box, peer, head % (LONG[0], SHORT[0], LONG[0]))
    assert b"Authorization: Bearer " + LONG[1] + b"\r\n" in got
    assert b"X-Two: s3cret," + LONG[1] + b";\r\n" in got
    assert b"fake_value" not in got
    assert answer.endswith(b"ok")


def test_each_host_gets_its_own(box: Box, peer: Peer) -> None:
    head = b"GET URL HTTP/1.1\r\nHost: x\r\nX-A: %s\r\nX-B: %s\r\nX-C: %s\r\n\r\n" % (LONG[0], SHORT[0], OTHER[0])
    got, _ = request(box, peer, head)
    assert (LONG[1] in got, SHORT[1] in got, OTHER[1] in got) == (True, True, False)
    assert OTHER[0] in got
    got, _ = request(box, peer, head, host="localhost")
    assert (LONG[1] in got, SHORT[1] in got, OTHER[1] in got) == (True, False, True)
    assert SHORT[0] in got


def test_the_request_line_and_names_of_fields_stay(box: Box, peer: Peer) -> None:
    fields = b"Host: x\r\n%s: 1\r\nX-%s-Y: %s:%s\r\n%s:\r\n" % (LONG[0], LONG[0], LONG[0], SHORT[0], SHORT[0])
    got, _ = request(box, peer, b"GET URLx?k=%s HTTP/1.1\r\n%s\r\n" % (LONG[0], fields))
    assert got.startswith(b"GET /x?k=" + LONG[0] + b" HTTP/1.1\r\n")
    for line in (b"%s: 1" % LONG[0], b"X-%s-Y: %s:s3cret" % LONG, b"%s: " % SHORT[0]):
        assert b"\r\n%s\r\n" % line in got, got


@pytest.mark.parametrize(("method", "put_in"), [("TRACE", 0), ("trace", 0), ("TRACK", 0), ("TRACES", 2), ("OPTIONS", 2)])
def test_a_request_that_the_server_echoes(box: Box, peer: Peer, method: str, put_in: int) -> None:
    head = b"%s URL HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nMax-Forwards: 0\r\nContent-Length: %d\r\n\r\n"
    got, _ = request(box, peer, head % (method.encode(), LONG[0], len(LONG[0])), LONG[0])
    assert (got.count(LONG[1]), got.count(LONG[0])) == (put_in, 2 - put_in), got


def test_a_value_of_several_lines_makes_no_field(box: Box, peer: Peer) -> None:
    """It is put into a body as it is; into a field, where it would start another one, not at all."""
    got, _ = request(box, peer, b"GET URL HTTP/1.1\r\nHost: x\r\nX-A: %s\r\n\r\n" % LINES[0])
    assert b"X-A: " + LINES[0] + b"\r\n" in got
    assert b"X-Evil" not in got
    body = b"<%s>" % LINES[0]
    got, _ = request(box, peer, b"POST URL HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    assert unchunk(got.split(b"\r\n\r\n", 1)[1]) == b"<" + LINES[1] + b">"


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies(box: Box, peer: Peer, chunked: bool) -> None:
    """Also at the edges of reads; text that only begins like a masked value is sent on unchanged."""
    text = b"x" * 65530 + LONG[0] + b"fake_value_" + b"y" * 70_000 + SHORT[0] * 3 + b"z" + OTHER[0] + LONG[0][:-1]
    wanted = text.replace(LONG[0], LONG[1]).replace(SHORT[0], SHORT[1])
    if chunked:
        head = b"POST URL HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = b"".join(b"%x\r\n%s\r\n" % (len(text[i : i + 7]), text[i : i + 7]) for i in range(0, len(text), 7))
        body += b"0\r\n\r\n"
    else:
        head, body = b"POST URL HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(text), text
    got, answer = request(box, peer, head, body)
    head, rest = got.split(b"\r\n\r\n", 1)
    assert b"Content-Length" not in head
    assert unchunk(rest) == wanted
    assert answer.endswith(b"ok")


def test_a_body_of_the_same_length_keeps_it(egress: Egress, peer: Peer) -> None:
    """And one that ends in the middle of what might have become one does not wait for more."""
    box = egress.open(SAME, secrets=[(0, *LONG)])
    body = b"a=" + LONG[0] + b"&b=" + LONG[0][:20]
    got, _ = request(box, peer, b"POST URL HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    assert b"Content-Length: %d\r\n" % len(body) in got
    assert got.endswith(b"\r\n\r\na=" + LONG[1] + b"&b=" + LONG[0][:20])


def test_a_large_body_and_response(egress: Egress, server: Server, tmp_path: Path) -> None:
    box = egress.open(SAME, secrets=[(0, *LONG)])
    file = tmp_path / "body"
    file.write_bytes(os.urandom(5_000_000))
    done = box.curl("--data-binary", f"@{file}", f"http://127.0.0.1:{server.port}/x")
    assert "BODY=5000000" in done.stdout, done
    done = box.curl("-o", str(tmp_path / "out"), f"http://127.0.0.1:{server.port}/size/5000000")
    assert (tmp_path / "out").stat().st_size == 5_000_000, done


def test_a_compressed_body_is_left_alone(box: Box, peer: Peer) -> None:
    body = gzip.compress(LONG[0])
    head = b"POST URL HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    got, _ = request(box, peer, head, body)
    assert gzip.decompress(unchunk(got.split(b"\r\n\r\n", 1)[1])) == LONG[0]


def test_a_head_in_pieces(box: Box, peer: Peer) -> None:
    head = b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\nX-A: %s\r\n\r\n" % (peer.port, LONG[0])
    with box.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(head)):
            s.sendall(head[i : i + 1])
        with peer.accept() as up:
            assert b"X-A: " + LONG[1] + b"\r\n" in read_head(up)


def test_every_request_of_a_connection(box: Box, server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=box.timeout)
    connection.connect()
    first = connection.sock
    for i in range(3):
        url = f"http://127.0.0.1:{server.port}/{i}"
        connection.request("POST", url, body=b"x" * i, headers={"X-Tok": LONG[0].decode()})
        text = connection.getresponse().read()
        assert b"X-Tok: " + LONG[1] in text
        assert b"BODY=%d" % i in text
    assert connection.sock is first
    connection.close()


def test_not_in_tunnels(box: Box, peer: Peer) -> None:
    s, head = box.tunnel("127.0.0.1", peer.port)
    assert b" 200 " in head
    with s, peer.accept() as up:
        s.sendall(b"GET / HTTP/1.1\r\nX: " + LONG[0] + b"\r\n\r\n")
        assert LONG[0] in read_head(up)
    s, code = box.socks(b"127.0.0.1", peer.port)
    assert code == 0
    with s, peer.accept() as up:
        s.sendall(b"GET / HTTP/1.1\r\nX: " + LONG[0] + b"\r\n\r\n")
        assert LONG[0] in read_head(up)


def test_the_host_field_decides_nothing(box: Box, peer: Peer) -> None:
    """The host that is connected to is the one that counts, and the one that is named to it."""
    got, _ = request(box, peer, b"GET URL HTTP/1.1\r\nHost: localhost\r\nX-C: %s\r\n\r\n" % OTHER[0])
    assert b"\r\nHost: 127.0.0.1:%d\r\n" % peer.port in got
    assert OTHER[0] in got
    assert OTHER[1] not in got


def test_not_for_hosts_that_were_only_asked_about(egress: Egress, peer: Peer) -> None:
    """Allowed by an answer is on no list: whoever agrees to a connection has not agreed to a credential."""
    box = egress.open({"allowedDomains": ["a.example"], "ask": True, "inject": [{}]}, secrets=[(0, *LONG)])
    with box.connect() as s:
        s.sendall(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nX: %s\r\n\r\n" % (peer.port, LONG[0]))
        asked = egress.wait("egress_request")
        egress.send({"type": "answer", "id": asked["id"], "decision": "session"})
        with peer.accept() as up:
            assert LONG[0] in read_head(up)


def test_another_policy(egress: Egress, peer: Peer) -> None:
    box = egress.open(SAME, secrets=[(0, *LONG)])
    head = b"GET URL HTTP/1.1\r\nHost: x\r\nX: " + LONG[0] + b"\r\n\r\n"
    assert LONG[1] in request(box, peer, head)[0]
    egress.send({"type": "policy", "sandbox": 1, "policy": as_policy(SAME | {"inject": [{"hosts": ["b.example"]}]})})
    egress.send({"type": "open", "sandbox": 1, "listeners": 0})  # an error, which comes when the policy is in force
    assert egress.wait("error")["sandbox"] == 1
    assert LONG[1] not in request(box, peer, head)[0]


def test_each_sandbox_has_its_own(egress: Egress, peer: Peer) -> None:
    """A masked value of one sandbox is not replaced in requests of another."""
    egress.open(SAME, 1, [(0, *LONG)])
    box = egress.open(SAME, 2, [(0, *OTHER)])
    got, _ = request(box, peer, b"GET URL HTTP/1.1\r\nHost: x\r\nA: %s\r\nB: %s\r\n\r\n" % (LONG[0], OTHER[0]))
    assert b"A: " + LONG[0] + b"\r\nB: " + OTHER[1] in got


def test_nothing_of_it_is_told(box: Box, egress: Egress, peer: Peer) -> None:
    head = b"GET URL HTTP/1.1\r\nHost: x\r\nX: %s %s\r\n\r\n" % (LONG[0], SHORT[0])
    _, answer = request(box, peer, head)
    egress.decision()
    shown = repr(egress.events).encode() + answer
    assert LONG[1] not in shown
    assert SHORT[1] not in shown


def test_only_one_process_knows_them(box: Box, egress: Egress, peer: Peer, sanitized: bool) -> None:
    """Neither the process that reads the sandbox's bytes nor the one that communicates with the host."""
    request(box, peer, b"GET URL HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n" % LONG[0])
    if sanitized or os.geteuid():
        pytest.skip("another process's memory is read by root, without a sanitizer")
    found = []
    for pid in egress.pids():
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                start, end = (int(x, 16) for x in line.split()[0].split("-"))
                if "rw" not in line or "[vvar" in line:
                    continue
                memory.seek(start)
                with contextlib.suppress(OSError):
                    if LONG[1] in memory.read(end - start):
                        found.append(name)
    assert set(found) == {"cg-injector"}


@pytest.mark.parametrize(
    "secrets",
    [
        [(0, b"no_such_prefix_0123456789", b"x")],
        [(0, b"fake_value_1", b"longer than its masked value")],
        [(256, b"fake_value_1234", b"x")],
        [(0, b"fake_value_" + b"x" * 9000, b"x")],
    ],
)
def test_secrets_that_make_no_sense_end_it(
    program: Path, slowness: float, secrets: list[tuple[int, bytes, bytes]]
) -> None:
    egress = Egress(program, slowness)
    with contextlib.suppress(AssertionError, OSError):
        egress.open(SAME, secrets=secrets)
    assert egress.proc.wait(egress.timeout) != 0
    egress.control.close()


def test_a_server_that_answers_early_or_closes(box: Box, peer: Peer) -> None:
    with box.connect() as s:
        s.sendall(b"POST http://127.0.0.1:%d/ HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n" % peer.port)
        with peer.accept() as up:
            read_head(up)
            up.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
            up.shutdown(socket.SHUT_WR)
            assert read_all(s).endswith(b"no")
    with box.connect() as s:
        s.sendall(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n\r\n" % peer.port)
        peer.accept().close()
        assert b" 502 " in read_head(s)


def test_a_client_that_goes(box: Box, peer: Peer) -> None:
    with box.connect() as s:
        s.sendall(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n\r\n" % peer.port)
        up = peer.accept()
        read_head(up)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with up:
        assert read_all(up) == b""
