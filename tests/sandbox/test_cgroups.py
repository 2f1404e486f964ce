"""Limits that a control group holds: of the sandbox as a whole, exceeded and not exceeded, and nothing left behind.

Where the user who runs a test may make no group (an ordinary one usually) the same limits are held by rlimits and CPU affinity,
and the sandbox says so.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from folders import CGROUPS, groups_in, groups_of, names_below, there
from sandbox.conftest import PROBE, Box, Launched

pytestmark = pytest.mark.no_sanitizer  # its shadow memory is over any limit

NO_GROUP = ["--cgroup-files", "/nonexistent"]
MIB = 1 << 20


def limits(box: Box, *opts: str, command: str = "true") -> "tuple[dict[str, str], subprocess.CompletedProcess[str]]":
    """Return the mechanism of each limit, and the finished command."""
    p = box.sh(command, opts=["--say-limits", *opts])
    return dict(line.split(": ", 1) for line in p.stderr.splitlines() if ": " in line), p


def counts(p: "subprocess.CompletedProcess[str]") -> list[int]:
    """Processes ended for memory, forks denied, processor time in ms."""
    return next(list(map(int, line.split()[1:])) for line in p.stderr.splitlines() if line.startswith("counts "))


def needs_group(box: Box, limit: str, *opts: str) -> str:
    by = limits(box, *opts)[0][limit]
    if not by.startswith("cgroup"):
        pytest.skip(f"no control group that this user may make: {limit} is held by {by}")
    return by


# Python is there wherever the tests run; it makes memory that no rlimit of data counts, or several processes that share it.
SHARED = "import mmap; m = mmap.mmap(-1, {0} << 20); [m.__setitem__(i, 1) for i in range(0, {0} << 20, 4096)]"


def test_memory_of_the_sandbox_as_a_whole(box: Box) -> None:
    opts = ["--memory", str(100 * MIB)]
    needs_group(box, "memory", *opts)
    fill = "head -c {}M /dev/zero > /dev/shm/a"
    within = limits(box, *opts, command=fill.format(50))[1]
    assert within.returncode == 0 and counts(within)[0] == 0
    over = limits(box, *opts, command=fill.format(150) + "; exit 0")[1]
    assert counts(over)[0] >= 1
    # Two processes that together have too much: the second has memory of its own beside what the first has.
    two = f"python3 -c '{SHARED.format(60)}\nimport os\nif os.fork():\n os.wait()\nelse:\n n = m; {SHARED.format(60)}'"
    assert counts(limits(box, *opts, command=two)[1])[0] >= 1
    one = f"python3 -c '{SHARED.format(60)}\nimport os\nif os.fork():\n os.wait()'"
    assert counts(limits(box, *opts, command=one)[1])[0] == 0


def test_processes_are_exactly_so_many(box: Box) -> None:
    opts = ["--processes", "20"]
    needs_group(box, "processes", *opts)
    p = box.run(PROBE, "forks", "100", opts=[*opts, "--say-limits"])
    assert p.stdout == "18\n" and counts(p)[1] == 1  # beside init and the probe
    p = box.run(PROBE, "forks", "18", opts=[*opts, "--say-limits"])
    assert p.stdout == "18\n" and counts(p)[1] == 0


def test_without_sandbox_a_group_holds_them_as_well(box: Box) -> None:
    opts = ["--off", "--processes", "20", "--memory", str(100 * MIB)]
    needs_group(box, "processes", *opts)
    # `read` waits for the test, which looks at the groups meanwhile.
    script = f"cat /proc/self/cgroup; echo; read go; exec {box.base}/bin/sandbox-probe forks 100"
    p = subprocess.Popen(
        [*box.launcher, *opts, "--say-limits", "--", "/bin/sh", "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert p.stdout
    made = groups_in("".join(iter(p.stdout.readline, "\n")))
    assert made
    out, err = p.communicate("go\n", timeout=box.timeout)
    assert out == "18\n" and counts(subprocess.CompletedProcess([], 0, out, err))[1] == 1
    assert not there(made)


def test_cores(box: Box) -> None:
    spin = "python3 -c 'import time; t = time.monotonic()\nwhile time.monotonic() < t + 1: pass'"
    by, p = limits(box, "--cores", "200", "--cpu", "100", command=spin)
    if by["cores"] == "affinity":
        assert limits(box, "--cores", "200", command="nproc")[1].stdout == "1\n"
        return
    # A fifth of a second and what one period may have more; without the limit it is a second, unless others want the CPU.
    assert counts(p)[2] < 500


def test_cores_by_affinity_cannot_be_widened(box: Box) -> None:
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        pytest.skip("one CPU only")
    by, p = limits(box, "--cores", "1000", *NO_GROUP, command="nproc")
    assert by["cores"] == "affinity" and p.stdout == "1\n"
    assert limits(box, "--cores", "1001", *NO_GROUP, command="nproc")[1].stdout == "2\n"
    assert limits(box, "--cores", "99000", *NO_GROUP, command="nproc")[1].stdout == f"{cpus}\n"
    widen = "python3 -c 'import os; os.sched_setaffinity(0, range(64))'"
    assert "PermissionError" in limits(box, "--cores", "1000", *NO_GROUP, command=widen)[1].stderr
    assert limits(box, command=widen)[1].returncode == 0


def test_what_holds_without_a_group(box: Box) -> None:
    by, _ = limits(box, "--memory", "500000000", "--processes", "50", "--cpu", "9", "--cores", "500", *NO_GROUP)
    processes = "rlimit" if not box.root else by["processes"]
    assert by == {
        "memory": "rlimit",
        "cores": "affinity",
        "processes": processes,
        "openFiles": "rlimit",
        "fileSize": "nothing",
        "output": "nothing",
        "cpuTime": "rlimit",
        "wallTime": "nothing",
    }
    assert processes in ("rlimit", "pid namespace", "nothing")


def test_files_in_memory_without_a_group(box: Box) -> None:
    """Nothing counts them together with processes: each private tmpfs is a part of the limit, and processes are the first to be ended."""
    script = "df -m --output=size /tmp /var/tmp /dev/shm /run | tail -n +2 | tr -d ' '; cat /proc/self/oom_score_adj"
    outside = int(Path("/proc/self/oom_score_adj").read_text())
    *sizes, score = box.run(
        "/bin/sh", "-c", script, opts=["--memory", str(100 * MIB), "--say-limits", *NO_GROUP]
    ).stdout.split()
    assert [int(n) for n in sizes] == [25, 25, 25, 25] and int(score) == max(500, outside)
    *sizes, score = box.run("/bin/sh", "-c", script, opts=["--memory", str(100 << 30), *NO_GROUP]).stdout.split()
    assert [int(n) for n in sizes] == [1024, 1024, 1024, 64]
    *sizes, score = box.run("/bin/sh", "-c", script, opts=NO_GROUP).stdout.split()
    assert [int(n) for n in sizes] == [1024, 1024, 1024, 64] and int(score) == outside


def test_no_group_where_no_limit_needs_one(box: Box) -> None:
    opts = ["--open-files", "99", "--file-size", "1000"]
    with Launched(box, "/bin/sh", "-c", "echo ready; sleep 100", opts=opts) as launched:
        assert not groups_of(launched.init)


def test_version_2_for_real(box: Box) -> None:
    """Processor time, which each of its groups counts, also where the controllers are with version 1: the way in is the same."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = [line for line in lines if " - cgroup2 " in line]
    own = [line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    files = box.folder("files")
    box.file(files / "mountinfo", "".join(line + "\n" for line in mounts))
    box.file(files / "cgroup", "".join(line + "\n" for line in own))
    opts = ["--cgroup-files", str(files), "--cpu", "100"]
    by, p = limits(box, *opts, command="cat /proc/self/cgroup; i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done")
    if by["cpuTime"] != "cgroup v2":
        pytest.skip("no version 2 group that this user may make")
    assert "0::/\n" in p.stdout and counts(p)[2] > 10
    with Launched(box, "/bin/sh", "-c", "echo ready; exec sleep 100", opts=opts) as launched:
        (mine,) = groups_of(launched.init)
        assert str(launched.init) in (mine / "cgroup.procs").read_text().split()
    deadline = time.monotonic() + box.timeout
    while mine.exists():
        assert time.monotonic() < deadline
        subprocess.run([*box.as_user, str(box.base / "bin/sandbox-launch"), "--tidy", str(files)], check=True)


def test_the_sandbox_sees_its_group_as_the_root(box: Box) -> None:
    by = needs_group(box, "memory", "--memory", str(100 * MIB))
    lines = limits(box, "--memory", str(100 * MIB), command="cat /proc/self/cgroup")[1].stdout.splitlines()
    mine = [line for line in lines if "memory" in line.split(":")[1] or by == "cgroup v2"]
    assert mine and all(line.split(":", 2)[2] == "/" for line in mine)


def test_the_group_goes_with_its_sandbox(box: Box) -> None:
    opts = ["--memory", str(100 * MIB), "--processes", "40", "--cores", "1500", "--cpu", "10"]
    needs_group(box, "memory", *opts)
    with Launched(box, "/bin/sh", "-c", "echo ready; exec sleep 100", opts=opts) as launched:
        made = groups_of(launched.init)
        assert made
        os.kill(launched.init, signal.SIGKILL)
        launched.proc.wait(30)
    assert not there(made)


def test_a_group_without_its_maker_goes_with_the_next_start(box: Box) -> None:
    """No process reports it: its lock has ended with its maker."""
    opts = ["--memory", str(100 * MIB)]
    needs_group(box, "memory", *opts)
    with Launched(box, "/bin/sh", "-c", "echo ready; exec sleep 100", opts=opts) as launched:
        left = groups_of(launched.init)
        assert left
        live = Launched(box, "/bin/sh", "-c", "echo ready; exec sleep 100", opts=opts)
        with live:
            others = groups_of(live.init)
            assert others
            launched.proc.kill()
            launched.proc.wait(30)
            deadline = time.monotonic() + box.timeout
            while there(left):
                assert time.monotonic() < deadline
                # The next start of any program that makes sandboxes; here a part of it.
                subprocess.run([*box.as_user, str(box.base / "bin/sandbox-launch"), "--tidy"], check=True)
            assert there(others) == others, "the group of a sandbox that runs"


def memory_limits() -> set[str]:
    """Return the memory limits of all sandboxes' groups on this machine."""
    found = set()
    for n in names_below(CGROUPS):
        path = CGROUPS / n
        if path.name in ("memory.limit_in_bytes", "memory.max") and path.parent.name.startswith("cellgate-box-"):
            with contextlib.suppress(OSError):
                found.add(path.read_text().strip())
    return found


def test_too_little_memory_to_start_is_said(box: Box) -> None:
    needs_group(box, "memory", "--memory", str(100 * MIB))
    size = 4096 * (1 + os.getpid() % 24)  # which distinguishes its group from others
    p = box.sh("true", opts=["--memory", str(size)])
    assert p.returncode == 125
    assert f"memory limit of {size / MIB:.3g} MiB reached (cgroup v" in p.stderr
    assert "raise cellgate.limits.memoryMb" in p.stderr
    assert str(size) not in memory_limits()
