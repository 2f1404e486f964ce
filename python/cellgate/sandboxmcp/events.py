"""The 14 events of the sandboxes of this program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from cellgate.sandboxmcp.core.models import now

UNREAD_MAX = 10_000


class SandboxEventType(StrEnum):
    execution_started = "execution.started"
    execution_completed = "execution.completed"
    execution_failed = "execution.failed"
    execution_timeout = "execution.timeout"
    session_created = "session.created"
    session_killed = "session.killed"
    package_installed = "package.installed"
    egress_requested = "egress.requested"
    egress_approved = "egress.approved"
    egress_denied = "egress.denied"
    vault_accessed = "vault.accessed"
    resource_exceeded = "resource.exceeded"
    artifact_signed = "artifact.signed"
    queue_backpressure = "queue.backpressure"


class SandboxEvent(BaseModel):
    type: SandboxEventType
    namespace: str = "default"
    message: str = ""
    data: dict[str, Any] = {}
    timestamp: datetime = Field(default_factory=now)


class SandboxEventBus:
    """Events by namespace, or all. A reader that has 10,000 unread events loses the oldest."""

    def __init__(self) -> None:
        self._readers: list[tuple[str | None, asyncio.Queue[SandboxEvent]]] = []

    def subscribe(self, namespace: str | None = None) -> asyncio.Queue[SandboxEvent]:
        queue: asyncio.Queue[SandboxEvent] = asyncio.Queue(UNREAD_MAX)
        self._readers.append((namespace, queue))
        return queue

    def unsubscribe(self, queue: asyncio.Queue[SandboxEvent], namespace: str | None = None) -> None:
        self._readers = [(n, q) for n, q in self._readers if q is not queue]

    @property
    def read(self) -> bool:
        return bool(self._readers)

    async def emit(self, event: SandboxEvent) -> None:
        self.send(event)

    def send(self, event: SandboxEvent) -> None:
        for namespace, queue in self._readers:
            if namespace in (None, event.namespace):
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait(event)

    async def stream(self, namespace: str | None = None) -> AsyncIterator[SandboxEvent]:
        queue = self.subscribe(namespace)
        try:
            while True:
                yield await queue.get()
        finally:
            self.unsubscribe(queue)


sandbox_event_bus = SandboxEventBus()


def emit(name: SandboxEventType, namespace: str, message: str = "", **data: Any) -> None:
    if sandbox_event_bus.read:
        sandbox_event_bus.send(SandboxEvent(type=name, namespace=namespace, message=message, data=data))
