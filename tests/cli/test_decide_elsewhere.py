"""`--decide-elsewhere` and `cellgate approvals`: two commands of a user, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Person, Server
from processes import eventually
from shared_supervisor import Shared

CODE = "from mcptools.fs import write_file\nwrite_file.run(path='a')  # \x9b31m\u202e"
ELSEWHERE = "--decide-elsewhere"


@pytest.fixture
def sit(shared: Shared, person: Callable[..., Person]) -> Callable[..., Person]:
    """A person at a terminal, with the user's shared supervisors."""
    return lambda *args: person(
        *args, env={"XDG_RUNTIME_DIR": str(shared.folder), "CELLGATE_PRIVATE": ""}, cwd=shared.cwd
    )


@contextlib.contextmanager
def start(shared: Shared, server: Server, *args: str | Path, code: str = CODE) -> Iterator[subprocess.Popen[str]]:
    """A run without a terminal. What fails before its end does not wait for it."""
    argv = [shared.cellgate, "run", "--mcp", server.mcp, *args, "-c", code]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        argv,
        text=True,
        cwd=shared.cwd,
        env=shared.env,
        start_new_session=True,
        **pipes,  # type: ignore[call-overload]
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def listed(shared: Shared) -> dict[str, Any]:
    done = shared("approvals", "list", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def waiting(shared: Shared) -> dict[str, Any]:
    """The only question, once it waits."""
    eventually(lambda: len(listed(shared)["approvals"]) == 1, 60)
    (one,) = listed(shared)["approvals"]
    done = shared("approvals", "show", one["id"], "--json")
    assert done.returncode == 0 and done.stdout.isascii(), done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def accept(shared: Shared, q: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return shared("approvals", "accept", q["id"], "--digest", q["digest"])


def test_accepted_in_another_process_it_runs_once(shared: Shared, server: Server) -> None:
    with start(shared, server, ELSEWHERE) as run:
        q = waiting(shared)
        assert (q["server"], q["tool"], q["pid"], q["code"]) == ("fs", "write_file", run.pid, CODE)
        text = shared("approvals", "list").stdout
        assert text.startswith(f"{q['id']}  fs.write_file\n  waits for ") and ", ends in 14 min; cell 1 of " in text
        text = shared("approvals", "show", q["id"]).stdout
        assert "wants to call a tool:\n  server    fs\n  tool      write_file\n" in text
        assert (
            '"path": "a"' in text and "code of the cell:\n  from mcptools" in text and f"digest {q['digest']}" in text
        )
        assert not server.ran()
        wrong = shared("approvals", "accept", q["id"], "--digest", "0" * 64)
        assert (wrong.returncode, wrong.stdout) == (1, "") and "nothing was decided" in wrong.stderr
        assert accept(shared, q).stdout == "accepted\n"
        out, err = run.communicate(timeout=60)
        assert run.returncode == 0, err
        assert "a question waits for your decision: cellgate approvals list" in err
    assert server.ran() == ["write_file"]
    late = accept(shared, q)
    assert (late.returncode, late.stdout) == (1, "") and "has ended" in late.stderr
    assert shared("approvals", "list").stdout == "no question waits that can be decided here\n"


@pytest.mark.sanitized_in_soak
def test_rejected_in_another_process_with_a_reason(shared: Shared, server: Server) -> None:
    with start(shared, server, ELSEWHERE) as run:
        q = waiting(shared)
        assert shared("approvals", "reject", q["id"], "--reason", "not today").stdout == "rejected\n"
        _, err = run.communicate(timeout=60)
    assert run.returncode == 4 and "not today" in err
    assert not server.ran()


@pytest.mark.sanitized_in_soak
def test_what_a_policy_file_asks_waits_for_other_terminals(shared: Shared, server: Server, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"rules": [{"decision": "ask", "server": "fs"}]}))
    with start(shared, server, ELSEWHERE, "--policy", policy, "--approve", "all") as run:
        assert accept(shared, waiting(shared)).returncode == 0
        assert run.wait(60) == 0
    with start(shared, server, "--policy", policy, "--approve", "all") as run:
        assert run.wait(60) == 4
    assert server.ran() == ["write_file"]


