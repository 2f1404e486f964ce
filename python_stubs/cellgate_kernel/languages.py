"""Sessions whose cells are not Python: a program beside the kernel, in the same sandbox, runs them.

The kernel starts it, gives it the cells, makes its calls of tools and starts it again when it has ended. What it
writes goes to descriptors 1 and 2, which the kernel captures. It sends objects as JSON, one a line, over a socket:

    {"done": CELL, ...}    the cell has ended; the rest is the language's own
    {"pid": NUMBER}        from now on it is this process (a shell that has forked)
    =TEXT                  no object: a text for the next "done", whose "texts" are these
"""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult

import _cellgate
from cellgate_kernel import errors, jsontext, values

if TYPE_CHECKING:
    from cellgate_kernel.kernel import Kernel
    from cellgate_kernel.request import Request

Content = dict[str, Any]

FOLDER = os.path.dirname(os.path.realpath(__file__))
# After the interrupt of what sets or reads variables. The host has its answer by then, but other cells wait.
_END_AFTER_S = 5.0


def _cancel(timer: asyncio.TimerHandle, _running: object) -> None:
    timer.cancel()


class CellError(Exception):
    """A cell has failed. Subclasses are named like the error of its language."""

    def __init__(self, text: str, lines: list[str], refused: bool = False) -> None:
        super().__init__(text)
        self.lines = lines
        self.refused = refused


def cell_error(name: str, text: str, lines: list[str], refused: bool = False) -> CellError:
    """An error whose class has this name."""
    kind: type[CellError] = type(name, (CellError,), {"__module__": "builtins"})
    return kind(text, lines, refused)


