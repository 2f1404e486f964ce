"""`cellgate doctor`: what it says where sandboxes work, and inside one, where nothing that makes another is left."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import Box


def doctor(box: Box, *before: str) -> tuple[int, dict[str, Any]]:
    argv = [*box.as_user, *before, str(box.program), "doctor", "--json"]
    # A sanitizer looks for leaks by ptrace, which a sandbox denies.
    env = {**box.env, "ASAN_OPTIONS": "detect_leaks=0"}
    p = subprocess.run(argv, capture_output=True, text=True, timeout=box.timeout, env=env, cwd=box.work)
    return p.returncode, json.loads(p.stdout)


def test_where_sandboxes_work(box: Box) -> None:
    status, report = doctor(box)
    assert status == 0
    assert report["ok"] is True
    missing = [c["name"] for c in report["checks"] if c["required"] and not c["ok"]]
    assert missing == []
    assert {"user namespaces", "own /proc", "Landlock", "seccomp", "sandbox"} <= {c["name"] for c in report["checks"]}


def test_inside_a_sandbox(box: Box) -> None:
    status, report = doctor(box, str(box.program), "sandbox")
    assert status == 1
    assert report["ok"] is False
    checks = {c["name"]: c for c in report["checks"]}
    for name in ("user namespaces", "mounts", "own /proc", "sandbox"):
        assert checks[name]["ok"] is False
    assert checks["user namespaces"]["advice"]
    assert checks["mounts"]["advice"] == "see user namespaces"
    assert checks["Landlock"]["ok"] is True


def test_a_chroot_is_named_as_the_reason(box: Box, tmp_path: Path) -> None:
    """Linux forbids user namespaces in one, which some clusters make their nodes of."""
    if os.geteuid() != 0 or box.as_user:
        pytest.skip("chroot needs root")
    prefix = box.program.parents[1]
    script = (
        f"cd {tmp_path} && mkdir -p usr proc dev .{prefix} && mount --rbind /usr usr && mount --rbind /proc proc"
        f" && mount --rbind /dev dev && mount --bind {prefix} .{prefix} && ln -s usr/bin usr/lib usr/lib64 ."
        f" && exec chroot . {box.program} doctor --json"
    )
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    env = {**box.env, "ASAN_OPTIONS": "detect_leaks=0"}
    p = subprocess.run(argv, capture_output=True, text=True, timeout=box.timeout, env=env)
    checks = {c["name"]: c for c in json.loads(p.stdout)["checks"]}
    assert not checks["user namespaces"]["ok"] and "chroot" in checks["user namespaces"]["advice"]


def test_text_and_usage(box: Box) -> None:
    argv = [*box.as_user, str(box.program), "doctor"]
    p = subprocess.run(argv, capture_output=True, text=True, timeout=box.timeout, env=box.env, cwd=box.work)
    assert p.stdout.endswith("Sandboxes work here.\n")
    p = subprocess.run([*argv, "--nonsense"], capture_output=True, text=True, timeout=box.timeout, env=box.env)
    assert p.returncode == 2
    assert "--nonsense" in p.stderr
