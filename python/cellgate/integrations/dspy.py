# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""DSPy: an interpreter for RLM, CodeAct and ProgramOfThought; tools stay in this program.

    dspy.configure(interpreter_factory=lambda: CellgateInterpreter(workspace="/path/to/workspace"))

`approve` decides about MCP tools and connections, which are refused without it. DSPy's tools run
without a question; their arguments and results are JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput

from cellgate import Approve, CellgateError, Session, Status
from cellgate.integrations._globals import Globals
from cellgate.integrations._text import CELL_OUTPUT_MAX, plain


class CellgateInterpreter:
    execution_instructions = (
        "Code runs as Python in a sandboxed IPython kernel. State, imports and functions persist. "
        "Host tools and SUBMIT are global functions; their arguments and results are JSON."
    )

    def __init__(
        self,
        tools: dict[str, Callable[..., Any]] | None = None,
        output_fields: list[dict[str, Any]] | None = None,
        *,
        approve: Approve | None = None,
        timeout: float | None = None,
        **session_options: Any,
    ) -> None:
        """`timeout`: of each execution, in seconds, without waits for tools. Other options: as of cellgate.Session."""
        self.tools: dict[str, Callable[..., Any]] = dict(tools or {})
        self.output_fields = output_fields
        self._approve = approve
        self._timeout = timeout
        self._options = {"output_bytes": CELL_OUTPUT_MAX, **session_options}
        self._globals: Globals | None = None
        self._installed: Any = None
        self._ended = False

    @property
    def session(self) -> Session:
        """Of the interpreter, once it has been started."""
        if self._globals is None:
            raise CodeInterpreterError("the interpreter has not been started")
        return self._globals.session

    def start(self) -> None:
        if self._ended:
            raise CodeInterpreterError("the interpreter has been shut down")
        if self._globals is None:
            try:
                self._globals = Globals(Session(**self._options), "dspy", "SUBMIT")
            except CellgateError as e:
                raise CodeInterpreterError(str(e)) from e

    def execute(self, code: str, variables: Mapping[str, Any] | None = None) -> Any:
        self.start()
        assert self._globals
        if taken := {"SUBMIT", *self.tools} & (variables or {}).keys():
            raise CodeInterpreterError(f"variables have the names of tools: {', '.join(sorted(taken))}")
        try:
            wanted = (dict(self.tools), self.output_fields)
            if wanted != self._installed:
                self._globals.install(self.tools, self._submit())
                self._installed = wanted
            if variables:
                self._globals.set_variables(variables)
            execution, final = self._globals.run(code, approve=self._approve, timeout=self._timeout)
        except (CellgateError, TypeError, ValueError) as e:
            raise CodeInterpreterError(str(e)) from e
        if final:
            return FinalOutput(final[0])
        if execution.status is Status.KERNEL_DIED:
            self.shutdown()
            raise CodeInterpreterError(plain(execution.text))
        if execution.status is Status.ERROR and (error := execution.error):
            if error.ename in ("SyntaxError", "IndentationError", "TabError"):
                raise SyntaxError(plain(error.evalue))
            raise CodeExecutionError(plain(str(error)))
        if not execution.ok:
            raise CodeExecutionError(plain(execution.report))
        return plain(execution.output).rstrip("\n") or None

    def shutdown(self) -> None:
        self._ended = True
        if self._globals:
            self._globals.session.close()

    def __enter__(self) -> CellgateInterpreter:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()

    def _submit(self) -> Callable[..., Any]:
        """SUBMIT() with the output fields as parameters."""
        names = ["output"] if self.output_fields is None else [str(field["name"]) for field in self.output_fields]

        def submit(**fields: Any) -> dict[str, Any]:
            return fields

        parameters = [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
        submit.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return submit
