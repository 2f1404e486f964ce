"""Repositories below the top of a write root: their settings stay, and what those name cannot be written either."""

import os
import subprocess
from pathlib import Path

import pytest

from .conftest import Box

PLAIN = '[core]\n\trepositoryformatversion = 0\n[remote "origin"]\n\turl = https://example.org/theirs.git\n'
FORGED = PLAIN.replace("theirs", "forged")


def git(box: Box, *args: str | Path) -> None:
    subprocess.run([*box.as_user, "git", *map(str, args)], check=True, cwd=box.work, env=box.env)


def repository(box: Box, path: str, *args: str, text: str | None = PLAIN) -> Path:
    """One of the user's; the file of its settings."""
    git(box, "init", "-q", *args, path)
    config = box.work / path / ("config" if args else ".git/config")
    config.unlink()
    return config if text is None else box.file(config, text)


@pytest.mark.parametrize(
    "replace",
    [
        "rm -f $C && mv config.lock $C",
        "cp config.lock $D/config.lock && mv $D/config.lock $C",
        "rm -f $C; cp config.lock $D/config.lock && mv $D/config.lock $C",
        "rm -rf $D; git init -q $R && git -C $R remote add origin https://example.org/forged.git",
        "mv $C gone",
        "chmod 600 $C",
        "ln -f config.lock $C",
        "ln $C alias; echo pwn > alias",
        "mv lib moved; cp config.lock moved${D#lib}/config",
        "git -C $R config core.fsmonitor false",
    ],
)
@pytest.mark.parametrize("where", ["lib/one", "lib/one/two/three/four/five"])
def test_plain_settings_stay(box: Box, where: str, replace: str) -> None:
    """They have nothing that runs a program, but they say where to fetch from and push to."""
    config = repository(box, where)
    before = config.stat()
    box.file("config.lock", FORGED)
    box.sh(f"R={where} D={where}/.git C={where}/.git/config; {replace}")
    after = config.stat()
    assert config.read_text() == PLAIN
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)


@pytest.mark.parametrize(
    "replace",
    [
        "rm -f $R/HEAD && echo '[core]' > $R/config",
        "mv $R/HEAD $R/OLD && echo '[core]' > $R/config",
        "rm -f $R/config; cp config.lock $R/config.lock && mv $R/config.lock $R/config",
        "rm -rf $R; git init -q --bare --template= $R",
        "mv -T $R other && mkdir $R",
    ],
)
def test_settings_of_a_repository_without_a_work_tree_stay(box: Box, replace: str) -> None:
    config = repository(box, "mirrors/store", "--bare", text=PLAIN.replace("0\n", "0\n\tbare = true\n"))
    before = config.read_text()
    box.file("config.lock", FORGED)
    box.sh(f"R=mirrors/store; {replace}")
    assert config.read_text() == before
    assert (config.parent / "HEAD").exists()


def test_settings_that_are_not_there_are_not_made(box: Box) -> None:
    config = repository(box, "lib/old", text=None)
    assert box.sh("git -C lib/old remote add origin https://example.org/forged.git").returncode != 0
    box.file("lib/old/.git/config.lock", FORGED)
    rename = "import os; os.rename('lib/old/.git/config.lock', 'lib/old/.git/config')"
    assert box.run("python3", "-c", rename, settings=Box.settings()).returncode != 0
    assert not config.exists()


def test_a_link_to_hooks_stays(box: Box) -> None:
    repository(box, "lib/linked")
    hooks = box.work / "lib/linked/.git/hooks"
    subprocess.run(["rm", "-rf", hooks], check=True)
    box.link(hooks, "../../shared")
    assert box.sh("rm lib/linked/.git/hooks").returncode != 0
    assert hooks.is_symlink()


def test_repositories_of_its_own(box: Box) -> None:
    """Made, used, removed and made again, at any depth; also more than one after the other."""
    p = box.sh(
        "set -e; export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e@x GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e@x\n"
        "for i in 1 2; do\n"
        "git init -q a/b/own; git -C a/b/own commit -q --allow-empty -m first\n"
        "test true = $(git -C a/b/own config core.filemode)\n"
        "git clone -q a/b/own a/copy; git clone -q --bare --template= a/b/own a/bare.git\n"
        "git -C a/copy remote set-url origin https://example.org/x.git\n"
        "git -C a/copy config user.name other; git -C a/copy checkout -q -b more --track origin/HEAD 2>&1 || :\n"
        "rm -rf a\n"
        "done"
    )
    assert (p.returncode, p.stderr) == (0, ""), p.stdout
    assert not (box.work / "a").exists()
    for key, value in (("core.hooksPath", "/tmp"), ("remote.o.url", "ext::sh -c false")):
        assert box.sh(f"git init -q b; git -C b config {key} '{value}'").returncode != 0, key


