"""Sessions whose language is the shell (docs/languages.md)."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellgate_api import CellgateError, Client, Event, Session
from processes import eventually
from rounds import rounds
from server_definitions import echo
from tables import cases, read_table


@pytest.fixture(scope="module")
def mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shell") / "mark"


# By name a list of (cell, standard output[, status[, regular expression of standard error]]).
TABLE = read_table(Path(__file__).parent / "data/shell_cells.json")
CELLS = cases(TABLE["in one session"])
RESTORE = """trap - EXIT USR1; set +efux +o pipefail; set --; shopt -u nullglob expand_aliases; unset V x; umask 022
exec 3>&- 5>&-; cd "$HERE"; rm -rf log file ready; :"""


@pytest.fixture(scope="module")
def _shared(client: Client, mark: Path) -> Iterator[Session]:
    workspace = mark.with_name("work space")
    workspace.mkdir()
    with client.session(workspace=workspace, language="shell", env=[f"HERE={workspace}"]) as s:
        s.add_servers(echo(mark))
        yield s


@pytest.fixture
def shared(_shared: Session) -> Session:
    """A session for several tests, with the MCP server "echo"."""
    assert _shared.run(RESTORE).status == "ok"
    return _shared


@pytest.fixture
def session(client: Client, workspace: Path) -> Iterator[Session]:
    with client.session(workspace=workspace, language="shell") as s:
        assert s.info["language"] == "shell"
        yield s


@pytest.mark.parametrize("name", CELLS | TABLE["alone"])
def test_cells(request: pytest.FixtureRequest, name: str) -> None:
    session = request.getfixturevalue("shared" if name in CELLS else "session")
    for code, stdout, *rest in CELLS.get(name) or TABLE["alone"][name]:
        status, stderr = (rest + [0, None][len(rest) :])[:2]
        out = session.run(code)
        assert (out.stdout, out.status) == (stdout, "error" if status else "ok"), out
        if status:
            assert (out.error["ename"], out.error["evalue"]) == ("ExitStatus", str(status))
        if stderr is not None:
            assert re.search(stderr, out.stderr), out.stderr


def test_copies_of_the_shell_whose_messages_are_read_late(session: Session) -> None:
    """The kernel, which does not run meanwhile, gets the messages of both copies at once, and the end of the first."""
    stop = "kill -STOP $PPID; { sleep 0.5; kill -CONT $PPID; } &"
    assert session.run(f"x=5; {stop} exit 3").error["evalue"] == "3"
    assert session.run(f"trap 'exit 9' EXIT; {stop} exit 3").error["evalue"] == "9"
    assert session.run("echo $x").stdout == "5\n"


def test_streams_come_as_they_are_written(session: Session) -> None:
    number = session.execute("echo first; sleep 60")
    assert session.until("stream")[-1].text == "first\n"
    session.cancel(number)
    assert session.until("result")[-1].status == "cancelled"


def test_an_interrupt_ends_the_program_and_not_the_shell(session: Session) -> None:
    assert session.run("x=5; cd /usr").status == "ok"
    for code in (
        *("sleep 60", "while :; do :; done", "sleep 60 & wait", "read y < <(sleep 60)", "cat <(sleep 60)"),
        *("exit() { echo no; }; sleep 60", "command() { echo no; }; sleep 60"),
    ):
        assert session.run(f"echo go; {code}; echo no", timeout_ms=300).status == "timeout", code
        assert session.run("echo $x $PWD").stdout == "5 /usr\n", code


@pytest.mark.parametrize("redirections", [">one 2>fifo", "<one >two 2>fifo", "2>one >fifo", ">one <fifo"])
def test_an_interrupt_of_redirections_that_are_being_made_undoes_them(session: Session, redirections: str) -> None:
    """Bash runs the trap in the middle of them, when the opening of a file is interrupted, and forgets the first."""
    assert session.run("x=5; mkfifo fifo; echo old >one; f() { :; }").status == "ok"
    for handler in ("", "trap 'exit 9' INT; ", "trap 'return 9' INT; "):
        assert session.run(f"{handler}f {redirections}; echo no", timeout_ms=200).status == "timeout"
        out = session.run("echo $x; echo error >&2; read y; echo [$y]")
        assert (out.stdout, out.stderr) == ("5\n[]\n", "error\n")


def test_redirections_that_stay(session: Session) -> None:
    """Until an interrupt, and also when a cell ends by exit."""
    assert session.run("exec >log; echo a; exit 3").error["evalue"] == "3"
    assert session.run("echo b").stdout == ""
    assert session.run("sleep 60", timeout_ms=200).status == "timeout"
    assert session.run("cat log").stdout == "a\nb\n"


def test_an_interrupt_of_a_shell_whose_saved_descriptors_are_closed(session: Session) -> None:
    """The streams stay as they are: no file that the shell itself has opened takes their place."""
    assert session.run("exec {__cg_out}>&- {__cg_err}>&-; sleep 60", timeout_ms=200).status == "timeout"
    assert session.run("echo $((1 + 1))").stdout == "2\n"
    assert session.run("echo again").stdout == "again\n"


def test_an_interrupt_between_cells_is_ignored(session: Session, workspace: Path) -> None:
    pid = session.run("echo $BASHPID; { until [[ -e go ]]; do :; done; kill -INT $$; : >done; } &").stdout
    (workspace / "go").touch()
    eventually((workspace / "done").exists)
    assert session.run("echo $BASHPID").stdout == pid


@pytest.mark.parametrize("end", ["exit 3", "set -e; false", "f() { ${none:?}; }; f 2>/dev/null"])
def test_interrupts_while_a_cell_exits_lose_no_state(session: Session, end: str) -> None:
    assert session.run("x=5").status == "ok"
    for _ in range(rounds(20)):
        out = session.run(f"p=$BASHPID; while kill -INT $p; do :; done 2>/dev/null & {end}")
        assert out.error["ename"] == "ExitStatus", out
        assert session.run("kill -KILL $! || :; echo $x").stdout == "5\n"


def test_a_cell_that_ignores_its_interrupt_ends_the_shell(session: Session) -> None:
    out = session.run("x=5; trap '' INT; while :; do sleep 0.1; done", timeout_ms=200)
    assert out.status == "timeout"
    assert "its variables, functions and folder are lost" in out.stderr
    assert session.run("echo [$x]").stdout == "[]\n"


def test_a_shell_that_is_killed(session: Session) -> None:
    assert session.run("x=5").status == "ok"
    out = session.run("kill -KILL $BASHPID")
    assert (out.status, out.error["ename"]) == ("error", "ShellEnded")
    assert "killed by SIGKILL" in out.error["evalue"]
    assert "are lost" in out.error["evalue"]
    assert session.run("echo [$x]").stdout == "[]\n"


def test_a_shell_that_ends_between_cells(session: Session) -> None:
    assert session.run("x=5; { sleep 0.2; kill -KILL $$; } &").status == "ok"
    time.sleep(1)
    out = session.run("echo [$x]")
    assert out.stdout == "[]\n"
    assert "has ended since the last cell" in out.stderr


def test_exec_of_a_program_ends_the_shell(session: Session) -> None:
    out = session.run("exec echo last")
    assert out.stdout == "last\n"
    assert out.error["ename"] == "ShellEnded"


def test_background_jobs_end_with_the_session(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, language="shell") as s:
        assert s.run("while :; do date +%s%N >beat; sleep 0.05; done & sleep 0.3").status == "ok"
    beat = (workspace / "beat").read_text()
    time.sleep(0.3)
    assert (workspace / "beat").read_text() == beat


def test_a_handler_of_exit_runs_at_the_sessions_end(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace, language="shell") as s:
        assert s.run("trap 'echo bye >bye' EXIT").status == "ok"
    assert (workspace / "bye").read_text() == "bye\n"


@pytest.mark.parametrize("then", ["", "; touch $d", "; ln -s nowhere $d", "; mkdir $d; touch $d/0"])
def test_a_removed_folder_of_the_shell(session: Session, then: str) -> None:
    assert session.run(f"x=1 d=$(echo /tmp/shell-*); rm -rf $d{then}").status == "ok"
    assert session.run("echo $x").stdout == "1\n"


def test_a_reset(session: Session) -> None:
    assert session.run("x=1").status == "ok"
    session.reset()
    assert session.run("echo [$x]").stdout == "[]\n"


def test_a_spare(client: Client, workspace: Path) -> None:
    for _ in range(3):
        with client.session(workspace=workspace, language="shell") as s:
            assert s.run("echo $((1 + 1)) $x; x=1").stdout == "2\n"
            time.sleep(0.3)


def test_unknown_languages(client: Client, workspace: Path) -> None:
    with pytest.raises(CellgateError, match="python, shell, node"):
        client.session(workspace=workspace, language="cobol")


# ---------------------------------------------------------------- programs


class Host:
    def __init__(self, answer: bool) -> None:
        self.answer, self.asked = answer, []

    def __call__(self, e: Event) -> bool:
        self.asked.append(json.loads(e.args)["command"])
        return self.answer


def asking(client: Client, workspace: Path, exec: str) -> Session:
    return client.session(workspace=workspace, language="shell", exec=exec)


@pytest.mark.parametrize("exec", ["deny", "ask"])
def test_only_the_session_starts_its_shell(client: Client, workspace: Path, exec: str) -> None:
    host = Host(False)
    with asking(client, workspace, exec) as s:
        (workspace / "bash").write_bytes(Path("/bin/bash").read_bytes())
        (workspace / "bash").chmod(0o755)
        (workspace / "script").write_text("#!/bin/bash\necho script\n")
        (workspace / "script").chmod(0o755)
        for code in (
            *("/bin/ls", "bash -c 'echo ran'", "/bin/bash -c 'echo ran'", "./bash -c 'echo ran'", "./script"),
            *("exec /bin/bash -c 'echo ran'", "(exec -a python /usr/bin/bash -c 'echo ran')", "env bash -c 'echo ran'"),
            *(
                "/lib64/ld-linux-x86-64.so.2 /bin/bash -c 'echo ran'",
                "/proc/self/exe -c 'echo ran'",
                "$(/bin/echo ran)",
            ),
            *(
                "coproc /bin/echo ran; cat <&${COPROC[0]}",
                "/bin/echo ran | while read x; do echo $x; done",
                ". <(/bin/echo echo ran)",
            ),
        ):
            out = s.run(code, decide=host)
            assert "ran" not in out.stdout, (code, out)
            assert "script" not in out.stdout, (code, out)
        assert s.run("echo builtins $((1 + 1))").stdout == "builtins 2\n"
    assert bool(host.asked) == (exec == "ask")


def test_each_program_is_asked_about(client: Client, workspace: Path) -> None:
    host = Host(True)
    with asking(client, workspace, "ask") as s:
        assert s.run("x=1; /bin/echo a | /bin/cat; bash -c '/bin/echo b; true'", decide=host).stdout == "a\nb\n"
        assert sorted(host.asked) == ["/bin/cat", "/bin/echo a", "/bin/echo b", "bash -c '/bin/echo b; true'"]
        assert s.run("exit 3", decide=host).error["evalue"] == "3"
        assert s.run("kill -KILL $BASHPID", decide=host).status == "error"
        assert s.run("echo again", decide=host).stdout == "again\n"
    assert len(host.asked) == 4


def test_a_question_shows_the_line_of_the_cell(client: Client, workspace: Path) -> None:
    """The one that fits best; none if several do, or none does, whatever the shell says."""
    lines: list[str] = []

    def host(e: Event) -> bool:
        lines.append(e.text)
        return False

    with asking(client, workspace, "ask") as s:
        s.run("LINENO=7\n# echo\n/bin/echo one\n  /bin/echo two three\n/usr/bin/date", decide=host)
        s.run("f() {\n  /bin/echo $1\n}\nf x\nf y", decide=host)
        s.run("/bin/echo a\n/bin/echo a\nx=/usr/bin/i; ${x}d\nechoes=1 /bin/cat", decide=host)
        s.run("x='" + "\x1b" + "ä" * 300 + "'; /bin/echo $x", decide=host)
    assert lines[:3] == ["3: /bin/echo one", "4:   /bin/echo two three", "5: /usr/bin/date"]
    assert lines[3:5] == ["2:   /bin/echo $1"] * 2
    assert lines[5:9] == ["", "", "", "4: echoes=1 /bin/cat"]
    assert lines[9].startswith("1: x='") and len(lines[9]) < 210


def test_no_line_of_a_later_cell_is_shown(client: Client, workspace: Path) -> None:
    """Of a program that a job of an earlier cell starts; nor of one whose parents are not known."""
    lines: dict[str, list[str]] = {}

    def host(e: Event) -> bool:
        lines.setdefault(json.loads(e.args)["argv"][0], []).append(e.text)
        return True

    wait = "until [[ -e go ]]; do :; done"
    with asking(client, workspace, "ask") as s:
        s.run(f"({wait}; /bin/echo; : >loop) &\n( ({wait}; /bin/date; : >orphan) & )", decide=host)
        time.sleep(0.02)  # Linux notes when a process began in steps of 10 ms
        s.run("/bin/true; : >go # /bin/echo /bin/date\nuntil [[ -e loop && -e orphan ]]; do :; done", decide=host)
        s.run(":\n(/bin/true x) & wait", decide=host)
        s.run("exit 3")
        s.run("/bin/ls", decide=host)
    assert lines["/bin/true"] == ["1: /bin/true; : >go # /bin/echo /bin/date", "2: (/bin/true x) & wait"]
    for program in ("/bin/echo", "/bin/date", "/bin/ls"):
        assert [line.partition(":")[0] for line in lines[program]] == ["in the background"], lines


def test_rules_fit_programs_of_the_shell(client: Client, workspace: Path) -> None:
    """The shell's own variables are none that a rule would have to name."""
    rules = {"default": "deny", "allow": [{"program": "/usr/bin/cat"}]}
    with asking(client, workspace, rules) as s:
        assert s.run("cd /usr; cd /; cat </dev/null && echo ran").stdout == "ran\n"
        assert s.run("ls").status == "error"
        assert s.run("export LD_PRELOAD=x; cat </dev/null && echo ran").status == "error"


