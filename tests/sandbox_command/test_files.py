"""File system rules. Each deny is tested beside an allowed access."""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from .conftest import Box

# ---- writing


def test_project_is_writable_and_nothing_else(box: Box) -> None:
    target = box.file(box.out / "f")
    assert box.sh("echo new > mine && mkdir -p a/b && mv mine a/b/moved").returncode == 0
    assert (box.work / "a/b/moved").read_text() == "new\n"
    for script in (f"echo x > {target}", f"rm {target}", f"touch {box.out}/g", f"chmod 777 {target}", "touch /usr/x"):
        assert box.sh(script).returncode != 0, script
    assert target.read_text() == "orig\n"
    assert os.listdir(box.out) == ["f"]


def test_spellings_of_write_roots(box: Box) -> None:
    for name in ("a", "b", "c"):
        box.folder(box.work / name)
    box.folder(box.home / "h")
    fs = {"allowWrite": ["a/**", "b/", "./c/../c", "~/h", "absent"]}
    assert box.sh(f"touch a/1 b/1 c/1 {box.home}/h/1", fs).returncode == 0
    assert box.sh("touch d", fs).returncode != 0
    assert box.sh("mkdir absent", fs).returncode != 0
    assert not (box.work / "absent").exists()


@pytest.mark.parametrize("name", [".npm/_logs", ".claude/debug"])
def test_nothing_is_writable_that_is_not_listed(box: Box, name: str) -> None:
    """Not even the folders of logs that srt adds to every list."""
    box.folder(box.home / name)
    for allow in ([], ["."]):
        assert box.sh(f"touch {box.home}/{name}/x", {"allowWrite": allow}).returncode != 0
    assert os.listdir(box.home / name) == []
    assert box.sh(f"touch {box.home}/{name}/x", {"allowWrite": [f"~/{name}"]}).returncode == 0


def test_a_pattern_allows_no_writing(box: Box) -> None:
    box.file("a.txt")
    assert box.sh("echo x > a.txt", {"allowWrite": ["*.txt"]}).returncode != 0
    box.file("[x].txt")
    assert box.sh("echo x > '[x].txt'", {"allowWrite": ["[x].txt"]}).returncode == 0  # also a name


def test_a_link_is_no_write_root(box: Box) -> None:
    box.file(box.out / "f")
    box.link("away", str(box.out))
    for allow in (["away"], [".", "away"], [".", "away/sub"]):
        box.sh("mkdir -p away/sub; echo x > away/f", {"allowWrite": allow})
    assert (box.out / "f").read_text() == "orig\n"
    assert os.listdir(box.out) == ["f"]


@pytest.mark.parametrize("entry", ["keep", "./keep", "d/../keep", "k*p", "[k]eep", {"path": "keep", "literal": True}])
def test_deny_write(box: Box, entry: object) -> None:
    box.file("keep")
    box.folder(box.work / "d")
    fs = {"denyWrite": [entry]}
    for script in (
        "echo x > keep",
        "echo x >> keep",
        "rm keep",
        "mv keep other",
        "echo x > new && mv new keep",
        "chmod 777 keep",
        "truncate -s 0 keep",
        "ln keep alias",
    ):
        assert box.sh(script, fs).returncode != 0, script
    assert (box.work / "keep").read_text() == "orig\n"
    assert box.sh("cat keep && echo ok > other", fs).returncode == 0


def test_deny_write_wins_above_and_below(box: Box) -> None:
    box.file("sub/f")
    for fs in ({"allowWrite": [".", "sub"], "denyWrite": ["."]}, {"denyWrite": ["sub"]}, {"denyWrite": ["sub/**"]}):
        assert box.sh("echo x > sub/f", fs).returncode != 0
        assert box.sh("echo x > sub/new", fs).returncode != 0
    assert box.names() == {"sub", "sub/f"}


def test_folders_above_a_denial_stay_where_they_are(box: Box) -> None:
    box.file("a/b/keep")
    fs = {"denyWrite": ["a/b/keep"]}
    for script in ("mv a x", "mv a/b a/x", "rm -rf a"):
        box.sh(f"{script}; mkdir -p a/b && echo pwn > a/b/keep", fs)
        assert (box.work / "a/b/keep").read_text() == "orig\n", script
    assert box.sh("touch a/new a/b/new && mv a/b/new a/b/newer", fs).returncode == 0


def test_what_is_denied_and_absent_cannot_be_made(box: Box) -> None:
    fs = {"denyWrite": ["later", "w/"]}
    for script in ("echo x > later", "mkdir later", "ln -s /etc/passwd later", "mkdir w", "echo x > w"):
        assert box.sh(script, fs).returncode != 0, script
        assert box.names() == set(), script
    assert box.sh("echo x > other", fs).returncode == 0


def test_folders_above_what_is_denied_and_absent_can_be_made(box: Box) -> None:
    """But no way leads to the denied file itself, by folders or links that exist under other names."""
    fs = {"denyWrite": ["x/y/z", "x/folder/"]}
    assert box.sh("mkdir -p x/y && echo > x/y/other && mv x/y/other x/y/more && rm x/y/more", fs).returncode == 0
    for script in (
        "mkdir -p x/y && echo > x/y/z",
        "mkdir -p x/y/z",
        "mkdir -p x/folder",
        "mkdir -p x/y && echo > o && ln o x/y/z",
        "mkdir -p x/y && echo > o && mv o x/y/z",
        "mkdir -p x/y && ln -s /etc/passwd x/y/z",
        "mkdir -p x o/y && echo > o/y/z && mv -T o/y x/y",
        "mkdir -p x/y o/y && echo > o/y/z && mv -T --exchange o/y x/y",
        "mkdir -p o/y && echo > o/y/z && mv -T o x",
        "mkdir -p o/y && echo > o/y/z && ln -s o x",
        "mkdir -p o/y x && echo > o/y/z && ln -s ../o/y x/y",
        "mkdir -p o x && ln -s ../o x/n && mv -T x/n x/y && echo > x/y/z",
        "mkdir -p x/y && mv x w && echo > w/y/z && mv w x",
    ):
        shutil.rmtree(box.work)
        box.folder(box.work)
        assert box.sh(script, fs).returncode != 0, script
        assert not os.path.lexists(box.work / "x/y/z"), script
        assert not os.path.lexists(box.work / "x/folder"), script


KEYS = ["*.key", "deep/**/*.pem", "a/*/only.txt"]


def test_patterns_hold_for_names_that_appear_later(box: Box) -> None:
    fs = {"denyWrite": KEYS}
    script = "mkdir deep a a/b o && echo x > deep/x.pen && echo x > a/only.txt && echo x > o/x.key && mv o/x.key o/y.key"
    p = box.sh(script, fs)
    assert p.returncode == 0, p.stderr
    before = box.names()
    for script in (
        "echo x > new.key",
        "mkdir folder.key",
        "ln -s /etc/passwd link.key",
        "ln o/y.key hard.key",
        "mv o/y.key moved.key",
        "mkfifo fifo.key",
        "echo x > deep/x.pem",
        "mkdir -p deep/er/still && echo x > deep/er/still/x.pem",
        "echo x > a/b/only.txt",
        "mkdir o/p && echo x > o/p/x.pem && mv o/p deep/p",
        "mkdir o/q && echo x > o/q/only.txt && mv o/q a/q",
        "ln -s ../o a/link",
        "rm -r deep; ln -s o deep",
    ):
        p = box.sh(script, fs)
        assert p.returncode != 0, script
        matches = {n for n in box.names() - before if n.endswith(".key") or n.startswith(("a/q/", "deep/p/", "a/link"))}
        assert not matches, script
    assert not (box.work / "deep").is_symlink()
    assert "filesystem.denyWrite.0" in box.sh("echo x > new.key", fs).stderr


