# mypy: disable-error-code="import-not-found, misc, no-untyped-call"
"""Starts cellgate's Jupyter kernel for jupyter_client, which finds this class by its entry point.

`cellgate jupyter run` connects to the user's warm supervisor and has its sockets in a few milliseconds.
jupyter_client's clients would connect before that, try again after 100 ms, and then listen for 200 ms whether
the kernel has more to say. This provisioner returns when the sockets are bound, and its manager's clients are
ready when the kernel is idle. Everything else is jupyter_client's.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from queue import Empty
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_core.utils import ensure_async, run_sync

# Longest wait for the sockets, in seconds; after that clients wait as they do with other kernels.
_LIMIT_S = 10
# Times without a message after which a client asks again, in seconds; as in jupyter_client.
_REPLY_S = 1.0
_OUTPUT_S = 0.2

Message = dict[str, Any]


# ------------------------------------------------------------------ clients


async def _next(channel: Any, limit_s: float) -> Message | None:
    try:
        message: Message = await ensure_async(channel.get_msg(timeout=limit_s))
    except Empty:
        return None
    return message


async def _ready_once(client: Any) -> bool:
    """Ask for the kernel's info; True when its reply is there and all output that precedes it."""
    request = client.kernel_info()
    reply = await _next(client.shell_channel, _REPLY_S)
    while reply is not None and reply["parent_header"].get("msg_id") != request:
        reply = await _next(client.shell_channel, _REPLY_S)
    output = await _next(client.iopub_channel, _OUTPUT_S) if reply is not None else None
    while output is not None:
        state = output["content"].get("execution_state") if output["msg_type"] == "status" else None
        if state == "idle" and output["parent_header"].get("msg_id") == request:
            client._handle_kernel_info_reply(reply)
            return True
        output = await _next(client.iopub_channel, _OUTPUT_S)
    return False


async def _wait_for_ready(self: Any, timeout: float | None = None) -> None:
    """wait_for_ready() of a client, with its errors; a kernel's idle status is the last of its messages."""
    end = time.monotonic() + (math.inf if timeout is None else timeout)
    await _next(self.iopub_channel, _OUTPUT_S)  # the kernel's welcome: from here on no output is missed
    while not await _ready_once(self):
        if not await self._async_is_alive():
            raise RuntimeError("Kernel died before replying to kernel_info")
        if time.monotonic() > end:
            raise RuntimeError(f"Kernel didn't respond in {timeout} seconds")


class _BlockingClient(BlockingKernelClient):
    wait_for_ready = run_sync(_wait_for_ready)


class _AsyncClient(AsyncKernelClient):
    wait_for_ready = _wait_for_ready


# A manager with another class of clients keeps it.
_CLIENTS = {BlockingKernelClient: _BlockingClient, AsyncKernelClient: _AsyncClient}

# ------------------------------------------------------------------ the program


async def _first_byte(fd: int) -> bytes:
    """The first byte; b"" at the end of file; TimeoutError after the limit."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    try:
        await asyncio.wait_for(readable.wait(), _LIMIT_S)
        return os.read(fd, 1)
    finally:
        loop.remove_reader(fd)


class CellgateProvisioner(LocalProvisioner):
    """`cellgate jupyter run` as a process of this machine."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start the program and wait until clients can connect; RuntimeError if it ends before."""
        manager: Any = self.parent
        factory = getattr(manager, "client_factory", None)
        if factory in _CLIENTS:
            manager.client_factory = _CLIENTS[factory]
        ready, theirs = os.pipe()
        try:
            command = [*cmd, f"--ready-fd={theirs}"]
            try:
                info = await super().launch_kernel(command, pass_fds=(*kwargs.pop("pass_fds", ()), theirs), **kwargs)
            finally:
                os.close(theirs)
            try:
                bound = await _first_byte(ready)
            except TimeoutError:
                self.log.warning("cellgate has no sockets after %d s; clients try to connect all the same", _LIMIT_S)
                return info
            except BaseException:  # cancelled: nobody would end it
                await self.kill()
                raise
        finally:
            os.close(ready)
        if not bound:
            await self.kill()  # it has ended, unless it is another program
            status = await self.wait()
            raise RuntimeError(f"`{' '.join(cmd)}` ended with status {status} before clients could connect to it")
        return info

    async def shutdown_requested(self, restart: bool = False) -> None:
        """The manager has sent a request; one to a program that has ended would reach its successor's ports."""
        control = getattr(self.parent, "_control_socket", None)
        if control is not None and await self.poll() is not None:
            control.linger = 0
