"""The real MCP servers from the npm registry."""

import contextlib
import json
import os
import shutil
import socket
import subprocess

import pytest


@pytest.fixture
def server(npm_dir):
    """Definition of the npm server with this name."""
    if not shutil.which("node"):
        pytest.skip("node is not installed")

    def make(name, *args):
        program = npm_dir / "node_modules/.bin" / f"mcp-server-{name}"
        if not program.exists():
            pytest.skip(f"{program} is not installed")
        return {"command": str(program), "args": [str(a) for a in args]}

    return make


def structured(result):
    status, raw = result
    assert status == "ok", raw
    return json.loads(raw)


def test_filesystem(ts, server, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    k = ts.attach()
    report = ts.add({"filesystem": server("filesystem", folder)})
    assert {"read_text_file", "write_file"} <= {t["tool"] for t in report["filesystem"]["tools"]}
    args = json.dumps({"path": f"{folder}/a.txt", "content": "h\u00e9llo"}).encode()
    structured(ts.run(k, 1, "filesystem", "write_file", args))
    assert (folder / "a.txt").read_text() == "h\u00e9llo"
    got = structured(ts.run(k, 2, "filesystem", "read_text_file", json.dumps({"path": f"{folder}/a.txt"}).encode()))
    assert got["content"][0]["text"] == "h\u00e9llo"
    got = structured(ts.run(k, 3, "filesystem", "read_text_file", b'{"path":"/etc/shadow"}'))
    assert got["isError"] is True


def test_memory(ts, server, tmp_path):
    k = ts.attach()
    definition = {**server("memory"), "env": {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}}
    ts.add({"memory": definition})
    entity = {"name": "cell", "entityType": "thing", "observations": ["small"]}
    structured(ts.run(k, 1, "memory", "create_entities", json.dumps({"entities": [entity]}).encode()))
    assert "small" in json.dumps(structured(ts.run(k, 2, "memory", "read_graph")))


def test_everything(ts, server):
    k = ts.attach()
    report = ts.add({"everything": server("everything")})
    assert "echo" in {t["tool"] for t in report["everything"]["tools"]}
    got = structured(ts.run(k, 1, "everything", "echo", b'{"message":"over there"}'))
    assert "over there" in got["content"][0]["text"]
    status, _ = ts.run(k, 2, "everything", "echo", b"{}")  # an argument is missing
    assert status in ("ok", "protocol_error")


def test_end_of_npm_wrappers(ts, server, is_alive):
    ts.attach()
    ts.add({"everything": server("everything"), "memory": server("memory")})
    ts.detach()
    assert ts.end() == 0


@pytest.mark.parametrize(("transport", "path"), [("streamableHttp", "mcp"), ("sse", "sse")])
def test_everything_over_http(ts, server, waiting, transport, path):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]

    def listens():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    command = [server("everything")["command"], transport]
    process = subprocess.Popen(command, env={**os.environ, "PORT": str(port)}, stderr=subprocess.DEVNULL)
    try:
        waiting(listens, 30, "the server's port")
        k = ts.attach()
        report = ts.add({"everything": {"url": f"http://127.0.0.1:{port}/{path}"}})
        assert "echo" in {t["tool"] for t in report["everything"]["tools"]}
        got = structured(ts.run(k, 1, "everything", "echo", b'{"message":"over there"}'))
        assert "over there" in got["content"][0]["text"]
        big = structured(ts.run(k, 2, "everything", "get-tiny-image"))
        assert any(c["type"] == "image" for c in big["content"])
    finally:
        process.terminate()
        process.wait(10)
