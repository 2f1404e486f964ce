"""Where AppArmor restricts user namespaces (Ubuntu): the profiles, who gets one, how they are installed, what errors say."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import restricted

USER = 61235
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason=restricted.NOT_ROOT)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


@pytest.fixture
def profile(prefix: Path) -> str:
    return (prefix / "share/cellgate/apparmor-profile").read_text()


def fix_command(prefix: Path) -> str:
    return f"sudo {prefix}/bin/cellgate doctor --fix"


# ---------------------------------------------------------------- the profiles


def test_profiles_are_for_the_two_programs_that_make_sandboxes(prefix: Path, profile: str) -> None:
    found = re.findall(r"^profile (\S+) (\S+) flags=\(unconfined\) \{\n(.*?)^\}", profile, re.M | re.S)
    assert len(found) == profile.count("profile cellgate") == 2
    programs = [Path(path) for _, path, _ in found]
    assert programs == [prefix / "libexec/cellgate/cellgate-kernel", prefix / "libexec/cellgate/cellgate-sandbox"]
    for name, path, body in found:
        # Exact paths: a pattern would be for whatever is put beside them.
        assert not re.search(r"[*?{}\[\]@^\"]", path)
        assert Path(path).is_file()
        rules = [line.strip() for line in body.splitlines() if line.strip()]
        assert rules == ["userns,", f"include if exists <local/{name}>"]


def test_profiles_are_accepted_by_apparmor_parser(profile: str, tmp_path: Path) -> None:
    parser = shutil.which("apparmor_parser", path="/usr/sbin:/sbin:/usr/bin")
    if not parser:
        pytest.skip("no apparmor_parser (package apparmor)")
    version = subprocess.run([parser, "--version"], capture_output=True, text=True, check=True).stdout
    major = int(re.search(r"version (\d+)", version)[1])  # type: ignore[index]
    if major < 4 or not Path("/etc/apparmor.d/abi/4.0").exists():
        pytest.skip(f"apparmor_parser {major} does not know userns rules: version 4 is needed")
    file = tmp_path / "profile"
    for text, accepted in ((profile, True), (profile.replace("userns,", "userns nonsense,"), False)):
        file.write_text(text)
        p = subprocess.run([parser, "-Q", "-K", file], capture_output=True, text=True)
        assert (p.returncode == 0) == accepted, p.stderr


# ---------------------------------------------------------------- who gets one


@needs_root
def test_sandboxes_are_made_by_the_copy_with_the_profile(prefix: Path, scratch: Path, tmp_path: Path) -> None:
    """And only they: what has a profile passes it on to all that it starts, MCP servers among it."""
    recorder = tmp_path / "recorder"
    recorder.write_text('#!/bin/sh\necho "by the copy: $*"\n')
    recorder.chmod(0o755)
    over = {prefix / "libexec/cellgate/cellgate-sandbox": recorder}
    program = prefix / "bin/cellgate"

    def ask(*args: str) -> str:
        return restricted.run([program, *args], scratch, over, cwd=tmp_path).stdout

    assert ask("sandbox", "true") == "by the copy: sandbox true\n"
    assert ask("doctor", "--json") == "by the copy: doctor --json\n"
    assert ask("run", "-c", "print(40 + 2)") == "42\n"
    for other in ("run", "mcp", "jupyter", "gen", "selftest", "env"):
        shown = ask(other, "--help")
        assert "by the copy" not in shown
        assert "Usage" in shown
    p = subprocess.run([program, "sandbox", "echo", "here"], capture_output=True, text=True, timeout=60)
    assert p.stdout == "here\n"


@needs_root
def test_the_copy_works(prefix: Path, scratch: Path, tmp_path: Path) -> None:
    """It does not start itself again, and it is called by the name that the user called."""
    for argv in ([prefix / "bin/cellgate", "sandbox", "echo", "inside"], [tmp_path / "srt", "echo", "inside"]):
        if not (tmp_path / "srt").is_symlink():
            (tmp_path / "srt").symlink_to(prefix / "bin/cellgate")
        p = restricted.run(argv, scratch, cwd=tmp_path)
        assert (p.returncode, p.stdout) == (0, "inside\n"), p.stderr


@needs_root
def test_mcp_servers_descend_from_no_program_with_a_profile(
    prefix: Path, repo: Path, scratch: Path, tmp_path: Path, profile: str
) -> None:
    """The profile of a program is inherited by what it starts, unless that has one of its own."""
    log, tools = tmp_path / "log", tmp_path / "tools.json"
    tools.write_text('["read_file"]')
    server = f"""import os, runpy, sys
