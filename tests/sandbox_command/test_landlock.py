"""The landlock tier, where user namespaces are forbidden. What it denies as the full tier does is tried by the selftest."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import alive, by_age, children, name_of

from .conftest import Box
from .test_ends import wait_until

NO_USERS = Path(__file__).with_name("no_users.py")
PYTHON = "/usr/bin/python3"


def landlock_abi() -> int:
    import ctypes

    return int(ctypes.CDLL(None).syscall(444, None, 0, 1))


pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or landlock_abi() < 6, reason="the landlock tier needs Landlock ABI 6 (Linux 6.12)"
)


@pytest.fixture
def weak(box: Box) -> Box:
    """Where namespaces are forbidden as containers forbid them."""
    box.as_user = [*box.as_user, PYTHON, str(NO_USERS)]
    return box


def tier(name: str, **more: Any) -> dict[str, Any]:
    return {"cellgate": {"tier": name, **more}}


def nowhere(fs: dict[str, Any] | None = None, name: str = "landlock", **more: Any) -> dict[str, Any]:
    """Settings that let nothing be written."""
    return Box.settings({"allowWrite": [], **(fs or {})}, **tier(name), **more)


# ---- which tier


def test_without_being_asked_for_it_is_refused(weak: Box) -> None:
    p = weak.run("true", settings=Box.settings({"allowWrite": []}))
    assert p.returncode == 1
    assert "user namespaces are forbidden here" in p.stderr
    assert "landlock" in p.stderr


def test_full_is_what_it_says(weak: Box) -> None:
    assert weak.run("true", settings=nowhere(name="full")).returncode == 1


def test_asked_for(weak: Box) -> None:
    p = weak.run("echo", "up", settings=nowhere())
    assert (p.returncode, p.stdout, p.stderr) == (0, "up\n", "")
    # Where it can write, what the tier does not hold is said.
    p = weak.run("echo", "up", settings={**Box.settings(), "cellgate": {"tier": "landlock:freeze"}})
    assert (p.returncode, p.stdout) == (0, "up\n")
    assert "new files of such names can be made" in p.stderr


def test_by_option(weak: Box) -> None:
    p = weak.run("--tier", "landlock", "echo", "up", settings=nowhere(name="full"))
    assert p.stdout == "up\n"
    p = weak.run("--tier", "strong", "echo", "up", settings=nowhere())
    assert p.returncode == 1
    assert 'tier "strong" is none of full, landlock, auto' in p.stderr


def test_auto_says_what_it_came_to(weak: Box) -> None:
    p = weak.run("echo", "up", settings=nowhere(name="auto"))
    assert p.stdout == "up\n"
    assert "weaker landlock tier" in p.stderr


def test_auto_is_the_strongest(box: Box) -> None:
    p = box.run("--explain=json", settings=nowhere(name="auto"))
    assert json.loads(p.stdout)["tier"] == "full"
    p = box.run("readlink", "/proc/self/ns/pid", settings=nowhere(name="auto"))
    assert p.stdout.strip() != os.readlink("/proc/self/ns/pid")


def test_explained(weak: Box) -> None:
    weak.file("keep.txt")
    p = weak.run("--explain=json", settings=Box.settings({"denyWrite": ["keep.txt"]}, **tier("landlock:freeze")))
    plan = json.loads(p.stdout)
    assert plan["tier"] == "landlock"
    assert {"landlock", "seccomp", "broker"} <= set(plan["layers"])
    assert not {"user", "pid", "net"} & set(plan["layers"])
    assert plan["landlock_abi"] >= 6
    assert str(weak.work) in plan["nothingNewIn"]
    assert plan["notHeld"] == []
    p = weak.run("--explain=json", settings=Box.settings({"denyWrite": ["keep.txt"]}, **tier("landlock:accept")))
    assert str(weak.work / "keep.txt") in json.loads(p.stdout)["notHeld"]


def test_what_it_cannot_do_is_refused_by_name(weak: Box) -> None:
    weak.file("token")
    for more, text in (
        ({"allowNestedUserNamespaces": True}, "allowNestedUserNamespaces"),
        (
            {"credentials": {"files": [{"path": "token", "mode": "mask"}], "allowPlaintextInject": True}},
            "is to show other content",
        ),
    ):
        p = weak.run("true", settings={**nowhere(), **more})
        assert p.returncode == 1
        assert text in p.stderr
    p = weak.run("true", settings=nowhere(net={"allowAllUnixSockets": True}))
    assert p.returncode == 1
    assert "allowAllUnixSockets" in p.stderr


# ---- files


def test_a_hidden_file_in_a_folder_that_may_be_written(weak: Box) -> None:
    weak.file(".env", "SECRET\n")
    weak.file("a", "A\n")
    weak.file("sub/b", "B\n")
    fs = {"denyRead": [".env"], "allowWrite": ["."]}
    for name in ("landlock:freeze", "landlock:accept"):
        p = weak.run("-c", "cat a sub/b; cat .env; mv .env env; ls -a; echo 2 > a; echo 3 > sub/new; cat sub/new",
                     settings=Box.settings(fs, **tier(name)))
        assert "SECRET" not in p.stdout
        assert ".env" in p.stdout.split()
        assert p.stdout.endswith("3\n")
        assert weak.work.joinpath("a").read_text() == "2\n"
        weak.work.joinpath("a").write_text("A\n")


def test_an_absent_protected_name(weak: Box) -> None:
    weak.folder(weak.work / "sub")
    refused = weak.run("true", settings=Box.settings(**tier("landlock")))
    assert refused.returncode == 1
    assert "landlock:freeze" in refused.stderr
    assert str(weak.work) in refused.stderr
    script = "echo x > .bashrc; echo x > sub/new; echo x > top"
    weak.run("-c", script, settings=Box.settings(**tier("landlock:freeze")))
    assert weak.names() == {"sub", "sub/new"}
    p = weak.run("-c", script, settings=Box.settings(**tier("landlock:accept")))
    assert weak.names() == {"sub", "sub/new", "top", ".bashrc"}
    assert "do not hold" in p.stderr


def test_a_denied_file_and_its_folder(weak: Box) -> None:
    weak.file("d/keep", "orig\n")
    weak.file("d/other", "orig\n")
    fs = {"denyWrite": ["d/keep"], "allowWrite": ["d"]}
    script = "echo x > d/keep; mv d e; rm d/keep; mv d/other d/keep; chmod 777 d/keep; touch d/keep; echo new > d/other"
    before = (weak.work / "d/keep").stat()
    weak.run("-c", script, settings=Box.settings(fs, **tier("landlock:freeze")))
    after = (weak.work / "d/keep").stat()
    assert (weak.work / "d/keep").read_text() == "orig\n"
    assert (weak.work / "d/other").read_text() == "new\n"
    assert (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)


def test_what_protected_files_lead_to(weak: Box) -> None:
    """Existing files that links with protected names, protected files, and settings of nested repositories name."""
    servers = {"mcpServers": {"x": {"command": "node", "args": ["./tools/server.js"]}}}
    weak.file(".mcp.json", json.dumps(servers))
    weak.file(".husky/pre-push", "sh ci/check.sh\n")
    weak.folder(weak.home / ".claude")
    weak.file(weak.home / ".claude/settings.json", json.dumps({"command": str(weak.work / "tools/hook.sh")}))
    weak.folder(weak.home / ".config")
    weak.link(weak.home / ".config/fish", str(weak.work / "fish"))
    weak.link(weak.home / ".bashrc", str(weak.work / "dots/bashrc"))
    weak.link(".husky/pre-commit", "../ci/commit")
    for name in ("HEAD", "objects/x", "refs/x"):
        weak.file(f"a/b/c/d/.git/{name}", "ref: refs/heads/main\n")
    weak.file("a/b/c/d/.git/config", "[core]\n\tfsmonitor = ../../watch\n")
    weak.file("meta/HEAD", "ref: refs/heads/main\n")  # a repository without a work tree
    named = ("meta/config", "tools/server.js", "tools/hook.sh", "ci/check.sh", "ci/commit", "fish/config.fish", "dots/bashrc", "a/b/watch")
    for name in (*named, "tools/other.js"):
        weak.file(name)
    script = "for f in " + " ".join(named) + " tools/other.js; do echo new > $f; rm -f $f; mv $f moved; done"
    weak.run("-c", script, settings=Box.settings(**tier("landlock:freeze")))
    assert [n for n in named if not (weak.work / n).exists() or (weak.work / n).read_text() != "orig\n"] == []
    assert (weak.work / "tools/other.js").read_text() == "new\n"


def test_temporary_files(weak: Box) -> None:
    p = weak.run("-c", "echo $TMPDIR; echo x > $TMPDIR/x && cat $TMPDIR/x; mkdir -p $TMPDIR/d/e; chmod 0 $TMPDIR/d; "
                 "mktemp >/dev/null && echo made; echo x > /tmp/cellgate-test-stray", settings=nowhere())
    tmp, *rest = p.stdout.splitlines()
    assert rest == ["x", "made"]
    assert not Path(tmp).exists()
    assert not Path("/tmp/cellgate-test-stray").exists()


ATTRIBUTES = """
import os, sys
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
p = sys.argv[1]
fd = os.open(p, os.O_RDONLY)
here = os.open(os.path.dirname(p), os.O_RDONLY)
base = os.path.basename(p)
def c(r):
    if r: raise OSError(ctypes.get_errno(), 'c')
