"""Tracebacks show the user's frames; all of them after %xmode Verbose."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from kernel.harness import Kernel


def text_of(error: dict[str, Any]) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))


INTERNAL = ("cellgate_kernel", "cellgate_tools", "_tool.py", "control.py", "list_directory.py", "concurrent/futures")

CALL = """
import _cellgate
from cellgate_tools import _tool
def mine():
    return _tool._result("files", "list", *_cellgate.tool_call("files", "list", b"{}", 0))
"""


def test_a_refused_call_shows_the_cells_frames(kernel: Kernel) -> None:
    kernel.run(CALL)
    kernel.tool_functions.extend([lambda c: ("rejected", b"no")] * 3)
    text = text_of(kernel.run("mine()").error)
    assert not any(name in text for name in INTERNAL), text
    assert "mine()" in text and "in mine()" in text and "RejectedError: files.list was not run: no" in text
    kernel.run("%xmode Verbose")
    assert "_tool.py" in text_of(kernel.run("%tb").error)
    assert "_tool.py" in text_of(kernel.run("mine()").error)


def test_a_call_in_a_thread(kernel: Kernel) -> None:
    kernel.run(CALL)
    kernel.tool_functions.append(lambda c: ("rejected", b"no"))
    code = "import asyncio\nawait asyncio.to_thread(mine)"
    text = text_of(kernel.run(code).error)
    assert "_tool.py" not in text and "await asyncio.to_thread" in text


def test_the_exception_keeps_its_frames(kernel: Kernel) -> None:
    kernel.run(CALL)
    kernel.tool_functions.append(lambda c: ("rejected", b"no"))
    kernel.run("mine()")
    code = "import sys, traceback\n[f.name for f in traceback.extract_tb(sys.last_value.__traceback__)][-1]"
    assert kernel.run(code).result == "'answer_of'"


def test_a_group_has_no_internal_frames(kernel: Kernel) -> None:
    kernel.run(CALL)
    kernel.tool_functions.append(lambda c: ("rejected", b"no"))
    text = text_of(kernel.run("try:\n    mine()\nexcept Exception as e:\n    raise ExceptionGroup('g', [e])").error)
    assert "in mine" in text and "_tool.py" not in text
    kernel.tool_functions.append(lambda c: ("rejected", b"no"))
    text = text_of(
        kernel.run(
            "try:\n    mine()\nexcept Exception as e:\n    e.__traceback__ = e.__traceback__.tb_next.tb_next; raise ExceptionGroup('g', [e])"
        ).error
    )
    assert "was not run: no" in text and "_tool.py" not in text


def test_an_error_of_our_own_code_alone_is_shown_whole(kernel: Kernel) -> None:
    text = text_of(
        kernel.run(
            "get_ipython().kernel.get_parent = 1\nfrom cellgate_kernel import request\nrequest.field({}, 'x', int)"
        ).error
    )
    assert "request.field" in text


@pytest.mark.no_sanitizer  # these have crash handlers of their own
def test_a_crash_shows_the_cells_frames(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn()
    kernel.execute("import os\ndef f():\n    os.abort()\nf()")
    text = kernel.wait_for_text("line 4 in <module>")
    assert "Fatal Python error: Aborted" in text
    assert re.findall(r'File "([^"]*)", line (\d+)', text) == [("<Cell In[1]>", "3"), ("<Cell In[1]>", "4")], text
    kernel = spawn()
    kernel.execute("import faulthandler, os\nfaulthandler.disable(); faulthandler.enable(2)\nos.abort()")
    assert "interactiveshell.py" in kernel.wait_for_text("Extension modules")


CRASHING_CHILD = """
import os
with open("kept", "w") as f: f.write("mine " * 100_000)
child = os.fork()
if child == 0:
    {close}
    os.abort()
