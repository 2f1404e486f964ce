"""What MCP servers ask the host for: who is asked, which answers count, and how each wait ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import E_INVAL, E_LIMIT, E_NOTFOUND, E_PARSE, CellgateError, Client, Event, Session
from processes import descendants, words

SERVER = Path(__file__).parents[1] / "asking_server.py"
ELICITATION, SAMPLING, URL, ALL_KINDS = 1, 2, 4, 7
FIELDS = {
    "name": {"type": "string", "default": "John", "minLength": 2, "maxLength": 5},
    "age": {"type": "integer", "minimum": 1, "default": 30},
    "score": {"type": "number", "maximum": 100},
    "ok": {"type": "boolean", "default": True},
    "colour": {"type": "string", "enum": ["red", "blue"]},
    "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "a"},
    "many": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 2},
    "broken": {"type": "integer", "default": "not a number"},
}
SCHEMA = {"type": "object", "properties": FIELDS, "required": ["colour"]}
FORM = {"method": "elicitation/create", "params": {"message": "who? \u00e9", "requestedSchema": SCHEMA}}
PAGE = {"method": "elicitation/create", "params": {"mode": "url", "message": "sign in", "url": "https://a.example/x"}}
SAMPLE = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
ROOTS = {"method": "roots/list"}
DECLINE, CANCEL = {"action": "decline"}, {"action": "cancel"}
MESSAGE = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
CALL = "import _cellgate, json; r = _cellgate.tool_call('s', {tool!r}, {arguments!r}, {timeout})\n"
CALL += (
    "print(r[0], json.loads(json.loads(bytes(r[1]))['content'][0]['text']) if r[0] == 'ok' else bytes(r[1]).decode())"
)


def call(tool: str = "ask", timeout: int = 0, **arguments: Any) -> str:
    return CALL.format(tool=tool, arguments=json.dumps(arguments).encode(), timeout=timeout)


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared() -> Iterator[dict[str, Session]]:
    """Sessions for several tests, by the server's era."""
    sessions: dict[str, Session] = {}
    yield sessions
    for s in sessions.values():
        s.close()


@pytest.fixture
def opened(
    client: Client, shared: dict[str, Session], workspace: Path, tmp_path: Path
) -> Iterator[Callable[..., Session]]:
    """opened(ERA, KINDS, OPTION...): a session with the server "s"; with the era alone, a shared one."""
    sessions: list[Session] = []

    def make(era: str, kinds: int = ALL_KINDS, definition: dict | None = None, **opts: Any) -> Session:
        s = client.session(workspace=workspace, server_requests=kinds, **opts)
        sessions.append(s)
        habits = json.dumps({"modern": era == "modern", "log": str(tmp_path / "lines")})
        s.add_servers({"s": {"command": "/usr/bin/python3", "args": [str(SERVER), habits], **(definition or {})}})
        return s

    def get(era: str, *args: Any, **opts: Any) -> Session:
        if args or opts:
            return make(era, *args, **opts)
        if era not in shared:
            shared[era] = make(era)
            sessions.remove(shared[era])
        return shared[era]

    yield get
    for s in sessions:
        s.close()


def begin(s: Session, code: str) -> int:
    """A cell whose call was accepted; the number of its approval."""
    s.execute(code)
    approval = s.until("approval_request")[-1].approval
    s.accept(approval)
    return approval


def asked(s: Session) -> Event:
    return s.until("server_request")[-1]


def output(s: Session) -> str:
    events = s.until("result")
    assert events[-1].status == "ok", events
    return "".join(e.text for e in events if e.type == "stream")


def wrong(f: Callable[..., None], *args: Any) -> int:
    with pytest.raises(CellgateError) as e:
        f(*args)
    return e.value.code


# ---- answers


