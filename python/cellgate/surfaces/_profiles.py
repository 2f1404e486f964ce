"""context-forge's profiles: the settings of a sandbox that go with the lists of modules of cellgate._imports."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cellgate._errors import CellgateError
from cellgate._imports import MODULES

VARIABLES = {name: f"SANDBOX_ENABLE_{name.upper()}" for name in MODULES if name != "basic"}
ENABLED_BY = {name: f"{variable}=true" for name, variable in VARIABLES.items()}
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


def hook(allowed: Sequence[str], scope: str, more: dict[str, str]) -> str:
    """A cell that makes imports of later cells follow the list."""
    return f"from cellgate_kernel import imports\nimports.install({list(allowed)!r}, {scope!r}, {more!r})\ndel imports"
