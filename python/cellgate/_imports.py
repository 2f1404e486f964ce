"""Lists of modules by profile, and the import hook that follows them: `run --profile`, context-forge's surface.

Tells well-meaning code early; code can go around it. What code can reach is decided by the settings of its sandbox.
Kernels have this file as cellgate_kernel.imports: it imports the standard library alone.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

_LISTS = """
basic         math random datetime json re time calendar uuid collections itertools functools operator bisect heapq copy
basic         dataclasses enum typing string textwrap unicodedata difflib decimal fractions statistics cmath base64
basic         binascii hashlib hmac secrets html html.parser xml.etree xml.etree.ElementTree csv configparser
basic         urllib.parse abc contextlib types
data_science  numpy pandas scipy matplotlib seaborn sklearn statsmodels plotly sympy
network       httpx requests urllib urllib.request aiohttp websocket email smtplib ftplib
filesystem    pathlib os.path tempfile shutil glob zipfile tarfile
"""
MODULES: dict[str, list[str]] = {}
for _profile, *_modules in map(str.split, _LISTS.strip().splitlines()):
    MODULES.setdefault(_profile, []).extend(_modules)
ADVISORY = "this list is advisory (`import uuid; uuid.os` passes it): the sandbox is what holds"


def permitted(module: str, members: list[str], allowed: Sequence[str] | None) -> bool:
    """Whether an import of these members, or of the module, is on the list. Its source is a part of _checker.py too."""

    def listed(name: str) -> bool:
        return any(name == entry or name.startswith(entry + ".") for entry in allowed or ())

    return allowed is None or listed(module) or (bool(members) and all(listed(f"{module}.{m}") for m in members))


def scope_of(enabled: Sequence[str]) -> str:
    return f"profile{'s' if len(enabled) > 1 else ''} {', '.join(enabled)}"


def hints(enabled: Sequence[str], how: Mapping[str, str]) -> dict[str, str]:
    """Where modules of the other profiles are, by their names. `how` they are enabled."""
    off = [name for name in MODULES if name not in enabled]
    return {m: f"it is in profile {name} ({how[name]})" for name in off for m in MODULES[name]}


def why_not(module: str, scope: str, more: Mapping[str, str]) -> str:
    """The text of the hook's error."""
    known = next((text for m, text in more.items() if module == m or module.startswith(m + ".")), "")
    return f"`{module}` is not in {scope}; {known}{'; ' if known else ''}{ADVISORY}"


def install(allowed: Sequence[str], scope: str, more: Mapping[str, str]) -> None:
    """Makes imports of later cells, not those of modules, follow the list."""
    real = builtins.__import__

    def __import__(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        own = level == 0 and name != "__future__" and globals is not None and globals.get("__name__") == "__main__"
        if own and not permitted(name, list(fromlist or ()), allowed):
            raise ImportError(why_not(name, scope, more), name=name)
        return real(name, globals, locals, fromlist, level)

    builtins.__import__ = __import__


def follow(profiles: Sequence[str]) -> None:
    """Those of `cellgate run --profile`, whose cells have tools as well."""
    allowed = [m for name in profiles for m in MODULES.get(name, ())]
    more = hints(profiles, {name: f"--profile {name}" for name in MODULES})
    install([*allowed, "mcptools"], scope_of(profiles), more)
