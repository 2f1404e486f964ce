"""The toolsets `files` and `inspect`: the session's files with the rights of its cells, and what it has and may."""

import base64
import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp_serve.helpers import Raw, text_of

Serve = Callable[..., Raw]
ALL = ("--toolsets", "core,sessions,files,inspect")


@pytest.fixture
def server(serve: Serve) -> Raw:
    server = serve(*ALL)
    server.initialize()
    return server


def texts(server: Raw, tool: str, **arguments: object) -> list[str]:
    """The text blocks of a call, as they are."""
    result = server.result(server.call(tool, **arguments))
    assert not result["isError"], result
    return [block["text"] for block in result["content"]]


# ---------------------------------------------------------------------- files


def test_files_are_written_read_listed_moved_and_removed(server: Raw, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "link").symlink_to("sub")
    content = "line\n\u00e4\u20ac\U0001f600\n\n"
    assert texts(server, "write_file", path="sub/a.txt", content=content) == [
        f"{len(content.encode())} bytes were written to {workspace}/sub/a.txt."
    ]
    assert (workspace / "sub/a.txt").read_text() == content
    assert texts(server, "read_file", path="sub/a.txt") == [content]
    assert texts(server, "read_file", path=str(workspace / "link/a.txt")) == [content]
    listed = [json.loads(line) for line in server.ask("list_files").splitlines()]
    assert [(e["name"], e["type"]) for e in listed] == [("link", "link"), ("sub", "folder")]
    assert [(e["name"], e["size"]) for e in map(json.loads, texts(server, "list_files", path="sub"))] == [
        ("a.txt", len(content.encode()))
    ]
    server.ask("write_file", path="b.txt", content="b")
    assert "exists" in server.fails("move_file", **{"from": "b.txt", "to": "sub/a.txt"})
    server.ask("move_file", **{"from": "b.txt", "to": "sub/c.txt"})
    assert (workspace / "sub/c.txt").read_text() == "b" and not (workspace / "b.txt").exists()
    server.ask("remove_file", path="sub")
    assert os.listdir(workspace) == ["link"]
    assert "sub" in server.fails("list_files", path="sub")
    assert server.ask("execute_ipython_cell", code="import os; os.listdir()") == "['link']"


def test_parts_end_with_whole_characters(server: Raw, workspace: Path) -> None:
    (workspace / "a").write_text("\u20ac" * 10)
    got, offset = "", 0
    while offset < 30:
        part = texts(server, "read_file", path="a", offset=offset, max_bytes=7)
        got += part[0]
        numbers = re.match(r"\[Bytes (\d+) to (\d+) of 30(; offset: the next)?\]$", part[1])
        assert numbers and int(numbers[1]) == offset
        offset = int(numbers[2])
    assert got == "\u20ac" * 10
    assert texts(server, "read_file", path="a", offset=30)[0] == "(no output)"


def test_parts_of_a_large_file(server: Raw, workspace: Path) -> None:
    with (workspace / "a").open("wb") as f:
        f.seek(5 << 30)
        f.write(b"the end")
    part = texts(server, "read_file", path="a", offset=5 << 30)
    assert part == ["the end", f"[Bytes {5 << 30} to {(5 << 30) + 7} of {(5 << 30) + 7}]"]


def test_bytes_that_are_no_text_are_base64(server: Raw, workspace: Path) -> None:
    for data in (b"\x00text", b"\xff\xfe", b"ab\xe2\x82", bytes(range(256)) * 1000):
        text = base64.b64encode(data).decode()
        server.ask("write_file", path="b", content=text, encoding="base64")
        assert (workspace / "b").read_bytes() == data
        part = texts(server, "read_file", path="b", max_bytes=1000000)
        assert base64.b64decode(part[0]) == data and "Base64" in part[1]
    assert "base64" in server.fails("write_file", path="b", content="!", encoding="base64")
    assert "utf-8 or base64" in server.fails("write_file", path="b", content="", encoding="latin-1")


