"""500 submitters on 2 and on 50 sessions: order, fairness, and nothing lost when a process is killed (scripts/soak)."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest
from cellgate_api import Client, Session
from processes import children, eventually, words

SUBMITTERS = 500


def submit(sessions: list[Session], code: str) -> Counter[Session]:
    """Each submitter has a thread, and sends one cell; the number of cells of each session."""
    ready = threading.Barrier(SUBMITTERS)
    numbers = {s: iter(range(SUBMITTERS)) for s in sessions}
    locks = {s: threading.Lock() for s in sessions}

    def one(at: int) -> None:
        n, s = at % len(sessions), sessions[at % len(sessions)]
        ready.wait()
        with locks[s]:
            s.execute(code.format(f"{n}.{next(numbers[s])} "))

    threads = [threading.Thread(target=one, args=(at,)) for at in range(SUBMITTERS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return Counter(sessions[at % len(sessions)] for at in range(SUBMITTERS))


@pytest.mark.parametrize(("n_sessions", "slots"), [(2, 1), (50, 4)])
def test_order_and_fairness(monkeypatch: pytest.MonkeyPatch, workspace: Path, n_sessions: int, slots: int) -> None:
    # Fewer than sessions: otherwise the machine's scheduler takes turns, and not the queue.
    monkeypatch.setenv("CELLGATE_JOBS_MAX_CONCURRENT_JOBS", str(slots))
    log = workspace / "log"
    code = f"import time; time.sleep(.005)\nwith open({str(log)!r}, 'a') as f: f.write('{{}}')"
    with Client(log_level=0, no_spare=1) as client:
        sessions = [client.session(workspace=workspace) for _ in range(n_sessions)]
        for s in sessions:
            s.run("1")
        for s, n in submit(sessions, code).items():
            assert [s.until("result", 120000)[-1].status for _ in range(n)] == ["ok"] * n
        ran = log.read_text().split()
        assert len(ran) == SUBMITTERS
        longest = 0
        for n in range(n_sessions):
            mine = [at for at, r in enumerate(ran) if r.startswith(f"{n}.")]
            assert [ran[at] for at in mine] == [f"{n}.{i}" for i in range(len(mine))]
            longest = max(longest, *(b - a for a, b in zip(mine, mine[1:], strict=False)))
        print(f"{n_sessions} sessions, {slots} slots: {longest} cells at most from one of a session to its next")
        assert longest <= 2 * n_sessions
        status = client.status()["queue"]
        assert (status["running"], status["waiting"], status["refused"]) == (0, 0, 0)


def of_supervisor(client: Client, name: str) -> int:
    return random.choice([p for p in children(client.status()["pid"]) if name.encode() in b" ".join(words(p))])


@pytest.mark.parametrize("what", ["kernel", "--zygote", "toolserver", "supervisor"])
@pytest.mark.parametrize("n_sessions", [2, 50])
def test_nothing_is_lost_when_a_process_is_killed(
    monkeypatch: pytest.MonkeyPatch, workspace: Path, n_sessions: int, what: str
) -> None:
    monkeypatch.setenv("CELLGATE_JOBS_MAX_CONCURRENT_JOBS", "4")  # most cells wait when the process is killed
    with Client(log_level=0, no_spare=1) as client:
        sessions = [client.session(workspace=workspace) for _ in range(n_sessions)]
        for s in sessions:
            s.run("1")
        counts = submit(sessions, "import time; time.sleep(.02) # {}")
        pid = client.status()["pid"]
        if what == "kernel":
            sessions[0].execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
            counts[sessions[0]] += 1
        else:
            os.kill(pid if what == "supervisor" else of_supervisor(client, what), signal.SIGKILL)
        ends: Counter[str] = Counter()
        for s, n in counts.items():
            results: Counter[int] = Counter()
            try:
                while len(results) < n:
                    e = s.until("result", 120000)[-1]
                    results[e.cell] += 1
                    ends[e.status] += 1
            except EOFError:
                assert what == "supervisor"
                ends["closed"] += 1
            assert set(results.values()) <= {1}
        print(f"{n_sessions} sessions, {what}: {dict(ends)}")
        assert (what in ("kernel", "toolserver")) == (ends["ok"] >= SUBMITTERS)
        assert ends["closed"] == n_sessions * (what == "supervisor")
        if what != "supervisor":
            eventually(lambda: [client.status()["queue"][k] for k in ("running", "waiting", "paused")] == [0, 0, 0])
            # The supervisor may notice the end of an idle kernel after it has taken the next cell.
            eventually(lambda: sessions[-1].run("2").status == "ok")