status = os.waitpid(child, 0)[1]
print(os.WTERMSIG(status), open("kept").read().count("mine "), flush=True)
"""


@pytest.mark.no_sanitizer
def test_a_crash_leaves_the_files_of_a_forked_process(spawn: Callable[..., Kernel]) -> None:
    """A file with the number of a closed crash descriptor is not used for tracebacks."""
    closed = "os.closerange(3, 1024); files = [os.open('kept', os.O_RDWR) for _ in range(200)]"
    assert spawn().run(CRASHING_CHILD.format(close=closed)).text(stderr=False) == "6 100000\n"
    replaced = (
        "n = next(n for n in range(1024) if 'cellgate-crash' in os.path.realpath(f'/proc/self/fd/{n}'));"
        "os.dup2(os.open('kept', os.O_RDWR | os.O_APPEND), n)"
    )
    assert spawn().run(CRASHING_CHILD.format(close=replaced)).text(stderr=False) == "6 100000\n"


# ---------------------------------------------------------------- brief ones, for agents and terminals

# A library: its folder is one of packages, in the workspace or not.
LIBRARY = """
import os, sys
os.makedirs("lib/site-packages/deep", exist_ok=True)
open("lib/site-packages/deep/__init__.py", "w").write('''
def one(f): return two(f)
def two(f): return three(f)
def three(f):
    try: return f()
    except OSError as e: raise LookupError("not there") from e
def fail():
    try: int("x")
    except ValueError: raise KeyError("k")
''')
open("mine.py", "w").write('import deep\\ndef run(f): return deep.one(f)\\n')
sys.path[:0] = ["lib/site-packages", "."]
import deep, mine
"""


def shown(text: str) -> list[str]:
    """The functions of the frames that are shown; "" is the cell itself."""
    return re.findall(r"(?m)^(?:Cell In\[\d+\]|File ).*?(?:, in ([\w<>]+)\(.*)?$", text)


def test_frames_of_libraries_are_left_out(kernel: Kernel) -> None:
    kernel.run(LIBRARY)
    text = text_of(kernel.run("def ask(): return 1 / 0\nmine.run(ask)").error)
    assert shown(text) == ["", "run", "ask"]
    assert text.endswith("ZeroDivisionError: division by zero\n[3 frames left out; %tb shows all]")
    text = text_of(kernel.run("deep.one(lambda: deep.fail())").error)
    assert shown(text) == ["", "<lambda>", "fail"]
    behind = "ValueError: invalid literal for int() with base 10: 'x'"
    assert text.endswith(f"[4 frames left out, behind the error was {behind}; %tb shows all]")
    whole = text_of(kernel.run("%tb").error)
    assert all(name in whole for name in ("in one(", "in two(", "in three(", "in fail(", "invalid literal"))
    assert "left out" not in whole


def test_errors_that_the_users_code_has_met_are_shown(kernel: Kernel) -> None:
    kernel.run(LIBRARY)
    text = text_of(kernel.run("def ask(): open('/nothere')\nmine.run(ask)").error)
    assert "FileNotFoundError" in text and "LookupError: not there" in text and "direct cause" in text
    assert shown(text).count("ask") == 1
    text = text_of(kernel.run("try: deep.fail()\nexcept KeyError: raise RuntimeError('mine') from None").error)
    assert shown(text) == [""] and "left out" not in text


def test_a_recursion_of_the_user_is_brief(kernel: Kernel) -> None:
    text = text_of(kernel.run("def f(n): return f(n + 1)\nf(0)").error)
    assert len(text) < 1200
    assert re.search(r"\[9\d\d frames left out; %tb shows all\]$", text)


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError('x' * 50_000)",
        "raise ValueError('x\\n' * 50_000)",
        "x = '" + "x" * 5000 + "'; 1 / 0",
        "import urllib.request as u; u.urlopen('http://example.org')",
        "import json; json.loads('{bad')",
        "import concurrent.futures as c\nwith c.ThreadPoolExecutor() as e: list(e.map(int, 'ab'))",
        "await __import__('asyncio').wait_for(__import__('asyncio').sleep(5), 0.01)",
        "raise ExceptionGroup('g', [ValueError(i) for i in range(20)])",
        "def f(): open('/nothere')\nimport pathlib; pathlib.Path('/nothere').read_text()",
    ],
)
def test_an_error_is_no_longer_than_needed(kernel: Kernel, code: str) -> None:
    text = text_of(kernel.run(code).error)
    assert len(text) < (1000 if "x" * 99 in text or "x\nx\n" in text else 900), text
    assert "left out ...]" not in text or "%tb shows all]" in text


def test_what_a_failed_program_said_is_shown(kernel: Kernel) -> None:
    """Where subprocess has captured it, nothing else shows it."""
    code = "import subprocess as s; s.run(['ls', '/nothere'], check=True, capture_output=True"
    for options in (")", ", text=True)"):
        text = text_of(kernel.run(code + options).error)
        assert text.endswith("The end of its standard error: ls: cannot access '/nothere': No such file or directory")
    text = text_of(kernel.run("s.check_output('echo told; exit 3', shell=True)").error)
    assert text.endswith("The end of its standard output: told")
    text = text_of(kernel.run("s.run(['ls', '/nothere'], check=True)").error)
    assert "The end of" not in text


def test_a_notebook_has_whole_tracebacks(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn(front="jupyter")
    kernel.run(LIBRARY)
    text = text_of(kernel.run("deep.one(lambda: deep.fail())").error)
    assert all(name in text for name in ("in one(", "in two(", "in three(", "in fail(", "invalid literal"))
    assert "%tb" not in text


KEYS = "rows = [{'id': 1, 'region': 'a', 'total amount': 2}]\nclass D(dict): pass\n"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("rows[0]['regoin']", "did you mean 'region'? Keys: 'id', 'region', 'total amount'"),
        ("[row['zzz'] for row in rows]", "Keys: 'id', 'region', 'total amount'"),
        ("def f(r):\n    return (1, r [ 'total_amount' ])\nsorted(rows, key=f)", "did you mean 'total amount'? Keys: 'id', 'region', 'total amount'"),
        ("d = {'a': D(b=1)}\nd['a']['c']", "Keys: 'b'"),
        ("rows[0].pop('ID2')", "Keys: 'id', 'region', 'total amount'"),
        ("dict(a=1)['b']", None),
        ("{}['b']", None),
        ("raise KeyError('a', 'b')", None),
        ("class X:\n    def __getitem__(self, k): raise KeyError(k)\nX()['a']", None),
        ("rows[\n0]['a']", None),
    ],
)  # fmt: skip
def test_a_missing_key_names_those_that_are_there(kernel: Kernel, code: str, line: str | None) -> None:
    kernel.run(KEYS)
    if "for row" in code and kernel.run("import sys\nsys.version_info >= (3, 12)").result == "True":
        line = None  # a comprehension has no frame of its own, and Python has deleted row
    r = kernel.run(code)
    assert r.error["ename"] == "KeyError"
    found = [x for x in r.error["traceback"] if "Keys: " in x]
    assert found == ([] if line is None else [line])


def test_a_large_dict_is_not_shown_whole(kernel: Kernel) -> None:
    r = kernel.run("d = dict.fromkeys(f'field_{i}' * 5 for i in range(5000))\nd['field']")
    assert len(r.error["traceback"][-1]) < 400 and r.error["traceback"][-1].endswith("...")
