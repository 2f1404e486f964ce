"""Messages of the host wire that a lying node adds."""

import json
from dataclasses import dataclass, field
from typing import Any

SESSION_OPENED, APPROVAL_REQUEST, SERVER_REQUEST, FUNCTION_CALL = 11, 46, 61, 62
APPROVAL_CLOSED, EGRESS_REQUEST = 47, 57
HOST_NUMBER = 1 << 52


@dataclass
class Message:
    kind: int
    body: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    """The connection ends so; "": it goes on."""
    times: int = 1
    raw: str | None = "{}"
    step: int = 1
    """Between the numbers of several."""
    number: int = 900
    """The first one's."""

    def words(self) -> list[str]:
        """For node.py."""
        return [
            str(self.kind),
            json.dumps(self.body),
            str(self.times),
            str(self.step),
            str(self.number),
            "none" if self.raw is None else self.raw,
        ]


def ask(method: str) -> dict[str, Any]:
    return {"server": "host", "tool": "act", "method": method, "cell": 1}


AGAIN = "used the number of a question again"
TOOL = "asked about a tool"
RESULT, COMMAND_RESULT = 49, 72
TO = {"host": "a", "port": 1, "protocol": "tcp", "address": "", "text": "x"}


def files(artifacts: object) -> Message:
    """The end of the cell that runs."""
    return Message(RESULT, {"status": "ok", "artifacts": artifacts}, "the node sent a", raw="", number=2)


CALL = {"server": "host", "tool": "act", "cell": 1}
MESSAGES = {
    "two-calls-of-one-number": Message(FUNCTION_CALL, CALL, AGAIN, times=2, step=0),
    "a-call-of-an-earlier-number": Message(FUNCTION_CALL, CALL, AGAIN, times=2, step=-1),
    "arguments-that-are-none": Message(FUNCTION_CALL, CALL, "arguments that are none", raw='{"a":'),
    "asks-about-a-tool": Message(APPROVAL_REQUEST, ask("tools/call"), TOOL),
    "asks-about-a-resource": Message(APPROVAL_REQUEST, ask("resources/read"), TOOL),
    "asks-for-a-server": Message(SERVER_REQUEST, {"server": "host", "method": "elicitation/create", "cell": 1}, TOOL),
    "calls-too-often": Message(FUNCTION_CALL, CALL, "more than a host accepts", times=400),
    "calls-twice": Message(FUNCTION_CALL, CALL, times=2),
    "opens-a-session": Message(SESSION_OPENED, {"id": "x"}, "", raw=None),
    "unknown": Message(999, why="999"),
    "a-connection-without-protocol": Message(EGRESS_REQUEST, {"host": "a", "port": 1}, "to no host", raw=None),
    "a-connection-to-no-port": Message(EGRESS_REQUEST, {**TO, "port": "1"}, "to no host", raw=None),
    "a-connection-to-a-port-too-high": Message(EGRESS_REQUEST, {**TO, "port": 1 << 16}, "to no host", raw=None),
    "a-connection-to-no-host": Message(EGRESS_REQUEST, {**TO, "host": ["a"]}, "to no host", raw=None),
    "a-connection": Message(EGRESS_REQUEST, TO, raw=None),
    "a-commands-end": Message(COMMAND_RESULT, {"status": "ok", "exit_code": "x"}, "command's end", raw=None),
    "a-commands-end-without-members": Message(COMMAND_RESULT, raw=None),
    "a-denial-without-members": Message(58, raw=None),
    "progress-without-members": Message(60, raw=None),
    "a-result-without-members": Message(RESULT, raw=""),
    "files-that-are-none": files(5),
    "files-without-a-list": files({}),
    "a-file-that-is-none": files({"files": [5]}),
    "a-file-without-size": files({"files": [{"path": "a"}]}),
    "a-file-without-name": files({"files": [{"size": 1}]}),
    "a-file-with-a-name-that-is-none": files({"files": [{"path_hex": "xy", "size": 1}]}),
    "a-file-with-a-sum-that-is-none": files({"files": [{"path": "a", "size": 1, "sha256": 5}]}),
}


RULES = "broke a rule of calls: CALL: "
NONE = "arguments that are none"
MARK = '{"text":"x"}'


def act(**other: Any) -> dict[str, Any]:
    """A call of the MCP server "e", whose tool `danger` leaves a mark."""
    return {"server": "e", "tool": "danger", "method": "tools/call", "cell": 1, "timeout_ms": 0, **other}


def of_the_host(kind: int, body: dict[str, Any], raw: str | None = None) -> Message:
    """The second one has a number as this host's questions have."""
    return Message(kind, body, "number of this host", times=2, step=HOST_NUMBER, raw=raw)


