"""Settings of the sandbox in a notebook, and connections that they leave to the person."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web import FETCH

HELLO = "'hello from outside'"


@pytest.fixture
def opened(start: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """opened(allowed...): a client of a kernel whose settings allow these hosts."""

    def one(*allowed: str, **filesystem: Any) -> Any:
        file = tmp_path / "settings.json"
        files = {"denyRead": [], "allowWrite": ["."], "denyWrite": [], **filesystem}
        network = {"allowedDomains": list(allowed), "deniedDomains": ["evil.example"]}
        file.write_text(json.dumps({"network": network, "filesystem": files}))
        client = start(f"--sandbox={file}").client()
        client.run(FETCH)
        return client

    return one


def ask(client: Any, port: int) -> tuple[str, Any]:
    request = client.start(f"fetch('http://127.0.0.1:{port}/')", allow_stdin=True)
    question = client.receive("stdin")
    assert question is not None, client.finish(request).content
    return request, question


def answer(client: Any, question: Any, value: str) -> None:
    client.answer(question, value)


def test_settings_say_what_may_be_written(opened: Any) -> None:
    client = opened(denyWrite=["keep"])
    assert client.run("open('other', 'w').write('x')").content["status"] == "ok"
    assert client.run("open('keep', 'w').write('x')").content["status"] == "error"


def test_allowed_host(opened: Any, port: int) -> None:
    client = opened(f"127.0.0.1:{port}")
    assert client.run(f"fetch('http://127.0.0.1:{port}/')").result() == HELLO
    client.nothing("stdin", 0.1)


def test_denied_host_is_explained(opened: Any, tmp_path: Path) -> None:
    client = opened()
    gate = "import os, time\nwhile not os.path.exists('answered'): time.sleep(0.01)"
    request = client.start("fetch('http://evil.example/')\n" + gate, allow_stdin=True)
    while (m := client.receive("iopub"))["msg_type"] != "stream":
        pass
    assert (m["content"]["name"], m["parent_header"]["msg_id"]) == ("stderr", request)
    assert m["content"]["text"].startswith("[cellgate] ") and "evil.example" in m["content"]["text"]
    (tmp_path / "work/answered").touch()
    client.finish(request)
    client.nothing("stdin", 0.1)


@pytest.mark.parametrize(("typed", "result"), [("y", HELLO), ("n", "'403 "), ("not today", "'403 ")])
def test_undecided_host_is_asked_about(opened: Any, port: int, typed: str, result: str) -> None:
    client = opened()
    request, question = ask(client, port)
    assert f"connect to 127.0.0.1, port {port}" in question["content"]["prompt"]
    answer(client, question, typed)
    assert client.finish(request).result().startswith(result)
    request, question = ask(client, port)  # the answer was for once
    answer(client, question, "n")
    client.finish(request)


@pytest.mark.parametrize(("typed", "result"), [("a", HELLO), ("d", "'403 ")])
def test_answer_for_the_session(opened: Any, port: int, typed: str, result: str) -> None:
    client = opened()
    request, question = ask(client, port)
    answer(client, question, typed)
    assert client.finish(request).result().startswith(result)
    assert client.run(f"fetch('http://127.0.0.1:{port}/')", allow_stdin=True).result().startswith(result)
    client.nothing("stdin", 0.1)


def test_nobody_to_ask(opened: Any, port: int) -> None:
    assert opened().run(f"fetch('http://127.0.0.1:{port}/')").result().startswith("'403 ")


def test_without_settings_there_is_no_network_and_no_question(client: Any, port: int) -> None:
    client.run(FETCH)
    assert client.run(f"fetch('http://127.0.0.1:{port}/')", allow_stdin=True).result().startswith("'failed: ")
    client.nothing("stdin", 0.1)


def test_settings_in_the_workspace_cannot_be_changed(start: Any, tmp_path: Path) -> None:
    """Else a cell would decide what the next kernel may do."""
    work = tmp_path / "work"
    work.mkdir()
    file = work / "settings.json"
    text = json.dumps(
        {
            "network": {"allowedDomains": [], "deniedDomains": []},
            "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
        }
    )
    file.write_text(text)
    client = start(f"--sandbox={file}").client()
    assert client.run("open('settings.json', 'w').write('{}')").content["status"] == "error"
    client.run("import os; os.rename('settings.json', 'x')")
    client.ask("shutdown_request", channel="control")
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("text", "why"), [("{", "not valid JSON"), ('{"network": 5}', "network"), (None, "settings.json")]
)
def test_bad_settings_are_refused(start: Any, tmp_path: Path, text: str | None, why: str) -> None:
    file = tmp_path / "settings.json"
    if text is not None:
        file.write_text(text)
    kernel = start(f"--sandbox={file}")
    assert kernel.wait(20) == 2
    assert why in kernel.stderr()


def test_refusals_of_files_and_calls(client: Any) -> None:
    run = client.run("open('/etc/x', 'w')")
    assert "[cellgate] writing /etc/x is not allowed: only the workspace may be written" in run.content["traceback"][-1]
    assert "the sandbox refused" not in run.text("stderr")  # said already
    run = client.run("import os; os.system('unshare -U true 2>/dev/null')")
    assert run.text("stderr").startswith("[cellgate] the sandbox refused unshare(CLONE_NEWUSER) (unshare): ")
    assert client.run("open('x', 'w').close()").text("stderr") == ""
