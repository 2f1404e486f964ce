"""Programs that end, fork, forget or are killed: nothing of a session is left."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cellgate
import pytest
from processes import alive, children, name_of


def test_interpreter_that_exits_with_running_sessions(script: Any) -> None:
    done = script("""
        sessions = [cellgate.Session() for _ in range(3)]
        cells = [s.stream('while True: print(1)') for s in sessions]
        next(cells[0])
        def wait():
            try:
                sessions[2].exec('sleep 100')
            except cellgate.ClosedError:
                pass

        threading.Thread(target=lambda: list(cells[1]), daemon=True).start()
        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.2)
        print(open(f"/proc/self/task/{os.getpid()}/children").read())
    """)
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.split() and not any(alive(int(pid)) for pid in done.stdout.split())


def test_loop_that_is_closed_with_running_cells(script: Any) -> None:
    done = script("""
        async def first():
            s = await cellgate.aio.Session()
            task = asyncio.ensure_future(s.run('while True: pass'))
            cell = s.stream('2')
            await asyncio.sleep(0.2)
            return s, cell

        async def second(old):
            try:
                await old.run('1')
            except cellgate.CellgateError as e:
                print(e)
            async with cellgate.aio.Session() as s:
                print((await s.run('3')).value)

        s, cell = asyncio.run(first())
        asyncio.run(second(s))
        client = s._core.client
        del s, cell
        gc.collect()
        print(len(client.sessions()))

        loop = asyncio.new_event_loop()
        s = loop.run_until_complete(cellgate.aio.Session(client=client)._opened())
        task = loop.create_task(s.run('while True: pass'))
        loop.run_until_complete(asyncio.sleep(0.2))
        loop.close()
        task._log_destroy_pending = False
        del s, task
        gc.collect()
        print(len(client.sessions()))
    """)
    assert done.stdout.splitlines()[1:] == ["3", "0", "0"], done
    assert done.stdout.startswith("the session belongs to the event loop") and done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.fixture
def little_to_collect() -> Iterator[None]:
    """Collections look at what the test makes alone: all that a worker has loaded takes most of a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("little_to_collect")
def test_sessions_of_a_loop_that_are_garbage(client: Any, workspace: Path) -> None:
    async def main() -> None:
        before = len(client.sessions())
        fds = len(os.listdir("/proc/self/fd"))

        async def collected() -> None:
            gc.collect()
            while len(client.sessions()) != before:  # the executor's thread may have the result still
                await asyncio.sleep(0.01)
                gc.collect()

        for _ in range(3):
            s = await cellgate.aio.Session(workspace, client=client)
            assert (await s.run("1")).value == "1"
            del s
            await collected()
        s = await cellgate.aio.Session(workspace, client=client)
        thread = threading.Thread(target=gc.collect)
        s.me = s  # type: ignore[attr-defined]
        del s
        thread.start()
        await asyncio.to_thread(thread.join)
        await collected()
        assert len(os.listdir("/proc/self/fd")) <= fds + 1
        # A task that nothing but the loop keeps is no garbage.
        done = asyncio.Event()

        async def work() -> None:
            own = await cellgate.aio.Session(workspace, client=client)
            assert (await own.run("import time; time.sleep(0.5); 1")).value == "1"
            await own.close()
            done.set()

        asyncio.create_task(work())
        while not done.is_set():
            await asyncio.sleep(0.02)
            gc.collect()

    asyncio.run(asyncio.wait_for(main(), 100))


def test_use_after_fork_is_refused_in_a_loop(script: Any) -> None:
    done = script("""
        async def main():
            s = await cellgate.aio.Session()
            cell = s.stream("import time; time.sleep(1); 'parent'")
            pid = os.fork()
            if pid == 0:
                for use in (lambda: s.stream('1'), s.interrupt, lambda: s.files._files.read('x'), lambda: s.id):
                    try:
                        use()
                    except cellgate.ForkedError as e:
                        print('refused', flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
            print([e.text async for e in cell if isinstance(e, cellgate.ExecuteResult)])
            await s.close()

        asyncio.run(main())
    """)
    assert done.stdout.splitlines() == ["refused"] * 4 + ["[\"'parent'\"]"], done