def test_a_form_is_asked_and_answered(opened: Any, era: str) -> None:
    s = opened(era, ALL_KINDS)
    approval = begin(s, call(ask=[FORM]))
    e = asked(s)
    assert e.json == {"server": "s", "call": approval, **FORM}
    assert (e.server, e.cell) == ("s", 1) and e.approval > approval
    s.answer_server(e.approval, {"action": "accept", "content": {"colour": "red", "name": "Zo\u00e9"}})
    content = {"colour": "red", "name": "Zo\u00e9", "age": 30, "ok": True, "titled": "a"}
    assert output(s) == f"ok {[{'action': 'accept', 'content': content}]}\n"
    assert wrong(s.answer_server, e.approval, DECLINE) == E_NOTFOUND  # once


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (PAGE, {"action": "accept"}),
        (FORM, DECLINE),
        (FORM, CANCEL),
        (PAGE, CANCEL),
        (SAMPLE, MESSAGE),
        (SAMPLE, {**MESSAGE, "content": [{"type": "text", "text": "\n\u2028"}], "stopReason": "endTurn"}),
    ],
)
def test_other_answers(opened: Any, era: str, request_: dict, answer: dict) -> None:
    s = opened(era)
    begin(s, call(ask=[request_]))
    e = asked(s)
    assert e.json["params"] == request_["params"] and e.json["method"] == request_["method"]
    s.answer_server(e.approval, answer)
    assert output(s) == f"ok {[answer]}\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "required"),
        ({"colour": "green"}, "none of the choices"),
        ({"colour": 1}, "must be a text"),
        ({"colour": "red", "name": "x"}, "at least 2"),
        ({"colour": "red", "name": "\u00e9" * 6}, "at most 5"),
        ({"colour": "red", "age": 0}, "at least 1"),
        ({"colour": "red", "age": 1.5}, "whole number"),
        ({"colour": "red", "age": "1"}, "whole number"),
        ({"colour": "red", "score": 101}, "at most 100"),
        ({"colour": "red", "ok": "yes"}, "true or false"),
        ({"colour": "red", "titled": "b"}, "none of the choices"),
        ({"colour": "red", "many": "x"}, "list"),
        ({"colour": "red", "many": ["z"]}, "none of the choices"),
        ({"colour": "red", "many": ["x", "y", "x"]}, "at most 2"),
        ({"colour": "red", "other": 1}, "no field"),
        ([], "must be an object"),
    ],
)
def test_content_that_does_not_fit_the_form(opened: Any, content: Any, why: str) -> None:
    """It is refused with the reason, and the question still waits."""
    s = opened("legacy")
    begin(s, call(ask=[FORM]))
    e = asked(s)
    with pytest.raises(CellgateError, match=why) as error:
        s.answer_server(e.approval, {"action": "accept", "content": content})
    assert error.value.code == E_INVAL
    s.answer_server(e.approval, {"action": "accept", "content": {"colour": "blue", "many": ["y"], "age": 2.0}})
    assert "'colour': 'blue'" in output(s)


@pytest.mark.parametrize(
    ("request_", "answer", "code"),
    [
        (FORM, "", E_PARSE),
        (FORM, "[]", E_PARSE),
        (FORM, '{"action":"accept"', E_PARSE),
        (FORM, {}, E_INVAL),
        (FORM, {"action": "maybe"}, E_INVAL),
        (FORM, {"action": "decline", "content": {}}, E_INVAL),
        (PAGE, {"action": "accept", "content": {}}, E_INVAL),
        (SAMPLE, DECLINE, E_INVAL),
        (SAMPLE, {**MESSAGE, "content": "text"}, E_INVAL),
        (SAMPLE, {**MESSAGE, "content": {"type": "text", "text": "x" * (1 << 20)}}, E_LIMIT),
    ],
)
def test_what_is_no_answer(opened: Any, request_: dict, answer: Any, code: int) -> None:
    s = opened("legacy")
    begin(s, call(ask=[request_]))
    e = asked(s)
    assert wrong(s.answer_server, e.approval, answer) == code
    s.decline_server(e.approval)
    assert "decline" in output(s)


def fields(properties: dict[str, Any]) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": {"properties": properties}}}