@pytest.mark.sanitized_in_soak
def test_what_rules_decide_is_not_shared(shared: Shared, server: Server) -> None:
    """Another program that accepts whatever it sees does not see what a rule refuses."""
    watch = subprocess.Popen(
        [shared.cellgate, "approvals", "watch", "--json"], env=shared.env, stdout=subprocess.PIPE, text=True
    )
    code = "from mcptools.fs import list_dir, write_file\nfor i in range(50):\n    try: write_file.run(path=str(i))\n    except Exception: pass\nlist_dir.run(path='last')"
    with watch, start(shared, server, ELSEWHERE, "--approve", "!fs.write_file", code=code) as run:
        assert watch.stdout
        assert json.loads(watch.stdout.readline())["tool"] == "list_dir"
        assert accept(shared, waiting(shared)).returncode == 0
        assert run.wait(60) == 0
        watch.kill()
    assert server.ran() == ["list_dir"]


@pytest.mark.sanitized_in_soak
def test_without_the_option_nothing_waits_here(shared: Shared, server: Server, sit: Callable[..., Person]) -> None:
    with start(shared, server) as run:
        assert run.wait(60) == 4
    p = sit("run", "--mcp", server.mcp, "-c", CODE)
    p.wait_for("always for this tool")
    assert listed(shared) == {"approvals": [], "more": 0, "others": 1, "private": 0}
    assert "1 more can be decided only where their session was started" in shared("approvals", "list").stdout
    p.type("n\n")
    assert p.end() == 4 and not server.ran()


@pytest.mark.sanitized_in_soak
def test_private_supervisors_are_counted(shared: Shared, server: Server, sit: Callable[..., Person]) -> None:
    p = sit("run", "--private", "--mcp", server.mcp, "-c", CODE)
    p.wait_for("always for this tool")
    assert listed(shared)["private"] == 1
    assert "the questions of 1 private supervisor\n" in shared("approvals", "list").stdout
    p.type("n\n")
    p.end()
    refused = shared("run", ELSEWHERE, "-c", "1", env={"CELLGATE_PRIVATE": "1"})
    assert refused.returncode == 2 and "only in the supervisor that this user's programs share" in refused.stderr


@pytest.mark.parametrize("yes", [True, False])
def test_the_prompt_of_run_goes_when_another_terminal_has_decided(
    shared: Shared, server: Server, sit: Callable[..., Person], yes: bool
) -> None:
    p = sit("run", ELSEWHERE, "--mcp", server.mcp, "-c", CODE)
    p.wait_for("always for this tool in this session: ")
    q = waiting(shared)
    assert (accept(shared, q) if yes else shared("approvals", "reject", q["id"])).returncode == 0
    p.wait_for(f"this call waits no more: {'accepted' if yes else 'refused'} in another terminal")
    assert p.end() == (0 if yes else 4)
    assert server.ran() == (["write_file"] if yes else [])


def question(p: Person) -> str:
    """Waits for a question of another session, which has no "always"."""
    return p.wait_for(r"Allow\? y\d{3} yes, n no, r no with a reason,\s+v view everything: ")


