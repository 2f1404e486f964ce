"""Files inside: what depends on the policy. Each deny of `cellgate selftest` is tested there alone."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Box


def test_a_file_as_write_root(box: Box) -> None:
    f, g = box.file(box.work / "f"), box.file(box.work / "g")
    opts = ["--write", f]
    assert box.probe("write", f, opts=opts) == "ok"
    assert box.probe("truncate", f, opts=opts) == "ok"
    assert box.probe("write", g, opts=opts) == "EROFS"
    assert box.probe("create", box.work / "new", opts=opts) in ("EROFS", "EACCES")


def test_symlinked_write_root_is_resolved_once(box: Box) -> None:
    (box.base / "link").symlink_to(box.work)
    opts = ["--write", box.base / "link"]
    assert box.probe("create", box.work / "a", opts=opts) == "ok"
    assert box.probe("create", box.base / "link/b", opts=opts) == "ok"


def test_nested_write_roots(box: Box) -> None:
    inner = box.folder("work/inner")
    assert box.probe("create", inner / "a", opts=["--write", inner, "--write", box.work]) == "ok"
    assert box.probe("create", box.work / "a", opts=["--write", inner, "--write", box.work]) == "ok"
    assert box.probe("create", box.work / "b", opts=["--write", inner]) in ("EROFS", "EACCES")


def test_no_devices_and_no_set_user_id(box: Box) -> None:
    assert box.probe("mknod", box.work / "dev", opts=["--write", box.work]) == "EPERM"
    p = box.sh(
        "grep -E '^NoNewPrivs:.1$' /proc/self/status; grep -vE 'nosuid' /proc/self/mountinfo",
        opts=["--write", box.work],
    )
    assert p.stdout.split() == ["NoNewPrivs:", "1"]  # and not one mount without nosuid


def test_existing_device_node_is_dead(box: Box) -> None:
    if not box.root:
        pytest.skip("making a device node needs root")
    os.mknod(box.work / "null", 0o20666, os.makedev(1, 3))
    assert box.outside("read", box.work / "null") == "ok"
    assert box.probe("read", box.work / "null", opts=["--write", box.work]) == "EACCES"


# ---- private places


@pytest.fixture
def in_tmp(box: Box) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cg-sandbox-", dir="/tmp") as d:
        path = Path(d)
        path.chmod(0o755)
        box.own(path)
        yield path


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp", "/dev/shm"])
def test_private_and_writable(box: Box, place: str) -> None:
    name = f"{place}/cg-sandbox-{os.getpid()}"
    p = box.sh(f"ls -A {place}; echo x > {name} && chmod 755 {name} && cat {name}")
    assert (p.returncode, p.stdout) == (0, "x\n"), p.stderr
    assert not Path(name).exists()


def test_run_is_private(box: Box) -> None:
    assert box.sh("ls -A /run").stdout.split() == ["probe"]
    assert box.probe("create", "/run/x") == "ok"
    assert not Path("/run/x").exists()


def test_host_tmp_is_not_there(box: Box, in_tmp: Path) -> None:
    box.file(in_tmp / "secret")
    assert box.outside("read", in_tmp / "secret") == "ok"
    assert box.probe("read", in_tmp / "secret") == "ENOENT"


def test_write_root_below_tmp(box: Box, in_tmp: Path) -> None:
    box.file(in_tmp / "f")
    opts = ["--write", in_tmp]
    assert box.probe("read", in_tmp / "f", opts=opts) == "ok"
    assert box.probe("create", in_tmp / "made-inside", opts=opts) == "ok"
    assert (in_tmp / "made-inside").exists()
    assert box.sh("ls -A /tmp", opts=opts).stdout.split() == [in_tmp.name]


def test_private_places_are_bounded(box: Box) -> None:
    p = box.sh("df -k --output=size /tmp /var/tmp /run /dev/shm | tail -n +2")
    sizes = [int(n) for n in p.stdout.split()]
    assert len(sizes) == 4 and max(sizes) <= 1 << 20


# ---- read-only binds


def test_bind_ro(box: Box) -> None:
    box.file(box.out / "f")
    opts = ["--ro", f"{box.out}=/run/a/b/c", "--write", box.out]
    assert box.probe("read", "/run/a/b/c/f", opts=opts) == "ok"
    assert box.probe("write", "/run/a/b/c/f", opts=opts) in ("EROFS", "EACCES")
    assert box.probe("write", box.out / "f", opts=opts) == "ok"  # the same file, where it may be


def test_bind_ro_from_a_private_place(box: Box, in_tmp: Path) -> None:
    box.file(in_tmp / "f")
    assert box.probe("read", "/run/x/f", opts=["--ro", f"{in_tmp}=/run/x"]) == "ok"


def test_bind_ro_over_a_write_root(box: Box) -> None:
    box.file(box.work / "f")
    opts = ["--write", box.work, "--ro", f"{box.work}/f={box.work}/f"]
    assert box.probe("write", box.work / "f", opts=opts) == "EROFS"
    assert box.probe("unlink", box.work / "f", opts=opts) == "EBUSY"
    assert box.probe("create", box.work / "g", opts=opts) == "ok"


def test_mount_point_that_cannot_be_made(box: Box) -> None:
    p = box.run("/bin/true", opts=["--ro", f"{box.out}=/usr/no-such-folder"])
    assert p.returncode == 125 and "mount point /usr/no-such-folder" in p.stderr


def test_planted_symlink_does_not_lead_astray(box: Box) -> None:
    (box.work / "link").symlink_to("/usr")
    for dst in ("link", "link/lib", "link/new"):
        p = box.run("/bin/true", opts=["--write", box.work, "--ro", f"{box.out}={box.work}/{dst}"])
        assert p.returncode == 125 and "Too many levels of symbolic links" in p.stderr, dst


# ---- hidden paths


@pytest.mark.parametrize("above", ["work", "", "/"], ids=["parent", "grandparent", "root"])
def test_hides_hold_below_a_write_root(box: Box, above: str) -> None:
    root = Path("/") if above == "/" else box.base / above
    box.own(root) if above != "/" else None
    secret = box.folder("work/deep/down/secret")
    for folder in (box.work / "deep", box.work / "deep/down"):
        box.own(folder)
    box.file(secret / "key")
    opts = ["--write", root, "--hide", secret]
    assert box.probe("read", secret / "key", opts=opts) == "ENOENT"
    assert box.probe("create", secret / "new", opts=opts) == "EROFS"
    assert box.probe("create", box.work / "new", opts=opts) == "ok"
    assert box.probe("rmdir", secret, opts=opts) == "EBUSY"
    assert box.probe("rename", secret, box.work / "aside", opts=opts) in ("EBUSY", "EXDEV")
    # Else the next sandbox would find nothing to hide.
    assert box.probe("rename", box.work / "deep", box.work / "aside", opts=opts) == "EBUSY"
    assert box.probe("rename", box.work / "deep/down", box.work / "deep/aside", opts=opts) in ("EBUSY", "EXDEV")


def test_root_as_write_root_keeps_the_private_places(box: Box) -> None:
    if not box.root:
        pytest.skip("an ordinary user may not write to / anyway")
    opts = ["--write", "/"]
    name = f"/cg-sandbox-{os.getpid()}"
    assert box.probe("create", name, opts=opts) == "ok"
    Path(name).unlink()
    assert box.sh("ls -A /tmp; ls /dev | wc -l", opts=opts).stdout.split() == ["13"]
    assert box.probe("open-write", "/proc/sys/vm/swappiness", opts=opts) == "EROFS"


def test_hidden_path_through_a_symlink(box: Box) -> None:
    secret = box.folder("out/secret")
    box.file(secret / "key")
    (box.base / "link").symlink_to(secret)
    assert box.probe("read", secret / "key", opts=["--hide", box.base / "link"]) == "ENOENT"


def test_hidden_path_in_a_bind(box: Box) -> None:
    secret = box.folder("out/secret")
    box.file(secret / "key")
    opts = ["--ro", f"{box.out}=/run/copy"]
    assert box.probe("read", "/run/copy/secret/key", opts=opts) == "ok"
    assert box.probe("read", "/run/copy/secret/key", opts=[*opts, "--hide", secret]) == "ENOENT"


def test_write_root_in_a_hidden_folder_is_hidden(box: Box) -> None:
    assert box.probe("create", box.work / "f", opts=["--write", box.work, "--hide", box.base / "work"]) in (
        "EROFS",
        "EACCES",
    )
    inner = box.folder("work/inner")
    assert box.probe("create", inner / "f", opts=["--write", inner, "--hide", box.work]) in (
        "ENOENT",
        "EROFS",
        "EACCES",
    )


def test_default_hides(box: Box) -> None:
    home = box.folder("home")
    names = [
        ".ssh/id_rsa",
        ".aws/credentials",
        ".netrc",
        ".config/gcloud/key",
        ".docker/config.json",
        ".kube/config",
        ".gnupg/x",
    ]
    for name in [*names, ".config/other/file", ".profile"]:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        box.file(home / name)
    opts = ["--write", home, "--default-hides", home]
    for name in names:
        assert box.probe("read", home / name) == "ok"
        assert box.probe("read", home / name, opts=opts) in ("ENOENT", "EACCES"), name
    assert box.probe("read", home / ".config/other/file", opts=opts) == "ok"
    assert box.probe("write", home / ".profile", opts=opts) == "ok"
    if box.root:
        assert box.probe("read", "/etc/shadow") == "ok"
    assert box.probe("read", "/etc/shadow", opts=opts) == "EACCES"


# ---- /dev, /proc, /sys


@pytest.mark.parametrize("name", ["null", "zero", "full", "random", "urandom"])
def test_devices(box: Box, name: str) -> None:
    assert box.probe("read", f"/dev/{name}") == "ok"
    assert box.probe("write", f"/dev/{name}") == ("ENOSPC" if name == "full" else "ok")


def test_dev_holds_nothing_else(box: Box) -> None:
    have = box.sh("ls -A /dev").stdout.split()
    assert " ".join(have) == "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
    assert box.probe("create", "/dev/x") == "EROFS"
    assert box.sh("echo out | (cat /dev/stdin > /dev/stdout) | cat").stdout == "out\n"


def test_working_directory(box: Box) -> None:
    assert box.sh("pwd").stdout == f"{box.base}\n"  # the caller's
    assert box.sh("pwd", opts=["--cwd", "/usr"]).stdout == "/usr\n"
    assert box.sh("pwd; touch f", opts=["--cwd", box.work, "--write", box.work]).stdout == f"{box.work}\n"
    assert (box.work / "f").exists()
    assert box.sh("pwd", opts=["--hide", box.base, "--write", "/usr/lib"]).stdout == f"{box.base}\n"  # empty, but there