def test_patterns_hold_for_files_that_others_make_meanwhile(box: Box) -> None:
    """A file of the user's that was not there when the sandbox started."""
    fs = {"denyWrite": KEYS}
    script = (
        "echo ready; read line; for c in 'echo pwn > later.key' 'rm later.key' 'mv later.key x' 'chmod 777 later.key'"
        " 'ln later.key x && echo pwn > x' 'truncate -s 0 later.key' 'mv deep x'; do sh -c \"$c\" && echo BAD $c; done;"
        " cat later.key; echo fine > other"
    )
    with box.popen("-c", script, settings=box.settings(fs)) as p:
        assert p.stdin
        assert p.stdout
        assert p.stdout.readline() == "ready\n"
        box.file("later.key")
        box.file("deep/x.pem")
        out, _ = p.communicate("go\n", timeout=box.timeout)
    assert out == "orig\n"
    assert (box.work / "later.key").read_text() == (box.work / "deep/x.pem").read_text() == "orig\n"
    assert (box.work / "other").read_text() == "fine\n"


def test_patterns_by_way_of_a_link_hold_for_names_that_appear_later(box: Box) -> None:
    box.folder(box.work / "real")
    box.link("l", "real")
    fs = {"denyWrite": ["l/*.key"]}
    for script in ("echo x > real/a.key", "echo x > l/a.key", "rm l", "mv real r && echo x > r/a.key && mv r real"):
        assert box.sh(script, fs).returncode != 0, script
    assert not (box.work / "real/a.key").exists()
    assert box.sh("rm r/a.key; mv r real; echo x > l/other", fs).returncode == 0


def test_denied_links_and_what_they_lead_to(box: Box) -> None:
    box.file("real/keep")
    box.link("l", "real")
    box.link("dangling", "nowhere/f")
    fs = {"denyWrite": ["l/keep", "dangling"]}
    for script in (
        "echo pwn > real/keep",
        "echo pwn > l/keep",
        "rm l",
        "mv l m",
        "ln -sfn /etc l",
        "rm dangling",
        "mkdir nowhere && echo pwn > nowhere/f",
    ):
        assert box.sh(script, fs).returncode != 0, script
    assert (box.work / "real/keep").read_text() == "orig\n"
    assert os.readlink(box.work / "l") == "real"
    assert os.readlink(box.work / "dangling") == "nowhere/f"


def test_other_names_of_a_denied_file(box: Box) -> None:
    keep = box.file("keep")
    box.folder(box.work / "deep")
    os.link(keep, box.work / "deep/alias")
    box.file("deep/other")
    assert box.sh("echo pwn > deep/alias", {"denyWrite": ["keep"]}).returncode != 0
    assert keep.read_text() == "orig\n"
    assert box.sh("echo ok > deep/other", {"denyWrite": ["keep"]}).returncode == 0
    assert box.sh("cat deep/alias", {"denyRead": ["keep"]}).stdout == ""
    assert box.sh("cat deep/alias", {"denyRead": ["keep"], "allowRead": ["keep"]}).stdout == "orig\n"
    assert box.sh("cat deep/other", {"denyRead": ["keep"]}).stdout == "ok\n"
    assert box.sh("echo ok > deep/alias").returncode == 0


OTHER_NAME = """
import ctypes, errno, os
NEW, ALL = os.O_CREAT | os.O_WRONLY | os.O_TRUNC, os.O_RDONLY
def proc(fd): return f"/proc/self/fd/{fd}"
def write(path, flags, at=None): os.write(os.open(path, flags, dir_fd=at), b"pwn")
def exchange():
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, b"d/alias", -100, b"other", 2): raise OSError(ctypes.get_errno(), "")
    write("other", os.O_WRONLY)
ways = [
    lambda: write("d/alias", os.O_WRONLY), lambda: write("d/alias", os.O_RDWR), lambda: write("d/alias", NEW),
    lambda: write("d/alias", os.O_WRONLY | os.O_APPEND), lambda: os.open("d/alias", ALL | os.O_TRUNC),
    lambda: write("symlink", os.O_WRONLY), lambda: write("alias", os.O_WRONLY, os.open("d", os.O_PATH)),
    lambda: write(proc(os.open("d/alias", ALL)), os.O_RDWR), lambda: write(proc(os.open("d/alias", os.O_PATH)), NEW),
    lambda: os.truncate("d/alias", 0), lambda: os.truncate(proc(os.open("d/alias", ALL)), 0),
    lambda: os.chmod("d/alias", 0o777), lambda: os.fchmod(os.open("d/alias", ALL), 0o777), lambda: os.chmod(proc(os.open("d/alias", ALL)), 0o777),
    lambda: (os.link("d/alias", "more"), write("more", os.O_WRONLY)), lambda: (os.rename("d/alias", "more"), write("more", os.O_WRONLY)),
    lambda: (os.rename("d", "e"), write("e/alias", os.O_WRONLY)), exchange, lambda: os.unlink("d/alias"),
]
for i, way in enumerate(ways):
    try: way(); print("done", i)
    except OSError as e:
        if e.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV, errno.EBUSY): print(i, e)
write("free", os.O_WRONLY); os.chmod("free", 0o600); os.link("free", "free3"); os.rename("free3", "free4")
"""


@pytest.mark.parametrize("outside", [False, True])
def test_every_way_to_write_by_another_name(box: Box, outside: bool) -> None:
    """Also of a file that is not in a write root. A name may be replaced by another file."""
    script = box.file(box.out / "script.py", OTHER_NAME)
    keep = box.file(box.out / "keep" if outside else "keep")
    box.folder(box.work / "d")
    os.link(keep, box.work / "d/alias")
    for name in ("other", "free"):
        box.file(name)
    box.link("symlink", "d/alias")
    os.link(box.work / "free", box.work / "free2")
    before = keep.stat().st_mode
    p = box.run("--", "/usr/bin/python3", "-B", script, settings=Box.settings({"denyWrite": [str(keep)]}))
    assert (p.returncode, p.stdout) == (0, ""), p.stderr
    assert (keep.read_text(), keep.stat().st_mode) == ("orig\n", before)
    assert (box.work / "free2").read_text() == "pwng\n"
    assert box.sh("echo new > other && mv other d/alias", {"denyWrite": [str(keep)]}).returncode == 0
    assert keep.read_text() == "orig\n"


def test_another_name_that_comes_and_goes(box: Box) -> None:
    """A program outside gives a name to a denied file and to another one in turn."""
    keep, other = box.file("keep"), box.file("other")
    os.link(keep, box.work / "alias")
    os.link(other, box.work / "x")
    script = box.file(
        box.out / "race.py",
        "import os\nn = 0\n"
        "for i in range(2000):\n"
        "    for way in (lambda: os.write(os.open('x', os.O_WRONLY), b'pwn'), lambda: os.open('x', os.O_TRUNC),\n"
        "                lambda: os.truncate('x', 0), lambda: os.chmod('x', 0o604)):\n"
        "        try: way(); n += 1\n"
        "        except OSError: pass\n"
        "    os.closerange(3, 64)\n"
        "print(n)",
    )
    done, before = threading.Event(), keep.stat().st_mode

    def change() -> None:
        for file in itertools.cycle((keep, other)):
            os.link(file, box.work / "next")
            os.rename(box.work / "next", box.work / "x")
            if done.is_set():
                return

    thread = threading.Thread(target=change)
    thread.start()
    try:
        p = box.run("--", "/usr/bin/python3", "-B", script, settings=Box.settings({"denyWrite": ["keep"]}))
    finally:
        done.set()
        thread.join()
    assert int(p.stdout) > 0, p.stderr
    assert (keep.read_text(), keep.stat().st_mode) == ("orig\n", before)
    assert other.read_text() != "orig\n"


