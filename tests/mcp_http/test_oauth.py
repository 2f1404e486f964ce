"""`cellgate mcp serve --http` with tokens of an authorization server: each wrong one beside right ones."""

import hashlib
import hmac
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import certificates
import pytest
import token_issuer
from cryptography.hazmat.primitives import serialization
from mcp_http.helpers import Server, Session
from mcp_http.test_ends import Serve, front, session_processes
from mcp_http.test_refusals import INITIALIZE
from mcp_http.test_stateless import Stateless
from mcp_serve.helpers import text_of
from mcp_serve.test_resources import LONG, links
from processes import children, eventually, name_of, words
from token_issuer import JWKS, RSA_KEY, Issuer, decode, encode

Run = Callable[..., "subprocess.CompletedProcess[str]"]
HERE = Path(__file__).parent


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with token_issuer.running() as issuer:
        yield issuer


@pytest.fixture
def server(serve: Serve, issuer: Issuer) -> Server:
    server = serve("--oauth-issuer", issuer.url)
    issuer.audience = server.url
    server.token = issuer.token()
    return server


@pytest.fixture(scope="module")
def module_server(
    tmp_path_factory: pytest.TempPathFactory, cellgate: Path, slowness: float
) -> Iterator[tuple[Server, Issuer]]:
    with token_issuer.running() as issuer:
        argv = [str(cellgate), "mcp", "serve", "--http", "127.0.0.1:0", "--oauth-issuer", issuer.url]
        server = Server(argv, tmp_path_factory.mktemp("oauth"), dict(os.environ), slowness)
        issuer.audience = server.url
        yield server, issuer
        server.end()


