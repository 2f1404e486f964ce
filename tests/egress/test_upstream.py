"""Other proxies: in place of this one, and behind it."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from egress.harness import Egress, Server, basic, http_server, read_all, read_head, status_of


class Parent(BaseHTTPRequestHandler):
    """A proxy that says what it was asked for."""

    protocol_version = "HTTP/1.1"

    def do_CONNECT(self) -> None:
        if "refuse" in self.path:
            self.send_error(403)
            return
        auth = self.headers.get("Proxy-Authorization", "-")
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + f"TUNNEL {self.path} {auth}\n".encode())
        self.wfile.write(self.rfile.readline())
        self.close_connection = True

    def do_GET(self) -> None:
        text = f"PARENT {self.path} {self.headers.get('Proxy-Authorization', '-')}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def parent() -> Iterator[Server]:
    with http_server(Parent) as s:
        yield s


def test_parent_proxy(egress: Egress, parent: Server) -> None:
    url = f"http://user:w%6frd@127.0.0.1:{parent.port}"
    box = egress.open({"allowedDomains": ["name.example.com"], "parentProxy": {"http": url, "https": url}})
    auth = basic("user", "word")
    assert box.curl("http://name.example.com/x").stdout == f"PARENT http://name.example.com/x {auth}\n"
    s, head = box.tunnel("name.example.com", 443)
    assert status_of(head) == 200
    s.sendall(b"echo\n")
    assert read_all(s) == f"TUNNEL name.example.com:443 {auth}\necho\n".encode()
    s, code = box.socks(b"name.example.com", 444)
    assert code == 0
    s.sendall(b"echo\n")
    assert read_all(s) == f"TUNNEL name.example.com:444 {auth}\necho\n".encode()
    assert box.curl("-i", "http://other.example.com/").stdout.startswith("HTTP/1.1 403")


def test_without_the_parent(egress: Egress, parent: Server, server: Server) -> None:
    url = f"http://127.0.0.1:{parent.port}"
    box = egress.open({"allowedDomains": ["127.0.0.1"], "parentProxy": {"http": url}})
    assert box.curl(f"http://127.0.0.1:{server.port}/").stdout.startswith("HELLO")


def test_a_parent_that_refuses(egress: Egress, parent: Server) -> None:
    url = f"http://127.0.0.1:{parent.port}"
    box = egress.open({"allowedDomains": ["refuse.example.com"], "parentProxy": {"https": url}})
    s, head = box.tunnel("refuse.example.com", 443)
    assert status_of(head) == 502
    s, code = box.socks(b"refuse.example.com", 443)
    assert code == 4


def test_a_parent_that_is_not_there(egress: Egress) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        box = egress.open(
            {"allowedDomains": ["a.example.com"], "parentProxy": {"https": f"http://127.0.0.1:{s.getsockname()[1]}"}}
        )
        assert status_of(box.tunnel("a.example.com", 443)[1]) == 502


def test_mitm_proxy(egress: Egress, tmp_path: Path) -> None:
    path = str(tmp_path / "mitm.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    asked: list[bytes] = []

    def serve() -> None:
        s, _ = listener.accept()
        asked.append(read_head(s))
        s.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")
        s.close()

    thread = threading.Thread(target=serve)
    thread.start()
    policy = {"allowedDomains": ["*.example.com"], "mitmProxy": {"socketPath": path, "domains": ["a.example.com"]}}
    s, head = egress.open(policy).tunnel("a.example.com", 443)
    assert status_of(head) == 200
    assert read_all(s) == b"hello"
    thread.join()
    assert asked[0].startswith(b"CONNECT a.example.com:443 HTTP/1.1\r\n")
    listener.close()


def test_external_http_proxy(egress: Egress, parent: Server) -> None:
    """The external proxy filters HTTP; cellgate's proxy still filters SOCKS."""
    box = egress.open({"allowedDomains": [], "httpProxyPort": parent.port})
    assert box.curl("http://whatever.example.org/x").stdout == "PARENT http://whatever.example.org/x -\n"
    s, code = box.socks(b"whatever.example.org", 80)
    assert code == 2


def test_external_socks_proxy(egress: Egress) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    box = egress.open({"allowedDomains": [], "socksProxyPort": listener.getsockname()[1]})
    with box.connect() as s:
        s.sendall(b"\5\1\0")
        far, _ = listener.accept()
        assert far.recv(3) == b"\5\1\0"
        far.sendall(b"\5\0")
        assert s.recv(2) == b"\5\0"
        far.close()
    assert box.curl("-i", "http://whatever.example.org/x").stdout.startswith("HTTP/1.1 403")
    listener.close()
