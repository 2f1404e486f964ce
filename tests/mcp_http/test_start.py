"""What `cellgate mcp serve --http` refuses when it starts, and the file of the token."""

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import certificates
import pytest
from mcp_http.helpers import Server, Session
from shared_supervisor import runtime_folder

Serve = Callable[..., Server]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

WRONG = [
    (["--http", "0.0.0.0:0"], "needs TLS"),
    (["--http", "192.0.2.1:80"], "needs TLS"),
    (["--http", "[::]:80"], "needs TLS"),
    (["--http", "example.org:80"], "give an address of this machine"),
    (["--http", "127.0.0.1"], "HOST:PORT"),
    (["--http", "127.0.0.1:65536"], "65535"),
    (["--http", "127.0.0.1:x"], "HOST:PORT"),
    (["--http", ""], "HOST:PORT"),
    (["--http", "unix:"], "HOST:PORT or unix:PATH"),
    (["--http", "unix:/none/such.sock"], "/none/such.sock"),
    (["--http", "unix:/" + "x" * 200], "too long"),
    (["--http", "127.0.0.1:0", "--max-sessions", "0"], "--max-sessions"),
    (["--http", "127.0.0.1:0", "--max-sessions", "257"], "256"),
    (["--http", "127.0.0.1:0", "--max-sessions-per-client", "0"], "--max-sessions-per-client"),
    (["--http", "127.0.0.1:0", "--idle", "0"], "--idle"),
    (["--http", "127.0.0.1:0", "--allow-origin", "example.org"], "https://example.org"),
    (["--http", "127.0.0.1:0", "--allow-origin", "https://example.org/"], "without a path"),
    (["--http", "127.0.0.1:0", "--token-file", "token"], "in the workspace"),
    (["--http", "unix:mcp.sock"], "in the workspace"),
    (["--http", "127.0.0.1:0", "--token-file", "/none/token"], "/none/token"),
    (["--http", "127.0.0.1:0", "--mcp", "none.json"], "none.json"),
    (["--http", "127.0.0.1:0", "--workspace", "none"], "workspace none"),
    (["--http", "127.0.0.1:0", "--print-config", "claude"], "--print-config"),
    (["--token-file", "/token"], "for --http only"),
    (["--idle", "5"], "for --http or the toolset sessions only"),
    (["--tls-key", "/key"], "for --http only"),
]


@pytest.mark.parametrize(("args", "why"), WRONG, ids=lambda v: " ".join(v)[:60] if isinstance(v, list) else "")
def test_wrong_options(run_cellgate: Run, args: list[str], why: str) -> None:
    p = run_cellgate("mcp", "serve", *args)
    assert p.returncode == 2 and p.stdout == ""
    assert why in p.stderr and p.stderr.count("\n") == 1


@pytest.mark.parametrize("address", ["localhost:0", "[::1]:0", "127.0.0.2:0", "0"])
def test_loopback_addresses(serve: Serve, address: str) -> None:
    if address.startswith("[") and not socket.has_ipv6:
        pytest.skip("no IPv6")
    assert Session(serve(address=address)).request("ping").status == 200


def test_an_address_that_is_taken(serve: Serve, run_cellgate: Run, tmp_path: Path) -> None:
    server = serve()
    taken = run_cellgate("mcp", "serve", "--http", f"127.0.0.1:{server.connect().port}")
    assert taken.returncode == 2 and "in use" in taken.stderr
    path = tmp_path / "mcp.sock"
    serve(address=f"unix:{path}")
    (tmp_path / "work").mkdir()
    taken = run_cellgate("mcp", "serve", "--http", f"unix:{path}", "--workspace", tmp_path / "work")
    assert taken.returncode == 2 and "another server listens" in taken.stderr
    assert path.exists()
    # What is no socket is not replaced.
    file = tmp_path / "file"
    file.write_text("mine")
    taken = run_cellgate("mcp", "serve", "--http", f"unix:{file}", "--workspace", tmp_path / "work")
    assert taken.returncode == 2 and str(file) in taken.stderr and file.read_text() == "mine"


