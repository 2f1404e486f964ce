"""Sessions whose cells start no programs (exec "deny")."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import E_PARSE, CellgateError, Client, Event, Outcome, Session

from .test_settings import E_UNSUPPORTED, settings

# Each is a way to start /usr/bin/id. `tried()` raises for all but a refusal by the sandbox.
PRELUDE = """
import asyncio, ctypes, errno, os, pty, signal, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
ID = b'/usr/bin/id'
argv = (ctypes.c_char_p * 2)(ID, None)
def in_child(start):
    "The errno of start() in a fork; 0: it started."
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        ctypes.set_errno(0)
        try:
            start()
            n = ctypes.get_errno()
        except OSError as e:
            n = e.errno
        os.write(w, bytes([n]))
        os._exit(9)
    os.close(w)
    got = os.read(r, 1)
    os.close(r)
    os.waitpid(pid, 0)
    return got[0] if got else 0
def caught(start):
    try:
        start()
    except OSError as e:
        return e.errno
    return 0
def memfd():
    fd = os.memfd_create('program')
    os.sendfile(fd, os.open(ID, os.O_RDONLY), 0, 1 << 20)
    return fd
def script():
    with open('script', 'w') as f:
        f.write('#!/usr/bin/id\\n')
    os.chmod('script', 0o755)
    return './script'
def copy(name):
    import shutil
    shutil.copy(ID, name)
    return name
