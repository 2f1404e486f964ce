"""A folder that is copied to a node and back. The copy is changed by cells, or as a node that lies would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from relay.conftest import wait_until

if TYPE_CHECKING:
    import cellgate

PUT = """
import os
open('made', 'w').write('42')
open('both', 'w').write('there')
open('only there', 'w').write('there')
os.chmod('program', 0o755)
os.unlink('sub/gone')
os.rmdir('sub')
os.makedirs('new/deep')
os.symlink('deep', 'new/link')
os.symlink('..data/x', '..link')
os.unlink('to a folder')
os.mkdir('to a folder')
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    for name in ("both", "program", "sub/gone", "here", "to a folder", "..data"):
        (folder / name).write_text("old")
    (folder / "program").chmod(0o600)
    (folder / ".env").write_text("SECRET=1")
    (folder / ".bashrc").write_text("mine")
    (folder / ".vscode").mkdir()
    (folder / "outside").symlink_to(tmp_path)
    os.mkfifo(folder / "fifo")
    return folder


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def tree(folder: Path) -> dict[str, Any]:
    return {
        str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_text() if p.is_file() else None
        for p in folder.rglob("*")
    }


def test_there_and_back(client: cellgate.Client, folder: Path, there: Path) -> None:
    import cellgate

    before = tree(folder)
    with cellgate.Sync(folder, client, there) as copy:
        assert tree(Path(copy.path)) == {k: v for k, v in before.items() if k not in (".env", "fifo")}
        # Modes are not copied: others of that machine must read nothing.
        modes = {p.name[len(Path(copy.path).name) :]: p.stat().st_mode & 0o777 for p in there.iterdir()}
        assert modes == {"": 0o700, ".archive": 0o600}
        with cellgate.Session(copy.path, client=client) as session:
            session.run(PUT).check()
        (folder / "both").write_text("here")
        (folder / "here").write_text("new")
        (folder / "sub/late").write_text("new")
    assert copy.report
    assert sorted(copy.report.pop("changed")) == [
        "..link", "made", "new", "new/deep", "new/link", "only there", "program", "to a folder"
    ]  # fmt: skip
    kept = {"both": "both.theirs", "sub": None}
    assert copy.report == {"removed": ["sub/gone"], "kept": kept, "refused": {}, "skipped": [], "left": None}
    changes = {"made": "42", "both": "here", "both.theirs": "there", "only there": "there", "here": "new"}
    changes |= {"new": None, "new/deep": None, "new/link": "deep", "..link": "..data/x"}
    changes |= {"to a folder": None, "sub/late": "new"}
    assert tree(folder) == {k: v for k, v in (before | changes).items() if k != "sub/gone"}
    assert (folder / "program").stat().st_mode & 0o777 == 0o700, "others still may not read it"
    assert not list(there.iterdir())


def test_what_cannot_be_read_there_is_not_removed_here(client: cellgate.Client, folder: Path, there: Path) -> None:
    import cellgate

    before = tree(folder)
    with cellgate.Sync(folder, client, there) as copy, cellgate.Session(copy.path, client=client) as session:
        session.run("import os\nos.chmod('both', 0)\nos.chmod('sub', 0)").check()
    assert copy.report and sorted(copy.report["skipped"]) == ["both", "sub"] and copy.report["left"] == copy.path
    assert copy.report["removed"] == [] and tree(folder) == before


OBEYED = (".bashrc", ".envrc", ".vscode/tasks.json", ".git/config", ".git/hooks/pre-commit", ".Bashrc", "new/.mcp.json")


def test_names_that_programs_of_this_machine_obey(client: cellgate.Client, folder: Path, there: Path) -> None:
    import cellgate

    subprocess.run(["git", "init", "-q", folder], check=True)
    before = tree(folder)
    with cellgate.Sync(folder, client, there) as copy:
        node = Path(copy.path)
        (node / "new").mkdir()
        for name in (*OBEYED, ".env", "servers.json"):
            (node / name).write_text("evil")
        (node / "fine").write_text("1")
        (node / "outside").unlink()
        (node / "outside").symlink_to("/etc")
        (node / "up").symlink_to("../x")
    assert copy.report and set(copy.report["refused"]) == {*OBEYED, ".env", "outside", "up"}
    assert tree(folder) == before | {"fine": "1", "new": None, "servers.json": "evil"}
    assert copy.report["left"] == copy.path and (node / ".bashrc").read_text() == "evil"


