"""`cellgate mcp login` and `logout`: the person is a function that opens the address that is printed."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from oauth_server import ACCESS, REFRESH, SECRET, OAuthServer, oauth_server

pytestmark = pytest.mark.own_supervisor  # of a state of its own

TOKENS = [ACCESS, REFRESH, SECRET, "CODE"]


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as s:
        yield s


def open_page(url: str) -> tuple[int, str, dict[str, str]]:
    """As a browser: follows redirects. 0: no answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=20) as r:
            return r.status, r.read().decode(), dict(r.headers.items())
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode(), dict(e.headers.items())
    except OSError:
        return 0, "", {}


class Login:
    """Runs `cellgate mcp login srv`, with its state in a folder of the test."""

    def __init__(self, cellgate: Path, folder: Path, slowness: float) -> None:
        self.cellgate, self.folder, self.slowness = cellgate, folder, slowness
        self.state = folder / "state"
        self.env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
        self.env |= {"XDG_STATE_HOME": str(self.state), "no_proxy": "*"}
        self.page: tuple[int, str, dict[str, str]] | None = None
        self.address = ""

    def define(self, server: OAuthServer, **oauth: Any) -> Path:
        file = self.folder / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {"srv": {"url": server.url, "oauth": oauth}}}))
        return file

    def __call__(
        self, *args: str | Path, person: Callable[[str], Any] | None = open_page, timeout: str = "20"
    ) -> subprocess.CompletedProcess[str]:
        words = [str(self.cellgate), "mcp", "login", "srv", "--timeout", timeout, *map(str, args)]
        p = subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert p.stdout and p.stderr
        out = ""
        thread = None
        for line in p.stdout:
            out += line
            if m := re.match(r"  (http\S+)$", line):
                self.address = m[1]
                if person:

                    def visit(go: Callable[[str], Any] = person, url: str = m[1]) -> None:
                        self.page = go(url)

                    thread = threading.Thread(target=visit)
                    thread.start()
        err = p.stderr.read()
        status = p.wait(30 * self.slowness)
        if thread:
            thread.join(30 * self.slowness)
        for secret in TOKENS:
            assert secret not in out + err
        return subprocess.CompletedProcess(words, status, out, err)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(p.read_text()) for p in sorted((self.state / "cellgate/mcp-login").glob("*.json"))]


@pytest.fixture
def login(cellgate: Path, tmp_path: Path, slowness: float) -> Login:
    return Login(cellgate, tmp_path, slowness)


def test_signs_in(login: Login, server: OAuthServer) -> None:
    r = login("--mcp", login.define(server))
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout.endswith("Signed in at srv for: r.\n")
    [record] = login.records()
    assert record["token"]["access"] == ACCESS
    assert record["token"]["resource"] == server.url
    [registration] = server.requests("/register")
    assert registration["application_type"] == "native"
    assert "refresh_token" in registration["grant_types"]
    [asked] = server.requests("/authorize")
    assert asked["code_challenge_method"] == "S256"
    assert (asked["resource"], asked["scope"]) == (server.url, "r")
    assert asked["redirect_uri"] == registration["redirect_uris"][0]
    [token] = server.requests("/token")
    assert token["resource"] == server.url
    assert "client_secret" not in token  # it is in the header


def test_files_are_the_users_own(login: Login, server: OAuthServer) -> None:
    assert login("--mcp", login.define(server)).returncode == 0
    folder = login.state / "cellgate/mcp-login"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert {p.suffix for p in files} == {".json", ".lock"}
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in files)
    folder.chmod(0o755)
    r = login("--mcp", login.define(server))
    assert r.returncode == 2
    assert "mode 0700" in r.stderr


def test_a_folder_that_sandboxes_do_not_hide(login: Login, server: OAuthServer) -> None:
    """With too much of its path missing, no sandbox has made and hidden it: one that runs could read the token."""
    login.state = login.folder / "a/b/c/d/e"
    login.env["XDG_STATE_HOME"] = str(login.state)
    r = login("--mcp", login.define(server))
    assert r.returncode == 2
    assert "no token can be stored" in r.stderr
    assert not (login.folder / "a").exists()


def test_the_page_loads_nothing(login: Login, server: OAuthServer) -> None:
    login("--mcp", login.define(server))
    assert login.page
    status, page, fields = login.page
    assert status == 200
    assert "default-src 'none'" in fields["Content-Security-Policy"]
    assert fields["Cache-Control"] == "no-store"
    assert not re.search(r"src=|href=|http|CODE", page)