def test_what_their_settings_name_stays(box: Box) -> None:
    for name in ("lib/x/one/tools/watch.sh", "lib/x/one/filters/clean.py", "shared/more.cfg", "mirrors/store/bin/up.sh"):
        box.file(name)
    repository(
        box,
        "lib/x/one",
        text="[core]\n\tfsmonitor = tools/watch.sh\n\thooksPath = ci/hooks\n"
        f'[filter "f"]\n\tclean = python3 filters/clean.py %f\n[include]\n\tpath = {box.work}/shared/more.cfg\n'
        "[include]\n\tpath = ../later.cfg\n",
    )
    repository(box, "mirrors/store", "--bare", text="[remote \"o\"]\n\tuploadpack = bin/up.sh\n")
    # A submodule's work tree, whose repository is elsewhere.
    repository(box, "super/modules/sub", "--bare", text="[core]\n\thooksPath = my/hooks\n")
    box.file("lib/sub/.git", "gitdir: ../../super/modules/sub\n")
    denied = [
        "lib/x/one/tools/watch.sh",
        "lib/x/one/ci/hooks/pre-commit",
        "lib/x/one/filters/clean.py",
        "shared/more.cfg",
        "lib/x/one/later.cfg",
        "mirrors/store/bin/up.sh",
        "lib/sub/my/hooks/post-checkout",
    ]
    for name in denied:
        before = (box.work / name).read_text() if (box.work / name).exists() else None
        assert box.sh(f"mkdir -p $(dirname {name}); echo pwn > {name}").returncode != 0, name
        box.sh(f"echo pwn > new; mv -f new {name}; rm -f {name}; D=$(dirname {name}); mv -T $D moved; mkdir -p $D; echo pwn > {name}")
        assert ((box.work / name).read_text() if before is not None else None) == before, name
        assert before is not None or not (box.work / name).exists(), name
    for name in ("lib/x/one/tools/other.sh", "lib/x/one/hooks/ordinary", "shared/other.cfg", "lib/sub/ordinary"):
        assert box.sh(f"mkdir -p $(dirname {name}); echo fine > {name}").returncode == 0, name
    assert box.sh("echo fine > lib/x/one/tools/watch.sh", {"allowGitConfig": True}).returncode == 0


def test_denied_settings_that_are_not_there_are_not_made(box: Box) -> None:
    """Not by git's own way either, and the refusal names the setting."""
    config = repository(box, "kept/repo", text=None)
    p = box.sh(
        "git -C kept/repo remote add o https://example.org/x.git || git init -q kept/other",
        {"denyWrite": ["./kept/repo/.git/config"]},
    )
    assert p.returncode == 0, p.stderr  # of the other, which nobody denies
    assert "filesystem.denyWrite.0 names it" in p.stderr
    assert not config.exists()
    assert (box.work / "kept/other/.git/config").exists()


PICK = """
set -e
export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e@x GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e@x
git init -q own; cd own
for i in 1 2 3 4; do echo $i > f; git add f; git commit -qm c$i; done
git revert --no-edit HEAD HEAD~1 > /dev/null
git cherry-pick -x HEAD~3 HEAD~5 > /dev/null 2>&1 || true
test -s .git/sequencer/opts
git cherry-pick --abort
test ! -e .git/sequencer
"""


def test_several_commits_are_picked_and_reverted(box: Box) -> None:
    """Git keeps their options in .git/sequencer/opts: plain ones can be written."""
    p = box.sh(PICK)
    assert (p.returncode, p.stderr) == (0, "")


@pytest.mark.parametrize(
    "put",
    [
        "mkdir -p $G/sequencer; cp evil $G/sequencer/opts",
        "mkdir -p $G/sequencer; cp evil $G/sequencer/opts.lock; mv $G/sequencer/opts.lock $G/sequencer/opts",
        "mkdir -p $G/sequencer; ln evil $G/sequencer/opts",
        "mkdir -p $G/sequencer; ln -s ../../evil $G/sequencer/opts",
        "mkdir made; cp evil made/opts; rm -rf $G/sequencer; mv made $G/sequencer",
        "mkdir made; cp evil made/opts; rm -rf $G/sequencer; ln -s ../made $G/sequencer",
        "mkdir -p $G/seq; cp evil $G/seq/opts; mv $G/seq $G/sequencer",
        "mkdir -p $G/worktrees/w/sequencer; cp evil $G/worktrees/w/sequencer/opts",
        "mkdir -p $G/Sequencer; cp evil $G/Sequencer/OPTS",
    ],
)
@pytest.mark.parametrize("user", [True, False], ids=["of-the-user", "of-its-own"])
def test_options_that_run_a_program_at_continue(box: Box, put: str, user: bool) -> None:
    """Its "strategy" names a program, which `git cherry-pick --continue` runs."""
    if user:
        git(box, "init", "-q", "own")
    box.file("evil", "[options]\n\tstrategy = x/evil\n")
    p = box.sh(f"git init -q own; G=own/.git; {put}")
    assert p.returncode != 0
    found = [f for f in (box.work / "own/.git").rglob("*") if f.name.lower() == "opts" and "equencer" in f.parent.name]
    assert found == []
    assert not (box.work / "own/.git/sequencer/opts").exists()


