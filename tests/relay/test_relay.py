"""What sessions on another machine do, and how they end."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import alive, descendants
from relay.conftest import kill, wait_until

MIB = 1 << 20


def test_cells_output_and_interrupt(session: Any, tmp_path: Path) -> None:
    assert session.run("import os\nx = 6 * 7\nos.getcwd()").value == repr(str(tmp_path))
    events = list(session.stream("print('a' * 30_000_000)"))
    assert sum(len(e.text) for e in events if type(e).__name__ == "Stream") == 30_000_001
    assert session.run("x").value == "42"
    cell = session.stream("import time\nprint('on')\ntime.sleep(600)")
    seen = []
    for event in cell:
        seen.append(type(event).__name__)
        if getattr(event, "text", "") == "on\n":
            session.interrupt()
    assert "Error" in seen and session.run("x").value == "42"


def test_files_both_ways(session: Any, tmp_path: Path) -> None:
    """Their contents have channels of their own."""
    data = os.urandom(20 * MIB)
    session.files.write("there", data)
    assert (tmp_path / "there").read_bytes() == data
    assert session.files.read("there") == data
    # More at once than a host has waiting, and an operation that does not read its input.
    for i in range(60):
        session.files.write(f"f{i}", str(i).encode() * 1000)
    assert session.files.read("f59") == b"59" * 1000
    with pytest.raises(LookupError, match="No such file"):
        session.files.write("no/such/folder", data)
    assert session.run("1 + 1").value == "2"


def test_commands(session: Any) -> None:
    p = session.exec(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (p.stdout, p.stderr, p.exit_code) == (b"out\n", b"err\n", 3)


def test_paths_are_those_of_the_node(package: Any, client: Any) -> None:
    import cellgate

    with pytest.raises(cellgate.CellgateError, match="/no/where: No such file"):
        cellgate.Session("/no/where", client=client)
    with cellgate.Session(client=client) as s:  # the folder in which the command starts
        assert s.run("import os\nos.getcwd()").value == repr(os.getcwd())


def test_options_go_along(package: Any, relay: list[str], tmp_path: Path) -> None:
    import cellgate

    with cellgate.Client(connect=relay, preload=["fractions"], spares=0) as c:
        assert cellgate.Session(tmp_path, client=c).run("import sys\n'fractions' in sys.modules").value == "True"
    with pytest.raises(cellgate.CellgateError, match="the node: there is no environment nope"):
        cellgate.Client(connect=relay, kernel_env="nope")


def test_what_is_refused(package: Any, client: Any, relay: list[str], tmp_path: Path) -> None:
    import cellgate

    masks = {"credentials": {"envVars": [{"name": "TOKEN", "mode": "mask"}]}}
    for options, why in (({"audit": "strict"}, "audit log"), ({"settings": masks}, '"mask"')):
        with pytest.raises(cellgate.CellgateError, match=why):
            cellgate.Session(tmp_path, client=client, **options)
    for options, why in (({"address": tmp_path / "x"}, "not with address"), ({"audit_key": "/k"}, "audit log")):
        with pytest.raises(cellgate.CellgateError, match=why):
            cellgate.Client(connect=relay, **options)
    for words in ([], ["x"] * 100):
        with pytest.raises(cellgate.CellgateError, match="words"):
            cellgate.Client(connect=words)


MODULES = """
import mcptools, pathlib
folder = pathlib.Path(mcptools.__file__).parent
print({str(f.relative_to(folder)): f.read_text() for f in sorted(folder.rglob("*")) if f.is_file() and "pycache" not in str(f)})
"""
FAKE = Path(__file__).parents[1] / "mcp/fake_server.py"
CHANGING = Path(__file__).parents[1] / "changing_server.py"


def test_servers_of_the_host_have_the_modules_of_local_ones(package: Any, client: Any, tmp_path: Path) -> None:
    import cellgate

    (tmp_path / "tools").write_text(json.dumps([TYPED]))
    servers = {
        "fake": {"command": "/usr/bin/python3", "args": [str(FAKE), '{"offers": ["resources", "prompts"]}']},
        "typed": {"command": "/usr/bin/python3", "args": [str(CHANGING), str(tmp_path / "tools")]},
        "broken": {"command": "/no/such"},
    }
    (tmp_path / "work").mkdir()
    seen = []
    for c in (client, None):
        with cellgate.Session(tmp_path / "work", client=c) as s:
            report = s.add_mcp_servers(servers)
            assert "error" in report["broken"] and report["typed"]["tools"][0]["status"] == "full"
            seen.append(s.run(MODULES).stdout)
    there, here = map(ast.literal_eval, seen)
    for files in (there, here):
        assert "host application has the reason" in files.pop("broken/__init__.py")
    assert there == here and "class Params" in here["typed/typed.py"]


TYPED = {
    "name": "typed",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    "outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]},
}


def test_resources_and_prompts_of_the_host(session: Any) -> None:
    session.add_mcp_servers(
        {"f": {"command": "/usr/bin/python3", "args": [str(FAKE), '{"offers": ["resources", "prompts"]}']}}
    )
    listed = session.run("import mcptools\nprint(mcptools.prompts('f'))")
    assert listed.ok and "greet" in listed.stdout
    asked: list[str] = []
    session.run("mcptools.get_prompt('f', 'greet')", approve=lambda q: asked.append(q.method) or False)
    session.run("mcptools.read_resource('f', 'a://b')", approve=lambda q: asked.append(q.method) or False)
    assert asked == ["prompts/get", "resources/read"]


def test_tools_that_change(session: Any, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tool = {"inputSchema": {"type": "object"}}
    tools.write_text(json.dumps([{"name": "announce", **tool}]))
    session.add_mcp_servers({"c": {"command": "/usr/bin/python3", "args": [str(CHANGING), str(tools)]}})
    tools.write_text(json.dumps([{"name": "announce", **tool}, {"name": "later", **tool}]))
    assert session.run("from mcptools.c import announce\nannounce.run()", approve=lambda _: True).ok
    wait_until(lambda: "'c/later.py'" in session.run(MODULES).stdout, "no module of the new tool")
    assert session.run("from mcptools.c import later\nlater.run()", approve=lambda _: True).value == "'ran later'"


def test_only_the_decision_stops_the_clock(session: Any) -> None:
    server = Path(__file__).parents[1] / "api/echo_server.py"
    session.add_mcp_servers({"e": {"command": "/usr/bin/python3", "args": [str(server)]}})

    def slowly(_: Any) -> bool:
        time.sleep(2.5)
        return True

    session.run("from mcptools.e import echo, slow")
    assert session.run("echo.run(text='x')", approve=slowly, timeout=2).value == "'x'"
    assert session.run("slow.run(seconds=30)", approve=lambda _: True, timeout=2).status == "timeout"


def test_functions_of_the_host(session: Any) -> None:
    called: list[int] = []

    def act(n: int) -> int:
        called.append(n)
        return n + 1

    session.functions({"act": act})
    code = "from mcptools.host import act\nact.run(n=1)"
    assert session.run(code).value == "2" and called == [1]
    session.functions({"act": act}, ask=True)
    assert session.run(code).refused and session.run(code, approve=lambda _: False).refused and called == [1]
    seen = []
    assert session.run(code, approve=lambda request: seen.append(request.arguments) or True).value == "2"
    assert seen == [{"n": 1}] and called == [1, 1]


def test_refused_calls_use_up_nothing(session: Any) -> None:
    """More bytes than a session's window has."""
    session.functions({"act": lambda text: None}, ask=True)
    session.run("from mcptools.host import act")
    for _ in range(24):
        assert session.run("act.run(text='x' * 1_000_000)", approve=lambda _: False, timeout=30).refused


