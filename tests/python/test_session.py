"""The blocking front of the Python package, with real kernels."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cellgate
import pytest
import web
from cellgate import _events as events
from cellgate import aio
from processes import eventually
from shared_supervisor import find_supervisors, runtime_folder

DANGER = "from mcptools.echo import danger\ndanger.run(text='x')"


def test_a_question_of_any_kind_is_refused() -> None:
    """Also one of a kind that the functions which refuse do not know."""
    reasons: list[str] = []

    class Later(events.Question):
        def reject(self, reason: str | None = None) -> None:
            reasons.append(str(reason))

    assert events.refuse(Later(1, False, 2, None), "nobody answers") and reasons == ["nobody answers"]  # type: ignore[arg-type]


@pytest.mark.parametrize("front", ["blocking", "asyncio"])
def test_a_policy_file_decides_before_approve(
    client: Any, workspace: Path, servers: dict[str, Any], tmp_path: Path, front: str
) -> None:
    """What it allows or denies is not asked; what it leaves open is."""
    policy = tmp_path / "policy.json"
    rules = [
        {"decision": "deny", "server": "echo", "tool": "danger", "text": "Never that."},
        {"decision": "allow", "server": "echo", "tool": "echo", "arguments": {"/text": {"glob": "a*"}}},
    ]
    policy.write_text(json.dumps({"rules": rules}))
    asked: list[str] = []

    def approve(request: Any) -> bool:
        asked.append(request.arguments["text"])
        return True

    code = "from mcptools.echo import danger, echo\nprint(echo.run(text='abc'), echo.run(text='b'))\ndanger.run()"
    options = {"client": client, "policy": policy, "mcp_servers": servers}
    if front == "blocking":
        with cellgate.Session(workspace, **options) as s:
            out = s.run(code, approve=approve)
    else:

        async def run() -> Any:
            async with aio.Session(workspace, **options) as s:
                return await s.run(code, approve=approve)

        out = asyncio.run(run())
    assert asked == ["b"] and out.stdout == "abc b\n"
    assert out.status == "error" and "refused by rule 1 of policy.json: Never that." in str(out.error)


def test_cell_state_and_output(session: Any) -> None:
    first = session.run("import sys\nx = 20\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
    assert (first.status, first.stdout, first.stderr, first.value) == ("ok", "out\n", "err\n", "21")
    assert first.ok and first.check() is first and first.output == "out\nerr\n21\n"
    assert session.run("x * 2").value == "40"


def test_variables_of_a_cell(session: Any) -> None:
    found = session.run("made_here = 'abc'", variables=True).variables
    assert found == {
        "made": [{"name": "made_here", "type": "str", "length": 3}],
        "changed": [],
        "deleted": [],
        "left_out": 0,
    }
    assert session.run("made_here = 1").variables is None


def test_artifacts_of_a_cell(session: Any) -> None:
    made = session.run("open('/tmp/made', 'w').write('x'); open(b'/tmp/\\xff', 'w')", artifacts=True)
    digest = hashlib.sha256(b"x").hexdigest()
    files = {f.path: f for f in made.artifacts}
    assert files.keys() == {"/tmp/made", "/tmp/\udcff"}
    assert files["/tmp/made"] == cellgate.Artifact("/tmp/made", 1, digest)
    assert made.result.artifacts_truncated is None
    assert session.run("for i in range(1001): open(f'/tmp/{i}', 'w')", artifacts=True).result.artifacts_truncated
    plain = session.run("open('/tmp/made', 'w')")
    assert plain.artifacts == [] and plain.result.artifacts is None


def test_signed_artifacts(client: Any, workspace: Path) -> None:
    with cellgate.Session(workspace, client=client, audit="strict", sign_artifacts=True) as s:
        result = s.run("open('made', 'w').write('x')").result
        assert result.artifacts_signed["execution"] == f"{s.id}/1" and result.artifacts_unsigned is None
        assert [f.path for f in result.artifacts] == [f"{workspace}/made"]
        assert s.run("1").result.artifacts_signed is None
    with pytest.raises(cellgate.InvalidArgumentError, match="needs"):
        cellgate.Session(workspace, client=client, sign_artifacts=True)


def test_error(session: Any) -> None:
    result = session.run("1/0")
    assert result.status is cellgate.Status.ERROR and not result.ok and not result.refused
    assert result.error.ename == "ZeroDivisionError" and "1/0" in str(result.error)
    with pytest.raises(cellgate.CellError, match="division by zero") as caught:
        result.check()
    assert caught.value.execution is result


def test_events_are_frozen_and_in_order(session: Any) -> None:
    events = list(session.stream("print('a')\n'b'"))
    kinds = dict.fromkeys(type(e) for e in events)  # text may come in pieces
    assert list(kinds) == [cellgate.Stream, cellgate.ExecuteResult, cellgate.Result]
    assert events[-2].text == "'b'" and events[-2].execution_count == 1 == events[-1].execution_count
    with pytest.raises(AttributeError):
        events[0].text = "other"


def test_image(session: Any) -> None:
    code = (
        "from IPython.display import Image, display\ndisplay(Image(data=b'\\x89PNG\\r\\n\\x1a\\nrest', format='png'))"
    )
    assert session.run(code).images == [b"\x89PNG\r\n\x1a\nrest"]
    none = session.run("display({'image/png': 'ä'}, raw=True)")
    assert none.ok and none.images == []


def test_display_is_replaced_by_its_update(session: Any) -> None:
    code = "h = display('one', display_id=True)\nh.update('two')"
    assert [d.text for d in session.run(code).displays] == ["'two'"]


def test_clear_output(session: Any) -> None:
    code = "from IPython.display import clear_output\nprint('a')\nclear_output(wait={})\nprint('b')"
    assert session.run(code.format(True)).stdout == "b\n"
    assert session.run(code.format(False)).stdout == "b\n"


def test_timeout_interrupts(session: Any) -> None:
    result = session.run("import time\nx = 5\ntime.sleep(60)", timeout=0.2)
    assert result.status == "timeout" and session.run("x").value == "5"


def test_a_time_that_never_ends(session: Any) -> None:
    assert session.run("1", timeout=math.inf).value == "1"
    session.set_variables({"x": 7}, timeout=math.inf)
    with session.start(["cat"], stdin=True, timeout=math.inf) as command:
        command.write(b"in", timeout=math.inf)
        assert command.next_event(timeout=math.inf).data == b"in"


def test_interrupt_from_another_thread(session: Any) -> None:
    with session.stream("import time\nprint('begun')\ntime.sleep(60)") as cell:
        assert next(cell).text == "begun\n"
        threading.Thread(target=session.interrupt).start()
        last = list(cell)[-1]
    assert last.status == "cancelled"


def test_input(session: Any) -> None:
    asked = []

    def answer(request: Any) -> str:
        asked.append((request.prompt, request.password))
        return "me"

    assert session.run("input('who? ')", input=answer).value == "'me'"
    assert asked == [("who? ", False)]
    assert session.run("input('who? ')").error.ename == "StdinNotImplementedError"


def test_reset(session: Any) -> None:
    session.run("x = 1")
    session.reset()
    assert session.run("x").error.ename == "NameError"


def test_request(session: Any) -> None:
    reply = session.request("is_complete_request", {"code": "if 1:"})
    assert reply.content["status"] == "incomplete"


def test_variables(session: Any) -> None:
    session.set_variables({"a": {"b": [1, 2.5, None, "\u00e4"]}}, pickled={"c": pickle.dumps((1, 2))})
    assert session.run("(a, c)").value == "({'b': [1, 2.5, None, '\u00e4']}, (1, 2))"
    assert session.get_variables("a") == {"a": {"b": [1, 2.5, None, "\u00e4"]}}
    assert session.get_variables() == {}
    assert session.get_variables("c", lossy=True) == {"c": [1, 2]}
    kept = session.get_untrusted_pickles("c", "a")
    session.run("del a, c")
    session.set_variables(pickled=kept)
    assert session.run("(a['b'][1], c)").value == "(2.5, (1, 2))"
    with pytest.raises(cellgate.VariableError, match="type tuple") as caught:
        session.get_variables("a", "c")
    assert (caught.value.name, caught.value.type, caught.value.path) == ("c", "tuple", "")
    with pytest.raises(cellgate.NotFoundError, match="'missing' is not defined"):
        session.get_variables("missing")
    with pytest.raises(cellgate.InvalidArgumentError, match="reserved"):
        session.set_variables({"__name__": 1})


def test_variables_that_are_not_sent(session: Any) -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    for value in ((1,), {1: 2}, float("nan"), {3}, b"x", cyclic, deep, [{"a": (1,)}], object()):
        with pytest.raises(cellgate.CellgateError):
            session.set_variables({"v": value})
    assert session.run("v").error.ename == "NameError"


def test_variables_that_a_kernel_forges(session: Any) -> None:
    session.run(
        "from cellgate_kernel import values\n"
        "values.get_variables = lambda c, n: ({'status': 'ok', 'variables': {'b': 1}, 'untrusted_pickle': ['a']}, ())"
    )
    with pytest.raises(cellgate.VariableError, match="does not have"):
        session.get_variables("a")
    with pytest.raises(cellgate.VariableError, match="does not have"):
        session.get_untrusted_pickles("a")
    with pytest.raises(cellgate.VariableError, match="does not have"):
        session.get_untrusted_arrow("a")


def test_tables(packages_env: Path, tmp_path: Path) -> None:
    code = "import pandas\nd = pandas.DataFrame({'n': [1, 2]})"
    same = "d.to_pandas().n.tolist()"

    async def awaiting() -> str | None:
        async with cellgate.aio.Session(tmp_path, python=packages_env) as s:
            await s.run(code)
            await s.set_variables(arrow=await s.get_untrusted_arrow("d"))
            return (await s.run(same)).value

    with cellgate.Session(tmp_path, python=packages_env) as s:
        s.run(code)
        s.set_variables(arrow=s.get_untrusted_arrow("d"))
        assert s.run(same).value == asyncio.run(awaiting()) == "[1, 2]"


def test_comm_buffers(session: Any) -> None:
    session.run(
        "def target(comm, msg):\n"
        "    comm.send({'back': 1}, buffers=[bytes(b)[::-1] for b in msg['buffers']])\n"
        "get_ipython().kernel.comm_manager.register_target('t', target)"
    )
    seen: list[Any] = []
    session._core.on_event = seen.append
    content = {"comm_id": "c", "target_name": "t", "data": {}}
    assert session.request("comm_open", content, buffers=[b"abc", b""]).status == "ok"


def test_info_and_id(session: Any) -> None:
    assert session.info["sandbox"] is True and len(session.id) > 10
    assert session.id in [s["id"] for s in session._core.client.sessions()]


# ---------------------------------------------------------------- approvals


def test_accepted_call_runs_with_exact_arguments(tools: Any, mark: Path) -> None:
    seen = []

    def approve(request: Any) -> bool:
        seen.append(request)
        assert not mark.exists()
        return True

    assert tools.run(DANGER, approve=approve).ok
    (request,) = seen
    assert (request.server, request.tool, request.method) == ("echo", "danger", "tools/call")
    assert request.arguments == {"text": "x"} and json.loads(mark.read_text()) == {"text": "x"}
    assert str(request) == 'echo.danger {"text":"x"}'


def test_a_question_as_text(tools: Any, mark: Path) -> None:
    """Nothing is pushed out of sight, and nothing else is shown in another way."""
    seen: list[str] = []

    def show(text: str) -> str:
        tools.run(DANGER.replace("'x'", repr(text)), approve=lambda request: seen.append(str(request)) or False)
        return seen[-1]

    for blank in " ", "\t", "\n", "\x0b", "\xa0", "\u2003", "\u200b", "\u3000", "\ufeff", " \t\xa0":
        shown = show("ls" + blank * 5000 + "; rm -rf precious")
        assert shown == f'echo.danger {{"text":"ls" [{5000 * len(blank)} blanks] "; rm -rf precious"}}'
        assert "blanks" not in show("ls" + blank + "x")
    assert show("\\" * 50 + "t" * 50) == 'echo.danger {"text":"' + "\\\\" * 50 + "t" * 50 + '"}'
    assert show('" [50 blanks] "') == r'echo.danger {"text":"\" [50 blanks] \""}'
    assert not mark.exists()


def test_a_question_about_a_program_as_text(client: Any, workspace: Path) -> None:
    seen: list[str] = []
    with cellgate.Session(workspace, client=client, exec="ask") as s:
        code = "import subprocess; subprocess.run(['echo', 'hi'], executable='/usr/bin/printf')"
        s.run(code, approve=lambda request: seen.append(str(request)) or False)
    assert seen[0].startswith('start "/usr/bin/printf" {"argv":["echo"')


def test_refused_call_does_not_run(tools: Any, mark: Path) -> None:
    result = tools.run(DANGER, approve=lambda _: False)
    assert result.status == "error" and result.refused and result.error.ename == "RejectedError"
    assert not mark.exists()


def test_without_approve_all_is_refused(tools: Any, mark: Path) -> None:
    result = tools.run(DANGER)
    assert result.refused and "no `approve`" in result.error.evalue and not mark.exists()


@pytest.mark.parametrize("answer", ["yes", 1, object()])
def test_only_true_accepts(tools: Any, mark: Path, answer: object) -> None:
    with pytest.raises(TypeError, match="must return True, False or None"):
        tools.run(DANGER, approve=lambda _: answer)
    assert tools.run("1").value == "1" and not mark.exists()


def test_decision_is_used_once(tools: Any, mark: Path) -> None:
    for event in tools.stream(DANGER):
        if isinstance(event, cellgate.ApprovalRequest):
            event.reject("not today")
            with pytest.raises(cellgate.NotFoundError):
                event.accept()
        if isinstance(event, cellgate.Error):
            assert "not today" in event.evalue
    assert not mark.exists()


def test_approve_that_has_not_decided_refuses_with_a_warning(tools: Any, mark: Path) -> None:
    with pytest.warns(RuntimeWarning, match="has not decided about echo.danger"):
        result = tools.run(DANGER, approve=lambda request: None)
    assert result.refused and "has not decided" in result.error.evalue and not mark.exists()


def test_decision_by_the_callback_itself_warns_of_nothing(tools: Any, mark: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tools.run(DANGER, approve=lambda request: request.accept()).ok and mark.exists()
        assert tools.run(DANGER, approve=lambda request: request.reject("no")).refused


@pytest.mark.parametrize("what", ["run", "stream", "request", "set_variables", "get_variables"])
def test_what_would_wait_for_its_own_question_raises(tools: Any, mark: Path, what: str) -> None:
    """The cell waits for `approve`, and all that it runs waits for the cell."""
    args: dict[str, Any] = {"request": ("comm_info_request", {}), "set_variables": ({"x": 1},)}

    def approve(request: Any) -> bool:
        getattr(tools, what)(*args.get(what, ("x",)))
        return True

    with pytest.raises(cellgate.CellgateError, match="would wait for ever"):
        tools.run(DANGER, approve=approve)
    assert not mark.exists() and tools.run("1").value == "1"


def test_the_same_for_input_functions_and_loops(tools: Any, mark: Path) -> None:
    with pytest.raises(cellgate.CellgateError, match="would wait for ever"):
        tools.run("input()", input=lambda request: tools.run("1").value)
    tools.functions({"nested": lambda: tools.run("1").value})
    result = tools.run("from mcptools.host import nested; nested.run()")
    assert result.error.ename == "ToolError" and "would wait for ever" in result.error.evalue
    for event in tools.stream(DANGER):
        if isinstance(event, cellgate.ApprovalRequest):
            with pytest.raises(cellgate.CellgateError, match="would wait for ever"):
                tools.run("1")
            event.accept()
            break
    assert tools.run("1").value == "1"


def test_what_runs_beside_the_question_works_in_approve(tools: Any, mark: Path) -> None:
    subshell = tools.request("create_subshell_request", {}).content["subshell_id"]
    seen: list[Any] = []

    def approve(request: Any) -> bool:
        seen.append(tools.exec(["echo", "beside"]).stdout)
        seen.append(tools.files.exists("nothing"))
        seen.append(tools.run("2 + 2", subshell=subshell).value)
        request.accept()
        return None

    assert tools.run(DANGER, approve=approve).ok and mark.exists()
    assert seen == [b"beside\n", False, "4"]


def test_another_thread_may_run_cells_while_a_question_is_open(tools: Any, mark: Path) -> None:
    """It waits its turn."""
    asked, done = threading.Event(), []

    def other() -> None:
        asked.wait()
        done.append(tools.run("x = 5; x").value)

    thread = threading.Thread(target=other)
    thread.start()
    assert tools.run(DANGER, approve=lambda request: asked.set() or True).ok
    thread.join()
    assert done == ["5"]


def test_cancelled_call_is_reported_as_closed(tools: Any, mark: Path) -> None:
    asked: list[int] = []
    closed: list[int] = []  # perhaps while the next cell is read: it is of no cell
    for _ in range(20):  # the result comes another way, and on a slow machine earlier
        with tools.stream(DANGER, timeout=30) as cell:
            for event in cell:
                if isinstance(event, cellgate.ApprovalRequest):
                    asked.append(event.number)
                    cell.cancel()
                if isinstance(event, cellgate.ApprovalClosed):
                    closed.append(event.number)
        if closed:
            break
    assert closed and set(closed) <= set(asked) and not mark.exists()


def test_cell_that_nobody_reads_any_more_is_cancelled_and_refused(tools: Any, mark: Path) -> None:
    cell = tools.stream(DANGER + "\nimport time\ntime.sleep(60)")
    next(cell)  # the question
    del cell
    gc.collect()
    assert tools.run("1").value == "1" and not mark.exists()


def test_report_of_servers(tools: Any, servers: dict[str, Any]) -> None:
    report = tools.add_mcp_servers({"mcpServers": {"second": servers["echo"], "bad": {"command": "/nowhere"}}})
    assert {t["tool"] for t in report["second"]["tools"]} >= {"echo", "danger"} and "error" in report["bad"]
    with pytest.raises(cellgate.CellgateError, match="nowhere"):
        tools.add_mcp_servers({"bad": {"command": "/nowhere"}})


def test_egress_question(client: Any, workspace: Path) -> None:
    asked = []

    def approve(request: Any) -> bool:
        asked.append((request.host, request.port))
        return False

    code = "import urllib.request\nurllib.request.urlopen('http://example.org:81/')"
    settings = web.settings()
    with cellgate.Session(workspace, client=client, settings=settings, ask_egress=True) as s:
        assert s.run(code, approve=approve).error.ename in ("URLError", "HTTPError")
    assert asked == [("example.org", 81)]


# ---------------------------------------------------------------- commands and files


def test_exec(session: Any) -> None:
    done = session.exec("echo out; echo err >&2; cat; exit 3", input=b"in\0\xff" * 3)
    assert (done.exit_code, done.signal, done.ok) == (3, None, False)
    assert (done.stdout, done.stderr) == (b"out\n" + b"in\0\xff" * 3, b"err\n")
    assert session.exec(["sh", "-c", "kill -9 $$"]).signal == 9
    assert session.exec(["pwd"], cwd="/tmp").stdout == b"/tmp\n"
    assert session.exec(["sh", "-c", "echo $X"], env={"X": "ä"}).stdout == "ä\n".encode()
    assert session.exec(["sleep", "60"], timeout=0.2).status == "timeout"
    data = os.urandom(3 << 20)
    assert session.exec(["cat"], input=data).stdout == data
    done = session.exec(["/nowhere/program"])
    assert done.exit_code is None and "nowhere" in done.text and not done.ok


def test_command_with_terminal(session: Any) -> None:
    with session.start(["sh", "-c", "stty size; read x; stty size"], terminal=(30, 90)) as command:
        assert next(command).data == b"30 90\r\n"
        command.resize(40, 100)
        command.write(b"\n")
        assert b"40 100" in b"".join(e.data for e in command if hasattr(e, "data"))


def test_command_signal(session: Any) -> None:
    with session.start(["sh", "-c", "echo; exec sleep 60"]) as command:
        next(command)
        command.send_signal(signal.SIGTERM)
        assert list(command)[-1].signal == signal.SIGTERM


def test_files(session: Any, workspace: Path, tmp_path: Path) -> None:
    files = session.files
    files.write("a b", "text")
    assert (workspace / "a b").read_text() == "text" and files.read("a b", offset=1, limit=2) == b"ex"
    files.mkdir("d/e")
    files.rename("a b", "d/e/f")
    assert files.exists("d/e/f") and not files.exists("a b") and files.stat("d/e/f")["size"] == 4
    assert [e["name"] for e in files.list("d")] == ["e"]
    (tmp_path / "up").write_bytes(b"\0" * 70000)
    files.upload(tmp_path / "up", "/tmp/inside")
    assert session.run("import os\nos.path.getsize('/tmp/inside')").value == "70000"
    files.download("/tmp/inside", tmp_path / "down")
    for name in ("nothing", "d"):
        with pytest.raises(cellgate.CellgateError):
            files.download(name, tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == b"\0" * 70000
    with open(tmp_path / "tar", "w+b") as f:
        files.pack("d", f.fileno())
        f.seek(0)
        files.mkdir("copy")
        files.unpack("copy", f.fileno())
    assert files.read("copy/e/f") == b"text"
    files.remove("d")
    with pytest.raises(cellgate.NotFoundError):
        files.read("d/e/f")


def test_file_names_with_surrogates_and_nulls(session: Any, workspace: Path) -> None:
    name = os.fsdecode(b"\xff")
    session.files.write(name, b"1")
    assert os.listdir(os.fsencode(workspace)) == [b"\xff"] and session.files.read(name) == b"1"
    with pytest.raises(ValueError, match="null"):
        session.files.read("a\0b")


# ---------------------------------------------------------------- ends


def test_closed_session(client: Any, workspace: Path) -> None:
    s = cellgate.Session(workspace, client=client)
    s.close()
    s.close()
    with pytest.raises(cellgate.ClosedError):
        s.run("1")
    with pytest.raises(cellgate.ClosedError):
        _ = s.id


def test_close_while_another_thread_waits(client: Any, workspace: Path) -> None:
    s = cellgate.Session(workspace, client=client)
    failures: list[Exception] = []

    def wait() -> None:
        try:
            s.run("import time\ntime.sleep(60)")
        except cellgate.ClosedError as e:
            failures.append(e)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: bool(s._core.consumers))
    s.close()
    thread.join(30)
    assert not thread.is_alive() and len(failures) == 1


def test_many_threads(session: Any) -> None:
    results: dict[int, str | None] = {}

    def work(i: int) -> None:
        results[i] = session.run(f"{i}").value

    threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert results == {i: str(i) for i in range(20)}


def test_bad_arguments(client: Any, workspace: Path) -> None:
    with pytest.raises(TypeError):
        cellgate.Session(workspace, client=client, no_such_option=1)
    with pytest.raises(TypeError, match="sequence of texts"):  # its letters would be other files
        cellgate.Session(workspace, client=client, hide="ab")
    with pytest.raises(TypeError, match="sequence of texts"):
        cellgate.Sync(workspace, client, hide="ab")
    with pytest.raises(FileNotFoundError):  # it would be copied
        cellgate.Sync(workspace, client, hide=["no-such-file"])
    with pytest.raises(
        cellgate.InvalidArgumentError, match="answer is a list of elicitation, sampling, url: it has 'l'"
    ):
        cellgate.Session(workspace, client=client, answer="url")
    with pytest.raises(cellgate.CellgateError, match="network"):
        cellgate.Session(workspace, client=client, settings={"filesystem": {"allowWrite": 1}})
    with pytest.raises(cellgate.CellgateError):
        cellgate.Session(workspace / "missing", client=client)


def test_use_after_fork_is_refused_and_the_parent_goes_on(script: Any) -> None:
    done = script("""
        s = cellgate.Session()
        cell = s.stream("import time; time.sleep(1); 'parent'")
        pid = os.fork()
        if pid == 0:
            try:
                s.run("1")
            except cellgate.ForkedError as e:
                print("refused", e.code, flush=True)
            del s, cell
            import gc
            gc.collect()
            with cellgate.Session() as own:
                print(own.run("'child'").value, flush=True)
            sys.exit(0)
        os.waitpid(pid, 0)
        print([e.text for e in cell if isinstance(e, cellgate.ExecuteResult)])
    """)
    assert done.stdout.splitlines() == ["refused 0", "'child'", "[\"'parent'\"]"] and not done.stderr


def test_render() -> None:
    assert cellgate.render("a\x1b[31mb\u202ec") == "a\\x1b[31mb\\u202ec"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The runtime folder of a user whose programs share a supervisor."""
    monkeypatch.delenv("CELLGATE_PRIVATE")
    with runtime_folder() as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
        yield path


