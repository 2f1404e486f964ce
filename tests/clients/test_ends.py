"""After the end of a kernel, jupyter_client gets one reply with the reason, and a new kernel at the same sockets.

Other ends, and their messages, are in tests/jupyter.
"""

import os
from pathlib import Path
from queue import Empty

import pytest
from clients.support import Jupyter, Kernel, text_of
from processes import eventually

DEATHS = {
    "stack overflow": (
        "import ctypes\nf = ctypes.CFUNCTYPE(None)(lambda: f())\nimport sys\nsys.setrecursionlimit(10**8)\nf()",
        "SIG",
    ),
    "bus error": (
        "import ctypes, mmap, tempfile\nfile = tempfile.TemporaryFile()\nfile.truncate(4096)\n"
        "m = mmap.mmap(file.fileno(), 4096)\nfile.truncate(0)\nm[0]",
        "SIGBUS",
    ),
    "exit 0": ("import os\nos._exit(0)", "exit"),
}


def test_a_kernel_that_ends(kernel: Kernel) -> None:
    for code, reason in DEATHS.values():
        request = kernel.send("state = 1\nprint('output before the end', flush=True)\n" + code)
        reply = kernel.reply(request)
        errors = [m["content"] for m in kernel.outputs(request) if m["msg_type"] == "error"]
        assert reply["status"] == "error" and reply["ename"] and len(errors) == 1
        assert reason in reply["evalue"] and reason in errors[0]["evalue"]
        assert text_of(kernel.run("print('state' in globals())")[1]) == "False\n"
        with pytest.raises(Empty):  # no second reply to the cell that ended
            while True:
                late = kernel.client.get_shell_msg(timeout=0.1)
                assert late["parent_header"]["msg_id"] != request
        assert kernel.manager.is_alive() and kernel.client.hb_channel.is_beating()


def sleepers(word: str) -> list[str]:
    """Processes of the machine `sleep WORD`, in whichever namespace."""
    wanted, found = f"sleep\0{word}\0", []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if path.read_text() == wanted else []
        except OSError:
            continue
    return found


def test_a_restart_ends_what_runs(jupyter: Jupyter, kernel: Kernel, slowness: float) -> None:
    word = str(31415926 + os.getpid())  # which is in no other process's arguments
    spawn = f"import subprocess, time\nstate = [subprocess.Popen(['sleep', '{word}']) for _ in range(200)]\n"
    request = kernel.send(spawn + "print('on', flush=True)\ntime.sleep(600)")
    kernel.says(request, "on")
    assert sleepers(word)
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60 * slowness)
    assert text_of(kernel.run("print('state' in globals())")[1]) == "False\n"
    eventually(lambda: not sleepers(word))
