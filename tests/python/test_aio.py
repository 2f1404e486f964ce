"""The asyncio front of the Python package, with real kernels."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import cellgate
import pytest

pytestmark = pytest.mark.anyio

DANGER = "from mcptools.echo import danger\ndanger.run(text='x')"


async def test_cells_state_and_events(client: Any, workspace: Path) -> None:
    async with cellgate.aio.Session(workspace, client=client) as s:
        assert (await s.run("x = 20\nprint('out')\nx + 1")).output == "out\n21\n"
        events = [e async for e in s.stream("x * 2")]
        assert [type(e) for e in events] == [cellgate.ExecuteResult, cellgate.Result] and events[0].text == "40"
        assert [f.path for f in (await s.run("open('/tmp/a', 'w')", artifacts=True)).artifacts] == ["/tmp/a"]
        assert (await s.run("input('n ')", input=lambda e: e.prompt)).value == "'n '"
        assert (await s.request("is_complete_request", {"code": "if 1:"})).content["status"] == "incomplete"
        await s.set_variables({"v": [1, 2.5]})
        assert await s.get_variables("v", "x") == {"v": [1, 2.5], "x": 20}
        with pytest.raises(cellgate.VariableError, match="no exact form"):
            await s.run("t = (1,)") and await s.get_variables("t")
        await s.set_variables(pickled=await s.get_untrusted_pickles("t"))
        await s.reset()
        assert (await s.run("x")).error.ename == "NameError"  # type: ignore[union-attr]


async def test_open_by_await_and_use_before(client: Any, workspace: Path) -> None:
    s = cellgate.aio.Session(workspace, client=client)
    with pytest.raises(cellgate.CellgateError, match="not opened"):
        await s.run("1")
    assert await s is s
    with pytest.raises(cellgate.CellgateError, match="open already"):
        await s
    assert (await s.run("1")).value == "1" and s.info["sandbox"] and s.id
    await s.close()
    with pytest.raises(cellgate.ClosedError):
        await s.run("1")


async def test_approvals(client: Any, workspace: Path, servers: dict[str, Any], mark: Path) -> None:
    async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as s:
        assert (await s.run(DANGER)).refused
        assert (await s.run(DANGER, approve=lambda _: False)).refused

        async def refuse(request: Any) -> bool:
            await asyncio.sleep(0)
            return False

        assert (await s.run(DANGER, approve=refuse)).refused and not mark.exists()

        async def accept(request: Any) -> bool:
            await asyncio.sleep(0)
            return request.tool == "danger" and request.arguments == {"text": "x"}

        assert (await s.run(DANGER, approve=accept)).ok and mark.exists()


async def test_approvals_by_plain_functions(client: Any, workspace: Path, servers: dict[str, Any], mark: Path) -> None:
    """They are called by the task that waits for the cell; what they return may be awaited in another one."""
    tasks: list[Any] = []

    def note(answer: Any) -> Any:
        tasks.append(asyncio.current_task())
        return answer

    async def later(answer: Any) -> Any:
        await asyncio.sleep(0)
        return note(answer)

    def broken(request: Any) -> bool:
        raise RuntimeError("undecided")

    async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as s:
        assert (await s.run(DANGER, approve=lambda _: note(False))).refused
        assert tasks.pop() is asyncio.current_task()
        assert (await s.run(DANGER, approve=lambda _: later(False))).refused
        assert tasks.pop() is not asyncio.current_task()
        with pytest.raises(RuntimeError, match="undecided"):
            await s.run(DANGER + "\nopen('after', 'w')", approve=broken)
        with pytest.raises(TypeError, match="must return True, False or None"):
            await s.run(DANGER, approve=lambda _: "yes")  # type: ignore[arg-type,return-value]
        with pytest.raises(TypeError, match="must return True, False or None"):
            await s.run(DANGER, approve=lambda _: later("yes"))
        assert not mark.exists() and not (workspace / "after").exists()
        assert (await s.run(DANGER, approve=lambda _: later(True))).ok and mark.exists()
        mark.unlink()
        assert (await s.run(DANGER, approve=lambda _: note(True))).ok and mark.exists()


async def test_approvals_of_a_gather_are_asked_at_the_same_time(
    client: Any, workspace: Path, servers: dict[str, Any]
) -> None:
    waiting = 0
    all_wait = asyncio.Event()

    async def approve(request: Any) -> bool:
        nonlocal waiting
        waiting += 1
        if waiting == 5:
            all_wait.set()
        await all_wait.wait()
        return True

    code = (
        "import asyncio\nfrom mcptools.echo import echo\n"
        "len(await asyncio.gather(*(echo.arun(text=str(i)) for i in range(5))))"
    )
    async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as s:
        assert (await s.run(code, approve=approve)).value == "5"


async def test_cancelled_task_cancels_its_cell(client: Any, workspace: Path) -> None:
    async with cellgate.aio.Session(workspace, client=client) as s:
        await s.run("import time\nx = 5")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(s.run("x = 6\ntime.sleep(60)\nx = 7"), 0.3)
        assert (await s.run("x")).value == "6"

        async for _ in s.stream("print(1)\ntime.sleep(60)"):
            break  # the iterator ends here, and so does the cell
        gc.collect()
        assert (await s.run("x")).value == "6"


async def test_cancelled_question_is_refused(client: Any, workspace: Path, servers: dict[str, Any], mark: Path) -> None:
    async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as s:
        asked = asyncio.Event()

        async def approve(request: Any) -> bool:
            asked.set()
            await asyncio.sleep(60)
            return True

        task = asyncio.ensure_future(s.run(DANGER, approve=approve))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await s.run("1")).value == "1" and not mark.exists()


async def test_commands_and_files(client: Any, workspace: Path, tmp_path: Path) -> None:
    async with cellgate.aio.Session(workspace, client=client) as s:
        done = await s.exec("cat; exit 3", input=b"x" * (3 << 20))
        assert (done.exit_code, len(done.stdout)) == (3, 3 << 20)
        await s.files.write("a", "text")
        assert await s.files.read("a") == b"text" and await s.files.exists("a")
        assert [e["name"] for e in await s.files.list()] == ["a"]
        with pytest.raises(cellgate.NotFoundError):
            await s.files.stat("b")
        async with s.start(["cat"], stdin=True) as command:
            await command.write(b"1")
            assert (await command.__anext__()).data == b"1"  # type: ignore[attr-defined]
            await command.close_stdin()
            assert [type(e) async for e in command] == [cellgate.CommandResult]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(s.exec(["sleep", "60"]), 0.2)


async def test_many_sessions_in_one_loop_without_threads(client: Any, workspace: Path) -> None:
    sessions = [cellgate.aio.Session(workspace, client=client) for _ in range(20)]
    for s in sessions:
        await s
    before = threading.active_count()
    values = await asyncio.gather(*(s.run(f"{i}") for i, s in enumerate(sessions)))
    assert [v.value for v in values] == [str(i) for i in range(20)] and threading.active_count() == before
    await asyncio.gather(*(s.close() for s in sessions))


async def test_opening_that_is_cancelled_leaves_no_session(client: Any, workspace: Path) -> None:
    before = len(client.sessions())
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(cellgate.aio.Session(workspace, client=client), 0.0001)
    for _ in range(200):
        if len(client.sessions()) == before and threading.active_count() < 8:
            break
        await asyncio.sleep(0.05)
    assert len(client.sessions()) == before


async def test_kernel_that_ends_and_session_that_is_closed_meanwhile(client: Any, workspace: Path) -> None:
    async with cellgate.aio.Session(workspace, client=client) as s:
        assert (await s.run("import os\nos._exit(1)")).status == "kernel_died"
        task = asyncio.ensure_future(s.run("import time\ntime.sleep(60)"))
        await asyncio.sleep(0.2)
    with pytest.raises(cellgate.ClosedError):
        await task


async def test_attached_session(package: Path, workspace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sup"
    with (
        cellgate.Client(address=folder, start=True, linger=0.001) as one,
        cellgate.Client(address=folder) as two,
    ):
        async with cellgate.aio.Session(workspace, client=one) as s:
            foreign: list[Any] = []
            async with cellgate.aio.Session(client=two, attach=s.id, on_event=foreign.append) as other:
                assert (await s.run("x = os = 1\n'mine'")).value == "'mine'"
                assert (await other.run("x + 1")).value == "2"
                assert any(isinstance(e, cellgate.ExecuteInput) and e.foreign for e in foreign)
            assert (await s.run("x")).value == "1"


def test_garbage_is_closed(client: Any, workspace: Path) -> None:
    before = len(client.sessions())
    s = cellgate.Session(workspace, client=client)
    assert len(client.sessions()) == before + 1
    del s
    gc.collect()
    assert len(client.sessions()) == before


@pytest.mark.parametrize("form", ["coroutine", "task", "thread", "plain"])
async def test_what_would_wait_for_its_own_question_raises(
    client: Any, workspace: Path, servers: dict[str, Any], mark: Path, form: str
) -> None:
    async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as s:
        loop = asyncio.get_running_loop()

        async def coroutine(request: Any) -> bool:
            return (await s.run("1")).ok

        def thread(request: Any) -> Any:
            run = asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(coroutine(request), loop).result())
            return asyncio.ensure_future(run)

        def plain(request: Any) -> bool:
            s.stream("1")
            return True

        def task(request: Any) -> Any:
            return asyncio.ensure_future(coroutine(request))

        approve: Any = {"coroutine": coroutine, "task": task, "thread": thread, "plain": plain}[form]
        with pytest.raises(cellgate.CellgateError, match="would wait for ever"):
            await s.run(DANGER, approve=approve)
        assert not mark.exists() and (await s.run("2")).value == "2"


async def test_what_runs_beside_the_question_works_in_approve(
    client: Any, workspace: Path, servers: dict[str, Any], mark: Path
) -> None:
    async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as s:
        subshell = (await s.request("create_subshell_request", {})).content["subshell_id"]

        async def approve(request: Any) -> bool:
            assert (await s.exec(["echo", "beside"])).stdout == b"beside\n" and not await s.files.exists("nothing")
            assert (await s.run("2 + 2", subshell=subshell)).value == "4"
            return True

        assert (await s.run(DANGER, approve=approve)).ok


async def test_another_task_may_run_cells_while_a_question_is_open(
    client: Any, workspace: Path, servers: dict[str, Any]
) -> None:
    """It waits its turn."""
    async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as s:
        asked = asyncio.Event()

        async def other() -> Any:
            await asked.wait()
            return await s.run("x = 5; x")

        async def approve(request: Any) -> bool:
            asked.set()
            await asyncio.sleep(0)
            return True

        task = asyncio.ensure_future(other())
        assert (await s.run(DANGER, approve=approve)).ok
        assert (await task).value == "5"


@pytest.mark.parametrize("later", [False, True])
async def test_approve_that_has_not_decided_refuses_with_a_warning(
    client: Any, workspace: Path, servers: dict[str, Any], mark: Path, later: bool
) -> None:
    async def nothing(request: Any) -> None:
        return None

    async with cellgate.aio.Session(workspace, client=client, mcp_servers=servers) as s:
        with pytest.warns(RuntimeWarning, match="has not decided about echo.danger"):
            assert (await s.run(DANGER, approve=nothing if later else lambda request: None)).refused
        assert not mark.exists()
