"""Programs of cells (--exec) in `cellgate run`: questions at a terminal and in JSON, and rules about tools."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

RUN = "import subprocess; print(subprocess.run(['echo', 'it ran'], capture_output=True, text=True).stdout)"


def run(cellgate: Path, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [cellgate, "run", *args],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )


QUESTION = r"a\d{3} always for exactly this command, folder and variables in this session: "


def test_yes(person) -> None:
    p = person("run", "--exec", "ask", "-c", RUN)
    shown = p.wait_for(QUESTION)
    assert (
        "[cellgate] Cell 1 wants to start a program:\n  command   echo 'it ran'\n  program   /usr/bin/echo\n" in shown
    )
    assert '    "argv": ["echo", "it ran"],\n' in shown
    p.type(f"y{p.digits(shown)}\n")
    p.wait_for("it ran\n")
    assert p.end() == 0


def test_the_line_of_a_shell_s_cell(person) -> None:
    p = person("run", "--language", "shell", "--exec", "ask", "-c", "x=1\n  touch a; sleep 0\ntouch a")
    shown = p.wait_for(QUESTION)
    assert re.search(r"\n  folder +[^\n]+\n  line +2:   touch a; sleep 0\n", shown) is None  # two lines fit
    p.type(f"a{p.digits(shown)}\n")
    shown = p.wait_for("sleep[^$]*" + QUESTION)
    assert re.search(r"\n  line +2:   touch a; sleep 0\n", shown)
    p.type("n\n")
    assert p.end() == 0  # the other touch is the same command, whatever its line
    assert p.seen.count("wants to start") == 2


def test_no(person) -> None:
    p = person("run", "--exec", "ask", "-c", RUN)
    p.wait_for(QUESTION)
    p.type("n\n")
    p.wait_for("PermissionError")
    assert p.end() == 1
    assert "running /usr/bin/echo: the host refused it: refused at the terminal" in p.seen.replace("\n", " ")


def test_always_is_for_exactly_this_command(person) -> None:
    p = person("run", "--exec", "ask", "-c", f"{RUN}\n{RUN}", "-c", RUN.replace("it ran", "another"))
    p.type(f"a{p.digits(p.wait_for(QUESTION))}\n")
    shown = p.wait_for("Cell 2 wants to start a program:[^$]*" + QUESTION)
    assert "command   echo another\n" in shown
    p.type("n\n")
    assert p.end() == 1
    assert p.seen.count("Cell 1 wants") == p.seen.count("Cell 2 wants") == 1


OTHER = "import subprocess; print(subprocess.run(['echo', 'hi'], executable='/usr/bin/printf').returncode)"


def test_another_name_than_the_programs_comes_second(person) -> None:
    p = person("run", "--exec", "ask", "-c", OTHER)
    shown = p.wait_for(QUESTION)
    assert "wants to start a program:\n  program   /usr/bin/printf\n  called as echo hi\n" in shown
    p.type("n\n")
    assert p.end() == 1


def test_blanks_hide_no_end_of_a_command(person) -> None:
    p = person("run", "--exec", "ask", "-c", "import os; os.system('true' + ' ' * 5000 + '; rm -rf precious')")
    shown = p.wait_for(QUESTION)
    assert "  called as sh -c 'true\n  ... [5000 blanks]\n  ~ ; rm -rf precious'\n" in shown
    p.type("n\n")
    p.end()


CHANGED = "import shutil, subprocess; shutil.copy('/usr/bin/true', 'own'); print(subprocess.run(['./own']).returncode)"


def test_always_is_not_for_programs_that_cells_can_change(person) -> None:
    p = person("run", "--exec", "ask", "-c", CHANGED, "-c", CHANGED)
    for cell in 1, 2:
        p.wait_for(f"Cell {cell} wants ")
        shown = p.wait_for(r"Allow\? y\d{3} yes, n no, r no with a reason, v view everything: ")
        assert "  note      cells can change this program\n" in shown
        p.type(f"a{p.digits(shown)}\n")
        p.wait_for(r"Please type y\d{3}, n, r or v and Enter\.")
        p.wait_for("view everything: ")
        p.type(f"y{p.digits(shown)}\n")
    assert p.end() == 0


@pytest.mark.parametrize("rule", ["all", "*.*", "*.echo"])
def test_rules_about_tools_accept_no_program(cellgate: Path, tmp_path: Path, rule: str) -> None:
    done = run(cellgate, tmp_path, "--approve", rule, "--exec", "ask", "-c", RUN)
    assert done.returncode == 1
    assert "PermissionError" in done.stderr and "--exec allow" in done.stderr
    assert "it ran" not in done.stdout


def test_with_all_tools_accepted_a_person_is_asked_about_programs(person) -> None:
    p = person("run", "--approve", "all", "--exec", "ask", "-c", RUN)
    p.type(f"y{p.digits(p.wait_for(QUESTION))}\n")
    p.wait_for("it ran\n")
    assert p.end() == 0


def test_none_and_deny(cellgate: Path, tmp_path: Path) -> None:
    done = run(cellgate, tmp_path, "--approve", "none", "--exec", "ask", "-c", RUN)
    assert (done.returncode, "it ran" in done.stdout) == (1, False)
    done = run(cellgate, tmp_path, "--exec", "deny", "-c", RUN)
    assert (done.returncode, "it ran" in done.stdout) == (1, False)
    assert "cells of this session start no programs" in done.stderr


@pytest.mark.parametrize("accept", [True, False])
def test_json(host, accept: bool) -> None:
    h = host("--exec", "ask", "--approve", "all", "-c", RUN)
    e = h.until("approval_request")
    assert (e["server"], e["method"], e["tool"], e["cell"]) == ("", "exec", "", 1)
    assert e["arguments"]["argv"] == ["echo", "it ran"]
    assert e["shown"].startswith("  command   echo 'it ran'\n  program   /usr/bin/echo\n")
    h.say({"approval": e["approval"], "accept": accept, **({} if accept else {"reason": "no echo"})})
    if accept:
        assert h.until("stream")["text"] == "it ran\n\n"
    else:
        assert h.until("denied")["text"].endswith("the host refused it: no echo")
    assert h.end() == (0 if accept else 1)
