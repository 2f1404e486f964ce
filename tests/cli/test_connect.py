"""`cellgate run --connect`: cells on another machine, here this one, and nodes that are none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

NODE = Path(__file__).parent.parent / "relay/node.py"
CUTTER = NODE.with_name("cutter.py")
FRAMES = {
    "unknown-type": "a frame of no known type",
    "too-long": "a frame that is too long",
    "opens": "a channel that cannot be opened",
    "no-channel": "bytes of no channel",
    "ends-nothing": "a channel that ended twice",
    "ends-twice": "a channel that ended twice",
    "after-end": "more than it was allowed to send",
    "credit": "more taken than was sent",
    "window": "more than it was allowed to send",
    "garbage": "",
}


def run(prefix: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(prefix / "bin/cellgate"), "run", *words]
    env = {**os.environ, "PATH": f"{prefix}/bin:{os.environ['PATH']}"}
    return subprocess.run(argv, capture_output=True, text=True, cwd=folder, env=env, timeout=120)


def node(prefix: Path, how: str) -> str:
    return f"{sys.executable} -B {NODE} {how} {prefix}/bin/cellgate relay"


def test_a_cell_there(prefix: Path, tmp_path: Path) -> None:
    there = f"env THERE='a b' {prefix}/bin/cellgate relay"
    code = "import os\nprint(os.getcwd())\nraise SystemExit(3)"
    p = run(prefix, tmp_path, "--connect", there, "--workspace", str(tmp_path), "-c", code)
    assert p.stdout == f"{tmp_path}\n" and p.returncode == 1
    p = run(prefix, tmp_path, "--connect", "env", "-c", "6 * 7")
    assert (p.stdout, p.stderr, p.returncode) == ("42\n", "", 0)
    p = run(prefix, tmp_path, "--connect", node(prefix, "motd"), "-c", "print('x' * 3_000_000)")
    assert (len(p.stdout), p.returncode) == (3_000_001, 0)


def test_other_languages_there(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("console.log(await 42)")
    (tmp_path / "a.sh").write_text("echo $((6 * 7)); exit 3")
    workspace = ["--connect", "env", "--workspace", str(tmp_path)]
    for file, status in (("a.js", 0), ("a.sh", 1)):
        p = run(prefix, tmp_path, *workspace, file)
        assert (p.stdout, p.returncode) == ("42\n", status), p.stderr
    p = run(prefix, tmp_path, *workspace, "--language", "shell", "--exec", "deny", "-c", "/bin/ls; echo $?")
    assert p.stdout == "126\n" and "the sandbox refused running" in p.stderr


def test_a_tool_of_this_machine(prefix: Path, tmp_path: Path) -> None:
    server = {"command": "/usr/bin/python3", "args": [str(Path(__file__).parents[1] / "api/echo_server.py")]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"e": server}}))
    code = "from mcptools.e import echo\necho.run(text='there and back')"
    words = ["--connect", "env", "--mcp", "mcp.json", "-c", code]
    assert "'there and back'" in run(prefix, tmp_path, "--approve", "e.echo", *words).stdout
    assert "RejectedError" in run(prefix, tmp_path, *words).stderr


@pytest.mark.parametrize(("detach", "goes_on"), [("0", False), ("20", True)])
def test_how_long_a_lost_link_is_waited_for(prefix: Path, tmp_path: Path, detach: str, goes_on: bool) -> None:
    (tmp_path / "cut-0").write_text("from 20000")
    there = f"{sys.executable} -B {CUTTER} {tmp_path} {prefix}/bin/cellgate relay"
    p = run(prefix, tmp_path, "--connect", there, "--detach", detach, "-c", "print('x' * 50_000)", "-c", "6 * 7")
    assert p.stdout.endswith("x\n42\n") == goes_on and (p.returncode == 0) == goes_on
    assert (tmp_path / "starts").read_text().count("x") == 1 + goes_on


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--connect", "false"], "it ended before a relay of cellgate answered"),
        (["--connect", "env", "--audit", "strict"], "cannot be combined"),
        (["--kernel-env", sys.prefix, "--connect", "env"], "give --connect before --kernel-env"),
        (["--connect", "env", "--kernel-env", "nope"], "the node: there is no environment nope"),
        (["--connect", "env", "--workspace", "/no/where"], "/no/where: No such file"),
        (["--connect", "env", "--sync", "none"], "--sync: the folder was not copied"),
        (["--detach", "5"], "--detach is for --connect"),
        (["--connect", "env", "--detach", "never"], "--detach needs seconds"),
        (["--connect", "env", "--detach", "3601"], "--detach is at most 3600 seconds"),
    ],
)
def test_what_cannot_be(prefix: Path, tmp_path: Path, words: list[str], why: str) -> None:
    p = run(prefix, tmp_path, *words, "-c", "1")
    assert p.returncode == 2 and why in p.stderr, p.stderr


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("says", r"it printed: cellgate: command not found\\x1b"),
        ("other-wire", r"this host has cellgate .* \(wire \d+, relay \d+\), and the node 9.9.9 \(wire 99, relay \d+\)"),
        ("no-object", "first line"),
        ("endless", "the other side is no relay of cellgate"),
    ],
)
def test_no_node(prefix: Path, tmp_path: Path, how: str, why: str) -> None:
    p = run(prefix, tmp_path, "--connect", node(prefix, how), "-c", "1")
    assert p.returncode == 2 and re.search(why, p.stderr), p.stderr


@pytest.mark.parametrize("how", FRAMES)
def test_frames_that_a_node_must_not_send(prefix: Path, tmp_path: Path, how: str) -> None:
    p = run(prefix, tmp_path, "--connect", node(prefix, how), "-c", "1")
    assert p.returncode == 2 and f"broke the protocol: {FRAMES[how]}" in p.stderr, p.stderr
