"""Denials of a command: reported at its end, logged immediately, and no report without a denial."""

import fcntl
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Box

UNSHARE = "unshare -U true 2>/dev/null; true"
REPORT = "cellgate sandbox: the sandbox refused "


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def logged(box: Box, script: str, **more: Any) -> tuple["subprocess.CompletedProcess[str]", list[dict[str, Any]]]:
    log = box.out / "log"
    p = box.run("-c", script, settings=box.settings(cellgate={"violationLog": str(log)}, **more))
    return p, lines(log) if log.exists() else []


def test_told_at_the_end_and_logged(box: Box) -> None:
    p, log = logged(box, "echo out; " + UNSHARE + "; exit 3")
    assert (p.returncode, p.stdout) == (3, "out\n")
    assert p.stderr == (
        REPORT
        + "unshare(CLONE_NEWUSER) (unshare): namespaces of their own would give programs rights that the sandbox takes away."
        " To allow it: set allowNestedUserNamespaces\n"
    )
    (o,) = log
    assert (o["operation"], o["call"], o["errno"], o["source"]) == (
        "namespace",
        "unshare(CLONE_NEWUSER)",
        "EPERM",
        "sandbox",
    )
    assert o["process"]["name"] == "unshare"
    assert o["rule"] == "system call filter (built in)"
    assert o["how"] == "set allowNestedUserNamespaces"


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (".npm", "_cacache/tmp/"),
        (".npm", ""),
        (".cache/pip", "http-v2/"),
        (".local/share/pnpm", "store/"),
        (".cargo", "registry/"),
    ],
)
def test_the_folder_of_a_program_is_named_and_not_its_random_names(box: Box, folder: str, name: str) -> None:
    (box.home / folder / name).mkdir(parents=True)
    code = f"import os, uuid\nfor _ in range(30):\n    try: open(os.path.expanduser('~/{folder}/{name}') + uuid.uuid4().hex, 'w')\n    except OSError: pass"
    (box.work / "install.py").write_text(code)
    p, log = logged(box, "python3 install.py")
    (line,) = p.stderr.splitlines()
    assert line.startswith(f"{REPORT}writing files in {box.home}/{folder} (python3): ")
    assert f". To allow it: add {box.home}/{folder} to filesystem.allowWrite (" in line and line.endswith(" times)")
    assert all(o["path"].startswith(f"{box.home}/{folder}/{name}") for o in log)


def test_a_folder_of_a_program_that_is_not_there(box: Box) -> None:
    """An entry of allowWrite that does not exist is left out, so it has to be made first."""
    p, _ = logged(box, "mkdir ~/.npm; mkdir -p ~/.npm/_cacache/tmp; touch ~/.npm/_cacache/4f2a9e; true")
    (line,) = [line for line in p.stderr.splitlines() if line.startswith(REPORT)]
    assert line.startswith(f"{REPORT}writing {box.home}/.npm (")
    assert f". To allow it: make it first, and add {box.home}/.npm to filesystem.allowWrite" in line


def test_other_files_in_the_home_folder_are_named_themselves(box: Box) -> None:
    (box.home / "projects").mkdir()
    p, _ = logged(box, "touch ~/projects/a ~/.newrc; true")
    assert f"{REPORT}writing {box.home}/projects/a (touch)" in p.stderr
    assert f"{REPORT}writing {box.home}/.newrc (touch)" in p.stderr


@pytest.mark.parametrize(
    "script",
    [
        "echo x > f; cat f; mkdir d; mv f d; rm -r d",
        "id >/dev/null; ls -l / >/dev/null; sh -c 'sleep 0 & wait'",
        'python3 -c \'import socket, threading; socket.socketpair(); socket.getaddrinfo("localhost", 1);'
        " t = threading.Thread(target=print); t.start(); t.join()'",
    ],
)
def test_what_is_allowed_is_no_denial(box: Box, script: str) -> None:
    p, log = logged(box, script)
    assert (p.returncode, p.stderr, log) == (0, "", [])


def test_allowed_by_what_it_says(box: Box) -> None:
    p = box.sh(UNSHARE, allowNestedUserNamespaces=True)
    assert p.stderr == ""


def test_once_each_with_their_number(box: Box) -> None:
    p = box.sh("for i in 1 2 3; do unshare -U true; done 2>/dev/null; unshare -n true 2>/dev/null; true")
    reports = p.stderr.splitlines()
    assert len(reports) == 2
    assert reports[0].endswith("(3 times)")


