"""A sandbox without a network says so once in a cell, whatever tried to use one, and whether the cell shows the error or not."""

import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOTE = "this sandbox has no network"
CHILD = "import subprocess, sys\n_ = subprocess.run([sys.executable, '-c', {!r}], stderr=subprocess.DEVNULL)"
TRY = "import socket\ntry: {}\nexcept OSError as e: pass"
CONNECT = "socket.create_connection(('192.0.2.1', 443))"
LOOKUP = "socket.getaddrinfo('example.org', 80)"
DATAGRAM = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
SIX = "socket.create_connection(('2001:db8::1', 443))"


@pytest.mark.parametrize("code", [CONNECT, LOOKUP, DATAGRAM, SIX])
@pytest.mark.parametrize("where", ["in the cell", "in a child"])
def test_it_is_said_once_in_a_cell(run_cellgate: Run, where: str, code: str) -> None:
    cell = TRY.format(code) if where == "in the cell" else CHILD.format(f"import socket\n{code}")
    done = run_cellgate("run", "-c", cell, "-c", cell, "-c", "print('end')")
    assert done.stdout == "end\n"
    assert done.stderr.count(NOTE) == 2 and "--allow-host" in done.stderr, done.stderr


def test_a_traceback_that_says_it_is_enough(run_cellgate: Run) -> None:
    done = run_cellgate("run", "-c", f"import socket\n{CONNECT}")
    assert done.stderr.count(NOTE) == 1
    assert done.stderr.rstrip().splitlines()[-1].startswith("[cellgate] a connection to 192.0.2.1:443 is not allowed")


def test_connections_inside_are_no_news(run_cellgate: Run) -> None:
    code = """
import socket
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((host, 0), family=family)
    socket.create_connection(server.getsockname()[:2]).close()
    try: socket.create_connection((host, 9))
    except ConnectionRefusedError: print("refused")
a, b = socket.socketpair()
try: socket.socket().connect("nonsense")
except TypeError: print("type")
"""
    done = run_cellgate("run", "-c", code)
    assert done.stdout.split() == ["refused", "refused", "type"] and NOTE not in done.stderr, done.stderr


def test_broken_addresses_do_no_harm(run_cellgate: Run) -> None:
    code = """
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
s = socket.socket()
buffer = ctypes.create_string_buffer(b"\\x02\\x00\\x01\\xbb", 16)
for address, length in ((None, 16), (buffer, 0), (buffer, 3), (buffer, 0xffffffff), (ctypes.c_void_p(1), 16), (buffer, 16)):
    print(libc.connect(s.fileno(), address, ctypes.c_uint(length)), end=" ")
"""
    done = run_cellgate("run", "-c", code)
    assert len(done.stdout.split()) == 6, done.stderr


def test_it_belongs_to_its_cell(run_cellgate: Run) -> None:
    done = run_cellgate("run", "--json", "-c", "1", "-c", CHILD.format(f"import socket\n{CONNECT}"))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (denied,) = [e for e in events if e["type"] == "denied"]
    assert (denied["cell"], denied["content"]["operation"]) == (2, "network-outbound")
    assert (denied["content"]["host"], denied["content"]["port"]) == ("192.0.2.1", 443)
    assert denied["content"]["source"] == "sandbox"


def test_not_where_there_is_one(run_cellgate: Run) -> None:
    done = run_cellgate("run", "--allow-host", "example.org", "-c", TRY.format(CONNECT))
    assert NOTE not in done.stderr