def test_only_the_redirect_of_this_login_counts(login: Login, server: OAuthServer) -> None:
    """Other states, hosts, paths and methods get errors, and the login goes on."""
    seen: list[int] = []

    def person(url: str) -> Any:
        back = dict(re.findall(r"[?&](\w+)=([^&]*)", url))
        callback = urllib.request.unquote(back["redirect_uri"])  # type: ignore[attr-defined]
        state = back["state"]
        seen.append(open_page(f"{callback}?code=EVIL&state=wrong")[0])
        seen.append(open_page(f"{callback}?code=EVIL")[0])
        seen.append(open_page(f"{callback}?code=EVIL&code=EVIL&state={state}")[0])
        seen.append(open_page(callback.replace("/callback", "/other") + f"?code=EVIL&state={state}")[0])
        seen.append(open_page(callback.replace("127.0.0.1", "localhost") + f"?code=EVIL&state={state}")[0])
        first = open_page(url)
        seen.append(open_page(f"{callback}?code=EVIL&state={state}")[0])
        return first

    r = login("--mcp", login.define(server), person=person)
    assert r.returncode == 0, r.stderr
    assert seen == [400, 400, 400, 404, 404, 0]  # after the right one nobody listens
    assert [t["code"] for t in server.requests("/token")] == ["CODE"]


OTHER_USER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(f"GET {sys.argv[2]} HTTP/1.1\\r\\nHost: 127.0.0.1:{sys.argv[1]}\\r\\n\\r\\n".encode())
if sys.argv[3] == "close":
    sys.exit()
try:
    print(s.recv(100))
except OSError:
    print(b"")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("habit", ["wait", "close"])
def test_other_users_are_not_answered(login: Login, server: OAuthServer, habit: str) -> None:
    """They can read the state in the browser's arguments, and could sign this user in at their account."""
    seen: list[str] = []

    def person(url: str) -> Any:
        back = dict(re.findall(r"[?&](\w+)=([^&]*)", url))
        callback = urlsplit(unquote(back["redirect_uri"]))
        words = [
            sys.executable,
            "-c",
            OTHER_USER,
            str(callback.port),
            f"/callback?code=EVIL&state={back['state']}",
            habit,
        ]
        seen.append(subprocess.run(words, capture_output=True, text=True, timeout=20).stdout)
        return open_page(url)

    r = login("--mcp", login.define(server), person=person)
    assert r.returncode == 0, r.stderr
    assert seen == [{"wait": "b''\n", "close": ""}[habit]]
    assert [t["code"] for t in server.requests("/token")] == ["CODE"]


def test_ipv6_socket_of_a_browser(login: Login, server: OAuthServer) -> None:
    """Such sockets reach IPv4 addresses, and are in another table of the kernel."""

    def person(url: str) -> Any:
        back = dict(re.findall(r"[?&](\w+)=([^&]*)", url))
        server.pkce = back["code_challenge"]
        port = urlsplit(unquote(back["redirect_uri"])).port
        with socket.socket(socket.AF_INET6) as s:
            s.connect(("::ffff:127.0.0.1", port))
            s.sendall(
                f"GET /callback?code=CODE&state={back['state']} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
            )
            s.recv(100)

    if not Path("/proc/net/tcp6").exists():
        pytest.skip("the kernel has no IPv6")
    assert login("--mcp", login.define(server), person=person).returncode == 0


def test_a_client_is_registered_once(login: Login, server: OAuthServer) -> None:
    for _ in range(2):
        assert login("--mcp", login.define(server)).returncode == 0
    assert len(server.requests("/register")) == 1
    first, second = server.requests("/authorize")
    assert first["redirect_uri"] == second["redirect_uri"]
    assert first["state"] != second["state"]
    assert first["code_challenge"] != second["code_challenge"]


def test_credentials_are_not_sent_to_another_issuer(login: Login, server: OAuthServer) -> None:
    assert login("--mcp", login.define(server)).returncode == 0
    with oauth_server() as other:
        server.resource["authorization_servers"] = [other.origin]
        assert login("--mcp", login.define(server)).returncode == 0
        assert len(other.requests("/register")) == 1
        assert not any(SECRET in str(fields) + str(form) for _, p, fields, form in other.seen if p != "/token")
    [record] = login.records()
    assert record["client"]["issuer"] == record["token"]["issuer"] == other.origin


