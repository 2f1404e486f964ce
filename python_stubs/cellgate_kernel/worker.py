"""Serves one shell: the main one, or a subshell in its own thread."""

# mypy: allow-untyped-calls
# Most of IPython has no annotations.
from __future__ import annotations

import contextlib
import contextvars
import errno
import importlib
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import _cellgate
from cellgate_kernel import changes, completion, denials, errors, jsontext, reserve, started, streams
from cellgate_kernel.request import CALL, CELL, CLOSE, MAIN, SHUTDOWN, Request, field, parse_object
from cellgate_kernel.requests import error_content
from cellgate_kernel.runner import CellRunner
from cellgate_kernel.shell import failed_reply, reply_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionResult

    from cellgate_kernel.kernel import Kernel

# signal.getsignal() makes an enum, which takes longer than the rest before a cell.
_getsignal: Callable[[int], Any] = importlib.import_module("_signal").getsignal

T = TypeVar("T")

# A kernel without requests for this time is idle, in seconds.
_IDLE_MS = 300

# A reply: body and content for a cell, content and buffers for another request.
Reply = tuple[str, str] | tuple[str, tuple[bytes, ...]]


class Worker:
    """Runs cells and answers requests one at a time, in the thread that made it."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name = name
        self.runner = CellRunner()
        self.running = 0
        self.thread_id = threading.get_ident()
        self._kernel = kernel
        self._shell = kernel.shell
        self._closed = False
        self._spare = False  # a kernel that was started ahead has no user yet
        self._watched: Any = None  # the loop that polls for offers

    # ---------------------------------------------------------------- one cell

    def _before_cell(self, request: Request) -> None:
        self.running = request.id
        self.runner.interrupted = False
        self.runner.context.run(_cellgate.cell.set, request.id)
        if self.name != MAIN:
            _cellgate.cell.set(request.id)
        elif _getsignal(signal.SIGINT) is not _cellgate.on_sigint:  # an earlier cell has changed it
            signal.signal(signal.SIGINT, _cellgate.on_sigint)
        self._kernel.watcher.before_cell()

    def _after_cell(self, error: BaseException | None = None) -> None:
        streams.flush()
        self._kernel.watcher.after_cell()
        if self._kernel.working_dir:
            restore_directory(self._kernel.working_dir)
        if _cellgate.forked():
            # a child after os.fork() in the cell: it exits at the cell's end, with the status of a program
            sys.stdout.flush()
            status = error.code if isinstance(error, SystemExit) else error and 1
            os._exit(status if isinstance(status, int) else int(status is not None))

    def execute(self, request: Request, interrupted: bool = False) -> Reply:
        """Run a cell unless it was interrupted before; returns body and content of the reply.

        An interrupt can raise anywhere in this function.
        """
        self._spare = request.warm
        self._shell.local.started = started.count()
        before: changes.Look | None = None
        try:
            extra = parse_object(request.frames[0], "the cell's extra") if request.frames[0] else {}
            metadata = field(extra, "metadata", dict, {})
            header, control = (field(extra, key, dict, {}) for key in ("header", "control"))
            self._kernel.front.set_request(request, header, metadata, control)
            self._before_cell(request)
            self._kernel.watcher.report()
            if interrupted:
                raise KeyboardInterrupt
            compiler: Any = self._shell.compile
            compiler.place(metadata)
            before = changes.Look(self._shell.user_ns) if field(extra, "variables", bool, False) else None
            result = self._run(request, metadata)
            expressions = field(extra, "user_expressions", dict, {})
            values = {}
            if expressions and result.success:
                values = self.runner.run_sync(lambda: self._shell.user_expressions(expressions))
            denials.explain_output()
            self._after_cell(result.error_before_exec or result.error_in_exec)
            if request.warm:
                self._shell.forget_cells()
            if result.success:
                reserve.hold()
            return self._with_changes(before, *reply_of(self._shell, result, values))
        except BaseException as e:
            return self._with_changes(before, *self._failed(e))

    def _run(self, request: Request, metadata: dict[str, Any]) -> ExecutionResult:
        if self._kernel.language is not None:
            return self._kernel.language.run_cell(request, metadata)
        return self._shell.run_cell(
            request.text,
            store_history=request.store_history and not request.silent,
            silent=request.silent,
            cell_id=metadata.get("cellId"),
            cell_meta=metadata or None,
        )

    def _with_changes(self, before: changes.Look | None, body: str, content: str) -> tuple[str, str]:
        """Adds the changed variables to a cell's reply, where the host has asked for them."""
        if before is None:
            return body, content
        found = jsontext.dumps({"variables": before.compare(self._shell.user_ns)})
        return body, f"{content[:-1]},{found[1:]}" if content else found

    def _failed(self, error: BaseException) -> tuple[str, str]:
        """Reply for an exception after the cell's code, usually an interrupt."""
        if isinstance(error, MemoryError):
            reserve.release()
        if (last := self._shell.local.error) is not None:  # its `error` message was sent
            self._shell.local.error = None
            return failed_reply(self._shell, *last)
        content = errors.content(type(error), error, errors.plain_traceback(type(error), error, None))
        _cellgate.publish("error", content)
        return failed_reply(self._shell, error, content)

    def answer(self, request: Request, interrupted: bool = False) -> Reply:
        """Answer another request; returns content and buffers. An interrupt can raise here too."""
        self._spare = False
        buffers: tuple[bytes, ...] = ()
        try:
            self._before_cell(request)
            if interrupted:
                raise KeyboardInterrupt
            reply, buffers = self.runner.run_sync(lambda: self._kernel.requests.answer(request))
            self._after_cell()
        except BaseException as e:
            reply, buffers = error_content(e), ()
        return jsontext.dumps(reply), buffers

    # ---------------------------------------------------------------- comm messages for a waiting cell

    def run_async(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run code with `await`, handling comm messages (answers of widgets) while it waits."""
        loop = self.runner.loop
        if self._watched is not None or loop.is_closed():
            return self.runner.run_async(coro)
        self._watched = loop
        loop.add_reader(_cellgate.request_fd(self.name), self._take_offer)
        try:
            return self.runner.run_async(coro)
        finally:
            self._unwatch()

    def _unwatch(self) -> None:
        loop, self._watched = self._watched, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(_cellgate.request_fd(self.name))

    def _take_offer(self) -> None:
        found = _cellgate.next_offer(self.name)
        if found is None:  # queued requests are served after the cell
            if self._watched is not None:
                self._watched.remove_reader(_cellgate.request_fd(self.name))
            return
        request = Request(*found)
        context = contextvars.copy_context()
        context.run(_cellgate.cell.set, request.id)
        context.run(self._answer_offer, request)

    def _answer_offer(self, request: Request) -> None:
        reply: dict[str, Any] = {"status": "error"}
        try:
            reply, _ = self._kernel.requests.answer(request)
        except Exception as e:
            reply = error_content(e)
        finally:  # an interrupt is for the cell
            _cellgate.answer(request.id, jsontext.dumps(reply))

    # ---------------------------------------------------------------- requests

    def _run_loop_or_wait(self) -> tuple[Any, ...] | None:
        loop = self.runner.current_loop()
        if loop is not None and loop.has_work():
            self.runner.run_idle(_cellgate.request_fd(self.name))
            return _cellgate.next_request(self.name, -1, False)
        notebook = self.name == MAIN and self._shell.for_notebook and not self._spare
        if notebook and completion.wanted and completion.pending():
            self._prepare_completion()
        request = _cellgate.next_request(self.name, loop.poll_fd() if loop is not None else -1, True)
        if request is None:  # the loop has something to do
            self.runner.run_idle(_cellgate.request_fd(self.name))
        return request

    def _prepare_completion(self) -> None:
        """Work while there are no requests."""
        poll = select.poll()
        poll.register(_cellgate.request_fd(self.name), select.POLLIN)
        if (loop := self.runner.current_loop()) is not None:
            poll.register(loop.poll_fd(), select.POLLIN)
        wait = _IDLE_MS
        while not poll.poll(wait) and completion.step(lambda: bool(poll.poll(0))):
            wait = 0

    def _next_request(self) -> tuple[Any, ...] | None:
        try:
            return self._run_loop_or_wait()
        except BaseException as e:
            loop = self.runner.made_loop
            closed = loop is not None and loop.is_closed()
            lost = closed or (isinstance(e, OSError) and e.errno == errno.EBADF)
            if not lost:  # raised by a background task or signal handler of a cell
                traceback.print_exc()
            elif not self.runner.renew():
                return _cellgate.next_request(self.name, -1, True)
        return None

    def _serve_one(self) -> None:
        found = self._next_request()
        if found is None:
            return
        request = Request(*found)
        if request.kind == SHUTDOWN:
            self._kernel.shut_down()
        elif request.kind == CLOSE:
            self._closed = True
        elif request.kind == CALL:
            self._kernel.run_calls()
        elif request.offer:
            _cellgate.answer(request.id, '{"status": "later"}')
        else:
            serve = self.execute if request.kind == CELL else self.answer
            _cellgate.run(self.name, request.kind, request.id, request.allow_stdin, lambda early: serve(request, early))
            if self.name == MAIN:
                self._kernel.control.debugger.cell_has_ended()

    def serve(self) -> None:
        """Serve until the process ends, or the subshell is closed."""
        while not self._closed:
            try:
                self._serve_one()
            except BaseException:  # broken by a cell: go on
                _cellgate.write_stderr("the kernel could not serve a request:\n" + traceback.format_exc())

    # ---------------------------------------------------------------- from other threads

    def wake(self) -> None:
        """Wake the waiting loop, so that Python code runs and an interrupt can arrive."""
        if (loop := self.runner.made_loop) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lambda: None)


def restore_directory(path: str) -> None:
    """Change to the session's directory, also from a deleted one."""
    try:
        if os.getcwd() == path:
            return
    except OSError:
        pass
    os.chdir(path)
    print(f"[cellgate] cwd reset to {path}")
