"""`--compat sandboxmcp`: the tools of its document, each allow with its deny."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from processes import eventually
from shared_supervisor import runtime_folder

Connect = Callable[..., AbstractContextManager[Any]]
PARAMETERS = {
    "execute_code": "code language allowed_domains timeout_seconds",
    "install_package": "language packages",
    "validate_code": "code language",
    "create_session": "language timeout_seconds",
    "terminate_session": "session_id",
    "bridge_data": "data from_session to_session",
    "list_runtimes": "",
    "set_resource_limits": "max_ram_mb max_cpu_cores timeout_seconds",
    "sandbox_stats": "",
    "inspect_state": "namespace",
    "get_artifacts": "request_id",
    "request_egress": "domain namespace",
    "audit_execution": "namespace limit",
    "web_search": "query",
    "fetch_webpage": "url",
    "browser_fetch": "url wait_for_selector timeout_ms wait_until screenshot",
    "host_exec": "command timeout",
    "request_host_access": "pattern",
    "list_host_access": "",
    "host_file_read": "path",
    "host_file_write": "path content",
    "host_file_list": "path",
    "host_file_copy": "source destination",
}
MINE = ["execute_code", "session_id", "env_vars", "packages", "resource_limits", "namespace"]


class Sandbox:
    def __init__(self, server: Any) -> None:
        self.server = server

    def call(self, name: str, /, **arguments: Any) -> Any:
        """What a tool returns: the same as text and as structured content; an error exactly where it says so."""
        answer = self.server.raw(name, **arguments)
        result = json.loads(answer.content[0].text)
        assert answer.structured_content == (result if isinstance(result, dict) else {"result": result})
        assert answer.is_error == ("error" in result)
        return result

    def run(self, code: str, **arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.call("execute_code", code=code, **arguments)
        return found

    def refused(self, name: str, /, **arguments: Any) -> str:
        return str(self.call(name, **arguments)["error"])


@pytest.fixture(scope="module")
def box(cellgate: Path, package: Path, connect: Connect, tmp_path_factory: Any) -> Iterator[Sandbox]:
    """Without options."""
    with connect(cellgate, tmp_path_factory.mktemp("box"), surface="sandboxmcp", SANDBOXMCP_AUDIT="memory") as server:
        yield Sandbox(server)


@pytest.fixture
def serve(cellgate: Path, tmp_path: Path, package: Path, connect: Connect) -> Iterator[Callable[..., Sandbox]]:
    """serve(OPTION..., VARIABLE=VALUE...): another server."""
    more = {"surface": "sandboxmcp", "SANDBOXMCP_AUDIT": "memory"}
    with ExitStack() as stack:
        yield lambda *options, **env: Sandbox(
            stack.enter_context(connect(cellgate, tmp_path, *options, **{**more, **env}))
        )


def test_tools_and_their_parameters(box: Sandbox) -> None:
    tools = {t.name: t.input_schema for t in box.server._portal.call(box.server.session.list_tools).tools}
    assert set(tools) == set(PARAMETERS) and len(tools) == 23
    for name, parameters in PARAMETERS.items():
        assert set(parameters.split()) <= set(tools[name].get("properties", {})), name
    assert set(MINE[1:]) <= set(tools[MINE[0]]["properties"])
    assert tools["execute_code"]["required"] == ["code"]


@pytest.mark.parametrize(
    ("language", "code"), [("python", "print(2 + 2)"), ("node", "console.log(2 + 2)"), ("shell", "echo $((2 + 2))")]
)
def test_languages(box: Sandbox, language: str, code: str) -> None:
    result = box.run(code, language=language)
    assert (result["success"], result["exit_code"], result["stdout"], result["language"]) == (True, 0, "4\n", language)
    assert result["request_id"] and result["duration_ms"] > 0 and result["artifacts"] == []
    failed = box.run(
        {"python": "raise SystemExit(3)", "node": "process.exit(3)", "shell": "exit 3"}[language], language=language
    )
    assert (failed["success"], failed["exit_code"]) == (False, 3)


def test_an_execution_has_its_own_state(box: Sandbox) -> None:
    box.run("x = 1; open('left', 'w').write('behind')")
    again = box.run("import os\nprint(os.listdir('.'))\nx")
    assert again["stdout"] == "[]\n" and "NameError" in again["stderr"]


@pytest.mark.parametrize(
    ("language", "first", "second"),
    [
        ("python", "x = 20; open('f', 'w').write('kept')", "print(x + 1, open('f').read())"),
        ("node", "let x = 20", "console.log(x + 1, 'kept')"),
        ("shell", "x=20", "echo $((x + 1)) kept"),
    ],
)
def test_sessions_keep_state(box: Sandbox, language: str, first: str, second: str) -> None:
    session = box.call("create_session", language=language)["id"]
    assert box.run(first, session_id=session)["success"]
    assert box.run(second, session_id=session)["stdout"] == "21 kept\n"
    assert "no such session" in box.refused("execute_code", code=second, session_id=session, namespace="other")
    assert box.call("terminate_session", session_id=session) == {"killed": session}
    assert "no such session" in box.refused("execute_code", code=second, session_id=session)
    assert "no such session" in box.refused("terminate_session", session_id=session)


def test_a_session_has_its_language_and_limits(box: Sandbox) -> None:
    session = box.call("create_session", timeout_seconds=5)["id"]
    assert "language is python" in box.refused("execute_code", code="1", language="shell", session_id=session)
    assert "set when it is created" in box.refused("execute_code", code="1", session_id=session, env_vars={"A": "b"})
    more = {"max_ram_mb": 128}
    assert "limits of a session" in box.refused("execute_code", code="1", session_id=session, resource_limits=more)
    box.call("terminate_session", session_id=session)


def test_bridge(box: Sandbox) -> None:
    """Python, node, shell, and back to Python."""
    ids = {language: box.call("create_session", language=language)["id"] for language in ("python", "node", "shell")}
    box.run("rows = [{'a': 1.5, 'b': None}, 'é']\nf = print", session_id=ids["python"])
    for start, end in (("python", "node"), ("node", "shell"), ("shell", "python")):
        more = {"as": "again"} if end == "python" else {}
        moved = box.call("bridge_data", from_session=ids[start], to_session=ids[end], names=["rows"], **more)
        assert moved["bridged"] and moved["names"] == [more.get("as", "rows")]
    assert (
        box.run("console.log(JSON.stringify(rows))", session_id=ids["node"])["stdout"] == '[{"a":1.5,"b":null},"é"]\n'
    )
    assert "1.5" in box.run("print(again)", session_id=ids["python"])["stdout"]
    for language, code in (("python", "print(n)"), ("node", "console.log(n)"), ("shell", "echo $n")):
        assert box.call("bridge_data", to_session=ids[language], data={"n": 2})["names"] == ["n"]
        assert box.run(code, session_id=ids[language])["stdout"] == "2\n"
    one, two = ids["python"], ids["node"]
    assert "f" in box.refused("bridge_data", from_session=one, to_session=two, names=["rows", "f"])
    assert "no such session" in box.refused("bridge_data", to_session="none", data={"a": 1})
    assert "to_session" in box.refused("bridge_data", data={"a": 1})
    assert "either data" in box.refused("bridge_data", to_session=one, from_session=two)
    state = {s["id"]: s["variables"] for s in box.call("inspect_state")["sessions"]}
    assert ["rows", "list"] in state[one] and ["n", "int"] in state[one] and state[two] is None
    for session in ids.values():
        box.call("terminate_session", session_id=session)


def test_limits(box: Sandbox) -> None:
    ran = box.run("x = bytearray(400 << 20)", resource_limits={"max_ram_mb": 128})
    assert not ran["success"] and "MemoryError" in ran["stderr"]
    assert box.run("x = bytearray(300 << 20); print(1)")["stdout"] == "1\n"
    late = box.run("while True: pass", timeout_seconds=1)
    assert late["exit_code"] == 124 and "timed out after 1 seconds" in late["stderr"]
    assert len(box.run("print('x' * 5000)", resource_limits={"max_output_bytes": 1000})["stdout"]) == 1000
    assert "over the maximum of 3600" in box.refused("execute_code", code="1", timeout_seconds=3601)
    assert "max_ram_mb is over the server's 512" in box.refused(
        "execute_code", code="1", resource_limits={"max_ram_mb": 513}
    )
    assert "has no nonsense" in box.refused("execute_code", code="1", resource_limits={"nonsense": 1})
    assert "at least 64" in box.refused("execute_code", code="1", resource_limits={"max_ram_mb": 1})


def test_set_resource_limits(serve: Callable[..., Sandbox]) -> None:
    box = serve("--limit", "memoryMb=600", "--limit", "processes=4")
    assert "over the maximum of 600" in box.refused("set_resource_limits", max_ram_mb=601)
    assert "over the maximum of 4" in box.refused("set_resource_limits", max_processes=5)
    for limit in ({"max_cpu_cores": 1e300}, {"max_cpu_cores": -1}, {"max_ram_mb": 0}):
        assert f"{[*limit][0]} has to be over 0, and not over" in box.refused("set_resource_limits", **limit)
    changed = box.call("set_resource_limits", max_ram_mb=200, timeout_seconds=2)
    assert (changed["previous"]["max_ram_mb"], changed["current"]["max_ram_mb"]) == (512, 200)
    assert "MemoryError" in box.run("x = bytearray(300 << 20)")["stderr"]
    assert box.run("import time; time.sleep(9)")["exit_code"] == 124
    forks = "import os, time\nfor i in range(40):\n    if os.fork() == 0: time.sleep(5); os._exit(0)"
    assert "BlockingIOError" in box.run(forks)["stderr"]


def test_artifacts(box: Sandbox) -> None:
    code = "import os; os.mkdir('d'); open('d/big', 'wb').write(b'x' * ((10 << 20) + 1)); open('a.txt', 'w').write('hello')"
    ran = box.run(code)
    found = {a["name"]: a for a in box.call("get_artifacts", request_id=ran["request_id"])["artifacts"]}
    assert found == {a["name"]: a for a in ran["artifacts"]} and set(found) == {"a.txt", "d/big"}
    assert found["a.txt"]["sha256"] == hashlib.sha256(b"hello").hexdigest() and len(found["a.txt"]["signature"]) == 128
    assert base64.b64decode(found["a.txt"]["content_b64"]) == b"hello"
    assert found["d/big"]["size_bytes"] == (10 << 20) + 1 and found["d/big"]["content_b64"] == ""
    assert found["a.txt"]["uri"] == ""
    one = box.call("get_artifacts", request_id=ran["request_id"], name="a.txt")["artifacts"]
    assert [a["name"] for a in one] == ["a.txt"]
    for name in (
        "b",
        "..",
        "./a.txt",
        "a.txt/",
        "d/../a.txt",
        "/etc/passwd",
        "/dev/zero",
        "a.txt\0",
        "",
        "x" * 100_000,
    ):
        assert "made no" in box.refused("get_artifacts", request_id=ran["request_id"], name=name)
    for given in (
        {"namespace": "other"},
        {"request_id": "1"},
        {"request_id": "../etc"},
        {"request_id": ran["request_id"][:8]},
    ):
        assert "no artifacts are kept" in box.refused("get_artifacts", **{"request_id": ran["request_id"], **given})


def test_large_artifacts_are_resources(serve: Callable[..., Sandbox]) -> None:
    """Also beside another surface, whole or in parts."""
    server = serve("--compat", "context-forge").server
    code = "open({!r}, 'wb').write(bytes(range(256)) * 65536 + b'end')"
    made = {}
    for name in "ab":
        answer = server.raw("sandboxmcp_execute_code", code=code.format(name))
        (made[name],) = answer.structured_content["artifacts"]
        assert answer.content[1].uri == made[name]["uri"] and answer.content[1].size == made[name]["size_bytes"]
    uri, data = made["a"]["uri"], bytes(range(256)) * 65536 + b"end"
    first, rest = server.read(uri), server.read(f"{uri}?offset={16 << 20}")
    assert first == data[: 16 << 20] and uri != made["b"]["uri"]
    assert hashlib.sha256(first + rest).hexdigest() == made["a"]["sha256"]
    assert server.read(f"{uri}?offset=255&length=3") == b"\xff\0\1"
    assert server.read(f"{uri}?length=99999999") == data[: 16 << 20]
    assert server.read(f"{uri}?offset={len(data)}") == b""
    for wrong in ("?offset=-1", f"?offset={len(data) + 1}", "?length=-1", "?offset=x", "/..", "1"):
        with pytest.raises(MCPError):
            server.read(uri + wrong)


def test_limits_of_artifacts(box: Sandbox) -> None:
    most = box.run("open('f', 'wb').write(bytes(10 << 20))")["artifacts"]
    assert [len(base64.b64decode(a["content_b64"])) for a in most] == [10 << 20]
    # A file over the limit of all does not hide the others, wherever it is in the list.
    ran = box.run("for n in 'abcdefgh': open(n, 'w').write(n)\nopen('e', 'w').truncate(129 << 20)")
    assert {a["name"] for a in ran["artifacts"]} == set("abcdfgh")
    assert "over 128 MiB" in ran["metadata"]["artifacts_truncated"]


def test_a_file_that_changes_while_it_is_read(box: Sandbox) -> None:
    code = "import os\nwhile 1:\n for c in '12': open('w2', 'w').write(c * 9999); os.replace('w2', 'w')"
    ran = box.run(
        f"import subprocess, os\nsubprocess.Popen(['python3', '-c', {code!r}])\nwhile not os.path.exists('w'): pass"
    )
    for found in ran["artifacts"]:
        assert hashlib.sha256(data := base64.b64decode(found["content_b64"])).hexdigest() == found["sha256"]
        assert len(data) == found["size_bytes"]


def test_signed_lists(serve: Callable[..., Sandbox], run_cellgate: Callable[..., Any]) -> None:
    signing = serve("--audit=strict", "--sign-artifacts")
    ran = signing.run("open('a.txt', 'w').write('hello')")
    listed = run_cellgate("artifacts", ran["metadata"]["signed"]["execution"]).stdout
    assert hashlib.sha256(b"hello").hexdigest() in listed
    assert "needs --audit" in run_cellgate("mcp", "serve", "--compat", "sandboxmcp", "--sign-artifacts").stderr


def test_an_installation_is_recorded(serve: Callable[..., Sandbox], run_cellgate: Callable[..., Any]) -> None:
    box = serve("--audit=strict", "--approve", "ask", answers=lambda question: True)
    assert box.refused("install_package", language="python", packages=["cellgate-no-such-package==1"])
    assert "cellgate-no-such-package==1" in run_cellgate("audit", "--json").stdout


def test_a_link_is_no_artifact(box: Sandbox) -> None:
    assert (
        box.run("import os; os.symlink('/etc/passwd', 'p'); os.mkfifo('f'); os.link('/proc/self/stat', 'q')")[
            "artifacts"
        ]
        == []
    )
    assert box.run("import os; os.symlink('/etc/passwd', 'p'); os.mkfifo('f')")["artifacts"] == []


def test_a_workspace(serve: Callable[..., Sandbox], tmp_path: Path) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    box = serve("--workspace", folder)
    assert [a["name"] for a in box.run("open('kept', 'w').write('1')")["artifacts"]] == ["kept"]
    assert box.run("print(open('kept').read())")["stdout"] == "1\n"
    assert (folder / "kept").read_text() == "1"
    assert [a["name"] for a in box.run("open(b'n\\xff', 'w').write('1')")["artifacts"]] == ["n\\xff"]


def test_the_users_files_are_hidden(box: Sandbox, tmp_path: Path) -> None:
    ran = box.run("import os; print(os.listdir(os.path.expanduser('~root')) or 'empty'); open('/usr/x', 'w')")
    assert "empty" in ran["stdout"] and "OSError" in ran["stderr"]
    assert ran["metadata"]["denied"]


def test_env_vars(box: Sandbox) -> None:
    shown = {
        "python": "import os; print(os.environ['A_B'])",
        "node": "console.log(process.env.A_B)",
        "shell": 'echo "$A_B"',
    }
    for language, code in shown.items():
        assert box.run(code, language=language, env_vars={"A_B": 'it\'s "c"'})["stdout"] == 'it\'s "c"\n'
    assert "no name of a variable" in box.refused("execute_code", code="1", env_vars={"A=B": "c"})
    assert "the sandbox's own" in box.refused("execute_code", code="1", env_vars={"HOME": "/etc"})


def test_validate(box: Sandbox) -> None:
    fixed = box.call("validate_code", code="print(json.dumps({}))")
    assert (fixed["valid"], fixed["verdict"], fixed["fixes_applied"]) == (True, "fixed", ["import json"])
    assert fixed["fixed_code"] == "import json\nprint(json.dumps({}))" and "protects nothing" in fixed["notice"]
    for language, code in (("python", "def f(:"), ("node", "let = ;"), ("shell", "if true")):
        bad = box.call("validate_code", code=code, language=language)
        assert (bad["valid"], bad["verdict"]) == (False, "reject") and bad["issues"][0]["line"] == 1


def test_no_code_that_is_checked_stops_the_server(box: Sandbox) -> None:
    """Searches for patterns run in a sandbox, where they end with their process."""
    began = time.monotonic()
    box.call("validate_code", code="dd " * 60_000, language="shell")
    assert time.monotonic() - began < 20


def test_checks_see_what_code_sees(serve: Callable[..., Sandbox], tmp_path: Path) -> None:
    """They are no way to ask for files that code cannot see. They work where code may start no programs."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/secret").touch()
    box = serve("--exec", "deny", HOME=str(tmp_path / "home"))
    for name in ("secret", "absent"):
        found = box.call("validate_code", code=f"open('{tmp_path}/home/{name}')")
        assert [i["message"].split(", ")[-1] for i in found["issues"]] == ["or the sandbox hides it"]
    for code, language in (("if true", "shell"), ("let = ;", "node")):
        assert box.call("validate_code", code=code, language=language)["verdict"] == "reject"


