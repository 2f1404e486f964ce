"""What a session's end lets its kernel do: what was registered with atexit, for a second, and nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cellgate_api import Client

REGISTER = "import atexit; atexit.register(lambda: open('left', 'w').write('bye'))"


def eventually(check: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_atexit_has_run_when_the_session_is_freed(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        s.run(REGISTER)
    assert (workspace / "left").read_text() == "bye"


def test_a_running_cell_is_interrupted_first(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        s.run(REGISTER)
        s.execute("print('on', flush=True)\nwhile True: pass")
        s.until("stream")
    assert (workspace / "left").read_text() == "bye"


def test_atexit_runs_at_a_reset(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        s.run(REGISTER)
        s.reset()
        eventually(lambda: (workspace / "left").exists())
        assert s.run("1").value == "1"


def test_what_does_not_end_is_ended(client: Client, workspace: Path) -> None:
    mark = workspace / "beats"
    beat = (
        "import atexit, time\n"
        "def never():\n"
        "    while True:\n"
        "        try:\n"
        "            open('beats', 'a').write('x'); time.sleep(0.01)\n"
        "        except BaseException: pass\n"
        "atexit.register(never)"
    )
    with client.session(workspace=workspace) as s:
        s.run(beat)
    assert mark.stat().st_size > 0
    size = mark.stat().st_size
    time.sleep(0.3)
    assert mark.stat().st_size == size, "it is gone when the session is"


def test_atexit_runs_when_the_host_is_killed(workspace: Path, prefix: Path) -> None:
    host = (
        "import sys, os\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from cellgate_api import Client\n"
        "c = Client(); s = c.session(workspace=sys.argv[1])\n"
        f"s.run({REGISTER!r})\n"
        "print('up', flush=True); sys.stdin.read()\n"
    )
    env = os.environ | {"CG_PREFIX": str(prefix)}
    p = subprocess.Popen(
        [sys.executable, "-c", host, str(workspace)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    assert p.stdout is not None
    assert p.stdout.readline() == b"up\n"
    p.send_signal(signal.SIGKILL)
    p.wait()
    eventually(lambda: (workspace / "left").exists())


def test_without_a_cell_nothing_is_waited_for(client: Client, workspace: Path) -> None:
    for _ in range(5):
        client.session(workspace=workspace).close()
