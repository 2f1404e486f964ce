"""Tool calls in a notebook: the person whose cell makes one is asked, or the rules decide, or it is refused."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import eventually

from .conftest import READ_S

READ = "from mcptools.fs import read_file; print(read_file.run(path='/x'))"
OWN = ["mcp", "serve", "--compat", "host"]
GRANT = "from mcptools.host import request_host_access\nrequest_host_access.run(pattern='echo *')"
HOST_EXEC = "from mcptools.host import host_exec\nprint(host_exec.run(argv=['echo', 'hello']))"
TWO = "from mcptools.fs import read_file, write_file\nprint(read_file.run(path='/x'))\nprint(write_file.run(path='/y'))"


@pytest.fixture
def opened(start: Callable[..., Any], server: Any) -> Callable[..., Any]:
    """opened(RULE...): a client of a kernel with the server "fs"."""

    def one(*rules: str) -> Any:
        return start("--mcp", server.mcp, *(f"--approve={r}" for r in rules)).client()

    return one


def ask(client: Any, code: str = READ) -> tuple[str, Any]:
    """Starts a cell and returns the request's id with the question."""
    request = client.start(code, allow_stdin=True)
    question = client.receive("stdin", 40)
    assert question is not None, client.finish(request).content
    assert question["msg_type"] == "input_request"
    assert question["parent_header"]["msg_id"] == request
    return request, question


def answer(client: Any, question: Any, value: str, named: bool = True) -> None:
    client.answer(question, value, named)


def at_once(client: Any, question: Any, value: str) -> None:
    """Sooner than anybody can read."""
    client.send("stdin", "input_reply", {"value": value}, parent=question)


def test_yes(opened: Any, server: Any) -> None:
    client = opened()
    request, question = ask(client)
    prompt = question["content"]["prompt"]
    assert "server    fs" in prompt and "tool      read_file" in prompt and '"path": "/x"' in prompt
    assert question["content"]["password"] is False
    assert server.ran() == []  # not before the answer
    answer(client, question, "y")
    assert client.finish(request).text() == "read_file done\n"
    assert server.ran() == ["read_file"]


def test_no(asked: Any) -> None:
    client, server = asked
    for typed in ("n", "no", "", "  ", "\x04"):
        request, question = ask(client)
        answer(client, question, typed)
        run = client.finish(request)
        assert (run.content["status"], run.content["ename"]) == ("error", "RejectedError"), typed
        assert server.ran() == []


def test_a_kernel_on_another_machine(start: Callable[..., Any], server: Any, cellgate: Path, tmp_path: Path) -> None:
    """Its server runs here, and its calls are asked about here, with the bytes that the server gets."""
    (tmp_path / "there").mkdir()
    client = start("--connect", f"{cellgate} relay", "--workspace", tmp_path / "there", "--mcp", server.mcp).client()
    for typed, ran in (("no", []), ("y", ["read_file"])):
        request, question = ask(client)
        assert '"path": "/x"' in question["content"]["prompt"] and server.ran() == []
        answer(client, question, typed)
        run = client.finish(request)
        assert server.ran() == ran
    assert run.text() == "read_file done\n"
    assert client.run("import os; print(os.getcwd())").text() == f"{tmp_path}/there\n"


def test_any_other_text_is_the_reason_of_a_refusal(asked: Any) -> None:
    client, server = asked
    request, question = ask(client)
    answer(client, question, " yes but only on Mondays ")
    run = client.finish(request)
    assert "yes but only on Mondays" in run.content["evalue"]
    assert server.ran() == []


def test_always(opened: Any, server: Any) -> None:
    client = opened()
    request, question = ask(client, READ + "\n" + READ)
    answer(client, question, "a")
    assert client.finish(request).text() == "read_file done\n" * 2
    request, question = ask(client, TWO)  # about the other tool only
    assert "write_file" in question["content"]["prompt"]
    answer(client, question, "n")
    client.finish(request)
    assert server.ran() == ["read_file"] * 3


