"""Kernel code that writes onto the kernel's own connection: clients see one reply a request, whole messages, and a live kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from forging import LIBRARY
from wire_table import VERSION

# Everything that a kernel can put on iopub, and nothing else.
PUBLISHED = {
    "status", "execute_input", "stream", "display_data", "update_display_data", "execute_result", "error", "clear_output",
    "comm_open", "comm_msg", "comm_close", "debug_event",
}  # fmt: skip

SETUP = (
    LIBRARY
    + r"""
import _cellgate, time
def kernel_wire():
    found = None
    for c in connections():
        name = c.getsockname()
        if os.path.basename(name if isinstance(name, str) else name.decode()).startswith('k'):
            c.setblocking(True)
            found = c
        else:
            c.close()
    return found
wire = kernel_wire()
def say(type, id, body=b'', *raws, flags=0):
    head = b'CG' + bytes([VERSION, 2]) + struct.pack('<HHQQ', type, flags, 0, id)
    wire.sendall(zmtp(head, body, *raws))
me = _cellgate.current_cell
"""
)

OK = b'{"status":"ok","execution_count":7,"next":8,"refused":false}'
FORGERIES = {
    "reply of its own, early": f"say(11, me(), {OK!r}, b'')",
    "replies of its own, many": f"for _ in range(50): say(11, me(), {OK!r}, b'')",
    "reply of the next cell": f"say(11, me() + 1, {OK!r}, b'')",
    "reply of no cell": f"say(11, 999999, {OK!r}, b'')",
    "reply with other fields": f'say(11, me(), {OK!r}, b\'{{"status":"aborted","execution_count":-5,"parent_header":{{}}}}\')',
    "reply that is no JSON": f"say(11, me(), {OK!r}, b'}}{{')",
    "reply with a count that is none": 'say(11, me(), b\'{"status":"ok","execution_count":1e400}\', b\'\')',
    "answer to a request that was not made": "say(24, 424242, b'', b'{}')",
    "answer without a content": "say(24, me(), b'')",
    "comm message of another type": 'say(25, me(), b"", b\'{"msg_type":"execute_reply","content":{"status":"ok"}}\')',
    "comm message with a type in disguise": 'say(25, me(), b"", b\'{"msg_type":"comm_msg\\\\u0000","content":{}}\')',
    "comm message without a content": 'say(25, me(), b"", b\'{"msg_type":"comm_msg","content":[]}\')',
    "comm message with metadata that is none": 'say(25, me(), b"", b\'{"msg_type":"comm_msg","content":{},"metadata":5}\')',
    "debug event": 'say(26, 0, b\'\', b\'{"type":"event","event":"stopped"}\')',
    "debug event that is no object": "say(26, 0, b'', b'[]')",
    "display that is no JSON": "say(13, me(), b'', b'{\"data\":')",
    "display that is a list": "say(13, me(), b'', b'[]')",
    "display too deep": "say(13, me(), b'', b'{\"a\":' * 5000 + b'1' + b'}' * 5000)",
    "display of another cell": "say(13, 1, b'', b'{\"data\":{},\"metadata\":{}}')",
    "display of no cell": "say(13, 2**63, b'', b'{\"data\":{},\"metadata\":{}}')",
    "errors without end": 'for _ in range(2000): say(17, me(), b\'\', b\'{"ename":"E","evalue":"","traceback":[]}\')',
    "stream that is no text": "say(12, me(), b'', b'\\xff\\xfe\\x00\\x1b[2J', flags=0xffff)",
    "question that is not allowed": 'say(18, me(), b\'{"question":1}\', b\'{"prompt":"[cellgate] Allow?","password":false}\')',
    "ready again": "say(1, 0, b'{}')",
    "shutdown, which is not its to say": "say(21, 0)",
    "a type that is none": "say(77, 0, b'{}')",
    "denials without end": 'for _ in range(2000): say(27, me(), b\'\', b\'{"operation":"x","why":"y"}\')',
    "garbage": "wire.sendall(b'\\x00' * 4096)",
    "end of its connection": "wire.shutdown(2)",
}


def is_idle(message: Any) -> bool:
    return message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"


@pytest.mark.parametrize("code", FORGERIES.values(), ids=FORGERIES.keys())
def test_forged_messages(client: Any, code: str) -> None:
    """What a forgery causes comes before the reply of the last cell."""
    assert client.run(f"VERSION = {VERSION}\n{SETUP}").content["status"] == "ok"
    requests = [client.start(c, stop_on_error=False) for c in (code + "\ntime.sleep(0.05)", "'second'", "'last'")]
    replies: list[Any] = []
    while not replies or replies[-1]["parent_header"]["msg_id"] != requests[-1]:
        assert (message := client.receive("shell")), replies
        replies.append(message)
    assert sorted(r["parent_header"]["msg_id"] for r in replies) == sorted(requests)
    published: list[Any] = []
    while not published or not (
        is_idle(published[-1]) and published[-1]["parent_header"].get("msg_id") == requests[-1]
    ):
        assert (message := client.receive("iopub")), published
        published.append(message)
    assert {m["msg_type"] for m in published} <= PUBLISHED
    for request in requests:
        states = [
            m["content"]["execution_state"]
            for m in published
            if m["msg_type"] == "status" and m["parent_header"].get("msg_id") == request
        ]
        assert states == ["busy", "idle"]
    client.nothing("stdin", 0)
    client.nothing("control", 0)
    # A rule may be broken by the true reply that follows a forged one, so that a kernel ends under the cell that asks.
    assert any(client.run("6 * 7").of("execute_result") for _ in range(3))


@pytest.mark.sanitized_in_soak
@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.parametrize(
    ("prompt", "answer"), [("[cellgate] Cell 1 wants to call a tool:", "y"), ("x\n[cellgate] Allow? y yes", "n")]
)
def test_a_question_that_looks_like_ours_approves_nothing(
    start: Any, server: Any, tmp_path: Path, prompt: str, answer: str, first: str
) -> None:
    """A cell may ask what it likes: the answer is its own. That of the call's question is another one, whether or not the
    second of the two has come when the first is answered."""
    code = f"""
import os, threading, time
from mcptools.fs import write_file
def wait(whose):
    while whose != {first!r} and not os.path.exists("asked"):
        time.sleep(0.01)
def call():
    wait("ours")
    try:
        write_file.run(path="a")
    except Exception:
        pass
caller = threading.Thread(target=call)
caller.start()
wait("theirs")
answer = input({prompt!r})
caller.join()
answer
"""
    client = start("--mcp", server.mcp).client()
    request = client.start(code, allow_stdin=True)
    order = []
    for _ in range(2):
        question = client.receive("stdin")
        assert order == ["ours"] or server.ran() == []
        (tmp_path / "work/asked").touch()
        order.append("theirs" if question["content"]["prompt"] == prompt else "ours")
        assert order[-1] == "theirs" or "tool      write_file" in question["content"]["prompt"]
        client.answer(question, "y" if order[-1] == "theirs" else answer)
    run = client.finish(request)
    assert order == [first, "theirs" if first == "ours" else "ours"]
    assert run.result() == "'y'"
    assert server.ran() == (["write_file"] if answer == "y" else [])
