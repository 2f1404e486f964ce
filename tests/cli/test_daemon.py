"""The supervisor that a user's commands share: who finds it, what it takes from whom, and `cellgate daemon`."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import web
from processes import alive, descendants, eventually
from shared_supervisor import Shared

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this without a user namespace")
NOTE = "private supervisor, since none can be shared: "
EVERYTHING = web.settings(network={"allowAllUnixSockets": True}, filesystem={"allowWrite": [], "disabled": True})
GO = "open('go').read()"
CLONE_NEWNS = 0x20000


# ---------------------------------------------------------------- sharing


def test_commands_share_one_and_no_state(shared: Shared) -> None:
    assert shared.run("x = 1; x") == "1"
    (pid,) = shared.supervisors()
    assert shared.run("'x' in globals()") == "False"
    assert shared.supervisors() == [pid]
    (status,) = shared.status()
    assert status["pid"] == pid
    assert status["version"] == shared("--version").stdout.split()[1]
    assert status["address"] == str(shared.address)
    assert status["uptime_ms"] > 0
    assert status["linger_ms"] == 600_000
    assert status["memory_bytes"] > 10 << 20
    assert [c["sessions"] for c in status["clients"]] == [0]
    text = shared("daemon", "status").stdout
    assert f"process {pid}: version {status['version']}, up " in text
    assert "0 sessions" in text


def test_run_serve_and_jupyter_share_one(shared: Shared) -> None:
    shared.run()
    before = shared.supervisors()
    calls = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
         "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
         "params": {"name": "execute_ipython_cell", "arguments": {"code": "6 * 7"}}},
    ]  # fmt: skip
    with subprocess.Popen(
        [shared.cellgate, "mcp", "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=shared.cwd,
        env=shared.env,
    ) as served:
        assert served.stdin and served.stdout
        print(*map(json.dumps, calls), sep="\n", file=served.stdin, flush=True)
        answers = (json.loads(line) for line in served.stdout)  # the end of its input would end the cell
        assert "42" in next(str(a["result"]) for a in answers if a.get("id") == 2)
        assert len(shared.supervisors()) == 1
        served.stdin.close()
    with subprocess.Popen(
        [shared.cellgate, "jupyter", "run", "-f", "c.json"], cwd=shared.cwd, env=shared.env
    ) as kernel:
        eventually(lambda: any(c["sessions"] for s in shared.status() for c in s["clients"]))
        kernel.send_signal(signal.SIGTERM)
    assert shared.supervisors() == before


@pytest.mark.parametrize(
    ("options", "env"),
    [
        (["--private"], {}),
        ([], {"CELLGATE_PRIVATE": "1"}),
        (["--no-sandbox"], {}),
        (["--log-level", "1"], {}),
    ],
)
def test_private_ones(shared: Shared, options: list[str], env: dict[str, str]) -> None:
    done = shared("run", *options, "-c", "6 * 7", env=env)
    assert done.stdout == "42\n"
    assert NOTE not in done.stderr
    assert not shared.supervisors()


# ---------------------------------------------------------------- what belongs to the client


SAME = [
    ("SHLVL", "9"),
    ("PWD", "/"),
    ("TERM", "vt100"),
    ("LANG", "C.UTF-8"),
    ("PATH", "/usr/bin:/bin"),
    ("SECRET", "of mine"),
]
OTHER = [
    ("HOME", "/var"),
    ("XDG_STATE_HOME", "/var/tmp/state"),
    ("XDG_DATA_HOME", "/var/tmp/data"),
    ("https_proxy", "http://proxy.test:3128"),
    ("NO_PROXY", "localhost"),
    ("SSL_CERT_FILE", "/etc/hosts"),
    ("LD_LIBRARY_PATH", "/usr/lib"),
    ("SLURM_JOB_ID", "7"),
    ("PBS_JOBID", "7.server"),
    ("LSB_JOBID", "7"),
]


@pytest.mark.no_sanitizer  # ten supervisors
def test_variables(shared: Shared) -> None:
    """Those of OTHER are a supervisor's own: each program with one of them starts one more."""
    shared.run()
    for name, value in SAME:
        assert shared.run(env={name: value}) == "1"
        assert len(shared.supervisors()) == 1, name
    for i, (name, value) in enumerate(OTHER):
        assert shared.run(env={name: value}) == "1"
        assert len(shared.supervisors()) == i + 2, name