MESSAGES_ABOUT_SERVERS = {
    "a-call-that-no-cell-made": Message(FUNCTION_CALL, act(), raw=MARK),
    "an-unknown-tool": Message(FUNCTION_CALL, act(tool="nope"), raw=MARK),
    "no-server": Message(FUNCTION_CALL, act(server=5), raw=MARK),
    "two-calls-of-one-number": Message(FUNCTION_CALL, act(), AGAIN, times=2, step=0, raw=MARK),
    "an-earlier-number": Message(FUNCTION_CALL, act(), AGAIN, times=2, step=-1, raw=MARK),
    "too-many-calls": Message(FUNCTION_CALL, act(), "more than a host accepts", times=400, raw=MARK),
    "more-bytes-than-the-window": Message(
        FUNCTION_CALL, act(), "connection to the node has ended", times=30, raw='{"text":"BIG"}'
    ),
    "an-unknown-method": Message(FUNCTION_CALL, act(method="tools/evil"), RULES + "unknown method", raw=MARK),
    "no-tool": Message(FUNCTION_CALL, {"server": "e", "cell": 1}, RULES + "without", raw=MARK),
    "a-list-with-a-tool": Message(FUNCTION_CALL, act(method="resources/list"), RULES + "without", raw=MARK),
    "a-long-name": Message(FUNCTION_CALL, act(tool="x" * 3000), RULES + "name over its limit", raw=MARK),
    "negative-time": Message(FUNCTION_CALL, act(timeout_ms=-1), RULES + "negative", raw=MARK),
    "time-that-is-none": Message(FUNCTION_CALL, act(timeout_ms="x"), "broke a rule of calls", raw=MARK),
    "arguments-in-an-array": Message(FUNCTION_CALL, act(), NONE, raw="[1]"),
    "deep-arguments": Message(FUNCTION_CALL, act(), NONE, raw='{"a":' + "[" * 3000 + "]" * 3000 + "}"),
    "two-of-a-name": Message(FUNCTION_CALL, act(), NONE, raw='{"text":"a","text":"b"}'),
    "two-lines": Message(FUNCTION_CALL, act(), NONE, raw='{"text":\n"a"}'),
    "no-arguments": Message(FUNCTION_CALL, act(), NONE, raw=""),
    "a-call-with-a-number-of-the-host": of_the_host(FUNCTION_CALL, act(), MARK),
    "closes-a-question-of-the-host": of_the_host(APPROVAL_CLOSED, {"why": "x"}),
    "asks-about-a-host-in-its-name": of_the_host(
        EGRESS_REQUEST, {"host": "a", "port": 1, "protocol": "tcp", "address": "", "text": "x"}
    ),
    "closes-a-call-that-is-none": Message(APPROVAL_CLOSED, {"why": "x"}, raw=None),
    "asks-about-a-tool": Message(APPROVAL_REQUEST, {**act(), "tool": "danger"}, TOOL, raw=MARK),
    "asks-about-a-prompt": Message(APPROVAL_REQUEST, {**act(), "method": "prompts/get"}, TOOL, raw=MARK),
    "asks-for-a-server": Message(SERVER_REQUEST, {"server": "e", "method": "elicitation/create", "cell": 1}, TOOL),
    "a-report": Message(15, {"e": {"package": "evil", "tools": []}}, raw=None),
    "an-answer": Message(16, raw=None),
    "a-failure": Message(17, {"code": -3, "message": "x"}, raw=None),
    "a-welcome": Message(2, {"version": "x", "pid": 1}, raw=None),
    "a-result": Message(49, {"status": "ok"}, raw=""),
    "the-kernels-end": Message(50, {"text": "x"}, raw=None),
    "the-sessions-end": Message(51, {"text": "x"}, raw=None),
    "progress-of-a-call": Message(60, {"call": HOST_NUMBER + 1, "server": "e", "tool": "danger"}, raw=None),
    "a-denial": Message(58, {"line": "x", "server": "e"}, raw=None),
    "input-that-was-taken": Message(71, {"bytes": 1 << 60}, raw=None),
    "servers-for-the-host": Message(14, {"servers": {"x": {"command": "true"}}}, "SERVERS_ADD", raw=None),
    "a-decision": Message(22, {"accept": True}, "DECISION", raw=None),
    "a-result-of-a-call": Message(28, {"status": "ok"}, "FUNCTION_RETURN"),
    "a-servers-answer": Message(27, {"decline": False}, "SERVER_ANSWER"),
}
