"""Commands beside cells through the C API."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from cellgate_api import E_INVAL, E_NOTFOUND, CellgateError, Client, Session
from processes import eventually
from rounds import rounds


@pytest.fixture
def session(used: Session) -> Session:
    """The session of the tests that leave it usable."""
    return used


def fails(session: Session, *argv: str) -> bool:
    """True if the command ends with the status 1; it must end by itself with 0 or 1."""
    end = session.command(*argv)[0].json
    assert end in ({"exit_code": 0}, {"exit_code": 1}), end
    return end == {"exit_code": 1}


def value(session: Session, code: str) -> str | None:
    out = session.run(code)
    assert out.status == "ok", out.events
    return out.value


def test_status_and_both_streams(session: Session) -> None:
    end, out, err = session.command("bash", "-c", "echo out; echo err >&2; exit 3")
    assert (end.status, end.json, out, err) == ("ok", {"exit_code": 3}, b"out\n", b"err\n")


def test_it_runs_in_the_sandbox_of_the_session(session: Session) -> None:
    session.run("open('/tmp/private', 'w').write('mine'); import os")
    end, out, _ = session.command("cat", "/tmp/private")
    assert (end.json, out) == ({"exit_code": 0}, b"mine")
    end, _, err = session.command("touch", "/usr/new")
    assert end.json == {"exit_code": 1} and b"Read-only" in err
    _, out, _ = session.command("bash", "-c", "readlink /proc/self/ns/*")
    inside = session.run(
        "print(*[os.readlink('/proc/self/ns/' + n) for n in sorted(os.listdir('/proc/self/ns'))], sep=chr(10))"
    )
    assert sorted(out.decode().split()) == sorted(inside.stdout.split())


def test_it_runs_while_a_cell_spins(session: Session) -> None:
    session.run("1")
    cell = session.execute("while True: pass")
    end, out, _ = session.command("echo", "beside")
    assert (end.status, out) == ("ok", b"beside\n")
    session.cancel(cell)
    assert session.until("result")[-1].cell == cell


def test_input_of_any_size(session: Session) -> None:
    number = session.exec("wc", "-c", input=1)
    for _ in range(50):
        session.write(number, b"x" * 100_000)
    session.write(number, b"")
    end, out, _ = session.wait_command(number)
    assert (end.json, out) == ({"exit_code": 0}, b"5000000\n")
    with pytest.raises(CellgateError) as e:
        session.write(number, b"more")
    assert e.value.code == E_NOTFOUND


def test_without_input_it_is_empty(session: Session) -> None:
    assert session.command("cat")[0].json == {"exit_code": 0}


def test_environment_and_folder(session: Session) -> None:
    end, out, _ = session.command("bash", "-c", "echo $A; pwd; echo $PATH", env=["A=1=2"], cwd="/usr")
    assert out.startswith(b"1=2\n/usr\n") and b"/usr/bin" in out
    assert session.run("import os; os.environ['PATH']").value.strip("'").encode() in out


def test_a_program_that_is_not_there(session: Session) -> None:
    end, _, _ = session.command("no-such-program")
    assert end.status == "error" and end.json == {} and "no-such-program" in end.text
    assert session.command("true")[0].json == {"exit_code": 0}


def test_signal(session: Session) -> None:
    number = session.exec("bash", "-c", "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
    while session.until("command_output")[-1].text != "ready\n":
        pass
    session.signal(number, signal.SIGUSR1)
    end, out, _ = session.wait_command(number)
    assert (end.json, out) == ({"exit_code": 5}, b"got\n")


def test_cancel_ends_the_whole_tree(session: Session) -> None:
    line = "(setsid bash -c 'echo $$; exec sleep 1000' &) ; sleep 1000 & echo $!; wait"
    number = session.exec("bash", "-c", line)
    pids = ""
    while len(pids.split()) < 2:
        pids += session.until("command_output")[-1].text
    session.cancel(number)
    end, _, _ = session.wait_command(number)
    assert (end.status, end.json) == ("cancelled", {"signal": signal.SIGKILL})
    for pid in pids.split():
        eventually(lambda pid=pid: fails(session, "test", "-d", f"/proc/{pid}"))


def test_time_limit(session: Session) -> None:
    end, out, _ = session.command("bash", "-c", "echo a; sleep 1000", timeout_ms=300)
    assert (end.status, out) == ("timeout", b"a\n")


def test_terminal(session: Session) -> None:
    number = session.exec("bash", "-c", "tty; stty size; read x; echo got $x; stty size", rows=10, columns=20)
    out = b""
    while b"10 20" not in out:
        out += session.until("command_output")[-1].data
    session.resize(number, 30, 40)
    session.write(number, b"hello\n")
    end, rest, _ = session.wait_command(number)
    assert out.startswith(b"/dev/pts/") and b"got hello\r\n30 40" in rest and end.json == {"exit_code": 0}


def test_output_waits_for_the_host(session: Session) -> None:
    number = session.exec("bash", "-c", "head -c 50000000 /dev/zero; echo end >&2")
    end, out, err = session.wait_command(number)
    assert (len(out), err, end.json) == (50_000_000, b"end\n", {"exit_code": 0})


def test_bytes_of_any_kind(session: Session) -> None:
    _, out, _ = session.command("printf", b"%s", b"\xff\x80")
    assert out == b"\xff\x80"


def test_many_at_once(session: Session) -> None:
    numbers = [session.exec("bash", "-c", f"echo {i}; sleep 0.2") for i in range(40)]
    ends = {}
    while len(ends) < len(numbers):
        e = session.next()
        assert e is not None
        if e.type == "command_result":
            ends[e.cell] = e.json
    assert ends == dict.fromkeys(numbers, {"exit_code": 0})


def test_background_processes_run_on(session: Session) -> None:
    end, _, _ = session.command("bash", "-c", "(sleep 0.3; touch /tmp/later) &")
    assert end.json == {"exit_code": 0}
    eventually(lambda: not fails(session, "test", "-e", "/tmp/later"))


def test_a_reset_ends_commands(session: Session) -> None:
    number = session.exec("sleep", "1000")
    session.command("true")
    session.reset()
    end, _, _ = session.wait_command(number)
    assert end.status == "cancelled"
    assert session.command("true")[0].json == {"exit_code": 0}


def test_a_kernel_that_dies_ends_commands(session: Session) -> None:
    number = session.exec("sleep", "1000")
    session.command("true")
    session.execute("import os; os._exit(3)")
    end, _, _ = session.wait_command(number)
    assert end.status == "kernel_died" and end.json == {}
    assert session.command("echo", "again")[1] == b"again\n"


def test_cells_cannot_reach_what_starts_commands(session: Session) -> None:
    session.command("true")
    number = session.exec("sleep", "1000")
    session.command("true")
    code = """
