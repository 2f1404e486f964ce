"""cellgate.validate: what is found, what is fixed, and that nothing runs."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rounds import dear


@pytest.fixture(scope="module")
def session(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import cellgate

    with cellgate.Session(tmp_path_factory.mktemp("validate")) as s:
        yield s


def check(session: Any, code: str, language: str = "python", **more: Any) -> dict[str, Any]:
    from cellgate.validate import validate_code

    found = validate_code(code, language, session, **more)
    assert set(found) == {"valid", "verdict", "issues", "fixed_code", "fixes_applied", "analysis", "notice"}
    assert "protects nothing" in found["notice"]
    lines = code.count("\n") + 1
    assert all(1 <= i["line"] <= lines and i["col"] >= 1 for i in found["issues"])
    return dict(found)


def rules(found: dict[str, Any]) -> list[str]:
    return [issue["rule"] for issue in found["issues"]]


@pytest.mark.parametrize(
    "code",
    [
        "x = 1",
        "import asyncio\nawait asyncio.sleep(0)",
        "%timeit -n1 1\n!ls\nx = !ls\nlen?",
        "%%time\nimport math\nmath.pi",
        "%%html\n<b>",
        "%%bash\nfor i in 1 2; do echo $i; done",
        ">>> 1 + 1",
        "match 1:\n    case [a, *b]: print(a, b)",
        "In, Out, _, display(1)",
        "try:\n    import nowhere\nexcept ImportError:\n    nowhere = None",
    ],
)
def test_pass(session: Any, code: str) -> None:
    found = check(session, code)
    assert (found["verdict"], found["issues"], found["fixed_code"]) == ("pass", [], None)


@pytest.mark.parametrize(
    ("language", "code", "line"),
    [
        ("python", "x = 1\ndef f(:\n    pass", 2),
        ("python", "return 1", 1),
        ("python", "!ls\nx = (", 2),
        ("python", "%%bash\nls |", 2),
        ("python", "(" * 500, 1),
        ("python", "x = '\0'", 1),
        ("shell", "ls\nif true; then", 2),
        ("shell", "echo )", 1),
    ],
)
def test_reject(session: Any, language: str, code: str, line: int) -> None:
    found = check(session, code, language)
    assert (found["valid"], found["verdict"], rules(found)) == (False, "reject", ["syntax"])
    assert found["issues"][0]["line"] == line and found["fixed_code"] is None


@pytest.mark.parametrize(
    ("code", "fixed"),
    [
        ("print(json.dumps({}))", "import json\nprint(json.dumps({}))"),
        (
            '"""doc"""\nfrom __future__ import annotations\nre.sub',
            '"""doc"""\nfrom __future__ import annotations\nimport re\nre.sub',
        ),
        ('"""doc"""; re.sub', '"""doc"""; import re; re.sub'),
        ("#!/usr/bin/python\n# x\nos.sep", "#!/usr/bin/python\n# x\nimport os\nos.sep"),
        ("xml.etree.ElementTree.parse", "import xml.etree.ElementTree\nxml.etree.ElementTree.parse"),
        ("os.path.join", "import os\nos.path.join"),
        ("datetime.now()", "from datetime import datetime\ndatetime.now()"),
        ("datetime.datetime.now()", "import datetime\ndatetime.datetime.now()"),
        ("defaultdict(list)", "from collections import defaultdict\ndefaultdict(list)"),
        ("Path('a')", "from pathlib import Path\nPath('a')"),
        ("!ls\nmath.pi", "import math\n!ls\nmath.pi"),
        ("def f():\n    return math.pi", "import math\ndef f():\n    return math.pi"),
        ('"""a\u2028\x0c\r\nb"""\r\nmath.pi', '"""a\u2028\x0c\r\nb"""\r\nimport math\nmath.pi'),
        ("'é'; math.pi", "import math\n'é'; math.pi"),
        ("math.pi\nre.sub", "import math\nimport re\nmath.pi\nre.sub"),
    ],
)
def test_fixed(session: Any, code: str, fixed: str) -> None:
    found = check(session, code)
    if code.startswith("'é'"):
        fixed = "'é'; import math; math.pi"  # it is the docstring
    assert (found["verdict"], found["fixed_code"]) == ("fixed", fixed)
    assert found["fixes_applied"] and set(rules(found)) == {"missing-import"}
    assert check(session, fixed)["verdict"] == "pass"


def test_fixes_add_imports_and_nothing_else(session: Any) -> None:
    code = '"""Doc."""\nimport os\n@staticmethod\ndef f(): return json, json.x\nclass A: y = [re.sub for i in ()]\nprint(math.pi, os)\n'
    found = check(session, code)
    # `json` is used by itself as well: it may be anything.
    assert sorted(found["fixes_applied"]) == ["import math", "import re"]
    more = {ast.dump(n) for n in ast.parse("import re\nimport math").body}
    assert [ast.dump(n) for n in ast.parse(found["fixed_code"]).body if ast.dump(n) not in more] == [
        ast.dump(n) for n in ast.parse(code).body
    ]


def test_aliases_of_installed_packages(packages_env: Path, package: Path, tmp_path: Path) -> None:
    import cellgate

    with cellgate.Session(tmp_path, python=packages_env, private=True) as science:
        found = check(science, "plt.plot(np.zeros(3)); pd.DataFrame()")
    added = {"import matplotlib.pyplot as plt", "import numpy as np", "import pandas as pd"}
    assert set(found["fixes_applied"]) == added


def test_packages_that_are_not_there(session: Any) -> None:
    """No import that would fail is added."""
    found = check(session, "np.zeros(3)")
    assert (found["verdict"], rules(found)) == ("pass", ["undefined-name"])
    found = check(session, "import numpy")
    assert rules(found) == ["module-missing"] and "cellgate env add" in found["issues"][0]["message"]


def test_variables_of_the_session_are_no_missing_imports(session: Any) -> None:
    code = "string.strip()"
    assert check(session, code)["fixes_applied"] == ["import string"]
    session.run("string = ' x '").check()
    assert check(session, code)["fixed_code"] is None
    session.run("del string")
    assert check(session, code, names=["string"])["fixed_code"] is None


def test_a_variable_that_never_answers(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lookup of the next one would wait for it without end."""
    import cellgate

    monkeypatch.setattr("cellgate.validate.CHECK_SECONDS", 3.0)
    deaf = "class Deaf:\n def __repr__(self):\n  while True:\n   try: time.sleep(9)\n   except BaseException: pass"
    with cellgate.Session(tmp_path) as s:
        s.run(f"import time\n{deaf}\njson = re = Deaf()").check()
        asked, request = [], s.request
        monkeypatch.setattr(s, "request", lambda *args, **more: asked.append(args) or request(*args, **more))
        assert check(s, "json.dumps(1), re.escape('x')")["verdict"] == "pass" and len(asked) == 1


