"""Names that programs outside obey, in kernels: the same rules with and without settings, and they are given back by name."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import web
from cellgate_api import Client, Session
from rounds import rounds

WRITES = web.settings()

PUT = """
import os, subprocess
def put(path, text='pwn'):
    try:
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        with open(path, 'w') as f:
            return f.write(text) > 0
    except OSError as e:
        return e.strerror
def run(*argv):
    p = subprocess.run(argv, capture_output=True, text=True)
    return p.returncode, p.stderr
"""

NAMES = [
    ".bashrc", ".profile", ".gitconfig", ".mcp.json", ".zshenv", ".npmrc", ".vscode/tasks.json", ".claude/commands/x.md", ".claude/settings.json",
    ".git/config", ".git/config.worktree", ".git/hooks/pre-commit", ".git/modules/m/config", ".husky/pre-commit", "jupyter_server_config.py",
    ".direnv/flake-profile.rc", ".hg/sharedpath", ".github/hooks/x.json", ".clinerules/hooks/PreToolUse", ".repo/repo/main.py",
    "mise/config.toml", "prek.toml", "hk.pkl", ".bsp/x.json", ".lsp/config.edn", "hie.yaml", ".hie-bios", ".pdm-python", ".pijul/config",
    ".luarc.json", ".lintstagedrc", "lefthook.yaml",
]  # fmt: skip


def refused(s: Session, name: str) -> bool:
    return s.run(f"put({name!r})").value == "'Permission denied'"


@pytest.mark.parametrize("settings", [None, WRITES], ids=["default", "settings"])
def test_they_cannot_be_made_at_any_depth(client: Client, workspace: Path, settings: dict | None) -> None:
    with client.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
        s.run(PUT)
        for folder in (".", "a/b/c/d/e/f/g/h"):
            for name in NAMES:
                assert refused(s, f"{folder}/{name}"), name
            assert s.run(f"put({folder + '/ordinary'!r})").value == "True"
    assert not any((workspace / f / n).exists() for n in NAMES for f in (".", "a/b/c/d/e/f/g/h"))


PIECES = """
def pieces(folder):
    # All but HEAD.
    for d in ('objects', 'refs/heads'):
        os.makedirs(f'{folder}/{d}')
    return put(f'{folder}/config', '[core]\\n\\tbare = false\\n\\tfsmonitor = touch RAN\\n\\tworktree = ..\\n')
