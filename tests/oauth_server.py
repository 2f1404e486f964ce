"""An MCP server that wants OAuth, and its authorization server, on one port of this machine's loopback."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

ACCESS, REFRESH, SECRET = "ACCESS-c0ffee", "REFRESH-c0ffee", "SECRET-c0ffee"


class OAuthServer(ThreadingHTTPServer):
    """What it answers can be changed: documents by path, members of the metadata, the token response, the redirect."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.origin = f"http://127.0.0.1:{self.server_address[1]}"
        self.url = self.origin + "/mcp"
        self.seen: list[tuple[str, str, dict[str, str], dict[str, str]]] = []  # method, path, header fields, form
        self.challenge = f'Bearer resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp", scope="r"'
        self.resource: dict[str, Any] = {"resource": self.url, "authorization_servers": [self.origin]}
        self.metadata: dict[str, Any] = {
            "issuer": self.origin,
            "authorization_endpoint": self.origin + "/authorize",
            "token_endpoint": self.origin + "/token",
            "registration_endpoint": self.origin + "/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "none"],
        }
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}  # in place of the documents
        self.token: dict[str, Any] = {"access_token": ACCESS, "token_type": "Bearer", "refresh_token": REFRESH}
        self.token_status = 200
        self.not_revoked: set[str] = set()  # kinds of tokens
        self.token_waits = 0.0  # seconds until the token endpoint answers
        self.redirect: dict[str, str] = {}  # parameters to add or replace; "" removes one
        self.pkce = ""
        self.accepts = ACCESS
        self.scope_of_calls = ""  # a scope that calls need, and no token has

    def requests(self, path: str) -> list[dict[str, str]]:
        return [form for _, p, _, form in self.seen if p == path]


class _Handler(BaseHTTPRequestHandler):
    server: OAuthServer
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: object = b"", **fields: str) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)), **fields}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        s = self.server
        path, query = urlsplit(self.path).path, urlsplit(self.path).query
        form = dict(parse_qsl(query))
        s.seen.append(("GET", path, dict(self.headers.items()), form))
        if path in s.pages:
            status, fields, body = s.pages[path]
            self.answer(status, body, **fields)
        elif path == "/.well-known/oauth-protected-resource/mcp":
            self.answer(200, s.resource)
        elif path == "/.well-known/oauth-authorization-server":
            self.answer(200, s.metadata)
        elif path == "/authorize":
            s.pkce = form["code_challenge"]
            back = {"code": "CODE", "state": form["state"]} | s.redirect
            self.answer(302, Location=form["redirect_uri"] + "?" + urlencode({k: v for k, v in back.items() if v}))
        else:
            self.answer(404)

    def do_POST(self) -> None:
        s = self.server
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {k: v[0] for k, v in parse_qs(body).items()} if self.path in ("/token", "/revoke") else json.loads(body)
        s.seen.append(("POST", self.path, dict(self.headers.items()), form))
        if self.path == "/revoke":
            refused = form["token_type_hint"] in s.not_revoked
            self.answer(400 if refused else 200, {"error": "unsupported_token_type"} if refused else {})
        elif self.path == "/register":
            self.answer(201, {"client_id": "CLIENT", "client_secret": SECRET})
        elif self.path == "/token":
            time.sleep(s.token_waits)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            fits = base64.urlsafe_b64encode(digest).decode().rstrip("=") == s.pkce
            if form["grant_type"] == "authorization_code" and not fits:
                self.answer(400, {"error": "invalid_grant"})
            else:
                self.answer(s.token_status, s.token)
        elif self.headers.get("Authorization") != f"Bearer {s.accepts}":
            # A careless server shows what it got.
            self.answer(401, {"error": self.headers.get("Authorization", "")}, WWW_Authenticate=s.challenge)
        else:
            self.mcp(form)

    def mcp(self, m: dict[str, Any]) -> None:
        """A server of revision 2025-11-25 with one tool."""
        method, scope = m.get("method"), self.server.scope_of_calls
        tool = {"name": "whoami", "inputSchema": {"type": "object"}}
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}},
            "tools/list": {"tools": [tool]},
            "tools/call": {"content": [{"type": "text", "text": "you"}]},
        }
        if method == "tools/call" and scope:
            self.answer(403, {}, WWW_Authenticate=f'Bearer error="insufficient_scope", scope="{scope}"')
        elif "id" not in m:
            self.answer(202)
        elif method in results:
            self.answer(200, {"jsonrpc": "2.0", "id": m["id"], "result": results[method]})
        else:
            self.answer(400, {"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32000, "message": "no"}})

    def log_message(self, *args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    with OAuthServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
