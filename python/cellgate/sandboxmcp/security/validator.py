"""Checks of code: cellgate.validate, and what people look for in code that they have not written.

They protect nothing: code can do the same in other words. The sandbox is what holds.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from cellgate._checker import URL, dotted
from cellgate.sandboxmcp.core.models import (
    Language,
    SyntaxIssue,
    ValidationResult,
    ValidationSeverity,
    ValidationVerdict,
)
from cellgate.validate import Validation, validate_code, validate_code_async

_NAMES = {
    "exec": "exec() runs text as code",
    "eval": "eval() runs text as code",
    "compile": "compile() makes code of text",
    "__import__": "__import__() imports a module by a computed name",
    "__builtins__": "__builtins__ is used, which is how exec and eval are reached by obfuscation",
}
_CALLS = {
    "os.system": "starts a shell",
    "os.popen": "starts a shell",
    "os.remove": "removes a file",
    "os.unlink": "removes a file",
    "shutil.rmtree": "removes a folder with all that it contains",
}
_MODULES = {"ctypes": "native code", "pickle": "runs code of the data that it loads", "socket": "the network"}
_SYSTEM_FILES = ("/etc/passwd", "/etc/shadow", "/etc/sudoers")
_SHELL = (
    (r"\bcurl\b[^|\n]*\|\s*(?:ba|z|da)?sh\b", "piping curl to shell"),
    (r"\bwget\b[^|\n]*\|\s*(?:ba|z|da)?sh\b", "piping wget to shell"),
    (r"\b(?:ba)?sh\s+-c\b", "sh -c runs text as code"),
    (r"\bnc\b(?:\s+-\w+)*\s+-\w*[le]", "netcat listener"),
    (r"\brm\s+-(?:rf|fr)\s+/", "rm -rf of an absolute path"),
    (r"\bchown\s+-R\b", "recursive chown"),
    (r"\bchmod\s+(?:-R\s+)?777\b", "chmod 777"),
    (r">\s*/dev/(?:sd|hd|nvme|vd)", "writing to raw device"),
    (r"\bdd\s+.*\bof=/dev/", "dd to a device"),
    (r"\bmkfs\b", "mkfs makes a file system"),
    (r"\bkill\s+-9\s+-1\b", "kill all processes"),
    (r"\bcrontab\s+-r\b", "crontab removal"),
    (r"(\S{1,64})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1", "fork bomb"),
)
_NODE = (
    (r"\beval\s*\(", "eval() runs text as code"),
    (r"\bnew\s+Function\s*\(", "Function() constructor runs text as code"),
    (r"\brequire\s*\(\s*['\"](?:node:)?child_process['\"]", "require('child_process') starts programs"),
    (r"\bprocess\.exit\b", "process.exit ends the program"),
    (r"\bfs\.unlink(?:Sync)?\s*\(", "fs.unlinkSync() removes a file"),
    (r"\bfs\.(?:rmdir|rm)(?:Sync)?\s*\(", "fs.rmdirSync() removes a folder"),
    (r"\bsetTimeout\s*\(\s*['\"]", "setTimeout with string argument"),
    (r"\bsetInterval\s*\(\s*['\"]", "setInterval with string argument"),
)


class CodeValidator:
    """`auto_fix_enabled`: missing imports are added. `reject_dangerous`: security warnings are errors."""

    def __init__(self, auto_fix_enabled: bool = True, reject_dangerous: bool = False) -> None:
        self.auto_fix_enabled, self.reject_dangerous = auto_fix_enabled, reject_dangerous

    def validate(self, code: str, language: Language = Language.python) -> ValidationResult:
        return self._result(code, language, validate_code(code, str(language)))

    async def check(self, code: str, language: Language, hosts: list[str]) -> ValidationResult:
        """The same for asyncio."""
        return self._result(code, language, await validate_code_async(code, str(language), hosts=hosts))

    @staticmethod
    def extract_domains(code: str) -> list[str]:
        """Hosts of URLs in the text. Nothing is allowed by it."""
        return sorted({match[1].lower() for match in URL.finditer(code)})

    def _result(self, code: str, language: Language, found: Validation) -> ValidationResult:
        issues = [
            SyntaxIssue(
                line=i["line"],
                col=i["col"],
                message=i["message"].replace("Syntax error:", "SyntaxError:", 1),
                severity=ValidationSeverity(i["severity"]),
            )
            for i in found["issues"]
        ]
        dangers = [
            SyntaxIssue(line=line, message=f"Security warning{text}", severity=ValidationSeverity.warning)
            for line, text in sorted(set(_dangers(code, language)))
        ]
        fixed = found["fixed_code"] if self.auto_fix_enabled else None
        valid = found["valid"] and not (dangers and self.reject_dangerous)
        return ValidationResult(
            valid=valid,
            verdict=ValidationVerdict("reject" if not valid else "fixed" if fixed else "pass"),
            issues=issues + dangers,
            fixes_applied=found["fixes_applied"] if fixed else [],
            original_code=code,
            fixed_code=fixed or code,
            language=language,
            notice=found["notice"],
        )


def _dangers(code: str, language: Language) -> Iterator[tuple[int, str]]:
    if language is not Language.python:
        for pattern, text in _SHELL if language is Language.shell else _NODE:
            for match in re.finditer(pattern, code):
                yield code.count("\n", 0, match.start()) + 1, f": {text}"
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in nodes:
        for text in _python(node):
            yield getattr(node, "lineno", 1), f" (AST): {text}"


def _python(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id in _NAMES:
        yield _NAMES[node.id]
    elif isinstance(node, ast.Import):
        yield from (f"{a.name}: {_MODULES[a.name]}" for a in node.names if a.name in _MODULES)
    elif isinstance(node, ast.ImportFrom) and node.module in _MODULES:
        yield f"{node.module}: {_MODULES[node.module]}"
    elif isinstance(node, ast.Call):
        name = ".".join((dotted(node.func) or ([], node))[0])
        if name in _CALLS:
            yield f"{name}() {_CALLS[name]}"
        if any(k.arg == "shell" and isinstance(k.value, ast.Constant) and k.value.value is True for k in node.keywords):
            yield f"{name}() with shell=True starts a shell"
    elif isinstance(node, ast.Constant) and node.value in _SYSTEM_FILES:
        yield f"{node.value}: system files"