def test_it_starts_with_the_variables_that_it_reads(shared: Shared) -> None:
    """Whoever starts it: its other variables are not kept for those who come later."""
    shared.run(env={"SECRET": "of the first", "http_proxy": "http://proxy.test"})
    (pid,) = shared.supervisors()
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"http_proxy=http://proxy.test\0" in environ
    assert b"SECRET" not in environ
    assert b"PATH=" not in environ


LIMITS = [
    (("sh", "-c", 'umask 037; exec "$@"', "sh"), "import os; oct(os.umask(0))", "'0o37'"),
    (("nice", "-n", "3"), "import os; os.nice(0)", None),
    (("prlimit", "--core=0:4096"), "1", None),
    (("prlimit", "--stack=4194304"), "import resource; resource.getrlimit(resource.RLIMIT_STACK)[0]", "4194304"),
    (("taskset", "1"), "import os; os.sched_getaffinity(0)", "{0}"),
]


@pytest.mark.no_sanitizer  # six supervisors
def test_limits(shared: Shared) -> None:
    """Kernels are the supervisor's children: a program with other limits has another one."""
    for i, (by, code, value) in enumerate(LIMITS):
        alone = shared.run(code, "--private", by=by)
        assert value is None or alone == value
        shared.run(code)
        assert shared.run(code, by=by) == alone
        assert len(shared.supervisors()) == i + 2
        assert shared.run(code, by=by) == alone
        assert len(shared.supervisors()) == i + 2


@ROOT
@pytest.mark.no_sanitizer  # five supervisors
def test_namespaces(shared: Shared) -> None:
    shared.run()
    for i, namespace in enumerate(["--net", "--uts", "--ipc", "--mount"]):
        assert shared.run(by=("unshare", namespace)) == "1"
        assert len(shared.supervisors()) == i + 2, namespace


@pytest.mark.skipif(not os.path.exists("/usr/bin/setpriv"), reason="needs setpriv")
def test_a_process_in_an_unknown_sandbox_shares_with_nobody(shared: Shared) -> None:
    """no_new_privs: it may be in a Landlock domain, which no other process can see."""
    shared.run()
    before = shared.supervisors()
    done = shared("run", "-c", "6 * 7", by=("setpriv", "--no-new-privs"))
    assert done.stdout == "42\n"
    assert NOTE + "the process has no_new_privs" in done.stderr
    assert shared.supervisors() == before


def test_preloaded_modules_and_environments(shared: Shared, packages_env: Path) -> None:
    shared.run()
    assert shared.run("import sys; 'uuid' in sys.modules", "--preload", "uuid") == "True"
    assert shared.run("import sys; sys.prefix", "--kernel-env", packages_env).endswith(f"{packages_env.name}'")
    pids = sorted(shared.supervisors())
    assert len(pids) == 3
    assert sorted(s["pid"] for s in shared.status()) == pids
    shared.run("1", "--preload", "uuid")
    assert sorted(shared.supervisors()) == pids


def test_servers_get_the_variables_of_their_own_client(shared: Shared, tmp_path: Path) -> None:
    """${VAR} and PATH; the shared supervisor was started by a client that had neither."""
    shared.run()
    before = shared.supervisors()
    program = tmp_path / "bin/my-server"
    program.parent.mkdir()
    script = Path(__file__).parent.parent / "api/echo_server.py"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {script}\n")
    program.chmod(0o755)
    mcp = tmp_path / "mcp.json"
    mcp.write_text(json.dumps({"mcpServers": {"e": {"command": "my-server", "env": {"TOKEN": "${MY_TOKEN}"}}}}))
    own = {"PATH": f"{program.parent}:{os.environ['PATH']}", "MY_TOKEN": "of mine", "LC_TIME": "C.UTF-8"}
    code = "from mcptools.e import env\n[str(env.run(name=n)) for n in ('TOKEN', 'LC_TIME', 'MY_TOKEN')]"
    assert shared.run(code, "--mcp", mcp, "--approve", "all", env=own) == "['of mine', 'C.UTF-8', 'None']"
    failed = shared("run", "--mcp", mcp, "-c", "1")
    assert "environment variable MY_TOKEN is not set" in failed.stderr
    assert shared.supervisors() == before


