# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""pydantic-ai: code mode, in which the model writes Python that calls the agent's tools.

    async with cellgate.aio.Session("/path/to/workspace") as session:
        agent = Agent(model, tools=[...], capabilities=[CellgateCodeMode(session)])

The tools stay in this program; what they take and return is JSON. pydantic-ai asks about calls that need
approval as without code mode, by the capability HandleDeferredToolCalls; without one they are refused.
`approve` decides about MCP tools and connections of the session, which are refused without it.
"""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from keyword import iskeyword
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_ai import BinaryContent, RunContext, ToolDefinition, WrapperToolset
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, UsageLimitExceeded, UserError
from pydantic_ai.function_signature import FunctionSignature
from pydantic_ai.messages import ToolCallPart, ToolReturn
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import ToolDenied, ToolSelector, matches_tool_selector
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import SchemaValidator, core_schema, to_jsonable_python

from cellgate.aio import Approve, Session
from cellgate.integrations._globals import AsyncGlobals
from cellgate.integrations._text import shown

RUN_CODE = "run_code"
DESCRIPTION = """Runs Python in a sandboxed IPython kernel whose state persists, and returns what it prints,
its last expression's value and its images. Code calls these functions, without await, with JSON values by name:\n\n"""
SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
_FIELDS = {"code": core_schema.typed_dict_field(core_schema.str_schema())}
# Agents may share a session: its functions are those of the cell that runs.
_globals: WeakKeyDictionary[Session, AsyncGlobals] = WeakKeyDictionary()
_busy: ContextVar[tuple[Session, ...]] = ContextVar("_busy", default=())


@dataclass
class CellgateCodeMode(AbstractCapability[Any]):
    """Replaces the agent's tools by one that runs code, which calls them one after another."""

    session: Session
    approve: Approve | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=30 * 60, kw_only=True)
    """Of each piece of code, in seconds, without waits for decisions and tools."""
    max_tool_calls: int = field(default=100, kw_only=True)
    """Of each piece of code."""
    tools: ToolSelector[Any] = field(default="all", kw_only=True)
    """The tools that code calls; the model calls the others."""

    def __post_init__(self) -> None:
        self._globals = _globals.setdefault(self.session, AsyncGlobals("agent"))

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _Toolset(toolset, self)

    async def run(self, code: str, tools: dict[str, ToolDefinition], manager: ToolManager[Any]) -> Any:
        """Runs a piece of code that calls @tools by @manager."""
        if self.session in _busy.get():
            raise ModelRetry("a tool that code calls cannot run code in the same session")
        turn, calls, ends = asyncio.Lock(), 0, list[UsageLimitExceeded]()

        async def call(name: str, fields: dict[str, Any]) -> Any:
            nonlocal calls
            calls += 1
            if calls > self.max_tool_calls:
                raise RuntimeError(f"the code has called {self.max_tool_calls} tools, which is the limit")
            _busy.set((*_busy.get(), self.session))
            async with turn:
                try:
                    return await _call_tool(manager, tools[name].name, fields)
                except UsageLimitExceeded as e:
                    ends.append(e)  # of the agent's run, whatever the code makes of it
                    raise

        more: dict[str, Any] = {"approve": self.approve, "timeout": self.timeout}
        execution = await self._globals.run(self.session, code, list(tools), call, **more)
        if ends:
            raise ends[0]
        text, images = shown(execution)
        return [text, *(BinaryContent(i, media_type="image/png") for i in images)] if images else text


async def _call_tool(manager: ToolManager[Any], name: str, fields: dict[str, Any]) -> Any:
    """Calls a tool as the agent would. An exception: it was refused, or has failed."""
    if (ctx := manager.ctx) and ctx.usage_limits:  # this call and that of run_code count when they have ended
        ctx.usage_limits.check_before_tool_call(replace(ctx.usage, tool_calls=ctx.usage.tool_calls + 2))
    try:
        value = await manager.handle_call(ToolCallPart(name, fields), wrap_validation_errors=False)
    except (ApprovalRequired, CallDeferred):
        raise PermissionError("the call needs a decision, and the agent has no HandleDeferredToolCalls") from None
    if isinstance(value, ToolDenied):
        raise PermissionError(value.message)
    return to_jsonable_python(value.return_value if isinstance(value, ToolReturn) else value)


@dataclass(kw_only=True)
class _RunCode(ToolsetTool[Any]):
    inside: dict[str, ToolDefinition]
    wrapped: dict[str, ToolsetTool[Any]]


@dataclass
class _Toolset(WrapperToolset[Any]):
    mode: CellgateCodeMode

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await self.wrapped.get_tools(ctx)
        if RUN_CODE in tools:
            raise UserError(f"another tool has the name {RUN_CODE!r}")
        inside: dict[str, ToolDefinition] = {}
        for own in [tool.tool_def for tool in tools.values()]:
            special = own.kind == "external" or own.tool_kind or own.unless_native
            if special or "code_arg_name" in (own.metadata or ()) or not ctx.is_tool_available(own):
                continue
            if await matches_tool_selector(self.mode.tools, ctx, own):
                function = re.sub(r"\W", "_", own.name, flags=re.ASCII)
                function = f"_{function}" if function[:1].isdigit() or iskeyword(function) else function
                if function in inside or function == RUN_CODE:
                    raise UserError(f"code cannot call the tool {own.name!r}: another function has this name")
                inside[function] = own
        shapes = {name: (own.function_signature, own.description) for name, own in inside.items()}
        same = FunctionSignature.get_conflicting_type_names([shape for shape, _ in shapes.values()])
        parts = FunctionSignature.render_type_definitions([shape for shape, _ in shapes.values()], same)
        for name, (shape, doc) in shapes.items():
            parts.append(shape.render("...", name=name, description=doc, is_async=False, conflicting_type_names=same))
        run_code = ToolDefinition(name=RUN_CODE, parameters_json_schema=SCHEMA, sequential=True)
        run_code.description = DESCRIPTION + "\n\n".join(parts)
        run_code.metadata = {"code_arg_name": "code", "code_arg_language": "python"}
        validator = SchemaValidator(core_schema.typed_dict_schema(_FIELDS))
        tool = _RunCode(
            toolset=self, tool_def=run_code, max_retries=3, args_validator=validator, inside=inside, wrapped=tools
        )
        return {
            **{name: other for name, other in tools.items() if other.tool_def not in inside.values()},
            RUN_CODE: tool,
        }

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> Any:
        if not isinstance(tool, _RunCode):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        root = ctx.tool_manager.root_capability if ctx.tool_manager else None
        return await self.mode.run(tool_args["code"], tool.inside, ToolManager(self.wrapped, root, ctx, tool.wrapped))