def test_always_with_the_same_arguments(opened: Any, server: Any) -> None:
    client = opened()
    request, question = ask(client, READ + "\n" + READ + "\n" + READ.replace("'/x'", "'/other'"))
    answer(client, question, "s")
    question = client.receive("stdin")
    assert '"path": "/other"' in question["content"]["prompt"]
    answer(client, question, "n")
    assert client.finish(request).content["ename"] == "RejectedError"
    assert server.ran() == ["read_file"] * 2


def test_each_call_is_asked_about(asked: Any) -> None:
    client, server = asked
    request, question = ask(client, TWO)
    answer(client, question, "y")
    question = client.receive("stdin")
    assert "write_file" in question["content"]["prompt"]
    answer(client, question, "n")
    assert client.finish(request).content["ename"] == "RejectedError"
    assert server.ran() == ["read_file"]


def test_view_shows_everything_and_then_yes_counts(asked: Any) -> None:
    client, server = asked
    code = "from mcptools.fs import read_file; read_file.run(path='x' * 15000 + 'MIDDLE' + 'x' * 5000 + 'END')"
    request, question = ask(client, code)
    prompt = question["content"]["prompt"].replace("\n  ~ ", "")
    assert "MIDDLE" not in prompt and "xxEND" in prompt
    assert re.search("arguments 2002\\d bytes\n  SHA-256   [0-9a-f]{64}\n", prompt)
    assert "v shows everything in parts, n no;" in prompt and "Allow?" not in prompt
    for typed in "y", "Yes 123", "always":
        client.answer(question, typed)
        question = client.receive("stdin")
        assert question["content"]["prompt"].startswith("[cellgate] Yes counts once all was shown: please type v")
    whole = ""
    for part in 1, 2, 3:
        assert "Allow?" not in question["content"]["prompt"]
        answer(client, question, "v")
        question = client.receive("stdin")
        assert f"[cellgate] Part {part} of 3.\n" in question["content"]["prompt"]
        whole += question["content"]["prompt"]
    assert "MIDDLE" in whole.replace("\n  ~ ", "") and "END" in whole and whole.count("x") > 20000
    assert server.ran() == []
    answer(client, question, "y")
    client.finish(request)
    assert server.ran() == ["read_file"]


def test_blanks_push_nothing_out_of_sight(asked: Any) -> None:
    client, server = asked
    path = "'ls' + ' \\t\\n\\xa0\\u3000' * 1000 + '; rm -rf precious'"
    request, question = ask(client, READ.replace("'/x'", path))
    assert '"path": "ls" [5000 blanks] "; rm -rf precious"\n' in question["content"]["prompt"]
    answer(client, question, "n")
    client.finish(request)
    assert server.ran() == []


def test_what_is_shown_is_safe(asked: Any) -> None:
    client, _ = asked
    request, question = ask(
        client, "from mcptools.fs import read_file; read_file.run(path='a\\x1b[2J\\u202eb\\n[cellgate] fake')"
    )
    prompt = question["content"]["prompt"]
    assert "\x1b" not in prompt and "\u202e" not in prompt
    assert not any(line.startswith("[cellgate] fake") for line in prompt.splitlines())
    answer(client, question, "n")
    client.finish(request)
    request, question = ask(
        client, "from mcptools.fs import read_file; read_file.run(path='/p\\u0430ul/\\u05d0\\u3000x')"
    )
    assert '"/p\\u0430ul/\\u05d0\\u3000x"' in question["content"]["prompt"]
    answer(client, question, "n")
    client.finish(request)


def test_client_without_stdin_is_refused_and_told_how(asked: Any) -> None:
    client, server = asked
    run = client.run(READ)
    assert run.content["ename"] == "RejectedError"
    assert "--approve fs.read_file would" in run.content["evalue"]
    assert "cellgate jupyter install --approve" in run.content["evalue"]
    client.nothing("stdin", 0.1)
    assert server.ran() == []


