"""Cells: counters, what is published, and what happens to those that wait behind one that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zmq
from processes import gate


def test_reply_and_output(client: Any) -> None:
    run = client.run("print('out'); 6 * 7")
    assert run.types() == ["busy", "execute_input", "stream", "execute_result", "idle"]
    assert run.content == {"status": "ok", "execution_count": 1, "payload": [], "user_expressions": {}}
    assert run.of("execute_input") == [{"code": "print('out'); 6 * 7", "execution_count": 1}]
    assert run.of("execute_result")[0]["execution_count"] == 1
    assert run.reply["metadata"]["status"] == "ok"
    assert str(run.reply["metadata"]["started"]).startswith("20")


def test_error(client: Any) -> None:
    run = client.run("1/0")
    assert run.types() == ["busy", "execute_input", "error", "idle"]
    assert (run.content["status"], run.content["ename"]) == ("error", "ZeroDivisionError")
    assert run.content["evalue"] == "division by zero"
    assert run.content["execution_count"] == 1
    (error,) = run.of("error")
    assert error["traceback"] == run.content["traceback"]
    assert run.content["user_expressions"] == {}


def test_counters(client: Any) -> None:
    def count(code: str = "40 + 2", **more: Any) -> tuple[int, list[int]]:
        run = client.run(code, **more)
        return run.content["execution_count"], [c["execution_count"] for c in run.of("execute_input")]

    assert count() == (1, [1])
    assert count(store_history=False) == (1, [2])
    assert count(silent=True) == (1, [])
    assert count() == (2, [2])
    assert count("") == (2, [3])
    assert count("# comment") == (3, [3])
    assert count("1 +") == (4, [4])
    assert count() == (5, [5])


def test_silent_publishes_output_but_no_result(client: Any) -> None:
    run = client.run("print('out'); 5", silent=True)
    assert run.types() == ["busy", "stream", "idle"]


def test_user_expressions(client: Any) -> None:
    run = client.run("a = 5", user_expressions={"good": "a + 1", "bad": "nope"})
    expressions = run.content["user_expressions"]
    assert expressions["good"]["data"]["text/plain"] == "6"
    assert (expressions["bad"]["status"], expressions["bad"]["ename"]) == ("error", "NameError")
    assert client.run("1/0", user_expressions={"good": "a"}).content["user_expressions"] == {}


def test_payload(client: Any) -> None:
    (page,) = client.run("zip?").content["payload"]
    assert page["source"] == "page"
    assert "text/plain" in page["data"]


PARENT = "get_ipython().kernel.get_parent()"


def test_header_and_metadata_reach_the_kernel(client: Any) -> None:
    """Widgets put the client's message id into their state."""
    request = client.start(f"{PARENT}['header']['msg_id'], {PARENT}['metadata']", metadata={"cellId": "c7"})
    assert client.finish(request).result() == repr((request, {"cellId": "c7"}))


def test_header_of_a_comm_message_reaches_its_handler(client: Any) -> None:
    client.run(
        "from comm import get_comm_manager\n"
        f"get_comm_manager().register_target('who', lambda comm, m: comm.send({PARENT}['header']['msg_id']))"
    )
    content = {"comm_id": "c1", "target_name": "who", "data": {}}
    for metadata in ({}, {"version": "2.1.0"}, {"large": "x" * 100_000}):
        request = client.send("shell", "comm_open", content, metadata=metadata)
        (answer,) = [m for m in client.published(request) if m["msg_type"] == "comm_msg"]
        assert answer["content"]["data"] == request
        client.published(client.send("shell", "comm_close", {"comm_id": "c1", "data": {}}))


GATE = "open('go').read()\n"


def test_queue_after_an_error_is_aborted(client: Any, tmp_path: Path) -> None:
    release = gate(tmp_path / "work")
    failing = client.start(GATE + "1/0")
    behind = [client.start(f"x = {i}") for i in range(3)]
    info = client.send("shell", "kernel_info_request")
    client.arrived()
    release()
    assert client.reply(failing)["content"]["status"] == "error"
    for request in behind:
        assert client.reply(request)["content"] == {"status": "aborted", "execution_count": 1}
        assert [m["content"].get("execution_state") for m in client.published(request)] == ["busy", "idle"]
    assert client.reply(info)["content"]["status"] == "ok"  # other requests are served
    assert client.run("'x' in globals()").result() == "False"


def test_what_comes_after_the_error_runs(client: Any) -> None:
    for i in range(20):
        failing = client.start("1/0")
        client.reply(failing)
        assert client.run(f"{i}").result() == str(i)


def test_queue_goes_on_where_the_cell_says_so(client: Any, tmp_path: Path) -> None:
    release = gate(tmp_path / "work")
    failing = client.start(GATE + "1/0", stop_on_error=False)
    behind = client.start("6 * 7")
    client.arrived()
    release()
    assert client.reply(failing)["content"]["status"] == "error"
    assert client.reply(behind)["content"]["status"] == "ok"


def test_two_clients_share_the_kernel(kernel: Any, client: Any, tmp_path: Path) -> None:
    other = kernel.client()
    client.run("x = 5")
    assert other.run("x + 1").result() == "6"
    release = gate(tmp_path / "work")
    first = client.start(GATE + "x = 6")
    while (m := other.receive("iopub")) and m["msg_type"] != "execute_input":  # it has come
        pass
    second = other.start("x")
    other.arrived()
    release()
    assert other.finish(second).result() == "6"  # in the order in which they came
    client.finish(first)


