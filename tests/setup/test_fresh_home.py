"""A user who never ran IPython: nothing is needed in their home folder, and nothing is made there."""

import os
import subprocess
from pathlib import Path


def test_home_is_neither_needed_nor_touched(cellgate: Path, tmp_path: Path, slowness: float) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    passwd = tmp_path / "passwd"
    passwd.write_text(f"somebody:x:{os.getuid()}:{os.getgid()}::{home}:/bin/sh\n")
    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", "--ro-bind", passwd, "/etc/passwd", "--setenv", "HOME", home]
        + [cellgate, "run", "--workspace", work, "-c", "x = 41", "-c", "x + 1"],
        capture_output=True,
        text=True,
        timeout=60 * slowness,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("42\n", "", 0)
    assert list(home.iterdir()) == []
