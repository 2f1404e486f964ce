"""A proxy in front of `cellgate mcp serve --http` for the server scenarios of the conformance suite of MCP.

It adds the server's token, which the suite has no option for. Nothing else is changed.
"""

from __future__ import annotations

import contextlib
import http.client
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    port: int  # of the server
    token: str

    def relay(self, r: http.client.HTTPResponse) -> None:
        self.send_response_only(r.status)
        for name, value in r.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding"):
                self.send_header(name, value)
        if r.status in (202, 204):
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while data := r.read1(65536):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def pass_on(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = http.client.HTTPConnection("127.0.0.1", self.port)
        with contextlib.closing(server), contextlib.suppress(OSError):
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                    server.putheader(name, value)
            server.putheader("Authorization", f"Bearer {self.token}")
            if data:
                server.putheader("Content-Length", str(len(data)))
            server.endheaders(data)
            self.relay(server.getresponse())

    do_GET = do_POST = do_DELETE = pass_on

    def log_message(self, *_: object) -> None:
        pass


class Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """The suite leaves connections as it likes."""


def proxy(server_port: int, server_token: str) -> Proxy:
    class Own(Handler):
        port, token = server_port, server_token

    return Proxy(("127.0.0.1", 0), Own)
