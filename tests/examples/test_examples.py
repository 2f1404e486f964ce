"""The examples, built and run as their README says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SERVER = Path(__file__).parent.parent / "cli/data/server.py"
CODE = "from mcptools.fs import read_file, write_file\nprint(read_file.run(path='/x'))\nwrite_file.run(path='/y')"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def mcp(tmp_path: Path, journal: Path) -> Path:
    tools = tmp_path / "tools.json"
    tools.write_text('["read_file", "write_file"]')
    path = tmp_path / "mcp.json"
    server = {"command": "/usr/bin/python3", "args": [str(SERVER), str(tools), str(journal)]}
    path.write_text(json.dumps({"mcpServers": {"fs": server}}))
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def run(argv: list[str | Path], cwd: Path, input: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(a) for a in argv],
        cwd=cwd,
        input=input,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )


def test_minimal(build_dir: Path, workspace: Path) -> None:
    r = run([build_dir / "examples/minimal"], workspace)
    assert (r.returncode, r.stdout, r.stderr) == (0, "factorials\n[1, 1, 2, 6, 24, 120, 720, 5040]\nok\n", "")


def test_minimal_builds_outside_the_repository(prefix: Path, repo: Path, workspace: Path) -> None:
    """Built with pkg-config's flags of the installed library, as the file's first line shows."""
    config = next(prefix.glob("lib/**/pkgconfig"))
    flags = run(["pkg-config", "--cflags", "--libs", "cellgate"], workspace, PKG_CONFIG_PATH=str(config))
    assert flags.returncode == 0, flags.stderr
    program = workspace / "minimal"
    source = repo / "examples/minimal.c"
    built = run(["cc", "-std=c11", "-Wall", "-Werror", "-o", program, source, *flags.stdout.split()], workspace)
    assert built.returncode == 0, built.stderr
    if os.environ.get("CG_SANITIZED"):
        pytest.skip("a program without sanitizer cannot load a library with it")
    r = run([program], workspace)
    assert (r.returncode, r.stdout.splitlines()[-1]) == (0, "ok")


def test_commands(build_dir: Path, workspace: Path) -> None:
    program = build_dir / "examples/commands"
    r = run([program, "bash", "-c", "echo out; echo err >&2; exit 3"], workspace)
    assert (r.returncode, r.stdout, r.stderr) == (0, 'out\nok {"exit_code":3} \nwritten by the host\n', "err\n")
    r = run([program, "no-such-program"], workspace)
    assert r.returncode == 0 and r.stdout.startswith("error {} ") and "no-such-program" in r.stdout
    assert run([program], workspace).returncode == 2


def test_functions(build_dir: Path, workspace: Path) -> None:
    r = run([build_dir / "examples/functions"], workspace)
    assert (r.returncode, r.stderr) == (1, "")
    assert r.stdout.startswith("['ONE', 'TWO']\n") and "RejectedError" in r.stdout and "not no" in r.stdout


def test_agent(prefix: Path, repo: Path, workspace: Path) -> None:
    program = [sys.executable, repo / "examples/agent.py", workspace]
    r = run(program, workspace, CELLGATE=str(prefix / "bin/cellgate"))
    assert r.returncode == 0, r.stderr
    assert "['ada@example.org', 'bob@example.org']\n" in r.stdout
    assert "ToolError: there is no such person\n" in r.stdout
    assert r.stdout.count("[host] to ") == 1 and "[host] to ada@example.org: hello\n" in r.stdout
    assert "RejectedError" in r.stdout and "not a person we know" in r.stdout


def test_approve(build_dir: Path, mcp: Path, journal: Path, workspace: Path) -> None:
    r = run([build_dir / "examples/approve", mcp, CODE], workspace, input="y\nn\n")
    assert r.returncode == 1
    assert "read_file done" in r.stdout
    assert "RejectedError" in r.stdout
    assert [json.loads(line)["tool"] for line in journal.read_text().splitlines()] == ["read_file"]


@pytest.mark.parametrize("answers", ["", "yes\n", "Y\n", " y\n", "\n"])
def test_approve_takes_only_y_for_yes(build_dir: Path, mcp: Path, journal: Path, workspace: Path, answers: str) -> None:
    r = run([build_dir / "examples/approve", mcp, CODE], workspace, input=answers)
    assert r.returncode == 1
    assert not journal.exists()


def test_approve_without_arguments(build_dir: Path, workspace: Path) -> None:
    r = run([build_dir / "examples/approve"], workspace)
    assert (r.returncode, r.stdout) == (2, "")
    assert "usage" in r.stderr


def test_host(prefix: Path, repo: Path, mcp: Path, journal: Path, workspace: Path) -> None:
    r = run([sys.executable, repo / "examples/host.py", mcp, CODE], workspace, CELLGATE=str(prefix / "bin/cellgate"))
    assert r.returncode == 4
    assert "[host] fs.read_file: accepted\n" in r.stdout
    assert "[host] fs.write_file: refused\n" in r.stdout
    assert "read_file done\n" in r.stdout
    assert "this host only lets you read" in r.stdout
    assert [json.loads(line)["tool"] for line in journal.read_text().splitlines()] == ["read_file"]


def test_readme_names_every_example(repo: Path) -> None:
    text = (repo / "examples/README.md").read_text()
    names = {p.name for p in (repo / "examples").iterdir() if p.is_file()} - {"README.md", "meson.build"}
    assert names == {n for n in re.findall(r"`([\w.]+\.(?:c|py|json))`", text) if not n.startswith("MCP.")}


def test_every_framework_has_an_example(repo: Path) -> None:
    """tests/integrations/soak_examples.py runs them with the frameworks."""
    modules = {p.stem for p in (repo / "python/cellgate/integrations").glob("[!_]*.py")}
    assert {p.stem.removeprefix("with_") for p in (repo / "examples/frameworks").glob("*.py")} == modules


def test_loop(prefix: Path, repo: Path, mcp: Path, workspace: Path, journal: Path) -> None:
    cells = ["x = 20; 1/0", "x + 22", CODE, "while True: pass", "print('on')"]
    program = [sys.executable, repo / "examples/loop.py", mcp, *cells]
    r = run(program, workspace, CELLGATE=str(prefix / "bin/cellgate"))
    assert r.returncode == 0, r.stderr
    assert "ZeroDivisionError: division by zero\n[error]\n>>> x + 22\n42\n[ok]\n" in r.stdout
    assert "read_file done\nRejectedError: " in r.stdout
    assert "[timeout]\n>>> print('on')\non\n[ok]\n" in r.stdout
    assert [json.loads(line)["tool"] for line in journal.read_text().splitlines()] == ["read_file"]


def test_loop_tells_of_code_that_is_refused(prefix: Path, repo: Path, mcp: Path, workspace: Path) -> None:
    program = """
import loop, sys
cellgate = loop.Cellgate(sys.argv[1])
for code in "'\\ud800'", "#" * (16 * 2**20 + 1), "#" * 18 * 2**20, "print('on')":
    try: print(cellgate.run(code))
    except ValueError as e: print("refused:", e)
sys.exit(cellgate.close())
"""
    paths = {"CELLGATE": str(prefix / "bin/cellgate"), "PYTHONPATH": str(repo / "examples")}
    r = run([sys.executable, "-c", program, mcp], workspace, **paths)
    assert r.returncode == 0, r.stderr
    lines = r.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["refused"] * 3 + ["on", "[ok]"]
