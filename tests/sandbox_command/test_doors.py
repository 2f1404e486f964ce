"""Ways through the border that settings open: unix sockets that are listed, and ports in both directions."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Box

PYTHON = "/usr/bin/python3"


class Greeter:
    """A server of the host at a unix socket or a TCP port, which answers with its name and what it received."""

    def __init__(self, listener: socket.socket, name: bytes) -> None:
        self.listener = listener
        self.name = name
        self.seen = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                c, _ = self.listener.accept()
                self.seen += 1
                threading.Thread(target=self.greet, args=[c], daemon=True).start()

    def greet(self, c: socket.socket) -> None:
        with c, contextlib.suppress(OSError):
            c.sendall(self.name)
            while data := c.recv(65536):
                c.sendall(data)

    def close(self) -> None:
        self.listener.close()


@pytest.fixture
def greet(box: Box) -> Iterator[Callable[..., Greeter]]:
    made: list[Greeter] = []

    def start(where: Path | int, name: bytes = b"hello from the host\n") -> Greeter:
        if isinstance(where, int):
            s = socket.create_server(("127.0.0.1", where))
        else:
            s = socket.socket(socket.AF_UNIX)
            s.bind(str(where))
            s.listen(64)
            box.own(where)
        made.append(Greeter(s, name))
        return made[-1]

    yield start
    for g in made:
        g.close()


def net(**more: object) -> dict[str, object]:
    return {"allowedDomains": [], "deniedDomains": [], **more}


def listed(*paths: Path | str) -> dict[str, object]:
    return Box.settings(net={"allowUnixSockets": [str(p) for p in paths]})


CONNECT = """
import socket, sys
for path in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    try:
        s.connect(path)
        print(s.recv(99).decode().strip())
    except OSError as e:
        print(type(e).__name__)
"""


def connect(box: Box, settings: dict, *paths: Path | str) -> list[str]:
    p = box.run(PYTHON, "-c", CONNECT, *paths, settings=settings)
    assert p.returncode == 0, p.stderr
    return p.stdout.split("\n")[:-1]


# ---- unix sockets


def test_what_is_listed_and_nothing_else(box: Box, greet: Callable[..., Greeter]) -> None:
    a, b = box.out / "a", box.out / "b"
    greet(a)
    other = greet(b)
    assert connect(box, listed(a), a, b, box.out / "absent") == ["hello from the host", "PermissionError", "FileNotFoundError"]
    assert other.seen == 0


def test_without_the_setting_there_are_none(box: Box, greet: Callable[..., Greeter]) -> None:
    greet(box.out / "a")
    p = box.run(PYTHON, "-c", CONNECT, str(box.out / "a"), settings=Box.settings())
    assert "PermissionError" in p.stderr


def test_spellings(box: Box, greet: Callable[..., Greeter]) -> None:
    """The entry's own, the place it leads to, and others that come to the same by the letter."""
    place = box.folder(box.out / "place")
    (box.out / "link").symlink_to(place)
    greet(place / "s")
    entry = box.out / "link/s"
    assert connect(box, listed(entry), entry, place / "s", f"{place}//./x/../s") == ["hello from the host"] * 3
    p = box.run(PYTHON, "-c", f"import os; os.chdir({str(place)!r})\n" + CONNECT, "s", settings=listed(entry))
    assert p.stdout == "hello from the host\n", p.stderr


def test_a_folder(box: Box, greet: Callable[..., Greeter]) -> None:
    inner = box.folder(box.out / "d/e")
    greet(inner / "s")
    greet(box.out / "s2")
    (box.out / "d/link").symlink_to(box.out / "s2")
    (box.out / "d/up").symlink_to("..")
    paths = [inner / "s", box.out / "d/link", box.out / "d/up/s2", box.out / "d", box.out / "dx"]
    assert connect(box, listed(box.out / "d"), *paths)[0] == "hello from the host"
    assert all("Error" in line for line in connect(box, listed(box.out / "d"), *paths)[1:])


