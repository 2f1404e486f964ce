"""Questions to a host have one series of numbers: an answer of another kind, session or client, or a second or late one, has no effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import web
from cellgate_api import Client
from server_definitions import echo
from wire_table import HOST

from .test_functions import TOOLS, Raw

NETWORK = web.settings(network={"allowedDomains": ["localhost"]})
RESULT = b'{"content":[{"type":"text","text":"a result"}]}'
PROXY = """
import socket
with socket.create_connection(("127.0.0.1", 3128)) as s:
    s.sendall(b"CONNECT 127.0.0.1:9 HTTP/1.1\\r\\n\\r\\n")
    print(s.recv(4096))
"""
# the code that leads to the question, the event that asks, and what shows that the host has refused
KINDS = {
    "call": ("from mcptools.echo import danger\ndanger.run(text='x')", HOST.APPROVAL_REQUEST, b"RejectedError"),
    "asked function": ("from mcptools.asked import any\nany.run(x=1)", HOST.APPROVAL_REQUEST, b"RejectedError"),
    "function": ("from mcptools.host import any\nany.run(x=1)", HOST.FUNCTION_CALL, b"RejectedError"),
    "program": ("import subprocess\nsubprocess.run(['true'])", HOST.APPROVAL_REQUEST, b"PermissionError"),
    "connection": (PROXY, HOST.EGRESS_REQUEST, b"403"),
    "input": ("print(input())", HOST.INPUT_REQUEST, b"EOFError"),
}
# In the body of each message what would accept a question of any kind: only the message's type tells them apart.
ANY = {"accept": True, "answer": "session", "decline": False, "eof": False, "question": 1}
# answers by the message: those that accept, and those that refuse
ACCEPTING = [
    (HOST.DECISION, ANY, None),
    (HOST.EGRESS_DECISION, ANY, None),
    (HOST.SERVER_ANSWER, ANY, b"{}"),
    (HOST.FUNCTION_RETURN, None, RESULT),
    (HOST.INPUT_REPLY, ANY, b"an answer"),
]
# The member that another kind obeys counts for nothing.
REFUSING = {
    HOST.APPROVAL_REQUEST: (HOST.DECISION, {"accept": False, "answer": "once"}, None),
    HOST.FUNCTION_CALL: (HOST.DECISION, {"accept": False, "answer": "session"}, None),
    HOST.EGRESS_REQUEST: (HOST.EGRESS_DECISION, {"answer": "no", "accept": True}, None),
    HOST.INPUT_REQUEST: (HOST.INPUT_REPLY, {"eof": True, "question": 1}, b""),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    address = str(tmp_path_factory.mktemp("supervisor") / "sup")
    with Client(address=address, start=1, linger_ms=1):
        yield address


def open_session(raw: Raw, workspace: Path, mark: Path, **options: object) -> None:
    raw.session = 0
    base: dict = {"workspace": str(workspace), "sandbox": True, "env": [], "hide": [], "python_path": []}
    raw.send(HOST.SESSION_NEW, 2, base | {"exec": "ask", "ask_egress": True, "settings": NETWORK} | options)
    raw.session = raw.wait(HOST.SESSION_OPENED)[0]
    servers = {
        **echo(mark),
        "host": {"host_functions": json.dumps(TOOLS)},
        "asked": {"host_functions": json.dumps(TOOLS), "ask": True},
    }
    raw.send(HOST.SERVERS_ADD, 3, {"servers": servers})
    raw.wait(HOST.SERVERS_ADDED)


def ask(raw: Raw, kind: str) -> int:
    """Run a cell up to its question; the number that answers it."""
    raw.execute(KINDS[kind][0], b'{"allow_stdin":true}')
    return raw.wait(KINDS[kind][1])[1]


def refuse(raw: Raw, kind: str, number: int, question: int = 1) -> None:
    """@question: the kernel's number of an input()."""
    type, body, data = REFUSING[KINDS[kind][1]]
    raw.send(type, number, body | {"question": question}, data)


