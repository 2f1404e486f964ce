"""`cellgate run --connect` with nodes that lie: what libcellgate makes of their messages, also with a sanitizer."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from relay.node_messages import MESSAGES, MESSAGES_ABOUT_SERVERS, Message

NODE = Path(__file__).parents[1] / "relay/node.py"
SERVER = Path(__file__).parents[1] / "api/echo_server.py"
FUNCTION = {"name": "act", "inputSchema": {"type": "object"}}
CASES = {**MESSAGES, **{f"server-{name}": m for name, m in MESSAGES_ABOUT_SERVERS.items()}}

ENDS = {"opens-a-session", "server-a-failure", "server-the-sessions-end"}
"""These take the session, with another reason."""


@pytest.mark.parametrize("name", CASES)
def test_messages_of_a_node_that_lies(prefix: Path, tmp_path: Path, name: str) -> None:
    """The connection ends, with the reason, or the message changes nothing; no question is answered with yes."""
    m: Message = CASES[name]
    relay = [sys.executable, "-B", str(NODE), "inject", *m.words(), str(prefix / "bin/cellgate"), "relay"]
    server = {"command": sys.executable, "args": [str(SERVER)], "env": {"MARK": str(tmp_path / "mark")}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"e": server}}))
    lines = [
        {"add_functions": {"name": "host", "tools": [FUNCTION], "ask": True}},
        {"execute": {"code": "print('inject now')"}},
        {"execute": {"code": "import time\ntime.sleep(0.2)\nprint('after', 6 * 7)"}},
    ]
    p = subprocess.run(
        [prefix / "bin/cellgate", "run", "--json", "--connect", shlex.join(relay), "--mcp", "mcp.json"],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ},
        timeout=120,
    )
    assert p.returncode >= 0, p.stderr  # no signal ended it
    events = [json.loads(line) for line in p.stdout.splitlines()]
    assert not (tmp_path / "mark").exists()
    if m.why:
        assert m.why in p.stdout + p.stderr
    elif name not in ENDS:
        assert any("after 42" in event.get("text", "") for event in events), p.stdout + p.stderr
