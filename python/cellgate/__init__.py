"""Run an agent's Python in a sandboxed kernel that stops, alive, at every tool call until this program says yes.

    import cellgate

    with cellgate.Session("/path/to/workspace") as session:
        print(session.run("1 + 1").value)

`Session` blocks; `cellgate.aio.Session` is the same for asyncio.
"""

from typing import TYPE_CHECKING

from cellgate._core import Client, events, list_runtimes
from cellgate._errors import (
    AlreadyExistsError,
    BusyError,
    CellError,
    CellgateError,
    ClosedError,
    ForkedError,
    InvalidArgumentError,
    LimitExceededError,
    NotFoundError,
    TimedOutError,
    UnsupportedError,
    VariableError,
)
from cellgate._events import (
    ApprovalClosed,
    ApprovalRequest,
    Artifact,
    ClearOutput,
    Comm,
    CommandOutput,
    CommandResult,
    DebugEvent,
    Denied,
    Display,
    DisplayUpdate,
    EgressRequest,
    Error,
    Event,
    ExecuteInput,
    ExecuteResult,
    Execution,
    FunctionCall,
    InputClosed,
    InputRequest,
    KernelDied,
    Notice,
    Progress,
    Reply,
    Result,
    ServerRequest,
    SessionClosed,
    Status,
    Stream,
    UnknownEvent,
    protected_name,
    render,
)
from cellgate._session import Approve, Cell, Command, Completed, Files, Session
from cellgate._sync import Sync

if TYPE_CHECKING:
    from cellgate import aio

__all__ = [
    "AlreadyExistsError",
    "ApprovalClosed",
    "ApprovalRequest",
    "Approve",
    "Artifact",
    "BusyError",
    "Cell",
    "CellError",
    "CellgateError",
    "ClearOutput",
    "Client",
    "ClosedError",
    "Comm",
    "Command",
    "CommandOutput",
    "CommandResult",
    "Completed",
    "DebugEvent",
    "Denied",
    "Display",
    "DisplayUpdate",
    "EgressRequest",
    "Error",
    "Event",
    "ExecuteInput",
    "ExecuteResult",
    "Execution",
    "Files",
    "ForkedError",
    "FunctionCall",
    "InputClosed",
    "InputRequest",
    "InvalidArgumentError",
    "KernelDied",
    "LimitExceededError",
    "NotFoundError",
    "Notice",
    "Progress",
    "Reply",
    "Result",
    "ServerRequest",
    "Session",
    "SessionClosed",
    "Status",
    "Stream",
    "Sync",
    "TimedOutError",
    "UnknownEvent",
    "UnsupportedError",
    "VariableError",
    "aio",
    "events",
    "list_runtimes",
    "protected_name",
    "render",
]


def __getattr__(name: str) -> object:
    """`cellgate.aio` without an import of its own; asyncio is loaded only then."""
    if name == "aio":
        import importlib

        return importlib.import_module("cellgate.aio")
    raise AttributeError(f"module 'cellgate' has no attribute {name!r}")
