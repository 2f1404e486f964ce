"""scripts/setup and scripts/test: what they install for which step, and what they say where they cannot.

They run in a copy of the tree's scripts. Of the system's programs they find all but those that would change it: stand-ins of
apt-get, dpkg-query, sudo and id are as the test says.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

HIDDEN = {"apt-get", "df", "dpkg-query", "sudo", "id", "node", "npm", "python3"}
STEPS = ("unit", "pytest", "lint-python", "lint-c", "sessions", "valgrind", "asan", "tsan", "fuzz")


@dataclass
class System:
    """A Debian without any of the packages, where the caller is an ordinary user and there is no sudo."""

    tree: Path
    bin: Path
    calls: Path  # what apt-get was called with, a line each

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, script: str, *args: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.tree / "scripts" / script), *args],
            env={"PATH": str(self.bin), "HOME": str(self.tree), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    def asked_of_root(self, *args: str) -> set[str]:
        """The packages in the line that root is to run."""
        p = self.run("setup", *args)
        assert (p.returncode, p.stdout) == (1, "")
        found = re.findall(r"^apt-get update && apt-get install -y --no-install-recommends (.*)$", p.stderr, re.M)
        assert len(found) == 1, p.stderr
        return set(found[0].split())

    def apt_calls(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def system(tmp_path: Path, repo: Path) -> System:
    tree, programs, calls = tmp_path / "tree", tmp_path / "bin", tmp_path / "calls"
    shutil.copytree(repo / "scripts", tree / "scripts")
    for file in ("python_stubs/kernel-requirements.txt", "tests/requirements.txt"):
        (tree / file).parent.mkdir()
        shutil.copy(repo / file, tree / file)
    programs.mkdir()
    for folder in ("/usr/bin", "/bin", "/usr/sbin"):
        for path in Path(folder).iterdir():
            if path.name not in HIDDEN and not (programs / path.name).is_symlink():
                (programs / path.name).symlink_to(path)
    s = System(tree, programs, calls)
    s.program("dpkg-query", 'case "$*" in *Version*libc6) echo 2.36-9;; *) exit 1;; esac')
    s.program("id", "echo 1000")
    s.program("df", r'printf "Avail\n1000000\n"')
    s.program("apt-get", f'echo "$@" >>"{calls}"; exit 1')
    return s


def as_root(s: System, apt_get: str) -> None:
    s.program("id", "echo 0")
    s.program("apt-get", f'echo "$@" >>"{s.calls}"\n{apt_get}')


def test_without_root_one_line_has_all_that_is_missing(system: System) -> None:
    asked = system.asked_of_root()
    assert {"gcc", "python3", "python3-venv", "libzmq3-dev", "nodejs", "npm"} <= asked
    assert not asked & {"clang", "gdb", "cppcheck", "bubblewrap"}
    assert system.apt_calls() == []
    # Also where sudo is, but wants a password and there is no terminal to ask at.
    system.program("sudo", "exit 1")
    assert system.asked_of_root() == asked
    assert system.asked_of_root("--test", "--bench", "--clients") > asked | {"valgrind", "clang", "socat", "chromium"}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_gets_what_it_needs_and_no_more(system: System, step: str) -> None:
    extra = system.asked_of_root(f"--test={step}") - system.asked_of_root()
    programs = {"bubblewrap", "binutils", "procps", "git", "curl"}
    debian = "\nID=debian\n" in "\n" + Path("/etc/os-release").read_text()
    wanted = {
        "pytest": programs | {"stunnel4", "socat", "iproute2"} | ({"chromium"} if debian else set()),
        "asan": programs,
        "lint-c": {"clang-tidy", "clang-format", "cppcheck"},
        "valgrind": {"valgrind"},
        "fuzz": {"clang", "libclang-rt-dev"},
        "sessions": {"procps", "valgrind"},
    }
    assert extra == wanted.get(step, set()) | {"ccache"}


def test_every_step_is_known_to_help_and_setup(system: System, repo: Path) -> None:
    listed = re.findall(r'^    "([\w-]+)": step_', (repo / "scripts/run_tests.py").read_text(), re.M)
    assert sorted(listed) == sorted(STEPS)
    p = system.run("test", "--help")
    assert (p.returncode, p.stderr) == (0, "")
    assert sorted(re.findall(r"^  ([a-z][\w-]+) {2,}\w", p.stdout, re.M)) == sorted(STEPS)
    p = system.run("setup", "--test=unit,nosuch")
    assert p.returncode == 2
    assert 'no step "nosuch"' in p.stderr
    assert system.apt_calls() == []


def test_help_needs_no_python(repo: Path) -> None:
    p = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", "--bind", "/dev/null", "/usr/bin/python3", repo / "scripts/test", "--help"],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (p.returncode, p.stderr) == (0, "")
    assert "--only" in p.stdout


@pytest.mark.parametrize(
    ("args", "setup"),
    [
        ([], "--test"),
        (["-k", "name"], "--test=pytest"),
        (["-kname"], "--test=pytest"),
        (["--quick"], "--test=unit,pytest,lint-python,lint-c"),
        (["--only", "fuzz,tsan"], "--test=fuzz,tsan"),
        (["--only=lint-c", "-k", "x"], "--test=lint-c"),
        (["--fuzz-seconds", "3"], "--test"),
    ],
)
def test_test_installs_for_its_steps(system: System, args: list[str], setup: str) -> None:
    script = system.tree / "scripts/setup"
    script.write_text(f'#!/bin/sh\necho "$@" >"{system.calls}"\nexit 1\n')
    p = system.run("test", *args)
    assert (p.returncode, p.stdout) == (1, "0 passed, 1 failed, 0 skipped\n")
    assert system.calls.read_text() == f"{setup}\n"


def test_too_old_a_system_is_refused_before_anything_is_installed(system: System) -> None:
    as_root(system, "exit 0")
    system.program("dpkg-query", 'case "$*" in *Version*libc6) echo 2.35-0ubuntu3.8;; *) exit 1;; esac')
    p = system.run("setup")
    assert p.returncode == 1
    assert "too old" in p.stderr
    assert "glibc 2.35," in p.stderr
    assert "Ubuntu 24.04" in p.stderr
    assert system.apt_calls() == []


def test_a_held_apt_lock_is_waited_for(system: System) -> None:
    held = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)"
    as_root(system, f'[ "$(wc -l <"{system.calls}")" -ge 3 ] && {{ echo no more; exit 100; }}; echo "{held}"; exit 100')
    p = system.run("setup", env={"APT_RETRY_SECONDS": "1"})
    assert p.stdout.count("waiting for another program") == 1
    assert "held by process 4711 (apt-get)" in p.stdout
    assert len(system.apt_calls()) == 3
    assert (p.returncode, "no more" in p.stderr) == (1, True)


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("W: Failed to fetch x  Temporary failure resolving 'x'", "no network reaches the registry"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "the disk is full"),
        ("dpkg: error: cannot write: No space left on device", "the disk is full"),
        ("E: Unable to locate package libjansson-dev", "package lists do not have all of these"),
    ],
)
def test_causes_outside_are_named(system: System, output: str, advice: str) -> None:
    as_root(system, f'case "$*" in *install*) echo "{output}"; exit 100;; esac')
    p = system.run("setup")
    assert p.returncode == 1
    assert output in p.stderr
    assert advice in p.stderr


def test_a_full_disk_is_named_although_no_log_can_be_written(system: System) -> None:
    as_root(system, "exit 100")
    system.program("df", r'printf "Avail\n12\n"')
    p = system.run("setup")
    assert p.returncode == 1
    assert "the disk is full" in p.stderr


def test_pip_without_network(system: System) -> None:
    """The registry of Python packages: the same advice."""
    as_root(system, "exit 1")
    system.program("dpkg-query", 'case "$*" in *Version*libc6) echo 2.36-9;; *) echo installed;; esac')
    system.program("node", "echo v20.1.0")
    system.program("npm", "exit 1")
    (system.tree / "no-such").mkdir()
    env = {"PIP_INDEX_URL": "https://127.0.0.1:1/", "PIP_FIND_LINKS": str(system.tree / "no-such"), "PIP_RETRIES": "0"}
    script = system.tree / "scripts/lib.sh"
    script.write_text(script.read_text().replace("--retries 5 ", ""))
    p = system.run("setup", env={**env, "PIP_CONFIG_FILE": os.devnull})
    assert p.returncode == 1
    assert "no network reaches the registry" in p.stderr
