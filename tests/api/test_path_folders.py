"""Folders of the user's PATH in the workspace: no cell and no command puts a program there."""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import web
from cellgate_api import CellgateError, Client

SETTINGS = web.settings()

# How a program "planted" gets into the folder $F of PATH (by the workspace); $T is the first folder of that path.
EVERYWHERE = [
    "mkdir -p $F; cp evil $F/planted",
    "mkdir -p $F; mv evil $F/planted",
    "mkdir -p $F; ln evil $F/planted",
    "mkdir -p $F; ln -s $PWD/evil $F/planted",
    "mkdir -p $F; echo x > $F/planted; chmod 755 $F/planted",
    "mkdir -p aside/$F; cp evil aside/$F/planted; rm -rf $T; mv aside/$T $T",
    "mkdir -p aside/$F; cp evil aside/$F/planted; mv $T old; mv aside/$T $T",
    "mkdir -p aside/$F; cp evil aside/$F/planted; rm -rf $T; ln -s aside/$T $T",
    "mkdir -p aside/$F; cp evil aside/$F/planted; rm -rf $F; ln -s $PWD/aside/$F $F",
    "mkdir -p aside; cp evil aside/planted; rmdir $F; mv aside $F",
    "mkdir -p aside; cp evil aside/planted; python3 -c \"import ctypes; ctypes.CDLL(None).renameat2(-100, b'aside', -100, b'$F', 2)\"",
]
# In a folder that is writable itself, which holds ordinary files.
AT_THE_TOP = [
    "cp evil planted",
    "install -m 755 evil planted",
    "echo x > planted; chmod +x planted",
    "mv evil planted",
    "ln evil planted",
    "ln -s evil planted",
    "mkdir d; echo x > d/one; ln d/one planted; chmod +x d/one",
    "mkdir d; echo x > d/one; ln d/one d/two; mv d/one planted; chmod +x d/two",
    "echo x > planted; mkdir d; ln planted d/two; chmod +x d/two",
    "python3 -c \"import os; f = os.open('planted', os.O_WRONLY | os.O_CREAT, 0o755)\"",
    "python3 -c \"import os; f = os.open('planted', os.O_WRONLY | os.O_CREAT, 0o644); os.fchmod(f, 0o755)\"",
    "mkdir d; python3 -c \"import os; f = os.open('d/x', os.O_WRONLY | os.O_CREAT); os.rename('d/x', 'planted'); os.fchmod(f, 0o755)\"",
    "mkdir d; python3 -c \"import os; f = os.open('d', os.O_TMPFILE | os.O_WRONLY, 0o600); "
    "os.link(f'/proc/self/fd/{f}', 'planted', follow_symlinks=True); os.fchmod(f, 0o755)\"",
    "python3 -c \"import os; os.mknod('planted', 0o100755)\"",
    "echo x > planted; python3 -c \"import os; os.rename('evil', 'planted')\"",
    "echo x > planted; python3 -c \"import ctypes; ctypes.CDLL(None).renameat2(-100, b'evil', -100, b'planted', 2)\"",
]


def found(path: str, workspace: Path) -> str:
    """Where a shell outside finds the program."""
    argv = ["/bin/sh", "-c", "command -v planted"]
    return subprocess.run(argv, cwd=workspace, env={"PATH": path}, capture_output=True, text=True).stdout.strip()


