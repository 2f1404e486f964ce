"""Looking into folders while others work in them."""

from __future__ import annotations

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def names_below(folder: Path) -> set[str]:
    """Return all names below the folder, relative to it. Files may be removed meanwhile without an error."""
    return {
        os.path.relpath(os.path.join(where, name), folder)
        for where, folders, files in os.walk(folder)
        for name in [*folders, *files]
    }


def groups_in(text: str) -> set[Path]:
    """The control groups of sandboxes that a /proc/PID/cgroup names; not those of other tests, who run at the same time."""
    names = {line.rpartition("/")[2] for line in text.splitlines()}
    return {CGROUPS / n for n in names_below(CGROUPS) if Path(n).name in names and Path(n).name.startswith("cellgate-box-")}


def groups_of(pid: int) -> set[Path]:
    """Those that this process is in."""
    return groups_in(Path(f"/proc/{pid}/cgroup").read_text())


def there(paths: set[Path]) -> set[Path]:
    """Which of them there are still."""
    return {p for p in paths if p.exists()}
