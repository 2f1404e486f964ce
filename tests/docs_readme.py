"""The commands of a Markdown page and what it shows of their output; and a shell at a terminal that runs them.

Code blocks without a language hold commands. In a block with lines that begin with "$ " these are the commands, and what follows
each is its output, where a line "..." matches any lines and a question's line ends with the answer. In other blocks every line is a
command, which must succeed. A comment above a block says what is not run where:

    <!-- test: on a machine of its own, REASON -->    not in the tests: only where a whole system may be changed
    <!-- test: not run, REASON -->                    nowhere
"""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DIRECTIVE = re.compile(r"<!-- test: (on a machine of its own|not run), (.+) -->")
TERMINAL = re.compile(r"\x1b\[[0-9;?!]*[A-Za-z]|[\r\x0f]")
ANSWER = re.compile(r"^(?P<before>.*\b(?:d never in this session|for this tool in this session): )(?P<answer>\w+)$")
PROGRESS = re.compile(r"\[cellgate\] (waiting for |cell \d+ of )")  # shown where a machine is slow
DIGITS = re.compile(r"\b([ysa])(\d{3})\b")


@dataclass
class Command:
    text: str
    output: list[str] | None  # None: not shown; it must succeed
    answers: list[str] = field(default_factory=list)


@dataclass
class Block:
    line: int
    where: str  # "", "on a machine of its own", "not run"
    reason: str
    commands: list[Command]


def python_example(page: Path, heading: str) -> str:
    """The first program under this heading."""
    return page.read_text().partition(f"\n## {heading}\n")[2].partition("```python\n")[2].partition("```")[0]


def complete(text: str) -> bool:
    """No quote and no here-document is open."""
    p = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True)
    return p.returncode == 0 and not p.stderr


def read_commands(lines: list[str]) -> list[Command]:
    shown = any(line.startswith("$ ") for line in lines)
    commands: list[Command] = []
    rest = list(lines)
    while rest:
        line = rest.pop(0)
        if shown and not line.startswith("$ "):
            assert commands, f"output before any command: {line}"
            commands[-1].output = [*(commands[-1].output or []), line]
            continue
        text = line.removeprefix("$ ")
        while not complete(text):
            assert rest, f"the command does not end: {text}"
            text += "\n" + rest.pop(0)
        if text.strip():
            commands.append(Command(text, None))
    for c in commands:
        c.answers = [m["answer"] for m in map(ANSWER.match, c.output or []) if m]
    return commands


def read_page(page: Path) -> list[Block]:
    """Every block of commands, in order."""
    blocks = []
    lines = page.read_text().splitlines()
    i = 0
    while i < len(lines):
        if not lines[i].startswith("```"):
            i += 1
            continue
        end = next(j for j in range(i + 1, len(lines)) if lines[j] == "```")
        directive = DIRECTIVE.fullmatch(lines[i - 1]) if i else None
        if lines[i] == "```":
            where, reason = directive.groups() if directive else ("", "")
            blocks.append(Block(i + 1, where, reason, read_commands(lines[i + 1 : end])))
        i = end + 1
    return blocks


class Shell:
    """bash at a terminal. ARGV: what starts it."""

    def __init__(
        self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd or ".")
            os.execvpe(str(argv[0]), [str(a) for a in argv], {**(env if env is not None else os.environ)})
        self.shown = ""  # since the last command, without colours
        # Prompts that no program prints: the status of the command before, between control characters.
        self._send(
            "stty -echo cols 200; bind 'set enable-bracketed-paste off' 2>/dev/null; PS2=; PS1=$'\\x1e$?\\x1e'\n"
        )
        self._read(r"\x1e\d+\x1e$", 60)

    def _send(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def _read(self, until: str, timeout_s: float) -> re.Match[str]:
        """Reads until what was shown matches."""
        deadline = time.monotonic() + timeout_s
        while not (m := re.search(until, self.shown)):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise TimeoutError(f"no {until!r} after {timeout_s:.0f} s; shown: {self.shown}")
            try:
                data = os.read(self.fd, 65536)
            except OSError as e:
                raise EOFError(f"the shell ended; shown: {self.shown}") from e
            self.shown += TERMINAL.sub("", data.decode(errors="replace"))
        return m

    def run(self, command: str, answers: Sequence[str] = (), timeout_s: float = 60) -> tuple[int, list[str]]:
        """Runs one command and types the answers at its questions. Returns its status and what was shown."""
        self.shown = ""
        self._send(command + "\n")
        left = list(answers)
        log = ""
        while True:
            m = self._read(r"\x1e(\d+)\x1e$|(?:in this session|[y/N\]]): $|\[[yY]/[nN]\] $", timeout_s)
            log += self.shown
            if m[1] is not None:
                return int(m[1]), log[: log.rindex("\x1e", 0, -1)].rstrip("\n").split("\n") if log[0] != "\x1e" else []
            assert left, f"a question that the page does not show: {log}"
            answer = left.pop(0)
            # The digits of accepting answers are drawn for each question.
            digits = [d for a, d in DIGITS.findall(self.shown) if a == answer[0]]
            self.shown = ""
            self._send(answer[0] + digits[-1] + "\n" if digits else answer + "\n")
            log += answer + "\n"

    def close(self) -> None:
        os.close(self.fd)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGHUP)
        os.waitpid(self.pid, 0)


def loosely(line: str) -> str:
    """Replace the parts of a line that differ between runs and machines."""
    line = DIGITS.sub(r"\1", line.rstrip())
    return re.sub(r"\d+", "#", line) if re.match(r"\d+ attempts: ", line) else line


def differs(wanted: list[str], shown: list[str]) -> str | None:
    """Return the part of the page's output that was not shown, or None."""
    have = [loosely(line) for line in shown if line.strip() and not PROGRESS.match(line)]
    anywhere = False
    for line in wanted:
        if not line.strip():
            continue
        if line.strip() == "...":
            anywhere = True
            continue
        line = loosely(line)
        if anywhere and line in have:
            have = have[have.index(line) :]
        if not have or have[0] != line:
            return f"the page shows {line!r}, but there was: {have}"
        have.pop(0)
        anywhere = False
    return None if anywhere or not have else f"the page does not show: {have}"