def test_forged_results() -> None:
    from cellgate import CellgateError
    from cellgate._session import Completed
    from cellgate.validate import _read

    good: dict[str, Any] = {"issues": [], "fixes": {"json": ["import json"]}, "analysis": {}}
    for forged in ({}, {"fixes": {"json": [1]}}, {"fixes": {"json": "x"}}, {"issues": {}}, {"fixed_code": None}):
        done = Completed(0)
        done._parts = [(False, json.dumps({**good, **forged}).encode())]
        if not forged:
            assert _read(done, "python") == good
            continue
        with pytest.raises(CellgateError, match="could not be checked"):
            _read(done, "python")


def test_many_names(session: Any) -> None:
    """Of more than are looked up none is imported, and nothing waits for thousands."""
    import sys

    names = [n for n in sys.stdlib_module_names if n not in ("antigravity", "this") and n[0] != "_"]
    found = check(session, "\n".join(f"{n}.x" for n in names))
    assert 20 < len(found["fixes_applied"]) <= 32


def test_nothing_runs_and_nothing_stays(session: Any) -> None:
    session.run("marker = 1").check()
    code = "open('ran', 'w').write('x')\nmarker = 2\n@print\ndef f(x=open('ran', 'w')): pass"
    check(session, code)
    check(session, "touch ran; $(touch ran)", "shell")
    assert session.run("import os\n(marker, os.listdir())").value == "(1, [])"


def test_what_the_sandbox_will_refuse(session: Any, package: Path, tmp_path: Path) -> None:
    import cellgate

    code = "open('/etc/x', 'w')\nopen('/etc/nosuch')\nurl = 'https://a.example/b'\nimport os\nos.system('nosuchprogram -x')"
    assert rules(check(session, code)) == ["path", "path", "host", "program"]
    assert rules(check(session, "open('a\\0')\nopen('~\\0', 'w')")) == []
    assert rules(check(session, "open('mine', 'w')\nopen('/etc/passwd')\nimport os\nos.system('ls')")) == []
    assert rules(check(session, "u = 'https://a.example/'", hosts=["*.example", "b.example:443"])) == []
    found = check(session, "u = 'https://x.test/'", hosts=["a.example"])
    assert "not among the allowed hosts: a.example" in found["issues"][0]["message"] and found["valid"]
    assert rules(check(session, "curl https://x.test/", "shell")) == ["host"]
    with cellgate.Session(tmp_path, exec="deny", private=True) as s:
        assert rules(check(s, "import os\nos.system('ls')")) == ["program"]
        assert rules(check(s, "echo a\nls | cd x", "shell")) == ["program"]


SHELL = [
    ("nosuch a", [1]),
    ("ls; nosuch a && X=1 nosuch\nif nosuch; then nosuch; fi", [1, 1, 2, 2]),
    ("ls # nosuch\n'a\n;nosuch' b\nnosuch", [4]),
    ("ls |\n  nosuch\n! nosuch", [2, 3]),
    ("f() {\n  ls\n}\nf x; function g { ls; }; g; alias h=ls\nh", []),
    ("a=(x y); ((i = 0, j)); for ((i=0;i<3;i++)); do echo; done; [[ a && b ]] && echo", []),
    ("case x in\na) ls ;;\nb|c) ls ;;\nesac; for nosuch in a b; do echo $nosuch; done", []),
    ("echo >nosuch 2>&1; ls >&2 nosuch; echo \\\n nosuch \"a; nosuch b\" 'c\nnosuch'", []),
    ("cat <<X\nnosuch\nX", []),
    ("export PATH=$HOME/bin\nnosuch", []),
    (". ./functions\nnosuch", []),
    ('./nosuch; $nosuch; "$x"; x=$(nosuch; nosuch)', []),
]


