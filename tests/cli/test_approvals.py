"""`cellgate run --approve` without a terminal: rules decide, and what they do not allow does not run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
READ = "from mcptools.fs import read_file; print(read_file.run(path='/x'))"
BOTH = READ + "\nfrom mcptools.fs import write_file; print(write_file.run(path='/y'))"


def test_a_rule_that_refuses_nothing_stops_the_start(run_cellgate: Run, server) -> None:
    """Which rules match and what is suggested is tested in unit/test-approve.c; here, that each front obeys it."""
    rules = ("--approve", "all", "--approve", "!fs.wirte_file")
    why = "the approval rule !fs.wirte_file refuses nothing: the MCP server fs has no tool wirte_file; did you mean !fs.write_file?"
    for _ in range(2):  # the second time the server is not started: its tools are known from its pins
        r = run_cellgate("run", "--mcp", server.mcp, *rules, "-c", BOTH)
        assert (r.returncode, r.stdout) == (2, "")
        assert r.stderr.endswith(f"cellgate run: {why} Correct the rule, or start with --lax-rules\n")
    assert server.ran() == []
    r = run_cellgate("run", "--mcp", server.mcp, *rules, "--lax-rules", "-c", READ)
    assert (r.returncode, r.stdout, r.stderr) == (0, "read_file done\n", f"[cellgate] {why}\n")


def test_a_rule_that_accepts_nothing_is_said(run_cellgate: Run, server) -> None:
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "fs.raed_*", "-c", READ)
    assert (r.returncode, r.stdout) == (4, "")
    assert "[cellgate] the approval rule fs.raed_* accepts nothing: " in r.stderr
    assert "did you mean fs.read_file?\n" in r.stderr


def test_rules_without_servers(run_cellgate: Run) -> None:
    r = run_cellgate("run", "--approve", "!fs.write_file", "-c", "print('ran')")
    assert (r.returncode, r.stdout) == (2, "") and "there is no MCP server fs." in r.stderr
    r = run_cellgate("run", "--approve", "!*.*", "-c", "print('ran')")
    assert (r.returncode, r.stdout, r.stderr) == (0, "ran\n", "")


def test_a_rule_about_a_server_that_did_not_start(run_cellgate: Run, server) -> None:
    """Its tools are not known: the rule may be right."""
    servers = json.loads(server.mcp.read_text())
    servers["mcpServers"]["gone"] = {"command": "/nonexistent/program"}
    server.mcp.write_text(json.dumps(servers))
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "all", "--approve", "!gone.delete", "-c", READ)
    assert (r.returncode, r.stdout) == (0, "read_file done\n")
    assert "the approval rule !gone.delete could not be checked: the MCP server gone did not start" in r.stderr
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "all", "--approve", "!gnoe.delete", "-c", READ)
    assert (r.returncode, r.stdout) == (2, "") and "did you mean !gone.delete?" in r.stderr


def test_rules_that_match_nothing_in_json(host, server) -> None:
    h = host("--mcp", server.mcp, "--approve", "!fs.wirte_file", "-c", READ)
    assert "did you mean !fs.write_file?" in h.until("failed")["text"]
    assert h.end() == 2
    h = host("--mcp", server.mcp, "--approve", "!fs.wirte_file", "--lax-rules", "-c", "1")
    assert "did you mean !fs.write_file?" in h.until("notice")["text"]
    h.until("result")
    assert h.end() == 0


def test_all(run_cellgate: Run, server) -> None:
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "all", "-c", BOTH)
    assert (r.returncode, r.stdout, r.stderr) == (0, "read_file done\nwrite_file done\n", "")
    assert server.calls() == [
        {"tool": "read_file", "arguments": {"path": "/x"}},
        {"tool": "write_file", "arguments": {"path": "/y"}},
    ]


@pytest.mark.parametrize("rules", [[], ["--approve", "none"], ["--approve", "fs.list_*"], ["--approve", "fs2.*"]])
def test_4_without_a_rule_that_allows(run_cellgate: Run, server, rules: list[str]) -> None:
    r = run_cellgate("run", "--mcp", server.mcp, *rules, "-c", READ, "-c", "print('next')")
    assert (r.returncode, r.stdout) == (4, "")
    why = "no approval rule allows fs.read_file (--approve fs.read_file would)"
    assert f"[cellgate] fs.read_file was refused: {why}\n" in r.stderr
    assert "RejectedError" in r.stderr
    assert server.ran() == []


def test_the_advice_of_a_refusal_is_right(run_cellgate: Run, server) -> None:
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "fs.read_file", "-c", READ)
    assert (r.returncode, r.stdout) == (0, "read_file done\n")


def test_caught_refusal_is_no_failure(run_cellgate: Run, server) -> None:
    cell = f"from cellgate_tools import RejectedError\ntry:\n  {READ}\nexcept RejectedError as e: print('caught:', e)"
    r = run_cellgate("run", "--mcp", server.mcp, "-c", cell, "-c", "print('next')")
    assert r.returncode == 0
    assert "caught:" in r.stdout
    assert "--approve fs.read_file" in r.stdout  # the code learns how it could be allowed
    assert r.stdout.endswith("next\n")
    assert server.ran() == []


def test_1_when_another_exception_follows_a_refusal(run_cellgate: Run, server) -> None:
    cell = f"try:\n  {READ}\nexcept Exception: raise ValueError('other') from None"
    assert run_cellgate("run", "--mcp", server.mcp, "-c", cell).returncode == 1


def test_patterns(run_cellgate: Run, server) -> None:
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "fs.read_*", "-c", BOTH)
    assert (r.returncode, r.stdout) == (4, "read_file done\n")
    assert server.ran() == ["read_file"]


@pytest.mark.parametrize("rules", [["!fs.write_*", "fs.*"], ["fs.*", "!*.write_file"], ["all", "!fs.write_file"]])
def test_refusing_pattern_wins_in_any_order(run_cellgate: Run, server, rules: list[str]) -> None:
    r = run_cellgate("run", "--mcp", server.mcp, *[w for rule in rules for w in ("--approve", rule)], "-c", BOTH)
    assert (r.returncode, r.stdout) == (4, "read_file done\n")
    assert "refused by the approval rule !" in r.stderr
    assert server.ran() == ["read_file"]


def test_log_level_2_names_accepted_calls(run_cellgate: Run, server) -> None:
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "all", "--log-level", "2", "-c", READ)
    assert "[cellgate] fs.read_file was accepted by an approval rule\n" in r.stderr


def test_standard_input_decides_nothing(run_cellgate: Run, server) -> None:
    """Without a terminal and without --json nobody can approve, whatever the content of standard input."""
    r = run_cellgate("run", "--mcp", server.mcp, "-c", READ, input="y\n" * 100)
    assert r.returncode == 4
    assert server.ran() == []


def test_calls_of_threads(run_cellgate: Run, server) -> None:
    cell = (
        "from concurrent.futures import ThreadPoolExecutor\nfrom mcptools.fs import read_file\n"
        "with ThreadPoolExecutor(8) as pool: print(len(list(pool.map(lambda i: read_file.run(i=i), range(40)))))"
    )
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "all", "-c", cell)
    assert (r.returncode, r.stdout) == (0, "40\n")
    assert sorted(call["arguments"]["i"] for call in server.calls()) == list(range(40))


def test_hostile_tool_names_are_rendered(run_cellgate: Run, make_server) -> None:
    server = make_server("evil\x1b[2J\r\u202e.name")
    cell = "import _cellgate; _cellgate.tool_call('fs', 'evil\\x1b[2J\\r\\u202e.name', b'{}', 0)"
    r = run_cellgate("run", "--mcp", server.mcp, "-c", cell)
    assert "\x1b" not in r.stderr
    assert "\\x1b[2J" in r.stderr
    assert server.ran() == []


def test_servers_are_there_in_every_cell_and_settings_are_not(run_cellgate: Run, server, tmp_path: Path) -> None:
    steal = f"open({str(server.mcp)!r})"
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "all", "-c", "pass", "-c", READ, "-c", steal)
    assert (r.returncode, r.stdout) == (1, "read_file done\n")


READ_RESOURCE = "import mcptools; print(mcptools.read_resource('fs', 'file:///x'))"
GET_PROMPT = "import mcptools; print(mcptools.get_prompt('fs', 'greet'))"


@pytest.mark.parametrize(
    "rules",
    [["fs.*"], ["*.*"], ["fs.resources/read"], ["fs:prompts/get"], ["all", "!fs.*"], ["all", "!fs:resources/read"]],
)
def test_rules_about_tools_accept_no_resource(run_cellgate: Run, server, rules: list[str]) -> None:
    args = [w for rule in rules for w in ("--approve", rule)]
    r = run_cellgate("run", "--mcp", server.mcp, *args, "-c", READ_RESOURCE)
    assert (r.returncode, r.stdout) == (4, "")
    assert "[cellgate] fs:resources/read was refused: " in r.stderr
    assert server.ran() == []


def test_tool_with_the_name_of_a_method(run_cellgate: Run, make_server) -> None:
    """A rule about resources accepts no tool."""
    server = make_server("resources/read")
    code = "from mcptools.fs import resources_read; resources_read.run()"
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "fs:resources/read", "-c", code)
    assert r.returncode == 4 and "no approval rule allows fs.resources/read\n" in r.stderr
    assert server.ran() == []


@pytest.mark.parametrize("rules", [["all"], ["all", "!fs.read_*"], ["fs:resources/read", "*:prompts/get"]])
def test_rules_that_accept_resources_and_prompts(run_cellgate: Run, server, rules: list[str]) -> None:
    args = [w for rule in rules for w in ("--approve", rule)]
    r = run_cellgate("run", "--mcp", server.mcp, *args, "-c", READ_RESOURCE, "-c", GET_PROMPT)
    assert (r.returncode, r.stdout, r.stderr) == (0, "contents\nuser: hello\n", "")
    assert server.calls() == [
        {"tool": "resources/read", "arguments": {"uri": "file:///x"}},
        {"tool": "prompts/get", "arguments": {"name": "greet"}},
    ]


def test_the_advice_of_a_refused_resource_is_right(run_cellgate: Run, server) -> None:
    r = run_cellgate("run", "--mcp", server.mcp, "-c", READ_RESOURCE)
    assert "no approval rule allows fs:resources/read (--approve fs:resources/read would)" in r.stderr
    r = run_cellgate("run", "--mcp", server.mcp, "--approve", "fs:resources/read", "-c", READ_RESOURCE)
    assert (r.returncode, r.stdout) == (0, "contents\n")
