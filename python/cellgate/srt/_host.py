"""The side of the host: settings files that no sandbox shows, and the socket that sandboxed commands connect to.

A command reads its settings from a file, and gets later ones, and answers to questions, through its connection
(docs/settings.md, --control-socket). Files and socket are in a private folder of cellgate's state folder, which
every sandbox hides. One thread serves all commands. It needs no event loop of the program: a program may wait
for its commands in a blocking call.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

from cellgate.srt.sandbox_utils import decode_sandboxed_command, state_folder

_LINE_MAX = 1 << 20  # of one denial or question
_UNREAD_MAX = 16 << 20  # settings that one command has not read
_FILES_MAX = 1024
_START_S = 10.0  # from a command's connection to its first line
_SETTLE_S = 2.0
_OLD_S = 60.0  # age of a folder without a socket that no program is making now

Message = dict[str, Any]


class SettingsFile:
    """A settings file, and the commands that were started with it."""

    def __init__(self, number: int, path: Path, settings: Message) -> None:
        self.number = number
        self.path = path
        self.settings = settings
        self.changed = False
        self.writers: set[asyncio.StreamWriter] = set()

    def write(self) -> None:
        """Writes the file, which other programs see as a whole."""
        new = self.path.with_suffix(".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as f:
            json.dump(self.settings, f)
        new.replace(self.path)


class Host:
    """Serves the commands of this process.

    denied(ID, MESSAGE) is called in a thread of the host; ask(ID, QUESTION) is a coroutine function that runs
    there and returns whether the host is allowed. ID is the second part of the command's --control-id.
    """

    def __init__(self, denied: Callable[[str, Message], None], ask: Callable[[Message], Awaitable[bool]]) -> None:
        self._denied = denied
        self._ask = ask
        self._pid = os.getpid()
        self._files: dict[str, SettingsFile] = {}
        self._by_number: list[SettingsFile] = []
        self._progress = 0
        self.folder = _make_folder()
        self.path = self.folder / "socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(4096)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="cellgate.srt", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def settings_file(self, key: str, settings: Message) -> SettingsFile:
        """The file for this key, which is made if there is none; the folder itself is hidden from its commands."""
        if key not in self._files:
            if len(self._files) == _FILES_MAX:
                raise RuntimeError(f"more than {_FILES_MAX} different configurations: call SandboxManager.reset()")
            number = len(self._files)
            file = SettingsFile(number, self.folder / f"{number}.json", self._hiding(settings))
            file.write()
            self._by_number.append(file)
            self._files[key] = file
        return self._files[key]

    def _hiding(self, settings: Message) -> Message:
        # The state folder is hidden anyway, but a command may have been started with another HOME.
        files = settings["filesystem"]
        return {**settings, "filesystem": {**files, "denyRead": [*files["denyRead"], str(self.folder)]}}

    def change(self, key: str, network: Message) -> None:
        """Other rules for the network, for commands that run and for those that start with this file later."""
        file = self._files[key]
        file.settings = {**file.settings, "network": network}
        file.changed = True
        file.write()
        self._loop.call_soon_threadsafe(self._send_settings, file)

    def settle(self) -> None:
        """Waits until all that ended commands have sent has been handled. Not longer than 2 seconds."""
        if threading.current_thread() is not self._thread:
            coroutine = self._settle()
            try:
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            except RuntimeError:  # closed
                coroutine.close()
                return
            with contextlib.suppress(TimeoutError, CancelledError):
                future.result(_SETTLE_S)

    async def _settle(self) -> None:
        quiet = 0
        while quiet < 10:  # turns of the loop; each reads what there is, and a new connection takes 5
            before = self._progress
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._progress == before else 0

    def close(self) -> None:
        """Ends the connections, with which commands lose their network, and removes the folder."""
        if os.getpid() != self._pid:
            return
        atexit.unregister(self.close)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_SETTLE_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """In a child process after a fork: it has none of the host's sockets.

        They are found by their name: the host's thread may have been taking a connection that no object has yet.
        """
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:  # SOCK_NONBLOCK changes nothing here; without it a default timeout would set O_NONBLOCK
                s = socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK, fileno=fd)
            except OSError:  # no socket
                continue
            own = s.family == socket.AF_UNIX and s.getsockname() == str(self.path)
            s.detach()
            if own:  # not closed: their owners do that, when the number may be another file's
                os.dup2(null, fd, inheritable=False)
        os.close(null)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_unix_server(self._serve, sock=self._listener, limit=_LINE_MAX)
        )
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._progress += 1
        questions: dict[int, asyncio.Task[None]] = {}
        file = None
        try:
            start = json.loads(await asyncio.wait_for(reader.readline(), _START_S))
            number, _, command = start["id"].partition(":")
            decode_sandboxed_command(command)
            file = self._by_number[abs(int(number))]
            file.writers.add(writer)
            if file.changed:  # perhaps after the command has read it
                _send(writer, file.settings)
            while line := await reader.readline():
                self._progress += 1
                message = json.loads(line)
                if message["type"] == "denied":
                    self._denied(command, message)
                elif message["type"] == "egress_request":
                    question = asyncio.create_task(self._answer(writer, message))
                    questions[message["id"]] = question
                    question.add_done_callback(partial(_remove, questions, message["id"]))
                elif message["type"] == "egress_cancel" and message["id"] in questions:
                    questions[message["id"]].cancel()
        except Exception as e:
            # Not a command of this host, or one that was killed: without a connection it has no network.
            logging.getLogger(__name__).debug("connection ended: %r", e)
        finally:
            self._progress += 1
            for question in list(questions.values()):
                question.cancel()
            if file:
                file.writers.discard(writer)
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, writer: asyncio.StreamWriter, question: Message) -> None:
        allowed = await self._ask(question)
        _send(writer, {"type": "answer", "id": question["id"], "decision": "once" if allowed else "no"})

    def _send_settings(self, file: SettingsFile) -> None:
        for writer in file.writers:
            _send(writer, file.settings)


def _remove(questions: dict[int, asyncio.Task[None]], number: int, _: object) -> None:
    questions.pop(number, None)


def _send(writer: asyncio.StreamWriter, message: Message) -> None:
    if writer.transport.get_write_buffer_size() > _UNREAD_MAX:
        writer.transport.abort()
        return
    writer.write(json.dumps(message).encode() + b"\n")


def _make_folder() -> Path:
    above = state_folder() / "srt"
    above.parents[1].mkdir(parents=True, exist_ok=True)
    above.parent.mkdir(mode=0o700, exist_ok=True)
    above.mkdir(mode=0o700, exist_ok=True)
    state = above.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise RuntimeError(f"{above} is not a folder of this user with mode 0700: chmod or remove it")
    for old in above.iterdir():
        _remove_abandoned(old)
    folder = Path(tempfile.mkdtemp(prefix="", dir=above))
    if len(os.fsencode(folder / "socket")) > 107:
        folder.rmdir()
        raise RuntimeError(f"{above}: this path is too long for a socket: set XDG_STATE_HOME to a shorter one")
    return folder


def _remove_abandoned(folder: Path) -> None:
    """Removes the folder of a program that was killed."""
    with socket.socket(socket.AF_UNIX) as s, contextlib.suppress(BlockingIOError, FileNotFoundError):
        s.setblocking(False)
        try:
            s.connect(str(folder / "socket"))
            return
        except ConnectionRefusedError:
            pass
        except FileNotFoundError:
            if time.time() - folder.stat().st_mtime < _OLD_S:
                return
        shutil.rmtree(folder, ignore_errors=True)
