"""Bad input to every command: a message that names the thing, status 2, no output, nothing left behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SERVER = str(Path(__file__).parent / "data/server.py")

# (arguments, what is said)
COMMAND_LINES = json.loads((Path(__file__).parent / "data/command_lines.json").read_text())


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
    (tmp_path / "servers.json").write_text(
        json.dumps({"fs": {"command": "/usr/bin/python3", "args": [SERVER, "broken"]}})
    )
    r = run_cellgate("run", "--mcp", "servers.json", "-c", "1")
    assert r.returncode == 2
    assert "no such database" in r.stderr


def test_control_characters_in_arguments_do_not_reach_the_terminal(run_cellgate: Run) -> None:
    r = run_cellgate("run", "--\x1b[2J")
    assert "\x1b" not in r.stderr
    assert "\\x1b[2J" in r.stderr


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
