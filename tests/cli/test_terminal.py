"""`cellgate run` at a terminal: questions, answers, ^C; neither output nor arguments can fake or hide a question."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from processes import gate

READ = "from mcptools.fs import read_file; print(read_file.run(path='/x'))"
TWICE = READ + "; print(read_file.run(path='/z'))"
BOTH = READ + "\nfrom mcptools.fs import write_file; print(write_file.run(path='/y'))"
QUESTION = r"a\d{3} always for this tool in this session: "


def call(tool: str, arguments: str) -> str:
    """A cell that sends exactly these bytes as arguments."""
    return f"import _cellgate; print(_cellgate.tool_call('fs', {tool!r}, {arguments.encode()!r}, 0)[0])"


# ---------------------------------------------------------------- answers


def test_yes(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", READ)
    shown = p.answer("y")
    assert (
        "[cellgate] Cell 1 wants to call a tool:\n  server    fs\n  tool      read_file\n  arguments 13 bytes\n"
        in shown
    )
    question = f"[cellgate] Allow? y{p.digits(shown)} yes, n no, r no with a reason, v view everything,\n"
    assert '    "path": "/x"\n  }\n' + question in shown
    p.wait_for("read_file done\n")
    assert p.end() == 0
    assert server.ran() == ["read_file"]


def test_question_fits_into_60_columns(person, server) -> None:
    code = "from mcptools.fs import read_file\nread_file.run(path='/x of some words' * 20)"
    p = person("run", "--mcp", server.mcp, "-c", code, columns=60)
    shown = p.answer("n")
    shown = shown[shown.index("[cellgate] Cell 1") :]
    assert max(map(len, shown.splitlines())) <= 60
    assert not re.search(r"[a-z]\n  ~ [a-z]", shown)  # between words
    assert p.end() == 4


def again(times: int, before: str = "pass") -> str:
    """A cell that does this and calls the tool, several times; refusals do not end it."""
    return f"for i in range({times}):\n    {before}\n    try: {READ}\n    except Exception as e: print(repr(e))"


def test_no(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", again(3), "-c", READ)
    for typed in "n", "no", "N", "n":
        p.answer(typed)
        p.wait_for("RejectedError.*refused at the terminal")
    assert p.end() == 4
    assert server.ran() == []


def test_resource(person, server) -> None:
    p = person(
        "run", "--mcp", server.mcp, "-c", "import mcptools; print(mcptools.read_resource('fs', 'file:///\u202ex'))"
    )
    shown = p.wait_for(r"a\d{3} always for all resources of this server in this session: ")
    head = "[cellgate] Cell 1 wants to read a resource:\n  server    fs\n  resource  file:///"
    assert head in shown and "\u202e" not in shown
    p.type(f"y{p.digits(shown)}\n")
    p.wait_for("contents\n")
    assert p.end() == 0
    assert server.ran() == ["resources/read"]


def test_no_with_a_reason(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", READ)
    p.answer("r")
    p.wait_for("Reason, which the code receives: ")
    p.type("not on a Sunday\n")
    p.wait_for("RejectedError: .*not on a Sunday")
    assert p.end() == 4
    assert server.ran() == []


def test_always_is_for_this_tool(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", TWICE, "-c", BOTH)
    p.answer("a")
    assert "tool      write_file" in p.answer("n")
    assert p.end() == 4
    assert p.seen.count("Cell 1 wants") == p.seen.count("Cell 2 wants") == 1
    assert len(re.findall("^read_file done$", p.seen, re.M)) == 3
    assert server.ran() == ["read_file"] * 3


def test_always_with_the_same_arguments_is_for_no_others(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", f"{TWICE}\n{TWICE}")
    p.answer("s")
    assert '"path": "/z"' in p.answer("y")
    assert '"path": "/z"' in p.answer("n")  # the second /x was not asked about
    assert p.end() == 4
    assert [c["arguments"]["path"] for c in server.calls()] == ["/x", "/z", "/x"]


def test_other_answers_are_none(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", READ)
    for typed in "", "maybe", "ye", "yess", "y y", "1", "\x1b[A":
        p.answer(typed)
        p.wait_for(r"Please type y\d{3}, n, r, s\d{3}, a\d{3} or v")
    p.answer("n")
    assert p.end() == 4
    assert server.ran() == []


def test_end_of_file_is_no(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", READ)
    p.wait_for(QUESTION)
    p.type("\x04")
    assert p.end() == 4
    assert server.ran() == []


def test_what_was_typed_before_the_question_is_no_answer(person, server, tmp_path: Path) -> None:
    """A cell that makes a person type y, and then asks for a tool."""
    release, go = gate(tmp_path), "open('go').read()\n"
    p = person("run", "--mcp", server.mcp, "-c", "print('type y')\n" + go + READ)
    p.wait_for("type y\n")
    p.type("y\ny\n")
    p.wait_for("y\ny\n")  # the terminal has them
    release()
    p.answer("n")
    assert p.end() == 4
    assert server.ran() == []


# ---------------------------------------------------------------- answers that are none


IGNORED = r"Keys pressed before the question could be read, or pasted, were ignored\.\n"


def test_keys_that_were_meant_for_input_answer_no_question(person, server) -> None:
    """Typed ahead of the question."""
    p = person("run", "--mcp", server.mcp, "-c", again(5, "input('Continue? ')"))
    for typed in "y\n", "y", "\n", "y\ny\ny\n", "\x04":
        p.wait_for("Continue\\? ")
        p.type("y\n" + typed)
        p.wait_for(IGNORED)
        p.answer("n")
    assert p.end() == 0
    assert server.ran() == []


@pytest.mark.parametrize("typed", ["y\n", "y", "y\ny\ny\n", "\x04"])
def test_keys_before_the_question_can_be_read_are_no_answer(person, server, typed: str) -> None:
    """A second Enter arrives when the question is on the terminal already."""
    for _ in range(20):  # on a busy machine the keys may come too late for that
        p = person("run", "--mcp", server.mcp, "-c", READ)
        p.wait_for("wants to call a tool")
        p.type(typed)
        if "Allow?" not in p.wait_for(f"{IGNORED}|{QUESTION}"):
            break
        p.close()
        server.journal.unlink(missing_ok=True)
    p.answer("n")
    assert p.end() == 4
    assert server.ran() == []


@pytest.mark.parametrize("asks", ["print('Press y and Enter to continue')", "input('y or n? ')", "1/0"])
def test_no_cell_can_name_the_accepting_key(person, server, asks: str) -> None:
    cell = f"try:\n    {asks}\nexcept ZeroDivisionError:\n    get_ipython().showtraceback()\n" + READ
    p = person("run", "--mcp", server.mcp, "-c", cell)
    if "input" in asks:
        p.wait_for("y or n\\? ")
        p.type("y\n")
    for typed in "y", "yes", "a", "y000", "y1", "y 12":
        shown = p.wait_for(QUESTION)
        assert re.search(r"Allow\? y(\d{3}) yes, .*\n +s\1 always with the same arguments,\n +a\1 always", shown)
        p.type(typed + "\n")
        p.wait_for(
            r"Please type y\d{3}, n, r, s\d{3}, a\d{3} or v and Enter\. The digits are new for each question\.\n"
        )
    p.answer("yes")
    p.wait_for("read_file done")
    assert p.end() == 0
    assert server.ran() == ["read_file"]


def test_digits_are_new_for_each_question(person, server) -> None:
    cell = "for i in range(4):\n    print('next')\n    " + READ.replace("; ", "\n    ")
    p = person("run", "--mcp", server.mcp, "-c", cell)
    digits = {p.digits(p.answer("y")) for _ in range(4)}
    assert p.end() == 0
    assert len(digits) > 1
    assert all(len(d) == 3 for d in digits)


THREE = "from mcptools.fs import read_file\nfor path in 'abc':\n    try: read_file.run(path=path)\n    except Exception: pass\n"


@pytest.mark.parametrize("shows", ["print('Type n, then y, then n')\n", ""])
def test_no_answer_ends_what_a_cell_has_shown(person, server, shows: str) -> None:
    """It stays on the screen, as an earlier question's arguments and the output of earlier runs do."""
    p = person("run", "--mcp", server.mcp, "-c", shows + THREE, "-c", THREE)
    for answer in "nynnyn":
        if answer == "y":
            p.wait_for(QUESTION)
            p.type("y\n")  # without the digits of this question
            p.wait_for(r"Please type y\d{3}, n, r, s\d{3}, a\d{3} or v and Enter\.")
        p.answer(answer)
    assert p.end() == 0
    assert len(server.ran()) == 2


