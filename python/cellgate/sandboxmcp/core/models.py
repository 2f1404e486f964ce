"""Requests, results, and what is recorded about them."""

from __future__ import annotations

import base64
import hashlib
import uuid
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field


def new_id() -> str:
    return str(uuid.uuid4())


def now() -> datetime:
    return datetime.now(UTC)


class Language(StrEnum):
    python = "python"
    node = "node"
    shell = "shell"


class BackendType(StrEnum):
    """Both are the same sandbox."""

    process = "process"
    docker = "docker"


class SessionStatus(StrEnum):
    idle = "idle"
    running = "running"
    completed = "completed"
    failed = "failed"
    killed = "killed"


class ResourceLimits(BaseModel):
    """Of one execution. Limits that are not given are those of the sandbox, not the defaults of this class."""

    max_ram_mb: int = 1024
    max_cpu_cores: float = 1
    timeout_seconds: float = 60
    max_processes: int = 10
    max_output_bytes: int = 1_000_000


class ExecutionRequest(BaseModel):
    """`allowed_domains` is a request for the network, which the guard decides about."""

    id: str = Field(default_factory=new_id)
    code: str = Field(min_length=1)
    language: Language = Language.python
    session_id: str | None = None
    packages: list[str] = []
    env_vars: dict[str, str] = {}
    allowed_domains: list[str] = []
    resource_limits: ResourceLimits | None = None
    namespace: str = "default"
    agent_id: str = ""
    metadata: dict[str, Any] = {}


class Artifact(BaseModel):
    """A file that an execution has made. Where it is too large, `content_b64` is empty and `uri` names a resource."""

    name: str
    content_b64: str = ""
    size_bytes: int = 0
    sha256: str = ""
    signature: str = ""
    uri: str = ""
    created_at: datetime = Field(default_factory=now)

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> Artifact:
        digest = hashlib.sha256(data).hexdigest()
        return cls(name=name, content_b64=base64.b64encode(data).decode(), size_bytes=len(data), sha256=digest)

    def verify(self, expected_hash: str) -> bool:
        """Whether the content has this hash; without content, whether `sha256` is it."""
        digest = hashlib.sha256(base64.b64decode(self.content_b64)).hexdigest() if self.content_b64 else self.sha256
        return digest == self.sha256 == expected_hash.lower()


class SandboxResult(BaseModel):
    request_id: str = Field(default_factory=new_id)
    success: bool = True
    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    duration_ms: float = 0
    language: Language = Language.python
    artifacts: list[Artifact] = []
    resource_usage: dict[str, Any] = {}
    namespace: str = "default"
    metadata: dict[str, Any] = {}


class Session(BaseModel):
    id: str = Field(default_factory=new_id)
    language: Language = Language.python
    backend: BackendType = BackendType.process
    status: SessionStatus = SessionStatus.idle
    created_at: datetime = Field(default_factory=now)
    last_activity: datetime = Field(default_factory=now)
    resource_limits: ResourceLimits = ResourceLimits()
    namespace: str = "default"
    metadata: dict[str, Any] = {}


class ValidationSeverity(StrEnum):
    error = "error"
    warning = "warning"
    info = "info"


class ValidationVerdict(StrEnum):
    passed = "pass"
    fixed = "fixed"
    rejected = "reject"


class SyntaxIssue(BaseModel):
    line: int = 0
    col: int = 0
    message: str = ""
    severity: ValidationSeverity = ValidationSeverity.error


class ValidationResult(BaseModel):
    valid: bool = True
    verdict: ValidationVerdict = ValidationVerdict.passed
    issues: list[SyntaxIssue] = []
    fixes_applied: list[str] = []
    original_code: str = ""
    fixed_code: str = ""
    language: Language = Language.python
    notice: str = ""

    @property
    def was_fixed(self) -> bool:
        return self.verdict is ValidationVerdict.fixed

    def summary(self) -> str:
        found = f" {len(self.issues)} issue(s)" if self.issues else ""
        fixed = f" {len(self.fixes_applied)} fix(es) applied" if self.fixes_applied else ""
        return f"[{self.verdict.upper()}]{found}{fixed}"


class AuditAction(StrEnum):
    execute = "execute"
    install_package = "install_package"
    create_session = "create_session"
    kill_session = "kill_session"
    vault_access = "vault_access"
    egress_request = "egress_request"
    egress_denied = "egress_denied"
    resource_exceeded = "resource_exceeded"
    timeout = "timeout"
    artifact_signed = "artifact_signed"


class AuditEntry(BaseModel):
    id: str = Field(default_factory=new_id)
    timestamp: datetime = Field(default_factory=now)
    action: AuditAction
    request_id: str = ""
    language: Language | None = None
    exit_code: int = 0
    duration_ms: float = 0
    success: bool = True
    detail: str = ""
    namespace: str = "default"
