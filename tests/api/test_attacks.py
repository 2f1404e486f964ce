"""Attacks by a kernel on what carries its output and its calls: text that breaks, memory that grows."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
import web
from cellgate_api import CellgateError, Client, Session
from forging import LIBRARY
from processes import by_age, children, eventually, words
from rounds import rounds

# The kernel's own ends of the tool wire: of calls of tools ('t') and of functions of the host ('f').
CALL_WIRES = r"""
def call_wire(name):
    c = next(c for c in connections() if os.path.basename(c.getsockname()).startswith(name))
    c.setblocking(True)
    return c
"""


def _memory(pid: int | str = "self") -> int:
    """Bytes of it that are the process's own."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_error_text_that_is_cut_inside_a_character(session: Session) -> None:
    """The result keeps its number, its text and whether a refusal was the cause."""
    for pad in range(4):
        result = session.run(f"raise ValueError('x' * {pad} + '\u20ac' * 2000)").result
        assert result.status == "error", pad
        assert result.count == 1 + pad
        assert result.text.startswith("ValueError: " + "x" * pad + "\u20ac" * 100), pad


def test_output_that_no_program_could_print(session: Session) -> None:
    """Lone surrogates in content that a kernel has written itself: JSON, but text without an encoding."""
    for text in ['"\\ud800"', '"\\udc00\\ud83d"', '{"\\udfff": 1}']:
        content = '{"data": {"text/plain": ' + text + '}, "metadata": {}}'
        out = session.run(f"import _cellgate\n_cellgate.publish('display_data', {content!r})\n6 * 7")
        assert out.status == "ok" and out.value == "42", text
        assert not any(e.type == "display_data" for e in out.events), text
        assert any(e.type == "notice" and "cannot be shown" in e.text for e in out.events), text


def test_calls_asked_and_taken_back_do_not_fill_the_memory_of_a_host_that_does_not_read(
    tools: Session, workspace: Path, mark: Path
) -> None:
    """Each of 200 MB of questions is taken back at once; what the host keeps has a ceiling."""
    tools.run(LIBRARY + CALL_WIRES)
    # The server runs afterwards; otherwise nothing would be asked before it has started.
    assert tools.run("from mcptools.echo import danger\ndanger.run(text='x')", decide=lambda e: "no").result.refused
    before = _memory()
    code = """
w = call_wire('t')
args = b'{"text":"' + b'x' * 1000000 + b'"}'
body = b'{"server":"echo","tool":"danger","timeout_ms":0}'
for i in range(200):
    w.sendall(message(3, 1, 1000000 + i, body, args) + message(3, 3, 1000000 + i))
open('sent', 'w').close()
"""
    cell = tools.execute(code)
    events = []
    # Nothing is read before the kernel has sent it all: only then the ceiling can be seen.
    _wait_for(workspace / "sent")
    assert _memory() - before < 100 << 20
    while not events or events[-1].type != "result":
        event = tools.next()
        assert event is not None
        events.append(event)
    assert events[-1].cell == cell
    asked = [e.approval for e in events if e.type == "approval_request"]
    closed = [e.approval for e in events if e.type == "approval_closed"]
    assert 0 < len(asked) < 200
    assert set(closed) <= set(asked)
    assert not mark.exists()
    # The session is as good as before: a host that reads again is asked again. Questions of calls that were taken back
    # may still come, for the tool server reads them by itself.
    cell = tools.execute("danger.run(text='again')")
    while (event := tools.next()) and not (event.type == "result" and event.cell == cell):
        if event.type == "approval_request" and json.loads(event.args) == {"text": "again"}:
            tools.reject(event.approval, "no")
    assert event is not None and event.refused


def test_function_calls_that_are_taken_back_do_not_fill_the_memory_of_a_host_that_does_not_read(
    session: Session, workspace: Path
) -> None:
    session.add_functions("host", [{"name": "any", "inputSchema": {"type": "object"}}])
    session.run(LIBRARY + CALL_WIRES)
    before = _memory()
    code = """
w = call_wire('f')
body = b'{"server":"host","tool":"any","timeout_ms":0}'
args = b'{"x":"' + b'x' * 1000000 + b'"}'
for i in range(200):
    w.sendall(message(3, 1, 1000000 + i, body, args) + message(3, 3, 1000000 + i))
open('sent', 'w').close()
"""
    session.execute(code)
    _wait_for(workspace / "sent")
    assert _memory() - before < 100 << 20
    events = session.until("result")
    called = [e.approval for e in events if e.type == "function_call"]
    closed = [e.approval for e in events if e.type == "approval_closed"]
    assert 0 < len(called) < 200 and set(closed) <= set(called)
    assert events[-1].status == "ok" and session.run("1").value == "1"


