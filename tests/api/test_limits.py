"""Limits of sessions: exceeded and not exceeded; each is an event with its name and figure, and the info says how it is held."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client, Event, Outcome, Session
from folders import groups_of, there
from processes import children, eventually, named, words
from web import settings

MIB = 1 << 20
FILL = "import mmap\nm = mmap.mmap(-1, {} << 20)\nfor i in range(0, len(m), 4096): m[i] = 1"


def denied(o: Outcome) -> list[dict]:
    return [e.json for e in o.events if e.type == "denied"]


def by(s: Session, limit: str) -> str:
    return s.info["limits"][limit]["by"]


def needs_group(s: Session, limit: str) -> None:
    if not by(s, limit).startswith("cgroup"):
        pytest.skip(f"no control group that this user may make: {limit} is held by {by(s, limit)}")


def test_the_info_says_how_each_is_held(client: Client, workspace: Path) -> None:
    with client.session(
        workspace=workspace,
        memory_bytes=400 * MIB,
        open_files=100,
        wall_seconds=500,
        output_bytes=5 * MIB,
        cores_milli=1500,
    ) as s:
        limits = s.info["limits"]
    assert limits["memory"]["value"] == 400 and limits["memory"]["unit"] == "MiB"
    assert (limits["memory"]["by"], limits["memory"]["scope"]) in [
        ("cgroup v1", "sandbox"),
        ("cgroup v2", "sandbox"),
        ("rlimit", "process"),
    ]
    assert limits["cores"]["value"] == 1.5 and limits["cores"]["by"] in ("cgroup v1", "cgroup v2", "affinity")
    assert limits["openFiles"] == {"value": 100, "unit": "files", "by": "rlimit", "scope": "process"}
    assert limits["wallTime"] == {"value": 500, "unit": "s", "by": "timer", "scope": "session"}
    assert limits["output"] == {"value": 5, "unit": "MiB", "by": "count", "scope": "cell"}
    assert limits["processes"]["value"] == 512
    assert "fileSize" not in limits and "cpuTime" not in limits


def test_settings_name_them_and_options_win(client: Client, workspace: Path) -> None:
    limits = {"openFiles": 50, "cores": 0.5, "outputMb": 3, "wallSeconds": 100}
    with client.session(workspace=workspace, settings=settings(cellgate={"limits": limits}), open_files=70) as s:
        values = {name: limit["value"] for name, limit in s.info["limits"].items()}
    values.pop("memory", None)  # the default, which sanitizers do without
    assert values == {"openFiles": 70, "cores": 0.5, "output": 3, "wallTime": 100, "processes": 512}


def memory_of_the_machine() -> int:
    """In bytes; a group with a limit can only have less."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.no_sanitizer  # its shadow memory is over any limit