def test_the_network_is_off(box: Sandbox) -> None:
    refused = box.refused("execute_code", code="print(1)", allowed_domains=["example.org"])
    assert "Domain blocked: example.org" in refused and "or --approve ask" in refused
    assert box.call("request_egress", domain="example.org")["approved"] is False
    assert not box.run("import urllib.request as u; u.urlopen('http://example.org')")["success"]
    log = box.call("audit_execution")
    assert {"egress_denied", "execute"} <= {entry["action"] for entry in log} and len(
        box.call("audit_execution", limit=1)
    ) == 1
    assert box.call("audit_execution", namespace="unused") == []


def test_nothing_is_installed_unasked(box: Sandbox) -> None:
    assert "not approved" in box.refused("install_package", language="python", packages=["six"])
    assert "not approved" in box.refused("execute_code", code="1", packages=["six"])
    assert "not ['--index-url" in box.refused("install_package", language="python", packages=["--index-url=x"])


def test_one_question_for_a_domain(serve: Callable[..., Sandbox]) -> None:
    asked: list[str] = []

    def answers(question: str) -> bool:
        asked.append(question)
        return "good.example" in question

    box = serve("--approve", "ask", answers=answers)
    assert box.run("print(1)", allowed_domains=["good.example"])["stdout"] == "1\n"
    assert box.run("print(1)", allowed_domains=["good.example"])["stdout"] == "1\n"
    assert len(asked) == 1 and "good.example" in asked[0]
    assert "bad.example was not approved" in box.refused(
        "execute_code", code="print(1)", allowed_domains=["bad.example"]
    )
    assert box.run("print(1)", allowed_domains=["good.example"], namespace="n")["success"] and len(asked) == 3
    box.run("import urllib.request as u; u.urlopen('http://later.example')")
    assert "later.example" in asked[-1] and len(asked) == 4
    assert box.call("request_egress", domain="good.example")["approved"] is True and len(asked) == 4


