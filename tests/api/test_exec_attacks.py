"""Attacks on exec "ask": ways to run a program without its approval, or another one than was shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import Client, Session

from .test_exec_ask import PRELUDE, Host


@pytest.fixture
def session(client: Client, workspace: Path) -> Iterator[Session]:
    with client.session(workspace=workspace, exec="ask") as s:
        assert s.run(PRELUDE).status == "ok"
        yield s


PARENTS = """
w = os.getcwd()
os.makedirs('d/e'); os.makedirs('usr/bin')
path = {path}
low = w + '/f' + '/x' * (path.count('../') - {above})
os.makedirs(low)
with open('usr/bin/ldd', 'w') as f:
    f.write('#!/bin/bash\\necho EVIL\\n')
os.chmod('usr/bin/ldd', 0o755)
def swap():
    time.sleep(0.4)
    {swap}
threading.Thread(target=swap).start()
def run():
    {folder}
    libc.execve(path.encode(), strings(b'ldd', b'--version'), strings(b'A=1'))
print(child(run))
"""


@pytest.mark.parametrize("how", ["folder", "working folder"])
def test_a_script_behind_a_folder_whose_parent_cells_can_change(session: Session, how: str) -> None:
    """Its interpreter opens it by the name that was given: ".." leads elsewhere when the folder has moved."""
    if how == "folder":
        code = PARENTS.format(
            path="w + '/d/e/' + '../' * (w.count('/') + 2) + 'usr/bin/ldd'",
            above=1,
            swap="os.rename('d/e', 'gone'); os.symlink(low, 'd/e')",
            folder="pass",
        )
    else:
        code = PARENTS.format(
            path="'../' * (w.count('/') + 1) + 'usr/bin/ldd'",
            above=2,
            swap="os.rename(w + '/d', low + '/d')",
            folder="os.chdir('d')",
        )
    host = Host(wait_s=1)
    out = session.run(code, decide=host)
    (question,) = host.asked
    assert question["program"] == "/usr/bin/ldd" and question["writable"] is True, (question, out.events)


def test_a_number_whose_former_owner_was_approved(session: Session) -> None:
    """The leader of a process is traced, ends, and loses its number to another thread: init must not take a later
    process with this number for a traced one."""
    code = """
def run():
    def other():
        time.sleep(2.6)
        libc.execve(b'/usr/bin/true', strings(b'true'), strings())
    threading.Thread(target=other).start()
    argv = strings(b'true', b'x')
    def spoil():
        time.sleep(0.3)
        ctypes.c_size_t.from_address(ctypes.addressof(argv)).value = 8
    threading.Thread(target=spoil).start()
    libc.execve(b'/usr/bin/true', argv, strings())
    libc.syscall(60, 0)
def fork_until(wanted, run):
    "Numbers are given in turn, and those below 300 once only."
    sys.stdout.flush()
    for _ in range(3000):
        pid = os.fork()
        if pid == 0:
            if wanted(os.getpid()):
                run()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if wanted(pid):
            return pid, status
    return None, None
former, status = fork_until(lambda pid: 350 < pid, run)
print(status)
def again():
    argv = strings(b'echo', b'harmless')
    def change():
        time.sleep(0.4)
        argv[1] = b'EVIL'
    threading.Thread(target=change).start()
    libc.execve(b'/usr/bin/echo', argv, strings())
pid, status = fork_until(lambda pid: pid == former, again)
print(pid == former, status)
"""
    host = Host(wait_s=0.8)
    out = session.run(code, decide=host)
    assert [q["command"] for q in host.asked] == ["true x", "true", "echo harmless"]
    assert out.stdout == "0\nTrue -9\n", out.events


def test_a_standard_input_that_changes_while_the_question_is_written(session: Session) -> None:
    code = """
r, w = os.pipe()
os.write(w, b'echo evil\\n')
os.close(w)
null = os.open('/dev/null', os.O_RDONLY)
def run():
    def swap():
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            for _ in range(100):
                os.dup2(null, 0); os.dup2(r, 0)
    threading.Thread(target=swap).start()
    libc.execve(b'/bin/sh', strings(b'sh'), strings(b'A=1'))
for _ in range(8):
    print(child(run))
"""
    host = Host(lambda q: q["stdin"] == "/dev/null", wait_s=0.4)
    out = session.run(code, decide=host)
    assert "evil" not in out.stdout, out.events


@pytest.mark.parametrize("where", ["cellgate's", "the host's"])
def test_a_program_in_a_folder_that_takes_the_place_of_a_read_only_one(
    client: Client, workspace: Path, tmp_path: Path, where: str
) -> None:
    """A mount in a private place cannot be renamed, but the folder that it is in can."""
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    (folder / "prog").write_text("#!/bin/sh\necho good\n")
    (folder / "prog").chmod(0o755)
    if where == "cellgate's":
        folder = Path("/run/cellgate/lib")
    code = """
above, name = os.path.split({folder!r})
os.makedirs(above + '.new/' + name)
prog = above + '.new/' + name + '/prog'
with open(prog, 'w') as f:
    f.write('#!/bin/sh\\necho evil\\n')
os.chmod(prog, 0o755)
os.rename(above, above + '.old')
os.rename(above + '.new', above)
print(subprocess.run([{folder!r} + '/prog'], capture_output=True, text=True).stdout)
"""
    host = Host()
    with client.session(workspace=workspace, exec="ask", python_path=[str(tmp_path / "above" / "folder")]) as s:
        assert s.run(PRELUDE).status == "ok"
        out = s.run(code.format(folder=str(folder)), decide=host)
    assert out.stdout == "evil\n\n", out.events
    assert [q["writable"] for q in host.asked] == [True], host.asked