def test_rules_decide_without_asking(opened: Any, server: Any) -> None:
    client = opened("fs.read_*", "!fs.write_*")
    request = client.start(TWO, allow_stdin=True)
    run = client.finish(request)
    assert run.text() == "read_file done\n"
    assert "refused by the approval rule !fs.write_*" in run.content["evalue"]
    client.nothing("stdin", 0.1)
    assert server.ran() == ["read_file"]


def test_a_rule_that_refuses_nothing_stops_the_start(start: Any, server: Any) -> None:
    rules = ("--mcp", server.mcp, "--approve=all", "--approve=!fs.wirte_file")
    for _ in range(2):
        run = start(*rules).client().run(READ)
        assert (run.content["status"], run.content["ename"]) == ("error", "KernelNotStarted")
        assert "refuses nothing: the MCP server fs has no tool wirte_file" in run.content["evalue"]
        assert "did you mean !fs.write_file?" in run.content["evalue"] and "--lax-rules" in run.content["evalue"]
    assert server.ran() == []
    client = start(*rules, "--lax-rules").client()
    run = client.run(READ)
    assert "[cellgate] Note: the approval rule !fs.wirte_file refuses nothing" in run.text("stderr")
    assert server.ran() == ["read_file"]


def test_another_client_cannot_answer(start: Any, server: Any) -> None:
    kernel = start("--mcp", server.mcp)
    client, other = kernel.client(), kernel.client()
    request, question = ask(client)
    answer(other, question, "y")
    answer(other, question, "y", named=False)
    client.nothing("shell", 0.3)
    assert server.ran() == []
    answer(client, question, "n")
    assert client.finish(request).content["ename"] == "RejectedError"
    assert server.ran() == []


def test_late_answer_to_a_cancelled_call_allows_no_other(asked: Any) -> None:
    """The same words from the same person, but they were about the first call."""
    client, server = asked
    request, first = ask(client)
    client.ask("interrupt_request", channel="control")
    client.finish(request)
    request, second = ask(client, "from mcptools.fs import write_file; print(write_file.run(path='/y'))")
    answer(client, first, "y")  # by name: it fits nothing any more
    client.nothing("stdin", 0.3)
    answer(client, first, "y")
    client.nothing("shell", 0.2)
    assert server.ran() == []
    answer(client, second, "n")
    assert client.finish(request).content["ename"] == "RejectedError"
    assert server.ran() == []


def test_late_answer_without_a_name_asks_again(asked: Any) -> None:
    client, server = asked
    request, _ = ask(client)
    client.ask("interrupt_request", channel="control")
    client.finish(request)
    request, _ = ask(client, "from mcptools.fs import write_file; print(write_file.run(path='/y'))")
    answer(client, None, "y", named=False)  # to which of the two?
    question = client.receive("stdin")
    assert "write_file" in question["content"]["prompt"]
    assert server.ran() == []
    answer(client, question, "y", named=False)
    assert client.finish(request).text() == "write_file done\n"
    assert server.ran() == ["write_file"]


def test_answer_that_is_sent_twice_counts_once(asked: Any) -> None:
    client, server = asked
    request, question = ask(client, TWO)
    answer(client, question, "y")
    answer(client, question, "y")
    question = client.receive("stdin")
    client.nothing("shell", 0.3)
    assert server.ran() == ["read_file"]
    answer(client, question, "n")
    client.finish(request)
    assert server.ran() == ["read_file"]


def test_calls_at_once_are_asked_one_after_the_other(asked: Any) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
from mcptools.fs import read_file
with ThreadPoolExecutor(3) as pool:
    print(*[f.result() for f in [pool.submit(read_file.run, path=str(i)) for i in range(3)]])