def test_registered_by_the_definition(login: Login, server: OAuthServer) -> None:
    del server.metadata["registration_endpoint"]
    r = login("--mcp", login.define(server))
    assert r.returncode == 2
    assert '"oauth": {"clientId": ...}' in r.stderr
    r = login("--mcp", login.define(server, clientId="mine", clientSecret=SECRET, issuer=server.origin, scopes=["w"]))
    assert r.returncode == 0, r.stderr
    assert server.requests("/authorize")[0]["scope"] == "w r"
    assert SECRET not in json.dumps(login.records())


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"code_challenge_methods_supported": ["plain"]}}, "PKCE"),
    ({"metadata": {"code_challenge_methods_supported": None}}, "PKCE"),
    ({"metadata": {"issuer": "https://evil.example"}}, "issuer"),
    ({"metadata": {"token_endpoint": "http://evil.example/token"}}, "https://"),
    ({"metadata": {"authorization_endpoint": "file:///etc/passwd"}}, "https://"),
    ({"resource": {"resource": "https://evil.example/mcp"}}, "must not be sent here"),
    ({"resource": {"authorization_servers": []}}, "authorization server"),
    ({"redirect": {"iss": "https://evil.example"}}, "names another issuer"),
    ({"redirect": {"iss": "https://evil.example", "error": "EVIL-TEXT"}}, "names another issuer"),
    ({"metadata": {"authorization_response_iss_parameter_supported": True}}, "names no issuer"),
    ({"redirect": {"error": "access_denied", "code": ""}}, "access_denied"),
    ({"redirect": {"code": ""}}, "no code"),
    ({"token": {"token_type": "DPoP"}}, "Bearer"),
    ({"token": {"access_token": "a\r\nb"}}, "access_token"),
]


@pytest.mark.parametrize(("changes", "says"), REFUSED, ids=[s for _, s in REFUSED])
def test_refusals(login: Login, server: OAuthServer, changes: dict[str, Any], says: str) -> None:
    for name, members in changes.items():
        getattr(server, name).update(members)
    r = login("--mcp", login.define(server))
    assert r.returncode == 2
    assert r.stderr.startswith("cellgate mcp login: ")
    assert says in r.stderr
    assert "EVIL-TEXT" not in r.stderr
    assert all("token" not in record for record in login.records())


def test_documents_elsewhere_are_not_fetched(login: Login, server: OAuthServer) -> None:
    """A redirect to another origin is no document, and that origin gets no request."""
    with oauth_server() as other:
        there = {"Location": other.origin + "/.well-known/oauth-protected-resource/mcp"}
        server.pages["/.well-known/oauth-protected-resource/mcp"] = (302, there, b"")
        assert login("--mcp", login.define(server)).returncode == 0  # it is its own authorization server
        assert other.seen == []


def test_redirects_of_documents_end(login: Login, server: OAuthServer) -> None:
    path = "/.well-known/oauth-protected-resource/mcp"
    server.pages[path] = (302, {"Location": path}, b"")
    r = login("--mcp", login.define(server))
    assert (r.returncode, len(server.requests(path))) == (2, 4)
    assert "redirects" in r.stderr


def test_large_documents_are_refused(login: Login, server: OAuthServer) -> None:
    server.pages["/.well-known/oauth-authorization-server"] = (200, {}, b'{"x":"' + b"x" * 2**20 + b'"}')
    r = login("--mcp", login.define(server))
    assert r.returncode == 2
    assert "limit" in r.stderr or "large" in r.stderr or "262144" in r.stderr, r.stderr


def test_nobody_signs_in(login: Login, server: OAuthServer) -> None:
    r = login("--mcp", login.define(server), person=None, timeout="0.3")
    assert r.returncode == 2
    assert "nobody signed in" in r.stderr


def test_by_name_and_logout(login: Login, server: OAuthServer, cellgate: Path) -> None:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [cellgate, "mcp", *args], env=login.env, capture_output=True, text=True, timeout=30 * login.slowness
        )

    assert "nothing is stored" in run("login", "srv").stderr
    assert login("--mcp", login.define(server)).returncode == 0
    assert login().returncode == 0  # the server of that name that is known
    r = run("logout", "srv")
    kept = "Its tokens were not revoked, and stay valid until their life ends: "
    assert (r.returncode, r.stdout) == (
        0,
        f"Removed what was stored about srv.\n{kept}the authorization server {server.origin} does not offer to revoke tokens.\n",
    )
    assert login.records() == []
    r = run("logout", "srv")
    assert r.returncode == 2
    assert "nothing is stored" in r.stderr


def _logout(login: Login, *args: str | Path) -> str:
    words = [login.cellgate, "mcp", "logout", "srv", *args]
    r = subprocess.run(words, env=login.env, capture_output=True, text=True, timeout=60 * login.slowness)
    assert (r.returncode, r.stderr) == (0, "") and r.stdout.startswith("Removed what was stored about srv.\n")
    assert login.records() == [] and not any(secret in r.stdout for secret in TOKENS)
    return r.stdout.splitlines()[1]