@pytest.mark.parametrize("kind", KINDS)
def test_only_its_own_kind_of_answer_of_its_own_session_counts_once(
    address: str, workspace: Path, mark: Path, kind: str
) -> None:
    with Raw(address) as raw, Raw(address) as other, Client(address=address) as reader:
        last = reader.events()["last"]
        open_session(other, workspace, mark)
        open_session(raw, workspace, mark)
        number = ask(raw, kind)
        right = REFUSING[KINDS[kind][1]][0]
        for type, body, data in ACCEPTING:
            if type != right and (kind, type) != ("function", HOST.FUNCTION_RETURN):
                raw.send(type, number, body, data)
            raw.send(type, number + 1, body, data)
            other.send(type, number, body, data)
        mine, raw.session = raw.session, other.session  # of a session that is another client's
        for type, body, data in ACCEPTING:
            raw.send(type, number, body, data)
        raw.session = mine
        raw.quiet(HOST.RESULT)
        refuse(raw, kind, number)
        for type, body, data in ACCEPTING:
            raw.send(type, number, body, data)
        raw.wait(HOST.RESULT)
        assert KINDS[kind][2] in raw.past and not mark.exists()
        # The answers that came too late are not kept for the next question.
        refuse(raw, kind, ask(raw, kind), 2)
        raw.wait(HOST.RESULT)
        assert KINDS[kind][2] in raw.past
        # It is reported, and so recorded, as what it was.
        data = [e["data"] for e in reader.events(after=last)["events"]]
        decisions = {d["decision"] for d in data if "decision" in d}
        assert decisions == ({"reject"} if kind not in ("connection", "input") else set()), data


@pytest.mark.parametrize("kind", ["call", "asked function", "function", "program", "connection"])
def test_no_answer_counts_after_its_time(address: str, workspace: Path, mark: Path, kind: str) -> None:
    with Raw(address) as raw:
        open_session(raw, workspace, mark, approval_timeout_ms=300)
        number = ask(raw, kind)
        assert raw.wait(HOST.APPROVAL_CLOSED)[1] == number
        for type, body, data in ACCEPTING:
            raw.send(type, number, body, data)
        raw.wait(HOST.RESULT)
        assert not mark.exists()
        assert b"a result" not in raw.past and b"CompletedProcess" not in raw.past and b" 200 " not in raw.past


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_knows_no_kind_refuses_all_at_once(address: str, workspace: Path, mark: Path, kind: str) -> None:
    with (
        Client(address=address) as client,
        client.session(workspace=workspace, settings=NETWORK, exec=b"ask", ask_egress=1) as s,
    ):
        s.add_servers(echo(mark))
        s.add_functions("host", TOOLS)
        s.add_functions("asked", TOOLS, ask=1)
        s.execute(KINDS[kind][0], allow_stdin=1)
        seen = []
        while not seen or seen[-1].type != "result":
            seen.append(s.refuse_next("nobody knows this kind"))
        text = "".join(e.text + json.dumps(e.json) for e in seen)
        assert KINDS[kind][2].decode() in text and ("nobody knows this kind" in text or kind == "input"), text
        assert not mark.exists() and "approval_closed" not in [e.type for e in seen]


def test_a_client_answers_the_input_of_its_own_cells_only(address: str, workspace: Path, mark: Path) -> None:
    with Raw(address) as raw, Client(address=address) as client:
        open_session(raw, workspace, mark)
        attached = client.attach(client.sessions()[0]["id"])
        cell = attached.execute("print(input())", allow_stdin=True)
        attached.until("input_request")
        for type, body, data in ACCEPTING:
            raw.send(type, cell, body, data)
        assert attached.next(300) is None
        attached.input("of the client itself")
        assert "of the client itself" in "".join(e.text for e in attached.until("result"))
        attached.close()