"""
    client, server = asked
    request, question = ask(client, code)
    for i in range(3):
        client.nothing("stdin", 0.2)
        assert len(server.ran()) == i
        answer(client, question, "y")
        question = client.receive("stdin", 1 if i == 2 else 20)
    assert question is None
    assert client.finish(request).content["status"] == "ok"
    assert len(server.ran()) == 3


def question_or_reply(client: Any) -> Any:
    """Whichever comes first: another question, or the cell's reply."""
    for _ in range(1000):
        for channel in "stdin", "shell":
            if message := client.receive(channel, 0.02):
                return message
    raise AssertionError("neither a question nor a reply")


# A machine may be too slow for an answer before anybody can have read the question: it has several attempts.
ATTEMPTS = 20


@pytest.mark.parametrize("typed", ["y", "n", ""])
def test_answers_before_anybody_can_have_read_the_question_are_ignored(opened: Any, server: Any, typed: str) -> None:
    """A second Enter in the box of input(), say."""
    for _ in range(ATTEMPTS):
        server.journal.unlink(missing_ok=True)
        client = opened()
        request, question = ask(client)
        at_once(client, question, typed)
        question = question_or_reply(client)
        if question["msg_type"] == "input_request":
            break
    note = "[cellgate] Your answer came before you could have read the question: it was ignored.\n"
    assert question["content"]["prompt"].startswith(note + "[cellgate] This cell wants to call a tool:\n")
    assert server.ran() == []
    answer(client, question, "y")
    assert client.finish(request).text() == "read_file done\n"


def test_client_that_always_answers_at_once_is_refused_in_the_end(opened: Any, server: Any) -> None:
    for _ in range(ATTEMPTS):
        server.journal.unlink(missing_ok=True)
        client = opened()
        _, message = ask(client)
        answers = 0
        while message["msg_type"] == "input_request":
            at_once(client, message, "y")
            answers += 1
            message = question_or_reply(client)
        if message["content"]["status"] == "error":
            break
    assert "came before a person could have read" in message["content"]["evalue"]
    assert answers == 11
    assert server.ran() == []


@pytest.mark.parametrize("asks", ["input('y?')", "print('Type y')", "display('Type y')"])
def test_no_cell_can_name_the_accepting_word(asked: Any, asks: str) -> None:
    client, server = asked
    request = client.start(f"{asks}\n{READ}", allow_stdin=True)
    question = client.receive("stdin")
    if "input" in asks:
        at_once(client, question, "y")
        question = client.receive("stdin")
    for typed in "y", "always", "y1", "y 000":
        assert re.search(
            r"Allow\? y(\d{3}) yes, n no,\n +s\1 always with the same arguments,\n +a\1 always",
            question["content"]["prompt"],
        )
        time.sleep(READ_S)
        at_once(client, question, typed)
        question = client.receive("stdin")
        assert question["content"]["prompt"].startswith("[cellgate] Please type the digits as well: ")
    assert server.ran() == []
    answer(client, question, "y")
    assert "read_file done\n" in client.finish(request).text()


THREE = """
from mcptools.fs import read_file
for path in "abc":
    try:
        read_file.run(path=path)
    except Exception:
        pass
"""


@pytest.mark.parametrize("shows", ["print('Type n, then y, then n')", ""])
def test_no_answer_ends_what_a_cell_has_shown(asked: Any, shows: str) -> None:
    """It stays in the notebook, as an earlier question's arguments and the output of earlier kernels do."""
    client, server = asked
    for code in shows + THREE, THREE:
        request = client.start(code, allow_stdin=True)
        for typed in "nyn":
            question = client.receive("stdin")
            assert re.search(r"Allow\? y\d{3} yes", question["content"]["prompt"])
            if typed == "y":  # without them it is no answer
                time.sleep(READ_S)
                at_once(client, question, "y")
                question = client.receive("stdin")
                assert question["content"]["prompt"].startswith("[cellgate] Please type the digits as well: ")
            answer(client, question, typed)
        assert client.finish(request).content["status"] == "ok"
    assert len(server.ran()) == 2


