"""A small MCP server over stdio: echoes, and leaves a mark so that a test can see which calls really ran."""

import json
import os
import sys

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "echo", "description": "Returns its text.", "inputSchema": TEXT},
    {"name": "leave_mark", "description": "Appends its text to the file MARK.", "inputSchema": TEXT},
]


def call(name: str, text: str) -> dict:
    if name == "leave_mark":
        with open(os.environ["MARK"], "a") as f:
            f.write(text + "\n")
    return {"content": [{"type": "text", "text": f"{name}: {text}"}]}


for line in sys.stdin:
    message = json.loads(line)
    params = message.get("params", {})
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "fake", "version": "1"},
        }
    elif message["method"] == "tools/list":
        result = {"tools": TOOLS}
    elif message["method"] == "tools/call":
        result = call(params["name"], params["arguments"]["text"])
    elif message["method"] == "resources/read":
        result = {"contents": [{"uri": params["uri"], "text": "contents"}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