def test_questions_need_a_client_that_shows_them(serve: Callable[..., Sandbox]) -> None:
    box = serve("--approve", "ask")
    assert "not approved" in box.refused("execute_code", code="print(1)", allowed_domains=["good.example"])


def test_allow_host_is_a_grant(serve: Callable[..., Sandbox]) -> None:
    box = serve("--allow-host", "good.example", "--allow-host", "*.wide.example")
    assert box.run("print(1)", allowed_domains=["good.example", "a.wide.example"])["success"]
    assert "Domain blocked" in box.refused("execute_code", code="print(1)", allowed_domains=["wide.example"])
    assert "Domain blocked" in box.refused("execute_code", code="print(1)", allowed_domains=["bad.example"])


def test_secrets_of_variables(serve: Callable[..., Sandbox]) -> None:
    box = serve(SANDBOXMCP_VAULT="env", SANDBOXMCP_SECRET_DEFAULT_API_KEY="sk-1234567890")
    code = "import os, base64; k = os.environ.get('API_KEY'); print(k, base64.b64encode(k.encode()).decode())\nk"
    ran = box.run(code)
    assert ran["stdout"] == "***REDACTED*** ***REDACTED***\n" and ran["metadata"]["result"] == "'***REDACTED***'"
    assert "'NoneType'" in box.run(code, namespace="other")["stderr"]
    state = box.call("inspect_state")
    assert state["vault_keys"] == ["API_KEY"] and "sk-123" not in json.dumps(state)


