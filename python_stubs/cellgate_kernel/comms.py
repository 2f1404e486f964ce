"""Comms: messages between objects in the kernel and in a front-end (ipywidgets and others).

Libraries use the package `comm`, which lets kernels replace its two functions.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Sequence
from typing import Any

import comm
from comm.base_comm import BaseComm, CommManager

import _cellgate


def send(
    msg_type: str, content: dict[str, Any], metadata: dict[str, Any] | None, buffers: Sequence[Any] | None = None
) -> None:
    """Send one comm message; buffers are anything with contiguous bytes, 64 at most."""
    message = {"msg_type": msg_type, "content": content, "metadata": metadata or {}}
    _cellgate.publish("comm", message, [_as_bytes(b) for b in buffers or ()])


def _as_bytes(buffer: Any) -> Any:
    """The object itself if its bytes are contiguous, otherwise a copy."""
    view = memoryview(buffer)
    return view if view.c_contiguous else view.tobytes()


# Returns the worker of the current thread; set by the kernel.
worker: Callable[[], Any] = lambda: None  # noqa: E731

# Most unanswered messages per comm; answers to older ones go to the last sender.
_MAX_ASKED = 256


def _id_of(data: Any) -> Any:
    content = data.get("content") if isinstance(data, dict) else None
    found = content.get("id") if isinstance(content, dict) else None
    return found if isinstance(found, str) else None


class Comm(BaseComm):
    """One end of a comm."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._last: Any = None
        self._asked: dict[str, Any] = {}
        super().__init__(*args, **options)

    def _remember(self, data: Any) -> None:
        self._last = worker()
        if (number := _id_of(data)) is not None and len(self._asked) < _MAX_ASKED:
            self._asked[number] = self._last

    def asker(self, data: Any) -> Any:
        """The worker that waits for this message: the sender of its parent, or the last sender."""
        return self._asked.pop(_id_of(data) or "", self._last)

    def publish_msg(
        self,
        msg_type: str,
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        buffers: Sequence[Any] | None = None,
        **keys: Any,
    ) -> None:
        """Send a message of this comm; does nothing in a forked process."""
        if not _cellgate.forked():
            self._remember(data)
            send(msg_type, {"data": data or {}, "comm_id": self.comm_id, **keys}, metadata, buffers)


class Manager(CommManager):
    """All comms of this kernel."""

    def info(self, target_name: str | None) -> dict[str, Any]:
        """The `comms` of a comm_info_reply."""
        return {
            str(k): {"target_name": c.target_name}
            for k, c in list(self.comms.items())
            if target_name is None or c.target_name == target_name
        }

    def handle(self, msg_type: str, message: dict[str, Any]) -> None:
        """Pass a front-end's message to its comm. `comm` logs exceptions of handlers."""
        content = message["content"]
        receiver = self.comms.get(content.get("comm_id"))
        asker = receiver.asker(content.get("data")) if isinstance(receiver, Comm) and msg_type == "comm_msg" else None
        call = functools.partial(getattr(self, msg_type), None, None, message)
        if asker is None or asker is worker() or not asker.runner.waits:
            call()
            return
        # A cell of another shell waits for the message, in its own loop.
        asker.runner.loop.call_soon_threadsafe(call, context=contextvars.copy_context())


manager = Manager()


def _create(*args: Any, **kwargs: Any) -> BaseComm:
    return Comm(*args, **kwargs)


def install() -> None:
    """Make the package `comm` use ours."""
    comm.create_comm = _create
    comm.get_comm_manager = lambda: manager
