"""A scripted MCP server over stdio, standard library only: server.py TOOLS.json JOURNAL

TOOLS.json is a list of tool names. Every call is added to JOURNAL as one line of JSON, so that a test can check which
calls ran; it is answered with the text "NAME done". Resources and prompts are what is asked for. The first argument "broken" makes the server complain and exit.
"""

import json
import sys

if sys.argv[1] == "broken":
    sys.stderr.write("cannot start: no such database\n")
    sys.exit(3)
tools, journal = sys.argv[1:]
with open(tools) as f:
    names = json.load(f)


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        info = {"name": "scripted", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        return {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]}
    if method == "tools/call":
        with open(journal, "a") as out:
            out.write(json.dumps({"tool": params["name"], "arguments": params.get("arguments")}) + "\n")
        return {"content": [{"type": "text", "text": f"{params['name']} done"}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "greet"}]}
    if method in ("resources/read", "prompts/get"):
        with open(journal, "a") as out:
            params.pop("_meta", None)
            out.write(json.dumps({"tool": method, "arguments": params}) + "\n")
        if method == "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "contents"}]}
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()
