"""Functions of the host in `cellgate run --json` (docs/cli-json.md)."""

from __future__ import annotations

from typing import Any

import pytest

TOOLS = [{"name": "f", "inputSchema": {"type": "object", "properties": {"x": {}}}}]
CALL = {"execute": {"code": "from mcptools.own import f\nprint(f.run(x=1))"}}


def start(host: Any, *args: str, **members: Any) -> Any:
    h = host(*args)
    h.until("session")
    h.say({"add_functions": {"name": "own", "tools": TOOLS, **members}})
    added = h.until("functions_added")  # a notice may say that a rule is about no server that is known yet
    assert (added["line"], added.get("id")) == (1, members.get("id"))
    assert [t["tool"] for t in added["functions"]["own"]["tools"]] == ["f"]
    return h


def printed(h: Any) -> str:
    """What the cell prints, or the exception that it raises."""
    out = ""
    while (event := h.next())["type"] != "result":
        out += event.get("text", "") if event["type"] == "stream" else ""
        out += f"{event['content']['ename']}: {event['content']['evalue']}" if event["type"] == "error" else ""
    return out


def test_a_call(host: Any) -> None:
    h = start(host, id="a")
    h.say({"execute": {"code": "from mcptools.own import f\nprint(f.run(x=[1, 'ä', 2**70]))", "id": "b"}})
    event = h.until("function_call")
    arguments = {"x": [1, "ä", 2**70]}
    number = event["approval"]
    assert event == {
        "type": "function_call",
        "cell": 1,
        "id": "b",
        "approval": number,
        "server": "own",
        "tool": "f",
        "arguments": arguments,
    }
    h.say({"approval": number, "return": {"value": {"n": [1.5, None, "ö"]}}})
    assert printed(h) == "{'n': [1.5, None, 'ö']}\n"
    h.say({"approval": number, "return": {"value": 1}})
    assert h.next()["type"] == "input_error"  # once


ANSWERS = [
    ({"value": None}, "None\n"),
    ({"value": False}, "False\n"),
    ({"result": {"content": [{"type": "text", "text": "t"}]}}, "t\n"),
    ({"error": "disk full"}, "ToolError: disk full"),
    ({"refuse": "no"}, "RejectedError"),
]


def test_answers(host: Any) -> None:
    h = start(host)
    for answer, shown in ANSWERS:
        h.say(CALL)
        h.say({"approval": h.until("function_call")["approval"], "return": answer})
        assert printed(h).startswith(shown), answer


NO_ANSWERS = [
    {"accept": True},
    {"accept": False},
    {"egress": "allow_once"},
    {"result": {"content": []}},
    {"decline": True},
    {"return": 1},
    {"return": {}},
    {"return": {"value": 1, "error": "x"}},
    {"return": {"other": 1}},
    {"return": {"error": 1}},
    {"return": {"refuse": None}},
    {"return": {"result": {}}},
    {"return": {"result": "x"}},
    {"return": {"value": 1}, "accept": True},
]


def test_what_is_no_answer_changes_nothing(host: Any) -> None:
    h = start(host)
    h.say(CALL)
    number = h.until("function_call")["approval"]
    for line in NO_ANSWERS:
        h.say({"approval": number, **line})
        assert h.next()["type"] == "input_error", line
    h.say({"approval": number + 1, "return": {"value": 1}})
    assert h.next()["type"] == "input_error"
    h.say({"approval": number, "return": {"value": 2}})
    assert printed(h) == "2\n"


@pytest.mark.parametrize("rule", ["all", "none", "own.*"])
def test_rules_about_tools_answer_no_function(host: Any, rule: str) -> None:
    h = start(host, "--approve", rule)
    h.say(CALL)
    number = h.until("function_call")["approval"]
    h.say({"approval": number, "return": {"value": 3}})
    assert printed(h) == "3\n"


def test_with_ask_rules_come_first(host: Any) -> None:
    h = start(host, ask=True)
    h.say(CALL)
    event = h.until("approval_request")
    assert (event["server"], event["tool"], event["arguments"]) == ("own", "f", {"x": 1}) and "f" in event["shown"]
    h.say({"approval": event["approval"], "return": {"value": 1}})
    assert h.next()["type"] == "input_error"
    h.say({"approval": event["approval"], "accept": True})
    h.say({"approval": h.until("function_call")["approval"], "return": {"value": 4}})
    assert printed(h) == "4\n"
    h = start(host, "--approve", "none", ask=True)
    h.say(CALL)
    assert h.until("approval_decided")["accept"] is False
    assert printed(h).startswith("RejectedError")


def test_the_end_of_input_refuses_calls(host: Any) -> None:
    h = start(host)
    h.say(CALL)
    h.until("function_call")
    h.say({"execute": {"code": "print(f.run(x=2))"}})
    h.close_input()
    events = h.rest()
    assert [e["content"]["ename"] for e in events if e["type"] == "error"] == ["RejectedError"] * 2
    assert not [e for e in events if e["type"] == "function_call"]


def test_a_cancelled_call_is_closed(host: Any) -> None:
    h = start(host)
    h.say(CALL)
    number = h.until("function_call")["approval"]
    h.say({"interrupt": {}})
    ends: dict[str, Any] = {}  # in any order
    while not {"approval_closed", "result"} <= ends.keys():
        event = h.next()
        ends[event["type"]] = event
    assert ends["approval_closed"]["approval"] == number
    h.say({"approval": number, "return": {"value": 1}})
    assert h.next()["type"] == "input_error"


NO_FUNCTIONS = [
    1,
    {},
    {"name": "own"},
    {"tools": []},
    {"name": 1, "tools": []},
    {"name": "own", "tools": {}},
    {"name": "own", "tools": [], "ask": 1},
    {"name": "own", "tools": [], "other": 1},
    {"name": "own", "tools": [], "id": {}},
    {"name": "a.b", "tools": []},
    {"name": "own", "tools": [{"name": "x" * (600 << 10)}]},
]


def test_what_adds_no_functions(host: Any) -> None:
    h = host()
    h.until("session")
    for count, line in enumerate(NO_FUNCTIONS, 1):
        h.say({"add_functions": line})
        event = h.next()
        assert (event["type"], event["line"]) == ("input_error", count), line
    h.say({"execute": {"code": "print(1)"}})
    assert printed(h) == "1\n"
