"""`--compat srt`: the tools of srt's MCP server, each allow with its deny."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from processes import eventually

Connect = Callable[..., AbstractContextManager[Any]]
MANY = "for i in 1 2 3; do sleep {0} & setsid sleep {0} & done; trap '' TERM; echo up; wait; sleep {0}"


class Srt:
    """The tools of a server whose workspace is `folder`."""

    def __init__(self, server: Any, folder: Path) -> None:
        self.server, self.folder = server, folder

    def call(self, name: str, **arguments: Any) -> Any:
        answer = self.server.raw(name, **arguments)
        result = json.loads(answer.content[0].text)
        assert answer.structured_content == (result if isinstance(result, dict) else {"result": result})
        assert answer.is_error == ("error" in result)
        return result

    def run(self, command: str, **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.call("execute_code", command=command, **arguments)
        return found

    def start(self, command: str, **arguments: Any) -> str:
        answer = self.call("execute_code_async", command=command, **arguments)
        assert answer["status"] == "running"
        return str(answer["execution_id"])

    def wait_for(self, id: str, text: str) -> None:
        """Until an execution has written this."""
        eventually(lambda: text in shown(self.call("get_execution_output", execution_id=id)))


def shown(answer: dict[str, Any], stream: str = "stdout") -> str:
    return "".join(e["data"] for e in answer["output"] if e["type"] == stream)


def types(answer: dict[str, Any]) -> list[str]:
    return [e["type"] for e in answer["output"]]


def reasons(answer: dict[str, Any]) -> list[str]:
    return [e["reason"] for e in answer["output"] if e["type"] == "resource_limit"]


def processes(word: str) -> list[str]:
    """Processes of this machine that have an argument."""
    found = subprocess.run(["pgrep", "-fx", word], capture_output=True, text=True)
    return found.stdout.split()


@pytest.fixture(scope="module")
def home(build_dir: Path) -> Iterator[Path]:
    """Not in /tmp, of which every sandbox has its own."""
    with TemporaryDirectory(dir=build_dir) as folder:
        home = Path(folder)
        (home / ".ssh").mkdir()
        (home / ".ssh/id_ed25519").write_text("secret key")
        (home / "notes").write_text("readable")
        yield home


@pytest.fixture(scope="module")
def srt(cellgate: Path, package: Path, connect: Connect, home: Path, tmp_path_factory: Any) -> Iterator[Srt]:
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "src").mkdir()
    more = {"HOME": str(home), "SRT_TEST_SECRET": "of the server"}
    with connect(cellgate, home, "--workspace", folder, surface="srt", **more) as server:
        yield Srt(server, folder)


@pytest.fixture
def serve(cellgate: Path, tmp_path: Path, package: Path, connect: Connect) -> Iterator[Callable[..., Srt]]:
    """serve(OPTION..., VARIABLE=VALUE...): another server, with the workspace tmp_path/w."""
    folder = tmp_path / "w"
    folder.mkdir()
    with ExitStack() as stack:
        yield lambda *options, **env: Srt(
            stack.enter_context(connect(cellgate, tmp_path, *options, surface="srt", **env)), folder
        )


# ---------------------------------------------------------------- the calls of the document


def test_tools_and_their_parameters(srt: Srt) -> None:
    tools = {t.name: t.input_schema for t in srt.server._portal.call(srt.server.session.list_tools).tools}
    parameters = {name: schema["properties"] for name, schema in tools.items()}
    defaults = {
        "timeout_seconds": 60,
        "interactive": False,
        "working_directory": None,
        "environment": None,
        "sandbox_config": None,
    }
    for name, more in (("execute_code", {"wait_for_completion": True}), ("execute_code_async", {})):
        assert tools[name]["required"] == ["command"]
        found = {n: p["default"] for n, p in parameters[name].items() if "default" in p}
        assert found == {**defaults, **more}
    assert tools["send_stdin"]["required"] == ["execution_id", "input_data"]
    assert parameters["cancel_execution"]["force"]["default"] is False
    assert parameters["get_execution_output"]["wait"]["default"] is False
    assert set(parameters["get_execution_status"]) == {"execution_id"} and not parameters["list_executions"]


def test_a_command(srt: Srt) -> None:
    answer = srt.run("echo out; echo err >&2; exit 3")
    assert set(answer) == {"execution_id", "status", "exit_code", "output"}
    assert (answer["status"], answer["exit_code"]) == ("completed", 3)
    assert types(answer)[0] == "ready" and types(answer)[-1] == "exit"
    assert (shown(answer), shown(answer, "stderr")) == ("out\n", "err\n")
    assert answer["output"][-1]["code"] == 3 and answer["output"][-1]["duration_ms"] > 0
    assert all(abs(e["ts"] - time.time()) < 60 for e in answer["output"])
    assert srt.run("kill -9 $$")["exit_code"] == 137


def test_a_command_that_is_not_waited_for(srt: Srt) -> None:
    answer = srt.run("cat; sleep 0.2; printf 'a\\nb'", wait_for_completion=False)
    assert answer.pop("message") and answer["status"] == "running"
    id = answer["execution_id"]
    assert srt.call("get_execution_status", execution_id=id)["status"] == "running"
    done = srt.call("get_execution_output", execution_id=id, wait=True)
    assert (done["status"], done["exit_code"], shown(done)) == ("completed", 0, "a\nb")
    assert [e["data"] for e in done["output"] if e["type"] == "stdout"] == ["a\n", "b"]
    assert srt.call("get_execution_output", execution_id=id) == done
    status = srt.call("get_execution_status", execution_id=id)
    assert status["completed_at"] > status["started_at"] and status["command"].startswith("cat")
    assert (status["exit_code"], status["error_message"], status["interactive"]) == (0, None, False)
    listed = {e["id"]: e for e in srt.call("list_executions")}
    assert listed[id] == {k: v for k, v in status.items() if k not in ("exit_code", "error_message")}


def test_unknown_executions(srt: Srt) -> None:
    for name, more in (
        ("get_execution_output", {}),
        ("get_execution_status", {}),
        ("cancel_execution", {}),
        ("send_stdin", {"input_data": "x"}),
    ):
        assert srt.call(name, execution_id="nothing", **more)["error"].startswith("Execution not found")


def test_environment_and_folder(srt: Srt) -> None:
    """Variables reach the command; those of the server do not."""
    answer = srt.run('echo "$A ${SRT_TEST_SECRET-absent} $PWD"', environment={"A": "b c"}, working_directory="src")
    assert shown(answer) == f"b c absent {srt.folder}/src\n"
    os.symlink("/etc", srt.folder / "link")
    for folder in ("..", "/etc", "link", "missing", "src/../.."):
        assert "no folder in" in srt.run("true", working_directory=folder)["error"]
    for name in ("", "A=B", "A\0"):
        assert "environment" in srt.run("true", environment={name: "x"})["error"]
    # It changes nothing outside.
    answer = srt.run("echo $LD_PRELOAD", environment={"PATH": "/nowhere", "LD_PRELOAD": "/nowhere.so"})
    assert answer["status"] in ("completed", "failed") and srt.run("echo 1")["exit_code"] == 0


def test_interactive(srt: Srt) -> None:
    code = 'printf \'name? \'; read name; echo "hello $name"; read more; echo "<$more>"'
    id = srt.start(code, interactive=True)
    srt.wait_for(id, "name? ")  # without the end of the line
    assert srt.call("send_stdin", execution_id=id, input_data="you") == {"success": True}
    srt.wait_for(id, "hello you")
    assert srt.call("send_stdin", execution_id=id, input_data="end\n") == {"success": True}
    done = srt.call("get_execution_output", execution_id=id, wait=True)
    assert shown(done) == "name? hello you\n<end>\n"
    assert srt.call("send_stdin", execution_id=id, input_data="x")["error"] == "Execution already completed"
    id = srt.start("cat; echo end")
    assert srt.call("send_stdin", execution_id=id, input_data="x")["error"] == "Execution is not interactive"
    assert shown(srt.call("get_execution_output", execution_id=id, wait=True)) == "end\n"


# ---------------------------------------------------------------- the sandbox


def test_files(srt: Srt, home: Path) -> None:
    answer = srt.run(f"echo x > in.txt && cat in.txt; echo x > {home}/notes; echo x > /etc/srt-attack")
    assert shown(answer) == "x\n" and (srt.folder / "in.txt").read_text() == "x\n"
    assert (home / "notes").read_text() == "readable" and not Path("/etc/srt-attack").exists()
    assert shown(answer, "stderr").count("\n") == 2
    assert all(any(p in v for v in answer["violations"]) for p in (f"{home}/notes", "/etc/srt-attack")), answer
    assert srt.run("echo x > .bashrc")["exit_code"] != 0  # a name that programs outside obey


def test_credentials(srt: Srt, home: Path) -> None:
    answer = srt.run(f"cat {home}/notes; cat {home}/.ssh/id_ed25519; ls -A {home}/.ssh")
    assert shown(answer) == "readable" and "secret" not in json.dumps(answer), answer


def test_hosts(serve: Callable[..., Srt], port: int) -> None:
    fetch = "curl -sS --noproxy '' --max-time 5 http://127.0.0.1:{0}/"
    server = serve("--allow-host", f"127.0.0.1:{port}", "--workspace", "w")
    assert "hello from outside" in shown(server.run(fetch.format(port)))
    assert "hello from outside" not in shown(server.run(fetch.format(9)))
    none = {"network": {"allowedDomains": []}}
    assert "hello from outside" not in shown(server.run(fetch.format(port), sandbox_config=none))
    one = {"network": {"allowed_domains": [f"127.0.0.1:{port}"]}}
    assert "hello from outside" in shown(server.run(fetch.format(port), sandbox_config=one))
    denied = {"network": {**one["network"], "denied_domains": ["127.0.0.1"]}}
    assert "hello from outside" not in shown(server.run(fetch.format(port), sandbox_config=denied))
    for host in ("127.0.0.1", "127.0.0.1:9", "example.org"):
        wide = server.run("true", sandbox_config={"network": {"allowed_domains": [host]}})
        assert f"{host} is not among the hosts of the server's --allow-host (127.0.0.1:{port})" in wide["error"]


@pytest.mark.parametrize(
    ("allowed", "host", "covered"),
    [
        ("a.example", "a.example", True),
        ("a.example", "A.example:80", True),
        ("a.example:80", "a.example", False),
        ("a.example:80", "a.example:443", False),
        ("*.a.example", "b.a.example", True),
        ("*.a.example", "*.b.a.example", True),
        ("*.a.example", "a.example", False),
        ("*.a.example", "xa.example", False),
        ("a.example", "*.a.example", False),
        ("[::1]:80", "[::1]", False),
        ("[::1]", "[::1]:80", True),
    ],
)
def test_hosts_that_a_call_may_name(package: Path, allowed: str, host: str, covered: bool) -> None:
    from cellgate.surfaces.srt import covers

    assert covers(allowed, host) is covered


def test_a_configuration_narrows(srt: Srt) -> None:
    """A section that is given replaces the server's, as in the original: what it leaves out is not allowed."""
    write = "echo x > src/a; echo x > b; echo x > /tmp/c; ls src/a b /tmp/c 2>/dev/null"
    for config, made in (
        ({}, "/tmp/c\nb\nsrc/a\n"),
        ({"filesystem": {"allowWrite": [".", "src/", "/tmp"]}}, "/tmp/c\nb\nsrc/a\n"),
        ({"filesystem": {"allow_write": ["src"]}}, "/tmp/c\nsrc/a\n"),
        ({"filesystem": {"allow_write": ["src/**", "."], "deny_write": ["b"]}}, "/tmp/c\nsrc/a\n"),
        ({"filesystem": {}, "network": {}}, "/tmp/c\n"),
    ):
        for name in ("src/a", "b"):
            (srt.folder / name).unlink(missing_ok=True)
        answer = srt.run(write, sandbox_config=config)
        assert shown(answer) == made, config
    (srt.folder / "hidden").mkdir()
    (srt.folder / "hidden/x").touch()
    assert shown(srt.run("ls hidden")) == "x\n"
    assert shown(srt.run("ls hidden", sandbox_config={"filesystem": {"deny_read": ["hidden"]}})) == ""


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"filesystem": {"allow_write": ["/"]}}, "the server may write"),
        ({"filesystem": {"allow_write": ["~"]}}, "the server may write"),
        ({"filesystem": {"allow_write": ["src", ".."]}}, "the server may write"),
        ({"filesystem": {"allow_write": ["outside/x"]}}, "the server may write"),
        ({"filesystem": {"allow_git_config": True}}, "filesystem.allow_git_config allows"),
        ({"network": {"allow_unix_sockets": ["/run/docker.sock"]}}, "network.allow_unix_sockets allows"),
        ({"network": {"allowAllUnixSockets": True}}, "network.allow_all_unix_sockets allows"),
        ({"network": {"allow_local_binding": True}}, "network.allow_local_binding allows"),
        ({"network": {"http_proxy_port": 8080}}, "network.http_proxy_port allows"),
        ({"network": {"allowed_domains": ["example.org"]}}, "not among the hosts of the server's --allow-host (none)"),
        ({"enable_weaker_nested_sandbox": True}, "enable_weaker_nested_sandbox allows"),
        ({"cellgate": {"hideCredentials": False}}, "cellgate allows"),
        ({"mandatory_deny_search_depth": 1}, "is at least 3"),
        ({"filesystem": {"allowWrites": []}}, "unknown name"),
        ({"filesystem": {"allow_write": "."}}, "must be a list"),
        ({"network": None}, "must be an object"),
        ({"resource_limits": {"max_memory_mb": 65536 * 16}}, "must be 1 to 65536"),
        ({"resource_limits": {"max_processes": 513}}, "over the maximum of 512 (--limit processes"),
        ({"resource_limits": {"max_memory_mb": 1}}, "64"),
    ],
)
def test_a_configuration_that_would_widen_is_refused(srt: Srt, config: dict[str, Any], says: str) -> None:
    if not (srt.folder / "outside").exists():
        os.symlink("/var", srt.folder / "outside")
    answer = srt.run("touch ran", sandbox_config=config)
    assert answer["status"] == "failed" and says in answer["error"], answer
    assert not (srt.folder / "ran").exists()