def test_the_landlock_tier_refuses_both(client: Client, workspace: Path) -> None:
    with pytest.raises(CellgateError, match="full tier only"):
        client.session(workspace=workspace, language="shell", exec="deny", tier="landlock")


# ---------------------------------------------------------------- tools


TOOL_CELLS = [
    ("mcptools echo echo text=hello", True, "hello\n", 0, ""),
    ("mcptools echo echo text=12", True, "12\n", 0, ""),
    ('mcptools echo echo --json \'{"text": "a b"}\'', True, "a b\n", 0, ""),
    ("x=$(mcptools echo echo text=1); echo [$x] | cat", True, "[1]\n", 0, ""),
    ("mcptools echo echo text=x | tr x y", True, "y\n", 0, ""),
    ("for i in 1 2 3; do mcptools echo echo text=$i; done", True, "1\n2\n3\n", 0, ""),
    ("mcptools echo fail text=why", True, "", 1, "why"),
    ("mcptools echo fail text=why || echo went on $?", True, "went on 1\n", 0, "why"),
    ("mcptools echo danger text=no", False, "", 4, "was not run"),
    ("mcptools echo danger text=no || echo status $?", False, "status 4\n", 0, "was not run"),
    ("mcptools echo echo", None, "", 1, "text"),
    ("mcptools echo none", None, "", 1, "no tool 'none'"),
    ("mcptools none none", None, "", 1, "no server 'none'"),
    ("mcptools echo echo text", None, "", 1, "not NAME=VALUE"),
    ("mcptools echo echo --json '[]'", None, "", 1, "one JSON object"),
    ("mcptools echo echo --json '{'", None, "", 1, "--json: "),
    ("mcptools", None, "", 1, "usage: mcptools SERVER TOOL"),
]


