"""A node behind TLS: deploy/tls-gate.conf (stunnel) and deploy/tls-link (socat) as they are, with other paths."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, Files
from cryptography import x509
from processes import descendants, name_of
from relay.conftest import kill, wait_until
from relay.test_links import whole_session
from rounds import rounds

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = "agent.example.org"


class Gate:
    """stunnel in front of `cellgate relay`, with an authority and certificates in folders of @tmp."""

    def __init__(self, cellgate: str, tmp: Path, files: int = 4096) -> None:
        self.tmp = tmp
        self.authority = self.folder("authority", Authority)
        self.own = self.issue("node", "localhost")
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        text = (DEPLOY / "tls-gate.conf").read_text()
        for old, new in {
            "7443": f"127.0.0.1:{self.port}",
            "/usr/bin/cellgate": cellgate,
            "/etc/cellgate/tls": str(self.own),
            "TIMEOUTbusy = 10": "TIMEOUTbusy = 3",
            "debug = notice": "debug = info",
        }.items():
            assert text.count(old) == 3 if old.startswith("/etc") else text.count(old) == 1
            text = text.replace(old, new)
        (tmp / "gate.conf").write_text(text)
        self.log = tmp / "gate.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["prlimit", f"--nofile={files}", "stunnel", tmp / "gate.conf"], stderr=log, stdout=log
            )
        wait_until(lambda: b"Configuration successful" in self.log.read_bytes(), "stunnel has started")

    def folder(self, name: str, make: Callable[[Path], Any]) -> Any:
        (self.tmp / name).mkdir()
        return make(self.tmp / name)

    def issue(self, name: str, dns: str, authority: Authority | None = None, **times: float) -> Path:
        """A folder as tls-link and stunnel want it."""
        files: Files = self.folder(name, lambda f: (authority or self.authority).issue(f, x509.DNSName(dns), **times))
        files.cert.rename(files.cert.with_name("tls.crt"))
        files.key.rename(files.key.with_name("tls.key"))
        (self.tmp / name / "ca.crt").write_bytes(self.authority.file.read_bytes())
        return self.tmp / name

    def link(self, folder: Path, host: str = "localhost", **env: str) -> list[str]:
        words = [f"{name}={value}" for name, value in {"TLS_DIR": folder, **env}.items()]
        return ["env", *words, str(DEPLOY / "tls-link"), host, str(self.port), "relay"]

    def refuses(self, folder: Path, host: str = "localhost", **env: str) -> None:
        import cellgate

        with pytest.raises(cellgate.ClosedError, match="before a relay of cellgate answered"):
            cellgate.Client(connect=self.link(folder, host, **env))

    def works(self, folder: Path, host: str = "localhost", **env: str) -> None:
        import cellgate

        with cellgate.Client(connect=self.link(folder, host, **env)) as c, cellgate.Session(self.tmp, client=c) as s:
            assert s.run("6 * 7").value == "42"

    def relays(self) -> list[int]:
        return descendants(self.process.pid)


@pytest.fixture
def gate(package: Any, relay: list[str], tmp_path: Path) -> Iterator[Gate]:
    g = Gate(relay[0], tmp_path)
    yield g
    g.process.terminate()
    g.process.wait(30)


@pytest.fixture
def agent(gate: Gate) -> Path:
    return gate.issue("agent", NAME)


def test_a_session(gate: Gate, agent: Path, tmp_path: Path) -> None:
    import cellgate

    with cellgate.Client(connect=gate.link(agent)) as client:
        whole_session(client, tmp_path)
    wait_until(lambda: not gate.relays(), "no relay is left")


def test_who_is_not_let_in(gate: Gate, agent: Path, tmp_path: Path) -> None:
    """Each beside the one that is; none of them starts a relay."""
    stranger = gate.folder("stranger", Authority)
    refused = {
        "another tenant's": gate.issue("other", "other.example.org"),
        "a name within the name": gate.issue("longer", NAME + ".example.com"),
        "expired": gate.issue("old", NAME, start=-5, end=-1),
        "not yet valid": gate.issue("young", NAME, start=1, end=5),
        "of another authority": gate.issue("forged", NAME, stranger),
    }
    for folder in refused.values():
        gate.refuses(folder)
    assert "Local mode child started" not in gate.log.read_text()
    gate.works(agent)


def without_certificate(version: ssl.TLSVersion, ca: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    context.minimum_version = context.maximum_version = version
    return context


def test_handshakes(gate: Gate, agent: Path) -> None:
    """Without a certificate, with an older TLS, cut off, without an end: closed, and no relay is started."""
    for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
        context = without_certificate(version, gate.authority.file)
        if version == ssl.TLSVersion.TLSv1_2:
            context.load_cert_chain(agent / "tls.crt", agent / "tls.key")
        with socket.create_connection(("127.0.0.1", gate.port), 20) as s, pytest.raises((ssl.SSLError, OSError)):
            with context.wrap_socket(s, server_hostname="localhost") as t:
                assert t.recv(1) == b"", "closed"
                raise OSError("closed")
    for data in (b"", b"\x16\x03\x01\x02\x00\x01", os.urandom(4096), b"\x16\x03\x01\xff\xff" + bytes(70000)):
        with socket.create_connection(("127.0.0.1", gate.port), 20) as s:
            with contextlib.suppress(ConnectionError, BrokenPipeError):
                s.sendall(data)
                while s.recv(4096):
                    pass
    assert "Local mode child started" not in gate.log.read_text()
    gate.works(agent)


def test_connections_that_say_nothing(gate: Gate, agent: Path) -> None:
    held = [socket.create_connection(("127.0.0.1", gate.port), 20) for _ in range(rounds(1200))]
    gate.works(agent)
    for s in held:
        with contextlib.suppress(ConnectionError):
            assert s.recv(1) == b""
        s.close()
    assert "Local mode child started" in gate.log.read_text()


def test_more_connections_than_it_takes(package: Any, relay: list[str], tmp_path: Path) -> None:
    """It stays within its limit; sessions that are open go on, and new ones open once the others have timed out."""
    import cellgate

    gate = Gate(relay[0], tmp_path, files=200)
    agent = gate.issue("agent", NAME)
    with cellgate.Client(connect=gate.link(agent)) as c, cellgate.Session(tmp_path, client=c) as s:
        held = [socket.create_connection(("127.0.0.1", gate.port), 20) for _ in range(400)]
        for _ in range(10):
            assert s.run("6 * 7").value == "42"
        wait_until(lambda: "too many clients" in gate.log.read_text(), "more are taken than there may be")
        assert len(os.listdir(f"/proc/{gate.process.pid}/task")) < 200  # without a limit it has a thread for each: 400
        for k in held:
            with contextlib.suppress(ConnectionError):
                assert k.recv(1) == b""
            k.close()
        gate.works(agent)
    gate.process.terminate()
    gate.process.wait(30)


def test_a_node_that_is_another(gate: Gate, agent: Path) -> None:
    """The host talks to nobody but the node with this name and authority."""
    gate.refuses(agent, "127.0.0.1")
    gate.works(agent, "127.0.0.1", TLS_NAME="localhost")
    gate.refuses(agent, TLS_NAME="agent.example.org")
    other = gate.folder("elsewhere", Authority)
    (agent / "ca.crt").write_bytes(other.file.read_bytes())
    gate.refuses(agent)


def test_new_certificates(gate: Gate, agent: Path) -> None:
    """Read again at SIGHUP, without an end of the sessions that are open."""
    import cellgate

    fresh = gate.folder("fresh", Authority)
    with cellgate.Client(connect=gate.link(agent)) as c, cellgate.Session(gate.tmp, client=c) as s:
        (gate.own / "ca.crt").write_bytes(fresh.file.read_bytes())
        gate.process.send_signal(signal.SIGHUP)
        wait_until(lambda: gate.log.read_text().count("Configuration successful") == 2, "the files were read")
        assert s.run("6 * 7").value == "42"
        gate.refuses(agent)
    new = gate.issue("new", NAME, fresh)
    gate.works(new)


def test_a_link_that_breaks(gate: Gate, agent: Path) -> None:
    """The session goes on over a new connection, which shows its certificate again."""
    import cellgate

    with cellgate.Client(connect=gate.link(agent)) as c, cellgate.Session(gate.tmp, client=c) as s:
        s.run("x = 1")
        links = [p for p in descendants(os.getpid()) if name_of(p) == "socat"]
        assert len(links) == 1
        kill(links[0])
        for i in range(3):
            assert s.run("x += 1; x", timeout=60).value == str(i + 2)
    assert gate.log.read_text().count("Local mode child started") == 2


def test_the_gate_ends(package: Any, relay: list[str], tmp_path: Path) -> None:
    import cellgate

    gate = Gate(relay[0], tmp_path)
    with cellgate.Client(connect=gate.link(gate.issue("agent", NAME)), detach=1) as c:
        s = cellgate.Session(tmp_path, client=c)
        relays = gate.relays()
        gate.process.kill()
        gate.process.wait()
        with pytest.raises(cellgate.CellgateError):
            s.run("1", timeout=60)
    wait_until(lambda: not any(Path(f"/proc/{p}").exists() for p in relays), "nothing is left")
