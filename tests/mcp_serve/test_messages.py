"""Messages of a session (notifications/message): for whom asks for them, from a level on, not too many."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp_serve.helpers import Raw, text_of
from mcp_serve.test_stateless import META, meta

Serve = Callable[..., Raw]
DIES = "import os; os._exit(3)"


def call(server: Raw, level: str | None, tool: str, **arguments: object) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A call of the stateless era: the messages before its answer, and the result."""
    more = {} if level is None else {META + "logLevel": level}
    id = server.request("tools/call", {"name": tool, "arguments": arguments, "_meta": meta({}, **more)})
    found = []
    while "id" not in (message := server.receive()):
        assert message["method"] == "notifications/message"
        assert message["params"]["_meta"] == {"cellgate/request": id}
        types.LoggingMessageNotificationParams.model_validate(message["params"])
        found.append(message["params"])
    assert message["id"] == id
    return found, message["result"]


def logged(server: Raw, id: int) -> list[dict[str, Any]]:
    """The messages before the answer to a request of a client that has shaken hands."""
    found = []
    while "id" not in (message := server.receive()):
        assert message["method"] == "notifications/message" and "_meta" not in message["params"]
        found.append(message["params"])
    assert message["id"] == id
    return found


def set_level(server: Raw, level: object) -> dict[str, Any]:
    return server.answer(server.request("logging/setLevel", {"level": level}))


def test_nobody_gets_messages_unasked(serve: Serve) -> None:
    server = serve()
    assert server.initialize()["capabilities"]["logging"] == {}
    for tool, arguments in (("execute_ipython_cell", {"code": DIES}), ("reset", {})):
        server.result(server.call(tool, **arguments))
    server.result(server.request("ping"))


def test_a_kernel_that_is_replaced_is_a_message(serve: Serve) -> None:
    server = serve()
    server.initialize()
    assert set_level(server, "info")["result"] == {}
    (died,) = logged(server, server.call("execute_ipython_cell", code=DIES))
    assert died["level"] == "error" and died["logger"] == "cellgate" and "status 3" in died["data"]["message"]
    (reset,) = logged(server, server.call("reset"))
    assert reset["level"] == "info" and "reset was called" in reset["data"]["message"]
    assert reset["data"]["session_id"] == died["data"]["session_id"]
    set_level(server, "error")
    assert logged(server, server.call("reset")) == []
    for wrong in ("loud", "", 7, None):
        assert set_level(server, wrong)["error"]["code"] == -32602
    # A new handshake asks for nothing.
    server.initialize()
    assert logged(server, server.call("execute_ipython_cell", code=DIES)) == []


def test_ends_and_broken_servers_are_messages(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text(json.dumps({"mcpServers": {"one": {"command": "/nonexistent"}}}))
    server = serve("--toolsets", "core,sessions", "--mcp", file)
    found, result = call(server, "notice", "create_session")
    assert [f["level"] for f in found] == ["error"] and '"one"' in found[0]["data"]["message"]
    id = text_of(result).partition("session_id: ")[2].split()[0]
    (ended,), _ = call(server, "notice", "terminate_session", session_id=id)
    assert ended["level"] == "notice" and "terminate_session was called" in ended["data"]["message"]


def test_a_limit_is_a_message(serve: Serve) -> None:
    server = serve("--limit", "processes=30")
    server.initialize()
    set_level(server, "warning")
    code = "import subprocess\ntry:\n    for _ in range(99): subprocess.Popen(['sleep', '9'])\nexcept OSError: pass"
    server.call("execute_ipython_cell", code=code)
    while (message := server.receive()).get("method") != "notifications/message":
        pass
    assert message["params"]["level"] == "warning" and "30" in message["params"]["data"]["message"]


def test_without_a_handshake_each_request_asks_for_itself(serve: Serve) -> None:
    server = serve()
    assert call(server, None, "execute_ipython_cell", code=DIES)[0] == []
    assert len(call(server, "debug", "execute_ipython_cell", code=DIES)[0]) == 1
    assert call(server, "critical", "execute_ipython_cell", code=DIES)[0] == []
    params = {"name": "reset", "arguments": {}, "_meta": meta({}, **{META + "logLevel": "loud"})}
    assert server.answer(server.request("tools/call", params))["error"]["code"] == -32602
    wrong = server.request("logging/setLevel", {"level": "info", "_meta": meta({})})
    assert server.answer(wrong)["error"]["code"] == -32601


def test_messages_are_bounded(serve: Serve) -> None:
    server = serve()
    server.initialize()
    set_level(server, "debug")
    found = [logged(server, server.call("reset")) for _ in range(14)]
    assert [len(f) for f in found] == [1] * 10 + [0] * 4


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_the_official_client(cellgate: Path, workspace: Path, environment: dict[str, str], mode: str) -> None:
    found: list[types.LoggingMessageNotificationParams] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        found.append(params)

    async def use() -> None:
        arguments = ["mcp", "serve", "--workspace", str(workspace)]
        server = StdioServerParameters(command=str(cellgate), args=arguments, env=environment)
        level = {} if mode == "legacy" else {"log_level": "info"}
        async with Client(server, mode=mode, logging_callback=log, **level) as client:
            if mode == "legacy":
                await client.set_logging_level("info")
            await client.call_tool("execute_ipython_cell", {"code": DIES})

    anyio.run(use)
    assert [f.level for f in found] == ["error"]
