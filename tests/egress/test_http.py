"""Plain HTTP through the proxy: with real clients, and with bytes that no client sends."""

import contextlib
import http.client
import socket
import urllib.request

import pytest
from egress.harness import Egress, Peer, Server, read_all, read_head, status_of

ALLOW = {"allowedDomains": ["127.0.0.1"], "deniedDomains": []}


def test_curl(egress: Egress, server: Server) -> None:
    box = egress.open(ALLOW)
    done = box.curl(f"http://127.0.0.1:{server.port}/x?y=z")
    assert done.stdout.startswith("HELLO\nGET /x?y=z\n"), done
    event = egress.decision()
    assert (event["allowed"], event["rule"], event["protocol"]) == (True, "127.0.0.1", "http")


def test_urllib(egress: Egress, server: Server) -> None:
    box = egress.open(ALLOW)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": box.url}))
    with opener.open(f"http://127.0.0.1:{server.port}/u", data=b"body", timeout=box.timeout) as answer:
        assert answer.headers["X-From"] == "server"
        assert answer.read().endswith(b"BODY=4\n")


def test_a_client_keeps_its_connection(egress: Egress, server: Server) -> None:
    box = egress.open(ALLOW)
    connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=box.timeout)
    connection.connect()
    socket_at_first = connection.sock
    for path in ("/a", "/chunked", "/size/100000", "/b"):
        connection.request("GET", f"http://127.0.0.1:{server.port}{path}")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.headers["Connection"] == "keep-alive"
        assert body == b"x" * 100000 if "size" in path else f"GET {path}\n".encode() in body
    assert connection.sock is socket_at_first
    connection.close()


@pytest.mark.parametrize("path", ["/x", "/chunked", "/until-end", "/size/3000000"])
def test_bodies_of_responses(egress: Egress, server: Server, path: str) -> None:
    box = egress.open(ALLOW)
    done = box.curl("-i", f"http://127.0.0.1:{server.port}{path}")
    assert done.returncode == 0, done
    head, body = done.stdout.split("\n\n", 1)
    assert "Trailer" not in done.stdout
    assert ("Transfer-Encoding" in head) == (path == "/chunked")
    assert body == "x" * 3000000 if path.startswith("/size") else body.startswith("HELLO")


