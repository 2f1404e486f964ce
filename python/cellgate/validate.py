"""Checks code before it runs: syntax, missing imports, and what the sandbox will refuse.

    validate_code("print(json.dumps({}))")["fixed_code"]    # "import json\\nprint(json.dumps({}))"

The check runs in a process of the sandbox that ends with it, and never runs the code. It protects nothing: what code
can do is decided by the sandbox when it runs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from cellgate import aio
from cellgate._errors import CellgateError, InvalidArgumentError, LimitExceededError, UnsupportedError
from cellgate._events import Reply, Status
from cellgate._imports import permitted
from cellgate._session import Completed, Session

NOTICE = "This check protects nothing: whatever it says, the sandbox decides what the code can do when it runs."
LANGUAGES = ("python", "node", "shell")
CODE_MAX = 1 << 20
CHECK_SECONDS = 20.0
SETTINGS = {
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"allowWrite": [], "denyWrite": [], "denyRead": []},
    "cellgate": {"networkOff": True},
}
# The sandbox has no package: what the program imports of it becomes a part of its text.
_IMPORT = "from cellgate._imports import permitted\n"
_PROGRAM = Path(__file__).with_name("_checker.py").read_text().replace(_IMPORT, inspect.getsource(permitted))
_RESULT_MAX = 16 << 20
_LOOKUPS = 32
"""Names that are looked up in the session; no imports are added for more."""


class Issue(TypedDict):
    """`severity` is "error" (the code cannot run), "warning" or "info"; lines and columns begin at 1."""

    line: int
    col: int
    message: str
    severity: str
    rule: str


class Validation(TypedDict):
    """What was found. `verdict` is "pass", "fixed" (`fixed_code` has the imports that were missing) or "reject"."""

    valid: bool
    verdict: str
    issues: list[Issue]
    fixed_code: str | None
    fixes_applied: list[str]
    analysis: dict[str, Any]
    notice: str


_Steps = Generator[tuple[str, Any], Any, Validation]


def validate_code(
    code: str,
    language: str = "python",
    session: Session | None = None,
    *,
    names: Sequence[str] = (),
    allowed_imports: Sequence[str] | None = None,
    hosts: Sequence[str] | None = None,
    dangers: bool = False,
) -> Validation:
    """Checks code in the sandbox of `session`, or in one of its own that may write nothing.

    `language`: "python" (with top-level await and IPython's magics), "node" or "shell". `names`: that the code may
    use; variables of the session are looked up. `allowed_imports`: all others are errors. `hosts`: those that the
    session's settings allow; without it only a missing network is known. `dangers`: warnings about
    `eval()`, `rm -rf /` and the like. UnsupportedError: there is no node.
    """
    if session is None:
        with Session(settings=SETTINGS) as own:
            more: dict[str, Any] = {"names": names, "allowed_imports": allowed_imports, "hosts": hosts}
            return validate_code(code, language, own, dangers=dangers, **more)
    steps = _steps(code, language, session.info, names, allowed_imports, hosts, dangers)
    try:
        kind, value = next(steps)
        while True:
            if kind == "exec":
                done: Any = session.exec(_ARGV, input=value, timeout=CHECK_SECONDS, output_limit=_RESULT_MAX)
            else:
                done = session.request("get_variables", value, timeout=CHECK_SECONDS)
            kind, value = steps.send(done)
    except StopIteration as e:
        result: Validation = e.value
        return result


async def validate_code_async(
    code: str,
    language: str = "python",
    session: aio.Session | None = None,
    *,
    names: Sequence[str] = (),
    allowed_imports: Sequence[str] | None = None,
    hosts: Sequence[str] | None = None,
    dangers: bool = False,
) -> Validation:
    """validate_code() for asyncio."""
    if session is None:
        async with aio.Session(settings=SETTINGS) as own:
            more: dict[str, Any] = {"names": names, "allowed_imports": allowed_imports, "hosts": hosts}
            return await validate_code_async(code, language, own, dangers=dangers, **more)
    steps = _steps(code, language, session.info, names, allowed_imports, hosts, dangers)
    try:
        kind, value = next(steps)
        while True:
            if kind == "exec":
                done: Any = await session.exec(_ARGV, input=value, timeout=CHECK_SECONDS, output_limit=_RESULT_MAX)
            else:
                done = await session.request("get_variables", value, timeout=CHECK_SECONDS)
            kind, value = steps.send(done)
    except StopIteration as e:
        result: Validation = e.value
        return result


_ARGV = ["python3", "-I", "-X", "utf8", "-c", _PROGRAM]


def _steps(
    code: str,
    language: str,
    info: dict[str, Any],
    names: Sequence[str],
    allowed_imports: Sequence[str] | None,
    hosts: Sequence[str] | None,
    dangers: bool,
) -> _Steps:
    """What both fronts do: yields what to run in the session, and is sent what came of it."""
    if language not in LANGUAGES:
        raise InvalidArgumentError(f"language is one of {', '.join(LANGUAGES)}, not {language!r}")
    if len(code) > CODE_MAX:
        raise LimitExceededError(f"the code has {len(code)} characters; at most {CODE_MAX} are checked")
    request = {
        "code": code,
        "language": language,
        "exec": info.get("exec", "allow"),
        "names": list(names),
        "allowed_imports": None if allowed_imports is None else list(allowed_imports),
        "hosts": None if hosts is None else list(hosts),
        "dangers": dangers,
    }
    found = _read((yield "exec", json.dumps(request).encode()), language)
    # A name that the code does not define may be a variable of the session: an import would replace it.
    variables, unknown = [], list(found["fixes"])
    for name in unknown[:_LOOKUPS]:
        reply: Reply = yield "request", {"names": [name], "lossy": True}
        if reply.status is Status.TIMEOUT:  # the next one would wait for it
            break
        unknown.remove(name)
        if reply.content.get("ename") != "NameError":
            variables.append(name)
    if variables or unknown:
        request["names"] = [*names, *variables, *unknown]
        found = _read((yield "exec", json.dumps(request).encode()), language)
    fixed = found.get("fixed_code")
    valid = not any(issue["severity"] == "error" for issue in found["issues"])
    return {
        "valid": valid,
        "verdict": "reject" if not valid else "fixed" if fixed else "pass",
        "issues": found["issues"],
        "fixed_code": fixed,
        "fixes_applied": [s for statements in found["fixes"].values() for s in statements] if fixed else [],
        "analysis": found["analysis"],
        "notice": NOTICE,
    }


def _read(done: Completed, language: str) -> dict[str, Any]:
    """The checker's result, which code in the sandbox may have forged: its form is checked."""
    stderr = done.stderr.decode(errors="replace")
    if language == "node" and "No such file or directory: 'node'" in stderr:
        raise UnsupportedError("there is no program node in the sandbox: install Node.js to check code for it")
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        good = all(
            isinstance(i, dict)
            and i.keys() == Issue.__annotations__.keys()
            and all(isinstance(i[k], int if k in ("line", "col") else str) for k in i)
            for i in found["issues"]
        )
        good = good and isinstance(found["issues"], list) and isinstance(found["analysis"], dict)
        good = good and all(isinstance(x, list) for x in found["fixes"].values())
        good = good and all(isinstance(s, str) for x in found["fixes"].values() for s in x)
        good = good and isinstance(found.get("fixed_code", ""), str)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        good = False
    if not good:
        why = done.text or stderr[-300:] or f"exit status {done.exit_code}, signal {done.signal}"
        raise CellgateError(f"the code could not be checked: {why}")
    return found