"""
WAYS = {
    "subprocess": "caught(lambda: subprocess.run([ID]))",
    "subprocess by PATH": "caught(lambda: subprocess.run(['id']))",
    "shell": "caught(lambda: subprocess.run('id', shell=True))",
    "preexec": "caught(lambda: subprocess.run([ID], preexec_fn=lambda: None, start_new_session=True))",
    "posix_spawn": "caught(lambda: os.posix_spawn(ID, [ID], {}))",
    "posix_spawnp": "caught(lambda: os.posix_spawnp('id', ['id'], {}))",
    "execv": "in_child(lambda: os.execv(ID, [ID]))",
    "execv of the kernel": "caught(lambda: os.execv(ID, [ID]))",
    "execve of a descriptor": "in_child(lambda: os.execve(os.open(ID, os.O_RDONLY), [ID], {}))",
    "memfd": "in_child(lambda: os.execve(memfd(), [ID], {}))",
    "proc of a descriptor": "in_child(lambda: os.execv('/proc/self/fd/%d' % os.open(ID, os.O_RDONLY), [ID]))",
    "execveat": "in_child(lambda: libc.syscall(322, -100, ID, argv, None, 0))",
    "execve by number": "in_child(lambda: libc.syscall(59, ID, argv, None))",
    "without argv": "in_child(lambda: libc.syscall(59, ID, None, None))",
    "loader": "caught(lambda: subprocess.run(['/lib64/ld-linux-x86-64.so.2', ID]))",
    "script": "caught(lambda: subprocess.run([script()]))",
    "own copy": "caught(lambda: subprocess.run([copy('./own')]))",
    "own copy in /tmp": "caught(lambda: subprocess.run([copy('/tmp/own')]))",
    "the kernel itself": "caught(lambda: subprocess.run(['/proc/self/exe']))",
    "asyncio": "caught(lambda: asyncio.new_event_loop().run_until_complete(asyncio.create_subprocess_exec('id')))",
    "multiprocessing": "caught(__import__('multiprocessing').get_context('spawn').Process(target=print).start)",
    "thread": "(t := [], th := threading.Thread(target=lambda: t.append(caught(lambda: subprocess.run([ID])))), th.start(), th.join())[0][0]",
}


@pytest.fixture(scope="module")
def session(client: Client, work: Path) -> Iterator[Session]:
    with client.session(workspace=work, exec="deny") as s:
        assert s.run(PRELUDE).status == "ok"
        yield s


def denied(out: Outcome) -> list[Event]:
    return [e for e in out.events if e.type == "denied"]


def test_no_way_starts_a_program(session: Session) -> None:
    for way in WAYS:
        out = session.run(f"print((result := ({WAYS[way]})), errno.EPERM)")
        assert out.status == "ok", out.events
        assert "uid=" not in out.stdout, way
        # multiprocessing learns of it only by the end of its child.
        assert out.stdout in ("1 1\n", "13 1\n", *(["0 1\n"] if way == "multiprocessing" else [])), out.stdout
        assert denied(out), out.events
        assert {e.json["operation"] for e in denied(out)} == {"exec"}, way


def test_neither_do_magics_and_the_c_library(session: Session) -> None:
    for code in ["!id", "%%bash\nid", "%pip list", "os.system('id')", "os.popen('id').read()"]:
        out = session.run(code)
        assert not any("uid=" in str(e.json) + e.text for e in out.events), code
        assert denied(out), code


def test_a_pseudo_terminal_runs_none(session: Session) -> None:
    out = session.run("print(os.waitstatus_to_exitcode(pty.spawn(['/usr/bin/id'], lambda fd: b'')))")
    assert "uid=" not in out.stdout
    assert denied(out)


def test_the_denial_says_what_to_do(session: Session) -> None:
    out = session.run("subprocess.run(['id'])")
    (event,) = denied(out)
    assert (event.json["operation"], event.json["path"], event.json["rule"]) == ("exec", "/usr/bin/id", "exec")
    assert event.json["errno"] == "EPERM"
    assert event.json["source"] == "kernel"  # the traceback says it: fronts do not say it again
    assert event.text.startswith("the sandbox refused running /usr/bin/id: ")
    assert "cells of this session start no programs. To allow it: " in event.text
    assert "--exec" in event.text and "cellgate.exec" in event.text
    (error,) = [e for e in out.events if e.type == "error"]
    assert error.json["ename"] == "PermissionError"
    assert any("[cellgate] running" in line and "start no programs" in line for line in error.json["traceback"])


def test_many_programs_are_one_report(session: Session) -> None:
    out = session.run("for p in ('id', 'ls', 'cat', 'env', 'tail', 'head'): os.system(p); os.system(f'/usr/bin/{p}')\n"
                      "for p in ('id', 'ls', 'cat', 'env', 'tail', 'head'):\n"
                      "    try: subprocess.run([p])\n    except PermissionError: pass")  # fmt: skip
    (event,) = denied(out)
    assert len(event.json["also"]) == 3 and event.json["more"] == 3
    assert " and 3 more (python): cells of this session start no programs" in event.text


def test_what_does_not_exist_is_no_denial(session: Session) -> None:
    for code in ["subprocess.run(['nothere'])", "subprocess.run(['/nothere/x'])", "os.execv('', ['x'])"]:
        out = session.run(code)
        (error,) = [e for e in out.events if e.type == "error"]
        assert error.json["ename"] == "FileNotFoundError", code
        assert denied(out) == [], code


def test_forks_and_threads_work(session: Session) -> None:
    out = session.run(
        "import multiprocessing\n"
        "with multiprocessing.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))\n"
        "import ctypes.util, platform; platform.platform(); ctypes.util.find_library('c')"
    )
    assert out.status == "ok" and out.stdout == "[1, 2]\n"


def test_commands_of_the_host_run(session: Session) -> None:
    end, out, _ = session.command("sh", "-c", "id -u; true | cat")
    assert end.json == {"exit_code": 0} and out.strip().isdigit()


def test_after_a_reset_and_with_a_spare(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        assert s.run("import subprocess; subprocess.run(['true']).returncode").value == "0"
    for _ in range(3):  # the second is a spare
        with client.session(workspace=workspace, exec="deny") as s:
            assert s.info["exec"] == "deny"
            assert s.run("import subprocess; subprocess.run(['true'])").status == "error"
            s.reset()
            assert s.run("import subprocess; subprocess.run(['true'])").status == "error"
    with client.session(workspace=workspace) as s:
        assert s.info["exec"] == "allow"
        assert s.run("import subprocess; subprocess.run(['true']).returncode").value == "0"


def test_by_settings_and_with_watched_files(client: Client, workspace: Path) -> None:
    for own in ({"exec": "deny"}, {"exec": "deny", "watchFiles": True}):
        with client.session(workspace=workspace, settings=settings(cellgate=own)) as s:
            assert s.run("import subprocess; subprocess.run(['true'])").status == "error"
            assert s.command("true")[0].json == {"exit_code": 0}
    with client.session(workspace=workspace, settings=settings(cellgate={"exec": "deny"}), exec="allow") as s:
        assert s.run("import subprocess; subprocess.run(['true']).returncode").value == "0"


def test_in_the_landlock_tier(client: Client, workspace: Path) -> None:
    try:
        s = client.session(workspace=workspace, exec="deny", tier="landlock")
    except CellgateError as e:
        if e.code != E_UNSUPPORTED:
            raise
        pytest.skip(str(e))
    with s:
        out = s.run("import subprocess; subprocess.run(['true'])")
        assert out.status == "error" and denied(out)
        assert s.command("true")[0].json == {"exit_code": 0}


def test_other_values_are_errors(client: Client, workspace: Path) -> None:
    for value in ["no", "", "{", "[]", "Deny"]:
        with pytest.raises(CellgateError) as e:
            client.session(workspace=workspace, exec=value)
        assert e.value.code != E_UNSUPPORTED, value


def test_bad_settings_are_errors(client: Client, workspace: Path) -> None:
    with pytest.raises(CellgateError, match="cellgate.exec") as e:
        client.session(workspace=workspace, settings=settings(cellgate={"exec": True}))
    assert e.value.code == E_PARSE
