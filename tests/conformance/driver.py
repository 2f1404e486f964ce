"""The client under test for the conformance suite of MCP: a host on libcellgate.

The suite starts it with the server's URL and, in the environment, the scenario and its context. It opens a session, adds
the server, calls its tools from a cell, and where cellgate says so runs `cellgate mcp login`, with a browser that follows
each redirect.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cellgate_api import CellgateError, Client, Event, Session

SERVER = f"srv{os.getpid()}"  # tools are pinned by it
ELICITATION = 1  # forms are accepted with their defaults
CLIENT_ID_DOCUMENT = "https://conformance-test.local/client-metadata.json"
LOGINS = 3  # for one request: what a person would put up with
# The sets run these as well, and do not score them: extensions that cellgate does not have.
UNSUPPORTED = {
    "auth/client-credentials-jwt",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
    "json-schema-2020-12-preservation",
}
# Arguments of tools whose scenarios want some; others get none.
ARGUMENTS: dict[str, dict[str, Any]] = {"add_numbers": {"a": 2, "b": 3}, "valid_tool": {"region": "eu"}}
BROWSER = '#!/bin/sh\nexec curl --silent --location --output /dev/null -- "$1"\n'

CALL = """
from cellgate_tools import ToolRunnerError, options
from mcptools.{server} import {module}
try:
    with options(timeout=20):
        print({module}.call({arguments!r}))
except ToolRunnerError as e:
    print(type(e).__name__, e)
"""


def read_issuer(url: str) -> str:
    """What the scenario does not say, and an operator who registered this client would know."""
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
        try:
            with urllib.request.urlopen(urljoin(url, path), timeout=10) as r:
                return str(json.load(r)["authorization_servers"][0])
        except urllib.error.HTTPError:
            continue
    return urljoin(url, "/").rstrip("/")


def fill(question: Event) -> dict[str, Any]:
    """Accepts a form with its defaults; what is required and has none gets some value."""
    values = {"string": "x", "boolean": True, "number": 1, "integer": 1}
    schema = question.json["params"].get("requestedSchema", {})
    fields = {n: schema["properties"][n] for n in schema.get("required", [])}
    return {"action": "accept", "content": {n: values[f["type"]] for n, f in fields.items() if "default" not in f}}


def definition(url: str, scenario: str, context: dict[str, Any]) -> dict[str, Any]:
    oauth: dict[str, Any] = {"clientMetadataUrl": CLIENT_ID_DOCUMENT}
    if "client_id" in context and "client_secret" in context:
        oauth = {"clientId": context["client_id"], "clientSecret": context["client_secret"]}
        oauth["issuer"] = context.get("issuer") or read_issuer(url)
    if scenario.startswith("auth/client-credentials"):
        oauth["grantType"] = "client_credentials"
    return {"url": url, "oauth": oauth}


class Driver:
    def __init__(self, folder: Path, supervisor: Path, url: str, scenario: str, context: dict[str, Any]) -> None:
        self.supervisor = supervisor
        self.scenario, self.context, self.logins = scenario, context, 0
        self.program = Path(os.environ["CG_PREFIX"]) / "bin/cellgate"
        self.servers = {SERVER: definition(url, scenario, context)}
        self.file = folder / "mcp.json"
        self.file.write_text(json.dumps({"mcpServers": self.servers}))
        browser = folder / "bin/xdg-open"
        browser.parent.mkdir()
        browser.write_text(BROWSER)
        browser.chmod(0o755)
        os.environ |= {"PATH": f"{browser.parent}:{os.environ['PATH']}", "DISPLAY": ":conformance"}
        (folder / "work").mkdir()
        self.work = folder / "work"

    def login(self) -> None:
        """As the message of a failure says. Raises when the login fails, or after too many of them."""
        self.logins += 1
        if self.logins > LOGINS:
            sys.exit("the server wants one login after another")
        words = [self.program, "mcp", "login", SERVER, "--timeout", "10", "--mcp", self.file]
        if subprocess.run(words, timeout=60).returncode != 0:
            sys.exit("the login failed")

    def add(self, s: Session) -> dict[str, Any]:
        while True:
            try:
                return s.add_servers(self.servers, 20000)
            except CellgateError as e:
                print(e, file=sys.stderr)
                if "run: cellgate mcp login" not in str(e):
                    raise
            self.login()

    def call(self, s: Session, module: str, arguments: dict[str, Any]) -> str:
        while True:
            code = CALL.format(server=SERVER, module=module, arguments=arguments)
            out = s.run(code, decide=lambda _: True, answer=fill)
            print(f"{module}: {out.stdout or out}", file=sys.stderr)
            if "run: cellgate mcp login" not in out.stdout:
                return out.stdout
            self.login()

    def run(self) -> None:
        with (
            Client(address=str(self.supervisor), start=1, no_spare=1) as c,
            c.session(workspace=self.work, server_requests=ELICITATION) as s,
        ):
            report = self.add(s)
            print(json.dumps(report), file=sys.stderr)
            modules = {t["tool"]: t["module"] for t in report[SERVER]["tools"]}
            for call in self.context.get("toolCalls") or [
                {"name": t, "arguments": ARGUMENTS.get(t, {})} for t in modules
            ]:
                self.call(s, modules[call["name"]], call["arguments"])


def main() -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if scenario in UNSUPPORTED:
        sys.exit(f"{scenario} is not supported")
    # The suite starts all drivers of a set at once. Four of them run, each with a supervisor and state that the others
    # of its slot have used before it.
    slot = Path(os.environ["CG_CONFORMANCE_SLOTS"]) / str(os.getpid() % 4)
    slot.mkdir(exist_ok=True)
    lock = open(slot / "lock", "w")  # noqa: SIM115
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.environ["XDG_STATE_HOME"] = str(slot / "state")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory(prefix="cellgate-conformance-") as folder:
        Driver(Path(folder), slot / "supervisor", sys.argv[-1], scenario, context).run()


if __name__ == "__main__":
    main()
