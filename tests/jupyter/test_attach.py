"""`cellgate jupyter attach` and `list`: looking into a session that runs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def sessions(cellgate: Path, environment: dict[str, str]) -> Callable[[], list[dict[str, Any]]]:
    def one() -> list[dict[str, Any]]:
        out = subprocess.run(
            [cellgate, "jupyter", "list", "--json"], env=environment, check=True, capture_output=True, timeout=30
        ).stdout
        found: list[dict[str, Any]] = json.loads(out)
        return found

    return one


@pytest.fixture
def attach(
    cellgate: Path, environment: dict[str, str], tmp_path: Path, slowness: float
) -> Iterator[Callable[..., tuple[Any, Path]]]:
    """attach(ARGS...): the process, and the connection file that it printed."""
    running = []
    env = {**environment, "JUPYTER_RUNTIME_DIR": str(tmp_path / "jupyter")}

    def one(*args: str) -> tuple[Any, Path]:
        process = subprocess.Popen(
            [cellgate, "jupyter", "attach", *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        running.append(process)
        assert process.stdout
        assert select.select([process.stdout], [], [], 20 * slowness)[0]
        return process, Path(os.fsdecode(process.stdout.readline().rstrip(b"\n")))

    yield one
    for process in running:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


def own(sessions: Any, kernel: Any) -> dict[str, Any]:
    """The session of this kernel, found by its workspace."""
    kernel.clients[0].run("pass")  # it is open
    (found,) = [s for s in sessions() if s["workspace"] == str(kernel.file.parent / "work")]
    return dict(found)


def look(kernel: Any, client: Any, file: Path) -> Any:
    other = type(client)(kernel.context, json.loads(file.read_text()), kernel.slowness)
    kernel.clients.append(other)
    return other


def test_attached_client_shares_the_session(kernel: Any, client: Any, sessions: Any, attach: Any) -> None:
    client.run("x = 5")
    session = own(sessions, kernel)
    process, file = attach(session["id"])
    other = look(kernel, client, file)
    assert other.run("x += 1; x").result() == "6"
    assert client.run("x").result() == "6"
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    assert not file.exists()
    assert client.run("x").result() == "6"  # attached ones end nothing


def test_cells_of_the_host_are_seen(kernel: Any, client: Any, sessions: Any, attach: Any) -> None:
    _, file = attach(own(sessions, kernel)["id"][:8])
    other = look(kernel, client, file)
    other.run("pass")
    client.run("print('hello'); 6 * 7")
    seen: list[Any] = []
    while not seen or seen[-1]["content"].get("execution_state") != "idle":
        seen.append(other.receive("iopub"))
    seen = seen[-5:]
    kinds = [m["content"].get("execution_state", m["msg_type"]) for m in seen]
    assert kinds == ["busy", "execute_input", "stream", "execute_result", "idle"]
    assert seen[1]["content"]["code"] == "print('hello'); 6 * 7"
    assert len({m["parent_header"]["msg_id"] for m in seen}) == 1
    assert seen[0]["parent_header"]["msg_type"] == "execute_request"


def test_approvals_stay_with_the_opener(start: Any, server: Any, sessions: Any, attach: Any) -> None:
    kernel = start("--mcp", server.mcp)
    client = kernel.client()
    client.run("pass")
    _, file = attach(own(sessions, kernel)["id"])
    other = look(kernel, client, file)
    code = "from mcptools.fs import read_file; read_file.run(path='/x')"
    run = other.finish(other.start(code, allow_stdin=True), timeout=40)
    assert run.content["ename"] == "RejectedError"
    other.nothing("stdin", 0.1)
    assert server.ran() == []


def test_end_of_the_session_ends_the_attached(kernel: Any, client: Any, sessions: Any, attach: Any) -> None:
    client.run("pass")
    process, file = attach(own(sessions, kernel)["id"])
    other = look(kernel, client, file)
    other.run("pass")
    client.ask("shutdown_request", channel="control")
    states: list[Any] = []
    while "dead" not in states:
        message = other.receive("iopub")
        assert message is not None
        states.append(message["content"].get("execution_state"))
    assert process.wait(10) == 2
    assert b"the session has ended" in process.stderr.read()
    assert not file.exists()


def test_shutdown_by_an_attached_client_ends_its_front_only(
    kernel: Any, client: Any, sessions: Any, attach: Any
) -> None:
    client.run("x = 5")
    process, file = attach(own(sessions, kernel)["id"])
    other = look(kernel, client, file)
    assert other.ask("shutdown_request", {"restart": False}, "control").content["status"] == "ok"
    assert process.wait(10) == 0
    assert client.run("x").result() == "5"


def test_no_such_session(cellgate: Path, environment: dict[str, str], kernel: Any, client: Any) -> None:
    client.run("pass")
    r = subprocess.run(
        [cellgate, "jupyter", "attach", "nope"], env=environment, capture_output=True, text=True, timeout=30
    )
    assert r.returncode == 2
    assert r.stdout == ""
    assert 'there is no session "nope"' in r.stderr


def test_list(cellgate: Path, environment: dict[str, str], kernel: Any, client: Any, sessions: Any) -> None:
    client.run("pass")
    session = own(sessions, kernel)
    assert session["sandbox"] is True
    r = subprocess.run([cellgate, "jupyter", "list"], env=environment, capture_output=True, text=True, timeout=30)
    (line,) = [x for x in r.stdout.splitlines() if x.startswith(session["id"])]
    assert "idle" in line and "sandbox" in line and line.endswith(str(kernel.file.parent / "work"))


def test_list_without_any(cellgate: Path, environment: dict[str, str], empty_runtime_dir: Path) -> None:
    env = {**environment, "XDG_RUNTIME_DIR": str(empty_runtime_dir)}
    r = subprocess.run([cellgate, "jupyter", "list"], env=env, capture_output=True, text=True, timeout=30)
    assert (r.returncode, r.stdout) == (0, "no session is open\n")