@pytest.mark.parametrize(("code", "decision", "stdout", "status", "stderr"), TOOL_CELLS)
def test_tools(
    shared: Session, mark: Path, code: str, decision: bool | None, stdout: str, status: int, stderr: str
) -> None:
    out = shared.run(code, decide=None if decision is None else lambda _: decision)
    assert out.stdout == stdout, out
    assert stderr in out.stderr, out.stderr
    assert out.status == ("error" if status else "ok")
    if status:
        assert out.error["evalue"] == str(status)
    assert out.result.refused == (status == 4)
    assert not mark.exists()


def test_finding_tools(shared: Session) -> None:
    assert "echo" in shared.run("mcptools help").stdout
    assert "danger" in shared.run("mcptools help echo").stdout
    assert "Leaves a mark" in shared.run("mcptools help echo danger").stdout
    assert "echo.danger" in shared.run("mcptools search leaves a mark").stdout


def test_the_question_names_tool_and_arguments(shared: Session) -> None:
    asked = []
    shared.run("mcptools echo echo text='a b'", decide=lambda e: asked.append((e.server, e.tool, e.args)) or True)
    assert asked == [("echo", "echo", '{"text":"a b"}')]


def test_calls_wait_beside_each_other(shared: Session) -> None:
    start = time.monotonic()
    code = "for i in {1..8}; do mcptools echo slow seconds=0.3 & done; mcptools echo echo text=last; wait"
    out = shared.run(code, decide=lambda _: True)
    assert sorted(out.stdout.split()) == ["last", *["slow"] * 8]
    assert time.monotonic() - start < 10


