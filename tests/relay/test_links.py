"""Links that break: sessions go on over another one, nothing is lost and nothing is done twice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import alive, children, descendants, name_of, words
from relay.conftest import kill, wait_until

CUTTER = Path(__file__).with_name("cutter.py")
SERVER = Path(__file__).parents[1] / "api/echo_server.py"
MIB = 1 << 20


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """The folder of cutter.py."""
    folder = tmp_path / "links"
    folder.mkdir()
    return folder


@pytest.fixture
def cutting(relay: list[str], links: Path) -> list[str]:
    """The words of a link that breaks as `links` says."""
    return [sys.executable, "-B", str(CUTTER), str(links), *relay]


def starts(links: Path) -> int:
    return len((links / "starts").read_text().splitlines())


def whole_session(client: Any, folder: Path) -> None:
    """Cells, a function, an MCP server's tool, files both ways: each is done once."""
    import cellgate

    called: list[int] = []
    (folder / "work").mkdir()
    with cellgate.Session(folder / "work", client=client) as s:
        s.functions({"act": lambda n: called.append(n) or n}, ask=True)
        s.add_mcp_servers({"e": {"command": "/usr/bin/python3", "args": [str(SERVER)], "env": {"MARK": f"{folder}/mark"}}})
        code = "from mcptools.host import act\nfrom mcptools.e import danger\nopen('ran', 'a').write('{0}\\n')\n"
        for i in range(3):
            shown: list[Any] = []
            cell = code.format(i) + f"print('x' * 1000)\ndanger.run(text='{i}')\nact.run(n={i})"
            done = s.run(cell, approve=lambda request, shown=shown: shown.append(request.arguments) or True, timeout=60)
            assert (done.value, done.stdout) == (str(i), "x" * 1000 + "\n")
            assert shown == [{"text": str(i)}, {"n": i}]
            data = os.urandom(20_000)
            s.files.write("data", data)
            assert s.files.read("data") == data
        assert called == [0, 1, 2] and (folder / "work/ran").read_text() == "0\n1\n2\n"
        assert (folder / "mark").read_text().count("\n") == 3


@pytest.mark.parametrize("direction", ["to", "from"])
def test_a_session_over_links_that_break(
    package: Any, cutting: list[str], links: Path, tmp_path: Path, direction: str
) -> None:
    """Cut after more and more bytes, also within the first lines of a new link. Each byte: tests/unit/test-link.c."""
    import cellgate

    (links / "cut-000").write_text(f"{direction} 3000")
    for i in range(1, 7):
        (links / f"cut-{i:03}").write_text(f"{direction} {400 + i * i * 37 % 5000}")
    with cellgate.Client(connect=cutting) as client:
        whole_session(client, tmp_path)
    assert starts(links) > 4


def test_large_files_over_links_that_break(package: Any, cutting: list[str], links: Path, tmp_path: Path) -> None:
    import cellgate

    for i in range(6):
        (links / f"cut-{i:03}").write_text(f"{('to', 'from')[i // 3]} {1_500_000 + i * 377_777}")
    data = os.urandom(24 * MIB)
    with cellgate.Client(connect=cutting) as client, cellgate.Session(tmp_path, client=client) as s:
        s.files.write("data", data)
        assert s.files.read("data") == data
        assert s.run("print('y' * 5_000_000)").stdout == "y" * 5_000_000 + "\n"
    assert starts(links) > 3


def parts(mine: set[int]) -> dict[str, int]:
    """The processes of a client's link: host, its command, and what keeps the session there."""
    found = {}
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if pid not in mine and os.readlink(f"/proc/{pid}/exe").endswith("/cellgate-relay"):
                found[next((kind for kind in ("host", "keep") if kind.encode() in words(pid)), "front")] = pid
    return found


@pytest.fixture
def mine() -> set[int]:
    """Processes of other tests."""
    return set(descendants(os.getpid()))


def between(mine: set[int], how: str) -> int:
    """The process of node.py; 0: none."""
    return next((p for p in descendants(os.getpid()) if p not in mine and words(p)[3:4] == [how.encode()]), 0)


