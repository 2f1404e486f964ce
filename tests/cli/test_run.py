"""`cellgate run`: cells, files, output, images and every exit status but those about approvals (test_approvals.py)."""

from __future__ import annotations

import array
import fcntl
import json
import os
import select
import signal
import stat
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import web

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def notebook(*cells: dict) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells)})


def code(source: str | list[str]) -> dict:
    return {"cell_type": "code", "source": source, "outputs": [], "execution_count": None, "metadata": {}}


# ---------------------------------------------------------------- cells


def test_streams_and_results_go_where_they_belong(run_cellgate: Run) -> None:
    r = run_cellgate("run", "-c", "import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
    assert (r.returncode, r.stdout, r.stderr) == (0, "out\n42\n", "err\n")


def test_cells_share_a_session_and_run_before_the_file(run_cellgate: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("# %%\nx += 1\n# %% [markdown]\n# not Python: )(\n# %%\nprint(x)\n")
    r = run_cellgate("run", file, "-c", "x = 1", "--code=x = x * 10")
    assert (r.returncode, r.stdout, r.stderr) == (0, "11\n", "")


def test_notebook(run_cellgate: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.ipynb"
    file.write_text(notebook(code(["x = 1\n", "y = 2"]), {"cell_type": "markdown", "source": ["# )("]}, code("x + y")))
    r = run_cellgate("run", file)
    assert (r.returncode, r.stdout, r.stderr) == (0, "3\n", "")


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_a_python_file(run_cellgate: Run, name: str) -> None:
    r = run_cellgate("run", name, input="x = 1\n# %%\nprint(x)\n")
    assert (r.returncode, r.stdout, r.stderr) == (0, "1\n", "")


def test_file_without_code(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(notebook({"cell_type": "markdown", "source": "text"}))
    r = run_cellgate("run", "a.ipynb")
    assert (r.returncode, r.stdout) == (0, "")
    assert "a.ipynb has no code cells" in r.stderr


def test_ipython_is_real(run_cellgate: Run) -> None:
    r = run_cellgate("run", "-c", "!echo shell", "-c", "import asyncio; await asyncio.sleep(0); print('awaited')")
    assert (r.returncode, r.stdout) == (0, "shell\nawaited\n")


def test_workspace_is_the_place_to_write(run_cellgate: Run, tmp_path: Path) -> None:
    space = tmp_path / "a space"
    space.mkdir()
    r = run_cellgate("run", "--workspace", space, "-c", "open('f', 'w').write('x'); import os; print(os.getcwd())")
    assert (r.returncode, r.stdout) == (0, f"{space}\n")
    assert (space / "f").read_text() == "x"
    run_cellgate("run", "--workspace", space, "-c", f"open({str(tmp_path / 'g')!r}, 'w')")
    assert not (tmp_path / "g").exists()
    assert run_cellgate("run", "--workspace", space, "-c", "open('/usr/g', 'w')").returncode == 1


def test_files_that_a_cell_made_or_changed(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    code = "for name in ('new', 'a\\nb\\x1b[31m', '\\u202ecod.exe'): _ = open(name, 'w').write('123')"
    cells = ("-c", code, "-c", "1 + 1", "-c", "open('old', 'a').close()")
    r = run_cellgate("run", "--workspace", str(tmp_path), "--artifacts", *cells)
    assert r.stdout == "2\n"
    assert sorted(r.stderr.splitlines()) == [
        f"[cellgate] made or changed: {tmp_path}/{name} (3 bytes)"
        for name in (r"\u202ecod.exe", r"a\x0ab\x1b[31m", "new")
    ]


def test_files_are_named_on_request_and_not_all(run_cellgate: Run, tmp_path: Path) -> None:
    r = run_cellgate("run", "--workspace", str(tmp_path), "--json", "--artifacts", "-c", "open(b'\\xff', 'w').close()")
    (result,) = [line for line in map(json.loads, r.stdout.splitlines()) if line["type"] == "result"]
    assert [f["path_hex"] for f in result["artifacts"]["files"]] == [(bytes(tmp_path) + b"/\xff").hex()]
    r = run_cellgate("run", "--workspace", str(tmp_path), "--artifacts", "-c", "open(b'\\xfe', 'w').close()")
    assert f"hexadecimal {(bytes(tmp_path) + bytes([0x2F, 0xFE])).hex()} (0 bytes)" in r.stderr
    code = "for i in range(60): open('%02d' % i + 'x' * 240, 'w').close()"
    assert run_cellgate("run", "--workspace", str(tmp_path), "-c", code).stderr == ""
    lines = run_cellgate("run", "--workspace", str(tmp_path), "--artifacts", "-c", code).stderr.splitlines()
    assert len(lines) == 51 and lines[-1] == "[cellgate] made or changed: 10 more"


@pytest.mark.no_sanitizer  # AddressSanitizer alone takes more than the least
@pytest.mark.parametrize(("limit", "least"), [("memoryMb=5", 64), ("processes=1", 8), ("openFiles=3", 32)])
def test_a_limit_too_small_names_the_least(run_cellgate: Run, limit: str, least: int) -> None:
    r = run_cellgate("run", "--limit", limit, "-c", "1")
    assert r.returncode == 2
    assert r.stderr == (
        f"cellgate run: --limit {limit} is too small a limit for a kernel: the least that works is {least}\n"
    )
    assert run_cellgate("run", "--limit", f"{limit.split('=')[0]}={least}", "-c", "1").returncode == 0


def test_limits(run_cellgate: Run, tmp_path: Path) -> None:
    many = "l = [open('/dev/null') for i in range(100)]"
    r = run_cellgate("run", "--limit", "openFiles=200", "-c", many)
    assert (r.returncode, r.stderr) == (0, "")
    r = run_cellgate("run", "--limit", "openFiles=50", "--limit=outputMb=1", "-c", many)
    assert r.returncode == 1
    assert "open file limit of 50 reached (rlimit). To allow it: raise --limit openFiles\n" in r.stderr
    # It wins over the file.
    file = tmp_path / "settings.json"
    none = web.settings(filesystem={"allowWrite": []})
    file.write_text(json.dumps({**none, "cellgate": {"limits": {"openFiles": 50, "wallSeconds": 500}}}))
    assert run_cellgate("run", "--sandbox", file, "-c", many).returncode == 1
    assert run_cellgate("run", "--sandbox", file, "--limit", "openFiles=200", "-c", many).returncode == 0


def test_environment(run_cellgate: Run) -> None:
    show = "import os; print(os.environ.get('A'), os.environ.get('B'), os.environ.get('HOST_SECRET'))"
    r = run_cellgate("run", "--env", "A=1=2", "--env", "B=", "-c", show, env={"HOST_SECRET": "x"})
    assert (r.returncode, r.stdout) == (0, "1=2  None\n")


def test_preload(run_cellgate: Run) -> None:
    r = run_cellgate("run", "--preload", "colorsys,json", "-c", "import sys; print('colorsys' in sys.modules)")
    assert (r.returncode, r.stdout) == (0, "True\n")


def test_no_sandbox_says_so(run_cellgate: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    space = tmp_path / "space"
    space.mkdir()
    cell = f"open({str(outside)!r}, 'w').close()"
    r = run_cellgate("run", "--no-sandbox", "--workspace", space, "-c", cell)
    assert r.returncode == 0
    assert outside.exists()
    assert "[cellgate] no sandbox:" in r.stderr
    assert "no sandbox" not in run_cellgate("run", "-c", "pass").stderr


# ---------------------------------------------------------------- exit status


def test_1_first_failing_cell_ends_the_run(run_cellgate: Run) -> None:
    r = run_cellgate("run", "-c", "print(1)", "-c", "1/0", "-c", "print(3)")
    assert (r.returncode, r.stdout) == (1, "1\n")
    assert "ZeroDivisionError: division by zero" in r.stderr
    assert "\x1b" not in r.stderr


def test_1_syntax_error(run_cellgate: Run) -> None:
    r = run_cellgate("run", "-c", "print(")
    assert (r.returncode, r.stdout) == (1, "")
    assert "SyntaxError" in r.stderr


@pytest.mark.parametrize("death", ["import os; os._exit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_3_kernel_died(run_cellgate: Run, death: str) -> None:
    r = run_cellgate("run", "-c", "print(1, flush=True)", "-c", death, "-c", "print(3)")
    assert (r.returncode, r.stdout) == (3, "1\n")
    assert r.stderr.count("[cellgate]") == 1
    assert "cell 2" in r.stderr or "died" in r.stderr


def test_124_timeout(run_cellgate: Run) -> None:
    r = run_cellgate("run", "--timeout", "2", "-c", "print(1)", "-c", "import time; time.sleep(60)", "-c", "print(3)")
    assert (r.returncode, r.stdout) == (124, "1\n")
    assert "[cellgate] cell 2:" in r.stderr


def test_timeout_is_for_each_cell_and_0_is_none(run_cellgate: Run) -> None:
    naps = ["-c", "import time; time.sleep(1)"] * 5
    assert run_cellgate("run", "--timeout", "4", *naps).returncode == 0
    assert run_cellgate("run", "--timeout", "0", *naps[:2]).returncode == 0


def start(cellgate: Path, cwd: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(cellgate), "run", *args],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_130_interrupt_cancels_the_cell(cellgate: Path, tmp_path: Path, slowness: float) -> None:
    cell = "import time\ntry:\n  print('go', flush=True); time.sleep(60)\nfinally: print('cleaned up')"
    with start(cellgate, tmp_path, "-c", cell, "-c", "print('next')") as p:
        assert p.stdout and p.stdout.readline() == "go\n"
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=20 * slowness)
    assert (p.returncode, out) == (130, "cleaned up\n")
    assert "KeyboardInterrupt" in err


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("cell", ["catches it", "is ended by it", "cannot be interrupted", "is over"])
def test_a_signal_has_one_status_whatever_becomes_of_the_cell(
    cellgate: Path, tmp_path: Path, slowness: float, sig: signal.Signals, cell: str
) -> None:
    code = {
        "catches it": "import time\ntry:\n  print('go', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: pass",
        "is ended by it": "import time\nprint('go', flush=True); time.sleep(60)",
        "cannot be interrupted": "import os, signal\nsignal.signal(signal.SIGINT, lambda *a: os._exit(0))\n"
        "print('go', flush=True); signal.pause()",
        "is over": "print('go', flush=True)",
    }
    with start(cellgate, tmp_path, "-c", code[cell], "-c", "import time; time.sleep(60)") as p:
        assert p.stdout and p.stdout.readline() == "go\n"
        p.send_signal(sig)
        p.communicate(timeout=20 * slowness)
    assert p.returncode == 128 + sig


def test_second_interrupt_ends_at_once(cellgate: Path, tmp_path: Path, slowness: float) -> None:
    """The cell ignores interrupts; the second one does not wait for it."""
    cell = (
        "import time\ndef stay():\n  while True:\n    try:\n      print('go', flush=True); time.sleep(60)\n"
        "    except KeyboardInterrupt: pass\nstay()"
    )
    with start(cellgate, tmp_path, "-c", cell) as p:
        assert p.stdout
        assert p.stdout.readline() == "go\n"
        p.send_signal(signal.SIGINT)
        assert p.stdout.readline() == "go\n"
        p.send_signal(signal.SIGINT)
        assert p.wait(20 * slowness) == 130
        assert p.stderr and "did not react" not in p.stderr.read()  # what is said when the kernel is given up


FLOOD = """
from IPython.display import display
def stay():
    while True:
        try: display({%r: "A" * 3_000_000}, raw=True)
        except KeyboardInterrupt: pass
print("go", flush=True)
stay()
"""


@pytest.mark.sanitized_in_soak
@pytest.mark.parametrize("mime", ["text/plain", "image/png"])
def test_a_signal_ends_a_flood_of_displays(cellgate: Path, tmp_path: Path, slowness: float, mime: str) -> None:
    """The cell sends displays faster than they are shown, and ignores the interrupt."""
    with start(cellgate, tmp_path, "-c", FLOOD % mime) as p:
        assert p.stdout
        for _ in range(3):  # of an image only its name is shown
            p.stdout.readline() if mime == "image/png" else p.stdout.read(6_000_000)
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=20 * slowness)
    assert p.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_signal_ends_a_run_whose_output_nobody_reads(
    cellgate: Path, tmp_path: Path, slowness: float, form: list[str]
) -> None:
    """It is blocked in write() when the signal comes."""
    with start(cellgate, tmp_path, *form, "-c", FLOOD % "text/plain") as p:
        assert p.stdout
        unread = array.array("i", [0])
        while unread[0] < 60_000:
            fcntl.ioctl(p.stdout, termios.FIONREAD, unread)
            time.sleep(0.01)
        p.send_signal(signal.SIGTERM)
        assert p.wait(20 * slowness) == 128 + signal.SIGTERM


@pytest.mark.no_sanitizer  # it waits for half a minute
def test_a_call_without_a_time_limit_says_that_it_waits(cellgate: Path, tmp_path: Path, slowness: float) -> None:
    """The call of the other server has a limit: its end is known."""
    fake = {"command": "/usr/bin/python3", "args": [str(Path(__file__).parents[1] / "mcp/fake_server.py")]}
    mcp = tmp_path / "mcp.json"
    mcp.write_text(json.dumps({"mcpServers": {"silent": fake, "limited": {**fake, "timeout": 3600}}}))
    cell = (
        "import mcptools.silent, mcptools.limited, threading\n"
        "threading.Thread(target=mcptools.limited.hang.run).start()\n"
        "mcptools.silent.hang.run()"
    )
    with start(cellgate, tmp_path, "--mcp", str(mcp), "--approve", "all", "-c", cell) as p:
        assert p.stderr and select.select([p.stderr], [], [], 100 * slowness)[0]
        note = p.stderr.readline()
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=20 * slowness)
    assert "silent.hang: no answer for 30 s" in note and '"timeout"' in note


def test_full_disk_is_an_error(cellgate: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        r = subprocess.run(
            [cellgate, "run", "-c", "print('x' * 100)"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert r.returncode == 2
    assert "standard output: No space left on device" in r.stderr


def test_reader_that_went_ends_quietly(cellgate: Path, tmp_path: Path, slowness: float) -> None:
    cell = "while True: print('x' * 1000)"
    with start(cellgate, tmp_path, "-c", cell) as p:
        assert p.stdout and p.stderr and p.stdout.readline()
        p.stdout.close()
        assert p.wait(20 * slowness) == 141
        assert p.stderr.read() == ""


# ---------------------------------------------------------------- images and displays


def show(mime: str, data: str) -> str:
    return f"from IPython.display import display; display({{{mime!r}: {data!r}, 'text/plain': '<picture>'}}, raw=True)"


def test_images_are_saved(run_cellgate: Run, tmp_path: Path) -> None:
    cells = [show("image/png", PNG) + ";" + show("image/svg+xml", "<svg/>"), "pass", show("image/jpeg", "/9j/")]
    r = run_cellgate("run", *[word for cell in cells for word in ("-c", cell)])
    assert r.stdout == "[image: images/cell1-1.png]\n[image: images/cell1-2.svg]\n[image: images/cell3-1.jpg]\n"
    assert (tmp_path / "images/cell1-1.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert (tmp_path / "images/cell1-2.svg").read_text() == "<svg/>"


def test_images_replace_nothing(run_cellgate: Run, tmp_path: Path) -> None:
    for number in 1, 2:
        r = run_cellgate("run", "--images", tmp_path / "pics", "-c", show("image/png", PNG))
        assert r.stdout == f"[image: {tmp_path}/pics/cell1-{number}.png]\n"
    assert len(list((tmp_path / "pics").iterdir())) == 2


def test_kernel_cannot_choose_where_images_go(run_cellgate: Run, tmp_path: Path) -> None:
    """images/ is in the workspace: a cell makes it a link to a folder that only the host may write."""
    secret = tmp_path / "secret"
    secret.mkdir()
    space = tmp_path / "space"
    space.mkdir()
    link = f"import os; os.symlink({str(secret)!r}, 'images')"
    r = run_cellgate("run", "-c", link, "-c", show("image/png", PNG), "-c", "print('on')", cwd=space)
    assert (r.returncode, r.stdout) == (0, "on\n"), r.stderr
    assert "image not saved: images, where images go, is a symbolic link, not a folder" in r.stderr
    assert list(secret.iterdir()) == []


@pytest.mark.parametrize("kind", ["FIFO", "symbolic link", "dangling symbolic link", "file", "device", "socket"])
def test_whatever_stands_in_the_place_of_the_folder_the_run_goes_on(
    run_cellgate: Run, tmp_path: Path, kind: str
) -> None:
    """An earlier cell may have made it. Nothing waits for a FIFO's reader; a notice reports that the image is not saved."""
    images = tmp_path / "images"
    make: dict[str, Callable[[], object]] = {
        "FIFO": lambda: os.mkfifo(images),
        "symbolic link": lambda: images.symlink_to("/tmp"),
        "dangling symbolic link": lambda: images.symlink_to("nowhere"),
        "file": lambda: images.write_text("mine"),
        "device": lambda: os.mknod(images, stat.S_IFCHR | 0o666, os.makedev(1, 3)),
        "socket": lambda: os.mknod(images, stat.S_IFSOCK | 0o666),
    }
    try:
        make[kind]()
    except PermissionError:
        pytest.skip("only root makes devices")
    r = run_cellgate("run", "-c", show("image/png", PNG), "-c", "print('on')")
    assert (r.returncode, r.stdout) == (0, "on\n"), r.stderr
    named = kind.removeprefix("dangling ")
    assert f"image not saved: images, where images go, is a {named}, not a folder: remove it" in r.stderr
    assert not images.is_dir() or images.is_symlink()


@pytest.mark.parametrize(
    "trap", ["os.mkfifo(n)", "os.symlink('/dev/full', n)", "os.mkdir(n)", "os.symlink('../keep', n)"]
)
def test_names_of_images_that_are_taken(run_cellgate: Run, tmp_path: Path, trap: str) -> None:
    (tmp_path / "keep").write_text("mine")
    cell = f"import os; os.mkdir('images'); n = 'images/cell2-1.png'; {trap}"
    r = run_cellgate("run", "-c", cell, "-c", show("image/png", PNG))
    assert (r.returncode, r.stdout) == (0, "[image: images/cell2-2.png]\n"), r.stderr
    assert (tmp_path / "keep").read_text() == "mine"


def test_a_folder_for_images_that_cells_remove_or_swap(run_cellgate: Run, tmp_path: Path) -> None:
    swap = "import os, shutil, time; shutil.rmtree('images')"
    race = f"""
import os, threading
stop = False
def swap():
    while not stop:
        for make in (lambda: os.symlink('/tmp', 'images'), lambda: os.mkfifo('images'), lambda: os.mkdir('images')):
            try:
                make(); os.rename('images', 'images.old')
                os.rmdir('images.old') if os.path.isdir('images.old') else os.unlink('images.old')
            except OSError:
                shutil.rmtree('images.old', ignore_errors=True)
t = threading.Thread(target=swap); t.start()
for _ in range(50):
    {show("image/png", PNG)}
stop = True; t.join(); print('on')
"""
    cells = [show("image/png", PNG), swap, show("image/png", PNG), swap, race]
    r = run_cellgate("run", *[word for cell in cells for word in ("-c", cell)])
    assert r.returncode == 0, r.stderr
    assert r.stdout.startswith("[image: images/cell1-1.png]\n[image: images/cell3-1.png]\n")
    assert r.stdout.endswith("on\n")


def test_bad_image_is_told(run_cellgate: Run, tmp_path: Path) -> None:
    r = run_cellgate("run", "-c", show("image/png", "not base64!") + "; print('on')")
    assert (r.returncode, r.stdout) == (0, "on\n")
    assert "image not saved" in r.stderr
    assert not (tmp_path / "images").exists()


def test_displays(run_cellgate: Run) -> None:
    r = run_cellgate(
        "run",
        "-c",
        "from IPython.display import display; display({'text/plain': 'plain', 'text/html': '<b>'}, raw=True)",
        "-c",
        "display({'text/html': '<b>', 'application/json': '1'}, raw=True)",
        "-c",
        "display({'application/x-other': 'x', 'audio/x-other': 'y'}, raw=True)",
    )
    assert r.stdout == 'plain\n"1"\n[display: application/x-other, audio/x-other]\n'


def test_much_output(run_cellgate: Run) -> None:
    r = run_cellgate("run", "-c", "for i in range(200000): print(i)", timeout=60)
    assert r.returncode == 0
    assert r.stdout == "".join(f"{i}\n" for i in range(200000))


def test_strange_output(run_cellgate: Run) -> None:
    r = run_cellgate("run", "-c", r"print('a\x00b\ud800'); raise ValueError('\ud800 \x00')")
    assert r.returncode == 1
    assert r.stdout.startswith("a\0b")
    assert "ValueError" in r.stderr


NOTES = """x = 1

# %% the second


def f():
    return 1 / 0
# %%
f()
"""


def test_tracebacks_name_the_file_and_its_lines(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    r = run_cellgate("run", "notes.py")
    assert "File notes.py:9\n----> 9 f()\n" in r.stderr
    assert "File notes.py:7, in f()\n" in r.stderr and "----> 7     return 1 / 0\n" in r.stderr
    assert "Cell In" not in r.stderr
    (tmp_path / "syntax.py").write_text("# %%\nx = 1\n# %%\n\n\ny = (\n")
    r = run_cellgate("run", "syntax.py")
    assert "File syntax.py:6\n    y = (\n" in r.stderr
    (tmp_path / "group.py").write_text("\n\nraise ExceptionGroup('g', [ValueError('v')])\n")
    assert 'File "group.py", line 3' in run_cellgate("run", "group.py").stderr
    # Code without a file has the cell's number, also beside code with a file.
    r = run_cellgate("run", "-c", "def g(h): h()", "-c", "g(lambda: 1/0)", "notes.py")
    assert "Cell In[2], line 1" in r.stderr and "notes.py" not in r.stderr


def test_lines_of_cells_with_magics(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("x = 1\n# %%\n!true\n\n1/0\n")
    assert "File m.py:5\n" in run_cellgate("run", "m.py").stderr


# ---------------------------------------------------------------- other languages


@pytest.mark.parametrize(
    ("name", "text", "stdout"),
    [
        ("a.sh", "echo $((6 * 7))", "42\n"),
        ("a.bash", "echo ${BASH_VERSION:0:0}ok", "ok\n"),
        ("script", "#!/bin/bash -e\necho ok", "ok\n"),
        ("script", "#! /usr/bin/env -S bash\necho ok", "ok\n"),
        ("script", "#!/usr/bin/env python3.11\nprint(6 * 7)", "42\n"),
        ("a.sh", "x=1\n# %%\ntrue\n# %%\necho $x", "1\n"),
        ("a.js", "const x = require('path').sep\nx", "'/'\n"),
        ("a.mjs", "import { sep } from 'path'\nconsole.log(sep)", "/\n"),
        ("a.cjs", "let x = 1\n// %%\nx + 1", "2\n"),
        ("script", "#!/usr/bin/env node\nawait 42", "42\n"),
    ],
)
def test_the_language_of_a_file(run_cellgate: Run, tmp_path: Path, name: str, text: str, stdout: str) -> None:
    (tmp_path / name).write_text(text)
    r = run_cellgate("run", name)
    assert (r.returncode, r.stdout, r.stderr) == (0, stdout, "")


def test_a_shell_script_that_fails(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "deploy.sh").write_text("#!/bin/bash\nset -e\ntrap 'echo cleaned up' EXIT\n\nnosuchcommand\necho no\n")
    r = run_cellgate("run", "deploy.sh")
    assert (r.returncode, r.stdout) == (1, "cleaned up\n")
    assert "deploy.sh: line 5: nosuchcommand: command not found" in r.stderr
    assert "exit status 127" in r.stderr


def test_languages_that_are_not_known(run_cellgate: Run, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/usr/bin/perl\n")
    assert "--language says what it is" in run_cellgate("run", "script").stderr
    assert "python, shell, node" in run_cellgate("run", "--language", "perl", "script").stderr


def test_runtimes(run_cellgate: Run) -> None:
    r = run_cellgate("runtimes", "--json", "--node", "/none")
    found = {o["language"]: o for o in json.loads(r.stdout)}
    assert [found[name]["available"] for name in ("python", "shell", "node")] == [True, True, False]
    assert (
        "node     not available: language node: /none is no program" in run_cellgate("runtimes", "--node=/none").stdout
    )
    assert run_cellgate("runtimes", "--none").returncode == 2
