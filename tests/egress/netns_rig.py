"""Runs inside a network and a mount namespace of its own, made by test_addresses.py: a name server whose answers the tests choose,
routes under which any address leads here, and the proxy. One argument: the path of cellgate-egress. Prints one JSON object."""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from egress.harness import Egress, Json, as_policy, read_all, status_of

NAMES: dict[str, list[str]] = {
    "public.example.com": ["198.51.100.7"],
    "six.example.com": ["2001:db8:7::7"],
    "both.example.com": ["198.51.100.7", "2001:db8:7::7"],
    "loop.example.com": ["127.0.0.1"],
    "loop6.example.com": ["::1"],
    "mapped.example.com": ["::ffff:127.0.0.1"],
    "nat64.example.com": ["64:ff9b::7f00:1"],
    "sixtofour.example.com": ["2002:7f00:1::1"],
    "zero.example.com": ["0.0.0.0"],
    "meta.example.com": ["169.254.169.254"],
    "meta6.example.com": ["fd00:ec2::254"],
    "ten.example.com": ["10.1.2.3"],
    "ula.example.com": ["fd12::1"],
    "multi.example.com": ["224.0.0.1"],
    "own.example.com": ["192.0.2.1"],
    "late.example.com": ["198.51.100.7"],
    "some.example.com": ["127.0.0.1", "198.51.100.7", "10.0.0.1"],
    "all-bad.example.com": ["10.0.0.1", "127.0.0.1"],
    "dead-first.example.com": ["198.51.100.99", "198.51.100.7"],
}
asked: dict[str, int] = {}
late_asked, late_answer = threading.Event(), threading.Event()


def answer(query: bytes) -> bytes:
    """A, AAAA and nothing else."""
    name, at = [], 12
    while n := query[at]:
        name.append(query[at + 1 : at + 1 + n].decode())
        at += n + 1
    host = ".".join(name).lower()
    kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
    question = query[12 : at + 5]
    addresses = NAMES.get(host, [])
    if host == "rebind.example.com":
        # Public at first; to whoever asks a second time, loopback.
        if kind == 1:
            asked[host] = asked.get(host, 0) + 1
        addresses = ["198.51.100.7"] if asked.get(host, 0) <= 1 else ["127.0.0.1"]
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    data = []
    for a in addresses:
        if family == (socket.AF_INET6 if ":" in a else socket.AF_INET):
            data.append(socket.inet_pton(family, a))
    known = bool(addresses)
    head = query[:2] + struct.pack(">HHHHH", 0x8580 | (0 if known else 3), 1, len(data), 0, 0)
    return head + question + b"".join(struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(d)) + d for d in data)


def serve_names() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 53))
        while True:
            query, peer = s.recvfrom(2000)
            if b"slow" in query:
                continue  # no answer at all
            if b"late" in query:
                late_asked.set()
                late_answer.wait(5)
            s.sendto(answer(query), peer)


def serve_http(listener: socket.socket) -> None:
    while True:
        s, _ = listener.accept()
        with s:
            s.recv(4096)
            here = s.getsockname()[0]
            s.sendall(f"HTTP/1.0 200 OK\r\n\r\nAT {here}\n".encode())


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True)


def set_up() -> int:
    """Every address leads to this namespace; the machine's own are loopback and 192.0.2.1."""
    ip("link", "set", "lo", "up")
    # One of very many.
    many = "".join(f"addr add 10.200.{i // 250}.{i % 250}/32 dev lo\n" for i in range(300))
    subprocess.run(["ip", "-batch", "-"], input=many, text=True, check=True)
    ip("addr", "add", "192.0.2.1/32", "dev", "lo")
    ip("route", "add", "local", "0.0.0.0/1", "dev", "lo")
    ip("route", "add", "local", "128.0.0.0/1", "dev", "lo")
    ip("-6", "route", "add", "local", "::/0", "dev", "lo")
    # This one refuses.
    ip("route", "add", "unreachable", "198.51.100.99/32")
    scratch = Path(tempfile.mkdtemp())
    for name, text in (
        ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
        ("hosts", "127.0.0.1 localhost\n198.51.100.7 in-hosts.example.com\n10.9.9.9 hosts-private.example.com\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
    ):
        (scratch / name).write_text(text)
        target = Path("/etc") / name
        if target.exists():
            subprocess.run(["mount", "--bind", str(scratch / name), os.path.realpath(target)], check=True)
    threading.Thread(target=serve_names, daemon=True).start()
    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    threading.Thread(target=serve_http, args=(listener,), daemon=True).start()
    return int(listener.getsockname()[1])


def main() -> None:
    port = set_up()
    egress = Egress(Path(sys.argv[1]), float(sys.argv[2]))
    results: Json = {"port": port}

    def ask(key: str, policy: Json, host: str) -> None:
        """Record the answer to a plain HTTP client, and the event."""
        sandbox = len(results) + 1
        box = egress.open(policy, sandbox)
        started = time.monotonic()
        got = box.raw(f"GET http://{host}:{port}/ HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        took = time.monotonic() - started
        results[key] = {
            "status": status_of(got),
            "text": got.decode("latin1"),
            "event": egress.decision(),
            "seconds": took,
        }
        egress.send({"type": "close", "sandbox": sandbox})

    everything = {"allowedDomains": ["*.example.com", "localhost"]}
    box = egress.open(everything, 999)
    with box.connect() as s:
        s.sendall(f"GET http://late.example.com:{port}/ HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        late_asked.wait(5)
        egress.send({"type": "policy", "sandbox": 999, "policy": as_policy({})})
        # The answer to the second message says that the first was read.
        egress.send({"type": "policy", "sandbox": 1001, "policy": as_policy({})})
        egress.wait("error")
        late_answer.set()
        results["denied while it was looked up"] = {"status": status_of(read_all(s)), "event": egress.decision()}
    for name in (*NAMES, "in-hosts.example.com", "hosts-private.example.com", "nowhere.example.com", "localhost"):
        ask(name, everything, name)
    ask("rebind 1", everything, "rebind.example.com")
    ask("rebind 2", everything, "rebind.example.com")
    ask("listed literal", {"allowedDomains": ["loop.example.com", f"127.0.0.1:{port}"]}, "loop.example.com")
    ask("literal of another port", {"allowedDomains": ["loop.example.com", "127.0.0.1:1"]}, "loop.example.com")
    ask("denied literal", {**everything, "deniedDomains": ["198.51.100.7"]}, "public.example.com")
    ask("denied range", {**everything, "deniedResolvedAddresses": ["198.51.100.0/24"]}, "public.example.com")
    ask("private allowed", {**everything, "privateAddresses": True}, "ten.example.com")
    ask("private allowed, loopback not", {**everything, "privateAddresses": True}, "loop.example.com")
    ask("asked address", {"allowedDomains": ["169.254.169.254"]}, "169.254.169.254")
    greedy = egress.open(everything, 1000)
    waiting = [greedy.connect() for _ in range(40)]
    for i, s in enumerate(waiting):
        s.sendall(f"GET http://slow{i}.example.com:{port}/ HTTP/1.1\r\n\r\n".encode())
    time.sleep(0.5)
    ask("beside slow ones", everything, "public.example.com")
    for s in waiting:
        s.close()
    egress.send({"type": "close", "sandbox": 1000})
    ask("slow", {**everything, "limits": {"connectMs": 500}}, "slow.example.com")
    egress.close()
    print(json.dumps(results))


main()