def test_a_folder_that_another_command_can_replace(srt: Srt) -> None:
    """By a link, while the sandbox that is to write it is made."""
    config = {"filesystem": {"allow_write": ["src"]}}
    id = srt.start("sleep 60")
    assert f"execution {id}, which runs, can replace the folder" in srt.run("true", sandbox_config=config)["error"]
    srt.call("cancel_execution", execution_id=id, force=True)
    first = srt.start("sleep 0.5", sandbox_config=config)
    assert srt.run("true", sandbox_config=config)["exit_code"] == 0
    assert srt.call("get_execution_output", execution_id=first, wait=True)["exit_code"] == 0


def test_without_a_workspace_nothing_is_written(serve: Callable[..., Srt], tmp_path: Path) -> None:
    server = serve()
    assert shown(server.run("pwd; echo x > file")) == f"{tmp_path}\n" and not (tmp_path / "file").exists()
    answer = server.run("true", sandbox_config={"filesystem": {"allow_write": ["."]}})
    assert "the server may write nothing, for it has no --workspace" in answer["error"]


# ---------------------------------------------------------------- limits


def test_resource_limits(serve: Callable[..., Srt]) -> None:
    server = serve("--workspace", "w", "--limit", "memoryMb=300", "--limit", "fileMb=2")
    answer = server.run("head -c 1500000 /dev/zero > a && head -c 3000000 /dev/zero > b")
    assert answer["exit_code"] == 153 and reasons(answer) == ["the limit of 2 MB of a file was reached"], answer
    limits = {"resource_limits": {"max_file_size_mb": 1}}
    assert server.run("head -c 1500000 /dev/zero > a", sandbox_config=limits)["exit_code"] == 153
    over = server.run("true", sandbox_config={"resource_limits": {"max_file_size_mb": 3}})
    assert "resource_limits.max_file_size_mb: 3 is over the maximum of 2 (--limit fileMb" in over["error"]
    take = "python3 -c 'print(len(bytearray(150 << 20)))'"
    assert shown(server.run(take)) == f"{150 << 20}\n"
    answer = server.run(take, sandbox_config={"resource_limits": {"max_memory_mb": 128}})
    assert shown(answer) == "" and answer["exit_code"] != 0, answer
    answer = server.run(
        "for i in $(seq 40); do sleep 1 & done 2>/dev/null; jobs -p | wc -l",
        sandbox_config={"resource_limits": {"max_processes": 20}},
    )
    assert shown(answer).strip() != "40", answer