def test_options_of_the_users_own_pick(box: Box) -> None:
    """They stay as they are, but the pick can be given up, which removes them."""
    git(box, "init", "-q", "own")
    mine = box.file("own/.git/sequencer/opts", "[options]\n\tedit = false\n")
    box.file("own/.git/sequencer/opts.lock", "[options]\n\tedit = true\n")
    for change in ("mv own/.git/sequencer/opts.lock own/.git/sequencer/opts", "echo x > own/.git/sequencer/opts"):
        assert box.sh(change).returncode != 0
        assert "edit = false" in mine.read_text()
    assert box.sh("rm -rf own/.git/sequencer").returncode == 0
    assert not mine.parent.exists()


IDENTITY = "export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e@x GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e@x\n"


def needs_marks(box: Box) -> None:
    """What init has made is marked by an extended attribute."""
    probe = box.file("probe", "")
    try:
        os.setxattr(probe, "user.test", b"1")
    except OSError as e:
        pytest.skip(f"no extended attributes in {box.work}: {e}")
    probe.unlink()


def test_a_later_sandbox_removes_what_an_earlier_one_cloned(box: Box) -> None:
    needs_marks(box)
    p = box.sh(
        f"set -e\n{IDENTITY}git init -q own; git -C own commit -q --allow-empty -m m; git clone -q own a/copy\n"
        "git clone -q --bare --template= own bare.git; git -C own worktree add -q ../tree"
    )
    assert (p.returncode, p.stderr) == (0, "")
    # Changed is none of them by a later sandbox.
    assert box.sh("git -C a/copy remote set-url origin https://example.org/forged.git").returncode != 0
    assert box.sh("git -C a/copy config core.pager less").returncode != 0
    p = box.sh("rm -r own a bare.git tree")
    assert (p.returncode, p.stderr) == (0, "")
    assert sorted(x.name for x in box.work.iterdir() if not x.name.startswith(".")) == []


def test_a_repository_of_the_user_is_not_removed(box: Box) -> None:
    """Nor is one whose settings the user has changed since."""
    needs_marks(box)
    config = repository(box, "mine")
    assert box.sh("git init -q own").returncode == 0
    git(box, "-C", "own", "remote", "add", "origin", "https://example.org/mine.git")
    assert box.sh("git init -q edited; git init -q touched").returncode == 0
    for name, text in (("edited", "[user]\n\tname = mine\n"), ("touched", "")):
        with (box.work / name / ".git/config").open("a") as f:  # in place, as editors may
            f.write(text)
    # Times are no evidence: cells may set them by a descriptor.
    box.sh("python3 -c \"import os; os.utime(os.open('edited/.git/config', os.O_RDONLY), ns=(0, 0))\"")
    assert box.sh("rm -rf mine own edited").returncode != 0
    assert config.read_text() == PLAIN
    for name in ("own", "edited"):
        assert "mine" in (box.work / name / ".git/config").read_text()
    assert box.sh("rm -rf touched").returncode == 0


def test_work_trees(box: Box) -> None:
    """Of the user's repository and of one of its own; their files name it, and git outside uses them."""
    git(box, "init", "-q", "mine")
    p = box.sh(
        f"set -e\n{IDENTITY}git -C mine commit -q --allow-empty -m m; git clone -q mine own\n"
        "for r in mine own; do git -C $r worktree add -q ../$r-tree -b topic; echo x > $r-tree/f; git -C $r-tree add f\n"
        "git -C $r-tree commit -qm more; git -C $r worktree add -q --detach deep/in/it; done"
    )
    assert (p.returncode, p.stderr) == (0, "")
    for name in ("mine", "own"):
        assert (box.work / f"{name}-tree/.git").read_text() == f"gitdir: {box.work}/{name}/.git/worktrees/{name}-tree\n"
        assert (box.work / f"{name}/.git/worktrees/{name}-tree/commondir").read_text() == "../..\n"
        git(box, "-C", f"{name}-tree", "diff", "--exit-code", "HEAD")


# The folder of a new work tree, up to where its own file is made: $G is the repository, tree the work tree.
BEGUN = "G=$PWD/mine/.git; mkdir -p $G/worktrees/t tree; echo $PWD/tree/.git > $G/worktrees/t/gitdir; "


