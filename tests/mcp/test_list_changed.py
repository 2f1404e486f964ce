"""Changes that a server announces: its modules are made anew, without a call, and not too often."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).resolve().parent.parent / "changing_server.py"


def tool(name: str, description: str = "Does it.", **properties: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": {p: {"type": "string"} for p in properties}},
    }


class Announcing:
    def __init__(self, ts: Any, folder: Path) -> None:
        self.ts, self.file, self.k = ts, folder / "tools.json", ts.attach()
        self.package = ts.out / "mcptools/s"
        self.number = 0

    def lists(self, *tools: dict[str, Any]) -> None:
        self.file.write_text(json.dumps([tool("announce"), *tools]))

    def add(self) -> None:
        self.ts.add({"s": {"command": sys.executable, "args": ["-S", "-E", str(SERVER), str(self.file)]}})

    def announce(self) -> None:
        self.number += 1
        assert self.ts.run(self.k, self.number, "s", "announce")[0] == "ok"

    def modules(self) -> set[str]:
        return {p.stem for p in self.package.glob("*.py")} - {"__init__", "announce"}

    def listed(self) -> int:
        return Path(f"{self.file}.log").read_text().count('"tools/list"')


@pytest.fixture
def s(ts, tmp_path):
    return Announcing(ts, tmp_path)


def test_modules_are_made_anew(s):
    s.lists(tool("read"), tool("other"))
    s.add()
    s.lists(tool("read"), tool("write"))
    s.announce()
    assert s.ts.noticed() == "MCP server s has new tools: write\n"
    assert s.ts.noticed() == "MCP server s: its modules were made anew; added: write; removed: other\n"
    assert s.modules() == {"read", "write"}
    # And once more: the interval passes.
    s.lists(tool("read"))
    s.announce()
    assert s.ts.noticed() == "MCP server s: its modules were made anew; removed: write\n"
    assert s.modules() == {"read"}


def test_same_tools_are_not_made_anew(s, waiting):
    s.lists(tool("read", z="", a=""))
    s.add()
    before = s.package.stat().st_ino
    s.lists(tool("read", a="", z=""))
    s.announce()
    waiting(lambda: s.listed() == 2, 10, "the second list")
    s.ts.broker.nothing(0.5)
    assert s.package.stat().st_ino == before


def test_changed_tool_keeps_its_module(s):
    """Until it is accepted; others of the same list are made anew."""
    s.lists(tool("read"))
    s.add()
    s.lists(tool("read", "Evil."), tool("write"))
    s.announce()
    text = s.ts.noticed()
    assert "MCP server s has new tools: write" in text and "+ Evil." in text
    assert s.ts.noticed() == "MCP server s: its modules were made anew; added: write\n"
    assert "Does it." in (s.package / "read.py").read_text() and "Evil" not in (s.package / "read.py").read_text()
    s.k.call(90, "s", "read")
    status, raw = s.k.result(90)
    assert status == "failed" and b"has changed" in raw


def test_server_that_announces_all_the_time_is_listed_now_and_then(ts, fake, tmp_path, waiting):
    k = ts.attach()
    ts.add({"fake": fake(log=str(tmp_path / "log"))})
    message = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    args = json.dumps({"message": message, "times": 20}).encode()
    for i in range(3):
        assert ts.run(k, i, "fake", "flood", args)[0] == "ok"
    lists = (tmp_path / "log").read_bytes().count(b'"tools/list"')
    assert lists <= 1 + 3 + 1  # one for each call, too
    waiting(lambda: (tmp_path / "log").read_bytes().count(b'"tools/list"') > lists, 10, "the list")
    ts.broker.nothing()


def test_lists_that_go_back_and_forth_are_bounded(s, waiting):
    """The last one is shown in the end."""
    s.lists(tool("read"))
    s.add()
    for i in range(6):
        s.lists(tool("read"), *([tool("write")] if i % 2 == 0 else []))
        s.k.call(100 + i, "s", "announce")
        m = s.ts.broker.receive()
        while "text" in m.body:
            m = s.ts.broker.receive()
        s.ts.decide(m)
        assert s.k.result(100 + i)[0] == "ok"
    s.lists(tool("read"), tool("last"))
    waiting(lambda: s.modules() == {"read", "last"}, 20, "the last list")