@pytest.mark.parametrize("before", [False, True])
def test_links_that_are_made_inside_lead_nowhere(box: Box, greet: Callable[..., Greeter], before: bool) -> None:
    """A listed name in a folder that may be written, put in another's place, at once or by an earlier command; and other links."""
    secret = greet(box.out / "secret")
    greet(box.work / "mine")
    box.folder(box.work / "d")
    greet(box.work / "d/s")
    make = (
        f"import os; os.rename('mine', 'old'); os.symlink({str(box.out / 'secret')!r}, 'mine')\n"
        f"os.rename('d', 'e'); os.symlink({str(box.out)!r}, 'd')\n"
        f"os.symlink({str(box.out / 'secret')!r}, 'other')\n"
    )
    settings = listed(box.work / "mine", box.work / "d/secret")
    if before:
        assert box.run(PYTHON, "-c", make, settings=settings).returncode == 0
    script = ("" if before else make) + CONNECT
    p = box.run(PYTHON, "-c", script, "mine", str(box.work / "mine"), "other", "d/secret", settings=settings)
    assert "hello" not in p.stdout
    assert len(p.stdout.split()) == 4, p.stderr
    assert secret.seen == 0


def test_no_socket(box: Box) -> None:
    box.file(box.out / "file")
    fifo = box.out / "fifo"
    os.mkfifo(fifo)
    paths = [box.out / "file", fifo, box.folder(box.out / "dir"), box.out / "absent"]
    answers = connect(box, listed(*paths), *paths)
    assert answers == ["ConnectionRefusedError"] * 3 + ["FileNotFoundError"]


def test_what_is_made_inside_is_its_makers(box: Box) -> None:
    """Also in a folder that others can reach, by any name, in the private temporary folder, and without a path."""
    script = """
import asyncio, os, socket, subprocess, sys, multiprocessing.connection as mc, threading, tempfile
def pair(address, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_UNIX, kind); s.bind(address); s.listen(1)
    c = socket.socket(socket.AF_UNIX, kind); c.connect(s.getsockname()); a, _ = s.accept()
    c.sendall(b"x"); assert a.recv(9) == b"x"
    r, w = os.pipe(); socket.send_fds(c, [b"f"], [w]); assert len(socket.recv_fds(a, 9, 1)[1]) == 1
    s.close()
pair("here"); pair(os.path.abspath("there")); pair("\\0abstract"); pair(tempfile.mkdtemp() + "/x"); pair("seq", socket.SOCK_SEQPACKET)
os.symlink("here2", "l"); s = socket.socket(socket.AF_UNIX); s.bind("here2"); s.listen(1); c = socket.socket(socket.AF_UNIX); c.connect("l")
l = mc.Listener(family="AF_UNIX"); t = threading.Thread(target=lambda: l.accept().send(42)); t.start()
assert mc.Client(l.address).recv() == 42; t.join()
async def main():
    async def serve(r, w): w.write(await r.read(4)); await w.drain(); w.close()
    s = await asyncio.start_unix_server(serve, "aio")
    r, w = await asyncio.open_unix_connection("aio"); w.write(b"ping"); assert await r.read() == b"ping"
asyncio.run(main())
subprocess.run([sys.executable, "-c", "import socket; socket.socket(socket.AF_UNIX).connect('here2')"], check=True)
print("all")
"""
    p = box.run(PYTHON, "-c", script, settings=listed("/nowhere"))
    assert p.stdout == "all\n", p.stderr


def test_a_socket_of_the_host_in_a_folder_that_may_be_written(box: Box, greet: Callable[..., Greeter]) -> None:
    """It is in a folder that the program may write, and is not its own; another name of it is refused as well."""
    other = greet(box.work / "s")
    script = "import os\ntry: os.link('s', 'hard')\nexcept OSError: pass\n" + CONNECT
    p = box.run(PYTHON, "-c", script, "s", "hard", "./../work/s", settings=listed("/nowhere"))
    assert "hello" not in p.stdout
    assert len(p.stdout.split()) == 3, p.stderr
    assert other.seen == 0


def test_an_address_that_changes_while_it_is_looked_at(box: Box, greet: Callable[..., Greeter]) -> None:
    """One thread writes another path into the address, another renames the socket: an unlisted one is never connected."""
    greet(box.out / "aaaa", b"allowed")
    secret = greet(box.out / "bbbb", b"SECRET")
    script = f"""
import ctypes, os, socket, threading, time
libc = ctypes.CDLL(None, use_errno=True)
good, bad = b"{box.out}/aaaa", b"{box.out}/bbbb"
address = ctypes.create_string_buffer(b"\\x01\\0" + good, 110)
stop = False
def flip():
    while not stop:
        address[2:2 + len(bad)] = bad
        address[2:2 + len(good)] = good
def swap():
    while not stop:
        for target in (good, bad):
            try:
                os.symlink(target, "new"); os.rename("new", "link")
            except OSError: pass
for f in (flip, swap): threading.Thread(target=f, daemon=True).start()
got, end = {{}}, time.monotonic() + 1.5
while time.monotonic() < end:
    s = socket.socket(socket.AF_UNIX)
    r = libc.connect(s.fileno(), address, 2 + len(good) + 1)
    k = s.recv(9) if r == 0 else ctypes.get_errno()
    got[k] = got.get(k, 0) + 1
    s.close()
    for name in ("link", os.path.abspath("link")):
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(name); got[s.recv(9)] = -1
        except OSError: pass
        s.close()
stop = True
print(got)
"""
    p = box.run(PYTHON, "-c", script, settings=listed(box.out / "aaaa"))
    assert "SECRET" not in p.stdout, p.stdout
    assert "b'allowed'" in p.stdout, p.stdout + p.stderr
    assert secret.seen == 0