def test_a_question_that_ends_with_its_cell(session: Any) -> None:
    called: list[int] = []
    session.functions({"act": lambda: called.append(1)}, ask=True)
    cell = session.stream("from mcptools.host import act\nact.run()")
    kinds = []
    for event in cell:
        kinds.append(type(event).__name__)
        if kinds[-1] == "ApprovalRequest":
            session.interrupt()
    assert "ApprovalRequest" in kinds and "Error" in kinds and not called
    assert session.run("1").value == "1"


# ---- ends


def test_nothing_stays_when_the_client_closes(package: Any, relay: list[str], tmp_path: Path) -> None:
    import cellgate

    others = descendants(os.getpid())  # of other tests
    client = cellgate.Client(connect=relay)
    s = cellgate.Session(tmp_path, client=client)
    pid = int(s.run("import os\nos.getpid()").value)
    assert pid > 0
    status = client.status()
    before = [p for p in descendants(os.getpid()) if p not in others]
    client.close()
    wait_until(lambda: not any(map(alive, [status["pid"], *before])), "processes stay")
    assert not Path(status["address"]).exists() and not Path(status["address"] + ".lock").exists()


HOST = """
import sys, cellgate
client = cellgate.Client(connect=sys.argv[2:])
s = cellgate.Session(sys.argv[1], client=client)
print(client.status()["pid"], flush=True)
s.run("import time; time.sleep(600)")
"""