@pytest.mark.parametrize(
    ("put", "named"),
    [
        ("echo 'gitdir: '$PWD/evil > tree/.git", True),  # what is written goes nowhere
        ("python3 -c \"import os; f = os.open('tree/.git', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'gitdir: /x', 0)\"", True),
        ("echo 'gitdir: '$PWD/evil > file; mv file tree/.git", False),
        ("echo 'gitdir: '$PWD/evil > file; ln file tree/.git", False),
        ("ln -s ../evil tree/.git", False),
        ("mv evil tree/.git", False),
        ("echo x > tree/.git; echo 'gitdir: '$PWD/evil > tree/.git", True),
        ("echo x > tree/.git; echo 'gitdir: '$PWD/evil >> tree/.git", True),
        ("mkdir other; echo 'gitdir: '$PWD/evil > other/.git", False),
        ("echo $PWD/evil/.git > $G/worktrees/t/gitdir; echo x > tree/.git", False),
        ("rm $G/worktrees/t/gitdir; ln -s /etc/hostname $G/worktrees/t/gitdir; echo x > tree/.git", False),
        ("mv $G/worktrees/t $G/worktrees/u; echo x > tree/.git", False),
    ],
)
def test_the_file_of_a_work_tree_names_only_its_repository(box: Box, put: str, named: bool) -> None:
    git(box, "init", "-q", "mine")
    box.sh("mkdir -p evil/objects evil/refs")
    box.sh(BEGUN + put)
    file = box.work / "tree/.git"
    expected = f"gitdir: {box.work}/mine/.git/worktrees/t\n"
    assert not file.is_symlink()
    assert (file.read_text() if file.exists() else None) in ((expected,) if named else (None, expected))
    assert not (box.work / "other/.git").exists()


@pytest.mark.parametrize(
    "put",
    [
        "echo /x > $G/worktrees/t/commondir",
        "echo /x > f; mv f $G/worktrees/t/commondir",
        "echo x > $G/worktrees/t/commondir; echo /x > $G/worktrees/t/commondir",
        "echo /x > $G/commondir",
        "mkdir -p $G/modules/worktrees/t; echo /x > $G/modules/worktrees/t/commondir",
    ],
)
def test_the_common_folder_of_a_work_tree(box: Box, put: str) -> None:
    git(box, "init", "-q", "mine")
    box.sh(BEGUN + put)
    found = {f.read_text() for f in (box.work / "mine/.git").rglob("commondir")}
    assert found <= {"../..\n"}


@pytest.mark.parametrize(
    "setting", ["core.hooksPath=ci/hooks", "filter.x.clean=./clean.sh", "core.fsmonitor=./watch", "include.path=more"]
)
def test_no_work_tree_of_a_repository_whose_settings_name_files(box: Box, setting: str) -> None:
    """They would be in the new work tree, where nothing protects them."""
    git(box, "init", "-q", "mine")
    git(box, "-C", "mine", "config", *setting.split("="))
    git(box, "-C", "mine", "-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "--allow-empty", "-m", "m")
    p = box.sh("git -C mine worktree add -q ../tree")
    assert p.returncode != 0
    assert not (box.work / "tree/.git").exists()


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("[core]\n\thooksPath = ci/hk\n", "ci/hk/pre-commit"),
        ("[core]\n\tfsmonitor = ./lint/watch\n", "lint/watch"),
        ("[core]\n\tfsmonitor = sh lint/watch\n", "lint/watch"),
    ],
)
def test_files_in_work_trees_that_the_users_settings_name(box: Box, setting: str, name: str) -> None:
    """They are protected at any depth, so that work trees can be made."""
    git(box, "init", "-q", "mine")
    git(box, "-C", "mine", "-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "--allow-empty", "-m", "m")
    (box.home / ".gitconfig").write_text(setting)
    p = box.sh("git -C mine -c core.fsmonitor=false worktree add -q ../a/tree")
    assert p.returncode == 0, p.stderr
    for top in ("a/tree", "a/plain"):
        assert box.sh(f"mkdir -p $(dirname {top}/{name}); echo pwn > {top}/{name}").returncode != 0
        assert not (box.work / top / name).exists()


def test_a_denied_pattern_holds_for_new_repositories(box: Box) -> None:
    """Also for the rename by which git replaces its settings."""
    p = box.sh("git init -q own; git -C own remote add o https://example.org/x.git", {"denyWrite": ["**/own/.git/config"]})
    assert p.returncode != 0
    assert not (box.work / "own/.git/config").exists()


def test_denied_files_of_work_trees(box: Box) -> None:
    git(box, "init", "-q", "mine")
    git(box, "-C", "mine", "-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "--allow-empty", "-m", "m")
    assert box.sh("git -C mine worktree add -q ../tree", {"denyWrite": ["./tree/.git"]}).returncode != 0
    assert not (box.work / "tree/.git").exists()
