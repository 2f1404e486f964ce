"""`cellgate mcp serve --http` with a certificate, and what it refuses as one."""

import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import certificates
import pytest
from mcp_http.helpers import Server, Session
from mcp_http.test_ends import front
from processes import eventually, gate

Serve = Callable[..., Server]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
HERE = Path(__file__).parent


@pytest.fixture
def server(serve: Serve, certificate: certificates.Files) -> Server:
    server = serve(*certificate.options)
    server.tls = certificate.context()
    return server


def test_a_session(server: Server, workspace: Path) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    session = Session(server)
    assert session.text("print('x' * 4000)").count("x") == 4000
    assert session.text(f"len({'y' * (1 << 20)!r})") == str(1 << 20)
    # Events, and an answer after them.
    go = gate(workspace)
    reply = session.execute("print('first', flush=True)\nopen('go').read()", token="t")
    events = reply.events()
    assert next(events)["method"] == "notifications/progress"
    go()
    assert "first" in json.dumps(list(events)[-1])
    # A client that vanishes leaves its cell, as without TLS.
    session.begin_endless(workspace).close()
    assert session.call("cancel_cell", execution_id="cell-4").status == 200
    assert session.text("2") == "2"
    assert session.delete().status == 204


def test_curl(server: Server, certificate: certificates.Files, slowness: float) -> None:
    health = server.url.replace("/mcp", "/health")
    argv = ["curl", "-sS", "--max-time", str(20 * slowness), health]
    p = subprocess.run([*argv, "--cacert", certificate.authority], capture_output=True, text=True)
    assert json.loads(p.stdout)["status"] == "ok"
    p = subprocess.run(argv, capture_output=True, text=True)
    assert p.returncode == 60 and p.stdout == ""  # the client's own check
    p = subprocess.run([*argv[:-1], health.replace("https", "http")], capture_output=True, text=True)
    assert p.returncode != 0 and p.stdout == ""


@pytest.mark.parametrize(
    ("version", "served"),
    [(ssl.TLSVersion.TLSv1_3, True), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_1, False)],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_versions_of_tls(
    server: Server, certificate: certificates.Files, version: ssl.TLSVersion, served: bool
) -> None:
    server.tls = certificate.context()
    server.tls.set_ciphers("ALL:@SECLEVEL=0")
    server.tls.minimum_version = server.tls.maximum_version = version
    if served:
        assert server.request("GET", "/health").status == 200
    else:
        with pytest.raises(OSError):
            server.request("GET", "/health")


def test_the_token_is_needed(server: Server) -> None:
    assert server.request("POST", headers={"Authorization": None}).status == 401


def test_the_sdk(server: Server, certificate: certificates.Files, test_python: str, slowness: float) -> None:
    argv = [test_python, str(HERE / "sdk_client.py"), server.url, server.token, "1"]
    env = {**os.environ, "SSL_CERT_FILE": str(certificate.authority)}
    p = subprocess.run(argv, capture_output=True, text=True, timeout=60 * slowness, env=env)
    assert p.returncode == 0, p.stderr
    assert json.loads(p.stdout)["state"] == [[False, "(no output)"], [False, "42"]]


@pytest.mark.no_sanitizer  # its runtime opens files
def test_the_front_has_no_file(server: Server, certificate: certificates.Files) -> None:
    """Not even the key's, which it has in memory."""
    Session(server)
    pid = front(server)
    opened = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
    assert not [x for x in opened if x.startswith(str(certificate.key.parent))]


def refused(run_cellgate: Run, *args: str | Path) -> str:
    p = run_cellgate("mcp", "serve", "--http", "127.0.0.1:0", *args)
    assert p.returncode == 2 and p.stdout == "" and p.stderr.count("\n") == 1
    return p.stderr


@pytest.fixture
def renewed(serve: Serve, tmp_path: Path) -> tuple[Server, certificates.Files, certificates.Files]:
    """A server, its files, and others that may take their place: each of an authority of its own."""
    hidden = tmp_path / "state/cellgate"
    for folder in (hidden, tmp_path / "next"):
        folder.mkdir(0o700, parents=True)
    first, second = certificates.make(hidden), certificates.make(tmp_path / "next")
    server = serve(*first.options, env={"XDG_STATE_HOME": str(tmp_path / "state")})
    server.tls = first.context()
    return server, first, second