def test_processor_time(srt: Srt) -> None:
    limits = {"resource_limits": {"max_cpu_seconds": 1}}
    answer = srt.run("while :; do :; done", sandbox_config=limits, timeout_seconds=20)
    assert answer["exit_code"] in (137, 152), answer
    assert "the limit of 1 seconds of CPU time was reached" in reasons(answer), answer


def test_time_limit(srt: Srt) -> None:
    answer = srt.run("echo begun; setsid sleep 987601 & trap '' TERM; sleep 987601", timeout_seconds=1)
    assert (answer["status"], answer["exit_code"], shown(answer)) == ("timeout", None, "begun\n")
    assert types(answer)[-1] == "timeout" and answer["output"][-1]["timeout_seconds"] == 1
    assert processes("sleep 987601") == []
    for seconds in (0, -1, 301):
        says = f"timeout_seconds {seconds} is not from 1 to the maximum of 300 (SANDBOX_TIMEOUT)"
        assert srt.run("true", timeout_seconds=seconds)["error"] == says


@pytest.mark.parametrize(("number", "stubborn", "force"), [(1, False, False), (2, True, False), (3, True, True)])
def test_cancel_ends_a_tree_of_processes(srt: Srt, number: int, stubborn: bool, force: bool) -> None:
    """Also those that have left its group, and a program that ignores SIGTERM, 5 s later."""
    word = f"sleep 98770{number}"
    code = MANY.format(word.split()[1])
    id = srt.start(code if stubborn else code.replace("trap '' TERM; ", ""), timeout_seconds=100)
    srt.wait_for(id, "up")
    eventually(lambda: len(processes(word)) == 6)
    assert srt.call("cancel_execution", execution_id=id, force=force) == {"success": True, "was_running": True}
    assert processes(word) == []
    done = srt.call("get_execution_output", execution_id=id)
    assert (done["status"], done["exit_code"], types(done)[-1]) == ("cancelled", None, "cancelled")
    assert srt.call("cancel_execution", execution_id=id) == {"success": True, "was_running": False}


