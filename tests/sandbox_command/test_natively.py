"""Calls that init makes for a process have the same results as the kernel's: a program notices no difference."""

import os
import platform
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Box


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the calls' numbers are those of x86_64")
def test_calls_end_as_they_do_natively(box: Box) -> None:
    script = box.file("natively.py", (Path(__file__).parent / "natively.py").read_text())
    box.folder(box.work / "here")
    box.timeout *= 4  # thousands of calls
    p = box.sh(f"mkdir /dev/shm/own && exec python3 -B {script} {box.work}/here /dev/shm/own")
    differences = [line for line in p.stdout.splitlines() if " | natively " in line]
    assert differences == []
    assert int(p.stdout.split()[-2]) > 2000, p.stderr
    assert os.listdir(box.work / "here") == ["tree"]


def test_a_limit_that_a_process_gives_itself(box: Box) -> None:
    box.file("data", "text")
    script = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "os.truncate('data', 1000)\n"
        "try: os.truncate('data', 1001)\n"
        "except OSError as e: print(e.strerror)\n"
    )
    assert box.run("python3", "-c", script, settings=Box.settings()).stdout == "File too large\n"
    assert (box.work / "data").stat().st_size == 1000
    script = (
        "import os, resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: os.truncate('data', 1001)\n"
        "except OSError: signal.pause()\n"
    )
    assert box.run("python3", "-c", script, settings=Box.settings()).returncode == 128 + signal.SIGXFSZ
    assert (box.work / "data").stat().st_size == 1000


def test_a_file_that_cannot_be_emptied_leaves_no_descriptor(box: Box) -> None:
    data = box.file("data", "text")
    if not shutil.which("chattr") or subprocess.run(["chattr", "+a", data], capture_output=True).returncode:
        pytest.skip("no append-only files here")
    script = (
        "import os\n"
        "before = os.listdir('/proc/self/fd')\n"
        "try: os.open('data', os.O_WRONLY | os.O_APPEND | os.O_TRUNC)\n"
        "except OSError as e: print(e.strerror)\n"
        "print(os.listdir('/proc/self/fd') == before)\n"
    )
    try:
        p = box.run("python3", "-c", script, settings=Box.settings())
    finally:
        subprocess.run(["chattr", "-a", data], check=True)
    assert p.stdout == "Operation not permitted\nTrue\n"
    assert data.read_text() == "text"


def test_a_path_that_is_too_long_to_be_judged(box: Box) -> None:
    """Step by step, folders can be deeper than the longest path: nothing is made in them, and the reason is reported."""
    script = (
        "import os\n"
        "try:\n"
        "    for i in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        "except OSError as e: print(e.strerror)\n"
    )
    p = box.run("python3", "-c", script, settings=Box.settings())
    assert p.stdout == "File name too long\n" and "refused" not in p.stderr
    # In a place of the sandbox's own the kernel decides, to which that is nothing.
    p = box.run("python3", "-c", "import os; os.chdir('/dev/shm')\n" + script, settings=Box.settings())
    assert (p.stdout, p.returncode) == ("", 0)
