"""Messages of the host wire that a lying node adds."""

import json
from dataclasses import dataclass, field
from typing import Any

SESSION_OPENED, APPROVAL_REQUEST, SERVER_REQUEST, FUNCTION_CALL = 11, 46, 61, 62


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

    def words(self) -> list[str]:
        """For node.py."""
        return [str(self.kind), json.dumps(self.body), str(self.times), str(self.step), self.raw or "none"]


def ask(method: str) -> dict[str, Any]:
    return {"server": "host", "tool": "act", "method": method, "cell": 1}


AGAIN = "used the number of a question again"
TOOL = "asked about a tool"
CALL = {"server": "host", "tool": "act", "cell": 1}
MESSAGES = {
    "two-calls-of-one-number": Message(FUNCTION_CALL, CALL, AGAIN, times=2, step=0),
    "a-call-of-an-earlier-number": Message(FUNCTION_CALL, CALL, AGAIN, times=2, step=-1),
    "arguments-that-are-none": Message(FUNCTION_CALL, CALL, "no JSON object", raw='{"a":'),
    "asks-about-a-tool": Message(APPROVAL_REQUEST, ask("tools/call"), TOOL),
    "asks-about-a-resource": Message(APPROVAL_REQUEST, ask("resources/read"), TOOL),
    "asks-for-a-server": Message(SERVER_REQUEST, {"server": "host", "method": "elicitation/create", "cell": 1}, TOOL),
    "calls-too-often": Message(FUNCTION_CALL, CALL, "more than a host accepts", times=400),
    "calls-twice": Message(FUNCTION_CALL, CALL, times=2),
    "opens-a-session": Message(SESSION_OPENED, {"id": "x"}, "", raw=None),
    "unknown": Message(999, why="999"),
}