ways = {
    'chmod': lambda: os.chmod(p, 0o640), 'fchmod': lambda: os.fchmod(fd, 0o640),
    'fchmodat': lambda: os.chmod(base, 0o640, dir_fd=here), 'chown': lambda: os.chown(p, os.getuid(), os.getgid()),
    'fchown': lambda: os.fchown(fd, os.getuid(), os.getgid()), 'lchown': lambda: os.lchown(p, os.getuid(), os.getgid()),
    'utime': lambda: os.utime(p, (5, 6)), 'futimens': lambda: os.utime(fd, (5, 6)),
    'utimensat': lambda: os.utime(base, (5, 6), dir_fd=here), 'now': lambda: os.utime(p),
    'relative': lambda: (os.chdir(os.path.dirname(p)), os.chmod(base, 0o640)),
    'through proc': lambda: os.chmod('/proc/self/fd/%d' % fd, 0o640),
    'through cwd': lambda: (os.chdir(os.path.dirname(p)), os.chmod('/proc/self/cwd/' + base, 0o640)),
    'fchmodat2': lambda: c(libc.syscall(452, here, base.encode(), 0o640, 0x100)),
    'xattr': lambda: os.setxattr(p, 'user.x', b'1'),
    'flags': lambda: __import__('fcntl').ioctl(fd, 0x40086602, b'\\x40\\0\\0\\0\\0\\0\\0\\0'),
}
for name, f in ways.items():
    try:
        f(); print(name)
    except OSError:
        pass
