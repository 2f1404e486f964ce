"""`cellgate mcp serve --sandbox` and `--allow-host`: hosts that the agent may reach, questions, and reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_serve.helpers import Raw, text_of
from web import FETCH, settings

Serve = Callable[..., Raw]


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def make(**parts: dict) -> Path:
        (tmp_path / "settings.json").write_text(json.dumps(settings(**parts)))
        return tmp_path / "settings.json"

    return make


def cell(*urls: str) -> str:
    return FETCH + f"for url in {list(urls)!r}: print(fetch(url))"


def accept(decision: str, **more: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"decision": decision, **more}}


def test_allowed_and_denied_hosts_and_files(serve: Serve, port: int, file, workspace: Path) -> None:
    f = file(
        network={"allowedDomains": [f"127.0.0.1:{port}"], "deniedDomains": ["evil.example"]},
        filesystem={"allowWrite": ["out"], "denyRead": ["secret"]},
    )
    (workspace / "out").mkdir()
    (workspace / "secret").write_text("secret")
    server = serve("--sandbox", f)
    server.initialize()
    code = cell(f"http://127.0.0.1:{port}/", "http://evil.example/", "http://evil.example/", "http://other.example/")
    text = text_of(server.result(server.call("execute_ipython_cell", code=code)))
    assert text.startswith("hello from outside\n403 ")
    # Behind the output, each once, for the agent and the person that it works for.
    assert text.endswith(
        "[cellgate: the sandbox refused a connection to evil.example:80 (http): host is on the deny list. To allow it:"
        ' remove "evil.example" from network.deniedDomains]\n\n'
        "[cellgate: the sandbox refused a connection to other.example:80 (http): host is not on the allow list. To allow it:"
        ' add "other.example:80" to network.allowedDomains]'
    )
    # Reported again for the next call, but only denials of that call.
    text = text_of(server.result(server.call("execute_ipython_cell", code="print(fetch('http://evil.example/'))")))
    assert text.count("[cellgate: ") == 1
    assert text_of(server.result(server.call("execute_ipython_cell", code="1"))) == "1"
    code = "def put(p):\n  try: open(p, 'w').close(); return True\n  except OSError: return False\n"
    code += "def look(p):\n  try: return open(p).read()\n  except OSError: pass\n"
    code += "put('out/x'), put('x'), look('secret') or None"
    assert text_of(server.result(server.call("execute_ipython_cell", code=code))) == (
        f"(True, False, None)\n\n[cellgate: the sandbox refused writing {workspace}/x (python): only what"
        " filesystem.allowWrite names may be written. To allow it: add it to filesystem.allowWrite]"
        f"\n\n[cellgate: the sandbox refused reading {workspace}/secret: filesystem.denyRead.0 hides it."
        " To allow it: add it to filesystem.allowRead]"
    )


def test_refusals_survive_a_flood_of_output(serve: Serve, file) -> None:
    server = serve("--sandbox", file())
    server.initialize()
    code = cell("http://evil.example/") + "\nprint('x' * 100000)"
    text = text_of(server.result(server.call("execute_ipython_cell", code=code, max_output_chars=100)))
    assert "Output truncated" in text
    assert 'add "evil.example:80" to network.allowedDomains' in text


def test_limits(serve: Serve) -> None:
    server = serve("--limit", "openFiles=50", "--limit", "outputMb=1")
    server.initialize()
    code = "l = [open('/dev/null') for i in range(100)]"
    text = text_of(server.result(server.call("execute_ipython_cell", code=code)))
    assert "open file limit of 50 reached (rlimit)" in text and "raise --limit openFiles" in text


def test_allow_host(serve: Serve, port: int, workspace: Path) -> None:
    server = serve("--allow-host", f"127.0.0.1:{port}")
    server.initialize()
    code = cell(f"http://127.0.0.1:{port}/", "http://other.example/") + "\nopen('made', 'w').close()"
    text = text_of(server.result(server.call("execute_ipython_cell", code=code)))
    assert text.startswith("hello from outside\n403 ")
    assert (workspace / "made").exists()


def test_the_file_is_hidden_and_read_once(serve: Serve, port: int, workspace: Path) -> None:
    path = workspace / "settings.json"
    path.write_text(json.dumps(settings(network={"allowedDomains": [f"127.0.0.1:{port}"]})))
    server = serve("--sandbox", "settings.json")
    server.initialize()
    code = "try: print(open('settings.json').read())\nexcept OSError as e: print(type(e).__name__)"
    text = text_of(server.result(server.call("execute_ipython_cell", code=code)))
    assert text.startswith(f"PermissionError\n\n[cellgate: the sandbox refused reading {path}: ")
    code = "try: open('settings.json', 'w')\nexcept OSError as e: print(type(e).__name__)"
    assert "Error" in text_of(server.result(server.call("execute_ipython_cell", code=code)))
    assert json.loads(path.read_text())


def test_the_agent_is_told_what_holds(serve: Serve, file) -> None:
    for options, has in [((), "no network"), (("--sandbox", file()), "limited by the sandbox's settings")]:
        server = serve(*options)
        assert has in server.initialize()["instructions"]
        tools = server.result(server.request("tools/list"))["tools"]
        assert has in tools[0]["description"]
        assert len(tools) == 11


@pytest.mark.parametrize(
    ("decision", "asked", "hellos"),
    [
        ("approve", 2, 2),
        ("approve this host in this session", 1, 2),
        ("reject", 2, 0),
        ("reject this host in this session", 1, 0),
        ("approve this tool from now on", 2, 0),  # an answer to another question
        ("Approve", 2, 0),
    ],
)
def test_the_person_is_asked(serve: Serve, port: int, file, decision: str, asked: int, hellos: int) -> None:
    server = serve("--sandbox", file(), "--approve", "ask")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=cell(*[f"http://127.0.0.1:{port}/"] * 2))
    questions = 0
    while "method" in (message := server.receive()):
        assert message["method"] == "elicitation/create"
        questions += 1
        assert f"\n  127.0.0.1:{port} (http, a loopback address)\n" in message["params"]["message"]
        choices = message["params"]["requestedSchema"]["properties"]["decision"]["enum"]
        assert choices[0] == "approve" and len(choices) == 4
        server.send({"jsonrpc": "2.0", "id": message["id"], "result": accept(decision, reason="not today")})
    assert message["id"] == call
    text = text_of(message["result"])
    assert questions == asked
    assert text.count("hello from outside") == hellos
    if not hellos:
        assert "[cellgate: the sandbox refused a connection" in text
        assert "the user rejected it: not today" in text


def test_who_shows_no_forms_is_not_asked(serve: Serve, port: int, file) -> None:
    server = serve("--sandbox", file(), "--approve", "ask")
    server.initialize()
    text = text_of(server.result(server.call("execute_ipython_cell", code=cell(f"http://127.0.0.1:{port}/"))))
    assert "hello" not in text
    assert "cannot ask its user" in text


def test_without_ask_nobody_is_asked(serve: Serve, port: int, file) -> None:
    server = serve("--sandbox", file(), "--approve", "all")
    server.initialize(elicitation={})
    text = text_of(server.result(server.call("execute_ipython_cell", code=cell(f"http://127.0.0.1:{port}/"))))
    assert "hello" not in text
    assert "host is not on the allow list" in text


def test_no_answer_in_time_is_a_no(serve: Serve, port: int, file) -> None:
    server = serve("--sandbox", file(), "--approve", "ask", "--ask-timeout", "1")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=cell(f"http://127.0.0.1:{port}/"))
    question = server.receive()
    withdrawn = server.receive()
    assert withdrawn["method"] == "notifications/cancelled" and withdrawn["params"]["requestId"] == question["id"]
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": accept("approve")})
    text = text_of(server.result(call))
    assert "hello" not in text
    assert "did not answer in time" in text


def test_a_cancelled_call_takes_its_question_back(serve: Serve, port: int, file) -> None:
    server = serve("--sandbox", file(), "--approve", "ask")
    server.initialize(elicitation={})
    call = server.call("execute_ipython_cell", code=cell(f"http://127.0.0.1:{port}/"))
    question = server.receive()
    server.notify("notifications/cancelled", {"requestId": call})
    withdrawn = server.receive()
    assert withdrawn["method"] == "notifications/cancelled" and withdrawn["params"]["requestId"] == question["id"]
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": accept("approve")})
    # The refusal may be reported with the next call.
    assert text_of(server.result(server.call("execute_ipython_cell", code="1"))).split("\n")[0] in (
        "1",
        "[output since the last call:]",
    )


def test_refusals_of_files_and_calls(serve: Serve) -> None:
    server = serve()
    server.initialize()
    text = text_of(server.result(server.call("execute_ipython_cell", code="open('/etc/x', 'w')")))
    sentence = (
        "[cellgate] writing /etc/x is not allowed: only the workspace may be written;"
        " to allow it: add it to filesystem.allowWrite of a settings file (--sandbox)"
    )
    assert text.count(sentence) == 1
    code = "import os\nfor i in range(3): os.system('unshare -U true 2>/dev/null')"
    text = text_of(server.result(server.call("execute_ipython_cell", code=code)))
    assert text.count("[cellgate: the sandbox refused unshare(CLONE_NEWUSER) (unshare): ") == 1
    text = text_of(server.result(server.call("execute_ipython_cell", code="open('x', 'w').close()")))
    assert "cellgate" not in text


def test_an_agent_is_told_once_a_cell_that_there_is_no_network_and_what_it_can_do(serve: Serve) -> None:
    server = serve()
    server.initialize()
    child = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import socket; socket.create_connection((\"192.0.2.1\", 443))'])"
    texts = [text_of(server.result(server.call("execute_ipython_cell", code=c))) for c in (child, child, "1")]
    assert [text.count("this sandbox has no network") for text in texts] == [1, 1, 0], texts
    assert "--allow-host HOST" in texts[0] and "install_package" in texts[0]
    text = text_of(server.result(server.call("execute_ipython_cell", code="import requests")))
    assert 'call the tool install_package with package_name "requests"' in text


def test_variables_of_ipybox_stay_outside_and_are_named(serve: Callable[..., Raw], workspace: Path) -> None:
    (workspace / ".env").write_text("KERNEL_ENV_OTHER=other-value\n")
    server = serve(env={"KERNEL_ENV_API_KEY": "outer-value"})
    server.initialize()
    found = server.ask("execute_ipython_cell", code="import os; sorted(k for k in os.environ if 'API_KEY' in k or 'OTHER' in k)")
    assert found == "[]"
    server.close_input()
    server.wait()
    stderr = server.stderr.decode()
    assert "variables KERNEL_ENV_... do not reach cells; to give them: --env API_KEY=..." in stderr
    assert "outer-value" not in stderr and "OTHER" not in stderr
    server = serve("--env", "API_KEY=inner", env={"KERNEL_ENV_API_KEY": "outer-value"})
    server.initialize()
    assert server.ask("execute_ipython_cell", code="import os; os.environ['API_KEY'] == 'inner'") == "True"
    server = serve()
    server.initialize()
    server.close_input()
    server.wait()
    assert "KERNEL_ENV" not in server.stderr.decode()
