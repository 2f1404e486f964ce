"""The protocol's tasks over HTTP: reached over any connection with the token, by the client that has them."""

import http.client
import json
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_http.helpers import Server, Session
from mcp_http.test_stateless import CALL, Stateless
from mcp_serve.helpers import text_of
from mcp_serve.test_stateless import YES, meta
from mcp_serve.test_tasks import ASKED, METHODS
from processes import eventually
from rounds import dear

Serve = Callable[..., Server]


class Tasks(Stateless):
    """With a name, and Mcp-Name as the extension wants it."""

    def __init__(self, server: Server, name: str = "test") -> None:
        super().__init__(server)
        self.name = name

    def message(self, method: str, token: object = None, **params: object) -> dict[str, Any]:
        message = super().message(method, token, **params)
        info = {"name": self.name, "version": "1"}
        message["params"]["_meta"] = meta(ASKED, **{"io.modelcontextprotocol/clientInfo": info})
        return message

    @staticmethod
    def headers(message: dict[str, Any], **more: str | None) -> dict[str, str | None]:
        own = Stateless.headers(message)
        if "taskId" in message["params"]:
            own["Mcp-Name"] = message["params"]["taskId"]
        return {**own, **{k.replace("_", "-"): v for k, v in more.items()}}

    def about(self, method: str, id: str, **headers: str | None) -> tuple[int, dict[str, Any]]:
        reply = self.post(self.message(method, taskId=id, inputResponses={}), **headers)
        return reply.status, reply.message

    def get(self, id: str) -> dict[str, Any]:
        status, message = self.about("tasks/get", id)
        assert status == 200, message
        return message["result"]


@pytest.fixture
def server(serve: Serve, mcp_file: Path) -> Server:
    return serve("--mcp", mcp_file, "--approve", "ask", "--wait", "0.5")


def test_a_task_is_answered_over_other_connections(server: Server, mark: Path) -> None:
    """Also by the client after a restart, which has kept the taskId."""
    id = Tasks(server).cell(CALL)["taskId"]
    again = Tasks(server)
    eventually(lambda: again.get(id)["status"] == "input_required")
    ((key, _),) = again.get(id)["inputRequests"].items()
    reply = again.post(again.message("tasks/update", taskId=id, inputResponses={key: YES}))
    assert reply.message["result"] == {"resultType": "complete"}
    eventually(lambda: again.get(id)["status"] == "completed")
    result = again.get(id)["result"]
    assert "leave_mark: x" in text_of(result) and mark.read_text() == "x\n"
    assert text_of(result).startswith("[cellgate: a new session")


def test_a_task_of_a_session_with_a_connection(server: Server) -> None:
    """It is found in the process of the session that the call has named."""
    session = Session(server)
    named = session.execute("x = 41").message["result"]["structuredContent"]["session_id"]
    client = Tasks(server)
    id = client.cell("import time; time.sleep(1); x + 1", session_id=named)["taskId"]
    assert id.startswith(named)
    eventually(lambda: client.get(id)["status"] == "completed")
    assert text_of(client.get(id)["result"]) == "42"


def test_headers_and_other_clients(server: Server, mark: Path) -> None:
    client = Tasks(server)
    id = client.cell(CALL)["taskId"]
    eventually(lambda: client.get(id)["status"] == "input_required")
    for method in METHODS:
        assert client.about(method, id, Mcp_Name=None)[1]["error"]["code"] == -32020
        assert client.about(method, id, Mcp_Name=id + "x")[1]["error"]["code"] == -32020
        # A client of another name, and an id that was guessed.
        status, message = Tasks(server, "other").about(method, id)
        assert status == 400 and message["error"]["code"] == -32602
        status, message = client.about(method, id[:8] + "0" * 24 + id[32:])
        assert status == 400 and message["error"]["code"] == -32602
        plain = Stateless(server)
        reply = plain.post(plain.message(method, taskId=id, inputResponses={}), Mcp_Name=id)
        assert reply.status == 400 and reply.message["error"]["code"] == -32021
    plain = Stateless(server)
    reply = plain.post(plain.message("subscriptions/listen", notifications={"taskIds": [id]}))
    assert reply.status == 400 and reply.message["error"]["code"] == -32021
    reply = client.post(client.message("subscriptions/listen", notifications={"taskIds": [id]}))
    assert next(reply.events())["params"]["notifications"] == {}  # none are sent
    reply.close()
    assert client.get(id)["status"] == "input_required" and not mark.exists()
    assert client.about("tasks/cancel", id)[0] == 200
    eventually(lambda: client.get(id)["status"] == "cancelled")


@dear
@pytest.mark.no_sanitizer  # half a gigabyte of JSON, in the same calls
def test_results_that_nobody_reads_have_a_limit(server: Server) -> None:
    """The front has them: 8 MiB for each look at the task."""
    client = Tasks(server)
    code = "print('x' * 3_900_000, flush=True); import time; time.sleep(3)"
    id = client.cell(code, max_output_chars=4_000_000)["taskId"]
    eventually(lambda: client.get(id)["status"] == "completed")
    looks: list[http.client.HTTPConnection] = []
    for _ in range(60):
        message = client.message("tasks/get", taskId=id)
        headers = {**client.headers(message), "Content-Type": "application/json", "Accept": "application/json"}
        looks.append(server.connect())
        looks[-1].request("POST", "/mcp", json.dumps(message), server.headers(headers))
    assert select.select([looks[-1].sock], [], [], 60)[0]
    replies = [json.loads(look.getresponse().read()) for look in looks]
    whole = [r for r in replies if "result" in r]
    assert 30 <= len(whole) < 60 and all("not read" in r["error"]["message"] for r in replies if r not in whole)
    assert all(text_of(r["result"]["result"]).count("x") >= 3_900_000 for r in whole)
    assert client.get(id)["status"] == "completed"
