"""Revision 2026-07-28 over HTTP: no sessions of the transport, headers that proxies route by, questions as results."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_http.helpers import Reply, Server, Session
from mcp_serve.helpers import text_of
from mcp_serve.test_resources import LONG, links
from mcp_serve.test_stateless import META, YES, meta
from processes import eventually, gate

Serve = Callable[..., Server]
CALL = "from mcptools.fake import leave_mark\nprint(leave_mark.run(text='x'))"


class Stateless:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.last_id = 0

    def message(self, method: str, token: object = None, **params: object) -> dict[str, Any]:
        self.last_id += 1
        params["_meta"] = meta() if token is None else meta(progressToken=token)
        return {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}

    @staticmethod
    def headers(message: dict[str, Any], **more: str | None) -> dict[str, str | None]:
        own = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": message["method"]}
        if name := message["params"].get("name") or message["params"].get("uri"):
            own["Mcp-Name"] = name
        return {**own, **{k.replace("_", "-"): v for k, v in more.items()}}

    def post(self, message: dict[str, Any], **headers: str | None) -> Reply:
        return self.server.post(message, self.headers(message, **headers))

    def call(self, tool: str, state: str | None = None, answers: object = None, **arguments: object) -> dict[str, Any]:
        more = {} if state is None else {"requestState": state, "inputResponses": answers}
        reply = self.post(self.message("tools/call", name=tool, arguments=arguments, **more))
        assert reply.status == 200, reply.body
        return reply.message["result"]

    def cell(self, code: str, **more: Any) -> dict[str, Any]:
        return self.call("execute_ipython_cell", code=code, **more)


def test_state_is_kept_by_the_session_that_a_call_names(serve: Serve) -> None:
    client = Stateless(serve())
    first = client.cell("x = 41")
    id = first["structuredContent"]["session_id"]
    assert text_of(first).startswith("[cellgate: a new session") and id in text_of(first)
    # Another connection, and another client with the same token.
    other = Stateless(client.server)
    assert text_of(other.cell("x + 1", session_id=id)) == "42"
    assert text_of(other.cell("'x' in globals()")).endswith("\nFalse")
    wrong = other.cell("1", session_id=id[:-1] + ("0" if id[-1] != "0" else "1"))
    assert wrong["isError"] and "no such session" in text_of(wrong)


def test_a_session_is_reached_from_both_eras_and_without_the_header(serve: Serve) -> None:
    """Some clients of the older era lose Mcp-Session-Id."""
    server = serve()
    session = Session(server)
    result = session.execute("x = 41").message["result"]
    id = result["structuredContent"]["session_id"]
    assert text_of(Stateless(server).cell("x + 1", session_id=id)) == "42"
    session.id = ""
    assert session.call("execute_ipython_cell", code="x", session_id=id).message["result"]["content"][0]["text"] == "41"
    # Without its name, without a token, or by a name that is only guessed nothing is reached.
    assert session.execute("x").status == 400
    assert server.request("POST", body=b"{}", headers={"Authorization": None}).status == 401
    guessed = id[:8] + "0" * 24
    assert "no such session" in str(session.call("execute_ipython_cell", code="x", session_id=guessed).message)
    assert session.call("execute_ipython_cell", code="x", session_id="ffffffff" + id[8:]).status == 400


def test_a_resource_is_reached_by_its_link(serve: Serve) -> None:
    """From both eras, also without the header of the session; but no other session's id is told."""
    server = serve()
    session, client = Session(server), Stateless(server)
    for result in (client.cell(LONG), session.execute(LONG).message["result"]):
        uri = links(result)["stdout"]
        reply = client.post(client.message("resources/read", uri=uri))
        assert reply.message["result"]["contents"][0]["text"].endswith("end\n"), reply.body
        assert client.post(client.message("resources/list")).message["result"]["resources"] == []
        guessed = client.post(client.message("resources/read", uri=uri.replace(uri.split("/")[3][8:], "0" * 24)))
        assert guessed.status == 400 and guessed.message["error"]["code"] == -32602
        wrong = client.message("resources/read", uri=uri)
        assert client.post(wrong, Mcp_Name=uri + "x").message["error"]["code"] == -32020
    assert len(session.request("resources/list").message["result"]["resources"]) == 1
    session.id = ""
    assert session.request("resources/read", {"uri": uri}).status == 200


