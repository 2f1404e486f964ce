"""scripts/release.py: what it makes, and what it refuses."""

import re
import subprocess
import sys
import tarfile
from pathlib import Path


def release(repo: Path, *args: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-B", repo / "scripts/release.py", *args], capture_output=True, text=True)


def test_a_release_without_wheels(repo: Path, tmp_path: Path) -> None:
    p = release(repo, "--unfinished", "--out", tmp_path)
    assert p.returncode == 0, p.stderr
    (version,) = re.findall(r"^  version: '(.+)',$", (repo / "meson.build").read_text(), re.MULTILINE)
    archive, package = f"cellgate-{version}.tar.gz", f"cellgate-srt-{version}.tgz"
    assert sorted(f.name for f in tmp_path.iterdir()) == sorted([archive, package, "NOTES.md", "SHA256SUMS"])
    assert (
        subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True).returncode == 0
    )
    with tarfile.open(tmp_path / archive) as tar:
        assert f"cellgate-{version}/meson.build" in tar.getnames()
    with tarfile.open(tmp_path / package) as tar:
        assert {"package/index.js", "package/index.d.ts", "package/package.json"} <= set(tar.getnames())
    assert "### Added" in (tmp_path / "NOTES.md").read_text()
    assert "is not empty" in release(repo, "--unfinished", "--out", tmp_path).stderr


def test_what_is_not_finished_is_refused(repo: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    subprocess.run(["git", "clone", "-q", "--shared", repo, tree], check=True)
    (tree / "CHANGELOG.md").write_text("")
    git = ["git", "-C", tree, "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "commit", "-qam", "no changes"], check=True)
    assert "YEAR-MONTH-DAY" in release(tree).stderr
    (tree / "new").touch()
    assert "has changes" in release(tree).stderr
    assert not (tree / "build").exists()
