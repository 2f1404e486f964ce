"""Messages by hand: versions, errors, what a client may do wrong, and how the server ends."""

import fcntl
import json
import os
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp_serve.helpers import Raw, text_of
from processes import alive, eventually, gate

Serve = Callable[..., Raw]
VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_known_version_is_echoed(serve: Serve, version: str) -> None:
    server = serve()
    result = server.initialize(version)
    assert result["protocolVersion"] == version
    assert text_of(server.result(server.call("execute_ipython_cell", code="1"))) == "1"
    assert result["serverInfo"]["name"] == "cellgate"
    assert "tools" in result["capabilities"]
    assert "mcptools" in result["instructions"]


def test_an_unknown_version_gets_the_newest(serve: Serve) -> None:
    server = serve()
    for version in ("2026-07-28", "1999-01-01", ""):
        assert server.initialize(version)["protocolVersion"] == "2025-11-25"


def test_unknown_methods_do_not_end_it(serve: Serve) -> None:
    server = serve()
    for method, params in [("no/such", None), ("prompts/list", {})]:
        assert server.answer(server.request(method, params))["error"]["code"] == -32601
    server.initialize()
    assert server.result(server.request("ping")) == {}


def test_tools_need_the_handshake_but_ping_does_not(serve: Serve) -> None:
    server = serve()
    assert server.result(server.request("ping")) == {}
    assert server.answer(server.request("tools/list"))["error"]["code"] == -32600
    assert server.answer(server.call("reset"))["error"]["code"] == -32600


GARBAGE = [
    (b"this is no JSON", -32700),
    (b"{", -32700),
    (b"\xff\xfe\x00", -32700),
    (b"[]]", -32600),
    (b"[]", -32600),
    (b"{}", -32600),
    (b"42", -32700),
    (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1}', -32600),
]


def test_garbage_gets_an_error_and_does_no_harm(serve: Serve) -> None:
    server = serve()
    server.initialize()
    for line, code in GARBAGE:
        server.write(line + b"\n\n\r\n")
        message = server.receive()
        assert message["id"] is None and message["error"]["code"] == code, line
        assert server.result(server.request("ping")) == {}


def test_a_line_over_the_limit_is_left_out(serve: Serve) -> None:
    server = serve()
    server.initialize()
    server.write(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"' + b"x" * (65 << 20) + b'"}}\n')
    message = server.receive()
    assert message["id"] is None and "67108" in message["error"]["message"]
    assert server.result(server.request("ping")) == {}


def test_a_batch_is_for_one_version_only(serve: Serve) -> None:
    server = serve()
    server.initialize("2025-03-26")
    server.send([{"jsonrpc": "2.0", "id": "a", "method": "ping"}, {"jsonrpc": "2.0", "id": "b", "method": "ping"}])
    assert server.answer("a")["result"] == {} and server.answer("b")["result"] == {}
    newer = serve()
    newer.initialize()
    newer.send([{"jsonrpc": "2.0", "id": "a", "method": "ping"}])
    assert newer.receive()["error"]["code"] == -32600


def test_ids_come_back_as_they_were(serve: Serve) -> None:
    server = serve()
    server.initialize()
    for id in (0, -3, 9007199254740993, "x", "", "a\n\u00fc\U0001f600"):
        server.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "reset"}})
        assert not server.answer(id)["result"]["isError"]


def test_malformed_calls_are_protocol_errors(serve: Serve) -> None:
    server = serve()
    server.initialize()
    for params in ({"name": "no_such_tool"}, {}, {"name": 5}, {"name": "reset", "arguments": []}, []):
        server.send({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params})
        assert server.answer(9)["error"]["code"] == -32602, params


WRONG_ARGUMENTS = [
    ("execute_ipython_cell", {}, '"code" is missing'),
    ("execute_ipython_cell", {"code": 5}, '"code"'),
    ("execute_ipython_cell", {"code": "1", "timeout": "soon"}, '"timeout" must be a number'),
    ("execute_ipython_cell", {"code": "1", "timeout": 0}, "more than 0"),
    ("execute_ipython_cell", {"code": "1", "timeout": -1}, "more than 0"),
    ("execute_ipython_cell", {"code": "1", "max_output_chars": -1}, "whole number"),
    ("execute_ipython_cell", {"code": "1", "max_output_chars": 1.5}, "whole number"),
    ("execute_ipython_cell", {"code": "\ud800"}, '"code"'),
    ("execute_ipython_cell", {"code": "\0"}, '"code"'),
    ("register_mcp_server", {"server_name": "x"}, '"server_params" is missing'),
    ("register_mcp_server", {"server_name": "../x", "server_params": {}}, "path"),
    ("register_mcp_server", {"server_name": "cellgate", "server_params": {}}, "cannot name"),
    ("register_mcp_server", {"server_name": "x", "server_params": []}, "server_params"),
    ("install_package", {}, '"package_name" is missing'),
]


