"""Checks of code: cellgate.validate, and what people look for in code that they have not written.

They protect nothing: code can do the same in other words. The sandbox is what holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from cellgate import aio
from cellgate._checker import URL
from cellgate.sandboxmcp.core.models import (
    Language,
    SyntaxIssue,
    ValidationResult,
    ValidationSeverity,
    ValidationVerdict,
)
from cellgate.validate import Validation, validate_code, validate_code_async


class CodeValidator:
    """`auto_fix_enabled`: missing imports are added. `reject_dangerous`: security warnings are errors."""

    def __init__(self, auto_fix_enabled: bool = True, reject_dangerous: bool = False) -> None:
        self.auto_fix_enabled, self.reject_dangerous = auto_fix_enabled, reject_dangerous

    def validate(self, code: str, language: Language = Language.python) -> ValidationResult:
        return self._result(code, language, validate_code(code, str(language), dangers=True))

    async def check(
        self, code: str, language: Language, session: aio.Session, hosts: Sequence[str]
    ) -> ValidationResult:
        """The same for asyncio, in a session that the check may use."""
        found = await validate_code_async(code, str(language), session, hosts=hosts, dangers=True)
        return self._result(code, language, found)

    @staticmethod
    def extract_domains(code: str) -> list[str]:
        """Hosts of URLs in the text. Nothing is allowed by it."""
        return sorted({match[1].lower() for match in URL.finditer(code)})

    def _result(self, code: str, language: Language, found: Validation) -> ValidationResult:
        issues, dangers = [], 0
        mark = "Security warning (AST): " if language is Language.python else "Security warning: "
        for i in found["issues"]:
            message = i["message"].replace("Syntax error:", "SyntaxError:", 1)
            if i["rule"] == "danger":
                dangers, message = dangers + 1, mark + message
            severity = ValidationSeverity(i["severity"])
            issues.append(SyntaxIssue(line=i["line"], col=i["col"], message=message, severity=severity))
        fixed = found["fixed_code"] if self.auto_fix_enabled else None
        valid = found["valid"] and not (dangers and self.reject_dangerous)
        return ValidationResult(
            valid=valid,
            verdict=ValidationVerdict("reject" if not valid else "fixed" if fixed else "pass"),
            issues=issues,
            fixes_applied=found["fixes_applied"] if fixed else [],
            original_code=code,
            fixed_code=fixed or code,
            language=language,
            notice=found["notice"],
        )
