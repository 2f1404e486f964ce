"""Who sends the second token, or has the scope, decides about the calls of this server's cells and does nothing else."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import token_issuer
from mcp_http.helpers import Server, Session
from mcp_http.test_ends import front
from mcp_http.test_stateless import Stateless
from mcp_serve.helpers import text_of
from processes import eventually
from shared_supervisor import runtime_folder

Serve = Callable[..., Server]
CODE = "from mcptools.fake import leave_mark\nleave_mark.run(text='x')"
TOOLS = {"list_approvals", "show_approval", "decide_approval"}


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    with runtime_folder() as folder:
        yield {"XDG_RUNTIME_DIR": str(folder), "CELLGATE_PRIVATE": ""}


class As:
    """The same server for who has another token."""

    def __init__(self, server: Server, token: str) -> None:
        self.server, self.token = server, token

    def post(self, message: object, headers: dict[str, Any] | None = None) -> Any:
        return self.server.post(message, {"Authorization": f"Bearer {self.token}", **(headers or {})})


def listed(approver: Session) -> list[dict[str, Any]]:
    text = text_of(approver.call("list_approvals").message["result"])
    return [] if text.startswith("Nothing waits") else [json.loads(line) for line in text.splitlines()]


def decide(approver: Session, decision: str = "accept") -> str:
    eventually(lambda: len(listed(approver)) == 1, 60)
    (one,) = listed(approver)
    shown = json.loads(text_of(approver.call("show_approval", id=one["id"]).message["result"]))
    reply = approver.call("decide_approval", id=shown["id"], digest=shown["digest"], decision=decision)
    return text_of(reply.message["result"])


def tools(session: Session) -> set[str]:
    return {t["name"] for t in session.request("tools/list").message["result"]["tools"]}


@pytest.mark.parametrize("unix", [False, True])
def test_the_second_token_decides(
    env: dict[str, str], serve: Serve, mcp_file: Path, mark: Path, tmp_path: Path, unix: bool
) -> None:
    file = tmp_path / "approver"
    address = f"unix:{tmp_path}/mcp.sock" if unix else "127.0.0.1:0"
    server = serve("--mcp", mcp_file, "--approver-token-file", file, env=env, address=address)
    assert file.stat().st_mode & 0o777 == 0o600
    agent = Session(server)
    approver = Session(As(server, file.read_text().strip()))  # type: ignore[arg-type]
    assert tools(approver) == TOOLS and not tools(agent) & TOOLS
    assert (
        "there is no tool" in approver.execute("1").error and "there is no tool" in agent.call("list_approvals").error
    )
    call = agent.begin(agent.call_message("execute_ipython_cell", code=CODE))
    assert decide(approver) == "Accepted, once."
    result = json.loads(call.getresponse().read())["result"]
    assert mark.read_text() == "x\n"
    (decided,) = result["structuredContent"]["approvals"]
    assert (decided["decision"], decided["rule"]) == ("accepted", "approver")
    # A session is of the token that has opened it.
    for one, other in ((agent, approver), (approver, agent)):
        before, other.id = other.id, one.id
        assert other.request("ping").status == 404
        other.id = before


def test_in_the_stateless_era(env: dict[str, str], serve: Serve, mcp_file: Path, mark: Path, tmp_path: Path) -> None:
    file = tmp_path / "approver"
    server = serve("--mcp", mcp_file, "--approver-token-file", file, "--wait", "0.1", env=env)
    approver = Stateless(As(server, file.read_text().strip()))  # type: ignore[arg-type]
    agent = Stateless(server)
    before = agent.cell("1")["structuredContent"]["session_id"]
    running = agent.call("start_cell", code=CODE, session_id=before)
    eventually(lambda: "Nothing" not in text_of(approver.call("list_approvals")), 60)
    q = json.loads(text_of(approver.call("list_approvals")))
    q = json.loads(text_of(approver.call("show_approval", id=q["id"])))
    # Nor does the id of a session lead who decides to the agent's process.
    assert approver.post(approver.message("tools/call", name="execute_ipython_cell",
                                          arguments={"code": "1", "session_id": before})).status == 400  # fmt: skip
    assert not approver.call("decide_approval", id=q["id"], digest=q["digest"], decision="accept")["isError"]
    eventually(mark.exists, 60)
    assert not running["isError"]


def test_only_about_this_servers_calls(
    env: dict[str, str], serve: Serve, mcp_file: Path, mark: Path, tmp_path: Path
) -> None:
    file = tmp_path / "approver"
    server, other = (serve("--mcp", mcp_file, "--approver-token-file", file, env=env) for _ in range(2))
    approver = Session(As(server, file.read_text().strip()))  # type: ignore[arg-type]
    second = Session(As(other, file.read_text().strip()))  # type: ignore[arg-type]
    agent = Session(server)
    call = agent.begin(agent.call_message("execute_ipython_cell", code=CODE))
    eventually(lambda: len(listed(approver)) == 1, 60)
    assert listed(second) == []
    id = listed(approver)[0]["id"]
    assert "no question" in text_of(second.call("show_approval", id=id).message["result"])
    decide(approver, "reject")
    assert json.loads(call.getresponse().read())["result"]["isError"] and not mark.exists()


def test_without_the_option_nobody_else_decides(env: dict[str, str], serve: Serve, mcp_file: Path, mark: Path) -> None:
    agent = Session(serve("--mcp", mcp_file, env=env))
    result = agent.execute(CODE).message["result"]
    assert result["isError"] and "no approval rule allows" in text_of(result) and not mark.exists()


def test_the_agents_token_is_not_for_both(
    serve: Serve, run_cellgate: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    for name in ("agent", "approver"):
        (tmp_path / name).write_text("A" * 40)
        (tmp_path / name).chmod(0o600)
    words = ["--token-file", tmp_path / "agent", "--approver-token-file", tmp_path / "approver"]
    done = run_cellgate("mcp", "serve", "--http", "127.0.0.1:0", *words, "--workspace", tmp_path / "work")
    assert done.returncode == 2 and "must not decide" in done.stderr
    done = run_cellgate("mcp", "serve", "--approver-token-file", tmp_path / "approver")
    assert done.returncode == 2 and "--http" in done.stderr
    done = run_cellgate("mcp", "serve", "--http", "127.0.0.1:0", "--approver-scope", "decide")
    assert done.returncode == 2 and "--oauth-issuer" in done.stderr


def holds(pid: int, text: bytes) -> bool:
    """Whether a process has the text in its memory."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb") as memory:
        for line in maps:
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            try:
                memory.seek(start)
                if text in memory.read(end - start):
                    return True
            except (OSError, ValueError, OverflowError):
                continue  # [vvar], [vsyscall]
    return False


