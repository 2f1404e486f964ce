"""A web server on this machine's loopback, for tests of what a sandbox may reach."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    seen: list[dict[str, str]]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.seen.append(dict(self.headers.items()))
        body = b"hello from outside"
        self.send_response(200)
        # Without a type mcp-server-fetch takes it for HTML, which it simplifies by packages that need a newer node than
        # Debian's.
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def web_server(seen: list[dict[str, str]] | None = None) -> Iterator[int]:
    """The port of a server that says "hello from outside". What it is asked with, the fields of each request, goes to seen."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.seen = [] if seen is None else seen
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class Posts(ThreadingHTTPServer):
    """Takes what is sent to its url, and answers with a status."""

    def __init__(self, status: int = 204) -> None:
        super().__init__(("127.0.0.1", 0), _Taker)
        self.status = status
        self.bodies: list[bytes] = []
        self.url = f"http://127.0.0.1:{self.server_port}/secret-path"


class _Taker(_Handler):
    server: Posts  # type: ignore[assignment]

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextlib.contextmanager
def posts(status: int = 204) -> Iterator[Posts]:
    with Posts(status) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


# Python for a cell: fetch(url) returns what the server said, or the refusal's status and reason.
FETCH = """
import os, urllib.request, urllib.error
for name in ("NO_PROXY", "no_proxy"):  # else 127.0.0.1 is taken for the kernel's own
    os.environ.pop(name, None)
def fetch(url):
    try:
        return urllib.request.urlopen(url, timeout=50).read().decode()
    except urllib.error.HTTPError as e:
        return f"{e.code} " + e.read().decode().replace(chr(10), " ")
    except OSError as e:
        return f"failed: {e}"
"""


def settings(**parts: dict) -> dict:
    """Settings that allow to write in the workspace and nothing else, with these changes."""
    base: dict = {
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    }
    for key, value in parts.items():
        base[key] = base.get(key, {}) | value
    return base