def test_list_runtimes_and_stats(box: Sandbox) -> None:
    found = {r["language"] for r in box.call("list_runtimes") if r["available"]}
    assert {name for name in found if not name.startswith("jupyter:")} == {"python", "node", "shell"}
    assert box.call("sandbox_stats")["queue"]["max_concurrent"] == 4


def test_several_surfaces(cellgate: Path, package: Path, connect: Connect, tmp_path: Path) -> None:
    """Names that clash get a prefix, others stay."""
    with connect(cellgate, tmp_path, "--compat", "context-forge", surface="sandboxmcp") as server:
        names = {t.name for t in server._portal.call(server.session.list_tools).tools}
        assert {"sandboxmcp_execute_code", "context_forge_execute_code", "get_sandbox_info", "bridge_data"} <= names
        assert "execute_code" not in names
        assert server.call("context_forge_execute_code", code="6 * 7")["result"] == 42
        assert server.call("sandboxmcp_execute_code", code="print(6 * 7)")["stdout"] == "42\n"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SANDBOXMCP_BACKEND", "vm", "default_backend is one of process, docker"),
        ("SANDBOXMCP_NETWORK", "maybe", "true or false"),
        ("SANDBOXMCP_TIMEOUT", "-1", "a whole number"),
        ("SANDBOXMCP_SQLITE_PATH", "mine.db", "cellgate audit"),
    ],
)
def test_variables_that_are_refused(
    package: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    from cellgate.surfaces._options import Options, RefusedOptionError
    from cellgate.surfaces.sandboxmcp import pipeline

    monkeypatch.setenv(name, value)
    with pytest.raises(RefusedOptionError, match=says):
        pipeline(Options(("sandboxmcp",)))


def test_the_host_is_out_of_reach(box: Sandbox) -> None:
    for name, arguments in {
        "host_exec": {"command": "id"},
        "host_file_read": {"path": "/etc/hostname"},
        "host_file_list": {"path": "/"},
        "request_host_access": {"pattern": "id *"},
        "list_host_access": {},
    }.items():
        assert "of the host: cellgate mcp serve --toolsets host" in box.refused(name, **arguments)
    assert "--toolsets web" in box.refused("fetch_webpage", url="https://example.org")


def test_names_and_folders_of_code_do_not_take_its_result(box: Sandbox) -> None:
    """Names that are not UTF-8 or act on terminals, links, FIFOs, folders that are too deep or cannot be read."""
    code = r"""
import os
os.makedirs("noread", exist_ok=True)
os.chmod("noread", 0)
for name in (b"\xff", b"new\nline\x1b[2J", b"a" * 255):
    open(name, "w").write("1")
os.symlink("/etc/passwd", "link")
os.mkfifo("fifo")
for _ in range(30):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("x", "w").write("1")
print("done")
"""
    result = box.run(code)
    assert result["success"] and result["stdout"] == "done\n", result
    names = {a["name"] for a in box.call("get_artifacts", request_id=result["request_id"])["artifacts"]}
    assert names == {"new\nline\x1b[2J", "a" * 255}
    session = box.call("create_session")["id"]
    result = box.run(code, session_id=session)
    assert result["success"] and {a["name"] for a in result["artifacts"]} == names


@pytest.fixture
def command(cellgate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """command(WORD...): a command of `cellgate sandboxmcp`; servers of this test are the only ones."""
    with runtime_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))

        def run(*words: str, stdin: str = "") -> Any:
            words_ = [str(cellgate), "sandboxmcp", *words]
            return subprocess.run(words_, input=stdin, capture_output=True, text=True, timeout=60, cwd=tmp_path)

        yield run


