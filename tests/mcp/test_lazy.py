"""Servers whose tools are known from the last time: they start when a cell needs them, and are compared first."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from wire_table import BROKER

SERVER = Path(__file__).resolve().parent.parent / "changing_server.py"


def tool(name: str, description: str = "Does it.", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


READ = tool("read", inputSchema={"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}})


class Known:
    """The server "s", which one tool server has listed, in the session of another."""

    def __init__(self, start: Any, folder: Path) -> None:
        self.file = folder / "tools.json"
        self.program = Path(shutil.copy(SERVER, folder))
        self.definition = {"command": sys.executable, "args": ["-S", "-E", str(self.program), str(self.file)]}
        self.lists(READ, tool("other"))
        first = start()
        first.attach()
        self.first = first.add({"s": self.definition})["s"]
        self.modules = self.files(first)
        first.end()
        self.log = Path(f"{self.file}.log")
        self.log.unlink()
        self.ts = start()
        self.k = self.ts.attach()

    @staticmethod
    def files(ts: Any) -> dict[str, str]:
        return {p.name: p.read_text() for p in (ts.out / "mcptools/s").iterdir()}

    def lists(self, *tools: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(tools))

    def add(self, **more: Any) -> dict[str, Any]:
        report: dict[str, Any] = self.ts.add({"s": {**self.definition, **more}})["s"]
        return report

    def methods(self) -> list[str]:
        return [json.loads(x)["method"] for x in self.log.read_text().splitlines()] if self.log.exists() else []

    def failed(self, name: str) -> tuple[str, list[str]]:
        """The text of a call that fails without a question, and the notices before."""
        self.k.call(1, "s", name)
        status, raw = self.k.result(1)
        assert status == "failed"
        notices = []
        while self.ts.broker.sock.poll(150):
            m = self.ts.broker.receive()
            assert m.type == BROKER.NOTICE, "nobody is asked"
            notices.append(m.body["text"])
        return raw.decode(), notices


@pytest.fixture
def s(start, tmp_path):
    return Known(start, tmp_path)


@pytest.fixture
def state() -> Any:
    """The one file below the state folder with this suffix."""

    def find(suffix: str) -> Path:
        (found,) = Path(os.environ["XDG_STATE_HOME"], "cellgate/mcp-tools").glob(f"*.{suffix}")
        return found

    return find


def test_known_server_starts_with_the_first_call(s, state):
    """Its modules are those of the last time, byte for byte, and it is compared before anybody is asked."""
    assert "started" not in s.first
    report = s.add()
    assert report.pop("started") is False and "pins" not in report
    assert report == {k: v for k, v in s.first.items() if k != "pins"}
    assert s.files(s.ts) == s.modules
    assert s.methods() == []
    assert state("list").stat().st_mode & 0o777 == 0o600
    s.k.call(1, "s", "read")
    ask = s.ts.asked()
    assert s.methods()[-1] == "tools/list"
    s.ts.decide(ask)
    assert s.k.result(1)[0] == "ok"
    assert s.methods()[-2:] == ["tools/list", "tools/call"]
    assert s.ts.run(s.k, 2, "s", "other")[0] == "ok" and s.methods().count("tools/list") == 1


def test_eager_server_is_started_when_it_is_added(s):
    assert "started" not in s.add(start="eager")
    assert s.methods()[-1] == "tools/list"


@pytest.mark.parametrize("value", ["never", 1, []])
def test_other_values_of_start_are_refused(s, value):
    assert '"start" must be "lazy" or "eager"' in s.ts.refuse({"s": {**s.definition, "start": value}})


def test_changed_tool_is_not_called(s):
    s.add()
    s.lists(tool("read", "Changed."), tool("other"))
    text, notices = s.failed("read")
    assert "has changed since it was accepted" in text and "tools/call" not in s.methods()
    assert len(notices) == 1 and "Changed." in notices[0]
    assert s.ts.run(s.k, 2, "s", "other")[0] == "ok"


def test_removed_tool_is_not_called(s):
    s.add()
    s.lists(tool("other"))
    text, _ = s.failed("read")
    assert 'MCP server "s" has no tool "read"' in text and "tools/call" not in s.methods()


def test_new_tool_is_reported_and_called(s):
    s.add()
    s.lists(READ, tool("other"), tool("write"))
    s.k.call(1, "s", "write")
    assert s.ts.noticed() == "MCP server s has new tools: write\n"
    s.ts.decide(s.ts.asked())
    assert s.k.result(1)[0] == "ok"


def test_server_that_cannot_start_fails_its_calls(s, fake):
    """The host gets its last words, and nobody is asked; another server's calls go on."""
    s.ts.add({"fake": fake()})
    s.add()
    s.program.write_text("raise SystemExit('no configuration')")
    text, notices = s.failed("read")
    assert s.k.kind == "unavailable" and "did not start" in text and "no configuration" not in text
    assert len(notices) == 1 and "[s] no configuration" in notices[0]
    assert s.ts.run(s.k, 2, "fake", "echo")[0] == "ok"


@pytest.mark.parametrize("why", ["changed text", "other order", "no list", "half a list", "no pins", "waits"])
def test_server_is_started_where_the_known_tools_cannot_be_trusted(s, state, why):
    known, pins = state("list"), state("json")
    if why == "changed text":
        known.write_text(known.read_text().replace("Does it.", "Does evil."))
    elif why == "other order":  # of the schema's properties: the same tool
        known.write_text(json.dumps([tool("other"), json.loads(json.dumps(READ, sort_keys=True))]))
    elif why == "no list":
        known.unlink()
    elif why == "half a list":
        known.write_text(known.read_text()[:-20])
    elif why == "no pins":
        pins.unlink()
    else:
        doc = json.loads(pins.read_text())
        doc["tools"]["held"] = {"pending": doc["tools"]["other"]}
        pins.write_text(json.dumps(doc))
    report = s.add()
    assert ("started" in report) == (why == "other order")
    assert (s.methods() == []) == (why == "other order")
    assert "evil" not in str(s.files(s.ts))
    # As it was listed, it is known the next time, unless a tool waits for acceptance.
    assert ("started" in s.add()) == (why != "waits")


@pytest.mark.parametrize("more", [tool("read", "Another."), {"inputSchema": {}}, tool("Read")])
def test_server_whose_list_is_not_accepted_as_a_whole_is_started(start, tmp_path, more):
    s = Known(start, tmp_path)
    s.lists(READ, more)
    s.add(start="eager")
    for _ in range(2):
        assert "started" not in s.add()


@pytest.mark.parametrize("listed", [[], [tool("other")]])
def test_server_that_has_not_listed_all_of_its_tools_is_started(start, tmp_path, listed):
    """It has listed none or fewer once, as while a service behind it was not available."""
    s = Known(start, tmp_path)
    s.lists(*listed)
    s.add(start="eager")
    s.lists(READ, tool("other"))
    report = s.add()
    assert "started" not in report and [t["tool"] for t in report["tools"]] == [t["tool"] for t in s.first["tools"]]
    assert s.add()["started"] is False
