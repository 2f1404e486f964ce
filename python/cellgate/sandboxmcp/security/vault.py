"""Secrets for executions. Code can read those of its namespace; their masking in output is no border."""

from __future__ import annotations

import base64
import os
import re
import time
import urllib.parse
from collections.abc import Iterable
from typing import Protocol

MASK = "***REDACTED***"
_SHORTEST = 4  # a shorter value would mask parts of words
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Vault(Protocol):
    async def get_secrets(self, namespace: str) -> dict[str, str]: ...
    async def set_secret(self, namespace: str, key: str, value: str, ttl_seconds: float | None = None) -> None: ...
    async def delete_secret(self, namespace: str, key: str) -> None: ...
    async def list_keys(self, namespace: str) -> list[str]: ...


def check_name(key: str) -> None:
    if not _NAME.fullmatch(key):
        raise ValueError(f"{key!r} is no name of a variable")
    if key in ("HOME", "TMPDIR", "NODE_PATH"):
        raise ValueError(f"{key} is the sandbox's own")


class InMemoryVault:
    """In the memory of this process."""

    def __init__(self) -> None:
        self._secrets: dict[str, dict[str, tuple[str, float]]] = {}

    async def get_secrets(self, namespace: str) -> dict[str, str]:
        now = time.monotonic()
        kept = {k: v for k, v in self._secrets.get(namespace, {}).items() if v[1] > now}
        self._secrets[namespace] = kept
        return {key: value for key, (value, _) in kept.items()}

    async def set_secret(self, namespace: str, key: str, value: str, ttl_seconds: float | None = None) -> None:
        check_name(key)
        end = time.monotonic() + ttl_seconds if ttl_seconds else float("inf")
        self._secrets.setdefault(namespace, {})[key] = value, end

    async def delete_secret(self, namespace: str, key: str) -> None:
        self._secrets.get(namespace, {}).pop(key, None)

    async def list_keys(self, namespace: str) -> list[str]:
        return list(await self.get_secrets(namespace))

    @staticmethod
    def mask_output(output: str, secrets: dict[str, str]) -> str:
        return mask(output, secrets.values())


class EnvVault(InMemoryVault):
    """Variables SANDBOXMCP_SECRET_{NAMESPACE}_{KEY} of this process; what is set later is kept in memory only."""

    def __init__(self, prefix: str = "SANDBOXMCP_SECRET_") -> None:
        super().__init__()
        self._prefix = prefix

    async def get_secrets(self, namespace: str) -> dict[str, str]:
        prefix = f"{self._prefix}{namespace.upper()}_"
        found = {k.removeprefix(prefix): v for k, v in os.environ.items() if k.startswith(prefix) and k != prefix}
        return found | await super().get_secrets(namespace)

    async def delete_secret(self, namespace: str, key: str) -> None:
        if f"{self._prefix}{namespace.upper()}_{key}" in os.environ:
            raise ValueError(f"{key} is a variable of this process: unset it there")
        await super().delete_secret(namespace, key)


def mask(text: str, values: Iterable[str]) -> str:
    """Replaces values, also in their usual encodings. Code that wants to show a secret can still do so."""
    forms: set[str] = set()
    for value in values:
        if len(value) >= _SHORTEST:
            data = value.encode(errors="surrogateescape")
            forms |= {value, repr(value)[1:-1], data.hex(), urllib.parse.quote(data, safe="")}
            forms.add(base64.b64encode(data).decode())
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text