def test_a_file_of_a_cell_is_reached_by_its_uri(serve: Serve) -> None:
    server = serve("--artifacts")
    session, client = Session(server), Stateless(server)
    for result in (
        client.cell("open('1', 'w').write('1')"),
        session.execute("open('2', 'w').write('2')").message["result"],
    ):
        (file,) = result["structuredContent"]["artifacts"]
        text = Path(file["path"]).read_text()
        for reader in (client, Stateless(server)):
            reply = reader.post(reader.message("resources/read", uri=file["uri"])).message["result"]
            assert reply["contents"][0]["text"] == text and reply["resultType"] == "complete"
        guessed = client.message("resources/read", uri=file["uri"].replace(file["uri"].split("/")[3][8:], "0" * 24))
        assert client.post(guessed).message["error"]["code"] == -32602
    assert session.request("resources/read", {"uri": file["uri"]}).message["result"]["contents"][0]["text"] == "2"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"MCP_Protocol_Version": "2025-11-25"}, -32020),
        ({"MCP_Protocol_Version": None}, -32020),
        ({"Mcp_Method": None}, -32020),
        ({"Mcp_Method": "tools/list"}, -32020),
        ({"Mcp_Name": None}, -32020),
        ({"Mcp_Name": "Execute_ipython_cell"}, -32020),
        ({"Mcp_Name": "=?base64?" + base64.b64encode(b"reset").decode() + "?="}, -32020),
        ({"Mcp_Name": "=?base64?" + base64.b64encode(b"execute_ipython_cell").decode() + "?="}, None),
        ({"Mcp_Name": "=?base64?%%%?="}, -32020),
        ({}, None),
    ],
)
def test_headers_say_what_the_body_says(serve: Serve, headers: dict[str, str | None], code: int | None) -> None:
    client = Stateless(serve())
    reply = client.post(client.message("tools/call", name="execute_ipython_cell", arguments={"code": "1"}), **headers)
    assert reply.status == (200 if code is None else 400)
    assert reply.message["id"] == 1 and reply.message.get("error", {}).get("code") == code


def test_errors_have_their_status(serve: Serve) -> None:
    client = Stateless(serve())
    assert client.post(client.message("no/such")).status == 404
    assert client.post(client.message("tools/call", name="no_such", arguments={})).status == 400
    message = client.message("tools/list")
    del message["params"]["_meta"][META + "clientCapabilities"]
    assert client.post(message).status == 400
    message = client.message("tools/list")
    message["params"]["_meta"][META + "protocolVersion"] = "2027-01-01"
    reply = client.post(message, MCP_Protocol_Version="2027-01-01")
    assert reply.status == 400 and reply.message["error"]["data"]["supported"] == ["2026-07-28"]
    for method in ("GET", "DELETE"):
        assert client.server.request(method, headers={"MCP-Protocol-Version": "2026-07-28"}).status == 405


def test_a_question_is_answered_over_another_connection(serve: Serve, mcp_file: Path, mark: Path) -> None:
    client = Stateless(serve("--mcp", mcp_file, "--approve", "ask"))
    result = client.cell(CALL)
    ((key, question),) = result["inputRequests"].items()
    assert "leave_mark" in question["params"]["message"]
    assert "Without an answer within 900 s it is refused." in question["params"]["message"]
    # The arguments are those of the first call, without the session that it got.
    other = Stateless(client.server)
    done = other.call("execute_ipython_cell", result["requestState"], {key: YES}, code=CALL)
    assert not done["isError"] and mark.read_text() == "x\n" and "leave_mark: x" in text_of(done)


def test_to_go_away_is_to_cancel(serve: Serve, workspace: Path) -> None:
    client = Stateless(serve())
    id = client.cell("x = 1")["structuredContent"]["session_id"]
    code = "open('started', 'w').close()\nwhile True: pass"
    message = client.message("tools/call", name="execute_ipython_cell", arguments={"code": code, "session_id": id})
    connection = client.server.connect()
    headers = client.server.headers({**client.headers(message), "Content-Type": "application/json"})
    connection.request("POST", "/mcp", json.dumps(message), headers)
    eventually((workspace / "started").exists)
    connection.close()
    assert text_of(client.cell("x", session_id=id)).endswith("1")


