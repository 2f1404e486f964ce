"""Looking into folders while others work in them."""

from __future__ import annotations

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def names_below(folder: Path) -> set[str]:
    """Of all that lies below, relative to the folder. What goes away meanwhile may be there or not; it is no error."""
    return {
        os.path.relpath(os.path.join(where, name), folder)
        for where, folders, files in os.walk(folder)
        for name in [*folders, *files]
    }


def sandbox_groups() -> set[str]:
    """The control groups of all sandboxes on this machine, other tests' too."""
    return {str(CGROUPS / n) for n in names_below(CGROUPS) if Path(n).name.startswith("cellgate-box-")}