def test_cancel_lets_a_program_end(srt: Srt) -> None:
    id = srt.start("trap 'echo ending; exit' TERM; echo up; while :; do sleep 0.05; done")
    srt.wait_for(id, "up")
    assert srt.call("cancel_execution", execution_id=id)["was_running"]
    assert "ending" in shown(srt.call("get_execution_output", execution_id=id))


def test_output_over_the_limit(srt: Srt) -> None:
    text = "the output is over the limit of 1048576 bytes or 10000 lines: the rest was left out"
    for command, size in (("head -c 3000000 /dev/zero | tr '\\0' x", 1 << 20), ("yes | head -n 30000", 20000)):
        answer = srt.run(command)
        assert answer["exit_code"] == 0 and len(shown(answer)) == size
        assert reasons(answer) == [text]
    assert reasons(srt.run("yes | head -n 10000")) == []


def test_input_over_the_limit(srt: Srt) -> None:
    id = srt.start("sleep 100", interactive=True)
    over = srt.call("send_stdin", execution_id=id, input_data="x" * (1 << 20))
    assert over["error"] == "input_data has 1048577 bytes; the maximum is 1048576"
    data = "x" * ((1 << 20) - 1)
    assert srt.call("send_stdin", execution_id=id, input_data=data)["success"]
    for _ in range(4):  # what the pipe and the engine hold
        answer = srt.call("send_stdin", execution_id=id, input_data=data)
    assert answer["error"] == "the program has not read 1048576 bytes of earlier input; nothing was sent"
    srt.call("cancel_execution", execution_id=id, force=True)
    assert "the maximum is 100000" in srt.run("#" * 100_001)["error"]


