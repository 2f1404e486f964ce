"""Files of a kernel can take long to remove: no other request waits for the removal."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import Client, Session
from processes import eventually

LIBC = ctypes.CDLL(None, use_errno=True)
FAN_CLOEXEC_CLASS_CONTENT, FAN_MARK_ADD, FAN_OPEN_PERM, FAN_ONDIR, FAN_ALLOW = 1 | 4, 1, 0x10000, 0x40000000, 1
AT_FDCWD = -100

pytestmark = pytest.mark.skipif(
    int(LIBC.syscall(444, None, 0, 1)) < 6, reason="the landlock tier needs Landlock ABI 6 (Linux 6.12)"
)


class Gate:
    """Blocks every open of a folder until the gate is opened: the test controls how long a removal takes."""

    def __init__(self) -> None:
        self.fd = LIBC.fanotify_init(FAN_CLOEXEC_CLASS_CONTENT, os.O_RDONLY)
        if self.fd < 0:
            pytest.skip(f"fanotify, which needs CAP_SYS_ADMIN: {os.strerror(ctypes.get_errno())}")
        self.waits: list[int] = []

    def close_at(self, folder: Path) -> None:
        mask = ctypes.c_uint64(FAN_OPEN_PERM | FAN_ONDIR)
        assert LIBC.fanotify_mark(self.fd, FAN_MARK_ADD, mask, AT_FDCWD, bytes(folder)) == 0

    def somebody_waits(self) -> None:
        assert select.select([self.fd], [], [], 20)[0], "nobody has opened the folder"
        event = os.read(self.fd, 24)
        self.waits.append(struct.unpack("IBBHQii", event)[5])

    def open(self) -> None:
        """For all, and for ever."""
        if self.fd >= 0:
            for fd in self.waits:
                os.write(self.fd, struct.pack("iI", fd, FAN_ALLOW))
                os.close(fd)
            os.close(self.fd)
            self.fd = -1


@pytest.fixture
def gate() -> Iterator[Gate]:
    g = Gate()
    yield g
    g.open()


def tmpdir(s: Session) -> Path:
    return Path(
        eval(s.run("import os, tempfile; open(tempfile.mktemp(), 'w').close(); os.environ['TMPDIR']").value or "")
    )


@pytest.mark.parametrize("end", ["close", "reset", "kernel died"])
def test_others_are_answered_while_a_folder_is_removed(tmp_path: Path, gate: Gate, end: str) -> None:
    with Client(no_spare=1) as c, c.session(workspace=tmp_path) as other:
        s = c.session(workspace=tmp_path, tier="landlock")
        folder = tmpdir(s)
        gate.close_at(folder)
        if end == "close":
            s.close()
        elif end == "reset":
            s.reset()
        else:
            assert s.run("os._exit(0)").status == "kernel_died"
        gate.somebody_waits()
        assert other.run("1 + 1").value == "2"
        if end != "close":
            assert tmpdir(s) != folder  # which is there still: no other kernel has it
        with c.session(workspace=tmp_path) as third:
            assert third.run("1 + 1").value == "2"
        assert folder.exists()
        gate.open()
        eventually(lambda: not folder.exists())
        s.close()


def test_its_end_leaves_nothing_behind(tmp_path: Path, gate: Gate) -> None:
    """The supervisor's own folder is removed last, when no thread uses it any more."""
    with Client(no_spare=1) as c:
        s = c.session(workspace=tmp_path, tier="landlock")
        folder = tmpdir(s)
        gate.close_at(folder)
        s.close()
        gate.somebody_waits()
        gate.open()
    assert not folder.parent.exists()
