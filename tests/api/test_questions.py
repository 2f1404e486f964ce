"""Questions of cells and interrupts: what an interrupt takes back is no longer open, and no kernel loses its state by it."""

from __future__ import annotations

import contextlib
import random

import pytest
from cellgate_api import E_STATE, CellgateError, Event, Session


def ask(session: Session, code: str, **opts: object) -> int:
    """Run until the cell asks; the cell's number."""
    cell = session.execute(code, allow_stdin=True, **opts)
    session.until("input_request")
    return cell


def finish(session: Session, cell: int, answer: str | None = None) -> list[Event]:
    """All events up to the cell's result; every question gets this answer."""
    seen = []
    while True:
        e = session.next()
        assert e is not None and e.type not in ("kernel_died", "session_closed"), (e, seen)
        seen.append(e)
        if e.type == "input_request":
            session.input(answer)
        if e.type == "result" and e.cell == cell:
            return seen


@pytest.mark.parametrize("debugger", ["breakpoint()", "import pdb; pdb.set_trace()"])
def test_interrupt_at_a_debugger(session: Session, debugger: str) -> None:
    """It ends the cell, as in ipykernel; the next debugger works."""
    session.run("x = 5\ndef f(): pass")
    for _ in range(2):
        cell = ask(session, f"x += 1\n{debugger}\nx += 1")
        session.cancel(cell)
        assert finish(session, cell)[-1].status == "cancelled"
    cell = ask(session, "breakpoint()")
    session.input("p x + 100")
    assert "107" in "".join(e.text for e in session.until("input_request"))
    session.input("c")
    assert finish(session, cell)[-1].status == "ok"
    assert session.run("x").value == "7"


@pytest.mark.parametrize(
    "debugger", ["breakpoint()", "import pdb; pdb.set_trace()", "import pdb; pdb.Pdb().set_trace()"]
)
def test_interrupt_after_a_debugger_has_continued(session: Session, debugger: str) -> None:
    """The interrupt ends the cell; pdb's own handler of SIGINT would stop in the debugger instead."""
    session.run("kept = 1")
    cell = ask(session, f"{debugger}\nprint('continued', flush=True)\nwhile True: pass")
    session.input("c")
    while "continued" not in session.until("stream")[-1].text:
        pass
    session.cancel(cell)
    seen = finish(session, cell)
    assert seen[-1].status == "cancelled" and "Program interrupted" not in "".join(e.text for e in seen)
    assert session.run("kept").value == "1"


def test_interrupt_of_a_debugger_before_its_prompt(session: Session) -> None:
    """IPython's debugger drops the exception, and stops at the next line."""
    session.run("import time\nfrom IPython.core.debugger import Pdb\nkept = 1")
    session.run("def show(*_): print('shows', flush=True); time.sleep(1000)\nPdb.print_stack_entry = show")
    cell = session.execute("breakpoint()\nwent_on = True", allow_stdin=True)
    session.until("stream")
    session.cancel(cell)
    assert finish(session, cell)[-1].status == "cancelled"
    assert session.run("kept, 'went_on' in globals()").value == "(1, False)"


def test_an_interrupt_that_is_lost_in_a_destructor(session: Session) -> None:
    """Python drops exceptions of destructors. The cell is interrupted again before its kernel is replaced."""
    session.run("import time\nkept = 1")
    session.run("class D:\n    def __del__(self): print('in', flush=True); time.sleep(1000)")
    cell = session.execute("D()\ntime.sleep(1000)")
    session.until("stream")
    session.cancel(cell)
    assert finish(session, cell)[-1].status == "cancelled"
    assert session.run("kept").value == "1"


def test_interrupts_and_further_questions(session: Session) -> None:
    code = "for i in range(4):\n    try: print('got', input()); break\n    except KeyboardInterrupt: pass"
    session.run("x = 5")
    cell = ask(session, code)
    for _ in range(3):
        session.cancel(cell)
        assert session.until("input_closed")[-1].cell == cell
        assert session.until("input_request")[-1].cell == cell
    session.input("it")
    assert "got it" in "".join(e.text for e in finish(session, cell))
    assert session.run("x").value == "5"