HEAD = 'ref: refs/heads/main\\n'
"""


def test_no_repository_comes_together(client: Client, workspace: Path) -> None:
    """A cell cannot add a HEAD to a folder that has the other parts of a repository, by any system call."""
    denied = "'Permission denied'"
    with client.session(workspace=workspace) as s:
        s.run(PUT + PIECES)
        assert s.run("pieces('bare')").value == "True"
        # Processes can bind a socket to a name without init.
        s.run("import socket; a, b = socket.socketpair(); a.bind('bare/HEAD'); put('bare/head', HEAD)")
        assert "denied" in s.run("run('mv', 'bare/head', 'bare/HEAD')").value
        for folder in ("r/.git/refs/x", "r/.git/objects/x", "r/.git/logs/x"):
            assert s.run(f"pieces({folder!r})").value == "True"
            assert s.run(f"put('{folder}/HEAD', HEAD)").value == denied
            assert s.run(f"put('{folder}.git/.git/HEAD', HEAD); pieces('{folder}.git/.git')").value == denied
            assert s.run(f"put('{folder}.git/.git/hooks/post-checkout')").value == denied
        # Where git itself has one.
        assert s.run("run('git', 'init', '-q', 'own')").value == "(0, '')"
        assert s.run("put('own/.git/refs/remotes/origin/HEAD', HEAD)").value == "True"
    for folder in workspace.glob("**/config"):
        p = subprocess.run(
            ["git", "status"], cwd=folder.parent, capture_output=True, env={"PATH": "/usr/bin:/bin", "HOME": "/"}
        )
        assert p.returncode or "own" in str(folder), folder
    assert not list(workspace.glob("**/RAN"))


def test_a_folder_that_cannot_be_looked_through_stays(client: Client, workspace: Path) -> None:
    subprocess.run(["git", "init", "-q", workspace / "a/b/repo"], check=True)
    with client.session(workspace=workspace) as s:
        for folder in ("a/b/repo", "a/b", "a"):
            out = s.run(
                f"import os; os.chmod({folder!r}, 0)\ntry: os.rename({folder!r}, 'moved')\nexcept OSError as e: why = e.strerror\n"
                f"os.chmod({folder!r}, 0o755); why"
            )
            assert out.value == "'Invalid cross-device link'", (folder, out.value)


@pytest.mark.parametrize("settings", [None, WRITES], ids=["default", "settings"])
def test_what_settings_of_git_lead_to(client: Client, workspace: Path, tmp_path: Path, settings: dict | None) -> None:
    """Hooks, included settings and programs that the repository of the workspace, a work tree, names elsewhere."""
    repo, tree = tmp_path / "main", workspace
    subprocess.run(["git", "init", "-q", repo], check=True)
    identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
    subprocess.run(["git", "-C", repo, *identity, "commit", "-q", "--allow-empty", "-m", "m"], check=True)
    workspace.rmdir()
    subprocess.run(["git", "-C", repo, "worktree", "add", "-q", "--detach", workspace], check=True)
    more = tree / "conf/more.cfg"
    for folder in ("conf", "scripts", "tools"):
        (tree / folder).mkdir()
    for script in ("clean.sh", "watch.sh"):
        (tree / "scripts" / script).write_text("cat\n")
    more.write_text('[core] fsmonitor = "scripts/watch.sh"\n[include]\n\tpath = later.cfg # not there yet\n')
    for key, value in {
        "core.hooksPath": "tools/hooks",
        "include.path": str(more),
        "filter.x.clean": "sh scripts/clean.sh %f",
        "remote.origin.url": "../scripts",
    }.items():
        subprocess.run(["git", "-C", repo, "config", key, value], check=True)
    with client.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
        s.run(PUT)
        for name in (
            "tools/hooks/pre-commit",
            "conf/more.cfg",
            "conf/later.cfg",
            "scripts/clean.sh",
            "scripts/watch.sh",
        ):
            assert s.run(f"put({name!r})").value in ("'Permission denied'", "'Read-only file system'"), name
        for name in ("tools/other", "conf/other", "scripts/other", "hooks/ordinary"):
            assert s.run(f"put({name!r})").value == "True", name
        for name in ("tools", "conf", "scripts"):
            assert s.run(f"run('mv', {name!r}, 'moved')[0]").value != "0", name
    assert not (tree / "tools/hooks").exists()


@pytest.mark.parametrize("settings", [None, WRITES], ids=["default", "settings"])
def test_files_that_links_lead_to_are_kept(
    prefix: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict | None
) -> None:
    """Links of the home folder to files that do not exist, and links in protected folders."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").symlink_to(workspace / "dots/bashrc")
    (home / ".claude").symlink_to(workspace / "claude")
    (workspace / ".husky").mkdir()
    (workspace / ".husky/pre-commit").symlink_to("../tools/hook")
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    (workspace / ".git/config").unlink()
    (workspace / ".git/config").symlink_to("../git/settings")
    monkeypatch.setenv("HOME", str(home))
    with Client() as c, c.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
        s.run(PUT)
        for name in ("dots/bashrc", "claude/settings.json", "claude/hooks/x", "tools/hook", "git/settings"):
            assert refused(s, name), name
            assert not (workspace / name).exists()
        for name in ("dots/other", "claude/notes.md", "tools/other"):
            assert s.run(f"put({name!r})").value == "True", name


def test_they_are_given_back_by_name(client: Client, workspace: Path) -> None:
    settings = {**WRITES, "cellgate": {"writableNames": [".vscode", ".git/config", "*.code-workspace"]}}
    with client.session(workspace=workspace, settings=settings) as s:
        s.run(PUT)
        for name in (".vscode/tasks.json", "a/.git/config", "x.code-workspace"):
            assert s.run(f"put({name!r})").value == "True", name
        for name in (".idea/x", "a/.git/hooks/x", ".bashrc"):
            assert refused(s, name), name


def test_the_denial_of_a_moved_folder_names_what_is_in_it(client: Client, workspace: Path) -> None:
    """And not the folder, which nothing protects by itself."""
    (workspace / "app" / "sub" / ".vscode").mkdir(parents=True)
    with client.session(workspace=workspace) as s:
        out = s.run("import os; os.rename('app', 'moved')")
        (event,) = [e for e in out.events if e.type == "denied" and e.json["source"] == "sandbox"]
        assert event.json["path"] == str(workspace / "app" / "sub" / ".vscode")
        assert event.json["why"] == "programs outside of the sandbox obey .vscode"
        assert [e for e in out.events if e.type == "denied"] == [event]
        assert "user 0" not in out.result.text  # its powers are not the reason


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a file of another user, which only root may do")
def test_the_powers_of_root_are_named_where_modes_refuse(client: Client, workspace: Path) -> None:
    theirs = workspace / "theirs"
    theirs.write_text("x")
    theirs.chmod(0o600)
    os.chown(theirs, 12345, 12345)
    with client.session(workspace=workspace) as s:
        out = s.run("open('theirs')")
        (event,) = [e for e in out.events if e.type == "denied"]
        assert event.json["rule"] == "no powers of root (built in)"
        assert "user 0 has no powers over other users' files" in out.result.text