def test_memory_is_that_of_the_batch_job(prefix: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm may say how much a job may have and limit nothing itself."""
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1000")
    with Client(log_level=0) as c, c.session(workspace=workspace) as s:
        assert s.info["limits"]["memory"]["value"] == 500


@pytest.mark.no_sanitizer  # its shadow memory is over any limit
def test_memory_has_a_limit_by_default(client: Client, workspace: Path) -> None:
    """At most half of the memory: for each process, for all together if there is a group, and for files in /tmp."""
    with client.session(workspace=workspace) as s:
        limit = s.info["limits"]["memory"]
        assert 0 < limit["value"] << 20 <= memory_of_the_machine() / 2
        assert limit["by"] in ("rlimit", "cgroup v1", "cgroup v2")
        o = s.run(f"x = bytearray({limit['value'] + 100} << 20)")
        assert o.error and o.error["ename"] == "MemoryError"
        (d,) = denied(o)
        assert (d["limit"], d["value"], d["rule"]) == ("memory", limit["value"], "memory_bytes")
        inside = json.loads(
            s.run(
                "import json, os, resource\n"
                "sizes = [v.f_blocks * v.f_frsize for v in map(os.statvfs, ('/tmp', '/var/tmp', '/dev/shm', '/run'))]\n"
                "score = int(open('/proc/self/oom_score_adj').read())\n"
                "print(json.dumps([resource.getrlimit(resource.RLIMIT_DATA)[0], sizes, score]))"
            ).stdout
        )
        assert inside[0] == limit["value"] << 20
        assert sum(inside[1]) <= limit["value"] << 20 or limit["by"] != "rlimit"
        # Where nothing counts all processes together, they are the first that the machine's kernel ends.
        assert inside[2] >= 500 or limit["by"] != "rlimit"
        # Address space without memory is not limited: numpy, pyarrow and Java reserve it.
        reserve = f"import mmap; m = mmap.mmap(-1, {memory_of_the_machine() * 2}, mmap.MAP_PRIVATE | 0x4000, 0)"
        assert s.run(reserve).status == "ok"


@pytest.mark.no_sanitizer
def test_the_default_of_memory_is_raised_and_lowered(client: Client, workspace: Path) -> None:
    for mib in (200, 4_000_000):
        with client.session(workspace=workspace, memory_bytes=mib * MIB) as s:
            assert s.info["limits"]["memory"]["value"] == mib
            o = s.run("import resource, os; print(resource.getrlimit(resource.RLIMIT_DATA)[0] >> 20)")
            assert o.stdout == f"{mib}\n"
            o = s.run("v = os.statvfs('/tmp'); print(v.f_blocks * v.f_frsize >> 20)")
            whole = s.info["limits"]["memory"]["by"] != "rlimit"  # files count in the group
            assert o.stdout == f"{1024 if whole else min(mib // 4, 1024)}\n"
    with client.session(workspace=workspace, sandbox=1) as s:  # off
        assert "memory" not in s.info["limits"]


@pytest.mark.no_sanitizer  # its shadow memory is over any limit
def test_memory(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, memory_bytes=300 * MIB) as s:
        assert s.run(FILL.format(50)).status == "ok"
        # One allocation that is too large fails where it is made.
        o = s.run("x = bytearray(400 << 20)")
        assert o.error and o.error["ename"] == "MemoryError"
        (d,) = denied(o)
        assert (d["operation"], d["limit"], d["value"], d["unit"]) == ("limit", "memory", 300, "MiB")
        assert d["rule"] == "memory_bytes" and d["how"] == "raise memory_bytes"
        assert s.run("1 + 1").value == "2"
        needs_group(s, "memory")
        # Memory of another process in the sandbox: the kernel continues.
        o = s.run(f"import subprocess; subprocess.run(['python3', '-c', '''{FILL.format(400)}''']).returncode")
        assert o.value == "-9" and [d["limit"] for d in denied(o)] == ["memory"]
        # Memory of the kernel.
        o = s.run(FILL.format(400))
        assert o.status == "kernel_died"
        assert o.result.text.startswith(
            f"the kernel ended: memory limit of 300 MiB reached ({by(s, 'memory')}); raise "
        )
        assert [d["layer"] for d in denied(o)] == [by(s, "memory")]
        died = s.next()
        assert died and died.type == "kernel_died" and "memory limit of 300 MiB" in died.text
        assert s.run("1 + 1").value == "2"


def test_open_files_and_file_size(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, open_files=64, file_bytes=MIB) as s:
        assert s.run("l = [open('/dev/null') for i in range(20)]; open('f', 'wb').write(bytes(1 << 20))").status == "ok"
        o = s.run("l = [open('/dev/null') for i in range(100)]")
        assert o.error and o.error["evalue"].startswith("[Errno 24]")
        assert [(d["limit"], d["value"]) for d in denied(o)] == [("openFiles", 64)]
        s.run("l = None")
        o = s.run("open('g', 'wb').write(bytes(1 << 21))")
        assert o.error and o.error["evalue"].startswith("[Errno 27]")
        assert [(d["limit"], d["value"], d["scope"]) for d in denied(o)] == [("fileSize", 1, "file")]


def test_processes(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, processes=40) as s:
        start = "import subprocess\nl = []\nfor i in range({}): l.append(subprocess.Popen(['sleep', '100']))"
        end = "for p in l: p.kill(); p.wait()"
        o = s.run(start.format(10))
        assert o.status == "ok" and not denied(o)
        s.run(end)
        o = s.run(start.format(400))
        if by(s, "processes") == "nothing":
            pytest.skip("nothing limits root's processes before Linux 6.14 without a control group")
        assert o.error and o.error["ename"] == "BlockingIOError"
        assert [(d["limit"], d["value"], d["layer"]) for d in denied(o)] == [("processes", 40, by(s, "processes"))]
        assert s.run(end).status == "ok"
        assert s.run(start.format(10)).status == "ok"


def test_a_socket_that_would_wait_is_no_limit(session: Session) -> None:
    o = session.run("import socket\na, b = socket.socketpair()\na.setblocking(False)\na.recv(1)")
    assert o.error and o.error["evalue"].startswith("[Errno 11]") and not denied(o)


def test_output(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, output_bytes=MIB) as s:
        o = s.run("print('x' * (1 << 19))")
        assert len(o.stdout) == (1 << 19) + 1 and not denied(o)
        o = s.run("for i in range(3000): print('x' * 999)")
        assert o.status == "ok" and len(o.stdout) <= MIB
        assert [(d["limit"], d["value"], d["layer"]) for d in denied(o)] == [("output", 1, "count")]
        # Each cell anew.
        assert s.run("print('again')").stdout == "again\n"


OUTPUTS = {
    "messages": "from comm import create_comm\nc = create_comm(target_name='t')\nfor i in range(40): c.send({'x': 'x' * 200000})",
    "tracebacks": "class E(Exception): __str__ = lambda self: 'x' * 200000\nfor i in range(300):\n try: raise E\n except E: get_ipython().showtraceback()",
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_output_of_other_kinds(client: Client, workspace: Path, kind: str) -> None:
    """They count as well; of errors as much again is shown, so that the last one is."""
    with client.session(workspace=workspace, output_bytes=MIB) as s:
        o = s.run(OUTPUTS[kind])
        assert sum(len(json.dumps(e.json)) for e in o.events if e.json) <= 2 * MIB + 50_000
        assert [(d["limit"], d["value"]) for d in denied(o)] == [("output", 1)]
        o = s.run("for i in range(2000): print('x' * 999)\n1 / 0")
        assert "ZeroDivisionError" in json.dumps([e.json for e in o.events if e.type == "error"])


def test_processor_time(client: Client, workspace: Path) -> None:
    spin = "import subprocess; p = [subprocess.Popen(['sh', '-c', 'while :; do :; done']) for i in range(2)]; [q.wait() for q in p]"
    with client.session(workspace=workspace, cpu_seconds=1) as s:
        assert s.run("1").status == "ok"
        grouped = by(s, "cpuTime").startswith("cgroup")
        o = s.run(spin if grouped else "while True: pass")
        assert o.status == "kernel_died"
        assert f"processor time limit of 1 s reached ({by(s, 'cpuTime')})" in o.result.text
        assert [d["limit"] for d in denied(o)] == ["cpuTime"]


def test_wall_time_ends_the_session(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, wall_seconds=4) as s:
        s.execute("import time\nwhile True: time.sleep(0.1)")
        events: list[Event] = s.until("session_closed")
    assert [e.json["limit"] for e in events if e.type == "denied"] == ["wallTime"]
    result = next(e for e in events if e.type == "result")
    assert "wall time limit of 4 s reached (timer)" in result.text
    assert "wall time limit of 4 s reached (timer)" in events[-1].text


def test_limits_are_no_more_negative_than_they_are_texts(client: Client, workspace: Path) -> None:
    """Numbers beyond any figure are cut, not wrapped."""
    with client.session(workspace=workspace, output_bytes=(1 << 64) - 1) as s:
        assert s.run("print(1)").stdout == "1\n"


# ---- nothing left behind


def _processes() -> dict[str, int]:
    """Process ids of the newest supervisor that this test has started, and of its only kernel."""
    supervisor = named(children(os.getpid()), "cellgate-superv")
    (zygote,) = (p for p in children(supervisor) if b"--zygote" in words(p))
    return {"supervisor": supervisor, "zygote": zygote, "init": named(children(zygote), "cg-init")}


@pytest.mark.parametrize("victim", ["kernel", "init", "zygote", "supervisor", "close"])
def test_no_group_is_left(workspace: Path, victim: str) -> None:
    client = Client(log_level=0, no_spare=1)
    try:
        s = client.session(workspace=workspace, memory_bytes=300 * MIB, processes=100)
        needs_group(s, "memory")
        pids = _processes()
        made = groups_of(pids["init"])
        assert made
        if victim == "kernel":
            assert s.run("import os; os.kill(os.getpid(), 9)").status == "kernel_died"
        elif victim == "close":
            s.close()
        else:
            os.kill(pids[victim], signal.SIGKILL)
            if victim != "supervisor":
                s.until("kernel_died")
            if victim == "zygote":
                assert s.run("1 + 1").value == "2"
        eventually(lambda: not there(made))
    finally:
        client.close()


def test_a_cell_that_there_is_no_memory_for_has_its_result(client: Client, workspace: Path) -> None:
    """There is room for its code once, and not twice."""
    fill = "hold = []\ntry:\n    while True: hold.append(bytearray(1 << 20))\nexcept MemoryError: pass\ndel hold[-{}:]"
    texts = []
    for free in (16, 20, 24):
        with client.session(workspace=workspace, memory_bytes=300 * MIB) as s:
            s.run(fill.format(free))
            texts.append(s.run("#" + "x" * (13 * MIB) + "\n1").result.text)
    assert any("MemoryError" in t for t in texts), texts


def test_a_limit_too_small_for_any_kernel_is_refused(client: Client, workspace: Path) -> None:
    for options, name, least in (
        ({"memory_bytes": 5 * MIB}, "memory_bytes=5242880", 67108864),
        ({"processes": 2}, "processes=2", 8),
        ({"open_files": 3}, "open_files=3", 32),
        ({"settings": settings(cellgate={"limits": {"memoryMb": 5}})}, "cellgate.limits.memoryMb=5", 64),
    ):
        says = f"{name} is too small a limit for a kernel: the least that works is {least}"
        with pytest.raises(CellgateError, match=says):
            client.session(workspace=workspace, **options)


IN_FLIGHT = """
import array, os, socket
null, pairs = os.open("/dev/null", os.O_RDONLY), []
try:
    while True:
        pairs.append(socket.socketpair())
        pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 100))])