def test_the_token_is_made_once(serve: Serve) -> None:
    first, second = serve(), serve()
    assert first.token == second.token and len(first.token) == 64
    assert first.token_file and first.token_file.stat().st_mode & 0o777 == 0o600
    assert first.token_file.is_relative_to(os.environ["XDG_STATE_HOME"])
    assert first.token not in first.line + first.log.read_text()


def test_a_file_of_the_users_own(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("A" * 40 + "\n")
    file.chmod(0o600)
    server = serve("--token-file", file)
    assert server.token == "A" * 40 and Session(server).request("ping").status == 200


@pytest.fixture
def shown() -> Iterator[Path]:
    """A folder that kernels see: /tmp is their own."""
    with tempfile.TemporaryDirectory(prefix="cellgate-test-", dir=Path.home()) as path:
        yield Path(path)


@pytest.fixture
def runtime() -> Iterator[Path]:
    with runtime_folder() as path:
        yield path


def test_cells_cannot_read_the_servers_own_files(runtime: Path, serve: Serve, shown: Path) -> None:
    token, certificate, other = shown / "token", certificates.make(shown), shown / "other"
    second = shown / "second"
    for path, letter in ((token, "A"), (second, "B")):
        path.write_text(letter * 40 + "\n")
        path.chmod(0o600)
    other.write_text("readable")
    private = {"CELLGATE_PRIVATE": "", "XDG_RUNTIME_DIR": str(runtime)}
    server = serve("--token-file", token, "--approver-token-file", second, *certificate.options, env=private)
    server.tls = certificate.context()
    session = Session(server)
    for path, seen in ((token, "AAAA"), (second, "BBBB"), (certificate.key, "PRIVATE"), (other, "readable")):
        code = f"try: print(open({str(path)!r}).read())\nexcept OSError as e: print(e)"
        assert (seen in session.text(code)) == (path == other)
        assert (seen in session.text(f"!cat {path}")) == (path == other)


@pytest.mark.parametrize("option", ["--token-file", "--approver-token-file", "--tls-key", "--http"])
@pytest.mark.parametrize("write", ["below", "root"])
def test_files_where_cells_may_write(run_cellgate: Run, tmp_path: Path, option: str, write: str) -> None:
    for name in ("work", "own"):
        (tmp_path / name).mkdir()
    settings = tmp_path / "settings.json"
    allowed = {"below": str(tmp_path / "own"), "root": str(tmp_path)}[write]
    filesystem = {"denyRead": [], "allowWrite": [allowed], "denyWrite": []}
    network = {"allowedDomains": [], "deniedDomains": []}
    settings.write_text(json.dumps({"filesystem": filesystem, "network": network}))
    words = ["--http", "127.0.0.1:0", option, f"{'unix:' if option == '--http' else ''}{tmp_path}/own/file"]
    p = run_cellgate("mcp", "serve", *words, "--sandbox", settings, "--workspace", tmp_path / "work")
    assert p.returncode == 2 and option in p.stderr and "allowWrite" in p.stderr, p.stderr


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("A" * 40, 0o640, "mode 0600"),
        ("A" * 40, 0o604, "mode 0600"),
        ("A" * 31, 0o600, "32 to 256"),
        ("A" * 257, 0o600, "32 to 256"),
        ("A" * 40 + "\nB", 0o600, "one line"),
        ("A" * 40 + " ", 0o600, "one line"),
        ("", 0o600, "one line"),
    ],
)
def test_a_token_file_that_is_refused(run_cellgate: Run, tmp_path: Path, content: str, mode: int, why: str) -> None:
    (tmp_path / "work").mkdir()
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    p = run_cellgate("mcp", "serve", "--http", "127.0.0.1:0", "--token-file", file, "--workspace", tmp_path / "work")
    assert p.returncode == 2 and why in p.stderr and str(file) in p.stderr


def test_a_token_file_that_is_a_link(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "real").write_text("A" * 40)
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "token").symlink_to("real")
    args = ["--token-file", tmp_path / "token", "--workspace", tmp_path / "work"]
    p = run_cellgate("mcp", "serve", "--http", "127.0.0.1:0", *args)
    assert p.returncode == 2 and "symbolic links" in p.stderr
