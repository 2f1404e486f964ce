"""Files that the user's own settings name in the workspace: programs outside obey them, so cells cannot write them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cellgate_api import Client

SETTINGS = {
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
}
KERNELS = pytest.mark.parametrize("settings", [None, SETTINGS], ids=["default", "settings"])

PUT = """
import os
def put(path):
    try:
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        with open(path, 'w') as f:
            return f.write('pwn') > 0
    except OSError as e:
        return e.strerror
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home folder, without variables that name other git settings."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def client(home: Path) -> Client:
    """Of this user: a supervisor takes the home folder from the program that starts it."""
    with Client(log_level=0) as c:
        yield c


def refused(value: str | None) -> bool:
    return value in ("'Permission denied'", "'Read-only file system'")


@KERNELS
def test_hooks_of_all_repositories(client: Client, home: Path, workspace: Path, settings: dict | None) -> None:
    """The first kernel, the next one, and one that was started in advance; git outside runs nothing of a cell's."""
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    (home / ".gitconfig").write_text(f"[core]\n\thooksPath = {workspace}/shared/hooks\n")
    for _ in range(3):
        with client.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
            for _ in range(2):
                s.run(PUT)
                assert refused(s.run("put('shared/hooks/pre-commit')").value)
                assert s.run("put('shared/other') and put('hooks/pre-commit')").value == "True"
                s.reset()
    commit = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "--allow-empty", "-m", "m"]
    subprocess.run(commit, cwd=workspace, check=True)
    assert not (workspace / "shared/hooks").exists()


@KERNELS
def test_an_mcp_server_in_such_a_folder(client: Client, home: Path, workspace: Path, settings: dict | None) -> None:
    """That the user's settings protect it already must not leave it without protection of its own."""
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    folder = workspace / "shared/hooks"
    folder.mkdir(parents=True)
    server = folder / "server.py"
    shutil.copy(Path(__file__).parent / "echo_server.py", server)
    (home / ".gitconfig").write_text(f"[core]\n\thooksPath = {folder}\n")
    before = server.read_bytes()
    with client.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
        s.add_servers({"echo": {"command": sys.executable, "args": [str(server)]}})
        s.run(PUT)
        assert refused(s.run(f"put({str(server)!r})").value)
        assert refused(s.run(f"put({str(folder / 'json.py')!r})").value)
        assert s.run("put('ordinary')").value == "True"
    assert server.read_bytes() == before
    assert os.listdir(folder) == ["server.py"]
