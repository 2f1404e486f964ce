"""Finding tools: levels of detail and their sizes, and search over real tools."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from codegen.support import DATA, SHARED, generate, shared_files

FILES = [*sorted(DATA.glob("*.json")), *(p for p in shared_files("cases/tools/*.json") if p.name != "hostile.json")]
Root = Callable[..., Any]


@pytest.fixture
def root(build_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Root]:
    """root({"server": tools}) generates packages below mcptools and imports that."""

    def make(servers: dict[str, Any]) -> Any:
        for name, tools in servers.items():
            generate(build_dir, name, tmp_path / "mcptools", tools, root=True)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        return importlib.import_module("mcptools")

    yield make
    for name in [n for n in sys.modules if n.split(".")[0] == "mcptools"]:
        del sys.modules[name]


def _tool(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


def _tokens(text: str) -> float:
    """A quarter of the characters: exact tokenizers need their tables from the network."""
    return len(text) / 4


def test_levels_have_their_sizes(root: Root) -> None:
    """Averages over all tools of all lists."""
    mcptools = root({p.stem: p.read_bytes() for p in FILES})
    servers = mcptools.servers()
    names = {s: mcptools.tools(s) for s in servers}
    count = sum(map(len, names.values()))
    signatures = [mcptools.signature(f"{s}.{t}") for s in servers for t in names[s]]
    sizes = {
        "names": sum(_tokens(repr(names[s])) for s in servers) / count,
        "described": sum(_tokens(repr(mcptools.tools(s, describe=True))) for s in servers) / count,
        "signature": sum(map(_tokens, signatures)) / count,
    }
    print(count, sizes)
    assert sizes["names"] <= 8 and sizes["described"] <= 15 and sizes["signature"] <= 40, sizes
    assert mcptools.search("", limit=1)[0].module == f"{servers[0]}.{names[servers[0]][0]}"


def test_levels(root: Root) -> None:
    """What all descriptions of a server begin with is dropped; one that repeats the name is left out."""
    said = "Tracker (beta): "
    tools = [
        _tool("getIssueById", said + "Reads one issue with its comments.", id={"type": "string"}),
        _tool("list_teams", said + "Lists teams."),
        _tool("close", said + "Ends an issue. Second sentence.\nMore."),
        _tool("long", said + "One two three four five six seven eight nine ten eleven twelve."),
        _tool("bare"),
    ]
    mcptools = root({"tracker": tools, "other": [_tool("close", "Shuts a door.", n={"type": "integer"})]})
    assert repr(mcptools.servers()) == "other\ntracker"
    assert mcptools.tools("Tracker") == ["bare", "close", "getIssueById", "list_teams", "long"]
    assert mcptools.tools("tracker", describe=True) == [
        "bare",
        "close: Ends an issue",
        "getIssueById: Reads one issue with its comments",
        "list_teams",
        "long: One two three four five six seven eight...",
    ]
    catalogue = mcptools.tracker.__doc__
    assert "close() -> Text: Ends an issue.\n" in catalogue and said.strip() not in catalogue
    assert mcptools.signature("getissuebyid") == "getIssueById(id?: str) -> Text"
    assert mcptools.signature("other.close") == mcptools.signature("close", "other") == "close(n?: int) -> Text"
    for call, text in (
        (lambda: mcptools.signature("close"), "2 servers have a tool 'close': other.close, tracker.close"),
        (lambda: mcptools.signature("getIssueByld"), "did you mean 'getIssueById'"),
        (lambda: mcptools.tools("trakcer"), "did you mean 'tracker'"),
        (lambda: mcptools.tools("zzz"), "servers: other, tracker"),
    ):
        with pytest.raises(LookupError) as caught:
            call()
        assert text in str(caught.value)


def test_search(root: Root) -> None:
    mcptools = root({p.stem: p.read_bytes() for p in sorted(DATA.glob("*.json"))})
    for words, wanted in (
        ("change lines in a file", "files.edit_file"),
        ("new entity", "graph.create_entities"),
        ("what is in a folder", "files.list_directory"),
        ("create new relations", "graph.create_relations"),
    ):
        assert wanted in [m.module for m in mcptools.search(words, limit=3)], mcptools.search(words)
    assert {m.server for m in mcptools.search("read", server="files")} == {"files"}
    assert repr(mcptools.search("qqqq")) == "no tool found" and mcptools.search("the of a") == []
    with pytest.raises(ValueError, match="detail is one of"):
        mcptools.search("x", detail="everything")


def test_a_query_that_names_a_server_means_its_tools(root: Root) -> None:
    """However its tools speak of it; names of parameters and words that all names of servers have count nothing."""
    tools = [_tool("send", "Sends a chat message."), _tool("rooms", "Lists rooms of the herald.")]
    others = [_tool("send_message", "Sends a message.", herald={"type": "string"}), _tool("weather", "Weather.")]
    mcptools = root({"herald-mcp-server": tools, "other-server": others, "third": [_tool("cycles", "Lists cycles.")]})
    assert mcptools.search("herald: send a message")[0].module == "herald_mcp_server.send"
    assert mcptools.search("send a message")[0].module == "other_server.send_message"
    assert mcptools.search("a message of the mcp server")[0].module == "other_server.send_message"
    assert {m.server for m in mcptools.search("herald")} == {"herald-mcp-server"}
    assert mcptools.search("sprints")[0].module == "third.cycles"


def test_replaced_package_is_found_anew(root: Root) -> None:
    assert [m.tool for m in root({"srv": [_tool("old", "Cuts grass.")]}).search("grass")] == ["old"]
    assert [m.tool for m in root({"srv": [_tool("fresh", "Mows grass quickly.")]}).search("grass")] == ["fresh"]


def test_search_over_1000_tools(root: Root) -> None:
    """Under 10 ms; the index is kept. Processor time, so that other work on the machine does not count."""
    lists = [json.loads(p.read_text())["tools"] for p in FILES]
    all_tools = [t for tools in lists for t in tools]
    many = {
        f"s{n}": [{**t, "name": f"{t['name']}_{n}_{i}"} for i, t in enumerate((all_tools * 40)[n * 100 : n * 100 + 100])]
        for n in range(10)
    }
    mcptools = root(many)
    mcptools.search("warm")
    took = []
    for words in ("read a text file", "create an issue", "delete entities", "take a screenshot", "list") * 4:
        start = time.process_time()
        mcptools.search(words)
        took.append(time.process_time() - start)
    print(f"median {sorted(took)[10] * 1e3:.2f} ms")
    assert sorted(took)[10] < 0.010, took


@pytest.mark.skipif(not SHARED, reason="CG_SHARED is not set: the phrases are about real tools that are not there")
def test_phrases_of_agents(root: Root) -> None:
    """Phrases that were written before the weights were chosen, of which a third name the server."""
    mcptools = root({p.stem: p.read_bytes() for p in FILES if p.parent != DATA})
    first = among = 0
    for line in (DATA / "phrases.tsv").read_text().splitlines():
        phrase, right = line.split("\t")
        found = [f"{m.server}/{m.tool}" for m in mcptools.search(phrase, limit=3)]
        first += found[0] in right.split(",")
        among += not set(found).isdisjoint(right.split(","))
    assert first >= 30 and among >= 36, (first, among)


@pytest.mark.skipif(not SHARED, reason="CG_SHARED is not set: the questions are about real tools that are not there")
@pytest.mark.parametrize("half", [0, 1], ids=["tuning", "held-out"])
def test_plain_questions(root: Root, half: int) -> None:
    """The right tool is among the first three in nine of ten. Weights were chosen with the first half only."""
    mcptools = root({p.stem: p.read_bytes() for p in FILES if p.parent != DATA})
    lines = (DATA / "questions.tsv").read_text().splitlines()[half::2]
    missed = []
    for question, right in (line.split("\t") for line in lines):
        found = [f"{m.server}/{m.tool}" for m in mcptools.search(question, limit=3)]
        if not set(found) & set(right.split(",")):
            missed.append((question, found))
    print(f"{len(lines) - len(missed)} of {len(lines)}")
    assert len(missed) <= len(lines) / 10, missed
