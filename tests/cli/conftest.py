"""Fixtures of the command line's tests: a scripted MCP server, a person at a pseudo-terminal, and a program as the host."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import re
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shared_supervisor import Shared, _account, _own_account, _own_state, runtime_folder  # noqa: F401

DATA = Path(__file__).parent / "data"


@pytest.fixture
def shared(cellgate: Path, tmp_path: Path, slowness: float) -> Iterator[Shared]:
    with runtime_folder() as folder:
        (tmp_path / "work").mkdir()
        yield Shared(cellgate, folder, tmp_path / "work", slowness)


@pytest.fixture
def policy(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """policy(rules=[...]): a file outside of the workspace."""

    def make(**parts: Any) -> Path:
        path = tmp_path_factory.mktemp("policy") / "policy.json"
        path.write_text(json.dumps(parts))
        return path

    return make


class Server:
    """The scripted MCP server "fs": its settings file, and which of its tools have run."""

    def __init__(self, folder: Path, tools: list[str]) -> None:
        self.mcp = folder / "mcp.json"
        self.journal = folder / "journal"
        names = folder / "tools.json"
        names.write_text(json.dumps(tools))
        args = [str(DATA / "server.py"), str(names), str(self.journal)]
        self.mcp.write_text(json.dumps({"mcpServers": {"fs": {"command": "/usr/bin/python3", "args": args}}}))

    def calls(self) -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def ran(self) -> list[str]:
        return [call["tool"] for call in self.calls()]


@pytest.fixture
def make_server(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Server]:
    """make_server(TOOL...): outside the workspace, so that no cell can read the journal or change the settings."""

    def make(*tools: str) -> Server:
        return Server(tmp_path_factory.mktemp("server"), list(tools or ("read_file", "write_file", "list_dir")))

    return make


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    return make_server()


class Person:
    """cellgate with a terminal of its own; a person who waits for what the screen shows before typing."""

    def __init__(
        self,
        argv: list[str],
        cwd: Path,
        deadline: float,
        columns: int = 80,
        env: dict[str, str] | None = None,
        **redirect: Any,
    ) -> None:
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.deadline = time.monotonic() + deadline
        self.seen = ""
        self.pos = 0
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, "TERM": "dumb", **(env or {})},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
            **{"stdin": slave, "stdout": slave, "stderr": slave, **redirect},
        )
        os.close(slave)

    def _read(self) -> bool:
        left = self.deadline - time.monotonic()
        assert left > 0, f"nothing more came; the screen shows:\n{self.seen}"
        if not select.select([self.master], [], [], left)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other side has closed the terminal
            return False
        self.seen += data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        return bool(data)

    def wait_for(self, pattern: str) -> str:
        """Returns what came up to and with the pattern (a regular expression), since the last call."""
        while not (match := re.search(pattern, self.seen[self.pos :])):
            assert self._read(), f"ended before {pattern!r} was seen; the screen shows:\n{self.seen}"
        text = self.seen[self.pos : self.pos + match.end()]
        self.pos += match.end()
        return text

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def answer(self, text: str) -> str:
        """Waits for a question, answers it, and returns what the question showed. Accepting keys get their digits."""
        shown = self.wait_for(r"a\d{3} always for this tool in this session: ")
        self.type(text + (self.digits(shown) if text in ("y", "yes", "s", "same", "a", "always") else "") + "\n")
        return shown

    @staticmethod
    def digits(shown: str) -> str:
        """The digits that the accepting keys of the question have."""
        found = re.search(r"Allow\? y(\d{3}) yes", shown)
        assert found
        return found[1]

    def end(self) -> int:
        """Waits for the end; returns the exit status."""
        while self._read():
            pass
        return self.process.wait(max(1, self.deadline - time.monotonic()))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.master >= 0:
            os.close(self.master)
        self.master = -1


@pytest.fixture
def person(cellgate: Path, tmp_path: Path, slowness: float) -> Iterator[Callable[..., Person]]:
    """person(ARGS...): `cellgate ARGS...` at a terminal."""
    people: list[Person] = []

    def sit_down(*args: str | Path, deadline: float = 60, cwd: Path = tmp_path, **redirect: Any) -> Person:
        argv = [str(cellgate), *map(str, args)]
        people.append(Person(argv, cwd, deadline * slowness, **redirect))
        return people[-1]

    yield sit_down
    for p in people:
        p.close()


class Host:
    """A program that drives cellgate; every wait has a deadline."""

    def __init__(self, argv: list[str], cwd: Path, deadline: float) -> None:
        self.deadline = deadline
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.process = subprocess.Popen(
            argv, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self.reading = threading.Event()
        self.reading.set()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(line)
            self.reading.wait()
        self.lines.put(b"")

    def pause(self) -> None:
        """Reads no more lines, but for one."""
        self.reading.clear()

    def resume(self) -> None:
        self.reading.set()

    def next(self) -> dict[str, Any]:
        line = self.lines.get(timeout=self.deadline)
        assert line.endswith(b"\n"), "ended"
        assert line.isascii()
        event = json.loads(line)
        assert isinstance(event, dict)
        assert list(event)[0] == "type"
        return event

    def until(self, type: str) -> dict[str, Any]:
        while (event := self.next())["type"] != type:
            assert event["type"] != "result", f"a result came before {type}: {event}"
        return event

    def say(self, line: Any) -> None:
        assert self.process.stdin
        text = line if isinstance(line, bytes) else json.dumps(line).encode()
        self.process.stdin.write(text + b"\n")
        self.process.stdin.flush()

    def close_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def rest(self) -> list[dict[str, Any]]:
        events = []
        while line := self.lines.get(timeout=self.deadline):
            events.append(json.loads(line))
        return events

    def end(self) -> int:
        self.rest()
        return self.process.wait(self.deadline)


@pytest.fixture
def host(cellgate: Path, tmp_path: Path, slowness: float) -> Iterator[Callable[..., Host]]:
    """host(ARGS...): `cellgate run --json ARGS...`."""
    hosts: list[Host] = []

    def start(*args: str | Path) -> Host:
        hosts.append(Host([str(cellgate), "run", "--json", *map(str, args)], tmp_path, 60 * slowness))
        return hosts[-1]

    yield start
    for h in hosts:
        h.process.kill()
        h.process.wait()
        for pipe in h.process.stdin, h.process.stdout, h.process.stderr:
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
