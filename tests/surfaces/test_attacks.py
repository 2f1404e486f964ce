"""Code that goes around the profiles' lists of modules: what the sandbox holds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Around the import hook.
OS = "import uuid\nos = uuid.os\n"


def test_the_list_is_advisory_and_the_sandbox_holds(basic: Any) -> None:
    """The way of uuid.os: files of the user, programs, the network, other processes."""
    answer = basic.run(OS + "os.getpid() > 0")
    assert answer["success"] and answer["result"] is True
    for code, held in (
        ("os.system('touch /tmp/x')\nos.path.exists('/tmp/x')", False),
        ("os.listdir('/root') + os.listdir('/home')", []),
        ("os.environ.get('SANDBOX_ATTACK_TEST', 'absent')", "absent"),
        ("[p for p in os.listdir('/proc') if p.isdigit() and int(p) > 30]", []),
    ):
        assert basic.run(OS + code)["result"] == held, code
    answer = basic.run(OS + "os.system('id')")
    assert any("start no programs" in warning for warning in answer["security_warnings"])


@pytest.mark.parametrize(
    "way",
    [
        "os = statistics.sys.modules['os']",
        "os = json.codecs.sys.modules['os']",
        "os = [c for c in object.__subclasses__() if c.__name__ == '_wrap_close'][0].__init__.__globals__['sys'].modules['os']",
    ],
)
def test_other_ways_around(basic: Any, way: str) -> None:
    code = f"import json, statistics\n{way}\n"
    assert basic.run(code + "os.sep")["result"] == "/"
    answer = basic.run(code + "fd = os.open('/etc/cellgate-attack', os.O_WRONLY | os.O_CREAT)")
    assert answer["success"] is False and "Read-only file system" in answer["error"]
    assert not Path("/etc/cellgate-attack").exists()


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/cellgate-attack', 'w')",
        "open('relative', 'w')",
        "import uuid; uuid.os.mkdir('/var/cellgate-attack')",
        "import uuid; uuid.os.symlink('/etc', 'here')",
    ],
)
def test_nothing_can_be_written(basic: Any, code: str) -> None:
    answer = basic.run(code)
    assert answer["success"] is False and answer["error"].startswith(("OSError", "PermissionError")), answer
    assert basic.run("open('/tmp/private', 'w').write('x')")["result"] == 1  # its allow


def test_no_network(basic: Any, port: int) -> None:
    code = (
        OS
        + f"""
socket = os.sys.modules['importlib'].import_module('socket')
socket.create_connection(('127.0.0.1', {port}), timeout=3)
"""
    )
    answer = basic.run(code)
    assert answer["success"] is False
    assert answer["error"].startswith(("ConnectionRefusedError", "OSError", "PermissionError")), answer
    # The same socket code works, and gets to nobody but itself.
    code = code.replace("create_connection", "create_server").replace(f"{port}), timeout=3", "0)")
    assert basic.run(code.rstrip() + ".getsockname()[0]")["result"] == "127.0.0.1"


def test_memory_limit(basic: Any) -> None:
    code = "x = bytearray(100 << 20)\nlen(x)"
    assert basic.run(code, memory_limit="256m")["result"] == 100 << 20
    answer = basic.run(code, memory_limit="80m")
    assert answer["error"] == "MemoryError: the code has reached its memory_limit of 80m"
    assert "memory limit of 80 MiB" in answer["security_warnings"][0]
    assert basic.run("1 + 1")["result"] == 2


def test_memory_that_is_hidden_in_forks_and_files(basic: Any) -> None:
    """The limit is of all processes and files of an execution together where the machine has control groups."""
    scope = basic.call("get_sandbox_info")["resource_limits"]["enforced"]["memory"]["scope"]
    if scope != "sandbox":
        pytest.skip("this machine limits the memory of each process alone")
    code = (
        OS
        + """
import time
ready = 0
for i in range(12):
    if os.fork() == 0:
        x = bytearray(b'x') * (40 << 20)
        time.sleep(1)
        os._exit(0)
for i in range(12):
    ready += os.wait()[1] == 0
ready
"""
    )
    answer = basic.run(code, timeout=4, memory_limit="128m")
    assert answer.get("result") != 12, answer
    answer = basic.run("f = open('/tmp/big', 'wb')\nfor i in range(400): f.write(bytes(1 << 20))", memory_limit="128m")
    assert answer["success"] is False, answer


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import time\ntry:\n    time.sleep(60)\nfinally:\n    time.sleep(60)",
        "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    ],
)
def test_time_limit(basic: Any, code: str) -> None:
    """An exception that the code catches, and C code that does not look for one, do not prolong it."""
    answer = basic.run(code, timeout=1)
    assert answer["success"] is False and answer["error"] == "Execution timed out after 1 seconds"
    assert answer["execution_time"] < 20


def test_processes_are_limited_and_end(basic: Any) -> None:
    code = (
        OS
        + """import time
n = 0
try:
    while n < 2000:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        n += 1
except OSError as e:
    pass
