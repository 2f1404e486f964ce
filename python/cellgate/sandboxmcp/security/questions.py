"""Questions that wait for a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Questions:
    """By namespace and subject; the same question is asked once."""

    def __init__(self) -> None:
        self.timeout: float = 30
        """Then a question is refused."""
        self.ask: Callable[[str, str], Awaitable[bool]] | None = None
        """Decides about a subject in a namespace. Without it decide() does."""
        self._pending: dict[tuple[str, str], asyncio.Future[bool]] = {}

    async def wait(self, subject: str, namespace: str) -> bool:
        key = namespace, subject
        if future := self._pending.get(key):
            return await asyncio.shield(future)
        future = self._pending[key] = asyncio.get_running_loop().create_future()
        decision = False
        try:
            if self.ask:
                decision = await self.ask(subject, namespace)
            else:  # what ends this wait is no end for the others
                decision = await asyncio.wait_for(asyncio.shield(future), self.timeout)
        except TimeoutError:
            pass
        finally:
            del self._pending[key]
            if not future.done():
                future.set_result(decision)
        return decision

    def decide(self, namespace: str, subject: str, approved: bool) -> bool:
        """False: nobody waits for it."""
        future = self._pending.get((namespace, subject))
        if future is None or future.done():
            return False
        future.set_result(approved)
        return True

    @property
    def pending(self) -> list[tuple[str, str]]:
        return list(self._pending)
