"""`cellgate run --sandbox` and `--allow-host`: files and hosts by settings, questions about hosts, and what was refused."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import children, eventually, gate
from web import FETCH, settings

Run = Callable[..., "subprocess.CompletedProcess[str]"]
QUESTION = r"d never in this session: "


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """file(network={...}): a settings file outside of the workspace."""

    def make(**parts: dict) -> Path:
        path = tmp_path_factory.mktemp("settings") / "settings.json"
        path.write_text(json.dumps(settings(**parts)))
        return path

    return make


def cell(*urls: str) -> str:
    return FETCH + f"for url in {list(urls)!r}: print(fetch(url))"


# ---------------------------------------------------------------- files

PUT = (
    "def put(path):\n    try: open(path, 'w').close(); return True\n    except OSError: return False\n"
    "def look(path):\n    try: return open(path).read() or None\n    except OSError: return None\n"
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that kernels see: /tmp is their own."""
    with tempfile.TemporaryDirectory(prefix="cellgate-test-", dir=Path.home()) as path:
        yield Path(path)


@pytest.mark.own_supervisor
def test_the_accounts_home_is_a_home_whatever_home_says(run_cellgate: Run, tmp_path: Path, home: Path) -> None:
    """HOME may be another folder than the account's (sudo -E, services), which ssh and login shells use."""
    account = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    (tmp_path / "h").mkdir()
    if not account.is_dir() or not home.is_relative_to(account):
        pytest.skip(f"the account's home is {account}, which the tests do not write to")
    new, name = account / home.name / "x", account / f"{home.name}-new"
    for workspace, path in (("/", new), (account.parent, new), (account, name)):
        p = run_cellgate(
            "run", "--workspace", workspace, "-c", f"{PUT}print(put({str(path)!r}))", env={"HOME": str(tmp_path / "h")}
        )
        assert p.stdout == "False\n" and not path.exists(), p.stderr
    p = run_cellgate(
        "run", "--workspace", home, "-c", f"{PUT}print(put({str(new)!r}))", env={"HOME": str(tmp_path / "h")}
    )
    assert p.stdout == "True\n", p.stderr


@pytest.mark.own_supervisor
@pytest.mark.parametrize("options", [[], ["--allow-host", "a.example"]])
def test_default_policy_hides_credentials_and_nothing_else(
    run_cellgate: Run, tmp_path: Path, home: Path, options: list[str]
) -> None:
    (tmp_path / ".env").write_text("TOKEN=1")
    (tmp_path / "plain").write_text("plain")
    (home / ".ssh").mkdir()
    for name in (".ssh/id_rsa", "notes"):
        (home / name).write_text("of " + name)
    places = [".env", "plain", str(home / ".ssh/id_rsa"), str(home / "notes")]
    code = PUT + f"print(*[look(p) for p in {places!r}], put('new'))"
    r = run_cellgate("run", *options, "-c", code, env={"HOME": str(home)})
    assert (r.returncode, r.stdout) == (0, "None plain None of notes True\n")
    assert (tmp_path / "new").exists()


def test_relative_paths_start_at_the_workspace(run_cellgate: Run, tmp_path: Path, file) -> None:
    """Not at the folder that cellgate was started in, nor at the file's."""
    workspace = tmp_path / "work"
    for name in ("out", "secret", "rest"):
        (workspace / name).mkdir(parents=True)
        (workspace / name / "file").write_text(name)
    f = file(filesystem={"denyRead": ["secret"], "allowWrite": ["out"], "denyWrite": ["out/file"]})
    code = PUT + "print(put('out/new'), put('out/file'), put('rest/new'), look('rest/file'), look('secret/file'))"
    r = run_cellgate("run", "--sandbox", f, "--workspace", workspace, "-c", code)
    assert (r.returncode, r.stdout) == (0, "True False False rest None\n")
    refused = [re.split(r" \(python\)|: ", line)[0] for line in r.stderr.splitlines()]
    told = (("writing", "out/file"), ("writing", "rest/new"), ("reading", "secret/file"))
    assert refused == [f"[cellgate] the sandbox refused {verb} {workspace}/{name}" for verb, name in told]
    assert (workspace / "out/new").exists()


