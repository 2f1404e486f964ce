"""`cellgate mcp add|list|show|remove|tools|call`: the servers of a file, and their tools."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import web

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SERVER = Path(__file__).resolve().parent.parent / "changing_server.py"
SECRET = "s3cr3t-314159"


def ok(r: subprocess.CompletedProcess[str]) -> str:
    assert (r.returncode, r.stderr) == (0, ""), (r.stdout, r.stderr)
    return r.stdout


def servers(file: Path) -> dict[str, object]:
    found = json.loads(file.read_text())["mcpServers"]
    assert isinstance(found, dict)
    return found


def test_a_long_url_is_listed(run_cellgate: Run, tmp_path: Path) -> None:
    url = "https://x.example/" + "a" * 70_000
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": {"url": url}}}))
    assert ok(run_cellgate("mcp", "list")).split() == ["x", "http", url]


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outside")


@pytest.fixture
def changing(tmp_path_factory: pytest.TempPathFactory, run_cellgate: Run) -> Path:
    """The server "s" in .mcp.json; the file of its tools."""
    tools = tmp_path_factory.mktemp("server") / "tools.json"
    read = {"name": "read", "description": "Does it.\nMore.", "inputSchema": {"type": "object"}}
    tools.write_text(json.dumps([read]))
    ok(run_cellgate("mcp", "add", "s", "--", "/usr/bin/python3", "-S", "-E", SERVER, tools))
    return tools


def test_add_list_show_remove(run_cellgate: Run, tmp_path: Path) -> None:
    assert run_cellgate("mcp", "list").stdout == ""
    add = run_cellgate(
        "mcp", "add", "notes", "--env", f"A={SECRET}", "--env", "B=${B}", "--", "/opt/notes", "--x", "-y"
    )
    assert ok(add) == "Added notes to .mcp.json\n"
    ok(
        run_cellgate(
            "mcp", "add", "wiki", "--header", f"Authorization: Bearer {SECRET}", "https://wiki.example/mcp?k=1"
        )
    )
    file = tmp_path / ".mcp.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert servers(file) == {
        "notes": {"command": "/opt/notes", "args": ["--x", "-y"], "env": {"A": SECRET, "B": "${B}"}},
        "wiki": {"url": "https://wiki.example/mcp?k=1", "headers": {"Authorization": f"Bearer {SECRET}"}},
    }
    listed = ok(run_cellgate("mcp", "list"))
    assert [line.split() for line in listed.splitlines()] == [
        ["notes", "stdio", "notes"],
        ["wiki", "http", "https://wiki.example/mcp?***"],
    ]
    assert json.loads(ok(run_cellgate("mcp", "show", "notes"))) == {
        "command": "/opt/notes",
        "args": ["--x", "-y"],
        "env": {"A": "***", "B": "${B}"},
    }
    shown = ok(run_cellgate("mcp", "show", "wiki"))
    assert SECRET not in shown + listed and "k=1" not in shown
    assert ok(run_cellgate("mcp", "remove", "notes")) == "Removed notes from .mcp.json\n"
    assert list(servers(file)) == ["wiki"]


@pytest.mark.parametrize(
    "word",
    [["--api-token", SECRET], [f"--password={SECRET}"], [f"API_KEY={SECRET}"], [f"https://x.example/?q={SECRET}"],
     [f"https://{SECRET}@x.example/"], [f"Authorization: Bearer {SECRET}"], [f"Authorization: Bearer {SECRET}="],
     [f"X-Api-Key:{SECRET}"], ["Authorization:", "Bearer", SECRET], [f"Bearer {SECRET}"]],
    ids=lambda w: w[0].replace(SECRET, "") + str(len(w[-1])),
)  # fmt: skip
def test_no_secret_of_arguments_is_shown(run_cellgate: Run, word: list[str]) -> None:
    ok(run_cellgate("mcp", "add", "x", "--", "prog", *word, "last"))
    shown = ok(run_cellgate("mcp", "show", "x"))
    assert SECRET not in shown and "***" in shown and "last" in shown
    assert SECRET not in ok(run_cellgate("mcp", "list"))


def test_what_paths_are(run_cellgate: Run, tmp_path: Path) -> None:
    """The lines that refusals name: relative paths begin in the current folder."""
    ok(run_cellgate("mcp", "add", "x", "--data", ".", "--data", "/srv/a", "--code", "tools", "--", "prog", "."))
    (one,) = servers(tmp_path / ".mcp.json").values()
    assert one == {"command": "prog", "args": ["."], "code": [f"{tmp_path}/tools"], "data": [str(tmp_path), "/srv/a"]}


def test_a_server_that_works_in_the_workspace(run_cellgate: Run, tmp_path: Path, outside: Path) -> None:
    """It is refused with the line to add, which `mcp add` writes."""
    server = ["--", "/usr/bin/python3", "-S", "-E", SERVER, outside / "tools.json", tmp_path]
    (outside / "tools.json").write_text("{}")
    ok(run_cellgate("mcp", "add", "s", *server))
    r = run_cellgate("run", "--mcp", ".mcp.json", "-c", "import mcptools.s")
    assert f'"data": [{json.dumps(str(tmp_path))}]' in r.stderr
    ok(run_cellgate("mcp", "remove", "s"))
    ok(run_cellgate("mcp", "add", "s", "--data", ".", *server))
    assert "cells can write" not in run_cellgate("run", "--mcp", ".mcp.json", "-c", "import mcptools.s").stderr


def test_a_change_keeps_the_rest_of_the_file(run_cellgate: Run, tmp_path: Path) -> None:
    text = {
        "zeta": [1, {"b": 1, "a": 2}],
        "mcpServers": {"old": {"command": "x", "unknown": {"k": None}}},
        "alpha": "\u00e9",
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(text))
    file.chmod(0o644)
    ok(run_cellgate("mcp", "add", "new", "--", "y"))
    found = json.loads(file.read_text())
    assert list(found) == ["zeta", "mcpServers", "alpha"] and list(found["zeta"][1]) == ["b", "a"]
    assert found["mcpServers"].pop("new") == {"command": "y", "args": []}
    assert found == text and file.stat().st_mode & 0o777 == 0o644
    assert not (tmp_path / ".mcp.json").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["mcp.json"]


def test_a_change_keeps_numbers(run_cellgate: Run, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    for number in ("0.1", "1e-07", "12345678901234567", "0.30000000000000004"):
        file.write_text('{"mcpServers": {}, "limit": ' + number + "}")
        ok(run_cellgate("mcp", "add", "new", "--", "y"))
        assert f'"limit": {number}' in file.read_text().replace("1e-7", "1e-07")


def test_two_changes_at_once(run_cellgate: Run, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for r in pool.map(lambda i: run_cellgate("mcp", "add", f"s{i}", "--", "x"), range(16)):
            ok(r)
    assert sorted(servers(tmp_path / ".mcp.json")) == sorted(f"s{i}" for i in range(16))


@contextmanager
def waiting(run_cellgate: Run, *args: str) -> Iterator[Future[subprocess.CompletedProcess[str]]]:
    """`cellgate mcp` with these arguments, which waits for its lock until the end of the context."""
    path = Path(os.environ["XDG_STATE_HOME"], "cellgate/mcp-files/lock")
    ok(run_cellgate("mcp", "add", "before", "--mcp", "before.json", "--", "y"))  # makes the lock
    with ThreadPoolExecutor(1) as pool, path.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = pool.submit(run_cellgate, "mcp", *args)
        while not done.done() and not waits_for(path):
            time.sleep(0.01)
        yield done
        fcntl.flock(lock, fcntl.LOCK_UN)


def waits_for(lock: Path) -> bool:
    """True when a process `cellgate mcp` has opened the lock."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"\0mcp\0" in (process / "cmdline").read_bytes() and any(
                os.readlink(fd) == str(lock) for fd in (process / "fd").iterdir()
            ):
                return True
        except OSError:
            continue
    return False


