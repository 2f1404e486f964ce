"""What srt's functions take and return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class FsReadRestrictionConfig:
    """Paths that cannot be read; everything else can."""

    deny_only: list[str] = field(default_factory=list)


@dataclass
class FsWriteRestrictionConfig:
    """Paths that can be written, and exceptions in them; nothing else can."""

    allow_only: list[str] = field(default_factory=list)
    deny_within_allow: list[str] = field(default_factory=list)


@dataclass
class NetworkRestrictionConfig:
    """Hosts that can be reached, and hosts that cannot, which come first."""

    allowed_hosts: list[str] | None = None
    denied_hosts: list[str] | None = None


@dataclass
class NetworkHostPattern:
    """A host that a command wants to connect to."""

    host: str
    port: int | None = None


class SandboxAskCallback(Protocol):
    """Decides about a host that is on no list. Only True allows it."""

    def __call__(self, params: NetworkHostPattern) -> Awaitable[bool]: ...


SandboxAskCallbackType = Callable[[NetworkHostPattern], Awaitable[bool]]