def test_twenty_commands_at_once(srt: Srt) -> None:
    async def all_of_them() -> list[Any]:
        found: list[Any] = []

        async def one() -> None:
            found.append(await srt.server.session.call_tool("execute_code", {"command": "sleep 1"}))

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(one)
        return [json.loads(answer.content[0].text) for answer in found]

    answers = srt.server._portal.call(all_of_them)
    refused = [a["error"] for a in answers if a["status"] == "failed"]
    assert [a["status"] for a in answers].count("completed") == 5 and len(refused) == 15
    limit = "Maximum 5 concurrent executions per session (SANDBOX_MAX_PER_SESSION)"
    assert set(refused) == {limit}
    assert srt.run("true")["exit_code"] == 0


def test_the_limit_of_the_server_and_executions_kept(serve: Callable[..., Srt]) -> None:
    server = serve("--workspace", "w", SANDBOX_MAX_CONCURRENT="1", SANDBOX_TIMEOUT="9", SANDBOX_HOSTS="x")
    first = server.start("sleep 5")
    assert "Maximum 1 concurrent executions (SANDBOX_MAX_CONCURRENT)" in server.run("true")["error"]
    server.call("cancel_execution", execution_id=first, force=True)
    assert "maximum of 9 (SANDBOX_TIMEOUT)" in server.run("true", timeout_seconds=10)["error"]
    log = (server.folder.parent / "stderr.txt").read_text()
    assert "SANDBOX_HOSTS is no variable of --compat srt: ignored" in log