HOSTILE: dict[str, dict[str, Any]] = {
    "above": {"entries": {"../evil": ["file", 1, False, ""]}},
    "absolute": {"entries": {"/tmp/evil": ["file", 1, False, ""]}},
    "above-in-the-middle": {"entries": {"sub/../../evil": ["file", 1, False, ""]}},
    "the-folder": {"entries": {".": ["link", "sub"]}},
    "no-name": {"entries": {"": ["dir"]}},
    "through-a-link": {"entries": {"outside/evil": ["file", 1, False, ""]}},
    "through-a-link-of-its-own": {"entries": {"l": ["link", "sub"], "l/gone": ["file", 1, False, ""]}},
    "out-by-a-link-of-its-own": {"entries": {"l": ["link", "."], "x": ["link", "l/../evil"]}},
    "device": {"entries": {"d": ["device", 1, 3]}},
    "zero-byte": {"entries": {"a\0b": ["file", 1, False, ""]}},
    "half-a-character": {"entries": {"\ud800": ["file", 1, False, ""]}},
    "shorter-than-it-says": {"entries": {"here": ["file", 99, False, ""]}},
    "removes-above": {"removed": ["../both", "/etc/hostname", "outside/folder"]},
    "bytes-twice": {"entries": {"a": ["file", -(1 << 40), False, ""], "b": ["file", 1 << 40, False, ""]}},
    "huge": {"entries": {"a": ["file", 1 << 40, False, ""]}},
    "many": {"removed": [""] * 100_001},
    "no-list": {"entries": [1]},
    "no-entry": {"entries": {"a": 7}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_that_is_none(client: cellgate.Client, folder: Path, there: Path, name: str) -> None:
    """Only a link of its own, in the folder, is made. All that was refused is named, or the whole archive."""
    import cellgate

    index = json.dumps({"entries": {}, "removed": []} | HOSTILE[name])
    before = tree(folder.parent)
    copy = cellgate.Sync(folder, client, there)
    code = f"sync.Side.pack = lambda self, name: open(name, 'w').write({index!r} + '\\n' + 'x')"
    copy._there.run(code).check()  # type: ignore[union-attr] # the node's kernel
    if name in ("bytes-twice", "huge", "many", "no-list", "no-entry"):
        with pytest.raises(cellgate.CellgateError, match="not all was brought back|is no list of changes"):
            copy.close()
    else:
        copy.close()
        report = copy.report or {}
        wanted = [*HOSTILE[name].get("entries", {}), *HOSTILE[name].get("removed", [])]
        assert set(report["refused"]) == set(wanted) - {"l"}
    after = {k: v for k, v in tree(folder.parent).items() if not k.startswith("there/")}
    assert after == before | ({"folder/l": HOSTILE[name]["entries"]["l"][1]} if "own" in name else {})


@pytest.mark.parametrize("how", ["endless", "ended", "no-room-here"])
def test_a_node_that_sends_no_end_or_is_gone(
    client: cellgate.Client, folder: Path, there: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cellgate

    before = tree(folder)
    copy = cellgate.Sync(folder, client, there)
    if how == "ended":
        client.close()
    elif how == "no-room-here":
        monkeypatch.setattr("tempfile.tempdir", str(there / "none"))
    else:
        monkeypatch.setattr("cellgate._sync._LIMIT", 16 << 20)  # a node of the tests takes seconds for 1 GiB
        code = (
            "import os; sync.Side.pack = lambda self, name: os.truncate(os.open(name, os.O_CREAT | os.O_RDWR), 1 << 40)"
        )
        copy._there.run(code).check()  # type: ignore[union-attr]
    with pytest.raises(cellgate.CellgateError, match=f"not all was brought back from {copy.path}"):
        copy.close()
    assert tree(folder) == before and copy.report is None
    if how != "ended":
        assert [str(p) for p in there.iterdir()] == [copy.path], "no archive beside it"


def test_too_much(client: cellgate.Client, folder: Path, there: Path) -> None:
    import cellgate

    os.truncate(folder / "here", 1 << 42)  # it would take hours to read
    with pytest.raises(cellgate.CellgateError, match="its files have more than 1024 MiB"):
        cellgate.Sync(folder, client, there)
    assert not list(there.iterdir())


def test_a_copy_that_cannot_be_made(
    client: cellgate.Client, folder: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cellgate

    monkeypatch.setitem(cellgate._sync._SETTINGS, "cellgate", {})
    with pytest.raises(cellgate.CellgateError, match=r"\.bashrc"):
        cellgate.Sync(folder, client, there)
    assert not list(there.iterdir()), "neither the copy nor its archive"


def words(relay: list[str], folder: Path, there: Path) -> list[str]:
    return [relay[0], "run", "--connect", " ".join(relay), "--sync", str(folder), "--workspace", str(there)]


def test_run(package: Any, relay: list[str], folder: Path, there: Path) -> None:
    """The files that the command obeys stay as they are; the folder comes back also after a kernel has died."""
    servers = folder / "servers.json"
    servers.write_text('{"mcpServers": {}}')
    cells = ["open('servers.json', 'w').write('x'); open('a', 'w')", "import os; os._exit(1)"]
    argv = [*words(relay, folder, there), "--mcp", servers, "-c", cells[0], "-c", cells[1]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "--sync: 1 changed and 0 removed in this folder" in done.stderr
    assert '"servers.json" was not brought back: ' in done.stderr
    assert servers.read_text() == '{"mcpServers": {}}' and (folder / "a").exists()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_run_that_is_ended(package: Any, relay: list[str], folder: Path, there: Path, sig: signal.Signals) -> None:
    code = "open('a', 'w'); print('made', flush=True); import time; time.sleep(600)"
    with subprocess.Popen([*words(relay, folder, there), "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout and run.stdout.readline() == "made\n"
        run.send_signal(sig)
    wait_until((folder / "a").exists, "the folder came back")
    wait_until(lambda: not list(there.iterdir()), "the copy was removed")


def test_run_without_a_folder(package: Any, relay: list[str], tmp_path: Path) -> None:
    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([relay[0], "run", *more, "-c", "1"], capture_output=True, text=True, check=False)

    done = run("--connect", " ".join(relay), "--sync", str(tmp_path / "none"))
    assert done.returncode == 2 and "none: No such file" in done.stderr and "the folder was not copied" in done.stderr
    done = run("--sync", str(tmp_path))
    assert done.returncode == 2 and "--sync is for --connect" in done.stderr


def test_run_with_a_path_that_is_too_long(relay: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' a\n")
    program.chmod(0o755)
    monkeypatch.setenv("CELLGATE_PYTHON", str(program))
    argv = [relay[0], "run", "--connect", " ".join(relay), "--sync", str(tmp_path), "-c", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "the folder was not copied" in done.stderr