def test_a_write_has_a_limit_and_replaces_all_or_nothing(server: Raw, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    assert "more than 16 MiB" in server.fails("write_file", path="a", content="x" * ((16 << 20) + 1))
    assert (workspace / "a").read_text() == "old"
    inode = (workspace / "a").stat().st_ino
    server.ask("write_file", path="a", content="x" * (16 << 20))
    assert (workspace / "a").stat().st_size == 16 << 20 and (workspace / "a").stat().st_ino != inode


@pytest.mark.parametrize("path", ["..", "../x", "sub/../../x", "/etc/hostname", "/", "", "/proc/self/root/etc/passwd"])
def test_paths_are_below_the_workspace(server: Raw, path: str) -> None:
    for tool, name in (("list_files", "path"), ("read_file", "path"), ("remove_file", "path"), ("write_file", "path")):
        arguments = {name: path, **({"content": "x"} if tool == "write_file" else {})}
        assert "must be a path below" in server.fails(tool, **arguments)
    for arguments in ({"from": path, "to": "x"}, {"from": "x", "to": path}):
        assert "must be a path below" in server.fails("move_file", **arguments)


def test_links_give_no_more_than_cells_have(server: Raw, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("old")
    (workspace / "out").symlink_to(tmp_path / "outside")
    server.fails("write_file", path="out/file", content="new")
    server.fails("write_file", path="out/more", content="new")
    server.fails("remove_file", path="out/file")
    server.fails("move_file", **{"from": "out/file", "to": "stolen"})
    assert os.listdir(tmp_path / "outside") == ["file"] and (tmp_path / "outside" / "file").read_text() == "old"


def test_protected_names_are_refused_as_in_cells(server: Raw, workspace: Path) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / "x").write_text("x")
    for path in (".git/hooks/pre-commit", ".mcp.json", ".vscode", ".bashrc", "sub.code-workspace"):
        text = server.fails("write_file", path=path, content="x")
        assert "the sandbox refused writing" in text or "ermission denied" in text, text
        server.fails("move_file", **{"from": "x", "to": path})
        assert not (workspace / path).exists()
    server.ask("write_file", path="README.md", content="x")


def test_devices_and_fifos_are_refused_and_do_not_block(server: Raw, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(workspace / "socket"))
        for name in ("fifo", "socket"):
            server.fails("read_file", path=name)
            assert json.loads(texts(server, "list_files")[0].splitlines()[0])["type"] == "fifo"


def test_files_of_a_session_begin_at_its_folder(server: Raw, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    session = server.result(server.call("create_session", workspace="sub"))["structuredContent"]["session_id"]
    server.ask("write_file", path="a", content="x", session_id=session)
    assert (workspace / "sub" / "a").read_text() == "x"
    assert "must be a path below" in server.fails("read_file", path=str(workspace / "b"), session_id=session)
    assert texts(server, "read_file", path="sub/a") == ["x"]


# ---------------------------------------------------------------------- inspect


def test_variables_are_listed_without_values_and_traces(server: Raw) -> None:
    assert server.ask("list_variables") == "(no output)"
    server.ask("execute_ipython_cell", code="secret = 'hunter22'\nitems = [1, 2]\nn = 7\nimport json")
    lines = server.ask("list_variables").splitlines()
    assert "secret: str, length 8" in lines and "items: list, length 2" in lines and "n: int" in lines
    assert "hunter22" not in "".join(lines) and not any("found" in line for line in lines)
    assert server.ask("execute_ipython_cell", code="[name for name in dir() if 'found' in name]") == "[]"


def test_sandbox_info_says_what_is_enforced(serve: Serve, workspace: Path) -> None:
    server = serve(*ALL, "--limit", "processes=77", "--allow-host", "example.org")
    server.initialize()
    (workspace / "sub").mkdir()
    created = server.result(server.call("create_session", workspace="sub", limits={"processes": 66}))
    session = created["structuredContent"]["session_id"]
    own, other = (json.loads(server.ask("sandbox_info", session_id=id)) for id in (None, session))
    assert own["sandbox"] is True and own["tier"] == "full" and own["exec"] == "allow"
    assert own["limits"]["processes"]["value"] == 77 and other["limits"]["processes"]["value"] == 66
    assert own["settings"]["network"]["allowedDomains"] == ["example.org"]
    assert own["settings"]["filesystem"]["allowWrite"] == ["."]
    assert own["workspace"] == str(workspace) and other["folder"] == str(workspace / "sub")


def test_without_a_network_sandbox_info_says_so(server: Raw) -> None:
    assert json.loads(server.ask("sandbox_info"))["settings"] == {
        "filesystem": {"allowWrite": ["."]},
        "network": {"allowedDomains": []},
    }


def explain(server: Raw, operation: str, what: str) -> str:
    return server.ask("explain_denial", operation=operation, what=what)


def test_a_denial_is_explained_as_it_is_reported(workspace: Path, request: pytest.FixtureRequest) -> None:
    (workspace / ".env").write_text("KEY=1")  # what is made after the session's start is not hidden
    server: Raw = request.getfixturevalue("server")
    assert server.ask("explain_denial") == "Nothing was refused in this session."
    sentence = explain(server, "file-write", "/etc/x")
    assert sentence == (
        "writing /etc/x is not allowed: only the workspace may be written; to allow it: add it to"
        " filesystem.allowWrite of a settings file (--sandbox)"
    )
    result = server.result(server.call("execute_ipython_cell", code="open('/etc/x', 'w')"))
    assert sentence in text_of(result)
    last = server.ask("explain_denial")
    assert last.startswith("The last refusals") and "writing /etc/x" in last and "filesystem.allowWrite" in last
    for operation, allowed, refused in (
        ("file-write", "new.txt", ".git/hooks/pre-commit"),
        ("file-read", "/etc/passwd", ".env"),
    ):
        assert "is not refused by the sandbox" in explain(server, operation, allowed)
        assert "not allowed: " in explain(server, operation, refused)
    assert "is not refused" in explain(server, "exec", "ls")
    assert not (workspace / "new.txt").exists() and "dir" not in server.ask("list_variables")
    assert "--allow-host HOST" in explain(server, "network-outbound", "example.org")


def test_hosts_programs_and_tools_are_explained_by_their_rules(serve: Serve, mcp_file: Path) -> None:
    rules = ("--approve", "fake.echo", "--approve", "!fake.leave*", "--exec", "deny")
    server = serve(*ALL, *rules, "--mcp", mcp_file, "--allow-host", "*.example.org")
    server.initialize()
    host = explain(server, "network-outbound", "b.example.com:443")
    assert 'network.allowedDomains, ["*.example.org"]' in host and "not on the allow list" in host
    assert "cells of this session start no programs" in explain(server, "exec", "/bin/ls")
    assert explain(server, "tool-call", "fake.echo") == "fake.echo is allowed by fake.echo"
    assert explain(server, "tool-call", "fake.leave_mark") == "refused by the approval rule !fake.leave*"
    assert "--approve 'fake.other'" in explain(server, "tool-call", "fake.other")
    assert "--approve 'cellgate.install_package'" in explain(server, "tool-call", "cellgate.install_package")
    code = "from mcptools.fake import leave_mark\nleave_mark.run(text='x')"
    server.result(server.call("execute_ipython_cell", code=code))
    assert "refused by the approval rule !fake.leave*" in server.ask("explain_denial")


def test_programs_that_are_asked_about(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"rules": [{"decision": "deny", "program": "/bin/rm", "text": "Keep it."}]}))
    server = serve(*ALL, "--exec", "ask", "--approve", "ask", "--policy", file)
    server.initialize(elicitation={})
    assert explain(server, "exec", "/bin/ls") == "/bin/ls needs the user's approval, which is asked for when it is used"
    assert "Keep it." in explain(server, "exec", "/bin/rm")
    server = serve(*ALL, "--approve", "ask")
    server.initialize()
    assert "cannot ask its user" in explain(server, "tool-call", "fake.echo")


