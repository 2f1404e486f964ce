"""Tool calls of each language while their host decides, cancels, resets and ends, at random moments.

What the MCP server got is compared with what the host accepted, and with what the cells were told. The seed is printed;
CG_SEED repeats a run, but for the machine's own order of events.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from cellgate_api import E_NOTFOUND, CellgateError, Client, Event, Session
from processes import children, eventually, name_of
from rounds import rounds

SERVER = Path(__file__).parent / "echo_server.py"

# Each defines how a call is made, and the three ways of a cell to make several; and waits for calls of cells before, so
# that none may be lost. `%s` are pauses in seconds before calls, and of what kills the program or the kernel.
BEGIN = {
    "python": """
import asyncio, os, signal, threading, time
from cellgate_tools import RejectedError
from mcptools.echo import danger
def say(text, end): print(f"{text} {end}\\n", end="", flush=True)
def one(text, pause):
    end = "interrupted"
    try:
        time.sleep(pause)
        end = "ok" if danger.run(text=text) == text else "wrong"
    except RejectedError: end = "refused"
    except Exception as e: end = type(e).__name__
    finally: say(text, end)
async def task(text, pause):
    end = "interrupted"
    try:
        await asyncio.sleep(pause)
        end = "ok" if await danger.run_async(text=text) == text else "wrong"
    except RejectedError: end = "refused"
    except Exception as e: end = type(e).__name__
    finally: say(text, end)
def later(text, pause):
    threads.append(threading.Thread(target=one, args=(text, pause)))
    threads[-1].start()
threads = globals().get("threads", [])
""",
    "node": """
import { danger } from 'mcptools/echo';
globalThis.sleep = (s) => new Promise((r) => setTimeout(r, s * 1000));
globalThis.one = async (text, pause) => {
  await sleep(pause);
  try { console.log(`${text} ${await danger({ text }) === text ? 'ok' : 'wrong'}`); }
  catch (e) { console.log(`${text} ${e.name === 'RejectedError' ? 'refused' : e.name}`); }
};
globalThis.calls ??= [];
globalThis.later = (...a) => { calls.push(one(...a)); return calls.at(-1); };
""",
    "shell": """