def test_wrong_arguments_are_tool_errors_that_say_what(serve: Serve) -> None:
    server = serve("--approve", "all")
    server.initialize()
    for tool, arguments, words in WRONG_ARGUMENTS:
        result = server.result(server.request("tools/call", {"name": tool, "arguments": arguments}))
        assert result["isError"] and words in text_of(result), (tool, arguments)


def test_ping_is_answered_while_a_cell_runs_and_cells_keep_their_order(serve: Serve, workspace: Path) -> None:
    server = serve()
    server.initialize()
    release = gate(workspace)
    code = "open('go').read()\nprint('first')"
    first = server.call("execute_ipython_cell", code=code)
    second = server.call("execute_ipython_cell", code="print('second')")
    assert server.result(server.request("ping")) == {}
    release()
    assert text_of(server.result(first)) == "first"
    assert text_of(server.result(second)) == "second"


def test_a_cancelled_cell_is_interrupted_and_not_answered(serve: Serve, workspace: Path) -> None:
    server = serve()
    server.initialize()
    code = (
        "import time\nstate = 1\n"
        "try:\n    open('started', 'w').close()\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    open('interrupted', 'w').close()\n    raise"
    )
    running = server.call("execute_ipython_cell", code=code)
    waiting = server.call("execute_ipython_cell", code="open('never', 'w').close()")
    eventually((workspace / "started").exists)
    server.notify("notifications/cancelled", {"requestId": waiting, "reason": "test"})
    server.notify("notifications/cancelled", {"requestId": running})
    server.notify("notifications/cancelled", {"requestId": 999})
    server.notify("notifications/cancelled", {})
    assert text_of(server.result(server.call("execute_ipython_cell", code="state"))) == "1"
    assert (workspace / "interrupted").exists() and not (workspace / "never").exists()


def test_progress_comes_with_the_token_and_ends_before_the_answer(serve: Serve) -> None:
    server = serve()
    server.initialize()
    server.result(server.call("execute_ipython_cell", code="1"))  # the kernel has started, however slow the machine is
    first = server.call("execute_ipython_cell", token="tok", code="import time; time.sleep(7.5)")
    second = server.call("execute_ipython_cell", token=17, code="1")
    seen: dict[object, list[float]] = {"tok": [], 17: []}
    words: list[tuple[object, str]] = []
    answered = []
    while len(answered) < 2:
        message = server.receive()
        if "id" in message:
            answered.append(message["id"])
            continue
        assert message["method"] == "notifications/progress"
        params = message["params"]
        assert params["progressToken"] not in answered
        seen[params["progressToken"]].append(params["progress"])
        words.append((params["progressToken"], params["message"].split(",")[0]))
    assert answered == [first, second]
    for values in seen.values():
        assert len(values) >= 2 and values == sorted(set(values))
    assert {w for token, w in words if token == "tok"} == {"running"}
    assert [w for token, w in words if token == 17][:2] == [
        "waiting",
        "waiting",
    ]  # on a slow machine it may be reported as running, too


def test_too_many_calls_are_refused_at_once(serve: Serve, workspace: Path) -> None:
    server = serve()
    server.initialize()
    first = server.call("execute_ipython_cell", code="import time; time.sleep(60)")
    ids = [server.call("execute_ipython_cell", code="1") for _ in range(64)]
    assert "too many" in server.answer(ids[-1])["error"]["message"]
    server.send({"jsonrpc": "2.0", "id": ids[0], "method": "tools/call", "params": {"name": "reset"}})
    assert "this id" in server.answer(ids[0])["error"]["message"]
    server.notify("notifications/cancelled", {"requestId": first})
    for id in ids[:-1]:
        assert text_of(server.result(id)) == "1"


def test_calls_before_the_end_of_input_are_answered(
    cellgate: Path, workspace: Path, environment: dict[str, str]
) -> None:
    init = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": init},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    done = subprocess.run(
        [str(cellgate), "mcp", "serve"],
        input="\n".join(map(json.dumps, lines)),  # the last line has no end
        capture_output=True,
        text=True,
        cwd=workspace,
        env=environment,
        timeout=30,
    )
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]


