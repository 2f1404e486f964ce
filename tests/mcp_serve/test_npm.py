"""install_package in a session of node: npm in a sandbox of its own, from a registry of this file."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp_serve.helpers import Raw, text_of

Serve = Callable[..., Raw]
pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm")
RUNS = "node -e \"require('fs').writeFileSync('ran', 'x')\""
PACKAGES: dict[str, dict[str, str]] = {
    "cg-common": {
        "package.json": '{"version": "1.2.0", "main": "i.js", "dependencies": {"cg-needed": "^1.0.0"}, '
        f'"scripts": {{"postinstall": {json.dumps(RUNS)}}}}}',
        "i.js": "exports.number = 40 + require('cg-needed').two;",
    },
    "cg-needed": {"package.json": '{"version": "1.0.1"}', "index.js": "exports.two = 2;"},
    "@cg/module": {
        "package.json": '{"version": "2.0.0", "type": "module", "exports": {"import": "./i.js"}}',
        "i.js": "export const name = 'scoped';",
    },
}


def tarball(name: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for file, text in PACKAGES[name].items():
            content = json.dumps({"name": name, **json.loads(text)}) if file == "package.json" else text
            member = tarfile.TarInfo(f"package/{file}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    return data.getvalue()


@pytest.fixture
def registry() -> Iterator[str]:
    made = {name: tarball(name) for name in PACKAGES}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = re.sub("%2f", "/", self.path[1:], flags=re.I)
            found = made.get(name.removesuffix(".tgz"))
            if found is None:
                self.send_error(404)
                return
            if not name.endswith(".tgz"):
                manifest = json.loads(PACKAGES[name]["package.json"])
                digest = "sha512-" + base64.b64encode(hashlib.sha512(found).digest()).decode()
                dist = {"tarball": f"{url}/{name}.tgz", "integrity": digest}
                has_scripts = {"hasInstallScript": True} if "scripts" in manifest else {}
                version = {"name": name, **manifest, "dist": dist, **has_scripts}
                number = manifest["version"]
                packument = {"name": name, "dist-tags": {"latest": number}, "versions": {number: version}}
                found = json.dumps(packument).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *_: object) -> None: ...

    # Not 127.0.0.1, which in a sandbox is its own.
    with ThreadingHTTPServer(("127.0.0.2", 0), Handler) as server:
        url = f"http://127.0.0.2:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield url
        server.shutdown()


def started(serve: Serve, registry: str, *args: str) -> Raw:
    env = {"npm_config_registry": registry, "NO_PROXY": "*", "no_proxy": "*"}
    server = serve("--language", "node", *args, env=env)
    server.initialize()
    return server


def install(server: Raw, package: str, **more: Any) -> str:
    result = server.result(server.call("install_package", package_name=package, **more), 120)
    assert not result["isError"], result
    return text_of(result)


def run(server: Raw, code: str) -> str:
    return server.ask("execute_ipython_cell", code=code)


def test_packages_of_npm(serve: Serve, registry: str) -> None:
    server = started(serve, registry, "--approve", "all")
    assert "Cannot find package" in server.fails("execute_ipython_cell", code="await import('cg-common')")
    text = install(server, "cg-common@^1.0.0")
    assert "Installed cg-common\nInstalled cg-needed" in text
    assert run(server, "import { number } from 'cg-common'; number") == "42"
    assert run(server, "require('cg-needed').two") == "2"
    assert "Installed @cg/module" in install(server, "@cg/module", language="node")
    assert run(server, "(await import('@cg/module')).name") == "'scoped'"
    assert run(server, "require('cg-common').number") == "42"  # of the first call
    assert run(server, "process.env.NODE_PATH") == "(no output)"
    folder = "require('path').dirname(require.resolve('cg-common'))"
    assert run(server, f"require('fs').existsSync({folder} + '/ran')") == "false"
    assert "EROFS" in server.fails("execute_ipython_cell", code=f"require('fs').writeFileSync({folder} + '/i.js', '')")


def test_scripts_run_only_if_they_are_wanted(serve: Serve, registry: str) -> None:
    server = started(serve, registry, "--approve", "all")
    install(server, "cg-common", scripts=True)
    folder = "require('path').dirname(require.resolve('cg-common'))"
    assert run(server, f"require('fs').existsSync({folder} + '/ran')") == "true"


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the scripts of the package cg-link lead to, by a link in the place of a scope."""
    folder = tmp_path / "outside"
    (folder / "module").mkdir(parents=True)
    (folder / "module" / "mine").touch()
    link = f"node -e \"require('fs').symlinkSync('{folder}', '../@cg')\""
    manifest = {"version": "1.0.0", "scripts": {"postinstall": link}}
    monkeypatch.setitem(PACKAGES, "cg-link", {"package.json": json.dumps(manifest), "index.js": ""})
    return folder


def test_a_link_in_the_place_of_a_scope(serve: Serve, outside: Path, registry: str) -> None:
    server = started(serve, registry, "--approve", "all")
    text = install(server, "cg-link", scripts=True)
    assert "Installed cg-link" in text and "@cg" not in text
    install(server, "@cg/module")
    assert [p.name for p in outside.rglob("*")] == ["module", "mine"]
    assert run(server, "(await import('@cg/module')).name") == "'scoped'"


def test_it_needs_a_rule(serve: Serve, registry: str) -> None:
    server = started(serve, registry)
    assert "was refused" in server.fails("install_package", package_name="cg-common")
    assert "Cannot find package" in server.fails("execute_ipython_cell", code="await import('cg-common')")


NO_PACKAGES = [
    "./folder",
    "/etc",
    "../x",
    "file:x",
    "git+https://host/x",
    "https://host/x.tgz",
    "user/repository",
    "a@npm:b",
    "a@file:/etc",
    "a@",
    "--registry=http://x",
    "-g",
    "@scope",
    "@scope/",
    "@/x",
    "a/b/c",
    "a;b",
    "$(id)",
    " ",
]


def test_what_is_no_package_of_the_registry(serve: Serve) -> None:
    server = started(serve, "http://127.0.0.2:1", "--approve", "all")
    for package in NO_PACKAGES:
        assert "package_name must be" in server.fails("install_package", package_name=package), package


def test_another_language_or_package(serve: Serve, registry: str) -> None:
    server = started(serve, registry, "--approve", "all")
    assert "is node, not python" in server.fails("install_package", package_name="cg-common", language="python")
    assert "Not installed" in server.fails("install_package", package_name="cg-missing")