@pytest.mark.parametrize("disabled", [False, True])
def test_cells_can_neither_read_nor_change_the_file(run_cellgate: Run, home: Path, disabled: bool) -> None:
    """Also by settings that have no rules about files."""
    path = home / "conf" / "settings.json"
    path.parent.mkdir()
    text = json.dumps(settings(filesystem={"disabled": disabled}))
    path.write_text(text)
    attempts = [
        "open('conf/settings.json').read()",
        "open('conf/settings.json', 'w')",
        "os.unlink('conf/settings.json')",
        "os.replace('made', 'conf/settings.json')",
    ]
    if not disabled:  # without rules a cell may write whatever the user may
        attempts.append("os.rename('conf', 'x')")
    code = "import os\nopen('made', 'w').close()\n" + "".join(
        f"try:\n    {a}\n    print('done')\nexcept OSError:\n    print('denied')\n" for a in attempts
    )
    r = run_cellgate("run", "--sandbox", "conf/settings.json", "-c", code, cwd=home)
    assert (r.returncode, r.stdout) == (0, "denied\n" * len(attempts))
    assert r.stderr.startswith(f"[cellgate] the sandbox refused reading {path}: ") and r.stderr.count("\n") == 1
    assert (home / "made").exists()
    assert path.read_text() == text


def test_both_files_are_hidden(run_cellgate: Run, tmp_path: Path, server) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(settings()))
    (tmp_path / "mcp.json").write_bytes(server.mcp.read_bytes())
    (tmp_path / "other.json").write_text("seen")
    code = PUT + "print([look(n) for n in ('settings.json', 'mcp.json', 'other.json')])"
    r = run_cellgate("run", "--sandbox", "settings.json", "--mcp", "mcp.json", "-c", code)
    assert (r.returncode, r.stdout) == (0, "[None, None, 'seen']\n")


def test_link_in_the_workspace_is_refused(run_cellgate: Run, tmp_path: Path, file) -> None:
    (tmp_path / "link.json").symlink_to(file())
    r = run_cellgate("run", "--sandbox", "link.json", "-c", "print('ran')")
    assert (r.returncode, r.stdout) == (2, "")
    assert "link.json is a symbolic link in the workspace" in r.stderr


# ---------------------------------------------------------------- hosts


def test_allowed_and_denied_hosts(run_cellgate: Run, port: int, file) -> None:
    f = file(network={"allowedDomains": [f"127.0.0.1:{port}"], "deniedDomains": ["evil.example"]})
    urls = [f"http://127.0.0.1:{port}/", "http://evil.example/", "http://evil.example/", "http://other.example:81/"]
    r = run_cellgate("run", "--sandbox", f, "-c", cell(*urls))
    assert r.returncode == 0
    lines = r.stdout.splitlines()
    assert lines[0] == "hello from outside"
    assert [line[:4] for line in lines[1:]] == ["403 "] * 3
    # Each once, with the rule and what would allow it.
    assert r.stderr.splitlines() == [
        "[cellgate] the sandbox refused a connection to evil.example:80 (http): host is on the deny list. To allow it:"
        ' remove "evil.example" from network.deniedDomains',
        "[cellgate] the sandbox refused a connection to other.example:81 (http): host is not on the allow list. To allow"
        ' it: add "other.example:81" to network.allowedDomains',
    ]


def test_allow_host(run_cellgate: Run, port: int, tmp_path: Path) -> None:
    code = cell(f"http://127.0.0.1:{port}/", "http://other.example/") + "\nopen('made', 'w').close()"
    r = run_cellgate("run", "--allow-host", "a.example", "--allow-host", f"127.0.0.1:{port}", "-c", code)
    assert r.returncode == 0
    assert re.fullmatch("hello from outside\n403 .*\n", r.stdout)
    assert r.stderr.count("other.example:80") == 2
    assert (tmp_path / "made").exists()


PROFILES = PUT + """
import os, subprocess, threading
def run():
    try: return subprocess.run(["true"]).returncode == 0
    except OSError: return False
def threads():
    end = threading.Event()
    try:
        for _ in range(120): threading.Thread(target=end.wait).start()
        return True
    except RuntimeError: return False
    finally: end.set()
"""