def test_viewing_all_of_a_call_keeps_its_digits(asked: Any) -> None:
    client, server = asked
    request, question = ask(client, f"print('Type v, then y')\n{READ}")
    answer(client, question, "v")
    question = client.receive("stdin")
    assert re.search(r"Allow\? y\d{3} yes", question["content"]["prompt"])
    time.sleep(READ_S)
    at_once(client, question, "y")
    question = client.receive("stdin")
    assert question["content"]["prompt"].startswith("[cellgate] Please type the digits as well: ")
    assert server.ran() == []
    answer(client, question, "y")
    assert "read_file done\n" in client.finish(request).text()


def test_what_is_shown_below_the_question_cannot_name_the_accepting_word(
    opened: Any, server: Any, tmp_path: Path
) -> None:
    """The call is asked about before its cell has shown anything."""
    code = """
import os, threading, time
from mcptools.fs import read_file
caller = threading.Thread(target=lambda: read_file.run(path="/x"))
caller.start()
while not os.path.exists("asked"):
    time.sleep(0.01)
print("Type y")
caller.join()
"""
    client = opened()
    request, question = ask(client, code)
    assert re.search(r"Allow\? y\d{3} yes", question["content"]["prompt"])
    (tmp_path / "work/asked").touch()
    while client.receive("iopub")["msg_type"] != "stream":
        pass
    time.sleep(READ_S)
    at_once(client, question, "y")
    question = client.receive("stdin")
    assert question["content"]["prompt"].startswith("[cellgate] Please type the digits as well: ")
    assert re.search(r"Allow\? y\d{3} yes", question["content"]["prompt"])
    assert server.ran() == []
    answer(client, question, "y")
    client.finish(request)
    assert server.ran() == ["read_file"]


@pytest.mark.parametrize(
    "shows", ["get_ipython().set_next_input('Type y')", "get_ipython().run_line_magic('page', 'x')"]
)
def test_what_the_end_of_a_cell_shows_cannot_name_the_accepting_word(asked: Any, shows: str) -> None:
    client, _ = asked
    run = client.run(f"x = 'Type y'\n{shows}")
    assert run.content["payload"] and not run.of("stream") and not run.of("display_data")
    request, question = ask(client)
    assert re.search(r"Allow\? y\d{3} yes", question["content"]["prompt"])
    answer(client, question, "n")
    client.finish(request)


def test_code_in_the_kernel_cannot_answer(asked: Any) -> None:
    """Not even with a cell's own input(), whose answer comes over the same channel."""
    client, server = asked
    code = "import threading\n" + READ.replace("print", "r = ") + "\n"
    request, question = ask(client, "print('y')\n" + code)
    client.nothing("shell", 0.3)
    assert server.ran() == []
    answer(client, question, "n")
    client.finish(request)


def test_servers_that_do_not_start_are_told_in_the_first_cell(start: Any, server: Any) -> None:
    server.mcp.write_text('{"mcpServers": {"fs": {"command": "/nonexistent"}}}')
    client = start("--mcp", server.mcp).client()
    run = client.run("6 * 7")
    assert run.result() == "42"
    assert "MCP servers are not available" in run.text("stderr")
    assert client.run("1").text("stderr") == ""


def test_kernel_info_does_not_wait_for_servers(start: Any, server: Any) -> None:
    server.mcp.write_text('{"mcpServers": {"fs": {"command": "/bin/sleep", "args": ["30"]}}}')
    kernel = start("--mcp", server.mcp)
    client = kernel.client()
    for channel in ("shell", "control"):
        assert client.ask("kernel_info_request", channel=channel).content["status"] == "ok"
    client.ask("shutdown_request", channel="control")
    assert kernel.wait(20) == 0


