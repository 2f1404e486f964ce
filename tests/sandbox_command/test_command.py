"""The command line: settings, words, streams, exit statuses."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from .conftest import Box

MINIMAL = Box.settings()


def test_exit_status(box: Box) -> None:
    assert box.run("true").returncode == 0
    assert box.run("-c", "exit 7").returncode == 7
    # Not an option of the shell.
    assert box.run("-c", "-x; exit 9").returncode == 9
    assert box.run("-c", "kill -TERM $$").returncode == 128 + 15
    p = box.run("no-such-program-here")
    assert p.returncode == 127
    assert "no-such-program-here" in p.stderr
    assert box.run("/etc/passwd").returncode == 126


def test_words_reach_the_command_as_they_are(box: Box) -> None:
    assert box.run("printf", "%s|", "a b", "", "$HOME", "*").stdout == "a b||$HOME|*|"
    assert box.run("--", "printf", "%s", "--settings").stdout == "--settings"
    assert box.run("printf", "%s %s", "-d", "--help").stdout == "-d --help"  # options end where the command starts


def test_a_word_of_the_shell(box: Box) -> None:
    assert box.run("type", "cd").returncode == 0


def test_string_is_the_shells(box: Box) -> None:
    assert box.run("-c", "X=4; echo a$X | tr a b; echo '!x'").stdout == "b4\n!x\n"


def test_one_word_with_blanks_is_the_shells(box: Box) -> None:
    """Unless it is a file's name, or follows --."""
    assert box.run("echo a; X=4; echo b$X").stdout == "a\nb4\n"
    assert box.run("\t\n exit\t9").returncode == 9
    for words in (["--", "echo a"], ["-d", "--", "echo a"]):
        p = box.run(*words)
        assert (p.returncode, p.stdout) == (127, "") and "echo a: command not found" in p.stderr
    assert box.run("echo a", "b").returncode == 127  # not the only word
    programs = box.work / "my programs"
    programs.mkdir()
    program = programs / "say it"
    program.write_text('#!/bin/sh\necho "$0 $#"\n')
    program.chmod(0o755)
    for word in (str(program), "my programs/say it"):
        assert box.run(word).stdout == f"{word} 0\n"
    assert box.run("say it", env={**box.env, "PATH": f"/nowhere:{programs}:{box.env['PATH']}"}).stdout.endswith(
        "say it 0\n"
    )
    assert box.run("my programs/say no").returncode == 127


def test_under_the_name_of_srt(box: Box) -> None:
    link = box.base / "srt"
    link.symlink_to(box.program)
    settings = str(box.write_settings(MINIMAL))
    p = subprocess.run(
        [*box.as_user, str(link), "--settings", settings, "-c", "echo $((20 + 22)) > f; cat f"],
        capture_output=True,
        text=True,
        timeout=box.timeout,
        cwd=box.work,
        env=box.env,
    )
    assert (p.returncode, p.stdout) == (0, "42\n")


def test_streams(box: Box) -> None:
    p = box.run("-c", "cat; echo err >&2", input="in\n")
    assert (p.stdout, p.stderr) == ("in\n", "err\n")
    p = box.run("-c", "head -c 3000000 /dev/zero")
    assert len(p.stdout) == 3_000_000


def test_closed_streams(box: Box) -> None:
    settings = str(box.write_settings(MINIMAL))
    script = f"exec '{box.program}' sandbox -s '{settings}' -c 'cat; echo ran > f' <&- >&- 2>&-"
    p = subprocess.run([*box.as_user, "sh", "-c", script], timeout=box.timeout, cwd=box.work, env=box.env)
    assert p.returncode == 0
    assert (box.work / "f").read_text() == "ran\n"


def test_working_folder_and_environment(box: Box) -> None:
    p = box.run("-c", 'pwd; echo "$MINE $SANDBOX_RUNTIME"', env={"MINE": "kept"})
    assert p.stdout == f"{box.work}\nkept 1\n"


def test_temporary_folder_is_private_and_gone(box: Box) -> None:
    p = box.run("-c", 'f=$(mktemp) && echo secret > "$f" && stat -c %a "$TMPDIR" && echo "$f"')
    mode, name = p.stdout.split()
    assert mode == "700"
    assert not Path(name).exists()


def test_without_settings_nothing_is_written(box: Box) -> None:
    p = box.run("-c", "echo x > f")
    assert p.returncode != 0
    assert box.names() == set()