def test_the_command_is_killed(package: Any, node: Callable[..., list[str]], mine: set[int], tmp_path: Path) -> None:
    """While a cell runs and a question waits: both go on; no call is made without the answer, and one with it."""
    import cellgate

    with cellgate.Client(connect=node("frozen")) as client, cellgate.Session(tmp_path, client=client) as s:
        s.add_mcp_servers(
            {"e": {"command": "/usr/bin/python3", "args": [str(SERVER)], "env": {"MARK": f"{tmp_path}/mark"}}}
        )
        seen = []
        for event in s.stream("print('on')\nfrom mcptools.e import danger\ndanger.run(text='x')\nprint('off')"):
            seen.append(type(event).__name__)
            if seen[-1] == "ApprovalRequest":
                first = between(mine, "frozen")
                kill(first)
                wait_until(lambda first=first: between(mine, "frozen") not in (0, first), "no other link")
                assert not (tmp_path / "mark").exists()
                event.accept()
        assert seen.count("ApprovalRequest") == 1 and (tmp_path / "mark").read_text().count("\n") == 1
        assert s.run("1 + 1").value == "2"


def test_the_far_end_is_killed(package: Any, relay: list[str], mine: set[int], tmp_path: Path) -> None:
    """Nothing can go on: the session ends at once on both sides, and no cell runs again."""
    import cellgate

    with cellgate.Client(connect=relay) as client:
        s = cellgate.Session(tmp_path, client=client)
        supervisor = client.status()["pid"]
        begun = time.monotonic()
        with contextlib.suppress(cellgate.ClosedError):
            for event in s.stream("open('ran', 'a').write('1')\nprint('on')\nimport time\ntime.sleep(600)"):
                if getattr(event, "text", "") == "on\n":
                    kill(parts(mine)["keep"])
        with pytest.raises(cellgate.ClosedError):
            s.run("1")
        assert time.monotonic() - begun < 20
        wait_until(lambda: not alive(supervisor), "the supervisor stays")
    assert (tmp_path / "ran").read_text() == "1"


def test_the_tool_server_of_the_host_is_killed(package: Any, relay: list[str], mine: set[int], tmp_path: Path) -> None:
    """Later calls fail, and all else of the session goes on."""
    import cellgate

    with cellgate.Client(connect=relay) as client, cellgate.Session(tmp_path, client=client) as s:
        s.add_mcp_servers({"e": {"command": "/usr/bin/python3", "args": [str(SERVER)]}})
        (guard,) = [p for p in children(os.getpid()) if p not in mine and name_of(p) == "cellgate-toolse"]
        for pid in (guard, *children(guard)):
            kill(pid)
        for _ in range(2):
            done = s.run("from mcptools.e import echo\necho.run(text='x')", timeout=20)
            assert "the tool server of the host has ended" in str(done.error)
        assert s.run("1 + 1", timeout=20).value == "2"


def test_the_host_does_not_come_back(package: Any, relay: list[str], mine: set[int], tmp_path: Path) -> None:
    """Its relay is killed: the session ends here at once, and there after `detach` seconds."""
    import cellgate

    with cellgate.Client(connect=relay, detach=1) as client:
        s = cellgate.Session(tmp_path, client=client)
        supervisor = client.status()["pid"]
        kill(parts(mine)["host"])
        with pytest.raises(cellgate.ClosedError):
            s.run("1")
        wait_until(lambda: not alive(supervisor), "the supervisor stays")


def test_the_node_does_not_come_back(package: Any, cutting: list[str], links: Path, tmp_path: Path) -> None:
    """node_lost, after `detach` seconds; a cell that waited is over."""
    import cellgate

    for i in range(200):
        (links / f"cut-{i:03}").write_text("from 2500" if i == 0 else "to 0")
    with cellgate.Client(connect=cutting, detach=1.5) as client:
        with pytest.raises(cellgate.ClosedError):
            s = cellgate.Session(tmp_path, client=client)
            for _ in range(100):
                s.run("print('x' * 100)")
        with pytest.raises(cellgate.ClosedError, match="node_lost"):
            client.status()
    assert starts(links) > 2


def test_a_frozen_link(package: Any, node: Callable[..., list[str]], mine: set[int], tmp_path: Path) -> None:
    """As when a machine's address vanishes: nothing closes the connection, and another one takes its place."""
    import cellgate

    with cellgate.Client(connect=node("frozen")) as client, cellgate.Session(tmp_path, client=client) as s:
        s.run("x = 1")
        kill(between(mine, "frozen"), signal.SIGSTOP)
        assert s.run("x").value == "1"


