"""The events of a supervisor: each is caused once, and read in C, in Python and by the command."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import web
from cellgate_api import E_INVAL, E_STATE, CellgateError, Client, Session
from mcp_serve.helpers import Raw
from processes import eventually
from shared_supervisor import Shared, runtime_folder

SERVER = {"command": "/usr/bin/python3", "args": [str(Path(__file__).parent / "echo_server.py")]}
MEMBERS = {"type", "time", "seq", "namespace", "session_id", "execution_id", "message", "data"}
SANDBOXMCP = {
    *("execution.started", "execution.completed", "execution.failed", "execution.timeout", "session.created"),
    *("session.killed", "package.installed", "egress.requested", "egress.approved", "egress.denied"),
    *("vault.accessed", "resource.exceeded", "artifact.signed", "queue.backpressure"),
}
MORE = {
    *("approval.requested", "approval.decided", "approval.expired", "tool.called", "tool.returned"),
    *("program.started", "program.refused", "file.denied", "kernel.died", "kernel.replaced"),
}


@pytest.fixture
def shared(cellgate: Path, tmp_path: Path, slowness: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    with runtime_folder() as folder:
        (tmp_path / "work").mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        monkeypatch.setenv("CELLGATE_JOBS_MAX_QUEUE", "1")
        monkeypatch.delenv("CELLGATE_PRIVATE", raising=False)
        yield Shared(cellgate, folder, tmp_path / "work", slowness)


def ask(session: Session, code: str, accept: bool | None, type: str = "approval_request", **opts: object) -> None:
    """Runs a cell that asks once; None: nobody decides."""
    session.execute(code, **opts)
    question = session.until(type)[-1]
    if type == "egress_request":
        session.decide_egress(question.approval, 0 if accept else 2)
    elif accept is not None:
        session.accept(question.approval) if accept else session.reject(question.approval)
    session.until("result")


@pytest.fixture
def follow() -> Iterator[Callable[[Shared], subprocess.Popen[str]]]:
    """Starts `cellgate events`, which ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(shared: Shared) -> subprocess.Popen[str]:
        words = [str(shared.cellgate), "events", "--json", "--since", "1d"]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def all_events(reader: Client) -> list[dict[str, Any]]:
    found, events = reader.events(after=0), []
    while found["events"]:
        assert found["lost"] == 0
        events += found["events"]
        found = reader.events(after=found["last"])
    return events


def install_a_package(shared: Shared, folder: Path, slowness: float) -> None:
    """By an agent of `mcp serve`, from a folder in place of the index."""
    info = "cgbus-1.0.dist-info"
    with zipfile.ZipFile(folder / "cgbus-1.0-py3-none-any.whl", "w") as z:
        z.writestr("cgbus.py", "")
        z.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: cgbus\nVersion: 1.0\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")
    words = ["mcp", "serve", "--namespace", "packages", "--approve", "cellgate.install_package"]
    env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
    server = Raw([str(shared.cellgate), *words], shared.cwd, env, slowness)
    try:
        server.initialize()
        assert "Installed" in server.ask("install_package", package_name="cgbus")
    finally:
        server.close_input()
        assert server.wait(20) == 0
        server.end()


