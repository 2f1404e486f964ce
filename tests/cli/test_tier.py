"""Kernels in the landlock tier, where user namespaces are forbidden."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import eventually
from web import settings, web_server

from .conftest import Server

NO_USERS = Path(__file__).parent.parent / "sandbox_command/no_users.py"

pytestmark = pytest.mark.skipif(
    int(ctypes.CDLL(None).syscall(444, None, 0, 1)) < 6, reason="the landlock tier needs Landlock ABI 6 (Linux 6.12)"
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def weak(cellgate: Path, tmp_path: Path, slowness: float) -> Run:
    """weak(ARGS...): `cellgate run ARGS...` where namespaces are forbidden as containers forbid them."""

    def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(NO_USERS), str(cellgate), "run", *map(str, args)]
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        return subprocess.run(
            argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60 * slowness, stdin=subprocess.DEVNULL
        )

    return run


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def make(**parts: Any) -> Path:
        path = tmp_path_factory.mktemp("settings") / "settings.json"
        path.write_text(json.dumps(settings(**parts)))
        return path

    return make


def test_without_being_asked_for_no_session_opens(weak: Run) -> None:
    p = weak("-c", "print('ran')")
    assert p.returncode != 0
    assert "ran" not in p.stdout
    assert "user namespaces are forbidden here" in p.stderr
    assert "landlock" in p.stderr


def test_every_result_says_which_tier(weak: Run, tmp_path: Path) -> None:
    for name in ("landlock", "auto"):
        p = weak("--tier", name, "--json", "-c", "print(6 * 7)")
        events = [json.loads(line) for line in p.stdout.splitlines()]
        assert events[0]["info"]["tier"] == "landlock"
        assert events[0]["info"]["landlock_abi"] >= 6
        assert "landlock" in events[0]["info"]["layers"]
        assert not {"user", "pid", "net"} & set(events[0]["info"]["layers"])
        assert any(e["type"] == "notice" and "landlock tier" in e["text"] for e in events)
        assert any(e["type"] == "stream" and e["text"] == "42\n" for e in events)


def test_the_strongest_that_can_be_had(cellgate: Path, tmp_path: Path, slowness: float) -> None:
    for args in ([], ["--tier", "auto"], ["--tier", "full"]):
        p = subprocess.run(
            [str(cellgate), "run", "--json", *args, "-c", "1"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60 * slowness, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        info = json.loads(p.stdout.splitlines()[0])["info"]
        assert info["tier"] == "full"
        assert "landlock_abi" not in info


FILES = """
import os, tempfile
def put(path):
    try: open(path, 'w').close(); return True
    except OSError: return False
def look(path):
    try: return open(path).read()
    except OSError: return None
print(put('new'), put(tempfile.gettempdir() + '/t'), put(os.environ['HOME'] + '/h'), put('/tmp/cg-stray'), put('/etc/cg-stray'))
print(look('seen'), look('/etc/shadow'), look('/proc/1/cmdline'), look('/proc/self/stat') is not None, bool(look('/etc/passwd')))
try: os.chmod('/etc/hosts', 0o644); print('changed')
except OSError: print('kept')
os.chmod('new', 0o600)
import math, email.mime.text, IPython
"""


def test_files(weak: Run, tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("SEEN")
    p = weak("--tier", "landlock", "-c", FILES)
    assert p.stdout == "True True True False False\nSEEN None None True True\nkept\n", p.stderr
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_a_hidden_file_in_the_workspace(weak: Run, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET")
    (tmp_path / "a").write_text("A")
    (tmp_path / "sub").mkdir()
    p = weak("--tier", "landlock", "-c", "print('ran')")
    assert p.returncode != 0
    assert "ran" not in p.stdout
    assert ".env" in p.stderr
    assert "landlock:freeze" in p.stderr
    cell = FILES.split("print")[0] + "print(look('.env'), look('a'), put('new'), put('sub/new'), put('a'))"
    p = weak("--tier", "landlock:freeze", "-c", cell)
    assert p.stdout == "None A False True True\n", p.stderr


def test_names_that_lie_below(weak: Run, tmp_path: Path) -> None:
    """Files that programs outside obey are found in folders of the workspace as well, by the whole table of names."""
    names = [
        "sub/.vscode/tasks.json",
        "sub/.envrc",
        "sub/.cursor/mcp.json",
        "sub/.claude/settings.local.json",
        "sub/r/.git/config",
        "sub/r/.git/hooks/pre-commit",
    ]
    for name in [*names, "sub/r/.git/HEAD", "free/file"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("orig\n")
    cell = FILES.split("print")[0] + f"print([put(n) for n in {names!r}], put('sub/.vscode/new'), put('free/file'))"
    refused = weak("--tier", "landlock", "-c", cell)
    assert refused.returncode != 0 and "landlock:freeze" in refused.stderr
    p = weak("--tier", "landlock:freeze", "-c", cell)
    assert p.stdout == f"{[False] * len(names)} False True\n", p.stderr
    assert [(tmp_path / n).read_text() for n in names] == ["orig\n"] * len(names)


def test_processes(weak: Run) -> None:
    mark = f"{time.monotonic_ns()}.5"
    cell = f"""