def test_other_names_of_a_denied_file_however_deep(box: Box) -> None:
    """
    As deep as a path can be. Names of a hidden file are found, or it is an error where there are not enough descriptors; those of a file that is not
    written are not searched for.
    """
    keep = box.file("keep")
    here = os.open(box.work, os.O_RDONLY)
    at = os.dup(here)
    for _ in range(1100):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.link("keep", "alias", src_dir_fd=here, dst_dir_fd=at)
    os.close(at)
    os.close(here)
    deep = "d/" * 1100 + "alias"
    try:
        for rule, script, files, said in (
            ("denyRead", f"cat {deep}", "4000", "Permission denied"),
            ("denyRead", f"cat {deep}", "1000", "Too many open files"),
            ("denyRead", f"cat {deep}", "200", "Too many open files"),
            ("denyWrite", f"echo pwn > {deep}", "4000", "Permission denied"),
            ("denyWrite", f"echo pwn > {deep}", "200", "Permission denied"),
        ):
            argv = box.argv("-c", script, settings=box.settings({rule: ["keep"]}))
            limited = ["bash", "-c", f"ulimit -n {files}; exec {shlex.join(argv)}"]
            p = subprocess.run(limited, cwd=box.work, env=box.env, capture_output=True, text=True, timeout=box.timeout)
            assert p.returncode == 1, (rule, files, p.returncode, p.stderr)
            assert said in p.stderr, (rule, files, p.stderr)
        assert keep.read_text() == "orig\n"
    finally:
        subprocess.run(["rm", "-rf", box.work / "d"], check=True)  # deeper than shutil can


# ---- files that other programs obey


@pytest.mark.parametrize("name", [".bashrc", ".gitconfig", ".mcp.json", ".zprofile", ".ripgreprc", ".gitmodules", ".srt-settings.json"])
def test_mandatory_files(box: Box, name: str) -> None:
    assert box.sh(f"echo pwn > {name}").returncode != 0
    assert box.names() == set()
    box.file(name)
    assert box.sh(f"echo pwn > {name}").returncode != 0
    assert box.sh(f"rm {name}").returncode != 0
    assert (box.work / name).read_text() == "orig\n"


@pytest.mark.parametrize("how", ["-s rules.json", "--settings ./link.json", "the home's"])
def test_a_command_cannot_change_its_own_settings(box: Box, how: str) -> None:
    """Else it could free the next one."""
    text = json.dumps(box.settings({"allowWrite": [".", "~"]}))
    if how == "the home's":
        names, given = [str(box.home / ".srt-settings.json")], []
        box.own(box.file(box.home / ".srt-settings.json", text))
    else:
        box.file("rules.json", text)
        box.link("link.json", "rules.json")
        names, given = (["rules.json", "link.json"], how.split()) if "link" in how else (["rules.json"], how.split())
    for name in names:
        for script in (f"echo '{{}}' > {name}", f"rm -f {name}", f"mv {name} away", f"echo x > n && mv n {name}"):
            assert box.run(*given, "-c", script).returncode != 0, script
    assert box.run(*given, "-c", "echo x > other").returncode == 0
    for name in names:
        assert (box.work / name).read_text() == text


def test_nor_those_of_the_next_command(box: Box) -> None:
    """~/.srt-settings.json holds where no file is named, and is protected also where this command was given another one."""
    assert box.sh("echo '{}' > ~/.srt-settings.json", {"allowWrite": ["~"]}).returncode != 0
    box.own(box.file(box.home / ".srt-settings.json", "{}"))
    for script in ("echo x > ~/.srt-settings.json", "rm -f ~/.srt-settings.json", "mv ~/.srt-settings.json ~/away"):
        assert box.sh(script, {"allowWrite": ["~"]}).returncode != 0, script
    assert (box.home / ".srt-settings.json").read_text() == "{}"


@pytest.mark.parametrize("there", [False, True])
def test_cellgates_own_folders_of_the_user(box: Box, there: bool) -> None:
    """Environments run outside of a sandbox, MCP servers start in the runtime folder, kernels import packages."""
    env = {v: str(box.folder(box.home / n)) for v, n in (("XDG_RUNTIME_DIR", "r"), ("XDG_DATA_HOME", "d"), ("XDG_CACHE_HOME", "c"))}
    folders = [f"r/cellgate-{box.uid}", "d/cellgate", "c/cellgate", ".local/share/cellgate", ".cache/cellgate"]
    if there:
        for folder in folders:
            box.folder(box.home / folder / "in")
            box.own((box.home / folder).parent)
    each = "mkdir -p $f/in; echo x > $f/in/x && echo $f; mv $f $f-away && echo $f"
    script = f"cd ~; for f in {' '.join(folders)}; do {each}; done; touch free"
    done = box.run("-c", script, settings=box.settings({"allowWrite": ["~", "/tmp"]}), env=env)
    assert done.stdout == "" and (box.home / "free").exists(), done.stderr
    for folder in folders:
        assert (box.home / folder).exists() == there
    own, free = Path(f"/tmp/cellgate-{box.uid}"), Path(f"/tmp/cellgate-test-{os.getpid()}")
    before = own.exists()
    done = box.run("-c", f"mkdir {own}; touch {own}/x && echo hole; touch {free}", settings=box.settings({"allowWrite": ["/tmp"]}))
    assert done.stdout == "" and own.exists() == before, done.stderr
    free.unlink()


@pytest.mark.parametrize("name", [".vscode", ".idea", ".claude/commands", ".claude/agents", ".git/hooks"])
def test_mandatory_folders(box: Box, name: str) -> None:
    box.file(f"{name}/there")
    box.file(".git/HEAD", "ref: refs/heads/main\n")
    assert box.sh(f"echo pwn > {name}/new").returncode != 0
    assert box.sh(f"echo pwn > {name}/there").returncode != 0
    assert box.sh(f"mv {name.split('/', maxsplit=1)[0]} away").returncode != 0
    assert (box.work / name / "there").read_text() == "orig\n"
    beside = Path(name).parent / "beside"
    if str(beside.parent) != ".":
        assert box.sh(f"echo ok > {beside}").returncode == 0


def test_git_config(box: Box) -> None:
    box.file(".git/config")
    box.folder(box.work / ".git/hooks")
    assert box.sh("echo pwn >> .git/config").returncode != 0
    assert box.sh("echo ok > .git/config", {"allowGitConfig": True}).returncode == 0
    assert box.sh("echo pwn > .git/hooks/pre-commit", {"allowGitConfig": True}).returncode != 0


def repository(box: Box) -> None:
    """With hooks and settings of its own: a submodule "lib/sub", one in that, and a work tree "tree"."""
    for gitdir in (".git", ".git/modules/lib/sub", ".git/modules/lib/sub/modules/deep"):
        box.file(f"{gitdir}/HEAD", "ref: refs/heads/main\n")
        box.file(f"{gitdir}/config", "[core]\n")
        box.folder(box.work / gitdir / "hooks")
    box.file(".git/worktrees/tree/commondir", "../..\n")


@pytest.mark.parametrize(
    "path",
    [
        ".git/commondir",  # leads git to other settings
        ".git/modules/lib/sub/config",
        ".git/modules/lib/sub/hooks/post-checkout",
        ".git/modules/lib/sub/commondir",
        ".git/modules/lib/sub/modules/deep/config",
        ".git/worktrees/tree/commondir",
    ],
)
def test_all_settings_of_a_repository(box: Box, path: str) -> None:
    repository(box)
    before = {p: p.read_text() for p in box.work.rglob("*") if p.is_file()}
    for script in (
        f"echo pwn > {path}",
        f"mkdir -p x && echo pwn > x/f && mv x/f {path}",
        f"rm {path} && echo pwn > {path}",
    ):
        assert box.sh(script).returncode != 0, script
    for folder in (".git", ".git/modules", ".git/modules/lib", ".git/worktrees"):
        rename = f"import os; os.rename('{folder}', 'elsewhere')"
        assert box.sh(f'/usr/bin/python3 -c "{rename}"').returncode != 0, folder
    assert {p: p.read_text() for p in before} == before
    assert not (box.work / ".git/commondir").exists()
    assert (
        box.sh("echo ok > .git/index && mkdir -p .git/objects/aa && touch .git/modules/lib/sub/index").returncode == 0
    )


def test_settings_of_work_trees_where_git_reads_them(box: Box) -> None:
    repository(box)
    assert box.sh("echo pwn > .git/config.worktree").returncode != 0  # though git does not read it yet
    box.file(".git/config", "[extensions]\n\tworktreeconfig = true\n")
    assert box.sh("echo pwn > .git/config.worktree").returncode != 0
    assert not (box.work / ".git/config.worktree").exists()