import os, signal
killed = 0
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        name = open(f'/proc/{pid}/comm').read().strip()
    except OSError:  # it has ended
        continue
    if not name.startswith('cg-command'):
        continue
    for attempt in (lambda: open(f'/proc/{pid}/mem', 'rb'), lambda: os.readlink(f'/proc/{pid}/fd/0')):
        try:
            attempt()
            print('reached', name)
        except PermissionError:
            print('refused', name)
        except (FileNotFoundError, ProcessLookupError):  # the runner of a command that has just ended
            pass
    try:
        os.kill(int(pid), signal.SIGKILL)
        killed += 1
    except (PermissionError, ProcessLookupError):  # Landlock since Linux 6.12
        pass
killed
"""
    session.execute(code)
    out, value, ends = "", None, []
    while True:
        e = session.next()
        assert e is not None
        out += e.text if e.type == "stream" else ""
        value = e.text if e.type == "execute_result" else value
        ends += [e] if e.type == "command_result" else []
        if e.type == "result":
            assert e.status == "ok", e
            break
    assert "reached" not in out and out.count("refused cg-commands") == 2 and out.count("refused cg-command\n") >= 2
    if not ends:
        session.cancel(number)
        ends.append(session.wait_command(number)[0])
    assert ends[0].cell == number and ends[0].status in ("cancelled", "error")
    assert session.command("echo", "again")[1] == b"again\n"


CHANGES = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    r = libc.syscall(number, *map(ctypes.c_long, args))
    return 'done' if r >= 0 else os.strerror(ctypes.get_errno())
cpus, parameter, limit = ctypes.create_string_buffer(b'\\xff' * 128), ctypes.create_string_buffer(4), ctypes.create_string_buffer(16)
attributes = ctypes.create_string_buffer((48).to_bytes(4, 'little') + bytes(12) + (19).to_bytes(4, 'little') + bytes(28), 48)
at = ctypes.addressof
def own_changes(pid, group):
    return {
        'prlimit': call(302, pid, resource.RLIMIT_CORE, at(limit), 0),
        'prlimit, by a number with a higher half': call(302, pid | 1 << 40, resource.RLIMIT_CORE, at(limit), 0),
        'setpriority': call(141, 0, pid, 19),
        'setpriority of a group': call(141, 1, group, 19),
        'ioprio_set': call(251, 1, pid, 3 << 13),
        'ioprio_set of a group': call(251, 2, group, 3 << 13),
        'sched_setscheduler': call(144, pid, 3, at(parameter)),
        'sched_setparam': call(142, pid, at(parameter)),
        'sched_setattr': call(314, pid, at(attributes), 0),
    }
def changes(pid, group):
    # Without a control group for its processors a sandbox keeps its own from changing them as well.
    return own_changes(pid, group) | {'sched_setaffinity': call(203, pid, 128, at(cpus))}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
def test_cells_cannot_limit_commands(session: Session) -> None:
    """All processes inside have one user: a limit of 0 bytes for files would falsify a command's result."""
    session.run(CHANGES)
    assert value(session, "set(own_changes(os.getpid(), os.getpgrp()).values())") == "{'done'}"  # no command yet
    # The command, a child of it, and one whose parent has ended.
    number = session.exec("bash", "-c", "sleep 1000 & (sleep 1001 &) ; echo $$ > pids; exec sleep 1002")
    find = """
import time
def named(number):
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if open(f'/proc/{pid}/cmdline').read() == f'sleep\\0{number}\\0':
                return int(pid)
        except OSError:
            pass
while not all(map(named, (1000, 1001, 1002))): time.sleep(0.01)
children = {n: named(n) for n in (1000, 1001, 1002)}
"""
    session.run(find)
    refused = "{'Operation not permitted'}"
    assert (
        value(session, "set().union(*(changes(pid, children[1002]).values() for pid in children.values()))") == refused
    )
    assert value(session, "set(own_changes(os.getpid(), os.getpgrp()).values())") == "{'done'}"
    own = "import subprocess\nown = subprocess.Popen(['sleep', '1003'], process_group=0)\n"
    assert value(session, own + "seen = set(own_changes(own.pid, own.pid).values()); own.kill(); seen") == "{'done'}"
    thread = (
        "import threading\nfound = set()\n"
        "t = threading.Thread(target=lambda: found.update(own_changes(threading.get_native_id(), 0).values()))\n"
        "t.start(); t.join(); found"
    )
    assert value(session, thread) == "{'done'}"
    # Commands change their own, and each other.
    end, out, _ = session.command("bash", "-c", "ulimit -c 0; renice -n 19 -p $$ >/dev/null && echo changed")
    assert out == b"changed\n"
    session.cancel(number)
    assert session.wait_command(number)[0].status == "cancelled"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
