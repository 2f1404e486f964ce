"""Requests that are no cells, comms, what a reply has beside its status, cells that announce themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from cellgate_api import E_INVAL, E_LIMIT, CellgateError, Session
from processes import gate

COMM = """
from comm import get_comm_manager
received = []
def opened(comm, message):
    received.append(message["content"]["data"])
    def got(message):
        received.append([bytes(b) for b in message["buffers"]])
        comm.send({"echo": message["content"]["data"]}, buffers=[b[::-1] for b in map(bytes, message["buffers"])])
    comm.on_msg(got)
get_comm_manager().register_target("echo", opened)
"""


def test_what_is_no_request(session: Session) -> None:
    for type in ("execute_request", "shutdown_request", "", "connect_request", "x" * 500):
        with pytest.raises(CellgateError) as e:
            session.request(type, "{}")
        assert e.value.code == E_INVAL
    for content in ("", "[]", '{"a":', "{" + '"a":{' * 300 + "}" * 301):
        with pytest.raises(CellgateError):
            session.request("complete_request", content)
    with pytest.raises(CellgateError) as e:
        session.request("comm_msg", "{}", buffers=[b""] * 64)
    assert e.value.code == E_LIMIT


def test_a_completion_that_takes_too_long_is_answered_and_costs_nothing(session: Session) -> None:
    session.run(
        "class Slow:\n    def __dir__(self):\n        import time\n        time.sleep(60)\nslow = Slow(); x = 5"
    )
    reply = session.ask("complete_request", {"code": "slow.", "cursor_pos": 5}, timeout_ms=200)
    assert reply.json.get("matches", []) == []
    assert session.run("x").value == "5"


def test_a_completion_in_native_code_is_given_up_and_the_kernel_stays(session: Session) -> None:
    """It holds the interpreter's lock for longer than an interrupt gives it time, and no signal ends its wait."""
    session.run("""
import ctypes, time
libc, mutex, x = ctypes.PyDLL(None), ctypes.create_string_buffer(64), 5
class Slow:
    def __dir__(self):
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_timedlock(mutex, (ctypes.c_long * 2)(int(time.time()) + 5, 0))
        return []
slow = Slow()
""")
    session.request("complete_request", {"code": "x.", "cursor_pos": 2})  # imports what completes
    session.until("reply")
    number = session.request("complete_request", {"code": "slow.", "cursor_pos": 5}, timeout_ms=100)
    reply = session.until("reply")[-1]
    assert (reply.cell, reply.status, reply.json["ename"]) == (number, "timeout", "TimeoutError")
    assert session.run("x").value == "5", "its state is still there"


def test_comm_messages_with_buffers_both_ways(session: Session) -> None:
    session.run(COMM)
    assert session.ask("comm_open", {"comm_id": "c1", "target_name": "echo", "data": {"hello": 1}}).status == "ok"
    number = session.request(
        "comm_msg", {"comm_id": "c1", "data": {"n": 2}}, buffers=[b"abc", b"", bytes(range(256)) * 5000]
    )
    seen = session.until("reply")
    comm = next(e for e in seen if e.type == "comm")
    assert comm.cell == number
    assert comm.json["msg_type"] == "comm_msg"
    assert comm.json["content"]["data"] == {"echo": {"n": 2}}
    assert comm.buffers == [b"cba", b"", (bytes(range(256)) * 5000)[::-1]]
    assert session.run("received[0]").value == "{'hello': 1}"


def test_a_comm_message_of_the_largest_size(session: Session) -> None:
    session.run(COMM + "import hashlib")
    session.ask("comm_open", {"comm_id": "c1", "target_name": "echo", "data": {}})
    content = '{"comm_id": "c1", "data": {}}'
    data = b"ab" * ((64 << 19) - 50)
    assert session.ask("comm_msg", content, buffers=[data[: (64 << 20) - len(content)]]).status == "ok"
    assert session.run("len(received[-1][0])").value == str(min(len(data), (64 << 20) - len(content)))


def test_announced_cells_say_their_number(session: Session) -> None:
    out = session.run("1", announce=1)
    assert (out.events[0].type, out.events[0].count) == ("execute_input", 1)
    out = session.run("2", announce=1, no_history=1)
    assert out.events[0].count == 2
    out = session.run("3", announce=1)
    assert out.events[0].count == 2, "the one before did not count"
    assert [e.type for e in session.run("4").events] == ["execute_result", "result"]
    assert not [e for e in session.run("5", announce=1, silent=1).events if e.type == "execute_input"]


def test_extra_must_be_an_object(session: Session) -> None:
    for extra in ("[]", "{", "1"):
        with pytest.raises(CellgateError):
            session.execute("1", extra=extra)


def test_kernel_death_ends_requests_too(session: Session, workspace: Path) -> None:
    release = gate(workspace)
    session.execute("import os\nopen('go').read()\nos.kill(os.getpid(), 9)")
    session.request("complete_request", {"code": "x", "cursor_pos": 1})
    session.ask("create_subshell_request", {})  # answered meanwhile: the supervisor has both
    release()
    reply = session.until("reply")[-1]
    assert reply.status == "cancelled"
    assert reply.json["status"] == "error"
    assert session.run("1").value == "1"


def test_too_many_waiting(session: Session) -> None:
    session.execute("import time; time.sleep(60)")
    for _ in range(256):
        session.request("complete_request", {"code": "x", "cursor_pos": 1})
    number = session.request("complete_request", {"code": "x", "cursor_pos": 1})
    reply = session.until("reply")[-1]
    assert reply.cell == number
    assert "wait already" in reply.json["evalue"]
    session.cancel()
    assert session.until("result")[-1].status == "cancelled"