"""
REFUSED_EVERYWHERE = {"xattr", "flags", "through cwd"}


def test_modes_owners_and_times(weak: Box) -> None:
    """Landlock has no right for these: the broker decides."""
    weak.file("in/f")
    weak.file("out")
    fs = {"allowWrite": ["in"]}
    ways = set(
        line.strip().split("'")[1] for line in ATTRIBUTES.splitlines() if line.strip().startswith("'")
    ) | {"fchmod", "chown", "lchown", "futimens", "now"}
    p = weak.run(PYTHON, "-c", ATTRIBUTES, weak.work / "in/f", settings=nowhere(fs))
    assert set(p.stdout.splitlines()) == ways - REFUSED_EVERYWHERE, p.stderr
    st = (weak.work / "in/f").stat()
    assert st.st_mode & 0o777 == 0o640
    before = (weak.work / "out").stat()
    p = weak.run(PYTHON, "-c", ATTRIBUTES, weak.work / "out", settings=nowhere(fs))
    assert p.stdout == ""
    after = (weak.work / "out").stat()
    assert (before.st_mode, before.st_mtime_ns, before.st_ctime_ns) == (after.st_mode, after.st_mtime_ns, after.st_ctime_ns)


def test_no_file_with_the_rights_of_its_owner(weak: Box) -> None:
    weak.file("in/f")
    script = "cd in; chmod 4755 f; chmod g+s f; chmod 1711 f; mkdir d; chmod 2755 d; stat -c %a f d"
    assert weak.run("-c", script, settings=nowhere({"allowWrite": ["in"]})).stdout == "1711\n2755\n"


def test_a_link_leads_the_broker_nowhere(weak: Box) -> None:
    weak.file("in/f")
    victim = weak.out / "victim"
    victim.write_text("x")
    weak.own(victim)
    weak.link("in/l", str(victim))
    weak.link("in/d", str(weak.out))
    mode = victim.stat().st_mode
    p = weak.run("-c", "chmod 777 in/l; chmod 777 in/d/victim; chmod 777 in/../in/f", settings=nowhere({"allowWrite": ["in"]}))
    assert victim.stat().st_mode == mode
    assert (weak.work / "in/f").stat().st_mode & 0o777 == 0o777
    assert p.stderr.count("Permission denied") == 2


# ---- network


SOCKETS = """
import socket, sys
def t(name, f):
    try:
        f(); print(name)
    except OSError:
        pass
