"""Limits of a command: exceeded and not exceeded, as root and as an ordinary user; said on standard error and in the log; no group
is left behind, whatever is killed."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import groups_of, there
from processes import alive, children, name_of

from .conftest import Box
from .test_ends import wait_until


def limited(box: Box, script: str, **limits: Any) -> "subprocess.CompletedProcess[str]":
    return box.sh(script, cellgate={"limits": limits, "violationLog": str(box.out / "log")})


def logged(box: Box) -> list[dict[str, Any]]:
    path = box.out / "log"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [d for d in found if d["operation"] == "limit"]


def explained(box: Box, **limits: Any) -> dict[str, Any]:
    p = box.run("--explain=json", settings=Box.settings(cellgate={"limits": limits}))
    found: dict[str, Any] = json.loads(p.stdout)["limits"]
    return found


def needs_group(box: Box, limit: str, **limits: Any) -> str:
    by: str = explained(box, **limits)[limit]["by"]
    if not by.startswith("cgroup"):
        pytest.skip(f"no control group that this user may make: {limit} is held by {by}")
    return by


def test_explain_says_what_holds_each(box: Box) -> None:
    limits = explained(box, memoryMb=300, cores=1.5, openFiles=99, fileMb=2, cpuSeconds=9, wallSeconds=8, processes=77)
    assert limits["openFiles"] == {"value": 99, "unit": "files", "by": "rlimit", "scope": "process"}
    assert limits["fileSize"] == {"value": 2, "unit": "MiB", "by": "rlimit", "scope": "file"}
    assert limits["wallTime"]["by"] == "timer"
    group = limits["memory"]["by"].startswith("cgroup")
    assert limits["memory"]["scope"] == ("sandbox" if group else "process")
    assert limits["cores"]["value"] == 1.5 and (limits["cores"]["by"] != "affinity" or limits["cores"]["cpus"] == 2)
    settings = Box.settings(cellgate={"limits": {"memoryMb": 300}})
    text = box.run("--explain", settings=settings).stdout
    assert f"Limit: memoryMb 300 MiB, held by {limits['memory']['by']}" in text
    assert explained(box) == {}


def test_memory(box: Box) -> None:
    by = needs_group(box, "memory", memoryMb=100)
    assert "limit" not in limited(box, "head -c 50M /dev/zero > /dev/shm/a", memoryMb=100).stderr
    assert logged(box) == []
    p = limited(box, "head -c 150M /dev/zero > /dev/shm/a; exit 7", memoryMb=100)
    assert f"memory limit of 100 MiB reached ({by}): " in p.stderr and "raise cellgate.limits.memoryMb" in p.stderr
    (denial,) = logged(box)
    assert (denial["limit"], denial["value"], denial["unit"], denial["layer"]) == ("memory", 100, "MiB", by)


def test_memory_of_one_process(box: Box) -> None:
    """Without a group as well."""
    big = "python3 -c 'x = bytearray({} << 20)'"
    assert limited(box, big.format(20), memoryMb=100).returncode == 0
    p = limited(box, big.format(200), memoryMb=100)
    assert p.returncode == 1 and "MemoryError" in p.stderr


def test_processes(box: Box) -> None:
    many = "exec sh -c 'for i in $(seq {}); do sleep 60 & done; exit 0'"  # bash would try again for seconds
    p = limited(box, many.format(10), processes=30)
    assert "process limit" not in p.stderr
    by = needs_group(box, "processes", processes=30)
    p = limited(box, many.format(60), processes=30)
    assert f"process limit of 30 reached ({by}): " in p.stderr
    assert {d["limit"] for d in logged(box)} == {"processes"}


def test_processor_time(box: Box) -> None:
    assert limited(box, "true", cpuSeconds=1).returncode == 0
    grouped = explained(box, cpuSeconds=1)["cpuTime"]["by"]
    spin = "while :; do :; done"
    # Together, where a group counts them.
    script = f"({spin}) & ({spin}) & ({spin}) & wait" if grouped.startswith("cgroup") else spin
    p = limited(box, script, cpuSeconds=1)
    assert p.returncode == 128 + signal.SIGXCPU
    assert f"processor time limit of 1 s reached ({grouped})" in p.stderr
    assert [d["limit"] for d in logged(box)] == ["cpuTime"]


def test_wall_time(box: Box) -> None:
    p = limited(box, "sleep 100", wallSeconds=1)
    assert p.returncode == 124
    assert "wall time limit of 1 s reached (timer)" in p.stderr and "raise cellgate.limits.wallSeconds" in p.stderr
    assert [d["limit"] for d in logged(box)] == ["wallTime"]
    assert limited(box, "true", wallSeconds=100).returncode == 0


def test_file_size(box: Box) -> None:
    assert limited(box, "exec head -c 1M /dev/zero > f", fileMb=1).returncode == 0
    p = limited(box, "exec head -c 1025K /dev/zero > f", fileMb=1)
    assert p.returncode == 128 + signal.SIGXFSZ and (box.work / "f").stat().st_size == 1 << 20
    assert "file size limit of 1 MiB reached (rlimit)" in p.stderr


def test_open_files(box: Box) -> None:
    many = "python3 -c 'l = [open(\"/dev/null\") for i in range({})]'"
    assert limited(box, many.format(10), openFiles=40).returncode == 0
    assert "Too many open files" in limited(box, many.format(60), openFiles=40).stderr


def test_output_is_no_limit_of_a_command(box: Box) -> None:
    p = limited(box, "echo never", outputMb=1)
    assert p.returncode == 1 and p.stdout == "" and "outputMb" in p.stderr


# ---- nothing left behind


@contextlib.contextmanager
def running(box: Box) -> Iterator[tuple["subprocess.Popen[str]", dict[str, int], set[Path]]]:
    settings = Box.settings(cellgate={"limits": {"memoryMb": 200, "processes": 40}})
    proc = box.popen("-c", "echo up; sleep 1000 & sleep 1000", settings=settings, start_new_session=True)
    assert proc.stdout and proc.stdout.readline() == "up\n", proc.communicate()
    pids = {"keeper": proc.pid}

    def all_have_their_names() -> bool:
        for child in children(proc.pid):
            pids[name_of(child).removeprefix("cg-")] = child
        return {"watcher", "init"} <= set(pids)

    wait_until("watcher and init", all_have_their_names, box.timeout)
    pids["command"] = children(pids["init"])[0]
    try:
        yield proc, pids, groups_of(pids["init"])
    finally:
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        proc.communicate(timeout=box.timeout)


@pytest.mark.parametrize("victims", ["keeper", "init", "command", "watcher", "keeper watcher"])
def test_no_group_is_left(box: Box, victims: str) -> None:
    needs_group(box, "memory", memoryMb=200)
    with running(box) as (proc, pids, made):
        assert made
        for victim in victims.split():
            os.kill(pids[victim], signal.SIGKILL)
        if victims == "watcher":
            os.kill(pids["command"], signal.SIGTERM)
        proc.wait(timeout=box.timeout)
        wait_until("init is gone", lambda: not alive(pids["init"]), box.timeout)
        if victims == "keeper watcher":
            limited(box, "true", memoryMb=200)  # the next start
        wait_until("the groups are gone", lambda: not there(made), box.timeout)