def test_pasted_text_is_no_answer(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", again(5))
    for pasted in "y\nls", "y\nls\n", "y\n\n", "\x1b[200~y\n\x1b[201~", "\x1b[200~y\x1b[201~\n":
        p.wait_for(QUESTION)
        p.type(pasted)
        p.wait_for(IGNORED)
        p.answer("n")
    assert p.end() == 0
    assert server.ran() == []


def terminal_mode(p) -> int:
    return termios.tcgetattr(p.master)[3] & (termios.ICANON | termios.ECHO)


@pytest.mark.parametrize("ending", ["n", "^C", "kill"])
def test_the_terminal_gets_its_mode_back(person, server, ending: str) -> None:
    before = "wants to call a tool" if ending != "n" else QUESTION
    p = person("run", "--mcp", server.mcp, "-c", "import time\ntry:\n    " + READ + "\nfinally:\n    time.sleep(600)")
    mode = terminal_mode(p)
    p.wait_for(before)
    if ending == "n":
        assert terminal_mode(p) == mode
        p.type("n\n")
    elif ending == "^C":
        p.type("\x03")
        p.wait_for("cancelled")
        assert terminal_mode(p) == mode
    p.process.send_signal(signal.SIGTERM)
    p.process.send_signal(signal.SIGTERM)  # the second one ends it at once
    p.process.wait(60)
    assert terminal_mode(p) == mode == termios.ICANON | termios.ECHO


MORE = r"v shows (everything in parts|the next part), n no, r no with a reason: "


def test_view_shows_everything_and_then_yes_counts(person, server) -> None:
    text = "".join(f"line {i}\\n" for i in range(200)) + "the end"
    p = person("run", "--mcp", server.mcp, "-c", call("write_file", f'{{"content": "{text}", "path": "/y"}}'))
    first = p.wait_for(MORE)
    assert '"path": "/y"' in first  # a long text in front hides no other argument
    assert "the end" in first  # and its own end is shown
    assert re.search(r"\.\.\. \[\d+ more bytes not shown\]", first)
    assert re.search(r"  arguments \d{4} bytes\n  SHA-256   [0-9a-f]{64}\n", first)
    assert first.count("\n") < 24  # the terminal's
    whole = ""
    for typed in "y", "yes", "a", "always", "y123":
        p.type(typed + "\n")
        p.wait_for(r"Please type v, n or r and Enter\. Yes counts once all was shown\.\n")
        p.wait_for(MORE)
    while "Allow?" not in whole:
        p.type("v\n")
        part = p.wait_for(f"{MORE}|{QUESTION}")
        assert part.count("\n") < 24
        assert re.search(r"Part \d+ of 12\.\n", part)
        whole += part
        assert server.ran() == []
    assert all(f"line {i}\\n\n" in whole for i in range(200))
    assert '"path": "/y"' in whole
    assert "not shown" not in whole
    p.type(f"y{p.digits(whole)}\n")
    assert p.end() == 0
    assert server.ran() == ["write_file"]


def test_a_view_that_begins_again_can_still_accept(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", READ.replace("'/x'", "list(range(30))"))
    p.wait_for(MORE)
    for _ in range(2):
        p.type("v\n")
        shown = p.wait_for(f"{MORE}|{QUESTION}")
    assert "Part 2 of 3.\n" in shown and "Allow?" not in shown
    for part in 3, 1, 2:
        p.type("v\n")
        assert f"Part {part} of 3.\n" in p.wait_for(QUESTION)
    p.type("n\n")
    assert p.end() == 4
    assert server.ran() == []


def test_blanks_push_nothing_off_the_screen(person, server) -> None:
    blanks = " \t\n\u00a0\u2003\u3000\u200b"
    cell = f"for blank in {ascii(blanks)}:\n    " + READ.replace("'/x'", "'ls' + blank * 5000 + '; rm -rf x'")
    p = person("run", "--mcp", server.mcp, "-c", cell)
    for _ in blanks:
        assert '"path": "ls" [5000 blanks] "; rm -rf x"\n' in p.answer("y")
    assert p.end() == 0
    assert [c["arguments"]["path"] for c in server.calls()] == ["ls" + b * 5000 + "; rm -rf x" for b in blanks]


def test_rules_come_before_questions(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "--approve", "fs.read_*", "--approve", "!fs.write_*", "-c", BOTH)
    assert p.end() == 4
    assert "read_file done\n" in p.seen
    assert "fs.write_file was refused: refused by the approval rule !fs.write_*" in p.seen
    assert "Allow?" not in p.seen


@pytest.mark.parametrize(("rule", "status"), [("none", 4), ("all", 0)])
def test_none_and_all_ask_nothing(person, server, rule: str, status: int) -> None:
    p = person("run", "--mcp", server.mcp, "--approve", rule, "-c", READ)
    assert p.end() == status
    assert "Allow?" not in p.seen


def test_questions_of_threads_come_one_by_one(person, server) -> None:
    cell = (
        "from concurrent.futures import ThreadPoolExecutor\nfrom mcptools.fs import read_file\n"
        "def one(i):\n  print(f'output {i}', flush=True)\n  return str(read_file.run(i=i))\n"
        "with ThreadPoolExecutor(3) as pool: print(list(pool.map(one, range(3))))"
    )
    p = person("run", "--mcp", server.mcp, "-c", cell)
    seen = [p.answer("y") for _ in range(3)]
    p.wait_for(r"\['read_file done', 'read_file done', 'read_file done'\]")
    assert p.end() == 0
    assert sorted(re.findall(r'"i": (\d)', "".join(seen))) == ["0", "1", "2"]
    # No output came in between a question's first line and its answer, and none was lost.
    assert all(f"output {i}" in p.seen for i in range(3))
    assert all("output" not in s[s.index("wants to call") :] for s in seen)


def test_no_output_while_a_question_stands(person, server, tmp_path: Path) -> None:
    """A thread of the cell writes while a person thinks: it must not push the question away, and nothing is lost."""
    cell = (
        "import os, threading, time\ndef chat():\n  while not os.path.exists('asked'): time.sleep(0.01)\n"
        "  for i in range(20): print('chat', i, flush=True); time.sleep(0.05)\n"
        "  open('done', 'w').close()\n"
        "threading.Thread(target=chat).start()\n" + READ
    )
    p = person("run", "--mcp", server.mcp, "-c", cell)
    p.wait_for(QUESTION)
    (tmp_path / "asked").touch()
    while not (tmp_path / "done").exists():
        assert time.monotonic() < p.deadline
        time.sleep(0.02)
    p.type("v\n")
    assert "chat" not in p.answer("y")
    p.wait_for("chat 0\n(.*\n)*chat 19\n")
    assert p.end() == 0


def test_asks_although_output_is_redirected(person, server, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        p = person("run", "--mcp", server.mcp, "-c", READ, stdout=out)
        p.answer("y")
        assert p.end() == 0
    assert (tmp_path / "out").read_text() == "read_file done\n"


def test_all_redirected_does_not_ask(person, server) -> None:
    """A terminal somewhere is not enough: a program that runs cellgate with pipes must not find it asking there."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    p = person("run", "--mcp", server.mcp, "-c", READ, **pipes)
    assert p.process.stderr.read().decode().count("was refused") == 1
    assert p.end() == 4
    assert p.seen == ""


def test_input(person) -> None:
    p = person("run", "-c", "print('got', input('your [cellgate] \x1b[2Jname? '))")
    shown = p.wait_for(r"name\? ")
    assert "Input for cell 1: your " in shown
    assert "\x1b" not in p.seen
    p.type("me\n")
    p.wait_for("got me\n")
    assert p.end() == 0


def test_password_is_not_shown(person) -> None:
    p = person("run", "-c", "import getpass; print(len(getpass.getpass('secret: ')))")
    p.wait_for("secret: ")
    p.type("hidden!\n")
    p.wait_for("\n7\n")
    assert p.end() == 0
    assert "hidden" not in p.seen


# ---------------------------------------------------------------- ^C


def test_interrupt_at_the_question(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", READ, "-c", "print('next')")
    p.wait_for(QUESTION)
    p.type("\x03")
    p.wait_for(r"\[cellgate\] cancelled")
    assert p.end() == 130
    assert server.ran() == []
    assert "\nnext" not in p.seen


def test_interrupt_at_a_question_and_another_question(person) -> None:
    """The cell continues with its next question, in the same kernel; no further cell is started."""
    code = "try: input('first? ')\nexcept KeyboardInterrupt: print('kept', kept, input('second? '))"
    p = person("run", "-c", "kept = 42", "-c", code, "-c", "print('next')")
    p.wait_for(r"first\? ")
    p.type("\x03")
    p.wait_for(r"\[cellgate\] cancelled")
    p.wait_for(r"second\? ")
    p.type("yes\n")
    p.wait_for("kept 42 yes\n")
    assert p.end() == 130
    assert "\nnext" not in p.seen


def test_an_exception_of_the_cell_ends_its_question(person) -> None:
    code = (
        "import signal\ndef late(*_): raise TimeoutError\nsignal.signal(signal.SIGALRM, late)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "try: input('quick? ')\nexcept TimeoutError: print('too late')\nprint('got', input('slow? '))"
    )
    p = person("run", "-c", code)
    p.wait_for(r"quick\? ")
    p.wait_for("this question has ended")
    p.wait_for("too late\n")
    p.wait_for(r"slow\? ")
    p.type("yes\n")
    p.wait_for("got yes\n")
    assert p.end() == 0


def test_interrupt_in_a_cell(person) -> None:
    p = person("run", "-c", "import time; print('go', flush=True); time.sleep(60)", "-c", "print('next')")
    p.wait_for("go\n")
    p.type("\x03")
    p.wait_for("KeyboardInterrupt")
    assert p.end() == 130
    assert "\nnext" not in p.seen


@pytest.mark.parametrize("seen", ["wants to call a tool", QUESTION])
def test_question_is_taken_back_when_its_cell_ends(person, server, tmp_path: Path, seen: str) -> None:
    """The kernel ends while a person thinks: the question must not wait for an answer any more."""
    release = gate(tmp_path)
    go = "import os, threading\ndef die():\n    open('go').read()\n    os._exit(0)\n"
    p = person("run", "--mcp", server.mcp, "-c", go + "threading.Thread(target=die).start()\n" + READ)
    p.wait_for(seen)
    release()
    p.wait_for(r"\[cellgate\] this (call waits no more|question has ended)")
    assert p.end() == 3
    assert server.ran() == []


def test_signal_ends_a_cell_that_asks_again_and_again(person) -> None:
    p = person("run", "-c", "while True:\n    try: input('again? ')\n    except BaseException: pass")
    p.wait_for(r"again\? ")
    p.process.send_signal(signal.SIGHUP)
    assert p.end() == 128 + signal.SIGHUP
    assert "did not end after the signal" in p.seen


def test_terminal_that_hangs_up(person, server) -> None:
    p = person("run", "--mcp", server.mcp, "-c", READ)
    p.wait_for(QUESTION)
    p.process.send_signal(signal.SIGHUP)
    assert p.end() == 128 + signal.SIGHUP
    assert server.ran() == []


# ---------------------------------------------------------------- deceiving


ATTEMPTS = [
    r"print('\x1b[2J\x1b[H[cellgate] Allow? y yes')",
    r"print('x' * 75 + '     [cellgate] Allow?')",
    r"import sys; sys.stdout.write('[cell'); sys.stdout.flush(); sys.stderr.write('gate] Allow?\n')",
    r"import os; os.write(1, b'\x1b]0;title\x07\x9b2J\xc2\x9b2J\r[cellgate]\b\b\x7f\n')",
    r"import subprocess; subprocess.run(['printf', r'\033[1A\033[2K[cellgate] Allow?'])",
    r"class R:" + "\n  def __repr__(self): return '\\x1b[2J[cellgate] Allow?\\u202e'\nR()",
    r"from IPython.display import display; display({'\x1b[2J[cellgate]': 'x'}, raw=True)",
    r"from IPython.display import display; display({'text/plain': '\x1b[2J[cellgate] Allow?'}, raw=True)",
]
ERRORS = [r"raise ValueError('\x1b[2J[cellgate] Allow?\r\n[cellgate]')", "1 +  # \x1b[2J[cellgate] Allow?"]


@pytest.mark.parametrize("cells", [ATTEMPTS, *([e] for e in ERRORS)], ids=["output", "error", "code"])
def test_output_cannot_look_like_ours(person, cells: list[str]) -> None:
    p = person("run", *(word for cell in cells for word in ("-c", cell)))
    assert p.end() == (cells is not ATTEMPTS)
    assert "[cellgate]" not in p.seen
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", p.seen)
    assert "\r" not in p.seen.replace("\r\n", "\n")


def test_input_cannot_look_like_ours(person) -> None:
    """A cell's question is marked once, by cellgate."""
    p = person("run", "-c", r"x = input('\n[cellgate] Allow? y yes'); print(x)")
    p.wait_for(r"Allow\? y yes")
    p.type("y\n")
    assert p.end() == 0
    assert p.seen.count("[cellgate]") == 1
    assert p.seen.startswith("\n[cellgate] Input for cell 1: \n[cellgate\\x5d Allow? y yes")


ARGUMENTS = [
    r'{"a": "\u001b[2J\u001b[H[cellgate] Allow? y"}',
    r'{"a": "x\n[cellgate] Allow?\n  }\n[cellgate] Allow?"}',
    '{"a": "\u202e\u2066\u200b\u2028[cellgate]"}',
    '{"a": "' + " " * 60 + '[cellgate] Allow? y yes"}',
    '{"a": "' + "\u4e2d" * 90 + '[cellgate]"}',
    '{"[cellgate] Allow? ' + " " * 70 + '[cellgate]": 1}',
    r'{"a": "\r\b\b\b\b\b\b\b\b"}',
]


def test_arguments_cannot_look_like_ours(person, server) -> None:
    calls = [word for arguments in ARGUMENTS for word in ("-c", call("write_file", arguments))]
    p = person("run", "--mcp", server.mcp, *calls)
    for _ in ARGUMENTS:
        check_is_plain(p.answer("n"))
    assert p.end() == 0


def check_is_plain(shown: str) -> None:
    """Only our lines begin in the first column."""
    lines = shown[shown.index("wants to call") :].split("\n")[1:]
    ours = [re.sub(r" ([ysa])\d{3} ", r" \1 ", line) for line in lines if not line.startswith("  ")]
    assert ours == [
        "[cellgate] Allow? y yes, n no, r no with a reason, v view everything,",
        "           s always with the same arguments,",
        "           a always for this tool in this session: ",
    ] or ours[:1] == ["[cellgate] Allow? y yes, n no, r no with a reason, v view everything,"]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066\u200b\u2028]", shown)
    # The terminal must not break a line: its rest would begin in the first column.
    for line in lines:
        if line.startswith("  "):
            assert sum(1 if c.isascii() else 2 for c in line) <= 80


DECEIVING = {  # a character, and how it is shown
    c: ascii(c)[1:-1]
    for c in ("\u05d0", "\u00a0", "\u3000", "\u1680", "\u205f", "\u2064", "\U000e0041", "\u0430", "\uff0f")
}


def test_what_deceives_the_eye_is_an_escape(person, make_server) -> None:
    """In the names and in the arguments, also where these are written with escapes."""
    cells = []
    for character in DECEIVING:
        written = json.dumps(character)[1:-1]
        cells += ["-c", call(f"read{character}file", f'{{"path": "/home/x{character}x/x{written}y"}}')]
    p = person("run", "--mcp", make_server(*(f"read{c}file" for c in DECEIVING)).mcp, *cells)
    for character, escape in DECEIVING.items():
        shown = p.answer("n")
        assert f"read{escape}file\n" in shown
        assert f'"/home/x{escape}x/x{json.dumps(character)[1:-1]}y"' in shown
        assert character not in shown


def test_names_cannot_look_like_ours(person, make_server) -> None:
    name = "read\n[cellgate] Allow?\r\x1b[2J" + " " * 70 + "tool      harmless"
    server = make_server(name)
    p = person("run", "--mcp", server.mcp, "-c", f"import _cellgate; _cellgate.tool_call('fs', {name!r}, b'{{}}', 0)")
    shown = p.answer("n")
    p.end()
    assert "\n[cellgate] Allow?\\x0d" not in shown
    assert "tool      read\\x0a[cellgate] Allow?\\x0d\\x1b[2J" in shown
    assert not re.search(r"^  tool      harmless", shown, re.M)


def test_exactly_what_was_shown_is_sent(person, make_server) -> None:
    server = make_server("t")
    arguments = r'{"a": 12345678901234567890123, "b": "\u00e9\ud83d\ude00"}'
    p = person("run", "--mcp", server.mcp, "-c", call("t", arguments))
    shown = p.answer("y")
    assert "12345678901234567890123" in shown
    assert "é😀" in shown
    assert p.end() == 0
    assert server.calls() == [{"tool": "t", "arguments": {"a": 12345678901234567890123, "b": "é😀"}}]


# ---------------------------------------------------------------- progress


TERMINAL = {"TERM": "xterm"}


@pytest.mark.parametrize(("env", "coloured"), [(TERMINAL, True), ({**TERMINAL, "NO_COLOR": "1"}, False), ({}, False)])
def test_tracebacks_have_colour_at_a_terminal(person, env: dict[str, str], coloured: bool) -> None:
    p = person("run", "-c", "raise ValueError('\\x1b[7mx')", env=env)
    assert p.end() == 1
    assert ("\x1b[1;31mValueError: \\x1b[7mx\x1b[0m\n" in p.seen) is coloured
    assert ("\x1b[36mCell In[1], line 1\x1b[0m\n" in p.seen) is coloured
    assert ("\x1b" in p.seen) is coloured
    assert "\x1b[7m" not in p.seen  # the mark's colour


def test_tracebacks_have_no_colour_in_a_pipe(person) -> None:
    p = person("run", "-c", "1/0", env=TERMINAL, stderr=subprocess.PIPE)
    error = p.process.stderr.read()
    assert p.end() == 1
    assert b"ZeroDivisionError" in error and b"\x1b" not in error


def test_progress_line_comes_and_goes(person, tmp_path: Path) -> None:
    release = gate(tmp_path)
    cell = "open('go').read()\nprint('done')"
    p = person("run", "-c", cell, "-c", "pass")
    p.wait_for(r"cell 1 of 2, [1-9]\d* s\r\x1b\[K")
    release()
    p.wait_for("\r\x1b\\[K(done)")
    assert p.end() == 0


def test_progress_of_a_call_is_one_line(person, asking) -> None:
    """It is rewritten in place, fits the row, and cannot spell our mark."""
    values = [{"progress": i, "total": 3, "message": "[cellgate] " + "\u7532" * 60} for i in (1, 2, 3)]
    cell = f"from mcptools.s import report; report.run(values={values!r}, pause=0.15); print('done')"
    p = person("run", "--mcp", asking(), "--approve", "all", "-c", cell)
    p.wait_for(r"\[cellgate\] s\.report: 1 of 3, \[cellgate\\x5d \u7532+\r\x1b\[K")
    shown = p.wait_for(r"\[cellgate\] s\.report: 2 of 3, .*\r\x1b\[K")
    assert "\n" not in shown and len(shown.encode()) < 80 + len("\r\x1b[K")
    p.wait_for("done")
    assert p.end() == 0


def test_progress_of_a_call_is_for_terminals_only(person, asking) -> None:
    cell = "from mcptools.s import report; report.run(values=[{'progress': 1}])"
    p = person("run", "--mcp", asking(), "--approve", "all", "-c", cell, stderr=subprocess.PIPE)
    error = p.process.stderr.read()
    assert p.end() == 0
    assert b"report" not in error
