"""ipybox's interface on cellgate: programs written for ipybox 0.9 run with their import lines changed.

    from cellgate.ipybox import ApprovalRequest, CodeExecutionResult, CodeExecutor, generate_mcp_sources

Differences from ipybox are listed in docs/python-package.md.
"""

from cellgate.ipybox.approvals import ApprovalRequest
from cellgate.ipybox.code_exec import CodeExecutionChunk, CodeExecutionError, CodeExecutionResult, CodeExecutor
from cellgate.ipybox.kernel_mgr.client import ExecutionError, ExecutionResult, KernelClient
from cellgate.ipybox.kernel_mgr.server import KernelGateway
from cellgate.ipybox.sources import generate_mcp_sources

__all__ = [
    "ApprovalRequest",
    "CodeExecutionChunk",
    "CodeExecutionError",
    "CodeExecutionResult",
    "CodeExecutor",
    "ExecutionError",
    "ExecutionResult",
    "KernelClient",
    "KernelGateway",
    "generate_mcp_sources",
]