def test_a_descriptor_that_changes_while_it_is_looked_at(box: Box, greet: Callable[..., Greeter]) -> None:
    """Between a TCP socket and a unix one, with an address that either accepts: init does not let the call continue."""
    secret = greet(box.out / "bbbb", b"SECRET")
    script = f"""
import ctypes, socket, threading, time
libc = ctypes.CDLL(None)
address = ctypes.create_string_buffer(b"\\x01\\0{box.out}/bbbb", 110)
tcp = socket.socket(); unix = socket.socket(socket.AF_UNIX); t, u, slot = tcp.fileno(), unix.fileno(), 100; stop = False
def go():
    while not stop:
        libc.connect(slot, address, 100)
threads = [threading.Thread(target=go) for _ in range(2)]
libc.dup2(t, slot)
for x in threads: x.start()
end = time.monotonic() + 1.5
while time.monotonic() < end:
    libc.dup2(t, slot); libc.dup2(u, slot)
stop = True
for x in threads: x.join()
"""
    p = box.run(PYTHON, "-c", script, settings=listed("/nowhere"))
    assert secret.seen == 0, p.stdout
    assert p.returncode == 0, p.stderr


def test_odd_addresses(box: Box) -> None:
    script = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def go(data, length, fd=None):
    s = socket.socket(socket.AF_UNIX)
    r = libc.connect(s.fileno() if fd is None else fd, data, length)
    return errno.errorcode[ctypes.get_errno()] if r else "OK"
long = b"\\x01\\0" + b"/" + b"x" * 200
print(go(long, 110), go(long, 128), go(long, 129), go(long, 2**31), go(b"\\x01\\0", 1), go(b"\\x01\\0", 2), go(None, 20),
      go(b"\\x02\\0" + b"\\0" * 20, 16), go(long, 20, 12345), go(long, 20, os.open("/dev/null", 0)))
try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
except PermissionError: print("no datagrams")
try: socket.socket(socket.AF_UNIX, socket.SOCK_RAW)
except PermissionError: print("none of that name")
n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
try: n.connect((0, 0))
except PermissionError: print("no netlink")
"""
    p = box.run(PYTHON, "-c", script, settings=listed("/nowhere"))
    lines = p.stdout.splitlines()
    assert lines[0].split()[1:] == [*["EINVAL"] * 5, "EFAULT", "EINVAL", "EBADF", "ENOTSOCK"], p
    assert lines[0].split()[0] in ("ENAMETOOLONG", "ENOENT")
    assert lines[1:] == ["no datagrams", "none of that name", "no netlink"]


def test_tcp_goes_on_as_before(box: Box) -> None:
    """Every connect() is looked at now: those that wait, fail or do not block, from many threads, with signals in between."""
    script = """
import asyncio, errno, signal, socket, threading
server = socket.create_server(("127.0.0.1", 0), backlog=512)
def serve():
    while True:
        c, _ = server.accept(); c.sendall(b"ok"); c.close()
threading.Thread(target=serve, daemon=True).start()
signal.signal(signal.SIGALRM, lambda *a: None); signal.siginterrupt(signal.SIGALRM, False); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
done = []
def many():
    for _ in range(100):
        s = socket.create_connection(server.getsockname()); assert s.recv(9) == b"ok"; done.append(1)
        assert s.getblocking()
ts = [threading.Thread(target=many) for _ in range(4)]
[t.start() for t in ts]; many(); [t.join() for t in ts]
signal.setitimer(signal.ITIMER_REAL, 0)
s = socket.socket(); s.setblocking(False); r = s.connect_ex(server.getsockname()); assert r in (0, errno.EINPROGRESS), r
assert socket.socket().connect_ex(("127.0.0.1", 1)) == errno.ECONNREFUSED
assert socket.socket().connect_ex(("192.0.2.1", 1)) == errno.ENETUNREACH
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(("127.0.0.1", 9)); u.send(b"x")
async def a():
    r, w = await asyncio.open_connection(*server.getsockname()); assert await r.read() == b"ok"
