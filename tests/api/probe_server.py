"""An MCP server over stdio that tries what its sandbox may refuse, and reports it as careless servers do."""

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

NAMES = ("read", "write", "fetch", "spawn", "folder", "quiet", "protocol", "die")
CLOSED = [(os.POSIX_SPAWN_CLOSE, fd) for fd in range(3)]
SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}}


def attempt(name: str, what: str) -> str:
    if name in ("read", "protocol"):
        return Path(what).read_text()
    if name in ("write", "die"):
        Path(what).write_text("written")
    if name == "fetch":
        with urllib.request.urlopen(what, timeout=20) as answer:
            return str(answer.status)
    if name == "spawn":
        return str(os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, file_actions=CLOSED, setsid=True))
    if name == "folder":
        return os.getcwd()
    return "done"


def result_of(params: dict[str, Any]) -> dict[str, Any]:
    name, what = params["name"], params.get("arguments", {}).get("what", "")
    try:
        text, error = attempt("read" if name == "quiet" else name, what), False
    except Exception as e:
        if name == "die":
            print(f"usage error: {sys.argv[1:]}", file=sys.stderr, flush=True)
            os._exit(3)
        if name == "protocol":
            return {"error": {"code": -32000, "message": "a connection issue"}}
        text, error = ("a connection issue", name != "quiet") if not os.environ.get("HONEST") else (repr(e), True)
    return {"result": {"content": [{"type": "text", "text": text}], "isError": error}}


for name in ("no_proxy", "NO_PROXY"):  # this machine's addresses, too, go through the proxy
    os.environ.pop(name, None)
if os.environ.get("REFUSE"):
    print(f"usage error: {sys.argv[1:]} {os.environ['REFUSE']}", file=sys.stderr)
    sys.exit(2)
for line in sys.stdin:
    msg = json.loads(line)
    if "id" not in msg:
        continue
    method, params = msg["method"], msg.get("params", {})
    if method == "initialize":
        info = {"name": "probe", "version": "1"}
        answer: dict[str, Any] = {
            "result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        }
    elif method == "tools/list":
        answer = {"result": {"tools": [{"name": n, "description": n, "inputSchema": SCHEMA} for n in NAMES]}}
    elif method == "tools/call":
        answer = result_of(params)
    else:
        answer = {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": msg["id"], **answer}), flush=True)