class Language:
    """The program of a session's language, and its cells."""

    name = ""
    title = ""
    state = "its variables and functions"
    unserved = ""

    def __init__(self, kernel: Kernel, path: str) -> None:
        self.kernel = kernel
        self.path = path
        self.cell = 0  # of the host: it gets the output of what the program asks for
        self.number = 0  # of the cell, for the program
        self.running: asyncio.Future[Content] | None = None
        self.refused = False  # the host has refused a call of this cell
        self.silent = False  # its value is not shown
        self._swaps = False
        self._interrupts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0  # of the process that runs the cells now: that of _process, or a copy of it
        self._pidfd = -1
        self._socket: socket.socket | None = None
        self._parts: list[bytes] = []  # of a line that has not ended
        self._unsent = bytearray()  # the program has not read so far
        self._texts_in: list[bytes] = []  # for the next "done"
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = ""  # how it has ended

    # ---------------------------------------------------------------- what a language defines

    def command(self, fd: int) -> list[str]:
        """The arguments; `fd` is its end of the socket."""
        raise NotImplementedError

    def before_start(self) -> None:
        """Prepare what the program needs."""

    def request(self, text: str, number: int, metadata: Content) -> bytes:
        """What makes it run the cell."""
        raise NotImplementedError

    def check(self, reply: Content) -> None:
        """Show the result of a cell, or raise its error."""
        raise NotImplementedError

    def on_message(self, message: Content) -> None:
        """Another message of the program."""

    def why_not(self, name: str) -> str:
        """Why this is no name of a variable; "": it is one."""
        raise NotImplementedError

    async def complete(self, code: str) -> tuple[str, list[str]]:
        """What ends the code, and what it may become."""
        raise NotImplementedError

    async def put(self, made: Content, lossy: bool) -> None:
        """Set variables, all or none. Values are those of JSON, or Json."""
        raise NotImplementedError

    async def take(self, names: list[str], lossy: bool) -> Content:
        """The values of those variables that there are, or Json."""
        raise NotImplementedError

    def forward(self, kind: str, content: Content) -> Content | None:
        """The reply to a request about code; None: that of a language without any."""
        return None

    def environment(self) -> dict[str, str]:
        """The program's variables."""
        return dict(item.split("=", 1) for item in self.kernel.config["environ"])

    def output(self) -> int | None:
        """The descriptor of its output; None: those of the kernel."""
        return None

    def how_ended(self, status: int) -> str:
        """How the process has ended."""
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"it exited with status {status}"

    # ---------------------------------------------------------------- the program

    def start(self) -> None:
        """Start the program, unless it runs."""
        if self._socket is not None:
            return
        mine, its = socket.socketpair()
        self.before_start()
        config = self.kernel.config
        with its:
            self._process = subprocess.Popen(
                self.command(its.fileno()),
                executable=self.path,
                stdin=subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
                env=self.environment(),
                cwd=config.get("working_dir") or config["workspace"],
                start_new_session=True,
                stdout=self.output(),
                stderr=self.output(),
            )
        mine.setblocking(False)
        self._socket, self._parts, self._unsent, self._ended = mine, [], bytearray(), ""
        self._texts_in = []
        self._watch(self._process.pid)
        self.loop.add_reader(mine, self._readable)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The kernel's loop."""
        return self.kernel.main.runner.loop

    def _watch(self, pid: int) -> None:
        if self._pidfd >= 0:
            self.loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._pid, self._pidfd = pid, -1
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.loop.call_soon(self._on_end, pid)  # after the messages that have been read with this one
        else:
            self.loop.add_reader(self._pidfd, self._on_end, pid)

    def _on_end(self, pid: int) -> None:
        """The process has ended. Its copy has sent `pid` before, if it has one."""
        self._readable()
        if self._pid == pid:
            self._drop()

    def _drop(self) -> None:
        if self._socket is None:
            return
        self.kill()
        status = self._process.wait() if self._process is not None else 0
        self._ended = self.how_ended(status)
        self.loop.remove_reader(self._socket)
        self.loop.remove_writer(self._socket)
        if self._pidfd >= 0:
            self.loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._socket.close()
        self._socket, self._pidfd = None, -1
        for task in self._tasks:
            task.cancel()
        if self.running is not None and not self.running.done():
            self.running.set_result({"ended": self._ended})

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def interrupt(self, running: asyncio.Future[Content]) -> None:
        """Interrupt the cell, whose end this is, and what the program has started."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End the program and what it has started."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Let it end by itself: the session ends."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.3)

    def send(self, data: bytes) -> None:
        """Send to the program, in order, however long it does not read."""
        waits = bool(self._unsent)
        self._unsent += data
        if not waits:
            self._send_more()

    def _send_more(self) -> None:
        if self._socket is None:
            return
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # it has ended, which its process reports
            self._unsent.clear()
        if self._unsent:
            self.loop.add_writer(self._socket, self._send_more)
        else:
            self.loop.remove_writer(self._socket)

    def _readable(self) -> None:
        if self._socket is None:
            return
        while True:
            try:
                data = self._socket.recv(1 << 20)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                if self._socket is not None:
                    self.loop.remove_reader(self._socket)
                return
            self._parts.append(data)
            if b"\n" not in data:
                continue
            *lines, rest = b"".join(self._parts).split(b"\n")
            self._parts = [rest]
            for line in lines:
                if line[:1] == b"=":
                    self._texts_in.append(line[1:])
                    continue
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict):
                    self._take(message)
                if self._socket is None:
                    return

    def _take(self, message: Content) -> None:
        if isinstance(message.get("pid"), int):
            self._watch(message["pid"])
        elif "done" in message:
            message["texts"], self._texts_in = self._texts_in, []
            if message["done"] == self.number and self.running is not None and not self.running.done():
                self.running.set_result(message)
        else:
            self.on_message(message)

    def spawn(self, coro: Any, then: Callable[[asyncio.Task[Any]], None]) -> asyncio.Task[Any]:
        """Run a coroutine whose output is that of the cell. `then` gets its end, also if it is cancelled unbegun."""
        context = contextvars.copy_context()
        context.run(_cellgate.cell.set, self.cell)
        task = self.loop.create_task(coro, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(then)
        return task

    # ---------------------------------------------------------------- cells

    def run_cell(self, request: Request, metadata: Content) -> ExecutionResult:
        """Run a cell to its end."""
        shell: Any = self.kernel.shell
        store = request.store_history and not request.silent
        result = ExecutionResult(ExecutionInfo(request.text, store, request.silent, False, None))
        shell.local.error = shell.local.result_error = None
        self.cell = request.id
        if store:
            shell.history_manager.store_inputs(shell.execution_count, request.text, request.text)
        try:
            shell.run_async(self._run(request, metadata))
        except BaseException as e:
            result.error_in_exec = self._show(e)
        if store:
            shell.execution_count += 1
        return result

    async def _run(self, request: Request, metadata: Content) -> None:
        self._ensure_started()
        if request.warm:
            return
        self.refused = False
        self.silent = request.silent
        reply = await self.ask(lambda number: self.request(request.text, number, metadata))
        if "ended" in reply:
            what = f"{self.title} ended ({reply['ended']}): {self.state} are lost, and the next cell has a new one"
            if self._interrupts:
                print(f"cellgate: {what}", file=sys.stderr)
            else:
                raise cell_error(f"{self.name.capitalize()}Ended", what, [what])
        if self._interrupts:
            raise KeyboardInterrupt
        self.check(reply)

    def _ensure_started(self) -> None:
        if self._socket is not None:
            return
        if self._ended:
            text = f"cellgate: {self.title} has ended since the last cell ({self._ended}): {self.state} are lost"
            print(f"{text}; this cell has a new one", file=sys.stderr)
        self.start()
        self.kernel.shell.local.started += 1  # is the session's, no program of the cell

    async def ask(self, data: Callable[[int], bytes]) -> Content:
        """Send what has this number, and wait for its end."""
        self.number += 1
        self._interrupts = 0
        self.running = self.loop.create_future()
        try:
            self.send(data(self.number))
            return await self._end_of_cell(self.running)
        finally:
            self.running = None

    async def _end_of_cell(self, running: asyncio.Future[Content]) -> Content:
        """Wait for it. The first interrupt is the program's, the second ends it."""
        while True:
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                if running.done():
                    return running.result()
                self._interrupts += 1
                for task in self._tasks:
                    task.cancel()
                if self._interrupts == 1:
                    self.interrupt(running)
                    if self._swaps:  # interrupted once only
                        late = self.loop.call_later(_END_AFTER_S, self.kill)
                        running.add_done_callback(functools.partial(_cancel, late))
                else:
                    self.kill()

    def _show(self, error: BaseException) -> BaseException:
        shell: Any = self.kernel.shell
        if isinstance(error, asyncio.CancelledError):
            error = KeyboardInterrupt()
        if isinstance(error, CellError):
            name = errors.name_of(type(error))
            content = jsontext.dumps({"ename": name, "evalue": str(error), "traceback": error.lines})
        elif isinstance(error, KeyboardInterrupt):
            content = errors.content(KeyboardInterrupt, error, ["KeyboardInterrupt"])
        else:
            content = errors.content(type(error), error, errors.plain_traceback(type(error), error, None))
        shell.local.error = (error, content)
        _cellgate.publish("error", content)
        return error

    # ---------------------------------------------------------------- variables

    def set_values(self, made: Content, lossy: bool) -> None:
        """Set variables, all or none."""
        self.kernel.shell.run_async(self._exchange(self.put(made, lossy)))

    def get_values(self, names: list[str], lossy: bool) -> Content:
        """The values of those variables that there are."""
        found: Content = self.kernel.shell.run_async(self._exchange(self.take(names, lossy)))
        return found

    async def swap(self, data: Callable[[int], bytes]) -> Content:
        """Send what sets or reads variables; the reply. Raises where it has failed."""
        self._swaps = True
        try:
            reply = await self.ask(data)
        finally:
            self._swaps = False
        if "ended" in reply:
            raise RuntimeError(f"{self.title} ended ({reply['ended']}): {self.state} are lost")
        if self._interrupts:
            raise KeyboardInterrupt
        if isinstance(problem := reply.get("problem"), dict):
            ename, text, name, kind, path = (
                str(problem.get(key, "")) for key in ("ename", "text", "name", "type", "path")
            )
            raise values.ValueProblem(ename or "NotJSON", f"{name}{path} {text}", name, kind, path)
        return reply

    def completions(self, code: str) -> tuple[str, list[str]]:
        """What ends the code, and what it may become."""
        found: tuple[str, list[str]] = self.kernel.shell.run_async(self._exchange(self.complete(code)))
        return found

    async def _exchange(self, coro: Coroutine[Any, Any, Any]) -> Any:
        self._ensure_started()
        return await coro

    # ---------------------------------------------------------------- tools

    async def call_tool(self, server: str, tool: str, params: Content) -> Any:
        """Call a tool for the program: the value of its run_async(), plain. Raises LookupError, ToolRunnerError."""
        module = find_tool(server, tool)
        try:
            return plain(await module.run_async(params))
        except rejected_error():
            self.refused = True
            raise


