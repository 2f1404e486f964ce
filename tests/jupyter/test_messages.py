"""Messages on the sockets that are not authenticated or not valid: not answered, and without effect."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

DELIMITER = b"<IDS|MSG>"


def header(kind: str = "kernel_info_request", **more: Any) -> bytes:
    base = {"msg_id": uuid.uuid4().hex, "session": "s", "username": "u", "date": "2026-01-01T00:00:00Z"}
    return json.dumps({**base, "msg_type": kind, "version": "5.3", **more}).encode()


def signed(
    key: str, head: bytes, content: bytes = b"{}", parent: bytes = b"{}", metadata: bytes = b"{}"
) -> list[bytes]:
    digest = hmac.new(key.encode(), head + parent + metadata + content, hashlib.sha256).hexdigest().encode()
    return [DELIMITER, digest, head, parent, metadata, content]


def changed(frames: list[bytes], index: int, value: bytes) -> list[bytes]:
    return [*frames[:index], value, *frames[index + 1 :]]


BAD: dict[str, Callable[[str], list[bytes]]] = {
    "another key": lambda key: signed("wrong", header()),
    "no signature": lambda key: changed(signed(key, header()), 1, b""),
    "short signature": lambda key: changed(signed(key, header()), 1, b"ab"),
    "long signature": lambda key: changed(signed(key, header()), 1, b"0" * 100000),
    "content changed": lambda key: changed(signed(key, header()), 5, b'{"a": 1}'),
    "header is no JSON": lambda key: signed(key, b"{not json"),
    "header is empty": lambda key: signed(key, b"{}"),
    "header is a list": lambda key: signed(key, b"[]"),
    "type is a number": lambda key: signed(key, json.dumps({"msg_type": 5}).encode()),
    "delimiter only": lambda key: [DELIMITER],
    "no delimiter": lambda key: [b"garbage"],
    "nothing": lambda key: [b""],
    "10 MB of garbage": lambda key: [b"x" * 10_000_000],
    "two frames missing": lambda key: signed(key, header())[:4],
    "1,000 frames": lambda key: signed(key, header()) + [b""] * 1000,
    "delimiter after 100 frames": lambda key: [b"id"] * 100 + signed(key, header()),
}


@pytest.mark.parametrize("channel", ["shell", "control", "stdin"])
def test_bad_messages_are_ignored(client: Any, channel: str) -> None:
    client.run("pass")
    for name, make in BAD.items():
        client.sockets[channel].send_multipart(make(client.info["key"]))
        assert not client.sockets[channel].poll(20), name
    assert not client.sockets["iopub"].poll(100)
    assert client.run("6 * 7").result() == "42"
    assert client.ask("kernel_info_request", channel="control").content["status"] == "ok"


def test_good_message_of_the_same_making_is_answered(client: Any) -> None:
    """Else the test above could not fail."""
    client.sockets["shell"].send_multipart(signed(client.info["key"], header()))
    answer = client.receive("shell")
    assert answer and answer["msg_type"] == "kernel_info_reply"


def test_repeated_message_runs_once(client: Any) -> None:
    content = {"code": "n = globals().get('n', 0) + 1", "silent": False, "store_history": True}
    frames = signed(client.info["key"], header("execute_request"), json.dumps(content).encode())
    for _ in range(3):
        client.sockets["shell"].send_multipart(frames)
    answer = client.receive("shell")
    assert answer and answer["msg_type"] == "execute_reply"
    client.nothing("shell")
    assert client.run("n").result() == "1"


def test_rejections_are_logged(kernel: Any, client: Any) -> None:
    client.sockets["shell"].send_multipart(signed("wrong", header()))
    client.run("pass")
    assert "the signature is wrong" in kernel.stderr()


def test_parent_header_is_the_request_s_own_bytes(client: Any) -> None:
    head = header("kernel_info_request", strange={"n": 12345678901234567890123, "f": 1.50}).replace(
        b'"f": 1.5', b'"f": 1.50'
    )
    client.sockets["shell"].send_multipart(signed(client.info["key"], head))
    assert client.sockets["shell"].poll(20000)
    frames = client.sockets["shell"].recv_multipart()
    assert frames[frames.index(DELIMITER) + 3] == head


SHAPES: dict[str, dict[str, bytes]] = {
    "content is no JSON": {"content": b"{not json"},
    "content is a list": {"content": b"[]"},
    "content is null": {"content": b"null"},
    "content is empty": {"content": b""},
    "content is not UTF-8": {"content": b'{"code": "\xff"}'},
    "content has a NUL": {"content": b'{"code": "\0"}'},
    "content is nested 100,000 deep": {"content": b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}"},
    "a number of 6,000 digits": {"content": b'{"a":' + b"9" * 6000 + b"}"},
    "metadata is no JSON": {"metadata": b"x"},
    "metadata is a list": {"metadata": b"[]"},
    "parent header is a number": {"parent": b"5"},
    "msg_id is a number": {"head": b'{"msg_id":5,"msg_type":"KIND"}'},
    "session is null": {"head": b'{"msg_id":"x","session":[],"msg_type":"KIND"}'},
}


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_signed_requests_of_a_wrong_shape_get_an_error(client: Any, channel: str) -> None:
    """Whoever sends them waits for a reply."""
    kinds = ["execute", "complete", "history", "comm_info", "kernel_info", "debug", "interrupt", "shutdown"]
    client.run("pass")
    for name, parts in SHAPES.items():
        for kind in kinds:
            head = parts.get("head", header("KIND")).replace(b"KIND", f"{kind}_request".encode())
            frames = signed(client.info["key"], head, **{k: v for k, v in parts.items() if k != "head"})
            client.sockets[channel].send_multipart(frames)
            answer = client.receive(channel)
            assert answer and answer["msg_type"] == f"{kind}_reply", (name, kind)
            assert answer["content"]["status"] == "error", (name, kind)
            assert answer["content"]["ename"] == "BadRequest" and answer["content"]["evalue"], (name, kind)
            assert answer["parent_header"]["msg_id"] == json.loads(head)["msg_id"], (name, kind)
    client.sockets[channel].send_multipart(signed(client.info["key"], header("comm_msg"), b"[]"))  # has no reply
    assert client.run("6 * 7").result() == "42"


def test_answers_of_a_wrong_shape_are_ignored(client: Any) -> None:
    """input() goes on waiting for a good one."""
    request = client.start("input()", allow_stdin=True)
    question = client.receive("stdin")
    assert question and question["msg_type"] == "input_request"
    for parts in SHAPES.values():
        head = parts.get("head", header("KIND")).replace(b"KIND", b"input_reply")
        more = {k: v for k, v in parts.items() if k != "head"}
        client.sockets["stdin"].send_multipart(signed(client.info["key"], head, **more))
    client.send("stdin", "input_reply", {"value": "good"}, parent=question)
    assert client.reply(request)["content"]["status"] == "ok"


def test_fields_that_are_wrong_get_an_error(client: Any) -> None:
    for content in ({}, {"code": 5}, {"code": "1", "silent": "yes"}, {"code": "1", "user_expressions": []}):
        run = client.ask("execute_request", content)
        assert (run.content["status"], run.content["ename"]) == ("error", "BadRequest"), content
        assert run.content["execution_count"] == 0
        assert run.types() == ["busy", "error", "idle"]
    for kind in ("complete_request", "inspect_request", "is_complete_request", "history_request"):
        run = client.ask(kind, {"code": 5, "cursor_pos": "x", "hist_access_type": 1})
        assert run.content["status"] == "error", kind
        assert run.types()[0] == "busy" and run.types()[-1] == "idle"
    assert client.run("6 * 7").result() == "42"


def test_unknown_types_get_busy_and_idle(client: Any) -> None:
    for channel in ("shell", "control"):
        request = client.send(channel, "no_such_request")
        assert len(client.published(request)) == 2
        client.nothing(channel, 0.1)


def test_without_a_key_nothing_is_signed(start: Any) -> None:
    info = {"transport": "tcp", "ip": "127.0.0.1", "key": "", "signature_scheme": "hmac-sha256"}
    client = start(connection=info).client()
    client.sockets["shell"].send_multipart([DELIMITER, b"", header(), b"{}", b"{}", b"{}"])
    assert client.sockets["shell"].poll(20000)
    frames = client.sockets["shell"].recv_multipart()
    assert frames[frames.index(DELIMITER) + 1] == b""