# A process of its own: whoever is asked for its lease is sent a signal, which ends it.
LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_settings_that_cannot_be_read_now_may_say_anything(box: Box) -> None:
    """Somebody else's lease on config, say: config.worktree counts as read by git."""
    config = box.file(".git/config", "[extensions]\n\tworktreeconfig = true\n")
    argv = [*box.as_user, "/usr/bin/python3", "-c", LEASE, str(config)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdin
        assert holder.stdout.readline() == "held\n"
        assert box.sh("echo pwn > .git/config.worktree").returncode != 0
        holder.stdin.close()
    assert not (box.work / ".git/config.worktree").exists()


def test_git_works_inside_and_outside_meanwhile(box: Box) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-c", "safe.directory=*"]
    assert box.sh("git init -q").returncode == 0
    p = box.sh("git -c user.name=n -c user.email=e@x commit -q --allow-empty -m inside && git log --format=%s")
    assert (p.stdout, p.returncode) == ("inside\n", 0), p.stderr
    running = box.popen("-c", "echo up; read x; git log --format=%s", settings=Box.settings())
    assert running.stdin and running.stdout
    assert running.stdout.readline() == "up\n"
    assert not (box.work / ".git/commondir").exists()  # it cannot be made, and there is no placeholder
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "outside"], check=True, cwd=box.work, env=box.env)
    subprocess.run([*git, "fsck"], check=True, cwd=box.work, env=box.env, capture_output=True)
    out, _ = running.communicate("\n", timeout=box.timeout)
    assert out == "outside\ninside\n"


def test_what_only_looks_like_our_placeholder_is_a_file(box: Box) -> None:
    repository(box)
    forged = box.file(".git/commondir", "x\n")
    os.utime(forged, (315532801, 315532801))
    forged.chmod(0o444)
    assert box.sh("echo pwn > .git/commondir; chmod 644 .git/commondir; rm -f .git/commondir").returncode != 0
    assert forged.read_text() == "x\n"  # ours to protect, not ours to remove


def test_a_repository_without_a_work_tree(box: Box) -> None:
    box.file("remote.git/HEAD", "ref: x\n")
    assert box.sh("echo pwn > remote.git/config").returncode != 0
    assert box.sh("mkdir remote.git/hooks && echo pwn > remote.git/hooks/update").returncode != 0
    assert box.sh("mkdir remote.git/objects && mkdir other.git && echo ok > other.git/config").returncode == 0


def test_a_repository_without_a_work_tree_in_a_folder_that_is_closed_meanwhile(box: Box) -> None:
    """A process closes a folder above, and uses its descriptors of those below."""
    for path in ("up/a.git/HEAD", "up/a.git/config", "up/a.git/hooks/x.sample", "up/b.git/config"):
        box.file(path)
    script = """
import os
a, hooks, b = (os.open(f"up/{name}", os.O_RDONLY) for name in ("a.git", "a.git/hooks", "b.git"))
def create(name, folder):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o755, dir_fd=folder))
os.chmod("up", 0)
for call, args in (create, ("update", hooks)), (create, ("commondir", a)), (create, ("HEAD", b)):
    try: call(args[0], args[1])
    except PermissionError: continue
    print(args[0], "made")
try: os.unlink("HEAD", dir_fd=a)
except PermissionError: pass
os.chmod("up", 0o755)
"""
    p = box.run("python3", "-c", script, settings=box.settings())
    assert (p.returncode, p.stdout) == (0, ""), p.stderr
    assert {p.name for p in (box.work / "up").rglob("*") if p.is_file()} == {"HEAD", "config", "x.sample"}
    assert not (box.work / "up/b.git/HEAD").exists() and (box.work / "up/a.git/HEAD").exists()


def test_a_worktrees_git_file(box: Box) -> None:
    box.file(".git", "gitdir: /elsewhere\n")
    assert box.sh("rm .git; echo pwn > .git").returncode != 0
    assert (box.work / ".git").read_text() == "gitdir: /elsewhere\n"


def test_names_that_are_links_into_the_workspace(box: Box) -> None:
    """A folder of settings that the home links to: what is obeyed has another name there."""
    box.file("dots/bashrc", "old")
    box.file("dots/nvim/init.lua", "old")
    box.file("dots/other", "old")
    (box.home / ".bashrc").symlink_to(box.work / "dots/bashrc")
    (box.home / ".config").mkdir(exist_ok=True)
    (box.home / ".config/nvim").symlink_to(box.work / "dots/nvim")
    (box.work / ".husky").symlink_to("dots/nvim")
    for path in ("dots/bashrc", "dots/nvim/init.lua", "dots/nvim/new.lua", ".husky/pre-commit"):
        assert box.sh(f"echo pwn > {path}").returncode != 0, path
    assert box.sh("mv dots/nvim n2").returncode != 0
    assert box.sh("rm .husky; mkdir .husky").returncode != 0
    assert box.sh("echo new > dots/other").returncode == 0
    assert (box.work / "dots/bashrc").read_text() == (box.work / "dots/nvim/init.lua").read_text() == "old"


@pytest.mark.parametrize("where", ["home", "project"])
def test_names_that_are_links_to_what_is_not_there_yet(box: Box, where: str) -> None:
    top = box.home if where == "home" else box.work
    for folder in ("dots", "dots/claude"):
        box.folder(box.work / folder)
    box.folder(top / ".config")
    for name, target in {
        ".bashrc": "dots/bashrc",
        ".config/nvim": "dots/nvim",
        ".config/fish": "dots/a/b/fish",
        ".claude": "dots/claude",
        ".cargo": "dots/cargo",
    }.items():
        box.link(top / name, str(box.work / target))
    for path in (
        "dots/bashrc",
        "dots/nvim/init.lua",
        "dots/a/b/fish/config.fish",
        "dots/claude/settings.local.json",
        "dots/claude/hooks/x",
        "dots/cargo/config.toml",
        "dots/cargo/bin/git",
    ):
        p = box.sh(f"mkdir -p $(dirname {path}); echo pwn > {path}")
        assert p.returncode != 0, path
        assert not (box.work / path).exists(), path
        assert "programs outside run its contents" in p.stderr, p.stderr
    assert box.sh("mkdir -p n && echo > n/init.lua && mv n dots/nvim").returncode != 0
    p = box.sh("mkdir -p dots/a/b dots/cargo && echo > dots/a/b/x && echo > dots/cargo/x && echo > dots/claude/notes.md")
    assert p.returncode == 0, p.stderr


@pytest.mark.parametrize("where", ["home", "project"])
def test_links_in_folders_with_protected_names(box: Box, where: str) -> None:
    """What they lead to is obeyed like the files beside them."""
    top = box.home if where == "home" else box.work
    box.file("tools/there", "old")
    links = {
        ".vscode/tasks.json": "tools/there",
        ".husky/pre-commit": "tools/hook",
        ".config/fish/conf.d/deep/x.fish": "tools/x.fish",
        ".claude/hooks": "tools/hooks",
        ".git/hooks/pre-push": "tools/push",
        ".idea/all": ".",
    }
    box.file(top / ".git/HEAD")
    for name, target in links.items():
        for parent in reversed((top / name).parents):
            if not parent.exists():
                box.folder(parent)
        box.link(top / name, str(box.work / target))
    for path in ("tools/there", "tools/hook", "tools/x.fish", "tools/hooks/x", "tools/push"):
        assert box.sh(f"mkdir -p $(dirname {path}); echo pwn > {path}").returncode != 0, path
    assert box.sh("mv tools t2").returncode != 0
    assert box.sh("echo mine > tools/mine && echo mine > mine").returncode == 0  # a link to everything denies nothing
    assert (box.work / "tools/there").read_text() == "old"
    assert not any((box.work / t).exists() for t in ("tools/hook", "tools/x.fish", "tools/hooks", "tools/push"))


