"""The control shell: requests that do not wait for cells. Its thread starts with the first one."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import _cellgate
from cellgate_kernel import debugger, jsontext
from cellgate_kernel.request import INTERRUPT, Request, field, parse_object
from cellgate_kernel.requests import error_content
from cellgate_kernel.worker import Worker

if TYPE_CHECKING:
    from cellgate_kernel.kernel import Kernel

Content = dict[str, Any]

# Interval at which time.sleep() in a subshell checks for interrupts, in seconds.
_SLEEP = 0.02

_sleep = time.sleep


class UnknownSubshellError(Exception):
    """Has the same name and text as in ipykernel."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown subshell_id {name!r}")


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


class Control:
    """Answers requests of the control shell."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.debugger = debugger.Debugger(kernel)
        self._subshells: dict[str, threading.Thread] = {}
        self._hidden: set[str] = set()  # subshells that the front makes for itself
        self._table: dict[str, Callable[[Content], Content]] = {
            "create_subshell_request": self._create,
            "delete_subshell_request": self._delete,
            "list_subshell_request": self._list,
            "debug_request": self.debugger.answer,
        }

    def serve(self, found: tuple[Any, ...]) -> str | None:
        """Serve a request; returns the content of the reply as JSON text."""
        request = Request(*found)
        if request.kind == INTERRUPT:
            self.interrupt(request.id)
            return None
        try:
            function = self._table.get(request.text)
            if function is None:
                raise NotImplementedError(f"this kernel does not know {request.text}")
            reply = function(parse_object(request.frames[0], "the content"))
        except BaseException as e:
            reply = error_content(e)
        return jsontext.dumps(reply)

    def interrupt(self, cell: int) -> None:
        """Interrupt a cell of a subshell."""
        if not _cellgate.interrupt_subshell(cell):
            return
        for worker in list(self._kernel.workers.values()):
            if worker.running == cell:
                worker.wake()

    def _sleep(self, seconds: float, /) -> None:
        """time.sleep(), split in the thread of a subshell so that interrupts can arrive."""
        __tracebackhide__ = True  # IPython hides this frame in tracebacks
        if seconds <= _SLEEP or threading.get_ident() not in self._kernel.workers or _in_main_thread():
            _sleep(seconds)
            return
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            _sleep(min(left, _SLEEP))

    # ---------------------------------------------------------------- subshells

    def _create(self, content: Content) -> Content:
        if self._kernel.language is not None:
            raise NotImplementedError(f"a session in {self._kernel.language.name} has no subshells")
        name = uuid.uuid4().hex
        hidden = field(content, "hidden", bool, False)
        _cellgate.open_shell(name)
        try:
            thread = threading.Thread(target=self._run_subshell, args=(name,), name=f"subshell {name}", daemon=True)
            self._subshells[name] = thread
            thread.start()
        except BaseException:
            self._subshells.pop(name, None)
            _cellgate.shell_gone(name)
            raise
        if time.sleep is _sleep:
            time.sleep = self._sleep  # type: ignore[assignment]
        if hidden:
            self._hidden.add(name)
        return {"status": "ok", "subshell_id": name}

    def _run_subshell(self, name: str) -> None:
        worker = Worker(self._kernel, name)
        self._kernel.workers[worker.thread_id] = worker
        try:
            worker.serve()
        finally:
            self._kernel.workers.pop(worker.thread_id, None)
            worker.runner.close()
            _cellgate.shell_gone(name)

    def _delete(self, content: Content) -> Content:
        name = field(content, "subshell_id", str)
        if name not in self._subshells:
            raise UnknownSubshellError(name)
        _cellgate.close_shell(name)
        del self._subshells[name]
        return {"status": "ok"}

    def _list(self, content: Content) -> Content:
        return {"status": "ok", "subshell_id": [name for name in self._subshells if name not in self._hidden]}
