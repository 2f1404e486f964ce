"""Processes, identity and limits inside. Ways out are tried by `cellgate selftest` (sandbox_command/test_selftest.py)."""

import os
import re
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from .conftest import Box, Launched

# ---- what must work


def test_accepts_on_an_inherited_unix_listener(box: Box) -> None:
    """Which is how a kernel is reached: the supervisor connects, the kernel cannot."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(box.out / "sock"))
        server.listen()
        answers: list[bytes] = []

        def connect() -> None:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(20)
                client.connect(str(box.out / "sock"))
                client.sendall(b"z")
                answers.append(client.recv(1))

        t = threading.Thread(target=connect)
        t.start()
        try:
            assert (
                box.probe("accept", server.fileno(), opts=["--keep", str(server.fileno())], fds=[server.fileno()])
                == "ok"
            )
        finally:
            t.join()
        assert answers == [b"z"]


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio; p = asyncio.run(asyncio.create_subprocess_exec('true')); print('ok')",
        "import multiprocessing as m; print('ok' if m.get_context('spawn').Pool(2).map(abs, [-1]) == [1] else '')",
        "import multiprocessing as m; print('ok' if m.get_context('fork').Pool(2).map(abs, [-1]) == [1] else '')",
        "from concurrent.futures import *; print(list(ThreadPoolExecutor(4).map(str, ['ok']))[0])",
        "import subprocess; print(subprocess.run(['echo', 'ok'], capture_output=True, text=True).stdout.strip())",
        "import tempfile; f = tempfile.NamedTemporaryFile(); f.write(b'x'); f.flush(); print('ok')",
        "import multiprocessing.shared_memory as m; m.SharedMemory(None, True, 9).unlink(); print('ok')",
        "from socket import *; s = create_server(('localhost', 0)); create_connection(s.getsockname()); print('ok')",
        "import socket; print('ok' if [n for i, n in socket.if_nameindex()] == ['lo'] else socket.if_nameindex())",
        "import os, pwd; print('ok' if os.getuid() == os.geteuid() else '')",
    ],
    ids=[
        "asyncio",
        "spawn",
        "fork",
        "threads",
        "subprocess",
        "tempfile",
        "shared-memory",
        "server",
        "interfaces",
        "ids",
    ],
)
def test_python_works(box: Box, code: str) -> None:
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip(f"no {python}")
    script = f"if __name__ == '__main__':\n    {code}\n"
    box.file(box.work / "t.py", script)
    p = box.run(python, "-I", box.work / "t.py")
    assert (p.returncode, p.stdout) == (0, "ok\n"), p.stderr


# ---- escapes


def test_no_nested_namespaces_without_the_filter(box: Box) -> None:
    """The count of user namespaces is 0 inside, should a filter ever allow the call."""
    assert box.sh("cat /proc/sys/user/max_user_namespaces").stdout == "0\n"


def test_init_ignores_signals_without_landlock(box: Box) -> None:
    """Without Landlock's scope of signals, pid 1 ignores them too, because it has no handlers."""
    with Launched(box, "/run/probe", "pause") as p:
        status = Path(f"/proc/{p.init}/status").read_text()
        assert re.search(r"^SigCgt:\t0+$", status, re.M)


def test_init_has_no_capabilities_either(box: Box) -> None:
    with Launched(box, "/run/probe", "pause") as p:
        status = Path(f"/proc/{p.init}/status").read_text()
        assert re.findall(r"^Cap\w+:\t(\w+)$", status, re.M) == ["0" * 16] * 5
        assert re.search(r"^NoNewPrivs:\t1$", status, re.M)
        if not box.root:  # its files are root's: not dumpable, so even its own user cannot trace or read it
            assert os.stat(f"/proc/{p.init}/environ").st_uid == 0
        if os.geteuid() == 0:
            assert sorted(os.listdir(f"/proc/{p.init}/fd")) == ["0", "1"]


