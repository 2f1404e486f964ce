"""Manual pages and completions are installed and have every command and option; the version is the same everywhere."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import manual
import pytest

PAGES = ["man1/cellgate.1", "man1/cellgate-sandbox.1", "man5/cellgate-settings.5"]


@pytest.fixture(scope="module")
def program(prefix: Path) -> manual.Program:
    return manual.Program(*[str(prefix / "bin/cellgate")] * 2)


def test_every_command_and_option_is_in_the_manual(prefix: Path, program: manual.Program) -> None:
    named = set(program.all())
    assert {"run", "mcp serve", "mcp add", "jupyter install", "sandbox", "env create"} <= named
    # --help does not list some of these, and the others have no help of their own.
    assert {"session kill", "queue status", "job cancel", "config schema", "artifacts", "verify", "sandboxmcp"} <= named
    text = "".join((prefix / "share/man" / page).read_text() for page in PAGES[:2]).replace("\\-", "-")
    for words in named:
        assert f'.SH "CELLGATE {(words.split() or [""])[0].upper()}"' in text or words in ("", "sandbox"), words
        assert all(option in text for option in program.options(words)), words
    assert all({**program.options("session"), **program.options("job"), **program.options("queue")}.values())
    assert len(program.options("run")) > 20 and "--approve" in program.options("mcp serve")


def test_every_key_of_the_settings_is_in_the_manual(repo: Path, prefix: Path) -> None:
    page = (prefix / "share/man" / PAGES[2]).read_text()
    keys = re.findall(r"^\| `([a-zA-Z.]+)` \|", (repo / "docs/settings.md").read_text(), re.M)
    assert len(keys) > 20
    assert [k for k in keys if k not in page] == []


@pytest.mark.parametrize("page", PAGES)
def test_manual_pages_are_well_formed(prefix: Path, page: str) -> None:
    if not shutil.which("groff"):
        pytest.skip("no groff")
    argv = ["groff", "-man", "-Tutf8", "-ww", "-z", prefix / "share/man" / page]
    p = subprocess.run(argv, capture_output=True, text=True)
    assert (p.returncode, p.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "has", "has_not"),
    [
        (["cellgate", ""], {"run", "mcp", "sandbox", "--version"}, {"serve"}),
        (["cellgate", "mcp", "se"], {"serve"}, {"login"}),
        (["cellgate", "mcp", "serve", "--ap"], {"--approve"}, {"--allow-host"}),
        (["cellgate", "run", "--workspace", ".", "--mc"], {"--mcp"}, {"--approve"}),
        (["cellgate", "run", ""], set(), {"--mcp"}),
        (["cellgate", "session", "k"], {"kill"}, {"list"}),
        (["cellgate", "job", "cancel", "--"], {"--id"}, {"--approve"}),
    ],
)
def test_bash_completion(prefix: Path, words: list[str], has: set[str], has_not: set[str]) -> None:
    script = '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cellgate; printf "%s\\n" "${COMPREPLY[@]}"'
    file = prefix / "share/bash-completion/completions/cellgate.bash"
    p = subprocess.run(["bash", "-c", script, file, *words], capture_output=True, text=True)
    assert (p.returncode, p.stderr) == (0, "")
    offered = set(p.stdout.split())
    assert has <= offered and not has_not & offered


@pytest.mark.parametrize(
    ("shell", "file"), [("zsh", "zsh/site-functions/_cellgate"), ("fish", "fish/vendor_completions.d/cellgate.fish")]
)
def test_completions_of_other_shells(prefix: Path, program: manual.Program, shell: str, file: str) -> None:
    text = (prefix / "share" / file).read_text()
    assert all(words.split()[-1] in text for words in program.all() if words)
    if shutil.which(shell):
        p = subprocess.run([shell, "-n", prefix / "share" / file], capture_output=True, text=True)
        assert (p.returncode, p.stderr) == (0, "")


def test_help_texts(program: manual.Program, prefix: Path) -> None:
    assert len(program.help) > 30
    for words, text in program.help.items():
        assert text.startswith("Usage: cellgate") and max(map(len, text.splitlines())) <= 100, words
    for words in set(program.all()) - set(program.help):
        p = subprocess.run([prefix / "bin/cellgate", *words.split(), "--help"], capture_output=True, text=True)
        assert (p.returncode, p.stdout, p.stderr) == (0, program.help[words.split()[0]], ""), words


def test_the_first_help_is_short(program: manual.Program) -> None:
    assert program.help[""].count("\n") <= 24


def test_one_version(repo: Path, prefix: Path) -> None:
    """meson.build has it; pip takes it from there, npm and the change log repeat it."""
    version = re.search(r"^  version: '(.*)',$", (repo / "meson.build").read_text(), re.M)
    assert version
    assert json.loads((repo / "npm/package.json").read_text())["version"] == version[1]
    assert 'dynamic = ["version"]' in (repo / "pyproject.toml").read_text()
    assert f"\n## [{version[1]}]" in (repo / "CHANGELOG.md").read_text()
    p = subprocess.run([prefix / "bin/cellgate", "--version"], capture_output=True, text=True)
    assert p.stdout == f"cellgate {version[1]}\n"