def test_clients_share_the_users_supervisor(folder: Path, workspace: Path, cellgate: Path) -> None:
    import cellgate as package

    env = {k: v for k, v in os.environ.items() if k != "CELLGATE_PRIVATE"}
    subprocess.run([cellgate, "run", "-c", "1"], cwd=workspace, env=env, check=True, capture_output=True)
    (pid,) = find_supervisors(folder)
    with package.Client() as a, package.Client() as b, package.Session(workspace, client=a) as s:
        assert s.run("6 * 7").value == "42"
        assert a.why_private is None
        assert a.status()["pid"] == b.status()["pid"] == pid
        assert b.sessions() == []
        with pytest.raises(package.CellgateError, match="1 session of other clients"):
            b.stop()
    assert find_supervisors(folder) == [pid]


@pytest.mark.parametrize(
    "options", [{"private": True}, {"log_level": 2, "log_fd": 2}, {"address": None, "private": True, "spares": 0}]
)
def test_private_clients(folder: Path, workspace: Path, options: dict[str, Any]) -> None:
    import cellgate as package

    with package.Client(**options) as client, package.Session(workspace, client=client) as s:
        assert s.run("6 * 7").value == "42"
        assert "linger_ms" not in client.status()
        assert client.why_private is None
    assert not find_supervisors(folder)


