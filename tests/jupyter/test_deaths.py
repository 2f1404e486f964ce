"""A kernel that ends by itself: its client gets the reason and a new kernel."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DEATHS = {
    "exit": ("import os; os._exit(3)", "3"),
    "segfault": ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    "abort": ("import os; os.abort()", "SIGABRT"),
    "kill": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    "in a thread": (
        "import os, threading, time\nthreading.Thread(target=lambda: os._exit(4)).start()\ntime.sleep(100)",
        "4",
    ),
}


# AddressSanitizer turns a segmentation fault of the kernel into its report and an ordinary exit.
SANITIZED = {"segfault": pytest.mark.no_sanitizer}


@pytest.mark.parametrize("death", [pytest.param(d, marks=SANITIZED.get(d, ())) for d in DEATHS])
def test_death_in_a_cell(client: Any, death: str) -> None:
    code, why = DEATHS[death]
    client.run("x = 1")
    request = client.start(code)
    behind = client.start("2")
    run = client.finish(request)
    assert (run.content["status"], run.content["ename"]) == ("error", "KernelDied")
    assert why in run.content["evalue"]
    assert run.types()[-2:] == ["error", "idle"]
    assert run.of("error")[0]["ename"] == "KernelDied"
    assert run.of("error")[0]["traceback"] == run.content["traceback"] == [f"KernelDied: {run.content['evalue']}"]
    assert client.reply(behind)["content"]["status"] == "aborted"
    again = client.run("'x' in globals()")
    assert (again.result(), again.content["execution_count"]) == ("False", 1)


def test_death_where_a_notebook_is_run_to_its_end(start: Any) -> None:
    """nbclient: no reply, no further cell in a kernel without state; the program ends."""
    kernel = start("--HistoryManager.hist_file=:memory:")
    client = kernel.client()
    assert client.run("6 * 7").result() == "42"
    request = client.start("import os; os._exit(3)")
    assert kernel.wait() == 2
    assert client.nothing("shell", 0.1) is None, request
    assert "they mean nothing here" not in kernel.stderr()


def test_clients_can_tell_that_the_kernel_is_another(kernel: Any, client: Any) -> None:
    before = client.run("1").reply["header"]["session"]
    other = kernel.client()
    client.run("import os; os._exit(3)")
    states: list[str] = []
    while "starting" not in states or states[-1] != "idle":
        message = other.receive("iopub")
        assert message, states
        if message["msg_type"] == "status":
            states.append(message["content"]["execution_state"])
    assert states[-4:] == ["busy", "idle", "starting", "idle"]
    other.nothing("iopub")
    assert client.run("1").reply["header"]["session"] != before


def test_death_between_cells_is_told(client: Any, tmp_path: Path) -> None:
    client.run(
        "import os, threading, time\ndef die():\n    while not os.path.exists('die'): time.sleep(0.01)\n    os._exit(5)\n"
        "threading.Thread(target=die).start()"
    )
    (tmp_path / "work/die").touch()
    seen = []
    while not any(m["content"].get("execution_state") == "starting" for m in seen):
        seen.append(client.receive("iopub"))
    (notice,) = [m["content"] for m in seen if m["msg_type"] == "stream"]
    assert notice["name"] == "stderr"
    assert "the kernel ended" in notice["text"]
    assert client.run("6 * 7").result() == "42"


# ENTER GROUP PROGRAM ARGS...: the program, and all that it starts, in this control group.
ENTER = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group of 256 MiB below our own, which whoever writes its number into cgroup.procs is in. Not the tests'
    own process: it may be what the system ends for want of memory."""
    own = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()}
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    home = v1 / own["memory"].lstrip("/") if "memory" in own else v2 / own.get("", "/").lstrip("/")
    group = home / f"cellgate-test-{os.getpid()}"
    limit = group / ("memory.limit_in_bytes" if "memory" in own else "memory.max")
    try:
        group.mkdir()
        limit.write_text(str(256 << 20))
        subprocess.run(["/bin/sh", "-c", ENTER, "sh", group, "true"], check=True)
    except (OSError, subprocess.CalledProcessError) as e:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no control group with a memory limit can be made here: {e}")
    yield group
    deadline = time.monotonic() + 20
    while not _removed(group):  # the kernel's supervisor lingers, and has groups of its own below
        assert time.monotonic() < deadline
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
        time.sleep(0.05)


def _removed(group: Path) -> bool:
    try:
        for below in group.glob("cellgate-*"):
            below.rmdir()
        group.rmdir()
    except OSError:
        return False
    return True


FILL = "x = []\nwhile True: x.append(b'x' * (8 << 20))"


@pytest.mark.no_sanitizer
def test_a_kernel_that_the_system_kills_for_want_of_memory(
    memory_group: Path, empty_runtime_dir: Path, start: Callable[..., Any]
) -> None:
    """A supervisor of its own: one that runs already would be outside of the group."""
    enter = ["/bin/sh", "-c", ENTER, "sh", str(memory_group)]
    # In a sandbox a kernel has half of the group by default, and reaches that first.
    kernel = start("--no-sandbox", runtime_dir=empty_runtime_dir, by=enter)
    client = kernel.client()
    client.run("import os; os.environ['x'] = 'y'")
    behind = client.start(FILL), client.start("2")
    run = client.finish(behind[0])
    assert (run.content["status"], run.content["ename"]) == ("error", "KernelDied")
    assert "out of memory" in run.content["evalue"] and "256 MiB" in run.content["evalue"]
    assert run.types()[-2:] == ["error", "idle"] and "out of memory" in run.of("error")[0]["evalue"]
    assert client.reply(behind[1])["content"]["status"] == "aborted"
    assert client.run("6 * 7").result() == "42"
    run = client.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert "out of memory" not in run.content["evalue"] and "memory was not the reason" in run.content["evalue"]