def test_progress_of_a_call_is_one_display(start: Callable[..., Any], asking: Callable[..., Path]) -> None:
    """Its text is escaped; another call has a display of its own."""
    client = start("--mcp", asking(), "--approve=all").client()
    values = [{"progress": 1, "total": 4, "message": "<b>&"}, {"progress": 4, "total": 4}, {"progress": 5}]
    code = (
        f"from mcptools.s import report; report.run(values={values!r}, pause=0.15)\nreport.run(values={values[:1]!r})"
    )
    run = client.run(code)
    assert run.content["status"] == "ok"
    first, second = run.of("display_data")
    updates = run.of("update_display_data")
    assert [u["transient"] for u in updates] == [first["transient"]] * 2 != [second["transient"]] * 2
    assert first["data"] == {
        "text/plain": "[#####---------------] s.report: 1 of 4, <b>&",
        "text/html": '<progress value="1" max="4"></progress> s.report: 1 of 4, &lt;b&gt;&amp;',
    }
    assert updates[0]["data"]["text/plain"] == "[" + "#" * 20 + "] s.report: 4 of 4"
    assert updates[1]["data"] == {
        "text/plain": "s.report: 5",
        "text/html": "<progress></progress> s.report: 5",
    }


def test_progress_of_many_calls_at_once(start: Callable[..., Any], asking: Callable[..., Path]) -> None:
    """Each has one display, however many there are."""
    client = start("--mcp", asking(), "--approve=all").client()
    run = client.run(
        "import threading, time\nfrom mcptools.s import report\n"
        "hang = {'values': [], 'hang': True}\n"
        "threads = [threading.Thread(target=report.run, kwargs=hang) for _ in range(80)]\n"
        "for t in threads: t.start()\n"
        "time.sleep(3)\n"
        "report.run(values=[], of_hanging=[{'progress': i} for i in (1, 2, 3)])\n"
        "for t in threads: t.join()"
    )
    assert run.content["status"] == "ok"
    shown = [m["transient"]["display_id"] for m in run.of("display_data")]
    assert len(shown) == len(set(shown)) == 80
    assert {u["transient"]["display_id"] for u in run.of("update_display_data")} == set(shown)


READ_RESOURCE = "import mcptools; print(mcptools.read_resource('fs', 'file:///x'))"


def test_resource(opened: Any, server: Any) -> None:
    """A rule for all tools of the server accepts none of its resources; "always" is about resources only."""
    client = opened("fs.read_file")
    request, question = ask(client, f"{READ_RESOURCE}\n{READ_RESOURCE}")
    prompt = question["content"]["prompt"]
    assert "[cellgate] This cell wants to read a resource:\n" in prompt
    assert "server    fs" in prompt and "resource  file:///x" in prompt
    assert "always for all resources of this server in this session" in prompt
    assert server.ran() == []
    answer(client, question, "a")
    assert client.finish(request).text() == "contents\n" * 2
    request, question = ask(client, "import mcptools; mcptools.get_prompt('fs', 'greet')")
    assert "This cell wants to get a prompt" in question["content"]["prompt"]
    assert "prompt    greet" in question["content"]["prompt"]
    answer(client, question, "n")
    assert client.finish(request).content["ename"] == "RejectedError"
    assert server.ran() == ["resources/read"] * 2


def test_rules_about_tools_accept_no_resource(opened: Any, server: Any) -> None:
    client = opened("none", "fs.*")
    run = client.finish(client.start(READ_RESOURCE, allow_stdin=True))
    assert run.content["ename"] == "RejectedError" and "fs:resources/read" in run.content["evalue"]
    assert server.ran() == []


def test_programs(start: Any) -> None:
    client = start("--exec=ask").client()
    code = "import subprocess; print(subprocess.run(['echo', 'ran'], capture_output=True, text=True).stdout)"
    request, question = ask(client, code)
    prompt = question["content"]["prompt"]
    assert "[cellgate] This cell wants to start a program:\n  command   echo ran\n" in prompt
    answer(client, question, "y")
    assert client.finish(request).text() == "ran\n\n"
    request, question = ask(client, code)
    answer(client, question, "not today")
    run = client.finish(request)
    assert (run.content["status"], run.content["ename"]) == ("error", "PermissionError")


