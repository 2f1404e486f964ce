"""The names of this folder under the path of another Python port of srt, 1xn-vmcp's: `config.schemas`."""

from cellgate.srt.config import (
    FilesystemConfig,
    IgnoreViolationsConfig,
    NetworkConfig,
    ResourceLimitsConfig,
    RipgrepConfig,
    SandboxRuntimeConfig,
    ValidationError,
)

__all__ = [
    "FilesystemConfig",
    "IgnoreViolationsConfig",
    "NetworkConfig",
    "ResourceLimitsConfig",
    "RipgrepConfig",
    "SandboxRuntimeConfig",
    "ValidationError",
]