@pytest.mark.parametrize("where", ["on_event", "input", "approve"])
def test_callbacks_that_raise(tools: Any, where: str, mark: Path) -> None:
    def broken(_: object) -> Any:
        raise KeyError("mine")

    code = "print(input('?'))\nfrom mcptools.echo import danger\ndanger.run(text='x')\nopen('after', 'w')"
    options: dict[str, Any] = {"input": lambda _: "x", where: broken}
    with pytest.raises(KeyError, match="mine"):
        tools.run(code, **options)
    assert tools.run("import os\nos.path.exists('after')").value == "False" and not mark.exists()


@pytest.mark.parametrize("where", ["on_event", "input", "approve"])
def test_callbacks_that_raise_in_a_loop(
    client: Any, workspace: Path, servers: dict[str, Any], where: str, mark: Path
) -> None:
    def broken(_: object) -> Any:
        raise KeyError("mine")

    async def main() -> None:
        code = "print(input('?'))\nfrom mcptools.echo import danger\ndanger.run(text='x')"
        options: dict[str, Any] = {"input": lambda _: "x", where: broken}
        async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as s:
            with pytest.raises(KeyError, match="mine"):
                await s.run(code, **options)
            assert (await s.run("1")).value == "1" and not mark.exists()

    asyncio.run(asyncio.wait_for(main(), 60))


HOST = """
import asyncio, sys, threading
sys.path.insert(0, {package!r})
print("up", flush=True)
import cellgate
server = {{"echo": {{"command": "/usr/bin/python3", "args": [{server!r}]}}}}
def blocking():
    while True:
        with cellgate.Session(mcp_servers=server) as s:
            s.run("from mcptools.echo import danger\\ndanger.run(text='x')", approve=lambda _: True)
            s.exec("sleep 0.01; head -c 100000 /dev/zero")
            s.files.write("a", b"x" * 100000)
            s.run("import subprocess; p = subprocess.Popen(['sleep', '1000'])")
async def aio():
    while True:
        async with cellgate.aio.Session() as s:
            await asyncio.gather(*(s.run("print('x' * 100000)") for _ in range(3)), s.exec(["sleep", "0.05"]))
threading.Thread(target=blocking, daemon=True).start()
asyncio.run(aio())
"""


def groups_of(pid: int) -> set[str]:
    """Names of the control groups that cellgate has made for a process."""
    try:
        return set(re.findall(r"cellgate-box-\w+", Path(f"/proc/{pid}/cgroup").read_text()))
    except OSError:
        return set()


def kill_hosts(package: Path, folder: Path, times: int, seconds: float) -> None:
    """Kills programs with sessions at random moments: their processes, files, mounts and control groups end."""
    tmp, server = folder / "tmp", Path(__file__).parent.parent / "api/echo_server.py"
    (folder / "ws").mkdir()
    tmp.mkdir()
    env = os.environ | {"XDG_RUNTIME_DIR": str(tmp), "TMPDIR": str(tmp), "MARK": str(folder / "mark")}
    code = HOST.format(package=str(package), server=str(server))

    def left(pids: set[int], groups: set[str]) -> list[str]:
        found = [f"{pid} {name_of(pid)}" for pid in pids if alive(pid)]
        here = (os.path.join(at, name) for at, folders, files in os.walk(tmp) for name in folders + files)
        found += [p for p in here if p != f"{tmp}/cellgate-{os.getuid()}"]  # that is for all supervisors
        found += [m for m in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in m]
        return found + [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(folder) in groups]

    for i in range(times):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=folder / "ws", env=env) as host:
            assert host.stdout and host.stdout.readline() == b"up\n"
            time.sleep(random.uniform(0, seconds))
            pids, groups, todo = set[int](), set[str](), [host.pid]
            while todo:
                new = [p for p in children(todo.pop()) if p not in pids]
                pids.update(new)
                groups.update(*map(groups_of, new))
                todo += new
            host.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 30
        while (found := left(pids, groups)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not found, f"left by program {i}: {found}"


def test_killed_programs_leave_nothing(package: Path, tmp_path: Path) -> None:
    kill_hosts(package, tmp_path, int(os.environ.get("CG_KILLS", "5")), 2)


def test_sessions_open_after_the_supervisor_has_ended(script: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    run = script(
        """
        import pathlib, signal
        session = cellgate.Session()
        session.run("1")
        for pid in pathlib.Path("/proc/self/task").glob("*/children"):
            for child in pid.read_text().split():
                os.kill(int(child), signal.SIGKILL)
        try:
            session.run("1")
        except cellgate.ClosedError:
            print("ended")
        for _ in range(2):
            with cellgate.Session() as session:
                print(session.run("6 * 7").value)
        """
    )
    assert run.stdout == "ended\n42\n42\n", run.stderr