def test_the_denial_names_it(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        out = s.run("open('.bashrc', 'w')")
        (event,) = [e for e in out.events if e.type == "denied"]
        assert (event.json["operation"], event.json["path"]) == ("file-write", str(workspace / ".bashrc"))
        assert event.json["why"] == "programs outside of the sandbox obey .bashrc"
        assert event.json["how"] == 'add ".bashrc" to cellgate.writableNames of a settings file'
        out = s.run("import subprocess; subprocess.run(['touch', 'deep/.git/config', '.zshrc']).returncode")
        assert out.value == "1"


def test_credentials_below_are_hidden(client: Client, workspace: Path) -> None:
    for name in ("sub/.env", "sub/deep/.env.local", "keys.kdbx", "sub/.env.example"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("SECRET=1")
    with client.session(workspace=workspace) as s:
        s.run(
            "import os\ndef seen(p):\n    try:\n        return open(p).read()\n    except OSError:\n        return ''"
        )
        for name in ("sub/.env", "sub/deep/.env.local", "keys.kdbx"):
            assert s.run(f"seen({name!r})").value == "''", name
        assert s.run("seen('sub/.env.example')").value == "'SECRET=1'"


def test_whoever_opens_a_fifo_can_be_interrupted(client: Client, workspace: Path) -> None:
    """Init opens it for the cell, and must not wait for the other end itself, nor keep the cell from a signal."""
    with client.session(workspace=workspace) as s:
        cell = s.execute("import os; os.mkfifo('fifo'); print('made', flush=True); open('fifo', 'w')")
        s.until("stream")
        s.cancel(cell)
        events = s.until("result")
        assert [e for e in events if e.type == "error"][-1].json["ename"] == "KeyboardInterrupt"
        assert s.run("open('beside', 'w').write('1')").value == "1"
        assert (
            s.run(
                "import threading; t = threading.Thread(target=lambda: open('fifo').read()); t.start();"
                " f = open('fifo', 'w'); f.close(); t.join(); t.is_alive()"
            ).value
            == "False"
        )


def test_two_kernels_make_no_repository_together(client: Client, workspace: Path) -> None:
    """One makes settings, the other a HEAD beside them: each init checks its own file again."""
    half = """
import os, time
def half(name, text):
    made = 0
    for i in range(150):
        folder = f'race{i}'
        os.makedirs(folder, exist_ok=True)
        try:
            fd = os.open(f'{folder}/{name}', os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except PermissionError:
            continue
        os.write(fd, text)
        os.close(fd)
        made += 1
    return made
"""
    with client.session(workspace=workspace) as a, client.session(workspace=workspace) as b:
        a.run(half)
        b.run(half)
        a.execute("half('config', b'[core]\\n')")
        b.execute("half('HEAD', b'ref: refs/heads/main\\n')")
        a.until("result")
        b.until("result")
    folders = list(workspace.glob("race*"))
    assert len(folders) == 150
    assert [f.name for f in folders if (f / "config").exists() and (f / "HEAD").exists()] == []


CONTEND = """
import os, threading
def take_file():
    os.close(os.open('lock', os.O_WRONLY | os.O_CREAT | os.O_EXCL))
def take_link():
    os.symlink('nowhere', 'lock')
def take_hard():
    os.link('what', 'lock')
def take_pipe():
    os.mkfifo('lock')
def reuse():
    os.close(os.open('lock', os.O_WRONLY))
def away():
    os.rename('lock', f'gone{threading.get_ident()}')
def contend(take, *drops):
    seen = set()
    def one():
        for i in range(400):
            for call in (take, *drops):
                try:
                    call()
                except OSError as e:
                    seen.add(type(e).__name__)
    threads = [threading.Thread(target=one) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sorted(seen - {'FileExistsError', 'FileNotFoundError'})
open('what', 'w').close()
rmdir = lambda: os.rmdir('lock')
unlink = lambda: os.unlink('lock')
"""


@pytest.mark.parametrize(
    "calls",
    [
        "lambda: os.mkdir('lock'), rmdir",
        "take_file, reuse, unlink",
        "take_link, unlink",
        "take_hard, away, unlink",
        "take_pipe, unlink",
    ],
    ids=["folder", "file", "symlink", "link", "fifo"],
)
def test_who_wants_the_same_lock_is_told_that_it_is_there(client: Client, workspace: Path, calls: str) -> None:
    """Programs wait for a lock on "it exists" alone: another thread may remove it while a call is being judged."""
    with client.session(workspace=workspace) as s:
        s.run(CONTEND)
        assert s.run(f"contend({calls})").value == "[]"


def test_a_tree_that_several_make_comes_to_be(client: Client, workspace: Path) -> None:
    """Its last folder is tried first, then those above, which another may make before the first call has ended."""
    with client.session(workspace=workspace) as s:
        o = s.run("""
import pathlib, threading
wrong = set()
start = threading.Barrier(4)
def one():
    for i in range(300):
        start.wait()
        try:
            pathlib.Path(f't{i}/a/b').mkdir(parents=True, exist_ok=True)
            (pathlib.Path(f't{i}/a/b') / str(threading.get_ident())).touch()
        except OSError as e:
            wrong.add(str(e))
threads = [threading.Thread(target=one) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
len(wrong), sorted(wrong)[:3]
""")
        assert o.value == "(0, [])"
    assert len(list(workspace.glob("t*/a/b/*"))) == 1200


def test_a_descriptor_of_a_removed_file_is_opened_anew(client: Client, workspace: Path) -> None:
    with client.session(workspace=workspace) as s:
        s.run(
            "import os\n"
            "f = open('file', 'w+'); f.write('one'); f.flush(); os.unlink('file')\n"
            "def again(fd, flags):\n"
            "    new = os.open(f'/proc/self/fd/{fd}', flags)\n"
            "    same = os.fstat(new).st_ino == os.fstat(fd).st_ino\n"
            "    return same, os.write(new, b'and more'), os.fstat(fd).st_size, os.close(new)\n"
        )
        assert s.run("again(f.fileno(), os.O_WRONLY | os.O_CREAT)").value == "(True, 8, 8, None)"
        assert s.run("again(f.fileno(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)").value == "(True, 8, 8, None)"
        assert s.run("again(f.fileno(), os.O_WRONLY | os.O_APPEND)").value == "(True, 8, 16, None)"
        # Its name alone is gone, or another file's by now.
        s.run("g = open('two', 'w'); os.link('two', 'other'); os.unlink('two'); open('two', 'w').close()")
        s.run("PUT = lambda: open(f'/proc/self/fd/{g.fileno()}', 'w').write('x')")
        assert s.run("PUT()").status == "error"
        s.run("os.unlink('two')")
        assert s.run("PUT()").status == "error"
    assert sorted(p.name for p in workspace.iterdir()) == ["other"]


def test_a_folder_whose_new_name_is_refused_goes_back(client: Client, workspace: Path) -> None:
    """While it is being renamed, a HEAD beside its new name makes that the hooks of a repository."""
    (workspace / "repo").mkdir()
    head = workspace / "repo/HEAD"
    ended = threading.Event()

    def toggle() -> None:
        while not ended.is_set():
            head.touch()
            head.unlink()

    other = threading.Thread(target=toggle)
    other.start()
    try:
        with client.session(workspace=workspace) as s:
            o = s.run(
                """
import os
left = set()
for i in range(ROUNDS):
    os.mkdir('mine')
    open('mine/file', 'w').close()
    try:
        os.rename('mine', 'repo/hooks')
    except PermissionError:
        if not os.path.exists('mine/file') or os.path.exists('repo/hooks'):
            left.add(str(os.listdir('.')))
            break
        os.unlink('mine/file')
        os.rmdir('mine')
        continue
    for remove, what in ((os.unlink, 'repo/hooks/file'), (os.rmdir, 'repo/hooks')):
        while os.path.exists(what):
            try:
                remove(what)
            except PermissionError:
                pass
left
""".replace("ROUNDS", str(rounds(3000)))
            )
            assert o.value == "set()", o
    finally:
        ended.set()
        other.join()


LONG_PATH = """
import os
def go_deep():
    for _ in range(21):
        os.makedirs('d' * 200, exist_ok=True)
        os.chdir('d' * 200)
"""


def test_modes_of_files_with_long_paths(client: Client, workspace: Path) -> None:
    """A path of more than 4095 bytes is none that a rule can be applied to."""
    make = "go_deep()\nos.makedirs('.git/hooks')\nopen('.git/hooks/idle', 'w').close()"
    look = "go_deep()\nprint(os.stat('.git/hooks/idle').st_mode & 0o111)"
    subprocess.run([sys.executable, "-c", LONG_PATH + make], cwd=workspace, check=True)
    with client.session(workspace=workspace) as s:
        s.run(LONG_PATH + "go_deep()")
        out = s.run("os.chmod('.git/hooks/idle', 0o755)")
        assert out.error and "File name too long" in out.error["evalue"]
    assert subprocess.check_output([sys.executable, "-c", LONG_PATH + look], cwd=workspace, text=True) == "0\n"