def prepare(workspace: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The folder that is attacked, and PATH."""
    evil = workspace / "evil"
    evil.write_text("#!/bin/sh\n")
    evil.chmod(0o755)
    folder = {
        "present": ".venv/bin",
        "absent": "node_modules/.bin",
        "link": "current/bin",
        "dangling": "later/bin",
        "relative": "tools/bin",
        "home": "tools/bin",
    }[kind]
    entry = str(workspace / folder)
    if kind in ("present", "relative"):
        (workspace / folder).mkdir(parents=True)
    elif kind == "link":
        (workspace / "v1/bin").mkdir(parents=True)
        (workspace / "current").symlink_to("v1")
    elif kind == "dangling":
        (workspace / "later").symlink_to("v2")
    if kind == "relative":
        entry = "./tools//bin/"
    elif kind == "home":
        monkeypatch.setenv("HOME", str(workspace.parent))
        entry = f"~/{workspace.name}/tools/bin"
    path = f"{entry}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    return folder, path


KINDS = pytest.mark.parametrize("kind", ["present", "absent", "link", "dangling", "relative", "home"])


@pytest.mark.parametrize(
    ("kind", "settings"), [*((k, None) for k in KINDS.args[1]), ("present", SETTINGS), ("absent", SETTINGS)]
)
def test_kernels_put_no_program_there(
    client: Client, workspace: Path, kind: str, settings: dict | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = prepare(workspace, kind, monkeypatch)
    monkeypatch.chdir(workspace)
    shell = path if kind != "home" else path.replace("~", str(workspace.parent), 1)
    with contextlib.ExitStack() as stack:
        if kind == "home":  # a supervisor takes it from the program that starts it
            client = stack.enter_context(Client(log_level=0, no_spare=1))
        options = {"settings": settings} if settings else {}
        s = stack.enter_context(client.session(workspace=workspace, **options))
        s.run("import subprocess, shutil")
        for attack in EVERYWHERE:
            s.run("shutil.copy('evil', 'kept')")
            s.run(
                f"subprocess.run(['bash', '-c', {attack!r}], env=dict(F={folder!r}, T={folder.split('/')[0]!r}, PATH='/usr/bin:/bin'))"
            )
            assert found(shell, workspace) == "", attack
            s.run("shutil.rmtree('aside', ignore_errors=True); os.path.exists('evil') or os.rename('kept', 'evil')")
        assert s.run("open('ordinary', 'w').write('x')").value == "1"


def sandboxed(prefix: Path, workspace: Path, attacks: list[str], program: str, more: str) -> str:
    """The error output of one command that makes all attacks, none of which leaves the program there."""
    (workspace.parent / "settings.json").write_text(json.dumps(SETTINGS))
    steps = [f"({attack}); test -x {program} && echo {shlex.quote(attack)}; {more}" for attack in attacks]
    argv = [prefix / "bin/cellgate", "sandbox", "-s", workspace.parent / "settings.json", "-c", "\n".join(steps)]
    p = subprocess.run(argv, cwd=workspace, capture_output=True, text=True, timeout=60)
    assert p.stdout == "", p.stderr
    return p.stderr


@KINDS
def test_commands_put_no_program_there(
    prefix: Path, workspace: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = prepare(workspace, kind, monkeypatch)
    shell = path if kind != "home" else path.replace("~", str(workspace.parent), 1)
    attacks = [f"cp -n evil kept; export F={folder} T={folder.split('/')[0]}; {a}" for a in EVERYWHERE]
    more = "test -e evil || mv kept evil; rm -rf aside"
    assert "writableNames" in sandboxed(prefix, workspace, attacks, f"{folder}/planted", more)
    assert found(shell, workspace) == ""


@pytest.mark.parametrize("entry", ["", "."], ids=["empty", "dot"])
def test_the_working_folder_in_path(
    client: Client, prefix: Path, workspace: Path, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workspace itself: ordinary files as ever, but no programs directly in it, in kernels and commands."""
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f"{entry}:{os.environ['PATH']}")
    path = f"{entry}:/usr/bin:/bin"
    (workspace / "evil").write_text("#!/bin/sh\n")
    (workspace / "evil").chmod(0o755)
    sandboxed(prefix, workspace, AT_THE_TOP, "planted", "rm -rf planted d")
    assert found(path, workspace) == "" and os.access(workspace / "evil", os.X_OK)
    with client.session(workspace=workspace) as s:
        s.run("import subprocess, shutil, os")
        for attack in AT_THE_TOP:
            s.run(f"subprocess.run(['bash', '-c', {attack!r}])")
            assert found(path, workspace) == "", attack
            shutil.rmtree(workspace / "d", ignore_errors=True)
            (workspace / "planted").unlink(missing_ok=True)
            (workspace / "evil").write_text("#!/bin/sh\n")
            (workspace / "evil").chmod(0o755)
        s.run("os.makedirs('sub')")
        for fine in (
            "open('data.csv', 'w').write('x')",
            "shutil.copy('evil', 'sub/tool')",
            "open('evil', 'a').write('y')",
        ):
            assert s.run(fine).status == "ok", fine
        # An existing program is replaced, as editors do.
        assert s.run("shutil.copy('evil', 'sub/new'); os.rename('sub/new', 'evil')").status == "ok"