S = socket.socket
t('udp', lambda: S(socket.AF_INET, socket.SOCK_DGRAM))
t('udp6', lambda: S(socket.AF_INET6, socket.SOCK_DGRAM))
t('unix', lambda: S(socket.AF_UNIX))
t('netlink', lambda: S(socket.AF_NETLINK, socket.SOCK_RAW))
t('vsock', lambda: S(40, socket.SOCK_STREAM))
t('mptcp', lambda: S(socket.AF_INET, socket.SOCK_STREAM, 262))
t('tcp', lambda: S())
t('bind', lambda: S().bind(('127.0.0.1', 0)))
t('listen', lambda: S().listen())
port = int(sys.argv[1])
t('direct', lambda: socket.create_connection(('127.0.0.1', port)))
t('direct 6', lambda: socket.create_connection(('::1', port)))
t('elsewhere', lambda: socket.create_connection(('192.0.2.1', 80), 5))
t('fast open', lambda: S().sendto(b'x', 0x20000000, ('127.0.0.1', port)))
t('interfaces', lambda: __import__('fcntl').ioctl(S(), 0x8912, bytes(16)))
t('proxy', lambda: socket.create_connection(('127.0.0.1', 3128)))
t('proxy by name', lambda: socket.create_connection(('localhost', 1080)))
"""


@contextlib.contextmanager
def listener() -> Iterator[tuple[int, list[int]]]:
    """A server on the host, and how many have come to it."""
    came: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as s:
        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    c, _ = s.accept()
                    came.append(1)
                    with c:
                        c.settimeout(5)
                        with contextlib.suppress(OSError):
                            c.recv(4096)
                            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nSERVED")

        threading.Thread(target=serve, daemon=True).start()
        yield s.getsockname()[1], came
        s.shutdown(socket.SHUT_RDWR)


def test_sockets(weak: Box) -> None:
    with listener() as (port, came):
        p = weak.run(PYTHON, "-c", SOCKETS, port, settings=nowhere())  # type: ignore[arg-type]
        assert p.stdout.splitlines() == ["tcp", "proxy", "proxy by name"], p.stderr
        off = {**nowhere(), "cellgate": {"tier": "landlock", "networkOff": True}}
        p = weak.run(PYTHON, "-c", SOCKETS, port, settings=off)  # type: ignore[arg-type]
        assert p.stdout == ""
        assert "only the proxy connects in the landlock tier" in p.stderr
        assert came == []


@pytest.mark.parametrize("blocking", [True, False])
def test_through_the_proxy(weak: Box, blocking: bool) -> None:
    code = f"""
import os, select, socket, sys
def get(port):
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.setblocking({blocking})
    try: s.connect(('127.0.0.1', 3128))
    except BlockingIOError: select.select([], [s], [], 20)
    assert s.getblocking() is {blocking} and not os.get_inheritable(s.fileno())
    s.sendall(b'GET http://127.0.0.1:%d/ HTTP/1.1\\r\\nHost: 127.0.0.1:%d\\r\\nConnection: close\\r\\n\\r\\n' % (port, port))
    out = b''
    while True:
        select.select([s], [], [], 20)
        got = s.recv(4096)
        if not got: break
        out += got
    return out.split(b'\\r\\n')[0], out[-6:]