def ping(server: Server, token: str | None) -> Any:
    """A request that nobody but the check of the token answers with 401, and 400 where that is right."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    return server.post(message, {"Authorization": None if token is None else f"Bearer {token}"})


def tampered(token: str, part: int, change: Callable[[bytes], bytes]) -> str:
    parts = token.split(".")
    raw = parts[part].encode()
    parts[part] = change(raw).decode()
    return ".".join(parts)


def flip(raw: bytes) -> bytes:
    """Another character in the middle: all of its bits count."""
    at = len(raw) // 2
    return raw[:at] + (b"A" if raw[at : at + 1] != b"A" else b"B") + raw[at + 1 :]


def unsigned(issuer: Issuer, algorithm: str, signature: Callable[[bytes], bytes] = lambda _: b"") -> str:
    header = {"alg": algorithm, "kid": "RS256"}
    text = f"{encode(json.dumps(header).encode())}.{encode(json.dumps(issuer.claims()).encode())}"
    return f"{text}.{encode(signature(text.encode()))}"


def by_public_key(issuer: Issuer) -> str:
    """The public key as the secret of HMAC: the mistake of many libraries."""
    pem = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return unsigned(issuer, "HS256", lambda text: hmac.new(pem, text, hashlib.sha256).digest())


NOW = time.time
RIGHT: dict[str, Callable[[Issuer], str]] = {
    "RS256": lambda i: i.token("RS256"),
    "ES256": lambda i: i.token("ES256"),
    "EdDSA": lambda i: i.token("EdDSA"),
    "expired within the skew": lambda i: i.token(exp=NOW() - 20),
    "not yet valid within the skew": lambda i: i.token(nbf=NOW() + 20),
    "among audiences": lambda i: i.token(aud=["x", i.audience]),
    "type at+jwt": lambda i: i.token(header={"typ": "at+jwt"}),
    "no type": lambda i: i.token(header={"typ": None}),
    "8 KB": lambda i: i.token(more="x" * 5900),
}
WRONG: dict[str, tuple[Callable[[Issuer], str], str]] = {
    "expired": (lambda i: i.token(exp=NOW() - 100), "expired"),
    "no end": (lambda i: i.token(exp=None), "(exp)"),
    "an end that is text": (lambda i: i.token(exp=str(NOW() + 600)), "(exp)"),
    "not yet valid": (lambda i: i.token(nbf=NOW() + 100), "not valid yet"),
    "other issuer": (lambda i: i.token(iss=i.url + "/x"), "another issuer"),
    "no issuer": (lambda i: i.token(iss=None), "another issuer"),
    "issuers": (lambda i: i.token(iss=[i.url]), "another issuer"),
    "other audience": (lambda i: i.token(aud=i.audience + "/"), "another server"),
    "other audiences": (lambda i: i.token(aud=["x", i.audience + "2"]), "another server"),
    "no audience": (lambda i: i.token(aud=None), "another server"),
    "no subject": (lambda i: i.token(sub=None), "(sub)"),
    "empty subject": (lambda i: i.token(sub=""), "(sub)"),
    "bound to a key": (lambda i: i.token(cnf={"jkt": "x"}), "(cnf)"),
    "an extension": (lambda i: i.token(header={"crit": ["x"], "x": 1}), "(crit)"),
    "another type": (lambda i: i.token(header={"typ": "dpop+jwt"}), "(typ)"),
    "alg none": (lambda i: unsigned(i, "none"), "not signed"),
    "alg None": (lambda i: unsigned(i, "None"), "not signed"),
    "alg HS256": (by_public_key, "not signed"),
    "alg RS512": (lambda i: i.token("RS256", "RS512"), "not signed"),
    "no signature": (lambda i: unsigned(i, "RS256"), "signature"),
    "the key of another algorithm": (lambda i: i.token("RS256", header={"kid": "ES256"}), "no key"),
    "the id of no key": (lambda i: i.token(header={"kid": "none"}), "no key"),
    "signed by another": (lambda i: Issuer.token(other(i), "ES256"), "signature"),
    "claims changed": (lambda i: tampered(i.token(), 1, flip), "signature"),
    "header changed": (lambda i: tampered(i.token("RS256", header={"x": "y" * 30}), 0, flip), ""),
    "signature changed": (lambda i: tampered(i.token(), 2, flip), "signature"),
    "signature cut": (lambda i: i.token()[:-4], "signature"),
    "too long": (lambda i: i.token(more="x" * 8000), "8,192"),
    "four parts": (lambda i: i.token() + ".x", "not a signed JWT"),
    "two parts": (lambda i: i.token().rpartition(".")[0], "not a signed JWT"),
    "base64, not base64url": (lambda i: i.token() + "=", "base64url"),
    "no JSON": (lambda i: "eA.eA.eA", "header"),
    "nothing": (lambda i: "..", "header"),
    "text": (lambda i: "x" * 64, "not a signed JWT"),
}


def other(issuer: Issuer) -> Issuer:
    """Its names with other keys."""
    with token_issuer.running() as fake:
        fake.url, fake.audience = issuer.url, issuer.audience
    return fake


@pytest.mark.parametrize("name", RIGHT)
def test_right_tokens(module_server: tuple[Server, Issuer], name: str) -> None:
    server, issuer = module_server
    for _ in range(2):  # the second time it is known
        assert ping(server, RIGHT[name](issuer)).status == 400  # it names no session


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tokens(module_server: tuple[Server, Issuer], name: str) -> None:
    server, issuer = module_server
    token, why = WRONG[name][0](issuer), WRONG[name][1]
    for message in ({"jsonrpc": "2.0", "id": 1, "method": "ping"}, INITIALIZE):
        reply = server.post(message, {"Authorization": f"Bearer {token}"})
        assert reply.status == 401 and why in reply.error
        assert 'error="invalid_token"' in reply.headers["WWW-Authenticate"]
    assert server.sessions() == 0 and not [p for p in session_processes(server) if name_of(p) == "cellgate"]


@pytest.mark.parametrize("at", [0, 32])
def test_numbers_of_a_signature_that_begin_with_zeros(module_server: tuple[Server, Issuer], at: int) -> None:
    server, issuer = module_server
    tokens = (issuer.token(n=n) for n in range(10000))
    assert ping(server, next(t for t in tokens if decode(t.rpartition(".")[2])[at] == 0)).status == 400


def test_where_a_client_gets_tokens(module_server: tuple[Server, Issuer]) -> None:
    server, issuer = module_server
    reply = ping(server, None)
    assert reply.status == 401
    place = server.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    assert reply.headers["WWW-Authenticate"] == f'Bearer resource_metadata="{place}"'
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
        reply = server.request("GET", path, headers={"Authorization": None, "Origin": "http://localhost"})
        document = json.loads(reply.body)
        assert document["resource"] == server.url and document["authorization_servers"] == [issuer.url]
        assert reply.headers["Access-Control-Allow-Origin"] == "http://localhost"
    assert server.request("OPTIONS", path, headers={"Authorization": None}).status == 204
    assert server.request("POST", path, b"", {"Authorization": f"Bearer {issuer.token()}"}).status == 405
    assert server.request("GET", "/health", headers={"Authorization": None}).status == 200
    assert server.request("GET", "/.well-known/x", headers={"Authorization": None}).status == 401


def test_a_session_with_a_body_before_the_answer(server: Server, issuer: Issuer) -> None:
    """Each request has a token that is not known yet: it waits for the verifier with its body."""
    session = Session(server)
    for n, size in enumerate((10, 1 << 20)):
        server.token = issuer.token(n=n)
        assert session.text(f"len({'x' * size!r})") == str(size)
    server.token = issuer.token(n=9)
    assert session.get().status == 200
    server.token = issuer.token(n=10)
    assert session.delete().status == 204


def test_a_session_belongs_to_its_subject(server: Server, issuer: Issuer) -> None:
    session = Session(server)
    assert session.text("x = 1; x") == "1"
    server.token = issuer.token(sub="bob")
    assert session.request("ping").status == 404
    assert session.get().status == 404 and session.delete().status == 404
    assert Session(server).text("'x' in globals()") == "False"
    server.token = issuer.token("RS256", jti="another token of alice")
    assert session.text("x") == "1"


def test_the_sessions_of_a_subject_have_a_limit(serve: Serve, issuer: Issuer) -> None:
    """Whatever name the client gives itself, in both eras."""
    server = serve("--oauth-issuer", issuer.url, "--max-sessions-per-client", "1")
    issuer.audience = server.url
    alice, bob = issuer.token(), issuer.token(sub="bob")
    assert server.post(INITIALIZE, {"Authorization": f"Bearer {alice}"}).status == 200
    message = json.loads(json.dumps(INITIALIZE))
    message["params"]["clientInfo"]["name"] = "another"
    reply = server.post(message, {"Authorization": f"Bearer {alice}"})
    assert reply.status == 503 and "this client has 1 session" in reply.error
    assert server.post(message, {"Authorization": f"Bearer {bob}"}).status == 200
    server.token = alice
    client = Stateless(server)
    assert not client.cell("1")["isError"]
    call = client.message("tools/call", name="execute_ipython_cell", arguments={"code": "1"})
    call["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] = {"name": "another", "version": "1"}
    assert "1 sessions of this client" in text_of(client.post(call).message["result"])


def test_a_session_is_named_by_its_subject_only(server: Server, issuer: Issuer) -> None:
    """Without the header, in both eras: the number in front of the id leads nobody else to its process."""
    session = Session(server)
    id = session.execute("x = 41").message["result"]["structuredContent"]["session_id"]
    mine = Stateless(server)
    own = mine.cell("y = 1")["structuredContent"]["session_id"]
    uri = links(mine.cell(LONG))["stdout"]
    read = mine.message("resources/read", uri=uri)
    assert mine.post(read).message["result"]["contents"]
    session.id = ""
    assert session.call("execute_ipython_cell", code="x + 1", session_id=id).status == 200
    server.token = issuer.token(sub="bob")
    assert session.call("execute_ipython_cell", code="x + 1", session_id=id).status == 400
    for other in (id, own):
        result = mine.cell("1", session_id=other)
        assert result["isError"] and "no such session" in text_of(result)
    assert mine.post(read).message["error"] == {"code": -32602, "message": ANY, "data": {"uri": uri}}
    assert Session(server).request("resources/read", {"uri": uri}).message["error"]["code"] == -32002


def test_scopes(serve: Serve, issuer: Issuer) -> None:
    server = serve("--oauth-issuer", issuer.url, "--oauth-scope", "run read", "--oauth-audience", "urn:cellgate")
    issuer.audience = "urn:cellgate"
    for claims in ({}, {"scope": "run"}, {"scope": "read runner"}, {"scp": ["run"]}, {"scope": ["x"]}):
        reply = ping(server, issuer.token(**claims))
        challenge = reply.headers["WWW-Authenticate"]
        assert reply.status == 403 and "run read" in reply.error
        assert 'error="insufficient_scope"' in challenge and 'scope="run read"' in challenge
    for claims in ({"scope": "read run"}, {"scope": "x run y read"}, {"scp": ["read", "run"]}, {"scp": "read run"}):
        assert ping(server, issuer.token(**claims)).status == 400
    document = json.loads(server.request("GET", "/.well-known/oauth-protected-resource").body)
    assert document["scopes_supported"] == ["run", "read"]
    issuer.audience = server.url  # no longer the audience
    assert ping(server, issuer.token(scope="run read")).status == 401


def test_keys_that_change(server: Server, issuer: Issuer) -> None:
    assert ping(server, server.token).status == 400
    kept, withdrawn = issuer.token("RS256"), issuer.token("EdDSA", n=1)
    assert issuer.seen.count(JWKS) == 1 and ping(server, issuer.token("EdDSA")).status == 400
    issuer.keys = [k for k in issuer.keys if k["kid"] != "EdDSA"]
    issuer.add_key("new", "ES256")
    assert ping(server, issuer.token("new")).status == 400 and issuer.seen.count(JWKS) == 2
    assert ping(server, kept).status == 400
    assert ping(server, withdrawn).status == 401
    # Whoever invents ids does not have the issuer asked each time.
    issuer.add_key("newer", "ES256")
    for _ in range(3):
        assert ping(server, issuer.token("newer")).status == 401
    assert issuer.seen.count(JWKS) == 2


def place(token: str) -> int:
    """The one of its 256 places where the front keeps a token."""
    return hashlib.sha256(token.encode()).digest()[0]


def test_the_front_cannot_open_sessions_without_a_valid_token(server: Server, issuer: Issuer) -> None:
    """The front knows this token for a minute, the verifier no longer accepts it: the monitor opens nothing."""
    token = issuer.token("EdDSA")
    assert ping(server, token).status == 400
    issuer.keys = [k for k in issuer.keys if k["kid"] != "EdDSA"]
    issuer.add_key("new", "ES256")
    new = next(t for n in range(99) if place(t := issuer.token("new", n=n)) != place(token))
    assert ping(server, new).status == 400
    assert ping(server, token).status == 400
    reply = server.post(INITIALIZE, {"Authorization": f"Bearer {token}"})
    assert "no key" in reply.error and "Mcp-Session-Id" not in reply.headers
    assert server.sessions() == 0 and len(session_processes(server)) == 1  # the verifier


def test_an_issuer_that_cannot_be_reached(serve: Serve) -> None:
    with token_issuer.running() as issuer:
        url, port = issuer.url, issuer.server_address[1]
    server = serve("--oauth-issuer", url)
    issuer.audience = server.url
    reply = ping(server, issuer.token())
    assert reply.status == 503 and "could not be fetched" in reply.error and reply.headers["Retry-After"]
    assert f"no keys of the issuer {url}: " in server.log.read_text()
    with token_issuer.running(port) as again:
        again.audience = server.url
        eventually(lambda: ping(server, again.token()).status == 400)


def test_tokens_do_not_wait_for_keys_that_they_do_not_need(server: Server, issuer: Issuer) -> None:
    """A key is added, and the issuer takes long to send it: only the token by this key waits."""
    assert ping(server, issuer.token()).status == 400
    issuer.slow.clear()
    issuer.add_key("new", "ES256")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ping, server, issuer.token("new"))
        eventually(lambda: issuer.seen.count(JWKS) == 2)
        for n in range(20):
            assert ping(server, issuer.token(n=n)).status == 400
        assert not waiting.done()
        issuer.slow.set()
        assert waiting.result().status == 400


def test_a_stream_ends_with_the_last_token_of_its_session(server: Server, issuer: Issuer) -> None:
    def ends_within(seconds: float) -> Any:
        """A token that is valid for so long; clocks may differ by 60 s."""
        server.token = issuer.token(exp=NOW() - 60 + seconds)
        return server.token

    ends_within(4)
    first, other, client = Session(server), Session(server), Stateless(server)
    subscription = client.post(client.message("subscriptions/listen", notifications={}))
    streams = [first.get(), other.get()]
    server.token = issuer.token()
    assert other.request("ping").status == 200  # with a token that is valid for longer
    assert list(streams[0].events()) == [] and len(list(subscription.events())) == 1
    # The session is there, and its stream can be opened anew; the other's is still open.
    assert first.text("1") == "1" and first.get().status == 200
    streams[1].connection.sock.settimeout(3)
    with pytest.raises(TimeoutError):
        next(streams[1].events())


@pytest.fixture
def issuer_with_tls(certificate: certificates.Files) -> Iterator[Issuer]:
    with token_issuer.running(tls=certificate.server_context()) as issuer:
        yield issuer


def test_an_issuer_of_a_private_authority(
    serve: Serve, issuer_with_tls: Issuer, certificate: certificates.Files, tmp_path: Path
) -> None:
    issuer, ca = issuer_with_tls, tmp_path / "ca.pem"
    ca.write_bytes(certificate.authority.read_bytes())
    server = serve("--oauth-issuer", issuer.url, "--oauth-ca", ca)
    issuer.audience = server.url
    assert ping(server, issuer.token()).status == 400
    server = serve("--oauth-issuer", issuer.url)
    issuer.audience = server.url
    assert ping(server, issuer.token()).status == 503
    assert "certificate" in server.log.read_text()


def test_an_authority_that_cells_could_replace(run_cellgate: Run, workspace: Path, tmp_path: Path) -> None:
    http = ["mcp", "serve", "--http", "127.0.0.1:0", "--workspace", workspace]
    (workspace / "ca.pem").touch()
    for ca, why in ((workspace / "ca.pem", "in the workspace"), (tmp_path / "none", "none")):
        p = run_cellgate(*http, "--oauth-issuer", "https://login.example", "--oauth-ca", ca)
        assert p.returncode == 2 and f"--oauth-ca {ca}" in p.stderr and why in p.stderr
    (tmp_path / "ca.pem").touch()
    p = run_cellgate(*http, "--oauth-ca", tmp_path / "ca.pem")
    assert p.returncode == 2 and "need --oauth-issuer" in p.stderr


@pytest.mark.parametrize(
    ("page", "body", "why"),
    [
        ("/.well-known/oauth-authorization-server", b"{", "metadata"),
        ("/.well-known/oauth-authorization-server", None, "issuer"),
        (JWKS, b"{}", "no key"),
        (JWKS, b'{"keys": [{"kty": "oct", "k": "x"}, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}, 1]}', "no key"),
        (JWKS, b"x" * (300 << 10), ""),
    ],
)
def test_an_issuer_with_wrong_documents(serve: Serve, issuer: Issuer, page: str, body: bytes | None, why: str) -> None:
    issuer.pages[page] = (200, body or json.dumps({**issuer.metadata, "issuer": issuer.url + "/x"}).encode())
    server = serve("--oauth-issuer", issuer.url)
    issuer.audience = server.url
    assert ping(server, issuer.token()).status == 503
    assert re.search(f"no keys of the issuer {re.escape(issuer.url)}: .*{why}", server.log.read_text())


def test_an_openid_provider(serve: Serve, issuer: Issuer) -> None:
    issuer.pages["/.well-known/oauth-authorization-server"] = (404, b"")
    issuer.pages["/.well-known/openid-configuration"] = (200, json.dumps(issuer.metadata).encode())
    server = serve("--oauth-issuer", issuer.url)
    issuer.audience = server.url
    assert ping(server, issuer.token()).status == 400


def test_on_a_unix_socket_the_user_is_checked_as_well(serve: Serve, issuer: Issuer, tmp_path: Path) -> None:
    options = ["--oauth-issuer", issuer.url, "--public-url", "https://tools.example.org/mcp"]
    server = serve(*options, address=f"unix:{tmp_path}/mcp.sock")
    issuer.audience = "https://tools.example.org/mcp"
    assert ping(server, None).status == 401
    server.token = issuer.token()
    assert Session(server).text("1") == "1"
    assert server.post({}, {"Host": "tools.example.org"}).status == 400
    assert server.post({}, {"Host": "example.org"}).status == 421


def test_the_sdk_signs_in(serve: Serve, issuer: Issuer, test_python: str, slowness: float) -> None:
    server = serve("--oauth-issuer", issuer.url, "--oauth-scope", "run")
    argv = [test_python, str(HERE / "sdk_oauth_client.py"), server.url]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=60 * slowness)
    assert p.returncode == 0, p.stderr
    assert json.loads(p.stdout) == "42" and issuer.audience == server.url


@pytest.mark.no_sanitizer  # its runtime needs what the filter forbids
def test_the_verifier_has_few_rights(server: Server, issuer: Issuer) -> None:
    assert ping(server, server.token).status == 400
    (pid,) = [p for p in children(server.process.pid) if b"--verifier" in words(p)]
    status = dict(re.findall(r"^(\w+):\s+(.+)$", Path(f"/proc/{pid}/status").read_text(), re.M))
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2" and int(status["CapEff"], 16) == 0
    assert pid != front(server)
    os.kill(pid, 9)
    assert server.process.wait(server.timeout) == 1


WRONG_OPTIONS = [
    (["--http", "0.0.0.0:0"], "needs TLS"),
    (["--http", "0.0.0.0:0", "--behind-proxy"], "--oauth-issuer"),
    (["--http", "0.0.0.0:0", "--behind-proxy", "--oauth-issuer", "https://example.org"], "--public-url"),
    (["--http", "127.0.0.1:0", "--oauth-issuer", "http://example.org"], "https"),
    (["--http", "127.0.0.1:0", "--oauth-issuer", "https://example.org/?x"], "no query"),
    (["--http", "127.0.0.1:0", "--oauth-scope", "x"], "need --oauth-issuer"),
    (["--http", "127.0.0.1:0", "--oauth-audience", "x"], "need --oauth-issuer"),
    (["--http", "127.0.0.1:0", "--oauth-issuer", "https://example.org", "--oauth-scope", '"'], "quotes"),
    (["--http", "127.0.0.1:0", "--oauth-issuer", "https://example.org", "--token-file", "/t"], "contradict"),
    (["--http", "127.0.0.1:0", "--public-url", "http://example.org"], "https"),
    (["--http", "unix:/tmp/none.sock", "--oauth-issuer", "https://example.org"], "--public-url"),
    (["--oauth-issuer", "https://example.org"], "for --http only"),
]


@pytest.mark.parametrize(("args", "why"), WRONG_OPTIONS, ids=lambda v: " ".join(v)[:70] if isinstance(v, list) else "")
def test_wrong_options(run_cellgate: Run, args: list[str], why: str) -> None:
    p = run_cellgate("mcp", "serve", *args)
    assert p.returncode == 2 and p.stdout == "" and why in p.stderr and p.stderr.count("\n") == 1


@pytest.mark.parametrize("tls", [True, False])
def test_all_addresses(serve: Serve, issuer: Issuer, certificate: Any, tls: bool) -> None:
    options = ["--public-url", "https://tools.example.org/mcp", "--oauth-issuer", issuer.url]
    server = serve(*options, *(certificate.options if tls else ["--behind-proxy"]), address="0.0.0.0:0")
    assert server.url.startswith("https://0.0.0.0:" if tls else "http://0.0.0.0:")
    server.url = server.url.replace("0.0.0.0", "127.0.0.1")
    server.tls = certificate.context() if tls else None
    issuer.audience = "https://tools.example.org/mcp"
    reply = ping(server, None)
    place = "https://tools.example.org/.well-known/oauth-protected-resource/mcp"
    assert reply.status == 401 and f'resource_metadata="{place}"' in reply.headers["WWW-Authenticate"]
    server.token = issuer.token()
    session = Session(server)
    for host, status in (("tools.example.org", 200), ("tools.example.org:8443", 200), ("x.example.org", 421)):
        assert session.request("ping", Host=host).status == status
    # Nothing that a proxy adds says who it is.
    forged = {"X_Forwarded_User": "bob", "X_Forwarded_Host": "x.example.org", "Forwarded": "for=127.0.0.1"}
    assert session.request("ping", **forged).status == 200
    server.token = ""
    assert session.request("ping", **forged).status == 401
