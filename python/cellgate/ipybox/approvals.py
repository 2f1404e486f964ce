"""ipybox's ApprovalRequest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

logger = logging.getLogger(__name__)


class ApprovalRequest:
    """A tool call that waits for accept() or reject(). The first decision counts.

    Names and arguments come from a kernel: untrusted.
    """

    def __init__(
        self, server_name: str, tool_name: str, tool_args: dict[str, Any], respond: Callable[[bool], Awaitable[None]]
    ) -> None:
        self.server_name = server_name
        self.tool_name = tool_name
        self.tool_args = tool_args
        self._respond = respond
        self._decision: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.tool_args.items())
        return f"{self.server_name}.{self.tool_name}({arguments})"

    async def accept(self) -> None:
        """Lets exactly this call run. Without effect if it was decided, cancelled or timed out before."""
        await self._decide(True)

    async def reject(self) -> None:
        """Refuses it: the call raises ApprovalRejectedError in the cell."""
        await self._decide(False)

    async def response(self) -> bool:
        """Waits for the decision. False as well if the call was cancelled or nobody decided in time."""
        return await asyncio.shield(self._decision)

    def on_decision(self, callback: Callable[[bool], None]) -> None:
        """Calls @callback with the decision, once; at once if there is one already."""

        def invoke(decision: asyncio.Future[bool]) -> None:
            try:
                callback(decision.result())
            except Exception:
                logger.exception("error in a callback of an approval")

        if self._decision.done():
            invoke(self._decision)
        else:
            self._decision.add_done_callback(invoke)

    def set_on_decision(self, on_decision: Callable[[], None]) -> None:
        """The same for a callback without an argument."""
        self.on_decision(lambda _decision: on_decision())

    async def _decide(self, decision: bool) -> None:
        if not self._decision.done():
            self._decision.set_result(decision)
            await self._respond(decision)

    def _expire(self) -> None:
        """The call waits no more; any thread may say so."""

        def expire() -> None:
            if not self._decision.done():
                self._decision.set_result(False)

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._decision.get_loop().call_soon_threadsafe(expire)