def children_of(pid: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found |= {int(entry.name)} | children_of(int(entry.name))
    return found


@pytest.mark.sanitized_in_soak
@pytest.mark.own_supervisor
@pytest.mark.parametrize(
    ("how", "busy"),
    [
        *[("eof", False), ("eof", True), ("SIGTERM", True), ("SIGINT", False), ("SIGHUP", False)],
        *[("SIGKILL", True), ("reader gone", True)],
    ],
)
def test_its_end_ends_everything(
    serve: Serve, environment: dict[str, str], how: str, busy: bool, mcp_file: Path, tmp_path: Path
) -> None:
    server = serve("--mcp", mcp_file)
    server.initialize()
    server.result(server.call("execute_ipython_cell", code="1"))
    if busy:
        server.call("execute_ipython_cell", code="import time\nopen('up', 'w').close()\nwhile True: pass")
        eventually((tmp_path / "workspace/up").exists)
    processes = children_of(server.process.pid)
    assert len(processes) >= 4  # supervisor, tool server, zygote, kernel...
    packages = Path(environment["XDG_CACHE_HOME"], "cellgate/packages")
    assert len(list(packages.iterdir())) == 1
    if how == "eof":
        server.close_input()
    elif how == "reader gone":
        server.stop_reading()
        server.request("ping")
    else:
        server.process.send_signal(getattr(signal, how))
    status = server.wait(20)
    expected = {"eof": 0, "reader gone": 0, "SIGKILL": -9}
    assert status == (expected[how] if how in expected else 128 + getattr(signal, how))
    eventually(lambda: not any(map(alive, processes)))
    if how == "SIGKILL":
        serve().initialize()  # the next server removes what the killed one left
        assert len(list(packages.iterdir())) == 1
    else:
        assert list(packages.iterdir()) == []


def test_who_can_read_the_packages_cannot_keep_servers_from_starting(serve: Serve, environment: dict[str, str]) -> None:
    """Kernels can, and they can lock files that they can open. Servers lock a file without read permission."""
    cache = Path(environment["XDG_CACHE_HOME"], "cellgate")
    serve().initialize()
    fd = os.open(cache / "packages", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    other = serve()
    other.initialize()
    assert text_of(other.result(other.call("execute_ipython_cell", code="1"))) == "1"
    os.close(fd)
    lock = cache / "packages.lock"
    assert lock.stat().st_mode & 0o777 == 0o200
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = serve()
        time.sleep(0.3)
    waiting.initialize()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_waiting_costs_nothing(serve: Serve) -> None:
    server = serve()
    server.initialize()
    server.result(server.call("execute_ipython_cell", code="1"))
    server.call("execute_ipython_cell", token=1, code="import time; time.sleep(60)")
    before = cpu_seconds(server.process.pid)
    time.sleep(1)
    assert cpu_seconds(server.process.pid) - before < 0.2


def test_standard_output_carries_nothing_else(serve: Serve) -> None:
    server = serve("--no-sandbox", "--log-level", "3")
    server.initialize()
    # Even the server's own descriptor 1 leads to standard error: what a library or a child prints cannot come between.
    assert os.readlink(f"/proc/{server.process.pid}/fd/1") == os.readlink(f"/proc/{server.process.pid}/fd/2")
    assert os.readlink(f"/proc/{server.process.pid}/fd/0") == "/dev/null"
    code = "import os, subprocess\nos.write(1, b'raw\\n')\nsubprocess.run(['echo', 'child'])\nprint('python')"
    assert text_of(server.result(server.call("execute_ipython_cell", code=code))) == "raw\nchild\npython"


@pytest.mark.sanitized_in_soak
def test_a_client_that_does_not_read_stops_the_work_and_loses_nothing(serve: Serve, workspace: Path) -> None:
    server = serve("--plain-results", "--wait", "3600", read=False)
    numbers = range(10, 34)
    init = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    first = server.request("initialize", init)
    code = "open('done', 'w').write('{n}')\n'{n}' * 1_900_000"
    ids = [server.call("execute_ipython_cell", code=code.format(n=n), max_output_chars=4_000_000) for n in numbers]
    done = workspace / "done"
    eventually(lambda: done.exists() and done.read_text() == "27", 60)
    time.sleep(3)  # the rest would be done in this time: no event shows that it is not
    assert done.read_text() < str(numbers[-1] - 2)
    server.start_reading()
    assert server.result(first)["protocolVersion"] == "2025-11-25"
    for n, id in zip(numbers, ids, strict=True):
        assert text_of(server.result(id, 60)) == repr(f"{n}" * 1_900_000)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--aprove", "all"], "did you mean --approve"),
        (["--approve", "filesystem"], "filesystem"),
        (["--workspace", "/no/such/folder"], "/no/such/folder"),
        (["--mcp", "/no/such/file"], "/no/such/file"),
        (["--env", "X"], "NAME=VALUE"),
        (["--ask-timeout", "0"], "more than 0"),
        (["--wait", "0"], "--wait must be more than 0"),
        (["--toolsets", "core,all"], 'no toolset "all"; give some of core, jobs, sessions'),
        (["--toolsets", "core,"], 'no toolset ""'),
        (["--log-level", "9"], "0 to 3"),
        (["--print-config", "emacs"], "claude, cursor, vscode, codex or generic"),
        (["--print-config", "codex", "--mcp", "missing.json"], "--mcp missing.json"),
        (["--print-config", "codex", "--images", "plots"], "absolute path"),
        (["extra"], "extra"),
    ],
)
def test_settings_that_are_wrong_end_it_at_once(run_cellgate: Callable, args: list[str], words: str) -> None:
    done = run_cellgate("mcp", "serve", *args)
    assert done.returncode == 2 and words in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"mcpServers": {,}}', "line 1"), ('{"mcpServers": []}', "must be an object"), ('{"cellgate": {}}', "taken")],
)
def test_an_mcp_file_that_is_wrong_ends_it_at_once(
    run_cellgate: Callable, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "bad.json").write_text(text)
    done = run_cellgate("mcp", "serve", "--mcp", "bad.json")
    assert done.returncode == 2 and words in done.stderr and "bad.json" in done.stderr