SETID = """
import os, sys
def can(what, *args):
    try: return what(*args)
    except PermissionError: return -1
open("f", "w").close(); os.mkdir("d"); os.umask(0)
fd = os.open("f", os.O_RDWR)
print([can(os.chmod, where, mode) for where in ("f", fd) for mode in (0o4755, 0o2755, 0o6711)],
      can(os.open, "new", os.O_CREAT | os.O_WRONLY, 0o4755), can(os.mknod, "new", 0o102755), can(os.chmod, "f", 0o1750),
      can(os.chmod, "d", 0o2770), can(os.chmod, "../work/d/../d", 0o2750), can(os.open, "f", os.O_RDONLY, 0o6755) > 0)
"""


@pytest.mark.parametrize("options", [(), ("--watch-files",)])
def test_files_with_the_rights_of_their_owner(box: Box, options: tuple[str, ...]) -> None:
    """Outside they would give any other user the rights of whoever ran the sandbox; folders have a use for the group's bit."""
    (box.work / "setid.py").write_text(SETID)
    p = box.run(*options, "python3", "setid.py", settings=box.settings())
    assert p.stdout == "[-1, -1, -1, -1, -1, -1] -1 -1 None None None True\n"
    assert oct((box.work / "f").stat().st_mode) == "0o101750"
    assert oct((box.work / "d").stat().st_mode) == "0o42750"
    assert not (box.work / "new").exists()
    reports = p.stderr.splitlines()
    assert {line.removeprefix(REPORT).split(" (")[0] for line in reports} == {
        f"writing {box.work}/f", "openat(S_ISUID)", "mknodat(S_ISGID)",
    }
    assert "gives other users of this machine the rights of whoever runs the sandbox" in reports[0]


def test_files_with_capabilities(box: Box) -> None:
    """Root with namespaces of its own keeps CAP_SETFCAP, which can give files capabilities."""
    script = (
        "import os, struct; open('f', 'w').close()\n"
        "for v in (struct.pack('<5I', 0x2000001, 0x80, 0, 0, 0), struct.pack('<6I', 0x3000001, 0x80, 0, 0, 0, 0)):\n"
        "    try: os.setxattr('f', 'security.capability', v); print('set')\n"
        "    except OSError: print('refused')\n"
    )
    (box.work / "caps.py").write_text(script)
    for nested in (False, True):
        p = box.run("python3", "caps.py", settings=box.settings(allowNestedUserNamespaces=nested))
        assert (p.stdout, p.stderr) == ("refused\nrefused\n", "")
        assert os.listxattr(box.work / "f") == []


def test_quiet(box: Box) -> None:
    for option in ("-q", "--quiet"):
        assert box.run(option, "-c", UNSHARE, settings=box.settings()).stderr == ""


def test_told_whatever_the_command_did_to_standard_error(box: Box) -> None:
    """A pipe that the command has filled and does not wait for: nothing is lost, and the caller has it back as it was."""
    script = """
import fcntl, os, socket
fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_NONBLOCK)
try:
    while True: os.write(2, b"." * 4096)
except BlockingIOError: pass
try: socket.socket(socket.AF_UNIX)
except OSError: pass
"""
    reader, writer = os.pipe()
    before = fcntl.fcntl(writer, fcntl.F_GETFL)
    p = subprocess.Popen(
        box.argv("python3", "-c", script, settings=box.settings()), cwd=box.work, env=box.env, stderr=writer, stdin=subprocess.DEVNULL
    )
    time.sleep(1)  # the pipe is full when we begin to read
    seen = b""
    while p.poll() is None or select.select([reader], [], [], 0)[0]:
        if select.select([reader], [], [], 0.05)[0]:
            seen += os.read(reader, 65536)
    assert b"the sandbox refused socket(AF_UNIX" in seen.strip(b".")
    assert fcntl.fcntl(writer, fcntl.F_GETFL) == before
    os.close(reader)
    os.close(writer)


def test_ignored(box: Box) -> None:
    p, log = logged(box, UNSHARE, ignoreViolations={"unshare": ["CLONE_NEWUSER"]})
    assert (p.stderr, log) == ("", [])
    p, log = logged(box, UNSHARE, ignoreViolations={"another": ["CLONE_NEWUSER"], "*": ["mount"]})
    assert len(log) == 1