@pytest.mark.parametrize("kept", [True, False])
def test_secrets_do_not_stay(shared: Shared, kept: bool) -> None:
    """A spare with a client's variables ends with the client."""
    with shared.start(GO, *([] if kept else ["--env", "TOKEN=secret"])) as run:
        os.mkfifo(shared.cwd / "go")
        eventually(lambda: [s["spares"] for s in shared.status()] == [1])
        (shared.cwd / "go").write_bytes(b"")
        run.communicate(timeout=60)
    assert run.returncode == 0
    eventually(lambda: [s["spares"] for s in shared.status()] == [int(kept)])
    time.sleep(0.2)  # no other is started
    assert [s["spares"] for s in shared.status()] == [int(kept)]


@pytest.fixture
def own_mounts() -> Iterator[None]:
    """A mount namespace for a test and what it starts: where mounts change, spares of other tests would end."""
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    libc, cwd = ctypes.CDLL(None), Path.cwd()
    with open("/proc/thread-self/ns/mnt") as before:
        assert libc.unshare(CLONE_NEWNS) == 0
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        yield
        assert libc.setns(before.fileno(), CLONE_NEWNS) == 0
    os.chdir(cwd)


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize("apart", [True, False])
def test_a_file_system_can_be_unmounted_after_its_last_client(shared: Shared, tmp_path: Path, apart: bool) -> None:
    """A spare would keep it busy. While the client runs, a spare is ready for its next session."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    if apart:
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    try:
        os.mkfifo(folder / "go")
        with shared.start(GO, "--workspace", folder) as run:
            eventually(lambda: [s["spare_workspaces"] for s in shared.status()] == [[str(folder)]])
            (folder / "go").write_bytes(b"")
            run.communicate(timeout=60)
        eventually(lambda: [s["spares"] for s in shared.status()] == [0 if apart else 1])
        if apart:
            eventually(lambda: subprocess.run(["umount", folder], check=False).returncode == 0)
        else:
            assert f"a spare session uses the folder {folder}\n" in shared("daemon", "status").stdout
    finally:
        if folder.is_mount():
            subprocess.run(["umount", "-l", folder], check=False)


def _views_with_mount(shared: Shared, folder: Path) -> set[str]:
    """The mount namespaces of the supervisor and of its sessions and spares that have a mount at the folder."""
    views = set()
    for pid in [p for s in shared.status() for p in (s["pid"], *descendants(s["pid"]))]:
        with contextlib.suppress(OSError):  # it has ended
            if f" {folder} " in Path(f"/proc/{pid}/mountinfo").read_text():
                views.add(os.readlink(f"/proc/{pid}/ns/mnt"))
    return views


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize("client", ["there", "gone"])
def test_spares_of_no_client_end_when_mounts_change(shared: Shared, tmp_path: Path, client: str) -> None:
    """A spare's sandbox has every mount of its time: the file system would stay in use after umount."""
    folder = tmp_path / "stick"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    try:
        os.mkfifo(shared.cwd / "go")
        with shared.start(GO) as run:
            eventually(lambda: len(_views_with_mount(shared, folder)) == 3)  # supervisor, session, spare
            if client == "there":
                subprocess.run(["umount", folder], check=True)
                assert len(_views_with_mount(shared, folder)) == 2
            (shared.cwd / "go").write_bytes(b"")
            run.communicate(timeout=60)
        if client == "gone":
            assert [s["spares"] for s in shared.status()] == [1]
            subprocess.run(["umount", folder], check=True)
        eventually(lambda: not _views_with_mount(shared, folder))
    finally:
        if folder.is_mount():
            subprocess.run(["umount", "-l", folder], check=False)