one() {
  sleep $2
  mcptools echo danger text=$1 >$1 2>/dev/null
  case $?:$(<$1) in
    0:$1) echo $1 ok ;;
    0:*) echo $1 wrong ;;
    4:) echo $1 refused ;;
    *) echo $1 error ;;
  esac
}
""",
}
CALLS = {  # in turn; at once, awaited; at once, not awaited
    "python": (
        "for c in {calls}: one(*c)",
        "async def all(): await asyncio.gather(*(task(*c) for c in {calls}))\nawait all()",
        "for c in {calls}: later(*c)",
    ),
    "node": (
        "for (const c of {calls}) await later(...c)",
        "await Promise.all({calls}.map((c) => later(...c)))",
        "{calls}.forEach((c) => void later(...c))",
    ),
    "shell": (
        "{each}",
        "{each_later} wait",
        "{each_later} :",
    ),
}
SETTLE = {
    # One whose start was interrupted may not run.
    "python": "from contextlib import suppress\nfor t in threads:\n    with suppress(RuntimeError): t.join()",
    # A loop of an interrupted cell goes on.
    "node": "for (let n = -1; n !== calls.length; await sleep(0.001)) { n = calls.length; await Promise.allSettled(calls) }",
    # A shell that an interrupt has made a copy of has no list of its jobs.
    "shell": "for ((n = 2; n > 1; )); do n=0; sleep 0.01; for p in /proc/[0-9]*/stat; do "
    "read -r _ c s _ <$p && [[ $c$s == '(bash)'[^Z] ]] && ((++n)); done 2>/dev/null; done; :",
}
KILL = {  # the program of the language, its kernel
    "python": ("threading.Timer({s}, os.kill, (os.getpid(), 9)).start()",) * 2,
    "node": tuple(f"setTimeout(() => process.kill(process.{p}, 'SIGKILL'), {{s}} * 1000);" for p in ("pid", "ppid")),
    "shell": tuple(f"p=${p}; {{{{ sleep {{s}}; kill -9 $p; }}}} &" for p in ("BASHPID", "PPID")),
}
SLEEP = {"python": "time.sleep({s})", "node": "await sleep({s})", "shell": "sleep {s}"}
MISHAPS = ("", "", "", "cancel", "cancel", "time limit", "kill program", "kill kernel", "reset", "close")
ANSWERS = {  # what the host does about a question, one after the other; only the first may count
    "accept": 8,
    "reject": 4,
    "expire": 1,
    "accept accept": 1,
    "accept reject": 1,
    "reject accept": 1,
    "reject expire": 1,
    "old accept": 1,
    "old reject": 1,
    "both": 2,
    "": 1,
}


class Race:
    """A session, what its host did about each call, and what its cells and the MCP server say of them."""

    def __init__(self, client: Client, folder: Path, language: str, chance: random.Random) -> None:
        self.language, self.chance, self.mark = language, chance, folder / "mark"
        self.limit = chance.choice([0, 0, 20])  # of an answer
        (folder / "work").mkdir(parents=True)
        self.session: Session = client.session(
            workspace=folder / "work", language=language, approval_timeout_ms=self.limit
        )
        server = {"command": "/usr/bin/python3", "args": [str(SERVER)], "env": {"MARK": str(self.mark)}}
        self.session.add_servers({"echo": server})
        self.open = True
        self.log: list[str] = []
        self.texts: dict[int, str] = {}  # by number of the question
        self.accepted: set[int] = set()
        self.refused: set[int] = set()
        self.closed: set[int] = set()
        self.waiting: list[int] = []
        self.left: list[int] = []  # nobody has decided, on purpose
        self.disturbed: set[str] = set()  # calls of cells that something happened to
        self.lost: set[str] = set()  # calls whose program was ended
        self.output = ""
        self.names: list[str] = []  # of this cell's calls

    # ---------------------------------------------------------------- the host's decisions

    def decide(self, number: int, what: str) -> bool:
        """Whether it counted."""
        call: Callable[[int], None] = getattr(self.session, what)
        try:
            call(number)
        except CellgateError as e:
            assert e.code == E_NOTFOUND, e
            return False
        first = number not in self.accepted | self.refused
        assert first, f"{self.texts[number]}: {what} counted as well"
        (self.accepted if what == "accept" else self.refused).add(number)
        return True

    def answer(self, number: int) -> None:
        plan = self.chance.choices(list(ANSWERS), ANSWERS.values())[0]
        self.log.append(f"{self.texts[number]}: {plan or 'nothing'}")
        if plan == "both":  # at the same time
            threads = [threading.Thread(target=self.decide, args=(number, w)) for w in ("accept", "reject")]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            return
        for what in plan.split():
            if what == "old":
                older = [n for n in self.texts if n not in (number, *self.waiting, *self.left)]
                assert not self.decide(self.chance.choice(older or [0]), "accept"), "an old number counted"
            else:
                self.decide(number, what)
        if not plan:
            self.log.append("left")
            self.left.append(number)

    def on_event(self, e: Event) -> None:
        if e.type == "stream":
            self.output += e.text
        elif e.type == "approval_request":
            assert e.approval not in self.texts
            self.texts[e.approval] = json.loads(e.args)["text"]
            self.waiting.append(e.approval)
        elif e.type == "error":
            self.log.append(f"{e.json['ename']}: {e.json['evalue']}")
        elif e.type == "approval_closed":
            self.closed.add(e.approval)
            for questions in (self.waiting, self.left):
                if e.approval in questions:
                    questions.remove(e.approval)

    # ---------------------------------------------------------------- cells

    def run(self, code: str, mishap: str = "", at: float = 0, **options: int) -> str:
        """Runs a cell to its end, or until the session is closed; the cell's status."""
        s, chance = self.session, self.chance
        number = s.execute(BEGIN[self.language] + code, **options)
        timer = threading.Timer(at, lambda: self.open and s.cancel(number))
        if mishap == "cancel":
            timer.start()
        due = time.monotonic() + at
        give_up = time.monotonic() + 60
        try:
            while True:
                e = s.next(chance.randrange(8) if self.waiting or self.left or mishap in ("reset", "close") else 100)
                assert time.monotonic() < give_up, "the cell hangs"
                if e is not None:
                    self.on_event(e)
                    if e.type == "result" and e.cell == number:
                        return e.status
                elif self.left and not self.limit and not self.waiting:
                    self.waiting, self.left = self.left, []  # nobody else would ever answer
                if mishap in ("reset", "close") and time.monotonic() >= due:
                    getattr(s, mishap)()
                    if mishap == "close":
                        return mishap
                    mishap = ""
                if self.waiting and chance.random() < 0.7:
                    self.answer(self.waiting.pop(chance.randrange(len(self.waiting))))
        finally:
            timer.cancel()
            timer.join() if mishap == "cancel" else None

    def round(self, n: int) -> None:
        chance, mishap = self.chance, self.chance.choice(MISHAPS)
        self.names = [f"r{n}c{i}" for i in range(chance.randint(1, 5))]
        pauses = [chance.choice([0, 0, round(chance.uniform(0, 0.02), 3)]) for _ in self.names]
        way, at = chance.randrange(3), round(chance.choice([chance.uniform(0, 0.03), chance.uniform(0, 0.15)]), 3)
        words = [f"one {name} {pause}" for name, pause in zip(self.names, pauses, strict=True)]
        code = CALLS[self.language][way].format(
            calls=json.dumps(list(zip(self.names, pauses, strict=True))),
            each="\n".join(words),
            each_later=" & ".join([*words, ""]),
        )
        if mishap.startswith("kill"):
            code = KILL[self.language]["kernel" in mishap].format(s=at) + "\n" + code
        options = {"timeout_ms": max(1, int(at * 1000))} if mishap == "time limit" else {}
        self.log.append(f"round {n}: {len(self.names)} calls, way {way}, {mishap or 'nothing'} after {at} s")
        if mishap:
            self.disturbed.update(self.names)
        # An interrupt ends what the cell itself waits in, too, perhaps before it has printed; and at some moments jobs of
        # a shell that ignore SIGINT elsewhere.
        foreground = {"python": 2, "node": 0, "shell": 3}[self.language]
        if mishap in ("kill program", "kill kernel", "reset", "close") or (mishap and way < foreground):
            self.lost.update(self.names)
        status = self.run(code, mishap, at, **options)
        self.log.append(status)
        if status == "close":
            self.open = False
            return
        if mishap.startswith("kill"):  # the cell may have ended before
            self.log.append(self.run(SLEEP[self.language].format(s=at + 0.1)))
        assert self.run(SETTLE[self.language]) == "ok", "calls did not end"

    # ---------------------------------------------------------------- what is right

    def check(self) -> None:
        """When the session has ended."""
        lines = self.mark.read_text().splitlines() if self.mark.exists() else []
        got = Counter(json.loads(line)["text"] for line in lines)
        said = re.findall(r"^(r\d+c\d+) (\w+)$", self.output, re.MULTILINE)
        ends = dict(said)
        assert len(said) == len(ends), "a call ended twice"
        accepted, refused, closed = ({self.texts[n] for n in of} for of in (self.accepted, self.refused, self.closed))
        assert max(got.values(), default=1) == 1, "a call was made twice"
        assert got.keys() <= accepted, f"made without a yes: {got.keys() - accepted}"
        assert not got.keys() & refused
        assert not got.keys() & closed, f"made after their end: {got.keys() & closed}"
        assert not accepted - got.keys() - closed - self.disturbed, "accepted and not made"
        endless = set(self.texts.values()) - ends.keys() - self.lost
        assert not endless, f"without an end: {endless}"
        for text, end in ends.items():
            if end == "ok":
                assert text in got and text in accepted, f"{text} was not made"
            elif end == "refused":
                assert text not in got and text not in accepted - closed, f"{text} was accepted"
            else:
                assert end != "wrong" and text in self.disturbed, f"{text}: {end}"


