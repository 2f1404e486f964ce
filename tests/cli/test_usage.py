"""Bad input to every command: a message that names the thing, status 2, no output, nothing left behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SERVER = str(Path(__file__).parent / "data/server.py")

COMMAND_LINES = [
    (["rum"], "did you mean run?"),
    (["--nothing"], '"--nothing"'),
    (["-c", "1"], "did you mean cellgate run -c?"),
    (["report.py"], "did you mean cellgate run report.py?"),
    (["help", "rum"], "did you mean run?"),
    (["version", "x"], '"version"'),
    (["run", "--stay", "-c", "1"], "--json"),
    (["selftest", "--only", "nosuch"], "--only nosuch: there is no such attempt; --list lists all"),
    (["selftest", "--only", "unix-*", "--only", "nosuch", "--list"], "--only nosuch: there is no such attempt"),
    (["run"], "nothing to run"),
    (["run", "--wrokspace", "x", "-c", "1"], "unknown option --wrokspace: did you mean --workspace?"),
    (["run", "--workspce=x", "-c", "1"], "unknown option --workspce: did you mean --workspace?"),
    (["run", "-json"], "did you mean --json?"),
    (["run", "--jso"], "did you mean --json?"),
    (["run", "--nothing-like-it"], "unknown option --nothing-like-it: --help"),
    (["run", "--workspace"], "option --workspace needs a value"),
    (["run", "-z"], "unknown option -z"),
    (["run", "-c"], "option -c needs a value"),
    (["run", "--json=1", "-c", "1"], "option --json takes no value"),
    (["run", "a.py", "b.py"], "a.py and b.py"),
    (["run", "--json", "-"], "standard input"),
    (["run", "--json", "--images", "x", "-c", "1"], "--images"),
    (["run", "--approve", "filesystem", "-c", "1"], '"filesystem"'),
    (["run", "--approve", "all", "--approve", "none", "-c", "1"], "contradicts"),
    (["run", "--approve", "ask", "-c", "1"], "no terminal"),
    (["approvals"], "list, show, accept, reject or watch?"),
    (["approvals", "accept"], "the ID of a question is missing"),
    (["approvals", "list", "x"], 'unexpected argument "x"'),
    (["approvals", "show", "a", "b"], 'unexpected argument "b"'),
    (["approvals", "reject", "a", "--digest", "x"], "unknown option --digest"),
    (["run", "--decide-elsewhere", "--no-sandbox", "-c", "1"], "leave out --no-sandbox"),
    (["run", "--env", "NAME", "-c", "1"], '--env needs NAME=VALUE, not "NAME"'),
    (["run", "--env", "=x", "-c", "1"], "--env"),
    (["run", "--timeout", "soon", "-c", "1"], '--timeout needs seconds such as 30 or 1.5, not "soon"'),
    (["run", "--timeout", "-1", "-c", "1"], "--timeout"),
    (["run", "--log-level", "9", "-c", "1"], "--log-level"),
    (["run", "--tier", "best", "-c", "1"], 'tier "best" is none of full, landlock, auto'),
    (["run", "--limit", "memoryMb", "-c", "1"], '--limit needs NAME=NUMBER such as memoryMb=512, not "memoryMb"'),
    (["run", "--limit", "memoryMb=-1", "-c", "1"], "--limit needs NAME=NUMBER"),
    (["run", "--limit", "memoryMb=1.5", "-c", "1"], "--limit memoryMb=1.5: Expected integer"),
    (["run", "--limit", "cores=1.5.1", "-c", "1"], "--limit cores=1.5.1: Expected number"),
    (["run", "--limit", "memory=5", "-c", "1"], "there is no such limit; limits: memoryMb, cores, processes"),
    (["mcp", "serve", "--limit", "cores=0"], "--limit cores=0: Number must be greater than or equal to 0.01"),
    (["jupyter", "install", "--limit", "x=1"], "--limit x=1: there is no such limit"),
    (["run", "--workspace", "missing", "-c", "1"], "missing: No such file or directory"),
    (["run", "--images", "missing/images", "-c", "1"], "missing"),
    (["run", "--mcp", "missing.json", "-c", "1"], "missing.json: No such file or directory"),
    (["run", "--sandbox", "missing.json", "-c", "1"], "missing.json: No such file or directory"),
    (["run", "--sandbox", "x.json", "--no-sandbox", "-c", "1"], "--sandbox and --no-sandbox contradict"),
    (["run", "--sandbox", "x.json", "--allow-host", "a.example", "-c", "1"], "network.allowedDomains of x.json"),
    (["run", "--allow-host", "a.example", "--no-sandbox", "-c", "1"], "--allow-host and --no-sandbox contradict"),
    (["run", "--profile", "all", "-c", "1"], "--profile all: basic, data_science, network or filesystem"),
    (["run", "--profile", "basic", "--sandbox", "x.json", "-c", "1"], "--profile and --sandbox contradict"),
    (["run", "--profile", "basic", "--no-sandbox", "-c", "1"], "--profile and --no-sandbox contradict"),
    (["run", "--profile", "basic", "--allow-host", "a.example", "-c", "1"], "--allow-host needs --profile network"),
    (["run", "--allow-host", "https://a.example/x", "-c", "1"], "a host, no URL: --allow-host a.example\n"),
    (["mcp", "serve", "--sandbox", "missing.json"], "missing.json: No such file or directory"),
    (["mcp", "serve", "--sandbox", "x.json", "--no-sandbox"], "--sandbox and --no-sandbox contradict"),
    (["mcp", "serve", "--allow-host", "*"], "--allow-host *: "),
    (["run", "missing.py"], "missing.py: No such file or directory"),
    (["run", "."], ".: Is a directory"),
    (["gen"], "NAME"),
    (["gen", "x"], "--out"),
    (["gen", "x", "--out", "o"], "either --tools FILE or -- COMMAND"),
    (["gen", "x", "--out", "o", "--tools", "t.json", "--", "cmd"], "either --tools FILE or -- COMMAND"),
    (["gen", "x", "y", "--out", "o", "--tools", "t.json"], "x and y"),
    (["gen", "x", "--out", "o", "--tools", "missing.json"], "missing.json: No such file or directory"),
    (["gen", "../x", "--out", "o", "--tools", "missing.json"], "../x"),
    (["gen", "x", "--tolos", "t"], "did you mean --tools?"),
    (["gen", "x", "--out", "o", "--", "no-such-program-anywhere"], "no-such-program-anywhere"),
]


@pytest.mark.parametrize(("args", "says"), COMMAND_LINES, ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_command_line(run_cellgate: Run, tmp_path: Path, args: list[str], says: str) -> None:
    r = run_cellgate(*args)
    assert (r.returncode, r.stdout) == (2, "")
    assert says in r.stderr
    assert r.stderr.startswith("cellgate")
    assert r.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_a_command_the_help_is_printed(run_cellgate: Run) -> None:
    r = run_cellgate()
    assert (r.returncode, r.stdout, r.stderr) == (2, run_cellgate("--help").stdout, "")


def test_a_list_of_no_servers_says_why(run_cellgate: Run, tmp_path: Path) -> None:
    r = run_cellgate("mcp", "list")
    assert (r.returncode, r.stdout) == (0, "") and "there is no such file; `cellgate mcp add`" in r.stderr
    (tmp_path / "servers.json").write_text('{"mcpServers": {}}')
    r = run_cellgate("mcp", "list", "--mcp", "servers.json")
    assert (r.returncode, r.stdout) == (0, "") and "servers.json: defines no MCP server" in r.stderr


def test_settings_name_all_keys_that_are_wrong(run_cellgate: Run, tmp_path: Path) -> None:
    network = {"allowedDomain": ["a.example"], "deniedDomains": "b.example"}
    settings = {"network": network, "filesystem": {"denyRead": [], "allowWrit": ["."]}}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    r = run_cellgate("run", "--sandbox", "settings.json", "-c", "1")
    assert r.returncode == 2
    for says in (
        "network.deniedDomains: Expected array",
        "network: Unrecognized key(s) in object: 'allowedDomain' (did you mean 'allowedDomains'?)",
        "filesystem.denyWrite: Required",
        "filesystem: Unrecognized key(s) in object: 'allowWrit' (did you mean 'allowWrite'?)",
    ):
        assert says in r.stderr
    assert "allowedDomains: Required" not in r.stderr and "allowWrite: Required" not in r.stderr


FILES = [
    ("a.py", b"a = 1\nb = '\xe9'\n", "a.py is not UTF-8 text: line 2"),
    ("a.txt", b"x = 1\n", "a.txt is neither a .py file nor a notebook"),
    ("a.ipynb", b"x = 1\n", "a.ipynb is not valid JSON: line 1, column 1"),
]


@pytest.mark.parametrize(("name", "content", "says"), FILES)
def test_files(run_cellgate: Run, tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    r = run_cellgate("run", name)
    assert (r.returncode, r.stdout) == (2, "")
    assert says in r.stderr


MCP_FILES = [
    ('{\n  "mcpServers": {,}\n}', "line 2, column"),
    ("[]", "must be a JSON object"),
    ('{"mcpServers": []}', "mcpServers"),
    ('{"mcpServers": {"fs": {"command": "x", "env": {"A": "${CELLGATE_TEST_NOT_SET}"}}}}', "CELLGATE_TEST_NOT_SET"),
    ('{"mcpServers": {"fs": {"command": "no-such-program-anywhere"}}}', "no-such-program-anywhere"),
    ('{"mcpServers": {"fs": {"args": []}}}', "command"),
    (json.dumps({"fs": {"command": "/usr/bin/python3", "args": [SERVER, "broken"]}}), "fs"),
]


@pytest.mark.parametrize(("content", "says"), MCP_FILES)
@pytest.mark.parametrize("face", [[], ["--json"]], ids=["text", "json"])
def test_mcp_files(run_cellgate: Run, tmp_path: Path, content: str, says: str, face: list[str]) -> None:
    (tmp_path / "servers.json").write_text(content)
    r = run_cellgate("run", *face, "--mcp", "servers.json", "-c", "print('ran')")
    assert r.returncode == 2
    assert "servers.json" in r.stderr
    assert says in r.stderr
    assert "ran" not in r.stdout


SETTINGS_FILES = [
    ('{\n  "network": {,}\n}', "settings.json is not valid JSON: line 2, column"),
    ("", "settings.json is not valid JSON: line 1, column"),
    ("[]", "settings.json must be a JSON object"),
    ("{}", "settings.json does not hold a valid config"),
    ('{"network": {"allowedDomains": ["*"], "deniedDomains": []}}', "network.allowedDomains.0"),
    ('{"network": {"allowedDomains": [], "deniedDomains": [], "allowedDomian": []}}', "allowedDomian"),
]


@pytest.mark.parametrize(("content", "says"), SETTINGS_FILES)
@pytest.mark.parametrize("command", [["run", "-c", "print('ran')"], ["run", "--json", "-c", "1"], ["mcp", "serve"]])
def test_settings_files(run_cellgate: Run, tmp_path: Path, content: str, says: str, command: list[str]) -> None:
    (tmp_path / "settings.json").write_text(content)
    r = run_cellgate(*command, "--sandbox", "settings.json")
    assert r.returncode == 2
    assert says in r.stderr
    assert "ran" not in r.stdout


def test_server_that_fails_shows_what_it_said(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text(json.dumps({"fs": {"command": "/usr/bin/python3", "args": [SERVER, "broken"]}}))
    r = run_cellgate("run", "--mcp", "servers.json", "-c", "1")
    assert r.returncode == 2
    assert "no such database" in r.stderr


def test_control_characters_in_arguments_do_not_reach_the_terminal(run_cellgate: Run) -> None:
    r = run_cellgate("run", "--\x1b[2J")
    assert "\x1b" not in r.stderr
    assert "\\x1b[2J" in r.stderr


COMMANDS = ["", "run", "env", "gen", "mcp", "mcp serve", "jupyter", "doctor", "selftest", "sandbox"]
COMMANDS += ["jupyter install", "jupyter run", "jupyter attach", "jupyter list", "queue", "session list", "job"]


@pytest.mark.parametrize("command", [c.split() for c in COMMANDS])
def test_help(run_cellgate: Run, command: list[str]) -> None:
    r = run_cellgate(*command, "--help")
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout.startswith("Usage: cellgate")
    assert max(map(len, r.stdout.splitlines())) <= 100


OPTIONS = ["-c", "--workspace", "--mcp", "--approve", "--env", "--timeout", "--no-sandbox", "--json", "--images"]
OPTIONS += ["--preload", "--log-level", "--sandbox", "--allow-host"]


def test_help_names_every_option(run_cellgate: Run) -> None:
    text = run_cellgate("run", "--help").stdout
    for option in OPTIONS:
        assert f" {option}" in text
    statuses = " ".join(text[text.index("Exit status:") :].split())
    for status in ["0;", "1 a cell raised;", "2 ", "3 ", "4 ", "124 ", "130 ", "141 ", "143 for SIGTERM"]:
        assert f" {status}" in statuses


def test_version(run_cellgate: Run) -> None:
    r = run_cellgate("--version")
    assert r.returncode == 0
    assert r.stdout.startswith("cellgate ")


def test_help_to_a_full_disk(cellgate: Path) -> None:
    with open("/dev/full", "w") as full:
        r = subprocess.run([cellgate, "run", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
    assert r.returncode == 2
    assert "No space left on device" in r.stderr


@pytest.mark.parametrize("command", ["run", "gen", "mcp", "jupyter", "doctor", "selftest", "sandbox"])
def test_help_of_a_command(run_cellgate: Run, command: str) -> None:
    r = run_cellgate("help", command)
    assert (r.returncode, r.stdout) == (0, run_cellgate(command, "--help").stdout)
    assert f"  {command} " in run_cellgate("help").stdout


def test_version_with_details(run_cellgate: Run) -> None:
    short = run_cellgate("--version").stdout
    r = run_cellgate("version")
    assert r.returncode == 0
    lines = r.stdout.splitlines()
    assert lines[0] + "\n" == short
    assert [line.split()[0] for line in lines[1:]] == ["commit", "build", "built", "python", "kernels"]
    assert all(name in lines[3] for name in ("libzmq", "jansson", "libseccomp"))


def test_a_module_that_cannot_be_preloaded_is_told_once(run_cellgate: Run) -> None:
    r = run_cellgate("run", "--preload", "nosuch", "-c", "1")
    assert r.returncode == 2
    assert r.stderr.count("nosuch: ") == 1 and len(r.stderr.splitlines()) == 1, r.stderr
    assert r.stderr.endswith("cannot preload nosuch: ModuleNotFoundError: No module named 'nosuch'\n")


def test_tools_that_are_no_json_name_the_file(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{\n")
    r = run_cellgate("gen", "x", "--out", "o", "--tools", "bad.json")
    assert (r.returncode, r.stderr) == (2, "cellgate gen: bad.json: line 2 column 1: a string should stand here\n")
    r = run_cellgate("gen", "x", "--out", "o", "--tools", "-", input="[")
    assert r.stderr.startswith("cellgate gen: standard input: line 1")
