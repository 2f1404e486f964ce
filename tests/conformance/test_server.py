"""The conformance suite of MCP against `cellgate mcp serve --http`: the scenarios that need none of the suite's own tools."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.no_sanitizer]  # a server and a kernel for each

OLD = ["server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"]
STATELESS = [
    "server-stateless",
    "http-header-validation",
    "tools-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
    "input-required-result-unsupported-methods",
]
SCENARIOS = [
    *(("released", s, "") for s in OLD),
    *(("next", s, "") for s in [*OLD, "server-session-lifecycle"]),
    *(("next", s, "2026-07-28") for s in STATELESS),
]


def copy(source: socket.socket, to: socket.socket, header: bytes) -> None:
    """Passes bytes on; adds the header behind the first line of each request, which comes in one piece."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if header and re.match(rb"[A-Z]+ /", data):
                line, _, rest = data.partition(b"\r\n")
                data = line + b"\r\n" + header + rest
            to.sendall(data)
    for end in (source, to):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def address(cellgate: Path, tmp_path: Path) -> Iterator[str]:
    """Of a proxy in front of the server that adds its token: the suite has no option for one."""
    (tmp_path / "workspace").mkdir()
    words = [cellgate, "mcp", "serve", "--http", "127.0.0.1:0", "--workspace", tmp_path / "workspace"]
    words += ["--token-file", tmp_path / "token"]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        assert server.stdout
        found = re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())
        assert found
        port, token = int(found[1]), (tmp_path / "token").read_text().strip()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    ours = socket.create_connection(("127.0.0.1", port))
                    header = f"Authorization: Bearer {token}\r\n".encode()
                    threading.Thread(target=copy, args=(client, ours, header), daemon=True).start()
                    threading.Thread(target=copy, args=(ours, client, b""), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        server.terminate()


@pytest.mark.parametrize(("suite", "name", "version"), SCENARIOS)
def test_scenario(scenario: Callable[..., None], address: str, suite: str, name: str, version: str) -> None:
    more = ["--spec-version", version] if version else []
    scenario(suite, "server", "--url", f"http://{address}/mcp", "--scenario", name, *more)