except OSError as e:
    print(e.errno == 109, len(pairs) > 40)
"""


@pytest.mark.no_sanitizer  # its shadow memory is over any limit
def test_descriptors_that_another_cell_has_in_flight(prefix: Path, tmp_path: Path) -> None:
    """Linux compares the number of all the user's with the limit of the process that sends another one."""
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir()
    with Client(no_spare=1) as c, c.session(workspace=places[0]) as hostile:
        assert hostile.run(IN_FLIGHT).stdout == "True True\n"
        for options in ({}, {"open_files": 32}):
            with c.session(workspace=places[1], **options) as s:
                assert s.run("1").value == "1"
                assert s.run("!echo a").stdout.strip() == "a"
                assert s.command("echo", "b")[1] == b"b\n"
        assert hostile.run("len(pairs) > 40").value == "True"


@pytest.fixture
def outer_group() -> Iterator[Path]:
    """A control group of 400 MB in which cellgate can be run: the file that takes its members."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    root, limit, members = "/sys/fs/cgroup", "memory.max", "cgroup.procs"
    if "memory" in own:
        root, limit, members = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "tasks"
    folder = Path(root + own.get("memory", own.get("", "")))
    group = folder / f"cellgate-test-outer-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as e:
        pytest.skip(f"no control group that this user may make: {e}")
    try:
        (group / limit).write_text("400000000")
    except OSError as e:
        group.rmdir()
        pytest.skip(f"no memory limit in a control group here: {e}")
    yield group / members
    eventually(lambda: not (group / "cgroup.procs").read_text())
    for below in [*group.glob("*/"), group]:
        below.rmdir()


def test_want_of_memory_outside_is_no_limit_of_the_kernel(outer_group: Path, prefix: Path, workspace: Path) -> None:
    """The group that all of cellgate runs in has less than the kernel may have."""
    code = "b = [bytearray(50 << 20) for i in range(40)]"
    run = [prefix / "bin/cellgate", "run", "--limit", "memoryMb=3000", "-c", code]
    argv = ["sh", "-c", 'echo 0 > "$0"; exec "$@"', outer_group, *run]
    p = subprocess.run(argv, cwd=workspace, capture_output=True, text=True)
    assert "out of memory" in p.stderr and "outside of the sandbox" in p.stderr, p.stderr
    assert "limit of 3000 MiB" not in p.stderr and "raise" not in p.stderr
