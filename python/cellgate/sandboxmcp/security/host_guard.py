"""Which programs of the host a program lets its agent run: patterns of their arguments, and questions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from cellgate.sandboxmcp.security.questions import Questions

# Nothing of the user's is shown by these. `ls *` and `cat *`, which the document's server allows, show every file.
_ALLOWED = ("uptime", "date", "hostname", "whoami", "uname *")
_PROGRAMS = ("rm", "rmdir", "sudo", "su", "dd", "mkfs*", "shutdown", "poweroff", "reboot", "kill", "killall", "pkill")
_BLOCKED = tuple(f"{program} *" for program in (*_PROGRAMS, "chmod", "chown"))
# Means the same to every shell and to none.
_PLAIN = re.compile(r"[\w@%+:,./-]+( +[\w@%+=:,./-]+)*", re.ASCII)


def matches(command: str, patterns: Sequence[str]) -> bool:
    """Patterns are compared word by word; a last `*` is any number of words. A line for a shell matches nothing."""
    words = command.split() if _PLAIN.fullmatch(command) else []
    for pattern in patterns:
        wanted = pattern.split()
        rest = wanted[-1:] == ["*"]
        wanted = wanted[:-1] if rest else wanted
        enough = len(words) >= len(wanted) if rest else len(words) == len(wanted)
        if words and enough and all(map(fnmatchcase, words, wanted)):
            return True
    return False


class HostGuard:
    """What no pattern allows is denied, also where a person could approve it: see request_access()."""

    def __init__(
        self,
        always_allowed: Sequence[str] | None = None,
        approved: Sequence[str] | None = None,
        blocked: Sequence[str] | None = None,
        auto_approve: bool = False,
    ) -> None:
        """`auto_approve`: the program that makes this object approves all that is not blocked."""
        self.questions = Questions()
        self._allowed = list(_ALLOWED if always_allowed is None else always_allowed)
        self._approved = list(approved or ())
        self._blocked = list(_BLOCKED if blocked is None else blocked)
        self._auto = auto_approve

    def check(self, command: str) -> str:
        """ "allowed", "blocked" (whatever is approved) or "denied"."""
        if matches(command, self._blocked):
            return "blocked"
        return "allowed" if matches(command, self.allowed_patterns) else "denied"

    async def request_access(self, pattern: str, namespace: str = "default") -> bool:
        """Waits for a decision about a pattern, which approve_access() or `questions.ask` makes."""
        first, _, rest = pattern.partition(" ")
        if (
            not first
            or "*" in first
            or "?" in first
            or "[" in first
            or matches(pattern.replace("*", "x"), self._blocked)
        ):
            return False
        if self._auto or await self.questions.wait(pattern, namespace):
            self._approved = list(dict.fromkeys([*self._approved, pattern]))
            return True
        return False

    def approve_access(self, namespace: str, pattern: str) -> bool:
        """False: it was approved already."""
        self.questions.decide(namespace, pattern, True)
        if pattern in self._approved:
            return False
        self._approved.append(pattern)
        return True

    def deny_access(self, namespace: str, pattern: str) -> bool:
        return self.questions.decide(namespace, pattern, False)

    def revoke_access(self, pattern: str) -> bool:
        if pattern not in self._approved:
            return False
        self._approved.remove(pattern)
        return True

    async def execute(self, command: str, timeout: float = 120) -> dict[str, Any]:
        """Says why a program is not run. This package runs none itself."""
        state = self.check(command)
        if state == "blocked":
            return {"success": False, "error": f"Command blocked: {command}", "blocked": True}
        if state == "denied":
            return {"success": False, "error": "Command not allowed: request_access() asks", "denied": True}
        return {"success": False, "error": "run it with cellgate.surfaces.host.host_exec(), which asks nobody"}

    @property
    def allowed_patterns(self) -> list[str]:
        return [*self._allowed, *self._approved]

    @property
    def approved_patterns(self) -> list[str]:
        return list(self._approved)

    @property
    def blocked_patterns(self) -> list[str]:
        return list(self._blocked)

    @property
    def pending_requests(self) -> list[dict[str, str]]:
        return [{"namespace": namespace, "pattern": pattern} for namespace, pattern in self.questions.pending]