def test_sessions_that_are_private(folder: Path, workspace: Path) -> None:
    """In a process of their own: its clients stay until it ends."""
    code = """
import asyncio, sys, cellgate, cellgate.aio
async def main():
    async with cellgate.aio.Session(sys.argv[1], private=True) as s:
        return (await s.run("1 + 1")).value
with cellgate.Session(sys.argv[1], private=True) as s, cellgate.Session(sys.argv[1], sandbox=False) as t:
    print(s.run("1").value, asyncio.run(main()), t.run("3").value, s._core.client is t._core.client)
    print("linger_ms" in s._core.client.status())
with cellgate.Session(sys.argv[1]) as s:
    print("linger_ms" in s._core.client.status())
"""
    path = os.pathsep.join(p for p in sys.path if p.endswith("cellgate/package"))
    done = subprocess.run(
        [sys.executable, "-c", code, str(workspace)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split("\n") == ["1 2 3 True", "False", "True", ""], done.stderr
    assert len(find_supervisors(folder)) == 1


def test_runtimes_are_found_by_trying(client: Any) -> None:
    python, shell, node, *_kernels = cellgate.list_runtimes(client, node="/none")
    assert python["available"] and python["packages"] == "pip" and python["version"].startswith("3.")
    assert shell["available"] and shell["path"].endswith("bash") and shell["start_ms"] >= 0
    assert not node["available"] and "/none is no program" in node["why"] and node["version"] is None


def test_the_shell_as_language(client: Any, workspace: Path) -> None:
    with cellgate.Session(workspace, client=client, language="shell") as session:
        session.run("x=5; cd /usr")
        assert session.run("echo $x; pwd").stdout == "5\n/usr\n"
        assert session.info["language"] == "shell"
        with pytest.raises(cellgate.CellError, match="exit status 3|ExitStatus"):
            session.run("exit 3").check()
