"""The steps of `cellgate env create`, `add` and `remove`: venv and pip, as the user and outside of any sandbox.

`cellgate` (src/cli/env.c) has checked its command line and starts

    python -I make_env.py COMMAND ENV FOLDER REQUIREMENTS [PACKAGE...]

with pip's environment; it never runs in a kernel. An environment that is being changed is marked in a file, whose
update is the last step: an unfinished environment is not used, and the next command finishes or removes it. The
lines of that file, and its reader, are in src/base/kernel_env.h.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

STEP_S = 60 * 60  # large packages over a slow line
TAIL_BYTES = 4096  # of a program's output, whose end is kept
READY, CHANGING = "ready\n", "changing\n"
NEEDED = {"IPython": "ipython>=9.0", "comm": "comm", "matplotlib_inline": "matplotlib-inline"}
# Isolated (-I): nothing of the current folder or of the user's own packages is taken for pip.
PIP = ("-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-color")
PR_SET_PDEATHSIG = 1
prctl = ctypes.CDLL(None).prctl


class StepError(Exception):
    """Exit status 1; all other errors are of the command line or of the folder."""


def say(text: str) -> None:
    """Escape what could control the terminal: names, and what pip repeats of a server."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    print(shown, file=sys.stderr, flush=True)


def on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """End the step; nothing interrupts what is taken back then."""
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def run(what: str, *argv: str, cwd: Path | None = None, **variables: str) -> None:
    """Run a program to its end. At a terminal its output is shown at once, elsewhere its end if it fails."""
    tail, end, terminal = b"", time.monotonic() + STEP_S, os.isatty(2)
    program = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=os.environ | variables,
        start_new_session=True,
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    assert program.stdout
    output = program.stdout.fileno()
    poll = select.poll()
    poll.register(output, select.POLLIN)
    try:
        while poll.poll(max(0, end - time.monotonic()) * 1000) and (data := os.read(output, 4096)):
            tail = (tail + data)[-TAIL_BYTES:]
            if terminal:
                os.write(2, data)
        program.wait(5)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if program.poll() is None:
            end_group(program)
    if program.returncode:
        if tail and not terminal:
            say(tail.decode(errors="backslashreplace"))
        where = "its last lines say why" if terminal else "its last lines are above"
        raise StepError(f"{what} of {argv[0]} failed; {where}")


def end_group(program: subprocess.Popen[bytes]) -> None:
    """End a program and those that it has started, whose group has its number until it is waited for."""
    os.killpg(program.pid, signal.SIGTERM)
    select.select([os.pidfd_open(program.pid)], [], [], 2)
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()