def test_nothing_stays_when_the_host_is_killed(package: Any, prefix: Path, relay: list[str], tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(prefix / "lib/cellgate/package")}
    argv = [sys.executable, "-B", "-c", HOST, str(tmp_path), *relay]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as p:
        assert p.stdout
        supervisor = int(p.stdout.readline())
        before = descendants(p.pid)
        p.kill()
    wait_until(lambda: not any(map(alive, [supervisor, *before])), "processes stay")


@pytest.mark.parametrize("victim", ["host", "node", "supervisor"])
def test_the_session_ends_with_each_process_of_the_link(
    package: Any, relay: list[str], tmp_path: Path, victim: str
) -> None:
    """Where nobody waits for another one (test_links.py)."""
    import cellgate

    mine = set(descendants(os.getpid()))
    with cellgate.Client(connect=relay, detach=0) as client:
        s = cellgate.Session(tmp_path, client=client)
        supervisor = client.status()["pid"]
        link = [p for p in descendants(os.getpid()) if p not in mine]
        host, node = (
            next(p for p in link if (b"host" in Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")) == is_host)
            for is_host in (True, False)
        )
        cell = s.stream("import time\nprint('on')\ntime.sleep(600)")
        with contextlib.suppress(cellgate.ClosedError):
            for event in cell:
                if getattr(event, "text", "") == "on\n":
                    kill({"host": host, "node": node, "supervisor": supervisor}[victim])
        with pytest.raises(cellgate.ClosedError):
            s.run("1")
        wait_until(lambda: not any(map(alive, [supervisor, host, node])), "processes stay")


def test_a_link_that_is_silent_is_lost(package: Any, node: Callable[..., list[str]], tmp_path: Path) -> None:
    """As when a machine vanishes: nothing closes the connection."""
    import cellgate

    mine = set(descendants(os.getpid()))
    with cellgate.Client(connect=node("frozen"), detach=0) as client:
        s = cellgate.Session(tmp_path, client=client)
        supervisor = client.status()["pid"]
        between = next(
            p
            for p in descendants(os.getpid())
            if p not in mine
            and b"frozen" in Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")
            and b"host" not in Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")
        )
        kill(between, signal.SIGSTOP)
        try:
            with pytest.raises(cellgate.ClosedError):
                s.run("1")
            wait_until(lambda: not alive(supervisor), "the node has not noticed it")
        finally:
            if alive(between):
                kill(between)