@pytest.mark.sanitized_in_soak
@pytest.mark.own_supervisor
@pytest.mark.parametrize("profiles", ["basic", "data_science", "network", "filesystem", "filesystem network data_science"])
def test_profiles(run_cellgate: Run, home: Path, port: int, profiles: str) -> None:
    """Each allows what it says and nothing else."""
    work = home / "work"
    work.mkdir()
    for file in (home / "other", work / "mine", work / ".env"):
        file.write_text(file.name)
    options = [word for name in profiles.split() for word in ("--profile", name)]
    if "network" in profiles:
        options += ["--allow-host", f"127.0.0.1:{port}"]
    code = PROFILES + f"print(look('mine'), look('.env'), look({str(home / 'other')!r}), put('/tmp/x'), run())\n"
    code += f"print(put('new'), threads())\n{cell(f'http://127.0.0.1:{port}/')}"
    free = f"exec({code!r}, {{}})"  # no cell's own imports
    r = run_cellgate("run", *options, "--workspace", work, "-c", free, env={"HOME": str(home)})
    files, more, network = r.stdout.splitlines()
    assert files == "mine None None True False"
    assert more == f"{'filesystem' in profiles} {'data_science' in profiles}"
    assert (network == "hello from outside") == ("network" in profiles) and (work / "new").exists() == (
        "filesystem" in profiles
    )
    code = f"exec({PROFILES + 'print(run())'!r}, {{}})"
    assert "True" in run_cellgate("run", *options, "--exec", "allow", "-c", code).stdout

    # Imports that are on no list of theirs are errors.
    all_of = dict.fromkeys(["basic", *profiles.split()])
    scope = f"profile{'s' * (len(all_of) > 1)} {', '.join(all_of)}"
    modules = {"shutil": "filesystem", "urllib.request": "network", "sympy": "data_science"}
    errors = [f"`os` is not in {scope}; this list is advisory"]
    for module, name in modules.items():
        if name not in all_of:
            where = f"it is in profile {name} (--profile {name})"
            errors.append(f"`{module}` is not in {scope}; {where}; this list is advisory")
    code = f"for m in ['json', 'math', 'mcptools', 'os', *{list(modules)}]:\n try: exec('import ' + m)\n"
    code += " except ImportError as e: print(e)"
    lines = run_cellgate("run", *options, "-c", code).stdout.splitlines()
    assert [line.partition(" (`import")[0] for line in lines if not line.startswith("No module named")] == errors


def test_refusals_are_told_once_a_cell_and_not_without_end(run_cellgate: Run, file) -> None:
    code = cell(*[f"http://h{i}.example/" for i in range(30)])
    r = run_cellgate("run", "--sandbox", file(), "-c", code, "-c", cell("http://h1.example/"))
    lines = r.stderr.splitlines()
    assert [line.startswith("[cellgate] the sandbox refused") for line in lines] == [True] * 10
    assert [f"h{i}.example" in line for i, line in enumerate(lines[:8])] == [True] * 8
    assert "the rest is not shown" in lines[8]
    assert "h1.example" in lines[9]


def test_a_reason_of_the_settings_is_rendered(run_cellgate: Run, file) -> None:
    network = {"deniedDomains": ["evil.example"], "deniedDomainReasons": {"evil.example": "\x1b[2J not today"}}
    r = run_cellgate("run", "--sandbox", file(network=network), "-c", cell("http://evil.example/") + "\n")
    assert r.returncode == 0
    assert "\\x1b[2J not today" in r.stderr
    assert "\x1b" not in r.stderr


# ---------------------------------------------------------------- at the terminal


# Python for a cell: connect(target) asks the proxy for a tunnel.
CONNECT = (
    "import socket, os\ndef connect(target):\n"
    "  host, port = os.environ['HTTP_PROXY'].split('//')[1].split(':')\n"
    "  s = socket.create_connection((host, int(port.strip('/'))))\n"
    "  s.sendall(b'CONNECT ' + target + b' HTTP/1.1\\r\\nHost: ' + target + b'\\r\\n\\r\\n')\n"
    "  return s\n"
)