def test_accept_asks_at_the_terminal(shared: Shared, server: Server, sit: Callable[..., Person]) -> None:
    """End of file and ^C decide nothing."""
    with start(shared, server, ELSEWHERE) as run:
        q = waiting(shared)
        for leave in ("\x04", "\x03"):
            p = sit("approvals", "accept", q["id"])
            assert '"path": "a"' in question(p)
            p.type(leave)
            p.wait_for("this question stays open" if leave == "\x03" else "\n")
            assert p.end() == 130
            assert waiting(shared)["id"] == q["id"] and not server.ran()
        p = sit("approvals", "accept", q["id"])
        p.type("y" + p.digits(question(p)) + "\n")
        assert p.end() == 0
        assert run.wait(60) == 0
    assert server.ran() == ["write_file"]
    done = subprocess.run(
        [shared.cellgate, "approvals", "accept", q["id"]],
        env=shared.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "has ended" in done.stderr


GATHER = """
import asyncio
from mcptools.fs import write_file
for e in await asyncio.gather(*(asyncio.to_thread(write_file.run, path=p) for p in 'abc'), return_exceptions=True):
    print(type(e).__name__)
"""


def several(shared: Shared) -> list[dict[str, Any]]:
    """The three questions of GATHER."""
    eventually(lambda: len(listed(shared)["approvals"]) == 3, 60)
    return [json.loads(shared("approvals", "show", q["id"], "--json").stdout) for q in listed(shared)["approvals"]]


def test_questions_of_a_cell_are_decided_together(shared: Shared, server: Server, sit: Callable[..., Person]) -> None:
    """By their digests all or none of them, at a terminal one after the other; each decision counts for one call."""
    with start(shared, server, ELSEWHERE, code=GATHER) as run:
        questions = several(shared)
        ids, digests = [q["id"] for q in questions], [f"--digest={q['digest']}" for q in questions]
        for wrong, why in (
            ([*ids, *digests[:2]], "one --digest for each"),
            ([*ids, *digests[:2], "--digest=" + "0" * 64], "nothing was decided"),
            ([*ids[:2], "0" * 16, *digests], "waits"),
            (["0" * 16] * 33, "more than 32"),
        ):
            done = shared("approvals", "accept", *wrong)
            assert done.returncode != 0 and why in done.stderr, wrong
        assert len(listed(shared)["approvals"]) == 3
        done = shared("approvals", "accept", *ids[:2], *digests[:2])
        assert (done.returncode, done.stdout) == (0, "accepted\naccepted\n")
        assert shared("approvals", "reject", *ids[2:]).stdout == "rejected\n"
        out, err = run.communicate(timeout=60)
        assert run.returncode == 0, err
    assert server.ran() == ["write_file"] * 2
    with start(shared, server, ELSEWHERE, code=GATHER) as run:
        ids = [q["id"] for q in several(shared)]
        p = sit("approvals", "accept", *ids)
        for _ in ids:
            p.type("y" + p.digits(question(p)) + "\n")
        assert p.end() == 0
        assert run.wait(60) == 0
    assert server.ran() == ["write_file"] * 5


def test_watch_asks_about_one_after_the_other(shared: Shared, server: Server, sit: Callable[..., Person]) -> None:
    """Also about those of supervisors that start later."""
    p = sit("approvals", "watch")
    with start(shared, server, ELSEWHERE) as run:
        shown = question(p)
        assert '"path": "a"' in shown
        p.type("y" + p.digits(shown) + "\n")
        assert run.wait(60) == 0
    with start(shared, server, ELSEWHERE) as run:
        question(p)
        p.type("r\n")
        p.wait_for("Reason, which the code receives: ")
        p.type("not today\n")
        _, err = run.communicate(timeout=60)
        assert run.returncode == 4 and "not today" in err
    with start(shared, server, ELSEWHERE) as run:
        question(p)
        accept(shared, waiting(shared))
        p.wait_for("this question has ended: it was decided elsewhere")
        assert run.wait(60) == 0
    with start(shared, server, ELSEWHERE) as run:
        question(p)
        run.send_signal(signal.SIGINT)
        p.wait_for("this question has ended")
        run.wait(60)
    assert server.ran() == ["write_file"] * 2
    p.type("\x03")
    assert p.end() == 130


def together(p: Person, n: int) -> str:
    """Waits for a question about several calls, and reads all of it."""
    shown = p.wait_for(r"(?s)Cell 1 wants \d+ things at once:.*?(view everything|with a reason): ")
    assert ("Not all is shown" in shown) != ("yes to all" in shown)
    while "yes to all" not in shown:
        p.type("v\n")
        shown += p.wait_for(r"(?s)Part \d+ of \d+\..*?(view everything|with a reason): ")
    assert f" yes to all {n}, o one after the other, n no to all,\n" in shown
    return shown


def unseen(p: Person, shared: Shared, n: int, go: str = "") -> None:
    """Stops the person's program until n calls wait, if need be for the file go: it asks about those together that it
    finds together."""
    p.process.send_signal(signal.SIGSTOP)
    if go:
        (shared.cwd / go).touch()
    eventually(lambda: len(listed(shared)["approvals"]) == n, 60)
    p.process.send_signal(signal.SIGCONT)


@pytest.mark.sanitized_in_soak
def test_watch_asks_about_those_of_one_cell_together(
    shared: Shared, server: Server, sit: Callable[..., Person]
) -> None:
    """One answer decides what was shown, each call by itself, and nothing that comes later."""
    p = sit("approvals", "watch")
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    with start(shared, server, ELSEWHERE, code=GATHER + wait + GATHER.replace("'abc'", "'de'")) as run:
        unseen(p, shared, 3)
        shown = together(p, 3)
        assert "Cell 1 wants 3 things at once:" in shown
        for i, x in enumerate("abc", 1):
            assert f"{i} of 3, to call a tool:" in shown and f'"path": "{x}"' in shown
        p.type("y\n")  # without the digits
        p.wait_for(r"(?s)Please type y.*?view everything: ")
        p.type("y" + p.digits(shown) + "\n")
        eventually(lambda: server.ran() == ["write_file"] * 3, 60)
        unseen(p, shared, 2, "go")
        shown = together(p, 2)
        assert server.ran() == ["write_file"] * 3
        p.type("r\n")
        p.wait_for("Reason, which the code receives: ")
        p.type("not these\n")
        out, _ = run.communicate(timeout=60)
        assert out.count("RejectedError") == 2
    assert server.ran() == ["write_file"] * 3
    with start(shared, server, ELSEWHERE, code=GATHER) as run:
        unseen(p, shared, 3)
        together(p, 3)
        p.type("o\n")
        for letter in "yny":
            shown = question(p)
            assert "of 3" not in shown
            p.type(letter + (p.digits(shown) if letter == "y" else "") + "\n")
        out, _ = run.communicate(timeout=60)
        assert out.count("RejectedError") == 1
    assert server.ran() == ["write_file"] * 5
    p.type("\x03")
    assert p.end() == 130


def test_one_of_several_that_was_decided_elsewhere(shared: Shared, server: Server, sit: Callable[..., Person]) -> None:
    """The others are asked about anew: what is accepted is what was shown."""
    p = sit("approvals", "watch")
    with start(shared, server, ELSEWHERE, code=GATHER) as run:
        unseen(p, shared, 3)
        together(p, 3)
        shared("approvals", "reject", listed(shared)["approvals"][0]["id"])
        p.wait_for("this question has ended")
        p.type("y" + p.digits(together(p, 2)) + "\n")
        run.communicate(timeout=60)
    assert server.ran() == ["write_file"] * 2


@pytest.mark.sanitized_in_soak
def test_several_cells_are_not_asked_about_together(shared: Shared, server: Server, sit: Callable[..., Person]) -> None:
    with start(shared, server, ELSEWHERE) as run, start(shared, server, ELSEWHERE) as other:
        eventually(lambda: len(listed(shared)["approvals"]) == 2, 60)
        p = sit("approvals", "watch")
        for _ in range(2):
            p.type("y" + p.digits(question(p)) + "\n")
        assert (run.wait(60), other.wait(60)) == (0, 0)


def test_no_more_than_32_are_shown_together(shared: Shared, server: Server, sit: Callable[..., Person]) -> None:
    """What does not fit on the screen is accepted once all of it was shown."""
    code = GATHER.replace("'abc'", "map(str, range(40))").replace("asyncio.to_thread", "run").replace(
        "import asyncio", "import asyncio, functools\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(40)\n"
        "def run(f, **k): return asyncio.get_running_loop().run_in_executor(pool, functools.partial(f, **k))")  # fmt: skip
    with start(shared, server, ELSEWHERE, code=code) as run:
        eventually(lambda: len(listed(shared)["approvals"]) == 40, 60)
        p = sit("approvals", "watch")
        for n in (32, 8):
            p.type("y" + p.digits(together(p, n)) + "\n")
        assert run.wait(60) == 0
    assert len(server.ran()) == 40


def test_watch_as_lines(shared: Shared, server: Server) -> None:
    watch = subprocess.Popen(
        [shared.cellgate, "approvals", "watch", "--json"], env=shared.env, stdout=subprocess.PIPE, text=True
    )
    with watch:
        assert watch.stdout
        with start(shared, server, ELSEWHERE) as run:
            line = json.loads(watch.stdout.readline())
            assert (line["type"], line["tool"], line["pid"]) == ("question", "write_file", run.pid)
            assert shared("approvals", "reject", line["id"]).returncode == 0
            closed = json.loads(watch.stdout.readline())
            assert (closed["type"], closed["id"]) == ("closed", line["id"])
            run.wait(60)
        with start(shared, server, ELSEWHERE) as run:
            line = json.loads(watch.stdout.readline())
            (pid,) = shared.supervisors()
            os.kill(pid, signal.SIGKILL)
            closed = json.loads(watch.stdout.readline())
            assert (closed["type"], closed["id"]) == ("closed", line["id"])
            run.wait(60)
        with start(shared, server, ELSEWHERE) as run:  # a new one at the same address
            line = json.loads(watch.stdout.readline())
            assert (line["type"], line["pid"]) == ("question", run.pid)
            shared("approvals", "reject", line["id"])
            run.wait(60)
        watch.stdout.close()
        assert watch.wait(60) == 141  # its reader has gone