@pytest.mark.parametrize("given", [True, False])
def test_logout_revokes_the_tokens(login: Login, server: OAuthServer, given: bool) -> None:
    server.metadata["revocation_endpoint"] = server.origin + "/revoke"
    file = login.define(server)
    assert login("--mcp", file).returncode == 0
    assert _logout(login, *(["--mcp", file] if given else [])) == "Its tokens were revoked."
    assert server.requests("/revoke") == [
        {"token": REFRESH, "token_type_hint": "refresh_token"},
        {"token": ACCESS, "token_type_hint": "access_token"},
    ]
    [header] = {fields["Authorization"] for _, path, fields, _ in server.seen if path == "/revoke"}
    assert base64.b64decode(header.removeprefix("Basic ")).decode() == f"CLIENT:{SECRET}"


@pytest.mark.parametrize("place", ["http://example.com/revoke", "/revoke", "https://u:p@example.com/", 7, {}])
def test_unusable_place_to_revoke_tokens_counts_as_none(login: Login, server: OAuthServer, place: object) -> None:
    server.metadata["revocation_endpoint"] = place
    assert login("--mcp", login.define(server)).returncode == 0
    assert _logout(login).endswith("does not offer to revoke tokens.")


def test_logout_says_why_tokens_are_not_revoked(login: Login, server: OAuthServer) -> None:
    server.metadata["revocation_endpoint"] = server.origin + "/revoke"
    why = f"{server.origin}/revoke answered 400, unsupported_token_type."
    for kinds, says in (
        (("refresh_token", "access_token"), "Its tokens were not revoked, and stay valid until their life ends: "),
        (("refresh_token",), "Not all of its tokens were revoked; the others stay valid until their life ends: "),
    ):
        server.seen.clear()
        server.not_revoked = set(kinds)
        assert login("--mcp", login.define(server)).returncode == 0
        assert _logout(login) == says + why
        assert [form["token"] for form in server.requests("/revoke")] == [REFRESH, ACCESS]
    # Tokens are not sent to an issuer that has not given them.
    server.not_revoked = set()
    assert login("--mcp", login.define(server)).returncode == 0
    [record] = (login.state / "cellgate/mcp-login").glob("*.json")
    text = json.loads(record.read_text())
    text["token"]["issuer"] = "https://other.example"
    record.write_text(json.dumps(text))
    assert "they are of https://other.example, and the server names" in _logout(login)
    assert len(server.requests("/revoke")) == 2
    # The server is gone.
    assert login("--mcp", login.define(server)).returncode == 0
    server.server_close()
    server.shutdown()
    assert "Its tokens were not revoked" in _logout(login)


def test_the_browser_gets_the_address(login: Login, server: OAuthServer, tmp_path: Path) -> None:
    program = tmp_path / "bin/xdg-open"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$#:$1" > {tmp_path}/opened\n')
    program.chmod(0o755)
    login.env |= {"DISPLAY": ":9", "PATH": f"{program.parent}:{login.env['PATH']}"}
    assert login("--mcp", login.define(server)).returncode == 0
    assert (tmp_path / "opened").read_text() == f"1:{login.address}\n"
    (tmp_path / "opened").unlink()
    assert login("--no-browser", "--mcp", login.define(server)).returncode == 0
    assert not (tmp_path / "opened").exists()


# ---- calls of tools


CREDENTIALS = {"grantType": "client_credentials", "clientId": "ci", "clientSecret": SECRET}
CALL = "from mcptools.srv import whoami\nprint(whoami.run())"


def run(login: Login, mcp: Path, code: str = CALL) -> subprocess.CompletedProcess[str]:
    (login.folder / "work").mkdir(exist_ok=True)
    words = [login.cellgate, "run", "--mcp", mcp, "--workspace", login.folder / "work", "--approve", "all", "-c", code]
    r = subprocess.run(words, env=login.env, capture_output=True, text=True, timeout=60 * login.slowness)
    for secret in TOKENS:
        assert secret not in r.stdout + r.stderr
    return r


def test_calls_with_a_token(login: Login, server: OAuthServer) -> None:
    mcp = login.define(server)
    r = run(login, mcp)
    assert r.returncode != 0
    assert "run: cellgate mcp login srv" in r.stderr
    assert login().returncode == 0  # by the name only: the tool server has stored what it needs
    r = run(login, mcp)
    assert (r.returncode, r.stdout) == (0, "you\n"), r.stderr
    assert all("Authorization" in fields for m, p, fields, form in server.seen if form.get("method") == "tools/call")