@pytest.mark.parametrize("client", ["claude", "cursor", "vscode", "codex", "generic"])
def test_a_printed_configuration_starts_the_server(run_cellgate: Callable, tmp_path: Path, client: str) -> None:
    """As the client would: from another folder."""
    (tmp_path / "servers.json").write_text("{}")
    options = ["--mcp", "servers.json", "--approve=!x.*", "--lax-rules", "--env", 'A=a "b" \\ \u00e9']
    done = run_cellgate("mcp", "serve", "--print-config", client, *options)
    assert done.returncode == 0 and "Put this into" in done.stderr
    config = tomllib.loads(done.stdout) if client == "codex" else json.loads(done.stdout)
    (servers,) = config.values()
    definition = servers["cellgate"]
    assert definition["args"][2:] == [
        f"--mcp={tmp_path}/servers.json",
        "--approve=!x.*",
        "--lax-rules",
        '--env=A=a "b" \\ \u00e9',
        f"--workspace={tmp_path}",
    ]
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    p = subprocess.run(
        [definition["command"], *definition["args"]],
        input=json.dumps(hello | {"params": params}) + "\n",
        capture_output=True,
        text=True,
        cwd="/",
        env={"CELLGATE_PRIVATE": "1", "HOME": str(tmp_path)},
    )
    assert json.loads(p.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "cellgate", p.stderr


def test_help_and_other_subcommands(run_cellgate: Callable) -> None:
    assert "--approve RULE" in run_cellgate("mcp", "serve", "--help").stdout
    assert run_cellgate("mcp").returncode == 2
    assert "mcp serve" in run_cellgate("mcp", "dance").stderr


def test_at_a_terminal_it_says_what_it_waits_for(cellgate: Path, workspace: Path, slowness: float) -> None:
    master, slave = os.openpty()
    pipe = subprocess.PIPE
    with subprocess.Popen([cellgate, "mcp", "serve"], cwd=workspace, stdin=slave, stdout=pipe, stderr=pipe) as p:
        os.close(slave)
        assert p.stderr and b"waiting for the messages of an MCP client" in p.stderr.readline()
        os.write(master, b"\x04")
        assert p.communicate(timeout=20 * slowness) == (b"", b"")
    os.close(master)
    assert p.returncode == 0


@pytest.mark.parametrize("token", ["tok", None])
def test_progress_of_tools_is_passed_on(serve: Serve, asking: Callable[..., Path], token: str | None) -> None:
    """To a client that wants progress of its call; the values grow, whatever the server counts."""
    server = serve("--mcp", asking(), "--approve", "all")
    server.initialize()
    values = [{"progress": n, "message": f"m{n}"} for n in (1, 1000, 2000)]
    code = f"from mcptools.s import report; report.run(values={values!r}, pause=0.6)"
    call = server.call("execute_ipython_cell", token=token, code=code)
    seen = []
    while "id" not in (message := server.receive()):
        assert message["method"] == "notifications/progress" and message["params"]["progressToken"] == token
        seen.append(message["params"])
    assert message["id"] == call
    progress = [p["progress"] for p in seen]
    assert progress == sorted(set(progress))
    found = [p["message"] for p in seen if "report" in p["message"]]
    sent = [f"s.report: {n}, m{n}" for n in (1, 1000, 2000)] if token else []
    # at most 4 a second: on a slow machine the newest
    assert bool(found) == bool(sent) and set(found) <= set(sent) and found == sorted(found, key=sent.index)
