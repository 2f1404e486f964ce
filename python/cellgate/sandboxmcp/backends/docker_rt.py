"""`DockerBackend`: its limits, in cellgate's sandbox. No container engine is used."""

from __future__ import annotations

import re
from typing import Any

from cellgate.sandboxmcp.backends.process_rt import ProcessBackend


class DockerBackend(ProcessBackend):
    """What cannot be done without a container is refused with its reason."""

    def __init__(
        self,
        image: str | None = None,
        memory_limit: str = "256m",
        cpu_period: int = 100_000,
        cpu_quota: int = 50_000,
        network_mode: str = "none",
        hardened: bool = True,
        **more: Any,
    ) -> None:
        super().__init__()
        self._hardened = True
        if image:
            raise ValueError("image: no container runs here, so the packages of an image would be missing")
        if not hardened:
            raise ValueError("hardened=False: there is no weaker sandbox")
        if network_mode != "none":
            raise ValueError(f"network_mode={network_mode!r}: hosts are named by allowed_domains, or approved")
        if more:
            raise ValueError(f"{next(iter(more))} is no option of this backend")
        size = re.fullmatch(r"(\d{1,6})([mg])b?", memory_limit.lower())
        if not size:
            raise ValueError(f"memory_limit {memory_limit!r} is no size such as 256m or 1g")
        self.limits = {
            "max_ram_mb": int(size[1]) * (1024 if size[2] == "g" else 1),
            "max_cpu_cores": cpu_quota / cpu_period,
        }
