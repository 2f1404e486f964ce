"""context-forge's document: calls and answers that it shows, as they are written."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

FIBONACCI = """
def fibonacci(n):
    if n <= 1:
        return n
    return fibonacci(n-1) + fibonacci(n-2)

result = [fibonacci(i) for i in range(10)]
print("Fibonacci sequence:", result)
"""
AVERAGE = "import math\ndata = [1, 2, 3, 4, 5]\nresult = sum(data) / len(data)\nprint(f'Average: {result}')"
NUMPY = "import numpy as np\ndata = np.array([1, 2, 3, 4, 5])\nresult = np.mean(data)"


def test_tools_and_their_parameters(basic: Any) -> None:
    tools = {tool.name: tool for tool in basic._portal.call(basic.session.list_tools).tools}
    assert set(tools) == {"execute_code", "validate_code", "get_sandbox_info", "list_capabilities"}
    schema = tools["execute_code"].input_schema
    assert schema["required"] == ["code"]
    defaults = {name: p["default"] for name, p in schema["properties"].items() if "default" in p}
    assert defaults == {
        "timeout": 30,
        "capture_output": True,
        "allowed_imports": None,
        "use_container": False,
        "memory_limit": "128m",
    }
    assert tools["validate_code"].input_schema["required"] == ["code"]


def test_basic_execution(basic: Any) -> None:
    code = "result = 2 + 2\nprint(f'The answer is: {result}')"
    answer = basic.run(code, timeout=10, capture_output=True)
    assert uuid.UUID(answer.pop("execution_id"))
    assert 0 < answer.pop("execution_time") < 10
    assert answer == {
        "success": True,
        "result": 4,
        "stdout": "The answer is: 4\n",
        "stderr": "",
        "variables": ["result"],
        "security_warnings": [],
    }


@pytest.mark.parametrize(
    ("code", "arguments", "result", "shown"),
    [
        (AVERAGE, {"allowed_imports": ["math"], "timeout": 15}, 3.0, "Average: 3.0\n"),
        (FIBONACCI, {}, [0, 1, 1, 2, 3, 5, 8, 13, 21, 34], "Fibonacci sequence: "),
        ("print('Hello, World!')", {"timeout": 5}, None, "Hello, World!\n"),
        ("result = sum(range(10))", {"timeout": 5}, 45, ""),
        ("import math; print(math.pi)", {"timeout": 5}, None, "3.14159"),
    ],
)
def test_examples(basic: Any, code: str, arguments: dict[str, Any], result: Any, shown: str) -> None:
    answer = basic.run(code, **arguments)
    assert answer["success"], answer
    assert answer["result"] == result
    assert answer["stdout"].startswith(shown)


def test_data_science_and_container_mode(basic: Any, serve: Callable[..., Any], packages_env: Path) -> None:
    """`use_container` is the same sandbox, with the memory limit that the call names."""
    server = serve("--kernel-env", packages_env, SANDBOX_ENABLE_DATA_SCIENCE="true")
    answer = server.run(NUMPY, use_container=True, memory_limit="256m", timeout=30)
    assert (answer["success"], answer.get("result")) == (True, 3.0), answer
    code = "import numpy as np; data = np.random.rand(1000, 1000)"
    answer = server.run(code, use_container=True, memory_limit="512m", timeout=60)
    assert answer["success"] and answer["variables"] == ["data"], answer
    info = server.call("get_sandbox_info")
    science = info["security_profiles"]["data_science"]
    assert science["enabled"] and "numpy" not in science["not_installed"]
    # Its deny: without the variable.
    assert "data_science (SANDBOX_ENABLE_DATA_SCIENCE=true)" in basic.run(NUMPY)["error"]


@pytest.mark.parametrize(
    ("code", "lines", "size"), [("import os\nos.system('ls')", 2, 25), ("import os; os.system('ls')", 1, 26)]
)
def test_validation(basic: Any, code: str, lines: int, size: int) -> None:
    """The second code is of "Code Analysis and Validation"; the answer is of the example before."""
    answer = basic.call("validate_code", code=code)
    validation = answer["validation"]
    assert validation["valid"] is False
    assert validation["errors"] == ["Line 1: Import 'os' is not allowed"]
    assert validation["message"] == "Code contains restricted operations"
    size_of = {"line_count": lines, "character_count": size, "estimated_complexity": "low"}
    assert {k: v for k, v in answer["analysis"].items() if k != "imports"} == size_of
    assert answer["recommendations"][0] == "Some operations may be restricted in sandbox environment"
    assert "protects nothing" in answer["recommendations"][-1] and "protects nothing" in validation["notice"]
    good = basic.call("validate_code", code="print('Safe code execution')")["validation"]
    assert (good["valid"], good["verdict"], good["errors"]) == (True, "pass", [])


@pytest.mark.parametrize("name", ["get_sandbox_info", "list_capabilities"])
def test_capabilities(basic: Any, name: str) -> None:
    info = basic.call(name)
    assert info["success"] is True
    profiles = info["security_profiles"]
    assert {n: p["enabled"] for n, p in profiles.items()} == {
        "basic": True,
        "data_science": False,
        "network": False,
        "filesystem": False,
    }
    for profile, modules in {
        "basic": ["math", "random", "datetime", "json", "base64"],
        "data_science": ["numpy", "pandas", "scipy", "matplotlib"],
        "network": ["httpx", "requests", "urllib"],
        "filesystem": ["pathlib", "tempfile", "shutil"],
    }.items():
        assert set(modules) <= set(profiles[profile]["modules"])
    limits = info["resource_limits"]
    assert (limits["timeout"], limits["max_output_size"], limits["memory_limit"]) == (30, 1048576, "128m")
    assert limits["enforced"]["memory"]["value"] == 128 and limits["enforced"]["processes"]["value"] == 64
    assert info["container_mode"]["available"] is True
    assert info["sandbox"]["tier"] == "full" and info["sandbox"]["exec"] == "deny"


def test_every_module_of_the_profile_can_be_imported(basic: Any) -> None:
    modules = basic.call("get_sandbox_info")["security_profiles"]["basic"]["modules"]
    assert len(modules) > 40
    answer = basic.run("\n".join(f"import {m}" for m in modules) + "\nfrom urllib import parse\nparse.quote('a b')")
    assert answer.get("result") == "a%20b", answer


# ---------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("2 + 2", 4),
        ("x = 3\nx * 2", 6),
        ("output = [1]", [1]),
        ("result = 1\noutput = 2", 1),
        ("_ = 7", 7),
        ("x = 1", None),
        ("result = 1\n'last'", "last"),
        ("{1, 2}", [1, 2]),
        ("object", "<class 'object'>"),
        ("''", ""),
    ],
)
def test_what_the_result_is(basic: Any, code: str, result: Any) -> None:
    answer = basic.run(code)
    assert answer["success"] and answer["result"] == result, answer


def test_executions_share_nothing(basic: Any) -> None:
    first = basic.run("x = 1\nopen('/tmp/left', 'w').write('x')")
    second = basic.run("import uuid\n('x' in globals(), uuid.os.path.exists('/tmp/left'))")
    assert first["success"] and second["result"] == [False, False]
    assert first["execution_id"] != second["execution_id"]


def test_at_the_same_time(basic: Any) -> None:
    answers = basic.many([f"import time; time.sleep(0.05); result = {i}" for i in range(8)])
    assert [a["result"] for a in answers] == list(range(8))


def test_calls_that_are_cancelled_leave_room(basic: Any) -> None:
    """More than run at once."""

    async def cancelled() -> None:
        async def one() -> None:
            with anyio.move_on_after(0.5):
                await basic.session.call_tool("execute_code", {"code": "import time; time.sleep(100)"})

        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(one)

    basic._portal.call(cancelled)
    assert basic.run("1")["result"] == 1


def test_output_that_is_not_wanted(basic: Any) -> None:
    code = "import uuid\nprint('out'); print('err', file=uuid.os.sys.stderr)"
    assert {basic.run(code)[k] for k in ("stdout", "stderr")} == {"out\n", "err\n"}
    assert {basic.run(code, capture_output=False)[k] for k in ("stdout", "stderr")} == {""}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("def f(", "Syntax error: "),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import subprocess", "ImportError: `subprocess` is not in profile basic; "),
        ("from os import path", "ImportError: `os` is not in profile basic; "),
        ("import tempfile", "it is in profile filesystem (SANDBOX_ENABLE_FILESYSTEM=true)"),
    ],
)
def test_errors(basic: Any, code: str, error: str) -> None:
    answer = basic.run(code)
    assert answer["success"] is False and error in answer["error"]
    assert answer["traceback"] and uuid.UUID(answer["execution_id"])
    assert (answer.get("security_event") == "blocked_import") == ("import" in code)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"timeout": 301}, "the maximum of 300 seconds"),
        ({"timeout": 0}, "the maximum of 300 seconds"),
        ({"memory_limit": "32m"}, "less than the 64m that a Python kernel needs"),
        ({"memory_limit": "900g"}, "over the maximum of"),
        ({"memory_limit": "much"}, "no size such as 128m"),
        ({"allowed_imports": ["os"]}, "`os` is not in profile basic"),
        ({"code": "#" * 100_001}, "the maximum is 100000"),
    ],
)
def test_what_is_over_a_maximum_is_refused(basic: Any, arguments: dict[str, Any], error: str) -> None:
    answer = basic.run(**{"code": "1", **arguments})
    assert answer["success"] is False and error in answer["error"] and "result" not in answer


def test_variables_of_the_environment(serve: Callable[..., Any], tmp_path: Path) -> None:
    server = serve(
        SANDBOX_TIMEOUT="1",
        SANDBOX_MAX_OUTPUT_SIZE="1000",
        SANDBOX_ALLOWED_IMPORTS="os, time",
        SANDBOX_DEFAULT_MEMORY_LIMIT="96m",
        SANDBOX_TIMEOUTS="3",
    )
    assert server.run("while True: pass")["error"] == "Execution timed out after 1 seconds"
    answer = server.run("print('x' * 5000)")
    assert len(answer["stdout"]) == 1000 and "1000 characters" in answer["truncated"]
    assert "left out" in server.run("'x' * 5000")["result"]
    assert server.run("import os; os.sep")["result"] == "/"
    assert "SANDBOX_ALLOWED_IMPORTS" in server.run("import json")["error"]
    limits = server.call("get_sandbox_info")["resource_limits"]
    assert (limits["timeout"], limits["memory_limit"], limits["enforced"]["memory"]["value"]) == (1, "96m", 96)
    assert re.search("SANDBOX_TIMEOUTS is no variable", (tmp_path / "stderr.txt").read_text())
