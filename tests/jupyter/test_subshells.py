"""Subshells: cells that run beside the main one, each in its own order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def subshell(client: Any) -> str:
    content = client.ask("create_subshell_request", channel="control").content
    assert content["status"] == "ok", content
    return str(content["subshell_id"])


def test_offered(client: Any) -> None:
    assert "kernel subshells" in client.ask("kernel_info_request").content["supported_features"]


def test_runs_beside_the_main_cell(client: Any, subshell: str) -> None:
    main = client.start("import threading; go = threading.Event(); print('waits', flush=True); go.wait()")
    while client.receive("iopub")["msg_type"] != "stream":
        pass
    beside = client.start("print('beside'); go.set()", subshell=subshell)
    replies = [client.receive("shell")["parent_header"]["msg_id"] for _ in range(2)]
    assert set(replies) == {main, beside}
    seen = []
    while sum(m["content"].get("execution_state") == "idle" for m in seen) < 2:
        seen.append(client.receive("iopub"))
    (text,) = [m for m in seen if m["msg_type"] == "stream"]
    assert (text["content"]["text"], text["parent_header"]["msg_id"]) == ("beside\n", beside)


def test_cells_of_one_subshell_keep_their_order(client: Any, subshell: str) -> None:
    client.run("order = []")
    requests = [client.start(f"order.append({i})", subshell=subshell) for i in range(20)]
    for request in requests:
        assert client.reply(request)["content"]["status"] == "ok"
    assert client.run("order == list(range(20))").result() == "True"


def test_error_aborts_its_own_subshell_only(client: Any, subshell: str, tmp_path: Path) -> None:
    gate = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.01)\n"
    main = [client.start(gate.format("failed")), client.start("6 * 7")]
    failing = client.start(gate.format("go") + "1/0", subshell=subshell)
    behind = client.start("1", subshell=subshell)
    client.arrived()
    (tmp_path / "work/go").touch()
    status = {}
    while len(status) < 4:
        message = client.receive("shell")
        status[message["parent_header"]["msg_id"]] = message["content"]["status"]
        if failing in status:
            (tmp_path / "work/failed").touch()
    assert status == {main[0]: "ok", main[1]: "ok", failing: "error", behind: "aborted"}


def test_requests_about_code_while_the_main_cell_runs(client: Any, subshell: str) -> None:
    client.start("import time; time.sleep(100)")
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    for _ in range(10):  # the first ones may reach their time limit: jedi is imported for them
        request = client.send("shell", "complete_request", {"code": "impo", "cursor_pos": 4}, subshell=subshell)
        reply = client.reply(request)["content"]
        if reply["status"] == "ok":
            break
    assert "import" in reply["matches"]
    client.ask("interrupt_request", channel="control")


def test_unknown_subshell(client: Any) -> None:
    run = client.finish(client.start("1", subshell="nobody"))
    assert run.content["status"] == "error"
    assert run.types()[0] == "busy" and run.types()[-1] == "idle"
    assert client.run("6 * 7").result() == "42"


def test_many_unknown_subshells(client: Any) -> None:
    """Names that clients invent take no room for ever."""
    for i in range(200):
        assert client.reply(client.start("1", subshell=f"n{i}"))["content"]["status"] == "error"
    assert client.run("6 * 7").result() == "42"


def test_deleted(client: Any, subshell: str) -> None:
    listed = client.ask("list_subshell_request", channel="control").content["subshell_id"]
    assert listed == [subshell]
    assert client.ask("delete_subshell_request", {"subshell_id": subshell}, "control").content["status"] == "ok"
    assert client.ask("list_subshell_request", channel="control").content["subshell_id"] == []
    assert client.finish(client.start("1", subshell=subshell)).content["status"] == "error"


WAITING = """import asyncio, comm
reply = asyncio.get_running_loop().create_future()
widget = comm.create_comm(target_name='t')
widget.on_msg(lambda msg: (print('callback'), reply.set_result(msg['content']['data']['value'])))
print('id', widget.comm_id, flush=True)
result = await asyncio.wait_for(reply, 20)
result"""


def comm_id_of(client: Any) -> str:
    """Return the id of the comm that the cell has made."""
    while (m := client.receive("iopub"))["msg_type"] != "comm_open":
        pass
    return m["content"]["comm_id"]


def test_a_cell_that_waits_gets_comm_messages(client: Any) -> None:
    request = client.start(WAITING)
    comm_id = comm_id_of(client)
    behind = client.start("result + 1")
    client.send("shell", "comm_msg", {"comm_id": comm_id, "data": {"value": 42}})
    assert client.reply(request)["content"]["status"] == "ok"
    assert client.finish(behind).result() == "43"


def test_comm_messages_keep_their_order(client: Any, tmp_path: Path) -> None:
    client.run("import comm, os, time; seen = []; c = comm.create_comm(target_name='t')")
    client.run("c.on_msg(lambda m: seen.append(m['content']['data']))")
    comm_id = client.run("print(c.comm_id)").text().strip()
    first = client.start("while not os.path.exists('go'): time.sleep(0.01)\nseen.append('first')")
    second = client.start("seen.append('second')")
    for n in range(3):
        client.send("shell", "comm_msg", {"comm_id": comm_id, "data": {"n": n}})
    third = client.start("seen.append('third')")
    client.arrived()
    (tmp_path / "work/go").touch()
    for request in (first, second, third):
        assert client.reply(request)["content"]["status"] == "ok"
    expected = ["first", "second", *({"n": n} for n in range(3)), "third"]
    assert client.run("print(seen)").text() == f"{expected}\n"


def test_many_comm_messages_for_a_cell_that_waits(client: Any) -> None:
    code = WAITING.replace("reply.set_result(", "seen.append(").replace(
        "result = await asyncio.wait_for(reply, 20)", "while len(seen) < 50: await asyncio.sleep(0.01)\nresult = seen"
    )
    client.run("seen = []")
    request = client.start(code)
    comm_id = comm_id_of(client)
    for n in range(50):
        client.send("shell", "comm_msg", {"comm_id": comm_id, "data": {"value": n}})
    assert client.reply(request)["content"]["status"] == "ok"
    assert client.run("seen == list(range(50))").result() == "True"


def test_a_comm_message_and_an_interrupt(client: Any) -> None:
    request = client.start(WAITING)
    comm_id = comm_id_of(client)
    client.send("shell", "comm_msg", {"comm_id": comm_id, "data": {}})  # its callback fails
    client.ask("interrupt_request", channel="control")
    assert client.reply(request)["content"]["ename"] == "KeyboardInterrupt"
    assert client.run("6 * 7").result() == "42"


def test_a_comm_message_of_a_subshell_for_a_cell_that_waits(client: Any, subshell: str) -> None:
    request = client.start(WAITING)
    comm_id = comm_id_of(client)
    client.send("shell", "comm_msg", {"comm_id": comm_id, "data": {"value": 42}}, subshell=subshell)
    assert client.reply(request)["content"]["status"] == "ok"
    assert client.run("result").result() == "42"


def test_a_subshell_that_does_not_exist_has_no_output(client: Any, subshell: str) -> None:
    assert client.finish(client.start("1", subshell="ab12")).types() == ["busy", "idle"]
    assert "execute_input" in client.finish(client.start("1", subshell=subshell)).types()
    client.ask("delete_subshell_request", {"subshell_id": subshell}, "control")
    run = client.finish(client.start("1", subshell=subshell))
    assert (run.types(), run.content["ename"]) == (["busy", "idle"], "UnknownSubshellError")
    assert run.content["evalue"] == f"Unknown subshell_id {subshell!r}"
