"""Runs inside a sandbox: the same calls in a folder whose files init makes and in one of the sandbox's own; prints what differs.

Arguments: a folder in a write root, and one in a private place. Each call has a tree in which no other has changed anything. Not compared: O_NOFOLLOW, which a descriptor of
a file that was there shows (F_GETFL), and which of two mistakes in one call is named first.
"""

import ctypes
import errno
import fcntl
import itertools
import os
import resource
import shutil
import stat
import sys
from collections.abc import Iterator

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
NR = {  # of x86_64, which has all of them
    "openat": 257, "mkdirat": 258, "mknodat": 259, "symlinkat": 266, "linkat": 265, "unlinkat": 263, "renameat2": 316,
    "truncate": 76, "fchmodat": 268, "fchmodat2": 452, "utimensat": 280, "fchownat": 260, "open": 2, "creat": 85, "rename": 82,
    "mkdir": 83, "rmdir": 84, "unlink": 87, "symlink": 88, "link": 86, "mknod": 133, "chmod": 90, "ftruncate": 77,
}  # fmt: skip
PATHS = [
    "f", "ro", "d", "full", "to_f", "to_d", "to_none", "loop", "pipe", "new", "none/new", "f/new", "closed/new", "to_d/new", "new/", "f/", "d/", "",
    ".", "d/..", "x" * 255, "x" * 256, "./" * 2040 + "new", "./" * 2050 + "new", None, "to_far",
]  # fmt: skip
RENAMED = ["f", "d", "full", "to_f", "to_none", "new", "closed/new", "d/", "new/", "none/new", "."]


def make_tree() -> None:
    for name in ("d", "closed", "full", "full/sub"):
        os.mkdir(name)
    for name, mode in (("f", 0o644), ("ro", 0o444), ("full/x", 0o600)):
        with open(name, "w") as file:
            file.write("text")
        os.chmod(name, mode)
    for name, to in (("to_f", "f"), ("to_d", "d"), ("to_none", "none"), ("loop", "loop"), ("to_far", "d/../to_d/deep")):
        os.symlink(to, name)
    os.mkfifo("pipe")
    os.chmod("closed", 0o555)


def tree() -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for folder, folders, files in os.walk("."):
        for name in sorted(folders + files):
            path = os.path.join(folder, name)
            try:
                st = os.lstat(path)
            except OSError:
                continue
            # Folders' sizes are their file system's.
            size = -1 if stat.S_ISDIR(st.st_mode) else st.st_size
            found.append((path[:40], oct(st.st_mode), st.st_nlink if not stat.S_ISDIR(st.st_mode) else 0, size))
    return sorted(found, key=str)


def call(name: str, *args: object) -> tuple[object, ...]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if name == "no room":
        name = "openat"
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    given = [os.fsencode(a) if isinstance(a, str) else a if a is None else ctypes.c_long(a) for a in args]  # type: ignore[arg-type]
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(NR[name]), *given)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if r < 0:
        return (errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno()),)
    if name not in ("openat", "open", "creat"):
        return ("done",)
    st = os.fstat(r)
    got = (
        oct(st.st_mode),
        oct(fcntl.fcntl(r, fcntl.F_GETFL) & ~os.O_NOFOLLOW),
        fcntl.fcntl(r, fcntl.F_GETFD),
        st.st_nlink > 0,
        r,
    )
    os.close(r)
    return got


def opens() -> Iterator[tuple[object, ...]]:
    extra = [
        0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_TRUNC, os.O_DIRECTORY, os.O_CREAT | os.O_DIRECTORY, os.O_CREAT | os.O_NOFOLLOW, os.O_CREAT | os.O_PATH,
        os.O_TMPFILE, os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, os.O_SYNC | os.O_CREAT | os.O_TRUNC, os.O_CREAT | 1 << 30, os.O_TMPFILE & ~os.O_DIRECTORY,
    ]  # fmt: skip
    for path, access, more in itertools.product(PATHS, (0, 1, 2, 3), extra):
        if access != 3 or path in ("f", "d"):
            yield ("openat", AT_FDCWD, path, access | more | (os.O_NONBLOCK if path == "pipe" else 0), 0o666)
    for path, mode in itertools.product(("new", "f"), (0, 0o777, 0o170666, 0o1666)):
        yield ("openat", AT_FDCWD, path, os.O_CREAT | os.O_WRONLY, mode)
        yield ("creat", path, mode)
    for fd in (-1, 77, 0):
        for path in ("f", "new", "", "/new-at-the-top"):
            yield ("openat", fd, path, os.O_CREAT | os.O_WRONLY, 0o666)