def test_a_client_that_vanishes_holds_nothing_up(kernel: Any, client: Any) -> None:
    gone = kernel.client()
    for _ in range(50):
        gone.start("print('x' * 10000)")
    gone.close()
    assert client.run("6 * 7").result() == "42"


def test_client_that_comes_back_gets_its_place(client: Any) -> None:
    """Its old connection may still be open: a notebook server that lost its network for a moment."""
    again = client.connect("shell", zmq.DEALER)
    old, client.sockets["shell"] = client.sockets["shell"], again
    assert client.run("6 * 7").result() == "42"
    assert not old.poll(100)
    old.close(0)


def test_many_cells_at_once(client: Any) -> None:
    requests = [client.start(f"{i}") for i in range(600)]
    replies = [client.reply(r, timeout=60)["content"]["status"] for r in requests]
    assert replies == ["ok"] * 600
    assert client.run("_").result() == "599"


def test_code_that_is_no_utf8_or_too_large(client: Any) -> None:
    run = client.run("#" * (17 << 20))
    assert run.content["status"] == "error"
    assert "at most" in run.content["evalue"]
    assert run.types() == ["busy", "error", "idle"]
    assert client.run("len('é漢😀')").result() == "3"


def test_requests_about_code(client: Any) -> None:
    client.run("alphabet = 1")
    assert "alphabet" in client.ask("complete_request", {"code": "alpha", "cursor_pos": 5}).content["matches"]
    assert client.ask("inspect_request", {"code": "zip", "cursor_pos": 3, "detail_level": 0}).content["found"]
    assert client.ask("is_complete_request", {"code": "for i in x:"}).content["status"] == "incomplete"
    history = {"hist_access_type": "tail", "n": 5, "output": False, "raw": True}
    assert client.ask("history_request", history).content["history"][-1][2] == "alphabet = 1"
    assert client.ask("comm_info_request").content == {"status": "ok", "comms": {}}


COMM = """
from comm import get_comm_manager
got = []
def opened(comm, message):
    comm.on_msg(lambda m: comm.send({'echo': m['content']['data']}, buffers=[bytes(b)[::-1] for b in m['buffers']]))
    comm.send({'hello': message['content']['data']})
get_comm_manager().register_target('echo', opened)
"""


def test_comm_with_buffers(client: Any) -> None:
    client.run(COMM)
    request = client.send("shell", "comm_open", {"comm_id": "c1", "target_name": "echo", "data": {"n": 1}})
    published = client.published(request)
    assert [m["content"]["data"] for m in published if m["msg_type"] == "comm_msg"] == [{"hello": {"n": 1}}]
    big = bytes(range(256)) * 4096
    request = client.send("shell", "comm_msg", {"comm_id": "c1", "data": 2}, buffers=[b"abc", b"", big])
    (answer,) = [m for m in client.published(request) if m["msg_type"] == "comm_msg"]
    assert answer["content"] == {"comm_id": "c1", "data": {"echo": 2}}
    assert [bytes(b) for b in answer["buffers"]] == [b"cba", b"", big[::-1]]
    assert list(client.ask("comm_info_request").content["comms"]) == ["c1"]
    client.nothing("shell", 0.1)  # comm messages have no reply
    client.published(client.send("shell", "comm_close", {"comm_id": "c1", "data": {}}))
    assert client.ask("comm_info_request").content["comms"] == {}


def test_comm_for_an_unknown_target_is_closed(client: Any) -> None:
    request = client.send("shell", "comm_open", {"comm_id": "c9", "target_name": "nobody", "data": {}})
    closed = [m["content"] for m in client.published(request) if m["msg_type"] == "comm_close"]
    assert [c["comm_id"] for c in closed] == ["c9"]


def test_variables_that_are_secrets_are_not_shown(start: Any) -> None:
    """By the rule of `cellgate mcp serve`, in everything that a notebook keeps."""
    secret = "s3cret/\\value+12"
    kernel = start("--env", f"API_TOKEN={secret}", "--env", "MODE=production", "--env", "SHORT_KEY=abc")
    client = kernel.client()
    run = client.run(
        "import os\nt = os.environ['API_TOKEN']\nprint('a' + t + 'b\\0', t)\nprint(os.environ['MODE'], os.environ['SHORT_KEY'])\nt"
    )
    assert "".join(s["text"] for s in run.of("stream")) == "a***b\0 ***\nproduction abc\n"
    assert run.result() == "'***'"
    shown = client.run(
        "from IPython.display import display\ndisplay({'text/html': f'<b>{t}</b>', 'application/json': {'k': [t]}}, raw=True)"
    )
    assert shown.of("display_data")[0]["data"] == {"text/html": "<b>***</b>", "application/json": {"k": ["***"]}}
    failed = client.run("raise ValueError(t)", user_expressions={"x": "t"})
    for content in (failed.content, *failed.of("error")):
        assert content["evalue"] == "***" and "s3cret" not in str(content)
    asked = client.run("1", user_expressions={"x": "t"})
    assert asked.content["user_expressions"]["x"]["data"]["text/plain"] == "'***'"
    assert client.run("len(t)").result() == str(len(secret))