@pytest.mark.no_sanitizer  # its shadow memory cannot be read whole
@pytest.mark.skipif(os.geteuid() != 0, reason="reads the memory of another process")
def test_the_process_that_reads_the_network_does_not_know_the_second_token(
    env: dict[str, str], serve: Serve, tmp_path: Path
) -> None:
    """Whoever takes it over can run cells, but not accept what they ask, before somebody sends the token."""
    file = tmp_path / "approver"
    server = serve("--approver-token-file", file, env=env)
    Session(server)
    token = file.read_text().strip().encode()
    assert holds(front(server), server.token.encode()) and not holds(front(server), token)
    assert holds(server.process.pid, token)


def test_a_scope_decides(env: dict[str, str], serve: Serve, mcp_file: Path, mark: Path) -> None:
    with token_issuer.running() as issuer:
        options = ["--oauth-issuer", issuer.url, "--oauth-scope", "run", "--approver-scope", "decide"]
        server = serve("--mcp", mcp_file, *options, env={**os.environ, **env})
        issuer.audience = server.url
        server.token = issuer.token(scope="run")
        agent = Session(server)
        approver = Session(As(server, issuer.token(scope="decide run")))  # type: ignore[arg-type]
        assert tools(approver) == TOOLS and not tools(agent) & TOOLS
        call = agent.begin(agent.call_message("execute_ipython_cell", code=CODE))
        assert decide(approver) == "Accepted, once."
        assert not json.loads(call.getresponse().read())["result"]["isError"] and mark.read_text() == "x\n"
        # Of one subject, but sessions of the two kinds are apart.
        agent.id = approver.id
        assert agent.request("ping").status == 404
        metadata = json.loads(server.request("GET", "/.well-known/oauth-protected-resource").body)
        assert metadata["scopes_supported"] == ["run"]