def processes(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for child in children(pid):
        found[name_of(child)] += 1
        found += processes(child)
    return found


def leftover(client: Client) -> tuple[Counter[str], int]:
    """The supervisor's processes, and its descriptors."""
    pid = client.status()["pid"]
    return processes(pid), len(os.listdir(f"/proc/{pid}/fd"))


def is_left(client: Client, most: tuple[Counter[str], int]) -> bool:
    """Whether no more is left."""
    now, descriptors = leftover(client)
    return now <= most[0] and descriptors <= most[1]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("language", BEGIN)
def test_what_is_made_is_what_was_accepted(tmp_path: Path, language: str) -> None:
    if language == "node" and shutil.which("node") is None:
        pytest.skip("there is no node")
    seed = int(os.environ.get("CG_SEED") or time.time_ns() % 1_000_000)
    print(f"CG_SEED={seed}")
    chance = random.Random(seed)
    ends: Counter[str] = Counter()
    with Client(log_level=0, no_spare=1) as client:
        race = None
        first: tuple[Counter[str], int] | None = None
        for n in range(rounds(2000, 15)):
            if race is None:
                race = Race(client, tmp_path / str(n), language, chance)
            try:
                race.round(n)
                if race.open and n % 100 != 99:
                    continue
                race.session.close()
                race.open = False
                first = first or leftover(client)
                eventually(partial(is_left, client, first))
                race.check()
            except (AssertionError, CellgateError):
                print("\n".join(race.log), race.output, sep="\n")
                raise
            ends.update(e for _, e in re.findall(r"^(r\d+c\d+) (\w+)$", race.output, re.MULTILINE))
            race = None
        if race:
            race.session.close()
            race.check()
    print(dict(ends))
