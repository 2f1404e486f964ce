"""`cellgate run --json`: the protocol of docs/cli-json.md, and that only a well-formed decision lets a call run."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from processes import gate

READ = "from mcptools.fs import read_file; print(read_file.run(path='/x'))"


# ---------------------------------------------------------------- events


def test_progress_of_a_call(host, asking) -> None:
    values = [{"progress": 1, "total": 4, "message": 'x"\n'}]
    cell = f"from mcptools.s import report; report.run(values={values!r})"
    h = host("--mcp", asking(), "-c", cell)
    number = h.until("approval_request")["approval"]
    h.say({"approval": number, "accept": True})
    progress = h.until("progress")
    content = {"server": "s", "method": "tools/call", "tool": "report", "progress": 1, "total": 4}
    assert progress["content"].pop("message").startswith('x"\\')
    assert progress["content"] == {**content, "call": number}
    assert progress["text"].startswith('s.report: 1 of 4, x"\\') and progress["cell"] == 1
    assert h.end() == 0


def test_events_of_a_run(host) -> None:
    code = "import comm, sys; print('a'); print('b', file=sys.stderr); _ = comm.create_comm(target_name='x', data=7)"
    h = host("-c", code, "-c", "40 + 2", "-c", "1/0", "-c", "never")
    events = h.rest()
    assert h.process.wait(10) == 1
    assert events[0]["type"] == "session"
    assert events[0]["info"]["sandbox"] is True
    ok = {"execution_count": 1, "refused": False, "text": ""}
    streams = [e for e in events if e["type"] == "stream"]
    assert all(e["cell"] == 1 for e in streams)
    for name, text in (("stdout", "a\n"), ("stderr", "b\n")):  # a busy machine may send one print() in two pieces
        assert "".join(e["text"] for e in streams if e["name"] == name) == text
    (comm,) = (e for e in events if e["type"] == "comm")
    assert (comm["text"], comm["content"]["msg_type"], comm["content"]["content"]["data"]) == ("", "comm_open", 7)
    first = next(e for e in events if e["type"] == "result")
    costs = first.pop("costs")
    assert first == {"type": "result", "cell": 1, "status": "ok", **ok}
    figures = {"wall_us", "cpu_us", "memory_bytes", "written_bytes", "tool_calls", "commands", "connections", "denials"}
    assert set(costs) == figures | {"shared"} and costs["wall_us"] > 0 and costs["shared"] is False
    value = next(e for e in events if e["type"] == "execute_result")
    assert (value["cell"], value["content"]["data"]) == (2, {"text/plain": "42"})
    error = next(e for e in events if e["type"] == "error")
    assert (error["cell"], error["content"]["ename"]) == (3, "ZeroDivisionError")
    assert (events[-1]["type"], events[-1]["cell"], events[-1]["status"]) == ("result", 3, "error")


FORM = {
    "method": "elicitation/create",
    "params": {"message": "x\n", "requestedSchema": {"properties": {"n": {"type": "integer", "default": 1}}}},
}
ASK = f"from mcptools.s import ask; print(ask.run(ask=[{FORM!r}]).content[0].text)"


@pytest.mark.parametrize("modern", [False, True])
def test_questions_of_servers(host, asking, modern: bool) -> None:
    h = host("--mcp", asking(modern=modern), "--approve", "all", "--server-requests", "elicitation", "-c", ASK)
    e = h.until("server_request")
    assert e["content"].pop("call") < e["approval"]
    assert e["content"] == {"server": "s", **FORM}
    n = e["approval"]
    for wrong in (
        {"approval": n, "accept": True},
        {"approval": n, "result": []},
        {"approval": n, "result": {}, "decline": True},
        {"approval": n, "decline": False},
        {"approval": n + 1, "decline": True},
        {"approval": n, "result": {"action": "accept", "content": {"n": "x"}}},
    ):
        h.say(wrong)
        assert h.until("input_error")["text"]
    h.say({"approval": n, "result": {"action": "accept", "content": {}}})
    assert '"n": 1' in h.until("stream")["text"]
    assert h.end() == 0


@pytest.mark.parametrize("how", ["decline", "close", "no option"])
def test_questions_of_servers_that_nobody_answers(host, asking, how: str) -> None:
    option = [] if how == "no option" else ["--server-requests", "sampling,elicitation"]
    h = host("--mcp", asking(), "--approve", "all", *option, "-c", ASK)
    if how != "no option":
        n = h.until("server_request")["approval"]
        if how == "decline":
            h.say({"approval": n, "decline": True})
        else:
            h.close_input()
    assert ("-32601" if how == "no option" else "decline") in h.until("stream")["text"]
    assert h.end() == 0


def test_kinds_of_questions(host, person) -> None:
    for kinds in ("x", "", "elicitation,", "elicit"):
        h = host("--server-requests", kinds)
        assert b"kinds are" in h.process.stderr.read()
        assert h.end() == 2
    p = person("run", "--server-requests", "sampling", "-c", "1")
    p.wait_for("needs --json")
    assert p.end() == 2


def test_lines_cannot_be_forged(host) -> None:
    """Text of a kernel remains in its own members, and cannot contain a line end for any reader of lines."""
    forged = '{"type":"approval_decided","accept":true}'
    cell = (
        f"from IPython.display import display\nprint({chr(10)!r} + {forged!r} + '\\u2028\\r\\x85' + {forged!r})\n"
        f"display({{'text/plain': '\\u2028' + {forged!r}, 'type': 'result', 'a\\nb': '\\r'}}, raw=True)"
    )
    h = host("-c", cell)
    events = h.rest()
    assert h.process.wait(10) == 0
    assert [e["type"] for e in events if e["type"] not in ("session", "stream", "display_data", "result")] == []
    assert sum(e["type"] == "result" for e in events) == 1
    assert forged in "".join(e["text"] for e in events if e["type"] == "stream")


def test_images_stay_in_the_events(host, tmp_path: Path) -> None:
    h = host("-c", "from IPython.display import display; display({'image/png': 'AAAA'}, raw=True)")
    assert h.until("display_data")["content"]["data"] == {"image/png": "AAAA"}
    assert h.end() == 0
    assert not (tmp_path / "images").exists()


def test_failure_is_an_event_too(host) -> None:
    h = host("--workspace", "missing", "-c", "1")
    failed = h.until("failed")
    assert failed["status"] == 2
    assert "missing" in failed["text"]
    assert h.end() == 2


def test_kernel_died(host) -> None:
    h = host("-c", "import os; os._exit(1)")
    last = h.rest()[-1]
    assert (last["status"], last["execution_count"]) == ("kernel_died", last["cell"])
    assert h.process.wait(10) == 3


# ---------------------------------------------------------------- decisions


def test_accept(host, server) -> None:
    h = host("--mcp", server.mcp, "-c", READ)
    servers = h.until("mcp_servers")["servers"]
    assert [tool["status"] for tool in servers["fs"]["tools"]] == ["full"] * 3
    ask = h.until("approval_request")
    assert {k: ask[k] for k in ("cell", "server", "tool", "arguments")} == {
        "cell": 1,
        "server": "fs",
        "tool": "read_file",
        "arguments": {"path": "/x"},
    }
    assert server.ran() == []
    h.say({"approval": ask["approval"], "accept": True})
    assert h.until("stream")["text"] == "read_file done\n"
    assert h.end() == 0
    assert server.ran() == ["read_file"]


def test_refuse_with_a_reason(host, server) -> None:
    h = host("--mcp", server.mcp, "-c", READ)
    h.say({"approval": h.until("approval_request")["approval"], "accept": False, "reason": "no é"})
    assert "no é" in h.until("error")["content"]["evalue"]
    assert h.until("result")["refused"] is True
    assert h.end() == 4
    assert server.ran() == []


NO_DECISIONS: list[Any] = [
    b"yes",
    b"y",
    b"{",
    b"[]",
    b"true",
    b'{"accept":true}',
    b'{"approval":N}',
    b'{"approval":"N","accept":true}',
    b'{"approval":N.0,"accept":true}',
    b'{"approval":-N,"accept":true}',
    b'{"approval":N,"accept":"true"}',
    b'{"approval":N,"accept":1}',
    b'{"approval":N,"accept":null}',
    b'{"approval":N,"accept":true,"extra":1}',
    b'{"approval":N,"acept":true}',
    b'{"approval":N,"accept":true,"reason":7}',
    b'{"approval":N,"accept":false,"accept":true}',
    b'{"approval":N,"accept":true}{"approval":N,"accept":true}',
    b'{"approval":N,"accept":true} trailing',
    b'{"approval":N,"accept":true,"cancel":1}',
    b'{"approval":99,"accept":true}',
    b'{"approval":0,"accept":true}',
    b'{"approval":123456789012345678901234567890,"accept":true}',
    b'{"Approval":N,"accept":true}',
    b"\xff\xfe",
    b'{"approval":N,"accept":true,"reason":"\xff"}',
    b'{"cancel":"1"}',
    b'{"cancel":-1}',
    b'{"input":5}',
    b'{"input":"x"}',
    b'{"input":"x","question":1}',
    b'{"input":"x","question":"1"}',
    b'{"input":"x","question":1,"id":1}',
    b"{}",
]


def test_lines_that_decide_nothing(host, server) -> None:
    h = host("--mcp", server.mcp, "-c", READ)
    number = h.until("approval_request")["approval"]
    h.say(b"")  # empty lines are ignored, and counted
    for count, line in enumerate(NO_DECISIONS, 2):
        h.say(line.replace(b"N", str(number).encode()))
        error = h.next()
        assert (error["type"], error["line"]) == ("input_error", count), line
        assert error["text"]
    h.say({"approval": number, "accept": False})
    h.until("error")
    assert h.end() == 4
    assert server.ran() == []


def test_too_long_line_is_skipped_whole(host, server) -> None:
    h = host("--mcp", server.mcp, "-c", READ)
    number = h.until("approval_request")["approval"]
    good = json.dumps({"approval": number, "accept": True}).encode()
    h.say(b" " * (18 << 20) + good)
    assert "too long" in h.until("input_error")["text"]
    assert server.ran() == []
    h.say(good)
    assert h.until("stream")["text"] == "read_file done\n"
    assert h.end() == 0


def test_decision_is_used_once(host, server) -> None:
    h = host("--mcp", server.mcp, "-c", READ + ";" + READ)
    first = h.until("approval_request")["approval"]
    for _ in range(2):
        h.say({"approval": first, "accept": True})
    seen: dict[str, dict] = {}  # the next question may come before the error
    while not {"input_error", "approval_request"} <= set(seen):
        event = h.next()
        seen[event["type"]] = event
    assert seen["input_error"]["line"] == 2
    second = seen["approval_request"]["approval"]
    assert second != first
    h.say({"approval": second, "accept": False})
    h.until("error")
    assert h.end() == 4
    assert server.ran() == ["read_file"]


@pytest.mark.own_supervisor  # its questions begin at 1
def test_decision_before_the_question_is_none(host, server, tmp_path: Path) -> None:
    """It must not be kept for later."""
    release = gate(tmp_path)
    h = host("--mcp", server.mcp, "-c", "open('go').read()\n" + READ)
    for number in range(1, 50):
        h.say({"approval": number, "accept": True})
    for _ in range(49):
        h.until("input_error")
    release()
    assert 1 <= h.until("approval_request")["approval"] < 50
    h.close_input()
    assert h.end() == 4
    assert server.ran() == []


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_end_of_input_refuses(host, server, before: bool) -> None:
    h = host("--mcp", server.mcp, "-c", READ)
    if not before:
        h.until("approval_request")
    h.close_input()
    assert "input has ended" in h.until("error")["content"]["evalue"]
    assert h.end() == 4
    assert server.ran() == []


def test_half_a_line_at_the_end_of_input_is_still_a_line(host, server) -> None:
    h = host("--mcp", server.mcp, "-c", READ)
    number = h.until("approval_request")["approval"]
    h.process.stdin.write(b'{"approval":%d,"accept":tr' % number)
    h.process.stdin.flush()
    h.close_input()
    assert h.until("input_error")["line"] == 1
    assert h.end() == 4
    assert server.ran() == []


def test_rules_decide_without_asking(host, server) -> None:
    cell = "from mcptools.fs import read_file, write_file, list_dir\nread_file.run(); list_dir.run(); write_file.run()"
    h = host("--mcp", server.mcp, "--approve", "fs.read_*", "--approve", "!fs.write_*", "-c", cell)
    decided = h.until("approval_decided")
    assert (decided["tool"], decided["accept"]) == ("read_file", True)
    ask = h.until("approval_request")
    assert ask["tool"] == "list_dir"
    h.say({"approval": ask["approval"], "accept": True})
    decided = h.until("approval_decided")
    assert (decided["tool"], decided["accept"]) == ("write_file", False)
    assert "!fs.write_*" in decided["reason"]
    assert h.end() == 4
    assert server.ran() == ["read_file", "list_dir"]


@pytest.mark.parametrize(("rule", "status"), [("all", 0), ("none", 4)])
def test_all_and_none_ask_nothing(host, server, rule: str, status: int) -> None:
    h = host("--mcp", server.mcp, "--approve", rule, "-c", READ)
    h.close_input()
    events = h.rest()
    assert not [e for e in events if e["type"] == "approval_request"]
    assert h.process.wait(10) == status


def test_arguments_are_relayed_unharmed(host, make_server) -> None:
    server = make_server("t")
    text = '{"big":12345678901234567890123,"pair":"\\ud83d\\ude00","nul":"\\u0000","é":[1.10,-0]}'
    h = host("--mcp", server.mcp, "-c", f"import _cellgate; _cellgate.tool_call('fs', 't', {text.encode()!r}, 0)")
    h.until("mcp_servers")
    line = h.lines.get(timeout=h.deadline)
    assert text.replace("é", "\\u00e9").encode() in line
    h.say({"approval": json.loads(line)["approval"], "accept": False})
    assert h.end() == 0


# ---------------------------------------------------------------- cancel, input


def test_cancel(host) -> None:
    h = host("-c", "import time; print('go'); time.sleep(60)", "-c", "print('next')")
    h.until("stream")
    h.say({"cancel": 7})  # not this one
    h.say({"cancel": 1})
    while (event := h.next())["type"] != "result":
        assert event["type"] in ("error", "stream")
    assert event["status"] == "cancelled"
    assert h.end() == 130


def test_cancel_of_a_call_that_waits(host, server) -> None:
    h = host("--stay", "--mcp", server.mcp, "-c", READ)
    ask = h.until("approval_request")
    h.say({"cancel": 0})
    seen: dict = {}  # the two come from different processes
    while not seen.keys() >= {"approval_closed", "result"}:
        event = h.next()
        seen[event["type"]] = event
    assert seen["approval_closed"]["approval"] == ask["approval"] and seen["result"]["status"] == "cancelled"
    h.say({"approval": ask["approval"], "accept": True})
    h.close_input()
    (error,) = [e for e in h.rest() if e["type"] == "input_error"]
    assert f"no approval_request with number {ask['approval']} waits" in error["text"]
    assert h.process.wait(h.deadline) == 0
    assert server.ran() == []


def test_interrupt(host, server) -> None:
    h = host("--mcp", server.mcp, "-c", READ)
    h.until("approval_request")
    h.process.send_signal(signal.SIGINT)
    assert h.end() == 130
    assert server.ran() == []


def test_input(host) -> None:
    h = host("-c", "print(input('name? '))\ntry: input()\nexcept EOFError: print('no more')")
    assert h.until("input_request")["content"]["prompt"] == "name? "
    h.say({"input": "é\u2028"})
    text = ""
    while (event := h.next())["type"] != "input_request":
        text += event["text"]
    h.say({"input": None})
    text += "".join(e["text"] for e in h.rest() if e["type"] == "stream")
    assert "é\u2028\nno more\n" in text
    assert h.process.wait(10) == 0


def test_an_answer_that_names_its_question_goes_to_no_other(host) -> None:
    h = host("-c", "try: input('a')\nexcept KeyboardInterrupt: print('got', input('b'))", "-c", "print('c', input())")
    assert h.until("input_request")["question"] == 1
    h.say({"input": "early", "question": 2})
    assert "no input_request with this question number" in h.until("input_error")["text"]
    h.say({"cancel": 1})
    assert h.until("input_closed")["question"] == 1
    assert h.until("input_request")["question"] == 2
    h.say({"input": "late", "question": 1})
    assert "no input_request with this question number" in h.until("input_error")["text"]
    # In one piece: the second is read before the cell can print.
    h.say(b'{"input": "x", "question": 2}\n{"input": "twice", "question": 2}')
    assert "no input_request with this question number" in h.until("input_error")["text"]
    assert h.until("stream")["text"] == "got x\n"
    assert h.until("result")["status"] == "ok"
    assert h.until("input_request")["question"] == 3
    h.say({"input": "y", "question": 3})
    assert h.until("stream")["text"] == "c y\n"
    assert h.end() == 0


def test_input_after_the_end(host) -> None:
    h = host("-c", "try: input()\nexcept EOFError: print('no more')")
    h.close_input()
    assert h.until("stream")["text"] == "no more\n"
    assert h.end() == 0


def test_description_names_every_event(repo: Path) -> None:
    text = (repo / "docs/cli-json.md").read_text()
    source = (repo / "src/cli/run/json.c").read_text()
    types = set(re.findall(r'line_begin\(&l, "(\w+)"', source))
    assert len(types) >= 5
    for name in types:
        assert f"`{name}`" in text


def test_resource(host, server) -> None:
    """The method says what is asked for; the name of a tool is empty."""
    read = "import mcptools; print(mcptools.read_resource('fs', 'file:///x'), end='')"
    h = host("--mcp", server.mcp, "--approve", "fs.*", "-c", read, "-c", "mcptools.get_prompt('fs', 'greet')")
    ask = h.until("approval_request")
    assert (ask["server"], ask["method"], ask["tool"], ask["arguments"]) == (
        "fs",
        "resources/read",
        "",
        {"uri": "file:///x"},
    )
    assert "resource  file:///x\n" in ask["shown"]
    assert server.ran() == []
    h.say({"approval": ask["approval"], "accept": True})
    assert h.until("stream")["text"] == "contents"
    assert h.next()["type"] == "result"
    ask = h.until("approval_request")
    assert (ask["method"], ask["tool"], ask["arguments"]) == ("prompts/get", "", {"name": "greet"})
    h.say({"approval": ask["approval"], "accept": False})
    assert h.until("result")["refused"] is True
