"""`get_ipython().kernel`: the attributes that libraries expect because ipykernel has them."""

from __future__ import annotations

import datetime
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import _cellgate
from cellgate_kernel import comms, parents
from cellgate_kernel.request import CELL, Request, field

if TYPE_CHECKING:
    from cellgate_kernel.kernel import Kernel
    from cellgate_kernel.shell import ZMQInteractiveShell

# Message types that are sent unchanged.
_OUTPUT = ("display_data", "update_display_data", "execute_result", "clear_output", "error")
_COMM = ("comm_open", "comm_msg", "comm_close")


class Session:
    """Makes and sends messages as a jupyter_client Session; the stream argument is ignored."""

    username = "cellgate"

    def __init__(self) -> None:
        self.session = uuid.uuid4().hex
        self._count = 0

    def msg_header(self, msg_type: str) -> dict[str, Any]:
        """A new header."""
        self._count += 1
        return {
            "msg_id": f"{self.session}_{os.getpid()}_{self._count}",
            "msg_type": msg_type,
            "username": self.username,
            "session": self.session,
            "date": datetime.datetime.now(datetime.UTC),
            "version": "5.5",
        }

    def msg(
        self,
        msg_type: str,
        content: dict[str, Any] | None = None,
        parent: dict[str, Any] | None = None,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A message that is not sent yet."""
        header = header or self.msg_header(msg_type)
        return {
            "header": header,
            "msg_id": header.get("msg_id"),
            "msg_type": header.get("msg_type", msg_type),
            "parent_header": (parent or {}).get("header", {}),
            "content": content or {},
            "metadata": metadata or {},
        }

    def send(
        self,
        stream: Any,
        msg_or_type: Any,
        content: dict[str, Any] | None = None,
        parent: dict[str, Any] | None = None,
        ident: Any = None,
        buffers: Sequence[Any] | None = None,
        track: bool = False,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send output or a comm message; ValueError for types that a kernel does not send."""
        if isinstance(msg_or_type, dict):
            message = msg_or_type
            buffers = buffers or message.get("buffers")
        else:
            message = self.msg(msg_or_type, content, parent, header, metadata)
        _send(message["msg_type"], message["content"], message.get("metadata"), buffers)
        return message


def _send(
    msg_type: str, content: dict[str, Any], metadata: dict[str, Any] | None, buffers: Sequence[Any] | None
) -> None:
    if msg_type in _COMM:
        comms.send(msg_type, content, metadata, buffers)
    elif msg_type == "stream":
        write = _cellgate.write_stderr if content.get("name") == "stderr" else _cellgate.write_stdout
        write(str(content.get("text", "")))
    elif msg_type in _OUTPUT:
        _cellgate.publish(msg_type, content)
    else:
        raise ValueError(f"a message {msg_type!r} cannot be sent: output and comm messages can")


class Socket:
    """Placeholder for the output socket of ipykernel."""

    closed = False

    def flush(self) -> None:
        _cellgate.flush()


# Number of request messages kept, because threads ask for that of the cell that started them.
_REMEMBERED = 256


@dataclass
class _Served:
    request: Request
    header: dict[str, Any]
    metadata: dict[str, Any]
    message: dict[str, Any] | None = None


class FrontendKernel:
    """The kernel, for the code that runs in it."""

    implementation = "cellgate"
    banner = ""
    protocol_version = "5.5"

    def __init__(self, shell: ZMQInteractiveShell, kernel: Kernel) -> None:
        self.shell = shell
        self.cellgate = kernel
        self.comm_manager = comms.manager
        self.session = Session()
        self.iopub_socket = Socket()
        self.shell_streams: list[Any] = []
        self._served: dict[int, _Served] = {}
        self._latest: _Served | None = None
        self._control: dict[str, Any] = {}
        parents.cell_of = self.cell_of

    def set_request(
        self,
        request: Request,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        control: dict[str, Any] | None = None,
    ) -> None:
        """Set the request that is served. `header` is the front-end's, if it gave one.

        `control` is that of its last request on the control channel.
        """
        if control:
            self._control = {"header": control, "msg_id": control.get("msg_id"), "msg_type": control.get("msg_type")}
        kept = request._replace(frames=())  # they may have tens of MiB
        self._latest = self._served[request.id] = _Served(kept, header or {}, metadata or {})
        if len(self._served) > _REMEMBERED:
            self._served.pop([*self._served][0], None)  # other shells add theirs meanwhile

    def get_parent(self, channel: str | None = None) -> dict[str, Any]:
        """The message that started the calling code, with the front-end's msg_id if it is known."""
        if channel == "control":
            return self._control
        served = self._served.get(_cellgate.current_cell(), self._latest)
        if served is None:
            return {}
        if served.message is None:
            served.message = self._make_parent(served)
        return served.message

    def _make_parent(self, served: _Served) -> dict[str, Any]:
        request = served.request
        msg_type = "execute_request" if request.kind == CELL else request.text
        header = {"msg_id": self._own_id(request.id), "msg_type": msg_type, "version": "5.5"}
        header |= {"username": self.session.username, "session": self.session.session} | served.header
        content: dict[str, Any] = {}
        if request.kind == CELL:
            content = {
                "code": request.text,
                "silent": request.silent,
                "store_history": request.store_history,
                "allow_stdin": request.allow_stdin,
            }
        return {
            "header": header,
            "msg_id": header["msg_id"],
            "msg_type": msg_type,
            "parent_header": {},
            "metadata": served.metadata,
            "content": content,
        }

    @property
    def _parent_header(self) -> dict[str, Any]:
        return self.get_parent()

    def set_parent(self, ident: Any, parent: dict[str, Any], channel: str = "shell") -> None:
        """Set the message that this thread's output belongs to; `ident` is ignored."""
        if channel == "shell":
            parents.set_parent(parent)

    def cell_of(self, parent: dict[str, Any]) -> int:
        """The request of a message or header; 0: none, or no longer kept."""
        msg_id = field(field(parent, "header", dict, parent), "msg_id", str, "")
        for number, served in reversed([*self._served.items()]):
            if msg_id in (served.header.get("msg_id"), self._own_id(number)):
                return number
        return 0

    def _own_id(self, number: int) -> str:
        return f"{self.session.session}_{number}"

    @property
    def _parent_ident(self) -> dict[str, list[bytes]]:
        headers = {channel: self.get_parent(channel).get("header", {}) for channel in ("shell", "control")}
        return {channel: [str(h.get("session", "")).encode()] for channel, h in headers.items()}

    @property
    def execution_count(self) -> int:
        return int(self.shell.execution_count)

    @property
    def user_ns(self) -> dict[str, Any]:
        namespace: dict[str, Any] = self.shell.user_ns
        return namespace

    def send_response(
        self,
        stream: Any,
        msg_or_type: Any,
        content: dict[str, Any] | None = None,
        ident: Any = None,
        buffers: Sequence[Any] | None = None,
        track: bool = False,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        channel: str | None = None,
    ) -> dict[str, Any]:
        """Send output of the running cell."""
        return self.session.send(
            stream, msg_or_type, content, self.get_parent(), ident, buffers, track, header, metadata
        )

    async def do_one_iteration(self) -> None:
        """Does nothing: the supervisor sends requests one at a time, so none is queued here."""