def test_an_interrupt_ends_a_call(shared: Session) -> None:
    code = "x=1; mcptools echo slow seconds=2; echo no"
    out = shared.run(code, decide=lambda _: True, timeout_ms=300)
    assert (out.status, out.stdout) == ("timeout", "")
    assert shared.run("mcptools echo echo text=$x", decide=lambda _: True).stdout == "1\n"


def test_an_interrupt_ends_calls_in_the_background(shared: Session) -> None:
    """So often that each of the 16 places of calls would be taken by one that has no end."""
    for _ in range(9):
        shared.execute("mcptools echo danger & mcptools echo danger & wait")
        shared.until("approval_request")
        shared.until("approval_request")
        shared.cancel()
        assert shared.until("result")[-1].status == "cancelled"
        assert shared.run("wait; echo ended", timeout_ms=10000).stdout == "ended\n"
    assert shared.run("mcptools echo echo text=x", decide=lambda _: True).stdout == "x\n"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_does_not_get_the_end_of_one_whose_command_was_killed(shared: Session, when: str) -> None:
    """The next cell uses its place again."""
    shared.execute("mcptools echo echo text=old & p=$!; until read <ready; do :; done 2>/dev/null; kill -9 $p; wait")
    old = shared.until("approval_request")[-1].approval
    shared.file_write("ready", b"x\n")
    shared.until("result")
    if when == "before":
        shared.accept(old)
        time.sleep(0.5)
    shared.execute("mcptools echo echo text=new")
    new = next(e for e in shared.until("approval_request") if e.type == "approval_request").approval
    if when == "after":
        with contextlib.suppress(CellgateError):  # it may not wait any more
            shared.accept(old)
        time.sleep(0.5)
    shared.accept(new)
    assert [e.text for e in shared.until("result") if e.type == "stream"] == ["new\n"]


