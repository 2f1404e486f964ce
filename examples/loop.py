"""The host of an agent's loop in Python, standard library only, through `cellgate run --json` (docs/cli-json.md).

    loop.py MCP.json CODE...

runs each CODE as a cell of one session and prints the text for an agent's model: output, value or
error. The model would send the next cell then; an error does not end the session. Calls of tools whose name
starts with "read_" or "list_" are accepted, all others are refused. A cell that runs for more than ten seconds
is interrupted.
"""

import json
import os
import subprocess
import sys


class Cellgate:
    """One session. Each run() is a cell; state stays from cell to cell."""

    def __init__(self, mcp: str) -> None:
        command = [os.environ.get("CELLGATE", "cellgate"), "run", "--json", "--mcp", mcp]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.cells = self.lines = 0

    def send(self, line: dict) -> None:
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        self.lines += 1

    def run(self, code: str) -> str:
        """Runs a cell. Returns its output. ValueError: cellgate takes no such code, and has not run it."""
        self.cells += 1
        self.send({"execute": {"code": code, "id": self.cells, "timeout": 10}})
        sent = self.lines
        output = []
        for line in self.process.stdout:
            event = json.loads(line)
            match event["type"]:
                case "stream":
                    output.append(event["text"])
                case "execute_result":
                    output.append(event["content"]["data"].get("text/plain", "") + "\n")
                case "error":
                    output.append(f"{event['content']['ename']}: {event['content']['evalue']}\n")
                case "approval_request":
                    accept = event["tool"].startswith(("read_", "list_"))
                    self.send({"approval": event["approval"], "accept": accept})
                case "input_error" if event["line"] == sent:
                    raise ValueError(event["text"])
                case "failed":
                    raise RuntimeError(event["text"])
                case "result" if event.get("id") == self.cells:
                    return "".join(output) + f"[{event['status']}]"
        raise RuntimeError("cellgate has ended")

    def reset(self) -> None:
        """A fresh kernel: nothing of the earlier cells is left."""
        self.send({"reset": {}})

    def close(self) -> int:
        self.process.stdin.close()
        self.process.stdout.read()
        return self.process.wait()


def main(mcp: str, cells: list[str]) -> int:
    cellgate = Cellgate(mcp)
    for code in cells:
        print(f">>> {code}\n{cellgate.run(code)}")
    return cellgate.close()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
