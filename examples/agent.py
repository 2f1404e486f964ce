"""An agent over `cellgate run --json`, standard library only.

    agent.py [WORKSPACE]

A scripted "model" writes cells, and gets what they show. The cells call functions of this program
(docs/cli-json.md): `lookup` at once, `send` after the question that every set with "ask" has. A real agent asks its
language model in Model.next(), and a person in approve().
"""

import json
import os
import shlex
import subprocess
import sys

PEOPLE = {"ada": "ada@example.org", "bob": "bob@example.org"}
TEXT = {"type": "string"}
LOOKUP = {
    "name": "lookup",
    "description": "Finds the address of a person.",
    "inputSchema": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
    "outputSchema": TEXT,
}
SEND = {
    "name": "send",
    "description": "Sends a message.",
    "inputSchema": {"type": "object", "properties": {"to": TEXT, "text": TEXT}, "required": ["to", "text"]},
}


class Model:
    """Stands for a language model: gets what the last cell has shown, and gives the next cell, or None."""

    cells = (
        "from mcptools.people import lookup\nto = [lookup.run(name=n) for n in ('ada', 'bob')]\nto",
        "lookup.run(name='eve')",
        "from mcptools.mail import send\nsend.run(to=to[0], text='hello')",
        "send.run(to='everyone@example.org', text='hello')",
    )

    def __init__(self) -> None:
        self.rest = iter(self.cells)

    def next(self, shown: str) -> str | None:
        return next(self.rest, None)


class Agent:
    def __init__(self, workspace: str) -> None:
        program = shlex.split(os.environ.get("CELLGATE", "cellgate"))  # or "ssh host cellgate": docs/cluster.md
        command = [*program, "run", "--json", "--workspace", workspace]
        self.cellgate = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.add("people", [LOOKUP])
        self.add("mail", [SEND], ask=True)

    def write(self, line: dict) -> None:
        self.cellgate.stdin.write(json.dumps(line).encode() + b"\n")
        self.cellgate.stdin.flush()

    def events(self, last: str):
        """The events up to the first of a type; a program that ends before is an error."""
        for line in self.cellgate.stdout:
            event = json.loads(line)
            if event["type"] in ("failed", "input_error", "session_closed"):
                raise RuntimeError(event["text"])
            yield event
            if event["type"] == last:
                return
        raise RuntimeError("cellgate has ended")

    def add(self, name: str, tools: list, ask: bool = False) -> None:
        self.write({"add_functions": {"name": name, "tools": tools, "ask": ask}})
        for _ in self.events("functions_added"):
            pass

    def approve(self, event: dict) -> dict:
        """Stands for a person, who reads event["shown"]."""
        if event["arguments"]["to"] in PEOPLE.values():
            return {"approval": event["approval"], "accept": True}
        return {"approval": event["approval"], "accept": False, "reason": "not a person we know"}

    def call(self, event: dict) -> dict:
        """Carries a function out. Code in the sandbox may send arguments that do not fit its schema."""
        arguments = event["arguments"]
        if event["tool"] == "lookup":
            address = PEOPLE.get(arguments.get("name"))
            return {"value": address} if address else {"error": "there is no such person"}
        print(f"[host] to {arguments['to']}: {arguments['text']}")
        return {"value": None}

    def run(self, code: str) -> str:
        """Runs a cell; what the model gets to read."""
        shown = []
        self.write({"execute": {"code": code}})
        for event in self.events("result"):
            match event["type"]:
                case "stream":
                    shown.append(event["text"])
                case "execute_result":
                    shown.append(event["content"]["data"].get("text/plain", ""))
                case "error":
                    shown.append(f"{event['content']['ename']}: {event['content']['evalue']}")
                case "approval_request":
                    self.write(self.approve(event))
                case "function_call":
                    self.write({"approval": event["approval"], "return": self.call(event)})
        return "\n".join(shown)


def main() -> int:
    agent, model, shown = Agent(sys.argv[1] if len(sys.argv) > 1 else "."), Model(), ""
    while (code := model.next(shown)) is not None:
        shown = agent.run(code)
        print(f">>> {code}\n{shown}")
    agent.cellgate.stdin.close()
    return agent.cellgate.wait()


if __name__ == "__main__":
    sys.exit(main())