def many(n: int, items: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": {"enum": ["a"] * n + ["b"]}, "default": ["b"] * items}


@pytest.mark.parametrize(
    ("properties", "content", "why"),
    [
        ({"f": many(30000, 30000)}, {}, "over 1000 choices"),
        ({"f": many(1000)}, {}, "over 1000 choices"),
        ({"f": {"type": "string", "oneOf": [{"const": "a"}] * 1001}}, {}, "over 1000 choices"),
        ({str(i): {"type": "string"} for i in range(201)}, {}, "over 200 fields"),
        ({"f": many(999)}, {"f": ["b"] * 1001}, "over 1000 items"),
        ({"f": many(999, 1000)}, {}, None),
        ({"f": many(999, 1001)}, {}, None),
    ],
)
def test_large_forms(opened: Any, properties: dict, content: dict, why: str | None) -> None:
    """Checks of answers take bounded time; defaults over the limits are left out."""
    s = opened("legacy")
    begin(s, call(ask=[fields(properties)]))
    e = asked(s)
    start = time.process_time()
    if why:
        with pytest.raises(CellgateError, match=why) as error:
            s.answer_server(e.approval, {"action": "accept", "content": content})
        assert error.value.code == E_INVAL and time.process_time() - start < 5
        s.answer_server(e.approval, DECLINE)
        assert output(s) == f"ok {[DECLINE]}\n"
    else:
        s.answer_server(e.approval, {"action": "accept", "content": content})
        left = {} if len(properties["f"]["default"]) > 1000 else {"f": ["b"] * 1000}
        assert output(s) == f"ok {[{'action': 'accept', 'content': left}]}\n"


def resident_mb() -> int:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0]) // 1024


def test_waiting_questions_take_the_memory_of_their_text(opened: Any) -> None:
    s = opened("legacy", ALL_KINDS)
    form = {"method": "elicitation/create", "params": {"message": "m", "x": ["INSERT"]}}
    before = resident_mb()
    begin(s, call(ask=[form] * 8, wide=340_000))
    for _ in range(8):
        asked(s)
    assert resident_mb() - before < 300


def test_numbers_of_calls_are_no_questions(opened: Any, era: str) -> None:
    s = opened(era)
    s.execute(call(ask=[FORM]))
    approval = s.until("approval_request")[-1].approval
    assert wrong(s.answer_server, approval, DECLINE) == wrong(s.decline_server, approval) == E_NOTFOUND
    s.accept(approval)
    e = asked(s)
    assert (
        wrong(s.accept, e.approval) == wrong(s.reject, e.approval) == wrong(s.answer_server, 999, DECLINE) == E_NOTFOUND
    )
    s.decline_server(e.approval)
    assert output(s) == f"ok {[DECLINE]}\n"


def test_two_questions_at_once(opened: Any, era: str) -> None:
    """They may be answered in any order; roots need nobody."""
    s = opened(era, definition={"roots": True})
    begin(s, call(ask=[FORM, ROOTS, PAGE]))
    first, second = asked(s), asked(s)
    assert (first.json["params"], second.json["params"]) == (FORM["params"], PAGE["params"])
    s.answer_server(second.approval, {"action": "accept"})
    s.answer_server(first.approval, {"action": "accept", "content": {"colour": "red"}})
    text = output(s)
    assert text.startswith("ok [{'action': 'accept', 'content': {'colour': 'red'") and "file:///" in text


# ---- what is not asked


def test_what_the_host_does_not_handle_is_declined(opened: Any, era: str, tmp_path: Path) -> None:
    s = opened(era, 0)
    begin(s, call(ask=[FORM]))
    text = output(s)
    assert ("-32601" if era == "legacy" else "decline") in text
    offered = (tmp_path / "lines").read_text()
    assert '"elicitation"' not in offered and '"sampling"' not in offered
    begin(s, call(ask=[SAMPLE]))
    assert "does not offer" in output(s)
    s = opened(era, ELICITATION)
    begin(s, call(ask=[SAMPLE]))
    assert "does not offer" in output(s)
    offered = (tmp_path / "lines").read_text()[len(offered) :]
    assert '"elicitation":{"form":{}}' in offered and '"sampling"' not in offered


