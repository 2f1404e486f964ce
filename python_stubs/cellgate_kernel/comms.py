"""Comms: messages between objects here and objects in a front-end (ipywidgets and others).

The package `comm` is the API that libraries use; its two functions are replaced by ours, as it asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """The object itself where its bytes lie one after the other, otherwise a copy."""
    view = memoryview(buffer)
    return view if view.c_contiguous else view.tobytes()


class Comm(BaseComm):
    """One end of a comm."""

    def publish_msg(
        self,
        msg_type: str,
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        buffers: Sequence[Any] | None = None,
        **keys: Any,
    ) -> None:
        """Send a message of this comm; in a forked process there is nobody to send it to."""
        if not _cellgate.forked():
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
        """Hand a message from a front-end to the comm it is for. The package logs a handler's exception."""
        getattr(self, msg_type)(None, None, message)


manager = Manager()


def _create(*args: Any, **kwargs: Any) -> BaseComm:
    return Comm(*args, **kwargs)


def install() -> None:
    """Make the package `comm` use ours."""
    comm.create_comm = _create
    comm.get_comm_manager = lambda: manager
