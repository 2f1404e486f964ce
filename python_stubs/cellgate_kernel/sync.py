"""One side of a folder that is copied to another machine and back (python/cellgate/_sync.py), in a kernel's sandbox.

An archive is a line of JSON, {"entries": {PATH: ENTRY}, "removed": [PATH]}, then the bytes of the files among the
entries, in their order. The other side is hostile. The sandbox decides what can be written; this code, that nothing
that has changed on this side is lost.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, BinaryIO

Entry = list[Any]
"""["dir"], ["link", TARGET], ["file", BYTES, EXECUTABLE, SHA256]; ["other"]: a device, or cannot be read."""

BYTES_MAX = 1 << 30  # of all files of an archive
ENTRIES_MAX = 100_000
_INDEX_MAX = 64 << 20
_CHUNK = 1 << 20


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _look(path: str) -> Entry | None:
    try:
        st = os.lstat(path)
        if stat.S_ISDIR(st.st_mode):
            return ["dir"]
        if stat.S_ISLNK(st.st_mode):
            return ["link", os.readlink(path)]
        if stat.S_ISREG(st.st_mode) and st.st_size > BYTES_MAX:  # pack() refuses it
            return ["file", st.st_size, bool(st.st_mode & 0o100), ""]
        if stat.S_ISREG(st.st_mode):
            with open(path, "rb", opener=_open) as f:
                return ["file", st.st_size, bool(st.st_mode & 0o100), hashlib.file_digest(f, "sha256").hexdigest()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass
    return ["other"]


def _leads_out(path: str) -> bool:
    """True for a normal form that begins above the folder."""
    return path.startswith("/") or path.split("/", 1)[0] == ".."


def _check(path: str) -> None:
    """A path below the folder, on which no link is followed."""
    if path != os.path.normpath(path) or path == "." or _leads_out(path):
        raise OSError(errno.EINVAL, "no path below the folder")
    for parent in PurePosixPath(path).parents:
        if os.path.islink(parent):
            raise OSError(errno.ELOOP, "a folder on its path is a link on this side")


class Side:
    """The folder in which the kernel works, with what it had when the two sides were the same: nothing at first."""

    def __init__(self, folder: str, trusting: bool) -> None:
        """`trusting`: links from the other side may lead out of the folder."""
        os.chdir(folder)
        self._trusting = trusting
        self._base: dict[str, Entry] = {}
        self.skipped: list[str] = []

    def _scan(self) -> dict[str, Entry]:
        """What is there. Folders come before what they have."""
        found: dict[str, Entry] = {}
        self.skipped = []
        for top, folders, files in os.walk(".", onerror=lambda e: self.skipped.append(os.path.normpath(e.filename))):
            for name in folders + files:
                path = os.path.normpath(os.path.join(top, name))
                entry = _look(path)
                if entry == ["other"]:
                    self.skipped.append(path)
                elif entry:
                    found[path] = entry
            if len(found) > ENTRIES_MAX:
                raise ValueError(f"the folder has more than {ENTRIES_MAX} files and folders")
        return found

    def remember(self) -> None:
        self._base = self._scan()

    def pack(self, archive: str) -> None:
        """Writes what was made, changed and removed since the two sides were the same, as they are from now on."""
        now = self._scan()
        skipped = set(map(PurePosixPath, self.skipped))  # also for what is below a folder
        changed = {path: entry for path, entry in now.items() if entry != self._base.get(path)}
        gone = [PurePosixPath(path) for path in self._base if path not in now]
        removed = [str(path) for path in gone if skipped.isdisjoint((path, *path.parents))]
        if sum(e[1] for e in changed.values() if e[0] == "file") > BYTES_MAX:
            raise ValueError(f"its files have more than {BYTES_MAX >> 20} MiB")
        with open(archive, "wb") as out:
            out.write(json.dumps({"entries": changed, "removed": removed}).encode() + b"\n")
            for path, entry in changed.items():
                if entry[0] == "file":
                    with open(path, "rb", opener=_open) as f:
                        if not all(out.write(piece) for piece in _pieces(f, entry[1])):
                            raise ValueError(f"{path!r} became shorter while it was copied")
        self._base = now

    def apply(self, archive: str) -> dict[str, Any]:
        """Makes the changes on this side. What has changed here as well stays, with the other's version beside it."""
        report: dict[str, Any] = {"changed": [], "removed": [], "kept": {}, "refused": {}}
        with open(archive, "rb") as f:
            index = json.loads(f.readline(_INDEX_MAX))
            entries: dict[str, Entry] = index["entries"]
            if len(entries) + len(index["removed"]) > ENTRIES_MAX:
                raise ValueError(f"more than {ENTRIES_MAX} changes")
            sizes = [e[1] for e in entries.values() if e[0] == "file"]
            if not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) > BYTES_MAX:
                raise ValueError(f"more than {BYTES_MAX >> 20} MiB")
            for path in sorted(index["removed"], reverse=True):
                try:
                    self._remove(path, report)
                except (OSError, ValueError) as e:
                    report["refused"][path] = getattr(e, "strerror", None) or str(e)
            for path, entry in entries.items():
                at = f.tell()
                try:
                    self._put(path, entry, f, report)
                except (OSError, ValueError) as e:
                    report["refused"][path] = getattr(e, "strerror", None) or str(e)
                if entry[0] == "file":
                    f.seek(at + entry[1])
        return report

    def _remove(self, path: str, report: dict[str, Any]) -> None:
        _check(path)
        now = _look(path)
        if not now:
            return
        if now != self._base.get(path) or (now == ["dir"] and os.listdir(path)):
            report["kept"][path] = None
        else:
            (os.rmdir if now == ["dir"] else os.unlink)(path)
            report["removed"].append(path)

    def _put(self, path: str, entry: Entry, f: BinaryIO, report: dict[str, Any]) -> None:
        _check(path)
        now, to = _look(path), path
        if now == entry:
            return
        if now == ["other"]:
            raise OSError(errno.EPERM, "what has this name here is not copied")
        if now != self._base.get(path) or (now == ["dir"] and os.listdir(path)):
            while os.path.lexists(to):
                to += ".theirs"
        parent, name = os.path.split(to)
        os.makedirs(parent or ".", exist_ok=True)
        if entry[0] == "dir":
            if to == path and now:
                os.unlink(path)
            os.mkdir(to)
        else:
            made = os.path.join(parent, f".cellgate-{os.urandom(8).hex()}")
            try:
                self._make(made, path, entry, f)
                if to == path and now == ["dir"]:
                    os.rmdir(path)
                os.rename(made, to)
            except BaseException:
                if os.path.lexists(made):
                    os.unlink(made)
                raise
        if to == path:
            report["changed"].append(path)
        else:
            report["kept"][path] = to

    def _make(self, made: str, path: str, entry: Entry, f: BinaryIO) -> None:
        if entry[0] == "link":
            target = os.path.normpath(os.path.join(os.path.dirname(path), entry[1]))
            parts = PurePosixPath(entry[1]).parts
            climbs = ".." in parts[parts.count("..") :]  # from a name, which may be another link
            if not self._trusting and (climbs or _leads_out(target)):
                raise OSError(errno.EPERM, "a link that leads out of the folder")
            os.symlink(entry[1], made)
        elif entry[0] == "file":
            with open(made, "xb") as out:
                mode = os.fstat(out.fileno()).st_mode & 0o666
                if os.path.isfile(path) and not os.path.islink(path):
                    mode = os.stat(path).st_mode & 0o666
                os.fchmod(out.fileno(), mode | (mode & 0o444) >> 2 if entry[2] else mode)
                if not all(out.write(piece) for piece in _pieces(f, entry[1])):
                    raise OSError(errno.EIO, "its content is missing")
        else:
            raise OSError(errno.EINVAL, "neither a file, a folder nor a link")


def _pieces(f: BinaryIO, size: int) -> Iterator[bytes]:
    """Exactly @size bytes; the last piece is empty where @f has fewer."""
    while size > 0:
        piece = f.read(min(size, _CHUNK))
        yield piece
        size -= len(piece) or size
