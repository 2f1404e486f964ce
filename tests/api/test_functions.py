"""Functions of the host: what cells call, who answers, which answers count, and how each wait ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import (
    E_EXISTS,
    E_INVAL,
    E_LIMIT,
    E_NOTFOUND,
    E_PARSE,
    E_STATE,
    ERROR,
    REFUSED,
    RESULT,
    VALUE,
    CellgateError,
    Client,
    Event,
    Session,
)
from forging import LIBRARY
from processes import by_age, children, gate, words
from wire_table import HOST, HOST_WIRE, VERSION

SERVER = Path(__file__).parent / "echo_server.py"
INTEGER = {"type": "integer"}
ADD = {
    "name": "add",
    "description": "Adds two numbers.",
    "inputSchema": {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}, "required": ["a", "b"]},
    "outputSchema": INTEGER,
}
OBJECT = {"type": "object", "properties": {"n": INTEGER}, "required": ["n"]}
TYPED = {"name": "typed", "inputSchema": {"type": "object"}, "outputSchema": OBJECT}
ANY = {"name": "any", "inputSchema": {"type": "object", "properties": {"x": {}}}}
TOOLS = [ADD, TYPED, ANY]
CALL = "from mcptools.host import any\nany.run(x={!r})"
CAUGHT = """
import cellgate_tools
from mcptools.host import any
try: print(any.run(x=1))
except cellgate_tools.ToolRunnerError as e: print(type(e).__name__, e.kind, e)
"""


@pytest.fixture(scope="module")
def module_session(client: Client, work: Path) -> Iterator[Session]:
    with client.session(workspace=work) as s:
        s.add_functions("host", TOOLS)
        yield s


@pytest.fixture
def host(used: Session) -> Session:
    """A session with the functions TOOLS, of the tests that do not change them."""
    return used


def called(s: Session) -> Event:
    return s.until("function_call")[-1]


def end(s: Session) -> tuple[str, str]:
    """The status of the cell, and what it has printed or shown."""
    events = s.until("result")
    text = "".join(e.text for e in events if e.type == "stream")
    text += "".join(e.json["data"]["text/plain"] for e in events if e.type == "execute_result")
    return events[-1].status, text + "".join(e.json["evalue"] for e in events if e.type == "error")


def run(s: Session, code: str, answer: Callable[[Event], object]) -> tuple[str, str]:
    """Run a cell; `answer` gives the value of each function call."""
    s.execute(code)
    out = ""
    while True:
        e = s.next()
        assert e is not None
        if e.type == "function_call":
            s.give(e.approval, answer(e))
        if e.type == "stream":
            out += e.text
        if e.type == "execute_result":
            out += e.json["data"]["text/plain"]
        if e.type == "error":
            out += e.json["evalue"]
        if e.type == "result":
            return e.status, out


def code_of(f: Callable[..., object], *args: Any, **opts: Any) -> int:
    with pytest.raises(CellgateError) as e:
        f(*args, **opts)
    return e.value.code


# ---- calls and what they return


def test_a_call_reaches_the_host_with_exactly_its_bytes(host: Session) -> None:
    cell = host.execute(
        "import _cellgate\n_cellgate.function_call('host', 'any', b'{ \"x\" : 1e2, \"x2\":\"\\\\u00e9\"}', 0)[0]"
    )
    e = called(host)
    assert (e.server, e.tool, e.method, e.cell) == ("host", "any", "", cell)
    assert e.args == '{ "x" : 1e2, "x2":"\\u00e9"}'
    assert e.json == {"server": "host", "tool": "any", "cell": cell}
    host.give(e.approval, None)
    assert end(host) == ("ok", "'ok'")


def test_typed_wrappers(host: Session) -> None:
    code = "from mcptools.host import add\nimport mcptools, inspect\n"
    assert run(host, code + "add.run(a=20, b=22)", lambda e: sum(json.loads(e.args).values())) == ("ok", "42")
    assert run(host, code + "await add.run_async(a=1, b=2)", lambda e: 3) == ("ok", "3")
    status, text = run(host, code + "add.run(a='x', b=2)", lambda e: 1 / 0)  # nothing is sent
    assert status == "error" and "a: " in text
    assert "Adds two numbers" in run(host, "print(mcptools.search('two numbers'))", lambda e: 0)[1]
    assert "Functions of the host" in run(host, "help(mcptools.host)", lambda e: 0)[1]
    assert "-> Any" in run(host, "print(mcptools.signature('host.any'))", lambda e: 0)[1]


def test_any_json_value_is_returned_as_it_is(host: Session) -> None:
    for value in (None, True, 0, -1.5, "", "ä\n\U0001f600", [], [1, [None]], {}, {"a": {"b": []}}):
        assert run(host, CALL.format(1) + f" == {value!r}", lambda e: value) == ("ok", "True"), value  # noqa: B023


def test_numbers_and_text_that_the_host_writes_are_kept(host: Session) -> None:
    host.execute(CALL.format(1))
    host.give_text(called(host).approval, VALUE, ' [123456789012345678901234567890, "\\u0000"] \n')
    assert end(host) == ("ok", "[123456789012345678901234567890, '\\x00']")


def test_results_of_mcp(host: Session) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "AA=="}
    host.execute("from mcptools.host import any\nr = any.call(x=1)\nr.text, len(r.images), r.structured")
    content = [{"type": "text", "text": "t"}, image]
    host.give_text(called(host).approval, RESULT, json.dumps({"content": content, "structuredContent": {"k": 1}}))
    assert end(host) == ("ok", "('t', 1, {'k': 1})")
    host.execute(CALL.format(1))
    host.give_text(called(host).approval, RESULT, '{"content":[{"type":"text","text":"only text"}]}')
    assert end(host) == ("ok", "'only text'")
    host.execute(CALL.format(1))
    host.give_text(called(host).approval, RESULT, '{"isError":true,"content":[{"type":"text","text":"no"}]}')
    assert end(host) == ("error", "no")


def test_output_schemas_are_checked_as_for_servers(host: Session) -> None:
    code = "from mcptools.host import typed\nprint(typed.run().n)"
    assert run(host, code, lambda e: {"n": 7}) == ("ok", "7\n")
    status, text = run(host, "print(typed.run()['n'])", lambda e: {"n": "seven"})
    assert status == "ok" and "does not fit the tool's outputSchema" in text and text.endswith("seven\n")
    strict = "import cellgate_tools\nwith cellgate_tools.options(strict=True): typed.run()"
    status, text = run(host, strict, lambda e: {"n": "seven"})
    assert status == "error" and "outputSchema" in text


def test_errors_and_refusals(host: Session) -> None:
    host.execute(CAUGHT)
    host.give_text(called(host).approval, ERROR, 'disk "full"\n\xe4')
    assert end(host) == ("ok", 'ToolError tool disk "full"\n\xe4\n')
    host.execute(CAUGHT)
    host.give_text(called(host).approval, ERROR, b"\xff not UTF-8")
    assert end(host) == ("ok", "ToolError tool \ufffd not UTF-8\n")
    host.execute(CAUGHT)
    host.give_text(called(host).approval, REFUSED, "not today")
    status, text = end(host)
    assert status == "ok" and text.startswith("RejectedError rejected") and "not today" in text
    host.execute(CALL.format(1))
    host.give_text(called(host).approval, REFUSED, b"x" * 100_000)
    assert host.until("result")[-1].refused


NO_RESULTS: list[tuple[int, str | bytes, int]] = [
    (VALUE, "", E_PARSE),
    (VALUE, "tru", E_PARSE),
    (VALUE, "1 2", E_PARSE),
    (VALUE, '1},"isError":true,"x":{"y":1', E_PARSE),  # nothing of ours can be replaced
    (VALUE, '"\xff"'.encode("latin-1"), E_PARSE),
    (VALUE, "[" * 300 + "]" * 300, E_PARSE),
    (VALUE, '"' + "x" * (64 << 20) + '"', E_LIMIT),
    (RESULT, "[]", E_PARSE),
    (RESULT, "{}", E_INVAL),
    (RESULT, '{"content":"x"}', E_INVAL),
    (RESULT, '{"content":[],"content":[]}', E_INVAL),
    (RESULT, '{"content":[]}x', E_PARSE),
    (17, "1", E_INVAL),
]


def test_what_is_no_result_is_refused_and_the_call_still_waits(host: Session) -> None:
    host.execute(CALL.format(1))
    e = called(host)
    for outcome, text, code in NO_RESULTS:
        assert code_of(host.give_text, e.approval, outcome, text) == code, text[:40]
    host.give(e.approval, 5)
    assert end(host) == ("ok", "5")


def test_large_results(host: Session) -> None:
    host.execute(CALL.format(1) + ".strip('y') == 'x' * (20 << 20)")
    host.give(called(host).approval, "x" * (20 << 20))
    assert end(host) == ("ok", "True")
    host.execute("r = any.call(x=1).large()\ntype(r).__name__, len(r)")
    host.give_text(
        called(host).approval, RESULT, json.dumps({"content": [{"type": "text", "text": "0123456789" * 300_000}]})
    )
    assert end(host) == ("ok", "('LargeText', 3000000)")  # it stays outside of the kernel


# ---- which answers count


def test_with_ask_the_question_comes_first(session: Session) -> None:
    session.add_functions("host", TOOLS, ask=1)
    session.execute(CALL.format("a"))
    asked = session.until("approval_request")[-1]
    assert (asked.server, asked.tool, asked.method) == ("host", "any", "tools/call")
    assert code_of(session.give, asked.approval, 1) == E_NOTFOUND
    session.accept(asked.approval)
    e = called(session)
    assert e.args == asked.args and e.approval != asked.approval
    session.give(e.approval, 1)
    assert end(session) == ("ok", "1")
    session.execute(CALL.format("b"))
    session.reject(session.until("approval_request")[-1].approval, "no")
    events = session.until("result")  # the host is not called
    assert events[-1].refused and not [e for e in events if e.type == "function_call"]


def test_calls_wait_side_by_side_and_are_answered_in_any_order(host: Session) -> None:
    code = """
