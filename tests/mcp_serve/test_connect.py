"""`cellgate mcp serve --connect`: cells on another machine, of which this one is the far end; servers and questions here."""

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_serve.helpers import Raw, text_of
from processes import children, eventually, words

NODE = Path(__file__).parents[1] / "relay/node.py"
FAKE = Path(__file__).with_name("fake_server.py")
Serve = Callable[..., Raw]
YES = {"action": "accept", "content": {"decision": "approve"}}
NO = {"action": "accept", "content": {"decision": "reject"}}


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The workspace, as the other machine names it."""
    folder = tmp_path / "there"
    (folder / "below").mkdir(parents=True)
    return folder


@pytest.fixture
def connected(serve: Serve, cellgate: Path, tmp_path: Path, there: Path) -> Callable[..., Raw]:
    """Starts it with a far end that keeps what is sent to it, in the file `sent`."""
    words = [sys.executable, "-B", str(NODE), "record", str(tmp_path / "sent"), str(cellgate), "relay"]
    return lambda *args: serve("--connect", shlex.join(words), "--workspace", there, *args)


def test_a_registered_server_stays_here(connected: Callable[..., Raw], tmp_path: Path, mark: Path, there: Path) -> None:
    """Its definition and its secret are not sent; its calls are asked about, and run, here."""
    server = connected("--approve", "ask", "--detach", "7.5")
    server.initialize(elicitation={})
    parameters = {
        "command": "/usr/bin/python3",
        "args": [str(FAKE)],
        "env": {"MARK": str(mark), "TOKEN": "SECRET-4711"},
    }
    call = server.call("register_mcp_server", server_name="fake", server_params=parameters)
    question = server.receive()
    assert question["method"] == "elicitation/create" and str(FAKE) in question["params"]["message"]
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": YES})
    assert "leave_mark" in text_of(server.result(call))
    code = "from mcptools.fake import leave_mark\nimport os\nprint(os.getcwd(), leave_mark.run(text='hello'))"
    for decision, ran in ((NO, ""), (YES, "hello\n")):
        call = server.call("execute_ipython_cell", code=code)
        question = server.receive()
        assert '"text": "hello"' in question["params"]["message"]
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": decision})
        shown = text_of(server.result(call))
        assert (f"{there} leave_mark: hello" in shown) == bool(ran) and ("RejectedError" in shown) == (not ran)
        assert (mark.read_text() if mark.exists() else "") == ran
    sent = (tmp_path / "sent").read_bytes()
    assert b'"detach_ms":7500' in sent
    assert b"leave_mark" in sent and b"SECRET-4711" not in sent and b"fake_server" not in sent


def test_configured_servers_sessions_and_files(connected: Callable[..., Raw], mcp_file: Path, there: Path) -> None:
    server = connected("--mcp", mcp_file, "--approve", "fake.echo", "--toolsets", "core,sessions,files")
    server.initialize()
    code = "from mcptools.fake import echo\necho.run(text='x')"
    assert text_of(server.result(server.call("execute_ipython_cell", code=code))) == "'echo: x'"
    opened = server.result(server.call("create_session", workspace="below"))
    session = opened["structuredContent"]["session_id"]
    cell = "import os\nopen('made', 'w').write('1')\nos.getcwd()"
    shown = server.result(server.call("execute_ipython_cell", code=cell, session_id=session))
    assert text_of(shown) == repr(str(there / "below"))
    read = server.result(server.call("read_file", path=str(there / "below/made")))
    assert text_of(read).startswith("1")
    for folder in ("../out", "/", "below/../../out"):
        refused = server.result(server.call("create_session", workspace=folder))
        assert refused["isError"] and "must be a path below" in text_of(refused)


def test_tools_about_this_machine_are_not_offered(connected: Callable[..., Raw]) -> None:
    server = connected()
    assert "install_package" not in server.initialize()["instructions"]
    names = {tool["name"] for tool in server.result(server.request("tools/list"))["tools"]}
    assert "execute_ipython_cell" in names and not names & {"install_package", "uninstall_package"}
    assert "error" in server.answer(server.call("install_package", package_name="six"))


def test_a_lost_connection_ends_the_session(connected: Callable[..., Raw], there: Path) -> None:
    """The next call has a new one, and says so. Nothing runs again."""
    server = connected()
    server.initialize()
    code = "x = 1\nopen('ran', 'a').write('1')\nimport time\ntime.sleep(600)"
    call = server.call("execute_ipython_cell", code=code)
    eventually((there / "ran").exists)
    (link,) = (pid for pid in children(server.process.pid) if b"cellgate-relay" in words(pid)[0])
    os.kill(link, signal.SIGKILL)
    assert server.result(call, 40)["isError"]
    shown = text_of(server.result(server.call("execute_ipython_cell", code="'x' in dir()")))
    assert "variables and imports are lost" in shown and "False" in shown
    assert (there / "ran").read_text() == "1"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--connect", "true"], "the absolute path of a folder"),
        (["--connect", "true", "--workspace", "there"], "the absolute path of a folder"),
        (["--connect", "true", "--workspace", "/w", "--toolsets", "core,host"], "host and web act on this machine"),
        (["--connect", "true", "--workspace", "/w", "--toolsets", "core,web"], "host and web act on this machine"),
        (["--connect", "true", "--workspace", "/w", "--decide-elsewhere"], "cannot be combined"),
        (["--connect", "true", "--workspace", "/w", "--audit", "strict"], "cannot be combined"),
        (
            ["--connect", "true", "--workspace", "/w", "--http", "0", "--approver-token-file", "t"],
            "client itself decides",
        ),
    ],
)
def test_what_is_refused(run_cellgate: Any, args: list[str], why: str) -> None:
    r = run_cellgate("mcp", "serve", *args)
    assert r.returncode == 2 and why in r.stderr


def test_settings_for_a_client(run_cellgate: Any) -> None:
    """The folder is the other machine's: it is not looked for here."""
    r = run_cellgate("mcp", "serve", "--connect", "ssh n1", "--workspace", "/only/there", "--print-config", "generic")
    args = json.loads(r.stdout)["mcpServers"]["cellgate"]["args"]
    assert args == ["mcp", "serve", "--connect=ssh n1", "--workspace=/only/there"]
