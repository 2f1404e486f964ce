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


def test_an_error_of_our_own_code_alone_is_shown_whole(kernel: Kernel) -> None:
    text = text_of(kernel.run("get_ipython().kernel.get_parent = 1\nfrom cellgate_kernel import request\nrequest.field({}, 'x', int)").error)
    assert "request.field" in text


@pytest.mark.no_sanitizer  # these have crash handlers of their own
def test_a_crash_shows_the_cells_frames(spawn: Callable[..., Kernel]) -> None:
    kernel = spawn()
    kernel.execute("import os\ndef f():\n    os.abort()\nf()")
    text = kernel.wait_for_text("Extension modules")
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