import asyncio
from mcptools.host import any
sum(await asyncio.gather(*(any.run_async(x=i) for i in range(300)))) == sum(i * i for i in range(300))"""
    host.execute(code)
    waiting = []
    for _ in range(256):
        waiting.append(called(host))
    assert host.next(300) is None  # more wait in the kernel
    while True:
        for e in reversed(waiting):
            host.give(e.approval, json.loads(e.args)["x"] ** 2)
        waiting = []
        e = host.next()
        assert e is not None
        if e.type == "execute_result":
            assert e.json["data"]["text/plain"] == "True"
            break
        waiting.append(e)
    assert host.until("result")[-1].status == "ok"


# ---- how each wait ends


def test_interrupt_closes_the_call(host: Session) -> None:
    cell = host.execute(CALL.format(1))
    e = called(host)
    host.cancel(cell)
    closed, result = host.each("approval_closed", "result")
    assert (closed.approval, result.status) == (e.approval, "cancelled")
    assert code_of(host.give, e.approval, 1) == E_NOTFOUND
    assert run(host, CALL.format(1), lambda e: 2) == ("ok", "2")


def test_a_cancelled_task_closes_its_call_and_no_other(host: Session, work: Path) -> None:
    code = """
import asyncio
from mcptools.host import any
a, b = (asyncio.ensure_future(any.run_async(x=i)) for i in range(2))
await asyncio.to_thread(lambda: open('go').read())
a.cancel()
print(await b)"""
    go = gate(work)
    host.execute(code)
    calls = {json.loads(e.args)["x"]: e.approval for e in (called(host), called(host))}
    go()
    assert host.until("approval_closed")[-1].approval == calls[0]
    assert code_of(host.give, calls[0], 1) == E_NOTFOUND
    host.give(calls[1], "b")
    assert end(host) == ("ok", "b\n")


def test_reset_and_a_kernel_that_dies_close_calls_and_keep_the_functions(host: Session) -> None:
    host.execute(CALL.format(1))
    e = called(host)
    host.reset()
    closed, result = host.each("approval_closed", "result")
    assert (closed.approval, result.status) == (e.approval, "cancelled")
    assert code_of(host.give, e.approval, 1) == E_NOTFOUND
    code = "import threading, os\nthreading.Timer(0.3, os._exit, [1]).start()\n" + CALL.format(1)
    host.execute(code)
    e = called(host)
    closed, result = host.each("approval_closed", "result")
    assert (closed.approval, result.status) == (e.approval, "kernel_died")
    assert run(host, CALL.format(1), lambda e: 3) == ("ok", "3")


def test_waiting_for_the_host_does_not_count(host: Session) -> None:
    host.execute(CALL.format(1), timeout_ms=500)
    e = called(host)
    assert host.next(1200) is None
    host.give(e.approval, 1)
    assert end(host) == ("ok", "1")


def test_a_host_that_does_not_answer(client: Client) -> None:
    with client.session(approval_timeout_ms=300) as s:
        s.add_functions("host", TOOLS)
        s.execute(CAUGHT)
        e = called(s)
        closed = s.until("approval_closed")[-1]
        assert closed.approval == e.approval and "did not return in time" in closed.text
        status, text = end(s)
        assert status == "ok" and text.startswith("UnavailableError timeout") and "did not return in time" in text
        assert code_of(s.give, e.approval, 1) == E_NOTFOUND


def test_the_time_that_the_cell_sets(host: Session) -> None:
    host.execute(
        "import cellgate_tools\nwith cellgate_tools.options(timeout=0.3): " + CALL.format(1).replace("\n", "; ")
    )
    e = called(host)
    assert host.until("approval_closed")[-1].approval == e.approval
    status, text = end(host)
    assert status == "error" and "did not return in time" in text


def _tool_server() -> tuple[int, int]:
    """The guard and the tool server of the newest supervisor of this process."""
    supervisors = [p for p in children(os.getpid()) if words(p)[0].endswith(b"cellgate-supervisor")]
    supervisor = by_age(supervisors)[-1]
    (guard,) = [p for p in children(supervisor) if words(p)[0].endswith(b"cellgate-toolserver")]
    return guard, children(guard)[0]


def test_a_tool_server_that_is_killed(workspace: Path) -> None:
    """Calls go on; all functions are known to its successor, though their definitions exceed one message."""
    with Client(no_spare=1) as c, c.session(workspace=workspace) as s:
        for name in ("host", "b", "c", "d"):
            s.add_functions(name, [*TOOLS, {"name": "large", "description": "x" * 500_000, "inputSchema": {}}])
        s.execute(CALL.format(1))
        e = called(s)
        os.kill(_tool_server()[0], signal.SIGKILL)
        assert "was started again" in s.until("notice")[-1].text
        s.give(e.approval, 1)
        assert end(s) == ("ok", "1")
        assert run(s, CALL.format(1), lambda e: 2) == ("ok", "2")
        status, text = run(s, "from mcptools.d import any\nany.run(x=1)", lambda e: e.server)
        assert status == "ok" and text.endswith("'d'")


def test_a_tool_server_that_is_killed_while_it_keeps_a_result(workspace: Path) -> None:
    """The result goes to the kernel as a whole."""
    with Client(no_spare=1) as c, c.session(workspace=workspace) as s:
        s.add_functions("host", TOOLS)
        s.execute("from mcptools.host import any\nr = any.run(x=1)\ntype(r).__name__, len(r)")
        e = called(s)
        guard, server = _tool_server()
        os.kill(server, signal.SIGSTOP)
        s.give(e.approval, "x" * (3 << 20))
        assert s.next(300) is None
        os.kill(guard, signal.SIGKILL)
        assert end(s) == ("ok", f"('str', {3 << 20})")


# ---- sets


def test_a_set_is_replaced_and_its_calls_fail(session: Session) -> None:
    host = session
    host.add_functions("host", TOOLS)
    host.execute(CAUGHT)
    e = called(host)
    report = host.add_functions("host", [ADD, {"name": "other", "inputSchema": {"type": "object"}}])
    assert [t["tool"] for t in report["host"]["tools"]] == ["add", "other"]
    closed, stream = host.each("approval_closed", "stream")
    assert closed.approval == e.approval and "replaced" in stream.text
    assert code_of(host.give, e.approval, 1) == E_NOTFOUND
    host.until("result")
    assert "has no tool" in run(host, "any.run(x=1)", lambda e: 1 / 0)[1]
    assert run(host, "from mcptools.host import other\nother.run()", lambda e: 4) == ("ok", "4")
    host.add_functions("host", [])  # without functions
    assert "has no tool" in run(host, "other.run()", lambda e: 1 / 0)[1]


def test_names_of_servers_and_functions_are_one_series(tools: Session) -> None:
    assert code_of(tools.add_functions, "echo", TOOLS) == E_EXISTS
    tools.add_functions("my-host", TOOLS)
    assert code_of(tools.add_functions, "my_host", TOOLS) == E_EXISTS  # the same package
    server = {"command": "/usr/bin/python3", "args": [str(SERVER)]}
    assert code_of(tools.add_servers, {"my-host": server}) == E_EXISTS
    assert code_of(tools.add_servers, {"my_host": server}) == E_EXISTS
    assert run(tools, "from mcptools.my_host import any\nany.run(x=1)", lambda e: 2) == ("ok", "2")
    tools.execute("from mcptools.echo import echo\nstr(echo.run(text='x'))")
    tools.accept(tools.until("approval_request")[-1].approval)
    assert end(tools)[0] == "ok"


def test_a_server_file_defines_no_functions(used: Session, mark: Path) -> None:
    """The files that users have come from repositories; such a server would be called without a question."""
    forged = {"host_functions": json.dumps(TOOLS), "ask": False}
    with pytest.raises(CellgateError, match="command"):
        used.add_servers({"forged": forged})
    server = {"command": "/usr/bin/python3", "args": [str(SERVER)], "env": {"MARK": str(mark)}, **forged}
    assert {t["tool"] for t in used.add_servers({"echo": server})["echo"]["tools"]} >= {"echo", "danger"}


DEFINITIONS: list[tuple[str | bytes, Any, int]] = [
    *((name, [], E_INVAL) for name in ("a.b", "cellgate", "", "x" * 300, b"\xff")),
    *(("a", text, E_PARSE) for text in ("{}", "", '[{"name": "x"}', '[{"name": "x"}] x')),
    ("a", " " * (512 << 10) + "[]", E_LIMIT),
    ("a", [{"name": "\u20ac" * 170_000}], E_LIMIT),
]


def test_definitions_that_are_refused(host: Session) -> None:
    for name, tools, code in DEFINITIONS:
        assert code_of(host.add_functions, name, tools) == code, (name, str(tools)[:40])
    assert run(host, CALL.format(1), lambda e: 2) == ("ok", "2")


def test_functions_that_cannot_be_used_cost_no_other(session: Session) -> None:
    tools = [ADD, {"name": "bad", "inputSchema": 5}, {"no": "name"}, 7, ANY, {**ANY, "description": "again"}]
    report = session.add_functions("host", tools)["host"]["tools"]
    assert [t["status"] for t in report] == ["full", "rejected", "rejected", "rejected", "full", "rejected"]
    assert run(session, CALL.format(1), lambda e: 2) == ("ok", "2")
    big = {"type": "integer", "maximum": 10**40, "default": 10**30}  # fits no machine word
    tool = {"name": "any", "inputSchema": {"type": "object", "properties": {"x": big}}}
    session.add_functions("big", [tool])
    assert run(session, CALL.format(1).replace("host", "big"), lambda e: 2) == ("ok", "2")


def test_sets_and_servers_are_limited_together(session: Session) -> None:
    for i in range(64):
        session.add_functions(f"s{i}", [])
    assert code_of(session.add_functions, "more", []) == E_LIMIT
    assert code_of(session.add_servers, {"more": {"command": "true"}}) == E_LIMIT


# ---- a hostile kernel, and other clients


def test_a_kernel_that_calls_what_is_not_there(host: Session) -> None:
    for tool, args, why in (
        ("nothing", "{}", "has no tool"),
        ("any", "[]", "cannot be sent"),
        ("any", "{", "cannot be sent"),
    ):
        code = f"import _cellgate\nprint(bytes(_cellgate.function_call('host', '{tool}', b'{args}', 0)[1]))"
        assert why in run(host, code, lambda e: 1 / 0)[1]
    read = "import mcptools\nmcptools.read_resource('host', 'file:///x')"
    assert "does not offer" in run(host, read, lambda e: 1 / 0)[1]
    assert "does not offer" in run(host, "mcptools.get_prompt('host', 'x')", lambda e: 1 / 0)[1]


@pytest.mark.parametrize("wire", ["k", "t", "f"])
def test_a_kernel_cannot_answer_its_call(host: Session, wire: str) -> None:
    """It sends the messages of hosts and supervisors on what it has: it is ended, and its call is closed."""
    code = (
        LIBRARY
        + "\nimport threading\n"
        + f"number = {int(HOST.FUNCTION_RETURN)}\n"
        + f"def lie(): forge(b''.join(message(w, t, 1, b'', b'{{\"content\":[]}}') for w in (1, 2, 3, 4) for t in (number, 17)), {wire!r})\n"
        + "threading.Timer(0.3, lie).start()\n"
        + CALL.format(1)
    )
    host.execute(code)
    e = called(host)
    closed, result = host.each("approval_closed", "result")
    assert closed.approval == e.approval and result.status == "kernel_died"


FORGED = (
    LIBRARY
    + """
