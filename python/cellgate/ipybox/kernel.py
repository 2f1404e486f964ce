"""The kernel behind ipybox's CodeExecutor and KernelClient."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import cellgate
from cellgate._events import refuse
from cellgate.aio import Cell, Session
from cellgate.ipybox.approvals import ApprovalRequest
from cellgate.ipybox.folders import open_folder
from cellgate.ipybox.sources import definitions_stamp, registered

logger = logging.getLogger(__name__)

# Output that is kept for a cell's result.
_TEXT_MAX = 256 << 20
_IMAGES_MAX = 1000


class ExecutionError(Exception):
    """A cell raised: the message has the traceback."""


@dataclass
class ExecutionResult:
    """What a cell has written, and the paths of its images."""

    text: str | None
    images: list[Path]


# Only for ipybox's messages, and so that the whole text of %%bash is an argument, which the operating
# system asks about. A cell can undo it, and is asked about or refused all the same.
_SHELL = """
def _install(direct):
    import functools, os, pty, subprocess
    shell, inside = get_ipython(), []
    if hasattr(shell, "ipybox"):
        return
    shell.ipybox = True
    def allow(function):
        @functools.wraps(function)
        def call(*args, **more):
            inside.append(1)
            try:
                return function(*args, **more)
            finally:
                inside.pop()
        return call
    def guard(function, name):
        @functools.wraps(function)
        def call(*args, **more):
            if not inside:
                raise RuntimeError(f"Direct {{name}} calls are not allowed. Use ! syntax.")
            return function(*args, **more)
        return call
    def magic(name):
        def run(line, cell):
            if line.split():
                return shell.run_cell_magic("script", f"{{name}} {{line}}", cell)
            out = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            with subprocess.Popen([name, "-c", cell], text=True, errors="replace", **out) as process:
                for text in process.stdout:
                    print(text, end="")
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, name)
        return allow(run)
    shell.magics_manager.magics["cell"].update({{name: magic(name) for name in ("bash", "sh")}})
    shell.system, shell.getoutput = allow(shell.system), allow(shell.getoutput)
    if not direct:
        return
    class Popen(subprocess.Popen):
        __init__ = guard(subprocess.Popen.__init__, "subprocess")
    subprocess.Popen = Popen
    pty.spawn = guard(pty.spawn, "pty.spawn()")
    for name in dir(os):
        if name == "system" or name.startswith(("exec", "spawn", "posix_spawn")):
            setattr(os, name, guard(getattr(os, name), f"os.{{name}}()"))