def test_each_event_is_caused_once_and_read_by_all(
    shared: Shared, follow: Callable[[Shared], subprocess.Popen[str]], outside: Path, slowness: float
) -> None:
    """Each of sandboxmcp's by what it names, and by nothing that a program has added."""
    import cellgate

    work = str(shared.cwd)
    settings = web.settings(
        network={"allowedDomains": ["api.example.com"]},
        filesystem={"allowWrite": [work]},
        credentials={
            "envVars": [{"name": "API_TOKEN", "mode": "mask", "injectHosts": ["api.example.com"]}],
            "allowPlaintextInject": True,
        },
    )
    connect = "import urllib.request\ntry: urllib.request.urlopen('http://{}.example.com:81', timeout=20)\nexcept Exception: 1"
    with Client(share=1) as reader, Client(share=1) as c:
        follower = follow(shared)
        s = c.session(
            workspace=work, namespace_name="tests", settings=settings, ask_egress=1, env=["API_TOKEN=very-secret-token"],
            approval_timeout_ms=1500, wall_seconds=0, output_bytes=50000, audit="strict", sign_artifacts=1,
        )  # fmt: skip
        s.run("print('very-secret-token')")
        s.run("raise ValueError('canary')")
        s.run("while True: pass", timeout_ms=100)
        s.execute("input()", allow_stdin=1)
        s.until("input_request")
        s.execute("2")
        s.execute("3")  # the queue is full
        s.until("result")
        s.input("")
        for _ in range(2):
            s.until("result")
        ask(s, connect.format("one"), True, "egress_request")
        ask(s, connect.format("two"), False, "egress_request")
        s.run("print('x' * 100000)")
        s.run("open('/etc/very-secret-token', 'w')")
        s.run("open('a.txt', 'w').write('x')")
        s.add_servers({"echo": SERVER})
        code = "from mcptools.echo import echo\ntry: echo.run(text='x')\nexcept Exception as e: e"
        ask(s, code, True)
        ask(s, code, False)
        ask(s, code, None)
        s.reset()
        with c.session(workspace=work, exec="ask", namespace_name="programs") as p:
            code = "import subprocess\ntry: subprocess.run(['/bin/true'])\nexcept Exception: 1"
            ask(p, code, True)
            ask(p, code, False)
            p.run("import os; os._exit(3)")
            p.add_event("vault.accessed", "a.txt\n\x1b[31m", {"sha256": "00"})
        install_a_package(shared, outside, slowness)
        s.close()
        eventually(lambda: json.dumps(reader.events()).count("session.killed") == 4)

        events = all_events(reader)
        types = [e["type"] for e in events]
        assert SANDBOXMCP - set(types) == set()
        assert MORE - set(types) == set()
        assert all(set(e) == MEMBERS for e in events)
        assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
        assert sorted(e["time"] for e in events) == [e["time"] for e in events]
        assert abs(events[0]["time"] - time.time()) < 300
        assert "very-secret-token" not in json.dumps(events) and "canary" not in json.dumps(events)
        assert "writing /etc/***" in json.dumps(events)
        assert all(e["message"].isprintable() for e in events)

        # In their order.
        mine = [e for e in events if e["namespace"] == "tests"]
        one = [e["type"] for e in mine]
        assert one[:2] == ["session.created", "vault.accessed"] and one[-1] == "session.killed"
        for name in ("artifact.signed", "queue.backpressure", "execution.timeout"):
            assert one.count(name) == 1, name
        packages = [e["type"] for e in events if e["namespace"] == "packages"]
        assert [t for t in packages if t.startswith(("session.", "package."))] == [
            *("session.created", "session.created", "session.killed"),  # that of pip within
            *("package.installed", "session.killed"),
        ]
        assert [t for t in one if t.startswith("egress.")] == [
            *("egress.requested", "egress.approved", "egress.requested", "egress.denied"),
        ]
        assert [t for t in one if t.startswith(("approval.", "tool."))] == [
            *("approval.requested", "approval.decided", "tool.called", "tool.returned"),
            *("approval.requested", "approval.decided", "approval.requested", "approval.expired"),
        ]
        programs = [e["type"] for e in events if e["namespace"] == "programs"]
        assert [t for t in programs if not t.startswith(("session.", "execution.", "vault."))] == [
            *("approval.requested", "approval.decided", "program.started"),
            *("approval.requested", "approval.decided", "program.refused", "kernel.died", "kernel.replaced"),
        ]
        for e in mine:  # each execution starts, and ends once
            if e["type"] == "execution.started":
                same = [o["type"] for o in mine if o["execution_id"] == e["execution_id"]]
                ends = [t for t in same if t.startswith("execution.") and t != "execution.started"]
                assert len(ends) == 1 and same.count("execution.started") == 1

        # The other fronts read the same.
        package = cellgate.Client()
        found = []
        for e in cellgate.events(client=package, since=0):
            found.append(e)
            if len(found) == len(events):
                break
        assert found == events

        async def read() -> list[dict[str, Any]]:
            from cellgate import aio

            got: list[dict[str, Any]] = []
            async for e in aio.events(client=package, since=0, namespace="programs"):
                got.append(e)
                if e["type"] == "session.killed":
                    break
            return got

        assert asyncio.run(read()) == [e for e in events if e["namespace"] == "programs"]
        assert follower.stdout
        assert [json.loads(follower.stdout.readline()) for _ in events] == events
        done = shared("events", "--no-wait", "--namespace", "tests")
        assert len(done.stdout.splitlines()) == len(mine) and "very-secret" not in done.stdout
        assert shared("events", "--no-wait", "--since", f"@{time.time() + 60:.0f}").stdout == ""
        package.close()


def test_each_reader_is_told(shared: Shared) -> None:
    """None takes the others' news."""
    from cellgate import aio

    async def read(messages: asyncio.Queue[str]) -> None:
        async for e in aio.events(since=0):
            messages.put_nowait(e["message"])

    async def both(s: Session) -> None:
        queues: list[asyncio.Queue[str]] = [asyncio.Queue(), asyncio.Queue()]
        tasks = [asyncio.create_task(read(q)) for q in queues]
        for message in map(str, range(20)):
            s.add_event("package.installed", message)
            for q in queues:
                while await asyncio.wait_for(q.get(), 60) != message:
                    pass
        for task in tasks:
            task.cancel()

    with Client(share=1) as c, c.session(workspace=str(shared.cwd)) as s:
        asyncio.run(both(s))


