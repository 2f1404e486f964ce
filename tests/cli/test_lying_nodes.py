"""`cellgate run --connect` with nodes that lie: one message of each outcome. All of them: relay/test_nodes.py, with the
package, and fuzz/corpus/node (says-*), with a sanitizer."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from relay.node_messages import MESSAGES, MESSAGES_ABOUT_SERVERS, Message

NODE = Path(__file__).parents[1] / "relay/node.py"
SERVER = Path(__file__).parents[1] / "api/echo_server.py"
FUNCTION = {"name": "act", "inputSchema": {"type": "object"}}
CASES = {
    "ends-the-connection": MESSAGES["asks-about-a-tool"],
    "ends-it-by-its-number": MESSAGES_ABOUT_SERVERS["an-earlier-number"],
    "takes-the-session": MESSAGES_ABOUT_SERVERS["the-sessions-end"],
    "asks": MESSAGES_ABOUT_SERVERS["a-call-that-no-cell-made"],
    "nests-too-deep": MESSAGES_ABOUT_SERVERS["deep-arguments"],
    "changes-nothing": MESSAGES_ABOUT_SERVERS["a-result"],
}


@pytest.mark.parametrize("name", CASES)
def test_messages_of_a_node_that_lies(prefix: Path, tmp_path: Path, name: str) -> None:
    """The connection ends, with the reason, or the message changes nothing; no question is answered with yes."""
    m: Message = CASES[name]
    relay = [sys.executable, "-B", str(NODE), "inject", *m.words(), str(prefix / "bin/cellgate"), "relay"]
    server = {"command": "/usr/bin/python3", "args": [str(SERVER)], "env": {"MARK": str(tmp_path / "mark")}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"e": server}}))
    lines = [
        {"add_functions": {"name": "host", "tools": [FUNCTION], "ask": True}},
        {"execute": {"code": "print('inject now')"}},
        {"execute": {"code": "import time\ntime.sleep(0.2)\nprint('after', 6 * 7)"}},
    ]
    with subprocess.Popen(
        [prefix / "bin/cellgate", "run", "--json", "--connect", shlex.join(relay), "--mcp", "mcp.json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ},
    ) as p:
        assert p.stdin and p.stdout
        late = threading.Timer(120, p.kill)
        late.start()
        p.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        p.stdin.flush()
        # Until the input ends nobody answers: the questions of a slow node add up too.
        said = []
        for line in p.stdout:
            said.append(line)
            if line.startswith('{"type":"result","cell":2,'):
                p.stdin.close()
    late.cancel()
    out = "".join(said)
    assert p.returncode >= 0, out  # no signal ended it
    events = [json.loads(line) for line in said if line.startswith("{")]
    assert not (tmp_path / "mark").exists()
    if m.why:
        assert m.why in out
    elif name != "takes-the-session":
        assert any("after 42" in event.get("text", "") for event in events), out
