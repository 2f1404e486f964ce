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


def test_a_home_that_is_read_only_is_named_as_the_reason(cellgate: Path, tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    view = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", home, home, "--setenv", "HOME", home, "--chdir", work]
    view += ["--unsetenv", "XDG_STATE_HOME", "--unsetenv", "XDG_DATA_HOME"]
    for command in (["mcp", "add", "x", "--", "true"], ["env", "create", "x"], ["jupyter", "install", "--user"]):
        done = subprocess.run([*view, cellgate, *command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert str(home / ".local") in done.stderr and "Read-only file system" in done.stderr
