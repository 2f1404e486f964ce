"""Which hosts executions reach: those that the application names, and those that are approved when they are wanted."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cellgate._checker import host_matches
from cellgate.sandboxmcp.events import SandboxEventType, emit
from cellgate.sandboxmcp.security.questions import Questions

_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*(:\d{1,5})?")


def covered(domain: str, hosts: Iterable[str]) -> bool:
    """Whether a list has the domain, also as `*.example.org`. A host with a port is not for another port."""
    name, port = re.sub(r":\d+$", "", domain), re.search(r":\d+$", domain)
    return any(
        host_matches(name, host) and not (port and re.search(r":\d+$", host) and not host.endswith(port[0]))
        for host in hosts
    )


OFF = "the network is off (enable_network=True; of a server: SANDBOXMCP_NETWORK=true, --allow-host or --approve ask)"


class NetworkGuard:
    """Without `enable_network` nothing is reached and nobody is asked."""

    def __init__(self, enable_network: bool = False, global_allowed: Iterable[str] | None = None) -> None:
        self.enabled = enable_network
        self.questions = Questions()
        self._allowed = sorted(set(global_allowed or ()))
        self._approved: dict[str, set[str]] = {}

    def is_allowed(self, domain: str, allowed_domains: Iterable[str]) -> bool:
        """Whether the application's lists have the domain. What a request asks for is no such list."""
        return self.enabled and covered(domain, [*self._allowed, *allowed_domains])

    def hosts(self, namespace: str) -> list[str]:
        """What executions in the namespace reach without a question."""
        return sorted({*self._allowed, *self._approved.get(namespace, ())}) if self.enabled else []

    async def request_egress(self, domain: str, namespace: str) -> bool:
        """Waits for the decision about a domain, which holds for the namespace. No decision is a refusal."""
        domain = domain.lower()
        if covered(domain, self.hosts(namespace)):
            return True
        approved = False
        if self._can_be_asked(domain):
            emit(SandboxEventType.egress_requested, namespace, domain)
            approved = await self.questions.wait(domain, namespace)
        if approved:
            self.allow(namespace, domain)
        else:
            emit(SandboxEventType.egress_denied, namespace, domain)
        return approved

    def _can_be_asked(self, domain: str) -> bool:
        return self.enabled and len(domain) < 254 and _HOST.fullmatch(domain) is not None

    def allow(self, namespace: str, domain: str) -> None:
        """Approves a domain unasked, and answers the questions that wait for it."""
        domain = domain.lower()
        if not self._can_be_asked(domain):
            raise ValueError(f"Domain blocked: {f'{domain} is no host name' if self.enabled else OFF}")
        self._approved.setdefault(namespace, set()).add(domain)
        self.approve_egress(namespace, domain)
        emit(SandboxEventType.egress_approved, namespace, domain)

    def approve_egress(self, namespace: str, domain: str) -> bool:
        """False: nobody waits for it."""
        return self.questions.decide(namespace, domain.lower(), True)

    def deny_egress(self, namespace: str, domain: str) -> bool:
        return self.questions.decide(namespace, domain.lower(), False)

    @property
    def pending_requests(self) -> list[dict[str, str]]:
        return [{"namespace": namespace, "domain": domain} for namespace, domain in self.questions.pending]

    @property
    def allowed_domains(self) -> list[str]:
        return list(self._allowed)
