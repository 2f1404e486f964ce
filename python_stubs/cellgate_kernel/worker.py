"""Serves one shell: the main one, or a subshell in a thread of its own."""

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
from cellgate_kernel import completion, errors, jsontext, reserve
from cellgate_kernel.loop import CellRunner
from cellgate_kernel.request import CALL, CELL, CLOSE, MAIN, SHUTDOWN, Request, field, parse_object
from cellgate_kernel.requests import error_content
from cellgate_kernel.shell import failed_reply, reply_of

if TYPE_CHECKING:
    from cellgate_kernel.kernel import Kernel

# signal's own function makes an enum of each answer, which takes longer than the rest before a cell.
_getsignal: Callable[[int], Any] = importlib.import_module("_signal").getsignal

T = TypeVar("T")

# So long without a request, and a kernel is taken to be idle.
_IDLE_MS = 300

# A reply as the wire has it: body and content of a cell's; content and buffers of another request's.
Reply = tuple[str, str] | tuple[str, tuple[bytes, ...]]


class Worker:
    """Runs cells and answers requests one at a time, in the thread that has made it."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name = name
        self.runner = CellRunner()
        self.running = 0
        self.thread_id = threading.get_ident()
        self._kernel = kernel
        self._shell = kernel.shell
        self._closed = False
        self._spare = False  # nobody has asked for this kernel yet
        self._watched: Any = None  # the loop in which offers are looked for

    # ---------------------------------------------------------------- one cell

    def _before_cell(self, request: Request) -> None:
        self.running = request.id
        self.runner.interrupted = False
        self.runner.context.run(_cellgate.cell.set, request.id)
        if self.name != MAIN:
            _cellgate.cell.set(request.id)
        elif _getsignal(signal.SIGINT) is not _cellgate.on_sigint:  # a cell before this one has changed it
            signal.signal(signal.SIGINT, _cellgate.on_sigint)
        self._kernel.watcher.before_cell()

    def _after_cell(self) -> None:
        self._kernel.watcher.after_cell()
        if self._kernel.working_dir:
            restore_directory(self._kernel.working_dir)
        if _cellgate.forked():
            # os.fork() in the cell, and the child has come to the cell's end: it ends here.
            sys.stdout.flush()
            os._exit(0)

    def execute(self, request: Request, interrupted: bool = False) -> Reply:
        """Run a cell, unless it was interrupted already; returns body and content of the reply.

        An interrupt can raise anywhere in here.
        """
        self._spare = request.warm
        try:
            extra = parse_object(request.frames[0], "the cell's extra") if request.frames[0] else {}
            metadata = field(extra, "metadata", dict, {})
            header, control = (field(extra, key, dict, {}) for key in ("header", "control"))
            self._kernel.front.set_request(request, header, metadata, control)
            self._before_cell(request)
            if interrupted:
                raise KeyboardInterrupt
            compiler: Any = self._shell.compile
            compiler.place(metadata)
            result = self._shell.run_cell(
                request.text,
                store_history=request.store_history and not request.silent,
                silent=request.silent,
                cell_id=metadata.get("cellId"),
                cell_meta=metadata or None,
            )
            expressions = field(extra, "user_expressions", dict, {})
            values = {}
            if expressions and result.success:
                values = self.runner.run_sync(lambda: self._shell.user_expressions(expressions))
            self._after_cell()
            if request.warm:
                self._shell.forget_cells()
            if result.success:
                reserve.hold()
            return reply_of(self._shell, result, values)
        except BaseException as e:
            return self._failed(e)

    def _failed(self, error: BaseException) -> Reply:
        """An exception that came out between the cell's own code and the reply, an interrupt most likely."""
        if isinstance(error, MemoryError):
            reserve.release()
        if (last := self._shell.local.error) is not None:  # it has its `error` message already
            self._shell.local.error = None
            return failed_reply(self._shell, *last)
        content = errors.content(type(error), error, errors.plain_traceback(type(error), error, None))
        _cellgate.publish("error", content)
        return failed_reply(self._shell, error, content)

    def answer(self, request: Request, interrupted: bool = False) -> Reply:
        """Answer another request; returns content and buffers of the reply. An interrupt can raise in here too."""
        self._spare = False
        try:
            self._before_cell(request)
            if interrupted:
                raise KeyboardInterrupt
            reply = self.runner.run_sync(lambda: self._kernel.requests.answer(request))
            self._after_cell()
        except BaseException as e:
            reply = error_content(e)
        return jsontext.dumps(reply), ()

    # ---------------------------------------------------------------- comm messages for a cell that waits

    def run_async(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run code with `await`; comm messages reach it while it waits, as a widget's answer must."""
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
        if found is None:  # what waits is for after the cell
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
            reply = self._kernel.requests.answer(request)
        except Exception as e:
            reply = error_content(e)
        finally:  # an interrupt is the cell's
            _cellgate.answer(request.id, jsontext.dumps(reply))

    # ---------------------------------------------------------------- requests

    def _run_loop_or_wait(self) -> tuple[Any, ...] | None:
        loop = self.runner.loop
        if loop.has_work():
            self.runner.run_idle(_cellgate.request_fd(self.name))
            return _cellgate.next_request(self.name, -1, False)
        if self.name == MAIN and completion.pending() and self._shell.for_notebook and not self._spare:
            self._prepare_completion()
        request = _cellgate.next_request(self.name, loop.poll_fd(), True)
        if request is None:  # something in the loop has become ready
            self.runner.run_idle(_cellgate.request_fd(self.name))
        return request

    def _prepare_completion(self) -> None:
        """While nobody asks for anything."""
        poll = select.poll()
        for fd in (_cellgate.request_fd(self.name), self.runner.loop.poll_fd()):
            poll.register(fd, select.POLLIN)
        wait = _IDLE_MS
        while not poll.poll(wait) and completion.step():
            wait = 0

    def _next_request(self) -> tuple[Any, ...] | None:
        try:
            return self._run_loop_or_wait()
        except BaseException as e:
            lost = self.runner.loop.is_closed() or (isinstance(e, OSError) and e.errno == errno.EBADF)
            if not lost:  # a background task or a signal handler of a cell has raised: not the loop's fault
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
            except BaseException:  # whatever a cell has broken: go on
                _cellgate.write_stderr("the kernel could not serve a request:\n" + traceback.format_exc())

    # ---------------------------------------------------------------- from other threads

    def wake(self) -> None:
        """Make a loop that waits run Python, where an interrupt can arrive."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self.runner.loop.call_soon_threadsafe(lambda: None)


def restore_directory(path: str) -> None:
    """Back to the session's directory, also from one that has been deleted."""
    try:
        if os.getcwd() == path:
            return
    except OSError:
        pass
    os.chdir(path)
    print(f"[cellgate] cwd reset to {path}")