def test_a_cell_that_goes_on_asking_is_not_ended(session: Session) -> None:
    """The time that an interrupt gives a cell is over once it asks again."""
    code = "import time\ntry: input('a')\nexcept KeyboardInterrupt: input('b')\ntime.sleep(2.5)\nprint('went on')"
    cell = ask(session, code)
    session.cancel(cell)
    session.until("input_request")
    seen = finish(session, cell) if session.input("") is None else []
    assert seen[-1].status == "ok" and "went on" in "".join(e.text for e in seen)


def test_a_time_limit_ends_a_cell_that_goes_on_asking(session: Session) -> None:
    session.execute(
        "while True:\n    try: input()\n    except KeyboardInterrupt: pass", allow_stdin=True, timeout_ms=100
    )
    assert session.until("result")[-1].status == "timeout"


def test_an_answer_belongs_to_the_question_that_was_seen(session: Session) -> None:
    cell = ask(session, "try: input('a')\nexcept KeyboardInterrupt: print('got', input('b'))")
    session.cancel(cell)
    while (e := session.next()) is not None and e.type != "input_closed":
        pass
    with pytest.raises(CellgateError) as failure:
        session.input("to the first")
    assert failure.value.code == E_STATE
    seen = finish(session, cell, "to the second")
    assert "got to the second" in "".join(e.text for e in seen)


def test_an_alarm_ends_a_question(session: Session) -> None:
    code = (
        "import signal\n"
        "def late(*_): raise TimeoutError\n"
        "signal.signal(signal.SIGALRM, late)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "try: input('quick?')\n"
        "except TimeoutError: print('late', input('slow?'))"
    )
    cell = ask(session, code)
    assert session.until("input_closed")[-1].cell == cell
    assert "late yes" in "".join(e.text for e in finish(session, cell, "yes"))


CELLS = [
    "input('a')",
    "import getpass; getpass.getpass()",
    "breakpoint()",
    "for _ in range(3):\n    try: input('again')\n    except KeyboardInterrupt: pass",
    "from mcptools.echo import echo\necho.run(text='x')\ninput('b')",
    "import threading\nt = threading.Thread(target=lambda: input('t'))\nt.start()\nt.join()",
    "import sys; sys.stdin.readline()",
    "print('x' * 50000)\ninput()",
]


def act(session: Session, dice: random.Random, running: set[int], wild: bool) -> None:
    """One thing that a person could do now; `running` loses cells that have ended."""
    if wild and dice.random() < 0.4:
        session.cancel(dice.choice(sorted(running)))
    e = session.next(dice.choice([0, 20, 200]) if wild else 10000)
    if e is None:
        assert wild, f"{running} do not end"
        return
    assert e.type not in ("kernel_died", "session_closed"), e
    if e.type == "input_request" and (not wild or dice.random() < 0.5):
        session.input(dice.choice(["c", "x", "", None]) if wild else "c")  # "c" ends a debugger
    if e.type == "approval_request":
        with contextlib.suppress(CellgateError):  # cancelled meanwhile
            dice.choice([session.accept, session.reject])(e.approval)
    if e.type == "result":
        assert "replaced" not in e.text, e
        running.discard(e.cell)


def test_a_cell_that_waits_for_its_turn_to_ask_is_interrupted(session: Session) -> None:
    name = session.ask("create_subshell_request", {}).json["subshell_id"]
    session.run("kept = 1")
    asking = ask(session, "input('first')")
    waiting = session.execute("print('there'); input('second')", allow_stdin=True, subshell=name)
    session.until("stream")
    session.cancel(waiting)
    assert finish(session, waiting)[-1].status == "cancelled"
    session.input("x")
    assert finish(session, asking)[-1].status == "ok"
    assert session.run("kept").value == "1"


@pytest.mark.parametrize("seed", range(4))
def test_random_interrupts_cost_no_state(tools: Session, seed: int) -> None:
    dice = random.Random(seed)
    tools.run("kept = 'state'")
    name = tools.ask("create_subshell_request", {}).json["subshell_id"]
    for _ in range(20):
        running = {tools.execute(dice.choice(CELLS), allow_stdin=True)}
        if dice.random() < 0.3:
            running.add(tools.execute("input('s')", allow_stdin=True, subshell=name))
        for _ in range(30):
            if running:
                act(tools, dice, running, wild=True)
        tools.cancel(min(running, default=0))  # a question that was not answered
        while running:
            act(tools, dice, running, wild=False)
    seen = finish(tools, tools.execute("kept"))  # a call's question may be among it: it came after its cell's end
    assert [e.json["data"]["text/plain"] for e in seen if e.type == "execute_result"] == ["'state'"]
