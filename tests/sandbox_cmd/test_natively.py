"""What init does for a process has the results that the kernel gives: a program notices no difference."""

import os
import platform
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
