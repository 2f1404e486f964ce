"""MCP servers from the npm registry: resources, prompts and ends. Their tools: real_servers/test_real_servers.py."""

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess

import pytest
from rounds import with_peers


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


def test_end_of_npm_wrappers(ts, server, is_alive):
    ts.attach()
    ts.add({"everything": server("everything"), "memory": server("memory")})
    ts.detach()
    assert ts.end() == 0


@pytest.fixture
def everything(server, waiting):
    """Definition of the everything server over this transport; it listens until the end of the test."""
    processes = []

    def make(transport):
        if transport == "stdio":
            return server("everything")
        version = subprocess.check_output(["node", "--version"], text=True)
        if transport == "streamableHttp" and int(version[1:].split(".")[0]) < 20:
            pytest.skip("the server's HTTP package, @hono/node-server, needs node 20 or newer")
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]

        def listens():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        command = [server("everything")["command"], transport]
        env = {**os.environ, "PORT": str(port)}
        processes.append(subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL))
        waiting(listens, 30, "the server's port")
        return {"url": f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"}

    yield make
    for process in processes:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize("transport", with_peers(["stdio", "streamableHttp", "sse"], "stdio"))
def test_resources_and_prompts_of_everything(ts, everything, transport):
    k = ts.attach()
    ts.add({"everything": everything(transport)})
    numbers = iter(range(1, 100))

    def listed(method):
        number = next(numbers)
        k.request(number, "everything", method)
        return structured(k.result(number))

    def request(method, params):
        return structured(ts.request(k, next(numbers), "everything", method, json.dumps(params).encode()))

    # Lists are not asked about: what is asked next is about the first read.
    resources = listed("resources/list")["resources"]
    assert {r["mimeType"] for r in resources} == {"text/markdown"}
    templates = [t["uriTemplate"] for t in listed("resources/templates/list")["resourceTemplates"]]
    prompts = {p["name"]: p.get("arguments", []) for p in listed("prompts/list")["prompts"]}
    assert [a["name"] for a in prompts["args-prompt"]] == ["city", "state"]

    uri = next(r["uri"] for r in resources if r["name"] == "features.md")
    (document,) = request("resources/read", {"uri": uri})["contents"]
    assert document["uri"] == uri and "resources" in document["text"].lower()
    (uri,) = [t.replace("{resourceId}", "7") for t in templates if "/text/" in t]
    (text,) = request("resources/read", {"uri": uri})["contents"]
    assert text["text"].startswith("Resource 7: This is a plaintext resource")
    (blob,) = request("resources/read", {"uri": uri.replace("/text/", "/blob/")})["contents"]
    assert b"Resource 7" in base64.b64decode(blob["blob"])
    (simple,) = request("prompts/get", {"name": "simple-prompt"})["messages"]
    assert simple["content"]["text"] == "This is a simple prompt without arguments."
    (said,) = request("prompts/get", {"name": "args-prompt", "arguments": {"city": "Gr\u00fcn"}})["messages"]
    assert said["content"]["text"] == "What's weather in Gr\u00fcn?"

    # Errors of the server, and what cellgate itself knows.
    status, raw = ts.request(k, 50, "everything", "resources/read", b'{"uri":"demo://no/such"}')
    assert (status, k.kind) == ("protocol_error", "protocol") and b"demo://no/such" in raw
    k.request(51, "everything", "prompts/get", b'{"name":"sample-prompt"}')
    status, raw = k.result(51)
    assert (status, k.kind) == ("failed", "unavailable") and b'did you mean "simple-prompt"' in raw

    # Refused: the answer is the host's reason alone.
    for number, (method, params) in enumerate([("resources/read", {"uri": uri}), ("prompts/get", {"name": "simple-prompt"})]):
        k.request(60 + number, "everything", method, json.dumps(params).encode())
        ask = ts.asked()
        assert (ask.body["method"], json.loads(ask.raw)) == (method, params)
        ts.decide(ask, False, "not today")
        assert k.result(60 + number) == ("rejected", b"not today")
    ts.broker.nothing()
