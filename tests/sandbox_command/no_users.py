"""Runs a command where user namespaces are forbidden as containers forbid them: python no_users.py COMMAND [ARG...]

A system call filter as container engines install it for those without CAP_SYS_ADMIN: no clone() or unshare() with a namespace in it, no
mount, setns, ptrace's friends; clone3() does not exist, because a filter cannot see its flags. x86-64 and arm64.
"""

import ctypes
import os
import platform
import struct
import sys

EPERM, ENOSYS = 1, 38
NAMESPACES = 0x7E020080  # CLONE_NEWNS, NEWTIME and all from NEWCGROUP to NEWNET
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2

#                  clone unshare setns mount pidfd_getfd keyctl
CALLS = {
    "x86_64": {"clone": 56, "unshare": 272, "denied": [308, 165, 438, 250, 155]},
    "aarch64": {"clone": 220, "unshare": 97, "denied": [268, 40, 438, 219, 41]},
}
CLONE3 = 435


def instruction(code: int, jt: int, jf: int, k: int) -> bytes:
    return struct.pack("HBBI", code, jt, jf, k)


LOAD, JUMP_EQ, JUMP_SET, RET = 0x20, 0x15, 0x45, 0x06


def program() -> bytes:
    calls = CALLS[platform.machine()]
    out = [instruction(LOAD, 0, 0, 0)]
    for nr in calls["denied"]:  # type: ignore[attr-defined]
        out += [instruction(JUMP_EQ, 0, 1, nr), instruction(RET, 0, 0, ERRNO | EPERM)]
    out += [instruction(JUMP_EQ, 0, 1, CLONE3), instruction(RET, 0, 0, ERRNO | ENOSYS)]
    for name in ("clone", "unshare"):
        out += [
            instruction(JUMP_EQ, 0, 4, calls[name]),  # type: ignore[arg-type]
            instruction(LOAD, 0, 0, 16),
            instruction(JUMP_SET, 0, 1, NAMESPACES & ~0x80 if name == "clone" else NAMESPACES),
            instruction(RET, 0, 0, ERRNO | EPERM),
            instruction(RET, 0, 0, ALLOW),
        ]
    return b"".join([*out, instruction(RET, 0, 0, ALLOW)])


def install() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    code = program()
    buffer = ctypes.create_string_buffer(code, len(code))

    class Fprog(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    fprog = Fprog(len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(fprog), 0, 0):
        raise OSError(ctypes.get_errno(), "filter")


if __name__ == "__main__":
    install()
    os.execvp(sys.argv[1], sys.argv[1:])
