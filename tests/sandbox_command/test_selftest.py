"""`cellgate selftest`: that everything holds here, and that its attempts notice when nothing does."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from folders import there
from processes import eventually

from .conftest import Box

# Says that this Linux, or this machine, does not have what the attempt is about: nothing can be shown of it.
ABSENT = ("EAFNOSUPPORT", "EPROTONOSUPPORT", "ENOSYS", "EOPNOTSUPP", "ENOTSUP")
CAP_SYS_ADMIN = 21


def selftest(box: Box, *args: str) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    argv = [*box.as_user, str(box.program), "selftest", "--json", *args]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=box.timeout * 2, env=box.env, cwd=box.work)
    lines = [json.loads(line) for line in p.stdout.splitlines()]
    assert lines, p.stderr
    return p.returncode, lines[:-1], lines[-1]


def has_capability(bit: int) -> bool:
    status = Path("/proc/self/status").read_text()
    return bool(int(status.split("CapEff:")[1].split()[0], 16) >> bit & 1)


def left_over(box: Box) -> list[str]:
    """Return the remaining files of this test. Files of tests that run at the same time disappear when they end."""
    shared = set(Path("/dev/shm").glob("cellgate-selftest-*"))
    with contextlib.suppress(AssertionError):
        eventually(lambda: not there(shared))
    return sorted(p.name for p in [*box.home.iterdir(), *there(shared)])


@pytest.mark.no_sanitizer  # an attempt reads all of the kernel's memory: terabytes of mapped shadow
def test_everything_holds(box: Box) -> None:
    status, lines, total = selftest(box)
    bad = [(a["where"], a["name"], a.get("note")) for a in lines if a["outcome"] in ("hole", "fails")]
    assert bad == []
    assert (status, total["holes"], total["failed"]) == (0, 0, 0)
    # A skip says why, and there are few: what is skipped is not tested.
    skips = [a for a in lines if a["outcome"] == "skip"]
    assert all(a["note"] for a in skips)
    assert len(skips) < 20
    assert total["attempts"] == len(lines) >= 800
    # In a command's sandbox and in a kernel, and what only a kernel can try.
    assert len([a for a in lines if a["where"] == "kernel"]) >= 400
    assert len([a for a in lines if a["group"] == "in a kernel"]) >= 30
    assert total["held"] + total["skipped"] == total["attempts"]
    assert left_over(box) == []


def test_the_landlock_tier(box: Box) -> None:
    """Rules that the tier reports as enforced are enforced; others are skipped by name, not passed."""
    argv = [*box.as_user, str(box.program), "doctor", "--json"]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=box.timeout, env=box.env, cwd=box.work)
    if json.loads(p.stdout).get("landlock_abi", 0) < 6:
        pytest.skip("this Linux has no Landlock that keeps signals inside: there is no landlock tier")
    status, lines, total = selftest(box, "--tier", "landlock:freeze")
    assert [(a["name"], a.get("note")) for a in lines if a["outcome"] in ("hole", "fails")] == []
    assert status == 0
    skips = [a for a in lines if a["outcome"] == "skip"]
    # Some rules have no layer in this tier, such as names that are made later.
    assert len([a for a in skips if "no layer" not in a["note"]]) < 60
    assert all(a["note"] for a in skips)
    assert total["held"] > 350


@pytest.mark.no_sanitizer  # an attempt reads all of the kernel's memory: terabytes of mapped shadow
def test_every_attempt_notices_a_hole(box: Box) -> None:
    """Without a sandbox each attempt gets through that Linux itself does not refuse: it says of each whom Linux refuses."""
    status, lines, _ = selftest(box, "--no-sandbox")
    root = box.uid == 0 and has_capability(CAP_SYS_ADMIN)
    expected = {"all", "root"} if root else {"all"}
    denials = [a for a in lines if a["kind"] == "deny" and a["withoutSandbox"] in expected]
    unnoticed = [
        (a["name"], a.get("note"))
        for a in denials
        if a["outcome"] != "hole" and not any(word in a.get("note", "") for word in ABSENT)
    ]
    assert unnoticed == []
    assert status == 1
    assert len(denials) > (300 if root else 240)
    # Operations that must be possible succeed as well: otherwise the attempts themselves are broken.
    assert [a["name"] for a in lines if a["outcome"] == "fails"] == []
    assert left_over(box) == []


def test_names_are_unique_and_listed(box: Box) -> None:
    argv = [*box.as_user, str(box.program), "selftest", "--list", "--json"]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=box.timeout, env=box.env, cwd=box.work)
    listed = [json.loads(line) for line in p.stdout.splitlines()]
    names = [a["name"] for a in listed]
    assert len(names) == len(set(names)) >= 400
    # Denials have the layer that enforces them; allowed operations are listed beside them.
    assert [a["name"] for a in listed if a["kind"] == "deny" and not a["layer"]] == []
    assert len([a for a in listed if a["kind"] == "allow"]) >= 20
    assert not [a["name"] for a in listed if not a["what"]]


def test_some_of_them(box: Box) -> None:
    argv = [*box.as_user, str(box.program), "selftest", "--only", "unix-p*", "--only", "after-sockets"]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=box.timeout, env=box.env, cwd=box.work)
    assert p.returncode == 0
    lines = p.stdout.splitlines()
    assert lines[0].split()[:2] == ["ok", "unix-path"]
    # Each in a command's sandbox, in a kernel, from bash and from node, and the look afterwards once.
    assert lines[-1] == "21 attempts: 21 held, 0 holes, 0 skipped"
    quiet = subprocess.run(
        [*argv, "-q"], capture_output=True, text=True, timeout=box.timeout, env=box.env, cwd=box.work
    )
    assert quiet.stdout.strip() == lines[-1]


def test_usage(box: Box) -> None:
    for args, word in ([["--nonsense"], "--nonsense"], [["extra"], "extra"]):
        argv = [*box.as_user, str(box.program), "selftest", *args]
        p = subprocess.run(argv, capture_output=True, text=True, timeout=box.timeout, env=box.env)
        assert p.returncode == 2
        assert word in p.stderr


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_cleans_up(box: Box, sig: int) -> None:
    argv = [*box.as_user, str(box.program), "selftest"]
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=box.env, cwd=box.work)
    assert p.stdout is not None
    p.stdout.readline()
    os.kill(p.pid, sig)
    _, errors = p.communicate(timeout=box.timeout)
    assert p.returncode == 2
    assert "interrupted" in errors
    assert left_over(box) == []
