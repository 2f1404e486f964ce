"""context-forge's profiles: lists of modules, and the settings of a sandbox that go with them.

The lists are an import hook in the kernel, which tells well-meaning code early; code can go around it. What code can
reach is decided by the settings.
"""

from __future__ import annotations

import inspect
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cellgate._checker import permitted
from cellgate._errors import CellgateError

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
VARIABLES = {name: f"SANDBOX_ENABLE_{name.upper()}" for name in MODULES if name != "basic"}
ADVISORY = "this list is advisory (`import uuid; uuid.os` passes it): the sandbox is what holds"
# People's own files, and what is mounted. The rest of the system is what an interpreter and its packages need.
PRIVATE = ("/home", "/root", "/srv", "/mnt", "/media")


def empty_folder() -> Path:
    """Where code without a workspace starts. Always the same, so that a session that is ready fits the next server."""
    folder = Path(tempfile.gettempdir(), f"cellgate-surface-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise CellgateError(f"{folder} is not a folder that only you can write: remove it")
    return folder


def settings(
    enabled: Sequence[str], hosts: Sequence[str], asked: bool, workspace: Path | None, needed: Sequence[Path]
) -> Any:
    """The settings of a sandbox. `asked`: policy files decide about other hosts. `workspace` may be written; `needed`:
    folders of the kernel's environment.
    """
    hidden = [*PRIVATE, str(Path.home())]
    network = "network" in enabled and (hosts or asked)
    return {
        "network": {
            "allowedDomains": list(hosts) if network else [],
            "deniedDomains": [],
            "strictAllowlist": not asked,
        },
        "filesystem": {
            "allowWrite": [str(workspace)] if workspace else [],
            "denyWrite": [],
            "denyRead": hidden,
            "allowRead": [str(f) for f in needed if any(f.is_relative_to(h) for h in hidden)],
        },
        "cellgate": {
            "networkOff": not network,
            # Libraries for numbers start threads.
            "limits": {"processes": 256 if "data_science" in enabled else 64},
        },
    }


def summary(name: str, hosts: Sequence[str], workspace: Path | None) -> str:
    """What a profile adds to the sandbox, for get_sandbox_info."""
    if name == "network":
        reach = f"reaches {', '.join(hosts)}" if hosts else "reaches no host: --allow-host of the server names some"
        return f"{reach}; every other connection is refused"
    if name == "filesystem":
        own = "begins in the private /tmp, which ends with the execution"
        return f"writes in {workspace}, which stays, and in the private /tmp" if workspace else own
    if name == "data_science":
        return "up to 256 processes and threads"
    return "no network, no programs; the user's files are hidden; only the private /tmp can be written"


def hints(enabled: Sequence[str]) -> dict[str, str]:
    """Where modules of the other profiles are, by their names."""
    off = [name for name in MODULES if name not in enabled]
    return {m: f"it is in profile {name} ({VARIABLES[name]}=true)" for name in off for m in MODULES[name]}


def why_not(module: str, scope: str, more: dict[str, str]) -> str:
    """The text of the hook's error. It is copied into the kernel, as permitted() is."""
    known = next((text for m, text in more.items() if module == m or module.startswith(m + ".")), "")
    return f"`{module}` is not in {scope}; {known}{'; ' if known else ''}"


def hook(allowed: Sequence[str], scope: str, more: dict[str, str]) -> str:
    """A cell that makes imports of later cells, not those of modules, follow the list."""
    return f"""
def _install(allowed, scope, more, advisory):
    import builtins
    real = builtins.__import__
{_indented(permitted)}
{_indented(why_not)}
    def __import__(name, globals=None, locals=None, fromlist=(), level=0):
        own = level == 0 and name != "__future__" and globals is not None and globals.get("__name__") == "__main__"
        if own and not permitted(name, list(fromlist or ()), allowed):
            raise ImportError(why_not(name, scope, more) + advisory, name=name)
        return real(name, globals, locals, fromlist, level)
    builtins.__import__ = __import__
_install({list(allowed)!r}, {scope!r}, {more!r}, {ADVISORY!r})
del _install
"""


def _indented(function: Any) -> str:
    return "".join(f"    {line}\n" for line in inspect.getsource(function).splitlines())