def test_a_policy_is_explained_without_being_used(serve: Serve, tmp_path: Path) -> None:
    rule = {"decision": "allow", "server": "fake", "tool": "echo"}
    file = tmp_path / "policy.json"
    file.write_text(
        json.dumps({"rules": [rule], "budgets": [{"id": "b", "server": "fake", "per": "session", "calls": 1}]})
    )
    server = serve(*ALL, "--policy", file)
    server.initialize()
    for _ in range(3):
        assert "is allowed by" in explain(server, "tool-call", "fake.echo")
    assert "no approval rule allows fake.other" in explain(server, "tool-call", "fake.other")


def test_wrong_arguments_of_explain_denial(server: Raw) -> None:
    assert '"what" is missing' in server.fails("explain_denial", operation="exec")
    assert '"operation" is missing' in server.fails("explain_denial", what="x")
    assert "must be file-read" in server.fails("explain_denial", operation="fly", what="x")
    assert "SERVER.TOOL" in server.fails("explain_denial", operation="tool-call", what="x")
    assert "is not refused" in explain(server, "file-read", "a'b\\n\"c")


# ---------------------------------------------------------------------- the size of toolsets


def test_the_tokens_of_each_toolset_are_documented(serve: Serve, repo: Path) -> None:
    """What an agent pays in each conversation: four characters are a token, to the nearest 50."""
    text = (repo / "docs/mcp-serve.md").read_text()
    documented = {name: int(n) for name, n in re.findall(r"^\| `(\w+)` \| .*\| (\d+) \|$", text, re.M)}
    found = {}
    for toolset in ("core", "jobs", "sessions", "files", "inspect", "approvals"):
        server = serve("--toolsets", toolset)
        server.initialize()
        tools = server.result(server.request("tools/list"))["tools"]
        size = len(json.dumps(tools, separators=(",", ":"), ensure_ascii=False))
        found[toolset] = round(size / 4 / 50) * 50
    assert documented == found


def test_toolsets_that_are_off_are_not_there(serve: Serve) -> None:
    server = serve()
    server.initialize()
    for tool in ("write_file", "list_variables", "create_session"):
        assert "there is no tool" in server.answer(server.call(tool))["error"]["message"]


def test_tools_of_files_need_a_path(server: Raw) -> None:
    for tool in ("read_file", "write_file", "remove_file", "move_file"):
        assert "is missing" in server.fails(tool)
    assert text_of(server.result(server.call("list_files"))) == "(no output)"
