"""scripts/release.py: what it makes, and what it refuses."""

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest


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


def test_debian_packages_have_what_is_installed(repo: Path, prefix: Path) -> None:
    """Without building them: each path of debian/ is installed, each file of an installation is in one package."""
    patterns = [
        line.split()[0]
        for f in [*(repo / "debian").glob("*.install"), repo / "debian/not-installed"]
        for line in f.read_text().splitlines()
        if not line.startswith("#")
    ]
    # kernel-env: debian/rules makes it. The tests' prefix has no folder for the architecture.
    found = {p: list(prefix.glob(p.removeprefix("usr/").replace("lib/*/", "lib/"))) for p in patterns}
    assert [p for p, files in found.items() if not files] == ["usr/lib/*/cellgate/kernel-env"]
    packed = [f for files in found.values() for f in files]
    assert [f for f in prefix.rglob("*") if f.is_file() and not any(f.is_relative_to(p) for p in packed)] == []
    (version,) = re.findall(r"^  version: '(.+)',$", (repo / "meson.build").read_text(), re.MULTILINE)
    assert (repo / "debian/changelog").read_text().startswith(f"cellgate ({version}) ")


def test_debian_packages(repo: Path, tmp_path: Path) -> None:
    if not shutil.which("dpkg-buildpackage"):
        pytest.skip("no dpkg-buildpackage")
    missing = subprocess.run(["dpkg-checkbuilddeps"], cwd=repo, capture_output=True, text=True).stderr
    if missing:
        pytest.skip(missing.strip())
    p = release(repo, "--unfinished", "--debian", "--out", tmp_path)
    assert p.returncode == 0, p.stderr
    packages = sorted(tmp_path.glob("*.deb"))
    assert [f.name.partition("_")[0] for f in packages] == [
        "cellgate",
        "libcellgate-dev",
        "libcellgate0",
        "python3-cellgate",
    ]
    root = tmp_path / "root"
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    (site,) = root.glob("usr/lib/*/cellgate/kernel-env/lib/python3.*/site-packages")
    assert (site / "IPython/__init__.py").exists() and not list(root.rglob("*.pyc"))
    assert not (root / "usr/libexec/cellgate/uninstall").exists()
    if shutil.which("lintian"):
        subprocess.run(["lintian", "--fail-on", "error,warning", *packages], check=True)