0 < n < 2000
"""
    )
    assert basic.run(code)["result"] is True


def test_output_is_limited(basic: Any) -> None:
    answer = basic.run("for i in range(3000): print('x' * 1000)")
    assert len(answer["stdout"]) <= 1 << 20 and answer.get("truncated") or not answer["success"], answer


def test_code_cannot_forge_the_server(basic: Any) -> None:
    """What code does to its own kernel ends with the execution."""
    code = OS + "os.sys.modules['builtins'].__import__ = None\nresult = 'forged'"
    assert basic.run(code)["success"] is False
    assert basic.run("import math\nmath.floor(2.5)")["result"] == 2


# ---------------------------------------------------------------- other profiles


def fetch(port: int) -> str:
    """Code that asks the proxy; the variables that name it leave out this machine."""
    direct = "for name in ('NO_PROXY', 'no_proxy'): uuid.os.environ.pop(name, None)"
    url = f"http://127.0.0.1:{port}/"
    return f"import urllib.request, uuid\n{direct}\nurllib.request.urlopen('{url}', timeout=5).read().decode()"


def test_network_reaches_only_hosts_that_the_server_names(serve: Callable[..., Any], port: int) -> None:
    env = {"SANDBOX_ENABLE_NETWORK": "true"}
    allowed = serve("--allow-host", f"127.0.0.1:{port}", **env)
    assert allowed.run(fetch(port))["result"] == "hello from outside"
    answer = allowed.run(fetch(9))
    assert answer["success"] is False and "403" in answer["error"] + json.dumps(answer["security_warnings"]), answer
    closed = serve(**env)
    assert closed.run("import urllib.request")["success"]
    assert closed.run(fetch(port))["success"] is False
    reach = closed.call("get_sandbox_info")["security_profiles"]["network"]
    assert reach["enabled"] and "reaches no host: --allow-host" in reach["sandbox"]
    warned = closed.call("validate_code", code=fetch(port))["validation"]["issues"]
    assert [i["rule"] for i in warned] == ["host"]


def test_policy_of_the_owner(serve: Callable[..., Any], port: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Policy files decide about hosts that --allow-host does not name, and about programs."""
    policy = tmp_path_factory.mktemp("policy") / "policy.json"
    rules = [
        {"decision": "allow", "host": "127.0.0.1", "port": port},
        {"decision": "allow", "program": "/usr/bin/true"},
    ]
    policy.write_text(json.dumps({"rules": rules}))
    server = serve("--exec", "ask", "--policy", policy, SANDBOX_ENABLE_NETWORK="true")
    assert server.run(fetch(port)).get("result") == "hello from outside"
    assert server.run(fetch(port + 1 if port < 65000 else 9))["success"] is False
    code = OS + "pid = os.posix_spawn('/usr/bin/{0}', ['/usr/bin/{0}'], {{**os.environ}})\nos.waitpid(pid, 0)[1]"
    assert server.run(code.format("true")).get("result") == 0
    assert server.run(code.format("id"))["success"] is False


def test_filesystem_writes_in_the_workspace_only(
    serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    workspace = tmp_path_factory.mktemp("workspace")
    beside = workspace.parent / "beside.txt"
    env = {"SANDBOX_ENABLE_FILESYSTEM": "true"}
    server = serve("--workspace", workspace, **env)
    code = "import pathlib\npathlib.Path('a.txt').write_text('x')\npathlib.Path('a.txt').resolve().name"
    assert server.run(code)["result"] == "a.txt"
    assert (workspace / "a.txt").read_text() == "x"
    for path in (workspace / ".bashrc", "/etc/cellgate-attack"):
        assert server.run(f"import pathlib\npathlib.Path('{path}').write_text('x')")["success"] is False, path
    server.run(f"import pathlib\npathlib.Path('{beside}').write_text('x')")  # in the private /tmp
    os.symlink("/etc", workspace / "link")
    assert server.run("import pathlib\npathlib.Path('link/cellgate-attack').write_text('x')")["success"] is False
    assert not beside.exists() and not (workspace / ".bashrc").exists()
    # Without --workspace files are private, and go with the execution.
    private = serve(**env)
    assert private.run(code)["result"] == "a.txt"
    assert private.run("import glob\nglob.glob('*.txt')")["result"] == []


def test_limits_of_the_owner(serve: Callable[..., Any]) -> None:
    """They hold for each execution, and no call goes beyond them."""
    server = serve("--limit", "memoryMb=150", "--limit", "fileMb=1", "--limit=cores=1")
    assert "over the maximum of 150m" in server.run("1", memory_limit="151m")["error"]
    assert server.run("len(bytearray(100 << 20))", memory_limit="150m")["result"] == 100 << 20
    answer = server.run("open('/tmp/x', 'wb').write(bytes(2 << 20))")
    assert answer["success"] is False and "File too large" in answer["error"]


def test_workspace_is_for_the_profile_filesystem_alone(
    serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    workspace = tmp_path_factory.mktemp("workspace")
    server = serve("--workspace", workspace)
    answer = server.run(f"open('{workspace}/a.txt', 'w')")
    assert answer["success"] is False and not (workspace / "a.txt").exists()
