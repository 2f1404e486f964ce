"""`cellgate sandbox --ask`: a person is asked about hosts that no list names."""

import ctypes
import json
import re
import select
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Person

ALLOW = r"d never while this command runs: "

FETCH = """
import os, sys, urllib.request as u, urllib.error as ue
os.environ.pop('NO_PROXY', None); os.environ.pop('no_proxy', None)
for url in sys.argv[1:]:
    try: sys.stdout.write("got " + u.urlopen(url, timeout=30).read().decode() + "\\n")
    except ue.HTTPError as e: sys.stdout.write(f"refused {e.code} " + e.read().decode().split("\\n")[1] + "\\n")
    sys.stdout.flush()
"""


def answer(p: Person, text: str) -> str:
    """Waits for a question, answers it, and returns what it showed. Accepting keys get the question's digits."""
    shown = p.wait_for(ALLOW)
    found = re.search(r"Allow\? y(\d{3}) yes once, s\1 yes", shown)
    assert found
    p.type(text + (found[1] if text.lower() in ("y", "s", "yes") else "") + "\n")
    return shown


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Path]:
    def write(**network: object) -> Path:
        path = tmp_path / "settings.json"
        net = {"allowedDomains": [], "deniedDomains": []} | network
        path.write_text(
            json.dumps({"network": net, "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}})
        )
        return path

    return write


@pytest.mark.parametrize(
    ("typed", "answers", "questions"),
    [
        ("y", ["got", "got"], 2),
        ("S", ["got", "got"], 1),
        ("no", ["refused", "refused"], 2),
        ("d", ["refused", "refused"], 1),
    ],
)
def test_answers(
    person: Callable[..., Person],
    settings: Callable[..., Path],
    port: int,
    typed: str,
    answers: list[str],
    questions: int,
) -> None:
    url = f"http://127.0.0.1:{port}/"
    p = person("sandbox", "--ask", "-s", settings(), sys.executable, "-c", FETCH, url, url)
    for _ in range(questions):
        shown = answer(p, typed)
        assert f"[cellgate] The command wants to connect to 127.0.0.1:{port} (http, a loopback address)" in shown
    assert p.end() == 0
    assert re.findall(r"^(?:\x1b\[0m)?(got|refused)", p.seen, re.M) == answers
    assert p.seen.count("Allow?") == questions


def test_what_is_listed_is_not_asked_about(
    person: Callable[..., Person], settings: Callable[..., Path], port: int
) -> None:
    s = settings(allowedDomains=[f"127.0.0.1:{port}"], deniedDomains=["localhost"])
    p = person(
        "sandbox", "--ask", "-s", s, sys.executable, "-c", FETCH, f"http://127.0.0.1:{port}/", f"http://localhost:{port}/"
    )
    assert p.end() == 0
    assert "Allow?" not in p.seen
    assert re.findall(r"^(got|refused)", p.seen, re.M) == ["got", "refused"]


def test_a_strict_list_is_the_last_word(
    person: Callable[..., Person], settings: Callable[..., Path], port: int
) -> None:
    p = person(
        "sandbox", "--ask", "-s", settings(strictAllowlist=True), sys.executable, "-c", FETCH, f"http://127.0.0.1:{port}/"
    )
    assert p.end() == 0
    assert "Allow?" not in p.seen
    assert "refused 403" in p.seen


def test_without_it_nobody_is_asked(person: Callable[..., Person], settings: Callable[..., Path], port: int) -> None:
    p = person("sandbox", "-s", settings(), sys.executable, "-c", FETCH, f"http://127.0.0.1:{port}/")
    assert p.end() == 0
    assert "Allow?" not in p.seen


def test_no_answer_is_no(person: Callable[..., Person], settings: Callable[..., Path], port: int) -> None:
    p = person("sandbox", "--ask=5", "-s", settings(), sys.executable, "-c", FETCH, f"http://127.0.0.1:{port}/")
    p.wait_for(ALLOW)
    p.wait_for(r"nobody answered in time")
    assert p.end() == 0
    assert "refused 403" in p.seen
    assert "nobody has answered in time" in p.seen


def test_something_else_is_asked_again(
    person: Callable[..., Person], settings: Callable[..., Path], port: int
) -> None:
    p = person("sandbox", "--ask", "-s", settings(), sys.executable, "-c", FETCH, f"http://127.0.0.1:{port}/")
    shown = p.wait_for(ALLOW)
    for text in ("", "maybe", "y" * 200, "yy", "y", "yes", "s", "y12", "s000"):
        p.type(text + "\n")
        p.wait_for(r"Please type y\d{3}, s\d{3}, n or d and Enter\. The digits are new for each question\.\n")
        shown = p.wait_for(ALLOW)
    p.type("  y " + re.findall(r"y(\d{3})", shown)[0] + " \n")
    assert p.end() == 0
    assert "got hello from outside" in p.seen


def test_what_was_typed_before_is_no_answer(
    person: Callable[..., Person], settings: Callable[..., Path], port: int, tmp_path: Path
) -> None:
    gate = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('typed'): time.sleep(0.01)\n"
    script = gate + FETCH
    p = person("sandbox", "--ask=5", "-s", settings(), sys.executable, "-c", script, f"http://127.0.0.1:{port}/")
    p.wait_for("ready\n")
    p.type("y\n")
    p.wait_for("y\n")  # the terminal has it
    (tmp_path / "typed").touch()
    p.wait_for(r"Keys pressed before the question could be read were ignored\.\n")
    p.wait_for(ALLOW)
    p.wait_for("nobody answered in time")
    assert p.end() == 0
    assert "refused 403" in p.seen


def test_the_command_stands_still_meanwhile(
    person: Callable[..., Person], settings: Callable[..., Path], port: int
) -> None:
    """It neither writes over the question nor reads the answer, and finds the terminal as it left it."""
    script = """
import subprocess, sys, threading, time, tty, termios
tty.setraw(0, termios.TCSANOW)
def noise():
    while True: print("noise", end=" ", flush=True); time.sleep(0.01)
def read():
    while True: print("STOLEN", sys.stdin.read(1), flush=True)
threading.Thread(target=noise, daemon=True).start()
threading.Thread(target=read, daemon=True).start()
"""
    p = person("sandbox", "--ask", "-s", settings(), sys.executable, "-c", script + FETCH, f"http://127.0.0.1:{port}/")
    shown = p.wait_for(ALLOW)
    while select.select([p.master], [], [], 0.3)[0]:
        p._read()
    after = p.seen[p.pos :]
    p.type("y" + re.findall(r"y(\d{3})", shown)[0] + "\n")
    p.wait_for("got hello from outside")
    assert p.end() == 0
    assert "STOLEN" not in p.seen
    assert after.count("noise") <= 3, "what was on its way, and no more"
    assert not termios.tcgetattr(p.master)[3] & termios.ICANON


RESTLESS = """
import ctypes, fcntl, os, signal, struct, sys, termios, time
def runs_on(*times):
    # A child that has SIGCONT sent to itself, that writes whenever it runs, and reads what was typed. Returns when its timers run.
    ready, done = os.pipe()
    if os.fork():
        os.read(ready, 1)
        return
    os.setsid()
    signal.signal(signal.SIGCONT, lambda *a: None)
    libc = ctypes.CDLL(None)
    for ns in (int(t * 1e9) for t in times):
        timer, event = ctypes.c_void_p(), struct.pack("qii48x", 0, signal.SIGCONT, 0)
        assert not libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(timer))
        assert not libc.timer_settime(timer, 0, struct.pack("qqqq", 0, 0, ns // 10**9, ns % 10**9), None)
    os.write(done, b"x")
    os.set_blocking(0, False)
    while True:
        os.write(1, b"OVER ")
        try: os.write(1, b"STOLEN " + os.read(0, 100))
        except BlockingIOError: pass
        time.sleep(0.01)
"""


def test_one_that_runs_all_the_time_is_not_asked_about(
    person: Callable[..., Person], settings: Callable[..., Path], port: int
) -> None:
    """SIGSTOP does not keep a program from running that has a timer send it SIGCONT."""
    script = RESTLESS + "runs_on(*[0.5 + i / 1000 for i in range(10000)])\n" + FETCH
    p = person("sandbox", "--ask", "-s", settings(), sys.executable, "-c", script, f"http://127.0.0.1:{port}/")
    p.wait_for("Refused: the command does not stand still")
    assert p.end() == 0
    assert "Allow?" not in p.seen
    assert "refused 403" in p.seen


def test_an_answer_does_not_count_where_something_ran(
    person: Callable[..., Person], settings: Callable[..., Path], port: int
) -> None:
    script = RESTLESS + "runs_on(5, 5.1, 5.2)\n" + FETCH
    p = person("sandbox", "--ask", "-s", settings(), sys.executable, "-c", script, f"http://127.0.0.1:{port}/")
    shown = p.wait_for(ALLOW)
    p.wait_for("OVER")  # so it does run; it may have written anything over the question
    p.type("y" + re.findall(r"y(\d{3})", shown)[0] + "\n")
    p.wait_for("that answer does not count|STOLEN")
    p.wait_for(ALLOW)
    p.type("n\n")
    assert p.end() == 0
    assert "got" not in p.seen
    assert "refused 403" in p.seen


LANDLOCK = int(ctypes.CDLL(None).syscall(444, None, 0, 1)) >= 6


@pytest.mark.parametrize(
    "tier",
    ["full", pytest.param("landlock", marks=pytest.mark.skipif(not LANDLOCK, reason="needs Landlock ABI 6 (Linux 6.12)"))],
)
def test_all_of_it_stands_still(
    person: Callable[..., Person], settings: Callable[..., Path], port: int, tier: str
) -> None:
    """Those too that have left the command's process group."""
    script = RESTLESS + "runs_on()\n" + FETCH
    p = person(
        "sandbox", "--tier", tier, "--ask=2", "-s", settings(), sys.executable, "-c", script, f"http://127.0.0.1:{port}/"
    )
    p.wait_for(ALLOW)
    during = p.wait_for("nobody answered in time")
    assert "OVER" not in during
    assert p.end() == 0
    assert "refused 403" in p.seen


def test_what_cannot_be_seen_is_not_asked(
    person: Callable[..., Person], settings: Callable[..., Path], port: int
) -> None:
    """Output that the command has stopped goes on for the question; and it looks as we say, whatever the command set."""
    script = "import termios\ntermios.tcflow(1, termios.TCOOFF)\n" + FETCH
    p = person("sandbox", "--ask=10", "-s", settings(), sys.executable, "-c", script, f"http://127.0.0.1:{port}/")
    shown = answer(p, "y")
    assert f"[cellgate] The command wants to connect to 127.0.0.1:{port}" in shown
    assert re.search(r"\x1b\[38;2;255;255;255;48;2;0;0;0m\r?\n\x1b\[J\[cellgate\] The command", shown)
    assert p.end() == 0
    assert re.search(r"^(?:\x1b\[0m)?got ", p.seen, re.M)


def test_break_off(person: Callable[..., Person], settings: Callable[..., Path], port: int) -> None:
    """Ctrl-C is for the command, and the question goes with it."""
    p = person("sandbox", "--ask", "-s", settings(), sys.executable, "-c", FETCH, f"http://127.0.0.1:{port}/")
    p.wait_for(ALLOW)
    p.type("\x03")
    assert p.end() in (1, 130)
    assert "got" not in p.seen


def test_several_questions_one_by_one(
    person: Callable[..., Person], settings: Callable[..., Path], port: int
) -> None:
    script = FETCH.replace("for url", "import threading\ndef go(url):\n  for url").replace("in sys.argv[1:]", "in [url]")
    script = script.replace("    try", "      try").replace("    except", "      except").replace("    sys.std", "      sys.std")
    script += "ts = [threading.Thread(target=go, args=[x]) for x in sys.argv[1:]]\n[t.start() for t in ts]; [t.join() for t in ts]\n"
    urls = [f"http://127.0.0.{i}:{port}/" for i in (1, 2, 3)]
    p = person("sandbox", "--ask", "-s", settings(), sys.executable, "-c", script, *urls)
    for _ in urls:
        shown = p.wait_for(ALLOW)
        digits = re.findall(r"y(\d{3})", shown)[0]
        p.type(f"y{digits}\n" if "127.0.0.1:" in shown else "n\n")
    assert p.end() == 0
    assert (p.seen.count("got hello from outside"), p.seen.count("refused 403")) == (1, 2), p.seen


def test_without_a_terminal_it_is_no(cellgate: Path, settings: Callable[..., Path], port: int) -> None:
    p = subprocess.run(
        [cellgate, "sandbox", "--ask", "-s", settings(), sys.executable, "-c", FETCH, f"http://127.0.0.1:{port}/"],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        cwd=settings().parent,
    )
    assert p.returncode == 0
    assert "there is no terminal to ask at" in p.stderr
    assert "refused 403" in p.stdout


@pytest.mark.parametrize("value", ["--ask=", "--ask=0", "--ask=x", "--ask=99999999"])
def test_bad_values(cellgate: Path, value: str) -> None:
    p = subprocess.run([cellgate, "sandbox", value, "true"], capture_output=True, text=True, timeout=30)
    assert p.returncode == 1
    assert "--ask=<seconds>" in p.stderr