pid, seen = os.getppid(), []
while pid > 1:
    seen.append(os.readlink(f"/proc/{{pid}}/exe"))
    pid = int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])
open({str(log)!r}, "w").write("\\n".join(seen))
sys.argv = [sys.argv[0], {str(tools)!r}, {str(tmp_path / "journal")!r}]
runpy.run_path({str(repo / "tests/cli/data/server.py")!r}, run_name="__main__")
"""
    definition = {"mcpServers": {"fs": {"command": sys.executable, "args": ["-c", server]}}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(definition))
    code = "from mcptools.fs import read_file\nread_file.run(path='/x')"
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    argv = [prefix / "bin/cellgate", "run", "--workspace", workspace, "--mcp", file, "--approve", "all", "-c", code]
    p = restricted.run(argv, scratch, cwd=workspace)
    assert p.returncode == 0, p.stderr
    ancestors = log.read_text().splitlines()
    assert str(prefix / "libexec/cellgate/cellgate-toolserver") in ancestors
    assert not set(ancestors) & set(re.findall(r"^profile \S+ (\S+)", profile, re.M))


# ---------------------------------------------------------------- the error of the first run


@needs_root
@pytest.mark.parametrize("command", [["sandbox", "true"], ["run", "-c", "1"], ["doctor"]])
def test_the_error_names_the_one_command(
    prefix: Path, repo: Path, scratch: Path, tmp_path: Path, command: list[str]
) -> None:
    no_users = [sys.executable, repo / "tests/sandbox_command/no_users.py"]
    p = restricted.run([*no_users, prefix / "bin/cellgate", *command], scratch, cwd=tmp_path)
    assert p.returncode != 0
    said = p.stdout + p.stderr
    assert fix_command(prefix) in said
    assert "AppArmor" in said
    # Without the restriction it is something else that forbids them.
    q = subprocess.run(
        [*no_users, prefix / "bin/cellgate", *command], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert q.returncode != 0
    assert "AppArmor" not in q.stdout + q.stderr


# ---------------------------------------------------------------- installing them


class Installation:
    """The installed script and profile as they are in a prefix that is root's, /opt/cellgate; no real AppArmor is changed."""

    def __init__(self, tmp_path: Path, prefix: Path) -> None:
        self.opt, self.etc = tmp_path / "opt", tmp_path / "etc"
        # Shown as /opt/bin: users other than root cannot enter tmp_path.
        self.bin = self.opt / "bin"
        self.calls = tmp_path / "calls"
        for folder in (
            self.opt / "cellgate/libexec/cellgate",
            self.opt / "cellgate/share/cellgate",
            self.bin,
            self.etc / "abi",
        ):
            folder.mkdir(parents=True)
        (self.etc / "abi/4.0").touch()
        for name in ("libexec/cellgate/apparmor", "share/cellgate/apparmor-profile"):
            target = self.opt / "cellgate" / name
            target.write_text((prefix / name).read_text().replace(str(prefix), "/opt/cellgate"))
            target.chmod(0o755)
        for name in ("cellgate-kernel", "cellgate-sandbox"):
            (self.opt / "cellgate/libexec/cellgate" / name).touch(mode=0o755)
        self.parser("exit 0")
        self.file = self.etc / self.name(prefix)

    @staticmethod
    def name(prefix: Path) -> str:
        return "cellgate" + re.sub(r"[^A-Za-z0-9]", "_", str(prefix))

    def parser(self, text: str) -> None:
        program = self.bin / "apparmor_parser"
        program.write_text(f'#!/bin/sh\necho "$@" >>{self.calls}\n{text}\n')
        program.chmod(0o755)

    def run(self, *args: str, user: bool = False) -> subprocess.CompletedProcess[str]:
        """In a view of the system where /opt, /etc/apparmor.d are these."""
        Path("/etc/apparmor.d").mkdir(exist_ok=True)
        view = ["bwrap", "--dev-bind", "/", "/", "--bind", self.opt, "/opt", "--bind", self.etc, "/etc/apparmor.d"]
        return subprocess.run(
            [*view, *(AS_USER if user else []), "/bin/sh", "/opt/cellgate/libexec/cellgate/apparmor", *args],
            env={"PATH": "/opt/bin:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def installation(tmp_path: Path, prefix: Path) -> Installation:
    if os.geteuid() != 0:
        pytest.skip("needs root: an installation that is root's alone")
    return Installation(tmp_path, prefix)


def test_profiles_are_installed_and_removed(installation: Installation) -> None:
    p = installation.run()
    assert (p.returncode, p.stderr) == (0, "")
    assert "/opt/cellgate/libexec/cellgate/cellgate-kernel" in installation.file.read_text()
    assert "-QK" in installation.calls.read_text()
    assert sorted(f.name for f in installation.etc.iterdir()) == ["abi", installation.file.name]
    assert installation.run("--if-needed").returncode == 0
    p = installation.run("--remove")
    assert (p.returncode, p.stderr) == (0, "")
    assert sorted(f.name for f in installation.etc.iterdir()) == ["abi"]


def test_a_user_is_told_the_command_for_root(installation: Installation) -> None:
    p = installation.run(user=True)
    assert (p.returncode, p.stdout) == (1, "")
    assert "sudo /opt/cellgate/bin/cellgate doctor --fix" in p.stderr
    p = installation.run("--if-needed", user=True)
    assert p.returncode == 0
    assert "sudo /opt/cellgate/bin/cellgate doctor --fix" in p.stdout
    assert not installation.file.exists()


@pytest.mark.parametrize("name", ["libexec/cellgate/cellgate-kernel", "libexec/cellgate", "."])
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_no_profile_for_what_others_can_replace(installation: Installation, name: str, how: str) -> None:
    path = installation.opt / "cellgate" / name
    if how == "owner":
        os.chown(path, USER, USER)
    else:
        path.chmod(0o777)
    for args in ((), ("--if-needed",)):
        p = installation.run(*args)
        assert p.returncode == (0 if args else 1)
        assert "users other than root can replace /opt/cellgate" in p.stdout + p.stderr
        assert not installation.file.exists()


def test_a_profile_that_is_not_accepted_changes_nothing(installation: Installation) -> None:
    installation.file.write_text("# the former one\n")
    installation.parser('echo "syntax error" >&2; exit 1')
    p = installation.run()
    assert p.returncode == 1
    assert "syntax error" in p.stderr
    assert installation.file.read_text() == "# the former one\n"
    assert sorted(f.name for f in installation.etc.iterdir()) == ["abi", installation.file.name]


def test_an_older_apparmor_gets_none(installation: Installation) -> None:
    """It would not even be read by it: AppArmor of such a system fails to start then."""
    (installation.etc / "abi/4.0").unlink()
    p = installation.run("--if-needed")
    assert (p.returncode, p.stdout, p.stderr) == (0, "", "")
    p = installation.run()
    assert p.returncode == 1
    assert "no AppArmor 4.0" in p.stderr
    assert not installation.file.exists()


def test_fix_where_nothing_is_restricted(prefix: Path) -> None:
    if Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").exists():
        pytest.skip("AppArmor restricts user namespaces here")
    p = subprocess.run([prefix / "bin/cellgate", "doctor", "--fix"], capture_output=True, text=True, timeout=60)
    assert (p.returncode, p.stderr) == (0, "")
    assert "nothing for --fix to do" in p.stdout