import os, subprocess, sys
subprocess.Popen(['setsid', 'sleep', '{mark}'])
print(subprocess.run(['cat', '/proc/{os.getpid()}/cmdline'], stderr=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout)
try: os.kill({os.getpid()}, 0); print('seen')
except OSError: print('refused')
from concurrent.futures import ThreadPoolExecutor
print(list(ThreadPoolExecutor(2).map(abs, [-1, -2])))
!echo shell
"""
    p = weak("--tier", "landlock", "-c", cell)
    assert p.stdout == "b''\nrefused\n[1, 2]\nshell\n", p.stderr
    eventually(lambda: not any(mark in c for c in map(cmdline, Path("/proc").glob("[0-9]*/cmdline"))))


def cmdline(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_a_subprocess_is_interrupted(weak: Run) -> None:
    p = weak(
        "--tier", "landlock", "--timeout", "1",
        "-c", "import subprocess\nsubprocess.run(['sleep', '1000'])",
    )  # fmt: skip
    assert "KeyboardInterrupt" in p.stderr + p.stdout
    assert "replaced" not in p.stderr


def test_tools(weak: Run, server: Server) -> None:
    cell = "from mcptools.fs import read_file\nread_file.run(path='x')\nprint('called')"
    p = weak("--tier", "landlock", "--mcp", server.mcp, "--approve", "all", "-c", cell)
    assert "called" in p.stdout, p.stderr
    assert server.ran() == ["read_file"]


def test_network(weak: Run, file: Callable[..., Path]) -> None:
    with web_server() as port:
        cell = f"""
import os, socket, urllib.error, urllib.request
os.environ.pop('NO_PROXY', None); os.environ.pop('no_proxy', None)
def get(url):
    try: return urllib.request.urlopen(url, timeout=20).status
    except urllib.error.HTTPError as e: return e.code
    except OSError as e: return type(e).__name__
def direct():
    try: socket.create_connection(('127.0.0.1', {port})); return 'connected'
    except OSError as e: return e.errno
print(get('http://127.0.0.1:{port}/'), get('http://127.0.0.2:{port}/'), direct())
"""
        path = file(
            network={"allowedDomains": [f"127.0.0.1:{port}"]},
            filesystem={"allowWrite": []},
            cellgate={"tier": "landlock"},
        )
        p = weak("--sandbox", path, "-c", cell)
        assert p.stdout == "200 403 111\n", p.stderr
        p = weak("--tier", "landlock", "-c", cell)
        assert p.stdout == "URLError URLError 1\n", p.stderr


def test_what_it_does_not_hold_is_said(weak: Run) -> None:
    p = weak("--tier", "landlock", "-c", "open('.zshenv', 'w').close(); print('made')")
    assert "made" in p.stdout
    assert "new files that programs outside obey" in p.stderr and "docs/names.md" in p.stderr


@pytest.mark.parametrize(("language", "code"), [("shell", "echo $((6 * 7))"), ("node", "await 42")])
def test_other_languages(weak: Run, language: str, code: str) -> None:
    p = weak("--tier", "landlock", "--language", language, "-c", code, "-c", code)
    assert (p.returncode, p.stdout) == (0, "42\n42\n"), p.stderr
    assert "refused" not in p.stderr