_install({direct})
del _install
"""
DIRECT = "Direct subprocess calls are not allowed. Use ! syntax."


def _shell_command(asked: dict[str, Any]) -> tuple[str, str] | None:
    """ipybox's names for `!` and %%bash, and the command; None for other programs.

    Of a %%bash with options the command is only `bash`: what it reads comes through a pipe, and a cell
    that shows one text could send another.
    """
    argv, environment = asked["argv"], asked["env"]
    system = not asked["writable"] and asked["program"] in ("/usr/bin/bash", "/usr/bin/dash", "/bin/bash", "/bin/dash")
    if not system or environment["set"] or environment["unset"]:
        return None
    if len(argv) == 3 and argv[:2] == ["/bin/bash", "-c"] and isinstance(argv[2], str):
        return "shell", argv[2]
    if len(argv) == 3 and argv[:2] in (["bash", "-c"], ["sh", "-c"]) and isinstance(argv[2], str):
        return "shell_magic", argv[2]
    if argv in (["bash"], ["sh"]) and asked["stdin"] == "pipe":
        return "shell_magic", argv[0]
    return None


_clients: dict[int, cellgate.Client] = {}
_clients_lock = threading.Lock()


def _client(log_level: str) -> cellgate.Client | None:
    """None: the client that all sessions share."""
    level = {"INFO": 2, "DEBUG": 3}.get(log_level.upper(), 0)
    if not level:
        return None
    with _clients_lock:
        if level not in _clients:
            _clients[level] = cellgate.Client(log_level=level)
        return _clients[level]


class Kernel:
    """A session with ipybox's settings."""

    session: Session

    def __init__(
        self,
        *,
        workspace: Path | None,
        working_dir: Path | None,
        images_dir: Path,
        env: dict[str, str],
        sandbox_config: Path | None,
        log_level: str,
        approval_timeout: float | None = None,
        connect_timeout: float = 30,
        tools: bool = False,
        approve_shell_cmds: bool = False,
        require_shell_escape: bool = False,
    ) -> None:
        self.workspace = (workspace or Path.cwd()).resolve()
        self.working_dir = working_dir
        self.images_dir = images_dir
        self.env = env
        self.sandbox_config = sandbox_config
        self.log_level = log_level
        self.approval_timeout = approval_timeout
        self.connect_timeout = connect_timeout
        self.tools = tools
        self.approve_shell_cmds = approve_shell_cmds
        self.require_shell_escape = require_shell_escape
        self._servers: dict[str, Any] = {}
        self._definitions = -1
        self._fresh = True
        # Folders of modules. Those in the workspace stay writable: cells may save modules there.
        self._python_path = [Path(p).absolute() for p in env.get("PYTHONPATH", "").split(os.pathsep) if p]
        self._inside = [p for p in self._python_path if self.workspace.is_relative_to(p.resolve())]
        self._inside += [p for p in self._python_path if p.resolve().is_relative_to(self.workspace)]

    async def start(self, timeout: float) -> None:
        settings = self.sandbox_config and Path(self.sandbox_config).read_text(encoding="utf-8")
        outside = [p for p in self._python_path if p not in self._inside and p.is_dir()]

        def client() -> cellgate.Client | None:
            return _client(self.log_level)

        async with asyncio.timeout(timeout):
            self.session = await Session(
                self.workspace,
                client=await asyncio.to_thread(client),
                env=self.env,
                python_path=outside or None,
                working_dir=self.working_dir,
                settings=settings or None,
                exec="ask" if self.approve_shell_cmds else None,
                approval_timeout=self.approval_timeout,
                start_timeout=timeout,
                on_event=self._on_event,
            )
        try:
            await self._define_servers()  # before the first cell, which could change their programs
            async with asyncio.timeout(timeout):
                await self._init_kernel()
        except BaseException:
            await self.session.close()
            raise

    async def stop(self) -> None:
        await self.session.close()

    async def reset(self) -> None:
        await self.session.reset()
        self._fresh = True
        self._servers, self._definitions = {}, -1  # defining a server again ends its process
        await self._define_servers()
        await self._init_kernel()

    def _on_event(self, event: cellgate.Event) -> None:
        if isinstance(event, cellgate.KernelDied):
            self._fresh = True

    async def _init_kernel(self) -> None:
        if self._fresh and self.approve_shell_cmds:
            code = _SHELL.format(direct=self.require_shell_escape)
            await self.session.run(code, silent=True, history=False)
        if self._fresh and self._inside:
            path = [str(p) for p in dict.fromkeys(self._inside)]
            code = f"import sys\nsys.path[0:0] = [p for p in {path!r} if p not in sys.path]\ndel sys"
            await self.session.run(code, silent=True, history=False)
        self._fresh = False

    async def _define_servers(self) -> None:
        """Of the packages that cells can import: those registered since the last cell."""
        if not self.tools or self._definitions == (stamp := definitions_stamp()):
            return
        wanted = await asyncio.to_thread(registered, self._python_path, self.workspace)
        new = {name: params for name, params in wanted.items() if self._servers.get(name) != params}
        self._servers.update(new)
        self._definitions = stamp
        if not new:
            return
        try:
            report = await self.session.add_mcp_servers(new, timeout=self.connect_timeout)
        except cellgate.ClosedError:
            raise
        except cellgate.CellgateError as e:  # none could be added: calls of their tools fail
            logger.warning("%s", e)
            return
        for name, entry in report.items():
            if text := entry.get("error") or entry.get("pins", {}).get("text"):
                logger.warning("%s: %s", name, text)

    def run(self, code: str, timeout: float | None, ask: bool = True) -> Running:
        return Running(self, code, timeout, ask)

    async def save_image(self, data: str) -> Path | None:
        """None: it is no image. Nothing that a cell has put into the folder redirects it."""
        try:
            content = base64.b64decode(data)
        except ValueError:
            return None
        name = f"{uuid4().hex[:8]}.png"

        def save() -> Path:
            with open_folder(self.images_dir) as folder:
                fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
                with open(fd, "wb") as f:
                    f.write(content)
            return self.images_dir / name

        return await asyncio.to_thread(save)