def sit(person, file, urls: list[str], *more: str) -> Any:
    return person("run", "--sandbox", file(), "-c", cell(*urls), *more)


def reply(p: Any, text: str) -> str:
    shown = p.wait_for(QUESTION)
    p.type(text + (p.digits(shown) if text in ("y", "s") else "") + "\n")
    return shown


def test_yes_is_once(person, file, port: int) -> None:
    p = sit(person, file, [f"http://127.0.0.1:{port}/"] * 2)
    shown = reply(p, "y")
    # The line is 80 columns wide: what does not fit is marked as the rest of a line.
    assert f"[cellgate] Cell 1 wants to connect to 127.0.0.1:{port} (http, a loopback address)" in shown.replace(
        "\n  ~ ", ""
    )
    assert re.search(
        r"\n\[cellgate\] Allow\? y(\d{3}) yes once, s\1 yes for this session, n no,\n"
        r"           d never in this session: $",
        shown,
    )
    reply(p, "n")
    p.wait_for("hello from outside\n")
    p.wait_for("403 .*refused at the terminal")
    assert p.end() == 0
    assert p.seen.count("hello from outside") == 1
    assert "the sandbox refused a connection" in p.seen


@pytest.mark.parametrize(("typed", "hellos"), [("s", 2), ("d", 0)])
def test_for_the_session_is_not_asked_again(person, file, port: int, typed: str, hellos: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    p = sit(person, file, [url] * 2)
    reply(p, typed)
    assert p.end() == 0
    assert p.seen.count("hello from outside") == hellos
    assert p.seen.count("wants to connect") == 1
    assert len(re.findall(r"^403 ", p.seen, re.M)) == 2 - hellos


@pytest.mark.parametrize("typed", ["", "a", "r", "v", "yess", "\x1b[A"])
def test_other_answers_are_none(person, file, port: int, typed: str) -> None:
    p = sit(person, file, [f"http://127.0.0.1:{port}/"])
    reply(p, typed)
    p.wait_for(r"Please type y\d{3}, s\d{3}, n or d and Enter")
    reply(p, "n")
    assert p.end() == 0
    assert "hello from outside" not in p.seen


def test_end_of_file_is_no(person, file, port: int) -> None:
    p = sit(person, file, [f"http://127.0.0.1:{port}/"])
    p.wait_for(QUESTION)
    p.type("\x04")
    p.wait_for("403 ")
    assert p.end() == 0
    assert "hello from outside" not in p.seen


def test_settings_come_before_questions(person, file, port: int) -> None:
    f = file(network={"allowedDomains": [f"127.0.0.1:{port}"], "deniedDomains": ["evil.example"]})
    p = person("run", "--sandbox", f, "-c", cell(f"http://127.0.0.1:{port}/", "http://evil.example/"))
    assert p.end() == 0
    assert "hello from outside" in p.seen
    assert "host is on the deny list" in p.seen.replace("\n", "")
    assert "Allow?" not in p.seen


def test_connections_and_calls_are_asked_about_one_by_one(person, file, port: int, server) -> None:
    code = FETCH + (
        "from concurrent.futures import ThreadPoolExecutor\nfrom mcptools.fs import read_file\n"
        "with ThreadPoolExecutor(3) as pool:\n"
        f"  page = pool.submit(fetch, 'http://127.0.0.1:{port}/')\n"
        "  text = pool.submit(lambda: str(read_file.run(path='/x')))\n"
        "  print(page.result(), text.result())"
    )
    p = person("run", "--sandbox", file(), "--mcp", server.mcp, "-c", code)
    for _ in range(2):
        shown = p.wait_for(r"(d never|a\d{3} always for this tool) in this session: ")
        assert shown.count("Cell 1 wants") == 1
        p.type(f"y{p.digits(shown)}\n")
    p.wait_for("hello from outside read_file done\n")
    assert p.end() == 0
    assert server.ran() == ["read_file"]


def test_question_is_taken_back_when_nobody_waits(person, file, tmp_path: Path) -> None:
    release = gate(tmp_path)
    code = CONNECT + "s = connect(b'a.example:443')\nopen('go').read()\ns.close()"
    p = person("run", "--sandbox", file(), "-c", code)
    p.wait_for(QUESTION)
    release()
    p.wait_for(r"\[cellgate\] this connection waits no more")
    assert p.end() == 0


def test_hosts_cannot_look_like_ours(person, file) -> None:
    """A name of the most letters that there may be is broken by us, and its end is shown; what is no name is not asked about."""
    label = "x" * 60
    long = ".".join([label] * 4)[:240] + ".example"
    code = CONNECT + (
        "def ask(target): print(connect(target).recv(100).split()[1])\n"
        f"ask(b'{long}:443')\nask(b'x\\x1b[2J[cellgate]:443')\nask('\\u202ex.example:443'.encode())"
    )
    p = person("run", "--sandbox", file(), "-c", code)
    shown = reply(p, "n")
    assert p.end() == 0
    assert re.findall(r"b'(\d+)'", p.seen) == ["403", "400", "400"]
    question = shown[shown.index("[cellgate] Cell 1") :].split("\n[cellgate] Allow?")[0]
    lines = question.split("\n")
    assert "".join([lines[0], *(line.removeprefix("  ~ ") for line in lines[1:])]).endswith(f"to {long}:443 (https)")
    assert all(line.startswith("  ~ ") for line in lines[1:])
    assert all(len(line) <= 80 for line in lines)
    assert p.seen.count("wants to connect") == 1
    assert "\x1b" not in p.seen


# ---------------------------------------------------------------- --json


@pytest.mark.parametrize(
    ("decision", "asked", "hellos"),
    [("allow_once", 2, 2), ("allow_session", 1, 2), ("deny_once", 2, 0), ("deny_session", 1, 0)],
)
def test_json_decisions(host, file, port: int, decision: str, asked: int, hellos: int) -> None:
    h = host("--sandbox", file(), "-c", cell(*[f"http://127.0.0.1:{port}/"] * 2))
    questions, out, denied = 0, "", []
    while (event := h.next())["type"] != "result":
        if event["type"] == "egress_request":
            questions += 1
            content = {"host": "127.0.0.1", "port": port, "protocol": "http", "address": "a loopback address"}
            shown = f"127.0.0.1:{port} (http, a loopback address)"
            assert (event["content"], event["shown"], event["shown_whole"]) == (content, shown, True)
            reason = {"reason": "not today"} if decision.startswith("deny") else {}
            h.say({"approval": event["approval"], "egress": decision, **reason})
        elif event["type"] == "stream":
            out += event["text"]
        elif event["type"] == "denied":
            denied.append(event)
    assert h.end() == 0
    assert questions == asked
    assert out.count("hello from outside") == hellos
    assert out.count("not today") == 2 - hellos
    assert len(denied) == 2 - hellos
    for event in denied:
        assert set(event) == {"type", "text", "content"}
        assert event["content"]["operation"] == "network-outbound"
        assert (event["content"]["host"], event["content"]["why"]) == ("127.0.0.1", "not today")
        assert "network.allowedDomains" in event["content"]["how"]


NO_DECISIONS: list[Any] = [
    {"approval": "N", "accept": True},  # a decision about a call is none about a connection
    {"approval": "N", "egress": "allow"},
    {"approval": "N", "egress": True},
    {"approval": "N", "egress": 0},
    {"approval": "N", "egress": "allow_once", "accept": True},
    {"approval": "N", "egress": "allow_once", "more": 1},
    {"approval": "N", "egress": "deny_once", "reason": 5},
    {"approval": 999, "egress": "allow_once"},
    {"approval": -1, "egress": "allow_once"},
    {"approval": "1", "egress": "allow_once"},
    {"egress": "allow_once"},
]


def test_json_lines_that_decide_nothing(host, file, port: int) -> None:
    h = host("--sandbox", file(), "-c", cell(f"http://127.0.0.1:{port}/"))
    number = h.until("egress_request")["approval"]
    for line in NO_DECISIONS:
        h.say({k: number if v == "N" else v for k, v in line.items()})
        assert h.next()["type"] == "input_error", line
    h.say({"approval": number, "egress": "deny_once"})
    assert "403" in h.until("stream")["text"]
    h.say({"approval": number, "egress": "allow_once"})  # used once
    assert "hello" not in json.dumps(h.rest())


def test_json_decision_about_a_connection_is_none_about_a_call(host, server) -> None:
    code = "from mcptools.fs import read_file; print(read_file.run(path='/x'))"
    h = host("--mcp", server.mcp, "-c", code)
    number = h.until("approval_request")["approval"]
    h.say({"approval": number, "egress": "allow_once"})
    assert h.next()["type"] == "input_error"
    h.say({"approval": number, "accept": False})
    assert h.end() == 4
    assert server.ran() == []


@pytest.mark.parametrize("before", [False, True])
def test_json_end_of_input_refuses(host, file, port: int, before: bool) -> None:
    h = host("--sandbox", file(), "-c", cell(f"http://127.0.0.1:{port}/"))
    if not before:
        h.until("egress_request")
    h.close_input()
    seen = h.rest()
    assert any(e["type"] == "denied" and "nobody can approve" in e["content"]["why"] for e in seen)
    assert not any(e["type"] == "egress_request" for e in seen) or before
    assert "hello" not in json.dumps(seen)


def test_json_interrupt_refuses(host, file, port: int) -> None:
    h = host("--sandbox", file(), "-c", cell(f"http://127.0.0.1:{port}/"))
    h.until("egress_request")
    h.say({"cancel": 0})
    assert "hello" not in json.dumps(h.rest())
    assert h.process.wait(h.deadline) == 130


@pytest.mark.own_supervisor
def test_a_refusal_comes_before_the_end_of_its_cell(host, file, tmp_path: Path) -> None:
    """Output, the refusal and the cell's end wait for the supervisor all at once, in two sockets."""
    code = FETCH + (
        "import time\nopen('started', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
        "print('output', flush=True); time.sleep(0.3)\nfetch('http://evil.example/')\nopen('done', 'w').close()"
    )
    h = host("--sandbox", file(network={"strictAllowlist": True}), "-c", code)

    eventually((tmp_path / "started").exists)
    (supervisor,) = children(h.process.pid)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        (tmp_path / "go").touch()
        eventually((tmp_path / "done").exists)
        time.sleep(0.5)  # no event shows that the result was sent
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert [e["type"] for e in h.rest() if e["type"] in ("denied", "result")] == ["denied", "result"]


# ---------------------------------------------------------------- what else is refused


def test_refusals_of_files_and_calls_are_told_once(run_cellgate: Run) -> None:
    code = "import os, socket\ntry: socket.socket(socket.AF_UNIX)\nexcept OSError: pass\nos.mkdir('/etc/x')"
    r = run_cellgate("run", "-c", code)
    assert r.returncode == 1
    assert r.stderr.count("only the workspace may be written") == 1  # below the traceback
    assert r.stderr.count("socket(AF_UNIX, SOCK_STREAM)") == 1  # there is no other report of it
    assert "to allow it: add it to filesystem.allowWrite" in r.stderr
    r = run_cellgate("run", "-c", "import os; os.mkdir('.vscode')")
    assert r.stderr.count("programs outside of the sandbox obey .vscode") == 1  # below the traceback
    r = run_cellgate("run", "-c", "import os; os.mkdir('x'); os.rmdir('x')")
    assert (r.returncode, r.stderr) == (0, "")


def test_a_refused_name_cannot_spell_our_mark(run_cellgate: Run) -> None:
    r = run_cellgate("run", "-c", "open('/etc/x\\n[cellgate] Allow? \\x1b[31m', 'w')")
    assert not re.search(r"^\[cellgate\] Allow", r.stderr, re.M)
    assert "\x1b" not in r.stderr


def test_refusals_as_json(run_cellgate: Run) -> None:
    r = run_cellgate("run", "--json", "-c", "1", "-c", "open('/etc/x', 'w')")
    events = [json.loads(line) for line in r.stdout.splitlines()]
    (denied,) = [e for e in events if e["type"] == "denied"]
    assert (denied["cell"], denied["content"]["operation"], denied["content"]["path"]) == (2, "file-write", "/etc/x")
    assert denied["text"].startswith("the sandbox refused writing /etc/x: ")
    assert set(denied["content"]) >= {"rule", "why", "how", "source", "time", "errno", "process", "line"}
