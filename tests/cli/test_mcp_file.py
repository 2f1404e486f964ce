"""The file of --mcp names commands that run outside the sandbox: cells can neither read it nor change what the next run starts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

ATTEMPTS = [
    "open('conf/servers.json').read()",
    "open('conf/servers.json', 'w')",
    "os.unlink('conf/servers.json')",
    "os.rename('conf/servers.json', 'conf/x')",
    "os.replace('mine', 'conf/servers.json')",
    "os.link('conf/servers.json', 'x')",
    "os.rename('conf', 'x')",
]


@pytest.fixture
def settings(server, tmp_path: Path) -> Path:
    """The server's settings, in a folder of the workspace."""
    file = tmp_path / "conf" / "servers.json"
    file.parent.mkdir()
    file.write_bytes(server.mcp.read_bytes())
    (tmp_path / "mine").write_text('{"evil": {"command": "/bin/false"}}')
    return file


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_cells_can_neither_read_nor_change_it(run_cellgate: Run, settings: Path, tmp_path: Path, attempt: str) -> None:
    before = settings.read_bytes()
    cell = f"import os, mcptools.fs\nopen('made', 'w').close()\ntry:\n    {attempt}\n    print('done')\nexcept OSError:\n    print('denied')"
    r = run_cellgate("run", "--mcp", "conf/servers.json", "-c", cell)
    assert (r.returncode, r.stdout) == (0, "denied\n")
    told = f"[cellgate] the sandbox refused reading {settings}: " if attempt.endswith(".read()") else ""
    assert r.stderr.startswith(told) and r.stderr.count("\n") == bool(told)
    assert (tmp_path / "made").exists()
    assert settings.read_bytes() == before


@pytest.mark.parametrize("path", ["link.json", "folder/servers.json", "./folder/../link.json", "{}/link.json"])
def test_link_in_the_workspace_is_refused(run_cellgate: Run, settings: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "link.json").symlink_to(settings)
    (tmp_path / "folder").symlink_to("conf")
    r = run_cellgate("run", "--mcp", path.format(tmp_path), "-c", "print('ran')")
    assert (r.returncode, r.stdout) == (2, "")
    assert "is a symbolic link in the workspace" in r.stderr


def test_link_elsewhere_is_fine(run_cellgate: Run, server, tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("links") / "link.json"
    link.symlink_to(server.mcp)
    r = run_cellgate(
        "run",
        "--mcp",
        link,
        "-c",
        f"import mcptools.fs\ntry: open({str(server.mcp)!r})\nexcept OSError as e: print(type(e).__name__)",
    )
    assert r.returncode == 0, r.stderr