class Running:
    """A cell that runs: its output, its tool calls, and at last an ExecutionResult unless it was cancelled."""

    def __init__(self, kernel: Kernel, code: str, timeout: float | None, ask: bool) -> None:
        self._kernel, self._code, self._timeout, self._ask = kernel, code, timeout, ask
        self._cell: Cell | None = None
        self._cancelled = False
        self._refused: list[str] = []

    def cancel(self) -> None:
        self._cancelled = True
        if self._cell:
            self._cell.cancel()

    def close(self) -> None:
        """Ends it if it has not ended."""
        if self._cell:
            self._cell.close()

    async def __aiter__(self) -> AsyncIterator[str | ApprovalRequest | ExecutionResult]:
        await self._kernel._define_servers()
        await self._kernel._init_kernel()
        if self._cancelled:
            return
        self._kernel._fresh = True  # for all that is known, until the cell's end: a deaf cell costs its kernel
        texts: list[str] = []
        images: list[Path] = []
        error: cellgate.Error | None = None
        length = 0
        async with self._kernel.session.stream(self._code, timeout=self._timeout, history=False) as self._cell:
            async for event in self._cell:
                text: Any = None
                if isinstance(event, cellgate.Stream):
                    text = event.text
                    if self._kernel.working_dir:
                        text = text.replace("[cellgate] cwd reset to ", "[ipybox] cwd reset to ")
                elif isinstance(event, cellgate.Display) and not isinstance(event, cellgate.DisplayUpdate):
                    text = event.text
                    png = event.data.get("image/png")
                    if isinstance(png, str) and len(images) < _IMAGES_MAX:
                        image = await self._kernel.save_image(png)
                        images += [image] if image else []
                elif isinstance(event, cellgate.ApprovalRequest):
                    if request := self._request(event):
                        yield request
                elif isinstance(event, cellgate.Error):
                    error = event
                elif isinstance(event, cellgate.Result):
                    self._kernel._fresh = event.status not in (cellgate.Status.OK, cellgate.Status.ERROR)
                    self._finish(event, error)
                    if not self._cancelled:
                        yield ExecutionResult("".join(texts).strip() if texts else None, images)
                    return
                else:
                    refuse(event, "cellgate.ipybox asks its program only about tool calls")
                if text:
                    length += len(text)
                    if length > _TEXT_MAX:
                        raise ExecutionError(f"the cell has written more than {_TEXT_MAX >> 20} MiB and was ended")
                    texts.append(text)
                    yield text
        if not self._cancelled:
            raise ExecutionError("the executor was stopped while the cell ran")

    def _request(self, event: cellgate.ApprovalRequest) -> ApprovalRequest | None:
        """What the program is asked; None: it is not."""
        if event.method not in ("tools/call", "exec"):
            event.reject("cellgate.ipybox asks its program only about tool calls and commands")
            return None
        try:
            names, arguments = (event.server, event.tool), event.arguments
            if event.method == "exec":
                command = _shell_command(arguments)
                if command is None and self._kernel.require_shell_escape:
                    self._refused.append(DIRECT)
                    event.reject(DIRECT)
                    return None
                tool, text = command or ("shell", arguments["command"])
                names, arguments = ("ipybox", tool), {"cmd": text, **arguments}
        except (LookupError, TypeError, ValueError, RecursionError):
            event.reject("the program cannot read the question")
            return None
        if event.method == "tools/call" and not self._ask:
            with contextlib.suppress(cellgate.NotFoundError):
                event.accept()
            return None

        async def respond(accepted: bool) -> None:
            event._core.watched.pop(event.number, None)
            if not accepted:
                self._refused.append(f"Rejected: {names[0]}.{names[1]}")
            with contextlib.suppress(cellgate.NotFoundError, cellgate.ClosedError):
                event.accept() if accepted else event.reject("rejected")

        request = ApprovalRequest(*names, arguments, respond)
        event._core.watched[event.number] = request._expire
        return request

    def _finish(self, result: cellgate.Result, error: cellgate.Error | None) -> None:
        if self._cancelled or result.status is cellgate.Status.OK:
            return
        if result.status is cellgate.Status.TIMEOUT:
            raise TimeoutError
        if error:
            lines = [f"{error.ename}: {error.evalue}", *error.traceback, *self._refused]
            raise ExecutionError("\n".join(lines))
        raise ExecutionError(result.text)