def test_the_setting_that_opens_them_is_named(client: Client, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, and in the refusal; with it, nothing is refused."""
    folders = [workspace / ".venv/bin", workspace / "node_modules/.bin"]
    folders[0].mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{folders[0]}:{folders[1]}:{os.environ['PATH']}")
    put = "import os; os.makedirs('{0}', exist_ok=True); open('{0}/x', 'w').write('x')"
    with client.session(workspace=workspace) as s:
        out = [s.run(put.format(f.relative_to(workspace))) for f in folders]
        notices = [e.json["text"] if e.json else e.text for o in out for e in o.events if e.type == "notice"]
        denied = [e.json for o in out for e in o.events if e.type == "denied"]
    assert any(f"cells cannot write {folders[0]}, {folders[1]}: these folders are in PATH" in n for n in notices), (
        notices
    )
    for event, name in zip(denied, (".venv/bin", "node_modules/.bin"), strict=True):
        assert event["how"] == f'add "{name}" to cellgate.writableNames of a settings file'
        assert event["rule"] == "PATH (built in)"
    opened = {**SETTINGS, "cellgate": {"writableNames": [".venv/bin", "node_modules"]}}
    with client.session(workspace=workspace, settings=opened) as s:
        out = [s.run(put.format(f.relative_to(workspace))) for f in folders]
        assert [o.value for o in out] == ["1", "1"]
        assert not [e for o in out for e in o.events if e.type in ("denied", "notice")]


NO_UTF8 = os.fsdecode(b"/opt/jos\xe9/bin")


@pytest.mark.parametrize("kind", ["PATH", "HOME", "GIT_CONFIG_GLOBAL", "folder", "pairs"])
def test_variables_that_cannot_be_read(
    client: Client, prefix: Path, workspace: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sandbox: what the variable names, or the other entries of PATH, would be writable in it."""
    target, why = workspace / "bin/planted", f"the variable {kind} is not UTF-8"
    target.parent.mkdir()
    monkeypatch.setenv("PATH", f"{target.parent}:{os.environ['PATH']}")
    if kind == "PATH":
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{NO_UTF8}")
    elif kind == "HOME":
        target = Path(f"{workspace}{NO_UTF8}/.local/state/cellgate/planted")
        target.parent.mkdir(parents=True)
        monkeypatch.setenv(kind, f"{workspace}{NO_UTF8}")
    elif kind == "GIT_CONFIG_GLOBAL":
        target = Path(f"{workspace}{NO_UTF8}")
        target.parent.mkdir(parents=True)
        monkeypatch.setenv(kind, str(target))
    elif kind == "folder":
        target, why = Path(f"{workspace}{NO_UTF8}/planted"), "the working folder is not UTF-8"
        target.parent.mkdir(parents=True)
        monkeypatch.chdir(target.parent)
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:.")
    else:
        target, why = workspace / "hooks/pre-commit", "more than 100 variables GIT_CONFIG_KEY_n"
        monkeypatch.setenv("GIT_CONFIG_COUNT", "101")
        for i in range(101):
            monkeypatch.setenv(f"GIT_CONFIG_KEY_{i}", "core.hooksPath" if i == 100 else "a.b")
            monkeypatch.setenv(f"GIT_CONFIG_VALUE_{i}", str(target.parent))
    put = (
        f"import os\nfile = {ascii(str(target))}\nos.makedirs(os.path.dirname(file), exist_ok=True)\n"
        "with open(file, 'w') as f: os.fchmod(f.fileno(), 0o755)"
    )
    with contextlib.suppress(CellgateError), client.session(workspace=workspace) as s:
        s.run(put)
    assert not os.access(target, os.X_OK)
    with pytest.raises(CellgateError, match=why):
        client.session(workspace=workspace)
    settings = workspace.parent / "settings.json"
    settings.write_text(json.dumps(SETTINGS))
    argv = [prefix / "bin/cellgate", "sandbox", "-s", settings, "/usr/bin/python3", "-c", put]
    p = subprocess.run(argv, cwd=target.parent if kind == "folder" else workspace, capture_output=True, text=True, errors="replace")
    assert not os.access(target, os.X_OK)
    assert why in p.stderr or kind == "folder", p.stderr


def test_another_clients_path(client: Client, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that was started in advance for another PATH is not used with its view."""
    (workspace / "tools").mkdir()
    for _ in range(2):
        with client.session(workspace=workspace) as s:
            assert s.run("open('tools/x', 'w').write('x')").value == "1"
    monkeypatch.setenv("PATH", f"{workspace}/tools:{os.environ['PATH']}")
    with client.session(workspace=workspace) as s:
        out = s.run("open('tools/x', 'w').write('x')")
        # The reason has no name where that has other characters than a setting, such as the blank of this workspace.
        assert "it is in a folder of PATH" in out.error["evalue"]
        assert s.run("6 * 7").value == "42"  # the kernel still runs: it has reported no malformed denial