def test_a_late_message_of_an_ended_command_frees_no_place_of_another(shared: Session) -> None:
    """The kernel frees the places of processes that have ended when a cell begins, perhaps before it reads this."""
    late = 'printf \'{"free":0,"by":1}\\n\' >&$__cg_fd'
    code = f"mcptools echo echo text=a & until [[ -e ready ]]; do :; done; {late}; mcptools echo echo text=b; wait"
    shared.execute(code, timeout_ms=20000)
    first = shared.until("approval_request")[-1].approval
    shared.file_write("ready", b"x\n")
    shared.accept(shared.until("approval_request")[-1].approval)
    shared.accept(first)
    text = "".join(e.text for e in shared.until("result") if e.type == "stream")
    assert sorted(text.split()) == ["a", "b"]


def test_without_servers(session: Session) -> None:
    out = session.run("mcptools echo echo")
    assert "this session has no MCP servers and no functions" in out.stderr


def test_functions_of_the_host(session: Session) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    session.add_functions("host", [{"name": "double", "description": "Doubles.", "inputSchema": schema}])
    session.execute("mcptools host double a=21")
    call = session.until("function_call")[-1]
    assert json.loads(call.args) == {"a": 21}
    session.give(call.approval, 42)
    assert session.until("stream")[-1].text == "42\n"
    assert session.until("result")[-1].status == "ok"


def completed(session: Session, code: str) -> tuple[list[str], int, int]:
    content = session.ask("complete_request", {"code": code, "cursor_pos": len(code)}).json
    return content["matches"], content["cursor_start"], content["cursor_end"]


def test_completion(session: Session, workspace: Path) -> None:
    (workspace / "sub folder").mkdir()
    (workspace / "other").write_text("")
    session.run("my_variable=1; my_function() { :; }; set -eu; cd .")
    assert completed(session, "echo; my_f") == (["my_function"], 6, 10)
    assert completed(session, "echo $my_v") == (["my_variable"], 6, 10)
    assert completed(session, "cat < oth") == (["other"], 6, 9)
    assert completed(session, "if prin")[0].count("printf") == 1
    assert completed(session, "ls sub")[0] == ["sub folder/"]
    for code in (
        "echo $(touch ran)",
        "x $(touch ran) `touch ran",
        "touch${IFS}ran*",
        "__cg_",
        "no_such_command_at_all",
    ):
        assert completed(session, code)[0] == [], code
    assert sorted(p.name for p in workspace.iterdir()) == ["other", "sub folder"]
    assert session.run("echo $-").stdout.strip().count("e") == 1