def tools_package() -> Any:
    """The package mcptools. LookupError: the session has no tools."""
    try:
        return import_module("mcptools")
    except ModuleNotFoundError:
        raise LookupError("this session has no MCP servers and no functions") from None


def find_tool(server: str, tool: str) -> Any:
    """The generated module of a tool, by the names of the server or of the modules."""
    from cellgate_tools import catalogue

    package = tools_package()
    entries = catalogue._of(package.__path__, server)
    found = [e for e in entries if tool in (e.tool, e.data["module"])]
    if not found:
        raise LookupError(f"{server} has no tool {tool!r}; tools: {', '.join(e.data['module'] for e in entries)[:500]}")
    return import_module(f"mcptools.{found[0].module}")


def rejected_error() -> type[BaseException]:
    """The class of a refused call."""
    kind: type[BaseException] = import_module("cellgate_tools").RejectedError
    return kind


def plain(value: Any) -> Any:
    """A tool's result as JSON values."""
    if hasattr(type(value), "model_dump"):
        return value.model_dump()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return str(value) if isinstance(value, str) else value


def make(kernel: Kernel, config: Content) -> Language | None:
    """The language of a session's configuration; None: Python."""
    name = config.get("language") or "python"
    if name == "python":
        return None
    module = import_module(f"cellgate_kernel.lang_{name.partition(':')[0]}")
    language: Language = module.make(kernel, config["language_path"])
    return language