def test_settings_in_the_home(box: Box) -> None:
    (box.home / ".srt-settings.json").write_text(json.dumps(MINIMAL))
    (box.home / ".srt-settings.json").chmod(0o644)
    assert box.run("-c", "echo x > f").returncode == 0
    assert box.names() == {"f"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("{", "is not valid JSON"),
        ('{"network":{"allowedDomains":[],"deniedDomains":[]}}', "filesystem: Required"),
        (
            json.dumps(Box.settings(net={"allowedDomains": ["*.com"]})),
            "network.allowedDomains.0: Invalid domain pattern",
        ),
        (json.dumps(Box.settings(net={"tlsTerminate": {}})), "network.tlsTerminate: TLS termination is not supported"),
        (json.dumps(Box.settings(fs={"allowread": []})), "did you mean 'allowRead'"),
    ],
)
def test_bad_settings_run_nothing(box: Box, text: str, why: str) -> None:
    p = box.run("-c", "echo ran; echo x > f", settings=text)
    assert p.returncode == 1
    assert why in p.stderr
    assert "Refusing to run with the built-in defaults" in p.stderr
    assert p.stdout == ""
    assert box.names() == set()


def test_missing_settings_run_nothing(box: Box) -> None:
    p = box.run("--settings", box.base / "none.json", "echo", "ran")
    assert (p.returncode, p.stdout) == (1, "")
    assert "does not exist" in p.stderr
    (box.base / "secret.json").write_text(json.dumps(MINIMAL))
    (box.base / "secret.json").chmod(0)
    if box.uid:
        p = box.run("--settings", box.base / "secret.json", "echo", "ran")
        assert (p.returncode, p.stdout) == (1, "")
        assert "could not be read (EACCES)" in p.stderr


def test_a_strange_key_is_named_and_passed_over(box: Box) -> None:
    p = box.run("echo", "ran", settings={**MINIMAL, "comment": "mine"})
    assert (p.returncode, p.stdout) == (0, "ran\n")
    assert '"comment" is not a setting' in p.stderr


def test_usage(box: Box) -> None:
    p = box.run()
    assert p.returncode == 1
    assert "No command specified" in p.stderr
    assert box.run("--nonsense", "true").returncode == 1
    assert box.run("--control-fd", "2", "true").returncode == 1
    assert box.run("--control-fd", "99", "true").returncode == 1
    assert "--control-fd" in box.run("--help").stdout


def test_debug(box: Box) -> None:
    p = box.run("--debug", "echo", "ran")
    assert "[SandboxDebug]" in p.stderr
    assert "[SandboxDebug]" not in box.run("echo", "ran").stderr


REQUEST = """
ask() { exec 3<> /dev/tcp/127.0.0.1/3128; printf "$@" >&3; head -n 1 <&3 > /dev/null; exec 3>&-; }
for host in unlisted.invalid:80 bad.invalid:80 good.invalid:80; do
        ask 'GET http://%s/ HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' $host $host
done
for host in unlisted.invalid:443 good.invalid:443; do
        ask 'CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' $host $host
done
ask '\\5\\1\\0\\5\\1\\0\\3\\14good.invalid\\0\\120'
"""


def test_debug_has_the_lines_of_srt(box: Box) -> None:
    """The same texts for the same events: what allows or denies each request, and what became of it."""
    settings = box.settings(
        {"allowWrite": [".", "absent"]}, {"allowedDomains": ["good.invalid"], "deniedDomains": ["bad.invalid"]}
    )
    p = box.run("--debug", "-c", REQUEST, settings=settings)
    lines = [line.removeprefix("[SandboxDebug] ") for line in p.stderr.splitlines()]
    assert lines[0] == "Initializing sandbox..."
    assert lines[1].startswith("Command string mode (-c): ")
    assert '"allowedHosts": [ "good.invalid" ], "deniedHosts": [ "bad.invalid" ]' in " ".join(p.stderr.split())
    assert f"[Sandbox Linux] Processing write path: . -> {box.work}" in lines
    assert f"[Sandbox Linux] Skipping non-existent write path: {box.work}/absent" in lines
    network = [
        "No matching rule, denying: unlisted.invalid:80",
        "HTTP request blocked to unlisted.invalid:80",
        "Denied by config rule: bad.invalid:80",
        "HTTP request blocked to bad.invalid:80",
        "Allowed by config rule: good.invalid:80",
        "Proxy request failed: ",
        "No matching rule, denying: unlisted.invalid:443",
        "Connection blocked to unlisted.invalid:443",
        "Allowed by config rule: good.invalid:443",
        "CONNECT tunnel failed: ",
        "Connection request to good.invalid:80",
        "Allowed by config rule: good.invalid:80",
        "Connection allowed to good.invalid:80",
        "SOCKS connect to good.invalid:80 failed: ",
    ]
    said = iter(lines)
    for want in network:
        assert any(line.startswith(want) for line in said), (want, p.stderr)
    quiet = box.run("-c", REQUEST, settings=settings)
    assert "config rule" not in quiet.stderr
    absent = box.run("--debug", "echo", "a b")
    assert f"No config found at {box.home}/.srt-settings.json, using default config" in absent.stderr
    assert "[SandboxDebug] Original command: echo 'a b'\n" in absent.stderr