def test_cells_cannot_limit_commands_whose_ancestors_end_meanwhile(session: Session) -> None:
    n = rounds(400, 40)
    # The last of 40 generations says its number; its ancestors end one after the other during the cell's calls.
    session.run(f"{CHANGES}\nfor name in ('started', 'end', 'done'): os.mkfifo(name)")
    number = session.exec(
        "python3",
        "-c",
        f"""
import os, time
for _ in range({n}):
    (wait, end), (all_ended, alive) = os.pipe(), os.pipe()
    if not os.fork():
        for i in range(40):
            if os.fork():
                os.close(end), os.read(wait, 1), time.sleep(i * 0.0005), os._exit(0)
        open('started', 'w').write(str(os.getpid()))
        open('end').read(), os.close(end), open('done').read(), os._exit(0)
    os.close(end), os.close(alive), os.read(all_ended, 1), os.close(wait), os.close(all_ended), os.wait()
""",
    )
    tries = f"""
found = set()
for _ in range({n}):
    pid = int(open('started').read())
    open('end', 'w').close()
    found |= {{call(302, pid, resource.RLIMIT_CORE, at(limit), 0) for _ in range(100)}}
    open('done', 'w').close()
found
"""
    assert value(session, tries) == "{'Operation not permitted'}"
    assert session.wait_command(number)[0].json == {"exit_code": 0}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
def test_cells_cannot_limit_commands_that_start_meanwhile(session: Session) -> None:
    """The number is that of no process when the call is checked."""
    n = rounds(20_000, 4000)
    session.run(f"{CHANGES}\nos.mkfifo('begin')")
    number = session.exec(
        "python3",
        "-c",
        f"""
import os, resource
before, changed = resource.getrlimit(resource.RLIMIT_NOFILE), 0
open('begin', 'w').close()
for _ in range({n}):
    pid = os.fork()
    if not pid:
        for _ in range(200): pass
        os._exit(resource.getrlimit(resource.RLIMIT_NOFILE) != before)
    changed += os.waitpid(pid, 0)[1] != 0
os._exit(changed > 0)
""",
    )
    tries = f"""
open('begin').close()
found = set()
for _ in range({n}):
    pid = int(open('/proc/loadavg').read().split()[-1]) + 1
    found |= {{call(302, pid, resource.RLIMIT_NOFILE, at(limit), 0), call(141, 1, pid, 19)}}
found <= {{'No such process', 'Operation not permitted'}}
"""
    assert value(session, tries) == "True"
    assert session.wait_command(number)[0].json == {"exit_code": 0}