@pytest.mark.parametrize(
    ("kinds", "offered", "questions"),
    [
        (ELICITATION, '{"form":{}}', [PAGE["params"]]),
        (
            URL,
            '{"url":{}}',
            [FORM["params"], *({**PAGE["params"], "url": u} for u in ("javascript:alert(1)", "file:///etc/passwd", 1))],
        ),
        (ELICITATION | URL, '{"form":{},"url":{}}', [{**PAGE["params"], "mode": "other"}, {**FORM["params"], "mode": 1}]),
    ],
)
def test_modes_of_elicitation(
    opened: Any, era: str, tmp_path: Path, kinds: int, offered: str, questions: list[dict]
) -> None:
    """Hosts get what they have declared, and pages of http and https only."""
    s = opened(era, kinds)
    for params in questions:
        begin(s, call(ask=[{"method": "elicitation/create", "params": params}]))
        events = s.until("result")
        assert events[-1].status == "ok" and not [e for e in events if e.type == "server_request"], params
    assert f'"elicitation":{offered}' in (tmp_path / "lines").read_text()


def test_declined_sampling(opened: Any, era: str) -> None:
    s = opened(era)
    begin(s, call(ask=[SAMPLE]))
    s.decline_server(asked(s).approval)
    assert "declined" in output(s)


def test_roots_are_the_workspace(opened: Any, era: str, workspace: Path, tmp_path: Path) -> None:
    s = opened(era, 0, {"roots": True})
    begin(s, call(ask=[ROOTS]))
    assert '"roots":{}' in (tmp_path / "lines").read_text()
    assert workspace.name == "work space"
    assert output(s) == f"ok {[{'roots': [{'uri': 'file://' + str(workspace).replace(' ', '%20')}]}]}\n"


def test_servers_learn_no_roots_by_default(opened: Any, era: str, workspace: Path, tmp_path: Path) -> None:
    s = opened(era, 0)
    begin(s, call(ask=[ROOTS]))
    assert ("-32601" if era == "legacy" else "{'roots': []}") in output(s)
    said = (tmp_path / "lines").read_text()
    assert '"roots":{}' not in said and "file:" not in said and str(workspace) not in said


def test_nobody_is_asked_without_a_call(client: Client, workspace: Path) -> None:
    """A server may not ask before it is used."""
    with client.session(workspace=workspace, server_requests=3) as s:
        habits = json.dumps({"ask_early": FORM})
        s.add_servers({"s": {"command": "/usr/bin/python3", "args": [str(SERVER), habits]}})
        begin(s, call("hello"))
        events = s.until("result")
        assert not [e for e in events if e.type == "server_request"]


@pytest.mark.parametrize("n", [8, 40])
def test_many_questions_at_once(opened: Any, era: str, n: int) -> None:
    """Eight of a server wait; the rest is declined at once."""
    s = opened(era)
    begin(s, call(ask=[FORM] * n))
    questions = [asked(s) for _ in range(8)]
    late = s.next(500)
    assert late is None, late
    for e in questions:
        s.answer_server(e.approval, DECLINE)
    assert output(s).startswith("ok ")


def test_more_than_a_round_may_ask(opened: Any) -> None:
    s = opened("modern")
    begin(s, call(ask=[ROOTS] * 65))
    assert "more than 64 things at once" in output(s)


@pytest.mark.parametrize("size", [1 << 20, 3 << 20])
def test_questions_over_the_limit(opened: Any, era: str, size: int) -> None:
    s = opened(era)
    big = {"method": "elicitation/create", "params": {"message": "x" * size, "requestedSchema": SCHEMA}}
    begin(s, call(ask=[big]))
    events = s.until("result")
    assert not [e for e in events if e.type == "server_request"]


def test_a_deep_question_is_not_asked(opened: Any, era: str) -> None:
    s = opened(era)
    deep: Any = 1
    for _ in range(240):
        deep = [deep]
    begin(s, call(ask=[{"method": "elicitation/create", "params": {"message": "m", "x": deep}}]))
    e = s.each("result", "stream")
    assert e[0].status == "ok"