def test_a_message_without_an_end_takes_no_memory(tools: Session) -> None:
    """One message of endless frames, with and without a valid start: its kernel is ended, the others continue."""
    for wire in ["k", "t", "f"]:
        for begins_well in [False, True]:
            supervisor, toolserver = _trusted()
            for pid in (supervisor, toolserver):
                with contextlib.suppress(PermissionError):  # only root may, of a process that hides its memory
                    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak so far is forgotten
            before = _memory(supervisor), _memory(toolserver)
            with tools.client.session() as other:
                other.run("x = 5")
                tools.run(LIBRARY)
                tools.execute(f"""
c = next(c for c in connections() if os.path.basename(c.getsockname()).startswith({wire!r}))
c.setblocking(True)
if {begins_well}:
    head = message(*{(2, 12) if wire == "k" else (3, 1)})
    c.sendall(head[:33] + bytes([3]) + bytes(8))
while True:
    c.sendall(bytes([3]) + struct.pack('>Q', 10**6) + b'x' * 10**6)
""")
                assert "broke a rule" in tools.until("kernel_died")[-1].text, (wire, begins_well)
                assert other.run("x").value == "5", (wire, begins_well)
                assert tools.run("1").value == "1", (wire, begins_well)
            assert _peak(supervisor) - before[0] < 20 << 20, (wire, begins_well)
            assert _peak(toolserver) - before[1] < 20 << 20, (wire, begins_well)


def test_a_kernel_that_closes_its_connection_is_ended(tools: Session) -> None:
    """It has some seconds to end by itself, as any kernel does that closes its connection."""
    tools.run(LIBRARY)
    tools.execute("import time\nfor c in connections():\n    c.shutdown(socket.SHUT_RDWR)\ntime.sleep(60)")
    assert "broke a rule: it closed its connection" in tools.until("kernel_died")[-1].text
    assert tools.run("1").value == "1"


def test_session_that_ends_when_its_kernel_has_closed_its_connection_unseen(client: Client, workspace: Path) -> None:
    """Nothing is read from the kernel (its host reads nothing), so that the supervisor finds out by what it sends."""
    with client.session(workspace=workspace) as s:
        s.run(LIBRARY)
        s.execute("""
import threading, time
def shut():
    time.sleep(0.5)
    for c in connections():
        c.shutdown(socket.SHUT_RDWR)
    open('shut', 'w').close()
    time.sleep(60)
threading.Thread(target=shut).start()
while True:
    print('x' * 60000)
""")
        _wait_for(workspace / "shut")
        s.cancel()
    for _ in range(3):
        with client.session(workspace=workspace) as other:
            assert other.run("1").value == "1"


def _trusted() -> tuple[int, int]:
    """Supervisor and tool server that this process has started."""

    def started(by: int, program: bytes) -> int:
        return by_age([p for p in children(by) if b"".join(words(p)[:1]).endswith(program)])[-1]

    supervisor = started(os.getpid(), b"cellgate-supervisor")
    return supervisor, started(started(supervisor, b"cellgate-toolserver"), b"cellgate-toolserver")


def _peak(pid: int) -> int:
    """The most memory it ever had."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _wait_for(file: Path) -> None:
    eventually(file.exists, 60)


def test_folders_of_other_supervisors_are_hidden(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they lie in the workspace, and also of one that starts later."""
    base = tmp_path_factory.mktemp("r")
    base.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    look = "import os; sorted(n for _, folders, files in os.walk('.') for n in folders + files)"
    with Client(log_level=0) as first, first.session(workspace=base) as spy:
        assert len(list(base.glob("cellgate-*/*"))) == 1
        before = spy.run(look)
        with Client(log_level=0) as second, second.session() as other:
            assert len(list(base.glob("cellgate-*/*"))) == 2
            assert spy.run(look).value == before.value == repr([f"cellgate-{os.getuid()}"])
            assert spy.run(f"os.rename('cellgate-{os.getuid()}', 'x')").status == "error"
            assert other.run("1").value == "1"


@pytest.mark.parametrize("settings", [None, web.settings()], ids=["default", "settings"])
def test_a_workspace_that_cells_of_the_folder_above_exchange(
    client: Client, tmp_path: Path, settings: dict | None
) -> None:
    """For a link, again and again, while its kernel starts: what that leads to is not writable."""
    inner, link, target = tmp_path / "p/x/w", tmp_path / "p/link", tmp_path / "target/w"
    inner.mkdir(parents=True)
    target.mkdir(parents=True)
    link.symlink_to(target.parent)
    exchange = f"libc.renameat2(-100, {bytes(inner.parent)!r}, -100, {bytes(link)!r}, 2)"
    code = (
        f"import ctypes, os, threading\nlibc = ctypes.CDLL(None)\ndef go():\n while not stop: {exchange}\n"
        "def start():\n global stop, t\n stop = False\n t = threading.Thread(target=go)\n t.start()\n"
        f"def end():\n global stop\n stop = True\n t.join()\n if os.path.islink({str(inner.parent)!r}): {exchange}\n"
    )
    options = {"settings": settings} if settings else {}
    with client.session(workspace=tmp_path / "p") as other:
        assert other.run(code).status == "ok"
        for _ in range(rounds(400, 12)):
            with contextlib.suppress(CellgateError), client.session(workspace=inner, **options) as s:
                s.run("1")
                assert other.run("start()").status == "ok"
                try:
                    s.reset()
                finally:
                    assert other.run("end()").status == "ok"
                s.run(f"open({str(target)!r} + '/planted', 'w')")
            assert not os.listdir(target)