def test_identity(box: Box) -> None:
    lines = box.sh("id -u; id -g; cat /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups").stdout.split("\n")
    assert lines[:2] == [str(box.uid)] * 2
    assert [line.split() for line in lines[2:4]] == [[str(box.uid), str(box.uid), "1"]] * 2
    assert lines[4] == "deny"
    box.file(box.work / "f")
    assert box.sh(f"stat -c %u {box.work}/f /").stdout.split() == [str(box.uid), "0" if box.root else "65534"]


def test_namespaces_are_new(box: Box) -> None:
    names = "user mnt pid net ipc uts cgroup"
    script = f"cd /proc/self/ns; for n in {names}; do readlink $n; done"
    inside = box.sh(script).stdout.split()
    outside = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True).stdout.split()
    assert len(inside) == 7 and not set(inside) & set(outside)


def test_session_of_its_own(box: Box) -> None:
    assert box.sh("cut -d' ' -f1,5,6 /proc/self/stat; echo $$").stdout.split()[1:] == ["2", "2", "2"]


# ---- descriptors


def test_no_descriptor_leaks(box: Box) -> None:
    r, w = os.pipe()
    try:
        assert box.probe("fds", fds=[r, w]) == "0 1 2"
        assert box.probe("fds", fds=[r, w], opts=["--keep", str(w)]) == f"0 1 2 {w}"
    finally:
        os.close(r)
        os.close(w)


def test_caller_that_is_not_dumpable(box: Box) -> None:
    assert box.probe("fork", opts=["--undumpable"]) == "ok"


# ---- limits; those that a control group holds are in test_cgroups.py

# Where nothing is said of groups there are none.
NO_GROUP = ["--cgroup-files", "/nonexistent"]


def test_limits(box: Box) -> None:
    p = box.sh("ulimit -c; ulimit -Hc; ulimit -n; ulimit -Hn")
    hard = int(subprocess.run([*box.as_user, "sh", "-c", "ulimit -Hn"], capture_output=True, text=True).stdout)
    assert p.stdout.split() == ["0", "0", str(min(4096, hard)), str(min(4096, hard))]
    assert box.sh("ulimit -n; ulimit -Hn", opts=["--open-files", "99"]).stdout.split() == ["99", "99"]


def test_file_size(box: Box) -> None:
    opts = ["--write", str(box.work), "--file-size", "4096"]
    assert box.sh(f"head -c 4096 /dev/zero > {box.work}/f", opts=opts).returncode == 0
    assert box.sh(f"trap '' XFSZ; head -c 4097 /dev/zero > {box.work}/g", opts=opts).returncode != 0
    assert (box.work / "g").stat().st_size == 4096


@pytest.mark.no_sanitizer  # its shadow memory is over any limit
@pytest.mark.parametrize("more", [[], NO_GROUP], ids=["", "no-group"])
def test_memory(box: Box, more: list[str]) -> None:
    assert box.probe("malloc", 100 << 20, opts=["--memory", str(200 << 20), *more]) == "ok"
    assert box.probe("malloc", 300 << 20, opts=["--memory", str(200 << 20), *more]) == "ENOMEM"


def test_processes(box: Box) -> None:
    if box.root and tuple(int(n) for n in os.uname().release.split(".")[:2]) < (6, 14):
        pytest.skip("nothing limits root's processes before Linux 6.14")
    p = box.run("/run/probe", "forks", "1000", opts=["--processes", "20", *NO_GROUP])
    limit = 320 if box.root else 20
    assert limit - 5 <= int(p.stdout) < limit
    assert int(box.run("/run/probe", "forks", "100", opts=["--processes", "200", *NO_GROUP]).stdout) == 100


def test_process_limit_is_each_sandboxs_own(box: Box) -> None:
    with Launched(
        box,
        "/bin/sh",
        "-c",
        "for i in 1 2 3 4 5 6 7 8; do sleep 100 & done; echo ready; wait",
        opts=["--processes", "15"],
    ):
        assert (
            box.sh("for i in 1 2 3 4 5 6 7 8; do sleep 0 & done; wait; echo ok", opts=["--processes", "15"]).stdout
            == "ok\n"
        )