class Environment:
    """One environment, and the packages that the command names."""

    def __init__(self, name: str, folder: str, requirements: str, packages: list[str]) -> None:
        parent, slash, last = (folder.rstrip("/") or "/").rpartition("/")
        if not slash or last in ("", ".", ".."):
            raise ValueError(f"{folder} names no new folder")
        self.folder = Path(os.path.realpath(parent or "/", strict=True), last)
        self.name, self.requirements, self.packages = name, requirements, packages
        self.python = str(self.folder / "bin/python")

    def state(self) -> str:
        try:
            return (self.folder / ".cellgate-env").read_text()
        except FileNotFoundError:
            return ""

    def write_state(self, state: str) -> None:
        fd, new = tempfile.mkstemp(dir=self.folder)
        with open(fd, "w") as file:
            os.fchmod(fd, 0o644)
            file.write(state)
        os.rename(new, self.folder / ".cellgate-env")

    def lock(self) -> None:
        """Until this process ends. Cells can read the folder, and what can open a file can lock it: mode 0200."""
        path = self.folder / ".cellgate-env.lock"
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fcntl.flock(os.open(path, flags, 0o200), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StepError(f"another `cellgate env` is changing {self.folder}") from None

    def has(self, package: str) -> bool:
        return any(self.folder.glob(f"lib/python3*/site-packages/{package}"))

    def pip(self, *words: str) -> None:
        run("pip", self.python, *PIP, *words)

    def list_fonts(self) -> None:
        """matplotlib reads every font of the machine when it is first imported: here once, not in every kernel."""
        folder = self.folder / "share/cellgate/matplotlib"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # It reads settings of the current folder, perhaps a workspace: they run code.
        command = (self.python, "-I", "-c", "import matplotlib.font_manager")
        run("the list of fonts", *command, cwd=folder, MPLCONFIGDIR=str(folder))

    def install(self, ours: bool, whole: bool) -> None:
        """Install what kernels need, then the packages. An environment of the user's own keeps its versions.

        `whole`: no package in it is half installed.
        """
        # A name that is wrong is found before the packages that kernels need are downloaded.
        if self.packages and not self.has("IPython"):
            self.pip("--quiet", "--dry-run", "--no-deps", *self.packages)
        if ours:
            self.pip("-r", self.requirements)
        elif not whole or not all(map(self.has, NEEDED)):
            self.pip(*NEEDED.values())
        if self.packages:
            say(f"cellgate env: installing {' '.join(p[:50] for p in self.packages[:8])}")
            self.pip(*self.packages)
        if self.has("matplotlib"):
            self.list_fonts()

    def make_folder(self) -> None:
        """In place of an empty one or of an unfinished environment."""
        try:
            self.folder.mkdir(0o700)
        except FileExistsError:
            try:
                self.folder.rmdir()
            except OSError:
                if self.state() != CHANGING:
                    raise ValueError(
                        f"{self.folder} exists; `cellgate env add` installs packages in an environment, `cellgate env"
                        " remove` removes one that `create` has made"
                    ) from None
                self.lock()
                shutil.rmtree(self.folder)
            self.folder.mkdir(0o700)
        self.lock()

    def create(self) -> None:
        self.make_folder()
        say(f"cellgate env: making {self.folder} with Python {sys.version_info[0]}.{sys.version_info[1]}")
        try:
            self.write_state(CHANGING)
            run("venv", sys.executable, "-I", "-m", "venv", str(self.folder))
            self.install(ours=True, whole=True)
            self.write_state(READY)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        os.write(1, os.fsencode(self.folder) + b"\n")
        say(
            f"cellgate env: ready. Use it with --kernel-env {self.name}: cellgate run, mcp serve, jupyter."
            f" More packages: cellgate env add {self.name} PACKAGE"
        )

    def add(self) -> None:
        self.lock()
        state = self.state()
        unfinished, ours = state.startswith(CHANGING[:-1]), state in (READY, CHANGING)
        mark = "" if ours else ", foreign"
        ready, changing = f"ready{mark}\n", f"changing{mark}\n"
        self.write_state(changing)
        try:
            self.install(ours, not unfinished)
            if ours and unfinished:
                self.pip("--dry-run", "-r", self.requirements)
        except Exception:  # pip takes back what it could not finish, unless it was ended itself
            if not unfinished:
                self.write_state(ready)
            raise
        self.write_state(ready)
        say(f"cellgate env: done: new sessions with --kernel-env {self.name} have it")

    def remove(self) -> None:
        self.lock()
        self.write_state(CHANGING)  # what is left of it is not used
        shutil.rmtree(self.folder)


def main() -> int:
    command, name, folder, requirements, *packages = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    try:
        environment = Environment(name, folder, requirements, packages)
        {"create": environment.create, "add": environment.add, "remove": environment.remove}[command]()
    except KeyboardInterrupt:
        say("cellgate env: interrupted")
        return 130
    except StepError as e:
        say(f"cellgate env: {e}")
        return 1
    except OSError as e:
        say(f"cellgate env: {e.filename or folder}: {e.strerror}")
        return 2
    except ValueError as e:
        say(f"cellgate env: {e}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