def call(number, tool='any', args=b'{}', server='host', **more):
    import json
    return message(3, 1, number, json.dumps({'server': server, 'tool': tool, 'timeout_ms': 0} | more).encode(), args)
"""
)


BROKEN_RULES = {
    "call(900) + call(900)": "its id is in use",
    "call(1)": "its id is in use",
    "b''.join(call(900 + i) for i in range(256))": "too many at once",
    "call(900, timeout_ms=-1)": "negative",
    "call(900, timeout_ms='x')": "timeout_ms",
    "call(900, server='x' * 257)": "over its limit",
    "call(900, tool=None)": "tool",
    "message(3, 1, 900, b'{}', b'{}')": "without server or tool",
    "message(3, 1, 900, b'[]', b'{}')": "JSON object",
    "message(3, 1, 900, b'{}')": "CALL",
    "message(3, 1, 900, b'{}', b'x' * (5 << 20))": "CALL",
    'message(3, 4, 900, b\'{"result":1,"offset":0,"length":1}\')': "kept results",
    "message(3, 6, 900)": "kept results",
}


def test_calls_that_break_the_rules_of_the_wire(session: Session, workspace: Path) -> None:
    """The kernel is ended, its call that waits is closed, and nothing else reaches the host."""
    session.add_functions("host", TOOLS)
    for forged, rule in BROKEN_RULES.items():
        session.execute(
            f"{FORGED}\nimport os, threading, time\n"
            "def lie():\n    while not os.path.exists('called'): time.sleep(0.01)\n"
            f"    forge({forged}, 'f')\n"
            f"threading.Thread(target=lie).start()\n{CALL.format(1)}"
        )
        e = called(session)
        (workspace / "called").touch()
        got = session.until("kernel_died")
        assert "broke a rule" in got[-1].text and rule in got[-1].text, forged
        closed = {x.approval for x in got if x.type == "approval_closed"}
        also = {x.approval for x in got if x.type == "function_call"}
        assert closed == {e.approval} | also, forged
        assert len(also) == (255 if "256" in forged else 1 if "+" in forged else 0), forged
        (workspace / "called").unlink()
    assert run(session, CALL.format(1), lambda e: 2) == ("ok", "2")


def test_forged_calls_reach_what_they_may(tools: Session, mark: Path) -> None:
    """Of functions: those of this session, and no tool of a server; on the tool wire no function."""
    tools.add_functions("host", TOOLS)
    with tools.client.session() as other:
        other.add_functions("theirs", [*TOOLS, {"name": "secret", "inputSchema": {}}])
        tools.run(FORGED)
        tools.execute(
            "import _cellgate, time\n"
            "for server, tool in (('echo', 'danger'), ('theirs', 'any'), ('host', 'secret'), ('', ''), ('host', '')):\n"
            "    print(_cellgate.function_call(server, tool, b'{}', 0))\n"
            "print(_cellgate.tool_call('host', 'any', b'{}', 0))\n"
            "forge(call(800, server='echo', tool='danger') + call(801, server='theirs'), 'f')\n"
            "forge(call(802), 't')\ntime.sleep(0.3)"
        )
        events = tools.until("result")
        assert {e.type for e in events} <= {"stream", "result", "execute_input"}
        text = "".join(e.text for e in events if e.type == "stream")
        assert text.count("the host has no functions") == 3 and text.count("has no tool") == 2
        assert "is the name of functions of the host" in text
        assert other.next(0) is None
    assert not mark.exists()


def test_arguments_that_wait_are_limited_together(host: Session) -> None:
    """Calls of 4 MB each: 64 MB wait, the others fail at once."""
    host.execute(
        "import asyncio\nfrom mcptools.host import any\n"
        "async def call():\n"
        "    try: return await any.run_async(x='x' * 4194200)\n"
        "    except Exception as e: print('.', flush=True); return e\n"
        "got = await asyncio.gather(*(call() for i in range(20)))\n"
        "print(got.count(1), len({str(g) for g in got if g != 1}), [str(g) for g in got if g != 1][0])"
    )
    waiting, refused = [], 0
    while len(waiting) < 16 or refused < 4:
        e = host.next(30000)
        assert e and e.type in ("function_call", "stream", "execute_input"), e
        waiting += [e] if e.type == "function_call" else []
        refused += e.text.count(".") if e.type == "stream" else 0
    assert all(json.loads(e.args) == {"x": "x" * 4194200} for e in waiting)
    for e in waiting:
        host.give(e.approval, 1)
    status, text = end(host)
    assert status == "ok" and text.startswith("16 1 host.any failed: too many calls wait"), text


def test_attached_clients_neither_see_nor_answer(address: str, tmp_path: Path) -> None:
    with Client(address=address, start=1, linger_ms=1) as a, a.session(workspace=tmp_path) as s:
        s.add_functions("host", TOOLS)
        with Client(address=address) as b, Raw(address) as raw:
            t = b.attach(s.id)
            assert code_of(t.add_functions, "theirs", TOOLS) == E_STATE
            t.execute(CALL.format(1))  # also for their cells the opener's functions are called
            e = called(s)
            assert code_of(t.give, e.approval, 2) == E_NOTFOUND
            raw.send(HOST.SESSION_ATTACH, 2, {"id": s.id})  # without the library's check
            raw.session = raw.wait(HOST.SESSION_OPENED)[0]
            raw.send(HOST.FUNCTION_RETURN, e.approval, None, b'{"content":[]}')
            raw.send(HOST.DECISION, e.approval, {"accept": False})
            assert s.next(500) is None
            s.give(e.approval, 1)
            events = t.until("result")
            assert [x.json["data"]["text/plain"] for x in events if x.type == "execute_result"] == ["1"]
            assert not [x for x in events if x.type in ("function_call", "approval_closed")]
            t.close()


def test_what_a_host_returns_without_the_librarys_checks(address: str, workspace: Path) -> None:
    """A result that is no JSON fails its call. Other kinds of answers: test_question_kinds.py."""
    with Client(address=address, start=1, linger_ms=1), Raw(address) as raw:
        options = {"workspace": str(workspace), "sandbox": True, "env": [], "hide": [], "python_path": []}
        raw.send(HOST.SESSION_NEW, 2, options)
        raw.session = raw.wait(HOST.SESSION_OPENED)[0]
        raw.send(HOST.SERVERS_ADD, 3, {"servers": {"host": {"host_functions": json.dumps(TOOLS)}}})
        raw.wait(HOST.SERVERS_ADDED)
        forged = b'{"content":[{"type":"text","text":"forged"}]}'
        for given, shown in ((b"[1]", b"cannot be read"), (b"{} {}", b"cannot be read"), (forged, b"forged")):
            raw.execute("from mcptools.host import any\nprint(any.run(x=1))")
            _, number = raw.wait(HOST.FUNCTION_CALL)
            raw.send(HOST.FUNCTION_RETURN, number, None, given)
            raw.wait(HOST.RESULT)
            assert shown in raw.past, given


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "sup")


class Raw:
    """A client that sends what it wants."""

    def __init__(self, address: str) -> None:
        self.forged: dict[str, Any] = {}
        exec(LIBRARY, self.forged)
        self.life, self.socket = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.life.connect(f"{address}/life.sock")
        token = self.life.recv(33).decode().strip()
        self.socket.connect(f"{address}/host.sock")
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
        self.socket.sendall(greeting + bytes([4, len(ready)]) + ready)
        self.session = self.cells = 0
        self.got = self.past = b""
        self.send(HOST.HELLO, 1, {"token": token})

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()
        self.life.close()

    def send(self, type: int, id: int, body: dict | None, data: bytes | None = None) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.socket.sendall(self.forged["message"](HOST_WIRE, type, id, text, data, session=self.session))

    def execute(self, code: str, body: bytes = b"{}") -> None:
        self.cells += 1
        head = b"CG" + bytes([VERSION, HOST_WIRE]) + struct.pack("<HHQQ", HOST.EXECUTE, 0, self.session, self.cells)
        self.socket.sendall(self.forged["zmtp"](head, body, code.encode(), b""))

    def _find(self, type: int) -> int:
        return self.got.find(b"CG" + bytes([VERSION, HOST_WIRE]) + struct.pack("<H", type))

    def wait(self, type: int) -> tuple[int, int]:
        """The session and id of the next message of that type; what came up to its end is in .past."""
        self.socket.settimeout(30)
        while (at := self._find(type)) < 0 or len(self.got) < at + 24:
            try:
                got = self.socket.recv(65536)
            except TimeoutError:
                got = b""
            assert got, self.got
            self.got += got
        session, id = struct.unpack_from("<QQ", self.got, at + 8)
        self.past, self.got = self.got[:at], self.got[at + 24 :]
        return session, id

    def quiet(self, type: int) -> None:
        """No message of that type comes for a while."""
        self.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            while True:
                self.got += self.socket.recv(65536)
        assert self._find(type) < 0