def test_what_is_not_a_command(session: Session) -> None:
    for bad in (dict(rows=10), dict(env=["A"])):
        with pytest.raises(CellgateError) as e:
            session.exec("true", **bad)
        assert e.value.code == E_INVAL
    with pytest.raises(CellgateError):
        session.exec("")


STOP_SERVER = """
for p in /proc/[0-9]*; do
    read -r name < $p/comm
    [ "$name" = cg-commands ] && kill -$0 ${p#/proc/}
done; true
"""


def test_a_program_that_stops_its_runner(session: Session) -> None:
    number = session.exec("bash", "-c", "kill -STOP $PPID; echo stopped; exec sleep 1000", timeout_ms=300)
    end, out, _ = session.wait_command(number)
    assert (end.status, end.json, out) == ("timeout", {}, b"stopped\n")
    number = session.exec("bash", "-c", "kill -STOP $PPID; exec sleep 1000")
    assert session.command("true")[0].json == {"exit_code": 0}
    session.cancel(number)
    assert session.wait_command(number)[0].status == "cancelled"


def test_a_program_that_stops_the_server(session: Session) -> None:
    session.command("bash", "-c", STOP_SERVER, "STOP")
    end, _, _ = session.command("true")
    assert end.status == "error" and "stopped what starts commands" in end.text
    assert session.command("true")[0].json == {"exit_code": 0}


def test_input_of_a_terminal_before_it_is_open(session: Session) -> None:
    session.command("true")
    number = session.exec("bash", "-c", "read -t 10 x; echo got=$x; cat", rows=10, columns=20)
    session.write(number, b"early\n")
    session.write(number, b"")
    end, out, _ = session.wait_command(number)
    assert b"got=early" in out and end.json == {"exit_code": 0}


def test_output_is_closed_with_the_result(session: Session) -> None:
    line = "(yes; echo ${PIPESTATUS[0]} $? > /tmp/status) & (yes >&2) & sleep 0.05"
    end, _, _ = session.command("bash", "-c", line)
    assert end.json == {"exit_code": 0}
    eventually(lambda: not fails(session, "test", "-s", "/tmp/status"))
    assert session.command("cat", "/tmp/status")[1].split()[0] == b"141"  # SIGPIPE


def test_time_limit_of_what_is_left(session: Session) -> None:
    end, out, _ = session.command("bash", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!", timeout_ms=1000)
    assert end.status == "ok"
    eventually(lambda: fails(session, "test", "-d", f"/proc/{out.decode().strip()}"))


def test_a_program_that_has_ended_in_time(session: Session) -> None:
    """Its time limit does not matter to output that the host reads later."""
    fill = """
import os, time
os.set_blocking(1, False)
since = time.time()
while time.time() - since < 0.5:  # the pipe stays full: the host reads nothing
    try:
        os.write(1, bytes(4096))
        since = time.time()
    except BlockingIOError:
        time.sleep(0.01)
"""
    session.command("true")
    number = session.exec("python3", "-c", fill, timeout_ms=5000)
    time.sleep(6)
    end, out, _ = session.wait_command(number)
    assert (end.status, end.json) == ("ok", {"exit_code": 0}) and len(out) > 8_000_000


def test_terminals_of_the_landlock_tier(client: Client, workspace: Path) -> None:
    try:
        session = client.session(workspace=workspace, tier="landlock:accept")
    except CellgateError as e:
        pytest.skip(str(e))
    with session:
        end, _, _ = session.command("tty", rows=10, columns=20)
        assert end.status == "error" and "landlock tier has no terminals" in end.text
        assert session.command("true")[0].json == {"exit_code": 0}
        session.file_write("a", b"x")
        assert session.file_read("a") == b"x"


def test_another_server_has_the_same_cpus(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, cores_milli=1000) as session:
        seen = set()
        for _ in range(3):
            end, out, _ = session.command("python3", "-c", "import os; print(os.sched_getaffinity(0))")
            seen |= {out} if end.status == "ok" else set()
            session.command("bash", "-c", STOP_SERVER, "KILL")
        seen.add(session.run("import os; print(os.sched_getaffinity(0))").stdout.encode())
        assert len(seen) == 1
