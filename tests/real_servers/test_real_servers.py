"""Real MCP servers from npm and PyPI: a kernel's calls have the results that MCP's own client gets.

Two instances of each server, with a folder each, are called alike: one by a kernel, the other by the Python SDK's client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import Client, Session
from codegen.support import STUBS, check_package, generate, import_all
from codegen.test_real_tools import check_verdicts
from mcp.client.client import Client as Reference
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from processes import eventually
from real_servers.servers import CHROMIUM, SERVERS, Server
from rounds import with_peers
from web import web_server

HERE = Path(__file__).parent
WAYS = [(s, path, era) for s in SERVERS for path in ("", *s.http) for era in s.eras]
# One server over stdio and one over HTTP.
CASES = with_peers(WAYS, *(w for w in WAYS if (w[0].name, *w[1:]) in (("filesystem", "", "auto"), ("typescript-sdk", "/mcp", "modern"))))
CELL = """
import importlib, json
module = importlib.import_module({module!r})
print(json.dumps(module.call(json.loads({args!r})).raw))
"""
TOOLS = """
import importlib
package = importlib.import_module({package!r})
print(len([getattr(package, name).run.__doc__ for name in package.TOOLS]))
"""


@dataclass
class Instance:
    """One instance of a server, and what its call leaves."""

    server: Server
    folder: Path
    places: dict[str, str]
    seen: list[dict[str, str]]

    def fill(self, text: str) -> str:
        return re.sub(r"{(\w+)}", lambda m: self.places[m[1]], text)

    def args(self, args: dict[str, Any]) -> dict[str, Any]:
        return {k: self.fill(v) if isinstance(v, str) else v for k, v in args.items()}

    @property
    def env(self) -> dict[str, str]:
        return {k: self.fill(v) for k, v in self.server.env.items()}

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.places['port']}{path}"

    @contextlib.contextmanager
    def serving(self, path: str) -> Iterator[None]:
        """While the server listens on its port, if it is one over HTTP."""
        if not path:
            yield
            return
        argv = [self.fill(word) for word in self.server.http[path]]
        with open(self.folder.with_suffix(".log"), "wb") as log:
            process = subprocess.Popen(argv, env={**os.environ, **self.env}, cwd=self.folder, stdout=log, stderr=log)
        try:
            eventually(lambda: self.listens() or process.poll() is not None, 60)
            assert process.poll() is None, self.folder.with_suffix(".log").read_text()
            yield
        finally:
            process.terminate()
            process.wait(20)

    def listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(self.places["port"]))):
            return True
        return False

    def effects(self) -> object:
        """The files in the folder, and how many requests the web server has had."""
        files = sorted(p for p in self.folder.rglob("*") if p.is_file() and not p.is_symlink())
        return [(str(p), p.read_bytes()) for p in files], len(self.seen)

    def plain(self, result: Any) -> Any:
        """A result without what differs from one instance, run or revision to another."""
        text = json.dumps({k: v for k, v in result.items() if k not in ("_meta", "resultType")})
        for place, name in ((str(self.folder), "FOLDER"), (self.places["port"], "PORT")):
            text = text.replace(place, name)
        if self.server.varies:
            text = re.sub(self.server.varies, "VARIES", text)
        return {"isError": False, **json.loads(text)}


@pytest.fixture
def make(npm_dir: Path, tmp_path: Path) -> Iterator[Callable[[Server, str], Instance]]:
    deps = npm_dir.parent
    places = {
        "here": str(HERE),
        "python": sys.executable,
        "npm": str(npm_dir / "node_modules"),
        "test_npm": str(deps / "test-npm/node_modules"),
        "servers": str(deps / "servers-env/bin"),
        "sdk1": str(deps / "servers-sdk1-env/bin"),
        "node": str(next((deps / "test-npm").glob("node_modules/node-linux-*/bin/node"), "")),
    }
    seen: list[dict[str, str]] = []
    with web_server(seen) as web:

        def make(server: Server, name: str) -> Instance:
            for word in server.command:
                if word == "{node}" and not places["node"]:
                    pytest.skip("npm has no Node 22 for this processor, or scripts/setup --test has not installed it")
                path = re.sub(r"{(\w+)}", lambda m: places.get(m[1], ""), word)
                if word.startswith("{") and path.startswith(str(deps)) and not Path(path).exists():
                    pytest.skip(f"{path} is not installed: run scripts/setup --test")
                if word == CHROMIUM and not Path(CHROMIUM).exists():
                    pytest.skip(f"{CHROMIUM} is not installed: it is Debian's package chromium")
            folder = tmp_path / name
            folder.mkdir()
            with socket.create_server(("127.0.0.1", 0)) as s:
                port = str(s.getsockname()[1])
            subprocess.run(["sh", "-ec", server.prepare], cwd=folder, check=True)
            own = {"folder": str(folder), "port": port, "web": f"http://127.0.0.1:{web}"}
            return Instance(server, folder, places | own, seen)

        yield make


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """cellgate_tools can be imported."""
    monkeypatch.syspath_prepend(str(STUBS))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(log_level=0) as c:
        yield c


async def reference(instance: Instance, path: str, era: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tools of a server and the results of its calls, by the Python SDK's client."""
    command = [instance.fill(word) for word in instance.server.command]
    stdio = StdioServerParameters(command=command[0], args=command[1:], env=instance.env, cwd=instance.folder)
    with open(os.devnull, "w") as null:
        url = instance.url(path)
        target = stdio_client(stdio, null) if not path else sse_client(url) if path == "/sse" else url
        async with Reference(target, mode="legacy" if era == "legacy" else "auto") as client:
            tools = [
                t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in (await client.list_tools()).tools
            ]
            results = [await client.call_tool(tool, instance.args(args)) for tool, args in instance.server.calls]
            return tools, [r.model_dump(mode="json", by_alias=True, exclude_unset=True) for r in results]


