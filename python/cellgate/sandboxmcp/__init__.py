"""The interface of sandboxmcp 1.1 on cellgate's sandbox: a program runs after its import lines were changed.

See docs/surfaces.md for what differs. `cellgate mcp serve --compat sandboxmcp` has its MCP tools.
"""

from cellgate.sandboxmcp.core.models import (
    Artifact,
    AuditAction,
    AuditEntry,
    BackendType,
    ExecutionRequest,
    Language,
    ResourceLimits,
    SandboxResult,
    Session,
    SessionStatus,
    SyntaxIssue,
    ValidationResult,
    ValidationSeverity,
    ValidationVerdict,
)
from cellgate.sandboxmcp.events import SandboxEvent, SandboxEventBus, SandboxEventType, sandbox_event_bus
from cellgate.sandboxmcp.factory import SandboxFactory
from cellgate.sandboxmcp.pipeline import SandboxPipeline
from cellgate.sandboxmcp.security.crypto import ArtifactSigner
from cellgate.sandboxmcp.security.egress import NetworkGuard
from cellgate.sandboxmcp.security.validator import CodeValidator
from cellgate.sandboxmcp.security.vault import InMemoryVault

__all__ = [
    "Artifact",
    "ArtifactSigner",
    "AuditAction",
    "AuditEntry",
    "BackendType",
    "CodeValidator",
    "ExecutionRequest",
    "InMemoryVault",
    "Language",
    "NetworkGuard",
    "ResourceLimits",
    "SandboxEvent",
    "SandboxEventBus",
    "SandboxEventType",
    "SandboxFactory",
    "SandboxPipeline",
    "SandboxResult",
    "Session",
    "SessionStatus",
    "SyntaxIssue",
    "ValidationResult",
    "ValidationSeverity",
    "ValidationVerdict",
    "sandbox_event_bus",
]