def test_refused_token_is_refreshed(login: Login, server: OAuthServer) -> None:
    mcp = login.define(server)
    assert login("--mcp", mcp).returncode == 0
    server.accepts = server.token["access_token"] = ACCESS + "-2"
    r = run(login, mcp)
    assert (r.returncode, r.stdout) == (0, "you\n"), r.stderr
    assert [t["grant_type"] for t in server.requests("/token")] == ["authorization_code", "refresh_token"]
    assert login.records()[0]["token"]["access"] == ACCESS + "-2"


def test_the_cause_is_in_the_log_only(login: Login, server: OAuthServer) -> None:
    """A server can name any address of the host's network: a cell does not see what is there."""
    mcp = login.define(server)
    assert login("--mcp", mcp).returncode == 0
    server.accepts = "nothing"
    server.pages["/.well-known/oauth-authorization-server"] = (509, {}, b"")
    r = run(login, mcp, "import mcptools.srv.whoami")
    assert "log says why" in r.stderr, r.stderr
    assert "509" not in r.stderr


def test_refusals_end(login: Login, server: OAuthServer) -> None:
    """A server that accepts no token: few requests, and its text is shown without the token."""
    mcp = login.define(server)
    assert login("--mcp", mcp).returncode == 0
    server.accepts = "nothing"
    r = run(login, mcp)
    assert r.returncode != 0
    assert "401" in r.stderr
    assert len(server.requests("/token")) < 10


def test_authorization_server_that_does_not_answer(login: Login, server: OAuthServer) -> None:
    """The start of its server fails in time, and nothing waits for it at the end."""
    mcp = login.define(server)
    assert login("--mcp", mcp).returncode == 0
    server.accepts, server.token_waits = "nothing", 25
    definitions = json.loads(mcp.read_text())
    definitions["mcpServers"]["srv"]["startTimeout"] = 1
    mcp.write_text(json.dumps(definitions))
    started = time.monotonic()
    assert run(login, mcp).returncode == 2
    assert time.monotonic() - started < 24 * login.slowness


def test_more_rights(login: Login, server: OAuthServer) -> None:
    mcp = login.define(server)
    assert login("--mcp", mcp).returncode == 0
    server.scope_of_calls = "w"
    r = run(login, mcp)
    assert "more rights" in r.stderr
    assert "run: cellgate mcp login srv" in r.stderr
    assert login().returncode == 0
    assert [a["scope"] for a in server.requests("/authorize")] == ["r", "r w"]
    r = run(login, mcp)
    assert "may lack this permission" in r.stderr


def test_client_credentials(login: Login, server: OAuthServer) -> None:
    mcp = login.define(server, **CREDENTIALS, issuer=server.origin)
    r = run(login, mcp)
    assert (r.returncode, r.stdout) == (0, "you\n"), r.stderr
    assert [t["grant_type"] for t in server.requests("/token")] == ["client_credentials"]
    assert "no person signs in" in login("--mcp", mcp).stderr


def test_the_secret_is_for_one_issuer(login: Login, server: OAuthServer) -> None:
    """Neither another authorization server that the server names, nor one without metadata gets it."""
    mcp = login.define(server, **CREDENTIALS, issuer=server.origin)
    with oauth_server() as other:
        server.resource["authorization_servers"] = [other.origin]
        r = run(login, mcp)
        assert r.returncode != 0
        assert other.requests("/token") == []
        person = login.define(server, clientId="mine", clientSecret=SECRET, issuer=server.origin)
        assert f'for the "issuer" {server.origin}' in login("--mcp", person).stderr
        assert other.requests("/authorize") == other.requests("/token") == []
    mcp = login.define(server, **CREDENTIALS, issuer=server.origin)
    for place in ("oauth-protected-resource/mcp", "oauth-protected-resource", "oauth-authorization-server"):
        server.pages[f"/.well-known/{place}"] = (404, {}, b"")
    r = run(login, mcp)
    assert r.returncode != 0
    assert server.requests("/token") == []
    r = run(login, login.define(server, **CREDENTIALS))
    assert '"issuer" must be given with "clientSecret"' in r.stderr


def test_own_header(login: Login, server: OAuthServer) -> None:
    """A token in the definition's own headers: cellgate gets none."""
    mcp = login.folder / "mcp.json"
    mcp.write_text(
        json.dumps({"mcpServers": {"srv": {"url": server.url, "headers": {"Authorization": f"Bearer {ACCESS}"}}}})
    )
    assert run(login, mcp).stdout == "you\n"
    server.accepts = "nothing"
    assert "cellgate mcp login" not in run(login, mcp).stderr
    assert not login.records()