def test_a_link_that_is_made_during_a_change(run_cellgate: Run, tmp_path: Path) -> None:
    file, victim = tmp_path / "f.json", tmp_path / "victim.json"
    for at in (file, victim):
        at.write_text('{"mcpServers": {}}')
    with waiting(run_cellgate, "add", "x", "--mcp", "f.json", "--", "y") as done:
        file.unlink()
        file.symlink_to("victim.json")
    r = done.result()
    assert r.returncode == 2 and "is a symbolic link, and is not replaced" in r.stderr
    assert file.is_symlink() and victim.read_text() == '{"mcpServers": {}}'


def test_a_folder_that_becomes_a_link_during_a_change(run_cellgate: Run, tmp_path: Path) -> None:
    """The file in the folder of before is changed, and none where the link leads to."""
    folder, victim = tmp_path / "conf", tmp_path / "victim"
    for at in (folder, victim):
        at.mkdir()
        (at / "f.json").write_text('{"mcpServers": {}}')
    with waiting(run_cellgate, "add", "x", "--mcp", "conf/f.json", "--", "y") as done:
        folder.rename(tmp_path / "moved")
        folder.symlink_to("victim")
    ok(done.result())
    assert list(servers(tmp_path / "moved/f.json")) == ["x"] and servers(victim / "f.json") == {}
    assert [p.name for p in victim.iterdir()] == ["f.json"]