NAMED = {
    ".mcp.json": '{"mcpServers": {"a": {"command": "node", "args": ["./tools/server.js", "data.csv", "./tools/later.mjs"]}}}',
    ".claude/settings.json": r'{"hooks": {"Stop": [{"command": "\"$CLAUDE_PROJECT_DIR\"/tools/stop.sh --now"}]}}',
    ".vscode/tasks.json": '{ /* comment */ "command": "${workspaceFolder}/tools/run", "runOptions": {"runOn": "folderOpen"}, }',
    ".husky/pre-commit": "#!/bin/sh\nnpx lint-staged && node tools/check.mjs\n",
    ".pre-commit-config.yaml": "repos:\n- repo: local\n  hooks:\n  - {id: x, entry: python tools/lint.py, language: system}\n",
    ".git/hooks/pre-push": "exec tools/push.sh",
    ".envrc": "source_env tools/env.sh",
}
PROGRAMS = ["server.js", "later.mjs", "stop.sh", "run", "check.mjs", "lint.py", "push.sh", "env.sh"]


@pytest.mark.parametrize("allowed", [[], [".husky", ".mcp.json"]])
def test_programs_that_protected_files_name(box: Box, allowed: list[str]) -> None:
    for name, text in NAMED.items():
        box.file(name, text)
    for name in PROGRAMS:
        if name != "later.mjs":
            box.file(f"tools/{name}")
    (box.work / "tools/run").chmod(0o755)
    box.file("data.csv")
    box.file("tools/other.js")
    given = {"server.js", "later.mjs", "check.mjs"} if allowed else set()
    for name in PROGRAMS:
        p = box.sh(f"echo pwn > tools/{name}", cellgate={"writableNames": allowed})
        assert (p.returncode == 0) == (name in given), (name, p.stderr)
    p = box.sh("echo pwn > tools/stop.sh")
    assert 'add ".claude/settings.json" to cellgate.writableNames' in p.stderr
    assert box.sh("mv tools t2").returncode != 0
    assert box.sh("echo new > data.csv && echo new > tools/other.js && echo new > tools/new.js").returncode == 0


NAMING = [
    ".mcp.json", "mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".cursor/mcp.json", ".cursor/hooks.json", ".vscode/mcp.json",
    ".vscode/tasks.json", ".zed/settings.json", ".zed/tasks.json", ".devcontainer.json", ".devcontainer/devcontainer.json", ".gemini/settings.json",
    ".qwen/settings.json", ".codex/config.toml", ".codex/hooks.json", ".kiro/settings/mcp.json", ".roo/mcp.json", ".kilocode/mcp.json",
    ".amazonq/mcp.json", ".junie/mcp/mcp.json", ".factory/mcp.json", "opencode.json", "opencode.jsonc", ".crush.json", "crush.json",
    ".pre-commit-config.yaml", ".pre-commit-config.yml", "prek.toml", "hk.pkl", "lefthook.yml", ".lefthook.yml", "lefthook.yaml", "lefthook.toml",
    "lefthook.json", ".lintstagedrc", ".lintstagedrc.json", ".overcommit.yml", ".envrc", "mise.toml", ".mise.toml", ".yarnrc.yml", ".pnpmfile.cjs",
    ".husky/x", ".githooks/x", ".git-hooks/x", ".git/hooks/x", ".claude/hooks/x",
]  # fmt: skip


@pytest.mark.parametrize("where", ["home", "project", "linked"])
def test_each_file_that_names_programs_is_read(box: Box, where: str) -> None:
    """Its name is in the table, or it would count as absent. A link hides what is in a folder from its parent's list."""
    top = {"home": box.home, "project": box.work, "linked": box.work}[where]
    for i, name in enumerate(NAMING):
        first, slash, rest = name.partition("/")
        linked = where == "linked" and slash and first != ".git"
        box.file(box.work / f"elsewhere/{first}/{rest}" if linked else top / name, f"'{box.work}/tools/{i}.sh'")
        if linked and not (top / first).is_symlink():
            box.link(top / first, f"elsewhere/{first}")
        box.file(f"tools/{i}.sh", "old")
    p = box.sh(f"for i in $(seq 0 {len(NAMING) - 1}); do echo pwn > tools/$i.sh; done; echo new > tools/other.sh")
    assert p.returncode == 0, p.stderr
    assert [n for i, n in enumerate(NAMING) if (box.work / f"tools/{i}.sh").read_text() != "old"] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".mcp.json", '{"mcpServers": {"a": {"type": "stdio", "command": "./bin/mine", "args": ["./data/in"]}}}'),
        (".codex/config.toml", '[mcp_servers.a]\ncommand = "bin/mine"\nargs = ["./data/in"]\n'),
        (".pre-commit-config.yaml", "repos:\n- hooks:\n  - id: x\n    entry: ./bin/mine --fix ./data/in\n"),
    ],
)
def test_commands_that_are_not_there_yet(box: Box, name: str, text: str) -> None:
    """Whatever their names end with; other words are files like others."""
    box.file(name, text)
    assert box.sh("mkdir bin; echo pwn > bin/mine").returncode != 0
    assert box.sh("rmdir bin; mkdir -p other; echo pwn > other/mine; mv -T other bin || ln -sT other bin").returncode != 0
    assert not (box.work / "bin/mine").exists()
    assert box.sh("mkdir -p data bin; echo 1 > data/in && echo fine > bin/other").returncode == 0


def test_what_the_settings_of_a_repository_name(box: Box) -> None:
    """Its owner's hooks may lie anywhere: what git runs or reads by name cannot be written either."""
    config = "[core]\n\thooksPath = tools/hooks\n\tfsmonitor = ./tools/watch --now\n[include]\n\tpath = ../shared.conf\n"
    box.file(".git/HEAD", "ref: refs/heads/main\n")
    box.file(".git/config", config)
    for name in ("tools/hooks/pre-commit", "tools/watch", "shared.conf", "tools/other"):
        box.file(name, "old")
    for name in ("tools/hooks/pre-commit", "tools/hooks/new", "tools/watch", "shared.conf"):
        assert box.sh(f"echo pwn > {name}").returncode != 0, name
    assert box.sh("echo new > tools/other").returncode == 0


@pytest.mark.parametrize(
    "script",
    [
        "chmod +x r/.git/hooks/idle",
        "python3 -c 'import os; os.fchmod(os.open(\"r/.git/hooks/idle\", os.O_RDONLY), 0o755)'",
        "cp /bin/true x && mv x r/.git/hooks/idle",
        "ln r/.git/hooks/idle alias",
        "mkdir -p d/r && mv r/.git d/r/.git",
        "mkdir .git2 && mv .git2 .git",
        "mkdir -p e/objects e/refs && echo x > e/config && echo 'ref: refs/heads/main' > e/HEAD",
        "mkdir -p e/hooks && echo 'ref: refs/heads/main' > e/HEAD",
        "mkdir -p .git/x && echo x > .git/x/HEAD && mv .git/x e && echo pwn > e/config",
        "chmod 0 r/.git; mv r r2",
    ],
)
def test_what_git_runs_is_not_come_by(box: Box, script: str) -> None:
    """A hook that is there but not run, and the ways to a repository that git finds by itself."""
    hook = box.file("r/.git/hooks/idle", "idle")
    box.file("r/.git/HEAD", "ref: refs/heads/main\n")
    before = hook.stat()
    assert box.sh(script).returncode != 0
    after = hook.stat()
    assert (after.st_mode, after.st_mtime, hook.read_text()) == (before.st_mode, before.st_mtime, "idle")


LONG_PATH = """
import os, sys
for _ in range(21):
    os.makedirs("d" * 200, exist_ok=True)
    os.chdir("d" * 200)
if sys.argv[1] == "make":
    os.makedirs(".git/hooks")
    with open(".git/hooks/idle", "w"):
        os.chmod(".git/hooks/idle", 0o644)
elif sys.argv[1] == "change":
    os.chmod(".git/hooks/idle", 0o755)
print(oct(os.stat(".git/hooks/idle").st_mode))
"""


def test_modes_of_files_with_long_paths(box: Box) -> None:
    """A path of more than 4095 bytes is none that a rule can be applied to."""
    on_host = [*box.as_user, "/usr/bin/python3", "-c", LONG_PATH]
    subprocess.run([*on_host, "make"], cwd=box.work, check=True)
    p = box.run("/usr/bin/python3", "-c", LONG_PATH, "change", settings=Box.settings())
    assert "File name too long" in p.stderr
    assert subprocess.check_output([*on_host, "look"], cwd=box.work, text=True) == "0o100644\n"