def test_only_the_last_executions_are_kept(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import asyncio

    from cellgate.surfaces import srt as module
    from cellgate.surfaces._options import Options
    from cellgate.surfaces._serve import RefusedError

    monkeypatch.setattr(module, "KEPT", 2)

    async def run() -> None:
        sandbox = module.Sandbox(Options(("srt",), tmp_path), {})
        ids = []
        for _ in range(3):
            execution = sandbox.start("", "true", 9, False, None, None, None)
            await execution.ended.wait()
            ids.append(execution.id)
        with pytest.raises(RefusedError, match="the server keeps the last 2 that have ended"):
            sandbox.find("", ids[0])
        assert sandbox.find("", ids[1]).exit_code == 0
        with pytest.raises(RefusedError, match="Execution not found"):
            sandbox.find("another session", ids[1])

    asyncio.run(run())


@pytest.mark.parametrize("killed", [False, True])
def test_executions_end_with_the_server(
    cellgate: Path, package: Path, tmp_path: Path, connect: Connect, killed: bool
) -> None:
    word = f"sleep 98765{int(killed)}"
    with suppress(Exception), connect(cellgate, tmp_path, "--workspace", tmp_path, surface="srt") as server:
        one = Srt(server, tmp_path)
        id = one.start(f"{word} & setsid {word} & echo up; wait")
        one.wait_for(id, "up")
        eventually(lambda: len(processes(word)) == 2)
        if killed:
            for pid in processes(f".* --compat srt --workspace {tmp_path}"):
                os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: not processes(word))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SANDBOX_MAX_CONCURRENT", "0", "a whole number from 1 to 32"),
        ("SANDBOX_MAX_PER_SESSION", "x", "a whole number from 1 to 32"),
        ("SANDBOX_TIMEOUT", "-1", "a whole number from 1"),
        ("SANDBOX_PORT", "8080", "use the option --http"),
        ("SANDBOX_AUTH_TOKEN", "secret", "use the option --token-file"),
    ],
)
def test_variables_that_are_refused(package: Path, name: str, value: str, says: str) -> None:
    from cellgate.surfaces._options import Options, RefusedOptionError
    from cellgate.surfaces.srt import Sandbox

    with pytest.raises(RefusedOptionError, match=says):
        Sandbox(Options(("srt",)), {name: value})


def test_the_root_folder_is_refused(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cellgate.surfaces._options import Options, RefusedOptionError
    from cellgate.surfaces.srt import Sandbox

    monkeypatch.chdir("/")
    with pytest.raises(RefusedOptionError, match="name another by --workspace"):
        Sandbox(Options(("srt",)), {})
    assert Sandbox(Options(("srt",), workspace=tmp_path), {}).folder == tmp_path


@pytest.mark.parametrize("options", [["--exec", "deny"], ["--policy", "p.json"]])
def test_options_without_effect_are_refused(package: Path, options: list[str]) -> None:
    from cellgate.surfaces._options import RefusedOptionError, parse

    with pytest.raises(RefusedOptionError, match="have no effect on the commands of --compat srt"):
        parse(["--compat", "srt", *options], ["srt"])