def test_exit_is_a_wish_of_the_client(client: Any) -> None:
    assert client.run("exit").content["payload"] == [{"source": "ask_exit", "keepkernel": False}]
    assert client.run("6 * 7").result() == "42"


def test_comm_request_of_a_dying_kernel_ends(client: Any) -> None:
    client.run(
        "from comm import get_comm_manager\nimport os\n"
        "get_comm_manager().register_target('die', lambda comm, message: os._exit(6))"
    )
    request = client.send("shell", "comm_open", {"comm_id": "c", "target_name": "die", "data": {}})
    client.published(request)
    assert client.run("6 * 7").result() == "42"


def test_supervisor_that_is_killed(kernel: Any, client: Any, supervisors: Callable[[], list[int]]) -> None:
    """The session cannot continue; the clients get the reason, and the process ends with an error."""
    running = client.start("import time; time.sleep(100)")
    while client.receive("iopub")["msg_type"] != "execute_input":
        pass
    for pid in supervisors():
        os.kill(pid, signal.SIGKILL)
    answer = client.reply(running)["content"]
    assert (answer["status"], answer["ename"]) == ("error", "KernelEnded")
    states = []
    while "dead" not in states:
        states.append(client.receive("iopub")["content"].get("execution_state"))
    assert kernel.wait() == 2
    assert "supervisor" in kernel.stderr()


# Ways to use memory: one large piece, many small ones, a string, a thread, an import, output, a display.
HUNGER = [
    "x = bytearray(1 << 30)",
    "x = []\nwhile True: x.append(b'x' * (1 << 20))",
    "x = []\nwhile True: x.append([0] * 100)",
    "x = 'x'\nwhile True: x += x",
    "print('x' * (1 << 29))",
    "'x' * (1 << 29)",
    "def f(n):\n    x = [0] * 1_000_000\n    return f(n + 1)\nf(0)",
]


@pytest.mark.no_sanitizer
def test_a_memory_limit_is_a_memory_error(start: Callable[..., Any], tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    rules: dict[str, Any] = {"network": {"allowedDomains": [], "deniedDomains": []}}
    rules["filesystem"] = {"denyRead": [], "allowWrite": [], "denyWrite": []}
    settings.write_text(json.dumps({**rules, "cellgate": {"limits": {"memoryMb": 300}}}))
    client = start("--sandbox", settings).client()
    for code in HUNGER:
        run = client.run(code)
        assert (run.content["status"], run.content["ename"]) == ("error", "MemoryError"), (code, run.content)
        assert [e["ename"] for e in run.of("error")] == ["MemoryError"]
        again = client.run("x = None\n6 * 7")
        assert again.types() == ["busy", "execute_input", "execute_result", "idle"], (code, again)


def test_a_kernel_that_cannot_be_started_says_why(start: Callable[..., Any], tmp_path: Path) -> None:
    """If the program ended, no client would get the reason: it continues, and every cell fails with the reason."""
    settings = tmp_path / "settings.json"
    rules: dict[str, Any] = {"network": {"allowedDomains": [], "deniedDomains": []}}
    rules["filesystem"] = {"denyRead": [], "allowWrite": [], "denyWrite": []}
    settings.write_text(json.dumps({**rules, "cellgate": {"limits": {"memoryMb": 1}}}))
    kernel = start("--sandbox", settings)
    client = kernel.client()
    info = client.ask("kernel_info_request").content
    assert info["status"] == "ok"
    head, why = info["banner"].split("the kernel could not be started: ")
    assert head and why and why in kernel.stderr()
    for _ in range(2):
        run = client.run("1")
        assert (run.content["status"], run.content["ename"]) == ("error", "KernelNotStarted")
        assert run.content["evalue"] == f"{why}; restart the kernel to try again"
        assert run.content["traceback"] == [f"KernelNotStarted: {run.content['evalue']}"]
        assert run.types() == ["busy", "error", "idle"]
    for kind, content in (("complete_request", {"code": "a", "cursor_pos": 1}), ("history_request", {})):
        answer = client.ask(kind, content).content
        assert (answer["status"], answer["ename"]) == ("error", "KernelNotStarted")
    client.published(client.send("shell", "comm_open", {"comm_id": "c", "target_name": "t", "data": {}}))
    subshell = client.reply(client.send("control", "create_subshell_request"), "control")["content"]
    assert (subshell["status"], subshell["ename"]) == ("error", "KernelNotStarted")
    assert client.reply(client.send("control", "interrupt_request"), "control")["content"]["status"] == "ok"
    assert client.reply(client.send("control", "shutdown_request", {"restart": False}), "control")
    assert kernel.wait() == 0