def test_a_slow_reader_loses_the_oldest_and_is_told(shared: Shared) -> None:
    with Client(share=1) as reader, Client(share=1) as c, c.session(workspace=str(shared.cwd)) as s:
        first = reader.events()["last"]
        for i in range(4200):
            s.add_event("package.installed", f"{i}")
        found = reader.events(after=first)
        assert found["lost"] == 4200 - 4096
        assert [e["message"] for e in found["events"]] == [str(i) for i in range(104, 104 + 256)]
        assert found["last"] == found["events"][-1]["seq"]
        assert s.run("1").status == "ok"


def test_a_session_that_floods_pushes_out_its_own_events(shared: Shared) -> None:
    with Client(share=1) as reader, Client(share=1) as c:
        with c.session(workspace=str(shared.cwd)) as quiet, c.session(workspace=str(shared.cwd)) as s:
            quiet.add_event("package.installed", "quiet")
            first = reader.events()["last"]
            for i in range(4200):
                s.add_event("package.installed", f"{i}")
            assert "quiet" in [e["message"] for e in c.events()["events"]]
            late = reader.events(after=first)
            assert late["lost"] == late["events"][0]["seq"] - first - 1 > 0
        # What was dropped before a reader began is not lost.
        with Client(share=1) as later:
            found = later.events()
            assert found["lost"] == later.events(after=found["last"])["lost"] == 0


def test_the_command_repeats_nothing_after_a_late_answer(
    shared: Shared, follow: Callable[[Shared], subprocess.Popen[str]]
) -> None:
    with Client(share=1) as c, c.session(workspace=str(shared.cwd)) as s:
        follower = follow(shared)
        seen: list[str] = []

        def read_to(message: str) -> None:
            while seen[-1:] != [message]:
                seen.append(json.loads(follower.stdout.readline())["message"])

        s.add_event("package.installed", "before")
        read_to("before")
        supervisor = c.status()["pid"]
        follower.send_signal(signal.SIGSTOP)
        s.add_event("package.installed", "between")  # so that it asks once it goes on
        os.kill(supervisor, signal.SIGSTOP)
        try:
            follower.send_signal(signal.SIGCONT)
            time.sleep(4)  # it waits 3 s for an answer
        finally:
            os.kill(supervisor, signal.SIGCONT)
        s.add_event("package.installed", "after")
        read_to("after")
        assert seen[-3:] == ["before", "between", "after"] and seen.count("before") == 1


def test_the_command_prints_events_of_several_supervisors_by_time(
    shared: Shared, follow: Callable[[Shared], subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of each than it reads at once."""
    with Client(share=1) as one, one.session(workspace=str(shared.cwd)) as a:
        monkeypatch.setenv("CELLGATE_JOBS_MAX_QUEUE", "2")
        with Client(share=1) as two, two.session(workspace=str(shared.cwd)) as b:
            assert one.status()["pid"] != two.status()["pid"]
            for i in range(400):
                (a if i % 4 else b).add_event("package.installed", f"{i}")
                (b if i % 4 else a).add_event("package.installed", f"{i}")
            expected = [*all_events(one), *all_events(two)]
            followed = follow(shared)
            assert followed.stdout
            lines = [followed.stdout.readline() for _ in expected]
            done = shared("events", "--json", "--no-wait").stdout.splitlines(keepends=True)
    assert done == lines
    times = [json.loads(line)["time"] for line in lines]
    assert times == sorted(e["time"] for e in expected)
    for id in {e["session_id"] for e in expected}:
        mine = [e for e in map(json.loads, lines) if e["session_id"] == id]
        assert mine == [e for e in expected if e["session_id"] == id]


def test_a_secret_is_no_part_of_the_events_own_words(shared: Shared) -> None:
    """Of values only, so that no secret changes the members or what JSON needs."""
    with (
        Client(share=1) as c,
        c.session(workspace=str(shared.cwd), env=["A_TOKEN=session_id", 'B_TOKEN=","data":{"']) as s,
    ):
        s.add_event("package.installed", 'session_id ","data":{"', {"session_id": "session_id"})
        event = c.events()["events"][-1]
        assert set(event) == MEMBERS
        assert (event["message"], event["data"]) == ("*** ***", {"session_id": "***"})


def test_numbers_of_another_supervisor_begin_at_the_oldest(shared: Shared) -> None:
    with Client(share=1) as c, c.session(workspace=str(shared.cwd)):
        found = c.events(after=1 << 40)
        assert found["lost"] == 0 and found["events"][0]["seq"] == 1


def test_who_may_add_and_read(shared: Shared) -> None:
    with Client(share=1) as c, c.session(workspace=str(shared.cwd)) as s:
        for name in ("execution.started", "", "x"):
            with pytest.raises(CellgateError) as e:
                s.add_event(name, "forged")
            assert e.value.code == E_INVAL
        with Client(address=str(shared.address), place="mcp") as approver, pytest.raises(CellgateError) as e:
            approver.events()
        assert e.value.code == E_STATE
