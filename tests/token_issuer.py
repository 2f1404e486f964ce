"""An authorization server of OAuth on this machine's loopback, whose access tokens are JWTs with real keys."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
JWKS = "/keys"


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


class Issuer(ThreadingHTTPServer):
    """`audience` is that of its tokens; the members of a JWK and of the metadata can be changed."""

    daemon_threads = True

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server_address[1]}"
        self.slow = threading.Event()  # while it is clear, keys are not sent
        self.slow.set()
        self.audience = self.scope = ""
        self.private: dict[str, Any] = {}
        self.keys: list[dict[str, Any]] = []
        self.seen: list[str] = []
        self.metadata: dict[str, Any] = {
            "issuer": self.url,
            "authorization_endpoint": self.url + "/authorize",
            "token_endpoint": self.url + "/token",
            "registration_endpoint": self.url + "/register",
            "jwks_uri": self.url + JWKS,
            "code_challenge_methods_supported": ["S256"],
            "response_types_supported": ["code"],
        }
        self.pages: dict[str, tuple[int, bytes]] = {}  # in place of documents
        for algorithm in ("RS256", "ES256", "EdDSA"):
            self.add_key(algorithm, algorithm)

    def add_key(self, kid: str, algorithm: str) -> None:
        if algorithm == "RS256":
            private: Any = RSA_KEY
            jwk = RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
        elif algorithm == "ES256":
            private = ec.generate_private_key(ec.SECP256R1())
            jwk = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
        else:
            private = ed25519.Ed25519PrivateKey.generate()
            jwk = OKPAlgorithm.to_jwk(private.public_key(), as_dict=True)
        self.private[kid] = private
        self.keys.append({**jwk, "kid": kid, "use": "sig", "alg": algorithm})

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Those of None are left out."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": self.audience, "sub": "alice", "exp": now + 600, "iat": now, **changed}
        return {k: v for k, v in claims.items() if v is not None}

    def token(
        self, kid: str = "ES256", algorithm: str = "", header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        algorithm = algorithm or next(k["alg"] for k in self.keys if k["kid"] == kid)
        text = json.dumps(self.claims(**claims)).encode()  # jwt.encode() refuses some wrong claims
        return jwt.PyJWS().encode(text, self.private[kid], algorithm, {"kid": kid, **(header or {})})


class _Handler(BaseHTTPRequestHandler):
    server: Issuer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self, status: int, body: object, **fields: str) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)), **fields}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        s, url = self.server, urlsplit(self.path)
        s.seen.append(url.path)
        if url.path in s.pages:
            status, body = s.pages[url.path]
            self.answer(status, body)
        elif url.path == "/.well-known/oauth-authorization-server":
            self.answer(200, s.metadata)
        elif url.path == JWKS:
            s.slow.wait()
            self.answer(200, {"keys": s.keys})
        elif url.path == "/authorize":  # nobody is asked
            query = dict(parse_qsl(url.query))
            s.audience, s.scope = query["resource"], query.get("scope", "")
            back = {"code": "CODE", "state": query["state"]}
            self.answer(302, b"", Location=query["redirect_uri"] + "?" + urlencode(back))
        else:
            self.answer(404, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/register":
            self.answer(201, {**json.loads(body), "client_id": "CLIENT"})
        elif self.path == "/token" and dict(parse_qsl(body.decode())).get("code") == "CODE":
            token = self.server.token(scope=self.server.scope)
            self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 600})
        else:
            self.answer(400, {"error": "invalid_grant"})


@contextlib.contextmanager
def running(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    issuer = Issuer(port, tls)
    thread = threading.Thread(target=issuer.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield issuer
    finally:
        issuer.slow.set()
        issuer.shutdown()
        thread.join()
        issuer.server_close()
