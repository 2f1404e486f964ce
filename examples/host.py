"""A host in Python, standard library only, through `cellgate run --json` (docs/cli-json.md).

    host.py MCP.json CODE

accepts the calls of tools whose name starts with "read_" or "list_", refuses all others, and prints what the cell
prints. The same works in any language that can start a program and read lines.
"""

import json
import os
import subprocess
import sys


def decide(event: dict) -> dict:
    """The host's policy: exactly this call, once."""
    if event["tool"].startswith(("read_", "list_")):
        return {"approval": event["approval"], "accept": True}
    return {"approval": event["approval"], "accept": False, "reason": "this host only lets you read"}


def main(mcp: str, code: str) -> int:
    command = [os.environ.get("CELLGATE", "cellgate"), "run", "--json", "--mcp", mcp, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cellgate:
        for line in cellgate.stdout:
            event = json.loads(line)
            match event["type"]:
                case "stream":
                    print(event["text"], end="")
                case "execute_result":
                    print(event["content"]["data"].get("text/plain", ""))
                case "error":
                    print(f"the cell raised {event['content']['ename']}: {event['content']['evalue']}")
                case "approval_request":
                    decision = decide(event)
                    verdict = "accepted" if decision["accept"] else "refused"
                    print(f"[host] {event['server']}.{event['tool']}: {verdict}")
                    cellgate.stdin.write(json.dumps(decision).encode() + b"\n")
                    cellgate.stdin.flush()
                case "result":
                    print(f"[host] cell {event['cell']}: {event['status']}")
    return cellgate.returncode


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
