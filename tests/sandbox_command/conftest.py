"""Runs `cellgate sandbox` on commands: every test once as root and once as an ordinary user, who is a number without a name."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import names_below

USER = 61235


class Box:
    """A project folder, a home, a folder elsewhere; and commands that run in a sandbox by settings."""

    def __init__(self, base: Path, program: Path, uid: int, slowness: float) -> None:
        self.base = base
        self.uid = uid
        self.timeout = 30 * slowness
        switch = uid != os.geteuid()
        self.as_user = (
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--"] if switch else []
        )
        self.program = program
        self.work, self.home, self.out = (self.folder(base / n) for n in ("work", "home", "out"))
        # Without SHELL bash looks up its user, which makes the C library ask nscd, wherever these tests run.
        keep = {
            k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k not in ("SHELL", "TMPDIR")
        }
        state = str(self.folder(base / "state"))  # the tests' own folder belongs to another user
        self.env = {**keep, "HOME": str(self.home), "XDG_STATE_HOME": state, "PYTHONDONTWRITEBYTECODE": "1"}

    def folder(self, path: Path) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        return self.own(path)

    def file(self, path: Path | str, text: str = "orig\n") -> Path:
        """A file; relative to the project, with the folders above it."""
        full = self.work / path
        for parent in reversed(full.parents):
            if not parent.exists():
                self.folder(parent)
        full.write_text(text)
        return self.own(full)

    def own(self, path: Path) -> Path:
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)
        return path

    def link(self, path: Path | str, target: str) -> Path:
        full = self.work / path
        full.symlink_to(target)
        return self.own(full)

    @staticmethod
    def settings(fs: dict[str, Any] | None = None, net: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        return {
            "network": {"allowedDomains": [], "deniedDomains": [], **(net or {})},
            "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": [], **(fs or {})},
            **more,
        }

    def write_settings(self, settings: dict[str, Any] | str) -> Path:
        path = self.base / "settings.json"
        path.write_text(settings if isinstance(settings, str) else json.dumps(settings))
        path.chmod(0o644)
        return path

    def argv(self, *args: str | Path, settings: dict[str, Any] | str | None = None) -> list[str]:
        given = ["--settings", str(self.write_settings(settings))] if settings is not None else []
        return [*self.as_user, str(self.program), "sandbox", *given, *map(str, args)]

    def run(
        self,
        *args: str | Path,
        settings: dict[str, Any] | str | None = None,
        input: str = "",
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        fds: tuple[int, ...] = (),
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.argv(*args, settings=settings),
            input=input,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=self.timeout,
            cwd=cwd or self.work,
            env={**self.env, **(env or {})},
            pass_fds=fds,
        )

    def sh(self, script: str, fs: dict[str, Any] | None = None, **more: Any) -> "subprocess.CompletedProcess[str]":
        """The script in a sandbox that may write the project."""
        return self.run("-c", script, settings=self.settings(fs, **more))

    def popen(self, *args: str | Path, settings: dict[str, Any] | None = None, **kw: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.argv(*args, settings=settings),
            stdin=kw.pop("stdin", subprocess.PIPE),
            stdout=kw.pop("stdout", subprocess.PIPE),
            stderr=kw.pop("stderr", subprocess.PIPE),
            text=True,
            cwd=self.work,
            env=self.env,
            **kw,
        )

    def names(self) -> set[str]:
        """All files and folders in the project."""
        return names_below(self.work)


def _base() -> Path:
    for parent in (Path("/srv"), Path("/opt"), Path.home()):
        private = any(parent.is_relative_to(p) for p in ("/tmp", "/var/tmp", "/run"))
        if parent.is_dir() and os.access(parent, os.W_OK) and not private:
            path = Path(tempfile.mkdtemp(prefix="cg-command-", dir=parent))
            path.chmod(0o755)
            return path
    pytest.skip("no folder outside of /tmp that the tests may write to")


@pytest.fixture(params=["root", "user"])
def box(request: pytest.FixtureRequest, cellgate: Path, slowness: float) -> Iterator[Box]:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("needs root")
    uid = 0 if request.param == "root" else USER if os.geteuid() == 0 else os.geteuid()
    base = _base()
    try:
        # The program itself, and what it starts: both must be within the user's reach.
        box = Box(base, cellgate, uid, slowness)
        if uid != os.geteuid() and subprocess.run([*box.as_user, "test", "-x", str(cellgate)]).returncode:
            pytest.skip(f"an ordinary user cannot reach {cellgate}")
        if os.geteuid() == 0:
            os.chown(base, uid, uid)
        yield box
    finally:
        shutil.rmtree(base)
