"""Folders on the host below which a cell may have made links."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

LINKS_MAX = 40


@contextlib.contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """A descriptor of the folder, made with its parents where they are missing.

    Follows no link that belongs to this user: a cell, which runs as this user, could have made it
    and so have this program write or remove files elsewhere.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    parts, links = deque(Path(os.path.abspath(path)).parts[1:]), 0
    fd = os.open("/", flags)
    try:
        while parts:
            name = parts.popleft()
            try:
                below = os.open(name, flags, dir_fd=fd)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
                below = os.open(name, flags, dir_fd=fd)
            except NotADirectoryError:
                entry = os.stat(name, dir_fd=fd, follow_symlinks=False)
                links += 1
                if not stat.S_ISLNK(entry.st_mode) or links > LINKS_MAX:
                    raise
                if entry.st_uid == os.geteuid():
                    raise PermissionError(
                        f'"{name}" in the path {path} is a symbolic link that a cell could have made: '
                        "give the path of the folder that it leads to"
                    ) from None
                target = Path(os.readlink(name, dir_fd=fd))
                parts.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
                below = os.open("/" if target.is_absolute() else ".", flags, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)