def test_commands(command: Callable[..., Any], serve: Callable[..., Sandbox], cellgate: Path, tmp_path: Path) -> None:
    assert "none runs" in command("stats").stderr
    box = serve(SANDBOXMCP_NETWORK="true")

    def ask(*words: str, **more: str) -> Any:
        done = command(*words, **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert ask("queue", "status")["max_concurrent"] == 4
    assert ask("vault", "add", "KEY", "--namespace", "prod", stdin="very-secret\n") == {"added": "KEY"}
    assert ask("vault", "list", "--namespace", "prod") == ["KEY"] and ask("vault", "list") == []
    result = box.run("import os; print(os.environ['KEY'] == 'very-' + 'secret')", namespace="prod")
    assert result["stdout"] == "True\n"
    assert ask("inspect", "--namespace", "prod")["vault_keys"] == ["KEY"]
    assert ask("vault", "delete", "KEY", "--namespace", "prod") and ask("vault", "list", "--namespace", "prod") == []
    session = box.call("create_session", namespace="prod")["id"]
    assert [s["id"] for s in ask("session", "list")] == [session]
    assert ask("bridge", session, "key", '{"value": 42}', "--namespace", "prod")["names"] == ["key"]
    assert box.run("print(key)", session_id=session, namespace="prod")["stdout"] == "{'value': 42}\n"
    assert "0 sessions" in command("session", "kill", "--id", "x").stderr
    assert ask("session", "kill", "--id", session[:8]) == {"killed": session}
    assert "no such session" in box.refused("execute_code", code="1", session_id=session, namespace="prod")
    assert ask("limits", "--ram", "128", "--processes", "20")["current"]["max_ram_mb"] == 128
    assert ask("config")["limits"]["max_processes"] == 20
    assert "invalid limit" in command("limits", "--ram", "100000").stderr
    made = box.run("open('a.txt', 'w').write('1')")["request_id"]
    assert [a["name"] for a in ask("artifacts", made)["artifacts"]] == ["a.txt"]
    assert ask("audit", "--limit", "1")[0]["request_id"] == made
    assert box.refused("request_egress", domain="api.example.com")
    assert ask("egress", "api.example.com")["approved"] and box.call("request_egress", domain="api.example.com")
    assert "is no host name" in command("egress", "a b").stderr
    (tmp_path / "app.js").write_text("console.log(2 + 2); process.exitCode = 0")
    (tmp_path / "bad.sh").write_text("echo out; exit 3")
    assert command("run", "app.js").stdout == "4\n"
    done = command("run", "bad.sh")
    assert (done.stdout, done.returncode) == ("out\n", 3)
    (tmp_path / "title.js").write_text("console.log('\\x1b]0;x\\x07A')")
    assert command("run", "title.js").stdout == "\x1b]0;x\x07A\n"
    words = shlex.join([str(cellgate), "sandboxmcp", "run", "title.js"])
    shown = subprocess.run(["script", "-qec", words, "/dev/null"], capture_output=True, text=True, cwd=tmp_path)
    assert shown.stdout.strip() == r"\x1b]0;x\x07A"
    assert ask("validate", "app.js")["valid"]
    (tmp_path / "bad.py").write_text("def (")
    assert command("validate", "bad.py").returncode == 1


def test_a_command_does_not_wait_for_ever(
    package: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It says what it waits for, and when it waits no longer; in each state that a server can be in."""
    from cellgate.surfaces import commands

    monkeypatch.setattr(commands, "SHOWN_S", 0.2)
    with runtime_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.setenv("CELLGATE_RUNTIME", str(folder))
        listener.bind(str(folder / "sandboxmcp-7"))
        listener.listen(1)
        with pytest.raises(SystemExit, match=r"server \(process 7\) has not answered in 0.6 s"):
            commands._call(None, "stats", 0.6)
        assert capsys.readouterr().err == "cellgate sandboxmcp: waiting for the server (process 7), 0.6 s\n"
        listener.accept()[0].close()
        end = threading.Timer(0.1, lambda: listener.accept()[0].close())
        end.start()
        with pytest.raises((SystemExit, ConnectionError)):
            commands._call(None, "stats", 60)
        end.join()
        full = [socket.socket(socket.AF_UNIX) for _ in range(4)]
        for peer in full:
            peer.setblocking(False)
            peer.connect_ex(str(folder / "sandboxmcp-7"))
        monkeypatch.setattr(commands, "CONNECT_S", 0.2)
        with pytest.raises(SystemExit, match="none runs that answers"):
            commands._call(None, "stats", 60)
        for peer in full:
            peer.close()


def test_code_ends_with_its_command(
    command: Callable[..., Any], serve: Callable[..., Sandbox], cellgate: Path, tmp_path: Path
) -> None:
    serve()
    (tmp_path / "long.sh").write_text("sleep 1000")

    def running() -> int:
        return json.loads(command("queue", "status").stdout)["active"]

    with subprocess.Popen([cellgate, "sandboxmcp", "run", "long.sh", "--timeout", "900"], cwd=tmp_path) as run:
        try:
            eventually(lambda: running() == 1)
        finally:
            run.kill()
    eventually(lambda: running() == 0)


def test_code_does_not_reach_the_commands(command: Callable[..., Any], serve: Callable[..., Sandbox]) -> None:
    box = serve()
    assert command("stats").returncode == 0
    (path,) = Path(os.environ["XDG_RUNTIME_DIR"]).glob("cellgate-*/sandboxmcp-*")
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
    assert "Error" in box.run(code)["stderr"]
    code = f"import os; print(os.environ.get('CELLGATE_RUNTIME'), os.path.exists({str(path)!r}))"
    assert box.run(code)["stdout"] == "None False\n"


def test_which_of_several_servers(command: Callable[..., Any], serve: Callable[..., Sandbox]) -> None:
    boxes = [serve(), serve()]
    said = command("stats").stderr
    assert "several run: --server" in said
    pid = said.split()[-1]
    assert command("--server", pid, "stats").returncode == 0
    assert len(boxes) == 2


def test_other_programs_see_events_by_namespace(
    command: Callable[..., Any], serve: Callable[..., Sandbox], cellgate: Path
) -> None:
    box = serve(CELLGATE_PRIVATE="")
    assert command("vault", "add", "KEY", "--namespace", "prod", stdin="very-secret").returncode == 0
    box.run("open('a\\x1b.txt', 'w').write('1')", namespace="prod")
    box.run("1", namespace="other")
    assert "a namespace has" in box.refused("execute_code", code="1", namespace="a b")
    words = [cellgate, "events", "--json", "--since", "1h", "--no-wait", "--namespace", "prod"]
    env = {k: v for k, v in os.environ.items() if k != "CELLGATE_PRIVATE"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ran = next(e["session_id"] for e in events if e["type"] == "artifact.signed")
    assert [e["type"] for e in events if e["session_id"] == ran][:5] == [
        *("session.created", "vault.accessed", "execution.started", "execution.completed", "artifact.signed"),
    ]
    assert {e["namespace"] for e in events} == {"prod"} and "very-secret" not in done.stdout
    assert all(e["message"].isprintable() for e in events)
