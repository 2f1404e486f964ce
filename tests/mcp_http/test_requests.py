"""Requests, sessions and streams, by hand."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp_http.helpers import Server, Session
from processes import eventually, gate

Serve = Callable[..., Server]
YES = {"action": "accept", "content": {"decision": "approve"}}
NO = {"action": "decline"}
CALL = "from mcptools.fake import leave_mark\nprint(leave_mark.run(text='x'))"


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_a_session_keeps_its_state_and_the_others_do_not_see_it(serve: Serve, version: str) -> None:
    server = serve()
    one, two = Session(server, version), Session(server, version)
    assert one.result["protocolVersion"] == version
    assert len(one.id) == 32 and one.id != two.id
    assert "execute_ipython_cell" in [t["name"] for t in one.request("tools/list").message["result"]["tools"]]
    assert one.text("x = 41") == "(no output)"
    assert one.text("x + 1") == "42"
    assert "NameError" in two.text("x")


def test_a_client_makes_sessions_in_its_own_process(serve: Serve) -> None:
    server = serve("--toolsets", "core,sessions", "--max-sessions", "2", "--idle", "1000")
    one, two = Session(server), Session(server)
    made = one.call("create_session").message["result"]["structuredContent"]["session_id"]
    assert one.call("execute_ipython_cell", code="x = 1", session_id=made).message["result"]["isError"] is False
    assert "NameError" in one.text("x")
    refused = one.call("create_session").message["result"]
    assert refused["isError"] and "there are 2 sessions" in refused["content"][0]["text"]
    other = two.call("execute_ipython_cell", code="x", session_id=made).message["result"]
    assert other["isError"] and "no such session" in other["content"][0]["text"]
    for ends in ({"to_session": made, "data": {"x": 2}}, {"to_session": one.id, "from_session": made, "names": ["x"]}):
        other = two.call("bridge_data", **ends).message["result"]
        assert other["isError"] and "no such session" in other["content"][0]["text"]
    assert one.call("bridge_data", to_session=made, data={"y": 2}).message["result"]["isError"] is False
    assert (
        one.call("execute_ipython_cell", code="x, y", session_id=made).message["result"]["content"][0]["text"]
        == "(1, 2)"
    )


def test_ids_come_back_as_they_were_and_may_be_used_again(serve: Serve) -> None:
    session = Session(serve())
    for id in (0, -7, 9007199254740993, "a\n\u00fc", "1", 1, 1):
        reply = session.post({"jsonrpc": "2.0", "id": id, "method": "ping"})
        assert reply.status == 200 and reply.headers["Content-Type"] == "application/json"
        assert reply.message == {"jsonrpc": "2.0", "id": id, "result": {}}


def test_a_message_may_have_line_ends(serve: Serve) -> None:
    session = Session(serve())
    message = session.call_message("execute_ipython_cell", code="print('a\\nb')\n3")
    reply = session.post(json.dumps(message, indent=2).replace("\n", "\r\n").encode())
    assert reply.message["result"]["content"][0]["text"] == "a\nb\n3"


def test_two_requests_with_one_id_get_their_own_answers(serve: Serve, workspace: Path) -> None:
    session = Session(serve())
    go = gate(workspace)
    call = session.call_message("execute_ipython_cell", code="open('go').read(); print('first')")
    first = session.begin(call)
    assert session.post({"jsonrpc": "2.0", "id": call["id"], "method": "ping"}).message["result"] == {}
    go()
    assert json.loads(first.getresponse().read())["result"]["content"][0]["text"] == "first"


def test_what_comes_before_the_answer_makes_it_a_stream(serve: Serve, mcp_file: Path, mark: Path) -> None:
    session = Session(serve("--mcp", mcp_file, "--approve", "ask"), elicitation={})
    for answer, allowed in ((NO, False), (YES, True)):
        reply = session.execute(CALL)
        assert reply.streams and reply.headers["Cache-Control"] == "no-cache, no-transform"
        events = reply.events()
        question = next(events)
        assert question["method"] == "elicitation/create" and "leave_mark" in question["params"]["message"]
        assert session.answer(question, answer).status == 202
        result = next(events)["result"]
        assert result["isError"] is not allowed and mark.exists() is allowed
        assert list(events) == []


def test_progress_comes_on_the_stream_of_its_call(serve: Serve, workspace: Path) -> None:
    session = Session(serve())
    go = gate(workspace)
    plain = session.begin(session.call_message("execute_ipython_cell", code="open('go').read()"))
    streams = [session.execute("1", token) for token in ("a", 2)]
    seen = [next(s.events()) for s in streams]
    assert [m["params"]["progressToken"] for m in seen] == ["a", 2]
    go()
    assert "result" in json.loads(plain.getresponse().read())
    for stream in streams:
        *progress, answer = stream.events()
        assert {m["method"] for m in progress} <= {"notifications/progress"} and "result" in answer


def test_a_client_without_streams_is_not_asked(serve: Serve, mcp_file: Path, mark: Path) -> None:
    session = Session(serve("--mcp", mcp_file, "--approve", "ask"), elicitation={})
    reply = session.execute(CALL, Accept="application/json")
    assert not reply.streams and reply.message["result"]["isError"]
    assert not mark.exists()
    # With a stream for what belongs to no request it is.
    events = session.get().events()
    call = session.begin(session.call_message("execute_ipython_cell", code=CALL), Accept="application/json")
    session.answer(next(events), YES)
    assert not json.loads(call.getresponse().read())["result"]["isError"]
    assert mark.exists()


def test_the_cell_of_a_vanished_client_goes_on(serve: Serve, workspace: Path) -> None:
    session = Session(serve())
    session.text("x = 1")
    go = gate(workspace)
    code = "open('started', 'w').close(); open('go').read(); print('all of it', x)"
    connection = session.begin(session.call_message("execute_ipython_cell", code=code), Accept="application/json")
    eventually((workspace / "started").exists)
    connection.close()
    assert "runs" in session.call("cell_status", execution_id="cell-2").message["result"]["content"][0]["text"]
    go()
    result = session.call("cell_result", execution_id="cell-2").message["result"]
    assert result["content"][0]["text"] == "all of it 1"


def test_without_the_tools_for_jobs_the_cell_of_a_vanished_client_is_cancelled(serve: Serve, workspace: Path) -> None:
    session = Session(serve("--toolsets", "core"))
    session.text("x = 1")
    connection = session.begin_endless(workspace)
    connection.close()
    assert session.text("x") == "1"


def test_a_stream_is_resumed_where_it_broke_off(serve: Serve, mcp_file: Path, mark: Path) -> None:
    session = Session(serve("--mcp", mcp_file, "--approve", "ask"), elicitation={})
    reply = session.execute(CALL)
    question = next(reply.events())
    reply.close()
    assert reply.last_id
    session.answer(question, YES)
    again = session.get(Last_Event_ID=reply.last_id)
    assert not next(again.events())["result"]["isError"] and mark.exists()
    # Once more from the beginning: the question is repeated as well.
    stream = reply.last_id.split("-")[0]
    assert [m.get("method") for m in session.get(Last_Event_ID=f"{stream}-0").events()] == ["elicitation/create", None]


def test_a_question_of_a_cell_that_outlives_its_call_comes_with_the_next(
    serve: Serve, mcp_file: Path, mark: Path, workspace: Path
) -> None:
    session = Session(serve("--mcp", mcp_file, "--approve", "ask", "--wait", "0.1"), elicitation={})
    go = gate(workspace)
    assert "cell-1" in str(session.execute(f"open('go').read()\n{CALL}").message["result"])
    go()
    asked: list[dict] = []

    def is_asked() -> bool:
        reply = session.call("cell_status", execution_id="cell-1")
        asked.extend(m for m in (reply.events() if reply.streams else []) if "method" in m)
        return bool(asked)

    eventually(is_asked)
    assert [m["method"] for m in asked] == ["elicitation/create"]
    assert session.answer(asked[0], YES).status == 202
    assert "leave_mark: x" in str(session.call("cell_result", execution_id="cell-1", wait=30).message["result"])
    assert mark.exists()


def test_the_last_streams_are_kept(serve: Serve, mcp_file: Path) -> None:
    session = Session(serve("--mcp", mcp_file, "--approve", "ask"), elicitation={})
    ids = []
    for _ in range(33):
        reply = session.execute(CALL)
        events = reply.events()
        session.answer(next(events), NO)
        assert "result" in next(events) and list(events) == [] and reply.last_id
        ids.append(reply.last_id.replace("-3", "-2"))  # the first one primes
    assert session.get(Last_Event_ID=ids[0]).status == 400
    for id in (ids[1], ids[-1]):
        assert "result" in next(session.get(Last_Event_ID=id).events())


@pytest.mark.parametrize("id", ["x", "1", "999-1", "0-5", "1-1-1"])
def test_an_unknown_event_is_refused(serve: Serve, id: str) -> None:
    session = Session(serve())
    reply = session.get(Last_Event_ID=id)
    assert reply.status == 400 and "Last-Event-ID" in reply.error


@pytest.mark.slow
@pytest.mark.parametrize("answer", [YES, NO])
def test_a_client_that_comes_back_is_asked_again(
    serve: Serve, mcp_file: Path, mark: Path, answer: dict[str, object]
) -> None:
    session = Session(serve("--mcp", mcp_file, "--approve", "ask"), elicitation={})
    reply = session.execute(CALL)
    question = next(reply.events())
    reply.close()
    # Nobody resumes the stream: the call ends, and its cell waits.
    stream = session.execute("'next'").events()
    again = next(stream)
    assert again["method"] == "elicitation/create" and again["id"] != question["id"]
    session.answer(question, YES)  # given to the question of before, which decides nothing
    session.answer(again, answer)
    *_, last = stream
    assert "next" in str(last["result"]) and mark.exists() == (answer is YES)


def test_the_stream_of_get_is_taken_over(serve: Serve) -> None:
    session = Session(serve())
    first = session.get()
    assert first.streams
    second = session.get()
    assert list(first.events()) == [] and second.streams


def test_cancelled_requests_are_answered(serve: Serve, workspace: Path) -> None:
    session = Session(serve())
    connection = session.begin_endless(workspace)
    params = {"requestId": session.last_id}
    assert session.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).status == 202
    answer = json.loads(connection.getresponse().read())
    assert answer["id"] == session.last_id and "cancelled" in answer["error"]["message"]


def test_delete_ends_the_session(serve: Serve, workspace: Path) -> None:
    server = serve()
    session, other = Session(server), Session(server)
    connection = session.begin_endless(workspace)
    stream = session.get()
    assert session.delete().status == 204
    assert "ended by its client" in json.loads(connection.getresponse().read())["error"]["message"]
    assert list(stream.events()) == []
    for reply in (session.delete(), session.request("ping"), session.get()):
        assert reply.status == 404 and "no such session" in reply.error
    assert server.sessions() == 1 and other.text("1") == "1"


def test_a_client_may_send_the_next_request_on_the_same_connection(serve: Serve) -> None:
    session = Session(serve())
    connection = session.server.connect()
    headers = session.server.headers({**session.headers(), "Content-Type": "application/json"})
    connection.connect()
    port = connection.sock.getsockname()
    for code in ("1", "2"):
        message = session.call_message("execute_ipython_cell", code=code)
        connection.request("POST", "/mcp", json.dumps(message), headers)
        assert json.loads(connection.getresponse().read())["result"]["content"][0]["text"] == code
    assert connection.sock.getsockname() == port


@pytest.mark.parametrize(
    ("words", "tier"), [((), "full"), (("--tier", "landlock"), "landlock"), (("--no-sandbox",), "none")]
)
def test_health_needs_no_token_and_names_nothing(serve: Serve, words: tuple[str, ...], tier: str) -> None:
    server = serve(*words)
    session = Session(server)
    reply = server.request("GET", "/health", headers={"Authorization": None})
    health = json.loads(reply.body)
    assert reply.status == 200 and set(health) == {"status", "version", "tier", "sessions"}
    assert health["sessions"] == 1 and health["tier"] == tier
    assert session.id.encode() not in reply.body


def test_unix_socket(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    server = serve(address=f"unix:{path}")
    assert path.stat().st_mode & 0o777 == 0o600 and not server.token
    assert Session(server).text("1 + 1") == "2"
    server.end()
    assert not path.exists()
    # One that was left behind by a server that was killed is replaced.
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
    assert Session(serve(address=f"unix:{path}")).text("1 + 1") == "2"