@pytest.mark.slow  # the files are looked at every 10 s
def test_a_renewed_certificate_is_for_new_connections(
    renewed: tuple[Server, certificates.Files, certificates.Files],
) -> None:
    server, first, second = renewed
    session = Session(server)
    kept = session.begin(session.call_message("execute_ipython_cell", code="import time; time.sleep(15); 42"))
    cert, key = first.cert, first.key
    os.replace(second.cert, cert)  # as a rename by the program that renews it
    os.replace(second.key, key)
    server.tls = second.context()

    def served() -> bool:
        try:
            return server.request("GET", "/health").status == 200
        except ssl.SSLError:
            return False

    eventually(served, 30)
    # The connection and the session from before go on.
    assert "42" in kept.getresponse().read().decode()
    assert session.text("1") == "1"
    with pytest.raises(ssl.SSLError):
        server.tls = first.context()
        server.request("GET", "/health")


@pytest.mark.slow  # the files are looked at every 10 s
def test_a_certificate_that_does_not_fit_its_key_is_not_taken(
    renewed: tuple[Server, certificates.Files, certificates.Files],
) -> None:
    server, first, second = renewed
    os.replace(second.cert, first.cert)
    eventually(lambda: "the certificate is not renewed" in server.log.read_text(), 30)
    assert server.request("GET", "/health").status == 200
    second.key.chmod(0o640)
    os.replace(second.key, first.key)
    eventually(lambda: "0600" in server.log.read_text(), 30)
    assert server.request("GET", "/health").status == 200


@pytest.mark.slow
def test_a_key_where_cells_could_read_the_next_one_takes_a_restart(serve: Serve, tmp_path: Path) -> None:
    for name in ("tls", "next"):
        (tmp_path / name).mkdir()
    first, second = (certificates.make(tmp_path / name) for name in ("tls", "next"))
    server = serve(*first.options)
    server.tls = first.context()
    os.replace(second.cert, first.cert)
    os.replace(second.key, first.key)
    eventually(lambda: "restart the server" in server.log.read_text(), 30)
    assert server.request("GET", "/health").status == 200


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_read(
    run_cellgate: Run, certificate: certificates.Files, tmp_path: Path, mode: int
) -> None:
    (tmp_path / "work").mkdir()
    key = tmp_path / "key.pem"
    shutil.copy(certificate.key, key)
    key.chmod(mode)
    why = refused(run_cellgate, "--tls-cert", certificate.cert, "--tls-key", key, "--workspace", tmp_path / "work")
    assert str(key) in why and "0600" in why


def test_files_that_are_refused(run_cellgate: Run, certificate: certificates.Files, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "other").mkdir()
    other = certificates.make(tmp_path / "other")
    text, large, own = tmp_path / "text", tmp_path / "large", tmp_path / "work/key.pem"
    for file, content in ((text, b"no PEM"), (large, b"x" * (17 << 10)), (own, certificate.key.read_bytes())):
        file.touch(0o600)
        file.write_bytes(content)
    for cert, key, why in (
        (certificate.cert, other.key, "do not match"),
        (certificate.cert, text, "PEM"),
        (text, certificate.key, "PEM"),
        (tmp_path / "none", certificate.key, "none"),
        (certificate.cert, tmp_path / "none", "none"),
        (certificate.cert, tmp_path / "other", "is not a file"),
        (certificate.cert, large, "--tls-key"),
        (certificate.cert, own, "in the workspace"),
    ):
        assert why in refused(run_cellgate, "--tls-cert", cert, "--tls-key", key, "--workspace", tmp_path / "work")
    assert "belong together" in refused(run_cellgate, "--tls-cert", certificate.cert)
    unix = ["mcp", "serve", "--http", f"unix:{tmp_path}/mcp.sock", "--workspace", tmp_path / "work"]
    p = run_cellgate(*unix, *certificate.options)
    assert p.returncode == 2 and "a Unix socket needs no TLS" in p.stderr
