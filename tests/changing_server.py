"""An MCP server over stdio whose tools are those of the file argv[1] at the time of each list.

Each line read is appended to argv[1] + ".log". The tool `announce` sends list_changed, `exit` ends the process, and
every other tool answers "ran NAME". Standard library only.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    with open(sys.argv[1] + ".log", "a") as log:
        log.write(line)
    message = json.loads(line)
    method, ident = message["method"], message.get("id")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        result: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {"listChanged": True}}}
        send({"id": ident, "result": {**result, "serverInfo": {"name": "changing", "version": "1"}}})
    elif method == "tools/list":
        # As the file has it: with members twice, and in their order.
        tools = Path(sys.argv[1]).read_text().replace("\n", " ")
        sys.stdout.write(f'{{"jsonrpc":"2.0","id":{ident},"result":{{"tools":{tools}}}}}\n')
        sys.stdout.flush()
    elif method == "tools/call":
        name = message["params"]["name"]
        if name == "exit":
            os._exit(0)
        if name == "announce":
            send({"method": "notifications/tools/list_changed"})
        send({"id": ident, "result": {"content": [{"type": "text", "text": f"ran {name}"}]}})
    elif ident is not None:
        send({"id": ident, "result": {}})
