"""Denials of sandboxed commands."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from cellgate.srt.sandbox_utils import encode_sandboxed_command


@dataclass
class SandboxViolationEvent:
    """A denial: `line` is `deny OPERATION WHAT (WHY)`, one line of printable characters."""

    line: str
    command: str | None = None
    encoded_command: str | None = None
    timestamp: datetime = field(default_factory=datetime.now)


ViolationListener = Callable[[list[SandboxViolationEvent]], None]


class SandboxViolationStore:
    """The last violations. May be used by several threads."""

    def __init__(self, max_size: int = 100) -> None:
        self._lock = threading.Lock()
        self._violations: deque[SandboxViolationEvent] = deque(maxlen=max_size)
        self._total_count = 0
        self._listeners: set[ViolationListener] = set()

    def renew_lock(self) -> None:
        """In a child process after a fork: a thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def append(self, violation: SandboxViolationEvent, more: int = 0) -> None:
        """Adds a violation, and to the total `more` that are not known; notifies nobody."""
        with self._lock:
            self._violations.append(violation)
            self._total_count += 1 + more

    def add_violation(self, violation: SandboxViolationEvent) -> None:
        """Adds a violation, and notifies listeners."""
        self.append(violation)
        self.notify_listeners()

    def get_violations(self, limit: int | None = None) -> list[SandboxViolationEvent]:
        """The violations, or the last `limit` of them; the oldest is first."""
        with self._lock:
            violations = list(self._violations)
        return violations if limit is None else violations[max(len(violations) - limit, 0) :]

    def get_count(self) -> int:
        """The number of stored violations."""
        return len(self._violations)

    def get_total_count(self) -> int:
        """The number of all violations so far."""
        return self._total_count

    def get_violations_for_command(self, command: str) -> list[SandboxViolationEvent]:
        """The violations of a command, which is compared by its first 100 characters."""
        encoded = encode_sandboxed_command(command)
        return [v for v in self.get_violations() if v.encoded_command == encoded]

    def clear(self) -> None:
        """Forgets all violations, but not their total number."""
        with self._lock:
            self._violations.clear()
        self.notify_listeners()

    def subscribe(self, listener: ViolationListener) -> Callable[[], None]:
        """Calls `listener` with the violations, now and after each change; returns what ends this."""
        self._listeners.add(listener)
        listener(self.get_violations())
        return lambda: self._listeners.discard(listener)

    def notify_listeners(self) -> None:
        """Calls the listeners. What one raises is logged."""
        violations = self.get_violations()
        for listener in list(self._listeners):
            try:
                listener(list(violations))
            except Exception:
                logging.getLogger(__name__).exception("a listener for sandbox violations failed")
