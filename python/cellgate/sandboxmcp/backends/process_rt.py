"""`ProcessBackend(hardened=True)`: what it promises holds for every execution here."""

from __future__ import annotations

import cellgate


class ProcessBackend:
    """Accepted by SandboxPipeline; there is nothing less than hardened."""

    def __init__(self, hardened: bool = True) -> None:
        self.hardened = True

    @staticmethod
    def supported() -> bool:
        """Whether a sandbox can be had on this machine."""
        try:
            with cellgate.Session():
                return True
        except cellgate.CellgateError:
            return False
