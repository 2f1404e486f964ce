"""Peers that flood the sockets. They reach them without the key: any program of this machine does."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
import zmq
from processes import eventually
from rounds import dear

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
MIB = 1 << 20


class Peer:
    """A raw ZMTP 3.0 peer."""

    def __init__(self, info: dict[str, Any], channel: str, kind: bytes = b"DEALER") -> None:
        self.socket = socket.create_connection((info["ip"], info[f"{channel}_port"]), timeout=20)
        self.socket.sendall(GREETING)
        self.read(64)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        self.socket.sendall(bytes([4, len(ready)]) + ready)
        head = self.read(2)
        self.read(head[1])

    def read(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            assert more, "closed"
            data += more
        return data

    def flood(self, frame: bytes, limit: int) -> int:
        """Send it again and again until the other side ends the connection; returns how many bytes went out."""
        block = frame * max(1, 65536 // len(frame))
        sent = 0
        try:
            while sent < limit:
                sent += self.socket.send(block)
        except (ConnectionError, TimeoutError):
            return sent
        # All went out: is it noticed?
        self.socket.settimeout(20)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            raise AssertionError(f"{sent} bytes without an end were taken") from None
        except ConnectionError:
            pass
        return sent


# More to come: without content, with some, and large.
ENDLESS = {
    "empty": b"\x01\x00",
    "small": b"\x01\x40" + b"x" * 64,
    "large": b"\x03" + struct.pack(">Q", MIB) + b"x" * MIB,
}


@pytest.mark.parametrize(
    ("channel", "frame"),
    [
        *((c, "empty") for c in ("shell", "iopub", "hb")),
        # the code of shell, and a minute with a sanitizer
        *(pytest.param(c, "empty", marks=[dear, pytest.mark.no_sanitizer]) for c in ("control", "stdin")),
        ("shell", "small"),
        ("shell", "large"),
    ],
)
def test_messages_without_an_end(kernel: Any, client: Any, channel: str, frame: str) -> None:
    peer = Peer(kernel.info(), channel, b"SUB" if channel == "iopub" else b"DEALER")
    peer.flood(ENDLESS[frame], 1 << 30)
    assert "cut off" in kernel.stderr()
    assert client.run("6 * 7").result() == "42"


def test_many_peers_with_a_little_each(kernel: Any, client: Any) -> None:
    info = kernel.info()
    peers = [Peer(info, "shell") for _ in range(30)]
    for peer in peers:
        with contextlib.suppress(ConnectionError):
            peer.socket.sendall(ENDLESS["large"] * 10)
    eventually(lambda: kernel.stderr().count("cut off") >= 20)
    assert client.run("6 * 7").result() == "42"


def test_more_connections_than_there_are_places(kernel: Any, client: Any) -> None:
    info = kernel.info()
    peers = []
    for _ in range(600):
        peers.append(socket.create_connection((info["ip"], info["shell_port"]), timeout=20))
    eventually(lambda: "already" in kernel.stderr())
    assert client.run("6 * 7").result() == "42"
    for peer in peers:
        peer.close()
    assert kernel.client().run("6 * 7").result() == "42"


def test_a_large_message_of_a_client(kernel: Any, client: Any) -> None:
    """The limits are far from what clients send: also the first message of one may be a large cell."""
    assert client.run("x = '" + "x" * (15 << 20) + "'; len(x)").result() == str(15 << 20)
    client.reply(client.start("1", metadata={"padding": "x" * (40 << 20)}))  # more than a cell may have, but a message
    assert kernel.stderr() == ""


def large_messages(client: Any) -> None:
    """More than may be under way, one after the other."""
    for _ in range(10):
        request = client.send("shell", "unknown_request", {"padding": "x" * (8 << 20)})
        assert [m["msg_type"] for m in client.published(request)] == ["status", "status"]


def test_what_was_read_counts_no_more(kernel: Any, client: Any) -> None:
    large_messages(client)
    assert kernel.stderr() == ""


def test_what_was_read_counts_no_more_with_encryption(start: Callable[..., Any]) -> None:
    public, secret = zmq.curve_keypair()
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256"}
    connection |= {f"{c}_port": 0 for c in ("shell", "iopub", "stdin", "control", "hb")}
    kernel = start(connection={**connection, "curve_publickey": public.decode(), "curve_secretkey": secret.decode()})
    large_messages(kernel.client())
    assert kernel.stderr() == ""
