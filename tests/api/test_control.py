"""cellgate queue, session and job: what other programs of the user run, and its end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cellgate_api import E_INVAL, E_NOTFOUND, E_STATE, CellgateError, Client
from processes import eventually
from shared_supervisor import Shared, runtime_folder

HOLD = "import time; time.sleep(1000)"


@pytest.fixture
def shared(cellgate: Path, tmp_path: Path, slowness: float, prefix: Path) -> Iterator[Shared]:
    os.environ.setdefault("CG_PREFIX", str(prefix))
    with runtime_folder() as folder:
        (tmp_path / "work").mkdir()
        yield Shared(cellgate, folder, tmp_path / "work", slowness)


@contextmanager
def holding(shared: Shared, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A program whose cell does not end by itself."""
    with shared.start(HOLD, *options) as program:
        try:
            yield program
        finally:
            program.kill()


def listed(shared: Shared, *words: str) -> list[dict[str, Any]]:
    done = shared(*words, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_without_a_supervisor(shared: Shared) -> None:
    assert shared("queue", "status").stdout == "no shared supervisor is running\n"
    assert shared("session", "list").stdout == "no session\n"
    assert shared("job", "list").stdout == "no job\n"
    assert listed(shared, "session", "list") == []
    done = shared("session", "kill", "--id", "0")
    assert (done.returncode, "0 sessions of the shared supervisors have the id 0" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["session"], "which command: list, show, kill?"),
        (["job", "show"], 'there is no command "job show": use one of list, cancel;'),
        (["queue", "list"], '"queue list": use one of status;'),
        (["session", "kill"], "--id is missing: `cellgate session list` shows them"),
        (["session", "show"], "--id is missing"),
        (["session", "kill", "--id", ""], "--id is missing"),
        (["session", "list", "--id", "1"], "--id"),
        (["queue", "status", "x"], 'unexpected argument "x"'),
    ],
)
def test_command_lines(shared: Shared, words: list[str], says: str) -> None:
    done = shared(*words)
    assert done.returncode == 2 and says in done.stderr


def test_jobs_of_other_programs_are_listed_and_cancelled(shared: Shared) -> None:
    with holding(shared) as one, holding(shared, "--namespace", "tests") as two:
        eventually(lambda: [j["state"] for j in listed(shared, "job", "list")] == ["running"] * 2)
        assert "2 of 256 run" in shared("queue", "status").stdout
        (q,) = listed(shared, "queue", "status")
        assert (q["running"], q["waiting"], q["pid"]) == (2, 0, shared.supervisors()[0])
        (job,) = listed(shared, "job", "list", "--namespace", "tests")
        (session,) = listed(shared, "session", "list", "--namespace", "tests")
        assert (session["pid"], session["workspace"]) == (two.pid, str(shared.cwd))
        assert job["id"].startswith(session["id"][:12]) and job["session"] == session["id"]
        assert HOLD not in json.dumps(listed(shared, "session", "list"))  # no contents
        text = shared("job", "list").stdout
        assert text.count("cell, running for ") == 2 and text.count(", tests\n") == 1
        # An empty beginning is none, and one of both is of none.
        done = shared("job", "cancel", "--id", job["id"][:0])
        assert done.returncode == 2
        assert shared("job", "cancel", "--id", job["id"][:8]).returncode == 0
        assert two.wait(60) == 130
        (left,) = listed(shared, "session", "list")
        assert left["pid"] == one.pid
        assert shared("session", "kill", "--id", left["id"][:9]).returncode == 0
        _, err = one.communicate(timeout=60)
        assert "has ended it (cellgate session kill)" in err
        assert listed(shared, "session", "list") == []


def test_ids_must_be_of_one(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared.folder))
    with Client(share=1) as c, Client(share=1) as other:
        sessions = [c.session(workspace=str(shared.cwd)) for _ in range(17)]  # two begin with the same digit
        ids = [s["id"] for s in other.jobs()]
        digit = next(d for d in "0123456789abcdef" if sum(i.startswith(d) for i in ids) > 1)
        for word in ("kill", "show"):
            done = shared("session", word, "--id", digit)
            assert (done.returncode, done.stdout) == (1, "")
            assert f"sessions have an id that begins with {digit}" in done.stderr
        assert len(other.jobs()) == 17
        for wrong, code in [
            (ids[0][:31], E_NOTFOUND),
            (ids[0] + "0", E_NOTFOUND),
            ("", E_NOTFOUND),
            ("\udcff", E_INVAL),
        ]:
            with pytest.raises(CellgateError) as e:
                other.kill(wrong)
            assert e.value.code == code
        for wrong in [ids[0], ids[0][:12], ids[0][:12] + ".1", ids[0][:12] + ".0.1", ids[0][:12] + ".x", "." * 13]:
            with pytest.raises(CellgateError) as e:
                other.cancel(wrong)
            assert e.value.code == E_NOTFOUND
        cell = sessions[0].execute(HOLD)
        command = sessions[0].exec("sleep", "1000")
        waiting = sessions[0].execute("2")
        states = [("cell", "running"), ("cell", "waiting"), ("command", "running")]
        eventually(lambda: [(j["kind"], j["state"]) for s in other.jobs() for j in s["jobs"]] == states)
        (mine,) = [s for s in other.jobs() if s["jobs"]]
        (shown,) = listed(shared, "session", "show", "--id", mine["id"][:31])
        assert (shown["id"], shown["jobs"]) == (
            mine["id"],
            [{**j, "ms": k["ms"]} for j, k in zip(mine["jobs"], shown["jobs"], strict=True)],
        )
        lines = shared("session", "show", "--id", mine["id"]).stdout.splitlines()
        assert [line.split()[0] for line in lines] == [mine["id"], *(j["id"] for j in mine["jobs"])]
        assert HOLD not in "".join(lines) and ids[1] not in "".join(lines)
        for job, number, type in zip(
            [mine["jobs"][1], mine["jobs"][2], mine["jobs"][0]],
            [waiting, command, cell],
            ["result", "command_result", "result"],
            strict=True,
        ):
            other.cancel(job["id"])
            end, notice = sessions[0].each(type, "notice")
            assert (end.cell, end.status) == (number, "cancelled")
            assert f"process {os.getpid()} of this user has cancelled the job {job['id']}" in notice.text
        for s in sessions:
            s.close()


def test_an_approver_can_only_decide(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared.folder))
    with Client(share=1) as c, Client(address=str(shared.address), place="mcp") as approver:
        s = c.session(workspace=str(shared.cwd))
        cell = s.execute(HOLD)
        assert approver.jobs() == []
        (mine,) = c.jobs()
        for refused in (lambda: approver.kill(mine["id"]), lambda: approver.cancel(mine["jobs"][0]["id"])):
            with pytest.raises(CellgateError, match="an approver can only decide") as e:
                refused()
            assert e.value.code == E_STATE
        s.cancel(cell)
        assert s.until("result")[-1].status == "cancelled"
        s.close()


def test_namespaces_are_plain_names(shared: Shared) -> None:
    for name in ["", "a b", "ü", "x" * 65, "a/b"]:
        done = shared("run", "--namespace", name, "-c", "1")
        assert done.returncode == 2 and 'a namespace has 1 to 64 letters, digits and "._-"' in done.stderr, name
