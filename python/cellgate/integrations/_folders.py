"""Folders of the host that are made for cells, and may contain anything when they are removed."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile

PREFIX = "cellgate-"


def make_folder() -> str:
    return tempfile.mkdtemp(prefix=PREFIX)


def is_made_folder(path: str) -> bool:
    """Whether make_folder() of this user has made it; others can make folders in a shared /tmp as well."""
    parent, name = os.path.split(path)
    if parent != tempfile.gettempdir() or not name.startswith(PREFIX):
        return False
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def remove_folder(path: str) -> None:
    """Not by shutil.rmtree(): cells may have made deeper folders than it can follow, and closed ones."""
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        subprocess.run([*command, "--", path], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
