"""From inside a kernel there is no way around the approval, and no kernel, host or folder leads another one astray.

Ways to other processes, files and networks are tried by `cellgate selftest` (sandbox_command/test_selftest.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client, Session
from forging import LIBRARY
from processes import alive, descendants, eventually


@pytest.fixture
def mark(used_mark: Path) -> Path:
    return used_mark


@pytest.fixture
def kernel(used_tools: Session, work: Path) -> Session:
    """One session, whose kernel is a new one."""
    (work / "asked").unlink(missing_ok=True)
    used_tools.reset()
    assert used_tools.run(LIBRARY).status == "ok"
    return used_tools


# ---------------------------------------------------------------- going around the approval


def test_forged_calls_are_asked_about_like_any_other(kernel: Session, mark: Path) -> None:
    """Bytes written straight onto the tool wire make a request, no more."""
    kernel.execute(
        'forge(message(3, 1, 99, b\'{"server":"echo","tool":"danger","timeout_ms":0}\', b\'{"text":"forged"}\'))'
    )
    # The same bytes are also a wrong message on the kernel wire, which ends the kernel: the question may come before that or not at all.
    got = kernel.until("kernel_died")
    asked = [e for e in got if e.type == "approval_request"]
    assert "broke a rule" in got[-1].text and [e.tool for e in asked] in ([], ["danger"])
    for e in asked:
        with pytest.raises(CellgateError):
            kernel.accept(e.approval)
    assert not mark.exists()


def test_forged_call_on_the_tool_wire_alone_waits_for_its_decision(kernel: Session, mark: Path) -> None:
    code = """
for c in connections():
    c.setblocking(True)
    try:
        own = os.path.basename(c.getsockname())
    except (OSError, TypeError):
        continue
    if isinstance(own, str) and own.startswith('t'):
        attempt(c.sendall, message(3, 1, 99, b'{"server":"echo","tool":"danger","timeout_ms":0}', b'{"text":"forged"}'))
        print('sent')
