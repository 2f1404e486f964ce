"""A small MCP server over stdio: newline-delimited JSON-RPC, standard library only."""

import json
import os
import sys
import time

TOOLS = [
    {
        "name": "echo",
        "description": "Returns its text.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {
        "name": "danger",
        "description": "Leaves a mark in the file named by MARK.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
    {
        "name": "slow",
        "description": "Waits.",
        "inputSchema": {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]},
    },
    {"name": "die", "description": "Exits in mid-call.", "inputSchema": {"type": "object", "properties": {}}},
    {
        "name": "env",
        "description": "Returns a variable.",
        "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
    {
        "name": "fail",
        "description": "Reports an error.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
]


def call(name: str, args: dict) -> dict:
    if name == "danger":
        with open(os.environ["MARK"], "a") as f:
            f.write(json.dumps(args) + "\n")
    if name == "slow":
        time.sleep(args["seconds"])
    if name == "die":
        os._exit(7)
    text = str(os.environ.get(args["name"])) if name == "env" else args.get("text", name)
    return {"content": [{"type": "text", "text": text}], "isError": name == "fail"}


for line in sys.stdin:
    msg = json.loads(line)
    if "id" not in msg:
        continue
    method, params = msg["method"], msg.get("params", {})
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        result = call(params["name"], params["arguments"])
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": msg["id"], "result": result}), flush=True)
