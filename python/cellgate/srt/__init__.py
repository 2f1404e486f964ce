"""sandbox-runtime's (srt's) interface on cellgate: programs written for its Python port run with other import lines.

    from cellgate.srt import SandboxManager, SandboxRuntimeConfig

    config = SandboxRuntimeConfig(
        network={"allowed_domains": ["packages.example.org"]},
        filesystem={"allow_write": ["."], "deny_read": ["~/.ssh"]},
    )
    await SandboxManager.initialize(config)
    wrapped = await SandboxManager.wrap_with_sandbox("curl https://example.org")
    result = subprocess.run(wrapped, shell=True, capture_output=True, text=True)
    print(SandboxManager.annotate_stderr_with_sandbox_failures("curl https://example.org", result.stderr))
    await SandboxManager.reset()

Differences from srt are listed in docs/python-package.md.
"""

from cellgate.srt.config import (
    FilesystemConfig,
    IgnoreViolationsConfig,
    NetworkConfig,
    ResourceLimitsConfig,
    RipgrepConfig,
    SandboxRuntimeConfig,
    ValidationError,
)
from cellgate.srt.manager import SandboxManager
from cellgate.srt.sandbox_utils import get_default_write_paths
from cellgate.srt.schemas import (
    FsReadRestrictionConfig,
    FsWriteRestrictionConfig,
    NetworkHostPattern,
    NetworkRestrictionConfig,
    SandboxAskCallback,
)
from cellgate.srt.violation_store import SandboxViolationEvent, SandboxViolationStore

__all__ = [
    "FilesystemConfig",
    "FsReadRestrictionConfig",
    "FsWriteRestrictionConfig",
    "IgnoreViolationsConfig",
    "NetworkConfig",
    "NetworkHostPattern",
    "NetworkRestrictionConfig",
    "ResourceLimitsConfig",
    "RipgrepConfig",
    "SandboxAskCallback",
    "SandboxManager",
    "SandboxRuntimeConfig",
    "SandboxViolationEvent",
    "SandboxViolationStore",
    "ValidationError",
    "get_default_write_paths",
]
