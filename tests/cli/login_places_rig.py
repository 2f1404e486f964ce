"""Runs inside a network and a mount namespace of its own, made by test_login_places.py, where every address leads here: MCP servers
at public and private addresses, and the authorization servers that they name. Arguments: the path of cellgate, a folder with
ca.pem, good.pem and good.key, a scratch folder. Prints one JSON object."""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CELLGATE, TLS, SCRATCH = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
HOSTS = {
    "mcp.example.org": "198.51.100.7",
    "intern.example.org": "10.1.2.3",
    "login.example.org": "198.51.100.8",
    "loop.example.org": "127.0.0.1",
    "mapped.example.org": "::ffff:127.0.0.1",
    "corp.example.org": "10.1.2.4",
    "meta.example.org": "169.254.169.254",
    "own.example.org": "192.0.2.1",
}
PAGES = [
    "https://192.0.2.1/authorization",
    "https://3221225985/authorization",
    "https://[::ffff:192.0.2.1]/authorization",
]
WELL_KNOWN = "/.well-known/oauth-"
issuer = ""  # what the MCP servers name
page = ""  # where the authorization servers say that their page is; "": with them
seen: list[tuple[str, str, str]] = []  # host, address that was connected to, path


class Handler(BaseHTTPRequestHandler):
    """An MCP server and an authorization server, by the header Host."""

    def answer(self, status: int, body: object = None, **fields: str) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **fields}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text)

    def handle_any(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        here = "https://" + self.headers["Host"]
        address = self.connection.getsockname()[0].removeprefix("::ffff:")
        seen.append((self.headers["Host"].rpartition(":")[0], address, self.path))
        if self.path == "/mcp":
            self.answer(401, WWW_Authenticate=f'Bearer resource_metadata="{here}{WELL_KNOWN}protected-resource/mcp"')
        elif self.path == WELL_KNOWN + "protected-resource/mcp":
            self.answer(200, {"resource": here + "/mcp", "authorization_servers": [issuer]})
        elif self.path == WELL_KNOWN + "authorization-server":
            ends = {f"{e}_endpoint": f"{here}/{e}" for e in ("authorization", "token", "registration")}
            if page:
                ends["authorization_endpoint"] = page
            self.answer(200, {"issuer": here, "code_challenge_methods_supported": ["S256"], **ends})
        elif self.path == "/registration":
            self.answer(201, {"client_id": "CLIENT"})
        else:
            self.answer(404)

    do_GET = do_POST = handle_any

    def log_message(self, *args: object) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def set_up() -> int:
    """Every address leads to this namespace; the machine's own are loopback and 192.0.2.1."""
    for words in (
        "link set lo up",
        "addr add 192.0.2.1/32 dev lo",
        "route add local 0.0.0.0/1 dev lo",
        "route add local 128.0.0.0/1 dev lo",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    both = "198.51.100.7 both.example.org\n127.0.0.1 both.example.org\n"
    (SCRATCH / "hosts").write_text("127.0.0.1 localhost\n" + both + "".join(f"{a} {n}\n" for n, a in HOSTS.items()))
    (SCRATCH / "nsswitch.conf").write_text("hosts: files\n")
    for name in ("hosts", "nsswitch.conf"):
        if os.path.exists(f"/etc/{name}"):
            subprocess.run(["mount", "--bind", SCRATCH / name, os.path.realpath(f"/etc/{name}")], check=True)
    server = Server(("::", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "good.pem", TLS / "good.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


def login(server: str, port: int, names: str, own: str | None, at: str = "") -> dict[str, Any]:
    """Signs in at @server, which names @names; the definition's own issuer is @own. Nobody opens the page."""
    global issuer, page
    page = at
    issuer = f"https://{names}:{port}"
    seen.clear()
    oauth = {"issuer": f"https://{own}:{port}"} if own else {}
    definition = {"url": f"https://{server}:{port}/mcp", "caFile": str(TLS / "ca.pem"), "oauth": oauth}
    (SCRATCH / "mcp.json").write_text(json.dumps({"mcpServers": {"srv": definition}}))
    words = [CELLGATE, "mcp", "login", "srv", "--mcp", str(SCRATCH / "mcp.json"), "--timeout", "1", "--no-browser"]
    env = {"PATH": os.environ["PATH"], "HOME": str(SCRATCH), "XDG_STATE_HOME": str(SCRATCH / server / names)}
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    return {"out": done.stdout, "err": done.stderr, "seen": seen[:]}


def redirect() -> dict[str, Any]:
    """An MCP server redirects within its origin, to a path that it chooses; then its name leads to this machine only."""
    arrived: list[str] = []
    outside = socket.create_server(("198.51.100.7", 0))
    port = outside.getsockname()[1]

    def serve() -> None:
        s, _ = outside.accept()
        with s:
            s.recv(65536)
            inside = socket.create_server(("127.0.0.1", port))
            outside.close()
            s.sendall(b"HTTP/1.1 307 Go\r\nLocation: /admin\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        while True:
            arrived.append(str(inside.accept()[1]))

    threading.Thread(target=serve, daemon=True).start()
    definition = {"url": f"http://both.example.org:{port}/mcp"}
    (SCRATCH / "mcp.json").write_text(json.dumps({"mcpServers": {"srv": definition}}))
    words = [CELLGATE, "mcp", "tools", "srv", "--mcp", str(SCRATCH / "mcp.json")]
    env = {"PATH": os.environ["PATH"], "HOME": str(SCRATCH)}
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    return {"err": done.stderr, "arrived": arrived}


def main() -> None:
    port = set_up()
    asked = json.loads(sys.stdin.read())
    logins = [login(server, port, names, own) for server, names, own in asked]
    pages = [login("mcp.example.org", port, "login.example.org", None, at) for at in PAGES]
    print(json.dumps({"logins": logins, "pages": pages, "redirect": redirect()}))


main()
