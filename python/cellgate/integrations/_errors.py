"""Errors of files as Python's own."""

from __future__ import annotations

import errno

from cellgate import AlreadyExistsError, CellgateError, NotFoundError, TimedOutError


def os_error(e: CellgateError, path: str) -> Exception:
    """The built-in exception for what a file operation has reported; @e where there is none."""
    if isinstance(e, NotFoundError):
        return FileNotFoundError(errno.ENOENT, "No such file or directory", path)
    if isinstance(e, AlreadyExistsError):
        return FileExistsError(errno.EEXIST, "File exists", path)
    if isinstance(e, TimedOutError):
        return TimeoutError(str(e))
    if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionError(e.errno, str(e), path)
    return OSError(e.errno, str(e), path) if e.errno else e
