"""Runs a program in a network and a mount namespace of its own, in which a few names of the internet lead to a server here.

usage: internet.py FOLDER BUNDLES PROGRAM [ARG...]     (under: unshare --user --map-root-user --net --mount)

FOLDER gets ca.pem, the certificate of that server's authority, which is also in the files BUNDLES, separated by ":"."""

import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Public addresses, of whoever: here they all lead to this namespace.
NAMES = {"example.org": "93.184.216.1", "example.com": "93.184.216.2", "anthropic.com": "93.184.216.3"}
PAGE = """<!doctype html><html><head><title>Example Domain</title></head><body><div><h1>Example Domain</h1>
<p>This domain is for use in documentation examples without needing permission. Avoid use in operations.</p></div></body></html>
"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/"
        body = PAGE.encode() if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


def make_certificates(folder: Path) -> None:
    def openssl(*args: object) -> None:
        subprocess.run(["openssl", *map(str, args)], cwd=folder, check=True, capture_output=True)

    subject = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj"]
    openssl("req", "-x509", "-days", 10, *subject, "/CN=test", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "ext").write_text("subjectAltName=" + ",".join(f"DNS:{n}" for n in NAMES) + "\n")
    openssl("req", *subject, "/CN=x", "-keyout", "key.pem", "-out", "csr.pem")
    openssl("x509", "-req", "-in", "csr.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", 5, "-extfile", "ext", "-out", "cert.pem")  # fmt: skip


def answer(query: bytes) -> bytes:
    """A name server's: A, and nothing else."""
    labels, at = [], 12
    while n := query[at]:
        labels.append(query[at + 1 : at + 1 + n].decode())
        at += n + 1
    address = NAMES.get(".".join(labels).lower())
    question = query[12 : at + 5]
    data = socket.inet_aton(address) if address and query[at + 1 : at + 3] == b"\0\1" else b""
    head = query[:2] + struct.pack(">HHHHH", 0x8580 if address else 0x8583, 1, bool(data), 0, 0)
    return head + question + (struct.pack(">HHHIH", 0xC00C, 1, 1, 0, 4) + data if data else b"")


def serve_names() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 53))
        while True:
            query, peer = s.recvfrom(2000)
            s.sendto(answer(query), peer)


def serve(folder: Path, port: int, tls: bool) -> None:
    server = ThreadingHTTPServer(("0.0.0.0", port), Handler, bind_and_activate=False)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.server_bind()
    server.server_activate()
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main(name: str, bundles: str, *argv: str) -> int:
    folder = Path(name)
    for words in ("link set lo up", *(f"route add local {address}/32 dev lo" for address in NAMES.values())):
        subprocess.run(["ip", *words.split()], check=True)
    for file, text in (
        ("hosts", "127.0.0.1 localhost\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
        ("resolv.conf", "nameserver 127.0.0.1\n"),
    ):
        (folder / file).write_text(text)
        if os.path.exists(f"/etc/{file}"):
            subprocess.run(["mount", "--bind", folder / file, os.path.realpath(f"/etc/{file}")], check=True)
    threading.Thread(target=serve_names, daemon=True).start()
    make_certificates(folder)
    for n, bundle in enumerate(filter(None, bundles.split(":"))):
        both = folder / f"bundle-{n}.pem"
        both.write_bytes(Path(bundle).read_bytes() + (folder / "ca.pem").read_bytes())
        subprocess.run(["mount", "--bind", both, os.path.realpath(bundle)], check=True)
    serve(folder, 80, tls=False)
    serve(folder, 443, tls=True)
    return subprocess.run(argv).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