asyncio.run(a())
print(len(done))
"""
    p = box.run(PYTHON, "-c", script, settings=listed("/nowhere"))
    assert p.stdout == "500\n", p.stderr


def test_a_server_that_takes_no_more(box: Box) -> None:
    """A full queue makes only the caller wait."""
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(box.out / "full"))
    s.listen(0)
    box.own(box.out / "full")
    script = f"""
import socket, sys, threading, time
def c():
    s = socket.socket(socket.AF_UNIX); s.connect({str(box.out / "full")!r}); return s
keep = [c()]
def second():
    try: keep.append(c())
    except OSError as e: print(e, flush=True)
t = threading.Thread(target=second); t.start()
t.join(0.3); print(t.is_alive(), flush=True)
n = socket.socket(socket.AF_UNIX); n.setblocking(False)
try: n.connect({str(box.out / "full")!r})
except BlockingIOError: print("would block", flush=True)
l = socket.create_server(("127.0.0.1", 0)); socket.create_connection(l.getsockname()); print("others go on", flush=True)
sys.stdin.readline()
t.join(20); print(t.is_alive())
"""
    p = box.popen(PYTHON, "-c", script, settings=listed(box.out / "full"), stdin=subprocess.PIPE)
    assert [p.stdout.readline() for _ in range(3)] == ["True\n", "would block\n", "others go on\n"]
    s.accept()
    p.stdin.write("\n")
    p.stdin.flush()
    assert p.stdout.readline() == "False\n"
    p.wait(box.timeout)
    s.close()


def test_it_is_told(box: Box, greet: Callable[..., Greeter]) -> None:
    greet(box.out / "b")
    log = box.out / "log"
    settings = {**listed("/nowhere"), "cellgate": {"violationLog": str(log)}}
    p = box.run(PYTHON, "-c", CONNECT, str(box.out / "b"), settings=settings)
    denial = json.loads(log.read_text().splitlines()[0])
    assert (denial["path"], denial["rule"]) == (str(box.out / "b"), "not in network.allowUnixSockets")
    assert "network.allowUnixSockets" in p.stderr


# ---- ports


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def dial(port: int, timeout: float, data: bytes = b"") -> bytes:
    """Wait for a listener at this machine's port and return its answer."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            got = b""
            while more := s.recv(65536):
                got += more
            return got
        assert time.monotonic() < deadline
        time.sleep(0.02)


SERVE = """
import socket, sys, threading
family, host, port = sys.argv[1:4]
s = socket.create_server((host, int(port)), family=getattr(socket, family))
print("listening", s.getsockname()[1], flush=True)
def talk(c):
    data = b""
    while more := c.recv(65536): data += more
    c.sendall(b"inside got %d" % len(data)); c.close()
def loop():
    while True: threading.Thread(target=talk, args=[s.accept()[0]], daemon=True).start()
threading.Thread(target=loop, daemon=True).start()
sys.stdin.readline()
"""


