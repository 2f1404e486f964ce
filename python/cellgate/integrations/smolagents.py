# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""smolagents: runs the code of a CodeAgent; the agent's tools stay in this program.

    with cellgate.Session("/path/to/workspace") as session:
        agent = CodeAgent(tools=[...], model=model, executor=CellgateExecutor(session))

`approve` decides about MCP tools and connections, which are refused without it. The agent's own tools
run without a question, as in smolagents. Their arguments and results are JSON.
"""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor

from cellgate import Approve, Session, Status
from cellgate.integrations._globals import Globals
from cellgate.integrations._text import plain, shown

_TYPES: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": float,
    "array": list,
    "object": dict,
    "null": None,
}


class CellgateExecutor(PythonExecutor):
    def __init__(self, session: Session, *, approve: Approve | None = None, timeout: float | None = 30 * 60) -> None:
        """`timeout`: of each piece of code, in seconds, without waits for decisions and tools."""
        self._globals = Globals(session, "smolagents", "final_answer")
        self._approve = approve
        self._timeout = timeout
        self.images: list[bytes] = []
        """Those that the last piece of code has shown."""

    def send_tools(self, tools: dict[str, Any]) -> None:
        functions = {name: _function(tool) for name, tool in tools.items()}
        final = functions.pop("final_answer", None) or (lambda answer: answer)
        self._globals.install(functions, final)

    def send_variables(self, variables: dict[str, Any]) -> None:
        if variables:
            self._globals.set_variables(variables)

    def __call__(self, code_action: str) -> CodeOutput:
        execution, final = self._globals.run(code_action, approve=self._approve, timeout=self._timeout)
        _, self.images = shown(execution)
        logs = plain(execution.stdout + execution.stderr)
        if final:
            value = plain(final[0]) if isinstance(final[0], str) else final[0]
            return CodeOutput(output=value, logs=logs, is_final_answer=True)
        if not execution.ok:
            if execution.status is Status.ERROR and execution.error:
                why = plain(str(execution.error))
            else:
                why = f"the code did not end well ({execution.status}): {plain(execution.text)}"
            raise InterpreterError(f"{logs}\n{why}" if logs else why)
        value = None if execution.value is None else plain(execution.value)
        return CodeOutput(output=value, logs=logs, is_final_answer=False)


def _function(tool: Any) -> Any:
    """A function with the signature that the tool's `inputs` describe."""

    def call(**fields: Any) -> Any:
        return tool(**fields)

    parameters = []
    for name, spec in tool.inputs.items():
        kind = spec.get("type")
        annotation = _TYPES.get(kind, Any) if isinstance(kind, str) else Any
        optional = bool(spec.get("nullable"))
        if optional and annotation is not Any:
            annotation = annotation | None
        call.__annotations__[name] = annotation
        default = None if optional else Parameter.empty
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__doc__ = tool.description
    return call
