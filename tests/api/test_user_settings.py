"""Files that the user's own settings name in the workspace: programs outside obey them, so cells cannot write them."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import web
from cellgate_api import Client

SETTINGS = web.settings()
IDENTITY = ["-c", "user.name=n", "-c", "user.email=e@x"]
COMMIT = ["git", "-c", "core.fsmonitor=false", *IDENTITY, "commit", "-q", "--allow-empty", "-m", "m"]
KERNELS = pytest.mark.parametrize("settings", [None, SETTINGS], ids=["default", "settings"])

PUT = """
import os
def put(path):
    try:
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        with open(path, 'w') as f:
            return f.write('pwn') > 0
    except OSError as e:
        return e.strerror
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("user") / "home"


@pytest.fixture
def home(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's home folder, without variables that name other git settings."""
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_COUNT"):
        monkeypatch.delenv(name, raising=False)
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[Client]:
    """Of this user: a supervisor takes the home folder from the program that starts it."""
    with pytest.MonkeyPatch.context() as m:
        m.setenv("HOME", str(place))
        with Client(log_level=0) as c:
            yield c


def refused(value: str | None) -> bool:
    return value in ("'Permission denied'", "'Read-only file system'")


@KERNELS
def test_hooks_of_all_repositories(client: Client, home: Path, workspace: Path, settings: dict | None) -> None:
    """The first kernel, the next one, and one that was started in advance; git outside runs nothing of a cell's."""
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    (home / ".gitconfig").write_text(f"[core]\n\thooksPath = {workspace}/shared/hooks\n")
    for _ in range(3):
        with client.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
            for _ in range(2):
                s.run(PUT)
                assert refused(s.run("put('shared/hooks/pre-commit')").value)
                assert [s.run(f"put({name!r})").value for name in ("other", "hooks/pre-commit")] == ["True", "True"]
                s.reset()
    subprocess.run(COMMIT, cwd=workspace, check=True)
    assert not (workspace / "shared/hooks").exists()


@KERNELS
def test_an_mcp_server_in_such_a_folder(client: Client, home: Path, workspace: Path, settings: dict | None) -> None:
    """That the user's settings protect it already must not leave it without protection of its own."""
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    folder = workspace / "shared/hooks"
    folder.mkdir(parents=True)
    server = folder / "server.py"
    shutil.copy(Path(__file__).parent / "echo_server.py", server)
    (home / ".gitconfig").write_text(f"[core]\n\thooksPath = {folder}\n")
    before = server.read_bytes()
    with client.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
        s.add_servers({"echo": {"command": "/usr/bin/python3", "args": [str(server)]}})
        s.run(PUT)
        assert refused(s.run(f"put({str(server)!r})").value)
        assert refused(s.run(f"put({str(folder / 'json.py')!r})").value)
        assert s.run("put('ordinary')").value == "True"
    assert server.read_bytes() == before
    assert os.listdir(folder) == ["server.py"]


def test_an_mcp_server_with_other_git_settings(client: Client, tmp_path: Path, home: Path, workspace: Path) -> None:
    """Git in the server follows its variables: what these settings name is protected as well."""
    other = tmp_path / "other"
    (other / ".config/git").mkdir(parents=True)
    (other / ".gitconfig").write_text(f"[include]\n\tpath = {workspace}/of-home.cfg\n")
    (tmp_path / "global").write_text(f"[core]\n\thooksPath = {workspace}/of-global\n")
    server = {"command": "/usr/bin/python3", "args": [str(Path(__file__).parent / "echo_server.py")]}
    with client.session(workspace=workspace) as s:
        s.add_servers(
            {
                "one": {**server, "env": {"HOME": str(other)}},
                "two": {**server, "env": {"GIT_CONFIG_GLOBAL": str(tmp_path / "global")}},
            }
        )
        s.run(PUT)
        for name in ("of-home.cfg", "of-global/pre-commit"):
            assert refused(s.run(f"put({name!r})").value), name
        assert s.run("put('ordinary')").value == "True"


# Files (a name that begins with "~/" is in the home folder, others are elsewhere outside of the workspace), variables,
# and whether git follows them in the workspace: conditions of includes count as true. HOOKS is the folder.
HOOKS = "[core]\n\thooksPath = HOOKS\n"
CHAINS: dict[str, tuple[dict[str, str], dict[str, str], bool]] = {
    "include": ({"~/.gitconfig": "[include]\n\tpath = ~/more/git.cfg\n", "~/more/git.cfg": HOOKS}, {}, True),
    "include-relative": ({"~/.gitconfig": "[include] path = more/a.cfg\n", "~/more/a.cfg": "[include]\npath=../b\n", "~/b": HOOKS}, {}, True),
    "include-if": ({"~/.gitconfig": '[includeIf "gitdir:**"]\n\tpath = ~/work.cfg\n', "~/work.cfg": HOOKS}, {}, True),
    "include-if-bracket": ({"~/.gitconfig": '[includeIf "gitdir:[a-z/]**"] path = "~/work.cfg" ; mine\n', "~/work.cfg": HOOKS}, {}, False),
    "include-if-false": ({"~/.gitconfig": '[includeIf "onbranch:other"]\n\tpath = ~/work.cfg\n', "~/work.cfg": HOOKS}, {}, False),
    "continued": ({"~/.gitconfig": "[include]\n\tpath = ~/wo\\\nrk.cfg\n", "~/work.cfg": HOOKS}, {}, True),
    "after-a-comment": ({"~/.gitconfig": "[core] ; of \\\n\thooksPath = HOOKS\n"}, {}, True),
    "byte-order-mark": ({"~/.gitconfig": "\ufeff[include]\n\tpath = ~/work.cfg\n", "~/work.cfg": HOOKS}, {}, True),
    "long": ({"~/.gitconfig": "# comment\n" * 20000 + HOOKS}, {}, True),
    "default-folder": ({"~/.config/git/config": HOOKS}, {}, True),
    "xdg": ({"xdg/git/config": HOOKS}, {"XDG_CONFIG_HOME": "xdg"}, True),
    "global": ({"mine.cfg": "[include]\n\tpath = more.cfg\n", "more.cfg": HOOKS}, {"GIT_CONFIG_GLOBAL": "mine.cfg"}, True),
    "system": ({"sys.cfg": HOOKS}, {"GIT_CONFIG_SYSTEM": "sys.cfg"}, True),
    "replaced": ({"~/.gitconfig": HOOKS, "mine.cfg": ""}, {"GIT_CONFIG_GLOBAL": "mine.cfg"}, False),
    "variable": ({}, {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "HOOKS"}, True),
    "variable-include": ({"a.cfg": HOOKS}, {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "include.path", "GIT_CONFIG_VALUE_0": "a.cfg"}, True),
}  # fmt: skip


def chain(name: str, tmp_path: Path, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Makes the files, sets the variables, and asks git: whether it follows them in the workspace."""
    files, variables, followed = CHAINS[name]
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    for file, text in files.items():
        path = home / file[2:] if file.startswith("~/") else tmp_path / "elsewhere" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("HOOKS", str(workspace / "hooks-of-mine")))
    for variable, value in variables.items():
        if value in ("xdg", "mine.cfg", "sys.cfg", "a.cfg"):
            value = str(tmp_path / "elsewhere" / value)
        monkeypatch.setenv(variable, value.replace("HOOKS", str(workspace / "hooks-of-mine")))
    p = subprocess.run(["git", "config", "core.hooksPath"], cwd=workspace, capture_output=True, text=True)
    assert (p.stdout == f"{workspace}/hooks-of-mine\n") == followed, p
    return followed


@pytest.mark.parametrize("name", CHAINS)
def test_settings_are_followed_as_git_does(
    client: Client, name: str, tmp_path: Path, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(name, tmp_path, home, workspace, monkeypatch)
    with client.session(workspace=workspace) as s:
        s.run(PUT)
        assert refused(s.run("put('hooks-of-mine/pre-commit')").value)
        assert s.run("put('ordinary/pre-commit')").value == "True"
    assert not (workspace / "hooks-of-mine").exists()


def command(prefix: Path, workspace: Path, text: str, **filesystem: list[str]) -> subprocess.CompletedProcess[str]:
    file = workspace.parent / "settings.json"
    file.write_text(json.dumps({**SETTINGS, "filesystem": {**SETTINGS["filesystem"], **filesystem}}))
    argv = [prefix / "bin/cellgate", "sandbox", "--settings", file, "-c", text]
    return subprocess.run(argv, cwd=workspace, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", CHAINS)
def test_settings_are_followed_in_commands(
    prefix: Path, name: str, tmp_path: Path, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(name, tmp_path, home, workspace, monkeypatch)
    attack = "mkdir -p hooks-of-mine; echo pwn > hooks-of-mine/pre-commit && exit 3"
    assert command(prefix, workspace, f"{attack}; mkdir -p ordinary; echo fine > ordinary/pre-commit").returncode == 0
    assert not (workspace / "hooks-of-mine").exists()


def test_files_that_settings_name(client: Client, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Included files, programs and files of variables in the workspace, whether they exist yet or not."""
    workspace = workspace.parent / "plain"
    workspace.mkdir()
    (workspace / "filters").mkdir()
    (workspace / "filters/clean.py").write_text("")
    (home / ".gitconfig").write_text(
        f"""[include]
            path = {workspace}/not-yet.cfg
        [core]
            sshCommand = {workspace}/tools/ssh -v
            editor = \\"{workspace}/tools/my editor\\" --wait
            attributesFile = {workspace}/attributes
        [pager]
            log = {workspace}/pagers/log --color
        [alias]
            s = !{workspace}/alias.sh
            plain = status {workspace}/plain
        [interactive]
            diffFilter = {workspace}/diff-filter
        [filter "x"]
            clean = python3 {workspace}/filters/clean.py
        [init]
            templateDir = {workspace}/template
        [commit]
            template = {workspace}/message
        """
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(workspace / "mine/global"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workspace / "xdg"))
    denied = {
        "not-yet.cfg", "tools/ssh", "tools/my editor", "attributes", "pagers/log", "alias.sh", "diff-filter", "filters/clean.py", "template/hooks/post-checkout",
        "mine/global", "xdg/git/config",
    }  # fmt: skip
    with client.session(workspace=workspace) as s:
        s.run(PUT)
        for name in denied:
            assert refused(s.run(f"put({name!r})").value), name
        for name in ("plain", "message", "other.cfg", "filters/other.py"):
            assert s.run(f"put({name!r})").value == "True", name
    assert {str(p.relative_to(workspace)) for p in workspace.rglob("*") if p.is_file()} & denied == {"filters/clean.py"}


@KERNELS
def test_hooks_relative_to_each_repository(client: Client, home: Path, workspace: Path, settings: dict | None) -> None:
    """Also in repositories that cells make, whose hooks git outside would run."""
    (home / ".gitconfig").write_text(
        "[core]\n\thooksPath = ./my/../my/hooks\n\tfsmonitor = sh lint/watch.sh\n[alias]\n\tl = !git log origin/main\n"
    )
    for repository in ("one", "two/deeper"):
        subprocess.run(["git", "init", "-q", repository], cwd=workspace, check=True)
    (workspace / "files").mkdir()
    (workspace / "files/pre-commit").write_text("#!/bin/sh\ntouch RAN\n")
    (workspace / "files/pre-commit").chmod(0o755)
    with client.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
        s.run(PUT)
        s.run("import subprocess, shutil; subprocess.run(['git', 'init', '-q', 'deep/er/new'], check=True)")
        for repository in ("one", "two/deeper", "deep/er/new"):
            assert refused(s.run(f"put('{repository}/my/hooks/pre-commit')").value), repository
            assert refused(s.run(f"put('{repository}/lint/watch.sh')").value), repository
            assert s.run(f"put('{repository}/my/other')").value == "True"
            assert s.run(f"put('{repository}/origin/main')").value == "True"  # of an alias
        for way in (
            "os.symlink('../../../files', 'deep/er/new/my/hooks')",
            "os.rename('files', 'deep/er/new/my/hooks')",
            "os.makedirs('deep/er/next/hooks'); os.rename('deep/er/next', 'deep/er/new/my2'); os.rename('deep/er/new/my2', 'two/my')",
            "os.makedirs('t/hooks'); shutil.copy('files/pre-commit', 't/hooks'); os.symlink('../../../t', 'deep/er/new/my')",
        ):
            s.run(
                "os.makedirs('deep/er/new/my', exist_ok=True)"
                if "hooks')" in way
                else "shutil.rmtree('deep/er/new/my')"
            )
            assert s.run(way).status == "error", way
    subprocess.run(COMMIT, cwd=workspace / "deep/er/new", check=True)
    assert list(workspace.rglob("RAN")) == []


def test_a_refusal_names_the_relative_setting(prefix: Path, home: Path, workspace: Path) -> None:
    (home / ".gitconfig").write_text("[core]\n\thooksPath = ci/hooks\n")
    p = command(prefix, workspace, "mkdir -p new/ci; mkdir new/ci/hooks")
    assert p.returncode != 0
    assert 'add "ci/hooks" to cellgate.writableNames' in p.stderr
    assert "relative to each repository" in p.stderr
    file = workspace.parent / "opened.json"
    file.write_text(json.dumps({**SETTINGS, "cellgate": {"writableNames": ["ci/hooks"]}}))
    argv = [prefix / "bin/cellgate", "sandbox", "--settings", file, "-c", "mkdir -p new/ci/hooks"]
    assert subprocess.run(argv, cwd=workspace, timeout=60).returncode == 0


@KERNELS
def test_a_repository_elsewhere_that_a_variable_names(
    client: Client, home: Path, workspace: Path, settings: dict | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT_DIR and GIT_WORK_TREE, as for settings files in a home folder: hooks are named relative to the work tree."""
    repository = home / ".dotfiles"
    subprocess.run(["git", "init", "-q", "--bare", repository], check=True)
    with (repository / "config").open("a") as f:
        f.write('[core]\n\thooksPath = ci/hooks\n\tfsmonitor = "./tools/watch"\n')
    monkeypatch.setenv("GIT_DIR", str(repository))
    monkeypatch.setenv("GIT_WORK_TREE", str(workspace))
    with client.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
        s.run(PUT)
        for name in ("ci/hooks/pre-commit", "tools/watch"):
            assert refused(s.run(f"put({name!r})").value), name
        assert s.run("put('tools/other')").value == "True"


NAMED_BY_VARIABLES = {
    "GIT_SSH_COMMAND": "WS/tools/ssh -v",
    "GIT_SSH": "WS/tools/plain-ssh",
    "GIT_ASKPASS": "WS/tools/ask",
    "GIT_EXTERNAL_DIFF": "WS/tools/diff",
    "GIT_EDITOR": "python3 WS/tools/edit.py",
    "VISUAL": "'WS/tools/my editor' --wait",
    "EDITOR": "tools/relative",
    "GIT_PAGER": "WS/tools/git-pager | cat",
    "PAGER": "WS/tools/pager",
    "LESSOPEN": "|WS/tools/open %s",
    "GIT_TEMPLATE_DIR": "WS/template",
    "GIT_EXEC_PATH": "WS/git-core",
    "BASH_ENV": "WS/env.sh",
    "ENV": "plain.sh",
    "PYTHONSTARTUP": "WS/startup.py",
    "NODE_OPTIONS": "--no-warnings --require=WS/tools/before.js",
    "LD_PRELOAD": "libnothing.so:WS/tools/preload.so WS/tools/second.so",
    "LD_AUDIT": "WS/tools/audit.so:/nowhere.so",
    "PERL5OPT": "-w -IWS/perl -Mlib=/nowhere,WS/perl-lib",
    "RUBYOPT": "-W0 -rWS/tools/before.rb -r./tools/relative.rb",
    "JAVA_TOOL_OPTIONS": "-Xshare:off -javaagent:WS/tools/agent.jar=x -Ddata=WS/tools/property",
    "JDK_JAVA_OPTIONS": "@WS/tools/arguments",
    "_JAVA_OPTIONS": "-agentpath:WS/tools/agent.so",
    "GIT_CONFIG_GLOBAL": "relative.cfg",
}


def test_programs_that_variables_name(
    prefix: Path, client: Client, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the program that requests the sandbox; in commands and in kernels."""
    workspace = workspace.parent / "plain"
    workspace.mkdir()
    (workspace / "tools").mkdir()
    (workspace / "tools/edit.py").write_text("")
    for name, value in NAMED_BY_VARIABLES.items():
        monkeypatch.setenv(name, value.replace("WS", str(workspace)))
    denied = [
        "tools/ssh", "tools/plain-ssh", "tools/ask", "tools/diff", "tools/edit.py", "tools/my editor", "tools/relative", "deep/tools/relative",
        "tools/git-pager", "tools/pager", "tools/open", "template/hooks/post-checkout", "git-core/git-log", "env.sh", "startup.py", "tools/before.js", "tools/preload.so", "tools/second.so", "tools/audit.so",
        "perl/Before.pm", "perl-lib/Before.pm", "tools/before.rb", "tools/relative.rb", "deep/tools/relative.rb",
        "tools/agent.jar", "tools/arguments", "tools/agent.so",
        "relative.cfg", "deep/relative.cfg", "plain.sh", "deep/plain.sh",
    ]  # fmt: skip
    for settings in (None, SETTINGS):
        with client.session(workspace=workspace, **({"settings": settings} if settings else {})) as s:
            s.run(PUT)
            for name in denied:
                assert refused(s.run(f"put({name!r})").value), name
            for name in ("tools/other", "deep/tools/other", "other.cfg", "tools/property"):
                assert s.run(f"put({name!r})").value == "True", name
    written = "; ".join(f"mkdir -p \"$(dirname '{name}')\"; echo pwn > '{name}' && echo '{name}'" for name in denied)
    assert command(prefix, workspace, written).stdout == ""


def test_an_address_and_a_work_tree_elsewhere(client: Client, home: Path, workspace: Path) -> None:
    """git instaweb starts a program; a repository may name its work tree."""
    workspace = workspace.parent / "plain"
    workspace.mkdir()
    (home / ".gitconfig").write_text(f"[instaweb]\n\thttpd = {workspace}/tools/httpd -f\n")
    subprocess.run(["git", "init", "-q", "--bare", "store"], cwd=workspace, check=True)
    with (workspace / "store/config").open("a") as f:
        f.write("[core]\n\tbare = false\n\thooksPath = ci/hooks\n\tworktree = ../tree\n")
    (workspace / "tree").mkdir()
    with client.session(workspace=workspace) as s:
        s.run(PUT)
        assert refused(s.run("put('tools/httpd')").value)
        assert refused(s.run("put('tree/ci/hooks/pre-commit')").value)
        assert s.run("put('tree/ci/other')").value == "True"


def test_settings_that_cannot_be_read_whole(client: Client, home: Path, workspace: Path) -> None:
    """Rather no kernel than one that may write what the rest names."""
    with (home / ".gitconfig").open("w") as f:
        f.truncate(64 << 20)
    with pytest.raises(Exception, match=r"\.gitconfig"):
        client.session(workspace=workspace)
