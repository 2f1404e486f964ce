"""Nodes that lie, hang or speak something else: nothing runs that was not shown, and every wait ends."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import descendants
from relay.conftest import kill
from relay.node_messages import MESSAGES, MESSAGES_ABOUT_SERVERS, Message

SERVER = Path(__file__).parents[1] / "api/echo_server.py"


@pytest.fixture(scope="module")
def relay(shared_relay: list[str]) -> list[str]:
    return shared_relay


def test_what_start_files_print_is_skipped(package: Any, node: Callable[..., list[str]], tmp_path: Path) -> None:
    import cellgate

    with cellgate.Client(connect=node("motd")) as client:
        assert cellgate.Session(tmp_path, client=client).run("1 + 1").value == "2"


def test_a_node_that_does_not_answer(package: Any, node: Callable[..., list[str]]) -> None:
    import cellgate

    with pytest.raises(cellgate.TimedOutError, match="no relay of cellgate answered within 500 ms"):
        cellgate.Client(connect=node("silent"), timeout=0.5)


def test_the_host_is_asked_about_what_would_run(package: Any, node: Callable[..., list[str]], tmp_path: Path) -> None:
    """The node changes the arguments of the call: the changed ones are those that are shown."""
    import cellgate

    called: list[str] = []
    seen: list[Any] = []
    with cellgate.Client(connect=node("other-arguments")) as client:
        s = cellgate.Session(tmp_path, client=client)

        def act(text: str) -> None:
            called.append(text)

        s.functions({"act": act}, ask=True)
        code = "from mcptools.host import act\nact.run(text='SA' + 'FE')"
        result = s.run(code, approve=lambda request: seen.append(request.arguments) or False)
        assert result.refused and seen == [{"text": "EVIL"}] and not called
        assert s.run(code, approve=lambda request: request.arguments == {"text": "EVIL"}).ok and called == ["EVIL"]


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_that_a_node_must_not_send(
    package: Any, node: Callable[..., list[str]], tmp_path: Path, name: str
) -> None:
    """The connection ends, or the message changes nothing; no function of the host runs.

    No exception is of another kind than this package's.
    """
    import cellgate

    m = MESSAGES[name]
    called: list[int] = []
    with cellgate.Client(connect=node("inject", *m.words())) as c:
        s = cellgate.Session(tmp_path, client=c)
        s.functions({"act": lambda: called.append(1)}, ask=True)
        with contextlib.suppress(cellgate.ClosedError):  # after a message that ends it, or takes its session
            for cell in ("print('inject now')", "1"):
                s.run(cell, approve=lambda _: False, timeout=20, artifacts=True)
        if m.why:
            with pytest.raises(cellgate.CellgateError, match=m.why):
                c.status()
        else:
            assert c.status()["pid"] > 0
        assert not called


ANSWERS = {
    "status": ('"clients"', '"clients', lambda c, s: c.status()),
    "sessions": ('"sessions"', '"sessionx"', lambda c, s: c.sessions()),
    "functions": ('"tools"', '"toolz"', lambda c, s: s.functions({"act": lambda: None})),
    "status-of-a-function": ('"full"', "12345 ", lambda c, s: s.functions({"act": lambda: None})),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_that_are_none(package: Any, node: Callable[..., list[str]], tmp_path: Path, name: str) -> None:
    import cellgate

    old, new, ask = ANSWERS[name]
    with cellgate.Client(connect=node("replace", old, new.ljust(len(old)))) as c:
        s = cellgate.Session(tmp_path, client=c)
        with pytest.raises(cellgate.CellgateError):
            ask(c, s)


def test_information_that_is_none(package: Any, node: Callable[..., list[str]], tmp_path: Path) -> None:
    import cellgate

    with cellgate.Client(connect=node("replace", '"info"', '"infx"')) as c:
        with pytest.raises(cellgate.CellgateError, match='no "info"'):
            cellgate.Session(tmp_path, client=c)


def server(mark: Path, **env: str) -> dict[str, Any]:
    return {"e": {"command": "/usr/bin/python3", "args": [str(SERVER)], "env": {"MARK": str(mark), **env}}}


def survives(c: Any, m: Message) -> None:
    import cellgate

    if m.why:
        with pytest.raises(cellgate.CellgateError, match=m.why):
            c.status()
    else:
        assert c.status()["pid"] > 0


@pytest.mark.parametrize("name", MESSAGES_ABOUT_SERVERS)
def test_messages_about_servers_of_the_host(
    package: Any, node: Callable[..., list[str]], tmp_path: Path, name: str
) -> None:
    """The connection ends, or the message changes nothing; no tool runs without an answer of the host."""
    import cellgate

    m = MESSAGES_ABOUT_SERVERS[name]
    shown: list[Any] = []

    def refuse(request: Any) -> bool:
        if not isinstance(request, cellgate.EgressRequest):  # the node may ask about its own network
            shown.append(request.arguments)
        return False

    with cellgate.Client(connect=node("inject", *m.words())) as c:
        s = cellgate.Session(tmp_path, client=c)
        s.add_mcp_servers(server(tmp_path / "mark"))
        with contextlib.suppress(cellgate.ClosedError):
            for cell in ("print('inject now')", "import time; time.sleep(0.3)"):
                s.run(cell, approve=refuse, timeout=20)
        survives(c, m)
        assert all(arguments == {"text": "x"} for arguments in shown)
        assert bool(shown) or name != "a-call-that-no-cell-made"
    assert not (tmp_path / "mark").exists()


def test_the_tool_server_of_the_host_asks_about_what_it_sends(
    package: Any, node: Callable[..., list[str]], tmp_path: Path
) -> None:
    """The node changes the arguments of the call: the changed ones are those that are shown, and those that run."""
    import cellgate

    seen: list[Any] = []
    with cellgate.Client(connect=node("other-arguments")) as client:
        s = cellgate.Session(tmp_path, client=client)
        s.add_mcp_servers(server(tmp_path / "mark"))
        code = "from mcptools.e import danger, echo\ndanger.run(text='SA' + 'FE')"
        assert s.run(code, approve=lambda request: seen.append(request.arguments) or False).refused
        assert seen == [{"text": "EVIL"}] and not (tmp_path / "mark").exists()
        assert s.run("echo.run(text='SA' + 'FE')", approve=lambda _: True).value == "'EVIL'"


def test_no_secret_is_sent(
    package: Any, node: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cellgate

    monkeypatch.setenv("HIDDEN", str(tmp_path / "SECRET-4711"))
    with cellgate.Client(connect=node("record", str(tmp_path / "sent"))) as client:
        s = cellgate.Session(tmp_path, client=client)
        (tmp_path / "work").mkdir()
        report = s.add_mcp_servers(
            {**server(Path("${HIDDEN}")), "broken": {"command": "/no/such", "env": {"A": "${HIDDEN}"}}}
        )
        assert "error" in report["broken"] and "package" in report["e"]
        assert s.run("from mcptools.e import danger\ndanger.run(text='x')", approve=lambda _: True).ok
        assert s.run("import mcptools.broken").error.ename == "ImportError"
    sent = (tmp_path / "sent").read_bytes()
    assert (tmp_path / "SECRET-4711").exists() and b"mcptools.e" in sent and b"danger" in sent
    assert b"SECRET-4711" not in sent and b"/no/such" not in sent and b"echo_server" not in sent


def test_the_report_is_of_the_host(package: Any, node: Callable[..., list[str]], tmp_path: Path) -> None:
    import cellgate

    with cellgate.Client(connect=node("other-report")) as client:
        s = cellgate.Session(tmp_path, client=client)
        report = s.add_mcp_servers(server(tmp_path / "mark"))["e"]
        assert {tool["tool"] for tool in report["tools"]} == {"danger", "die", "echo", "env", "fail", "slow"}
        assert all(tool["status"] == "full" for tool in report["tools"])


def test_no_call_runs_after_a_loss(package: Any, relay: list[str], tmp_path: Path) -> None:
    """The question waits when the node ends: an answer comes too late."""
    import cellgate

    mine = set(descendants(os.getpid()))
    with cellgate.Client(connect=relay) as client:
        s = cellgate.Session(tmp_path, client=client)
        s.add_mcp_servers(server(tmp_path / "mark"))
        cell = s.stream("from mcptools.e import danger\ndanger.run(text='x')")
        with contextlib.suppress(cellgate.CellgateError):
            for event in cell:
                if type(event).__name__ != "ApprovalRequest":
                    continue
                for pid in set(descendants(os.getpid())) - mine:
                    with contextlib.suppress(OSError):  # it has ended
                        if b"relay\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                            kill(pid, signal.SIGKILL)
                with pytest.raises(cellgate.ClosedError):
                    while True:
                        client.status()
                event.accept()
        with pytest.raises(cellgate.ClosedError):
            s.run("1")
    assert not (tmp_path / "mark").exists()