# ---- ends


def closed(s: Session, e: Event) -> str:
    c = s.until("approval_closed")[-1]
    assert c.approval == e.approval
    assert wrong(s.answer_server, e.approval, DECLINE) == E_NOTFOUND
    return c.text


def test_the_server_dies(opened: Any) -> None:
    s = opened("legacy", ALL_KINDS)
    begin(s, call(ask=[FORM], die=True))
    seen: list[Event] = []
    while not seen or seen[-1].type != "result":
        seen.append(s.next())  # type: ignore[arg-type]
    asked_ = [e for e in seen if e.type == "server_request"]
    assert [e.approval for e in seen if e.type == "approval_closed"] == [e.approval for e in asked_]


def test_the_call_is_cancelled(opened: Any, era: str) -> None:
    s = opened(era)
    begin(s, call(ask=[FORM, PAGE]))
    first, second = asked(s), asked(s)
    s.cancel()
    seen: list[Event] = []  # the end of a question may follow the result of its cell
    while len([e for e in seen if e.type in ("approval_closed", "result")]) < 3:
        seen.append(s.next())  # type: ignore[arg-type]
    assert sorted(e.approval for e in seen if e.type == "approval_closed") == [first.approval, second.approval]
    assert [e.status for e in seen if e.type == "result"] == ["cancelled"]
    begin(s, call("hello"))
    assert output(s) == "ok hello\n"


def test_the_server_takes_it_back(opened: Any) -> None:
    s = opened("legacy")
    begin(s, call(ask=[FORM, PAGE], take_back=True))
    first, second = asked(s), asked(s)
    assert "taken its question back" in closed(s, second)
    s.decline_server(first.approval)
    s.cancel()
    s.until("result")


def test_the_call_ends_before_the_answer(opened: Any) -> None:
    s = opened("legacy")
    begin(s, call(ask=[FORM], early="done"))
    e = asked(s)
    assert "ended" in closed(s, e)
    assert output(s) == "ok done\n"


def test_nobody_answers(opened: Any, era: str) -> None:
    """By the session's limit for decisions, or by the definition's for calls. The call's own time stands still."""
    s = opened(era, approval_timeout_ms=1500)
    begin(s, call(ask=[FORM], timeout=1000))
    assert "nobody answered in time" in closed(s, asked(s))
    assert output(s) == f"ok {[CANCEL]}\n"
    s = opened(era, definition={"timeout": 1.5})
    begin(s, call(ask=[FORM], timeout=1000))
    assert "nobody answered in time" in closed(s, asked(s))
    assert output(s) == f"ok {[CANCEL]}\n"


def test_a_slow_person_costs_the_call_no_time(opened: Any, era: str) -> None:
    s = opened(era)
    s.execute(call(ask=[FORM], timeout=1000), timeout_ms=1500)
    s.accept(s.until("approval_request")[-1].approval)
    e = asked(s)
    time.sleep(2.5)
    s.answer_server(e.approval, DECLINE)
    assert output(s) == f"ok {[DECLINE]}\n"


def test_kernels_and_sessions_that_end(opened: Any, era: str) -> None:
    s = opened(era, ALL_KINDS)
    for how in ("reset", "die", "close"):
        dies = "import os, threading; threading.Timer(1, os._exit, [1]).start()\n" if how == "die" else ""
        begin(s, dies + call(ask=[FORM]))
        e = asked(s)
        if how == "close":
            s.close()
            return
        if how == "reset":
            s.reset()
        closed(s, e)
        if how == "die":
            s.until("kernel_died")
        else:
            s.until("result")
        begin(s, call("hello"))
        assert output(s) == "ok hello\n"


def test_the_tool_server_ends(opened: Any) -> None:
    s = opened("legacy", ALL_KINDS)
    begin(s, call(ask=[FORM]))
    e = asked(s)
    pids = [p for p in descendants(os.getpid()) if b"cellgate-toolserver" in b"".join(words(p)[:1])]
    assert pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the guard ends it as well
            os.kill(pid, 9)
    closed(s, e)