@pytest.mark.parametrize("size", [0, 5, 70_000, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_of_requests(egress: Egress, server: Server, size: int, chunked: bool, tmp_path: object) -> None:
    box = egress.open(ALLOW)
    file = f"{tmp_path}/body"
    with open(file, "wb") as f:
        f.write(b"b" * size)
    header = ["-H", "Transfer-Encoding: chunked"] if chunked else []
    done = box.curl(*header, "--data-binary", f"@{file}", f"http://127.0.0.1:{server.port}/")
    assert done.stdout.endswith(f"BODY={size}\n"), done


def test_head_request(egress: Egress, server: Server) -> None:
    box = egress.open(ALLOW)
    done = box.curl("-I", f"http://127.0.0.1:{server.port}/x")
    assert "200 OK" in done.stdout and "Content-Length" in done.stdout, done


def test_what_goes_on_is_ours(egress: Egress, server: Server) -> None:
    """Host is the one that was checked; what is of this hop only is gone."""
    box = egress.open(ALLOW)
    fields = [
        "Host: evil.example.com",
        "Connection: X-Secret",
        "X-Secret: 1",
        "Proxy-Authorization: Basic eDp5",
        "TE: x",
        "X-Kept: 2",
    ]
    done = box.curl(*(a for f in fields for a in ("-H", f)), f"http://127.0.0.1:{server.port}/x")
    assert "X-Kept: 2" in done.stdout
    assert f"Host: 127.0.0.1:{server.port}\n" in done.stdout
    for gone in ("evil", "X-Secret", "Proxy-Auth", "TE:"):
        assert gone not in done.stdout


def test_pipelined_requests(egress: Egress, server: Server) -> None:
    box = egress.open(ALLOW)
    request = f"GET http://127.0.0.1:{server.port}/%s HTTP/1.1\r\nHost: x\r\n%s\r\n"
    sent = (request % ("one", "")) + (request % ("two", "")) + (request % ("three", "Connection: close\r\n"))
    answer = box.raw(sent.encode())
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.index(b"GET /one") < answer.index(b"GET /two") < answer.index(b"GET /three")


def test_a_pipelined_request_is_judged_by_itself(egress: Egress, server: Server) -> None:
    box = egress.open(ALLOW)
    first = (
        f"POST http://127.0.0.1:{server.port}/one HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
    answer = box.raw(first.encode() + b"GET http://denied.example.com/ HTTP/1.1\r\n\r\n")
    assert b"BODY=3" in answer
    assert b"HTTP/1.1 403 Forbidden" in answer


def test_continue(egress: Egress, peer: Peer) -> None:
    """An interim response reaches a client that waits for it."""
    box = egress.open(ALLOW)
    with box.connect() as s:
        s.sendall(
            f"PUT http://127.0.0.1:{peer.port}/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n".encode()
        )
        far = peer.accept()
        assert b"Expect: 100-continue" in read_head(far)
        far.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert status_of(read_head(s)) == 100
        s.sendall(b"abc")
        assert far.recv(3) == b"abc"
        far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert status_of(read_head(s)) == 200
        assert s.recv(2) == b"ok"
        far.close()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_interim_responses_without_end(egress: Egress, peer: Peer, version: str) -> None:
    box = egress.open(ALLOW)
    with box.connect() as s:
        s.sendall(f"GET http://127.0.0.1:{peer.port}/ HTTP/{version}\r\n\r\n".encode())
        far = peer.accept()
        read_head(far)
        with contextlib.suppress(OSError):
            for _ in range(100000):
                far.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
        assert b"HTTP/1.1 502 Bad Gateway" in read_all(s)
        far.close()


def test_answer_before_the_body_is_read(egress: Egress, peer: Peer) -> None:
    box = egress.open(ALLOW)
    with box.connect() as s:
        s.sendall(f"POST http://127.0.0.1:{peer.port}/ HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n".encode())
        far = peer.accept()
        read_head(far)
        far.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        far.close()
        answer = read_all(s)
        assert status_of(answer) == 413
        assert b"Connection: close" in answer and answer.endswith(b"big")


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\r\n\r\n",
        b"HTTP/1.1 099 x\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70000,
        b"",
    ],
)
def test_bad_responses(egress: Egress, peer: Peer, answer: bytes) -> None:
    box = egress.open(ALLOW)
    with box.connect() as s:
        s.sendall(f"GET http://127.0.0.1:{peer.port}/ HTTP/1.1\r\n\r\n".encode())
        far = peer.accept()
        read_head(far)
        far.sendall(answer)
        far.close()
        got = read_all(s)
    assert status_of(got) == 502
    assert b"Bad Gateway" in got


def test_a_body_that_breaks_off(egress: Egress, peer: Peer) -> None:
    """The client must not take a part for the whole."""
    box = egress.open(ALLOW)
    with box.connect() as s:
        s.sendall(f"GET http://127.0.0.1:{peer.port}/ HTTP/1.1\r\n\r\n".encode())
        far = peer.accept()
        read_head(far)
        far.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        assert status_of(read_head(s)) == 200
        far.close()
        assert b"0\r\n\r\n" not in read_all(s)


def test_nobody_there(egress: Egress) -> None:
    box = egress.open(ALLOW)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        done = box.curl("-i", f"http://127.0.0.1:{s.getsockname()[1]}/")
    assert "502 Bad Gateway" in done.stdout and "Connection refused" in done.stdout
    event = egress.decision()
    assert event["allowed"] and event["error"] == "Connection refused"


# ---------------------------------------------------------------- what is no request to a proxy

SMUGGLED = [
    b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
    b"Content-Length: 1\r\nContent-Length: 1\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"X: a\r\n Transfer-Encoding: chunked\r\n",
    b"X: a\nY: b\r\n",
    b"X: a\0b\r\n",
]


@pytest.mark.parametrize("fields", SMUGGLED)
def test_smuggling_is_refused(egress: Egress, peer: Peer, fields: bytes) -> None:
    box = egress.open(ALLOW)
    answer = box.raw(b"POST http://127.0.0.1:%d/ HTTP/1.1\r\n%s\r\n" % (peer.port, fields))
    assert status_of(answer) == 400
    peer.listener.settimeout(0.1)
    with pytest.raises(TimeoutError):
        peer.accept()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", 400),
        (b"GET https://127.0.0.1/ HTTP/1.1", 400),
        (b"GET http://u:p@127.0.0.1/ HTTP/1.1", 400),
        (b"GET http://127.0.0.1%00/ HTTP/1.1", 400),
        (b"GET http://[fe80::1%25lo]/ HTTP/1.1", 400),
        (b"GET http://127.0.0.1:0/ HTTP/1.1", 400),
        (b"CONNECT 127.0.0.1 HTTP/1.1", 400),
        (b"GET http://127.0.0.1/ HTTP/2.0", 505),
        (b"\x00\x01\x02\x03", 400),
    ],
)
def test_bad_requests(egress: Egress, request_line: bytes, status: int) -> None:
    box = egress.open(ALLOW)
    answer = box.raw(request_line + b"\r\n\r\n")
    assert status_of(answer) == status
    assert not egress.decision()["allowed"]


def test_huge_head(egress: Egress, server: Server) -> None:
    box = egress.open(ALLOW)
    start = f"GET http://127.0.0.1:{server.port}/ HTTP/1.1\r\nX: ".encode()
    assert status_of(box.raw(start + b"x" * 15000 + b"\r\nConnection: close\r\n\r\n")) == 200
    assert status_of(box.raw(start + b"x" * 20000 + b"\r\n\r\n")) == 431
    assert status_of(box.raw(start + b"x" * 1_000_000)) == 431


def test_tls_is_no_request(egress: Egress) -> None:
    box = egress.open(ALLOW)
    assert box.raw(b"\x16\x03\x01\x02\x00\x01") == b""
    assert "TLS without CONNECT" in egress.decision()["why"]


def test_require_host_match(egress: Egress, server: Server) -> None:
    box = egress.open({**ALLOW, "requireHostMatch": True})
    url = f"http://127.0.0.1:{server.port}/"
    assert box.curl(url).stdout.startswith("HELLO")
    assert "421" in box.curl("-i", "-H", "Host: other", url).stdout
    assert status_of(box.raw(f"GET {url} HTTP/1.1\r\n\r\n".encode())) == 400


def test_strip_response_headers(egress: Egress, server: Server) -> None:
    box = egress.open({**ALLOW, "stripResponseHeaders": ["x_FROM"]})
    done = box.curl("-i", f"http://127.0.0.1:{server.port}/")
    assert "Server:" in done.stdout and "X-From" not in done.stdout
