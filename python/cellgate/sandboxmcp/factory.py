"""SandboxFactory: pipelines by the document's parameters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from cellgate.sandboxmcp.backends.docker_rt import DockerBackend
from cellgate.sandboxmcp.backends.process_rt import ProcessBackend
from cellgate.sandboxmcp.core.models import ResourceLimits
from cellgate.sandboxmcp.pipeline import SandboxPipeline
from cellgate.sandboxmcp.security.egress import NetworkGuard
from cellgate.sandboxmcp.security.vault import EnvVault, InMemoryVault

_PATH = "sandboxmcp.db"


class SandboxFactory:
    """Errors are ValueError with the name of the parameter."""

    @classmethod
    def default(cls) -> SandboxPipeline:
        return cls.create()

    @classmethod
    def create(
        cls,
        default_backend: str = "process",
        max_concurrent_jobs: int = 4,
        enable_network: bool = False,
        allowed_domains: Iterable[str] | None = None,
        vault: str = "memory",
        audit: str = "memory",
        max_ram_mb: int = 512,
        max_cpu_cores: float = 1,
        timeout_seconds: float = 60,
        max_processes: int = 10,
        sqlite_path: str = _PATH,
        session_options: Mapping[str, Any] | None = None,
        **backend_options: Any,
    ) -> SandboxPipeline:
        """`audit="sqlite"` records in cellgate's signed log. `backend_options` are those of DockerBackend."""
        for name, value, known in (
            ("default_backend", default_backend, ("process", "docker")),
            ("vault", vault, ("memory", "env")),
            ("audit", audit, ("memory", "sqlite")),
        ):
            if value not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}")
        if sqlite_path != _PATH:
            raise ValueError("sqlite_path: the log is signed and has its own place (cellgate audit)")
        limits: dict[str, Any] = {"max_ram_mb": max_ram_mb, "max_cpu_cores": max_cpu_cores}
        backend = ProcessBackend()
        if default_backend == "docker":
            docker = DockerBackend(**backend_options)
            limits, backend = docker.limits, docker
        elif backend_options:
            raise ValueError(f"{next(iter(backend_options))} is no parameter of the backend {default_backend}")
        return SandboxPipeline(
            backend,
            EnvVault() if vault == "env" else InMemoryVault(),
            NetworkGuard(enable_network, allowed_domains),
            resource_limits=ResourceLimits(timeout_seconds=timeout_seconds, max_processes=max_processes, **limits),
            max_concurrent_jobs=max_concurrent_jobs,
            session_options={"audit": "strict" if audit == "sqlite" else None, **(session_options or {})},
        )

    @classmethod
    def from_env(cls, **more: Any) -> SandboxPipeline:
        """The document's variables SANDBOXMCP_*."""
        return cls.create(**{**parameters(os.environ), **more})

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str], **more: Any) -> SandboxPipeline:
        """The parameters of create() in a file."""
        import yaml  # type: ignore[import-untyped, unused-ignore]

        with open(path, encoding="utf-8") as file:
            found = yaml.safe_load(file) or {}
        if not isinstance(found, dict):
            raise ValueError(f"{path}: not a mapping of parameters")
        known = set(cls.create.__annotations__) - {"session_options", "return"} | {"memory_limit", "cpu_period"}
        known |= {"cpu_quota", "network_mode", "image", "hardened"}
        if unknown := sorted(set(found) - known):
            raise ValueError(f"{path}: {unknown[0]} is no parameter")
        return cls.create(**{**found, **more})


_VARIABLES = {
    "SANDBOXMCP_BACKEND": ("default_backend", str),
    "SANDBOXMCP_MAX_CONCURRENT": ("max_concurrent_jobs", int),
    "SANDBOXMCP_NETWORK": ("enable_network", bool),
    "SANDBOXMCP_VAULT": ("vault", str),
    "SANDBOXMCP_AUDIT": ("audit", str),
    "SANDBOXMCP_MAX_RAM_MB": ("max_ram_mb", int),
    "SANDBOXMCP_TIMEOUT": ("timeout_seconds", int),
    "SANDBOXMCP_SQLITE_PATH": ("sqlite_path", str),
}


def parameters(env: Mapping[str, str]) -> dict[str, Any]:
    """Parameters of create() that variables set."""
    found: dict[str, Any] = {"audit": "sqlite"}
    for variable, (name, kind) in _VARIABLES.items():
        text = env.get(variable)
        if text is None:
            continue
        if kind is bool and text.lower() not in ("true", "false"):
            raise ValueError(f"{variable}={text}: true or false")
        if kind is int and (not text.isdecimal() or not 0 < int(text) < 1_000_000):
            raise ValueError(f"{variable}={text}: a whole number from 1")
        found[name] = text.lower() == "true" if kind is bool else kind(text)
    return found