for a in sys.argv[1:]: print(*get(int(a)))
"""
    with listener() as (port, came), listener() as (other, never):
        settings = nowhere(net={"allowedDomains": [f"127.0.0.1:{port}"]})
        p = weak.run(PYTHON, "-c", code, port, other, settings=settings)  # type: ignore[arg-type]
        lines = p.stdout.splitlines()
        assert lines[0] == "b'HTTP/1.1 200 OK' b'SERVED'", p.stderr
        assert "403" in lines[1]
        assert came == [1]
        assert never == []


# ---- ends


CHAIN = """
import os, sys
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork(): os._exit(0)
"""


def strays(mark: str) -> list[str]:
    """Processes of the command; those that made its sandbox, and have its command line too, are still going."""
    found = []
    for p in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            ours = (p.parent / "comm").read_text().startswith("cg-")
            if mark in p.read_bytes().decode(errors="replace") and alive(int(p.parent.name)) and not ours:
                found.append(p.parent.name)
    return found


def test_what_it_starts_ends_with_it(weak: Box) -> None:
    mark = f"{time.monotonic_ns()}.5"
    p = weak.run("-c", f"for i in 1 2 3; do (setsid sleep {mark} &) ; done; {PYTHON} -c '{CHAIN}# {mark}'; echo out",
                 settings=nowhere())
    assert p.stdout == "out\n"
    assert strays(mark) == []


@pytest.mark.parametrize("victim", ["keeper", "guard", "init", "command"])
def test_killed(weak: Box, victim: str) -> None:
    mark = f"{time.monotonic_ns()}.5"
    settings = nowhere()
    proc = weak.popen("-c", f"(setsid sleep {mark} &); echo $TMPDIR; sleep {mark}; true", settings=settings, start_new_session=True)
    assert proc.stdout
    tmp = Path(proc.stdout.readline().strip())
    found: dict[str, int] = {"keeper": proc.pid}

    def all_are_there() -> bool:
        below = {name_of(c): c for c in children(proc.pid)}
        if "cg-guard" in below:
            found["guard"] = below["cg-guard"]
            init = [c for c in children(found["guard"]) if name_of(c) == "cg-init"]
            if init and children(init[0]):
                found["init"] = init[0]
                found["command"] = by_age(children(init[0]))[0]
        return len(found) == 4

    wait_until("guard, init and the command", all_are_there, weak.timeout)
    wait_until("the stray", lambda: len(strays(mark)) >= 3, weak.timeout)
    os.kill(found[victim], signal.SIGKILL)
    proc.wait(timeout=weak.timeout)
    assert proc.returncode == (-9 if victim == "keeper" else 137)
    wait_until("nothing is left running", lambda: not strays(mark) and not any(alive(p) for p in found.values()), weak.timeout)
    wait_until("the folder was removed", lambda: not tmp.exists(), weak.timeout)
    proc.communicate(timeout=weak.timeout)


def test_signals_are_handed_on(weak: Box) -> None:
    proc = weak.popen("bash", "-c", "trap 'echo got; exit 7' TERM; echo up; while :; do sleep 0.1; done", settings=nowhere())
    assert proc.stdout
    assert proc.stdout.readline() == "up\n"
    keeper = proc.pid
    os.kill(keeper, signal.SIGTERM)
    out, _ = proc.communicate(timeout=weak.timeout)
    assert (out, proc.returncode) == ("got\n", 7)


def test_wall_time(weak: Box) -> None:
    mark = f"{time.monotonic_ns()}.5"
    p = weak.run("-c", f"(setsid sleep {mark} &); sleep {mark}; true",
                 settings={**nowhere(), "cellgate": {"tier": "landlock", "limits": {"wallSeconds": 1}}})
    assert p.returncode == 124
    assert strays(mark) == []


# ---- doctor


def test_doctor(weak: Box) -> None:
    argv = [*weak.as_user, str(weak.program), "doctor"]
    p = subprocess.run([*argv, "--json"], capture_output=True, text=True, timeout=weak.timeout, env=weak.env, cwd=weak.work)
    report = json.loads(p.stdout)
    assert p.returncode == 1
    assert report["tier"] == "landlock"
    assert report["tiers"] == {"full": False, "landlock": True}
    p = subprocess.run(argv, capture_output=True, text=True, timeout=weak.timeout, env=weak.env, cwd=weak.work)
    assert "--tier landlock" in p.stdout