@pytest.mark.parametrize(
    ("server", "path", "era"), CASES, ids=lambda v: v.name if isinstance(v, Server) else v or "stdio"
)
def test_calls(
    client: Client,
    make: Callable[[Server, str], Instance],
    build_dir: Path,
    tmp_path: Path,
    server: Server,
    path: str,
    era: str,
) -> None:
    direct = make(server, "direct")
    with direct.serving(path):
        try:
            tools, expected = asyncio.run(reference(direct, path, era))
        except Exception:  # of another server than ours, by another client: server-everything ended a connection once
            tools, expected = asyncio.run(reference(direct, path, era))
    assert tuple(i for i, result in enumerate(expected) if result.get("isError")) == server.errors, expected
    ours = make(server, "ours")
    (tmp_path / "workspace").mkdir()
    with ours.serving(path), client.session(workspace=tmp_path / "workspace") as session:
        check_calls(session, ours, path, era, {t["name"] for t in tools}, [direct.plain(r) for r in expected])
    eventually(lambda: not running(ours.folder), 10)
    check_wrappers(build_dir, tmp_path / "mcptools", server.name, tools)


def check_calls(session: Session, ours: Instance, path: str, era: str, tools: set[str], expected: list[Any]) -> None:
    command = [ours.fill(word) for word in ours.server.command]
    definition = {"url": ours.url(path)} if path else {"command": command[0], "args": command[1:], "env": ours.env}
    report = session.add_servers({"mcpServers": {ours.server.name: {**definition, "era": era}}})[ours.server.name]
    modules = {t["tool"]: f"mcptools.{report['package']}.{t['module']}" for t in report["tools"]}
    assert set(modules) == tools and {t["status"] for t in report["tools"]} == {"full"}, report
    assert session.run(TOOLS.format(package=f"mcptools.{report['package']}")).stdout == f"{len(tools)}\n"
    before = ours.effects()
    for i, ((tool, args), wanted) in enumerate(zip(ours.server.calls, expected, strict=True)):
        cell = CELL.format(module=modules[tool], args=json.dumps(ours.args(args)))
        if i == 0:
            refused = session.run(cell, lambda e: "no")
            assert refused.status == "error" and refused.error is not None
            assert refused.error["ename"] == "RejectedError" and ours.effects() == before
        asked: list[Any] = []
        out = session.run(cell, lambda e, asked=asked: asked.append(e) or True)
        assert out.status == "ok", out
        assert [(e.server, e.tool, json.loads(e.args)) for e in asked] == [(ours.server.name, tool, ours.args(args))]
        assert ours.plain(json.loads(out.stdout)) == wanted
        assert i > 0 or ours.effects() != before


def running(folder: Path) -> list[str]:
    """Processes with a path in this folder in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return found


def check_wrappers(build_dir: Path, out: Path, server: str, tools: list[dict[str, Any]]) -> None:
    report = generate(build_dir, server, out, tools)
    check_package(out / report["package"], report, server)
    assert import_all(out, report["package"]) == len(tools)
    check_verdicts(tools)
