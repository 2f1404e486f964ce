"""`cellgate gen`: packages from a file, standard input or a server, and what it says about tools that do not fit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def tool(name: Any, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def test_from_a_file(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps({"tools": [tool("read", path={"type": "string"}), tool("write")]}))
    r = run_cellgate("gen", "my-files", "--out", "mcptools", "--tools", "tools.json")
    assert (r.returncode, r.stdout, r.stderr) == (0, "mcptools/my_files: 2 tools\n", "")
    assert {p.name for p in (tmp_path / "mcptools/my_files").iterdir()} >= {"__init__.py", "read.py", "write.py"}


def test_the_root_package_is_written_too(run_cellgate: Run, tmp_path: Path) -> None:
    """A second server joins it; a package of somebody else is left alone."""
    for name in ("one", "two"):
        r = run_cellgate("gen", name, "--out", "mcptools", "--tools", "-", input=json.dumps([tool("read")]))
        assert r.returncode == 0
    stubs = Path(__file__).resolve().parent.parent.parent / "python_stubs"
    code = f"import sys; sys.path[:0] = [{str(stubs)!r}, '.']; import mcptools; print(dir(mcptools), mcptools.search())"
    done = subprocess.run([sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert all(f"'{n}'" in done.stdout for n in ("one", "two", "search")), done
    assert "one.read() -> Text" in done.stdout
    (tmp_path / "mcptools/__init__.py").write_text("mine = 1\n")
    r = run_cellgate("gen", "three", "--out", "mcptools", "--tools", "-", input=json.dumps([tool("read")]))
    assert r.returncode == 2
    assert "__init__.py" in r.stderr
    assert (tmp_path / "mcptools/__init__.py").read_text() == "mine = 1\n"


def test_from_standard_input(run_cellgate: Run, tmp_path: Path) -> None:
    r = run_cellgate("gen", "fs", "--out=o", "--tools=-", input=json.dumps([tool("read")]))
    assert (r.returncode, r.stdout) == (0, "o/fs: 1 tool\n")
    assert (tmp_path / "o/fs/read.py").exists()


def test_from_a_server(run_cellgate: Run, tmp_path: Path, make_server) -> None:
    server = make_server("read", "write")
    definition = json.loads(server.mcp.read_text())["mcpServers"]["fs"]
    r = run_cellgate("gen", "fs", "--out", "o", "--timeout", "20", "--", definition["command"], *definition["args"])
    assert (r.returncode, r.stdout, r.stderr) == (0, "o/fs: 2 tools\n", "")
    assert (tmp_path / "o/fs/write.py").exists()


def test_words_behind_the_dashes_are_the_servers(run_cellgate: Run) -> None:
    """--out and --help there belong to the command."""
    server = [sys.executable, "-c", "import sys; sys.exit(sys.argv[1:])", "--help", "--out"]
    r = run_cellgate("gen", "fs", "--out", "o", "--", *server)
    assert r.returncode == 2
    assert "Usage" not in r.stdout


def test_1_when_a_tool_is_rejected(run_cellgate: Run, tmp_path: Path) -> None:
    tools = [tool("good"), tool("bad\x1b[2J\n[cellgate]") | {"inputSchema": "no schema"}, {"inputSchema": {}}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    r = run_cellgate("gen", "fs", "--out", "o", "--tools", "tools.json")
    assert r.returncode == 1
    assert r.stdout == "o/fs: 1 tool; 2 rejected\n"
    lines = r.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("[cellgate] fs: ") and " is rejected: " in line for line in lines)
    assert "\x1b" not in r.stderr
    assert (tmp_path / "o/fs/good.py").exists()


def test_verbose_names_what_is_typed_less_closely(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps([tool("t", a={"$ref": "#/nowhere"})]))
    quiet = run_cellgate("gen", "fs", "--out", "o", "--tools", "tools.json")
    loud = run_cellgate("gen", "fs", "--out", "o", "--tools", "tools.json", "--verbose")
    assert quiet.returncode == loud.returncode == 0
    assert "--verbose says how" in quiet.stdout
    assert quiet.stderr == ""
    assert "fs: t is degraded: " in loud.stderr


@pytest.mark.parametrize("tools", ["", "{", "[1", '{"tools": 1}', "null"])
def test_2_without_a_tool_list(run_cellgate: Run, tmp_path: Path, tools: str) -> None:
    (tmp_path / "tools.json").write_text(tools)
    r = run_cellgate("gen", "fs", "--out", "o", "--tools", "tools.json")
    assert (r.returncode, r.stdout) == (2, "")
    assert r.stderr.startswith("cellgate gen: ")
    assert not (tmp_path / "o/fs").exists()


def test_2_leaves_the_old_package(run_cellgate: Run, tmp_path: Path) -> None:
    assert run_cellgate("gen", "fs", "--out", "o", "--tools", "-", input=json.dumps([tool("read")])).returncode == 0
    assert run_cellgate("gen", "fs", "--out", "o", "--tools", "-", input="{").returncode == 2
    assert (tmp_path / "o/fs/read.py").exists()


def test_2_when_the_server_fails(run_cellgate: Run, tmp_path: Path) -> None:
    script = Path(__file__).parent / "data/server.py"
    r = run_cellgate("gen", "fs", "--out", "o", "--", sys.executable, script, "broken")
    assert (r.returncode, r.stdout) == (2, "")
    assert "fs" in r.stderr
    assert not (tmp_path / "o").exists()


def test_2_when_the_server_says_nothing(run_cellgate: Run, tmp_path: Path) -> None:
    r = run_cellgate("gen", "fs", "--out", "o", "--timeout", "0.5", "--", "sleep", "100")
    assert r.returncode == 2
    assert r.stderr.startswith("cellgate gen: ") and "500 ms" in r.stderr


def test_real_server(run_cellgate: Run, npm_dir: Path, tmp_path: Path) -> None:
    server = npm_dir / "node_modules/.bin/mcp-server-filesystem"
    r = run_cellgate("gen", "filesystem", "--out", "o", "--", server, tmp_path, timeout=60)
    assert r.returncode == 0, r.stderr
    assert (tmp_path / "o/filesystem/read_text_file.py").exists()
