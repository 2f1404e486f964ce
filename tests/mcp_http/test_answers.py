"""What a client does with a question, in both eras: its forms (elicitation) and the results that ask (MRTR)."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_http.helpers import Reply, Server, Session
from mcp_http.test_stateless import Stateless
from mcp_serve.helpers import text_of
from processes import eventually

Serve = Callable[..., Server]
CODE = "from mcptools.fake import leave_mark\nprint(leave_mark.run(text='x'))"
YES = {"action": "accept", "content": {"decision": "approve"}}
ONCE = "x\n"


class Forms:
    """A client of 2025-11-25, whose questions come on the stream of their call."""

    def __init__(self, server: Server, id: str = "") -> None:
        self.session = Session(server, elicitation={})
        self.session.id = id or self.session.id

    def ask(self) -> tuple[Any, Any]:
        """A call that waits, and its question."""
        events = self.session.execute(CODE).events()
        return events, next(events)

    def answer(self, asked: tuple[Any, Any], result: object) -> None:
        assert self.session.answer(asked[1], result).status == 202

    def result(self, asked: tuple[Any, Any]) -> dict[str, Any]:
        """Of the call, past the withdrawal of a question that nobody has answered."""
        return next(m["result"] for m in asked[0] if "result" in m)


def test_cells_on_another_machine(serve: Serve, cellgate: Path, mcp_file: Path, mark: Path) -> None:
    """Of which this one is the far end: each session has a connection, and its questions come to its client."""
    server = serve("--connect", f"{cellgate} relay", "--mcp", mcp_file, "--approve", "ask")
    client = Forms(server)
    asked = client.ask()
    assert not mark.exists()
    client.answer(asked, YES)
    assert text_of(client.result(asked)) == "leave_mark: x" and mark.read_text() == ONCE
    assert text_of(Session(server).execute("1 + 1").message["result"]) == "2"


class States:
    """One of 2026-07-28, which repeats the call with the state and the answers."""

    def __init__(self, server: Server) -> None:
        self.client = Stateless(server)
        self.last: dict[str, Any] = {}

    def ask(self) -> Any:
        asked = self.client.cell(CODE)
        assert asked["resultType"] == "input_required", asked
        return asked

    def answer(self, asked: dict[str, Any], result: object) -> None:
        (key,) = asked["inputRequests"]
        more = {"requestState": asked["requestState"], "inputResponses": {key: result}}
        call = self.client.message("tools/call", name="execute_ipython_cell", arguments={"code": CODE}, **more)
        self.last = self.client.post(call).message

    def result(self, _asked: dict[str, Any]) -> dict[str, Any]:
        return self.last["result"]


ERAS = pytest.mark.parametrize("era", [Forms, States])


@pytest.fixture
def server(serve: Serve, mcp_file: Path) -> Server:
    return serve("--mcp", mcp_file, "--approve", "ask")


@ERAS
def test_no_answer_in_time_and_one_that_comes_late(serve: Serve, mcp_file: Path, mark: Path, era: type) -> None:
    client = era(serve("--mcp", mcp_file, "--approve", "ask", "--ask-timeout", "1"))
    asked = client.ask()
    if era is Forms:
        result = client.result(asked)
        client.answer(asked, YES)
        assert client.session.text("1") == "1"  # the answer was read before
    else:
        done: dict[str, Any] = {}
        cell = {"execution_id": "cell-1", "wait": 0}
        eventually(lambda: done.update(client.client.call("cell_result", **cell)) or "in time" in text_of(done))
        client.answer(asked, YES)
        result = client.result(asked)
    assert "did not answer in time" in text_of(result) and not mark.exists()


@ERAS
def test_an_answer_that_comes_twice(server: Server, mark: Path, era: type) -> None:
    """The second one is none to the next question, which looks the same."""
    client = era(server)
    first = client.ask()
    client.answer(first, YES)
    client.result(first)
    second = client.ask()
    client.answer(first, YES)
    if era is States:
        assert client.last["error"]["code"] == -32602
    client.answer(second, {"action": "decline"})
    assert client.result(second)["isError"] and mark.read_text() == ONCE


@ERAS
def test_an_answer_to_another_sessions_question(server: Server, mark: Path, era: type) -> None:
    """Of another connection, or in the second era of another session of Python: only its own question is decided."""
    one, other = era(server), era(server)
    first, second = one.ask(), other.ask()
    if era is Forms:
        other.answer(first, YES)  # the number of one in the session of the other
        assert other.session.request("ping").status == 200
    else:
        mixed = {**first, "inputRequests": second["inputRequests"]}
        other.answer(mixed, YES)  # the state of one with the key of the other: asked again, and by a new state
        assert other.last["result"]["resultType"] == "input_required" and not mark.exists()
        first = other.last["result"]
    other.answer(second, {"action": "decline"})
    assert other.result(second)["isError"] and not mark.exists()
    one.answer(first, YES)
    assert not one.result(first)["isError"] and mark.read_text() == ONCE


@pytest.mark.parametrize("how", ["header", "token"])
def test_a_state_of_somebody_elses(server: Server, mark: Path, how: str) -> None:
    """A requestState is good in its own process only; another session's cannot be reached by it."""
    client = States(server)
    asked = client.ask()
    (key,) = asked["inputRequests"]
    session = Session(server)
    id = session.execute("1").message["result"]["structuredContent"]["session_id"]
    more = {"requestState": asked["requestState"], "inputResponses": {key: YES}}
    arguments = {"code": CODE, **({"session_id": id} if how == "header" else {})}
    call = client.client.message("tools/call", name="execute_ipython_cell", arguments=arguments, **more)
    if how == "header":  # leads to the process of the connection
        error = client.client.post(call).message["error"]
        assert error["code"] == -32602 and "names no call" in error["message"]
    else:
        assert client.client.post(call, Authorization="Bearer " + "A" * 64).status == 401
    assert not mark.exists()
    client.answer(asked, YES)
    assert not client.result(asked)["isError"] and mark.read_text() == ONCE


