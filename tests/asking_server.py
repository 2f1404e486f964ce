"""An MCP server over stdio that reports progress and asks its client for things, as its tools' arguments say.

argv[1] is a JSON object of habits: "modern" (revision 2026-07-28), "log" (a file that gets each line that was read).
Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

HABITS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
MODERN = "2026-07-28"
waiting: dict[str, dict[str, Any]] = {}  # our requests to the client, by id: the call, and what is still open
asked = 0
hanging: list[tuple[object, object]] = []  # calls that wait, with their tokens
descriptions: dict[str, str] = {}  # of tools, where it is not the name


def send(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def notify(method: str, params: object) -> None:
    send({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})


def answer(ident: object, result: dict[str, Any]) -> None:
    send({"jsonrpc": "2.0", "id": ident, "result": result})


def finish(ident: object, content: object) -> None:
    answer(ident, {"content": [{"type": "text", "text": json.dumps(content)}], "isError": False})


def report(ident: object, meta: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Progress as the argument "values" says (objects of params), perhaps with another token, and many times."""
    token = arguments.get("token", meta.get("progressToken"))
    for _ in range(arguments.get("times", 1)):
        for params in arguments["values"]:
            notify("progress", {"progressToken": token, **params})
            time.sleep(arguments.get("pause", 0))
    for number in arguments.get("raw", []):
        line = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s}}'
        print(line % (token, number), flush=True)
    if arguments.get("hang"):
        hanging.append((ident, token))
        return
    for value in arguments.get("of_hanging", []):
        for _, of in hanging:
            notify("progress", {"progressToken": of, **value})
        time.sleep(0.2)
    while hanging and "of_hanging" in arguments:
        finish(hanging.pop()[0], None)
    finish(ident, meta.get("progressToken"))
    if "after" in arguments:
        notify("progress", {"progressToken": token, **arguments["after"]})


def ask_one(call: dict[str, Any], request: dict[str, Any], insert: str = "") -> None:
    global asked
    asked += 1
    waiting[f"q{asked}"] = {"call": call, "place": len(call["answers"])}
    call["answers"][len(call["answers"])] = None
    line = json.dumps({"jsonrpc": "2.0", "id": f"q{asked}", **request})
    print(line.replace('"INSERT"', insert), flush=True)


def ask(ident: object, arguments: dict[str, Any]) -> None:
    """Sends the requests of the argument "ask", and of "then" one after the other. The result has all answers."""
    call = {"id": ident, "answers": {}, "then": arguments.get("then", [])}
    for request in arguments["ask"]:
        ask_one(call, request, arguments.get("insert") or ",".join(["{}"] * arguments.get("wide", 0)))
        if arguments.get("take_back") == "all":
            notify("cancelled", {"requestId": f"q{asked}"})
    if arguments.get("take_back") is True:
        notify("cancelled", {"requestId": f"q{asked}", "reason": "not wanted"})
    if arguments.get("die"):
        os._exit(3)
    if "early" in arguments:
        finish(ident, arguments["early"])


def round_of(ident: object, params: dict[str, Any]) -> None:
    """The same in revision 2026-07-28: asks for all at once, and is called again with the answers."""
    requests = params["arguments"]["ask"]
    if "inputResponses" in params:
        assert params["requestState"] == "state"
        answers = [params["inputResponses"][f"k{i}"] for i in range(len(requests))]
        finish(ident, [len(json.dumps(a)) for a in answers] if params["arguments"].get("sizes") else answers)
    else:
        keys = {f"k{i}": r for i, r in enumerate(requests)}
        if "describe" in params["arguments"]:
            descriptions["ask"] = params["arguments"]["describe"]
            notify("tools/list_changed", {})
        answer(ident, {"resultType": "input_required", "inputRequests": keys, "requestState": "state"})


def on_answer(message: dict[str, Any]) -> None:
    place = waiting.pop(message["id"], None)
    if place is None:
        return
    call = place["call"]
    call["answers"][place["place"]] = message.get("result", {"error": message.get("error")})
    if None in call["answers"].values():
        return
    if call["then"]:
        ask_one(call, call["then"].pop(0))
    else:
        finish(call["id"], list(call["answers"].values()))


def on_request(message: dict[str, Any]) -> None:
    ident, method, params = message["id"], message["method"], message.get("params", {})
    modern = HABITS.get("modern")
    if method == "server/discover" and modern:
        answer(ident, {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}}})
    elif method == "initialize" and not modern:
        if HABITS.get("ask_early"):
            send({"jsonrpc": "2.0", "id": "early", **HABITS["ask_early"]})
        info = {"name": "asking", "version": "1"}
        answer(ident, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        schema = {"type": "object"}
        tools = [
            {"name": n, "description": descriptions.get(n, n), "inputSchema": schema}
            for n in ("report", "ask", "hello")
        ]
        answer(ident, {"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
    elif method != "tools/call":
        send({"jsonrpc": "2.0", "id": ident, "error": {"code": -32601, "message": "Method not found"}})
    elif params["name"] == "report":
        report(ident, params.get("_meta", {}), params["arguments"])
    elif params["name"] == "hello":
        finish(ident, "hello")
    elif modern:
        round_of(ident, params)
    else:
        ask(ident, params["arguments"])


while line := sys.stdin.readline():
    if HABITS.get("log"):
        with open(HABITS["log"], "a") as f:
            f.write(line)
    received = json.loads(line)
    if "id" in received and "method" in received:
        on_request(received)
    elif "id" in received:
        on_answer(received)