def test_connections_have_the_same_shape(box: Box) -> None:
    script = "python3 -c \"import urllib.request as u; u.urlopen('http://a.example/')\" 2>/dev/null; true"
    p, log = logged(box, script)
    (o,) = log
    assert (o["operation"], o["host"], o["port"], o["source"]) == ("network-outbound", "a.example", 80, "proxy")
    assert p.stderr == (
        REPORT + "a connection to a.example:80 (http): host is not on the allow list. To allow it:"
        ' add "a.example:80" to network.allowedDomains\n'
    )


def test_names_cannot_forge(box: Box) -> None:
    """A process's name is its own word: it stays on its line, and nothing in it reaches the terminal."""
    name = "x\\n\\x1b[31mok"
    p, log = logged(
        box,
        f"python3 -c \"import ctypes; c = ctypes.CDLL(None); c.prctl(15, b'{name}', 0, 0, 0); c.unshare(0x10000000)\"",
    )
    assert p.stderr.count("\n") == 1
    assert "\x1b" not in p.stderr
    assert len(log) == 1


def test_a_flood_is_bounded(box: Box) -> None:
    flood = "import ctypes\nc = ctypes.CDLL(None)\nfor i in range(5000): c.unshare(0x10000000 | i)"
    (box.work / "flood.py").write_text(flood)
    p, log = logged(box, "python3 flood.py")
    assert p.returncode == 0
    assert 64 <= len(log) < 1500
    assert len(p.stderr.splitlines()) <= 18
    assert " more that are not shown" in p.stderr


def test_refused_calls_fail_as_they_should(box: Box) -> None:
    """Also those that wait for an answer: EPERM, from every thread, and after a signal."""
    code = (
        "import ctypes, signal, threading\n"
        "signal.signal(signal.SIGALRM, lambda *a: None); signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)\n"
        "c = ctypes.CDLL(None, use_errno=True)\n"
        "def f():\n"
        "    for i in range(200):\n"
        "        ctypes.set_errno(0); r = c.unshare(0x10000000); seen.add((r, ctypes.get_errno()))\n"
        "seen = set(); t = [threading.Thread(target=f) for _ in range(8)]\n"
        "[x.start() for x in t]; [x.join() for x in t]; print(seen - {(-1, 1), (-1, 4)}, (-1, 1) in seen)\n"
    )
    (box.work / "calls.py").write_text(code)
    assert box.sh("python3 calls.py").stdout == "set() True\n"


def test_a_listener_inside_is_refused(box: Box) -> None:
    """A second listener could allow calls: there is only one listener, and no descriptor of it is inside."""
    code = (
        "import ctypes, os\n"
        "c = ctypes.CDLL(None, use_errno=True)\n"
        "class F(ctypes.Structure): _fields_ = [('code', ctypes.c_uint16), ('jt', ctypes.c_uint8), ('jf', ctypes.c_uint8),"
        " ('k', ctypes.c_uint32)]\n"
        "class P(ctypes.Structure): _fields_ = [('len', ctypes.c_uint16), ('f', ctypes.POINTER(F))]\n"
        "f = (F * 1)(F(6, 0, 0, 0x7fff0000)); p = P(1, f)\n"
        "r = c.syscall(317, 1, 8, ctypes.byref(p)); print(r, ctypes.get_errno())\n"
        "def link(n):\n"
        "    try: return os.readlink(f'/proc/self/fd/{n}')\n"
        "    except OSError: return ''\n"
        "print(any('seccomp' in link(n) for n in os.listdir('/proc/self/fd')))\n"
    )
    if subprocess.run(["uname", "-m"], capture_output=True, text=True).stdout.strip() != "x86_64":
        pytest.skip("the numbers are x86-64's")
    (box.work / "listen.py").write_text(code)
    p = box.sh("python3 listen.py 2>&1 | tail -2")
    assert p.stdout == "-1 16\nFalse\n"


# ---------------------------------------------------------------- --watch-files