def test_a_cell_cannot_hold_the_lock(run_cellgate: Run, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # as any cell can
        ok(run_cellgate("mcp", "add", "x", "--", "y"))
    finally:
        os.close(folder)
    code = "import os; open(os.path.join(os.environ['STATE'], 'cellgate/mcp-files/lock'))"
    r = run_cellgate("run", "--env", f"STATE={os.environ['XDG_STATE_HOME']}", "-c", code)
    assert r.returncode == 1 and ("PermissionError" in r.stderr or "FileNotFoundError" in r.stderr), r


def test_a_running_sandbox_that_hides_the_file_still_does(run_cellgate: Run, tmp_path: Path, prefix: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text('{"mcpServers": {"old": {"command": "x", "env": {"TOKEN": "first-secret"}}}}')
    settings = web.settings(filesystem={"denyRead": [".mcp.json"]})
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    look = "while read x; do grep -rs secret . ; ls -A; echo end; done"
    argv = [prefix / "bin/cellgate", "sandbox", "--settings", "settings.json", "sh", "-c", look]
    with subprocess.Popen(argv, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as inside:
        assert inside.stdin
        assert inside.stdout

        def seen() -> list[str]:
            assert inside.stdin
            assert inside.stdout
            inside.stdin.write("look\n")
            inside.stdin.flush()
            return [line.strip() for line in iter(inside.stdout.readline, "end\n")]

        assert seen() == [".mcp.json", "settings.json"]
        ok(run_cellgate("mcp", "add", "new", "--env", "TOKEN=second-secret", "--", "y"))
        assert seen() == [".mcp.json", "settings.json"]
        ok(run_cellgate("mcp", "remove", "old"))
        assert seen() == [".mcp.json", "settings.json"]
        inside.stdin.close()
    assert json.loads(file.read_text())["mcpServers"]["new"]["env"] == {"TOKEN": "second-secret"}
    assert [p.name for p in Path(os.environ["XDG_STATE_HOME"], "cellgate/mcp-files").iterdir()] == ["lock"]


def test_other_forms_of_the_file(run_cellgate: Run, tmp_path: Path) -> None:
    for text, where in (({"servers": {}}, "servers"), ({"a": {"command": "x"}}, None)):
        (tmp_path / "f.json").write_text(json.dumps(text))
        ok(run_cellgate("mcp", "add", "new", "--mcp", "f.json", "--", "y"))
        found = json.loads((tmp_path / "f.json").read_text())
        assert "new" in (found[where] if where else found)


def test_the_users_own_file(run_cellgate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    ok(run_cellgate("mcp", "add", "mine", "--user", "--", "x"))
    assert list(servers(tmp_path / "config/cellgate/mcp.json")) == ["mine"]
    assert ok(run_cellgate("mcp", "list", "--user")).split() == ["mine", "stdio", "x"]
    assert run_cellgate("mcp", "list").stdout == ""


BAD = [
    (["add"], "NAME is missing"),
    (["add", "x"], "either the server's URL or -- COMMAND"),
    (["add", "x", "http://a.example/mcp", "--", "y"], "either the server's URL or -- COMMAND"),
    (["add", "a.b", "--", "y"], "no dot"),
    (["add", "cellgate", "--", "y"], "cannot name an MCP server"),
    (["add", "x", "ftp://a.example/"], "x"),
    (["add", "x", "--env", "A", "--", "y"], "--env needs NAME=VALUE"),
    (["add", "x", "--header", "A", "http://a.example/mcp"], "--header needs NAME: VALUE"),
    (["add", "x", "--env", "A=b", "http://a.example/mcp"], "--env, --code and --data are for a COMMAND"),
    (["add", "x", "--user", "--mcp", "f", "--", "y"], "--mcp and --user contradict"),
    (["show", "x"], "there is no file .mcp.json"),
    (["remove", "x"], "there is no file .mcp.json"),
    (["tools", "x"], "there is no file .mcp.json"),
    (["call", "x"], "TOOL is missing"),
    (["call", "x", "y", "[]"], "the arguments cannot be sent"),
    (["call", "x", "y", "{}", "z"], "one word too many: z"),
    (["list", "x"], "one word too many: x"),
    (["list", "--yes"], "unknown option --yes"),
    (["nothing"], 'there is no "mcp nothing"'),
]


@pytest.mark.parametrize(("args", "says"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_bad_command_lines(run_cellgate: Run, tmp_path: Path, args: list[str], says: str) -> None:
    r = run_cellgate("mcp", *args)
    assert (r.returncode, r.stdout) == (2, "")
    assert says in r.stderr and r.stderr.startswith("cellgate mcp") and r.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_and_files_that_cannot_be_used(run_cellgate: Run, tmp_path: Path) -> None:
    ok(run_cellgate("mcp", "add", "x", "--", "y"))
    r = run_cellgate("mcp", "add", "x", "--", "z")
    assert r.returncode == 2 and "already: remove it first" in r.stderr
    assert 'defines no MCP server "z"' in run_cellgate("mcp", "show", "z").stderr
    for text in ("{", "[]", '{"mcpServers": 1}'):
        (tmp_path / "f.json").write_text(text)
        r = run_cellgate("mcp", "add", "x", "--mcp", "f.json", "--", "z")
        assert r.returncode == 2 and "f.json" in r.stderr and (tmp_path / "f.json").read_text() == text


def test_a_link_in_the_workspace_is_not_followed(run_cellgate: Run, tmp_path: Path) -> None:
    """A cell could have made it."""
    (tmp_path / "cells.json").write_text('{"mcpServers": {"x": {"command": "evil"}}}')
    (tmp_path / ".mcp.json").symlink_to("cells.json")
    for args in (["tools", "x"], ["add", "y", "--", "z"]):
        r = run_cellgate("mcp", *args)
        assert r.returncode == 2 and "symbolic link in the workspace" in r.stderr


def test_new_file_behind_a_link_in_the_workspace(run_cellgate: Run, tmp_path: Path, outside: Path) -> None:
    (tmp_path / "conf").symlink_to(outside)
    for path in ("conf/new.json", "./conf/deep/new.json"):
        r = run_cellgate("mcp", "add", "x", "--mcp", path, "--", "y")
        assert r.returncode == 2 and "conf is a symbolic link in the workspace" in r.stderr
    assert list(outside.iterdir()) == []


def test_links_outside_of_the_workspace_are_followed(run_cellgate: Run, outside: Path) -> None:
    (outside / "real").mkdir()
    (outside / "link").symlink_to("real")
    (outside / "real/f.json").write_text('{"mcpServers": {}}')
    (outside / "file.json").symlink_to("link/f.json")
    for name, path in (("a", "link/f.json"), ("b", "file.json"), ("c", "link/made/../made/new.json")):
        ok(run_cellgate("mcp", "add", name, "--mcp", str(outside / path), "--", "y"))
        assert name in ok(run_cellgate("mcp", "list", "--mcp", str(outside / path)))
    assert sorted(servers(outside / "real/f.json")) == ["a", "b"]
    assert (outside / "file.json").is_symlink() and list(servers(outside / "real/made/new.json")) == ["c"]


def test_a_pipe_is_read(run_cellgate: Run) -> None:
    text = '{"mcpServers": {"x": {"command": "y"}}}'
    for path in ("/dev/stdin", "/dev/fd/0"):
        assert ok(run_cellgate("mcp", "list", "--mcp", path, input=text)).split() == ["x", "stdio", "y"]
    r = run_cellgate("mcp", "add", "z", "--mcp", "/dev/stdin", "--", "y", input=text)
    assert r.returncode == 2 and "is a symbolic link, and is not replaced" in r.stderr


def test_cells_cannot_write_the_file(run_cellgate: Run, changing: Path, tmp_path: Path) -> None:
    before = (tmp_path / ".mcp.json").read_bytes()
    for code in (
        "open('.mcp.json', 'w')",
        "import os; os.rename('.mcp.json', 'x')",
        "import os; os.unlink('.mcp.json')",
    ):
        assert run_cellgate("run", "-c", code).returncode == 1
    assert (tmp_path / ".mcp.json").read_bytes() == before


def test_tools_with_their_states(run_cellgate: Run, changing: Path) -> None:
    assert ok(run_cellgate("mcp", "tools", "s")) == "read  new  Does it.\n"
    assert ok(run_cellgate("mcp", "tools", "s")) == "read  accepted  Does it.\n"
    changing.write_text(changing.read_text().replace("Does", "Undoes"))
    r = run_cellgate("mcp", "tools", "s")
    assert (r.returncode, r.stdout) == (0, "read  changed  Undoes it.\n")
    assert "+ Undoes it." in r.stderr
    # The same pins as those of `cellgate run`.
    r = run_cellgate("run", "--mcp", ".mcp.json", "--approve", "all", "-c", "from mcptools.s import read\nread.run()")
    assert r.returncode == 1 and "has changed since it was accepted" in r.stderr


def test_call(run_cellgate: Run, changing: Path) -> None:
    r = run_cellgate("mcp", "call", "s", "read", '{"x": 1}')
    assert r.returncode == 2 and "no terminal to ask at" in r.stderr
    r = run_cellgate("mcp", "call", "s", "read", '{"x": 1}', "--yes")
    assert json.loads(ok(r)) == {"content": [{"type": "text", "text": "ran read"}]}
    sent = [json.loads(x) for x in Path(f"{changing}.log").read_text().splitlines()]
    assert [m["params"]["arguments"] for m in sent if m["method"] == "tools/call"] == [{"x": 1}]
    assert 'has no tool "raed"' in run_cellgate("mcp", "call", "s", "raed", "--yes").stderr
    changing.write_text(changing.read_text().replace("Does", "Undoes"))
    r = run_cellgate("mcp", "call", "s", "read", "--yes")
    assert r.returncode == 2 and "has changed since it was accepted" in r.stderr


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("n", 1), ("", 1)])
def test_call_at_a_terminal(changing: Path, person, answer: str, status: int) -> None:
    p = person("mcp", "call", "s", "read", '{"x": "\\u202e\x7f"}')
    shown = p.wait_for(r"Call it\? \[y/N\] ")
    assert "server    s" in shown and "tool      read" in shown and "\u202e" not in shown and "\x7f" not in shown
    p.type(answer + "\n")
    assert p.end() == status
    assert ("ran read" in p.seen) == (answer == "y")
