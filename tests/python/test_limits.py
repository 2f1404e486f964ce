"""What readers that are slow, absent or careless, and kernels that send anything, do to the program."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import cellgate
import pytest
from forging import LIBRARY
from processes import eventually

pytestmark = pytest.mark.anyio

FLOOD = "for i in range({mib}):\n    print('x' * (1 << 20))"


def test_cell_that_nobody_reads_is_held_back(client: Any, workspace: Path) -> None:
    with cellgate.Session(workspace, client=client) as s:
        cell = s.stream(FLOOD.format(mib=100))
        with pytest.raises(cellgate.LimitExceededError, match=rf"cell or command {cell.number} were not read"):
            s.run("1")  # after the other
        assert s._core.QUEUE_BYTES <= cell._consumer.bytes < s._core.QUEUE_BYTES + (8 << 20)
        assert sum(len(e.text) for e in cell if isinstance(e, cellgate.Stream)) == 100 * ((1 << 20) + 1)
        assert s.run("2").value == "2"

        with s.stream(FLOOD.format(mib=100)):
            done: list[Any] = []
            thread = threading.Thread(target=lambda: done.append(s.run("1")))
            thread.start()
            eventually(lambda: s._core.full() is not None)
        thread.join(60)  # what is dropped holds nothing back
        assert done[0].ok and s.run("1").value == "1"


def test_thread_that_reads_slowly_holds_others_up(client: Any, workspace: Path) -> None:
    with cellgate.Session(workspace, client=client) as s:
        cell = s.stream(FLOOD.format(mib=60))
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(s.run("1")))
        thread.start()
        eventually(lambda: s._core.full() is not None)
        time.sleep(0.3)
        assert s._core.full() and not done
        assert sum(len(e.text) for e in cell if isinstance(e, cellgate.Stream)) == 60 * ((1 << 20) + 1)
        thread.join(60)
        assert done[0].ok


def test_cell_that_no_task_reads_is_held_back(client: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with cellgate.aio.Session(workspace, client=client) as s:
            cell = s.stream(FLOOD.format(mib=100))
            monkeypatch.setattr(s._core, "STALLED", 1)
            with pytest.raises(cellgate.LimitExceededError, match="were not read"):
                await s.run("1")
            assert cell._reader.consumer.bytes < s._core.QUEUE_BYTES + (8 << 20)
            other = asyncio.ensure_future(s.run("1"))
            await asyncio.sleep(2)
            assert not other.done()  # for another task may read it
            total = 0
            async for e in cell:
                total += len(e.text) if isinstance(e, cellgate.Stream) else 0
            assert total == 100 * ((1 << 20) + 1) and (await other).ok

    asyncio.run(asyncio.wait_for(main(), 120))


def test_output_of_run_has_a_limit(session: Any) -> None:
    code = "import sys\nprint('a' * 600)\nprint('b' * 600, file=sys.stderr)\n'value'"
    result = session.run(code, output_limit=1000)
    assert result.ok and result.truncated and result.value == "'value'"
    assert (result.stdout, result.stderr) == ("a" * 600 + "\n", "b" * 399)
    assert "left out" in result.report and not session.run(code).truncated
    shown = session.run("display('x' * 600)\ndisplay('y' * 600)\ndisplay('z' * 10)", output_limit=1000)
    assert shown.truncated and [d.text[1] for d in shown.displays] == ["x", "z"]
    # What is replaced or cleared does not count.
    updates = "h = display('x', display_id=True)\nfor i in range(50):\n    h.update(str(i) * 100)"
    assert not session.run(updates, output_limit=1000).truncated
    clears = "from IPython.display import clear_output\nfor i in range(50):\n    print('x' * 500)\n    clear_output()"
    assert not session.run(clears, output_limit=1000).truncated


def test_the_least_part_of_a_processor_is_a_limit(client: Any, workspace: Path) -> None:
    with cellgate.Session(workspace, client=client, cores=0.0001) as s:
        assert s.info["limits"]["cores"]["value"] == 0.001


async def test_output_of_run_has_a_limit_in_a_loop(client: Any, workspace: Path) -> None:
    async with cellgate.aio.Session(workspace, client=client) as s:
        result = await s.run("print('x' * 2000)", output_limit=1000)
        assert result.truncated and len(result.stdout) == 1000


class Callable:
    async def __call__(self) -> int:
        return 7


async def plain(n: int = 0) -> int:
    return 7


@pytest.mark.parametrize("function", [plain, functools.partial(plain, n=1), Callable()])
def test_coroutine_functions_are_refused_by_sessions_that_block(session: Any, function: Any) -> None:
    with pytest.raises(cellgate.InvalidArgumentError, match="act is a coroutine function.*cellgate.aio.Session"):
        session.functions({"act": function})
    assert session.run("import mcptools").error.ename == "ModuleNotFoundError"


async def test_coroutine_functions_of_a_loop(client: Any, workspace: Path) -> None:
    async with cellgate.aio.Session(workspace, client=client) as s:
        await s.functions({"plain": plain, "object": Callable()})
        assert (await s.run("from mcptools.host import plain, object as o\nplain.run() + o.run()")).value == "14"


def test_handler_that_raises_loses_nothing_else(client: Any, workspace: Path) -> None:
    """Events of no cell go to on_event, in the thread that waits for a cell: this one."""

    def on_event(event: Any) -> None:
        raise KeyError(type(event).__name__)

    with cellgate.Session(workspace, client=client, on_event=on_event) as s:
        code = "comm = message(2, 25, 0, b'', b'{}')\nforge(comm + message(2, 12, 1, b'', b'text') + comm, 'k')"
        seen = []
        with s.stream(LIBRARY + code) as cell:
            while "Result" not in seen:
                try:
                    seen.append(type(cell.next_event(30)).__name__)
                except KeyError as e:
                    seen.append(str(e))
        assert sorted(seen) == ["'Comm'", "'Comm'", "ExecuteResult", "Result", "Stream"]
        assert s.run("1").value == "1"


def test_events_that_a_kernel_forges(session: Any) -> None:
    """Members of any type; a reader gets events all the same."""
    contents = [
        b'{"data": 5, "metadata": [], "transient": "x", "execution_count": "many"}',
        b'{"data": {"text/plain": 1, "image/png": [1]}, "transient": {"display_id": {}}}',
        b'{"ename": [], "evalue": {}, "traceback": 7}',
        b'{"traceback": [1, {}, null], "wait": "x"}',
        b'{"msg_type": 1, "content": 2, "metadata": 3}',
        b'{"data": {"x": 1' + b"0" * 4070 + b"}}",
        b"[" * 2000 + b"]" * 2000,
        b"\xff",
    ]
    kinds = "(16, 13, 14, 15, 17, 25, 26)"  # the first clears
    code = f"forge(b''.join(message(2, k, 1, b'', raw) for k in {kinds} for raw in {contents!r}), 'k')\n'last'"
    result = session.run(LIBRARY + code)
    assert result.ok and result.value == "'last'" and result.images == [], result
    assert len(result.displays) > 7 and result.displays[0].data == {} and result.error and str(result.error)


def test_interrupt_of_the_reader_leaves_the_session_usable(package: Path, workspace: Path) -> None:
    """Ctrl-C while events arrive: whatever moment it hits, the next cell works."""
    code = (
        f"import sys, signal\nsys.path.insert(0, {str(package)!r})\nimport cellgate\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "with cellgate.Session() as s:\n"
        "    for i in range(40):\n"
        "        try:\n"
        "            signal.setitimer(signal.ITIMER_REAL, 0.002 * (i + 1) if i % 2 else 0.00003 * (i + 1))\n"
        "            s.run('while True: print(1)')\n"
        "        except KeyboardInterrupt:\n"
        "            pass\n"
        "        assert s.run('2').value == '2'\n"
        "print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=workspace)
    assert done.stdout == "fine\n", done.stderr