def test_an_ordinary_tree_is_what_it_was(box: Box) -> None:
    """Modes, owners, times, links, names that are no text, FIFOs, and the errors that programs go by."""
    p = box.run("-c", f"exec /usr/bin/python3 - <<'E'\n{ORDINARY}\nE", settings=Box.settings())
    assert (p.returncode, p.stdout) == (0, "all\n"), p.stderr


ORDINARY = r"""
import errno, os, shutil, tempfile
def fails(e, f, *a, **k):
    try:
        f(*a, **k)
    except OSError as x:
        assert x.errno == e, (x.errno, a)
    else:
        raise AssertionError(a)
os.umask(0o027)
os.makedirs("a/b")
open("a/b/f", "w").write("1")
assert os.stat("a/b/f").st_mode & 0o777 == 0o640 and os.stat("a").st_mode & 0o777 == 0o750
os.chmod("a/b/f", 0o604); os.utime("a/b/f", (1, 2)); os.chown("a/b/f", -1, -1)
st = os.stat("a/b/f"); assert (st.st_mode & 0o777, st.st_mtime) == (0o604, 2)
os.symlink("b", "a/l"); os.link("a/l/f", "a/hard"); os.symlink("../nowhere", "a/dangling")
open("a/dangling", "w").write("2"); assert open("nowhere").read() == "2"
shutil.copytree("a", "c", symlinks=True); shutil.move("c", "d"); shutil.rmtree("d")
os.truncate("a/b/f", 0); assert os.stat("a/b/f").st_size == 0
name = bytes([255, 254]); open(name, "w").close(); os.unlink(name)
with tempfile.TemporaryFile(dir=".") as f:
    f.write(b"x")
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
here = os.open(".", os.O_RDONLY)
os.link(f"/proc/self/fd/{fd}", "linked", src_dir_fd=here, follow_symlinks=True)
os.rename("linked", "renamed", src_dir_fd=here, dst_dir_fd=here); os.unlink("renamed", dir_fd=here)
open("/proc/self/cwd/by-proc", "w").write("3"); assert open("by-proc").read() == "3"
f = open("by-proc"); open(f"/proc/self/fd/{f.fileno()}", "w").write("45"); assert open("by-proc").read() == "45"
open("/dev/null", "w").write("x")
fails(errno.ENOENT, open, "no/f", "w"); fails(errno.ENOTDIR, open, "by-proc/f", "w"); fails(errno.EISDIR, open, "a", "w")
fails(errno.EEXIST, open, "by-proc", "x"); fails(errno.EEXIST, os.mkdir, "a"); fails(errno.EEXIST, os.link, "by-proc", "a/hard")
fails(errno.ENOTEMPTY, os.rmdir, "a"); fails(errno.EISDIR, os.unlink, "a"); fails(errno.ENOENT, os.unlink, "no")
fails(errno.EINVAL, os.rename, "a", "a/b/in"); fails(errno.ENAMETOOLONG, open, "n" * 300, "w"); fails(errno.ENOENT, os.chmod, "no", 0o600)
os.symlink("l2", "l1"); os.symlink("l1", "l2"); fails(errno.ELOOP, open, "l1", "w")
fails(errno.EXDEV, os.rename, "by-proc", "/dev/shm/x")
import ctypes
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # as gpg-agent: not dumpable
open("private", "w").write("x"); os.chmod("private", 0o600); os.unlink("private")
print("all")
"""


def test_a_repository_can_be_made(box: Box) -> None:
    assert box.sh("mkdir -p .git/hooks .git/objects && echo ok > .git/hooks/x.sample").returncode == 0