@pytest.mark.parametrize(("code", "lines"), SHELL)
def test_programs_of_the_shell(session: Any, code: str, lines: list[int]) -> None:
    assert [(i["rule"], i["line"]) for i in check(session, code, "shell")["issues"]] == [("program", n) for n in lines]


def test_allowed_imports(session: Any) -> None:
    allowed = ["math", "os.path"]
    assert check(session, "import math, os.path\nfrom os import path", allowed_imports=allowed)["valid"]
    found = check(session, "import os\nfrom os import sep\n__import__('re')", allowed_imports=allowed)
    assert (found["verdict"], rules(found)) == ("reject", ["import-not-allowed"] * 3)
    assert check(session, "re.sub", allowed_imports=allowed)["fixed_code"] is None


@pytest.mark.parametrize(
    ("language", "code"),
    [
        *[pytest.param("shell", code, marks=dear) for code in ("dd curl " * 60_000, "nosuch;" * 120_000)],
        ("shell", "curl http://a.example/ | sh\n" * 30_000),
        ("shell", "a" * 1_000_000),
        ("shell", "a" + " " * 500_000 + "'\"" * 200_000),
        ("node", "\n" * 1_000_000),
        ("node", "from\n'a'" * 100_000),
        ("python", "\n".join(f"v{i}; import v{i}" for i in range(30_000))),
        ("python", "x = '" + "http://a.example " * 50_000 + "'"),
    ],
)
def test_long_code(session: Any, language: str, code: str) -> None:
    """Neither the time nor the result grows faster than the code."""
    found = check(session, code, language, dangers=True)
    assert len(found["issues"]) <= 2000 and ("more" in rules(found)) == (len(found["issues"]) >= 1000)


def test_no_warning_takes_the_place_of_an_error(session: Any) -> None:
    code = "\n".join(["import nowhere"] * 1100 + ["import os"])
    found = check(session, code, allowed_imports=["nowhere"])
    assert not found["valid"] and rules(found).count("more") == 1


def test_dangers(session: Any) -> None:
    code = "import pickle\neval('1')\n"
    assert "danger" not in rules(check(session, code))
    found = check(session, code, dangers=True)
    assert [(i["line"], i["message"][:6]) for i in found["issues"]] == [(1, "pickle"), (2, "eval()")] and found["valid"]
    assert rules(check(session, "%%bash\n\nrm -rf /; rm -rf /", dangers=True)) == ["danger"]


def test_node(session: Any) -> None:
    if not shutil.which("node"):
        pytest.skip("no node")
    for code in ("let x = 1", "import fs from 'fs'; await 1"):
        assert check(session, code, "node")["verdict"] == "pass"
    assert [i["line"] for i in check(session, "1;\neval('1')", "node", dangers=True)["issues"]] == [2]
    code = "import a from 'nosuch';\nrequire('fs'); require('node:os'); require('./own'); require('mcptools/x')"
    found = check(session, f"{code}\nawait import('@s/nosuch/sub')", "node")
    assert [(i["rule"], i["line"]) for i in found["issues"]] == [("module-missing", 1), ("module-missing", 3)]
    found = check(session, "let a = 1\nlet b = ;", "node")
    assert (found["verdict"], found["issues"][0]["line"]) == ("reject", 2)
    assert "SyntaxError" in found["issues"][0]["message"]


def test_wrong_arguments(session: Any) -> None:
    import cellgate

    with pytest.raises(cellgate.InvalidArgumentError, match="python, node, shell, not 'cobol'"):
        check(session, "x", "cobol")
    with pytest.raises(cellgate.LimitExceededError, match="at most"):
        check(session, "x" * (2 << 20))


def test_code_that_the_parser_cannot_hold(session: Any) -> None:
    """It ends the process of the check at worst."""
    import cellgate

    for code in ("-" * 100_000 + "1", "a." * 200_000 + "a", "[" * 90 + "]" * 90):
        try:
            check(session, code)
        except cellgate.CellgateError as e:
            assert "could not be checked" in str(e)
    assert check(session, "1")["verdict"] == "pass"


def test_in_a_sandbox_of_its_own(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cellgate.validate import validate_code

    (tmp_path / "mine.py").touch()
    monkeypatch.chdir(tmp_path)
    found = validate_code("import mine\nopen('out', 'w')")
    assert [i["rule"] for i in found["issues"]] == ["path"]


@pytest.mark.anyio
async def test_asyncio(package: Path, tmp_path: Path) -> None:
    from cellgate import aio
    from cellgate.validate import validate_code_async

    async with aio.Session(tmp_path) as s:
        assert (await validate_code_async("json.x", session=s))["fixes_applied"] == ["import json"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
