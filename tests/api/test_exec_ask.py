"""Programs of cells that the host is asked about (exec "ask"): what is asked, what runs, and attacks on both."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client, Event, Outcome, Session

from .test_settings import E_UNSUPPORTED

PRELUDE = """
import asyncio, ctypes, errno, os, pty, shutil, signal, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def strings(*texts):
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
def child(run):
    "The exit status of a fork that calls run(), which prints by file descriptor."
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            run()
            os._exit(100)
        except OSError as e:
            os._exit(e.errno)
        except BaseException:
            os._exit(101)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@pytest.fixture(scope="module")
def asking(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One session for all tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("asking")
    with client.session(workspace=folder, exec="ask") as s:
        assert s.info["exec"] == "ask"
        assert s.run(PRELUDE).status == "ok"
        yield s


@pytest.fixture
def session(client: Client, workspace: Path) -> Iterator[Session]:
    with client.session(workspace=workspace, exec="ask") as s:
        assert s.run(PRELUDE).status == "ok"
        yield s


class Host:
    """Decides, and remembers the questions."""

    def __init__(self, answer: object = True, wait_s: float = 0, before: Callable[[], object] = lambda: None):
        self.answer, self.wait_s, self.before, self.asked = answer, wait_s, before, []

    def __call__(self, e: Event) -> object:
        assert (e.method, e.server, e.tool) == ("exec", "", "")
        self.asked.append(json.loads(e.args))
        time.sleep(self.wait_s)
        self.before()
        return self.answer(self.asked[-1]) if callable(self.answer) else self.answer

    @property
    def commands(self) -> list[str]:
        return [q["command"] for q in self.asked]


def denied(out: Outcome) -> list[str]:
    return [e.text for e in out.events if e.type == "denied"]


# ---------------------------------------------------------------- the question


def test_the_question_shows_exactly_what_would_run(session: Session, workspace: Path) -> None:
    host = Host()
    out = session.run(
        "os.environ['B'] = '2'\n"
        "subprocess.run(['ls', '-l', 'a b', \"it's\", 'x\\ny', ''], env={**os.environ, 'A': '1=2'}, cwd='/usr', stdin=-1).returncode",
        decide=host,
    )
    assert out.value == "2", out.events
    assert host.asked == [
        {
            "argv": ["ls", "-l", "a b", "it's", "x\ny", ""],
            "command": "ls -l 'a b' 'it'\\''s' $'x\\x0ay' ''",
            "program": "/usr/bin/ls",
            "writable": False,
            "cwd": "/usr",
            "stdin": "pipe",
            "env": {"set": ["B=2", "A=1=2"], "unset": []},
        }
    ]
    (e,) = [e for e in out.events if e.type == "approval_request"]
    assert e.cell == out.result.cell


def test_bytes_that_are_no_text(asking: Session) -> None:
    host = Host()
    out = asking.run("subprocess.run([b'printf', b'%s', b'\\xff\\\\'], capture_output=True).stdout", decide=host)
    assert out.value == "b'\\xff\\\\'"
    assert host.asked[0]["argv"] == ["printf", "%s", {"hex": "ff5c"}]
    assert host.commands == ["printf %s $'\\xff\\\\'"]


def test_text_that_would_mislead_the_reader_is_escaped(asking: Session) -> None:
    for arg, shown in [
        ("r\u00e9sum\u00e9", "'r\u00e9sum\u00e9'"),
        ("\u202etxt.exe", "$'\\xe2\\x80\\xaetxt.exe'"),  # the rest from right to left
        ("a\u200bb", "$'a\\xe2\\x80\\x8bb'"),  # no width
        ("\x9b31m", "$'\\xc2\\x9b31m'"),  # begins an escape sequence of 8-bit terminals
    ]:
        host = Host()
        asking.run(f"subprocess.run(['true', {arg!r}]).returncode", decide=host)
        assert host.asked[0]["argv"] == ["true", arg] and host.commands == [f"true {shown}"], (arg, shown)


def test_variables_that_are_missing(asking: Session) -> None:
    host = Host()
    out = asking.run("subprocess.run(['/usr/bin/env'], env={'X': 'y'}, capture_output=True).stdout", decide=host)
    assert out.value == "b'X=y\\n'"
    assert host.asked[0]["env"]["set"] == ["X=y"]
    assert {"PATH", "HOME", "LANG"} <= set(host.asked[0]["env"]["unset"])


def test_a_script_and_its_interpreter(session: Session, workspace: Path) -> None:
    (workspace / "outer").write_text("#! ./inner  -x y \nnothing\n")
    (workspace / "inner").write_text("#!/bin/sh -e\necho $0 $@\n")
    for name in ("outer", "inner"):
        (workspace / name).chmod(0o755)
    host = Host()
    out = session.run("print(subprocess.run(['./outer', 'a'], capture_output=True, text=True).stdout)", decide=host)
    assert out.stdout == "./inner -x y ./outer a\n\n"
    (q,) = host.asked
    assert (q["program"], q["interpreter"], q["writable"]) == (f"{workspace}/outer", "/usr/bin/dash", True)


def test_a_standard_input_that_is_closed(asking: Session) -> None:
    host = Host()
    code = "child(lambda: (os.{}, os.execv('/usr/bin/true', ['true'])))"
    for how in ("set_inheritable(0, False)", "close(0)"):
        assert asking.run(code.format(how), decide=host).value == "0"
    assert [q["stdin"] for q in host.asked] == ["", ""]


def test_links_are_resolved(session: Session, workspace: Path) -> None:
    (workspace / "innocent").symlink_to("/usr/bin/id")
    host = Host()
    out = session.run("subprocess.run(['./innocent', '-u'], capture_output=True).returncode", decide=host)
    assert out.value == "0"
    assert host.asked[0]["program"] == "/usr/bin/id"


def test_what_does_not_exist_is_not_asked(asking: Session) -> None:
    out = asking.run("subprocess.run(['nothere'])")
    assert out.error["ename"] == "FileNotFoundError"
    out = asking.run("subprocess.run(['/etc/passwd'])")
    assert out.error["ename"] == "PermissionError"
    out = asking.run("subprocess.run(['/usr'])")
    assert out.error["ename"] == "PermissionError"


# ---------------------------------------------------------------- the answer


def test_refused(asking: Session) -> None:
    host = Host("not on a Sunday")
    out = asking.run("subprocess.run(['id'])", decide=host)
    assert out.error["ename"] == "PermissionError"
    assert host.commands == ["id"]  # and not again for /bin/id
    (text,) = denied(out)
    assert text == "the sandbox refused running /usr/bin/id: the host refused it: not on a Sunday"
    assert any("the host did not approve it" in line for line in out.error["traceback"])


def test_what_an_approved_program_starts_is_free(asking: Session) -> None:
    host = Host()
    code = (
        "subprocess.run(['sh', '-c', 'id -u; (ls / | wc -l); exec echo end'], capture_output=True).stdout.split()[-1]"
    )
    assert asking.run(code, decide=host).value == "b'end'"
    assert len(host.asked) == 1


def test_commands_of_the_host_are_not_asked(asking: Session) -> None:
    end, out, _ = asking.command("sh", "-c", "echo free | cat")
    assert (end.json, out) == ({"exit_code": 0}, b"free\n")


def test_nobody_decides_in_time(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, exec="ask", approval_timeout_ms=300) as s:
        s.execute("import subprocess\nsubprocess.run(['id'])")
        events = s.until("result")
        assert [e.type for e in events if e.type.startswith("approval")] == ["approval_request", "approval_closed"]
        assert events[-1].status == "error"
        assert any("nobody decided in time" in e.text for e in events if e.type == "denied")


def test_the_cells_clock_stands_still(asking: Session) -> None:
    host = Host(wait_s=1.5)
    assert asking.run("subprocess.run(['true']).returncode", decide=host, timeout_ms=1000).value == "0"


def test_an_interrupt_ends_the_question(session: Session) -> None:
    for code in [
        "subprocess.run(['sleep', '60'])",
        "!sleep 60",
        "os.system('sleep 60')",
        "os.posix_spawn('/usr/bin/sleep', ['sleep', '60'], {})\ntime.sleep(60)",
        "await (await asyncio.create_subprocess_exec('sleep', '60')).wait()",
    ]:
        cell = session.execute(code)
        (ask,) = [e for e in session.until("approval_request") if e.type == "approval_request"]
        session.cancel(cell)
        closed, result = session.each("approval_closed", "result")
        assert closed.approval == ask.approval, code
        # system() ignores SIGINT while its shell runs
        assert result.status in ("cancelled", "ok" if "os.system" in code else "") and "replaced" not in result.text, (
            code
        )
        assert session.run("1 + 1").value == "2", code


def test_an_interrupt_in_a_subshell_ends_the_question(session: Session) -> None:
    name = session.ask("create_subshell_request", {}).json["subshell_id"]
    cell = session.execute("subprocess.run(['sleep', '60'])", subshell=name)
    ask = session.until("approval_request")[-1]
    session.cancel(cell)
    closed, result = session.each("approval_closed", "result")
    assert closed.approval == ask.approval
    assert "replaced" not in result.text
    assert session.run("1 + 1").value == "2"


def test_the_process_ends_during_the_question(asking: Session) -> None:
    asking.execute(
        "p = os.fork()\nif p == 0:\n    os.execv('/usr/bin/id', ['id'])\ntime.sleep(0.2); os.kill(p, 9); time.sleep(1)"
    )
    events = asking.until("result")
    ask, closed = (e for e in events if e.type.startswith("approval"))
    assert closed.type == "approval_closed" and closed.approval == ask.approval


def test_a_reset_and_the_sessions_end_close_it(session: Session) -> None:
    session.execute("subprocess.run(['id'])")
    (ask,) = [e for e in session.until("approval_request") if e.type == "approval_request"]
    session.reset()
    assert session.until("result")[-2].approval == ask.approval
    assert session.run("1 + 1").value == "2"
    session.execute("import subprocess; subprocess.run(['id'])")
    session.until("approval_request")


def test_many_wait_at_once(session: Session) -> None:
    session.execute(
        "def one():\n    p = os.fork()\n    if p == 0:\n        try: os.execv('/usr/bin/true', ['true'])\n"
        "        except OSError as e: os._exit(e.errno)\n    return p\n"
        "all = [one() for _ in range(40)]\n"
        "refused = [os.waitpid(-1, 0) for _ in range(8)]\n"
        "print({os.waitstatus_to_exitcode(s) for _, s in refused} == {errno.EAGAIN}, flush=True)\n"
        "print(sorted(os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]) for _ in range(32)))"
    )
    events = session.until("stream")
    assert events[-1].text == "True\n"
    asked = [e for e in events if e.type == "approval_request"]
    assert len(asked) == 32
    for e in asked:
        session.accept(e.approval)
    out = "".join(e.text for e in session.until("result") if e.type == "stream")
    assert out.strip() == str([0] * 32)


# ---------------------------------------------------------------- programs run as without questions


def test_semantics(asking: Session) -> None:
    for code, value in [
        (
            "subprocess.run(['tr', 'a-z', 'A-Z'], input=b'x' * 300000, capture_output=True).stdout == b'X' * 300000",
            "True",
        ),
        ("subprocess.run(['sh', '-c', 'kill -TERM $$']).returncode", "-15"),
        ("subprocess.run(['sh', '-c', 'exit 200']).returncode", "200"),
        ("subprocess.check_output(['pwd'], cwd='/usr/lib')", "b'/usr/lib\\n'"),
        ("subprocess.check_output(['sh', '-c', 'umask'], umask=0o27)", "b'0027\\n'"),
        (
            "r, w = os.pipe(); p = subprocess.Popen(['bash', '-c', f'echo by >&{w}'], pass_fds=[w]); os.close(w); os.read(r, 9), p.wait()",
            "(b'by\\n', 0)",
        ),
        ("subprocess.check_output(['sh', '-c', 'ls /proc/self/fd | wc -l']).strip()", "b'4'"),
        (
            "p = subprocess.Popen(['sleep', '60'], start_new_session=True); os.getsid(p.pid) == p.pid, os.killpg(p.pid, 9), p.wait()",
            "(True, None, -9)",
        ),
        (
            "p = subprocess.Popen(['sleep', '60'], process_group=0); os.getpgid(p.pid) == p.pid, p.terminate(), p.wait()",
            "(True, None, -15)",
        ),
        ("p = subprocess.Popen(['sleep', '60']); p.send_signal(signal.SIGINT); p.wait()", "-2"),
        ("subprocess.check_output(['sh', '-c', 'echo $PPID']).strip() == str(os.getpid()).encode()", "True"),
        ("subprocess.run(['id'], preexec_fn=lambda: os.nice(3), capture_output=True).returncode", "0"),
        ("os.system('exit 3')", "768"),
        ("os.popen('echo popen').read()", "'popen\\n'"),
        ("os.spawnlp(os.P_WAIT, 'sh', 'sh', '-c', 'exit 7')", "7"),
        ("os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 8'], {}), 0)[1])", "8"),
        ("child(lambda: os.execvp('sh', ['sh', '-c', 'exit 9']))", "9"),
        ("child(lambda: os.execve(os.open('/usr/bin/true', os.O_RDONLY), ['true'], {}))", "0"),
        (
            "(await (await asyncio.create_subprocess_exec('tr', 'a', 'b', stdin=-1, stdout=-1)).communicate(b'aaa'))[0]",
            "b'bbb'",
        ),
        ("(await (await asyncio.create_subprocess_shell('echo sh', stdout=-1)).communicate())[0]", "b'sh\\n'"),
    ]:
        out = asking.run(code, decide=Host())
        assert (out.status, out.value) == ("ok", value), out.events


def test_a_terminal(asking: Session) -> None:
    out = asking.run(
        "print(os.waitstatus_to_exitcode(pty.spawn(['sh', '-c', 'tty; test -t 0 && ps -o tpgid= -p $$ >/dev/null; exit 4'])))",
        decide=Host(),
    )
    assert out.stdout.startswith("/dev/pts/") and out.stdout.endswith("4\n")


def test_multiprocessing(asking: Session) -> None:
    host = Host()
    code = "import multiprocessing as m\nwith m.get_context({!r}).Pool(2) as p: print(p.map(abs, [-1, -2, -3]))"
    assert asking.run(code.format("spawn"), decide=host).stdout == "[1, 2, 3]\n"
    assert len(host.asked) >= 3  # its tracker, and each of the pool; "forkserver" needs unix sockets


def test_magics(asking: Session) -> None:
    for code, text in [
        ("!echo shell $((1 + 1))", "shell 2\n"),
        ("%%bash\necho bash\nid -u >/dev/null", "bash\n"),
        ("x = !echo got\nprint(x)", "['got']\n"),
    ]:
        host = Host()
        out = asking.run(code, decide=host)
        assert (out.status, out.stdout, len(host.asked)) == ("ok", text, 1), out.events


def test_other_threads_run_during_the_question(asking: Session) -> None:
    code = "n = 0\ndef count():\n    global n\n    while not end: n += 1; time.sleep(0.01)\nend = False\nt = threading.Thread(target=count); t.start()\nsubprocess.run(['true']); end = True; t.join(); n > 20"
    assert asking.run(code, decide=Host(wait_s=0.7)).value == "True"


def test_no_approved_program_stays_traced(asking: Session) -> None:
    # Popen returns while the program is still being executed: its tracer goes at the end of that.
    code = (
        "p = subprocess.Popen(['sleep', '60'])\n"
        "for _ in range(3000):\n"
        "    tracer = [l for l in open(f'/proc/{p.pid}/status') if l.startswith('TracerPid')]\n"
        "    if tracer == ['TracerPid:\\t0\\n']: break\n"
        "    time.sleep(0.01)\n"
        "p.kill(); p.wait(); print(tracer)"
    )
    assert "TracerPid:\\t0" in asking.run(code, decide=Host()).stdout


def test_a_program_that_cannot_be_executed(session: Session, workspace: Path) -> None:
    (workspace / "garbage").write_bytes(b"\x7fELF garbage")
    (workspace / "garbage").chmod(0o755)
    host = Host()
    code = (
        "def run():\n"
        "    try: os.execv('./garbage', ['g'])\n"
        "    except OSError as e: assert e.errno == errno.ENOEXEC\n"
        "    time.sleep(1.6)\n"
        "    assert 'TracerPid:\\t0' in open('/proc/self/status').read()\n"
        "    try: os.execv('./garbage', ['g'])\n"
        "    except OSError as e: assert e.errno == errno.ENOEXEC\n"
        "    os.execv('/bin/sh', ['sh', '-c', 'exit 5'])\n"
        "child(run)"
    )
    assert session.run(code, decide=host).value == "5"
    assert len(host.asked) == 3


def test_a_stopped_process_runs_when_it_is_continued(asking: Session) -> None:
    code = (
        "p = os.fork()\n"
        "if p == 0: os.execv('/bin/sh', ['sh', '-c', 'exit 6'])\n"
        "time.sleep(0.2); os.kill(p, signal.SIGSTOP); time.sleep(2.5); os.kill(p, signal.SIGCONT)\n"
        "os.waitstatus_to_exitcode(os.waitpid(p, 0)[1])"
    )
    assert asking.run(code, decide=Host(wait_s=0.5)).value == "6"


# ---------------------------------------------------------------- attacks

REASONS = re.compile(r": it has no name|: it has over 256 KiB|: its process has a system call filter")

CHANGE = """
def attack(change, path=b'/usr/bin/echo', argv=(b'echo', b'harmless'), env=(b'A=1',)):
    def run():
        p, a, e = ctypes.create_string_buffer(path, 64), strings(*argv), strings(*env)
        def later():
            time.sleep(0.3)
            change(p, a, e)
        threading.Thread(target=later).start()
        libc.execve(p, a, e)
        raise OSError(ctypes.get_errno(), 'execve')
    return child(run)
"""


def test_what_changes_during_the_question_does_not_run(asking: Session) -> None:
    for change in [
        "a.__setitem__(1, b'EVIL')",
        "a.__setitem__(1, b'HARMLESS')",
        "a.__setitem__(1, None)",
        "a.__setitem__(0, b'EVIL')",
        "setattr(p, 'value', b'/usr/bin/printf')",
        "e.__setitem__(0, b'LD_PRELOAD=EVIL')",
        "e.__setitem__(0, None)",
        "os.chdir('/')",
        "os.chdir('/tmp')",
    ]:
        host = Host(wait_s=0.8)
        out = asking.run(f"{CHANGE}\nprint(attack(lambda p, a, e: {change}))", decide=host)
        assert out.stdout == "-9\n", out.events
        assert host.commands == ["echo harmless"], change
        assert any("it is not what was approved" in text for text in denied(out)), out.events


def test_without_a_change_it_runs(asking: Session) -> None:
    out = asking.run(f"{CHANGE}\nprint(attack(lambda p, a, e: None))", decide=Host(wait_s=0.6))
    assert out.stdout == "harmless\n0\n"


@pytest.mark.parametrize("how", ["os.replace('evil', 'prog')", "os.remove('prog'); os.symlink('evil', 'prog')"])
def test_a_program_that_is_replaced_during_the_question(session: Session, workspace: Path, how: str) -> None:
    for name, text in (("prog", "good"), ("evil", "EVIL")):
        (workspace / name).write_text(f"#!/bin/sh\necho {text}\n")
        (workspace / name).chmod(0o755)
    session.run("shutil.copy('/usr/bin/id', 'prog'); shutil.copy('/usr/bin/printenv', 'evil'); os.chmod('evil', 0o755)")
    host = Host(wait_s=0.8)
    out = session.run(
        f"threading.Timer(0.3, lambda: ({how.replace('; ', ', ')})).start(); print(subprocess.run(['./prog'], capture_output=True))",
        decide=host,
    )
    assert "returncode=-9" in out.stdout, out.events
    assert denied(out)


def test_an_interpreter_that_is_replaced_during_the_question(session: Session, workspace: Path) -> None:
    (workspace / "script").write_text("#!/usr/bin/true\n")
    (workspace / "script").chmod(0o755)
    code = (
        "def later():\n    open('script', 'w').write('#!/usr/bin/printenv\\n')\n"
        "threading.Timer(0.3, later).start(); print(subprocess.run(['./script'], capture_output=True))"
    )
    out = session.run(code, decide=Host(wait_s=0.8))
    assert "returncode=-9" in out.stdout, out.events


def test_a_folder_that_is_shared_with_another_process(asking: Session) -> None:
    # CLONE_FS | SIGCHLD; x86-64 and the generic table have the flags first
    out = asking.run("print(libc.syscall(56, 0x200 | 17, None, None, None, None), errno.errorcode[ctypes.get_errno()])")
    assert out.stdout == "-1 EPERM\n"


def test_what_nobody_could_judge_is_not_asked(session: Session) -> None:
    for code in [
        "fd = os.memfd_create('x'); os.sendfile(fd, os.open('/usr/bin/id', os.O_RDONLY), 0, 1 << 20); os.execve(fd, ['id'], {})",
        "shutil.copy('/usr/bin/id', 'gone'); fd = os.open('gone', os.O_RDONLY); os.remove('gone'); os.execve(fd, ['id'], {})",
        "os.execv('/usr/bin/echo', ['echo'] + ['x'] * 5000)",
        "os.execv('/usr/bin/echo', ['echo', 'x' * 100000, 'y' * 100000, 'z' * 100000])",
        "libc.prctl(22, 2, ctypes.byref(program)); os.execv('/usr/bin/id', ['id'])",
    ]:
        prelude = (
            "class P(ctypes.Structure): _fields_ = [('n', ctypes.c_ushort), ('f', ctypes.c_void_p)]\n"
            "allow = (ctypes.c_ulonglong * 1)(0x7fff000000000006)\nprogram = P(1, ctypes.addressof(allow))\n"
        )
        steps = "\n".join("    " + step for step in code.split("; "))
        out = session.run(f"{prelude}def run():\n{steps}\nprint(child(run))")
        assert out.stdout.strip() in ("1", "7", "13"), out.events
        assert denied(out) and REASONS.search(denied(out)[0]), out.events


def test_an_approval_is_for_one_call(session: Session) -> None:
    host = Host(lambda q: "good" in q["argv"])
    code = (
        "def one(word):\n    try: return subprocess.run(['echo', word], capture_output=True).stdout\n    except PermissionError: return None\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as p: print(list(p.map(one, ['good', 'bad'] * 4)))"
    )
    out = session.run(code, decide=host)
    assert out.stdout == str([b"good\n", None] * 4) + "\n"
    assert len(host.asked) == 8


def test_an_approved_program_cannot_be_traced_or_written(asking: Session) -> None:
    code = (
        "p = subprocess.Popen(['sleep', '60'])\n"
        "r = [libc.ptrace(16, p.pid, 0, 0), libc.ptrace(0x4206, p.pid, 0, 0)]\n"
        "try: open(f'/proc/{p.pid}/mem', 'r+b'); r.append(0)\n"
        "except OSError as e: r.append(-1)\n"
        "v = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.c_size_t(1)), 8)\n"
        "r.append(libc.process_vm_writev(p.pid, v, 1, v, 1, 0)); p.kill(); p.wait(); print(r)"
    )
    out = asking.run(code, decide=Host())
    assert out.stdout == "[-1, -1, -1, -1]\n"


def test_the_loader_is_asked_about_as_itself(asking: Session) -> None:
    host = Host(False)
    out = asking.run("subprocess.run(['/lib64/ld-linux-x86-64.so.2', '/usr/bin/id'])", decide=host)
    assert out.status == "error"
    assert "ld-linux" in host.asked[0]["program"] and host.asked[0]["argv"][1] == "/usr/bin/id"


def test_the_kernels_own_program_frees_nothing(asking: Session) -> None:
    host = Host(False)
    out = asking.run("print(child(lambda: os.execv('/proc/self/exe', ['x'])))", decide=host)
    assert out.stdout == "1\n"
    assert host.asked[0]["program"].endswith("cellgate-kernel")


def test_a_fork_of_an_undumpable_process_starts_nothing(asking: Session) -> None:
    host = Host(False)
    out = asking.run(
        "def run():\n    libc.prctl(4, 0)\n    os.execv('/usr/bin/id', ['id'])\nprint(child(run))", decide=host
    )
    assert out.stdout in ("1\n", "13\n") and "uid=" not in out.stdout


WITHDRAWING = """
def withdraw(n):
    pids = []
    for i in range(n):
        pid = os.fork()
        if pid == 0:
            try: os.execv('/usr/bin/true', ['true', str(i)])
            except OSError as e: os._exit(e.errno)
        pids.append(pid)
    time.sleep(0.1)
    for pid in pids: os.kill(pid, 9)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
"""


def test_questions_that_a_cell_takes_back_have_a_rate(session: Session) -> None:
    """64 at once, then 8 in a second; afterwards others are asked again."""
    begun = time.monotonic()
    session.execute(WITHDRAWING + "for _ in range(12): withdraw(20); time.sleep(0.3)")
    events = session.until("result", timeout_ms=60000)
    asked = sum(e.type == "approval_request" for e in events)
    assert 64 <= asked <= 64 + 8 * (time.monotonic() - begun) + 1, asked
    assert any("before the host could decide: wait" in e.text for e in events if e.type == "denied")
    host = Host()
    assert session.run("time.sleep(1); subprocess.run(['true']).returncode", decide=host).value == "0"
    assert len(host.asked) == 1


def test_questions_that_are_answered_have_none(asking: Session) -> None:
    host = Host()
    code = "sum(subprocess.run(['true', str(i)]).returncode for i in range(150))"
    assert asking.run(code, decide=host).value == "0"
    assert len(host.asked) == 150


def test_refusals_are_reported_at_a_rate_and_counted(client: Client, workspace: Path) -> None:
    """All come within a moment on any machine: nothing is forked for them."""
    code = "for i in range(200):\n    try: os.execv(f'p{i}', ['p'])\n    except PermissionError: pass"
    for i in range(200):
        (workspace / f"p{i}").write_text("#!/bin/sh\n")
        (workspace / f"p{i}").chmod(0o755)
    with client.session(workspace=workspace, exec={"default": "deny"}) as s:
        s.run(PRELUDE)
        begun = time.monotonic()
        out = s.run(code)
        assert 64 <= len(denied(out)) <= 64 + 8 * (time.monotonic() - begun) + 1
        assert out.result.costs and out.result.costs.denials == 200
        time.sleep(0.3)
        last = s.run("subprocess.run(['true', 'last'])")
        assert len(denied(last)) == 1
        # with the next one that is reported, which on a slow machine is in the first cell
        notices = [e.text for e in out.events + last.events if e.type == "notice"]
        assert any("were not reported one by one" in text for text in notices)


SWAPPED = """
with open('evil', 'w') as f:
    f.write('#!/bin/sh\\necho evil\\n')
os.chmod('evil', 0o755)
os.symlink({script!r}, 'link')
def swap():
    time.sleep(0.4)
    os.symlink('evil', 'new')
    os.rename('new', 'link')
"""


@pytest.mark.parametrize("via", ["link", "folder", "proc"])
def test_a_script_behind_a_link_that_cells_can_change(session: Session, via: str) -> None:
    """Its interpreter opens the script by the name that was given, after the check."""
    script = "/usr/bin/ldd"
    code = {
        "link": "os.execv(os.path.abspath('link'), ['ldd', '--version'])",
        "folder": "os.symlink('/usr', 'd'); os.execv(os.path.abspath('d/bin/ldd'), ['ldd', '--version'])",
        "proc": "fd = os.open('/usr/bin/ldd', os.O_RDONLY); os.set_inheritable(fd, True); os.execv(f'/proc/self/fd/{fd}', ['ldd', '--version'])",
    }[via]
    host = Host(wait_s=1)
    out = session.run(
        SWAPPED.format(script=script)
        + f"threading.Thread(target=swap).start()\nprint(child(lambda: {'exec(' + repr(code) + ')'}))",
        decide=host,
    )
    (question,) = host.asked
    assert question["program"] == script and question["writable"] is True, (question, out.events)


def test_a_standard_input_that_changes_during_the_question(asking: Session) -> None:
    code = """
r, w = os.pipe()
os.write(w, b'echo evil\\n')
os.close(w)
def run():
    null = os.open('/dev/null', os.O_RDONLY)
    os.dup2(null, 0)
    def swap():
        time.sleep(0.4)
        os.dup2(r, 0)
    threading.Thread(target=swap).start()
    libc.execve(b'/bin/sh', strings(b'sh'), strings(b'A=1'))
print(child(run))
os.close(r)
"""
    host = Host(wait_s=1)
    out = asking.run(code, decide=host)
    assert host.asked[0]["stdin"] == "/dev/null"
    assert "evil" not in out.stdout and out.stdout == "-9\n", out.events


def test_where_it_cannot_be_enforced_it_is_refused(client: Client, workspace: Path) -> None:
    for exec in ["ask", "deny", {"default": "deny"}]:
        for options in ({"sandbox": 1}, *([{"tier": "landlock"}] if exec != "deny" else [])):
            with pytest.raises(CellgateError, match="without a sandbox" if "sandbox" in options else None) as e:
                client.session(workspace=workspace, exec=exec, **options)
            assert e.value.code == E_UNSUPPORTED, exec