"""
    out = kernel.execute(code)
    got = kernel.until("result")
    if not any(e.type == "approval_request" for e in got):
        got += kernel.until("approval_request", 5000)
    asked = next(e for e in got if e.type == "approval_request")
    assert (asked.tool, asked.args) == ("danger", '{"text":"forged"}') and not mark.exists()
    kernel.reject(asked.approval)
    assert kernel.run("import time; time.sleep(0.2)").status == "ok"
    assert not mark.exists() and out


@pytest.mark.parametrize("wire", ["k", "t", "f"])
@pytest.mark.parametrize(
    "what, data",
    [
        ("a decision of the host, on the host wire", "message(1, 22, 1, b'{\"accept\":true}', session=1)"),
        ("a decision of the supervisor, on the broker wire", "message(4, 9, 1, b'{\"accept\":true}', session=1)"),
        ("a result of the tool server, on the tool wire", "message(3, 2, 1, b'{\"status\":\"ok\"}', b'{}')"),
        ("a server's definition, on the host wire", "message(1, 14, 1, b'{\"servers\":{}}', session=1)"),
        ("a server's definition, on the broker wire", "message(4, 6, 1, b'{\"servers\":{}}', session=1)"),
        ("a cell of another session", "message(1, 20, 1, b'{}', b'print(1)', session=1)"),
        ("another version", "message(2, 12, 0, b'', b'x', version=9)"),
        ("an unknown message", "message(2, 4242)"),
        ("garbage", "b'\\xff' * 1000"),
        ("a frame of 2^60 bytes", "bytes([2]) + (2**60).to_bytes(8, 'big') + b'x'"),
    ],
)
def test_messages_a_kernel_may_not_send(
    kernel: Session, work: Path, mark: Path, what: str, data: str, wire: str
) -> None:
    """While a call waits for its decision, each of these ends the kernel or its connection, and the call does not run."""
    kernel.execute(
        "import os, threading, time\nfrom mcptools.echo import danger\n"
        "def later():\n    while not os.path.exists('asked'): time.sleep(0.01)\n"
        f"    print('connections', forge({data}, {wire!r}), flush=True)\n"
        "threading.Thread(target=later, daemon=True).start()\ndanger.run(text='x')"
    )
    asked = kernel.until("approval_request")[-1]
    (work / "asked").touch()
    got = []
    deadline = time.monotonic() + 60
    while not got or got[-1].type != "result":
        e = kernel.next(3000)
        if e is None and not any(e.type == "stream" for e in got):
            assert time.monotonic() < deadline, "nothing was sent"
            continue
        if e is None:  # the message went nowhere, and the call still waits: it is refused now
            with contextlib.suppress(CellgateError):  # its kernel may have ended just now
                kernel.reject(asked.approval)
            kernel.cancel(asked.cell)
            e = kernel.until("result")[-1]
        got.append(e)
    # The wire was written to, or the kernel was ended before it could say so.
    said = "".join(e.text for e in got if e.type == "stream")
    assert got[-1].status == "kernel_died" or int(said.split()[1]) == 1
    assert not mark.exists()
    after = kernel.run("1")
    if after.status in ("kernel_died", "cancelled"):  # the call failed first, then the report ended the kernel
        after = kernel.run("1")
    assert after.value == "1"


def test_arguments_cannot_change_after_the_question(kernel: Session, work: Path, mark: Path) -> None:
    kernel.execute(
        'import os, threading, time, _cellgate\nargs = bytearray(b\'{"text": "harmless"}\')\nframe = bytes(args)\n'
        "def later():\n    while not os.path.exists('asked'): time.sleep(0.01)\n"
        "    at = id(frame) + bytes.__basicsize__ - 1\n"
        "    ctypes.memmove(at, b'{\"text\": \"EVILEVIL\"}', len(frame))\n    print('changed', flush=True)\n"
        "threading.Thread(target=later).start()\n_cellgate.tool_call('echo', 'danger', frame, 0)"
    )
    e = kernel.until("approval_request")[-1]
    (work / "asked").touch()
    kernel.until("stream")
    kernel.accept(e.approval)
    assert kernel.until("result")[-1].status == "ok"
    assert mark.read_text() == '{"text": "harmless"}\n'


def test_malformed_calls_fail_without_a_question(kernel: Session, mark: Path) -> None:
    for server, tool, args in [
        ("nosuch", "danger", b"{}"),
        ("echo", "nosuch", b"{}"),
        ("echo ", "danger", b"{}"),
        ("echo", "danger\n", b"{}"),
        ("echo", "danger", b"[]"),
        ("echo", "danger", b"{} {}"),
        ("echo", "danger", b'{"a":1}\n{"jsonrpc":"2.0","id":1,"method":"tools/call"}'),
        ("echo", "danger", b'{"a":1},"name":"echo"'),
        ("echo", "danger", b""),
        ("echo", "danger", b"\xff"),
        ("echo", "danger", b'{"half":"\\ud800"}'),
        ("echo", "danger", b'{"\\udc00\\ud800":1}'),
        ("echo", "danger", b'{"text":1e999}'),
        ("echo", "danger", b'{"text":[{"a":-0.001E+400}]}'),
        ("echo", "danger", b'{"a":' + b"[" * 100000),
        ("echo" * 1000, "danger", b"{}"),
    ]:
        out = kernel.run(
            f"import _cellgate\ntry:\n    r = _cellgate.tool_call({server!r}, {tool!r}, {args!r}, 0)[0]\nexcept Exception as e:\n    r = type(e).__name__\nr"
        )
        assert out.status in ("ok", "kernel_died"), out
        assert out.value in (None, "'failed'", "'ValueError'", "'OverflowError'"), out
        assert not any(e.type == "approval_request" for e in out.events), (server, tool, args)
        assert not mark.exists(), (server, tool, args)


# ---------------------------------------------------------------- what a kernel inherits, floods, ends


def test_inherited_descriptors_are_the_known_ones(kernel: Session) -> None:
    kinds = kernel.run(
        "links = [os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + f)]; "
        "sorted({k if k.startswith('/memfd:') else k.split(':')[0] for k in links})",
    ).value
    assert kinds
    # Newer libffi keeps its own file open, from which it maps its trampolines.
    others = {k for k in eval(kinds) if not re.fullmatch(r"/usr/lib/.*/libffi\.so\.[0-9.]+", k)}
    # The memory file is the kernel's own: faulthandler writes its dump there (src/kernel/crash.c).
    assert others <= {"socket", "pipe", "anon_inode", "/dev/null", "/proc/2/fd", "/memfd:cellgate-crash (deleted)"}, (
        kinds
    )


def test_two_thousand_forged_calls_do_no_harm(kernel: Session, mark: Path, client: Client) -> None:
    """A flood is bounded, and other sessions continue."""
    kernel.execute(
        "for c in connections():\n    c.setblocking(True)\n"
        '    attempt(c.sendall, b\'\'.join(message(3, 1, 1000 + i, b\'{"server":"echo","tool":"danger","timeout_ms":0}\', b\'{}\') for i in range(2000)))\n'
    )
    with client.session() as other:
        assert other.run("1").value == "1"
    kernel.until("kernel_died")
    assert not mark.exists()
    assert kernel.run("1").value == "1"


def test_host_that_vanishes_takes_everything_along(tmp_path: Path, prefix: Path) -> None:
    """SIGKILL of the host: supervisor, zygote, tool server, kernels, MCP servers and files are gone."""
    code = f"""
import sys, os
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from cellgate_api import Client
c = Client(); s = c.session(workspace={str(tmp_path)!r})
s.add_servers({{"echo": {{"command": "/usr/bin/python3", "args": [{str(Path(__file__).parent / "echo_server.py")!r}]}}}})
s.execute("import subprocess; subprocess.Popen(['sleep', '1234567']); print('up', flush=True)\\nwhile True: pass")
s.until('stream'); print('ready', flush=True); sys.stdin.read()
"""
    host = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "CG_PREFIX": str(prefix)},
    )
    assert host.stdout is not None
    threading.Timer(60, host.kill).start()
    assert host.stdout.readline() == b"ready\n"
    family = descendants(host.pid)
    assert len(family) >= 5, family
    host.send_signal(signal.SIGKILL)
    host.wait()
    eventually(lambda: not any(map(alive, family)))


def test_workspace_that_another_session_replaced(client: Client, tmp_path: Path) -> None:
    """A kernel that may write the folder above cannot lead the next kernel of a session elsewhere."""
    inner, outside = tmp_path / "above" / "inner", tmp_path / "outside"
    inner.mkdir(parents=True)
    outside.mkdir()
    write = f"open({str(outside / 'x')!r}, 'w')"
    with client.session(workspace=inner) as victim, client.session(workspace=inner.parent) as attacker:
        assert victim.run(write).error is not None
        victim.reset()
        assert victim.run("1").value == "1"
        assert (
            attacker.run(f"import os; os.rename('inner', 'old'); os.symlink({str(outside)!r}, 'inner')").status == "ok"
        )
        with pytest.raises(CellgateError, match="not the folder any more"):
            victim.reset()
    assert not list(outside.iterdir())