def _anonymous(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def test_shared_memory_counts_once(shared: Shared) -> None:
    """Zygote, init and the kernel of a spare share most of their memory."""
    with shared.start("import array; block = array.array('b', bytes(100 << 20)); " + GO) as run:
        os.mkfifo(shared.cwd / "go")
        eventually(lambda: [s["spares"] for s in shared.status()] == [1])
        eventually(lambda: shared.status()[0]["memory_bytes"] > 100 << 20)
        (status,) = shared.status()
        assert status["memory_bytes"] < sum(map(_anonymous, [status["pid"], *descendants(status["pid"])]))
        (shared.cwd / "go").write_bytes(b"")
        run.communicate(timeout=60)


# ---------------------------------------------------------------- others at the address


def connect(address: Path, by: tuple[str, ...] = ()) -> str:
    """What the supervisor's lifeline sends to a process: a token of 32 digits, or nothing."""
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.settimeout(20)\n"
        "s.connect(sys.argv[1])\n"
        "try: print(s.recv(33).decode().strip())\n"
        "except ConnectionResetError: print()\n"
    )
    argv = [*by, "/usr/bin/python3", "-c", code, str(address / "life.sock")]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_processes_in_sandboxes_are_refused(shared: Shared) -> None:
    shared.run()
    assert len(connect(shared.address)) == 32
    assert connect(shared.address, ("setpriv", "--no-new-privs")) == ""
    assert connect(shared.address, ("nice", "-n", "3")) == ""
    if os.geteuid() == 0:
        assert connect(shared.address, ("unshare", "--net")) == ""
        assert connect(shared.address, ("setpriv", "--bounding-set=-sys_admin")) == ""
    assert len(connect(shared.address)) == 32
    assert "refused the host" in shared.address.with_suffix(".log").read_text()


def test_a_command_in_a_sandbox_cannot_use_it(shared: Shared, tmp_path: Path) -> None:
    """Even where its settings allow every unix socket."""
    shared.run()
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(EVERYTHING))
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('GOT', s.recv(33))"
    done = shared("sandbox", "-s", settings, "/usr/bin/python3", "-c", code, shared.address / "life.sock")
    assert done.stdout == "GOT b''\n", done


def test_cells_cannot_see_or_change_its_folder(shared: Shared) -> None:
    """Not even where the runtime folder is their workspace."""
    shared.run()
    folder = shared.address.parent
    look = (
        f"import os\np = {str(folder)!r}\n"
        "def attempt(f, *a):\n    try: return f(*a)\n    except OSError as e: return type(e).__name__\n"
        "print(attempt(os.listdir, p), attempt(os.rename, p, p + '.old'), attempt(os.mkdir, p + '/x'))"
    )
    for options in ([], ["--workspace", shared.folder]):
        done = shared("run", *options, "-c", look)
        assert "shared-" not in done.stdout, done
        assert "None" not in done.stdout, done
    assert len(shared.supervisors()) == 1
    assert shared.run() == "1"


def test_many_connections_of_one_process_take_no_place_of_others(shared: Shared) -> None:
    shared.run()
    with contextlib.ExitStack() as stack:
        refused = 0
        for _ in range(260):
            s = stack.enter_context(socket.socket(socket.AF_UNIX))
            s.settimeout(20)
            s.connect(str(shared.address / "life.sock"))
            refused += s.recv(33) == b""
        assert refused == 4
        assert shared.run() == "1"
    assert len(shared.supervisors()) == 1