def test_explain_runs_nothing_and_names_the_rules(box: Box) -> None:
    box.file("secret")
    p = box.run(
        "--explain=json", "touch", "ran", settings=Box.settings({"denyRead": ["secret"], "denyWrite": ["later"]})
    )
    plan = json.loads(p.stdout)
    views = {m["path"]: m for m in plan["mounts"]}
    assert views[f"{box.work}"]["view"] == "writable"
    assert views[f"{box.work}/secret"] == {
        "path": f"{box.work}/secret",
        "view": "hidden",
        "rule": "filesystem.denyRead.0",
    }
    assert views[f"{box.work}/later"]["absent"] is True
    assert "seccomp" in plan["layers"]
    assert box.names() == {"secret"}
    text = box.run("--explain", settings=Box.settings({"denyRead": ["secret"]})).stdout
    assert f"{box.work}/secret" in text


def test_only_the_standard_streams_are_inherited(box: Box) -> None:
    r, w = os.pipe()
    try:
        p = box.run("-c", f"ls /proc/self/fd | wc -l; test -e /proc/self/fd/{w} && echo LEAK", fds=(r, w))
    finally:
        os.close(r)
        os.close(w)
    assert "LEAK" not in p.stdout


def test_limits(box: Box) -> None:
    own = {"limits": {"openFiles": 40, "fileMb": 1, "memoryMb": 200, "cpuSeconds": 1}}
    p = box.sh("ulimit -n; ulimit -f; ulimit -d; ulimit -t", cellgate=own)
    assert p.stdout.split() == ["40", "1024", "204800", "1"]


def test_environment_allow_list(box: Box) -> None:
    p = box.run("env", settings=Box.settings(cellgate={"env": ["PATH", "LC_*"]}), env={"TOKEN": "s", "LC_ALL": "C"})
    names = {line.split("=")[0] for line in p.stdout.splitlines()}
    assert {"PATH", "LC_ALL", "SANDBOX_RUNTIME"} <= names
    assert not names & {"TOKEN", "HOME"}


def test_control_descriptor(box: Box) -> None:
    """It is read, and it is not the command's."""
    r, w = os.pipe()
    os.write(w, b"this is no JSON\n")
    os.close(w)
    try:
        args = ("--debug", "--control-fd", str(r), "-c", f"read -r go; test -e /proc/self/fd/{r} || echo absent")
        p = box.popen(*args, settings=MINIMAL, pass_fds=(r,))
    finally:
        os.close(r)
    while f"Invalid config on control fd {r}: ignored" not in (line := p.stderr.readline()):
        assert line, "it has ended"
    assert p.communicate("go\n", timeout=box.timeout)[0] == "absent\n"


@pytest.mark.parametrize("settings", ["log", "credential"])
def test_what_an_earlier_command_left_is_not_waited_for(box: Box, settings: str) -> None:
    """A FIFO in the place of a file that this program itself opens: an error, not a wait that no signal ends."""
    own: dict[str, object] = {"cellgate": {"violationLog": str(box.work / "left")}}
    if settings == "credential":
        own = {"credentials": {"files": [{"path": "left", "mode": "mask"}], "allowPlaintextInject": True}}
    assert box.run("python3", "-c", "import os; os.mkfifo('left')", settings=box.settings()).returncode == 0
    p = box.run("echo", "ran", settings=box.settings(net={"allowedDomains": ["example.com"]}, **own))
    assert (p.returncode, p.stdout) == (1, ""), p.stderr
    assert "left" in p.stderr
    (box.work / "left").unlink()
    box.file("left", "secret\n")
    p = box.run("echo", "ran", settings=box.settings(net={"allowedDomains": ["example.com"]}, **own))
    assert (p.returncode, p.stdout) == (0, "ran\n"), p.stderr


def test_names_in_errors_do_not_act_on_the_terminal(box: Box) -> None:
    """Names of files that an earlier command has made."""
    name = "\x1b]0;title\x07\x1b[2J\u202e"
    box.file(".git/HEAD", "ref: x\n")
    box.folder(box.work / ".git" / "modules" / name / "/".join(["d"] * 20))
    p = box.run("echo", "ran", settings=box.settings())
    assert (p.returncode, p.stdout) == (1, "")
    assert "more than 16 deep at" in p.stderr
    assert r"\x1b]0;title\x07\x1b[2J\u202e" in p.stderr
    assert not set("\x1b\x07\u202e") & set(p.stderr)