@pytest.mark.parametrize(
    ("path", "depth"),
    [
        ("a/.bashrc", None),
        ("a/b/.BashRC", None),
        ("a/b/c/d/e/f/g/h/i/j/k/l/.bashrc", None),
        ("a/b/c/d/e/.bashrc", 1),
        ("a/.vscode/x", None),
        ("node_modules/p/.bashrc", None),
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_mandatory_names_below(box: Box, path: str, depth: int | None, there: bool) -> None:
    """At any depth, whatever the depth that srt would search, and whether it is there already or not."""
    if there:
        box.file(path, "old")
    more = {"mandatoryDenySearchDepth": depth} if depth else {}
    folder = str(Path(path).parent)
    assert box.sh(f"mkdir -p {folder}; echo pwn > {path}", **more).returncode != 0
    assert box.sh(f"echo ok > {folder}/x; mv {folder}/x {path}", **more).returncode != 0
    assert (box.work / path).exists() == there
    assert not there or (box.work / path).read_text() == "old"


def test_nothing_stands_for_names_that_are_not_there(box: Box) -> None:
    """No file that `git status` or an editor would show, neither meanwhile nor afterwards."""
    p = box.sh("ls -A", {"denyWrite": ["absent", "folder/absent"]})
    assert p.stdout == ""
    assert box.names() == set()


def test_two_at_once(box: Box) -> None:
    first = box.popen("-c", "echo up; read x; echo pwn > .bashrc", settings=Box.settings())
    assert first.stdout and first.stdin
    assert first.stdout.readline() == "up\n"
    assert box.sh("true").returncode == 0
    out, _ = first.communicate("\n", timeout=box.timeout)
    assert first.returncode != 0
    assert box.names() == set()


# ---- reading


@pytest.mark.parametrize("entry", ["secret", "sec*", "**/key", "secret/**", "./secret/key", "~/../work/secret"])
def test_deny_read(box: Box, entry: str) -> None:
    box.file("secret/key", "TOPSECRET\n")
    box.file("public", "seen\n")
    p = box.sh("cat secret/key; mv secret moved; cat moved/key; ls secret; cat public", {"denyRead": [entry]})
    assert "TOPSECRET" not in p.stdout
    assert "seen\n" in p.stdout


@pytest.mark.parametrize(
    ("closed", "target"),
    [
        ("tools", "tools/check"),  # .envrc names it
        (".claude", "bin/stop.sh"),  # a file in .claude names it
        ("git", "bin/fsmonitor"),  # settings that .git/config includes name it
        ("tools", "tools/pager"),  # .git/config names it
        ("sub", "sub/bin/watch"),  # sub/.git/config names it
        (".config", "bin/x.fish"),  # a link in .config leads to it
    ],
)
def test_what_protected_files_name_after_a_former_sandbox_has_closed_a_folder(box: Box, closed: str, target: str) -> None:
    """A process inside owns the folder, and opens it again."""
    box.file(".envrc", "source tools/check\n")
    box.file(".claude/settings.json", '{"hooks": {"Stop": [{"command": "bin/stop.sh"}]}}')
    for name in (".git/HEAD", "sub/.git/HEAD"):
        box.file(name, "ref: refs/heads/main\n")
    box.file(".git/config", "[include]\n\tpath = ../git/more\n[core]\n\tpager = tools/pager\n")
    box.file("git/more", "[core]\n\tfsmonitor = bin/fsmonitor\n")
    box.file("sub/.git/config", "[core]\n\tfsmonitor = bin/watch\n")
    box.file(".config/fish/conf.d/y.fish")
    box.link(".config/fish/conf.d/x.fish", "../../../bin/x.fish")
    for name in ("tools/check", "bin/stop.sh", "bin/fsmonitor", "tools/pager", "sub/bin/watch", "bin/x.fish"):
        box.file(name, "old").chmod(0o755)
    assert box.sh(f"echo pwn > {target}").returncode != 0
    assert box.sh(f"chmod 0 {closed}").returncode == 0
    p = box.sh(f"chmod 755 {closed}; echo pwn > {target}")
    (box.work / closed).chmod(0o755)
    assert (p.returncode != 0, (box.work / target).read_text()) == (True, "old"), p.stderr


def test_a_write_root_that_a_former_sandbox_has_closed(box: Box) -> None:
    """Other names of what is hidden may be in it."""
    box.folder(box.work / "root")
    os.link(box.file("secret", "secret"), box.work / "root/name")
    fs = {"allowWrite": ["root"], "denyRead": ["secret"]}
    assert box.sh("chmod 0300 root", fs).returncode == 0
    p = box.sh("chmod 755 root; cat root/name", fs)
    assert (p.returncode != 0, p.stdout) == (True, ""), p.stderr


@pytest.mark.parametrize("entry", ["sub/key", "**/key", "sub/deep/*", "other"])
def test_what_is_hidden_in_a_folder_that_a_former_sandbox_has_closed(box: Box, entry: str) -> None:
    """A process inside owns the folder, and opens it again."""
    box.file("sub/deep/key", "secret")
    os.link(box.file("other", "secret"), box.work / "sub/key")
    fs = {"denyRead": [entry]}
    assert box.sh("chmod 0 sub", fs).returncode == 0
    hidden = "sub/deep/key" if "deep" in entry else "sub/key"
    p = box.sh(f"chmod 755 sub; cat {hidden}", fs)
    assert (p.returncode, p.stdout) == (1, ""), p.stderr


def test_a_denied_link_hides_where_it_leads(box: Box) -> None:
    box.file("real/key", "TOPSECRET\n")
    box.link("l", "real")
    p = box.sh("cat l/key real/key", {"denyRead": ["l"]})
    assert "TOPSECRET" not in p.stdout


def test_patterns(box: Box) -> None:
    for name in ("a.pem", "f1.key", "f2.key", "deep/er/.env", ".env"):
        box.file(name, "TOPSECRET\n")
    for name in ("a.txt", "f9.key", "deep/er/x"):
        box.file(name, "seen\n")
    fs = {"denyRead": ["*.pem", "f[12].key", "**/.env"]}
    p = box.sh("cat a.pem f1.key f2.key deep/er/.env .env; cat a.txt f9.key deep/er/x", fs)
    assert "TOPSECRET" not in p.stdout
    assert p.stdout == "seen\n" * 3


def test_patterns_in_a_deep_folder(box: Box) -> None:
    """What counts is the depth below the folder in which the pattern begins."""
    deep = box.work / "/".join("d" * 80)
    box.file(deep / "x" / "a.pem", "secret\n")
    box.file(deep / "x" / "a.txt", "text\n")
    cat = f"cat {deep}/x/a.txt {deep}/x/a.pem"
    assert box.sh(cat, {"denyRead": [f"{deep}/**/*.pem"]}).stdout == "text\n"
    (deep / "/".join("e" * 65)).mkdir(parents=True)
    p = box.sh(cat, {"denyRead": [f"{deep}/**/*.pem"]})
    assert p.stdout == "" and "more than 64 deep" in p.stderr


def test_a_link_in_a_write_root_shows_nothing_that_is_hidden(box: Box) -> None:
    """An earlier command may have made it: neither the entry itself nor a folder above it leads to what is hidden."""
    box.file(box.home / "keys/id", "secret\n")
    box.file("plain/id", "mine\n")
    box.link("data", str(box.home / "keys"))
    for entry in (f"{box.work}/data/*", "data/*", "data/id", "*/id", {"path": "data/id", "literal": True}):
        fs = {"denyRead": ["~"], "allowRead": [".", "plain", entry]}
        p = box.sh(f"cat plain/id; cat data/id {box.home}/keys/id", fs)
        assert (p.returncode, p.stdout) == (1, "mine\n"), (entry, p.stdout)
    # One that no command could have made is the user's own way of saying it.
    outside = box.link(box.out / "data", str(box.home / "keys"))
    p = box.sh(f"cat {outside}/id", {"denyRead": ["~"], "allowRead": [".", f"{outside}/*"]})
    assert p.stdout == "secret\n", p.stderr


def test_a_pattern_holds_for_each_name_of_a_folder(box: Box) -> None:
    box.file("keys/k")
    box.file("keys/shown")
    for name in "abmyz":  # whatever the order of the folder: some come first
        box.link(name, "keys")
    fs = {"denyRead": ["**/keys/k"]}
    assert box.sh("cat keys/shown a/shown", fs).stdout == "orig\norig\n"
    assert box.sh("cat keys/k a/k z/k", fs).stdout == ""
    assert box.sh("cat keys/k", {"denyRead": ["**/m/k"]}).stdout == ""


def test_a_literal_entry_is_no_pattern(box: Box) -> None:
    box.file("a[b]*", "TOPSECRET\n")
    box.file("ab1", "seen\n")
    p = box.sh("cat 'a[b]*'; cat ab1", {"denyRead": [{"path": "a[b]*", "literal": True}]})
    assert p.stdout == "seen\n"


def test_allow_read_within(box: Box) -> None:
    box.file("s/hidden", "TOPSECRET\n")
    box.file("s/shown/f", "seen\n")
    box.file("s/shown/.env", "TOPSECRET\n")
    fs = {"denyRead": ["s", "s/shown/.env"], "allowRead": ["s/shown"]}
    p = box.sh("cat s/hidden; cat s/shown/f; cat s/shown/.env; ls s", fs)
    assert p.stdout == "seen\nshown\n"
    assert box.sh("cat s/hidden", {"denyRead": ["s/hidden"], "allowRead": ["s/hidden"]}).stdout == "TOPSECRET\n"


def test_a_project_within_a_hidden_folder(box: Box) -> None:
    box.file(box.out / "key", "TOPSECRET\n")
    fs = {"denyRead": [str(box.base)], "allowRead": ["."], "allowWrite": ["."]}
    p = box.sh(f"pwd; echo x > f && cat f; cat {box.out}/key; ls {box.base}", fs)
    assert p.stdout == f"{box.work}\nx\nwork\n"
    assert (box.work / "f").read_text() == "x\n"


def test_all_of_the_disk_hidden(box: Box) -> None:
    box.file("f", "seen\n")
    fs = {"denyRead": ["/"], "allowRead": ["/usr", "/bin", "/lib", "/lib64", "/etc", "."]}
    p = box.sh(f"cat f; ls {box.out}; ls /", fs)
    assert p.stdout.startswith("seen\n")
    assert str(box.out) not in p.stdout
    assert p.returncode == 0


def test_disabled(box: Box) -> None:
    script = f"echo x > {box.out}/f && echo y > .bashrc"
    assert box.sh(script).returncode != 0
    assert box.sh(script, {"disabled": True}).returncode == 0
    assert (box.work / ".bashrc").read_text() == "y\n"


# ---- credentials


def test_denied_credentials(box: Box) -> None:
    box.file("token", "TOPSECRET\n")
    creds = {
        "files": [{"path": "token", "mode": "deny"}],
        "envVars": [{"name": "TOKEN", "mode": "deny"}],
    }
    p = box.run(
        "-c", "cat token; env", settings=Box.settings(credentials=creds), env={"TOKEN": "TOPSECRET", "OTHER": "seen"}
    )
    assert "TOPSECRET" not in p.stdout
    assert "OTHER=seen" in p.stdout


def test_tokens_of_mcp_servers_are_never_seen(box: Box) -> None:
    """Other than credentials of other programs, which commands see unless the settings hide them."""
    token = box.file("state/cellgate/mcp-login/x.json", "TOPSECRET\n")
    box.file("seen", "SEEN\n")
    p = box.run("-c", f"cat {token} seen; echo x > {token}", env={"XDG_STATE_HOME": str(token.parents[2])})
    assert "SEEN" in p.stdout
    assert "TOPSECRET" not in p.stdout
    assert token.read_text() == "TOPSECRET\n"


def test_masked_credentials(box: Box) -> None:
    netrc = "machine a password TOPSECRET1\nmachine b password TOPSECRET2\n"
    box.file("netrc", netrc)
    box.file("token", "TOPSECRET-and-more-of-it-so-that-it-is-long-enough-to-be-padded")
    creds = {
        "files": [
            {"path": "netrc", "mode": "mask", "extract": "password (\\S+)"},
            {"path": "token", "mode": "mask"},
        ],
        "envVars": [{"name": "TOKEN", "mode": "mask"}],
        "allowPlaintextInject": True,
    }
    p = box.run(
        "-c",
        'cat netrc; echo "<$(cat token)>"; echo "$TOKEN"; echo pwn > token',
        settings=Box.settings(credentials=creds),
        env={"TOKEN": "TOPSECRET"},
    )
    assert "TOPSECRET" not in p.stdout
    lines = p.stdout.splitlines()
    assert lines[0].startswith("machine a password fake_value_")
    assert lines[1].startswith("machine b password fake_value_")
    assert lines[0].split()[-1] != lines[1].split()[-1]
    assert len(lines[2]) == len((box.work / "token").read_text()) + 2
    assert lines[3].startswith("fake_value_")
    assert (box.work / "token").read_text().startswith("TOPSECRET")
    assert (box.work / "netrc").read_text() == netrc


MASKED = r"fake_value_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("pattern", "text", "shown"),
    [
        (r"(?:user|token): (\d+)", "token: 12345\nother: 6\n", f"token: {MASKED}\nother: 6\n"),
        (r'"(.+?)"', '"ab", "cd"\n', f'"{MASKED}", "{MASKED}"\n'),
        (r"(?<key>k=)\S+", "k=v\n", f"{MASKED}v\n"),  # the first group, as in srt
        (r"t=(\S+)", "t=abc # abc t=ab ab\n", f"t={MASKED} # {MASKED} t={MASKED} {MASKED}\n"),
        (r"t=(\S+)", "t=" + "x" * 60 + "\n", f"t={MASKED}[A-Za-z0-9_]{{13}}\n"),
        (r"(?:^|\n)token (.+)", "a token b\ntoken c\n", f"a token b\ntoken {MASKED}\n"),
    ],
)
def test_patterns_of_masked_files(box: Box, pattern: str, text: str, shown: str) -> None:
    """JavaScript's, as in srt; and what a masked value looks like (docs/settings.md)."""
    box.file("f", text)
    creds = {
        "files": [{"path": "f", "mode": "mask", "extract": pattern, "maskDuplicates": True}],
        "allowPlaintextInject": True,
    }
    p = box.run("cat", "f", settings=Box.settings(credentials=creds))
    assert re.fullmatch(shown, p.stdout), (p.stdout, p.stderr)


@pytest.mark.parametrize(
    ("pattern", "text", "why"),
    [
        (r"((a+)+)[bc]", "a" * 5000, "takes too long"),
        (r"t: (\S+)?", "t: ", "group 1"),
        (r"(?i)t=(.+)", "t=1", "Invalid group"),
        (r"a(?=(bcd))|b(?=(c))", "abcd", "group 1"),
        (r"(?=(abc|bc)).", "abcd", "overlap"),
    ],
)
def test_patterns_that_cannot_mask_run_nothing(box: Box, pattern: str, text: str, why: str) -> None:
    box.file("f", text)
    creds = {"files": [{"path": "f", "mode": "mask", "extract": pattern}], "allowPlaintextInject": True}
    p = box.run("cat", "f", settings=Box.settings(credentials=creds))
    assert (p.returncode, p.stdout) == (1, "")
    assert why in p.stderr and "extract" in p.stderr


@pytest.mark.parametrize(("mode", "status", "shown"), [("warn", 0, "plain\n"), ("deny", 1, ""), ("error", 1, "")])
def test_nothing_to_mask(box: Box, mode: str, status: int, shown: str) -> None:
    box.file("f", "plain\n")
    creds = {
        "files": [{"path": "f", "mode": "mask", "extract": "key=(.*)", "onExtractNoMatch": mode}],
        "allowPlaintextInject": True,
    }
    p = box.run("cat", "f", settings=Box.settings(credentials=creds))
    assert (p.returncode, p.stdout) == (status, shown)
    assert p.stderr


def test_well_known_credentials(box: Box) -> None:
    box.file(box.home / ".ssh/id", "TOPSECRET\n")
    script = f"cat {box.home}/.ssh/id"
    assert box.sh(script).stdout == "TOPSECRET\n"
    assert box.sh(script, cellgate={"hideCredentials": True}).returncode != 0


def test_many_denials(box: Box) -> None:
    for i in range(300):
        box.file(f"d{i}/f")
    fs = {"denyWrite": [f"d{i}/f" for i in range(300)]}
    assert box.sh("echo x > d299/f", fs).returncode != 0
    assert box.sh("echo x > d299/g", fs).returncode == 0


def test_nested_user_namespaces(box: Box) -> None:
    box.file("keep")
    settings = Box.settings({"denyWrite": ["keep"]})
    assert box.run("unshare", "-Ur", "true", settings=settings).returncode != 0
    settings["allowNestedUserNamespaces"] = True
    p = box.run("unshare", "-Ur", "id", "-u", settings=settings)
    assert p.stdout == "0\n"
    assert box.sh("v=$(cat /proc/sys/vm/swappiness); echo $v > /proc/sys/vm/swappiness").returncode != 0
    box.run("unshare", "-Urm", "sh", "-c", "umount -l keep; echo pwn > keep", settings=settings)
    assert (box.work / "keep").read_text() == "orig\n"
    # By a descriptor of the nested namespace's own mount: a hook that the sandbox found no mount for.
    hook = box.file("/".join(["d"] * 12) + "/.git/hooks/idle")
    before = hook.stat().st_mode
    change = f"import os; os.fchmod(os.open('{hook}', os.O_RDONLY), 0o755)"
    nested = ("unshare", "-Ur", "--propagation", "unchanged", "-m", "python3", "-c")
    assert "PermissionError" in box.run(*nested, change, settings=settings).stderr
    assert hook.stat().st_mode == before
    memory = "import os; os.fchmod(os.memfd_create('m'), 0o700); os.fchmod(os.open('new', os.O_CREAT | os.O_RDONLY), 0o700)"
    assert box.run(*nested, memory, settings=settings).stderr == ""


@pytest.mark.parametrize("name", ["oom_score_adj", "coredump_filter", "timerslack_ns", "autogroup", "clear_refs", "comm"])
def test_files_of_init_where_proc_is_writable(box: Box, name: str) -> None:
    """For nested user namespaces /proc is writable; a process writes its own files there, and not init's."""
    script = f"for p in self 1; do (exec 3> /proc/$p/{name}) 2> /dev/null && echo $p; done; true"
    p = box.sh(script, allowNestedUserNamespaces=True)
    assert p.stdout == ("" if not Path(f"/proc/self/{name}").exists() else "self\n")


def test_read_only_for_whoever_cannot_write(box: Box) -> None:
    """A project of another user: nothing can be made in it, so nothing has to be denied."""
    if not box.uid:
        pytest.skip("root may write everywhere")
    p = box.run("-c", "echo ran", settings=Box.settings({"allowWrite": ["/usr"]}), cwd=Path("/usr"))
    assert (p.returncode, p.stdout) == (0, "ran\n"), p.stderr
    assert subprocess.run(["find", "/usr", "-maxdepth", "1", "-name", ".bashrc"], capture_output=True).stdout == b""


def test_the_search_for_hard_links_is_not_made_in_the_sandboxs_own_folders(box: Box) -> None:
    """Of the whole disk all but /proc, /sys and /dev: the search opens every folder on the way, and would fail there."""
    box.file("denied", "keep")
    os.link(box.work / "denied", box.work / "alias")
    top = Path(f"/dev/shm/cellgate-test-{os.getpid()}")
    deep = top / "/".join(["d"] * 150)
    subprocess.run([*box.as_user, "mkdir", "-p", deep], check=True)
    settings = box.settings({"allowWrite": ["/"], "denyWrite": ["./denied"]})
    try:
        argv = box.argv("-c", "echo pwn > alias", settings=settings)
        p = subprocess.run(
            ["bash", "-c", 'ulimit -n 128; exec "$@"', "-", *argv], cwd=box.work, env=box.env, capture_output=True, text=True
        )
    finally:
        subprocess.run(["rm", "-rf", top], check=True)
    assert str(top) not in p.stderr
    assert p.returncode != 0  # refused as a whole on a large machine, or the other name is denied
    assert (box.work / "denied").read_text() == "keep"