KILLED = """
import http.client, json, sys, time
host, token, head, body = json.loads(sys.argv[1])
c = http.client.HTTPConnection(host)
c.request("POST", "/mcp", json.dumps(body), {"Authorization": "Bearer " + token, **head})
r = c.getresponse()
if r.headers.get_content_type() == "text/event-stream":
    while not (line := r.readline()).startswith(b"data: {"): pass
    print(line[6:].decode().strip(), flush=True)
else:
    print(r.read().decode().strip(), flush=True)
time.sleep(600)
"""


def asked_and_killed(server: Server, head: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """What another process was asked before it was killed."""
    head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **head}
    words = json.dumps([f"127.0.0.1:{server.connect().port}", server.token, head, body])
    with subprocess.Popen([sys.executable, "-c", KILLED, words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        message: dict[str, Any] = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    return message


def test_after_kill_9_another_process_answers_by_the_state(server: Server, mark: Path, workspace: Path) -> None:
    client = States(server)
    code = "open('runs', 'a').write('x')\n" + CODE
    body = client.client.message("tools/call", name="execute_ipython_cell", arguments={"code": code})
    asked = asked_and_killed(server, client.client.headers(body), body)["result"]
    (key,) = asked["inputRequests"]
    done = client.client.cell(code, state=asked["requestState"], answers={key: YES})
    assert "leave_mark: x" in text_of(done) and mark.read_text() == ONCE
    assert (workspace / "runs").read_text() == "x"  # the paused cell went on, and did not run again


def test_after_kill_9_another_process_without_the_state_is_asked_again(
    server: Server, mark: Path, slowness: float
) -> None:
    """At once, by a new state; once that was used, the old one decides nothing."""
    client = States(server)
    id = client.client.cell("1")["structuredContent"]["session_id"]
    body = client.client.message("tools/call", name="execute_ipython_cell", arguments={"code": CODE, "session_id": id})
    old = asked_and_killed(server, client.client.headers(body), body)["result"]
    began = time.monotonic()
    arguments = {"execution_id": "cell-2", "wait": 30}
    new = client.client.call("cell_result", **arguments)
    assert new.get("resultType") == "input_required", new
    assert time.monotonic() - began < slowness
    assert new["inputRequests"] == old["inputRequests"] and new["requestState"] != old["requestState"]

    def answer(call: dict[str, Any], asked: dict[str, Any], answer: object) -> dict[str, Any]:
        (key,) = asked["inputRequests"]
        params = {**call, "requestState": asked["requestState"], "inputResponses": {key: answer}}
        return client.client.post(client.client.message("tools/call", **params)).message

    refused = answer({"name": "cell_result", "arguments": arguments}, new, {"action": "decline"})["result"]
    assert "rejected" in text_of(refused)
    assert "rejected" in text_of(answer(body["params"], old, YES)["result"]) and not mark.exists()
    for call, asked in ((body["params"], old), ({"name": "cell_result", "arguments": arguments}, new)):
        assert answer(call, asked, YES)["error"]["code"] == -32602


def test_a_client_that_shows_a_form_may_ask_for_the_result(server: Server, mark: Path) -> None:
    """Each call of cell_result gets the question as well, and the form that was open first still counts."""
    client = States(server)
    id = client.client.cell("1")["structuredContent"]["session_id"]
    arguments = {"code": CODE, "session_id": id}
    first = client.client.call("execute_ipython_cell", **arguments)
    (key,) = first["inputRequests"]
    result = {"execution_id": "cell-2", "wait": 30}
    others = [client.client.call("cell_result", **result) for _ in range(10)]
    assert all(o["inputRequests"] == first["inputRequests"] for o in others)

    def answer(tool: str, arguments: dict[str, Any], state: str, answer: object) -> dict[str, Any]:
        more = {"requestState": state, "inputResponses": {key: answer}}
        message = client.client.message("tools/call", name=tool, arguments=arguments, **more)
        return client.client.post(message).message

    done = answer("execute_ipython_cell", arguments, first["requestState"], YES)["result"]
    assert "leave_mark: x" in text_of(done) and mark.read_text() == ONCE
    late = [answer("cell_result", result, o["requestState"], {"action": "decline"}) for o in others]
    assert ["error" in m for m in late] == [True] * 6 + [False] * 4  # these are held; nothing is decided twice
    assert all("leave_mark: x" in text_of(m["result"]) for m in late[6:])


@pytest.mark.slow
def test_after_kill_9_another_process_is_asked_again(server: Server, mark: Path, slowness: float) -> None:
    """With a new number: the answer to the question of before decides nothing."""
    session = Session(server, elicitation={})
    body = session.call_message("execute_ipython_cell", code=CODE)
    old = asked_and_killed(server, session.headers(), body)
    again = Forms(server, session.id)
    began = time.monotonic()
    reply: Reply = again.session.get()
    new = next(m for m in reply.events() if m.get("method") == "elicitation/create")
    assert time.monotonic() - began < slowness
    assert new["id"] != old["id"] and new["params"]["message"] == old["params"]["message"]
    again.session.answer(old, {"action": "decline"})
    again.session.answer(new, YES)
    result = again.session.call("cell_result", execution_id="cell-1", wait=30).message["result"]
    assert "leave_mark: x" in text_of(result) and mark.read_text() == ONCE