def test_one_side_notices_a_loss_later(package: Any, cutting: list[str], links: Path, tmp_path: Path) -> None:
    """The node at once, and the host by silence: the node waits for so much longer than `detach`."""
    import cellgate

    (links / "cut-000").write_text("from 3000 silent")
    with cellgate.Client(connect=cutting, detach=1) as client, cellgate.Session(tmp_path, client=client) as s:
        s.run("x = 0")
        for _ in range(20):
            s.run("x += 1")
        assert s.run("x").value == "20"
    assert starts(links) == 2


def test_the_log_follows_the_link(package: Any, node: Callable[..., list[str]], mine: set[int], tmp_path: Path) -> None:
    import cellgate

    (tmp_path / "logs").mkdir()
    code = 'exec 2> "$0/$$"; exec "$@"'
    words = ["sh", "-c", code, str(tmp_path / "logs"), *node("frozen")]
    with cellgate.Client(connect=words, log_level=3) as client, cellgate.Session(tmp_path, client=client) as s:
        kill(between(mine, "frozen"))
        assert s.run("1").value == "1"
        later = tmp_path / "logs" / str(between(mine, "frozen"))
        with cellgate.Session(tmp_path, client=client) as another:
            another.run("1")
        wait_until(lambda: " supervisor: " in later.read_text(), "it is written elsewhere")


def test_a_process_that_keeps_a_session_hangs(
    package: Any, node: Callable[..., list[str]], mine: set[int], tmp_path: Path
) -> None:
    """The process that has lent it a link does not wait for it once the link has ended."""
    import cellgate

    with cellgate.Client(connect=node("frozen")) as client, cellgate.Session(tmp_path, client=client) as s:
        s.run("x = 1")
        front, keep = parts(mine)["front"], parts(mine)["keep"]
        kill(keep, signal.SIGSTOP)
        kill(between(mine, "frozen"))
        wait_until(lambda: not alive(front), "it waits")
        kill(keep, signal.SIGCONT)
        assert s.run("x").value == "1"


def test_who_brings_a_link_has_to_have_the_token(package: Any, cutting: list[str], links: Path, tmp_path: Path) -> None:
    import cellgate

    with cellgate.Client(connect=cutting) as client, cellgate.Session(tmp_path, client=client) as s:
        s.run("x = 1")
        path = Path(client.status()["address"]) / "link.sock"

        # Nothing was acknowledged yet: only the token of the last one is wrong.
        for data in (b"", b"x", b"0" * 32 + struct.pack("=QQ", 0, 1 << 40)):
            with socket.socket(socket.AF_UNIX) as intruder:
                intruder.connect(str(path))
                if data:
                    socket.send_fds(intruder, [data], [0, 1, 2])
                    intruder.settimeout(20)
                    assert intruder.recv(10) == b""
        assert s.run("x").value == "1"
    assert starts(links) == 1


@pytest.mark.parametrize("node", ["", "node"])
def test_a_host_names_a_link_and_no_path(
    package: Any, relay: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    """Its name is looked for among this user's links only: of supervisors, or of a node."""
    mark = b"cellgate-relay "
    if node:
        (tmp_path / node).mkdir()
        monkeypatch.setenv("CELLGATE_NODE", str(tmp_path / node))

    def answer(first: dict[str, object]) -> dict[str, object]:
        line = mark + json.dumps(first).encode() + b"\n"
        out = subprocess.run(relay, input=line, capture_output=True, check=True, timeout=60).stdout
        said: dict[str, object] = json.loads(out.removeprefix(mark))
        return said

    versions = {key: value for key, value in answer({}).items() if key in ("relay", "wire", "version")}
    with socket.socket(socket.AF_UNIX) as elsewhere:
        elsewhere.bind(str(tmp_path / "link-a.sock"))
        elsewhere.listen()
        elsewhere.setblocking(False)
        link = {"received": 0, "attempt": 1}
        for name in (f"{tmp_path}/link-a.sock", f"../../{tmp_path}/link-a.sock", "a/../../link-a", "..", "", "x" * 17):
            said = answer({**versions, **link, "resume": {"link": name, "path": name, "token": "0" * 32}})
            assert "a link's name has 1 to 16 letters and digits" in str(said["error"])
        said = answer({**versions, **link, "resume": {"link": "a", "token": "0" * 32}})
        assert said["error"] == "its session has ended"
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