@contextlib.contextmanager
def serving(box: Box, settings: dict, family: str = "AF_INET", host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    p = box.popen(PYTHON, "-c", SERVE, family, host, str(port), settings=settings, stdin=subprocess.PIPE)
    try:
        yield int(p.stdout.readline().split()[1])
    finally:
        p.stdin.close()
        p.wait(box.timeout)


@pytest.mark.parametrize(("family", "host"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1"), ("AF_INET", "0.0.0.0")])
def test_an_exposed_port(box: Box, family: str, host: str) -> None:
    outer = free_port()
    settings = Box.settings(cellgate={"ports": {"expose": [{"inside": 8000, "host": outer}]}})
    with serving(box, settings, family, host, 8000):
        assert dial(outer, box.timeout) == b"inside got 0"
        assert dial(outer, box.timeout, b"x" * 3_000_000) == b"inside got 3000000"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", outer), 5).recv(1)


def test_many_at_once(box: Box) -> None:
    outer = free_port()
    with serving(box, Box.settings(cellgate={"ports": {"expose": [{"inside": 8000, "host": outer}]}}), port=8000):
        dial(outer, box.timeout)
        got: list[bytes] = []
        threads = [threading.Thread(target=lambda: got.append(dial(outer, box.timeout, b"y" * 1000))) for _ in range(100)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert got == [b"inside got 1000"] * 100


def leads_inside(port: int) -> bool:
    """The same number may be another program's outside, or the one that this connection gets."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as s:
        s.sendall(b"abc")
        s.shutdown(socket.SHUT_WR)
        return s.recv(100).startswith(b"inside got")
    return False


def test_a_port_that_is_not_exposed(box: Box) -> None:
    with serving(box, Box.settings()) as port:
        assert not leads_inside(port)


def test_exposed_and_nobody_there(box: Box) -> None:
    """A refusal, as far as one can be passed on: not a wait."""
    outer = free_port()
    p = box.popen("cat", settings=Box.settings(cellgate={"ports": {"expose": [outer]}}), stdin=subprocess.PIPE)
    deadline = time.monotonic() + box.timeout
    while True:
        try:
            # The reset may come before connect() has looked whether it is connected.
            with pytest.raises(ConnectionResetError), socket.create_connection(("127.0.0.1", outer), 5) as s:
                s.recv(1)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    p.stdin.close()
    assert p.wait(box.timeout) == 0


def test_a_port_of_this_machine_that_is_in_use(box: Box, greet: Callable[..., Greeter]) -> None:
    g = greet(0)
    port = g.listener.getsockname()[1]
    settings = Box.settings(cellgate={"ports": {"expose": [port]}})
    p = box.popen("cat", settings=settings)
    while f"port {port} of this machine cannot be listened at" not in (line := p.stderr.readline()):
        assert line, "it has ended"
    _, stderr = p.communicate(timeout=box.timeout)
    assert p.returncode == 0, stderr


REACH = """
import socket, sys
s = socket.create_connection(("localhost", int(sys.argv[1])), 20)
print(s.recv(99).decode().strip()); s.sendall(b"y" * 200000); s.shutdown(1)
n = 0
while d := s.recv(65536): n += len(d)
print(n)
"""


def test_a_port_that_may_be_reached(box: Box, greet: Callable[..., Greeter]) -> None:
    """At once: it is there before the command is."""
    port = greet(0).listener.getsockname()[1]
    for inside in (port, 5432, 443):
        settings = Box.settings(cellgate={"ports": {"reach": [{"inside": inside, "host": port}]}})
        assert box.run(PYTHON, "-c", REACH, str(inside), settings=settings).stdout == "hello from the host\n200000\n"
    p = box.run(PYTHON, "-c", REACH, str(port), settings=Box.settings())
    assert "ConnectionRefusedError" in p.stderr


def test_the_same_without_a_proxy(box: Box, greet: Callable[..., Greeter]) -> None:
    port = greet(0).listener.getsockname()[1]
    settings = Box.settings(cellgate={"networkOff": True, "ports": {"reach": [port]}})
    assert box.run(PYTHON, "-c", REACH, str(port), settings=settings).stdout.startswith("hello")


def test_reach_and_nobody_there(box: Box) -> None:
    settings = Box.settings(cellgate={"ports": {"reach": [free_port()]}})
    port = settings["cellgate"]["ports"]["reach"][0]
    p = box.run(PYTHON, "-c", REACH, str(port), settings=settings)
    assert "ConnectionResetError" in p.stderr


def test_local_binding(box: Box) -> None:
    """With it the same port of this machine leads in; without it, or with false, no program outside can connect."""
    with serving(box, Box.settings(net={"allowLocalBinding": True})) as port:
        assert dial(port, box.timeout, b"abc") == b"inside got 3"
        assert leads_inside(port)
    with serving(box, Box.settings(net={"allowLocalBinding": False})) as port:
        assert not leads_inside(port)


def test_its_end_is_the_end_of_all(box: Box) -> None:
    """Also when the keeper is killed: no process and no port is left."""
    outer = free_port()
    settings = Box.settings(cellgate={"ports": {"expose": [{"inside": 8000, "host": outer}]}})
    p = box.popen(PYTHON, "-c", SERVE, "AF_INET", "127.0.0.1", "8000", settings=settings, stdin=subprocess.PIPE)
    p.stdout.readline()
    assert dial(outer, box.timeout) == b"inside got 0"
    p.kill()
    p.wait(box.timeout)
    deadline = time.monotonic() + box.timeout
    with contextlib.suppress(ConnectionRefusedError):
        while True:
            socket.create_connection(("127.0.0.1", outer), 5).close()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    while box.names():  # what the watcher still has to remove
        assert time.monotonic() < deadline
        time.sleep(0.02)