def test_two_clients_may_use_one_token_for_progress(serve: Serve, workspace: Path) -> None:
    client = Stateless(serve())
    go = gate(workspace)
    code = "print('line'); open('go').read()"
    message = client.message("tools/call", "same", name="execute_ipython_cell", arguments={"code": code})
    connection = client.server.connect()
    headers = client.server.headers(
        {**client.headers(message), "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    )
    connection.request("POST", "/mcp", json.dumps(message), headers)
    reply = Reply(connection)
    progress = next(reply.events())
    assert progress["method"] == "notifications/progress" and progress["params"]["progressToken"] == "same"
    other = client.post(client.message("tools/call", "same", name="execute_ipython_cell", arguments={"code": "1"}))
    *seen, answer = other.events() if other.streams else [other.message]
    assert answer["id"] == 2 and all(m["params"]["message"] != "line" for m in seen)
    go()
    *_, answer = reply.events()
    assert answer["id"] == 1 and "line" in text_of(answer["result"])


def test_messages_come_to_the_request_that_asks_for_them(serve: Serve, workspace: Path) -> None:
    """Not to another client's call, which is older."""
    client = Stateless(serve())
    go = gate(workspace)
    streams = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    first = client.message("tools/call", name="execute_ipython_cell", arguments={"code": "open('go').read()"})
    connection = client.server.connect()
    connection.request("POST", "/mcp", json.dumps(first), client.server.headers({**client.headers(first), **streams}))
    other = client.message("tools/call", name="execute_ipython_cell", arguments={"code": "import os; os._exit(3)"})
    other["id"] = "mine"
    other["params"]["_meta"][META + "logLevel"] = "info"
    *messages, answer = client.post(other).events()
    assert answer["id"] == "mine" and "status 3" in text_of(answer["result"])
    assert [m["params"]["_meta"] for m in messages] == [{"cellgate/request": "mine"}]
    assert "status 3" in messages[0]["params"]["data"]["message"]
    go()
    assert Reply(connection).message["id"] == first["id"]


def test_an_empty_subscription_stays_open(serve: Serve) -> None:
    client = Stateless(serve())
    reply = client.post(client.message("subscriptions/listen", notifications={"toolsListChanged": True}))
    first = next(reply.events())
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"] == {"_meta": {META + "subscriptionId": 1}, "notifications": {}}
    reply.close()
    assert not client.cell("1")["isError"]


def test_a_subscription_is_a_stream(serve: Serve) -> None:
    client = Stateless(serve())
    reply = client.post(client.message("subscriptions/listen", notifications={}), Accept="application/json")
    assert reply.status == 406 and reply.message["id"] == 1


def test_sessions_without_a_connection_have_limits(serve: Serve) -> None:
    """The oldest may be another agent's: its id is not told."""
    client = Stateless(serve("--max-sessions", "2", "--idle", "600"))
    ids = [client.cell("1")["structuredContent"]["session_id"] for _ in range(2)]
    refused = text_of(client.cell("1"))
    assert "as many as --max-sessions allows" in refused and "600 s without a call" in refused
    assert not any(id in refused for id in ids)
    assert text_of(client.cell("2", session_id=ids[0])) == "2"


def test_another_clients_session_of_a_connection(serve: Serve) -> None:
    """It leads to that one's process, which asks for attach: true."""
    server = serve()
    id = Session(server).execute("x = 41").message["result"]["structuredContent"]["session_id"]
    other = Stateless(server)

    def cell(**more: object) -> dict[str, Any]:
        message = other.message(
            "tools/call", name="execute_ipython_cell", arguments={"code": "x + 1", "session_id": id, **more}
        )
        message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] = {"name": "other", "version": "1"}
        return other.post(message).message["result"]

    assert 'of another client, "test"' in text_of(cell())
    assert text_of(cell(attach=True)).startswith("42") and text_of(cell()) == "42"


def test_calls_that_are_left_leave_no_session(serve: Serve, workspace: Path) -> None:
    """Nobody knows the sessions that were made for them."""
    client = Stateless(serve("--max-sessions-per-client", "2"))
    for name in ("a", "b"):
        code = f"open({name!r}, 'w').close()\nwhile True: pass"
        message = client.message("tools/call", name="execute_ipython_cell", arguments={"code": code})
        connection = client.server.connect()
        headers = client.server.headers(client.headers(message))
        connection.request("POST", "/mcp", json.dumps(message), {**headers, "Content-Type": "application/json"})
        eventually((workspace / name).exists)
        connection.close()
    eventually(lambda: not client.cell("1").get("isError"))


NO_TOKENS: list[object] = [None, True, {"a": "b" * 1000}, [1], "x" * 1000]


def test_what_is_no_progress_token_gets_no_progress(serve: Serve) -> None:
    client = Stateless(serve())
    for token in NO_TOKENS:
        message = client.message("tools/call", name="execute_ipython_cell", arguments={})
        message["params"]["arguments"]["code"] = "import time\nfor i in range(4): print(i); time.sleep(0.3)"
        message["params"]["_meta"]["progressToken"] = token
        reply = client.post(message)
        assert not reply.streams and text_of(reply.message["result"]).endswith("3"), list(reply.events())


def test_clients_of_one_session_have_a_limit(serve: Serve) -> None:
    """Each call would tell of all of them."""
    client = Stateless(serve())
    id = client.cell("1")["structuredContent"]["session_id"]
    for i in range(70):
        message = client.message("tools/call", name="execute_ipython_cell", arguments={"code": "1", "session_id": id})
        message["params"]["arguments"]["attach"] = True
        message["params"]["_meta"][META + "clientInfo"] = {"name": f"client {i}", "version": "1"}
        result = client.post(message).message["result"]
        if result.get("isError"):
            assert "64 clients" in text_of(result) and i >= 60
            break
    else:
        raise AssertionError("each client was let in")
    assert text_of(client.cell("2", session_id=id)).startswith("2\n")