@pytest.mark.parametrize("what", ["mode", "foreign file", "not a folder"])
def test_a_planted_folder_is_not_used(shared: Shared, what: str) -> None:
    parent = shared.folder / f"cellgate-{os.geteuid()}"
    if what == "mode":
        parent.mkdir()
        parent.chmod(0o777)
    elif what == "not a folder":
        parent.write_text("")
    else:
        shared.run()
        address = shared.address
        assert shared("daemon", "stop").returncode == 0
        address.mkdir(mode=0o700)
        (address / "thesis.txt").write_text("years of work")
    done = shared("run", "-c", "6 * 7")
    assert done.stdout == "42\n"
    assert NOTE in done.stderr
    assert not shared.supervisors()
    if what == "foreign file":
        assert (address / "thesis.txt").read_text() == "years of work"


def test_one_that_hangs_holds_nobody_up(shared: Shared) -> None:
    shared.run()
    (pid,) = shared.supervisors()
    os.kill(pid, signal.SIGSTOP)
    done = shared("run", "-c", "6 * 7")
    assert done.stdout == "42\n"
    assert NOTE in done.stderr
    assert "does not answer" in done.stderr
    status = shared("daemon", "status").stdout
    assert f"process {pid} at {shared.address}: " in status
    stop = shared("daemon", "stop")
    assert stop.returncode == 1
    assert "--force ends it" in stop.stdout
    assert shared("daemon", "stop", "--force").returncode == 0
    eventually(lambda: not alive(pid))


def test_a_client_that_is_killed_leaves_nothing(shared: Shared) -> None:
    run = shared.start("import time; print('on', flush=True); time.sleep(1000)")
    assert run.stdout
    assert run.stdout.readline() == "on\n"
    run.kill()
    run.communicate()
    eventually(lambda: [len(s["clients"]) for s in shared.status()] == [1])
    assert shared.run() == "1"


def test_it_holds_no_descriptor_of_its_starter(shared: Shared) -> None:
    """A pipe that it kept open would never end for the program that reads it."""
    shared.run()
    (pid,) = shared.supervisors()
    links = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in "012"}
    assert links["0"] == links["1"] == "/dev/null"
    assert links["2"] == str(shared.address) + ".log"
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_its_log_does_not_grow_for_ever(shared: Shared) -> None:
    shared.run()
    log = shared.address.with_suffix(".log")
    with log.open("ab") as f:
        f.write(b"x" * (9 << 20))
    shared.run()
    assert log.stat().st_size < 1 << 20
    assert log.stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------- cellgate daemon


def test_stop_without_clients(shared: Shared) -> None:
    assert shared("daemon", "stop").stdout == "no shared supervisor is running\n"
    assert shared("daemon", "status").stdout == "no shared supervisor is running\n"
    assert shared.status() == []
    shared.run()
    (pid,) = shared.supervisors()
    done = shared("daemon", "stop")
    assert (done.returncode, done.stdout) == (0, f"process {pid} has ended\n")
    assert not alive(pid)
    assert shared.run() == "1"


def test_stop_says_whose_sessions_it_would_end(shared: Shared) -> None:
    os.mkfifo(shared.cwd / "go")
    run = shared.start("print('on', flush=True)\n" + GO)
    assert run.stdout
    assert run.stdout.readline() == "on\n"
    (pid,) = shared.supervisors()
    refused = shared("daemon", "stop")
    assert refused.returncode == 1
    assert f"process {pid} runs on: 1 session of other clients would end" in refused.stdout
    assert f"process {run.pid}: 1 session: " in refused.stdout
    assert "run -c print('on', flush=True)\\x0aopen" in refused.stdout  # code makes no lines of its own
    assert f"process {run.pid}: 1 session: " in shared("daemon", "status").stdout
    assert run.poll() is None
    assert shared("daemon", "stop", "--force").returncode == 0
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "`cellgate daemon stop`" in errors
    assert not shared.supervisors()


@pytest.mark.parametrize("words", [[], ["start"], ["status", "--force"], ["stop", "--json"], ["stop", "1"]])
def test_usage(shared: Shared, words: list[str]) -> None:
    done = shared("daemon", *words)
    assert done.returncode == 2
    assert "--help" in done.stderr
    assert shared("daemon", "--help").stdout.startswith("Usage: cellgate daemon status")