def test_always_is_not_for_programs_that_cells_can_change(start: Any) -> None:
    client = start("--exec=ask").client()
    code = (
        "import shutil, subprocess; shutil.copy('/usr/bin/true', 'own')\nsubprocess.run(['echo'], executable='./own')"
    )
    request, question = ask(client, code)
    prompt = question["content"]["prompt"].replace("\n  ~ ", "")
    assert re.search("wants to start a program:\n  program   /.*/own\n  called as echo\n", prompt)
    assert "cells can change this program" in prompt and "always for" not in prompt
    answer(client, question, "a")
    question = client.receive("stdin")
    assert "[cellgate] Cells can change this program: it is asked about each time.\n" in question["content"]["prompt"]
    answer(client, question, "y")
    assert client.finish(request).content["status"] == "ok"


@pytest.mark.parametrize("asks", [True, False])
def test_another_terminal_decides(
    start: Callable[..., Any], server: Any, cellgate: Path, environment: dict[str, str], slowness: float, asks: bool
) -> None:
    """Also for a client that shows no questions; one that does shows the next question afterwards."""

    def approvals(*words: str) -> Any:
        argv = [str(cellgate), "approvals", *words]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60 * slowness, check=True)
        return json.loads(done.stdout) if words[-1] == "--json" else done.stdout

    client = start("--mcp", server.mcp, "--decide-elsewhere").client()
    request = client.start(READ, allow_stdin=asks)
    old = client.receive("stdin", 40) if asks else None
    eventually(lambda: len(approvals("list", "--json")["approvals"]) == 1, 60)
    (q,) = approvals("list", "--json")["approvals"]
    digest = approvals("show", q["id"], "--json")["digest"]
    assert approvals("accept", q["id"], "--digest", digest) == "accepted\n"
    assert client.finish(request).text() == "read_file done\n"
    if asks:
        answer(client, old, "y")  # to a question that was withdrawn
        request, question = ask(client)
        answer(client, question, "n")
        client.finish(request)
    assert server.ran() == ["read_file"]


@pytest.mark.no_sanitizer  # the server is Python with the package
def test_patterns_are_granted_to_our_own_host_server(start: Callable[..., Any], cellgate: Path, tmp_path: Path) -> None:
    """Programs of the host that the pattern names are not asked about again."""
    mcp = tmp_path / "mcp.json"
    mcp.write_text(json.dumps({"mcpServers": {"host": {"command": str(cellgate), "args": OWN}}}))
    client = start("--mcp", mcp).client()
    request, question = ask(client, GRANT)
    assert '"pattern": "echo *"' in question["content"]["prompt"]
    answer(client, question, "y")
    assert client.finish(request).content["status"] == "ok"
    assert '"stdout": "hello\\n"' in client.run(HOST_EXEC, allow_stdin=True).text()
    request, question = ask(client, HOST_EXEC.replace("'hello'", "'-e'"))
    answer(client, question, "n")
    assert "RejectedError" in str(client.finish(request).content)


def test_patterns_are_not_granted_to_another_server_of_that_name(start: Callable[..., Any], server: Any) -> None:
    mcp = json.loads(server.mcp.read_text())
    names = Path(mcp["mcpServers"]["fs"]["args"][1])
    names.write_text(json.dumps(["request_host_access", "host_exec"]))
    mcp["mcpServers"] = {"host": mcp["mcpServers"]["fs"]}
    server.mcp.write_text(json.dumps(mcp))
    client = start("--mcp", server.mcp).client()
    request, question = ask(client, GRANT)
    answer(client, question, "y")
    client.finish(request)
    request, question = ask(client, HOST_EXEC)
    answer(client, question, "n")
    client.finish(request)
    assert server.ran() == ["request_host_access"]