def others() -> Iterator[tuple[object, ...]]:
    types = (
        0,
        stat.S_IFREG,
        stat.S_IFIFO,
        stat.S_IFSOCK,
        stat.S_IFDIR,
        stat.S_IFLNK,
        stat.S_IFCHR,
        stat.S_IFBLK,
        0o130000,
    )
    for path in PATHS:
        yield ("mkdirat", AT_FDCWD, path, 0o777)
        yield ("mkdir", path, 0o1750)
        for kind in types:
            yield ("mknodat", AT_FDCWD, path, kind | 0o644, 0)
        for text in ("f", "", "x" * 4095, "x" * 4096, None):
            yield ("symlinkat", text, AT_FDCWD, path)
        for flags in (0, 0x200, 0x100, 0x1000):
            yield ("unlinkat", AT_FDCWD, path, flags)
        yield ("rmdir", path)
        for size in (0, 2, 100, -1):
            yield ("truncate", path, size)
        for mode in (0o600, 0o7777, 0o2755, 0o1777, 0o170644):
            yield ("fchmodat", AT_FDCWD, path, mode)
        for flags in (0, 0x100, 0x10):
            yield ("fchmodat2", AT_FDCWD, path, 0o640, flags)
            yield ("utimensat", AT_FDCWD, path, 0, flags)
            yield ("fchownat", AT_FDCWD, path, -1, -1, flags)
        for old, flags in itertools.product(("f", "d", "to_f", "to_none", "none", ""), (0, 0x400, 0x1000, 0x10)):
            yield ("linkat", AT_FDCWD, old, AT_FDCWD, path, flags)
    for a, b, flags in itertools.product(RENAMED, RENAMED, (0, 1, 2, 3, 8)):
        yield ("renameat2", AT_FDCWD, a, AT_FDCWD, b, flags)


def no_room() -> Iterator[tuple[object, ...]]:
    """Calls without a free descriptor: they neither make nor cut a file."""
    for path, flags in itertools.product(
        ("f", "new", "to_none"), (os.O_CREAT, os.O_CREAT | os.O_TRUNC, os.O_CREAT | os.O_APPEND)
    ):
        yield ("no room", AT_FDCWD, path, flags | os.O_WRONLY, 0o666)


def fresh(folder: str) -> list[tuple[object, ...]]:
    """A tree in place of what is there; what it has in it."""
    path = os.path.join(folder, "tree")
    if os.path.isdir(path):
        os.chmod(path, 0o755)
        for name in os.listdir(path):
            if os.path.isdir(os.path.join(path, name)) and not os.path.islink(os.path.join(path, name)):
                os.chmod(os.path.join(path, name), 0o755)
        shutil.rmtree(path)
    os.mkdir(path)
    os.chdir(path)
    make_tree()
    return tree()


def outcome(folder: str, args: tuple[object, ...], before: list[tuple[object, ...]]) -> tuple[object, ...]:
    os.chdir(os.path.join(folder, "tree"))
    got = call(*args)  # type: ignore[arg-type]
    changed = sorted(set(tree()) ^ set(before), key=str)
    if changed:
        fresh(folder)
    return (*got, changed)


def main(work: str, own: str) -> None:
    os.umask(0o022)
    n = 0
    before = fresh(work)
    assert fresh(own) == before
    for args in itertools.chain(opens(), others(), no_room()):
        n += 1
        a, b = outcome(work, args, before), outcome(own, args, before)
        if a != b:
            print(*[x[:30] if isinstance(x, str) else x for x in args], "|", a, "| natively", b)
    print(n, "calls")


main(sys.argv[1], sys.argv[2])