def watched(box: Box, script: str, fs: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    log = box.out / "log"
    log.unlink(missing_ok=True)
    own = {"violationLog": str(log), "watchFiles": True}
    p = box.run("-c", script, settings=box.settings(fs, cellgate=own))
    assert p.returncode == 0, p.stderr
    return lines(log) if log.exists() else []


@pytest.mark.parametrize(
    ("script", "operation", "path", "rule"),
    [
        ("touch /usr/x", "file-write", "/usr/x", "not in filesystem.allowWrite"),
        ("cd /usr && touch ./lib/../x", "file-write", "/usr/x", "not in filesystem.allowWrite"),
        ("mkdir /usr/d", "file-write", "/usr/d", "not in filesystem.allowWrite"),
        ("rm -f /etc/passwd", "file-write", "/etc/passwd", "not in filesystem.allowWrite"),
        ("touch f; ln f /usr/f; rm f", "file-write", "/usr/f", "not in filesystem.allowWrite"),
        ("ln -s x /usr/s", "file-write", "/usr/s", "not in filesystem.allowWrite"),
        ("chmod 600 /etc/passwd", "file-write", "/etc/passwd", "not in filesystem.allowWrite"),
        ("echo > no/x", "file-write", "{work}/no/x", "filesystem.denyWrite.0"),
        ("cat secret/key", "file-read", "{work}/secret/key", "filesystem.denyRead.0"),
        ("ls link/", "file-read", "{work}/secret", "filesystem.denyRead.0"),
        ("secret/run", "exec", "{work}/secret/run", "filesystem.denyRead.0"),
    ],
)
def test_files_that_cannot_be_had(box: Box, script: str, operation: str, path: str, rule: str) -> None:
    box.file("secret/key")
    box.file("secret/run").chmod(0o755)
    box.file("no/old")
    box.link("link", "secret")
    log = watched(box, f"({script}) 2>/dev/null; true", {"denyRead": ["secret"], "denyWrite": ["no"]})
    found = [(o["operation"], o["path"], o["rule"], o["source"]) for o in log]
    assert (operation, path.format(work=box.work), rule, "sandbox") in found, found
    assert all(o["how"] and o["process"]["pid"] > 1 for o in log)


def test_files_that_can_be_had(box: Box) -> None:
    """Also what fails for reasons of its own: there already, or not there at all."""
    script = (
        "echo x > f; cat f; mv f g; mkdir -p d /usr/lib; ls -l / >/dev/null; rm -r d; rm -f /usr/none; cat /usr/none; : < /etc/passwd;"
        " echo > /dev/null; sh -c 'sleep 0 &'; mkdir /usr/lib; cp /etc/passwd p; true"
    )
    assert watched(box, f"exec 2>/dev/null; {script}") == []


def test_watching_decides_nothing(box: Box) -> None:
    """A path that changes while it is looked at: the file system refuses as it would have."""
    code = (
        "import ctypes, os, threading\n"
        "c = ctypes.CDLL(None, use_errno=True); good, bad = b'/dev/null\\0', b'/usr/xxx1\\0'\n"
        "buf = ctypes.create_string_buffer(good, 10); stop = False\n"
        "def flip():\n"
        "    while not stop: ctypes.memmove(buf, bad, 10); ctypes.memmove(buf, good, 10)\n"
        "t = threading.Thread(target=flip); t.start()\n"
        "for i in range(2000):\n"
        "    fd = c.open(buf, os.O_WRONLY | os.O_CREAT, 0o600)\n"
        "    if fd >= 0: os.close(fd)\n"
        "stop = True; t.join(); print(os.path.exists('/usr/xxx1'), c.unshare(0x10000000))\n"
    )
    (box.work / "race.py").write_text(code)
    p = box.run("--watch-files", "-q", "python3", "race.py", settings=box.settings())
    assert p.stdout == "False -1\n"


def test_refused_files_are_told_at_the_end(box: Box) -> None:
    (box.work / "secret").write_text("x")
    told = (
        REPORT + "writing /usr/x (touch): only what filesystem.allowWrite names may be written."
        " To allow it: add it to filesystem.allowWrite\n"
    )
    policy = box.settings(fs={"denyRead": ["secret"]})
    p = box.run("-c", "touch /usr/x ok 2>/dev/null; cat secret 2>/dev/null", settings=policy)
    assert p.stderr == told
    assert box.run("-q", "-c", "touch /usr/x 2>/dev/null", settings=policy).stderr == ""
    # Reads only where every call is watched.
    p = box.run("--watch-files", "-c", "touch /usr/x 2>/dev/null; cat secret 2>/dev/null", settings=policy)
    assert p.stderr.startswith(told + REPORT + "reading ")
