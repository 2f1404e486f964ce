"""The caps of what a request may ask for."""

from __future__ import annotations

from cellgate.sandboxmcp.core.models import ExecutionRequest, ResourceLimits

RAM_MAX_MB = 8192
TIMEOUT_MAX = 3600
_MOST = 1 << 31  # of the others: more than any machine has, and less than the library's numbers


class ResourceGuard:
    """`most`: lower caps than the document's, by the names of limits."""

    def __init__(self, **most: float) -> None:
        documented = {"max_ram_mb": RAM_MAX_MB, "timeout_seconds": TIMEOUT_MAX}
        self.most: dict[str, float] = {**documented, **most}
        self.most |= {name: min(self.most[name], value) for name, value in documented.items()}

    def check_limits(self, request: ExecutionRequest) -> bool:
        return not self.why_not(request.resource_limits or ResourceLimits())

    def why_not(self, limits: ResourceLimits) -> str:
        """What is wrong with limits, or nothing."""
        for name, value in limits:
            most = self.most.get(name, _MOST)
            if not 0 < value <= most:
                return f"invalid limit: {name} has to be over 0, and not over the maximum of {most:g}"
        return ""
